"""Shards that read sources of their own: the driver says how far, and hears how far they are.

No row passes the driver. It sends each shard a stretch of its source after another, always a few ahead so that no shard
waits for it, and passes on what comes back: whose it is, and how far that shard is.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from streamboost.cluster.crew import Crew, Ticket
from streamboost.cluster.shard_worker import Progress

AHEAD = 2  # how many stretches of its source a shard is sent at once


class ShardReport(NamedTuple):
    """How far one shard is in its source."""

    shard: int
    rows: int  # read from the source
    bad: int  # of these, left out: without a target, or absurd
    reason: str  # why the last of them was
    loss: float  # on the latest rows, each before it was learned
    position: Any
    is_over: bool


class Plan(NamedTuple):
    """What shards are to read: checked when it is made by :func:`make_plan`."""

    sources: list[tuple[str, Any]]  # of each shard: what it is called, and the arguments it is opened with
    target: str
    rows: int | None  # of each source; None: to its end
    every: int  # rows of a shard between two of its reports
    chunk: int  # rows taken at once

    def next_goal(self, goal: int) -> int:
        """Up to which row to read, after this one."""
        return goal + self.every if self.rows is None else min(goal + self.every, self.rows)


def make_plan(n_shards: int, sources: Sequence[Any], target: str, *, rows: int | None, every: int, chunk: int) -> Plan:
    """Refuse what cannot be read by so many shards."""
    if isinstance(sources, (str, Mapping)) or len(sources) != n_shards:
        raise ValueError(f"sources is {sources!r}, expected {n_shards}: one for each shard.")
    for name, value in (("every", every), ("chunk", chunk), ("rows", 1 if rows is None else rows)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name} is {value!r}, expected a whole number of at least 1.")
    return Plan([_source_of(source) for source in sources], target, rows, every, chunk)


def read(crew: Crew, plan: Plan) -> Iterator[tuple[int, Progress]]:
    """Have all shards read their sources; yield who got on, and how far it is."""
    places = crew.results(crew.ask(shard, "place", where) for shard, (where, _) in enumerate(plan.sources))
    goals = [place.rows for place in places]
    under_way: dict[int, deque[Ticket]] = {shard: deque() for shard in range(crew.n_workers)}

    def send(shard: int) -> None:
        if plan.rows is None or goals[shard] < plan.rows:
            goals[shard] = plan.next_goal(goals[shard])
            where, source = plan.sources[shard]
            what = (where, source, plan.target, goals[shard], plan.rows, plan.chunk)
            under_way[shard].append(crew.call(shard, "read_on", *what))

    for _ in range(AHEAD):
        for shard in under_way:
            send(shard)
    while any(under_way.values()):
        for shard in [shard for shard, tickets in under_way.items() if tickets]:
            progress: Progress = crew.result(under_way[shard].popleft())
            if progress.place.is_over:
                under_way[shard].clear()  # what was sent ahead finds nothing
            else:
                send(shard)
            yield shard, progress


def _source_of(source: Any) -> tuple[str, Any]:
    """What a source is called, and the arguments it is opened with."""
    options = dict(source) if isinstance(source, Mapping) else {"where": source}
    where = options.pop("where", None)
    if where is None:
        raise ValueError(f"a source is {source!r}, expected a text, or a dict with 'where' and further options.")
    positional = list(where) if isinstance(where, (list, tuple)) else [where]
    try:
        name = json.dumps([positional, options], sort_keys=True)
    except TypeError:
        raise TypeError(
            f"a source is {source!r}, expected text and plain values: it is opened where the shard is."
        ) from None
    return name, (positional, options)
