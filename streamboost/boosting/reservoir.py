"""Averaging over hypotheses: a uniform reservoir of what the booster was at past rows.

The paper's guarantee for stochastic streams holds for the average over t of the hypotheses (the last lines of
Algorithm 1; Algorithm 3). Keeping all T of them is out of the question on a stream, so K are kept, each of the
T with the same chance; with K ≥ T the average is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import numpy as np

T = TypeVar("T")


class Reservoir(Generic[T]):
    """A uniform sample of at most ``capacity`` things out of a stream of unknown length (Vitter 1985, Algorithm R)."""

    def __init__(self, capacity: int, seed: int = 0) -> None:
        if not isinstance(capacity, (int, np.integer)) or capacity < 1:
            raise ValueError(f"capacity is {capacity!r}, expected a whole number of at least 1. If unsure, take 64.")
        self.capacity = int(capacity)
        self.rng = np.random.default_rng(seed)
        self.kept: list[T] = []
        self.seen = 0

    def offer(self, make: Callable[[], T]) -> None:
        """Count one more thing; ``make`` it only if it is to be kept."""
        self.seen += 1
        if len(self.kept) < self.capacity:
            self.kept.append(make())
        elif (place := int(self.rng.integers(self.seen))) < self.capacity:
            self.kept[place] = make()
