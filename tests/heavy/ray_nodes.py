"""Ray clusters for the tests, on this machine: of one node, and of two raylets that know each other over loopback.

Each node is a ``ray start --block`` whose processes are known by descent, and are ended by their numbers; ``ray stop``
would end everybody's. A cluster is started once for all files that ask for it and ends with the tests. Where Ray is
not installed the tests are skipped; with ``CI=true`` they fail.
"""

import atexit
import contextlib
import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from streamboost.runs import ray_workers

# Read by Ray when it is first used; the token keeps everybody else out, and a file of one's own out of it.
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
    "RAY_worker_niceness": "0",  # workers that give way to all else take a minute to start on a busy machine
    "RAY_health_check_initial_delay_ms": "1000",  # a killed node is noticed within seconds
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "15000",  # but a busy one is not taken for dead
    "RAY_health_check_failure_threshold": "4",
    "RAY_worker_register_timeout_seconds": "300",
    "RAY_gcs_server_port_wait_time_s": "300",
    "RAY_memory_monitor_refresh_ms": "0",  # else workers are killed where others fill the memory, and kills are counted
}
for _name, _value in SETTINGS.items():
    os.environ.setdefault(_name, _value)
_paths = [str(Path(__file__).parent), str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, _paths))  # for the classes of workers

ray_workers.CONNECT_SECONDS = 300.0  # so that no test fails for a busy machine
CPUS = 4  # as declared; really there may be fewer
STORE = 100_000_000
START_SECONDS = 300
ATTEMPTS = 3


def needs_ray():
    """Skip without Ray, or fail where the tests have to be complete."""
    if importlib.util.find_spec("ray") is None:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail("ray is not installed, and CI needs it")
        pytest.skip("ray is not installed")


def descendants(pid):
    """The processes that a process has started, and those that they have."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for parent in found:
        found.extend(child for child, its in parents.items() if its == parent)
    return found[1:]


def is_alive(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def kill(pid):
    """SIGKILL for one process, waited for; True if it was there."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        until = time.monotonic() + 120
        while is_alive(pid) and time.monotonic() < until:
            time.sleep(0.002)
        return True
    return False


def are_gone(pids, within=180.0):
    """Whether none of these processes is left, soon."""
    until = time.monotonic() + within
    while any(map(is_alive, pids)) and time.monotonic() < until:
        time.sleep(0.02)
    return not any(map(is_alive, pids))


class Node:
    """One raylet; the first of a cluster brings its directory of nodes."""

    def __init__(self, folder, ip, head=None, cpus=CPUS, port=None):
        self.ip, self.port, self.log = ip, port, folder / f"node-{ip}.log"
        place = ["--address", head] if head else ["--head", "--port", str(port), "--include-dashboard", "false"]
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", *place, "--block", "--disable-usage-stats"]
        command += ["--node-ip-address", ip, "--num-cpus", str(cpus), "--object-store-memory", str(STORE)]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def stop(self):
        """End all its processes, by number."""
        for pid in [self.process.pid, *descendants(self.process.pid)]:
            kill_now(pid)
        self.process.wait()


def kill_now(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


class Cluster:
    """Nodes of one Ray on this machine."""

    def __init__(self, ips):
        self.folder = Path(tempfile.mkdtemp(prefix="ray-nodes-"))
        self.address, self.nodes = "", {}
        for ip in ips:
            self.add(ip)

    def add(self, ip):
        """Start a node, and wait until the cluster has it."""
        for _ in range(ATTEMPTS):  # Ray itself gives up after 30 seconds, or its port was taken meanwhile
            if not self.nodes:
                self.address = f"{ip}:{free_port(ip)}"
            port = int(self.address.rpartition(":")[2])
            node = Node(self.folder, ip, head=self.address if self.nodes else None, port=port)
            until = time.monotonic() + START_SECONDS
            while node.process.poll() is None and time.monotonic() < until:
                if "Ray runtime started" in node.log.read_text():
                    self.nodes[ip] = node
                    return
                time.sleep(0.05)
            node.stop()
        raise AssertionError(node.log.read_text()[-3000:])

    def kill_node(self, ip):
        """SIGKILL for a node and everything on it."""
        self.nodes.pop(ip).stop()

    def stop(self):
        for node in [*self.nodes.values()][::-1]:
            node.stop()
        self.nodes.clear()
        shutil.rmtree(self.folder, ignore_errors=True)


def free_port(ip="127.0.0.1"):
    """A free port below those that Ray gives to its workers."""
    while True:
        port = 6400 + secrets.randbelow(3500)
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind((ip, port))
            return port


_running = {}


def cluster_of(*ips):
    """The cluster with these nodes, started if it is not there."""
    needs_ray()
    if ips not in _running:
        _running[ips] = Cluster(ips)
        atexit.register(_running[ips].stop)
    cluster = _running[ips]
    for ip in ips:
        if ip not in cluster.nodes:
            cluster.add(ip)
    return cluster


@pytest.fixture(scope="session")
def local_ray():
    """The address of a Ray of one node,."""
    return cluster_of("127.0.0.2").address


@pytest.fixture
def two_nodes():
    """A cluster of two raylets; a test may kill the second, 127.0.0.5, which is there again for the next."""
    return cluster_of("127.0.0.4", "127.0.0.5")
