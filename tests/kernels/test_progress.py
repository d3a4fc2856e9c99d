"""Compiling is told where somebody watches, with what is still to come, and is no part of the pace."""

import io
import os
import pty
import subprocess
import sys
import threading
import time
from contextlib import suppress

import numba
import numpy as np
import pytest

from streamboost.evaluation.prequential import prequential
from streamboost.kernels import compiling, net_loop, progress, replay, tree_growing, tree_loop  # noqa: F401 - which have the long ones
from streamboost.kernels.progress import CompileClock, Stage, WorkMeter, WorkStage, clock, ignore

LEARNED = """
import numpy as np
from streamboost.kernels.compiling import compiled
from streamboost.kernels.progress import SECONDS, clock
import streamboost.kernels.compiling as compiling, sys
compiling.FILES.append(__import__("pathlib").Path(sys.argv[1]))
sys.path.insert(0, sys.argv[1].rpartition("/")[0])
import kernels_of_mine as mine
exec(sys.argv[2])
print("end", clock.seconds > 0, file=sys.stderr)
"""
BOTH = 'mine.learn_rows(1.0); print("between", file=sys.stderr); mine.score_rows(1.0)'
MINE = """
from streamboost.kernels.compiling import compiled

@compiled
def learn_rows(x):
    return x + 1.0

@compiled
def score_rows(x):
    return x + 2.0
"""


@pytest.fixture
def run(tmp_path):
    """Call two kernels, named as ours, in a new process; return what is said on its standard error."""
    (tmp_path / "kernels_of_mine.py").write_text(MINE)
    settings = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "kept")}

    def run(on_terminal, code=BOTH):
        words = [sys.executable, "-c", LEARNED, str(tmp_path / "kernels_of_mine.py"), code]
        if not on_terminal:
            return subprocess.run(words, env=settings, check=True, capture_output=True, text=True).stderr
        ours, theirs = pty.openpty()
        with subprocess.Popen(words, env=settings, stdout=subprocess.DEVNULL, stderr=theirs) as running:
            os.close(theirs)
            seen = b""
            with suppress(OSError):
                while part := os.read(ours, 65536):
                    seen += part
        os.close(ours)
        assert running.returncode == 0, seen
        return seen.decode()

    return run


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")
def test_a_terminal_is_told_once_and_what_is_no_terminal_never(run):
    first = run(on_terminal=True)
    assert "streamboost: compiling once, about 11 s" in first  # both
    assert "compiling once" in first.partition("between")[2]
    assert "compiled once, in" in first.partition("between")[2]
    assert "end True" in first
    assert "compil" not in run(on_terminal=True)  # kept
    assert "end False" in run(on_terminal=False)


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")
def test_to_predict_is_to_compile_no_more_than_that(run):
    assert "streamboost: compiling once, about 1 s" in run(on_terminal=True, code="mine.score_rows(1.0)")
    assert "streamboost: compiling once, about 10 s" in run(on_terminal=True)  # of both, one is kept


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")
def test_a_pipe_is_told_nothing(run):
    assert run(on_terminal=False).split() == ["between", "end", "True"]


def test_a_listener_is_told_of_the_whole_and_of_pauses(monkeypatch):
    monkeypatch.setattr(progress, "EVERY", 60.0)
    heard, made = [], CompileClock()
    with made.heard_by(heard.append):
        made.begin("learn_rows", ["grow"])
        made.end()
        made.begin("encode", [])  # small: nobody is told
        made.end()
        made.begin("grow", [])
        made.end()
        made.end()  # nothing was begun: loaded from disk
    first, pause, second, last = heard
    assert first.expected == progress.SECONDS["learn_rows"] + progress.SECONDS["grow"]
    assert pause is None
    assert second.expected == pytest.approx(progress.SECONDS["grow"], abs=1.0)
    assert last.is_over
    assert last.passed <= made.seconds


@pytest.mark.parametrize(
    ("module", "is_terminal", "is_told"),
    [("io", True, True), ("ipykernel.iostream", False, True), ("io", False, False), ("rich.file_proxy", True, False)],
)
def test_who_is_told(module, is_terminal, is_told, monkeypatch):
    stream = type("Stream", (io.StringIO,), {"__module__": module, "isatty": lambda self: is_terminal})()
    monkeypatch.setattr(sys, "stderr", stream)
    progress.say(Stage(2.0, 8.0))
    assert ("compiling once, about 8 s: 25 %" in stream.getvalue()) == is_told
    progress.say(None)
    assert stream.getvalue().strip() == ("streamboost: compiling once, about 8 s: 25 %" if is_told else "")


def test_the_pace_is_that_after_compiling(monkeypatch):
    class Slow:
        """Compiles for a hundred seconds at its first row, by the clock."""

        def learn(self, X, y):
            clock.seconds += 100.0
            now[0] += 101.0
            return y

        predict = None

    now = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(clock, "seconds", 0.0)
    model = Slow()
    model.predict = model.learn
    report = next(iter(prequential(model, (np.ones((4, 1)), np.ones(4)), task="regression", metrics=["mae"], every=4)))
    assert (report.seconds, report.rows_per_second) == (1.0, 4.0)


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")
def test_what_compiles_together_is_there_under_these_names():
    names = {name for names in progress.TOGETHER for name in names}
    assert names == set(progress.SECONDS)
    assert {name: kernel.__name__ for name, kernel in compiling._long.items()} == {name: name for name in names}


@pytest.fixture
def soon(monkeypatch):
    """Work is told of at once, and often."""
    monkeypatch.setattr(progress, "DELAY", 0.01)
    monkeypatch.setattr(progress, "EVERY", 0.01)


def wait_for(heard, n):
    for _ in range(1000):
        if len(heard) >= n:
            return
        time.sleep(0.01)


def test_long_work_is_told_stage_by_stage_and_wiped_in_the_end(soon):
    heard, done = [], [0]

    def work(meter):
        meter.begin("learning 4 rows", 4, lambda: done[0])
        wait_for(heard, 1)
        done[0] = 2
        wait_for(heard, len(heard) + 2)
        meter.begin("sweeping over 4 rows")
        meter.count(3, 4)
        wait_for(heard, len(heard) + 2)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), clock.heard_by(heard.append), WorkMeter() as meter:
        work(meter)
    told = [text for text in dict.fromkeys(map(str, heard)) if text != "sweeping over 4 rows: 0 %"]
    assert told == ["learning 4 rows: 0 %", "learning 4 rows: 50 %", "sweeping over 4 rows: 75 %", "None"]
    assert heard.count(None) == 1


def test_short_work_is_not_told(monkeypatch):
    heard = []
    with clock.heard_by(heard.append), WorkMeter() as meter:
        meter.begin("learning 4 rows", 4)
    assert heard == []


def test_where_nobody_watches_no_thread_looks(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    n_threads = threading.active_count()
    with WorkMeter():
        assert threading.active_count() == n_threads
    with clock.heard_by(ignore), WorkMeter():
        assert threading.active_count() == n_threads


def test_one_of_several_tells(soon):
    heard = []
    with clock.heard_by(heard.append), WorkMeter() as first, WorkMeter() as second:
        first.begin("first")
        second.begin("second")
        wait_for(heard, 3)
    assert {stage.what for stage in heard if stage is not None} == {"first"}


def test_a_terminal_has_one_line_that_is_wiped(monkeypatch):
    stream = type("Stream", (io.StringIO,), {"isatty": lambda self: True})()
    monkeypatch.setattr(sys, "stderr", stream)
    progress.say(WorkStage("sweeping over 1,048,576 rows", 999, 1000))
    progress.say(None)
    said = stream.getvalue()
    assert said.split("\r")[1].rstrip() == "streamboost: sweeping over 1,048,576 rows: 99 %"
    assert said.endswith("\r" + " " * progress.WIDTH + "\r")
    assert "\n" not in said
