"""Text files that end Arrow's parsers, and with them the process: tried in another one."""

import json
import subprocess
import sys

import pytest

from streamboost.sources import open_source

PROGRAM = """
import sys
from streamboost.sources import open_source
bad = []
try:
    rows = [row for batch in open_source(sys.argv[1], on_bad=bad.append).read() for row in batch.table.to_pylist()]
    print("rows", len(rows), [one.reason for one in bad])
except ValueError as error:
    print("refused", str(error)[:300])
"""
GOOD = b'{"x": 1.0, "y": "a [b] {c}"}\n' * 5
DEEP = b'{"x": ' + b"[" * 20_000 + b"]" * 20_000 + b"}\n"
FILES = {
    "deep.jsonl": (GOOD + DEEP + GOOD, "rows 10 ['the row is nested 20,001 deep, expected at most 100"),
    "deep_at_first.jsonl": (DEEP + GOOD, "rows 5 ['the row is nested"),
    "deep_objects.jsonl": (b'{"x":' * 20_000 + b"1" + b"}" * 20_000 + b"\n" + GOOD, "rows 5"),
    "open.jsonl": (GOOD + b'{"x": ' + b"[" * 200_000 + b"\n", "rows 5"),
    "hidden.jsonl": (GOOD + b'{"x": "\n' + b'{"x": ' + b"[" * 200_000 + b"\n", "rows 5"),
    "keys.jsonl": (
        GOOD + json.dumps({f"k{i}": 0 for i in range(200_000)}).encode() + b"\n",
        "rows 5 ['the row has 200,0",
    ),
    "wide.csv": (b",".join(b"c%d" % i for i in range(1_000_000)) + b"\n1,2\n", "refused"),
    "same_name.csv": (b",".join([b"c"] * 1_000_000) + b"\n1,2\n", "refused"),
}


@pytest.mark.parametrize("name", FILES)
def test_files_that_are_too_deep_or_too_wide_are_refused_before_arrow_sees_them(tmp_path, name):
    data, expected = FILES[name]
    (tmp_path / name).write_bytes(data)
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / name)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-500:]
    assert done.stdout.startswith(expected), done.stdout[:300]


def test_brackets_within_texts_are_no_depth(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"x": "[" * 500 + '"\\'}) * 1 + "\n")
    assert [len(row["x"]) for batch in open_source(path).read() for row in batch.table.to_pylist()] == [502]
