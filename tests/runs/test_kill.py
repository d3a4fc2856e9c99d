"""Killed at random moments and resumed, a run comes to the same end as one that was never killed."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from killed_runs import OFTEN, SMALL, check_same, killed
from small_tiles import shrink

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
    shrink(monkeypatch.setattr)
    file = tmp_path / "rows.parquet"
    pq.write_table(rows(2000 * kills), file)

    def words(where):
        (tmp_path / where).mkdir()
        return ["run", str(file), "--target", "y", "--model", str(tmp_path / where / "m"), "--predictions",
                str(tmp_path / where / "said.parquet"), "--json", "-q", *OFTEN, *SMALL]  # fmt: skip

    assert main(words("straight")) == 0
    assert killed(7, [*words("killed"), "--resume"], most=3, has_small_tiles=True) >= kills
    check_same(tmp_path / "straight", tmp_path / "killed", "parquet")
    for where in ("straight", "killed"):
        directory = tmp_path / where / "m"
        needed = {name for path in checkpoint_paths(directory) for name in segments_of(path)}
        assert needed == {path.name for path in (directory / "segments").iterdir()}


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
