"""Inputs on a common scale, learned as they flow: running mean and standard deviation of every column."""

from __future__ import annotations

import numpy as np

from streamboost._types import FloatArray
from streamboost.kernels import linear as kernels


class Standardizer:
    """Rows (n, d) to standardised rows with a last column of ones (n, d + 1).

    Missing values become 0, the mean. Values further than ``clip`` standard deviations out are cut off,
    so that one wild value cannot throw a linear model.

    Examples
    --------
    >>> import numpy as np
    >>> scaler = Standardizer(n_features=1)
    >>> scaler.learn(np.array([[1.0], [3.0], [np.nan]]), np.ones(3))
    >>> scaler.transform(np.array([[4.0], [np.nan]])).tolist()
    [[2.0, 1.0], [0.0, 1.0]]
    """

    def __init__(self, n_features: int, clip: float = kernels.CLIP) -> None:
        self.clip = clip
        self.count = np.zeros(n_features)
        self.mean = np.zeros(n_features)
        self.m2 = np.zeros(n_features)

    def learn(self, X: FloatArray, weight: FloatArray) -> None:
        """Take rows into the running moments."""
        kernels.learn_moments(X, weight, self.count, self.mean, self.m2)

    def transform(self, X: FloatArray) -> FloatArray:
        """Return the standardised rows and a column of ones."""
        out = np.empty((X.shape[0], X.shape[1] + 1))
        kernels.standardize(X, self.count, self.mean, self.m2, self.clip, out)
        return out

    def add_features(self, k: int) -> None:
        """Make room for k more columns."""
        for name in ("count", "mean", "m2"):
            setattr(self, name, np.concatenate([getattr(self, name), np.zeros(k)]))


class Raw:
    """The same interface with nothing scaled: missing values become 0."""

    def __init__(self, n_features: int) -> None:
        self.count = np.zeros(n_features)  # the weight of the values seen in each column

    def learn(self, X: FloatArray, weight: FloatArray) -> None:
        """Count the values."""
        self.count += weight @ ~np.isnan(X)

    def transform(self, X: FloatArray) -> FloatArray:
        """Return the rows and a column of ones."""
        out = np.empty((X.shape[0], X.shape[1] + 1))
        kernels.plain_inputs(X, out)
        return out

    def add_features(self, k: int) -> None:
        """Make room for k more columns."""
        self.count = np.pad(self.count, (0, k))
