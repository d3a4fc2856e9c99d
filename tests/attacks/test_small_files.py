"""Small files that ask for a lot of time or memory when they are loaded."""

import json
import subprocess
import sys

import numpy as np
import pytest

from streamboost.errors import SnapshotError
from streamboost.persistence import snapshots


def forged(change, model=None):
    """Pack a model, let ``change`` alter the names of the arrays and the header, and seal it anew."""
    data = snapshots.pack({"x": np.arange(64.0), "y": np.arange(64.0)} if model is None else model)
    start = 8 + int.from_bytes(data[:8], "little")
    tensors = json.loads(data[8:start])
    header = json.loads(tensors["__metadata__"]["streamboost"])
    change(tensors, header)
    header["sha256"] = snapshots.BLANK
    tensors["__metadata__"]["streamboost"] = json.dumps(header, separators=(",", ":"))
    head = json.dumps(tensors).encode()
    data = len(head).to_bytes(8, "little") + head + data[start:]
    at = data.index(snapshots.SEAL) + len(snapshots.SEAL)
    return data[:at] + snapshots._checksum(data, at) + data[at + 64 :]


def test_a_file_that_is_sealed_anew_without_a_change_is_taken():
    assert snapshots.unpack(forged(lambda tensors, header: None))["x"][3] == 3.0


def nested_key(tensors, header, kind="dict"):
    nodes = [{"kind": "tuple", "keys": [], "items": []}]
    nodes += [{"kind": "tuple", "keys": [], "items": [{"ref": i}, {"ref": i}]} for i in range(60)]
    key = [{"ref": 60}]
    nodes.append({"kind": kind, "keys": key if kind == "dict" else [], "items": [1] if kind == "dict" else key})
    header["nodes"], header["root"] = nodes, {"ref": 61}


@pytest.mark.parametrize("kind", ["dict", "set", "frozenset"])
def test_nested_tuples_as_a_key_are_refused_before_they_are_hashed(tmp_path, kind):
    path = tmp_path / "model.safetensors"
    path.write_bytes(forged(lambda tensors, header: nested_key(tensors, header, kind)))
    assert path.stat().st_size < 6000
    program = "import sys, streamboost; streamboost.load(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", program, path], capture_output=True, text=True, timeout=60, check=False
    )
    assert "SnapshotError" in done.stderr
    assert "key that is a tuple of containers" in done.stderr


def test_tuples_of_text_and_numbers_are_keys_still():
    model = {("a", 1): 1, 2: {("x", None)}}
    assert snapshots.unpack(snapshots.pack(model)) == model


def overlap(tensors, header):
    tensors["['y']"]["data_offsets"] = tensors["['x']"]["data_offsets"]


def beyond(tensors, header):
    tensors["['y']"]["data_offsets"][1] += 8


def twice(tensors, header):
    header["nodes"][1]["name"] = header["nodes"][0]["name"]


@pytest.mark.parametrize("change", [overlap, beyond, twice])
def test_arrays_that_share_bytes_are_refused(change):
    with pytest.raises(SnapshotError, match=r"the bytes of|two of its values"):
        snapshots.unpack(forged(change))
