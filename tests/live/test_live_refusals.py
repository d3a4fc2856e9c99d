"""A model that refuses rows while it learns them, or breaks off: what was promised is taken back."""

import numpy as np
import pyarrow as pa
import pytest
from live_models import Clock, columns_of, crash, features, regressor, rows_of

from streamboost import SGBRegressor
from streamboost.live import LiveModel
from streamboost.persistence.object_graph import same_state


class Moody(SGBRegressor):
    """Refuses a target only while learning, as no check can foresee."""

    def learn_prepared(self, prepared):
        if 13.0 in prepared.targets.y:
            raise ValueError("13 brings bad luck.")
        return super().learn_prepared(prepared)


def test_an_entry_that_the_model_does_not_take_poisons_no_replay(tmp_path):
    live, twin = LiveModel(tmp_path / "live", regressor()), regressor()
    for model in (live, twin):
        table = rows_of(10)
        model.learn(table) if model is live else model.learn(*columns_of(table))
    live.model.__class__ = Moody
    learned = live.learn(pa.table({"a": [1.0, 2.0], "b": ["x", "y"], "target": [13.0, 1.0]}), id="i")
    assert (learned.rows, learned.quarantined, learned.good.tolist()) == (1, 1, [False, True])
    assert learned.reasons == {0: "13 brings bad luck."}
    twin.learn(features((2.0, "y")), np.array([1.0]))
    live.remember(["k"], features((1.0, "x")))
    assert live.label(["k"], [13.0]).quarantined == 1
    live.learn(rows_of(10, seed=1))
    twin.learn(*columns_of(rows_of(10, seed=1)))
    live.model.__class__ = SGBRegressor
    again = LiveModel(crash(live, tmp_path))  # with a model that would take them: they stay refused
    assert same_state(again.model, twin)
    assert (again.rows, again.n_quarantined) == (21, 2)
    again.close()


LEARN_PREPARED = SGBRegressor.learn_prepared


def moody(self, prepared):
    if hasattr(self, "committee_") and 13.0 in prepared.targets.y:
        raise ValueError("13 brings bad luck.")
    return LEARN_PREPARED(self, prepared)


def die_before_learning(live, request):
    """Let a request be written down, and nothing more."""

    def die():
        raise KeyboardInterrupt

    live._learn_written = die
    with pytest.raises(KeyboardInterrupt):
        request()


@pytest.mark.parametrize("dies", [False, True], ids=["lives", "dies before it learns"])
def test_what_was_promised_is_taken_back_for_good_if_the_model_does_not_take_it(tmp_path, monkeypatch, dies):
    clock = Clock()
    options = {"expire_after": 100.0, "default": 13.0, "clock": clock}
    live = LiveModel(tmp_path / "live", regressor(), **options)
    live.learn(rows_of(10))
    live.remember(["new", "old", "fine"], features((1.0, "x"), (2.0, "y"), (3.0, "x")))
    live.label(["old", "fine"], [2.0, 3.0])
    monkeypatch.setattr(SGBRegressor, "learn_prepared", moody)
    request = ["new", "unknown", "old", "fine"], [13.0, 4.0, 13.0, 3.0]
    if dies:
        die_before_learning(live, lambda: live.label(*request, id="i"))
        live.remember(["new"], features((4.0, "y")))  # one that came anew is not taken away
    else:
        first = live.label(*request, id="i")
        assert (first.repeated, *first[:5], sorted(first.reasons)) == (False, 0, 0, 1, 1, 2, [0, 2])
    live = LiveModel(crash(live, tmp_path), **options)
    again = live.label(*request, id="i")
    assert (again.repeated, *again[:5]) == (True, 0, 0, 1, 1, 2)
    assert again.reasons == dict.fromkeys([0, 2], "13 brings bad luck.")
    assert (live.rows, live.n_corrected, live.n_quarantined, live.n_pending) == (12, 0, 2, dies)
    assert live.label(["old"], [2.0]).unchanged == 1
    assert live.label(["new"], [5.0])[:5] == ((1, 0, 0, 0, 0) if dies else (0, 0, 0, 1, 0))
    live.remember(["slow"], features((1.0, "x")))
    clock.now += 100
    assert (live.expire(), live.n_expired, live.n_dropped) == (1, 1, 1)
    assert live.label(["slow"], [1.0]).early == 1
    live.close()


def test_a_request_that_the_model_did_not_take_is_answered_the_same_if_the_process_died_before(tmp_path, monkeypatch):
    tables, ids = [rows_of(3), rows_of(2, seed=1)], ["i", "j"]
    tables[1] = tables[1].set_column(2, "target", pa.array([13.0, None]))
    live = LiveModel(tmp_path / "live", regressor())
    live.learn(rows_of(10))
    monkeypatch.setattr(SGBRegressor, "learn_prepared", moody)
    die_before_learning(live, lambda: live.learn_together(tables, ids))
    live = LiveModel(crash(live, tmp_path))
    answers = [live.learn(table, id=id) for table, id in zip(tables, ids, strict=True)]
    assert [(answer.repeated, answer.rows, answer.quarantined) for answer in answers] == [(True, 3, 0), (True, 0, 2)]
    missing = "the target 'target' is missing, expected a number."
    assert answers[1].reasons == {0: "13 brings bad luck.", 1: missing}
    assert (live.rows, live.n_quarantined) == (13, 2)
    live.close()


def test_learning_that_breaks_off_midway_begins_again_from_what_is_certain(tmp_path, monkeypatch):
    live, twin = LiveModel(tmp_path, regressor()), regressor()
    live.learn(rows_of(20))

    def interrupted(self, prepared):
        LEARN_PREPARED(self, prepared)  # half of it, so to speak
        raise KeyboardInterrupt

    monkeypatch.setattr(SGBRegressor, "learn_prepared", interrupted)
    with pytest.raises(KeyboardInterrupt):
        live.learn(rows_of(20, seed=1), id="i")
    monkeypatch.undo()
    assert live.learn(rows_of(20, seed=1), id="i").repeated
    for seed in (0, 1):
        twin.learn(*columns_of(rows_of(20, seed=seed)))
    assert same_state(live.model, twin)
    assert live.rows == 40
    live.close()


def test_what_comes_after_an_entry_that_the_model_does_not_take_is_learned_without_it(tmp_path, monkeypatch):
    """A row with a new column is refused with its label; a correction in the same request was prepared after it."""
    live, twin = LiveModel(tmp_path / "live", regressor()), regressor()
    for model in (live, twin):
        table = rows_of(10)
        model.learn(table) if model is live else model.learn(*columns_of(table))
    live.remember(["old"], features((2.0, "y")))
    live.label(["old"], [2.0])
    live.remember(["new"], features((1.0, "x")).append_column("c", pa.array(["text"])))
    monkeypatch.setattr(SGBRegressor, "learn_prepared", moody)
    labelled = live.label(["new", "old"], [13.0, 3.0])
    assert (labelled.learned, labelled.corrected, labelled.reasons) == (0, 1, {0: "13 brings bad luck."})
    monkeypatch.undo()
    for y in (2.0, 3.0):
        twin.learn(features((2.0, "y")), np.array([y]))
    assert same_state(live.model, twin)
    again = LiveModel(crash(live, tmp_path))
    assert same_state(again.model, twin)
    again.close()
