"""The client's HTTP layer: the session, headers, JSON, error handling and repeats."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar
from urllib.parse import urlsplit, urlunsplit

from mail.config.client import ClientConfig
from mail.errors import ClientDecodeError, ClientError, ClientHTTPError, ConfigError
from mail.version import get_version

if TYPE_CHECKING:
    import aiohttp

T = TypeVar("T")

_UNAVAILABLE: Final = 503


_SHOWN: Final = 500
_LONG: Final = 10
_CONNECT_TIMEOUT: Final = 30.0


logger = logging.getLogger("mail.client")


@dataclass(frozen=True, slots=True)
class Reconnect:
    """Retry limits: attempts in a row without a response, first and longest wait in seconds."""

    tries: int = 10
    first_wait: float = 0.2
    longest_wait: float = 5.0

    def wait(self, attempt: int, asked: float = 0.0) -> float:
        """Return the seconds to wait before an attempt.

        Args:
            attempt: The number of failed attempts so far.
            asked: The wait requested by the server (``retry:``), limited by `longest_wait`. The
                first attempt ignores it, because most interruptions are brief.
        """
        own = self.first_wait * 2.0**attempt
        return min(max(own, asked if attempt else 0.0), self.longest_wait)


async def repeated(send: Callable[[], Awaitable[T]], seconds: float, reconnect: Reconnect) -> T:
    """Send a request until it gets a response, as long as a retry can help and there is time.

    A retry can help after a lost connection, and after a 503 with ``Retry-After``.

    Args:
        send: Sends the request with its key.
        seconds: Time limit for all attempts together.
        reconnect: The retry limits.

    Raises:
        ClientHTTPError: from the last attempt, or because the time is up.
    """
    loop = asyncio.get_running_loop()
    ends = loop.time() + seconds
    attempt = 0
    while True:
        try:
            async with asyncio.timeout_at(ends):
                return await send()
        except TimeoutError as error:
            raise ClientHTTPError("MAIL client request failed: no response in time") from error
        except ClientHTTPError as error:
            wait = _wait_after(error, attempt, reconnect)
            if wait is None or attempt >= reconnect.tries or loop.time() + wait >= ends:
                raise
        attempt += 1
        await asyncio.sleep(wait)


def _wait_after(error: ClientHTTPError, attempt: int, reconnect: Reconnect) -> float | None:
    """Return how long to wait before a retry; None if a retry would not help."""
    import aiohttp

    if error.status == _UNAVAILABLE:
        return error.retry_after
    if isinstance(error.__cause__, TimeoutError | aiohttp.ClientSSLError):
        return None
    lost = (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, OSError)
    return reconnect.wait(attempt) if isinstance(error.__cause__, lost) else None


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

    async def _request_json(
        self,
        method: str,
        path: str,
        *,
        payload: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        ignore_auth: bool = False,
        idempotency_key: str | None = None,
    ) -> Any:
        """Send a request and return the JSON of the response.

        With an idempotency key, the request is repeated after a lost connection; see `repeated`.

        Raises:
            ClientHTTPError: there was no response, or its status is not 2xx.
            ClientDecodeError: the response is not JSON.
        """
        keyed = {**(headers or {}), **key_header(idempotency_key)}
        built = self._build_headers(keyed, ignore_auth)

        async def once() -> Any:
            async with client_errors(), await self._send(method, path, payload, built) as response:
                await raise_for_status(response)
                return await read_json(response)

        return await self._repeated(once, idempotency_key)

    async def _request_object(
        self,
        method: str,
        path: str,
        payload: dict[str, Any] | None = None,
        idempotency_key: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        """Send a request and return the object that it is answered with.

        Raises:
            ClientHTTPError: there was no response, or its status is not 2xx.
            ClientDecodeError: the response is not a JSON object.
        """
        answer = await self._request_json(
            method, path, payload=payload, headers=headers, idempotency_key=idempotency_key
        )
        if not isinstance(answer, dict):
            raise ClientDecodeError(f"expected a JSON object, got {type(answer).__name__}")
        return answer

    async def _request_nothing(self, method: str, path: str) -> None:
        """Send a request whose answer has no content.

        Raises:
            ClientHTTPError: there was no response, or its status is not 2xx.
        """
        built = self._build_headers({}, False)
        async with client_errors(), await self._send(method, path, None, built) as response:
            await raise_for_status(response)

    async def _repeated(self, send: Callable[[], Awaitable[T]], key: str | None) -> T:
        if key is None:
            return await send()
        return await repeated(send, self.config.timeout, self.reconnect)

    async def _open_stream(
        self,
        method: str,
        path: str,
        *,
        payload: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        idle_timeout: float,
        idempotency_key: str | None = None,
        kinds: Collection[str] = ("text/event-stream",),
    ) -> "aiohttp.ClientResponse":
        """Send a request and return the unread response; the caller releases it.

        Args:
            method: The HTTP method.
            path: Path below the base URL.
            payload: The JSON body.
            headers: Further headers.
            idle_timeout: Seconds without a byte after which reading fails (own sessions only).
            idempotency_key: With it, the request is repeated after a lost connection.
            kinds: The content types that the response may have.

        Raises:
            ClientHTTPError: there was no response, or its status is not 2xx.
            ClientDecodeError: the response is of another type.
        """
        keyed = {**(headers or {}), **key_header(idempotency_key)}
        built = self._build_headers({"Accept": "text/event-stream", **keyed})

        async def once() -> "aiohttp.ClientResponse":
            async with client_errors():
                response = await self._send(method, path, payload, built, idle_timeout)
                try:
                    await raise_for_status(response)
                    await _expect_events(response, kinds)
                except BaseException:
                    response.close()
                    raise
                return response

        return await self._repeated(once, idempotency_key)

    async def _send(
        self,
        method: str,
        path: str,
        payload: Mapping[str, Any] | None,
        headers: dict[str, str],
        idle_timeout: float | None = None,
        data: Any = None,
    ) -> "aiohttp.ClientResponse":
        import aiohttp

        options: dict[str, Any] = {} if data is None else {"data": data}
        if idle_timeout is not None and self._owns_session:
            options["timeout"] = aiohttp.ClientTimeout(
                total=None, sock_connect=_CONNECT_TIMEOUT, sock_read=idle_timeout
            )
        if payload is not None:
            options["json"] = payload
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
    if 200 <= response.status < 300:
        return
    if 300 <= response.status < 400:
        raise _redirected(response) from _cause(response)
    text = await _text(response)
    detail: object = " ".join(text.split())[:_SHOWN] or response.reason  # perhaps an HTML page
    try:
        decoded = json.loads(text)
    except (ValueError, RecursionError):
        decoded = None
    if isinstance(decoded, dict) and "detail" in decoded:
        detail = decoded["detail"]
    task_id = decoded.get("task_id") if isinstance(decoded, dict) else None
    named = f" (task {task_id})" if task_id else ""
    raise ClientHTTPError(
        f"HTTP request failed with status code {response.status}: {detail}{named}",
        status=response.status,
        detail=detail,
        task_id=task_id,
        retry_after=_seconds(response.headers.get("Retry-After", "")),
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


def key_header(key: str | None) -> dict[str, str]:
    return {} if key is None else {"Idempotency-Key": key}


def _seconds(text: str) -> float | None:
    """Read a ``Retry-After`` in seconds; a date is ignored."""
    return float(text) if text.isascii() and text.isdigit() and len(text) < _LONG else None


def _redirected(response: "aiohttp.ClientResponse") -> ClientHTTPError:
    """Return an error that names the target of a redirect, which is never followed."""
    to = _without_secrets(response.headers.get("Location", ""))
    detail = f"the server redirects to {to or 'nowhere'}; use the URL of that server instead"
    return ClientHTTPError(
        f"HTTP request failed with status code {response.status}: {detail}",
        status=response.status,
        detail=detail,
    )


def _without_secrets(url: str) -> str:
    """Return a URL without user, password, query and fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "an invalid URL"
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))[:_SHOWN]


async def _expect_events(response: "aiohttp.ClientResponse", kinds: Collection[str]) -> None:
    if response.content_type not in kinds:
        start = (await response.content.read(_SHOWN)).decode(errors="replace")
        raise ClientDecodeError(
            f"expected an event stream, got content type '{response.content_type}': {start!r}"
        )


async def _text(response: "aiohttp.ClientResponse") -> str:
    try:
        return await response.text(errors="replace")
    except LookupError:  # the charset is not a text encoding
        return (await response.read()).decode(errors="replace")


async def read_json(response: "aiohttp.ClientResponse") -> Any:
    text = "(in an unknown encoding)"
    try:
        text = await response.text(errors="replace")
        return json.loads(text)
    except (ValueError, LookupError, RecursionError) as error:
        raise ClientDecodeError(
            f"expected JSON, got content type '{response.content_type}': {text[:_SHOWN]!r}"
        ) from error
