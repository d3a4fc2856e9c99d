"""How kernels are compiled: by Numba, free of the interpreter's lock, dividing as NumPy does.

A kernel that Python calls (:func:`compiled`) is optimised together with all it calls, once, and kept on disk. What
only kernels call (:func:`compiled_inside`) is never turned into machine code by itself: Numba's default, which
optimises every function anew in each of its callers, takes twice as long. Where it is kept:
:mod:`streamboost.kernels.caching`.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, Flags

from streamboost.kernels.caching import FILES, KernelCache
from streamboost.kernels.progress import TOGETHER, clock

F = TypeVar("F", bound=Callable[..., Any])

_long: dict[str, Any] = {}  # kernels that compile for long, by name


def _ended(compile: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that loads or compiles, and ends the clock that a compiler may have begun."""

    def compile_and_end(signature: Any) -> Any:
        try:
            return compile(signature)
        finally:
            clock.end()

    return compile_and_end


def _to_come(name: str) -> list[str]:
    """Return what is compiled soon after a kernel: what follows it, and is neither loaded nor kept anywhere."""
    after = [other for names in TOGETHER if name in names for other in names[names.index(name) + 1 :]]
    others = [_long[other] for other in after if other in _long]
    return [other.__name__ for other in others if not other.overloads and not other._cache.is_kept()]


class _QuickFlags(Flags):
    """Flags that compare in a moment: type inference looks them up some 40,000 times."""

    __slots__ = ()

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        return self is other or self._values == getattr(other, "_values", None)


class _KernelCompiler(Compiler):
    """Numba's compiler, without garbage collection meanwhile: a tenth of the time."""

    def __init__(
        self, typing: Any, target: Any, library: Any, args: Any, return_type: Any, flags: Any, local_types: Any
    ) -> None:
        quick = _QuickFlags(flags)
        self.no_wrapper, quick.no_cpython_wrapper = flags.no_cpython_wrapper, True
        super().__init__(typing, target, library, args, return_type, quick, local_types)

    def compile_extra(self, function: Any) -> Any:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            return super().compile_extra(function)
        finally:
            if was_enabled:
                gc.enable()

    def define_pipelines(self) -> Any:
        # only now: callees, found by flags, are the same for kernels with and without a wrapper
        self.state.flags.no_cpython_wrapper = self.no_wrapper
        return super().define_pipelines()


class _OuterCompiler(_KernelCompiler):
    """The same, for what Python calls: it is asked only if nothing was kept, and tells whoever listens."""

    def compile_extra(self, function: Any) -> Any:
        clock.begin(function.__name__, _to_come(function.__name__))
        return super().compile_extra(function)


class _InsideLibrary(JITCodeLibrary):
    """The code of a function that is compiled into its callers: a little simplified, but not optimised or loaded."""

    def _optimize_functions(self, module: Any) -> None:
        try:
            passes, builder = self._codegen._function_pass_manager(opt=1, loop_vectorize=False, slp_vectorize=False)
        except (AttributeError, TypeError):  # a Numba whose passes are made otherwise: its own way takes longer
            super()._optimize_functions(module)
            return
        module.data_layout = self._codegen._data_layout
        for function in module.functions:
            passes.run(function, builder)

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()
        return 0

    @property
    def codegen(self) -> Any:
        return self

    def set_env(self, *_: Any) -> None:
        """Do nothing: there is no code that could look at its environment."""


class _InsideCompiler(_KernelCompiler):
    def define_pipelines(self) -> Any:
        self.state.library = _InsideLibrary(self.state.targetctx.codegen(), self.state.func_id.func_qualname)
        return super().define_pipelines()


# of forceinline also the absence is told: what an inlined function calls would inherit it
OPTIONS: Any = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True, "forceinline": False}
INSIDE: Any = {**OPTIONS, "no_cpython_wrapper": True, "pipeline_class": _InsideCompiler}


def compiled(function: F) -> F:
    """Compile a function for Python to call, and keep what was compiled for the next process.

    Kernels may call it, too: they get it as :func:`compiled_inside` would make it.
    """
    kernel: Any = njit(pipeline_class=_OuterCompiler, **OPTIONS)(function)
    if kernel is not function:  # else compiling is switched off
        inside: Any = compiled_inside(function)
        kernel.compile = _ended(kernel.compile)
        kernel.get_call_template, kernel.get_overload = inside.get_call_template, inside.get_overload
        if Path(function.__code__.co_filename) in FILES:  # of no other would the digest know
            kernel._cache = KernelCache(function)  # Numba's own attribute: should it move, a test says so
            if any(function.__name__ in names for names in TOGETHER):
                _long[function.__name__] = kernel
    return cast(F, kernel)


def compiled_inside(function: F) -> F:
    """Compile a function that only compiled ones call. Called from Python it would crash the interpreter."""
    return cast(F, njit(**INSIDE)(function))


def compiled_inline(function: F) -> F:
    """Compile as :func:`compiled_inside` does, into each caller: for loops so hot that a call would be felt."""
    return cast(F, njit(**{**INSIDE, "forceinline": True})(function))


def compiled_loosely(*freedoms: str) -> Callable[[F], F]:
    """Compile as :func:`compiled_inside` does, with rounding that may differ from the letter of the source.

    It never differs between runs. ``"contract"`` rounds a product and its sum once, ``"reassoc"`` adds several terms
    at a time, in a fixed order, ``"nsz"`` takes -0 for 0.
    """

    def decorate(function: F) -> F:
        return cast(F, njit(fastmath=set(freedoms), **INSIDE)(function))

    return decorate
