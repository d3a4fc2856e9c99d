"""Bodies of requests, broken in all ways that a generator thinks of, and the functions of the server that read them.

As a program, ``bodies.py SEED N``, it reads N bodies and prints how many were taken and how many refused. Whatever else
is raised, or takes a minute, ends it.
"""

import faulthandler
import io
import json
import random
import signal
import sys
from collections import Counter

import numpy as np
import pyarrow as pa
from msgspec import UNSET

from streamboost.features.encoder import Encoder
from streamboost.serving import arrow_bodies, json_bodies
from streamboost.serving.errors import Limits, Refused

LIMITS = Limits(body_bytes=1 << 16, decoded_bytes=1 << 22, rows=50, columns=12, cells=400)
KINDS = {"a": "number", "t": "category"}
ROWS = [{"a": 1.5, "t": "x", "y": 1}, {"a": None, "t": None, "b": True, "y": 0}]
VALID = {
    "Rows": [{"row": ROWS[0]}, {"rows": ROWS, "keys": ["k", "l"], "id": "r1"}],
    "LabelledRows": [{"rows": ROWS}, {"row": {"a": 1}, "targets": [3]}, {"rows": ROWS, "targets": [1, 2], "id": "r2"}],
    "Labels": [{"labels": [{"key": "k", "target": 1.0}, {"key": "l", "target": "x"}], "id": "r3"}],
}
TOKENS = [
    *(b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"null", b"true", b'"rows":', b'"key":'),
    *(b"1e999", b"-1e999", b"1e-400", b"NaN", b"-0", b"0x1", b"1_0", b"1" * 400),
    *(b"9223372036854775808", b"-9223372036854775809", b"[" * 300, b'{"a":' * 300),
    *(b"\\u0000", b"\\ud800", b"\\udc00", b"\xff", b"\xed\xa0\x80", b"\x00", b"\xef\xbb\xbf"),
]
LEAVES = [
    *(None, True, 0, -1, 2**53 + 1, 2**63, 2**64, -(2**63) - 1, 1e308, -1e-308, float("nan"), float("inf")),
    *("", "x", "x" * 300, "\u2028", "\x00", "1", "nan", [], {}, [[]], {"": 1}, {"a": {}}),
]


def json_body(rng):
    name = rng.choice([*VALID])
    value = json.loads(json.dumps(rng.choice(VALID[name])))
    for _ in range(rng.choice([0, 1, 1, 2, 5])):
        value = changed(value, rng)
    data = json.dumps(value).encode()
    return name, damaged(data, rng, TOKENS) if rng.random() < 0.6 else data


def changed(value, rng):
    """Return a value of JSON with something in it that is another one."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice([*value])
        return {**value, key: changed(value[key], rng)} if rng.random() < 0.8 else {**value, rng.choice(["", "z" * 300, "rows", "\x00"]): rng.choice(LEAVES)}  # noqa: E501  # fmt: skip
    if isinstance(value, list) and value and rng.random() < 0.85:
        k = rng.randrange(len(value))
        return [*value[:k], changed(value[k], rng), *value[k + 1 :], *(value * rng.choice([0, 0, 1, 40]))]
    return rng.choice(LEAVES)


def damaged(data, rng, tokens=()):
    """Return bytes some of which are others, gone, doubled or new."""
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 4, 16])):
        at, n = rng.randrange(len(data) + 1), rng.choice([1, 2, 4, 8, 64])
        way = rng.randrange(6)
        if way == 0 and data:
            data[at % len(data)] ^= 1 << rng.randrange(8)
        elif way == 1:
            data[at : at + 4] = rng.choice([0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**16]).to_bytes(4, "little")
        elif way == 2:
            del data[at : at + n]
        elif way == 3:
            data[at:at] = data[at : at + n] * rng.choice([1, 1, 30])
        elif way == 4:
            del data[at:]
        else:
            data[at:at] = rng.choice(tokens) if tokens else rng.randbytes(n)
    return bytes(data)


def columns():
    """Return columns of every type that Arrow may send, four rows each: those the server takes, and others."""
    numbers, texts = [1, None, 3, 4], ["x", None, "", "yz"]
    kinds = pa.float64(), pa.float32(), pa.int8(), pa.uint64(), pa.int64(), pa.timestamp("ns", "UTC"), pa.date32()
    taken = {str(kind): pa.array(numbers, kind) for kind in (*kinds, pa.time64("us"), pa.duration("s"))}
    taken |= {str(kind): pa.array(texts, kind) for kind in (pa.string(), pa.large_string(), pa.string_view())}
    coded = pa.array(texts).dictionary_encode()
    taken |= {
        "half": pa.array(np.float16([1, 2, 3, 4])),
        "nothing": pa.nulls(4),
        "truth": pa.array([True, None, False, True]),
        "decimal": pa.array([1, 2, None, 4], pa.decimal128(9, 2)),
        "coded": coded,
        "coded numbers": pa.array(numbers).dictionary_encode(),
    }
    others = {
        "runs": pa.RunEndEncodedArray.from_arrays([1, 4], ["x", "y"]),
        "list": pa.array([[1], None, [], [2, 3]]),
        "struct": pa.array([{"a": 1}] * 4),
        "map": pa.array([[("k", 1)]] * 4, pa.map_(pa.string(), pa.int8())),
        "list of codes": pa.ListArray.from_arrays([0, 1, 2, 3, 4], coded),
        "fixed": pa.array([b"ab"] * 4, pa.binary(2)),
        "binary": pa.array(texts, pa.binary()),
    }
    return taken, others


TAKEN, OTHERS = columns()


def arrow_body(rng):
    chosen = rng.sample([*TAKEN.values()], rng.randint(1, 4)) + rng.sample([*OTHERS.values()], rng.random() < 0.2)
    named = {rng.choice(["a", "t", "y", "key", f"c{k}"]): column for k, column in enumerate(chosen)}
    if rng.random() < 0.7:
        named["key"] = pa.array(["k", "l", "m", "n"])
    table, sink = pa.table(named), io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=rng.choice([*[None] * 18, "lz4", "zstd"]), emit_dictionary_deltas=True)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        for batch in table.to_batches(max_chunksize=rng.choice([1, 2, 4])) * rng.choice([1, 1, 1, 15]):
            writer.write_batch(batch)
    data = sink.getvalue()
    return damaged(data, rng) if rng.random() < 0.75 else data


def read_json(name, body):
    parsed = json_bodies.decode(body, name, LIMITS)
    if name == "Labels":
        json_bodies.check_count(len(parsed.labels), LIMITS)
        json_bodies.check_keys([label.key for label in parsed.labels], len(parsed.labels), LIMITS)
        return json_bodies.column_of([label.target for label in parsed.labels], "y")
    rows = json_bodies.take_rows(parsed, LIMITS, KINDS)
    if name == "LabelledRows":
        return json_bodies.learning_table(parsed, rows, "y", LIMITS)
    json_bodies.check_names(list({name for row in rows for name in row}), LIMITS)
    if parsed.keys is not UNSET:
        json_bodies.check_keys(parsed.keys, len(rows), LIMITS)
    return json_bodies.table_of(rows, LIMITS)


def read_arrow(body):
    table = arrow_bodies.parse_table(body, LIMITS, KINDS)
    if "y" in table.column_names:
        arrow_bodies.largest_numbers(table["y"])
    if "key" in table.column_names:
        if len(table.column_names) == 2:
            arrow_bodies.take_labels(table, "key", "y", LIMITS)
        table, _ = arrow_bodies.take_key_column(table, "key", LIMITS)
    return table


def tried(rng):
    """Read one body; return what became of it."""
    is_json = rng.random() < 0.5
    name, body = json_body(rng) if is_json else ("", arrow_body(rng))
    kind = "JSON" if is_json else "Arrow"
    try:
        read = read_json(name, body) if is_json else read_arrow(body)
    except Refused:
        return f"{kind} refused"
    if isinstance(read, pa.Table):
        try:
            Encoder(new_columns="grow").encode(read, dialect="dict")
        except (TypeError, ValueError):  # what models refuse, row by row
            return f"{kind} taken, its rows refused"
    return f"{kind} taken"


def main(seed, n):
    faulthandler.enable()
    told = Counter()
    for k in range(n):
        signal.alarm(60)
        try:
            told[tried(random.Random(seed * 1_000_003 + k))] += 1
        except BaseException:
            print(f"body {k} of seed {seed}", file=sys.stderr)
            raise
    signal.alarm(0)
    print(json.dumps(told))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
