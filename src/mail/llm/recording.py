"""Recordings of model calls, exact but without secrets: for tests and for bug reports.

Every request of LiteLLM, whatever the wire, and every one of OpenAI's client leaves through
``httpx.AsyncClient.send``; below it is httpx's own transport, aiohttp's, or the guarded one. A
recorder listens there: the libraries have changed all that they change.
"""

import json
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from functools import wraps
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from mail.core.call_context import current_call
from mail.redaction import HIDDEN, is_secret_name, redact_foreign

if TYPE_CHECKING:
    import httpx

MOST_CALLS: Final = 32
MOST_REQUEST_BYTES: Final = 256 * 1024
MOST_ANSWER_BYTES: Final = 64 * 1024
_LONGEST_TEXT: Final = 16 * 1024
_LARGEST_JSON: Final = 16 * 1024 * 1024
_LONGEST_NAME: Final = 256
_MOST_HEADERS: Final = 100
_AROUND: Final = 6
_DEEPEST: Final = 64
_SHORTEST_SECRET: Final = 8
_OPAQUE: Final = re.compile(r"(?<![^\s/@:'\"])[^\s/@:'\"]{2000,}")  # from its beginning only
_SSL_CONTEXT: Final = re.compile(r" ssl:<[^<>]*>")
_NOT_SENT: Final = "recorded, and not sent"
_BAD_REQUEST: Final = 400
_DATA: Final = "data:"

_HARMLESS_HEADERS: Final = re.compile(
    r"accept(?:-.*)?|cache-control|cf-ray|connection|content-(?:encoding|length|type)|date|host|"
    r"http-referer|retry-after(?:-ms)?|server|transfer-encoding|user-agent|x-title|"
    r"anthropic-(?:beta|version|ratelimit-.*)|openai-(?:beta|processing-ms|version)|"
    r"(?:x-)?request-id|x-(?:stainless|ratelimit)-.*|x-should-retry|x-litellm-(?:call-id|version)"
)
"""Headers whose values are shown; any other may hold a secret."""
_HARMLESS_QUERY: Final = frozenset({"alt", "api-version", "beta"})
_HOLD_HEADERS: Final = frozenset({"headers", "extra_headers"})
_DECLARE: Final = frozenset({"properties", "$defs", "definitions"})
"""Fields of a JSON schema whose own fields are names that somebody chose, each with a schema."""

_asked: ContextVar[str | None] = ContextVar("mail_model_asked", default=None)


@contextmanager
def asking(model: str) -> Iterator[None]:
    """Mark what a library sends within this block, and tasks that begin in it, as a model's call.

    Args:
        model: The model's name.
    """
    token = _asked.set(model)
    try:
        yield
    finally:
        _asked.reset(token)


@dataclass(slots=True, eq=False)
class RecordedCall:
    """One request to a provider and its answer; keys, tokens and cookies are ``[redacted]``.

    Attributes:
        model: The model as the agent names it.
        agent: The agent; no text outside of a swarm.
        method, url: Where the request went.
        headers: Its headers in lower case.
        body: The decoded JSON of the body, or its text; long texts and lists are cut.
        status: The answer's status; None if none came.
        answer_headers: The answer's headers in lower case.
        answer_bytes: The length of the answer so far.
        error: Why no answer came.
        seconds: From the request to what was last heard.
    """

    model: str
    agent: str
    method: str
    url: str
    headers: dict[str, str]
    body: Any
    status: int | None = None
    answer_headers: dict[str, str] = field(default_factory=dict)
    answer_bytes: int = 0
    error: str = ""
    seconds: float = 0.0
    _secrets: tuple[str, ...] = field(default=(), repr=False)
    _heard: bytearray = field(default_factory=bytearray, repr=False)
    _begun: float = field(default_factory=time.monotonic, repr=False)

    @classmethod
    def of(cls, model: str, request: "httpx.Request") -> "RecordedCall":
        """Record a request that is about to leave."""
        secrets = _secrets_of(request)
        return cls(
            model=model,
            agent=current_call().agent,
            method=request.method,
            url=_shown_url(str(request.url), secrets),
            headers=_shown_headers(request.headers, secrets),
            body=_shown_body(_content(request), secrets),
            _secrets=secrets,
        )

    @property
    def answer(self) -> str:
        """The answer's body as text: of a long one the beginning."""
        text = _shown_answer(bytes(self._heard), self._secrets)
        rest = self.answer_bytes - len(self._heard)
        return f"{text}… [{rest} more bytes]" if rest else text

    def answered(self, response: "httpx.Response") -> None:
        """Record the beginning of the answer."""
        self.status = response.status_code
        self.answer_headers = _shown_headers(response.headers, self._secrets)
        self.seconds = time.monotonic() - self._begun

    def hear(self, piece: bytes) -> None:
        """Record a piece of the answer's body."""
        self.answer_bytes += len(piece)
        self._heard += piece[: MOST_ANSWER_BYTES - len(self._heard)]
        self.seconds = time.monotonic() - self._begun

    def failed(self, error: BaseException) -> None:
        """Record why no answer came."""
        text = _SSL_CONTEXT.sub("", f"{type(error).__name__}: {error}")
        self.error = _clean(text, self._secrets)
        self.seconds = time.monotonic() - self._begun

    def to_dict(self) -> dict[str, Any]:
        """Return all of it for JSON."""
        shown = {one.name: getattr(self, one.name) for one in fields(self) if one.repr}
        return {**shown, "answer": self.answer, "seconds": round(self.seconds, 3)}

    def text(self) -> str:
        """Return all of it for people, the request first."""
        came = f"HTTP {self.status}" if self.status else self.error or "no answer"
        answer = [
            f"{came} after {self.seconds:.1f} s",
            *(f"{name}: {value}" for name, value in self.answer_headers.items()),
            *(["", self.answer] if self.answer_bytes else []),
        ]
        return "\n".join([self.request_text(), "", *answer])

    def request_text(self) -> str:
        """Return the request for people."""
        body = self.body
        if not isinstance(body, str):
            body = json.dumps(body, indent=2, ensure_ascii=False)
        lines = [f"{self.method} {self.url}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        return "\n".join([*lines, "", body])


class RecordedCalls(list[RecordedCall]):
    """The calls that were recorded, oldest first; only the newest are kept.

    Args:
        most: The number that is kept.
        send: Whether requests are sent at all.
    """

    def __init__(self, most: int, *, send: bool) -> None:
        super().__init__()
        self._most = most
        self.send = send

    def add(self, call: RecordedCall) -> None:
        """Keep a call."""
        self.append(call)
        del self[: -self._most]

    def text(self) -> str:
        """Return all of them for people, such as the readers of a bug report."""
        return "\n\n----\n\n".join(call.text() for call in self)


@contextmanager
def recorded_calls(*, send: bool = True, most: int = MOST_CALLS) -> Iterator[RecordedCalls]:
    """Record every model call that is made within this block, by whichever task of the process.

    Args:
        send: False keeps the requests from being sent; each gets an answer with status 400.
        most: The number of newest calls that are kept; each takes at most about 400 kB.
    """
    import httpx

    calls = RecordedCalls(most, send=send)
    client: Any = httpx.AsyncClient
    if not hasattr(client.send, "recorders"):
        client.send = _tapped(client.send)
    tap = client.send
    tap.recorders.append(calls)
    try:
        yield calls
    finally:
        tap.recorders.remove(calls)
        if not tap.recorders and client.send is tap:
            client.send = tap.__wrapped__


def _tapped(send: Callable[..., Any]) -> Callable[..., Any]:
    """Return httpx's ``send`` that also tells the recorders in its ``recorders``."""
    recorders: list[RecordedCalls] = []

    @wraps(send)
    async def tap(client: "httpx.AsyncClient", request: "httpx.Request", **options: Any) -> Any:
        model = _asked.get()
        if model is None:
            return await send(client, request, **options)
        call = RecordedCall.of(model, request)
        for recorder in recorders:
            recorder.add(call)
        if not all(recorder.send for recorder in recorders):
            call.error = _NOT_SENT
            return _refusal(request)
        try:
            response = await send(client, request, **options)
        except BaseException as error:
            call.failed(error)
            raise
        call.answered(response)
        _listen(response, call)
        return response

    setattr(tap, "recorders", recorders)  # noqa: B010 - a function's own attribute
    return tap


def _refusal(request: "httpx.Request") -> "httpx.Response":
    import httpx

    error = {"message": _NOT_SENT, "type": "not_sent"}
    return httpx.Response(_BAD_REQUEST, json={"error": error}, request=request)


def _listen(response: "httpx.Response", call: RecordedCall) -> None:
    """Tell a recorder what is read of an answer."""
    if response.is_closed:  # it was read already
        call.hear(response.content)
        return
    read = response.aiter_bytes

    async def aiter_bytes(chunk_size: int | None = None) -> AsyncIterator[bytes]:
        pieces: Any = read(chunk_size)
        async with aclosing(pieces):
            async for piece in pieces:
                call.hear(piece)
                yield piece

    setattr(response, "aiter_bytes", aiter_bytes)  # noqa: B010 - of this response alone


def _content(request: "httpx.Request") -> bytes:
    import httpx

    try:
        return request.content
    except httpx.RequestNotRead:
        return b"(streamed)"


def _secrets_of(request: "httpx.Request") -> tuple[str, ...]:
    """Return the credentials that a request has in its headers and its URL."""
    found = [request.url.username, request.url.password]
    for name, value in request.headers.items():
        scheme, _, rest = value.partition(" ")
        if scheme.lower() in ("bearer", "basic", "token"):
            found.append(rest)
        elif is_secret_name(name):
            found.append(value)
    found += [
        value
        for name, value in request.url.params.multi_items()
        if name.lower() not in _HARMLESS_QUERY
    ]
    return tuple(value for value in found if len(value) >= _SHORTEST_SECRET)


def _shown_url(url: str, secrets: Sequence[str]) -> str:
    parts = urlsplit(url)
    query = [
        (name, value if name.lower() in _HARMLESS_QUERY else HIDDEN)
        for name, value in parse_qsl(parts.query, keep_blank_values=True)
    ]
    place = parts.netloc.rpartition("@")[2]
    shown = urlunsplit((parts.scheme, place, parts.path, urlencode(query, safe="[]"), ""))
    return _clean(shown, secrets)


def _shown_headers(headers: Mapping[str, str], secrets: Sequence[str]) -> dict[str, str]:
    return {
        name.lower(): _clean(value, secrets)
        if _HARMLESS_HEADERS.fullmatch(name.lower())
        else HIDDEN
        for name, value in headers.items()
    }


def _clean(text: str, secrets: Sequence[str], most: int = _LONGEST_TEXT) -> str:
    """Return a text without secrets; of a long one the beginning."""
    if len(text) < min(_SHORTEST_SECRET, most):
        return text
    # Encrypted reasoning, signatures and images say nothing, and take the patterns long to search.
    short = _OPAQUE.sub(lambda found: f"[{len(found[0])} characters]", text)
    shown = redact_foreign(short, secrets, most)
    return f"{shown}… [{len(short)} characters in all]" if len(short) > most else shown


def _shown_body(content: bytes, secrets: Sequence[str]) -> Any:
    if len(content) <= _LARGEST_JSON:
        try:
            return _Body(secrets).shown(json.loads(content))
        except (ValueError, RecursionError):
            pass
    text = content[:MOST_REQUEST_BYTES].decode(errors="replace")
    return _clean(text, secrets) + ("" if len(content) == len(text) else f" [{len(content)} bytes]")


class _Body:
    """Takes the secrets out of a body, until as much is shown as may be."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self._secrets = secrets
        self._left = MOST_REQUEST_BYTES

    def shown(self, value: Any, depth: int = 0, *, declared: bool = False) -> Any:
        """Return a value of JSON without secrets.

        Args:
            value: The value.
            depth: In how many others it is.
            declared: Whether its fields are names that somebody chose, each with a schema.
        """
        if isinstance(value, str):
            return self._text(value, _LONGEST_TEXT)
        if not isinstance(value, dict | list):
            self._left -= len(str(value))
            return value
        if depth == _DEEPEST:
            return "… [nested deeper]"
        if isinstance(value, dict):
            return self._fields(value, depth, declared=declared)
        shown: list[Any] = []
        for item in value:
            if self._left <= 0:
                return [*shown, f"… [{len(value) - len(shown)} more]"]
            self._left -= _AROUND
            shown.append(self.shown(item, depth + 1))
        return shown

    def _text(self, text: str, most: int) -> str:
        shown = _clean(text, self._secrets, max(0, min(most, self._left)))
        self._left -= len(shown.encode(errors="replace"))
        return shown

    def _fields(self, value: dict[str, Any], depth: int, *, declared: bool) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        for number, (key, inner) in enumerate(value.items()):
            if self._left <= 0:
                return shown | {"…": f"[{len(value) - number} more]"}
            self._left -= _AROUND
            name = _clean(key, self._secrets, _LONGEST_NAME)
            self._left -= len(name.encode(errors="replace"))
            said = (
                inner is None or isinstance(inner, bool) or (declared and isinstance(inner, dict))
            )
            if is_secret_name(key) and not said:
                shown[name] = HIDDEN
            elif key.lower() in _HOLD_HEADERS and isinstance(inner, dict):
                headers = list(inner)[:_MOST_HEADERS]
                shown[name] = {self._text(each, _LONGEST_NAME): HIDDEN for each in headers}
            else:
                shown[name] = self.shown(inner, depth + 1, declared=key in _DECLARE)
        return shown


def _shown_answer(content: bytes, secrets: Sequence[str]) -> str:
    """Return an answer's text without secrets, not even one that comes in pieces of a stream."""
    lines = content.decode(errors="replace").splitlines()
    events = [_event(line) for line in lines]
    spoken: dict[tuple[Any, ...], list[str]] = {}
    for event in events:
        for path, text in _texts(event):
            spoken.setdefault(path, []).append(text)
    hidden = set()
    for path, pieces in spoken.items():
        whole = _OPAQUE.sub("", "".join(pieces))
        if len(pieces) > 1 and redact_foreign(whole, secrets, len(whole)) != whole:
            hidden.add(path)
    shown = []
    for line, event in zip(lines, events, strict=True):
        holds = event is not None and any(path in hidden for path, _ in _texts(event))
        text = f"{_DATA} {json.dumps(_without(event, hidden))}" if holds else line
        shown.append(_clean(text, secrets))
    return "\n".join(shown)


def _event(line: str) -> Any:
    """Return what a line of a stream says, or None."""
    if not line.startswith(_DATA):
        return None
    try:
        return json.loads(line.removeprefix(_DATA))
    except (ValueError, RecursionError):
        return None


def _texts(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Yield the texts in an event and where they are; pieces of one text are at the same place."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, list) and len(path) < _DEEPEST:
        for item in value:
            yield from _texts(item, path)
    elif isinstance(value, dict) and len(path) < _DEEPEST:
        for name, item in value.items():
            yield from _texts(item, (*path, name))


def _without(value: Any, hidden: set[tuple[Any, ...]], path: tuple[Any, ...] = ()) -> Any:
    if isinstance(value, str):
        return HIDDEN if path in hidden else value
    if isinstance(value, list):
        return [_without(item, hidden, path) for item in value]
    if isinstance(value, dict):
        return {name: _without(item, hidden, (*path, name)) for name, item in value.items()}
    return value
