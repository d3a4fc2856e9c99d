import gzip
import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from experiments import big_datasets
from experiments.big_datasets import DamagedData, MissingData, load_cpu_act, load_mnist, load_slice, load_year


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("STREAMBOOST_DATA", str(tmp_path))
    return tmp_path


def slice_lines(n, n_columns=386):
    rng = np.random.default_rng(0)
    head = ",".join(["patientId", *(f"value{j}" for j in range(n_columns - 2)), "reference"])
    rows = np.round(rng.uniform(-1, 1, size=(n, n_columns)), 3)
    rows[:, 0], rows[:, -1] = np.arange(n) // 100, rng.uniform(2, 97, size=n).round(6)
    return [head, *(",".join(map(str, row)) for row in rows)], rows


def year_lines(n):
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(n, 91)).round(5)
    rows[:, 0] = rng.integers(1922, 2012, size=n)
    rows[:2, 0] = 1922, 2011
    return [",".join([str(int(row[0])), *map(str, row[1:])]) for row in rows], rows


@pytest.fixture
def small_slice(monkeypatch):
    lines, rows = slice_lines(300)
    monkeypatch.setattr(big_datasets, "SLICE_ROWS", 300)
    monkeypatch.setattr(big_datasets, "SLICE_TARGETS", (rows[:, -1].min(), rows[:, -1].max(), rows[:, -1].mean()))
    return lines, rows


@pytest.fixture
def small_year(monkeypatch):
    monkeypatch.setattr(big_datasets, "YEAR_ROWS", 200)
    monkeypatch.setattr(big_datasets, "YEAR_TRAIN", 180)
    return year_lines(200)


# SLICE and YEAR.


@pytest.mark.parametrize("packed", [False, True])
def test_slice_is_read_without_the_number_of_the_patient(folder, small_slice, packed):
    lines, rows = small_slice
    if packed:
        with zipfile.ZipFile(folder / "slice_localization_data.zip", "w") as archive:
            archive.writestr("slice_localization_data.csv", "\n".join(lines))
    else:
        (folder / "slice_localization_data.csv").write_text("\n".join(lines) + "\n")
    X, y, names, _ = load_slice()
    np.testing.assert_array_equal(X, rows[:, 1:-1])
    np.testing.assert_array_equal(y, rows[:, -1])
    assert names[0] == "value0"
    assert len(names) == 384


@pytest.mark.parametrize("packed", [False, True])
def test_year_is_split_where_the_artists_change(folder, small_year, packed):
    lines, rows = small_year
    if packed:
        with zipfile.ZipFile(folder / "YearPredictionMSD.txt.zip", "w") as archive:
            archive.writestr("YearPredictionMSD.txt", "\n".join(lines))
    else:
        (folder / "YearPredictionMSD.txt").write_text("\n".join(lines) + "\n")
    train, test = load_year("train"), load_year("test")
    np.testing.assert_array_equal(train.X, rows[:180, 1:])
    np.testing.assert_array_equal(test.y, rows[180:, 0])
    assert test.X.shape == (20, 90)


@pytest.mark.parametrize("nested", [False, True])
def test_archives_are_read_under_the_names_of_their_home(folder, small_slice, small_year, nested):
    both = {
        "relative+location+of+ct+slices+on+axial+axis.zip": ("slice_localization_data.csv", small_slice[0]),
        "yearpredictionmsd.zip": ("YearPredictionMSD.txt", small_year[0]),
    }
    for place, (name, lines) in both.items():
        inner = io.BytesIO()
        with zipfile.ZipFile(inner, "w") as archive:
            archive.writestr(name, "\n".join(lines))
        with zipfile.ZipFile(folder / place, "w") as archive:
            archive.writestr(f"{name}.zip" if nested else name, inner.getvalue() if nested else "\n".join(lines))
    np.testing.assert_array_equal(load_slice().y, small_slice[1][:, -1])
    np.testing.assert_array_equal(load_year("test").y, small_year[1][180:, 0])


def test_other_things_in_place_of_a_table_are_refused_in_letters_that_can_be_printed(folder):
    (folder / "slice_localization_data.csv").write_bytes(b"PAR1\x15\x04\n,\x00\x1b[31m\xff\n" * 40)
    with pytest.raises(DamagedData, match=r"cannot be read .* expected 53,500 rows") as refused:
        load_slice()
    assert str(refused.value).isprintable()
    with zipfile.ZipFile(folder / "YearPredictionMSD.zip", "w") as archive:
        archive.writestr("README.md", "elsewhere")
    with pytest.raises(DamagedData, match=r"it holds \['README.md'\], expected one .csv or .txt file"):
        load_year()


def test_a_file_cut_short_between_lines_is_refused_with_the_rows_it_should_have(folder, small_slice):
    lines, _ = small_slice
    (folder / "slice_localization_data.csv").write_text("\n".join(lines[:-7]))
    with pytest.raises(DamagedData, match=r"has 293 rows of 386 columns.*expected 300 rows of 386 columns.*archive"):
        load_slice()


def test_a_number_cut_short_at_the_very_end_is_noticed_by_the_targets(folder, small_slice):
    lines, _ = small_slice
    lines[-1] = lines[-1].rsplit(",", 1)[0] + ",1"
    (folder / "slice_localization_data.csv").write_text("\n".join(lines))
    with pytest.raises(DamagedData, match="least, largest and mean"):
        load_slice()


def test_an_archive_cut_short_is_refused(folder, small_year):
    whole = folder / "whole.zip"
    with zipfile.ZipFile(whole, "w") as archive:
        archive.writestr("YearPredictionMSD.txt", "\n".join(small_year[0]))
    (folder / "YearPredictionMSD.txt.zip").write_bytes(whole.read_bytes()[:-100])
    with pytest.raises(DamagedData, match="cannot be unpacked"):
        load_year()


def test_a_file_of_one_value_a_column_is_refused_though_its_targets_fit(folder, small_slice, small_year):
    lines, rows = small_slice
    flat = np.zeros_like(rows)
    flat[:, -1] = rows[:, -1]
    (folder / "slice_localization_data.csv").write_text("\n".join([lines[0], *(",".join(map(str, r)) for r in flat)]))
    with pytest.raises(DamagedData, match=r"has 1 columns that hold more than one value, expected at least 200 of 386"):
        load_slice()
    years = small_year[1].copy()
    years[:, 7] = 3.0
    (folder / "YearPredictionMSD.txt").write_text("\n".join(",".join(map(str, row)) for row in years))
    with pytest.raises(DamagedData, match=r"has 90 columns that hold more than one value, expected at least 91 of 91"):
        load_year()


def test_years_are_whole(folder, small_year):
    years = small_year[1].copy()
    years[5, 0] = 1999.5
    (folder / "YearPredictionMSD.txt").write_text("\n".join(",".join(map(str, row)) for row in years))
    with pytest.raises(DamagedData, match="1 of them not whole, expected whole years from 1922 to 2011"):
        load_year()


def test_a_word_among_the_numbers_is_refused_with_the_shape_the_file_should_have(folder, small_slice, small_year):
    lines, _ = small_slice
    lines[7] = lines[7].replace(",", ",word", 1)
    (folder / "slice_localization_data.csv").write_text("\n".join(lines))
    with pytest.raises(
        DamagedData, match=r"cannot be read .*expected 300 rows of 386 columns.*Get it again from https"
    ):
        load_slice()
    (folder / "YearPredictionMSD.txt").write_bytes(b"")
    with pytest.raises(DamagedData, match=r"cannot be read .*expected 200 rows of 91 columns.*Get it again from https"):
        load_year()


# Missing files.


@pytest.mark.parametrize(
    ("load", "words"),
    [
        (load_slice, r"slice_localization_data.csv .*53,500 rows of 386 columns.*archive.ics.uci.edu"),
        (load_year, r"YearPredictionMSD.txt .*515,345 rows of 91 columns.*archive.ics.uci.edu"),
        (load_mnist, r"train-images-idx3-ubyte .*47,040,016 bytes unpacked, MD5 6bbc9ace.*mnist_train.parquet"),
        (load_cpu_act, r"cpu_act.parquet \(8,192 rows, 320,979 bytes, SHA-256 10dbaa72"),
    ],
)
def test_a_missing_file_is_named_with_its_size_and_home(folder, load, words):
    with pytest.raises(MissingData, match=words) as caught:
        load()
    assert str(folder) in str(caught.value)
    assert str(folder) not in caught.value.what


def test_without_a_folder_the_variable_is_named(monkeypatch):
    monkeypatch.delenv("STREAMBOOST_DATA", raising=False)
    with pytest.raises(MissingData, match="Set STREAMBOOST_DATA"):
        load_slice()


# MNIST and the Parquet files.


def write_idx(file, array, pack):
    header = bytes([0, 0, 8, array.ndim]) + b"".join(int(n).to_bytes(4, "big") for n in array.shape)
    content = header + array.tobytes()
    file.with_name(file.name + (".gz" if pack else "")).write_bytes(gzip.compress(content) if pack else content)
    return content


@pytest.mark.parametrize("pack", [False, True])
def test_mnist_is_read_from_idx_files(folder, monkeypatch, pack):
    rng = np.random.default_rng(2)
    images, labels = rng.integers(256, size=(5, 28, 28), dtype=np.uint8), np.arange(5, dtype=np.uint8)
    for name, array in {"t10k-images-idx3-ubyte": images, "t10k-labels-idx1-ubyte": labels}.items():
        content = write_idx(folder / name, array, pack)
        md5 = big_datasets.hashlib.md5(content, usedforsecurity=False).hexdigest()
        monkeypatch.setitem(big_datasets.IDX, name, (md5, array.shape))
    X, y, names, _ = load_mnist("test")
    np.testing.assert_array_equal(X, images.reshape(5, 784))
    np.testing.assert_array_equal(y, labels)
    assert len(names) == 784


@pytest.mark.parametrize("pack", [False, True])
def test_an_idx_file_cut_short_is_refused(folder, pack):
    write_idx(folder / "train-images-idx3-ubyte", np.zeros((5, 28, 28), np.uint8), pack)
    for file in folder.iterdir():
        file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(DamagedData, match="expected 47,040,016 bytes unpacked, MD5 6bbc9ace") as caught:
        load_mnist()
    assert "Get it again from https://yann.lecun.com/exdb/mnist" in str(caught.value)
    assert "mnist_train.parquet" in str(caught.value)


def test_a_damaged_mnist_in_parquet_names_all_the_places(folder):
    (folder / "mnist_train.parquet").write_bytes(b"PAR1")
    with pytest.raises(DamagedData, match=r"Get it again from https://yann.lecun.com.*four idx files") as caught:
        load_mnist()
    assert "mnist_test.parquet" in str(caught.value)


def test_a_parquet_file_of_other_bytes_is_refused(folder):
    pq.write_table(pa.table({"a": [1.0], "target": [2.0]}), folder / "cpu_act.parquet")
    with pytest.raises(DamagedData, match=r"expected 8,192 rows, 320,979 bytes, SHA-256 10dbaa72"):
        load_cpu_act()


def test_a_parquet_file_is_read_with_its_target_last(folder, monkeypatch):
    pq.write_table(pa.table({"a": [1, 2], "b": [3.0, 4.0], "target": [5, 6]}), folder / "cpu_act.parquet")
    content = (folder / "cpu_act.parquet").read_bytes()
    known = big_datasets.PARQUETS["cpu_act"]._replace(sha256=big_datasets.hashlib.sha256(content).hexdigest())
    monkeypatch.setitem(big_datasets.PARQUETS, "cpu_act", known)
    X, y, names, _ = load_cpu_act()
    assert X.tolist() == [[1, 3], [2, 4]]
    assert y.tolist() == [5, 6]
    assert names == ["a", "b"]


@pytest.mark.parametrize("name", ["ailerons", "cal_housing", "cpu_act", "mnist_test"])
def test_the_real_files_are_what_the_table_says(name):
    if not Path(os.environ.get("STREAMBOOST_DATA", "nowhere"), f"{name}.parquet").exists():
        pytest.skip(f"{name}.parquet is not in STREAMBOOST_DATA")
    known = big_datasets.PARQUETS[name]
    load = {"mnist_test": lambda: load_mnist("test")}.get(name) or getattr(big_datasets, f"load_{name}")
    X, y, names, _ = load()
    assert X.shape == (known.n_rows, known.n_columns)
    assert len(y) == known.n_rows
    assert len(names) == known.n_columns
