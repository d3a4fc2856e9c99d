"""The streams of the benchmark: ten generated ones and nine real ones, the same rows for everyone.

In goes a name, a number of rows and a seed; out comes a :class:`Stream` of float rows and their targets. A generated
stream is kept as ``.npz``, so that whoever comes later gets the very same rows. The real ones are Parquet files in the
folder that ``STREAMBOOST_DATA`` names (electricity and abalone also travel with the package), read in file order.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

Task = Literal["regression", "classification"]
CACHE = Path(__file__).parent / "cache"
SHIPPED = ("abalone.parquet", "electricity.parquet")


class MissingData(FileNotFoundError):
    """A stream whose file is not on this machine."""


@dataclass(frozen=True)
class Stream:
    """Rows in their order, and what to say of each: a number, or a class as a code from 0 on."""

    name: str
    X: NDArray[np.float64]  # (n, d)
    y: NDArray[Any]  # (n,), float or int
    task: Task

    @property
    def n_classes(self) -> int:
        """How many classes there are; 0 for regression."""
        return int(self.y.max()) + 1 if self.task == "classification" else 0

    @cached_property
    def digest(self) -> str:
        """A fingerprint of every row and target, by which two runs know that they saw the same."""
        return hashlib.sha256(self.X.tobytes() + self.y.tobytes()).hexdigest()[:12]


def load(name: str, n: int, seed: int, cache: Path = CACHE) -> Stream:
    """Give the first n rows of a stream; fewer if its file has fewer.

    Parameters
    ----------
    name : str
        One of ``NAMES``.
    n : int
    seed : int
        What a generated stream starts from; the real ones have only one order.
    cache : Path
        The folder where generated streams are kept.
    """
    if name in REAL:
        return REAL[name].read(name, n)
    if name not in GENERATED:
        raise ValueError(f"there is no stream {name!r}, expected one of {', '.join(NAMES)}.")
    task, generate = GENERATED[name]
    file = cache / f"{name}-{n}-{seed}.npz"
    if not file.exists():
        X, y = generate(n, seed)
        cache.mkdir(parents=True, exist_ok=True)
        unfinished = file.with_suffix(f".{os.getpid()}.npz")  # never a half-written file under the final name
        np.savez_compressed(unfinished, X=np.ascontiguousarray(X, dtype=float), y=y)
        unfinished.replace(file)
    with np.load(file) as arrays:
        return Stream(name, arrays["X"], arrays["y"], task)


# Generated streams. A concept that changes does so abruptly, in four parts of equal length, unless it says otherwise.

Rows = tuple[NDArray[np.float64], NDArray[Any]]


def friedman(n: int, seed: int) -> Rows:
    return _friedman(n, seed, drift=None)


def friedman_drift(n: int, seed: int) -> Rows:
    """In the middle, x9 to x5 take over the parts of x0 to x4."""
    return _friedman(n, seed, drift=n // 2)


def _friedman(n: int, seed: int, drift: int | None) -> Rows:
    from streamboost import datasets  # here, so that a peer's process is free of streamboost

    data = datasets.friedman(n, noise=1.0, drift=drift, seed=seed)
    return data.X, data.y


def nl50(n: int, seed: int) -> Rows:
    """Fifty columns, ten of which matter; the noise alone has RMSE 0.5."""
    rng = np.random.default_rng(seed)
    X = rng.random((n, 50))
    x = X.T
    y = 4 * np.sin(np.pi * x[0] * x[1]) + 8 * (x[2] - 0.5) ** 2 + 3 * np.abs(x[3] - 0.5) + 2 * x[4]
    y += 3 * (x[5] > 0.5) * x[6] + np.exp(x[7]) + 3 * x[8] * x[9]
    return X, y + 0.5 * rng.standard_normal(n)


def mv(n: int, seed: int) -> Rows:
    """A function of ten columns that depend on one another, two of them text; no noise."""
    return take(_synth().Mv(seed=seed), n, float)


def rbf(n: int, seed: int) -> Rows:
    source = _synth().RandomRBF(seed_model=seed, seed_sample=seed + 1, n_classes=5, n_features=20, n_centroids=50)
    return take(source, n, int)


def agrawal_drift(n: int, seed: int) -> Rows:
    agrawal = _synth().Agrawal
    return in_turn([agrawal(classification_function=f, perturbation=0.05, seed=seed + f) for f in (1, 2, 4, 6)], n)


def sea_drift(n: int, seed: int) -> Rows:
    return in_turn([_synth().SEA(variant=v, noise=0.1, seed=seed + v) for v in range(4)], n)


def hyperplane(n: int, seed: int) -> Rows:
    """The plane turns a little at every row."""
    source = _synth().Hyperplane(seed=seed, n_features=10, n_drift_features=5, mag_change=0.001, noise_percentage=0.05)
    return take(source, n, int)


def led(n: int, seed: int) -> Rows:
    return take(_synth().LED(seed=seed, noise_percentage=0.1, irrelevant_features=True), n, int)


def led_drift(n: int, seed: int) -> Rows:
    """After each quarter, more of the seven segments change places with columns that mean nothing."""
    drift = _synth().LEDDrift
    parts = [(0, seed), (3, seed + 3), (5, seed + 5), (7, seed + 7)]
    return in_turn(
        [drift(seed=s, noise_percentage=0.1, irrelevant_features=True, n_drift_features=k) for k, s in parts], n
    )


def in_turn(sources: list[Any], n: int) -> Rows:
    """Take n rows, an equal share from each source, one after the other."""
    ends = np.linspace(0, n, len(sources) + 1).astype(int)
    parts = [take(source, rows, int) for source, rows in zip(sources, np.diff(ends), strict=True)]
    return np.concatenate([X for X, _ in parts]), np.concatenate([y for _, y in parts])


def take(source: Iterable[tuple[dict[Any, Any], Any]], n: int, kind: type) -> Rows:
    """Take n rows of a River stream; text becomes codes in the order of the alphabet."""
    rows, targets = zip(*islice(source, int(n)), strict=True)
    columns = [column_codes([row[name] for row in rows]) for name in rows[0]]
    return np.column_stack(columns), np.array(targets).astype(kind)


def column_codes(values: list[Any]) -> NDArray[np.float64]:
    """Numbers as they are; text as its place in the alphabet of what occurs."""
    if isinstance(values[0], str):
        return np.unique(values, return_inverse=True)[1].astype(float)
    return np.array(values, dtype=float)


def _synth() -> Any:
    from river.datasets import synth

    return synth


GENERATED: dict[str, tuple[Task, Callable[[int, int], Rows]]] = {
    "friedman": ("regression", friedman),
    "friedman_drift": ("regression", friedman_drift),
    "mv": ("regression", mv),
    "nl50": ("regression", nl50),
    "rbf": ("classification", rbf),
    "agrawal_drift": ("classification", agrawal_drift),
    "sea_drift": ("classification", sea_drift),
    "hyperplane": ("classification", hyperplane),
    "led": ("classification", led),
    "led_drift": ("classification", led_drift),
}


# Real streams.


@dataclass(frozen=True)
class RealFile:
    """A Parquet file with a column ``target``.

    Parameters
    ----------
    file : str
    task : {"regression", "classification"}
    without : tuple of str
        Columns that give the target away.
    """

    file: str
    task: Task
    without: tuple[str, ...] = ()

    def read(self, name: str, n: int) -> Stream:
        """Give the first n rows, in file order."""
        with self._open(name) as source:
            table = pa.Table.from_batches(pq.ParquetFile(source).iter_batches(batch_size=n)).slice(0, n)
        columns = [c for c in table.column_names if c != "target" and c not in self.without]
        X = np.column_stack([numbers(table[c]) for c in columns])
        y = table["target"].to_numpy()
        if self.task == "classification":
            return Stream(name, X, np.unique(y, return_inverse=True)[1], self.task)
        return Stream(name, X, y.astype(float), self.task)

    def _open(self, name: str) -> Any:
        folder = os.environ.get("STREAMBOOST_DATA")
        if folder and (Path(folder) / self.file).exists():
            return (Path(folder) / self.file).open("rb")
        if self.file in SHIPPED:
            return resources.files("streamboost.datasets").joinpath("data", self.file).open("rb")
        where = f"it is not in {folder}" if folder else "STREAMBOOST_DATA is not set"
        raise MissingData(
            f"stream {name} needs {self.file}, but {where}. Set STREAMBOOST_DATA to a folder that holds it."
        )


def numbers(column: pa.ChunkedArray) -> NDArray[np.float64]:
    """A column as floats: moments in seconds, text as its place in the alphabet of what occurs."""
    if pa.types.is_temporal(column.type):
        return pc.cast(pc.cast(column, pa.timestamp("us")), pa.int64()).to_numpy() / 1e6
    if pa.types.is_floating(column.type) or pa.types.is_integer(column.type) or pa.types.is_boolean(column.type):
        return column.to_numpy().astype(float)
    return column_codes(column.cast(pa.string()).to_pylist())


REAL = {
    "electricity": RealFile("electricity.parquet", "classification"),
    "covtype": RealFile("covtype.parquet", "classification"),
    "abalone": RealFile("abalone.parquet", "regression"),
    "bike_sharing": RealFile("bike_sharing_hourly.parquet", "regression", without=("casual", "registered")),
    "cal_housing": RealFile("cal_housing.parquet", "regression"),
    "metro_traffic": RealFile("metro_traffic.parquet", "regression"),
    "ailerons": RealFile("ailerons.parquet", "regression"),
    "cpu_act": RealFile("cpu_act.parquet", "regression"),
    "wine": RealFile("wine_quality.parquet", "regression"),
}

NAMES = (*GENERATED, *REAL)
