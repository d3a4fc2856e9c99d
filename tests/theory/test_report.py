import copy
import html
import re

import numpy as np
import pytest
from sklearn.tree import DecisionTreeRegressor

from streamboost import Booster, SGBClassifier, SGBRegressor, errors, theory
from streamboost.bases import Constant
from streamboost.datasets import friedman
from streamboost.descents import GradientDescent
from streamboost.losses import Absolute, Hinge, Logistic, Softmax, Squared
from streamboost.replay import Replay
from streamboost.stacks import LinearStack, TreeStack
from streamboost.theory.report import _regret_over_learners, blank, hindsight_tree, inline_svg, logarithmic, report


@pytest.fixture(scope="module")
def rows():
    X, y, *_ = friedman(700, seed=3)
    return X, (y - y.mean()) / y.std()


def trees(loss=None, N=8):
    replay = Replay(None, refit_every=100, learners="all", warmup=100, soonest=1)
    descent = GradientDescent("theory")
    return Booster(loss or Squared(), descent, TreeStack(N, max_depth=3), base=Constant(0), replay=replay)


def said(file, label):
    """The value beside a label in the page's table."""
    return html.unescape(re.search(rf"<td>{re.escape(html.escape(label))}</td><td>(.*?)</td>", file.read_text())[1])


def test_the_page_of_a_booster_tells_what_measuring_it_tells(rows, tmp_path):
    X, y = rows
    booster = trees()
    booster.learn(X[:400], y[:400])
    twin = copy.deepcopy(booster)
    regret = report(booster, X[400:], y[400:], tmp_path / "page.html", chunk=20)
    best = hindsight_tree(X[400:], y[400:, None], Squared())
    again = theory.measure_regret(twin, X[400:], y[400:], best, chunk=20)
    np.testing.assert_array_equal(regret.by_learners, again.by_learners)
    assert float(said(tmp_path / "page.html", "average regret of all 8 learners")) == pytest.approx(
        again.by_learners[-1], rel=1e-3
    )
    assert float(said(tmp_path / "page.html", "the theorem's bound at all learners")) == pytest.approx(
        again.bound[-1], rel=1e-3
    )
    text = (tmp_path / "page.html").read_text()
    assert f"<p class='lead'>{theory.judge(again.edges)} By the regret" in html.unescape(text)
    assert "stays below the theorem's bound. Bounds" in html.unescape(text)
    assert text.count("<svg") == 3


def test_the_model_stays_as_it_is(rows, tmp_path):
    X, y = rows
    model = SGBRegressor(n_estimators=10, max_depth=3, random_state=0).fit(X[:300], y[:300])
    before = model.predict(X[300:])
    regret = report(model, X[300:400], y[300:400], tmp_path / "page.html", chunk=10)
    np.testing.assert_array_equal(model.predict(X[300:]), before)
    assert model.committee_.n_rows == 300
    assert len(regret.edges) == model.booster_.stack.n_learners
    assert regret.over_rows.rows[-1] == 100


@pytest.mark.parametrize(
    ("loss", "labels"), [("log_loss", ["no", "yes"]), ("hinge", ["no", "yes"]), ("log_loss", ["a", "b", "c"])]
)
def test_classes_are_coded_as_the_booster_learned_them(rows, tmp_path, loss, labels):
    X, y = rows
    names = np.array(labels)[np.digitize(y, np.quantile(y, np.linspace(0, 1, len(labels) + 1)[1:-1]))]
    model = SGBClassifier(loss=loss, n_estimators=12, max_depth=3, random_state=0).fit(X[:500], names[:500])
    regret = report(model, X[500:], names[500:], tmp_path / "page.html", chunk=10)
    # learners that know the classes: a booster shown wrong codes would do worse than a coin
    scores = model.booster_.score(X[500:])
    guesses = scores.argmax(axis=1) if len(labels) > 2 else (scores[:, 0] > 0).astype(int)
    assert (np.array(labels)[guesses] == names[500:]).mean() > 0.6
    coin = Softmax(n_classes=len(labels)).value(np.zeros((1, len(labels))), np.zeros((1, 1)))[0]
    assert regret.by_learners[-1] + regret.comparator_loss < (1.0 if loss == "hinge" else coin)


def test_where_the_theorems_are_silent_the_page_says_so(rows, tmp_path):
    X, y = rows
    booster = Booster(Absolute(), stack=LinearStack(4), base=Constant(0))
    report(booster, X[:200], y[:200], tmp_path / "page.html", chunk=20)
    assert said(tmp_path / "page.html", "the theorem's bound at all learners") == "none"
    assert "need a strongly convex loss" in (tmp_path / "page.html").read_text()


def test_a_bound_is_told_and_drawn_only_as_far_as_the_theorem_goes(rows, tmp_path):
    X, _ = rows
    booster = Booster(Squared(), GradientDescent(0.5), LinearStack(5), base=Constant(0))
    regret = report(booster, X[:300], np.full(300, 5.0), tmp_path / "page.html")
    last = int(np.flatnonzero(regret.edges <= 0)[0])
    assert 0 < last < 5
    text = html.unescape((tmp_path / "page.html").read_text())
    assert f"stays below the theorem's bound up to learner {last} (there is none beyond" in text
    assert "though that is a promise for other steps than these" in text
    assert said(tmp_path / "page.html", "the theorem's bound at all learners") == "none"
    lines = {line.get_label(): line for line in _regret_over_learners(regret).axes[0].lines}
    assert lines["the theorem's bound"].get_xdata().tolist() == list(range(last + 1))
    noise = np.random.default_rng(0).normal(size=(60, 30))
    booster = Booster(Squared(), GradientDescent(0.1), LinearStack(2), base=Constant(0))
    silent = report(booster, noise, np.random.default_rng(1).normal(size=60), tmp_path / "noise.html")
    assert silent.edges[0] < 0
    assert "No bound is drawn" in (tmp_path / "noise.html").read_text()
    assert len(_regret_over_learners(silent).axes[0].lines) == 1


@pytest.mark.parametrize("level", [0.0, 5.0])
@pytest.mark.parametrize("kind", ["booster", "estimator"])
def test_where_the_base_knows_all_the_page_says_so_without_a_warning(rows, tmp_path, kind, level):
    X, y = rows[0], np.full(len(rows[0]), level)
    if kind == "booster":
        model = Booster(Squared(), GradientDescent(0.5), LinearStack(4), base=Constant(level))
    else:
        model = SGBRegressor(n_estimators=6, random_state=0).fit(X[:300], y[:300])
    report(model, X[300:], y[300:], tmp_path / "page.html")
    text = html.unescape((tmp_path / "page.html").read_text())
    assert "The base alone predicts these rows" in text
    assert "nan" not in said(tmp_path / "page.html", "edge of the weakest and of the mean learner")
    if level == 0.0:
        assert "none: there was nothing to explain" in text


def test_of_few_rows_the_page_judges_nothing(rows, tmp_path):
    report(trees(), rows[0][:40], rows[1][:40], tmp_path / "few.html", chunk=10)
    assert "Too few rows (40) to judge the learners" in (tmp_path / "few.html").read_text()


def test_rows_and_targets_that_do_not_fit_are_refused_in_a_plain_sentence(rows, tmp_path):
    X, y = rows
    fitted = SGBRegressor(n_estimators=4).fit(X[:50], y[:50])
    for model in (trees(), fitted):
        with pytest.raises(ValueError, match=r"X has 30 rows and y has shape \(20, 1\), expected one y a row"):
            report(model, X[:30], y[:20], tmp_path / "page.html")
    with pytest.raises(ValueError, match="X has no rows, expected at least one"):
        report(trees(), X[:0], y[:0], tmp_path / "page.html")
    endless, unknown = X[:30].copy(), y[:30].copy()
    endless[3, 2], unknown[4] = np.inf, np.nan
    with pytest.raises(ValueError, match=r"X holds infinity in row 3, column 2\. Use NaN"):
        report(trees(), endless, y[:30], tmp_path / "page.html")
    with pytest.raises(ValueError, match="row 4"):
        report(trees(), X[:30], unknown, tmp_path / "page.html")
    started = trees()
    started.learn(X[:30], y[:30])
    with pytest.raises(ValueError, match="X has 3 features, expected 10"):
        report(started, X[:30, :3], y[:30], tmp_path / "page.html")


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_learned(rows, tmp_path, monkeypatch):
    monkeypatch.setattr(theory, "measure_regret", None)
    with pytest.raises(ValueError, match=r"page.html' is in '.*nowhere', which is no folder, expected a file to write"):
        report(trees(), *rows, tmp_path / "nowhere" / "page.html")
    with pytest.raises(ValueError, match="is a folder, expected a file to write"):
        report(trees(), *rows, tmp_path)


def test_the_page_tells_which_number_of_learners_does_best_by_the_regret_itself(rows, tmp_path):
    X, y = rows
    exact = X @ np.arange(1.0, 11.0)
    for target, N in ((exact, 6), (y + 3.0 * np.random.default_rng(0).normal(size=len(y)), 30)):
        booster = Booster(Squared(), GradientDescent(0.3), LinearStack(N), base=Constant(0))
        regret = report(booster, X, target, tmp_path / "page.html", chunk=20)
        best, text = int(regret.by_learners.argmin()), html.unescape((tmp_path / "page.html").read_text())
        if target is exact:
            assert best == N
            assert "By the regret on these rows no smaller N does better." in text
        else:
            assert 0 < best < N
            assert f"By the regret on these rows N = {best} does best ({regret.by_learners[best]:.4g}; N = 30: " in text


def test_a_comparator_of_ones_own_is_used(rows, tmp_path):
    X, y = rows
    regret = report(trees(), X[:200], y[:200], tmp_path / "page.html", comparator=y[:200], chunk=20)
    assert regret.comparator_loss == 0


def test_a_frozen_model_is_refused_as_it_cannot_go_on(rows, tmp_path):
    X, y = rows
    model = SGBRegressor(n_estimators=4, memory=64).fit(X[:100], y[:100])
    with pytest.raises(ValueError, match="model is frozen, expected one that can go on learning"):
        report(model.freeze(), X[100:], y[100:], tmp_path / "page.html")


def test_models_that_cannot_be_looked_at_are_refused(rows, tmp_path):
    X, y = rows
    with pytest.raises(TypeError, match=r"model is a SGBRegressor, expected a Booster.*Call fit first"):
        report(SGBRegressor(), X, y, tmp_path / "page.html")
    model = SGBClassifier(n_estimators=4).fit(X[:50], ["a", "b"] * 25)
    with pytest.raises(ValueError, match=r"classes the model has not met: \['c'\]"):
        report(model, X[:2], ["a", "c"], tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_without_matplotlib_the_extra_is_named(rows, tmp_path, monkeypatch):
    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr(errors.importlib, "import_module", absent)
    with pytest.raises(errors.MissingDependency, match=r"report needs matplotlib.*streamboost\[plot\]"):
        report(trees(), *rows, tmp_path / "page.html")


# The comparator.


def test_for_square_loss_the_deep_tree_is_that_of_scikit_learn(rows):
    X, y = rows
    tree = DecisionTreeRegressor(max_depth=15, random_state=0).fit(X, y)
    np.testing.assert_allclose(hindsight_tree(X, y[:, None], Squared())[:, 0], tree.predict(X), atol=1e-9)


@pytest.mark.parametrize("loss", [Logistic(l2=0.02), Absolute(l2=0.25), Hinge(l2=0.25)])
def test_no_other_score_in_a_leaf_has_less_loss(rows, loss):
    X, y = rows
    codes = y if loss.name == "absolute_error" else np.sign(y)
    scores = hindsight_tree(X[:200], codes[:200, None], loss, depth=4)
    least = loss.mean(scores, codes[:200, None])
    assert least < loss.mean(np.broadcast_to(loss.start(codes[:200, None]), scores.shape), codes[:200, None])
    for shift in (-0.05, 0.05):
        moved = scores.copy()
        moved[:, 0] += shift
        assert loss.mean(moved, codes[:200, None]) >= least - 1e-9


def test_of_several_classes_the_deep_tree_knows_the_rows(rows):
    X, y = rows
    codes, loss = np.digitize(y, [-0.5, 0.5]).astype(float), Softmax(n_classes=3)
    scores = hindsight_tree(X, codes[:, None], loss)
    assert (scores.argmax(axis=1) == codes).mean() > 0.95
    assert loss.mean(scores, codes[:, None]) < 0.3


# Pictures.


def test_large_numbers_on_an_axis_are_told_in_millions():
    _, axes = blank("x", "y")
    axes.plot([1e3, 2e7], [0.001, 5])
    for axis in (axes.xaxis, axes.yaxis):
        logarithmic(axis)
    told = [axes.xaxis.get_major_formatter()(value, 0) for value in (1e3, 1e6, 2e7)]
    assert told == ["1,000", "1 M", "20 M"]
    assert axes.yaxis.get_major_formatter()(0.001, 0) == "0.001"


@pytest.mark.parametrize("interval", [(0.81, 1.0), (0.43, 1.1), (1.01, 9.9), (0.003, 0.0042), (20, 6000), (1e-4, 80.0)])
def test_a_logarithmic_axis_has_at_least_three_numbers_however_short_it_is(interval):
    _, axes = blank("x", "y")
    axes.plot([1, 2], interval)
    logarithmic(axes.yaxis)
    low, high = axes.get_ylim()
    told = [
        axes.yaxis.get_major_formatter()(value, 0) for value in axes.yaxis.get_majorticklocs() if low <= value <= high
    ]
    assert 3 <= len(set(told)) <= 10


def test_every_word_of_a_picture_can_be_read_on_a_dark_page(rows, tmp_path):
    X, y = rows
    report(trees(), X[:200], y[:200], tmp_path / "page.html", chunk=20)
    words = re.findall(r"<text[^>]*>[^<]*</text>", (tmp_path / "page.html").read_text())
    assert any("measured" in word for word in words)
    assert all("currentColor" in word for word in words)


def test_pictures_take_the_ink_of_the_page_and_keep_their_names_apart():
    drawing, axes = blank("x", "y", "title")
    axes.plot([1, 2], [3, 4])
    one, two = inline_svg(drawing, "one"), inline_svg(drawing, "two")
    assert "#333333" not in one
    assert "currentColor" in one
    ids = [set(re.findall(r'\bid="([^"]*)"', svg)) for svg in (one, two)]
    assert not ids[0] & ids[1]
    used = set(re.findall(r'(?:url\(#|href="#)([^")]*)', one))
    assert used
    assert used <= ids[0]
    assert not re.search(r' width="[^"]*"', one[: one.index(">")])
