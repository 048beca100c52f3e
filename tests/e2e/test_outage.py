"""Servers under load whose database goes away for a while: nothing false, and all recovers.

``OUTAGE_SECONDS=30`` (``make soak``) makes it a long while; then it goes away in every way, and
requests are refused in each.
"""

import asyncio
import random
from pathlib import Path

import psutil
import pytest

from tests.e2e.evidence import Evidence, report
from tests.e2e.outage import LONGEST, SECONDS, Asked, Caller, make_callers
from tests.e2e.processes import Place
from tests.e2e.script import WORKERS
from tests.e2e.taken_away import WAYS, Database
from tests.nodes.kit import Servers, servers_of
from tests.support.postgres import PASSWORD, Cluster

LONG = 20.0
SOME = (
    *(("stopped", 1), ("frozen", 1), ("full file", 1)),
    *(("stopped", 3), ("failed over", 3), ("misled", 3), ("full data", 3)),
)
ALL = tuple((way, count) for way in WAYS for count in ((1,) if way == "full file" else (1, 3)))

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120 + 3 * SECONDS)]


@pytest.mark.parametrize(("way", "count"), ALL if SECONDS >= LONG else SOME)
async def test_without_a_database_nothing_is_accepted_and_all_of_it_recovers(
    tmp_path: Path, cluster: Cluster, way: str, count: int
) -> None:
    async with (
        WAYS[way].database(cluster, tmp_path) as database,
        servers_of(tmp_path, database.dsn, count) as servers,
    ):
        for place in servers.places:
            place.store_url = database.store_url or place.store_url
            await place.start()
        callers = make_callers(servers)
        async with asyncio.TaskGroup() as group:
            for caller in callers:
                group.create_task(caller.work())
            await all_settled(callers)
            await outage(servers, database, way, callers, group)
            for caller in callers:
                caller.stopping = True
        servers.evidence.dsn = database.dsn
        check(servers.evidence, callers, way)
        for place in servers.places:
            await is_healthy(place)
            async with place.client() as client:
                assert (await client.get("/tasks")).json().keys() == set(servers.evidence.tasks())
            assert PASSWORD not in place.log
            assert "Traceback" not in place.log and '"level": "ERROR"' not in place.log


async def all_settled(callers: list[Caller]) -> None:
    """Wait until each caller's newest task is done."""
    await asyncio.gather(*(caller.settled.wait() for caller in callers))


async def outage(
    servers: Servers, database: Database, way: str, callers: list[Caller], group: asyncio.TaskGroup
) -> None:
    """Take the database away, give it back, and wait until every caller is served again."""
    evidence, places = servers.evidence, servers.places
    asked, before = len(evidence.requests()), [memory(place) for place in places]
    try:
        await database.take()
        gone = asyncio.get_running_loop().time()
        for caller in callers:
            caller.since, caller.slowest = gone, 0.0
        # The others may all wait in the middle of a COMMIT, and be answered late.
        callers.append(Caller(servers, "late"))
        group.create_task(callers[-1].work())
        await asyncio.sleep(SECONDS)
        spent = len(evidence.requests()) - asked
        health = {await health_of(place) for place in places}
        if WAYS[way].patience < LONGEST:
            assert set(await asyncio.gather(*map(post_long, places))) == {503}
        grown = max(memory(place) - was for place, was in zip(places, before, strict=True))
    finally:
        await database.give()
    back = asyncio.get_running_loop().time()
    for caller in callers:
        caller.settled.clear()
    await all_settled(callers)
    recovered = asyncio.get_running_loop().time() - back
    slowest = max(caller.slowest for caller in callers)
    refusals = sum(caller.refusals for caller in callers)
    report(
        f"{len(places)} servers, {way} for {SECONDS:g} s: {refusals} refusals, the slowest after "
        f"{slowest:.1f} s; {spent} model calls, "
        f"{grown / 2**20:+.1f} MiB; all served {recovered:.1f} s after its return"
    )
    assert slowest <= WAYS[way].patience
    if WAYS[way].refuses:
        assert health == {"degraded"}
        # Work that was on its way; nothing new begins where nothing can be recorded.
        assert spent <= len(callers) * (1 + len(WORKERS))


async def post_long(place: Place) -> int:
    """Post what no disk has room for that is full; return the answer's status."""
    body = {"body": random.Random(0).randbytes(400_000).hex(), "task_id": f"long {place.port}"}
    async with place.client() as client:
        return (await client.post("/message", json=body)).status_code


async def health_of(place: Place) -> str:
    """Return what a server says of itself."""
    async with place.client() as client:
        return str((await client.get("/health")).json()["status"])


async def is_healthy(place: Place) -> None:
    """Wait until a server says so; one that nobody has used may be between two attempts."""
    async with asyncio.timeout(LONGEST):
        while await health_of(place) != "healthy":
            await asyncio.sleep(0.2)


def memory(place: Place) -> int:
    """Return how many bytes the server's process holds."""
    assert place.process is not None
    return int(psutil.Process(place.process.pid).memory_info().rss)


def check(evidence: Evidence, callers: list[Caller], way: str) -> None:
    """Check that what was accepted is there and whole, once, and nothing else."""
    accepted = {job for caller in callers for job in caller.accepted}
    refused = {job for caller in callers for job in caller.refused}
    assert accepted and not accepted & refused
    assert refused or not WAYS[way].refuses or SECONDS < LONG
    assert set(evidence.tasks()) == accepted
    runs = evidence.runs()
    for caller in callers:
        for job, answer in caller.accepted.items():
            assert answer == caller.expected(job)
            paused = isinstance(caller, Asked)  # once at the start, and with one answer of two
            noted = 0 if paused else 1  # a breakpoint's own code never runs
            assert [runs[(f"note_{worker}", job)] for worker in WORKERS] == [noted] * len(WORKERS)
            evidence.check_log(job, runs=1 + len(WORKERS) if paused else 1)
