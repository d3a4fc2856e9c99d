"""A client, and a live model that is killed at any moment; the client sends again what was not answered.

``python killed_live.py DIR [grow]`` leaves DIR/straight, where nothing went wrong, and DIR/killed, and prints how often
it killed. The live model runs in a child made by fork, so that beginning again takes no time. With ``grow`` its memory
grows, and its checkpoints have segments.
"""

import contextlib
import importlib
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np

from streamboost import SGBRegressor

LEARN_PREPARED = SGBRegressor.learn_prepared
N_REQUESTS = 330
KEYS = 60
LATE = 3  # requests that may be answered while the one who kills comes


def moody(self, prepared):
    """Refuse a target, as no check can foresee."""
    if hasattr(self, "committee_") and 13.0 in prepared.targets.y:
        raise ValueError("13 brings bad luck.")
    return LEARN_PREPARED(self, prepared)


def new_model(memory):
    return SGBRegressor(n_estimators=5, max_depth=3, memory=memory, random_state=0, new_columns="grow")


def serve(directory, memory, start, answer):
    """Carry out the requests from a number on; answer each."""
    import pyarrow as pa  # its threads do not survive a fork

    from streamboost.live import LiveModel

    now = 0
    SGBRegressor.learn_prepared = moody
    live = LiveModel(
        directory,
        new_model(memory),
        checkpoint_every=50 if memory == "grow" else 150,
        expire_after=25.0,
        default=0.0,
        pending_limit=25,
        correct_within=80.0,
        durable=False,
        max_columns=4,
        clock=lambda: float(now),
    )
    for now in range(start, N_REQUESTS):
        rng = np.random.default_rng(now)
        n = int(rng.integers(1, 9))
        keys = [f"key {k}" for k in rng.choice(KEYS, n, replace=False)]
        X = pa.table({"a": rng.normal(size=n), "b": rng.choice(["x", "y"], n)})
        if (
            now % 5 in (1, 2) and rng.random() < 0.5
        ):  # a column that is of one kind now and of the other then, or too many
            X = X.append_column(f"c{rng.integers(5)}", pa.array([1.0 if rng.random() < 0.5 else "text"] * n))
        y = np.where(rng.random(n) < 0.02, np.nan, np.round(X["a"].to_numpy()))
        if now > 20 and rng.random() < 0.1:
            y[0] = 13.0
        id = f"request {now}"
        match now % 5:
            case 0:
                live.learn(X.append_column("target", pa.array(y)), id=id)
            case 1:
                with contextlib.suppress(ValueError):  # columns that do not fit
                    live.predict(X, keys, id=id)
            case 2:
                with contextlib.suppress(ValueError):
                    live.remember(keys, X, np.zeros(n), id=id)
            case 3:
                live.label(keys, y, id=id)
            case 4:
                live.expire() if now % 2 else live.label(keys, y + 1, id=id)
        answer(now)
    live.expire()
    live.close()


def run(directory, memory, start, patience):
    """Let a child serve, and kill it after so many answers; return how many requests are answered."""
    reader, writer = os.pipe()

    def answer(number):
        os.write(writer, b".")
        if number - start == patience + LATE:
            time.sleep(600)  # whoever kills is late: wait

    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reader)
            serve(directory, memory, start, answer)
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    answered = 0
    while answered < patience and os.read(reader, 1):
        answered += 1
    if answered == patience:
        time.sleep(random.random() ** 2 * 0.02)  # so that it is hit at any moment of the next request
        os.kill(child, signal.SIGKILL)
        while os.read(reader, 1):
            answered += 1
    os.close(reader)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status) and os.WEXITSTATUS(status):
        raise SystemExit(f"the live model failed at request {start + answered}")
    return start + answered, os.WIFSIGNALED(status)


def main(place, memory=256):
    random.seed(0)
    if memory == "grow":
        sys.path.append(str(Path(__file__).parents[1]))
        for name in ("small_tiles", "small_growth"):
            importlib.import_module(name).shrink()
    warm = new_model(memory)
    warm.learn(np.random.default_rng(0).normal(size=(600, 2)), np.zeros(600))  # kernels are loaded before the fork
    run(place / "straight", memory, 0, N_REQUESTS + 1)
    answered, kills = 0, 0
    while answered < N_REQUESTS:
        answered, was_killed = run(place / "killed", memory, answered, random.randint(0, 35))
        kills += was_killed
    print(kills, "kills")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
