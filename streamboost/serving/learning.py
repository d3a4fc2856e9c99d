"""What requests to learn bring, and what they do to a live model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec import UNSET
from starlette.requests import Request

from streamboost.live import Learned, LiveModel, NotTogether
from streamboost.serving import answers, arrow_bodies, bodies
from streamboost.serving.arrow_bodies import ARROW_TYPE
from streamboost.serving.gauges import Gauges
from streamboost.serving.refusals import Limits, Refused


class Given(NamedTuple):
    """What a request brought."""

    rows: Any  # a table; of labels, keys and targets
    id: str | None


class Learning:
    """Requests to learn: read in whatever thread, done in the writer's.

    Parameters
    ----------
    live : LiveModel
    limits : Limits
    gauges : Gauges
    """

    def __init__(self, live: LiveModel, limits: Limits, gauges: Gauges) -> None:
        self.live, self.limits, self.gauges = live, limits, gauges

    # Reading, in whatever thread.

    def rows_to_learn(self, request: Request, media_type: str, body: bytes) -> Given:
        """A table with the target among its columns."""
        target, limits = self.live.target, self.limits
        if media_type == ARROW_TYPE:
            table = arrow_bodies.parse_table(body, limits)
            if target not in table.column_names:
                raise Refused(422, f"the table has no column {target!r}, the target. Add it.")
            self._check_arrow_classes(table[target])
            return Given(table, bodies.take_id(request, UNSET, limits))
        parsed = bodies.decode(body, "LabelledRows", limits)
        rows = bodies.take_rows(parsed, limits)
        table = bodies.learning_table(parsed, rows, target, limits)
        if self.live.task == "classification":
            bodies.check_classes(parsed.targets or (row.get(target) for row in rows), target)
        return Given(table, bodies.take_id(request, parsed.id, limits))

    def labels_to_take(self, request: Request, media_type: str, body: bytes) -> Given:
        """Keys and targets."""
        target, limits = self.live.target, self.limits
        key = bodies.take_parameter(request, "key", limits.name_length)
        if media_type == ARROW_TYPE:
            table = arrow_bodies.parse_table(body, limits)
            labels = arrow_bodies.take_labels(table, key or "key", target, limits)
            self._check_arrow_classes(labels[1])
            return Given(labels, bodies.take_id(request, UNSET, limits))
        parsed = bodies.decode(body, "Labels", limits)
        labels = bodies.take_labels(parsed, target, limits)
        if self.live.task == "classification":
            bodies.check_classes((label.target for label in parsed.labels), target)
        return Given(labels, bodies.take_id(request, parsed.id, limits))

    def _check_arrow_classes(self, targets: Any) -> None:
        if self.live.task == "classification" and arrow_bodies.has_largest_numbers(targets):
            bodies.check_classes(targets.to_pylist(), self.live.target)

    # Changing, in the writer's thread.

    def learn(self, given: Given) -> answers.Learned:
        """Learn rows; return the answer."""
        return self._answer(self.live.learn(given.rows, id=given.id))

    def learn_together(self, given: Sequence[Given]) -> list[answers.Learned]:
        """Learn the rows of several requests as one; return their answers.

        Raises
        ------
        NotTogether
            If that cannot be, or some would be refused; nothing was changed.
        """
        tables = [one.rows for one in given]
        if not all(table.schema.equals(tables[0].schema) for table in tables):
            raise NotTogether("their columns differ")
        return [self._answer(learned) for learned in self.live.learn_together(tables, [one.id for one in given])]

    def _answer(self, learned: Learned) -> answers.Learned:
        if not learned.repeated:
            self.gauges.learned.inc(learned.rows)
            self.gauges.quarantined.inc(learned.quarantined)
        return {
            "learned": learned.rows,
            "quarantined": _told(learned.reasons),
            "repeated": learned.repeated,
        }

    def label(self, given: Given) -> answers.Labelled:
        """Take labels; return the answer."""
        labelled = self.live.label(*given.rows, id=given.id)
        if not labelled.repeated:
            self.gauges.learned.inc(labelled.learned + labelled.corrected)
            self.gauges.quarantined.inc(labelled.quarantined)
        return {
            "learned": labelled.learned,
            "corrected": labelled.corrected,
            "unchanged": labelled.unchanged,
            "early": labelled.early,
            "quarantined": _told(labelled.reasons),
            "repeated": labelled.repeated,
        }


def _told(reasons: dict[int, str]) -> list[answers.Quarantined]:
    return [{"row": row, "reason": reason} for row, reason in sorted(reasons.items())]
