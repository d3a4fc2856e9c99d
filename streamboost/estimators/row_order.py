"""Whether the last rows of a table are unlike those before, as copies are that over-sampling appends."""

from __future__ import annotations

import math
import warnings

import numpy as np

from streamboost.estimators.prepared import Targets

FEWEST = 10  # rows in the last tenth; fewer tell nothing
MOVED = 0.25  # of the rows of the last tenth would have to be of another class
RARE = 1e-5  # of rows in random order; χ² of few rows and many classes errs, and it is one in ten thousand


def warn_of_tail(targets: Targets) -> None:
    """Warn if the classes of the last tenth of rows are unlike those before: the last rows count most.

    Unlike all rows before by chance hardly ever, and unlike each tenth of the first half by a quarter of its rows, so
    that streams whose classes come in waves are left alone. The second half may be copies, too.
    """
    n, size = len(targets.y), len(targets.y) // 10
    if targets.labels is None or size < FEWEST:
        return
    codes, n_classes = targets.y[:, 0].astype(np.int64), len(targets.labels)
    starts = [*range(0, 5 * size, size), n - size]
    shares = np.stack([np.bincount(codes[start : start + size], minlength=n_classes) for start in starts]) / size
    last, pooled = shares[-1], np.bincount(codes, minlength=n_classes) / n
    before = (n * pooled - size * last) / (n - size)
    there = pooled > 0
    chi2 = size * n / (n - size) * ((last - pooled)[there] ** 2 / pooled[there]).sum()  # of classes in both parts
    moved = np.abs(last - np.stack([*shares[:-1], before])).sum(axis=1).min() / 2
    if moved >= MOVED and _upper_tail(chi2, int(there.sum()) - 1) < RARE:
        k = int((last - before).argmax())
        warnings.warn(
            f"class {list(targets.labels.numbers)[k]!r} is {last[k]:.1%} of the last tenth of the rows and "
            f"{before[k]:.1%} of those before. Rows are learned in order, and the last ones count most: if this is not "
            "the order of time (copies that over-sampling appended, a table sorted by class), shuffle them first, as "
            "with X, y = sklearn.utils.shuffle(X, y).",
            stacklevel=4,
        )


def _upper_tail(chi2: float, free: int) -> float:
    """Return how often χ² with so many degrees of freedom is larger (Wilson and Hilferty, 1931)."""
    spread = 2 / (9 * free)
    return math.erfc(((chi2 / free) ** (1 / 3) - 1 + spread) / math.sqrt(2 * spread)) / 2
