"""Pictures in the house style, each saved twice: as PNG on white, and as SVG whose ink follows the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from streamboost.theory.report import COLOURS, FAINT, INK, STYLE, blank, inline_svg, logarithmic, whole_numbers

__all__ = ["COLOURS", "FAINT", "INK", "band", "blank", "legend", "logarithmic", "save", "shades", "whole_numbers"]


def band(axes: Any, x: Any, summary: dict[str, Any], **look: Any) -> None:
    """Draw a mean as a line and its spread as a band."""
    mean, spread = np.array(summary["mean"], dtype=float), np.array(summary["spread"], dtype=float)
    (line,) = axes.plot(x, mean, **look)
    axes.fill_between(x, mean - spread, mean + spread, color=line.get_color(), alpha=0.18, linewidth=0)


def shades(n: int) -> list[Any]:
    """So many colours in an order that can be seen."""
    return list(matplotlib.colormaps["viridis"](np.linspace(0.0, 0.9, n)))


def legend(axes: Any, **options: Any) -> None:
    """Name the lines."""
    axes.legend(frameon=False, fontsize=8, labelcolor=INK, **options)


def save(drawing: Any, folder: Path, name: str) -> str:
    """Write ``name.png`` and ``name.svg``, and give the name."""
    folder.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(STYLE):
        drawing.savefig(folder / f"{name}.png", dpi=130, facecolor="white", metadata={"Software": None})
    (folder / f"{name}.svg").write_text(inline_svg(drawing, name), encoding="utf-8")
    return name
