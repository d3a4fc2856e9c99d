"""Sources: every row once and in order, from every position, in batches of every size; and errors that help."""

import csv
import gc
import gzip
import io
import json
import sys
import threading
import time
import tracemalloc
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamboost.sources import (
    BadRow,
    FileSource,
    FriedmanSource,
    MemorySource,
    Source,
    open_source,
    table_files,
    text_files,
)

N = 44
ROWS = [
    {"x": k / 4, "city": ["Oslo", 'the "Hague"', "a\nb, c", "Zürich"][k % 4], "flag": k % 3 == 0, "y": float(k)}
    for k in range(N)
]


def as_csv(rows, path, delimiter=","):
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), delimiter=delimiter, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    path.write_bytes(text.getvalue().encode())


def as_json_lines(rows, path):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def as_parquet(rows, path):
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=13)


def as_arrow_file(rows, path):
    table = pa.Table.from_pylist(rows)
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=11)


def as_arrow_stream(rows, path):
    table = pa.Table.from_pylist(rows)
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=11)


WRITERS = {
    ".csv": as_csv,
    ".tsv": lambda rows, path: as_csv(rows, path, "\t"),
    ".jsonl": as_json_lines,
    ".parquet": as_parquet,
    ".arrow": as_arrow_file,
    ".arrows": as_arrow_stream,
}
PACKERS = {"": bytes, ".gz": gzip.compress, ".zst": lambda content: pa.compress(content, "zstd", asbytes=True)}
SUFFIXES = [kind + packing for kind in WRITERS for packing in PACKERS if not (packing and kind == ".parquet")]


def write(path, rows=ROWS):
    """Write rows in the format that the name of the file says."""
    packing = path.suffix if path.suffix in PACKERS else ""
    plain = path.with_name(f"plain_{path.stem}") if packing else path
    WRITERS[plain.suffix](rows, plain)
    if packing:
        path.write_bytes(PACKERS[packing](plain.read_bytes()))
        plain.unlink()
    return path


def rows_of(batches):
    return [row for batch in batches for row in batch.table.to_pylist()]


def stored(position):
    """A position as a snapshot gives it back."""
    return json.loads(json.dumps(position))


def with_stdin(monkeypatch, content):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A file of every kind."""
    folder = tmp_path_factory.mktemp("files")
    for suffix in SUFFIXES:
        write(folder / f"all{suffix}")
        for part in range(3):
            write(folder / f"part{part}{suffix}", ROWS[15 * part : 15 * (part + 1)])
    return folder


@pytest.fixture
def small_blocks(monkeypatch):
    """Rows that straddle blocks, as those of long files do; types are then guessed from few rows."""
    monkeypatch.setattr(text_files, "BLOCK", 64)


@pytest.mark.each(suffix=SUFFIXES, name=["all", "part*"])
def test_files_of_every_format_give_their_rows_in_batches_of_every_size(folder, suffix, name):
    for n_rows in (1, 7, 1000):
        source = FileSource(folder / f"{name}{suffix}")
        batches = list(source.read(n_rows=n_rows))
        assert rows_of(batches) == ROWS
        assert all(batch.table.num_rows == n_rows for batch in batches[:-1])
        assert all(batch.table.schema == source.schema for batch in batches)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_reading_resumes_after_every_row(folder, suffix, small_blocks):
    path = folder / f"part*{suffix}"
    for k, batch in enumerate(FileSource(path).read(n_rows=1), start=1):
        assert batch.position["row"] == (k - 1) % 15 + 1  # in its file
        rest = list(FileSource(path).read(stored(batch.position), n_rows=7))
        assert rows_of(rest) == ROWS[k:]
        assert all(after.table.schema == batch.table.schema for after in rest)


@given(
    suffix=st.sampled_from(SUFFIXES),
    sizes=st.lists(st.integers(1, 40), min_size=1),
    name=st.sampled_from(["all", "part*"]),
)
def test_runs_that_end_after_any_batch_of_any_size_add_up(folder, suffix, sizes, name):
    position, rows = None, []
    for n_rows in [*sizes, 1000]:
        for batch in FileSource(folder / f"{name}{suffix}").read(stored(position), n_rows):
            rows += batch.table.to_pylist()
            position = batch.position
            if n_rows < 1000:
                break
    assert rows == ROWS


values = st.one_of(st.none(), st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), min_size=1))


@given(
    cells=st.lists(st.tuples(values, st.floats(allow_nan=False, allow_infinity=False)), min_size=1), n=st.integers(1, 9)
)
def test_any_text_survives_csv_and_json_lines_as_arrow_reads_the_whole(tmp_path_factory, cells, n):
    folder = tmp_path_factory.mktemp("texts")
    rows = [{"text": text, "x": x} for text, x in cells]
    as_csv(rows, folder / "a.csv")
    as_json_lines(rows, folder / "a.jsonl")
    options = pa.csv.ConvertOptions(column_types={"text": "string", "x": "float64"}, strings_can_be_null=True)
    whole = pa.csv.read_csv(
        folder / "a.csv", parse_options=pa.csv.ParseOptions(newlines_in_values=True), convert_options=options
    )
    types = {"text": "string"}
    assert rows_of(FileSource(folder / "a.csv", types=types).read(n_rows=n)) == whole.to_pylist()
    assert rows_of(FileSource(folder / "a.jsonl", types=types).read(n_rows=n)) == rows


def test_the_quote_of_an_inch_within_a_field_opens_nothing(tmp_path):
    (tmp_path / "a.csv").write_text('pipe,y\n5" wide,1\n"6"" wide\nand long",2\n7" wide,3\n')
    pipes = [row["pipe"] for row in rows_of(FileSource(tmp_path / "a.csv").read())]
    assert pipes == ['5" wide', '6" wide\nand long', '7" wide']


def test_columns_in_another_order_are_put_in_the_first_files_order(tmp_path):
    for suffix in (".csv", ".parquet"):
        write(tmp_path / f"a{suffix}", [{"x": 1.0, "y": 2.0}])
        write(tmp_path / f"b{suffix}", [{"y": 4.0, "x": 3.0}])
        batch = next(FileSource(tmp_path / f"*{suffix}").read())
        assert batch.table.column_names == ["x", "y"]
        assert batch.table["x"].to_pylist() == [1.0, 3.0]


def test_blank_lines_carriage_returns_byte_order_marks_and_missing_last_breaks_do_no_harm(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xef\xbb\xbfx,y\r\n\r\n1,2\r\n\n\n3,\r\n5,6")
    batches = list(FileSource(path).read(n_rows=2))
    assert rows_of(batches) == [{"x": 1, "y": 2}, {"x": 3, "y": None}, {"x": 5, "y": 6}]
    assert [batch.position["row"] for batch in batches] == [2, 3]
    assert [batch.position["line"] for batch in batches] == [6, 6]  # the seventh has no end
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"x": 1}\n\n   \n{"x": 2}')
    assert rows_of(FileSource(path).read()) == [{"x": 1}, {"x": 2}]


def test_names_may_hold_any_character_that_ends_no_line(tmp_path):
    names = ["x\u2028z", "p\x0bq", "r\x85s", "t\x1cu", "two\nlines"]
    path = tmp_path / "a.csv"
    as_csv([dict.fromkeys(names, 1.5)], path)

    assert rows_of(FileSource(path).read()) == [dict.fromkeys(names, 1.5)]


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("block", [5, 1 << 20])
def test_lines_that_end_in_carriage_returns_alone_are_refused(tmp_path, monkeypatch, block, follow):
    monkeypatch.setattr(text_files, "BLOCK", block)
    for name, content in [
        ("a.csv", b"x,y\r1,2\r3,4\r"),
        ("a.tsv", b'"x\ty"\tz\r1\t2\r3\t4'),
        ("a.jsonl", b'{"x": 1}\r{"x": 2}\r'),
        ("b.csv", b"x,y\r1,2\n3,4\n"),
    ]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=r"a carriage return alone ends none\. Convert the file: tr '\\r' '\\n'"):
            list(FileSource(tmp_path / name, follow=follow, idle_timeout=0).read())
    (tmp_path / "c.csv").write_bytes(b'"x\rx",y\r\n1,2\r\n')  # within quotes, and before a line feed, they are fine
    assert rows_of(FileSource(tmp_path / "c.csv", follow=follow, idle_timeout=0).read()) == [{"x\rx": 1, "y": 2}]


def test_whole_numbers_may_get_a_fraction_later_and_types_pin_a_column(tmp_path, small_blocks):
    (tmp_path / "a.csv").write_text("x,id\n" + "1,007\n" * 50 + "1.5,008\n")
    (tmp_path / "a.jsonl").write_text('{"x": 1, "id": "007"}\n' * 50 + '{"x": 1.5, "id": "008"}\n')
    for file in ("a.csv", "a.jsonl"):
        rows = rows_of(FileSource(tmp_path / file, types={"id": "string"}).read())
        assert rows[0] == {"x": 1.0, "id": "007"}
        assert rows[-1] == {"x": 1.5, "id": "008"}
    table = next(FileSource(tmp_path / "a.csv", types={"id": pa.int32()}).read()).table
    assert table.schema.field("id").type == pa.int32()


@pytest.mark.parametrize("slip", ["x", "1,5", "?", "1 2", "0x1F", "--3"])
def test_a_few_slips_among_numbers_are_bad_rows_and_no_column_of_text(slip, tmp_path):
    lines = [f"{k}.5,{k}" for k in range(200)]
    lines[7] = f'"{slip}",7'
    (tmp_path / "a.csv").write_text("\n".join(["x,y", *lines]) + "\n")
    bad = []
    rows = rows_of(FileSource(tmp_path / "a.csv", on_bad=bad.append).read())
    assert rows == [{"x": k + 0.5, "y": float(k)} for k in range(200) if k != 7]
    assert [row.text for row in bad] == [f'"{slip}",7\n']
    assert "'x' holds" in bad[0].reason
    assert "--type x=string" in bad[0].reason
    assert rows_of(FileSource(tmp_path / "a.csv", types={"x": "string"}).read())[7] == {"x": slip, "y": 7}


@pytest.mark.parametrize(("n", "n_slips"), [(200, 3), (60, 1)])
def test_what_is_text_now_and_then_is_text(n, n_slips, tmp_path):
    values = [str(k) for k in range(n - n_slips)] + ["12a"] * n_slips
    (tmp_path / "a.csv").write_text("room,y\n" + "".join(f"{value},1\n" for value in values))
    assert [row["room"] for row in rows_of(FileSource(tmp_path / "a.csv").read())] == values


EMPTY_AT_FIRST = {
    ".csv": ("a,b,y\n1,,2.5\n", "2,7,3.5\n", "3,oh,4.5\n"),
    ".tsv": ("a\tb\ty\n1\tNA\t2.5\n", "2\t7\t3.5\n", "3\toh\t4.5\n"),
    ".jsonl": ('{"a": 1, "b": null, "y": 2.5}\n', '{"a": 2, "b": 7, "y": 3.5}\n', '{"a": 3, "b": "oh", "y": 4.5}\n'),
}


@pytest.mark.parametrize("suffix", EMPTY_AT_FIRST)
def test_a_column_without_a_value_in_the_first_rows_is_numeric_and_text_in_it_a_bad_row(tmp_path, suffix):
    first, later, text = EMPTY_AT_FIRST[suffix]
    path, bad = tmp_path / f"a{suffix}", []
    path.write_text(first)
    batches = FileSource(path, follow=True, poll=0.001, idle_timeout=0.1, on_bad=bad.append).read(n_rows=200)
    start = next(batches)
    path.write_text(first + 500 * later + text)
    rows = [row["b"] for row in rows_of([start, *batches])]
    assert rows == [None] + [7.0] * 500
    assert [row.text for row in bad] == [text]
    assert "column 'b' holds" in bad[0].reason
    if suffix != ".jsonl":
        assert rows_of(FileSource(path, types={"b": "string"}).read())[-1]["b"] == "oh"


def test_rows_that_trickle_through_a_pipe_are_all_read_though_the_first_lacks_a_value(monkeypatch):
    lines = [b"a,b,y\n1,,2.5\n", *[b"2,7,3.5\n"] * 500]
    pipe = SimpleNamespace(read1=lambda size: lines.pop(0) if lines else b"")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=pipe))
    batches = list(FileSource("-", format="csv").read(n_rows=100))
    assert [row["b"] for row in rows_of(batches)] == [None] + [7.0] * 500
    assert [batch.table.num_rows for batch in batches] == [100, 100, 100, 100, 100, 1]


sparse = st.lists(st.tuples(*[st.booleans()] * 3), min_size=1, max_size=40)


@settings(max_examples=60)
@given(there=sparse, n=st.integers(1, 9), block=st.integers(1, 200), suffix=st.sampled_from([".csv", ".jsonl"]))
def test_columns_that_begin_anywhere_are_read_and_resumed_alike_however_the_bytes_come(
    tmp_path_factory, there, n, block, suffix
):
    path = tmp_path_factory.mktemp("sparse") / f"a{suffix}"
    values = [1.5, -2.0, 7.0]
    rows = [
        {"k": float(k), **{c: v if is_there else None for c, v, is_there in zip("xyz", values, mask, strict=True)}}
        for k, mask in enumerate(there)
    ]
    write(path, rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_files, "BLOCK", block)
        batches = list(FileSource(path).read(n_rows=n))
        assert rows_of(batches) == rows
        for k, batch in enumerate(batches, 1):
            patch.setattr(text_files, "BLOCK", 1 + 7 * block % 211)  # the same, whatever comes with it
            again = list(FileSource(path).read(stored(batch.position), n_rows=n))
            assert [after.table for after in again] == [after.table for after in batches[k:]]
            assert [after.position for after in again] == [after.position for after in batches[k:]]


def test_whole_seconds_may_get_a_fraction_later_in_a_time_zone_too(tmp_path, small_blocks):
    (tmp_path / "a.csv").write_text("t\n" + "2024-01-01T00:00:01Z\n" * 9 + "2024-01-01T00:00:01.25Z\n")
    assert rows_of(FileSource(tmp_path / "a.csv").read())[-1]["t"].microsecond == 250_000


def test_types_stay_those_of_the_first_run_whatever_the_file_begins_with_later(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x,y\n1,\n")
    first = next(FileSource(path, types={"y": "string"}).read())
    path.write_text("x,y\n1,\n2,3\n")
    again = next(FileSource(path).read(stored(first.position)))
    assert again.table.to_pylist() == [{"x": 2.0, "y": "3"}]
    with pytest.raises(ValueError, match=r"types\['y'\] is double, which is not how the rows before .* Resume with"):
        FileSource(path, types={"y": "float64"}).read(first.position)


def test_files_without_names_in_the_first_line_and_with_another_delimiter(tmp_path):
    (tmp_path / "a.txt").write_text("1;2\n3;4\n")
    source = FileSource(tmp_path / "a.txt", format="csv", names=["x", "y"], delimiter=";")
    first, _ = source.read(n_rows=1)
    assert rows_of(source.read(first.position)) == [{"x": 3.0, "y": 4.0}]


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".arrow", ".arrows"])
def test_the_standard_input_resumes_by_skipping_rows(monkeypatch, folder, suffix):
    content = (folder / f"all{suffix}").read_bytes()
    source = FileSource("-", format=suffix[1:].replace("arrows", "arrow"))
    with_stdin(monkeypatch, content)
    batches = list(source.read(n_rows=7))
    assert rows_of(batches) == ROWS
    with_stdin(monkeypatch, content)
    assert rows_of(source.read(stored(batches[3].position))) == ROWS[28:]
    assert batches[3].position["row"] == 28


def test_files_that_were_read_may_go_and_files_that_come_are_read_after_the_known(tmp_path):
    for name in "bc":
        write(tmp_path / f"{name}.csv", [{"x": f"{name}{k}"} for k in range(3)])
    position = list(FileSource(tmp_path / "*.csv").read(n_rows=2))[1].position  # after c0
    (tmp_path / "b.csv").unlink()
    write(tmp_path / "a.csv", [{"x": "a0"}])
    rest = [row["x"] for row in rows_of(FileSource(tmp_path / "*.csv").read(stored(position)))]
    assert rest == ["c1", "c2", "a0"]


@pytest.mark.each(suffix=SUFFIXES, n_rows=[1, 4, 1000])
def test_all_files_of_a_folder_may_go_when_they_were_read_and_what_comes_next_is_read(tmp_path, suffix, n_rows):
    write(tmp_path / f"a{suffix}", ROWS[:5])
    write(tmp_path / f"b{suffix}", ROWS[5:8])
    source = FileSource(tmp_path / f"*{suffix}")
    *before, last = (stored(batch.position) for batch in source.read(n_rows=n_rows))
    for name in "ab":
        (tmp_path / f"{name}{suffix}").unlink()
    assert list(source.read(last)) == []
    write(tmp_path / f"c{suffix}", ROWS[8:])
    assert rows_of(source.read(last)) == ROWS[8:]
    assert source.progress(last) == 0.0
    for position in before:
        if position["file"].endswith(f"a{suffix}") and position["row"] == 5:
            continue  # the end of a file, too
        with pytest.raises(ValueError, match="which is not among the files"):
            source.read(position)


def test_files_named_one_by_one_may_go_and_others_are_not_taken_for_them(tmp_path):
    for name in "abc":
        write(tmp_path / f"{name}.csv", [{"x": name}])
    *_, last = FileSource(tmp_path / "a.csv", tmp_path / "b.csv").read()
    (tmp_path / "b.csv").unlink()
    assert list(FileSource(tmp_path / "a.csv", tmp_path / "b.csv").read(last.position)) == []
    again = FileSource(tmp_path / "a.csv", tmp_path / "b.csv", tmp_path / "c.csv").read(last.position)
    assert rows_of(again) == [{"x": "c"}]
    assert rows_of(FileSource(tmp_path / "**" / "*.csv").read(last.position)) == [{"x": "c"}]
    with pytest.raises(ValueError, match=r"the position is in .*b\.csv, which is not among the files"):
        FileSource(tmp_path / "c.csv").read(last.position)  # and a.csv may be another name of c.csv
    with pytest.raises(FileNotFoundError, match=r"b\.csv does not exist"):
        FileSource(tmp_path / "b.csv", follow=True).read(last.position)


@pytest.mark.parametrize("follow", [False, True])
def test_a_file_was_read_to_its_end_if_only_bad_rows_or_blank_lines_are_left(tmp_path, follow):
    for rest in ("\n\n", "4,5,6\n", "\n4,5,6\n7,8,9\n"):
        path = tmp_path / "a.csv"
        path.write_text("x,y\n1,2\n" + rest)
        source = FileSource(tmp_path / "*.csv", on_bad="skip", follow=follow, idle_timeout=0)
        [batch] = source.read()
        path.unlink()
        assert list(source.read(stored(batch.position))) == []


def test_a_position_taken_before_it_said_whether_it_is_at_the_end_is_still_good(tmp_path):
    path = write(tmp_path / "a.csv", ROWS[:5])
    [batch] = FileSource(path).read()
    old = {name: value for name, value in batch.position.items() if name != "at_end"}
    assert old != batch.position
    assert list(FileSource(path).read(old)) == []
    write(tmp_path / "b.csv", ROWS[5:])
    assert rows_of(FileSource(tmp_path / "*.csv").read(old)) == ROWS[5:]


def test_two_readers_of_one_source_do_not_disturb_each_other(folder):
    source = FileSource(folder / "part*.csv")
    one, other = source.read(n_rows=4), source.read(n_rows=4)
    both = [(next(one), next(other)) for _ in range(11)]
    assert rows_of(batch for batch, _ in both) == rows_of(batch for _, batch in both) == ROWS


def largest_memory(source):
    """Bytes that Arrow and Python held at most while a source was read, each at the end of a batch or at its peak."""
    gc.collect()  # what other tests left
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    sizes = [pa.total_allocated_bytes() - before + tracemalloc.get_traced_memory()[1] for _ in source.read(n_rows=100)]
    tracemalloc.stop()
    return max(sizes)


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".jsonl.zst", ".parquet", ".arrow.gz"])
def test_memory_does_not_grow_with_the_file(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr(text_files, "BLOCK", 1 << 14)
    monkeypatch.setattr(table_files, "ROWS", 100)
    noise = np.random.default_rng(0).bytes(2_000_000)
    rows = [{"x": noise[start : start + 100].hex()} for start in range(0, len(noise), 100)]
    small, large = tmp_path / f"small{suffix}", tmp_path / f"large{suffix}"
    for path, n in ((small, 5_000), (large, 20_000)):
        if suffix == ".parquet":
            pq.write_table(pa.Table.from_pylist(rows[:n]), path, row_group_size=1000)
        else:
            write(path, rows[:n])
    assert large.stat().st_size > 3.9 * small.stat().st_size
    largest_memory(FileSource(small))  # what is made once, such as the modules of Arrow
    assert largest_memory(FileSource(large)) < 1.3 * largest_memory(FileSource(small))


# Following


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_a_followed_file_gives_rows_as_they_are_written_and_never_half_a_line(tmp_path, suffix):
    content = write(tmp_path / f"whole{suffix}").read_bytes()
    path = tmp_path / f"a{suffix}"
    path.write_bytes(b"")
    is_written = threading.Event()

    def grow():
        with path.open("ab", buffering=0) as file:
            for start in range(0, len(content), 37):  # cuts lines, quotes and letters
                file.write(content[start : start + 37])
                time.sleep(0.002)
        is_written.set()

    writer = threading.Thread(target=grow)
    source = FileSource(path, follow=True, poll=0.001, stop=is_written.is_set)
    writer.start()
    batches = list(source.read(n_rows=20))
    writer.join()
    position = stored(batches[-1].position) if batches else None
    rest = rows_of(FileSource(path).read(position))  # what came between the last look and the stop
    assert rows_of(batches) + rest == ROWS
    for k in range(len(batches)):
        rows = rows_of(FileSource(path).read(stored(batches[k].position)))
        assert rows_of(batches[: k + 1]) + rows == ROWS


def test_following_gives_what_it_has_before_it_waits_and_leaves_the_half_line(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x\n1\n2\n34")
    batches = list(FileSource(path, follow=True, idle_timeout=0, poll=0.001).read(n_rows=1000))
    assert rows_of(batches) == [{"x": 1}, {"x": 2}]
    with path.open("a") as file:
        file.write("5\n")
    resumed = FileSource(path, follow=True, idle_timeout=0).read(stored(batches[-1].position))
    assert rows_of(resumed) == [{"x": 345}]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".jsonl.gz", ".parquet"])
def test_followed_globs_go_on_with_files_that_appear_whatever_their_names(tmp_path, suffix):
    write(tmp_path / f"b{suffix}", ROWS[:20])
    batches = FileSource(tmp_path / f"*{suffix}", follow=True, poll=0.001, idle_timeout=5).read()
    seen = rows_of([next(batches)])
    assert seen == ROWS[:20]
    other = tmp_path / "elsewhere"
    other.mkdir()
    write(other / f"a{suffix}", ROWS[20:]).rename(tmp_path / f"a{suffix}")
    seen += rows_of([next(batches)])
    assert seen == ROWS


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".csv.gz", ".parquet"])
def test_a_followed_glob_passes_over_an_empty_file_until_there_is_something_in_it(tmp_path, suffix):
    folder, names = tmp_path / "g", ("a", "b", "c")
    folder.mkdir()
    whole = [write(tmp_path / f"{name}{suffix}", ROWS[5 * k : 5 * k + 5]).read_bytes() for k, name in enumerate(names)]
    a, b, c = (folder / f"{name}{suffix}" for name in names)
    a.write_bytes(whole[0])
    options = {"follow": True, "poll": 0.001, "idle_timeout": 0.1}
    batches = FileSource(folder / f"*{suffix}", **options).read()
    seen = [next(batches)]
    b.touch()
    c.write_bytes(whole[2])
    seen.append(next(batches))
    assert rows_of(seen) == ROWS[:5] + ROWS[10:15]
    middle = stored(seen[-1].position)
    b.write_bytes(whole[1])
    assert rows_of(batches) == ROWS[5:10]
    for follow in (False, True):  # nor is it forgotten after a resume
        assert rows_of(FileSource(folder / f"*{suffix}", **{**options, "follow": follow}).read(middle)) == ROWS[5:10]


def test_a_followed_glob_ends_a_file_that_is_deleted_and_goes_on(tmp_path):
    a, b = tmp_path / "a.csv", tmp_path / "b.csv"
    a.write_text("x\n1\n")
    batches = FileSource(tmp_path / "*.csv", follow=True, poll=0.001, idle_timeout=5).read()
    next(batches)
    with a.open("a") as file:
        file.write("2\n")
    a.unlink()  # what was written before is still read
    assert rows_of([next(batches)]) == [{"x": 2}]
    b.write_text("x\n3\n")
    assert rows_of([next(batches)]) == [{"x": 3}]
    batches = FileSource(b, follow=True, poll=0.001, idle_timeout=5).read()
    next(batches)
    b.unlink()
    with pytest.raises(ValueError, match=r"b\.csv was deleted while it was followed\. Put it back, or follow a glob"):
        next(batches)


def test_a_followed_file_that_shrinks_is_refused(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x\n1\n2\n")
    batches = FileSource(path, follow=True, poll=0.001, idle_timeout=5).read()
    next(batches)
    path.write_text("x\n")
    with pytest.raises(ValueError, match=r"a\.csv shrank or was written over while it was read\. Add"):
        next(batches)


# Bad rows

BAD = {
    "few.csv": ("x,y\n1,2\n3\n5,6\n", r"few\.csv, line 3: the row has 1 fields, expected 2\. Mend"),
    "many.csv": ("x,y\n1,2\n3,4,5\n5,6\n", r"many\.csv, line 3: the row has 3 fields, expected 2\. Mend"),
    "half.csv": (
        'x,y\n1,2\n5,6\n3,"4\n',
        r"half\.csv, line 4: the file ends in the middle of this row, within quotes\. Close",
    ),
    "short.csv": ("x,y\n1,2\n5,6\n3", r"short\.csv, line 4: the file ends in the middle of this row\. Write its rest"),
    "half.jsonl": ('{"x": 1, "y": 2}\n{"x": 5, "y": 6}\n{"x": 3', r"half\.jsonl, line 3: the file ends in the middle"),
    "list.jsonl": ('{"x": 1, "y": 2}\n[3]\n{"x": 5, "y": 6}\n', r"list\.jsonl, line 2: the line is not an object"),
    "no.jsonl": ('{"x": 1, "y": 2}\nx=3\n{"x": 5, "y": 6}\n', r"no\.jsonl, line 2: this is not JSON"),
    "kind.jsonl": (
        '{"x": 1, "y": 2}\n{"x": "3", "y": 4}\n{"x": 5, "y": 6}\n',
        r"kind\.jsonl, line 2: column 'x' holds a string, but it is double in the first rows",
    ),
    "two.jsonl": ('{"x": 1, "y": 2}\n{} {}\n{"x": 5, "y": 6}\n', r"two\.jsonl, line 2: the line holds several rows"),
    "utf.jsonl": (
        b'{"x": 1, "y": 2}\n{"\xff": 3}\n{"x": 5, "y": 6}\n',
        r"utf\.jsonl, line 2: the row is not UTF-8\. Say which",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_row_is_named_with_its_line_after_the_good_rows_before_it(tmp_path, name):
    content, message = BAD[name]
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    good = []
    with pytest.raises(BadRow, match=message) as raised:
        good.extend(row for batch in FileSource(path).read() for row in batch.table.to_pylist())
    skipped = []
    rows = rows_of(FileSource(path, on_bad=skipped.append).read(n_rows=1))
    assert rows == rows_of(FileSource(path, on_bad="skip").read()) == [{"x": 1, "y": 2}, {"x": 5, "y": 6}]
    assert [str(bad) for bad in skipped] == [str(raised.value)]
    assert raised.value.text.encode("utf-8", "surrogateescape") in path.read_bytes()
    if raised.value.position["schema"] is not None:
        with pytest.raises(BadRow, match=message):
            list(FileSource(path).read(stored(raised.value.position)))


def test_the_good_rows_before_a_bad_one_are_delivered_first(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n" + "1,2\n" * 10 + "3\n")
    batches = FileSource(tmp_path / "a.csv").read(n_rows=4)
    assert [next(batches).table.num_rows for _ in range(3)] == [4, 4, 2]
    with pytest.raises(BadRow, match="line 12"):
        next(batches)


@settings(max_examples=40)
@given(
    is_bad=st.lists(st.booleans(), min_size=1, max_size=80),
    n=st.integers(1, 20),
    suffix=st.sampled_from([".csv", ".jsonl"]),
)
def test_all_good_rows_and_no_others_are_read_and_resumed(tmp_path_factory, is_bad, n, suffix):
    path = tmp_path_factory.mktemp("bad") / f"a{suffix}"
    row = "{},0\n" if suffix == ".csv" else '{{"x": {}, "y": 0}}\n'
    lines = [f"{k}\n" if bad else row.format(k) for k, bad in enumerate([False, *is_bad])]
    path.write_text("x,y\n" * (suffix == ".csv") + "".join(lines))
    good = [0] + [k for k, bad in enumerate(is_bad, 1) if not bad]
    bad_rows = []
    batches = list(FileSource(path, on_bad=bad_rows.append).read(n_rows=n))
    assert [row["x"] for row in rows_of(batches)] == good
    assert [int(bad.text) for bad in bad_rows] == [k for k, bad in enumerate(is_bad, 1) if bad]
    for k, batch in enumerate(batches, 1):
        rest = FileSource(path, on_bad="skip").read(stored(batch.position))
        assert [row["x"] for row in rows_of(rest)] == good[k * n :]


def test_a_column_that_turns_to_text_says_what_to_do(tmp_path, small_blocks):
    (tmp_path / "a.csv").write_text("x,e\n" + "1,\n" * 50 + "abc,\n")
    with pytest.raises(BadRow, match=r"line 52: column 'x' holds 'abc', but it is double .* types=\{'x': 'string'\}"):
        list(FileSource(tmp_path / "a.csv").read())
    (tmp_path / "e.csv").write_text("x,my e\n" + "1,\n" * 50 + "1,7\n1,oh\n")
    with pytest.raises(BadRow, match=r"'my e' holds 'oh', .* types=\{'my e': 'string'\} \(--type 'my e=string'\)"):
        list(FileSource(tmp_path / "e.csv").read())
    assert rows_of(FileSource(tmp_path / "e.csv", types={"my e": "string"}).read())[-1] == {"x": 1.0, "my e": "oh"}
    (tmp_path / "a.jsonl").write_text('{"x": 1}\n' * 50 + '{"x": "abc"}\n')
    with pytest.raises(BadRow, match=r"line 51: column 'x' holds a string, but it is double .* pass on_bad='skip'"):
        list(FileSource(tmp_path / "a.jsonl").read())
    (tmp_path / "k.jsonl").write_text('{"x": 1}\n' * 50 + '{"z": 1}\n')
    with pytest.raises(BadRow, match=r"line 51: the row has a key besides 'x' .* types=\{'key': 'float64'\} \(--type"):
        list(FileSource(tmp_path / "k.jsonl").read())
    (tmp_path / "n.jsonl").write_text('{"x": 1, "e": null}\n' * 50 + '{"z": 1}\n')
    with pytest.raises(BadRow, match=r"line 51: the row has a key besides 'x', 'e' "):
        list(FileSource(tmp_path / "n.jsonl").read())
    assert rows_of(FileSource(tmp_path / "k.jsonl", types={"z": "float64"}).read())[-1] == {"x": None, "z": 1.0}


def test_a_file_of_nothing_but_bad_rows_is_not_of_its_kind(tmp_path):
    for name in ("a.jsonl", "a.csv"):
        (tmp_path / name).write_text("x,y\n1;2\n")
        with pytest.raises(ValueError, match=rf"{name}: none of the first rows can be read.*Pass format="):
            list(FileSource(tmp_path / name).read())


def test_a_quote_that_is_never_closed_does_not_fill_the_memory(tmp_path, monkeypatch, small_blocks):
    monkeypatch.setattr(text_files, "LONGEST_ROW", 200)
    (tmp_path / "a.csv").write_text('x,y\n1,2\n3,"4\n' + "5,6\n" * 200)
    with pytest.raises(ValueError, match=r"the row from line 3 on is longer .* a quote that is never closed"):
        list(FileSource(tmp_path / "a.csv").read())


# Other errors


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_that_is_empty_or_not_there_is_named(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    with pytest.raises(FileNotFoundError, match=r"a\..* does not exist\. Look for a typo"):
        FileSource(path).read()
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"a\..* is empty, expected rows\. Remove it"):
        list(FileSource(path).read())


@pytest.mark.parametrize("suffix", [suffix for suffix in SUFFIXES if suffix not in (".csv", ".tsv", ".jsonl")])
def test_a_file_cut_short_or_of_another_kind_is_named(folder, tmp_path, suffix):
    content = (folder / f"all{suffix}").read_bytes()
    path = tmp_path / f"a{suffix}"
    for damaged in (content[: len(content) // 2], b"something else entirely, long enough to be anything"):
        path.write_bytes(damaged)
        with pytest.raises(
            ValueError, match=r"a\..* cannot be read as .*[^.]\. It may .*write it again, or pass format="
        ):
            list(FileSource(path).read())


def test_columns_that_differ_between_files_are_named(tmp_path):
    for suffix in (".csv", ".parquet", ".arrow"):
        write(tmp_path / f"a{suffix}", [{"x": 1.0, "y": 2.0}])
        write(tmp_path / f"b{suffix}", [{"x": 1.0, "z": 2.0}])
        with pytest.raises(
            ValueError, match=r"b\..* lacks 'y' and has 'z' besides, expected the columns .* Read files"
        ):
            list(FileSource(tmp_path / f"*{suffix}").read())
    for suffix in (".parquet", ".arrow"):
        write(tmp_path / f"b{suffix}", [{"x": "one", "y": 2.0}])
        with pytest.raises(ValueError, match=r"b\..*: column 'x' is string, but it was double in the rows before"):
            list(FileSource(tmp_path / f"*{suffix}").read())
        write(tmp_path / f"b{suffix}", [{"x": 3, "y": 2.0}])
        rows = rows_of(FileSource(tmp_path / f"*{suffix}", types={"x": "float64"}).read())
        assert [row["x"] for row in rows] == [1.0, 3.0]
        write(tmp_path / f"b{suffix}", [{"x": "one", "y": 2.0}])
        with pytest.raises(ValueError, match=r"cannot be read as types=\.\.\. says"):
            list(FileSource(tmp_path / f"*{suffix}", types={"x": "float64"}).read())


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_that_changed_since_the_position_was_taken_is_refused(tmp_path, suffix):
    path = write(tmp_path / f"a{suffix}")
    position = stored(next(FileSource(path).read(n_rows=40)).position)
    write(path, [{**row, "y": -row["y"]} for row in ROWS])
    with pytest.raises(
        ValueError, match=r"a\..* is (not the file it was|shorter than) when the position was taken\. Put"
    ):
        FileSource(path).read(position)
    write(path, ROWS[:20])
    with pytest.raises(ValueError, match=r"a\..* is shorter than when the position was taken\. Put the old file back"):
        FileSource(path).read(position)
    path.unlink()
    with pytest.raises(FileNotFoundError, match="does not exist"):
        FileSource(path).read(position)


def test_packed_files_and_tables_must_keep_their_size(tmp_path):
    path = write(tmp_path / "a.csv.gz")
    position = next(FileSource(path).read(n_rows=40)).position
    path.write_bytes(path.read_bytes() + gzip.compress(b"1,2,True,4\n"))
    with pytest.raises(ValueError, match=r"a\.csv\.gz is not the file it was when the position was taken"):
        FileSource(path).read(position)


def test_a_file_that_grows_is_known_by_more_and_more_of_its_bytes(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x\n1\n")
    batches = FileSource(path, follow=True, poll=0.001, idle_timeout=5).read()
    first = next(batches).position
    path.write_text("x\n1\n2\n")
    second = next(batches).position
    path.write_text("x\n1\n7\n")
    assert rows_of(FileSource(path).read(first)) == [{"x": 7}]
    with pytest.raises(ValueError, match=r"a\.csv is not the file it was when the position was taken"):
        FileSource(path).read(second)


def test_a_last_line_that_went_on_after_it_was_read_is_refused(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x\n1\n2")
    *_, last = FileSource(path).read()
    path.write_text("x\n1\n2\n3\n")
    assert rows_of(FileSource(path).read(last.position)) == [{"x": 3}]
    path.write_text("x\n1\n25\n3\n")
    with pytest.raises(ValueError, match=r"line 3 was read as it stood at the end of the file, and has changed since"):
        list(FileSource(path).read(last.position))


def test_what_a_source_of_files_cannot_do_it_says(tmp_path):
    write(tmp_path / "a.csv")
    position = next(FileSource(tmp_path / "a.csv").read()).position
    write(tmp_path / "b.csv")
    (tmp_path / "c.jsonl").write_text("{}\n")
    (tmp_path / "twice.csv").write_text("x,x\n1,2\n")
    (tmp_path / "names.csv").write_bytes(b"\xff,y\n1,2\n")
    for message, arguments, options in [
        ("no path is given", [], {}),
        (r"a\.xls does not tell its format by its name, expected one of \.csv, .* Pass format=", ["a.xls"], {}),
        ("the standard input does not tell its format", ["-"], {}),
        (r"Parquet cannot be read from a pipe", ["a.parquet.gz"], {}),
        (r"Parquet cannot be read from a pipe", ["-"], {"format": "parquet"}),
        ("format is 'xml', expected one of", ["a.csv"], {"format": "xml"}),
        ("delimiter is '::', expected one ASCII character", ["a.csv"], {"delimiter": "::"}),
        ("on_bad is 'ignore', expected 'raise', 'skip' or a function", ["a.csv"], {"on_bad": "ignore"}),
        (r"types\['x'\] is 'number', expected a pyarrow type or its name", ["a.csv"], {"types": {"x": "number"}}),
        (r"holds files of several formats, csv and jsonl", [tmp_path], {}),
        ("decimal is ';', expected", ["a.csv"], {"decimal": ";"}),
        ("encoding is 'latin-99', expected one that Python knows", ["a.csv"], {"encoding": "latin-99"}),
        ("names is 'x', expected a list", ["a.csv"], {"names": "x"}),
        (r"a\.csv is given twice", [tmp_path / "a.csv", tmp_path / "*.csv"], {}),
        ("types names column 'q', but .* has only 'x', 'city'", [tmp_path / "a.csv"], {"types": {"q": "string"}}),
        (r"names two columns 'x' in its first line", [tmp_path / "twice.csv"], {}),
        (r"does not start with names in UTF-8", [tmp_path / "names.csv"], {"encoding": "utf-8"}),
    ]:
        with pytest.raises(ValueError, match=message):
            list(FileSource(*arguments, **options).read())
    with pytest.raises(FileNotFoundError, match=r"no file matches .*q.*\. Look for a typo, or pass follow=True"):
        FileSource(tmp_path / "q*.csv").read()
    with pytest.raises(FileNotFoundError, match="holds no file whose name tells a format"):
        FileSource(tmp_path, format="parquet").read()
    with pytest.raises(ValueError, match=r"the position is in .*a\.csv, which is not among the files\. Put it back"):
        FileSource(tmp_path / "b.csv").read(position)
    for foreign in (7, {"file": "a.csv"}):
        with pytest.raises(ValueError, match=r"position is .*, expected one of a batch of this source"):
            FileSource(tmp_path / "a.csv").read(foreign)
    with pytest.raises(ValueError, match="the schema in this position is damaged"):
        FileSource(tmp_path / "a.csv").read({**position, "schema": "AAAA"})
    for n_rows in (0, 2.5):
        with pytest.raises(ValueError, match=r"n_rows is .*, expected a whole number of at least 1"):
            FileSource(tmp_path / "a.csv").read(n_rows=n_rows)


# Memory, and generated rows

columns = {"x": [1.0, 2.0, None], "city": ["Oslo", None, "Rome"]}
SAME = {
    "pandas": lambda: pd.DataFrame(columns, index=[5, 6, 7]),
    "polars": lambda: pl.DataFrame(columns),
    "arrow": lambda: pa.table(columns),
    "columns": lambda: columns,
    "dicts": lambda: [{"x": 1.0, "city": "Oslo"}, {"x": 2.0}, {"city": "Rome"}],
}


@pytest.mark.parametrize("kind", SAME)
def test_rows_in_memory_are_the_same_from_every_kind_of_frame(kind):
    source = MemorySource(SAME[kind](), [7, 8, 9])
    expected = [
        dict(zip(["x", "city", "y"], row, strict=True)) for row in zip(*columns.values(), [7, 8, 9], strict=True)
    ]
    for n_rows in (1, 2, 5):
        batches = list(source.read(n_rows=n_rows))
        assert rows_of(batches) == expected
        for batch in batches:
            assert rows_of(source.read(stored(batch.position))) == expected[batch.position :]


def test_bare_arrays_get_names_and_what_is_no_table_is_refused():
    assert rows_of(MemorySource(np.arange(4).reshape(2, 2)).read()) == [{"x0": 0, "x1": 1}, {"x0": 2, "x1": 3}]
    with pytest.raises(TypeError, match=r"data is a ndarray, expected an array of two dimensions"):
        MemorySource(np.arange(3))
    with pytest.raises(
        ValueError, match=r"data is a list that Arrow cannot read: .* Give each column values of one type"
    ):
        MemorySource([{"x": 1}, {"x": "one"}])
    with pytest.raises(ValueError, match="data has 2 rows and y has 3, expected one y a row"):
        MemorySource({"x": [1, 2]}, [1, 2, 3])
    with pytest.raises(ValueError, match=r"data has a column 'y' already\. Leave y out"):
        MemorySource({"y": [1, 2]}, [1, 2])
    for position in (-1, 3, "1"):
        with pytest.raises(ValueError, match=r"position is .*, expected a row of data, from 0 to 2\. Resume with"):
            MemorySource({"x": [1, 2]}).read(position)


def test_generated_rows_do_not_depend_on_how_one_gets_there():
    make = partial(FriedmanSource, 9000, drift=[100, 5000], seed=3)
    whole = pa.concat_tables(batch.table for batch in make().read(n_rows=9000))
    assert whole.num_rows == 9000
    assert pa.concat_tables(batch.table for batch in make().read(n_rows=777)) == whole
    for start in (1, 4095, 4096, 4097, 8999, 9000):
        rest = [batch.table for batch in make().read(start, n_rows=1000)]
        assert pa.concat_tables([whole.slice(0, 0), *rest]) == whole.slice(start)
    assert whole.schema == make().schema
    assert len(set(whole["x0"].to_pylist())) == 9000  # no block is another's copy


def test_friedmans_columns_change_their_parts_where_the_drift_says():
    table = next(FriedmanSource(noise=0.0, drift=[100, 5000]).read(n_rows=9000)).table
    x = np.column_stack([table[f"x{j}"] for j in range(10)])
    x[100:5000] = x[100:5000, ::-1]
    y = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
    np.testing.assert_allclose(table["y"], y)


def test_generated_sources_refuse_what_they_cannot_use():
    for message, make in [
        ("total_rows is -1", lambda: FriedmanSource(-1)),
        ("seed is -1", lambda: FriedmanSource(seed=-1)),
        ("noise is -1", lambda: FriedmanSource(noise=-1)),
        ("drift is -1", lambda: FriedmanSource(drift=-1)),
        ("'synthetic:moons' is not a known stream", lambda: open_source("synthetic:moons")),
        ("position is 6, expected a row of the stream, from 0 to 5", lambda: FriedmanSource(5).read(6)),
    ]:
        with pytest.raises(ValueError, match=message):
            make()


def test_open_source_takes_files_streams_frames_and_sources(tmp_path):
    path = write(tmp_path / "a.csv")
    assert isinstance(open_source(str(path), str(path)), FileSource)
    assert isinstance(open_source(path, format="csv"), FileSource)
    assert isinstance(open_source("synthetic:friedman", seed=4), FriedmanSource)
    assert isinstance(open_source({"x": [1]}), MemorySource)
    for suffix in (".csv", ".tsv", ".jsonl", ".jsonl.gz", ".parquet"):
        typed = open_source(write(tmp_path / f"t{suffix}", [{"x": 1}]), types={"x": "int64"})
        assert typed.schema.field("x").type == pa.int64()
    assert open_source("shipped:electricity", types={"day": "string"}).schema.field("day").type == pa.string()
    for unread in ("synthetic:friedman", {"x": [1]}, FriedmanSource()):
        with pytest.raises(TypeError, match="unexpected keyword argument 'types'"):
            open_source(unread, types={"x": "float64"})
    source = FriedmanSource()
    assert open_source(source) is source
    assert source.acknowledge(7) is None
    with pytest.raises(TypeError, match="abstract"):
        Source()
