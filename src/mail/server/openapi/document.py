"""The OpenAPI document: one for every configuration, the same bytes every time.

It is made from the routes themselves (path, method, roles), the types of bodies and answers, and
the words in `mail.server.openapi.operations` and `mail.server.openapi.texts`. ``spec/openapi.yaml``
is what `as_yaml` returns; ``make openapi`` writes it.
"""

import json
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final

from fastapi import FastAPI
from fastapi.routing import APIRoute

from mail.server.deps import audience_of
from mail.server.middleware import ALWAYS_ANSWERED
from mail.server.openapi.operations import OPERATIONS, TAGS, Operation
from mail.server.openapi.parts import (
    HEADERS,
    HEALTH_503,
    PARAMETERS,
    RESPONSES,
    answer_headers,
    response_name,
)
from mail.server.openapi.schemas import component_schemas, reference
from mail.version import get_protocol_version, get_version

__all__ = ["as_json", "as_yaml", "described_routes", "document"]

_EVERY: Final = frozenset({415, 431, 500})
_CALLER: Final = frozenset({401, 403, 429, 503})
_POSTED: Final = frozenset({400, 408, 409, 413, 503})
_STREAM: Final = "text/event-stream"
_JSON: Final = "application/json"


@cache
def as_yaml() -> bytes:
    """Return the document as YAML."""
    import yaml

    class Plain(yaml.SafeDumper):
        """No anchors: every part is written where it belongs."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

        def represent_str(self, data: str) -> Any:
            style = "|" if "\n" in data else None
            return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)

    Plain.add_representer(str, Plain.represent_str)
    text: str = yaml.dump(document(), Dumper=Plain, sort_keys=False, allow_unicode=True, width=100)
    return f"# Written by 'make openapi'; do not edit.\n{text}".encode()


@cache
def as_json() -> bytes:
    """Return the same document as JSON."""
    return json.dumps(document(), ensure_ascii=False).encode()


def document() -> dict[str, Any]:
    """Make the document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "MAIL",
            "version": get_version(),
            "summary": "Multi-Agent Interface Layer: talk to a swarm of agents.",
            "description": _introduction(),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": text} for name, text in TAGS.items()],
        "paths": _paths(),
        "components": {
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token of `mail token create` or of the external authority. "
                    "It says who calls: a role and an id.",
                }
            },
            "parameters": PARAMETERS,
            "headers": HEADERS,
            "responses": RESPONSES,
            "schemas": component_schemas(),
        },
    }


def described_routes() -> list[APIRoute]:
    """Return the routes of the document: every one that a server can have, except hidden ones."""
    from mail.server.routes import auth, description, identity, messages, root, swarms, tasks

    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    for module in (root, description, identity, messages, tasks, swarms, auth):
        module.add_routes(app)
    return [r for r in app.routes if isinstance(r, APIRoute) and r.include_in_schema]


def _introduction() -> str:
    return (
        f"The HTTP surface of a MAIL server, protocol {get_protocol_version()}.\n\n"
        "Bodies are JSON objects in UTF-8, whatever their `Content-Type` says. Every error has "
        "the shape `ErrorAnswer`. Beside what the operations list, a path that does not exist is "
        "answered with 404, and a method that a path does not have with 405 and `Allow`, both in "
        "that shape. Which roles may call an operation is said in its description and in "
        "`x-mail-roles`; an empty list means anybody, without a token."
    )


def _paths() -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for route in described_routes():
        path = route.path.replace(":path}", "}")
        for method in sorted(route.methods or ()):
            paths.setdefault(path, {})[method.lower()] = _operation(route, method)
    return paths


def _operation(route: APIRoute, method: str) -> dict[str, Any]:
    said = OPERATIONS[route.endpoint.__name__]
    audience = audience_of(route)
    roles = sorted(audience.roles) if audience else []
    who = f"For {' and '.join(f'`{role}`' for role in roles)}." if roles else "For anybody."
    operation: dict[str, Any] = {
        "tags": [said.tag],
        "operationId": route.endpoint.__name__,
        "summary": said.summary,
        "description": f"{who} {said.text}".strip(),
        "x-mail-roles": roles,
        "security": [{"bearer": []}] if roles else [],
    }
    parameters = [*said.parameters, *(["idempotency_key"] if method == "POST" else [])]
    if parameters:
        operation["parameters"] = [
            {"$ref": f"#/components/parameters/{name}"} for name in parameters
        ]
    if said.body:
        body = {_JSON: {"schema": reference(said.body)}}
        operation["requestBody"] = {"required": True, "content": body}
    operation["responses"] = _responses(route, method, said, roles)
    return operation


def _responses(
    route: APIRoute, method: str, said: Operation, roles: Iterable[str]
) -> dict[str, Any]:
    statuses = set(said.statuses) | _EVERY
    if roles:
        statuses |= _CALLER
    if method == "POST":
        statuses |= _POSTED
    if route.path not in ALWAYS_ANSWERED:
        statuses.add(503)
    headers = answer_headers(repeated=method == "POST")
    done = {"description": "Done.", "headers": headers, "content": _content(said)}
    responses: dict[str, Any] = {"200": done}
    for status in sorted(statuses):
        name = response_name(status)
        responses[str(status)] = {"$ref": f"#/components/responses/{name}"}
    if route.endpoint.__name__ == "health":
        responses["503"] = HEALTH_503
    return responses


def _content(said: Operation) -> Mapping[str, Any]:
    content: dict[str, Any] = {}
    if said.media:
        content[said.media] = {"schema": {"type": "object", "description": "This document."}}
    choices = [_shape(name) for name in said.answer]
    if choices:
        content[_JSON] = {"schema": choices[0] if len(choices) == 1 else {"anyOf": choices}}
    if said.stream:
        # OpenAPI 3.1 has no word for the parts of a stream: the schema is that of each event.
        content[_STREAM] = {"schema": reference("StreamEvent")}
    return content


def _shape(name: str) -> dict[str, Any]:
    if not name.startswith("{"):
        return reference(name)
    return {
        "type": "object",
        "description": "Objects by their id.",
        "additionalProperties": reference(name.strip("{}")),
    }
