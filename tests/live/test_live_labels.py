"""Labels that come late, early, again, and for rows of all kinds."""

import math

import numpy as np
import pyarrow as pa
import pytest
from live_models import Clock, classifier, crash, features, regressor, rows_of

from streamboost.evaluation.metric_base import Probabilities
from streamboost.live import LiveModel
from streamboost.persistence.object_graph import same_state


def test_a_label_that_comes_late_is_learned_with_the_row_as_it_was_asked_about(tmp_path):
    with LiveModel(tmp_path, regressor()) as live:
        assert live.predict(features((1.0, "x"), (2.0, None)), ["first", "second"]).tolist() == [0.0, 0.0]
        labelled = live.label(["second", "first"], np.array([20.0, 10.0]))
        assert (labelled.learned, labelled.y.tolist()) == (2, [20.0, 10.0])
        twin = regressor()
        before = twin.learn(features((2.0, None), (1.0, "x")), np.array([20.0, 10.0]))
        assert same_state(live.model, twin)
        assert labelled.predictions.tolist() == before.tolist()


def test_the_first_prediction_comes_back_with_the_label(tmp_path):
    with LiveModel(tmp_path, regressor()) as live:
        live.learn(rows_of(50))
        said = live.predict(features((1.0, "x")), ["k"])
        live.remember(["l"], features((1.0, "x")))
        live.learn(rows_of(50, seed=1))
        labelled = live.label(["k", "l"], [3.0, 3.0])
        assert labelled.first.known.tolist() == [True, False]
        assert labelled.first.values[0] == said[0] != labelled.predictions[0]


def test_probabilities_are_remembered_and_lessons_score_the_honest_ones(tmp_path):
    batches = []
    live = LiveModel(tmp_path, classifier(), on_learned=lambda state, batch: batches.append(batch))
    live.learn(pa.table({"a": [1.0, -1.0] * 10, "target": ["up", "down"] * 10}))
    live.predict(pa.table({"a": [1.0]}), ["asked"])
    live.remember(["told"], pa.table({"a": [1.0]}), Probabilities(["up", "side"], np.array([[0.25, 0.75]])))
    live.remember(["quiet"], pa.table({"a": [-1.0]}))
    labelled = live.label(["asked", "told", "quiet"], ["up", "side", "down"])
    live.close()
    assert labelled.first.values[:2].tolist() == ["up", "side"]
    honest = batches[-1].honest()
    assert honest.known.all()
    assert honest.values.tolist() == ["up", "side", labelled.predictions[2]]
    told = dict(zip(honest.probabilities.classes, honest.probabilities.values[1], strict=True))
    assert (told["up"], told["side"], told["down"]) == (0.25, 0.75, 0.0)


@pytest.mark.parametrize("end", ["close", "crash"])
@pytest.mark.parametrize(
    "options",
    [{"expire_after": 4.0, "default": 0}, {"expire_after": 4.0}, {"correct_within": 4.0}, {"pending_limit": 1}],
)
def test_a_label_that_came_before_its_row_is_learned_however_long_the_restart_takes(tmp_path, options, end):
    clock, twin = Clock(), classifier()
    live = LiveModel(tmp_path / "live", classifier(), clock=clock, **options)
    live.learn(pa.table({"a": [1.0], "target": [0]}))
    live.label(["v"], [1])
    clock.now += 1
    live.remember(["v"], features((1.0, "x")))
    live.remember(["w"], features((2.0, "x")))
    live.close() if end == "close" else None
    directory = live.directory if end == "close" else crash(live, tmp_path)
    clock.now += 100
    batches = []
    live = LiveModel(directory, clock=clock, on_learned=lambda state, batch: batches.append(batch), **options)
    live.expire()
    assert next((batch.kind, batch.y.tolist()) for batch in batches if not batch.is_replay) == ("label", [1])
    twin.learn(pa.table({"a": [1.0]}), np.array([0]))
    twin.learn(features((1.0, "x")), np.array([1]))
    if "default" in options:
        twin.learn(features((2.0, "x")), np.array([0]))
    assert same_state(live.model, twin)
    assert (live.n_early, live.n_pending) == (0, 0 if "expire_after" in options else 1)
    assert live.n_dropped == (1 if options.keys() == {"expire_after"} else 0)
    live.close()


def test_rows_of_different_columns_and_types_are_learned_from_one_request(tmp_path):
    tables = [
        pa.table({"a": pa.array([1], "int8")}),
        pa.table({"a": [2.5], "b": ["x"]}),
        pa.table({"a": pa.array([None], pa.null()), "b": pa.array(["y"]).dictionary_encode(), "c": [True]}),
    ]
    with LiveModel(tmp_path, regressor()) as live:
        for key, table in zip("pqr", tables, strict=True):
            live.remember([key], table)
        assert live.label(["p", "q", "r"], [1.0, 2.0, 3.0]).learned == 3
        twin = regressor()
        twin.learn([{"a": 1.0}, {"a": 2.5, "b": "x"}, {"b": "y", "c": 1.0}], [1.0, 2.0, 3.0])
        probe = pa.table({"a": [1.5], "b": ["x"], "c": [1.0]})
        assert live.model.predict(probe) == twin.predict(probe)


def test_a_column_that_was_text_in_one_row_and_a_number_in_another_costs_only_the_second_row(tmp_path):
    with LiveModel(tmp_path, regressor()) as live:
        live.learn(pa.table({"a": [1.0, 2.0], "target": [1.0, 2.0]}))
        live.remember(["p"], pa.table({"a": [1.0], "new": ["text"]}))
        live.remember(["q"], pa.table({"a": [1.0], "new": [7.0]}))
        live.remember(["r"], pa.table({"a": ["text"]}))
        labelled = live.label(["p", "q", "r"], [1.0, 2.0, 3.0])
        assert (labelled.learned, labelled.quarantined) == (1, 2)
        assert "column 'a' is 'text' in row 0, text, but it held numbers so far" in labelled.reasons[2]
        assert (live.rows, live.n_quarantined, live.n_pending) == (3, 2, 0)


def test_an_early_label_that_the_model_refuses_goes_to_the_quarantine(tmp_path):
    with LiveModel(tmp_path, classifier(loss="hinge")) as live:
        live.learn(pa.table({"a": [1.0, 2.0], "target": ["yes", "no"]}))
        live.label(["k", "l"], ["maybe", "no"])
        live.predict(pa.table({"a": [1.0, 2.0]}), ["k", "l"])
        assert (live.n_quarantined, live.n_pending, live.n_early, live.rows) == (1, 1, 0, 3)
        assert "room for 2 classes" in (tmp_path / "quarantine.jsonl").read_text()


def test_a_row_that_another_one_of_its_request_makes_strange_is_said_to_be_so(tmp_path):
    live = LiveModel(tmp_path / "live", classifier())
    live.learn(pa.table({"x": [1.0, 2.0], "target": ["u", "v"]}))
    values = {"number": [1.0], "text": ["t"], "nothing": pa.array([None], pa.string())}
    for key, value in values.items():
        live.remember([key], pa.table({"n": value}))
    first = live.label(list(values), ["u", "v", "u"], id="F")
    model = live.model
    live = LiveModel(crash(live, tmp_path))
    again = live.label(list(values), ["u", "v", "u"], id="F")
    assert again[:5] == first[:5] == (2, 0, 0, 0, 1)
    assert again.reasons == first.reasons
    assert "column 'n' is 't' in row 0, text, but it held numbers so far" in first.reasons[1]
    assert same_state(live.model, model)
    assert (live.rows, live.n_quarantined, live.n_pending) == (4, 1, 0)
    assert live.label(["text"], ["v"]).unchanged == 0
    live.close()


def test_labels_are_checked_against_what_the_model_will_know_after_those_before(tmp_path):
    keys, labels = list("pqrst"), ["one", "any", "two", "any", "three"]
    with LiveModel(tmp_path, classifier(loss="hinge")) as live:
        for key, value in zip(keys, [1.0, "t", 1.0, "t", 1.0], strict=True):  # three tables that can be learned
            live.remember([key], pa.table({"n": [value]}))
        with pytest.raises(ValueError, match="'three', but loss 'hinge' has room for 2 classes"):
            live.label(keys, labels, id="i")
        assert (live.rows, live.n_pending, live.n_quarantined, live.journal_length) == (0, 5, 0, 0)
        labelled = live.label(keys[:4], labels[:4], id="i")
        assert (labelled.learned, list(labelled.reasons), live.n_pending) == (2, [1, 3], 1)


def test_a_bad_label_leaves_its_row_waiting(tmp_path):
    with LiveModel(tmp_path, regressor()) as live:
        live.remember(["k"], features((1.0, "x")))
        labelled = live.label(["k", "unknown"], [math.nan, None])
        assert (labelled.quarantined, sorted(labelled.reasons), live.n_pending, live.n_early) == (2, [0, 1], 1, 0)
        assert live.label(["k"], [1.0]).learned == 1
