"""Runs on Ray: each process is held by an actor, which Ray places. The only file that knows Ray.

Ray's own restarts are off, since an actor that Ray restarts comes back empty: a run that died is started anew, and goes
on from its checkpoint. Actors end with their driver, and a process with its actor.

Ray listens on all interfaces of a machine, whatever address it is given, and guards that by a token. A Ray that is
started here, on Linux, at least advertises a loopback address, so that its own traffic stays on the machine.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import sys
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from streamboost.errors import require
from streamboost.runs.workers import Process, Seen, WorkerGone

CONNECT_SECONDS = 20.0
STORE_BYTES = 200_000_000  # where Ray is started here; next to nothing passes through it
LOOPBACK = "127.0.0.2"  # Ray would take 127.0.0.1 for a mistake and put the machine's own address in its place
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"  # how every client of gRPC begins


class RayPlaces:
    """A Ray cluster that runs are placed on, one CPU for each.

    Parameters
    ----------
    address : str
        "host:port" of a cluster, "auto" for the one this machine is part of, or "local": one is started here.
    n_workers : int
        For how many there is room, where one is started.
    """

    def __init__(self, address: str, n_workers: int) -> None:
        self._ray: Any = require("ray", extra="ray", by="--ray")
        if address == "local":
            _start_ray(self._ray, n_workers)
        else:
            _join_ray(self._ray, address)
        self._remote = self._ray.remote(Process)

    def start(self, words: list[str]) -> RayWorker:
        """Start a run somewhere."""
        return RayWorker(self._ray, self._remote, words)

    def close(self) -> None:
        """Leave the cluster; what still runs there is told to end."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._ray.shutdown()


class RayWorker:
    """A run in a process that an actor holds."""

    def __init__(self, ray: Any, remote: Any, words: Sequence[str]) -> None:
        self._ray, self._seen = ray, Seen({})
        options = {"num_cpus": 1, "max_restarts": 0, "max_task_retries": 0, "scheduling_strategy": "SPREAD"}
        self._actor = remote.options(**options).remote(list(words))
        self._asked = self._actor.see.remote()

    def see(self) -> Seen:
        """How it is, as of its last answer."""
        errors = self._ray.exceptions
        try:
            if self._ray.wait([self._asked], timeout=0)[0]:
                self._seen = self._ray.get(self._asked)
                self._asked = self._actor.see.remote()
        except errors.RayError as error:
            raise WorkerGone(f"Ray lost it: {_reason(error)}") from error
        return self._seen

    def stop(self) -> None:
        """Let it end with a checkpoint."""
        with suppress(self._ray.exceptions.RayError):
            self._actor.stop.remote()

    def kill(self) -> None:
        """End its actor, and thereby the process."""
        with suppress(Exception):  # it is gone already, or Ray is
            self._ray.kill(self._actor, no_restart=True)


def _start_ray(ray: Any, n_workers: int) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")  # else they give way to all else, for minutes
    more = {"_node_ip_address": LOOPBACK} if sys.platform == "linux" else {}
    try:
        _init(
            ray, address="local", include_dashboard=False, object_store_memory=STORE_BYTES, num_cpus=n_workers, **more
        )
    except Exception as error:
        raise ConnectionError(
            f"Ray could not be started on this machine: {_reason(error)} It gives up after half a minute: if the "
            "machine is that busy, try again, or start Ray by `ray start --head` and pass its address."
        ) from error


def _join_ray(ray: Any, address: str) -> None:
    way_out = "Is the cluster up? Try `ray status`; say local to start Ray on this machine."
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


def _reason(error: Exception) -> str:
    """What Ray says, on one line, without its colours and not too long."""
    text = " ".join(re.sub(r"\x1b\[\d*m|\^{3,}", "", str(error)).split())
    return text if len(text) <= 800 else f"{text[:400]} ... {text[-400:]}"
