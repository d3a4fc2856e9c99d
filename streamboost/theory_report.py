"""The theory of one's own run as a page: regret over learners and over rows, the edges, the bound, and advice in words.

In go a booster or an estimator and rows; out comes one HTML file that needs nothing else. Pictures are drawn by
matplotlib (the ``plot`` extra) and stand in the page as SVG whose ink follows the reader's light or dark theme.
"""

from __future__ import annotations

import copy
import html
import io
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.tree import DecisionTreeRegressor

from streamboost import recipes, theory
from streamboost.arrays import FloatArray
from streamboost.boosting import Booster
from streamboost.chunks import check_chunk
from streamboost.descents import GradientDescent, ResidualProjection
from streamboost.errors import require
from streamboost.losses import Loss, Softmax
from streamboost.replay import Replay
from streamboost.theory import Regret

FEW_ROWS = 20  # an average over fewer tells of these rows only
EXACT = 1e-8  # a base that loses so little of what a score of 0 loses leaves nothing but rounding
DEPTH = 15  # of the tree the regret is measured against, as in the paper
INK, FAINT = "#333333", "#d9d9d9"  # in the page they give way to the theme's
COLOURS = ("#3b82c4", "#d97706", "#3a9a68", "#a276b8", "#d1495b")
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": FAINT,
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "svg.fonttype": "none",
}


def report(
    model: Any,
    X: Any,
    y: Any,
    file: str | Path,
    *,
    comparator: Any = None,
    chunk: int = 1,
) -> Regret:
    """Let a copy of a model go on learning rows, and write what the theory says of it as a page.

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

    Returns
    -------
    Regret
        The numbers in the page.

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
    _check_place(Path(file))
    booster, rows, targets = _parts(model, X, y)
    booster = copy.deepcopy(booster)
    scores = hindsight_tree(rows, targets, booster.loss) if comparator is None else comparator
    regret = theory.measure_regret(booster, rows, targets, scores, chunk=chunk)
    name = "a tree of depth 15 that saw these rows" if comparator is None else "the comparator"
    base_loss = float(regret.by_learners[0]) + regret.comparator_loss
    nothing_said = booster.loss.mean(np.zeros((len(rows), booster.loss.n_outputs)), targets)
    page = _page(booster, regret, name, is_exact=base_loss <= EXACT * nothing_said)
    Path(file).write_text(page, encoding="utf-8")
    return regret


def hindsight_tree(X: FloatArray, y: FloatArray, loss: Loss, depth: int = DEPTH) -> FloatArray:
    """The scores (n, m) of a deep regression tree fitted to these rows, each leaf at the score ``loss.start`` gives it.

    That is the score of least loss; where several outputs are tied together (softmax), nearly so.

    Parameters
    ----------
    X, y : arrays of shape (n, d) and (n, k)
    loss : Loss
    depth : int
    """
    start = np.broadcast_to(loss.start(y), (len(y), loss.n_outputs))
    goal = y if y.shape[1] == loss.n_outputs else -loss.gradient(start, y)
    tree = DecisionTreeRegressor(max_depth=depth, random_state=0).fit(X, goal)
    leaves, members = np.unique(tree.apply(X), return_inverse=True)
    best = np.array([loss.start(y[members == leaf]) for leaf in range(len(leaves))])  # (leaves, m)
    return best[members]


def _parts(model: Any, X: Any, y: Any) -> tuple[Booster, FloatArray, FloatArray]:
    """A booster, and rows and targets as it takes them."""
    if isinstance(model, Booster):
        rows, targets = np.asarray(X, dtype=float), np.asarray(y, dtype=float)
        _check_lengths(rows, targets)
        rows, targets, _ = check_chunk(
            rows, targets, None, model.loss, model.stack.n_features if model.is_open else None
        )
        return model, rows, targets
    if not hasattr(model, "booster_"):
        raise TypeError(
            f"model is a {type(model).__name__}, expected a Booster, or an SGBRegressor or SGBClassifier that has "
            "learned rows. Call fit first."
        )
    rows, encoded = model._rows(X), model._encode_targets(y)
    _check_lengths(rows, encoded.values)
    if getattr(encoded, "new", ()):
        raise ValueError(f"y holds classes the model has not met: {list(encoded.new)}. Let it learn some rows of them.")
    booster: Booster = model.booster_
    targets = encoded.values
    if hasattr(model, "labels_") and not isinstance(booster.loss, Softmax):
        targets = recipes.margins(targets[:, 0], booster.loss.n_outputs)
    return booster, rows, targets


def _check_lengths(rows: FloatArray, targets: FloatArray) -> None:
    if rows.ndim != 2 or not len(rows):
        raise ValueError(f"X has shape {rows.shape}, expected rows of numbers, (n, d), and at least one of them.")
    if len(rows) != len(targets):
        raise ValueError(f"X has {len(rows)} rows and y has {len(targets)}, expected a target for each row.")


def _check_place(file: Path) -> None:
    """Before anything is learned: a page that cannot be written would be known only at the end."""
    if file.is_dir() or not file.parent.is_dir():
        wrong = "a folder" if file.is_dir() else f"in {str(file.parent)!r}, which is no folder"
        raise ValueError(f"file {str(file)!r} is {wrong}, expected a file to write. Make the folder, or name another.")


# The page.


def _page(booster: Booster, regret: Regret, comparator: str, *, is_exact: bool) -> str:
    n_rows = int(regret.over_rows.rows[-1])
    N = len(regret.edges)
    facts = [
        ("rows measured", f"{n_rows:,}"),
        ("learners", f"{N}"),
        ("loss", repr(booster.loss)),
        ("descent", repr(booster.descent)),
        ("average loss of " + comparator, f"{regret.comparator_loss:.4g}"),
        ("average regret of the base alone", f"{regret.by_learners[0]:.4g}"),
        (f"average regret of all {N} learners", f"{regret.by_learners[-1]:.4g}"),
        ("edge of the weakest and of the mean learner", _edge_numbers(regret.edges)),
        ("the theorem's bound at all learners", _number(float(regret.bound[-1]))),
    ]
    table = "".join(f"<tr><td>{html.escape(a)}</td><td>{html.escape(b)}</td></tr>" for a, b in facts)
    pictures = [
        (
            _regret_over_learners(regret),
            f"Average regret of the booster cut off after so many learners.{_dashed(regret)}",
        ),
        (_regret_over_rows(regret), f"Average regret of all {N} learners over the rows so far."),
        (_edges(regret), "What share of its target each learner explains, on these rows."),
    ]
    body = (
        f"<h1>The theory of this run</h1><p class='lead'>{html.escape(_lead(regret, is_exact))}</p>"
        f"{figures([(inline_svg(drawing, str(i)), caption) for i, (drawing, caption) in enumerate(pictures)])}"
        f"<table>{table}</table><p>{html.escape(_bound_in_words(booster, regret))} {html.escape(_caveat(booster))}</p>"
    )
    return shell("The theory of this run", body)


def _lead(regret: Regret, is_exact: bool) -> str:
    """What the edges on these rows tell, in words."""
    n_rows = int(regret.over_rows.rows[-1])
    if is_exact:
        return "The base alone predicts these rows: it leaves the learners nothing but rounding to explain."
    if n_rows < theory.ENOUGH_ROWS:
        return f"Too few rows ({n_rows}) to judge the learners: show it {theory.ENOUGH_ROWS} or more."
    return f"{theory.judge(regret.edges)} {_best_number(regret.by_learners)}"


def _best_number(by_learners: FloatArray) -> str:
    """How many learners do best: a learner without an edge may still point the right way, and small steps forgive."""
    N, best = len(by_learners) - 1, int(by_learners.argmin())
    if best == N:
        return "By the regret on these rows no smaller N does better."
    name = f"N = {best}" if best else "N = 0, the base alone,"
    return f"By the regret on these rows {name} does best ({by_learners[best]:.4g}; N = {N}: {by_learners[N]:.4g})."


def _dashed(regret: Regret) -> str:
    drawn = np.isfinite(regret.bound)[1:].any()
    return " Dashed: the bound at the weakest edge of so many learners." if drawn else ""


def _edge_numbers(edges: FloatArray) -> str:
    known = edges[np.isfinite(edges)]
    if not len(known):
        return "none: there was nothing to explain"
    return f"{known.min():.3f}, {known.mean():.3f}"


def _number(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "none"


def _bound_in_words(booster: Booster, regret: Regret) -> str:
    promised = np.isfinite(regret.bound)
    if not promised[1:].any():
        return (
            "No bound is drawn, for the theorems promise none: they need a strongly convex loss (a ridge, l2, makes it "
            "one), Algorithm 1 or 2, and an edge above 0 on every learner."
        )
    last = int(np.flatnonzero(promised)[-1])
    where = "" if promised[-1] else f" up to learner {last} (there is none beyond, where a learner has no edge)"
    if not (regret.by_learners <= regret.bound).all():
        return f"The measured regret is above the theorem's bound{where}: {_excuse(booster)}."
    if _has_the_theorems_steps(booster):
        return f"The measured regret stays below the theorem's bound{where}. Bounds of this kind are far from tight."
    return (
        f"The measured regret stays below the theorem's bound{where}, though that is a promise for other steps than "
        "these. Bounds of this kind are far from tight."
    )


def _excuse(booster: Booster) -> str:
    if _has_the_theorems_steps(booster):
        return "the steps followed edges that were still changing, or the comparator is outside of what it speaks of"
    return "the steps are not the theorem's own"


def _has_the_theorems_steps(booster: Booster) -> bool:
    """Whether the steps are γ/(β(8 − 4γ)), as in Theorem 1, or 1/(λ i), as in Theorem 2."""
    if isinstance(booster.descent, ResidualProjection):
        return booster.descent.step_size is None
    return isinstance(booster.descent, GradientDescent) and booster.descent.step_size == "theory"


def _caveat(booster: Booster) -> str:
    if isinstance(booster.replay, Replay) and booster.replay.learners == "next":
        return (
            "The learners of this booster are refitted in turn, so that its first k are nearly, not exactly, what a "
            "booster of k learners would have been."
        )
    return "No learner depends on those after it: the first k are what a booster of k learners would have been."


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


# Pictures and pages, for whoever else makes some.


def blank(x: str, y: str, title: str = "", *, width: float = 4.4, height: float = 3.2) -> tuple[Any, Any]:
    """An empty figure in the house style, and its axes.

    Parameters
    ----------
    x, y, title : str
        Labels.
    width, height : float
        In inches; narrow ones can be read on a phone.
    """
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
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    (axis.axes.set_xscale if axis.axis_name == "x" else axis.axes.set_yscale)("log")
    low, high = axis.get_data_interval()
    is_wide = high > 300 * max(low, 1e-300)
    even = not is_wide and _n_marks(low, high) < 3
    subs = (1.0,) if is_wide else (1.0, 2.0, 5.0)
    axis.set_major_locator(MaxNLocator(5) if even else LogLocator(subs=subs))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))
    axis.set_minor_formatter(NullFormatter())


def _n_marks(low: float, high: float) -> int:
    """How many of 1, 2, 5, 10, 20, … and 0.5, 0.2, 0.1, … there are from low to high, both above 0."""
    tens = 10.0 ** np.arange(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    marks = np.outer(tens, [1.0, 2.0, 5.0])
    return int(((low <= marks) & (marks <= high)).sum())


def _tick(value: float) -> str:
    return f"{value / 1e6:,g} M" if 1e6 <= value < 1e9 else f"{value:,g}"


def whole_numbers(axes: Any) -> None:
    """Mark the horizontal axis at whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def inline_svg(drawing: Any, salt: str) -> str:
    """A drawing as an ``<svg>`` element whose ink is the text colour around it.

    Parameters
    ----------
    drawing : matplotlib Figure
    salt : str
        Something of its own for each drawing in a page, so that their inner names do not meet.
    """
    matplotlib = require("matplotlib", extra="plot", by="a picture")
    buffer = io.StringIO()
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": salt}):
        drawing.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    head, rest = text.split(">", 1)
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    text = f"{head}>{re.sub(r'<metadata>.*?</metadata>', '', rest, flags=re.DOTALL)}"
    text = re.sub(r'\b(id="|url\(#|xlink:href="#)', rf"\g<1>{re.sub(r'[^a-zA-Z0-9]', '', salt)}_", text)
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
h1 { font-size: 1.5rem } h2 { font-size: 1.2rem; margin-top: 2.5rem; border-top: 1px solid var(--faint);
  padding-top: 1rem }
.lead { font-size: 1.05rem }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); gap: 1rem }
figure { margin: 0 } figure svg { width: 100%; height: auto } figcaption, .small { font-size: .85rem; opacity: .85 }
.table { overflow-x: auto } table { border-collapse: collapse; width: 100%; margin: 1rem 0; font-size: .92rem }
td, th { border-bottom: 1px solid var(--faint); padding: .35rem .6rem; text-align: left; vertical-align: top }
table.wide { table-layout: fixed } table.wide th:nth-child(1) { width: 22% } table.wide th:nth-child(2) { width: 14% }
th { background: var(--soft) } a { color: var(--accent) }
.warning { border-left: 4px solid #d97706; background: var(--soft); padding: .5rem .8rem }
@media (max-width: 40rem) {
  table.wide, table.wide tbody, table.wide tr, table.wide td { display: block; width: 100% }
  table.wide tr.head { display: none } table.wide td::before { content: attr(data-head) " "; font-weight: 600 }
  table.wide td:first-child { font-weight: 600 } table.wide td:empty { display: none }
  table.wide td { border: 0; padding: .15rem 0 } table.wide tr { border-bottom: 1px solid var(--faint);
    padding: .5rem 0 }
}
"""


def shell(title: str, body: str) -> str:
    """A whole page around a body: one file, light or dark as the reader's system is."""
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{html.escape(title)}</title><style>{CSS}</style></head><body>{body}</body></html>\n"
    )
