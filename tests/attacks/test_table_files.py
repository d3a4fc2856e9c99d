"""Parquet and Arrow files that are small and become large, or are wider than any stream of rows."""

import gzip
import re
import subprocess
import sys
from inspect import signature
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamboost.sources import FileSource, arrow_messages, parquet_pages, table_files
from streamboost.sources.parquet_pages import read_pages

BECOMES = "of it become .* at once, expected at most"
TEXT = 100_000  # bytes of the one text that all rows share


def first(path):
    return next(iter(FileSource(path).read()))


def as_arrow(table, path, **options):
    with pa.ipc.new_file(path, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return path


def as_parquet(table, path, **options):
    pq.write_table(table, path, **options)
    return path


def shared_text(n=20_000):
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), ["a" * TEXT])


def views(n=20_000):
    view = np.zeros(1, np.dtype([("length", "i4"), ("head", "S4"), ("buffer", "i4"), ("at", "i4")]))
    view[0] = TEXT, b"aaaa", 0, 0
    return pa.Array.from_buffers(pa.string_view(), n, [None, pa.py_buffer(np.tile(view, n)), pa.py_buffer(b"a" * TEXT)])


def views_beside_nothing():
    """Views, and one that is missing, whose length would make up for all."""
    views_of_all = np.frombuffer(views(20_001).buffers()[1], np.int32).reshape(-1, 4).copy()
    views_of_all[0, 0] = -(2**31)
    known = np.full(20_001 // 8 + 1, 255, np.uint8)
    known[0] = 254
    buffers = [pa.py_buffer(known), pa.py_buffer(views_of_all), pa.py_buffer(b"a" * TEXT)]
    return pa.Array.from_buffers(pa.string_view(), 20_001, buffers)


def runs(n=20_000):
    return pa.RunEndEncodedArray.from_arrays(pa.array([n], pa.int64()), ["a" * TEXT])


def lists():
    return pa.ListArray.from_arrays([0, 20_000], shared_text())


BOMBS = {
    "dictionary.arrow": lambda path: as_arrow(pa.table({"x": shared_text()}), path),
    "runs.arrow": lambda path: as_arrow(pa.table({"x": runs()}), path),
    "views.arrow": lambda path: as_arrow(pa.table({"x": views()}), path),
    "views_beside_nothing.arrow": lambda path: as_arrow(pa.table({"x": views_beside_nothing()}), path),
    "lists.arrow": lambda path: as_arrow(pa.table({"x": lists()}), path),
    "dictionary.parquet": lambda path: as_parquet(pa.table({"x": shared_text()}), path),
    "lists.parquet": lambda path: as_parquet(pa.table({"x": lists()}), path, store_schema=False),
    "packed.arrow.gz": lambda path: path.write_bytes(
        gzip.compress(as_arrow(pa.table({"x": shared_text()}), path.with_suffix("")).read_bytes())
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_values_that_many_rows_share_are_not_written_out_without_end(tmp_path, name):
    BOMBS[name](tmp_path / name)
    assert (tmp_path / name).stat().st_size < 1_000_000  # of 2,000,000,000
    allocated = pa.total_allocated_bytes()
    with pytest.raises(ValueError, match=BECOMES):
        first(tmp_path / name)
    assert pa.total_allocated_bytes() - allocated < 50_000_000


def test_such_a_file_is_refused_before_there_is_no_memory(tmp_path):
    """With the limits as they are, in a process that may have 2 GB."""
    BOMBS["dictionary.parquet"](tmp_path / "rows.parquet")
    program = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))\n"
        "from streamboost.sources import FileSource\nnext(iter(FileSource(sys.argv[1]).read()))"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "rows.parquet")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "ValueError" in done.stderr.splitlines()[-1]
    assert "expected at most 268,435,456" in done.stderr


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.parametrize("packing", ["", ".gz"])
def test_buffers_that_claim_to_become_huge_are_refused_before_they_are_unpacked(tmp_path, monkeypatch, codec, packing):
    monkeypatch.setattr(table_files, "MOST_BYTES", 1 << 20)
    path = as_arrow(pa.table({"x": np.zeros(500_000)}), tmp_path / "rows.arrow", compression=codec)
    if packing:
        (tmp_path / "rows.arrow.gz").write_bytes(gzip.compress(path.read_bytes()))
    allocated = pa.total_allocated_bytes()
    with pytest.raises(ValueError, match=BECOMES):
        first(tmp_path / f"rows.arrow{packing}")
    assert pa.total_allocated_bytes() - allocated < 1_000_000


def test_compressed_dictionaries_are_looked_at_too(tmp_path, monkeypatch):
    monkeypatch.setattr(table_files, "MOST_BYTES", 1 << 20)
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(4, np.int8)), pa.array([" " * 4_000_000]))
    as_arrow(pa.table({"x": column}), tmp_path / "rows.arrow", compression="zstd")
    with pytest.raises(ValueError, match=BECOMES):
        first(tmp_path / "rows.arrow")


@pytest.mark.parametrize("codec", ["zstd", "gzip", "snappy"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_pages_of_compressed_zeros_are_refused_before_they_are_unpacked(tmp_path, monkeypatch, codec, version):
    monkeypatch.setattr(table_files, "MOST_BYTES", 1 << 18)
    monkeypatch.setattr(table_files, "MOST_GROWTH", 8)
    options = {"use_dictionary": False, "compression": codec, "data_page_version": version, "data_page_size": 1 << 30}
    if "max_rows_per_page" in signature(pq.write_table).parameters:  # older versions know no such bound
        options["max_rows_per_page"] = 1 << 20
    as_parquet(pa.table({"x": np.zeros(500_000)}), tmp_path / "rows.parquet", write_batch_size=1 << 20, **options)
    with pytest.raises(ValueError, match=BECOMES):
        first(tmp_path / "rows.parquet")
    as_parquet(pa.table({"x": np.zeros(500_000)}), tmp_path / "pages.parquet", use_dictionary=False, compression=codec)
    monkeypatch.setattr(table_files, "MOST_BYTES", 1 << 24)
    assert sum(len(batch.table) for batch in FileSource(tmp_path / "pages.parquet").read(n_rows=100_000)) == 500_000


def test_values_that_each_begin_as_the_one_before_are_read_a_few_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(table_files, "MOST_BYTES", 1 << 20)
    table = pa.table({"x": ["a" * 20_000 + str(k) for k in range(1_000)]})
    options = {"use_dictionary": False, "column_encoding": {"x": "DELTA_BYTE_ARRAY"}}
    as_parquet(table, tmp_path / "rows.parquet", **options)
    seen = []

    def spied(batch):
        seen.append(batch.num_rows)
        return arrow_messages.decoded_bytes(batch)

    monkeypatch.setattr(table_files, "decoded_bytes", spied)
    rows = [
        row["x"] for batch in FileSource(tmp_path / "rows.parquet").read(n_rows=20) for row in batch.table.to_pylist()
    ]
    assert rows == table["x"].to_pylist()
    assert max(seen) <= 64


def test_what_is_large_and_honest_is_read(tmp_path, monkeypatch):
    """Long texts that are there, each of them; and short ones that many rows share."""
    monkeypatch.setattr(table_files, "MOST_BYTES", 1 << 20)
    noise = np.random.default_rng(0).bytes(2_000_000).hex()
    texts = [noise[k : k + 10_000] for k in range(0, len(noise), 10_000)]
    table = pa.table({"x": texts, "y": ["ab"] * len(texts), "z": [[1, 2]] * len(texts)})
    for path in (as_arrow(table, tmp_path / "a.arrow"), as_parquet(table, tmp_path / "a.parquet")):
        read = pa.concat_tables([batch.table for batch in FileSource(path).read()])
        assert read.equals(table)


@pytest.mark.parametrize("is_nested", [False, True])
@pytest.mark.parametrize("write", [as_arrow, as_parquet])
def test_a_table_that_is_too_wide_is_refused_before_a_row_is_read(tmp_path, monkeypatch, write, is_nested):
    for module in (table_files,):
        monkeypatch.setattr(module, "MOST_COLUMNS", 100)
    fields = [pa.field(f"c{k}", pa.float64()) for k in range(101)]
    kind = pa.schema([pa.field("all", pa.struct(fields))] if is_nested else fields)
    path = write(kind.empty_table(), tmp_path / f"rows.{write.__name__[3:]}")
    with pytest.raises(ValueError, match=r"has 10[12] columns, those within others counted, expected at most 100"):
        first(path)


def test_an_index_of_more_columns_than_may_be_is_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(table_files, "MOST_COLUMNS", 100)
    schema = pa.schema([pa.field(f"c{k}", pa.float64()) for k in range(500)])
    as_parquet(schema.empty_table(), tmp_path / "rows.parquet")
    with pytest.raises(ValueError, match=r"its index lists more than 400 columns or row groups"):
        first(tmp_path / "rows.parquet")


def test_many_columns_are_read_a_few_rows_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(table_files, "MOST_BYTES", 1 << 16)
    table = pa.table({f"c{k}": np.arange(300.0) for k in range(100)})
    path = as_parquet(table, tmp_path / "rows.parquet", use_dictionary=False, row_group_size=300)
    monkeypatch.setattr(table_files, "MOST_GROWTH", 1_000)
    seen = []
    monkeypatch.setattr(table_files, "decoded_bytes", lambda batch: seen.append(batch.num_rows) or 0)
    assert pa.concat_tables([batch.table for batch in FileSource(path).read()]).equals(table)
    assert max(seen) == (1 << 16) // 800


OPTIONS = [{}, {"data_page_version": "2.0"}, {"use_dictionary": False}, {"compression": "zstd", "data_page_size": 500},
           {"write_page_index": True}, {"write_statistics": False}]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_pages_are_found_as_they_were_written(tmp_path, options):
    """The headers end where the next page begins: the last of them ends where the column does."""
    rng = np.random.default_rng(0)
    table = pa.table({"x": rng.normal(size=5_000), "t": rng.choice(["a", "bb", None], 5_000), "l": [[1.5]] * 5_000})
    path = as_parquet(table, tmp_path / "rows.parquet", row_group_size=2_000, **options)
    file = pq.ParquetFile(path)
    for g in range(3):
        group = file.metadata.row_group(g)
        pages = read_pages(memoryview(path.read_bytes()), group, file.schema)
        assert [each.packed for each in pages] == [group.column(c).total_compressed_size for c in range(3)]
        assert [each.path for each in pages] == [group.column(c).path_in_schema for c in range(3)]
        for c in range(2):
            assert 0 < pages[c].unpacked <= group.column(c).total_uncompressed_size
        assert pages[1].is_coded is options.get("use_dictionary", True)


FUZZ = """
import random, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from bodies import damaged
from streamboost.sources import FileSource
path, told = Path(sys.argv[1]), {"read": 0, "refused": 0}
data = path.read_bytes()
for seed in range(int(sys.argv[3])):
    signal.alarm(30)
    path.write_bytes(damaged(data, random.Random(seed)) or b"x")
    try:
        for batch in FileSource(path).read():
            batch.table.validate(full=True)
        told["read"] += 1
    except ValueError:
        told["refused"] += 1
print(told)
"""


@pytest.mark.parametrize("name", ["rows.parquet", "rows.arrow"])
def test_damaged_files_are_read_or_refused(tmp_path, request, name):
    rng, n = np.random.default_rng(0), 1_500 if request.config.getoption("--long") else 200
    columns = {"x": rng.normal(size=300), "t": rng.choice(["a", "bb", None], 300), "l": [[1.5, None]] * 300}
    (as_parquet if name.endswith("parquet") else as_arrow)(pa.table(columns), tmp_path / name)
    command = [sys.executable, "-c", FUZZ, str(tmp_path / name), str(Path(__file__).parent), str(n)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert sum(map(int, re.findall(r"\d+", done.stdout))) == n


def test_the_header_of_a_page_that_lists_more_than_there_is_ends_at_once():
    n = b"\xff" * 8 + b"\x7f"  # 2 ** 63 - 1
    for kind in (1, 3, 7):  # truths, bytes, floats: nothing is read of them
        with pytest.raises(ValueError, match="ends beyond the file"):
            parquet_pages._struct(memoryview(b"\x19" + bytes([0xF0 + kind]) + n), 0)
    with pytest.raises(ValueError, match="nested too deep"):
        parquet_pages._struct(memoryview(b"\x1c" * 100), 0)
