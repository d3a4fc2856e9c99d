"""What was compiled is kept, and no longer than the files of kernels stay as they were."""

import ast
import importlib
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

from streamboost import kernels
from streamboost.kernels import compiling
from streamboost.kernels.edges import Meters, count_edges
from streamboost.kernels.tree_loop import learn_rows

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")

MODULES = [found.name for found in pkgutil.walk_packages(kernels.__path__, "streamboost.kernels.") if not found.ispkg]


def test_kernels_are_kept_under_the_digest_of_all_files_they_may_be_compiled_from():
    for name in MODULES:
        module = importlib.import_module(name)
        for kernel in vars(module).values():
            if getattr(kernel, "__module__", None) == name and hasattr(getattr(kernel, "_cache", None), "_cache_file"):
                assert kernel._cache._cache_file._source_stamp == compiling.DIGEST, kernel.__name__
        for node in ast.walk(ast.parse(Path(module.__file__).read_text())):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("streamboost"):
                assert node.module == "streamboost._types" or node.module.startswith("streamboost.kernels"), name


def test_the_digest_is_of_every_file_of_the_package():
    assert {Path(importlib.import_module(name).__file__) for name in MODULES} <= set(compiling.FILES)
    assert hasattr(learn_rows._cache._cache_file, "_source_stamp"), "Numba has moved what the digest is written to"


def test_a_changed_file_counts_in_the_next_process_and_an_unchanged_one_compiles_nothing(tmp_path):
    package = tmp_path / "streamboost" / "kernels"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").touch()
    (package / "compiling.py").write_text(Path(compiling.__file__).read_text())
    inner = package / "inner.py"
    inner.write_text(
        "from streamboost.kernels.compiling import compiled_inside\n\n"
        "@compiled_inside\ndef price():\n    return COST\n\nCOST = 1\n"
    )
    (package / "outer.py").write_text(
        "from streamboost.kernels.inner import price\nfrom streamboost.kernels.compiling import compiled\n\n"
        "@compiled\ndef total():\n    return price() + 10\n"
    )

    def run():
        settings = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "kept"), "PYTHONPATH": str(tmp_path)}
        code = "from streamboost.kernels.outer import total as t; print(t(), sum(t.stats.cache_hits.values()))"
        told = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, env=settings, check=True, stdout=subprocess.PIPE
        )
        return told.stdout.decode().split()

    assert run() == ["11", "0"]
    assert run() == ["11", "1"]
    os.utime(inner, (1, 1))  # as in another checkout
    os.utime(package / "outer.py", (1, 1))
    assert run() == ["11", "1"]
    inner.write_text(inner.read_text().replace("COST = 1", "COST = 2"))
    assert run() == ["12", "0"]


def test_a_kernel_for_python_is_compiled_into_its_callers_without_what_python_needs():
    @compiling.compiled_inside
    def twice(h, weight, meters):
        count_edges(h, h, weight, meters)
        count_edges(h, h, weight, meters)

    @compiling.compiled
    def outer(h, weight, meters):
        twice(h, weight, meters)

    meters = Meters(0.5, np.zeros(2), np.zeros(2), np.zeros((2, 2)))
    before = len(count_edges.overloads)
    outer(np.ones((3, 2, 1)), np.ones(3), meters)
    assert len(count_edges.overloads) == before
    assert meters.target_ss.tolist() == [6.0, 6.0]
