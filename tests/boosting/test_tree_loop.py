"""The compiled loop beside the plain one: every formula, every state and every score are the same."""

import contextlib
import copy
import dataclasses
import functools
import pickle
import re
import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import streamboost
from streamboost.bases import Constant, Linear
from streamboost.boosting import Booster, drift_replacement, loops
from streamboost.boosting.committee import Committee
from streamboost.boosting.hedge import Hedge, expert_losses
from streamboost.boosting.loops import compiled as in_kernels
from streamboost.boosting.loops.trees import SharedBuffers
from streamboost.descents import Ball, GradientDescent, Nesterov, ResidualProjection
from streamboost.kernels import hedge as hedge_kernels
from streamboost.kernels import losses as loss_kernels
from streamboost.kernels.compiling import compiled
from streamboost.losses import (
    Absolute,
    Hinge,
    Huber,
    Logistic,
    Poisson,
    Quantile,
    Softmax,
    Squared,
)
from streamboost.persistence import snapshots
from streamboost.persistence.object_graph import flatten, same_state
from streamboost.replay import Replay
from streamboost.stacks import LinearStack, TreeStack

MAKERS = {
    "squared_error": Squared,
    "absolute_error": Absolute,
    "quantile": functools.partial(Quantile, tau=0.3),
    "huber": functools.partial(Huber, delta=0.7),
    "poisson": Poisson,
    "logistic": Logistic,
    "hinge": Hinge,
    "log_loss": lambda n_outputs=1, **o: Softmax(n_classes=n_outputs + 1, **o),
}
NAMES = sorted(MAKERS)
DESCENTS = {"algorithm 1": GradientDescent(0.3), "algorithm 2": ResidualProjection(0.5)}
FORMS = {"name": NAMES, "m": (1, 3), "l2": (0.0, 0.3)}  # of a loss: outputs and ridges


def rule(loss, descent=DESCENTS["algorithm 1"]):
    """A loss and a descent as the kernels know them: kind, option, ridge, descent."""
    return in_kernels.rule(Booster(loss, descent))


# The formulas, each compiled as something Python may call

LOSS_NAMES = ["value", "add_gradient", "to_prediction", "to_score", "set_gradients", "slope", "set_targets"]
INSIDE = {loss_kernels: LOSS_NAMES, hedge_kernels: ["expert_loss", "mix", "learn_hedge"]}
alone = types.SimpleNamespace(
    **{name: compiled(getattr(room, name).py_func) for room, names in INSIDE.items() for name in names}
)

EXTREMES = [-1000.0, -301.0, -300.0, -1.0, -0.0, 0.0, 1e-300, 1.0, 37.0, 299.0, 301.0, 1000.0]
some_score = st.one_of(st.sampled_from(EXTREMES), st.floats(-20, 20))


def rows_of(loss, n):
    """Scores (n, m) and targets (n, k), of which some are exactly the scores: at the kinks."""

    def targets(scores):
        m = loss.n_outputs
        if isinstance(loss, Softmax):
            one = st.lists(st.integers(0, m - 1).map(float), min_size=1, max_size=1)
        elif isinstance(loss, (Logistic, Hinge)):
            one = st.lists(st.sampled_from([-1.0, 1.0]), min_size=m, max_size=m)
        elif isinstance(loss, Poisson):
            one = st.lists(st.sampled_from([0.0, 1.0, 7.0, 1e6]), min_size=m, max_size=m)
        else:
            one = st.lists(st.one_of(some_score, st.sampled_from(np.ravel(scores).tolist())), min_size=m, max_size=m)
        return st.lists(one, min_size=n, max_size=n).map(lambda y: (np.array(scores), np.array(y)))

    return st.lists(
        st.lists(some_score, min_size=loss.n_outputs, max_size=loss.n_outputs), min_size=n, max_size=n
    ).flatmap(targets)


def close(ours, theirs):
    """Equal but for rounding, at the size of the largest number about."""
    assert np.isfinite(ours).all()
    size = max(1.0, np.abs(theirs).max(initial=0.0))
    assert_allclose(np.asarray(ours) / size, np.asarray(theirs) / size, rtol=1e-12, atol=1e-14)


@pytest.mark.pairwise(**FORMS)
@given(data=st.data())
@settings(max_examples=10)
def test_losses_gradients_links_and_stakes_are_those_of_the_plain_path(name, m, l2, data):
    loss = MAKERS[name](n_outputs=m, l2=l2)
    scores, y = data.draw(rows_of(loss, 4))
    kind, option, ridge, _ = rule(loss)
    for s in range(4):
        score, target = scores[s], y[s]
        close(alone.value(kind, option, ridge, score, target), loss.value(score, target))
        out = np.arange(1.0, 1.0 + loss.n_outputs)
        alone.add_gradient(kind, option, ridge, score, target, out)
        close(out, np.arange(1.0, 1.0 + loss.n_outputs) + loss.gradient(score, target))
        close(alone.expert_loss(kind, option, ridge, score, target), expert_losses(score[None], target, loss)[0])
        alone.to_prediction(kind, score, out)
        close(out, loss.link.predict(score))
        alone.to_score(kind, out)
        close(out, loss.link.score(loss.link.predict(score)))
    gradients = np.empty((4, loss.n_outputs))
    alone.set_gradients(kind, option, ridge, scores, y, gradients)
    close(gradients, loss.gradient(scores, y))


@pytest.mark.parametrize("loss", [MAKERS[name]() for name in NAMES if name != "log_loss"], ids=repr)
@given(s=some_score, y=some_score)
@settings(max_examples=25)
def test_the_slope_is_the_derivative_of_one_output(loss, s, y):
    if isinstance(loss, (Logistic, Hinge)):
        y = 1.0 if y > 0 else -1.0
    kind, option, _, _ = rule(loss)
    close(alone.slope(kind, option, s, y), loss.gradient(np.array([s]), np.array([y]))[0])


def test_probabilities_of_0_and_1_have_the_scores_the_links_give_them():
    for loss, prediction in [
        (Logistic(n_outputs=2), [0.0, 1.0]),
        (Softmax(n_classes=2), [0.0, 1.0]),
        (Poisson(n_outputs=2), [0.0, 1e200]),
        (Squared(n_outputs=2), [0.0, -1e200]),
    ]:
        out = np.array(prediction)
        alone.to_score(rule(loss)[0], out)
        assert_allclose(out, loss.link.score(np.array(prediction)), rtol=1e-12)


@pytest.mark.pairwise(**FORMS, descent=DESCENTS.values())
@given(data=st.data())
@settings(max_examples=4)
def test_targets_are_those_of_the_descent(name, m, l2, descent, data):
    loss = MAKERS[name](n_outputs=m, l2=l2)
    walk, y = data.draw(rows_of(loss, 4))
    h = np.array(data.draw(st.lists(st.floats(-5, 5), min_size=3 * loss.n_outputs, max_size=3 * loss.n_outputs)))
    h = h.reshape(3, loss.n_outputs)
    targets = np.empty((3, loss.n_outputs))
    assert alone.set_targets(rule(loss, descent), y[0], h, walk, targets)
    close(targets, descent.targets(walk[None], h[None], loss, y[:1])[0])


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_a_target_that_is_not_finite_is_noticed_wherever_it_is(bad):
    for i in range(3):
        walk = np.zeros((4, 2))
        walk[i, 1] = bad
        targets = np.empty((3, 2))
        assert not alone.set_targets(rule(Squared(n_outputs=2)), np.zeros(2), np.zeros((3, 2)), walk, targets)


def test_targets_whose_sum_overflows_are_finite_all_the_same():
    walk, targets = np.full((4, 1), 1e308), np.empty((3, 1))
    assert alone.set_targets(rule(Squared()), np.zeros(1), np.zeros((3, 1)), walk, targets)


@pytest.mark.pairwise(**FORMS)
@given(seed=st.integers(0, 2**32), weights=st.lists(st.sampled_from([0.1, 0.5, 1.0, 2.0]), min_size=1, max_size=8))
@settings(max_examples=5)
def test_the_hedge_is_the_plain_one(name, m, l2, seed, weights):
    loss = MAKERS[name](n_outputs=m, l2=l2)
    rng = np.random.default_rng(seed)
    plain, compiled = (Hedge([(0, e) for e in range(3)], half_lives=(2.0, 20.0)) for _ in range(2))
    paired_test = np.array([0.0, 2.0, 0.0, 0.0, 0.0, 0.0])
    plain_test, expected = paired_test.copy(), np.zeros(4)
    for one in (plain, compiled):
        one.open(loss)
        one.class_counts[:1] += 500.0  # the others are rare
    for w in weights:
        said, then = rng.normal(size=(2, 3, loss.n_outputs))
        y = targets_for(loss, rng.normal(size=1))[0]
        out, room = np.empty(loss.n_outputs), np.empty(loss.n_outputs)
        alone.mix(rule(loss)[0], compiled.weights, said, out, room)
        close(out, plain.mix(said, loss))
        alone.learn_hedge(rule(loss), said, then, y, w, compiled.arrays, paired_test)
        old, _, new = plain.learn(said, y, loss, w, plain_test, then)
        expected += [1.0, w * (old - new), (w * (old - new)) ** 2, w * old]
    for name in ("seen", "losses", "posterior", "weights", "class_counts"):
        close(getattr(compiled, name), getattr(plain, name))
    close(paired_test, plain_test)
    close(paired_test[2:], expected)


def test_constants_are_the_same_on_both_paths():
    assert np.finfo(float).tiny == loss_kernels.SMALLEST
    assert set(in_kernels.LOSSES) == set(streamboost.losses.NAMES.values())


# The same run, on both paths

BASES = {
    "linear": Linear,
    "adagrad": functools.partial(Linear, update="adagrad"),
    "forgetful": functools.partial(Linear, forget=0.97),
    "constant": Constant,
    "falling": functools.partial(Linear, monotonic_cst={0: -1}),  # what rises: its weight is of the wrong sign
}


def targets_for(loss, signal):
    """Targets (n, k) coded as the loss wants them, from a real-valued signal (n,)."""
    m = loss.n_outputs
    if isinstance(loss, Softmax):
        return np.digitize(signal, np.linspace(-1.0, 1.0, m - 1)).astype(float)[:, None]
    several = signal[:, None] + 0.3 * np.arange(m)
    if isinstance(loss, (Logistic, Hinge)):
        return np.where(several > 0, 1.0, -1.0)
    return np.floor(np.abs(several)) if isinstance(loss, Poisson) else several


def stream(loss, n=240, weighted=True, seed=0, d=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    X[:, 1] = X[:, 1].round(1)  # ties
    signal = X[:, 0] + np.sin(3 * X[:, 1]) + 0.3 * rng.normal(size=n)
    X[rng.uniform(size=X.shape) < 0.08] = np.nan
    weight = rng.choice([0.0, 0.3, 1.0, 2.5], size=n) if weighted else np.ones(n)
    return X, targets_for(loss, signal), weight


def booster(loss, descent=None, base=None, window=64, n_learners=5, forget=None, l2=1.0, depth=2, **options):
    return Booster(
        loss,
        descent,
        TreeStack(n_learners, max_depth=depth, n_bins=16, min_samples_leaf=3, forget=forget, l2=l2),
        base=Linear() if base is None else base,
        replay=Replay(window, refit_every=max(4, window // 8), warmup=20, soonest=4),
        **options,
    )


def committee(loss, descent=None, bases=(Linear, Linear, Linear), **options):
    """Three boosters of which no two have anything in common that they need not."""
    first, second, third = bases
    return Committee(
        [
            booster(loss, descent, first(), 128, 6, depth=3),
            booster(loss, paced(descent, 1.5), second(), 64, 4, forget=20.0, l2=0.5),
            booster(loss, paced(descent, 0.5), third(), 32, 3, forget=5.0, l2=2.0, depth=1),
        ],
        **options,
    )


def paced(descent, factor):
    """The same descent with longer steps."""
    if descent is None or descent.step_size is None:
        return descent
    return dataclasses.replace(descent, step_size=factor * descent.step_size)


@contextlib.contextmanager
def plain_path():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loops, "COMPILED", ())
        yield


def same_but_for_rounding(ours, theirs):
    """Whether two models hold the same: whole numbers and truths exactly, numbers up to rounding."""
    ours, theirs = flatten(ours), flatten(theirs)
    assert ours.keys() == theirs.keys()
    for path, value in ours.items():
        other = theirs[path]
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            size = max(1.0, np.abs(value[np.isfinite(value)]).max(initial=0.0))
            assert_allclose(value, other, rtol=1e-7, atol=1e-9 * size, err_msg=path)
        elif isinstance(value, float):
            assert value == pytest.approx(other, rel=1e-7, abs=1e-9, nan_ok=True), path
        else:
            assert_array_equal(value, other, err_msg=path)


def assert_same_run(make, rows, chunk=100):
    """Run both paths over the same rows; scores before, scores after and all state must agree."""
    ours, theirs = make(), make()
    for start in range(0, len(rows[0]), chunk):
        part = [array[start : start + chunk] for array in rows]
        scores = ours.learn(*part)
        with plain_path():
            expected = theirs.learn(*part)
        assert_allclose(scores, expected, rtol=1e-7, atol=1e-8)
    same_but_for_rounding(ours, theirs)
    said = ours.score(rows[0][:20])
    with plain_path():
        assert_allclose(said, theirs.score(rows[0][:20]), rtol=1e-7, atol=1e-8)
    assert not took_the_compiled_loop(theirs)
    return ours


def took_the_compiled_loop(model):
    return getattr(model, "_buffers", None) is not None


@pytest.mark.pairwise(name=NAMES, base=BASES, weighted=[False, True], descent=DESCENTS)
def test_a_booster_runs_alike_on_both_paths(name, base, weighted, descent):
    loss = MAKERS[name](n_outputs=2 if name == "log_loss" else 1)
    model = assert_same_run(lambda: booster(loss, DESCENTS[descent], BASES[base]()), stream(loss, weighted=weighted))
    assert took_the_compiled_loop(model)
    assert (model.stack.feature >= 0).any()  # there are splits to agree on


@pytest.mark.pairwise(name=NAMES, base=["linear", "constant"], descent=DESCENTS)
def test_a_booster_of_several_outputs_and_a_ridge_runs_alike_on_both_paths(name, base, descent):
    loss = MAKERS[name](n_outputs=3, l2=0.05)
    assert_same_run(lambda: booster(loss, DESCENTS[descent], BASES[base](), forget=8.0), stream(loss, 120))


@pytest.mark.pairwise(
    name=NAMES, bases=[("linear", "adagrad", "forgetful"), ("constant", "forgetful", "constant")], descent=DESCENTS
)
def test_a_committee_runs_alike_on_both_paths(name, bases, descent):
    loss = MAKERS[name](n_outputs=2 if name == "log_loss" else 1)
    rows = stream(loss, 160)
    model = assert_same_run(lambda: committee(loss, DESCENTS[descent], [BASES[base] for base in bases]), rows)
    assert took_the_compiled_loop(model)


NEWTON = ["poisson", "logistic", "log_loss"]  # losses that curve here more and there less


@pytest.mark.pairwise(name=NEWTON, m=(1, 3), l2=(0.0, 0.3), weighted=[False, True])
def test_newton_leaves_are_alike_on_both_paths(name, m, l2, weighted):
    loss, descent = MAKERS[name](n_outputs=m, l2=l2), GradientDescent(share=0.2, newton=True)
    rows = stream(loss, 160, weighted=weighted)
    model = assert_same_run(lambda: booster(loss, descent, forget=8.0), rows)
    assert took_the_compiled_loop(model)
    assert_same_run(lambda: committee(loss, descent), rows)


@pytest.mark.parametrize("name", NEWTON)
@given(cuts=st.lists(st.integers(0, 150), max_size=6))
@settings(max_examples=4)
def test_newton_leaves_do_not_mind_where_rows_are_cut_or_saved(name, cuts):
    loss, descent = MAKERS[name](n_outputs=2), GradientDescent(share=0.2, newton=True)
    rows = stream(loss, 150)
    whole, parts = booster(loss, descent), booster(loss, descent)
    expected, scores = whole.learn(*rows), []
    for part in zip(*(np.split(array, sorted(cuts)) for array in rows), strict=True):
        scores.append(parts.learn(*part))
        parts = pickle.loads(pickle.dumps(parts))
    assert_array_equal(np.concatenate(scores), expected)
    assert same_state(parts, whole)


@pytest.mark.parametrize("name", ["squared_error", "logistic", "log_loss"])
def test_a_committee_of_several_outputs_runs_alike_on_both_paths(name):
    loss = MAKERS[name](n_outputs=3)
    assert_same_run(lambda: committee(loss), stream(loss, 160, weighted=False))


@pytest.mark.parametrize("readout", ["last", "mean"])
@pytest.mark.parametrize("descent", [GradientDescent(0.3, "mean"), ResidualProjection(0.5, readout="last")], ids=repr)
def test_either_descent_may_read_out_the_mean_or_the_last_step(descent, readout):
    rows = stream(Squared(), 150)
    assert_same_run(lambda: booster(Squared(), descent), rows)
    assert_same_run(lambda: committee(Squared(), descent, readout=readout), rows)


@pytest.mark.parametrize("descent", [GradientDescent(0.3, "mean"), ResidualProjection(0.5, readout="last")], ids=repr)
def test_an_expert_reads_its_walk_as_its_descent_does(descent):
    assert_same_run(lambda: committee(Squared(), descent), stream(Squared(), 150))


def test_steps_in_between_are_experts_alike_on_both_paths():
    assert_same_run(lambda: committee(Softmax(n_classes=3), steps=(0, 1, 3)), stream(Softmax(n_classes=3), 150))


def test_monotone_trees_run_alike_on_both_paths():
    def make():
        made = booster(Squared())
        made.stack = TreeStack(5, max_depth=3, n_bins=16, monotonic_cst={0: -1, 1: 1})
        return made

    assert_same_run(make, stream(Squared()))


def test_categories_run_alike_on_both_paths():
    X, y, weight = stream(Squared())
    X[:, 1] = np.random.default_rng(1).integers(0, 12, size=240)
    X[::17, 1] = np.nan
    y = y + (X[:, 1:2] % 3 == 0)
    y[np.isnan(y)] = 0.0

    def make():
        made = committee(Squared())
        made.allocate(3, 1)
        made.set_categorical([1], 10)
        return made

    assert_same_run(make, (X, y, weight))


@pytest.mark.parametrize(
    "unknown",
    [
        lambda: booster(Squared(), Nesterov(0.1)),
        lambda: booster(Squared(), GradientDescent("theory")),
        lambda: booster(Squared(), ResidualProjection(0.5, Ball(3.0))),
        lambda: booster(Squared(), iterate="average", snapshots=2),
        lambda: booster(Squared(), update_mode="minibatch"),
        lambda: Booster(Squared(), stack=TreeStack(2, max_depth=2), replay=Replay(None, refit_every=20)),
        lambda: Booster(Squared(), stack=TreeStack(2, max_depth=2), replay=Replay(64, targets="recorded")),
        lambda: Booster(Squared(), stack=TreeStack(2, max_depth=2), replay=Replay(64, learners="all")),
        lambda: Booster(Squared(), stack=TreeStack(2, max_depth=2), replay=None),
        lambda: Booster(Squared(), GradientDescent(0.1), LinearStack(2)),
        lambda: booster(type("OurOwn", (Squared,), {})()),
    ],
)
def test_what_the_compiled_loop_does_not_know_goes_the_plain_way(unknown):
    model, plain = unknown(), unknown()
    rows = stream(Squared(), 60)
    scores = model.learn(*rows)
    assert not took_the_compiled_loop(model)
    with plain_path():
        assert_array_equal(scores, plain.learn(*rows))


# Rows in order, however they are cut


@contextlib.contextmanager
def hasty():
    """Duels within a few hundred rows."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"WAIT": 64, "HEAD_START": 32, "PROOF_ROWS": 64, "PATIENCE": 128, "SIGMAS": 1.0}.items():
            patch.setattr(drift_replacement, name, value)
        yield


def changing_stream(n=520, at=250):
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, size=(n, 3))
    y = 2 * np.sin(3 * X[:, 0]) + 0.1 * rng.normal(size=n)
    y[at:] = -y[at:]
    return X, y


def quick_committee():
    return committee(Squared(), GradientDescent(0.3))


@functools.cache
def run_in_one_chunk():
    with hasty():
        made = quick_committee()
        return made, made.learn(*changing_stream())


def test_the_changing_stream_brings_a_succession():
    made, _ = run_in_one_chunk()
    assert [event.kind for event in made.events] == ["memory dropped"]


@given(cuts=st.lists(st.integers(0, 520), max_size=12))
@settings(max_examples=10)
def test_a_chunk_may_be_cut_anywhere_across_refits_reviews_and_successions(cuts):
    whole, expected = run_in_one_chunk()
    X, y = changing_stream()
    with hasty():
        parts = quick_committee()
        scores = [parts.learn(*part) for part in zip(np.split(X, sorted(cuts)), np.split(y, sorted(cuts)), strict=True)]
    assert_array_equal(np.concatenate(scores), expected)
    assert same_state(parts, whole)


def test_rows_may_come_one_by_one_across_refits_reviews_and_successions():
    whole, expected = run_in_one_chunk()
    X, y = changing_stream()
    scores = []
    with hasty():
        by_row = quick_committee()
        for t in range(len(X)):
            said = by_row.score(X[t : t + 1]) if by_row.is_open else np.zeros((1, 1))
            scores.append(by_row.learn(X[t : t + 1], y[t : t + 1]))
            assert_array_equal(scores[-1], said)  # predicted as it is then scored, and unharmed by the asking
    assert_array_equal(np.concatenate(scores), expected)
    assert same_state(by_row, whole)


def test_a_succession_runs_alike_on_both_paths():
    with hasty():
        assert_same_run(quick_committee, changing_stream())


@pytest.mark.parametrize("name", NAMES)
@given(cuts=st.lists(st.integers(0, 150), max_size=6))
@settings(max_examples=4)
def test_a_booster_does_not_mind_where_its_rows_are_cut(name, cuts):
    loss = MAKERS[name](n_outputs=2)
    rows = stream(loss, 150)
    whole, parts = booster(loss), booster(loss)
    expected = whole.learn(*rows)
    scores = [parts.learn(*part) for part in zip(*(np.split(array, sorted(cuts)) for array in rows), strict=True)]
    assert_array_equal(np.concatenate(scores), expected)
    assert same_state(parts, whole)


def test_refits_at_the_same_time_give_the_same():
    rows = stream(Squared())
    alone, together = committee(Squared()), committee(Squared(), n_jobs=2)
    assert_array_equal(together.learn(*rows), alone.learn(*rows))
    together.n_jobs = None
    assert same_state(together, alone)


# The buffers

MODELS = {
    "booster": lambda: booster(Softmax(n_classes=3)),
    "booster on a constant": lambda: booster(Softmax(n_classes=3), base=Constant()),
    "committee": lambda: committee(Softmax(n_classes=3)),
    "committee on constants": lambda: committee(Softmax(n_classes=3), bases=(Constant, Linear, Constant)),
}


def saved_and_loaded(model, folder):
    snapshots.save(model, folder / "model")
    return snapshots.load(folder / "model")


COPIES = {
    "deep copy": lambda model, folder: copy.deepcopy(model),
    "pickle": lambda model, folder: pickle.loads(pickle.dumps(model)),
    "save and load": saved_and_loaded,
}


@pytest.mark.pairwise(
    kind=["booster", "committee on constants"],
    how=COPIES,
    at=[10, 64, 130],  # before the first refit, as the scale settles, after many refits
)
def test_a_copy_made_mid_stream_goes_on_as_the_original(kind, how, at, tmp_path):
    model, undisturbed = MODELS[kind](), MODELS[kind]()
    X, y, weight = stream(Softmax(n_classes=3), 220)
    model.learn(X[:at], y[:at], weight[:at])
    twin = COPIES[how](model, tmp_path)
    assert same_state(twin, model)
    expected = undisturbed.learn(X, y, weight)[at:]
    for one in (twin, model):  # neither is disturbed by the other
        assert_array_equal(one.learn(X[at:], y[at:], weight[at:]), expected)
        assert same_state(one, undisturbed)


@pytest.mark.parametrize("kind", MODELS)
def test_growing_mid_stream_is_the_same_for_a_model_that_was_copied_before_each_step(kind):
    """Whatever replaces arrays lays the buffers out anew: the run is that of a twin whose buffers is always new."""
    model, renewed = MODELS[kind](), MODELS[kind]()
    steps = [
        lambda one: one.grow(2),
        lambda one: one.add_features(1),
        lambda one: one.add_outputs(Softmax(n_classes=4), -5.0),
        lambda one: one.grow(1),
    ]
    at, width = 0, 3
    for k, step in enumerate(steps):
        X, y, weight = stream(Softmax(n_classes=3), 70, seed=k, d=width)
        renewed = pickle.loads(pickle.dumps(renewed))
        assert_array_equal(model.learn(X, y, weight), renewed.learn(X, y, weight))
        renewed = pickle.loads(pickle.dumps(renewed))
        step(model)
        step(renewed)
        width += k == 1
        at += 70
    X, y, weight = stream(Softmax(n_classes=4), 100, seed=9, d=width)
    assert_array_equal(model.learn(X, y, weight), renewed.learn(X, y, weight))
    assert same_state(model, renewed)
    assert took_the_compiled_loop(model)


@pytest.mark.parametrize("make", [booster, committee])
def test_splitting_mid_stream_lays_the_arena_out_anew(make):
    model, renewed = make(Logistic()), make(Logistic())
    rows = stream(Logistic(), 150)
    model.learn(*rows)
    renewed.learn(*rows)
    renewed = pickle.loads(pickle.dumps(renewed))
    for one in (model, renewed):
        one.split_output(Softmax(n_classes=2))
    rows = stream(Softmax(n_classes=2), 150, seed=1)
    assert_array_equal(model.learn(*rows), renewed.learn(*rows))
    assert same_state(model, renewed)


@pytest.mark.parametrize(
    "change", [lambda one: one.grow(2), lambda one: one.add_features(1)], ids=["grow", "add_features"]
)
def test_growing_mid_stream_runs_alike_on_both_paths(change):
    ours, theirs = committee(Squared()), committee(Squared())
    first, second = stream(Squared(), 120), stream(Squared(), 120, seed=1)
    ours.learn(*first)
    change(ours)
    with plain_path():
        theirs.learn(*first)
        change(theirs)
    width = ours.n_features - 3
    second = (np.column_stack([second[0], second[0][:, :width]]), *second[1:])
    scores = ours.learn(*second)
    with plain_path():
        assert_allclose(scores, theirs.learn(*second), rtol=1e-7, atol=1e-8)
    same_but_for_rounding(ours, theirs)


def test_a_path_may_be_left_and_taken_again():
    """The plain path replaces arrays; the compiled loop must not go on with the old ones."""
    X, y, weight = stream(Absolute(), 300)
    ours, theirs = committee(Absolute()), committee(Absolute())
    expected = ours.learn(X, y, weight)
    scores = []
    for k, rows in enumerate(np.array_split(np.arange(300), 6)):
        with plain_path() if k % 2 else contextlib.nullcontext():
            if k % 2:
                theirs = pickle.loads(pickle.dumps(theirs))  # which forgets the buffers
            scores.append(theirs.learn(X[rows], y[rows], weight[rows]))
    assert_allclose(np.concatenate(scores), expected, rtol=1e-7, atol=1e-8)
    same_but_for_rounding(theirs, ours)


def test_asking_the_boosters_of_a_committee_one_by_one_disturbs_nobody():
    X, y, weight = stream(Squared(), 200)
    asked, undisturbed = committee(Squared()), committee(Squared())
    scores = []
    for start in range(0, 200, 20):
        part = slice(start, start + 20)
        scores.append(asked.learn(X[part], y[part], weight[part]))
        for one in asked.boosters:
            one.score(X[:5])
            one.walk(X[:5])
            one.predict(X[:5])
    assert_array_equal(np.concatenate(scores), undisturbed.learn(X, y, weight))
    assert same_state(asked, undisturbed)


def test_a_booster_may_be_in_two_committees_that_take_turns():
    """Whoever calls has the arrays; the other lays them out again."""
    X, y, weight = stream(Squared(), 120)
    shared, alone = booster(Squared()), booster(Squared())
    weight, alone.origin = np.ones(120), y[0].reshape(-1)  # as a committee counts them, and measures from
    one, other = Committee([shared], readout="last"), Committee([shared], readout="mean")
    one.allocate(3, 1)
    other.is_open = True
    for t in range(0, 120, 10):
        (one if t % 20 else other).learn(X[t : t + 10], y[t : t + 10], weight[t : t + 10])
        alone.learn(X[t : t + 10], y[t : t + 10], weight[t : t + 10])
    assert same_state(shared, alone)


@pytest.mark.parametrize("kind", MODELS)
def test_nothing_that_goes_in_or_comes_out_is_shared(kind):
    model, twin = MODELS[kind](), MODELS[kind]()
    X, y, weight = stream(Softmax(n_classes=3), 100)
    more = stream(Softmax(n_classes=3), 50, seed=1)
    twin.learn(X.copy(), y.copy(), weight.copy())
    scores = model.learn(X, y, weight)
    said = model.score(X)
    state = [value for value in flatten(model).values() if isinstance(value, np.ndarray)]
    for array in (X, y, weight, scores, said):
        assert not any(np.shares_memory(array, held) for held in state)
        array[:] = 1e3
    assert_array_equal(model.learn(*more), twin.learn(*more))
    assert same_state(model, twin)


def test_predicting_right_after_opening_changes_nothing():
    model, twin = booster(Squared()), booster(Squared())
    for one in (model, twin):
        one.allocate(3, 1)
    assert_array_equal(model.score(np.ones((2, 3))), 0.0)
    assert same_state(model, twin)


# Rows that cannot be learned


FAR_OFF = {
    "booster": lambda: booster(Squared(), GradientDescent(0.3), Constant(-1.7e308)),
    "committee": lambda: committee(Squared(), GradientDescent(0.3), bases=3 * [lambda: Constant(-1.7e308)]),
}


@pytest.mark.pairwise(
    at=[20, 100],  # while the scale is being told, and after
    kind=FAR_OFF,
    path=[contextlib.nullcontext, plain_path],
)
def test_a_row_whose_gradient_is_not_finite_leaves_the_model_as_it_was(at, kind, path):
    X, _, weight = stream(Squared(), 150, weighted=False)
    y = np.full(150, -1.7e308)
    y[at] = 1.7e308  # too far from where the base stands for a difference to be a number
    with path(), np.errstate(over="ignore", invalid="ignore"):
        model, twin = (FAR_OFF[kind]() for _ in range(2))
        with pytest.raises(FloatingPointError, match=f"not finite at row {at}, so these rows were not learned"):
            model.learn(X, y, weight)
        assert same_state(model, twin)
        for each in (model, twin):
            each.learn(X[:at], y[:at], weight[:at])
        model.learn(X[at + 1 :], y[at + 1 :], weight[at + 1 :])
        twin.learn(X[at + 1 :], y[at + 1 :], weight[at + 1 :])
    assert same_state(model, twin)


@pytest.mark.parametrize("path", [contextlib.nullcontext, plain_path], ids=["compiled", "plain"])
@pytest.mark.parametrize("make", [booster, committee])
def test_steps_so_large_that_the_walk_overflows_are_refused_row_by_row(make, path):
    X, y, weight = stream(Squared(), 60, weighted=False)
    with path(), np.errstate(over="ignore", invalid="ignore"):
        model, twin = (make(Squared(), GradientDescent(1e90)) for _ in range(2))
        with pytest.raises(FloatingPointError, match="Use a smaller step size, or a projection") as error:
            model.learn(X, y, weight)
        assert same_state(model, twin)
        learned = int(re.search(r"at row (\d+)", str(error.value))[1])
        assert 0 < learned < 60
        for each in (model, twin):
            each.learn(X[:learned], y[:learned], weight[:learned])
        with pytest.raises(FloatingPointError, match=f"at row {learned}"):
            model.learn(X[learned:], y[learned:], weight[learned:])
        assert same_state(model, twin)


# Laying arrays end to end again


def places_of_windows(model):
    """Where the windows of a committee lie."""
    return [booster.replay._X.ctypes.data for booster in model.boosters]


def test_what_a_column_of_levels_leaves_as_it_is_is_not_moved():
    rows = stream(Squared())
    model, twin = committee(Squared()), committee(Squared())
    for one in (model, twin):
        one.learn(*rows)
        one.add_features(1)
        one.learn(*(wider(part) if part is rows[0] else part for part in rows))
    windows = places_of_windows(model)
    twin = copy.deepcopy(twin)  # lies nowhere end to end
    for one in (model, twin):
        one.set_categorical([3], 5)
    more = [wider(rows[0], np.arange(len(rows[0])) % 5.0), *rows[1:]]
    assert_array_equal(model.learn(*more), twin.learn(*more))
    assert places_of_windows(model) == windows
    assert same_state(model, twin)


def test_boosters_in_another_order_or_without_one_are_laid_out_anew():
    rows = stream(Squared())
    model = committee(Squared())
    model.learn(*rows)
    first, second, third = model.boosters
    shared = first.replay._X.base
    assert second.replay._X.base is shared
    SharedBuffers([second, first, third])
    assert first.replay._X.base is not shared
    assert first.replay._X.base is second.replay._X.base
    both = first.replay._X.base
    SharedBuffers([second, first])
    assert first.replay._X.base is not both
    assert_array_equal(first.replay._X, both.reshape(-1, 3)[64 : 64 + 128])  # behind the 64 rows of the second


def wider(X, column=np.nan):
    return np.column_stack([X, np.broadcast_to(column, len(X))])


def places_of_arrays(model):
    """Where the arrays of a committee lie, of each kind one."""
    kept = [(b.eta, b.stack.stats, b.edges.target_ss, b.replay._X, b.replay._leaf_ids) for b in model.boosters]
    lines = [(b.base.weights, b.base.inputs.mean) for b in model.boosters if isinstance(b.base, Linear)]
    return [array.ctypes.data for arrays in (*kept, *lines) for array in arrays]


READS = {
    "score": lambda booster, X: booster.score(X),
    "predict": lambda booster, X: booster.predict(X),
    "walk": lambda booster, X: booster.walk(X),
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("base", [Linear, Constant])
def test_reading_one_booster_leaves_the_buffers_of_its_committee_as_they_are(read, base):
    X, y, weight = stream(Squared(), 300)
    model, twin = (committee(Squared(), bases=3 * [base]) for _ in range(2))
    model.learn(X[:20], y[:20], weight[:20])
    twin.learn(X[:20], y[:20], weight[:20])
    buffers = model._buffers
    for t in range(20, 300, 20):
        rows = slice(t, t + 20)
        places = places_of_arrays(model)
        for b in model.boosters:
            alone = copy.deepcopy(b)  # attached to nothing
            assert_array_equal(READS[read](b, X), READS[read](alone, X))
        assert model._buffers is buffers
        assert buffers.owns(model.boosters)
        assert places_of_arrays(model) == places
        assert_array_equal(model.learn(X[rows], y[rows], weight[rows]), twin.learn(X[rows], y[rows], weight[rows]))
    assert model._buffers is buffers
    assert same_state(model, twin)


def test_a_booster_that_learns_by_itself_leaves_its_committee():
    X, y, weight = stream(Squared(), 100)
    model = committee(Squared())
    model.learn(X, y, weight)
    buffers, alone = model._buffers, copy.deepcopy(model.boosters[0])
    assert_array_equal(model.boosters[0].learn(X, y, weight), alone.learn(X, y, weight))
    assert same_state(model.boosters[0], alone)
    assert not buffers.owns(model.boosters)
