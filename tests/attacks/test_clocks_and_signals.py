"""Clocks that jump, terminals that go away, text that would steer a terminal, and starts that take long."""

import logging
import re
import signal
import socket
import time
from contextlib import suppress

import httpx
import pyarrow as pa
import pytest
from live_models import crash, features, regressor, rows_of
from started import PATIENCE, Started

from streamboost import SGBRegressor
from streamboost.cli.display import terminal
from streamboost.live import LiveModel, steady_clock
from streamboost.live import model as live_module
from streamboost.persistence.checkpoints import read_latest
from streamboost.terminal_text import EscapingFormatter, escaped

YEARS = 5 * 365.0 * 86_400


class Machine:
    """The two clocks of a machine."""

    def __init__(self, monkeypatch, now=1.7e9):
        self.wall, self.since = now, 50.0
        monkeypatch.setattr(steady_clock.time, "time", lambda: self.wall)
        monkeypatch.setattr(steady_clock.time, "monotonic", lambda: self.since)

    def wait(self, seconds):
        self.wall, self.since = self.wall + seconds, self.since + seconds


@pytest.mark.parametrize("jump", [YEARS, -YEARS])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_clock_that_jumps_expires_nothing_and_holds_nothing_up(tmp_path, monkeypatch, caplog, jump, restarts):
    machine = Machine(monkeypatch)
    live = LiveModel(tmp_path / "live", regressor(), expire_after=600.0, default=0.0, durable=False)
    live.remember(["a"], features((1.0, "x")))
    machine.wait(100)
    live.remember(["b"], features((2.0, "x")))
    machine.wall += jump
    if restarts:
        live = LiveModel(crash(live, tmp_path), expire_after=600.0, default=0.0, durable=False)
        assert "The journal's is believed" in caplog.text
    assert live.expire() == 0
    assert live.label(["b"], [1.0])[:2] == (1, 0)
    machine.wait(499)
    assert live.expire() == 0
    machine.wait(2)
    assert live.expire() == 1
    live.close()


def test_a_pause_that_may_be_true_is_believed(tmp_path, monkeypatch):
    machine = Machine(monkeypatch)
    live = LiveModel(tmp_path / "live", regressor(), expire_after=600.0, default=0.0, durable=False)
    live.remember(["a"], features((1.0, "x")))
    directory = crash(live, tmp_path)
    machine.wait(86_400)
    live = LiveModel(directory, expire_after=600.0, default=0.0, durable=False)
    assert live.expire() == 1
    live.close()


@pytest.mark.parametrize("name", ["REPLAY_ENTRIES", "REPLAY_BYTES"])
def test_checkpoints_come_by_requests_and_by_bytes_too(tmp_path, monkeypatch, name):
    monkeypatch.setattr(live_module, name, {"REPLAY_ENTRIES": 10, "REPLAY_BYTES": 10 * rows_of(3).nbytes}[name])
    live, seen = LiveModel(tmp_path / "live", regressor(), durable=False), []
    for seed in range(25):
        live.learn(rows_of(3, seed))
    assert read_latest(live.directory).rows >= 60
    LiveModel(crash(live, tmp_path), on_replay=lambda n, of: seen.append((n, of))).close()
    assert seen == [(n, len(seen)) for n in range(len(seen))]
    assert len(seen) <= 10


def test_text_that_would_steer_a_terminal_is_written_out(capsys):
    hostile = "a\x1b[2J\x9b31m\r\x07\u202eb"
    console = terminal()
    console.print(f"column {hostile}", soft_wrap=True)
    printed = capsys.readouterr().out
    assert escaped(hostile) in printed.replace("\n", "")
    assert not set(printed) & set("\x1b\x9b\r\x07\u202e")
    record = logging.LogRecord("x", logging.ERROR, "", 0, "row %s", (hostile,), None)
    assert EscapingFormatter().format(record) == r"row a\x1b[2J\x9b31m\r\x07\u202eb"
    assert escaped("plain\ttext\n") == "plain\ttext\n"


SERVER = """
import sys, time
from streamboost import SGBRegressor
from streamboost.serving import serve
if len(sys.argv) > 2:
    learn = SGBRegressor.learn_prepared
    def slow(self, prepared):
        time.sleep(float(sys.argv[2]))
        return learn(self, prepared)
    SGBRegressor.learn_prepared = slow
model = SGBRegressor(n_estimators=4, max_depth=3, memory=64, new_columns="grow", random_state=0)
sys.exit(serve(sys.argv[1], port=int(sys.argv[3]) if len(sys.argv) > 3 else 0, model=model, target="y"))
"""


def test_a_terminal_that_goes_away_ends_a_server_with_a_checkpoint(tmp_path):
    with Started(SERVER, tmp_path / "m", log=tmp_path / "log") as process:
        rows = {"rows": [{"a": 1.0, "y": 2.0}] * 7}
        httpx.post(f"{process.address()}/learn", json=rows, timeout=PATIENCE).raise_for_status()
        assert process.end(signal.SIGHUP) == 0
        assert "ended with a checkpoint at 7 rows" in process.said()
    assert read_latest(tmp_path / "m" / "live").rows == 7


def test_a_server_that_learns_its_journal_again_lives_and_says_how_far_it_is(tmp_path):
    live = LiveModel(tmp_path / "m" / "live", SGBRegressor(n_estimators=4, new_columns="grow"), target="y")
    for i in range(60):
        live.learn(pa.table({"a": [float(i)], "y": [1.0]}))
    live._let_go()  # as if it had been killed
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    seconds = 2  # for an entry: there is time to ask, and not for all of them
    with (
        Started(SERVER, tmp_path / "m", seconds, port, log=tmp_path / "log") as process,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as client,
    ):
        deadline, told = time.monotonic() + PATIENCE, None
        while told is None or "learned again" not in told.text:
            assert process.poll() is None, process.said()
            assert time.monotonic() < deadline
            time.sleep(0.02)
            with suppress(httpx.TransportError):
                told = client.get("/readyz")
        assert (told.status_code, told.json()["status"]) == (503, "starting")
        assert re.search(r"\d+ of 60 entries are done", told.json()["error"])
        assert client.get("/livez").json() == {"status": "ok"}
        refused = client.post("/predict", json={"row": {"a": 1.0}})
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert process.end(signal.SIGTERM) == 0
        assert "nothing was changed" in process.said()
    with LiveModel(tmp_path / "m" / "live") as again:
        assert again.rows == 60
