"""Every MCP tool in a good and a bad case, over HTTP and over standard input and output."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from mail.db.memory import MemoryStore
from mail.errors import ToolError
from mail.mcp.api import Api
from mail.mcp.tools import tools_of
from mail.server.app import create_app
from tests.server.kit import TOKENS, Script, Server, Template, bearer, config, running_server

PAGE: Final = Path(__file__).parents[2] / "docs/mail-desk.md"
ENTRYPOINT: Final = "An agent of the swarm: its entrypoint, which takes any request."
Arguments = dict[str, Any]
TASK, THREAD, MESSAGE, CALL = "<task>", "<thread>", "<message>", "<call>"
GOOD: dict[str, Arguments] = {
    "send_message": {"recipient_id": "reviewer", "content": "x", "subject": "s", "urgent": True},
    "get_messages": {"limit": 1, "mark_read": False},
    "check_new_messages": {},
    "wait_for_mail": {"seconds": 0.01},
    "list_participants": {},
    "broadcast_message": {"recipient_ids": ["reviewer"], "content": "x", "subject": "s"},
    "create_thread": {"title": "x", "participants": ["reviewer"]},
    "join_thread": {"thread_id": THREAD},
    "list_threads": {},
    "get_thread_details": {"thread_id": THREAD},
    "add_participant_to_thread": {"thread_id": THREAD, "agent_id_to_add": "reviewer"},
    "remove_participant_from_thread": {"thread_id": THREAD, "agent_id_to_remove": "reviewer"},
    "acknowledge_message": {"message_id": MESSAGE, "note": "yes"},
    "get_receipts": {"message_id": "<own message>"},
    "list_overdue": {},
    "search_messages": {"query": "ready"},
    "get_message": {"message_id": MESSAGE},
    "transfer_file": {
        "recipient_id": "reviewer",
        "content_base64": "eA==",
        "destination_filename": "x.txt",
    },
    "get_file": {"file_id": "<file>"},
    "submit_task": {"message": "hello"},
    "get_task": {"task_id": TASK},
    "list_tasks": {"limit": 1},
    "answer_breakpoint": {"task_id": "<paused>", "call_id": CALL, "result": "no help"},
    "list_approvals": {"limit": 1},
    "answer_approval": {"approval_id": "<approval>", "type": "response", "args": "no help"},
    "interrupt_agent": {"task_id": "<running>", "message": "stop"},
    "cancel_task": {"task_id": "<running>"},
}
TEAMS: dict[str, Arguments] = {
    "list_teams": {},
    "teammate_message": {"teamId": "none", "to": "lead", "message": "x"},
    "teammate_broadcast": {"teamId": "none", "message": "x"},
}
BAD: dict[str, list[tuple[Arguments, str]]] = {
    "send_message": [
        ({"content": "x"}, "exactly one"),
        ({"recipient_id": "nobody", "content": "x"}, "'nobody'"),
        ({"recipient_id": "editor", "content": "x"}, "yourself"),
        ({"recipient_id": "reviewer", "content": "x", "subject": "a\nb"}, "subject"),
        ({"sender_id": "reviewer", "recipient_id": "editor", "content": "x"}, "sender_id"),
    ],
    "get_messages": [({"since": "yesterday"}, "since"), ({"limit": 0}, "limit")],
    "check_new_messages": [({"agent_id": "reviewer"}, "agent_id")],
    "wait_for_mail": [({"seconds": 301}, "seconds"), ({"seconds": "5"}, "seconds")],
    "list_participants": [({"kind": "agent"}, "no argument 'kind'")],
    "broadcast_message": [
        ({"recipient_ids": [], "content": "x"}, "recipient_ids"),
        ({"recipient_ids": ["reviewer", "nobody"], "content": "x"}, "'nobody'"),
    ],
    "create_thread": [({"title": " ", "participants": []}, "title")],
    "join_thread": [({"thread_id": "none"}, "no such thread")],
    "list_threads": [({"after": 7}, "after"), ({"after": "x"}, "next_after")],
    "get_thread_details": [({"thread_id": "none"}, "no such thread")],
    "add_participant_to_thread": [
        ({"thread_id": THREAD, "agent_id_to_add": "nobody"}, "'nobody'"),
        ({"thread_id": "none", "agent_id_to_add": "reviewer"}, "no such thread"),
    ],
    "remove_participant_from_thread": [
        ({"thread_id": THREAD, "agent_id_to_remove": "editor"}, "creator cannot be removed")
    ],
    "acknowledge_message": [({"message_id": "<own message>"}, "no such message")],
    "get_receipts": [({"message_id": MESSAGE}, "only the sender")],
    "list_overdue": [({"older_than": -1}, "older_than")],
    "search_messages": [({"query": ""}, "query"), ({"query": "x", "limit": 0}, "limit")],
    "get_message": [({"message_id": "none"}, "no such message")],
    "transfer_file": [
        ({"recipient_id": "reviewer"}, "exactly one"),
        ({"recipient_id": "reviewer", "content_base64": "?"}, "not base64"),
        ({"recipient_id": "nobody", "content_base64": "eA=="}, "'nobody'"),
        ({"recipient_id": "reviewer", "source_path": "/etc/passwd"}, "--root"),
    ],
    "get_file": [({"file_id": "none"}, "no such file"), ({"file_id": ".."}, "no such file")],
    "submit_task": [
        ({"mesage": "x"}, "Did you mean 'message'?"),
        ({"message": "x", "agent": "nobody"}, "nobody"),
        ({"message": "fail"}, "out of tokens"),
    ],
    "get_task": [({"task_id": "none"}, "not found")],
    "list_tasks": [({"limit": 0}, "limit"), ({"cursor": "x"}, "cursor")],
    "answer_breakpoint": [({"task_id": TASK, "call_id": "none", "result": "x"}, "none")],
    "list_approvals": [({"status": "none"}, "status"), ({"cursor": "x"}, "cursor")],
    "answer_approval": [
        ({"approval_id": "none", "type": "accept"}, "no such approval"),
        ({"approval_id": "..", "type": "accept"}, "no such approval"),
        ({"approval_id": "<approval>", "type": "maybe"}, "type"),
        ({"approval_id": "<approval>", "type": "accept"}, "allowed: 'response'"),
        ({"approval_id": "<approval>", "type": "edit"}, "'action' and 'args'"),
        (
            {"approval_id": "<approval>", "type": "response", "text": "x"},
            "there is no argument 'text'; there are approval_id, type, args",
        ),
    ],
    "interrupt_agent": [({"task_id": TASK, "message": "x"}, "not running")],
    "cancel_task": [({"task_id": "none"}, "not found")],
}


def test_each_tool_has_a_good_and_a_bad_case() -> None:
    teams = tools_of(["teams"]).keys() - tools_of(["basic"]).keys()  # see test_teams.py
    assert GOOD.keys() == BAD.keys() == tools_of([]).keys() - teams
    assert all(BAD.values())


@pytest.fixture
async def server(store: MemoryStore, script: Script) -> AsyncIterator[Server]:
    template = Template(script, breakpoint_tools=["help"])
    template.participants = [{"name": n, "description": n.title()} for n in ("editor", "reviewer")]
    served = create_app(config(), template=template, store=store)  # type: ignore[arg-type]
    async with running_server(served) as server:
        server.quotas = served.state.mail.quotas
        yield server


@asynccontextmanager
async def over_http(server: Server, who: str, tools: str = "threads") -> AsyncIterator[Client]:
    async with httpx2.AsyncClient(headers=bearer(who), timeout=10) as http:
        transport = streamable_http_client(f"{server.url}/mcp?tools={tools}", http_client=http)
        async with Client(transport) as client:
            yield client


@asynccontextmanager
async def over_stdio(server: Server, who: str, tools: str = "threads") -> AsyncIterator[Client]:
    environ = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "mail.cli", "mcp", server.url, "--tools", tools],
        env=environ | {"MAIL_API_KEY": TOKENS[who]},
    )
    async with Client(stdio_client(command)) as client:
        yield client


TRANSPORTS = {"http": over_http, "stdio": over_stdio}


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_tools_of_participants(server: Server, transport: str) -> None:
    async with TRANSPORTS[transport](server, "editor") as editor:
        async with over_http(server, "reviewer") as reviewer:
            asked = {"recipient_id": "editor", "content": "Ready?", "wants_ack": True}
            letter = (await said(reviewer, "send_message", asked))["message_id"]
        own = {"recipient_id": "reviewer", "content": "x", "wants_ack": True}
        sent = (await said(editor, "send_message", own))["message_id"]
        made = await said(editor, "create_thread", {"title": "Release", "participants": []})
        known = {THREAD: made["thread"]["id"], MESSAGE: letter, "<own message>": sent}
        file = {"recipient_id": "reviewer", "content_base64": "eA==", "destination_filename": "x"}
        known["<file>"] = (await said(editor, "transfer_file", file))["file"]["id"]
        results = await all_cases(editor, tools_of(["threads"]), known)
    assert results["list_participants"]["participants"] == [
        {"name": "editor", "description": "Editor", "kind": "participant"},
        {"name": "reviewer", "description": "Reviewer", "kind": "participant"},
        {"name": "supervisor", "description": ENTRYPOINT, "kind": "agent"},
    ]
    assert results["send_message"]["message"]["subject"] == "s"
    assert results["broadcast_message"]["message"]["subject"] == "s"
    assert results["add_participant_to_thread"]["status"] == "added"
    assert [each["state"] for each in results["get_receipts"]["receipts"]] == ["stored"]
    assert [each["message"]["id"] for each in results["list_overdue"]["overdue"]] == [sent]


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_participants_are_offered_the_ten_documented_tools(
    server: Server, transport: str
) -> None:
    async with TRANSPORTS[transport](server, "editor", "") as editor:
        offered = [tool.name for tool in (await editor.list_tools()).tools]
    assert offered == list(tools_of(["desk"])) and len(offered) == 10


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_tools_of_users(server: Server, transport: str, script: Script) -> None:
    async with TRANSPORTS[transport](server, "alice", "tasks") as alice:
        done = await said(alice, "submit_task", {"message": "hello"})
        paused = await said(alice, "submit_task", {"message": "waste time"})
        other = await said(alice, "submit_task", {"message": "waste more"})
        wanted = {"task_id": other["task_id"]}
        (asked,) = (await said(alice, "list_approvals", wanted))["approvals"]
        running = await said(alice, "submit_task", {"message": "hang", "wait_seconds": 0})
        await script.entered.wait()
        known = {
            TASK: done["task_id"],
            CALL: paused["breakpoints"][0]["call_id"],
            "<paused>": paused["task_id"],
            "<approval>": asked["approval_id"],
            "<running>": running["task_id"],
        }
        results = await all_cases(alice, tools_of(["tasks"]), known)
    assert results["submit_task"]["answer"] == "You said: hello"
    assert "no help" in results["answer_breakpoint"]["answer"]
    assert results["answer_approval"]["approval"]["status"] == "responded"
    assert len(results["list_approvals"]["approvals"]) == 1
    assert results["cancel_task"]["status"] == "cancelled"


async def all_cases(
    client: Client, tools: dict[str, Any], known: dict[str, str]
) -> dict[str, dict[str, Any]]:
    """Run the bad cases of some tools, then the good ones, and return what these said."""
    assert {tool.name for tool in (await client.list_tools()).tools} == tools.keys()
    for name in tools:
        for arguments, text in BAD[name]:
            result = await client.call_tool(name, filled(arguments, known))
            assert result.is_error, (name, arguments)
            assert text in result.content[0].text, (name, result.content[0].text)
    return {name: await said(client, name, filled(GOOD[name], known)) for name in tools}


def filled(arguments: Arguments, known: dict[str, str]) -> Arguments:
    return {
        name: known.get(value, value) if isinstance(value, str) else value
        for name, value in arguments.items()
    }


async def said(client: Client, name: str, arguments: Arguments) -> dict[str, Any]:
    result = await client.call_tool(name, arguments)
    assert not result.is_error, (name, result.content)
    assert result.structured_content is not None
    return result.structured_content


async def test_the_table_tells_who_may_use_which_tool(server: Server) -> None:
    async with over_http(server, "editor") as editor:
        file = {"recipient_id": "reviewer", "content_base64": "eA==", "destination_filename": "x"}
        sent = await said(editor, "transfer_file", file)
    known = {"<file>": sent["file"]["id"], MESSAGE: sent["message_id"]}
    page = PAGE.read_text(encoding="utf-8").partition("| Tool | participant |")[2]
    told = {}
    for row in re.findall(r"^\| (`[a-z]+_[a-z_]+`.*) \|$", page, re.M):
        names, *cells = row.split(" | ")
        for name in re.findall(r"`([a-z_]+)`", names):
            told[name] = [cell != "no" for cell in cells]
    assert told.keys() == tools_of([]).keys()
    for at, who in enumerate(("editor", "alice", "admin")):
        async with httpx.AsyncClient(base_url=server.url, headers=bearer(who)) as http:
            for name, tool in tools_of([]).items():
                arguments = filled((GOOD | TEAMS)[name], known)
                try:
                    await tool.call(Api(http), arguments)
                except ToolError as error:
                    denied = "invalid role" in str(error)
                    assert not (told[name][at] and denied), (who, name, str(error))
                else:
                    assert told[name][at], (who, name)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_waiting_for_mail_tells_that_it_goes_on_and_is_cancelled(
    server: Server, transport: str
) -> None:
    quotas = server.quotas
    told = asyncio.Event()

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        assert progress > 0 and message == "no mail yet"
        told.set()

    async with TRANSPORTS[transport](server, "editor") as editor:
        call = editor.call_tool("wait_for_mail", {"seconds": 60}, progress_callback=heard)
        waiting = asyncio.create_task(call)
        async with asyncio.timeout(10):
            await told.wait()
            assert quotas.open_streams == 1
            waiting.cancel()
            while quotas.open_streams:  # what it held is let go at once
                await asyncio.sleep(0.01)
        assert (await said(editor, "check_new_messages", {}))["unread"] == 0


async def test_an_answer_that_lacks_something_is_told_as_that() -> None:
    answer = httpx_response({"thread": {"id": "t"}})
    text = "the server's answer is not that of a MAIL server: it has no 'participants'"
    with pytest.raises(ToolError, match=text):
        await tools_of([])["join_thread"].call(answer, {"thread_id": "t"})


async def test_a_fault_of_a_tool_is_no_wrong_argument() -> None:
    with pytest.raises(AttributeError):
        await tools_of([])["list_tasks"].call(httpx_response({"tasks": 7}), {})


def httpx_response(body: object) -> Api:
    transport = httpx.MockTransport(lambda _: httpx.Response(200, json=body))
    return Api(httpx.AsyncClient(transport=transport, base_url="http://mail"))
