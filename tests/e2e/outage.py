"""Callers that go on asking while the servers' database is away, each time at the next server.

Each caller has one task at a time and keeps what it was told: of a refused task nothing may be
there, of an accepted one everything, once.
"""

import asyncio
import itertools
import json
import os
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from mail.net.sse import SSEParser
from tests.e2e.processes import bearer
from tests.e2e.script import WORKERS
from tests.e2e.test_pauses import HEARD, RESULTS, calls_of
from tests.nodes.kit import Servers

SECONDS: Final = float(os.environ.get("OUTAGE_SECONDS", "3"))
"""How long the database is away: at least longer than the store's own retries last."""
LONGEST: Final = 40.0 + SECONDS
"""Seconds after which a caller gives up, which fails the test: every answer comes in time."""
_PAUSE: Final = 0.1


@dataclass
class Caller:
    """Has one task after the other done until it is told to stop."""

    servers: Servers
    name: str
    stopping: bool = False
    accepted: dict[str, str] = field(default_factory=dict)
    """Each accepted task and its answer."""
    refused: list[str] = field(default_factory=list)
    refusals: int = 0
    since: float = 0.0
    """When the database was gone. What began before may be in the middle of a COMMIT."""
    slowest: float = 0.0
    """Seconds of the slowest refusal of what began after that."""
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the newest task came to its end, clear from the first refusal on."""

    async def work(self) -> None:
        """Ask again and again."""
        async with httpx.AsyncClient(headers=bearer("alice"), timeout=LONGEST) as client:
            for number in itertools.count():
                if self.stopping:
                    return
                job = self.job(number)
                answer = await self.ask(client, job)
                if answer is None:
                    self.refused.append(job)
                else:
                    self.accepted[job] = answer
                    self.settled.set()

    def job(self, number: int) -> str:
        """Name a task; it is what is asked, too."""
        return f"{self.name} {number}"

    async def ask(self, client: httpx.AsyncClient, job: str) -> str | None:
        """Have a task done; return its answer, or None when it is refused."""
        answer = await self.send(client, "POST", "/message", json={"body": job, "task_id": job})
        return None if answer is None else str(answer.json()["response"])

    async def send(
        self, client: httpx.AsyncClient, method: str, path: str, **options: Any
    ) -> httpx.Response | None:
        """Send a request; return None when the server has no database for it."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        answer = await client.request(method, f"{self.servers.url()}{path}", **options)
        if answer.status_code == 503:
            self.note_refusal(answer, begun)
            await asyncio.sleep(_PAUSE)
            return None
        assert answer.status_code == 200, answer.text
        return answer

    def note_refusal(self, answer: httpx.Response, begun: float) -> None:
        """Check a refusal, and remember that there was one."""
        assert int(answer.headers["Retry-After"]) > 0
        self.settled.clear()
        self.refusals += 1
        if begun >= self.since:
            self.slowest = max(self.slowest, asyncio.get_running_loop().time() - begun)

    def expected(self, job: str) -> str:
        """Return the answer that a task must have."""
        return f"{job}: " + "; ".join(f"{worker} has 1 lines" for worker in WORKERS)


class Streamer(Caller):
    """Reads each task's events, and goes on behind the last one when a stream breaks."""

    async def ask(self, client: httpx.AsyncClient, job: str) -> str | None:
        """See `Caller.ask`."""
        read: list[tuple[int, str, str]] = []
        body = {"body": job, "task_id": job, "stream": True}
        if not await self._read(client, read, "POST", "/message", json=body):
            return None
        while not (read and read[-1][1].startswith("task_")):
            after = {"Last-Event-ID": str(read[-1][0])} if read else {}
            await self._read(client, read, "GET", f"/tasks/{job}/events", headers=after)
        assert [number for number, _, _ in read] == list(range(1, len(read) + 1))
        return str(json.loads(read[-1][2])["response"])

    async def _read(
        self,
        client: httpx.AsyncClient,
        read: list[tuple[int, str, str]],
        method: str,
        path: str,
        **options: Any,
    ) -> bool:
        """Read (number, kind, data) of events until the stream ends; False when refused."""
        parser, begun = SSEParser(), asyncio.get_running_loop().time()
        async with client.stream(method, f"{self.servers.url()}{path}", **options) as answer:
            if answer.status_code == 503:
                self.note_refusal(answer, begun)
                await asyncio.sleep(_PAUSE)
                return False
            assert answer.status_code == 200, await answer.aread()
            with suppress(httpx.TransportError):
                async for chunk in answer.aiter_bytes():
                    events = parser.feed(chunk)
                    read += [(int(e.id), e.event or "", e.data) for e in events if e.id]
        return True


class Asked(Caller):
    """Is asked by both workers at breakpoints, and answers."""

    def job(self, number: int) -> str:
        """See `Caller.job`."""
        return f"ask {self.name} {number}"

    async def ask(self, client: httpx.AsyncClient, job: str) -> str | None:
        """See `Caller.ask`."""
        answer = await self.send(client, "POST", "/message", json={"body": job, "task_id": job})
        if answer is None:
            return None
        while answer.json()["status"] == "paused":
            # One of two, when the second's turn waited for the store, or for another server.
            worker, call_id = min(calls_of(answer.json()).items())
            answer = await self._resume(client, job, call_id, RESULTS[worker])
        return str(answer.json()["response"])

    async def _resume(
        self, client: httpx.AsyncClient, job: str, call_id: str, content: object
    ) -> httpx.Response:
        """Give a call its result; a refused one was not taken, so it is given again."""
        result = {"call_id": call_id, "content": content}
        body = {
            "task_id": job,
            "resume_from": "breakpoint_tool_call",
            "kwargs": {"breakpoint_tool_call_result": result},
        }
        while (answer := await self.send(client, "POST", "/message", json=body)) is None:
            pass
        return answer

    def expected(self, job: str) -> str:
        """See `Caller.expected`."""
        return f"{job}: " + "; ".join(f"{worker} has {HEARD[worker]}" for worker in WORKERS)


def make_callers(servers: Servers) -> list[Caller]:
    """Return eight callers: four plain ones, two that stream, two that are asked."""
    plain = [Caller(servers, name) for name in ("ada", "ben", "cleo", "dora")]
    streaming: list[Caller] = [Streamer(servers, name) for name in ("emil", "fay")]
    asked: list[Caller] = [Asked(servers, name) for name in ("gus", "hana")]
    return [*plain, *streaming, *asked]
