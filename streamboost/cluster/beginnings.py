"""What a model on workers began as, in a form that a checkpoint keeps, so that another cannot go on in its place."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import numpy as np

from streamboost import snapshots
from streamboost.errors import SnapshotError

PLAIN = (type(None), bool, int, float, str)
ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def describe(model: Any, **more: Any) -> dict[str, Any]:
    """The class and the parameters of a model that has learned nothing: plain values as they are, others by a digest.

    Parameters
    ----------
    model : estimator, Booster or Stack
    **more
        What matters beside them, or in place of one of them.

    Examples
    --------
    >>> from streamboost import SGBRegressor
    >>> before = describe(SGBRegressor(loss="poisson"), split="turns")
    >>> before["model"], before["loss"], before["split"]
    ('SGBRegressor', 'poisson', 'turns')
    >>> check_same(before, describe(SGBRegressor(loss="huber"), split="turns"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: loss is 'huber', but the cut was made with 'poisson'. ...
    """
    parameters = model.get_params(deep=False) if hasattr(model, "get_params") else _public(model)
    values = {**parameters, **more}
    if not isinstance(values.get("random_state"), (*PLAIN, np.integer)):
        values["random_state"] = type(values["random_state"]).__name__  # a generator moves on as it is used
    return {"model": type(model).__name__, **{name: shown(value) for name, value in values.items()}}


def check_same(before: dict[str, Any], now: dict[str, Any]) -> None:
    """Refuse to go on with another model than the one a cut was made with."""
    for name, was in before.items():
        value = now.get(name)
        if value != was and repr(value) != repr(was):  # NaN is NaN
            options = "--key" if name == "key" else "--option, --start-from and --seed"
            raise ValueError(
                f"{name} is {_quoted(value)}, but the cut was made with {_quoted(was)}. Use the model it was made "
                f"with, that is the same parameters (on the command line the same {options} as before), or name "
                "another directory to begin anew."
            )


def shown(value: Any) -> Any:
    """A plain value as it is, another by its class and a digest."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, PLAIN):
        return value
    return f"a {type(value).__name__} ({hashlib.sha256(_bytes(value)).hexdigest()[:12]})"


def _public(model: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(model).items() if not name.startswith("_")}


def _bytes(value: Any) -> bytes:
    """The same for equals, in every process: pickles are not."""
    try:
        return snapshots.pack(value)
    except SnapshotError:  # it is anyone's, or holds something of the kind
        pass
    if isinstance(value, (list, tuple)):
        return repr([shown(item) for item in value]).encode()
    if type(value).__module__.partition(".")[0] == __name__.partition(".")[0]:
        return repr({name: shown(item) for name, item in vars(value).items()}).encode()
    return ADDRESS.sub("", repr(value)).encode()


def _quoted(value: Any) -> str:
    return str(value) if isinstance(value, str) and value.endswith(")") else repr(value)
