"""Agents of a swarm from a swarms.json file use the library's actions: all of it, end to end."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from mail import MAILSwarm, MAILSwarmTemplate
from tests.stdlib.outside import PUBLIC, Outside

IMPORTS = {
    "mail.stdlib.fs.actions": (
        "read_file",
        "write_file",
        "delete_file",
        "create_directory",
        "read_directory",
    ),
    "mail.stdlib.http.actions": (
        "http_get",
        "http_head",
        "http_options",
        "http_post",
        "http_put",
        "http_patch",
        "http_delete",
    ),
    "mail.stdlib.mcp.actions": (
        "mcp_ping",
        "mcp_list_tools",
        "mcp_call_tool",
        "mcp_list_prompts",
        "mcp_get_prompt",
        "mcp_list_resources",
        "mcp_read_resource",
    ),
    "mail.stdlib.interswarm.actions": ("ping_swarm", "get_swarm_health", "get_swarm_registry"),
    "mail.examples.math_dummy.actions": ("calculate_expression_action",),
}
IDEMPOTENT = {
    "read_file",
    "read_directory",
    "http_get",
    "http_head",
    "http_options",
    "mcp_ping",
    "mcp_list_tools",
    "mcp_list_prompts",
    "mcp_get_prompt",
    "mcp_list_resources",
    "mcp_read_resource",
    "ping_swarm",
    "get_swarm_health",
    "get_swarm_registry",
    "calculate_expression",
}


def definition() -> dict[str, Any]:
    """Return the swarm as it stands in a swarms.json file."""
    names = [name.removesuffix("_action") for names in IMPORTS.values() for name in names]
    return {
        "name": "doers",
        "version": "1.0.0",
        "entrypoint": "doer",
        "agents": [
            {
                "name": "doer",
                "factory": "python::mail.factories:LiteLLMSupervisorFunction",
                "comm_targets": [],
                "actions": names,
                "enable_entrypoint": True,
                "can_complete_tasks": True,
                "tool_format": "completions",
                "agent_params": {
                    "llm": "scripted/tests.stdlib.acting:ACT",
                    "system": "You do what you are told.",
                    "use_proxy": False,
                },
            }
        ],
        "actions": [],
        "action_imports": [
            f"python::{module}:{name}" for module, names in IMPORTS.items() for name in names
        ],
    }


@pytest.fixture
async def swarm(tmp_path: Path) -> AsyncIterator[MAILSwarm]:
    """The swarm, loaded from a file."""
    file = tmp_path / "swarms.json"
    file.write_text(json.dumps([definition()]))
    template = MAILSwarmTemplate.from_swarm_json_file("doers", file)
    made = template.instantiate({"user_token": "dummy"}, print_llm_streams=False)
    yield made
    await made.shutdown()


async def do(swarm: MAILSwarm, *calls: tuple[str, dict[str, Any]]) -> list[str]:
    """Let the agent make the calls, and return what it was told of each."""
    response, _ = await swarm.post_message(json.dumps(calls))
    assert response["message"]["subject"] == "::task_complete::"
    told: list[str] = json.loads(response["message"]["body"])
    return told


def test_every_action_is_imported_with_a_sound_schema(swarm: MAILSwarm) -> None:
    actions = {action.name: action for action in swarm.actions}
    assert len(actions) == sum(map(len, IMPORTS.values()))
    assert {name for name, action in actions.items() if action.idempotent} == IDEMPOTENT
    for action in actions.values():
        action.check()
        assert action.parameters["type"] == "object"
        assert set(action.parameters["required"]) <= set(action.parameters["properties"])
        assert "optional" not in json.dumps(action.parameters["properties"]).replace(
            "Optional number of decimal places", ""
        )


async def test_an_agent_works_with_files(swarm: MAILSwarm, tmp_path: Path) -> None:
    told = await do(
        swarm,
        ("write_file", {"path": "notes/a.txt", "content": "sunny"}),
        ("read_file", {"path": "notes/a.txt"}),
        ("read_directory", {"path": "notes"}),
        ("read_file", {"path": "../../etc/passwd"}),
        ("read_file", {"path": "/etc/passwd"}),
        ("delete_file", {"path": "notes/a.txt"}),
        ("read_file", {}),
    )
    expected = (
        "successfully wrote to notes/a.txt",
        "sunny",
        "a.txt",
        "ERROR: ../../etc/passwd could lead outside the workspace",
        "ERROR: /etc/passwd is an absolute path",
        "successfully deleted notes/a.txt",
        "'path' is a required property",
    )
    for answer, part in zip(told, expected, strict=True):
        assert part in answer
    mine = tmp_path / "workspace" / "user" / "default_user"
    assert [path.name for path in mine.iterdir()] == ["notes"]


async def test_a_refusal_is_an_error_to_the_agent_and_in_the_events(swarm: MAILSwarm) -> None:
    order = json.dumps([("read_file", {"path": "nothing.txt"})])
    response, events = await swarm.post_message(order, show_events=True)
    assert json.loads(response["message"]["body"]) == ["ERROR: file not found at nothing.txt"]
    kinds = [event.event for event in events]
    assert "action_error" in kinds
    assert "action_complete" not in kinds
    [read] = [action for action in swarm.actions if action.name == "read_file"]
    told = await read.function({"path": "nothing.txt"})
    assert told == "Error: file not found at nothing.txt"


async def test_an_agent_reaches_public_servers_only(
    swarm: MAILSwarm, outside: Outside, wall: list[str]
) -> None:
    outside.names |= {"inside.example": ["10.0.0.1"], "localhost": ["127.0.0.1"]}
    told = await do(
        swarm,
        ("http_get", {"url": "http://public.example/"}),
        ("http_get", {"url": "http://169.254.169.254/"}),
        ("http_get", {"url": "http://[::1]/"}),
        ("http_post", {"url": "http://inside.example/", "headers": {}, "body": {}}),
        ("mcp_list_tools", {"server_url": "http://127.0.0.1:8000/mcp"}),
        ("ping_swarm", {"url": "http://localhost:8000"}),
    )
    assert "hello from public.example" in told[0]
    for answer in told[1:]:
        assert "not a public address" in answer
        assert answer.startswith("ERROR: ")
        assert "Error: " not in answer
    assert (outside.connected, wall) == ([PUBLIC], [])


async def test_an_agent_calculates_and_nothing_else(swarm: MAILSwarm) -> None:
    told = await do(
        swarm,
        ("calculate_expression", {"expression": "17 * 23"}),
        ("calculate_expression", {"expression": "9**9**9"}),
        ("calculate_expression", {"expression": "__import__('os')"}),
        ("calculate_expression", {"expression": "__import__('os').system('true')"}),
        ("calculate_expression", {"expression": "9**9"}),
    )
    assert [told[0].endswith("391"), told[4].endswith("387420489")] == [True, True]
    for answer, reason in zip(
        told[1:4], ("too large", "names and functions are", "names and functions are"), strict=True
    ):
        assert "ERROR" in answer
        assert reason in answer


async def test_settings_are_read_when_an_action_is_called(
    swarm: MAILSwarm, tmp_path: Path, configure: Callable[[str], None]
) -> None:
    await do(swarm, ("write_file", {"path": "a", "content": "1"}))
    configure(f'[stdlib.fs]\nroot = "{tmp_path}/other"\n')
    await do(swarm, ("write_file", {"path": "a", "content": "2"}))
    for root, content in (("workspace", "1"), ("other", "2")):
        assert (tmp_path / root / "user" / "default_user" / "a").read_text() == content
