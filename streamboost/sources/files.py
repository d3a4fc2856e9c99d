"""Rows from files: CSV, JSON lines, Parquet and Arrow, one or many, packed or not, finished or still growing."""

from __future__ import annotations

import fnmatch
import glob
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from streamboost.errors import refused
from streamboost.features.reading import Kind
from streamboost.sources import rotation
from streamboost.sources.base import (
    BadRow,
    Batch,
    ForeignPosition,
    OnBad,
    Piece,
    Position,
    Source,
    bad_position,
    check_on_bad,
    rebatch,
)
from streamboost.sources.dialects import Dialect
from streamboost.sources.input_files import (
    STDIN,
    TEXT,
    InputFile,
    check_identity,
    display_name,
    has_bytes,
    inode_of,
    size_of,
)
from streamboost.sources.schemas import checked_types, from_text
from streamboost.sources.table_files import mark_last, read_arrow, read_parquet
from streamboost.sources.text_files import End, Place, Span, TextReader
from streamboost.sources.text_formats import CsvFormat, JsonLinesFormat

ABSENT = "does not exist. Look for a typo, and where relative paths start."
PACKED = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd"}
ENDINGS = {"csv": ".csv", "tsv": ".tsv", "jsonl": ".jsonl .ndjson .json", "parquet": ".parquet .pq",
           "arrow": ".arrow .arrows .feather .ipc"}  # fmt: skip
# Where to start: files done, the file to go on in and where, its schema, the files after it, how they are written,
# and what it is known by if it may have another name by now.
Start: TypeAlias = tuple[list[str], str | None, Place, Any, list[str], Dialect, int | None]
FORMATS = {ending: kind for kind, endings in ENDINGS.items() for ending in endings.split()}


class FileSource(Source):
    r"""The rows of files, one file after another.

    Types of CSV and JSON lines come from the first megabyte, or from what is there of it, and then hold for all rows,
    files and later runs; ``types`` pins them. Whole numbers are read as float64, for a later row may have a fraction,
    and so are columns without any value, and those of CSV that are all numbers but for one value in a hundred. Blank
    lines are passed over, and an empty field is a missing value, as is ``NA``. How a CSV is written, its first megabyte
    tells, too, where it is not said, and :meth:`describe` then says what was found.

    Parameters
    ----------
    *paths : str or path
        Files, globs such as ``"data/*.csv.gz"`` (in order of their names), directories, or ``"-"`` for the standard
        input. Of a directory all files whose names tell a format are read, in order of their names, and it has to be
        one format; hidden ones, those that begin with ``_`` and directories within are passed over.
    format : {"csv", "tsv", "jsonl", "parquet", "arrow"}, optional
        By default the names of the files tell, as they do of packed ones: ``.gz``, ``.zst``.
    types : dict, optional
        Arrow types by column, such as ``{"id": "string"}``; by default those of the first rows.
    kinds : dict, optional
        What a model knows of columns, ``"number"``, ``"category"`` (text) or ``"date"``: those that are there and look
        otherwise in the first rows are read so all the same. ``types`` goes before.
    names : sequence of str, optional
        The columns of a CSV file; by default they are in its first line.
    delimiter : str, optional
        Between the fields of a CSV file; by default the comma, semicolon, tab or bar that splits the first rows evenly,
        and a tab for ``.tsv``.
    decimal : {".", ","}, optional
        What begins the fraction of a number in a CSV file; by default a comma if that makes more columns numeric, and
        no comma stands between fields.
    encoding : str, optional
        Of text: any that Python knows. By default UTF-8, what a byte order mark says (UTF-16, UTF-32), or in a CSV file
        whose first lines are not UTF-8 ``"cp1252"``, which is Latin-1 and more. Found anew for each file.
    follow : bool
        Wait for more rows and files at the end; False by default. A line is read once it is whole. A file is over when
        there is another with something in it; one that is empty is read when it no longer is.
    follow_rotation : bool
        Follow one file of plain text that is renamed and begun anew from time to time, as logrotate does; False by
        default. The file that was is read to its end, wherever it is called ``rows.csv.1`` or ``rows.csv-20240101`` by
        then, and after it those that came later; a position is found again as long as its file is there, unpacked.
    stop : callable, optional
        Asked while waiting whether to stop; None by default.
    idle_timeout : float, optional
        Seconds without a new row after which to stop; by default never.
    poll : float
        Seconds between two looks at a file; 0.2 by default.
    on_bad : {"raise", "skip"} or callable
        What to do with a row that cannot be read, "raise" by default; a callable gets the :class:`BadRow`, which is
        then skipped. After resuming it may get one a second time.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp(), "prices.csv")
    >>> _ = file.write_text("size,price\n1,10\n2,20\n3,30\n")
    >>> first, last = FileSource(file).read(n_rows=2)
    >>> first.table.to_pylist()
    [{'size': 1.0, 'price': 10.0}, {'size': 2.0, 'price': 20.0}]
    >>> [batch.table.to_pylist() for batch in FileSource(file).read(first.position)]
    [[{'size': 3.0, 'price': 30.0}]]
    """

    def __init__(
        self,
        *paths: str | os.PathLike[str],
        format: str | None = None,
        types: Mapping[str, Any] | None = None,
        kinds: Mapping[str, Kind] | None = None,
        names: Sequence[str] | None = None,
        delimiter: str | None = None,
        decimal: str | None = None,
        encoding: str | None = None,
        follow: bool = False,
        follow_rotation: bool = False,
        stop: Callable[[], bool] | None = None,
        idle_timeout: float | None = None,
        poll: float = 0.2,
        on_bad: OnBad = "raise",
    ) -> None:
        if not paths:
            raise ValueError("no path is given, expected at least one. Pass a file, a glob, or '-' for standard input.")
        self.paths = [STDIN if os.fspath(path) == STDIN else os.path.normpath(os.fspath(path)) for path in paths]
        if format is not None and format not in ENDINGS:
            names = ", ".join(map(repr, sorted(ENDINGS)))
            raise refused("format", format, f"one of {names}. To let the file's name tell, leave it out.")
        self.types, self.kinds = checked_types(types), kinds or {}
        self.dialect = Dialect.checked(encoding, delimiter, decimal, names)
        check_on_bad(on_bad)
        self.format = format
        self.follow_rotation = follow_rotation
        follow = follow or follow_rotation
        self.follow, self.stop, self.idle_timeout, self.poll, self.on_bad = follow, stop, idle_timeout, poll, on_bad
        for path in self.paths:
            if not os.path.isdir(path):
                self._kind(path)
        if follow_rotation:
            self._check_rotation()
        self._schema: Any = None
        self._described = ""

    @property
    def schema(self) -> Any:
        """Return names and types of the columns; None while there are no rows, or only reading on could tell."""
        if self._schema is None and not self.follow and STDIN not in self.paths:
            next(self._pieces(self._start(None)), None)
        return self._schema

    def read(self, position: Position = None, n_rows: int = 1000) -> Iterator[Batch]:
        """Yield the rows after ``position``, which is refused if its file was exchanged or truncated since."""
        return rebatch(self._pieces(self._start(position)), n_rows)

    def read_first(self, total: int, position: Position = None, n_rows: int = 1000) -> Iterator[Batch]:
        """Read ``total`` rows at most, as :meth:`read` does: what comes after them in a pipe is not waited for."""
        return rebatch(_limit(self._pieces(self._start(position)), total), n_rows)

    def describe(self) -> str:
        """Return how the file last read is written: "CSV, ';' between values, decimal comma, cp1252"."""
        return self._described

    def progress(self, position: Position) -> float | None:
        """Return the share of all bytes before ``position``; within a packed or Arrow file none count."""
        if self.follow or STDIN in self.paths:
            return None
        if position is None:
            return 0.0
        path, done = position["file"], position["done"]
        past, size = sum(map(size_of, done)), size_of(path)
        total = past + size + sum(map(size_of, self._files([*done, path])))
        kind, packing = self._kind(path)
        if kind == "parquet" and size:
            past += int(size * position["row"] / max(pq.read_metadata(path).num_rows, 1))
        elif kind in TEXT and packing is None:
            past += min(position["offset"], size)
        return past / max(total, 1)

    # Which files, and in which order

    def _check_rotation(self) -> None:
        path = self.paths[0]
        is_one = len(self.paths) == 1 and path != STDIN and not os.path.isdir(path) and not glob.has_magic(path)
        if not is_one or self._kind(path)[0] not in TEXT or self._kind(path)[1] is not None:
            expected = "one file of CSV or JSON lines that is not packed"
            raise ValueError(f"follow_rotation is True for {', '.join(self.paths)}, expected {expected}. Leave it out.")

    def _kind(self, path: str) -> tuple[str, str | None]:
        """Return the format of a file, and how it is packed."""
        stem, suffix = os.path.splitext(path.lower())
        packing = PACKED.get(suffix)
        if suffix in PACKED:
            suffix = os.path.splitext(stem)[1]
        kind = self.format or FORMATS.get(suffix)
        if not (suffix or kind or path == STDIN or self.follow or glob.has_magic(path) or os.path.exists(path)):
            raise FileNotFoundError(f"{path} {ABSENT}")
        if kind is None:
            known = f"{', '.join(FORMATS)} (and then .gz or .zst). Pass format='csv' (--format csv), for example."
            raise ValueError(f"{display_name(path)} does not tell its format by its name, expected one of {known}")
        if kind == "parquet" and (packing or path == STDIN):
            told = "for its index is at the end. Write it to a plain file; it is packed inside."
            raise ValueError(f"{display_name(path)}: Parquet cannot be read from a pipe or packed again, {told}")
        return kind, packing

    def files(self) -> list[str]:
        """Return the files that are there, in the order in which they are read."""
        return self._files()

    def _files(self, done: Sequence[str] = ()) -> list[str]:
        """List the files that are there and not done, in order."""
        files: list[str] = []
        for path in self.paths:
            if path == STDIN or os.path.isfile(path):
                files.append(path)
            elif os.path.isdir(path) or glob.has_magic(path):
                is_glob = not os.path.isdir(path)
                found = sorted(filter(os.path.isfile, glob.glob(path, recursive=True) if is_glob else self._in(path)))
                if not found and not done and not self.follow:
                    told = f"no file matches {path}" if is_glob else f"{path} holds no file whose name tells a format"
                    raise FileNotFoundError(f"{told}. Look for a typo, or pass follow=True (--follow) to wait.")
                files += map(os.path.normpath, found)
            elif path not in done:
                raise FileNotFoundError(f"{path} {ABSENT}")
        if len(set(files)) < len(files):
            twice = next(file for i, file in enumerate(files) if file in files[:i])
            raise ValueError(f"{twice} is given twice, expected each file once. Leave one out, or copy the file.")
        is_done = set(done)
        return [file for file in files if file not in is_done]

    def _in(self, directory: str) -> list[str]:
        """List what is in a directory that has a name of the one format in it."""
        kinds: dict[str, list[str]] = {}
        for name in os.listdir(directory):
            stem, suffix = os.path.splitext(name.lower())
            kind = FORMATS.get(os.path.splitext(stem)[1] if suffix in PACKED else suffix)
            if kind in (self.format or kind, None) and kind and not name.startswith((".", "_")):
                kinds.setdefault(kind, []).append(os.path.join(directory, name))
        if len(kinds) > 1:
            told = f"holds files of several formats, {' and '.join(sorted(kinds))}, expected one"
            raise ValueError(
                f"{directory} {told}. Pass format='csv' (--format csv) or '{directory}/*.csv', for example."
            )
        return [file for files in kinds.values() for file in files]

    def _start(self, position: Position) -> Start:
        if position is None:
            return [], None, Place(), None, self._files(), self.dialect, None
        try:
            path, done, schema = position["file"], list(position["done"]), position["schema"]
            place = Place(position["row"], position["line"], position["offset"])
        except (TypeError, KeyError) as error:
            raise bad_position(position) from error
        schema = schema and from_text(schema)
        inode = position.get("inode") if self.follow_rotation else None
        if inode is not None and path == self.paths[0]:
            with rotation.open_rotated(path, rotation.resumed(path, position).inode) as stream:
                check_identity(stream, path, position)
            dialect = self.dialect.resumed(position.get("dialect"), self._kind(path)[0])
            return done, path, place, schema, [], dialect, inode
        is_gone = bool(position.get("at_end")) and self._may_be_gone(path) and not os.path.exists(path)
        done = [*done, path] if is_gone else done
        files = self._files(done)
        if path not in files and not is_gone:
            way_out = "Put it back, or start from None to read the others from their beginning."
            raise ForeignPosition(f"the position is in {display_name(path)}, which is not among the files", way_out)
        if path != STDIN and not is_gone:
            with open(path, "rb") as stream:
                check_identity(stream, path, position)
        for name, kind in self.types.items() if schema is not None else ():
            if name not in schema.names or schema.field(name).type != kind:
                told = "which is not how the rows before the position were read"
                raise ValueError(f"types[{name!r}] is {kind}, {told}. Resume with the same types, or start from None.")
        dialect = self.dialect.resumed(position.get("dialect"), self._kind(path)[0])
        if is_gone:
            return done, None, Place(), schema, files, dialect._replace(encoding=self.dialect.encoding), None
        return done, path, place, schema, [file for file in files if file != path], dialect, None

    def _may_be_gone(self, path: str) -> bool:
        """Return True if a file may be deleted once it was read."""
        if path in self.paths:
            return not self.follow  # nobody would come to write the file that is waited for
        if (os.path.dirname(path) or ".") in self.paths:
            return True
        return any(fnmatch.fnmatchcase(path, ours.replace("**/", "*")) for ours in self.paths)  # "**/" may be nothing

    # Reading them

    def _pieces(self, start: Start) -> Iterator[Piece | None]:
        done, path, place, schema, queue, dialect, inode = start
        while True:
            if path is None and self.follow:
                queue = [file for file in queue if has_bytes(file)]  # others may be written to: they are not done
                if not queue:
                    yield None
                    if self._wait(None, 0, done) == "stopped":
                        return
                    queue = self._files(done)
                    continue
            if path is None:
                if not queue:
                    return
                path = queue.pop(0)
            file = InputFile(path, *self._kind(path), done, schema, dialect)
            file.is_rotated, file.inode = self.follow_rotation, inode
            yield from self._file_pieces(file, place)
            if file.is_stopped:
                return
            if file.is_rotated:
                later = rotation.newer(path, file.inode or 0)
                inode = next(each.inode for each in later if each.size or each is later[-1])
                place, schema = Place(), file.schema
                dialect = file.dialect._replace(encoding=self.dialect.encoding)
                continue
            done, path, place, schema = [*done, path], None, Place(), file.schema
            dialect = file.dialect._replace(encoding=self.dialect.encoding)

    def _file_pieces(self, file: InputFile, start: Place) -> Iterator[Piece | None]:
        try:
            for span in self._spans(file, start):
                if span is None:
                    yield None
                    continue
                file.schema = self._schema = span.table.schema
                self._described = file.describe()
                file.update_identity()
                yield Piece(span.table, partial(_position_after, file.identity, span))
        except (OSError, pa.ArrowException) as error:
            raise ValueError(
                f"{display_name(file.path)} cannot be read as {file.kind}: {str(error).rstrip('.')}. It may be "
                "damaged, cut short or still being written; write it again, or pass format=... if it is of another "
                "kind than its name says."
            ) from error

    def _spans(self, file: InputFile, start: Place) -> Iterator[Span | None]:
        path, kind = file.path, file.kind
        if path != STDIN and not file.is_plain_text and not os.path.getsize(path):
            raise ValueError(f"{path} is empty, expected rows. Remove it, or write it again.")
        if kind == "parquet":
            yield from mark_last(read_parquet(path, self.types, file.schema, start.row, self.kinds))
            return
        with file.open() as stream:
            if kind == "arrow":
                spans = read_arrow(stream, display_name(path), self.types, file.schema, start.row, self.kinds)
                yield from mark_last(spans)
                return
            file.text = (JsonLinesFormat if kind == "jsonl" else CsvFormat)(
                self.types, file.schema, file.dialect, kinds=self.kinds
            )
            reader = TextReader(
                display_name(path),
                file.text,
                read=stream.read1 if path == STDIN else stream.read,
                seek=stream.seek if file.is_plain_text else None,
                bad=partial(self._bad, file),
                more=partial(self._at_end, file) if self.follow and file.is_plain_text else None,
                is_live=path == STDIN,
            )
            yield from reader.spans(start)

    def _bad(self, file: InputFile, place: Place, text: str, reason: str) -> None:
        file.update_identity()
        position = {**file.identity, **place._asdict()}
        where = f"{display_name(file.path)}, line {place.line + 1}"
        BadRow(where, reason, position=position, text=text).handle(self.on_bad)

    def _at_end(self, file: InputFile, n_bytes: int) -> End:
        if file.is_rotated:
            end = self._wait_for_rotation(file, n_bytes)
        elif os.path.exists(file.path) or not self._may_be_gone(file.path):
            end = self._wait(file.path, n_bytes, [*file.identity["done"], file.path], file.inode)
        else:  # what was written before it was deleted can still be read
            end = "finished" if file.is_gone else "more"
            file.is_gone = True
        if file.is_overwritten:
            raise _overwritten(file.path)
        file.is_stopped = end == "stopped"
        return end

    def _wait_for_rotation(self, file: InputFile, n_bytes: int) -> End:
        """Wait until the file holds more than ``n_bytes``, one after it has something in it, or it is time to stop."""
        began = time.monotonic()
        while True:
            # before the look at the size: whoever writes to the next one is done with this one
            is_over = any(each.size for each in rotation.newer(file.path, file.inode or 0))
            if file.size < n_bytes:
                raise _overwritten(file.path)
            if file.size > n_bytes:
                return "more"
            if is_over:
                return "finished"
            if self._is_time_to_stop(began):
                return "stopped"
            time.sleep(self.poll)

    def _wait(self, path: str | None, n_bytes: int, done: Sequence[str], inode: int | None = None) -> End:
        """Wait until the file holds more than ``n_bytes``, there is a new one, or it is time to stop."""
        began = time.monotonic()
        while True:
            # before the look at the size: what came first is read first
            is_newer = any(has_bytes(file) for file in self._files(done))
            size = 0 if path is None else size_of(path)
            if path is not None and not os.path.exists(path):
                if self._may_be_gone(path):
                    return "more"
                raise ValueError(f"{path} was deleted while it was followed. Put it back, or follow a glob of files.")
            if inode is not None and path is not None and inode_of(path) not in (None, inode):
                way_out = "Pass follow_rotation=True (--follow-rotation), or follow a glob such as rows-*.csv."
                raise ValueError(f"{path} was replaced by another file while it was followed. {way_out}")
            if size < n_bytes and path is not None:
                raise _overwritten(path)
            if size > n_bytes:
                return "more"
            if is_newer:
                return "finished"
            if self._is_time_to_stop(began):
                return "stopped"
            time.sleep(self.poll)

    def _is_time_to_stop(self, began: float) -> bool:
        is_late = self.idle_timeout is not None and time.monotonic() - began >= self.idle_timeout
        return is_late or (self.stop is not None and self.stop())


def _overwritten(path: str) -> ValueError:
    way_out = "Add rows at its end only, or rename it before another is begun (of logrotate: create, not copytruncate)."
    return ValueError(f"{path} shrank or was written over while it was read. {way_out}")


def _limit(pieces: Iterator[Piece | None], total: int) -> Iterator[Piece | None]:
    for piece in pieces:
        if piece is not None:
            piece = piece._replace(table=piece.table.slice(0, total))
            total -= piece.table.num_rows
        yield piece
        if not total:
            return


def _position_after(identity: dict[str, Any], span: Span, k: int) -> Position:
    at_end = {"at_end": True} if span.is_last and k == span.table.num_rows else {}
    return {**identity, **span.after(k)._asdict(), **at_end}
