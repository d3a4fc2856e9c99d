"""A job of Flink as a program of its own, to be killed: the lines of DIR/in to files in DIR/out and DIR/models.

    python flink_job.py DIR [BUCKETS [SECONDS_A_ROW [cluster]]]

The model is DIR/model.safetensors. It goes on from the newest checkpoint in DIR/checkpoints, if there is one, and ends
when all rows are done. With the word ``cluster`` it is one that ``flink run`` brings to a cluster; else it has its own.
"""

import base64
import json
import sys
import time
from pathlib import Path

from pyflink.common import Configuration, Types, WatermarkStrategy
from pyflink.common.serialization import Encoder
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSink, FileSource, StreamFormat

import streamboost
from streamboost.engines import flink as engine


def parse(line, pause):
    time.sleep(pause)
    return json.loads(line)


def written(one):
    return json.dumps(one)


def model_line(one):
    return json.dumps({"key": one["key"], "model": base64.b64encode(one["model"]).decode()})


def main(directory, buckets=0, pause=0.0, cluster=None):
    home = Path(directory)
    checkpoints = sorted(home.glob("checkpoints/*/chk-*/_metadata"), key=lambda path: path.stat().st_mtime)
    options = {
        "python.executable": sys.executable,
        "python.client.executable": sys.executable,
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.dir": f"file://{home}/checkpoints",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "python.fn-execution.bundle.time": "200",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "100",
        "restart-strategy.fixed-delay.delay": "1 s",
    }
    if cluster is None:
        options |= {"rest.port": "0", "rest.bind-port": "0"}
    if checkpoints:
        options["execution.state-recovery.path"] = f"file://{checkpoints[-1].parent}"
    configuration = Configuration()
    for name, value in options.items():
        configuration.set_string(name, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    here = str(Path(__file__).parent)
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), f"{home}/in").build()
    lines = env.from_source(source, WatermarkStrategy.no_watermarks(), "lines").set_parallelism(1)
    rows = lines.map(lambda line: parse(line, pause)).set_parallelism(1)
    model = streamboost.load(home / "model.safetensors")
    learned = engine.learn(
        rows, model, key="key", target="y", order="place", buckets=buckets or None, chunk=50, linger=0.5
    )
    for stream, write, name in ((learned, written, "out"), (engine.models_of(learned), model_line, "models")):
        sink = FileSink.for_row_format(f"{home}/{name}", Encoder.simple_string_encoder()).build()
        stream.map(write, Types.STRING()).sink_to(sink)
    env.add_python_file(here)
    env.execute("streamboost")


if __name__ == "__main__":
    directory, buckets, pause, cluster = [*sys.argv[1:], None, None, None][:4]
    main(directory, int(buckets or 0), float(pause or 0), cluster)
