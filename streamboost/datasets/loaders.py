"""Data to try things on: three small sets that travel with the package, and a generated stream.

Every function returns a :class:`Dataset`: float rows, targets, and the names of the columns. Where the sets come from,
and under which licence, is told in ``streamboost/datasets/data/README.md``.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from importlib import resources
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from streamboost._types import FloatArray
from streamboost.errors import did_you_mean

CHECKSUMS = {  # SHA-256
    "a9a_test.parquet": "a2097c4311003f9356afd96a8aba6e0b5d7a021d773729dba5d0593fc74d0b7f",
    "a9a_train.parquet": "87c5a369e2b9fbf9293298fb3ac20131a1096747dcd73d9ad1ee77531dd38e86",
    "abalone.parquet": "69cd6af4476b4b29ac0f63f758379a5bd0c7b99ffc3813f33cf19d65fa4dd0a1",
    "electricity.parquet": "d944492618b165e42696be9fb586cf175f981518ae0b61277e34d3ea1b835ea8",
}


class Dataset(NamedTuple):
    """Rows, their targets, and what the columns are called."""

    X: FloatArray  # (n, d)
    y: NDArray[Any]  # (n,)
    names: list[str]  # of the columns, d of them
    description: str


def load_abalone() -> Dataset:
    """Load 4,177 abalones: the number of rings in the shell, which tells the age, from ten measurements. Regression.

    Examples
    --------
    >>> abalone = load_abalone()
    >>> abalone.X.shape, float(abalone.y.mean().round(2))
    ((4177, 10), 9.93)
    """
    return _load("abalone.parquet", "Rings of 4,177 abalones (UCI, CC BY 4.0).", float)


def load_a9a(split: Literal["train", "test"] = "train") -> Dataset:
    """Load adults whose income is above 50,000 dollars (1) or not (-1), from 123 columns of 0 and 1. Two classes.

    Parameters
    ----------
    split : {"train", "test"}
        32,561 rows (the default) or the other 16,281, as the set is always split.

    Examples
    --------
    >>> X, y, names, description = load_a9a("test")
    >>> len(X), float((y == 1).mean().round(3))
    (16281, 0.236)
    """
    if split not in ("train", "test"):
        raise ValueError(f"split is {split!r}, expected 'train' or 'test'. If unsure, leave it out.")
    return _load(f"a9a_{split}.parquet", f"Adult income as binary columns, {split} rows (UCI, CC BY 4.0; LIBSVM).", int)


def load_electricity() -> Dataset:
    """Load 45,312 half hours of the market of New South Wales: did the price of electricity go up (1) or down (0)?

    The rows are in order of time, the market changes as it goes on, and the answer is mostly the same as half an
    hour ago: a stream. Two classes.

    Examples
    --------
    >>> electricity = load_electricity()
    >>> len(electricity.X), electricity.names[:4]
    (45312, ['date', 'day', 'period', 'nswprice'])
    """
    return _load("electricity.parquet", "The price of electricity in New South Wales, up or down (Harries 1999).", int)


def friedman(n: int, *, noise: float = 1.0, drift: int | Sequence[int] | None = None, seed: int = 0) -> Dataset:
    """Generate ten uniform columns; the target is 10 sin(π x₀x₁) + 20 (x₂ − ½)² + 10 x₃ + 5 x₄ + noise. Regression.

    Parameters
    ----------
    n : int
        Rows.
    noise : float
        The standard deviation of the noise, 1 by default: no model has a lower RMSE than this.
    drift : int or sequence of int, optional
        Rows from which on the columns change their parts, last for first: x₉ … x₅ matter, and x₀ … x₄ again
        after the second change. None by default.
    seed : int
        0 by default.

    Examples
    --------
    >>> stream = friedman(1000, drift=500)
    >>> first, last = np.corrcoef(stream.X[:500, 3], stream.y[:500]), np.corrcoef(stream.X[500:, 3], stream.y[500:])
    >>> print(f"correlation with x3: {first[0, 1]:.1f}, then {abs(last[0, 1]):.1f}")
    correlation with x3: 0.6, then 0.0

    References
    ----------
    Friedman, Multivariate adaptive regression splines, 1991.
    """
    if not isinstance(n, (int, np.integer)) or n < 0:
        raise ValueError(f"n is {n!r}, expected a whole number of at least 0.")
    if not 0 <= noise < math.inf:
        raise ValueError(f"noise is {noise!r}, expected a finite number of at least 0. If unsure, leave it out.")
    changes = np.sort(np.atleast_1d([] if drift is None else drift))
    if changes.size and (changes.dtype.kind != "i" or changes[0] < 0):
        raise ValueError(
            f"drift is {drift!r}, expected whole numbers of rows of at least 0. For no drift leave it out."
        )
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 10))
    is_turned = np.searchsorted(changes, np.arange(n), side="right") % 2 == 1  # (n,)
    x = np.where(is_turned[:, None], X[:, ::-1], X)
    y = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
    y += noise * rng.standard_normal(n)
    return Dataset(X, y, [f"x{j}" for j in range(10)], "Friedman's function of ten uniform columns, generated.")


def shipped_file(name: str) -> str:
    """Return the path of a shipped set, a Parquet file whose last column is the target.

    Examples
    --------
    >>> import os
    >>> os.path.basename(shipped_file("abalone"))
    'abalone.parquet'
    """
    if f"{name}.parquet" not in CHECKSUMS:
        known = [file.removesuffix(".parquet") for file in CHECKSUMS]
        told = f"expected one of {known}.{did_you_mean(name, known)}"
        raise ValueError(f"{name!r} does not travel with the package, {told}")
    return str(resources.files("streamboost.datasets").joinpath("data", f"{name}.parquet"))


def _load(file: str, description: str, kind: type) -> Dataset:
    """Read a shipped file: columns of numbers, the last of which is the target."""
    content = resources.files("streamboost.datasets").joinpath("data", file).read_bytes()
    checksum = hashlib.sha256(content).hexdigest()
    if checksum != CHECKSUMS[file]:
        raise ValueError(
            f"{file} is damaged: its SHA-256 is {checksum}, expected {CHECKSUMS[file]}. Install streamboost again."
        )
    table = pq.read_table(pa.BufferReader(content))
    *names, target = table.column_names
    X = np.column_stack([table[name].to_numpy().astype(float) for name in names])
    return Dataset(X, table[target].to_numpy().astype(kind), names, description)
