"""One model per key on a cluster of two nodes: the same as in one process, whoever is killed on the way."""

import sys
import textwrap

import numpy as np
import pyarrow as pa
import pytest
from ray_nodes import Driver, Murderer, no_worker_is_hopeless, two_nodes  # noqa: F401 - fixtures

from streamboost.cluster import KeyedBooster
from streamboost.cluster.hashing import token_of
from streamboost.cluster.key_models import small_classifier, small_regressor
from streamboost.persistence import snapshots
from streamboost.persistence.checkpoints import CheckpointStore, read_latest

CHUNK = 100


def rows(number):
    """A chunk of the stream, always the same; some keys are seen often, some hardly ever."""
    rng = np.random.default_rng(number)
    keys = np.minimum(rng.geometric(0.05, CHUNK), 60)
    a, city = rng.uniform(size=CHUNK), rng.choice(["p", "q"], CHUNK)
    y = np.sin(6 * a) * (1 + keys % 3) + (city == "q") + rng.normal(size=CHUNK) / 10
    return pa.table({"key": [f"k{i}" if i % 2 else f"store {i}" for i in keys], "a": a, "city": city}), y


def states(booster):
    known = booster.keys()
    return {token_of(key): (booster.key_rows(key), snapshots.pack(booster.model_of(key))) for key in known}


def alone(n_chunks, **options):
    """What it comes to in one process, undisturbed."""
    with KeyedBooster("key", **options) as booster:
        said = [booster.learn(*rows(number)) for number in range(n_chunks)]
        return np.concatenate(said), states(booster)


@pytest.mark.parametrize("kind", ["prior", "classes"])
def test_on_ray_every_key_is_as_in_one_process(two_nodes, tmp_path, kind):  # noqa: F811
    X, y = rows(1000)
    options = {
        "prior": {"prior": small_regressor().fit(X.drop_columns(["key"]), y), "hot": 20},
        "classes": {"model": small_classifier(n_estimators=5)},
    }[kind]
    found = []
    for where in ({"workers": 2, "address": two_nodes.address, "directory": tmp_path}, {}):
        with KeyedBooster("key", **options, **where) as booster:
            said = []
            for number in range(6):
                X, y = rows(number)
                labels = np.where(y > 1, "up", np.where(y < 0, "down", "flat"))
                said.append(booster.learn(X, labels if kind == "classes" else y).tolist())
            said.append(booster.predict(rows(50)[0]).tolist())
            if kind == "classes":
                said.append([booster.classes_.tolist(), booster.predict_proba(rows(50)[0]).tolist()])
            with pytest.raises(ValueError, match="row 3 has no key"):
                booster.predict(pa.table({"key": ["a", "b", "c", None], "a": [0.0] * 4, "city": ["p"] * 4}))
            bad = pa.table({"key": ["k1", "store 2"], "a": [1.0, np.inf], "city": ["p"] * 2})
            with pytest.raises(ValueError, match=r"row 1: .*column 'a' is inf"):
                booster.learn(bad, ["up"] * 2 if kind == "classes" else [1.0] * 2)
            found.append((said, states(booster), booster.n_keys))
            metrics = booster.metrics()
            assert len({worker["pid"] for worker in metrics}) == len(metrics)
            assert sum(worker["rows"] for worker in metrics) == 6 * CHUNK
    assert found[0] == found[1]


@pytest.mark.usefixtures("no_worker_is_hopeless")
def test_workers_killed_at_random_moments_change_nothing(two_nodes, kills, tmp_path):  # noqa: F811
    options = {"model": small_regressor(n_estimators=5), "hot": 8}
    with KeyedBooster(
        "key",
        **options,
        workers=2,
        address=two_nodes.address,
        directory=tmp_path,
        cut_every=7,
        resources={"num_cpus": 0.5},
    ) as booster:
        murderer, said, number = Murderer(booster._crew, 0), [], 0
        with murderer.at_work(kills, within=0.5) as killing:
            while number < 3 * kills or killing.is_alive():
                said.append(booster.learn(*rows(number)))
                number += 1
        assert len(murderer.killed) == kills
        assert sum(worker["restarts"] for worker in booster.metrics()) >= kills
        found = states(booster)
    expected_said, expected = alone(number, **options)
    assert np.concatenate(said).tolist() == expected_said.tolist()
    assert found == expected
    assert sum(n_rows for n_rows, _ in found.values()) == number * CHUNK


DRIVER = """
    import sys
    from ray_nodes import pause
    from test_cluster_keyed_ray import CHUNK, rows
    from streamboost.persistence.checkpoints import Checkpoint, CheckpointStore
    from streamboost.cluster import KeyedBooster
    from streamboost.cluster.key_models import small_regressor

    directory, address, n_chunks = sys.argv[1], sys.argv[2], int(sys.argv[3])
    options = {"workers": 2, "address": address, "hot": 8, "resources": {"num_cpus": 0.5}}
    with CheckpointStore(directory) as store, KeyedBooster(
        "key", small_regressor(n_estimators=5), directory=directory + "/keys", **options
    ) as booster:
        found = store.latest()
        if found is not None:
            booster.attach(found.model)
        for number in range(0 if found is None else found.position, n_chunks):
            booster.learn(*rows(number))
            if number % 3 == 2 or number == n_chunks - 1:
                cut = booster.detach()
                store.save(Checkpoint(cut, position=number + 1, rows=CHUNK * (number + 1)))
                booster.confirm(cut)
            pause(number)
"""


def test_a_driver_killed_three_times_goes_on_from_its_last_checkpoint(two_nodes, tmp_path):  # noqa: F811
    n_chunks = 12
    directory = str(tmp_path / "model")
    command = [sys.executable, "-c", textwrap.dedent(DRIVER), directory, two_nodes.address, str(n_chunks)]
    for last in (3, 6, 9):
        with Driver(command, cwd=tmp_path) as driver:
            while int(driver.step()[0]) < last:
                driver.let_on()
            driver.let_on(2)  # whether it comes that far or not
            driver.kill()
        assert read_latest(directory).position < n_chunks
    with Driver(command, cwd=tmp_path) as driver:
        driver.to_its_end()
    assert driver.returncode == 0
    cut = read_latest(directory).model
    with CheckpointStore(directory) as store:
        assert store.latest().position == n_chunks
    options = {"model": small_regressor(n_estimators=5), "hot": 8}
    with KeyedBooster("key", **options, directory=directory + "/keys") as booster:  # of two workers to none but us
        booster.attach(cut)
        assert states(booster) == alone(n_chunks, **options)[1]
