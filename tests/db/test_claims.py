"""One server per swarm and PostgreSQL database, also when the database was away."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable

import pytest

from mail.db.inspect import live_server
from mail.db.postgres.driver import PostgresStore
from mail.db.postgres.swarm_lock import claim_key
from mail.db.records import MemoryRow, Owner, SwarmClaim
from mail.errors import StoreError, StoreLocked
from tests.support.postgres import Cluster, execute, query

OWNER = Owner("alpha", "user", "alice")
END_CLAIM = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE application_name LIKE 'mail-claim%' AND pid IN "
    "(SELECT pid FROM pg_locks WHERE locktype = 'advisory' "
    "AND (classid::bigint << 32 | objid::bigint) = $1)"
)
Make = Callable[..., PostgresStore]


@pytest.fixture
def url(cluster: Cluster) -> str:
    return cluster.schema()


@pytest.fixture
async def make(url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Make]:
    """Return a function that makes a store for a server of a swarm."""
    monkeypatch.setattr("mail.db.postgres.swarm_lock._SETTINGS", {"lock_timeout": "200ms"})
    made: list[PostgresStore] = []

    def new(swarm: str = "alpha", lost: Callable[[], None] = lambda: None, at: str = url):
        made.append(PostgresStore(at, claim=SwarmClaim(swarm, lost)))
        return made[-1]

    yield new
    for store in made:
        await store.close()


async def write(store: PostgresStore, value: str) -> None:
    row = MemoryRow((), "k", value, "2026-01-01T00:00:00+00:00", "2026-01-01T00:00:00+00:00")
    await store.put_memories(OWNER, [row])


async def test_a_second_server_of_a_swarm_is_refused_until_the_first_one_closes(make: Make) -> None:
    first, second = make(), make()
    await first.open()
    with pytest.raises(StoreLocked, match=r"swarm 'alpha' is served .* \(pid \d+ on .+\); stop"):
        await second.open()
    await first.close()
    await second.open()
    await write(second, "x")


async def test_commands_find_the_server_of_a_swarm(make: Make, url: str) -> None:
    store = make()
    await store.open()
    assert str(await live_server(url, "alpha")).startswith(f"another server (pid {os.getpid()} on ")
    assert await live_server(url, "beta") is None
    await store.close()
    assert await live_server(url, "alpha") is None


async def test_other_swarms_other_schemas_and_short_commands_are_not_hindered(
    make: Make, url: str, cluster: Cluster
) -> None:
    for store in (make(), make("beta"), make(at=cluster.schema())):
        await store.open()
    guest = PostgresStore(url, exclusive=False)
    await guest.open()
    await write(guest, "a guest's")
    await guest.close()


async def test_one_more_swarm_is_held_like_the_first(make: Make, url: str) -> None:
    first, second = make(), make("beta")
    await first.open()
    await second.open()
    with pytest.raises(StoreLocked, match=r"swarm 'beta' is served .* \(pid \d+ on .+\); stop"):
        await first.claim_swarm("beta")
    await write(first, "nothing is lost over that")
    await second.close()
    for _ in range(2):
        await first.claim_swarm("beta")
    broken = first.driver._session.keeper._connection  # type: ignore[union-attr]
    query(url, END_CLAIM, key_of(url))
    async with asyncio.timeout(20):
        while not broken.is_closed():
            await asyncio.sleep(0.01)
    await write(first, "after")
    for swarm in ("alpha", "beta"):
        with pytest.raises(StoreLocked, match=swarm):
            await make(swarm).open()


async def test_a_session_that_broke_is_taken_again(make: Make, url: str) -> None:
    store = make()
    await store.open()
    broken = store.driver._session.keeper._connection  # type: ignore[union-attr]
    assert query(url, END_CLAIM, key_of(url)) == [(True,)]
    async with asyncio.timeout(20):
        while not broken.is_closed():
            await asyncio.sleep(0.01)
    await write(store, "after")  # waits until the swarm's lock is held again
    with pytest.raises(StoreLocked):
        await make().open()


async def test_a_server_that_lost_its_swarm_says_so_and_writes_no_more(
    make: Make, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = threading.Event()
    store, faster = make(lost=lost.set), make()
    await store.open()
    back = threading.Event()
    # The first server sleeps while the second one is started.
    monkeypatch.setattr("mail.db.postgres.swarm_lock.pause_before", lambda attempt: 0.0)
    taken = store.driver._session.keeper._connect  # type: ignore[union-attr]

    async def late():
        await asyncio.to_thread(back.wait)
        return await taken()

    monkeypatch.setattr(store.driver._session.keeper, "_connect", late)  # type: ignore[union-attr]
    query(url, END_CLAIM, key_of(url))
    await faster.open()
    back.set()
    assert await asyncio.to_thread(lost.wait, 20)
    with pytest.raises(StoreError, match="another server has taken over swarm 'alpha'"):
        await write(store, "too late")
    await write(faster, "mine")
    assert query(url, "SELECT value FROM memories") == [("mine",)]


async def test_a_dead_session_of_ones_own_does_not_stand_in_the_way(make: Make, url: str) -> None:
    store = make()
    await store.open()
    keeper = store.driver._session.keeper  # type: ignore[union-attr]
    loop = store.driver._session.loop  # type: ignore[union-attr]
    # The server still holds it to be alive: only our end forgets it.
    forgotten = keeper._connection
    forgotten.remove_termination_listener(keeper._broke)
    asyncio.run_coroutine_threadsafe(keeper.take(), loop).result(20)
    await write(store, "still mine")
    loop.call_soon_threadsafe(forgotten.terminate)


def key_of(url: str) -> int:
    return claim_key(url.rpartition("=")[2], "alpha")


def test_keys_differ_by_schema_and_swarm_and_fit() -> None:
    keys = {claim_key(schema, swarm) for schema in ("a", "b") for swarm in ("x", "y")}
    assert len(keys) == 4
    assert all(-(2**63) <= key < 2**63 for key in keys)


def test_the_database_url_of_a_claim_is_never_told(make: Make, cluster: Cluster) -> None:
    wrong = cluster.url("postgres").replace("mail:", "nobody:")
    with pytest.raises(StoreError) as caught:
        asyncio.run(make(at=wrong).open())
    assert "cannot connect to the database" in str(caught.value)
    assert "pg-secret" not in str(caught.value)
    execute(cluster.url("postgres"), "SELECT 1")
