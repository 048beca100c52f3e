"""Definitions from elsewhere: the reference policy reaches every field that names code or pages."""

import json
from typing import Any

import httpx
import pytest

from mail import MAILAction, MAILAgentTemplate, MAILSwarmTemplate
from mail.api import agents, definitions
from mail.config import SwarmConfig
from mail.config.server import REMOTE_AGENT_PARAMS
from mail.errors import ConfigError, WrongReference
from mail.swarms_json.references import ReferencePolicy, RemoteParameters
from tests.stdlib.outside import PUBLIC, Outside

ACTION = {
    "name": "forecast",
    "description": "Forecast the weather.",
    "parameters": {},
    "function": "python::mail.examples.weather_dummy.actions:get_weather_forecast",
}
AGENT = {
    "name": "boss",
    "factory": "python::mail.factories:LiteLLMSupervisorFunction",
    "comm_targets": [],
    "actions": ["forecast", "calculate_expression"],
    "enable_entrypoint": True,
    "can_complete_tasks": True,
    "agent_params": {
        "llm": "scripted/mail.examples.scripts:SUPERVISOR",
        "system": "python::mail.examples.supervisor.prompts:SYSPROMPT",
        "use_proxy": False,
    },
}
SWARM = {
    "name": "team",
    "version": "1.0.0",
    "entrypoint": "boss",
    "agents": [AGENT],
    "actions": [ACTION],
    "action_imports": ["python::mail.examples.math_dummy.actions:calculate_expression_action"],
}


@pytest.fixture
def world() -> Outside:
    return Outside(names={"prompts.example": [PUBLIC], "inside.example": ["10.0.0.7"]})


@pytest.fixture
def remote(world: Outside) -> ReferencePolicy:
    """The policy for `/swarms/load` with what mail.toml says by default."""
    allowed = tuple(SwarmConfig().remote_imports)
    parameters = RemoteParameters((*REMOTE_AGENT_PARAMS, "deep", "notes"))
    return ReferencePolicy(
        allowed, resolve=world.resolve, transport=world.transport, parameters=parameters
    )


def _agent(**fields: Any) -> dict[str, Any]:
    return {**AGENT, **fields}


def _params(**params: Any) -> dict[str, Any]:
    return {"agents": [_agent(agent_params={**AGENT["agent_params"], **params})]}


def test_what_mail_ships_may_be_used_by_default(remote: ReferencePolicy) -> None:
    template = MAILSwarmTemplate.from_swarm_json(json.dumps(SWARM), references=remote)
    assert [action.name for action in template.actions] == ["calculate_expression", "forecast"]
    swarm = template.instantiate({})
    assert swarm.agents[0].agent_params["system"].strip()


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"agents": [_agent(factory="os:system")]}, "factory of agent 'boss'"),
        ({"actions": [{**ACTION, "function": "os:system"}]}, "function of action 'forecast'"),
        ({"action_imports": ["os:system"]}, "action import of swarm 'team'"),
        (_params(system="python::os:environ"), "agent_params of agent 'boss'"),
        (_params(deep=[{"x": "python::os:environ"}]), "agent_params of agent 'boss'"),
        (_params(llm="scripted/os:system"), "agent_params of agent 'boss'"),
        (_params(deep={"llm": "scripted/os:system"}), "agent_params of agent 'boss'"),
    ],
)
def test_code_from_elsewhere_is_refused_in_every_field(
    remote: ReferencePolicy, fields: dict[str, Any], place: str
) -> None:
    agent = {"actions": ["forecast"]} if "action_imports" in fields else {}
    swarm = {**SWARM, **fields}
    swarm["agents"] = [{**entry, **agent} for entry in swarm["agents"]]
    with pytest.raises(ConfigError) as caught:
        MAILSwarmTemplate.from_swarms_json(swarm, references=remote)  # type: ignore[arg-type]
    assert place in str(caught.value)
    assert "module 'os' must not be imported" in str(caught.value)
    assert "remote_imports" in str(caught.value)


@pytest.mark.parametrize("url", ["https://inside.example/", "http://prompts.example/"])
def test_pages_from_inside_are_refused(remote: ReferencePolicy, world: Outside, url: str) -> None:
    swarm = {**SWARM, **_params(system=f"url::{url}")}
    with pytest.raises(ConfigError, match="agent_params of agent 'boss': a url:: reference to"):
        MAILSwarmTemplate.from_swarm_json(json.dumps(swarm), references=remote)
    assert world.requests == []


def test_public_pages_are_fetched(remote: ReferencePolicy, world: Outside) -> None:
    swarm = {**SWARM, **_params(system="url::https://prompts.example/boss.json")}
    template = MAILSwarmTemplate.from_swarm_json(json.dumps(swarm), references=remote)
    assert template.agents[0].agent_params["system"] == "https://prompts.example/boss.json"
    assert world.connected == [PUBLIC]  # it answers with text that is no JSON, so the address stays


def test_an_agent_and_an_action_alone_take_the_policy(remote: ReferencePolicy) -> None:
    MAILAction.from_swarm_json(json.dumps(ACTION), references=remote)
    actions = {"forecast": MAILAction("forecast", "F.", {}, "json:dumps")}
    agent = _agent(actions=["forecast"])
    MAILAgentTemplate.from_swarm_json(json.dumps(agent), actions, references=remote)
    with pytest.raises(ConfigError, match="function of action 'forecast' cannot be loaded from"):
        MAILAction.from_swarm_json(
            json.dumps(ACTION | {"function": "os:system"}), references=remote
        )
    with pytest.raises(ConfigError, match="factory of agent 'boss' cannot be loaded from"):
        MAILAgentTemplate.from_swarm_json(
            json.dumps(agent | {"factory": "os:system"}), actions, references=remote
        )


def test_the_policy_still_holds_when_the_agent_is_built(remote: ReferencePolicy) -> None:
    template = MAILAgentTemplate.from_swarm_json(json.dumps(_agent(actions=[])), references=remote)
    template.factory = "os:system"
    with pytest.raises(ConfigError, match="module 'os' must not be imported"):
        template.instantiate({})


def test_an_unknown_imported_action_gets_a_suggestion() -> None:
    swarm = {**SWARM, "agents": [_agent(actions=["calculate_expresion"])]}
    with pytest.raises(ConfigError, match="Did you mean 'calculate_expression'"):
        MAILSwarmTemplate.from_swarm_json(json.dumps(swarm))


@pytest.mark.parametrize(
    "fields",
    [
        {"action_imports": ["mail.version:VERSION"]},
        {"actions": [{**ACTION, "function": "mail.version:VERSION"}]},
    ],
)
def test_an_object_of_another_kind_is_a_type_error_too(fields: dict[str, Any]) -> None:
    with pytest.raises(WrongReference) as caught:
        MAILSwarmTemplate.from_swarms_json({**SWARM, **fields})  # type: ignore[arg-type]
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, ConfigError)


def test_code_that_fails_while_it_is_imported_is_one_error(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for name, code in {"probe_raises": "1 / 0", "probe_exits": "raise SystemExit(0)"}.items():
        (tmp_path / f"{name}.py").write_text(code)
        swarm = {**SWARM, "actions": [{**ACTION, "function": f"{name}:x"}]}
        with pytest.raises(ConfigError, match=f"cannot be loaded from '{name}:x': "):
            MAILSwarmTemplate.from_swarms_json(swarm)  # type: ignore[arg-type]


def test_a_definition_is_validated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*given: object) -> None:
        raise AssertionError("validated again")

    monkeypatch.setattr(agents, "build_agent_from_swarms_json", never)
    monkeypatch.setattr("mail.api.actions.build_action_from_swarms_json", never)
    seen: list[str] = []
    importer = definitions.ActionImporter.__call__

    def counting(self: Any, reference: str, swarm: str) -> MAILAction:
        seen.append(reference)
        return importer(self, reference, swarm)

    monkeypatch.setattr(definitions.ActionImporter, "__call__", counting)
    MAILSwarmTemplate.from_swarms_json(SWARM)  # type: ignore[arg-type]
    assert seen == SWARM["action_imports"]


@pytest.mark.parametrize("name", ["", "a b", "my-package", "a..b", "mail.examples:x", "*"])
def test_allowed_imports_are_names_of_modules(name: str) -> None:
    with pytest.raises(ConfigError, match="remote_imports"):
        SwarmConfig(remote_imports=["mail.stdlib", name])


def test_the_documents_of_all_agents_are_counted_together(
    world: Outside, remote: ReferencePolicy
) -> None:
    world.handler = lambda request: httpx.Response(200, json={})

    def load(agents: int, references: ReferencePolicy) -> None:
        many = [
            _agent(
                name=f"boss{number}",
                comm_targets=["boss0"] if number else ["boss1"],
                agent_params={"llm": "openai/x", "notes": ["url::https://prompts.example/"] * 8},
            )
            for number in range(agents)
        ]
        swarm = {**SWARM, "agents": many, "entrypoint": "boss0"}
        MAILSwarmTemplate.from_swarm_json(json.dumps(swarm), references=references)

    load(4, remote)
    load(4, remote)  # the next definition begins anew
    with pytest.raises(ConfigError, match="at most 32 are allowed"):
        load(5, remote)
    assert len(world.requests) == 3 * 32
