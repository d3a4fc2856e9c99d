"""Models in the files of others: joblib's, read without copying them to memory, and skops', which trusts by name."""

import io
import pickle

import joblib
import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_array_equal
from sklearn.linear_model import LinearRegression

import streamboost
from streamboost import SGBClassifier, SGBRegressor
from streamboost.descents import Ball, ResidualProjection
from streamboost.losses import Quantile
from streamboost.persistence.object_graph import same_state

RNG = np.random.default_rng(0)
X = RNG.normal(size=(150, 3))
Y = X[:, 0] + (X[:, 1] > 0)
TABLE = pa.table({"a": X[:, 0], "b": np.array(["u", "v", "w"])[RNG.integers(3, size=150)]})
SMALL = {"n_estimators": 3, "max_depth": 2, "memory": (16, 64), "budget": 8.0, "random_state": 0}
MODELS = {
    "trees": (SGBRegressor(**SMALL), X, Y),
    "two classes": (SGBClassifier(**SMALL), TABLE, np.where(Y > 0, "up", "down")),
    "three classes": (SGBClassifier(**SMALL), X, np.digitize(Y, [-0.5, 1.0])),
    "one versus rest": (SGBClassifier("hinge", **SMALL), X, np.digitize(Y, [-0.5, 1.0])),
    "networks": (SGBRegressor(learner="mlp", n_estimators=12, random_state=0), X, Y),
    "linear": (SGBRegressor(Quantile(0.9), learner="linear", n_estimators=3, random_state=0), X, Y),
    "average of the past": (SGBRegressor(**{**SMALL, "memory": 32}, iterate="average"), X, Y),
    "projected": (SGBRegressor("absolute_error", **SMALL, descent=ResidualProjection(domain=Ball(9))), X, Y),
    "frozen": (SGBRegressor(**SMALL, base=LinearRegression().fit(X, Y)), X, Y),
}


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("mode", ["r", "c"])
def test_a_model_that_joblib_maps_from_its_file_goes_on_learning(kind, mode, tmp_path):
    model, rows, y = MODELS[kind]
    model.fit(rows[:100], y[:100])
    joblib.dump(model, tmp_path / "model.joblib")
    loaded = joblib.load(tmp_path / "model.joblib", mmap_mode=mode)
    assert_array_equal(loaded.predict(rows), model.predict(rows))
    assert_array_equal(loaded.learn(rows[100:], y[100:]), model.learn(rows[100:], y[100:]))
    if kind != "frozen":  # scikit-learn's own arrays stay mapped
        assert same_state(loaded, model)
        loaded.save(tmp_path / "model.safetensors")
        assert same_state(streamboost.load(tmp_path / "model.safetensors"), model)


class Classes(pickle.Unpickler):
    """Takes note of all classes a pickle names."""

    def __init__(self, data):
        super().__init__(io.BytesIO(data))
        self.found = set()

    def find_class(self, module, name):
        self.found.add(f"{module}.{name}")
        return super().find_class(module, name)


@pytest.mark.parametrize("kind", MODELS)
def test_every_class_in_a_model_is_on_the_list_for_skops(kind):
    model, rows, y = MODELS[kind]
    pickled = Classes(pickle.dumps(model.fit(rows, y)))
    pickled.load()
    ours = {name for name in pickled.found if name.startswith("streamboost.")}
    assert {"streamboost.boosting.committee.Committee", "streamboost.boosting.hedge.Hedge"} < ours
    assert ours <= set(streamboost.skops_trusted_types())
    assert not {name for name in pickled.found if name.startswith("typing.")}  # which skops would ask about as well


def test_the_list_for_skops_names_classes_that_exist():
    skipped = ("streamboost.stacks.torch", "streamboost.estimators.river")  # what extras bring
    for name in streamboost.skops_trusted_types():
        module, _, qualname = name.rpartition(".")
        if not module.startswith(skipped):
            found = pickle.Unpickler(io.BytesIO()).find_class(module, qualname)
            assert f"{found.__module__}.{found.__qualname__}" == name
