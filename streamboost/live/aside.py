"""Rows and labels that cannot be learned."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from streamboost.guards import Quarantine
from streamboost.journal import Transaction


def put_aside(quarantine: Quarantine, changes: Transaction, rows: Iterable[tuple[int, str, Any, Any]]) -> None:
    """Put rows into the quarantine: the place, the reason, the position and a table of the row itself of each."""
    for row, reason, position, table in rows:
        text = json.dumps(table.to_pylist()[0], default=str)
        quarantine.add(reason, text=text, position=position, row=row)
        changes.count(quarantined=1)
