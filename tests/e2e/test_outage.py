"""A server under load whose PostgreSQL goes away for a while: nothing false, and all recovers.

``OUTAGE_SECONDS=20`` (``make soak``) makes it a long while; then requests are refused in every way.
"""

import asyncio
import os

import psutil
import pytest

from tests.e2e.evidence import report
from tests.e2e.outage import WAYS, Asked, Caller, make_callers
from tests.e2e.processes import Place
from tests.e2e.script import WORKERS
from tests.support.postgres import PASSWORD, Cluster

SECONDS = float(os.environ.get("OUTAGE_SECONDS", "3"))
"""How long the database is away: at least longer than the store's own retries last."""
LONG = 20.0
SOME = ("stopped", "frozen")

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(90 + 2 * SECONDS)]


@pytest.mark.parametrize("way", WAYS if SECONDS >= LONG else SOME)
async def test_without_a_database_nothing_is_accepted_and_all_of_it_recovers(
    postgres_place: Place, cluster: Cluster, way: str
) -> None:
    place = postgres_place
    await place.start()
    callers = make_callers(place)
    async with asyncio.TaskGroup() as group:
        for caller in callers:
            group.create_task(caller.work())
        await all_settled(callers)
        await outage(place, cluster, way, callers, group)
        for caller in callers:
            caller.stopping = True
    check(place, callers, way)
    async with place.client() as client:
        assert (await client.get("/health")).json()["status"] == "healthy"
        assert (await client.get("/tasks")).json().keys() == set(place.evidence.tasks())
    assert PASSWORD not in place.log
    assert "Traceback" not in place.log and '"level": "ERROR"' not in place.log


async def all_settled(callers: list[Caller]) -> None:
    """Wait until each caller's newest task is done."""
    await asyncio.gather(*(caller.settled.wait() for caller in callers))


async def outage(
    place: Place, cluster: Cluster, way: str, callers: list[Caller], group: asyncio.TaskGroup
) -> None:
    """Take the database away, give it back, and wait until every caller is served again."""
    asked, before = len(place.evidence.requests()), memory(place)
    try:
        await asyncio.to_thread(WAYS[way].take, cluster)
        # The others may all wait in the middle of a COMMIT, and then get their 200 late.
        callers.append(Caller(place, "late"))
        group.create_task(callers[-1].work())
        await asyncio.sleep(SECONDS)
        spent = len(place.evidence.requests()) - asked
        async with place.client() as client:
            health = (await client.get("/health")).json()["status"]
        grown = memory(place) - before
    finally:
        await asyncio.to_thread(WAYS[way].give, cluster)
    back = asyncio.get_running_loop().time()
    for caller in callers:
        caller.settled.clear()
    await all_settled(callers)
    recovered = asyncio.get_running_loop().time() - back
    slowest = max(caller.slowest for caller in callers)
    report(
        f"{way} for {SECONDS:g} s: {sum(caller.refusals for caller in callers)} refusals, the "
        f"slowest after {slowest:.1f} s; {spent} model calls, "
        f"{grown / 2**20:+.1f} MiB; all served {recovered:.1f} s after its return"
    )
    assert slowest <= WAYS[way].patience
    if WAYS[way].refuses:
        assert health == "degraded"
        # Work that was on its way; nothing new begins where nothing can be recorded.
        assert spent <= len(callers) * (1 + len(WORKERS))


def memory(place: Place) -> int:
    """Return how many bytes the server's process holds."""
    assert place.process is not None
    return int(psutil.Process(place.process.pid).memory_info().rss)


def check(place: Place, callers: list[Caller], way: str) -> None:
    """Check that what was accepted is there and whole, once, and nothing else."""
    accepted = {job for caller in callers for job in caller.accepted}
    refused = {job for caller in callers for job in caller.refused}
    assert accepted and not accepted & refused
    assert refused or not WAYS[way].refuses or SECONDS < LONG
    assert set(place.evidence.tasks()) == accepted
    runs = place.evidence.runs()
    for caller in callers:
        for job, answer in caller.accepted.items():
            assert answer == caller.expected(job)
            paused = isinstance(caller, Asked)  # once at the start, and with one answer of two
            noted = 0 if paused else 1  # a breakpoint's own code never runs
            assert [runs[(f"note_{worker}", job)] for worker in WORKERS] == [noted] * len(WORKERS)
            place.evidence.check_log(job, runs=1 + len(WORKERS) if paused else 1)
