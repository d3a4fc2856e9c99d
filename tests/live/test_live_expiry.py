"""Rows whose labels never come."""

import numpy as np
import pyarrow as pa
from live_models import Clock, classifier, columns_of, features, regressor, rows_of

from streamboost.live import LiveModel
from streamboost.persistence.object_graph import same_state


def test_no_click_in_30_minutes_counts_as_0_until_the_click_comes(tmp_path):
    clock, minutes = Clock(), 60.0
    options = {"target": "clicked", "clock": clock, "expire_after": 30 * minutes, "default": 0}
    live, twin = LiveModel(tmp_path, classifier(), **options), classifier()
    live.predict(features((1.0, "x"), (2.0, "y")), ["p", "q"])
    clock.now += 29 * minutes
    assert live.expire() == 0
    live.label(["q"], [1])
    clock.now += 1 * minutes
    assert (live.expire(), live.n_expired) == (1, 1)
    twin.learn(features((2.0, "y")), np.array([1]))
    twin.learn(features((1.0, "x")), np.array([0]))
    assert same_state(live.model, twin)
    assert live.label(["p"], [0]).unchanged == 1
    assert live.label(["p"], [1]).corrected == 1
    twin.learn(features((1.0, "x")), np.array([1]))
    assert same_state(live.model, twin)
    live.close()


def test_a_thousand_rows_and_more_expire_in_the_order_in_which_they_came(tmp_path):
    clock, table = Clock(), rows_of(2300)
    X, _ = columns_of(table)
    with LiveModel(tmp_path, regressor(), expire_after=1.0, default=1.0, clock=clock, durable=False) as live:
        live.remember([str(i) for i in range(2300)], X)
        clock.now += 1
        assert live.expire(limit=1000) == 1000
        assert live.expire() == 1300
        twin = regressor()
        for start in (0, 1000, 2000):
            chunk = X.slice(start, 1000)
            twin.learn(chunk, np.ones(chunk.num_rows))
        assert same_state(live.model, twin)


def test_a_default_that_the_model_refuses_costs_the_rows_and_not_the_run(tmp_path):
    clock = Clock()
    with LiveModel(tmp_path, classifier(loss="hinge"), expire_after=1.0, default="never", clock=clock) as live:
        live.learn(pa.table({"a": [1.0, 2.0], "target": ["yes", "no"]}))
        live.remember(["k"], pa.table({"a": [1.0]}))
        clock.now += 1
        assert (live.expire(), live.n_quarantined, live.n_dropped, live.n_pending) == (1, 1, 1, 0)
