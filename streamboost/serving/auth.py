"""Who may do what: tokens and their scopes, read from a file.

::

    # a token and its scopes a line; make one with: openssl rand -hex 32
    4f1d0c...  predict
    99ab3e...  predict,learn
    c07e51...  admin

``admin`` includes the others. Programs send ``Authorization: Bearer TOKEN``. Browsers ask for a name and a password
(HTTP Basic): the token is the password, the name may be anything.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import secrets
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path

from starlette.authentication import AuthCredentials, AuthenticationBackend, BaseUser, SimpleUser
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from streamboost.serving.responses import error_response

SCOPES = ("predict", "learn", "admin")
ANYONE = "anyone"  # where there are no tokens
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
        self._scopes = [
            (token.encode(), _check(token, names, f"token {number}"))
            for number, (token, names) in enumerate(scopes.items(), start=1)
        ]
        if not self._scopes:
            raise ValueError("there is no token, expected at least one. Add a line: TOKEN predict,learn")

    def scopes_of(self, token: str | bytes) -> frozenset[str] | None:
        """Return what a token allows; None if there is no such token."""
        asked, found = token if isinstance(token, bytes) else token.encode("utf-8", "surrogateescape"), None
        for known, scopes in self._scopes:  # all of them in constant time, whether found or not
            if secrets.compare_digest(asked, known):
                found = scopes
        return found


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
        return None if scopes is None else (AuthCredentials(sorted(scopes)), SimpleUser(_name_of(token)))

    def knows(self, authorization: str) -> bool:
        """Return whether a request with this header would be let in somewhere."""
        return self.tokens is None or self.tokens.scopes_of(_token_of(authorization)) is not None


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
    refusal = error_response(f"the token {said}. Send the header Authorization: Bearer TOKEN.", 401)
    for challenge in ("Bearer", 'Basic realm="streamboost, the password is a token", charset="UTF-8"'):
        refusal.headers.append("WWW-Authenticate", challenge)  # a line each: browsers do not look behind a comma
    return refusal


def read_tokens(path: str | os.PathLike[str]) -> Tokens:
    """Read tokens from a file; a line that is not understood is an error with its number, and never shows the token."""
    scopes: dict[str, object] = {}
    lines, where = Path(path).read_text(encoding="utf-8").splitlines(), ""
    try:
        for number, line in enumerate(lines, start=1):
            words, where = list(takewhile(lambda word: not word.startswith("#"), line.split())), f", line {number}"
            if len(words) not in (0, 2):
                raise ValueError("expected a token and its scopes, as in: TOKEN predict,learn")
            if words and words[0] in scopes:
                raise ValueError("the token is there already. Keep one of the two lines.")
            if words:
                scopes[words[0]] = _check(words[0], words[1].split(","), "the token")
        where = ""
        return Tokens(scopes)
    except ValueError as error:
        raise ValueError(f"{str(path)!r}{where}: {error}") from None


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
