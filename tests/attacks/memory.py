"""How far the memory of a server rises under one request that is made to become large.

``python tests/attacks/memory.py DIR [NAME ...]`` sends each body to a server of its own, and prints as JSON for each
the status of the answer and by how many megabytes the server's peak was above what it had before.
"""

import io
import json
import os
import re
import signal
import sys
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa

from streamboost import SGBRegressor
from streamboost.serving import serve

LARGEST = 16_000_000  # bytes of a body
ARROW = "application/vnd.apache.arrow.stream"


def filled(start, part, end, limit=LARGEST):
    """A body with as many equal parts as it can hold."""
    n = (limit - len(start) - len(end)) // (len(part) + 1)
    return start + b",".join([part] * n) + end


def other_names(n_rows):
    """Rows of which each has columns of its own; just as many values as are taken."""
    names = (b'"%x":1' % i for i in range(16**4, 16**4 + 990_000))
    each = 990_000 // n_rows
    rows = (b"{" + b",".join([next(names) for _ in range(each)]) + b"}" for _ in range(n_rows))
    return b'{"rows":[' + b",".join(rows) + b"]}"


def wide_rows():
    row = b"{" + b",".join([b'"c%d":%d.5' % (i, i) for i in range(999)]) + b',"y":1.5}'
    return b'{"rows":[' + b",".join([row] * 990) + b"]}"


def stream(table):
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def texts(n_columns, length, kind):
    """Texts that are written once and meant in every one of 10,000 rows."""
    text = pa.array(["a" * length])
    if kind == "dictionary":
        column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(10_000, np.int8)), text)
    else:
        views, data = text.cast(pa.string_view()).buffers()[1:]
        column = pa.Array.from_buffers(
            pa.string_view(), 10_000, [None, pa.py_buffer(views.to_pybytes() * 10_000), data]
        )
    return stream(pa.table({**{f"c{i}": column for i in range(n_columns)}, "y": np.zeros(10_000)}))


def many_cells(column):
    return stream(pa.table({**{f"c{i}": column for i in range(399)}, "y": np.zeros(len(column))}))


def run_ends():
    values = pa.RunEndEncodedArray.from_arrays(pa.array([2_000_000_000], pa.int32()), pa.array(["a" * 1_000_000]))
    return stream(pa.table({"a": values}))


JSON = {
    "empty rows": lambda: filled(b'{"rows":[', b"{}", b"]}"),
    "small rows": lambda: filled(b'{"rows":[', b'{"a":1}', b"]}"),
    "small rows, twice": lambda: filled(b'{"rows":[', b'{"a":1}', b'],"rows":[{"a":1,"y":1}]}'),
    "one wide row": lambda: other_names(1),
    "rows of other columns": lambda: other_names(990),
    "wide rows": wide_rows,
    "a fault at the end": lambda: filled(b'{"rows":[', b'{"a":1}', b',{"a":[]}]}'),
    "a fault in a wide row": lambda: other_names(1)[:-3] + b',"a":[]}]}',
    "targets": lambda: filled(b'{"rows":[{"a":1}],"targets":[', b"1.5", b"]}"),
    "keys": lambda: filled(b'{"rows":[{"a":1}],"keys":[', b'"aa"', b"]}"),
    "labels": lambda: filled(b'{"labels":[', b'{"key":"k","target":1.5}', b"]}"),
    "deep": lambda: filled(b'{"rows":', b"[" * 1000, b"").replace(b",", b"["),
    "wide letters": lambda: b'{"rows":[{"a":"' + b"a" * (LARGEST - 40) + "🙂".encode() + b'","y":1}]}',
}
ARROWS = {
    "dictionary": lambda: texts(1, 4_700, "dictionary"),
    "dictionary, larger": lambda: texts(1, 1_000_000, "dictionary"),
    "views": lambda: texts(1, 4_700, "views"),
    "run ends": run_ends,
    "nothing": lambda: many_cells(pa.nulls(10_000)),
    "truths": lambda: many_cells(pa.array([True, False] * 5_000)),
}


def requests():
    for name, body in JSON.items():
        for path in ["/label"] if name == "labels" else ["/predict", "/learn"]:
            yield f"{path} {name}", path, body, "application/json"
    for name, body in ARROWS.items():
        for path in ("/predict", "/learn"):
            yield f"{path} Arrow {name}", path, body, ARROW


def new_model():
    return SGBRegressor(n_estimators=4, max_depth=3, memory=64, new_columns="grow", random_state=0)


def start(directory):
    """A child that serves, and its address."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(600)  # whatever becomes of the parent
        os.dup2(writer, 2)
        code = 1
        try:
            code = serve(directory, port=0, model=new_model(), target="y", durable=False)
        finally:
            os._exit(code)
    os.close(writer)
    said = os.fdopen(reader)
    for line in said:
        if found := re.search(r"serving (http://\S+?)/? ", line):
            return child, found[1], said
    raise SystemExit("the server did not start")


def megabytes(child, name):
    return int(re.search(rf"{name}:\s+(\d+)", Path(f"/proc/{child}/status").read_text())[1]) / 1024


def measure(directory, path, body, kind):
    child, url, said = start(directory)
    try:
        with httpx.Client(base_url=url, timeout=300) as client:
            client.post("/learn", json={"rows": [{"a": 1.0, "y": 1.0}] * 20}).raise_for_status()
            client.post("/predict", json={"row": {"a": 1.0}}).raise_for_status()
            Path(f"/proc/{child}/clear_refs").write_text("5")  # the peak begins anew
            before = megabytes(child, "VmRSS")
            answer = client.post(path, content=body, headers={"Content-Type": kind})
            client.get("/healthz").raise_for_status()
            return answer.status_code, round(megabytes(child, "VmHWM") - before)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        said.close()


if __name__ == "__main__":
    warm = new_model()
    warm.learn(np.random.default_rng(0).normal(size=(300, 2)), np.zeros(300))  # kernels are loaded before the fork
    for number, (name, path, body, kind) in enumerate(requests()):
        if not sys.argv[2:] or name in sys.argv[2:]:
            sent = body()
            assert len(sent) <= LARGEST, (name, len(sent))
            print(json.dumps([name, *measure(Path(sys.argv[1]) / str(number), path, sent, kind)]), flush=True)
            del sent
