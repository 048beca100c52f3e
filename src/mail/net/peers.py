"""What a server asks other servers before it trusts them with anything: who they are, how they are.

No redirect is followed, every address is checked when the connection is made, and an answer may
take only so long and be only so large.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from mail.egress.client import (
    EgressPolicy,
    FetchError,
    NotPublic,
    Resolve,
    failure_text,
    guarded_client,
    guarded_request,
    read_body,
)
from mail.egress.rules import check_addresses, literal_address
from mail.version import get_version

if TYPE_CHECKING:
    import httpx

__all__ = ["PeerAccess"]

SECONDS: Final = 10.0
_LARGEST_ANSWER: Final = 64 * 1024
_LARGEST_LISTING: Final = 1024 * 1024
_OK: Final = 200
_REDIRECTS: Final = range(300, 400)
_PRIVATE_TOO: Final = EgressPolicy(private=True)
"""Allows all addresses but link-local ones and those of a cloud's metadata."""


@dataclass(frozen=True)
class PeerAccess:
    """How other servers are reached.

    Attributes:
        policy: Which addresses may be.
        setting: What allows private addresses; named when one is refused.
        resolve: Answers what addresses a host has; the system's resolver by default.
        transport: Makes the connections; for tests.
    """

    policy: EgressPolicy = _PRIVATE_TOO
    setting: str | None = None
    resolve: Resolve | None = None
    transport: "httpx.AsyncBaseTransport | None" = None

    @classmethod
    def of_server(cls, allow_private: bool) -> "PeerAccess":
        """Return how a server reaches others: private addresses only where its settings say so."""
        policy = _PRIVATE_TOO if allow_private else EgressPolicy()
        return cls(policy, "[server.federation] allow_private")

    def client(self) -> "httpx.AsyncClient":
        """Return a client that reaches nothing else."""
        agent = {"User-Agent": f"MAIL-Registry/{get_version()}"}
        return guarded_client(
            self.policy,
            timeout=SECONDS,
            resolve=self.resolve,
            transport=self.transport,
            headers=agent,
        )

    def check_literal(self, url: str) -> None:
        """Refuse a URL with an IP address that must not be reached; a name is not resolved.

        Raises:
            NotPublic: it is one.
        """
        parts = urlsplit(url)
        host = (parts.hostname or "").removesuffix(".")
        if literal_address(host) is not None:
            try:
                check_addresses(host, parts.port or 0, [host], self.policy)
            except NotPublic as error:
                raise NotPublic(self._explained(error)) from None

    async def check_health(self, client: "httpx.AsyncClient", url: str) -> None:
        """Ask an address for nothing but a 200.

        Raises:
            FetchError: it does not answer like that.
        """
        async with self._answer(client, url):
            pass

    async def get_object(self, client: "httpx.AsyncClient", url: str) -> dict[str, Any]:
        """Return the JSON object at an address.

        Raises:
            FetchError: there is none.
        """
        return await self._object(client, url, _LARGEST_ANSWER)

    async def get_listing(self, client: "httpx.AsyncClient", base_url: str) -> list[Any]:
        """Return the swarms that a server lists.

        Raises:
            FetchError: it lists none.
        """
        answer = await self._object(client, f"{base_url.rstrip('/')}/swarms", _LARGEST_LISTING)
        swarms = answer.get("swarms")
        if not isinstance(swarms, list):
            raise FetchError("it is not a MAIL server")
        return swarms

    async def _object(
        self, client: "httpx.AsyncClient", url: str, max_bytes: int
    ) -> dict[str, Any]:
        from pydantic_core import from_json

        async with self._answer(client, url) as response:
            body = await read_body(response, max_bytes)
        if not body.complete:
            raise FetchError(f"its answer is larger than {max_bytes} bytes")
        try:
            answer = from_json(body.data, allow_inf_nan=False)
        except ValueError:
            raise FetchError("it is not a MAIL server: its answer is not JSON") from None
        if not isinstance(answer, dict):
            raise FetchError("it is not a MAIL server: its answer is not a JSON object")
        return answer

    @asynccontextmanager
    async def _answer(
        self, client: "httpx.AsyncClient", url: str
    ) -> AsyncIterator["httpx.Response"]:
        """Send a GET and give its answer, unread; everything together within ten seconds."""
        import httpx

        request = guarded_request(client, "GET", url, headers={"Accept": "application/json"})
        try:
            async with asyncio.timeout(SECONDS):
                response = await client.send(request, stream=True, follow_redirects=False)
                try:
                    _check_status(response.status_code)
                    yield response
                finally:
                    await response.aclose()
        except TimeoutError:
            raise FetchError(f"no answer within {SECONDS:g} seconds") from None
        except NotPublic as error:
            raise NotPublic(self._explained(error)) from None
        except FetchError:
            raise
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise FetchError(failure_text(error)) from None

    def _explained(self, error: NotPublic) -> str:
        if self.setting is None or self.policy.private:
            return str(error)
        return f"{error}; {self.setting} allows loopback and private addresses"


def _check_status(status: int) -> None:
    if status in _REDIRECTS:
        raise FetchError("it answers with a redirect; use the address that this leads to")
    if status != _OK:
        raise FetchError(f"it answers with status {status}")
