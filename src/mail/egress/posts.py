"""Many posts to few servers, over connections that are kept.

Whom a connection leads to is checked as in `mail.egress.client`: the host of an address that is a
literal before each request, that of a name when a connection is made, which leads to exactly the
checked addresses. It does with aiohttp what takes several times as long with httpx.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mail.egress.bodies import LimitedBody, read_limited
from mail.egress.client import PORTS, Resolve, checked_addresses, system_addresses
from mail.egress.rules import (
    EgressPolicy,
    FetchError,
    RefusedAddress,
    check_addresses,
    check_host,
    literal_address,
)

if TYPE_CHECKING:
    import aiohttp
    from yarl import URL

_CONNECT_SECONDS: Final = 5.0
_IDLE_SECONDS: Final = 4.0  # servers often close after five
_REMEMBERED_SECONDS: Final = 10
_MAX_ADDRESSES: Final = 4


class PostAnswer(NamedTuple):
    """A server's answer: its status, one header, and the body."""

    status: int
    retry_after: str
    body: LimitedBody


class GuardedPosts:
    """Posts to public addresses, and to those that a policy allows.

    It follows no redirect, takes no proxy from the environment, and keeps no cookie. A connection
    is used again for the same scheme, host name and port only.

    Args:
        policy: The permitted addresses beside public ones.
        user_agent: The name that it goes by.
        resolve: Answers what addresses a host has; the system's resolver by default. Checked
            addresses of a host may be used for some seconds.
    """

    def __init__(
        self, policy: EgressPolicy, user_agent: str, resolve: Resolve | None = None
    ) -> None:
        import aiohttp

        self._policy = policy
        self._tls: Any = None
        connector = aiohttp.TCPConnector(
            limit=0,
            keepalive_timeout=_IDLE_SECONDS,
            resolver=_resolver()(policy, resolve or system_addresses),
            ttl_dns_cache=_REMEMBERED_SECONDS,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers={"User-Agent": user_agent, "Accept-Encoding": "identity"},
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
        )

    async def aclose(self) -> None:
        """Close the connections, and with them what is under way."""
        await self._session.close()

    async def post(
        self,
        url: str,
        headers: Mapping[str, str],
        content: bytes,
        *,
        seconds: float,
        max_bytes: int,
    ) -> PostAnswer:
        """Post to an address; credentials in it are left out.

        Args:
            url: The address.
            headers: The request's headers.
            content: Its body.
            seconds: The deadline of the whole request.
            max_bytes: The part of the answer that is read.

        Raises:
            RefusedAddress: the address may not be reached; nothing was sent.
            FetchError: there is no answer, or it breaks off. Its text has no address.
        """
        import aiohttp

        try:
            async with asyncio.timeout(seconds):
                return await self._post(url, headers, content, max_bytes)
        except aiohttp.ServerTimeoutError:
            raise FetchError("no answer in time") from None
        except TimeoutError:
            raise FetchError(f"no answer within {seconds:g} seconds") from None
        except aiohttp.ClientConnectorError:
            raise FetchError("the connection failed") from None
        except FetchError:
            raise
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise FetchError(f"the request failed ({type(error).__name__})") from None

    async def _post(
        self, url: str, headers: Mapping[str, str], content: bytes, max_bytes: int
    ) -> PostAnswer:
        import aiohttp

        target = self._target(url)
        if target.scheme == "https" and self._tls is None:
            import httpx

            self._tls = httpx.create_ssl_context()
        async with self._session.post(
            target,
            headers=headers,
            data=content,
            allow_redirects=False,
            ssl=self._tls if target.scheme == "https" else True,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
        ) as response:
            encoding = response.headers.get("Content-Encoding", "identity")
            body = await read_limited(encoding, _pieces(response), max_bytes)
            if not body.complete:
                response.close()  # what was not read cannot be followed by another answer
            retry_after = response.headers.get("Retry-After", "")
            return PostAnswer(response.status, retry_after, body)

    def _target(self, url: str) -> "URL":
        """Return an address as it is requested; one with a literal has been checked."""
        from yarl import URL

        try:
            parsed = URL(url)
            host, port = parsed.raw_host or "", parsed.port
        except ValueError:
            raise FetchError("the address is not a valid URL") from None
        host = check_host(parsed.scheme, host, self._policy)
        port = port if port is not None else PORTS[parsed.scheme]
        if not port:
            raise RefusedAddress(f"{port} is not a valid port")
        if literal_address(host) is not None:
            check_addresses(host, port, [host], self._policy)
        return parsed.with_user(None).with_host(host)


async def _pieces(response: "aiohttp.ClientResponse") -> AsyncGenerator[bytes, None]:
    while piece := await response.content.readany():
        yield piece


@cache
def _resolver() -> Any:
    """Return the class of resolvers that give checked addresses only."""
    from aiohttp.abc import AbstractResolver, ResolveResult

    class GuardedResolver(AbstractResolver):
        def __init__(self, policy: EgressPolicy, look_up: Resolve) -> None:
            self._policy = policy
            self._look_up = look_up

        async def resolve(
            self, host: str, port: int = 0, family: Any = socket.AF_INET
        ) -> list[ResolveResult]:
            addresses = await checked_addresses(host, port, self._policy, self._look_up)
            return [
                ResolveResult(
                    hostname=host,
                    host=str(address),
                    port=port,
                    family=socket.AF_INET if address.version == 4 else socket.AF_INET6,
                    proto=0,
                    flags=socket.AI_NUMERICHOST,
                )
                for address in addresses[:_MAX_ADDRESSES]
            ]

        async def close(self) -> None:
            pass

    return GuardedResolver
