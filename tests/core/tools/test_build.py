"""The tools that agents are offered."""

import inspect
import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from mail.core import tools as facade
from mail.core.teams import Team
from mail.core.tools import build
from mail.core.tools.catalogue import CATALOGUE
from mail.core.tools.schema import get_tool_spec_name

STYLES = ("completions", "responses")
TARGETED = ("send_request", "send_response", "send_interrupt")
PLAIN = {
    "acknowledge_broadcast": build.create_acknowledge_broadcast_tool,
    "await_message": build.create_await_message_tool,
    "discover_swarms": build.create_swarm_discovery_tool,
    "help": build.create_help_tool,
    "ignore_broadcast": build.create_ignore_broadcast_tool,
    "search_memory": build.create_search_memory_tool,
    "send_broadcast": build.create_broadcast_tool,
    "send_interswarm_broadcast": build.create_interswarm_broadcast_tool,
    "task_complete": build.create_task_complete_tool,
}
TEAMS = (Team("alpha", "boss", ("a", "b")), Team("beta", "a", ("b",)))
OF_FILES = ("read_attachment", "send_attachment")
OF_TEAMS = ("teammate_message", "teammate_broadcast")
OF_LETTERS = "letter_receipts"
OURS = {"create_extra_tools", "create_file_tools", "create_letter_tools", "create_team_tools"}
ADDRESSED = {
    "send_request": build.create_request_tool,
    "send_response": build.create_response_tool,
    "send_interrupt": build.create_interrupt_tool,
}
PROPERTIES = {
    "send_request": ["target", "subject", "body"],
    "send_response": ["target", "subject", "body"],
    "send_interrupt": ["target", "subject", "body"],
    "send_broadcast": ["subject", "body", "targets"],
    "send_interswarm_broadcast": ["subject", "body", "target_swarms"],
    "discover_swarms": ["discovery_urls"],
    "acknowledge_broadcast": ["note"],
    "ignore_broadcast": ["reason"],
    "await_message": ["reason"],
    "help": ["get_summary", "get_identity", "get_tool_help", "get_full_protocol"],
    "search_memory": ["query", "limit"],
    "task_complete": ["finish_message"],
    "read_attachment": ["file_id", "offset", "max_bytes"],
    "send_attachment": ["target", "subject", "body", "file_id"],
    "teammate_message": ["teamId", "to", "message", "priority", "waitForReply", "timeoutSeconds"],
    "teammate_broadcast": ["teamId", "message", "priority", "excludeSelf"],
    "letter_receipts": ["participant", "unanswered_for", "limit"],
}


def every_tool(style: str) -> dict[str, dict[str, Any]]:
    made = {name: create(style) for name, create in PLAIN.items()}
    made |= {name: create(["a", "b"], False, style) for name, create in ADDRESSED.items()}
    made |= dict(zip(OF_TEAMS, build.create_team_tools(TEAMS, style), strict=True))
    (made[OF_LETTERS],) = build.create_letter_tools(style)
    made |= dict(zip(OF_FILES, build.create_file_tools(style), strict=True))
    return made


def fields_of(tool: dict[str, Any]) -> dict[str, Any]:
    return tool.get("function", tool)


def names_of(tools: list[dict[str, Any]]) -> list[str | None]:
    return [get_tool_spec_name(tool) for tool in tools]


@pytest.mark.parametrize("style", STYLES)
def test_members_of_teams_see_their_teams_and_others_see_no_tools_for_them(style) -> None:
    for tool in build.create_team_tools(TEAMS, style):
        team = fields_of(tool)["parameters"]["properties"]["teamId"]
        assert team["enum"] == ["alpha", "beta"]
        assert "alpha: lead, a, b; beta: lead, b" in team["description"]
    assert build.create_team_tools((), style) == []
    left = build.create_team_tools(TEAMS, style, {"teammate_message"})
    assert names_of(left) == ["teammate_broadcast"]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", CATALOGUE)
def test_a_tool_is_strict_in_either_style(name, style) -> None:
    tool = every_tool(style)[name]
    fields = fields_of(tool)
    assert tool["type"] == "function"
    assert ("function" in tool) is (style == "completions")
    assert fields["name"] == fields["parameters"]["title"] == name
    assert fields["description"] == CATALOGUE[name].description
    assert fields["strict"] is True
    parameters = fields["parameters"]
    Draft202012Validator.check_schema(parameters)
    assert list(parameters["properties"]) == parameters["required"] == PROPERTIES[name]
    assert parameters["additionalProperties"] is False
    for shown in parameters["properties"].values():
        assert shown["description"] and shown["title"]
        assert shown.get("default", "") is not None
        assert not {"minLength", "minItems", "maxItems"} & set(shown)  # strict mode knows none


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", CATALOGUE)
def test_what_strict_mode_makes_models_send_is_accepted(name, style) -> None:
    properties = fields_of(every_tool(style)[name])["parameters"]["properties"]
    sent = {field: _something(shape) for field, shape in properties.items()}
    Draft202012Validator(fields_of(every_tool(style)[name])["parameters"]).validate(sent)
    CATALOGUE[name].model.model_validate(sent)


def _something(shape: dict[str, Any]) -> Any:
    if "anyOf" in shape:
        return None
    if "enum" in shape:
        return shape["enum"][0]
    one = shape.get("items", {}).get("enum", ["a"])[:1]
    values = {"string": "a", "boolean": True, "integer": 1, "number": 1.5, "array": one}
    return values[shape["type"]]


def test_changing_a_specification_changes_no_other() -> None:
    first = build.create_help_tool()
    before = json.dumps(first)
    first["function"]["parameters"]["properties"].clear()
    first["function"]["name"] = "other"
    assert json.dumps(build.create_help_tool()) == before


# --- targets ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TARGETED)
def test_within_a_swarm_the_targets_are_the_only_choice(name) -> None:
    target = fields_of(ADDRESSED[name](["tides", "berths"]))["parameters"]["properties"]["target"]
    assert target["enum"] == ["tides", "berths"]
    assert "tides, berths" in target["description"]
    assert "agent-name@swarm-name" not in target["description"]


@pytest.mark.parametrize("name", TARGETED)
def test_between_swarms_any_address_may_be_written(name) -> None:
    tool = ADDRESSED[name](["tides", "berths"], enable_interswarm=True)
    target = fields_of(tool)["parameters"]["properties"]["target"]
    assert "enum" not in target
    assert "agent-name@swarm-name" in target["description"]
    assert "tides, berths" in target["description"]


@pytest.mark.parametrize("name", TARGETED)
def test_without_targets_the_schema_is_still_valid(name) -> None:
    target = fields_of(ADDRESSED[name]([]))["parameters"]["properties"]["target"]
    assert "enum" not in target and target["description"]


def test_a_target_named_twice_is_offered_once() -> None:
    tool = build.create_request_tool(["a", "b", "a"])
    assert fields_of(tool)["parameters"]["properties"]["target"]["enum"] == ["a", "b"]


@pytest.mark.parametrize("name", ["acknowledge_broadcast", "ignore_broadcast", "await_message"])
def test_notes_and_reasons_are_called_optional(name) -> None:
    (shown,) = fields_of(PLAIN[name]())["parameters"]["properties"].values()
    assert "Optional" in shown["description"]
    assert shown["anyOf"] == [{"type": "string"}, {"type": "null"}]


# --- sets ---------------------------------------------------------------------------------------

MAIL_SET = [
    "send_request",
    "send_response",
    "acknowledge_broadcast",
    "ignore_broadcast",
    "await_message",
    "help",
]


@pytest.mark.parametrize("style", STYLES)
def test_agents_get_the_documented_set(style) -> None:
    assert names_of(build.create_mail_tools(["a"], style=style)) == MAIL_SET


def test_supervisors_get_control_on_top() -> None:
    create = build.create_supervisor_tools
    everything = ["send_interrupt", "send_broadcast", "acknowledge_broadcast", "ignore_broadcast"]
    everything.append("task_complete")
    assert names_of(create(["a"])) == everything
    assert names_of(create(["a"], can_complete_tasks=False)) == everything[:-1]
    assert names_of(create(["a"], _debug_include_intraswarm=False)) == everything[-1:]
    assert names_of(create([], False, _debug_include_intraswarm=False)) == []


@pytest.mark.parametrize("style", STYLES)
def test_excluded_tools_are_left_out(style) -> None:
    out = ["help", "send_broadcast", "task_complete", "not_a_tool"]
    kept = [name for name in MAIL_SET if name != "help"]
    assert names_of(build.create_mail_tools(["a"], False, style, out)) == kept
    left = ["send_interrupt", "acknowledge_broadcast", "ignore_broadcast"]
    assert names_of(build.create_supervisor_tools(["a"], exclude_tools=out, style=style)) == left


# --- the documented home ------------------------------------------------------------------------


def test_every_promised_name_is_there() -> None:
    for name in facade.__all__:
        assert getattr(facade, name) is not None
    made = [name for name, found in vars(build).items() if inspect.isfunction(found)]
    public = {name for name in made if getattr(build, name).__module__ == build.__name__}
    assert {name for name in public if name[0] != "_"} - OURS <= set(facade.__all__)
    assert {
        "AgentToolCall",
        "MAIL_TOOL_NAMES",
        "build_mail_help_string",
        "convert_call_to_mail_message",
        "get_tool_help",
        "get_tool_spec_name",
        "normalize_breakpoint_tool_call",
        "pydantic_model_to_tool",
    } <= set(facade.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_tool"):
        facade.no_such_tool  # noqa: B018 - reading it is the test
