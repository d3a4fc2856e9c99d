"""N streaming regression trees: their options, state and shapes; the loops are in ``tree_kernels``.

Between refits a tree keeps its splits and its leaves learn every row; a refit grows it afresh from the
histograms of a window of rows. Splits are remembered as raw values, so rows need no codes to be predicted.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamboost.arrays import BoolArray, FloatArray, IntArray
from streamboost.binning import Bins
from streamboost.stacks import tree_kernels as kernels
from streamboost.stacks.base import Marks, Stack, Window


class TreeStack(Stack):
    """N depth-limited regression trees under weighted square loss.

    A leaf says the sum of weight * target of its rows over their weight + ``l2``. A tree never refitted is
    a single leaf.

    Parameters
    ----------
    n_learners : int, default 60
        N, the number of trees.
    max_depth : int, default 7
        How many splits may lie between the root and a leaf, 1 to 15.
    min_samples_leaf : int, default 5
        The fewest rows a refit leaves on either side of a split.
    l2 : float, default 1.0
        Pulls the leaves towards 0, as this much weight of targets 0 in each would.
    forget : float, optional
        The weight beyond which a leaf fades: with 20 it goes on as if it had seen the last 20 rows or so.
        By default leaves never forget, and only refits bring them up to date.
    n_bins : int, default 64
        Among how many bins of each column a refit looks for splits, 2 to 254.

    Attributes
    ----------
    feature, threshold, missing_left, gain : ndarray of shape (N, 2 ** max_depth - 1)
        The splits: node p has the children 2p + 1 and 2p + 2, feature -1 is no split, a value at or below
        the threshold goes left, and the gain is what the split took off the square loss at the last refit.
    stats : ndarray of shape (N, 2 ** max_depth, m + 1)
        The sums of weight * target, and of weight, of each leaf.

    Examples
    --------
    >>> import numpy as np
    >>> from types import SimpleNamespace
    >>> from streamboost.binning import Bins
    >>> X = np.random.default_rng(0).uniform(size=(500, 2))
    >>> y = np.sin(6 * X[:, :1])
    >>> stack = TreeStack(n_learners=1, max_depth=4)
    >>> stack.open(n_features=2, n_outputs=1)
    >>> bins = Bins(stack.n_bins)
    >>> bins.fit(X)
    >>> marks = stack.refit(0, SimpleNamespace(X=X, codes=bins.encode(X), bins=bins), y, np.ones(500))
    >>> print(f"explains {1 - np.var(y - stack.predict(X)[:, 0]) / np.var(y):.2f} of the variance")
    explains 0.98 of the variance
    >>> print(f"feature {stack.feature_gains().argmax()} matters most")
    feature 0 matters most

    References
    ----------
    Hu et al. (2017), Gradient Boosting on Stochastic Data Streams, "Experiments": regression trees under
    FTRL, with the depth as regulariser.
    """

    feature: IntArray
    threshold: FloatArray
    missing_left: BoolArray
    gain: FloatArray
    stats: FloatArray

    def __init__(
        self,
        n_learners: int = 60,
        *,
        max_depth: int = 7,
        min_samples_leaf: int = 5,
        l2: float = 1.0,
        forget: float | None = None,
        n_bins: int = 64,
    ) -> None:
        super().__init__(n_learners)
        if not isinstance(max_depth, (int, np.integer)) or not 1 <= max_depth <= 15:
            raise ValueError(
                f"max_depth is {max_depth!r}, expected a whole number from 1 to 15: "
                "a tree keeps room for all 2 ** max_depth leaves. If unsure, leave it out: the default is 7."
            )
        if not isinstance(min_samples_leaf, (int, np.integer)) or min_samples_leaf < 1:
            raise ValueError(
                f"min_samples_leaf is {min_samples_leaf!r}, expected a whole number of at least 1. "
                "If unsure, leave it out: the default is 5."
            )
        if not 0 <= l2 < math.inf:
            raise ValueError(
                f"l2 is {l2!r}, expected a finite number of at least 0. For plain means in the leaves pass 0."
            )
        if forget is not None and not forget >= 1:
            raise ValueError(
                f"forget is {forget!r}, expected a weight of at least 1. For leaves that never forget pass None."
            )
        self.max_depth = int(max_depth)
        self.min_samples_leaf = int(min_samples_leaf)
        self.l2 = float(l2)
        self.forget = forget
        self.n_bins = Bins(n_bins).n_bins

    def _open(self, seed: int) -> None:
        for name, fresh in self._fresh(self.n_learners).items():
            setattr(self, name, fresh)

    def _fresh(self, k: int) -> dict[str, NDArray[Any]]:
        """Return the state of k trees that have seen nothing."""
        n_leaves = 2**self.max_depth
        return {
            "feature": np.full((k, n_leaves - 1), -1, np.int32),
            "threshold": np.full((k, n_leaves - 1), np.inf),
            "missing_left": np.ones((k, n_leaves - 1), np.bool_),
            "gain": np.zeros((k, n_leaves - 1)),
            "stats": np.zeros((k, n_leaves, self.n_outputs + 1)),
        }

    def predict(self, X: FloatArray) -> FloatArray:
        """What each tree says, (n, N, m)."""
        return self.recall(self.marks(X))

    def learn(self, X: FloatArray, targets: FloatArray, weight: FloatArray) -> None:
        """Let the leaves learn ``targets`` (n, N, m), row after row; the splits stay."""
        expected = (len(X), self.n_learners, self.n_outputs)
        if targets.shape != expected:
            raise ValueError(
                f"targets have shape {targets.shape}, expected {expected}: "
                "one for each row, learner and output. For a single output pass targets[..., None]."
            )
        forget = math.inf if self.forget is None else float(self.forget)
        kernels.learn(self.marks(X), targets, weight, self.stats, forget)

    def grow(self, k: int) -> None:
        """Append k trees that have seen nothing."""
        self.n_learners += k
        for name, fresh in self._fresh(k).items():
            setattr(self, name, np.concatenate([getattr(self, name), fresh]))

    def add_features(self, k: int) -> None:
        """Make room for k more columns: the splits name columns by number, so nothing moves."""
        self.n_features += k

    def add_outputs(self, k: int) -> None:
        """Make room for k more outputs, about which every leaf says 0."""
        self.stats = np.insert(self.stats, [self.n_outputs] * k, 0.0, axis=2)
        self.n_outputs += k

    @property
    def refittable(self) -> range:
        """All of them."""
        return range(self.n_learners)

    def refit(self, i: int, window: Window, target: FloatArray, weight: FloatArray) -> Marks:
        """Grow tree i afresh from the window's rows; return the leaf of each of them, (n,)."""
        n = window.codes.shape[1]
        if target.shape != (n, self.n_outputs):
            raise ValueError(
                f"target has shape {target.shape}, expected {(n, self.n_outputs)}: "
                "one for each row of the window and output. For a single output pass target[:, None]."
            )
        if window.bins.n_bins != self.n_bins:
            raise ValueError(
                f"window has bins of n_bins={window.bins.n_bins}, expected {self.n_bins}, as the stack was made "
                f"with. Make the window with n_bins={self.n_bins}."
            )
        feature, cut = self.feature[i], np.empty(self.feature.shape[1], np.uint8)
        leaf = np.empty(n, np.uint16)
        # Slices are made whole: for their layout the kernel would be compiled once more, and run slower.
        codes, target, weight = map(np.ascontiguousarray, (window.codes, target, weight))
        kernels.grow(
            codes, target, weight, self.n_bins, self.max_depth, self.min_samples_leaf, self.l2,
            feature, cut, self.missing_left[i], self.gain[i], self.stats[i], leaf,
        )  # fmt: skip
        between_numbers = cut < self.n_bins - 1  # the last cut parts the numbers from the missing
        self.threshold[i] = np.inf
        self.threshold[i, between_numbers] = window.bins.edges[feature[between_numbers], cut[between_numbers]]
        return leaf

    def marks(self, X: FloatArray) -> Marks:
        """Return the leaf of each row in each tree, (n, N)."""
        if X.shape[1] != self.n_features:
            raise ValueError(
                f"X has {X.shape[1]} columns, expected {self.n_features}, as many as the stack was opened for. "
                "Call add_features before rows that have more."
            )
        return kernels.route(X, self.feature, self.threshold, self.missing_left, self.max_depth)

    def recall(self, marks: Marks) -> FloatArray:
        """What the first k trees say of rows whose leaves are ``marks`` (n, k): (n, k, m)."""
        return kernels.read(marks, self.stats, self.l2)

    def feature_gains(self) -> FloatArray:
        """How much each column has taken off the square loss in the trees as they stand, (d,)."""
        is_split = self.feature >= 0
        gains = np.zeros(self.n_features)
        np.add.at(gains, self.feature[is_split], self.gain[is_split])
        return gains
