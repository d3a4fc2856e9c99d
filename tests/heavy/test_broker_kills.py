"""Runs over real brokers, killed at random moments and resumed, come to the same end as one that was never killed."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
from brokers import OLD_KAFKA, OLD_KAFKA_CONSUMER, SILENT, kafka_server, redis_server  # noqa: E402, F401 - fixtures
from killed_runs import OFTEN, SMALL, check_same, killed  # noqa: E402

from streamboost.cli import main  # noqa: E402
from streamboost.persistence.checkpoints import read_latest  # noqa: E402


def messages(n):
    """Rows as JSON, of which two are bad."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, 3))
    y = X[:, 0] * X[:, 1] + np.sin(3 * X[:, 2])
    rows = [{"a": a, "b": b, "c": c, "y": t} for (a, b, c), t in zip(X.tolist(), y.tolist(), strict=True)]
    rows[n // 6]["y"] = None
    rows[n // 4]["a"] = "text"
    return [json.dumps(row) for row in rows]


def words(source, folder):
    folder.mkdir()
    return ["run", source, "--target", "y", "--task", "regression", "--model", str(folder / "m"),
            "--predictions", str(folder / "said.csv"), "--json", "-q", *OFTEN, *SMALL]  # fmt: skip


def test_a_run_over_redis_killed_many_times_is_the_same_as_one_never_killed(redis_server, kills, tmp_path):  # noqa: F811
    n_rows = 1500 * kills
    client = redis_server.client()
    with client.pipeline(transaction=False) as pipe:
        for message in messages(n_rows):
            pipe.xadd("killed", {"json": message})
        pipe.execute()
    place = f"{redis_server.address}/killed?field=json"
    assert main(words(place, tmp_path / "straight")) == 0
    assert killed(1, [*words(place, tmp_path / "killed"), "--resume"]) >= kills
    check_same(tmp_path / "straight", tmp_path / "killed", "csv")
    assert read_latest(tmp_path / "killed" / "m").rows == n_rows - 2


def test_a_run_over_kafka_killed_many_times_is_the_same_as_one_never_killed(kafka_server, kills, tmp_path):  # noqa: F811
    n_rows = 1500 * kills
    confluent_kafka = pytest.importorskip("confluent_kafka")
    kafka_server.topic_command("--create", "--topic", "killed", "--partitions", "3", "--replication-factor", "1")
    settings = {"bootstrap.servers": kafka_server.address, "linger.ms": 1, "batch.size": 5000, **OLD_KAFKA}
    producer = confluent_kafka.Producer(settings, logger=SILENT)
    errors = []
    for number, message in enumerate(messages(n_rows)):
        while True:
            try:
                producer.produce("killed", message, partition=number % 3, on_delivery=lambda e, _: errors.append(e))
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(180) == 0
    assert [error for error in errors if error is not None] == []
    assert len(errors) == n_rows
    options = "&".join(f"{key}={str(value).lower()}" for key, value in OLD_KAFKA_CONSUMER.items())
    place = f"kafka://{kafka_server.address}/killed?{options}&group.id="
    assert main(words(place + "straight", tmp_path / "straight")) == 0
    assert killed(2, [*words(place + "again", tmp_path / "killed"), "--resume"]) >= kills
    check_same(tmp_path / "straight", tmp_path / "killed", "csv")
    assert read_latest(tmp_path / "killed" / "m").rows == n_rows - 2
