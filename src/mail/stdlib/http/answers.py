"""Answers of servers as texts for agents."""

import codecs
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from mail.egress.client import LimitedBody
from mail.errors import ToolError

if TYPE_CHECKING:
    import httpx

__all__ = ["body_text", "check_status", "head_text"]

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
