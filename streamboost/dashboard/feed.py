"""The feed between a run and those who watch it.

One thread publishes observations, any number of listeners take them. Nobody waits for anybody: the publisher puts a
message into each listener's bounded queue and goes on, and a listener that is too slow finds, instead of what it
missed, the history as it stands. That history is bounded too: the newest observations are all kept, of the older ones
every second, fourth, eighth and so on, evenly over the whole run.
"""

from __future__ import annotations

import json
import operator
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from streamboost.dashboard.observing import finite, plain_event

KEPT = 600  # observations in the history, at most
DENSE = 100  # the newest of them, of which none is left out
EVENTS = 500  # the newest events
QUEUE = 64  # messages a listener may fall behind


class Message(NamedTuple):
    """What a listener gets: ``"history"`` (everything so far), ``"observation"`` or ``"ended"``, as JSON text."""

    event: str
    id: int
    data: str


class _Kept(NamedTuple):
    number: int
    rows: int
    text: str  # JSON, without number and events


class _Dated(NamedTuple):
    row: int
    said: str  # JSON, without the time
    text: str  # with it


class _State(NamedTuple):
    published: int
    head: dict[str, Any]
    kept: list[_Kept]
    events: list[_Dated]

    def text(self) -> str:
        """The history as JSON."""
        rules = _json({"kept": KEPT, "dense": DENSE, "events": EVENTS})
        observations = ",".join(_numbered(number, text) for number, _, text in self.kept)
        lists = f'"rules":{rules},"observations":[{observations}],"events":[{_joined(self.events)}]'
        return f"{_json(self.head)[:-1]},{lists}}}"


class Feed:
    """Takes observations from one thread and hands them to any number of listeners in others.

    An observation at a row that was observed before takes the place of the older one, and of those at later rows: a
    stream that stands still does not fill the history, and a run that goes back to a checkpoint starts again there.
    Events at later rows go too, and those that are told again.

    Parameters
    ----------
    title : str
        What runs, in a few words.
    about : dict, optional
        More of it, such as source, target, task and model; shown as text.

    Examples
    --------
    >>> feed = Feed("prices", about={"target": "price"})
    >>> listener = feed.subscribe()
    >>> feed.publish({"rows": 500, "metrics": {"mae": {"running": 2.0, "windowed": float("nan")}}})
    >>> [message.event for message in listener.take()]
    ['history']
    >>> feed.publish({"rows": 1000})
    >>> listener.take()
    [Message(event='observation', id=2, data='{"number":1,"rows":1000,"events":[]}')]
    >>> feed.history()["observations"][0]["metrics"]
    {'mae': {'running': 2.0, 'windowed': None}}
    """

    def __init__(self, title: str = "", about: Mapping[str, Any] | None = None) -> None:
        self.title = title
        self.about = {str(key): str(value) for key, value in (about or {}).items()}
        self._lock = threading.Lock()
        self._kept: list[_Kept] = []
        self._stride = 1  # of the observations before the newest DENSE, those with numbers that it divides are kept
        self._events: list[_Dated] = []
        self._published = 0
        self._ended = False
        self._listeners: list[Subscription] = []

    # Publishing.

    def publish(self, observation: Mapping[str, Any]) -> None:
        """Take in an observation and hand it on; never waits for a listener.

        Parameters
        ----------
        observation : dict
            As :func:`~streamboost.dashboard.observe` makes them; at least ``"rows"``. Events happened at its time,
            unless they are dicts with a ``"time"`` of their own, None if nobody knows.
        """
        rows = _whole(observation.get("rows"))
        events = [plain_event(event) for event in observation.get("events", ())]
        dated = [_dated(event, observation.get("time")) for event in events]
        bare = _json({key: value for key, value in observation.items() if key != "events"})
        with self._lock:
            number = self._make_room(rows, dated)
            self._kept.append(_Kept(number, rows, bare))
            self._thin()
            self._events = [*self._events, *dated][-EVENTS:]
            self._ended = False
            self._send("observation", f'{_numbered(number, bare)[:-1]},"events":[{_joined(dated)}]}}')

    def end(self) -> None:
        """Say that no more will come: pages show "ended", and go on if more comes after all."""
        with self._lock:
            self._ended = True
            self._send("ended", "{}")

    def _make_room(self, rows: int, events: Sequence[_Dated]) -> int:
        """Drop what was observed at this row or later; return the number of the next observation."""
        again = {event.said for event in events}  # learned after the checkpoint that the run went back to
        if self._kept and self._kept[-1].rows > rows:
            self._events = [event for event in self._events if event.row <= rows]
        if again:
            self._events = [event for event in self._events if event.said not in again]
        while self._kept and self._kept[-1].rows >= rows:
            self._kept.pop()
        return self._kept[-1].number + 1 if self._kept else 0

    def _thin(self) -> None:
        """Keep the history bounded after one more observation."""
        if len(self._kept) > DENSE and self._kept[-DENSE - 1].number % self._stride:
            del self._kept[-DENSE - 1]
        if len(self._kept) > KEPT:
            self._stride *= 2
            self._kept[:-DENSE] = [kept for kept in self._kept[:-DENSE] if kept.number % self._stride == 0]

    def _send(self, event: str, data: str) -> None:
        self._published += 1
        message = Message(event, self._published, data)
        for listener in list(self._listeners):
            listener._put(message)

    # Listening.

    def history(self) -> dict[str, Any]:
        """Everything so far, thinned out: title, about, observations (without their events), events, ended."""
        with self._lock:
            state = self._state()
        history: dict[str, Any] = json.loads(state.text())
        return history

    def _state(self) -> _State:
        """What the history is made of, to be written out when the lock is free again."""
        head = {"title": self.title, "about": self.about, "ended": self._ended, "stride": self._stride}
        return _State(self._published, head, list(self._kept), list(self._events))

    def subscribe(self, wake: Callable[[], object] | None = None) -> Subscription:
        """Listen from now on; the first message is the history.

        Parameters
        ----------
        wake : callable, optional
            Called, in the publisher's thread, whenever there is something to take; it must return at once.
        """
        listener = Subscription(self, wake)
        with self._lock:
            self._listeners.append(listener)
        return listener

    def disconnect(self) -> None:
        """End all subscriptions, as a server does that shuts down; pages come back when there is one again."""
        with self._lock:
            for listener in list(self._listeners):
                listener._end()
            self._listeners.clear()

    @property
    def n_listeners(self) -> int:
        """How many listen now."""
        return len(self._listeners)


class Subscription:
    """One listener's place in a feed; :meth:`Feed.subscribe` makes it."""

    def __init__(self, feed: Feed, wake: Callable[[], object] | None) -> None:
        self._feed = feed
        self._wake = wake
        self._queue: deque[Message] = deque()
        self._is_behind = True
        self.closed = False

    def take(self) -> list[Message]:
        """What has come since the last call; one history at first, and after more has come than is kept."""
        with self._feed._lock:
            state = self._feed._state() if self._is_behind else None
            self._is_behind = False
            messages = list(self._queue)
            self._queue.clear()
        return messages if state is None else [Message("history", state.published, state.text())]

    def close(self) -> None:
        """Listen no more."""
        with self._feed._lock:
            self.closed = True
            if self in self._feed._listeners:
                self._feed._listeners.remove(self)

    # Called by the feed, which holds its lock.

    def _put(self, message: Message) -> None:
        if self._is_behind:
            pass  # the history that it takes will hold this message too
        elif len(self._queue) >= QUEUE:
            self._queue.clear()
            self._is_behind = True
        else:
            self._queue.append(message)
        self._call()

    def _end(self) -> None:
        self.closed = True
        self._call()

    def _call(self) -> None:
        if self._wake is None:
            return
        try:
            self._wake()
        except RuntimeError:  # the listener's event loop is gone
            self.closed = True
            if self in self._feed._listeners:
                self._feed._listeners.remove(self)


def _whole(rows: Any) -> int:
    try:
        return operator.index(rows)
    except TypeError:
        raise ValueError(
            f"observation has rows {rows!r}, expected a whole number. Make observations with observe(...)."
        ) from None


def _json(value: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError):  # seldom: made by hand, not by observe
        return json.dumps(_plain(value), allow_nan=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    """The same as strict JSON: None for what is no finite number, text for what JSON does not know."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, (str, bool, int)):
        return value
    try:
        return finite(value)
    except (TypeError, ValueError):
        return str(value)


def _dated(event: dict[str, Any], time: Any) -> _Dated:
    bare = {key: value for key, value in event.items() if key != "time"}
    return _Dated(event["row"], _json(bare), _json({**bare, "time": event.get("time", time)}))


def _joined(events: Iterable[_Dated]) -> str:
    return ",".join(event.text for event in events)


def _numbered(number: int, text: str) -> str:
    return f'{{"number":{number},{text[1:]}'
