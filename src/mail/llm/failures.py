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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Final

from mail.errors import ModelError
from mail.redaction import redact_foreign

_SHOWN: Final = 500
_NAME: Final = 200
_SAID: Final = 4000
_GENERATION: Final = 256 * 1024
_DEEPEST: Final = 12
_BAD_REQUEST: Final = 400
_UNAUTHORIZED: Final = 401
_UNPAID: Final = 402
_SERVER_ERROR: Final = 500
_STATUSES: Final = range(400, 600)
_DIGITS: Final = 3
_LONGEST_BODY: Final = 64 * 1024
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
    r"missing credentials|missing \w+ api key|api_key client option|"
    r"default credentials were not found|unable to locate credentials",
    re.IGNORECASE,
)
_WRAPPER = re.compile(r"^(?:litellm\.)?\w+(?:Error|Exception|Timeout)(?: - |: | (?=\w+Error - ))")
_APPENDED = re.compile(
    r"(?<!\s)\s+Original exception: .*|(?<!\s)\s*Traceback \(most recent call last\):.*|"
    r"\.? Handle with `litellm\.\w+`\.?$| ssl:(?:<[^<>]*>|\w+)(?= \[)",
    re.DOTALL,
)
_LIBRARIES: Final = frozenset({"litellm", "openai"})
_LITELLM: Final = "litellm."
"""The beginning of texts from a proxy, which has the same library inside."""
_TRANSPORTS: Final = frozenset({"aiohttp", "httpcore", "httpx"})
_MISTAKES: Final = (AttributeError, ImportError, LookupError, TypeError, ValueError)
_PACKAGES: Final[Mapping[str, str]] = {"google": "'mail-protocol[vertex]'"}
"""The packages to install for modules of providers that are missing."""
_NO_ADDRESS: Final = ("InvalidU", "NonHttpUrl", "UnsupportedProtocol")
_CONNECTION: Final = "Connection error."
_GARBAGE: Final = (json.JSONDecodeError, UnicodeDecodeError)


@dataclass(frozen=True, slots=True)
class Named:
    """The parts of a provider's error; each is empty where the provider says nothing of it.

    ``text`` is the provider's message, ``generation`` what the model wrote and the provider did not
    accept as a call. Secrets are taken out of all the others, and all are bounded.
    """

    text: str = ""
    param: str = ""
    code: str = ""
    kind: str = ""
    generation: str | None = None


class RefusedCall(ModelError):
    """A model call that a provider refused or broke off, with what it named as the reason.

    Args:
        message: See `mail.errors.ModelError`, as ``status`` and ``retry_after``.
        status: The status of the answer, or the one that its name of the error stands for.
        retry_after: The seconds that the provider wants to be left alone.
        named: The parameter that the provider's error names.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        named: Named,
    ) -> None:
        super().__init__(message, status=status, retry_after=retry_after)
        self.named = named


class ReportedError(ModelError):
    """An error that a provider reports within a stream, in its own words.

    Args:
        body: The provider's error: ``message``, and ``code`` or ``type``.
    """

    def __init__(self, body: Mapping[str, Any]) -> None:
        reason = _read(body).text or next(_names(body), "the provider gave no reason")
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
    mistake = None if began else _mistake(chain, answered)
    if mistake is not None:
        reason = f"this request cannot be made: {_shown(mistake)}"
        return ModelError(
            f"model call failed: {redact_foreign(reason, secrets)[:_SHOWN]}", status=_BAD_REQUEST
        )
    body = _body(chain)
    named = _read(body)
    meant = _UNPAID if _for_today(body) else _named_status(body)
    prefix = "model call failed" if answered is None else f"model call failed (HTTP {answered})"
    said = _cleaned(named.text) if named.text.startswith(_LITELLM) else named.text
    reason = redact_foreign(said or _text(chain), secrets)
    # A provider may say 429 where nothing is left to pay with, or none of what a day allows.
    status = meant if answered is None or meant == _UNPAID else answered
    return RefusedCall(
        f"{prefix}: {reason[:_SHOWN]}",
        status=status,
        retry_after=None if status == _UNPAID else _retry_after(chain, body),
        named=_safe(named, reason, secrets),
    )


def _safe(named: Named, text: str, secrets: Iterable[str]) -> Named:
    """Return what may be kept of an error."""

    def short(name: str) -> str:
        return redact_foreign(name, secrets)[:_NAME] if name else ""

    return Named(
        text=text[:_SAID],
        param=short(named.param),
        code=short(named.code),
        kind=short(named.kind),
        generation=None if named.generation is None else named.generation[:_GENERATION],
    )


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


def _mistake(chain: Sequence[BaseException], answered: int | None) -> BaseException | None:
    """Return the exception that kept the request from being written, if that is what happened.

    The library wraps some failed imports as a server error, and those would be tried again.
    """
    failed = [error for error in chain if isinstance(error, ImportError)]
    if failed and not any(_is_a(error, "HTTPStatusError") for error in chain):
        return next((error for error in failed if error.name), failed[-1])
    if answered is not None or any(_broke_transport(error) for error in chain):
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
    if isinstance(error, ImportError):
        package = _PACKAGES.get((error.name or "").partition(".")[0])
        text += f"; install it with: pip install {package}" if package else ""
    return text if type(error) is ValueError and text else f"{type(error).__name__}: {text}"


def _headers(error: BaseException) -> Mapping[str, str]:
    headers = getattr(error, "litellm_response_headers", None)
    return headers or getattr(getattr(error, "response", None), "headers", None) or {}


def _body(chain: Sequence[BaseException]) -> Any:
    """Return the error as the provider wrote it: kept by a library, or as the text of one."""
    for error in chain:
        body, text = getattr(error, "body", None), _decoded(str(error))
        for candidate in (body, text if isinstance(text, Mapping | list) else None):
            if _read(candidate).text:
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


_FIELDS: Final[Mapping[str, str]] = {
    "param": "param",
    "code": "code",
    "type": "kind",
    "failed_generation": "generation",
}
_MEANINGLESS: Final = frozenset({"", "None", "error", "null"})
"""Names that say nothing; any event of an error has the type ``error``."""


def _read(body: Any) -> Named:
    """Read an error of whichever shape: the innermost level that says something counts.

    Some wrap it in an ``error``, some have their message as an object of complaints about fields,
    and those in between (OpenRouter, a proxy) have the text of the provider behind them as JSON.
    """
    found: dict[str, str] = {}
    for level in _levels(body):
        if isinstance(level, str):
            found["text"] = level
            continue
        for name, kept in _FIELDS.items():
            value = level.get(name)
            if not isinstance(value, str | int) or isinstance(value, bool):
                continue
            if kept == "generation" or str(value) not in _MEANINGLESS:
                found[kept] = str(value)
    return Named(**found)


def _levels(body: Any) -> Iterator[Mapping[str, Any] | str]:
    """Yield what an error consists of, from the outermost inwards: its objects and its texts."""
    for _ in range(_DEEPEST):
        if isinstance(body, list) and body:  # Google's streams that are no event streams
            body = body[0]
        if not body or not isinstance(body, str | Mapping):
            return
        yield body
        body = _inner_json(body) if isinstance(body, str) else _inside(body)


def _inside(body: Mapping[str, Any]) -> Any:
    """Return what a level of an error holds: the next level, or its text."""
    said = body.get("message")
    raw = body.get("metadata")
    if isinstance(raw, Mapping) and isinstance(raw.get("raw"), str) and raw["raw"]:
        return raw["raw"]
    if said:
        return said
    if "error" in body:
        return body["error"]
    return _complaints(body.get("detail"))


def _complaints(detail: Any) -> Any:
    """Return complaints about fields as one text, each with the place of its field."""
    if not isinstance(detail, Sequence) or isinstance(detail, str):
        return detail
    told = []
    for complaint in detail:
        if isinstance(complaint, Mapping):
            place = [str(part) for part in complaint.get("loc") or () if part != "body"]
            told.append(": ".join(filter(None, (".".join(place), str(complaint.get("msg") or "")))))
    return "; ".join(filter(None, told))


def _inner_json(text: str) -> Any:
    """Return the error object that a text is, or brings along as a proxy's does."""
    start = text.find("{")
    before = text[:start].rstrip(" b'\"")
    wrapped = not before or (before.endswith(("-", ":")) and _WRAPPER.match(before + " "))
    if start < 0 or not wrapped or len(text) > _LONGEST_BODY:
        return None
    with contextlib.suppress(ValueError, RecursionError):
        value, _ = json.JSONDecoder().raw_decode(text, start)
        return value if isinstance(value, Mapping) else None
    return None


def _names(body: Any) -> Iterator[str]:
    """Yield what the levels of an error call it, from the innermost outwards."""
    for level in reversed([level for level in _levels(body) if isinstance(level, Mapping)]):
        for name in (level.get("code"), level.get("type")):
            if isinstance(name, str | int) and str(name) not in _MEANINGLESS:
                yield str(name)


def _named_status(body: Any) -> int | None:
    for name in _names(body):
        if name.isdecimal() and len(name) == _DIGITS and int(name) in _STATUSES:
            return int(name)
        for beginning, status in _STATUS_OF.items():
            if name.lower().startswith(beginning):
                return status
    return None


def _retry_after(chain: Sequence[BaseException], body: Any) -> float | None:
    """Return how many seconds the provider wants to be left alone; nonsense counts as nothing."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        given = (_headers(error).get(name) for error in chain)
        seconds = _seconds(next(filter(None, given), "")) / unit
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    for detail in _details(body):  # a ``RetryInfo``: 45.8s
        if told := re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)s", str(detail.get("retryDelay"))):
            return float(told[1]) or None
    return None


def _seconds(value: str) -> float:
    """Return the seconds that a header tells, also as a date; NaN for nonsense."""
    try:
        return float(value)
    except ValueError:
        with contextlib.suppress(ValueError):
            return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    return math.nan


def _details(body: Any) -> Iterator[Mapping[str, Any]]:
    """Yield what Google's errors have beside their text."""
    for level in _levels(body):
        found = level.get("details") if isinstance(level, Mapping) else None
        if isinstance(found, Sequence) and not isinstance(found, str):
            yield from (detail for detail in found if isinstance(detail, Mapping))


def _for_today(body: Any) -> bool:
    """Tell whether a quota for a whole day is used up: no wait of a call's would help."""
    for detail in _details(body):
        broken = detail.get("violations")
        if isinstance(broken, Sequence) and any("PerDay" in str(one) for one in broken):
            return True
    return False
