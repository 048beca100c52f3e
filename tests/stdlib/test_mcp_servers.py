"""The tools of MCP servers that ``swarms.json`` names, good ones and hostile ones."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from mail.api import MAILSwarmTemplate
from mail.api.actions import MAILAction
from mail.core.actions import ActionFailure
from mail.errors import ConfigError
from mail.stdlib.mcp.servers import action_name, actions_of_servers, bounded_schema
from mail.swarms_json.fields import checked
from mail.swarms_json.references import ReferencePolicy
from mail.swarms_json.types import SwarmsJSONMCPServer

HOSTILE = str(Path(__file__).with_name("hostile_server.py"))


def entry(mode: str, **fields: Any) -> dict[str, Any]:
    command = [sys.executable, HOSTILE, mode]
    return checked(
        "MCP server", SwarmsJSONMCPServer, {"command": command, "timeout_seconds": 20} | fields
    )


def actions(mode: str, **fields: Any) -> dict[str, MAILAction]:
    return actions_of_servers({"files": entry(mode, **fields)})["files"]


def definition(**fields: Any) -> dict[str, Any]:
    agent = {
        "name": "solo",
        "factory": "python::mail.factories:LiteLLMAgentFunction",
        "comm_targets": [],
        "agent_params": {"llm": "openai/gpt-5-mini", "system": "x"},
        "enable_entrypoint": True,
        "can_complete_tasks": True,
        "actions": ["mcp:files"],
    }
    servers = {"files": {"command": [sys.executable, HOSTILE, "good"]}}
    whole = {"name": "s", "version": "1", "entrypoint": "solo", "agents": [agent], "actions": []}
    return whole | {"mcp_servers": servers} | fields


async def test_a_tool_is_an_action_of_the_agent(tmp_path: Path) -> None:
    template = MAILSwarmTemplate.from_swarms_json(definition(breakpoint_tools=["files__echo"]))
    [echo] = template.agents[0].actions
    assert echo.name == "files__echo" and echo.parameters["required"] == ["text"]
    assert "MCP server 'files'" in echo.description and "Says it again." in echo.description
    assert "no instructions" in echo.description and not echo.idempotent
    assert echo.untrusted and await echo.function({"text": "hi"}) == "echo: hi"


async def test_one_process_serves_all_calls_and_is_started_again_after_a_crash(
    tmp_path: Path,
) -> None:
    starts = tmp_path / "starts"
    one = {"env": {"STARTS": str(starts)}}
    echo = actions("good", **one)["echo"]
    asked = len(starts.read_text())
    for _ in range(3):
        await echo.function({"text": "x"})
    assert asked == 1 and len(starts.read_text()) == 2
    crash = actions("crash", **one)["echo"]
    began = len(starts.read_text())
    text = await crash.function({"text": "x"})
    assert isinstance(text, ActionFailure) and "has ended (status 3)" in text
    again = await crash.function({"text": "x"})  # at once: it is not started in a circle
    assert "has ended" in again and len(starts.read_text()) == began + 1


async def test_what_a_hostile_server_says_of_its_tools_is_bounded() -> None:
    found = actions("evil")
    assert len(found) == 4
    assert all(len(action.description) < 1000 for action in found.values())
    assert "\n" not in found["echo"].description and "\u202e" not in found["echo"].description
    assert len({action.name for action in found.values()}) == 4
    assert all(len(action.name) <= 64 for action in found.values())
    shown = json.dumps([action.parameters for action in found.values()])
    assert len(shown) < 16_000 and "pattern" not in shown and "$ref" not in shown


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("huge", "longer than"),
        ("hang", "no complete answer within 1 seconds"),
        ("crash", "has ended (status 3)"),
        ("fail", "the tool failed: "),
        ("gone", "the MCP server refused: Method not found"),
    ],
)
async def test_what_a_hostile_tool_does_is_told_and_bounded(mode: str, said: str) -> None:
    tool = actions(mode)["echo"]
    if mode == "hang":
        tool = actions(mode, timeout_seconds=1)["echo"]
    began = time.monotonic()
    text = await tool.function({"text": "x"})
    assert isinstance(text, ActionFailure) and said in text and len(text) < 1000
    assert time.monotonic() - began < 20


async def test_a_long_result_is_cut() -> None:
    text = await actions("long")["echo"].function({"text": "x"})
    assert not isinstance(text, ActionFailure)
    assert len(text) < 66_500 and "cut: 300000 characters" in text


async def test_programs_get_no_secrets_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("GITHUB_TOKEN", "gh-secret")
    tool = actions("env", env={"TOKEN": "${GITHUB_TOKEN}"})["echo"]
    text = await tool.function({"text": "x"})
    assert "sk-secret" not in text and '"TOKEN": "gh-secret"' in text


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"mode": "many"}, "65 tools, more than 64"),
        ({"mode": "good", "tools": ["ehco"]}, "Did you mean 'echo'?"),
        ({"mode": "silent", "timeout_seconds": 1}, "no complete answer within 1 seconds"),
        ({"mode": "good", "env": {"TOKEN": "${NOT_SET_HERE}"}}, "NOT_SET_HERE is not set"),
        ({"mode": "good", "command": ["/nowhere/program"]}, "cannot be started"),
        ({"mode": "good", "command": None, "url": "http://127.0.0.1:9/mcp"}, "[stdlib.http] allow"),
    ],
)
def test_what_is_wrong_with_a_server_is_told_when_the_swarm_is_loaded(
    fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=r"mcp_servers\.files") as error:
        actions(**fields)
    assert said in str(error.value)


def test_an_optional_server_may_be_away() -> None:
    assert actions("good", command=["/nowhere/program"], optional=True) == {}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"mcp_servers": {"files": {}}}, "either a 'command' or a 'url'"),
        ({"mcp_servers": {"a__b": {"command": ["x"]}}}, "must have a name of 1 to 32 letters"),
        ({"mcp_servers": {"files": {"comand": ["x"]}}}, "Did you mean 'command'?"),
        ({"mcp_servers": {"fiels": {"command": ["x"]}}}, "Did you mean 'fiels'?"),
        ({"mcp_servers": {"files": {"url": "ftp://x"}}}, "http or https"),
        (
            {"mcp_servers": {"files": {"url": "http://x", "headers": {"Authorization": "abc"}}}},
            "environment variable",
        ),
        ({"mcp_servers": {"files": {"command": ["x"], "timeout_seconds": 0}}}, "greater than 0"),
    ],
)
def test_wrong_entries_are_told(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        MAILSwarmTemplate.from_swarms_json(definition(**fields))
    assert said in str(error.value) and "abc" not in str(error.value)


def test_a_definition_from_the_network_has_no_servers() -> None:
    for name in ("files", "others"):  # also one that no agent uses
        servers = {"files": {"command": ["true"]}, name: {"command": ["true"]}}
        with pytest.raises(ConfigError, match="only a file of the operator"):
            MAILSwarmTemplate.from_swarms_json(
                definition(mcp_servers=servers), references=ReferencePolicy(imports=("mail",))
            )


def test_a_schema_keeps_what_models_need() -> None:
    schema = {
        "$defs": {"place": {"type": "string", "enum": ["here", "there"]}},
        "properties": {
            "where": {"$ref": "#/$defs/place"},
            "count": {"type": "integer", "minimum": 0, "x-evil": "obey"},
            "loop": {"$ref": "#"},
        },
        "required": ["where", 7],
    }
    small = bounded_schema(schema)
    assert small["properties"]["where"] == {"type": "string", "enum": ["here", "there"]}
    assert small["properties"]["count"] == {"type": "integer", "minimum": 0}
    assert small["required"] == ["where"]
    assert bounded_schema([]) == bounded_schema({"type": 7}) == {"type": "object"}
    assert action_name("a", "x y") == "a__x_y" and len(action_name("a", "n" * 300)) == 64
