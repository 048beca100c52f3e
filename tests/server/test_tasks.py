"""The caller's tasks, and only the caller's."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from mail.db.commit import Commit
from mail.db.memory import MemoryStore
from mail.db.records import Owner
from tests.server.kit import Script, bearer, frames


async def post(client: httpx.AsyncClient, task_id: str, who: str = "alice", **body: Any) -> None:
    """Run a task to its end."""
    body = {"body": f"Hello from {who}", "task_id": task_id} | body
    answer = await client.post("/message", json=body, headers=bearer(who))
    assert answer.status_code == 200


async def get(client: httpx.AsyncClient, path: str, who: str = "alice", **more: Any) -> Any:
    """Get a path as a caller."""
    headers = bearer(who) | more.pop("headers", {})
    return await client.request("GET", path, headers=headers, **more)


async def test_a_task_can_be_asked_for_in_three_ways(client: httpx.AsyncClient) -> None:
    await post(client, "weather-task")
    by_path = await get(client, "/tasks/weather-task")
    record = by_path.json()
    assert record["task_id"] == "weather-task"
    assert record["task_owner"] == "user:alice@test-swarm"
    assert (record["is_running"], record["completed"]) == (False, True)
    assert json.loads(record["events"][-1]["data"])["response"].startswith("You said")
    assert (await get(client, "/task?task_id=weather-task")).json() == record
    assert (await get(client, "/task", json={"task_id": "weather-task"})).json() == record


async def test_tasks_are_listed_with_their_events(client: httpx.AsyncClient) -> None:
    for number in range(3):
        await post(client, f"t-{number}")
    listed = (await get(client, "/tasks")).json()
    for task_id, record in listed.items():
        assert record == (await get(client, f"/tasks/{task_id}")).json()
        assert len(record["events"]) == record["event_count"] > 0
    assert json.loads(listed["t-2"]["events"][-1]["data"])["response"].startswith("You said")
    page = (await get(client, "/tasks?limit=2")).json()["tasks"]
    assert page == {name: listed[name] for name in ("t-2", "t-1")}
    for record in (await get(client, "/tasks?events=false")).json().values():
        assert (record["events"], record["events_omitted"], record["next_after"]) == ([], True, 0)
        assert record["event_count"] == listed[record["task_id"]]["event_count"]


@pytest.mark.parametrize("task_id", ["..", "x/events", "x/set-aside", "x/set-aside/1"])
async def test_stored_tasks_whose_ids_are_not_taken_any_more_can_be_read(
    client: httpx.AsyncClient, store: MemoryStore, task_id: str
) -> None:
    await post(client, "t")
    owner = Owner("test-swarm", "user", "alice")
    row = await store.load_task(owner, "t")
    assert row is not None
    await store.commit(Commit(owner=owner, task=row._replace(task_id=task_id), new=True))
    assert (await get(client, "/task", params={"task_id": task_id})).json()["task_id"] == task_id
    assert task_id in (await get(client, "/tasks")).json()


async def test_a_log_is_replayed_from_any_point(client: httpx.AsyncClient) -> None:
    await post(client, "t-1")
    whole = frames((await get(client, "/tasks/t-1/events")).text)
    count = len(whole)
    assert [event["id"] for event in whole] == [str(n) for n in range(1, count + 1)]
    for after in range(count + 1):
        header = {"Last-Event-ID": str(after)}
        by_header = frames((await get(client, "/tasks/t-1/events?after=0", headers=header)).text)
        by_query = frames((await get(client, f"/tasks/t-1/events?after={after}")).text)
        for cut in (by_header, by_query):
            assert [event["id"] for event in cut] == [event["id"] for event in whole[after:]]
    assert frames((await get(client, "/tasks/t-1/events?after=99999")).text) == []


async def test_a_replay_follows_a_running_task_to_its_end(
    client: httpx.AsyncClient, script: Script
) -> None:
    running = asyncio.create_task(post(client, "t-1", body="hang"))
    await asyncio.wait_for(script.entered.wait(), 20)
    async with client.stream("GET", "/tasks/t-1/events", headers=bearer("alice")) as stream:
        pieces = stream.aiter_text()
        text = await anext(pieces)
        script.gate.set()
        text += "".join([piece async for piece in pieces])
    assert frames(text)[0]["event"] == "new_message"
    assert frames(text)[-1]["event"] == "task_complete"
    await running


async def test_a_running_task_can_be_cancelled(client: httpx.AsyncClient, script: Script) -> None:
    body = {"body": "hang", "task_id": "t-1"}
    running = asyncio.create_task(client.post("/message", json=body, headers=bearer("alice")))
    await asyncio.wait_for(script.entered.wait(), 20)
    cancelled = await client.post("/tasks/t-1/cancel", headers=bearer("alice"))
    assert cancelled.status_code == 200
    summary = cancelled.json()
    assert (summary["status"], summary["events"], summary["next_after"]) == ("cancelled", [], 0)
    whole = (await get(client, "/tasks/t-1")).json()
    assert len(whole["events"]) == summary["event_count"] > 0
    assert summary == whole | {"events": [], "next_after": 0}
    answer = await running
    assert answer.status_code == 200
    assert answer.json()["status"] == "cancelled"
    again = await client.post("/tasks/t-1/cancel", headers=bearer("alice"))
    assert again.json() == cancelled.json()


async def test_a_cursor_that_names_no_task_of_the_caller_is_refused(
    client: httpx.AsyncClient,
) -> None:
    await post(client, "hers", who="alice")
    for cursor in ("zzz", "hers"):
        answer = await get(client, f"/tasks?limit=1&cursor={cursor}", who="bob")
        assert answer.status_code == 400
        assert "next_cursor" in answer.json()["detail"]
