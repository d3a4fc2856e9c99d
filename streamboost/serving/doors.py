"""Who may pass: tokens in headers, and for browsers a form that puts one into a cookie.

A page cannot add a header to its stream of events, and a token in an address would end up in logs. So a browser's
token is typed into a form and comes back in a cookie that scripts cannot read and other sites cannot send. Cookies open
only what changes nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Literal
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from streamboost.serving.bodies import Held, read_body
from streamboost.serving.refusals import Limits, Refused
from streamboost.serving.tokens import Tokens

Scope = Literal["predict", "learn", "admin"]
Handler = Callable[[Request], Awaitable[Response]]

COOKIE = "streamboost_token"
FORM_TYPE = "application/x-www-form-urlencoded"
FORM_BYTES = 4096  # anyone may send it, so it holds a token and no more
DAY = 86_400
FORM = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>streamboost: token</title>
</head>
<body>
<main>
<h1>streamboost</h1>
<form method="post" action="login">
<p><label for="token">Token with the scope <em>predict</em></label></p>
<p><input id="token" name="token" type="password" autocomplete="current-password" required autofocus size="40"></p>
<p role="alert">{said}</p>
<p><button type="submit">Open the dashboard</button></p>
</form>
</main>
</body>
</html>
"""


class Doors:
    """Lets requests pass or not.

    Parameters
    ----------
    tokens : Tokens, optional
        Without them everyone passes.
    limits : Limits
    held : Held
    """

    def __init__(self, tokens: Tokens | None, limits: Limits, held: Held) -> None:
        self.tokens, self.held = tokens, held
        self.limits = replace(limits, body_bytes=min(FORM_BYTES, limits.body_bytes))

    def check(self, request: Request, scope: Scope) -> None:
        """Refuse whoever has no token, or one without the scope."""
        if self.tokens is None:
            return
        token = _token_of(request)
        scopes = self.tokens.scopes_of(token)
        if scopes is None:
            said = "is not known here" if token else "is missing"
            raise Refused(
                401, f"the token {said}. Send the header Authorization: Bearer TOKEN.", {"WWW-Authenticate": "Bearer"}
            )
        if scope not in scopes:
            raise Refused(403, f"the token has the scopes {', '.join(sorted(scopes))}, and this needs {scope}.")

    def guarded(self, scope: Scope, handler: Handler) -> Handler:
        """A handler behind a door."""

        async def behind(request: Request) -> Response:
            self.check(request, scope)
            return await handler(request)

        return behind

    def guarded_page(self, route: BaseRoute) -> BaseRoute:
        """A route of the dashboard: its files are no secret, its events are; the page without a token is the form."""
        assert isinstance(route, Route)
        handler: Handler = route.endpoint
        if route.path == "/events":
            return Route(route.path, self.guarded("predict", handler))
        if route.path != "/":
            return Route(route.path, _as_refusal(handler))

        async def page(request: Request) -> Response:
            try:
                self.check(request, "predict")
            except Refused:
                return RedirectResponse("login", 303)
            return await handler(request)

        return Route(route.path, page)

    async def login(self, request: Request) -> Response:
        """The form, and what it sends."""
        if request.method != "POST":
            return _form()
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM_TYPE:
            raise Refused(415, f"the body is not of type {FORM_TYPE}, which is what the form sends.")
        body = await read_body(request, self.limits, self.held)
        self.held.give_back(len(body))
        if self.tokens is None:
            return RedirectResponse("./", 303)
        token = _typed_in(body)
        scopes = self.tokens.scopes_of(token)
        if scopes is None or "predict" not in scopes:
            return _form("This token is not known here, or may not predict.", 401 if scopes is None else 403)
        response = RedirectResponse("./", 303)
        secure = request.url.scheme == "https"
        response.set_cookie(COOKIE, token, max_age=DAY, httponly=True, samesite="strict", secure=secure)
        return response


def _as_refusal(handler: Handler) -> Handler:
    """A file that is not there is refused like everything else."""

    async def file(request: Request) -> Response:
        response = await handler(request)
        if response.status_code == 404:
            raise Refused(404, "there is no such file.")
        return response

    return file


def _token_of(request: Request) -> str:
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return token.strip()
    return request.cookies.get(COOKIE, "") if request.method in ("GET", "HEAD") else ""


def _form(said: str = "", status: int = 200) -> Response:
    """The form; what is said is ours, never a client's."""
    return HTMLResponse(FORM.replace("{said}", said), status)


def _typed_in(body: bytes) -> str:
    try:
        fields = parse_qs(body.decode("ascii"), max_num_fields=10)
    except ValueError:
        return ""
    return fields.get("token", [""])[0].strip()
