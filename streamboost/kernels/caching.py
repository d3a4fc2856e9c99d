"""Where compiled kernels are kept: looked for in several places, written to the first that can be written to.

That is ``NUMBA_CACHE_DIR`` if it is set; otherwise the package's own folder, then the user's cache directory. Where
none of them can be written to (an installation of root's, a user without a home), it is a temporary folder of this
user alone, or nowhere. Nothing is tried or made before there is something to write: what ``streamboost warmup`` left
in an image serves every user as it is, read-only or not.

Numba's cache looks at the file of the called function only, though what that calls is compiled in, too, and so are
constants. So all kernels are kept under a digest of all files of this package (:data:`DIGEST`): a change in any of
them compiles all of them anew.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import stat
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from numba.core import config
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile
from numba.misc.appdirs import AppDirs

PACKAGE = Path(__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
folders_used: set[Path | None] = set()  # by this process; None if something could not be kept
DIGEST = hashlib.sha256(b"\0".join(file.read_bytes() for file in FILES)).hexdigest()


def lasting_folders() -> list[Path]:
    """Return where kernels should be kept, the best first, whether or not it is there and can be written to."""
    if config.CACHE_DIR:
        chosen = os.path.expanduser(config.CACHE_DIR)
        return [] if chosen.startswith("~") else [Path(chosen)]
    user_wide = Path(AppDirs(appname="numba", appauthor=False).user_cache_dir)
    return [PACKAGE, user_wide] if user_wide.is_absolute() else [PACKAGE]  # "~" is no folder: a user without a home


def temporary_folder(*, make: bool = False) -> Path | None:
    """Return a temporary folder of this user alone, else None: what lies in it is run, nobody else may write there."""
    if os.name == "nt":  # where there is always the user's own cache directory
        return None
    try:
        above = Path(tempfile.gettempdir())
        mode = above.stat().st_mode
        is_last_resort = above == Path.cwd()  # of tempfile's, and full of somebody's files
        if not mode & stat.S_ISVTX and (mode & 0o022 or is_last_resort):
            return None
        folder = above / f"streamboost-{os.geteuid()}"
        if make:
            folder.mkdir(0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
    return folder if is_ours else None


@functools.cache
def _warn_once(told: str) -> None:
    warnings.warn(told, RuntimeWarning, stacklevel=2)


class KernelFiles:
    """The files of one kernel, which Numba reads and writes by key, in all folders they may be in."""

    def __init__(self, source: Path, name: str) -> None:
        self.source, self.name = source, name

    def load(self, key: Any) -> Any:
        """Return what was compiled for a key, or None."""
        for folder in (*lasting_folders(), temporary_folder()):
            if folder is None:
                continue
            try:
                found = self._in(folder).load(key)
            except Exception:  # no right to read it, or it was damaged: as good as none
                continue
            if found is not None:
                folders_used.add(folder)
                return found
        return None

    def is_kept(self) -> bool:
        """Return whether anything of the kernel is there."""
        for folder in (*lasting_folders(), temporary_folder()):
            with contextlib.suppress(Exception):  # as above
                if folder is not None and self._in(folder)._load_index():
                    return True
        return False

    def save(self, key: Any, data: Any) -> None:
        """Write what was compiled for a key to the first folder that takes it; warn if it does not last."""
        for folder in self._folders_to_write_to():
            try:
                files = self._in(folder)
                os.makedirs(files._cache_path, exist_ok=True)
                files.save(key, data)
            except Exception:  # no right to write there, a full disk, or an index that cannot be read
                continue
            folders_used.add(folder)
            return
        folders_used.add(None)

    def _folders_to_write_to(self) -> Iterator[Path]:
        yield from lasting_folders()
        temporary = temporary_folder(make=True)
        kept = "is not kept, and is compiled in every process" if temporary is None else f"is kept in {temporary}"
        _warn_once(
            f"Cannot write to {' or '.join(map(str, lasting_folders())) or 'any lasting folder'}: what Numba compiled "
            f"{kept}. Set NUMBA_CACHE_DIR to a folder that this user can write to, or run `streamboost warmup` once as "
            "a user who can write there."
        )
        if temporary is not None:
            yield temporary

    def _in(self, folder: Path) -> Any:
        """Return Numba's files of the kernel in a folder, under the names Numba itself would give them."""
        beside = self.source.parent
        sub = f"{beside.name}_{hashlib.sha1(str(beside).encode()).hexdigest()}"
        place = beside / "__pycache__" if folder == PACKAGE else folder / sub
        return IndexDataCacheFile(str(place), self.name, DIGEST)


class _Locator:
    """What Numba asks for a folder, and for how to name a kernel's files."""

    def __init__(self, function: Callable[..., Any], file: str) -> None:
        self._py_file, self.line = file, function.__code__.co_firstlineno

    from_function = classmethod(lambda cls, function, file: cls(function, file))

    def get_cache_path(self) -> str:
        return str(Path(self._py_file).parent)

    def get_source_stamp(self) -> str:
        return DIGEST

    def get_disambiguator(self) -> str:
        return str(self.line)

    def ensure_cache_path(self) -> None:
        """Do nothing: folders are made when they are written to."""


class _KernelCacheImpl(CompileResultCacheImpl):
    _locator_classes = (_Locator,)


class KernelCache(FunctionCache):
    """Numba's cache of a function, in the folders above."""

    _impl_class = _KernelCacheImpl

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = KernelFiles(Path(function.__code__.co_filename), self._impl.filename_base)

    def is_kept(self) -> bool:
        """Return whether anything of the function is there."""
        return self._cache_file.is_kept()
