"""How long a request of 100 rows in JSON takes, through the application without a socket: medians in microseconds.

    python -m benchmarks.bench_requests [--quick] [--requests 200]

For 8 and for 30 columns, ``/predict`` and ``/learn``: until the answer is there, and processor time, which tells more
where others compute as well. The model is small, so that reading bodies is a large part. To
compare two checkouts, run it in each of them in turn.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time

import httpx
import numpy as np

from benchmarks.bench_accuracy import keep, parser_of
from benchmarks.report import table
from streamboost import SGBRegressor
from streamboost.live import LiveModel
from streamboost.serving import create_app

ROWS = 100
KINDS = ("until answered", "processor")
JSON = {"Content-Type": "application/json"}
MODEL = {"n_estimators": 4, "max_depth": 3, "new_columns": "grow", "random_state": 0}


async def measure(n_columns: int, n_requests: int) -> dict[str, dict[str, float]]:
    """The median of each kind of request."""
    rng = np.random.default_rng(0)
    rows = [{f"column {j}": float(value) for j, value in enumerate(row)} for row in rng.normal(size=(ROWS, n_columns))]
    asked = json.dumps({"rows": rows})
    told = json.dumps({"rows": rows, "targets": rng.normal(size=ROWS).tolist()})
    times: dict[str, list[tuple[float, float]]] = {"predict": [], "learn": []}
    with LiveModel(tempfile.mkdtemp(), SGBRegressor(**MODEL), target="y", durable=False) as live:
        app = create_app(live)
        client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")
        async with app.router.lifespan_context(app), client:
            for _ in range(n_requests + 10):
                for name, body in (("learn", told), ("predict", asked)):
                    start, used = time.perf_counter(), time.process_time()
                    answer = await client.post(f"/{name}", content=body, headers=JSON)
                    times[name].append((time.perf_counter() - start, time.process_time() - used))
                    assert answer.status_code == 200, answer.text
    return {name: _medians(taken[10:]) for name, taken in times.items()}


def _medians(taken: list[tuple[float, float]]) -> dict[str, float]:
    each = zip(*taken, strict=True)
    return {kind: round(statistics.median(seconds) * 1e6) for kind, seconds in zip(KINDS, each, strict=True)}


def main(arguments: list[str] | None = None) -> int:
    """Measure, print and keep."""
    parser = parser_of("bench_requests", __doc__)
    parser.add_argument("--requests", type=int, default=200, help="of each kind (default: 200)")
    options = parser.parse_args(arguments)
    if options.quick:
        options.requests //= 20
    figures = {f"{n} columns": asyncio.run(measure(n, options.requests)) for n in (8, 30)}
    rows = [
        [f"/{name}, {columns}", *(f"{found[kind]:,.0f}" for kind in KINDS)]
        for columns, kinds in figures.items()
        for name, found in kinds.items()
    ]
    print(table([f"{ROWS} rows", *(f"{kind}, µs" for kind in KINDS)], rows))
    keep(options, "requests", figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
