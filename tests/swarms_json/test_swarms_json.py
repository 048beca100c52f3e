"""swarms.json: what loads, and what is said about what does not."""

import json
import os
import time
from collections.abc import Iterable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from mail.core.suggest import did_you_mean
from mail.errors import ConfigError
from mail.swarms_json import (
    build_swarm_from_swarms_json,
    load_swarms_json_from_file,
    load_swarms_json_from_string,
    utils,
)
from mail.swarms_json.decode import parse_json
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


@pytest.mark.parametrize("candidate", [None, [], "swarm", 3])
def test_what_is_no_object_is_refused(candidate: object) -> None:
    assert _refused(candidate).startswith("swarm must be an object, actually got ")


def test_an_unknown_field_is_logged(
    swarm: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    swarm["agents"][1]["comment"] = "the other one"
    build_swarm_from_swarms_json(swarm)
    assert "unknown agent field 'comment' is ignored (agent 'worker')" in caplog.text


# --- across the parts ---------------------------------------------------------------------------


def _change(swarm: dict[str, Any], agent: int, **fields: Any) -> dict[str, Any]:
    swarm["agents"][agent] |= fields
    return swarm


def test_targets_in_other_swarms_need_mail_between_swarms(swarm: dict[str, Any]) -> None:
    validate_swarm_from_swarms_json(_change(swarm, 0, comm_targets=["worker@team"]))
    _change(swarm, 0, comm_targets=["weather@other"])
    assert "interswarm messaging is not enabled for this swarm" in _refused(swarm)
    validate_swarm_from_swarms_json(swarm | {"enable_interswarm": True})


@pytest.mark.parametrize("target", ["weather@other", "*@other", "*@*"])
def test_targets_in_other_swarms_may_be_one_agent_or_all(
    swarm: dict[str, Any], target: str
) -> None:
    swarm["enable_interswarm"] = True
    validate_swarm_from_swarms_json(_change(swarm, 0, comm_targets=[target]))


@pytest.mark.parametrize(
    "target",
    ["weather@", "@other", "weather@other@third", "a:b@other", "weather@*", "all@other", "@*"],
)
def test_a_target_that_is_no_address_is_refused(swarm: dict[str, Any], target: str) -> None:
    swarm["enable_interswarm"] = True
    text = _refused(_change(swarm, 0, comm_targets=[target]))
    assert f"comm_target '{target}' which is not of the form 'agent@swarm'" in text


def test_an_agent_without_targets_must_begin_and_end_tasks(swarm: dict[str, Any]) -> None:
    validate_swarm_from_swarms_json(_change(swarm, 0, comm_targets=[]))
    assert "at least one communication target" in _refused(_change(swarm, 1, comm_targets=[]))


def test_an_import_that_is_not_resolved_can_be_one_action(swarm: dict[str, Any]) -> None:
    swarm["action_imports"] = ["python::some:action"]
    swarm["breakpoint_tools"] = ["imported"]
    validate_swarm_from_swarms_json(_change(swarm, 1, actions=["imported", "dig"]))
    assert "references action 'digg'" in _refused(_change(swarm, 1, actions=["imported", "digg"]))


class _Imported:
    def __init__(self, name: str) -> None:
        self.name = name


def test_names_of_resolved_imports_are_checked(swarm: dict[str, Any]) -> None:
    asked = []

    def import_action(reference: str, swarm: str) -> _Imported:
        asked.append((reference, swarm))
        return _Imported(reference.partition(":")[2])

    def refused() -> str:
        with pytest.raises(ConfigError) as caught:
            validate_swarm_from_swarms_json(swarm, import_action=import_action)
        return str(caught.value)

    swarm |= {"action_imports": ["tools:fetch"], "breakpoint_tools": ["fetch"]}
    _change(swarm, 1, actions=["fetch", "dig"])
    validate_swarm_from_swarms_json(swarm, import_action=import_action)
    assert asked == [("tools:fetch", "team")]
    _change(swarm, 1, actions=["fetsch", "dig"])
    assert "references action 'fetsch'" in refused()
    assert "Did you mean 'fetch'?" in refused()
    _change(swarm, 1, actions=["fetch"], exclude_tools=["fetchh"])
    assert "excluded tool 'fetchh' is not valid. Did you mean 'fetch'?" in refused()
    swarm["action_imports"] = ["tools:fetch", "tools:dig"]
    assert "duplicate action definition for 'dig' in swarm 'team'" in refused()
    swarm["action_imports"] = ["tools:fetch", "others:fetch"]
    assert "duplicate action definition for 'fetch' in swarm 'team'" in refused()


def test_tools_to_break_at_are_tools_or_actions(swarm: dict[str, Any]) -> None:
    validate_swarm_from_swarms_json(swarm | {"breakpoint_tools": ["dig", "send_request"]})
    assert _refused(swarm | {"breakpoint_tools": ["send_requests"]}) == (
        "breakpoint tool 'send_requests' not found in swarm. Did you mean 'send_request'? "
        "(field 'breakpoint_tools' of swarm 'team')"
    )
    assert _refused(swarm | {"breakpoint_tools": ["zzz"]}) == (
        "breakpoint tool 'zzz' not found in swarm (field 'breakpoint_tools' of swarm 'team')"
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
    with pytest.raises(ConfigError, match="Is a directory"):
        load_swarms_json_from_file(tmp_path)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\xff\xfe[\x00]\x00", "it is UTF-16 text; save it as UTF-8"),
        ('["é"]'.encode("latin-1"), "it is not UTF-8 text, see line 1"),
        (b"[\n\x80]", "it is not UTF-8 text, see line 2"),
        (b" " * (16 * 1024 * 1024) + b"[]", "it is larger than 16 MiB"),
    ],
)
def test_a_file_that_is_not_text_of_ours_says_what_to_do(
    tmp_path: Path, data: bytes, problem: str
) -> None:
    path = tmp_path / "swarms.json"
    path.write_bytes(data)
    with pytest.raises(ConfigError) as caught:
        load_swarms_json_from_file(path)
    assert str(caught.value) == f"cannot read swarms.json file at {path}: {problem}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[{"name": "a", "name": "b"}]', "the key 'name' appears twice in one object"),
        ('[{"name": "a", "x": {"b": 1, "b": 2}}]', "the key 'b' appears twice in one object"),
        (
            '[{"name": "a", "public": true, "public": false}]',
            "the key 'public' appears twice in one object (the one whose name is 'a')",
        ),
        ("[NaN]", "it contains NaN, which is not a number"),
        ("[-Infinity]", "it contains -Infinity, which is not a number"),
        ("\ufeff[]", "it begins with a byte order mark; save it as UTF-8 without one"),
        ("[" + "1" * 5000 + "]", "is not valid JSON"),
        ('[{"name": 1e999}]', "contains a number that is not finite at 'name'"),
        ('[{"name": "a\\ud800"}]', "contains an unpaired surrogate"),
        ('[{"agents": ' + "[" * 70 + "]" * 70 + "}]", "is nested more than 64 levels deep"),
        (" " * (16 * 1024 * 1024) + "[]", "it is larger than 16 MiB"),
    ],
)
def test_text_that_readers_disagree_about_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_swarms_json_from_string(text)
    assert problem in str(caught.value)


def test_keys_must_be_text_in_code_too(swarm: dict[str, Any]) -> None:
    text = _refused(_change(swarm, 1, agent_params={"deep": [{1: "one"}]}))
    assert text == (
        "swarm candidate contains the key 1, which is not a string at "
        "'agents.1.agent_params.deep.0' ('team')"
    )


def test_python_objects_in_parameters_are_left_alone(swarm: dict[str, Any]) -> None:
    built = build_swarm_from_swarms_json(_change(swarm, 1, agent_params={"parser": json.loads}))
    assert built["agents"][1]["agent_params"]["parser"] is json.loads


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({"type": "thing"}, "are not a JSON Schema: type: 'thing' is not valid"),
        ({"properties": []}, "are not a JSON Schema: properties: [] is not of type 'object'"),
        ({"$schema": 5}, "are not a JSON Schema: $schema"),
        ({"properties": {"a": {"pattern": "("}}}, "are not a JSON Schema: properties.a.pattern"),
        ({"type": "string"}, "must describe an object"),
        ({"city": {"type": "string"}}, "describe 'city' outside 'properties'"),
        ({"city": "string"}, "describe 'city' outside 'properties'"),
        ({"type": "object", "days": "int"}, "describe 'days' outside 'properties'"),
        ({"type": "object", "city": {"type": "string"}}, '"properties": {"city": …}'),
        ({"type": ["array", "null"]}, "must describe an object"),
        ({"$ref": "#/$defs/a"}, "refer to '#/$defs/a', which they do not contain"),
        ({"properties": {"a": {"$ref": "https://example.com/a"}}}, "refer to 'https://example.com"),
        ({"$ref": "#"}, "refer to '#', which refers to itself"),
        (
            {"$schema": "http://json-schema.org/draft-03/schema#", "extends": {"$ref": "#/q"}},
            "refer to '#/q', which they do not contain",
        ),
        (
            {"properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"$ref": "#/$defs/b"}}},
            "refer to '#/$defs/b', which refers to itself",
        ),
    ],
)
def test_parameters_must_be_a_sound_schema(
    swarm: dict[str, Any], parameters: dict[str, Any], problem: str
) -> None:
    swarm["actions"][0]["parameters"] = parameters
    text = _refused(swarm)
    assert text.startswith("parameters of action 'dig'")
    assert problem in text
    assert text.endswith("(action 'dig', swarm 'team')")


@pytest.mark.parametrize(
    "parameters",
    [
        {"type": ["object", "null"]},
        {"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"type": "string"}}},
        {"properties": {"$ref": {"type": "string"}, "next": {"$ref": "#"}}},
        {"properties": {"a": {"default": {"$ref": "nowhere"}}}},
        {"additionalProperties": {"type": "string"}},
        {"x-origin": {"type": "table"}, "not": {"type": "null"}},
        {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "string"}]},
        {"properties": {"a": {"$id": "urn:a", "$ref": "#/$defs/x", "$defs": {"x": {}}}}},
    ],
)
def test_unusual_schemas_that_are_sound_load(
    swarm: dict[str, Any], parameters: dict[str, Any]
) -> None:
    swarm["actions"][0]["parameters"] = parameters
    assert build_swarm_from_swarms_json(swarm)["actions"][0]["parameters"] == parameters


def test_a_pipe_or_a_device_is_no_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero")):
        with pytest.raises(ConfigError, match="it is not a regular file"):
            load_swarms_json_from_file(path)
    (tmp_path / "link").symlink_to(pipe)
    with pytest.raises(ConfigError, match="it is not a regular file"):
        load_swarms_json_from_file(tmp_path / "link")


def test_a_key_that_comes_twice_among_many_is_found_soon() -> None:
    many = ",".join(f'"{number}": 0' for number in range(50_000))
    began = time.process_time()
    with pytest.raises(ConfigError, match="the key '49999' appears twice"):
        parse_json(f'{{{many}, "49999": 1}}', "x")
    assert time.process_time() - began < 5


def test_a_close_name_is_looked_for_once(
    swarm: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_for = []

    def look(name: str, known: Iterable[str]) -> str:
        looked_for.append(name)
        return did_you_mean(name, known)

    monkeypatch.setattr(utils, "hinted", lambda text, name, known: text + look(name, known))
    swarm["action_imports"] = [f"python::some:a{number}" for number in range(5)]
    _change(swarm, 1, actions=[f"a{number}" for number in range(4)], exclude_tools=["x"])
    validate_swarm_from_swarms_json(swarm)
    assert looked_for == []
    assert "excluded tool 'digg'" in _refused(_change(swarm, 1, exclude_tools=["x", "digg"]))
    assert looked_for == ["digg"]
