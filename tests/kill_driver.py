"""Run a command in a child, kill it with SIGKILL at a random moment, resume it, and so on until it comes to its end.

``python kill_driver.py SEED MOST SMALL COMMAND...`` prints how often it killed. A child is killed soon after its start,
or a moment after it has written 1 to MOST checkpoints. It does not finish another one before: where it would, it waits
for its end, so that there are as many kills when this process is kept from running for a while. It is forked from a
process that has everything imported and compiled: it dies at work and not while it starts. SMALL names modules that
make something small, with commas between them: ``tiles``, so that checkpoints have segments as those of longer memories
do, ``growth``, so that memories grow, ``chunks``; or it is empty.
"""

import importlib
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path


def number(path: Path) -> int:
    """The number of a checkpoint, 0 for other files."""
    return int(path.name[11:19]) if path.match("checkpoint-*.safetensors") else 0


def newest(directory: Path) -> int:
    """The number of the newest checkpoint."""
    return max(map(number, directory.glob("*")), default=0)


def stay_within(goal: int) -> None:
    """Let no checkpoint after the goal come into being: wait for the end instead."""

    def wait(event: str, args: tuple) -> None:
        if event == "os.rename" and number(Path(os.fsdecode(args[1]))) > goal:
            time.sleep(600)
            os._exit(3)

    sys.addaudithook(wait)


def main(seed: int, most: int, small: str, words: list[str]) -> int:
    from streamboost.cli import main as command

    for name in filter(None, small.split(",")):
        importlib.import_module(f"small_{name}").shrink()

    with tempfile.TemporaryDirectory() as directory:  # compile before forking
        warm = ["run", "synthetic:friedman", "--target", "y", "--max-rows", "600", "-q", "--json"]
        assert command([*warm, "--model", f"{directory}/m"]) == 0
    directory = Path(words[words.index("--model") + 1])
    rng, kills = random.Random(seed), 0
    while True:
        goal = newest(directory) + rng.randint(0, most)
        child = os.fork()
        if child == 0:
            stay_within(goal)
            os._exit(command(words))
        ends = time.monotonic() + (rng.uniform(0.02, 0.3) if newest(directory) >= goal else 60.0)
        while True:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                print(f"kills: {kills}", flush=True)
                return os.waitstatus_to_exitcode(status)
            if ends - time.monotonic() > 1.0 and newest(directory) >= goal:
                ends = time.monotonic() + rng.uniform(0.0, 0.02)
            if time.monotonic() >= ends:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                kills += 1
                break
            time.sleep(0.001)


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:]))
