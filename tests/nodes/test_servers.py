"""Two servers of a swarm on one database: what was begun at one goes on at the other."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest

from mail.auth.callers import hash_token
from mail.db.postgres.driver import PostgresStore
from tests.server.kit import bearer, know, serving
from tests.server.test_loading import app_of, load
from tests.support.loadable import GATES
from tests.support.pgbouncer import pooled
from tests.support.postgres import Cluster


@pytest.fixture(autouse=True)
def gates() -> Iterator[None]:
    """What makes agents wait, for this test alone."""
    GATES.update(gate=asyncio.Event(), entered=asyncio.Event())
    yield
    GATES.clear()


class Servers:
    """Servers of one swarm, each with a store and a client of its own."""

    def __init__(self, url: str, stack: AsyncExitStack) -> None:
        self._url, self._stack = url, stack

    async def start(self, **limits: Any) -> tuple[httpx.AsyncClient, AsyncExitStack]:
        """Start one more; return its client, and what stops it."""
        stack = await self._stack.enter_async_context(AsyncExitStack())
        store = PostgresStore(self._url, swarm="test-swarm")
        await store.open()
        stack.push_async_callback(store.close)
        return await stack.enter_async_context(serving(app_of(store, limits))), stack

    async def pair(self) -> tuple[httpx.AsyncClient, httpx.AsyncClient]:
        """Start two."""
        (first, _), (second, _) = await self.start(), await self.start()
        return first, second


@pytest.fixture(params=["direct", "pgbouncer"])
async def servers(cluster: Cluster, request: pytest.FixtureRequest) -> AsyncIterator[Servers]:
    """Servers of one database, also behind a pooler, where no notifications arrive."""
    async with AsyncExitStack() as stack:
        is_direct = request.param == "direct"
        url = cluster.schema() if is_direct else stack.enter_context(pooled(cluster))
        await know(url)
        yield Servers(url, stack)


async def becomes(look: Callable[[], Awaitable[Any]], wanted: object) -> None:
    """Wait until something that is looked at is as wanted."""
    async with asyncio.timeout(20):
        while await look() != wanted:
            await asyncio.sleep(0.02)


async def health(client: httpx.AsyncClient) -> tuple[str, str]:
    told = (await client.get("/health")).json()
    return told["status"], told["timestamp"]


async def test_the_health_that_an_administrator_sets_holds_for_all_until_all_are_gone(
    servers: Servers,
) -> None:
    (first, stop_first), (second, stop_second) = await servers.start(), await servers.start()
    told = await first.post("/health", json={"status": "maintenance"}, headers=bearer("admin"))
    assert told.status_code == 200
    await becomes(lambda: health(second), await health(first))
    assert (await health(first))[0] == "maintenance"
    await stop_first.aclose()
    third, stop_third = await servers.start()
    assert await health(third) == await health(second)
    await stop_second.aclose()
    await stop_third.aclose()
    last, _ = await servers.start()
    assert (await health(last))[0] == "healthy"


async def test_a_loaded_swarm_is_served_by_all(servers: Servers) -> None:
    first, second = await servers.pair()
    assert (await load(first, name="second", accent="two")).status_code == 200

    async def name() -> str:
        return str((await second.get("/")).json()["swarm"]["name"])

    await becomes(name, "second")
    told = await second.post("/message", json={"body": "Hello"}, headers=bearer("alice"))
    assert told.json()["response"] == "two: Hello"
    third, _ = await servers.start()
    assert (await third.get("/")).json()["swarm"]["name"] == "second"
    # What is loaded last holds, wherever.
    assert (await load(second, name="third")).status_code == 200
    for client in (first, third):

        async def name() -> str:
            return str((await client.get("/")).json()["swarm"]["name"])  # noqa: B023

        await becomes(name, "third")


async def test_a_repeated_post_gets_the_first_ones_answer_from_another_server(
    servers: Servers,
) -> None:
    first, second = await servers.pair()
    headers = bearer("alice") | {"Idempotency-Key": "k-1"}
    told = await first.post("/message", json={"body": "Hello"}, headers=headers)
    again = await second.post("/message", json={"body": "Hello"}, headers=headers)
    assert (again.status_code, again.content) == (200, told.content)
    running = asyncio.create_task(
        first.post("/message", json={"body": "hang"}, headers=headers | {"Idempotency-Key": "k-2"})
    )
    await GATES["entered"].wait()
    repeated = asyncio.create_task(
        second.post("/message", json={"body": "hang"}, headers=headers | {"Idempotency-Key": "k-2"})
    )
    await asyncio.sleep(0.2)  # it may have come now, or come when the task is over
    GATES["gate"].set()
    assert (await repeated).json() == (await running).json()
    assert (await running).json()["response"] == "one: hang"


async def test_an_interrupt_and_a_cancel_reach_the_server_that_works(servers: Servers) -> None:
    first, second = await servers.pair()
    body = {"body": "hang", "task_id": "t"}
    running = asyncio.create_task(first.post("/message", json=body, headers=bearer("alice")))
    await GATES["entered"].wait()
    seen = (await second.get("/tasks", headers=bearer("alice"))).json()
    assert [task["is_running"] for task in seen.values()] == [True]
    cancelled = await second.post("/tasks/t/cancel", headers=bearer("alice"))
    assert cancelled.status_code == 200
    assert (await running).json()["task_id"] == "t"
    task = (await second.get("/tasks/t", headers=bearer("alice"))).json()
    assert task["status"] == "cancelled"


async def test_a_breakpoint_of_one_server_is_resumed_at_the_other(servers: Servers) -> None:
    first, second = await servers.pair()
    body = {"body": "ask", "task_id": "t"}
    paused = await first.post("/message", json=body, headers=bearer("alice"))
    assert paused.status_code == 200
    assert "breakpoint" in paused.text
    resume = {
        "body": "",
        "task_id": "t",
        "resume_from": "breakpoint_tool_call",
        "kwargs": {"breakpoint_tool_call_result": "good"},
    }
    resumed = await second.post("/message", json=resume, headers=bearer("alice"))
    assert resumed.json()["response"] == "one was told good"


async def test_a_revoked_token_is_refused_by_all(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mail.auth.token_cache.POSITIVE_SECONDS", 0.2)
    first, second = await servers.pair()
    carol = {"role": "user", "id": "carol"}
    made = await first.post("/tokens", json=carol, headers=bearer("admin"))
    assert made.status_code == 200, made.text
    hers = {"Authorization": f"Bearer {made.json()['token']}"}

    async def answer() -> int:
        return (await second.get("/tasks", headers=hers)).status_code

    assert await answer() == 200
    prefix = hash_token(made.json()["token"])[:8]
    assert (await first.delete(f"/tokens/{prefix}", headers=bearer("admin"))).status_code == 200
    await becomes(answer, 401)


async def test_a_caller_has_so_many_tasks_at_all_servers_together(servers: Servers) -> None:
    limits = {"max_running_tasks": 1, "max_queued_tasks": 1}
    (first, _), (second, _) = await servers.start(**limits), await servers.start(**limits)
    body, alice = {"body": "hang"}, bearer("alice")
    running = [
        asyncio.create_task(first.post("/message", json=body, headers=alice)) for _ in range(2)
    ]
    await GATES["entered"].wait()

    async def begun() -> int:
        return len((await first.get("/tasks?events=false", headers=alice)).json())

    await becomes(begun, 2)
    refused = await second.post("/message", json=body, headers=alice)
    assert refused.status_code == 429, refused.text
    GATES["gate"].set()
    assert [(await each).status_code for each in running] == [200, 200]

    async def accepted() -> int:
        return (await second.post("/message", json=body, headers=alice)).status_code

    await becomes(accepted, 200)


async def test_what_one_server_has_no_room_for_is_done_by_the_other(servers: Servers) -> None:
    (first, _), (second, _) = await servers.start(max_running_tasks=1), await servers.start()
    alice = bearer("alice")
    running = asyncio.create_task(first.post("/message", json={"body": "hang"}, headers=alice))
    await GATES["entered"].wait()
    told = await asyncio.gather(
        *(first.post("/message", json={"body": f"job {n}"}, headers=alice) for n in range(5))
    )
    assert [each.json()["response"] for each in told] == [f"one: job {n}" for n in range(5)]
    nodes = (await second.get("/nodes", headers=bearer("admin"))).json()["nodes"]
    assert [node["tasks"] for node in nodes] == [1, 0]
    for each in told:
        path = f"/tasks/{each.json()['task_id']}"
        events = (await second.get(path, headers=alice)).json()["events"]
        assert "turn_restarted" not in {event["event"] for event in events}
    GATES["gate"].set()
    assert (await running).json()["response"] == "one: hang"


async def test_what_waits_for_room_is_cancelled_and_streamed_from_any_server(
    servers: Servers,
) -> None:
    first, second = (
        await servers.start(max_running_tasks=1),
        await servers.start(max_running_tasks=1),
    )
    (first, _), (second, _) = first, second  # type: ignore[assignment]
    alice = bearer("alice")
    hanging = []
    for client in (first, second):
        GATES["entered"].clear()
        hanging.append(
            asyncio.create_task(client.post("/message", json={"body": "hang"}, headers=alice))
        )
        await GATES["entered"].wait()
    posts = [
        asyncio.create_task(
            first.post("/message", json={"body": "later", "task_id": name}, headers=alice)
        )
        for name in ("a", "b")
    ]

    async def begun() -> int:
        return len((await second.get("/tasks?events=false", headers=alice)).json())

    await becomes(begun, 4)
    assert (await second.post("/tasks/a/cancel", headers=alice)).status_code == 200
    assert (await posts[0]).json()["status"] == "cancelled"
    GATES["gate"].set()
    assert (await posts[1]).json()["response"] == "one: later"
    await asyncio.gather(*hanging)


async def test_a_task_of_one_server_is_followed_at_the_other(servers: Servers) -> None:
    first, second = await servers.pair()
    alice = bearer("alice")
    await second.post("/message", json={"body": "hello"}, headers=alice)  # she has been here
    body = {"body": "hang", "task_id": "t"}
    running = asyncio.create_task(first.post("/message", json=body, headers=alice))
    await GATES["entered"].wait()

    async def read() -> str:
        async with second.stream("GET", "/tasks/t/events", headers=alice) as answer:
            return (await answer.aread()).decode()

    reading = asyncio.create_task(read())
    await asyncio.sleep(0.3)  # it waits for news, which come at any moment
    GATES["gate"].set()
    async with asyncio.timeout(10):  # a silence is told of after 15 s
        text = await reading
    assert "event: task_complete" in text
    assert (await running).json()["response"] == "one: hang"
