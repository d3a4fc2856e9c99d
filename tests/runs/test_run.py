"""A run: every row once, bad ones aside, and resumed the same as never stopped."""

import json
import os
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prediction_parts import read_parts

from streamboost import SGBClassifier, SGBRegressor
from streamboost.losses import Quantile
from streamboost.persistence.checkpoints import read_latest
from streamboost.persistence.object_graph import same_state
from streamboost.runs.prediction_files import PredictionParts
from streamboost.runs.quarantine import Quarantine, TooManyBadRows
from streamboost.runs.run import Options, Run
from streamboost.sources import MemorySource, Source, open_source
from streamboost.stacks import LinearStack, TwoLayerStack

N_ROWS = 700
SMALL = {"n_estimators": 5, "max_depth": 3, "memory": (64, 256), "random_state": 3, "new_columns": "grow"}


def rows(n=N_ROWS, seed=0, kind="regression"):
    rng = np.random.default_rng(seed)
    x, place = rng.normal(size=n), rng.choice(["a", "b", "c"], n)
    y = x + (place == "a") + 0.1 * rng.normal(size=n)
    target = y if kind == "regression" else np.where(y > 1, "high", np.where(y > 0, "middle", "low"))
    return pa.table(
        {"x": x, "place": place, "z": np.where(rng.uniform(size=n) < 0.1, np.nan, rng.normal(size=n)), "y": target}
    )


def options(**changes):
    return Options(**{"target": "y", "task": "regression", "chunk": 50, "every": 100, "checkpoint_rows": 100} | changes)


def whole(directory, source, model, chosen):
    with Run(source, model, chosen, directory) as run:
        return list(run.reports()), run


MODELS = {
    "trees": (lambda: SGBRegressor(**SMALL), "regression"),
    "one memory": (lambda: SGBRegressor(**SMALL | {"memory": 128, "readout": "last"}), "regression"),
    "quantile, residual projection": (lambda: SGBRegressor(Quantile(0.8), **SMALL), "regression"),
    "absolute": (lambda: SGBRegressor("absolute_error", **SMALL), "regression"),
    "linear": (lambda: SGBRegressor(learner=LinearStack(4), random_state=0), "regression"),
    "networks": (lambda: SGBRegressor(learner=TwoLayerStack(3, 4), update_mode=10, random_state=0), "regression"),
    "averaged": (lambda: SGBRegressor(learner="mlp", iterate="polynomial", random_state=0), "regression"),
    "softmax": (lambda: SGBClassifier(**SMALL), "classification"),
    "hinge": (lambda: SGBClassifier("hinge", **SMALL), "two classes"),
}  # fmt: skip


def table_for(task):
    if task != "two classes":
        return rows(kind=task)
    table = rows()
    return table.set_column(3, "y", pa.array((table["y"].to_numpy() > 0).astype(int)))


CASES = [(name, "parquet") for name in MODELS] + [("trees", "csv"), ("softmax", "csv")]


@pytest.mark.parametrize(("name", "ending"), CASES)
def test_a_run_stopped_at_every_report_and_resumed_is_the_same_as_one_that_never_stopped(name, ending, tmp_path):
    make, kind = MODELS[name]
    task = "regression" if kind == "regression" else "classification"
    file = tmp_path / "rows.parquet"
    pq.write_table(table_for(kind), file)
    straight = options(task=task, predictions=tmp_path / f"straight.{ending}")
    whole(tmp_path / "straight", open_source(file), make(), straight)

    stopped = options(task=task, predictions=tmp_path / f"stopped.{ending}")
    for _ in range(20):
        with Run(open_source(file), make(), stopped, tmp_path / "stopped", resume=True) as run:
            for _ in run.reports():
                run.stop()
    one, other = read_latest(tmp_path / "straight"), read_latest(tmp_path / "stopped")
    assert one.rows == other.rows == N_ROWS
    assert same_state(one.model, other.model)
    assert [metric.value for metric in one.state["book"].running] == [m.value for m in other.state["book"].running]
    assert read_parts(tmp_path / f"straight.{ending}") == read_parts(tmp_path / f"stopped.{ending}")


def test_predictions_are_those_of_the_bare_model_one_a_row(tmp_path):
    table = rows()
    whole(tmp_path / "run", MemorySource(table), SGBRegressor(**SMALL), options(predictions=tmp_path / "said.parquet"))
    bare = SGBRegressor(**SMALL)
    before = bare.learn(table.drop_columns(["y"]), table["y"].to_numpy())
    said = read_parts(tmp_path / "said.parquet")
    assert said["row"].to_pylist() == list(range(N_ROWS))
    assert said["prediction"].to_pylist() == before.tolist()
    assert said["target"].to_pylist() == table["y"].to_pylist()
    assert same_state(read_latest(tmp_path / "run").model, bare)


def test_probabilities_of_the_predicted_class_are_written(tmp_path):
    table = rows(kind="classification")
    chosen = options(task="classification", predictions=tmp_path / "said.csv")
    whole(tmp_path / "run", MemorySource(table), SGBClassifier(**SMALL), chosen)
    said = read_parts(tmp_path / "said.csv").to_pylist()
    assert said[0]["prediction"] in (None, "")
    assert {row["prediction"] for row in said[10:]} == {"low", "middle", "high"}
    assert all(1 / 3 <= row["probability"] <= 1 for row in said[10:])


class FailingSource(Source):
    """Breaks after a number of batches; keeps what was acknowledged."""

    def __init__(self, table, good):
        self.inner, self.good, self.acknowledged = MemorySource(table), good, []

    def read(self, position=None, n_rows=1000):
        for number, batch in enumerate(self.inner.read(position, n_rows)):
            if number == self.good:
                raise ConnectionError("the broker went away")
            yield batch

    def acknowledge(self, position):
        self.acknowledged.append(position)


def test_what_was_learned_before_the_source_broke_is_kept_and_acknowledged(tmp_path):
    source = FailingSource(rows(), 5)
    with Run(source, SGBRegressor(**SMALL), options(), tmp_path) as run, pytest.raises(ConnectionError):
        list(run.reports())
    assert source.acknowledged[-1] == 250
    assert read_latest(tmp_path).rows == 250


def test_a_source_hears_of_a_position_only_when_its_checkpoint_is_durable(tmp_path, monkeypatch):
    source, seen = FailingSource(rows(), 99), []
    source.acknowledge = lambda position: seen.append((position, read_latest(tmp_path).position))
    whole(tmp_path, source, SGBRegressor(**SMALL), options())
    assert len(seen) > 5
    assert all(said == kept for said, kept in seen)
    assert all(said is not None for said, _ in seen)  # the beginning is no place before which to forget


class Waiting(FailingSource):
    """Waits for a broker until it is told to stop."""

    stop = None

    def acknowledge(self, position):
        self.acknowledged.append(self.stop())


def test_a_source_hears_that_its_run_is_to_end_and_is_then_free_for_another(tmp_path):
    source = Waiting(rows(), 99)
    for n in (1, 2):
        with Run(source, SGBRegressor(**SMALL), options(), tmp_path, resume=True) as run:
            for report in run.reports():
                assert not any(source.acknowledged)
                assert report.rows == n * 100
                run.stop()
        assert source.acknowledged[-1] is True
        assert source.stop is None
        source.acknowledged.clear()


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), OSError(5, "Input/output error")])
def test_a_checkpoint_that_fails_leaves_the_last_good_one_and_the_run_says_so(error, tmp_path, monkeypatch, caplog):
    real, calls = os.fsync, []

    def fsync(descriptor):
        calls.append(descriptor)
        if len(calls) > 8:
            raise error
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with Run(MemorySource(rows()), SGBRegressor(**SMALL), options(), tmp_path) as run:
        assert list(run.reports())[-1].rows == N_ROWS  # it went on
        assert "no checkpoint could be written" in run.checkpoint_error
    monkeypatch.undo()
    assert "still good" in caplog.text
    kept = read_latest(tmp_path)
    assert 0 < kept.rows < N_ROWS
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".tmp")]
    with Run(MemorySource(rows()), None, options(), tmp_path, resume=True) as run:
        list(run.reports())
    assert read_latest(tmp_path).rows == N_ROWS


def no_room(*_, **__):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("kind", [PredictionParts, Quarantine])
def test_an_output_for_which_there_is_no_room_is_named_and_nothing_is_lost(kind, tmp_path, monkeypatch):
    table, bad = with_bad_rows(tmp_path)
    chosen = options(predictions=tmp_path / "said.csv")
    file = "said.csv" if kind is PredictionParts else "quarantine.jsonl"
    for kept, way_out in ((None, "and begin anew"), (tmp_path / "m", "and resume: no row is lost")):
        if kept is None and kind is Quarantine:
            continue
        with monkeypatch.context() as full:
            full.setattr(kind, "write" if kept is None else "add", no_room)
            with (
                Run(MemorySource(table), SGBRegressor(**SMALL), chosen, kept) as run,
                pytest.raises(
                    OSError, match=rf"{file}' could not be written \(No space left .*\)\. Make room.*{way_out}"
                ),
            ):
                list(run.reports())
    with Run(MemorySource(table), SGBRegressor(**SMALL), chosen, tmp_path / "m", resume=True) as run:
        list(run.reports())
    assert read_parts(tmp_path / "said.csv")["row"].to_pylist() == [k for k in range(300) if k not in bad]
    assert len((tmp_path / "m" / "quarantine.jsonl").read_text().splitlines()) == len(bad)


def test_a_part_that_cannot_be_written_is_written_with_the_next_checkpoint(tmp_path, monkeypatch):
    chosen, write, calls = options(predictions=tmp_path / "said"), PredictionParts.write, []

    def fail_twice(parts):
        calls.append(len(calls))
        return no_room() if calls[-1] in (2, 3) else write(parts)

    monkeypatch.setattr(PredictionParts, "write", fail_twice)
    _, run = whole(tmp_path / "m", MemorySource(rows()), SGBRegressor(**SMALL), chosen)
    assert run.checkpoint_error is None
    assert read_parts(tmp_path / "said")["row"].to_pylist() == list(range(N_ROWS))
    names = sorted(int(path.name[5:17]) for path in (tmp_path / "said").iterdir())
    assert names == [0, 100, 400, 500, 600]


# Bad rows.


def with_bad_rows(tmp_path):
    table = rows(300).to_pylist()
    table[10]["y"] = None
    table[20]["y"] = float("inf")
    table[130]["x"] = float("-inf")
    table[200]["y"] = 1e30
    return pa.Table.from_pylist(table), {10, 20, 130, 200}


def test_bad_rows_go_to_quarantine_with_reason_and_position_and_the_model_never_sees_them(tmp_path):
    table, bad = with_bad_rows(tmp_path)
    chosen = options(predictions=tmp_path / "said.parquet")
    _, run = whole(tmp_path / "run", MemorySource(table), SGBRegressor(**SMALL), chosen)
    lines = [json.loads(line) for line in (tmp_path / "run" / "quarantine.jsonl").read_text().splitlines()]
    assert {line["row"] for line in lines} == bad
    assert run.bad.n == 4
    assert "missing" in lines[0]["reason"]
    assert "absurd" in lines[-1]["reason"]
    assert lines[2]["values"]["place"] in "abc"
    assert (lines[1]["values"]["y"], lines[2]["values"]["x"]) == ("inf", "-inf")
    good = [row for row in range(300) if row not in bad]
    assert read_parts(tmp_path / "said.parquet")["row"].to_pylist() == good
    bare = SGBRegressor(**SMALL)
    clean = table.take(good)
    bare.learn(clean.drop_columns(["y"]), clean["y"].to_numpy())
    assert same_state(read_latest(tmp_path / "run").model, bare)


def test_a_row_the_model_itself_refuses_is_put_aside_and_its_neighbours_are_learned(tmp_path):
    first, second = rows(100), rows(50, seed=1)
    mixed = [dict(row, x=str(row["x"]) if k == 7 else row["x"]) for k, row in enumerate(second.to_pylist())]

    class Mixed(Source):
        def read(self, position=None, n_rows=1000):
            yield from MemorySource(first).read(None, 50)
            for k, row in enumerate(mixed):
                table = pa.Table.from_pylist([row])
                yield from (batch._replace(position=100 + k) for batch in MemorySource(table).read())

    _, run = whole(tmp_path, Mixed(), SGBRegressor(**SMALL), options())
    assert run.rows == 149
    [line] = [json.loads(line) for line in (tmp_path / "quarantine.jsonl").read_text().splitlines()]
    assert line["row"] == 107
    assert "held numbers so far" in line["reason"]


def test_strict_ends_at_the_first_bad_row_with_nothing_of_its_chunk_learned(tmp_path):
    table, _ = with_bad_rows(tmp_path)
    with (
        Run(MemorySource(table), SGBRegressor(**SMALL), options(strict=True, chunk=5), tmp_path) as run,
        pytest.raises(ValueError, match=r"row 10: the target 'y' is missing"),
    ):
        list(run.reports())
    assert read_latest(tmp_path).rows == 10


def test_max_bad_ends_the_run_between_two_chunks_and_resuming_goes_on(tmp_path):
    table, bad = with_bad_rows(tmp_path)
    with Run(MemorySource(table), SGBRegressor(**SMALL), options(max_bad=1), tmp_path) as run:
        with pytest.raises(TooManyBadRows, match=r"2 bad rows are more than max_bad=1"):
            list(run.reports())
        assert run.position == 50
    with Run(MemorySource(table), None, options(max_bad=5), tmp_path, resume=True) as run:
        list(run.reports())
    lines = [json.loads(line)["row"] for line in (tmp_path / "quarantine.jsonl").read_text().splitlines()]
    assert lines == sorted(bad)
    assert read_latest(tmp_path).state["n_bad"] == 4


def test_rows_a_file_cannot_give_are_in_quarantine_once_however_often_the_run_is_resumed(tmp_path):
    lines = ["x,y"] + [f"{k},{k % 7}" for k in range(400)]
    broken = random.Random(0).sample(range(1, 401), 25)
    for place in broken:
        lines[place] += ",too,many"
    file = tmp_path / "rows.csv"
    file.write_text("\n".join(lines) + "\n")
    for _ in range(30):
        with Run(open_source(file), SGBRegressor(**SMALL), options(chunk=7), tmp_path / "run", resume=True) as run:
            for number, _ in enumerate(iter(run.reports())):
                if number == 0:
                    run.stop()
    found = [json.loads(line)["text"] for line in (tmp_path / "run" / "quarantine.jsonl").read_text().splitlines()]
    assert sorted(found) == sorted(lines[place] + "\n" for place in broken)
    assert read_latest(tmp_path / "run").rows == 375


# What is refused.


def test_bad_rows_of_a_source_that_two_runs_read_go_to_the_quarantine_of_each(tmp_path):
    (tmp_path / "rows.csv").write_text(
        "x,y\n" + "".join(f"{k}\n" if k % 50 == 25 else f"{k},{k}\n" for k in range(200))
    )
    source = open_source(tmp_path / "rows.csv")
    with Run(source, SGBRegressor(**SMALL), options(), tmp_path / "m") as run:
        for _ in run.reports():
            run.stop()
        assert run.bad.n == 2
    assert source.on_bad == "raise"
    with Run(source, None, options(), tmp_path / "m", resume=True) as run:
        list(run.reports())
        assert (run.rows, run.bad.n) == (196, 4)
    assert len((tmp_path / "m" / "quarantine.jsonl").read_text().splitlines()) == 4


def test_a_directory_with_a_model_is_not_overwritten(tmp_path):
    whole(tmp_path, MemorySource(rows(100)), SGBRegressor(**SMALL), options())
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    with pytest.raises(FileExistsError, match=r"holds a model of 100 rows already. Add --resume"):
        Run(MemorySource(rows(100)), SGBRegressor(**SMALL), options(), tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def test_a_run_is_not_resumed_for_another_target(tmp_path):
    whole(tmp_path, MemorySource(rows(100)), SGBRegressor(**SMALL), options())
    with pytest.raises(ValueError, match=r"target is 'x', but the model in .* was made for 'y'"):
        Run(MemorySource(rows(100)), None, options(target="x"), tmp_path, resume=True)
    Run(MemorySource(rows(100)), None, options(), tmp_path, resume=True).close()  # and the lock was given back


def test_predictions_that_are_there_are_not_overwritten(tmp_path):
    (tmp_path / "said").mkdir()
    (tmp_path / "said" / "mine.txt").write_text("something of mine\n")
    with (
        Run(MemorySource(rows(100)), SGBRegressor(**SMALL), options(predictions=tmp_path / "said")) as run,
        pytest.raises(FileExistsError, match=r"is there already"),
    ):
        list(run.reports())
    assert [path.name for path in (tmp_path / "said").iterdir()] == ["mine.txt"]
    (tmp_path / "mine").write_text("a file")
    with pytest.raises(NotADirectoryError, match="which is a file, expected a new directory"):
        Run(MemorySource(rows(100)), SGBRegressor(**SMALL), options(predictions=tmp_path / "mine"))


def test_parts_of_another_run_are_not_removed_by_one_that_has_written_none(tmp_path):
    for name in ("mine", "other"):
        (tmp_path / name).mkdir()
    other, mine = options(predictions=tmp_path / "other" / "said"), options(predictions=tmp_path / "mine" / "said")
    whole(tmp_path / "other" / "m", MemorySource(rows(100)), SGBRegressor(**SMALL), other)
    bad = Run(MemorySource(rows()), SGBRegressor(n_estimators=-3), mine, tmp_path / "mine" / "m")
    with bad, pytest.raises(ValueError, match="is -3"):
        list(bad.reports())
    again = Run(MemorySource(rows()), SGBRegressor(**SMALL), other, tmp_path / "mine" / "m", resume=True)
    with again, pytest.raises(FileExistsError, match="is there already"):
        list(again.reports())
    assert len(read_parts(tmp_path / "other" / "said")) == 100


def test_a_missing_target_column_names_those_there_are(tmp_path):
    with (
        Run(MemorySource(rows(10)), SGBRegressor(**SMALL), options(target="price"), tmp_path) as run,
        pytest.raises(ValueError, match=r"no target column 'price', expected one of .*'place'"),
    ):
        list(run.reports())
    assert not list(Path(tmp_path).glob("checkpoint-*"))


# Ended in the middle of a chunk, or before the first.


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("at", [150, 350, 600])
def test_a_run_interrupted_within_a_chunk_goes_on_from_the_checkpoint_before(at, ending, tmp_path, monkeypatch):
    file = tmp_path / "rows.parquet"
    pq.write_table(rows(), file)
    straight = options(predictions=tmp_path / f"straight.{ending}")
    whole(tmp_path / "straight", open_source(file), SGBRegressor(**SMALL), straight)
    chosen, learn = options(predictions=tmp_path / f"broken.{ending}"), SGBRegressor.learn

    with Run(open_source(file), SGBRegressor(**SMALL), chosen, tmp_path / "broken") as run:

        def learn_half(model, X, y, sample_weight=None):
            if run.rows != at:
                return learn(model, X, y, sample_weight)
            learn(model, X.slice(0, 20), y[:20])
            raise KeyboardInterrupt  # somebody has pressed Ctrl-C twice

        monkeypatch.setattr(SGBRegressor, "learn", learn_half)
        with pytest.raises(KeyboardInterrupt):
            list(run.reports())
        monkeypatch.undo()
    found = read_latest(tmp_path / "broken")
    assert found.rows == found.state["rows_read"] == at // 100 * 100
    plain, table = SGBRegressor(**SMALL), rows().slice(0, found.rows)
    plain.learn(table.drop_columns(["y"]), table["y"].to_numpy())
    assert same_state(found.model, plain)
    with Run(open_source(file), None, chosen, tmp_path / "broken", resume=True) as run:
        list(run.reports())
    assert same_state(read_latest(tmp_path / "straight").model, read_latest(tmp_path / "broken").model)
    assert read_parts(tmp_path / f"straight.{ending}") == read_parts(tmp_path / f"broken.{ending}")


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_run_refused_at_its_start_is_not_in_the_way_of_the_next(resume, ending, tmp_path):
    chosen = options(predictions=tmp_path / f"said.{ending}")
    bad = Run(MemorySource(rows()), SGBRegressor(n_estimators=-3), chosen, tmp_path / "m")
    with bad, pytest.raises(ValueError, match="is -3, expected a whole number"):
        list(bad.reports())
    assert not list((tmp_path / f"said.{ending}").iterdir())
    with Run(MemorySource(rows()), SGBRegressor(**SMALL), chosen, tmp_path / "m", resume=resume) as run:
        list(run.reports())
    assert read_latest(tmp_path / "m").rows == N_ROWS
    bare = SGBRegressor(**SMALL)
    bare.learn(rows().drop_columns(["y"]), rows()["y"].to_numpy())
    assert same_state(read_latest(tmp_path / "m").model, bare)


def test_a_row_of_the_first_chunk_that_the_model_refuses_is_put_aside(tmp_path, monkeypatch):
    learn = SGBRegressor.learn

    def learn_places(model, X, y, sample_weight=None):
        if None in X["place"].to_pylist():
            raise ValueError(f"row {X['place'].to_pylist().index(None)} has no place.")
        return learn(model, X, y, sample_weight)

    monkeypatch.setattr(SGBRegressor, "learn", learn_places)
    table = rows(120)
    places = table["place"].to_pylist()
    places[7] = places[60] = None
    table = table.set_column(1, "place", pa.array(places))
    with Run(MemorySource(table), SGBRegressor(**SMALL), options(), tmp_path) as run:
        list(run.reports())
        assert (run.rows, run.bad.n) == (118, 2)
    lines = [json.loads(line) for line in (tmp_path / "quarantine.jsonl").read_text().splitlines()]
    assert [line["row"] for line in lines] == [7, 60]
    assert [line["reason"] for line in lines] == ["row 7 has no place.", "row 60 has no place."]
    assert lines[1]["values"]["y"] == table["y"][60].as_py()


def test_thousands_of_bad_rows_are_counted_once_however_often_the_run_is_resumed(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("x,y\n" + "".join(f"{k},{k}\n" for k in range(100)) + "1,2,3\n" * 2500)
    for _ in range(3):
        with Run(open_source(file), SGBRegressor(**SMALL), options(), tmp_path / "m", resume=True) as run:
            list(run.reports())
            assert (run.rows, run.bad.n) == (100, 2500)
    assert len((tmp_path / "m" / "quarantine.jsonl").read_text().splitlines()) == 2500


def test_predictions_go_on_in_the_same_directory_or_not_at_all(tmp_path):
    source = MemorySource(rows())

    def go(predictions, n_chunks, resume=True):
        with Run(source, SGBRegressor(**SMALL), options(predictions=predictions), tmp_path / "m", resume=resume) as run:
            for number, _ in enumerate(run.reports()):
                if number + 1 == n_chunks:
                    run.stop()

    go(tmp_path / "said.csv", 2, resume=False)
    with pytest.raises(ValueError, match=r"a directory called 'said.csv' so far"):
        go(tmp_path / "other.csv", 1)
    assert not (tmp_path / "other.csv").exists()
    go(None, 1)  # no more of them
    with pytest.raises(FileExistsError, match="is there already"):
        go(tmp_path / "said.csv", 1)
    go(tmp_path / "later.csv", 99)
    later = read_parts(tmp_path / "later.csv")["row"].to_pylist()
    assert later == list(range(later[0], N_ROWS))
    assert later[0] > 200


def test_a_frozen_model_is_refused_before_anything_is_read(tmp_path):
    table = rows()
    frozen = SGBRegressor(**SMALL).fit(table.drop_columns(["y"]), table["y"].to_numpy()).freeze()
    with pytest.raises(ValueError, match=r"model is frozen, expected one that learns\. Pass the one it was made of"):
        Run(MemorySource(table), frozen, options(), tmp_path / "run")
    assert not (tmp_path / "run").exists()
