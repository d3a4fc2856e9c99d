"""What requests bring: bodies in JSON and Arrow; no server, no model."""

import io
import json
import math
import random
import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamboost.serving import arrow_bodies, json_bodies
from streamboost.serving.errors import Limits, Refused

LIMITS = Limits(rows=50, columns=20, cells=500, key_length=10, name_length=15)


def refusal(work, *arguments):
    with pytest.raises(Refused) as caught:
        work(*arguments)
    return caught.value.status_code, caught.value.detail


def outcome(work):
    try:
        work()
    except Refused as refused:
        return refused.status_code, refused.detail
    return 200, "Taken."


def stream(table, compression=None):
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue()


# JSON.


def read(name, body):
    return json_bodies.decode(body if isinstance(body, bytes) else json.dumps(body).encode(), name, LIMITS)


def rows_of(body):
    return json_bodies.take_rows(read("Rows", body), LIMITS)


def table_of(rows):
    return json_bodies.table_of(rows_of({"rows": rows}), LIMITS)


def learning_table(body):
    parsed = read("LabelledRows", body)
    return json_bodies.learning_table(parsed, json_bodies.take_rows(parsed, LIMITS), "y", LIMITS)


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        (b"", 400, "truncated"),
        (b'{"rows": [', 400, "truncated"),
        (b'{"rows": 1} {}', 400, "trailing characters"),
        (b"\xff\xfe", 400, "byte 0"),
        (b'{"row": {"x": "\xff"}}', 400, "utf-8"),
        (b'\xef\xbb\xbf{"rows": []}', 400, "byte 0"),
        (b'{"rows": [{"x": NaN}]}', 400, "byte 16"),
        (b'{"rows": [{"x": -Infinity}]}', 400, "byte 17"),
        (b'{"row": {"x": "\\ud800"}}', 400, "cannot be read"),
        (b'{"row": {"\\udc00": 1}}', 400, "surrogate"),
        (b"[" * 200_000, 400, "nested too deeply"),
        (b'{"rows":' * 200_000, 400, "nested too deeply"),
        (b'{"row": {"x": ' + b"[" * 200_000, 400, "nested too deeply"),
        (b'{"row": {"x": 1, "y": ' + b"9" * 5000 + b"}}", 422, "`$.row['y']`: Integer value out of range"),
        (b'{"rows": [{"x": 1}, {"x": -1e999}]}', 422, "`$.rows[1]['x']`: Number out of range"),
        (b'[{"x": 1}]', 422, "got `array`"),
        (b"null", 422, "got `null`"),
        ({}, 422, "either rows"),
        ({"row": {"x": 1}, "rows": [{"x": 1}]}, 422, "either rows"),
        ({"rows": {"x": 1}}, 422, "`$.rows`: Expected `array`, got `object`"),
        ({"rows": []}, 422, "length >= 1"),
        ({"rows": [{"x": 1}] * 51}, 413, "51 rows, expected at most 50"),
        ({"rows": [{"x": 1}, [1]]}, 422, "`$.rows[1]`"),
        ({"rows": [{"x": 1}, {"a": 1, "x": [1]}]}, 422, "`$.rows[1]['x']`"),
        ({"row": {"x": {"y": 1}}}, 422, "`$.row['x']`"),
        ({"row": {"x": 1}, "columns": ["x"]}, 422, "unknown field `columns`"),
        ({"row": {"x": 1}, "id": 1}, 422, "`$.id`"),
        (b'{"rows": [{"x": 1}, {"x": []}], "rows": []}', 422, "`$.rows[1][...]`"),
    ],
)
def test_what_holds_no_flat_rows_is_refused_with_the_place_and_the_reason(body, status, word):
    found = refusal(rows_of, body)
    assert found[0] == status
    assert word in found[1]


def test_of_names_that_come_twice_the_last_counts():
    assert rows_of(b'{"row": {"x": 0}, "row": {"x": 1, "y": 2, "x": "3"}}') == [{"x": "3", "y": 2}]


def test_a_column_is_of_one_kind_and_the_refusal_names_it_and_the_row():
    status, sentence = refusal(table_of, [{"city": "Bonn"}, {}, {"city": 3}])
    assert status == 422
    assert "column 'city' is 3 in row 2 and 'Bonn' before" in sentence


def test_columns_that_come_and_go_are_missing_where_they_are_not():
    table = table_of([{"a": 1, "b": None}, {"c": "x", "a": 2.5}, {"d": True}])
    assert table.to_pydict() == {
        "a": [1.0, 2.5, None],
        "b": [None] * 3,
        "c": [None, "x", None],
        "d": [None, None, True],
    }


def test_numbers_too_large_for_a_float_are_infinite_as_in_any_source():
    table = table_of([{"x": 10**400, "y": -(10**400), "z": 2**63}, {"x": 1, "y": 1, "z": 1}])
    assert table.to_pydict() == {"x": [math.inf, 1.0], "y": [-math.inf, 1.0], "z": [2.0**63, 1.0]}


@pytest.mark.parametrize(
    ("rows", "status", "word"),
    [
        ([{f"c{j}": 1 for j in range(21)}], 422, "21 columns"),
        ([{f"c{j}": 1} for j in range(21)], 422, "21 columns"),
        ([{"a" * 16: 1}], 422, "16 letters"),
        ([{"": 1}], 422, "0 letters"),
        ([{}], 422, "empty"),
        ([{f"c{j % 20}": 1} for j in range(50)], 413, "1,000 values"),
    ],
)
def test_tables_beyond_the_limits_are_refused(rows, status, word):
    found = refusal(table_of, rows)
    assert found[0] == status
    assert word in found[1]


def test_targets_come_in_the_rows_or_beside_them_but_not_both_or_neither():
    rows = [{"x": 1}, {"x": 2}]
    beside = learning_table({"rows": rows, "targets": [3, 4]})
    inside = learning_table({"rows": [{"x": 1, "y": 3}, {"x": 2, "y": 4}]})
    assert beside == inside
    assert "no column 'y'" in refusal(learning_table, {"rows": rows})[1]
    assert "Leave one out" in refusal(learning_table, {"rows": [{"y": 1}], "targets": [1]})[1]
    assert "1 targets" in refusal(learning_table, {"rows": rows, "targets": [1]})[1]
    assert "`$.targets[1]`" in refusal(learning_table, {"rows": rows, "targets": [1, [2]]})[1]


@pytest.mark.parametrize("keys", [["a"], ["a", "a"], ["a", 1], ["a", ""], ["a", "b" * 11], "ab"])
def test_keys_are_one_text_a_row_and_each_once(keys):
    body = {"rows": [{"x": 1}] * 2, "keys": keys}
    assert refusal(lambda: json_bodies.check_keys(read("Rows", body).keys, 2, LIMITS))[0] == 422


@pytest.mark.parametrize("labels", [None, [], [1], [{"key": "a"}], [{"key": "a", "target": 1, "x": 2}]])
def test_labels_are_objects_of_a_key_and_a_target(labels):
    assert refusal(read, "Labels", {"labels": labels})[0] == 422


scalars = st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-9, 9)


@given(st.lists(st.dictionaries(st.sampled_from("abcd"), scalars, min_size=1), min_size=1, max_size=5))
def test_a_table_holds_what_the_rows_held(rows):
    names = list(dict.fromkeys(name for row in rows for name in row))
    assert table_of(rows).to_pylist() == [{name: row.get(name) for name in names} for row in rows]


@given(st.binary(max_size=300))
def test_any_bytes_are_json_or_refused(body):
    assert outcome(lambda: rows_of(body))[0] in (200, 400, 422)


# Arrow.


TABLE = pa.table(
    {
        "n": [1, 2],
        "x": [1.5, None],
        "text": ["a", "b"],
        "level": pa.array(["u", "v"]).dictionary_encode(),
        "nothing": pa.nulls(2),
    }
)


def test_an_arrow_stream_is_read_as_it_was_written():
    assert arrow_bodies.parse_table(stream(TABLE), LIMITS).equals(TABLE)
    parts = pa.concat_tables([TABLE] * 3)
    assert arrow_bodies.parse_table(stream(parts), LIMITS).num_rows == 6


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
@pytest.mark.parametrize("names", [["x"], ["level"]])
def test_compressed_buffers_are_refused_before_they_are_unpacked(compression, names):
    body = stream(TABLE.select(names), compression)
    status, sentence = refusal(arrow_bodies.parse_table, body, LIMITS)
    assert status == 415
    assert "uncompressed" in sentence


def test_a_bomb_of_zeros_costs_no_memory():
    body = stream(pa.table({"x": pa.array([0.0] * 1_000_000)}), "zstd")
    assert len(body) < 20_000
    before = pa.total_allocated_bytes()
    assert refusal(arrow_bodies.parse_table, body, LIMITS)[0] == 415
    assert pa.total_allocated_bytes() - before < 100_000


@pytest.mark.parametrize(
    ("table", "status", "word"),
    [
        (pa.table({"x": [1.0] * 51}), 413, "51 rows"),
        (pa.table({"x": pa.nulls(10**8)}), 413, "100,000,000 rows"),
        (pa.table({f"c{j}": pa.nulls(50) for j in range(11)}), 413, "550 values"),
        (pa.table({"x": pa.array([], pa.float64())}), 422, "no row"),
        (pa.table({f"c{j}": [1] for j in range(21)}), 422, "21 columns"),
        (pa.table([[1], [2]], names=["x", "x"]), 422, "same name"),
        (pa.table({"x": [[1, 2]]}), 422, "'x' is of type 'list"),
        (pa.table({"x": [{"a": 1}]}), 422, "'x' is of type 'struct"),
        (pa.table({"x": pa.array([b"a"])}), 422, "'x' is of type 'binary'"),
    ],
)
def test_tables_that_cannot_be_rows_are_refused(table, status, word):
    found = refusal(arrow_bodies.parse_table, stream(table), LIMITS)
    assert found[0] == status
    assert word in found[1]


def test_the_values_of_all_batches_are_counted():
    batch = pa.table({f"c{j}": pa.nulls(10) for j in range(20)})
    assert arrow_bodies.parse_table(stream(pa.concat_tables([batch] * 2)), LIMITS).num_rows == 20
    assert refusal(arrow_bodies.parse_table, stream(pa.concat_tables([batch] * 3)), LIMITS)[0] == 413


def test_offsets_and_codes_outside_their_buffers_are_found():
    texts = stream(pa.table({"text": ["abc", "defgh"]}))
    offsets, outside = (struct.pack("<3i", 0, 3, end) for end in (8, 2**30))
    codes = stream(pa.table({"level": pa.array(["u", "v"] * 3).dictionary_encode()}))
    here, beyond = (struct.pack("<6i", 0, 1, 0, 1, 0, last) for last in (1, 7))
    for body, there, broken in ((texts, offsets, outside), (codes, here, beyond)):
        assert body.count(there) == 1
        assert arrow_bodies.parse_table(body, LIMITS).num_rows
        assert refusal(arrow_bodies.parse_table, body.replace(there, broken), LIMITS)[0] == 400


def test_a_stream_with_bytes_changed_or_cut_off_never_does_more_than_be_refused():
    body, rng, met = stream(TABLE), random.Random(0), set()
    cut = [body[:length] for length in range(0, len(body), 7)]
    changed = []
    for _ in range(1000):
        copy = bytearray(body)
        for _ in range(rng.randint(1, 3)):
            copy[rng.randrange(len(copy))] = rng.randrange(256)
        changed.append(bytes(copy))
    for broken in cut + changed:
        try:
            arrow_bodies.parse_table(broken, LIMITS)
        except Refused as refused:
            met.add(refused.status_code)
    assert {400, 422} <= met <= {400, 413, 415, 422}


def test_keys_and_labels_are_columns():
    table = pa.table({"k": ["a", "b"], "x": [1.0, 2.0]})
    rest, keys = arrow_bodies.take_key_column(table, "k", LIMITS)
    assert (rest.column_names, keys) == (["x"], ["a", "b"])
    assert "no column 'key'" in refusal(arrow_bodies.take_key_column, table, "key", LIMITS)[1]
    keys, targets = arrow_bodies.take_labels(table, "k", "x", LIMITS)
    assert (keys, targets.to_pylist()) == (["a", "b"], [1.0, 2.0])
    assert "expected 'k' and 'y'" in refusal(arrow_bodies.take_labels, table, "k", "y", LIMITS)[1]
    numbers = pa.table({"k": [1, 2], "x": [1.0, 2.0]})
    assert "key 0 is 1, expected text" in refusal(arrow_bodies.take_key_column, numbers, "k", LIMITS)[1]


def test_limits_are_above_0():
    with pytest.raises(ValueError, match="rows is 0, expected a number above 0"):
        Limits(rows=0)
