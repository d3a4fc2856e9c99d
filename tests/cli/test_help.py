"""What the program says before it does anything, and that it says it without what it would need to do it."""

import os
import subprocess
import sys

import pytest

from streamboost.cli.app import app
from streamboost.cli.arguments import METRICS
from streamboost.metrics import BY_NAME

COMMANDS = sorted(command.name or command.callback.__name__ for command in app.registered_commands)
COMMANDS.remove("paper")  # whose words are for the experiments
HEAVY = {"numpy", "numba", "sklearn", "scipy", "pyarrow", "safetensors", "starlette", "msgspec", "asyncio"}


def asked(*words, **settings):
    """What a fresh process says, and the modules it has then."""
    code = (
        "import sys; from streamboost.cli import main\n"
        "try: main(sys.argv[1:])\nexcept SystemExit: pass\n"
        "finally: sys.stdout.flush(); print('\\0', *sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=True,
        env={**os.environ, "COLUMNS": "100", "TERM": "dumb"} | settings,
    )  # fmt: skip
    said, _, modules = done.stdout.partition("\0")
    return said + done.stderr, set(modules.split())


@pytest.mark.parametrize("words", [["--version"], ["--help"], [], ["nothing"], *([name, "-h"] for name in COMMANDS)])
def test_nothing_heavy_is_imported_to_say_what_there_is(words):
    said, modules = asked(*words)
    assert said.strip()
    assert "streamboost.cli.app" in modules
    assert not modules & HEAVY


def test_the_metrics_that_are_named_are_those_there_are():
    assert tuple(BY_NAME) == METRICS
