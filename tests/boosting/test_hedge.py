"""The hedge by itself: whom it believes, held against a slow twin and what is proven of exponential weights."""

import copy
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from taught_hedges import opened, rows_for, taught

from streamboost.boosting.hedge import CAUTION, FAR_OFF, LOG_SHARE, SURPRISE, WRONG_SHARE, Expert, Hedge, expert_losses
from streamboost.losses import Absolute, Hinge, Huber, Logistic, Poisson, Quantile, Softmax, Squared
from streamboost.persistence.object_graph import same_state

LOSSES = [
    Squared(),
    Squared(n_outputs=2, l2=0.1),
    Absolute(),
    Quantile(tau=0.2),
    Huber(delta=0.5),
    Poisson(),
    Logistic(),
    Logistic(n_outputs=3),
    Hinge(),
    Softmax(n_classes=3),
]
seeds = st.integers(0, 2**32)
ids = repr


# What it is


def slow_expert_loss(score, y, loss):
    """What one expert loses on one row, in words: see ``expert_losses``."""
    lost = float(loss.value(score[None], y[None])[0])
    if isinstance(loss, Softmax):
        label = int(y[0])
        n_equal = sum(s == score[label] for s in score)
        wrong = 1.0 if score.max() > score[label] else 1.0 - 1.0 / n_equal
        return LOG_SHARE * min(lost, SURPRISE) + WRONG_SHARE * wrong
    if isinstance(loss, (Logistic, Hinge)):
        n_wrong = sum(0.5 if s == 0 else float(s * t < 0) for s, t in zip(score, y, strict=True))
        most = SURPRISE if isinstance(loss, Logistic) else FAR_OFF
        return LOG_SHARE * min(lost, most * len(score)) + WRONG_SHARE * n_wrong
    return lost


def slow_posterior(lost, weights, half_life, temperature_scale):
    """Exponential weights of discounted losses (T, E), added up from the first row."""
    n_rows, n_experts = lost.shape
    if n_rows == 0:
        return np.full(n_experts, 1.0 / n_experts)
    age = np.array([sum(weights[t + 1 :]) for t in range(n_rows)])
    counts = np.array(weights) * 0.5 ** (age / half_life)
    totals = counts @ lost
    temperature = temperature_scale * totals.min() / counts.sum() if temperature_scale else 1.0
    if temperature == 0.0:  # whoever lost nothing
        odds = (totals == 0.0).astype(float)
    else:
        odds = np.array([math.exp(-(total - totals.min()) / temperature) for total in totals])
    return odds / odds.sum()


@pytest.mark.parametrize("loss", LOSSES, ids=ids)
@given(seed=seeds, weights=st.lists(st.sampled_from([1.0, 2.0, 1.5]), min_size=1, max_size=12))
@settings(max_examples=5)
def test_it_is_the_slow_hedge_reckoned_from_the_first_row(loss, seed, weights):
    half_lives, meta = (3.0, 30.0), 10.0
    voters, meta_scale = (CAUTION * loss.temperature_scale / loss.n_outputs, loss.temperature_scale / loss.n_outputs)
    hedge = opened(loss, half_lives=half_lives, meta_half_life=meta)
    lost, lost_by_voters = np.empty((0, 4)), np.empty((0, 2))
    for t, (said, y) in enumerate(zip(*rows_for(loss, seed, len(weights)), strict=True)):
        posterior = [slow_posterior(lost, weights[:t], half_life, voters) for half_life in half_lives]
        votes = [
            loss.link.score(sum(p * loss.link.predict(s) for p, s in zip(own, said, strict=True))) for own in posterior
        ]
        hedge.learn(said, y, loss, weights[t])
        lost = np.vstack([lost, [slow_expert_loss(s, y, loss) for s in said]])
        lost_by_voters = np.vstack([lost_by_voters, [slow_expert_loss(s, y, loss) for s in votes]])
    posterior = [slow_posterior(lost, weights, half_life, voters) for half_life in half_lives]
    heard = slow_posterior(lost_by_voters, weights, meta, meta_scale)
    assert_allclose(hedge.posterior[:2, :4], posterior, rtol=1e-8, atol=1e-12)
    assert_allclose(hedge.posterior[2, :2], heard, rtol=1e-8, atol=1e-12)
    assert_allclose(hedge.weights, heard @ posterior, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("loss", LOSSES, ids=ids)
@given(seed=seeds, weights=st.lists(st.floats(0, 3), min_size=1, max_size=12))
@settings(max_examples=5)
def test_weights_sum_to_one_and_none_is_negative(loss, seed, weights):
    hedge = opened(loss)
    for said, y, w in zip(*rows_for(loss, seed, len(weights)), weights, strict=True):
        hedge.learn(said, y, loss, w)
        assert (hedge.weights >= 0).all()
        assert hedge.weights.sum() == pytest.approx(1.0, abs=1e-12)
        assert_allclose(hedge.posterior[:-1].sum(axis=1), 1.0, atol=1e-12)
        assert hedge.posterior[-1].sum() == pytest.approx(1.0, abs=1e-12)


def test_before_the_first_row_all_are_believed_alike():
    hedge = Hedge([(0, 0), (0, 5), (1, 0)])
    assert_array_equal(hedge.weights, 1 / 3)
    assert_allclose(hedge.mix(np.array([[1.0], [2.0], [6.0]]), Squared()), [3.0])


@pytest.mark.parametrize("loss", LOSSES, ids=ids)
def test_what_it_returns_is_what_each_expert_lost(loss):
    hedge = opened(loss)
    (said,), (y,) = rows_for(loss, 1, 1)
    assert_array_equal(hedge.learn(said, y, loss), expert_losses(said, y, loss))
    assert_allclose(expert_losses(said, y, loss), [slow_expert_loss(s, y, loss) for s in said], rtol=1e-12)


def test_of_a_tie_all_classes_but_one_are_wrong():
    tied, right = np.zeros((1, 3)), np.array([[1e-6, 0.0, 0.0]])
    lost = [expert_losses(scores, np.array([0.0]), Softmax(n_classes=3))[0] for scores in (tied, right)]
    assert lost[0] - lost[1] == pytest.approx(0.5 * 2 / 3, abs=1e-4)
    lost = [expert_losses(np.array([[s]]), np.array([1.0]), Logistic())[0] for s in (0.0, 1e-6, -1e-6)]
    assert lost[0] - lost[1] == pytest.approx(0.25, abs=1e-4)
    assert lost[2] - lost[1] == pytest.approx(0.5, abs=1e-4)


@pytest.mark.parametrize("options", [{"half_lives": []}, {"half_lives": [0.0]}, {"meta_half_life": -1.0}])
def test_half_lives_that_are_none_are_refused(options):
    with pytest.raises(ValueError, match=r"half_lives is .* and meta_half_life .*, expected numbers of rows above 0"):
        Hedge([(0, 0)], **options)


# The vote


def test_experts_on_classes_are_mixed_as_probabilities():
    hedge = Hedge([(0, 0), (0, 1)])  # both have half the vote
    p, q = 0.9, 0.3
    scores = np.log([[p / (1 - p)], [q / (1 - q)]])
    assert_allclose(Logistic().predict(hedge.mix(scores, Logistic())), [0.6], rtol=1e-12)
    shares = np.array([[0.7, 0.2, 0.1], [0.1, 0.2, 0.7]])
    mixed = hedge.mix(np.log(shares), Softmax(n_classes=3))
    assert_allclose(Softmax.link.predict(mixed), [0.4, 0.2, 0.4], rtol=1e-12)
    assert_allclose(hedge.mix(np.log([[2.0], [8.0]]), Poisson()), np.log([5.0]), rtol=1e-12)  # means


@pytest.mark.parametrize("loss", LOSSES, ids=ids)
@given(seed=seeds)
@settings(max_examples=5)
def test_the_vote_lies_among_the_experts(loss, seed):
    hedge = taught(loss, seed)
    scores, _ = rows_for(loss, seed + 1, 6)
    said, voted = loss.predict(scores), loss.predict(hedge.mix(scores, loss))  # (n, E, m) and (n, m)
    assert voted.shape == (6, loss.n_outputs)
    assert (voted <= said.max(axis=1) + 1e-9).all()
    assert (voted >= said.min(axis=1) - 1e-9).all()
    assert_allclose(hedge.mix(scores[2], loss), hedge.mix(scores, loss)[2], rtol=1e-12)  # rows apart or together


@pytest.mark.parametrize("loss", LOSSES, ids=ids)
def test_mixing_changes_nothing(loss):
    hedge = taught(loss)
    twin = copy.deepcopy(hedge)
    scores, _ = rows_for(loss, 3)
    before = scores.copy()
    hedge.mix(scores, loss)[:] = 7.0
    assert same_state(hedge, twin)
    assert_array_equal(scores, before)


# Weights of rows


@pytest.mark.parametrize("loss", LOSSES, ids=ids)
def test_a_row_of_weight_zero_leaves_no_trace(loss):
    hedge = taught(loss)
    twin = copy.deepcopy(hedge)
    scores, y = rows_for(loss, 5, 1)
    assert hedge.learn(scores[0], y[0], loss, 0.0) is None
    assert same_state(hedge, twin)


@pytest.mark.parametrize("loss", LOSSES, ids=ids)
@given(seed=seeds, w=st.floats(0.1, 5))
@settings(max_examples=5)
def test_a_row_of_weight_w_fades_the_past_as_w_rows_do_and_counts_w_times(loss, seed, w):
    hedge = taught(loss, seed)
    past, rows_past = hedge.losses[:-1].copy(), hedge.seen[:-1].copy()
    scores, y = rows_for(loss, seed + 1, 1)
    lost = hedge.learn(scores[0], y[0], loss, w)
    fade = hedge.decays[:-1] ** w
    assert_allclose(hedge.losses[:-1], fade[:, None] * past + w * lost, rtol=1e-12)
    assert_allclose(hedge.seen[:-1], fade * rows_past + w, rtol=1e-12)


@pytest.mark.parametrize("loss", LOSSES, ids=ids)
def test_weight_2_is_twice_weight_1_but_for_what_the_first_fades_at_the_second(loss):
    once, twice = taught(loss), taught(loss)
    (said,), (y,) = rows_for(loss, 1, 1)
    lost = once.learn(said, y, loss, 2.0)
    for _ in range(2):
        twice.learn(said, y, loss)
    faded = 1.0 - once.decays[:-1]
    assert_allclose(once.losses[:-1] - twice.losses[:-1], np.outer(faded, lost), rtol=1e-6, atol=1e-12)
    assert_allclose(once.seen[:-1] - twice.seen[:-1], faded, rtol=1e-9)


@pytest.mark.parametrize("loss", [Squared(), Absolute(), Quantile(tau=0.3)], ids=ids)
@given(seed=seeds, factor=st.sampled_from([1e-6, 1e3, 1e9]))
@settings(max_examples=5)
def test_whom_it_believes_does_not_depend_on_the_unit_of_the_targets(loss, seed, factor):
    plain, scaled = opened(loss), opened(loss)
    for said, y in zip(*rows_for(loss, seed), strict=True):
        plain.learn(said, y, loss)
        scaled.learn(factor * said, factor * y, loss)
    assert_allclose(scaled.weights, plain.weights, rtol=1e-6, atol=1e-12)


# Rare classes


def labels_of(loss, codes):
    """Targets (n, k) of class numbers."""
    return codes[:, None] if isinstance(loss, Softmax) else np.where(codes[:, None] > 0, 1.0, -1.0)


@pytest.mark.parametrize("counts", [[1.0, 1.0], [9.0, 1.0], [99.0, 1.0], [499.0, 1.0], [90.0, 5.0, 5.0, 0.0]])
def test_half_lives_pass_as_fast_as_twice_the_entropy_of_the_classes(counts):
    shares = np.array([count for count in counts if count]) / sum(counts)
    hedge = opened(Softmax(n_classes=len(counts)))
    hedge.class_counts = np.array(counts)
    assert hedge.pace == pytest.approx(min(1.0, -2.0 * np.sum(shares * np.log2(shares))))


@pytest.mark.parametrize("loss", [Logistic(), Hinge(), Softmax(n_classes=2)], ids=ids)
def test_rows_of_classes_that_are_not_rare_fade_as_rows_do(loss):
    hedge, codes = opened(loss), np.arange(200) % 4 == 0
    scores, _ = rows_for(loss, 0, 200)
    for said, y in zip(scores, labels_of(loss, codes.astype(float)), strict=True):
        hedge.learn(said, y, loss)
    assert_allclose(hedge.seen, (1.0 - hedge.decays**200) / (1.0 - hedge.decays))


@pytest.mark.parametrize("loss", [Logistic(), Softmax(n_classes=2)], ids=ids)
def test_who_tells_a_rare_class_apart_is_believed(loss):
    """One in 300; by the clock of rows no voter would remember more than ten of them."""
    rng, rare = np.random.default_rng(0), math.log(1 / 300)
    codes = (rng.random(12_000) < 1 / 300).astype(float)
    by_information, by_rows = opened(loss, 2), opened(loss, 2)
    by_rows.class_counts = np.zeros(0)
    for code, y in zip(codes, labels_of(loss, codes), strict=True):
        odds = np.array([[rare], [rare + (1.5 if code else -0.5)]])
        said = np.concatenate([-odds, odds], axis=1) / 2 if isinstance(loss, Softmax) else odds
        by_information.learn(said, y, loss)
        by_rows.learn(said, y, loss)
    assert by_information.pace < 0.1
    assert by_information.weights[1] > 0.8 > by_rows.weights[1] + 0.1


@pytest.mark.parametrize("loss", [Logistic(), Softmax(n_classes=2)], ids=ids)
def test_half_lives_are_rows_again_soon_after_a_class_is_rare_no_more(loss):
    hedge = opened(loss, 2)
    codes = np.concatenate([np.arange(20_000) % 500 == 0, np.arange(3000) % 2 == 0]).astype(float)
    said = np.zeros((2, loss.n_outputs))
    for y in labels_of(loss, codes):
        hedge.learn(said, y, loss)
    assert hedge.pace > 0.5


def test_a_new_class_is_counted_from_then_on():
    hedge = taught(Softmax(n_classes=3))
    before = hedge.class_counts.copy()
    hedge.add_classes(Softmax(n_classes=4))
    assert_array_equal(hedge.class_counts[:3], before)
    assert len(hedge.class_counts) == 4


def test_a_hedge_saved_before_classes_were_counted_goes_on_by_rows():
    hedge, loss = taught(Logistic()), Logistic()
    del hedge.class_counts
    for _ in range(2000):
        hedge.learn(np.zeros((4, 1)), np.array([-1.0]), loss)
    assert hedge.pace == 1.0


# Whom it believes


@pytest.mark.parametrize("loss", LOSSES, ids=ids)
@given(seed=seeds)
@settings(max_examples=5)
def test_whoever_lost_less_is_believed_more(loss, seed):
    hedge = taught(loss, seed)
    for lost, posterior in zip(hedge.losses[:-1, :4], hedge.posterior[:-1, :4], strict=True):
        assert_array_equal(np.argsort(lost), np.argsort(-posterior))
    n_voters = len(hedge.decays) - 1
    order = np.argsort(hedge.losses[-1, :n_voters])
    assert (np.diff(hedge.posterior[-1, order]) <= 0).all()


@pytest.mark.parametrize("loss", LOSSES, ids=ids)
def test_an_expert_that_is_always_closer_gets_the_most_weight(loss):
    rng = np.random.default_rng(0)
    hedge = opened(loss, 3)
    _, targets = rows_for(loss, 1, 100)
    for y in targets:
        if isinstance(loss, (Logistic, Hinge)):
            said = y * np.array([[0.9], [0.5], [-1.0]])
        elif isinstance(loss, Softmax):
            said = (np.arange(3) == y[0]) * np.array([[2.0], [0.5], [-1.0]])
        else:
            best = np.log(y + 0.1) if isinstance(loss, Poisson) else y / (1.0 + 2.0 * loss.l2)
            said = best + rng.choice([-1.0, 1.0]) * np.array([[0.1], [0.5], [1.5]])
        hedge.learn(said, y, loss)
    assert np.argsort(-hedge.weights).tolist() == [0, 1, 2]
    assert hedge.weights[0] > 0.5


def test_it_follows_when_another_expert_becomes_the_better_one():
    rng = np.random.default_rng(0)
    hedge = opened(Squared(), 2)
    for t in range(600):
        y = rng.normal(size=1)
        errors = np.array([[0.3], [1.0]])[:: 1 if t < 500 else -1]
        hedge.learn(y + errors * rng.normal(size=(2, 1)), y, Squared())
        if t == 499:
            assert hedge.weights[0] > 0.9
    assert hedge.weights[1] > 0.9


def meta_after(period, spread):
    """Whom the meta voter trusts, if the better of two experts changes every so many rows."""
    rng = np.random.default_rng(1)
    hedge = opened(Squared(), 2, half_lives=(4.0, 1000.0))
    for t in range(600):
        y = rng.normal(size=1)
        errors = np.array([[1.0], [spread]])[:: 1 if (t // period) % 2 == 0 else -1]
        hedge.learn(y + errors * rng.normal(), y, Squared())  # the same error, so that voting cancels none of it
    return hedge.posterior[-1, :2]


def test_the_meta_trusts_who_forgets_as_fast_as_the_stream_changes():
    quick, _ = meta_after(period=60, spread=4.0)
    assert quick > 0.9
    _, slow = meta_after(period=600, spread=1.3)  # nothing changes: whoever forgets is never sure
    assert slow > 0.7


# What is proven. One voter that never forgets is the hedge of the books: p ∝ exp(-L), at a rate of 1.

NEVER = 1e15


def plain_hedge(n_experts):
    return Hedge([(0, e) for e in range(n_experts)], half_lives=[NEVER], meta_half_life=NEVER)


@given(seed=seeds, n_experts=st.integers(1, 6), n=st.integers(1, 50), is_adverse=st.booleans())
@settings(max_examples=25)
def test_regret_for_bounded_square_losses_is_at_most_the_log_of_the_number_of_experts(seed, n_experts, n, is_adverse):
    """½(s − y)² with abs(s − y) ≤ 1 is 1-exp-concave: the vote loses at most ln E more than the best (Vovk 1998)."""
    rng, loss = np.random.default_rng(seed), Squared()
    hedge = plain_hedge(n_experts)
    lost, best = 0.0, np.zeros(n_experts)
    for _ in range(n):
        said = rng.choice([0.0, 0.5, 1.0, rng.uniform()], size=(n_experts, 1))
        vote = hedge.mix(said, loss)
        y = np.array([float(vote[0] < 0.5)]) if is_adverse else rng.uniform(size=1)  # as far off as can be
        lost += float(loss.value(vote, y))
        best += hedge.learn(said, y, loss)
    assert lost <= best.min() + math.log(n_experts) + 1e-9


@pytest.mark.parametrize("loss", [Logistic(), Softmax(n_classes=3)], ids=ids)
@given(seed=seeds, n_experts=st.integers(1, 6), n=st.integers(1, 50))
@settings(max_examples=20)
def test_regret_of_probabilities_is_at_most_the_log_of_the_number_of_experts(loss, seed, n_experts, n):
    """While all give the true class more than a half, a loss is -0.1 ln p, and exp(-loss) = p^0.1 is concave in p."""
    rng = np.random.default_rng(seed)
    hedge = plain_hedge(n_experts)
    lost, best = 0.0, np.zeros(n_experts)
    for _ in range(n):
        p = rng.uniform(0.501, 0.9999, size=n_experts)
        if isinstance(loss, Logistic):
            y = rng.choice([-1.0, 1.0], size=1)
            said = (y * np.log(p / (1 - p)))[:, None]
        else:
            y = rng.integers(3, size=1).astype(float)
            said = np.log(np.tile((1 - p)[:, None] / 2, 3))
            said[:, int(y[0])] = np.log(p)
        lost += float(expert_losses(hedge.mix(said, loss)[None], y, loss)[0])
        best += hedge.learn(said, y, loss)
    assert lost <= best.min() + math.log(n_experts) + 1e-9


@pytest.mark.parametrize("loss", [Logistic(), Softmax(n_classes=4)], ids=ids)
@given(seed=seeds, n_experts=st.integers(1, 6), n=st.integers(1, 50), is_adverse=st.booleans())
@settings(max_examples=20)
def test_who_believes_at_random_by_its_weights_loses_little_more_than_the_best(loss, seed, n_experts, n, is_adverse):
    """Stakes lie in [0, B]: Σ p·ℓ ≤ L* + ln E + T B²/8 (Hoeffding), ≤ B (L* + ln E) / (1 − e^−B) (Freund, Schapire)."""
    most = LOG_SHARE * SURPRISE + WRONG_SHARE
    rng = np.random.default_rng(seed)
    hedge = plain_hedge(n_experts)
    lost, best = 0.0, np.zeros(n_experts)
    for _ in range(n):
        said = rng.choice([1.0, 1000.0]) * rng.normal(size=(n_experts, loss.n_outputs))
        labels = [-1.0, 1.0] if isinstance(loss, Logistic) else range(4)
        targets = [np.array([float(label)]) for label in labels]
        rng.shuffle(targets)
        if is_adverse:
            targets.sort(key=lambda y: -float(hedge.weights @ expert_losses(said, y, loss)))
        expert_loss = expert_losses(said, targets[0], loss)
        assert expert_loss.max() <= most + 1e-12
        lost += float(hedge.weights @ expert_loss)
        best += hedge.learn(said, targets[0], loss)
    bounds = (
        best.min() + math.log(n_experts) + n * most**2 / 8,
        most * (best.min() + math.log(n_experts)) / -math.expm1(-most),
    )
    assert lost <= min(bounds) + 1e-9


@pytest.mark.parametrize("loss", [Squared(), Absolute(), Huber(), Quantile(tau=0.7)], ids=ids)
def test_with_its_usual_voters_it_loses_hardly_more_than_the_best_expert(loss):
    rng = np.random.default_rng(2)
    hedge = opened(loss, 4)
    lost, by_expert = 0.0, np.zeros(4)
    for _ in range(500):
        y = rng.normal(size=1)
        common = rng.normal()  # errors that voting cannot cancel
        said = y + np.array([[1.0], [1.2], [2.0], [5.0]]) * common
        lost += float(expert_losses(hedge.mix(said, loss)[None], y, loss)[0])
        by_expert += hedge.learn(said, y, loss)
    assert by_expert.argmin() == 0
    assert lost <= 1.05 * by_expert.min()


# Experts come and go


def shares(posterior, experts):
    """The weights of these experts among each other, for each voter."""
    own = posterior[:-1, list(experts)]
    return own / own.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("loss", LOSSES, ids=ids)
@given(seed=seeds, twins=st.lists(st.integers(0, 3), min_size=1, max_size=3))
@settings(max_examples=5)
def test_new_experts_are_trusted_as_their_twins_and_leave_the_others_as_they_were_to_each_other(loss, seed, twins):
    hedge = taught(loss, seed)
    before = shares(hedge.posterior, range(4))
    hedge.join([Expert(1, e) for e in range(len(twins))], twins)
    assert hedge.experts.tolist() == [[0, e] for e in range(4)] + [[1, e] for e in range(len(twins))]
    assert hedge.weights.sum() == pytest.approx(1.0)
    assert_allclose(shares(hedge.posterior, range(4)), before, rtol=1e-9)
    for e, twin in enumerate(twins):
        assert_allclose(hedge.posterior[:-1, 4 + e], hedge.posterior[:-1, twin], rtol=1e-9)
        assert hedge.weights[4 + e] == pytest.approx(hedge.weights[twin])


@pytest.mark.parametrize("loss", LOSSES, ids=ids)
@given(seed=seeds, data=st.data())
@settings(max_examples=5)
def test_the_experts_that_stay_keep_their_losses_and_who_is_better(loss, seed, data):
    hedge = taught(loss, seed)
    who_leaves = data.draw(st.integers(0, 1))
    hedge.experts[:] = [(0, 0), (0, 1), (1, 0), (1, 1)]
    stay = [2, 3] if who_leaves == 0 else [0, 1]
    losses, before = hedge.losses.copy(), hedge.posterior.copy()
    hedge.leave(who_leaves)
    assert hedge.experts.tolist() == [[1 - who_leaves, 0], [1 - who_leaves, 1]]
    assert_array_equal(hedge.losses[:-1, :2], losses[:-1, stay])
    assert_array_equal(hedge.losses[-1], losses[-1])  # of the voters, who all stay
    assert hedge.weights.shape == (2,)
    assert hedge.weights.sum() == pytest.approx(1.0)
    # where losses are taken as they are, or the best expert stays, nothing else changes between those that stay
    for v in range(len(hedge.decays) - 1):
        if not loss.temperature_scale or losses[v, :4].argmin() in stay:
            assert_allclose(shares(hedge.posterior, [0, 1])[v], shares(before, stay)[v], rtol=1e-9)


def test_a_successor_takes_the_places_and_keeps_its_own_losses():
    hedge = taught(Squared(), n_experts=5)
    hedge.experts[:] = [(0, 0), (0, 9), (1, 4), (2, 0), (2, 9)]
    losses = hedge.losses.copy()
    hedge.leave(0, successor=2)
    assert hedge.experts.tolist() == [[0, 0], [0, 9], [1, 4]]
    assert_array_equal(hedge.losses[:-1, :3], losses[:-1, [3, 4, 2]])
    assert_array_equal(hedge.losses[:-1, 3:], 0.0)
    assert hedge.weights.shape == (3,)
    assert hedge.weights.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("loss", LOSSES, ids=ids)
def test_who_comes_and_goes_at_once_leaves_no_trace_in_what_is_said_next(loss):
    hedge, twin = taught(loss), taught(loss)
    hedge.join([Expert(7, 0), Expert(7, 3)], [0, 2])
    hedge.leave(7)
    assert_allclose(hedge.weights, twin.weights, rtol=1e-12)
    for said, y in zip(*rows_for(loss, 9), strict=True):
        hedge.learn(said, y, loss)
        twin.learn(said, y, loss)
    assert_allclose(hedge.weights, twin.weights, rtol=1e-12)


@pytest.mark.parametrize("loss", LOSSES, ids=ids)
def test_experts_may_come_before_the_first_row(loss):
    hedge = opened(loss)
    hedge.join([Expert(1, 0)], [0])
    assert_allclose(hedge.weights, 0.2)


# Extremes


@pytest.mark.parametrize("loss", LOSSES, ids=ids)
def test_an_expert_that_is_never_wrong_beside_one_that_is_far_off(loss):
    _, targets = rows_for(loss, 0, 5)
    hedge = opened(loss, 2)
    for y in targets:
        if isinstance(loss, (Logistic, Hinge)):
            right, wrong = 1000.0 * y, -1000.0 * y
        elif isinstance(loss, Softmax):
            right, wrong = (sign * 1000.0 * (np.arange(3) == y[0]) for sign in (1, -1))
        elif isinstance(loss, Poisson):
            right, wrong = np.log(y + 1e-3), np.full(1, 1000.0)
        else:
            right, wrong = y / (1.0 + 2.0 * loss.l2), np.full(loss.n_outputs, 1000.0)
        hedge.learn(np.stack([right, wrong]), y, loss)
        assert np.isfinite(hedge.weights).all()
    assert hedge.weights[0] > 0.9


@pytest.mark.parametrize("loss", [Squared(), Absolute()], ids=ids)
def test_experts_that_are_all_exactly_right_are_believed_alike(loss):
    hedge = opened(loss)
    for _ in range(5):
        hedge.learn(np.full((4, 1), 2.0), np.array([2.0]), loss)
    assert_allclose(hedge.weights, 0.25)
