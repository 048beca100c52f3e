"""The caller's tasks, and only the caller's."""

import asyncio
import json
from typing import Any
from urllib.parse import quote

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


@pytest.mark.parametrize(
    ("how", "status"),
    [
        ({}, 400),
        ({"json": {}}, 400),
        ({"json": {"task_id": 5}}, 400),
        ({"json": []}, 400),
        ({"content": b"{"}, 400),
        ({"json": {"task_id": "none"}}, 404),
        ({"params": {"task_id": "a\u0001"}}, 400),
    ],
)
async def test_asking_for_no_or_an_unknown_task(
    client: httpx.AsyncClient, how: dict[str, Any], status: int
) -> None:
    answer = await get(client, "/task", **how)
    assert answer.status_code == status
    assert answer.json()["detail"]


async def test_all_tasks_are_a_plain_object_and_pages_when_asked(client: httpx.AsyncClient) -> None:
    for number in range(5):
        await post(client, f"t-{number}")
    assert set((await get(client, "/tasks")).json()) == {f"t-{number}" for number in range(5)}
    seen: list[str] = []
    url = "/tasks?limit=2"
    for size in (2, 2, 1):
        page = (await get(client, url)).json()
        assert len(page["tasks"]) == size
        seen += page["tasks"]
        url = f"/tasks?limit=2&cursor={page['next_cursor']}"
    assert page["next_cursor"] is None
    assert seen == ["t-4", "t-3", "t-2", "t-1", "t-0"]


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


@pytest.mark.parametrize("query", ["limit=0", "limit=x", "limit=1001"])
async def test_a_page_size_that_makes_no_sense_is_400(
    client: httpx.AsyncClient, query: str
) -> None:
    answer = await get(client, f"/tasks?{query}")
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["field"] == "limit"


async def test_callers_do_not_see_or_touch_each_others_tasks(client: httpx.AsyncClient) -> None:
    await post(client, "shared-name", "alice")
    await post(client, "only-alice", "alice")
    await post(client, "shared-name", "bob")
    assert list((await get(client, "/tasks", "bob")).json()) == ["shared-name"]
    mine = (await get(client, "/tasks/shared-name", "bob")).json()
    assert mine["task_owner"] == "user:bob@test-swarm"
    assert "alice" not in json.dumps(mine)
    for who in ("bob", "admin"):
        for method, path in (
            ("GET", "/tasks/{}"),
            ("GET", "/task?task_id={}"),
            ("GET", "/tasks/{}/events"),
            ("POST", "/tasks/{}/cancel"),
        ):
            answers = [
                await client.request(method, path.format(task_id), headers=bearer(who))
                for task_id in ("only-alice", "not-at-all")
            ]
            assert [answer.status_code for answer in answers] == [404, 404]
            foreign, unknown = (answer.content for answer in answers)
            assert foreign.replace(b"only-alice", b"") == unknown.replace(b"not-at-all", b"")
            names = [sorted(set(answer.headers) - {"date"}) for answer in answers]
            assert names[0] == names[1]
    resume = {"body": "x", "task_id": "only-alice", "resume_from": "user_response"}
    answer = await client.post("/message", json=resume, headers=bearer("bob"))
    assert answer.status_code == 404


@pytest.mark.parametrize("task_id", ["a/b", "a b", "é%2F", "user:x@y", "t?x=1", "x" * 256])
async def test_any_documented_task_id_works_in_a_path(
    client: httpx.AsyncClient, task_id: str
) -> None:
    await post(client, task_id)
    by_query = await get(client, "/task", params={"task_id": task_id})
    assert by_query.json()["task_id"] == task_id
    by_path = await get(client, f"/tasks/{quote(task_id, safe='')}")
    assert by_path.json() == by_query.json()


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


@pytest.mark.parametrize("after", ["-1", "x", "1.5", "9" * 30, "٣"])
async def test_a_place_that_is_no_number_is_400(client: httpx.AsyncClient, after: str) -> None:
    await post(client, "t-1")
    answer = await get(client, "/tasks/t-1/events", params={"after": after})
    assert answer.status_code == 400


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
