"""Any order of requests, crashes and delays: the model is the one that a plain loop over the same rows would make."""

import math
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from live_twin import Pair

KEYS = [f"k{i}" for i in range(9)]
DISTURBANCES = ["expire", "checkpoint", "crash", "close_and_open", "pause"]


@pytest.mark.parametrize("seed", range(4))
def test_a_live_model_is_its_naive_twin_over_hundreds_of_requests(seed, tmp_path):
    rng = np.random.default_rng(seed)
    pair = Pair(tmp_path, expire_after=[15.0, 60.0][seed % 2], default=[None, 0.0][seed // 2])

    def draw_rows(n):
        return [(float(rng.integers(-3, 4)), ["x", "y", None][rng.integers(3)]) for _ in range(n)]

    def draw_y(n):
        return [math.nan if rng.random() < 0.05 else float(rng.integers(2)) for _ in range(n)]

    for _ in range(250):
        keys = rng.choice(KEYS, rng.integers(1, 5), replace=False).tolist()
        id = None if rng.random() < 0.7 else str(rng.integers(4))
        match rng.choice(8, p=[0.1, 0.1, 0.25, 0.31, 0.08, 0.1, 0.02, 0.04]):
            case 0:
                pair.learn(draw_rows(len(keys)), draw_y(len(keys)), id)
            case 1:
                pair.predict(keys, draw_rows(len(keys)), id)
            case 2:
                pair.remember(keys, draw_rows(len(keys)), id)
            case 3:
                pair.label(keys, draw_y(len(keys)), id)
            case 4:
                pair.wait(float(rng.choice([1.0, 5.0, 50.0])))
            case 5:
                getattr(pair, rng.choice(DISTURBANCES))()
            case 6:
                pair.refuse(int(rng.integers(9)))
            case 7:  # rows whose labels are there already, and before anyone looks, a long time passes
                pair.label(keys, draw_y(len(keys)), None)
                pair.remember(keys, draw_rows(len(keys)), None)
                pair.pause()
                getattr(pair, rng.choice(["expire", "checkpoint", "close_and_open", "crash"]))()
        pair.compare()
    twin = pair.twin
    assert min(twin.corrected, twin.expired, twin.crowded, twin.bad) > 3
    pair.live.close()


rows_ = st.tuples(st.floats(-3, 3, allow_subnormal=False), st.sampled_from(["x", "y", None]))
numbers = st.sampled_from([0.0, 1.0, 1.0, 2.0, math.nan])
some_keys = st.lists(st.sampled_from(KEYS), min_size=1, max_size=4, unique=True)
ids = st.sampled_from([None, None, None, "i", "j", "k", "l"])


class Requests(RuleBasedStateMachine):
    @initialize(expire_after=st.sampled_from([15.0, 60.0]), default=st.sampled_from([None, 0.0]))
    def begin(self, expire_after, default):
        self.pair = Pair(Path(tempfile.mkdtemp()), expire_after, default)

    def teardown(self):
        if hasattr(self, "pair"):
            self.pair.live.close()
            shutil.rmtree(self.pair.place)

    @rule(rows=st.lists(rows_, min_size=1, max_size=5), data=st.data(), id=ids)
    def learn(self, rows, data, id):
        self.pair.learn(rows, [data.draw(numbers) for _ in rows], id)

    @rule(keys=some_keys, data=st.data(), of_writer=st.booleans(), id=ids)
    def remember(self, keys, data, of_writer, id):
        rows = [data.draw(rows_) for _ in keys]
        (self.pair.predict if of_writer else self.pair.remember)(keys, rows, id)

    @rule(keys=some_keys, data=st.data(), id=ids)
    def label(self, keys, data, id):
        self.pair.label(keys, [data.draw(numbers) for _ in keys], id)

    @rule(seconds=st.sampled_from([1.0, 10.0, 30.0]))
    def wait(self, seconds):
        self.pair.wait(seconds)

    @rule(what=st.sampled_from(DISTURBANCES))
    def disturb(self, what):
        getattr(self.pair, what)()

    @rule(which=st.integers(0, 8))
    def refuse(self, which):
        self.pair.refuse(which)

    @invariant()
    def the_two_are_one(self):
        if hasattr(self, "pair"):
            self.pair.compare()


TestRequests = Requests.TestCase
TestRequests.settings = settings(max_examples=15, stateful_step_count=30, deadline=None, phases=[Phase.generate])
