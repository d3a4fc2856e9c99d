"""One program of several commands, and how it ends: 0 if all went well, 2 if it was asked wrongly, 1 if it failed.

Whatever the answer is goes to standard output, as a table or with ``--json`` as one object; everything said on the way
goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated, Any

import typer

from streamboost.cli import model_commands, other_commands, predict_command, run_command, theory_command
from streamboost.cli.refusals import Refused, sentence_of
from streamboost.cli.screens import terminal

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
app.command("serve")(other_commands.serve)
app.command("demo")(other_commands.demo)
app.command(  # its words, --help among them, are for the experiments
    "paper", context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
)(other_commands.paper)


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
