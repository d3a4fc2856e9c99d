"""Table 1 and Figure 2 in small: the same code, fewer rows."""

import numpy as np
import pytest

from experiments import figure_2, nets, table_1
from experiments.records import Progress
from streamboost.big_datasets import MissingData
from streamboost.losses import Logistic, Softmax, Squared

SMALL = {"train": 1500, "test": 400, "shown": 6000, "tried": 0.5, "passes": 2}


@pytest.fixture(scope="module")
def abalone():
    return nets.train(nets.SETS["ABALONE"], 0, SMALL)


def test_errors_are_half_the_mean_square_and_the_share_of_wrong_classes():
    assert nets.error(Squared(), np.array([[1.0], [4.0]]), np.array([1.0, 2.0])) == 1.0
    assert nets.error(Logistic(), np.array([[2.0], [-1.0]]), np.array([1.0, 1.0])) == 0.5
    assert nets.error(Softmax(n_classes=3), np.array([[0.0, 2.0, 1.0], [3.0, 0.0, 0.0]]), np.array([1.0, 2.0])) == 0.5


def test_the_first_partial_sum_is_far_from_the_target_as_the_printed_base_is(abalone):
    # y¹ = −η h₁ with η = ⅔ leaves a third of a target whose mean is 10: half of (10 / 3)² is 5.6 and more
    assert 5.0 < abalone["base"] < 14.0
    assert abalone["runs"]["SGB"]["last"] < 0.5 * abalone["base"]


def test_the_choice_is_the_best_on_rows_kept_from_training(abalone):
    tried = {(one["eta"], one["rate"]): one["validation"] for one in abalone["tried"]}
    assert len(tried) == len(nets.SETS["ABALONE"].choices)
    assert (abalone["eta"], abalone["rate"]) == min(tried, key=tried.get)


def test_no_test_row_is_seen_before_the_end():
    one = nets.SETS["ABALONE"]
    training, test = one.split(3)
    assert len(training.X) + len(test.X) == 4177
    seen = {row.tobytes() for row in np.column_stack(training)}
    assert not any(row.tobytes() in seen for row in np.column_stack(test))
    mixed = nets.Rows(test.X, np.random.default_rng(0).permutation(test.y))
    runs = [nets.choose(one, training, 3, 2000, 0.5)[0] for _ in (test, mixed)]
    assert runs[0] == runs[1]


def test_the_curves_tell_the_cost_of_the_paper(abalone):
    costs = [units for units, _ in abalone["runs"]["SGB"]["curve"]]
    assert costs == sorted(costs)
    assert costs[-1] == 3 * 8 * 6000  # 3 T N
    batch = [units for units, _ in abalone["runs"]["GB"]["curve"]]
    assert batch[-1] == sum((i + 2) * 2 * 1500 for i in range(1, 9))  # i predictions and an update, two passes


def test_a_set_that_is_not_there_is_named_and_nothing_stands_in_for_it(monkeypatch):
    monkeypatch.delenv("STREAMBOOST_DATA", raising=False)
    monkeypatch.setattr(table_1, "QUICK_SETS", ("YEAR",))
    found = table_1.run("quick", (0,), Progress())
    assert found["sets"] == {}
    assert [one["what"] for one in found["not_run"]] == ["YEAR"]
    assert "YearPredictionMSD.txt" in found["not_run"][0]["why"]
    with pytest.raises(MissingData):
        nets.SETS["MNIST"].split(0)


def test_crossings_compare_the_first_cost_at_which_streaming_is_as_good():
    batch = [[10, 3.0], [100, 2.0]]
    assert figure_2.crossing([[10, 4.0], [40, 2.0], [80, 1.0]], batch) == {"batch": 100, "streaming": 40}
    assert figure_2.crossing([[10, 4.0]], batch) == {"batch": 100, "streaming": None}


def test_every_line_of_the_table_comes_from_the_record(abalone):
    record = {"sets": {"ABALONE": _one(abalone)}, "not_run": []}
    rows = table_1.compare(record)
    assert [row.what.split(" (")[0] for row in rows] == [
        "ABALONE, Base",
        "ABALONE, GB",
        "ABALONE, SGB",
        "ABALONE, SGB, last iterate",
    ]
    assert [row.paper for row in rows] == ["8.2848", "2.1411", "2.1532", "–"]
    assert rows[2].ours.startswith(f"{abalone['runs']['SGB']['last']:.4g}")
    ratio = abalone["runs"]["SGB"]["last"] / abalone["runs"]["GB"]["last"]
    assert table_1.ratios(record) == {"ABALONE": pytest.approx(ratio, rel=1e-4)}


def _one(run):
    summary = {kind: {"mean": run["runs"][kind]["last"], "spread": 0.0} for kind in run["runs"]}
    return {
        "measure": nets.SQUARE,
        "paper": nets.SETS["ABALONE"].paper,
        "base": {"mean": run["base"], "spread": 0.0},
        "last": summary,
        "runs": [run],
    }


def test_marks_stand_where_batch_boosting_adds_a_learner():
    curve = [[10.0, 5.0], [20.0, 4.0], [40.0, 2.0]]
    assert figure_2.additions(curve, [0, 20, 39, 50]) == [(10.0, 5.0), (20, 4.0), (39, 4.0), (50, 2.0)]
