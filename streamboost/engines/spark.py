"""A model for each key in a stream of Spark, whose state store keeps the models.

Needs Spark 4.3 or later (``pip install 'streamboost[spark]'``): rows go through ``transformWithStateInPandas``.
After the death of an executor, of a Python worker or of the driver Spark repeats the batch that was lost, and the
models go on from the state before it: every row counts once, and with a sink that is exactly-once, such as files,
every prediction is there once.
"""

from __future__ import annotations

import importlib.metadata
import operator
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa

from streamboost.engines.key_learner import HotModels, KeyLearner, template_of
from streamboost.errors import MissingDependency, require

try:
    from pyspark.sql.streaming import StatefulProcessor
except ImportError:  # learn says so
    StatefulProcessor = object

BUCKET = "streamboost_bucket"  # the column that rows are grouped by, beside a number of buckets
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PARTITIONS = "spark.sql.shuffle.partitions"
QUERY = "sql.streaming.queryId"  # part of the place of a model, as a worker may see several queries
_hot = HotModels(0)  # of this Python worker, which Spark uses for one batch after the other


def learn(
    rows: Any,
    model: Any,
    *,
    key: str,
    order: str,
    target: str,
    features: Sequence[str] | None = None,
    buckets: int | None = None,
    hot: int = 10_000,
) -> Any:
    """Predict each row of a streaming DataFrame with the model of its key, then learn it.

    Parameters
    ----------
    rows : DataFrame
        Rows with their targets. Those of a key that are in one batch are learned by ``order``.
    model : SGBRegressor or SGBClassifier
        Of which every key gets a copy: a new one, or one that has learned the rows of many keys, from which new keys
        then start. A small one, such as ``SGBRegressor(n_estimators=20, max_depth=4, memory=256)``: there is one a key.
    key, order, target : str
        Names of columns.
    features : sequence of str, optional
        The columns to learn from; left out, all others.
    buckets : int, optional
        Keys are grouped into so many buckets, and a batch visits buckets instead of keys, which is faster where it
        brings few rows of each of many keys. It cannot be changed once the query has a checkpoint.
    hot : int, default=10_000
        Models that a Python worker keeps as objects.

    Returns
    -------
    DataFrame
        For each row its key, its ``order``, the ``prediction`` made before it was learned (null where the model had
        none), for classes as text with their ``probability``, and in ``refused`` why it was not learned: null for all
        good rows.
    """
    check_packages()
    from pyspark.sql import functions
    from pyspark.sql.types import DoubleType, StringType, StructField, StructType

    conf = rows.sparkSession.conf
    missing = [name for name in (key, order, target, *(features or ())) if name not in rows.columns]
    if missing:
        raise ValueError(f"there is no column {missing[0]!r}, expected one among {rows.columns}.")
    if rows.isStreaming and conf.get(PROVIDER) != ROCKSDB:
        raise ValueError(f"{PROVIDER} is {conf.get(PROVIDER)!r}, expected {ROCKSDB!r}. Set it before the query starts.")
    if buckets is not None and not 1 <= int(conf.get(PARTITIONS)) <= buckets:
        told = f"{PARTITIONS} is {conf.get(PARTITIONS)}, expected at most as many as there are buckets, {buckets}"
        raise ValueError(f"{told}. Set it before the query first starts: its checkpoint keeps the number for good.")
    learner = KeyLearner(template_of(model), key, target, order, features)
    fields = [rows.schema[key], rows.schema[order], StructField("prediction", DoubleType())]
    if learner.task == "classification":
        fields[2:] = [StructField("prediction", StringType()), StructField("probability", DoubleType())]
    group = key
    if buckets is not None:
        group, rows = (
            BUCKET,
            rows.withColumn(BUCKET, functions.pmod(functions.xxhash64(key), functions.lit(buckets)).cast("int")),
        )
        learner.features = features or [name for name in rows.columns if name not in (key, order, target, BUCKET)]
    return rows.groupBy(group).transformWithStateInPandas(
        statefulProcessor=KeyProcessor(learner, rows.schema[key], buckets, hot),
        outputStructType=StructType([*fields, StructField("refused", StringType())]),
        outputMode="Append",
        timeMode="None",
    )


def check_packages() -> None:
    """Say what Spark's Python needs and this one does not have; every worker asks for itself as well."""
    for package in ("pyspark", "pandas", "google.protobuf"):
        require(package, extra="spark", by="streamboost.engines.spark")
    found = importlib.metadata.version("pandas")
    if int(found.partition(".")[0]) >= 3:
        told = f"pandas is {found}, and Spark hands rows to a state by one before 3"
        raise MissingDependency(f"{told}. Run: pip install 'streamboost[spark]'")


class KeyProcessor(StatefulProcessor):  # type: ignore[misc,unused-ignore]
    """Learns the rows of a group of keys in a batch."""

    def __init__(self, learner: KeyLearner, key: Any, buckets: int | None, hot: int) -> None:
        self.learner, self.key, self.buckets, self.hot = learner, key, buckets, hot

    def init(self, handle: Any) -> None:
        """Open the state of a partition."""
        check_packages()
        self.state = _State(handle, self.key, self.buckets)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802
        """Predict and learn the rows of a group."""
        from pyspark import TaskContext

        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(QUERY)
        _hot.limit = self.hot
        self.state.check()
        tables = [pa.Table.from_pandas(frame, preserve_index=False) for frame in rows]
        table = pa.concat_tables(tables, promote_options="permissive").combine_chunks()
        yield self.learner.learn((query, key), self.state, table, _hot).to_pandas()

    def close(self) -> None:
        """Do nothing: the state belongs to Spark."""


class _State:
    """The state of the group that Spark visits at the moment; without buckets a group is one key."""

    def __init__(self, handle: Any, key: Any, buckets: int | None) -> None:
        self.mark = handle.getValueState("mark", "mark binary")
        self.buckets, self.known = buckets, None
        if buckets is None:
            self.model = handle.getValueState("model", "model binary")
        else:
            from pyspark.sql.types import StructType

            self.known = handle.getValueState("buckets", "buckets int")
            self.model = handle.getMapState("models", StructType([key]), "model binary")

    def check(self) -> None:
        """Refuse another number of buckets than that of the checkpoint, where keys would be looked for in vain."""
        if self.known is None:
            return
        found = self.known.get()
        if found is None:
            self.known.update((self.buckets,))
        elif found[0] != self.buckets:
            told = f"buckets is {self.buckets}, but the checkpoint is of a query with {found[0]}"
            raise ValueError(f"{told}. Pass that number, or begin anew with another checkpoint.")

    def get_mark(self) -> bytes | None:
        """Return the mark of the last visit; None before the first."""
        found = self.mark.get()
        return None if found is None else bytes(found[0])

    def put_mark(self, mark: bytes) -> None:
        """Write a mark."""
        self.mark.update((mark,))

    def get(self, key: Any) -> bytes | None:
        """Return the bytes of a key; None if it is new."""
        found = self.model.get() if self.buckets is None else self.model.getValue((key,))
        return None if found is None else bytes(found[0])

    def put(self, key: Any, model: bytes) -> None:
        """Write the bytes of a key."""
        if self.buckets is None:
            self.model.update((model,))
        else:
            self.model.updateValue((key,), (model,))


def read_models(spark: Any, checkpoint: str, *, buckets: bool = False) -> Any:
    """Return the models of a query's checkpoint as a DataFrame of ``key`` and ``model``, bytes.

    :func:`streamboost.engines.key_learner.load_model` makes an estimator of the bytes.

    Parameters
    ----------
    spark : SparkSession
    checkpoint : str
        The query's ``checkpointLocation``.
    buckets : bool, default=False
        Whether the query has buckets.
    """
    found = spark.read.format("statestore").option("stateVarName", "models" if buckets else "model").load(checkpoint)
    fields = ("user_map_key", "user_map_value") if buckets else ("key", "value")
    key, value = (reduce(operator.getitem, (found[field], found.schema[field].dataType[0].name)) for field in fields)
    return found.select(key.alias("key"), value.alias("model"))
