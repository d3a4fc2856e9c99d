"""Files as people have them: other encodings, semicolons, decimal commas, no names, whole directories."""

import csv
import gzip
import io
import json

import pytest

from streamboost.sources import BadRow, FileSource, text_files
from streamboost.sources.dialects import is_bytewise, sniff_delimiter

ROWS = [{"größe": k / 4, "ort": ["Köln", "Graz", 'am "Ü"; 1,5 | x'][k % 3], "y": float(k)} for k in range(60)]


def encoded(rows, *, encoding="utf-8", delimiter=",", decimal=".", header=True):
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter)
    if header:
        writer.writerow(rows[0])
    for row in rows:
        writer.writerow([str(v).replace(".", decimal) if isinstance(v, float) else v for v in row.values()])
    return text.getvalue().encode(encoding)


def rows_of(batches):
    return [row for batch in batches for row in batch.table.to_pylist()]


def stored(position):
    return json.loads(json.dumps(position))


SNIFFED = ["utf-8", "utf-8-sig", "latin-1", "cp1252", "utf-16", "utf-32"]
SAID = ["cp850", "iso-8859-15", "mac-roman", "utf-16-le", "utf-16-be", "cp037", "gb18030", "utf-7"]


@pytest.mark.pairwise(encoding=SNIFFED + SAID, marks=[",.", ";,", ";.", "\t,", "|."], packed=[False, True])
def test_a_file_is_read_as_it_is_written_and_resumed_after_every_row(encoding, marks, packed, tmp_path, monkeypatch):
    delimiter, decimal = marks
    path = tmp_path / ("a.csv.gz" if packed else "a.csv")
    data = encoded(ROWS, encoding=encoding, delimiter=delimiter, decimal=decimal)
    path.write_bytes(gzip.compress(data) if packed else data)
    said = {} if encoding in SNIFFED else {"encoding": encoding}
    batches = list(FileSource(path, **said).read(n_rows=7))
    assert rows_of(batches) == ROWS
    monkeypatch.setattr(text_files, "BLOCK", 13)
    for k, batch in enumerate(batches, 1):  # nothing is said again: the position knows
        assert rows_of(FileSource(path).read(stored(batch.position))) == ROWS[7 * k :]


def test_offsets_are_bytes_of_the_file_where_each_byte_is_a_letter(tmp_path):
    path = tmp_path / "a.csv"
    data = encoded(ROWS, encoding="latin-1", delimiter=";", decimal=",")
    path.write_bytes(data)
    lines = data.split(b"\r\n")
    for k, batch in enumerate(FileSource(path).read(n_rows=1), 1):
        assert batch.position["offset"] == len(b"\r\n".join(lines[: k + 1])) + 2
    assert [name for name in ("latin-1", "cp1252", "utf-8", "koi8-r") if is_bytewise(name)] == [
        "latin-1", "cp1252", "utf-8", "koi8-r"
    ]  # fmt: skip
    assert not any(map(is_bytewise, ("utf-16", "shift_jis", "gb18030", "iso2022_jp", "cp037", "utf-7")))


def test_what_was_found_is_described(tmp_path):
    for name, data, words in [
        ("a.csv", encoded(ROWS, encoding="latin-1", delimiter=";", decimal=","),
         "CSV, ';' between values, decimal comma, cp1252"),
        ("b.csv", encoded(ROWS), "CSV, ',' between values, UTF-8"),
        ("c.tsv", encoded(ROWS, delimiter="\t"), "TSV, a tab between values, UTF-8"),
        ("d.jsonl", b'{"x": 1}\n', "JSON lines, UTF-8"),
    ]:  # fmt: skip
        (tmp_path / name).write_bytes(data)
        source = FileSource(tmp_path / name)
        assert len(rows_of(source.read())) >= 1
        assert source.describe() == words


@pytest.mark.parametrize(
    ("text", "names", "delimiter"),
    [
        ("a,b\n1,2\n", None, ","),
        ("a;b\n1,5;2,5\n", None, ";"),
        ("a;b\n", None, ";"),
        ('"a;b",c\n1,2\n', None, ","),
        ("a,b|c,d\n1,2|3,4\n5,6|7,8\n", None, ","),
        ("a|b|c\n1|2|3\n", None, "|"),
        ("a\n1\n", None, ","),
        ("1,5;2,5;3\n", "abc", ";"),
        ("1,2,3\n4,5,6\n", "abc", ","),
        ("x,y\n1;2\n", None, ","),
        ("note,y\nsee a;b,1\nsee c;d,2\n", None, ","),
        ('a;b\n"two\nlines; and more";2\n', None, ";"),
        ("", None, ","),
    ],
)
def test_the_delimiter_splits_rows_evenly(text, names, delimiter):
    assert sniff_delimiter(text.encode(), "utf-8", names) == delimiter


def test_files_without_names_are_resumed_without_saying_them_again(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(encoded(ROWS, encoding="latin-1", delimiter=";", decimal=",", header=False))
    first, *_ = FileSource(path, names=list(ROWS[0])).read(n_rows=20)
    assert rows_of([first]) == ROWS[:20]
    assert rows_of(FileSource(path).read(stored(first.position))) == ROWS[20:]
    for given, word in [({"names": ["a", "b", "c"]}, "names"), ({"delimiter": ","}, "delimiter"),
                        ({"decimal": "."}, "decimal"), ({"encoding": "utf-8"}, "encoding")]:  # fmt: skip
        with pytest.raises(ValueError, match=rf"{word} is .*, but the rows before the position were read with"):
            FileSource(path, **given).read(first.position)


def test_a_position_of_a_version_that_knew_no_dialects_is_read_as_then(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x;y,z\n" + "1,2\n" * 9)
    position = next(FileSource(path, delimiter=",", names=None).read(n_rows=4)).position
    del position["dialect"]
    assert len(rows_of(FileSource(path).read(position))) == 5
    path.write_text("x;y\n" + "1;2\n" * 9)
    position = next(FileSource(path).read(n_rows=4)).position
    del position["dialect"]
    assert len(rows_of(FileSource(path, delimiter=";").read(position))) == 5


def test_every_file_has_its_own_encoding_and_all_have_the_same_numbers(tmp_path):
    plain = [{**row, "ort": "Graz"} for row in ROWS]
    for name, rows, encoding in [("a", plain, "ascii"), ("b", ROWS, "latin-1"), ("c", ROWS, "utf-8")]:
        rows = [{"groesse": row["größe"], "ort": row["ort"], "y": row["y"]} for row in rows]
        (tmp_path / f"{name}.csv").write_bytes(encoded(rows, encoding=encoding, delimiter=";", decimal=","))
    found = rows_of(FileSource(tmp_path / "*.csv").read())
    assert [row["ort"] for row in found] == [row["ort"] for row in plain + ROWS + ROWS]
    batches = list(FileSource(tmp_path / "*.csv").read(n_rows=50))
    for k, batch in enumerate(batches, 1):
        assert rows_of(FileSource(tmp_path / "*.csv").read(stored(batch.position))) == found[50 * k :]


def test_a_spoilt_line_of_utf_8_is_a_bad_row_that_keeps_its_bytes(tmp_path):
    lines = [f"{k},Köln\n".encode() for k in range(9)]
    lines[4] = b"4,K\xf6ln\n"
    path, bad = tmp_path / "a.csv", []
    path.write_bytes(b"x,city\n" + b"".join(lines))
    assert len(rows_of(FileSource(path, on_bad=bad.append).read())) == 8
    assert bad[0].text.encode("utf-8", "surrogateescape") == lines[4]
    assert "--encoding latin-1" in bad[0].reason
    path.write_bytes(b"x,city\n" + b"".join(lines) + b"1,\x81\n")
    with pytest.raises(BadRow, match="line 11: the row is not cp1252"):
        list(FileSource(path, encoding="cp1252").read())
    assert rows_of(FileSource(path, encoding="latin-1").read())[4]["city"] == "Köln"


@pytest.mark.parametrize(("column", "kind"), [("{}.5", "double"), ("2024-05-{:02}", "timestamp[ns]")])
def test_spoilt_bytes_among_numbers_or_dates_are_a_bad_row_and_no_column_of_text(column, kind, tmp_path):
    values = [column.format(k % 28 + 1).encode() for k in range(200)]
    values[7] = b"\xff\xfe"
    lines = [b"K\xc3\xb6ln," + value + b"\n" for value in values]  # most of what is beyond ASCII is UTF-8
    (tmp_path / "a.csv").write_bytes(b"ort,x\n" + b"".join(lines))
    bad = []
    [batch] = FileSource(tmp_path / "a.csv", on_bad=bad.append).read()
    assert str(batch.table.schema.field("x").type) == kind
    assert batch.table.num_rows == 199
    assert [row.text.encode("utf-8", "surrogateescape") for row in bad] == [lines[7]]


def test_what_cannot_be_decoded_is_refused_in_words(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("x,y\n1,2\n".encode("utf-16-le"))
    with pytest.raises(ValueError, match=r"is full of zero bytes, as UTF-16 is.*--encoding utf-16-le"):
        list(FileSource(path).read())
    path.write_bytes("x,y\n1,2\n".encode("utf-16")[:-1])
    with pytest.raises(ValueError, match=r"a\.csv is not utf-16: .*truncated data"):
        list(FileSource(path).read())
    path.write_bytes("x,y\n1,2\n".encode("utf-16"))
    with pytest.raises(ValueError, match=r"is in utf-16, of which a file that grows cannot be followed"):
        list(FileSource(path, follow=True, idle_timeout=0).read())


def test_a_followed_file_of_one_byte_a_letter_is_read_as_it_grows(tmp_path):
    path = tmp_path / "a.csv"
    data = encoded(ROWS, encoding="latin-1", delimiter=";", decimal=",")
    path.write_bytes(data[:300])
    batches = FileSource(path, follow=True, poll=0.001, idle_timeout=0.1).read(n_rows=1000)
    first = next(batches)
    path.write_bytes(data)
    assert rows_of([first, *batches]) == ROWS
    assert 0 < first.table.num_rows < 60


def test_json_lines_may_be_in_other_encodings_if_that_is_said(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS).encode("latin-1"))
    first, *rest = FileSource(path, encoding="latin-1").read(n_rows=25)
    assert rows_of([first, *rest]) == ROWS
    assert rows_of(FileSource(path).read(stored(first.position))) == ROWS[25:]


def test_a_directory_is_all_its_files_of_one_format(tmp_path):
    folder = tmp_path / "days"
    (folder / "within").mkdir(parents=True)
    for name in ("b.csv", "a.csv", ".c.csv", "_d.csv", "within/e.csv", "notes.txt"):
        (folder / name).write_text(f"x,name\n1,{name}\n2,{name}\n")
    batches = list(FileSource(folder).read(n_rows=3))
    assert [row["name"] for row in rows_of(batches)] == ["a.csv", "a.csv", "b.csv", "b.csv"]
    (folder / "a.csv").unlink()  # which was read
    (folder / "c.csv").write_text("x,name\n5,c.csv\n")
    rest = rows_of(FileSource(folder).read(stored(batches[0].position)))
    assert [row["name"] for row in rest] == ["b.csv", "c.csv"]
    (folder / "d.jsonl").write_text('{"x": 1, "name": "d"}\n')
    assert len(rows_of(FileSource(folder, format="csv").read())) == 3
