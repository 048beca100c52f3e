"""What administrators see and do: the tasks of all callers, tokens, and the graph of the swarm."""

import asyncio
import json
import logging
from base64 import urlsafe_b64encode
from typing import Any

import httpx
import pytest

from mail.core.tasks import TaskState
from mail.db.calls import CallRow
from mail.db.commit import Commit
from mail.db.memory import MemoryStore
from mail.db.records import Delivery, EventRow, Owner, TaskRow
from tests.server.kit import Template, bearer, put_aside

NOW = "2026-01-01T00:00:00+00:00"
ADMIN = bearer("admin")


def owner(name: str) -> Owner:
    return Owner("test-swarm", "user", name)


async def put(store: MemoryStore, whose: str, task_id: str, **fields: Any) -> None:
    row = TaskRow(task_id, f"user:{whose}@test-swarm", (), NOW, "supervisor")
    row = row._replace(state=TaskState.COMPLETED)._replace(**fields)
    event = EventRow("action_call", NOW, "x", '{"tool_name": "look"}')
    await store.commit(Commit(owner=owner(whose), task=row, new=True, events=(event,)))


async def pages(client: httpx.AsyncClient, **query: Any) -> list[list[str]]:
    """Return the ids on each page of all callers' tasks."""
    found, cursor = [], None
    while True:
        given = query | ({} if cursor is None else {"cursor": cursor})
        answer = await client.get("/admin/tasks", params=given, headers=ADMIN)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        found.append([f"{task['owner']} {task['task_id']}" for task in page["tasks"]])
        cursor = page["next_cursor"]
        if cursor is None:
            return found


async def test_the_tasks_of_all_callers_are_found(
    client: httpx.AsyncClient, store: MemoryStore
) -> None:
    await put(store, "alice", "one", title="A refund for Zoë")
    await put(store, "bob", "one", title="The weather", state=TaskState.FAILED)
    await put(store, "alice", "a/b", title=None)
    assert await pages(client) == [["user:alice a/b", "user:bob one", "user:alice one"]]
    assert await pages(client, limit=1) == [
        ["user:alice a/b"], ["user:bob one"], ["user:alice one"],
    ]  # fmt: skip
    assert await pages(client, status="failed") == [["user:bob one"]]
    assert await pages(client, owner="user:alice", limit=2) == [
        ["user:alice a/b", "user:alice one"]
    ]
    assert await pages(client, q="REFUND zoë") == [["user:alice one"]]
    assert await pages(client, q="a/b") == [["user:alice a/b"]]
    assert await pages(client, q="user:bob refund") == [[]]


async def test_a_search_looks_at_so_many_tasks_only(
    client: httpx.AsyncClient, store: MemoryStore
) -> None:
    await put(store, "alice", "needle")
    for number in range(2100):
        await put(store, f"caller{number % 3}", f"t{number}")
    found = await pages(client, q="needle")
    assert found == [[], ["user:alice needle"]]


@pytest.mark.parametrize(
    "query",
    [
        {"cursor": "x"},
        {"cursor": "é"},
        {"cursor": urlsafe_b64encode(b'["user","alice","gone"]').decode()},
        {"cursor": urlsafe_b64encode(b'["user","alice","\\u0000"]').decode()},
        {"cursor": urlsafe_b64encode(b"[1,2,3]").decode()},
        {"cursor": urlsafe_b64encode(b"7").decode()},
        {"owner": "alice"},
        {"owner": "root:alice"},
        {"owner": "user:"},
        {"owner": "user:a\nb"},
        {"status": "lost"},
        {"limit": 201},
        {"q": "x" * 201},
    ],
)
async def test_odd_queries_are_400(client: httpx.AsyncClient, query: dict[str, Any]) -> None:
    answer = await client.get("/admin/tasks", params=query, headers=ADMIN)
    assert answer.status_code == 400, answer.text


async def test_one_task_of_another_caller_is_read_and_cancelled(
    client: httpx.AsyncClient, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    await put(store, "alice", "hers", state=TaskState.PAUSED)
    whose = {"owner": "user:alice"}
    for path, query in (("/tasks/hers", {}), ("/task", {"task_id": "hers"})):
        assert (await client.get(path, params=query, headers=ADMIN)).status_code == 404
        found = await client.get(path, params=query | whose, headers=ADMIN)
        assert found.json()["task_owner"] == "user:alice@test-swarm"
        assert len(found.json()["events"]) == 1
    stream = await client.get("/tasks/hers/events", params=whose, headers=ADMIN)
    assert "event: action_call" in stream.text
    assert (await client.post("/tasks/hers/cancel", headers=ADMIN)).status_code == 404
    with caplog.at_level(logging.INFO, "mail.server"):
        done = await client.post("/tasks/hers/cancel", params=whose, headers=ADMIN)
    assert done.json()["status"] == "cancelled"
    assert "admin 'root' cancels the task 'hers' of user 'alice'" in caplog.text
    mine = await client.get("/tasks/hers", headers=bearer("alice"))
    assert mine.json()["status"] == "cancelled"


async def test_mail_that_was_set_aside_is_tried_again_and_discarded(
    client: httpx.AsyncClient, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    alice, path, whose = bearer("alice"), "/tasks/a%2Fb/set-aside", {"owner": "user:alice"}
    await client.post("/message", json={"body": "x" * 5000, "task_id": "a/b"}, headers=alice)
    numbers = [await put_aside(store, owner("alice"), "a/b") for _ in range(3)]
    page = (await client.get(path, params={"limit": 2}, headers=alice)).json()
    assert [mail["id"] for mail in page["mail"]] == numbers[:2]
    assert page["next_after"] == numbers[1]
    assert {(len(mail["body"]), mail["body_length"]) for mail in page["mail"]} == {(4096, 5000)}
    assert "crashed 5 times" in page["mail"][0]["reason"]
    rest = await client.get(path, params=whose | {"after": numbers[1]}, headers=ADMIN)
    assert [mail["id"] for mail in rest.json()["mail"]] == numbers[2:]
    assert rest.json()["next_after"] is None

    for who, query, status in (
        ("bob", "", 404),
        ("bob", "?owner=user:alice", 403),
        ("admin", "", 404),
    ):
        for method, end in (
            ("GET", ""),
            ("POST", f"/{numbers[0]}/retry"),
            ("DELETE", f"/{numbers[0]}"),
        ):
            answer = await client.request(method, f"{path}{end}{query}", headers=bearer(who))
            assert answer.status_code == status, (who, method, answer.text)
    for odd in ("0", "x", "9" * 30, "-1"):
        answer = await client.post(f"{path}/{odd}/retry", headers=alice)
        assert answer.status_code in (400, 404), answer.text

    with caplog.at_level(logging.INFO, "mail.server"):
        key = {"Idempotency-Key": "once"}
        for _ in range(2):
            url = f"{path}/{numbers[0]}/retry"
            done = await client.post(url, params=whose, headers=ADMIN | key)
            assert done.json() == {"status": "waiting", "task_id": "a/b", "id": numbers[0]}
        gone = await client.delete(f"{path}/{numbers[1]}", params=whose, headers=ADMIN)
        assert gone.status_code == 204
    assert f"admin 'root' tries again mail {numbers[0]} of the task 'a/b' of user" in caplog.text
    assert f"admin 'root' discards mail {numbers[1]} of the task 'a/b' of user" in caplog.text
    assert (await client.delete(f"{path}/{numbers[2]}", headers=alice)).status_code == 204
    for number in numbers:
        for method, end in (("POST", "/retry"), ("DELETE", "")):
            answer = await client.request(method, f"{path}/{number}{end}", headers=alice)
            assert answer.status_code == 404, answer.text
    assert (await client.get(path, headers=alice)).json() == {"mail": [], "next_after": None}
    events = (await client.get("/tasks/a%2Fb/events", headers=alice)).text
    assert events.count('"by":"admin:root"') == 2
    assert events.count('"by":"user:alice"') == 1
    assert events.count("event: task_complete\r\n") == 2


async def test_mail_of_a_paused_task_is_not_tried_again(
    client: httpx.AsyncClient, store: MemoryStore
) -> None:
    await client.post("/message", json={"body": "x", "task_id": "t"}, headers=bearer("alice"))
    number = await put_aside(store, owner("alice"), "t")
    row = await store.load_task(owner("alice"), "t")
    assert row is not None
    call = CallRow("supervisor", "c1", '{"tool_name": "buy"}', '{"call_id": "c1"}')
    paused = row._replace(state=TaskState.PAUSED)
    await store.commit(Commit(owner=owner("alice"), task=paused, calls=(call,)))
    answer = await client.post(f"/tasks/t/set-aside/{number}/retry", headers=bearer("alice"))
    assert answer.status_code == 409, answer.text
    assert (
        len((await client.get("/tasks/t/set-aside", headers=bearer("alice"))).json()["mail"]) == 1
    )


@pytest.mark.parametrize("who", ["bob", "swarm"])
async def test_nobody_else_sees_them(
    client: httpx.AsyncClient, store: MemoryStore, who: str
) -> None:
    await put(store, "alice", "hers", state=TaskState.PAUSED)
    for method, path in (
        ("GET", "/admin/tasks"),
        ("GET", "/tasks/hers?owner=user:alice"),
        ("GET", "/task?task_id=hers&owner=user:alice"),
        ("GET", "/tasks/hers/events?owner=user:alice"),
        ("POST", "/tasks/hers/cancel?owner=user:alice"),
        ("GET", "/tokens"),
        ("POST", "/tokens"),
        ("DELETE", "/tokens/0000"),
    ):
        answer = await client.request(method, path, headers=bearer(who))
        assert answer.status_code == 403, (path, answer.text)
    row = await store.load_task(owner("alice"), "hers")
    assert row is not None
    assert row.state is TaskState.PAUSED
    if who == "bob":
        own = await client.get("/tasks/hers?owner=user:bob", headers=bearer(who))
        assert own.status_code == 404


async def test_a_token_is_made_listed_and_revoked(
    client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    body = {"role": "user", "id": "carol", "label": "laptop", "days": 2}
    with caplog.at_level(logging.INFO, "mail.server"):
        made = (await client.post("/tokens", json=body, headers=ADMIN)).json()
    secret = made.pop("token")
    assert f"admin 'root' made the token {made['hash']} of user 'carol'" in caplog.text
    assert secret not in caplog.text
    carol = {"Authorization": f"Bearer {secret}"}
    assert (await client.get("/whoami", headers=carol)).json()["id"] == "carol"
    listed = (await client.get("/tokens?limit=1", headers=ADMIN)).json()
    assert listed["tokens"] == [made]
    assert (made["state"], made["label"], made["kind"]) == ("valid", "laptop", None)
    rest = await client.get("/tokens", params={"cursor": listed["next_cursor"]}, headers=ADMIN)
    assert made not in rest.json()["tokens"]
    assert secret not in json.dumps(rest.json())
    gone = await client.delete(f"/tokens/{made['hash']}", headers=ADMIN)
    assert gone.json()["state"] == "revoked"
    assert (await client.delete("/tokens/ffff", headers=ADMIN)).status_code in (400, 404)
    peer = await client.post("/tokens", json={"role": "agent", "id": "editor"}, headers=ADMIN)
    assert peer.json()["kind"] == "peer"
    wrong = {"role": "agent", "id": "editor", "participant": True}
    answer = await client.post("/tokens", json=wrong, headers=ADMIN)
    assert answer.status_code == 400
    assert "declares no participant 'editor'" in answer.json()["detail"]


async def test_the_graph_has_the_turns_and_queues_of_whoever_asks(
    client: httpx.AsyncClient, store: MemoryStore, template: Template
) -> None:
    mail = Delivery("waits", "supervisor", 2, False, "{}")
    row = TaskRow("waits", "user:bob@test-swarm", (), NOW, "supervisor", TaskState.PAUSED)
    await store.commit(Commit(owner=owner("bob"), task=row, new=True, deliveries=(mail, mail)))
    asked = {"body": "hang", "task_id": "long"}
    headers = bearer("alice") | {"Prefer": "respond-async"}
    assert (await client.post("/message", json=asked, headers=headers)).status_code == 202
    seen: dict[str, Any] = {}
    for who in ("alice", "bob", "admin"):
        async with asyncio.timeout(10):
            while True:
                graph = (await client.get("/swarm/graph", headers=bearer(who))).json()
                (agent,) = (one for one in graph["agents"] if one["name"] == "supervisor")
                if agent["turns"] or who == "bob":
                    break
                await asyncio.sleep(0.01)
        seen[who] = graph["scope"], agent["turns"], agent["queues"]
    assert seen == {
        "alice": ("own", 1, {}),
        "bob": ("own", 0, {"2": 2}),
        "admin": ("all", 1, {"2": 2}),
    }
    assert graph["entrypoint"] == "supervisor"
    assert graph["agent_count"] == len(graph["agents"])


async def test_a_task_is_called_by_its_subject_or_its_first_words(
    client: httpx.AsyncClient,
) -> None:
    for task_id, message, title in (
        ("a", {"body": "What is\n\n  17 * 23?"}, "What is 17 * 23?"),
        ("b", {"body": "See below", "subject": "Refund"}, "Refund"),
        ("c", {"body": "x" * 500}, "x" * 119 + "…"),
    ):
        await client.post("/message", json=message | {"task_id": task_id}, headers=bearer("alice"))
        again = {"body": "and now?", "subject": "Another", "task_id": task_id}
        await client.post("/message", json=again, headers=bearer("alice"))
        record = (await client.get(f"/tasks/{task_id}", headers=bearer("alice"))).json()
        assert record["title"] == title
