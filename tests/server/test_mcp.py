"""`POST /mcp` in the hands of the real MCP client, in both eras of the protocol."""

import asyncio
import contextlib
import importlib.resources
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
import tiktoken
from fastapi import FastAPI
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from mail.db.memory import MemoryStore
from mail.mcp.tools import PROFILES, tools_of
from mail.server.app import create_app
from mail.server.routes import mcp as mcp_route
from tests.server.kit import Script, Server, Template, bearer, config, running_server

PAGE: Final = Path(__file__).parents[2] / "docs/mcp-server.md"

ERAS = ("auto", "legacy")


@pytest.fixture
async def server(app: FastAPI) -> AsyncIterator[Server]:
    async with running_server(app) as server:
        yield server


@asynccontextmanager
async def client(server: Server, who: str = "alice", era: str = "auto", query: str = "?tools=all"):
    async with httpx2.AsyncClient(headers=bearer(who), timeout=10) as http:
        transport = streamable_http_client(f"{server.url}/mcp{query}", http_client=http)
        async with Client(transport, mode=era) as client:
            yield client


async def use(client: Client, name: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool that succeeds."""
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result.content
    assert json.loads(result.content[0].text) == result.structured_content
    return result.structured_content


async def refused(client: Client, name: str, **arguments: Any) -> str:
    """Call a tool that says what is wrong."""
    result = await client.call_tool(name, arguments)
    assert result.is_error
    return result.content[0].text


@pytest.mark.parametrize("era", ERAS)
async def test_a_task_is_submitted_answered_and_looked_at(server: Server, era: str) -> None:
    async with client(server, era=era) as mcp:
        answer = await use(mcp, "submit_task", message="good morning")
        assert answer["status"] == "completed" and answer["answer"] == "You said: good morning"
        again = await use(mcp, "submit_task", message="once more", task_id=answer["task_id"])
        assert again == answer | {"answer": "You said: once more"}
        task = await use(mcp, "get_task", task_id=answer["task_id"], events=3)
        assert task["answer"] == "You said: once more" and len(task["events"]) == 3
        listed = await use(mcp, "list_tasks")
        assert [one["task_id"] for one in listed["tasks"]] == [answer["task_id"]]
        text = (await mcp.read_resource(f"mail://tasks/{answer['task_id']}/timeline")).contents[0]
        assert "new_message alice -> supervisor: New Message: good morning" in text.text
        [resource] = (await mcp.list_resources()).resources
        assert str(resource.uri) == text.uri


@pytest.mark.parametrize("era", ERAS)
async def test_waiting_ends_before_the_task_and_news_come_meanwhile(
    server: Server,
    script: Script,
    era: str,
) -> None:
    news: list[str] = []

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        news.append(str(message))

    async with client(server, era=era) as mcp:
        asked = {"message": "hang on", "wait_seconds": 1.5}
        result = await mcp.call_tool("submit_task", asked, progress_callback=heard)
        told = result.structured_content
        assert told["status"] == "running" and "get_task" in told["note"]
        assert "hang on" in news[0]
        waiting = asyncio.create_task(
            use(mcp, "get_task", task_id=told["task_id"], wait_seconds=20)
        )
        await asyncio.sleep(0)
        script.gate.set()
        assert (await waiting)["answer"] == "You said: hang on"


async def test_a_task_is_interrupted_and_cancelled(server: Server, script: Script) -> None:
    async with client(server) as mcp:
        task = await use(mcp, "submit_task", message="hang", wait_seconds=0)
        await script.entered.wait()
        told = await use(mcp, "interrupt_agent", task_id=task["task_id"], message="stop that")
        assert told == {"task_id": task["task_id"], "status": "running"}
        gone = await use(mcp, "cancel_task", task_id=task["task_id"])
        assert gone["status"] == "cancelled"
        text = await refused(mcp, "interrupt_agent", task_id=task["task_id"], message="and that")
        assert "not running, it is cancelled; use submit_task" in text


async def test_a_call_that_is_cancelled_leaves_its_task_at_work(
    server: Server, script: Script
) -> None:
    async with client(server) as mcp:
        call = asyncio.create_task(use(mcp, "submit_task", message="hang on", wait_seconds=60))
        await script.entered.wait()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        [task] = (await use(mcp, "list_tasks"))["tasks"]
        assert task["status"] == "running"
        script.gate.set()
        done = await use(mcp, "get_task", task_id=task["task_id"], wait_seconds=20)
        assert done["answer"] == "You said: hang on"


async def test_a_repeated_request_begins_nothing_twice(server: Server, script: Script) -> None:
    async with client(server) as mcp:
        first = await use(mcp, "submit_task", message="just once", request_id="r-1")
        second = await use(mcp, "submit_task", message="just once", request_id="r-1")
        assert first == second and script.calls == 1
        other = await refused(mcp, "submit_task", message="something else", request_id="r-1")
        assert "Idempotency-Key" in other


async def test_a_breakpoint_is_answered(store: Any, script: Script) -> None:
    template = Template(script, breakpoint_tools=["help"])
    served = create_app(config(), template=template, store=store)  # type: ignore[arg-type]
    async with running_server(served) as server, client(server) as mcp:
        paused = await use(mcp, "submit_task", message="waste time")
        assert paused["status"] == "paused"
        [call] = paused["breakpoints"]
        shown = await use(mcp, "get_task", task_id=paused["task_id"])
        assert [one["call_id"] for one in shown["breakpoints"]] == [call["call_id"]]
        wrong = {"task_id": paused["task_id"], "call_id": "none", "result": "x"}
        assert "none" in await refused(mcp, "answer_breakpoint", **wrong)
        right = {"task_id": paused["task_id"], "call_id": call["call_id"], "result": "no help"}
        done = await use(mcp, "answer_breakpoint", **right)
        assert done["status"] == "completed" and "no help" in done["answer"]


async def test_bad_calls_are_told_what_is_wrong(server: Server) -> None:
    async with client(server) as mcp:
        assert "Did you mean 'message'?" in await refused(mcp, "submit_task", mesage="hi")
        assert "wait_seconds" in await refused(mcp, "submit_task", message="hi", wait_seconds=301)
        assert "wait_seconds" in await refused(mcp, "submit_task", message="hi", wait_seconds="1")
        assert "not found" in await refused(mcp, "get_task", task_id="none")
        assert "out of tokens" in await refused(mcp, "submit_task", message="fail")
        with pytest.raises(MCPError, match="unknown tool"):
            await mcp.call_tool("submit", {})
        for uri in ("mail://tasks/none/timeline", "file:///etc/passwd"):
            with pytest.raises(MCPError):
                await mcp.read_resource(uri)


async def test_callers_are_kept_apart(server: Server) -> None:
    async with client(server) as alice, client(server, "bob") as bob:
        task = await use(alice, "submit_task", message="mine")
        assert (await use(bob, "list_tasks"))["tasks"] == []
        for name, more in (
            ("get_task", {}),
            ("cancel_task", {}),
            ("submit_task", {"message": "x"}),
        ):
            assert "not found" in await refused(bob, name, task_id=task["task_id"], **more)


@pytest.mark.parametrize(
    ("headers", "query", "status"),
    [
        ({}, "", 401),
        ({"Authorization": "Bearer mail_x"}, "", 401),
        (bearer("swarm"), "", 403),
        (bearer("alice"), "?tools=tsaks", 400),
    ],
)
async def test_whoever_does_not_belong_is_refused(
    server: Server, headers: dict[str, str], query: str, status: int
) -> None:
    async with httpx2.AsyncClient(headers=headers) as http:
        ask = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        answer = await http.post(f"{server.url}/mcp{query}", json=ask)
        assert answer.status_code == status and answer.json()["detail"]


TEN = {
    *("send_message", "get_messages", "create_thread", "join_thread", "broadcast_message"),
    *("check_new_messages", "transfer_file", "get_thread_details", "add_participant_to_thread"),
    "remove_participant_from_thread",
}


# --- participants -------------------------------------------------------------------------------


@pytest.fixture
async def desk(store: MemoryStore, script: Script) -> AsyncIterator[Server]:
    """A swarm with two participants."""
    template = Template(script)
    template.participants = [{"name": n, "description": ""} for n in ("editor", "reviewer")]
    served = create_app(config(), template=template, store=store)  # type: ignore[arg-type]
    async with running_server(served) as server:
        yield server


@pytest.mark.parametrize("era", ERAS)
async def test_participants_are_offered_what_they_may_use(desk: Server, era: str) -> None:
    async with client(desk, "editor", era, "") as editor, client(desk, "alice", era, "") as alice:
        offered = {tool.name for tool in (await editor.list_tools()).tools}
        assert offered == set(tools_of(["desk"])) == TEN
        assert {tool.name for tool in (await alice.list_tools()).tools} == set(tools_of(["tasks"]))
    async with client(desk, "editor", era, "?tools=basic") as editor:
        assert len((await editor.list_tools()).tools) == 5
    async with client(desk, "editor", era, "?tools=tasks") as editor:
        assert "is a participant" in await refused(editor, "submit_task", message="x")
        assert await use(editor, "list_tasks") == {"tasks": [], "next_cursor": None}


async def test_a_letter_goes_from_one_to_the_other(desk: Server) -> None:
    async with client(desk, "editor") as editor, client(desk, "reviewer") as reviewer:
        me, you = {"agent_id": "editor"}, {"agent_id": "reviewer"}
        waiting = asyncio.create_task(use(reviewer, "wait_for_mail", **you, seconds=20))
        letter = {"sender_id": "editor", "recipient_id": "reviewer", "content": "Ready?"}
        sent = await use(editor, "send_message", **letter, urgent=True, wants_ack=True)
        assert sent["message"]["id"] in sent["detail"] and sent["message"]["urgent"]
        assert (await waiting)["unread"] == 1
        checked = await use(reviewer, "check_new_messages", **you)
        assert checked == {"detail": "You have 1 unread message.", "unread": 1}
        [got] = (await use(reviewer, "get_messages", **you, request_id="p-1"))["messages"]
        assert got["content"] == "Ready?" and got["sender_id"] == "editor"
        assert (await use(reviewer, "check_new_messages", **you))["unread"] == 0
        again = await use(reviewer, "get_messages", **you, request_id="p-1")
        assert [each["id"] for each in again["messages"]] == [got["id"]]
        await use(reviewer, "acknowledge_message", **you, message_id=got["id"], note="yes")
        [receipt] = (await use(editor, "get_receipts", message_id=got["id"]))["receipts"]
        assert (receipt["state"], receipt["note"]) == ("acknowledged", "yes")
        assert "only the sender" in await refused(reviewer, "get_receipts", message_id=got["id"])
        both = {"sender_id": "editor", "recipient_ids": ["reviewer", "editor"], "content": "All"}
        told = await use(editor, "broadcast_message", **both)
        assert told["message"]["recipient_ids"] == ["reviewer"]
        assert (await use(editor, "check_new_messages", **me))["unread"] == 0


async def test_a_thread_is_created_joined_and_left(desk: Server) -> None:
    async with client(desk, "editor") as editor, client(desk, "reviewer") as reviewer:
        new = {"creator_id": "editor", "title": "Release", "participants": []}
        made = await use(editor, "create_thread", **new, initial_message="Who tests?")
        place = {"thread_id": made["thread"]["id"]}
        assert made["thread"]["participants"] == ["editor"] and made["message_id"]
        assert await refused(reviewer, "get_thread_details", **place) == "no such thread"
        joined = await use(reviewer, "join_thread", **place, agent_id="reviewer")
        assert joined["status"] == "joined"
        again = await use(reviewer, "join_thread", **place, agent_id="reviewer")
        assert again["status"] == "already_participant"
        post = {"sender_id": "reviewer", "content": "I do."}
        await use(reviewer, "send_message", **place, **post)
        seen = await use(editor, "get_messages", **place, agent_id="editor", limit=2)
        assert seen["messages"][0]["content"] == "I do."
        details = await use(editor, "get_thread_details", **place)
        assert details["participants"] == ["editor", "reviewer"]
        assert details["creator_id"] == "editor" and details["created_at"]
        creator = {"agent_id_to_remove": "editor", "removing_agent_id": "editor"}
        assert "creator" in await refused(
            editor, "remove_participant_from_thread", **place, **creator
        )
        gone = {"agent_id_to_remove": "reviewer", "removing_agent_id": "editor"}
        await use(editor, "remove_participant_from_thread", **place, **gone)
        assert "no such" in await refused(reviewer, "send_message", **place, **post)
        back = {"agent_id_to_add": "reviewer", "inviting_agent_id": "editor"}
        assert (await use(editor, "add_participant_to_thread", **place, **back))[
            "status"
        ] == "added"


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        (
            "send_message",
            {"sender_id": "reviewer", "recipient_id": "x", "content": "x"},
            "sender_id",
        ),
        ("send_message", {"sender_id": "editor", "content": "x"}, "exactly one"),
        ("send_message", {"sender_id": "editor", "recipient_id": "x", "content": "x"}, "'x'"),
        ("send_message", {"recipient_id": "reviewer"}, "content: is missing"),
        ("get_messages", {"agent_id": "reviewer"}, "agent_id"),
        ("get_messages", {"agent_id": "editor", "since": "yesterday"}, "since"),
        ("check_new_messages", {"agent_id": "reviewer"}, "agent_id"),
        (
            "broadcast_message",
            {"sender_id": "editor", "recipient_ids": [], "content": "x"},
            "must not be empty",
        ),
        ("create_thread", {"creator_id": "editor", "title": "x", "participants": ["x"]}, "'x'"),
        ("join_thread", {"agent_id": "editor", "thread_id": "../tasks"}, "not found"),
        ("wait_for_mail", {"agent_id": "editor", "seconds": 301}, "seconds"),
    ],
)
async def test_what_the_desk_refuses_is_told(
    desk: Server, name: str, arguments: dict[str, Any], said: str
) -> None:
    async with client(desk, "editor") as editor:
        assert said in await refused(editor, name, **arguments)


async def test_arguments_are_taken_as_the_documented_schemas_have_them(desk: Server) -> None:
    async with client(desk, "editor", query="") as editor:
        schemas = {tool.name: tool.input_schema for tool in (await editor.list_tools()).tools}
        asked = schemas["get_messages"]["properties"]
        assert (asked["limit"]["type"], asked["limit"]["default"]) == ("number", 10)
        assert (asked["since"]["type"], asked["since"]["format"]) == ("string", "date-time")
        sent = {"recipient_id": "reviewer", "thread_id": None, "urgent": None, "content": "x"}
        for _ in range(12):
            assert (await use(editor, "send_message", **sent))["status"] == "sent"
        new = {"title": "x", "participants": ["reviewer"], "initial_message": None}
        assert "message_id" not in await use(editor, "create_thread", **new)
        assert "content" in await refused(editor, "send_message", recipient_id="x", content=None)
    async with client(desk, "reviewer", query="") as reviewer:
        options = {"thread_id": None, "since": None, "mark_read": None, "agent_id": "reviewer"}

        async def got(limit: Any) -> int:
            return len((await use(reviewer, "get_messages", **options, limit=limit))["messages"])

        assert [await got(each) for each in (10.0, 2.9, None, 1000, 1e30)] == [10, 2, 10, 13, 13]
        for wrong in (0, 0.5, -1, "10", True):
            assert "limit" in await refused(reviewer, "get_messages", limit=wrong)


async def test_a_participant_is_told_its_own_id_and_need_not_say_it(desk: Server) -> None:
    async with client(desk, "editor") as editor, client(desk, "reviewer") as reviewer:
        for tool in (await editor.list_tools()).tools:
            for name in {"sender_id", "agent_id"} & set(tool.input_schema["properties"]):
                assert "'editor'" in tool.input_schema["properties"][name]["description"]
                assert name in tool.input_schema["required"]
        made = await use(editor, "create_thread", title="x", participants=["reviewer"])
        place = {"thread_id": made["thread"]["id"]}
        sent = await use(editor, "send_message", **place, content="one")
        assert sent["status"] == "sent" and sent["message_id"] == sent["message"]["id"]
        await use(editor, "broadcast_message", recipient_ids=["reviewer"], content="two")
        assert (await use(reviewer, "wait_for_mail"))["unread"] == 3
        page = await use(reviewer, "get_messages", limit=1)
        older = await use(reviewer, "get_messages", before=page["next_before"])
        assert [len(each["messages"]) for each in (page, older)] == [1, 2]
        [thread] = (await use(reviewer, "list_threads"))["threads"]
        assert thread["id"] == made["thread"]["id"]
        await use(
            reviewer, "remove_participant_from_thread", **place, agent_id_to_remove="reviewer"
        )
        assert (await use(reviewer, "join_thread", **place))["status"] == "joined"


async def test_a_message_is_found_by_its_words_and_read(desk: Server) -> None:
    async with client(desk, "editor") as editor, client(desk, "reviewer") as reviewer:
        letter = {"recipient_id": "reviewer", "content": "The heron has landed."}
        sent = await use(editor, "send_message", **letter)
        await use(editor, "send_message", **letter | {"content": "A heron, again."})
        [found] = (await use(reviewer, "search_messages", query='"the heron"'))["messages"]
        assert (found["id"], found["read"]) == (sent["message_id"], False)
        read = await use(reviewer, "get_message", message_id=found["id"])
        assert read["message"]["content"] == "The heron has landed."
        [found] = (await use(reviewer, "search_messages", query="heron -again"))["messages"]
        assert found["read"]
        assert (await use(reviewer, "search_messages", query="((("))["messages"] == []


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("get_message", {"message_id": "search"}),
        ("get_thread_details", {"thread_id": ".."}),
        ("join_thread", {"thread_id": "."}),
        ("get_receipts", {"message_id": "unread"}),
        ("get_receipts", {"message_id": ".."}),
        ("acknowledge_message", {"message_id": "overdue"}),
    ],
)
async def test_an_id_is_never_another_path(
    desk: Server, name: str, arguments: dict[str, str]
) -> None:
    async with client(desk, "editor") as editor:
        assert "no such" in await refused(editor, name, **arguments)


async def test_pages_of_strangers_are_refused(server: Server) -> None:
    ask = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    accept = {"Accept": "application/json, text/event-stream"}
    async with httpx2.AsyncClient(headers=bearer("alice") | accept) as http:
        for origin, status in (
            ("http://evil.example", 403),
            ("null", 403),
            ("http://[", 403),
            ("http://localhost:6274", 200),
        ):
            headers = {"Origin": origin}
            answer = await http.post(f"{server.url}/mcp", json=ask, headers=headers)
            assert answer.status_code == status, origin
        strange = await http.get(f"{server.url}/mcp", headers={"Origin": "http://evil.example"})
        assert strange.status_code == 403


def request(arguments: Any) -> dict[str, Any]:
    """Return a call as it goes over the wire."""
    params = {"name": "get_task", "arguments": arguments}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (request({"task_id": "x" * 1_200_000}), 413),
        (request({"x": [1] * 60_000}), 400),
        ([request({})], 400),
        (request(json.loads("[" * 70 + "]" * 70)), 400),
        (7, 400),
    ],
    ids=["large", "many values", "a batch", "deep", "a number"],
)
async def test_bodies_are_held_to_the_limits_of_all_bodies(
    server: Server, body: Any, status: int
) -> None:
    accept = {"Accept": "application/json, text/event-stream"}
    async with httpx2.AsyncClient(headers=bearer("alice") | accept) as http:
        answer = await http.post(f"{server.url}/mcp", json=body)
        assert answer.status_code == status and answer.json()["detail"]


@pytest.mark.parametrize("era", ERAS)
async def test_what_the_sdk_parses_again_on_the_event_loop_has_few_values(
    server: Server, monkeypatch: pytest.MonkeyPatch, era: str
) -> None:
    handed: list[bytes] = []
    make = mcp_route._Handed.__init__

    def noted(answer: Any, manager: Any, body: bytes, *more: Any) -> None:
        handed.extend([body] if b"tools/call" in body else [])
        make(answer, manager, body, *more)

    monkeypatch.setattr(mcp_route._Handed, "__init__", noted)
    async with client(server, era=era) as mcp:
        for size in (900, 1_100, 49_000):
            handed.clear()
            with contextlib.suppress(MCPError):
                await mcp.call_tool("get_task", {f"x{number}": 0 for number in range(size)})
            assert len(handed) == (size < 1_000)
    accept = {"Accept": "application/json, text/event-stream"}
    async with httpx2.AsyncClient(headers=bearer("alice") | accept) as http:
        answer = await http.post(f"{server.url}/mcp", json=request({"x": [1] * 1_100}))
    assert answer.status_code == 400
    assert answer.json()["detail"] == (
        "the request body has more than 1000 values; the limit of /mcp is fixed; send fewer, or "
        "use the route of the HTTP API that does the same"
    )


async def test_many_wrong_arguments_are_one_short_answer(server: Server) -> None:
    async with client(server) as mcp:
        wrong = {f"task_id{number}": 0 for number in range(900)}
        text = await refused(mcp, "get_task", **wrong)
        assert text.startswith("there is no argument 'task_id0'; there are task_id, ")
        assert text.endswith(". Did you mean 'task_id'?")


async def test_there_is_no_stream_without_a_request(server: Server) -> None:
    async with httpx2.AsyncClient(headers=bearer("alice")) as http:
        assert (await http.get(f"{server.url}/mcp")).status_code == 405


async def test_a_client_goes_on_after_a_restart(app: FastAPI, store: Any, script: Script) -> None:
    async with running_server(app) as first:
        port = first.servers[0].sockets[0].getsockname()[1]
        async with client(first, era="legacy") as mcp:
            await use(mcp, "submit_task", message="before")
            first.stop.set()
            while first.servers and first.servers[0].is_serving():
                await asyncio.sleep(0.01)
            again = create_app(config(), template=Template(script), store=store)  # type: ignore[arg-type]
            async with running_server(again, port=port):
                assert (await use(mcp, "submit_task", message="after"))["answer"]


def test_the_tools_take_little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    # LiteLLM brings an encoding along; tiktoken itself would fetch it.
    folder = importlib.resources.files("litellm.litellm_core_utils.tokenizers")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(folder))
    encoding = tiktoken.get_encoding("cl100k_base")
    page = PAGE.read_text(encoding="utf-8")
    told = dict(re.findall(r"^\| `([a-z]+)` \| .* \| ([0-9,]+) \|$", page, re.M))
    assert told.keys() == {*PROFILES}
    for profile in PROFILES:
        tools = [
            {"name": t.name, "description": t.description, "inputSchema": t.schema}
            for t in tools_of([profile]).values()
        ]
        tokens = len(encoding.encode(json.dumps(tools)))
        assert abs(int(told[profile].replace(",", "")) - tokens) <= tokens / 20, (profile, tokens)
    assert int(told["basic"].replace(",", "")) < 2500
