"""The feed between a run and those who watch it.

One thread publishes observations, any number of listeners take them. Nobody waits: the publisher keeps the latest
messages, and a listener that is too slow gets the history instead of what it missed. That history is bounded too: the
newest observations are all kept, of the older ones every second, fourth, eighth and so on, evenly over the run.
"""

from __future__ import annotations

import contextlib
import json
import operator
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from streamboost.dashboard.observation import plain_event

KEPT = 600  # observations in the history, at most
DENSE = 100  # the newest of them, of which none is left out
EVENTS = 500  # the newest events
LATEST = 64  # messages a listener may fall behind


class Message(NamedTuple):
    """What a listener gets: ``"history"`` (everything so far), ``"observation"`` or ``"ended"``, as JSON text."""

    event: str
    id: int
    data: str


class _Kept(NamedTuple):
    number: int
    rows: int
    text: str  # JSON, without number and events


class Feed:
    """Takes observations from one thread and hands them to any number of listeners in others.

    An observation at a row that was observed before takes the place of the older one, and of those at later rows: a
    stream that stands still does not fill the history, and a run that goes back to a checkpoint starts again there.
    Events at later rows go too, and those that are told again.

    Parameters
    ----------
    title : str
        What runs, in a few words; empty by default.
    about : dict, optional
        More of it, such as source, target, task and model, shown as text; none by default.

    Examples
    --------
    >>> feed = Feed("prices", about={"target": "price"})
    >>> listener = feed.subscribe()
    >>> feed.publish({"rows": 500, "metrics": {"mae": {"running": 2.0, "windowed": None}}})
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
        self._events: list[dict[str, Any]] = []
        self._published = 0
        self._latest: deque[Message] = deque(maxlen=LATEST)
        self._ended = False
        self._listeners: list[Subscription] = []

    def publish(self, observation: Mapping[str, Any]) -> None:
        """Keep an observation and pass it to listeners, without waiting for any.

        It is strict JSON as :func:`~streamboost.dashboard.observe` makes it; at least ``"rows"``. Events happened at
        its time, unless they are dicts with a ``"time"`` of their own, None if nobody knows.
        """
        rows, time = operator.index(observation["rows"]), observation.get("time")
        plain = map(plain_event, observation.get("events", ()))
        events = [event | {"time": event.get("time", time)} for event in plain]
        text, told = _json({key: value for key, value in observation.items() if key != "events"}), _json(events)
        with self._lock:
            kept = _Kept(self._make_room(rows, events), rows, text)
            self._kept.append(kept)
            self._thin()
            self._events = [*self._events, *events][-EVENTS:]
            self._ended = False
            self._send("observation", f'{_numbered(kept)[:-1]},"events":{told}}}')

    def end(self) -> None:
        """Tell listeners that no more will come: pages show "ended", and go on if more comes after all."""
        with self._lock:
            self._ended = True
            self._send("ended", "{}")

    def _make_room(self, rows: int, events: Sequence[dict[str, Any]]) -> int:
        """Drop what was observed at this row or later; return the number of the next observation."""
        if self._kept and self._kept[-1].rows > rows:
            self._events = [event for event in self._events if event["row"] <= rows]
        again = {_without_time(event) for event in events}  # learned after the checkpoint that the run went back to
        self._events = [event for event in self._events if _without_time(event) not in again]
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
        self._latest.append(Message(event, self._published, data))
        for listener in self._listeners:
            listener._call()

    def history(self) -> dict[str, Any]:
        """Return everything so far, thinned out: title, about, observations (without events), events, ended."""
        with contextlib.closing(self.subscribe()) as listener:
            history: dict[str, Any] = json.loads(listener.take()[0].data)
        return history

    def subscribe(self, wake: Callable[[], object] | None = None) -> Subscription:
        """Listen from now on; the first message is the history.

        ``wake`` (default: None) is called in the publisher's thread whenever there is more; it must return at once.
        """
        listener = Subscription(self, wake)
        with self._lock:
            self._listeners.append(listener)
        return listener

    def disconnect(self) -> None:
        """End all subscriptions, as a server does that shuts down; pages come back when there is one again."""
        with self._lock:
            for listener in self._listeners:
                listener.closed = True
                listener._call()
            self._listeners.clear()

    @property
    def n_listeners(self) -> int:
        """Return the number of listeners."""
        return len(self._listeners)


class Subscription:
    """One listener's place in a feed; :meth:`Feed.subscribe` makes it."""

    def __init__(self, feed: Feed, wake: Callable[[], object] | None) -> None:
        self._feed, self._wake = feed, wake
        self._taken: int | None = None  # the id of the last message; None before the history
        self.closed = False

    def take(self) -> list[Message]:
        """Return messages since the last call; one history at first, and after more has come than is kept."""
        feed = self._feed
        with feed._lock:
            before, self._taken = self._taken, feed._published
            if before is not None and self._taken - before <= LATEST:
                return [message for message in feed._latest if message.id > before]
            head = {"title": feed.title, "about": feed.about, "ended": feed._ended, "stride": feed._stride}
            kept, events = list(feed._kept), list(feed._events)
        rules = _json({"kept": KEPT, "dense": DENSE, "events": EVENTS})  # written out when the lock is free again
        lists = f'"rules":{rules},"observations":[{",".join(map(_numbered, kept))}],"events":{_json(events)}'
        return [Message("history", self._taken, f"{_json(head)[:-1]},{lists}}}")]

    def close(self) -> None:
        """Listen no more."""
        with self._feed._lock:
            self.closed = True
            if self in self._feed._listeners:
                self._feed._listeners.remove(self)

    def _call(self) -> None:
        if self._wake is not None:
            with contextlib.suppress(RuntimeError):  # the listener's event loop is gone
                self._wake()


def _json(value: Any) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def _numbered(kept: _Kept) -> str:
    return f'{{"number":{kept.number},{kept.text[1:]}'


def _without_time(event: dict[str, Any]) -> tuple[Any, ...]:
    return event["row"], event["kind"], event["detail"]
