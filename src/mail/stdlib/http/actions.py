"""HTTP requests for agents, to public addresses and those that ``mail.toml`` allows."""

import re
from typing import TYPE_CHECKING, Any, Final

from mail.egress.client import LimitedBody
from mail.errors import ToolError
from mail.stdlib.http.answers import body_text, check_status, head_text
from mail.stdlib.http.requests import exchange
from mail.stdlib.tools import make_action, object_argument, text_argument

if TYPE_CHECKING:
    import httpx

__all__ = [
    "check_headers",
    "http_delete",
    "http_get",
    "http_head",
    "http_options",
    "http_patch",
    "http_post",
    "http_put",
]

_URL: Final[dict[str, Any]] = {
    "type": "string",
    "description": "The full http:// or https:// address",
}
_HEADERS: Final[dict[str, Any]] = {
    "type": "object",
    "description": "Request headers by name",
    "additionalProperties": {"type": "string"},
}
_BODY: Final[dict[str, Any]] = {"type": "object", "description": "The body, sent as JSON"}
_WITHOUT_BODY: Final[dict[str, dict[str, Any]]] = {"url": _URL, "headers": _HEADERS}
_WITH_BODY: Final[dict[str, dict[str, Any]]] = {**_WITHOUT_BODY, "body": _BODY}


async def _http_get(args: dict[str, Any]) -> str:
    """Send an HTTP GET request and return the answer's text."""
    return await _bodiless("GET", args)


async def _http_head(args: dict[str, Any]) -> str:
    """Send an HTTP HEAD request and return the answer's status and headers."""
    return await _bodiless("HEAD", args)


async def _http_options(args: dict[str, Any]) -> str:
    """Send an HTTP OPTIONS request and return the answer's status, headers and text."""
    return await _bodiless("OPTIONS", args)


async def _http_delete(args: dict[str, Any]) -> str:
    """Send an HTTP DELETE request and return the answer's text."""
    return await _bodiless("DELETE", args)


async def _http_post(args: dict[str, Any]) -> str:
    """Send an HTTP POST request with a JSON body and return the answer's text."""
    return await _with_body("POST", args, headers_required=True)


async def _http_put(args: dict[str, Any]) -> str:
    """Send an HTTP PUT request with a JSON body and return the answer's text."""
    return await _with_body("PUT", args, headers_required=True)


async def _http_patch(args: dict[str, Any]) -> str:
    """Send an HTTP PATCH request with a JSON body and return the answer's text."""
    return await _with_body("PATCH", args, headers_required=False)


async def _bodiless(method: str, args: dict[str, Any]) -> str:
    url = text_argument(args, "url")
    headers = check_headers(object_argument(args, "headers", required=False))
    return await exchange(method, url, _shown, headers=headers)


async def _with_body(method: str, args: dict[str, Any], *, headers_required: bool) -> str:
    url = text_argument(args, "url")
    headers = check_headers(object_argument(args, "headers", required=headers_required))
    body = object_argument(args, "body")
    return await exchange(method, url, _shown, headers=headers, body=body)


def _shown(response: "httpx.Response", body: LimitedBody) -> str:
    check_status(response, body)
    text = body_text(response, body)
    if response.request.method not in ("HEAD", "OPTIONS"):
        return text
    return f"{head_text(response)}\n\n{text}" if text else head_text(response)


http_get: Final = make_action(_http_get, _WITHOUT_BODY, ("url",), idempotent=True)
http_head: Final = make_action(_http_head, _WITHOUT_BODY, ("url",), idempotent=True)
http_options: Final = make_action(_http_options, _WITHOUT_BODY, ("url",), idempotent=True)
http_delete: Final = make_action(_http_delete, _WITHOUT_BODY, ("url",))
http_post: Final = make_action(_http_post, _WITH_BODY, ("url", "headers", "body"))
http_put: Final = make_action(_http_put, _WITH_BODY, ("url", "headers", "body"))
http_patch: Final = make_action(_http_patch, _WITH_BODY, ("url", "body"))

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(r"[\t\x20-\x7e]*")
_MAX_CHARACTERS: Final = 16 * 1024
# Where a request goes, where it ends and how its connection is used is not the agent's to say.
_OURS: Final = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "expect",
        "host",
        "http2-settings",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


def check_headers(headers: dict[str, Any]) -> dict[str, str]:
    """Return headers that may go into a request, without blanks around their values.

    Raises:
        ToolError: one is malformed, or not the agent's to set.
    """
    checked: dict[str, str] = {}
    for name, value in headers.items():
        if not isinstance(value, str):
            raise ToolError(f"the header {name!r} must have a string as its value")
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise ToolError(
                f"the header {name!r} contains characters that are not allowed in headers"
            )
        if name.lower() in _OURS or name.lower().startswith("proxy-"):
            raise ToolError(f"the header {name!r} cannot be set; the request determines it")
        if name.lower() in {known.lower() for known in checked}:
            raise ToolError(f"the header {name!r} is set twice")
        checked[name] = value.strip()
    if sum(len(name) + len(value) for name, value in checked.items()) > _MAX_CHARACTERS:
        raise ToolError(f"the headers are longer than {_MAX_CHARACTERS} characters")
    return checked
