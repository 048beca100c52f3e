"""The parts of the OpenAPI document that operations share: parameters and error answers."""

from collections.abc import Mapping
from typing import Any, Final

from mail.server.idempotency import HEADER, KEY, REPLAYED
from mail.server.middleware import REQUEST_ID
from mail.server.openapi.schemas import reference
from mail.server.openapi.words import TASK_ID
from mail.server.routes.tasks import MAX_PAGE
from mail.server.streams import MAX_EVENT_ID_DIGITS

__all__ = [
    "HEADERS",
    "HEALTH_503",
    "PARAMETERS",
    "RESPONSES",
    "answer_headers",
    "response_name",
]

_TASK_ID: Final = {"type": "string", **TASK_ID}
_EVENT_ID: Final = {"type": "string", "pattern": f"^[0-9]{{0,{MAX_EVENT_ID_DIGITS}}}$"}

PARAMETERS: Final[Mapping[str, dict[str, Any]]] = {
    "task_id_path": {
        "name": "task_id",
        "in": "path",
        "required": True,
        "description": "Which task. A slash in it may be written as it is or as `%2F`.",
        "schema": _TASK_ID,
    },
    "task_id_query": {
        "name": "task_id",
        "in": "query",
        "required": True,
        "description": "Which task.",
        "schema": _TASK_ID,
    },
    "limit": {
        "name": "limit",
        "in": "query",
        "description": "The size of a page; 100 when only `cursor` is given.",
        "schema": {"type": "integer", "minimum": 1, "maximum": MAX_PAGE},
    },
    "cursor": {
        "name": "cursor",
        "in": "query",
        "description": "Where the page begins: `next_cursor` of the page before. It is the id of "
        "a task; one that names no task of the caller's is 400.",
        "schema": _TASK_ID,
    },
    "after": {
        "name": "after",
        "in": "query",
        "description": "The number of the last event that is known already. `Last-Event-ID` wins.",
        "schema": _EVENT_ID,
    },
    "last_event_id": {
        "name": "Last-Event-ID",
        "in": "header",
        "description": "The number of the last event that arrived; readers that reconnect by "
        "themselves send it.",
        "schema": _EVENT_ID,
    },
    "idempotency_key": {
        "name": HEADER,
        "in": "header",
        "description": "Names this request, 1 to 255 visible ASCII characters of the caller's "
        "choice. When it is sent again with the same key and body, the first answer comes again "
        "and nothing is done twice, also after a restart; with another body it is 409. A stream is "
        "repeated from the beginning, or after the event that `Last-Event-ID` names.",
        "schema": {"type": "string", "pattern": f"^{KEY.pattern}$"},
    },
}

HEADERS: Final[Mapping[str, dict[str, Any]]] = {
    "X-Request-ID": {
        "required": True,
        "description": "Finds the request in the server's log: what the request said under this "
        "name, if that is 1 to 128 letters, digits, dots, dashes and underscores; else made up.",
        "schema": {"type": "string", "pattern": f"^{REQUEST_ID.pattern}$"},
    },
    REPLAYED: {
        "description": "This is the first answer to a request that came before, with the same "
        "`Idempotency-Key`.",
        "schema": {"type": "string", "const": "true"},
    },
}
_REQUEST_ID: Final = {"X-Request-ID": {"$ref": "#/components/headers/X-Request-ID"}}
_REPLAYED: Final = {REPLAYED: {"$ref": f"#/components/headers/{REPLAYED}"}}
_ERROR: Final = {"application/json": {"schema": reference("ErrorAnswer")}}
_RETRY_AFTER: Final = {
    "Retry-After": {
        "required": True,
        "description": "Seconds after which a further try makes sense.",
        "schema": {"type": "integer", "minimum": 0},
    }
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
        "description": "The methods that the path has.",
        "schema": {"type": "string"},
    }
}
_OF_RUNS: Final = frozenset({402, 502})
"""Answers about runs: a repeat of the request gets them again."""
_HEADERS: Final[Mapping[int, dict[str, Any]]] = {
    401: _AUTHENTICATE,
    405: _ALLOW,
    429: _RETRY_AFTER,
    503: _RETRY_AFTER,
}

_ERRORS: Final[Mapping[int, tuple[str, str]]] = {
    400: ("BadRequest", "The request is wrong; `errors` has one entry per wrong field."),
    401: ("Unauthorized", "No token, or one that does not hold."),
    402: ("BudgetUsedUp", "The task has used up its tokens or its money."),
    403: ("Forbidden", "The token's role may not do this."),
    404: ("NotFound", "No such task of the caller's, or this server does not have the route."),
    405: ("MethodNotAllowed", "The path does not have the method; no operation answers this."),
    408: ("BodyTooSlow", "The rest of the body did not arrive."),
    409: (
        "Conflict",
        "The task is paused and was not resumed, a breakpoint call already has a result, or the "
        "`Idempotency-Key` came before with another body.",
    ),
    413: ("BodyTooLarge", "The body is larger than the server takes."),
    415: ("BodyCompressed", "The body is compressed."),
    429: ("TooMuch", "Too much at once, or too fast, for one caller."),
    431: ("HeadersTooLarge", "The headers are larger than the server takes."),
    500: ("Fault", "A fault of the server; `request_id` finds it in the log."),
    502: ("RunFailed", "The run failed; `detail` is the reason."),
    503: (
        "Unavailable",
        "The server stops or is full, or its store or token authority does not answer.",
    ),
    504: ("RunTooLong", "The time to wait is over; the task goes on."),
}


def answer_headers(*, repeated: bool) -> dict[str, Any]:
    """Return the headers of an answer; ``repeated`` when it can be that to a repeated request."""
    return {**_REQUEST_ID, **(_REPLAYED if repeated else {})}


def response_name(status: int) -> str:
    """Return the name of the component that describes an error status."""
    return _ERRORS[status][0]


def _response(status: int) -> dict[str, Any]:
    return {
        "description": _ERRORS[status][1],
        "headers": answer_headers(repeated=status in _OF_RUNS) | _HEADERS.get(status, {}),
        "content": _ERROR,
    }


RESPONSES: Final = {response_name(status): _response(status) for status in _ERRORS}

HEALTH_503: Final = {
    "description": "The server drains.",
    "headers": answer_headers(repeated=False) | _RETRY_AFTER,
    "content": {"application/json": {"schema": reference("GetHealthResponse")}},
}
"""``GET /health`` of a server that stops."""
