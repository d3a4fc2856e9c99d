"""Memory within a limit: how much room boosters take, and smaller ones that take less."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

from streamboost.bases import WIDEST, Linear
from streamboost.boosting import Booster
from streamboost.stacks.tree import TreeStack

SHORTEST = 64  # rows below which no window is cut
MB = 1_000_000
OVERHEAD = 1 * MB  # everything that does not grow with rows, columns or learners


def room(booster: Booster, n_features: int, n_outputs: int, n_targets: int) -> int:
    """About how many bytes a booster takes for rows of this shape, with what a refit needs for a moment."""
    d, m, N = n_features, n_outputs, booster.stack.n_learners
    total = 8 * (d + 1) * 2 * m + 16 * N
    if isinstance(booster.base, Linear) and d <= WIDEST:
        total += 8 * (d + 1) ** 2
    if isinstance(booster.stack, TreeStack):
        n_leaves = 2**booster.stack.max_depth
        total += N * n_leaves * (8 * (m + 1) + 29)
        total += 8 * booster.stack.max_depth * d * (booster.stack.n_bins + 1) * (m + 2)  # histograms
    if booster.is_open and isinstance(booster.stack, TreeStack):
        total += booster.stack.level_bins.nbytes
    if booster.is_open and isinstance(booster.base, Linear):
        total += booster.base.effects.nbytes + booster.base.effect_sizes.nbytes
    replay = booster.replay
    if replay is not None and replay.window is not None:
        held = 8 * d + 8 * n_targets + 8 + 2 * N + d  # of a row
        passing = d + 8 * m + 2 * 8 * (m + 2) + 12  # of a row, while a learner is refitted
        total += replay.window * (held + passing)
    return total


def fit(boosters: list[Booster], limit_mb: float, n_features: int, n_outputs: int, n_targets: int) -> str | None:
    """Make boosters smaller until all fit, in place; return what was done, None if nothing had to be.

    The largest takes half its window, or half its learners once that is short, until there is room for all, and for
    a challenger of the longest. A booster whose window has become that of the next goes.
    """
    before = _describe(boosters)

    def total() -> int:
        return _total(boosters, n_features, n_outputs, n_targets)

    while total() > limit_mb * MB:
        largest = max(boosters, key=lambda booster: room(booster, n_features, n_outputs, n_targets))
        if not _halve(largest, boosters):
            raise ValueError(
                f"memory_limit_mb is {limit_mb}, but rows of {n_features} columns with {n_outputs} outputs need at "
                f"least {total() / MB:.1f} MB. Raise the limit, or learn from fewer columns."
            )
    after = _describe(boosters)
    return None if after == before else f"{before} became {after}"


def check(boosters: Sequence[Booster], n_features: int, n_outputs: int, n_targets: int) -> None:
    """Refuse boosters that this machine cannot hold: the system would end the process without a word."""
    need, there = _total(boosters, n_features, n_outputs, n_targets), _machine()
    if need > there:
        raise ValueError(
            f"memories of {_describe(boosters)} need about {need / MB:,.0f} MB for rows of {n_features} columns, and "
            f"this machine has {there / MB:,.0f}. Pass a shorter memory, or memory_limit_mb to have it fitted."
        )


def _machine() -> float:
    """Bytes of memory that this machine has."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES")) * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # a system that does not tell
        return math.inf


def _total(boosters: Sequence[Booster], n_features: int, n_outputs: int, n_targets: int) -> int:
    """Bytes of all, and of a challenger of the longest."""
    sizes = [room(booster, n_features, n_outputs, n_targets) for booster in boosters]
    return sum(sizes) + (sizes[0] if len(sizes) > 1 else 0) + OVERHEAD


def _halve(booster: Booster, boosters: list[Booster]) -> bool:
    """Make a booster smaller; return whether it could be."""
    replay = booster.replay
    if replay is not None and replay.window is not None and replay.window >= 2 * SHORTEST:
        window = replay.window // 2
        if booster.is_open:
            booster.resize(window)
        else:
            replay.window = window
            replay.warmup = min(replay.warmup, window)
            twins = [other for other in boosters if other.replay is not None and other.replay.window == window]
            for twin in twins[1:]:
                boosters.remove(twin)
        return True
    if booster.is_open or booster.stack.n_learners == 1:
        return False
    booster.stack.n_learners //= 2
    booster.edges = type(booster.edges)(booster.stack.n_learners)
    return True


def _describe(boosters: Sequence[Booster]) -> str:
    sizes = [(b.replay.window if b.replay is not None else None, b.stack.n_learners) for b in boosters]
    return ", ".join(f"{window or 'all'} rows x {n} learners" for window, n in sizes)
