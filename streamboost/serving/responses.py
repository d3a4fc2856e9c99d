"""What requests are answered: their members, and what a published model says of rows, as JSON or Arrow have it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict

import pyarrow as pa
from msgspec import Meta
from starlette.responses import Response

from streamboost.serving.arrow_bodies import write_table
from streamboost.serving.errors import Refused
from streamboost.serving.json_bodies import JSON_TYPE, Row, Value
from streamboost.serving.writer import ModelCopy

Count = Annotated[int, Meta(ge=0)]
Probability = Annotated[float, Meta(ge=0, le=1, description="Of every class, where the model has classes.")]
Repeated = Annotated[bool, Meta(description="Whether this id was answered before.")]


class Predictions(TypedDict):
    """Of rows."""

    predictions: list[Value]
    model_rows: Annotated[Count, Meta(description="Rows known to the copy that predicted.")]
    probabilities: NotRequired[list[dict[str, Probability]]]
    unknown_columns: NotRequired[list[str]]


class Quarantined(TypedDict):
    """A row or label that was not learned."""

    row: Annotated[Count, Meta(description="Which, in the request.")]
    reason: str


class Learned(TypedDict):
    """What became of rows."""

    learned: Annotated[Count, Meta(description="Rows learned.")]
    quarantined: list[Quarantined]
    repeated: Repeated


class Labelled(TypedDict):
    """What became of labels."""

    learned: Annotated[Count, Meta(description="Rows learned with their labels.")]
    corrected: Annotated[Count, Meta(description="Rows whose label was another before.")]
    unchanged: Annotated[Count, Meta(description="Rows that had this label already.")]
    early: Annotated[Count, Meta(description="Labels whose row has not come yet; they are kept.")]
    quarantined: list[Quarantined]
    repeated: Repeated


class Saved(TypedDict):
    """A checkpoint."""

    rows: Annotated[Count, Meta(description="Rows learned, all in the checkpoint.")]


class Health(TypedDict):
    """Whether the server is well."""

    status: Literal["ok", "failing"]
    rows: Annotated[Count, Meta(description="Rows known to the copy that predicts.")]
    error: NotRequired[str]


class Error(TypedDict):
    """Why a request was refused."""

    error: Annotated[str, Meta(description="What was wrong, and what to do.")]


DECLARED = (Predictions, Learned, Labelled, Saved, Health, Error)


class Answers(NamedTuple):
    """Predictions of some rows, and for classes the probability of each, where the model has them."""

    predictions: list[Any]
    classes: list[Any]
    probabilities: list[list[float]] | None


def predict(published: ModelCopy, rows: Sequence[Row] | Any) -> Answers:
    """Ask a model about rows, a list of dicts or an Arrow table; what it refuses, is refused."""
    model = published.model
    has_probabilities = hasattr(model, "classes_") and hasattr(model, "predict_proba")
    try:
        if isinstance(rows, list) and len(rows) == 1:  # the fastest way for the most frequent request
            said = model.predict_one(rows[0])
            if not has_probabilities:
                return Answers([said], [], None)
            each = model.predict_proba_one(rows[0])
            return Answers([said], list(each), [list(each.values())])
        predictions = model.predict(rows).tolist()
        if not has_probabilities:
            return Answers(predictions, [], None)
        return Answers(predictions, model.classes_.tolist(), model.predict_proba(rows).tolist())
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise Refused(422, str(error)) from None


def name_of(label: Any) -> str:
    """A class as a name of a JSON object."""
    return label if isinstance(label, str) else json.dumps(label)


def as_json(answers: Answers, published: ModelCopy, unknown: Sequence[str]) -> Predictions:
    """The body of an answer."""
    body: Predictions = {"predictions": _finite(answers.predictions), "model_rows": published.rows}
    if answers.probabilities is not None:
        names = [name_of(label) for label in answers.classes]
        body["probabilities"] = [dict(zip(names, row, strict=True)) for row in answers.probabilities]
    if unknown:
        body["unknown_columns"] = sorted(unknown)
    return body


def as_arrow(answers: Answers, published: ModelCopy, unknown: Sequence[str]) -> bytes:
    """The same as an Arrow stream: ``prediction``, and ``probability:LABEL`` for each class."""
    columns: dict[str, Any] = {"prediction": pa.array(_finite(answers.predictions))}
    if answers.probabilities is not None:
        for label, values in zip(answers.classes, zip(*answers.probabilities, strict=True), strict=True):
            columns[f"probability:{name_of(label)}"] = pa.array(values, pa.float64())
    facts = {"model_rows": str(published.rows), "unknown_columns": json.dumps(sorted(unknown))}
    return write_table(columns, facts)


def _finite(values: list[Any]) -> list[Any]:
    return [None if isinstance(value, float) and not math.isfinite(value) else value for value in values]


def answer(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """JSON in ASCII, so that nothing a client sent cannot be written."""
    return Response(json.dumps(body, allow_nan=False), status, headers, JSON_TYPE)
