"""A model for each key in a DataStream of Flink, whose keyed state keeps the models.

Rows are first kept in the state as they come, and learned some at a time: what costs is to write a model, not a row.
After the death of a task manager, of a Python worker or of the client Flink goes back to its last checkpoint, rows that
were kept included, and reads from there again: every row counts once.

Flink's Python workers replace ``print``, on which Numba's import fails. So this module imports nothing of streamboost
at its top, and a worker does so with Python's own ``print`` back in its place.
"""

from __future__ import annotations

import builtins
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

try:
    from pyflink.datastream.functions import KeyedProcessFunction, KeySelector
except ImportError:  # learn says so
    KeyedProcessFunction = KeySelector = object

AT_THE_END = 2**63 - 1  # the watermark of a stream that is over


def learn(
    rows: Any,
    model: Any,
    *,
    key: str,
    target: str,
    order: str | None = None,
    features: Sequence[str] | None = None,
    buckets: int | None = None,
    chunk: int = 200,
    linger: float = 1.0,
    hot: int = 10_000,
) -> Any:
    """Predict each row of a stream with the model of its key, then learn it.

    Parameters
    ----------
    rows : DataStream
        Of dicts or of Rows with names, or of lists of these whose rows have one key; with their targets.
    model : SGBRegressor or SGBClassifier
        Of which every key gets a copy: a new one, or one that has learned the rows of many keys, from which new keys
        then start. A small one, such as ``SGBRegressor(n_estimators=20, max_depth=4, memory=256)``: there is one a key.
    key, target : str
        Names of columns; keys are text or whole numbers.
    order : str, optional
        The column by which rows are ordered that are learned together; left out, they are in order as they come.
    features : sequence of str, optional
        The columns to learn from; left out, all others.
    buckets : int, optional
        Keys are grouped into so many buckets, whose rows are kept and learned together: faster where many keys have
        few rows each. It cannot be changed in a job that goes on from a checkpoint.
    chunk : int, default=200
        Rows of a key, or of a bucket, that are learned as soon as so many have come.
    linger : float, default=1.0
        Seconds after which they are learned in any case.
    hot : int, default=10_000
        Models that each parallel instance keeps as objects.

    Returns
    -------
    DataStream
        Of dicts: of each row its key, its ``order`` if it has one, the ``prediction`` made before it was learned (None
        where the model had none), for classes as text with their ``probability``, and in ``refused`` why it was not
        learned: None for all good rows.
    """
    for name, value in (("buckets", buckets), ("chunk", chunk), ("linger", linger), ("hot", hot)):
        if value is not None and not value > 0:
            raise ValueError(f"{name} is {value!r}, expected a number above 0. If unsure, leave it out.")
    from streamboost.engines.key_learner import template_of

    try:
        from pyflink.common import Types
    except ImportError as error:
        from streamboost.errors import MissingDependency

        told = "streamboost.engines.flink needs apache-flink, which is not installed, and whose pins are older than"
        raise MissingDependency(f"{told} streamboost's. docs/scale.md says how to install both.") from error
    options = {"key": key, "target": target, "order": order, "features": features and list(features)}
    function = KeyFunction(template_of(model), options, buckets, chunk, linger, hot)
    return rows.key_by(GroupSelector(key, buckets), Types.STRING()).process(function).name("streamboost")


@contextmanager
def own_print() -> Iterator[None]:
    """Put Python's own ``print`` back for a while, if a worker of Flink has replaced it."""
    replaced = builtins.print
    builtins.print = getattr(getattr(replaced, "__self__", None), "_print", replaced)
    try:
        yield
    finally:
        builtins.print = replaced


class GroupSelector(KeySelector):  # type: ignore[misc,unused-ignore]
    """Tells the group of an element: its key, or the bucket of its key, as text."""

    def __init__(self, key: str, buckets: int | None) -> None:
        self.key, self.buckets = key, buckets

    def get_key(self, value: Any) -> str:
        """Return the group."""
        rows = _rows(value)
        key = _text(rows[0].get(self.key)) if rows else ""
        return key if self.buckets is None else str(zlib.crc32(key.encode()) % self.buckets)


class KeyFunction(KeyedProcessFunction):  # type: ignore[misc,unused-ignore]
    """Keeps the rows of a group until there are enough, or for long enough, and learns them."""

    def __init__(
        self, template: bytes, options: dict[str, Any], buckets: int | None, chunk: int, linger: float, hot: int
    ) -> None:
        self.template, self.options, self.buckets, self.chunk = template, options, buckets, chunk
        self.linger, self.hot_limit = int(1000 * linger), hot

    def open(self, runtime_context: Any) -> None:
        """Open the state, on a worker."""
        from pyflink.common import Types
        from pyflink.datastream.state import ListStateDescriptor

        with own_print():
            from streamboost.engines.key_learner import HotModels, KeyLearner

            self.learner = KeyLearner(self.template, **self.options)
        self.hot = HotModels(self.hot_limit)
        self.kept = runtime_context.get_list_state(ListStateDescriptor("rows", Types.PICKLED_BYTE_ARRAY()))
        self.state = _State(runtime_context, self.buckets)
        self.tag = _models_tag()
        self.counts: dict[str, int] = {}  # of the rows kept, of groups that have some

    def process_element(self, value: Any, ctx: Any) -> Iterable[dict[str, Any]]:
        """Keep rows, and learn them if there are enough."""
        rows, group = _rows(value), ctx.get_current_key()
        count = self.counts.get(group)
        if count is None:
            count = len(list(self.kept.get() or ()))  # after a restart there may be some
            ctx.timer_service().register_event_time_timer(AT_THE_END)
        if not count and len(rows) >= self.chunk:
            yield from self._learn(group, rows)
            return
        for row in rows:
            self.kept.add(row)
        self.counts[group] = count + len(rows)
        if self.counts[group] >= self.chunk:
            yield from self._learn_kept(group)
        elif not count:
            timers = ctx.timer_service()
            timers.register_processing_time_timer(timers.current_processing_time() + self.linger)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        """Learn the rows that have been kept for long enough."""
        yield from self._learn_kept(ctx.get_current_key())
        if timestamp == AT_THE_END:
            for key, model in self.state.models.items():
                yield self.tag, {"key": json.loads(key), "model": bytes(model)}

    def _learn_kept(self, group: str) -> Iterable[dict[str, Any]]:
        rows = list(self.kept.get() or ())
        self.counts.pop(group, None)
        if rows:
            self.kept.clear()
            yield from self._learn(group, rows)

    def _learn(self, group: str, rows: list[dict[str, Any]]) -> Iterable[dict[str, Any]]:
        told: list[dict[str, Any]] = self.learner.learn_dicts(group, self.state, rows, self.hot)
        return told


def models_of(learned: Any) -> Any:
    """Return the models of a stream that :func:`learn` returned, as dicts of ``key`` and ``model``, bytes.

    They come when the stream is over: its end was reached, or the job was stopped with ``--drain``. Of the bytes
    :func:`streamboost.engines.key_learner.load_model` makes an estimator.
    """
    return learned.get_side_output(_models_tag())


def _models_tag() -> Any:
    from pyflink.common import Types
    from pyflink.datastream import OutputTag

    return OutputTag("streamboost models", Types.PICKLED_BYTE_ARRAY())


class _State:
    """The state of the group that Flink is at."""

    def __init__(self, context: Any, buckets: int | None) -> None:
        from pyflink.common import Types
        from pyflink.datastream.state import MapStateDescriptor, ValueStateDescriptor

        as_bytes = Types.PRIMITIVE_ARRAY(Types.BYTE())
        self.mark = context.get_state(ValueStateDescriptor("mark", as_bytes))
        # another number of buckets is another state, so that no key is looked for where it is not
        name = "models" if buckets is None else f"models of {buckets} buckets"
        self.models = context.get_map_state(MapStateDescriptor(name, Types.STRING(), as_bytes))

    def get_mark(self) -> bytes | None:
        """Return the mark of the last visit; None before the first."""
        return _bytes(self.mark.value())

    def put_mark(self, mark: bytes) -> None:
        """Write a mark."""
        self.mark.update(mark)

    def get(self, key: Any) -> bytes | None:
        """Return the bytes of a key; None if it is new."""
        return _bytes(self.models.get(_text(key)))

    def put(self, key: Any, model: bytes) -> None:
        """Write the bytes of a key."""
        self.models.put(_text(key), model)


def _text(key: Any) -> str:
    """Return a key as JSON, in ASCII; what JSON cannot say as text."""
    return json.dumps(key, default=str)


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def _rows(value: Any) -> list[dict[str, Any]]:
    """Return the rows of an element as dicts."""
    rows = value if isinstance(value, list) else [value]
    return [row if isinstance(row, dict) else row.as_dict() for row in rows]
