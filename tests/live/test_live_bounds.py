"""How large a live model may grow."""

import math
import shutil
import tempfile

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from live_models import Clock, classifier, crash, regressor, rows_of

from streamboost.live import LiveModel, NotTogether
from streamboost.live.request_checks import pack_rows
from streamboost.persistence.object_graph import same_state


def wide(*names):
    return pa.table({name: [1.0] for name in names})


def test_a_model_grows_no_wider_than_it_may_whichever_way_columns_come(tmp_path):
    live = LiveModel(tmp_path / "live", regressor(), max_columns=3)
    live.learn(wide("a", "target"))
    for request in (
        lambda: live.learn(wide("b", "c", "d", "target"), id="i"),
        lambda: live.remember(["k"], wide("b", "c", "d"), id="i"),
        lambda: live.predict(wide("b", "c", "d"), ["k"], id="i"),
    ):
        with pytest.raises(ValueError, match="the model would have 4 columns with 'd', expected at most 3"):
            request()
    with pytest.raises(NotTogether, match="4 columns"):
        live.learn_together([wide("b", "c", "d", "target")] * 2, [None, None])
    assert (live.n_pending, live.journal_length, live.n_quarantined) == (0, 1, 0)
    live.label(["later"], [1.0])
    for key, names in {"p": "ab", "q": "cd", "r": "a", "s": "c", "t": "d", "bad": "ef"}.items():
        live.remember([key], wide(*names), id=f"ask {key}")
    labelled = live.label(["bad", "p", "q", "r", "s", "t"], [math.nan, *[1.0] * 5], id="i")
    assert (labelled.learned, sorted(labelled.reasons)) == (3, [0, 2, 5])  # q does not fit after p, and t not after s
    assert "4 columns with 'd'" in labelled.reasons[2]
    assert live.model.encoder_.names == ["a", "b", "c"]
    assert (live.n_pending, live.n_quarantined) == (1, 3)  # the row with a bad label waits on
    live.remember(["q"], wide("c", "d"), id="ask q")  # was answered when there was room, and so is again
    assert live.n_pending == 1
    assert live.label(["bad"], [1.0]).quarantined == 1
    live._journal.put(pack_rows(["later"], wide("z"), 0.0))  # as one that was asked about when there was room
    live.expire()
    assert (live.n_early, live.n_pending, live.n_quarantined, live.rows) == (0, 0, 5, 4)
    model = live.model
    live = LiveModel(crash(live, tmp_path), max_columns=1)  # less than it knows: it learns what it knows
    assert same_state(live.model, model)
    assert live.learn(wide("a", "c", "target")).rows == 1
    assert live.label(["p"], [2.0]).corrected == 1
    live.close()


def test_a_model_knows_no_more_classes_than_it_may_and_early_labels_count(tmp_path):
    clock = Clock()
    options = {"max_classes": 3, "clock": clock, "expire_after": 10.0, "default": "default"}
    live = LiveModel(tmp_path / "live", classifier(), **options)
    live.learn(pa.table({"a": [1.0, 2.0], "target": ["u", "v"]}))
    with pytest.raises(ValueError, match="the model would have 4 classes with 'x', expected at most 3"):
        live.learn(pa.table({"a": [1.0] * 3, "target": ["u", "w", "x"]}))
    with pytest.raises(NotTogether, match="4 classes"):
        live.learn_together([pa.table({"a": [1.0], "target": [name]}) for name in "wx"], [None, None])
    early = live.label(["k1", "k2", "k3", "k4"], ["u", "w", "x", "w"], id="i")
    assert (early.early, early.quarantined, list(early.reasons)) == (3, 1, [2])
    again = live.label(["k5"], ["y"])
    assert (again.early, again.quarantined) == (0, 1)  # w waits, and may come
    assert "4 classes with 'y', expected at most 3" in again.reasons[0]
    live.remember(["p", "q", "r"], pa.table({"a": [1.0, 2.0, 3.0]}))
    labelled = live.label(["p", "q", "r"], ["x", "y", "u"])  # no early label is certain to be learned: x is
    assert (labelled.learned, list(labelled.reasons), live.n_pending) == (2, [1], 1)
    live.predict(pa.table({"a": [1.0, 1.0, 1.0]}), ["k1", "k2", "k4"])
    assert live.model.classes_.tolist() == ["u", "v", "x"]
    assert (live.n_early, live.n_pending) == (0, 3)  # q, k2 and k4 wait on
    clock.now += 10
    assert (live.expire(), live.n_dropped, live.n_pending) == (3, 3, 0)  # the default has no room either
    assert live.model.classes_.tolist() == ["u", "v", "x"]
    model = live.model
    live = LiveModel(crash(live, tmp_path), **options)
    assert same_state(live.model, model)
    assert live.label(["k1", "k2", "k3", "k4"], ["u", "w", "x", "w"], id="i").reasons == early.reasons
    live.close()


def test_numbers_are_no_classes(tmp_path):
    with LiveModel(tmp_path, regressor(), max_classes=2) as live:
        assert live.learn(rows_of(20)).rows == 20
        assert live.label(["k", "l", "m"], [1.0, 2.0, 3.0]).early == 3


asked = st.tuples(st.sets(st.sampled_from("abcdef"), min_size=1, max_size=3), st.sampled_from("uvwxy") | st.none())


@given(st.lists(asked, min_size=1, max_size=8), st.integers(1, 5), st.integers(1, 4), st.booleans())
@settings(max_examples=60, deadline=None)
def test_of_one_request_each_row_is_learned_that_fits_after_those_before_it(asked, max_columns, max_classes, is_begun):
    place = tempfile.mkdtemp()
    live = LiveModel(place, classifier(n_estimators=1), durable=False)
    columns, classes, learned = set(), set(), []
    if is_begun:
        live.learn(pa.table({"a": [1.0], "target": ["u"]}))
        columns, classes = {"a"}, {"u"}
    for i, (names, _) in enumerate(asked):
        live.remember([str(i)], wide(*sorted(names)))
    live.max_columns, live.max_classes = max_columns, max_classes
    known = frozenset(columns)
    for i, (names, label) in enumerate(asked):
        fits = names <= columns or len(columns | names) <= max_columns
        if label is not None and fits and (label in classes or len(classes) < max_classes):
            columns, classes = columns | names, classes | {label}
            learned.append(i)
    labelled = live.label([str(i) for i in range(len(asked))], [label for _, label in asked])
    assert sorted(set(range(len(asked))) - set(labelled.reasons)) == learned
    if learned or is_begun:
        assert set(live.model.encoder_.names) == columns >= known
        assert set(live.model.classes_.tolist()) == classes
    live.close()
    shutil.rmtree(place)
