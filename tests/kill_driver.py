"""Run a command in a child, kill it with SIGKILL at a random moment, resume it, and so on until it comes to its end.

``python kill_driver.py SEED LONGEST COMMAND...`` prints how often it killed. The child is forked from a process that
has everything imported and compiled, so that it is killed at work and not while it starts.
"""

import os
import random
import signal
import sys
import tempfile
import time


def main(seed: int, longest: float, words: list[str]) -> int:
    from streamboost.cli import main as command

    with tempfile.TemporaryDirectory() as directory:  # compile before forking
        warm = ["run", "synthetic:friedman", "--target", "y", "--max-rows", "600", "-q", "--json"]
        assert command([*warm, "--model", f"{directory}/m"]) == 0
    rng = random.Random(seed)
    kills = 0
    while True:
        child = os.fork()
        if child == 0:
            os._exit(command(words))
        ends = time.monotonic() + rng.uniform(0.01, longest)
        while True:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                print(f"kills: {kills}", flush=True)
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() >= ends:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                kills += 1
                break
            time.sleep(0.001)


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
