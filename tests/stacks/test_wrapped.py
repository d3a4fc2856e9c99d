"""Anyone's regressors as weak learners: the same numbers as a loop over independent clones."""

import subprocess
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import river
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from river import compose, dummy, ensemble, forest, linear_model, optim, preprocessing, tree
from river import stats as river_stats
from sklearn.cluster import KMeans
from sklearn.ensemble import BaggingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, MultiTaskLasso, Ridge, SGDRegressor
from sklearn.multioutput import MultiOutputRegressor
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVR
from sklearn.tree import DecisionTreeRegressor, ExtraTreeRegressor

from streamboost.bases import Constant
from streamboost.boosting import Booster
from streamboost.descents import GradientDescent
from streamboost.losses import Squared
from streamboost.replay import Replay
from streamboost.stacks.linear import LinearStack
from streamboost.stacks.refitted import BatchStack, FunctionStack
from streamboost.stacks.wrapped import PartialFitStack, RiverStack, wrap

N, D = 3, 2


class MeanAnswer:
    """A hypothesis that can be pickled: the same answer for every row."""

    def __init__(self, mean):
        self.mean = mean

    def __call__(self, X):
        return np.tile(self.mean, (len(X), 1))


def fit_mean(X, target, weight):
    return MeanAnswer(np.average(target, axis=0, weights=weight))


KINDS = {
    "river linear": lambda: RiverStack(preprocessing.StandardScaler() | linear_model.LinearRegression(), N),
    "river tree": lambda: RiverStack(tree.HoeffdingTreeRegressor(grace_period=10), N),
    "river forest": lambda: RiverStack(forest.ARFRegressor(n_models=2), N),
    "sgd": lambda: PartialFitStack(SGDRegressor(), N),
    "mlp": lambda: PartialFitStack(MLPRegressor(hidden_layer_sizes=(3,)), N),
    "batch tree": lambda: BatchStack(DecisionTreeRegressor(max_depth=3), N),
    "batch random tree": lambda: BatchStack(ExtraTreeRegressor(max_depth=3), N),
    "batch svr": lambda: BatchStack(SVR(), N),
    "function": lambda: FunctionStack(fit_mean, N),
}
RANDOM = ["river forest", "mlp", "batch random tree"]


def rows(n=40, d=D, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def answers(X, m=1, n_learners=N):
    """Targets (n, N, m) that differ between learners and outputs, and can be learned."""
    slopes = np.random.default_rng(7).normal(size=(X.shape[1], n_learners * m))
    return (np.nan_to_num(X) @ slopes).reshape(len(X), n_learners, m)


def opened(stack, m=1, seed=0):
    """Open a stack, or a new one of the kind named."""
    stack = KINDS[stack]() if isinstance(stack, str) else stack
    stack.open(D, m, seed)
    return stack


def train(stack, X, targets, weight=None):
    """Let the learners learn, those that can be refitted from a window that holds just these rows."""
    weight = np.ones(len(X)) if weight is None else weight
    stack.learn(X, targets, weight)
    for i in stack.refittable:
        assert stack.refit(i, SimpleNamespace(X=X), targets[:, i], weight) is None
    return stack


# What every kind promises, besides the contract (test_contracts.py).


@pytest.mark.parametrize("kind", RANDOM)
def test_learners_of_one_stack_and_stacks_of_two_seeds_differ_in_their_randomness(kind):
    X = rows()
    same_for_all = np.repeat(answers(X, n_learners=1), N, axis=1)
    said = train(opened(kind, seed=1), X, same_for_all).predict(X)
    assert not np.array_equal(said[:, 0], said[:, 1])
    assert not np.array_equal(said, train(opened(kind, seed=2), X, same_for_all).predict(X))


@settings(max_examples=10, deadline=None)
@given(zeros=st.sets(st.integers(0, 19)), kind=st.sampled_from(list(KINDS)))
def test_a_row_of_weight_0_was_never_there(zeros, kind):
    X = rows(20)
    weight = np.array([float(t not in zeros) for t in range(20)])
    weighed = train(opened(kind), X, answers(X), weight)
    without = train(opened(kind), X[weight > 0], answers(X)[weight > 0])
    assert_array_equal(weighed.predict(X), without.predict(X))


# River.


def loop(models, X, targets, **extra):
    """The naive way: (N, m) independent River models, fed one after another."""
    for x, target in zip(X, targets, strict=True):
        for i, outputs in enumerate(models):
            for j, model in enumerate(outputs):
                model.learn_one({key: v for key, v in enumerate(x.tolist()) if v == v}, float(target[i, j]), **extra)


def ask(models, X):
    return np.array(
        [
            [
                [m.predict_one({key: v for key, v in enumerate(x.tolist()) if v == v}) for m in outputs]
                for outputs in models
            ]
            for x in X
        ]
    )


@pytest.mark.parametrize(
    "pattern",
    [
        preprocessing.StandardScaler() | linear_model.LinearRegression(optim.SGD(0.05)),
        tree.HoeffdingTreeRegressor(grace_period=10),
        linear_model.PARegressor(),
    ],
)
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_a_river_stack_is_a_loop_over_clones(pattern, missing):
    X = rows(80)
    X[np.random.default_rng(1).random(X.shape) < missing] = np.nan
    stack = opened(RiverStack(pattern, N), 2)
    clones = [[pattern.clone() for _ in range(2)] for _ in range(N)]
    for chunk in np.array_split(np.arange(80), 7):
        stack.learn(X[chunk], answers(X, 2)[chunk], np.ones(len(chunk)))
    loop(clones, X, answers(X, 2))
    assert_array_equal(stack.predict(X), ask(clones, X))


def test_a_river_forest_is_a_loop_over_forests_of_different_seeds():
    X = rows(60)
    stack = train(opened("river forest", 2), X, answers(X, 2))
    seeds = [[copy_.model.seed for copy_ in copies] for copies in stack._copies]
    assert len({seed for row in seeds for seed in row}) == N * 2
    clones = [[forest.ARFRegressor(n_models=2, seed=seed) for seed in row] for row in seeds]
    loop(clones, X, answers(X, 2))
    assert_array_equal(stack.predict(X), ask(clones, X))


@settings(max_examples=15, deadline=None)
@given(cuts=st.lists(st.integers(0, 30), max_size=4))
def test_chunks_make_no_difference_to_a_river_stack(cuts):
    X = rows(30)
    whole, pieces = opened("river tree"), opened("river tree")
    whole.learn(X, answers(X), np.ones(30))
    for part in np.split(np.arange(30), sorted(cuts)):
        pieces.learn(X[part], answers(X)[part], np.ones(len(part)))
    assert_array_equal(whole.predict(X), pieces.predict(X))


def test_seeds_reach_models_inside_pipelines_and_inside_other_models():
    inner = compose.Pipeline(preprocessing.StandardScaler(), forest.ARFRegressor(n_models=1, seed=5))
    pattern = preprocessing.StandardScaler() | ensemble.BaggingRegressor(inner, n_models=2, seed=5)
    stack = opened(RiverStack(pattern, 2))
    X = rows(5)
    stack.learn(X, answers(X, n_learners=2), np.ones(5))
    bags = [copies[0].model["BaggingRegressor"] for copies in stack._copies]
    seeds = [bag.seed for bag in bags] + [bag.model["ARFRegressor"].seed for bag in bags]
    assert len({*seeds, 5}) == 5


@pytest.mark.parametrize(
    "pattern", [linear_model.LinearRegression(), preprocessing.StandardScaler() | linear_model.LinearRegression()]
)
def test_weights_reach_a_river_model_as_w_or_are_refused(pattern):
    X = rows()
    stack = opened(RiverStack(pattern, N))
    clones = [[stack.model.clone()] for _ in range(N)]
    if hasattr(pattern, "steps") and tuple(map(int, river.__version__.split(".")[:2])) < (0, 24):
        with pytest.raises(ValueError, match=r"weight holds 0\.5.*pipeline of River before 0\.24"):
            stack.learn(X, answers(X), np.full(len(X), 0.5))
        return
    stack.learn(X, answers(X), np.full(len(X), 0.5))
    loop(clones, X, answers(X), w=0.5)
    assert_array_equal(stack.predict(X), ask(clones, X))
    unweighted = train(opened(RiverStack(pattern, N)), X, answers(X))
    assert not np.array_equal(stack.predict(X), unweighted.predict(X))


@pytest.mark.parametrize(
    "pattern",
    [linear_model.PARegressor(), preprocessing.StandardScaler() | linear_model.PARegressor()],
)
def test_a_river_model_without_w_refuses_weights_before_it_learns_anything(pattern):
    X = rows(3)
    stack = opened(RiverStack(pattern, N))
    with pytest.raises(
        ValueError, match=r"weight holds 0\.5, but PARegressor learns without weights .* expected 0 or 1"
    ):
        stack.learn(X, answers(X), np.array([1.0, 0.0, 0.5]))
    assert_array_equal(stack.predict(X), 0.0)


class RiverSays:
    """Speaks River, and always says the same."""

    def __init__(self, answer):
        self.answer = answer

    def clone(self):
        return RiverSays(self.answer)

    def learn_one(self, x, y):
        pass

    def predict_one(self, x):
        return self.answer


@pytest.mark.parametrize("answer", [None, float("nan"), np.float64("nan")])
def test_no_answer_of_a_river_model_is_0(answer):
    X = rows(3)
    stack = train(opened(RiverStack(RiverSays(answer), N)), X, answers(X))
    assert_array_equal(stack.predict(X), 0.0)


@pytest.mark.parametrize("answer", [float("inf"), -np.inf, "yes", {0: 1.0}])
def test_an_impossible_answer_of_a_river_model_is_refused_with_its_name(answer):
    X = rows(3)
    stack = train(opened(RiverStack(RiverSays(1.0), N)), X, answers(X))
    assert_array_equal(stack.predict(X), 1.0)
    stack._copies[2][0].model.answer = answer
    with pytest.raises(ValueError, match=r"learner 2 \(RiverSays\) said .* of row 0, expected a finite number"):
        stack.predict(X)


def test_columns_added_mid_stream_reach_all_river_learners():
    X, wide = rows(), rows(200, d=D + 1, seed=1)
    stack = train(opened("river linear"), X, answers(X))
    stack.add_features(1)
    targets = np.repeat(wide[:, 2:, None], N, axis=1)
    stack.learn(wide, targets, np.ones(len(wide)))
    assert_allclose(stack.predict(wide), targets, atol=0.3)


def test_importing_the_stacks_does_not_import_river():
    check = "import sys, streamboost.stacks.wrapped; sys.exit('river' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


# scikit-learn, chunk after chunk.


@pytest.mark.parametrize("pattern", [SGDRegressor(), MLPRegressor(hidden_layer_sizes=(3,))])
def test_a_partial_fit_stack_is_a_loop_over_clones(pattern):
    X, targets = rows(60), answers(rows(60), 2)
    stack = opened(PartialFitStack(pattern, N), 2)
    chunks = np.array_split(np.arange(60), 7)
    for chunk in chunks:
        stack.learn(X[chunk], targets[chunk], np.ones(len(chunk)))
    states = [[copy_.model.random_state for copy_ in copies] for copies in stack._copies]
    assert len({state for row in states for state in row}) == N * 2
    for i in range(N):
        for j in range(2):
            alone = type(pattern)(**{**pattern.get_params(), "random_state": states[i][j]})
            for chunk in chunks:
                alone.partial_fit(X[chunk], targets[chunk, i, j])
            assert_array_equal(stack.predict(X)[:, i, j], alone.predict(X))


def test_weights_reach_partial_fit_as_sample_weight():
    X, targets = rows(), answers(rows())
    weight = np.random.default_rng(2).uniform(0.1, 3.0, size=len(X))
    stack = opened(PartialFitStack(SGDRegressor(shuffle=False), N))
    stack.learn(X, targets, weight)
    alone = SGDRegressor(shuffle=False).partial_fit(X, targets[:, 1, 0], sample_weight=weight)
    assert_array_equal(stack.predict(X)[:, 1, 0], alone.predict(X))


class Says:
    """Speaks scikit-learn without being of it, takes no weights, and always says the same."""

    def __init__(self, answer=0.0):
        self.answer = answer

    def fit(self, X, y):
        return self

    def partial_fit(self, X, y):
        self.seen = X
        return self

    def predict(self, X):
        return self.answer


def test_an_estimator_without_sample_weight_refuses_weights_before_it_learns_anything():
    X = rows(3)
    stack = opened(PartialFitStack(Says(np.ones(3)), N))
    with pytest.raises(ValueError, match=r"weight holds 2\.0, but Says learns without weights .*no sample_weight"):
        stack.learn(X, answers(X), np.array([1.0, 0.0, 2.0]))
    assert_array_equal(stack.predict(X), 0.0)
    batch = opened(BatchStack(Says(np.ones(3)), N))
    with pytest.raises(ValueError, match="its fit has no sample_weight"):
        batch.refit(0, SimpleNamespace(X=X), answers(X)[:, 0], np.array([1.0, 0.0, 2.0]))
    assert_array_equal(batch.predict(X), 0.0)


def test_a_missing_value_is_0_to_an_estimator_that_takes_no_nan():
    X = rows()
    holes = X.copy()
    holes[::3, 0] = np.nan
    filled = np.nan_to_num(holes)
    for kind in ("sgd", "batch svr"):
        holed, plain = train(opened(kind), holes, answers(X)), train(opened(kind), filled, answers(X))
        assert_array_equal(holed.predict(holes), plain.predict(filled))


def test_nan_reaches_estimators_that_take_it_or_say_nothing_about_it():
    X = rows()
    X[::3, 0] = np.nan
    missing = np.isnan(X[:, :1])
    tells_apart = opened(BatchStack(DecisionTreeRegressor(max_depth=1), 1))
    tells_apart.refit(0, SimpleNamespace(X=X), missing.astype(float), np.ones(len(X)))
    assert_array_equal(tells_apart.predict(X)[:, 0], missing)
    untagged = opened(PartialFitStack(Says(), 1))
    untagged.learn(X, answers(X, n_learners=1), np.ones(len(X)))
    assert_array_equal(untagged._copies[0][0].model.seen, X)


def test_a_pipeline_imputes_for_itself():
    X, target = rows(), answers(rows())[:, 0]
    X[::3, 0] = np.nan
    pattern = make_pipeline(SimpleImputer(strategy="constant", fill_value=9.0), Ridge())
    stack = opened(BatchStack(pattern, 1))
    stack.refit(0, SimpleNamespace(X=X), target, np.ones(len(X)))
    nines = np.where(np.isnan(X), 9.0, X)
    assert_allclose(stack.predict(X)[:, 0, 0], Ridge().fit(nines, target[:, 0]).predict(nines))


def test_a_trained_copy_keeps_its_columns_and_a_new_one_sees_them_all():
    X, wide = rows(), rows(d=D + 1, seed=1)
    stack = train(opened("sgd"), X, answers(X))
    stack.add_features(1)
    stack.grow(1)
    train(stack, wide, answers(wide, n_learners=N + 1))
    assert [copies[0].model.n_features_in_ for copies in stack._copies] == [D, D, D, D + 1]


def test_an_estimator_that_wants_columns_gets_them():
    X, targets = rows(), answers(rows())
    partial = opened(PartialFitStack(MultiOutputRegressor(SGDRegressor()), N))
    assert np.abs(train(partial, X, targets).predict(X)).max() > 0
    batch = opened(BatchStack(MultiTaskLasso(alpha=0.01), N))
    train(batch, X, targets)
    alone = MultiTaskLasso(alpha=0.01).fit(X, targets[:, 2])
    assert_array_equal(batch.predict(X)[:, 2], alone.predict(X).reshape(-1, 1))


def test_warnings_of_an_estimator_are_passed_on():
    class Warns(Says):
        def partial_fit(self, X, y):
            warnings.warn("will be gone soon", FutureWarning, stacklevel=2)
            return self

    stack = opened(PartialFitStack(Warns(), 1))
    with pytest.warns(FutureWarning, match="gone soon"):
        stack.learn(rows(2), answers(rows(2), n_learners=1), np.ones(2))


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (np.array([1.0, np.nan, 2.0]), r"said nan of row 1, expected a finite number"),
        (np.array([1.0, 2.0, np.inf]), r"said inf of row 2"),
        (np.zeros(4), r"said an array of shape \(4,\), expected \(3, 1\)"),
        (np.zeros((3, 2)), r"said an array of shape \(3, 2\), expected \(3, 1\)"),
        (None, r"said None of 3 rows, expected an array of shape \(3, 1\)"),
        ("seven", r"said 'seven' of 3 rows"),
        (1.5, r"said 1\.5 of 3 rows"),
    ],
)
def test_an_impossible_answer_is_refused_with_the_learner_s_name(answer, complaint):
    X = rows(3)

    def fit_badly(X, target, weight):
        return lambda X: answer

    stacks = [PartialFitStack(Says(answer), N), BatchStack(Says(answer), N), FunctionStack(fit_badly, N)]
    for stack, name in zip(stacks, ["Says", "Says", "fit_badly"], strict=True):
        stack.open(D, 1)
        train(stack, X, answers(X))
        with pytest.raises(ValueError, match=rf"learner 0 \({name}\) {complaint}"):
            stack.predict(X)


# Refitted learners.


@pytest.mark.parametrize("pattern", [Ridge(), SVR(), DecisionTreeRegressor(max_depth=3), BaggingRegressor(Ridge(), 3)])
@pytest.mark.parametrize("m", [1, 2])
def test_a_batch_stack_is_a_loop_over_fits(pattern, m):
    X, targets = rows(), answers(rows(), m)
    weight = np.random.default_rng(2).uniform(0.1, 3.0, size=len(X))
    stack = opened(BatchStack(pattern, N), m)
    train(stack, X, targets, weight)
    for i in range(N):
        for j, column in enumerate(targets[:, i].T):
            models = stack._fitted[i].model
            state = models[min(j, len(models) - 1)].get_params().get("random_state")
            alone = type(pattern)(**pattern.get_params(deep=False))
            if len(models) == 1 and m > 1:
                expected = alone.fit(X, targets[:, i], sample_weight=weight).predict(X)[:, j]
            else:
                alone.set_params(**({} if state is None else {"random_state": state}))
                expected = alone.fit(X, column, sample_weight=weight).predict(X)
            assert_allclose(stack.predict(X)[:, i, j], expected, rtol=1e-12)


def test_one_clone_answers_for_all_outputs_where_the_estimator_can():
    X = rows()
    for pattern, clones in [(DecisionTreeRegressor(), 1), (LinearRegression(), 1), (SVR(), 2)]:
        stack = opened(BatchStack(pattern, N), 2)
        train(stack, X, answers(X, 2))
        assert [len(fitted.model) for fitted in stack._fitted] == [clones] * N


@pytest.mark.parametrize("kind", ["batch tree", "batch svr", "function"])
def test_learning_between_refits_does_nothing_and_a_refit_touches_one_learner(kind):
    X, other = rows(), rows(seed=1)
    stack = train(opened(kind), X, answers(X))
    before = stack.predict(X)
    stack.learn(other, answers(other) + 9.0, np.ones(len(other)))
    assert_array_equal(stack.predict(X), before)
    stack.refit(1, SimpleNamespace(X=other), answers(other)[:, 1] + 9.0, np.ones(len(other)))
    after = stack.predict(X)
    assert_array_equal(after[:, [0, 2]], before[:, [0, 2]])
    assert (after[:, 1] != before[:, 1]).any()
    assert list(stack.refittable) == [0, 1, 2]


def test_a_fitted_model_does_not_follow_the_window_that_is_written_over():
    X = rows()
    window, target, weight = X.copy(), answers(X)[:, 0], np.ones(len(X))
    batch = BatchStack(KNeighborsRegressor(1, algorithm="brute"), 1)  # it keeps the rows it is shown
    nearest = FunctionStack(
        lambda X, target, weight: lambda rows: target[[np.abs(X - r).sum(1).argmin() for r in rows]], 1
    )
    for stack in (batch, nearest):
        stack.open(D, 1)
        stack.refit(0, SimpleNamespace(X=window), target, weight)
    expected = target.copy()
    window[:], target[:] = 7.0, 7.0
    for stack in (batch, nearest):
        assert_array_equal(stack.predict(X)[:, 0], expected)


def test_a_window_of_weight_0_leaves_a_learner_as_it_is():
    X = rows()
    stack = train(opened("batch tree"), X, answers(X))
    before = stack.predict(X)
    stack.refit(0, SimpleNamespace(X=X), answers(X)[:, 0] + 9.0, np.zeros(len(X)))
    assert_array_equal(stack.predict(X), before)


def test_a_failed_fit_leaves_the_learner_as_it_is():
    X = rows()
    stack = train(opened("function"), X, answers(X))
    before = stack.predict(X)
    stack.fit = lambda X, target, weight: None
    with pytest.raises(TypeError, match="fit_mean returned None for learner 1, expected a function"):
        stack.refit(1, SimpleNamespace(X=X), answers(X)[:, 1], np.ones(len(X)))
    assert_array_equal(stack.predict(X), before)


def test_a_function_that_writes_into_the_rows_hears_about_it():
    def spoil(X, target, weight):
        def h(X):
            X[:] = 0.0
            return X[:, :1]

        return h

    X = rows()
    stack = train(opened(FunctionStack(spoil, 1)), X, answers(X, n_learners=1))
    with pytest.raises(ValueError, match="read-only"):
        stack.predict(X)
    assert_array_equal(X, rows())


def test_a_function_may_answer_flat_for_a_single_output():
    X = rows()
    stack = opened(FunctionStack(lambda X, target, weight: lambda rows: rows[:, 0], 1))
    assert_array_equal(train(stack, X, answers(X, n_learners=1)).predict(X)[:, 0, 0], X[:, 0])


# Choosing.


def test_wrap_picks_the_stack_for_the_model():
    assert type(wrap(linear_model.LinearRegression())) is RiverStack
    assert type(wrap(preprocessing.StandardScaler() | tree.HoeffdingTreeRegressor())) is RiverStack
    assert type(wrap(SGDRegressor())) is PartialFitStack
    assert type(wrap(Ridge())) is BatchStack
    assert type(wrap(make_pipeline(SimpleImputer(), Ridge()))) is BatchStack
    assert type(wrap(fit_mean)) is FunctionStack
    assert wrap(Ridge()).n_learners == 10
    assert wrap(Ridge(), 4).n_learners == 4


def test_wrap_returns_a_stack_as_it_is():
    stack = LinearStack(5)
    assert wrap(stack) is stack
    assert wrap(stack, 60) is stack
    assert stack.n_learners == 5


@pytest.mark.parametrize("model", [3, "tree", None, object(), preprocessing.StandardScaler()])
def test_wrap_says_what_it_accepts(model):
    with pytest.raises(
        TypeError, match=r"expected a Stack, a River regressor .*, a scikit-learn regressor .*, or a func"
    ):
        wrap(model)


@pytest.mark.parametrize("make", [wrap, RiverStack, PartialFitStack, BatchStack])
@pytest.mark.parametrize("model", [Ridge, SGDRegressor, linear_model.LinearRegression])
def test_a_class_instead_of_an_instance_is_refused(make, model):
    with pytest.raises(TypeError, match=rf"is the class {model.__name__}, expected an instance"):
        make(model)


@pytest.mark.parametrize(
    "model",
    [
        LogisticRegression(),
        KMeans(),
        linear_model.LogisticRegression(),
        preprocessing.StandardScaler() | linear_model.LogisticRegression(),
        dummy.PriorClassifier(),
    ],
)
def test_models_that_do_not_regress_are_refused(model):
    with pytest.raises(TypeError, match="expected a regressor"):
        wrap(model)


@pytest.mark.parametrize(
    ("make", "model"),
    [(RiverStack, Ridge()), (PartialFitStack, Ridge()), (BatchStack, dummy.StatisticRegressor(river_stats.Mean()))],
)
def test_a_model_in_the_wrong_stack_is_sent_to_wrap(make, model):
    with pytest.raises(TypeError, match="For other models use wrap"):
        make(model)


def test_a_function_stack_wants_a_function():
    with pytest.raises(TypeError, match="fit is 3, expected a function"):
        FunctionStack(3)


@pytest.mark.parametrize("n_learners", [0, -1, 2.5])
def test_the_number_of_learners_is_checked(n_learners):
    with pytest.raises(ValueError, match="n_learners is"):
        wrap(Ridge(), n_learners)


# In a booster.


@pytest.mark.parametrize(
    "model",
    [preprocessing.StandardScaler() | linear_model.LinearRegression(optim.SGD(0.05)), SGDRegressor(eta0=0.05)],
)
def test_a_booster_of_linear_models_learns_a_line(model):
    X = rows(600)
    y = X @ [1.0, -2.0] + 0.5
    booster = Booster(Squared(), GradientDescent(0.5), wrap(model, 6), base=Constant(0), semantics="minibatch")
    for chunk in np.split(np.arange(600), 60):
        booster.learn(X[chunk], y[chunk])
    fresh = rows(200, seed=1)
    # six learners that each halve what is left leave 1/64 of it
    error = booster.score(fresh)[:, 0] - (fresh @ [1.0, -2.0] + 0.5)
    assert np.sqrt(np.mean(error**2)) < 0.05 * y.std()


def test_boosted_batch_trees_beat_the_first_of_them():
    X = np.random.default_rng(0).uniform(size=(400, 3))
    y = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2

    def error(n_learners):
        stack = BatchStack(DecisionTreeRegressor(max_depth=3), n_learners)
        replay = Replay(window=256, refit_every=16)
        booster = Booster(Squared(), GradientDescent(0.3), stack, base=Constant(0), replay=replay)
        before = booster.learn(X, y)[:, 0]
        return np.mean((before[-200:] - y[-200:]) ** 2)

    assert error(6) < 0.5 * error(1)


def test_a_batch_stack_under_exact_replay_is_follow_the_leader():
    """With everything kept and refitted at every row, the one learner is the fit to all rows so far."""
    X = rows(12)
    y = X @ [1.0, -2.0]
    booster = Booster(Squared(), GradientDescent(1.0), wrap(Ridge(), 1), base=Constant(0), replay=Replay.exact())
    before = booster.learn(X, y)[:, 0]
    for t in range(1, 12):
        assert_allclose(before[t], Ridge().fit(X[:t], y[:t]).predict(X[t : t + 1])[0], atol=1e-12)


def test_a_refit_asks_only_the_learners_before_it():
    asked = []

    def fit(X, target, weight):
        number = len(asked)
        asked.append(0)

        def answer(X):
            asked[number] += 1
            return np.zeros((len(X), 1))

        return answer

    booster = Booster(Squared(), GradientDescent(0.1), FunctionStack(fit, 4), replay=Replay(64, warmup=10))
    booster.learn(np.arange(10.0)[:, None], np.arange(10.0))
    assert asked == [3, 2, 1, 0]  # the first refits of learners 2, 3 and 4; no row came after them
