"""Runs killed by ``kill_driver.py`` on their way, beside runs that were not: for files, Redis and Kafka."""

import json
import re
import subprocess
import sys
from pathlib import Path

from prediction_parts import read_parts

from streamboost.persistence.checkpoints import read_latest
from streamboost.persistence.object_graph import same_state

DRIVER = Path(__file__).parent / "kill_driver.py"
SMALL = ["--option", "n_estimators=4", "--option", "max_depth=3", "--option", "memory=[64,256]"]
OFTEN = ["--checkpoint-every", "1000", "--every", "500"]


def killed(seed, words, most=2, *, small=""):
    """Run a command to its end, killed on the way; return how often. What is ``small`` tells ``kill_driver.py``."""
    command = [sys.executable, str(DRIVER), str(seed), str(most), small, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
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
        [{**json.loads(line), "time": None} for line in (where / "m" / "quarantine.jsonl").read_text().splitlines()]
        for where in (one, other)
        if (where / "m" / "quarantine.jsonl").exists()
    ]
    assert quarantines == 2 * quarantines[:1]
