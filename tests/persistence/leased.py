"""A process that writes checkpoints until it is told to stop, for tests that pause and kill it: DIRECTORY SECONDS."""

import sys

from streamboost.errors import LeaseLost
from streamboost.persistence import lease
from streamboost.persistence.checkpoints import Checkpoint, CheckpointStore

if __name__ == "__main__":
    lease.SECONDS = float(sys.argv[2])
    try:
        with CheckpointStore(sys.argv[1]) as store:
            for number in range(10**9):
                store.save(Checkpoint({"of": sys.argv[3], "number": number}, rows=number))
                print(number, flush=True)
                if not sys.stdin.readline():
                    break
    except (LeaseLost, BlockingIOError) as error:
        print(type(error).__name__, error, flush=True)
