"""Random traffic against a server that is killed again and again; see ``chaos.py``."""

import json
import os

import chaos
import pytest
from started import lines_of


def ran(directory, seconds):
    return json.loads(lines_of(chaos.__file__, directory, seconds, log=directory / "said", seconds=seconds)[-1])


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
