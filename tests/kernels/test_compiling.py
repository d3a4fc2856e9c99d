"""What was compiled is kept no longer than the files of kernels stay as they were, and where it can be kept."""

import ast
import importlib
import os
import pkgutil
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

from streamboost import kernels
from streamboost.kernels import caching, compiling, progress
from streamboost.kernels.edges import Meters, count_edges
from streamboost.kernels.tree_loop import learn_rows

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")

MODULES = [found.name for found in pkgutil.walk_packages(kernels.__path__, "streamboost.kernels.") if not found.ispkg]


def test_kernels_are_kept_under_the_digest_of_all_files_they_may_be_compiled_from():
    for name in MODULES:
        module = importlib.import_module(name)
        for kernel in vars(module).values():
            options = getattr(kernel, "targetoptions", None)
            if getattr(kernel, "__module__", None) == name and options and "no_cpython_wrapper" not in options:
                assert type(kernel._cache) is caching.KernelCache, kernel.__name__
        for node in ast.walk(ast.parse(Path(module.__file__).read_text())):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("streamboost"):
                assert node.module == "streamboost._types" or node.module.startswith("streamboost.kernels"), name


def test_the_digest_is_of_every_file_of_the_package():
    assert {Path(importlib.import_module(name).__file__) for name in MODULES} <= set(caching.FILES)
    assert type(learn_rows._cache) is caching.KernelCache


@pytest.fixture
def kernels_of_two_files(tmp_path):
    """A package of two kernels, one of which calls the other, in ``tmp_path / "streamboost"``."""
    package = tmp_path / "streamboost" / "kernels"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").touch()
    for module in (caching, compiling, progress):
        (package / Path(module.__file__).name).write_text(Path(module.__file__).read_text())
    (package / "inner.py").write_text(
        "from streamboost.kernels.compiling import compiled_inside\n\n"
        "@compiled_inside\ndef price():\n    return COST\n\nCOST = 1\n"
    )
    (package / "outer.py").write_text(
        "from streamboost.kernels.inner import price\nfrom streamboost.kernels.compiling import compiled\n\n"
        "@compiled\ndef total():\n    return price() + 10\n"
    )
    return package


@pytest.fixture
def run(tmp_path, kernels_of_two_files):
    """Call the outer kernel in a new process; its result, how often the cache had it, and what was said besides."""

    def run(code="t()", **settings):
        kept = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
        told = subprocess.run(
            [sys.executable, "-c", TOLD.format(code)],
            cwd=tmp_path,
            env=kept | {"PYTHONPATH": str(tmp_path)} | {name: str(value) for name, value in settings.items()},
            check=True,
            capture_output=True,
            text=True,
        )
        return *map(int, told.stdout.split()), told.stderr

    return run


TOLD = "from streamboost.kernels.outer import total as t; print({}, sum(t.stats.cache_hits.values()))"


def test_a_changed_file_counts_in_the_next_process_and_an_unchanged_one_compiles_nothing(
    tmp_path, kernels_of_two_files, run
):
    inner, kept = kernels_of_two_files / "inner.py", tmp_path / "kept"
    assert run(NUMBA_CACHE_DIR=kept) == (11, 0, "")
    assert run(NUMBA_CACHE_DIR=kept) == (11, 1, "")
    os.utime(inner, (1, 1))  # as in another checkout
    os.utime(kernels_of_two_files / "outer.py", (1, 1))
    assert run(NUMBA_CACHE_DIR=kept) == (11, 1, "")
    inner.write_text(inner.read_text().replace("COST = 1", "COST = 2"))
    assert run(NUMBA_CACHE_DIR=kept) == (12, 0, "")


@pytest.fixture
def nowhere(tmp_path, kernels_of_two_files):
    """Settings under which nobody, not even root, can write beside the package or to a home; and a temporary folder."""
    shutil.rmtree(kernels_of_two_files / "__pycache__", ignore_errors=True)
    (kernels_of_two_files / "__pycache__").touch()
    (tmp_path / "temporary").mkdir(0o700)
    return {"HOME": os.devnull, "XDG_CACHE_HOME": "", "TMPDIR": tmp_path / "temporary"}


def test_where_nothing_lasting_can_be_written_a_temporary_folder_of_this_user_alone_serves(tmp_path, run, nowhere):
    assert run("0", **nowhere) == (0, 0, "")
    assert not list((tmp_path / "temporary").iterdir())  # not before there is something to write
    result, hits, said = run(**nowhere)
    assert (result, hits) == (11, 0)
    (folder,) = (tmp_path / "temporary").iterdir()
    assert said.count("RuntimeWarning") == 1
    assert f"is kept in {folder}. Set NUMBA_CACHE_DIR to" in said
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert run(**nowhere) == (11, 1, "")
    assert run(**nowhere, NUMBA_CACHE_DIR=os.devnull) == (11, 1, "")  # a cache that cannot be written to either


@pytest.mark.parametrize("mode", [0o750, "link"])
def test_a_temporary_folder_that_may_be_anothers_is_neither_read_nor_written(tmp_path, run, nowhere, mode):
    run(**nowhere)
    (folder,) = (tmp_path / "temporary").iterdir()
    if mode == "link":
        folder.rename(tmp_path / "elsewhere")
        folder.symlink_to(tmp_path / "elsewhere")
    else:
        folder.chmod(mode)
    result, hits, said = run(**nowhere)
    assert (result, hits) == (11, 0)
    assert "is not kept, and is compiled in every process. Set NUMBA_CACHE_DIR" in said


def test_no_folder_is_made_among_others_files_where_there_is_none_for_temporary_ones(tmp_path, run, nowhere):
    before = sorted(tmp_path.iterdir())
    (tmp_path / "sitecustomize.py").write_text("import os, tempfile; tempfile.tempdir = os.getcwd()")  # its last resort
    assert "is not kept" in run(**nowhere)[2]
    (tmp_path / "sitecustomize.py").unlink()
    shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
    assert sorted(tmp_path.iterdir()) == before


def test_a_user_without_a_home_has_no_folder_named_tilde(monkeypatch):
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as it is where the user is unknown
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    assert caching.lasting_folders() == [caching.PACKAGE]
    monkeypatch.setattr(numba.config, "CACHE_DIR", "~/kernels")
    assert caching.lasting_folders() == []


def test_a_damaged_index_is_as_good_as_none(tmp_path, run, nowhere):
    run(**nowhere)
    (index,) = tmp_path.glob("temporary/*/*/*.nbi")
    index.write_bytes(index.read_bytes()[:40])
    assert run(**nowhere)[:2] == (11, 0)


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
