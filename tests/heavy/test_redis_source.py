"""RedisSource against a real Redis: every entry once and in order, whatever dies on the way."""

import itertools
import random
import threading
import time

import pytest

redis = pytest.importorskip("redis")

from brokers import redis_server  # noqa: E402, F401 - a fixture
from reading import gather, once_waiting, stored, xs  # noqa: E402

from streamboost.sources import BadRow, LostRows, RedisSource, open_source  # noqa: E402

N = 60
numbers = itertools.count()


@pytest.fixture
def server(redis_server):  # noqa: F811
    if redis_server.process.poll() is not None:
        redis_server.start()
    return redis_server


@pytest.fixture
def client(server):
    client = server.client()
    yield client
    client.close()


@pytest.fixture
def stream(client):
    name = f"rows{next(numbers)}"
    fill(client, name, range(N))
    return name


def fill(client, stream, rows):
    with client.pipeline(transaction=False) as pipe:
        for k in rows:
            pipe.xadd(stream, {"x": k, "city": f"city {k % 3}", "y": k / 4})
        return pipe.execute()


@pytest.mark.parametrize("n_rows", [1, 7, 1000])
def test_every_entry_comes_once_and_in_order_in_batches_of_every_size(server, stream, n_rows):
    source = RedisSource(server.address, stream)
    batches = list(source.read(n_rows=n_rows))
    assert xs(batches) == list(range(N))
    assert source.progress(batches[0].position) == pytest.approx(min(n_rows, N) / N)
    assert all(batch.table.num_rows == n_rows for batch in batches[:-1])
    assert batches[0].table.slice(0, 1).to_pylist() == [{"x": 0.0, "city": "city 0", "y": 0.0}]


def test_reading_resumes_after_every_batch(server, stream):
    positions = [batch.position for batch in RedisSource(server.address, stream).read(n_rows=1)]
    for k in random.Random(0).sample(range(N), 20):
        rest = list(RedisSource(server.address, stream).read(stored(positions[k]), n_rows=7))
        assert xs(rest) == list(range(k + 1, N))


def test_a_new_model_starts_at_the_first_entry_or_at_the_end(server, client, stream):
    assert xs(RedisSource(server.address, stream).read()) == list(range(N))
    late = {"start": "latest", "follow": True}
    assert xs(RedisSource(server.address, stream, **late, stop=lambda: True).read()) == []
    more = once_waiting(lambda: fill(client, stream, [100, 101]))
    assert gather(RedisSource(server.address, stream, **late, stop=more).read(), 2) == [100, 101]


def come_back(server, log, within=120.0):
    """Start a server again when somebody has missed it."""
    until = time.monotonic() + within
    while "does not answer" not in log.text and time.monotonic() < until:
        time.sleep(0.05)
    assert "does not answer" in log.text
    server.start()


def test_a_killed_server_that_comes_back_gives_every_entry_once(server, client, stream, caplog):
    fill(client, stream, range(N, 3000))
    rows, back = [], threading.Thread(target=come_back, args=(server, caplog))
    stop = lambda: len(rows) == 3100  # noqa: E731
    source = RedisSource(server.address, stream, follow=True, stop=stop, timeout=180)
    for k, batch in enumerate(source.read(n_rows=100)):
        rows += xs([batch])
        if k == 5:
            server.kill()
            back.start()
        if k == 12:  # and again, while nobody reads; more is written before anybody does
            back.join()
            server.kill()
            server.start()
            fill(server.client(), stream, range(3000, 3100))
    assert rows == list(range(3100))


def test_a_server_that_stays_away_is_an_error_after_the_timeout_and_nothing_is_lost(server, stream):
    first = next(RedisSource(server.address, stream).read(n_rows=10))
    server.kill()
    with pytest.raises(ConnectionError, match=f"Redis at 127.0.0.1:{server.port} did not answer for 0.5 s .*nothing"):
        list(RedisSource(server.address, stream, timeout=0.5).read(first.position))
    server.start()
    assert xs(RedisSource(server.address, stream).read(stored(first.position))) == list(range(10, N))


def test_a_user_who_gives_up_is_not_kept_waiting_for_a_dead_server(server):
    source = RedisSource("redis://127.0.0.1:1/0", "rows", follow=True, stop=lambda: True, timeout=600)
    began = time.monotonic()
    assert list(source.read()) == []
    assert time.monotonic() - began < 300


def test_following_gives_what_there_is_and_waits_for_more_until_stopped(server, client):
    name, stopped = f"rows{next(numbers)}", []
    source = RedisSource(server.address, name, follow=True, stop=lambda: bool(stopped))
    reading = source.read(n_rows=1000)
    threading.Timer(0.2, fill, (client, name, range(3))).start()
    assert gather(reading, 3) == [0, 1, 2]
    threading.Timer(0.2, fill, (client, name, range(3, 5))).start()
    assert gather(reading, 2) == [3, 4]
    stopped.append(True)
    assert list(reading) == []


def test_without_following_the_end_is_where_it_was_at_the_start(server, client, stream):
    reading = RedisSource(server.address, stream).read(n_rows=10)
    next(reading)
    fill(client, stream, range(1000, 1010))
    assert xs(reading) == list(range(10, N))


def test_json_in_a_field_and_bad_entries(server, client):
    name = f"rows{next(numbers)}"
    for value in ['{"x": 0, "ok": true}', "[1]", '{"x": 2', '{"x": "three"}', '{"x": 4}', b"\xff", '{"x": null}']:
        client.xadd(name, {"data": value})
    client.xadd(name, {"other": 1})
    client.xadd(name, {"data": '{"x": 8}'})
    bad = []
    batches = list(RedisSource(server.address, name, on_bad=bad.append, field="data").read())
    assert xs(batches) == [0, 4, 8]
    assert [row.text for row in bad][:3] == [
        '{"data": "[1]"}',
        '{"data": "{\\"x\\": 2"}',
        '{"data": "{\\"x\\": \\"three\\"}"}',
    ]
    words = [
        "not an object",
        "not JSON",
        "column 'x' holds a string, but it is double",
        "not UTF-8",
        "no value",
        "no field 'data', but 'other'",
    ]
    assert all(word in row.reason for word, row in zip(words, bad, strict=True))
    reading = RedisSource(server.address, name, field="data").read()
    assert xs([next(reading)]) == [0]
    with pytest.raises(BadRow, match=f"stream {name}, entry [0-9]+-[0-9]+: the message is an array"):
        next(reading)
    again = RedisSource(server.address, name, on_bad="skip", field="data").read(stored(bad[2].position))
    assert xs(again) == [4, 8]


def trim(client, stream):
    client.xtrim(stream, minid=client.xrange(stream)[25][0], approximate=False)


def delete(client, stream):
    client.xdel(stream, client.xrange(stream)[30][0])


def remake(client, stream):
    client.delete(stream)
    fill(client, stream, range(200, 220))


def remove(client, stream):
    client.delete(stream)


def empty(client, stream):
    client.xtrim(stream, maxlen=0, approximate=False)


@pytest.mark.parametrize(
    ("damage", "words", "rest"),
    [
        (trim, "was trimmed: 15 entries after .* were lost unread", list(range(25, N))),
        (delete, "lost entries before they were read", [k for k in range(10, N) if k != 30]),
        (remake, "made anew", list(range(200, 220))),
        (remove, "is gone", []),
        (empty, "was trimmed: 50 entries", []),
    ],
)
def test_rows_that_were_lost_are_an_error_that_says_so(server, client, stream, damage, words, rest):
    position = next(RedisSource(server.address, stream).read(n_rows=10)).position
    damage(client, stream)
    for _ in range(2):  # it does not go away by itself
        with pytest.raises(LostRows, match=f"{words}.*on_lost='skip'"):
            list(RedisSource(server.address, stream).read(stored(position)))
    batches = list(RedisSource(server.address, stream, on_lost="skip").read(stored(position), n_rows=9))
    assert xs(batches) == rest
    if batches:  # and then all is well again
        fill(client, stream, [999])
        assert xs(RedisSource(server.address, stream).read(stored(batches[-1].position))) == [999]


def test_trimming_and_deleting_what_was_read_loses_nothing(server, client, stream):
    batch = next(RedisSource(server.address, stream).read(n_rows=30))
    ids = [id for id, _ in client.xrange(stream)]
    client.xdel(stream, ids[5], ids[29])
    client.xtrim(stream, minid=ids[30], approximate=False)
    assert xs(RedisSource(server.address, stream).read(stored(batch.position))) == list(range(30, N))


def test_a_stream_trimmed_under_a_reader_is_noticed(server, client, monkeypatch):
    monkeypatch.setattr("streamboost.sources.redis_client.FETCH", 10)
    name = f"rows{next(numbers)}"
    fill(client, name, range(N))
    reading = RedisSource(server.address, name).read(n_rows=5)
    next(reading)
    client.xtrim(name, maxlen=20, approximate=False)
    with pytest.raises(LostRows, match="was trimmed: 30 entries"):
        list(reading)


def test_what_is_wrong_is_said_in_one_sentence(server, client, stream):
    client.set("text", "hello")
    batch = next(RedisSource(server.address, stream).read())
    for address, words in {
        f"{server.address}/{stream}x": "has no stream .*typo.*follow=True",
        f"{server.address}/text": "'text' at .* is not a stream",
        "redis://127.0.0.1:1/0/a": "Redis at 127.0.0.1:1 did not answer for 0.2 s",
        f"{server.address}/a?sart=latest": "redis-py refuses the options of the address: .*'sart'",
        server.address.replace("//", "//me:secret@") + "/a": "refuses to talk: .*user and password",
    }.items():
        with pytest.raises((ValueError, ConnectionError), match=words) as caught:
            list(open_source(address, timeout=0.2).read())
        assert "secret" not in str(caught.value)
    with pytest.raises(ValueError, match="position is of stream"):
        RedisSource(server.address, "other").read(batch.position)
    of_a_group = {"stream": stream, "schema": batch.position["schema"], "learned": ""}
    with pytest.raises(ValueError, match="expected one of a batch of this source"):
        RedisSource(server.address, stream).read(of_a_group)
