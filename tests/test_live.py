"""Any order of requests, crashes and delays: the model is the one that a plain loop over the same rows would make."""

import copy
import itertools
import json
import logging
import math
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from streamboost import SGBClassifier, SGBRegressor, snapshots
from streamboost.checkpoints import Checkpoint, CheckpointStore
from streamboost.errors import NewerFormat, SnapshotError
from streamboost.journal import Transaction
from streamboost.live import LiveModel, NotTogether
from streamboost.live.answers import packed, unpacked
from streamboost.live.foresight import Foreseen, check, strange_rows
from streamboost.live.intake import pack_rows
from streamboost.metric_base import Probabilities
from streamboost.states import same_state

SMALL = {"n_estimators": 5, "max_depth": 3, "memory": 64, "random_state": 0, "new_columns": "grow"}
SCHEMA = pa.schema([("a", pa.float64()), ("b", pa.string())])


class Clock:
    def __init__(self, now=1000.0):
        self.now = now

    def __call__(self):
        return self.now


def regressor(**options):
    return SGBRegressor(**SMALL | options)


def classifier(**options):
    return SGBClassifier(**SMALL | options)


def features(*rows):
    return pa.Table.from_pylist([dict(zip("ab", row, strict=True)) for row in rows], SCHEMA)


def rows_of(n, seed=0, target="target"):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=n), rng.choice(["x", "y", "z"], n)
    return pa.table({"a": a, "b": b, target: a + (b == "x") + rng.normal(size=n) / 10})


def columns_of(table, target="target"):
    return table.drop_columns([target]), table[target].to_numpy()


def crash(live, tmp_path):
    """What a process leaves behind that is killed now: a copy of its files."""
    copied = Path(tempfile.mkdtemp(dir=tmp_path))
    for file in live.directory.iterdir():
        if file.name != "lock":
            shutil.copy(file, copied / file.name)
    live._learner.close()
    live._is_closed = True
    return copied


# A naive twin: dicts, and a model that is told everything at once.


class Twin:
    def __init__(self, model, clock, *, expire_after, default, limit, within, ids, every):
        self.model, self.clock = model, clock
        self.expire_after, self.default, self.limit, self.within = expire_after, default, limit, within
        self.n_ids, self.every = ids, every
        self.number = itertools.count()
        self.waiting, self.learned, self.early = {}, {}, {}  # key: (time, number, row[, label])
        self.ids = []
        self.rows = self.entries = self.corrected = self.expired = self.crowded = self.dropped = self.bad = 0
        self.saved_entries = self.saved_rows = self.tried_rows = 0

    def teach(self, rows, y):
        if rows:
            self.model.learn(features(*rows), np.array(y))
            self.rows += len(rows)
            self.entries += 1

    def learn(self, rows, y, id=None):
        if id is None or id not in self.ids:
            good = [not (math.isnan(target) or math.isinf(target)) for target in y]
            self.bad += good.count(False)
            self.teach([row for row, ok in zip(rows, good, strict=True) if ok], [t for t in y if math.isfinite(t)])
            self.ids = [*self.ids, *([id] if id else [])][-self.n_ids :]
        self.tidy()

    def remember(self, keys, rows, id=None):
        if id is not None and id in self.ids:
            return
        self.ids = [*self.ids, *([id] if id else [])][-self.n_ids :]
        for key, row in zip(keys, rows, strict=True):
            self.learned.pop(key, None)
            self.waiting[key] = (self.clock(), next(self.number), row)
        while len(self.waiting) > 2 * self.limit:
            del self.waiting[self.oldest(self.without_due(self.waiting))]
            self.dropped += 1

    def without_due(self, things):
        """Neither rows whose label is there nor labels whose row is."""
        return {key: thing for key, thing in things.items() if not (key in self.waiting and key in self.early)}

    def label(self, keys, labels, id=None):
        if id is None or id not in self.ids:
            fresh, again, early = [], [], []
            for key, label in zip(keys, labels, strict=True):
                known = key in self.learned and self.clock() - self.learned[key][0] <= self.within
                if key in self.waiting:
                    fresh.append((key, label))
                elif known and self.learned[key][3] != label:
                    again.append((key, label))
                elif not known:
                    early.append((key, label))
            rows = {key: self.learned[key][2] for key, _ in again}
            self.settle(fresh)  # may push out one that is corrected here
            again = self.good(again)
            self.teach([rows[key] for key, _ in again], [label for _, label in again])
            for key, label in again:
                if key in self.learned:
                    self.learned[key] = (*self.learned[key][:3], label)
                self.early.pop(key, None)
            self.corrected += len(again)
            for key, label in self.good(early):
                self.early.pop(key, None)
                self.early[key] = (self.clock(), next(self.number), label)
            while len(self.early) > self.limit:
                del self.early[self.oldest(self.without_due(self.early))]
            self.ids = [*self.ids, *([id] if id else [])][-self.n_ids :]
        self.tidy()

    def good(self, pairs):
        found = [(key, label) for key, label in pairs if math.isfinite(label)]
        self.bad += len(pairs) - len(found)
        return found

    def settle(self, pairs):
        pairs = self.good(pairs)
        self.teach([self.waiting[key][2] for key, _ in pairs], [label for _, label in pairs])
        for key, label in pairs:
            _, number, row = self.waiting.pop(key)
            self.learned[key] = (self.clock(), number, row, label)
            self.early.pop(key, None)
        while len(self.learned) > self.limit:
            del self.learned[self.oldest(self.learned)]

    def oldest(self, things):
        return min(things, key=lambda key: things[key][:2])

    def expire(self):
        self.settle_due()
        old = [key for key, (time, *_) in self.waiting.items() if time <= self.clock() - self.expire_after]
        self.give_up(sorted(old, key=lambda key: self.waiting[key][:2]))
        self.forget()
        self.tidy()
        return len(old)

    def give_up(self, keys):
        self.expired += len(keys)
        if self.default is None:
            self.dropped += len(keys)
            for key in keys:
                del self.waiting[key]
        else:
            self.settle([(key, self.default) for key in keys])

    def tidy(self):
        self.settle_due()
        surplus = len(self.waiting) - self.limit
        if surplus > 0:
            self.crowded += surplus
            self.give_up(sorted(self.waiting, key=lambda key: self.waiting[key][:2])[:surplus])
        self.save_if_due()

    def settle_due(self):
        due = sorted((self.waiting[key][1], key) for key in self.early if key in self.waiting)
        timely = [key for _, key in due if self.waiting[key][0] - self.early[key][0] <= self.within]
        pairs = [(key, self.early[key][2]) for key in timely]
        for _, key in due:
            del self.early[key]
        self.settle(pairs)

    def forget(self):
        before = self.clock() - self.within
        for things in (self.learned, self.early):
            for key in [key for key, thing in self.without_due(things).items() if thing[0] < before]:
                del things[key]

    def save_if_due(self):
        if self.rows - self.tried_rows >= self.every:
            self.save()

    def save(self):
        if self.entries != self.saved_entries:
            self.saved_entries, self.saved_rows, self.tried_rows = self.entries, self.rows, self.rows
            self.forget()


class Pair:
    """A live model and its twin, told the same; after each request they are compared."""

    def __init__(self, place, expire_after, default):
        self.place, self.clock = place, Clock()
        self.options = {"expire_after": expire_after, "default": default, "clock": self.clock, "durable": False}
        self.options |= {"pending_limit": 4, "correct_within": 40.0, "remember_ids": 3, "checkpoint_every": 9}
        self.live = LiveModel(place / "live", regressor(memory=16), **self.options)
        self.twin = Twin(
            regressor(memory=16),
            self.clock,
            expire_after=expire_after,
            default=default,
            limit=self.options["pending_limit"],
            within=self.options["correct_within"],
            ids=self.options["remember_ids"],
            every=self.options["checkpoint_every"],
        )

    def learn(self, rows, y, id):
        id = id and f"learn {id}"
        learned = self.live.learn(features(*rows).append_column("target", pa.array(y)), id=id)
        assert learned.repeated == (id is not None and id in self.twin.ids)
        if not learned.repeated:
            assert learned.y.tolist() == [target for target in y if not math.isnan(target)]
            assert sorted(learned.reasons) == [i for i, target in enumerate(y) if math.isnan(target)]
        self.twin.learn(rows, y, id)

    def predict(self, keys, rows, id):
        id = id and f"remember {id}"
        self.live.predict(features(*rows), keys, id=id)
        self.twin.remember(keys, rows, id)
        self.twin.tidy()

    def remember(self, keys, rows, id):
        id = id and f"remember {id}"
        thread = threading.Thread(target=self.live.remember, args=(keys, features(*rows)), kwargs={"id": id})
        thread.start()
        thread.join()
        self.twin.remember(keys, rows, id)

    def label(self, keys, labels, id):
        id = id and f"label {id}"
        before = self.twin.corrected
        labelled = self.live.label(keys, labels, id=id)
        assert labelled.repeated == (id is not None and id in self.twin.ids)
        self.twin.label(keys, labels, id)
        if not labelled.repeated:
            assert labelled.corrected == self.twin.corrected - before
            assert sum(labelled[:5]) == len(keys)

    def wait(self, seconds):
        self.clock.now += seconds

    def pause(self):
        """Nobody writes for so long that all that can be too late is."""
        self.wait(70.0)

    def expire(self):
        assert self.live.expire() == self.twin.expire()

    def checkpoint(self):
        self.live.checkpoint()
        self.twin.save()

    def crash(self):
        directory = crash(self.live, self.place)
        self.twin.tried_rows = self.twin.saved_rows
        self.live = LiveModel(directory, **self.options)
        self.twin.save_if_due()

    def close_and_open(self):
        self.live.close()
        self.twin.save()
        self.live = LiveModel(self.live.directory, **self.options)

    def refuse(self, which):
        self.learn([(0.0, "x")], [1.0], None)  # so that columns are known
        live, table = self.live, features((1.0, "x"), (2.0, "y"))
        wrong = [
            lambda: live.learn(table),
            lambda: live.learn(pa.table({"a": ["text"], "target": [1.0]})),
            lambda: live.learn(pa.table({"a": [[1.0]], "target": [1.0]})),
            lambda: live.label(["k1", "k1"], [1.0, 2.0]),
            lambda: live.label(["k1", "k2"], [1.0]),
            lambda: live.label(["k1", "k2"], [1.0, "one"]),
            lambda: live.remember(["k1"], table),
            lambda: live.remember(["k1", "k1"], table),
            lambda: live.predict(table.append_column("target", pa.array([1.0, 2.0])), ["k1", "k2"]),
        ]
        with pytest.raises((TypeError, ValueError)):
            wrong[which % len(wrong)]()

    def compare(self):
        live, twin = self.live, self.twin
        assert same_state(live.model, twin.model)
        figures = [live.rows, live.n_pending, live.n_early, live.n_corrected, live.n_expired, live.n_crowded]
        waiting = [len(twin.waiting), len(twin.early)]
        assert figures == [twin.rows, *waiting, twin.corrected, twin.expired, twin.crowded]
        assert (live.n_dropped, live.n_quarantined) == (twin.dropped, twin.bad)
        assert live._journal.counts["learned"] == len(twin.learned)
        assert live.journal_length <= twin.entries


KEYS = [f"k{i}" for i in range(9)]
DISTURBANCES = ["expire", "checkpoint", "crash", "close_and_open", "pause"]


@pytest.mark.parametrize("seed", range(4))
def test_a_live_model_is_its_naive_twin_over_hundreds_of_requests(seed, tmp_path):
    rng = np.random.default_rng(seed)
    pair = Pair(tmp_path, expire_after=[15.0, 60.0][seed % 2], default=[None, 0.0][seed // 2])

    def draw_rows(n):
        return [(float(rng.integers(-3, 4)), ["x", "y", None][rng.integers(3)]) for _ in range(n)]

    def draw_y(n):
        return [math.nan if rng.random() < 0.05 else float(rng.integers(2)) for _ in range(n)]

    for _ in range(250):
        keys = rng.choice(KEYS, rng.integers(1, 5), replace=False).tolist()
        id = None if rng.random() < 0.7 else str(rng.integers(4))
        match rng.choice(8, p=[0.1, 0.1, 0.25, 0.31, 0.08, 0.1, 0.02, 0.04]):
            case 0:
                pair.learn(draw_rows(len(keys)), draw_y(len(keys)), id)
            case 1:
                pair.predict(keys, draw_rows(len(keys)), id)
            case 2:
                pair.remember(keys, draw_rows(len(keys)), id)
            case 3:
                pair.label(keys, draw_y(len(keys)), id)
            case 4:
                pair.wait(float(rng.choice([1.0, 5.0, 50.0])))
            case 5:
                getattr(pair, rng.choice(DISTURBANCES))()
            case 6:
                pair.refuse(int(rng.integers(9)))
            case 7:  # rows whose labels are there already, and before anyone looks, a long time passes
                pair.label(keys, draw_y(len(keys)), None)
                pair.remember(keys, draw_rows(len(keys)), None)
                pair.pause()
                getattr(pair, rng.choice(["expire", "checkpoint", "close_and_open", "crash"]))()
        pair.compare()
    twin = pair.twin
    assert min(twin.corrected, twin.expired, twin.crowded, twin.bad) > 3
    pair.live.close()


rows_ = st.tuples(st.floats(-3, 3, allow_subnormal=False), st.sampled_from(["x", "y", None]))
numbers = st.sampled_from([0.0, 1.0, 1.0, 2.0, math.nan])
some_keys = st.lists(st.sampled_from(KEYS), min_size=1, max_size=4, unique=True)
ids = st.sampled_from([None, None, None, "i", "j", "k", "l"])


class Requests(RuleBasedStateMachine):
    @initialize(expire_after=st.sampled_from([15.0, 60.0]), default=st.sampled_from([None, 0.0]))
    def begin(self, expire_after, default):
        self.pair = Pair(Path(tempfile.mkdtemp()), expire_after, default)

    def teardown(self):
        if hasattr(self, "pair"):
            self.pair.live.close()
            shutil.rmtree(self.pair.place)

    @rule(rows=st.lists(rows_, min_size=1, max_size=5), data=st.data(), id=ids)
    def learn(self, rows, data, id):
        self.pair.learn(rows, [data.draw(numbers) for _ in rows], id)

    @rule(keys=some_keys, data=st.data(), of_writer=st.booleans(), id=ids)
    def remember(self, keys, data, of_writer, id):
        rows = [data.draw(rows_) for _ in keys]
        (self.pair.predict if of_writer else self.pair.remember)(keys, rows, id)

    @rule(keys=some_keys, data=st.data(), id=ids)
    def label(self, keys, data, id):
        self.pair.label(keys, [data.draw(numbers) for _ in keys], id)

    @rule(seconds=st.sampled_from([1.0, 10.0, 30.0]))
    def wait(self, seconds):
        self.pair.wait(seconds)

    @rule(what=st.sampled_from(DISTURBANCES))
    def disturb(self, what):
        getattr(self.pair, what)()

    @rule(which=st.integers(0, 8))
    def refuse(self, which):
        self.pair.refuse(which)

    @invariant()
    def the_two_are_one(self):
        if hasattr(self, "pair"):
            self.pair.compare()


TestRequests = Requests.TestCase
TestRequests.settings = settings(max_examples=15, stateful_step_count=30, deadline=None, phases=[Phase.generate])


# What a user sees.


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
    lessons = []
    live = LiveModel(tmp_path, classifier(), on_learned=lambda state, lesson: lessons.append(lesson))
    live.learn(pa.table({"a": [1.0, -1.0] * 10, "target": ["up", "down"] * 10}))
    live.predict(pa.table({"a": [1.0]}), ["asked"])
    live.remember(["told"], pa.table({"a": [1.0]}), Probabilities(["up", "side"], np.array([[0.25, 0.75]])))
    live.remember(["quiet"], pa.table({"a": [-1.0]}))
    labelled = live.label(["asked", "told", "quiet"], ["up", "side", "down"])
    live.close()
    assert labelled.first.values[:2].tolist() == ["up", "side"]
    honest = lessons[-1].honest()
    assert honest.known.all()
    assert honest.values.tolist() == ["up", "side", labelled.predictions[2]]
    told = dict(zip(honest.probabilities.classes, honest.probabilities.values[1], strict=True))
    assert (told["up"], told["side"], told["down"]) == (0.25, 0.75, 0.0)


def test_no_click_in_30_minutes_counts_as_0_until_the_click_comes(tmp_path):
    clock, minutes = Clock(), 60.0
    options = {"target": "clicked", "clock": clock, "expire_after": 30 * minutes, "default": 0}
    live, twin = LiveModel(tmp_path, classifier(), **options), classifier()
    live.predict(features((1.0, "x"), (2.0, "y")), ["p", "q"])
    clock.now += 29 * minutes
    assert live.expire() == 0
    live.label(["q"], [1])
    clock.now += 1 * minutes
    assert (live.expire(), live.n_expired) == (1, 1)
    twin.learn(features((2.0, "y")), np.array([1]))
    twin.learn(features((1.0, "x")), np.array([0]))
    assert same_state(live.model, twin)
    assert live.label(["p"], [0]).unchanged == 1
    assert live.label(["p"], [1]).corrected == 1
    twin.learn(features((1.0, "x")), np.array([1]))
    assert same_state(live.model, twin)
    live.close()


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
    lessons = []
    live = LiveModel(directory, clock=clock, on_learned=lambda state, lesson: lessons.append(lesson), **options)
    live.expire()
    assert next((lesson.kind, lesson.y.tolist()) for lesson in lessons if not lesson.is_replay) == ("label", [1])
    twin.learn(pa.table({"a": [1.0]}), np.array([0]))
    twin.learn(features((1.0, "x")), np.array([1]))
    if "default" in options:
        twin.learn(features((2.0, "x")), np.array([0]))
    assert same_state(live.model, twin)
    assert (live.n_early, live.n_pending) == (0, 0 if "expire_after" in options else 1)
    assert live.n_dropped == (1 if options.keys() == {"expire_after"} else 0)
    live.close()


def test_a_request_that_is_written_down_is_answered_even_if_nothing_more_can_be(tmp_path, monkeypatch, caplog):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    with LiveModel(tmp_path, regressor()) as live:
        live.label(["k"], [1.0])
        live.remember(["k"], features((1.0, "x")))
        with monkeypatch.context() as patch:
            patch.setattr("streamboost.journal.Transaction.due", full)
            assert live.learn(rows_of(3)).rows == 3
            assert (live.n_early, live.n_pending, live.rows) == (1, 1, 3)
            assert "could not be learned yet ([Errno 28] No space left" in caplog.text
        live.learn(rows_of(3))
        assert (live.n_early, live.n_pending, live.rows) == (0, 0, 7)


def test_expired_rows_are_dropped_where_there_is_no_default(tmp_path):
    clock = Clock()
    with LiveModel(tmp_path, regressor(), expire_after=10.0, clock=clock) as live:
        live.remember(["k"], features((1.0, "x")))
        clock.now += 10
        assert (live.expire(), live.n_dropped, live.rows, live.n_pending) == (1, 1, 0, 0)
        assert live.label(["k"], [1.0]).early == 1


def test_a_thousand_rows_and_more_expire_in_the_order_in_which_they_came(tmp_path):
    clock, table = Clock(), rows_of(2300)
    X, _ = columns_of(table)
    with LiveModel(tmp_path, regressor(), expire_after=1.0, default=1.0, clock=clock, durable=False) as live:
        live.remember([str(i) for i in range(2300)], X)
        clock.now += 1
        assert live.expire(limit=1000) == 1000
        assert live.expire() == 1300
        twin = regressor()
        for start in (0, 1000, 2000):
            chunk = X.slice(start, 1000)
            twin.learn(chunk, np.ones(chunk.num_rows))
        assert same_state(live.model, twin)


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


def test_what_the_model_would_refuse_is_refused_before_anything_is_written(tmp_path):
    live = LiveModel(tmp_path, classifier(loss="hinge"))
    live.learn(pa.table({"a": [1.0, 2.0], "target": ["yes", "no"]}))
    live.remember(["k"], pa.table({"a": [1.0]}))
    before = live.journal_length, live.rows, live.n_pending
    for request in (
        lambda: live.learn(pa.table({"a": [3.0], "target": ["maybe"]}), id="i"),
        lambda: live.label(["k"], ["maybe"], id="i"),
    ):
        with pytest.raises(ValueError, match="'maybe', but loss 'hinge' has room for 2 classes"):
            request()
    assert (live.journal_length, live.rows, live.n_pending) == before
    assert live.label(["k"], ["yes"], id="i").learned == 1  # the id was not used up
    live.close()


def test_options_that_do_not_fit_the_first_rows_are_refused_with_them(tmp_path):
    with LiveModel(tmp_path, regressor(monotonic_cst={"a": 5})) as live:
        with pytest.raises(ValueError, match="monotonic_cst"):
            live.learn(pa.table({"a": [1.0], "target": [1.0]}))
        assert live.journal_length == 0


def test_an_early_label_that_the_model_refuses_goes_to_the_quarantine(tmp_path):
    with LiveModel(tmp_path, classifier(loss="hinge")) as live:
        live.learn(pa.table({"a": [1.0, 2.0], "target": ["yes", "no"]}))
        live.label(["k", "l"], ["maybe", "no"])
        live.predict(pa.table({"a": [1.0, 2.0]}), ["k", "l"])
        assert (live.n_quarantined, live.n_pending, live.n_early, live.rows) == (1, 1, 0, 3)
        assert "room for 2 classes" in (tmp_path / "quarantine.jsonl").read_text()


def test_a_default_that_the_model_refuses_costs_the_rows_and_not_the_run(tmp_path):
    clock = Clock()
    with LiveModel(tmp_path, classifier(loss="hinge"), expire_after=1.0, default="never", clock=clock) as live:
        live.learn(pa.table({"a": [1.0, 2.0], "target": ["yes", "no"]}))
        live.remember(["k"], pa.table({"a": [1.0]}))
        clock.now += 1
        assert (live.expire(), live.n_quarantined, live.n_dropped, live.n_pending) == (1, 1, 1, 0)


class Moody(SGBRegressor):
    """Refuses a target only while learning, as no check can foresee."""

    def learn(self, X, y, sample_weight=None):
        if 13.0 in y.tolist():
            raise ValueError("13 brings bad luck.")
        return super().learn(X, y, sample_weight)


def test_an_entry_that_the_model_does_not_take_poisons_no_replay(tmp_path):
    live, twin = LiveModel(tmp_path / "live", regressor()), regressor()
    for model in (live, twin):
        table = rows_of(10)
        model.learn(table) if model is live else model.learn(*columns_of(table))
    live.model.__class__ = Moody
    learned = live.learn(pa.table({"a": [1.0, 2.0], "b": ["x", "y"], "target": [13.0, 1.0]}), id="i")
    assert (learned.rows, learned.quarantined, learned.good.tolist()) == (0, 2, [False, False])
    assert set(learned.reasons.values()) == {"13 brings bad luck."}
    live.remember(["k"], features((1.0, "x")))
    assert live.label(["k"], [13.0]).quarantined == 1
    live.learn(rows_of(10, seed=1))
    twin.learn(*columns_of(rows_of(10, seed=1)))
    live.model.__class__ = SGBRegressor
    again = LiveModel(crash(live, tmp_path))  # with a model that would take them: they stay refused
    assert same_state(again.model, twin)
    assert (again.rows, again.n_quarantined) == (20, 3)
    again.close()


LEARN = SGBRegressor.learn


def moody(self, X, y, sample_weight=None):
    if hasattr(self, "committee_") and 13.0 in y.tolist():
        raise ValueError("13 brings bad luck.")
    return LEARN(self, X, y, sample_weight)


def die_before_learning(live, request):
    """Let a request be written down, and nothing more."""

    def die():
        raise KeyboardInterrupt

    live._catch_up = die
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
    monkeypatch.setattr(SGBRegressor, "learn", moody)
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
    monkeypatch.setattr(SGBRegressor, "learn", moody)
    die_before_learning(live, lambda: live.learn_together(tables, ids))
    live = LiveModel(crash(live, tmp_path))
    answers = [live.learn(table, id=id) for table, id in zip(tables, ids, strict=True)]
    assert [(answer.repeated, answer.rows, answer.quarantined) for answer in answers] == [(True, 0, 3), (True, 0, 2)]
    missing = "the target 'target' is missing, expected a number."
    assert answers[1].reasons == {0: "13 brings bad luck.", 1: missing}
    assert (live.rows, live.n_quarantined) == (10, 5)
    live.close()


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


kinds = st.sampled_from(["number", "text", "absent", "null"])


@given(
    chunks=st.lists(st.tuples(kinds, kinds, st.sampled_from(["u", "v", "w", "z"])), min_size=1, max_size=6),
    loss=st.sampled_from(["log_loss", "hinge"]),
    is_begun=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_what_is_foreseen_is_what_comes(chunks, loss, is_begun):
    model = classifier(loss=loss, n_estimators=1)
    if is_begun:
        model.learn(pa.table({"a": [1.0, 2.0], "c": ["p", "q"]}), np.array(["u", "v"]))
    before = snapshots.pack(model)
    foreseen, real = Foreseen(model), copy.deepcopy(model)
    values = {"number": pa.array([1.0]), "text": pa.array(["p"]), "null": pa.array([None], pa.string())}
    for *two, label in chunks:
        columns = {name: values[kind] for name, kind in zip("cd", two, strict=True) if kind != "absent"}
        X, y = pa.table({"a": [3.0]} | columns), np.array([label], dtype=object)
        try:
            real.learn(X, y)
            is_taken = True
        except ValueError:
            is_taken = False
        try:
            check(foreseen.model, X, y)
            assert is_taken
            foreseen.expect(X, y)
        except ValueError:
            assert not is_taken
        assert strange_rows(foreseen.model, X) == strange_rows(real, X)
    assert snapshots.pack(model) == before


def test_learning_that_breaks_off_midway_begins_again_from_what_is_certain(tmp_path, monkeypatch):
    live, twin = LiveModel(tmp_path, regressor()), regressor()
    live.learn(rows_of(20))

    def interrupted(self, *arguments):
        SGBRegressor.partial_fit(self, *arguments)  # half of it, so to speak
        raise KeyboardInterrupt

    monkeypatch.setattr(SGBRegressor, "learn", interrupted)
    with pytest.raises(KeyboardInterrupt):
        live.learn(rows_of(20, seed=1), id="i")
    monkeypatch.undo()
    assert live.learn(rows_of(20, seed=1), id="i").repeated
    for seed in (0, 1):
        twin.learn(*columns_of(rows_of(20, seed=seed)))
    assert same_state(live.model, twin)
    assert live.rows == 40
    live.close()


def test_repeated_requests_are_answered_with_the_same_figures_also_after_a_restart(tmp_path):
    table = pa.table({"a": [1.0, 2.0, 3.0], "target": [1.0, None, 3.0]})
    live = LiveModel(tmp_path / "live", regressor())
    first = live.learn(table, id="r")
    live.remember(["k"], pa.table({"a": [1.0]}))
    labelled = live.label(["k", "l"], [1.0, 2.0], id="s")
    live = LiveModel(crash(live, tmp_path))
    again, labelled_again = live.learn(table, id="r"), live.label(["k", "l"], [1.0, 2.0], id="s")
    assert (again.rows, again.quarantined, again.repeated, again.reasons) == (2, 1, True, first.reasons)
    assert labelled_again[:5] == labelled[:5] == (1, 0, 0, 1, 0)
    assert labelled_again.repeated
    assert (live.rows, live.n_quarantined) == (3, 1)
    with pytest.raises(ValueError, match=r"id 'r' is that of an earlier request to learn\. Give each"):
        live.label(["k"], [1.0], id="r")
    live.close()


def test_a_repeated_answer_has_the_reasons_of_all_bad_rows(tmp_path):
    values = [1.5 if i % 3 == 2 else None for i in range(700)]  # reasons that differ, and one that is fine
    table = pa.table({"a": np.arange(700.0), "target": pa.array([*values[:-1], 1.0])})
    live = LiveModel(tmp_path / "live", classifier())
    first = live.learn(table, id="r")
    keys = [f"k{i}" for i in range(300)]
    labelled = live.label(keys, [math.nan] * 299 + [1.0], id="s")
    assert (len(first.reasons), len(labelled.reasons), first.rows, labelled.early) == (699, 299, 1, 1)
    live = LiveModel(crash(live, tmp_path))
    again, labelled_again = live.learn(table, id="r"), live.label(keys, [math.nan] * 299 + [1.0], id="s")
    assert (again.repeated, again.rows, again.quarantined, again.reasons) == (True, 1, 699, first.reasons)
    assert (labelled_again.repeated, labelled_again[:5]) == (True, labelled[:5])
    assert labelled_again.reasons == labelled.reasons
    live.close()


@given(st.dictionaries(st.integers(0, 30), st.sampled_from(["p", "q"])))
def test_packed_answers_lose_nothing(reasons):
    kept = json.loads(json.dumps(packed({"rows": 1, "reasons": reasons})))
    assert unpacked(kept) == {"rows": 1, "reasons": reasons}
    assert len(kept["reasons"]) <= len(reasons)


def requests_with_bad_rows(n, make_target):
    """Tables of many sizes with targets missing here and there, one of them everywhere; every second has an id."""
    rng = np.random.default_rng(3)
    tables = []
    for number in range(n):
        table = rows_of(int(rng.integers(1, 30)), seed=number)
        X, y = columns_of(table)
        is_bad = np.ones(len(y), bool) if number == 4 else rng.random(len(y)) < 0.15
        tables.append(X.append_column("target", pa.array(make_target(y), mask=is_bad)))
    return tables, [f"request {number}" if number % 2 else None for number in range(n)]


def brief(learned):
    arrays = learned.y.tolist(), learned.predictions.tolist(), learned.answers.known.tolist(), learned.good.tolist()
    return *arrays, learned.rows, learned.quarantined, learned.repeated, learned.reasons


@pytest.mark.parametrize(
    ("make", "make_target"), [(regressor, lambda y: y), (classifier, lambda y: np.where(y > 0, "up", "down"))]
)
def test_requests_learned_together_are_answered_and_learned_as_one_after_the_other(tmp_path, make, make_target):
    tables, ids = requests_with_bad_rows(12, make_target)
    one, all_ = (LiveModel(tmp_path / name, make(), checkpoint_every=100) for name in ("one", "all"))
    alone = [one.learn(table, id=id) for table, id in zip(tables, ids, strict=True)]
    together = []
    for start in range(0, 12, 4):
        together += all_.learn_together(tables[start : start + 4], ids[start : start + 4])
    assert [*map(brief, together)] == [*map(brief, alone)]
    assert sum(learned.quarantined for learned in together) == all_.n_quarantined > 10
    assert (all_.rows, all_.n_quarantined) == (one.rows, one.n_quarantined)
    assert same_state(all_.model, one.model)
    assert all_.learn(tables[5], id=ids[5])[:3] == (alone[5].rows, alone[5].quarantined, True)
    texts = [(live.directory / "quarantine.jsonl").read_text().splitlines() for live in (one, all_)]
    seen, expected = ([(json.loads(line)["row"], json.loads(line)["text"]) for line in lines] for lines in texts)
    assert seen == expected
    copied = crash(all_, tmp_path)
    with LiveModel(copied) as again:
        assert same_state(again.model, one.model)
    one.close()


def test_what_cannot_be_learned_together_is_said_so_before_anything_changes(tmp_path, monkeypatch):
    monkeypatch.setattr("streamboost.journal.transactions.LARGEST", 50_000)
    with LiveModel(tmp_path, regressor()) as live:
        live.learn(rows_of(50), id="known")
        live.label(["k"], [1.0], id="a label's")
        before, counts = snapshots.pack(live.model), (live.rows, live.journal_length, live.n_quarantined)
        strange = pa.table({"a": ["text"], "b": ["x"], "target": [1.0]})
        huge = pa.table({"a": [1.0], "b": ["x"], "target": [1e200]})
        for tables, ids in (
            ([rows_of(2), rows_of(3)], ["new", "known"]),
            ([rows_of(2), rows_of(3)], ["twice", "twice"]),
            ([rows_of(2), rows_of(3)], ["new", "a label's"]),
            ([rows_of(2), rows_of(3)], ["new", 7]),
            ([rows_of(2), rows_of(3)], ["new", ["list"]]),
            ([rows_of(2), rows_of(3)], ["new", "\ud800"]),
            ([rows_of(2), rows_of(3)], ["new"]),
            ([rows_of(2), {"a": 1.0}], ["new", None]),
            ([rows_of(2), rows_of(2).append_column("a", pa.array([1.0, 2.0]))], ["new", None]),
            ([rows_of(2), rows_of(4000)], ["new", None]),  # more than an entry may hold, here
            ([rows_of(2), strange], [None, None]),
            ([strange, strange], [None, None]),
            ([rows_of(2), rows_of(2, target="other")], [None, None]),
        ):
            with pytest.raises(NotTogether):
                live.learn_together(tables, ids)
            assert (live.rows, live.journal_length, live.n_quarantined) == counts
            assert snapshots.pack(live.model) == before
        assert [learned.rows for learned in live.learn_together([rows_of(2), huge], [None, "new"])] == [2, 0]


def test_rows_that_are_sent_again_with_their_id_do_not_wait_again(tmp_path):
    with LiveModel(tmp_path, regressor()) as live:
        live.label(["k"], [1.0])
        for _ in range(2):  # as when the first answer got lost
            live.predict(features((1.0, "x")), ["k"], id="i")
            assert (live.rows, live.n_pending) == (1, 0)
        live.predict(features((1.0, "x")), ["k"])
        assert (live.rows, live.n_pending) == (1, 1)


def test_bad_rows_are_reported_and_written_down_and_no_error(tmp_path):
    with LiveModel(tmp_path, regressor()) as live:
        learned = live.learn(pa.table({"a": [1.0, math.inf, 3.0], "target": [1.0, 2.0, None]}), id="r")
        assert (learned.rows, learned.quarantined, learned.good.tolist()) == (1, 2, [True, False, False])
        assert learned.predictions.shape == (1,)
        lines = (tmp_path / "quarantine.jsonl").read_text().splitlines()
        assert len(lines) == 2
        assert '"position": "r"' in lines[0]
        assert live.learn(pa.table({"a": [1.0], "target": pa.array([None], pa.float64())})).rows == 0


def test_a_bad_label_leaves_its_row_waiting(tmp_path):
    with LiveModel(tmp_path, regressor()) as live:
        live.remember(["k"], features((1.0, "x")))
        labelled = live.label(["k", "unknown"], [math.nan, None])
        assert (labelled.quarantined, sorted(labelled.reasons), live.n_pending, live.n_early) == (2, [0, 1], 1, 0)
        assert live.label(["k"], [1.0]).learned == 1


def two_named(*names):
    return pa.Table.from_arrays([pa.array([1.0])] * len(names), names=names)


@pytest.mark.parametrize(
    ("request_", "error", "words"),
    [
        (lambda live: live.learn({"a": 1}), TypeError, "table is a dict, expected a pyarrow.Table"),
        (lambda live: live.learn(features((1.0, "x"))), ValueError, "no target column 'target'"),
        (lambda live: live.label("key", [1.0]), TypeError, r"For one row pass \['key'\]"),
        (lambda live: live.label([1], [1.0]), TypeError, "key 1 is a int, expected text"),
        (lambda live: live.label(["\ud800"], [1.0]), ValueError, "half a character"),
        (lambda live: live.label(["k"], 1.0), TypeError, r"targets is 1.0, expected a list"),
        (lambda live: live.label(["k"], [[1.0]]), TypeError, "expected a number, text or a boolean"),
        (lambda live: live.label(["k", "l"], [1.0]), ValueError, "2 keys and 1 targets"),
        (lambda live: live.label(["k", "l", "k"], [1.0] * 3), ValueError, "'k' is there twice"),
        (lambda live: live.label(["k", "l"], [1.0, "x"]), ValueError, "all numbers, all texts or all booleans"),
        (lambda live: live.remember(["k"], pa.table({"a": [[1]]})), TypeError, "'a' holds list"),
        (lambda live: live.remember(["k"], pa.table({"target": [1]})), ValueError, "which is what is to be predicted"),
        (lambda live: live.remember(["k"], features((1.0, "x")), [[0.1, 0.9]]), ValueError, "Pass probabilities"),
        (lambda live: live.learn(two_named("a", "a", "target")), ValueError, "two columns named 'a'.*Rename or drop"),
        (lambda live: live.learn(two_named("a", "target", "target")), ValueError, "two columns named 'target'"),
        (lambda live: live.remember(["k"], two_named("a", "b", "b")), ValueError, "two columns named 'b'"),
        (lambda live: live.predict(two_named("a", "b", "b"), ["k"]), ValueError, "two columns named 'b'"),
        (lambda live: live.learn(rows_of(1), id=7), TypeError, "id 7 is a int, expected text"),
    ],
)
def test_wrong_requests_are_refused_in_words(tmp_path, request_, error, words):
    with LiveModel(tmp_path, regressor()) as live:
        with pytest.raises(error, match=words):
            request_(live)
        assert (live.journal_length, live.n_pending, live.n_quarantined) == (0, 0, 0)


def test_a_second_thread_that_writes_is_refused_and_a_closed_model_says_so(tmp_path):
    errors = []

    def expire():
        with pytest.raises(RuntimeError) as caught:
            live.expire()
        errors.append(caught)

    def meddle(state, lesson):
        thread = threading.Thread(target=expire)
        thread.start()
        thread.join()

    live = LiveModel(tmp_path, regressor(), on_learned=meddle)
    live.learn(rows_of(5))
    assert "two threads use a live model at once" in str(errors[0].value)
    live.close()
    live.close()
    with pytest.raises(ValueError, match="is closed"):
        live.learn(rows_of(5))
    with pytest.raises(ValueError, match="Open it again"):
        live.remember(["k"], features((1.0, "x")))


def test_rows_remembered_by_many_threads_while_another_learns_are_all_there(tmp_path):
    live = LiveModel(tmp_path, regressor(), durable=False)
    X, _ = columns_of(rows_of(40))

    def remember(worker):
        for i in range(40):
            live.remember([f"{worker}-{i}"], X.slice(i, 1))

    threads = [threading.Thread(target=remember, args=(worker,)) for worker in range(6)]
    for thread in threads:
        thread.start()
    for seed in range(10):
        live.learn(rows_of(30, seed))
    for thread in threads:
        thread.join()
    assert live.n_pending == 240
    for worker in range(6):
        assert live.label([f"{worker}-{i}" for i in range(40)], np.arange(40.0)).learned == 40
    assert (live.rows, live.n_pending) == (300 + 240, 0)
    live.close()


def test_what_is_kept_in_state_is_as_exact_as_the_model(tmp_path):
    def count(state, lesson):
        state["rows"] = state.get("rows", 0) + len(lesson.y)
        state["replayed"] = state.get("replayed", 0) + len(lesson.y) * lesson.is_replay

    live = LiveModel(tmp_path / "live", regressor(), on_learned=count)
    live.learn(rows_of(10))
    live.checkpoint()
    live.learn(rows_of(7))
    live = LiveModel(crash(live, tmp_path), on_learned=count)
    live.learn(rows_of(3))
    assert live.state == {"rows": 20, "replayed": 7}
    live.close()


def test_a_seed_that_was_left_out_is_the_same_after_a_crash(tmp_path):
    live = LiveModel(tmp_path / "live", regressor(random_state=None, max_features=1))
    live.learn(rows_of(100))
    model = live.model
    again = LiveModel(crash(live, tmp_path))
    assert same_state(again.model, model)
    again.close()


@pytest.mark.parametrize(
    "model",
    [
        regressor(loss="absolute_error", iterate="average"),
        regressor(loss="poisson", memory=(32, 64), semantics="minibatch"),
        regressor(learner="linear"),
        regressor(learner="mlp", n_estimators=12),
        classifier(),
        classifier(loss="logistic", n_jobs=2),
    ],
    ids=["absolute", "poisson", "linear", "mlp", "softmax", "logistic"],
)
def test_a_replay_is_bit_equal_whatever_the_model(tmp_path, model):
    table = rows_of(300)
    target = np.abs(np.round(table["target"].to_numpy()))
    if isinstance(model, SGBClassifier):
        target = target > 0 if model.loss == "logistic" else np.array(["low", "mid", "high"])[target.astype(int) % 3]
    table = table.set_column(2, "target", pa.array(target))
    live = LiveModel(tmp_path / "live", model)
    for start in range(0, 200, 40):
        live.learn(table.slice(start, 40))
    live.checkpoint()
    X = table.drop_columns(["target"])
    live.remember([str(i) for i in range(100)], X.slice(200))
    live.label([str(i) for i in range(0, 100, 2)], table["target"].slice(200).take(list(range(0, 100, 2))))
    left = live.model
    again = LiveModel(crash(live, tmp_path))
    assert again.rows == 250
    assert same_state(again.model, left)
    again.close()


# Bounds.


def wide(*names):
    return pa.table({name: [1.0] for name in names})


def test_a_model_grows_no_wider_than_it_may_whichever_way_columns_come(tmp_path):
    live = LiveModel(tmp_path / "live", regressor(), max_columns=3)
    live.learn(wide("a", "target"))
    for request in (
        lambda: live.learn(wide("b", "c", "d", "target"), id="i"),
        lambda: live.remember(["k"], wide("b", "c", "d"), id="i"),
        lambda: live.predict(wide("b", "c", "d"), ["k"], id="i"),
    ):
        with pytest.raises(ValueError, match="the model would have 4 columns with 'd', expected at most 3"):
            request()
    with pytest.raises(NotTogether, match="4 columns"):
        live.learn_together([wide("b", "c", "d", "target")] * 2, [None, None])
    assert (live.n_pending, live.journal_length, live.n_quarantined) == (0, 1, 0)
    live.label(["later"], [1.0])
    for key, names in {"p": "ab", "q": "cd", "r": "a", "s": "c", "t": "d", "bad": "ef"}.items():
        live.remember([key], wide(*names), id=f"ask {key}")
    labelled = live.label(["bad", "p", "q", "r", "s", "t"], [math.nan, *[1.0] * 5], id="i")
    assert (labelled.learned, sorted(labelled.reasons)) == (3, [0, 2, 5])  # q does not fit after p, and t not after s
    assert "4 columns with 'd'" in labelled.reasons[2]
    assert live.model.encoder_.names == ["a", "b", "c"]
    assert (live.n_pending, live.n_quarantined) == (1, 3)  # the row with a bad label waits on
    live.remember(["q"], wide("c", "d"), id="ask q")  # was answered when there was room, and so is again
    assert live.n_pending == 1
    assert live.label(["bad"], [1.0]).quarantined == 1
    live._journal.put(pack_rows(["later"], wide("z"), 0.0))  # as one that was asked about when there was room
    live.expire()
    assert (live.n_early, live.n_pending, live.n_quarantined, live.rows) == (0, 0, 5, 4)
    model = live.model
    live = LiveModel(crash(live, tmp_path), max_columns=1)  # less than it knows: it learns what it knows
    assert same_state(live.model, model)
    assert live.learn(wide("a", "c", "target")).rows == 1
    assert live.label(["p"], [2.0]).corrected == 1
    live.close()


def test_a_model_knows_no_more_classes_than_it_may_and_early_labels_count(tmp_path):
    clock = Clock()
    options = {"max_classes": 3, "clock": clock, "expire_after": 10.0, "default": "default"}
    live = LiveModel(tmp_path / "live", classifier(), **options)
    live.learn(pa.table({"a": [1.0, 2.0], "target": ["u", "v"]}))
    with pytest.raises(ValueError, match="the model would have 4 classes with 'x', expected at most 3"):
        live.learn(pa.table({"a": [1.0] * 3, "target": ["u", "w", "x"]}))
    with pytest.raises(NotTogether, match="4 classes"):
        live.learn_together([pa.table({"a": [1.0], "target": [name]}) for name in "wx"], [None, None])
    early = live.label(["k1", "k2", "k3", "k4"], ["u", "w", "x", "w"], id="i")
    assert (early.early, early.quarantined, list(early.reasons)) == (3, 1, [2])
    again = live.label(["k5"], ["y"])
    assert (again.early, again.quarantined) == (0, 1)  # w waits, and may come
    assert "4 classes with 'y', expected at most 3" in again.reasons[0]
    live.remember(["p", "q", "r"], pa.table({"a": [1.0, 2.0, 3.0]}))
    labelled = live.label(["p", "q", "r"], ["x", "y", "u"])  # no early label is certain to be learned: x is
    assert (labelled.learned, list(labelled.reasons), live.n_pending) == (2, [1], 1)
    live.predict(pa.table({"a": [1.0, 1.0, 1.0]}), ["k1", "k2", "k4"])
    assert live.model.classes_.tolist() == ["u", "v", "x"]
    assert (live.n_early, live.n_pending) == (0, 3)  # q, k2 and k4 wait on
    clock.now += 10
    assert (live.expire(), live.n_dropped, live.n_pending) == (3, 3, 0)  # the default has no room either
    assert live.model.classes_.tolist() == ["u", "v", "x"]
    model = live.model
    live = LiveModel(crash(live, tmp_path), **options)
    assert same_state(live.model, model)
    assert live.label(["k1", "k2", "k3", "k4"], ["u", "w", "x", "w"], id="i").reasons == early.reasons
    live.close()


def test_numbers_are_no_classes(tmp_path):
    with LiveModel(tmp_path, regressor(), max_classes=2) as live:
        assert live.learn(rows_of(20)).rows == 20
        assert live.label(["k", "l", "m"], [1.0, 2.0, 3.0]).early == 3


asked = st.tuples(st.sets(st.sampled_from("abcdef"), min_size=1, max_size=3), st.sampled_from("uvwxy") | st.none())


@given(st.lists(asked, min_size=1, max_size=8), st.integers(1, 5), st.integers(1, 4), st.booleans())
@settings(max_examples=60, deadline=None)
def test_of_one_request_each_row_is_learned_that_fits_after_those_before_it(asked, max_columns, max_classes, is_begun):
    place = tempfile.mkdtemp()
    live = LiveModel(place, classifier(n_estimators=1), durable=False)
    columns, classes, learned = set(), set(), []
    if is_begun:
        live.learn(pa.table({"a": [1.0], "target": ["u"]}))
        columns, classes = {"a"}, {"u"}
    for i, (names, _) in enumerate(asked):
        live.remember([str(i)], wide(*sorted(names)))
    live.max_columns, live.max_classes = max_columns, max_classes
    known = frozenset(columns)
    for i, (names, label) in enumerate(asked):
        fits = names <= columns or len(columns | names) <= max_columns
        if label is not None and fits and (label in classes or len(classes) < max_classes):
            columns, classes = columns | names, classes | {label}
            learned.append(i)
    labelled = live.label([str(i) for i in range(len(asked))], [label for _, label in asked])
    assert sorted(set(range(len(asked))) - set(labelled.reasons)) == learned
    if learned or is_begun:
        assert set(live.model.encoder_.names) == columns >= known
        assert set(live.model.classes_.tolist()) == classes
    live.close()
    shutil.rmtree(place)


# Directories.


def test_a_new_directory_needs_a_model_and_an_old_one_does_not(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds no model yet\. Pass one"):
        LiveModel(tmp_path)
    with LiveModel(tmp_path, regressor(), target="price") as live:
        live.learn(rows_of(10, target="price"))
        model = live.model
    with LiveModel(tmp_path, regressor(n_estimators=1)) as live:  # ignored
        assert same_state(live.model, model)
        assert live.target == "price"
    with pytest.raises(ValueError, match=r"target is 'cost', but the model in .* learns 'price'"):
        LiveModel(tmp_path, target="cost")


def test_a_directory_in_use_is_refused(tmp_path):
    with LiveModel(tmp_path, regressor()), pytest.raises(BlockingIOError, match="in use by process"):
        LiveModel(tmp_path)


def test_a_model_that_a_run_has_left_goes_on_live(tmp_path):
    model, twin = regressor(), regressor()
    for seen in (model, twin):
        seen.learn(*columns_of(rows_of(50)))
    with CheckpointStore(tmp_path / "run") as store:
        store.save(Checkpoint(model, position={"file": 77}, rows=50, state={"score": [1.0]}))
    live = LiveModel(tmp_path / "run", target="target")
    assert (live.rows, live.state) == (50, {"score": [1.0]})
    live.learn(rows_of(10, seed=1))
    twin.learn(*columns_of(rows_of(10, seed=1)))
    directory = crash(live, tmp_path)
    newest = max(directory.glob("checkpoint-*"))
    newest.write_bytes(newest.read_bytes()[:-1])  # back to that of the run
    again = LiveModel(directory)
    assert same_state(again.model, twin)
    assert (again.rows, again.target) == (60, "target")
    again.close()


def test_a_model_that_was_learned_elsewhere_meanwhile_is_not_mixed_with_an_old_journal(tmp_path):
    with LiveModel(tmp_path, regressor()) as live:
        live.learn(rows_of(10))
    with CheckpointStore(tmp_path) as store:
        store.save(Checkpoint(regressor(), position=5, rows=99))
    with pytest.raises(SnapshotError, match="do not belong together"):
        LiveModel(tmp_path)


def test_falling_back_to_the_older_checkpoint_still_replays_to_the_exact_state(tmp_path, caplog):
    live = LiveModel(tmp_path / "live", regressor(), checkpoint_every=40)
    for seed in range(12):
        live.learn(rows_of(15, seed))
    live.remember(["k"], features((1.0, "x")))
    live.label(["k"], [1.0])
    model = live.model
    directory = crash(live, tmp_path)
    [_, newest] = sorted(directory.glob("checkpoint-*"))
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(data)
    with caplog.at_level(logging.WARNING):
        again = LiveModel(directory)
    assert "checksum does not match" in caplog.text
    assert same_state(again.model, model)
    again.learn(rows_of(60, seed=20))  # a new checkpoint, and trimming, after the fall
    model = again.model
    again = LiveModel(crash(again, tmp_path))
    assert same_state(again.model, model)
    again.close()


def test_the_journal_stays_short_and_the_older_checkpoint_has_what_it_needs(tmp_path):
    with LiveModel(tmp_path, regressor(), checkpoint_every=50, durable=False) as live:
        longest = 0
        for seed in range(60):
            live.learn(rows_of(10, seed), id=str(seed))
            longest = max(longest, live.journal_length)
        assert longest == 9  # of 4 requests since the last checkpoint, and 5 before it
    older = snapshots.load(min(tmp_path.glob("checkpoint-*")))
    database = sqlite3.connect(tmp_path / "journal.db")
    assert database.execute("SELECT min(number) FROM entries").fetchone()[0] == older.position + 1
    database.close()


def test_the_file_does_not_grow_with_the_stream(tmp_path):
    clock, sizes = Clock(), []
    options = {"checkpoint_every": 100, "remember_ids": 20, "pending_limit": 30, "durable": False, "clock": clock}
    with LiveModel(tmp_path, regressor(), **options) as live:
        for part in range(200):
            keys = [f"{part}-{i}" for i in range(10)]
            live.predict(columns_of(rows_of(10, part))[0], keys)
            live.label(keys[::2], np.ones(5), id=str(part))
            live.label([f"never {part}"], [1.0])
            clock.now += 1
            sizes.append(sum(file.stat().st_size for file in tmp_path.glob("journal.db")))
        assert (live.n_pending, live.n_early) == (25, 30)
        assert live._journal.counts["learned"] == 30
    assert sizes[-1] <= 1.5 * sizes[50]


# Disks that fail.


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_checkpoint_that_cannot_be_written_loses_nothing(tmp_path, monkeypatch, caplog, call):
    live, twin = LiveModel(tmp_path / "live", regressor(), checkpoint_every=20), regressor()

    def learn(seed):
        live.learn(rows_of(10, seed))
        twin.learn(*columns_of(rows_of(10, seed)))

    def full(*arguments):
        raise OSError(28, "No space left on device")

    for seed in range(5):
        learn(seed)
    files = {path.name: path.read_bytes() for path in live.directory.glob("checkpoint-*")}
    monkeypatch.setattr(os, call, full)
    for seed in range(5, 10):
        learn(seed)
    assert "No space left on device" in live.last_checkpoint_error
    assert caplog.text.count("Nothing is lost") == 3  # after 60, 80 and 100 rows, not at every request
    assert {path.name: path.read_bytes() for path in live.directory.glob("checkpoint-*")} == files
    with pytest.raises(OSError, match="No space left"):
        live.checkpoint()
    copied = LiveModel(crash(live, tmp_path))
    assert same_state(copied.model, twin)
    monkeypatch.undo()
    live = copied
    live.checkpoint()
    assert live.last_checkpoint_error is None
    live.close()


def test_a_checkpoint_whose_tidying_failed_is_well_again_once_that_succeeds(tmp_path, monkeypatch):
    live = LiveModel(tmp_path, regressor())
    live.learn(rows_of(5))

    def full(self, *_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Transaction, "trim", full)
    with pytest.raises(OSError, match="No space left"):
        live.checkpoint()
    monkeypatch.undo()
    assert live.last_checkpoint_error is not None
    path = live.checkpoint()
    assert live.last_checkpoint_error is None
    assert path == live.checkpoint()
    live.close()


def test_closing_with_a_full_disk_loses_nothing(tmp_path, monkeypatch):
    live = LiveModel(tmp_path, regressor())
    live.learn(rows_of(30))
    model = live.model
    monkeypatch.setattr(os, "replace", lambda *arguments: (_ for _ in ()).throw(OSError(28, "No space left")))
    live.close()
    monkeypatch.undo()
    with LiveModel(tmp_path) as again:
        assert same_state(again.model, model)


def test_a_journal_without_room_refuses_and_changes_nothing(tmp_path):
    live, twin = LiveModel(tmp_path, regressor()), regressor()
    live.learn(rows_of(30))
    twin.learn(*columns_of(rows_of(30)))
    pages = live._journal._db.execute("PRAGMA page_count").fetchone()[0]
    live._journal._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(OSError, match=r"could not be read or written \(database or disk is full\), so nothing"):
        live.learn(rows_of(3000, seed=1), id="i")
    with pytest.raises(OSError, match="disk is full"):
        live.remember([str(i) for i in range(3000)], columns_of(rows_of(3000))[0])
    assert same_state(live.model, twin)
    assert (live.rows, live.n_pending, live.journal_length) == (30, 0, 1)
    live._journal._db.execute("PRAGMA max_page_count = 1000000")
    assert not live.learn(rows_of(3000, seed=1), id="i").repeated
    twin.learn(*columns_of(rows_of(3000, seed=1)))
    assert same_state(live.model, twin)
    live.close()


def leave_a_journal(directory):
    """A directory with two entries after its checkpoint."""
    live = LiveModel(directory / "live", regressor())
    live.learn(rows_of(10))
    live.remember(["k"], features((1.0, "x")))
    live.label(["k"], [1.0])
    return crash(live, directory)


def edit(directory, statement):
    database = sqlite3.connect(directory / "journal.db")
    database.execute(statement)
    database.commit()
    database.close()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda d: (d / "journal.db").write_bytes(b"not a database, for sure" * 1000), "file is not a database"),
        (lambda d: [file.unlink() for file in d.glob("journal.db*")], "is missing, and what was learned after"),
        (lambda d: [file.unlink() for file in d.glob("checkpoint-*")], "a journal but no checkpoint"),
        (lambda d: edit(d, "PRAGMA application_id = 1"), "a database of something else"),
        (lambda d: edit(d, "PRAGMA user_version = 3"), "format version 3, and this streamboost reads .* up to 2"),
        (lambda d: edit(d, "UPDATE entries SET rows = zeroblob(length(rows)) WHERE number = 2"), "checksum of entry 2"),
        (lambda d: edit(d, "DELETE FROM entries WHERE number = 1"), "holds entries 2 to 2, and the checkpoint"),
        (lambda d: edit(d, "UPDATE entries SET number = 3 WHERE number = 2"), "entry 2 is missing"),
        (lambda d: edit(d, "DELETE FROM about"), "does not hold what it should"),
        (lambda d: edit(d, "UPDATE about SET value = 'other' WHERE name = 'name'"), "do not belong together"),
        (lambda d: edit(d, "DROP TABLE rows"), "the table 'rows' is missing"),
    ],
)
def test_a_damaged_or_foreign_journal_is_never_begun_anew(tmp_path, damage, words):
    directory = leave_a_journal(tmp_path)
    edit(directory, "PRAGMA wal_checkpoint(TRUNCATE)")
    damage(directory)
    before = {path.name: path.read_bytes() for path in directory.glob("checkpoint-*")}
    with pytest.raises((SnapshotError, FileNotFoundError, OSError), match=words) as caught:
        LiveModel(directory, regressor()).remember(["new"], features((1.0, "x")))
    if "format version" in words:
        assert caught.type is NewerFormat
    assert {path.name: path.read_bytes() for path in directory.glob("checkpoint-*")} == before


def test_a_row_that_was_damaged_while_it_waited_is_not_learned(tmp_path):
    live = LiveModel(tmp_path, regressor())
    live.remember(["k"], features((1.0, "x")))
    edit(tmp_path, "UPDATE rows SET row = zeroblob(length(row))")
    with pytest.raises(SnapshotError, match="checksum of the row of key 'k' does not match"):
        live.label(["k"], [1.0])
    assert (live.rows, live.n_pending) == (0, 1)
    live.close()


# Killed for real.


def test_a_process_that_is_killed_again_and_again_ends_with_the_same_model(tmp_path):
    script = Path(__file__).with_name("killed_live.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, timeout=1200, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) >= 10  # kills
    straight, killed = (LiveModel(tmp_path / name) for name in ("straight", "killed"))
    assert same_state(killed.model, straight.model)
    assert killed.rows == straight.rows > 500
    names = ["n_pending", "n_early", "n_corrected", "n_expired", "n_crowded", "n_quarantined"]
    figures = {name: getattr(straight, name) for name in names}
    assert {name: getattr(killed, name) for name in names} == figures
    assert min(figures.values()) > 0
    assert straight.n_expired > straight.n_crowded
    kept = [live._journal._db.execute("SELECT id, verb, answer FROM ids").fetchall() for live in (straight, killed)]
    assert kept[0] == kept[1]  # answers, too
    reasons = " ".join(str(straight._journal.find_id(id)[1]) for id, *_ in kept[0])
    assert all(words in reasons for words in ("bad luck", "but it held", "the model would have", "is missing"))
    for live in (straight, killed):
        live.close()
