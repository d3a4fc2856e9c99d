"""One file that is being read: how it is opened, and what it is known by when a run is resumed."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from typing import IO, Any

import pyarrow as pa

from streamboost.sources.base import ForeignPosition
from streamboost.sources.dialects import Dialect
from streamboost.sources.rotation import open_rotated
from streamboost.sources.schemas import to_text
from streamboost.sources.text_formats import TextFormat

STDIN = "-"
HEAD = 4096  # bytes by which a file is recognised
TEXT = ("csv", "tsv", "jsonl")


class InputFile:
    """The file being read, and the part of a position that is the same for all its rows."""

    inode: int | None = None  # of a file of plain text, as it was opened
    is_rotated = False  # whether it may have been renamed since: then it is what the inode says
    text: TextFormat | None = None  # of a file of text that is being read

    def __init__(
        self, path: str, kind: str, packing: str | None, done: list[str], schema: Any, dialect: Dialect
    ) -> None:
        self.path, self.kind, self.packing = path, kind, packing
        self._dialect = dialect if dialect.delimiter or kind != "tsv" else dialect._replace(delimiter="\t")
        self.is_plain_text = path != STDIN and packing is None and kind in TEXT
        self.is_stopped = self.is_gone = False
        self.schema = schema
        self.identity: dict[str, Any] = {"file": path, "done": done, "schema": None}

    @property
    def dialect(self) -> Dialect:
        """Return how the file is written, as far as that is known."""
        return self._dialect if self.text is None else self.text.dialect

    def describe(self) -> str:
        """Return how the file is written, in words."""
        packed = f", {self.packing}" if self.packing else ""
        return (self.kind.capitalize() if self.text is None else self.dialect.describe(self.kind)) + packed

    def update_identity(self) -> None:
        """Take the first bytes of the file, while it still grows, and its schema into the identity."""
        if self.path != STDIN and self.identity.get("head", 0) < HEAD:
            try:
                size = {} if self.is_plain_text else {"size": os.path.getsize(self.path)}
                inode = {"inode": self.inode} if self.is_rotated else {}
                self.identity = {**self.identity, **self._head(), **size, **inode}
            except FileNotFoundError:
                if "head" not in self.identity:
                    raise  # else it was deleted while it is read, and is known well enough
        if self.schema is not None and self.identity["schema"] is None:
            self.identity = {**self.identity, "schema": to_text(self.schema)}
        if self.text is not None and self.identity.get("dialect") != (dialect := self.dialect.state()):
            self.identity = {**self.identity, "dialect": dialect}

    def open(self) -> Any:
        """Return a stream of the unpacked bytes, to be closed by ``with``."""
        if self.path == STDIN:
            return nullcontext(sys.stdin.buffer)  # which is not ours to close
        if self.packing:
            return pa.input_stream(self.path, compression=self.packing)
        if not self.is_plain_text:
            return pa.memory_map(self.path)
        if self.is_rotated and self.inode is not None:
            stream = open_rotated(self.path, self.inode)
        else:
            stream = open(self.path, "rb")  # noqa: SIM115 - closed by the caller
        self._descriptor = stream.fileno()
        self.inode = os.fstat(self._descriptor).st_ino
        return stream

    @property
    def size(self) -> int:
        """The bytes of a file of plain text that is open, whatever it is called by now."""
        return os.fstat(self._descriptor).st_size

    @property
    def is_overwritten(self) -> bool:
        """Whether an open file of plain text begins otherwise than it did."""
        known = {name: self.identity[name] for name in ("head", "sha256") if name in self.identity}
        return bool(known) and _digest(os.pread(self._descriptor, known["head"], 0)) != known

    def _head(self) -> dict[str, Any]:
        if self.is_rotated:
            return _digest(os.pread(self._descriptor, HEAD, 0))
        with open(self.path, "rb") as file:
            return _digest(file.read(HEAD))


def check_identity(stream: IO[bytes], path: str, position: Mapping[str, Any]) -> None:
    """Refuse an open file that is not the one in which the position was taken."""
    size = os.fstat(stream.fileno()).st_size
    is_other = _digest(stream.read(position["head"]))["sha256"] != position["sha256"]
    if size < position.get("size", position["offset"]):
        changed = "is shorter than"
    elif position.get("size", size) != size or is_other:
        changed = "is not the file it was"
    else:
        return
    found, way_out = f"{path} {changed} when the position was taken", "Put the old file back, or start from None."
    raise ForeignPosition(found, way_out) if is_other else ValueError(f"{found}. {way_out}")


def _digest(content: bytes) -> dict[str, Any]:
    return {"head": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def size_of(path: str) -> int:
    """Return the bytes of a file, 0 if it is gone."""
    try:
        return os.path.getsize(path)
    except FileNotFoundError:
        return 0


def inode_of(path: str) -> int | None:
    """Return what tells a file from one that was put in its place; None if it is gone."""
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return None


def has_bytes(path: str) -> bool:
    """Return True if there is anything to read; of the standard input only reading can tell."""
    return path == STDIN or size_of(path) > 0


def display_name(path: str) -> str:
    """Return the name of a file for messages."""
    return "the standard input" if path == STDIN else path
