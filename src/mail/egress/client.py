"""The one way out: requests to addresses that other people or agents chose.

Every connection goes through one check, redirects included: the host is resolved, all of its
addresses must be public or allowed by the policy, and the connection is made to exactly a checked
address, with the original Host header and TLS name. Nothing is asked twice, so a name that changes
its mind between check and connection (DNS rebinding) gains nothing; proxies named in the
environment are not used.
"""

import asyncio
import base64
import inspect
import socket
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from mail.egress.bodies import read_body
from mail.egress.rules import (
    Address,
    EgressPolicy,
    FetchError,
    NoAnswer,
    RefusedAddress,
    TooLarge,
    check_addresses,
    check_host,
    literal_address,
)

if TYPE_CHECKING:
    import httpx

Resolve = Callable[[str, int], Iterable[str] | Awaitable[Iterable[str]]]
"""Takes a host name and a port, returns (or promises) its addresses as text."""

MAX_REDIRECTS: Final = 5
_MAX_BYTES: Final = 4 * 1024 * 1024
_MAX_ATTEMPTS: Final = 4
_MAX_PORT: Final = 65535
PORTS: Final = {"http": 80, "https": 443}
# What a call may take beyond its limit of time until it is left behind.
_GRACE: Final = 0.5


class GuardedTransport:
    """A transport of httpx (or of a library shaped like it) that checks before it connects.

    It hands requests on to ``inner``, aimed at a checked IP address; ``unreachable`` are the errors
    of ``inner`` after which the next checked address is tried.

    Raises:
        RefusedAddress: the request's address may not be reached.
        FetchError: its host has no address.
    """

    def __init__(
        self,
        policy: EgressPolicy,
        inner: Any,
        *,
        unreachable: tuple[type[Exception], ...] = (),
        resolve: Resolve | None = None,
    ) -> None:
        self._policy = policy
        self._inner = inner
        self._unreachable = unreachable
        self._resolve = resolve or system_addresses

    async def handle_async_request(self, request: Any) -> Any:
        """Check the request's address, then send it there."""
        host, port = self._named(request.url)
        if literal_address(host) is not None:
            addresses = check_addresses(host, port, [host], self._policy)
        else:
            addresses = await checked_addresses(host, port, self._policy, self._resolve)
        attempts = addresses[:_MAX_ATTEMPTS]
        for address in attempts:
            try:
                return await self._inner.handle_async_request(_aimed(request, host, address))
            except self._unreachable:
                if address is attempts[-1]:
                    raise
        raise FetchError(f"'{host}' has no address")

    def _named(self, url: Any) -> tuple[str, int]:
        if url.userinfo:
            raise RefusedAddress("a redirect to an address with credentials is not followed")
        host = check_host(url.scheme, url.raw_host.decode("ascii", "replace"), self._policy)
        port = PORTS[url.scheme] if url.port is None else url.port
        if not 0 < port <= _MAX_PORT:
            raise RefusedAddress(f"{port} is not a valid port")
        return host, port

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()

    async def __aenter__(self) -> "GuardedTransport":
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self._inner.__aexit__(*raised)


def guarded_client(
    policy: EgressPolicy,
    *,
    timeout: float,
    resolve: Resolve | None = None,
    transport: "httpx.AsyncBaseTransport | None" = None,
    **options: Any,
) -> "httpx.AsyncClient":
    """Return an httpx client whose every connection is checked first.

    It follows no redirect by itself; `opened` does, each step through the same check. No connection
    is kept: one made for a TLS name must never be used for another.

    Args:
        policy: The permitted addresses beside public ones.
        timeout: Seconds for each of connecting, writing, and waiting for the next bytes.
        resolve: Answers what addresses a host has; the system's resolver by default.
        transport: Makes the connections.
        options: More arguments of ``httpx.AsyncClient``, except those that choose another way out.
    """
    import httpx

    for name in ("proxy", "mounts", "trust_env"):
        if name in options:
            raise TypeError(
                f"a guarded client does not accept '{name}': it would bypass the address check"
            )
    guard = GuardedTransport(
        policy,
        transport or system_transport(),
        unreachable=(httpx.ConnectError, httpx.ConnectTimeout),
        resolve=resolve,
    )
    options = {"max_redirects": MAX_REDIRECTS, **options}
    return httpx.AsyncClient(
        transport=cast("httpx.AsyncBaseTransport", guard),
        timeout=timeout,
        trust_env=False,
        **options,
    )


def system_transport() -> "httpx.AsyncBaseTransport":
    """Return what makes real connections; none is kept for a second request."""
    import httpx

    return httpx.AsyncHTTPTransport(limits=httpx.Limits(max_keepalive_connections=0))


def guarded_request(
    client: "httpx.AsyncClient",
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    **content: Any,
) -> "httpx.Request":
    """Build a request; credentials in the address become a header, so that no log shows them.

    Raises:
        FetchError: the address, a header or the body cannot be sent.
    """
    import httpx

    merged = httpx.Headers({"Accept-Encoding": "identity"})
    try:
        target, credentials = split_credentials(httpx.URL(url))
    except (httpx.InvalidURL, ValueError):
        raise FetchError("the address is not a valid URL") from None
    try:
        merged.update(credentials)
        merged.update(headers)
    except (ValueError, TypeError, AttributeError):
        raise FetchError("a header is not plain ASCII text") from None
    try:
        return client.build_request(method, target, headers=merged, **content)
    except RecursionError:
        raise FetchError("the body is nested too deeply") from None
    except (ValueError, TypeError) as error:
        raise FetchError(f"the body cannot be sent as JSON: {error}") from None


def split_credentials(url: Any) -> tuple[Any, dict[str, str]]:
    """Return a URL (of httpx or a library shaped like it) without credentials, and their header.

    Raises:
        ValueError: the host, or the credentials, cannot be decoded.
    """
    # Reading the host decodes an international name; otherwise that fails in the middle of sending.
    _ = url.host
    if not url.userinfo:
        return url, {}
    pair = base64.b64encode(f"{url.username}:{url.password}".encode()).decode()
    return url.copy_with(userinfo=b""), {"Authorization": f"Basic {pair}"}


def failure_text(error: Exception) -> str:
    """Say why a request failed (in httpx or a library shaped like it), without its address."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if kinds & {"InvalidURL", "UnicodeError"}:
        return "the redirect leads to an invalid address"
    if "TimeoutException" in kinds:
        return "no answer in time"
    if "ConnectError" in kinds:
        return "the connection failed"
    return f"the request failed ({type(error).__name__})"


@asynccontextmanager
async def opened(
    client: "httpx.AsyncClient", request: "httpx.Request"
) -> AsyncIterator["httpx.Response"]:
    """Send a request and give its answer, unread, after at most five redirects.

    On the way to another host (or port, or from https to http) the request loses every header
    that might be a credential; see `mail.egress.client`.

    Raises:
        RefusedAddress: the address, or one that a redirect names, may not be reached.
        FetchError: no answer, or too many redirects.
    """
    import httpx

    first = request
    for _ in range(MAX_REDIRECTS + 1):
        try:
            response = await client.send(request, stream=True, follow_redirects=False)
        except FetchError:
            raise
        # The host of a redirect may be no international name (a ValueError).
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise FetchError(failure_text(error)) from None
        try:
            onward = response.next_request
            if onward is None:
                yield response
                return
        except httpx.HTTPError as error:
            raise FetchError(failure_text(error)) from None
        finally:
            await response.aclose()
        request = led_on(first, request, onward)
    raise FetchError(f"more than {MAX_REDIRECTS} redirects")


def fetch(
    url: str,
    *,
    policy: EgressPolicy,
    timeout: float = 10.0,
    max_bytes: int = _MAX_BYTES,
    resolve: Resolve | None = None,
    transport: "httpx.AsyncBaseTransport | None" = None,
) -> bytes:
    """Return what stands at an address. Blocks; inside an event loop call it in a thread.

    Args:
        url: An http or https address; credentials in it are sent as Basic authentication.
        policy: The permitted addresses beside public ones.
        timeout: Seconds that all of it may take, redirects and body included.
        max_bytes: The size limit of the document.
        resolve: As in `guarded_client`.
        transport: As in `guarded_client`.

    Raises:
        RefusedAddress: the address, or one that a redirect names, may not be reached.
        FetchError: no answer, not a successful one, or one too large. All of these are ValueErrors.
    """

    late = f"no complete answer within {timeout:g} seconds"

    async def get() -> bytes:
        try:
            async with (
                asyncio.timeout(timeout),
                guarded_client(
                    policy, timeout=timeout, resolve=resolve, transport=transport
                ) as client,
                opened(client, guarded_request(client, "GET", url)) as response,
            ):
                if not response.is_success:
                    raise FetchError(f"status {response.status_code}")
                body = await read_body(response, max_bytes)
        except TimeoutError:
            raise FetchError(late) from None
        if not body.complete:
            raise TooLarge(f"the document is larger than {max_bytes} bytes")
        return body.data

    # A thread of its own, because the caller may stand inside a running event loop; nobody waits
    # for its end, because a resolver may block it.
    thread = AsideThreads(1, "mail-fetch")
    try:
        document: bytes = thread.submit(lambda: asyncio.run(get())).result(timeout + _GRACE)
    except TimeoutError:
        raise FetchError(late) from None
    return document


def _aimed(request: Any, host: str, address: Address) -> Any:
    """Return the request for one IP address; Host header and TLS name stay those of the URL."""
    headers = request.headers.copy()
    headers["Host"] = request.url.netloc.decode("ascii")
    extensions = dict(request.extensions)
    if literal_address(host) is None:
        extensions["sni_hostname"] = host
    return type(request)(
        request.method,
        request.url.copy_with(host=str(address)),
        headers=headers,
        stream=request.stream,
        extensions=extensions,
    )


class AsideThreads:
    """Runs blocking functions in daemon threads; those beyond ``most`` wait in line."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._running = 0

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        """Return what will hold the result; cancelled before its turn, the work is not done."""
        future: Future[Any] = Future()
        with self._lock:
            # Whoever gave up must not keep a place in the line.
            self._waiting = deque(job for job in self._waiting if not job[0].cancelled())
            self._waiting.append((future, work))
            is_needed = self._running < self._most
            self._running += is_needed
        if is_needed:
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        return future

    def _work(self) -> None:
        while (job := self._next()) is not None:
            future, work = job
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001 - raised again where the result is awaited
                future.set_exception(error)
            else:
                future.set_result(result)

    def _next(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._running -= 1
            return None


async def checked_addresses(
    host: str, port: int, policy: EgressPolicy, resolve: Resolve
) -> Sequence[Address]:
    """Return the addresses of a host name, when every one of them may be reached.

    Raises:
        NoAnswer, FetchError, NotPublic: see `check_addresses`.
    """
    try:
        found = resolve(host, port)
        names = await found if inspect.isawaitable(found) else found
    except (OSError, UnicodeError):
        raise NoAnswer(f"the host name '{host}' cannot be resolved") from None
    return check_addresses(host, port, names, policy)


_LOOK_UPS: Final = AsideThreads(32, "mail-names")


async def system_addresses(host: str, port: int) -> list[str]:
    """Return what the system's resolver says, each address once.

    Raises:
        OSError: the name cannot be resolved.
    """
    look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    found = await asyncio.wrap_future(_LOOK_UPS.submit(look_up))
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


# What a request keeps when a redirect leads to another host: nothing that could be a credential.
_HARMLESS: Final = frozenset(
    (
        *("accept", "accept-encoding", "accept-language", "content-length", "content-type"),
        *("host", "transfer-encoding", "user-agent"),
    )
)


def led_on(
    first: "httpx.Request", sent: "httpx.Request", onward: "httpx.Request"
) -> "httpx.Request":
    """Return the next request with the headers that it may have.

    Where scheme, host and port stay, that is all of them; httpx itself drops the cookies that the
    first request came with. On any other way, but from http to https of the same host, everything
    goes that could be a credential.

    Args:
        first: The request as the caller made it.
        sent: The one that was answered with a redirect.
        onward: The request that httpx made of that answer; it is changed.
    """
    before, after = _origin(sent), _origin(onward)
    if before == after:
        if _origin(first) == after and (given := _cookies(first)):
            # The server may have set cookies since: the newer ones win.
            onward.headers["Cookie"] = "; ".join((given | _cookies(onward)).values())
        return onward
    upgraded = before[0] == "http" and before[2] is None and after == ("https", before[1], None)
    if not upgraded:
        for name in list(onward.headers):
            if name.lower() not in _HARMLESS:
                del onward.headers[name]
    return onward


def _origin(request: "httpx.Request") -> tuple[str, bytes, int | None]:
    return request.url.scheme, request.url.raw_host, request.url.port


def _cookies(request: "httpx.Request") -> dict[str, str]:
    pairs = (pair.strip() for pair in request.headers.get("cookie", "").split(";"))
    return {pair.partition("=")[0].rstrip(): pair for pair in pairs if pair}
