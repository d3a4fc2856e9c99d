"""Compiles the kernels that many tests call, each once, before the workers of a test run would all compile the same.

    python tests/compile_kernels.py

What is compiled is kept under a digest of all files of ``streamboost/kernels``: beside them, or in
``NUMBA_CACHE_DIR`` if that is set. One folder for all runs is enough: a change of any of these files compiles anew.
"""

from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any

from streamboost import SGBClassifier, SGBRegressor, datasets
from streamboost.stacks import ConvStack, TwoLayerStack

X, y, *_ = datasets.friedman(300)


def trees() -> None:
    """Compile the loop of the defaults, and trees, lines and bases as they are called without it."""
    for model, target in ((SGBRegressor(), y), (SGBClassifier(), y > y.mean()), (SGBRegressor(learner="linear"), y)):
        model.learn(X, target)
        model.predict(X)


def networks(make: Any) -> None:
    """Compile the loop of networks, and what their stacks call without it."""
    model = SGBRegressor(learner=make())
    model.learn(X, y)
    model.predict(X)


if __name__ == "__main__":
    kinds = [partial(TwoLayerStack, 2, 3), partial(ConvStack, (2, 5), 2, channels=2, kernel=2)]
    jobs = [partial(networks, partial(kind, dtype=dtype)) for kind in kinds for dtype in ("float32", "float64")]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for done in [pool.submit(job) for job in (trees, *jobs)]:
            done.result()
