"""One thread learns, what waits is learned together, and copies predict."""

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import httpx
import numpy as np
import pyarrow as pa
import pytest
from served import REQUESTS, SMALL, fail, friedman, numbers, same_as, serving, wait_for

from streamboost import SGBRegressor
from streamboost.live import LiveModel
from streamboost.serving.writer import Writer


def test_predictions_while_learning_are_those_of_the_model_after_some_whole_request(tmp_path):
    """Each answer says how many rows its copy had learned, and is, bit for bit, what a model of these rows says."""
    rows, asked = friedman(1500), [{"x0": 0.3, "x1": 0.6, "x2": 0.1, "x3": 0.9, "x4": 0.5}]
    size = 50
    expected, bare = {}, SGBRegressor(**SMALL)
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        columns = {f"x{j}": [row[f"x{j}"] for row in part] for j in range(5)}
        bare.learn(pa.table(columns), np.array([row["y"] for row in part]))
        expected[start + size] = bare.predict(asked).tolist()[0]
    with serving(tmp_path / "m", SGBRegressor(**SMALL)) as served:
        served.learn(rows[:size])
        served.catch_up()
        seen, done = [], threading.Event()

        def watch(n):
            with httpx.Client(base_url=served.running.url, timeout=180) as client:
                while not done.is_set():
                    said = client.post("/predict", json={"rows": asked * n}).json()
                    seen.extend((said["model_rows"], one) for one in said["predictions"])

        threads = [threading.Thread(target=watch, args=(n,)) for n in (1, 1, 30)]  # at once, and in a thread
        for thread in threads:
            thread.start()
        for start in range(size, len(rows), size):
            served.learn(rows[start : start + size])
            if start % 250 == 0:  # now and then a copy is waited for, for they are made when there is time
                wait_for(lambda n=start + size: (n, expected[n]) in seen)
        served.catch_up()
        wait_for(lambda: seen[-1][0] == len(rows))
        done.set()
        for thread in threads:
            thread.join()
    assert len({n for n, _ in seen}) > 3
    assert all(expected[n] == said for n, said in seen)


def test_a_copy_is_gone_when_nobody_predicts_with_it_any_more_and_needs_no_collector(tmp_path):
    table = pa.Table.from_pylist(friedman(200))
    with LiveModel(tmp_path / "m", SGBRegressor(**SMALL), target="y") as live:
        live.learn(table)
        writer = Writer(live, list)
        in_use = writer.published
        kept, seen = weakref.ref(in_use.model), []
        gc.disable()
        try:
            writer.start()
            for _ in range(5):
                number = writer.published.number
                writer.submit(lambda: live.learn(table)).result()
                wait_for(lambda number=number: writer.published.number > number)
                seen.append(weakref.ref(writer.published.model))
            writer.stop()
            assert [copied() is None for copied in seen] == [True] * 4 + [False]
            assert kept().predict_one({"x0": 0.5}) == in_use.model.predict_one({"x0": 0.5})
            del in_use
            assert kept() is None
        finally:
            gc.enable()


def test_the_writer_does_what_waits_together_but_never_past_something_else_or_too_many_rows():
    done = []

    def together(given):
        done.append(list(given))
        return [ValueError("not this one") if one == "bad" else one.upper() for one in given]

    writer = Writer(idle(SimpleNamespace()), together)
    jobs = [writer.submit(None, name, 300) for name in ("a", "bad", "c", "d")]  # the fourth is too many
    alone = writer.submit(lambda: done.append("alone"))
    jobs += [writer.submit(None, name, n) for name, n in (("e", 5000), ("f", 1), ("g", 1))]
    cancelled = writer.submit(None, "nobody waits for it", 1)
    assert cancelled.cancel()
    assert writer.n_waiting == 9
    writer.start()
    writer.stop()
    assert done == [["a", "bad", "c"], ["d"], "alone", ["e"], ["f", "g"]]
    assert alone.done()
    assert [job.result() for job in jobs if job is not jobs[1]] == ["A", "C", "D", "E", "F", "G"]
    with pytest.raises(ValueError, match="not this one"):
        jobs[1].result()


def test_requests_that_wait_are_learned_together_and_a_bad_one_among_them_is_refused_alone(regression):
    rows = friedman(200)
    live, held, entered, groups = regression.live, threading.Event(), threading.Event(), []
    learn, learn_together = live.learn, live.learn_together

    def slow(table, **more):
        entered.set()
        assert held.wait(300)
        return learn(table, **more)

    def watched(tables, ids):
        learned = learn_together(tables, ids)
        groups.append(len(tables))
        return learned

    live.learn, live.learn_together = slow, watched
    bodies = [{"rows": rows[i : i + 20], "id": f"rows {i}"} for i in range(0, 200, 20)]
    bodies[4] = {"rows": [{**rows[0], "x0": "text"}]}  # in a column of numbers
    bodies[6]["rows"] = [{**row, "x0": int(10 * row["x0"])} for row in bodies[6]["rows"]]  # which are numbers as well
    answers = [None] * len(bodies)

    def send(i):
        answers[i] = regression.post("/learn", json=bodies[i])

    threads = [threading.Thread(target=send, args=(i,)) for i in range(len(bodies))]
    for i, thread in enumerate(threads):
        thread.start()
        assert entered.wait(180)
        wait_for(lambda i=i: f"streamboost_queue_length {float(i)}" in regression.get("/metrics").text)  # in this order
    held.set()
    for thread in threads:
        thread.join()
    assert [answer.status_code for answer in answers] == [200] * 4 + [422] + [200] * 5
    assert "text" in answers[4].json()["error"]
    assert all(answer.json()["learned"] == 20 for answer in answers if answer.status_code == 200)
    good = [row for i, body in enumerate(bodies) if i != 4 for row in body["rows"]]
    X = pa.Table.from_pylist([{name: float(value) for name, value in row.items()} for row in good])
    expected = SGBRegressor(**SMALL)
    expected.learn(X.drop_columns(["y"]), X["y"].to_numpy())
    assert same_as(live.model) == same_as(expected)
    assert groups == [2, 3], "those next to each other that are alike"


def learned_behind(served, bodies):
    """The answers to requests to learn that came, in this order, while the writer was busy with something else."""
    held, entered, checkpoint = threading.Event(), threading.Event(), served.live.checkpoint

    def slow():
        entered.set()
        assert held.wait(300)
        return checkpoint()

    served.live.checkpoint = slow
    with ThreadPoolExecutor(len(bodies) + 1) as threads:
        threads.submit(served.post, "/checkpoint")
        assert entered.wait(180)
        answers = []
        for n, body in enumerate(bodies, start=1):
            answers.append(threads.submit(served.post, "/learn", json=body))
            wait_for(lambda n=n: numbers(served)["streamboost_queue_length"] == n)
        held.set()
        served.live.checkpoint = checkpoint
        return [answer.result(180) for answer in answers]


def one_row(name, id):
    return {"row": {name: 1.0}, "targets": [2.0], "id": id}


GROUPS = {  # names of columns, one a request; the request whose id another used before
    "one of many, the last": ("aaaaa", 4),
    "one of many, in the middle": ("aaaaa", 2),
    "the first": ("aaa", 0),
    "unlike columns": ("aabb", 3),
    "unlike columns each": ("abab", 1),
}


@pytest.mark.parametrize("group", GROUPS)
def test_of_requests_learned_together_each_gets_its_own_answer(regression, group):
    names, bad = GROUPS[group]
    regression.post("/label", json={"labels": [{"key": "k", "target": 1.0}], "id": "used"})
    bodies = [one_row(name, "used" if i == bad else f"id {i}") for i, name in enumerate(names)]
    answers = learned_behind(regression, bodies)
    assert [answer.status_code for answer in answers] == [422 if i == bad else 200 for i in range(len(names))]
    assert "'used'" in answers[bad].json()["error"]
    assert regression.live.rows == len(names) - 1
    again = [regression.post("/learn", json=body) for i, body in enumerate(bodies) if i != bad]
    assert all(answer.json()["repeated"] for answer in again), "what was answered with 200 was learned"


@pytest.mark.parametrize(("names", "learned"), [("aabb", 2), ("aab", 2), ("abb", 1), ("aaaabb", 4)])
def test_a_disk_that_fails_midway_is_told_only_to_those_it_concerns(regression, names, learned):
    """Those with a column "b" come after the others; from the first of them on the disk is full."""
    live, full = regression.live, pytest.MonkeyPatch()
    learn, learn_together = live.learn, live.learn_together

    def learn_until_b(table, id):
        return fail() if "b" in table.column_names else learn(table, id=id)

    def learn_together_until_b(tables, ids):
        return fail() if "b" in tables[0].column_names else learn_together(tables, ids)

    full.setattr(live, "learn", learn_until_b)
    full.setattr(live, "learn_together", learn_together_until_b)
    bodies = [one_row(name, f"id {i}") for i, name in enumerate(names)]
    answers = learned_behind(regression, bodies)
    assert [answer.status_code for answer in answers] == [200] * learned + [503] * (len(names) - learned)
    assert live.rows == learned
    full.undo()
    again = [regression.post("/learn", json=body).json()["repeated"] for body in bodies]
    assert again == [True] * learned + [False] * (len(names) - learned)
    assert live.rows == len(names)


def test_a_copy_that_cannot_be_made_is_made_later_and_the_older_one_predicts_meanwhile(regression, monkeypatch):
    regression.learn(friedman(50))
    regression.catch_up()

    def too_large(*_):
        raise MemoryError("no room")

    with pytest.MonkeyPatch.context() as crowded:
        crowded.setattr(Writer, "_copy", too_large)
        regression.learn(friedman(20, seed=1))
        wait_for(lambda: regression.get("/healthz").status_code == 503)
        assert "no room" in regression.get("/healthz").json()["error"]
        regression.learn(friedman(20, seed=2))
        said = regression.post("/predict", json={"row": {"x0": 0.5}}).json()
        assert said["model_rows"] == 50
    wait_for(lambda: regression.get("/healthz").json() == {"status": "ok", "rows": 90})
    assert regression.post("/predict", json={"row": {"x0": 0.5}}).json()["model_rows"] == 90


def work_through(writer, now):
    """Let a writer do 500 jobs of 20 ms each, by a clock that is told so."""

    def work():
        now[0] += 0.02

    jobs = [writer.submit(work) for _ in range(500)]
    writer.start()
    for job in jobs:
        job.result(180)
    writer.stop()


def idle(model):
    """A live model that has nothing to do."""
    nothing = {"expire": lambda limit: 0, "last_checkpoint_error": None, "is_inconsistent": False}
    return SimpleNamespace(model=model, rows=0, **nothing)


def test_copies_that_fail_are_tried_about_once_a_second():
    now, tried = [0.0], []
    writer = Writer(idle(SimpleNamespace()), list, waiting=1000, clock=lambda: now[0])

    def no_copy(number):
        tried.append(now[0])
        raise MemoryError

    writer._copy = no_copy
    work_through(writer, now)
    assert 9 <= len(tried) <= 12
    assert np.diff(tried[:-1]).min() >= 1.0 - 1e-9  # the last is tried at the end, whatever was before


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_writer_that_died_refuses_at_once_what_waits_and_what_comes(regression):
    entered, held = threading.Event(), threading.Event()

    def die(limit):
        entered.set()
        assert held.wait(300)
        raise SystemExit

    regression.live.expire = die
    assert entered.wait(180)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(regression.post, "/learn", json={"rows": friedman(5)}, timeout=180)
        wait_for(lambda: numbers(regression)["streamboost_queue_length"] == 1)
        held.set()
        answers = [waiting.result(180)]
    answers += [regression.post(path, json=body, timeout=180) for path, body in (REQUESTS["learn"], REQUESTS["label"])]
    assert [answer.status_code for answer in answers] == [503] * 3
    assert all("retry-after" in answer.headers for answer in answers)
    assert regression.get("/healthz").status_code == 503
    assert regression.live.rows == 0


def test_copies_take_no_more_than_their_share_of_the_writers_time():
    """The clock is told what copying costs: of a busy writer's time a twentieth is spent on it, or one a second."""
    for cost, most in ((0.01, 0.05), (0.5, 0.5)):
        now = [0.0]
        writer = Writer(idle(Costly(now, cost)), list, waiting=1000, clock=lambda now=now: now[0])
        work_through(writer, now)
        spent = cost * writer.published.number
        assert 0.05 * most < spent / now[0] <= most * 1.05


class Costly:
    """A model that takes its time to be copied."""

    def __init__(self, now, cost):
        self.now, self.cost = now, cost

    def __deepcopy__(self, memo):
        self.now[0] += self.cost
        return self
