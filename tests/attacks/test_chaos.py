"""Random traffic against a server that is killed again and again; see ``chaos.py``."""

import json
import os
import subprocess
import sys
from pathlib import Path

import chaos
import pytest


def ran(directory, seconds):
    command = [sys.executable, chaos.__file__, str(directory), str(seconds)]
    paths = os.pathsep.join([str(Path(chaos.__file__).parent), os.environ.get("PYTHONPATH", "")])
    environment, longest = {**os.environ, "PYTHONPATH": paths}, seconds + 600
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=longest, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


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
