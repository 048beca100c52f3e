"""Exceptions over HTTP: one table, and the one shape of every error answer.

``{"detail": str, "errors": [{"field", "problem"}]}``, with ``task_id`` where there is a task to
come back to, and ``request_id`` where the cause is only in the log.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Match
from starlette.types import ExceptionHandler

from mail.core.schema import problems_in
from mail.errors import (
    AuthUnavailable,
    BudgetExceeded,
    ClaimLost,
    ConfigError,
    Conflict,
    DeskError,
    Forbidden,
    MAILError,
    ModelError,
    NotFound,
    NotOfTeam,
    PeerUnreachable,
    ProtocolError,
    RoutingError,
    ShuttingDown,
    StoreError,
    StoreFull,
    TaskError,
    TaskFailed,
    TaskTimeout,
    TeamError,
    TeamsDisabled,
    Unauthenticated,
)
from mail.server.bodies import refusal

RETRY_AFTER: Final = "5"
"""Seconds after which a client may try again."""


class BodyTooLarge(MAILError):
    """The request's body is larger than the server takes."""


class BodyTooSlow(MAILError):
    """The request's body stopped coming."""


class BadEncoding(MAILError):
    """The request's body is compressed."""


class HeadersTooLarge(MAILError):
    """The request's headers are larger than the server takes."""


class TargetTooLong(MAILError):
    """The request's path with its query is longer than the server takes."""


class KeyReused(MAILError):
    """The idempotency key stands for another request."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"Idempotency-Key '{key}' was used for a different request; repeat that request "
            "unchanged, or use a new key"
        )


class KeyOfDeletedTask(MAILError):
    """The idempotency key stands for a request whose task was deleted."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"the task of the request with Idempotency-Key '{key}' was deleted; to send the "
            "message again, use a new key"
        )


class StorageFull(MAILError):
    """The caller stores as much as one caller may."""


class QuotaExceeded(MAILError):
    """The caller has as much of something as one caller gets; others are served.

    Args:
        retry_after: Seconds after which it may try again.
    """

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ServerBusy(MAILError):
    """The server has as much work as it takes on at once."""


STATUS_OF: Final[Mapping[type[MAILError], int]] = {
    ProtocolError: 400,
    TaskError: 400,
    DeskError: 400,
    TeamError: 400,
    ConfigError: 400,
    PeerUnreachable: 400,
    RoutingError: 502,
    Unauthenticated: 401,
    BudgetExceeded: 402,
    Forbidden: 403,
    TeamsDisabled: 403,
    NotOfTeam: 403,
    NotFound: 404,
    BodyTooSlow: 408,
    Conflict: 409,
    KeyReused: 409,
    KeyOfDeletedTask: 410,
    BodyTooLarge: 413,
    BadEncoding: 415,
    QuotaExceeded: 429,
    HeadersTooLarge: 431,
    TargetTooLong: 414,
    TaskFailed: 502,
    ModelError: 502,
    AuthUnavailable: 503,
    ServerBusy: 503,
    ShuttingDown: 503,
    StoreError: 503,
    TaskTimeout: 504,
    StorageFull: 507,
    StoreFull: 507,
}
"""Exception to status. The nearest class in an exception's ancestry decides."""

_HIDDEN: Final[Mapping[type[MAILError], str]] = {
    ClaimLost: "another server works on the task by now; nothing was accepted",
    StoreError: "the store is not available; nothing was accepted",
    StoreFull: "the server has no room for the file; nothing was stored",
}
"""Exceptions whose own text is for the log, not for callers."""

_UNAVAILABLE: Final = 503
_BODY_UNREAD: Final = frozenset({408, 413, 415, 431})
"""Answers given while the body may still be coming: the connection ends with them."""
_INTERNAL: Final = 500
_WRONG_METHOD: Final = 405
_WORDS: Final[Mapping[int, str]] = {404: "not found", _WRONG_METHOD: "method not allowed"}


def status_of(error: MAILError) -> int:
    """Return the status for an error; 500 for one that is not in the table."""
    return next((STATUS_OF[cls] for cls in type(error).__mro__ if cls in STATUS_OF), _INTERNAL)


def error_response(
    status: int,
    detail: str,
    errors: Sequence[Mapping[str, str]] = (),
    *,
    headers: Mapping[str, str] | None = None,
    **more: str | None,
) -> JSONResponse:
    """Make an error answer.

    Args:
        status: The HTTP status; 401 and 503 get their headers here.
        detail: The fault, and the change that mends it.
        errors: One entry per wrong field.
        headers: Further headers.
        more: Further fields; those that are None are left out.
    """
    content: dict[str, Any] = {"detail": detail, "errors": [dict(item) for item in errors]}
    content.update({name: value for name, value in more.items() if value is not None})
    extra = dict(headers or {})
    if status == STATUS_OF[Unauthenticated]:
        extra.setdefault("WWW-Authenticate", "Bearer")
    if status == _UNAVAILABLE:
        extra.setdefault("Retry-After", RETRY_AFTER)
    if status in _BODY_UNREAD:
        extra.setdefault("Connection", "close")
    return JSONResponse(content, status, extra)


def as_it_is(path: str, response: JSONResponse) -> JSONResponse:
    """Return an error answer in the shape that it has."""
    return response


def install_error_handlers(
    app: FastAPI,
    shape: Callable[[str, JSONResponse], JSONResponse] = as_it_is,
) -> None:
    """Make the application answer every foreseen exception in the one shape.

    What nobody foresaw is answered by `mail.server.middleware`, which also logs it.

    Args:
        app: The application.
        shape: Gives the answer the shape that clients of its path expect.
    """

    def shaped(answer: Callable[[Request, Exception], JSONResponse]) -> ExceptionHandler:
        async def handle(request: Request, error: Exception) -> JSONResponse:
            return shape(request.scope["path"], answer(request, error))

        return handle

    app.add_exception_handler(MAILError, shaped(_mail_error))
    app.add_exception_handler(HTTPException, shaped(_http_error))
    app.add_exception_handler(RequestValidationError, shaped(_validation_error))


def as_refusal(error: RequestValidationError) -> ProtocolError:
    """Return what FastAPI found wrong with a request as an error of ours."""
    items = [{**item, "loc": item["loc"][1:]} for item in error.errors()]  # without "body", "query"
    return refusal(problems_in(items))


def mail_error_response(error: MAILError) -> JSONResponse:
    """Make the answer for an error of ours.

    Raises:
        MAILError: the error itself, when the table does not foresee it.
    """
    status = status_of(error)
    if status == _INTERNAL:
        raise error
    hidden = next((_HIDDEN[cls] for cls in type(error).__mro__ if cls in _HIDDEN), None)
    return error_response(
        status,
        hidden or str(error),
        getattr(error, "problems", ()),
        headers=_retry_after(error),
        task_id=getattr(error, "task_id", None),
        code=error.code,
    )


def _retry_after(error: MAILError) -> dict[str, str] | None:
    return {"Retry-After": str(error.retry_after)} if isinstance(error, QuotaExceeded) else None


def _mail_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, MAILError)  # noqa: S101 - how it was registered
    return mail_error_response(error)


def _http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)  # noqa: S101 - how it was registered
    detail = _WORDS.get(error.status_code, str(error.detail))
    headers = error.headers
    if error.status_code == _WRONG_METHOD:
        headers = {"Allow": ", ".join(_methods_at(request))}
    return error_response(error.status_code, detail, headers=headers)


def _methods_at(request: Request) -> list[str]:
    """Return the methods of the path that a request names, from all of its routes."""
    routes = [route for route in request.app.routes if isinstance(route, APIRoute)]
    found = (route.path for route in routes if route.matches(request.scope)[0] is not Match.NONE)
    path = next(found, None)
    methods = {m for route in routes if route.path == path for m in route.methods or ()}
    return sorted(methods | ({"HEAD"} if "GET" in methods else set()))


def _validation_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - how it was registered
    return mail_error_response(as_refusal(error))
