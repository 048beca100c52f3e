"""Several servers on one PostgreSQL database, beside one, and the store beside bare statements.

PostgreSQL is a cluster of the tests' own, whose commits wait for the disk.
"""

import asyncio
import itertools
import json
import os
import signal
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any

import aiohttp
import asyncpg
import psutil

from benchmarks.crowd_server import make_tokens, token_of
from benchmarks.serving import serving
from mail.auth.token_cache import POSITIVE_SECONDS
from mail.db.commit import Commit
from mail.db.postgres.driver import PostgresStore
from mail.db.records import Delivery, EventRow, Owner, TaskClaim, TaskRow
from mail.net.sse import SSEParser
from tests.support.pgbouncer import pooled
from tests.support.postgres import Cluster

__all__ = ["report"]

_CALLERS = 4
_TURNS = 8
_PAUSE = 0.05
_NOW = "2026-01-01T10:00:00+00:00"
_COMMITS = {1: 300, 16: 1600, 64: 3200}
_HINTS = 100
_IDLE = 10_000
_AWAY = 300
_ORPHANS = 600
_AT_WORK = "SELECT node, count(*) FROM tasks WHERE is_running GROUP BY node"
_LEFT = "SELECT count(*) FROM tasks WHERE is_running AND node = $1"


@contextmanager
def _cluster() -> Iterator[Cluster]:
    cluster = Cluster(fsync=True)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.remove()


class _Nodes:
    """Servers on one database, and a session of requests to them."""

    def __init__(self, urls: list[str], pids: list[int], session: aiohttp.ClientSession) -> None:
        self.urls, self.pids, self._session = urls, pids, session

    async def post(self, url: str, caller: int, body: str, **more: Any) -> Any:
        """Post a message, and wait for the answer."""
        headers = {"Authorization": f"Bearer {token_of(caller)}"} | more.pop("headers", {})
        message = {"body": body} | more
        async with self._session.post(f"{url}/message", json=message, headers=headers) as answer:
            told = await answer.json()
            if answer.status not in (200, 202):
                raise RuntimeError(f"{answer.status}: {told}")
            return told

    async def arrivals(self, url: str, caller: int, task_id: str, seen: dict[int, float]) -> None:
        """Follow a task, and note when each of its events arrives, until its end."""
        headers = {"Authorization": f"Bearer {token_of(caller)}"}
        path, parser = f"{url}/tasks/{task_id}/events", SSEParser()
        async with self._session.get(path, headers=headers) as answer:
            async for chunk in answer.content.iter_any():
                for event in parser.feed(chunk):
                    if event.id is not None:
                        seen[int(event.id)] = time.perf_counter()
                    if event.event == "task_complete":
                        return


@asynccontextmanager
async def _nodes(
    url: str, count: int, pause: float, turns: int, callers: int = _CALLERS
) -> AsyncIterator[_Nodes]:
    await make_tokens(url, callers)
    async with AsyncExitStack() as stack:
        arguments = "benchmarks.nodes_server", url, str(pause), str(turns)
        started = [await stack.enter_async_context(serving(*arguments)) for _ in range(count)]
        connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=600)
        session = aiohttp.ClientSession(connector=connector, timeout=timeout)
        nodes = [url for url, _ in started], [pid for _, pid in started]
        made = _Nodes(*nodes, await stack.enter_async_context(session))
        for each in made.urls:
            await made.post(each, 0, "warm up")
        yield made


async def _rate(
    nodes: _Nodes, tasks: int, at_once: int, urls: list[str], body: str = "do"
) -> float:
    """Return the tasks per second of clients that go from one server to the next."""
    numbers, turn = iter(range(tasks)), itertools.cycle(urls)

    async def work() -> None:
        for number in numbers:
            await nodes.post(next(turn), number % _CALLERS, body)

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(at_once)))
    return tasks / (time.perf_counter() - began)


async def _scaling(cluster: Cluster) -> None:
    for body, turns in (("ask", 3), ("do", 1)):
        figures = {}
        for count in (1, 3):
            tasks, at_once = round(60 / _PAUSE / turns) * count, 6 * _TURNS * count
            async with _nodes(cluster.dsn(), count, _PAUSE, _TURNS) as nodes:
                figures[count] = turns * await _rate(nodes, tasks, at_once, nodes.urls, body)
                if count > 1:
                    through_one = await _rate(nodes, tasks, at_once, nodes.urls[:1], body)
                    figures[0] = turns * through_one
        one, three, through = figures[1], figures[3], figures[0]
        print(
            f"agents of {_PAUSE * 1e3:.0f} ms, {_TURNS} turns at work per node, {turns} turn(s) a "
            f"task: 1 node {one:.0f} turns/s, 3 nodes {three:.0f} ({three / one:.2f} x); all "
            f"posted to one of three {through:.0f} ({through / one:.2f} x)"
        )
    instant = {}
    for count in (1, 2):
        async with _nodes(cluster.dsn(), count, 0, 0) as nodes:
            instant[count] = await _rate(nodes, 3000, 64, nodes.urls)
    print(
        f"instant agents: 1 process {instant[1]:.0f} tasks/s, 2 processes {instant[2]:.0f} "
        f"({instant[2] / instant[1]:.2f} x)"
    )


async def _fairness(cluster: Cluster) -> None:
    """One caller posts 5,000 tasks, another one task at a time."""
    for count in (1, 3):
        async with _nodes(cluster.dsn(), count, _PAUSE, _TURNS) as nodes:
            idle = await _latencies(nodes, 10)
            headers = {"Prefer": "respond-async"}
            numbers = iter(range(5000))

            async def flood(nodes: _Nodes, numbers: Iterator[int], headers: Any) -> None:
                for number in numbers:
                    url = nodes.urls[number % len(nodes.urls)]
                    await nodes.post(url, 0, "do", headers=dict(headers))

            floods = [asyncio.create_task(flood(nodes, numbers, headers)) for _ in range(32)]
            await asyncio.gather(*floods)
            busy = await _latencies(nodes, 10)
        print(
            f"one task beside 5,000 of another caller, {count} node(s): idle {idle * 1e3:.0f} ms, "
            f"then {busy * 1e3:.0f} ms ({busy / idle:.2f} x)"
        )


async def _latencies(nodes: _Nodes, times: int) -> float:
    found = []
    for number in range(times):
        began = time.perf_counter()
        await nodes.post(nodes.urls[number % len(nodes.urls)], 1, "do")
        found.append(time.perf_counter() - began)
    return statistics.median(found)


async def _hints(cluster: Cluster) -> None:
    """Measure how much later an event arrives at a stream of another server."""
    with pooled(cluster) as pooler:
        for name, url in (("LISTEN", cluster.dsn()), ("polling, behind PgBouncer", pooler)):
            async with _nodes(url, 2, 0, 0) as nodes:
                late = sorted([await _lag(nodes, number) for number in range(_HINTS)])
            p50, p99 = late[len(late) // 2], late[int(len(late) * 0.99)]
            print(f"news at another server, {name}: p50 {p50 * 1e3:.1f} ms, p99 {p99 * 1e3:.1f} ms")


async def _lag(nodes: _Nodes, number: int) -> float:
    here, there = nodes.urls
    task_id, name = f"lag-{number}", f"gate-{number}"
    posted = asyncio.create_task(nodes.post(here, 0, f"wait {name}", task_id=task_id))
    seen: tuple[dict[int, float], dict[int, float]] = ({}, {})
    await asyncio.sleep(0.05)
    following = [
        asyncio.create_task(nodes.arrivals(url, 0, task_id, times))
        for url, times in zip((here, there), seen, strict=True)
    ]
    await asyncio.sleep(0.05 + number % 10 * 0.02)  # at any moment between two looks
    await nodes.post(here, 1, f"release {name}")
    await asyncio.gather(posted, *following)
    last = max(seen[0])
    return max(0.0, seen[1][last] - seen[0][last])


async def _takeover(cluster: Cluster) -> None:
    """Kill one of three servers, and wait until the others work on its tasks."""
    waits = {"headers": {"Prefer": "respond-async"}}
    for callers in (1, 60):
        url = cluster.dsn()
        async with _nodes(url, 3, 0, 0, callers) as nodes:
            for number in range(_ORPHANS):
                name, caller = f"orphan-{number}", number % callers
                await nodes.post(nodes.urls[0], caller, f"wait {name}", task_id=name, **waits)
            connection = await asyncpg.connect(url)
            ((dead, left),) = await connection.fetch(_AT_WORK)
            os.kill(nodes.pids[0], signal.SIGKILL)
            began = time.perf_counter()
            while left > _ORPHANS // 100:
                await asyncio.sleep(0.05)
                left = await connection.fetchval(_LEFT, dead)
            late = time.perf_counter() - began
            await connection.close()
        print(
            f"{_ORPHANS} tasks of a killed server, of {callers} caller(s): 99 % of them go on "
            f"within {late:.1f} s"
        )


# --- one process ----------------------------------------------------------------------------------


def _first_commit(task_id: str) -> Commit:
    owner = Owner("alpha", "user", "alice")
    row = TaskRow(task_id, str(owner), (str(owner),), _NOW, "supervisor")
    mail = Delivery(
        task_id=task_id, recipient="supervisor", tier=5, interrupt=False, payload=_PAYLOAD
    )
    event = EventRow(kind="new_message", timestamp=_NOW, extra=_PAYLOAD)
    return Commit(owner, row, new=True, claim=TaskClaim(), deliveries=(mail,), events=(event,))


_PAYLOAD = json.dumps({"body": "x" * 500})
_BARE = """
CREATE TABLE bare_tasks (key BIGSERIAL PRIMARY KEY, id TEXT UNIQUE, data TEXT);
CREATE TABLE bare_rows (id BIGSERIAL PRIMARY KEY, task BIGINT, data TEXT);
"""


async def _store(cluster: Cluster) -> None:
    url = cluster.dsn()
    store = PostgresStore(url)
    await store.open()
    pool = await asyncpg.create_pool(url, min_size=16, max_size=64)
    await pool.execute(_BARE)

    async def bare(name: str) -> None:
        async with pool.acquire() as connection, connection.transaction():
            text = "INSERT INTO bare_tasks (id, data) VALUES ($1, $2) RETURNING key"
            key = await connection.fetchval(text, name, _PAYLOAD)
            row = "INSERT INTO bare_rows (task, data) VALUES ($1, $2)"
            await connection.execute(row, key, _PAYLOAD)
            await connection.execute(row, key, _PAYLOAD)

    async def ours(name: str) -> None:
        await store.commit(_first_commit(name))

    for at_once, total in _COMMITS.items():
        took = [
            statistics.median([await _each(work, at_once, total, f"{n}") for n in range(3)])
            for work in (bare, ours)
        ]
        print(
            f"durable message, {at_once} at a time: {took[1]:.0f} us, bare transactions of as many "
            f"rows {took[0]:.0f} us ({took[1] / took[0]:.2f} x)"
        )
    await pool.close()
    await store.close()


async def _each(
    work: Callable[[str], Awaitable[None]], at_once: int, total: int, name: str
) -> float:
    names = (f"{work.__name__}-{at_once}-{name}-{number}" for number in range(total))

    async def worker() -> None:
        for each in names:
            await work(each)

    began = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(at_once)))
    return (time.perf_counter() - began) / total * 1e6


async def _callers(cluster: Cluster) -> None:
    async with _nodes(cluster.dsn(), 1, 0, 0, _IDLE) as nodes:
        process = psutil.Process(nodes.pids[0])
        before = process.memory_info().rss
        numbers = iter(range(1, _IDLE))
        for number in itertools.islice(numbers, _AWAY):
            await nodes.post(nodes.urls[0], number, "do")
        await asyncio.sleep(POSITIVE_SECONDS + 1)  # until their tokens are looked up again
        known, away, new = list[float](), list[float](), list[float]()
        for number in range(1, _AWAY + 1):  # in turns: the machine may be busy
            known.append(await _timed(nodes, 0))
            away.append(await _timed(nodes, number))
            new.append(await _timed(nodes, next(numbers)))

        async def work() -> None:
            for number in numbers:
                await nodes.post(nodes.urls[0], number, "do")

        await asyncio.gather(*(work() for _ in range(16)))
        grown = (process.memory_info().rss - before) / 2**20
    later = {
        name: (statistics.median(new) - statistics.median(than)) * 1e3
        for name, than in (
            ("who has just been served", known),
            ("who was away for half a minute", away),
        )
    }
    print(f"{_IDLE:,} callers who have had a task: + {grown:.0f} MB")
    for than, ms in later.items():
        print(
            f"the first task of a new caller takes {ms:.2f} ms longer than one of a caller {than}"
        )


async def _timed(nodes: _Nodes, caller: int) -> float:
    began = time.perf_counter()
    await nodes.post(nodes.urls[0], caller, "do")
    return time.perf_counter() - began


async def report() -> None:
    """Print the figures."""
    with _cluster() as cluster:
        for part in (_store, _scaling, _fairness, _hints, _callers, _takeover):
            await part(cluster)
