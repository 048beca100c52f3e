"""Swarm templates: what fits together, and loading from swarms.json."""

import json
from pathlib import Path
from typing import Any

import pytest

from mail import MAILAction, MAILSwarm, MAILSwarmTemplate
from mail.errors import ConfigError
from mail.version import VERSION
from tests.api.support import completer, template_of

DIG = MAILAction("dig", "Dig.", {}, lambda args: "dug")
OTHER_DIG = MAILAction("dig", "Dig elsewhere.", {}, lambda args: "dug elsewhere")
EXAMPLES = Path(__file__).parents[2] / "swarms.json"


def _swarm(**fields: Any) -> MAILSwarmTemplate:
    defaults: dict[str, Any] = {
        "name": "team",
        "agents": [
            template_of(completer, "boss", comm_targets=["worker"]),
            template_of(
                completer,
                "worker",
                comm_targets=["boss"],
                actions=[DIG],
                enable_entrypoint=False,
                can_complete_tasks=False,
            ),
        ],
        "entrypoint": "boss",
    }
    return MAILSwarmTemplate(**(defaults | fields))


def test_the_version_is_optional_and_second() -> None:
    assert _swarm().version == VERSION
    agents = [template_of(completer)]
    assert MAILSwarmTemplate("team", "2.0.0", agents, [], "boss").version == "2.0.0"


def test_names_and_supervisors_are_listed() -> None:
    template = _swarm()
    assert template.agent_names == ["boss", "worker"]
    assert [agent.name for agent in template.supervisors] == ["boss"]


def _change(**changes: Any) -> dict[str, Any]:
    boss = {"comm_targets": ["worker"]} | changes
    worker = {"enable_entrypoint": False, "can_complete_tasks": False, "comm_targets": ["boss"]}
    return {
        "agents": [
            template_of(completer, "boss", **boss),
            template_of(completer, "worker", **worker),
        ]
    }


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"name": ""}, "swarm name must be at least 1 character long"),
        ({"name": "a@b"}, "swarm name 'a@b' must not contain '@'"),
        ({"agents": []}, "swarm must have at least one agent"),
        (_change(enable_entrypoint=False), "swarm must have at least one entrypoint agent"),
        (
            {"entrypoint": "bos"},
            "entrypoint agent 'bos' not found in swarm. Did you mean 'boss'?",
        ),
        ({"entrypoint": "x"}, "entrypoint agent 'x' not found in swarm$"),
        ({"entrypoint": "worker"}, "does not have 'enable_entrypoint' set to true"),
        (
            _change(comm_targets=["wroker"]),
            "agent 'boss' has invalid communication target 'wroker'. Did you mean 'worker'?",
        ),
        (
            _change(comm_targets=["x@beta"]),
            "agent 'boss' has interswarm communication target 'x@beta' but interswarm messaging "
            "is not enabled for this swarm",
        ),
        (_change(can_complete_tasks=False), "swarm must have at least one supervisor"),
        ({"breakpoint_tools": ["nothing"]}, "breakpoint tool 'nothing' not found in swarm"),
        (
            {"actions": ["dig"]},
            "actions of the swarm must be MAILAction objects, got the string 'dig'",
        ),
        ({"agents": ["boss"]}, "agents must be MAILAgentTemplate objects, got str"),
        ({"agents": "boss"}, "agents must be a list of MAILAgentTemplates"),
        ({"agents": [None]}, "agents must be MAILAgentTemplate objects, got NoneType"),
        ({"exclude_tools": ["halp"]}, "excluded tool 'halp' is not valid. Did you mean 'help'?"),
        (_change(exclude_tools=["halp"]), "excluded tool 'halp' is not valid"),
        (
            {"agents": [template_of(completer), template_of(completer)]},
            "duplicate agent name 'boss'",
        ),
    ],
)
def test_parts_that_do_not_fit_are_named(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text) as caught:
        _swarm(**fields)
    assert isinstance(caught.value, ConfigError)


def test_a_target_of_the_own_swarm_is_local() -> None:
    _swarm(**_change(comm_targets=["worker@team"]))


def test_tools_of_all_kinds_may_be_broken_at_or_excluded() -> None:
    _swarm(
        breakpoint_tools=["dig", "send_request"],
        exclude_tools=["help", "ignore_broadcast", "search_memory", "dig"],
    )


def test_an_instance_has_what_the_template_has() -> None:
    template = _swarm(
        description="Diggers", keywords=["dig"], task_message_limit=7, exclude_tools=["help"]
    )
    swarm = template.instantiate({}, user_id="ann", user_role="admin")
    assert isinstance(swarm, MAILSwarm)
    assert (swarm.user_id, swarm.user_role, swarm.task_message_limit) == ("ann", "admin", 7)
    assert (swarm.description, swarm.keywords, swarm.version) == ("Diggers", ["dig"], VERSION)
    assert swarm.agents[0].exclude_tools == ["help"]
    assert swarm.idle


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"user_id": ""}, "user ID must be at least 1 character long"),
        ({"user_role": "x"}, "user_role must be one of admin, agent, user, swarm, got 'x'"),
        ({"store": "mongodb://x"}, "a store URL cannot begin with 'mongodb:'"),
    ],
)
def test_an_instance_that_cannot_be_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        _swarm().instantiate({}, **options)


def test_a_wrong_schema_is_found_when_the_swarm_is_made() -> None:
    broken = MAILAction("broken", "Broken.", {"type": "thing"}, lambda args: "")
    with pytest.raises(ConfigError, match="parameters of action 'broken'"):
        _swarm(actions=[broken]).instantiate({})


# --- swarms.json --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["example", "example-no-proxy"])
def test_the_shipped_swarms_load(name: str) -> None:
    template = MAILSwarmTemplate.from_swarm_json_file(name, EXAMPLES, task_message_limit=15)
    assert template.agent_names == ["supervisor", "weather", "math"]
    assert {action.name for action in template.actions} == {
        "get_weather_forecast",
        "calculate_expression",
    }
    assert template.task_message_limit == 15
    swarm = template.instantiate({"user_token": "dummy"})
    assert [agent.name for agent in swarm.supervisors] == ["supervisor"]


def test_the_file_is_found_in_the_working_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES.parent)
    assert MAILSwarmTemplate.from_swarm_json_file("example").name == "example"


def test_an_unknown_swarm_gets_a_suggestion() -> None:
    with pytest.raises(ConfigError, match=r"swarm 'exampel' not found in .*'example'\?"):
        MAILSwarmTemplate.from_swarm_json_file("exampel", EXAMPLES)


def test_an_unknown_swarm_is_told_which_there_are() -> None:
    with pytest.raises(ConfigError, match=r"'mine' not found .* contains 'example-no-proxy', "):
        MAILSwarmTemplate.from_swarm_json_file("mine", EXAMPLES)


def _entry(**fields: Any) -> str:
    entry = {
        "name": "team",
        "version": "1.0.0",
        "entrypoint": "boss",
        "agents": [
            {
                "name": "boss",
                "factory": "mail.factories.supervisor:LiteLLMSupervisorFunction",
                "comm_targets": [],
                "actions": ["dig"],
                "agent_params": {"llm": "openai/gpt-5-mini"},
                "enable_entrypoint": True,
                "can_complete_tasks": True,
            }
        ],
        "actions": [],
        "action_imports": [f"python::{__name__}:DIG"],
    }
    return json.dumps(entry | fields)


_DEFINED = [{"name": "dig", "description": "Dig.", "parameters": {}, "function": "json:dumps"}]


def test_imported_actions_are_used_as_they_are() -> None:
    template = MAILSwarmTemplate.from_swarm_json(_entry(breakpoint_tools=["dig"], public=True))
    assert template.actions == template.agents[0].actions == [DIG]
    assert template.public


def test_the_same_action_may_be_imported_twice() -> None:
    MAILSwarmTemplate.from_swarm_json(_entry(action_imports=[f"{__name__}:DIG"] * 2))


@pytest.mark.parametrize(
    ("fields", "error", "text"),
    [
        ({"actions": _DEFINED}, ConfigError,
         "duplicate action definition for 'dig' in swarm 'team'"),
        ({"action_imports": [f"{__name__}:DIG", f"{__name__}:OTHER_DIG"]}, ConfigError,
         "duplicate action definition for 'dig' in swarm 'team'"),
        ({"action_imports": ["json:loads"]}, TypeError,
         "action import 'json:loads' in swarm 'team' did not resolve to a MAILAction"),
        ({"action_imports": ["no.such:thing"]}, ConfigError,
         "action import of swarm 'team' cannot be loaded from 'no.such:thing'"),
        ({"action_imports": []}, ConfigError, "references action 'dig' which is not defined"),
        ({"breakpoint_tools": ["digg"]}, ConfigError,
         "breakpoint tool 'digg' not found in swarm. Did you mean 'dig'?"),
        ({"description": 5}, ConfigError, "'description' of swarm 'team' must be a string"),
    ],
)  # fmt: skip
def test_an_entry_that_is_wrong_says_what(
    fields: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        MAILSwarmTemplate.from_swarm_json(_entry(**fields))
