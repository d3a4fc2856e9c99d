"""Rows on their way from ``prepare`` to ``learn_prepared``."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from streamboost._types import FloatArray
from streamboost.boosting.committee import Committee
from streamboost.features.encoder import Encoder
from streamboost.features.labels import Labels
from streamboost.features.sparse_rows import SparseRows
from streamboost.losses.base import LARGEST_TARGET


class Targets(NamedTuple):
    """Encoded targets; of a classifier also the labels that know them."""

    y: FloatArray  # (n, k): numbers, or the codes of classes
    labels: Labels | None = None
    n_declared: int = 0  # classes known before the first of these rows


class Prepared(NamedTuple):
    """Rows that were checked and encoded, ready to be learned: what :meth:`StreamEstimator.prepare` returns."""

    X: FloatArray | SparseRows  # (n, d)
    targets: Targets
    weight: FloatArray  # (n,)
    committee: Committee  # that will learn them: the model's, or for first rows a new one
    encoder: Encoder  # that knows them
    against: tuple[Encoder | None, Labels | None]  # what the model has to know by then
    early: FloatArray | None = None  # (n, k), what experts said when the rows were predicted; None: nobody kept it


def check_expert_scores(expert_scores: Any, n: int) -> FloatArray:
    """Return what experts said of n rows when they were predicted, (n, k); NaN where that is not known.

    Rows may be of different lengths, as experts come and go in between, or None.
    """
    expected = "expected what expert_scores(X) gave, a row for each of X, or None where it was not kept."
    if not hasattr(expert_scores, "__len__") or len(expert_scores) != n:
        raise ValueError(f"expert_scores has not as many rows as X, which has {n}, {expected}")
    if type(expert_scores) is np.ndarray and expert_scores.ndim == 2 and expert_scores.dtype == float:
        early = expert_scores.copy()
        early[~(np.abs(early) <= LARGEST_TARGET).all(axis=1)] = np.nan
        return early
    early = np.full((n, max([0 if row is None else np.size(row) for row in expert_scores], default=0)), np.nan)
    for s, row in enumerate(expert_scores):
        try:
            told = np.empty(0) if row is None else np.asarray(row, dtype=float)
        except (TypeError, ValueError):
            told = np.empty((0, 0))
        if told.ndim != 1:
            raise ValueError(f"expert_scores is {row!r} in row {s}, {expected}")
        early[s, : len(told)] = told if (np.abs(told) <= LARGEST_TARGET).all() else np.nan
    return early
