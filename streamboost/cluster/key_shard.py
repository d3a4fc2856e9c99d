"""A worker's share of the keys: a model each, those used lately in memory, all others packed in a file.

Operations are plain methods, deterministic given the state and their arguments. What is in memory and what is in the
file makes no difference to any answer. Learning is all or nothing: :meth:`KeyShard.check` goes through the rows of all
keys before :meth:`KeyShard.learn` changes any.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamboost._types import IntArray
from streamboost.cluster import key_models
from streamboost.cluster.hashing import key_of
from streamboost.cluster.key_models import Answers, Method, Prior
from streamboost.cluster.key_rows import Batch, Rows, take
from streamboost.cluster.key_store import KeyStore, Packed
from streamboost.estimators.base import StreamEstimator
from streamboost.estimators.prepared import Prepared
from streamboost.persistence import snapshots

SPILLED_AT_ONCE = 64
ZSTD = pa.Codec("zstd", 1)


class Refused(ValueError):
    """A row of a batch cannot be learned; nothing was changed."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(row, reason)  # as such it survives the way from one process to another
        self.row, self.reason = row, reason


class HalfLearned(RuntimeError):
    """Learning failed after some of the rows were learned: what the worker holds now is nobody's model."""


@dataclass(slots=True)
class _Held:
    """A key's model in memory."""

    model: StreamEstimator
    n_rows: int
    is_changed: bool


class _Ready(NamedTuple):
    """What one key's rows come to: its model, perhaps a new one, and the rows as it will learn them."""

    held: _Held
    prepared: Prepared


class KeyShard:
    """The models of one of ``n_workers`` shares of the keys; ``hot`` of them are kept in memory.

    Examples
    --------
    >>> import tempfile
    >>> from streamboost import SGBRegressor
    >>> shard = KeyShard(SGBRegressor(memory=64), hot=1)
    >>> shard.settle(tempfile.mkdtemp())
    >>> rows, y = [{"x": 0.0}, {"x": 1.0}, {"x": 5.0}], np.array([1.0, 1.0, 7.0])
    >>> said = shard.learn(rows, [b"sBonn", b"sGraz"], np.array([2, 1]), y)
    >>> shard.n_keys, shard.n_rows, shard.key_rows(b"sBonn"), len(shard._hot)
    (2, 3, 2, 1)
    """

    def __init__(
        self, template: StreamEstimator, prior: StreamEstimator | None = None, hot: int = 10_000, n_workers: int = 1
    ) -> None:
        self._template = template
        self._prior = None if prior is None else Prior(prior, template)
        self._limit, self._n_workers = hot, n_workers
        self._folder = Path()  # settle says which
        self._store: KeyStore | None = None
        self._hot: OrderedDict[bytes, _Held] = OrderedDict()  # the least recently used first
        self._ready: tuple[int, list[_Ready]] = (-1, [])  # what was checked last, by its chunk
        self.n_keys = self.n_rows = self.n_packed = self.n_unpacked = 0

    # Operations.

    def check(
        self, rows: Rows, tokens: list[bytes], sizes: IntArray, y: NDArray[Any], chunk: int
    ) -> tuple[int, str] | None:
        """Which row cannot be learned, and why, if there is one; nothing is changed."""
        try:
            batch = self._batch(rows, sizes)
            ready = [self._get_ready(batch, i, token, y) for i, token in enumerate(tokens)]
        except Refused as refused:
            return refused.row, refused.reason
        self._ready = (chunk, ready)
        self._spill()
        return None

    def learn(
        self,
        rows: Rows,
        tokens: list[bytes],
        sizes: IntArray,
        y: NDArray[Any],
        chunk: int = -1,
        method: Method = "predict",
    ) -> tuple[NDArray[Any] | None, list[Any] | None]:
        """Let every key's model predict its rows, then learn them; return what they said before.

        ``chunk`` tells what :meth:`check` has got ready; if that is something else, it is done again.
        """
        refused = None if self._ready[0] == chunk >= 0 else self.check(rows, tokens, sizes, y, chunk)
        if refused is not None:
            raise Refused(*refused)
        ready, self._ready = self._ready[1], (-1, [])
        answers, start = Answers(int(sizes.sum()), method), 0
        for token, size, one in zip(tokens, sizes.tolist(), ready, strict=True):
            stop = start + size
            answers.add(slice(start, stop), self._learn_key(token, one, y[start:stop], method))
            start = stop
        self._spill()
        return answers.plain()

    def predict(
        self, rows: Rows, tokens: list[bytes], sizes: IntArray, method: Method = "predict"
    ) -> tuple[NDArray[Any] | None, list[Any] | None]:
        """What every key's model says of its rows: of a key without one the prior, or nothing."""
        batch, answers, unknown = self._batch(rows, sizes), Answers(int(sizes.sum()), method), []
        for i, token in enumerate(tokens):
            held = self._find(token)
            if held is None:
                unknown.append(i)
                continue
            try:
                said = key_models.predict(held.model, key_models.encode(held.model, batch, i, learning=False), method)
            except (TypeError, ValueError) as error:
                raise self._refusal(batch, i, token, None, error) from error
            answers.add(slice(batch.starts[i], batch.ends[i]), key_models.answer(held.model, said, method))
        if unknown and self._prior is not None:
            places = np.concatenate([np.arange(batch.starts[i], batch.ends[i]) for i in unknown])
            said = key_models.predict(self._prior.model, take(rows, places), method)
            answers.add(places, key_models.answer(self._prior.model, said, method))
        self._spill()
        return answers.plain()

    def forget(self, token: bytes) -> bool:
        """Be as if a key had never been there; say whether it was."""
        n_rows = self.key_rows(token)
        self._ready = (-1, [])
        if not n_rows:
            return False
        self._hot.pop(token, None)
        if self._store is not None:
            self._store.put([Packed(token, 0, None)])
        self.n_keys -= 1
        self.n_rows -= n_rows
        return True

    def adopt(self, tokens: list[bytes], counts: list[int], states: list[bytes]) -> None:
        """Take in keys of another share."""
        self._open().put(map(Packed, tokens, counts, states))
        self.n_keys += len(tokens)
        self.n_rows += sum(counts)

    # Questions.

    def key_rows(self, token: bytes) -> int:
        """How many rows a key's model has learned; 0 if there is none."""
        if token in self._hot:
            return self._hot[token].n_rows
        found = None if self._store is None else self._store.get(token)
        return 0 if found is None else found.n_rows

    def state_of(self, token: bytes) -> bytes | None:
        """A key's model as a snapshot; None if there is none."""
        if token in self._hot:
            return snapshots.pack(self._hot[token].model)
        found = None if self._store is None else self._store.get(token)
        return None if found is None else _unzipped(found)

    def keys(self) -> list[bytes]:
        """All keys that have a model, in order."""
        return sorted({*(() if self._store is None else self._store.keys()), *self._hot})

    def sizes(self) -> dict[str, int]:
        """How much there is of everything."""
        packing = {"packed": self.n_packed, "unpacked": self.n_unpacked}
        return {"keys": self.n_keys, "rows": self.n_rows, "hot": len(self._hot), **packing}

    # Cuts.

    def settle(self, directory: str) -> None:
        """Hear where the file of cold keys may be."""
        self._folder = Path(directory)

    def save(self, number: int) -> None:
        """Write what changed since the last cut."""
        changed = {token: held for token, held in self._hot.items() if held.is_changed}
        facts = {"n_keys": self.n_keys, "n_rows": self.n_rows}
        self._open().cut(number, facts, (self._packed(token, held) for token, held in changed.items()))
        for held in changed.values():
            held.is_changed = False

    def load(self, number: int) -> None:
        """Go back to a cut."""
        facts = self._open().go_back(number)
        self._hot.clear()
        self._ready = (-1, [])
        self.n_keys, self.n_rows = facts["n_keys"], facts["n_rows"]

    def drop(self, kept: list[int]) -> None:
        """Forget other cuts than these."""
        self._open().keep(kept)

    # One key at a time.

    def _batch(self, rows: Rows, sizes: IntArray) -> Batch:
        try:
            return Batch(rows if self._prior is None else self._prior.widen(rows), sizes)
        except (TypeError, ValueError) as error:  # the prior's, or of a column of an unknown type
            n = int(sizes.sum())
            for row in range(n) if n > 1 else ():
                try:
                    self._batch(take(rows, np.array([row])), np.ones(1, int))
                except Refused as refused:
                    raise Refused(row, refused.reason) from error
            raise Refused(0, str(error)) from error

    def _get_ready(self, batch: Batch, i: int, token: bytes, y: NDArray[Any]) -> _Ready:
        try:
            return self._try_key(batch, i, token, y[batch.starts[i] : batch.ends[i]])
        except (TypeError, ValueError) as error:
            raise self._refusal(batch, i, token, y, error) from error

    def _try_key(self, batch: Batch, i: int, token: bytes, own_y: NDArray[Any]) -> _Ready:
        """All that can be done for a key's rows without changing anything."""
        held, classes = self._find(token), None
        if held is None:
            held = _Held(key_models.new_model(self._template, self._prior, batch.part(i)), 0, True)
            classes = None if self._prior is None else self._prior.classes
        rows = key_models.encode(held.model, batch, i, learning=True)
        return _Ready(held, held.model.prepare(rows, own_y, classes=classes))

    def _learn_key(self, token: bytes, ready: _Ready, y: NDArray[Any], method: Method) -> key_models.Answer:
        held = ready.held
        try:
            said = key_models.learn(held.model, ready.prepared, method)
        except MemoryError:  # as such it is known to whoever can make the worker anew
            raise
        except Exception as error:
            raise HalfLearned(
                f"the model of key {key_of(token)!r} failed on rows that had passed all checks, and other rows of "
                f"the chunk are learned already: {type(error).__name__}: {error}. Go back to the last checkpoint."
            ) from error
        self.n_keys += held.n_rows == 0
        held.n_rows += len(y)
        held.is_changed = True
        self._hot[token] = held  # it may have had to make room since it was checked
        self._hot.move_to_end(token)
        self._spill(SPILLED_AT_ONCE)
        self.n_rows += len(y)
        return key_models.answer(held.model, said, method)

    def _refusal(self, batch: Batch, i: int, token: bytes, y: NDArray[Any] | None, error: Exception) -> Refused:
        """Find the first row of a key that is refused by itself; all together may be worse than each."""
        start, stop = batch.starts[i], batch.ends[i]
        place = start
        for row in range(start, stop) if stop - start > 1 else ():
            single = Batch(take(batch.rows, np.array([row])), np.ones(1, int))
            try:
                if y is None:
                    model = self._hot[token].model
                    model.encode(key_models.encode(model, single, 0, learning=False))
                else:
                    self._try_key(single, 0, token, y[row : row + 1])
            except (TypeError, ValueError) as single_error:
                place, error = row, single_error
                break
        return Refused(place, f"the model of key {key_of(token)!r} refuses it: {error}")

    # In memory or in the file.

    def _find(self, token: bytes) -> _Held | None:
        """A key's model, brought to memory if need be."""
        held = self._hot.get(token)
        if held is not None:
            self._hot.move_to_end(token)
            return held
        found = None if self._store is None else self._store.get(token)
        if found is None:
            return None
        held = self._hot[token] = _Held(snapshots.unpack(_unzipped(found)), found.n_rows, False)
        self.n_unpacked += 1
        self._spill(SPILLED_AT_ONCE)
        return held

    def _spill(self, beyond: int = 0) -> None:
        """Once there are so many too many, make room in memory."""
        if len(self._hot) <= self._limit + beyond:
            return
        cold = list(islice(self._hot.items(), len(self._hot) - self._limit))
        changed = [(token, held) for token, held in cold if held.is_changed]
        if changed:
            self._open().put(self._packed(token, held) for token, held in changed)
        for token, _ in cold:  # only now: if the disk is full, nothing is lost
            del self._hot[token]

    def _packed(self, token: bytes, held: _Held) -> Packed:
        self.n_packed += 1
        data = snapshots.pack(held.model)
        zipped = len(data).to_bytes(8, "little") + bytes(ZSTD.compress(data))  # behind their number before
        return Packed(token, held.n_rows, zipped)

    def _open(self) -> KeyStore:
        if self._store is None:
            self._store = KeyStore(store_path(self._folder, self._n_workers))
        return self._store


def _unzipped(found: Packed) -> bytes:
    assert found.state is not None
    n = int.from_bytes(found.state[:8], "little")
    return bytes(ZSTD.decompress(memoryview(found.state)[8:], n))  # its checksum was right


def store_path(folder: Path, n_workers: int | str) -> Path:
    """The file of a worker's keys, where there are so many workers: keys that move leave the others' files alone."""
    return folder / f"keys-of-{n_workers}.sqlite"
