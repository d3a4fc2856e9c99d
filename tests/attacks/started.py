"""A server in a process of its own. Nothing here waits for ever, and nothing is left behind."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

PATIENCE = 300  # seconds: a busy machine is slow, and what hangs has to end


class Started(subprocess.Popen):
    """Python that runs a script; what it says goes to a file, so that it never waits for a reader."""

    def __init__(self, script, *arguments, log):
        self.log = log
        with log.open("wb") as file:
            super().__init__([sys.executable, "-c", script, *map(str, arguments)], stderr=file)

    def said(self):
        return self.log.read_text()

    def address(self):
        """The address of its server, once that serves."""
        deadline = time.monotonic() + PATIENCE
        while not (found := re.search(r"serving (http://\S+?)/? ", self.said())):
            assert self.poll() is None, self.said()
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.02)
        return found[1]

    def end(self, number):
        """How it ended after a signal."""
        self.send_signal(number)
        return self.wait(PATIENCE)

    def __exit__(self, *failure):
        self.kill()
        super().__exit__(*failure)


def lines_of(program, *arguments, log, seconds=0.0):
    """What a program beside the tests printed; when our patience is at an end, so is it, with its children."""
    paths = os.pathsep.join([str(Path(program).parent), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(program), *map(str, arguments)]
    with (
        log.open("wb") as file,
        subprocess.Popen(
            command,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": paths},
            start_new_session=True,
        ) as process,
    ):
        try:
            code = process.wait(seconds + 2 * PATIENCE)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert code == 0, log.read_text()
    return log.read_text().splitlines()
