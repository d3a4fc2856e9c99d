"""Prediction intervals, and sets of classes, that hold what they promise while the stream changes.

They are learned from the predictions that learning makes anyway, each before its row was learned: no second model, no
rows held back. The kernels tell how (:mod:`streamboost.kernels.intervals`).
"""

from __future__ import annotations

import numpy as np

from streamboost._types import FloatArray
from streamboost.kernels import intervals as kernels
from streamboost.losses import Logistic, Loss, Softmax
from streamboost.losses.links import Margin
from streamboost.persistence.array_specs import ArraySpec

COVERAGES = np.array([0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99])  # between them it is interpolated
FEWEST_ROWS = 10  # before which an interval is everything


class Intervals:
    """What is known of the errors of predictions: their scale for each row, and their quantiles in its units.

    Parameters
    ----------
    loss : Loss
    n_features : int
    """

    def __init__(self, loss: Loss, n_features: int) -> None:
        self.is_of_classes = isinstance(loss, (Logistic, Softmax))
        m, levels = (0, COVERAGES) if self.is_of_classes else (loss.n_outputs, _both_ends(COVERAGES))
        self.moments = np.zeros((m, 3, n_features + 1))
        self.cells = np.zeros((m, 2, n_features + 1, kernels.CELLS))
        self.totals, self.latest = np.zeros((m, 5)), np.zeros((m, 3, len(kernels.VOLATILITIES)))
        self.lost = np.zeros((m, kernels.N_SCALES))
        self.levels = levels
        self.tracks = np.zeros((max(m, 1), 2, len(kernels.STEPS), len(levels)))
        self.correction = np.zeros((max(m, 1), len(levels)))
        self.n_rows = 0

    def array_specs(self) -> dict[str, ArraySpec]:
        """Return what the arrays have to be."""
        m, L, width = len(self.totals), 2 * len(COVERAGES), self.moments.shape[2]
        L, n = (L // 2, 1) if self.is_of_classes else (L, m)
        if self.is_of_classes and m:
            raise ValueError(f"sets of classes have {m} scales of errors")
        return {
            "moments": ArraySpec("f8", (m, 3, width)),
            "cells": ArraySpec("f8", (m, 2, width, kernels.CELLS)),
            "totals": ArraySpec("f8", (m, 5)),
            "latest": ArraySpec("f8", (m, 3, len(kernels.VOLATILITIES))),
            "lost": ArraySpec("f8", (m, kernels.N_SCALES)),
            "levels": ArraySpec("f8", (L,)),
            "tracks": ArraySpec("f8", (n, 2, len(kernels.STEPS), L)),
            "correction": ArraySpec("f8", (n, L)),
        }

    @property
    def n_features(self) -> int:
        """How many columns rows have."""
        return self.moments.shape[2] - 1

    def add_features(self, k: int) -> None:
        """Make room for k more columns, before the prediction."""
        self.moments = np.insert(self.moments, [self.n_features] * k, 0.0, axis=2)
        self.cells = np.insert(self.cells, [self.cells.shape[2] - 1] * k, 0.0, axis=2)

    def learn(self, X: FloatArray, predictions: FloatArray, y: FloatArray, weight: FloatArray) -> None:
        """Take in what was predicted of rows before they were learned, (n, m), and their targets (n, k)."""
        if self.n_rows == 0:  # of a first row nothing was known
            n = int(np.argmax(weight > 0.0)) + 1
            self.n_rows = int((weight[:n] > 0.0).sum())
            X, predictions, y, weight = X[n:], predictions[n:], y[n:], weight[n:]
        self.n_rows += int((weight > 0.0).sum())
        if self.is_of_classes:
            kernels.learn_numbers(_surprise(predictions, y), weight, self._quantiles(0))
            return
        for k in range(len(self.totals)):
            kernels.learn_errors(
                X, np.ascontiguousarray(predictions[:, k]), np.ascontiguousarray(y[:, k]), weight, self._scale(k),
                self._quantiles(k),
            )  # fmt: skip

    def predict(self, X: FloatArray, predictions: FloatArray, coverage: float) -> FloatArray:
        """Return the ends of intervals around predictions (n, m), (n, m, 2)."""
        level = check_coverage(coverage)
        ends = np.empty((*predictions.shape, 2))
        ends[...] = -np.inf, np.inf
        if self.n_rows < FEWEST_ROWS:
            return ends
        for k in range(len(self.totals)):
            sizes = kernels.scales_of(X, np.ascontiguousarray(predictions[:, k]), self._scale(k))
            values = kernels.read_quantiles(self._quantiles(k))
            errors = np.interp([(1.0 - level) / 2.0, (1.0 + level) / 2.0], self.levels, values)
            ends[:, k] = predictions[:, k, None] + sizes[:, None] * errors
        return ends

    def least_probability(self, coverage: float) -> float:
        """Return the probability that a class needs to be in a set of this coverage."""
        level = check_coverage(coverage)
        if self.n_rows < FEWEST_ROWS:
            return 0.0
        return 1.0 - float(np.interp(level, self.levels, kernels.read_quantiles(self._quantiles(0))))

    def _scale(self, k: int) -> kernels.ErrorScale:
        return kernels.ErrorScale(self.moments[k], self.cells[k], self.totals[k], self.latest[k], self.lost[k])

    def _quantiles(self, k: int) -> kernels.Quantiles:
        return kernels.Quantiles(self.levels, self.tracks[k], self.correction[k])


def has_intervals(loss: Loss) -> bool:
    """Return whether predictions under a loss are numbers or probabilities."""
    return not isinstance(loss.link, Margin)


def _both_ends(coverages: FloatArray) -> FloatArray:
    """The levels of the lower and upper ends of intervals of these coverages, rising."""
    return np.concatenate([(1.0 - coverages[::-1]) / 2.0, (1.0 + coverages) / 2.0])


def _surprise(probabilities: FloatArray, y: FloatArray) -> FloatArray:
    """One minus the probability of the class that came, (n,)."""
    if probabilities.shape[1] == 1:
        p = probabilities[:, 0]
        return np.where(y[:, 0] > 0.0, 1.0 - p, p)
    codes = y[:, 0].astype(np.int64) if y.shape[1] == 1 else np.argmax(y, axis=1)
    return 1.0 - np.take_along_axis(probabilities, codes[:, None], axis=1)[:, 0]


def check_coverage(coverage: float) -> float:
    """Return a coverage, or refuse it."""
    low, high = COVERAGES[[0, -1]]
    if not isinstance(coverage, (int, float, np.number)) or not low <= coverage <= high:
        raise ValueError(f"coverage is {coverage!r}, expected a number from {low} to {high}, such as 0.9.")
    return float(coverage)
