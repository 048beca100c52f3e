"""Approvals over HTTP: who sees and answers which, and what an answer does."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from mail import Approval, MAILAction
from mail.api import MAILSwarmTemplate
from mail.client import MAILClient
from mail.db.memory import MemoryStore
from mail.db.records import Owner
from mail.errors import ClientHTTPError
from mail.llm import call
from mail.llm.script_view import ScriptView
from mail.server.app import create_app
from tests.server.kit import TOKENS, bearer, config, serving
from tests.support.swarm import scripted_agent

SENT: list[dict[str, Any]] = []


async def _send(arguments: dict[str, Any]) -> str:
    SENT.append(arguments)
    return f"sent to {arguments['to']}"


def _agent(view: ScriptView) -> Any:
    if view.new_results:
        told = " | ".join(result.content for result in view.new_results)
        return call("task_complete", finish_message=told)
    return [call(view.body, to=name) for name in ("ann", "ben")]


def swarm() -> MAILSwarmTemplate:
    """Return a swarm whose agent calls the tool that it is told, twice."""
    schema = {
        "type": "object",
        "properties": {"to": {"type": "string"}, "copies": {"type": "integer"}},
        "required": ["to"],
    }
    held = {
        "send": Approval(),
        "send_admin": Approval(approvers=["admin"]),
        "send_soon": Approval(ttl=1.0),
        "send_bob": Approval(approvers=["user:bob", "participant:editor"]),
        "teach": Approval(
            ttl=None, feedback={"edit": "style", "response": "style", "ignore": "triage"}
        ),
    }
    actions = [MAILAction(name, "Send.", schema, _send, approval=how) for name, how in held.items()]
    return MAILSwarmTemplate(
        name="test-swarm",
        agents=[scripted_agent("supervisor", _agent, actions=actions)],
        entrypoint="supervisor",
        participants=[{"name": "editor", "description": ""}],
    )


@pytest.fixture
async def api(store: MemoryStore) -> AsyncIterator[httpx.AsyncClient]:
    SENT.clear()
    app = create_app(config(shutdown_grace=0.5), template=swarm(), store=store)
    async with serving(app) as client:
        yield client


async def begin(api: httpx.AsyncClient, tool: str, task_id: str = "t") -> list[dict[str, Any]]:
    """Start a task of alice's that is paused then; return its approvals as an admin sees them."""
    body = {"body": tool, "task_id": task_id}
    answer = await api.post("/message", json=body, headers=bearer("alice"))
    assert answer.json()["status"] == "paused", answer.text
    found = await api.get("/approvals", params={"task_id": task_id}, headers=bearer("admin"))
    records: list[dict[str, Any]] = found.json()["approvals"]
    return sorted(records, key=lambda each: each["action_request"]["args"]["to"])


async def reply(
    api: httpx.AsyncClient, who: str, record: dict[str, Any], given: Any
) -> httpx.Response:
    path = f"/approvals/{record['approval_id']}"
    return await api.post(path, json=given, headers=bearer(who))


async def ended(api: httpx.AsyncClient, task_id: str = "t") -> dict[str, Any]:
    for _ in range(2000):
        task = (await api.get(f"/tasks/{task_id}", headers=bearer("alice"))).json()
        if task["status"] not in ("running", "paused"):
            return dict(task)
        await asyncio.sleep(0.01)
    raise AssertionError(f"the task did not end: {task['status']}")


async def test_the_owner_answers_each_call_once(api: httpx.AsyncClient) -> None:
    first, second = await begin(api, "send")
    assert first["owner"] == {"role": "user", "id": "alice"} and first["status"] == "open"
    done = await reply(api, "alice", first, {"type": "accept", "args": None})
    assert done.status_code == 200, done.text
    assert done.json()["approval"]["answered_by"] == "user:alice"
    assert done.json()["task"]["task_id"] == "t"
    again = await reply(api, "alice", first, {"type": "accept"})
    assert again.status_code == 409
    assert again.json()["errors"] == [{"field": "status", "problem": "accepted"}]
    edited = {"type": "edit", "args": {"action": "send", "args": {"to": "cy", "copies": "2"}}}
    done = await reply(api, "alice", second, [edited])
    assert done.json()["approval"]["answer"]["args"]["args"] == {"to": "cy", "copies": 2}
    task = await ended(api)
    assert task["status"] == "completed"
    assert SENT == [{"to": "ann"}, {"to": "cy", "copies": 2}]
    assert (await api.get("/approvals", headers=bearer("alice"))).json()["approvals"] == []


async def test_others_see_nothing_and_approvers_their_own(
    api: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    mine, other = await begin(api, "send")
    for who in ("bob", "editor"):
        assert (await api.get("/approvals", headers=bearer(who))).json()["approvals"] == []
        path = f"/approvals/{mine['approval_id']}"
        unseen = await api.get(path, headers=bearer(who))
        nothing = await api.get("/approvals/nothing", headers=bearer(who))
        assert (unseen.status_code, nothing.status_code) == (404, 404)
        assert unseen.json() == nothing.json()
        assert (await reply(api, who, mine, {"type": "accept"})).status_code == 404
    with caplog.at_level(logging.INFO, "mail.server"):
        no = await reply(api, "admin", mine, {"type": "response", "args": "no"})
        assert no.status_code == 200
        assert (await reply(api, "alice", other, {"type": "ignore"})).status_code == 200
    [told] = [each for each in caplog.messages if " answers '" in each]
    assert told.startswith("admin:root answers 'response' to approval ")
    assert told.endswith("of user 'alice'")
    assert (await ended(api))["status"] == "completed" and SENT == []
    listed = await api.get("/approvals?status=all", headers=bearer("alice"))
    by = {each["status"]: each["answered_by"] for each in listed.json()["approvals"]}
    assert by == {"responded": "admin:root", "ignored": "user:alice"}


async def test_named_approvers_answer_and_the_owner_does_not(api: httpx.AsyncClient) -> None:
    first, second = await begin(api, "send_bob")
    for who in ("alice", "admin"):
        assert (await reply(api, who, first, {"type": "accept"})).status_code == 403
    resumed = {
        "task_id": "t",
        "resume_from": "breakpoint_tool_call",
        "kwargs": {"breakpoint_tool_call_result": {"call_id": first["call_id"], "content": "x"}},
    }
    assert (await api.post("/message", json=resumed, headers=bearer("alice"))).status_code == 403
    found = (await api.get("/approvals", headers=bearer("bob"))).json()["approvals"]
    assert {each["approval_id"] for each in found} == {
        each["approval_id"] for each in (first, second)
    }
    assert (await reply(api, "bob", first, {"type": "accept"})).status_code == 200
    done = await reply(api, "editor", second, {"type": "accept"})
    assert done.json()["approval"]["answered_by"] == "participant:editor"
    await ended(api)
    assert SENT == [{"to": "ann"}, {"to": "ben"}]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"type": "maybe"}, "'accept', 'edit', 'ignore' or 'response'"),
        ({"type": "edit", "args": {"action": "other", "args": {"to": "x"}}}, "cannot change"),
        ({"type": "edit", "args": {"action": "send", "args": {"copies": 1}}}, "'to' is a required"),
        ([], "or a list with one"),
        ("accept", "or a list with one"),
        ({"type": "accept", "arg": 1}, "allowed are type, args. Did you mean 'args'?"),
        ({"type": "response", "text": "no"}, "unknown option 'text'; allowed are type, args."),
    ],
)
async def test_a_bad_answer_is_refused(api: httpx.AsyncClient, given: Any, problem: str) -> None:
    first, _ = await begin(api, "send")
    done = await reply(api, "alice", first, given)
    assert done.status_code == 400 and problem in done.json()["detail"]
    assert SENT == []


async def test_pages_and_the_client(api: httpx.AsyncClient) -> None:
    await begin(api, "send")
    async with MAILClient(str(api.base_url), TOKENS["alice"]) as client:
        page = await client.get_approvals(limit=1)
        assert len(page["approvals"]) == 1 and page["next_cursor"]
        rest = await client.get_approvals(limit=1, cursor=page["next_cursor"])
        assert rest["next_cursor"] is None
        names = [each["action_request"]["args"]["to"] for each in page["approvals"]]
        names += [each["action_request"]["args"]["to"] for each in rest["approvals"]]
        assert sorted(names) == ["ann", "ben"]
        one = page["approvals"][0]["approval_id"]
        assert (await client.get_approval(one))["status"] == "open"
        done = await client.answer_approval(one, "response", "later", request_id="k1")
        assert done["approval"]["status"] == "responded"
        again = await client.answer_approval(one, "response", "later", request_id="k1")
        assert again == done
        with pytest.raises(ClientHTTPError) as refused:
            await client.answer_approval(one, "accept")
        assert refused.value.status == 409
        with pytest.raises(ClientHTTPError):
            await client.get_approvals(cursor="x")


async def test_a_long_answer_with_a_key_can_be_repeated(api: httpx.AsyncClient) -> None:
    first, _ = await begin(api, "send")
    path, given = f"/approvals/{first['approval_id']}", {"type": "response", "args": "x" * 5000}
    headers = bearer("alice") | {"Idempotency-Key": "k"}
    done, again = [await api.post(path, json=given, headers=headers) for _ in range(2)]
    assert (done.status_code, again.status_code) == (200, 200), again.text
    assert done.json()["approval"] == again.json()["approval"]
    other = await api.post(path, json={"type": "accept"}, headers=headers)
    assert other.status_code == 409 and "Idempotency-Key" in other.text
    unkeyed = await api.post(path, json=given, headers=bearer("alice"))
    assert unkeyed.status_code == 409


async def test_answers_wait_for_the_memories_that_they_teach(
    api: httpx.AsyncClient, store: MemoryStore
) -> None:
    alice = Owner("test-swarm", "user", "alice")
    first, second = await begin(api, "teach")
    edited = {"type": "edit", "args": {"action": "teach", "args": {"to": "cy"}}}
    assert (await reply(api, "admin", first, edited)).is_success
    refused = await reply(api, "admin", first, {"type": "response", "args": "late"})
    assert refused.status_code == 409
    assert (await reply(api, "alice", second, {"type": "response", "args": "to Cy"})).is_success
    await ended(api)
    kept, taught = await store.feedback_on(alice, "style", 10)
    assert (taught.approval_id, taught.task_id) == (first["approval_id"], "t")
    assert (taught.type, taught.action, taught.args) == ("edit", "teach", '{"to": "ann"}')
    assert (taught.change, taught.state) == ('{"to": "cy"}', "waiting")
    assert "> teach" in taught.task_text
    assert (kept.type, kept.change, kept.args) == ("response", "to Cy", '{"to": "ben"}')
    first, second = await begin(api, "teach", "t2")
    assert (await reply(api, "alice", first, {"type": "ignore"})).is_success
    await ended(api, "t2")
    (ignored,) = await store.feedback_on(alice, "triage", 10)
    assert (ignored.type, ignored.change) == ("ignore", "")
    assert await store.waiting_feedback(alice) == {"style": 2, "triage": 1}
    first, second = await begin(api, "teach", "t3")
    for record in (first, second):
        assert (await reply(api, "alice", record, {"type": "accept"})).is_success
    assert await store.waiting_feedback(alice) == {"style": 2, "triage": 1}


async def test_a_stream_tells_what_is_opened_and_closed_and_resumes(api: httpx.AsyncClient) -> None:
    async with MAILClient(str(api.base_url), TOKENS["alice"]) as client:
        first, second = await begin(api, "send")
        stream = await client.stream_approvals()
        told = [await anext(stream), await anext(stream)]
        assert [event.event for event in told] == ["approval_opened"] * 2
        shown = json.loads(told[0].data)["extra_data"]
        assert shown["approval_id"] in (first["approval_id"], second["approval_id"])
        await client.answer_approval(first["approval_id"], "accept")
        closed = await anext(stream)
        assert closed.event == "approval_closed"
        assert json.loads(closed.data)["extra_data"]["status"] == "accepted"
        await stream.aclose()
        await client.answer_approval(second["approval_id"], "response", "no")
        async with await client.stream_approvals(closed.id) as stream:
            again = json.loads((await anext(stream)).data)["extra_data"]
        assert (again["approval_id"], again["status"]) == (second["approval_id"], "responded")
    async with (
        MAILClient(str(api.base_url), TOKENS["bob"]) as client,
        await client.stream_approvals() as stream,
    ):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.7):
                await anext(stream)


async def test_what_nobody_answers_expires_on_a_server(api: httpx.AsyncClient) -> None:
    first, _ = await begin(api, "send_soon")
    assert first["expires_at"]
    task = await ended(api)
    assert task["status"] == "completed" and SENT == []
    late = await reply(api, "alice", first, {"type": "accept"})
    assert late.status_code == 409 and late.json()["errors"][0]["problem"] == "expired"
