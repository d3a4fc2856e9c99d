"""A picture of one explanation: from what is said of no row in particular to the score, a bar for each column."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike

from streamboost.errors import require

UP, DOWN, TOTAL = "#1b7f79", "#c8553d", "#5b6470"
SHOWN = 12  # columns with a bar of their own


def draw_waterfall(
    contributions: Mapping[str, float], score: float, path: str | PathLike[str], *, rest: str, title: str = ""
) -> None:
    """Draw contributions by name, of which the one called ``rest`` is no column's, to a .png or .svg file."""
    figure = require("matplotlib.figure", extra="plot", by="The picture").Figure(dpi=150)
    columns = sorted(((n, v) for n, v in contributions.items() if n != rest), key=lambda item: -abs(item[1]))
    n = SHOWN if len(columns) > SHOWN + 1 else len(columns)
    shown, others = columns[:n], columns[n:]
    if others:
        shown.append((f"{len(others)} more columns", sum(value for _, value in others)))
    figure.set_size_inches(8, 1.6 + 0.36 * (len(shown) + 2))
    axes, at = figure.subplots(), contributions[rest]
    bars = [("of no row in particular", 0.0, at, TOTAL, f"{at:.4g}")]
    for name, value in shown:
        bars.append((name, at, value, UP if value > 0 else DOWN, f"{value:+.3g}"))
        at += value
    bars.append(("score", 0.0, score, TOTAL, f"{score:.4g}"))
    ends = [edge for _, left, width, *_ in bars[1:-1] for edge in (left, left + width)] or [0.0, score]
    low, high = min(*ends, score), max(*ends, score)
    room = 0.14 * (high - low or abs(score) or 1.0)  # for numbers beside bars
    axes.set_xlim(low - room, high + room)
    for y, (_, left, width, color, told) in enumerate(bars):
        axes.barh(y, width, left=left, color=color, height=0.66)
        end, leans = left + width, "left" if width >= 0 else "right"
        axes.annotate(told, (end, y), (4 if width >= 0 else -4, 0), textcoords="offset points", va="center", ha=leans)
        if y + 1 < len(bars):
            axes.plot([end, end], [y, y + 1], color=TOTAL, linewidth=0.7, zorder=0)
    axes.set_yticks(range(len(bars)), [name for name, *_ in bars])
    axes.invert_yaxis()
    axes.set_xlabel("score")
    axes.set_title(title, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)
