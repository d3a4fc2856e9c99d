"""Whatever the one request is, the memory of a server stays within bounds; see ``memory.py``."""

import json
from pathlib import Path

import memory
import pytest
from started import lines_of

WORST = [
    "/predict empty rows",
    "/predict a fault at the end",
    "/learn rows of other columns",
    "/learn wide rows",
    "/learn Arrow dictionary",
    "/learn Arrow truths",
]


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux tells the peak of a process")
def test_no_request_takes_300_megabytes(tmp_path, request):
    names = [name for name, *_ in memory.requests()] if request.config.getoption("--long") else WORST
    lines = lines_of(memory.__file__, tmp_path, *names, log=tmp_path / "log", seconds=30.0 * len(names))
    told = [json.loads(line) for line in lines if line.startswith("[")]
    assert [name for name, *_ in told] == [name for name, *_ in memory.requests() if name in names]
    assert {name: grown for name, _, grown in told if grown >= 300} == {}
    assert {status for _, status, _ in told} >= {200, 413}  # what is large and what is too large are both tried
