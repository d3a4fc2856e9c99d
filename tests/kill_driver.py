"""Run a command in a child, kill it with SIGKILL at a random moment, resume it, and so on until it comes to its end.

``python kill_driver.py SEED MOST COMMAND...`` prints how often it killed. A child is killed soon after its start, or a
moment after it has written 1 to MOST checkpoints, so that there are many kills on a fast machine as on a slow one. It
is forked from a process that has everything imported and compiled: it dies at work and not while it starts.
"""

import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path


def newest(directory: Path) -> int:
    """The number of the newest checkpoint."""
    return max((int(path.name[11:19]) for path in directory.glob("checkpoint-*.safetensors")), default=0)


def main(seed: int, most: int, words: list[str]) -> int:
    from streamboost.cli import main as command

    with tempfile.TemporaryDirectory() as directory:  # compile before forking
        warm = ["run", "synthetic:friedman", "--target", "y", "--max-rows", "600", "-q", "--json"]
        assert command([*warm, "--model", f"{directory}/m"]) == 0
    directory = Path(words[words.index("--model") + 1])
    rng, kills = random.Random(seed), 0
    while True:
        goal = newest(directory) + rng.randint(0, most)
        child = os.fork()
        if child == 0:
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
    raise SystemExit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
