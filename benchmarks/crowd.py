"""Many users at once on one server: tasks, open streams, and readers that take nothing.

Everything goes over real connections. A round opens the streams, runs the tasks while they are
open, and ends the streams; equal rounds should need equal memory.
"""

import asyncio
import json
import os
import resource
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp

from benchmarks.crowd_server import make_tokens, token_of
from benchmarks.http_load import stall
from benchmarks.serving import serving
from mail.net.sse import SSEParser

__all__ = ["Crowd", "Figures", "describe", "report"]

ROUNDS = 3
_SETTLE = 5.0
_SECONDS = 300.0


@dataclass
class Figures:
    """What came of a round: seconds of each task, errors in words, streams read to their end."""

    latencies: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    ended: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Crowd:
    """How many there are of everything.

    ``streams`` counts all that are read; the ``stalled`` readers are given the megabytes of events
    of ``pours`` tasks to read.
    """

    url: str
    users: int
    tasks: int
    streams: int
    stalled: int
    pours: int = 10

    async def round(self, name: str) -> Figures:
        """Open the streams, run the tasks, end the streams."""
        figures = Figures()
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=_SECONDS)
        async with (
            asyncio.timeout(_SECONDS),
            aiohttp.ClientSession(self.url, connector=connector, timeout=timeout) as session,
        ):
            client = _Client(session, figures)
            async with self._streams(client, name) as readers, self._stalled_readers(client, name):
                began = time.perf_counter()
                await asyncio.gather(*(self._work(client, user) for user in range(self.users)))
                figures.seconds = time.perf_counter() - began
                await client.ask(0, f"release {name}")
                figures.ended = sum(await asyncio.gather(*readers))
        return figures

    async def _work(self, client: "_Client", user: int) -> None:
        for _ in range(user, self.tasks, self.users):
            began = time.perf_counter()
            await client.ask(user, "do")
            client.figures.latencies.append(time.perf_counter() - began)

    @asynccontextmanager
    async def _streams(
        self, client: "_Client", name: str
    ) -> AsyncIterator[list["asyncio.Task[bool]"]]:
        """Open a stream with a task of its own per user, and further readers of these tasks."""
        task, readers = f"wait-{name}", []
        for number in range(self.streams):
            user, opened = number % self.users, asyncio.Event()
            body = {"body": f"wait {name}", "task_id": task, "stream": True}
            again = client.read(user, "GET", f"/tasks/{task}/events", opened)
            first = client.read(user, "POST", "/message", opened, body)
            if number < self.users:
                again.close()
            else:
                first.close()
            readers.append(asyncio.create_task(first if number < self.users else again))
            if number % 50 == 0 or number == self.users - 1:
                await opened.wait()
        try:
            yield readers
        finally:
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)

    @asynccontextmanager
    async def _stalled_readers(self, client: "_Client", name: str) -> AsyncIterator[None]:
        """Ask for long streams on bare connections, and read nothing."""
        sockets = []
        pours = min(self.pours, self.stalled)
        try:
            for number in range(self.stalled):
                user = number % pours
                body = json.dumps({"body": f"pour {name}", "task_id": f"pour-{name}"})
                what = ("POST", "/message", body.replace("{", '{"stream": true, ', 1))
                if number >= pours:
                    what = ("GET", f"/tasks/pour-{name}/events", "")
                sockets.append(await stall(self.url, token_of(user), *what))
                if number == pours - 1:
                    for other in range(pours):
                        await client.wait_for(other, f"/tasks/pour-{name}")
            yield
        finally:
            for stalled in sockets:
                stalled.close()


class _Client:
    """The users' requests; what goes wrong is noted."""

    def __init__(self, session: aiohttp.ClientSession, figures: Figures) -> None:
        self._session = session
        self.figures = figures

    async def ask(self, user: int, body: str) -> None:
        """Run a task to its end."""
        headers = _bearer(user)
        try:
            async with self._session.post(
                "/message", json={"body": body}, headers=headers
            ) as answer:
                text = await answer.text()
                if answer.status != 200 or json.loads(text)["response"] != "It is done.":
                    self.figures.errors.append(f"{answer.status} {text[:200]}")
        except (aiohttp.ClientError, TimeoutError) as error:
            self.figures.errors.append(f"{body}: {error!r}")

    async def wait_for(self, user: int, path: str) -> None:
        """Wait until there is a task."""
        while True:
            async with self._session.get(path, headers=_bearer(user)) as answer:
                if answer.status == 200:
                    return
            await asyncio.sleep(0.01)

    async def read(
        self, user: int, method: str, path: str, opened: asyncio.Event, body: Any = None
    ) -> bool:
        """Read a stream; tell whether it came to its end with every event once."""
        numbers, kinds, parser = [], [], SSEParser()
        try:
            async with self._session.request(
                method, path, json=body, headers=_bearer(user)
            ) as answer:
                answer.raise_for_status()
                async for chunk in answer.content.iter_any():
                    opened.set()
                    for event in parser.feed(chunk):
                        kinds.append(event.event)
                        numbers += [int(event.id)] if event.id else []
        except (aiohttp.ClientError, TimeoutError) as error:
            self.figures.errors.append(f"{method} {path}: {error!r}")
        finally:
            opened.set()
        whole = numbers == list(range(1, len(numbers) + 1)) and kinds[-1:] == ["task_complete"]
        if not whole:
            self.figures.errors.append(f"{method} {path}: {len(kinds)} events, then {kinds[-1:]}")
        return whole


def _bearer(user: int) -> dict[str, str]:
    return {"Authorization": f"Bearer {token_of(user)}"}


@asynccontextmanager
async def _server(users: int) -> AsyncIterator[tuple[str, int]]:
    """Run the server on SQLite in a folder of its own; yield its address and process id."""
    with TemporaryDirectory() as folder:
        await make_tokens(f"sqlite:///{Path(folder) / 'mail.db'}", users)
        async with serving("benchmarks.crowd_server", folder) as server:
            yield server


def _resident(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


async def report(
    users: int = 200, tasks: int = 2000, streams: int = 500, stalled: int = 50
) -> None:
    """Print the figures of each round with their aims."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(f"SQLite   {users} users, {tasks} tasks, {streams} streams, {stalled} stalled readers")
    async with _server(users) as (url, pid):
        crowd = Crowd(url, users, tasks, streams, stalled)
        print(f"RSS      before                            {_resident(pid):8.1f} MiB")
        sizes: list[float] = []
        for number in range(1, ROUNDS + 1):
            figures = await crowd.round(str(number))
            await asyncio.sleep(_SETTLE)
            sizes.append(_resident(pid))
            print(describe(number, figures, sizes), flush=True)


def describe(number: int, figures: Figures, sizes: list[float]) -> str:
    """Return a round's figures; ``sizes`` are the resident MiB after it and the rounds before."""
    cuts = [statistics.quantiles(figures.latencies, n=100)[at] * 1e3 for at in (49, 94, 98)]
    growth = f"  {(sizes[-1] / sizes[-2] - 1) * 100:+.1f} %  (aim under 5)" if sizes[1:] else ""
    lines = [
        f"tasks/s                           {len(figures.latencies) / figures.seconds:8.1f}",
        f"latency p50, p95, p99             {cuts[0]:8.0f} {cuts[1]:.0f} {cuts[2]:.0f} ms",
        f"streams read to their end         {figures.ended:8d}",
        f"errors                            {len(figures.errors):8d}  (aim 0)",
        *(f"  {error}" for error in figures.errors[:3]),
        f"RSS                               {sizes[-1]:8.1f} MiB{growth}",
    ]
    return "\n".join(f"round {number}  {line}" for line in lines)
