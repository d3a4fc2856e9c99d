"""From a directory to a server that runs until it is told to stop.

The files of a live model are kept in ``DIR/live/``. Where there is none yet, it begins with the newest checkpoint that
``streamboost run`` left in ``DIR``, or with a new model. The run's own checkpoints are only ever read, so the run can
go on later as if nobody had served its model; what the server learned is not in them.
"""

from __future__ import annotations

import contextlib
import gc
import math
import os
import signal
import socket
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import uvicorn

from streamboost.checkpoints import checkpoint_paths, read_latest
from streamboost.cluster.crew import Cut
from streamboost.dashboard import Feed
from streamboost.dashboard.serving import LOCAL_NAMES, bound, is_loopback, url_of
from streamboost.estimator_base import StreamEstimator
from streamboost.estimators import SGBClassifier, SGBRegressor
from streamboost.guards import Task
from streamboost.labels import kind_of
from streamboost.live import LiveModel
from streamboost.serving.app import create_app
from streamboost.serving.auth import Tokens, read_tokens
from streamboost.serving.defaults import ServedModel
from streamboost.serving.patience import protocol_class
from streamboost.serving.refusals import Limits
from streamboost.serving.scoring import ScoreKeeper
from streamboost.snapshots import load

SWITCH = 0.0001  # seconds a thread may keep the interpreter while another waits: predictions should not wait long
KEEP_ALIVE = 30  # seconds an idle connection stays open
DRAIN = 60  # seconds for open requests when told to stop
FAILURE, USAGE = 1, 2


class Unusable(ValueError):
    """What was asked for makes no sense: exit code 2."""


def serve(
    directory: str | Path,
    *,
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
    """Serve a model until SIGTERM or SIGINT; then finish what was taken, write a checkpoint and return 0.

    Parameters
    ----------
    directory : path
        Of a model that was served before, of a run (it begins with its newest checkpoint), or a new one; or a file
        that ``model.save`` wrote, whose live files are then in ``FILE.live/``.
    host, port : str, int
        Where to listen; port 0 is any that is free. Hosts that other machines reach need a token file.
    token_file : path, optional
        See :mod:`streamboost.serving.auth`.
    task : {"regression", "classification"}, optional
        For a new directory: which model to make.
    target : str, optional
        The name of the target column; as the model had it before, or "target".
    model : estimator, optional
        For a new directory, in place of the default for the task.
    limits : Limits, optional
    window : int
        Over how many rows windowed metrics look.
    **options
        For :class:`~streamboost.live.LiveModel`.

    Returns
    -------
    int
        An exit code: 0, 1 for a failure, 2 for wrong usage. What is wrong is said on standard error, in one sentence.
    """
    limits = limits or Limits()
    with contextlib.ExitStack() as stack:
        try:
            tokens = _tokens(host, token_file)
            sock = stack.enter_context(contextlib.closing(bound(host, port)))
            live = open_live(directory, task=task, target=target, model=model, window=window, **options)
            stack.callback(live.close)
            _run(live, sock, host, tokens, limits, Path(directory))
        except (Unusable, FileNotFoundError, NotADirectoryError) as error:
            return _fail(str(error), USAGE)
        except (OSError, ValueError) as error:  # a port or a directory in use, a damaged checkpoint, a full disk
            return _fail(_sentence(error), FAILURE)
        stack.close()
        if live.last_checkpoint_error is not None:
            return _fail(
                f"the last checkpoint could not be written ({live.last_checkpoint_error}). Nothing is lost: the next "
                "start learns the rest from the journal.",
                FAILURE,
            )
    _say(f"ended with a checkpoint at {live.rows:,} rows")
    return 0


def open_live(
    directory: str | Path,
    *,
    task: Task | None = None,
    target: str | None = None,
    model: Any = None,
    window: int = 1000,
    default: Any = None,
    **options: Any,
) -> ServedModel:
    """Open the live model of a directory, or begin one; its score is kept.

    Parameters
    ----------
    directory, task, target, model, window, **options
        As in :func:`serve`.
    default : label, optional
        As in :class:`~streamboost.live.LiveModel`; text is read as what the model's classes are when it is needed, see
        :class:`~streamboost.serving.defaults.ServedModel`.

    Examples
    --------
    >>> import tempfile
    >>> directory = Path(tempfile.mkdtemp(), "prices")
    >>> with open_live(directory, task="regression", target="price") as live:
    ...     live.directory.name, live.target
    ('live', 'price')
    """
    folder = Path(directory)
    home = Path(f"{folder}.live") if folder.is_file() else folder / "live"
    if not home.is_dir() or not checkpoint_paths(home):
        model, target = _beginning(folder, task, target, model)
    live = ServedModel(home, model, target=target, default=default, on_learned=ScoreKeeper(window), **options)
    try:
        if task is not None and task != live.task:
            raise Unusable(f"task is {task!r}, but the model is one for {live.task}. Leave it out, or begin elsewhere.")
        _check_default(live)
    except BaseException:
        live.close()
        raise
    return live


def _beginning(folder: Path, task: Task | None, target: str | None, model: Any) -> tuple[Any, str | None]:
    """What a directory begins with that was not served before, and the target's name if it is known."""
    if folder.is_file():
        return _whole_model(load(folder), folder), target
    if folder.is_dir() and checkpoint_paths(folder):
        checkpoint = read_latest(folder)
        if "live" in checkpoint.state:
            way_out = f"Say --model {folder.parent}" if folder.name == "live" else f"Move them to {folder / 'live'}"
            raise Unusable(
                f"{str(folder)!r} holds the live files of a model, and what it learned last may be in their journal "
                f"only, expected the directory above them. {way_out}."
            )
        known = checkpoint.state.get("target")
        if known is not None and target not in (None, known):
            raise Unusable(
                f"target is {target!r}, but the model in {str(folder)!r} learned {known!r}. Leave it out, or name "
                "another directory."
            )
        return _whole_model(checkpoint.model, folder), target or known
    if model is not None:
        return model, target
    kinds = {"regression": SGBRegressor, "classification": SGBClassifier}
    if task is None:
        raise Unusable(
            f"{str(folder)!r} holds no model. To begin a new one there, say --task regression or --task "
            "classification; else name the directory that a run was given with --model."
        )
    if task not in kinds:
        raise Unusable(f"task is {task!r}, expected 'regression' or 'classification'.")
    return kinds[task](new_columns="grow"), target


def _whole_model(model: Any, path: Path) -> Any:
    """A model that can be served, or an error that says why it cannot."""
    if isinstance(model, Cut):
        raise Unusable(
            f"{str(path)!r} is of a model that lives on {model.n_workers} workers ({model.kind}), expected one by "
            "itself, as a run without --key makes it. Go on with this one by streamboost run --resume."
        )
    if not isinstance(model, StreamEstimator):
        raise Unusable(f"{str(path)!r} holds a {type(model).__name__}, expected an SGBRegressor or SGBClassifier.")
    return model


def _check_default(live: ServedModel) -> None:
    """Refuse a label for rows that waited too long which the model would never learn."""
    default, kind = live.default, live.label_kind
    if default is None:
        return
    if live.task == "regression":
        if isinstance(default, str) or not math.isfinite(default):
            raise Unusable(f"default is {default!r}, expected a number, as the model learns numbers.")
    elif kind is not None and kind_of(default) != kind:
        known = next(iter(live.model.labels_.numbers))
        raise Unusable(f"default is {default!r}, expected a class like those of the model, such as {known!r}.")


def _tokens(host: str, token_file: str | Path | None) -> Tokens | None:
    if token_file is None:
        if not is_loopback(host):
            raise Unusable(
                f"host is {host!r}, which other machines may reach, and there is no token file, so anyone could use "
                "the model. Add --token-file FILE, or leave --host out to serve this machine alone."
            )
        return None
    if not Path(token_file).is_file():
        raise Unusable(f"there is no token file {str(token_file)!r}. Write one, a line such as: TOKEN predict,learn")
    try:
        tokens = read_tokens(token_file)
    except (OSError, ValueError) as error:
        raise Unusable(str(error)) from None
    if os.stat(token_file).st_mode & (stat.S_IRGRP | stat.S_IROTH):
        _say(f"warning: others can read {str(token_file)!r}. Run: chmod 600 {token_file}")
    return tokens


def _run(live: LiveModel, sock: socket.socket, host: str, tokens: Tokens | None, limits: Limits, folder: Path) -> None:
    """Serve until a signal comes."""
    _warm_up(live.model)
    feed = Feed(folder.name, about={"model": type(live.model).__name__, "target": live.target})
    hosts = [*LOCAL_NAMES, host] if is_loopback(host) else None
    app = create_app(live, feed=feed, tokens=tokens, limits=limits, hosts=hosts)
    config = uvicorn.Config(
        app,
        http=protocol_class(limits.header_seconds, limits.header_bytes),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,  # a log of requests would keep keys and ids
        server_header=False,
        proxy_headers=False,  # nobody asks where a request comes from
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=DRAIN,
    )
    url = url_of(host, sock.getsockname()[1])
    greeting = f"serving {url} ({live.rows:,} rows learned so far); Ctrl-C ends it with a checkpoint"
    server = _Server(config, feed, greeting)
    with _ended_by_signals(server), _short_waits():
        server.run(sockets=[sock])


class _Server(uvicorn.Server):
    """A server that says when it listens, and ends the streams of events before it waits for open requests."""

    def __init__(self, config: uvicorn.Config, feed: Feed, greeting: str) -> None:
        super().__init__(config)
        self.feed, self.greeting = feed, greeting

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then say so."""
        await super().startup(sockets)
        _say(self.greeting)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, end what would never end, finish the rest."""
        _say("shutting down: no more requests are taken, what was taken is finished")
        self.feed.disconnect()
        await super().shutdown(sockets)
        if self.force_exit:  # after a second signal clients are not waited for; what was taken is finished all the same
            for connection in list(self.server_state.connections):
                if connection.transport is not None:
                    connection.transport.abort()
            await self.lifespan.shutdown()


@contextlib.contextmanager
def _ended_by_signals(server: uvicorn.Server) -> Iterator[None]:
    """Uvicorn raises the signal that ended it once more when it is done: that ends nothing but the server."""

    def end(*_: object) -> None:
        server.should_exit = True

    try:
        before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread, where uvicorn listens to no signals either
        before = {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _short_waits() -> Iterator[None]:
    """Let predictions wait less: for other threads, and for the collector, which need not look at all modules."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH)
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        sys.setswitchinterval(before)


def _warm_up(model: Any) -> None:
    """Load (or, once, compile) the kernels before the first request, by a throwaway model of the same kind."""
    other = type(model)(**model.get_params(deep=False))
    x = np.linspace(0.0, 1.0, 40)
    y = (x > 0.5).astype(int) if isinstance(model, SGBClassifier) else x
    with contextlib.suppress(ValueError):  # such as options that want other columns: then the first request waits
        other.learn(pa.table({"a": x, "b": x[::-1]}), y)
        other.predict_one({"a": 0.5})


def _say(text: str) -> None:
    print(f"streamboost serve: {text}", file=sys.stderr, flush=True)


def _sentence(error: Exception) -> str:
    """What an error says, without the number that the system has for it, if it is about no file."""
    if isinstance(error, OSError) and error.filename is None and error.strerror:
        return error.strerror
    return str(error)


def _fail(sentence: str, code: int) -> int:
    _say(sentence)
    return code
