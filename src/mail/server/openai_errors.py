"""Errors of ``/responses`` in the shape that OpenAI's SDK reads.

``{"error": {"message", "type", "param", "code"}, "detail"}``; ``detail`` is there for our own
clients. A run that was accepted is not tried again by the SDK: that would be a second task.
"""

import json
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from mail.errors import AlreadyAnswered, MAILError, ShuttingDown, TaskFailed, TaskPaused
from mail.responses_api.problems import NoSuchResponse
from mail.server.errors import KeyReused, mail_error_response, status_of
from mail.server.routing import MAILRoute

__all__ = ["OpenAIRoute", "openai_error_response"]

_STATUS: Final[Mapping[type[MAILError], int]] = {
    NoSuchResponse: 404,
    TaskPaused: 400,  # the SDK repeats a 409 by itself
    AlreadyAnswered: 400,
}
_TYPES: Final[Mapping[int, tuple[str, str | None]]] = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    402: ("insufficient_quota", "insufficient_quota"),
    403: ("permission_error", "insufficient_permissions"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
}
"""Status to the ``type`` and ``code`` of the error."""

_INTERNAL: Final = 500


class OpenAIRoute(MAILRoute):
    """A route whose errors have OpenAI's shape, those of its dependencies included."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler; see `APIRoute.get_route_handler`."""
        handler = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handler(request)
            except MAILError as error:
                return openai_error_response(error)

        return answer


def openai_error_response(error: MAILError) -> JSONResponse:
    """Make the answer for an error of ours.

    Raises:
        MAILError: the error itself, when no table foresees it.
    """
    plain = mail_error_response(error)  # its headers, and its text without what is not for callers
    status = next((_STATUS[cls] for cls in type(error).__mro__ if cls in _STATUS), None)
    status = status_of(error) if status is None else status
    usual = "server_error" if status >= _INTERNAL else "invalid_request_error"
    kind, code = _TYPES.get(status, (usual, None))
    message = _detail(plain)
    content = {
        "error": {
            "message": message,
            "type": kind,
            "param": getattr(error, "param", None),
            "code": getattr(error, "code", None) or code,
        },
        "detail": message,
    }
    kept = ("www-authenticate", "retry-after", "connection")
    headers = {name: plain.headers[name] for name in kept if name in plain.headers}
    begun = isinstance(error, TaskFailed | ShuttingDown) and getattr(error, "task_id", None)
    if begun or isinstance(error, KeyReused):
        headers["x-should-retry"] = "false"
    return JSONResponse(content, status, headers)


def _detail(response: JSONResponse) -> str:
    return str(json.loads(bytes(response.body))["detail"])
