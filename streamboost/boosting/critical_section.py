"""The critical section of learning: one thread at a time, and Ctrl-C between whole rows only.

A KeyboardInterrupt can come between any two instructions of Python: after a kernel has learned rows and before they are
counted, say. While a section is open in the main thread, the only one that signals reach, SIGINT is therefore noted
only; :func:`interrupt_point` and the end of the section hand it to whoever handled it before.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the functions behind signal's, at a tenth of their cost
import inspect
from collections.abc import Callable
from signal import SIGINT
from typing import Any

LEARNING: dict[int, object] = {}  # the section in which a model learns, by the id of the model
SECTIONS: list[object] = []  # those open in the main thread, the outermost first


class Held:
    """The SIGINT held back: who would have handled it, and whether it came."""

    handler: Callable[[int, Any], Any]
    is_pending = False


def enter(model: object, section: object) -> None:
    """Begin to learn, or refuse to where the model is learning already; ``section`` is any object of the caller's own.

    To be followed by :func:`leave` whatever happens, even if this is refused.
    """
    if callable(_signal.getsignal(SIGINT)):  # nothing to hold back where it ends the process, or is ignored
        try:
            handler = _signal.signal(SIGINT, _note)
        except ValueError:  # not in the main thread
            pass
        else:
            SECTIONS.append(section)
            if handler is not _note:
                Held.handler = handler
    if LEARNING.setdefault(id(model), section) is not section:  # in one step, whatever other threads do
        raise RuntimeError(
            "another thread is learning this model, so these rows were not learned; expected one thread at a time. "
            "Hold a threading.Lock around the calls that learn, or let one thread learn from a queue.Queue."
        )


def leave(model: object, section: object) -> None:
    """End what :func:`enter` began; a SIGINT that came is handled now."""
    if LEARNING.get(id(model)) is section:
        del LEARNING[id(model)]
    if section in SECTIONS:
        SECTIONS.remove(section)
        if not SECTIONS and _signal.getsignal(SIGINT) is _note:
            try:
                _signal.signal(SIGINT, Held.handler)
            finally:  # even if the next one comes right now
                is_pending, Held.is_pending = Held.is_pending, False
            if is_pending:
                Held.handler(SIGINT, inspect.currentframe())


def interrupt_point() -> None:
    """Handle a SIGINT that was held back: rows are whole here. Inside of another section, it goes on waiting."""
    if len(SECTIONS) != 1:
        return
    try:
        _signal.signal(SIGINT, Held.handler)
    except ValueError:  # it is another thread's
        return
    section, Held.is_pending = SECTIONS.pop(), False
    Held.handler(SIGINT, inspect.currentframe())
    if callable(handler := _signal.getsignal(SIGINT)):  # which may be a new one; it did not raise: go on
        SECTIONS.append(section)
        Held.handler = handler
        _signal.signal(SIGINT, _note)


def _note(number: int, frame: object) -> None:
    Held.is_pending = True
