"""One stream learned by several Ray actors: as by shards in one process, whoever is killed on the way."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from brokers import SILENT, kafka_mock  # noqa: F401 - a fixture
from numpy.testing import assert_array_equal
from ray_nodes import Murderer, local_ray, no_worker_is_hopeless, two_nodes  # noqa: F401 - fixtures

from streamboost import SGBClassifier, SGBRegressor
from streamboost.cluster import ShardedBooster
from streamboost.datasets import friedman
from streamboost.states import same_state

SMALL = {"n_estimators": 6, "max_depth": 3, "memory": (512,), "random_state": 0}
ROWS, CHUNK = 3000, 50
KILLS = 10


def stream(kind, n=ROWS):
    made = friedman(n, seed=0)
    return made.X, made.y if kind == "numbers" else np.array(["low", "middle", "high"])[
        np.digitize(made.y, [11.0, 17.0])
    ]


def template(kind):
    return SGBRegressor(**SMALL) if kind == "numbers" else SGBClassifier(**SMALL)


def feed(model, X, y):
    return np.concatenate([model.learn(X[a : a + CHUNK], y[a : a + CHUNK]) for a in range(0, len(X), CHUNK)])


def state_of(model):
    return [model.shard(k) for k in range(model.n_shards)], model.shard_losses_, model.weights_, model.n_rows


def assert_same(ours, theirs):
    assert same_state(ours[0], theirs[0])
    for one, other in zip(ours[1:], theirs[1:], strict=True):
        assert_array_equal(one, other)


def alone(kind, workers=2, n=ROWS):
    """What it comes to in one process, undisturbed."""
    with ShardedBooster(template(kind), workers=workers, engine="local") as model:
        return feed(model, *stream(kind, n)), state_of(model)


def on_ray(address, tmp_path, kind="numbers", workers=2, **options):
    options = {"cut_every": 9, "resources": {"num_cpus": 0.5}, **options}
    return ShardedBooster(template(kind), workers=workers, address=address, directory=tmp_path, **options)


@pytest.mark.parametrize("kind", ["numbers", "classes"])
def test_shards_on_ray_are_those_in_one_process(local_ray, tmp_path, kind):  # noqa: F811
    said, state = alone(kind, 3, 1500)
    X, y = stream(kind, 1500)
    with on_ray(local_ray, tmp_path, kind, 3) as model:
        assert_array_equal(feed(model, X, y), said)
        assert_same(state_of(model), state)
        assert len({worker["pid"] for worker in model.metrics()}) == 3
        with pytest.raises(ValueError, match="infinity"):
            model.learn(np.full((4, X.shape[1]), np.inf), y[:4])
        assert_same(state_of(model), state)


def test_shards_on_two_nodes_are_those_in_one_process(two_nodes, tmp_path):  # noqa: F811
    said, state = alone("numbers", n=1000)
    with on_ray(two_nodes.address, tmp_path, resources={"num_cpus": 3}) as model:
        assert_array_equal(feed(model, *stream("numbers", 1000)), said)
        assert_same(state_of(model), state)


@pytest.mark.usefixtures("no_worker_is_hopeless")
def test_ten_actors_killed_at_random_moments_change_nothing(local_ray, tmp_path):  # noqa: F811
    said, state = alone("classes")
    X, y = stream("classes")
    starts = range(0, ROWS, CHUNK)
    when = set(np.random.default_rng(5).choice(np.arange(1, len(starts)), KILLS, replace=False).tolist())
    with on_ray(local_ray, tmp_path, "classes") as model:
        murderer, heard = Murderer(model.crew, 6), []
        for number, start in enumerate(starts):
            thread = murderer.soon(within=0.03) if number in when else None
            heard.append(model.learn(X[start : start + CHUNK], y[start : start + CHUNK]))
            if thread is not None:
                thread.join()
        assert_same(state_of(model), state)
        assert sum(worker["restarts"] for worker in model.metrics()) >= len(murderer.killed) == KILLS
        assert sum(worker["rows"] for worker in model.metrics()) == ROWS
    assert_array_equal(np.concatenate(heard), said)


@pytest.mark.usefixtures("no_worker_is_hopeless")
def test_sources_are_read_once_whoever_is_killed(local_ray, tmp_path):  # noqa: F811
    paths, singles = [], []
    for k in range(2):
        made = friedman(20_000, seed=k)
        table = pa.table([*made.X.T, made.y], names=[*made.names, "y"])
        paths.append(str(tmp_path / f"part-{k}.parquet"))
        pq.write_table(table, paths[-1])
        singles.append(SGBRegressor(**SMALL).fit(table.drop_columns(["y"]), made.y))
    with on_ray(local_ray, tmp_path / "cuts", cut_every=3) as model:
        murderer, reports, threads = Murderer(model.crew, 7), [], []
        for report in model.learn_from(paths, "y", every=1000, chunk=500):
            reports.append(report)
            for thread in threads:
                thread.join()
            threads = [murderer.soon(within=0.05)] if len(reports) % 7 == 3 and len(murderer.killed) < 5 else []
        for thread in threads:
            thread.join()
        assert len(murderer.killed) == 5
        assert model.n_rows == 40_000
        for k in range(2):
            assert same_state(model.shard(k), singles[k])
            assert [report.rows for report in reports if report.shard == k] == [*range(1000, 20_001, 1000), 20_000]


def test_a_driver_that_is_gone_is_taken_over_from(local_ray, tmp_path):  # noqa: F811
    said, state = alone("numbers")
    X, y = stream("numbers")
    with on_ray(local_ray, tmp_path) as first:
        heard = [feed(first, X[:1500], y[:1500])]
        cut = first.detach()
        feed(first, X[:200], y[:200])
    with on_ray(local_ray, tmp_path) as second:
        second.attach(cut)
        heard.append(feed(second, X[1500:], y[1500:]))
        assert_same(state_of(second), state)
    assert_array_equal(np.concatenate(heard), said)


def test_every_shard_reads_its_own_partitions_of_a_topic(kafka_mock, local_ray, tmp_path):  # noqa: F811
    kafka = pytest.importorskip("confluent_kafka")
    producer = kafka.Producer({"bootstrap.servers": kafka_mock}, logger=SILENT)
    singles = []
    for k in range(2):
        made = friedman(1000, seed=k)
        table = pa.table([*made.X.T, made.y], names=[*made.names, "y"])
        for row in table.to_pylist():
            producer.produce("rows", json.dumps(row), partition=k)
        singles.append(SGBRegressor(**SMALL).fit(table.drop_columns(["y"]), made.y))
    assert producer.flush(180) == 0
    sources = [{"where": f"kafka://{kafka_mock}/rows", "partitions": [k]} for k in range(2)]
    with on_ray(local_ray, tmp_path, workers=2) as first:
        reports = first.learn_from(sources, "y", every=200, chunk=100)
        next(reports)
        cut = first.detach()
        next(reports)  # of this nothing is to be left
    with on_ray(local_ray, tmp_path, workers=2) as second:
        second.attach(cut)
        assert 200 <= second.n_rows < 2000
        last = {report.shard: report for report in second.learn_from(sources, "y", every=200, chunk=100)}
        assert [last[k].rows for k in range(2)] == [1000, 1000]
        for k in range(2):
            assert same_state(second.shard(k), singles[k])
