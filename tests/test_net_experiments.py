"""Table 1 and Figure 2 in small: the same code, fewer rows."""

import json
from itertools import pairwise

import numpy as np
import pytest

from experiments import figure_2, nets, records, runner, square_error, table_1
from experiments.records import Progress, rounded
from streamboost.big_datasets import MissingData
from streamboost.losses import Logistic, Softmax, Squared

SMALL = {"train": 1500, "test": 400, "shown": 6000, "tried": 0.5, "passes": 2, "tried_passes": 1}


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


@pytest.mark.parametrize("kind", ["SGB", "GB"])
def test_the_choice_is_the_best_on_rows_kept_from_training(abalone, kind):
    chosen = abalone["chosen"][kind]
    tried = {(one["eta"], one["rate"]): one["validation"] for one in chosen["tried"]}
    assert set(tried) == set(nets.SETS["ABALONE"].choices)
    assert (chosen["eta"], chosen["rate"]) == min(tried, key=tried.get)


def test_streaming_and_batch_boosting_choose_each_for_itself(monkeypatch):
    one = nets.SETS["ABALONE"]
    by_streaming = {0.003: 3.0, 0.01: 2.0, 0.03: 1.0}
    by_batch = {0.003: 1.0, 0.01: 2.0, 0.03: 3.0}
    runs = []

    def streamed(one, n, choice, *given, **options):
        runs.append(("SGB", choice.rate))
        last, averaged = (nets.Run([(1, 1.0)], 9.0, value, [], []) for value in (by_streaming[choice.rate], 0.0))
        return last, averaged

    def batched(one, choice, *given, **options):
        runs.append(("GB", choice.rate))
        return nets.Run([(1, 1.0)], 9.0, by_batch[choice.rate], [], [])

    monkeypatch.setattr(nets, "stream", streamed)
    monkeypatch.setattr(nets, "batch", batched)
    found = nets.train(one, 0, SMALL)
    assert (found["chosen"]["SGB"]["rate"], found["chosen"]["GB"]["rate"]) == (0.03, 0.003)  # by the last iterate
    assert runs[-2:] == [("SGB", 0.03), ("GB", 0.003)]  # and so they were trained


def test_no_test_row_is_seen_before_the_end():
    one = nets.SETS["ABALONE"]
    training, test = one.split(3)
    assert len(training.X) + len(test.X) == 4177
    seen = {row.tobytes() for row in np.column_stack(training)}
    assert not any(row.tobytes() in seen for row in np.column_stack(test))
    mixed = nets.Rows(test.X, np.random.default_rng(0).permutation(test.y))
    asked = []
    nets.choose(one, training, 3, lambda choice, rest, kept: float(len(asked.append((rest, kept)) or asked)))
    for rest, kept in asked:
        both = {row.tobytes() for rows in (rest, kept) for row in np.column_stack(rows)}
        assert both <= seen
        assert len(rest.X) + len(kept.X) == len(training.X)
    small = {**SMALL, "shown": 2000}
    ours = nets.train(one, 3, small)["chosen"]
    blind = nets.Set(**{**vars(one), "split": lambda seed: (training, mixed)})
    assert nets.train(blind, 3, small)["chosen"] == ours


def test_the_curves_tell_the_cost_of_the_paper(abalone):
    costs = [units for units, _ in abalone["runs"]["SGB"]["curve"]]
    assert costs == sorted(costs)
    assert costs[-1] == 3 * 8 * 6000  # 3 T N
    batch = [units for units, _ in abalone["runs"]["GB"]["curve"]]
    assert batch[-1] == sum((i + 2) * 2 * 1500 for i in range(1, 9))  # i predictions and an update, two passes


def test_the_first_calls_are_small_and_whole_batches_and_all_rows_are_shown():
    for size in (16, 32):
        rows = list(nets.calls(3759, 30_000, size, 0))
        sizes = [len(call) for call in rows]
        assert sizes[:7] == [64, 128, 256, 512, 1024, 3759 - 1984, 3759]
        assert max(sizes) <= nets.CALL
        assert sum(sizes) == 30_000
        np.testing.assert_array_equal(np.sort(np.concatenate(rows)[:3759]), np.arange(3759))
    assert {len(call) % 32 for call in nets.calls(60_000, 60_000, 32, 0)} == {0}


def test_the_curves_begin_with_the_first_call(abalone):
    for kind in ("SGB", "SGB, averaged"):
        units = [cost for cost, _ in abalone["runs"][kind]["curve"]]
        assert units[:3] == [3 * 8 * 64, 3 * 8 * 192, 3 * 8 * 448]
    assert abalone["runs"]["SGB"]["curve"] != abalone["runs"]["SGB, averaged"]["curve"]


def test_the_rate_falls_linearly_from_the_whole_to_nearly_nothing(monkeypatch):
    told = []
    set_rate = nets.NeuralStack.set_rate
    monkeypatch.setattr(nets.NeuralStack, "set_rate", lambda stack, rate: told.append(rate) or set_rate(stack, rate))
    one = nets.SETS["ABALONE"]
    training, test = one.split(0)
    nets.stream(one, 2, nets.Choice(0.5, 0.02), training, test, 0, 20_000, marks=False)
    shown = np.cumsum([0, *(len(rows) for rows in nets.calls(len(training.X), 20_000, one.batch, 0))])
    np.testing.assert_allclose(told, 0.02 * (1 - shown[:-1] / 20_000))
    assert told[0] == 0.02
    assert all(0 < later < earlier for earlier, later in pairwise(told))


def test_a_falling_rate_brings_the_last_iterate_to_its_average(monkeypatch):
    one = nets.SETS["ABALONE"]
    training, test = one.split(0)

    def gap():
        last, averaged = nets.stream(one, 8, nets.Choice(2 / 3, 0.03), training, test, 0, 60_000, marks=False)
        return abs(last.last / averaged.last - 1)

    falling = gap()
    monkeypatch.setattr(nets.NeuralStack, "set_rate", lambda stack, rate: None)
    assert falling < 0.02
    assert falling < 0.5 * gap()


def test_a_network_frozen_before_it_converged_is_told(abalone):
    stages = abalone["runs"]["GB"]["stages"]
    assert len(stages) == 8
    assert {stage["passes"] for stage in stages} == {2}  # two passes are too few for two disappointments
    assert not any(stage["converged"] for stage in stages)
    told = table_1.compare({"sets": {"ABALONE": _one(abalone)}, "not_run": []})[-1].ours
    assert "8 of 8 networks did not converge in 2 passes" in told
    assert "6,000 rows (4 passes over 1,500)" in told
    one = nets.SETS["ABALONE"]
    training, test = one.split(0)
    run = nets.batch(one, nets.Choice(2 / 3, 0.03), training, test, 0, 100, marks=False)
    assert all(stage["converged"] for stage in run.stages)
    assert max(stage["passes"] for stage in run.stages) > 3


def test_a_set_that_is_not_there_is_named_and_nothing_stands_in_for_it(monkeypatch):
    monkeypatch.delenv("STREAMBOOST_DATA", raising=False)
    monkeypatch.setattr(table_1, "QUICK_SETS", ("YEAR",))
    found = table_1.run("quick", (0,), Progress())
    assert found["sets"] == {}
    assert [one["what"] for one in found["not_run"]] == ["YEAR"]
    assert "YearPredictionMSD.txt" in found["not_run"][0]["why"]
    with pytest.raises(MissingData):
        nets.SETS["MNIST"].split(0)


def test_crossings_compare_the_first_cost_at_which_streaming_is_as_good_and_where_both_stay_near():
    batch = [[10, 2.01], [20, 3.0], [60, 2.015], [100, 2.0]]
    wavering = [[10, 4.0], [40, 2.0], [60, 2.5], [80, 1.0]]
    assert figure_2.crossing(wavering, batch) == {"batch": 100, "batch_near": 60, "as_good": 40, "near": 80}
    assert figure_2.crossing([[10, 4.0]], batch) == {"batch": 100, "batch_near": 60, "as_good": None, "near": None}
    runs = [{"runs": {"SGB": {"curve": curve}, "GB": {"curve": batch}}} for curve in (wavering, [[10, 4.0]])]
    found = figure_2.crossings(runs, "SGB")
    assert (found["share"], found["near_share"]) == (0.4, rounded(80 / 60))
    assert figure_2._told(found).startswith("as good in 1 of 2 runs, at 0.4 of")
    assert figure_2.crossings(runs[1:], "SGB")["share"] is None


def test_every_line_of_the_table_comes_from_the_record(abalone):
    record = {"sets": {"ABALONE": _one(abalone)}, "not_run": []}
    rows = table_1.compare(record)
    assert [row.what.split(" (")[0] for row in rows] == [
        "ABALONE, Base",
        "ABALONE, GB",
        "ABALONE, SGB",
        "ABALONE, SGB, averaged",
        "ABALONE, training",
    ]
    assert [row.paper for row in rows] == ["8.2848", "2.1411", "2.1532", "–", "–"]
    assert "no evidence" in rows[0].why
    assert rows[4].ours.endswith("Seeds 0.")
    assert rows[2].ours.startswith(f"{abalone['runs']['SGB']['last']:.4g}")
    ratio = abalone["runs"]["SGB"]["last"] / abalone["runs"]["GB"]["last"]
    assert table_1.ratios(record) == {"ABALONE": pytest.approx(ratio, rel=1e-4)}


def _one(run):
    summary = {kind: {"mean": run["runs"][kind]["last"], "spread": 0.0} for kind in run["runs"]}
    return {
        "measure": nets.SQUARE,
        "paper": nets.SETS["ABALONE"].paper,
        "seeds": [0],
        "units": {kind: {"mean": run["runs"][kind]["curve"][-1][0], "spread": 0.0} for kind in ("SGB", "GB")},
        "base": {"mean": run["base"], "spread": 0.0},
        "last": summary,
        "runs": [run],
    }


def test_marks_stand_where_batch_boosting_adds_a_learner():
    curve = [[10.0, 5.0], [20.0, 4.0], [40.0, 2.0]]
    assert figure_2.additions(curve, [0, 20, 39, 50]) == [(10.0, 5.0), (20, 4.0), (39, 4.0), (50, 2.0)]


def test_the_middle_of_the_seeds_is_taken_at_every_cost():
    curves = [[[10, 5.0], [20, 1.0]], [[10, 4.0], [20, 9.0]], [[10, 6.0], [20, 2.0]]]
    assert figure_2.middle(curves).tolist() == [[10, 5.0], [20, 2.0]]


# Which square error is printed.


@pytest.mark.parametrize("kind", square_error.READINGS)
@pytest.mark.parametrize("knows_all", [True, False])
def test_a_print_is_read_back_by_the_reading_it_was_printed_in(kind, knows_all):
    # targets of mean 10 and spread 3; the first learner says them, or only their mean; η = 0.4, N = 5, error 2 at last
    mean, spread, eta, n_learners, last = 10.0, 3.0, 0.4, 5, 2.0
    first = (1 - eta) ** 2 * (mean**2 + spread**2) if knows_all else ((1 - eta) * mean) ** 2 + spread**2
    left = (1 - eta) ** n_learners * mean
    reading = square_error.READINGS[kind]
    base, streaming = reading.printed(first), reading.printed(last + left**2)
    found = square_error.read(reading, base, streaming, mean, spread, n_learners, ours=last)
    least, most = found["eta"]
    assert (least if knows_all else most) == pytest.approx(eta, rel=1e-4)
    assert least <= most
    assert found["explained"] == pytest.approx(1 - (last + left**2) / 9, rel=1e-4)
    if not knows_all:
        assert found["gap"] == pytest.approx(0, abs=1e-4)


def test_abalone_fits_half_the_mean_square_error_alone():
    found = square_error.run("quick", (0,), Progress(), {"sets": {"ABALONE": {"last": {"SGB": {"mean": 2.112}}}}})
    rows = {row.what: row for row in square_error.compare(found)}
    assert rows["ABALONE as half the mean square error"].why == "fits (-1.9 %)"
    assert rows["ABALONE as the mean square error"].why == "does not fit (+96.2 %)"
    assert rows["ABALONE as its root"].why.startswith("does not fit (+10")
    assert "η from 0.50 to 0.50" in rows["YEAR as half the mean square error"].ours
    assert rows["YEAR as its root"].why == "does not fit: a score of 0 loses less"
    assert "cannot be told" in rows["SLICE as the mean square error"].why
    year = found["sets"]["YEAR"]["as"]["half the mean square error"]
    shown = {"sets": {"YEAR": {"last": {"SGB": {"mean": 43.0573}}}}}  # η = ½ and N = 10: the same is left over
    again = square_error.run("quick", (0,), Progress(), shown)["sets"]["YEAR"]["as"]["half the mean square error"]
    assert year["gap"] is None
    assert again["gap"] == pytest.approx(0, abs=2e-3)


# Records that build on records.


@pytest.fixture
def small(monkeypatch, tmp_path):
    """Table 1 and Figure 2 in seconds, and nothing of them outside a folder."""
    sizes = {**SMALL, "train": 300, "test": 100, "shown": 600, "passes": 1}
    monkeypatch.setattr(table_1, "QUICK", sizes)
    monkeypatch.setattr(table_1, "QUICK_SETS", ("ABALONE",))
    monkeypatch.setattr(figure_2, "QUICK", {**sizes, "numbers": [2]})
    monkeypatch.setattr(runner, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(records, "CACHE", tmp_path / "default")
    ran, run = [], table_1.run
    monkeypatch.setattr(table_1, "run", lambda *given: ran.append(1) or run(*given))
    return ran


def test_figure_2_takes_table_1_from_its_own_folder_and_runs_it_again_if_asked(small, tmp_path, capsys):
    place = tmp_path / "here"
    runner.main(["--quick", "--output", str(place)], only="figure_2")
    assert len(small) == 1
    assert not (tmp_path / "default").exists()
    table = records.load(place / "table_1.json")
    figure = records.load(place / "figure_2.json")
    assert figure["took"] == {"table_1": records.fingerprint(table)}
    curves = [run["runs"]["SGB"]["curve"] for run in table["sets"]["ABALONE"]["runs"]]
    assert figure["curves"]["ABALONE"]["SGB"] == curves
    batch = table["sets"]["ABALONE"]["runs"][0]["runs"]["GB"]["curve"][-1][0]
    assert figure["same_cost"]["ABALONE"]["rows"]["mean"] == round(batch / 24)  # of 3N units each
    told = next(row for row in figure_2.compare(figure) if row.what == "ABALONE: SGB at the cost of GB")
    assert f"GB {table['sets']['ABALONE']['last']['GB']['mean']:.4g}" in told.ours
    runner.main(["--quick", "--output", str(place)], only="figure_2")
    assert len(small) == 1
    runner.main(["--quick", "--again", "--output", str(place)], only="figure_2")
    assert len(small) == 2
    assert records.load(place / "figure_2.json")["took"] == {
        "table_1": records.fingerprint(records.load(place / "table_1.json"))
    }


def test_one_command_runs_nothing_twice(small, tmp_path, capsys):
    arguments = ["--quick", "--again", "--output", str(tmp_path), "--only"]
    runner.main([*arguments, "table_1", "figure_2"])
    assert len(small) == 1
    runner.main([*arguments, "figure_2", "table_1"])
    assert len(small) == 2


def test_the_page_tells_of_runs_taken_over_from_a_table_that_is_no_more(small, tmp_path, capsys):
    runner.main(["--quick", "--output", str(tmp_path)], only="figure_2")
    assert "It took over runs" not in (tmp_path / "report.html").read_text()
    table = records.load(tmp_path / "table_1.json")
    records.save({**table, "date": "another"}, tmp_path / "table_1.json")
    runner.main(["--quick", "--output", str(tmp_path)], only="figure_2")
    assert "It took over runs of table_1 that are not those above" in (tmp_path / "report.html").read_text()


def test_quick_and_full_records_do_not_mix(small, tmp_path, capsys):
    runner.main(["--quick", "--output", str(tmp_path)], only="figure_2")
    table = records.load(tmp_path / "table_1.json")
    (tmp_path / "figure_2.json").unlink()
    records.save({**table, "mode": "full"}, tmp_path / "table_1.json")
    with pytest.raises(SystemExit, match="is the record of a full run, expected none or one of a quick run"):
        runner.main(["--quick", "--output", str(tmp_path)], only="figure_2")
    assert json.loads((tmp_path / "table_1.json").read_text())["mode"] == "full"
