"""Who takes part: each learner as something that answers a chunk of rows, each row before it is learned.

``PEERS`` maps a name to a :class:`Peer`; ``make(stream, seed)`` gives a fresh :class:`Learner`. Answers are floats for
regression, (n,), and one weight a class for classification, (n, K). Nobody's settings are tuned: defaults throughout,
ten members in a forest. Every peer is imported only where it is made.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.streams import Stream, Task

BOTH: tuple[Task, ...] = ("regression", "classification")
MEMBERS = 10


class Learner(Protocol):
    """What the benchmark asks of everyone."""

    chunk: int  # rows to hand over at once

    def learn(self, X: NDArray[np.float64], y: NDArray[Any]) -> NDArray[np.float64]:
        """Answer each row, then learn it; return the answers."""


@dataclass(frozen=True)
class Peer:
    """A learner by name, and what it needs.

    Parameters
    ----------
    title : str
        What tables and pictures call it.
    package : str
        The distribution whose version is worth knowing; its family.
    tasks : tuple
        The tasks it can do.
    make : function of (stream, seed)
        Gives a fresh learner.
    has_probabilities : bool
        Whether its answers are more than labels.
    """

    title: str
    package: str
    tasks: tuple[Task, ...]
    make: Callable[[Stream, int], Learner]
    has_probabilities: bool = True

    def absence(self) -> str | None:
        """Say why it cannot take part on this machine, or None."""
        if importlib.util.find_spec(self.package) is None:
            return f"{self.title} needs {self.package}, which is not installed"
        if self.package == "capymoa" and not _has_java():
            return f"{self.title} needs a Java virtual machine, and none was found"
        return None


def _has_java() -> bool:
    import jpype

    try:
        return bool(jpype.getDefaultJVMPath())
    except jpype.JVMNotFoundException:
        return False


# streamboost itself.


class Streamboost:
    """``learn`` in chunks of a block, which is bit for bit the same as in one call."""

    chunk = 500
    warm_up = 300  # rows: compiled code is loaded before the clock starts

    def __init__(self, stream: Stream, seed: int, settings: dict[str, Any]) -> None:
        from streamboost import SGBClassifier, SGBRegressor

        kind = SGBRegressor if stream.task == "regression" else SGBClassifier
        kind(random_state=seed, **settings).learn(stream.X[: self.warm_up], stream.y[: self.warm_up])
        self.model = kind(random_state=seed, **settings)
        self.n_classes = stream.n_classes

    def learn(self, X: NDArray[np.float64], y: NDArray[Any]) -> NDArray[np.float64]:
        """Answer each row, then learn it; a class not met yet has weight 0."""
        if not self.n_classes:
            return self.model.learn(X, y)
        probabilities = self.model.learn(X, y, method="predict_proba")
        answers = np.zeros((len(y), self.n_classes))
        answers[:, self.model.classes_] = probabilities
        return answers


def streamboost(settings: dict[str, Any] | None = None, title: str = "streamboost") -> Peer:
    """Describe streamboost with its defaults, or with settings of one's own."""
    return Peer(title, "streamboost", BOTH, lambda stream, seed: Streamboost(stream, seed, settings or {}))


# River, CapyMOA and Vowpal Wabbit learn one row at a time.


class RowByRow:
    """A chunk as single rows: each encoded once, answered, then learned."""

    chunk = 50

    def __init__(self, n_classes: int) -> None:
        self.n_classes = n_classes

    def _encode(self, x: NDArray[np.float64]) -> Any:
        return x

    def _answer(self, row: Any) -> Any:
        raise NotImplementedError

    def _update(self, row: Any, y: Any) -> None:
        raise NotImplementedError

    def learn(self, X: NDArray[np.float64], y: NDArray[Any]) -> NDArray[np.float64]:
        """Answer each row, then learn it."""
        answers = np.zeros((len(y), self.n_classes) if self.n_classes else len(y))
        for i, (x, target) in enumerate(zip(X, y.tolist(), strict=True)):
            row = self._encode(x)
            answers[i] = self._answer(row)
            self._update(row, target)
        return answers


class River(RowByRow):
    """Any River model, on dicts."""

    def __init__(self, model: Any, stream: Stream) -> None:
        super().__init__(stream.n_classes)
        self.model = model
        self.names = [f"x{j}" for j in range(stream.X.shape[1])]

    def _encode(self, x: NDArray[np.float64]) -> dict[str, float]:
        return dict(zip(self.names, x.tolist(), strict=True))

    def _answer(self, row: dict[str, float]) -> Any:
        if not self.n_classes:
            return self.model.predict_one(row)
        weights = np.zeros(self.n_classes)
        for label, weight in self.model.predict_proba_one(row).items():
            weights[int(label)] = weight
        return weights

    def _update(self, row: dict[str, float], y: Any) -> None:
        self.model.learn_one(row, y)


def river(
    title: str, build: Callable[[Stream, int], Any], tasks: tuple[Task, ...] = BOTH, *, is_scaled: bool = False
) -> Peer:
    """Describe a River model, if asked for behind a StandardScaler."""

    def make(stream: Stream, seed: int) -> River:
        from river import preprocessing

        model = build(stream, seed)
        return River(preprocessing.StandardScaler() | model if is_scaled else model, stream)

    return Peer(f"River {title}", "river", tasks, make)


def _hoeffding(stream: Stream, seed: int) -> Any:
    from river import tree

    return tree.HoeffdingTreeClassifier() if stream.n_classes else tree.HoeffdingTreeRegressor()


def _adaptive(stream: Stream, seed: int) -> Any:
    from river import tree

    kind = tree.HoeffdingAdaptiveTreeClassifier if stream.n_classes else tree.HoeffdingAdaptiveTreeRegressor
    return kind(seed=seed)


def _linear(stream: Stream, seed: int) -> Any:
    from river import linear_model

    if not stream.n_classes:
        return linear_model.LinearRegression()
    return linear_model.LogisticRegression() if stream.n_classes == 2 else linear_model.SoftmaxRegression()


def _amf(stream: Stream, seed: int) -> Any:
    from river import forest

    return (forest.AMFClassifier if stream.n_classes else forest.AMFRegressor)(n_estimators=MEMBERS, seed=seed)


def _arf(stream: Stream, seed: int) -> Any:
    from river import forest

    return (forest.ARFClassifier if stream.n_classes else forest.ARFRegressor)(n_models=MEMBERS, seed=seed)


def _srp(stream: Stream, seed: int) -> Any:
    from river import ensemble

    return (ensemble.SRPClassifier if stream.n_classes else ensemble.SRPRegressor)(n_models=MEMBERS, seed=seed)


def _adaboost(stream: Stream, seed: int) -> Any:
    from river import ensemble, tree

    return ensemble.AdaBoostClassifier(tree.HoeffdingTreeClassifier(), n_models=MEMBERS, seed=seed)


class CapyMOA(RowByRow):
    """Any CapyMOA model, on Java instances."""

    def __init__(self, name: str, settings: dict[str, Any], stream: Stream, seed: int) -> None:
        from capymoa import classifier, regressor
        from capymoa.core import LabeledInstance, RegressionInstance
        from capymoa.stream import NumpyStream

        super().__init__(stream.n_classes)
        kind, targets = ("categorical", np.arange(stream.n_classes)) if stream.n_classes else ("numeric", np.zeros(1))
        blank = np.zeros((len(targets), stream.X.shape[1]))  # the schema needs every class, and no row of the stream
        self.schema = NumpyStream(blank, targets, target_type=kind).get_schema()
        self.instance = (LabeledInstance if stream.n_classes else RegressionInstance).from_array
        models = classifier if stream.n_classes else regressor
        self.model = getattr(models, name)(self.schema, random_seed=seed, **settings)

    def _answer(self, row: NDArray[np.float64]) -> Any:
        if not self.n_classes:
            return self.model.predict(self.instance(self.schema, row, 0.0))
        weights = self.model.predict_proba(self.instance(self.schema, row, 0))
        return 0.0 if weights is None else weights[: self.n_classes]

    def _update(self, row: NDArray[np.float64], y: Any) -> None:
        self.model.train(self.instance(self.schema, row, y))


def capymoa(title: str, regressor: str | None, classifier: str | None, **settings: Any) -> Peer:
    """Describe a CapyMOA model by the names of its classes."""
    names = {"regression": regressor, "classification": classifier}
    tasks = tuple(task for task in BOTH if names[task])
    return Peer(
        f"CapyMOA {title}", "capymoa", tasks, lambda stream, seed: CapyMOA(names[stream.task], settings, stream, seed)
    )


class VowpalWabbit(RowByRow):
    """Vowpal Wabbit, on lines of text."""

    def __init__(self, stream: Stream, seed: int, *, is_boosted: bool = False) -> None:
        from vowpalwabbit import Workspace

        super().__init__(stream.n_classes)
        self.is_boosted = is_boosted
        options = f"--quiet --random_seed {seed}"
        if self.n_classes > 2:
            options += f" --oaa {self.n_classes}"
        if is_boosted:
            options += f" --boosting {MEMBERS}"
        elif self.n_classes:
            options += " --loss_function logistic" + (" --link logistic" if self.n_classes == 2 else " --probabilities")
        self.model = Workspace(options)
        self.form = " |f " + " ".join(f"{j}:%.9g" for j in range(stream.X.shape[1]))

    def _encode(self, x: NDArray[np.float64]) -> str:
        return self.form % tuple(x.tolist())

    def _answer(self, row: str) -> Any:
        said = self.model.predict(row)
        if not self.n_classes or (self.n_classes > 2 and not self.is_boosted):
            return said  # a number, or all probabilities
        if not self.is_boosted:
            return 1 - said, said
        label = int(said > 0) if self.n_classes == 2 else int(said) - 1
        return np.eye(self.n_classes)[label]

    def _update(self, row: str, y: Any) -> None:
        label = {0: y, 2: 2 * y - 1}.get(self.n_classes, y + 1)
        self.model.learn(f"{label:.9g}{row}")


# LightGBM learns anew from all rows so far.


class LightGBM:
    """Retrained at rows 100, 200, 400, 700, and from then on every 1,000 rows; the mean, or no opinion, before."""

    chunk = 50
    early = (100, 200, 400, 700)
    every = 1000

    def __init__(self, stream: Stream, seed: int) -> None:
        import lightgbm

        kind = lightgbm.LGBMClassifier if stream.n_classes else lightgbm.LGBMRegressor
        self.fresh = lambda: kind(n_estimators=100, n_jobs=1, random_state=seed, verbose=-1)
        self.model: Any = None
        self.n_classes = stream.n_classes
        self.X = np.empty((0, stream.X.shape[1]))
        self.y = np.empty(0, dtype=stream.y.dtype)

    def learn(self, X: NDArray[np.float64], y: NDArray[Any]) -> NDArray[np.float64]:
        """Answer and remember the rows; retraining comes before a chunk, and chunks divide all its moments."""
        seen = len(self.y)
        is_due = seen in self.early or (seen > 0 and seen % self.every == 0)
        if is_due and (not self.n_classes or len(np.unique(self.y)) > 1):
            self.model = self.fresh().fit(self.X, self.y)
        answers = self._answers(X, y)
        self.X, self.y = np.concatenate([self.X, X]), np.concatenate([self.y, y])
        return answers

    def _answers(self, X: NDArray[np.float64], y: NDArray[Any]) -> NDArray[np.float64]:
        if self.n_classes:
            answers = np.zeros((len(X), self.n_classes))
            if self.model is not None:
                answers[:, self.model.classes_] = self.model.predict_proba(X)
            return answers
        if self.model is not None:
            return self.model.predict(X)
        sums = np.cumsum(np.concatenate([[0.0], self.y, y]))[:-1]  # over all rows before each one
        return (sums / np.maximum(np.arange(len(sums)), 1))[len(self.y) :]


REGRESSION: tuple[Task, ...] = ("regression",)
CLASSIFICATION: tuple[Task, ...] = ("classification",)

PEERS = {  # the quick ones first: whoever stops early has most of the picture
    "streamboost": streamboost(),
    "river_ht": river("Hoeffding tree", _hoeffding),
    "river_hat": river("adaptive Hoeffding tree", _adaptive),
    "river_linear": river("linear, scaled", _linear, is_scaled=True),
    "vw": Peer("Vowpal Wabbit", "vowpalwabbit", BOTH, VowpalWabbit),
    "vw_boosting": Peer(
        "Vowpal Wabbit boosting",
        "vowpalwabbit",
        CLASSIFICATION,
        lambda stream, seed: VowpalWabbit(stream, seed, is_boosted=True),
        has_probabilities=False,
    ),
    "lightgbm": Peer("LightGBM retrained", "lightgbm", BOTH, LightGBM),
    "river_amf": river("AMF(10)", _amf),
    "river_arf": river("ARF(10)", _arf),
    "river_adaboost": river("AdaBoost(10)", _adaboost, CLASSIFICATION),
    "capymoa_sgbr": capymoa("SGBR", "StreamingGradientBoostedRegression", None),
    "capymoa_sgbt": capymoa("SGBT", None, "StreamingGradientBoostedTrees"),
    "capymoa_arf": capymoa(
        "ARF(10)", "AdaptiveRandomForestRegressor", "AdaptiveRandomForestClassifier", ensemble_size=MEMBERS
    ),
    "river_srp": river("SRP(10)", _srp),
    "river_ht_sc": river("Hoeffding tree, scaled", _hoeffding, REGRESSION, is_scaled=True),
    "river_hat_sc": river("adaptive Hoeffding tree, scaled", _adaptive, REGRESSION, is_scaled=True),
    "river_arf_sc": river("ARF(10), scaled", _arf, REGRESSION, is_scaled=True),
}
