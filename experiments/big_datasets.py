"""Data sets too large to travel with the package, read from the folder that ``STREAMBOOST_DATA`` names.

In goes a name; out comes a :class:`~streamboost.datasets.Dataset`, as from :mod:`streamboost.datasets`. A file that is
missing, cut short or otherwise not what it should be is refused, with what was expected and where to get it. Nothing
is ever put in its place. No checksum of SLICE and YEAR is known here: they are known by their shape, by their targets
and by columns that vary, which tells a file cut short or made up, not one with a few numbers changed.

============  ==========================================================  =================================
set           files, any one of                                           how they are known to be whole
============  ==========================================================  =================================
MNIST         ``mnist_train.parquet``, ``mnist_test.parquet``, or the     SHA-256; MD5 of what is inside
              four idx files, packed (``.gz``) or not
SLICE         ``slice_localization_data.csv``, or that in a ``.zip``,     53,500 rows, 386 columns, targets,
              as UCI gives it out                                         most columns vary
YEAR          ``YearPredictionMSD.txt``, or that in a ``.zip``,           515,345 rows, 91 columns, whole
              as UCI gives it out                                         years, all columns vary
the others    ``NAME.parquet``                                            SHA-256
============  ==========================================================  =================================
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import zipfile
import zlib
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from streamboost._types import FloatArray
from streamboost.datasets import Dataset

FOLDER = "STREAMBOOST_DATA"  # the environment variable


class MissingData(FileNotFoundError):
    """A data file is not in the folder; ``what`` names it without saying where it was looked for."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__(f"{what} {where}")
        self.what = what


class DamagedData(ValueError):
    """A data file is there, but cut short or not the one it should be."""


class Parquet(NamedTuple):
    """A Parquet file of numbers, the last column of which is the target."""

    n_rows: int
    n_columns: int  # without the target
    n_bytes: int
    sha256: str
    description: str
    home: str


UCI = "https://archive.ics.uci.edu/dataset"
TORGO = "the regression data sets of L. Torgo, converted to Parquet with the columns in their order and the target last"

MNIST_HOME = (
    "https://yann.lecun.com/exdb/mnist, as four idx files, packed (.gz) or not; mnist_train.parquet and "
    "mnist_test.parquet, of the same pixels and the digit last, do as well"
)

PARQUETS = {
    "mnist_train": Parquet(
        60_000,
        784,
        16_424_185,
        "6e4665af641db56ad3cef5ec3b84d87e00848e99c8f7c76a33bbd587c8484be7",
        "60,000 digits of 28 × 28 grey pixels (LeCun, Cortes, Burges).",
        MNIST_HOME,
    ),
    "mnist_test": Parquet(
        10_000,
        784,
        2_864_258,
        "518a36476c3658675737388657a5d3a791af45781a73ce931176b75775158616",
        "10,000 digits of 28 × 28 grey pixels (LeCun, Cortes, Burges).",
        MNIST_HOME,
    ),
    "cpu_act": Parquet(
        8_192,
        21,
        320_979,
        "10dbaa72421090177dcf54bf6893d0ae470d96f09100bb510b3c546e6b898f85",
        "The share of time a computer runs in user mode, from 21 counts of its activity (DELVE).",
        TORGO,
    ),
    "ailerons": Parquet(
        13_750,
        40,
        282_523,
        "09ab9095b3fe73e9dba5157075a5db9cc5a2988eaf511d69ff8781b6eebc90ba",
        "What to do with the ailerons of an F-16, from 40 states of the aircraft (R. Camacho).",
        TORGO,
    ),
    "cal_housing": Parquet(
        20_640,
        8,
        333_945,
        "c01ad81421dded1624daf4b83dc0e21ca423e78310a487d4fa3d5995188abbc7",
        "Median house values of 20,640 blocks in California, 1990 (StatLib).",
        TORGO,
    ),
}

Split = Literal["train", "test"]
IDX = {  # MD5 of the unpacked file, and its shape
    "train-images-idx3-ubyte": ("6bbc9ace898e44ae57da46a324031adb", (60_000, 28, 28)),
    "train-labels-idx1-ubyte": ("a25bea736e30d166cdddb491f175f624", (60_000,)),
    "t10k-images-idx3-ubyte": ("2646ac647ad5339dbf082846283269ea", (10_000, 28, 28)),
    "t10k-labels-idx1-ubyte": ("27ae3e4e09519cfbb04c329615203637", (10_000,)),
}

SLICE_ROWS, SLICE_COLUMNS = 53_500, 386
SLICE_TARGETS = (1.738733, 97.489115, 47.028039)  # least, largest, mean
SLICE_VARYING = 200  # some of its histograms' bins are empty on all rows, most are not
SLICE_HOME = f"{UCI}/206/relative+location+of+ct+slices+on+axial+axis"
YEAR_ROWS, YEAR_COLUMNS, YEAR_TRAIN = 515_345, 91, 463_715
YEARS = (1922.0, 2011.0)
YEAR_HOME = f"{UCI}/203/yearpredictionmsd"


# The sets.


def load_mnist(split: Split = "train") -> Dataset:
    """Handwritten digits 0 to 9 as 784 pixels from 0 to 255. Ten classes.

    Parameters
    ----------
    split : {"train", "test"}
        60,000 rows or the other 10,000.
    """
    name = f"mnist_{split}"
    if (_folder() / f"{name}.parquet").exists():
        return _load_parquet(name, int)
    start = "train" if split == "train" else "t10k"
    images, labels = _read_idx(f"{start}-images-idx3-ubyte"), _read_idx(f"{start}-labels-idx1-ubyte")
    names = [f"p{j}" for j in range(784)]
    X = images.reshape(len(images), -1).astype(float)
    return Dataset(X, labels.astype(int), names, PARQUETS[name].description)


def load_slice() -> Dataset:
    """Where along the body a CT slice was taken, 0 to 100, from 384 histogram counts. Regression.

    The number of the patient, which the file holds too, is left out.
    """
    expected = f"{SLICE_ROWS:,} rows of {SLICE_COLUMNS} columns"
    name = "slice_localization_data"
    places = (f"{name}.csv", f"{name}.csv.zip", f"{name}.zip", f"{SLICE_HOME.rsplit('/', 1)[1]}.zip")
    file = _find(places, expected, SLICE_HOME)
    names, table = _read_csv(file, has_header=True, expected=expected, home=SLICE_HOME)
    _check_shape(file, table, SLICE_ROWS, SLICE_COLUMNS, SLICE_HOME)
    y = table[:, -1]
    found = (y.min(), y.max(), y.mean())
    if not np.allclose(found, SLICE_TARGETS, atol=1e-4):
        raise DamagedData(
            f"{file.name} has targets with least, largest and mean value {found}, expected {SLICE_TARGETS}. "
            f"Get it again from {SLICE_HOME}."
        )
    _check_varying(file, table, SLICE_VARYING, SLICE_HOME)
    return Dataset(table[:, 1:-1].copy(), y.copy(), names[1:-1], "Place of 53,500 CT slices (UCI, CC BY 4.0).")


def load_year(split: Split = "train") -> Dataset:
    """The year a song came out, 1922 to 2011, from 90 numbers on its timbre. Regression.

    Parameters
    ----------
    split : {"train", "test"}
        The first 463,715 rows or the last 51,630, which share no artist.
    """
    expected = f"{YEAR_ROWS:,} rows of {YEAR_COLUMNS} columns"
    places = ("YearPredictionMSD.txt", "YearPredictionMSD.txt.zip", "YearPredictionMSD.zip", "yearpredictionmsd.zip")
    file = _find(places, expected, YEAR_HOME)
    _, table = _read_csv(file, has_header=False, expected=expected, home=YEAR_HOME)
    _check_shape(file, table, YEAR_ROWS, YEAR_COLUMNS, YEAR_HOME)
    years = table[:, 0]
    if (years.min(), years.max()) != YEARS or (years % 1).any():
        raise DamagedData(
            f"{file.name} has years from {years.min():g} to {years.max():g}, {int((years % 1 > 0).sum())} of them not "
            f"whole, expected whole years from {YEARS[0]:g} to {YEARS[1]:g}. Get it again from {YEAR_HOME}."
        )
    _check_varying(file, table, YEAR_COLUMNS, YEAR_HOME)
    part = table[:YEAR_TRAIN] if split == "train" else table[YEAR_TRAIN:]
    names = [f"timbre{j}" for j in range(YEAR_COLUMNS - 1)]
    return Dataset(part[:, 1:].copy(), part[:, 0].copy(), names, "Years of 515,345 songs (UCI, CC BY 4.0).")


def load_cpu_act() -> Dataset:
    """The share of time a computer runs in user mode, 0 to 99, from 21 counts of its activity. Regression."""
    return _load_parquet("cpu_act", float)


def load_ailerons() -> Dataset:
    """What to do with the ailerons of an aircraft, from 40 numbers on its state. Regression."""
    return _load_parquet("ailerons", float)


def load_cal_housing() -> Dataset:
    """Median house values of blocks in California, from 8 numbers. Regression."""
    return _load_parquet("cal_housing", float)


# Finding files.


def _folder() -> Path:
    """The folder of data sets; one that is not there if none was named."""
    return Path(os.environ.get(FOLDER) or "no folder named")


def _find(names: tuple[str, ...], expected: str, home: str) -> Path:
    for name in names:
        if (_folder() / name).is_file():
            return _folder() / name
    told = os.environ.get(FOLDER)
    where = f"It was looked for in {told!r}." if told else f"Set {FOLDER} to the folder that holds it."
    raise MissingData(f"{' or '.join(names[:2])} ({expected}) is missing. Get it from {home}.", where)


def _load_parquet(name: str, kind: type) -> Dataset:
    known = PARQUETS[name]
    expected = f"{known.n_rows:,} rows, {known.n_bytes:,} bytes, SHA-256 {known.sha256}"
    file = _find((f"{name}.parquet",), expected, known.home)
    content = file.read_bytes()
    checksum = hashlib.sha256(content).hexdigest()
    if checksum != known.sha256:
        raise DamagedData(
            f"{file.name} has {len(content):,} bytes and SHA-256 {checksum}, expected {expected}. "
            f"Get it again from {known.home}."
        )
    table = pq.read_table(pa.BufferReader(content))
    *names, target = table.column_names
    X = np.column_stack([table[column].to_numpy().astype(float) for column in names])
    return Dataset(X, table[target].to_numpy().astype(kind), names, known.description)


# Reading them.


def _read_idx(name: str) -> NDArray[np.uint8]:
    """One of MNIST's own files, packed or not: a big-endian header and bytes."""
    md5, shape = IDX[name]
    size = 4 * (1 + len(shape)) + int(np.prod(shape))
    expected = f"{size:,} bytes unpacked, MD5 {md5}"
    dotted = name.replace("-idx", ".idx")
    file = _find((name, f"{name}.gz", dotted, f"{dotted}.gz"), expected, MNIST_HOME)
    try:
        content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DamagedData(
            f"{file.name} cannot be unpacked ({error}), expected {expected}. Get it again from {MNIST_HOME}."
        ) from error
    checksum = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if checksum != md5:
        raise DamagedData(
            f"{file.name} has {len(content):,} bytes unpacked and MD5 {checksum}, expected {expected}. "
            f"Get it again from {MNIST_HOME}."
        )
    return np.frombuffer(content, np.uint8, offset=4 * (1 + len(shape))).reshape(shape)


def _read_csv(file: Path, *, has_header: bool, expected: str, home: str) -> tuple[list[str], FloatArray]:
    """The names and numbers of a comma-separated file, or of the only such file in an archive, (n, d)."""
    again = f"expected {expected}. Get it again from {home}."
    try:
        content = _unzip(file) if file.suffix == ".zip" else file.read_bytes()
    except (zipfile.BadZipFile, EOFError, zlib.error, RuntimeError) as error:  # the last: encrypted, or packed oddly
        raise DamagedData(f"{file.name} cannot be unpacked ({error}), {again}") from error
    try:
        options = pa_csv.ReadOptions(autogenerate_column_names=not has_header, block_size=1 << 24)
        table = pa_csv.read_csv(io.BytesIO(content), read_options=options)
        numbers = np.column_stack([column.to_numpy().astype(float) for column in table.columns])
    except (pa.ArrowInvalid, ValueError) as error:  # a line cut short, a word where a number should be
        told = "".join(letter if letter.isprintable() else "?" for letter in str(error)[:200])
        raise DamagedData(f"{file.name} cannot be read ({told}), {again}") from error
    return table.column_names, numbers


def _unzip(file: Path | io.BytesIO) -> bytes:
    """The only table in an archive, or in the only archive in it."""
    with zipfile.ZipFile(file) as archive:
        names = [name for name in archive.namelist() if "/." not in name]
        inside = [name for name in names if name.endswith((".csv", ".txt"))]
        archives = [name for name in names if name.endswith(".zip")]
        if not inside and len(archives) == 1 and isinstance(file, Path):
            return _unzip(io.BytesIO(archive.read(archives[0])))
        if len(inside) != 1:
            raise zipfile.BadZipFile(f"it holds {names}, expected one .csv or .txt file")
        return archive.read(inside[0])


def _check_shape(file: Path, table: FloatArray, n_rows: int, n_columns: int, home: str) -> None:
    if table.shape != (n_rows, n_columns) or not np.isfinite(table).all():
        empty = int((~np.isfinite(table)).sum())
        raise DamagedData(
            f"{file.name} has {table.shape[0]:,} rows of {table.shape[1]} columns, {empty} cells empty, expected "
            f"{n_rows:,} rows of {n_columns} columns, none empty. Get it again from {home}."
        )


def _check_varying(file: Path, table: FloatArray, least: int, home: str) -> None:
    """No checksum is known: columns of one value each would be no data, whatever their number."""
    varying = int((table.min(axis=0) < table.max(axis=0)).sum())
    if varying < least:
        raise DamagedData(
            f"{file.name} has {varying} columns that hold more than one value, expected at least {least} of "
            f"{table.shape[1]}. Get it again from {home}."
        )
