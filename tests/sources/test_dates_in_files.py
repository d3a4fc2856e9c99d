"""Dates written in files are the same moments in every way to write them; and what a model knows of columns counts."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamboost.sources import FileSource

START = datetime(2024, 5, 1, 10, 30, 15)
WAYS = {
    "zone": lambda at: at.isoformat() + "Z",
    "no zone": datetime.isoformat,
    "blank": str,
    "offset": lambda at: at.replace(tzinfo=UTC).astimezone(timezone(timedelta(hours=2))).isoformat(),
    "short offset": lambda at: f"{at + timedelta(hours=2):%Y-%m-%dT%H:%M:%S}+0200",
    "fraction": lambda at: f"{at.isoformat()}.000",
    "nanoseconds": lambda at: f"{at.isoformat()}.000000000Z",
    "no seconds": lambda at: f"{at:%Y-%m-%dT%H:%M}",
    "date": lambda at: f"{at:%Y-%m-%d}",
}


def written(path, texts, kind):
    """A file of dates and row numbers."""
    if kind == "csv":
        lines = ["at,k", *(f"{text},{k}" for k, text in enumerate(texts))]
    else:
        lines = [json.dumps({"at": text, "k": k}) for k, text in enumerate(texts)]
    file = path / f"rows.{kind}"
    file.write_text("\n".join(lines) + "\n")
    return file


def moments(file, **options):
    """Seconds since 1970, and the types they were read as."""
    found, types = [], set()
    for batch in FileSource(file, **options).read():
        column = batch.table["at"]
        types.add(column.type)
        found += column.cast(pa.timestamp("us")).cast(pa.int64()).to_pylist()
    return [None if found is None else found / 1e6 for found in found], types


def expected(moment, way):
    if way == "date":
        moment = moment.replace(hour=0, minute=0)
    if way in ("date", "no seconds"):
        moment = moment.replace(second=0)
    return (moment - datetime(1970, 1, 1)).total_seconds()


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_write_a_date_is_the_date(kind, way, tmp_path):
    dates = [START + timedelta(hours=k) for k in range(30)]
    found, _ = moments(written(tmp_path, [WAYS[way](at) for at in dates], kind))
    assert found == [expected(at, way) for at in dates]


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_column_may_mix_all_ways(kind, tmp_path):
    dates = [START + timedelta(hours=k) for k in range(30 * len(WAYS))]
    ways = [list(WAYS)[k % len(WAYS)] for k in range(len(dates))]
    file = written(tmp_path, [WAYS[way](at) for at, way in zip(dates, ways, strict=True)], kind)
    found, types = moments(file)
    assert found == [expected(at, way) for at, way in zip(dates, ways, strict=True)]
    assert {kind.unit for kind in types} == {"ns"}


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
@pytest.mark.parametrize("slip", ["soon", "?", "05/01/2024", "2024-13-01", "2024-02-30"])
@pytest.mark.parametrize("way", ["zone", "blank", "fraction", "date"])
def test_a_few_slips_among_dates_are_bad_rows_and_no_column_of_text(kind, slip, way, tmp_path):
    texts = [WAYS[way](START + timedelta(hours=k)) for k in range(200)]
    texts[7] = texts[150] = slip
    bad = []
    found, types = moments(written(tmp_path, texts, kind), on_bad=bad.append)
    good = [k for k in range(200) if k not in (7, 150)]
    assert found == [expected(START + timedelta(hours=k), way) for k in good]
    assert all(pa.types.is_temporal(kind) for kind in types)
    assert [slip in row.text for row in bad] == [True, True]
    assert all(row.reason.startswith(f"column 'at' holds '{slip}', but it is timestamp") for row in bad)


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_what_is_text_more_than_once_in_a_hundred_times_is_text(kind, tmp_path):
    texts = [WAYS["zone"](START + timedelta(hours=k)) for k in range(200)]
    file = written(tmp_path, ["soon"] * 3 + texts[3:], kind)
    assert FileSource(file).schema.field("at").type == pa.string()
    assert rows_of(file)[3]["at"] == texts[3]


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_dates_beyond_the_nanoseconds_are_dates(kind, tmp_path):
    found, _ = moments(written(tmp_path, ["9999-12-31T00:00:00", "2024-05-01T00:00:00.5", "0001-01-01"], kind))
    days = [datetime(9999, 12, 31), datetime(2024, 5, 1, 0, 0, 0, 500_000), datetime(1, 1, 1)]
    assert found == [(day - datetime(1970, 1, 1)).total_seconds() for day in days]


# What a model knows of columns


def rows_of(file, **options):
    return [row for batch in FileSource(file, **options).read() for row in batch.table.to_pylist()]


KINDS = {"id": "category", "x": "number", "at": "date", "absent": "category"}


def test_text_is_read_as_what_a_model_knows(tmp_path):
    (tmp_path / "a.csv").write_text("id,x,at,new\n007,1,2024-05-01,1\n8,many,soon,2\n9,3,2024-05-02T00:00:00Z,3\n")
    bad = []
    found = rows_of(tmp_path / "a.csv", kinds=KINDS, on_bad=bad.append)
    days = [datetime(2024, 5, 1, tzinfo=UTC), datetime(2024, 5, 2, tzinfo=UTC)]
    assert [row["at"].to_pydatetime() for row in found] == days
    assert [(row["id"], row["x"], row["new"]) for row in found] == [("007", 1.0, 1.0), ("9", 3.0, 3.0)]
    assert [row.text for row in bad] == ["8,many,soon,2\n"]
    assert rows_of(tmp_path / "a.csv", kinds=KINDS, types={"id": "int64", "x": "string", "at": "string"})[0] == {
        "id": 7, "x": "1", "at": "2024-05-01", "new": 1.0
    }  # fmt: skip


def test_truths_stay_truths_where_a_model_knows_numbers(tmp_path):
    (tmp_path / "a.csv").write_text("x\ntrue\nfalse\n")
    assert rows_of(tmp_path / "a.csv", kinds={"x": "number"}) == [{"x": True}, {"x": False}]


def test_numbers_of_json_lines_are_text_where_a_model_knows_text(tmp_path):
    lines = ['{"id": 7, "x": 1}', '{"id": "a", "x": 2}', '{"id": true, "x": 3}', "no json", '{"id": [1], "x": 4}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    for options in ({"kinds": KINDS}, {"types": {"id": "string"}}):
        bad = []
        found = rows_of(tmp_path / "a.jsonl", on_bad=bad.append, **options)
        assert [row["id"] for row in found] == ["7", "a", "true"]
        assert [row.text for row in bad] == ["no json\n", '{"id": [1], "x": 4}\n']


def test_json_lines_of_which_every_row_is_of_another_kind_than_asked_for_are_read_as_asked(tmp_path):
    lines = [f'{{"id": {k}, "x": "{k}.5", "n": "{k}", "y": {k}}}' for k in range(150)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + '\n{"id": 7, "x": "many", "n": "7", "y": 7}\n')
    expected = [{"id": str(k), "x": k + 0.5, "n": k, "y": float(k)} for k in range(150)]
    for options in (
        {"types": {"id": "string", "x": "float64", "n": "int64"}},
        {"kinds": {"id": "category", "x": "number", "n": "number"}},
    ):
        bad = []
        batches = list(FileSource(tmp_path / "a.jsonl", on_bad=bad.append, **options).read(n_rows=40))
        assert [row for batch in batches for row in batch.table.to_pylist()] == expected
        assert len(bad) == 1
        assert "column 'x' holds a string, but it is double" in bad[0].reason
        again = FileSource(tmp_path / "a.jsonl", on_bad="skip", **options).read(batches[0].position)
        assert [row for batch in again for row in batch.table.to_pylist()] == expected[40:]


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_numbers_of_tables_are_text_where_a_model_knows_text(kind, tmp_path):
    table = pa.table({"id": [7, None], "x": ["1", "2"], "at": pa.array([START, None], pa.timestamp("us"))})
    if kind == "parquet":
        pq.write_table(table, tmp_path / "a.parquet")
    else:
        with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as writer:
            writer.write_table(table)
    file = tmp_path / f"a.{kind}"
    assert [row["id"] for row in rows_of(file, kinds=KINDS)] == ["7", None]
    first = next(FileSource(file, kinds=KINDS).read(n_rows=1))
    [rest] = FileSource(file, kinds=KINDS).read(first.position)
    assert rest.table.schema == first.table.schema
    assert first.table.schema.types == [pa.string(), pa.string(), pa.timestamp("us")]
    assert rows_of(file, kinds=KINDS, types={"id": "float64"})[0]["id"] == 7.0
