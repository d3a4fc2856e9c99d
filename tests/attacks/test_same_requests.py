"""The same requests at the same times make the same model, whether or not something was done between them."""

import tempfile

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from live_models import Clock, classifier, crash, features, regressor

from streamboost.live import LiveModel
from streamboost.persistence.object_graph import same_state

KEYS = st.sampled_from(["k0", "k1", "k2", "k3"])
LABELS = st.sampled_from([0.0, 1.0, 2.0])
PASSES = st.sampled_from(["", "", "expire", "expire one", "checkpoint", "crash"])
REQUESTS = st.lists(
    st.tuples(
        st.sampled_from(["remember", "remember", "label", "label", "learn"]),
        st.lists(st.tuples(KEYS, LABELS), min_size=1, max_size=3, unique_by=lambda pair: pair[0]),
        st.sampled_from([0.0, 1.0, 4.0, 20.0]),  # seconds after it
        PASSES,
        PASSES,
    ),
    min_size=2,
    max_size=14,
)


def carry_out(requests, options, has_passes):
    """Return the model after requests, and how many rows it learned, put aside and keeps."""
    place, clock = tempfile.mkdtemp(), Clock()
    live = LiveModel(f"{place}/live", regressor(memory=16), clock=clock, durable=False, **options)
    for number, (verb, pairs, seconds, early, late) in enumerate(requests):
        keys, labels = [key for key, _ in pairs], [label for _, label in pairs]
        rows = features(*[(number + i / 8, "xy"[i % 2]) for i in range(len(keys))])
        match verb:
            case "remember":
                live.remember(keys, rows)
            case "label":
                live.label(keys, labels)
            case "learn":
                live.learn(rows.append_column("target", pa.array(labels)))
        for what, wait in ((early, seconds / 2), (late, seconds / 2)):
            if has_passes and what == "crash":
                live = LiveModel(crash(live, place), clock=clock, durable=False, **options)
            elif has_passes and what:
                getattr(live, what.split()[0])(**({"limit": 1} if what == "expire one" else {}))
            clock.now += wait
    live.expire()
    figures = (live.rows, live.n_pending, live.n_early, live.n_corrected, live.n_expired, live.n_crowded)
    live.close()
    return live.model, figures, live.n_dropped


@given(REQUESTS, st.sampled_from([2, 100]), st.sampled_from([None, 5.0, 20.0]), st.sampled_from([None, 0.0]))
@settings(max_examples=60, deadline=None)
def test_what_happens_between_requests_changes_nothing(requests, pending_limit, expire_after, default):
    options = {"pending_limit": pending_limit, "expire_after": expire_after, "default": default, "correct_within": 30.0}
    if pending_limit == 2:  # a queue that nobody looks at drops rows beyond twice the limit
        requests = [request for request in requests if request[0] != "remember" or len(request[1]) == 1]
    calm, disturbed = carry_out(requests, options, False), carry_out(requests, options, True)
    if calm[2] == disturbed[2]:
        assert calm[1] == disturbed[1]
        assert same_state(calm[0], disturbed[0])
    else:
        assert pending_limit == 2


@given(st.permutations(range(8)), st.integers(0, 8))
@settings(max_examples=40, deadline=None)
def test_early_labels_in_any_order_equal_sorted_ones(order, n_passes):
    def learned(order, n_passes):
        live = LiveModel(tempfile.mkdtemp(), classifier(), durable=False)
        for place, i in enumerate(order):
            live.label([f"k{i}"], [i % 3])
            live.expire() if place < n_passes else None
        for i in range(8):
            live.remember([f"k{i}"], features((float(i), "xy"[i % 2])))
            live.expire() if i < n_passes else None
        live.expire()
        live.close()
        return live.model

    twin = classifier()
    for i in range(8):
        twin.learn(features((float(i), "xy"[i % 2])), np.array([i % 3]))
    assert same_state(learned(order, n_passes), learned(range(8), 0))
    assert same_state(learned(order, n_passes), twin)


@pytest.mark.parametrize("passes", [False, True])
def test_a_row_that_met_its_label_is_learned_though_its_key_comes_again(tmp_path, passes):
    with LiveModel(tmp_path / "live", regressor()) as live:
        live.label(["k"], [1.0])
        live.remember(["k"], features((1.0, "x")))
        live.expire() if passes else None
        live.remember(["k"], features((2.0, "x")))
        live.expire() if passes else None
        assert live.label(["k"], [3.0])[:2] == (1, 0)
        assert (live.rows, live.n_pending) == (2, 0)
