"""What a published model says of rows, as JSON or Arrow have it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from starlette.responses import Response

from streamboost.serving.arrow_bodies import ARROW_TYPE, write_table
from streamboost.serving.bodies import JSON_TYPE, Row
from streamboost.serving.refusals import Refused
from streamboost.serving.writer import Published


class Answers(NamedTuple):
    """Predictions of some rows, and for classes the probability of each, where the model has them."""

    predictions: list[Any]
    classes: list[Any]
    probabilities: list[list[float]] | None


def predict(published: Published, rows: Sequence[Row] | Any) -> Answers:
    """Ask a model about rows, a list of dicts or an Arrow table; what it refuses, is refused."""
    model = published.model
    has_classes = hasattr(model, "classes_")
    try:
        if isinstance(rows, list) and len(rows) == 1:  # the fastest way for the most frequent request
            said = model.predict_one(rows[0])
            if has_classes and hasattr(model, "predict_proba"):
                each = model.predict_proba_one(rows[0])
                return Answers([said], list(each), [list(each.values())])
            return Answers([said], [], None)
        predictions = model.predict(rows).tolist()
        if has_classes and hasattr(model, "predict_proba"):
            return Answers(predictions, model.classes_.tolist(), model.predict_proba(rows).tolist())
        return Answers(predictions, [], None)
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise Refused(422, str(error)) from None


def no_answers(n: int) -> Answers:
    """What a model says that has learned nothing yet."""
    return Answers([None] * n, [], None)


def name_of(label: Any) -> str:
    """A class as a name of a JSON object."""
    return label if isinstance(label, str) else json.dumps(label)


def as_json(answers: Answers, published: Published, unknown: Sequence[str]) -> dict[str, Any]:
    """The body of an answer."""
    body: dict[str, Any] = {"predictions": _finite(answers.predictions), "model_rows": published.rows}
    if answers.probabilities is not None:
        names = [name_of(label) for label in answers.classes]
        body["probabilities"] = [dict(zip(names, row, strict=True)) for row in answers.probabilities]
    if unknown:
        body["unknown_columns"] = sorted(unknown)
    return body


def as_arrow(answers: Answers, published: Published, unknown: Sequence[str]) -> bytes:
    """The same as an Arrow stream: ``prediction``, and ``probability:LABEL`` for each class."""
    columns: dict[str, Any] = {"prediction": pa.array(_finite(answers.predictions))}
    if answers.probabilities is not None:
        for label, values in zip(answers.classes, zip(*answers.probabilities, strict=True), strict=True):
            columns[f"probability:{name_of(label)}"] = pa.array(values, pa.float64())
    facts = {"model_rows": str(published.rows), "unknown_columns": json.dumps(sorted(unknown))}
    return write_table(columns, facts)


def _finite(values: list[Any]) -> list[Any]:
    return [None if isinstance(value, float) and not math.isfinite(value) else value for value in values]


def answer(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """JSON in ASCII, so that nothing a client sent cannot be written."""
    return Response(json.dumps(body, allow_nan=False), status, headers, JSON_TYPE)


def arrow_answer(body: bytes) -> Response:
    """An Arrow stream."""
    return Response(body, media_type=ARROW_TYPE)
