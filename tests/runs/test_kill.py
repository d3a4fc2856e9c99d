"""Killed at random moments and resumed, a run comes to the same end as one that was never killed."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import small_chunks
import small_growth
import small_tiles
from killed_runs import OFTEN, SMALL, check_same, killed

from streamboost.cli import main
from streamboost.persistence.checkpoints import checkpoint_paths, read_latest
from streamboost.persistence.snapshots import segments_of


def rows(n):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(n, 4))
    y = X[:, 0] * X[:, 1] + np.sin(3 * X[:, 2]) + 0.1 * rng.normal(size=n)
    y[::997] = np.nan
    return pa.table({**{f"x{j}": X[:, j] for j in range(4)}, "y": y})


@pytest.mark.slow
@pytest.mark.parametrize(("ending", "predictions"), [("parquet", "parquet"), ("csv", "csv"), ("jsonl", "parquet")])
def test_a_run_over_files_killed_many_times_is_the_same_as_one_never_killed(
    ending, predictions, kills, tmp_path, capsys
):
    table = rows(2000 * kills)
    file = tmp_path / f"rows.{ending}"
    if ending == "parquet":
        pq.write_table(table, file, row_group_size=1700)
    elif ending == "csv":
        pa.csv.write_csv(table, file)
        lines = file.read_text().splitlines()
        lines[4321] += ",one,too,many"
        file.write_text("\n".join(lines) + "\n")
    else:
        file.write_text("".join(json.dumps(row).replace("NaN", "null") + "\n" for row in table.to_pylist()))

    def words(where):
        said = str(tmp_path / where / f"said.{predictions}")
        (tmp_path / where).mkdir()
        return ["run", str(file), "--target", "y", "--task", "regression", "--model", str(tmp_path / where / "m"),
                "--predictions", said, "--json", "-q", *OFTEN, *SMALL]  # fmt: skip

    assert main(words("straight")) == 0
    assert killed(len(ending), [*words("killed"), "--resume"], most=3) >= kills
    check_same(tmp_path / "straight", tmp_path / "killed", predictions)
    n_bad = len(range(0, len(table), 997)) + (ending == "csv")
    assert read_latest(tmp_path / "killed" / "m").rows == len(table) - n_bad


@pytest.mark.slow
def test_a_run_whose_checkpoints_have_segments_killed_many_times_is_the_same(kills, tmp_path, capsys, monkeypatch):
    small_tiles.shrink(monkeypatch.setattr)
    file = tmp_path / "rows.parquet"
    pq.write_table(rows(2000 * kills), file)

    def words(where):
        (tmp_path / where).mkdir()
        return ["run", str(file), "--target", "y", "--model", str(tmp_path / where / "m"), "--predictions",
                str(tmp_path / where / "said.parquet"), "--json", "-q", *OFTEN, *SMALL]  # fmt: skip

    assert main(words("straight")) == 0
    assert killed(7, [*words("killed"), "--resume"], most=3, small="tiles") >= kills
    check_same(tmp_path / "straight", tmp_path / "killed", "parquet")
    for where in ("straight", "killed"):
        check_segments(tmp_path / where / "m")


def check_segments(directory):
    """Several are there, and none for nothing."""
    needed = {name for path in checkpoint_paths(directory) for name in segments_of(path)}
    assert needed == {path.name for path in (directory / "segments").iterdir()}
    assert len(needed) > 3


def changing_rows(n):
    """Rows of two classes, to which a column comes, then a third class; later what is right is wrong, for a while."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(n, 3))
    score = X[:, 0] + np.sin(3 * X[:, 1]) + 0.1 * rng.normal(size=n)
    label = np.where(score > 0, "high", "low").astype(object)
    label[(score > 1) & (np.arange(n) > 1300)] = "top"
    turned = (np.arange(n) > 1700) & (np.arange(n) < 2400)
    label[turned] = np.where(score[turned] > 0, "low", "high")
    for t in range(n):
        yield {"a": X[t, 0], "b": X[t, 1], **({"c": X[t, 2]} if t > 1000 else {}), "label": label[t]}


@pytest.mark.slow
def test_a_run_whose_memory_grows_killed_many_times_is_the_same(kills, tmp_path, capsys, monkeypatch):
    """Room is made for the rows held, their ring closes, a column and a class come, and the memory is dropped."""
    for small in (small_tiles, small_growth, small_chunks):
        small.shrink(monkeypatch.setattr)
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in changing_rows(max(4000, 600 * kills))))

    def words(where):
        (tmp_path / where).mkdir()
        return ["run", str(file), "--target", "label", "--model", str(tmp_path / where / "m"), "--predictions",
                str(tmp_path / where / "said.parquet"), "--json", "-q", "--checkpoint-every", "200", "--every", "50",
                "--option", "n_estimators=4", "--option", "max_depth=3"]  # fmt: skip

    assert main(words("straight")) == 0
    assert killed(8, [*words("killed"), "--resume"], most=3, small="tiles,growth,chunks") >= kills
    check_same(tmp_path / "straight", tmp_path / "killed", "parquet")
    for where in ("straight", "killed"):
        check_segments(tmp_path / where / "m")
    events = [(event.kind, event.detail) for event in read_latest(tmp_path / "killed" / "m").model.events_]
    kinds = [kind for kind, _ in events]
    assert ("new column", "c") in events
    assert ("new class", "top") in events
    assert kinds.count("memory grown") > 1
    assert kinds.index("memory grown") < kinds.index("new column") < kinds.index("memory shrunk")


@pytest.mark.parametrize("damage", ["missing", "flipped"])
def test_a_run_whose_newest_segment_is_damaged_goes_on_from_the_checkpoint_before(
    damage, tmp_path, capsys, monkeypatch
):
    for small in (small_tiles, small_growth, small_chunks):
        small.shrink(monkeypatch.setattr)
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in changing_rows(1700)))

    def run(where, *more):
        words = ["run", str(file), "--target", "label", "--model", str(tmp_path / where / "m"), "--predictions"]
        few = ["--option", "n_estimators=4", "--option", "max_depth=3", "--checkpoint-every", "500", "--json"]
        return main([*words, str(tmp_path / where / "said.parquet"), *few, *more])

    for where in ("straight", "damaged"):
        (tmp_path / where).mkdir()
    assert run("straight") == 0
    assert run("damaged", "--max-rows", "1400") == 0
    older, newer = checkpoint_paths(tmp_path / "damaged" / "m")
    victim = tmp_path / "damaged" / "m" / "segments" / min(segments_of(newer) - segments_of(older))
    if damage == "missing":
        victim.unlink()
    else:
        data = victim.read_bytes()
        victim.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    capsys.readouterr()
    assert run("damaged", "--resume") == 0
    assert victim.name in "".join(capsys.readouterr().err.split())
    assert newer.with_suffix(".damaged").exists()
    check_same(tmp_path / "straight", tmp_path / "damaged", "parquet")
    check_segments(tmp_path / "damaged" / "m")


@pytest.mark.slow
@pytest.mark.parametrize("task", ["regression", "classification"])
def test_a_run_after_a_history_killed_many_times_is_the_same_as_one_never_killed(task, kills, tmp_path, capsys):
    n, table = 1500, rows(1500 + 1000 * kills)
    if task == "classification":
        y = table["y"].to_numpy()
        table = table.set_column(4, "y", pa.array(np.where(y > 0, "high", "low"), mask=np.isnan(y)))
    for k in range(3):
        pq.write_table(table.slice(500 * k, 500), tmp_path / f"history-{k}.parquet")
    pq.write_table(table.slice(n), tmp_path / "live.parquet")

    def words(where):
        (tmp_path / where).mkdir()
        small = ["--option", "n_estimators=4", "--option", "max_depth=3"]  # and memory="grow", which sweeps
        return ["run", str(tmp_path / "history-*.parquet"), "--then", str(tmp_path / "live.parquet"), "--target", "y",
                "--task", task, "--model", str(tmp_path / where / "m"), "--predictions",
                str(tmp_path / where / "said.parquet"), "--json", "-q", *OFTEN, *small]  # fmt: skip

    assert main(words("straight")) == 0
    assert killed(len(task), [*words("killed"), "--resume"], most=2) >= kills
    check_same(tmp_path / "straight", tmp_path / "killed", "parquet")
    found = read_latest(tmp_path / "killed" / "m")
    assert found.state["history"]["is_fitted"]
    assert "history studied" in [event.kind for event in found.model.events_]
