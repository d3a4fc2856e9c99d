"""The files of the page: a fixed list, so that no request finds its way to another."""

from __future__ import annotations

from functools import cache
from importlib import resources

SCRIPTS = ("format.js", "history.js", "theme.js", "charts.js", "stacked.js", "strip.js", "page.js")  # in this order
FILES = {
    **{name: f"page/{name}" for name in ("page.html", "page.css", "icon.svg", *SCRIPTS)},
    "uplot.js": "uplot/uPlot.iife.min.js",
    "uplot.css": "uplot/uPlot.min.css",
    "uplot-licence.txt": "uplot/LICENSE",
}
MEDIA_TYPES = {"css": "text/css", "html": "text/html", "js": "text/javascript", "svg": "image/svg+xml"}


@cache
def content(name: str) -> bytes:
    """Return a file of the list."""
    return resources.files("streamboost.dashboard").joinpath(FILES[name]).read_bytes()


def text(name: str) -> str:
    """Return a file of the list as text."""
    return content(name).decode()
