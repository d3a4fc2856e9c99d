"""What the arrays of a model have to be, so that kernels, which trust them, may be handed those of a file.

A class whose arrays reach kernels has a method ``array_specs``: dtype, shape and range of each, by attribute, or by a
path such as ``base.weights`` where it depends on two parts. :func:`check_model` walks a whole model once; it is called
wherever a model comes from outside: from a file, and from a pickle. Options go through their constructors again.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamboost.errors import SnapshotError
from streamboost.persistence.registry import name_of

WAY_OUT = "It was not written like this: take an earlier copy, from whom you trust."
CHECKED_OPTIONS = {  # classes whose constructors do nothing but check and store their options
    "AdaGrad", "Ball", "Box", "FrankWolfe", "GradientDescent", "Nesterov", "ResidualProjection",
    "Absolute", "Huber", "Poisson", "Quantile", "Squared", "Hinge", "Logistic", "Softmax",
    "Adam", "AdaGradRule", "Momentum", "SGD", "Linear", "Constant", "Replay", "Encoder", "Bins", "Committee",
    "LinearStack", "TwoLayerStack", "ConvStack", "TreeStack",
}  # fmt: skip


class ArraySpec(NamedTuple):
    """What an array has to be; lengths that are None may be any."""

    dtype: str
    shape: tuple[int | None, ...]
    low: float | None = None  # the least value
    high: float | None = None  # what all values are below


def check_model(model: object) -> None:
    """Refuse a model whose arrays do not fit together, or whose options no constructor would take.

    Raises
    ------
    SnapshotError
        With the name of the array, what it is and what was expected.

    Examples
    --------
    >>> import numpy as np
    >>> from streamboost import SGBRegressor
    >>> model = SGBRegressor(n_estimators=2, memory=64).fit(np.eye(3), [1.0, 2.0, 3.0])
    >>> model.booster_.stack.feature[0, 0] = 2**30
    >>> check_model(model)
    Traceback (most recent call last):
        ...
    streamboost.errors.SnapshotError: TreeStack.feature goes up to 1073741824, expected numbers below 3. It was not ...
    """
    objects = list(parts_of(model))
    for name, value in objects:  # options first: what arrays have to be depends on them
        if name in CHECKED_OPTIONS:
            _check(name, value, _check_options)
    for name, value in objects:
        _check(name, value, _check_arrays)


def parts_of(model: object) -> Iterator[tuple[str, Any]]:
    """Yield the objects that a model is made of, each once, with their names in files."""
    seen: set[int] = set()
    stack: list[Any] = [model]
    while stack:
        value = stack.pop()
        cls = type(value)
        if cls in (dict, list, tuple) or (isinstance(value, tuple) and hasattr(cls, "_fields")):
            if id(value) not in seen:
                seen.add(id(value))
                stack.extend(value.values() if cls is dict else value)
        elif (name := name_of(cls)) is not None and id(value) not in seen:
            seen.add(id(value))
            yield name, value
            stack.extend(getattr(value, "__dict__", {}).values())


def _check(name: str, value: Any, check: Callable[[str, Any], None]) -> None:
    try:
        check(name, value)
    except SnapshotError:
        raise
    except Exception as error:  # whatever parts that do not fit together lead to
        raise SnapshotError(f"its {name} does not fit together ({type(error).__name__}: {error}). {WAY_OUT}") from error


def _check_arrays(name: str, value: Any) -> None:
    specs = value.array_specs() if hasattr(value, "array_specs") else {}
    for path, spec in specs.items():
        if (array := _find(value, path)) is not None:
            _check_array(f"{name}.{path}", array, spec)


def _find(value: Any, path: str) -> Any:
    """Return an attribute; None if there is none, as in a model that has learned nothing or learns no more."""
    try:
        return attrgetter(path)(value)
    except AttributeError:
        return None


def _check_array(name: str, array: Any, spec: ArraySpec) -> None:
    if type(array) is not np.ndarray or array.dtype != np.dtype(spec.dtype):
        found = f"of {array.dtype}" if isinstance(array, np.ndarray) else f"a {type(array).__name__}"
        raise SnapshotError(f"{name} is {found}, expected an array of {np.dtype(spec.dtype)}. {WAY_OUT}")
    fits = [wanted is None or n == wanted for n, wanted in zip(array.shape, spec.shape, strict=False)]
    if array.ndim != len(spec.shape) or not all(fits):
        shown = str(spec.shape).replace("None", "any")
        raise SnapshotError(f"{name} has shape {array.shape}, expected {shown}. {WAY_OUT}")
    if not array.flags.c_contiguous:
        raise SnapshotError(f"{name} is not contiguous, expected an array of its own. {WAY_OUT}")
    if array.size:
        _check_range(name, array, spec)


def _check_range(name: str, array: NDArray[Any], spec: ArraySpec) -> None:
    if spec.low is not None and not (least := array.min()) >= spec.low:
        raise SnapshotError(f"{name} goes down to {least}, expected numbers of at least {spec.low}. {WAY_OUT}")
    if spec.high is not None and not (most := array.max()) < spec.high:
        raise SnapshotError(f"{name} goes up to {most}, expected numbers below {spec.high}. {WAY_OUT}")


@cache
def _option_names(cls: type[Any]) -> tuple[str, ...]:
    return tuple(inspect.signature(cls).parameters)


def _check_options(name: str, value: Any) -> None:
    cls = type(value)
    names = _option_names(cls)  # type: ignore[arg-type]
    cls(**{option: value.__dict__[option] for option in names if option in value.__dict__})
