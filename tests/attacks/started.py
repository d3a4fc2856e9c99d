"""A server in a process of its own. Nothing here waits for ever, and nothing is left behind."""

import re
import subprocess
import sys
import time

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
