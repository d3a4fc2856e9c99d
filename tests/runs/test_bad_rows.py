"""Bad rows of a run: why they are bad, how many there may be, and what is kept of them."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from streamboost import SGBRegressor
from streamboost.persistence.checkpoints import read_latest
from streamboost.persistence.object_graph import same_state
from streamboost.runs import quarantine
from streamboost.runs.quarantine import BadRows, Quarantine, TooManyBadRows
from streamboost.runs.run import Options, Run
from streamboost.sources import FileSource, ForeignPosition, MemorySource

SMALL = {"n_estimators": 4, "max_depth": 3, "memory": (64, 256), "random_state": 3, "new_columns": "grow"}


def options(**changes):
    return Options(**{"target": "y", "task": "regression", "chunk": 50, "checkpoint_rows": 100} | changes)


def run_of(source, directory, chosen, **how):
    return Run(source, SGBRegressor(**SMALL), chosen, directory, **how)


def lines_of(directory):
    return [json.loads(line) for line in (directory / "quarantine.jsonl").read_text().splitlines()]


def test_reasons_are_counted_by_kind_across_resumes(tmp_path):
    y = np.arange(400.0)
    y[::4], y[1::8] = np.nan, np.inf
    table = pa.table({"x": np.where(np.arange(400) == 3, -np.inf, np.arange(400.0)), "y": y})
    for _ in range(5):
        with run_of(MemorySource(table), tmp_path, options(every=100), resume=True) as run:
            for number, _ in enumerate(run.reports()):
                if number == 0:
                    run.stop()
    assert [(found["rows"], found["reason"].split(",")[0]) for found in run.bad.most_frequent()] == [
        (100, "the target 'y' is missing"), (50, "the target 'y' is inf"), (1, "column 'x' is -inf"),
    ]  # fmt: skip
    assert len(lines_of(tmp_path)) == 151


def test_reasons_that_differ_in_a_value_are_one_and_their_number_is_bounded():
    bad = BadRows()
    for k in range(1000):
        bad.quarantine(f"column 'x' holds '{k}a', but it is double in the first rows.")
        bad.quarantine(f"the gradient of target 'y' is {k * 1e7:.3g}, which is absurd beside targets of about {k}.")
        bad.quarantine(f"column 'c{k}' is inf, expected a finite number or none.")
    assert len(bad.reasons) == quarantine.KINDS_KEPT + 1
    counts = {found["reason"]: found["rows"] for found in bad.most_frequent(99)}
    assert sum(counts.values()) == bad.n == 3000
    assert counts["column 'x' holds '0a', but it is double in the first rows."] == 1000
    assert counts[quarantine.OTHER] == 1000 - (quarantine.KINDS_KEPT - 2)


@pytest.mark.parametrize(
    ("first", "second", "limit", "ends_at"),
    [(600, 600, 0.5, 1000), (600, 600, 0.7, None), (400, 900, 0.5, 1350), (399, 401, 0.4, None)],
)
def test_a_share_of_bad_rows_ends_the_run_once_it_tells_anything(first, second, limit, ends_at, tmp_path):
    """So many of the first and of the second thousand rows are bad, evenly spread."""
    n_bad = np.repeat([first, second], 1000)
    y = np.where(np.arange(2000) * n_bad % 1000 < n_bad, np.nan, 1.5)
    table = pa.table({"x": np.arange(2000.0), "y": y})
    with run_of(MemorySource(table), tmp_path, options(max_bad=limit)) as run:
        if ends_at is None:
            list(run.reports())
            assert run.rows_read == 2000
            return
        with pytest.raises(TooManyBadRows, match=rf"more than max_bad={limit}; most of them, .* missing"):
            list(run.reports())
        assert abs(run.rows_read - ends_at) <= 100
        n_learned = run.rows
    assert read_latest(tmp_path).rows == n_learned
    with run_of(MemorySource(table), tmp_path, options(), resume=True) as run:
        list(run.reports())
        assert (run.rows_read, run.rows) == (2000, int(np.isfinite(y).sum()))


def test_a_few_rows_most_of_which_are_bad_are_too_many_at_the_end(tmp_path):
    table = pa.table({"x": [1.0, 2.0, 3.0], "y": [None, None, 1.0]})
    with (
        run_of(MemorySource(table), tmp_path, options(max_bad=0.5)) as run,
        pytest.raises(TooManyBadRows, match="2 bad rows of 3"),
    ):
        list(run.reports())
    assert read_latest(tmp_path).rows == 1


def test_rows_that_cannot_be_read_end_a_run_though_no_good_one_follows_and_are_not_met_again(tmp_path):
    file, text = tmp_path / "rows.csv", "x,y\n" + "".join(f"{k},{k}\n" for k in range(100))
    file.write_text(text + "1,2,3\n" * 5000 + "7,7\n")
    with run_of(FileSource(file), tmp_path / "m", options(max_bad=300)) as run:
        with pytest.raises(TooManyBadRows, match="301 bad rows are more than max_bad=300"):
            list(run.reports())
        assert run.bad.n == 301  # not 5,000: it did not read on
    with run_of(FileSource(file), tmp_path / "m", options(max_bad=4699), resume=True) as run:
        list(run.reports())
        assert (run.rows, run.bad.n) == (101, 5000)
    assert len(lines_of(tmp_path / "m")) == 5000


def test_a_run_that_learned_nothing_is_not_in_the_way_of_the_next(tmp_path):
    table = pa.table({"x": np.arange(100.0), "y": np.arange(100) + 0.5})
    with run_of(MemorySource(table), tmp_path, options(task="classification", max_bad=0.5)) as run:
        with pytest.raises(TooManyBadRows):
            list(run.reports())
        assert (run.rows, run.rows_read) == (0, 100)
    with run_of(MemorySource(table), tmp_path, options()) as run:
        list(run.reports())
        assert (run.rows, run.bad.n) == (100, 0)
    assert (tmp_path / "quarantine.jsonl").read_text() == ""


# What is kept of them.


def test_lines_are_short_and_hold_what_was_read(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_bytes("größe,y\n1,5\n2,\n3,4,5\n6,7\n".encode())
    with run_of(FileSource(file), tmp_path / "m", options()) as run:
        list(run.reports())
    text = (tmp_path / "m" / "quarantine.jsonl").read_text(encoding="utf-8")
    assert max(map(len, text.splitlines())) < 450 + len(str(file)) * 2
    unread, missing = lines_of(tmp_path / "m")
    assert (missing["row"], missing["values"]) == (1, {"größe": 2.0, "y": None})
    assert "größe" in text
    assert (unread["text"], unread["place"]) == ("3,4,5\n", f"{file}, line 4")
    assert unread["position"] == {"file": str(file), "row": 2, "line": 3, "offset": file.read_bytes().index(b"3,4")}


def test_no_byte_is_lost(tmp_path):
    raw = bytes(range(256)).replace(b"\n", b"")
    path = tmp_path / "quarantine.jsonl"
    kept = Quarantine(path)
    kept.add("no text", text=raw.decode("utf-8", "surrogateescape"))
    kept.add("bytes", values={"b": raw, "n": float("nan"), "i": [float("inf")], "t": "\\udce9 Ü"})
    first, second = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    assert first["text"].encode("utf-8", "surrogateescape") == raw
    assert second["values"]["b"].encode("utf-8", "surrogateescape") == raw
    assert (second["values"]["n"], second["values"]["i"], second["values"]["t"]) == (None, ["inf"], "\\udce9 Ü")
    kept.add("long", text="x" * (quarantine.TEXT_KEPT + 1))
    long = json.loads(path.read_text(encoding="utf-8").splitlines()[-1])
    assert (len(long["text"]), long["cut_from"]) == (quarantine.TEXT_KEPT, quarantine.TEXT_KEPT + 1)


# Another source.


def test_a_model_goes_on_with_a_new_source_as_if_it_came_after_the_first(tmp_path):
    rng = np.random.default_rng(0)
    tables = [pa.table({"x": (x := rng.normal(size=150)), "y": 2 * x}) for _ in range(2)]
    files = [tmp_path / "monday.csv", tmp_path / "tuesday.csv"]
    for file, table in zip(files, tables, strict=True):
        pa.csv.write_csv(table, file)
    with run_of(MemorySource(pa.concat_tables(tables)), tmp_path / "one", options()) as run:
        list(run.reports())
    with run_of(FileSource(files[0]), tmp_path / "two", options()) as run:
        list(run.reports())
    with pytest.raises(ForeignPosition, match=r"the position is in .*monday\.csv, which is not among the files"):
        FileSource(files[1]).read(read_latest(tmp_path / "two").position)
    with run_of(MemorySource(tables[1].slice(0, 0)), tmp_path / "two", options(), resume=True, new_source=True) as run:
        list(run.reports())  # there was nothing in it: the run stands where it stood
    with run_of(FileSource(files[0]), tmp_path / "two", options(), resume=True) as run:
        list(run.reports())
        assert run.rows == 150
    with run_of(FileSource(files[1]), tmp_path / "two", options(), resume=True, new_source=True) as run:
        for _ in run.reports():
            run.stop()
    with run_of(FileSource(files[1]), tmp_path / "two", options(), resume=True) as run:
        list(run.reports())
    one, two = read_latest(tmp_path / "one"), read_latest(tmp_path / "two")
    assert same_state(one.model, two.model)
    assert (one.rows, one.state["rows_read"]) == (two.rows, two.state["rows_read"]) == (300, 300)
    assert [m.value for m in one.state["book"].running] == [m.value for m in two.state["book"].running]
