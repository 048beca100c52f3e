"""Requests to other servers: for their identity, for their health, and with mail.

No redirect is followed, every address is checked when the connection is made, and an answer may
take only so long and be only so large.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import responses
from typing import TYPE_CHECKING, Any, Final

from mail import traces
from mail.egress.bodies import LimitedBody, read_body
from mail.egress.client import (
    Resolve,
    failure_text,
    guarded_client,
    guarded_request,
)
from mail.egress.posts import GuardedPosts
from mail.egress.rules import EgressPolicy, FetchError, NoAnswer, NotPublic
from mail.errors import MAILError, RoutingError
from mail.redaction import redact
from mail.version import get_version

if TYPE_CHECKING:
    import httpx

    from mail.net.signatures import SigningKeys

SECONDS: Final = 10.0
_CONNECT_SECONDS: Final = 5.0
_LARGEST_ANSWER: Final = 64 * 1024
_LARGEST_LISTING: Final = 1024 * 1024
_LARGE: Final = 64 * 1024
"""Bytes of a body that is not signed on the event loop."""
_LONGEST_DETAIL: Final = 500
_LONGEST_NUMBER: Final = 9
_OK: Final = 200
_REDIRECTS: Final = range(300, 400)
_AWAY: Final = (502, 503, 504)  # the server stops, or a proxy does not find it
_PRIVATE_TOO: Final = EgressPolicy(private=True)


@dataclass(frozen=True)
class PeerAccess:
    """The rules and means of requests to other servers.

    Attributes:
        policy: The addresses that are permitted.
        setting: The setting that permits loopback and private addresses; refusals name it.
        resolve: Looks up the addresses of a host; by default the system's resolver does.
        transport: Makes the connections; for tests.
        keys: The keys that sign posts; None sends them unsigned.
    """

    policy: EgressPolicy = _PRIVATE_TOO
    setting: str | None = None
    resolve: Resolve | None = None
    transport: "httpx.AsyncBaseTransport | None" = None
    keys: "SigningKeys | None" = None

    @classmethod
    def of_server(cls, allow_private: bool, keys: "SigningKeys | None" = None) -> "PeerAccess":
        """Return how a server reaches others: at loopback addresses if they are named as such."""
        policy = EgressPolicy(private=allow_private, loopback=True)
        return cls(policy, "[server.federation] allow_private", keys=keys)

    def client(self, user_agent: str = "") -> "httpx.AsyncClient":
        """Return a client that reaches nothing else; without a name, it is the registry's."""
        return guarded_client(
            self.policy,
            timeout=SECONDS,
            resolve=self.resolve,
            transport=self.transport,
            headers={"User-Agent": user_agent or f"MAIL-Registry/{get_version()}"},
        )

    def posts(self, user_agent: str) -> GuardedPosts:
        """Return what delivers much mail, over connections that are kept."""
        return GuardedPosts(self.policy, user_agent, self.resolve)

    async def check_health(self, client: "httpx.AsyncClient", url: str) -> None:
        """Ask an address for nothing but a 200.

        Raises:
            FetchError: it does not answer like that.
        """
        async with self._found(client, url):
            pass

    async def get_object(
        self, client: "httpx.AsyncClient", url: str, max_bytes: int = _LARGEST_ANSWER
    ) -> dict[str, Any]:
        """Return the JSON object at an address, which has at most so many bytes.

        Raises:
            FetchError: there is none.
        """
        async with self._found(client, url) as response:
            body = await read_body(response, max_bytes)
        if not body.complete:
            raise FetchError(f"its answer is larger than {max_bytes} bytes")
        answer = _object_in(body.data)
        if answer is None:
            raise FetchError("it is not a MAIL server: its answer is not a JSON object")
        return answer

    async def get_listing(self, client: "httpx.AsyncClient", base_url: str) -> list[Any]:
        """Return the swarms that a server lists.

        Raises:
            FetchError: it lists none.
        """
        answer = await self.get_object(client, f"{base_url.rstrip('/')}/swarms", _LARGEST_LISTING)
        swarms = answer.get("swarms")
        if not isinstance(swarms, list):
            raise FetchError("it is not a MAIL server")
        return swarms

    @asynccontextmanager
    async def _found(
        self, client: "httpx.AsyncClient", url: str
    ) -> AsyncIterator["httpx.Response"]:
        """Send a GET and give its answer, unread, when that is a 200."""
        accept = {"Accept": "application/json"}
        async with self.answer(client, "GET", url, headers=accept) as response:
            status = response.status_code
            if status in _REDIRECTS:
                raise FetchError("it answers with a redirect; use the address that this leads to")
            if status != _OK:
                kind = NoAnswer if status in _AWAY else FetchError
                raise kind(f"it answers with status {status}")
            yield response

    @asynccontextmanager
    async def answer(
        self,
        client: "httpx.AsyncClient",
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        content: bytes | None = None,
        seconds: float | None = SECONDS,
        idle_seconds: float = SECONDS,
    ) -> AsyncIterator["httpx.Response"]:
        """Send a request and give its answer, unread, whatever its status. It follows no redirect.

        Args:
            client: The client that sends it.
            method: The request's method.
            url: Its address.
            headers: Its headers.
            content: Its body.
            seconds: The deadline of the whole request; None is no limit.
            idle_seconds: The longest time without a byte.

        Raises:
            FetchError: there is no answer, or it breaks off.
            RoutingError: it cannot be signed.
        """
        import httpx

        if content is not None:
            headers = {**headers, **await self._signature(method, url, content)}
            headers |= traces.noted({})  # of a person who asks another swarm
        limits = httpx.Timeout(idle_seconds, connect=_CONNECT_SECONDS, pool=None)
        request = guarded_request(
            client, method, url, headers=headers, content=content, timeout=limits
        )
        try:
            async with asyncio.timeout(seconds):
                response = await client.send(request, stream=True, follow_redirects=False)
                try:
                    yield response
                finally:
                    await response.aclose()
        except TimeoutError:
            raise NoAnswer(f"no answer within {seconds or idle_seconds:g} seconds") from None
        except NotPublic as error:
            raise NotPublic(self._explained(error)) from None
        except MAILError:
            raise
        except httpx.TransportError as error:
            raise NoAnswer(failure_text(error)) from None
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise FetchError(failure_text(error)) from None

    async def post_object(
        self,
        client: "httpx.AsyncClient",
        url: str,
        body: Mapping[str, Any],
        token: str,
        *,
        seconds: float,
        max_bytes: int,
    ) -> dict[str, Any]:
        """Post a JSON object and return the one that is the answer.

        Args:
            client: The client that sends it.
            url: The address.
            body: The object.
            token: The bearer token.
            seconds: The deadline of the whole request.
            max_bytes: The size limit of the answer.

        Raises:
            RoutingError: there is no such answer, or another status than 200.
        """
        from pydantic_core import to_json

        try:
            async with self.answer(
                client,
                "POST",
                url,
                headers=bearer(token, "application/json"),
                content=to_json(body),
                seconds=seconds,
                idle_seconds=seconds + 1,
            ) as response:
                await check_accepted(response, token)
                data = await read_body(response, max_bytes)
        except FetchError as error:
            raise RoutingError(str(error)) from None
        return _answered(data)

    async def deliver(
        self,
        posts: GuardedPosts,
        url: str,
        body: Mapping[str, Any],
        token: str,
        *,
        seconds: float,
        max_bytes: int,
    ) -> dict[str, Any]:
        """Do as `post_object`, over connections that are kept for much mail."""
        from pydantic_core import to_json

        content = to_json(body)
        headers = bearer(token, "application/json") | await self._signature("POST", url, content)
        headers |= traces.headers(body["message"]["payload"].get("routing_info") or {})
        try:
            answer = await posts.post(url, headers, content, seconds=seconds, max_bytes=max_bytes)
        except NotPublic as error:
            raise RoutingError(self._explained(error)) from None
        except FetchError as error:
            raise RoutingError(str(error)) from None
        if answer.status != _OK:
            raise _refusal(answer.status, answer.retry_after, answer.body.data, token)
        return _answered(answer.body)

    async def _signature(self, method: str, url: str, content: bytes) -> dict[str, str]:
        """Return the headers that sign a request; none without keys."""
        if self.keys is None:
            return {}
        if len(content) <= _LARGE:
            return self.keys.headers(method, url, content)
        return await asyncio.to_thread(self.keys.headers, method, url, content)

    def _explained(self, error: NotPublic) -> str:
        if self.setting is None or self.policy.private:
            return str(error)
        return f"{error}; {self.setting} allows loopback and private addresses"


def bearer(token: str, accept: str) -> dict[str, str]:
    """Return the headers of a request with a token that sends JSON."""
    return {
        "Content-Type": "application/json",
        "Accept": accept,
        "Authorization": f"Bearer {token}",
    }


async def check_accepted(response: "httpx.Response", token: str) -> None:
    """Refuse an answer that is no 200; the token is blotted out in what it says.

    Raises:
        RoutingError: with its status and what it says.
    """
    status = response.status_code
    if status == _OK:
        return
    body = await read_body(response, _LARGEST_ANSWER)
    retry_after = response.headers.get("retry-after", "")
    raise _refusal(status, retry_after, body.data, token)


def _refusal(status: int, retry_after: str, body: bytes, token: str) -> RoutingError:
    """Return the error for an answer that is no 200; the words for its status are ours."""
    reason = responses.get(status, "unknown")
    detail = _detail(body, token)
    told = f": {detail}" if detail else ""
    return RoutingError(
        f"HTTP status code {status}, reason '{reason}'{told}",
        status=status,
        detail=detail,
        told=_text_in(body, "code"),
        retry_after=retry_seconds(retry_after),
    )


def _answered(body: LimitedBody) -> dict[str, Any]:
    """Return the JSON object that is the whole of an answer.

    Raises:
        RoutingError: it is none.
    """
    found = _object_in(body.data) if body.complete else None
    if found is None:
        raise RoutingError("the answer is not that of a MAIL server", status=_OK)
    return found


def _object_in(data: bytes) -> dict[str, Any] | None:
    """Return a JSON object; None for anything else."""
    from pydantic_core import from_json

    try:
        found = from_json(data, allow_inf_nan=False)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _detail(body: bytes, token: str) -> str:
    """Return what an error says, as text of one short line without secrets."""
    detail = _text_in(body, "detail")
    text = redact(detail.replace(token, "[redacted]")[:_LONGEST_DETAIL])
    return "".join(sign if sign.isprintable() else " " for sign in text)


def _text_in(body: bytes, name: str) -> str:
    text = (_object_in(body) or {}).get(name)
    return text if isinstance(text, str) else ""


def retry_seconds(retry_after: str) -> float | None:
    """Read a ``Retry-After`` header: seconds, or a date."""
    text = retry_after.strip()
    if text.isascii() and text.isdigit():
        return float(text[:_LONGEST_NUMBER])
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        return None
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())
