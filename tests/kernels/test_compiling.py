"""What was compiled is kept, and no longer than the files it was compiled from stay as they were."""

import ast
import importlib
import inspect
import os
import pkgutil
import subprocess
import sys

import numba
import pytest

import streamboost
from streamboost import _types as arrays
from streamboost.kernels import compiling as compiled

NO_KERNELS = {arrays.__name__, compiled.__name__}  # nothing of these is compiled into kernels

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")


def kernel_modules():
    names = [found.name for found in pkgutil.walk_packages(streamboost.__path__, "streamboost.")]
    return [name for name in names if name.endswith("_kernels")]


def imported(name):
    """The modules of the package that a module imports from, in source order."""
    for node in ast.parse(inspect.getsource(importlib.import_module(name))).body:
        if isinstance(node, ast.ImportFrom) and node.module.startswith("streamboost"):
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            modules = [one for one in inner if importlib.util.find_spec(node.module).submodule_search_locations]
            yield from modules or [node.module]


def reached(name):
    """All files whose kernels or constants may be compiled into the kernels of a module."""
    found, waiting = set(), [name]
    while waiting:
        new = set(imported(waiting.pop())) - NO_KERNELS - found
        found |= new
        waiting += new
    return found


@pytest.mark.parametrize("name", kernel_modules())
def test_a_kernel_is_compiled_anew_when_any_file_it_calls_into_has_changed(name):
    module = importlib.import_module(name)
    stamps = {compiled._stamp(importlib.import_module(other)) for other in reached(name)}
    for kernel in vars(module).values():
        if getattr(kernel, "__module__", None) == name and hasattr(getattr(kernel, "_cache", None), "_cache_file"):
            stamp = kernel._cache._cache_file._source_stamp
            looked_at = set(stamp[1:]) if isinstance(stamp[0], bytes | tuple) else set()
            assert looked_at == stamps, kernel.__name__


def test_the_loops_of_rows_and_networks_reach_into_other_files():
    assert {"streamboost.kernels.losses", "streamboost.kernels.layout"} <= reached("streamboost.kernels.tree_loop")
    assert "streamboost.kernels.nets.steps" in reached("streamboost.kernels.net_loop")


def test_a_changed_file_counts_in_the_next_process_and_an_unchanged_one_compiles_nothing(tmp_path):
    (tmp_path / "inner.py").write_text(
        "from streamboost.kernels.compiling import compiled_inside\n\n"
        "@compiled_inside\ndef price():\n    return COST\n\nCOST = 1\n"
    )
    (tmp_path / "outer.py").write_text(
        "import inner\nfrom inner import price\nfrom streamboost.kernels.compiling import compiled_with\n\n"
        "@compiled_with(inner)\ndef total():\n    return price() + 10\n\n"
        "print(total(), sum(total.stats.cache_hits.values()))\n"
    )

    def run():
        settings = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "kept")}
        told = subprocess.run(
            [sys.executable, "outer.py"], cwd=tmp_path, env=settings, check=True, stdout=subprocess.PIPE
        )
        return told.stdout.decode().split()

    assert run() == ["11", "0"]
    assert run() == ["11", "1"]
    (tmp_path / "inner.py").write_text((tmp_path / "inner.py").read_text().replace("COST = 1", "COST = 2"))
    assert run() == ["12", "0"]
