"""Rules of transport, streams and limits, on a served swarm: see the table in spec/SPEC.md."""

import inspect
import json
import uuid
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import pytest_asyncio
from aiohttp import web

from mail.client import MAILClient
from mail.core.runtime.runs import Run
from mail.server.app import create_app
from tests.server.kit import Script, Template, bearer, config, frames, serving
from tests.support.till import known_callers


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[SimpleNamespace]:
    """One server for the whole module, with its store and the script of its agent."""
    store, script = await known_callers(), Script()
    template: Any = Template(script)
    app = create_app(config(shutdown_grace=0.5), template=template, store=store)
    async with serving(app) as client:
        yield SimpleNamespace(client=client, store=store, script=script, app=app)


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def post(served: SimpleNamespace, who: str = "alice", **body: Any) -> httpx.Response:
    return await served.client.post("/message", json=body, headers=bearer(who))


async def test_a_task_without_an_id_gets_one(served) -> None:
    made = [(await post(served, body="Hello")).json()["task_id"] for _ in "ab"]
    assert made[0] != made[1]
    assert all(uuid.UUID(task_id) for task_id in made)
    assert (await served.client.get(f"/tasks/{made[0]}", headers=bearer("alice"))).is_success


async def test_a_stream_begins_with_its_message_and_ends_with_its_run(served) -> None:
    for body in ("one", "two"):  # the second run of the task begins with its own message
        events = frames((await post(served, body=body, task_id="flow", stream=True)).text)
        first, last = json.loads(events[0]["data"]), json.loads(events[-1]["data"])
        assert first["extra_data"]["full_message"]["message"]["body"] == body
        assert events[0]["retry"] == "2000"
        assert (events[-1]["event"], last["response"]) == ("task_complete", f"You said: {body}")
        assert [event["event"] for event in events].count("task_complete") == 1


async def test_the_heartbeat_is_fifteen_seconds(served) -> None:
    assert inspect.signature(Run.events).parameters["ping_interval"].default == 15.0


REFUSED = [
    {"body": " "},
    {"body": 5},
    {"body": "x", "msg_type": "broadcast_complete"},
    {"body": "x", "resume_from": "user_reply"},
    {"body": "x", "resume_from": "user_response"},
    {"body": "x", "resume_from": "breakpoint_tool_call"},
    {"body": "x", "entrypoint": "nobody"},
    {"body": "x", "kwargs": {"breakpoint_tool": 1}},
    {"body": "x", "subject": "s" * 1025},
]


@pytest.mark.parametrize("body", REFUSED, ids=str)
async def test_a_refusal_leaves_nothing_behind(served, body) -> None:
    task_id = str(uuid.uuid4())
    calls = served.script.calls
    answer = await post(served, task_id=task_id, **body)
    assert 400 <= answer.status_code < 500
    assert answer.json()["detail"]
    found = await served.client.get(f"/tasks/{task_id}", headers=bearer("alice"))
    assert found.status_code == 404 and served.script.calls == calls


async def test_the_client_passes_over_unknown_kinds(served) -> None:
    async def answer(request: web.Request) -> web.Response:
        unknown = 'event: weather\r\ndata: {"a":1}\r\n\r\n'
        text = unknown + "id: 2\r\nevent: task_complete\r\ndata: {}\r\n\r\n"
        return web.Response(text=text, content_type="text/event-stream")

    app = web.Application()
    app.router.add_post("/message", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    [socket] = site._server.sockets  # type: ignore[union-attr]
    async with MAILClient(f"http://127.0.0.1:{socket.getsockname()[1]}", "k") as client:
        stream = await client.post_message_stream("Hello")
        assert [event.event async for event in stream][-1] == "task_complete"
    await runner.cleanup()
