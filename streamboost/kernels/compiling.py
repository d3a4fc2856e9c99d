"""How functions are compiled: by Numba, free of the interpreter's lock, dividing as NumPy does.

Numba keeps what it compiled beside the source, and compiles again when the file of the function that was called
has changed. It does not look into other files, though what is called there is compiled in all the same, and so are
their constants: what calls into some is made with :func:`compiled_with`.
"""

import hashlib
import inspect
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any, TypeVar, cast

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])

BARE: Any = {"nogil": True, "error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def compiled(function: F) -> F:
    """Compile a function for Python to call, and keep what was compiled for the next process."""
    return cast(F, njit(cache=True, nogil=True, error_model="numpy")(function))


def compiled_with(*files: ModuleType) -> Callable[[F], F]:
    """Compile as :func:`compiled` does, and anew when one of these files has changed.

    Parameters
    ----------
    *files : module
        All that the function takes kernels or constants from, also through one another.
    """

    def decorate(function: F) -> F:
        kernel = compiled(function)
        # Numba's own, and absent where compiling is switched off; should it move, a test says so, and nothing breaks
        index: Any = getattr(getattr(kernel, "_cache", None), "_cache_file", None)
        if hasattr(index, "_source_stamp"):
            index._source_stamp = (index._source_stamp, *map(_stamp, files))
        return kernel

    return decorate


@cache
def _stamp(file: ModuleType) -> str:
    return hashlib.sha256(inspect.getsource(file).encode()).hexdigest()


def compiled_inside(function: F) -> F:
    """Compile a function that only compiled ones call: without what Python would need, a fifth of all compiling.

    Called from Python it would crash the interpreter. Tests compile its ``py_func`` once more.
    """
    return cast(F, njit(**BARE)(function))


def compiled_inline(function: F) -> F:
    """Compile as :func:`compiled_inside` does, into each caller: for loops so hot that a call would be felt."""
    return cast(F, njit(forceinline=True, **BARE)(function))


def compiled_loosely(*freedoms: str) -> Callable[[F], F]:
    """Compile as :func:`compiled_inside` does, with rounding that may differ from the letter of the source.

    It never differs between runs. ``"contract"`` rounds a product and its sum once, ``"reassoc"`` adds several terms
    at a time, in a fixed order, ``"nsz"`` takes -0 for 0.
    """

    def decorate(function: F) -> F:
        return cast(F, njit(fastmath=set(freedoms), **BARE)(function))

    return decorate
