"""The page of ``/docs``: the OpenAPI document, for people. It needs no script and nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
from collections.abc import Sequence
from html import escape
from typing import Any

from streamboost.serving.json_bodies import JSON_TYPE

Document = dict[str, Any]

BASE = "http://server.invalid"  # stands for where the server is reached, until it is asked
STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
section { border-top: 1px solid #8885; margin-top: 1.5rem; }
h2 { font-size: 1.1rem; } h2 b, code, pre { font-family: ui-monospace, monospace; }
h2 b { color: #c2410c; margin-right: .5rem; } h2 span { font-weight: normal; opacity: .8; margin-left: .75rem; }
pre { background: #8882; padding: .6rem .8rem; border-radius: .4rem; white-space: pre-wrap; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; margin: .5rem 0; }
th, td { text-align: left; vertical-align: top; padding: .2rem .8rem .2rem 0; border-bottom: 1px solid #8883; }
th { font-weight: 600; } td:nth-child(-n+2) { width: 16rem; } summary { cursor: pointer; }
"""
DIGEST = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = f"default-src 'none'; style-src 'sha256-{DIGEST}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


def render(document: Document) -> str:
    """Return the page; where it names the server, it says :data:`BASE`."""
    info, has_tokens = document["info"], any("security" in one for _, _, one in _operations(document))
    token = "Send a token: <code>Authorization: Bearer TOKEN</code>." if has_tokens else "No token is needed here."
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>{escape(info['title'])}: its requests</title><style>{STYLE}</style>",
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{escape(info['description'])}</p>",
        f"<p>{token} For machines: <a href='/openapi.json'>/openapi.json</a>.</p>",
        *(_operation(document, *one) for one in _operations(document)),
        "<h1>What bodies hold</h1>",
        *(_schema(name, schema) for name, schema in document["components"]["schemas"].items()),
    ]
    return "\n".join(parts)


def _operations(document: Document) -> list[tuple[str, str, Document]]:
    paths = document["paths"].items()
    return [(path, method, operation) for path, methods in paths for method, operation in methods.items()]


def _operation(document: Document, path: str, method: str, one: Document) -> str:
    scope = next((scopes[0] for kind in one.get("security", ())[:1] for scopes in kind.values()), None)
    needs = f"<p>The token needs the scope <code>{scope}</code>.</p>" if scope else ""
    parameters = [
        (f"{each['name']} ({each['in']})", _kind(each["schema"]), escape(each.get("description", "")))
        for each in one.get("parameters", ())
    ]
    answers = [(status, *_answer(document, answer)) for status, answer in one["responses"].items()]
    body = one.get("requestBody", {}).get("content", {})
    bodies = [(escape(kind), _kind(content["schema"]), "") for kind, content in body.items()]
    return (
        f"<section><h2 id='{one['operationId']}'><b>{method.upper()}</b>{escape(path)}<span>"
        f"{escape(one['summary'])}</span></h2><p>{escape(one.get('description', ''))}</p>{needs}"
        f"<pre>{escape(_curl(path, method, one))}</pre>"
        + _table(("parameter", "value", ""), parameters)
        + _table(("body", "holds", ""), bodies)
        + f"<details><summary>Answers</summary>{_table(('status', 'holds', ''), answers)}</details></section>"
    )


def _answer(document: Document, answer: Document) -> tuple[str, str]:
    if "$ref" in answer:
        answer = document["components"]["responses"][answer["$ref"].rpartition("/")[2]]
    kinds = dict.fromkeys(
        _kind(content["schema"]) if kind == JSON_TYPE else escape(kind)
        for kind, content in answer.get("content", {}).items()
    )
    return ", ".join(kinds), escape(answer["description"])


def _curl(path: str, method: str, one: Document) -> str:
    """Return a line to try it with."""
    words = ["curl"] if method == "get" else ["curl", "-X", method.upper()]
    for each in one.get("parameters", ()):
        if each["in"] == "path":
            path = path.replace(f"{{{each['name']}}}", each["schema"]["enum"][0])
    words.append(BASE + path)
    token = ["-H", '"Authorization: Bearer $TOKEN"'] if "security" in one else []
    example = one.get("requestBody", {}).get("content", {}).get(JSON_TYPE, {}).get("example")
    body = [] if example is None else ["-H", f"'Content-Type: {JSON_TYPE}'", "-d", shlex.quote(json.dumps(example))]
    return " ".join([*words, *token, *body])


def _schema(name: str, schema: Document) -> str:
    required = schema.get("required", ())
    rows = [
        (escape(each) + ("" if each in required else " (optional)"), _kind(one), escape(one.get("description", "")))
        for each, one in schema.get("properties", {}).items()
    ]
    told = escape(schema.get("description", ""))
    return f"<section><h2 id='schema-{name}'>{name}</h2><p>{told}</p>{_table(('member', 'value', ''), rows)}</section>"


def _kind(schema: Document) -> str:
    """Return in words what a value may be, with a link where it has a section of its own."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"<a href='#schema-{name}'>{name}</a>"
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(map(_kind, choices)))
    if "enum" in schema:
        return escape(", ".join(map(str, schema["enum"])))
    kind = "bytes" if "contentMediaType" in schema else schema.get("type", "anything")
    if kind == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_kind(schema['additionalProperties'])}"
    return " or ".join(map(escape, kind)) if isinstance(kind, list) else escape(str(kind))


def _table(headings: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Return a table of what is HTML already; nothing if there are no rows."""
    if not rows:
        return ""
    head = "".join(f"<th>{heading}</th>" for heading in headings)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"
