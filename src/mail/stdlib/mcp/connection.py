"""Connect to an MCP server over streamable HTTP, through the same check as every request.

The official SDK speaks HTTP with httpx2, a library shaped like httpx, so the guard fits it as it
is. This module is imported when an action is called: the SDK is large.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar, cast

import httpx2
from mcp import MCPError
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from pydantic import ValidationError

from mail.config.stdlib import HttpConfig
from mail.egress.client import GuardedTransport, failure_text, split_credentials
from mail.egress.rules import FetchError
from mail.errors import ToolError
from mail.stdlib.settings import egress_policy
from mail.stdlib.tools import USER_AGENT

Result = TypeVar("Result")

_GOODBYE: Final = 2.0


async def with_server(
    server_url: str,
    use: Callable[[Client], Awaitable[Result]],
    *,
    headers: Mapping[str, str] | None = None,
    seconds: float | None = None,
) -> Result:
    """Connect to a server, use it, and disconnect.

    What the use came to is kept, whatever happens while disconnecting, which gets two seconds of
    its own.

    Args:
        server_url: The address of its streamable HTTP endpoint; credentials in it are sent as
            Basic authentication.
        use: The work on the connection; it must be done within ``[stdlib.http] timeout``, and
            the server may send ``max_bytes`` meanwhile.
        headers: Sent with each request.
        seconds: A limit in place of that timeout.

    Raises:
        FetchError: the address is refused, or there is no usable answer.
        ToolError: the server refuses the request.
        ConfigError: the settings are wrong.
    """
    config = HttpConfig()
    if seconds is not None:
        config = config.model_copy(update={"timeout": seconds})
    guard = _RememberingTransport(
        GuardedTransport(
            egress_policy(config),
            system_transport(),
            unreachable=(httpx2.ConnectError, httpx2.ConnectTimeout),
        ),
        config.max_bytes,
    )
    outcome: Future[Result] = Future()
    limit = asyncio.timeout(config.timeout)

    async def keep(client: Client) -> None:
        try:
            outcome.set_result(await use(client))
        except Exception as error:  # noqa: BLE001 - told to the agent
            outcome.set_exception(_reason(error, guard))
        if not limit.expired():
            limit.reschedule(asyncio.get_running_loop().time() + _GOODBYE)

    try:
        async with limit, _session(server_url, config, headers or {}, guard) as client:
            await keep(client)
    except Exception as error:  # noqa: BLE001 - the SDK wraps what happened in groups of its own
        if not outcome.done():
            late = FetchError(f"no complete answer within {config.timeout:g} seconds")
            outcome.set_exception(late if limit.expired() else _reason(error, guard))
    return outcome.result()


@asynccontextmanager
async def _session(
    server_url: str, config: HttpConfig, more: Mapping[str, str], guard: "_RememberingTransport"
) -> AsyncIterator[Client]:
    url, headers = _split(server_url)
    http = httpx2.AsyncClient(
        transport=guard, timeout=config.timeout, headers=headers | dict(more), trust_env=False
    )
    async with http:
        limit = config.max_bytes
        transport = streamable_http_client(url, http_client=http, max_sse_event_size=limit)
        async with Client(transport, read_timeout_seconds=config.timeout, cache=None) as client:
            yield client


def system_transport() -> httpx2.AsyncBaseTransport:
    """Return what makes the connections; none is kept for a second request."""
    return httpx2.AsyncHTTPTransport(limits=httpx2.Limits(max_keepalive_connections=0))


class _RememberingTransport(httpx2.AsyncBaseTransport):
    """Bounds what all answers of a call have together, and keeps the first failure for the text."""

    def __init__(self, guard: GuardedTransport, max_bytes: int) -> None:
        self._guard = guard
        self._max_bytes = max_bytes
        self._left = max_bytes
        self.failure: FetchError | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            response = cast("httpx2.Response", await self._guard.handle_async_request(request))
        except FetchError as error:
            self.failure = self.failure or error
            raise
        except httpx2.TransportError as error:
            self.failure = self.failure or FetchError(failure_text(error))
            raise
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            await response.aclose()
            self.failure = FetchError("the answer is compressed, which was not requested")
            raise self.failure
        stream = cast("httpx2.AsyncByteStream", response.stream)
        response.stream = _Counted(stream, self._count)
        return response

    def _count(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            self.failure = FetchError(f"the answer is longer than {self._max_bytes} bytes")
            raise self.failure

    async def aclose(self) -> None:
        await self._guard.aclose()


class _Counted(httpx2.AsyncByteStream):
    """A body whose bytes are counted, and that breaks off when counting raises."""

    def __init__(self, stream: httpx2.AsyncByteStream, count: Callable[[int], None]) -> None:
        self._stream = stream
        self._count = count

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            self._count(len(piece))
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


def _split(server_url: str) -> tuple[str, dict[str, str]]:
    try:
        url, credentials = split_credentials(httpx2.URL(server_url))
    except (httpx2.InvalidURL, ValueError):
        raise FetchError("the address is not a valid URL") from None
    return str(url), {"User-Agent": USER_AGENT, "Accept-Encoding": "identity", **credentials}


def _reason(error: BaseException, guard: _RememberingTransport) -> ToolError | FetchError:
    """Return what to tell; what the transport met says more than the session that broke of it."""
    if isinstance(error, FetchError | ToolError):
        return error
    found: Any = guard.failure or error
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    if isinstance(found, FetchError | ToolError):
        return found
    if isinstance(found, MCPError):
        return ToolError(f"the MCP server refused: {found.message[:2000]}")
    if isinstance(found, ValidationError):
        return FetchError("the MCP server's answer does not follow the protocol")
    if isinstance(found, httpx2.TransportError):
        return FetchError(failure_text(found))
    return FetchError(f"the exchange with the MCP server failed ({type(found).__name__})")
