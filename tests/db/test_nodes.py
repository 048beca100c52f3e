"""Several processes on one PostgreSQL database: who is there, and whose tasks are whose."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator

import pytest

from mail import metrics
from mail.core.tasks import TaskState
from mail.db.commit import Commit
from mail.db.postgres import nodes
from mail.db.postgres.driver import PostgresStore
from mail.db.records import Owner, TaskClaim, TaskRow
from mail.errors import TaskElsewhere
from tests.support.postgres import Cluster, query

OWNER = Owner("alpha", "user", "alice")
ROW = TaskRow("t1", str(OWNER), (str(OWNER),), "2026-01-01T10:00:00+00:00", "supervisor")
OLDER = "UPDATE nodes SET beat_at = now() - interval '7 seconds' WHERE id = $1"


@pytest.fixture
async def stores(cluster: Cluster) -> AsyncIterator[tuple[PostgresStore, PostgresStore]]:
    url = cluster.schema()
    pair = PostgresStore(url), PostgresStore(url)
    for store in pair:
        await store.open()
    yield pair
    for store in pair:
        await store.close()


async def test_a_task_at_work_is_left_to_who_has_it_and_is_taken_up_when_they_are_gone(
    stores: tuple[PostgresStore, PostgresStore],
) -> None:
    first, second = stores
    await first.commit(Commit(OWNER, ROW, new=True, claim=TaskClaim()))
    assert await second.orphans("alpha") == []
    with pytest.raises(TaskElsewhere, match="another server is at work on task 't1'"):
        await second.claim_task(OWNER, "t1")
    await first.close()
    assert await second.orphans("alpha") == [(OWNER, "t1")]
    assert await second.claim_task(OWNER, "t1") == (ROW, TaskClaim(2, held=True))
    assert await second.orphans("alpha") == []


async def test_nodes_and_what_they_take_up_are_counted(
    stores: tuple[PostgresStore, PostgresStore],
) -> None:
    first, second = stores
    assert (await second.figures("alpha")).nodes == 2
    await first.commit(Commit(OWNER, ROW, new=True, claim=TaskClaim()))
    await first.close()
    assert (await second.figures("alpha")).nodes == 1
    claims, takeovers = metrics.CLAIMS.values[()], metrics.TAKEOVERS.values[()]
    await second.claim_task(OWNER, "t1")
    await second.claim_task(OWNER, "t1")  # its own
    assert metrics.CLAIMS.values[()] == claims + 2
    assert metrics.TAKEOVERS.values[()] == takeovers + 1


async def test_a_process_that_says_nothing_for_six_seconds_is_dead_until_it_speaks_again(
    cluster: Cluster, stores: tuple[PostgresStore, PostgresStore]
) -> None:
    first, second = stores
    await first.commit(Commit(OWNER, ROW, new=True, claim=TaskClaim()))
    url = second.driver._dsn
    query(url, OLDER, first.driver.node)
    assert await second.orphans("alpha") == [(OWNER, "t1")]
    async with asyncio.timeout(5):
        while await second.orphans("alpha"):
            await asyncio.sleep(0.05)


async def test_a_task_that_rests_is_nobodys_orphan(
    stores: tuple[PostgresStore, PostgresStore],
) -> None:
    first, second = stores
    paused = ROW.changed(state=TaskState.PAUSED)
    await first.commit(Commit(OWNER, paused, new=True, claim=TaskClaim()))
    assert await second.orphans("alpha") == []
    assert await second.claim_task(OWNER, "t1") == (paused, TaskClaim(1))


async def test_who_died_on_this_machine_is_not_waited_for(cluster: Cluster) -> None:
    url = cluster.schema()
    store = PostgresStore(url)
    await store.open()
    ended = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
    await ended.wait()
    made = "INSERT INTO nodes (id, host, pid, version, swarm) VALUES ($1, $2, $3, '1', '')"
    here = socket.gethostname()
    for name, host, pid in (
        ("died", here, ended.pid),
        ("as us", here, os.getpid()),
        ("parent", here, os.getppid()),
        ("elsewhere", f"not-{here}", ended.pid),
    ):
        query(url, made, name, host, pid)
    other = PostgresStore(url)
    await other.open()
    left = {name for (name,) in query(url, "SELECT id FROM nodes")}
    assert left == {store.driver.node, other.driver.node, "parent", "elsewhere"}
    await other.close()
    await store.close()
    left = {name for (name,) in query(url, "SELECT id FROM nodes")}
    assert left == {"parent", "elsewhere"}


async def test_hints_reach_the_other_process_and_not_oneself(
    stores: tuple[PostgresStore, PostgresStore],
) -> None:
    first, second = stores
    heard: list[list[str]] = []
    second.driver.on_hint(heard.append)
    async with asyncio.timeout(10):
        while not (first.driver._session.hints.arrive and second.driver._session.hints.arrive):
            await asyncio.sleep(0.01)
        while first.driver._session.membership.alone:
            await asyncio.sleep(0.05)
        first.driver.tell("events user:alice@alpha t1")
        second.driver.tell("its own")
        while not any(heard):
            await asyncio.sleep(0.001)
    assert [topics for topics in heard if topics] == [["events user:alice@alpha t1"]]


async def test_who_joins_is_told_of_what_happens_before_the_next_heartbeat(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "_BEAT_SECONDS", 60)
    url = cluster.schema()
    first, second = PostgresStore(url), PostgresStore(url)
    try:
        await first.open()
        assert first.driver._session.membership.alone
        await second.open()
        async with asyncio.timeout(10):
            while first.driver._session.membership.alone:
                await asyncio.sleep(0.01)
    finally:
        await first.close()
        await second.close()
