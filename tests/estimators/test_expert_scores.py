"""What experts said when a row was predicted, handed back with a label that comes late."""

import copy

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import streamboost
from streamboost import SGBClassifier, SGBRegressor, datasets
from streamboost.boosting import loops
from streamboost.persistence.object_graph import same_state
from tests import small_growth

N = 400
X, TARGET, *_ = datasets.friedman(2 * N, noise=1.0, seed=0)
KINDS = {
    "numbers": (lambda **o: SGBRegressor(random_state=0, **o), TARGET),
    "two classes": (lambda **o: SGBClassifier(random_state=0, **o), (TARGET > 14).astype(int)),
    "three classes": (lambda **o: SGBClassifier(random_state=0, **o), np.digitize(TARGET, [12, 17])),
}
kinds = pytest.mark.parametrize("kind", KINDS)
FIRST, LAST = slice(N), slice(N, None)


def begun(kind, **options):
    """A model of the first half of the rows, and the targets of all."""
    make, y = KINDS[kind]
    return make(**options).partial_fit(X[FIRST], y[FIRST]), y


def hedge(model):
    return model.committee_.hedge


@kinds
def test_they_come_with_the_scores_whole_or_row_by_row_and_from_a_frozen_copy(kind):
    model, _ = begun(kind)
    before = copy.deepcopy(model)
    scores, said = model.raw_and_expert_scores(X[LAST])
    assert_array_equal(scores, model.raw_scores(X[LAST]))
    assert said.shape == (N, 1 + len(hedge(model).experts) * model.committee_.loss.n_outputs)
    assert_array_equal(said, model.expert_scores(X[LAST]))
    assert_array_equal(said, np.concatenate([model.expert_scores(row[None]) for row in X[LAST]]))
    assert_array_equal(said, model.freeze().expert_scores(X[LAST]))
    assert same_state(model, before)


@kinds
def test_they_are_the_partial_sums_of_the_boosters(kind):
    model, _ = begun(kind)
    committee = model.committee_
    said = model.expert_scores(X[LAST])[:, 1:].reshape(N, len(hedge(model).experts), -1)
    for e, (b, step) in enumerate(hedge(model).experts):
        walk = committee.boosters[b].walk_checked(X[LAST])
        assert_allclose(said[:, e], hedge(model).combination.hold(walk[:, step]), rtol=1e-12)


@kinds
def test_of_a_row_that_is_learned_at_once_they_are_what_is_learned_anyhow(kind):
    model, y = begun(kind)
    twin = copy.deepcopy(model)
    for row in range(N, N + 50):
        one = slice(row, row + 1)
        model.learn(X[one], y[one])
        twin.learn(X[one], y[one], expert_scores=twin.expert_scores(X[one]))
    assert same_state(model, twin)


@kinds
def test_the_combination_is_learned_from_them_and_nothing_else_is(kind):
    model, y = begun(kind)
    twin, said = copy.deepcopy(model), model.expert_scores(X[LAST])
    m = model.committee_.loss.n_outputs
    if kind == "numbers":
        right = y[LAST, None] - model.committee_.origin
    else:
        right = 20.0 * (y[LAST, None] == model.classes_) - 10.0
    said[:, 1 : 1 + m] = right[:, -m:]
    said[:, 1 + m :] = np.random.default_rng(0).normal(size=(N, said.shape[1] - 1 - m))
    model.learn(X[LAST], y[LAST], expert_scores=said)
    twin.learn(X[LAST], y[LAST])
    told = said[-50:, 1:].reshape(50, -1, m)
    wrong = {}
    for name, each in {"vote": hedge(model).mix, "taught": hedge(model).score, "not taught": hedge(twin).score}.items():
        wrong[name] = np.abs(each(told, model.committee_.loss) - right[-50:, -m:]).mean()
    assert wrong["taught"] < 0.8 * min(wrong["vote"], wrong["not taught"])
    assert_array_equal(hedge(model).losses, hedge(twin).losses)  # whom to believe is learned from what is said now
    for one, other in zip(model.committee_.boosters, twin.committee_.boosters, strict=True):
        assert_array_equal(one.stack.stats, other.stack.stats)
        assert_array_equal(one.base.weights, other.base.weights)


@kinds
@pytest.mark.parametrize("update_mode", ["sequential", 3])
def test_the_plain_loop_takes_them_as_the_compiled_one_does(kind, update_mode, monkeypatch):
    small = {"memory": (16, 64), "n_estimators": 3, "max_depth": 2}
    model, y = begun(kind, update_mode=update_mode, **small)
    twin, rows = copy.deepcopy(model), slice(N, N + 60)
    said = model.expert_scores(X[rows])[::-1].copy()  # of other rows, so that they differ from what is said now
    scores = model.learn(X[rows], y[rows], expert_scores=said)
    told = model.expert_scores(X[LAST])
    monkeypatch.setattr(loops, "COMPILED", ())
    plain = twin.learn(X[rows], y[rows], expert_scores=said)
    assert_allclose(np.asarray(plain, float), np.asarray(scores, float), rtol=1e-9)
    assert_allclose(hedge(twin).weights, hedge(model).weights, rtol=1e-9)
    assert_allclose(hedge(twin).combination.coefficients, hedge(model).combination.coefficients, rtol=1e-7, atol=1e-10)
    assert_allclose(twin.expert_scores(X[LAST]), told, rtol=1e-9, atol=1e-9)


def test_networks_take_them_as_well():
    model = SGBRegressor(learner="mlp", random_state=0).partial_fit(X[FIRST], TARGET[FIRST])
    twin, said = copy.deepcopy(model), model.expert_scores(X[LAST])
    assert_array_equal(said, np.concatenate([model.expert_scores(row[None]) for row in X[LAST]]))
    said[:, 1:] = 0.0
    said[:, 1] = TARGET[LAST] - model.committee_.origin[0]
    model.learn(X[LAST], TARGET[LAST], expert_scores=said)
    twin.learn(X[LAST], TARGET[LAST])
    own, other = hedge(model).combination.coefficients, hedge(twin).combination.coefficients
    assert own[2] > 0.5 > other[2]
    assert_array_equal(hedge(model).losses, hedge(twin).losses)


@kinds
def test_a_chunk_is_its_rows_one_by_one_also_where_experts_come_in_between(kind, monkeypatch):
    small_growth.shrink(monkeypatch.setattr)
    make, y = KINDS[kind]
    model = make(memory="grow", n_estimators=4, max_depth=3).partial_fit(X[:60], y[:60])
    said, before = model.expert_scores(X[60:]), hedge(model).generation
    twin, beginning, without = (copy.deepcopy(model) for _ in range(3))
    model.learn(X[60:], y[60:], expert_scores=said[::-1].copy())
    for row, each in enumerate(said[::-1], 60):
        twin.learn(X[row : row + 1], y[row : row + 1], expert_scores=[each])
    assert same_state(hedge(model), hedge(twin))
    assert_array_equal(model.raw_scores(X), twin.raw_scores(X))
    assert hedge(model).generation > before
    beginning.learn(X[60:63], y[60:63], expert_scores=said[:-4:-1])
    without.learn(X[60:63], y[60:63])
    assert not same_state(hedge(beginning), hedge(without))  # before anybody came


def of_others(model, said):
    """What another set of experts said: such rows are learned as if nobody had kept anything."""
    other = copy.deepcopy(model)
    hedge(other).generation += 1
    return other.expert_scores(X[LAST])


NOT_TAKEN = {
    "nothing": lambda model, said: [None] * N,
    "rows without a value": lambda model, said: np.full_like(said, np.nan),
    "a value too few": lambda model, said: said[:, :-1],
    "not finite": lambda model, said: np.where(np.arange(said.shape[1]) == 2, np.inf, said),
    "of another set": of_others,
    "of another model": lambda model, said: (
        begun("numbers", n_estimators=5)[0]
        .set_params(random_state=1)
        .fit(X[FIRST], TARGET[FIRST])
        .expert_scores(X[LAST])
    ),
    "rows of no length": lambda model, said: [np.empty(0)] * N,
}


@pytest.mark.parametrize("what", NOT_TAKEN)
def test_what_cannot_be_used_is_passed_over(what):
    model, y = begun("numbers")
    twin = copy.deepcopy(model)
    model.learn(X[LAST], y[LAST], expert_scores=NOT_TAKEN[what](model, model.expert_scores(X[LAST]) + 1.0))
    twin.learn(X[LAST], y[LAST])
    assert same_state(model, twin)


def test_some_rows_may_have_them_and_others_not():
    model, y = begun("numbers")
    twin, said = copy.deepcopy(model), list(model.expert_scores(X[LAST])[::-1])
    said[::2] = [None, np.full(3, 7.0)] * (N // 4)
    model.learn(X[LAST], y[LAST], expert_scores=said)
    for row, each in enumerate(said, N):
        one, target = dict(enumerate(X[row].tolist())), float(y[row])
        if row % 2:
            twin.learn_one(one, target, expert_scores=each)
        else:
            twin.learn_one(one, target)
    assert same_state(model, twin)


@kinds
def test_they_outlive_saving_and_a_class_that_comes(kind, tmp_path):
    model, y = begun(kind)
    said = model.expert_scores(X[LAST])
    model.save(tmp_path / "model")
    loaded = streamboost.load(tmp_path / "model")
    model.learn(X[LAST], y[LAST], expert_scores=said[::-1].copy())
    loaded.learn(X[LAST], y[LAST], expert_scores=said[::-1].copy())
    assert same_state(model, loaded)
    if kind == "numbers":
        return
    twin, late = copy.deepcopy(model), y[LAST].copy()
    late[100:] += 7  # classes nobody had a score for
    said = model.expert_scores(X[LAST])
    model.learn(X[LAST], late, expert_scores=said)
    for row in range(N):
        twin.learn(X[N + row : N + row + 1], late[row : row + 1], expert_scores=said[row : row + 1])
    assert same_state(model, twin)


def test_a_row_of_weight_0_leaves_them_with_their_own_rows():
    model, y = begun("numbers")
    twin, said = copy.deepcopy(model), model.expert_scores(X[LAST])[::-1].copy()
    counts = np.arange(N) % 3 > 0
    model.learn(X[LAST], y[LAST], counts.astype(float), expert_scores=said)
    twin.learn(X[LAST][counts], y[LAST][counts], expert_scores=said[counts])
    assert_array_equal(hedge(model).losses, hedge(twin).losses)
    assert_array_equal(hedge(model).combination.coefficients, hedge(twin).combination.coefficients)


@pytest.mark.parametrize("given", [3.0, "text", [None], [[1.0, "a"]] * N, [[[1.0]]] * N], ids=repr)
def test_what_nobody_gave_is_refused_and_changes_nothing(given):
    model, y = begun("numbers")
    before = copy.deepcopy(model)
    with pytest.raises(ValueError, match=r"expert_scores .* expected what expert_scores\(X\) gave"):
        model.learn(X[LAST], y[LAST], expert_scores=given)
    assert same_state(model, before)


def test_another_readout_has_no_experts():
    model = SGBRegressor(memory=64, readout="last", n_estimators=4, random_state=0).partial_fit(X[FIRST], TARGET[FIRST])
    twin, (scores, said) = copy.deepcopy(model), model.raw_and_expert_scores(X[LAST])
    assert_array_equal(scores, model.raw_scores(X[LAST]))
    assert said.shape == (N, 1)
    model.learn(X[LAST], TARGET[LAST], expert_scores=said)
    twin.learn(X[LAST], TARGET[LAST])
    assert same_state(model, twin)
