"""The OpenAPI document: every path, every answer."""

from __future__ import annotations

from typing import Any

from streamboost import __version__
from streamboost.dashboard.files import FILES
from streamboost.serving.arrow_bodies import ARROW_TYPE
from streamboost.serving.bodies import JSON_TYPE
from streamboost.serving.refusals import Limits

Document = dict[str, Any]

ERRORS = {
    400: "The body cannot be read, or the Host header is of somewhere else.",
    401: "The token is missing or not known.",
    403: "The token may not do this, or a page of another site asks for it.",
    404: "There is nothing at this path.",
    405: "The path does not know the method; the header Allow tells which it knows.",
    408: "The body did not come in time.",
    409: "The model has not learned any row yet.",
    413: "The body is too large, or there are too many rows.",
    415: "The body is of a type that is not taken, or compressed.",
    422: "The body was read, but cannot be taken.",
    503: "Too much is waiting, or it could not be written down. Nothing was taken.",
}
BODY_ERRORS = (400, 401, 403, 405, 408, 413, 415, 422, 503)
ARROW_BODY = {"schema": {"type": "string", "contentMediaType": ARROW_TYPE}}


def document(limits: Limits, has_tokens: bool) -> Document:
    """Describe a server with these limits.

    Examples
    --------
    >>> sorted(document(Limits(), has_tokens=True)["paths"])[:4]
    ['/', '/checkpoint', '/dashboard/{file}', '/events']
    """
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "streamboost",
            "version": __version__,
            "description": "A model that learns from a stream, and predicts meanwhile. Every error is an object with "
            "one sentence that says what was wrong, what was expected and what to do; nothing was changed then.",
            "license": {"name": "BSD-3-Clause", "identifier": "BSD-3-Clause"},
        },
        "paths": _paths(limits, has_tokens),
        "components": {
            "schemas": _schemas(limits),
            "responses": {f"Error{status}": _error(status, told) for status, told in ERRORS.items()},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "A line of the token file."},
                "basic": {"type": "http", "scheme": "basic", "description": "The same token as a password, any name."},
            },
        },
    }


def _paths(limits: Limits, has_tokens: bool) -> Document:
    def secured(operation: Document, scope: str) -> Document:
        """What a token is needed for, with its scope."""
        return operation | {"security": [{"token": [scope]}, {"basic": [scope]}]} if has_tokens else operation

    return {
        "/predict": {"post": secured(_predict(limits), "predict")},
        "/learn": {"post": secured(_learn(limits), "learn")},
        "/label": {"post": secured(_label(limits), "learn")},
        "/checkpoint": {"post": secured(_checkpoint(), "admin")},
        "/model": {"get": secured(_get("model", "What the model is.", _json("Model")), "predict")},
        "/metrics": {
            "get": secured(
                _get("metrics", "Numbers, for Prometheus.", {"text/plain": {"schema": {"type": "string"}}}),
                "predict",
            )
        },
        "/events": {
            "get": secured(
                _get(
                    "events",
                    "How the model stands, as server-sent events: a history, then each observation.",
                    {"text/event-stream": {"schema": {"type": "string"}}},
                ),
                "predict",
            )
        },
        "/healthz": {"get": _health()},
        "/openapi.json": {
            "get": _get("openapi", "This document.", {JSON_TYPE: {"schema": {"type": "object"}}}, errors=(400, 405))
        },
        "/": {"get": secured(_page(), "predict")},
        "/dashboard/{file}": {"get": _file()},
    }


# Operations.


def _predict(limits: Limits) -> Document:
    told = (
        "Predict rows. Rows with keys are kept until their labels come (POST /label), and are taken before anything "
        "was learned too: predictions are null then. A request that is sent again with its id does not let its rows "
        "wait again. Columns the model does not know are left out and named."
    )
    answer = {
        **_json("Predictions"),
        ARROW_TYPE: {"schema": {"type": "string", "contentMediaType": ARROW_TYPE}},
    }
    return {
        "operationId": "predict",
        "summary": "Predict rows",
        "description": told,
        "parameters": [
            _parameter("key", "Of an Arrow body: the column that holds the keys.", limits.name_length),
            _parameter("id", "Of this request, if the body has none.", limits.id_length),
        ],
        "requestBody": _body("Rows", {"rows": [{"size": 3.5, "color": "red"}], "keys": ["order 1"], "id": "a0"}),
        "responses": _answers("The predictions.", answer, (*BODY_ERRORS, 409)),
    }


def _learn(limits: Limits) -> Document:
    return {
        "operationId": "learn",
        "summary": "Learn rows",
        "description": "Learn rows in their order. The answer comes when they are durable. Rows that cannot be learned "
        "are kept apart and named with the reason. A request with an id is learned once, however often it is sent.",
        "parameters": [_parameter("id", "Of this request, if the body has none.", limits.id_length)],
        "requestBody": _body("LabelledRows", {"rows": [{"size": 3.5, "color": "red"}], "targets": [7], "id": "a1"}),
        "responses": _answers("The rows were taken.", _json("Learned"), BODY_ERRORS),
    }


def _label(limits: Limits) -> Document:
    return {
        "operationId": "label",
        "summary": "Give rows their labels",
        "description": "Labels of rows that were predicted with a key, in any order, early, late or corrected. An "
        "Arrow body has a column of keys and one called like the target.",
        "parameters": [
            _parameter("id", "Of this request, if the body has none.", limits.id_length),
            _parameter("key", "Of an Arrow body: the column that holds the keys, if not 'key'.", limits.name_length),
        ],
        "requestBody": _body("Labels", {"labels": [{"key": "order 1", "target": 7}], "id": "a2"}),
        "responses": _answers("The labels were taken.", _json("Labelled"), BODY_ERRORS),
    }


def _checkpoint() -> Document:
    answer = {JSON_TYPE: {"schema": _object({"rows": _count("Rows learned, all in the checkpoint.")})}}
    return {
        "operationId": "checkpoint",
        "summary": "Write a checkpoint now",
        "description": "Not needed for safety, as all that was answered is durable; a start is faster after it.",
        "responses": _answers("The checkpoint is durable.", answer, (400, 401, 403, 405, 503)),
    }


def _health() -> Document:
    state = {
        "status": {"enum": ["ok", "failing"]},
        "rows": _count("Rows known to the copy that predicts."),
        "error": {"type": "string"},
    }
    content = {JSON_TYPE: {"schema": _object(state, required=("status", "rows"))}}
    operation = _get("health", "Whether the server is well.", content, errors=(400, 405))
    operation["responses"]["503"] = {"description": "It is not.", "content": content}
    return operation


def _page() -> Document:
    operation = _get("dashboard", "The dashboard.", {"text/html": {"schema": {"type": "string"}}})
    operation["responses"]["304"] = {"description": "As the browser has it already."}
    return operation


def _file() -> Document:
    content = {kind: {"schema": {"type": "string"}} for kind in FILE_TYPES}
    operation = _get("dashboard_file", "A file of the dashboard.", content, errors=(400, 404, 405))
    operation["parameters"] = [{"name": "file", "in": "path", "required": True, "schema": {"enum": sorted(FILES)}}]
    operation["responses"]["304"] = {"description": "As the browser has it already."}
    return operation


FILE_TYPES = ("text/css", "text/html", "text/javascript", "image/svg+xml", "text/plain")


def _get(name: str, summary: str, content: Document, errors: tuple[int, ...] = (400, 401, 403, 405)) -> Document:
    return {"operationId": name, "summary": summary, "responses": _answers("The answer.", content, errors)}


def _answers(told: str, content: Document, errors: tuple[int, ...]) -> Document:
    return {"200": {"description": told, "content": content}, **_errors(errors)}


def _errors(statuses: tuple[int, ...]) -> Document:
    return {str(status): {"$ref": f"#/components/responses/Error{status}"} for status in sorted(statuses)}


def _error(status: int, told: str) -> Document:
    response: Document = {"description": told, "content": _json("Error")}
    headers = {401: "WWW-Authenticate", 405: "Allow", 503: "Retry-After"}
    if status in headers:
        response["headers"] = {headers[status]: {"schema": {"type": "string"}}}
    return response


def _body(schema: str, example: Document) -> Document:
    return {
        "required": True,
        "content": {JSON_TYPE: _json(schema)[JSON_TYPE] | {"example": example}, ARROW_TYPE: ARROW_BODY},
    }


def _json(schema: str) -> Document:
    return {JSON_TYPE: {"schema": {"$ref": f"#/components/schemas/{schema}"}}}


def _parameter(name: str, told: str, longest: int) -> Document:
    schema = {"type": "string", "minLength": 1, "maxLength": longest}
    return {"name": name, "in": "query", "description": told, "required": False, "schema": schema}


# Schemas.


def _schemas(limits: Limits) -> Document:
    key = {"type": "string", "minLength": 1, "maxLength": limits.key_length}
    id = {"type": "string", "minLength": 1, "maxLength": limits.id_length, "description": "Of this request."}
    target = {"type": ["number", "string", "boolean", "null"], "description": "A number or a class; null is refused."}
    row = {
        "type": "object",
        "description": "A flat row: columns and their values; null or absent is missing.",
        "additionalProperties": {"type": ["number", "string", "boolean", "null"]},
        "propertyNames": {"minLength": 1, "maxLength": limits.name_length},
        "maxProperties": limits.columns,
    }
    rows = {"type": "array", "items": {"$ref": "#/components/schemas/Row"}, "minItems": 1, "maxItems": limits.rows}
    many = {"minItems": 1, "maxItems": limits.rows}
    one = {"$ref": "#/components/schemas/Row"}
    keys = {"type": "array", "items": key, "uniqueItems": True, "description": "One a row.", **many}
    targets = {"type": "array", "items": target, "description": "One a row, if not in the rows.", **many}
    either = {"oneOf": [{"required": ["rows"]}, {"required": ["row"]}]}
    label = _object({"key": key, "target": target})
    quarantined = _object({"row": _count("Which, in the request."), "reason": {"type": "string"}})
    value = {"type": ["number", "string", "boolean", "null"]}
    return {
        "Row": row,
        "Rows": _object({"rows": rows, "row": one, "keys": keys, "id": id}, required=()) | either,
        "LabelledRows": _object({"rows": rows, "row": one, "targets": targets, "id": id}, required=()) | either,
        "Labels": _object({"labels": {"type": "array", "items": label, **many}, "id": id}, required=("labels",)),
        "Predictions": _object(
            {
                "predictions": {"type": "array", "items": value},
                "probabilities": {
                    "type": "array",
                    "items": {"type": "object", "additionalProperties": {"type": "number", "minimum": 0, "maximum": 1}},
                    "description": "Of every class, where the model has classes.",
                },
                "model_rows": _count("Rows known to the copy that predicted."),
                "unknown_columns": {"type": "array", "items": {"type": "string"}},
            },
            required=("predictions", "model_rows"),
        ),
        "Learned": _object(
            {
                "learned": _count("Rows learned."),
                "quarantined": {"type": "array", "items": quarantined},
                "repeated": {"type": "boolean", "description": "Whether this id was answered before."},
            }
        ),
        "Labelled": _object(
            {
                "learned": _count("Rows learned with their labels."),
                "corrected": _count("Rows whose label was another before."),
                "unchanged": _count("Rows that had this label already."),
                "early": _count("Labels whose row has not come yet; they are kept."),
                "quarantined": {"type": "array", "items": quarantined},
                "repeated": {"type": "boolean", "description": "Whether this id was answered before."},
            }
        ),
        "Model": {"type": "object", "required": ["kind", "task", "rows", "columns", "target"]},
        "Error": _object({"error": {"type": "string", "description": "What was wrong, and what to do."}}),
    }


def _object(properties: Document, required: tuple[str, ...] | None = None) -> Document:
    names = list(properties) if required is None else list(required)
    return {"type": "object", "properties": properties, "additionalProperties": False} | (
        {"required": names} if names else {}
    )


def _count(told: str) -> Document:
    return {"type": "integer", "minimum": 0, "description": told}
