"""``streamboost warmup`` says where it left what; that a new process then compiles nothing is tried by the newcomer."""

import os
import subprocess
import sys

import numba
import pytest

from streamboost.cli import main
from streamboost.kernels import caching

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")


def test_warmup_says_where_compiled_code_is_kept(capsys):
    assert main(["warmup"]) == 0
    out, err = capsys.readouterr()
    (where,) = {str(folder) for folder in caching.folders_used}
    assert out == f"Compiled code is kept in {where}\n"
    assert "1 of 2: models of trees" in err


def test_a_warmup_that_keeps_nothing_fails(monkeypatch, capsys):
    monkeypatch.setattr("streamboost.cli.warmup_command._trees", lambda: caching.folders_used.add(None))
    monkeypatch.setattr(caching, "folders_used", set())
    assert main(["warmup"]) == 1
    assert "could not be kept. Set NUMBA_CACHE_DIR" in capsys.readouterr().err


def test_two_processes_warm_up_as_one_does():
    program = [sys.executable, "-m", "streamboost", "warmup"]
    said = [
        subprocess.run([*program, "--jobs", jobs], env=os.environ, check=True, capture_output=True, text=True).stdout
        for jobs in "12"
    ]
    assert said[0] == said[1] != ""
