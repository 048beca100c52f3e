"""The client's HTTP layer: the session, headers, JSON, error handling and repeats."""

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast
from urllib.parse import quote, urlsplit, urlunsplit

from mail.config.client import ClientConfig
from mail.errors import ClientDecodeError, ClientError, ClientHTTPError, ConfigError
from mail.version import get_version

if TYPE_CHECKING:
    import aiohttp

T = TypeVar("T")

IDLE_TIMEOUT: Final = 60.0
"""Seconds without data after which a connection counts as broken; servers ping every 15."""

_CONNECT_TIMEOUT: Final = 30.0
_UNAVAILABLE: Final = 503
_SHOWN: Final = 500

logger = logging.getLogger("mail.client")


@dataclass(frozen=True, slots=True)
class Reconnect:
    """Retry limits: attempts in a row without a response, first and longest wait in seconds.

    ``told`` is called before each wait.
    """

    tries: int = 10
    first_wait: float = 0.2
    longest_wait: float = 5.0
    told: Callable[[], None] | None = None

    def wait(self, attempt: int, asked: float = 0.0) -> float:
        """Return the seconds to wait before an attempt.

        Args:
            attempt: The number of failed attempts so far.
            asked: The wait requested by the server (``retry:``), limited by `longest_wait`. The
                first attempt ignores it, because most interruptions are brief.
        """
        if self.told is not None:
            self.told()
        own = self.first_wait * 2.0**attempt
        return min(max(own, asked if attempt else 0.0), self.longest_wait)


class HTTPClient:
    """Requests to one server.

    Args:
        url: The server's base URL, ``http://…`` or ``https://…``.
        api_key: Sent as ``Authorization: Bearer …`` with every request.
        session: Your own session, with its own timeouts. The client does not close it.
        config: Timeout and logging; by default from ``mail.toml``.

    Raises:
        ConfigError: the URL is invalid.
    """

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        session: "aiohttp.ClientSession | None" = None,
        config: ClientConfig | None = None,
    ) -> None:
        self.base_url = url.rstrip("/")
        if not self.base_url.startswith(("http://", "https://")):
            raise ConfigError("the server's URL must begin with http:// or https://")
        self.api_key = api_key
        self.config = config or ClientConfig()
        self.reconnect = Reconnect()
        self._session = session
        self._owns_session = session is None

    async def __aenter__(self) -> Self:
        self._open_session()
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the session if the client created it. A later request opens a new one."""
        if self._owns_session and self._session is not None:
            await self._session.close()
            self._session = None

    def _build_headers(
        self, extra: Mapping[str, str] | None = None, ignore_auth: bool = False
    ) -> dict[str, str]:
        """Return the headers of a request. Override it to add your own to each request."""
        headers = {
            "Accept": "application/json",
            "User-Agent": f"MAIL-Client/{get_version()} (github.com/charonlabs/mail)",
        }
        if self.api_key and not ignore_auth:
            headers["Authorization"] = f"Bearer {self.api_key}"
        return {**headers, **(extra or {})}

    async def _ask(
        self,
        shape: type[T],
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        key: str | None = None,
        *,
        query: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> T:
        """Send a request and return the JSON object that it is answered with.

        Args:
            shape: The type of the answer, for the type checker alone.
            method: The HTTP method.
            path: Path below the base URL.
            body: The JSON body; fields that are None are not sent.
            key: An idempotency key; see `_repeated`.
            query: The fields of the query; those that are None are not sent.
            headers: Further headers.

        Raises:
            ClientHTTPError: there was no response, or its status is not 2xx.
            ClientDecodeError: the response is not a JSON object.
        """
        answer = await self._request(method, path + query_of(query or {}), body, key, headers)
        if not isinstance(answer, dict):
            raise ClientDecodeError(f"expected a JSON object, got {type(answer).__name__}")
        return cast("T", answer)

    async def _request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        empty: bool = False,
    ) -> Any:
        """Send a request and return the JSON of the response, None if it is to be ``empty``."""
        built = self._build_headers({**(headers or {}), **key_header(key)})

        async def once() -> Any:
            async with client_errors(), await self._send(method, path, body, built) as response:
                await raise_for_status(response)
                return None if empty else await read_json(response)

        return await self._repeated(once, key)

    async def _repeated(self, send: Callable[[], Awaitable[T]], key: str | None) -> T:
        """Send a request; with an idempotency key, until it gets a response.

        It is repeated within the client's timeout as long as that can help: after a lost
        connection, and after a 503 with ``Retry-After``.
        """
        if key is None:
            return await send()
        import aiohttp

        lost = (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, OSError)
        final = (TimeoutError, aiohttp.ClientSSLError)
        loop = asyncio.get_running_loop()
        ends, attempt = loop.time() + self.config.timeout, 0
        while True:
            wait = None
            try:
                async with asyncio.timeout_at(ends):
                    return await send()
            except TimeoutError as error:
                raise ClientHTTPError("MAIL client request failed: no response in time") from error
            except ClientHTTPError as error:
                cause = error.__cause__
                if error.status == _UNAVAILABLE:
                    wait = error.retry_after
                elif isinstance(cause, lost) and not isinstance(cause, final):
                    wait = self.reconnect.wait(attempt)
                in_time = wait is not None and loop.time() + wait < ends
                if wait is None or not in_time or attempt >= self.reconnect.tries:
                    raise
            attempt += 1
            await asyncio.sleep(wait)

    async def _open_stream(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        key: str | None = None,
        *,
        after: str = "",
        kinds: Collection[str] = ("text/event-stream",),
    ) -> "aiohttp.ClientResponse":
        """Send a request and return the unread response; the caller releases it.

        Args:
            method: The HTTP method.
            path: Path below the base URL.
            body: The JSON body; fields that are None are not sent.
            key: An idempotency key; see `_repeated`.
            after: The last event that was seen.
            kinds: The content types that the response may have.

        Raises:
            ClientHTTPError: there was no response, or its status is not 2xx.
            ClientDecodeError: the response is of another type.
        """
        seen = {"Last-Event-ID": after} if after else {}
        built = self._build_headers({"Accept": "text/event-stream", **key_header(key), **seen})

        async def once() -> "aiohttp.ClientResponse":
            async with client_errors():
                response = await self._send(method, path, body, built, streams=True)
                try:
                    await raise_for_status(response)
                    if response.content_type not in kinds:
                        start = (await response.content.read(_SHOWN)).decode(errors="replace")
                        kind = response.content_type
                        told = f"expected an event stream, got content type '{kind}': {start!r}"
                        raise ClientDecodeError(told)  # noqa: TRY301 - it is closed, too
                except BaseException:
                    response.close()
                    raise
                return response

        return await self._repeated(once, key)

    async def _send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        headers: dict[str, str],
        *,
        streams: bool = False,
        data: Any = None,
    ) -> "aiohttp.ClientResponse":
        import aiohttp

        options: dict[str, Any] = {} if data is None else {"data": data}
        if streams and self._owns_session:
            options["timeout"] = aiohttp.ClientTimeout(
                total=None, sock_connect=_CONNECT_TIMEOUT, sock_read=IDLE_TIMEOUT
            )
        if body is not None:
            options["json"] = present(body)
        self._trace("%s %s", method, path)
        session = self._open_session()
        options["allow_redirects"] = False  # never send the key and the message to another host
        response = await session.request(method, self.base_url + path, headers=headers, **options)
        self._trace("%s %s -> %s", method, path, response.status)
        return response

    def _open_session(self) -> "aiohttp.ClientSession":
        import aiohttp

        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=self.config.timeout)
            self._session = aiohttp.ClientSession(timeout=timeout)
            self._owns_session = True
        return self._session

    def _trace(self, text: str, *values: object) -> None:
        logger.log(logging.INFO if self.config.verbose else logging.DEBUG, text, *values)


@asynccontextmanager
async def client_errors() -> AsyncIterator[None]:
    """Convert aiohttp's exceptions to `ClientHTTPError`, with the original as the cause."""
    import aiohttp

    try:
        yield
    except ClientError:
        raise
    except TimeoutError as error:
        raise ClientHTTPError("MAIL client request failed: no response in time") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        # aiohttp's description of default certificates does not help with a mistyped address.
        reason = str(error).replace(" ssl:default", "") or type(error).__name__
        raise ClientHTTPError(f"MAIL client request failed: {reason}") from error


async def raise_for_status(response: "aiohttp.ClientResponse") -> None:
    """Raise a `ClientHTTPError` unless the status is 2xx; redirects are never followed."""
    if 200 <= response.status < 300:
        return
    decoded: Any = None
    if 300 <= response.status < 400:
        to = _without_secrets(response.headers.get("Location", ""))
        told = f"the server redirects to {to or 'nowhere'}; use the URL of that server instead"
        detail: object = told
    else:
        text = await _text(response)
        detail = " ".join(text.split())[:_SHOWN] or response.reason  # perhaps an HTML page
        with suppress(ValueError, RecursionError):
            decoded = json.loads(text)
    decoded = decoded if isinstance(decoded, dict) else {}
    detail, task_id = decoded.get("detail", detail), decoded.get("task_id")
    named = f" (task {task_id})" if task_id else ""
    after = response.headers.get("Retry-After", "")
    raise ClientHTTPError(
        f"HTTP request failed with status code {response.status}: {detail}{named}",
        status=response.status,
        detail=detail,
        task_id=task_id,
        retry_after=float(after) if re.fullmatch("[0-9]{1,9}", after) else None,  # no dates
    ) from _cause(response)


def _cause(response: "aiohttp.ClientResponse") -> "aiohttp.ClientResponseError":
    """Return aiohttp's own exception for a response, without the headers that hold the key."""
    import aiohttp
    from multidict import CIMultiDict, CIMultiDictProxy

    sent = response.request_info
    url = sent.url.with_user(None)
    shown = aiohttp.RequestInfo(url, sent.method, CIMultiDictProxy(CIMultiDict()), url)
    return aiohttp.ClientResponseError(
        shown, (), status=response.status, message=response.reason or ""
    )


def _without_secrets(url: str) -> str:
    """Return a URL without user, password, query and fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "an invalid URL"
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))[:_SHOWN]


async def read_json(response: "aiohttp.ClientResponse") -> Any:
    """Return the JSON of a response.

    Raises:
        ClientDecodeError: it has none.
    """
    text = await _text(response)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ClientDecodeError(
            f"expected JSON, got content type '{response.content_type}': {text[:_SHOWN]!r}"
        ) from error


async def _text(response: "aiohttp.ClientResponse") -> str:
    try:
        return await response.text(errors="replace")
    except LookupError:  # the charset is not a text encoding
        return (await response.read()).decode(errors="replace")


def key_header(key: str | None) -> dict[str, str]:
    return {} if key is None else {"Idempotency-Key": key}


def present(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields without those that are None."""
    return {name: value for name, value in fields.items() if value is not None}


def query_of(fields: Mapping[str, object]) -> str:
    """Return what stands behind a path, without what is not given."""
    given = [f"{name}={quote(str(value), safe='')}" for name, value in present(fields).items()]
    return f"?{'&'.join(given)}" if given else ""


def segment(name: str, taken: Collection[str] = ()) -> str:
    """Return an id as a part of a path, or what is nobody's id for one that leads elsewhere."""
    return "%20" if name in ("", ".", "..", *taken) else quote(name, safe="")
