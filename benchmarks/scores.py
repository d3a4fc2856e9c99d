"""Scores of a run, block by block, so that runs of unequal length can be compared over the same rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.streams import Task

BLOCK = 500
PARTS = 15  # that rows are put in by the probability of their likeliest class
FLOOR = 1e-6  # what a probability is worth at least, lest one row decide the log loss


def tidy(answers: NDArray[np.float64]) -> tuple[NDArray[np.float64], int]:
    """Turn answers that are no numbers into 0, class weights into probabilities; count the former.

    A row without an opinion gives every class the same probability.
    """
    is_bad = ~np.isfinite(answers)
    answers = np.where(is_bad, 0.0, answers)
    if answers.ndim == 1:
        return answers, int(is_bad.sum())
    total = answers.sum(axis=1, keepdims=True)
    has_opinion = total > 0
    spread = np.full_like(answers, 1.0 / answers.shape[1])
    return np.where(has_opinion, answers / np.where(has_opinion, total, 1.0), spread), int(is_bad.any(axis=1).sum())


def block_scores(task: Task, y: NDArray[Any], answers: NDArray[np.float64]) -> dict[str, list[float]]:
    """Give one figure a block: ``rmse``, or ``accuracy`` and ``log_loss``. The last block may be shorter."""
    starts = range(0, len(y), BLOCK)
    if task == "regression":
        squares = (answers - y) ** 2
        return {"rmse": [math.sqrt(squares[s : s + BLOCK].mean()) for s in starts]}
    is_right = answers.argmax(axis=1) == y
    surprise = -np.log(np.clip(answers[np.arange(len(y)), y], FLOOR, 1.0))
    return {
        "accuracy": [float(is_right[s : s + BLOCK].mean()) for s in starts],
        "log_loss": [float(surprise[s : s + BLOCK].mean()) for s in starts],
    }


def calibration_error(answers: NDArray[np.float64], y: NDArray[Any]) -> float:
    """Tell how far shares of right answers are from what was promised, in parts of the rows by probability."""
    surest, is_right = answers.max(axis=1), answers.argmax(axis=1) == y
    part = np.minimum((PARTS * surest).astype(int), PARTS - 1)
    apart = np.abs(np.bincount(part, weights=is_right - surest, minlength=PARTS))
    return float(apart.sum() / len(y))


def cumulative(measure: str, blocks: list[float], n: int) -> list[float]:
    """Give the score over all rows up to the end of each block; n rows in all, the last block may be shorter."""
    sizes = np.full(len(blocks), BLOCK)
    if blocks:
        sizes[-1] = n - BLOCK * (len(blocks) - 1)
    power = 2 if measure == "rmse" else 1
    means = np.cumsum(np.power(blocks, power) * sizes) / np.cumsum(sizes)
    return [float(mean ** (1 / power)) for mean in means]
