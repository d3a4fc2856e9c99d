"""The theory of one's own run as a page: regret over learners and over rows, the edges, the bound, and advice in words.

In go a booster or an estimator and rows; out comes one HTML file that needs nothing else. Pictures are drawn by
matplotlib (the ``plot`` extra) and stand in the page as SVG whose ink follows the reader's light or dark theme.
"""

from __future__ import annotations

import copy
import functools
import html
import io
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.tree import DecisionTreeRegressor

from streamboost import theory
from streamboost._types import FloatArray
from streamboost.boosting import Booster
from streamboost.descents import ResidualProjection
from streamboost.errors import require
from streamboost.estimators.defaults import margins
from streamboost.estimators.regressor import encode_numbers
from streamboost.losses import Loss, Softmax
from streamboost.replay import Replay
from streamboost.theory import Regret
from streamboost.theory.regret import ENOUGH_ROWS

FEW_ROWS = 20  # an average over fewer tells of these rows only
EXACT = 1e-8  # a base that loses so little of what a score of 0 loses leaves nothing but rounding
DEPTH = 15  # of the tree the regret is measured against, as in the paper
INK, FAINT = "#333333", "#d9d9d9"  # in the page they give way to the theme's
COLOURS = ("#3b82c4", "#d97706", "#3a9a68", "#a276b8", "#d1495b")
STYLE: dict[Any, Any] = {
    "font.size": 9, "axes.edgecolor": INK, "axes.labelcolor": INK, "axes.spines.top": False, "axes.spines.right": False,
    "grid.color": FAINT, "grid.linewidth": 0.5, "legend.frameon": False, "legend.fontsize": 8, "text.color": INK,
    "xtick.color": INK, "ytick.color": INK, "svg.fonttype": "none",
}  # fmt: skip


def report(model: Any, X: Any, y: Any, file: str | Path, *, comparator: Any = None, chunk: int = 1) -> Regret:
    """Let a copy of a model learn more rows, write what the theory says of it as a page, and return its numbers.

    Parameters
    ----------
    model : Booster or fitted SGBRegressor or SGBClassifier
        It stays as it is. Of an estimator, the booster with the longest memory is looked at.
    X, y : rows and targets
        Rows the model has not learned yet, of the kind it takes.
    file : str or Path
        The page, HTML; it is written over.
    comparator : callable, fitted scikit-learn model, or array of scores, optional
        f*, see :func:`streamboost.theory.comparator_scores`. Left out: a tree of depth 15 that saw these very rows,
        as in the paper. It has learned the noise by heart, so the regret against it need not come down to 0.
    chunk : int
        How many rows are predicted before they are learned.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from streamboost import SGBRegressor
    >>> from streamboost.datasets import friedman
    >>> stream = friedman(1500)
    >>> model = SGBRegressor(n_estimators=20, max_depth=3).fit(stream.X[:1000], stream.y[:1000])
    >>> file = Path(tempfile.mkdtemp()) / "theory.html"
    >>> regret = report(model, stream.X[1000:], stream.y[1000:], file)
    >>> bool(regret.by_learners[-1] < regret.by_learners[0]), file.stat().st_size > 10_000
    (True, True)
    """
    require("matplotlib", extra="plot", by="report")
    file = Path(file)
    if file.is_dir() or not file.parent.is_dir():  # said before anything is learned
        wrong = "a folder" if file.is_dir() else f"in {str(file.parent)!r}, which is no folder"
        raise ValueError(f"file {str(file)!r} is {wrong}, expected a file to write. Make the folder, or name another.")
    booster, rows, targets = _parts(model, X, y)
    if booster.is_frozen:
        raise ValueError("model is frozen, expected one that can go on learning. Pass the one it was made of.")
    booster = copy.deepcopy(booster)
    name = "the comparator"
    if comparator is None:
        name = f"a tree of depth {DEPTH} that saw these rows"
        comparator = functools.partial(hindsight_tree, y=targets, loss=booster.loss)
    regret = theory.measure_regret(booster, rows, targets, comparator, chunk=chunk)
    base_loss = float(regret.by_learners[0]) + regret.comparator_loss
    nothing_said = booster.loss.mean(np.zeros((len(rows), booster.loss.n_outputs)), targets)
    file.write_text(_page(booster, regret, name, is_exact=base_loss <= EXACT * nothing_said), encoding="utf-8")
    return regret


def hindsight_tree(X: FloatArray, y: FloatArray, loss: Loss, depth: int = DEPTH) -> FloatArray:
    """The scores (n, m) of a deep regression tree fitted to these rows, each leaf at the score ``loss.start`` gives it.

    That is the score of least loss; where several outputs are tied together (softmax), nearly so.
    """
    start = np.broadcast_to(loss.start(y), (len(y), loss.n_outputs))
    goal = y if y.shape[1] == loss.n_outputs else -loss.gradient(start, y)
    tree = DecisionTreeRegressor(max_depth=depth, random_state=0).fit(X, goal)
    leaves, members = np.unique(tree.apply(X), return_inverse=True)
    best = np.array([loss.start(y[members == leaf]) for leaf in range(len(leaves))])  # (leaves, m)
    return best[members]


def _parts(model: Any, X: Any, y: Any) -> tuple[Booster, FloatArray, FloatArray]:
    """A booster, and rows (n, d) and targets (n, k) as it takes them; measuring checks that they fit."""
    if isinstance(model, Booster):
        rows, targets = np.asarray(X, dtype=float), np.asarray(y, dtype=float)
        return model, rows, targets[:, None] if targets.ndim == 1 else targets
    if not hasattr(model, "booster_"):
        expected = "a Booster, or an SGBRegressor or SGBClassifier that has learned rows. Call fit first."
        raise TypeError(f"model is a {type(model).__name__}, expected {expected}")
    booster, rows = model.booster_, model.encode(X)
    if not hasattr(model, "labels_"):
        return booster, rows, encode_numbers(y)
    codes, new = model.labels_.encode(y)
    if new:
        raise ValueError(f"y holds classes the model has not met: {new}. Let it learn some rows of them.")
    is_coded = isinstance(booster.loss, Softmax)
    return booster, rows, codes[:, None] if is_coded else margins(codes, booster.loss.n_outputs)


def _page(booster: Booster, regret: Regret, comparator: str, *, is_exact: bool) -> str:
    N = len(regret.edges)
    known = regret.edges[np.isfinite(regret.edges)]
    edges = f"{known.min():.3f}, {known.mean():.3f}" if len(known) else "none: there was nothing to explain"
    promised = np.isfinite(regret.bound)
    facts = [
        ("rows measured", f"{regret.over_rows.rows[-1]:,}"),
        ("learners", f"{N}"),
        ("loss", repr(booster.loss)),
        ("descent", repr(booster.descent)),
        ("average loss of " + comparator, f"{regret.comparator_loss:.4g}"),
        ("average regret of the base alone", f"{regret.by_learners[0]:.4g}"),
        (f"average regret of all {N} learners", f"{regret.by_learners[-1]:.4g}"),
        ("edge of the weakest and of the mean learner", edges),
        ("the theorem's bound at all learners", f"{regret.bound[-1]:.4g}" if promised[-1] else "none"),
    ]
    table = "".join(f"<tr><td>{html.escape(a)}</td><td>{html.escape(b)}</td></tr>" for a, b in facts)
    dashed = " Dashed: the bound at the weakest edge of so many learners." if promised[1:].any() else ""
    pictures = [
        (_regret_over_learners(regret), f"Average regret of the booster cut off after so many learners.{dashed}"),
        (_regret_over_rows(regret), f"Average regret of all {N} learners over the rows so far."),
        (_edges(regret), "What share of its target each learner explains, on these rows."),
    ]
    caveat = "No learner depends on those after it: the first k are"
    if isinstance(booster.replay, Replay) and booster.replay.learners == "next":
        caveat = "The learners of this booster are refitted in turn, so that its first k are nearly, not exactly,"
    words = f"{_bound_in_words(booster, regret)} {caveat} what a booster of k learners would have been."
    body = (
        f"<h1>The theory of this run</h1><p class='lead'>{html.escape(_lead(regret, is_exact))}</p>"
        f"{figures([(inline_svg(drawing, str(i)), caption) for i, (drawing, caption) in enumerate(pictures)])}"
        f"<table>{table}</table><p>{html.escape(words)}</p>"
    )
    return shell("The theory of this run", body)


def _lead(regret: Regret, is_exact: bool) -> str:
    """What the edges on these rows tell, in words."""
    if is_exact:
        return "The base alone predicts these rows: it leaves the learners nothing but rounding to explain."
    if (n_rows := int(regret.over_rows.rows[-1])) < ENOUGH_ROWS:
        return f"Too few rows ({n_rows}) to judge the learners: show it {ENOUGH_ROWS} or more."
    # A learner without an edge may still point the right way, and small steps forgive: so N is judged by the regret.
    regrets, N = regret.by_learners, len(regret.edges)
    best = int(regrets.argmin())
    advice = "no smaller N does better."
    if best < N:
        name = f"N = {best}" if best else "N = 0, the base alone,"
        advice = f"{name} does best ({regrets[best]:.4g}; N = {N}: {regrets[N]:.4g})."
    return f"{theory.judge(regret.edges)} By the regret on these rows {advice}"


def _bound_in_words(booster: Booster, regret: Regret) -> str:
    promised = np.isfinite(regret.bound)
    if not promised[1:].any():
        needs = "a strongly convex loss (a ridge, l2, makes it one), Algorithm 1 or 2, and an edge above 0"
        return f"No bound is drawn, for the theorems promise none: they need {needs} on every learner."
    last = int(np.flatnonzero(promised)[-1])
    where = "" if promised[-1] else f" up to learner {last} (there is none beyond, where a learner has no edge)"
    own = None if isinstance(booster.descent, ResidualProjection) else "theory"  # 1/(λ i); γ/(β(8 − 4γ)) in Theorem 1
    is_theorems_step = getattr(booster.descent, "step_size", None) == own
    if (regret.by_learners <= regret.bound).all():
        though = "" if is_theorems_step else ", though that is a promise for other steps than these"
        measured = f"The measured regret stays below the theorem's bound{where}{though}"
        return f"{measured}. Bounds of this kind are far from tight."
    excuse = "the steps are not the theorem's own"
    if is_theorems_step:
        excuse = "the steps followed edges that were still changing, or the comparator is outside of what it speaks of"
    return f"The measured regret is above the theorem's bound{where}: {excuse}."


def _regret_over_learners(regret: Regret) -> Any:
    drawing, axes = blank("learners N", "average regret")
    N = np.arange(len(regret.by_learners))
    axes.plot(N, regret.by_learners, color=COLOURS[0], marker=".", label="measured")
    finite = np.isfinite(regret.bound)
    if finite[1:].any():
        axes.plot(N[finite], regret.bound[finite], color=COLOURS[1], linestyle="--", label="the theorem's bound")
    whole_numbers(axes)
    if (regret.by_learners > 0).all():
        logarithmic(axes.yaxis)
    axes.legend(frameon=False, fontsize=8, labelcolor=INK)
    return drawing


def _regret_over_rows(regret: Regret) -> Any:
    drawing, axes = blank("rows", "average regret")
    rows, averages = regret.over_rows
    settled = rows >= min(FEW_ROWS, rows[-1])
    axes.plot(rows[settled], averages[settled], color=COLOURS[0], marker="." if settled.sum() < 3 else None)
    logarithmic(axes.xaxis)
    if (averages[settled] > 0).all():
        logarithmic(axes.yaxis)
    return drawing


def _edges(regret: Regret) -> Any:
    drawing, axes = blank("learner", "edge γ")
    axes.bar(np.arange(1, len(regret.edges) + 1), np.nan_to_num(regret.edges), color=COLOURS[0])
    axes.axhline(0, color=INK, linewidth=0.8)
    axes.set_xlim(0.4, len(regret.edges) + 0.6)
    whole_numbers(axes)
    return drawing


def blank(x: str, y: str, title: str = "", *, width: float = 4.4, height: float = 3.2) -> tuple[Any, Any]:
    """An empty figure in the house style with its labels, and its axes; sizes are in inches."""
    matplotlib = require("matplotlib", extra="plot", by="a picture")
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        drawing = Figure(figsize=(width, height), layout="constrained")
        axes = drawing.subplots()
        axes.set(xlabel=x, ylabel=y)
        axes.set_title(title, fontsize=9, loc="left")
        axes.grid(True)
        axes.set_axisbelow(True)
    return drawing, axes


def logarithmic(axis: Any) -> None:
    """Give an axis a logarithmic scale with plain numbers at 1, 2 and 5; evenly, if fewer than three of these fit."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    (axis.axes.set_xscale if axis.axis_name == "x" else axis.axes.set_yscale)("log")
    low, high = axis.get_data_interval()
    if high > 300 * max(low, 1e-300):
        axis.set_major_locator(LogLocator(subs=(1.0,)))
    else:
        tens = 10.0 ** np.arange(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        marks = np.outer(tens, [1.0, 2.0, 5.0])
        is_short = ((low <= marks) & (marks <= high)).sum() < 3
        axis.set_major_locator(MaxNLocator(5) if is_short else LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(lambda x, _: f"{x / 1e6:,g} M" if 1e6 <= x < 1e9 else f"{x:,g}")
    axis.set_minor_formatter(NullFormatter())


def whole_numbers(axes: Any) -> None:
    """Mark the horizontal axis at whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def inline_svg(drawing: Any, salt: str) -> str:
    """A drawing as an ``<svg>`` element in the text colour around it; a salt of its own keeps its inner names apart."""
    matplotlib = require("matplotlib", extra="plot", by="a picture")
    buffer = io.StringIO()
    no_metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": salt}):
        drawing.savefig(buffer, format="svg", transparent=True, metadata=no_metadata)
    text = "<svg" + buffer.getvalue().partition("<svg")[2]
    text = re.sub(r' (width|height)="[^"]*"', "", text, count=2)  # those of the whole: the page sets its size
    text = re.sub(r'\b(id="|url\(#|xlink:href="#)', rf"\g<1>{salt}_", text)
    return text.replace(INK, "currentColor").replace(FAINT, "var(--faint, #d9d9d9)")


def figures(pictures: Sequence[tuple[str, str]]) -> str:
    """Lay out SVG elements and their captions side by side, or one below the other on a phone."""
    cells = (f"<figure>{svg}<figcaption>{html.escape(caption)}</figcaption></figure>" for svg, caption in pictures)
    return f"<div class='figures'>{''.join(cells)}</div>"


CSS = """
:root { color-scheme: light dark; --ink: #222; --paper: #fff; --faint: #d9d9d9; --accent: #0b5cad; --soft: #f4f6f8 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e4e4; --paper: #16191d; --faint: #3a4048; --accent: #7db8f0; --soft: #1f242a }
}
* { box-sizing: border-box }
body { color: var(--ink); background: var(--paper); font: 16px/1.5 system-ui, sans-serif; margin: 0 auto;
  max-width: 62rem; padding: 1rem; overflow-wrap: anywhere }
h1 { font-size: 1.5rem } .lead { font-size: 1.05rem }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); gap: 1rem }
figure { margin: 0 } figure svg { width: 100%; height: auto } figcaption { font-size: .85rem; opacity: .85 }
table { border-collapse: collapse; width: 100%; margin: 1rem 0; font-size: .92rem }
td { border-bottom: 1px solid var(--faint); padding: .35rem .6rem; text-align: left; vertical-align: top }
"""


def shell(title: str, body: str, css: str = "") -> str:
    """A whole page around a body: one file, light or dark as the reader's system is."""
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{html.escape(title)}</title><style>{CSS}{css}</style></head><body>{body}</body></html>\n"
    )
