"""A crew on Ray: each worker is an actor. The only file that knows Ray.

Ray's own restarts are off, since an actor that Ray restarts comes back empty: one that died is made anew by
:class:`~streamboost.cluster.crew.Crew` from the last cut. Workers end with their driver.

Ray listens on all interfaces of a machine, whatever address it is given, and guards that by a token. A Ray that is
started here, on Linux, at least advertises a loopback address, so that its own traffic stays on the machine.
"""

from __future__ import annotations

import logging
import math
import os
import re
import socket
import sys
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from streamboost.cluster.crew import Crew
from streamboost.cluster.recovery import Message, WorkerDied
from streamboost.cluster.station import Answer, Station
from streamboost.errors import require

CONNECT_SECONDS = 20.0
START_SECONDS = 60.0
STORE_BYTES = 200_000_000  # for arguments on their way, where Ray is started here
LOOPBACK = "127.0.0.2"  # Ray would take 127.0.0.1 for a mistake and put the machine's own address in its place
KNOWN = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"  # how every client of gRPC begins


class RayCrew(Crew):
    """A crew of Ray actors.

    Parameters
    ----------
    cls, options, n_workers, directory, cut_every, cut_bytes, in_flight
        As for :class:`~streamboost.cluster.crew.Crew`. Where Ray has several machines, the directory is needed, and
        must be the same for all of them.
    address : str, optional
        "host:port" of a cluster, or "auto" for the one that this machine is part of. Without it: the Ray that this
        process is connected to already, or else one started on this machine, which ends with the last crew on it.
    resources : dict, optional
        What one worker needs: ``num_cpus`` (1 without further word), ``num_gpus``, ``memory`` in bytes, and resources
        by names of your own.
    threads : int
        How many threads Numba and BLAS may use in each worker.
    start_seconds : float, optional
        How long to wait for a worker's start. Given, it also allows workers that the cluster has no room for at the
        moment: for clusters that grow by themselves.
    """

    def __init__(
        self,
        cls: type,
        options: Mapping[str, Any],
        n_workers: int,
        directory: str | os.PathLike[str] | None = None,
        *,
        address: str | None = None,
        resources: Mapping[str, Any] | None = None,
        threads: int = 1,
        start_seconds: float | None = None,
        **named: Any,
    ) -> None:
        self._ray: Any = require("ray", extra="cluster", by="RayCrew")
        self.address, self.resources, self.threads = address, _checked_resources(resources), threads
        self._may_wait, self._start_seconds = start_seconds is not None, start_seconds or START_SECONDS
        self._actors: dict[int, Any] = {}
        self._starting: dict[int, float] = {}  # until when they may take
        self._starts = 0
        self._is_connected = False
        super().__init__(cls, options, n_workers, directory, **named)

    def _open(self) -> None:
        _connect(self._ray, self.address, self._own_resources())
        self._is_connected = True
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        if not self.is_lasting and len({node["NodeManagerHostname"] for node in nodes}) > 1:
            raise ValueError(
                f"directory is None, but the cluster has {len(nodes)} machines, and workers save what others must "
                "find. Pass directory=, on a file system that all machines share."
            )
        if not self._may_wait:
            self._check_room([node["Resources"] for node in nodes])
        self.namespace = f"streamboost-{self.mark}-{self._book.manifest.incarnation}"
        self._remote = self._ray.remote(RayStation)

    def _own_resources(self) -> dict[str, Any]:
        """What a Ray of our own has to have: room for the workers, whatever the machine really has."""
        own = {name: value * self.n_workers for name, value in self.resources.items()}
        custom = {name: own.pop(name) for name in list(own) if name not in KNOWN}
        return {**own, "num_cpus": max(1, math.ceil(own["num_cpus"])), "resources": custom}

    def _check_room(self, nodes: list[dict[str, float]]) -> None:
        """Refuse at once what can never fit; each worker has to fit on one machine."""
        need = {KNOWN.get(name, name): value for name, value in self.resources.items() if value}
        fitting = ([int(node.get(name, 0) / value) for name, value in need.items()] for node in nodes)
        room = sum(min(counts, default=self.n_workers) for counts in fitting)
        if room < self.n_workers:
            has = ", ".join(f"{name} {sum(node.get(name, 0) for node in nodes):g}" for name in need)
            raise ValueError(
                f"{self.n_workers} workers with {self.resources} each do not fit: the cluster has {has} on "
                f"{len(nodes)} machine(s), room for {room}. Use fewer workers or less for each; if the cluster grows "
                "by itself, say with start_seconds= how long to wait."
            )

    def _start(self, worker: int) -> None:
        self._stop(worker)
        deaths = self._lines[worker].deaths
        if deaths > 1:  # Ray may need a moment to see that a machine is gone
            time.sleep(min(5.0, 0.25 * 2**deaths))
        self._starts += 1
        known = {name: value for name, value in self.resources.items() if name in KNOWN}
        custom = {name: value for name, value in self.resources.items() if name not in KNOWN}
        self._actors[worker] = self._remote.options(
            name=f"worker-{worker}-start-{self._starts}",
            namespace=self.namespace,
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy="SPREAD",
            resources=custom,
            **known,
        ).remote(self.threads)
        self._starting[worker] = time.monotonic() + self._start_seconds

    def _send(self, worker: int, message: Message) -> Any:
        try:
            return self._actors[worker].handle.remote(*message)
        except self._ray.exceptions.RayActorError as error:  # seen by _wait, as if it had died a moment later
            return WorkerDied(_reason(error))

    def _wait(self, worker: int, handle: Any) -> Answer:
        errors = self._ray.exceptions
        if isinstance(handle, WorkerDied):
            raise handle
        until = self._starting.get(worker)
        try:
            answer = self._ray.get(handle, timeout=None if until is None else max(0.0, until - time.monotonic()))
        except errors.GetTimeoutError:
            raise self._not_started(worker) from None
        except errors.RayTaskError as error:  # it was done, but its answer could not be sent
            return Answer(error=RuntimeError(f"worker {worker} cannot take in or answer a message: {_reason(error)}"))
        except errors.RayError as error:
            raise WorkerDied(_reason(error)) from error
        self._starting.pop(worker, None)
        assert isinstance(answer, Answer)
        return answer

    def _not_started(self, worker: int) -> TimeoutError:
        free = {name: value for name, value in self._ray.available_resources().items() if not name.startswith("node:")}
        return TimeoutError(
            f"worker {worker} with {self.resources} did not start within {self._start_seconds:g} seconds; the cluster "
            f"has {free} free. Is it busy with something else? Use fewer workers, or raise start_seconds."
        )

    def _stop(self, worker: int) -> None:
        self._starting.pop(worker, None)
        actor = self._actors.pop(worker, None)
        if actor is not None and self._ray.is_initialized():
            with suppress(Exception):  # it is gone already, or Ray is
                self._ray.kill(actor, no_restart=True)

    def _shut(self) -> None:
        if self._is_connected:
            self._is_connected = False
            _disconnect(self._ray)


class RayStation(Station):
    """A worker's place in a process of its own."""

    def __init__(self, threads: int) -> None:
        super().__init__()
        _use_threads(threads)

    def handle(self, kind: str, *args: Any) -> Answer:
        """Take a message in, with arrays of its own: those that Ray hands over cannot be written to."""
        if kind in ("call", "ask"):
            own = [np.array(one, order="C") if isinstance(one, np.ndarray) else one for one in args[2]]
            args = (*args[:2], own)
        return super().handle(kind, *args)

    def _hello(self) -> dict[str, Any]:
        import ray

        return {**super()._hello(), "node": ray.get_runtime_context().get_node_id()}


def _use_threads(n: int) -> None:
    """Keep libraries from using more threads than the worker was given: several workers share a machine."""
    for name in ("OMP", "OPENBLAS", "MKL", "NUMBA"):
        os.environ[f"{name}_NUM_THREADS"] = str(n)  # for what is imported later
    import numba
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    numba.set_num_threads(min(n, numba.get_num_threads()))
    threadpool_limits(n)


# Connecting: a process has one connection, whatever the number of its crews.

_crews = 0  # connected by this file
_is_ours = False  # whether the connection was made by this file


def _connect(ray: Any, address: str | None, own: Mapping[str, Any]) -> None:
    """Connect this process to a cluster, or start one."""
    global _crews, _is_ours
    if ray.is_initialized():
        _check_same_cluster(address, ray.get_runtime_context().gcs_address)
        _is_ours = _is_ours and _crews > 0
    else:
        _crews, _is_ours = 0, True
        if address is None:
            _start_ray(ray, own)
        else:
            _join_ray(ray, address)
    _crews += 1


def _disconnect(ray: Any) -> None:
    """The last crew closes what the first one opened; a Ray of somebody else stays."""
    global _crews
    _crews -= 1
    if _crews == 0 and _is_ours and ray.is_initialized():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ray.shutdown()


def _start_ray(ray: Any, own: Mapping[str, Any]) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")  # else they give way to all else, for minutes
    more = {"_node_ip_address": LOOPBACK} if sys.platform == "linux" else {}
    try:
        _init(ray, address="local", include_dashboard=False, object_store_memory=STORE_BYTES, **own, **more)
    except Exception as error:
        raise ConnectionError(
            f"Ray could not be started on this machine: {_reason(error)} It gives up after half a minute: if the "
            "machine is that busy, try again, or start Ray by `ray start --head` and pass its address."
        ) from error


def _join_ray(ray: Any, address: str) -> None:
    way_out = "Is the cluster up? Try `ray status`; leave address out to start Ray on this machine."
    if address != "auto":
        host, colon, port = address.rpartition(":")
        if not colon or not port.isdecimal() or "/" in host:
            raise ValueError(f"address is {address!r}, expected 'host:port' of the head of a cluster, or 'auto'.")
        reason = _knock(host.strip("[]"), int(port))
        if reason is not None:  # Ray itself would wait for minutes
            raise ConnectionError(f"no Ray cluster can be reached at {address!r}: {reason}. {way_out}")
        way_out = (
            f"It answers. Is this machine one of its nodes? A driver has to be on one: `ray start --address={address} "
            "--num-cpus=0` makes it one. Are Ray's version and token the same?"
        )
    try:
        _init(ray, address=address)
    except Exception as error:
        raise ConnectionError(f"cannot join the Ray cluster at {address!r}: {_reason(error)} {way_out}") from error


def _init(ray: Any, **options: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray warns of its own future
        ray.init(log_to_driver=False, logging_level=logging.WARNING, **options)
    _keep_off_output()


def _keep_off_output() -> None:
    """Ray tells of dead workers on standard output, which is for results; there is no setting for it."""
    home = sys.modules.get("ray._private.worker")
    show = getattr(home, "print_to_stdstream", None)
    if show is None or hasattr(show, "shown_by"):
        return

    def show_aside(data: dict[str, Any], *args: Any, **named: Any) -> None:
        show({**data, "is_err": True} if data.get("pid") == "raylet" else data, *args, **named)

    show_aside.shown_by = show  # type: ignore[attr-defined]
    home.print_to_stdstream = show_aside  # type: ignore[union-attr]


def _knock(host: str, port: int) -> str | None:
    """Why nothing that could be Ray answers there; None if something does."""
    deadline, reason = time.monotonic() + CONNECT_SECONDS, "no answer"
    try:
        with socket.create_connection((host, port), timeout=CONNECT_SECONDS) as connection:
            if os.environ.get("RAY_USE_TLS", "0") not in ("", "0"):
                return None
            connection.settimeout(max(0.1, deadline - time.monotonic()))
            connection.sendall(HELLO)
            if connection.recv(9)[3:4] == b"\x04":  # its settings, as every server of gRPC begins
                return None
            reason = "something else than Ray answers"
    except TimeoutError:
        reason = f"no answer within {CONNECT_SECONDS:g} seconds"
    except OSError as error:
        reason = error.strerror or str(error)
    return reason


def _check_same_cluster(address: str | None, connected: str) -> None:
    """A process has one cluster. Ray replaces names of this machine by its own address, so these are not told apart."""
    if address in (None, "auto", connected):
        return
    host, _, port = str(address).rpartition(":")
    is_here = host in ("localhost", "127.0.0.1", "::1", socket.gethostname())
    if not is_here or port != connected.rpartition(":")[2]:
        raise ValueError(
            f"address is {address!r}, but this process is connected to {connected!r} already, and Ray allows one "
            "cluster for each process. Leave address out, or call ray.shutdown() first."
        )


def _checked_resources(resources: Mapping[str, Any] | None) -> dict[str, float]:
    checked = {"num_cpus": 1, **(resources or {})}
    for name, value in checked.items():
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
            raise ValueError(
                f"resources[{name!r}] is {value!r}, expected a number of at least 0: what one worker needs."
            )
    return checked


def _reason(error: Exception) -> str:
    """What Ray says, on one line, without its colours and not too long."""
    text = " ".join(re.sub(r"\x1b\[\d*m|\^{3,}", "", str(error)).split())
    return text if len(text) <= 800 else f"{text[:400]} ... {text[-400:]}"
