"""Keys: text, whole numbers and booleans, each known by its token, bytes that tell 7 from "7" and 1 from True."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Key: TypeAlias = str | int | bool

EXACT = 2**53  # whole numbers below this are themselves as floats


def plain_key(value: Any) -> Key | None:
    """A key as Python has it; None for what is missing.

    A float that is a whole number counts as one: pandas makes floats of whole numbers where some are missing.

    Examples
    --------
    >>> plain_key(np.int32(7)), plain_key("7"), plain_key(7.0), plain_key(float("nan"))
    (7, '7', 7, None)
    """
    if isinstance(value, np.generic) and value.dtype.kind in "biufU":
        value = value.item()
    if value is None or type(value) in (str, int, bool):
        return value  # type: ignore[no-any-return]
    if isinstance(value, float):
        if value != value:
            return None
        if value.is_integer() and abs(value) < EXACT:
            return int(value)
    if isinstance(value, str):  # a subclass
        return str.__str__(value)
    if type(value).__name__ in ("NAType", "NaTType"):  # as pandas has it
        return None
    raise TypeError(f"{value!r} is a {type(value).__name__}, expected text, a whole number or a boolean.")


def checked_token(value: Any) -> bytes:
    """The token of one key that is asked for; a ValueError if it is missing."""
    plain = plain_key(value)
    if plain is None:
        raise ValueError(f"key is {value!r}, which is missing, expected text, a whole number or a boolean.")
    return token_of(plain)


def token_of(key: Key) -> bytes:
    """The bytes a key is known by.

    Examples
    --------
    >>> token_of("7"), token_of(7), token_of(True)
    (b's7', b'i7', b'b1')
    """
    if isinstance(key, str):
        return b"s" + key.encode("utf-8", "surrogatepass")
    return b"b%d" % key if isinstance(key, bool) else b"i%d" % key


def key_of(token: bytes) -> Key:
    """Undo :func:`token_of`."""
    kind, rest = token[:1], token[1:]
    if kind == b"s":
        return rest.decode("utf-8", "surrogatepass")
    return bool(int(rest)) if kind == b"b" else int(rest)
