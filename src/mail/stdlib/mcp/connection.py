"""Connect to an MCP server over streamable HTTP, through the same check as every request.

The official SDK speaks HTTP with httpx2, a library shaped like httpx, so the guard fits it as it
is. This module is imported when an action is called: the SDK is large.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar, cast

import httpx2
from mcp import MCPError
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from pydantic import ValidationError

from mail.config.stdlib import HttpConfig
from mail.errors import ToolError
from mail.stdlib.http.requests import USER_AGENT
from mail.stdlib.settings import egress_policy
from mail.utils.egress import FetchError, GuardedTransport, failure_text, split_credentials

__all__ = ["system_transport", "with_server"]

Result = TypeVar("Result")


async def with_server(server_url: str, use: Callable[[Client], Awaitable[Result]]) -> Result:
    """Connect to a server, use it, and disconnect.

    Args:
        server_url: The address of its streamable HTTP endpoint; credentials in it are sent as
            Basic authentication.
        use: What to do with the connection; it must be done within ``[stdlib.http] timeout``.

    Raises:
        FetchError: the address is refused, or there is no usable answer.
        ToolError: the server refuses the request.
        ConfigError: the settings are wrong.
    """
    config = HttpConfig()
    guard = _RememberingTransport(
        GuardedTransport(
            egress_policy(config),
            system_transport(),
            unreachable=(httpx2.ConnectError, httpx2.ConnectTimeout),
        ),
        config.max_bytes,
    )
    try:
        async with asyncio.timeout(config.timeout):
            return await _used(server_url, config, guard, use)
    except TimeoutError:
        raise FetchError(f"no complete answer within {config.timeout:g} seconds") from None
    except (FetchError, ToolError):
        raise
    except Exception as error:  # noqa: BLE001 - the SDK wraps what happened in groups of its own
        # What the transport met says more than the broken session that came of it.
        raise guard.failure or _told(error) from None


async def _used(
    server_url: str,
    config: HttpConfig,
    guard: "_RememberingTransport",
    use: Callable[[Client], Awaitable[Result]],
) -> Result:
    url, headers = _split(server_url)
    client = httpx2.AsyncClient(
        transport=guard, timeout=config.timeout, headers=headers, trust_env=False
    )
    async with client:
        transport = streamable_http_client(
            url, http_client=client, max_sse_event_size=config.max_bytes
        )
        session = Client(transport, read_timeout_seconds=config.timeout, cache=None)
        async with session:
            return await use(session)


def system_transport() -> httpx2.AsyncBaseTransport:
    """Return what makes the connections; none is kept for a second request."""
    return httpx2.AsyncHTTPTransport(limits=httpx2.Limits(max_keepalive_connections=0))


class _RememberingTransport(httpx2.AsyncBaseTransport):
    """Bounds each answer, and keeps the first failure for the error text."""

    def __init__(self, guard: GuardedTransport, max_bytes: int) -> None:
        self._guard = guard
        self._max_bytes = max_bytes
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
            self.failure = FetchError("the answer is compressed, which was not asked for")
            raise self.failure
        stream = cast("httpx2.AsyncByteStream", response.stream)
        response.stream = _Bounded(stream, self._max_bytes, self._too_large)
        return response

    def _too_large(self) -> FetchError:
        self.failure = FetchError(f"the answer is longer than {self._max_bytes} bytes")
        return self.failure

    async def aclose(self) -> None:
        await self._guard.aclose()


class _Bounded(httpx2.AsyncByteStream):
    """A body that breaks off with an error beyond its limit."""

    def __init__(
        self, stream: httpx2.AsyncByteStream, max_bytes: int, refuse: Callable[[], FetchError]
    ) -> None:
        self._stream = stream
        self._left = max_bytes
        self._refuse = refuse

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            self._left -= len(piece)
            if self._left < 0:
                raise self._refuse()
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


def _split(server_url: str) -> tuple[str, dict[str, str]]:
    try:
        url, credentials = split_credentials(httpx2.URL(server_url))
    except (httpx2.InvalidURL, ValueError):
        raise FetchError("the address is not a valid URL") from None
    return str(url), {"User-Agent": USER_AGENT, "Accept-Encoding": "identity", **credentials}


def _told(error: BaseException) -> ToolError | FetchError:
    found: Any = error
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    if isinstance(found, FetchError | ToolError):
        return found
    if isinstance(found, MCPError):
        return ToolError(f"the MCP server refused: {found.message[:2000]}")
    if isinstance(found, ValidationError):
        return FetchError("the MCP server's answer does not fit the protocol")
    if isinstance(found, httpx2.TransportError):
        return FetchError(failure_text(found))
    return FetchError(f"the exchange with the MCP server failed ({type(found).__name__})")
