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
from streamboost.sources.redis_link import RedisLink  # noqa: E402

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


def pending(client, stream, group="streamboost"):
    return client.xpending(stream, group)["pending"]


SHARED = {"consumer": "a", "group": "g"}
MODES = pytest.mark.parametrize("mode", [{}, SHARED], ids=["the only reader", "a consumer"])


@MODES
@pytest.mark.parametrize("n_rows", [1, 7, 1000])
def test_every_entry_comes_once_and_in_order_in_batches_of_every_size(server, stream, mode, n_rows):
    source = RedisSource(server.address, stream, **mode)
    batches = list(source.read(n_rows=n_rows))
    assert xs(batches) == list(range(N))
    assert source.share(batches[0].position) == (None if mode else pytest.approx(min(n_rows, N) / N))
    assert all(batch.table.num_rows == n_rows for batch in batches[:-1])
    assert batches[0].table.slice(0, 1).to_pylist() == [{"x": 0.0, "city": "city 0", "y": 0.0}]


def test_reading_resumes_after_every_batch_whatever_the_group_thinks(server, stream):
    source = RedisSource(server.address, stream)
    positions = [batch.position for batch in source.read(n_rows=1)]
    source.acknowledge(positions[-1])
    for k in random.Random(0).sample(range(N), 20):
        rest = list(RedisSource(server.address, stream).read(stored(positions[k]), n_rows=7))
        assert xs(rest) == list(range(k + 1, N))


@MODES
def test_runs_that_end_anywhere_and_forget_what_was_not_in_a_snapshot_add_up(server, client, stream, mode):
    for seed in range(10):
        chance, position, rows = random.Random(seed), None, []
        mode = {**mode, "group": f"group {seed}"}
        while len(rows) < N:
            source = RedisSource(server.address, stream, **mode)
            learned = list(rows)
            for batch in source.read(stored(position), n_rows=chance.randint(1, 15)):
                learned += xs([batch])
                if chance.random() < 0.5:  # a snapshot, and perhaps an end before it could be acknowledged
                    rows, position = list(learned), batch.position
                    if chance.random() < 0.5:
                        source.acknowledge(stored(position))
                if chance.random() < 0.3:
                    break
        assert rows == list(range(N))
        source.acknowledge(position)
        assert pending(client, stream, mode["group"]) == 0


@MODES
def test_the_group_shows_what_is_acknowledged(server, client, stream, mode):
    source = RedisSource(server.address, stream, **mode)
    reading = source.read(n_rows=20)
    next(reading)
    second = next(reading)
    source.acknowledge(None)
    source.acknowledge(stored(second.position))
    if mode:
        assert pending(client, stream, "g") == N - 40
    else:
        (group,) = client.xinfo_groups(stream)
        assert (group["lag"], group["pending"]) == (N - 40, 0)
    reading.close()
    last = list(RedisSource(server.address, stream, **mode).read(stored(second.position)))[-1]
    RedisSource(server.address, stream, **mode).acknowledge(last.position)  # another process might do that
    (group,) = client.xinfo_groups(stream)
    assert (group["lag"], group["pending"]) == (0, 0)


def test_a_new_model_starts_at_the_first_entry_or_where_the_group_is_or_at_the_end(server, client, stream):
    source = RedisSource(server.address, stream)
    first = next(source.read(n_rows=25))
    source.acknowledge(first.position)
    assert xs(RedisSource(server.address, stream).read()) == list(range(N))
    assert xs(RedisSource(server.address, stream, start="committed").read()) == list(range(25, N))
    late = {"start": "latest", "follow": True, "idle": 0.05}
    assert xs(RedisSource(server.address, stream, **late, idle_timeout=0.2).read()) == []
    more = once_waiting(lambda: fill(client, stream, [100, 101]))
    assert gather(RedisSource(server.address, stream, **late, stop=more).read(), 2) == [100, 101]


def test_two_consumers_share_the_entries_and_each_is_exact(server, client, stream, monkeypatch):
    monkeypatch.setattr("streamboost.sources.redis_groups.AT_ONCE", 7)
    a, b = (RedisSource(server.address, stream, group="g", consumer=name).read(n_rows=7) for name in "ab")
    rows = {"a": [], "b": []}
    positions = {"a": [], "b": []}
    for turn in range(8):  # then both are killed
        name, reading = ("a", a) if turn % 2 else ("b", b)
        batch = next(reading)
        rows[name] += xs([batch])
        positions[name].append((len(rows[name]), batch.position))
    a.close()
    b.close()
    assert sorted(rows["a"] + rows["b"]) == list(range(56))
    for name in "ab":  # one snapshot is older than the rows it got
        n, position = positions[name][1]
        source = RedisSource(server.address, stream, group="g", consumer=name)
        source.acknowledge(position)
        again = list(source.read(stored(position)))
        assert xs(again)[: len(rows[name]) - n] == rows[name][n:]
        source.acknowledge(again[-1].position)
    assert pending(client, stream, "g") == 0


def test_entries_of_a_dead_consumer_are_taken_over_once_and_not_those_already_learned(server, client, stream):
    dead = RedisSource(server.address, stream, group="g", consumer="dead")
    learned_by_the_dead = next(dead.read(n_rows=20))  # and all 60 are pending with it
    assert pending(client, stream, "g") == N
    time.sleep(0.3)
    heir = RedisSource(server.address, stream, group="g", consumer="heir", reclaim_after=0.2)
    batches = list(heir.read(stored(learned_by_the_dead.position)))  # the same model goes on under another name
    assert xs(batches) == list(range(20, N))
    heir.acknowledge(batches[-1].position)
    assert pending(client, stream, "g") == 0
    fill(client, stream, [N])
    next(RedisSource(server.address, stream, group="g", consumer="dead").read(None))
    time.sleep(0.3)
    assert xs(heir.read(stored(batches[-1].position))) == [N]  # what another model got, for it may never come back


def test_a_reader_does_not_take_its_own_entries_over_as_new_ones(server, client, stream):
    source = RedisSource(server.address, stream, **SHARED, reclaim_after=0.1, follow=True, idle=0.05, idle_timeout=0.6)
    assert xs(source.read(n_rows=13)) == list(range(N))


def test_what_was_learned_and_not_acknowledged_is_acknowledged_when_it_comes_again(server, client, stream):
    position = list(RedisSource(server.address, stream, **SHARED).read(n_rows=7))[-1].position
    assert pending(client, stream, "g") == N
    assert list(RedisSource(server.address, stream, **SHARED).read(stored(position))) == []
    assert pending(client, stream, "g") == 0


def test_a_position_older_than_what_was_acknowledged_is_exact_alone_and_refused_in_a_group(server, stream):
    for mode in ({}, SHARED):
        source = RedisSource(server.address, stream, **mode)
        batches = list(source.read(n_rows=20))
        source.acknowledge(batches[2].position)
        if not mode:
            assert xs(source.read(stored(batches[0].position))) == list(range(20, N))
            continue
        with pytest.raises(LostRows, match=r"40 entries to 'a' after this position.*newest snapshot.*on_lost='skip'"):
            list(RedisSource(server.address, stream, **mode).read(stored(batches[0].position)))


def come_back(server, log, within=120.0):
    """Start a server again when somebody has missed it."""
    until = time.monotonic() + within
    while "does not answer" not in log.text and time.monotonic() < until:
        time.sleep(0.05)
    assert "does not answer" in log.text
    server.start()


@MODES
def test_a_killed_server_that_comes_back_gives_every_entry_once(server, client, stream, mode, caplog):
    fill(client, stream, range(N, 3000))
    rows, position, back = [], None, threading.Thread(target=come_back, args=(server, caplog))
    stop = lambda: len(rows) == 3100  # noqa: E731
    source = RedisSource(server.address, stream, **mode, follow=True, idle=0.1, stop=stop, timeout=180)
    for k, batch in enumerate(source.read(n_rows=100)):
        rows += xs([batch])
        position = batch.position
        if k == 4:
            source.acknowledge(position)
        if k == 5:
            server.kill()
            back.start()
        if k == 12:  # and again, while nobody reads; more is written before anybody does
            back.join()
            server.kill()
            server.start()
            fill(server.client(), stream, range(3000, 3100))
    assert rows == list(range(3100))
    source.stop = None
    source.acknowledge(position)
    assert pending(server.client(), stream, mode.get("group", "streamboost")) == 0


def test_entries_whose_delivery_was_lost_on_the_way_come_all_the_same(server, stream, monkeypatch):
    monkeypatch.setattr("streamboost.sources.redis_groups.AT_ONCE", 7)
    transaction, lost = RedisLink.transaction, []

    def lose_some(link, fill):
        answers = transaction(link, fill)
        if len(answers) == 3 and answers[2] and len(lost) < 2:  # entries were dealt out, and nobody hears of it
            lost.append(answers[2])
            raise redis.exceptions.ConnectionError("the line is dead")
        return answers

    monkeypatch.setattr(RedisLink, "transaction", lose_some)
    assert xs(RedisSource(server.address, stream, **SHARED).read(n_rows=5)) == list(range(N))
    assert len(lost) == 2


@MODES
def test_a_server_that_stays_away_is_an_error_after_the_timeout_and_nothing_is_lost(server, stream, mode):
    source = RedisSource(server.address, stream, **mode)
    reading = source.read(n_rows=10)
    first = next(reading)
    server.kill()
    source.timeout = 0.5
    with pytest.raises(ConnectionError, match=f"Redis at 127.0.0.1:{server.port} did not answer for 0.5 s .*nothing"):
        source.acknowledge(first.position)
    with pytest.raises(ConnectionError, match=r"did not answer for 0.5 s"):
        list(RedisSource(server.address, stream, **mode, timeout=0.5).read(first.position))
    reading.close()
    server.start()
    assert xs(RedisSource(server.address, stream, **mode).read(stored(first.position))) == list(range(10, N))


def test_a_user_who_gives_up_is_not_kept_waiting_for_a_dead_server(server):
    source = RedisSource("redis://127.0.0.1:1/0", "rows", follow=True, stop=lambda: True, timeout=600)
    began = time.monotonic()
    assert list(source.read()) == []
    assert time.monotonic() - began < 300


@MODES
def test_a_user_who_gives_up_is_not_kept_waiting_for_an_acknowledgement_either(server, stream, mode):
    stopped = []
    source = RedisSource(server.address, stream, **mode, stop=lambda: bool(stopped), timeout=600)
    reading = source.read(n_rows=10)
    first = next(reading)
    server.kill()
    stopped.append(True)
    source.acknowledge(first.position)
    reading.close()
    server.start()
    rest = RedisSource(server.address, stream, **mode).read(stored(first.position))
    assert xs(rest) == list(range(10, N))


def test_a_group_is_moved_though_the_answer_that_it_was_made_is_lost(server, client, stream, monkeypatch):
    import redis

    make, lost = redis.Redis.xgroup_create, []

    def make_and_lose(*given, **options):
        made = make(*given, **options)
        if not lost:
            lost.append(made)
            raise redis.exceptions.ConnectionError("lost")
        return made

    monkeypatch.setattr(redis.Redis, "xgroup_create", make_and_lose)
    source = RedisSource(server.address, stream, group="new")
    first = next(source.read(n_rows=10))
    source.acknowledge(first.position)
    assert lost == [True]
    (group,) = client.xinfo_groups(stream)
    assert (group["name"], group["last-delivered-id"].decode()) == (b"new", first.position["last"])


@MODES
def test_following_gives_what_there_is_and_waits_for_more_until_stopped(server, client, mode):
    name, stopped = f"rows{next(numbers)}", []
    source = RedisSource(server.address, name, **mode, follow=True, idle=0.05, stop=lambda: bool(stopped))
    reading = source.read(n_rows=1000)
    threading.Timer(0.2, fill, (client, name, range(3))).start()
    assert gather(reading, 3) == [0, 1, 2]
    threading.Timer(0.2, fill, (client, name, range(3, 5))).start()
    assert gather(reading, 2) == [3, 4]
    stopped.append(True)
    assert list(reading) == []


@MODES
def test_without_following_the_end_is_where_it_was_at_the_start(server, client, stream, mode):
    reading = RedisSource(server.address, stream, **mode).read(n_rows=10)
    next(reading)
    fill(client, stream, range(1000, 1010))
    assert xs(reading) == list(range(10, N))


@MODES
def test_json_in_a_field_and_bad_entries(server, client, mode):
    name = f"rows{next(numbers)}"
    for value in ['{"x": 0, "ok": true}', "[1]", '{"x": 2', '{"x": "three"}', '{"x": 4}', b"\xff", '{"x": null}']:
        client.xadd(name, {"data": value})
    client.xadd(name, {"other": 1})
    client.xadd(name, {"data": '{"x": 8}'})
    bad = []
    options = {"field": "data", **mode}
    batches = list(RedisSource(server.address, name, on_bad=bad.append, **options).read())
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
    reading = RedisSource(server.address, name, **{**options, "group": "other"}).read()
    assert xs([next(reading)]) == [0]
    with pytest.raises(BadRow, match=f"stream {name}, entry [0-9]+-[0-9]+: the message is an array"):
        next(reading)
    if not mode:
        again = RedisSource(server.address, name, on_bad="skip", **options).read(stored(bad[2].position))
        assert xs(again) == [4, 8]


def test_fields_are_columns_of_the_type_of_their_first_value(server, client):
    name = f"rows{next(numbers)}"
    client.xadd(name, {"zip": "A1", "n": 5, "ok": "true"})
    client.xadd(name, {"n": "", "zip": 12})
    client.xadd(name, {"n": "1_0", "zip": 13})
    client.xadd(name, {"new": 1.5})
    bad = []
    batches = list(RedisSource(server.address, name, on_bad=bad.append, types={"id": "int64"}).read())
    assert [batch.table.to_pylist() for batch in batches] == [
        [{"id": None, "zip": "A1", "n": 5.0, "ok": True}, {"id": None, "zip": "12", "n": None, "ok": None}],
        [{"id": None, "zip": None, "n": None, "ok": None, "new": 1.5}],
    ]
    assert "column 'n' holds '1_0', but it is double" in bad[0].reason


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
    monkeypatch.setattr("streamboost.sources.redis_link.AT_ONCE", 10)
    name = f"rows{next(numbers)}"
    fill(client, name, range(N))
    reading = RedisSource(server.address, name).read(n_rows=5)
    next(reading)
    client.xtrim(name, maxlen=20, approximate=False)
    with pytest.raises(LostRows, match="was trimmed: 30 entries"):
        list(reading)


def test_a_group_notices_what_was_trimmed_deleted_or_set_back(server, client, monkeypatch):
    monkeypatch.setattr("streamboost.sources.redis_groups.AT_ONCE", 10)

    def begin():
        name = f"rows{next(numbers)}"
        fill(client, name, range(N))
        source = RedisSource(server.address, name, **SHARED)
        reading = source.read(n_rows=10)
        batch = next(reading)
        reading.close()
        return name, stored(batch.position)

    def read(name, position, **options):
        return xs(RedisSource(server.address, name, **SHARED, **options).read(position))

    name, position = begin()
    trim(client, name)
    for _ in range(2):
        with pytest.raises(LostRows, match="was trimmed: 15 entries"):
            read(name, position)
    assert read(name, position, on_lost="skip") == list(range(25, N))
    name, position = begin()
    delete(client, name)
    with pytest.raises(LostRows, match="was deleted"):
        read(name, position)
    name, position = begin()
    client.xgroup_setid(name, "g", "0")
    with pytest.raises(LostRows, match=r"was set back.*XGROUP SETID"):
        read(name, position)
    assert read(name, position, on_lost="skip") == list(range(10, N))
    name, position = begin()
    client.xgroup_destroy(name, "g")
    with pytest.raises(LostRows, match="has no group 'g' any more"):
        read(name, position)
    name, position = begin()
    reading = RedisSource(server.address, name, **SHARED).read(position, n_rows=10)
    next(reading)  # ten more are pending then, and gone
    client.xtrim(name, maxlen=0, approximate=False)
    with pytest.raises(LostRows, match=r"lost 10 entries.*dealt out but not learned"):
        read(name, position)


def test_what_is_wrong_is_said_in_one_sentence(server, client, stream):
    client.set("text", "hello")
    batch = next(RedisSource(server.address, stream).read())
    for address, words in {
        f"{server.address}/{stream}x": "has no stream .*typo.*follow=True",
        f"{server.address}/text": "'text' at .* is not a stream",
        "redis://127.0.0.1:1/0/a?timeout=0.2": "Redis at 127.0.0.1:1 did not answer for 0.2 s",
        server.address.replace("//", "//me:secret@") + "/a": "refuses to talk: .*user and password",
    }.items():
        with pytest.raises((ValueError, ConnectionError), match=words) as caught:
            list(open_source(address).read())
        assert "secret" not in str(caught.value)
    with pytest.raises(ValueError, match=r"position was taken by the only reader.*Leave consumer out"):
        RedisSource(server.address, stream, consumer="a").read(batch.position)
    with pytest.raises(ValueError, match="position is of stream"):
        RedisSource(server.address, "other").read(batch.position)
    next(RedisSource(server.address, stream, **SHARED).read())
    with pytest.raises(ValueError, match="group 'g' has consumers \\('a'\\)"):
        list(RedisSource(server.address, stream, group="g").read())
