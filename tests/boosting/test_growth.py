"""A booster that holds all rows: when it comes, what it does to the vote, when it leaves, and what a table is worth."""

import copy
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import make_friedman1
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from small_tiles import shrink

from streamboost import SGBClassifier, SGBRegressor, load
from streamboost.bases import Constant
from streamboost.boosting import booster as booster_module
from streamboost.boosting import drift_replacement, growth, loops
from streamboost.boosting.booster import Booster
from streamboost.descents import GradientDescent
from streamboost.errors import SnapshotError
from streamboost.estimators import defaults
from streamboost.features.chunk import Chunk
from streamboost.kernels import carrying
from streamboost.losses import Logistic, Softmax, Squared
from streamboost.persistence.checkpoints import Checkpoint, CheckpointStore
from streamboost.persistence.object_graph import same_state
from streamboost.replay import FIRST_SWEEP, Replay
from streamboost.stacks import TreeStack

SMALL = {"n_estimators": 4, "max_depth": 3, "random_state": 0}


@pytest.fixture
def small(monkeypatch):
    """Ladders of 16 and 64 rows, beside which a few trees hold all rows as soon as the longer memory is full."""
    monkeypatch.setattr(defaults, "LADDER", (16, 64))
    for name, value in {"BELIEVED": 0.0, "FEWEST_TREES": 4, "MOST_TREES": 5, "TRIAL_ROWS": 10**9}.items():
        monkeypatch.setattr(growth, name, value)
    monkeypatch.setattr("streamboost.replay.SOONEST_TURN", 8)


def stream(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    X[rng.uniform(size=X.shape) < 0.05] = np.nan
    return X, np.nan_to_num(X[:, 0]) + np.sin(3 * np.nan_to_num(X[:, 1])) + 0.1 * rng.normal(size=n)


def classes(y, k):
    return np.digitize(y, np.quantile(y, np.arange(1, k) / k))


def holds_all(model):
    return model.committee_.boosters[0].rests


MODELS = {
    "regression": (SGBRegressor, lambda y: y),
    "two classes": (SGBClassifier, lambda y: classes(y, 2)),
    "three classes": (SGBClassifier, lambda y: classes(y, 3)),
}


# Equalities, across the rows where it grows


@pytest.mark.parametrize("kind", MODELS)
def test_row_by_row_is_the_same_as_a_chunk_while_it_grows(small, kind):
    make, target = MODELS[kind]
    X, y = stream()
    y = target(y)
    chunk, rows = make(**SMALL), make(**SMALL)
    said = chunk.learn(X, y)
    assert holds_all(chunk)
    assert "memory grown" in [event.kind for event in chunk.events_]
    assert_array_equal(said, np.concatenate([rows.learn(X[t : t + 1], y[t : t + 1]) for t in range(len(X))]))
    assert same_state(chunk, rows)


@pytest.mark.parametrize("kind", MODELS)
def test_the_plain_loop_grows_alike(small, kind, monkeypatch):
    make, target = MODELS[kind]
    X, y = stream(260)
    y = target(y)
    compiled = make(**SMALL).partial_fit(X, y)
    monkeypatch.setattr(loops, "COMPILED", ())
    plain = make(**SMALL).partial_fit(X, y)
    assert holds_all(plain)
    assert [event.row for event in plain.events_] == [event.row for event in compiled.events_]
    assert_allclose(plain.committee_.score(X), compiled.committee_.score(X), rtol=1e-7, atol=1e-9)
    assert_allclose(
        plain.committee_.boosters[0].replay.carried,
        compiled.committee_.boosters[0].replay.carried,
        rtol=1e-7,
        atol=1e-9,
    )
    assert_allclose(plain.edges_, compiled.edges_, rtol=1e-6, atol=1e-9, equal_nan=True)


@pytest.mark.parametrize("at", [70, 150, 333])
@pytest.mark.parametrize("how", ["pickle", "deep copy", "save"])
def test_a_copy_made_on_the_way_goes_on_alike(small, at, how, tmp_path):
    X, y = stream()
    model, whole = SGBRegressor(**SMALL), SGBRegressor(**SMALL)
    model.partial_fit(X[:at], y[:at])
    if how == "save":
        model.save(tmp_path / "it")
        model = load(tmp_path / "it")
    else:
        model = copy.deepcopy(model) if how == "deep copy" else pickle.loads(pickle.dumps(model))
    whole.partial_fit(X, y)
    assert same_state(model.partial_fit(X[at:], y[at:]), whole)


def test_new_columns_categories_and_classes_come_to_it_too(small):
    X, y = stream(300)
    model = SGBClassifier(**SMALL)
    for t in range(300):
        row = {"a": X[t, 0], "b": X[t, 1]} | ({"c": X[t, 2], "place": "xyz"[t % 3]} if t > 150 else {})
        model.learn_one(row, int(classes(y, 2)[t]) if t < 250 else 7)
    assert holds_all(model)
    assert model.committee_.boosters[0].replay.X.shape[1] == 4
    assert model.committee_.boosters[0].stack.n_outputs == 3
    assert model.predict_one({"a": 0.0}) in (0, 1, 7)


# Sums that are carried


def resting(loss, n_trees, X, y, step=0.3, window=1000, depth=3):
    """A booster of trees that rest, which holds these rows."""
    booster = Booster(
        loss,
        GradientDescent(step),
        TreeStack(n_trees, max_depth=depth),
        base=Constant(0.5),
        replay=Replay(window, targets="carried"),
    )
    booster.allocate(X.shape[1], 1)
    booster.replay.append(X, y, np.ones(len(X)), None, np.zeros((len(X), loss.n_outputs)))
    return booster


@pytest.mark.parametrize("loss", [Squared(), Squared(l2=0.1), Logistic(), Softmax(n_classes=3)])
@pytest.mark.parametrize("loop", ["compiled", "plain"])
def test_a_sweep_is_batch_boosting_with_leaves_told_by_all_rows(loss, loop, monkeypatch):
    # against a loop that knows nothing of carried sums: each tree grown from half of the rows at the gradient at all
    # trees before it, and its leaves told by all rows, by steps of Newton's
    if loop == "plain":
        monkeypatch.setattr(loops, "COMPILED", ())
    X, y = stream(300)
    y = {1: y[:, None], 3: classes(y, 3)[:, None].astype(float)}[loss.n_outputs]
    y = np.sign(y) if isinstance(loss, Logistic) else y
    booster = resting(loss, 6, X, y)
    booster.sweep()
    score, codes, bins = np.full((300, loss.n_outputs), 0.5), booster.replay.codes, booster.replay.bins
    twin = TreeStack(6, max_depth=3)
    twin.open(3, loss.n_outputs)
    for i in range(6):
        gradient, curvature = loss.gradient(score, y), numerical_curvature(loss, score, y)
        rows = carrying.draw_rows(300, 150, i + 1, 0, 300)
        some = SimpleNamespace(codes=codes[:, rows], bins=bins)
        twin.refit(i, some, gradient[rows], np.ones(150))
        leaf = twin.leaf_ids(X)[:, i]
        at = np.eye(8)[leaf]  # (n, leaves)
        score -= 0.3 * ((at.T @ gradient) / (at.T @ curvature + twin.l2))[leaf]
    assert_allclose(booster.score(X), score, rtol=1e-5, atol=1e-6)
    assert_allclose(booster.replay.carried, booster.score(X), rtol=1e-9, atol=1e-12)


def numerical_curvature(loss, score, y):
    """The second derivative by each score, from differences; of classes by k / (k - 1) more."""
    k = loss.n_outputs
    out = np.empty_like(score)
    for j in range(k):
        step = np.zeros(k)
        step[j] = 1e-5
        out[:, j] = (loss.gradient(score + step, y) - loss.gradient(score - step, y))[:, j] / 2e-5
    return out * (k / (k - 1) if k > 1 else 1)


def test_draws_are_one_of_each_stretch_and_differ_from_turn_to_turn():
    draws = [carrying.draw_rows(1000, 250, key, 0, 1000) for key in range(8)]
    for rows in draws:
        assert_array_equal(rows // 4, np.arange(250))
    shares = np.bincount(np.concatenate(draws) % 4, minlength=4) / 2000
    assert_allclose(shares, 0.25, atol=0.05)  # no place in a stretch is preferred, so no season is left out
    assert len({tuple(rows) for rows in draws}) == 8


@pytest.mark.parametrize("n_slices", [1, 7, 60])
def test_a_refit_is_the_same_however_it_is_cut_into_slices(n_slices):
    X, y = stream(600)
    whole, sliced = (resting(Squared(), 3, X[:500], y[:500, None]) for _ in range(2))
    for booster in (whole, sliced):
        booster.refit = booster._begin_refit(booster.replay)
        booster.refit.interval = 60
    for t in np.unique(np.linspace(0, 60, n_slices + 1).astype(int))[1:]:
        sliced.refit.work(sliced, int(t))
    whole.refit.finish(whole, 0.3)
    sliced.refit.finish(sliced, 0.3)
    assert same_state(whole, sliced)


def test_a_tree_half_grown_is_no_part_of_the_state():
    # saved and loaded with every row, it is grown again from the same rows as far as it was, and comes out the same
    X, y = stream(600)
    kept, renewed = (resting(Squared(), 3, X[:500], y[:500, None]) for _ in range(2))
    for booster in (kept, renewed):
        booster.refit = booster._begin_refit(booster.replay)
        booster.refit.interval = 80
    n_half_grown = 0
    for waited in range(80):
        for booster in (kept, renewed):
            booster.refit.work(booster, waited)
        n_half_grown += kept.refit.cut is None
        assert same_state(kept, renewed)
        renewed = without_caches(renewed)
    assert n_half_grown > 3
    kept.refit.finish(kept, 0.3)
    renewed.refit.finish(renewed, 0.3)
    assert same_state(kept, renewed)


def without_caches(booster):
    """A copy whose refit has lost what is not part of its state, as one loaded from a file has."""
    twin = copy.deepcopy(booster)
    for name in ("_growing", "_leaf_ids"):
        if hasattr(twin.refit, name):
            delattr(twin.refit, name)
    return twin


# What checkpoints hold of them


def saved_again_and_again(model, store, X, y, monkeypatch, seed=0):
    """Learn in chunks of any size; after each the checkpoint, loaded, is what was saved. Return turns taken anew."""
    rng, taken, at, anew = np.random.default_rng(seed), [], 0, booster_module.carry_on
    monkeypatch.setattr(
        booster_module, "carry_on", lambda one, past: [taken.append(one.replay.turn - past.turn), anew(one, past)][1]
    )
    while at < len(X):
        n = int(rng.integers(1, 12))
        model.partial_fit(X[at : at + n], y[at : at + n])
        at += n
        store.save(Checkpoint(model))
        loaded = store.latest().model
        assert same_state(loaded, model)
        model = loaded if rng.uniform() < 0.3 else model
    return model, taken


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize(("n_parts", "most_rows"), [(1, 1 << 20), (1, 130), (3, 1 << 20)])
def test_a_checkpoint_with_sums_of_before_is_the_model_bit_for_bit(
    small, kind, n_parts, most_rows, tmp_path, monkeypatch
):
    shrink(monkeypatch.setattr)
    monkeypatch.setattr(booster_module, "PASTS", n_parts)
    for name, value in {"MOST_ROWS": most_rows, "FEWEST_TREES": 12, "MOST_TREES": 12}.items():
        monkeypatch.setattr(growth, name, value)
    make, target = MODELS[kind]
    X, y = stream(380)
    whole = make(**SMALL).partial_fit(X, target(y))
    with CheckpointStore(tmp_path) as store:
        model, taken = saved_again_and_again(make(**SMALL), store, X, target(y), monkeypatch)
    assert same_state(model, whole)
    assert 5 < max(taken) <= 11 if n_parts == 1 else 2 <= max(taken) <= 4


def test_sums_of_before_are_written_anew_where_they_no_longer_tell_those_of_now(small, tmp_path, monkeypatch):
    shrink(monkeypatch.setattr)
    monkeypatch.setattr(booster_module, "PASTS", 1)
    for name, value in {"FEWEST_TREES": 12, "MOST_TREES": 12}.items():
        monkeypatch.setattr(growth, name, value)
    X, y = stream(500)
    models, n_taken = [SGBClassifier(**SMALL) for _ in range(2)], []
    with CheckpointStore(tmp_path) as store:
        for t in range(500):  # new columns, then levels, then a third class, then fewer rows; a checkpoint each time
            row = {"a": X[t, 0], "b": X[t, 1]} | ({"c": X[t, 2]} if t > 150 else {})
            row |= {"place": "xyz"[t % 3]} if t > 233 else {}
            for model in models:
                model.learn_one(row, int(classes(y, 2)[t]) if t < 317 else 7 * (t % 2))
                if t == 421:
                    first = model.committee_.boosters[0]
                    first.detach()
                    first.replay.resize(200)
                    first.refit = None
            if t > 130:
                store.save(Checkpoint(models[0]))
                past = models[0].committee_.boosters[0].replay.past
                n_taken.append(0 if past is None else models[0].committee_.boosters[0].replay.turn - past.turn)
                models[0] = store.latest().model
                assert same_state(*models)
    assert max(n_taken) > 4
    assert holds_all(models[0])


def test_while_sums_change_at_every_turn_a_checkpoint_writes_those_of_new_rows(small, tmp_path, monkeypatch):
    shrink(monkeypatch.setattr)
    for name, value in {"FEWEST_TREES": 64, "MOST_TREES": 64}.items():
        monkeypatch.setattr(growth, name, value)
    X, y = stream(4000)
    model, written, whole = SGBRegressor(**SMALL).partial_fit(X[:3000], y[:3000]), [], 0
    with CheckpointStore(tmp_path) as store:
        for t in range(3000, 4000, 8):
            model.partial_fit(X[t : t + 8], y[t : t + 8])
            replay, before = model.committee_.boosters[0].replay, {*tmp_path.rglob("*.*")}
            past = replay.past
            store.save(Checkpoint(model))
            if replay.past is not past:
                whole += 1
            else:
                written.append(sum(path.stat().st_size for path in {*tmp_path.rglob("*.tiles")} - before))
        assert same_state(store.latest().model, model)
    assert whole < 20  # sixteen in a sweep, which takes half as many rows as are held
    assert np.median(written) < 8 * 3000  # bytes of all sums; and trees, rows and codes are among those written


def test_a_forged_turn_of_sums_of_before_is_refused(small, tmp_path, monkeypatch):
    shrink(monkeypatch.setattr)
    X, y = stream(300)
    model = SGBRegressor(**SMALL).partial_fit(X, y)
    for forge, told in FORGED.items():
        with monkeypatch.context() as patched, CheckpointStore(tmp_path / told) as store:
            patched.setattr(Replay, "keep_past", lambda replay, forge=forge: forge(unforged(replay)))
            store.save(Checkpoint(model))
            with pytest.raises(SnapshotError, match=told):
                store.latest()
        model.committee_.boosters[0].replay.forget_past()


unforged = Replay.keep_past
FORGED = {
    lambda past: past._replace(turn=-1): "sums of turn -1",
    lambda past: past._replace(turn=99): "sums of turn 99",
    lambda past: past._replace(sums=past.sums[:-1].copy()): r"_past_sums.sums has shape",
    lambda past: past._replace(sums=past.sums.astype(np.float32)): r"_past_sums.sums is of float32",
    lambda past: past._replace(since=past.since + np.int32(99)): r"_past_sums.since goes up to",
    lambda past: past._replace(since=past.since[:9].copy()): r"_past_sums.since has shape",
}


# What is written over


def test_rows_that_are_written_over_meanwhile_do_not_count(small, monkeypatch):
    # a ring that is full: chunk = row by row only if those about to go are left out from the start
    monkeypatch.setattr(growth, "MOST_ROWS", 100)
    X, y = stream(400)
    chunk, rows = SGBRegressor(**SMALL), SGBRegressor(**SMALL)
    chunk.partial_fit(X, y)
    for t in range(400):
        rows.partial_fit(X[t : t + 1], y[t : t + 1])
    replay = chunk.committee_.boosters[0].replay
    assert replay.fill == replay.window == 100
    assert [event.kind for event in chunk.events_].count("memory full") == 1
    assert same_state(chunk, rows)
    booster = chunk.committee_.boosters[0]
    assert_allclose(replay.carried, booster.walk_checked(replay.X)[:, replay.turn], rtol=1e-9, atol=1e-12)


def test_trees_keep_their_splits_at_most_turns_and_snap_to_the_cut_points_of_now():
    X, y = stream(400)
    booster = resting(Squared(), 9, X, y[:, None])
    booster.sweep()
    feature, stats = booster.stack.feature.copy(), booster.stack.stats.copy()
    X2, y2 = stream(400, seed=1)
    booster.replay.append(X2, y2[:, None], np.ones(400), None, np.zeros((400, 1)))
    booster.sweep()
    same = (booster.stack.feature == feature).all(axis=1)
    assert same.sum() >= 6  # one in three is grown afresh
    assert not same.all()
    assert (booster.stack.stats != stats).any(axis=(1, 2)).all()  # but all were told anew
    edges = booster.replay.bins.edges
    for j, t in zip(booster.stack.feature.ravel(), booster.stack.threshold.ravel(), strict=True):
        assert j < 0 or t == np.inf or t in edges[j]
    assert_allclose(booster.replay.carried, booster.score(booster.replay.X), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("m", [1, 3])
def test_levels_that_ask_for_like_targets_share_a_bin(m):
    rng = np.random.default_rng(0)
    levels, wanted = rng.integers(0, 300, 6000).astype(float), rng.normal(size=300)
    levels[levels == 7] = 8.0  # one that does not come
    levels[:50] = np.nan
    target = np.zeros((6000, m))
    target[:, m - 1] = wanted[np.nan_to_num(levels).astype(int)]
    level_bins, codes = np.zeros(300, np.uint8), np.zeros(6000, np.uint8)
    carrying.bin_levels(levels, target, np.ones(6000), 0.0, 254, 63, level_bins, codes)
    came = np.delete(np.arange(300), 7)
    assert level_bins[7] == 63
    assert sorted(set(level_bins[came].tolist())) == list(range(63))
    assert (np.diff(level_bins[came[np.argsort(wanted[came])]].astype(int)) >= 0).all()  # in the order of their means
    share = np.bincount(codes[50:], minlength=63)[:63]
    assert share.max() < 3 * share.mean()
    assert (codes[:50] == 254).all()
    assert_array_equal(codes[50:], level_bins[levels[50:].astype(int)])


def test_few_levels_have_a_bin_each():
    levels = np.array([3.0, 1.0, 3.0, 9.0, -1.0, np.nan, 40.0])
    level_bins, codes = np.zeros(10, np.uint8), np.zeros(7, np.uint8)
    carrying.bin_levels(levels, np.ones((7, 1)), np.ones(7), 1.0, 254, 63, level_bins, codes)
    assert_array_equal(level_bins, [63, 0, 63, 1, 63, 63, 63, 63, 63, 2])
    assert_array_equal(codes, [1, 0, 1, 2, 63, 254, 63])


def test_trees_that_rest_tell_hundreds_of_levels_apart():
    # 300 levels, of which a set can tell 64 apart: what two trees in a row do not, the next ones do
    rng = np.random.default_rng(1)
    X, wanted = rng.integers(0, 300, (20_000, 1)).astype(float), rng.normal(size=300)
    y = wanted[X[:, 0].astype(int)]
    booster = resting(Squared(), 30, X, y[:, None], window=20_000, depth=6)
    booster.set_categorical(np.array([0]), 512)
    booster.sweep()
    assert np.mean((booster.score(X)[:, 0] - y) ** 2) < 0.01 * y.var()


def test_sets_of_levels_go_left_as_they_did_when_bins_change():
    rng = np.random.default_rng(0)
    X = np.c_[rng.integers(0, 5, 400), rng.integers(0, 2, 400)].astype(float)
    y = np.array([3.0, -1.0, 2.0, 0.0, 5.0])[X[:, 0].astype(int)] + 0.1 * X[:, 1]
    booster = resting(Squared(), 2, X, y[:, None])
    booster.set_categorical(np.array([0]), 8)
    booster.sweep()
    more = X.copy()
    more[:, 0] = rng.integers(2, 8, 400)  # levels 5 to 7 are new, and the bins become others
    before = booster.stack.leaf_ids(X)
    booster.replay.append(more, y[:, None], np.ones(400), None, np.zeros((400, 1)))
    booster.replay.binned = 0
    booster.replay._prepared(0)
    twin, _ = booster.stack.copy_of(0, booster.replay.bins)
    assert_array_equal(twin.leaf_ids(X)[:, 0], before[:, 0])


def test_what_is_carried_is_the_partial_sum_up_to_whose_turn_it_is(small):
    X, y = stream(203)
    model = SGBRegressor(**SMALL).partial_fit(X, y)
    booster = model.committee_.boosters[0]
    for t in range(50):  # on to the middle of a sweep
        if booster.replay.turn == 0:
            model.partial_fit(X[t : t + 1], y[t : t + 1])
    assert booster.replay.turn > 0
    walk = booster.walk_checked(booster.replay.X)
    assert_allclose(booster.replay.carried, walk[:, booster.replay.turn], rtol=1e-9, atol=1e-12)


def test_trees_that_rest_change_by_refits_alone(small):
    X, y = stream(200)
    model = SGBRegressor(**SMALL).partial_fit(X, y)
    held, stats = model.committee_.boosters[0].replay, model.committee_.boosters[0].stack.stats.copy()
    for t in range(200 - held.counts[2] % 8, 200 - held.counts[2] % 8 + 7):
        model.learn(X[t % 200][None], y[t % 200][None])
    changed = (model.committee_.boosters[0].stack.stats != stats).any(axis=(1, 2))
    assert changed.sum() <= 1


def test_a_sweep_takes_as_long_as_rows_grow_by_half():
    replay, stack = Replay(10**6, targets="carried"), TreeStack(100)
    stack.open(1, 1)
    replay.open(stack, 1)
    replay.append(np.zeros((100_000, 1)), np.zeros((100_000, 1)), np.ones(100_000), None, np.zeros((100_000, 1)))
    assert replay.rows_a_turn(stack) * 100 == 50_000 // FIRST_SWEEP - 50_000 // FIRST_SWEEP % 100
    replay.sweeps = 1
    assert replay.rows_a_turn(stack) * 100 == 50_000


def test_room_is_made_as_rows_come():
    replay, stack = Replay(1000, targets="carried"), TreeStack(2, max_depth=1)
    stack.open(1, 1)
    replay.open(stack, 1)
    sizes, rows = [], np.arange(1500.0)[:, None]
    for t in range(0, 1500, 100):
        replay.append(rows[t : t + 100], rows[t : t + 100], np.ones(100), None, rows[t : t + 100])
        sizes.append(len(replay._X))
        newest = rows[max(0, t + 100 - 1000) : t + 100]
        for held in (*replay.newest(1000)[:2], replay._carried[replay._newest(1000)]):
            assert_array_equal(held, newest)
    assert sizes[0] == 256
    assert sizes[-1] == 1000


def test_carrying_needs_a_window_and_turns():
    with pytest.raises(ValueError, match="targets is 'carried', expected a window"):
        Replay(None, targets="carried")
    with pytest.raises(ValueError, match="expected 'fresh', 'recorded' or 'carried'"):
        Replay(targets="kept")


# When it comes, and when it leaves


def test_memories_that_are_told_stay_what_they_are(small):
    X, y = stream()
    model = SGBRegressor(**SMALL, memory=(16, 64)).fit(X, y)
    assert [booster.replay.window for booster in model.committee_.boosters] == [64, 16]
    assert model.committee_.growth is None


def test_nothing_grows_where_the_longest_memory_is_not_believed(small, monkeypatch):
    monkeypatch.setattr(growth, "BELIEVED", 1.01)
    X, y = stream()
    assert not holds_all(SGBRegressor(**SMALL).partial_fit(X, y))


def test_whoever_has_not_earned_a_vote_leaves_and_the_next_waits(small, monkeypatch):
    for name, value in {"HOPE_ROWS": 64, "TRIAL_ROWS": 64, "EARNED": 1.01, "FORGOTTEN": 0.0}.items():
        monkeypatch.setattr(growth, name, value)
    X, y = stream(600)
    model = SGBRegressor(**SMALL).partial_fit(X, y)
    kinds = [event.kind for event in model.events_ if event.kind.startswith("memory")]
    assert kinds[:2] == ["memory grown", "memory shrunk"]
    left = next(event.row for event in model.events_ if event.kind == "memory shrunk")
    later = [event.row for event in model.events_ if event.kind == "memory grown"][1:]
    assert all(row > 2 * left for row in later)
    assert model.committee_.hedge.weights.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("kind", MODELS)
def test_rows_go_on_coming_in_while_nobody_is_fitted_to_them(small, monkeypatch, kind):
    for name, value in {"HOPE_ROWS": 32, "TRIAL_ROWS": 64, "EARNED": 1.01, "WAIT": 2}.items():
        monkeypatch.setattr(growth, name, value)
    make, target = MODELS[kind]
    X, y = stream(500)
    y, chunk, rows = target(y), make(**SMALL), make(**SMALL)
    slept = woke = 0
    for t in range(500):
        rows.learn(X[t : t + 1], y[t : t + 1])
        first = rows.committee_.boosters[0]
        woke += slept > 0 and first.rests and not first.sleeps
        slept += first.sleeps
        if t % 50 == 0:
            rows = pickle.loads(pickle.dumps(rows))
        if first.rests:
            assert first.replay.fill == t + 1  # from the first row on
    assert slept > 50
    assert woke > 50
    chunk.learn(X, y)
    assert same_state(chunk, rows)


def test_after_a_drift_it_starts_small_again(small, monkeypatch):
    for name, value in {"TRIAL_ROWS": 64, "EARNED": 0.0, "HOPELESS": 0.0, "FORGOTTEN": 0.0}.items():
        monkeypatch.setattr(growth, name, value)
    X, y = stream(1200)
    y[600:] = 20 - 5 * y[600:]
    model = SGBRegressor(**SMALL).partial_fit(X[:600], y[:600])
    assert holds_all(model)
    monkeypatch.setattr(growth, "FORGOTTEN", 0.02)
    model.partial_fit(X[600:], y[600:])
    assert {"memory shrunk", "memory dropped"} & {event.kind for event in model.events_}
    assert not holds_all(model) or model.committee_.boosters[0].replay.fill < 600


def test_a_challenger_that_wins_takes_the_place_of_all_that_is_out_of_date(small, monkeypatch):
    for name, value in {"PROOF_ROWS": 64, "SIGMAS": -1e9, "MARGIN": -1e9, "WAIT": 64, "HEAD_START": 16}.items():
        monkeypatch.setattr(drift_replacement, name, value)
    monkeypatch.setattr(drift_replacement, "SUSPICION", 1e9)
    monkeypatch.setattr(growth.Growth, "_judge", lambda *_: None)
    X, y = stream(700)
    y = np.where(np.arange(700) < 300, y, 20 - 5 * y)
    model = SGBRegressor(**SMALL)
    for t in range(0, 700, 50):
        model.partial_fit(X[t : t + 50], y[t : t + 50])
        committee = model.committee_
        assert committee.hedge.experts[:, 0].max() < len(committee.boosters)
        assert len({booster.n_rows for booster in committee.boosters}) == 1
    assert "memory dropped" in [event.kind for event in model.events_]


def test_a_limit_of_memory_is_a_limit_of_rows_held(small):
    X, y = stream()
    model = SGBRegressor(**SMALL, memory_limit_mb=2.0).partial_fit(X, y)
    assert holds_all(model)
    assert 64 <= model.committee_.boosters[0].replay.window < 60_000
    with pytest.raises(ValueError, match="need at least"):
        SGBRegressor(**SMALL, memory_limit_mb=0.5).partial_fit(X, y)


# A table


def table(n=3000, seed=0):
    """What trees find in many rows only: products of waves."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 5))
    return X, 5 * np.sin(9 * X[:, 0]) * np.sin(9 * X[:, 1]) + X[:, 2] + 0.3 * rng.normal(size=n)


@pytest.mark.slow
def test_fit_is_as_good_as_batch_boosting_on_a_table():
    X, y = table()
    X_test, y_test = table(seed=1)
    ours, theirs = SGBRegressor(random_state=0).fit(X, y), HistGradientBoostingRegressor(max_iter=300).fit(X, y)
    assert ours.events_[-1].kind == "history studied"
    assert ours.score(X_test, y_test) > theirs.score(X_test, y_test) - 0.01
    one_pass = SGBRegressor(random_state=0).partial_fit(X, y)
    assert ours.score(X_test, y_test) > one_pass.score(X_test, y_test)


@pytest.mark.slow
def test_fit_of_classes_is_as_good_as_batch_boosting_on_a_table():
    X, y = table()
    X_test, y_test = table(seed=1)
    theirs = HistGradientBoostingClassifier().fit(X, classes(y, 3))
    ours = SGBClassifier(random_state=0).fit(X, classes(y, 3))
    assert ours.score(X_test, classes(y_test, 3)) > theirs.score(X_test, classes(y_test, 3)) - 0.02


def test_where_one_pass_is_as_good_nothing_is_added():
    X, y = make_friedman1(1500, noise=1.0, random_state=0)
    assert SGBRegressor(random_state=0).fit(X, y).committee_.boosters[0].sleeps


def test_partial_fit_is_one_pass():
    X, y = table(1500)
    assert not holds_all(SGBRegressor(random_state=0).partial_fit(X, y))


def test_fit_is_deterministic_and_weights_of_zero_leave_no_trace():
    X, y = table(3100)
    weight = np.r_[np.ones(3000), np.zeros(100)]
    one = SGBRegressor(random_state=0).fit(X, y, sample_weight=weight)
    other = SGBRegressor(random_state=0).fit(X[:3000], y[:3000])
    assert holds_all(one)
    assert same_state(one, other)


def test_after_a_table_rows_are_learned_as_ever():
    X, y = table(2000)
    model = SGBRegressor(random_state=0).fit(X[:1200], y[:1200])
    rows, chunk = copy.deepcopy(model), copy.deepcopy(model)
    for t in range(1200, 1400):
        rows.learn_one(dict(enumerate(X[t])), y[t])
    assert same_state(chunk.partial_fit(X[1200:1400], y[1200:1400]), rows)
    assert chunk.committee_.boosters[0].replay.fill == 1400


def test_a_table_in_which_all_changes_at_the_end_is_met_as_without_a_history():
    X, y = table(2400)
    y[1800:] = 30 - 3 * y[1800:]
    model = SGBRegressor(random_state=0).fit(X, y)
    one_pass = SGBRegressor(random_state=0).partial_fit(X, y)
    X_test, y_test = table(seed=1)
    later = 30 - 3 * y_test
    assert np.mean((model.predict(X_test) - later) ** 2) < 1.05 * np.mean((one_pass.predict(X_test) - later) ** 2)


def test_rows_held_back_tell_how_far_to_believe():
    X, y = table(1500)
    model = SGBRegressor(random_state=0).partial_fit(X, y)
    committee = model.committee_
    rows = Chunk(X, y[:, None] - committee.origin, np.ones(1500))
    for off, is_believed in ((0.0, False), (10.0, True)):  # the vote was right, or far off
        made = copy.deepcopy(committee)
        made.growth.study(made, rows, rows.y + off)
        assert made.boosters[0].sleeps is not is_believed
        assert made.hedge.weights.sum() == pytest.approx(1.0)
