"""A provider library's exception as `ModelError`: the provider's own reason, without secrets.

Libraries wrap what happened several times, and each wrapper knows another part of it: the status,
the headers, what the provider wrote. So all of them are looked at, from the outermost inwards.
"""

import ast
import contextlib
import json
import math
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, Final

from mail.errors import ModelError
from mail.redaction import redact_foreign

__all__ = ["ReportedError", "model_error"]

_SHOWN: Final = 500
_DEEPEST: Final = 12
_BAD_REQUEST: Final = 400
_UNAUTHORIZED: Final = 401
_UNPAID: Final = 402
_SERVER_ERROR: Final = 500
_STATUSES: Final = range(400, 600)
_STATUS_OF: Final[Mapping[str, int]] = {
    "authentication": _UNAUTHORIZED,
    "invalid_api_key": _UNAUTHORIZED,
    "insufficient_quota": _UNPAID,
    "billing": _UNPAID,
    "permission": 403,
    "not_found": 404,
    "model_not_found": 404,
    "request_too_large": 413,
    "rate_limit": 429,
    "too_many_requests": 429,
    "api_error": 500,
    "internal": 500,
    "server_error": 500,
    "service_unavailable": 503,
    "timeout": 504,
    "vector_store_timeout": 504,
    "overloaded": 529,
    "bio_policy": _BAD_REQUEST,
    "content_policy": _BAD_REQUEST,
    "context_length": _BAD_REQUEST,
    "data_residency": _BAD_REQUEST,
    "empty_image": _BAD_REQUEST,
    "failed_to_download_image": _BAD_REQUEST,
    "image": _BAD_REQUEST,
    "invalid": _BAD_REQUEST,
    "unsupported": _BAD_REQUEST,
}
"""The status that a provider's name of an error stands for, by how the name begins."""

_NO_KEY = re.compile(
    r"missing credentials|missing \w+ api key|api_key client option", re.IGNORECASE
)
_WRAPPER = re.compile(r"^(?:litellm\.)?\w+(?:Error|Exception|Timeout)(?: - |: | (?=\w+Error - ))")
_APPENDED = re.compile(
    r"(?<!\s)\s+Original exception: .*|(?<!\s)\s*Traceback \(most recent call last\):.*|"
    r"\.? Handle with `litellm\.\w+`\.?$| ssl:(?:<[^<>]*>|\w+)(?= \[)",
    re.DOTALL,
)
_LIBRARIES: Final = frozenset({"litellm", "openai"})
_TRANSPORTS: Final = frozenset({"aiohttp", "httpcore", "httpx"})
_MISTAKES: Final = (AttributeError, ImportError, LookupError, TypeError, ValueError)
_NO_ADDRESS: Final = ("InvalidU", "NonHttpUrl", "UnsupportedProtocol")
_CONNECTION: Final = "Connection error."
_GARBAGE: Final = (json.JSONDecodeError, UnicodeDecodeError)


class ReportedError(ModelError):
    """An error that a provider reports within a stream, in its own words.

    Args:
        body: What the provider wrote: ``message``, and ``code`` or ``type``.
    """

    def __init__(self, body: Mapping[str, Any]) -> None:
        reason = _said(body) or next(iter(_names(body)), "the provider gave no reason")
        super().__init__(
            f"model call failed: {redact_foreign(reason)[:_SHOWN]}", status=_named_status(body)
        )
        self.body = body


def model_error(
    error: BaseException, secrets: Iterable[str] = (), *, began: bool = False
) -> ModelError:
    """Translate an exception of a provider library; `ModelError`s of ours stay what they are.

    The status of the result is the provider's, or the one that its name of the error stands for,
    or None if the call just broke. A request that could not even be written has 400, like one that
    the provider refused: it would fail again.

    Args:
        error: An exception in the manner of the OpenAI and LiteLLM libraries: it may have
            ``status_code``, ``body``, ``response`` and ``original_exception``.
        secrets: Values that must not appear in the text.
        began: Whether the provider had begun to answer.
    """
    if isinstance(error, ModelError) and not isinstance(error, ReportedError):
        return error
    chain = _chain(error)
    answered = _answered(chain)
    if any(_is_a(inner, name) for inner in chain for name in _NO_ADDRESS):
        # Their text is the address, or what is left of it, with the password in it.
        reason = (
            "the provider's address is not valid; it must start with http:// or "
            "https:// and name a host"
        )
        return ModelError(f"model call failed: {reason}", status=_BAD_REQUEST)
    mistake = None if began or answered is not None else _mistake(chain)
    if mistake is not None:
        reason = f"this request cannot be made: {_shown(mistake)}"
        return ModelError(
            f"model call failed: {redact_foreign(reason, secrets)[:_SHOWN]}", status=_BAD_REQUEST
        )
    body = _body(chain)
    named = _named_status(body)
    prefix = "model call failed" if answered is None else f"model call failed (HTTP {answered})"
    reason = redact_foreign(_said(body) or _text(chain), secrets)[:_SHOWN]
    # A provider may say 429 where nothing is left to pay with.
    status = named if answered is None or named == _UNPAID else answered
    return ModelError(f"{prefix}: {reason}", status=status, retry_after=_retry_after(chain))


def _chain(error: BaseException) -> list[BaseException]:
    chain: list[BaseException] = []
    inner: BaseException | None = error
    while inner is not None and inner not in chain and len(chain) < _DEEPEST:
        chain.append(inner)
        wrapped = getattr(inner, "original_exception", None)
        if not isinstance(wrapped, BaseException):
            wrapped = inner.__cause__ or (None if inner.__suppress_context__ else inner.__context__)
        inner = wrapped
    return chain


def _answered(chain: Sequence[BaseException]) -> int | None:
    """Return the status with which the provider answered, if it did."""
    if any(_NO_KEY.search(str(error)) for error in chain):
        return _UNAUTHORIZED
    for error in chain:
        if _is_a(error, "HTTPStatusError"):
            refused: Any = error  # httpx's, which is not imported for this
            return int(refused.response.status_code)
    for error in chain:
        status = getattr(error, "status_code", None)
        if not isinstance(status, int) or _is_a(error, "ConnectionError"):
            continue
        # The library makes up a server error for whatever kept the request from being answered.
        if status < _SERVER_ERROR or _headers(error):
            return status
    return None


def _is_a(error: BaseException, name: str) -> bool:
    return any(name in kind.__name__ for kind in type(error).__mro__)


def _mistake(chain: Sequence[BaseException]) -> BaseException | None:
    """Return the exception that kept the request from being written, if that is what happened."""
    if any(_broke_transport(error) for error in chain):
        return None
    raised = (error for error in chain if _package(type(error)) not in _LIBRARIES)
    cause = next(raised, None)
    found = isinstance(cause, _MISTAKES) and not isinstance(cause, _GARBAGE)
    return cause if found else None


def _package(kind: type) -> str:
    return kind.__module__.partition(".")[0]


def _broke_transport(error: BaseException) -> bool:
    known = any(_package(kind) in _TRANSPORTS for kind in type(error).__mro__)
    return known or (isinstance(error, OSError) and not isinstance(error, ImportError))


def _shown(error: BaseException) -> str:
    """Return what an exception of Python's says; most need their name to be understood."""
    text = _APPENDED.sub("", str(error)).strip()
    return text if type(error) is ValueError and text else f"{type(error).__name__}: {text}"


def _headers(error: BaseException) -> Mapping[str, str]:
    headers = getattr(error, "litellm_response_headers", None)
    return headers or getattr(getattr(error, "response", None), "headers", None) or {}


def _body(chain: Sequence[BaseException]) -> Any:
    """Return the error as the provider wrote it: kept by a library, or as the text of one."""
    for error in chain:
        body, text = getattr(error, "body", None), _decoded(str(error))
        for candidate in (body, text if isinstance(text, Mapping) else None):
            if _said(candidate):
                return candidate
    return None


def _decoded(text: str) -> Any:
    """Return what JSON text stands for, or the text; some libraries show bytes as Python would."""
    if text.startswith(("b'", 'b"')):
        with contextlib.suppress(ValueError, SyntaxError):
            text = ast.literal_eval(text).decode(errors="replace")
    with contextlib.suppress(ValueError):
        return json.loads(text)
    return text


def _text(chain: Sequence[BaseException]) -> str:
    """Return the innermost text of a library, without what the library put around it."""
    of_library = [error for error in chain if isinstance(getattr(error, "status_code", None), int)]
    texts = [str(error) for error in of_library if not _broke_transport(error)]
    text = _cleaned(texts[-1] if texts else str(chain[0]))
    if text == _CONNECTION:  # OpenAI's client; what broke says where to
        text = next(filter(None, (_cleaned(str(e)) for e in chain if _broke_transport(e))), text)
    decoded = _decoded(text)
    return (decoded if isinstance(decoded, str) else text) or type(chain[0]).__name__


def _cleaned(text: str) -> str:
    text = _APPENDED.sub("", text)
    while (shorter := _WRAPPER.sub("", text, count=1)) != text:
        text = shorter
    return text.strip()


def _error_in(body: Any) -> Any:
    """Return the innermost error of a body; some are wrapped in an ``error``."""
    while isinstance(body, Mapping) and not isinstance(body.get("message"), str):
        if "error" not in body:
            break
        body = body["error"]
    return body


def _said(body: Any) -> str | None:
    error = _error_in(body)
    said = error.get("message") if isinstance(error, Mapping) else error
    return said if isinstance(said, str) and said else None


def _names(body: Any) -> list[str]:
    error = _error_in(body)
    given = (error.get("code"), error.get("type")) if isinstance(error, Mapping) else ()
    names = [str(name) for name in given if isinstance(name, str | int)]
    return [name for name in names if name not in ("", "error")]  # any event of an error is one


def _named_status(body: Any) -> int | None:
    for name in _names(body):
        if name.isdecimal() and int(name) in _STATUSES:
            return int(name)
        for beginning, status in _STATUS_OF.items():
            if name.startswith(beginning):
                return status
    return None


def _retry_after(chain: Sequence[BaseException]) -> float | None:
    """Return how many seconds the provider wants to be left alone; nonsense counts as nothing."""
    given = (_headers(error).get("retry-after") for error in chain)
    value = next(filter(None, given), None)
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
        except ValueError:
            return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None
