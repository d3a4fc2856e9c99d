"""The files of the page: a fixed list, so that no request finds its way to another."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources
from typing import NamedTuple

SCRIPTS = ("format.js", "history.js", "theme.js", "charts.js", "stacked.js", "strip.js", "page.js")  # in this order
FILES = {
    "page.html": "page/page.html",
    "page.css": "page/page.css",
    "icon.svg": "page/icon.svg",
    **{name: f"page/{name}" for name in SCRIPTS},
    "uplot.js": "uplot/uPlot.iife.min.js",
    "uplot.css": "uplot/uPlot.min.css",
    "uplot-licence.txt": "uplot/LICENSE",
}
MEDIA_TYPES = {
    "css": "text/css",
    "html": "text/html",
    "js": "text/javascript",
    "svg": "image/svg+xml",
    "txt": "text/plain",
}


class Asset(NamedTuple):
    """A file, what it is, and a tag that changes when it does."""

    content: bytes
    media_type: str
    tag: str


@cache
def asset(name: str) -> Asset:
    """A file of the list."""
    content = resources.files("streamboost.dashboard").joinpath(FILES[name]).read_bytes()
    return Asset(content, MEDIA_TYPES[name.rsplit(".", 1)[1]], f'"{hashlib.sha256(content).hexdigest()[:20]}"')


def text(name: str) -> str:
    """The same as text."""
    return asset(name).content.decode("utf-8")
