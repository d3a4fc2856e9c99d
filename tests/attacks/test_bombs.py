"""Requests and files that are small and become large."""

import io
import json
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress

import httpx
import numpy as np
import pyarrow as pa
import pytest
from live_models import classifier
from sklearn.base import clone

from streamboost import SGBClassifier, SGBRegressor, load
from streamboost.live import LiveModel
from streamboost.persistence import snapshots
from streamboost.serving import create_app
from streamboost.serving.arrow_bodies import decoded_bytes, parse_table
from streamboost.serving.errors import Limits, Refused
from streamboost.serving.json_bodies import InFlightBytes, decode
from streamboost.serving.slow_clients import protocol_class


def stream(table, **options):
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in table.to_batches() if isinstance(table, pa.Table) else table:
            writer.write_batch(batch)
    return sink.getvalue()


def dictionary_bomb(n=10_000, length=100_000, kind=None):
    texts = pa.array(["a" * length], kind or pa.string())
    return pa.table({"x": pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int8)), texts)})


def view_bomb(n=8_000, length=100_000):
    text = pa.array(["a" * length], pa.string_view())
    views, data = text.buffers()[1], text.buffers()[2]
    return pa.table(
        {"x": pa.Array.from_buffers(pa.string_view(), n, [None, pa.py_buffer(views.to_pybytes() * n), data])}
    )


BOMBS = {
    "dictionary": dictionary_bomb,
    "dictionary of large strings": lambda: dictionary_bomb(kind=pa.large_string()),
    "string_view": view_bomb,
    "run ends": lambda: pa.table(
        {"x": pa.RunEndEncodedArray.from_arrays(pa.array([2_000_000_000], pa.int32()), pa.array(["a" * 100_000]))}
    ),
}
MEASURED = """
import resource, sys
from streamboost.serving.arrow_bodies import parse_table
from streamboost.serving.errors import Limits, Refused
from streamboost.live.request_checks import plain
body, before = sys.stdin.buffer.read(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    plain(parse_table(body, Limits()))
    print("taken")
except Refused as refusal:
    print(refusal.status_code, refusal.detail)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("bomb", BOMBS)
def test_an_arrow_bomb_is_refused_before_it_is_written_out(bomb):
    body = stream(BOMBS[bomb]())
    assert len(body) < 300_000
    done = subprocess.run([sys.executable, "-c", MEASURED], input=body, capture_output=True, check=True)
    told, grown = done.stdout.decode().splitlines()
    assert told.startswith("422" if bomb == "run ends" else "413 its values are")
    assert int(grown) < 64_000  # kilobytes


def test_dictionaries_and_views_of_honest_size_are_taken():
    texts = [f"text {i % 7} that is longer than twelve letters" for i in range(1000)]
    for kind in (pa.string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())):
        table = pa.table({"x": pa.array(texts, pa.string()).cast(kind)})
        assert parse_table(stream(table), Limits())["x"].cast(pa.string()).to_pylist() == texts
        assert sum(map(len, texts)) <= decoded_bytes(table) <= sum(map(len, texts)) + 8 * 1000


def test_a_dictionary_in_many_parts_is_refused():
    schema = pa.schema([("x", pa.dictionary(pa.int32(), pa.string()))])
    values = [[f"v{i}" for i in range(n)] for n in (2, 3)]
    batches = [
        pa.record_batch([pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(each))], schema=schema)
        for each in values
    ]
    with pytest.raises(Refused, match="in parts"):
        parse_table(stream(_Batches(schema, batches), emit_dictionary_deltas=True), Limits())


class _Batches(list):
    def __init__(self, schema, batches):
        super().__init__(batches)
        self.schema = schema


def test_what_a_body_becomes_is_held():
    held = InFlightBytes(100)
    with held.holding(60), pytest.raises(Refused, match="as many requests"), held.holding(60):
        pass
    assert held.n_bytes == 0


def test_rows_and_values_of_json_are_counted_before_they_are_made_and_texts_are_no_values():
    limits, text = Limits(rows=3, values=10), '{,"\\' * 20
    honest = json.dumps({"rows": [{"a": text}, {"a": text[:-1]}, {"a": ",,{"}]}).encode()
    assert [row["a"] for row in decode(honest, "Rows", limits).rows] == [text, text[:-1], ",,{"]
    fault = [text]  # what is wrong besides is not looked at
    for rows, told in (
        ([{}] * 4, "4 rows, expected at most 3"),
        ([{}] * 4 + fault, "4 rows, expected at most 3"),
        ([dict.fromkeys("abcdefghijkl")], "11 values, expected at most 10"),
    ):
        with pytest.raises(Refused, match=told) as caught:
            decode(json.dumps({"rows": rows}).encode(), "Rows", limits)
        assert caught.value.status_code == 413


def wide(n_columns, labels):
    rows = {f"c{i}": np.zeros(len(labels)) for i in range(n_columns)}
    return pa.table({**rows, "target": labels})


def test_columns_times_classes_are_limited_at_the_door(tmp_path):
    with LiveModel(tmp_path / "live", classifier()) as live:
        live.max_columns, live.max_classes, live.max_column_classes = 100, 50, 600
        with pytest.raises(ValueError, match="600"):
            live.learn(wide(40, [f"k{i}" for i in range(20)]))
        assert live.learn(wide(40, [f"k{i}" for i in range(15)])).rows == 15
        with pytest.raises(ValueError, match="600"):
            live.learn(wide(1, ["new"]))
        with pytest.raises(ValueError, match="600"):
            live.learn(wide(41, ["k0"]))
        assert live.learn(wide(40, ["k3"])).rows == 1
        live.remember(["r"], wide(40, ["k3"]).drop_columns(["target"]))
        assert "600" in live.label(["r"], ["another"]).reasons[0]


def test_a_model_does_not_grow_without_end():
    model = SGBRegressor(new_columns="grow", n_estimators=2, memory=64, max_columns=20)
    for i in range(20):
        model.learn_one({f"c{i}": 1.0}, 0.0)
    with pytest.raises(ValueError, match=r"21 columns, expected at most 20 .* set max_columns"):
        model.learn_one({"one more": 1.0}, 0.0)
    model.set_params(max_columns=21).learn_one({"one more": 1.0}, 0.0)
    labels = SGBClassifier(n_estimators=2, memory=64, max_classes=10)
    for i in range(10):
        labels.learn_one({"a": 1.0}, i)
    with pytest.raises(ValueError, match="11 classes"):
        labels.learn_one({"a": 1.0}, 10)
    wide = SGBRegressor(n_estimators=2, memory=64, max_columns=3)
    assert wide.fit(np.zeros((4, 9)), [0.0, 1.0, 2.0, 3.0]).n_features_in_ == 9  # of first rows, any number


@pytest.mark.parametrize("copied", ["clone", "fit again", "snapshot", "freeze"])
def test_the_limits_of_a_model_are_those_of_its_copies(tmp_path, copied):
    model = SGBClassifier(n_estimators=2, memory=64, max_columns=5, max_classes=4, new_columns="grow")
    X, y = [{"a": 1.0}, {"a": 2.0}], ["no", "yes"]
    if copied == "clone":
        model = clone(model).fit(X, y)
    elif copied == "fit again":
        model.fit(X, y).fit(X, y)
    else:
        model.fit(X, y).save(tmp_path / "model.safetensors")
        model = load(tmp_path / "model.safetensors") if copied == "snapshot" else model.freeze()
    assert (model.max_columns, model.max_classes) == (5, 4)
    if copied != "freeze":
        with pytest.raises(ValueError, match="6 columns, expected at most 5"):
            model.learn_one(dict.fromkeys("abcdef", 1.0), "no")
        with pytest.raises(ValueError, match="5 classes, expected at most 4"):
            model.partial_fit([{"a": 1.0}] * 3, ["x", "y", "z"])


def test_a_model_saved_before_it_had_limits_has_the_usual_ones():
    model = SGBRegressor(n_estimators=2, memory=64).fit([{"a": 1.0}, {"a": 2.0}], [0.0, 1.0])
    del model.max_columns, model.max_classes
    old = clone(snapshots.unpack(snapshots.pack(model)))
    assert (old.max_columns, old.max_classes) == (SGBRegressor().max_columns, SGBRegressor().max_classes)


@pytest.mark.parametrize("name", ["max_columns", "max_classes"])
@pytest.mark.parametrize("value", [0, -1, 2.5, None, "many", True])
def test_limits_that_are_no_numbers_are_refused(name, value):
    with pytest.raises(ValueError, match=rf"{name} is .*, expected a whole number of at least 1\. .* the default is"):
        SGBClassifier(**{name: value}).fit([{"a": 1.0}, {"a": 2.0}], ["no", "yes"])
    model = SGBClassifier(n_estimators=2, memory=64).fit([{"a": 1.0}, {"a": 2.0}], ["no", "yes"])
    with pytest.raises(ValueError, match=f"{name} is "):
        model.set_params(**{name: value}).learn_one({"b": 1.0}, "no")


@contextmanager
def served(app, **options):
    """Serve an application in a thread; give its port."""
    uvicorn = pytest.importorskip("uvicorn")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", **options))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            while not server.started:
                time.sleep(0.01)
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


def test_answers_of_many_classes_are_limited_and_a_client_that_reads_nothing_is_cut_off(tmp_path):
    with LiveModel(tmp_path / "live", classifier(), target="y") as live:
        live.learn(pa.table({"a": np.arange(64.0), "y": [f"class {i}" for i in range(64)]}))
        app = create_app(live, limits=Limits(answer_cells=400_000))
        with served(app, http=protocol_class(10.0, 65_536, 0.5)) as port:
            refused = httpx.post(f"http://127.0.0.1:{port}/predict", json={"rows": [{}] * 10_000}, timeout=60)
            assert refused.status_code == 413
            assert "640,000 probabilities, expected at most 400,000" in refused.json()["error"]
            body = json.dumps({"rows": [{}] * 6_000}).encode()
            with socket.socket() as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                client.connect(("127.0.0.1", port))
                head = f"POST /predict HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
                client.sendall(head.encode() + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
                client.settimeout(300)
                assert client.recv(1, socket.MSG_PEEK)  # the answer has begun
                time.sleep(4)
                n_read = 0
                with suppress(ConnectionError):
                    while part := client.recv(1 << 20):
                        n_read += len(part)
                assert n_read < 4_000_000  # of some 8 MB
