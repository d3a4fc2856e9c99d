"""A server that runs until it is told to stop."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import uvicorn
from starlette.applications import Starlette

from streamboost._types import Task
from streamboost.dashboard import Feed
from streamboost.dashboard.server import LOCAL_NAMES, bound, is_loopback, url_of
from streamboost.estimators import SGBClassifier
from streamboost.live import FrozenModel
from streamboost.serving.app import create_app
from streamboost.serving.auth import Tokens, read_tokens
from streamboost.serving.errors import Limits
from streamboost.serving.open_model import ServedModel, Unusable, open_live
from streamboost.serving.opening import BrokenOff, OpeningApp
from streamboost.serving.replica import ReplicaModel, open_replica
from streamboost.serving.slow_clients import BACKLOG, most_connections, protocol_class
from streamboost.terminal_text import escaped, log_to_stderr

SWITCH = 0.0001  # seconds a thread may keep the interpreter while another waits: predictions should not wait long
KEEP_ALIVE = 30  # seconds an idle connection stays open
DRAIN = 60  # seconds for open requests when told to stop
FAILURE, USAGE = 1, 2


def serve(
    directory: str | Path | None = None,
    *,
    replica_of: str | None = None,
    replica_token: str | Path | None = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    token_file: str | Path | None = None,
    task: Task | None = None,
    target: str | None = None,
    model: Any = None,
    limits: Limits | None = None,
    window: int = 1000,
    **options: Any,
) -> int:
    """Serve a model until SIGTERM, SIGINT or SIGHUP; then finish what was taken, write a checkpoint and return 0.

    Other exit codes: 1 for a failure, 2 for wrong usage. What is wrong is said on standard error, in one sentence.

    Parameters
    ----------
    directory : path
        Of a model that was served before, of a run (it begins with its newest checkpoint), or a new one; or a file
        that ``model.save`` wrote, whose live files are then in ``FILE.live/``. A frozen model predicts only, and
        nothing is written. Left out for a replica.
    replica_of : str, optional
        The directory of a learner, or the address of its server: its newest model is served, to predict only.
    replica_token : path, optional
        A file that holds a token with the scope ``predict`` for the learner's server.
    host, port : str, int
        Where to listen (default 127.0.0.1:8000); port 0 is any that is free. Hosts that other machines reach need a
        token file.
    token_file : path, optional
        See :mod:`streamboost.serving.auth`.
    task : {"regression", "classification"}, optional
        For a new directory: which model to make.
    target : str, optional
        The name of the target column; as the model had it before, or "target".
    model : estimator, optional
        For a new directory, in place of the default for the task.
    limits : Limits, optional
    window : int, default=1000
        Over how many rows windowed metrics look.
    **options
        For :class:`~streamboost.live.LiveModel`.
    """
    log_to_stderr()
    opened: list[ServedModel | FrozenModel] = []

    def open_model(on_replay: Callable[[int, int], None]) -> ServedModel | FrozenModel:
        if replica_of is not None:
            token = None if replica_token is None else Path(replica_token).read_text().strip()
            live: ServedModel | FrozenModel = open_replica(replica_of, token=token, target=target)
        else:
            more = {"task": task, "target": target, "model": model, "window": window, "on_replay": on_replay}
            live = open_live(directory or "", **more, **options)
        stack.enter_context(live)
        opened.append(live)
        return live

    try:
        tokens = _tokens(host, token_file)
        if (directory is None) == (replica_of is None):
            raise Unusable("model and replica_of are two ways to say what to serve, expected one of them.")
        with contextlib.closing(bound(host, port)) as sock, contextlib.ExitStack() as stack:
            _run(open_model, sock, host, tokens, limits or Limits(), Path(directory or "replica"))
    except BrokenOff:
        _say("ended before the model was opened; nothing was changed")
        return 0
    except (Unusable, FileNotFoundError, NotADirectoryError) as error:
        _say(str(error))
        return USAGE
    except (OSError, ValueError) as error:  # a port or a directory in use, a damaged checkpoint, a full disk
        is_of_no_file = isinstance(error, OSError) and error.filename is None
        _say(getattr(error, "strerror", None) or str(error) if is_of_no_file else str(error))
        return FAILURE
    [live] = opened
    if live.last_checkpoint_error is not None:
        found = f"the last checkpoint could not be written ({live.last_checkpoint_error})"
        _say(f"{found}. Nothing is lost: the next start learns the rest from the journal.")
        return FAILURE
    _say("ended" if isinstance(live, FrozenModel) else f"ended with a checkpoint at {live.rows:,} rows")
    return 0


def _tokens(host: str, token_file: str | Path | None) -> Tokens | None:
    if token_file is None:
        if not is_loopback(host):
            found = f"host is {host!r}, which other machines may reach, and there is no token file"
            way_out = "Add --token-file FILE, or leave --host out to serve this machine alone."
            raise Unusable(f"{found}, so anyone could use the model. {way_out}")
        return None
    if not Path(token_file).is_file():
        raise Unusable(f"there is no token file {str(token_file)!r}. Write one, a line such as: TOKEN predict,learn")
    try:
        tokens = read_tokens(token_file)
    except (OSError, ValueError) as error:
        raise Unusable(str(error)) from None
    if os.stat(token_file).st_mode & (stat.S_IRGRP | stat.S_IROTH):
        _say(f"warning: others can read {str(token_file)!r}. Run: chmod 600 {token_file}")
    for told in tokens.describe():
        _say(told)
    return tokens


def _run(
    open_model: Callable[[Callable[[int, int], None]], ServedModel | FrozenModel],
    sock: socket.socket,
    host: str,
    tokens: Tokens | None,
    limits: Limits,
    folder: Path,
) -> None:
    """Serve until a signal comes; the model is opened when the server can be asked how far that is."""
    feeds: list[Feed] = []

    def make(on_replay: Callable[[int, int], None]) -> Starlette:
        live = open_model(on_replay)
        is_frozen = isinstance(live, FrozenModel)
        if not is_frozen:  # of which the first copy, made before the first request, is enough
            _warm_up(live.model)
        feeds.append(Feed(folder.name, about={"model": type(live.model).__name__, "target": live.target}))
        hosts = [*LOCAL_NAMES, host] if is_loopback(host) else None
        app = create_app(live, feed=feeds[0], tokens=tokens, limits=limits, hosts=hosts)
        server.greeting = f"serving {url} ({live.rows:,} rows learned so far); Ctrl-C ends it with a checkpoint"
        if is_frozen:
            server.greeting = (
                f"serving {url}, a frozen model of {live.rows:,} rows, which learns no more; Ctrl-C ends it"
            )
        if isinstance(live, ReplicaModel):
            server.greeting = f"serving {url}, a replica that follows {live.name} ({live.rows:,} rows); Ctrl-C ends it"
        gc.collect()
        gc.freeze()  # so that the collector need not look at all modules, and predictions wait less
        return app

    def done() -> None:
        if app.error is None:
            _say(server.greeting)
        else:
            server.should_exit = True

    app = OpeningApp(make, done)
    config = uvicorn.Config(
        app,
        http=protocol_class(limits.header_seconds, limits.header_bytes, limits.write_seconds, most_connections()),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,  # a log of requests would keep keys and ids
        server_header=False,
        proxy_headers=False,  # nobody asks where a request comes from
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=DRAIN,
        backlog=BACKLOG,
    )
    url = url_of(host, sock.getsockname()[1])
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH)
    server = _Server(config, app, feeds)
    try:
        server.run(sockets=[sock])
    finally:
        gc.unfreeze()
        sys.setswitchinterval(before)
    if app.error is not None:
        raise app.error


class _Server(uvicorn.Server):
    """A server that says when it listens, and in the end finishes what was taken, whatever signals come."""

    def __init__(self, config: uvicorn.Config, app: OpeningApp, feeds: list[Feed]) -> None:
        super().__init__(config)
        self.app, self.feeds, self.greeting = app, feeds, ""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Hear of the signals that end the server, SIGHUP among them, unless that is ignored (``nohup``)."""
        hangup: Any = getattr(signal, "SIGHUP", None)
        is_main = threading.current_thread() is threading.main_thread()
        with super().capture_signals():
            before = None if hangup is None or not is_main else signal.getsignal(hangup)
            if before in (None, signal.SIG_IGN):
                yield
                return
            signal.signal(hangup, self.handle_exit)
            try:
                yield
            finally:
                signal.signal(hangup, before)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end; after a second SIGINT without waiting for clients. Uvicorn's own raises the signal again."""
        self.force_exit |= self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, end what would never end, finish the rest."""
        if self.app.error is None and self.greeting:
            _say("shutting down: no more requests are taken, what was taken is finished")
        for feed in self.feeds:
            feed.disconnect()
        await super().shutdown(sockets)
        if self.force_exit:  # after a second signal clients are not waited for; what was taken is finished all the same
            for connection in list(self.server_state.connections):
                if connection.transport is not None:
                    connection.transport.abort()
            await self.lifespan.shutdown()


def _warm_up(model: Any) -> None:
    """Load (or, once, compile) the kernels before the first request, by a throwaway model of the same kind."""
    other = type(model)(**model.get_params(deep=False))
    x = np.linspace(0.0, 1.0, 40)
    y = (x > 0.5).astype(int) if isinstance(model, SGBClassifier) else x
    with contextlib.suppress(ValueError):  # such as options that want other columns: then the first request waits
        other.learn(pa.table({"a": x, "b": x[::-1]}), y)
        other.predict_one({"a": 0.5})


def _say(text: str) -> None:
    print(f"streamboost serve: {escaped(text)}", file=sys.stderr, flush=True)
