"""Errors of ``/v1/…`` and ``/responses`` in the shape that OpenAI's SDK reads.

``{"error": {"message", "type", "param", "code"}, "detail"}``; ``detail`` is there for our own
clients. A run that was accepted is not tried again by the SDK: that would be a second task.
"""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from fastapi.exceptions import RequestValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from mail.errors import AlreadyAnswered, MAILError, ShuttingDown, TaskFailed, TaskPaused
from mail.responses_api.items import NoSuchModel, NoSuchResponse
from mail.server.errors import KeyReused, as_refusal, mail_error_response
from mail.server.openapi import errors
from mail.server.routing import Handler, MAILRoute

_STATUS: Final[Mapping[type[MAILError], int]] = {
    NoSuchModel: 404,
    NoSuchResponse: 404,
    TaskPaused: 400,  # the SDK repeats a 409 by itself
    AlreadyAnswered: 400,
}
_TYPES: Final[Mapping[int, tuple[str, str | None]]] = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    402: ("insufficient_quota", "insufficient_quota"),
    403: ("permission_error", "insufficient_permissions"),
    404: ("invalid_request_error", "not_found"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
}
"""Status to the ``type`` and ``code`` of the error."""

PREFIX: Final = "/v1/"
"""Where every error has this shape, also that there is no such route."""

_KEPT: Final = ("allow", "www-authenticate", "retry-after", "connection")
_INTERNAL: Final = 500


class OpenAIRoute(MAILRoute):
    """A route whose errors have OpenAI's shape, those of its dependencies included."""

    error_schema = "OpenAIErrorAnswer"
    foreign = True

    def guarded(self, handler: Handler) -> Handler:
        """Return a handler that answers to every error."""

        async def answer(request: Request) -> Response:
            try:
                return await handler(request)
            except RequestValidationError as error:
                return openai_error_response(as_refusal(error))
            except MAILError as error:
                return openai_error_response(error)

        return answer


def openai_errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Say which errors a route can answer with, for its ``responses=``; see `OpenAIRoute`."""
    return errors(*statuses, schema="OpenAIErrorAnswer")


def openai_error_response(error: MAILError) -> JSONResponse:
    """Make the answer for an error of ours.

    Raises:
        MAILError: the error itself, when no table foresees it.
    """
    plain = mail_error_response(error)  # its headers, and its text without what is not for callers
    status = next((_STATUS[cls] for cls in type(error).__mro__ if cls in _STATUS), None)
    begun = isinstance(error, TaskFailed | ShuttingDown) and getattr(error, "task_id", None)
    final = bool(begun) or isinstance(error, KeyReused)
    return _shaped(
        plain,
        plain.status_code if status is None else status,
        param=getattr(error, "param", None),
        code=getattr(error, "code", None),
        headers={"x-should-retry": "false"} if final else {},
    )


def shaped_for_path(path: str, plain: JSONResponse) -> JSONResponse:
    """Return an error answer in the shape that clients of its path expect."""
    return _shaped(plain, plain.status_code) if path.startswith(PREFIX) else plain


def _shaped(
    plain: JSONResponse,
    status: int,
    *,
    param: str | None = None,
    code: str | None = None,
    headers: Mapping[str, str] = MappingProxyType({}),
) -> JSONResponse:
    usual = "server_error" if status >= _INTERNAL else "invalid_request_error"
    kind, usual_code = _TYPES.get(status, (usual, None))
    message = str(json.loads(bytes(plain.body))["detail"])
    error = {"message": message, "type": kind, "param": param, "code": code or usual_code}
    kept = {name: plain.headers[name] for name in _KEPT if name in plain.headers}
    return JSONResponse({"error": error, "detail": message}, status, {**kept, **headers})
