"""Kernels that call into other files: what was compiled is kept until one of those files changes.

Numba keeps what it compiled beside the source and looks, when a process asks for it, only at the file of the function
that was called. What that function calls in other files is compiled into it all the same, and so are their constants.
"""

import hashlib
import inspect
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any, TypeVar

from streamboost.compiled import compiled

F = TypeVar("F", bound=Callable[..., Any])


def compiled_with(*files: ModuleType) -> Callable[[F], F]:
    """Compile as :func:`streamboost.compiled.compiled` does, and anew when one of these files has changed.

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
