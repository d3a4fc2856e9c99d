"""Long streams for ``bench_scale``, made block by block, so that no more of them is held than one block.

A block follows from the seed and its number alone: any range of rows can be asked for, in any order, and is the same
however it is cut. ``rows(start, stop)`` gives blocks of rows and noisy targets; ``test(at)`` gives other rows, as they
would be at row ``at`` of the stream, with their targets without noise.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks import streams
from streamboost import datasets

Array = NDArray[Any]
Maker = Callable[[np.random.Generator, Array], tuple[Any, Array]]  # from row numbers (n,) to rows and the truth

BLOCK = 10_000  # rows
TEST_ROWS = 5_000
LEVELS = {"shop": 200, "city": 60, "product": 25, "channel": 5}  # of the columns of strings


class Rows(NamedTuple):
    """Rows and their targets."""

    X: Any  # (n, d), an array; a pandas table where there are strings
    y: Array  # (n,), float, or int where there are classes


class Source(ABC):
    """A stream of which any range of rows can be had; ``n_classes`` is 0 for regression."""

    name: str
    n_rows: int
    n_classes: int = 0

    @abstractmethod
    def block(self, index: int) -> Rows:
        """Make one block of ``BLOCK`` rows."""

    @abstractmethod
    def test(self, at: int) -> Rows:
        """Give rows to test on that are not in the stream, as they would be at a row of it."""

    def rows(self, start: int, stop: int) -> Iterator[Rows]:
        """Give the rows of a range, in blocks."""
        for index in range(start // BLOCK, -(-stop // BLOCK)):
            block, first = self.block(index), index * BLOCK
            part = slice(max(start - first, 0), stop - first)
            yield Rows(block.X[part], block.y[part])

    @cached_property
    def digest(self) -> str:
        """A fingerprint of the first rows and of tests, by which results kept are known to be of the same stream."""
        digest = hashlib.sha256()
        for X, y in (self.block(0), self.test(0), self.test(BLOCK)):
            digest.update(as_numbers(X).tobytes() + y.tobytes())
        return digest.hexdigest()[:12]


@dataclass(eq=False)
class Generated(Source):
    """A stream from a formula, and noise on its targets."""

    name: str
    make: Maker
    noise: float
    seed: int
    n_rows: int = 1 << 62

    def block(self, index: int) -> Rows:
        """Make a block from the seed and its number."""
        rng = np.random.default_rng([self.seed, index + 1])
        X, truth = self.make(rng, index * BLOCK + np.arange(BLOCK))
        return Rows(X, truth + self.noise * rng.normal(size=BLOCK))

    def test(self, at: int) -> Rows:
        """Give the same rows at every moment, their targets those of the moment."""
        return Rows(*self.make(np.random.default_rng([self.seed, 0]), np.full(TEST_ROWS, at)))


class Shuffled(Source):
    """A file of rows in a seeded order, the last ones of which are the test."""

    def __init__(self, stream: streams.Stream, seed: int) -> None:
        self.name, self.stream, self.n_classes = stream.name, stream, stream.n_classes
        self.order = np.random.default_rng(seed).permutation(len(stream.y))
        self.n_rows = len(stream.y) - min(TEST_ROWS, len(stream.y) // 5)

    def block(self, index: int) -> Rows:
        """Give the rows of a block; the last one may be shorter."""
        return self._take(self.order[: self.n_rows][index * BLOCK : (index + 1) * BLOCK])

    def test(self, at: int) -> Rows:
        """Give the rows that are left, the same at every moment."""
        return self._take(self.order[self.n_rows :])

    def _take(self, rows: Array) -> Rows:
        return Rows(self.stream.X[rows], self.stream.y[rows])


# Formulas.


def sines(rng: np.random.Generator, at: Array) -> tuple[Array, Array]:
    """Twelve waves of two columns each, of fifteen."""
    shape = np.random.default_rng(7)
    speeds, columns = shape.uniform(1, 4, (12, 2)) * np.pi, shape.integers(0, 15, (12, 2))
    X, heights = rng.uniform(size=(len(at), 15)), shape.uniform(1, 3, 12)
    return X, np.sin((X[:, columns] * speeds).sum(axis=2)) @ heights


def friedman(rng: np.random.Generator, at: Array) -> tuple[Array, Array]:
    """Friedman's function of five columns, and five more that mean nothing."""
    X = rng.uniform(size=(len(at), 10))
    return X, 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]


def strings(rng: np.random.Generator, at: Array) -> tuple[Any, Array]:
    """Four columns of strings, some of them rare, and five of numbers: strings set levels, slopes, phases and pairs."""
    import pandas as pd

    shape = np.random.default_rng(11)
    codes = {}
    for name, n_levels in LEVELS.items():
        shares = 1 / (5 + shape.permutation(n_levels))
        codes[name] = rng.choice(n_levels, size=len(at), p=shares / shares.sum())
    x = rng.uniform(size=(5, len(at)))
    city, slope = shape.normal(size=LEVELS["city"]), 3 * shape.normal(size=LEVELS["shop"])
    phase = shape.uniform(0, 2 * np.pi, LEVELS["product"])
    pair = 1.5 * shape.normal(size=(LEVELS["product"], LEVELS["channel"]))
    truth = city[codes["city"]] + slope[codes["shop"]] * x[0] + pair[codes["product"], codes["channel"]]
    truth += 2 * np.sin(2 * np.pi * x[1] + phase[codes["product"]]) + 4 * x[2] * x[3]
    texts = {name: np.array(level_names(name))[codes[name]] for name in LEVELS}
    return pd.DataFrame(texts | {f"x{j}": column for j, column in enumerate(x)}), truth


def drift(rng: np.random.Generator, at: Array) -> tuple[Array, Array]:
    """Ten waves of two columns each, of twelve, whose heights swing once in one to four million rows."""
    shape = np.random.default_rng(13)
    speeds, columns = shape.uniform(1, 3, (10, 2)) * np.pi, shape.integers(0, 12, (10, 2))
    periods, phases = shape.uniform(1e6, 4e6, 10), shape.uniform(0, 2 * np.pi, 10)
    X = rng.uniform(size=(len(at), 12))
    heights = 2 * np.cos(2 * np.pi * at[:, None] / periods + phases)  # (n, 10)
    return X, (np.sin((X[:, columns] * speeds).sum(axis=2)) * heights).sum(axis=1)


GENERATED: dict[str, tuple[Maker, float]] = {  # the formula and the noise
    "sines": (sines, 0.5),
    "friedman": (friedman, 1.0),
    "strings": (strings, 0.5),
    "drift": (drift, 0.5),
}
NAMES = ("covtype", *GENERATED)


def load(name: str, seed: int) -> Source:
    """Give a stream by name; raises ``streams.MissingData`` where its file is not on this machine."""
    if name == "covtype":
        return Shuffled(streams.load(name, 10**9, seed), seed)
    return Generated(name, *GENERATED[name], seed)


# Rows as others take them.


def level_names(column: str) -> list[str]:
    return [f"{column}_{k:03d}" for k in range(LEVELS[column])]


def as_numbers(X: Any) -> Array:
    """Rows as floats, strings as their place in the alphabet, as ``benchmarks.streams`` has them."""
    if isinstance(X, np.ndarray):
        return X
    X = as_categories(X)
    return np.column_stack([X[c].cat.codes if c in LEVELS else X[c] for c in X.columns]).astype(float)


def as_categories(X: Any) -> Any:
    """Rows as LightGBM takes them: strings as pandas categories, the same ones in every block."""
    if isinstance(X, np.ndarray):
        return X
    import pandas as pd

    return X.assign(**{c: pd.Categorical(X[c], level_names(c)) for c in LEVELS})


def whole(source: Source, start: int, stop: int) -> Rows:
    """All rows of a range at once, as LightGBM takes them."""
    blocks = [Rows(as_categories(X), y) for X, y in source.rows(start, stop)]
    y = np.concatenate([block.y for block in blocks])
    if isinstance(blocks[0].X, np.ndarray):
        return Rows(np.concatenate([block.X for block in blocks]), y)
    import pandas as pd

    return Rows(pd.concat([block.X for block in blocks], ignore_index=True), y)


def load_table(name: str) -> streams.Stream:
    """A whole table: a real stream of ``benchmarks.streams``, or a9a, both of its parts."""
    if name != "a9a":
        return streams.load(name, 10**9, 0)
    parts = [datasets.load_a9a("train"), datasets.load_a9a("test")]
    y = np.concatenate([part.y for part in parts])
    return streams.Stream(name, np.concatenate([part.X for part in parts]), (y > 0).astype(int), "classification")
