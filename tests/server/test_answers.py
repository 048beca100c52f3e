"""Answers that may be large are sent while they are made, and are whole or visibly broken."""

import asyncio
import json
import socket
from contextlib import ExitStack, suppress
from typing import Any

import httpx
import pytest
from pydantic_core import from_json, to_json

from mail.auth.callers import Caller
from mail.core.approvals import ALLOWS
from mail.core.large import LARGE_AT_ONCE
from mail.core.tasks import TaskState
from mail.db.calls import CallRow
from mail.db.commit import Commit
from mail.db.memory import MemoryStore
from mail.db.records import EventRow, Owner, TaskRow
from mail.errors import StoreConflict, StoreError
from mail.server.app import create_app
from tests.server.kit import Template, bearer, config, serving
from tests.support.sql import held_call, put_held

ALICE = Owner("test-swarm", "user", "alice")
NOW = "2026-01-01T00:00:00+00:00"
BODY = 'a"\\\n\u2028é漢<&>' * 20_000


async def seed(store: MemoryStore, task_id: str, *sizes: int) -> None:
    """Store a finished task with events of these sizes."""
    row = TaskRow(task_id, str(ALICE), (str(ALICE),), NOW, "supervisor", TaskState.COMPLETED)
    events = (EventRow("tool_call", NOW, extra=json.dumps({"x": "x" * size})) for size in sizes)
    await store.commit(Commit(owner=ALICE, task=row, new=True, events=tuple(events)))


async def hold(store: MemoryStore, size: int) -> None:
    """Let a call of the task ``t`` wait for a person, with a description of this size."""
    allowed = json.dumps(dict.fromkeys(ALLOWS.values(), True))
    more = {"config": allowed, "approvers": "\nowner\n", "description": "x" * size}
    await put_held(store, ALICE, "t", held_call("held", created_at=NOW, **more))


async def get(client: httpx.AsyncClient, path: str, **params: Any) -> httpx.Response:
    return await client.get(path, params=params, headers=bearer("alice"))


async def test_every_task_is_in_a_long_list(client: httpx.AsyncClient, store: MemoryStore) -> None:
    names = [f"t-{number}" for number in range(350)]
    for name in names:
        await seed(store, name, 10)
    whole = (await get(client, "/tasks")).json()
    assert list(whole) == names[::-1]
    assert whole["t-7"]["event_count"] == 1 == len(whole["t-7"]["events"])
    page = (await get(client, "/tasks", limit=250)).json()
    assert list(page["tasks"]) == names[:99:-1]
    few = (await get(client, "/tasks", limit=120)).json()
    assert (list(few["tasks"]), few["next_cursor"]) == (names[:229:-1], "t-230")
    rest = (await get(client, "/tasks", limit=250, cursor=page["next_cursor"])).json()
    assert list(rest["tasks"]) == names[99::-1]
    assert rest["next_cursor"] is None


@pytest.mark.parametrize("path", ["/tasks", "/tasks?limit=100"])
async def test_a_list_has_the_events_of_the_newest_tasks_up_to_1_mib(
    client: httpx.AsyncClient, store: MemoryStore, path: str
) -> None:
    sizes = (10, 300_000, 300_000, 10, 300_000, 1_500_000, 300_000, 10)
    for number, size in enumerate(sizes):
        await seed(store, f"t-{number}", size, 10)
    await seed(store, "none")
    answer = (await get(client, path)).json()
    tasks = answer.get("tasks", answer)
    whole = {name for name, task in tasks.items() if "events_omitted" not in task}
    assert whole == {"none", "t-7", "t-6", "t-4", "t-3", "t-2", "t-0"}
    for name, task in tasks.items():
        kept = task["event_count"] if name in whole else 0
        assert (len(task["events"]), task["next_after"]) == (kept, None if name in whole else 0)
        assert task["event_count"] == (0 if name == "none" else 2)
    assert sum(len(event["data"]) for task in tasks.values() for event in task["events"]) < 1.1e6


async def test_a_page_of_events_ends_at_its_number_and_at_its_bytes(
    client: httpx.AsyncClient, store: MemoryStore
) -> None:
    await seed(store, "t", *[400_000] * 5, 3_000_000, *[10] * 1500)
    pages, after = [], 0
    while after is not None:
        task = (await get(client, "/tasks/t", after=after)).json()
        assert task["event_count"] == 1506
        assert task["next_after"] in (None, int(task["events"][-1]["id"]))
        pages.append(len(task["events"]))
        after = task["next_after"]
    assert pages == [2, 2, 1, 1, 1000, 500]
    assert (await get(client, "/tasks/t", after=1506)).json()["next_after"] is None
    three = (await get(client, "/task", task_id="t", after=1500, limit=3)).json()
    assert [event["id"] for event in three["events"]] == ["1501", "1502", "1503"]
    assert three["next_after"] == 1503


@pytest.mark.parametrize("verb", ["load_task", "events", "task_counts"])
@pytest.mark.parametrize("known", [0, 2])
async def test_a_task_that_ends_while_it_is_read_is_not_shown_ended_without_its_events(
    client: httpx.AsyncClient,
    store: MemoryStore,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    known: int,
) -> None:
    row = TaskRow("t", str(ALICE), (str(ALICE),), NOW, "supervisor")
    event = EventRow("tool_call", NOW)
    await store.commit(Commit(owner=ALICE, task=row, new=True, events=(event,) * known))
    reads = getattr(store, verb)

    async def ends(*given: Any) -> Any:
        monkeypatch.setattr(store, verb, reads)
        ended = row.changed(state=TaskState.COMPLETED)
        await store.commit(Commit(owner=ALICE, task=ended, events=(event,) * 3))
        return await reads(*given)

    monkeypatch.setattr(store, verb, ends)
    after, seen = known, 0
    for _ in range(3):
        task = (await get(client, "/tasks/t", after=after)).json()
        seen += len(task["events"])
        after = known + seen
        if task["completed"] and task["next_after"] is None:
            break
    assert (task["completed"], task["event_count"], seen) == (True, known + 3, 3)


async def test_long_arguments_of_a_call_are_sent_as_they_are_stored(
    client: httpx.AsyncClient, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    def noted(text: str) -> Any:
        read.append(len(text))
        return from_json(text)

    monkeypatch.setattr("mail.services.tasks.from_json", noted)
    row = TaskRow("t", str(ALICE), (str(ALICE),), NOW, "supervisor", TaskState.PAUSED)
    shown = [{"id": f"c{number}", "arguments": BODY} for number in range(2)]
    calls = [CallRow("a", str(call["id"]), "{}", to_json(call).decode()) for call in shown]
    await store.commit(Commit(owner=ALICE, task=row, new=True, calls=tuple(calls)))
    answer = await get(client, "/tasks/t")
    assert answer.json()["breakpoints"] == shown
    assert "\u2028" in BODY and "\u2028" not in answer.text
    assert max(read, default=0) < 100


async def test_mail_that_waits_is_shown_as_far_as_it_fits(
    client: httpx.AsyncClient, store: MemoryStore
) -> None:
    from mail.db.records import Delivery

    row = TaskRow("t", str(ALICE), (str(ALICE),), NOW, "supervisor", TaskState.PAUSED)
    payload = json.dumps({"id": "m", "text": "x" * 300_000})
    mail = tuple(Delivery("t", "supervisor", 3, False, payload) for _ in range(20))
    await store.commit(Commit(owner=ALICE, task=row, new=True, deliveries=mail))
    task = (await get(client, "/tasks/t")).json()
    assert (len(task["task_message_queue"]), task["task_message_count"]) == (3, 20)
    listed = (await get(client, "/tasks")).json()["t"]
    assert (listed["task_message_queue"], listed["task_message_count"]) == ([], 20)


async def test_an_answer_that_the_store_breaks_off_does_not_look_whole(
    client: httpx.AsyncClient, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(300):
        await seed(store, f"t-{number}", 10)
    whole, reads = store.list_tasks, []

    async def fails(*given: Any, **more: Any) -> list[TaskRow]:
        reads.append(more)
        if len(reads) > 2:
            raise StoreError("the disk is gone")
        return await whole(*given, **more)

    monkeypatch.setattr(store, "list_tasks", fails)
    with pytest.raises(httpx.RemoteProtocolError):
        await get(client, "/tasks")
    reads += [{}] * 3
    assert (await get(client, "/tasks")).status_code == 503


async def test_a_list_goes_on_behind_tasks_that_are_deleted_meanwhile(
    client: httpx.AsyncClient, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"t-{number}" for number in range(250)]
    for name in names:
        await seed(store, name, 10)
    counts = store.task_counts

    async def deletes(owner: Owner, task_ids: list[str]) -> Any:
        found = await counts(owner, task_ids)
        for name in task_ids[-3:]:
            with suppress(StoreConflict):
                await store.delete_task(ALICE, name)
        return found

    monkeypatch.setattr(store, "task_counts", deletes)
    assert list((await get(client, "/tasks")).json()) == names[::-1]


async def test_readers_that_do_not_read_take_no_place_of_requests_at_work(
    store: MemoryStore, template: Template
) -> None:
    await seed(store, "t", 20_000_000)
    app = create_app(config(max_requests=1), template=template, store=store)  # type: ignore[arg-type]
    async with serving(app) as client:
        port = client.base_url.port
        request = "GET /tasks/t HTTP/1.1\r\nHost: localhost\r\n"
        request += "".join(f"{name}: {value}\r\n" for name, value in bearer("alice").items())
        with socket.create_connection(("127.0.0.1", port)) as stalled:
            stalled.sendall(f"{request}\r\n".encode())
            await asyncio.to_thread(stalled.recv, 100)
            assert (await get(client, "/whoami")).status_code == 200


async def test_requests_that_wait_for_unread_answers_take_no_place_and_end_with_their_client(
    store: MemoryStore, template: Template
) -> None:
    await seed(store, "t", 20_000_000)
    await hold(store, 100_000)
    app = create_app(config(max_requests=1), template=template, store=store)  # type: ignore[arg-type]
    async with serving(app) as client:
        port = client.base_url.port
        headers = "".join(f"{name}: {value}\r\n" for name, value in bearer("alice").items())
        places = app.state.mail.quotas.places(Caller("user", "alice"))
        with ExitStack() as stalled:
            for _ in range(LARGE_AT_ONCE):
                reader = stalled.enter_context(socket.create_connection(("127.0.0.1", port)))
                line = "GET /tasks/t HTTP/1.1\r\nHost: localhost\r\n"
                reader.sendall(f"{line}{headers}\r\n".encode())
                await asyncio.to_thread(reader.recv, 100)
            assert places.locked()
            held = ("/approvals", "/approvals/held", "/approvals/events")
            for path in ("/tasks/t", "/task?task_id=t", "/tasks", "/tasks?limit=5", *held):
                with socket.create_connection(("127.0.0.1", port)) as waits:
                    waits.sendall(
                        f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode()
                    )
                    async with asyncio.timeout(10):
                        while not places._waiters:
                            await asyncio.sleep(0.01)
                    answer = await client.get("/whoami", headers=bearer("bob"))
                    assert answer.status_code == 200, path
                async with asyncio.timeout(10):
                    while places._waiters:
                        await asyncio.sleep(0.01)


async def test_a_large_answer_with_its_events_is_whole_and_so_is_its_repeat(
    client: httpx.AsyncClient, store: MemoryStore
) -> None:
    body = {"body": BODY, "task_id": "t", "show_events": True}
    headers = bearer("alice") | {"Idempotency-Key": "k-1"}
    first = await client.post("/message", json=body, headers=headers)
    assert "content-length" not in first.headers
    logged = [event.to_record() for event in await store.events(ALICE, "t")]
    assert first.json()["events"] == logged
    assert first.json()["response"] == logged[-1]["data"]["response"]
    await client.post("/message", json=body | {"body": "more"}, headers=bearer("alice"))
    again = await client.post("/message", json=body, headers=headers)
    assert again.headers["idempotency-replayed"] == "true"
    assert again.content == first.content


async def test_a_small_answer_says_how_long_it_is(client: httpx.AsyncClient) -> None:
    body = {"body": "Hello", "task_id": "t", "show_events": True}
    answer = await client.post("/message", json=body, headers=bearer("alice"))
    for found in (answer, await client.get("/tasks", headers=bearer("alice"))):
        assert int(found.headers["content-length"]) == len(found.content)
        assert found.headers["content-type"] == "application/json"
        assert found.headers["cache-control"] == "no-store"
