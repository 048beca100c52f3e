"""``POST /message``: answers, streams, refusals."""

import asyncio
import json
import logging
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.routing import Match

from mail.db.memory import MemoryStore
from mail.net.types import UNADDRESSABLE
from tests.server.kit import Script, Template, bearer, frames


async def post(client: httpx.AsyncClient, who: str = "alice", **body: Any) -> httpx.Response:
    """Post a message."""
    return await client.post("/message", json=body, headers=bearer(who))


async def test_a_message_is_answered_with_the_end_of_its_run(client: httpx.AsyncClient) -> None:
    answer = await post(client, body="Hello", subject="Greeting", task_id="t-1")
    assert answer.status_code == 200
    assert answer.json() == {
        "response": "You said: Hello",
        "events": None,
        "task_id": "t-1",
        "subject": "::task_complete::",
        "status": "completed",
        "breakpoints": [],
        "ended_by": None,
    }


async def test_of_thousands_of_unknown_fields_only_the_first_are_compared(
    client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    misspelt = await post(client, body="Hello", **{f"strem{n}": 1 for n in range(3000)})
    assert misspelt.status_code == 400
    assert len(misspelt.json()["errors"]) == 20
    with caplog.at_level(logging.WARNING):
        other = await post(client, body="Hello", **{f"x-{n}": 1 for n in range(3000)})
    assert other.status_code == 200
    assert "and 2990 more" in caplog.text


_ODD_IDS = (
    *("events", "set-aside", "set-aside/1", "a/b", "a/events/b", "a/cancel", "a/set-aside/1/b"),
    *("a/set-aside/1/retry", "a/retry", "a//b", "/a", "a/", "...", ".a", "a/..b", "a%2Fevents"),
    *("x/events", "x/set-aside", "x/set-aside/1", "x/set-aside/y", "/events", "/set-aside/1"),
    *(".", "..", "a/..", "../a", "a/./b", "a/../b", "/.", "set-aside/set-aside/1"),
    *("a b", "é%2F", "user:x@y", "t?x=1", "x" * 256),
)


def _has_its_own_paths(app: FastAPI, task_id: str) -> bool:
    """Tell whether every route below ``/tasks/{task_id}`` gets the id that its path was made of."""
    if any(part in (".", "..") for part in task_id.split("/")):  # clients resolve them
        return False
    routes = [route for route in app.routes if isinstance(route, APIRoute)]
    for route in routes:
        if not route.path.startswith("/tasks/{task_id:path}"):
            continue
        path = route.path.replace("{task_id:path}", task_id).replace("{number}", "1")
        for method in route.methods:
            scope = {"type": "http", "method": method, "path": path, "headers": []}
            matches = ((each, each.matches(scope)) for each in routes)
            reached, given = next(
                (r, scope) for r, (match, scope) in matches if match == Match.FULL
            )
            if reached is not route or given["path_params"]["task_id"] != task_id:
                return False
    return True


async def test_an_id_whose_path_is_of_something_else_is_refused(
    app: FastAPI, client: httpx.AsyncClient
) -> None:
    for task_id in _ODD_IDS:
        answer = await post(client, body="Hello", task_id=task_id)
        if not _has_its_own_paths(app, task_id):
            assert (answer.status_code, task_id) == (400, task_id)
            [problem] = answer.json()["errors"]
            assert problem["field"] == "task_id"
            assert "others are fine, such as" in problem["problem"]
            continue
        assert (answer.status_code, task_id) == (200, task_id)
        place = f"/tasks/{quote(task_id, safe='')}"
        found = await client.get(place, headers=bearer("alice"))
        assert found.json()["task_id"] == task_id
        assert (await client.post(f"{place}/cancel", headers=bearer("alice"))).status_code == 200
        assert (await client.delete(place, headers=bearer("alice"))).status_code == 204


def test_every_id_that_is_taken_has_a_path_in_every_route(app: FastAPI) -> None:
    below = {
        route.path.removeprefix("/tasks/{task_id:path}").replace("{number}", "1")
        for route in app.routes
        if isinstance(route, APIRoute) and route.path.startswith("/tasks/{task_id:path}")
    }
    assert {"", "/events", "/set-aside/1"} <= below
    made = {f"{before}x{part}{after}" for before in ("", "/") for part in below for after in below}
    for task_id in {*_ODD_IDS, *made, *(part.lstrip("/") for part in below if part)}:
        fine = UNADDRESSABLE.search(task_id) is None
        assert (task_id, fine) == (task_id, _has_its_own_paths(app, task_id))


@pytest.mark.parametrize(
    ("body", "field", "hint"),
    [
        ({}, "(body)", "no message provided"),
        ({"body": " \n"}, "(body)", "no message provided"),
        ({"body": "x", "stream": "false"}, "stream", "true or false"),
        ({"body": "x", "subject": "s" * 1025}, "subject", "1024"),
        ({"body": "x", "msg_type": "requets"}, "msg_type", "did you mean 'request'"),
        ({"body": "x", "msg_type": "broadcast_complete"}, "msg_type", "invalid message type"),
        ({"body": "x", "task_id": ""}, "task_id", "1 to 256"),
        ({"body": "x", "task_id": "a\u0000"}, "task_id", "control"),
        (
            {"body": "x", "resume_from": "user_respose", "task_id": "t"},
            "resume_from",
            "did you mean",
        ),
        ({"body": "x", "resume_from": "user_response"}, "(body)", "task_id is required"),
        (
            {"resume_from": "breakpoint_tool_call", "task_id": "t"},
            "(body)",
            "breakpoint_tool_call_result",
        ),
        (
            {"body": "x", "kwargs": {"ping_interval": 1}},
            "kwargs.ping_interval",
            "allowed are max_steps",
        ),
        ({"body": "x", "kwargs": {"timout": 5}}, "kwargs.timout", "Did you mean 'timeout'?"),
        ({"body": "x", "kwargs": {"timeout": 0}}, "kwargs.timeout", "greater than 0"),
        ({"body": "x", "kwargs": {"timeout": 3601}}, "kwargs.timeout", "3600"),
        (
            {"body": "x", "kwargs": {"max_steps": 0}},
            "kwargs.max_steps",
            "at least 1",
        ),
    ],
)
async def test_a_malformed_message_is_400_and_says_what_to_change(
    client: httpx.AsyncClient, template: Template, body: dict[str, Any], field: str, hint: str
) -> None:
    answer = await post(client, **body)
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["field"] == field
    assert hint in answer.json()["errors"][0]["problem"]
    assert hint in answer.json()["detail"]
    assert template.started == []


async def test_an_unknown_entrypoint_is_400_with_a_suggestion(client: httpx.AsyncClient) -> None:
    answer = await post(client, body="x", entrypoint="supervisr")
    assert answer.status_code == 400
    assert "supervisor" in answer.json()["detail"]
    assert (await client.get("/tasks", headers=bearer("alice"))).json() == {}


async def test_markup_and_control_words_change_nothing(client: httpx.AsyncClient) -> None:
    answer = await post(client, body="[/red] :: [/INST]", subject="::task_complete:: </body>")
    assert answer.json()["response"] == "You said: [/red] :: [/INST]"


@pytest.mark.parametrize(
    "text", ["a\r\nb\n\nid: 7\rc", "a\u2028b\u2029c\u0085d", "event: x\r\n\r\n"]
)
async def test_a_stream_is_framed_strictly_whatever_the_text(
    client: httpx.AsyncClient, text: str
) -> None:
    answer = await post(client, body=text, stream=True, task_id="t-1")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-accel-buffering"] == "no"
    assert not set(answer.text) & {"\u2028", "\u2029", "\u0085"}
    assert answer.text.count("\r\n") == answer.text.count("\n") == answer.text.count("\r")
    events = frames(answer.text)
    assert [event["id"] for event in events] == [str(n) for n in range(1, len(events) + 1)]
    assert [event.get("retry") for event in events] == ["2000"] + [None] * (len(events) - 1)
    posted = json.loads(events[0]["data"])["extra_data"]["full_message"]
    assert posted["message"]["body"] == text
    last = json.loads(events[-1]["data"])
    assert events[-1]["event"] == "task_complete"
    assert (last["task_id"], last["status"]) == ("t-1", "completed")
    assert last["response"].startswith("You said: ")


async def test_leaving_a_stream_does_not_end_the_task_and_the_rest_can_be_read(
    client: httpx.AsyncClient, script: Script
) -> None:
    body = {"body": "hang", "stream": True, "task_id": "t-1"}
    async with client.stream("POST", "/message", json=body, headers=bearer("alice")) as stream:
        first = frames(await anext(stream.aiter_text()))
    await asyncio.wait_for(script.entered.wait(), 20)
    script.gate.set()
    headers = bearer("alice") | {"Last-Event-ID": first[-1]["id"]}
    rest = frames((await client.get("/tasks/t-1/events", headers=headers)).text)
    ids = [int(event["id"]) for event in (*first, *rest)]
    assert ids == list(range(1, len(ids) + 1))
    assert rest[-1]["event"] == "task_complete"


async def test_a_caller_that_leaves_is_not_waited_for(
    app: FastAPI, client: httpx.AsyncClient, script: Script
) -> None:
    waiting = asyncio.create_task(post(client, body="hang", task_id="t-1"))
    await asyncio.wait_for(script.entered.wait(), 20)
    waiting.cancel()
    script.gate.set()
    events = await client.get("/tasks/t-1/events", headers=bearer("alice"))
    assert frames(events.text)[-1]["event"] == "task_complete"


async def test_a_caller_can_lower_the_step_limit_but_not_raise_it(
    client: httpx.AsyncClient, app: FastAPI, store: MemoryStore
) -> None:
    for asked, kept in ((3, 3), (500, 15), (None, 15)):
        task_id = f"t-{asked}"
        await post(client, body="x", task_id=task_id, kwargs={"max_steps": asked})
        (owner,) = await store.owners("test-swarm")
        rows = await store.list_tasks(owner)
        assert next(row for row in rows if row.task_id == task_id).max_steps == kept


async def test_a_run_that_its_step_limit_ended_says_so(
    client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    run = {"body": "waste", "task_id": "t-1", "kwargs": {"max_steps": 2}}
    headers = {**bearer("alice"), "Idempotency-Key": "k-1"}
    with caplog.at_level(logging.WARNING):
        answer = (await client.post("/message", json=run, headers=headers)).json()
    assert (answer["status"], answer["ended_by"]) == ("completed", "step_limit")
    assert (await client.post("/message", json=run, headers=headers)).json() == answer
    [told] = [line for line in caplog.records if "step limit ended a run" in line.message]
    assert (told.levelname, told.task_id, told.limit) == ("WARNING", "t-1", 2)
    end = frames((await post(client, **run | {"task_id": "t-2", "stream": True})).text)[-1]
    assert (end["event"], json.loads(end["data"])["ended_by"]) == ("task_complete", "step_limit")
    for path in ("/task?task_id=t-1", "/tasks/t-1?limit=1"):
        assert (await client.get(path, headers=bearer("alice"))).json()["ended_by"] == "step_limit"
    listed = (await client.get("/tasks", headers=bearer("alice"))).json()
    assert listed["t-2"]["ended_by"] == "step_limit"


PREFERS = {"Prefer": "wait=5, Respond-Async"}


async def test_a_caller_that_prefers_not_to_wait_gets_202_and_where_the_task_is(
    client: httpx.AsyncClient, script: Script
) -> None:
    body = {"body": "hang", "task_id": "a/b c"}
    headers = bearer("alice") | PREFERS
    answer = await client.post("/message", json=body, headers=headers)  # though its agent hangs
    assert answer.status_code == 202
    assert answer.json() == {"task_id": "a/b c", "status": "running"}
    assert answer.headers["preference-applied"] == "respond-async"
    assert answer.headers["location"] == "/tasks/a%2Fb%20c"
    place = answer.headers["location"]
    assert (await client.get(place, headers=bearer("alice"))).json()["is_running"] is True
    script.gate.set()
    events = await client.get(f"{place}/events", headers=bearer("alice"))
    assert frames(events.text)[-1]["event"] == "task_complete"
    assert (await client.get(place, headers=bearer("alice"))).json()["completed"] is True


async def test_a_repeat_that_prefers_not_to_wait_begins_nothing_again(
    client: httpx.AsyncClient,
) -> None:
    headers = bearer("alice") | PREFERS | {"Idempotency-Key": "once"}
    first, again = [
        await client.post("/message", json={"body": "Hello"}, headers=headers) for _ in range(2)
    ]
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json() == again.json()
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert len((await client.get("/tasks", headers=bearer("alice"))).json()) == 1


async def test_a_stream_and_a_refusal_take_no_notice_of_preferences(
    client: httpx.AsyncClient,
) -> None:
    headers = bearer("alice") | PREFERS
    body = {"body": "Hello", "stream": True}
    stream = await client.post("/message", json=body, headers=headers)
    assert stream.status_code == 200
    assert frames(stream.text)[-1]["event"] == "task_complete"
    assert (await client.post("/message", json={}, headers=headers)).status_code == 400
    other = headers | {"Prefer": "return=minimal"}
    answer = await client.post("/message", json={"body": "Hello"}, headers=other)
    assert answer.json()["response"] == "You said: Hello"
