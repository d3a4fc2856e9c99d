"""Who may do what: tokens and their scopes, read from a file.

::

    # a token and its scopes a line; make one with: openssl rand -hex 32
    4f1d0c...  predict
    99ab3e...  predict,learn  name=shop  expires=2027-06-30
    c07e51...  admin  expires=2027-01-31T18:00:00Z

``admin`` includes the others. A token is good up to the moment it expires, at the beginning of a day in UTC if only the
day is said; the log tells of tokens by their names, never their text. Programs send ``Authorization: Bearer TOKEN``.
Browsers ask for a name and a password (HTTP Basic): the token is the password, the name may be anything.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import hashlib
import logging
import math
import os
import secrets
import time
from collections.abc import Callable, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from starlette.authentication import AuthCredentials, AuthenticationBackend, BaseUser, SimpleUser, UnauthenticatedUser
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from streamboost.serving.responses import error_response

SCOPES = ("predict", "learn", "admin")
ANYONE = "anyone"  # where there are no tokens
SHORTEST = 16  # letters of a token that nobody guesses
logger = logging.getLogger(__name__)


class _Token(NamedTuple):
    token: bytes
    scopes: frozenset[str]
    name: str
    expires: float


class Tokens:
    """Tokens, and what each allows.

    Parameters
    ----------
    scopes : dict
        From token to its scopes: ``"predict"``, ``"learn"``, ``"admin"``.
    names : dict, optional
        From token to its name in the log; left out, "token 1", "token 2", ...
    expires : dict, optional
        From token to the time in seconds since 1970 after which it is not known any more.
    clock : callable, default=time.time

    Examples
    --------
    >>> tokens = Tokens({"correct-horse-battery": ["predict"]})
    >>> sorted(tokens.scopes_of("correct-horse-battery")), tokens.scopes_of("wrong-horse-battery")
    (['predict'], None)
    """

    def __init__(
        self,
        scopes: Mapping[str, object],
        *,
        names: Mapping[str, str] | None = None,
        expires: Mapping[str, float] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        names, expires, self.clock = names or {}, expires or {}, clock
        self._tokens = [
            _Token(
                token.encode(),
                _check(token, asked, f"token {number}"),
                names.get(token, f"token {number}"),
                expires.get(token, math.inf),
            )
            for number, (token, asked) in enumerate(scopes.items(), start=1)
        ]
        self._told: set[str] = set()  # names of those that the log said have expired
        if not self._tokens:
            raise ValueError("there is no token, expected at least one. Add a line: TOKEN predict,learn")

    def scopes_of(self, token: str | bytes) -> frozenset[str] | None:
        """Return what a token allows; None if there is no such token, or none any more."""
        found = self._find(token)
        if found is None:
            return None
        if self.clock() < found.expires:
            return found.scopes
        if found.name not in self._told:
            self._told.add(found.name)
            logger.warning("%s expired %s and is refused from now on.", found.name, _day(found.expires))
        return None

    def has_expired(self, token: str | bytes) -> bool:
        """Return whether a token was good once."""
        found = self._find(token)
        return found is not None and self.clock() >= found.expires

    def _find(self, token: str | bytes) -> _Token | None:
        asked, found = token if isinstance(token, bytes) else token.encode("utf-8", "surrogateescape"), None
        for known in self._tokens:  # all of them in constant time, whether found or not
            if secrets.compare_digest(asked, known.token):
                found = known
        return found

    def describe(self) -> list[str]:
        """Return a line for each token, without its text."""
        told = []
        for token in self._tokens:
            until = "" if token.expires == math.inf else f", {'expired' if self.clock() >= token.expires else 'until'} "
            until += "" if token.expires == math.inf else _day(token.expires)
            told.append(f"{token.name}: {', '.join(sorted(token.scopes))}{until}")
        return told


def _day(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class TokenBackend(AuthenticationBackend):
    """Tells Starlette's ``AuthenticationMiddleware`` which scopes a request has; without tokens it has all."""

    def __init__(self, tokens: Tokens | None) -> None:
        self.tokens = tokens

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, BaseUser] | None:
        """Return the scopes of the token that was sent; None if there is none, or none that is known."""
        if self.tokens is None:
            return AuthCredentials(SCOPES), SimpleUser(ANYONE)
        token = _token_of(conn.headers.get("authorization", ""))
        scopes = self.tokens.scopes_of(token)
        if scopes is None:
            return (AuthCredentials(), _Expired()) if self.tokens.has_expired(token) else None
        return AuthCredentials(sorted(scopes)), SimpleUser(_name_of(token))

    def knows(self, authorization: str) -> bool:
        """Return whether a request with this header would be let in somewhere."""
        return self.tokens is None or self.tokens.scopes_of(_token_of(authorization)) is not None


class _Expired(UnauthenticatedUser):
    """Somebody whose token was good once."""


def _name_of(token: bytes) -> str:
    """Return a name for a token from which nobody can tell it."""
    return hashlib.blake2b(token, digest_size=8, person=b"streamboost id").hexdigest()


def owned_id(request: Request, id: str | None) -> str | None:
    """Return the id of a request as the journal knows it: ids of different tokens are different ids."""
    name = request.user.display_name
    return id if id is None or name == ANYONE else f"{id}@{name}"


def _token_of(header: str) -> bytes:
    """Return the token of an Authorization header: ``Bearer TOKEN``, or the password of ``Basic ...``; else nothing."""
    kind, _, sent = header.partition(" ")
    if kind.lower() == "bearer":
        return sent.strip().encode("latin-1")
    if kind.lower() == "basic":
        with contextlib.suppress(ValueError):
            return base64.b64decode(sent.strip(), validate=True).partition(b":")[2]
    return b""


def no_access(request: Request) -> Response:
    """Answer a request without the scope it needs: 401 asks for a token, 403 tells what the token lacks."""
    if request.user.is_authenticated:
        said = f"the token has the scopes {', '.join(request.auth.scopes)}, which do not open {request.url.path[:100]}"
        told = "learn opens /learn and /label, predict all other paths but /checkpoint, admin everything."
        return error_response(f"{said}. Send one that does: {told}", 403)
    said = "is not known here" if "authorization" in request.headers else "is missing"
    if isinstance(request.user, _Expired):
        said = "has expired"
    refusal = error_response(f"the token {said}. Send the header Authorization: Bearer TOKEN.", 401)
    for challenge in ("Bearer", 'Basic realm="streamboost, the password is a token", charset="UTF-8"'):
        refusal.headers.append("WWW-Authenticate", challenge)  # a line each: browsers do not look behind a comma
    return refusal


def read_tokens(path: str | os.PathLike[str]) -> Tokens:
    """Read tokens from a file; a line that is not understood is an error with its number, and never shows the token."""
    scopes: dict[str, object] = {}
    known: dict[str, dict[str, Any]] = {"name": {}, "expires": {}}
    lines, where = Path(path).read_text(encoding="utf-8").splitlines(), ""
    try:
        for number, line in enumerate(lines, start=1):
            words, where = list(takewhile(lambda word: not word.startswith("#"), line.split())), f", line {number}"
            if len(words) == 1 or not all("=" in word for word in words[2:]):
                raise ValueError("expected a token and its scopes, as in: TOKEN predict,learn")
            if words and words[0] in scopes:
                raise ValueError("the token is there already. Keep one of the two lines.")
            if words:
                scopes[words[0]] = _check(words[0], words[1].split(","), "the token")
                known["name"][words[0]] = f"token of line {number}"
            for name, _, value in (word.partition("=") for word in words[2:]):
                if name not in known or not value:
                    raise ValueError(
                        f"{name[:20]!r} is not known, expected name=... or expires=2027-06-30 after the scopes."
                    )
                known[name][words[0]] = _time(value) if name == "expires" else value
        where = ""
        return Tokens(scopes, names=known["name"], expires=known["expires"])
    except ValueError as error:
        raise ValueError(f"{str(path)!r}{where}: {error}") from None


def _time(text: str) -> float:
    """Return a time as seconds since 1970; without a zone it is in UTC."""
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"expires is {text[:40]!r}, expected a day or a time such as 2027-06-30T18:00:00Z.") from None
    return (found if found.tzinfo is not None else found.replace(tzinfo=datetime.UTC)).timestamp()


def _check(token: str, names: object, what: str) -> frozenset[str]:
    scopes = frozenset(names if isinstance(names, (list, tuple, set, frozenset)) else [names])
    unknown = sorted(map(str, scopes - set(SCOPES)))
    if unknown or not scopes:
        found = ", ".join(unknown) or "none"
        raise ValueError(f"{what} has the scope {found!r}, expected some of {', '.join(SCOPES)}.")
    if not (token.isascii() and token.isprintable()) or set(token) & set(' "\\,;'):
        raise ValueError(f"{what} holds letters that no header can, expected plain ones. Try: openssl rand -hex 32")
    if len(token) < SHORTEST:
        raise ValueError(f"{what} has {len(token)} letters, expected at least {SHORTEST}. Try: openssl rand -hex 32")
    return frozenset(SCOPES) if "admin" in scopes else scopes
