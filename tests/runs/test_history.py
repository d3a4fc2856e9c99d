"""A history is fitted before the source is learned: as fit and learn do, whenever the run was stopped on its way."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from prediction_parts import read_parts

from streamboost import SGBClassifier, SGBRegressor
from streamboost.boosting import growth, memory_budget
from streamboost.kernels.progress import WorkMeter
from streamboost.persistence.checkpoints import read_latest
from streamboost.persistence.object_graph import same_state
from streamboost.runs import history, run
from streamboost.runs.history import NewestRows, Rows
from streamboost.runs.run import Interrupted, Options, Run
from streamboost.sources import MemorySource, Source, open_source

SMALL = {"n_estimators": 4, "max_depth": 3, "random_state": 0}
N = 1500


def rows(n=2200, seed=0):
    """What trees find in many rows only, with text, dates that begin late, and missing values."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 4))
    y = 5 * np.sin(9 * X[:, 0]) * np.sin(9 * X[:, 1]) + X[:, 2] + 0.3 * rng.normal(size=n)
    X[rng.uniform(size=X.shape) < 0.02] = np.nan
    days = np.datetime64("2024-01-01", "us") + rng.integers(0, 300, n).astype("timedelta64[D]")
    columns = {f"x{j}": X[:, j] for j in range(4)}
    columns["city"] = pa.array(np.array(["Bonn", "Graz", "Bern", None], dtype=object)[rng.integers(0, 4, n)])
    columns["day"] = pa.array(days, mask=np.arange(n) < 1100)
    return pa.table(columns), y


def targets(y, kind):
    if kind == "regression":
        return y
    edges = [0.0] if kind == "two classes" else [-1.0, 1.0]
    return np.array(["mid", "low", "high"])[np.digitize(y, edges)]


KINDS = ["regression", "two classes", "three classes"]


def make(kind, **more):
    return (SGBRegressor if kind == "regression" else SGBClassifier)(**SMALL, **more)


def options(kind, **more):
    return Options("y", "regression" if kind == "regression" else "classification", **more)


def parts(X, y, n=N):
    whole = X.append_column("y", pa.array(y))
    return MemorySource(whole.slice(0, n)), MemorySource(whole.slice(n))


@pytest.mark.parametrize("kind", KINDS)
def test_a_history_is_fitted_and_the_source_learned(kind, tmp_path):
    X, y = rows()
    y = targets(y, kind)
    before, live = parts(X, y)
    with Run(live, make(kind), options(kind, predictions=tmp_path / "said"), tmp_path / "m", history=before) as one:
        reports = list(one.reports())
    twin = make(kind)
    said = [twin.fit_learn(X.slice(0, N), y[:N]), *twin.learn(X.slice(N), y[N:])]
    assert same_state(one.model, twin)
    assert same_state(read_latest(tmp_path / "m").model, twin)
    assert [event.kind for report in reports for event in report.events if event.row == N] == ["history studied"]
    assert reports[-1].rows == one.rows == len(y)
    assert one.history_state == {"is_fitted": True, "rows": N, "n_dropped": 0, "position": N}
    kept = read_parts(tmp_path / "said")
    assert kept["row"].to_pylist() == list(range(len(y)))
    if kind == "regression":
        assert np.array_equal(kept["prediction"].to_numpy(), np.concatenate([said[0], said[1:]]))


def test_files_are_read_as_the_history_tells(tmp_path):
    table = pa.table({"zip": ["01067", "A1", "10115"] * 400, "x": np.arange(1200.0) % 7, "y": np.arange(1200.0) % 5})
    pa.csv.write_csv(table, tmp_path / "h.csv")
    later = pa.table({"zip": ["01067"] * 50, "x": np.arange(50.0), "y": np.arange(50.0) % 5})  # digits alone
    pa.csv.write_csv(later, tmp_path / "l.csv")

    def sources():
        return {"source": open_source(tmp_path / "l.csv"), "history": open_source(tmp_path / "h.csv")}

    with Run(**sources(), model=make("regression"), options=options("regression"), directory=tmp_path / "m") as one:
        list(one.reports())
    twin = make("regression").fit(table.drop_columns("y"), table["y"].to_numpy())
    twin.learn(later.drop_columns("y"), later["y"].to_numpy())
    assert same_state(one.model, twin)

    with Run(**sources(), model=make("regression"), options=options("regression"), directory=tmp_path / "k") as one:
        next(iter(one.reports()))  # stopped between the history and the first row after it
    with Run(**sources(), model=None, options=options("regression"), directory=tmp_path / "k", resume=True) as one:
        assert (one.rows, one.history) == (1200, None)
        list(one.reports())
    assert same_state(one.model, twin)


@pytest.mark.parametrize("tree", [1, 150])
def test_interrupted_in_the_sweep_nothing_is_kept_and_resumed_all_is_the_same(tree, tmp_path, monkeypatch):
    X, y = rows()
    saves = options("regression", predictions=tmp_path / "said")

    def interrupt(meter, done, total):
        if done == tree:
            one.stop()
            assert one.is_waiting
            raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(WorkMeter, "count", interrupt)
        before, live = parts(X, y)
        with Run(live, make("regression"), saves, tmp_path / "m", history=before) as one:
            assert list(one.reports()) == []
    kept = read_latest(tmp_path / "m")
    assert (kept.rows, kept.state["history"]) == (0, {"is_fitted": False})
    before, live = parts(X, y)
    with pytest.raises(ValueError, match=r"stopped while it learned its history.*Name it again \(HISTORY --then"):
        Run(live, make("regression"), saves, tmp_path / "m", resume=True)
    with Run(live, make("regression"), saves, tmp_path / "m", resume=True, history=before) as one:
        list(one.reports())
    twin = make("regression").fit(X.slice(0, N), y[:N])
    twin.learn(X.slice(N), y[N:])
    assert same_state(one.model, twin)
    assert read_parts(tmp_path / "said")["row"].to_pylist() == list(range(len(y)))


def test_stopped_while_it_is_read_a_history_is_begun_again(tmp_path):
    X, y = rows()
    before, live = parts(X, y)

    class Stopping(MemorySource):
        def read(self, position=None, n_rows=1000):
            for batch in super().read(position, n_rows):
                yield batch
                one.stop()

    with Run(live, make("regression"), options("regression"), tmp_path, history=Stopping(before.table)) as one:
        assert list(one.reports()) == []
    assert read_latest(tmp_path).rows == 0
    with Run(live, make("regression"), options("regression"), tmp_path, resume=True, history=before) as one:
        assert [report.rows for report in one.reports()] == [1000, N, 2000, 2200]


def test_bad_rows_of_a_history_are_put_aside(tmp_path):
    X, y = rows()
    y[::500] = np.nan
    x0 = X["x0"].to_numpy().copy()
    x0[7] = np.inf
    X = X.set_column(0, "x0", pa.array(x0))
    before, live = parts(X, y)
    with Run(live, make("regression"), options("regression"), tmp_path, history=before) as one:
        list(one.reports())
    good = np.isfinite(y) & ~np.isinf(x0)
    first = good & (np.arange(len(y)) < N)
    twin = make("regression").fit(X.filter(pa.array(first)), y[first])
    twin.learn(X.filter(pa.array(good & ~first)), y[good & ~first])
    assert same_state(one.model, twin)
    bad = [json.loads(line)["row"] for line in (tmp_path / "quarantine.jsonl").read_text().splitlines()]
    assert bad == [0, 7, 500, 1000, 1500, 2000]


def test_rows_that_the_model_refuses_are_put_aside_and_the_others_fitted(tmp_path):
    X, y = rows()
    labels = targets(y, "two classes").astype(object)
    labels[[1203, 1207]] = "third"
    before, live = parts(X, labels)
    model = make("classes", monotonic_cst={"x2": 1})  # for two classes only
    with Run(live, model, options("classes"), tmp_path, history=before) as one:
        list(one.reports())
    kept = labels[:N] != "third"
    twin = make("classes", monotonic_cst={"x2": 1}).fit(X.slice(0, N).filter(pa.array(kept)), labels[:N][kept])
    twin.learn(X.slice(N), labels[N:])
    assert same_state(one.model, twin)
    bad = [json.loads(line) for line in (tmp_path / "quarantine.jsonl").read_text().splitlines()]
    assert [(each["row"], each["values"]["y"]) for each in bad] == [(1203, "third"), (1207, "third")]
    assert "expected two classes" in bad[0]["reason"]
    strict = Run(live, make("classes", monotonic_cst={"x2": 1}), options("classes", strict=True), history=before)
    with strict, pytest.raises(ValueError, match="expected two classes"):
        list(strict.reports())


def test_of_a_long_history_the_newest_rows_are_fitted(tmp_path, monkeypatch):
    X, y = rows()
    monkeypatch.setattr(NewestRows.__init__, "__defaults__", (1200, history.MOST_MB))
    before, live = parts(X, y)
    with Run(live, make("regression"), options("regression"), history=before) as one:
        list(one.reports())
    twin = make("regression").fit(X.slice(N - 1200, 1200), y[N - 1200 : N])
    twin.learn(X.slice(N), y[N:])
    assert same_state(one.model, twin)
    assert (one.history_state["rows"], one.history_state["n_dropped"], one.rows_read) == (1200, 300, len(y))


@pytest.mark.parametrize(
    ("most_rows", "most_bytes", "kept"), [(10, 1e9, 10), (25, 1e9, 25), (100, 15 * 8, 15), (7, 15 * 8, 7)]
)
def test_the_newest_rows_that_there_is_room_for_are_held(most_rows, most_bytes, kept):
    held = NewestRows(most_rows, most_bytes / 1e6)
    for start in range(0, 60, 5):
        numbers = np.arange(start, start + 5)
        held.add(Rows(pa.table({"x": numbers}), numbers, numbers))
    assert held.rows().numbers.tolist() == held.rows().X["x"].to_pylist() == list(range(60 - kept, 60))
    assert (len(held), held.n_dropped) == (kept, 60 - kept)


def test_as_many_rows_are_held_as_growth_can():
    assert (history.MOST_ROWS, history.MOST_MB) == (growth.MOST_ROWS, memory_budget.ROOF)


def test_of_a_history_some_reports_come_but_all_events(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "HISTORY_REPORTS", 3)
    X, y = rows()
    before, live = parts(X, y)
    with Run(live, make("regression"), options("regression", every=100), history=before) as one:
        reports = list(one.reports())
    assert [report.rows for report in reports] == [500, 1000, 1200, 1500, *range(1600, 2201, 100)]  # 1200: a new column
    assert len([event for report in reports for event in report.events]) == len(one.model.events_)


class Endless(Source):
    def read(self, position=None, n_rows=1000):
        raise AssertionError


def test_what_cannot_be_is_refused(tmp_path):
    X, y = rows()
    before, live = parts(X, y)
    with pytest.raises(ValueError, match="history is a Endless that may have no end, expected one that ends"):
        Run(live, make("regression"), options("regression"), history=Endless())
    with pytest.raises(ValueError, match="model has learned rows already"):
        Run(live, make("regression").partial_fit(X, y), options("regression"), history=before)
    with pytest.raises(ValueError, match="a object cannot fit a history"):
        Run(live, object(), options("regression"), history=before)
    with Run(live, make("regression"), options("regression"), tmp_path / "m") as one:
        list(one.reports())
    with pytest.raises(ValueError, match=r"begun without a history, which comes first. Leave it out"):
        Run(live, None, options("regression"), tmp_path / "m", resume=True, history=before)
    none = MemorySource(before.table.slice(0, 0))
    with pytest.raises(ValueError, match=r"the history has no row to learn. Name one that has some"):
        list(Run(live, make("regression"), options("regression"), history=none).reports())
    bad = MemorySource(before.table.set_column(6, "y", pa.nulls(N, pa.float64())))
    with pytest.raises(ValueError, match="no row to learn: all 1,500 are bad, such as: the target 'y' is missing"):
        list(Run(live, make("regression"), options("regression"), history=bad).reports())
