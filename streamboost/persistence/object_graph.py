"""The state of a model: taken apart into named values, put together again, and compared.

Into :func:`take_apart` flows one object, container or random generator; out flow its parts, of which
:func:`put_together` makes its equal. An object needs no code of its own for this: its parts are its attributes (slots
are left out: caches, which follow from the rest). :func:`flatten` and :func:`same_state` walk a whole model this way.
Objects are made of classes in :mod:`~streamboost.persistence.registry` only, and without running any of their methods.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeGuard

import numpy as np
from numpy.random import MT19937, PCG64, PCG64DXSM, SFC64, Generator, Philox, RandomState, SeedSequence
from numpy.typing import NDArray

from streamboost.errors import SnapshotError
from streamboost.persistence.registry import find_class, name_of

ARRAY_KINDS = "biufcSUmM"
PLAIN = (type(None), bool, int, float, str, bytes)
BIT_GENERATORS: dict[str, Any] = {cls.__name__: cls for cls in (PCG64, PCG64DXSM, MT19937, Philox, SFC64)}
CONTAINERS: dict[str, Any] = {cls.__name__: cls for cls in (list, tuple, set, frozenset)}
# Things of others that are known by a few attributes.
ATTRIBUTES: dict[type, tuple[str, ...]] = {
    range: ("start", "stop", "step"),
    Generator: ("bit_generator",),
    SeedSequence: ("entropy", "spawn_key", "pool_size", "n_children_spawned"),
    **dict.fromkeys(BIT_GENERATORS.values(), ("state", "seed_seq")),
}


def flatten(model: object) -> dict[str, object]:
    """Every number, text and array of a model under its attribute path: a photograph, for comparing states.

    What could not be saved appears as its pickle, or as itself if it has none.

    Examples
    --------
    >>> from streamboost.boosting.cost import CostMeter
    >>> flatten({"cost": CostMeter(predictions=3), "seen": [1, None]})
    {"['cost'].predictions": 3, "['cost'].updates": 0, "['seen'][0]": 1, "['seen'][1]": None}
    """
    return {stop.path: stop.value for stop in _walk(model) if stop.is_leaf}


def same_state(a: object, b: object) -> bool:
    """Whether two models are made of the same classes with the same values, bit for bit: NaN is NaN, 0 is not -0.

    Examples
    --------
    >>> same_state([1.0, float("nan")], [1.0, float("nan")]), same_state([0.0], [-0.0]), same_state([1], (1,))
    (True, False, False)
    """
    left, right = ({(stop.path, stop.kind): stop.value for stop in _walk(model)} for model in (a, b))
    return left.keys() == right.keys() and all(_equal(value, right[at]) for at, value in left.items())


def count_bytes(model: object) -> int:
    """Return the bytes of all arrays of a model; one that is reachable twice counts twice."""
    if is_plain_array(model):
        return model.nbytes
    cls = type(model)
    if cls in PLAIN:
        return 0
    if name_of(cls) is not None and not _is_named_tuple(cls):  # most are; the rest takes longer
        return sum(map(count_bytes, model.__dict__.values()))
    parts = take_apart(model)
    return 0 if parts is None else sum(map(count_bytes, parts.items))


class Parts(NamedTuple):
    """What a container or an object consists of."""

    kind: str
    keys: Sequence[object]  # of a dict, or names of attributes; else empty
    items: Sequence[object]
    labels: Sequence[str]  # what each item adds to the path


def take_apart(value: Any) -> Parts | None:
    """The parts of a container or of an object of ours; None for anything else."""
    cls = type(value)
    if cls is dict:
        return Parts("dict", list(value), list(value.values()), [f"[{key!r}]" for key in value])
    if cls in (list, tuple):
        return Parts(cls.__name__, (), value, [f"[{i}]" for i in range(len(value))])
    if cls in (set, frozenset):
        items = sorted(value, key=repr)  # a set's own order changes from run to run
        return Parts(cls.__name__, (), items, [f"{{{item!r}}}" for item in items])
    if cls is np.ndarray and value.dtype == object:
        return Parts("objects", (), [value.shape, *value.flat], [".shape", *(f".flat[{i}]" for i in range(value.size))])
    if cls is RandomState:
        state: Any = value.get_state(legacy=False)
        is_usual = state["bit_generator"] == "MT19937"  # the only one whose state can be set again
        return Parts("RandomState", (), [state], [".get_state()"]) if is_usual else None
    if cls in ATTRIBUTES:
        names = ATTRIBUTES[cls]
        return Parts(cls.__name__, (), [getattr(value, name) for name in names], [f".{name}" for name in names])
    kind = name_of(cls)
    if kind is None or find_class(kind) is not cls:  # its objects are not saved
        return None
    if _is_named_tuple(cls):
        attributes = dict(zip(cls._fields, value, strict=True))
    else:
        attributes = dict(getattr(value, "__dict__", {}))
        attributes.pop("__orig_class__", None)  # what a generic class was made of: a matter of types only
    return Parts(kind, list(attributes), list(attributes.values()), [f".{name}" for name in attributes])


def put_together(kind: str, keys: list[Any], items: list[Any]) -> Any:
    """Undo :func:`take_apart`; what wrong parts lead to is for the caller to explain."""
    if kind in CONTAINERS:
        return CONTAINERS[kind](items)
    match kind:
        case "dict":
            return dict(zip(keys, items, strict=True))
        case "objects":
            shape, *elements = items
            flat = np.empty(len(elements), dtype=object)
            for i, element in enumerate(elements):  # one by one: an element may itself be a sequence
                flat[i] = element
            return flat.reshape(shape)
        case "range":
            return range(*items)
        case "Generator":
            return Generator(*items)
        case "SeedSequence":
            return SeedSequence(**dict(zip(ATTRIBUTES[SeedSequence], items, strict=True)))
        case "RandomState":
            random_state = RandomState(0)
            random_state.set_state(*items)
            return random_state
    if kind in BIT_GENERATORS:
        state, seed_seq = items
        bit_generator = BIT_GENERATORS[kind](seed_seq)
        bit_generator.state = state
        return bit_generator
    return _new_object(find_class(kind), keys, items)


def _new_object(cls: type[Any], names: list[Any], values: list[Any]) -> Any:
    """Make an object of its attributes without running any method of its class."""
    attributes = dict(zip(names, values, strict=True))
    if _is_named_tuple(cls):
        if tuple(attributes) != cls._fields:
            raise SnapshotError(f"{cls.__name__} has the fields {cls._fields}, not {tuple(names)}. Save it again.")
        return tuple.__new__(cls, values)
    instance = object.__new__(cls)
    for name, value in attributes.items():
        if not isinstance(name, str):
            raise SnapshotError(f"an attribute of {cls.__name__} is called {name!r}. Take an earlier copy.")
        instance.__dict__[name] = value
    return instance


def make_writable(value: Any) -> Any:
    """Return a value with arrays that can be written to: copies of those that cannot, such as memory-mapped ones.

    Objects of ours are changed in place. What joblib loads with ``mmap_mode="r"`` becomes a model this way.
    """
    cls = type(value)
    if isinstance(value, np.ndarray):
        return value if cls is np.ndarray and value.flags.writeable else np.array(value)
    if cls in (list, tuple):
        return cls(map(make_writable, value))
    if cls is not dict and name_of(cls) is None:
        return value
    if _is_named_tuple(cls):
        return cls(*map(make_writable, value))
    attributes = value if cls is dict else value.__dict__
    for name, held in attributes.items():
        attributes[name] = make_writable(held)
    return value


def _is_named_tuple(cls: type) -> bool:
    return cls.__bases__ == (tuple,) and hasattr(cls, "_fields")


def is_scalar(value: object) -> bool:
    """Whether a value is a number, text, bytes or None, Python's or NumPy's."""
    return type(value) in PLAIN or (isinstance(value, np.generic) and value.dtype.kind in ARRAY_KINDS)


def is_plain_array(value: object) -> TypeGuard[NDArray[Any]]:
    """Whether a value is an array of such scalars."""
    return type(value) is np.ndarray and value.dtype.kind in ARRAY_KINDS


class _Stop(NamedTuple):
    path: str
    kind: str
    value: object  # of a container its length, of a dict its order
    is_leaf: bool


def _walk(value: object, path: str = "") -> Iterator[_Stop]:
    """Visit every container and every leaf."""
    parts = take_apart(value)
    if parts is None:
        cls = type(value)
        yield _Stop(path.removeprefix("."), f"{cls.__module__}.{cls.__qualname__}", _leaf(value), is_leaf=True)
        return
    size = str(parts.labels if parts.kind == "dict" else len(parts.labels))
    yield _Stop(path.removeprefix("."), parts.kind, size, is_leaf=False)
    for label, item in zip(parts.labels, parts.items, strict=True):
        yield from _walk(item, path + label)


def _leaf(value: object) -> object:
    if is_plain_array(value):
        return value.copy()
    if is_scalar(value):
        return value
    try:
        return pickle.dumps(value)
    except Exception:  # pickle fails in as many ways as there are things it cannot take
        return value


def _equal(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, (np.ndarray, np.generic)):
        return bool(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())
    if isinstance(a, float):
        return struct.pack(">d", a) == struct.pack(">d", b)
    return a is b or (type(a) in PLAIN and bool(a == b))
