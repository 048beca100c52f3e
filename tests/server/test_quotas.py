"""What one caller, and all callers together, may take at once."""

import asyncio
from typing import Any

import httpx
import pytest

from mail.auth.callers import Caller
from mail.config.server import LimitsConfig
from mail.core.tasks import TaskState
from mail.db.base import Owner
from mail.db.memory import MemoryStore
from mail.server import quotas
from mail.server.app import create_app
from mail.server.errors import QuotaExceeded
from mail.server.quotas import Quotas
from tests.server.kit import Script, Template, bearer, config, serving

ALICE, BOB = Caller("user", "alice"), Caller("user", "bob")
OWNERS = [Owner("test-swarm", caller.role, caller.id) for caller in (ALICE, BOB)]


class Clock:
    """A clock that is set by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def admitted(shares: Quotas, caller: Caller, tries: int) -> int:
    """Return how many of several requests pass."""
    passed = 0
    for _ in range(tries):
        try:
            shares.request(caller)
        except QuotaExceeded:
            continue
        passed += 1
    return passed


def test_a_burst_is_let_through_and_then_the_rate_holds() -> None:
    clock = Clock()
    shares = Quotas(LimitsConfig(request_rate=20.0, request_burst=40), clock)
    assert admitted(shares, ALICE, 100) == 40
    assert admitted(shares, BOB, 100) == 40
    clock.now += 0.5
    assert admitted(shares, ALICE, 100) == 10
    clock.now += 3600
    assert admitted(shares, ALICE, 100) == 40


def test_who_is_too_fast_learns_when_to_come_back() -> None:
    clock = Clock()
    shares = Quotas(LimitsConfig(request_rate=0.1, request_burst=1), clock)
    shares.request(ALICE)
    clock.now += 2
    with pytest.raises(QuotaExceeded) as caught:
        shares.request(ALICE)
    assert caught.value.retry_after == 8
    clock.now += caught.value.retry_after
    shares.request(ALICE)


def test_only_so_many_callers_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "MAX_BUCKETS", 10)
    shares = Quotas(LimitsConfig(request_rate=1.0, request_burst=1), Clock())
    for number in range(100):
        admitted(shares, ALICE, 1)
        shares.request(Caller("user", str(number)))
    assert len(shares._buckets) == 10
    assert admitted(shares, ALICE, 1) == 0  # who keeps coming is not forgotten


async def test_places_are_given_back_and_nothing_is_kept() -> None:
    shares = Quotas(LimitsConfig(max_running_tasks=1, max_streams=1))

    async def none() -> set[str]:
        return set()

    for _ in range(2):
        with shares.stream(ALICE):
            async with shares.message(ALICE, "t-1", none):
                with pytest.raises(QuotaExceeded), shares.stream(ALICE):
                    pass
                with pytest.raises(QuotaExceeded):
                    async with shares.message(ALICE, "t-1", none):
                        pass
                async with shares.message(BOB, "t-1", none):
                    pass
    assert not shares._streams
    assert not shares._messages


async def test_zero_lifts_every_limit() -> None:
    limits = LimitsConfig(request_rate=0.0, max_running_tasks=0, max_streams=0)
    shares = Quotas(limits, Clock())

    async def unasked() -> set[str]:
        raise AssertionError

    assert admitted(shares, ALICE, 1000) == 1000
    with shares.stream(ALICE), shares.stream(ALICE):
        async with shares.message(ALICE, "a", unasked), shares.message(ALICE, "b", unasked):
            pass


def app_with(store: MemoryStore, template: Template, **limits: Any) -> Any:
    """Return the application with some limits."""
    return create_app(config(shutdown_grace=0.2, **limits), template=template, store=store)  # type: ignore[arg-type]


def post(
    client: httpx.AsyncClient, who: str = "alice", **body: Any
) -> "asyncio.Task[httpx.Response]":
    """Begin to post a message."""
    return asyncio.create_task(client.post("/message", json=body, headers=bearer(who)))


async def running(store: MemoryStore, count: int) -> None:
    """Wait until so many tasks run."""
    async with asyncio.timeout(5):
        while sum(map(len, [await open_tasks(store, owner) for owner in OWNERS])) < count:
            await asyncio.sleep(0.005)


async def open_tasks(store: MemoryStore, owner: Owner) -> list[Any]:
    """Return an owner's running tasks."""
    return await store.list_tasks(owner, states=(TaskState.RUNNING,))


def check_refused(answer: httpx.Response, status: int = 429) -> None:
    """Check a refusal that says when to come back."""
    assert answer.status_code == status, answer.text
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.json()["detail"]
    assert answer.json()["errors"] == []


async def test_too_many_requests_of_one_caller_are_429_and_others_are_served(
    store: MemoryStore, template: Template
) -> None:
    async with serving(app_with(store, template, request_rate=0.5, request_burst=3)) as client:
        answers = [await client.get("/whoami", headers=bearer("alice")) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        check_refused(answers[-1])
        assert (await client.get("/whoami", headers=bearer("bob"))).status_code == 200
        assert (await client.get("/health")).status_code == 200


async def test_more_running_tasks_than_allowed_are_429_and_nothing_is_begun(
    store: MemoryStore, template: Template, script: Script
) -> None:
    async with serving(app_with(store, template, max_running_tasks=2)) as client:
        begun = [post(client, body="hang", task_id=f"t-{n}") for n in (1, 2)]
        await running(store, 2)
        check_refused(await post(client, body="hang", task_id="t-3"))
        check_refused(await post(client, body="hang", task_id="t-3", stream=True))
        check_refused(await post(client, body="more", task_id="t-1"))
        missing = await client.get("/tasks/t-3", headers=bearer("alice"))
        assert missing.status_code == 404
        assert (await post(client, "bob", body="Hello")).status_code == 200
        script.gate.set()
        assert [answer.status_code for answer in await asyncio.gather(*begun)] == [200, 200]
        assert (await post(client, body="Hello")).status_code == 200


async def test_as_many_tasks_as_allowed_can_be_begun_together(
    store: MemoryStore, template: Template
) -> None:
    async with serving(app_with(store, template, max_running_tasks=8)) as client:
        for _ in range(5):
            answers = await asyncio.gather(*(post(client, body="Hello") for _ in range(8)))
            assert {answer.status_code for answer in answers} == {200}


async def test_a_task_that_nobody_waits_for_takes_a_place_and_can_be_written_to(
    store: MemoryStore, template: Template, script: Script
) -> None:
    async with serving(app_with(store, template, max_running_tasks=1)) as client:
        left = await post(client, body="hang", task_id="t-1", kwargs={"timeout": 0.05})
        assert left.status_code == 504
        check_refused(await post(client, body="Hello", task_id="t-2"))
        more = post(client, body="more", task_id="t-1")
        await asyncio.sleep(0.05)
        assert not more.done()
        script.gate.set()
        assert (await more).status_code == 200


async def test_more_open_streams_than_allowed_are_429(
    store: MemoryStore, template: Template, script: Script
) -> None:
    async with serving(app_with(store, template, max_streams=2)) as client:
        body = {"body": "hang", "task_id": "t-1", "stream": True}
        headers = bearer("alice")
        async with client.stream("POST", "/message", json=body, headers=headers) as first:
            read = [first.aiter_raw()]  # kept: an iterator that is dropped closes its connection
            await anext(read[0])
            async with client.stream("GET", "/tasks/t-1/events", headers=headers) as second:
                read.append(second.aiter_raw())
                await anext(read[1])
                check_refused(await client.get("/tasks/t-1/events", headers=headers))
                check_refused(await post(client, body="Hello", stream=True))
                assert (await post(client, body="Hello")).status_code == 200
        script.gate.set()
        async with asyncio.timeout(5):  # the server sees that the readers left
            while (await client.get("/tasks/t-1/events", headers=headers)).status_code != 200:
                await asyncio.sleep(0.01)


async def test_a_server_full_of_requests_is_503_but_says_that_it_lives(
    store: MemoryStore, template: Template, script: Script
) -> None:
    async with serving(app_with(store, template, max_requests=2)) as client:
        begun = [post(client, body="hang", task_id=f"t-{n}") for n in (1, 2)]
        await running(store, 2)
        check_refused(await client.get("/whoami", headers=bearer("bob")), 503)
        check_refused(await post(client, "bob", body="Hello"), 503)
        assert (await client.get("/health")).status_code == 200
        script.gate.set()
        await asyncio.gather(*begun)
        assert (await client.get("/whoami", headers=bearer("bob"))).status_code == 200


async def test_open_streams_do_not_fill_the_server(
    store: MemoryStore, template: Template, script: Script
) -> None:
    async with serving(app_with(store, template, max_requests=1)) as client:
        body = {"body": "hang", "stream": True}
        async with client.stream("POST", "/message", json=body, headers=bearer("alice")) as stream:
            pieces = stream.aiter_raw()
            await anext(pieces)
            assert (await client.get("/whoami", headers=bearer("bob"))).status_code == 200
        script.gate.set()
