"""A provider library's exception as `ModelError`: the provider's own reason, without secrets."""

import ast
import contextlib
import json
import os
import re
import time
from collections.abc import Iterable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final

from mail.errors import ModelError

__all__ = ["model_error", "redact"]

_SHOWN: Final = 500
_SHORTEST_SECRET: Final = 8
_HIDDEN: Final = "[redacted]"
_UNAUTHORIZED: Final = 401
_SERVER_ERROR: Final = 500
_NO_KEY = re.compile(
    r"missing credentials|missing \w+ api key|api_key client option", re.IGNORECASE
)
_SECRET_NAMES = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|DATABASE_URL)$")
_SECRET_SHAPES = re.compile(
    r"\b(?:sk|pk|rk|xai|gsk|hf|ghp|pplx|nvapi)[-_][\w*-]{4,}(?:\.[\w*-]+)*|\bAIza[\w-]{10,}|"
    r"\bAKIA[A-Z0-9]{12,}|(?<=Bearer )[^\s'\",}]+|(?<=api_key=)[^\s&'\",}]+|(?<=\?key=)[^\s&'\"]+"
)
_WRAPPER = re.compile(r"^(?:litellm\.)?\w+(?:Error|Exception|Timeout)(?: - |: )")
_CAUSE = re.compile(r"\s+Original exception: .*", re.DOTALL)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Replace what is, or looks like, a key or a token.

    Args:
        text: Any text from outside.
        secrets: Values that must not appear, beside those of the environment.
    """
    known = {value for name, value in os.environ.items() if _SECRET_NAMES.search(name)}
    known.update(secrets)
    for secret in sorted(known, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, _HIDDEN)
    return _SECRET_SHAPES.sub(_HIDDEN, text)


def model_error(error: BaseException, secrets: Iterable[str] = ()) -> ModelError:
    """Translate an exception of a provider library.

    Args:
        error: An exception in the manner of the OpenAI and LiteLLM libraries: it may have
            ``status_code``, ``body``, ``response`` and ``original_exception``.
        secrets: Values that must not appear in the text.
    """
    cause = _origin(error)
    status = _status(cause)
    prefix = "model call failed" if status is None else f"model call failed (HTTP {status})"
    reason = redact(_reason(cause), secrets)[:_SHOWN]
    return ModelError(f"{prefix}: {reason}", status=status, retry_after=_retry_after(cause))


def _origin(error: BaseException) -> BaseException:
    for _ in range(5):  # wrappers of wrappers, but never a cycle
        inner = getattr(error, "original_exception", None)
        if not isinstance(inner, BaseException):
            break
        error = inner
    return error


def _status(error: BaseException) -> int | None:
    if _NO_KEY.search(str(error)):
        return _UNAUTHORIZED
    if any("ConnectionError" in kind.__name__ for kind in type(error).__mro__):
        return None
    status = getattr(error, "status_code", None)
    if not isinstance(status, int):
        return None
    # The library makes up a server error for whatever kept the request from being answered.
    return None if status >= _SERVER_ERROR and not _headers(error) else status


def _headers(error: BaseException) -> Mapping[str, str]:
    headers = getattr(error, "litellm_response_headers", None)
    return headers or getattr(getattr(error, "response", None), "headers", None) or {}


def _reason(error: BaseException) -> str:
    said = _said(getattr(error, "body", None))
    if said:
        return said
    text = _CAUSE.sub("", str(error))
    while (shorter := _WRAPPER.sub("", text, count=1)) != text:
        text = shorter
    return _unpacked(text.strip()) or type(error).__name__


def _unpacked(text: str) -> str:
    """Return the message inside a provider's JSON error, or the text as it is."""
    body = text
    with contextlib.suppress(ValueError, SyntaxError):
        if text.startswith(("b'", 'b"')):  # the library shows some bodies as it would bytes
            body = ast.literal_eval(text).decode(errors="replace")
        return _said(json.loads(body)) or text
    return body


def _said(body: Any) -> str | None:
    while isinstance(body, Mapping):
        if isinstance(body.get("message"), str):
            return str(body["message"])
        body = body.get("error")
    return body if isinstance(body, str) and body else None


def _retry_after(error: BaseException) -> float | None:
    value = _headers(error).get("retry-after")
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None
