"""Files that are renamed and begun anew while they are followed: each row is read once, whenever reading stops."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

from streamboost.cli import main
from streamboost.persistence.checkpoints import read_latest
from streamboost.persistence.object_graph import same_state
from streamboost.sources import FileSource, ForeignPosition

LINES = [f"{k},{k / 4}\n" for k in range(60)]
HEADER = "x,y\n"


def numbered(path):
    """Rename all as logrotate does: rows.csv.2, rows.csv.1."""
    for k in range(20, 0, -1):
        if (old := path.with_name(f"{path.name}.{k}")).exists():
            old.rename(path.with_name(f"{path.name}.{k + 1}"))
    path.rename(path.with_name(f"{path.name}.1"))


def dated(path):
    day = 20240101 + len(list(path.parent.glob("rows*"))) - 1
    path.rename(path.with_name(f"{path.name}-{day}"))


def dated_before_the_ending(path):
    day = 20240101 + len(list(path.parent.glob("rows*"))) - 1
    path.rename(path.with_name(f"{path.stem}-{day}{path.suffix}"))


ROTATIONS = [numbered, dated, dated_before_the_ending]


def append(path, lines, mode="a"):
    with path.open(mode) as file:
        file.writelines(([HEADER] if not file.tell() and path.suffix == ".csv" else []) + lines)


def followed(path, position=None, n_rows=1000, **options):
    source = FileSource(path, follow_rotation=True, poll=0.005, **{"idle_timeout": 0.05, **options})
    return source.read(position, n_rows=n_rows)


def numbers(batches):
    return [int(row["x"]) for batch in batches for row in batch.table.to_pylist()]


@pytest.mark.parametrize("rotate", ROTATIONS)
@pytest.mark.parametrize("n_rows", [1, 7, 1000])
def test_reading_may_stop_anywhere_and_goes_on_whatever_the_files_are_called_then(tmp_path, rotate, n_rows):
    path, rng = tmp_path / "rows.csv", random.Random(n_rows)
    append(path, LINES[:5])
    seen, position, written = [], None, 5
    while written < len(LINES) or len(seen) < len(LINES):
        for batch in followed(path, position, n_rows):
            seen += numbers([batch])
            position = json.loads(json.dumps(batch.position))
            if rng.random() < 0.3:
                break  # as if killed here
        for _ in range(rng.randint(0, 3)):
            if rng.random() < 0.7 and path.stat().st_size:
                rotate(path)
            n = rng.randint(0, 6)
            append(path, LINES[written : written + n])
            written = min(written + n, len(LINES))
    assert seen == list(range(len(LINES)))


def test_the_old_file_is_read_to_its_end_by_whoever_still_writes_it(tmp_path):
    path = tmp_path / "rows.csv"
    append(path, LINES[:2])
    with path.open("a") as old:

        def steps():
            numbered(path)
            yield
            yield  # there is none of this name for a while
            old.write(LINES[2])
            old.flush()
            yield
            path.touch()  # nothing is in it yet
            yield
            old.write(LINES[3])
            old.flush()
            append(path, LINES[4:6])
            yield
            append(path, LINES[6:8])

        due = steps()
        batches = followed(path, idle_timeout=0.5, stop=lambda: next(due, None) and False)
        assert numbers(batches) == list(range(8))


def test_a_file_of_json_lines_is_followed_likewise_and_bad_rows_are_told_once(tmp_path):
    path, bad = tmp_path / "rows.jsonl", []
    path.write_text('{"x": 0}\n{"x": 1}\nnot a row\n')
    first = list(followed(path, on_bad=bad.append))
    numbered(path)
    path.write_text('{"x": 2}\n')
    rest = followed(path, first[-1].position, on_bad=bad.append)
    assert numbers(first) + numbers(rest) == [0, 1, 2]
    assert [row.text.strip() for row in bad] == ["not a row"]


def test_a_file_that_begins_with_other_columns_is_refused(tmp_path):
    path = tmp_path / "rows.csv"
    append(path, LINES[:2])
    batches = followed(path, idle_timeout=5.0)
    assert numbers([next(batches)]) == [0, 1]
    numbered(path)
    path.write_text("a,y\n1,2\n")
    with pytest.raises(ValueError, match="lacks 'x'"):
        list(batches)


def test_without_the_file_of_the_position_nothing_is_read(tmp_path):
    path = tmp_path / "rows.csv"
    append(path, LINES[:3])
    position = next(followed(path)).position
    numbered(path)
    append(path, LINES[3:6])
    held = (tmp_path / "rows.csv.1").rename(tmp_path / "elsewhere")
    with pytest.raises(ForeignPosition, match=r"is not beside it any more, as .*rows\.csv\.1"):
        list(followed(path, position))
    held.rename(tmp_path / "rows.csv.1")
    assert numbers(followed(path, position)) == [3, 4, 5]


def test_a_copy_beside_it_is_no_rotated_file(tmp_path):
    path = tmp_path / "rows.csv"
    append(path, LINES[:3])
    position = next(followed(path)).position
    for name in ("rows.csv.bak", "rows.csv.1.gz", "rows.csv.1~", "rows-old.csv", "more-rows.csv.1"):
        append(tmp_path / name, LINES[20:30])
    append(path, LINES[3:4])
    assert numbers(followed(path, position)) == [3]


@pytest.mark.parametrize("is_longer", [False, True])
@pytest.mark.parametrize("option", ["follow", "follow_rotation"])
def test_a_file_that_is_cut_off_in_place_is_told(tmp_path, option, is_longer):
    path = tmp_path / "rows.csv"
    append(path, LINES[:3])
    batches = FileSource(path, **{option: True}, poll=0.005, idle_timeout=5.0).read()
    assert numbers([next(batches)]) == [0, 1, 2]
    path.write_text(HEADER + "".join(LINES[40:50] if is_longer else []))
    with pytest.raises(ValueError, match="shrank or was written over while it was read"):
        list(batches)


@pytest.mark.parametrize(
    "paths", [["*.csv"], ["rows.csv", "more.csv"], ["rows.csv.gz"], ["rows.parquet"], ["-"], ["."]]
)
def test_only_one_file_of_plain_text_can_be_rotated(tmp_path, monkeypatch, paths):
    monkeypatch.chdir(tmp_path)
    for name in ("rows.csv", "more.csv", "rows.csv.gz", "rows.parquet"):
        (tmp_path / name).touch()
    with pytest.raises(ValueError, match=r"follow_rotation is True for .*, expected one file"):
        FileSource(*paths, follow_rotation=True, format="csv" if paths == ["-"] else None)


def test_a_run_that_is_killed_while_its_file_is_rotated_learns_each_row_once(tmp_path, kills):
    """Killed with SIGKILL again and again while a thread writes and rotates, and resumed."""
    n_kills = 1 if kills < 20 else kills
    n, path, rng = 700 + 1400 * n_kills, tmp_path / "live" / "rows.csv", random.Random(3)
    lines = [f"{k},{(k * 7919) % 101}\n" for k in range(n)]
    path.parent.mkdir()
    append(path, lines[:300])
    words = ["--target", "y", "--task", "regression", "-q", "--json", "--option", "n_estimators=3", "--option"]
    words += ["memory=64", "--option", "max_depth=2", "--checkpoint-every", "100"]
    run = ["run", str(path), *words, "--model", str(tmp_path / "m"), "--follow-rotation", "--resume"]

    def write():
        for start in range(300, n, 100):
            time.sleep(0.12)
            if start % 700 == 0:
                numbered(path)
            append(path, lines[start : start + 100])

    writer, child = threading.Thread(target=write), None
    try:
        for k in range(n_kills):
            child = subprocess.Popen([sys.executable, "-m", "streamboost", *run])
            wait_for_more_rows(tmp_path / "m", child)
            if k == 0:
                writer.start()
            time.sleep(rng.uniform(0.0, 0.1))
            child.kill()
            assert child.wait() == -signal.SIGKILL
    finally:
        child.kill()
        writer.join(60)
    assert main([*run, "--max-rows", str(n - read_latest(tmp_path / "m").rows)]) == 0
    append(tmp_path / "all.csv", lines)
    assert main(["run", str(tmp_path / "all.csv"), *words, "--model", str(tmp_path / "straight")]) == 0
    assert same_state(read_latest(tmp_path / "m").model, read_latest(tmp_path / "straight").model)
    assert len(list(path.parent.glob("rows.csv.*"))) == (n - 1) // 700


def wait_for_more_rows(directory, child):
    """Wait until a run has saved more rows than it had when it began."""

    def n_saved():
        return read_latest(directory).rows if list(directory.glob("checkpoint-*.safetensors")) else 0

    before, until = n_saved(), time.monotonic() + 120
    while n_saved() == before and child.poll() is None and time.monotonic() < until:
        time.sleep(0.02)


def test_files_that_are_renamed_while_they_are_listed_are_each_read_once(tmp_path):
    """One thread writes and rotates as fast as it can, without any pause."""
    path, n = tmp_path / "rows.csv", 400
    append(path, ["0,0\n"])

    def write():
        for k in range(1, n):
            if k % 20 == 0:
                numbered(path)
            append(path, [f"{k},0\n"])

    writer = threading.Thread(target=write)
    batches = followed(path, idle_timeout=1.0, n_rows=10)
    seen = numbers([next(batches)])
    writer.start()
    seen += numbers(batches)
    writer.join()
    assert seen == list(range(n))
    assert os.path.exists(tmp_path / f"rows.csv.{(n - 1) // 20}")
