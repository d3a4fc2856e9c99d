"""The program of all commands; its exit code is 0 if all went well, 2 after a usage error, 1 if it failed.

Results go to standard output, as a table or with ``--json`` as one object; everything else goes to standard error.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from streamboost import __version__
from streamboost.cli import explain_command, model_commands, predict_command, run_command, warmup_command
from streamboost.cli.arguments import TASKS, UsageError, check_word, examples, file_option, flag, option, usage_errors
from streamboost.cli.completion import complete_models, one_of
from streamboost.cli.display import print_error, sentence_of
from streamboost.cli.wording import in_options, of_parser
from streamboost.errors import LeaseLost, require
from streamboost.kernels.progress import clock, ignore

INTERRUPTED = 130  # the exit code after a Ctrl-C, as shells have it

app = typer.Typer(
    name="streamboost",
    help="Gradient boosting that learns from a stream: one pass, bounded memory, ready to predict at every row.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run", epilog=run_command.EXAMPLES, no_args_is_help=True)(run_command.run)
app.command("predict", epilog=predict_command.EXAMPLES, no_args_is_help=True)(predict_command.predict)
app.command("explain", epilog=explain_command.EXAMPLES, no_args_is_help=True)(explain_command.explain)
app.command("inspect", no_args_is_help=True)(model_commands.inspect)
app.command("freeze", epilog=model_commands.FROZEN, no_args_is_help=True)(model_commands.freeze)
app.command("compare", epilog=model_commands.COMPARED, no_args_is_help=True)(model_commands.compare)
app.command("theory", epilog=model_commands.MEASURED, no_args_is_help=True)(model_commands.theory)
SERVED = examples(
    "streamboost serve --model prices",
    "streamboost serve --model clicks --task classification --target clicked",
    "streamboost serve --replica-of prices --port 8001",
    "streamboost serve --model prices --host 0.0.0.0 --token-file tokens",
)
NEW, NETWORK, LATE = "A new model", "Who may reach it", "Labels that never come"
REPLICA = "A replica"


@app.command(epilog=SERVED, no_args_is_help=True)
def serve(
    context: typer.Context,
    model: Annotated[
        Path | None,
        option("Of a run, of a server before, or a new one; or a saved model.", "DIR", complete=complete_models),
    ] = None,
    replica_of: Annotated[
        str | None,
        option("In place of --model: predict with the newest model of this learner.", "DIR|URL", panel=REPLICA),
    ] = None,
    replica_token: Annotated[
        Path | None, file_option("With a token for the learner's server.", "FILE", panel=REPLICA)
    ] = None,
    checkpoint_every: Annotated[int, option("Rows between checkpoints.", "N", min=1)] = 50_000,
    task: Annotated[
        str | None, option("regression or classification.", "TASK", panel=NEW, complete=one_of(TASKS[1:]))
    ] = None,
    target: Annotated[str | None, option("The target's name in rows.", "COL", panel=NEW)] = None,
    host: Annotated[
        str, option("Where to listen; other than loopback needs --token-file.", "HOST", panel=NETWORK)
    ] = "127.0.0.1",
    port: Annotated[int, option("0 for any free port.", "PORT", panel=NETWORK, min=0, max=65535)] = 8000,
    token_file: Annotated[
        Path | None,
        file_option("A token and its scopes (predict, learn, admin; with commas) a line.", "FILE", panel=NETWORK),
    ] = None,
    expire_after: Annotated[
        float | None, option("After how long a label is no longer waited for.", "SECONDS", panel=LATE)
    ] = None,
    default: Annotated[
        str | None, option("What such a row is learned as; dropped if left out.", "LABEL", panel=LATE)
    ] = None,
) -> None:
    """Serve a model: predict, learn and label over HTTP, with a page to watch it on."""
    with usage_errors():
        for package in ("starlette", "uvicorn"):
            require(package, extra="serve", by="streamboost serve")
        if task is not None:
            check_word(task, TASKS[1:], "--task")
        if (model is None) == (replica_of is None):
            raise UsageError("serve needs --model DIR, or --replica-of DIR or URL: one of the two.")
    from streamboost.serving.server import serve as serve_model

    options = {name: value for name, value in context.params.items() if name != "model"}
    raise typer.Exit(serve_model(model, **options))


@app.command()
def demo(
    rows: Annotated[int | None, option("How many rows of the stream; all if left out.", min=1, max=45_312)] = None,
    no_picture: Annotated[bool, flag("Draw no demo.png.", "--no-picture")] = False,
) -> None:
    """Learn the shipped electricity stream beside simple baselines, and draw what happened."""
    from streamboost.cli.demo_command import demo as show

    show(rows, no_picture)


app.command("warmup")(warmup_command.warmup)


@app.command(  # its words, --help among them, are for the experiments
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
)
def paper(context: typer.Context) -> None:
    """Reproduce the paper's table and figures (from a checkout of the repository); --quick for small sizes."""
    if Path("experiments", "runner.py").is_file():
        sys.path.insert(0, os.getcwd())
    if importlib.util.find_spec("experiments") is None:
        raise UsageError("the experiments are not part of the installed package. Go to a checkout of the repository.")
    importlib.import_module("experiments.runner").main(context.args)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _program(
    is_asked: Annotated[
        bool, flag("Say which version this is.", "--version", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    is_silent = bool({"--json", "--quiet", "-q"} & set(words))
    try:
        with clock.heard_by(ignore if is_silent else clock.listener), warnings.catch_warnings():
            warnings.showwarning = partial(_warn, words)
            code = int(app(words, obj=words, prog_name="streamboost", standalone_mode=False) or 0)
        if code == INTERRUPTED:  # what newer versions of typer make of a KeyboardInterrupt
            raise KeyboardInterrupt
        sys.stdout.flush()
        return code
    except UsageError as error:
        return _fail(words, str(error), 2)
    except (KeyboardInterrupt, typer.Abort):
        told = "interrupted. What was saved before is whole; a run with --model goes on with --resume."
        return _fail(words, told, INTERRUPTED)
    except BrokenPipeError:  # nobody reads the output any more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ValueError, TypeError, OSError, ImportError, LeaseLost) as error:
        return _fail(words, sentence_of(error), 1)
    except Exception as error:
        if not hasattr(error, "format_message"):  # how the parser says what is wrong with the arguments
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()  # type: ignore[attr-defined]
            return 2
        return _fail(words, of_parser(error), getattr(error, "exit_code", 2))


def _warn(words: Sequence[str], warning: Warning | str, *_: Any) -> None:
    """Print a warning in the words of the command line; not of columns whose type was given."""
    if columns := getattr(warning, "columns", None):  # that hold numbers as text
        pairs = zip(["", *words], words, strict=False)
        types = [word.removeprefix("--type=") for before, word in pairs if before == "--type" or "--type=" in word]
        given = {word.rpartition("=")[0] for word in types}
        columns = [name for name in columns if str(name) not in given]
        if not columns:
            return
        warning = type(warning)(columns)
    print_error(in_options(str(warning)), style="yellow")


def _fail(words: Sequence[str], sentence: str, code: int) -> int:
    """Print an error, for people and for programs; return the exit code."""
    sentence = in_options(sentence, strict="--strict" in words)
    if "--json" in words:
        print(json.dumps({"error": sentence, "code": code}))
    print_error(sentence)
    return code
