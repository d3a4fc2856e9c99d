"""Damaged bodies in JSON and Arrow: the functions that read them take or refuse each, and the process goes on."""

import json
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


def test_every_body_is_taken_or_refused(request):
    n_bodies, n_processes = (100_000, 20) if request.config.getoption("--long") else (2_000, 1)

    def read(seed):
        command = [sys.executable, str(Path(__file__).parent / "bodies.py"), str(seed), str(n_bodies // n_processes)]
        return subprocess.run(command, capture_output=True, text=True, timeout=3600, check=False)

    told = Counter()
    with ThreadPoolExecutor(2) as pool:
        for done in pool.map(read, range(n_processes)):
            assert done.returncode == 0, done.stderr[-3000:]
            told += json.loads(done.stdout)
    print(dict(told))
    assert told.total() == n_bodies
    for outcome in ("JSON taken", "JSON refused", "Arrow taken", "Arrow refused"):  # else nothing is tried
        assert told[outcome] > n_bodies / 100, told
