"""Killed at random moments and resumed, a run comes to the same end as one that was never killed."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from prediction_parts import read_parts

from streamboost.cli import main
from streamboost.persistence.checkpoints import read_latest
from streamboost.persistence.object_graph import same_state

DRIVER = Path(__file__).parents[1] / "kill_driver.py"
SMALL = ["--option", "n_estimators=4", "--option", "max_depth=3", "--option", "memory=[64,256]"]
OFTEN = ["--checkpoint-every", "1000", "--every", "500"]


def killed(seed, words, most=2):
    """Run a command to its end, killed on the way; return how often."""
    done = subprocess.run(
        [sys.executable, str(DRIVER), str(seed), str(most), *words], capture_output=True, text=True, timeout=1200
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return int(re.search(r"kills: (\d+)", done.stdout)[1])


def check_same(one: Path, other: Path, ending: str) -> None:
    """Models bit for bit, every row counted once, predictions and quarantine without gaps or doubles."""
    straight, resumed = read_latest(one / "m"), read_latest(other / "m")
    assert same_state(straight.model, resumed.model)
    assert straight.rows == resumed.rows
    assert [m.value for m in straight.state["book"].running] == [m.value for m in resumed.state["book"].running]
    said = read_parts(one / f"said.{ending}")
    assert said == read_parts(other / f"said.{ending}")
    assert said["row"].to_pylist() == sorted(set(said["row"].to_pylist()))
    assert len(said) == resumed.rows
    quarantines = [
        [json.loads(line)["text"] for line in (where / "m" / "quarantine.jsonl").read_text().splitlines()]
        for where in (one, other)
        if (where / "m" / "quarantine.jsonl").exists()
    ]
    assert quarantines in ([], [quarantines[0]] * 2)


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
