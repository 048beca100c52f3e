"""HTTP requests for agents, to public addresses and those that ``mail.toml`` allows."""

import codecs
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, Final

from mail.egress.bodies import LimitedBody
from mail.errors import ToolError
from mail.stdlib.tools import NOTHING, exchange, ready_action

if TYPE_CHECKING:
    import httpx

_Url = Annotated[str, "The full http:// or https:// address"]
_Headers = Annotated[Mapping[str, str], "Request headers by name"]
_Body = Annotated[Mapping[str, Any], "The body, sent as JSON"]


@ready_action(idempotent=True)
async def http_get(url: _Url, headers: _Headers = NOTHING) -> str:
    """Send an HTTP GET request and return the answer's text."""
    return await _asked("GET", url, headers)


@ready_action(idempotent=True)
async def http_head(url: _Url, headers: _Headers = NOTHING) -> str:
    """Send an HTTP HEAD request and return the answer's status and headers."""
    return await _asked("HEAD", url, headers)


@ready_action(idempotent=True)
async def http_options(url: _Url, headers: _Headers = NOTHING) -> str:
    """Send an HTTP OPTIONS request and return the answer's status, headers and text."""
    return await _asked("OPTIONS", url, headers)


@ready_action()
async def http_delete(url: _Url, headers: _Headers = NOTHING) -> str:
    """Send an HTTP DELETE request and return the answer's text."""
    return await _asked("DELETE", url, headers)


@ready_action()
async def http_post(url: _Url, headers: _Headers, body: _Body) -> str:
    """Send an HTTP POST request with a JSON body and return the answer's text."""
    return await _asked("POST", url, headers, body)


@ready_action()
async def http_put(url: _Url, headers: _Headers, body: _Body) -> str:
    """Send an HTTP PUT request with a JSON body and return the answer's text."""
    return await _asked("PUT", url, headers, body)


@ready_action()
async def http_patch(url: _Url, *, headers: _Headers = NOTHING, body: _Body) -> str:
    """Send an HTTP PATCH request with a JSON body and return the answer's text."""
    return await _asked("PATCH", url, headers, body)


async def _asked(
    method: str, url: str, headers: Mapping[str, Any], body: Mapping[str, Any] | None = None
) -> str:
    def show(response: "httpx.Response", received: LimitedBody) -> str:
        text = _body_text(response, received)
        if not response.is_success:
            said = text.strip()
            said = said[:_SHOWN_OF_ERROR] + "…" if len(said) > _SHOWN_OF_ERROR else said
            told = f"the server answered {_status(response)}"
            raise ToolError(f"{told}\n\n{said}" if said else told)
        if method not in ("HEAD", "OPTIONS"):
            return text
        lines = [f"{name}: {value}" for name, value in response.headers.items()]
        head = "\n".join([_status(response), *lines])
        return f"{head}\n\n{text}" if text else head

    return await exchange(method, url, show, headers=_checked(headers), body=body)


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


def _checked(headers: Mapping[str, Any]) -> dict[str, str]:
    """Return headers that may go into a request, without blanks around their values."""
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


def _body_text(response: "httpx.Response", body: LimitedBody) -> str:
    """Return a body as text, cut off with a note when it was too long; describe a binary one."""
    kind = str(response.headers.get("content-type", ""))
    kind = kind.partition(";")[0].strip().lower()[:100]
    if body.data and not _is_text(kind, body.data):
        size = f"{len(body.data)} bytes" if body.complete else f"over {len(body.data)} bytes"
        return f"[binary answer: {kind or 'of unknown type'}, {size}]"
    text = _decoded(response, body)
    if body.complete:
        return text
    return f"{text}\n\n[cut off here: the answer is longer than {len(body.data)} bytes]"


def _status(response: "httpx.Response") -> str:
    try:
        phrase = HTTPStatus(response.status_code).phrase
    except ValueError:
        phrase = ""
    return f"{response.status_code} {phrase}".strip()


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
