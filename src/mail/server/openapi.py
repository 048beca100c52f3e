"""The OpenAPI document, which FastAPI makes from the routes, and what routes say for it.

The document is the same for every server. ``spec/openapi.yaml`` is what `OpenAPIDocument.as_yaml`
returns; ``make openapi`` writes it.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from fastapi import APIRouter
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter

from mail.net.types import ErrorAnswer, OpenAIErrorAnswer, StreamEvent
from mail.server.exchange import REQUEST_ID
from mail.server.idempotency import REPLAYED
from mail.version import get_protocol_version, get_version

TAGS: Final[Mapping[str, str]] = {
    "messages": "Post messages to the swarm.",
    "tasks": "Read, follow and cancel your tasks. Another caller's task is a 404.",
    "approvals": "Calls of agents that wait for a person.",
    "desk": "Messages, threads and files of the swarm's participants.",
    "teams": "Messages between the members of a team, for participants.",
    "memories": "Named memories of the caller, such as preferences, and what they learn.",
    "server": "The server, its health and its version.",
    "swarms": "The swarm that is served, and the registry of other swarms.",
    "interswarm": "Mail between this swarm and others.",
    "outbox": "Mail for other swarms that is not done with.",
    "webhook": "What the webhook is still to be told.",
    "openai": "The swarm as a model, for OpenAI's SDK.",
    "tokens": "The caller, and the built-in token authority, in the format that servers expect.",
}
"""Tag to its description, in the order of the document."""

EVENT_STREAM: Final[Mapping[int | str, dict[str, Any]]] = {
    200: {
        "content": {"text/event-stream": {"schema": {"$ref": "#/components/schemas/StreamEvent"}}}
    }
}
"""The answer of a route that streams. Its schema is that of each event."""

_ERRORS: Final[Mapping[int, tuple[str, str]]] = {
    400: ("BadRequest", "The request is wrong; `errors` has one entry per wrong field."),
    401: ("Unauthorized", "There is no token, or it is not valid."),
    402: ("BudgetUsedUp", "The task has used up its budget of tokens or money."),
    403: ("Forbidden", "The token's role may not do this."),
    404: (
        "NotFound",
        "There is no such task, memory, message, thread, file or approval of the caller's, no such "
        "team or teammate, no such swarm, no such mail, or no such route.",
    ),
    405: ("MethodNotAllowed", "The path does not support the method; no operation answers this."),
    408: ("BodyTooSlow", "The rest of the body did not arrive."),
    409: (
        "Conflict",
        "The task is paused and was not resumed, a breakpoint call already has a result, a memory "
        "has another version, or the `Idempotency-Key` or `request_id` was used with another body.",
    ),
    410: ("KeyOfDeletedTask", "The `Idempotency-Key` stands for a task that was deleted."),
    413: ("BodyTooLarge", "The body is larger than the server accepts."),
    414: ("TargetTooLong", "The path and the query are longer than 8 KiB."),
    415: ("BodyCompressed", "The body is compressed."),
    429: (
        "TooMuch",
        "The caller has too many requests, tasks or streams at once, or sends requests too fast.",
    ),
    431: ("HeadersTooLarge", "The headers are larger than the server accepts."),
    500: ("Fault", "An error in the server; search the log for `request_id`."),
    502: (
        "RunFailed",
        "The run failed, or another swarm's server did; `detail` is the reason.",
    ),
    503: (
        "Unavailable",
        "The server is shutting down or at its limit, or its store or token "
        "authority does not answer.",
    ),
    504: ("RunTooLong", "The time to wait is over; the task continues."),
    507: (
        "StorageFull",
        "The caller stores as much as one caller may, or the server has no room for a file.",
    ),
}
"""Status to the name and the description of the error in the OpenAPI document."""

RETRY_LATER: Final[Mapping[str, Any]] = {
    "Retry-After": {
        "required": True,
        "description": "Seconds to wait before trying again.",
        "schema": {"type": "integer", "minimum": 0},
    }
}
"""The description of the header that says so."""

_HEADERS: Final[Mapping[str, dict[str, Any]]] = {
    "X-Request-ID": {
        "required": True,
        "description": "Identifies the request in the server's log. Taken from the request if "
        "its value is 1 to "
        "128 letters, digits, dots, dashes and underscores; otherwise generated.",
        "schema": {"type": "string", "pattern": f"^{REQUEST_ID.pattern}$"},
    },
    REPLAYED: {
        "description": "This is the first answer to an earlier request with the same "
        "`Idempotency-Key`.",
        "schema": {"type": "string", "const": "true"},
    },
}
_AUTHENTICATE: Final = {
    "WWW-Authenticate": {
        "required": True,
        "description": "How to authenticate.",
        "schema": {"type": "string", "const": "Bearer"},
    }
}
_ALLOW: Final = {
    "Allow": {
        "required": True,
        "description": "The methods that the path supports.",
        "schema": {"type": "string"},
    }
}
_HEADERS_OF: Final[Mapping[int, Mapping[str, Any]]] = {
    401: _AUTHENTICATE,
    405: _ALLOW,
    429: RETRY_LATER,
    503: RETRY_LATER,
}
_RESPONSES: Final = "#/components/responses/"
_PREFIX_OF: Final = {"ErrorAnswer": "", "OpenAIErrorAnswer": "OpenAI"}
"""Schema of errors to what the names of such answers begin with."""

_OF_422: Final = frozenset({"HTTPValidationError", "ValidationError"})
_OF_RUNS: Final = frozenset({402, 502})
"""Answers about runs: a repeat of the request gets them again."""


class OpenAPIDocument:
    """The document of some routers. It is made when it is first asked for.

    Args:
        routers: Every router that a server can have.
    """

    def __init__(self, routers: Sequence[APIRouter]) -> None:
        self._routers = routers

    @cached_property
    def content(self) -> dict[str, Any]:
        """The document as an object."""
        made = get_openapi(
            title="MAIL",
            version=get_version(),
            summary="Multi-Agent Interface Layer: talk to a swarm of agents.",
            description=_introduction(),
            license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
            servers=[{"url": "/"}],
            tags=[{"name": name, "description": text} for name, text in TAGS.items()],
            routes=[route for router in self._routers for route in router.routes],
        )
        for item in made["paths"].values():
            for operation in item.values():
                _tidy_operation(operation)
        parts = made["components"]
        schemas = {**parts["schemas"], **_further_schemas()}
        parts["schemas"] = {
            name: _untitled(schemas[name]) for name in sorted(schemas) if name not in _OF_422
        }
        parts["responses"] = _error_responses(made["paths"])
        parts["headers"] = dict(_HEADERS)
        return made

    @cached_property
    def as_json(self) -> bytes:
        """The document as JSON."""
        return json.dumps(self.content, ensure_ascii=False).encode()

    @cached_property
    def as_yaml(self) -> bytes:
        """The document as YAML."""
        import yaml

        class Plain(yaml.SafeDumper):
            """No anchors: every part is written where it belongs."""

            def ignore_aliases(self, data: Any) -> bool:
                return True

            def represent_str(self, data: str) -> Any:
                style = "|" if "\n" in data else None
                return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)

        Plain.add_representer(str, Plain.represent_str)
        text = yaml.dump(self.content, Dumper=Plain, sort_keys=False, allow_unicode=True, width=100)
        return f"# Written by 'make openapi'; do not edit.\n{text}".encode()


def errors(*statuses: int, schema: str = "ErrorAnswer") -> dict[int | str, dict[str, Any]]:
    """Say which errors a route can answer with, for its ``responses=``.

    Args:
        statuses: Their statuses.
        schema: The schema of the answers.
    """
    return {
        status: {
            "$ref": f"{_RESPONSES}{_PREFIX_OF[schema]}{_ERRORS[status][0]}",
            "description": _ERRORS[status][1],
        }
        for status in statuses
    }


def answer_headers(*, repeated: bool) -> dict[str, Any]:
    """Describe the headers of an answer; ``repeated`` when a repeat of the request gets it, too."""
    names = ("X-Request-ID", REPLAYED) if repeated else ("X-Request-ID",)
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _introduction() -> str:
    return (
        f"The HTTP API of a MAIL server, protocol {get_protocol_version()}.\n\n"
        "Bodies are JSON objects in UTF-8, whatever their `Content-Type` says. A field that is not "
        "listed is ignored, unless its name is close to one that is: the answer is then 400 and "
        "names both. Every error has the shape `ErrorAnswer`, and under `/v1` `OpenAIErrorAnswer`. "
        "In addition to what the operations list, a path that does not exist is answered with 404, "
        "and a method that a path does not have with 405 and `Allow`. The roles that may call an "
        "operation are in its description and in `x-mail-roles`; an empty list means everybody, "
        "without a token."
    )


def _tidy_operation(operation: dict[str, Any]) -> None:
    """Take out what FastAPI says and this server does not do, and what it says twice."""
    responses = operation["responses"]
    responses.pop("422", None)  # wrong requests are 400
    operation["responses"] = {status: _untitled(responses[status]) for status in sorted(responses)}
    for parameter in operation.get("parameters", ()):
        schema = _untitled(parameter["schema"])
        schema.pop("description", None)  # it is the parameter's own
        choices = [each for each in schema.pop("anyOf", ()) if each != {"type": "null"}]
        parameter["schema"] = {**choices[0], **schema} if choices else schema


def _untitled(node: Any) -> Any:
    """Return a schema without the titles that pydantic makes of names."""
    if isinstance(node, list):
        return [_untitled(each) for each in node]
    if not isinstance(node, dict):
        return node
    return {
        name: _untitled(value)
        for name, value in node.items()
        if name != "title" or not isinstance(value, str)
    }


def _further_schemas() -> dict[str, Any]:
    """Return the schemas of answers that no route returns as its model."""
    adapter = TypeAdapter[Any](tuple[ErrorAnswer, OpenAIErrorAnswer, StreamEvent])
    made = adapter.json_schema(ref_template="#/components/schemas/{model}")
    found: dict[str, Any] = made["$defs"]
    return found


def _error_responses(paths: Mapping[str, Any]) -> dict[str, Any]:
    """Return the error answers that operations refer to, and that of a wrong method."""
    said = (operation["responses"] for item in paths.values() for operation in item.values())
    used = {answer.get("$ref") for answers in said for answer in answers.values()}
    used.add(f"{_RESPONSES}{_ERRORS[405][0]}")
    return {
        prefix + name: _response(status, schema)
        for schema, prefix in _PREFIX_OF.items()
        for status, (name, _) in _ERRORS.items()
        if f"{_RESPONSES}{prefix}{name}" in used
    }


def _response(status: int, schema: str) -> dict[str, Any]:
    return {
        "description": _ERRORS[status][1],
        "headers": {**answer_headers(repeated=status in _OF_RUNS), **_HEADERS_OF.get(status, {})},
        "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}},
    }
