"""``streamboost warmup``: compile everything once, as an image is built, or before a first use that must not wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from streamboost.cli.arguments import flag, option
from streamboost.cli.display import terminal
from streamboost.kernels.progress import clock

Dtype = Literal["float32", "float64"]
DTYPES: tuple[Dtype, ...] = get_args(Dtype)


def warmup(
    networks: Annotated[
        bool, flag('Also what networks need: learner="mlp", in both precisions, and convolutions.', "--networks")
    ] = False,
    jobs: Annotated[int, option("Processes that compile side by side; of use with --networks.", "N", min=1)] = 1,
) -> None:
    """Compile everything that models need, once; later processes load it. For images: as root, before USER."""
    steps: dict[str, Callable[[], None]] = {"models of trees": _trees, "linear models": _lines, "the rest": _rest}
    if networks:
        steps |= {f"networks, {dtype}": partial(_networks, dtype) for dtype in DTYPES}
        steps |= {f"convolutions, {dtype}": partial(_convolutions, dtype) for dtype in DTYPES}
    console, begin = terminal(stderr=True), time.monotonic()
    folders: set[Path | None] = set()
    what = f"compiling: {', '.join(steps)}"
    with console.status(what) as status, clock.heard_by(lambda stage: status.update(f"{what}; {stage or ''}")):
        for n, (name, kept_in) in enumerate(_compile(steps, jobs), start=1):
            folders |= kept_in
            console.print(f"{n} of {len(steps)}: {name} ({time.monotonic() - begin:.0f} s)")
    if None in folders:
        raise OSError("What was compiled could not be kept. Set NUMBA_CACHE_DIR to a folder this user can write to.")
    print(f"Compiled code is kept in {', '.join(sorted(map(str, folders)))}")


def _compile(steps: dict[str, Callable[[], None]], jobs: int) -> Iterator[tuple[str, set[Path | None]]]:
    """Yield the name of each step once it is done, and where what it compiled is kept."""
    if jobs == 1:
        for name, step in steps.items():
            yield name, _folders_of(step)
        return
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from multiprocessing import get_context

    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        names = {pool.submit(_folders_of, step): name for name, step in steps.items()}
        for done in as_completed(names):
            yield names[done], done.result()


def _folders_of(step: Callable[[], None]) -> set[Path | None]:
    from streamboost.kernels import caching

    step()
    return caching.folders_used


def _trees() -> None:
    """Learn and predict numbers, two classes and three, in chunks and row by row, all with the defaults."""
    import numpy as np

    from streamboost import SGBClassifier, SGBRegressor

    X, y = _rows()
    classes = np.digitize(y, np.quantile(y, [0.33, 0.67]))
    models: list[tuple[Any, Any]] = [(SGBRegressor(), y), (SGBClassifier(), classes // 2), (SGBClassifier(), classes)]
    for model, target in models:
        model.learn(X, target)
        model.learn_one({0: 0.5, 1: 0.5}, target[0])
        model.predict_one({0: 0.5})
        list(model.staged_predict(X))
        _ = model.feature_importances_
        model.explain(X)
        if isinstance(model, SGBRegressor):
            model.predict_interval(X)
    SGBRegressor(random_state=0).learn(*_rows(2800))  # by then a booster that holds all rows has come
    X, y = _rows(1000)  # so many rows of a table are studied
    SGBRegressor(random_state=0).fit([{"x": x, "word": "high" if x > 0.5 else "low"} for x in X[:, 0].tolist()], y)
    X, y = _rows()
    SGBRegressor().learn(X[:, :1], y, sample_weight=1 + X[:, 0])  # one column lies in memory as several do not


def _lines() -> None:
    """Learn with lines: bases, edges and losses are then called one by one, as every plain loop calls them."""
    from streamboost import SGBClassifier, SGBRegressor
    from streamboost.stacks import LinearStack

    X, y = _rows()
    rows = [{"x": x, "word": "high" if x > 0.5 else "low"} for x in X[:, 0].tolist()]
    lines = LinearStack(2, update="adagrad", standardize=False)
    models: list[tuple[Any, Any, Any]] = [
        (SGBRegressor(learner="linear"), X, y),
        (SGBRegressor(learner=lines), rows, y),
        (SGBClassifier(learner="linear"), rows, y > y.mean()),
    ]
    for model, table, target in models:
        model.learn(table, target)
        model.predict(table)


def _rest() -> None:
    """Boost somebody's model, as every base that is not compiled is boosted, and split quoted text into rows."""
    from streamboost import SGBRegressor
    from streamboost.sources.text_formats import CsvFormat

    X, y = _rows()
    model = SGBRegressor(base=_zeros)
    model.learn(X, y)
    model.predict(X)
    CsvFormat(types={}).ends(b'"a"\n')


def _networks(dtype: Dtype) -> None:
    from streamboost.stacks import TwoLayerStack

    _learn_with(TwoLayerStack(2, 3, dtype=dtype))


def _convolutions(dtype: Dtype) -> None:
    from streamboost.stacks import ConvStack

    _learn_with(ConvStack((2, 5), 2, channels=2, kernel=2, dtype=dtype))


def _learn_with(stack: Any) -> None:
    from streamboost import SGBClassifier, SGBRegressor

    X, y = _rows()
    models: list[tuple[Any, Any]] = [
        (SGBRegressor(learner=stack), y),
        (SGBClassifier(learner=stack), y > y.mean()),
        (SGBRegressor(learner=stack, base=_zeros), y),
    ]
    for model, target in models:
        model.learn(X, target)
        model.predict(X)
        list(model.staged_predict(X))


def _zeros(rows: Any) -> Any:
    """Predict as somebody's fitted model does: nothing of it is compiled."""
    import numpy as np

    return np.zeros(len(rows))


def _rows(n: int = 300) -> tuple[Any, Any]:
    from streamboost import datasets

    X, y, *_ = datasets.friedman(n)
    return X, y
