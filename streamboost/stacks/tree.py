"""N streaming regression trees: options, state and shapes; the loops are in :mod:`streamboost.kernels`.

Between refits a tree keeps its splits and its leaves learn every row; a refit grows it afresh from the
histograms of a window of rows. Splits are remembered as raw values, so rows need no codes to be predicted.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from streamboost._types import BoolArray, FloatArray, IntArray
from streamboost.errors import refused
from streamboost.features.binning import LEVEL_BINS, Bins, cat_positions, joined_columns
from streamboost.kernels import tree_growing, tree_rows
from streamboost.kernels.carrying import snap_splits
from streamboost.kernels.contributions import add_contributions
from streamboost.kernels.splits import Signs
from streamboost.kernels.tree_growing import Growth, Tree
from streamboost.kernels.tree_rows import Trees
from streamboost.persistence.array_specs import ArraySpec
from streamboost.stacks.base import LeafIds, Stack, Window

NO_STEPS = np.zeros(0)  # leaves are found without


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
        Among how many bins of each column a refit looks for splits, 2 to 254. Of categories at most 64
        bins are used: one for each of the most frequent levels, and one for all others.
    max_features : int, float or "sqrt", optional
        Among how many columns, drawn afresh, a refit looks for splits: so many, this share of them, or the
        square root of their number; at least one. By default among all.
    monotonic_cst : dict or array-like of shape (d,), optional
        For columns, by their number, whether what each tree says must rise (1), must fall (-1), or is free (0),
        as the column rises and all others stay: for numbers, and one output, only. A booster takes steps
        *against* what its learners say, so that for predictions that rise the trees have to fall: the
        estimators turn the signs around for you.
    cat_l2 : float, default 10.0
        Added to ``l2`` where splits of categories are judged: so many more ways to part levels than numbers let
        one of them look good by chance.

    Attributes
    ----------
    feature, threshold, missing_left, gain : ndarray of shape (N, 2 ** max_depth - 1)
        The splits: node p has the children 2p + 1 and 2p + 2, feature -1 is no split, a value at or below
        the threshold goes left, and the gain is what the split took off the square loss at the last refit.
        Threshold NaN is a split of categories, see ``subset``; its gain is reckoned with ``cat_l2``.
    stats : ndarray of shape (N, 2 ** max_depth, m + 1)
        The sums of weight * target, and of weight, of each leaf.
    categorical : ndarray of shape (n_cat,)
        The columns that hold levels 0, 1, 2, ..., as told by :meth:`set_categorical`.
    cat_at : ndarray of shape (d,)
        The position of each column among the categorical ones, or -1.
    level_bins : ndarray of shape (N, n_cat, n_levels)
        The bin of each level, as it was when the tree was refitted.
    subset : ndarray of shape (N, 2 ** max_depth - 1)
        The levels that go left: those of bin b if bit b is set. Of shape (N, 0) while nothing is categorical.
    monotone : ndarray of shape (d,)
        The signs in ``monotonic_cst``; of shape (0,) if there are none.
    bounds : ndarray of shape (N, 2 ** max_depth, 2)
        What each leaf keeps to, whatever it learns, so that the signs hold between refits as well. Of shape
        (N, 0, 2) if there are no signs.
    n_draws : int
        How many refits have drawn columns.

    Examples
    --------
    >>> import numpy as np
    >>> from types import SimpleNamespace
    >>> from streamboost.features.binning import Bins
    >>> X = np.random.default_rng(0).uniform(size=(500, 2))
    >>> y = np.sin(6 * X[:, :1])
    >>> stack = TreeStack(n_learners=1, max_depth=4)
    >>> stack.open(n_features=2, n_outputs=1)
    >>> bins = Bins(stack.n_bins)
    >>> bins.fit(X)
    >>> leaf_ids = stack.refit(0, SimpleNamespace(X=X, codes=bins.encode(X), bins=bins), y, np.ones(500))
    >>> print(f"explains {1 - np.var(y - stack.predict(X)[:, 0]) / np.var(y):.2f} of the variance")
    explains 0.98 of the variance
    >>> print(f"feature {stack.feature_gains().argmax()} matters most")
    feature 0 matters most

    References
    ----------
    Hu et al. (2017), Gradient Boosting on Stochastic Data Streams, "Experiments": regression trees under
    FTRL, with the depth as regulariser. Fisher (1958), On Grouping for Maximum Homogeneity: how categories
    are split. The bounds are those of LightGBM's "basic" monotone constraints.
    """

    feature: IntArray
    threshold: FloatArray
    missing_left: BoolArray
    gain: FloatArray
    stats: FloatArray
    level_bins: NDArray[np.uint8]
    subset: NDArray[np.uint64]
    bounds: FloatArray

    def __init__(
        self,
        n_learners: int = 60,
        *,
        max_depth: int = 7,
        min_samples_leaf: int = 5,
        l2: float = 1.0,
        forget: float | None = None,
        n_bins: int = 64,
        max_features: int | float | Literal["sqrt"] | None = None,
        monotonic_cst: Mapping[int, int] | Sequence[int] | NDArray[Any] | None = None,
        cat_l2: float = 10.0,
    ) -> None:
        super().__init__(n_learners)
        if not isinstance(max_depth, (int, np.integer)) or not 1 <= max_depth <= 15:
            why = "a tree keeps room for all 2 ** max_depth leaves. If unsure, leave it out: the default is 7."
            raise refused("max_depth", max_depth, f"a whole number from 1 to 15: {why}")
        if not isinstance(min_samples_leaf, (int, np.integer)) or min_samples_leaf < 1:
            expected = "a whole number of at least 1. If unsure, leave it out: the default is 5."
            raise refused("min_samples_leaf", min_samples_leaf, expected)
        for name, value in (("l2", l2), ("cat_l2", cat_l2)):
            if not 0 <= value < math.inf:
                raise refused(name, value, "a finite number of at least 0. For plain means pass 0.")
        if forget is not None and not forget >= 1:
            raise refused("forget", forget, "a weight of at least 1. For leaves that never forget pass None.")
        self.max_depth, self.min_samples_leaf = int(max_depth), int(min_samples_leaf)
        self.l2, self.cat_l2, self.forget = float(l2), float(cat_l2), forget
        self.n_bins = Bins(n_bins).n_bins
        self.max_features = _checked_share(max_features)
        self.monotonic_cst = _checked_signs(monotonic_cst)
        self.categorical: IntArray = np.zeros(0, np.int32)
        self.cat_at: IntArray = np.zeros(0, np.int32)
        self.n_levels = 0
        self.monotone = np.zeros(0, np.int8)

    def _open(self, seed: int) -> None:
        self.monotone = self._signs()
        self.seed, self.n_draws = seed, 0
        self.categorical, self.n_levels = np.zeros(0, np.int32), 0
        self.cat_at = cat_positions(self.categorical, self.n_features)
        for name, fresh in self._fresh(self.n_learners).items():
            setattr(self, name, fresh)

    def array_specs(self) -> dict[str, ArraySpec]:
        """Return what the arrays have to be."""
        N, n_leaves, d, n_cat = self.n_learners, 2**self.max_depth, self.n_features, len(self.categorical)
        nodes, is_bound = (N, n_leaves - 1), bool(len(self.monotone))
        return {
            "categorical": ArraySpec("i4", (None,), 0, d),
            "cat_at": ArraySpec("i4", (d,), -1, n_cat),
            "monotone": ArraySpec("i1", (d if is_bound else 0,), -1, 2),
            "feature": ArraySpec("i4", nodes, -1, d),
            "threshold": ArraySpec("f8", nodes),
            "missing_left": ArraySpec("?", nodes),
            "gain": ArraySpec("f8", (N, None)),
            "stats": ArraySpec("f8", (N, n_leaves, self.n_outputs + 1)),
            "level_bins": ArraySpec("u1", (N, n_cat, None), 0, self.n_bins),
            "subset": ArraySpec("u8", (N, n_leaves - 1 if n_cat else 0)),
            "bounds": ArraySpec("f8", (N, n_leaves if is_bound else 0, 2)),
        }

    def _signs(self) -> NDArray[np.int8]:
        """Return the sign of each column (d,), or nothing if all are free."""
        cst, d = self.monotonic_cst, self.n_features
        if isinstance(cst, dict):
            beyond = [j for j in cst if j >= d]
            if beyond:
                told = f"monotonic_cst names column {beyond[0]}, expected numbers below {d}: there are no more columns."
                raise ValueError(f"{told} Name columns that the first rows have.")
            signs = np.zeros(d, np.int8)
            signs[list(cst)] = list(cst.values())
        elif cst is not None and cst.shape != (d,):
            told = f"monotonic_cst has shape {cst.shape}, expected {(d,)}: one sign for each column."
            raise ValueError(f"{told} To name only some columns pass a dict.")
        else:
            signs = np.zeros(0, np.int8) if cst is None else cst.copy()
        if not signs.any():
            return np.zeros(0, np.int8)
        if self.n_outputs != 1:
            raise _one_output_only(self.n_outputs)
        return signs

    def _fresh(self, k: int) -> dict[str, NDArray[Any]]:
        """Return the state of k trees that have seen nothing."""
        n_leaves, n_cat = 2**self.max_depth, len(self.categorical)
        bounds = np.empty((k, n_leaves if len(self.monotone) else 0, 2))
        bounds[:] = (-np.inf, np.inf)
        return {
            "feature": np.full((k, n_leaves - 1), -1, np.int32),
            "threshold": np.full((k, n_leaves - 1), np.inf),
            "missing_left": np.ones((k, n_leaves - 1), np.bool_),
            "gain": np.zeros((k, n_leaves - 1)),
            "stats": np.zeros((k, n_leaves, self.n_outputs + 1)),
            "level_bins": np.full((k, n_cat, self.n_levels), self.other_bin, np.uint8),
            "subset": np.zeros((k, n_leaves - 1 if n_cat else 0), np.uint64),
            "bounds": bounds,
        }

    @property
    def array_names(self) -> list[str]:
        """The names of the arrays of which each tree has a part."""
        return list(self._fresh(0))

    @property
    def other_bin(self) -> int:
        """The bin of all levels that have none of their own."""
        return min(self.n_bins, LEVEL_BINS) - 1

    def set_categorical(self, columns: Sequence[int] | IntArray, n_levels: int) -> None:
        """Let columns hold levels 0, 1, 2, ..., which are split into sets, from the next refit on.

        Others that were categorical before stay so, and trees keep what they have split until they are refitted.
        The bins of the windows to come have to be told the same. Of levels the first ``n_levels`` can have a bin of
        their own, any further ones count among the others: room for all, asked for at once, spares moving arrays later.
        """
        joined = joined_columns(self.categorical, columns, n_levels)
        if len(joined) and joined.max() >= self.n_features:
            told = f"columns name column {joined.max()}, expected numbers below {self.n_features}"
            raise ValueError(f"{told}: there are no more columns. Call open or add_features first.")
        signed = [int(j) for j in joined if len(self.monotone) and self.monotone[j]]
        if signed:
            told = f"columns name column {signed[0]}, of which monotonic_cst says {self.monotone[signed[0]]}"
            why = "levels have no order in which to rise or fall. Leave that column out of monotonic_cst."
            raise ValueError(f"{told}, but {why}")
        more = len(joined) - len(self.categorical), max(n_levels - self.n_levels, 0)
        if more == (0, 0) or len(joined) == 0:
            return
        self.level_bins = np.pad(self.level_bins, ((0, 0), (0, more[0]), (0, more[1])), constant_values=self.other_bin)
        if len(self.categorical) == 0:
            self.subset = np.zeros(self.feature.shape, np.uint64)
        self.categorical, self.n_levels = joined, self.n_levels + more[1]
        self.cat_at = cat_positions(joined, self.n_features)

    def predict(self, X: FloatArray) -> FloatArray:
        """What each tree says, (n, N, m)."""
        return self.predict_leaves(self.leaf_ids(X))

    def learn(
        self, X: FloatArray, targets: FloatArray, weight: FloatArray, curvature: FloatArray | None = None
    ) -> None:
        """Let the leaves learn ``targets`` (n, N, m), row after row; the splits stay.

        With curvatures (n, N) the targets are gradients, and leaves say the sum of these over that of the curvatures.
        """
        self._check_targets(X, targets)
        forget = math.inf if self.forget is None else float(self.forget)
        curvature = np.ones(targets.shape[:2]) if curvature is None else curvature
        tree_rows.learn(self.leaf_ids(X), targets, weight, curvature, self.stats, forget)

    def grow(self, k: int) -> None:
        """Append k trees that have seen nothing."""
        self.n_learners += k
        for name, fresh in self._fresh(k).items():
            setattr(self, name, np.concatenate([getattr(self, name), fresh]))

    def add_features(self, k: int) -> None:
        """Make room for k more columns: the splits name columns by number, so nothing moves."""
        self.n_features += k
        self.cat_at = cat_positions(self.categorical, self.n_features)
        if len(self.monotone):
            self.monotone = np.pad(self.monotone, (0, k))

    def add_outputs(self, k: int) -> None:
        """Make room for k more outputs, about which every leaf says 0."""
        if len(self.monotone) and k:
            raise _one_output_only(self.n_outputs + k)
        self.stats = np.insert(self.stats, [self.n_outputs] * k, 0.0, axis=2)
        self.n_outputs += k

    splits = True

    def split_output(self) -> None:
        """Targets of the two outputs are each other's opposite, and so are the sums of them."""
        if len(self.monotone):
            raise _one_output_only(2)
        sums, weight = self.stats[..., :1], self.stats[..., 1:]
        self.stats = np.concatenate([-sums, sums, weight], axis=2)
        self.n_outputs = 2

    @property
    def refittable(self) -> range:
        """All of them."""
        return range(self.n_learners)

    def refit(self, i: int, window: Window, target: FloatArray, weight: FloatArray) -> LeafIds:
        """Grow tree i afresh from the window's rows; return the leaf of each of them, (n,)."""
        n = window.codes.shape[1]
        if target.shape != (n, self.n_outputs):
            told = f"target has shape {target.shape}, expected {(n, self.n_outputs)}: one for each row of the window"
            raise ValueError(f"{told} and output. For a single output pass target[:, None].")
        if window.bins.n_bins != self.n_bins:
            told = f"window has bins of n_bins={window.bins.n_bins}, expected {self.n_bins}, as the stack was made"
            raise ValueError(f"{told} with. Make the window with n_bins={self.n_bins}.")
        theirs, ours = set(window.bins.categorical.tolist()), set(self.categorical.tolist())
        if theirs != ours or window.bins.level_bins.shape != self.level_bins.shape[1:]:
            told = f"window has bins for {window.bins.level_bins.shape[1]} levels of the columns {sorted(theirs)}"
            expected = f"{self.n_levels} levels of {sorted(ours)}, as the stack has"
            raise ValueError(f"{told}, expected {expected}. Call set_categorical on both alike.")
        columns = self.draw_columns()
        leaf, cut = np.empty(n, np.uint16), np.empty(self.feature.shape[1], np.uint8)
        # Slices are made whole: for their layout the kernel would be compiled once more, and run slower.
        tree_growing.grow(
            np.ascontiguousarray(window.codes[columns]), np.ascontiguousarray(target), np.ascontiguousarray(weight),
            *self.how_to_grow(columns), self.tree(i, cut), leaf,
        )  # fmt: skip
        self.keep_splits(i, cut, columns, window.bins)
        if len(self.categorical):
            self.level_bins[i] = window.bins.level_bins[window.bins.cat_at[self.categorical]]
        return leaf

    def how_to_grow(self, columns: slice | IntArray) -> tuple[Growth, BoolArray, Signs]:
        """What the kernels are told of trees to be grown, and of these columns."""
        growth = Growth(self.n_bins, self.max_depth, self.min_samples_leaf, self.l2, self.cat_l2)
        signs = self.monotone[columns] if len(self.monotone) else self.monotone
        return growth, self.cat_at[columns] >= 0, signs

    def tree(self, i: int, cut: NDArray[np.uint8]) -> Tree:
        """Tree i as the kernels write it, with the last bins to go left."""
        return Tree(
            self.feature[i], cut, self.subset[i], self.missing_left[i], self.gain[i], self.stats[i], self.bounds[i]
        )

    def one_alike(self) -> TreeStack:
        """Return a stack of one tree that has seen nothing, made as these are; it draws columns as these would."""
        self.n_draws += self.max_features is not None
        twin = copy.copy(self)
        twin.n_learners, twin.n_draws = 1, self.n_draws - (self.max_features is not None)
        for name, fresh in twin._fresh(1).items():
            setattr(twin, name, fresh)
        return twin

    def copy_of(self, i: int, bins: Bins) -> tuple[TreeStack, NDArray[np.uint8]]:
        """Return a stack of tree i alone, its splits at the cut points of ``bins``, and the last bins to go left."""
        twin, cut = copy.copy(self), np.empty(self.feature.shape[1], np.uint8)
        twin.n_learners = 1
        for name in self._fresh(0):
            setattr(twin, name, getattr(self, name)[i : i + 1].copy())
        snap_splits(twin.feature[0], twin.threshold[0], bins.edges, bins.n_edges, cut)
        return twin, cut

    def take_tree(self, i: int, other: TreeStack) -> None:
        """Put the first tree of another stack, made as this one is, in the place of tree i."""
        for name in self._fresh(0):
            getattr(self, name)[i] = getattr(other, name)[0]

    def drop_last(self, k: int) -> None:
        """Let the last k trees go."""
        self.n_learners -= k
        for name in self._fresh(0):
            setattr(self, name, getattr(self, name)[:-k].copy())

    def draw_columns(self) -> slice | IntArray:
        """Draw the columns that the next tree may split on."""
        d, share = self.n_features, self.max_features
        if share is None:
            return slice(None)
        k = math.isqrt(d) if share == "sqrt" else share if isinstance(share, int) else int(share * d)
        self.n_draws += 1
        drawn = np.random.default_rng((self.seed, self.n_draws)).choice(d, min(max(k, 1), d), replace=False)
        return np.sort(drawn)  # of equal columns the first is split on

    def keep_splits(self, i: int, cut: NDArray[np.uint8], columns: slice | IntArray, bins: Bins) -> None:
        """Remember the splits of tree i, grown from these columns, as raw values, and as sets of levels."""
        feature, threshold = self.feature[i], self.threshold[i]
        if not isinstance(columns, slice):
            feature[feature >= 0] = columns[feature[feature >= 0]]
        tree_growing.set_thresholds(feature, cut, self.n_bins, bins.edges, threshold)
        if len(self.categorical):
            # NaN marks a split of levels at no cost: nothing is at or below it, and the subset decides instead.
            threshold[(feature >= 0) & (self.cat_at[feature] >= 0)] = np.nan

    def leaf_ids(self, X: FloatArray) -> LeafIds:
        """Return the leaf of each row in each tree, (n, N)."""
        if X.shape[1] != self.n_features:
            told = f"X has {X.shape[1]} columns, expected {self.n_features}, as many as the stack was opened for."
            raise ValueError(f"{told} Call add_features before rows that have more.")
        if len(X) == 0:  # which is asked to learn their type: no reason to compile anything yet
            return np.zeros((0, self.n_learners), np.uint16)
        return tree_rows.route(X, self._trees(NO_STEPS), self.max_depth, self.other_bin)

    def _trees(self, eta: FloatArray) -> Trees:
        """What the kernels read, with these steps."""
        return Trees(
            eta, self.feature.reshape(-1), self.threshold.reshape(-1), self.missing_left.reshape(-1),
            self.subset.reshape(-1), self.stats.reshape(-1, self.n_outputs + 1), self.bounds.reshape(-1, 2),
            self.level_bins, self.cat_at,
        )  # fmt: skip

    def predict_leaves(self, leaf_ids: LeafIds) -> FloatArray:
        """Return what the first k trees say of rows, (n, k, m), from the rows' leaves in them, (n, k)."""
        return tree_rows.read(leaf_ids, self.stats, self.bounds, self.l2)

    def leaf_values(self, i: int) -> FloatArray:
        """Return what each leaf of tree i says, (leaves, m)."""
        sums, weight = self.stats[i, :, :-1], self.stats[i, :, -1:] + self.l2
        values: FloatArray = np.divide(sums, weight, out=np.zeros_like(sums), where=weight > 0)
        return np.clip(values, self.bounds[i, :, :1], self.bounds[i, :, 1:]) if self.bounds.shape[1] else values

    def for_prediction(self) -> TreeStack:
        """Leave out what the splits gained."""
        twin = copy.copy(self)
        twin.__dict__.pop("gain", None)
        return twin

    def keep_levels(self, n_levels: int) -> None:
        """Forget all but the first ``n_levels`` levels of each column: no others will come."""
        self.level_bins = self.level_bins[:, :, :n_levels]
        self.n_levels = self.level_bins.shape[2]

    def feature_gains(self) -> FloatArray:
        """How much each column has taken off the square loss in the trees as they stand, (d,)."""
        is_split = self.feature >= 0
        gains = np.zeros(self.n_features)
        np.add.at(gains, self.feature[is_split], self.gain[is_split])
        return gains

    def add_moves(self, X: FloatArray, eta: FloatArray, owners: IntArray, moves: FloatArray) -> None:
        """Add how far steps ``eta`` (N,) move the score of a row as each column takes the value of the row before.

        That is for rows (n, d), the first of which comes after the last, and c columns, to ``moves`` (n, c, m).
        ``owners`` (d,) says to which column each place in a row belongs; those of one column are exchanged together.
        """
        tree_rows.add_moves(X, self._trees(eta), self.max_depth, self.other_bin, self.l2, owners, moves)

    def add_contributions(
        self, X: FloatArray, some: slice, eta: FloatArray, owners: IntArray, contributions: FloatArray,
        expected: FloatArray,
    ) -> None:  # fmt: skip
        """Add what columns contribute to the scores of rows (n, d) by steps ``eta`` (k,) of some k trees.

        That is to ``contributions`` (n, c, m), by path-dependent Shapley values, and to ``expected`` (m,) what the
        trees say of no row in particular. ``owners`` (d,) says to which column each place in a row belongs.
        """
        steps = np.zeros(self.n_learners)
        steps[some] = eta
        points, weights = np.polynomial.legendre.leggauss((self.max_depth + 1) // 2)
        add_contributions(
            X, self._trees(steps), self.max_depth, self.other_bin, self.l2, some.start, len(eta), owners,
            (points + 1.0) / 2.0, weights / 2.0, contributions, expected,
        )  # fmt: skip


def _checked_share(max_features: object) -> Any:
    """Return how many columns a refit looks at: a number, a share, "sqrt" or None."""
    if max_features is None or max_features == "sqrt":
        return max_features
    if isinstance(max_features, (int, np.integer)) and not isinstance(max_features, bool) and max_features >= 1:
        return int(max_features)
    if isinstance(max_features, (float, np.floating)) and 0 < max_features <= 1:
        return float(max_features)
    way_out = "If unsure, leave it out: then all columns are looked at."
    expected = f"a whole number of at least 1, a share above 0 and at most 1.0, 'sqrt' or None. {way_out}"
    raise refused("max_features", max_features, expected)


def _checked_signs(monotonic_cst: Any) -> dict[int, int] | NDArray[np.int8] | None:
    """Return the signs as they can be saved: by column number, or one for each column."""
    if monotonic_cst is None:
        return None
    signs = signs_of(monotonic_cst)
    if not isinstance(monotonic_cst, Mapping):
        return np.array(signs, np.int8)
    if not all(isinstance(j, (int, np.integer)) and j >= 0 for j in monotonic_cst):
        raise refused("monotonic_cst", monotonic_cst, "columns named by their numbers, from 0 on.")
    return {int(j): int(sign) for j, sign in monotonic_cst.items()}


def signs_of(monotonic_cst: Any) -> list[int]:
    """The signs of a mapping, or of one for each column; refuse what is not -1, 0 or 1."""
    by_name = isinstance(monotonic_cst, Mapping)
    signs = list(monotonic_cst.values()) if by_name else np.asarray(monotonic_cst, dtype=object).tolist()
    if not isinstance(signs, list) or not all(
        isinstance(sign, (int, float, np.number)) and not isinstance(sign, bool) and sign in (-1, 0, 1)
        for sign in signs
    ):
        expected = "for each column -1, 0 or 1: whether to fall, be free or rise with it. If unsure, leave it out."
        raise refused("monotonic_cst", monotonic_cst, expected)
    return signs


def _one_output_only(n_outputs: int) -> ValueError:
    why = "of several it is not clear which should rise"
    return ValueError(f"monotonic_cst is given for {n_outputs} outputs, expected one: {why}. Leave it out.")
