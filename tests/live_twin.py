"""A naive twin of a live model: dicts, and a model that is told everything at once."""

import itertools
import math
import threading

import numpy as np
import pyarrow as pa
import pytest
from live_models import Clock, crash, features, regressor

from streamboost.live import LiveModel
from streamboost.persistence.object_graph import same_state


class Twin:
    def __init__(self, model, *, clock, expire_after, default, pending_limit, correct_within, remember_ids, every):
        self.model, self.clock = model, clock
        self.expire_after, self.default, self.limit, self.within = expire_after, default, pending_limit, correct_within
        self.n_ids, self.every = remember_ids, every
        self.number = itertools.count()
        self.waiting, self.learned, self.early, self.ripe = {}, {}, {}, []  # key: (time, number, row[, label])
        self.ids = []
        self.rows = self.entries = self.corrected = self.expired = self.crowded = self.dropped = self.bad = 0
        self.saved_entries = self.saved_rows = self.tried_rows = 0

    def teach(self, rows, y):
        if rows:
            self.model.learn(features(*rows), np.array(y))
            self.rows += len(rows)
            self.entries += 1

    def learn(self, rows, y, id=None):
        self.settle()
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
        self.ripen()
        for key, row in zip(keys, rows, strict=True):
            self.learned.pop(key, None)
            self.waiting.pop(key, None)
            self.waiting[key] = (self.clock(), next(self.number), row)
            if key in self.early and self.clock() - self.early[key][0] <= self.within:
                self.ripe.append(("label", self.clock(), key, self.waiting.pop(key), self.early[key][2]))
            self.early.pop(key, None)
            if len(self.waiting) > self.limit:
                key = self.oldest(self.waiting)
                self.ripe.append(("crowded", self.clock(), key, self.waiting.pop(key), self.default))
        while len(self.ripe) > self.limit:
            which = [at for at, (why, *_) in enumerate(self.ripe) if why != "label"]
            if not which:
                break
            del self.ripe[which[0]]
            self.dropped += 1

    def ripen(self):
        old = [key for key, (time, *_) in self.waiting.items() if time <= self.clock() - self.expire_after]
        for key in sorted(old, key=lambda key: self.waiting[key][:2]):
            row = self.waiting.pop(key)
            self.ripe.append(("expired", row[0] + self.expire_after, key, row, self.default))

    def settle(self):
        """Learn one by one what is ripe; return how many rows waited too long."""
        self.ripen()
        n = sum(why == "expired" for why, *_ in self.ripe)
        while self.ripe:
            why, since, key, (_, number, row), label = self.ripe.pop(0)
            is_newest = key not in self.waiting and key not in self.learned
            is_label = why == "label"
            self.expired += not is_label
            self.crowded += why == "crowded"
            if label is None:
                self.dropped += 1
            else:
                self.teach([row], [label])
                if is_newest:
                    self.learned[key] = (since, number, row, label)
                    self.trim_learned()
        return n

    def trim_learned(self):
        while len(self.learned) > self.limit:
            del self.learned[self.oldest(self.learned)]

    def label(self, keys, labels, id=None):
        self.settle()
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
            self.forget()
            self.take(fresh)  # may push out one that is corrected here
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
                del self.early[self.oldest(self.early)]
            self.ids = [*self.ids, *([id] if id else [])][-self.n_ids :]
        self.tidy()

    def good(self, pairs):
        found = [(key, label) for key, label in pairs if math.isfinite(label)]
        self.bad += len(pairs) - len(found)
        return found

    def take(self, pairs):
        pairs = self.good(pairs)
        self.teach([self.waiting[key][2] for key, _ in pairs], [label for _, label in pairs])
        for key, label in pairs:
            _, number, row = self.waiting.pop(key)
            self.learned[key] = (self.clock(), number, row, label)
            self.early.pop(key, None)
        self.trim_learned()

    def oldest(self, things):
        return min(things, key=lambda key: things[key][:2])

    def expire(self):
        n = self.settle()
        self.forget()
        self.save_if_due()
        return n

    def tidy(self):
        self.settle()
        self.save_if_due()

    def forget(self):
        before = self.clock() - self.within
        for things in (self.learned, self.early):
            for key in [key for key, thing in things.items() if thing[0] < before]:
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
        limits = {"pending_limit": 4, "correct_within": 40.0, "remember_ids": 3}
        told = {"expire_after": expire_after, "default": default, "clock": self.clock, **limits}
        self.options = {**told, "durable": False, "checkpoint_every": 9}
        self.live = LiveModel(place / "live", regressor(memory=16), **self.options)
        self.twin = Twin(regressor(memory=16), every=9, **told)
        self.bodies = {}  # what came with each id

    def body(self, id, *body):
        """What a client sends with an id: what it sent before, if that is remembered."""
        if id is not None and id in self.twin.ids:
            return self.bodies[id]
        self.bodies[id] = body
        return body

    def learn(self, rows, y, id):
        id = id and f"learn {id}"
        rows, y = self.body(id, rows, y)
        learned = self.live.learn(features(*rows).append_column("target", pa.array(y)), id=id)
        assert learned.repeated == (id is not None and id in self.twin.ids)
        if not learned.repeated:
            assert learned.y.tolist() == [target for target in y if not math.isnan(target)]
            assert sorted(learned.reasons) == [i for i, target in enumerate(y) if math.isnan(target)]
        self.twin.learn(rows, y, id)

    def predict(self, keys, rows, id):
        id = id and f"remember {id}"
        keys, rows = self.body(id, keys, rows)
        self.live.predict(features(*rows), keys, id=id)
        self.twin.settle()
        self.twin.remember(keys, rows, id)
        self.twin.tidy()

    def remember(self, keys, rows, id):
        id = id and f"remember {id}"
        keys, rows = self.body(id, keys, rows)
        thread = threading.Thread(target=self.live.remember, args=(keys, features(*rows)), kwargs={"id": id})
        thread.start()
        thread.join()
        self.twin.remember(keys, rows, id)

    def label(self, keys, labels, id):
        id = id and f"label {id}"
        keys, labels = self.body(id, keys, labels)
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
        waiting = [len(twin.waiting) + len(twin.ripe), len(twin.early)]
        assert figures == [twin.rows, *waiting, twin.corrected, twin.expired, twin.crowded]
        assert (live.n_dropped, live.n_quarantined) == (twin.dropped, twin.bad)
        assert live._journal.counts["learned"] == len(twin.learned)
        assert live.journal_length <= twin.entries
