"""What a task costs that an agent of another server takes part in.

Each question goes to ``north``, whose agent asks one of ``south`` and hands the answer on. The
floor are two plain HTTP POSTs of the same bytes with one SQLite commit each
(`benchmarks.federation_server`). Both take turns under the same load.
"""

import asyncio
import os
import statistics
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp

from benchmarks.crowd_server import token_of
from benchmarks.http_load import Load, Measured, generate
from benchmarks.serving import serving
from mail.auth.callers import hash_token
from mail.db.records import TokenRow
from mail.db.urls import open_store

__all__ = ["RoundTrips", "floor", "report", "round_trips", "swarms"]

AIM = 4.0
"""How many times as long as the floor a round trip may take."""
CONCURRENT = (1, 16, 64)
_ROUNDS = 3
_SECONDS = 2.0
_ADMIN = "mail_bench-administrator-of-both-servers"
_QUESTION = {"body": "What is the capital of the country that is called like a bird? " * 4}
_MODULE = "benchmarks.federation_server"


@dataclass
class RoundTrips:
    """What the swarms and the floor did in turn; waits are in seconds."""

    ours: list[Measured] = field(default_factory=list)
    floor: list[Measured] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """How many times as many round trips the floor does, as the median over the pairs."""
        pairs = zip(self.ours, self.floor, strict=True)
        return statistics.median(floor.rate / ours.rate for ours, floor in pairs)


def _peer_token(of: str, at: str) -> str:
    return f"mail_bench-token-of-{of}-at-{at}"


async def _make_tokens(url: str, name: str, peer: str, users: int) -> None:
    store = open_store(url, exclusive=False)
    await store.open()
    tokens = [(token_of(user), "user", f"user-{user}") for user in range(users)]
    tokens += [(_ADMIN, "admin", "root"), (_peer_token(peer, name), "agent", peer)]
    for token, role, who in tokens:
        await store.put_token(TokenRow(hash_token(token), role, who, "2026-01-01T00:00:00Z"))
    await store.close()


async def _register(url: str, name: str, peer: str, token: str) -> None:
    body = {"name": name, "base_url": peer, "auth_token": token}
    headers = {"Authorization": f"Bearer {_ADMIN}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(f"{url}/swarms", json=body) as answer,
    ):
        if answer.status != 200:
            raise RuntimeError(f"{name} cannot be registered: {await answer.text()}")


@asynccontextmanager
async def swarms(users: int) -> AsyncIterator[str]:
    """Run both swarms' servers, which know each other; yield where to ask."""
    async with AsyncExitStack() as stack:
        urls = {}
        for name, peer in (("north", "south"), ("south", "north")):
            folder = stack.enter_context(TemporaryDirectory())
            url = f"sqlite:///{Path(folder) / 'mail.db'}"
            await _make_tokens(url, name, peer, users)
            urls[name], _ = await stack.enter_async_context(serving(_MODULE, name, folder))
        for name, peer in (("north", "south"), ("south", "north")):
            await _register(urls[name], peer, urls[peer], _peer_token(name, peer))
        yield urls["north"]


@asynccontextmanager
async def floor() -> AsyncIterator[str]:
    """Run both halves of the floor; yield where to ask."""
    with TemporaryDirectory() as near, TemporaryDirectory() as far:
        async with serving(_MODULE, "end", far) as (end, _):
            environ = {**os.environ, "PEER": end}
            async with serving(_MODULE, "relay", near, environ=environ) as (url, _):
                yield url


async def round_trips(
    ours: str, floor: str, concurrent: int, rounds: int = _ROUNDS, seconds: float = _SECONDS
) -> RoundTrips:
    """Ask both so many questions at a time, in turn."""
    trips = RoundTrips()
    tokens = [token_of(number) for number in range(concurrent)]
    for _ in range(rounds):
        for url, measured in ((floor, trips.floor), (ours, trips.ours)):
            load = Load(url=url, path="/message", tokens=tokens, body=_QUESTION, seconds=seconds)
            found = await generate(load)
            if found.refused:
                raise RuntimeError(f"{found.refused} requests were refused: {found.wrong}")
            measured.append(found)
    return trips


async def report(rounds: int = _ROUNDS, seconds: float = _SECONDS) -> None:
    """Print the table with its aim."""
    async with floor() as bare, swarms(max(CONCURRENT)) as ours:
        await round_trips(ours, bare, max(CONCURRENT), 1, seconds)  # both warm, every caller known
        for concurrent in CONCURRENT:
            trips = await round_trips(ours, bare, concurrent, rounds, seconds)
            print(
                f"{concurrent:4d} concurrent   two POSTs {_figures(trips.floor)}"
                f"   two swarms {_figures(trips.ours)}  {trips.ratio:5.2f}x (aim {AIM:g})",
                flush=True,
            )


def _figures(measured: list[Measured]) -> str:
    waits = sorted(wait for one in measured for wait in one.waits)
    rate = statistics.median(one.rate for one in measured)
    p50, p99 = waits[len(waits) // 2] * 1e3, waits[int(len(waits) * 0.99)] * 1e3
    return f"{rate:7,.0f}/s p50 {p50:6.1f} p99 {p99:6.1f} ms"


if __name__ == "__main__":
    asyncio.run(report())
