"""Combinations that cover every pair: as many tests as the two longest axes need, rather than the product of all.

``@pytest.mark.pairwise(kind=KINDS, loss=LOSSES, n_outputs=[1, 2])`` runs a test over them, and over the whole product
in the long form (``--long``); see ``conftest.py``. ``@pytest.mark.each`` does the same where axes have nothing to do
with one another: every value comes once.
"""

from collections.abc import Iterable
from itertools import combinations, product
from typing import Any


def pairwise(*axes: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return combinations, one value of each axis, in which any two values of different axes meet at least once.

    The same axes always give the same combinations: each is the first of those that cover most of what is left.
    """
    values = [list(axis) for axis in axes]
    candidates = [(places, _pairs(places)) for places in product(*(range(len(axis)) for axis in values))]
    left = set().union(*(pairs for _, pairs in candidates))
    chosen = []
    while left:
        places, pairs = max(candidates, key=lambda candidate: len(candidate[1] & left))
        left -= pairs
        chosen.append(places)
    return [tuple(axis[i] for axis, i in zip(values, places, strict=True)) for places in sorted(chosen)]


def each(*axes: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return combinations in which every value of every axis comes at least once: as many as the longest axis has."""
    values = [list(axis) for axis in axes]
    n = max(len(axis) for axis in values)
    return [tuple(axis[i % len(axis)] for axis in values) for i in range(n)]


def _pairs(places: tuple[int, ...]) -> set[tuple[int, int, int, int]]:
    return {(a, places[a], b, places[b]) for a, b in combinations(range(len(places)), 2)}
