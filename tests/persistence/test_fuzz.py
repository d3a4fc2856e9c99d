"""Whatever bytes come in: an error of the kind that says so, or rows; never a crash, never another exception."""

import io

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamboost import SGBRegressor
from streamboost.cli.arguments import UsageError, parse_types
from streamboost.cli.run_steps import parse_interval, parse_options
from streamboost.serving.auth import read_tokens
from streamboost.sources import open_source

ROWS = pa.table({"x": np.arange(40.0), "city": ["Bonn", "Graz"] * 20, "y": np.arange(40.0) / 3})


def read_all(path, **options):
    """Read a file as a run would; give the rows and the bad rows, or the error."""
    bad = []
    try:
        source = open_source(path, on_bad=bad.append, **options)
        return [row for batch in source.read(n_rows=7) for row in batch.table.to_pylist()], bad
    except ValueError:
        return None, bad


text_bytes = st.one_of(
    st.binary(max_size=300),
    st.text(alphabet='x,y"\n\r\t1.5e-nul{}[]:\\ \0é', max_size=200).map(lambda text: text.encode()),
)


@settings(max_examples=150)
@given(data=text_bytes, ending=st.sampled_from(["csv", "tsv", "jsonl", "csv.gz", "jsonl.zst"]))
@example(data=b"\xff\xfe", ending="csv")
@example(data=b'{"a":1}\n{"a":', ending="jsonl")
@example(data=b"a,b\n1,2\n1", ending="csv")
def test_any_bytes_under_the_name_of_a_text_file(tmp_path_factory, data, ending):
    path = tmp_path_factory.mktemp("fuzz") / f"rows.{ending}"
    path.write_bytes(data)
    rows, bad = read_all(path)
    assert rows is None or all(isinstance(row, dict) for row in rows)
    assert all(one.reason and one.place for one in bad)


def written(ending):
    sink = io.BytesIO()
    if ending == "parquet":
        pq.write_table(ROWS, sink, row_group_size=9)
    else:
        with pa.ipc.new_stream(sink, ROWS.schema) as writer:
            writer.write_table(ROWS, max_chunksize=9)
    return sink.getvalue()


WHOLE = {"arrow": written("arrow")}


@settings(max_examples=150)
@given(place=st.integers(0, len(WHOLE["arrow"]) - 1), new=st.integers(0, 255), cut=st.booleans())
def test_any_damage_to_an_arrow_stream(tmp_path_factory, place, new, cut):
    content = bytearray(WHOLE["arrow"])
    content[place] = new
    path = tmp_path_factory.mktemp("fuzz") / "rows.arrow"
    path.write_bytes(content[:place] if cut else content)
    rows, _ = read_all(path)
    assert rows is None or len(rows) <= ROWS.num_rows


@settings(max_examples=100)
@given(cut=st.integers(0, 3000))
def test_a_parquet_file_cut_anywhere(tmp_path_factory, cut):
    content = written("parquet")
    path = tmp_path_factory.mktemp("fuzz") / "rows.parquet"
    path.write_bytes(content[:cut])
    rows, _ = read_all(path)
    assert rows is None if cut < len(content) else len(rows) == ROWS.num_rows


@given(text=st.text(max_size=20))
def test_any_text_as_an_interval(text):
    try:
        rows, seconds = parse_interval(text).values()
    except UsageError:
        return
    assert (rows or seconds) > 0


def test_words_of_the_command_line():
    assert parse_interval("10000") == {"checkpoint_rows": 10000, "checkpoint_seconds": None}
    assert parse_interval("1.5m")["checkpoint_seconds"] == 90.0
    assert parse_types(["zip=string", "a=b=float64"]) == {"zip": "string", "a=b": "float64"}


@given(words=st.lists(st.text(max_size=30), max_size=3))
def test_any_text_as_an_option(words):
    try:
        found = parse_options("regression", words)
    except UsageError:
        return
    assert set(found) <= set(SGBRegressor().get_params())


@given(text=st.text(max_size=60))
def test_any_text_as_a_source(text):
    if "*" in text or "?" in text or "[" in text or not text.strip("/."):
        return
    with pytest.raises((ValueError, OSError, ImportError)):
        list(open_source(f"/nowhere/{text}.csv", format=text).read())


@given(text=st.text(max_size=200))
def test_any_text_as_a_file_of_tokens(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("fuzz") / "tokens"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    try:
        tokens = read_tokens(path)
    except ValueError:
        return
    assert tokens.scopes_of("nobody has this one") is None
