"""The server is killed while an agent uses a tool of an MCP server: it is not used twice."""

import asyncio
import json
import sys
import uuid
from pathlib import Path
from typing import Any

import httpx
import pytest

from mail.api import MAILSwarmTemplate
from mail.llm.script import Steps, call
from mail.llm.script_view import ScriptView
from mail.llm.scripted import ScriptedModel
from tests.e2e.processes import Place
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

PROGRAM = str(Path(__file__).with_name("mcp_program.py"))
SECONDS = 60.0


async def _clerk(view: ScriptView) -> Steps:
    """Note what a user says, and finish with what the tool says."""
    used = [each for each in view.new_results if each.tool == "notes__note"]
    if view.forced or used or "outcome is unknown" in view.body:
        told = used[-1].content if used else view.body
        return call("task_complete", finish_message=told)
    return call("notes__note", text=view.body)


MODEL = ScriptedModel(_clerk)


def swarm(folder: Path) -> MAILSwarmTemplate:
    """Return a swarm whose agent has a tool of an MCP server."""
    agent = {
        "name": "clerk",
        "factory": "python::mail.factories.supervisor:LiteLLMSupervisorFunction",
        "comm_targets": [],
        "actions": ["mcp:notes"],
        "agent_params": {
            "llm": "scripted",
            "model": f"python::{__name__}:MODEL",
            "system": "Note.",
        },
        "enable_entrypoint": True,
        "can_complete_tasks": True,
    }
    return MAILSwarmTemplate.from_swarms_json(
        {
            "name": "e2e",
            "version": "1",
            "entrypoint": "clerk",
            "agents": [agent],
            "actions": [],
            "mcp_servers": {"notes": {"command": [sys.executable, PROGRAM, str(folder)]}},
        }
    )


def lines(place: Place, name: str) -> list[str]:
    file = place.folder / name
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


def runs(pid: str) -> bool:
    """Tell whether a process is there and no zombie."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


async def begin(place: Place, text: str) -> tuple[str, "asyncio.Task[Any]"]:
    """Begin a task; return its id, and the request that waits for its end."""
    task_id = str(uuid.uuid4())

    async def post() -> Any:
        async with place.client() as http:
            try:
                return (await http.post("/message", json={"body": text, "task_id": task_id})).json()
            except httpx.TransportError:
                return None

    return task_id, asyncio.create_task(post())


async def outcome(place: Place, task_id: str) -> str:
    """Wait for a task's end; return its answer."""
    async with asyncio.timeout(SECONDS), place.client() as http:
        while True:
            for event in (await http.get(f"/tasks/{task_id}")).json()["events"]:
                if event["event"] == "task_complete":
                    return str(json.loads(event["data"])["response"])
            await asyncio.sleep(0.02)


async def test_a_tool_of_an_mcp_server_is_not_used_twice(place: Place) -> None:
    await place.start(template=f"{__name__}:swarm")
    place.close_gate("note")
    task_id, lost = await begin(place, "birches")
    await until(lambda: lines(place, "notes") == ["birches"])
    await place.kill()
    assert await lost is None
    await until(lambda: not any(map(runs, lines(place, "programs"))))
    place.open_gate("note")
    await place.start(template=f"{__name__}:swarm")
    assert "outcome is unknown" in await outcome(place, task_id)
    assert lines(place, "notes") == ["birches"]
    _, answer = await begin(place, "oaks")
    assert "noted" in (await answer)["response"]
    assert lines(place, "notes") == ["birches", "oaks"]
    assert "Traceback" not in place.log
