"""Errors in the words of the command line: the package speaks to those who call it from Python."""

from __future__ import annotations

import re
import shlex
from typing import Any

from streamboost.errors import SKIP, did_you_mean

TYPE = re.compile(r"\btypes\[(['\"])(?P<column>.*?)\1\] is '?(?P<kind>\w+(\[[^\]]*\])?|[^',]+)'?,")
MAX_BAD = re.compile(r"\bmax_bad=([\d.e-]*\d)")
PYTHON = (  # what is said in Python, and on the command line
    (re.compile(r"\b\w+=(?:\{[^}]*\}|'[^']*'|\w+|\[?\.\.\.\]?) \((--[^()]*)\)"), r"\1"),
    (re.compile(r"\bX\.astype\([^)]*\) \((--[^()]*)\)"), r"\1"),
    (re.compile(r"(--[\w-]+) \(\w+=\w+\)"), r"\1"),
    (re.compile(r"\b(delimiter|decimal|encoding|names|format) is (?=['(])"), r"--\1 is "),
    (re.compile(r"\btypes (names|says)\b"), r"--type \1"),
    (re.compile(r"\ba pyarrow type or its name\. Use [^.]*\."), "a type such as string, float64, int64 or bool."),
    (re.compile(r", or start from None\."), ", or begin in another directory."),
    (re.compile(r"\bmetric ('[^']*') is"), r"--metric \1 is"),
    (re.compile(r", or a (subclass of Metric|Loss\b)"), ""),
    (re.compile(r", or the loss object of one of these"), ""),
    (re.compile(r"For classes use SGBClassifier"), "For classes pass --task classification"),
    (re.compile(r"For real-valued targets use SGBRegressor"), "For numbers pass --task regression"),
)


def in_options(sentence: str, *, strict: bool = False) -> str:
    """Return a sentence with options where it has arguments of Python; ``strict`` says that --strict was given.

    Examples
    --------
    >>> in_options("Look for a typo, or pass follow=True (--follow) to wait.")
    'Look for a typo, or pass --follow to wait.'
    """
    sentence = SKIP.sub(lambda found: _skipping(found[1], found[2] or "", strict), sentence)
    sentence = TYPE.sub(lambda found: f"--type is {shlex.quote(found['column'] + '=' + found['kind'])},", sentence)
    sentence = MAX_BAD.sub(lambda found: f"--max-bad {_number_or_share(found[1])}", sentence)
    for pattern, words in PYTHON:
        sentence = pattern.sub(words, sentence)
    return sentence


def _number_or_share(limit: str) -> str:
    """Return how many rows may be bad; a share of them in percent."""
    return limit if limit.isdecimal() else f"{100 * float(limit):.4g}%"


def _skipping(before: str, after: str, strict: bool) -> str:
    """Return how bad rows are passed over, which only a strict run does not do anyway, or cannot do at all."""
    if strict:
        return f"{before}leave out --strict{after}"
    return after


def of_parser(error: Any) -> str:
    """Return what the parser says of the arguments, with the nearest word there is, and where to read on."""
    sentence, context = str(error.format_message()).replace(" (env var: 'None')", ""), error.ctx
    if found := re.match(r"No such command '(.*?)'", sentence):
        sentence = f"{found[0]}.{did_you_mean(found[1], context.command.list_commands(context))}"
    elif getattr(error, "possibilities", None):  # options near the unknown one
        sentence = f"{error.message.rstrip('.')}.{did_you_mean(error.option_name, error.possibilities)}"
    end = "" if sentence.endswith("?") else "."
    return sentence.rstrip(".") + end + ("" if context is None else f" Try: {context.command_path} --help")
