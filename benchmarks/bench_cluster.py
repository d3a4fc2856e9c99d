"""What workers cost and bring: speed and latency by shape and number of workers, and the error of sharded learning.

    python -m benchmarks.bench_cluster [--quick] [--engines local ray] [--no-error]

Speed: chunks of 1, 100 and 1,000 rows of Friedman's stream, learned by one plain process, by learners spread over 1, 2
and 4 workers (30 networks of 20 units, a mini-batch a chunk, readout "last"), and by 1, 2 and 4 shards (the default
regressor). A chunk's latency is the time of one call of ``learn``, in the driver; the first chunks, which compile and
fill windows, do not count. Workers of the engine "local" are all in one process, one after another: they show what the
messages cost. "Own sources" are shards that each generate their own rows (``learn_from``): none pass the driver.

Error: 200,000 rows of the same stream, stationary, in chunks of 1,000: the root mean squared error of what was
predicted before it was learned, over the second half, beside the single model, and the loss of each shard.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from benchmarks.bench_accuracy import keep, parser_of
from benchmarks.bench_flat import yes
from benchmarks.report import table
from streamboost import SGBRegressor, datasets
from streamboost.cluster.sharded import ShardedBooster
from streamboost.cluster.spread_booster import SpreadBooster
from streamboost.stacks import TwoLayerStack

WORKERS = (1, 2, 4)
CHUNKS = {1: 300, 100: 100, 1000: 30}  # rows of a chunk: how many are timed
WARM = {1: 400, 100: 20, 1000: 5}
WARM_SOURCE, SOURCE_ROWS = 5_000, 40_000  # of each shard
ERROR_ROWS = 200_000
GOAL = 1.03


def main(arguments: list[str] | None = None) -> int:
    parser = parser_of("bench_cluster", __doc__)
    parser.add_argument("--engines", nargs="+", default=engines(), choices=["local", "ray"])
    parser.add_argument("--workers", nargs="+", type=int, default=WORKERS)
    parser.add_argument("--no-error", action="store_true", help="measure speed only")
    options = parser.parse_args(arguments)
    share = 20 if options.quick else 1
    speeds = []
    for shape in ("spread", "sharded"):
        speeds += measure(shape, None, 0, share, options.seed)
        for engine in options.engines:
            for workers in options.workers:
                speeds += measure(shape, engine, workers, share, options.seed)
    for engine in options.engines:
        speeds += [own_sources(engine, workers, share) for workers in options.workers]
    head = ["shape", "engine", "workers", "rows a chunk", "rows/s", "p50 ms", "p99 ms"]
    print(table(head, [[str(one[name]) for name in speeds[0]] for one in speeds]))
    errors = [] if options.no_error else error_rows(ERROR_ROWS // share, options)
    if errors:
        print()
        rows = [
            [
                one["model"],
                f"{one['rmse']:.4f}",
                f"{one['beside']:.3f}",
                yes(one["beside"] <= GOAL),
                ", ".join(f"{loss:.3f}" for loss in one["shard_losses"]),
            ]
            for one in errors
        ]
        print(table(["model", "RMSE, second half", "beside the single", f"at most {GOAL}", "loss of each shard"], rows))
    keep(
        options,
        "cluster",
        {"cores": os.cpu_count(), "speed": speeds, "error_rows": ERROR_ROWS // share, "error": errors},
    )
    return 0


def engines() -> list[str]:
    return ["local", "ray"] if importlib.util.find_spec("ray") else ["local"]


@contextmanager
def made(shape: str, engine: str | None, workers: int) -> Iterator[Any]:
    """A model of a shape; without an engine the plain one beside it."""
    model = SGBRegressor(random_state=0)
    if shape == "spread":
        model = SGBRegressor(learner=TwoLayerStack(30, 20), semantics="minibatch", readout="last", random_state=0)
    if engine is None:
        yield model
        return
    where: dict[str, Any] = {"workers": workers, "engine": engine}
    if engine == "ray":
        where["resources"] = {"num_cpus": 0.5}
    with SpreadBooster(model, **where) if shape == "spread" else ShardedBooster(model, **where) as spread:
        yield spread


def measure(shape: str, engine: str | None, workers: int, share: int, seed: int) -> list[dict[str, Any]]:
    """Rows a second and latencies, for chunks of every size."""
    found = []
    with nullcontext() if engine != "ray" else one_ray():
        for size, n_chunks in CHUNKS.items():
            warm, timed = max(2, WARM[size] // share), max(3, n_chunks // share)
            made_rows = datasets.friedman(size * (warm + timed), seed=seed)
            taken = []
            with made(shape, engine, workers) as model:
                for start in range(0, len(made_rows.y), size):
                    rows = slice(start, start + size)
                    began = time.perf_counter()
                    model.learn(made_rows.X[rows], made_rows.y[rows])
                    taken.append(time.perf_counter() - began)
                model.predict(made_rows.X[:1])  # what was left to learn counts, too
                taken[-1] = time.perf_counter() - began
            kept = np.array(taken[warm:])
            found.append(
                {
                    "shape": shape if engine else f"{shape}: one plain process",
                    "engine": engine or "",
                    "workers": workers or "",
                    "chunk": size,
                    "rows_per_second": round(size * len(kept) / kept.sum()),
                    "p50_ms": round(1000 * float(np.quantile(kept, 0.5)), 2),
                    "p99_ms": round(1000 * float(np.quantile(kept, 0.99)), 2),
                }
            )
            print(found[-1], file=sys.stderr)
    return found


def own_sources(engine: str, workers: int, share: int) -> dict[str, Any]:
    """Rows a second of all shards together, each with a source of its own."""
    sources = [{"where": "synthetic:friedman", "seed": seed} for seed in range(workers)]
    warm, rows = max(WARM_SOURCE // share, 200), max(SOURCE_ROWS // share, 1000)
    with nullcontext() if engine != "ray" else one_ray(), made("sharded", engine, workers) as model:
        list(model.learn_from(sources, "y", rows=warm))
        began = time.perf_counter()
        list(model.learn_from(sources, "y", rows=rows, every=max(rows // 10, 100)))
        seconds = time.perf_counter() - began
    speed = {"shape": "sharded, own sources", "engine": engine, "workers": workers, "chunk": 1000}
    speed |= {"rows_per_second": round((rows - warm) * workers / seconds), "p50_ms": "", "p99_ms": ""}
    print(speed, file=sys.stderr)
    return speed


@contextmanager
def one_ray() -> Iterator[None]:
    """A Ray for several crews, one after the other; else each would start its own."""
    import ray

    is_ours = not ray.is_initialized()
    if is_ours:
        ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False, object_store_memory=10**8)
    try:
        yield
    finally:
        if is_ours:
            ray.shutdown()


def error_rows(n_rows: int, options: Any) -> list[dict[str, Any]]:
    """The error of shards beside that of the single model, on a stream that does not change."""
    rows = datasets.friedman(n_rows, seed=options.seed)
    half, found = n_rows // 2, []

    def note(name: str, model: Any, losses: list[float]) -> None:
        began = time.perf_counter()
        said = [model.learn(rows.X[a : a + 1000], rows.y[a : a + 1000]) for a in range(0, n_rows, 1000)]
        seconds = time.perf_counter() - began
        rmse = float(np.sqrt(np.mean((np.concatenate(said)[half:] - rows.y[half:]) ** 2)))
        single = found[0]["rmse"] if found else rmse
        losses = model.shard_losses_.tolist() if hasattr(model, "shard_losses_") else losses
        found.append(
            {"model": name, "rmse": rmse, "beside": rmse / single, "shard_losses": losses, "seconds": round(seconds, 1)}
        )
        print(found[-1], file=sys.stderr)

    note("single", SGBRegressor(random_state=0), [])
    for workers in [workers for workers in options.workers if workers > 1]:
        for readout in ("hedge", "mean"):
            with ShardedBooster(
                SGBRegressor(random_state=0), workers=workers, readout=readout, engine="local"
            ) as sharded:
                note(f"{workers} shards, {readout}", sharded, [])
    return found


if __name__ == "__main__":
    sys.exit(main())
