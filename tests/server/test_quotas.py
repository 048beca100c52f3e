"""What one caller, and all callers together, may take at once."""

import asyncio
from functools import partial
from typing import Any

import httpx
import pytest

from mail.auth.callers import Caller, new_token
from mail.config.server import LimitsConfig
from mail.core.tasks import TaskState
from mail.db.memory import MemoryStore
from mail.db.records import Owner
from mail.server.app import create_app
from mail.server.errors import QuotaExceeded
from mail.server.quotas import Quotas, Rate
from tests.server.kit import Script, Template, bearer, config, serving

ALICE, BOB = Caller("user", "alice"), Caller("user", "bob")
OWNERS = [Owner("test-swarm", caller.role, caller.id) for caller in (ALICE, BOB)]


class Clock:
    """A clock that is set by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def admitted(rate: Rate, caller: Caller, tries: int) -> int:
    """Return how many of several units are there at once."""
    passed = 0
    while passed < tries and not rate.wait(caller):
        rate.take(caller, 1)
        passed += 1
    return passed


def test_a_burst_is_let_through_and_then_the_rate_holds() -> None:
    clock = Clock()
    rate = Rate(20.0, 40, clock)
    assert admitted(rate, ALICE, 100) == 40
    assert admitted(rate, BOB, 100) == 40
    assert rate.wait(ALICE) == pytest.approx(0.05)
    clock.now += 0.5
    assert admitted(rate, ALICE, 100) == 10
    clock.now += 3600
    assert admitted(rate, ALICE, 100) == 40
    assert admitted(Rate(0.0, 1, clock), ALICE, 1000) == 1000


def test_zero_lifts_every_limit() -> None:
    limits = LimitsConfig(body_rate=0.0, max_queued_tasks=0, max_streams=0)
    shares = Quotas(limits, Clock())
    assert {shares.body_bytes(ALICE, 2**30) for _ in range(100)} == {0.0}
    with shares.stream(ALICE), shares.stream(ALICE):
        shares.message(ALICE, "a", {str(number) for number in range(100_000)})


@pytest.mark.parametrize("name", ["body_rate", "max_streams", "max_queued_tasks"])
def test_a_refusal_names_the_setting_that_raises_the_limit(name: str) -> None:
    limits: dict[str, Any] = {"body_rate": 0.0, "max_running_tasks": 1, name: 1}
    shares = Quotas(LimitsConfig(**limits), Clock())
    with pytest.raises(QuotaExceeded, match=rf"raise \[server.limits\] {name}$"):
        with shares.stream(ALICE), shares.stream(ALICE):
            shares.body_bytes(ALICE, 2**26)
            shares.body_bytes(ALICE, 2**26)
        shares.message(ALICE, "a", {"b", "c"})


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
    async with asyncio.timeout(20):
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


async def test_tasks_beyond_those_that_run_are_queued_in_order(
    store: MemoryStore, template: Template, script: Script
) -> None:
    async with serving(app_with(store, template, max_running_tasks=2)) as client:
        begun = [post(client, body="hang", task_id=f"t-{n}") for n in (1, 2)]
        await running(store, 2)
        queued = [post(client, body="Hello", task_id=f"t-{n}") for n in (3, 4, 5)]
        await running(store, 5)  # accepted: in the store
        assert (script.calls, [item.done() for item in queued]) == (2, [False, False, False])
        assert (await post(client, "bob", body="Hello")).status_code == 200
        script.gate.set()
        answers = await asyncio.gather(*begun, *queued)
        assert {answer.status_code for answer in answers} == {200}


async def test_a_full_queue_is_429_and_nothing_is_begun(
    store: MemoryStore, template: Template, script: Script
) -> None:
    app = app_with(store, template, max_running_tasks=1, max_queued_tasks=1)
    async with serving(app) as client:
        begun = [post(client, body="hang", task_id=f"t-{n}") for n in (1, 2)]
        await running(store, 2)
        check_refused(await post(client, body="hang", task_id="t-3"))
        check_refused(await post(client, body="hang", task_id="t-3", stream=True))
        more = post(client, body="more", task_id="t-1")
        missing = await client.get("/tasks/t-3", headers=bearer("alice"))
        assert missing.status_code == 404
        assert (await post(client, "bob", body="Hello")).status_code == 200
        script.gate.set()
        answers = await asyncio.gather(*begun, more)
        assert {answer.status_code for answer in answers} == {200}
        assert (await post(client, body="Hello")).status_code == 200


async def test_a_task_that_nobody_waits_for_takes_a_place_and_can_be_written_to(
    store: MemoryStore, template: Template, script: Script
) -> None:
    app = app_with(store, template, max_running_tasks=0, max_queued_tasks=1)
    async with serving(app) as client:
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
        async with asyncio.timeout(20):  # the server sees that the readers left
            while (await client.get("/tasks/t-1/events", headers=headers)).status_code != 200:
                await asyncio.sleep(0.01)


async def test_a_server_full_of_requests_is_503_but_says_that_it_lives(
    store: MemoryStore, template: Template, monkeypatch: pytest.MonkeyPatch
) -> None:
    load, entered, whole = store.load_task, [], asyncio.Event()

    async def load_task(owner: Owner, task_id: str) -> Any:
        entered.append(task_id)
        await whole.wait()
        return await load(owner, task_id)

    app = app_with(store, template, max_requests=2)
    async with serving(app) as client:
        assert (await post(client, body="Hello", task_id="t")).status_code == 200
        monkeypatch.setattr(store, "load_task", load_task)
        ask = partial(client.get, "/tasks/t", headers=bearer("alice"))
        begun = [asyncio.create_task(ask()) for _ in range(2)]
        async with asyncio.timeout(20):
            while len(entered) < 2:
                await asyncio.sleep(0.005)
        refused = await client.get("/whoami", headers=bearer("bob"))
        check_refused(refused, 503)
        assert refused.json()["detail"].endswith("raise [server.limits] max_requests")
        check_refused(await post(client, "bob", body="Hello"), 503)
        assert (await client.get("/health")).status_code == 200
        whole.set()
        assert [answer.status_code for answer in await asyncio.gather(*begun)] == [200, 200]
        assert (await client.get("/whoami", headers=bearer("bob"))).status_code == 200


async def test_one_caller_leaves_a_quarter_of_the_places_to_others(
    store: MemoryStore, template: Template, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its requests are at work for long: each reads a store that does not answer."""
    load, entered, gate = store.load_task, [], asyncio.Event()

    async def load_task(owner: Owner, task_id: str) -> Any:
        entered.append(task_id)
        await gate.wait()
        return await load(owner, task_id)

    async with serving(app_with(store, template, max_requests=4)) as client:
        assert (await post(client, body="Hello")).status_code == 200
        monkeypatch.setattr(store, "load_task", load_task)
        ask = partial(client.get, "/tasks/t-1", headers=bearer("alice"))
        slow = [asyncio.create_task(ask()) for _ in range(3)]
        async with asyncio.timeout(20):
            while len(entered) < 3:
                await asyncio.sleep(0.005)
        waiting = [asyncio.create_task(ask()) for _ in range(2)]
        assert (await client.get("/whoami", headers=bearer("bob"))).status_code == 200
        assert len(entered) == 3
        gate.set()
        answers = await asyncio.gather(*slow, *waiting)
        assert {answer.status_code for answer in answers} == {404}
        assert (await ask()).status_code == 404


async def test_256_posts_at_a_time_are_all_answered_and_others_are_served(
    store: MemoryStore, template: Template
) -> None:
    app = create_app(config(), template=template, store=store)  # type: ignore[arg-type]
    async with serving(app) as client:
        many = [post(client, body="Hello") for _ in range(256)]
        other = await client.get("/whoami", headers=bearer("bob"))
        assert other.status_code == 200
        assert {answer.status_code for answer in await asyncio.gather(*many)} == {200}


async def test_requests_wait_in_their_order_until_too_many_do(
    store: MemoryStore, template: Template, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mail.server.at_work.AT_ONCE", 1)
    monkeypatch.setattr("mail.server.at_work.MAX_WAITING", 3)
    load, entered, gate = store.load_task, [], asyncio.Event()

    async def load_task(owner: Owner, task_id: str) -> Any:
        entered.append(task_id)
        await gate.wait()
        return await load(owner, task_id)

    async with serving(app_with(store, template)) as client:
        monkeypatch.setattr(store, "load_task", load_task)
        asked = []
        for number in range(5):
            get = client.get(f"/tasks/t-{number}", headers=bearer("alice"))
            asked.append(asyncio.create_task(get))
            await asyncio.sleep(0.05)
        refused = await asked[4]
        check_refused(refused)
        assert "3 of your requests wait" in refused.json()["detail"]
        assert entered == ["t-0"]
        asked[1].cancel()
        gate.set()
        for task in (asked[0], *asked[2:4]):
            assert (await task).status_code == 404
        assert [name for name in entered if name != "t-1"] == ["t-0", "t-2", "t-3"]
        assert (await client.get("/whoami", headers=bearer("alice"))).status_code == 200


async def test_requests_that_wait_for_a_run_do_not_fill_the_server(
    store: MemoryStore, template: Template, script: Script
) -> None:
    async with serving(app_with(store, template, max_requests=1)) as client:
        begun = []
        for number in (1, 2, 3):
            begun.append(post(client, body="hang", task_id=f"t-{number}"))
            await running(store, number)
        assert (await client.get("/whoami", headers=bearer("bob"))).status_code == 200
        script.gate.set()
        assert {answer.status_code for answer in await asyncio.gather(*begun)} == {200}


async def test_requests_with_unknown_tokens_do_not_fill_the_server(
    store: MemoryStore, template: Template, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, gate = app_with(store, template, max_requests=2), asyncio.Event()
    find, sought = store.find_token, []

    async def find_token(token_hash: str) -> Any:
        sought.append(token_hash)
        await gate.wait()
        return await find(token_hash)

    async with serving(app) as client:
        assert (await client.get("/whoami", headers=bearer("bob"))).status_code == 200
        monkeypatch.setattr(store, "find_token", find_token)
        flood = [
            asyncio.create_task(
                client.get("/whoami", headers={"Authorization": f"Bearer {new_token()}"})
            )
            for _ in range(5)
        ]
        async with asyncio.timeout(20):
            while len(sought) < 2:
                await asyncio.sleep(0.005)
        assert (await client.get("/whoami", headers=bearer("bob"))).status_code == 200
        gate.set()
        assert {answer.status_code for answer in await asyncio.gather(*flood)} == {401}


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
