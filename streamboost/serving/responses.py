"""Responses: their members, declared once, and the predictions of a model as JSON or Arrow."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict

import pyarrow as pa
from msgspec import Meta
from starlette.responses import Response

from streamboost.live.journal import table_bytes
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
    """Whether the server takes requests."""

    status: Literal["ok", "failing", "starting"]
    rows: Annotated[Count, Meta(description="Rows known to the copy that predicts.")]
    error: NotRequired[str]


class Liveness(TypedDict):
    """Whether the process is of any use."""

    status: Literal["ok", "failing"]
    error: NotRequired[str]
    age_seconds: NotRequired[Annotated[float, Meta(description="Of a replica: since its model was made.")]]
    seen_seconds: NotRequired[Annotated[float, Meta(description="Of a replica: since its learner was seen well.")]]
    learner: NotRequired[Annotated[str, Meta(description="Of a replica: why the learner cannot be read now.")]]


class Error(TypedDict):
    """Why a request was refused."""

    error: Annotated[str, Meta(description="What was wrong, and what to do.")]


DECLARED = (Predictions, Learned, Labelled, Saved, Health, Liveness, Error)


class Predicted(NamedTuple):
    """Predictions of some rows, and for classes the probability of each, where the model has them."""

    predictions: list[Any]
    classes: Sequence[Any] = ()
    probabilities: list[list[float]] | None = None


def predict(copy: ModelCopy, rows: Sequence[Row] | Any) -> Predicted:
    """Predict rows, a list of dicts or an Arrow table; what the model refuses, is refused."""
    model = copy.model
    has_probabilities = hasattr(model, "classes_") and hasattr(model, "predict_proba")
    try:
        is_one = isinstance(rows, list) and len(rows) == 1  # the fastest way for the most frequent request
        predictions = [model.predict_one(rows[0])] if is_one else model.predict(rows).tolist()
        if not has_probabilities:
            return Predicted(predictions)
        if is_one:
            each = model.predict_proba_one(rows[0])
            return Predicted(predictions, list(each), [list(each.values())])
        return Predicted(predictions, model.classes_.tolist(), model.predict_proba(rows).tolist())
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise Refused(422, str(error)) from None


def predictions_json(found: Predicted, copy: ModelCopy, unknown: Sequence[str]) -> Predictions:
    """Return the body of a response."""
    body: Predictions = {"predictions": _finite(found.predictions), "model_rows": copy.rows}
    if found.probabilities is not None:
        names = [_class_name(label) for label in found.classes]
        body["probabilities"] = [dict(zip(names, row, strict=True)) for row in found.probabilities]
    if unknown:
        body["unknown_columns"] = sorted(unknown)
    return body


def predictions_arrow(found: Predicted, copy: ModelCopy, unknown: Sequence[str]) -> bytes:
    """Return the same as an Arrow stream: ``prediction``, and ``probability:LABEL`` for each class."""
    columns = {"prediction": pa.array(_finite(found.predictions))}
    if found.probabilities is not None:
        for label, values in zip(found.classes, zip(*found.probabilities, strict=True), strict=True):
            columns[f"probability:{_class_name(label)}"] = pa.array(values, pa.float64())
    metadata = {"model_rows": str(copy.rows), "unknown_columns": json.dumps(sorted(unknown))}
    return table_bytes(pa.table(columns).replace_schema_metadata(metadata))


def _class_name(label: Any) -> str:
    return label if isinstance(label, str) else json.dumps(label)


def _finite(values: list[Any]) -> list[Any]:
    return [None if isinstance(value, float) and not math.isfinite(value) else value for value in values]


def error_response(sentence: str, status: int, headers: Mapping[str, str] | None = None) -> Response:
    """Return a sentence that says what was wrong."""
    return json_response({"error": sentence}, status, headers)


def json_response(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return JSON in ASCII, so that nothing a client sent cannot be written."""
    return Response(json.dumps(body, allow_nan=False), status, headers, JSON_TYPE)
