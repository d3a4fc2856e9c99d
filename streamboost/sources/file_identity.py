"""A file that is being read, and by what it is known again later."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import pyarrow as pa

from streamboost.sources.schemas import to_text

STDIN = "-"
HEAD = 4096  # bytes by which a file is known again
TEXT = ("csv", "tsv", "jsonl")


class KnownFile:
    """The file being read, and the part of a position that is the same for all its rows."""

    def __init__(self, path: str, kind: str, packing: str | None, done: list[str], schema: Any) -> None:
        self.path, self.kind, self.packing = path, kind, packing
        self.is_plain_text = path != STDIN and packing is None and kind in TEXT
        self.is_stopped = self.is_gone = False
        self.schema = schema
        self.identity: dict[str, Any] = {"file": path, "done": done, "schema": None}

    def look(self) -> None:
        """Know the file by its first bytes, of which there are more by and by, and its schema once it has one."""
        if self.path != STDIN and self.identity.get("head", 0) < HEAD:
            self._look_at_head()
        if self.schema is not None and self.identity["schema"] is None:
            self.identity = {**self.identity, "schema": to_text(self.schema)}

    def _look_at_head(self) -> None:
        try:
            identity = {**self.identity, **_head(self.path, HEAD)}
            if not self.is_plain_text:
                identity["size"] = os.path.getsize(self.path)
        except FileNotFoundError:
            if "head" not in self.identity:
                raise
            return  # deleted while it is read: it is known well enough
        self.identity = identity

    def open(self) -> Any:
        """A stream of the unpacked bytes, to be closed by ``with``."""
        if self.path == STDIN:
            return nullcontext(sys.stdin.buffer)  # which is not ours to close
        if self.packing:
            return pa.input_stream(self.path, compression=self.packing)
        return open(self.path, "rb") if self.is_plain_text else pa.memory_map(self.path)


def check_identity(path: str, position: Mapping[str, Any]) -> None:
    """Refuse a file that is not the one in which the position was taken."""
    size = os.path.getsize(path)
    if size < position.get("size", position["offset"]):
        raise ValueError(
            f"{path} is shorter than when the position was taken. Put the old file back, or start from None."
        )
    if position.get("size", size) != size or _head(path, position["head"])["sha256"] != position["sha256"]:
        raise ValueError(
            f"{path} is not the file it was when the position was taken. Put the old file back, or start from None."
        )


def _head(path: str, n_bytes: int) -> dict[str, Any]:
    with open(path, "rb") as file:
        content = file.read(n_bytes)
    return {"head": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def size_of(path: str) -> int:
    """Bytes of a file; of one that is gone, 0."""
    try:
        return os.path.getsize(path)
    except FileNotFoundError:
        return 0


def has_bytes(path: str) -> bool:
    """Whether there is anything to read; of the standard input only reading can tell."""
    return path == STDIN or size_of(path) > 0


def called(path: str) -> str:
    """What people call it."""
    return "the standard input" if path == STDIN else path
