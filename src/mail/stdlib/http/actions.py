"""HTTP requests for agents, to public addresses and those that ``mail.toml`` allows."""

import codecs
import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from mail.egress.client import LimitedBody
from mail.errors import ToolError
from mail.stdlib.http.requests import exchange
from mail.stdlib.tools import make_action, object_argument, text_argument

if TYPE_CHECKING:
    import httpx

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


_TEXT_TYPES: Final = frozenset(
    {
        "",
        "application/ecmascript",
        "application/graphql",
        "application/javascript",
        "application/json",
        "application/ndjson",
        "application/sql",
        "application/toml",
        "application/x-ndjson",
        "application/x-sh",
        "application/x-www-form-urlencoded",
        "application/x-yaml",
        "application/xml",
        "application/yaml",
    }
)
_UNFIT: Final = frozenset({"idna", "punycode", "raw-unicode-escape", "unicode-escape", "undefined"})
_SHOWN_OF_ERROR: Final = 2000


def body_text(response: "httpx.Response", body: LimitedBody) -> str:
    """Return a body as text, cut off with a note when it was too long; describe a binary one."""
    kind = _content_type(response)
    if body.data and not _is_text(kind, body.data):
        size = f"{len(body.data)} bytes" if body.complete else f"over {len(body.data)} bytes"
        return f"[binary answer: {kind or 'of unknown type'}, {size}]"
    text = _decoded(response, body)
    if body.complete:
        return text
    return f"{text}\n\n[cut off here: the answer is longer than {len(body.data)} bytes]"


def head_text(response: "httpx.Response") -> str:
    """Return the status and the headers of an answer, one a line."""
    lines = [f"{name}: {value}" for name, value in response.headers.items()]
    return "\n".join([_status(response), *lines])


def check_status(response: "httpx.Response", body: LimitedBody) -> None:
    """Check that the server did what it was asked to.

    Raises:
        ToolError: it did not; with the status, and the beginning of what the server says.
    """
    if response.is_success:
        return
    said = body_text(response, body).strip()
    if len(said) > _SHOWN_OF_ERROR:
        said = said[:_SHOWN_OF_ERROR] + "…"
    raise ToolError(f"the server answered {_status(response)}" + (f"\n\n{said}" if said else ""))


def _status(response: "httpx.Response") -> str:
    try:
        phrase = HTTPStatus(response.status_code).phrase
    except ValueError:
        phrase = ""
    return f"{response.status_code} {phrase}".strip()


def _content_type(response: "httpx.Response") -> str:
    kind: str = response.headers.get("content-type", "")
    return kind.partition(";")[0].strip().lower()[:100]


def _is_text(kind: str, data: bytes) -> bool:
    if kind.startswith("text/") or kind.endswith(("+json", "+xml", "+yaml")):
        return True
    return kind in _TEXT_TYPES and (b"\0" not in data or kind != "")


def _decoded(response: "httpx.Response", body: LimitedBody) -> str:
    try:
        codec = codecs.lookup(response.charset_encoding or "utf-8").name
        encoding = "utf-8" if codec in _UNFIT else codec
        # Of a body that was cut off, half a character at its end is left out.
        decoder = codecs.getincrementaldecoder(encoding)("replace")
        return str(decoder.decode(body.data, final=body.complete))
    except (LookupError, TypeError, ValueError, AssertionError):  # no such encoding, or not of text
        return body.data.decode("utf-8", "replace")
