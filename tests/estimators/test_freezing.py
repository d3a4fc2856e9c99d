"""A frozen model predicts as the model did, bit for bit and with every verb, holds no row, and learns no more."""

import copy
import pickle

import joblib
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge, SGDRegressor
from sklearn.tree import DecisionTreeRegressor

import streamboost
from streamboost import SGBClassifier, SGBRegressor
from streamboost.descents import AdaGrad, Ball, FrankWolfe, Nesterov, ResidualProjection
from streamboost.estimators.describe import describe, size
from streamboost.estimators.freezing import freeze
from streamboost.losses import Quantile
from streamboost.persistence.object_graph import flatten, same_state
from streamboost.replay import Replay
from streamboost.stacks import ConvStack

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 4))
X[RNG.uniform(size=X.shape) < 0.05] = np.nan
Z = np.nan_to_num(X)
Y = 3.0 * Z[:, 0] + (Z[:, 1] > 0) * Z[:, 2]
THREE = np.digitize(Y, [-2.0, 1.0])
FRAME = pd.DataFrame({
    "size": X[:, 0],
    "city": np.array(["Bonn", "Graz", "Oslo"], object)[RNG.integers(3, size=400)],
    "at": pd.date_range("2024-01-01", periods=400, freq="37min"),
})  # fmt: skip
SMALL = {"n_estimators": 6, "max_depth": 3, "memory": (32, 128), "random_state": 0}
ONE = SMALL | {"memory": 64}
FEW = {"n_estimators": 3, "random_state": 0}


class Mean:
    """What a fitting function makes of rows: it says the mean of their targets."""

    def __init__(self, X, target, weight):
        self.mean = np.average(target, axis=0, weights=weight)

    def __call__(self, X):
        return np.tile(self.mean, (len(X), 1))


def mean_of(X, target, weight):
    return Mean(X, target, weight)


def river_regressor():
    from river import linear_model, preprocessing

    return preprocessing.StandardScaler() | linear_model.LinearRegression()


MODELS = {
    "trees": (SGBRegressor(**SMALL), X, Y),
    "the defaults": (SGBRegressor(random_state=0), X, Y),
    "categories and dates": (SGBRegressor(**SMALL), FRAME, Y),
    "signs": (SGBRegressor(**SMALL, monotonic_cst=[1, 0, 0, -1]), X, Y),
    "drawn columns": (SGBRegressor(**SMALL, max_features=0.5), X, Y),
    "two outputs": (SGBRegressor(**SMALL), X, np.column_stack([Y, -2.0 * Y])),
    "quantile": (SGBRegressor(Quantile(0.9), **SMALL), X, Y),
    "poisson": (SGBRegressor("poisson", **SMALL), X, np.floor(np.abs(Y))),
    "projected": (SGBRegressor("absolute_error", **SMALL, descent=ResidualProjection(domain=Ball(9))), X, Y),
    "Nesterov": (SGBRegressor(**SMALL, descent=Nesterov()), X, Y),
    "Frank-Wolfe": (SGBRegressor(**SMALL, descent=FrankWolfe(radius=9.0)), X, Y),
    "AdaGrad": (SGBRegressor(**SMALL, descent=AdaGrad()), X, Y),
    "theory": (SGBRegressor(**ONE, learning_rate="theory"), X, Y),
    "the last": (SGBRegressor(**SMALL, readout="last"), X, Y),
    "the mean": (SGBRegressor(**SMALL, readout="mean"), X, Y),
    "mini-batches": (SGBRegressor(**SMALL, update_mode=8), X, Y),
    "all rows": (SGBRegressor(**SMALL | {"memory": None}), X[:150], Y[:150]),
    "average of the past": (SGBRegressor(**ONE, iterate="average"), X[:150], Y[:150]),
    "constant": (SGBRegressor(**SMALL, base="constant"), X, Y),
    "a number": (SGBRegressor(**SMALL, base=5.0), X, Y),
    "fitted model": (SGBRegressor(**SMALL, base=DecisionTreeRegressor(max_depth=2).fit(X, Y)), X, Y),
    "fitted model of ours": (SGBRegressor(**SMALL, base=SGBRegressor(**SMALL).fit(X, Y)), X, Y),
    "linear": (SGBRegressor(learner="linear", **FEW), X, Y),
    "linear, adaptive": (SGBRegressor("huber", learner="linear", **FEW), X, Y),
    "networks": (SGBRegressor(learner="mlp", n_estimators=12, random_state=0), X, Y),
    "averaged networks": (SGBRegressor(learner="mlp", n_estimators=12, iterate="polynomial", random_state=0), X, Y),
    "networks of categories": (SGBClassifier(learner="mlp", n_estimators=12, random_state=0), FRAME, THREE),
    "convolutions": (SGBRegressor(learner=ConvStack((2, 2), 3, kernel=2, stride=1), random_state=0), Z, Y),
    "River's": (SGBRegressor(learner=river_regressor(), **FEW), X[:150], Y[:150]),
    "chunks": (SGBRegressor(learner=SGDRegressor(), update_mode=16, **FEW), X, Y),
    "batches": (SGBRegressor(learner=Ridge(), **FEW, memory=64), X[:150], Y[:150]),
    "a function": (SGBRegressor(learner=mean_of, **FEW, memory=64), X[:150], Y[:150]),
    "two classes": (SGBClassifier(**SMALL), FRAME, np.where(Y > 0, "up", "down")),
    "three classes": (SGBClassifier(**SMALL), X, THREE),
    "one class": (SGBClassifier(**SMALL), X[:40], np.ones(40, int)),
    "hinge": (SGBClassifier("hinge", **SMALL), X, THREE),
    "logistic": (SGBClassifier("logistic", **SMALL), X, Y > 0),
}  # fmt: skip
UNSAVED = {"fitted model", "River's", "chunks", "batches", "a function"}  # foreign parts: pickle takes them
VERBS = [
    "predict", "raw_scores", "encode", "predict_many", "predict_proba", "predict_log_proba", "decision_function",
    "predict_proba_many",
]  # fmt: skip
STAGED = ["staged_predict", "staged_predict_proba"]
SINGLE = ["predict_one", "predict_proba_one"]
SAID = [
    "classes_", "n_features_in_", "feature_names_in_", "n_samples_seen_", "weights_", "events_", "edges_",
    "feature_importances_",
]  # fmt: skip


def taught(kind):
    model, rows, y = MODELS[kind]
    model = copy.deepcopy(model)
    half = len(y) // 2
    model.learn(rows[:half], y[:half])
    return model.partial_fit(rows[half:], y[half:]), rows


def answers(model, rows):
    """What a model says of rows and of itself, with all verbs that it has."""
    said = {name: getattr(model, name) for name in SAID if hasattr(model, name)}
    frame = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(rows)
    for verb in [verb for verb in VERBS if hasattr(model, verb)]:
        if "proba" in verb and not hasattr(model, "predict_proba"):  # of hinge there are none
            continue
        if verb == "predict_many" and said["predict"].ndim > 1:  # River has no such thing
            continue
        said[verb] = np.asarray(getattr(model, verb)(frame if verb.endswith("many") else rows))
    for verb in [verb for verb in STAGED if hasattr(model, verb)]:
        said[verb] = list(getattr(model, verb)(rows[:50]))
    for verb in [verb for verb in SINGLE if hasattr(model, verb)]:
        if "proba" not in verb or hasattr(model, "predict_proba"):
            ones = [{}, *frame[:5].to_dict("records")]
            said[verb] = [getattr(model, verb)(one) for one in ones]
    if not isinstance(rows, pd.DataFrame):
        said["sparse"] = model.predict(csr_array(np.nan_to_num(rows)))
    about = describe(model)
    return said | {name: value for name, value in about.items() if name not in ("bytes", "frozen", "parameters")}


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_equal(found[name], value, err_msg=name)
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            assert found[name].tobytes() == value.tobytes(), name


@pytest.mark.parametrize("kind", MODELS)
def test_it_says_the_same_with_every_verb_also_once_it_was_saved_or_pickled(kind, tmp_path):
    model, rows = taught(kind)
    before = flatten(model)
    frozen = model.freeze()
    assert type(frozen) is type(model)
    assert frozen.is_frozen
    assert not model.is_frozen
    assert before.keys() == flatten(model).keys()  # freezing changes nothing
    expected = answers(model, rows)
    untouched = copy.deepcopy(frozen)
    assert_same(answers(frozen, rows), expected)
    if kind not in UNSAVED:
        assert same_state(frozen, untouched), "predicting changes nothing"
        frozen.save(tmp_path / "frozen.safetensors")
        loaded = streamboost.load(tmp_path / "frozen.safetensors")
        assert same_state(loaded, frozen)
        assert_same(answers(loaded, rows), expected)
    joblib.dump(frozen, tmp_path / "frozen.joblib")
    assert_same(answers(joblib.load(tmp_path / "frozen.joblib"), rows), expected)
    assert_same(answers(pickle.loads(pickle.dumps(frozen)), rows), expected)


@pytest.mark.parametrize("kind", MODELS)
def test_the_model_goes_on_learning_and_the_frozen_one_stays(kind):
    model, rows = taught(kind)
    twin, frozen = copy.deepcopy(model), model.freeze()
    expected = answers(frozen, rows)
    _, _, y = MODELS[kind]
    assert_array_equal(model.learn(rows[:40], y[:40]), twin.learn(rows[:40], y[:40]))
    assert_same(answers(frozen, rows), expected)
    assert frozen.n_samples_seen_ == model.n_samples_seen_ - 40


@pytest.mark.parametrize("kind", MODELS)
def test_verbs_that_learn_are_refused_and_change_nothing(kind):
    model, rows = taught(kind)
    _, _, y = MODELS[kind]
    prepared, frozen = model.prepare(rows[:3], y[:3]), model.freeze()
    before = pickle.dumps(frozen)
    one = {"size": 1.0} if isinstance(rows, pd.DataFrame) else {0: 1.0}
    frame = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(rows)
    row, target = np.zeros((1, frozen.committee_.n_features)), np.ones((1, frozen.committee_.loss.n_targets))
    for learn in (
        lambda: frozen.learn(rows, y),
        lambda: frozen.partial_fit(rows, y),
        lambda: frozen.partial_fit(rows, y, np.zeros(len(y))),
        lambda: frozen.learn_one(one, y[0].tolist()),
        lambda: frozen.learn_one(one, y[0].tolist(), w=0.0),
        lambda: frozen.learn_many(frame, y),
        lambda: frozen.prepare(rows, y),
        lambda: frozen.check_rows(rows),
        lambda: frozen.learn_prepared(prepared),
        lambda: frozen.committee_.learn(row, target),
        lambda: frozen.booster_.learn(row, target),
        lambda: frozen.committee_.grow(1),
        lambda: frozen.committee_.add_features(1),
    ):
        with pytest.raises(RuntimeError, match=r"is frozen: it predicts, and learns no more\. Learn with the model it"):
            learn()
    assert pickle.dumps(frozen) == before


@pytest.mark.parametrize("kind", ["trees", "categories and dates", "linear", "networks", "two classes"])
def test_fit_starts_anew_and_a_clone_is_an_ordinary_model(kind):
    model, rows = taught(kind)
    _, _, y = MODELS[kind]
    frozen, expected = model.freeze(), clone(model).fit(rows, y)
    cloned = clone(frozen)
    assert not hasattr(cloned, "committee_")
    assert not cloned.is_frozen
    assert same_state(cloned.fit(rows, y), expected)
    assert same_state(frozen.fit(rows, y), expected)
    assert not frozen.is_frozen
    assert_array_equal(frozen.learn(rows, y), expected.learn(rows, y))


@pytest.mark.parametrize("kind", ["trees", "average of the past", "averaged networks", "fitted model of ours"])
def test_what_is_frozen_already_can_be_frozen_again(kind):
    model, rows = taught(kind)
    frozen = model.freeze()
    assert same_state(frozen.freeze(), frozen)
    assert same_state(freeze(frozen, importances="later"), frozen)
    later = freeze(model, importances="later")
    assert_same(answers(later, rows), answers(model, rows))
    assert same_state(later.freeze(), frozen)


@pytest.mark.parametrize("kind", MODELS)
def test_it_holds_no_rows_and_is_as_small_whatever_the_memory(kind):
    model, rows = taught(kind)
    frozen = model.freeze()
    assert size(frozen) < size(model)
    assert frozen.n_samples_seen_ == len(rows)
    for booster in frozen.committee_.boosters:
        if booster.replay is not None:
            assert not any(array.size for array in vars(booster.replay).values() if np.ndim(array) > 1)
            assert len(booster.replay.X) == len(booster.replay.y) == 0
        assert not booster.opening.any()
    if kind == "trees":
        sizes = {size(SGBRegressor(**SMALL | {"memory": n}).fit(X, Y).freeze()) for n in (32, 64, 1000)}
        assert len(sizes) == 1


@pytest.mark.parametrize("n_levels", [3, 40, 1024, 1100, 8300])
@pytest.mark.parametrize("learner", ["tree", "linear", "mlp"])
def test_room_for_levels_to_come_is_given_up_and_all_levels_say_the_same(learner, n_levels):
    rng = np.random.default_rng(n_levels)
    codes = np.concatenate([np.arange(n_levels), rng.integers(n_levels, size=300)])
    names = [f"level {code}" for code in codes]
    table = pd.DataFrame({"a": names, "b": rng.normal(size=len(codes)), "c": [f"x{code % 5}" for code in codes]})
    model = SGBRegressor(**SMALL | {"learner": learner}).fit(table, codes % 7 + table["b"])
    frozen = model.freeze()
    assert_same(answers(frozen, table), answers(model, table))
    for one in ({"a": "never seen", "b": 1.0}, {"c": "nor this"}, {"a": "level 2", "c": "x4"}, {"a": names[-1]}):
        assert frozen.predict_one(one) == model.predict_one(one)
    assert frozen.committee_.n_levels == (n_levels if n_levels < 8192 else 8193)
    assert same_state(frozen.freeze(), frozen)


def test_a_frozen_model_is_a_few_hundred_kilobytes(tmp_path):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(5000, 10))
    ladder = (256, 1024, 4096, 16384)  # which does not grow
    model = SGBRegressor(memory=ladder, random_state=0).fit(rows, rows[:, 0] + np.sin(rows[:, 1]))
    frozen = model.freeze()
    frozen.save(tmp_path / "frozen.safetensors")
    model.save(tmp_path / "model.safetensors")
    assert (tmp_path / "frozen.safetensors").stat().st_size < 800_000
    assert (tmp_path / "model.safetensors").stat().st_size > 3_000_000


def test_exact_replay_and_recorded_targets_are_left_out_as_well():
    from streamboost import Booster
    from streamboost.bases import Constant
    from streamboost.losses import Squared
    from streamboost.stacks import TreeStack

    booster = Booster(Squared(), stack=TreeStack(3, max_depth=2), base=Constant(0), replay=Replay.exact())
    booster.learn(Z[:40], Y[:40])
    frozen = copy.deepcopy(booster.for_prediction())
    assert_array_equal(frozen.predict(Z), booster.predict(Z))
    assert_array_equal(frozen.walk(Z), booster.walk(Z))
    assert frozen.replay.fill == 40
    assert frozen.replay.recorded.size == frozen.replay.codes.size == 0
    with pytest.raises(RuntimeError, match="the booster is frozen"):
        frozen.grow(2)


def test_a_challenger_and_new_classes_and_columns_are_there():
    """In the middle of a stream that changes: a fifth booster, classes and columns that came late."""
    rng = np.random.default_rng(3)
    rows = rng.uniform(size=(2600, 2))
    y = np.sin(6 * rows[:, 0])
    y[1300:] = -y[1300:]
    model = SGBRegressor(n_estimators=10, max_depth=4, memory=(64, 1024), random_state=0)
    for start in range(0, 2600, 100):
        model.partial_fit(rows[start : start + 100], y[start : start + 100])
        if model.committee_.drift_replacement.is_on:
            break
    assert len(model.committee_.boosters) == 3
    frozen = model.freeze()
    assert frozen.committee_.drift_replacement.is_on
    assert_same(answers(frozen, rows), answers(model, rows))

    classes = SGBClassifier(**SMALL)
    for t in range(120):
        classes.learn_one({"a": t % 7} | ({"b": "x"} if t > 60 else {}), "late" if t == 100 else ("one", "two")[t % 2])
    frozen = classes.freeze()
    assert [event.kind for event in frozen.events_] == ["new class", "new column", "new class"]
    for one in ({"a": 1}, {"b": "x", "a": 3}, {"b": "never seen"}, {"c": 1.0}, {}):
        assert frozen.predict_proba_one(one) == classes.predict_proba_one(one)


def test_a_booster_that_holds_all_rows_is_there_without_them():
    rng = np.random.default_rng(0)
    rows = rng.uniform(size=(2500, 4))
    table = pd.DataFrame(rows[:, :3], columns=["a", "b", "c"])
    table["d"] = np.where(rows[:, 3] > 0.5, "x", "y")
    y = np.sin(6 * rows[:, 0]) * rows[:, 1] + rows[:, 3]
    for model, targets in ((SGBRegressor(random_state=0), y), (SGBClassifier(random_state=0), np.digitize(y, [0, 1]))):
        model.fit(table, targets)
        assert model.committee_.boosters[0].rests
        frozen, later = model.freeze(), freeze(model, importances="later")
        assert_same(answers(frozen, table), answers(model, table))
        assert_same(answers(later, table), answers(model, table))
        first = frozen.committee_.boosters[0]
        assert first.replay.fill == 2500
        assert len(first.replay.carried) == len(first.replay.X) == 0
        assert not first.base.opening_weight.size
        expected = frozen.predict(table)
        model.partial_fit(table, targets)
        assert_array_equal(frozen.predict(table), expected)
        with pytest.raises(RuntimeError, match="frozen"):
            first.sweep()


def test_before_anything_was_learned_there_is_nothing_to_freeze():
    with pytest.raises(NotFittedError):
        SGBRegressor().freeze()
    assert not SGBRegressor().is_frozen


def test_rivers_variants_freeze():
    from streamboost import river_models

    model = river_models.SGBClassifier(**SMALL)
    for t in range(100):
        model.learn_one({"a": t % 7, "b": t % 3}, t % 7 > 3)
    frozen = model.freeze()
    assert type(frozen) is river_models.SGBClassifier
    assert frozen.predict_proba_one({"a": 5}) == model.predict_proba_one({"a": 5})
    assert frozen.clone().predict_one({"a": 5}) is None
    with pytest.raises(RuntimeError, match="frozen"):
        frozen.learn_one({"a": 1}, True)


def test_a_model_that_is_the_base_is_frozen_too():
    inner = SGBRegressor(**SMALL).fit(X, Y)
    model = SGBRegressor(**SMALL, base=inner).fit(X, Y)
    frozen = model.freeze()
    assert frozen.base is frozen.booster_.base.model
    assert frozen.base.is_frozen
    assert not inner.is_frozen
    assert not model.base.is_frozen
