"""The long arrays of checkpoints: their tiles, in files that never change and that several checkpoints share.

::

    DIR/checkpoint-00000042.safetensors              everything else; and the SHA-256, segment and offset of each tile
    DIR/segments/9d1f4f3c0a6b2e8877d05c1be1a4f002.tiles      tiles end to end

A tile is known by its SHA-256, and one that is there is not written again: a checkpoint costs what has changed since
the one before it. Segments are on disk before the checkpoint that refers to them, and are removed when none does any
more. A tile counts as there only if this process has written it, or has read and checked it.

Of a segment, some tiles are superseded sooner than others, though those that may last equally long are put together.
Once the segments that a checkpoint needs are larger than ``SLACK`` times its tiles, what it needs of the emptiest ones
is written once more, and they can go.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamboost.errors import SnapshotError
from streamboost.persistence.durable_files import bring_to_disk, remove_leftovers, sync_directory, temporary_file
from streamboost.persistence.tiles import TileShape, is_long, tiles

FOLDER = "segments"
NAME = re.compile(r"[0-9a-f]{32}\.tiles")
SEGMENT_BYTES = 1 << 24  # at most, but for one tile that is larger
SLACK = 2.0
# Of each tile of an array, in their order: what it is, the number of its segment in a list, and where it begins.
TILE = np.dtype([("sha256", "u1", 32), ("segment", "<i8"), ("offset", "<i8")])
WAY_OUT = "Bring it back from a copy of the directory, or take an earlier checkpoint."


class Place(NamedTuple):
    """Where a tile lies."""

    segment: str
    offset: int


class Segment(NamedTuple):
    """The name of a segment, and how many bytes it has."""

    name: str
    size: int


class SegmentStore:
    """The segments beside the checkpoints of a directory.

    Parameters
    ----------
    directory : path
        That of the checkpoints. The folder of segments is made when there is something to write.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory / FOLDER
        self._places: dict[bytes, Place] = {}  # of the tiles that are there, by their SHA-256
        self._sizes: dict[str, int] = {}  # of the segments

    def write(self, arrays: Sequence[tuple[NDArray[Any], TileShape]]) -> tuple[list[NDArray[Any]], list[Segment]]:
        """Write what is not there yet of contiguous arrays; return a table of the tiles of each, and the segments.

        All of it is durable when this returns.
        """
        self._forget_lost()
        cut = [list(tiles(array, shape)) for array, shape in arrays]
        digests = [[hashlib.sha256(tile.tobytes()).digest() for tile in row] for row in cut]
        needed: dict[bytes, NDArray[Any]] = {}
        for row, found in zip(cut, digests, strict=True):
            needed |= zip(found, row, strict=True)
        groups = self._groups(arrays, digests)
        self._forget({*self._emptiest(needed)})
        self._make_directory()
        for group in groups:
            fresh = {digest: needed[digest] for digest in group if digest not in self._places}
            for part in _parts(fresh):
                self._write_segment(part)
        sync_directory(self.directory)
        names = list(dict.fromkeys(self._places[digest].segment for digest in needed))
        return [self._table(found, names) for found in digests], [Segment(name, self._sizes[name]) for name in names]

    def read(
        self, arrays: Sequence[tuple[NDArray[Any], TileShape, NDArray[Any]]], segments: Sequence[Sequence[Any]]
    ) -> None:
        """Fill arrays from their tiles, of which each is checked.

        Raises
        ------
        SnapshotError
            If a segment is missing or damaged.
        """
        wanted: dict[int, dict[int, list[tuple[NDArray[Any], bytes]]]] = defaultdict(lambda: defaultdict(list))
        for array, shape, table in arrays:
            digests, numbers, offsets = table["sha256"], table["segment"].tolist(), table["offset"].tolist()
            for tile, digest, *place in zip(tiles(array, shape), digests, numbers, offsets, strict=True):
                wanted[place[0]][place[1]].append((tile, digest.tobytes()))
        for number, at in wanted.items():
            segment = Segment(*segments[number])
            try:
                self._read_segment(segment, at)
            except SnapshotError:
                self._forget({segment.name})
                raise

    def keep_only(self, needed: set[str]) -> None:
        """Remove all segments but these."""
        if not self.directory.is_dir():
            return
        for entry in self.directory.iterdir():
            if NAME.fullmatch(entry.name) and entry.name not in needed:
                self._forget({entry.name})
                entry.unlink(missing_ok=True)

    def remove_leftovers(self) -> None:
        """Remove what a process that was killed has left half written."""
        if self.directory.is_dir():
            remove_leftovers(self.directory)

    def _groups(
        self, arrays: Sequence[tuple[NDArray[Any], TileShape]], digests: Sequence[Sequence[bytes]]
    ) -> list[list[bytes]]:
        """Divide tiles among groups of those that may be superseded at the same time, of which none share a segment.

        An array of which most is new, as of one that is written anew again and again, is a group by itself.
        """
        rows: list[bytes] = []  # of windows
        items: list[bytes] = []  # such as trees
        groups = [rows, items]
        for (array, _), found in zip(arrays, digests, strict=True):
            known = {*found}
            if 2 * len(known & self._places.keys()) < len(known):
                groups.append([*found])
            else:
                (rows if is_long(array) else items).extend(found)
        return groups

    def _table(self, digests: Sequence[bytes], names: Sequence[str]) -> NDArray[Any]:
        """Return the rows of ``TILE`` for tiles that are there; segments are numbered as these names are."""
        numbers = {name: number for number, name in enumerate(names)}
        places = [self._places[digest] for digest in digests]
        table = np.empty(len(digests), TILE)
        table["sha256"] = np.frombuffer(b"".join(digests), np.uint8).reshape(len(digests), -1)
        table["segment"] = [numbers[place.segment] for place in places]
        table["offset"] = [place.offset for place in places]
        return table

    def _write_segment(self, part: dict[bytes, NDArray[Any]]) -> None:
        """Write tiles by their SHA-256 to a file that is named by these."""
        name = hashlib.sha256(b"".join(part)).hexdigest()[:32] + ".tiles"
        places = {}
        with temporary_file(self.directory) as file:
            for digest, tile in part.items():
                places[digest] = Place(name, file.tell())
                file.write(tile.tobytes())
            size = file.tell()
            bring_to_disk(file)
            os.replace(file.name, self.directory / name)
        self._places |= places
        self._sizes[name] = size

    def _read_segment(self, segment: Segment, at: dict[int, list[tuple[NDArray[Any], bytes]]]) -> None:
        """Fill tiles from their offsets, and remember that they are there."""
        if not NAME.fullmatch(segment.name):
            raise SnapshotError(f"it refers to a segment called {segment.name!r}. Take an earlier checkpoint.")
        path = self.directory / segment.name
        places = {}
        try:
            with open(path, "rb") as file:
                if (size := os.fstat(file.fileno()).st_size) != segment.size:
                    told = f"its segment {str(path)!r} has {size:,} bytes, expected {segment.size:,}"
                    raise SnapshotError(f"{told}, so it is damaged. {WAY_OUT}")
                for offset in sorted(at):
                    file.seek(offset)
                    data = file.read(at[offset][0][0].nbytes)
                    found = hashlib.sha256(data).digest()
                    for tile, digest in at[offset]:
                        if digest != found:
                            told = f"the checksum of its segment {str(path)!r} does not match at byte {offset:,}"
                            raise SnapshotError(f"{told}, so it is damaged. {WAY_OUT}")
                        tile[...] = np.frombuffer(data, tile.dtype).reshape(tile.shape)
                    places[found] = Place(segment.name, offset)
        except FileNotFoundError as error:
            raise SnapshotError(f"its segment {str(path)!r} is missing. {WAY_OUT}") from error
        except OSError as error:
            raise SnapshotError(f"its segment {str(path)!r} cannot be read ({error}). {WAY_OUT}") from error
        self._places |= places
        self._sizes[segment.name] = segment.size

    def _make_directory(self) -> None:
        if not self.directory.is_dir():
            self.directory.mkdir(exist_ok=True)
            sync_directory(self.directory.parent)

    def _forget_lost(self) -> None:
        """Forget segments that somebody has removed or cut off: what they held is written again."""
        lost = set()
        for name, size in self._sizes.items():
            try:
                if (self.directory / name).stat().st_size == size:
                    continue
            except OSError:
                pass
            lost.add(name)
        self._forget(lost)

    def _forget(self, names: set[str]) -> None:
        """Take the tiles in these segments as not there."""
        if names & self._sizes.keys():
            self._places = {digest: place for digest, place in self._places.items() if place.segment not in names}
            self._sizes = {name: size for name, size in self._sizes.items() if name not in names}

    def _emptiest(self, needed: dict[bytes, NDArray[Any]]) -> Iterator[str]:
        """Yield segments of which little is needed, until the others are not too large for what is."""
        used: Counter[str] = Counter()
        for digest, tile in needed.items():
            if digest in self._places:
                used[self._places[digest].segment] += tile.nbytes
        excess = sum(self._sizes[name] for name in used) - SLACK * used.total()
        for name in sorted(used, key=lambda name: used[name] / self._sizes[name]):
            if excess <= 0:
                return
            yield name
            excess -= self._sizes[name] - used[name]


def _parts(fresh: dict[bytes, NDArray[Any]]) -> Iterator[dict[bytes, NDArray[Any]]]:
    """Divide tiles among segments."""
    part: dict[bytes, NDArray[Any]] = {}
    size = 0
    for digest, tile in fresh.items():
        if part and size + tile.nbytes > SEGMENT_BYTES:
            yield part
            part, size = {}, 0
        part[digest] = tile
        size += tile.nbytes
    if part:
        yield part
