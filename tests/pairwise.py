"""Combinations that cover every pair: as many tests as the two longest axes need, rather than the product of all."""

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


def _pairs(places: tuple[int, ...]) -> set[tuple[int, int, int, int]]:
    return {(a, places[a], b, places[b]) for a, b in combinations(range(len(places)), 2)}
