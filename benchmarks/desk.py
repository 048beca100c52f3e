"""From sending a message to the wake-up of an MCP client that waits for it.

Hundreds of clients of the official SDK hang in ``wait_for_mail`` on one server; somebody writes to
one of them after the other, and then to all of them at once. A bare FastAPI route that stores a row
and sets an event, with as many plain clients that hang in it, takes turns with ours, so that the
ratio says more than the milliseconds on a busy machine.
"""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import aiohttp
import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from benchmarks.desk_server import SENDER, make_tokens, name_of, token_of
from benchmarks.serving import serving

__all__ = ["Figures", "measure", "report"]

WAITING = 200
AIM = 50.0
"""Milliseconds: the aim for the 95th percentile."""
_ROUNDS = 3
_SECONDS = 60.0

Wait = Callable[[], Awaitable[None]]


@dataclass
class Figures:
    """Milliseconds: from each sending to its wake-up, and of all at once to the last one."""

    each: list[float] = field(default_factory=list)
    all: list[float] = field(default_factory=list)

    def cuts(self) -> list[float]:
        """Return the 50th, 95th and 99th percentile."""
        found = statistics.quantiles(self.each, n=100)
        return [found[at] for at in (49, 94, 98)]


class _Desk(NamedTuple):
    """Who waits, how many do at the moment, and how to write to one of them or to all."""

    waits: Sequence[Wait]
    waiting: Callable[[], Awaitable[int]]
    send: Callable[[int | None], Awaitable[None]]


async def measure(desk: _Desk, figures: Figures) -> None:
    """Wake one after the other, and then all at once."""
    sleeping = await _asleep(desk)
    for number, one in enumerate(sleeping):
        began = time.perf_counter()
        _, woken = await asyncio.gather(desk.send(number), one)
        figures.each.append((woken - began) * 1e3)
    sleeping = await _asleep(desk)
    began = time.perf_counter()
    _, *last = await asyncio.gather(desk.send(None), *sleeping)
    figures.all.append((max(last) - began) * 1e3)


async def _asleep(desk: _Desk) -> "list[asyncio.Task[float]]":
    """Return everybody's waiting, once the server has it; each ends with its moment."""

    async def sleep(wait: Wait) -> float:
        await wait()
        return time.perf_counter()

    tasks = [asyncio.create_task(sleep(wait)) for wait in desk.waits]
    async with asyncio.timeout(_SECONDS):
        while await desk.waiting() < len(tasks):
            for task in tasks:
                if task.done():
                    task.result()
            await asyncio.sleep(0.05)
    return tasks


@asynccontextmanager
async def _ours(count: int) -> AsyncIterator[_Desk]:
    """Serve a mail desk with so many clients of the SDK."""
    with TemporaryDirectory() as folder:
        await make_tokens(Path(folder), count)
        async with AsyncExitStack() as stack:
            kind = "mail", folder, str(count)
            url, _ = await stack.enter_async_context(serving("benchmarks.desk_server", *kind))
            session = await stack.enter_async_context(_session(SENDER))
            clients = [await stack.enter_async_context(_client(url, at)) for at in range(count)]

            async def waiting() -> int:
                async with session.get(f"{url}/waiting") as answer:
                    return int(await answer.text())

            async def send(number: int | None) -> None:
                body: dict[str, object] = {"content": "Your turn."}
                if number is None:
                    body["recipient_ids"] = [name_of(at) for at in range(count)]
                else:
                    body["recipient_id"] = name_of(number)
                async with session.post(f"{url}/messages", json=body) as answer:
                    assert answer.status == 200, await answer.text()

            yield _Desk([_wait_of(client) for client in clients], waiting, send)


def _wait_of(client: Client) -> Wait:
    async def wait() -> None:
        # The letter of before is read first, else there would be nothing to wait for.
        await client.call_tool("get_messages", {"unread": True})
        result = await client.call_tool("wait_for_mail", {"seconds": _SECONDS})
        assert (result.structured_content or {})["unread"] == 1, result

    return wait


@asynccontextmanager
async def _client(url: str, number: int) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {token_of(name_of(number))}"}
    async with httpx2.AsyncClient(headers=headers, timeout=2 * _SECONDS) as http:
        transport = streamable_http_client(f"{url}/mcp?tools=basic", http_client=http)
        async with Client(transport) as client:
            yield client


@asynccontextmanager
async def _bare(count: int) -> AsyncIterator[_Desk]:
    """Serve the floor with so many plain clients."""
    with TemporaryDirectory() as folder:
        async with (
            serving("benchmarks.desk_server", "bare", folder, str(count)) as (url, _),
            _session(SENDER) as session,
        ):

            async def waiting() -> int:
                async with session.get(f"{url}/waiting") as answer:
                    return int(await answer.text())

            async def send(number: int | None) -> None:
                body = {"to": "" if number is None else name_of(number), "content": "Your turn."}
                async with session.post(f"{url}/send", json=body) as answer:
                    assert answer.status == 200, await answer.text()

            def wait_of(number: int) -> Wait:
                async def wait() -> None:
                    async with session.get(f"{url}/wait/{name_of(number)}") as answer:
                        assert answer.status == 200, await answer.text()

                return wait

            yield _Desk([wait_of(number) for number in range(count)], waiting, send)


def _session(name: str) -> aiohttp.ClientSession:
    timeout = aiohttp.ClientTimeout(total=2 * _SECONDS)
    headers = {"Authorization": f"Bearer {token_of(name)}"}
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=timeout, headers=headers
    )


async def report(count: int = WAITING, rounds: int = _ROUNDS) -> None:
    """Print the wake-ups of ours and of the bare route, and their ratio."""
    async with _bare(count) as bare, _ours(count) as ours:
        floor, found = Figures(), Figures()
        await measure(bare, Figures())  # both warm
        await measure(ours, Figures())
        for _ in range(rounds):
            await measure(bare, floor)
            await measure(ours, found)
    for what, figures in (("bare route", floor), ("MCP clients", found)):
        p50, p95, p99 = figures.cuts()
        print(
            f"{count} wait, one is written to: {what:12s} p50 {p50:6.1f}  p95 {p95:6.1f}"
            f"  p99 {p99:6.1f} ms;  all at once, the last {min(figures.all):7.1f} ms"
        )
    ratio = found.cuts()[1] / floor.cuts()[1]
    print(f"p95 {ratio:.1f}x the bare route's (aim under {AIM:g} ms)")
