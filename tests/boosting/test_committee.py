"""Boosters side by side, and one score read out of all of them. The compiled loop agrees: test_tree_loop.py."""

import copy
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from river import linear_model

import streamboost
from streamboost import SGBClassifier
from streamboost.bases import Constant
from streamboost.boosting import Booster, loops
from streamboost.boosting.committee import Committee
from streamboost.boosting.loops.trees import TreeLoop
from streamboost.datasets import friedman
from streamboost.descents import GradientDescent, ResidualProjection
from streamboost.losses import Absolute, Logistic, Softmax, Squared, from_functions
from streamboost.persistence.object_graph import same_state
from streamboost.replay import Replay
from streamboost.stacks import FunctionStack, LinearStack, RiverStack, TreeStack

WINDOWS = (128, 64, 32)


def booster(loss=None, window=64, descent=None, n_learners=4, **options):
    return Booster(
        loss or Squared(),
        descent,
        TreeStack(n_learners, max_depth=2, n_bins=16),
        replay=Replay(window, refit_every=max(4, window // 8), warmup=15, soonest=4),
        **options,
    )


def committee(loss=None, windows=WINDOWS, readout="hedge", **options):
    return Committee([booster(loss, window, **options) for window in windows], readout=readout)


def stream(n=150, loss=None, seed=0, missing=0.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = 2 * X[:, 0] + np.sin(3 * X[:, 1]) + 0.1 * rng.normal(size=n)
    if isinstance(loss, Softmax):
        y = np.digitize(y, np.linspace(-1, 1, loss.n_classes - 1)).astype(float)
    if isinstance(loss, Logistic):
        y = np.where(y > 0, 1.0, -1.0)
    X[rng.uniform(size=X.shape) < missing] = np.nan
    return X, y


def rmse(a, b):
    return float(np.sqrt(np.mean((np.ravel(a) - np.ravel(b)) ** 2)))


def log_cosh_value(score, y):
    return np.log(np.cosh(score - y)).sum(axis=-1)


def log_cosh_slope(score, y):
    return np.tanh(score - y)


LOG_COSH = from_functions(log_cosh_value, log_cosh_slope, smooth=True, smoothness=1.0)


def stump(X, target, weight):
    """The better of two halves of the first two columns, as a function."""
    fits = []
    for j in range(2):
        high = X[:, j] > 0
        means = [
            np.average(target[side], axis=0, weights=weight[side]) if side.any() else 0.0 for side in (~high, high)
        ]
        said = np.where(high[:, None], means[1], means[0])
        fits.append((float(weight @ ((target - said) ** 2).sum(axis=1)), j, means))
    _, j, (low_mean, high_mean) = min(fits, key=lambda fit: fit[0])
    return lambda X: np.where(X[:, j : j + 1] > 0, high_mean, low_mean)


COMMITTEES = {
    "regression": lambda: committee(),
    "algorithm 2": lambda: committee(Absolute()),
    "two classes": lambda: committee(Logistic()),
    "three classes": lambda: committee(Softmax(n_classes=3)),
    "the last step": lambda: committee(readout="last"),
    "the mean of steps": lambda: committee(readout="mean"),
    "averaged": lambda: committee(iterate="average", snapshots=3),
    "custom loss": lambda: committee(LOG_COSH),
    "functions": lambda: Committee(
        [
            Booster(
                Squared(), GradientDescent(0.5), FunctionStack(stump, 5), replay=Replay(w, refit_every=8, warmup=10)
            )
            for w in (80, 20)
        ]
    ),
    "river": lambda: Committee(
        [
            Booster(Squared(), GradientDescent(0.3), RiverStack(linear_model.LinearRegression(), 3), base=Constant(0)),
            Booster(Squared(), GradientDescent(0.1), LinearStack(3), base=Constant(0)),
        ]
    ),
}
NATIVE = {"regression", "algorithm 2", "two classes", "three classes", "the last step", "the mean of steps"}


@pytest.fixture(params=COMMITTEES)
def make(request):
    return COMMITTEES[request.param]


def learned(make, n=70):
    made = make()
    made.learn(*stream(n, made.loss))
    return made


# Rows in order


@pytest.mark.parametrize("kind", COMMITTEES)
def test_the_compiled_loop_takes_what_it_knows_and_nothing_else(kind):
    assert isinstance(loops.choose(COMMITTEES[kind]()), TreeLoop) == (kind in NATIVE)


def test_a_chunk_is_its_rows_one_by_one_to_the_last_bit(make):
    whole, apart = make(), make()
    X, y = stream(100, whole.loss, missing=0.05)
    weight = np.random.default_rng(1).integers(0, 2, size=100).astype(float)
    scores = [whole.learn(X[:50], y[:50], weight[:50]), whole.learn(X[50:], y[50:], weight[50:])]
    alone = [apart.learn(X[t : t + 1], y[t : t + 1], weight[t : t + 1]) for t in range(100)]
    assert_array_equal(np.concatenate(scores), np.concatenate(alone))
    assert same_state(whole.hedge, apart.hedge)
    if isinstance(whole.boosters[0].stack, TreeStack):  # models of others cannot be compared
        assert same_state(whole, apart)


def test_learn_returns_what_score_would_have_said_before(make):
    made = learned(make, 60)
    X, y = stream(30, made.loss, seed=1)
    for t in range(30):
        before = made.score(X[t : t + 1])
        assert_array_equal(made.learn(X[t : t + 1], y[t : t + 1]), before)


def test_predicting_changes_nothing(make):
    made, twin = learned(make), learned(make)
    X, y = stream(40, made.loss, seed=1)
    rows = X.copy()
    for said in (made.predict(X), made.score(X), *made.staged_scores(X)):
        said[:] = 1e6
    assert_array_equal(X, rows)
    assert_array_equal(made.hedge.weights, twin.hedge.weights)
    assert_array_equal(made.learn(X, y), twin.learn(X, y))


def test_predicting_right_after_opening_changes_nothing():
    for kind in NATIVE:
        made, twin = COMMITTEES[kind](), COMMITTEES[kind]()
        for one in (made, twin):
            one.allocate(3, 1)
        assert_allclose(made.score(np.zeros((2, 3))), 0.0, atol=1e-12)
        assert same_state(made, twin)


def test_arrays_may_be_written_over_once_they_were_learned(make):
    made, twin = make(), make()
    X, y = stream(80, made.loss)
    twin.learn(X.copy(), y.copy(), np.ones(80))
    weight = np.ones(80)
    scores = made.learn(X, y, weight)
    for array in (X, y, weight, scores):
        array[:] = 1.0
    X, y = stream(40, made.loss, seed=1)
    assert_array_equal(made.learn(X, y), twin.learn(X, y))


def test_an_empty_chunk_is_a_no_op(make):
    made, twin = learned(make), learned(make)
    assert made.learn(np.empty((0, 3)), np.empty(0)).shape == (0, made.loss.n_outputs)
    assert made.score(np.empty((0, 3))).shape == (0, made.loss.n_outputs)
    X, y = stream(20, made.loss, seed=1)
    assert_array_equal(made.learn(X, y), twin.learn(X, y))
    closed = make()
    assert closed.learn(np.empty((0, 3)), np.empty(0)).shape == (0, made.loss.n_outputs)
    assert not closed.is_open


@pytest.mark.parametrize("how", [copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])
@pytest.mark.parametrize("kind", sorted(set(COMMITTEES) - {"functions"}))  # which no pickle takes
def test_a_copy_goes_on_as_the_original_would_have(kind, how):
    made = learned(COMMITTEES[kind])
    twin = how(made)
    X, y = stream(60, made.loss, seed=1)
    assert_array_equal(twin.learn(X, y), made.learn(X, y))
    assert_array_equal(twin.score(X), made.score(X))


# Refusing


def test_refused_rows_leave_no_trace(make):
    made, twin = learned(make), learned(make)
    X, y = stream(20, made.loss, seed=1)
    for rows, complaint in [
        ((X[:, :2], y), "X has 2 features, expected 3"),
        ((np.where(np.arange(3) == 1, np.inf, X), y), "X holds infinity in row 0, column 1"),
        ((X, np.where(np.arange(20) == 7, np.nan, y)), "target in row 7 is nan"),
        ((X, y, np.full(20, -1.0)), r"weight in row 0 is -1\.0"),
        ((X, y[:5]), "X has 20 rows and y has shape"),
    ]:
        with pytest.raises(ValueError, match=complaint):
            made.learn(*rows)
    with pytest.raises(ValueError, match="X has 2 features, expected 3"):
        made.score(X[:, :2])
    assert made.n_rows == twin.n_rows
    assert_array_equal(made.learn(X, y), twin.learn(X, y))


def test_a_committee_that_has_seen_nothing_says_so(make):
    with pytest.raises(ValueError, match="the committee has seen no row yet"):
        make().predict(np.zeros((1, 3)))


@pytest.mark.parametrize(
    ("boosters", "options", "complaint"),
    [
        (lambda: [], {}, "expected one or more, all under the same loss"),
        (lambda: [booster(), booster(Absolute())], {}, "expected one or more, all under the same loss"),
        (lambda: [booster(), booster(update_mode="minibatch")], {}, "expected all of them to agree"),
        (lambda: [booster()], {"readout": "best"}, "readout is 'best', expected 'hedge', 'last' or 'mean'"),
        (lambda: [booster()], {"half_lives": []}, "half_lives is"),
    ],
)
def test_options_that_cannot_work_are_refused(boosters, options, complaint):
    with pytest.raises(ValueError, match=complaint):
        Committee(boosters(), **options)


# One booster


@pytest.mark.parametrize("loss", [Squared(), Logistic(), Softmax(n_classes=3), LOG_COSH], ids=lambda loss: loss.name)
def test_a_committee_of_one_that_reads_the_last_step_is_its_booster(loss):
    alone, one = booster(loss), Committee([booster(loss)], readout="last")
    X, y = stream(200, loss, missing=0.05)
    weight = np.random.default_rng(0).uniform(0.1, 1, size=200).round(1)
    means = [weight[0]]
    for n, w in enumerate(weight[1:], 2):
        means.append(means[-1] + (w - means[-1]) / n)
    if loss.shifts:
        alone.origin = y[:1].copy()
    scores = alone.learn(X, y, weight / means)
    scores[0] = 0.0  # a committee takes its origin from the first row, after it has answered for it
    assert_array_equal(one.learn(X, y, weight), scores)
    assert same_state(one.boosters[0], alone)
    assert_array_equal(one.predict(X), alone.predict(X))


def test_a_committee_of_one_that_reads_the_mean_of_steps_is_algorithm_2():
    alone, one = booster(Absolute()), Committee([booster(Absolute())], readout="mean")
    assert alone.descent == ResidualProjection()
    X, y = stream(200)
    alone.origin = y[:1].copy()
    assert_array_equal(one.learn(X, y)[1:], alone.learn(X, y)[1:])
    assert same_state(one.boosters[0], alone)


@pytest.mark.parametrize("readout", ["last", "mean"])
def test_only_the_hedge_listens_to_the_others(readout):
    X, y = stream(150)
    assert_array_equal(
        committee(readout=readout).learn(X, y), committee(windows=WINDOWS[:1], readout=readout).learn(X, y)
    )


def test_boosters_learn_in_a_committee_what_they_learn_alone():
    made, alone = committee(), [booster(window=window) for window in WINDOWS]
    X, y = stream(200)
    made.learn(X, y)
    for ours, theirs in zip(made.boosters, alone, strict=True):
        theirs.origin = y[:1].copy()
        theirs.learn(X, y)
        assert same_state(ours, theirs)


# The hedge


@pytest.mark.parametrize("kind", sorted(set(COMMITTEES) - {"the last step", "the mean of steps"}))
def test_the_score_is_the_vote_of_the_experts(kind):
    made = COMMITTEES[kind]()
    made.hedge.combination.combines = made.hedge.combination.holds = False
    made = learned(lambda: made)
    X, _ = stream(10, seed=1)
    expected = np.zeros((10, made.loss.n_outputs))
    for (b, step), voice in zip(made.hedge.experts, made.hedge.weights, strict=True):
        one = made.boosters[b]
        assert step in (0, one.stack.n_learners)
        expected += voice * made.loss.predict(one.descent.score(one.walk(X)[:, : step + 1]))
    assert_allclose(made.predict(X), expected, rtol=1e-9, atol=1e-9)


def test_partial_sums_can_be_experts_too():
    made = Committee([booster(window=64), booster(window=32, n_learners=2)], steps=(0, 1, 3))
    assert made.hedge.experts.tolist() == [[0, 0], [0, 1], [0, 3], [0, 4], [1, 0], [1, 1], [1, 2]]
    made.learn(*stream())
    assert sum(made.weights().values()) == pytest.approx(1.0)


def test_weights_are_told_by_memory_and_number_of_learners_the_most_trusted_first():
    made = learned(COMMITTEES["regression"])
    weights = made.weights()
    assert set(weights) == {(window, step) for window in WINDOWS for step in (0, 4)}
    assert list(weights.values()) == sorted(weights.values(), reverse=True)
    assert sum(weights.values()) == pytest.approx(1.0)
    assert weights[(64, 4)] == made.hedge.weights[made.hedge.experts.tolist().index([1, 4])]


def drifting(n, loss):
    data = friedman(n, drift=n // 2, seed=4)
    return data.X, np.where(data.y > np.median(data.y), 1.0, -1.0) if isinstance(loss, Logistic) else data.y


def usual_booster(loss, window, n_learners):
    replay = Replay(window, refit_every=max(32, window // 16), soonest=8)
    return Booster(
        loss,
        GradientDescent(0.2 if isinstance(loss, Squared) else 1.0),
        TreeStack(n_learners, max_depth=4),
        replay=replay,
    )


@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=lambda loss: loss.name)
def test_on_a_stream_that_changes_the_vote_is_close_to_the_best_memory_or_better(loss):
    ladder = [(2048, 20), (512, 15), (128, 10)]
    X, y = drifting(4000, loss)

    def lost(scores):
        return rmse(scores, y) if isinstance(loss, Squared) else float(np.mean(scores[:, 0] * y <= 0))

    alone = [lost(usual_booster(loss, *level).learn(X, y)) for level in ladder]
    together = lost(Committee([usual_booster(loss, *level) for level in ladder]).learn(X, y))
    assert together < max(alone)
    assert together <= 1.03 * min(alone)


def test_after_a_change_the_short_memory_is_believed():
    X, y = drifting(4000, Squared())
    made = Committee([usual_booster(Squared(), 4096, 20), usual_booster(Squared(), 256, 20)])
    made.drift_replacement = None  # the long memory stays
    heard = []
    for start in range(0, 4000, 500):
        made.learn(X[start : start + 500], y[start : start + 500])
        heard.append(sum(voice for (window, _), voice in made.weights().items() if window == 256))
    assert heard[4] > 0.9  # just after it
    assert heard[3] < 0.5


# Stages


def test_the_last_stage_is_the_score(make):
    made = learned(make)
    X, _ = stream(8, seed=2)
    stages = list(made.staged_scores(X))
    assert len(stages) == max(one.stack.n_learners for one in made.boosters)
    assert_allclose(stages[-1], made.score(X), rtol=1e-9, atol=1e-12)


def test_a_stage_knows_only_the_first_learners():
    made = Committee([booster(window=64), booster(window=32, n_learners=2)])
    made.hedge.combination.combines = made.hedge.combination.holds = False
    made.learn(*stream())
    X, _ = stream(8, seed=2)
    stages = list(made.staged_scores(X))
    walks = [one.walk(X) for one in made.boosters]
    for i, stage in enumerate(stages, start=1):
        said = [walks[b][:, min(step, i)] for b, step in made.hedge.experts]
        assert_allclose(stage, sum(v * s for v, s in zip(made.hedge.weights, said, strict=True)), rtol=1e-12)


# Mini-batches


def test_minibatches_are_learned_from_and_are_not_rows_in_order():
    X, y = stream(600)
    sequential, minibatch = committee(), committee(update_mode="minibatch")
    in_order = sequential.learn(X, y)
    batches = np.concatenate([minibatch.learn(X[t : t + 20], y[t : t + 20]) for t in range(0, 600, 20)])
    assert not np.allclose(batches[40:], in_order[40:], rtol=1e-3)
    line = Committee([booster(n_learners=1, descent=GradientDescent(1e-12))]).learn(X, y)
    assert rmse(batches[300:], y[300:]) < 0.9 * rmse(line[300:], y[300:])
    assert minibatch.n_rows == 600
    assert_array_equal(batches[:20], 0.0)  # one score for all of the first chunk


def test_minibatches_of_one_row_are_sequential():
    X, y = stream(100)
    sequential, minibatch = committee(), committee(update_mode="minibatch")
    by_row = np.concatenate([minibatch.learn(X[t : t + 1], y[t : t + 1]) for t in range(100)])
    assert_allclose(by_row, sequential.learn(X, y), rtol=1e-7, atol=1e-9)


# The plain path learns


@pytest.mark.parametrize("kind", ["custom loss", "functions", "averaged"])
def test_what_the_compiled_loop_does_not_know_is_learned_all_the_same(kind):
    X, y = stream(600)
    before = COMMITTEES[kind]().learn(X, y)
    line = Committee([booster(n_learners=1, descent=GradientDescent(1e-12))]).learn(X, y)
    assert rmse(before[300:], y[300:]) < 0.95 * rmse(line[300:], y[300:])


def test_models_of_others_vote_beside_our_own():
    X, y = stream(400)
    made = COMMITTEES["river"]()
    before = made.learn(X, y)
    assert rmse(before[200:], y[200:]) < 0.5 * y.std()
    assert made.drift_replacement is None  # nobody has a memory
    assert made.weights().keys() == {(None, 0), (None, 3)}


# Growing


@pytest.mark.parametrize("kind", ["regression", "three classes", "custom loss", "the last step"])
def test_growing_keeps_the_experts_and_what_they_say(kind):
    made = learned(COMMITTEES[kind])
    X, y = stream(80, made.loss, seed=1)
    weights, before = made.hedge.weights.copy(), made.predict(X)
    made.grow(3)
    assert made.hedge.experts.tolist() == [[b, step] for b in range(3) for step in (0, 7)]
    assert_array_equal(made.hedge.weights, weights)
    assert_allclose(made.predict(X), before, rtol=1e-9, atol=1e-12)
    made.learn(X, y)
    for one in made.boosters:
        assert np.abs(one.stack.predict(X)[:, 4:]).max() > 0


def test_growing_leaves_experts_on_partial_sums_where_they_are():
    made = Committee([booster(), booster(window=32, n_learners=2)], steps=(0, 1))
    made.learn(*stream())
    made.grow(2)
    assert made.hedge.experts.tolist() == [[0, 0], [0, 1], [0, 6], [1, 0], [1, 1], [1, 4]]


@pytest.mark.parametrize("kind", sorted(NATIVE | {"custom loss"}))
def test_new_columns_leave_predictions_and_are_learned(kind):
    made = learned(COMMITTEES[kind])
    X, y = stream(100, made.loss, seed=1)
    before = made.score(X)
    made.add_features(2)
    assert made.n_features == 5
    wide = np.column_stack([X, np.full((100, 2), np.nan)])
    assert_allclose(made.score(wide), before, rtol=1e-9, atol=1e-12)
    wide[:, 3] = y
    made.learn(wide, y)
    moved = wide.copy()
    moved[:, 3] = -moved[:, 3]
    assert np.abs(made.score(wide) - made.score(moved)).max() > 1e-3


def test_a_new_class_starts_at_its_score_and_is_learned():
    made = committee(Softmax(n_classes=2))
    X, y = stream(200)
    made.learn(X, (y > 0).astype(float))
    before = made.predict(X)
    made.add_outputs(Softmax(n_classes=3), -4.0)
    assert_allclose([one.score(X)[:, 2] for one in made.boosters], -4.0)
    after = made.predict(X)
    assert_allclose(after[:, :2] / (1.0 - after[:, 2:]), before, atol=0.02)
    assert after[:, 2].max() < 0.1
    far = X + np.array([8.0, 0.0, 0.0])
    made.learn(far, np.full(200, 2.0))
    assert (made.predict(far).argmax(axis=1) == 2).mean() > 0.9


# From two classes on one score to a score a class


def two_classes(n=300, seed=0):
    return stream(n, Logistic(), seed)


SPLITTING = {
    "trees": lambda **o: booster(Logistic(), **o),
    "trees on a constant": lambda **o: booster(Logistic(), base=Constant(), **o),
    "trees at a fixed step": lambda **o: booster(Logistic(), descent=GradientDescent(0.7), **o),
    "trees with a ridge": lambda **o: booster(Logistic(l2=0.05), **o),
    "linear": lambda **o: Booster(Logistic(), GradientDescent(0.5), LinearStack(3), **o),
    "linear adagrad": lambda **o: Booster(Logistic(), GradientDescent(0.5), LinearStack(3, update="adagrad"), **o),
    "averaged": lambda **o: booster(Logistic(), iterate="average", snapshots=3, **o),
}


@pytest.mark.parametrize("kind", SPLITTING)
def test_splitting_a_score_leaves_the_predictions(kind):
    made = SPLITTING[kind]()
    X, y = two_classes()
    made.learn(X, y)
    before = made.predict(X)[:, 0]
    made.split_output(Softmax(n_classes=2, l2=2.0 * made.loss.l2))
    assert made.score(X).shape == (300, 2)
    assert_allclose(made.predict(X)[:, 1], before, rtol=0, atol=1e-12)
    assert_allclose(made.predict(X)[:, 0], 1.0 - before, rtol=0, atol=1e-12)
    walk = made.walk(X)
    assert_allclose(walk[..., 0], -walk[..., 1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", ["trees", "trees on a constant", "trees at a fixed step", "trees with a ridge"])
def test_two_scores_go_on_nearly_as_the_one_would_have(kind):
    """Two scores that are each other's opposite move apart at twice the pace, so the steps are halved."""
    one, two = SPLITTING[kind](), SPLITTING[kind]()
    X, y = two_classes(500)
    for made in (one, two):
        made.learn(X[:200], y[:200])
    two.split_output(Softmax(n_classes=2, l2=2.0 * two.loss.l2))
    said = one.loss.predict(one.learn(X[200:], y[200:]))[:, 0]
    now = Softmax.link.predict(two.learn(X[200:], (y[200:] + 1.0) / 2.0))[:, 1]
    assert np.abs(said - now).mean() < 0.05
    assert_allclose(now[0], said[0], atol=1e-12)


def test_a_committee_splits_all_of_its_boosters():
    made = committee(Logistic(), descent=GradientDescent(1.0))
    X, y = two_classes()
    made.learn(X, y)
    assert made.splits
    before = made.predict(X)[:, 0]
    held = [one.replay.y.copy() for one in made.boosters]
    made.split_output(Softmax(n_classes=2))
    assert_allclose(made.predict(X)[:, 1], before, rtol=0, atol=1e-12)
    for one, margins in zip(made.boosters, held, strict=True):  # the rows held are class numbers now
        assert_array_equal(one.replay.y, margins > 0)
        assert set(one.opening[:, 0]) == {0.0, 1.0}
    made.add_outputs(Softmax(n_classes=3), -4.0)
    far = X + np.array([8.0, 0.0, 0.0])
    made.learn(far, np.full(300, 2.0))
    assert (made.predict(far).argmax(axis=1) == 2).mean() > 0.9


@pytest.mark.parametrize(
    "parts",
    [
        {"descent": GradientDescent("theory")},
        {"descent": ResidualProjection()},
    ],
)
def test_where_a_score_cannot_be_split_the_committee_says_so(parts):
    assert not committee(Logistic(), **parts).splits


def rows_of_three(n, seed=0):
    """Two classes, told by the first column; and where the last one is large, a third."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    label = np.where(X[:, 0] > 0, "right", "left").astype(object)
    label[X[:, 2] > 1.0] = "far"
    return X, label


def classifier(**options):
    return SGBClassifier(n_estimators=12, max_depth=3, memory=(64, 256), random_state=0, **options)


def test_a_third_class_that_comes_late_is_learned():
    X, label = rows_of_three(2000)
    late = np.arange(2000) >= 1000
    rows = (label != "far") | late
    model = classifier()
    before = model.learn(X[rows], label[rows])
    truth = label[rows]
    assert (before[-400:] == truth[-400:]).mean() > 0.9
    assert (model.predict(X[-300:]) == label[-300:]).mean() > 0.9
    assert model.classes_[2] == "far"
    assert model.events_[-1].kind == "new class"
    assert "far" in model.events_[-1].detail


def test_the_row_that_brings_a_class_is_scored_before_the_class_is_known():
    X, label = rows_of_three(400)
    first = 300
    label[:first][label[:first] == "far"] = "left"
    label[first] = "far"
    model, twin = classifier(), classifier()
    model.learn(X[:first], label[:first])
    twin.learn(X[:first], label[:first])
    expected = model.predict_proba(X[first : first + 1])[0]
    said = model.learn(X[first : first + 3], np.array(["far", "left", "far"], object), method="predict_proba")
    assert said.shape == (3, 3)
    assert said[0, 2] == 0.0
    assert_allclose(said[0, :2], expected, rtol=1e-12)
    assert (said[1:, 2] > 0.0).all()
    twin.learn_one(dict(enumerate(X[first])), "far")  # and the same one by one
    twin.learn_one(dict(enumerate(X[first + 1])), "left")
    twin.learn_one(dict(enumerate(X[first + 2])), "far")
    assert_allclose(twin.predict_proba(X), model.predict_proba(X), rtol=1e-12)


def test_a_class_nobody_has_seen_is_unlikely_where_rows_were_seen():
    X, label = rows_of_three(600)
    label[label == "far"] = "left"
    model = classifier()
    model.learn(X[:599], label[:599])
    before = model.predict_proba(X[:599])
    model.learn(X[599:], np.array(["new"], object))
    after = model.predict_proba(X[:599])
    assert np.median(after[:, 2]) < 0.05
    assert np.quantile(np.abs(after[:, :2] - before), 0.99) < 0.1


def test_a_model_that_saw_three_classes_is_saved_and_goes_on(tmp_path):
    X, label = rows_of_three(500)
    label[:200][label[:200] == "far"] = "left"
    model = classifier()
    model.learn(X[:350], label[:350])
    model.save(tmp_path / "model")
    loaded = streamboost.load(tmp_path / "model")
    assert_array_equal(loaded.learn(X[350:], label[350:]), model.learn(X[350:], label[350:]))
    assert same_state(loaded, model)
