"""The facts about the shipped files come from their sources, as told in streamboost/datasets/data/README.md."""

import hashlib
import re
from importlib import resources
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.datasets import make_friedman1

from streamboost.datasets import friedman, load_a9a, load_abalone, load_electricity, loaders

DATA = resources.files("streamboost.datasets") / "data"


def test_abalone_has_the_rows_rings_and_sexes_of_its_source():
    X, y, names, _ = load_abalone()
    assert X.shape == (4177, 10)
    assert X.dtype == y.dtype == np.float64
    assert y.mean() == pytest.approx(9.93368, abs=5e-6)
    assert y.std(ddof=1) == pytest.approx(3.22417, abs=5e-6)
    assert (y.min(), y.max()) == (1, 29)
    columns = dict(zip(names, X.T, strict=True))
    assert [columns[f"sex_{sex}"].sum() for sex in "MFI"] == [1528, 1307, 1342]
    assert columns["length"].mean() == pytest.approx(0.52399, abs=5e-6)


@pytest.mark.parametrize(
    ("split", "rows", "positive", "ones"),
    [("train", 32_561, 0.240810, 451_592), ("test", 16_281, 0.236226, 225_731)],
)
def test_a9a_has_the_rows_classes_and_ones_of_its_source(split, rows, positive, ones):
    X, y, names, _ = load_a9a(split)
    assert X.shape == (rows, 123)
    assert names == [f"f{j}" for j in range(1, 124)]
    assert set(np.unique(X)) == {0.0, 1.0}
    assert set(y.tolist()) == {-1, 1}
    assert (y == 1).mean() == pytest.approx(positive, abs=5e-7)
    assert X.sum() == ones
    assert (X[:, -1].sum() == 0) == (split == "test")


def test_electricity_has_the_rows_and_classes_of_its_source():
    X, y, names, _ = load_electricity()
    assert X.shape == (45_312, 8)
    assert names == ["date", "day", "period", "nswprice", "nswdemand", "vicprice", "vicdemand", "transfer"]
    assert y.mean() == pytest.approx(0.42455, abs=5e-6)
    assert np.isfinite(X).all()
    date = X[:, 0]
    assert (np.diff(date) >= -1e-6).mean() > 0.999  # in order of time


def test_another_split_of_a9a_is_refused():
    with pytest.raises(ValueError, match="split is 'validation', expected 'train' or 'test'"):
        load_a9a("validation")


def test_a_damaged_file_is_refused(monkeypatch, tmp_path):
    (tmp_path / "data").mkdir()
    damaged = bytearray((DATA / "abalone.parquet").read_bytes())
    damaged[5000] ^= 1
    (tmp_path / "data" / "abalone.parquet").write_bytes(damaged)
    monkeypatch.setattr(loaders, "resources", SimpleNamespace(files=lambda package: tmp_path))
    with pytest.raises(
        ValueError, match=f"abalone.parquet is damaged: its SHA-256 is {hashlib.sha256(damaged).hexdigest()}"
    ):
        load_abalone()


def test_the_readme_names_every_file_with_its_size_and_checksum():
    rows = re.findall(
        r"^\| `(\S+)` \| .* \| ([\d,]+) \| `(\w{64})` \|$", (DATA / "README.md").read_text(), re.MULTILINE
    )
    files = {file.name: file.read_bytes() for file in DATA.iterdir() if file.name.endswith(".parquet")}
    told = {name: (int(size.replace(",", "")), checksum) for name, size, checksum in rows}
    assert told == {name: (len(content), hashlib.sha256(content).hexdigest()) for name, content in files.items()}
    assert {name: checksum for name, (_, checksum) in told.items()} == loaders.CHECKSUMS


# Generated streams.


def friedmans_function(X):
    """scikit-learn's formula on rows of ours: its random numbers are replaced by them."""

    class Given(np.random.RandomState):
        def uniform(self, *, size):
            assert size == X.shape
            return X

    return make_friedman1(*X.shape, noise=0.0, random_state=Given(0))[1]


def test_friedman_without_noise_is_scikit_learns_function_of_the_same_rows():
    X, y, names, _ = friedman(500, noise=0.0, seed=1)
    assert X.shape == (500, 10)
    assert len(names) == 10
    assert y == pytest.approx(friedmans_function(X))


def test_after_a_drift_the_columns_play_each_others_parts_and_after_the_next_their_own():
    X, y, *_ = friedman(90, noise=0.0, drift=[60, 30], seed=2)
    forth, turned = friedmans_function(X), friedmans_function(X[:, ::-1])
    assert y == pytest.approx(np.concatenate([forth[:30], turned[30:60], forth[60:]]))


def test_a_drift_leaves_rows_and_noise_as_they_were():
    plain, drifting = friedman(400, drift=None, seed=3), friedman(400, drift=200, seed=3)
    assert np.array_equal(plain.X, drifting.X)
    assert np.array_equal(plain.y[:200], drifting.y[:200])
    assert not np.allclose(plain.y[200:], drifting.y[200:])


def test_the_noise_of_friedman_has_the_size_asked_for():
    X, y, *_ = friedman(20_000, noise=2.0, seed=4)
    assert np.std(y - friedmans_function(X)) == pytest.approx(2.0, rel=0.03)


def test_a_generated_stream_depends_on_its_seed_alone():
    once, again = friedman(50, seed=7), friedman(50, seed=7)
    assert np.array_equal(once.X, again.X)
    assert np.array_equal(once.y, again.y)
    assert not np.array_equal(once.X, friedman(50, seed=8).X)
    assert friedman(0).X.shape == (0, 10)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: friedman(-1), "n is -1, expected a whole number of at least 0"),
        (lambda: friedman(2.5), "n is 2.5, expected a whole number"),
        (lambda: friedman(5, noise=-1.0), "noise is -1.0, expected a finite number of at least 0"),
        (lambda: friedman(5, drift=2.5), "drift is 2.5, expected whole numbers of rows"),
        (lambda: friedman(5, drift=[3, -1]), r"drift is \[3, -1\], expected whole numbers of rows"),
    ],
)
def test_streams_that_cannot_be_generated_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
