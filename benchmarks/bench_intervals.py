"""Intervals of nominal 0.9 beside the methods they stand on, run on the same predictions.

    STREAMBOOST_DATA=FOLDER python -m benchmarks.bench_intervals

Six streams: the price of electricity, bike_sharing, metro_traffic, cal_housing (whole, in file order), Friedman with an
abrupt change, and noise that depends on the row and on the time. Each row is predicted, then learned, by the default
regressor; every method sees the absolute errors of these predictions. Told are the share of targets covered, the mean
width, the interval score (width plus 2/0.1 times what a target lies outside), and the share of all windows of 1,000
rows that are covered between 0.85 and 0.95.
"""

from __future__ import annotations

import bisect
import contextlib
import sys
import time
from collections import deque
from collections.abc import Callable

import numpy as np

from benchmarks.bench_accuracy import keep, parser_of
from benchmarks.report import table
from benchmarks.streams import MissingData, load
from streamboost import SGBRegressor, datasets
from streamboost._types import FloatArray
from streamboost.boosting.intervals import Intervals
from streamboost.losses import Squared

COVERAGE, WINDOW, ALL = 0.9, 1000, 1_000_000
MISS = 1.0 - COVERAGE


def streams(n: int, seed: int) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Rows and targets of every stream that is there, n rows of each at the most."""
    electricity = load("electricity", n, 0).X
    price = 3  # of New South Wales, among the columns
    found = {"price of electricity": (np.delete(electricity, price, axis=1), electricity[:, price])}
    for name in ("bike_sharing", "metro_traffic", "cal_housing"):
        with contextlib.suppress(MissingData):
            stream = load(name, n, 0)
            if len(stream.y) > WINDOW // 10:
                found[name] = stream.X, stream.y
    n = min(n, 30_000)
    X, y, *_ = datasets.friedman(n, noise=1.0, seed=seed)
    found["friedman, abrupt"] = X, np.where(np.arange(n) < n // 2, y, 20.0 - y)
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 10))
    scale = (0.3 + 2.0 * X[:, 3]) * (1.0 + 0.8 * np.sin(np.arange(n) / 1500))
    found["changing noise"] = X, 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 5 * X[:, 2] + scale * rng.normal(size=n)
    return found


class Window:
    """The latest errors, sorted."""

    def __init__(self, n: int = WINDOW) -> None:
        self.n, self.latest, self.ordered = n, deque[float](), list[float]()

    def take(self, error: float) -> None:
        """Take in an error, in place of the oldest."""
        bisect.insort(self.ordered, error)
        self.latest.append(error)
        if len(self.latest) > self.n:
            self.ordered.pop(bisect.bisect_left(self.ordered, self.latest.popleft()))

    def quantile(self, level: float) -> float:
        """Return the quantile, twice the largest error for 1 and above."""
        k = len(self.ordered)
        if k == 0 or level <= 0.0:
            return 0.0
        return 2.0 * self.ordered[-1] if level >= 1.0 else self.ordered[min(int(np.ceil(level * (k + 1))), k) - 1]


def adaptive(errors: FloatArray, rate: float = 0.005) -> FloatArray:
    """Adaptive conformal inference (Gibbs and Candès, 2021) on a window of errors: half widths."""
    window, miss, half = Window(), MISS, np.zeros(len(errors))
    for t, error in enumerate(errors.tolist()):
        half[t] = window.quantile(1.0 - miss)
        miss += rate * (MISS - (error > half[t]))
        window.take(error)
    return half


def dynamically_tuned(errors: FloatArray) -> FloatArray:
    """The same with rates mixed by what they lost (Gibbs and Candès, 2022): half widths."""
    rates, span = np.array([0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128]), 500
    k, window, half = len(rates), Window(), np.zeros(len(errors))
    misses, odds, share = np.full(k, MISS), np.ones(k) / k, 1.0 / (2 * span)
    spread = COVERAGE**2 * MISS**3 + MISS**2 * COVERAGE**3
    sharpness = np.sqrt(3.0 / span * (np.log(k * span) + 2.0) / spread)
    for t, error in enumerate(errors.tolist()):
        half[t] = window.quantile(1.0 - float(odds @ misses))
        n = len(window.ordered)
        largest = 1.0 - bisect.bisect_left(window.ordered, error) / n if n else 0.0  # miss rate that still covers
        lost = np.where(largest >= misses, MISS * (largest - misses), COVERAGE * (misses - largest))
        raised = odds * np.exp(-sharpness * lost)
        odds = (1.0 - share) * raised / raised.sum() + share / k
        misses = misses + rates * (MISS - (misses > largest))
        window.take(error)
    return half


def tracking(errors: FloatArray, share: float = 0.1) -> FloatArray:
    """The P of conformal PID control (Angelopoulos et al., 2023): half widths."""
    half, width = np.zeros(len(errors)), 0.0
    for t, error in enumerate(errors.tolist()):
        half[t] = width
        step = share * float(errors[max(0, t - 100) : t + 1].max())
        width += step * ((error > width) - MISS)
    return half


def scale_free(errors: FloatArray) -> FloatArray:
    """Scale-free online gradient descent, what strongly adaptive methods are made of (Bhatnagar et al., 2023)."""
    half, width, squares = np.zeros(len(errors)), 0.0, 0.0
    reach = float(errors[:100].max()) / np.sqrt(3.0)
    for t, error in enumerate(errors.tolist()):
        half[t] = width
        slope = MISS - (error > width)
        squares += slope * slope
        width -= reach * slope / np.sqrt(squares)
    return half


METHODS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "adaptive, 2021": adaptive, "tuned, 2022": dynamically_tuned, "tracking, 2023": tracking,
    "scale-free, 2023": scale_free,
}  # fmt: skip


def measure(low: FloatArray, high: FloatArray, y: FloatArray) -> dict[str, float]:
    """How good intervals are."""
    covered, width = (low <= y) & (y <= high), high - low
    n = min(WINDOW, len(y))
    windows = np.convolve(covered, np.ones(n) / n, "valid")
    outside = np.maximum(low - y, 0.0) + np.maximum(y - high, 0.0)
    return {
        "coverage": float(covered.mean()), "width": float(width.mean()),
        "score": float((width + 2.0 / MISS * outside).mean()),
        "windows": float(((windows >= 0.85) & (windows <= 0.95)).mean()),
    }  # fmt: skip


def ours(X: FloatArray, predictions: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Ask for each interval before its row is known; return the ends, and the seconds that learning alone takes."""
    intervals, ends, weight = Intervals(Squared(), X.shape[1]), np.empty((len(y), 2)), np.ones(len(y))
    for s in range(len(y)):
        row = slice(s, s + 1)
        ends[s] = intervals.predict(X[row], predictions[row, None], COVERAGE)[0, 0]
        intervals.learn(X[row], predictions[row, None], y[row, None], weight[row])
    begun = time.process_time()
    Intervals(Squared(), X.shape[1]).learn(X, predictions[:, None], y[:, None], weight)
    return ends[:, 0], ends[:, 1], time.process_time() - begun


def main(arguments: list[str] | None = None) -> int:
    """Measure and print, a stream after the other."""
    options = parser_of("bench_intervals", __doc__).parse_args(arguments)
    lines, figures = [], {}
    for name, (X, y) in streams(1500 if options.quick else ALL, options.seed).items():
        model = SGBRegressor(random_state=options.seed)
        begun = time.process_time()
        predictions = model.learn(X, y)
        seconds = time.process_time() - begun
        errors, first = np.abs(y - predictions), 20  # of the first rows nobody knows anything
        found = {}
        for method, width_of in METHODS.items():
            half = width_of(errors)
            found[method] = measure((predictions - half)[first:], (predictions + half)[first:], y[first:])
        low, high, own = ours(X, predictions, y)
        found["streamboost"] = measure(low[first:], high[first:], y[first:])
        figures[name] = {"rows": len(y), "share of the time of learning": own / seconds, "methods": found}
        for method, told in found.items():
            numbers = [
                f"{told['coverage']:.4f}",
                f"{told['width']:.4g}",
                f"{told['score']:.4g}",
                f"{told['windows']:.1%}",
            ]
            lines.append([name, method, *numbers])
    print(table(["stream", "method", "covered", "width", "interval score", "windows within 0.85 and 0.95"], lines))
    keep(options, "intervals", figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
