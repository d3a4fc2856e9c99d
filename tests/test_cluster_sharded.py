"""One stream, several models: shares, votes, classes, sources of their own, checkpoints."""

import copy

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge

from streamboost import SGBClassifier, SGBRegressor
from streamboost.checkpoints import Checkpoint, CheckpointStore
from streamboost.cluster import hashing
from streamboost.cluster.crew import LocalCrew
from streamboost.cluster.shard_worker import ShardWorker
from streamboost.cluster.sharded import ShardedBooster
from streamboost.cluster.voting import learn_chunk
from streamboost.contenders import gives_probabilities, task_of
from streamboost.datasets import friedman
from streamboost.hedge import Hedge
from streamboost.losses import Absolute, Hinge, Logistic, Poisson, Softmax, Squared
from streamboost.prequential import run
from streamboost.running import Options, Run
from streamboost.sources import open_source
from streamboost.stacks import ConvStack
from streamboost.states import same_state

SMALL = {"n_estimators": 6, "max_depth": 3, "memory": (512,), "random_state": 0}


def sharded(model=None, workers=2, **options):
    return ShardedBooster(SGBRegressor(**SMALL) if model is None else model, workers=workers, engine="local", **options)


def numbers(n=600, seed=0):
    made = friedman(n, seed=seed)
    return made.X, made.y


def labels(n=600, seed=0):
    X, y = numbers(n, seed)
    return X, np.array(["low", "middle", "high"])[np.digitize(y, np.quantile(y, [0.3, 0.7]))]


def feed(model, X, y, size=50, **options):
    return np.concatenate([model.learn(X[a : a + size], y[a : a + size], **options) for a in range(0, len(X), size)])


# Who learns what.


def test_one_shard_fed_row_by_row_is_the_single_model():
    X, y = numbers(300)
    single = SGBRegressor(**SMALL)
    with sharded(workers=1) as model:
        assert_allclose(feed(model, X, y, 1), feed(single, X, y, 1), rtol=1e-12)
        assert same_state(model.shard(0), single)
        assert_array_equal(model.predict(X), single.predict(X))


@pytest.mark.parametrize("split", ["turns", "chunks"])
def test_every_shard_is_a_single_model_of_its_own_rows(split):
    X, y = numbers()
    chunk, row = np.arange(600) // 50, np.arange(600)
    with sharded(workers=3, split=split) as model:
        feed(model, X, y)
        for shard in range(3):
            own = (row if split == "turns" else chunk) % 3 == shard
            assert same_state(model.shard(shard), SGBRegressor(**SMALL).fit(X[own], y[own]))
        assert model.n_rows == 600


def test_turns_go_on_where_the_last_chunk_ended():
    X, y = numbers(100)
    with sharded(workers=3) as whole, sharded(workers=3) as parts:
        feed(whole, X, y, 100)
        feed(parts, X, y, 7)
        for shard in range(3):
            assert same_state(whole.shard(shard), parts.shard(shard))


@pytest.mark.parametrize("kind", [pa.table, pd.DataFrame, lambda columns: pd.DataFrame(columns).to_dict("records")])
def test_a_hash_sends_equal_values_to_the_same_shard(kind):
    X, y = numbers(200)
    city = np.random.default_rng(0).choice(["Bonn", "Graz", "Wien", "Rome"], 200)
    rows = kind({"city": city, **{f"x{j}": X[:, j] for j in range(3)}})
    with sharded(workers=3, split="hash:city") as model:
        model.learn(rows, y)
        homes = {name: hashing.worker_of(name, 3) for name in set(city)}
        assert len(set(homes.values())) > 1
        for shard in range(3):
            own = [row for row in range(200) if homes[city[row]] == shard]
            taken = SGBRegressor(**SMALL)
            if own:
                part = rows.take(own) if hasattr(rows, "take") and hasattr(rows, "num_rows") else None
                part = rows.iloc[own] if hasattr(rows, "iloc") else part
                taken.learn([rows[i] for i in own] if part is None else part, y[own])
            assert same_state(model.shard(shard), taken)


# What they say together.


LOSSES = {
    "squared_error": lambda y: y,
    "absolute_error": lambda y: y,
    "huber": lambda y: y,
    "quantile": lambda y: y,
    "poisson": lambda y: np.round(np.abs(y)),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_the_mean_of_scores_is_never_worse_than_the_shards_are_on_average(loss):
    X, y = numbers()
    y = LOSSES[loss](y)
    template = SGBRegressor(loss, **SMALL)
    with sharded(template, workers=3, readout="mean") as model:
        feed(model, X[:300], y[:300])
        shards = [model.shard(k) for k in range(3)]
        rule = shards[0].committee_.loss
        scores = np.stack([shard.committee_.score(X[300:]) for shard in shards])
        together = scores.mean(axis=0)
        assert_allclose(model.predict(X[300:]), rule.predict(together)[:, 0], rtol=1e-12)
        ours = rule.value(together, y[300:, None])
        theirs = np.mean([rule.value(score, y[300:, None]) for score in scores], axis=0)
        assert (ours <= theirs + 1e-9 * np.abs(theirs)).all()  # row by row
        assert ours.mean() < theirs.mean()


@pytest.mark.parametrize("loss", ["log_loss", "logistic", "hinge"])
def test_the_same_holds_for_classes(loss):
    X, y = labels()
    if loss != "log_loss":
        y = y == "high"
    with sharded(SGBClassifier(loss, **SMALL), workers=3, readout="mean") as model:
        feed(model, X[:300], y[:300])
        shards = [model.shard(k) for k in range(3)]
        scores = np.stack([shard._scores(X[300:]) for shard in shards])
        codes = np.array([model.classes_.tolist().index(label) for label in y[300:].tolist()], float)[:, None]
        rule = Softmax(n_classes=3) if loss == "log_loss" else shards[0].committee_.loss
        targets = codes if loss == "log_loss" else 2 * codes - 1
        assert [shard.classes_.tolist() for shard in shards] == [model.classes_.tolist()] * 3
        ours = rule.value(scores.mean(axis=0), targets)
        theirs = np.mean([rule.value(score, targets) for score in scores], axis=0)
        assert (ours <= theirs + 1e-9 * np.abs(theirs)).all()
        decided = model.decision_function(X[300:])
        expected = scores.mean(axis=0)
        assert_allclose(decided, expected if loss == "log_loss" else expected[:, 0], rtol=1e-12)


def test_a_shard_that_learned_nonsense_loses_its_say():
    X, y = numbers(1200, seed=1)
    errors = {}
    for readout in ("hedge", "mean"):
        with sharded(split="chunks", readout=readout) as model:
            model.learn(X[:200], y[:200])
            model.learn(X[200:400], 100 - 5 * y[200:400])
            model.learn(X[400:800], y[400:800])
            errors[readout] = np.mean((model.predict(X[800:]) - y[800:]) ** 2)
            assert (model.weights_[0] > 0.99) == (readout == "hedge")
            assert model.shard_losses_[0] < model.shard_losses_[1]
    assert errors["hedge"] < 0.2 * errors["mean"]


EXAMPLES = {
    "squared": (Squared(), st.floats(-3, 3)),
    "two": (Squared(n_outputs=2), st.floats(-3, 3)),
    "absolute": (Absolute(), st.floats(-3, 3)),
    "poisson": (Poisson(), st.integers(0, 5)),
    "logistic": (Logistic(), st.sampled_from([-1.0, 1.0])),
    "hinge": (Hinge(n_outputs=3), st.sampled_from([-1.0, 1.0])),
    "softmax": (Softmax(n_classes=3), st.integers(0, 2)),
}


@pytest.mark.parametrize("name", EXAMPLES)
@given(data=st.data())
@settings(max_examples=20, deadline=None)
def test_a_chunk_teaches_the_hedge_what_its_rows_would(name, data):
    loss, values = EXAMPLES[name]
    n = data.draw(st.integers(0, 12))
    scores = data.draw(arrays(float, (n, 3, loss.n_outputs), elements=st.floats(-5, 5)))
    y = data.draw(arrays(float, (n, loss.n_targets), elements=values.map(float)))
    weight = data.draw(arrays(float, n, elements=st.sampled_from([0.0, 0.5, 1.0, 2.0])))
    ours, theirs = (Hedge([(k, 0) for k in range(3)]) for _ in range(2))
    cut = data.draw(st.integers(0, n))
    for hedge in (ours, theirs):
        hedge.open(loss)
    for rows in (slice(0, cut), slice(cut, n)):
        learn_chunk(ours, scores[rows], y[rows], loss, weight[rows])
    for row in range(n):
        theirs.learn(scores[row], y[row], loss, float(weight[row]))
    for name in ("seen", "losses", "trust", "voices"):
        assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-9, atol=1e-12)


def test_shard_losses_are_those_of_the_latest_rows():
    X, y = numbers()
    with sharded(workers=2) as model:
        assert np.isnan(model.shard_losses_).all()
        feed(model, X[:300], y[:300])
        shards = [model.shard(k) for k in range(2)]
        before = copy.deepcopy((model._votes.lost, model._votes.seen))
        model.learn(X[300:400], y[300:400])
        for k, shard in enumerate(shards):
            lost = Squared().value(shard.predict(X[300:400])[:, None], y[300:400, None])
            fade = 0.5 ** (1 / 2000)
            total, seen = before[0][k], before[1][k]
            for one in lost:
                total, seen = fade * total + one, fade * seen + 1.0
            assert_allclose(model.shard_losses_[k], total / seen, rtol=1e-9)


def test_several_targets_and_weights_are_taken():
    X, y = numbers(300)
    both, weight = np.column_stack([y, -y]), np.where(np.arange(300) % 5 == 0, 0.0, 2.0)
    with sharded(workers=2) as model:
        said = model.learn(X[:200], both[:200], weight[:200])
        assert said.shape == (200, 2)
        assert same_state(model.shard(1), SGBRegressor(**SMALL).fit(X[1:200:2], both[1:200:2], weight[1:200:2]))
        assert model.learn(X[200:], both[200:]).shape == (100, 2)
        with pytest.raises(ValueError, match=r"targets have shape \(300, 1\), expected \(n, 2\)"):
            model.learn(X, y)


def test_the_first_rows_are_predicted_by_the_shard_that_learns_them():
    X, y = numbers(400)
    with sharded(workers=2) as model:
        first = model.learn(X, y)
        singles = [SGBRegressor(**SMALL) for _ in range(2)]
        expected = np.empty(400)
        for k in range(2):
            expected[k::2] = singles[k].learn(X[k::2], y[k::2])
        assert_array_equal(first, expected)
        later = model.learn(X, y)
        assert not np.array_equal(later, model.predict(X))  # it was made before


# Classes.


def test_classes_met_late_are_known_to_all_shards_from_their_next_rows_on():
    X, y = labels(700)
    late = np.where((y == "high") & (np.arange(700) < 300), "low", y)
    template = SGBClassifier(**SMALL)
    with sharded(template, workers=3) as model:
        first = feed(model, X[:300], late[:300], method="predict_proba")
        assert first.shape[1] == 2
        assert_allclose(first[50:].sum(axis=1), 1.0)
        model.learn(X[300:301], np.array(["high"]))  # one shard alone has seen it
        assert model.classes_.tolist() == ["low", "middle", "high"]
        assert [len(model.shard(k).classes_) for k in range(3)] == [3, 2, 2]
        said = model.predict_proba(X[301:])
        assert said.shape == (399, 3)
        assert_allclose(said.sum(axis=1), 1.0)
        assert (said[:, 2] > 0).all()  # the one that has seen it has a say
        feed(model, X[301:], late[301:])
        assert [model.shard(k).classes_.tolist() for k in range(3)] == [["low", "middle", "high"]] * 3
        assert np.mean(model.predict(X[301:]) == late[301:]) > 0.6


def test_a_class_that_no_shard_knew_has_probability_zero():
    X, y = labels(120)
    with sharded(SGBClassifier(**SMALL)) as model:
        model.learn(X[:100], np.where(y[:100] == "high", "low", y[:100]))
        said = model.learn(X[100:], np.where(np.arange(20) == 3, "high", "low"), method="predict_proba")
        assert said.shape == (20, 3)
        assert_array_equal(said[:, 2], 0.0)
        assert np.isfinite(model.shard_losses_).all()
        model.learn(X[:4], y[:4])


@pytest.mark.parametrize("readout", ["mean", "hedge"])
@pytest.mark.parametrize("loss", ["log_loss", "logistic", "hinge"])
def test_labels_and_probabilities_are_those_of_one_shard_if_there_is_one(loss, readout):
    X, y = labels(400)
    single = SGBClassifier(loss, **SMALL).partial_fit(X[:200], y[:200], classes=np.unique(y))
    with sharded(SGBClassifier(loss, **SMALL), workers=1, readout=readout) as model:
        model.learn(X[:200], y[:200])
        assert_array_equal(model.predict(X), single.predict(X))
        assert model.classes_.tolist() == single.classes_.tolist()
        if loss != "hinge":
            assert_allclose(model.predict_proba(X), single.predict_proba(X), rtol=1e-9, atol=1e-12)
        assert hasattr(model, "predict_proba") == (loss != "hinge")


# As others see it.


def test_loops_know_what_it_is_for():
    y = np.zeros(3)
    with sharded() as regressor, sharded(SGBClassifier()) as classifier, sharded(SGBClassifier("hinge")) as margins:
        assert [task_of(model, y) for model in (regressor, classifier)] == ["regression", "classification"]
        assert [gives_probabilities(model) for model in (regressor, classifier, margins)] == [False, True, False]
        with pytest.raises(NotFittedError):
            regressor.predict([[1.0]])


def test_prequential_takes_it():
    X, y = numbers(1000)
    with sharded() as model, sharded(SGBClassifier(**SMALL)) as classifier:
        assert run(model, (X, y), chunk=50, every=500).last.running["rmse"] < 0.8 * y.std()
        history = run(classifier, labels(1000), chunk=50, every=500)
        assert history.last.running["accuracy"] > 0.6
        assert history.last.running["log_loss"] < np.log(3)


def test_its_error_is_near_that_of_a_single_model_on_a_stationary_stream():
    X, y = numbers(6000)
    options = {**SMALL, "n_estimators": 20, "memory": (1024,)}
    single = feed(SGBRegressor(**options), X, y)
    for readout in ("hedge", "mean"):
        with sharded(SGBRegressor(**options), readout=readout) as model:
            together = feed(model, X, y)
        errors = [np.sqrt(np.mean((said[4000:] - y[4000:]) ** 2)) for said in (together, single)]
        assert errors[0] < 1.1 * errors[1]


# Sources of their own.


@pytest.fixture
def files(tmp_path):
    paths = []
    for k, n in enumerate((1500, 900)):
        X, y = numbers(n, seed=k)
        paths.append(str(tmp_path / f"part-{k}.parquet"))
        pq.write_table(pa.table([*X.T, y], names=[*(f"x{j}" for j in range(X.shape[1])), "y"]), paths[-1])
    return paths


def singles(paths):
    """A model for each file."""
    made = []
    for path in paths:
        table = pq.read_table(path)
        made.append(SGBRegressor(**SMALL).fit(table.drop_columns(["y"]), table["y"].to_numpy()))
    return made


def test_shards_learn_from_sources_of_their_own(files):
    with sharded() as model:
        reports = list(model.learn_from(files, "y", every=500, chunk=100))
        assert [report.rows for report in reports if report.shard == 0] == [500, 1000, 1500, 1500]
        assert [report.rows for report in reports if report.shard == 1][-1] == 900
        assert [report.is_over for report in reports if report.shard == 1].count(True) == 1
        assert model.n_rows == 2400
        for k, single in enumerate(singles(files)):
            assert same_state(model.shard(k), single)
        assert_allclose(model.shard_losses_, [reports[-1].loss, [r.loss for r in reports if r.shard == 1][-1]])
        X = pq.read_table(files[0]).drop_columns(["y"])
        said = np.mean([single.predict(X) for single in singles(files)], axis=0)
        assert_allclose(model.predict(X), said, rtol=1e-12)
        assert list(model.learn_from(files, "y")) == [r._replace() for r in list(model.learn_from(files, "y"))]
        assert model.n_rows == 2400  # there was nothing more to read


def test_only_so_many_rows_are_read_if_so_asked(files):
    with sharded() as model:
        list(model.learn_from(files, "y", rows=300, chunk=100))
        assert [model.metrics()[k]["rows"] for k in range(2)] == [300, 300]
        *_, last = model.learn_from(files, "y", rows=450, chunk=50)
        assert last.rows == 450
        table = pq.read_table(files[1]).slice(0, 450)
        single = SGBRegressor(**SMALL).fit(table.drop_columns(["y"]), table["y"].to_numpy())
        assert same_state(model.shard(1), single)


def test_a_source_may_be_described_by_a_dict(files):
    streams = [{"where": "synthetic:friedman", "total_rows": 400, "seed": k} for k in range(2)]
    with sharded() as model:
        list(model.learn_from(streams, "y", every=200))
        for k in range(2):
            [batch] = open_source("synthetic:friedman", total_rows=400, seed=k).read(n_rows=400)
            single = SGBRegressor(**SMALL).fit(batch.table.drop_columns(["y"]), batch.table["y"].to_numpy())
            assert same_state(model.shard(k), single)


def test_shards_tell_each_other_of_classes_in_their_sources(tmp_path):
    X, y = labels(600)
    paths = []
    for k, known in enumerate((("low", "middle"), ("middle", "high"))):
        rows = np.isin(y, known)
        table = pa.table([*X[rows].T, y[rows]], names=[*(f"x{j}" for j in range(X.shape[1])), "y"])
        paths.append(str(tmp_path / f"{k}.parquet"))
        pq.write_table(table, paths[-1])
    with sharded(SGBClassifier(**SMALL)) as model:
        for report in model.learn_from(paths, "y", every=100, chunk=50):
            said = model.predict_proba(pq.read_table(paths[0]).drop_columns(["y"]).slice(0, 5))
            assert_allclose(said.sum(axis=1), 1.0)
            assert report.loss < 5
        assert sorted(model.classes_.tolist()) == ["high", "low", "middle"]
        assert all(len(model.shard(k).classes_) == 3 for k in range(2))
    with sharded(SGBClassifier("logistic", **SMALL)) as model:
        list(model.learn_from(paths, "y", classes=["low", "middle", "high"]))
        assert model.predict(pq.read_table(paths[1]).drop_columns(["y"])).shape == (
            np.isin(y, ("middle", "high")).sum(),
        )


def test_rows_that_make_no_sense_are_left_out_and_counted(tmp_path):
    path = str(tmp_path / "rows.parquet")
    X, y = numbers(200)
    holes = pa.array([None if row % 50 == 7 else value for row, value in enumerate(y.tolist())])
    pq.write_table(pa.table([*X.T, holes], names=[*(f"x{j}" for j in range(X.shape[1])), "y"]), path)
    with sharded(workers=1) as model:
        *_, last = model.learn_from([path], "y")
        assert (last.rows, last.bad, model.n_rows) == (200, 4, 196)
        assert "missing" in last.reason


# Checkpoints.


@pytest.mark.parametrize("kind", ["numbers", "classes", "wrapped"])
def test_what_was_detached_is_attached_by_another_driver_and_goes_on(kind, tmp_path):
    X, y = labels() if kind == "classes" else numbers()
    template = SGBClassifier(**SMALL) if kind == "classes" else SGBRegressor(**SMALL)
    if kind == "wrapped":
        template = SGBRegressor(learner=Ridge(), n_estimators=3, random_state=0)
    with sharded(template) as undisturbed:
        expected = feed(undisturbed, X, y)
        with sharded(template, directory=tmp_path / "cuts") as first:
            said = [feed(first, X[:300], y[:300])]
            with CheckpointStore(tmp_path / "run") as store:
                store.save(Checkpoint(first.detach()))
            feed(first, X[:100], y[:100])  # of this nothing is to be left
        with CheckpointStore(tmp_path / "run") as store:
            cut = store.latest().model
        third = sharded(template, directory=tmp_path / "cuts")
        with third, pytest.raises(FileExistsError, match="holds the cuts"):
            third.learn(X, y)
        with sharded(template, directory=tmp_path / "cuts") as second:
            second.attach(cut)
            assert second.n_rows == 300
            said.append(feed(second, X[300:], y[300:]))
            assert_array_equal(np.concatenate(said), expected)
            assert_array_equal(second.shard_losses_, undisturbed.shard_losses_)
            assert_array_equal(second.weights_, undisturbed.weights_)
    other = sharded(template, workers=3, directory=tmp_path / "cuts")
    with other, pytest.raises(ValueError, match="workers=2"):
        other.attach(cut)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": SGBRegressor(**SMALL)}, "loss is 'auto', but the cut was made with 'poisson'"),
        ({"model": SGBClassifier(**SMALL)}, "model is 'SGBClassifier', but the cut was made with 'SGBRegressor'"),
        ({"model": SGBRegressor("poisson", **{**SMALL, "n_estimators": 7})}, "n_estimators is 7, but .* with 6"),
        ({"model": SGBRegressor("poisson", **{**SMALL, "random_state": 1})}, "random_state is 1, but .* with 0"),
        (
            {"model": SGBRegressor("poisson", learner=Ridge(), **SMALL)},
            r"learner is a Ridge \(\w+\), but .* with 'tree'",
        ),
        ({"split": "chunks"}, "split is 'chunks', but the cut was made with 'turns'"),
        ({"readout": "mean"}, "readout is 'mean', but the cut was made with 'hedge'"),
    ],
)
def test_the_cut_of_another_model_is_refused_before_anything_changes(options, words, tmp_path):
    X, y = numbers(200)
    template = SGBRegressor("poisson", **SMALL)
    with sharded(template, directory=tmp_path) as first:
        feed(first, X, y)
        said, cut = first.predict(X), first.detach()
    with sharded(**{"model": template, "directory": tmp_path, **options}) as other:
        with pytest.raises(ValueError, match=f"{words}.*the same --option, --start-from and --seed as before"):
            other.attach(cut)
        assert other.n_rows == 0
    with sharded(SGBRegressor("poisson", **SMALL), directory=tmp_path) as second:
        second.attach(cut)
        assert_array_equal(second.predict(X), said)


@pytest.mark.parametrize("state", [None, np.random.RandomState(3)])
def test_a_random_state_that_was_left_open_may_be_left_open_again(state, tmp_path):
    X, y = numbers(200)
    options = {**SMALL, "random_state": state}
    with sharded(SGBRegressor(**options), directory=tmp_path) as first:
        feed(first, X, y)
        said, cut = first.predict(X), first.detach()
    with sharded(SGBRegressor(**options), directory=tmp_path) as second:
        second.attach(cut)
        assert_array_equal(second.predict(X), said)


def test_a_shard_that_runs_out_of_memory_says_so_until_a_checkpoint_is_attached(tmp_path, monkeypatch):
    X, y = numbers(300)
    with sharded(directory=tmp_path) as model:
        feed(model, X[:200], y[:200])
        cut, said = model.detach(), model.predict(X)
        with monkeypatch.context() as patch:
            patch.setattr(ShardWorker, "learn", starve)
            model.learn(X[200:], y[200:])
            with pytest.raises(MemoryError, match="80 GiB"):
                model.predict(X)
        for act in (lambda: model.predict(X), lambda: model.learn(X, y), model.detach):
            with pytest.raises(RuntimeError, match="Attach the last checkpoint"):
                act()
        model.attach(cut)
        assert_array_equal(model.predict(X), said)
        with monkeypatch.context() as patch:
            patch.setattr(ShardWorker, "say", starve)
            with pytest.raises(MemoryError, match="80 GiB"):
                model.predict(X)
        assert_array_equal(model.predict(X), said)


def starve(*args):
    raise MemoryError("Unable to allocate 80 GiB")


@pytest.mark.parametrize("kind", ["numbers", "classes"])
def test_a_run_that_was_stopped_and_resumed_is_one_that_was_not(kind, tmp_path):
    if kind == "numbers":
        template, task, stream = SGBRegressor(**SMALL), "regression", {"where": "synthetic:friedman"}
    else:
        template, task, stream = SGBClassifier(**SMALL), "classification", {"where": "synthetic:hyperplane"}
    source = open_source(stream["where"], total_rows=1000)
    options = Options("y", task, chunk=50, every=250)
    found = []
    for name, stops in (("whole", ()), ("stopped", (250, 500))):
        for number in range(len(stops) + 1):
            model = sharded(template, directory=tmp_path / name / "cuts")
            with model, Run(source, model, options, tmp_path / name / "run", resume=number > 0) as going:
                for report in going.reports():
                    if number < len(stops) and report.rows == stops[number]:
                        going.stop()
                if number == len(stops):
                    state = [model.shard(k) for k in range(2)], model.shard_losses_, model.weights_
                    found.append((report.rows, report.running, state))
    assert found[0][0] == 1000
    assert found[0][:2] == found[1][:2]
    assert same_state(found[0][2], found[1][2])


def test_sources_are_read_on_from_where_the_cut_was(files, tmp_path):
    with sharded(directory=tmp_path / "cuts") as first:
        reports = first.learn_from(files, "y", every=300, chunk=100)
        for _ in range(3):
            next(reports)
        cut = first.detach()
        next(reports)
    assert 600 <= sum(cut.memory["_rows"]) < 2400
    with sharded(directory=tmp_path / "cuts") as second:
        second.attach(cut)
        assert second.n_rows == sum(cut.memory["_rows"])
        list(second.learn_from(files, "y", every=300, chunk=100))
        for k, single in enumerate(singles(files)):
            assert same_state(second.shard(k), single)
        with sharded() as undisturbed:
            list(undisturbed.learn_from(files, "y", every=300, chunk=100))
            assert_array_equal(second.shard_losses_, undisturbed.shard_losses_)
            assert second.n_rows == undisturbed.n_rows


def test_a_source_hears_what_will_not_be_asked_for_again(files, tmp_path, monkeypatch):
    heard = []
    monkeypatch.setattr(type(open_source(files[0])), "acknowledge", lambda source, position: heard.append(position))
    with sharded(workers=1, directory=tmp_path / "cuts") as model:
        positions = []
        for report in model.learn_from(files[:1], "y", every=100, chunk=100):
            positions.append(report.position)
            model.confirm(model.detach())
        kept = [model.crew._book.manifest.cuts[number][0] for number in model.crew.cuts]  # operations until then
    assert len(kept) == 2
    assert heard == sorted(heard, key=positions.index)
    assert heard[-1] == positions[kept[0] - 1]  # of the older of the two: either may be gone back to


# Bad input.


def test_a_chunk_that_one_shard_would_refuse_is_learned_by_none():
    X, y = numbers(200)
    table = pa.table({"a": X[:, 0], "b": X[:, 1]})
    with sharded() as model:
        model.learn(table.slice(0, 100), y[:100])
        before = [model.shard(k) for k in range(2)]
        bad = X[100:200, :2].copy()
        bad[61, 1] = np.inf
        for rows, targets, message in (
            (pa.table({"a": bad[:, 0], "b": bad[:, 1]}), y[100:], "infinit"),
            (pa.table({"a": X[100:, 0]}), y[100:], "(?i)feature|column"),
            (table.slice(100), np.where(np.arange(100) == 17, np.nan, y[100:]), "finite"),
            (table.slice(100), y[100:150], "inconsistent numbers of samples"),
            (table.slice(0, 0), y[:0], "empty"),
        ):
            with pytest.raises(ValueError, match=message):
                model.learn(rows, targets)
        with pytest.raises(ValueError, match="sample_weight"):
            model.learn(table.slice(100), y[100:], -np.ones(100))
        for k in range(2):
            assert same_state(model.shard(k), before[k])
        assert model.n_rows == 100


def test_first_rows_that_one_shard_would_refuse_are_learned_by_none():
    X, y = numbers(20)
    X[7, 2] = np.inf
    with sharded() as model:
        with pytest.raises(ValueError, match="infinit"):
            model.learn(X, y)
        assert not any(hasattr(model.shard(k), "committee_") for k in range(2))
        assert model.n_rows == 0
    with sharded(SGBRegressor(memory=-1)) as model, pytest.raises(ValueError, match="memory is -1"):
        model.learn(X[:5], y[:5])


def test_options_and_methods_that_do_not_fit_are_refused():
    X, y = labels(60)
    for options, message in (({"split": "hash"}, "split is 'hash'"), ({"readout": "median"}, "readout is 'median'")):
        with pytest.raises(ValueError, match=message):
            sharded(**options)
    with pytest.raises(TypeError, match="expected an SGBRegressor"):
        sharded(Ridge())
    with pytest.raises(ValueError, match="has learned rows already"):
        sharded(SGBRegressor(**SMALL).fit(X, np.arange(60.0)))
    with sharded() as model:
        with pytest.raises(ValueError, match="which is for classifiers"):
            model.learn(X, np.arange(60.0), method="predict_proba")
        with pytest.raises(ValueError, match="not a number"):
            model.learn(X, y)
        with pytest.raises(ValueError, match="one for each shard"):
            model.learn_from(["a.parquet"], "y")
        with pytest.raises(TypeError, match="expected text and plain values"):
            model.learn_from([object(), object()], "y")
        with pytest.raises(FileNotFoundError):
            list(model.learn_from(["nowhere.parquet"] * 2, "y"))
        with pytest.raises(AttributeError):
            _ = model.classes_
    with sharded(SGBClassifier("hinge", **SMALL)) as model:
        model.learn(X, y == "low")
        with pytest.raises(NotImplementedError, match="gives no probabilities"):
            model.learn(X, y == "low", method="predict_proba")
    with sharded(SGBClassifier("logistic", **SMALL)) as model:
        model.learn(X[y != "low"], y[y != "low"])
        with pytest.raises(ValueError, match="brings the class 'low'"):
            model.learn(X, y)
    with sharded(split="hash:city") as model, pytest.raises(ValueError, match="there is no key column 'city'"):
        model.learn(pa.table({"x": [1.0]}), [1.0])


def fail(*args, **named):
    raise FloatingPointError("a gradient is not finite")


def test_what_goes_wrong_while_learning_is_said_by_every_call_until_a_checkpoint_is_attached(tmp_path, monkeypatch):
    X, y = numbers(200)
    with sharded(directory=tmp_path) as model:
        model.learn(X[:100], y[:100])
        cut, said = model.detach(), model.predict(X)
        with monkeypatch.context() as patch:
            patch.setattr(model.crew._stations[1]._worker, "learn", fail)
            model.learn(X[100:150], y[100:150])
            with pytest.raises(FloatingPointError, match="not finite"):
                model.predict(X)
        for act in (lambda: model.predict(X), lambda: model.learn(X, y), model.detach, lambda: model.shard(0)):
            with pytest.raises(RuntimeError, match=r"learned only in part.*not finite.*Attach the last checkpoint"):
                act()
        model.attach(cut)
        assert_array_equal(model.predict(X), said)
        assert model.n_rows == 100


@pytest.mark.parametrize("chunk", [2, 3])
@pytest.mark.parametrize("error", [FloatingPointError, ValueError])
def test_a_run_of_which_a_chunk_failed_on_one_shard_ends_and_does_not_count_it(error, chunk, tmp_path, monkeypatch):
    source = open_source("synthetic:friedman", total_rows=300)
    options = Options("y", "regression", chunk=100, checkpoint_rows=100 if chunk == 3 else None)
    learn, n_left = ShardWorker.learn, [2 * chunk]

    def fail_once(*args):
        n_left[0] -= 1
        if not n_left[0]:
            raise error("on the way")
        return learn(*args)

    with monkeypatch.context() as patch:
        patch.setattr(ShardWorker, "learn", fail_once)
        model = sharded(directory=tmp_path / "cuts")
        with model, Run(source, model, options, tmp_path / "run") as going, pytest.raises((error, RuntimeError)):
            list(going.reports())
    model = sharded(directory=tmp_path / "cuts")
    with model, Run(source, model, options, tmp_path / "run", resume=True) as going:
        assert list(going.reports())[-1].rows == 300
        assert [worker["rows"] for worker in model.metrics()] == [150, 150]


@pytest.mark.parametrize("place", ["commit", "count"])
def test_a_chunk_that_is_interrupted_when_shards_learn_it_is_not_gone_on_from(place, monkeypatch):
    X, y = numbers(200)
    with sharded() as model:
        model.learn(X[:100], y[:100])
        with monkeypatch.context() as patch:
            patch.setattr(*((model, "_commit") if place == "commit" else (model._votes, "count")), interrupt)
            with pytest.raises(KeyboardInterrupt):
                model.learn(X[100:], y[100:])
        with pytest.raises(RuntimeError, match=r"learned only in part.*KeyboardInterrupt"):
            model.predict(X)


def interrupt(*args):
    raise KeyboardInterrupt


def test_first_rows_that_no_shards_options_fit_change_nothing():
    X, y = numbers(40)
    with sharded(SGBRegressor(learner=ConvStack((3, 3), 2, kernel=2, stride=1), random_state=0)) as model:
        for _ in range(2):
            with pytest.raises(ValueError, match="n_features is 10, expected 9"):
                model.learn(X, y)
        assert model.learn(X[:, :9], y).shape == (40,)
        assert model.n_rows == 40


def test_a_source_whose_rows_fail_half_way_is_not_read_on(files, tmp_path, monkeypatch):
    with sharded(directory=tmp_path) as model:
        reports = model.learn_from(files, "y", every=300, chunk=100)
        next(reports)
        cut = model.detach()
        with monkeypatch.context() as patch:
            patch.setattr(model.crew._stations[1]._worker.state.model, "_learn", fail)
            with pytest.raises(RuntimeError, match="failed in the middle of rows of its source: FloatingPointError"):
                list(reports)
        for act in (model.detach, lambda: model.learn_from(files, "y")):
            with pytest.raises(RuntimeError, match="learned only in part"):
                act()
        model.attach(cut)
        list(model.learn_from(files, "y", every=300, chunk=100))
        for k, single in enumerate(singles(files)):
            assert same_state(model.shard(k), single)


def test_workers_are_asked_at_once(monkeypatch):
    """One question to all, then one operation to each: no shard waits for another."""
    X, y = numbers(300)
    seen = []
    for name in ("call", "ask_all"):
        real = getattr(LocalCrew, name)
        monkeypatch.setattr(LocalCrew, name, lambda crew, *args, real=real: seen.append(args[:2]) or real(crew, *args))
    with sharded(workers=3) as model:
        feed(model, X, y, 100)
    assert [first for first, *_ in seen] == ["consider", 0, 1, 2] * 3
