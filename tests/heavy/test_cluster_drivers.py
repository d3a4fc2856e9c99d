"""Runs of keyed models on Ray, their drivers and their workers killed at random points: as one that never was.

Run as a program, ``test_cluster_drivers.py FOLDER ADDRESS``, this file is the driver that the tests kill: the command
``streamboost run``. It pauses before a checkpoint is saved, when it is saved, and when the workers have heard of it.
"""

import json
import random
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
from prediction_parts import read_parts  # noqa: E402
from ray_nodes import Driver, are_gone, kill, local_ray, pause  # noqa: E402, F401 - a fixture

from streamboost.cli import main  # noqa: E402
from streamboost.cluster import KeyedBooster, small_regressor  # noqa: E402
from streamboost.persistence.checkpoints import read_latest  # noqa: E402
from streamboost.persistence.object_graph import same_state  # noqa: E402
from streamboost.runs.run import Run  # noqa: E402

ROWS, CHUNK = 14_000, 1000  # a checkpoint after every chunk, and one before the first
BAD = 2711
OPTIONS = {"n_estimators": 4, "max_depth": 3, "memory": 128}
DRIVER_KILLS = 3


def write_rows(file):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, 3))
    store = rng.integers(0, 12, ROWS)
    y = X[:, 0] * X[:, 1] + np.sin(3 * X[:, 2]) + store / 4 + 0.1 * rng.normal(size=ROWS)
    y[::BAD] = np.nan
    pq.write_table(pa.table({**{f"x{j}": X[:, j] for j in range(3)}, "store": store, "y": y}), file)


# The driver.


def go(folder, address=None):
    """Run the whole file, or go on with it: on Ray, or in this process."""
    words = ["run", str(folder.parent / "rows.parquet"), "--target", "y", "--task", "regression", "--resume"]
    words += ["--model", str(folder / "m"), "--predictions", str(folder / "said.parquet")]
    words += ["--checkpoint-every", "500", "--every", "5000", "--json", "-q", "--workers", "2", "--key", "store"]
    words += [word for name, value in OPTIONS.items() for word in ("--option", f"{name}={value}")]
    return main(words + (["--ray", address] if address else []))


def be_the_driver(folder, address):
    checkpoint = Run.checkpoint

    def checkpoint_with_pauses(run):
        store_save = run.store.save

        def save_and_pause(found):
            pause("unsaved", *pids_of(run.model))
            path = store_save(found)
            pause("unconfirmed", *pids_of(run.model))
            return path

        run.store.save = save_and_pause
        checkpoint(run)
        run.store.save = store_save
        pause("confirmed", *pids_of(run.model))

    Run.checkpoint = checkpoint_with_pauses
    return go(Path(folder), address)


def pids_of(model):
    return [worker["pid"] for worker in model._crew.metrics()]


# Those who kill it.


def kill_on_the_way(driver, dice):
    """Lead a driver through some checkpoints, kill a worker, and then the driver; return the processes killed."""
    for _ in range(dice.randrange(4, 8)):
        driver.step()
        driver.let_on()
    *_, victim = driver.step()  # there are workers by now: the third checkpoint is under way, or the second saved
    driver.let_on()
    time.sleep(dice.uniform(0, 0.2))
    assert kill(int(victim))
    for _ in range(dice.randrange(1, 3)):  # it goes on without that worker
        pids = driver.step()[1:]
        driver.let_on()
    is_at_a_pause = dice.random() < 0.5
    if is_at_a_pause:
        pids = driver.step()[1:]  # and there it stays
    else:
        time.sleep(dice.uniform(0, 0.3))
    driver.kill()
    return [int(pid) for pid in (victim, *pids)]


def states(folder):
    """What is left at the end, brought home to this process."""
    cut = read_latest(folder / "m").model
    options = {"workers": 2, "engine": "local", "directory": folder / "m" / "cluster"}
    template = small_regressor(**{"new_columns": "grow", "random_state": 0} | OPTIONS)
    with KeyedBooster("store", template, **options) as model:
        model.attach(cut)
        return {key: (model.key_rows(key), model.model_of(key)) for key in model.keys()}  # noqa: SIM118


def quarantined(folder):
    return [{**json.loads(line), "time": None} for line in (folder / "m" / "quarantine.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def stream(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    write_rows(folder / "rows.parquet")
    return folder


def test_a_run_whose_drivers_and_workers_are_killed_is_the_same_as_one_never_killed(local_ray, stream):  # noqa: F811
    straight, killed = stream / "straight", stream / "killed"
    straight.mkdir()
    killed.mkdir()
    assert go(straight) == 0

    dice, dead = random.Random("keyed"), []
    command = [sys.executable, __file__, str(killed), local_ray]
    for _ in range(DRIVER_KILLS):
        with Driver(command) as driver:
            dead += kill_on_the_way(driver, dice)
        assert read_latest(killed / "m").rows < ROWS - CHUNK
    with Driver(command) as driver:
        dead.append(int(driver.step()[-1]))
        assert kill(dead[-1])
        *pauses, summary = driver.to_its_end().splitlines()
    assert driver.returncode == 0
    assert json.loads(summary)["rows"] == ROWS - len(range(0, ROWS, BAD))
    assert {line.split()[0] for line in pauses} == {"unsaved", "unconfirmed", "confirmed"}  # and nothing of Ray's
    assert are_gone(dead)

    once, again = read_latest(straight / "m"), read_latest(killed / "m")
    n_good = ROWS - len(range(0, ROWS, BAD))
    assert once.rows == again.rows == n_good
    assert [m.value for m in once.state["book"].running] == [m.value for m in again.state["book"].running]
    assert read_parts(straight / "said.parquet") == read_parts(killed / "said.parquet")
    said = read_parts(killed / "said.parquet")["row"].to_pylist()
    assert said == [row for row in range(ROWS) if row % BAD]
    assert quarantined(straight) == quarantined(killed)
    assert len(quarantined(killed)) == ROWS - n_good
    one, other = states(straight), states(killed)
    assert same_state(one, other)
    assert sum(n for n, _ in other.values()) == n_good


if __name__ == "__main__":
    sys.exit(be_the_driver(*sys.argv[1:]))
