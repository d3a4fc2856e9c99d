"""Rows that fail while they are learned: the model is what it was before, and the rows beside them are learned."""

import copy
import json

import numpy as np
import pyarrow as pa
import pytest
from live_models import SMALL, columns_of, crash, regressor, rows_of

from streamboost import Booster, SGBClassifier, SGBRegressor
from streamboost.boosting import growth
from streamboost.boosting.committee import Committee
from streamboost.boosting.loops.nets import NetLoop
from streamboost.boosting.loops.plain import PlainLoop
from streamboost.boosting.loops.trees import TreeLoop
from streamboost.estimators import defaults
from streamboost.live import LiveModel
from streamboost.losses import Softmax, Squared, from_functions
from streamboost.persistence.object_graph import same_state
from streamboost.replay import Replay
from streamboost.runs.run import Options, Run
from streamboost.serving.writer import Writer
from streamboost.sources import open_source
from streamboost.stacks import LinearStack, TreeStack, TwoLayerStack

POISON = 666.0
HUGE = 1.7e308


@pytest.fixture
def poison(monkeypatch):
    """Let every loop fail at rows that hold the poison, after it has learned those before them."""
    for loop in (TreeLoop, NetLoop, PlainLoop):
        learn = loop.learn

        def fail(self, model, chunk, early, scores, start, learn=learn):
            bad = np.flatnonzero((chunk.X[start:] == POISON).any(axis=1))
            if not len(bad):
                return learn(self, model, chunk, early, scores, start)
            bad -= bad % model.boosters[0].step_rows(len(chunk.X))  # rows that share a step are learned as one
            if bad[0] == 0:
                raise FloatingPointError("poison")
            some = type(chunk)(*(each[: start + bad[0]] for each in chunk))
            return learn(self, model, some, early, scores, start)

        monkeypatch.setattr(loop, "learn", fail)


@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("make", [
    lambda: SGBRegressor(random_state=0), lambda: SGBRegressor(base="constant", random_state=0),
    lambda: SGBClassifier(random_state=0), lambda: SGBRegressor(loss="absolute_error", random_state=0),
    lambda: SGBRegressor(learner=TwoLayerStack(3), memory=None, random_state=0),
])  # fmt: skip
def test_the_largest_numbers_there_are_can_be_learned(make, columns):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, columns))
    X[1, 0], X[2, 0], X[50, -1], X[300, 0] = HUGE, -HUGE, -HUGE, HUGE
    model, y = make(), (X[:, 0] > 0).astype(int)
    for start in range(0, 400, 40):
        model.learn(X[start : start + 40], y[start : start + 40])
    assert np.isfinite(model.raw_scores(X)).all()


def test_columns_that_jump_from_the_smallest_to_the_largest_numbers():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 2)) * 1e-150
    X[400:, 0] *= 1e300
    X[700:, 0] *= 1e100
    model = SGBRegressor(random_state=0)
    model.learn(X, np.sign(X[:, 0]))
    assert np.isfinite(model.predict(X)).all()


VERBS = {
    "learn": lambda model, X, y: model.learn(X, y),
    "partial_fit": lambda model, X, y: model.partial_fit(X, y),
    "learn_many": lambda model, X, y: model.learn_many(X, y),
    "learn_one": lambda model, X, y: model.learn_one(X.to_dict("records")[-1], y[-1]),
}


@pytest.mark.each(
    verb=list(VERBS),
    n_before=[0, 1, 70, 63, 250, 1500],
    make=[SGBRegressor, SGBClassifier],
    options=[{}, {"memory": 64}, {"iterate": "average", "memory": 64}, {"update_mode": "minibatch", "memory": 64}],
)
def test_a_call_that_fails_midway_changes_nothing(poison, verb, n_before, make, options):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(1)
    X = pandas.DataFrame(rng.normal(size=(n_before + 300, 3)), columns=[*"abc"])
    y = (X["a"] > 0).to_numpy().astype(int) + (X["b"] > 1) if make is SGBClassifier else X["a"].to_numpy()
    y = np.asarray(y)
    model = make(random_state=np.random.RandomState(3), new_columns="grow", n_estimators=6, **options)
    if n_before:
        model.partial_fit(X[:n_before], y[:n_before])
    before = copy.deepcopy(model)
    bad = X[n_before:].assign(d=[np.nan] * 299 + [POISON])  # a new column, whose first value is poison
    with pytest.raises(FloatingPointError):
        VERBS[verb](model, bad, y[n_before:])
    assert same_state(model, before)
    for one in (model, before):  # and they go on alike
        one.partial_fit(X[n_before:], y[n_before:])
    assert same_state(model, before)


def test_known_columns_fail_midway_and_nothing_is_changed(poison):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(5000, 3))
    model = SGBRegressor(random_state=0, n_estimators=8).partial_fit(X, X[:, 0])
    for n in (2, 30, 400, 2000, 20_000):  # none, some or all of the memory is written over before the failure
        before, bad = copy.deepcopy(model), rng.normal(size=(n, 3))
        bad[-1, 1] = POISON
        with pytest.raises(FloatingPointError):
            model.learn(bad, bad[:, 0])
        assert same_state(model, before), n


def poisoned(n=40, where=(7, 31)):
    table = rows_of(n)
    a = table["a"].to_numpy().copy()
    a[list(where)] = POISON
    return table.set_column(0, "a", pa.array(a))


def test_a_live_model_puts_the_row_aside_and_learns_the_others(poison, tmp_path):
    table, good = poisoned(), np.ones(40, bool)
    good[[7, 31]] = False
    with LiveModel(tmp_path / "live", regressor()) as live:
        done = live.learn(table, id="one")
        again = live.learn(table, id="one")
        assert (done.rows, done.quarantined, sorted(done.reasons)) == (38, 2, [7, 31])
        assert done.good.tolist() == good.tolist()
        assert len(done.y) == len(done.answers.values) == 38
        assert again.repeated
        assert (again.rows, again.reasons) == (38, done.reasons)
        assert "poison" in done.reasons[7]
        assert live.learn(rows_of(5, seed=1)).rows == 5
        live_state = copy.deepcopy(live.model)
        left = crash(live, tmp_path)
    with LiveModel(left) as opened:  # the same in a replay
        assert same_state(opened.model, live_state)
        assert opened.rows == 43
        assert opened.learn(table, id="one").reasons == done.reasons
        assert opened.n_quarantined == 2
    lines = [json.loads(line) for line in (left / "quarantine.jsonl").read_text().splitlines()]
    assert [line["values"]["a"] for line in lines] == [POISON, POISON]


def test_a_replay_puts_rows_aside_that_fail_only_then(tmp_path, request):
    live = LiveModel(tmp_path / "live", regressor())
    live.learn_together([poisoned(10, [3]), rows_of(10, seed=2), poisoned(10, [0])], ["a", None, "c"])
    left = crash(live, tmp_path)
    request.getfixturevalue("poison")
    with LiveModel(left) as opened:
        assert opened.rows == 28
        assert sorted(opened.learn(poisoned(10, [3]), id="a").reasons) == [3]
        assert sorted(opened.learn(poisoned(10, [0]), id="c").reasons) == [0]


def test_labels_of_a_row_that_fails_are_reverted(poison, tmp_path):
    X, y = columns_of(poisoned(6, [2]))
    with LiveModel(tmp_path / "live", regressor()) as live:
        live.remember([*"abcdef"], X)
        done = live.label([*"abcdef"], y, id="labels")
        assert (done.learned, done.quarantined, sorted(done.reasons)) == (5, 1, [2])
        assert live.label([*"abcdef"], y, id="labels").reasons == done.reasons
        assert live.label(["c"], [1.0]).early == 1  # its row is gone, that of others is known
        assert live.label(["b"], [y[1]]).unchanged == 1


@pytest.mark.parametrize("n_first", [0, 30])
def test_a_run_puts_the_row_aside_and_can_be_resumed(poison, tmp_path, n_first):
    table = poisoned(100, [40, 41, 99])
    (tmp_path / "rows.csv").write_text(table.to_pandas().to_csv(index=False))
    options = Options("target", "regression", chunk=25)
    for resume in (False, True):
        source = open_source(tmp_path / "rows.csv")
        with Run(source, SGBRegressor(**SMALL), options, tmp_path / "run", resume=resume) as run:
            list(run.reports())
            assert (run.rows, run.bad.n) == (97, 3)
    lines = [json.loads(line) for line in (tmp_path / "run" / "quarantine.jsonl").read_text().splitlines()]
    assert [line["row"] for line in lines] == [40, 41, 99]


def test_a_model_that_could_not_be_mended_shows_in_the_health_of_the_server(tmp_path, monkeypatch):
    with LiveModel(tmp_path / "live", regressor()) as live:
        writer = Writer(live, lambda requests: [])
        writer.start()

        def fail(*args):
            raise KeyboardInterrupt  # what nobody can put aside

        monkeypatch.setattr(live, "guard", type("Guard", (), {"observe": fail, "validate": live.guard.validate})())
        with pytest.raises(KeyboardInterrupt):
            writer.submit(lambda: live.learn(rows_of(3))).result()
        assert "behind its journal" in writer.failure
        monkeypatch.undo()
        assert writer.submit(lambda: live.learn(rows_of(3))).result().rows == 3
        assert writer.failure is None
        assert live.rows == 6
        writer.stop()


@pytest.mark.parametrize("make", [SGBRegressor, SGBClassifier])
def test_a_memory_that_grows_is_what_it_was_after_every_failure(poison, monkeypatch, make):
    # turns, sweeps, trials, sleep and waking, with a failure in the last row of chunks of every size
    monkeypatch.setattr(defaults, "LADDER", (16, 64))
    monkeypatch.setattr("streamboost.replay.SOONEST_TURN", 4)
    few = {"BELIEVED": 0.0, "FEWEST_TREES": 4, "MOST_TREES": 6, "HOPE_ROWS": 24, "TRIAL_ROWS": 48, "WAIT": 2}
    for name, value in few.items():
        monkeypatch.setattr(growth, name, value)
    monkeypatch.setattr(growth, "EARNED", 1.01)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1800, 3))
    y = (X[:, 0] + X[:, 1] ** 2 > 0.5).astype(int) if make is SGBClassifier else X[:, 0] + X[:, 1] ** 2
    model, start, seen = make(n_estimators=4, max_depth=3, random_state=0), 0, set()
    for size in rng.integers(2, 30, 60):
        rows = slice(start, start + int(size))
        bad = X[rows].copy()
        bad[-1, 0] = POISON
        if start:
            before = copy.deepcopy(model)
            with pytest.raises(FloatingPointError):
                model.learn(bad, y[rows])
            assert same_state(model, before)
        model.learn(X[rows], y[rows])
        first = model.committee_.boosters[0]
        seen.add((first.rests, first.sleeps, first.rests and first.replay.sweeps > 0))
        start += int(size)
    assert {(True, False, False), (True, False, True), (True, True, False)} <= seen


BOOSTED = {
    "booster": lambda: Booster(Squared(), stack=TreeStack(3, max_depth=3), replay=Replay(64)),
    "ridges": lambda: Booster(Squared(), stack=LinearStack(3)),
    "networks": lambda: Booster(Squared(), stack=TwoLayerStack(3)),
    "past hypotheses": lambda: Booster(Squared(), stack=TreeStack(2), replay=Replay(64), iterate="average"),
    "mini-batches": lambda: Booster(Squared(), stack=TreeStack(3), replay=Replay(64), update_mode=5),
    "classes": lambda: Booster(Softmax(n_classes=3), stack=TreeStack(3), replay=Replay(64)),
    "committee": lambda: Committee([
        Booster(Squared(), stack=TreeStack(n), replay=Replay(64 * n), seed=n) for n in (2, 1)
    ]),
}  # fmt: skip


@pytest.mark.parametrize("kind", BOOSTED)
def test_a_booster_by_itself_is_what_it_was_before_a_call_that_fails(poison, kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    y = rng.integers(0, 3, 400).astype(float) if kind == "classes" else X[:, 0] + X[:, 1] ** 2
    model, twin, start = BOOSTED[kind](), BOOSTED[kind](), 0
    for size in (1, 20, 1, 2, 60, 90, 1, 100, 125):
        rows = slice(start, start + size)
        bad = X[rows].copy()
        bad[-1, 0] = POISON
        before = copy.deepcopy(model)
        with pytest.raises(FloatingPointError):
            model.learn(bad, y[rows])
        assert same_state(model, before)
        assert (model.learn(X[rows], y[rows]) == twin.learn(X[rows], y[rows])).all()
        start += size
    assert same_state(model, twin)


def test_what_a_loss_of_ones_own_raises_midway_leaves_the_booster_as_it_was():
    """Without any shim: the gradient of the 30th row is not finite, and 29 were learned."""

    def gradient(score, y):
        return np.where(y == 7.0, np.nan, 2 * (score - y))

    loss = from_functions(lambda score, y: ((score - y) ** 2).sum(axis=-1), gradient, smooth=True)
    booster, X = Booster(loss, stack=LinearStack(2)), np.random.default_rng(0).normal(size=(60, 2))
    booster.learn(X[:30], X[:30, 0])
    before, y = copy.deepcopy(booster), X[30:, 0].copy()
    y[29] = 7.0
    with pytest.raises(FloatingPointError):
        booster.learn(X[30:], y)
    assert same_state(booster, before)
