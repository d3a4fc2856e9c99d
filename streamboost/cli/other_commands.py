"""``streamboost serve``, ``demo`` and ``paper``: each a call into another room."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from streamboost.cli.refusals import Refused, asked


def serve(
    model: Annotated[Path, typer.Option(metavar="DIR", help="Of a run, of a server before, or a new one.")],
    host: Annotated[str, typer.Option(help="Where to listen; other than loopback needs --token-file.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 for any free port.")] = 8000,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Lines of: token scope[,scope], of predict, learn, admin.")
    ] = None,
    task: Annotated[str | None, typer.Option(help="regression or classification, for a new directory.")] = None,
    target: Annotated[str | None, typer.Option(metavar="COL", help="The target's name in rows.")] = None,
    expire_after: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="After how long a label is no longer waited for.")
    ] = None,
    default: Annotated[
        str | None, typer.Option(metavar="LABEL", help="What such a row is learned as; dropped if left out.")
    ] = None,
    checkpoint_every: Annotated[int, typer.Option(min=1, metavar="N", help="Rows between checkpoints.")] = 50_000,
) -> None:
    """Serve a model: predict, learn and label over HTTP, with a page to watch it on."""
    with asked():
        from streamboost.errors import require

        require("starlette", extra="serve", by="streamboost serve")
        require("uvicorn", extra="serve", by="streamboost serve")
        if task not in (None, "regression", "classification"):
            raise Refused(f"--task is {task!r}, expected regression or classification.")
    from streamboost.serving.server import serve as serve_model

    code = serve_model(
        model,
        host=host,
        port=port,
        token_file=token_file,
        task=task,  # type: ignore[arg-type]
        target=target,
        expire_after=expire_after,
        default=default,
        checkpoint_every=checkpoint_every,
    )
    raise typer.Exit(code)


def demo(
    rows: Annotated[int | None, typer.Option(min=1, help="How many rows of the stream; all if left out.")] = None,
    no_picture: Annotated[bool, typer.Option("--no-picture", help="Draw no demo.png.")] = False,
) -> None:
    """Learn the shipped electricity stream beside simple baselines, and draw what happened."""
    from streamboost.demo import main

    words = [*([] if rows is None else ["--rows", str(rows)]), *(["--no-picture"] if no_picture else [])]
    raise typer.Exit(main(words))


def paper(context: typer.Context) -> None:
    """Reproduce the paper's table and figures (from a checkout of the repository); --quick for small sizes."""
    if Path("experiments", "runner.py").is_file():
        sys.path.insert(0, os.getcwd())
    if importlib.util.find_spec("experiments") is None:
        raise Refused("the experiments are not part of the installed package. Go to a checkout of the repository.")
    importlib.import_module("experiments.runner").main(context.args)
