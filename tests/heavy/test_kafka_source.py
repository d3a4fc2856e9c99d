"""KafkaSource against a real Kafka, and against librdkafka's mock cluster for the protocol of newer brokers."""

import itertools
import json
import random
import signal
import subprocess
import sys
import threading
import time
from functools import partial

import pytest

kafka = pytest.importorskip("confluent_kafka")

from brokers import OLD_KAFKA, OLD_KAFKA_CONSUMER, SILENT, kafka_mock, kafka_server  # noqa: E402, F401 - fixtures
from reading import gather, once_waiting, stored, xs  # noqa: E402

from streamboost.sources import BadRow, KafkaSource, LostRows  # noqa: E402
from streamboost.sources.kafka_client import KafkaClient  # noqa: E402

COUNTS = {0: 40, 1: 7, 2: 90}  # messages by partition
BIT_BY_BIT = {"fetch.message.max.bytes": 2000, "queued.min.messages": 1, "fetch.queue.backoff.ms": 5}
IMPATIENT = {"reconnect.backoff.max.ms": 300}
numbers = itertools.count()


class Cluster:
    """A real or a mock cluster, and how to talk to it."""

    def __init__(self, address, for_producer, for_consumer):
        self.address, self.settings = address, for_consumer
        settings = {"bootstrap.servers": address, "linger.ms": 1, "batch.size": 5000, **for_producer}
        self.producer = kafka.Producer(settings, logger=SILENT)

    def fill(self, topic, messages):
        """Write messages of (partition, content)."""
        errors = []
        for partition, content in messages:
            value = json.dumps(content) if isinstance(content, dict) else content
            while True:
                try:
                    self.producer.produce(topic, value, partition=partition, on_delivery=lambda e, _: errors.append(e))
                    break
                except BufferError:
                    self.producer.poll(0.1)
        assert self.producer.flush(120) == 0
        assert not any(errors), errors

    def source(self, topic, *, group="streamboost", timeout=120, settings=None, **options):
        settings = {**self.settings, "group.id": group, **(settings or {})}
        return KafkaSource(self.address, topic, settings=settings, timeout=timeout, **options)

    def committed(self, topic, expected, group="streamboost"):
        """The offsets of the group, once they are as expected, or at last."""
        settings = {"bootstrap.servers": self.address, "group.id": group, **self.settings}
        consumer, until = kafka.Consumer(settings, logger=SILENT), time.monotonic() + 20
        while True:
            found = consumer.committed([kafka.TopicPartition(topic, p) for p in COUNTS], timeout=120)
            offsets = {part.partition: part.offset for part in found}
            if offsets == expected or time.monotonic() > until:
                consumer.close()
                return offsets
            time.sleep(0.1)


@pytest.fixture(scope="session")
def real(kafka_server):  # noqa: F811
    return Cluster(kafka_server.address, OLD_KAFKA, OLD_KAFKA_CONSUMER)


@pytest.fixture(scope="session")
def mock(kafka_mock):  # noqa: F811
    return Cluster(kafka_mock, {}, {})


@pytest.fixture(params=["real", "mock"])
def cluster(request):
    return request.getfixturevalue(request.param)


def new_topic(cluster, counts=COUNTS):
    topic = f"rows{next(numbers)}"
    rows = [(p, {"x": 10_000 * p + k, "y": k / 4}) for p, n in counts.items() for k in range(n)]
    cluster.fill(topic, rows)
    return topic


@pytest.fixture(scope="session")
def topics():
    return {}


@pytest.fixture
def topic(cluster, topics):
    """Messages that no test changes; the three partitions take merge."""
    return (
        topics.setdefault(cluster.address, None)
        or topics.update({cluster.address: new_topic(cluster)})
        or topics[cluster.address]
    )


def in_turns(counts=COUNTS):
    """What the partitions say if each of them gives one message in turn."""
    columns = [[10_000 * p + k for k in range(n)] for p, n in counts.items()]
    return [x for turn in itertools.zip_longest(*columns) for x in turn if x is not None]


@pytest.mark.parametrize("n_rows", [1, 7, 1000])
def test_every_message_comes_once_and_partitions_take_turns(cluster, topic, n_rows):
    source = cluster.source(topic)
    batches = list(source.read(n_rows=n_rows))
    assert xs(batches) == in_turns()
    assert source.progress(batches[-1].position) == 1.0
    assert all(batch.table.num_rows == n_rows for batch in batches[:-1])
    assert batches[0].table.slice(0, 1).to_pylist() == [{"x": 0.0, "y": 0.0}]


def test_reading_resumes_after_every_batch_whatever_the_group_thinks(cluster, topic):
    source = cluster.source(topic, group="much further")
    positions = [batch.position for batch in source.read(n_rows=1)]
    source.acknowledge(positions[-1])
    for k in random.Random(0).sample(range(len(positions)), 12):
        assert xs(cluster.source(topic, group="much further").read(stored(positions[k]), 7)) == in_turns()[k + 1 :]


def test_the_order_does_not_depend_on_how_the_messages_are_fetched(real):
    counts = {0: 600, 1: 20, 2: 300}
    topic = new_topic(real, counts)
    slow = real.source(topic, settings=BIT_BY_BIT)
    assert xs(slow.read()) == gather(real.source(topic, follow=True).read(), 920) == in_turns(counts)


def test_a_partition_far_ahead_of_the_others_is_held_back_and_loses_nothing(real, monkeypatch):
    monkeypatch.setattr("streamboost.sources.kafka_client.MOST_BUFFERED", 50)
    monkeypatch.setattr("streamboost.sources.kafka_client.FETCH", 20)
    counts = {0: 2000, 1: 1, 2: 2000}
    topic = new_topic(real, counts)
    assert xs(real.source(topic).read()) == in_turns(counts)


def test_without_following_batches_are_full_however_slowly_the_messages_come(mock, monkeypatch):
    monkeypatch.setattr("streamboost.sources.kafka_client.FETCH", 1)
    poll, asked = KafkaClient.poll, itertools.count()

    def slowly(client, seconds, merge):
        if next(asked) % 2:
            return poll(client, seconds, merge)
        time.sleep(0.02)  # and nothing came
        return False

    monkeypatch.setattr(KafkaClient, "poll", slowly)
    counts = {0: 7, 1: 3, 2: 9}
    batches = list(mock.source(new_topic(mock, counts)).read(n_rows=9))
    assert [batch.table.num_rows for batch in batches] == [9, 9, 1]
    assert xs(batches) == in_turns(counts)


def test_the_group_shows_what_is_acknowledged(cluster, topic):
    group = f"group{next(numbers)}"
    source = cluster.source(topic, group=group)
    reading = source.read(n_rows=9)
    position = next(reading).position
    source.acknowledge(stored(position))
    nine = {0: 3, 1: 3, 2: 3}
    assert cluster.committed(topic, nine, group) == nine
    last = list(reading)[-1]
    source.acknowledge(last.position)  # after the reading ended
    assert cluster.committed(topic, COUNTS, group) == COUNTS


def test_a_new_model_starts_at_the_first_message_or_at_the_end(cluster):
    topic = new_topic(cluster)
    assert xs(cluster.source(topic).read()) == in_turns()
    assert xs(cluster.source(topic, start="latest").read()) == []
    assert xs(cluster.source(topic, start="latest", follow=True, stop=lambda: True).read()) == []
    more = once_waiting(lambda: cluster.fill(topic, [(1, {"x": -1}), (1, {"x": -2})]))
    assert gather(cluster.source(topic, start="latest", follow=True, stop=more).read(), 2) == [-1, -2]


def test_partitions_can_be_divided_among_runs(cluster, topic):
    halves = [xs(cluster.source(topic, partitions=some).read()) for some in ([0], [2, 1])]
    assert sorted(halves[0] + halves[1]) == sorted(in_turns())
    assert halves[0] == list(range(40))
    with pytest.raises(ValueError, match="no partition 7, expected some of"):
        list(cluster.source(topic, partitions=[0, 7]).read())


def test_following_gives_what_there_is_and_waits_for_more_until_stopped(cluster):
    topic, stopped = new_topic(cluster, {0: 2, 1: 1}), []
    reading = cluster.source(topic, follow=True, stop=lambda: bool(stopped)).read()
    assert gather(reading, 3) == [0, 10_000, 1]
    threading.Timer(0.3, cluster.fill, (topic, [(2, {"x": 7}), (2, {"x": 8})])).start()
    assert gather(reading, 2) == [7, 8]
    stopped.append(True)
    assert list(reading) == []


def test_without_following_the_end_is_where_it_was_at_the_start(cluster):
    topic = new_topic(cluster)
    reading = cluster.source(topic).read(n_rows=10)
    next(reading)
    cluster.fill(topic, [(p, {"x": -1}) for p in (0, 1, 2)])
    assert xs(reading) == in_turns()[10:]


def test_bad_messages_are_told_apart_and_rows_grow_new_columns(cluster):
    topic = f"rows{next(numbers)}"
    values = ['{"x": 0}', "[1]", '{"x": 2', b"\xff\xfe", '{"x": "three"}', "", '{"x": 4, "new": true}', '{"x": 5}']
    cluster.fill(topic, [(0, value) for value in values])
    bad = []
    batches = list(cluster.source(topic, on_bad=bad.append).read())
    assert [batch.table.to_pylist() for batch in batches] == [
        [{"x": 0}],
        [{"x": 4, "new": True}, {"x": 5, "new": None}],
    ]
    assert [row.text for row in bad] == ["[1]", '{"x": 2', "��", '{"x": "three"}']
    assert bad[3].place == f"topic {topic}, partition 0, offset 4"
    assert "column 'x' holds a string, but it is double in the first rows" in bad[3].reason
    again = list(cluster.source(topic, on_bad="skip").read(stored(bad[3].position)))
    assert [batch.table.to_pylist() for batch in again] == [[{"x": 4, "new": True}, {"x": 5, "new": None}]]
    reading = cluster.source(topic).read()
    assert xs([next(reading)]) == [0]
    with pytest.raises(BadRow, match=f"topic {topic}, partition 0, offset 1: the message is an array"):
        next(reading)


def test_what_is_wrong_is_said_in_one_sentence(real, topics):
    topic = new_topic(real)
    with pytest.raises(ValueError, match=f"Kafka at {real.address} has no topic 'nothing'.*Create it, or look"):
        list(real.source("nothing").read())
    with pytest.raises(ValueError, match="has no topic 'nothing'"):  # and asking did not make it
        list(real.source("nothing").read())
    unreachable = KafkaSource("127.0.0.1:1", topic, timeout=1.0, settings=real.settings)
    with pytest.raises(ConnectionError, match=r"Kafka at 127.0.0.1:1 did not answer for 1 s .*nothing is lost"):
        list(unreachable.read())
    with pytest.raises(ValueError, match=r"librdkafka refuses these settings: .*no.such.setting"):
        list(KafkaSource(real.address, topic, settings={"no.such.setting": 1}).read())
    position = next(real.source(topic).read()).position
    with pytest.raises(ValueError, match="position is of topic"):
        real.source("other").read(position)
    with pytest.raises(ValueError, match="partition 1, which is not among those read"):
        list(real.source(topic, partitions=[0]).read(position))


def test_a_topic_made_anew_is_noticed(cluster, topic):
    position = stored(next(cluster.source(topic).read()).position)
    position["offsets"]["1"] = 5000
    with pytest.raises(LostRows, match=r"partition 1 goes on at offset 5000, but .* only up to 7: .*on_lost='skip'"):
        list(cluster.source(topic).read(position))
    rest = xs(cluster.source(topic, on_lost="skip").read(position))
    assert rest == [10_000 + k for k in range(7)]


def test_messages_deleted_before_they_were_read_are_an_error_that_says_so(real, kafka_server):  # noqa: F811
    counts = {0: 3000, 1: 3000, 2: 3000}  # several files of a log each
    topic = new_topic(real, counts)
    position = stored(next(real.source(topic).read(n_rows=10)).position)
    reading = real.source(topic, settings=BIT_BY_BIT).read(position, n_rows=10)
    next(reading)
    kafka_server.topic_command("--alter", "--topic", topic, "--config", "retention.bytes=40000")
    skipping = real.source(topic, on_lost="skip")
    deadline, before, rest = time.monotonic() + 180, [], xs(skipping.read(position))
    while (len(rest) == 8990 or rest != before) and time.monotonic() < deadline:  # until no more is deleted meanwhile
        time.sleep(1)
        before, rest = rest, xs(skipping.read(position))
    for _ in range(2):  # it does not go away by itself
        with pytest.raises(LostRows, match=r"goes on at offset [34], .* messages were lost unread. .*on_lost='skip'"):
            list(real.source(topic).read(position))
    assert 0 < len(rest) < 8990
    for p in counts:  # what is left is the end of each partition, without a gap
        left = [x % 10_000 for x in rest if x // 10_000 == p]
        assert left == list(range(3000 - len(left), 3000))
    with pytest.raises(LostRows, match="messages were lost unread"):  # also under a reader's feet
        list(reading)


def test_a_killed_broker_that_comes_back_gives_every_message_once(real, kafka_server):  # noqa: F811
    counts = {0: 3000, 1: 10, 2: 2000}
    topic = new_topic(real, counts)
    source = real.source(topic, settings={**BIT_BY_BIT, **IMPATIENT}, timeout=300)
    rows, position, back = [], None, threading.Timer(0.5, kafka_server.start_broker)
    for k, batch in enumerate(source.read(n_rows=100)):
        rows += xs([batch])
        position = batch.position
        if k == 4:
            kafka_server.kill()
            back.start()
    assert rows == in_turns(counts)
    source.acknowledge(position)
    assert real.committed(topic, counts) == counts
    back.join()


def test_a_broker_that_stays_away_is_an_error_after_the_timeout_and_nothing_is_lost(real, kafka_server):  # noqa: F811
    topic = new_topic(real, {0: 2000, 1: 2000, 2: 2000})
    source = real.source(topic, settings=BIT_BY_BIT)
    following = real.source(topic, follow=True, timeout=2, start="latest").read()
    reading = source.read(n_rows=10)
    first = next(reading)
    kafka_server.kill()
    source.timeout = 2
    try:
        began = time.monotonic()
        source.acknowledge(first.position)  # nobody waits for an answer
        with pytest.raises(ConnectionError, match=r"did not answer for 2 s .*nothing is lost"):
            list(reading)
        with pytest.raises(ConnectionError, match="did not answer for 2 s"):
            list(following)
        assert time.monotonic() - began < 100
    finally:
        kafka_server.start_broker()
    rest = xs(real.source(topic).read(stored(first.position)))
    assert rest == in_turns({0: 2000, 1: 2000, 2: 2000})[10:]


def test_a_user_who_gives_up_is_not_kept_waiting_for_a_commit(real, kafka_server):  # noqa: F811
    topic = new_topic(real)
    source = real.source(topic, timeout=600)
    first = next(source.read(n_rows=10))
    kafka_server.kill()
    began = time.monotonic()
    try:
        source.acknowledge(first.position)
        assert time.monotonic() - began < 60
    finally:
        kafka_server.start_broker()
    assert xs(real.source(topic).read(stored(first.position))) == in_turns()[10:]


@pytest.mark.parametrize("address", ["kafka://127.0.0.1:1/rows", "redis://127.0.0.1:1/0/rows"])
def test_ctrl_c_ends_a_run_whose_broker_is_dead(address):
    words = [sys.executable, "-m", "streamboost", "run", address, "--target", "y"]
    heeded = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # in the background a shell has it ignored
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, preexec_fn=heeded) as process:
        assert "does not answer" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        assert process.wait(60) == 130
        assert time.monotonic() - began < 20  # the broker would be waited for half a minute


def test_partitions_that_are_added_are_read_from_their_beginning(real, kafka_server, monkeypatch):  # noqa: F811
    monkeypatch.setattr("streamboost.sources.kafka.LOOK_FOR_PARTITIONS", 0.2)
    topic = new_topic(real)
    position = None
    stopped = []
    reading = real.source(topic, follow=True, stop=lambda: bool(stopped)).read()
    gather(reading, sum(COUNTS.values()))
    kafka_server.topic_command("--alter", "--topic", topic, "--partitions", "4")
    more = Cluster(real.address, OLD_KAFKA, OLD_KAFKA_CONSUMER)
    while len(more.producer.list_topics(topic, timeout=120).topics[topic].partitions) < 4:
        time.sleep(0.1)
    more.fill(topic, [(3, {"x": 30_000 + k}) for k in range(5)])
    new = []
    while len(new) < 5:
        batch = next(reading)
        new, position = new + xs([batch]), batch.position
    stopped.append(True)
    assert list(reading) == []
    assert new == [30_000 + k for k in range(5)]
    assert position["offsets"] == {"0": 40, "1": 7, "2": 90, "3": 5}
