"""Forged models: every array and every option of a model, changed in ways that no constructor would allow.

As a program, ``forge.py DIRECTORY FIRST STEP``, it loads the forgeries in a directory from number FIRST on, each
STEP-th, and uses what loads: the number of each is printed before, so that whoever started it knows which one ended it.
"""

import signal
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas

from streamboost import KeyedModel, SGBClassifier, SGBRegressor, load, river_models
from streamboost.keyed.prior import KeyModel
from streamboost.persistence.object_graph import is_plain_array
from streamboost.persistence.registry import name_of
from streamboost.stacks import ConvStack, LinearStack, TwoLayerStack

ROWS = 330
OPTIONS = (-1, 0, 2**31, 2**62, 1e308, float("nan"), "text", None, [])


def rows(n=ROWS, seed=0):
    rng = np.random.default_rng(seed)
    X = [{"a": a, "b": b, "c": c} for a, b, c in zip(rng.normal(size=n), rng.choice([*"xyz"], n), rng.normal(size=n), strict=True)]  # noqa: E501  # fmt: skip
    return X, [row["a"] + (row["b"] == "x") for row in X], [row["b"] for row in X]


SMALL = {"n_estimators": 4, "random_state": 0, "max_depth": 3, "new_columns": "grow"}
KINDS = {
    "regressor": lambda: SGBRegressor(**SMALL, memory=64),
    "ladder": lambda: SGBRegressor(**SMALL),
    "classifier": lambda: SGBClassifier(**SMALL, memory=64),
    "monotone": lambda: SGBRegressor(**SMALL, memory=64, monotonic_cst={"a": 1}),
    "average": lambda: SGBRegressor(**SMALL, memory=64, iterate="average"),
    "linear": lambda: SGBRegressor(**SMALL, learner=LinearStack(3), memory=None),
    "nets": lambda: SGBRegressor(**SMALL, learner=TwoLayerStack(3), memory=None),
    "polynomial": lambda: SGBRegressor(**SMALL, learner=TwoLayerStack(3), memory=None, iterate="polynomial"),
    "convolution": lambda: SGBRegressor(**SMALL, learner=ConvStack((2, 2), 2, kernel=2, stride=1), memory=None),
    "many classes": lambda: SGBClassifier(**SMALL, memory=64),
    "river": lambda: river_models.SGBClassifier(**SMALL, memory=64),
    "keyed": lambda: SGBRegressor(**SMALL, memory=64),
    "constant": lambda: SGBRegressor(**SMALL, memory=64, base="constant"),
    "grown": lambda: SGBRegressor(**SMALL),
    "segments": lambda: SGBRegressor(**SMALL),  # as "grown", saved with its long arrays in segments
    "frozen": lambda: SGBClassifier(**SMALL, memory=64),
}
CLASSES = ("classifier", "frozen", "many classes", "river")
WIDTHS = {"grown": 2, "segments": 2, "convolution": 4}  # of kinds that learn bare numbers


def numbers(kind, n, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, WIDTHS[kind]))
    return X, X[:, 0] + X[:, 1] ** 2


def make(kind):
    model, (X, y, labels) = KINDS[kind](), rows()
    if kind in WIDTHS:
        X, y = numbers(kind, 300 if kind == "convolution" else 3000)
        model.fit(X, y)
        model.learn(X[:40], y[:40])
        return model
    if kind == "keyed":
        booster = KeyedModel(model, key="key", prior=KINDS[kind]().fit(X, y))
        booster.learn([{**row, "key": "k"} for row in X], y)
        return booster.model("k")
    if kind == "many classes":
        labels = [i % 9 for i in range(len(X))]
    for x, target in zip(X, labels if kind in CLASSES else y, strict=True):
        model.learn_one(x, target)
    return model.freeze() if kind == "frozen" else model


def changed_arrays(array):
    """Yield an array in forms it must not have; some may be harmless."""
    if array.dtype.kind in "iu":
        big = min(2**30, np.iinfo(array.dtype).max)
        yield np.full_like(array, big)
        yield np.full_like(array, -(2**30) if array.dtype.kind == "i" and array.dtype.itemsize > 2 else 0)
        yield array.astype(np.int16)
    else:
        yield np.full_like(array, 2**30)
        yield np.full_like(array, -(2**30))
        yield np.full_like(array, np.nan) if array.dtype.kind == "f" else ~array
    yield array[:0].copy()
    yield array[: len(array) // 2].copy()
    yield array[..., : array.shape[-1] // 2].copy()
    yield array.astype(np.float32 if array.dtype != np.float32 else np.float64)
    yield np.zeros((1, *array.shape), array.dtype)


def forgeries(model):
    """Yield a setter, which changes the model and returns how to undo that, of each thing that can be changed."""
    seen, stack = set(), [("", model)]
    while stack:
        path, value = stack.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, (list, dict, tuple)):
            inside = value.items() if isinstance(value, dict) else enumerate(value)
            stack.extend((f"{path}[{key!r}]", item) for key, item in inside)
        elif name_of(type(value)) is not None and hasattr(value, "__dict__"):
            for name, held in list(value.__dict__.items()):
                if is_plain_array(held):
                    yield from ((f"{path}.{name}#{i}", value, name, new) for i, new in enumerate(changed_arrays(held)))
                elif isinstance(held, (int, float, str, type(None))):
                    yield from ((f"{path}.{name}={new!r}", value, name, new) for new in OPTIONS)
                else:
                    stack.append((f"{path}.{name}", held))


def use(path):
    """Load a file, and do with it what anybody might."""
    model, kind = load(path), path.stem.partition("-")[2]
    if kind in WIDTHS:
        X, y = numbers(kind, 80, seed=1)
        model.predict(X)
        model.learn(X, y)
        return
    X, y, labels = rows(80, seed=1)
    if isinstance(model, KeyModel):
        model.learn(X, y)
        model.predict(X)
        return
    model.predict_many(pandas.DataFrame(X))
    if not model.is_frozen:
        for x, target in zip(X, labels if kind in CLASSES else y, strict=True):
            model.learn_one(x, target)
    model.predict_many(pandas.DataFrame(X))


def main(directory, first, step):
    warnings.simplefilter("ignore")
    for path in sorted(Path(directory).glob("*.safetensors"))[int(first) :: int(step)]:
        print(path.stem.partition("-")[0], end=" ", flush=True)
        signal.alarm(90)  # which ends the process, even in a kernel
        try:
            use(path)
            print("used", flush=True)
        except Exception as error:
            print("refused" if type(error).__name__ == "SnapshotError" else f"raised {type(error).__name__}: {error}"[:200].replace("\n", " "), flush=True)  # noqa: E501  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
