"""The OpenAPI document, made of the same declarations as the routes."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, TypeAlias

import msgspec

from mica.format.documents import EVENTS
from mica.web.operations import JSON, Nothing, Operation, is_list
from mica.web.problems import MEDIA_TYPE, Problem

Schema: TypeAlias = dict[str, Any]
REFERENCES = "#/components/schemas/{name}"
SPACE: Schema = {
    "name": "space",
    "in": "query",
    "description": "The space that is meant; without it the only one of the token, else the server's own.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200},
}
LAST_ID: Schema = {
    "name": "Last-Event-ID",
    "in": "header",
    "description": "The `id` of the last event that came: it goes on there, whatever `after` says.",
    "schema": {"type": "integer", "minimum": 0},
}


def described(operations: Sequence[Operation]) -> Schema:
    """The whole document."""
    kinds = [operation.answer for operation in operations] + [operation.asked for operation in operations] + [Problem]
    schemas, components = msgspec.json.schema_components(kinds, schema_hook=_anything, ref_template=REFERENCES)
    answers, asked = schemas[: len(operations)], schemas[len(operations) : -1]
    paths: dict[str, Schema] = {}
    for operation, answer, ask in zip(operations, answers, asked, strict=True):
        told = _operation(operation, answer, ask, components)
        paths.setdefault(f"/api{operation.path}", {})[operation.method.lower()] = told
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "mica",
            "version": version("mica"),
            "description": (
                "Layered memory and context for AI agents: the verbs of the command line over HTTP. "
                "/api/gateway is a WebSocket, with subscriptions: docs/server.md has what is said there."
            ),
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _anything(kind: type) -> Schema:
    """The schema of what may be anything."""
    if kind is object:
        return {"description": "Anything that JSON can say."}
    raise NotImplementedError


def _operation(operation: Operation, answer: Schema, ask: Schema, components: Schema) -> Schema:
    text = inspect.getdoc(operation.does) or ""
    summary, _, more = text.partition("\n\n")
    told: Schema = {
        "operationId": operation.name,
        "summary": summary,
        "tags": [operation.tag],
        "parameters": [*_parameters(operation, ask, components), *([SPACE] if operation.of_space else [])],
        "responses": {
            "200": {"description": "Done.", "content": {operation.media_type: {"schema": answer}}},
            "default": {
                "description": "Why it was not done.",
                "content": {MEDIA_TYPE: {"schema": {"$ref": REFERENCES.format(name="Problem")}}},
            },
        },
    }
    if operation.media_type == EVENTS:
        told["parameters"].append(LAST_ID)
    elif operation.method == "GET" and operation.media_type == JSON:
        told["responses"]["304"] = {"description": "As it was: its ETag is the one of If-None-Match."}
    if more:
        told["description"] = more
    if operation.method == "POST" and operation.asked is not Nothing:
        told["requestBody"] = {"required": True, "content": {JSON: {"schema": _body(operation, ask, components)}}}
    return told


def _fields(ask: Schema, components: Schema) -> Schema:
    """The schema of what is asked, itself."""
    found = components[ask["$ref"].rpartition("/")[2]]
    assert isinstance(found, dict)
    return found


def _parameters(operation: Operation, ask: Schema, components: Schema) -> list[Schema]:
    schema = _fields(ask, components)
    found: list[Schema] = []
    for field in msgspec.structs.fields(operation.asked):
        name = field.encode_name
        in_path = name in operation.parts
        if not in_path and operation.method != "GET":
            continue
        parameter: Schema = {
            "name": name,
            "in": "path" if in_path else "query",
            "required": in_path or name in schema.get("required", ()),
            "schema": {key: value for key, value in schema["properties"][name].items() if key != "default"},
        }
        if not in_path and is_list(field.type):
            parameter |= {"style": "form", "explode": True}
        found.append(parameter)
    return found


def _body(operation: Operation, ask: Schema, components: Schema) -> Schema:
    if not operation.parts:
        return ask
    schema = _fields(ask, components)
    rest = {name: told for name, told in schema["properties"].items() if name not in operation.parts}
    required = [name for name in schema.get("required", ()) if name not in operation.parts]
    return {"type": "object", "properties": rest, "required": required, "additionalProperties": False}
