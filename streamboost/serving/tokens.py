"""Who may do what: tokens and their scopes, read from a file.

::

    # a token and its scopes a line; make one with: openssl rand -hex 32
    4f1d0c...  predict
    99ab3e...  predict,learn
    c07e51...  admin

``admin`` includes the others. A token is compared with all there are, each in constant time, so that how long it takes
to refuse one tells nothing of how much of it was right.
"""

from __future__ import annotations

import hmac
import os
import stat
from collections.abc import Mapping
from hashlib import sha256
from itertools import takewhile
from pathlib import Path

SCOPES = ("predict", "learn", "admin")
SHORTEST = 16  # letters of a token that nobody guesses


class Tokens:
    """Tokens, and what each allows.

    Parameters
    ----------
    scopes : dict
        From token to its scopes: ``"predict"``, ``"learn"``, ``"admin"``.

    Examples
    --------
    >>> tokens = Tokens({"correct-horse-battery": ["predict"]})
    >>> sorted(tokens.scopes_of("correct-horse-battery")), tokens.scopes_of("wrong-horse-battery")
    (['predict'], None)
    """

    def __init__(self, scopes: Mapping[str, object]) -> None:
        self._scopes: list[tuple[bytes, frozenset[str]]] = []
        for number, (token, names) in enumerate(scopes.items(), start=1):
            self._scopes.append((_digest(token), _check(token, names, f"token {number}")))
        if not self._scopes:
            raise ValueError("there is no token, expected at least one. Add a line: TOKEN predict,learn")

    def scopes_of(self, token: str) -> frozenset[str] | None:
        """What a token allows; None if there is no such token."""
        asked, found = _digest(token), None
        for known, scopes in self._scopes:  # all of them, whether found or not
            if hmac.compare_digest(asked, known):
                found = scopes
        return found


def read_tokens(path: str | os.PathLike[str]) -> Tokens:
    """Tokens from a file; a line that is not understood is an error with its number, and never shows the token."""
    scopes: dict[str, object] = {}
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), start=1):
        words = list(takewhile(lambda word: not word.startswith("#"), line.split()))
        if not words:
            continue
        if len(words) != 2:
            raise ValueError(
                f"{str(path)!r}, line {number}: expected a token and its scopes, as in: TOKEN predict,learn"
            )
        if words[0] in scopes:
            raise ValueError(f"{str(path)!r}, line {number}: the token is there already. Keep one of the two lines.")
        try:
            scopes[words[0]] = _check(words[0], words[1].split(","), "the token")
        except ValueError as error:
            raise ValueError(f"{str(path)!r}, line {number}: {error}") from None
    try:
        return Tokens(scopes)
    except ValueError as error:
        raise ValueError(f"{str(path)!r}: {error}") from None


def is_readable_by_others(path: str | os.PathLike[str]) -> bool:
    """Whether other users of the machine may read a file."""
    return bool(os.stat(path).st_mode & (stat.S_IRGRP | stat.S_IROTH))


def _check(token: str, names: object, what: str) -> frozenset[str]:
    scopes = frozenset(names if isinstance(names, (list, tuple, set, frozenset)) else [names])
    unknown = sorted(map(str, scopes - set(SCOPES)))
    if unknown or not scopes:
        raise ValueError(
            f"{what} has the scope {', '.join(unknown) or 'none'!r}, expected some of {', '.join(SCOPES)}."
        )
    if not (token.isascii() and token.isprintable()) or set(token) & set(' "\\,;'):
        raise ValueError(f"{what} holds letters that no header can, expected plain ones. Try: openssl rand -hex 32")
    if len(token) < SHORTEST:
        raise ValueError(f"{what} has {len(token)} letters, expected at least {SHORTEST}. Try: openssl rand -hex 32")
    return frozenset(SCOPES) if "admin" in scopes else scopes


def _digest(token: str) -> bytes:
    """Of one length whatever the token's: to compare texts of unequal length would tell the length."""
    return sha256(token.encode("utf-8", "surrogateescape")).digest()
