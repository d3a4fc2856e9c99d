"""From keys to workers: the same on every machine, in every process, with every version of Python.

A key is text, a whole number or a boolean. It is known by its token, bytes that tell 7 from "7" and 1 from True; eight
bytes of the BLAKE2b hash of the token make a number, and jump consistent hashing makes a worker of that number. When
there is one worker more, about one key in K + 1 moves, to the new one; no other key moves.

References
----------
.. [1] Lamping, J. and Veach, E. (2014). A fast, minimal memory, consistent hash algorithm. arXiv:1406.2294.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from streamboost._types import IntArray

Key: TypeAlias = str | int | bool

EXACT = 2**53  # whole numbers below this are themselves as floats
MULTIPLIER = np.uint64(2862933555777941757)  # of the generator in [1]


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


def token_of(key: Key) -> bytes:
    """The bytes a key is known by, in files and in hashes.

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


def hash_of(token: bytes) -> int:
    """A number below 2⁶⁴, as good as random and always the same."""
    return int.from_bytes(hashlib.blake2b(token, digest_size=8).digest(), "big")


def worker_of(key: Key, n_workers: int) -> int:
    """The worker of a key, one of 0 … n_workers - 1."""
    return int(workers_of([token_of(key)], n_workers)[0])


def workers_of(tokens: Sequence[bytes], n_workers: int) -> IntArray:
    """The workers of many keys, given by their tokens, (n,)."""
    if n_workers < 1:
        raise ValueError(f"n_workers is {n_workers!r}, expected a whole number of at least 1.")
    return _jump(np.fromiter(map(hash_of, tokens), np.uint64, len(tokens)), n_workers)


def _jump(hashes: NDArray[np.uint64], n_workers: int) -> IntArray:
    """Jump consistent hashing of [1], all keys side by side: each jumps ahead until it would leave."""
    state = hashes.copy()
    place, ahead = np.zeros(len(state), np.int64), np.zeros(len(state), np.int64)
    jumping = np.flatnonzero(ahead < n_workers)
    while len(jumping):
        place[jumping] = ahead[jumping]
        state[jumping] = state[jumping] * MULTIPLIER + np.uint64(1)  # modulo 2⁶⁴
        chance = (state[jumping] >> np.uint64(33)).astype(np.float64) + 1.0
        ahead[jumping] = ((place[jumping] + 1) * (float(1 << 31) / chance)).astype(np.int64)
        jumping = jumping[ahead[jumping] < n_workers]
    return place
