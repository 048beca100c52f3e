"""Which other origins' pages may call the server from a browser: those that are named, or none.

Credentials here are bearer tokens that a page's own code sends, never cookies, so the answers never
allow credentials in the sense of CORS.
"""

from collections.abc import Sequence
from typing import Final

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from mail.server.errors import error_response

_METHODS: Final = ("GET", "POST", "DELETE")
_REQUEST_HEADERS: Final = ("Authorization", "Idempotency-Key", "Last-Event-ID", "X-Request-ID")
_ANSWER_HEADERS: Final = ("Idempotency-Replayed", "Retry-After", "X-Request-ID")
_RULES: Final = (
    "cors_origins in mail.toml lists the allowed origins; their pages may use "
    f"{', '.join(_METHODS)}, "
    f"and send {', '.join(_REQUEST_HEADERS)}"
)


class Cors:
    """The rules for pages of other origins.

    Args:
        origins: Exact origins, such as ``https://app.example.org``.
    """

    def __init__(self, origins: Sequence[str]) -> None:
        self._rules = CORSMiddleware(
            _nowhere,
            allow_origins=tuple(origins),
            allow_methods=_METHODS,
            allow_headers=_REQUEST_HEADERS,
            expose_headers=_ANSWER_HEADERS,
        )

    def asks(self, scope: Scope, headers: Headers) -> bool:
        """Tell whether a request only asks what a page may do (a preflight; it has no token)."""
        preflight = "origin" in headers and "access-control-request-method" in headers
        return preflight and scope["method"] == "OPTIONS"

    def answer(self, headers: Headers) -> Response:
        """Make the answer to such a request."""
        response = self._rules.preflight_response(headers)
        if response.status_code < 400:
            return response
        return error_response(
            response.status_code,
            f"{bytes(response.body).decode()}: {_RULES}",
            headers={"Vary": response.headers["Vary"]},
        )

    async def send(self, message: Message, send: Send, request_headers: Headers) -> None:
        """Send a part of any answer, with the headers that let a named origin's page read it."""
        await self._rules.send(message, send, request_headers)


async def _nowhere(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError("only the rules are used")
