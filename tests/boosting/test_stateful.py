"""Any order of learning, asking, refusing, saving and growing: the model is always what an undisturbed twin is."""

import copy
import pickle
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import streamboost
from streamboost import SGBClassifier, SGBRegressor
from streamboost.persistence.object_graph import same_state

COLUMNS = ["a", "b", "c"]
SMALL = {"n_estimators": 3, "max_depth": 2, "memory": (12, 24), "budget": 8.0, "random_state": 0}

values = st.one_of(st.none(), st.floats(-3, 3), st.integers(-2, 2))
rows = st.dictionaries(st.sampled_from(COLUMNS), values).map(lambda row: row | {"a": row.get("a") or 1.0})
chunks = st.lists(rows, min_size=1, max_size=6)


class Disturbed(RuleBasedStateMachine):
    """``model`` is disturbed in every way that must not matter; ``twin`` only ever learns."""

    make: object
    targets: object

    @initialize(first=rows, data=st.data())
    def begin(self, first, data):
        self.model, self.twin = self.make(), self.make()
        self.learn(lambda model, y: model.learn_one(first, y), data)

    def learn(self, teach, data):
        y = data.draw(self.targets)
        teach(self.model, y)
        teach(self.twin, y)

    # What matters.

    @rule(row=rows, data=st.data())
    def learn_one(self, row, data):
        self.learn(lambda model, y: model.learn_one(row, y), data)

    @rule(chunk=chunks, data=st.data())
    def learn_a_chunk_of_dicts(self, chunk, data):
        y = [data.draw(self.targets) for _ in chunk]
        self.model.learn(chunk, y)
        for row, target in zip(chunk, y, strict=True):  # the twin takes them one by one
            self.twin.learn_one(row, target)

    @rule(row=rows, data=st.data())
    def a_row_of_weight_zero(self, row, data):
        y = data.draw(self.targets)
        self.model.learn_one(row, y, w=0.0)
        self.twin.learn_one(row, y, w=0.0)

    @rule()
    def grow(self):
        if self.model.booster_.stack.n_learners < 6:
            self.model.booster_.grow(1)
            self.twin.booster_.grow(1)

    # What must not.

    @rule(row=rows)
    def ask(self, row):
        self.model.predict_one(row | {"never seen": 1.0})
        self.model.predict([row])

    @rule()
    def save_and_load(self):
        with tempfile.TemporaryDirectory() as folder:
            self.model.save(Path(folder) / "model")
            self.model = streamboost.load(Path(folder) / "model")

    @rule()
    def pickle(self):
        self.model = pickle.loads(pickle.dumps(self.model))

    @rule()
    def copy(self):
        self.model = copy.deepcopy(self.model)

    @rule(row=rows, bad=st.sampled_from([{"a": np.inf}, {"a": "text"}, {"new": [1]}]), data=st.data())
    def refuse_a_row(self, row, bad, data):
        with pytest.raises((ValueError, TypeError)):
            self.model.learn_one(row | bad, data.draw(self.targets))

    @rule(chunk=chunks)
    def refuse_a_target(self, chunk):
        with pytest.raises(ValueError, match=r"target|label"):
            self.model.partial_fit(chunk, [np.nan] * len(chunk))

    @precondition(lambda self: hasattr(self, "model"))
    @invariant()
    def the_two_are_one(self):
        assert same_state(self.model, self.twin)


class DisturbedRegressor(Disturbed):
    make = staticmethod(lambda: SGBRegressor(**SMALL))
    targets = st.floats(-100, 100)


class DisturbedAverage(Disturbed):
    make = staticmethod(lambda: SGBRegressor("absolute_error", iterate="average", **SMALL))
    targets = st.floats(-100, 100)


class DisturbedClassifier(Disturbed):
    make = staticmethod(lambda: SGBClassifier(**SMALL))
    targets = st.sampled_from(["red", "green", "blue"])


few = settings(max_examples=settings().max_examples // 10, stateful_step_count=30, phases=[Phase.generate])
TestRegressor = DisturbedRegressor.TestCase
TestAverage = DisturbedAverage.TestCase
TestClassifier = DisturbedClassifier.TestCase
TestRegressor.settings = TestAverage.settings = TestClassifier.settings = few
