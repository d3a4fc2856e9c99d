"""Random traffic against a server that is killed again and again; see ``chaos.py``."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import chaos
import pytest


def ran(directory, seconds):
    command = [sys.executable, chaos.__file__, str(directory), str(seconds)]
    paths = os.pathsep.join([str(Path(chaos.__file__).parent), os.environ.get("PYTHONPATH", "")])
    said, longest = directory / "said", seconds + 600
    with (
        said.open("wb") as file,
        subprocess.Popen(
            command,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": paths},
            start_new_session=True,
        ) as process,
    ):
        try:
            code = process.wait(longest)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # the server with it
    assert code == 0, said.read_text()
    return json.loads(said.read_text().splitlines()[-1])


def test_a_model_that_was_killed_again_and_again_is_that_of_a_calm_run(tmp_path):
    counted = ran(tmp_path, 12)
    assert counted["same"]
    assert min(counted["kills"], counted["taken"]) > 0


@pytest.mark.long
def test_an_hour_of_chaos_ends_in_the_model_of_a_calm_run(tmp_path):
    """How long it is, ``STREAMBOOST_CHAOS_SECONDS`` says."""
    counted = ran(tmp_path, float(os.environ.get("STREAMBOOST_CHAOS_SECONDS", "3600")))
    assert counted["same"]
    assert counted["kills"] > 20
