"""Checkpoints of a spread model: attached by another driver, and refused by another model."""

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.tree import ExtraTreeRegressor
from small_learners import nearest
from spread_models import (
    PIXELS,
    booster,
    plain,
    plain_path,  # noqa: F401 - a fixture
    scores_of,
    spread,
    stream,
)

from streamboost import SGBClassifier, SGBRegressor
from streamboost.checkpoints import Checkpoint, CheckpointStore
from streamboost.cluster.spread_booster import SpreadBooster
from streamboost.losses import Huber
from streamboost.running import Options, Run
from streamboost.sources import open_source
from streamboost.stacks import ChainStack, LinearStack, TreeStack, TwoLayerStack
from streamboost.stacks.refitted import BatchStack
from streamboost.states import same_state


@pytest.mark.parametrize(
    "template",
    [
        lambda: SGBRegressor(learner=TreeStack(6, max_depth=3), semantics=20, random_state=0),
        lambda: SGBRegressor(learner="mlp", semantics=20, iterate="polynomial", random_state=0),
        lambda: SGBRegressor(learner=Ridge(), n_estimators=4, semantics=20, random_state=0),
        lambda: SGBRegressor(learner=nearest, n_estimators=4, semantics=20, random_state=0),
        lambda: booster(ChainStack([LinearStack(3), TreeStack(3, max_depth=2)]), semantics=20),
    ],
    ids=["trees", "networks", "wrapped", "a function", "a booster"],
)
def test_what_was_detached_is_attached_by_another_driver_and_goes_on(template, tmp_path):
    X, y = stream(300)
    undisturbed = template()
    expected = scores_of(undisturbed, X, y)
    with SpreadBooster(template(), workers=2, engine="local", directory=tmp_path / "cuts") as first:
        first.attach(first.detach())  # before the first row
        said = [scores_of(first, X[:100], y[:100])]
        with CheckpointStore(tmp_path / "run") as store:
            store.save(Checkpoint(first.detach()))
        scores_of(first, X[200:], y[200:])  # of this nothing is to be left
    with CheckpointStore(tmp_path / "run") as store:
        cut = store.latest().model
    with SpreadBooster(template(), workers=2, engine="local", directory=tmp_path / "cuts") as second:
        second.attach(cut)
        said.append(scores_of(second, X[100:], y[100:]))
        assert_array_equal(np.concatenate(said), expected)
        again = scores_of(second, X[:50], y[:50])
        second.attach(second.detach())
        assert_array_equal(scores_of(undisturbed, X[:50], y[:50]), again)


def test_a_run_that_was_stopped_and_resumed_is_that_of_one_process(tmp_path):
    source, options = (
        open_source("synthetic:friedman", total_rows=1000),
        Options("y", "regression", chunk=50, every=250),
    )
    template = SGBRegressor(learner=TreeStack(6, max_depth=3), semantics="minibatch", random_state=0)
    with Run(source, template, options, tmp_path / "plain") as going:
        *_, expected = going.reports()
    for stop in (250, 500, None):
        model = SpreadBooster(clone(template), workers=2, engine="local", directory=tmp_path / "cuts")
        with model, Run(source, model, options, tmp_path / "run", resume=stop != 250) as going:
            for report in going.reports():
                if report.rows == stop:
                    going.stop()
            assert model.committee_.n_rows == (stop or 1000)
            home = model.gather()
    assert (report.rows, report.running) == (expected.rows, expected.running)
    assert same_state(home, template)


def test_a_driver_that_died_before_the_first_checkpoint_begins_anew(tmp_path):
    X, y = stream(100)
    template = SGBRegressor(learner="linear", n_estimators=4, semantics="minibatch", random_state=0)
    with SpreadBooster(template, workers=2, engine="local", directory=tmp_path) as first:
        nothing = first.detach()
        first.learn(X, y)
        first.stack_.crew.cut()
    second = SpreadBooster(template, workers=2, engine="local", directory=tmp_path)
    with second, pytest.raises(FileExistsError, match="holds the cuts"):
        second.learn(X, y)
    with SpreadBooster(template, workers=2, engine="local", directory=tmp_path) as third:
        third.attach(nothing)
        assert_array_equal(third.learn(X, y), template.learn(X, y))


def test_cuts_of_other_models_are_refused(tmp_path):
    X, y = stream(60)
    template = SGBRegressor(learner="linear", n_estimators=4, semantics="minibatch")
    with SpreadBooster(template, workers=2, engine="local", directory=tmp_path / "a") as first:
        first.learn(X, y)
        cut = first.detach()
    other = SpreadBooster(template, workers=3, engine="local", directory=tmp_path / "a")
    with other, pytest.raises(ValueError, match=r"workers=2 .--workers 2 on the command line"):
        other.attach(cut)
    with SpreadBooster(template, workers=2, engine="local", directory=tmp_path / "b") as other:
        with pytest.raises(ValueError, match="Name the directory it was made in"):
            other.attach(cut)
        with pytest.raises(ValueError, match="expected one of a 'spread'"):
            other.attach("nonsense")
    with SpreadBooster(template, workers=2, engine="local") as other:
        other.learn(X, y)
        with pytest.raises(ValueError, match="Pass directory="):
            other.detach()


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (plain(), plain("mlp"), "learner is 'mlp', but the cut was made with 'tree'"),
        (plain("mlp"), plain(), "learner is 'tree', but the cut was made with 'mlp'"),
        (plain(), plain(n_estimators=8), "n_estimators is 8, but the cut was made with 12"),
        (plain(), plain(loss="huber"), "loss is 'huber', but the cut was made with"),
        (plain(), SGBClassifier(semantics=20), "model is 'SGBClassifier', but the cut was made with 'SGBRegressor'"),
        (plain(TreeStack(6)), plain(TreeStack(6, max_depth=2)), r"learner is a TreeStack \(\w+\), but .* TreeStack"),
        (plain(Ridge()), plain(Ridge(2.0)), r"learner is a Ridge \(\w+\), but .* with a Ridge"),
        (plain(nearest), plain(math.hypot), "learner is a builtin_function"),
        (plain(BatchStack(Ridge(), 6)), plain(BatchStack(Ridge(2.0), 6)), "learner is a BatchStack"),
        (plain(ChainStack([BatchStack(Ridge(), 6)])), plain(ChainStack([BatchStack(Ridge(3.0), 6)])), "a ChainStack"),
        (booster(LinearStack(6)), booster(LinearStack(6), Huber()), "loss is a Huber"),
        (booster(LinearStack(6)), plain(), "model is 'SGBRegressor', but the cut was made with 'Booster'"),
    ],
)
def test_the_cut_of_another_model_is_refused_before_anything_changes(before, after, words, tmp_path):
    X, y = stream(100)
    with SpreadBooster(before, workers=2, engine="local", directory=tmp_path) as first:
        first.learn(X, y)
        cut = first.detach()
        said = first.learn(X, y)
    with SpreadBooster(after, workers=2, engine="local", directory=tmp_path) as other:
        with pytest.raises(ValueError, match=f"{words}.*the same --option, --start-from and --seed as before"):
            other.attach(cut)
        assert other.stack_ is None
    with SpreadBooster(before, workers=2, engine="local", directory=tmp_path) as second:
        second.attach(cut)
        assert_array_equal(second.learn(X, y), said)


def test_a_stack_refuses_the_cut_of_other_learners(tmp_path):
    with spread(LinearStack(6), directory=tmp_path) as first:
        first.open(PIXELS, 1)
        cut = first.detach()
    for other, words in (
        (TwoLayerStack(6), "model is 'TwoLayerStack', but the cut was made with 'LinearStack'"),
        (LinearStack(7), "n_learners is 7, but the cut was made with 6"),
        (LinearStack(6, update="adagrad"), "update is 'adagrad'"),
    ):
        with spread(other, directory=tmp_path) as second, pytest.raises(ValueError, match=words):
            second.attach(cut)
    with spread(LinearStack(6), directory=tmp_path) as third:
        third.attach(cut)
        assert third.n_features == PIXELS


@pytest.mark.parametrize("learner", [Ridge(), nearest, "mlp", BatchStack(ExtraTreeRegressor(max_depth=3), 4)])
def test_a_model_is_known_again_in_another_process(learner, tmp_path):
    X, y = stream(60)
    with SpreadBooster(plain(learner), workers=2, engine="local", directory=tmp_path) as first:
        first.learn(X, y)
        beginning = first.detach().memory["beginning"]
    source = {
        "Ridge": "sklearn.linear_model.Ridge()",
        "function": "__import__('small_learners').nearest",
        "str": "'mlp'",
        "BatchStack": "BatchStack(sklearn.tree.ExtraTreeRegressor(max_depth=3), 4)",
    }[type(learner).__name__]
    code = (
        "import sklearn.linear_model, sklearn.tree\n"
        "from streamboost import SGBRegressor\nfrom streamboost.cluster.beginnings import describe\n"
        "from streamboost.stacks.refitted import BatchStack\n"
        f"print(describe(SGBRegressor(learner={source}, n_estimators=12, semantics=20, random_state=0)))"
    )
    here = {"PYTHONPATH": str(Path(__file__).parent), "PYTHONHASHSEED": "7"}
    said = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **here}, check=True, capture_output=True, text=True
    )
    assert said.stdout.strip() == str(beginning)
