"""A chunk: rows, their targets and their weights as floats, checked before anything learns from them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from streamboost._types import FloatArray
from streamboost.losses import Loss


class Chunk(NamedTuple):
    """Rows (n, d) with NaN for a missing value, targets (n, k) as the loss codes them, weights (n,)."""

    X: FloatArray
    y: FloatArray
    weight: FloatArray


def check_chunk(X: Any, y: Any, weight: Any, loss: Loss, n_features: int | None = None) -> Chunk:
    """Return a chunk, or raise a ``ValueError`` that says what is wrong with it."""
    X = check_rows(X, n_features)
    y = np.array(y, dtype=float)
    y = y[:, None] if y.ndim == 1 else y
    if y.shape[:1] != (len(X),):
        raise ValueError(f"X has {len(X)} rows and y has shape {y.shape}, expected one y a row.")
    chunk = Chunk(X, y, check_weight(weight, len(X)))
    loss.check_targets(y)
    return chunk


def check_rows(X: Any, n_features: int | None = None) -> FloatArray:
    """Rows as a C-contiguous float array (n, d) without infinities, and of the right width if one is given."""
    rows: FloatArray = np.ascontiguousarray(X, dtype=float)
    if rows.ndim != 2 or rows.shape[1] < 1:
        raise ValueError(f"X has shape {rows.shape}, expected (rows, features). For a single row pass X[None, :].")
    if n_features is not None and rows.shape[1] != n_features:
        way_out = "Pass the same columns in the same order; a booster takes more once add_features was called."
        raise ValueError(f"X has {rows.shape[1]} features, expected {n_features} as in the first rows. {way_out}")
    if np.isinf(rows).any():
        row, column = np.argwhere(np.isinf(rows))[0]
        raise ValueError(f"X holds infinity in row {row}, column {column}. Use NaN for a missing value, or clip it.")
    return rows


def check_weight(weight: Any, n: int, name: str = "weight") -> FloatArray:
    """Weights as floats (n,), finite and not below 0; 1 each where none are given, the same for all if a number is."""
    if weight is None:
        return np.ones(n)
    checked: FloatArray = np.array(weight, dtype=float)
    if checked.ndim == 0:
        checked = np.full(n, float(checked))
    if checked.shape != (n,):
        raise ValueError(f"{name} has shape {checked.shape}, expected ({n},): one weight a row.")
    bad = ~(np.isfinite(checked) & (checked >= 0))
    if bad.any():
        row = int(np.argmax(bad))
        expected = "a finite number of at least 0. To skip a row, weigh it 0."
        raise ValueError(f"{name} in row {row} is {checked[row]}, expected {expected}")
    return checked
