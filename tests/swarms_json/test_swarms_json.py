"""swarms.json: what loads, and what is said about what does not."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from mail.errors import ConfigError
from mail.swarms_json import (
    build_action_from_swarms_json,
    build_agent_from_swarms_json,
    build_swarm_from_swarms_json,
    load_swarms_json_from_file,
    load_swarms_json_from_string,
)
from mail.swarms_json.utils import validate_swarm_from_swarms_json


def _agent(name: str, **more: Any) -> dict[str, Any]:
    agent: dict[str, Any] = {
        "name": name,
        "factory": "python::mail.factories:LiteLLMAgentFunction",
        "comm_targets": ["boss"],
        "agent_params": {},
    }
    return agent | more


@pytest.fixture
def swarm() -> dict[str, Any]:
    return {
        "name": "team",
        "version": "1.0.0",
        "entrypoint": "boss",
        "agents": [
            _agent(
                "boss", comm_targets=["worker"], enable_entrypoint=True, can_complete_tasks=True
            ),
            _agent("worker", actions=["dig"]),
        ],
        "actions": [
            {"name": "dig", "description": "Dig.", "parameters": {}, "function": "json:loads"}
        ],
    }


def _refused(swarm: object) -> str:
    with pytest.raises(ConfigError) as caught:
        build_swarm_from_swarms_json(swarm)
    assert isinstance(caught.value, ValueError)
    return str(caught.value)


def test_optional_fields_get_their_defaults(swarm: dict[str, Any]) -> None:
    before = deepcopy(swarm)
    built = build_swarm_from_swarms_json(swarm)
    assert swarm == before
    assert built["enable_interswarm"] is False
    assert (built["description"], built["keywords"], built["public"]) == ("", [], False)
    assert built["breakpoint_tools"] == built["exclude_tools"] == built["action_imports"] == []
    worker = built["agents"][1]
    assert (worker["tool_format"], worker["exclude_tools"]) == ("responses", [])
    assert worker["can_complete_tasks"] is False
    assert (built["actions"][0]["idempotent"], built["actions"][0]["timeout"]) == (False, None)


def test_defaults_are_not_shared_between_swarms(swarm: dict[str, Any]) -> None:
    first = build_swarm_from_swarms_json(swarm)
    first["keywords"].append("changed")
    assert build_swarm_from_swarms_json(swarm)["keywords"] == []


@pytest.mark.parametrize("field", ["name", "version", "entrypoint", "agents", "actions"])
def test_a_missing_field_of_a_swarm_is_named(swarm: dict[str, Any], field: str) -> None:
    del swarm[field]
    assert f"swarm candidate must contain a '{field}' field" in _refused(swarm)


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("name", 1, "must be a str, actually got int"),
        ("agents", {}, "must be a list, actually got dict"),
        ("enable_interswarm", "yes", "must be a bool, actually got str"),
        ("public", 1, "must be a bool, actually got int"),
        ("description", None, "must be a str, actually got NoneType"),
        ("keywords", "a,b", "must be a list, actually got str"),
        ("keywords", ["a", 1], "must be a list of strings"),
        ("enable_db_agent_histories", "no", "must be a bool, actually got str"),
        ("action_imports", [1], "must be a list of strings"),
        ("breakpoint_tools", [None], "must be a list of strings"),
    ],
)
def test_a_wrong_type_is_named_with_its_field(
    swarm: dict[str, Any], field: str, value: object, expected: str
) -> None:
    swarm[field] = value
    assert f"swarm candidate field '{field}' {expected}" in _refused(swarm)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", 1),
        ("factory", None),
        ("comm_targets", ["boss", 2]),
        ("agent_params", []),
        ("enable_entrypoint", 1),
        ("tool_format", "chat"),
        ("tool_format", 1),
        ("actions", "dig"),
        ("exclude_tools", {}),
        ("exclude_tools", [1]),
    ],
)
def test_every_field_of_an_agent_is_checked(field: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"agent candidate field '{field}' must be"):
        build_agent_from_swarms_json(_agent("worker") | {field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [("parameters", []), ("function", 1), ("idempotent", 1), ("timeout", "5"), ("timeout", 0)],
)
def test_every_field_of_an_action_is_checked(
    swarm: dict[str, Any], field: str, value: object
) -> None:
    with pytest.raises(ConfigError, match=f"action candidate field '{field}' must be"):
        build_action_from_swarms_json(swarm["actions"][0] | {field: value})


@pytest.mark.parametrize("candidate", [None, [], "swarm", 3])
def test_what_is_no_object_is_refused(candidate: object) -> None:
    assert "swarm candidate must be a dict, actually got" in _refused(candidate)


def test_the_first_faulty_agent_is_named_with_its_swarm(swarm: dict[str, Any]) -> None:
    del swarm["agents"][1]["factory"]
    text = _refused(swarm)
    assert text == (
        "agent candidate must contain a 'factory' field (agent 'worker') in swarm 'team'"
    )


def test_an_agent_that_is_no_object_is_refused(swarm: dict[str, Any]) -> None:
    swarm["agents"].append("worker2")
    assert "agent candidate must be a dict, actually got str" in _refused(swarm)


def test_an_unknown_field_is_logged_with_the_one_that_may_be_meant(
    swarm: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    swarm["agents"][1]["can_complete_task"] = True
    build_swarm_from_swarms_json(swarm)
    assert "Did you mean 'can_complete_tasks'?" in caplog.text


# --- across the parts ---------------------------------------------------------------------------


def _change(swarm: dict[str, Any], agent: int, **fields: Any) -> dict[str, Any]:
    swarm["agents"][agent] |= fields
    return swarm


def test_two_agents_of_one_name_are_refused(swarm: dict[str, Any]) -> None:
    swarm["agents"].append(_agent("worker"))
    assert _refused(swarm) == "duplicate agent name 'worker'"


def test_an_unknown_entrypoint_gets_a_suggestion(swarm: dict[str, Any]) -> None:
    swarm["entrypoint"] = "bos"
    assert _refused(swarm) == (
        "entrypoint 'bos' does not match any agent name. Did you mean 'boss'?"
    )


def test_a_swarm_without_an_entrypoint_agent_is_refused(swarm: dict[str, Any]) -> None:
    text = _refused(_change(swarm, 0, enable_entrypoint=False))
    assert text.startswith("no agent has 'enable_entrypoint' set to true")


def test_an_entrypoint_must_be_enabled(swarm: dict[str, Any]) -> None:
    swarm["entrypoint"] = "worker"
    assert _refused(swarm) == (
        "entrypoint agent 'worker' does not have 'enable_entrypoint' set to true"
    )


def test_an_unknown_target_gets_a_suggestion(swarm: dict[str, Any]) -> None:
    assert _refused(_change(swarm, 0, comm_targets=["worke"])) == (
        "agent 'boss' has comm_target 'worke' which is not a defined agent. Did you mean 'worker'?"
    )


@pytest.mark.parametrize("target", ["worker@team", "weather@other"])
def test_targets_with_a_swarm_pass(swarm: dict[str, Any], target: str) -> None:
    validate_swarm_from_swarms_json(_change(swarm, 0, comm_targets=[target]))


def test_an_unknown_target_of_the_own_swarm_is_refused(swarm: dict[str, Any]) -> None:
    assert "'nobody@team'" in _refused(_change(swarm, 0, comm_targets=["nobody@team"]))


def test_a_swarm_without_a_supervisor_is_refused(swarm: dict[str, Any]) -> None:
    text = _refused(_change(swarm, 0, can_complete_tasks=False))
    assert text.startswith("no agent has 'can_complete_tasks' set to true")


def test_an_unknown_action_gets_a_suggestion(swarm: dict[str, Any]) -> None:
    assert _refused(_change(swarm, 1, actions=["digg"])) == (
        "agent 'worker' references action 'digg' which is not defined in the swarm's actions. "
        "Did you mean 'dig'?"
    )


def test_actions_are_left_to_the_template_when_some_are_imported(swarm: dict[str, Any]) -> None:
    swarm["action_imports"] = ["python::some:action"]
    validate_swarm_from_swarms_json(_change(swarm, 1, actions=["imported"]))


def test_two_actions_of_one_name_are_refused(swarm: dict[str, Any]) -> None:
    swarm["actions"] *= 2
    assert _refused(swarm) == "duplicate action definition for 'dig' in swarm 'team'"


@pytest.mark.parametrize("name", ["", " ", "all", "ALL", "a@b", "a:b", "boss ", "a\nb", "a\x00"])
def test_names_that_break_addresses_are_refused(swarm: dict[str, Any], name: str) -> None:
    swarm["agents"].append(_agent(name))
    assert "agent name" in _refused(swarm)


@pytest.mark.parametrize("name", ["", "  ", "a@b", "a:b", "a\tb"])
def test_swarm_names_that_break_addresses_are_refused(swarm: dict[str, Any], name: str) -> None:
    swarm["name"] = name
    assert "swarm name" in _refused(swarm)


@pytest.mark.parametrize("name", ["", " ", "send_request", "task_complete"])
def test_actions_cannot_take_the_name_of_a_tool(swarm: dict[str, Any], name: str) -> None:
    swarm["actions"][0]["name"] = name
    assert "action name" in _refused(swarm)


def test_tools_to_break_at_are_tools_or_actions(swarm: dict[str, Any]) -> None:
    validate_swarm_from_swarms_json(swarm | {"breakpoint_tools": ["dig", "send_request"]})
    assert _refused(swarm | {"breakpoint_tools": ["send_requests"]}) == (
        "breakpoint tool 'send_requests' not found in swarm. Did you mean 'send_request'?"
    )
    assert _refused(swarm | {"breakpoint_tools": ["zzz"]}) == (
        "breakpoint tool 'zzz' not found in swarm"
    )


def test_excluded_tools_are_tools_or_actions(swarm: dict[str, Any]) -> None:
    known = ["help", "dig", "acknowledge_broadcast"]
    validate_swarm_from_swarms_json(swarm | {"exclude_tools": known})
    assert "excluded tool 'halp' is not valid" in _refused(swarm | {"exclude_tools": ["halp"]})
    assert "excluded tool 'halp' is not valid" in _refused(
        _change(swarm, 1, exclude_tools=["halp"])
    )


def test_tool_format_inside_agent_params_is_deprecated(swarm: dict[str, Any]) -> None:
    with pytest.warns(DeprecationWarning, match="tool_format"):
        build_swarm_from_swarms_json(_change(swarm, 1, agent_params={"tool_format": "responses"}))


# --- files --------------------------------------------------------------------------------------


def test_a_file_is_a_list_of_swarms(swarm: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "swarms.json"
    path.write_text(json.dumps([swarm, swarm | {"name": "täm"}]), encoding="utf-8")
    assert [loaded["name"] for loaded in load_swarms_json_from_file(path)] == ["team", "täm"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{}", "must contain a list of swarms, actually got dict"),
        ("[", "is not valid JSON"),
        ("", "is not valid JSON"),
        ("[" * 100_000, "is not valid JSON"),
    ],
)
def test_a_file_that_is_no_list_says_where(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "swarms.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=problem) as caught:
        load_swarms_json_from_file(path)
    assert f"swarms.json file at {path}" in str(caught.value)
    with pytest.raises(ConfigError, match=f"swarms.json string {problem}"):
        load_swarms_json_from_string(text)


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_swarms_json_from_file(tmp_path / "none.json")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_swarms_json_from_file(tmp_path / "binary")


def test_two_swarms_of_one_name_are_refused(swarm: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="duplicate swarm name 'team'"):
        load_swarms_json_from_string(json.dumps([swarm, swarm]))
