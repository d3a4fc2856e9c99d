"""Memory within a limit: how much room boosters take, and smaller ones that take less."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import NamedTuple

from streamboost.bases import WIDEST, Linear
from streamboost.boosting import Booster
from streamboost.stacks.tree import TreeStack

ROOF = 1024  # MB that rows held by growth may bring a model to where no limit is given
SHORTEST = 64  # rows below which no window is cut
MB = 1_000_000
OVERHEAD = 1 * MB  # everything that does not grow with rows, columns or learners


class Shape(NamedTuple):
    """What rows are like, as far as it tells how much room they need; by default with the levels known already."""

    n_features: int
    n_outputs: int
    n_targets: int
    n_categorical: int = 0
    n_levels: int = 0


def room(booster: Booster, shape: Shape, window: int | None = None) -> int:
    """About how many bytes a booster takes for rows of this shape, with what a refit needs for a moment.

    ``window`` is another length of its memory than the one it has.
    """
    d, m, n_targets, n_categorical, n_levels = shape
    stack, base, replay, N = booster.stack, booster.base, booster.replay, booster.stack.n_learners
    total = 8 * (d + 1) * 2 * m + 16 * N
    if isinstance(base, Linear) and d <= WIDEST:
        total += 8 * (d + 1) ** 2
    if isinstance(stack, TreeStack):
        total += N * 2**stack.max_depth * (8 * (m + 1) + 29)  # leaves
        total += 8 * stack.max_depth * d * (stack.n_bins + 1) * (m + 2)  # histograms
    new_levels = n_categorical * n_levels
    if booster.is_open and isinstance(stack, TreeStack):
        total += max(stack.level_bins.nbytes, N * new_levels)
    if booster.is_open and isinstance(base, Linear):
        total += 2 * base.effects.itemsize * max(base.effects.size, new_levels * m)
    if replay is not None and replay.window is not None:
        held = 8 * d + 8 * n_targets + 8 + d + (8 * m if replay.is_carried else 2 * N)  # of a row
        passing = d + 8 * m + 2 * 8 * (m + 2) + 12  # of a row, while a learner is refitted
        total += (window or replay.window) * (held + passing)
    return total


def fit(boosters: list[Booster], limit_mb: float, shape: Shape) -> str | None:
    """Make boosters smaller until all fit, in place; return what was done, None if nothing had to be.

    The largest that can takes half its window, or half its learners once that is short, until there is room for all,
    and for a challenger of the longest. A booster whose window has become that of the next goes.
    """
    before = _describe(boosters)
    while (total := _total([room(booster, shape) for booster in boosters])) > limit_mb * MB:
        largest_first = sorted(boosters, key=lambda booster: -room(booster, shape))
        if not any(_halve(booster, boosters) for booster in largest_first):
            raise _too_small(limit_mb, shape, total)
    after = _describe(boosters)
    return None if after == before else f"{before} became {after}"


def longest_window(boosters: Sequence[Booster], more: Booster, shape: Shape, limit_mb: float | None) -> int:
    """Return how many rows one more booster may hold beside others, at most as many as its window has."""
    assert more.replay is not None
    most = more.replay.window or 0
    limit = (ROOF if limit_mb is None else limit_mb) * MB
    there = limit - _total([room(booster, shape) for booster in boosters])
    empty, full = room(more, shape, 1), room(more, shape, most)
    return int(min(most, max(there - empty, 0) / max(full - empty, 1) * most))


def _too_small(limit_mb: float, shape: Shape, need: int) -> ValueError:
    return ValueError(
        f"memory_limit_mb is {limit_mb}, but rows of {shape.n_features} columns with {shape.n_outputs} outputs need at "
        f"least {need / MB:.1f} MB. Raise the limit, or learn from fewer columns."
    )


def check(boosters: Sequence[Booster], shape: Shape, limit_mb: float | None = None) -> None:
    """Refuse boosters that :func:`fit` would refuse once they have learned rows; change nothing.

    Without a limit, those that this machine cannot hold: the system would end the process without a word.
    """
    windows, there = [(b.replay and b.replay.window) or 0 for b in boosters], _machine()
    while limit_mb is not None and any(window >= 2 * SHORTEST for window in windows):
        windows = [window // 2 if window >= 2 * SHORTEST else window for window in windows]
    need = _total([room(booster, shape, window) for booster, window in zip(boosters, windows, strict=True)])
    if limit_mb is not None and need > limit_mb * MB:
        raise _too_small(limit_mb, shape, need)
    if limit_mb is None and need > there:
        raise ValueError(
            f"memories of {_describe(boosters)} need about {need / MB:,.0f} MB for rows of {shape.n_features} columns, "
            f"and this machine has {there / MB:,.0f}. Pass a shorter memory, or memory_limit_mb to have it fitted."
        )


def _machine() -> float:
    """Bytes of memory that this machine has."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES")) * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # a system that does not tell
        return math.inf


def _total(sizes: Sequence[int]) -> int:
    """Bytes of all boosters of these sizes, and of a challenger of the longest."""
    return sum(sizes) + (sizes[0] if len(sizes) > 1 else 0) + OVERHEAD


def _halve(booster: Booster, boosters: list[Booster]) -> bool:
    """Make a booster smaller; return whether it could be."""
    replay = booster.replay
    if replay is not None and replay.window is not None and replay.window >= 2 * SHORTEST:
        window = replay.window // 2
        if booster.is_open:
            booster.detach()
            replay.resize(window)
        else:
            replay.window, replay.warmup = window, min(replay.warmup, window)
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
