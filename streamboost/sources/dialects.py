"""How a file of text is written: its encoding, and in CSV what stands between values and within numbers.

What nobody says is told by the first bytes. An encoding in which every byte is a letter of its own is decoded row by
row, so that positions stay bytes of the file; any other but UTF-8 is decoded as a stream: then positions are rows.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Sequence
from functools import cache
from itertools import islice
from typing import Any, NamedTuple, Self

from streamboost.errors import refused

UTF_8 = "utf-8"
BOMS = {b"\xef\xbb\xbf": UTF_8, b"\xff\xfe\0\0": "utf-32", b"\0\0\xfe\xff": "utf-32", b"\xff\xfe": "utf-16",
        b"\xfe\xff": "utf-16"}  # fmt: skip
DELIMITERS = "\t;|,"  # of those that fit as well, the first: commas may be in numbers
SAMPLE = 1 << 16  # bytes that tell the delimiter
SAMPLE_ROWS = 50
NAMES = {"\t": "a tab", " ": "a blank"}


class Dialect(NamedTuple):
    """What was given, or found in the first bytes of a file; None is not known yet."""

    encoding: str | None = None
    delimiter: str | None = None
    decimal: str | None = None
    names: tuple[str, ...] | None = None  # of columns, if they are not in the first line

    @classmethod
    def checked(cls, encoding: str | None, delimiter: str | None, decimal: str | None, names: Any) -> Self:
        """Check what a user gives."""
        if delimiter is not None and (len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n'):
            raise ValueError(f"delimiter is {delimiter!r}, expected one ASCII character, such as ',' or ';'.")
        if decimal not in (None, ".", ","):
            raise ValueError(f"decimal is {decimal!r}, expected '.' or ',', what begins the fraction of a number.")
        if isinstance(names, str) or (names is not None and len(set(names)) < len(names)):
            raise ValueError(f"names is {names!r}, expected a list of distinct names, one a column.")
        if encoding is not None:
            try:
                encoding = codecs.lookup(encoding).name.removesuffix("-sig")
                b"".decode(encoding)
            except LookupError:
                known = "one that Python knows, such as 'utf-8', 'latin-1', 'cp1252' or 'utf-16'."
                raise refused("encoding", encoding, known) from None
        return cls(encoding, delimiter, decimal, None if names is None else tuple(names))

    def state(self) -> dict[str, Any]:
        """Return what a position keeps, for :meth:`resumed`."""
        return {name: list(value) if name == "names" else value for name, value in self._asdict().items() if value}

    def resumed(self, known: dict[str, Any] | None, kind: str) -> Dialect:
        """Return the dialect of a position, which must be what is given, if anything is."""
        if known is None:  # of a version that knew no others
            return before_dialects(kind)._replace(**{k: v for k, v in self._asdict().items() if v is not None})
        found = Dialect(**known)._replace(names=tuple(known["names"]) if "names" in known else None)
        for name, given in self._asdict().items():
            if given is not None and given != getattr(found, name):
                told = f"but the rows before the position were read with {getattr(found, name)!r}"
                raise ValueError(f"{name} is {given!r}, {told}. Resume with the same {name}, or leave it out.")
        return found

    def describe(self, kind: str) -> str:
        """Return it in words: CSV, ';' between values, decimal comma, cp1252."""
        words = [{"jsonl": "JSON lines"}.get(kind, kind.upper())]
        if kind != "jsonl":
            words.append(f"{NAMES.get(self.delimiter or '', repr(self.delimiter))} between values")
            words += ["decimal comma"] * (self.decimal == ",")
        return ", ".join([*words, self.encoding_name])

    @property
    def encoding_name(self) -> str:
        """Return the encoding for messages."""
        return "UTF-8" if self.encoding == UTF_8 else str(self.encoding)


def before_dialects(kind: str) -> Dialect:
    """Return how files were read before anything was told by their first bytes."""
    return Dialect(UTF_8, None if kind == "jsonl" else "\t" if kind == "tsv" else ",", ".")


@cache
def is_bytewise(encoding: str) -> bool:
    """Return True if rows can be told apart by bytes: each is a letter, and those of ASCII are the same."""
    if encoding == UTF_8:
        return True
    letters = [codecs.getincrementaldecoder(encoding)("replace").decode(bytes([byte])) for byte in range(256)]
    return all(len(letter) == 1 for letter in letters) and letters[:128] == [chr(byte) for byte in range(128)]


def marked_encoding(data: bytes) -> str | None:
    """Return what a byte order mark says; None if there is none."""
    return next((encoding for mark, encoding in BOMS.items() if data.startswith(mark)), None)


def sniff_encoding(data: bytes, file: str, *, may_be_legacy: bool) -> str:
    """Tell the encoding where no mark does: UTF-8, unless most lines that are no ASCII are not UTF-8."""
    if data[:SAMPLE].count(0) > len(data[:SAMPLE]) / 5:
        told = "is full of zero bytes, as UTF-16 is, and does not begin with a byte order mark"
        raise ValueError(f"{file} {told}. Pass encoding='utf-16-le' (--encoding utf-16-le), for example.")
    if data.isascii() or not may_be_legacy:
        return UTF_8
    lines = [line for line in data[: data.rfind(b"\n") + 1 or None].split(b"\n") if not line.isascii()]
    n_foreign = sum(not _decodes(line, UTF_8) for line in lines)
    return "cp1252" if 2 * n_foreign > len(lines) and _decodes(data, "cp1252") else UTF_8


def _decodes(data: bytes, encoding: str) -> bool:
    try:
        data.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def sniff_delimiter(data: bytes, encoding: str, names: Sequence[str] | None) -> str:
    """Tell what stands between values: what splits most of the first rows in as many fields as there are names."""
    text = data[:SAMPLE].decode(encoding, "replace").removeprefix("\ufeff")
    whole = text[: text.rfind("\n") + 1] or text
    best, fit = ",", (0.0, 1)
    for delimiter in DELIMITERS:
        try:
            reader = csv.reader(io.StringIO(whole, newline=""), delimiter=delimiter)
            rows = list(islice(filter(None, reader), SAMPLE_ROWS))
        except csv.Error:
            continue
        n_fields = len(names or (rows[0] if rows else ()))
        below = rows if names or len(rows) == 1 else rows[1:]
        share = sum(len(row) == n_fields for row in below) / max(len(below), 1)
        if n_fields > 1 and (share, n_fields) > fit:
            best, fit = delimiter, (share, n_fields)
    return best
