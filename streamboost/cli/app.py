"""One program of several commands, and how it ends: 0 if all went well, 2 if it was asked wrongly, 1 if it failed.

Whatever the answer is goes to standard output, as a table or with ``--json`` as one object; everything said on the way
goes to standard error.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from streamboost.cli import model_commands, predict_command, run_command, theory_command
from streamboost.cli.display import terminal
from streamboost.cli.usage_errors import Refused, asked, sentence_of

INTERRUPTED = 130  # the exit code after a Ctrl-C, as shells have it

app = typer.Typer(
    name="streamboost",
    help="Gradient boosting that learns from a stream: one pass, bounded memory, ready to predict at every row.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(run_command.run)
app.command("predict")(predict_command.predict)
app.command("inspect")(model_commands.inspect)
app.command("compare")(model_commands.compare)
app.command("theory")(theory_command.theory)


@app.command()
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


@app.command()
def demo(
    rows: Annotated[
        int | None, typer.Option(min=1, max=45_312, help="How many rows of the stream; all if left out.")
    ] = None,
    no_picture: Annotated[bool, typer.Option("--no-picture", help="Draw no demo.png.")] = False,
) -> None:
    """Learn the shipped electricity stream beside simple baselines, and draw what happened."""
    from streamboost.cli.demo import show

    show(rows, with_picture=not no_picture)


@app.command(  # its words, --help among them, are for the experiments
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
)
def paper(context: typer.Context) -> None:
    """Reproduce the paper's table and figures (from a checkout of the repository); --quick for small sizes."""
    if Path("experiments", "runner.py").is_file():
        sys.path.insert(0, os.getcwd())
    if importlib.util.find_spec("experiments") is None:
        raise Refused("the experiments are not part of the installed package. Go to a checkout of the repository.")
    importlib.import_module("experiments.runner").main(context.args)


def _say_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(version("streamboost"))
        raise typer.Exit


@app.callback()
def _program(
    is_asked: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Say which version this is.")
    ] = False,
) -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = int(app(words, prog_name="streamboost", standalone_mode=False) or 0)
        if code == INTERRUPTED:  # what newer versions of typer make of a KeyboardInterrupt
            raise KeyboardInterrupt
        sys.stdout.flush()
        return code
    except Refused as error:
        return _say(words, str(error), 2)
    except (KeyboardInterrupt, typer.Abort):
        return _say(
            words, "interrupted. What was saved before is whole; a run with --model goes on with --resume.", INTERRUPTED
        )
    except BrokenPipeError:  # whoever read the output has heard enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ValueError, TypeError, OSError, ImportError) as error:
        return _say(words, sentence_of(error), 1)
    except Exception as error:
        if hasattr(error, "format_message"):  # how the parser says what is wrong with the arguments
            return _explain(words, error)
        raise


def _say(words: Sequence[str], sentence: str, code: int) -> int:
    """One clear sentence, for people or for programs."""
    if "--json" in words:
        print(json.dumps({"error": sentence, "code": code}))
    terminal(stderr=True).print(f"streamboost: {sentence}", style="red", soft_wrap=True)
    return code


def _explain(words: Sequence[str], error: Any) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return 2
    context = getattr(error, "ctx", None)
    hint = "" if context is None else f" Try: {context.command_path} --help"
    return _say(words, error.format_message().rstrip(".") + "." + hint, error.exit_code)
