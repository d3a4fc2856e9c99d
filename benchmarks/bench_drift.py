"""What the model makes of a stream that changes, and of one that does not.

    python -m benchmarks.bench_drift [--quick]

On Friedman's stream as it is nothing should be dropped from memory. Where its columns change their parts in the middle,
the error over the last quarter is compared with that of a model that starts at the change and so has no past to get rid
of; once with succession (a young booster may take the longest memory's place) and once without.
"""

from __future__ import annotations

import statistics
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress

from benchmarks.bench_accuracy import error, keep, parser_of
from benchmarks.report import table
from streamboost import SGBRegressor, datasets

DROPPED = "memory dropped"
LOOK_EVERY = 64  # rows; a challenger stays for several hundred
GOAL = 1.15  # times the error of the model without a past, at most


def main(arguments: list[str] | None = None) -> int:
    options = parser_of("bench_drift", __doc__).parse_args(arguments)
    calm_seeds, calm_rows, drift_seeds, drift_rows = (1, 2_000, 1, 4_000) if options.quick else (8, 20_000, 5, 10_000)
    with Progress(console=Console(stderr=True)) as progress:
        seeds = range(options.seed, options.seed + calm_seeds)
        calm = [stationary(calm_rows, seed) for seed in progress.track(seeds, description="no change")]
        seeds = range(options.seed, options.seed + drift_seeds)
        drift = [abrupt(drift_rows, seed) for seed in progress.track(seeds, description="abrupt change")]
    n_dropped, n_challengers = (sum(run[name] for run in calm) for name in ("dropped", "challengers"))
    rows = [
        [f"no change, {calm_seeds} x {calm_rows:,} rows: memory dropped", str(n_dropped), "0", yes(n_dropped == 0)],
        ["no change: challengers that came", str(n_challengers), "", ""],
    ]
    for name, goal in (("with succession", GOAL), ("without succession", None)):
        ratios = [run[name] / run["from the change on"] for run in drift]
        mean = statistics.geometric_mean(ratios)
        what = f"abrupt change, {drift_seeds} x {drift_rows:,} rows, {name}: error over that without a past"
        text = f"{mean:.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
        rows.append([what, text, "" if goal is None else f"at most {goal}", "" if goal is None else yes(mean <= goal)])
    print(table(["", "figure", "goal", "reached"], rows))
    keep(options, "drift", {"stationary": calm, "abrupt": drift})
    return 0


def yes(is_reached: bool) -> str:
    return "yes" if is_reached else "no"


def stationary(n: int, seed: int) -> dict[str, Any]:
    """Count what was dropped and who challenged; the last challenger may still be there at the end."""
    X, y, *_ = datasets.friedman(n, seed=seed)
    model = SGBRegressor(random_state=seed)
    said, challengers, was_on = np.empty(n), 0, False
    for rows in (slice(start, start + LOOK_EVERY) for start in range(0, n, LOOK_EVERY)):
        said[rows] = model.learn(X[rows], y[rows])
        is_on = model.committee_.drift_replacement.is_on
        challengers += is_on and not was_on
        was_on = is_on
    return {"seed": seed, "dropped": n_dropped(model), "challengers": challengers, "rmse": error(said, y)}


def abrupt(n: int, seed: int) -> dict[str, Any]:
    """RMSE over the last quarter of a stream that changes in the middle."""
    X, y, *_ = datasets.friedman(n, drift=n // 2, seed=seed)
    last = slice(n - n // 4, None)
    usual, bound = SGBRegressor(random_state=seed), SGBRegressor(random_state=seed)
    young = SGBRegressor(random_state=seed)
    return {
        "seed": seed,
        "with succession": error(usual.learn(X, y)[last], y[last]),
        "without succession": error(learn_without_succession(bound, X, y)[last], y[last]),
        "from the change on": error(young.learn(X[n // 2 :], y[n // 2 :])[-(n // 4) :], y[last]),
        "dropped": n_dropped(usual),
        "events": [[event.row, event.kind] for event in usual.events_],
    }


def learn_without_succession(model: SGBRegressor, X: NDArray[np.float64], y: NDArray[np.float64]) -> Any:
    first = model.learn(X[:1], y[:1])
    model.committee_.drift_replacement = None
    return np.concatenate([first, model.learn(X[1:], y[1:])])


def n_dropped(model: SGBRegressor) -> int:
    return sum(event.kind == DROPPED for event in model.events_)


if __name__ == "__main__":
    sys.exit(main())
