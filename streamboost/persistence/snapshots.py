"""Saved models: a JSON header and named arrays in one safetensors file, written whole or not at all; no pickle.

Into :func:`save` flows any model built of streamboost's own objects, arrays, random generators, plain containers,
numbers and text; out of :func:`load` it flows again, bit for bit. A model needs no code of its own for this:
:mod:`streamboost.persistence.object_graph` takes it apart and puts it together, and what is reachable twice is
saved once.

The file is plain safetensors. Its metadata entry ``streamboost`` is JSON::

    {"version": 2, "sha256": "...", "root": value, "nodes": [node, ...]}

In a directory of checkpoints, long arrays are in segments beside the file, which is of version 3 then: it has a table
of tiles under the name of each, and in its header ``"segments"``, their names and sizes.

A value is null, a boolean, a number or text as they stand in JSON; ``{"ref": 3}`` for node 3; or ``{"int": hex}``,
``{"float": hex}``, ``{"text": hex}``, ``{"bytes": hex}``, ``{"scalar": [dtype, hex]}`` and ``{"numpy": value}`` for
what JSON cannot say. A node is an array by its name in the file, or a kind (``list``, ``PCG64``, or a class by its
registered name) with its keys and items. A node refers only to earlier nodes, so reading is one loop.

Loading runs no code that a file brings, and makes objects of streamboost's own classes only. The checksum covers
every byte. It tells damage, not malice: so that nobody's arrays lead kernels astray, they are checked as a model is
put together (:mod:`streamboost.persistence.array_specs`). What a stranger's model predicts is another matter.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save as serialize

from streamboost.errors import NewerFormat, SnapshotError
from streamboost.persistence import format_1
from streamboost.persistence.array_specs import check_model, parts_of
from streamboost.persistence.durable_files import replace_file
from streamboost.persistence.object_graph import ARRAY_KINDS, is_plain_array, is_scalar, put_together, take_apart
from streamboost.persistence.registry import PACKAGE
from streamboost.persistence.segments import TILE, SegmentStore
from streamboost.persistence.tiles import TileShape, is_cut, tile_shape

Json: TypeAlias = Any

VERSION = 2  # of a file by itself, and ...
VERSION_WITH_SEGMENTS = 3  # ... of one with segments beside it
HEADER_LIMIT = 100_000_000  # bytes: what safetensors agrees to read
SEAL = rb"\"sha256\":\""  # what stands before the checksum, as JSON inside JSON
BLANK = "0" * 64  # what stands for the checksum while it is being computed

# What safetensors has a name for everywhere; other arrays are stored as their bytes.
NAMED_DTYPES = {"|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8"}


def save(
    model: object,
    path: str | os.PathLike[str],
    segments: SegmentStore | None = None,
    *,
    before: Callable[[], object] | None = None,
) -> None:
    """Save a model, over the file at ``path`` if there is one.

    Written beside its place, brought to disk, renamed: whatever goes wrong, what stood at ``path`` still stands there.
    With ``segments``, those of the same directory, long arrays go there, as far as they have changed; None by default,
    and the file has everything. ``before``, None by default, is called just before it is put in its place, and keeps
    it from there if it raises.

    Raises
    ------
    SnapshotError
        If something in the model cannot be saved, before anything is written.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from streamboost.features.standardizer import Standardizer
    >>> from streamboost.persistence.object_graph import same_state
    >>> scaler = Standardizer(n_features=1)
    >>> scaler.learn(np.array([[1.0], [4.0]]), np.ones(2))
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     save(scaler, f"{directory}/scaler.safetensors")
    ...     loaded = load(f"{directory}/scaler.safetensors")
    >>> loaded.mean.tolist(), same_state(loaded, scaler)
    ([2.5], True)
    """
    target = Path(os.path.realpath(path))  # through a link, so that the link stays one
    if target.is_dir():
        raise IsADirectoryError(f"path is {os.fspath(path)!r}, a directory, expected a file. Add a file name to it.")
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"path is {os.fspath(path)!r}, but {str(target.parent)!r} is no directory. Make that directory first."
        )
    replace_file(target, pack(model, segments), before=before)


def load(path: str | os.PathLike[str]) -> Any:
    """Load a saved model.

    Raises
    ------
    SnapshotError
        If the file is damaged, no snapshot, or of a newer format, or if a segment it needs is missing or damaged.
    """
    return load_with(SegmentStore(Path(os.path.realpath(path)).parent), path)


def load_with(segments: SegmentStore, path: str | os.PathLike[str]) -> Any:
    """Load a saved model, whose long arrays may be in these segments."""
    try:
        return unpack(Path(path).read_bytes(), segments)
    except SnapshotError as error:
        raise type(error)(f"{os.fspath(path)!r} cannot be loaded: {error}") from error


def segments_of(path: Path) -> set[str]:
    """Return the names of the segments that a file refers to, which is not checked for damage."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = file.read(min(size, HEADER_LIMIT))
    try:
        return {name for name, _ in json.loads(json.loads(header)["__metadata__"][PACKAGE]).get("segments", ())}
    except Exception as error:  # whatever the bytes of a file lead to is the file's fault
        raise SnapshotError(f"{str(path)!r} has a malformed header. Take an earlier copy.") from error


def pack(model: object, segments: SegmentStore | None = None) -> bytes:
    """The bytes that :func:`save` would write; long arrays are written to ``segments``, if there are any."""
    model = _replaced(model, "to_saved", None if segments is None else segments.directory.parent)
    writer = _Writer(cuts_long=segments is not None)
    try:
        root = writer.value(model, "")
    except RecursionError as error:
        raise SnapshotError("the model is nested too deeply to be saved. Use flatter containers.") from error
    header: Json = {"version": VERSION, "sha256": BLANK, "root": root, "nodes": writer.nodes}
    if segments is not None and writer.long:  # only now, as all of the model can be saved
        tables, header["segments"] = segments.write([*writer.long.values()])
        header["version"] = VERSION_WITH_SEGMENTS
        for name, table in zip(writer.long, tables, strict=True):
            writer.arrays[name] = table.view(np.uint8).reshape(-1, TILE.itemsize)
    data = serialize(writer.arrays, metadata={PACKAGE: json.dumps(header, separators=(",", ":"))})
    if int.from_bytes(data[:8], "little") > HEADER_LIMIT:
        raise SnapshotError(
            f"the model holds more than {HEADER_LIMIT:,} bytes outside its arrays, which is more than can be loaded "
            "again. Keep long lists of numbers in arrays."
        )
    at = data.index(SEAL) + len(SEAL)
    return data[:at] + _checksum(data, at) + data[at + len(BLANK) :]


def _replaced(model: Any, method: str, directory: Path | None) -> Any:
    """Return what stands for a model in files, or undo that: of one that keeps parts of it in files of their own.

    It has ``to_saved(directory)``, where None stands for a file by itself, and what that returns ``from_saved``. The
    model of a checkpoint is meant, too.
    """
    if hasattr(model, method):
        return getattr(model, method)(directory)
    inner = getattr(model, "model", None)
    if hasattr(inner, method) and dataclasses.is_dataclass(model):
        return dataclasses.replace(model, model=getattr(inner, method)(directory))  # type: ignore[type-var]
    return model


class _Writer:
    """Collects the nodes and arrays of a model, children before parents."""

    def __init__(self, *, cuts_long: bool) -> None:
        self.cuts_long = cuts_long
        self.nodes: list[Json] = []
        self.arrays: dict[str, NDArray[Any]] = {}
        self.long: dict[str, tuple[NDArray[Any], TileShape]] = {}  # those that go to segments
        # The node of each thing, by id; the thing is kept, so that its id stays its own. No node yet: not finished.
        self.seen: dict[int, tuple[object, int | None]] = {}

    def value(self, value: object, path: str) -> Json:
        """Return what stands for a value in the header."""
        if is_scalar(value):
            return _write_scalar(value)
        if id(value) not in self.seen:
            self.seen[id(value)] = value, None
            self.nodes.append(self._node(value, path))
            self.seen[id(value)] = value, len(self.nodes) - 1
        number = self.seen[id(value)][1]
        if number is None:
            raise SnapshotError(f"{_shown(path)} leads back to itself, and cycles cannot be saved. Leave one link out.")
        return {"ref": number}

    def _node(self, value: object, path: str) -> Json:
        if is_plain_array(value):
            return self._array(value, _shown(path))
        parts = take_apart(value.for_segments() if self.cuts_long and hasattr(value, "for_segments") else value)
        if parts is None:
            raise _refusal(value, path)
        return {
            "kind": parts.kind,
            "keys": [self.value(key, f"{path}[key {key!r}]") for key in parts.keys],
            "items": [self.value(item, path + label) for label, item in zip(parts.labels, parts.items, strict=True)],
        }

    def _array(self, value: NDArray[Any], name: str) -> Json:
        while name in self.arrays or name in self.long:
            name += "'"
        array = np.asarray(value, order="C")  # safetensors writes what lies in memory, whatever the strides say
        dtype = array.dtype.str
        if self.cuts_long and is_cut(array):
            self.long[name] = array, (cut := tile_shape(array))
            return {"kind": "tiles", "name": name, "dtype": dtype, "shape": array.shape, "cut": cut}
        self.arrays[name] = array if dtype in NAMED_DTYPES else np.frombuffer(array.tobytes(), np.uint8)
        return {"kind": "array", "name": name, "dtype": dtype, "shape": array.shape}


def _write_scalar(value: object) -> Json:
    """A scalar as it stands in JSON, or {tag: text} where JSON has nothing for it."""
    if type(value) is str and value.isascii():  # most are
        return value
    if isinstance(value, (np.str_, np.bytes_)):  # item() and arrays drop zeros at the end
        return {"numpy": _write_scalar(str.__str__(value) if isinstance(value, str) else bytes(value))}
    if isinstance(value, np.generic):
        return {"scalar": [value.dtype.str, value.tobytes().hex()]}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": struct.pack(">d", value).hex()}
    if isinstance(value, int) and abs(value) >= 2**63:
        return {"int": hex(value)}
    if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
        return {"text": value.encode(errors="surrogatepass").hex()}  # JSON would join two halves of a pair
    return value


def _refusal(value: object, path: str) -> SnapshotError:
    cls = type(value)
    public = [part for part in cls.__module__.split(".") if not part.startswith("_") and part != "builtins"]
    dtype = f" of dtype {value.dtype}" if isinstance(value, np.ndarray) else ""
    return SnapshotError(
        f"{_shown(path)} is a {'.'.join([*public, cls.__qualname__])}{dtype}, which cannot be saved without pickle. "
        f"{PACKAGE}'s own objects, arrays, plain containers, numbers and text can: use those, or pickle the model."
    )


def _shown(path: str) -> str:
    return path.removeprefix(".").encode(errors="backslashreplace").decode() or "model"


def _checksum(data: bytes, at: int) -> bytes:
    """The SHA-256 of a file as hex digits, with their own place in it blank."""
    view = memoryview(data)
    digest = hashlib.sha256(view[:at])
    digest.update(BLANK.encode())
    digest.update(view[at + len(BLANK) :])
    return digest.hexdigest().encode()


def unpack(data: bytes, segments: SegmentStore | None = None) -> Any:
    """The model that :func:`pack` was given; raises as :func:`load` does."""
    try:
        directory = Path() if segments is None else segments.directory.parent
        return _replaced(_unpack(data, segments), "from_saved", directory)
    except SnapshotError:
        raise
    except Exception as error:  # whatever the bytes of a file lead to is the file's fault
        raise SnapshotError(
            f"its header is malformed ({type(error).__name__}: {error}). Take an earlier copy, or save the model again."
        ) from error


def _unpack(data: bytes, segments: SegmentStore | None) -> Any:
    start = 8 + int.from_bytes(data[:8], "little")  # of the arrays
    at = data.find(SEAL, 8, start) + len(SEAL)
    if at < len(SEAL):
        raise SnapshotError("it is no snapshot, or badly damaged. Use a file written by save.")
    tensors = json.loads(data[8:start])
    header = json.loads(tensors.pop("__metadata__")[PACKAGE])
    version = header["version"]
    if type(version) is int and version > VERSION_WITH_SEGMENTS:
        raise NewerFormat(
            f"its format version is {version}, and this {PACKAGE} reads versions up to {VERSION_WITH_SEGMENTS}. "
            f"Upgrade: pip install --upgrade {PACKAGE}"
        )
    if version not in (1, VERSION, VERSION_WITH_SEGMENTS) or data[at : at + len(BLANK)] != _checksum(data, at):
        raise SnapshotError("its checksum does not match, so it is damaged. Take an earlier copy.")
    spans = {name: tensor["data_offsets"] for name, tensor in tensors.items()}
    _check_spans(spans, len(data) - start, header["nodes"])
    stored = {name: memoryview(data)[start + first : start + last] for name, (first, last) in spans.items()}
    long = _read_long(header, stored, segments)
    built: list[Any] = []
    for node in header["nodes"]:  # each out of earlier ones
        if node["kind"] == "array":
            built.append(_array(stored[node["name"]], node["dtype"], node["shape"]))
        elif node["kind"] == "tiles":
            built.append(long[node["name"]])
        else:
            keys, items = ([_read_value(part, built) for part in node[name]] for name in ("keys", "items"))
            kind, keys = format_1.modernize(node["kind"], keys) if version == 1 else (node["kind"], keys)
            _check_hashed(keys if kind == "dict" else items if kind in ("set", "frozenset") else ())
            built.append(put_together(kind, keys, items))
    model = _read_value(header["root"], built)
    check_model(model)
    for _, part in parts_of(model):
        if hasattr(part, "after_loading"):
            part.after_loading()
    return model


def _check_spans(spans: dict[str, Sequence[int]], n_bytes: int, nodes: Sequence[Json]) -> None:
    """Refuse arrays that share bytes, of which a small file could make any number."""
    end = 0
    for name, (first, last) in sorted(spans.items(), key=lambda span: tuple(span[1])):
        if not end <= first <= last <= n_bytes:
            told = f"the bytes of {name!r} are {first} to {last}, expected some from {end} to {n_bytes} of its own"
            raise SnapshotError(f"{told}. Take an earlier copy.")
        end = last
    names = [node["name"] for node in nodes if node["kind"] in ("array", "tiles")]
    if len({*names}) < len(names):
        raise SnapshotError("two of its values are of one array, expected one for each. Take an earlier copy.")


def _check_hashed(values: Sequence[Any]) -> None:
    """Refuse keys that are nested: the hash of a few kilobytes of tuples in tuples takes for ever."""
    for value in values:
        parts = value if type(value) is tuple else [value]
        if not all(is_scalar(part) for part in parts):
            told = f"it has a key that is a {type(value).__name__} of containers, expected numbers, text or a tuple"
            raise SnapshotError(f"{told} of these. Take an earlier copy.")


def _read_long(header: Json, stored: dict[str, memoryview], segments: SegmentStore | None) -> dict[str, NDArray[Any]]:
    """Return the arrays that are in segments, by their names."""
    nodes = [node for node in header["nodes"] if node["kind"] == "tiles"]
    if nodes and segments is None:
        raise SnapshotError("its long arrays are in segments beside it. Load it from its directory.")
    long = {node["name"]: np.empty(node["shape"], _plain_dtype(node["dtype"])) for node in nodes}
    if segments is not None:
        tables = [np.frombuffer(stored[node["name"]], TILE) for node in nodes]
        cuts = [TileShape(*node["cut"]) for node in nodes]
        segments.read([*zip(long.values(), cuts, tables, strict=True)], header.get("segments", ()))
    return long


def _read_value(value: Json, built: list[Any]) -> Any:
    """Return what a value of the header stands for."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    [(tag, content)] = value.items()
    match tag:
        case "ref":
            if type(content) is not int or content < 0:
                raise SnapshotError(f"its header refers to node {content!r}. Take an earlier copy.")
            return built[content]
        case "int":
            return int(content, 16)
        case "float":
            return struct.unpack(">d", bytes.fromhex(content))[0]
        case "text":
            return bytes.fromhex(content).decode(errors="surrogatepass")
        case "bytes":
            return bytes.fromhex(content)
        case "scalar":
            dtype, digits = content
            return _array(bytes.fromhex(digits), dtype, [])[()]
        case "numpy":
            text = _read_value(content, built)
            return np.bytes_(text) if isinstance(text, bytes) else np.str_(text)
    raise SnapshotError(f"its header has a value of kind {tag!r}. Take an earlier copy.")


def _array(data: bytes | memoryview, dtype_name: str, shape: Sequence[int]) -> NDArray[Any]:
    """An array of its own: contiguous, aligned, writable."""
    dtype = _plain_dtype(dtype_name)
    if dtype.itemsize * math.prod(shape) != len(data):
        raise SnapshotError(f"{len(data)} bytes are no array of {dtype_name} and shape {shape}. Take an earlier copy.")
    return np.ndarray(tuple(shape), dtype, buffer=data).copy()


def _plain_dtype(name: str) -> np.dtype[Any]:
    dtype = np.dtype(name)
    if dtype.kind not in ARRAY_KINDS:
        raise SnapshotError(f"it holds an array of {name}, which is none that is saved. Take an earlier copy.")
    return dtype
