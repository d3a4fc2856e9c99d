"""The guard: which rows are bad, and that the others are untouched."""

import itertools
import json
import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamboost import SGBClassifier, SGBRegressor
from streamboost.runs.guard import Guard, label_kind
from streamboost.runs.quarantine import Quarantine

values = st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True, width=64))


@given(rows=st.lists(st.tuples(values, values), min_size=1, max_size=30))
@example(rows=[(-math.inf, 1.0), (math.inf, 1.0), (0.0, -math.inf)])
def test_what_the_guard_lets_through_a_model_learns_and_stays_finite(rows):
    table = pa.table(
        {"x": pa.array([x for x, _ in rows], pa.float64()), "y": pa.array([y for _, y in rows], pa.float64())}
    )
    valid = Guard().validate(table, "y", "regression")
    assert valid.good.sum() == len(valid.y) == valid.X.num_rows
    assert set(np.flatnonzero(~valid.good)) == set(valid.reasons)
    for good, (x, y) in zip(valid.good, rows, strict=True):
        fine = y is not None and math.isfinite(y) and abs(y) <= 1e100 and not (x is not None and math.isinf(x))
        assert good == fine
    if len(valid.y):
        model = SGBRegressor(n_estimators=2, memory=32)
        model.learn(valid.X, valid.y)
        assert np.isfinite(model.predict(valid.X)).all()


def settled():
    rng = np.random.default_rng(0)
    table = pa.table({"x": rng.normal(size=300), "y": 10 + rng.normal(size=300)})
    guard, model = Guard(), SGBRegressor(n_estimators=3, memory=64, random_state=0)
    valid = guard.validate(table, "y", "regression", model)
    model.learn(valid.X, valid.y)
    guard.observe(valid.y)
    return guard, model


@pytest.mark.parametrize(
    ("target", "is_bad"), [(11.0, False), (1e5, False), (1e7, False), (1.1e7, True), (-1e30, True)]
)
def test_a_gradient_a_million_times_the_targets_so_far_is_absurd(target, is_bad):
    guard, model = settled()
    valid = guard.validate(pa.table({"x": [0.0], "y": [target]}), "y", "regression", model)
    assert bool(valid.reasons) == is_bad


def test_a_large_target_the_model_expects_is_not_absurd():
    guard, model = settled()
    guard.absurd = 0.5
    near = pa.table({"x": [0.0], "y": [10.0]})
    assert not guard.validate(near, "y", "regression", model).reasons  # the gradient is small, the target is not
    assert guard.validate(near, "y", "regression").reasons


def test_a_bad_target_counts_for_none_of_those_that_tell_the_size():
    y = [1.0] * 99 + [1e101, 1e12, 1e12]  # only the last one comes after a hundred good ones, and these are large
    valid = Guard().validate(pa.table({"x": np.zeros(len(y)), "y": y}), "y", "regression")
    assert set(valid.reasons) == {99}


def test_zeros_so_far_make_no_number_absurd():
    guard = Guard()
    guard.observe(np.zeros(500))
    assert not guard.validate(pa.table({"x": [0.0], "y": [5.0]}), "y", "regression").reasons


@pytest.mark.parametrize(
    ("column", "labels"),
    [
        (pa.array([1.0, 0.0, None]), [1, 0]),
        (pa.array([1.5, 7.0, None]), [7]),
        (pa.array([3, 4, None], pa.int8()), [3, 4]),
        (pa.array(["a", "b", None]), ["a", "b"]),
        (pa.array([True, False, None]), [True, False]),
        (pa.array(["a", "b", None]).dictionary_encode(), ["a", "b"]),
    ],
)
def test_classes_are_what_they_are_and_whole_numbers_are_whole(column, labels):
    valid = Guard().validate(pa.table({"x": [1.0, 2.0, 3.0], "y": column}), "y", "classification")
    assert valid.y.tolist() == labels
    assert list(map(type, valid.y.tolist())) == list(map(type, labels))
    assert "missing" in valid.reasons[2]
    assert (0 in valid.reasons) == (len(labels) == 1)
    SGBClassifier(n_estimators=2).learn(valid.X, valid.y)


def test_text_where_numbers_are_expected_is_bad_unless_it_is_a_number():
    valid = Guard().validate(pa.table({"x": [1.0, 2.0], "y": ["3.5", "many"]}), "y", "regression")
    assert valid.y.tolist() == [3.5]
    assert "'many'" in valid.reasons[1]


def test_a_quarantine_is_cut_back_and_bounded(tmp_path):
    quarantine = Quarantine(tmp_path / "q.jsonl", limit_bytes=1000)
    quarantine.add("first", text="a", position={"row": 1}, row=1)
    kept = quarantine.n, quarantine.length
    quarantine.add("second", text="b", row=2)
    quarantine.truncate(*kept)
    assert [json.loads(line)["reason"] for line in (tmp_path / "q.jsonl").read_text().splitlines()] == ["first"]
    for _ in range(50):
        quarantine.add("more", text="c" * 100, row=3)
    assert quarantine.n == 51
    assert (tmp_path / "q.jsonl").stat().st_size <= 1000
    assert Quarantine(tmp_path / "q.jsonl").length == quarantine.length


@pytest.mark.parametrize("target", [1e160, -1e300])
def test_a_target_whose_square_is_no_number_is_refused_and_the_model_stays_as_it_was(target):
    _, model = settled()
    before = model.predict(pa.table({"x": [0.0]}))
    with pytest.raises(ValueError, match="expected at most 1e\\+100"):
        model.learn(pa.table({"x": [0.0]}), [target])
    with pytest.raises(ValueError, match="expected at most 1e\\+100"):
        model.learn_one({"x": 0.0}, target)
    assert model.predict(pa.table({"x": [0.0]})) == before


@given(
    sizes=st.lists(st.sampled_from([1.0, -2.0, 0.5, 3.0, 1e12, -1e9, 4e6, None]), min_size=1, max_size=60),
    cuts=st.sets(st.integers(1, 160), max_size=5),
    settled=st.sampled_from([0, 60, 100]),
)
def test_a_verdict_does_not_depend_on_where_chunks_begin(sizes, cuts, settled):
    y = pa.array([1.0] * settled + sizes + [1.0, 2.0] * 20, pa.float64())
    table = pa.table({"x": np.zeros(len(y)), "y": y})
    naive, seen = [], []
    for value in y.to_pylist():  # one after the other, by the rule itself
        size = math.sqrt(sum(v * v for v in seen) / len(seen)) if seen else 0.0
        is_good = value is not None and (len(seen) < 100 or abs(value) <= 1e6 * size)
        naive.append(is_good)
        if is_good:
            seen.append(value)
    places = [0, *sorted(cut for cut in cuts if cut < len(y)), len(y)]
    guard, found = Guard(), []
    for start, stop in itertools.pairwise(places):
        valid = guard.validate(table.slice(start, stop - start), "y", "regression")
        guard.observe(valid.y)
        found += valid.good.tolist()
    assert found == naive


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (pa.array([None, None], pa.float64()), "all missing"),
        (pa.array([1, 2], pa.date32()), "of type date32"),
        (pa.array([1, 2], pa.timestamp("s")), "of type timestamp"),
        (pa.array([[1], [2]]), "of type list"),
    ],
)
def test_targets_that_tell_no_task_are_refused(column, reason):
    with pytest.raises(ValueError, match=reason):
        label_kind(pa.chunked_array([column]))


def test_decimals_are_numbers_or_classes_like_others():
    few, many = (pa.chunked_array([pa.array([Decimal(k % n) for k in range(60)])]) for n in (3, 30))
    assert (label_kind(few)[0], label_kind(many)[0]) == ("classification", "regression")
    valid = Guard().validate(pa.table({"x": np.zeros(60), "y": few}), "y", "classification")
    assert valid.y.tolist() == [k % 3 for k in range(60)]
    valid = Guard().validate(pa.table({"x": np.zeros(60), "y": many}), "y", "regression")
    assert valid.y.tolist() == [k % 30 for k in range(60)]


def test_whole_numbers_that_floats_do_not_tell_apart_are_no_classes():
    table = pa.table({"x": [1.0, 2.0, 3.0], "y": [1.0, 2.0**53, -(2.0**53)]})
    valid = Guard().validate(table, "y", "classification")
    assert valid.good.tolist() == [True, False, False]
    assert "expected a class" in valid.reasons[1]
