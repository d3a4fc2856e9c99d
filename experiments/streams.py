"""The rows the experiments run on: sets in an order drawn from a seed, regression targets with mean 0 and spread 1.

The theorems start at y⁰ = 0 and speak of rows drawn independently: hence the shuffling and the scaling, for which the
whole set is looked at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from experiments import big_datasets
from experiments.big_datasets import MissingData
from streamboost import datasets
from streamboost._types import FloatArray
from streamboost.datasets import Dataset


class Rows(NamedTuple):
    """Rows (n, d) and their targets (n,)."""

    X: FloatArray
    y: FloatArray


LOADERS: dict[str, Callable[[], Dataset]] = {
    "SLICE": big_datasets.load_slice,
    "cpu_act": big_datasets.load_cpu_act,
    "ailerons": big_datasets.load_ailerons,
    "ABALONE": datasets.load_abalone,
    "A9A": datasets.load_a9a,
    "electricity": datasets.load_electricity,
    "Friedman": lambda: datasets.friedman(20_000, seed=7),
}
CLASSES = ("A9A", "electricity")
IN_PLACE_OF_SLICE = ("cpu_act", "ailerons", "ABALONE")  # the first there is, always under its own name


def draw_rows(name: str, n: int, seed: int) -> Rows:
    """Give n rows of a set in an order of the seed; all of them if it has fewer."""
    X, y = _scaled(name)
    chosen = np.random.default_rng(seed).permutation(len(X))[:n]
    return Rows(X[chosen], y[chosen])


def ordered_rows(name: str, n: int) -> Rows:
    """Give the first n rows of a set in the order of its file."""
    X, y = _scaled(name)
    return Rows(X[:n], y[:n])


@lru_cache(maxsize=4)
def _scaled(name: str) -> Rows:
    X, y, *_ = LOADERS[name]()
    if name in CLASSES:
        return Rows(X, np.where(y > 0, 1.0, -1.0))
    return Rows(X, (y - y.mean()) / y.std())


def regression_set() -> tuple[str, list[dict[str, Any]]]:
    """SLICE if it is there; if not, what stands in for it under its own name, and what to say of SLICE."""
    not_run = []
    try:
        _scaled("SLICE")
    except MissingData as missing:
        not_run.append({"what": "SLICE", "why": missing.what})
    else:
        return "SLICE", []
    for name in IN_PLACE_OF_SLICE:
        try:
            _scaled(name)
        except MissingData:
            continue
        return name, not_run
    raise AssertionError("ABALONE travels with the package")
