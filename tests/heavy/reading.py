"""How the tests of brokers read: rows as numbers, whatever the batches they come in."""

import json


def xs(batches):
    return [int(x) for batch in batches for x in batch.table["x"].to_pylist()]


def gather(reading, n):
    """The next n rows, whatever the batches they come in."""
    rows = []
    while len(rows) < n:
        rows += xs([next(reading)])
    return rows


def once_waiting(act):
    """Asked whether to stop, act, the first time: by then the reader has found its place, and waits."""
    to_do = [act]

    def stop():
        if to_do:
            to_do.pop()()
        return False

    return stop


def stored(position):
    return json.loads(json.dumps(position))
