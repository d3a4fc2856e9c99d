"""Messages as rows, and the order of partitions: what can be tested of Kafka and Redis without either."""

import itertools
import json
import math
import sys

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamboost.errors import MissingDependency
from streamboost.sources import BadRow, FileSource, KafkaSource, RedisSource, open_source
from streamboost.sources.base import rebatch
from streamboost.sources.kafka_client import Message, PartitionMerge, position_after
from streamboost.sources.messages import MOST_COLUMNS, MessageBatch, RowReader, field_values, json_field_values
from streamboost.sources.redis_client import StreamInfo
from streamboost.sources.schemas import from_text


def read(contents, sizes=(1000,), n_rows=1000, bad=None, **options):
    """Batches of messages that come in groups of these sizes."""
    reader, bad = RowReader(options.pop("types", {}), **options), [] if bad is None else bad

    def pieces():
        start = 0
        for size in itertools.cycle(sizes):
            some = contents[start : start + size]
            if not some:
                return
            yield from reader.pieces(
                MessageBatch(some, lambda i, s=start: {"offset": s + i}, lambda i, s=start: f"offset {s + i}"),
                bad.append,
            )
            start += size

    return list(rebatch(pieces(), n_rows))


def rows(batches):
    return [row for batch in batches for row in batch.table.to_pylist()]


def as_json(row):
    return json.dumps(row).encode()


numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**20), 10**20)
texts = st.text(st.characters(codec="utf-8"), max_size=5)
objects = st.dictionaries(st.sampled_from("abcde"), st.none() | numbers | texts | st.booleans(), max_size=5)


def naive_rows(objects):
    """Good rows one after another, each with the columns there are by then."""
    kinds, found, n_bad = {}, [], 0
    for row in objects:
        values = {k: float(v) if type(v) is int else v for k, v in row.items() if v is not None}
        if not values or any(kinds.get(k, type(v)) is not type(v) for k, v in values.items()):
            n_bad += 1
            continue
        kinds.update({k: type(v) for k, v in values.items()})
        found.append({k: values.get(k) for k in kinds})
    return found, n_bad


@given(objects=st.lists(objects, max_size=30), sizes=st.lists(st.integers(1, 9), min_size=1), n_rows=st.integers(1, 9))
def test_rows_are_those_of_a_naive_reader_however_the_messages_are_dealt_out(objects, sizes, n_rows):
    bad = []
    batches = read([as_json(row) for row in objects], sizes, n_rows, bad)
    expected, n_bad = naive_rows(objects)
    assert rows(batches) == expected
    assert [list(row) for row in rows(batches)] == [list(row) for row in expected]  # columns in the same order
    assert len(bad) == n_bad
    assert all(0 < batch.table.num_rows <= n_rows for batch in batches)


@given(objects=st.lists(objects, max_size=20), n_rows=st.integers(1, 5))
def test_reading_on_from_the_position_of_a_batch_gives_the_rest(objects, n_rows):
    contents = [as_json(row) for row in objects]
    batches = read(contents, n_rows=n_rows)
    for k, batch in enumerate(batches):
        position = json.loads(json.dumps(batch.position))
        rest = read(contents[position["offset"] :], schema=from_text(position["schema"]))
        assert rows(rest) == rows(batches[k + 1 :])
        assert rest[-1:] == [] or rest[-1].table.schema == batches[-1].table.schema


@given(
    st.lists(
        st.fixed_dictionaries({"x": st.floats(allow_nan=False, allow_infinity=False), "ok": st.booleans()}), min_size=1
    )
)
def test_messages_are_read_as_lines_of_a_file_are(tmp_path_factory, objects):
    path = tmp_path_factory.mktemp("lines") / "a.jsonl"
    path.write_bytes(b"".join(as_json(row) + b"\n" for row in objects))
    (batch,) = read([as_json(row) for row in objects])
    assert batch.table.equals(pa.concat_tables(b.table for b in FileSource(path).read()))


@given(st.lists(st.binary(max_size=20) | st.text('{}[]":,\\u1dx0 \n-.e', max_size=12).map(str.encode), max_size=20))
def test_no_bytes_whatever_are_more_than_a_bad_row(contents):
    bad = []
    good = read(contents, bad=bad)
    assert sum(batch.table.num_rows for batch in good) + len(bad) == sum(map(bool, contents))
    assert all(isinstance(row, BadRow) and row.reason and row.position["offset"] >= 0 for row in bad)


@given(st.lists(st.dictionaries(st.binary(max_size=3), st.binary(max_size=6), max_size=4), max_size=15))
def test_no_fields_whatever_are_more_than_a_bad_row(contents):
    bad = []
    good = read(contents, bad=bad, decode=field_values, is_text=True)
    assert sum(batch.table.num_rows for batch in good) + len(bad) == sum(map(bool, contents))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"hello", r"this is not JSON \(.*Mend the message, or pass on_bad='skip'"),
        (b"[1, 2]", "the message is an array, not an object such as"),
        (b"null", "the message is null, not an object"),
        (b"3", "the message is a number, not an object"),
        (b'{"x": 1} {"x": 2}', "this is not JSON"),
        (b'{"x": "one"}', "column 'x' holds a string, but it is double in the first rows.*types={'x': 'string'}"),
        (b'{"x": true}', "column 'x' holds a boolean, but it is double"),
        (b'{"x": {"a": 1}}', "column 'x' holds an object, but it is double"),
        (b'{"x": ' + b"9" * 400 + b"}", "column 'x' holds a number"),
        (b'{"new": [1]}', "key 'new' holds an array, expected a number, a text.*columns="),
        (b'{"x": null}', "no value for any column"),
        (b"{}", "no value for any column"),
        (b'{"id": 1.5}', "column 'id' holds a number, but it is int64"),
        (b"\xff\xff", "not UTF-8"),
        (b'{"t": "\\ud800"}', "holds half a character"),
        (b'{"\\udfff": 1}', "holds half a character"),
        (b"[" * 100_000, "this is not JSON"),
    ],
)
def test_what_is_wrong_with_a_message_is_said(content, words):
    bad = []
    batches = read([b'{"x": 1, "id": 2}', content, b'{"x": 3}'], bad=bad, types={"id": pa.int64()})
    assert rows(batches) == [{"id": 2, "x": 1.0}, {"id": None, "x": 3.0}]
    (row,) = bad
    with pytest.raises(BadRow, match=words):
        raise row
    assert row.position["offset"] == 1
    assert row.place == "offset 1"
    assert row.text == content.decode(errors="replace")


def test_a_bad_row_that_is_raised_lets_the_rows_before_it_pass():
    reader = RowReader({})
    batch = MessageBatch([b'{"x": 1}', b'{"x": 2}', b"?"], lambda i: {"offset": i}, str)

    def refuse(bad):
        raise bad

    batches = rebatch(reader.pieces(batch, refuse), 10)
    batch = next(batches)
    assert (batch.table["x"].to_pylist(), batch.position["offset"]) == ([1.0, 2.0], 2)
    with pytest.raises(BadRow, match="not JSON"):
        next(batches)


def test_pinned_types_are_there_from_the_start_and_take_what_fits():
    types = {"when": pa.timestamp("ms"), "zip": pa.string(), "id": pa.int64(), "never": pa.float64()}
    big = 2**62 + 1
    contents = [as_json({"x": 1, "zip": 123, "id": big}), as_json({"when": "2024-05-01T10:00:00", "zip": "A1"})]
    first, second = rows(read(contents, types=types))
    assert first == {"when": None, "zip": "123", "id": big, "never": None, "x": 1.0}
    assert (second["when"].isoformat(), second["zip"]) == ("2024-05-01T10:00:00", "A1")
    fields = [{b"id": str(big).encode(), b"when": b"2024-05-01", b"zip": b"007"}]
    (row,) = rows(read(fields, types=types, decode=field_values, is_text=True))
    assert (row["id"], row["when"].year, row["zip"]) == (big, 2024, "007")


def test_pinned_timestamps_are_the_same_moment_with_a_zone_and_without():
    ways = ["2024-05-01T10:00:00", "2024-05-01 10:00:00Z", "2024-05-01T12:00:00.000+02:00"]
    for kind in (pa.timestamp("ms"), pa.timestamp("ns", "UTC")):
        [batch] = read([as_json({"when": text}) for text in ways], types={"when": kind})
        assert len(set(batch.table["when"].cast(pa.int64()).to_pylist())) == 1


def test_what_a_model_knows_of_columns_decides_what_values_are():
    kinds = {"id": "category", "x": "number", "at": "date"}
    contents = [{"id": 7, "at": "2024-05-01"}, {"id": "7a", "x": 2}, {"x": "many"}, {"id": [1]}, {"new": 3, "id": True}]
    bad = []
    found = rows(read([as_json(row) for row in contents], kinds=kinds, bad=bad))
    assert [(row["id"], row.get("x"), row.get("at")) for row in found] == [
        ("7", None, "2024-05-01"),
        ("7a", 2.0, None),
        ("true", None, None),
    ]
    assert found[-1]["new"] == 3.0
    assert [row.reason.partition(". ")[0] for row in bad] == [
        "column 'x' holds a string, but it is double in the first rows",
        "column 'id' holds an array, but it is string in the first rows",
    ]
    [first] = rows(read([as_json({"x": "many"}), as_json({"x": True})], kinds=kinds, bad=bad))
    assert first == {"x": True}
    assert "column 'x' holds a string, expected what the model knows it to hold" in bad[-1].reason
    fields = [{b"id": b"007", b"x": b"1.5", b"at": b"2024-05-01T10:00:00Z"}]
    [row] = rows(read(fields, kinds=kinds, decode=field_values, is_text=True))
    assert row == {"id": "007", "x": 1.5, "at": "2024-05-01T10:00:00Z"}
    [row] = rows(read(fields, kinds=kinds, types={"id": pa.int64()}, decode=field_values, is_text=True))
    assert row["id"] == 7


def test_columns_name_the_only_keys_that_count():
    contents = [as_json({"x": 1, "deep": {"a": [1]}, "y": 2}), as_json({"deep": 3})]
    bad = []
    assert rows(read(contents, bad=bad, columns=["y", "x"])) == [{"x": 1.0, "y": 2.0}]
    assert "no value for any column" in bad[0].reason


def test_keys_that_are_data_do_not_become_columns_without_end():
    bad = []
    wide = as_json({f"k{i}": 1 for i in range(MOST_COLUMNS)})
    (batch,) = read([wide, b'{"one more": 1}', b'{"k0": 2}'], bad=bad)
    assert batch.table.num_rows == 2
    assert "'one more' would be column 10,001" in bad[0].reason


def test_text_is_read_as_its_column_says():
    fields = [{b"x": b"nan", b"ok": b"True", b"t": b"a"}, {b"x": b"1e3", b"ok": b"false", b"t": b"5"}, {b"ok": b"yes"}]
    bad = []
    first, second = rows(read(fields, bad=bad, decode=field_values, is_text=True))
    assert math.isnan(first["x"])
    assert second == {"x": 1000.0, "ok": False, "t": "5"}
    assert "column 'ok' holds 'yes', but it is bool" in bad[0].reason


def test_json_may_be_in_one_of_the_fields():
    def decode(content):
        return json_field_values("data", content)

    bad = []
    contents = [{b"data": b'{"x": 1}', b"id": b"7"}, {b"id": b"8"}]
    assert rows(read(contents, bad=bad, decode=decode)) == [{"x": 1.0}]
    assert "no field 'data', but 'id'" in bad[0].reason


# Partitions


@st.composite
def arrivals(draw):
    """Messages of partitions with gaps between their offsets, in an order in which they may come, and their ends."""
    partitions = draw(st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True))
    logs = {p: sorted(draw(st.sets(st.integers(0, 12), max_size=8))) for p in partitions}
    rest = {p: [Message(p, offset, b"") for offset in offsets] for p, offsets in logs.items()}
    for p in rest:
        rest[p].append(Message(p, 13, None, is_end=True))
    order = []
    while waiting := [p for p in rest if rest[p]]:
        order.append(rest[draw(st.sampled_from(waiting))].pop(0))
    return logs, order


def in_turns(logs):
    columns = [[(p, offset) for offset in logs[p]] for p in sorted(logs)]
    return [each for turn in itertools.zip_longest(*columns) for each in turn if each is not None]


def take_all(logs, order, position=None, take=100):
    offsets = {p: 0 for p in logs} if position is None else {int(p): o for p, o in position["offsets"].items()}
    merge, taken, positions = PartitionMerge(offsets, position and position["turn"]), [], []
    for message in order:
        if message.offset >= offsets[message.partition]:
            merge.add([message])
        while some := merge.take(take):
            positions += [position_after("t", merge.start_of_take, merge.order, some, i + 1) for i in range(len(some))]
            taken += [(message.partition, message.offset) for message in some]
    return taken, positions


@given(arrivals(), st.integers(1, 5))
def test_partitions_take_turns_whenever_their_messages_come(arrivals, take):
    logs, order = arrivals
    taken, _ = take_all(logs, order, take=take)
    assert taken == in_turns(logs)


@given(arrivals(), st.data())
def test_turns_resume_at_every_message(arrivals, data):
    logs, order = arrivals
    taken, positions = take_all(logs, order)
    for k, position in enumerate(positions):
        rest, _ = take_all(logs, order, json.loads(json.dumps(position)), take=data.draw(st.integers(1, 4)))
        assert rest == taken[k + 1 :]


def test_messages_that_come_again_are_passed_over_and_an_end_is_the_end():
    merge = PartitionMerge({0: 5})
    merge.ends = {0: 8}
    merge.add([Message(0, offset, b"") for offset in (4, 5, 6, 5, 6, 7, 8, 9)])
    assert [message.offset for message in merge.take(10)] == [5, 6, 7]
    assert merge.is_finished()


def test_partitions_that_join_later_take_part_in_turns():
    merge = PartitionMerge({1: 0, 3: 0})
    merge.add([Message(p, k, b"") for p in (1, 3) for k in range(2)])
    assert [message.partition for message in merge.take(1)] == [1]
    merge.include({0: 0, 2: 0})
    merge.add([Message(p, 0, b"") for p in (0, 2)])
    assert [message.partition for message in merge.take(4)] == [3, 0, 1, 2]


def test_a_stream_tells_how_many_entries_were_lost():
    whole = StreamInfo(length=10, first=(1, 0), last=(10, 0), added=10, deleted=(0, 0))
    trimmed = whole._replace(length=4, first=(7, 0))
    assert whole.lost_after((3, 0), 3) == 0
    assert trimmed.lost_after((8, 0), 8) == trimmed.lost_after((6, 0), 6) == 0
    assert trimmed.lost_after((3, 0), 3) == 3
    assert trimmed._replace(length=0, first=None).lost_after((3, 0), 3) == 7
    assert whole.lost_after((0, 5), 3) < 0  # more after it than were ever added
    assert whole.lost_after((11, 0), 3) < 0


# Addresses and options


def test_addresses_say_what_a_keyword_can():
    pytest.importorskip("confluent_kafka")
    address = "kafka://a:9092,b:9092/clicks?group.id=g&partitions=0,2&columns=x,y&on_lost=skip&ssl.ca.location=ca.pem"
    source = open_source(address, follow=True, settings={"group.id": "h"})
    assert isinstance(source, KafkaSource)
    assert (source.servers, source.topic, source.partitions, source.columns) == (
        "a:9092,b:9092",
        "clicks",
        [0, 2],
        ["x", "y"],
    )
    assert (source.follow, source.on_lost, source.start) == (True, "skip", "earliest")
    assert source.settings == {"group.id": "h", "ssl.ca.location": "ca.pem"}


def test_addresses_of_redis_name_a_database_and_a_stream_and_the_rest_is_for_the_client():
    pytest.importorskip("redis")
    source = open_source("rediss://me:pass@host:6380/3/my/stream?field=json&start=latest&ssl_ca_certs=ca.pem")
    assert isinstance(source, RedisSource)
    assert (source.address, source.stream) == ("rediss://me:pass@host:6380/3?ssl_ca_certs=ca.pem", "my/stream")
    assert (source.field, source.start) == ("json", "latest")


@pytest.mark.parametrize(
    ("address", "options", "words"),
    [
        ("kafka://host:9092", {}, r"kafka://host:9092' is not an address .* kafka://host:port/topic"),
        ("kafka://me:pass@host/topic", {}, "sasl.username"),
        ("redis://host/stream", {}, "redis://host:port/0/stream"),
        ("kafka://host/topic?partitions=0,x", {}, r"partitions is \[0, 'x'\], expected numbers such as \[0, 2\]"),
        ("kafka://host/topic", {"timeout": 0}, "timeout is 0, expected seconds above 0"),
        ("kafka://host/topic?start=end", {}, "start is 'end', expected one of"),
        ("kafka://host/topic?on_lost=x", {}, "on_lost is 'x', expected 'raise' or 'skip'"),
        ("kafka://host/topic", {"columns": "x"}, r"expected a list of names, such as \['x'\]"),
    ],
)
def test_addresses_and_options_that_cannot_be_are_refused(address, options, words):
    pytest.importorskip("redis")
    pytest.importorskip("confluent_kafka")
    with pytest.raises(ValueError, match=words) as caught:
        open_source(address, **options)
    assert "pass@" not in str(caught.value)


def test_a_broker_is_read_alone():
    with pytest.raises(ValueError, match="2 places are given, expected one"):
        open_source("a.csv", "kafka://host/topic")


@pytest.mark.parametrize("position", [5, {}, {"topic": "t"}, {"topic": "t", "schema": "x"}])
def test_positions_of_something_else_are_refused(position):
    pytest.importorskip("confluent_kafka")
    with pytest.raises(ValueError, match=r"expected one of a batch of this source. To start anew pass None"):
        KafkaSource("host", "t").read(position)


@pytest.mark.parametrize(("address", "package"), [("kafka://h/t", "confluent_kafka"), ("redis://h/0/s", "redis")])
def test_a_client_that_is_not_installed_is_asked_for(monkeypatch, address, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingDependency, match=rf"needs {package}.*pip install 'streamboost\[(kafka|redis)\]'"):
        open_source(address)
