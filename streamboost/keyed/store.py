"""The models of cold keys: files that only grow, and where in them each key's newest state is.

::

    DIR/keys/9d1f4f3c0a6b2e88.models     states end to end, each behind its key and a checksum
    DIR/checkpoint-00000042.safetensors  which files, and of each key the file, the place and the rows learned

A state is written behind the others, never over one, so a checkpoint is the list of places as of then, and a process
that was killed leaves nothing behind but bytes that nobody refers to. Each process begins files of its own. A file goes
when no kept checkpoint refers to it; one of which less than half is needed is copied on before that.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import struct
import tempfile
import weakref
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamboost.errors import SnapshotError
from streamboost.persistence import snapshots
from streamboost.persistence.durable_files import bring_to_disk, sync_directory

FOLDER = "keys"
NAME = re.compile(r"[0-9a-f]{16}\.models")
FILE_BYTES = 1 << 26  # after which a new file is begun
KEPT = 2  # checkpoints, as a directory of them keeps
LARGEST = 1 << 32  # bytes of one model
ZSTD = pa.Codec("zstd", 1)
PLACE = struct.Struct("<QQQQ16s")  # file, offset, size, rows learned, checksum
WAY_OUT = "Bring it back from a copy of the directory, or take an earlier checkpoint."


def to_bytes(model: object) -> bytes:
    """A model as few bytes, for a store of somebody's own; :func:`from_bytes` undoes it, bit for bit."""
    data = snapshots.pack(model)
    return len(data).to_bytes(8, "little") + bytes(ZSTD.compress(data))


def from_bytes(data: bytes) -> Any:
    """The model of :func:`to_bytes`; a SnapshotError if it is damaged, and no code of it is run."""
    size = int.from_bytes(data[:8], "little")
    if size > min(LARGEST, 1000 * len(data)):
        raise SnapshotError(f"its size is said to be {size:,} bytes, so it is damaged. Take an earlier copy.")
    try:
        unpacked = bytes(ZSTD.decompress(memoryview(data)[8:], size))
    except (pa.ArrowException, OSError) as error:
        raise SnapshotError(f"it cannot be unpacked ({error}), so it is damaged. Take an earlier copy.") from error
    return snapshots.unpack(unpacked)


class Packed(NamedTuple):
    """A key's model as bytes."""

    token: bytes
    n_rows: int
    state: bytes

    def digest(self) -> bytes:
        """What tells whether it is as it was written."""
        head = b"%d:%d:" % (len(self.token), self.n_rows)
        return hashlib.blake2b(head + self.token + self.state, digest_size=16).digest()


class _File:
    """A file of states, open as long as it is needed: it can be read even after its writer has removed it."""

    def __init__(self, path: Path, *, is_new: bool) -> None:
        self.path, self.needed = path, 0  # bytes of newest states in it
        self._file: IO[bytes] = open(path, "xb+" if is_new else "rb", buffering=0)  # noqa: SIM115
        self.size = os.fstat(self._file.fileno()).st_size

    def append(self, data: bytes) -> int:
        """Write behind what there is; return where. If the disk is full, what was written is written over."""
        self._file.seek(self.size)
        left = memoryview(data)
        while len(left):
            left = left[self._file.write(left) :]
        self.size += len(data)
        return self.size - len(data)

    def read(self, offset: int, size: int) -> bytes:
        """What stands there."""
        self._file.seek(offset)
        return self._file.read(size)

    def bring_to_disk(self) -> None:
        """Wait until it would survive a power cut."""
        if self._file.writable():
            bring_to_disk(self._file)

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()


class KeyStore:
    """States by key, on disk.

    Examples
    --------
    >>> store = KeyStore()
    >>> store.put([Packed(b"sBonn", 10, b"a model of 10 rows")])
    >>> store.put([Packed(b"sBonn", 20, b"a model of 20 rows")])
    >>> store.get(b"sBonn").n_rows, store.rows_of(b"sGraz"), list(store.tokens())
    (20, 0, [b'sBonn'])
    """

    def __init__(self) -> None:
        self._places: dict[bytes, bytes] = {}
        self._files: list[_File | None] = []
        self._active: int | None = None  # the file that is written to
        self._home: Path | None = None  # where files are written; None: in a folder that goes with this process
        self._temporary: Path | None = None
        self._saved: deque[set[str]] = deque(maxlen=KEPT)  # files that the newest checkpoints refer to

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, token: bytes) -> bool:
        return token in self._places

    def tokens(self) -> Iterable[bytes]:
        """The keys there are."""
        return self._places.keys()

    def rows_of(self, token: bytes) -> int:
        """How many rows a key's model has learned; 0 if there is none."""
        place = self._places.get(token)
        return 0 if place is None else int(PLACE.unpack(place)[3])

    def n_bytes(self, without: set[bytes]) -> int:
        """The bytes of all newest states, but for those of some keys."""
        return sum(PLACE.unpack(place)[2] for token, place in self._places.items() if token not in without)

    def get(self, token: bytes) -> Packed | None:
        """A key's newest state; None if there is none."""
        place = self._places.get(token)
        if place is None:
            return None
        number, offset, size, n_rows, digest = PLACE.unpack(place)
        file = self._files[number]
        assert file is not None
        found = Packed(token, n_rows, file.read(offset, size))
        if found.digest() != digest:
            told = f"the checksum of key {token!r} in {str(file.path)!r} does not match, so it is damaged"
            raise SnapshotError(f"{told}. {WAY_OUT}")
        return found

    def put(self, models: Iterable[Packed]) -> None:
        """Write states; each counts once it is written."""
        for one in models:
            number, file = self._file()
            offset = file.append(one.state)
            self._forget(one.token)
            file.needed += len(one.state)
            self._places[one.token] = PLACE.pack(number, offset, len(one.state), one.n_rows, one.digest())

    def remove(self, token: bytes) -> None:
        """Know nothing of a key any more."""
        if self._forget(token):
            del self._places[token]

    def _forget(self, token: bytes) -> bool:
        if (place := self._places.get(token)) is None:
            return False
        number, _, size, _, _ = PLACE.unpack(place)
        file = self._files[number]
        assert file is not None
        file.needed -= size
        return True

    def _file(self) -> tuple[int, _File]:
        """The file to write to."""
        if self._active is not None and (file := self._files[self._active]) is not None and file.size < FILE_BYTES:
            return self._active, file
        if self._home is None and self._temporary is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="streamboost-"))
            weakref.finalize(self, shutil.rmtree, self._temporary, ignore_errors=True)
        folder = self._home or self._temporary
        assert folder is not None
        folder.mkdir(exist_ok=True)
        file = _File(folder / f"{secrets.token_hex(8)}.models", is_new=True)
        self._files.append(file)
        self._active = len(self._files) - 1
        return self._active, file

    # Checkpoints.

    def save_in(self, directory: Path) -> tuple[list[str], NDArray[np.uint8], NDArray[np.uint8]]:
        """Have everything in a directory of checkpoints, durable; return files, tokens and places for one."""
        self.move_to(directory)
        for number, file in enumerate(self._files):
            if file is not None and (file.path.parent != self._home or 2 * file.needed < file.size):
                if number == self._active:
                    self._active = None
                self._copy_on(number)
        for number, file in enumerate(self._files):
            if file is not None and not file.needed and number != self._active:
                self._files[number] = None
        used = [(number, file) for number, file in enumerate(self._files) if file is not None and file.needed]
        for _, file in used:
            file.bring_to_disk()
        if used:
            sync_directory(directory / FOLDER)
            sync_directory(directory)
        names = ["" if file is None or not file.needed else file.path.name for file in self._files]
        return names, _joined(self._places), _bytes(self._places.values()).reshape(-1, PLACE.size)

    def confirm(self, names: Iterable[str]) -> None:
        """Hear that a checkpoint is on disk that refers to these files; those that no kept one needs are removed."""
        self._saved.append({name for name in names if name})
        if self._home is None or not self._home.is_dir() or len(self._saved) < KEPT:
            return
        needed = set().union(*self._saved, (file.path.name for file in self._files if file is not None))
        for entry in self._home.iterdir():
            if NAME.fullmatch(entry.name) and entry.name not in needed:
                with contextlib.suppress(OSError):  # tried again after the next one
                    entry.unlink()

    def move_to(self, directory: Path) -> None:
        """Write to a directory of checkpoints from now on."""
        home = directory / FOLDER
        if self._home != home:
            self._home, self._active = home, None
            self._saved.clear()

    def _copy_on(self, number: int) -> None:
        """Write the newest states of one file to another."""
        own = [token for token, place in self._places.items() if PLACE.unpack(place)[0] == number]
        self.put(found for token in own if (found := self.get(token)) is not None)

    @classmethod
    def opened(cls, directory: Path, names: list[str], tokens: NDArray[Any], places: NDArray[Any]) -> KeyStore:
        """A store as a checkpoint in that directory has it."""
        store = cls()
        for name in names:
            store._files.append(_opened(directory / FOLDER, name) if name else None)
        for token, place in zip(_split(tokens), np.asarray(places, np.uint8), strict=True):
            number, offset, size, _, _ = PLACE.unpack(packed := place.tobytes())
            file = store._files[number] if number < len(names) else None
            if file is None or offset + size > file.size:
                raise SnapshotError(f"the state of key {token!r} lies in no file that is there. {WAY_OUT}")
            file.needed += size
            store._places[token] = packed
        return store

    # All in one.

    def gathered(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8]]:
        """Return tokens, places and states, all end to end: what a file by itself holds."""
        states, places, offset = [], [], 0
        for token in self._places:
            one = self.get(token)
            assert one is not None
            states.append(one.state)
            places.append(PLACE.pack(0, offset, len(one.state), one.n_rows, one.digest()))
            offset += len(one.state)
        return _joined(self._places), _bytes(places).reshape(-1, PLACE.size), _bytes(states)

    @classmethod
    def scattered(cls, tokens: NDArray[Any], places: NDArray[Any], states: NDArray[Any]) -> KeyStore:
        """Undo :meth:`gathered`."""
        store, data = cls(), np.asarray(states, np.uint8)
        for token, place in zip(_split(tokens), np.asarray(places, np.uint8), strict=True):
            _, offset, size, n_rows, digest = PLACE.unpack(place.tobytes())
            one = Packed(token, n_rows, data[offset : offset + size].tobytes())
            if one.digest() != digest:
                raise SnapshotError(f"the checksum of key {token!r} does not match. Take an earlier copy.")
            store.put([one])
        return store


def _bytes(parts: Iterable[bytes]) -> NDArray[np.uint8]:
    return np.frombuffer(b"".join(parts), np.uint8)


def _joined(tokens: Iterable[bytes]) -> NDArray[np.uint8]:
    """Tokens end to end, each behind its length."""
    return _bytes(part for token in tokens for part in (len(token).to_bytes(4, "little"), token))


def _split(joined: NDArray[Any]) -> list[bytes]:
    data, at, tokens = np.asarray(joined, np.uint8).tobytes(), 0, []
    while at < len(data):
        stop = at + 4 + int.from_bytes(data[at : at + 4], "little")
        tokens.append(data[at + 4 : stop])
        at = stop
    if at != len(data) or len({*tokens}) < len(tokens):
        raise SnapshotError("its keys are malformed. Take an earlier copy.")
    return tokens


def _opened(folder: Path, name: str) -> _File:
    if not NAME.fullmatch(name):
        raise SnapshotError(f"it refers to a file of keys called {name!r}. Take an earlier checkpoint.")
    try:
        return _File(folder / name, is_new=False)
    except OSError as error:
        raise SnapshotError(f"its file of keys {str(folder / name)!r} cannot be read ({error}). {WAY_OUT}") from error
