"""How many rows a second a model for each key learns on Spark and on Flink, beside a plain dict of models.

    python -m benchmarks.bench_engines [--quick]

Rows of ten columns in ten chunks, keys drawn with equal chances; each key has a small model (20 trees of depth 4, a
memory of 256 rows). Spark is ``local[2]`` with two shuffle partitions, a micro-batch a chunk; Flink has a cluster of
its own in one process, parallelism 2, each row by itself. Neither start counts: of Spark, batches after the first two;
of Flink, the rows after the first fifth that came out. Needs ``.venv-spark`` and ``.venv-flink``, as ``make test-all``
makes them, and Java. The dict runs in the same process before the engine does.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

CHUNKS, COLUMNS, WARM = 10, 10, 2  # chunks before any is counted
SMALL = {"n_estimators": 20, "max_depth": 4, "memory": 256, "random_state": 0}
CHOICES = ((None, "a key"), (16, "a bucket, of 16"))
ENGINES = ("spark", "flink")


def main(arguments: list[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] and words[0] in ENGINES:
        print(json.dumps(measure(words[0], *map(int, words[1:]))))
        return 0
    from benchmarks.bench_accuracy import keep, parser_of
    from benchmarks.report import table

    options = parser_of("bench_engines", __doc__).parse_args(words)
    n_keys, rows_per_key = (20, 50) if options.quick else (200, 500)
    found = [one for engine in ENGINES for one in asked(engine, n_keys, rows_per_key, options.seed)]
    lines = [[one["engine"], one["visits"], f"{one['rows_a_second']:,.0f}", f"{one['ratio']:.3f}"] for one in found]
    print(table(["engine", "a visit is of", "rows/s", "beside a dict"], lines))
    keep(options, "engines", {"keys": n_keys, "rows_per_key": rows_per_key, "runs": found})
    return 0


def asked(engine: str, *sizes: int) -> list[dict[str, Any]]:
    """Return what an engine's own Python measures."""
    python = str(Path(f".venv-{engine}", "bin", "python").absolute())
    command = [python, "-m", "benchmarks.bench_engines", engine, *map(str, sizes)]
    env = os.environ | {"PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True)
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(engine: str, n_keys: int, rows_per_key: int, seed: int) -> list[dict[str, Any]]:
    from streamboost import SGBRegressor

    rng, n = np.random.default_rng(seed), n_keys * rows_per_key
    X, keys = rng.normal(size=(n, COLUMNS)), rng.integers(n_keys, size=n)
    columns = {"key": [f"k{key}" for key in keys], "place": np.arange(n)}
    columns |= {f"x{j}": X[:, j] for j in range(COLUMNS)}
    rows = pa.table(columns | {"y": X[:, 0] * (keys % 5 - 2) + np.abs(X[:, 1])})
    model = SGBRegressor(**SMALL)
    plain = dict_rate(model, rows)
    run = {"spark": spark_rate, "flink": flink_rate}[engine]
    rates = [(visits, run(model, rows, buckets)) for buckets, visits in CHOICES]
    return [
        {"engine": engine, "visits": visits, "rows_a_second": rate, "dict_rows_a_second": plain, "ratio": rate / plain}
        for visits, rate in rates
    ]


def chunks(rows: pa.Table) -> list[pa.Table]:
    size = -(-rows.num_rows // CHUNKS)
    return [rows.slice(start, size) for start in range(0, rows.num_rows, size)]


def dict_rate(model: Any, rows: pa.Table) -> float:
    """Return how many rows a second a dict of models learns, a chunk of a key at a time."""
    models: dict[str, Any] = {}
    for number, chunk in enumerate(chunks(rows)):
        if number == WARM:
            began = time.perf_counter()
        keys = np.array(chunk["key"].to_pylist())
        order = np.argsort(keys, kind="stable")
        found, starts = np.unique(keys[order], return_index=True)
        ordered = chunk.take(pa.array(order))
        for key, start, stop in zip(found.tolist(), starts, [*starts[1:], len(keys)], strict=True):
            of_key = ordered.slice(start, stop - start)
            one = models.setdefault(key, copy.deepcopy(model))
            one.learn(of_key.drop_columns(["key", "place", "y"]), of_key["y"].to_numpy())
    return sum(len(chunk) for chunk in chunks(rows)[WARM:]) / (time.perf_counter() - began)


def spark_rate(model: Any, rows: pa.Table, buckets: int | None) -> float:
    from pyspark.sql import SparkSession

    from streamboost.engines import spark as engine

    home = tempfile.mkdtemp()
    Path(home, "in").mkdir()
    for number, chunk in enumerate(chunks(rows)):
        path = Path(home, "in", f"{number:03}.parquet")
        pq.write_table(chunk, path)
        os.utime(path, (time.time() + number - CHUNKS,) * 2)
    options = {
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        engine.PROVIDER: engine.ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in options.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    schema = spark.read.parquet(f"{home}/in").schema
    source = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(f"{home}/in")
    learned = engine.learn(source, model, key="key", order="place", target="y", buckets=buckets)
    writer = learned.writeStream.format("parquet").option("path", f"{home}/out").trigger(availableNow=True)
    query = writer.option("checkpointLocation", f"{home}/checkpoint").start()
    query.awaitTermination()
    done = [json.loads(one.json) for one in query.recentProgress if one.numInputRows][WARM:]
    return sum(one["numInputRows"] for one in done) / sum(one["durationMs"]["triggerExecution"] for one in done) * 1e3


def flink_rate(model: Any, rows: pa.Table, buckets: int | None) -> float:
    from pyflink.common import Configuration
    from pyflink.datastream import StreamExecutionEnvironment

    from streamboost.engines import flink as engine

    configuration = Configuration()
    for name, value in {
        "python.executable": sys.executable,
        "rest.port": "0",
        "execution.checkpointing.interval": "5 s",
        "execution.checkpointing.dir": f"file://{tempfile.mkdtemp()}",
    }.items():
        configuration.set_string(name, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    source = env.from_collection(rows.to_pylist())
    learned = engine.learn(source, model, key="key", target="y", order="place", buckets=buckets)
    moments = []
    with learned.execute_and_collect() as told:
        for _ in told:
            moments.append(time.perf_counter())
    first = len(moments) * WARM // CHUNKS
    return (len(moments) - first) / (moments[-1] - moments[first])


if __name__ == "__main__":
    sys.exit(main())
