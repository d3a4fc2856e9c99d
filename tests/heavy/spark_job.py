"""A query of Spark as a program of its own, to be killed: DIR/in/*.parquet in their order to DIR/out and DIR/models.

    python spark_job.py DIR MASTER [BUCKETS]

The model is DIR/model.safetensors. It goes on where it was, and ends when all rows are done.
"""

import sys
from pathlib import Path

from pyspark.sql import SparkSession

import streamboost
from streamboost.engines import spark as engine


def main(directory, master, buckets=None):
    home = Path(directory)
    options = {
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.task.maxFailures": "20",
        engine.PROVIDER: engine.ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }
    builder = SparkSession.builder.master(master)
    for name, value in options.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    schema = spark.read.parquet(f"{home}/in").schema
    rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(f"{home}/in")
    model = streamboost.load(home / "model.safetensors")
    learned = engine.learn(rows, model, key="key", order="place", target="y", buckets=buckets)
    writer = learned.writeStream.format("parquet").option("path", f"{home}/out").trigger(availableNow=True)
    writer.option("checkpointLocation", f"{home}/checkpoint").start().awaitTermination()
    found = engine.read_models(spark, f"{home}/checkpoint", buckets=buckets is not None).collect()
    spark.read.parquet(f"{home}/out").coalesce(1).write.mode("overwrite").parquet(f"{home}/told")  # what was committed
    for row in found:
        Path(home, "models", row["key"]).write_bytes(bytes(row["model"]))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:3], *map(int, sys.argv[3:4]))
