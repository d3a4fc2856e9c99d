"""The state of a model as plain JSON: what a dashboard shows of one moment."""

from __future__ import annotations

import math
import time as clock
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from streamboost._types import FloatArray

COLUMNS = 20  # the importances that are told
LEARNERS = 128  # the edges that are told of a booster; of more, neighbours are averaged
EXPERTS = 64  # the weights that are told
PARTITIONS = 256  # those that are told
LONGEST_TEXT = 300  # of a name or a detail


def observe(
    model: Any,
    *,
    rows: int,
    running: Mapping[str, float],
    windowed: Mapping[str, float],
    rows_per_second: float | None,
    latency_ms: Mapping[str, float] | None = None,
    events: Iterable[Any] = (),
    pending: int | None = None,
    quarantined: int = 0,
    partitions: Iterable[Mapping[str, Any]] = (),
    time: float | None = None,
) -> dict[str, Any]:
    """Describe a model as it is now, in the thread that learns: nothing may change meanwhile.

    Parameters
    ----------
    model : object
        Any estimator, booster or committee; of others, and before it has learned, only the numbers here are shown.
    rows : int
        Rows learned, counted as the rows of ``events`` are: from the model's very first.
    running, windowed : dict
        Metrics by name, over all rows and over the latest; one that is a number in neither is left out.
    rows_per_second : float or None
    latency_ms : dict, optional
        ``{"p50": ..., "p99": ...}`` of predictions; None by default.
    events : iterable of Event, or of dicts with "row", "kind" and "detail"
        What happened since the last observation; nothing by default.
    pending : int, optional
        Rows that wait for their label; None, the default, where labels come with their rows.
    quarantined : int
        Rows refused so far; 0 by default.
    partitions : iterable of dicts
        Of a model that lives on several partitions: numbers or texts by name of each; none by default.
    time : float, optional
        Seconds since 1970; now by default.

    Returns
    -------
    dict
        Strict JSON: what is not a finite number is None.

    Examples
    --------
    >>> import numpy as np
    >>> from streamboost import SGBRegressor
    >>> X = np.random.default_rng(0).uniform(size=(500, 3))
    >>> model = SGBRegressor(random_state=0).partial_fit(X, X[:, 0] + X[:, 1])
    >>> seen = observe(model, rows=500, running={"rmse": 0.1}, windowed={"rmse": 0.05}, rows_per_second=9000.0)
    >>> seen["metrics"], [stack["memory"] for stack in seen["edges"]]
    ({'rmse': {'running': 0.1, 'windowed': 0.05}}, [16384, 4096, 1024, 256])
    >>> round(sum(expert["weight"] for expert in seen["weights"]), 3), sorted(seen["importances"])
    (1.0, ['0', '1', '2'])
    """
    committee = getattr(model, "committee_", model)
    if not hasattr(committee, "boosters") or not committee.n_rows:  # none, or none that has learned
        committee = None
    return {
        "time": round(clock.time() if time is None else float(time), 3),
        "rows": int(rows),
        "metrics": {
            str(name): {"running": finite(value), "windowed": finite(windowed.get(name))}
            for name, value in running.items()
            if finite(value) is not None or finite(windowed.get(name)) is not None
        },
        "rows_per_second": finite(rows_per_second),
        "latency_ms": None if latency_ms is None else {key: finite(latency_ms.get(key)) for key in ("p50", "p99")},
        "edges": _edges(model, committee),
        "weights": _weights(committee),
        "importances": _importances(model, committee),
        "events": [plain_event(event) for event in events],
        "pending": None if pending is None else int(pending),
        "quarantined": int(quarantined),
        "partitions": [_partition(partition) for partition in list(partitions)[:PARTITIONS]],
    }


def observe_report(model: Any, report: Any, **more: Any) -> dict[str, Any]:
    """Observe a model together with a prequential report; ``more`` is passed to :func:`observe`."""
    shown = {name: getattr(report, name) for name in ("running", "windowed", "rows_per_second", "events")}
    return observe(model, rows=report.rows_before + report.rows, **shown, **more)


def finite(value: Any) -> float | None:
    """Return a finite number, None for others, which JSON does not have."""
    number = math.nan if value is None else float(value)
    return number if math.isfinite(number) else None


def plain_event(event: Any) -> dict[str, Any]:
    """Return an event, a named tuple or a dict, as JSON; long details are shortened, a time of its own is kept."""
    found = event if isinstance(event, Mapping) else dict(zip(("row", "kind", "detail"), event, strict=False))
    plain = {"row": int(found["row"]), "kind": _text(found["kind"]), "detail": _text(found.get("detail", ""))}
    return plain | {"time": finite(found["time"])} if "time" in found else plain


def _partition(partition: Mapping[str, Any]) -> dict[str, Any]:
    """Keep numbers, and make everything else text."""
    return {
        _text(name): finite(value) if isinstance(value, (int, float)) or value is None else _text(value)
        for name, value in partition.items()
    }


def _text(value: Any) -> str:
    text = str(value)
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"


def _edges(model: Any, committee: Any) -> list[dict[str, Any]]:
    """Return the latest edges of every booster, the longest memory first, and which is a challenger."""
    told = []
    for booster in [model] if committee is None else committee.boosters:
        if not hasattr(booster, "edges") or not booster.n_rows:
            continue
        edges = booster.edges.recent
        memory = None if booster.replay is None else booster.replay.window
        shown = [finite(edge) for edge in np.round(_gathered(edges), 4).tolist()]  # enough for a picture
        told.append({"memory": memory, "learners": len(edges), "edges": shown})
    if committee is not None and committee.drift_replacement is not None and committee.drift_replacement.is_on:
        told[-1]["challenger"] = True
    return told


def _gathered(edges: FloatArray) -> FloatArray:
    """Average neighbours, NaN left out, to at most ``LEARNERS`` edges."""
    if len(edges) <= LEARNERS:
        return edges
    starts = np.linspace(0, len(edges), LEARNERS + 1)[:-1].astype(int)
    is_known = np.isfinite(edges)
    totals: FloatArray = np.add.reduceat(np.where(is_known, edges, 0.0), starts)
    counts = np.add.reduceat(is_known.astype(float), starts)
    return np.divide(totals, counts, out=np.full_like(totals, np.nan), where=counts > 0)


def _weights(committee: Any) -> list[dict[str, Any]]:
    """Return the largest weights of the hedge; none if another readout is used."""
    if committee is None or committee.readout != "hedge":
        return []
    largest = list(committee.weights().items())[:EXPERTS]
    return [{"memory": memory, "learners": n, "weight": finite(f"{weight:.4g}")} for (memory, n), weight in largest]


def _importances(model: Any, committee: Any) -> dict[str, float]:
    """Return the columns with the largest importances and their shares, where the learners are trees."""
    encoder = getattr(model, "encoder_", None)
    found = None if committee is None else committee.feature_importances(None if encoder is None else encoder.owners)
    if found is None:
        return {}
    names = getattr(encoder, "names", None)
    shares: dict[str, float] = {}
    for j in np.argsort(-found, kind="stable")[:COLUMNS].tolist():
        name = _text(j if names is None else names[j])
        shares[name] = shares.get(name, 0.0) + float(f"{found[j]:.4g}")
    return {name: share for name, share in shares.items() if share > 0}
