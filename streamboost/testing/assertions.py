"""Saying what was promised, and what happened instead."""

from __future__ import annotations

import pickle
from typing import TypeVar

import numpy as np

from streamboost._types import FloatArray

T = TypeVar("T")


def fail(who: object, message: str) -> None:
    """Say who broke which promise."""
    raise AssertionError(f"{type(who).__name__}: {message}.")


def expect(kept: bool, who: object, promise: str) -> None:
    """Fail unless the promise was kept."""
    if not kept:
        fail(who, promise)


def expect_same(ours: FloatArray, theirs: FloatArray, who: object, promise: str) -> None:
    """To the last bit."""
    if not np.array_equal(ours, theirs, equal_nan=True):
        fail(who, f"{promise}; {difference(ours, theirs)}")


def expect_close(ours: FloatArray, theirs: FloatArray, who: object, promise: str) -> None:
    """Up to rounding: arrays of another shape may be added up in another order."""
    if ours.shape != theirs.shape or not np.allclose(ours, theirs, rtol=1e-9, atol=1e-12):
        fail(who, f"{promise}; {difference(ours, theirs)}")


def difference(ours: FloatArray, theirs: FloatArray) -> str:
    """How two arrays differ, in words."""
    if ours.shape != theirs.shape:
        return f"shapes were {ours.shape} and {theirs.shape}"
    return f"they differed by up to {np.nanmax(np.abs(ours - theirs)):.4g}"


def largest(array: FloatArray) -> float:
    """The largest absolute value."""
    return float(np.abs(array).max())


def pickled(thing: T) -> T | None:
    """The thing after a round trip through pickle; None if it says it cannot go."""
    try:
        data = pickle.dumps(thing)
    except (pickle.PicklingError, TypeError, AttributeError):
        return None
    loaded: T = pickle.loads(data)
    return loaded
