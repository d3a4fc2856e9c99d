"""The page as one file: scripts, styles and history inside, to be sent and opened anywhere."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
from pathlib import Path

from streamboost.dashboard.assets import SCRIPTS, content, text
from streamboost.dashboard.feed import Feed

LINE_OF_MODULES = re.compile(r"^(import .*;$|export )", re.MULTILINE)
HEAD = re.compile(r"<!-- head -->.*<!-- /head -->", re.DOTALL)


def write_page(feed: Feed, path: str | os.PathLike[str]) -> Path:
    """Write the page as it stands now to one HTML file, replaced if it is there, that needs no server and no network.

    Examples
    --------
    >>> import tempfile
    >>> feed = Feed("prices")
    >>> feed.publish({"rows": 500})
    >>> page = write_page(feed, Path(tempfile.mkdtemp()) / "report.html")
    >>> "<title>prices</title>" in page.read_text("utf-8")
    True
    """
    path = Path(path)
    draft = path.with_name(path.name + ".part")
    draft.write_text(_page(feed), encoding="utf-8")
    os.replace(draft, path)
    return path


def _page(feed: Feed) -> str:
    data = json.dumps({**feed.history(), "ended": True}, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    styles = [text("uplot.css"), text("page.css")]
    script = "".join(LINE_OF_MODULES.sub("", text(name)) for name in SCRIPTS)
    scripts = [f"/*\n{text('uplot-licence.txt')}*/\n{text('uplot.js')}", script]
    icon = base64.b64encode(content("icon.svg")).decode()
    # Nothing may be loaded, and nothing run but what is in the file.
    policy = f"default-src 'none'; img-src data:; script-src {_hashes(scripts)}; style-src {_hashes(styles)}"
    head = [
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        f"<title>{html.escape(feed.title or 'streamboost')}</title>",
        f'<link rel="icon" href="data:image/svg+xml;base64,{icon}">',
        *(f"<style>{style}</style>" for style in styles),
        f'<script type="application/json" id="history">{data}</script>',
        f"<script>{scripts[0]}</script>",
        f'<script type="module">{scripts[1]}</script>',
    ]
    return HEAD.sub(lambda _: "\n".join(head), text("page.html"))


def _hashes(texts: list[str]) -> str:
    digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts)
    return " ".join(f"'sha256-{digest}'" for digest in digests)
