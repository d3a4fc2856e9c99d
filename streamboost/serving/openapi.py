"""The OpenAPI document: every path and every status. What bodies and responses hold comes from their declarations."""

from __future__ import annotations

from typing import Any

from msgspec.json import schema_components

from streamboost import __version__
from streamboost.dashboard.assets import FILES
from streamboost.serving import json_bodies, responses
from streamboost.serving.arrow_bodies import ARROW_TYPE
from streamboost.serving.errors import Limits
from streamboost.serving.json_bodies import JSON_TYPE

Document = dict[str, Any]

ERRORS = {
    400: "The body cannot be read, or the Host header is of somewhere else.",
    401: "The token is missing or not known.",
    403: "The token may not do this, or a page of another site asks for it.",
    404: "There is nothing at this path.",
    405: "The path does not know the method; the header Allow tells which it knows.",
    408: "The body did not come in time.",
    409: "The model has not learned any row yet; or it is frozen, and learns no more.",
    413: "The body is too large, or there are too many rows.",
    415: "The body is of a type that is not taken, or compressed.",
    422: "The body was read, but cannot be taken.",
    503: "Too much is waiting, or it could not be written down. Nothing was taken.",
}
ERROR_HEADERS = {401: "WWW-Authenticate", 405: "Allow", 503: "Retry-After"}
OPEN_ERRORS = (400, 405)
READ_ERRORS = (400, 401, 403, 405)
BODY_ERRORS = (400, 401, 403, 405, 408, 409, 413, 415, 422, 503)
FILE_TYPES = ("text/css", "text/html", "text/javascript", "image/svg+xml", "text/plain")
ARROW = {ARROW_TYPE: {"schema": {"type": "string", "contentMediaType": ARROW_TYPE}}}
DESCRIPTIONS = {  # of operations whose summary does not say it all
    "predict": "Predict rows. Rows with keys are kept until their labels come (POST /label), and are taken before "
    "anything was learned too: predictions are null then. A request that is sent again with its id does not let "
    "its rows wait again. Columns the model does not know are left out and named.",
    "learn": "Learn rows in their order. The answer comes when they are durable. Rows that cannot be learned "
    "are kept apart and named with the reason. A request with an id is learned once, however often it is sent.",
    "label": "Labels of rows that were predicted with a key, in any order, early, late or corrected. An "
    "Arrow body has a column of keys and one called like the target.",
    "checkpoint": "Not needed for safety, as all that was answered is durable; a start is faster after it.",
}
SCHEMES = {
    "token": {"type": "http", "scheme": "bearer", "description": "A line of the token file."},
    "basic": {"type": "http", "scheme": "basic", "description": "The same token as a password, any name."},
}


def document(limits: Limits, has_tokens: bool) -> Document:
    """Describe a server with these limits."""
    paths = {**_writing(limits), **_reading()}
    if not has_tokens:
        for operation in (operation for path in paths.values() for operation in path.values()):
            operation.pop("security", None)
    told = (
        "A model that learns from a stream, and predicts meanwhile. Every error is an object with one sentence that "
        "says what was wrong, what was expected and what to do; nothing was changed then."
    )
    license = {"name": "BSD-3-Clause", "identifier": "BSD-3-Clause"}
    errors: Document = {}
    for status, error in ERRORS.items():
        headers = {ERROR_HEADERS[status]: {"schema": {"type": "string"}}} if status in ERROR_HEADERS else {}
        errors[f"Error{status}"] = {"description": error, "content": _json("Error"), "headers": headers}
    return {
        "openapi": "3.1.0",
        "info": {"title": "streamboost", "version": __version__, "description": told, "license": license},
        "paths": paths,
        "components": {"schemas": _schemas(limits), "responses": errors, "securitySchemes": SCHEMES},
    }


def _schemas(limits: Limits) -> Document:
    kinds = [*json_bodies.declare(limits).values(), *responses.DECLARED]
    _, schemas = schema_components(kinds, ref_template="#/components/schemas/{name}")
    for schema in schemas.values():
        schema["additionalProperties"] = False
    for name in ("Rows", "LabelledRows"):
        schemas[name]["oneOf"] = [{"required": ["rows"]}, {"required": ["row"]}]
    return schemas | {"Model": {"type": "object", "required": ["kind", "task", "rows", "columns", "target"]}}


def _writing(limits: Limits) -> Document:
    id = _parameter("id", "Of this request, if the body has none.", limits.id_length)
    key = _parameter("key", "Of an Arrow body: the column of keys; of labels, 'key' if absent.", limits.name_length)
    row = {"size": 3.5, "color": "red"}
    predict = _with_body([key, id], "Rows", {"rows": [row], "keys": ["order 1"], "id": "a0"})
    learn = _with_body([id], "LabelledRows", {"rows": [row], "targets": [7], "id": "a1"})
    label = _with_body([id, key], "Labels", {"labels": [{"key": "order 1", "target": 7}], "id": "a2"})
    operations = (
        _operation("predict", "Predict rows", _json("Predictions") | ARROW, BODY_ERRORS, "predict", **predict),
        _operation("learn", "Learn rows", _json("Learned"), BODY_ERRORS, "learn", **learn),
        _operation("label", "Give rows their labels", _json("Labelled"), BODY_ERRORS, "learn", **label),
        _operation("checkpoint", "Write a checkpoint now", _json("Saved"), (*READ_ERRORS, 409, 503), "admin"),
    )
    return {f"/{operation['operationId']}": {"post": operation} for operation in operations}


def _reading() -> Document:
    events = "How the model stands, as server-sent events: a history, then each observation."
    anything, told = {JSON_TYPE: {"schema": {"type": "object"}}}, "A file of the dashboard."
    file = {"name": "file", "in": "path", "required": True, "schema": {"enum": sorted(FILES)}}
    given = "The model that predicts, without a row it has learned, for replicas; 304 if its ETag is known."
    files = _text(*FILE_TYPES)
    operations = {
        "/model": _operation("model", "What the model is.", _json("Model"), READ_ERRORS, "predict"),
        "/frozen": _operation("frozen", given, _text("application/octet-stream"), (*READ_ERRORS, 409), "predict"),
        "/metrics": _operation("metrics", "Numbers, for Prometheus.", _text("text/plain"), READ_ERRORS, "predict"),
        "/events": _operation("events", events, _text("text/event-stream"), READ_ERRORS, "predict"),
        "/livez": _operation("livez", "Whether the process is of any use.", _json("Liveness"), OPEN_ERRORS),
        "/readyz": _operation("readyz", "Whether the server takes requests.", _json("Health"), OPEN_ERRORS),
        "/healthz": _operation("health", "The same as /readyz.", _json("Health"), OPEN_ERRORS),
        "/openapi.json": _operation("openapi", "This document.", anything, OPEN_ERRORS),
        "/docs": _operation("docs", "This document, as a page.", _text("text/html"), OPEN_ERRORS),
        "/": _operation("dashboard", "The dashboard.", _text("text/html"), READ_ERRORS, "predict"),
        "/dashboard/{file}": _operation("dashboard_file", told, files, (*OPEN_ERRORS, 404), parameters=[file]),
    }
    operations["/frozen"]["responses"]["304"] = {"description": "It is the one that was asked about."}
    for path, schema in {"/livez": "Liveness", "/readyz": "Health", "/healthz": "Health"}.items():
        operations[path]["responses"]["503"] = {"description": "It is not.", "content": _json(schema)}
    return {path: {"get": operation} for path, operation in operations.items()}


def _operation(
    name: str, summary: str, content: Document, errors: tuple[int, ...], scope: str | None = None, **more: Any
) -> Document:
    """Describe what a request does, and the scope that its token needs."""
    described = {"description": DESCRIPTIONS[name]} if name in DESCRIPTIONS else {}
    security = {"security": [{scheme: [scope]} for scheme in SCHEMES]} if scope else {}
    answers = {"200": {"description": "The answer.", "content": content}}
    answers |= {str(status): {"$ref": f"#/components/responses/Error{status}"} for status in sorted(errors)}
    return {"operationId": name, "summary": summary, **described, **more, **security, "responses": answers}


def _with_body(parameters: list[Document], schema: str, example: Document) -> Document:
    content = {JSON_TYPE: {**_json(schema)[JSON_TYPE], "example": example}, **ARROW}
    return {"parameters": parameters, "requestBody": {"required": True, "content": content}}


def _json(schema: str) -> Document:
    return {JSON_TYPE: {"schema": {"$ref": f"#/components/schemas/{schema}"}}}


def _text(*kinds: str) -> Document:
    return {kind: {"schema": {"type": "string"}} for kind in kinds}


def _parameter(name: str, told: str, longest: int) -> Document:
    schema = {"type": "string", "minLength": 1, "maxLength": longest}
    return {"name": name, "in": "query", "description": told, "required": False, "schema": schema}
