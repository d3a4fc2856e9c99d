"""Commands with a model at hand read rows as the model knows them; the same moments mean the same in every format."""

import csv
import io
import json
from datetime import datetime, timedelta

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from streamboost.cli import main
from streamboost.persistence.checkpoints import read_latest
from streamboost.persistence.object_graph import same_state

SMALL = ["--option", "n_estimators=4", "--option", "memory=64", "-q", "--json"]


@pytest.fixture
def stream():
    rng = np.random.default_rng(0)
    at = [datetime(2024, 5, 1) + timedelta(minutes=int(m)) for m in np.sort(rng.integers(0, 60 * 1440, 400))]
    ids = [str(i) for i in rng.integers(10, 20, 400)]
    y = [10.0 * (moment.hour > 11) + int(i) for moment, i in zip(at, ids, strict=True)]
    return at, ids, y


def write(file, at, ids, y=None, form=lambda moment: moment.isoformat() + "Z"):
    """A file of rows in the format that its name tells."""
    texts, extra = [form(moment) for moment in at], {} if y is None else {"y": y}
    if file.suffix == ".csv":
        with open(file, "w", newline="") as out:
            csv.writer(out, lineterminator="\n").writerows(
                [["at", "id", *extra], *zip(texts, ids, *extra.values(), strict=True)]
            )
    elif file.suffix == ".jsonl":
        rows = zip(texts, ids, *extra.values(), strict=True)
        file.write_text("".join(json.dumps(dict(zip(["at", "id", *extra], row, strict=True))) + "\n" for row in rows))
    else:
        table = pa.table({"at": pa.array(at, pa.timestamp("us", "Europe/Paris")), "id": ids, **extra})
        (pq.write_table if file.suffix == ".parquet" else pyarrow.feather.write_feather)(table, file)
    return str(file)


def command(capsys, *words):
    code = main([str(word) for word in words])
    out = capsys.readouterr().out
    assert code == 0, out
    return out


def predictions(capsys, file, model, *more):
    return [
        row["prediction"]
        for row in csv.DictReader(io.StringIO(command(capsys, "predict", file, "--model", model, *more)))
    ]


def test_the_same_rows_are_predicted_the_same_from_every_format(stream, tmp_path, capsys):
    at, ids, y = stream
    train = write(tmp_path / "train.csv", at, ids, y)
    command(capsys, "run", train, "--target", "y", "--type", "id=string", "--model", tmp_path / "m", *SMALL)
    command(capsys, "predict", train, "--model", tmp_path / "m", "--out", tmp_path / "m.csv", "--keep", "id", "--json")
    numbers = [int(i) for i in ids]
    forms = {
        "zone": lambda moment: moment.isoformat() + "Z",
        "none": datetime.isoformat,
        "blank": lambda moment: f"{moment}.000",
        "offset": lambda moment: f"{moment - timedelta(hours=4)}-04:00",
    }
    files = [write(tmp_path / f"{name}.{kind}", at, ids if kind == "csv" else ids_, form=form)
             for name, form in forms.items() for kind in ("csv", "jsonl") for ids_ in (ids, numbers)]  # fmt: skip
    files += [write(tmp_path / f"{kind}.{kind}", at, numbers) for kind in ("parquet", "arrow")]
    files += [write(tmp_path / f"texts.{kind}", at, ids) for kind in ("parquet", "arrow")]
    found = {tuple(predictions(capsys, file, tmp_path / "m")) for file in files}
    assert len(found) == 1
    model = read_latest(tmp_path / "m").model
    frame = pd.DataFrame({"at": at, "id": ids})
    written = [{"at": moment.isoformat() + "Z", "id": i} for moment, i in zip(at, ids, strict=True)]
    for rows in (frame, frame.to_dict("records"), written, frame.assign(at=frame["at"].dt.tz_localize("UTC"))):
        assert tuple(map(float, *found)) == tuple(model.predict(rows).tolist())
        assert len(set(model.predict(rows).tolist())) > 20


def test_a_file_that_happens_to_hold_digits_is_compared_learned_and_resumed_as_text(stream, tmp_path, capsys):
    """The model has met text; the next file of the same column holds digits only, so alone it would be numbers."""
    at, ids, y = stream
    first = write(tmp_path / "a.csv", at, [f"n{i}" if k % 3 else i for k, i in enumerate(ids)], y)
    rest = write(tmp_path / "b.csv", at, ids, y)
    command(capsys, "run", first, "--target", "y", "--model", tmp_path / "m", *SMALL)
    both = json.loads(
        command(capsys, "compare", tmp_path / "m", tmp_path / "m", "--on", rest, "--target", "y", "--json")
    )
    assert both["rows"] == 400
    words = [rest, "--model", tmp_path / "m", "--target", "y", "--out", tmp_path / "t.html", "--json"]
    assert json.loads(command(capsys, "theory", *words))["rows"] == 400
    start = ["run", rest, "--target", "y", "--start-from", tmp_path / "m", "-q", "--json"]
    whole = json.loads(command(capsys, *start, "--model", tmp_path / "whole"))
    command(capsys, *start, "--model", tmp_path / "parts", "--max-rows", 150)
    parts = json.loads(command(capsys, *start, "--model", tmp_path / "parts", "--resume"))
    assert (parts["rows"], parts["bad_rows"]) == (whole["rows"], whole["bad_rows"]) == (400, 0)
    assert same_state(read_latest(tmp_path / "parts").model, read_latest(tmp_path / "whole").model)


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_run_that_began_with_a_models_kinds_is_resumed_with_them(stream, kind, tmp_path, capsys):
    at, ids, y = stream
    command(capsys, "run", write(tmp_path / "a.csv", at, ids, y), "--target", "y", "--type", "id=string",
            "--model", tmp_path / "m", *SMALL)  # fmt: skip
    rest = write(tmp_path / f"b.{kind}", at, [int(i) for i in ids], y)
    start = ["run", rest, "--target", "y", "--start-from", tmp_path / "m", "-q", "--json"]
    whole = json.loads(command(capsys, *start, "--model", tmp_path / "whole"))
    command(capsys, *start, "--model", tmp_path / "parts", "--max-rows", 150)
    parts = json.loads(command(capsys, *start, "--model", tmp_path / "parts", "--resume"))
    assert (parts["rows"], parts["bad_rows"]) == (whole["rows"], whole["bad_rows"]) == (400, 0)
    assert same_state(read_latest(tmp_path / "parts").model, read_latest(tmp_path / "whole").model)


def test_a_model_that_goes_on_with_other_rows_reads_them_as_it_knows_them(stream, tmp_path, capsys):
    at, ids, y = stream
    first = write(tmp_path / "a.csv", at, [f"n{i}" if k % 3 else i for k, i in enumerate(ids)], y)
    command(capsys, "run", first, "--target", "y", "--model", tmp_path / "m", *SMALL)
    rest = ["run", write(tmp_path / "b.csv", at, ids, y), "--target", "y", "--model", tmp_path / "m", "-q", "--json"]
    command(capsys, *rest, "--continue", "--max-rows", 150)
    found = json.loads(command(capsys, *rest, "--resume"))
    assert (found["rows"], found["bad_rows"]) == (800, 0)


def test_classes_that_are_text_are_read_as_text(stream, tmp_path, capsys):
    at, ids, _ = stream
    first = write(tmp_path / "a.csv", at, ids, ["1" if k % 3 else "none" for k in range(400)])
    rest = write(tmp_path / "b.csv", at, ids, ["1"] * 400)
    command(capsys, "run", first, "--target", "y", "--model", tmp_path / "m", *SMALL)
    found = json.loads(command(capsys, "run", rest, "--target", "y", "--start-from", tmp_path / "m", "-q", "--json"))
    assert (found["rows"], found["bad_rows"]) == (400, 0)


def test_a_type_that_is_given_goes_before_what_the_model_knows(stream, tmp_path, capsys):
    at, ids, y = stream
    train = write(tmp_path / "a.csv", at, ids, y)
    command(capsys, "run", train, "--target", "y", "--type", "id=string", "--model", tmp_path / "m", *SMALL)
    assert main(["predict", train, "--model", str(tmp_path / "m"), "--type", "id=float64"]) == 1
    assert "a number, but it held text so far" in " ".join(capsys.readouterr().err.split())


def test_a_bad_date_names_its_line(stream, tmp_path, capsys):
    at, ids, y = stream
    command(capsys, "run", write(tmp_path / "a.csv", at, ids, y), "--target", "y", "--model", tmp_path / "m", *SMALL)
    (tmp_path / "b.csv").write_text("at,id\n2024-05-01,12\nsoon,13\n")
    assert main(["predict", str(tmp_path / "b.csv"), "--model", str(tmp_path / "m")]) == 1
    assert "b.csv, line 3: column 'at' holds 'soon'" in " ".join(capsys.readouterr().err.split())


@pytest.mark.filterwarnings("default")
def test_numbers_as_text_are_told_of_in_words_of_the_command_line_unless_that_was_asked_for(tmp_path, capsys):
    rows = pa.table({"id": [str(k) for k in range(200)], "qty": [f"{k}.5" for k in range(200)], "y": np.arange(200.0)})
    pq.write_table(rows, tmp_path / "rows.parquet")
    run = ["run", str(tmp_path / "rows.parquet"), "--target", "y", "--task", "regression", *SMALL]
    assert main(run) == 0
    told = capsys.readouterr().err
    assert told.startswith("streamboost: columns 'id', 'qty' hold numbers as text")
    assert "Convert to numbers first: --type id=float64. If these are codes" in told
    assert told.rstrip().endswith("says so: --type id=string.")
    assert main([*run, "--type", "id=string"]) == 0
    assert capsys.readouterr().err.startswith("streamboost: column 'qty' holds numbers as text")
    assert main([*run, "--type", "id=string", "--type=qty=float64"]) == 0
    assert capsys.readouterr().err == ""
    assert main([*run, "--type=id=string", "--type", "qty=string"]) == 0
    assert capsys.readouterr().err == ""
