"""When the longest memory is replaced, when it is not, and what becomes of those that tried."""

import contextlib
import copy
import gc
import pickle
import weakref

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.linear_model import LinearRegression
from sklearn.tree import ExtraTreeRegressor

from streamboost.bases import Constant, Frozen, Linear
from streamboost.boosting import Booster, drift_replacement, loops
from streamboost.boosting.committee import Committee
from streamboost.boosting.drift_replacement import PROOF_ROWS, REVIEW_EVERY, fresh_copy
from streamboost.boosting.loops.trees import SharedBuffers
from streamboost.datasets import friedman
from streamboost.descents import GradientDescent
from streamboost.losses import Logistic, Softmax, Squared
from streamboost.persistence import snapshots
from streamboost.persistence.object_graph import same_state
from streamboost.replay import Replay
from streamboost.stacks import BatchStack, LinearStack, TreeStack

LEVELS = (  # window, learners, depth, refit_every, forget, share of the natural step
    (4096, 20, 5, 128, None, 0.2),
    (1024, 12, 4, 64, 20.0, 0.3),
    (256, 8, 3, 32, 50.0, 0.4),
)


def committee(loss=None, levels=LEVELS, **options):
    """A small ladder of the usual make."""
    return Committee(
        [
            Booster(
                loss or Squared(),
                GradientDescent(share=share),
                TreeStack(n_learners, max_depth=depth, forget=forget),
                base=Linear(forget=1.0 if window >= 4096 else 1.0 - 3.0 / window),
                replay=Replay(window, refit_every=every, soonest=8),
            )
            for window, n_learners, depth, every, forget, share in levels
        ],
        **options,
    )


def rmse(scores, y):
    return float(np.sqrt(np.mean((scores[:, 0] - y) ** 2)))


# Streams that do not change for good


@pytest.mark.parametrize("seed", range(8))
def test_where_nothing_changes_nobody_succeeds(seed):
    made = committee()
    data = friedman(6000, seed=seed)
    made.learn(data.X, data.y)
    assert made.events == []
    assert [booster.replay.window for booster in made.boosters] == [4096, 1024, 256]
    assert made.boosters[0].replay.seen == 6000


def season(n=6000, seed=0, is_told=True):
    """A mean that goes round every 500 rows, above a slow trend that a column tells with noise."""
    rng = np.random.default_rng(seed)
    t = np.arange(n)
    X = rng.uniform(size=(n, 4))
    X[:, 3] = t / 1000 + 0.3 * rng.normal(size=n)
    if is_told:
        X[:, 0] = (t % 500) / 500
    return X, 5 * np.sin(2 * np.pi * t / 500) + 4 * np.sin(4 * X[:, 1]) + X[:, 2] + 2 * X[:, 3] + rng.normal(size=n)


def along_a_map(n=6000, seed=0, blur=0.02):
    """Rows about in the order of one of their columns, as houses listed from north to south are."""
    data = friedman(n, seed=seed)
    order = np.argsort(data.X[:, 3] + blur * np.random.default_rng(seed).normal(size=n))
    return data.X[order], data.y[order]


def between_places(n=6000, seed=0):
    """Rows of one place after another: wherever they are taken, others are soon to come again."""
    rng = np.random.default_rng(seed)
    place = np.repeat(rng.permutation(30), n // 30) / 30
    X = np.column_stack([place + 0.02 * rng.uniform(size=n), rng.uniform(size=(n, 3))])
    return X, 10 * np.sin(10 * X[:, 0]) + 5 * X[:, 1] * np.cos(7 * X[:, 0]) + rng.normal(size=n)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("trap", [season, along_a_map])
def test_seasons_and_rows_in_the_order_of_a_map_are_no_reason_to_forget(trap, seed):
    made = committee()
    made.learn(*trap(seed=seed))
    assert made.events == []
    assert made.boosters[0].replay.seen == 6000


@pytest.mark.parametrize(
    "trap",
    [
        lambda: season(is_told=False),
        lambda: along_a_map(blur=0.0),
        lambda: along_a_map(seed=1, blur=0.0),
        lambda: between_places(),
        lambda: between_places(seed=1),
    ],
)
def test_where_the_past_looks_useless_for_a_while_dropping_it_costs_next_to_nothing(trap):
    X, y = trap()
    dropping, keeping = committee(), committee()
    keeping.drift_replacement = None
    assert rmse(dropping.learn(X, y)[1000:], y[1000:]) <= 1.04 * rmse(keeping.learn(X, y)[1000:], y[1000:])


# Streams that change


@pytest.mark.parametrize("seed", range(3))
def test_after_an_abrupt_change_the_past_is_dropped_once_and_soon(seed):
    data = friedman(8000, drift=4000, seed=seed)
    made, fresh, keeping = committee(), committee(), committee()
    keeping.drift_replacement = None
    scores = made.learn(data.X, data.y)
    (event,) = made.events
    assert event.kind == "memory dropped"
    assert 4000 + PROOF_ROWS <= event.row <= 4000 + 3 * PROOF_ROWS
    assert event.detail == "3,328 of 4,096 rows were out of date"
    assert made.boosters[0].replay.seen < 8000 - 4000 + 256
    # as good in the end as if it had known the row from which to start afresh, and better than with its past
    last = slice(6000, None)
    from_there = fresh.learn(data.X[4000:], data.y[4000:])[2000:]
    assert rmse(scores[last], data.y[last]) <= 1.15 * rmse(from_there, data.y[last])
    assert rmse(scores[last], data.y[last]) < rmse(keeping.learn(data.X, data.y)[last], data.y[last])


def test_a_stream_of_classes_that_changes_is_noticed_too():
    data = friedman(6000, drift=3000, seed=1)
    y = np.where(data.y > np.median(data.y), 1.0, -1.0)
    made = committee(Logistic(), levels=[(w, n, d, e, f, 1.0) for w, n, d, e, f, _ in LEVELS])
    scores = made.learn(data.X, y)
    assert [event.kind for event in made.events] == ["memory dropped"]
    assert 3000 < made.events[0].row < 4500
    assert np.mean(scores[4500:, 0] * y[4500:] <= 0) < 0.16


def test_a_hedge_with_a_single_voter_notices_a_change_too():
    data = friedman(6000, drift=3000, seed=1)
    made = committee(half_lives=[400.0])
    made.learn(data.X, data.y)
    assert [event.kind for event in made.events] == ["memory dropped"]


def test_nobody_challenges_before_there_is_a_past_to_drop():
    data = friedman(1000, drift=500, seed=0)
    made = committee()
    made.learn(data.X, data.y)
    assert len(made.boosters) == 3
    assert not made.drift_replacement.is_on


@pytest.mark.parametrize(
    "made",
    [
        lambda: committee(levels=LEVELS[:1]),
        lambda: committee(readout="last"),
        lambda: Committee([Booster(Squared(), GradientDescent(0.1), LinearStack(2)) for _ in range(2)]),
    ],
    ids=["one memory", "one reader", "no memory"],
)
def test_without_a_ladder_there_is_no_succession(made):
    assert made().drift_replacement is None


# The paired_test, step by step

QUICK = {"WAIT": 64, "HEAD_START": 32, "PROOF_ROWS": 128, "PATIENCE": 256, "LONGEST_WAIT": 256}
SMALL = ((256, 4, 2, 16, None, 0.5), (64, 4, 2, 16, None, 0.5))


@contextlib.contextmanager
def quick(**more):
    """Duels within a few hundred rows."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (QUICK | more).items():
            patch.setattr(drift_replacement, name, value)
        yield


ALWAYS = {"SUSPICION": 1e9}  # whoever may challenge does


def steady(n=2000, seed=0, change=None):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 3))
    y = 2 * np.sin(3 * X[:, 0]) + 0.3 * rng.normal(size=n)
    if change is not None:
        y[change:] = -y[change:]
    return X, y


def until(made, condition, X, y):
    """Learn a review's worth of rows at a time until something is so; return how many it took."""
    for start in range(0, len(X), REVIEW_EVERY):
        made.learn(X[start : start + REVIEW_EVERY], y[start : start + REVIEW_EVERY])
        if condition(made):
            return start + REVIEW_EVERY
    raise AssertionError("it never was")


def in_a_duel(made):
    return made.drift_replacement.is_on


def test_a_challenger_comes_as_a_fresh_booster_of_the_same_make_that_learned_the_newest_rows():
    X, y = steady()
    with quick(**ALWAYS):
        made = committee(levels=SMALL)
        came = until(made, in_a_duel, X, y)
        challenger, old = made.boosters[-1], made.boosters[0]
        twin = committee(levels=SMALL).boosters[0]
        twin.origin = made.origin
        twin.learn(X[came - 32 : came], y[came - 32 : came])
        twin.n_rows = came
    assert len(made.boosters) == 3
    assert same_state(challenger, twin)
    assert old.replay.seen == came  # which goes on as it was
    assert made.hedge.experts.tolist() == [[0, 0], [0, 4], [1, 0], [1, 4], [2, 0], [2, 4]]
    assert made.hedge.weights[[4, 5]] == pytest.approx(made.hedge.weights[[0, 1]])  # trusted as the one it challenges
    assert made.hedge.weights.sum() == pytest.approx(1.0)
    assert made.drift_replacement.paired_test.tolist() == [1.0, 5.0, 0.0, 0.0, 0.0, 0.0]
    assert made.events == []


def test_a_challenger_that_is_not_better_leaves_and_the_next_waits_twice_as_long():
    X, y = steady(4000)
    with quick(**ALWAYS):
        made = committee(levels=SMALL)
        waits, at = [made.drift_replacement.wait], 0
        for _ in range(4):
            came = at + until(made, in_a_duel, X[at:], y[at:])
            assert came >= made.drift_replacement.rest_until
            at = came + until(made, lambda made: not in_a_duel(made), X[came:], y[came:])
            waits.append(made.drift_replacement.wait)
            assert made.drift_replacement.rest_until == at + waits[-1]
            assert len(made.boosters) == 2
            assert made.hedge.experts.tolist() == [[0, 0], [0, 4], [1, 0], [1, 4]]
            assert made.hedge.weights.sum() == pytest.approx(1.0)
    assert waits == [64, 128, 256, 256, 256]  # but never longer than the longest
    assert made.events == []
    assert made.boosters[0].replay.seen == made.n_rows == at


def test_who_leaves_has_changed_nothing_in_those_that_stay():
    X, y = steady(1500)
    with quick(**ALWAYS):
        made = committee(levels=SMALL)
        came = until(made, in_a_duel, X, y)
        gone = came + until(made, lambda made: not in_a_duel(made), X[came:], y[came:])
    alone = committee(levels=SMALL)
    alone.learn(X[:gone], y[:gone])
    for ours, theirs in zip(made.boosters, alone.boosters, strict=True):
        assert same_state(ours, theirs)


def test_a_winner_takes_the_place_of_the_old_and_its_past_is_gone():
    X, y = steady(1500, change=500)
    with quick(SIGMAS=2.0):
        made = committee(levels=SMALL)
        came = until(made, in_a_duel, X, y)
        assert came >= 500
        winner, short = made.boosters[2], made.boosters[1]
        won = came + until(made, lambda made: made.events, X[came:], y[came:])
    assert made.boosters == [winner, short]
    assert made.events == [(won, "memory dropped", f"{256 - (won - came + 32):,} of 256 rows were out of date")]
    assert made.hedge.experts.tolist() == [[0, 0], [0, 4], [1, 0], [1, 4]]
    assert made.hedge.weights.sum() == pytest.approx(1.0)
    assert not in_a_duel(made)
    assert (made.drift_replacement.wait, made.drift_replacement.rest_until) == (64, won + 64)
    assert_array_equal(np.sort(winner.replay.y[:, 0]), np.sort(y[came - 32 : won] - made.origin))


def test_whoever_leaves_is_gone_at_once_with_all_its_arrays():
    X, y = steady(4000)
    gc.collect()
    gc.disable()  # which, with few objects and large arrays, would come too late to keep memory bounded
    try:
        with quick(**ALWAYS):
            made = committee(levels=SMALL)
            gone = []
            at = 0
            for _ in range(3):
                at += until(made, in_a_duel, X[at:], y[at:])
                gone.append(weakref.ref(made.boosters[-1].replay))
                at += until(made, lambda made: not in_a_duel(made), X[at:], y[at:])
            made.learn(X[at : at + 10], y[at : at + 10])
        assert [ref() for ref in gone] == [None] * 3
        held = [one for one in gc.get_objects() if type(one) is SharedBuffers]  # which dead proxies bear, too
        assert [one for one in held if id(made.boosters[0]) in one.members] == [made._buffers]
        X, y = steady(1500, change=500)
        with quick(SIGMAS=2.0):
            made = committee(levels=SMALL)
            old = weakref.ref(made.boosters[0].replay)
            won = until(made, lambda made: made.events, X, y)
            made.learn(X[won : won + 10], y[won : won + 10])
        assert old() is None
    finally:
        gc.enable()


def test_a_duel_counts_what_the_old_one_loses_more_on_rows_that_weigh():
    X, y = steady(1500, change=500)
    with quick(**ALWAYS):
        made = committee(levels=SMALL)
        came = until(made, in_a_duel, X, y)
        expected = np.zeros(4)
        for t, w in zip(range(came, came + 40), [1.0, 0.0, 2.0, 0.5] * 10, strict=True):
            row = slice(t, t + 1)
            lost = [0.5 * (float(made.boosters[b].score(X[row])[0, 0]) - y[t]) ** 2 for b in (0, 2)]
            made.learn(X[row], y[row], [w])
            share = w / made.mean_weight
            more = share * (lost[0] - lost[1])
            expected += (float(w > 0), more, more**2, share * lost[0])
    assert made.drift_replacement.paired_test[2:] == pytest.approx(expected, rel=1e-9)


COPIES = {
    "deep copy": lambda made, folder: copy.deepcopy(made),
    "pickle": lambda made, folder: pickle.loads(pickle.dumps(made)),
    "save and load": lambda made, folder: snapshots.save(made, folder / "it") or snapshots.load(folder / "it"),
}


@pytest.mark.parametrize(("how", "path"), [*((how, "compiled") for how in COPIES), ("pickle", "plain")])
def test_a_copy_made_in_the_middle_of_a_duel_fights_it_out_alike(how, path, tmp_path, monkeypatch):
    if path == "plain":
        monkeypatch.setattr(loops, "COMPILED", ())
    X, y = steady(650, change=300)
    with quick(SIGMAS=2.0):
        made = committee(levels=SMALL)
        came = until(made, in_a_duel, X, y)
        middle = came + 90
        made.learn(X[came:middle], y[came:middle])
        twin = COPIES[how](made, tmp_path)
        assert in_a_duel(twin)
        assert same_state(twin, made)
        assert_array_equal(twin.learn(X[middle:], y[middle:]), made.learn(X[middle:], y[middle:]))
    assert [event.kind for event in twin.events] == ["memory dropped"]
    assert same_state(twin, made)


@pytest.mark.parametrize(
    "change",
    [lambda made: made.grow(2), lambda made: made.add_features(1), lambda made: made.score(np.zeros((3, 3)))],
    ids=["grow", "add_features", "score"],
)
def test_a_committee_may_be_grown_and_asked_in_the_middle_of_a_duel(change):
    X, y = steady(1000, change=300)
    with quick(SIGMAS=2.0):
        made = committee(levels=SMALL)
        came = until(made, in_a_duel, X, y)
        change(made)
        assert in_a_duel(made)
        n_learners = {booster.stack.n_learners for booster in made.boosters}
        assert len(n_learners) == 1
        X = np.column_stack([X, X])[:, : made.n_features]
        made.learn(X[came:], y[came:])
    assert [event.kind for event in made.events] == ["memory dropped"]
    (n,) = n_learners
    assert made.hedge.experts.tolist() == [[0, 0], [0, n], [1, 0], [1, n]]


def test_a_new_class_may_come_in_the_middle_of_a_duel():
    X, y = steady(1200, change=400)
    with quick(SIGMAS=1.0):
        made = committee(Softmax(n_classes=2), levels=SMALL)
        came = until(made, in_a_duel, X, (y > 0).astype(float))
        made.add_outputs(Softmax(n_classes=3), -5.0)
        labels = np.where(X[:, 2] > 0.7, 2.0, (y > 0).astype(float))
        scores = made.learn(X[came:], labels[came:])
    assert [event.kind for event in made.events] == ["memory dropped"]
    assert np.mean(scores[-200:].argmax(axis=1) == labels[-200:]) > 0.7


# A booster of the same make


def twigs(n_learners=3):
    return TreeStack(n_learners, max_depth=2, n_bins=16)


MAKES = {
    "trees": lambda **o: Booster(Squared(), stack=twigs(), replay=Replay(64, warmup=20), **o),
    "trees on a constant": lambda **o: Booster(
        Squared(), stack=twigs(), base=Constant(), replay=Replay(64, warmup=20), **o
    ),
    "averaged": lambda **o: MAKES["trees"](iterate="average", snapshots=3),
    "batch": lambda **o: Booster(
        Squared(), stack=BatchStack(ExtraTreeRegressor(max_depth=2), 2), replay=Replay(64, warmup=20), **o
    ),
    "frozen": lambda **o: Booster(
        Squared(), stack=twigs(), base=Frozen(frozen_line()), replay=Replay(64, warmup=20), **o
    ),
}


def frozen_line():
    X, y = steady(50, seed=9)
    return LinearRegression().fit(X, y)


@pytest.mark.parametrize("kind", MAKES)
def test_a_fresh_copy_is_a_booster_of_the_same_make_that_has_seen_nothing(kind):
    X, y = steady(150)
    booster, undisturbed, new = MAKES[kind](), MAKES[kind](), MAKES[kind]()
    for one in (booster, undisturbed):
        one.learn(X[:100], y[:100])
    copied = fresh_copy(booster)
    assert copied.n_rows == 0
    assert_array_equal(copied.learn(X, -y), new.learn(X, -y))
    assert_array_equal(booster.score(X), undisturbed.score(X))  # which has not noticed
    assert_array_equal(booster.learn(X[100:], y[100:]), undisturbed.learn(X[100:], y[100:]))


@pytest.mark.parametrize("kind", MAKES)
def test_a_fresh_copy_of_a_booster_that_grew_takes_rows_of_the_new_width(kind):
    X, y = steady(150)
    booster = MAKES[kind]()
    booster.learn(X[:100], y[:100])
    booster.grow(2)
    booster.add_features(1)
    wide = np.column_stack([X, X[:, 0] ** 2])
    copied = fresh_copy(booster)
    assert copied.stack.n_learners == booster.stack.n_learners
    assert np.isfinite(copied.learn(wide, y)).all()
    assert np.isfinite(booster.learn(wide, y)).all()


def test_a_frozen_model_and_a_new_class_leave_room_for_a_challenger():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 2))
    booster = Booster(
        Softmax(n_classes=2), stack=twigs(), base=Frozen(lambda X: np.tile([0.3, -0.3], (len(X), 1))), replay=Replay(64)
    )
    booster.learn(X, (X[:, 0] > 0).astype(float))
    booster.add_outputs(Softmax(n_classes=3), -3.0)
    copied = fresh_copy(booster)
    assert np.isfinite(copied.learn(X, rng.integers(3, size=100).astype(float))).all()
