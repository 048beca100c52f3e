"""Agents and their templates."""

from typing import Any

import pytest

from mail import MAILAction, MAILAgent, MAILAgentTemplate
from mail.core.agents import AgentOutput
from mail.errors import ConfigError

made: list[dict[str, Any]] = []


async def silent(messages: list[dict[str, Any]], tool_choice: Any) -> AgentOutput:
    return f"{len(messages)} {tool_choice}", []


def factory(**params: Any) -> Any:
    made.append(params)
    return silent


def picky(name: str, *, motto: str, **params: Any) -> Any:
    raise AssertionError


def posing(name: str, **params: Any) -> Any:
    raise TypeError("missing 1 required positional argument: 'llm'")


def not_callable(**params: Any) -> Any:
    return 5


DIG = MAILAction("dig", "Dig.", {}, lambda args: "dug")
FILL = MAILAction("fill", "Fill.", {}, lambda args: "filled")


def _template(**fields: Any) -> MAILAgentTemplate:
    defaults: dict[str, Any] = {
        "name": "worker",
        "factory": factory,
        "comm_targets": ["boss"],
        "actions": [DIG, FILL],
        "agent_params": {"llm": "x/y"},
    }
    return MAILAgentTemplate(**(defaults | fields))


def test_the_factory_gets_the_wiring_then_the_agents_then_the_instances_parameters() -> None:
    template = _template(
        agent_params={"llm": "x/y", "user_token": "old"}, tool_format="completions"
    )
    agent = template.instantiate({"user_token": "new"})
    params = made[-1]
    assert [tool["function"]["name"] for tool in params.pop("tools")] == ["dig", "fill"]
    assert params == {
        "name": "worker",
        "comm_targets": ["boss"],
        "enable_entrypoint": False,
        "enable_interswarm": False,
        "can_complete_tasks": False,
        "tool_format": "completions",
        "exclude_tools": [],
        "llm": "x/y",
        "user_token": "new",
    }
    assert agent.agent_params == {"llm": "x/y", "user_token": "new"}
    assert isinstance(agent, MAILAgent)


def test_excluded_tools_are_the_agents_and_the_swarms() -> None:
    agent = _template(exclude_tools=["help", "dig"]).instantiate({}, ["await_message", "help"])
    assert agent.exclude_tools == made[-1]["exclude_tools"] == ["await_message", "dig", "help"]
    assert [tool["name"] for tool in made[-1]["tools"]] == ["fill"]
    assert agent.to_core().exclude_tools == {"await_message", "dig", "help"}


def test_wiring_inside_agent_params_is_ignored_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    template = _template(agent_params={"tool_format": "completions", "name": "spy"})
    agent = template.instantiate({})
    assert (made[-1]["tool_format"], made[-1]["name"]) == ("responses", "worker")
    assert "'tool_format' inside agent_params of agent 'worker' is ignored" in caplog.text
    assert agent.agent_params == {}


def test_wiring_inside_instance_params_is_ignored_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    _template().instantiate({"exclude_tools": ["help"], "comm_targets": []})
    assert (made[-1]["exclude_tools"], made[-1]["comm_targets"]) == ([], ["boss"])
    assert "'comm_targets' inside instance_params of agent 'worker' is ignored" in caplog.text


def test_instances_share_no_list_or_dictionary_of_the_template() -> None:
    targets, actions, excluded = ["boss"], [DIG], ["help"]
    shared = object()
    params = {"llm": "x/y", "notes": [], "deep": {"list": [shared]}}
    template = _template(
        comm_targets=targets, actions=actions, exclude_tools=excluded, agent_params=params
    )
    first = template.instantiate({})
    made[-1]["notes"].append("of the first")
    made[-1]["deep"]["list"].append("of the first")
    made[-1]["comm_targets"].append("of the first")
    first.comm_targets.append("of the first")
    first.actions.append(FILL)
    targets.append("later")
    actions.append(FILL)
    excluded.append("await_message")
    params["notes"].append("later")  # type: ignore[attr-defined]
    second = template.instantiate({})
    assert (made[-1]["notes"], made[-1]["comm_targets"]) == ([], ["boss"])
    assert made[-1]["deep"] == {"list": [shared]}
    assert (second.comm_targets, second.actions) == (["boss"], [DIG])
    assert second.exclude_tools == ["help"]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"name": 5}, "agent name must be a string, got int"),
        ({"actions": ["dig"]}, "actions of agent 'worker' must be MAILAction .* the string 'dig'"),
        ({"actions": [len]}, "actions of agent 'worker' must be MAILAction objects, got builtin"),
        ({"actions": DIG}, "actions of agent 'worker' must be a list of MAILAction objects"),
        ({"actions": None}, "actions of agent 'worker' must be a list of MAILAction objects"),
        ({"comm_targets": "boss"}, "comm_targets of agent 'worker' must be a list of names"),
        (
            {"comm_targets": [5]},
            "comm_targets of agent 'worker' must be a list of names, got int in",
        ),
        ({"exclude_tools": "help"}, "exclude_tools of agent 'worker' must be a list of names"),
        ({"agent_params": None}, "agent_params of agent 'worker' must be a dictionary"),
    ],
)
def test_a_field_of_the_wrong_type_is_named(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        _template(**fields)
    rest = {"function": silent, "factory": factory, "comm_targets": ["boss"], "actions": []}
    with pytest.raises(ConfigError, match=text):
        MAILAgent(**({"name": "worker", "agent_params": {}} | rest | fields))


def test_a_factory_may_be_a_reference() -> None:
    assert _template(factory=f"python::{__name__}:factory").instantiate({}).function is silent


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ("no.such:thing", "factory of agent 'worker' cannot be loaded from 'no.such:thing'"),
        ("json:__name__", "factory of agent 'worker' must be callable, got str"),
        (picky, "does not take the agent's parameters: missing a required argument: 'motto'$"),
        (posing, r"factory of agent 'worker' failed: TypeError \(see the log, reference \w+\)$"),
        (not_callable, "factory of agent 'worker' must return a callable, got int"),
    ],
)
def test_a_factory_that_does_not_work_names_the_agent(wrong: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        _template(factory=wrong).instantiate({})


def test_a_fault_inside_a_factory_is_no_fault_of_the_parameters(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(**given: Any) -> Any:
        return len(5)  # type: ignore[arg-type]

    with pytest.raises(ConfigError) as raised:
        _template(factory=broken).instantiate({})
    [record] = [record for record in caplog.records if record.name == "mail.api.agents"]
    assert record.getMessage() == "factory of agent 'worker' failed"
    assert record.exc_info is not None and record.exc_info[1] is raised.value.__cause__
    reference = vars(record)["reference"]
    told = f"factory of agent 'worker' failed: TypeError (see the log, reference {reference})"
    assert str(raised.value) == told


def test_references_inside_agent_params_are_resolved() -> None:
    params = {"system": "python::mail.examples.math_dummy.prompts:SYSPROMPT", "deep": ["url"]}
    assert _template(agent_params=params).agent_params["system"].startswith("You are the math")
    assert params["system"].startswith("python::")
    with pytest.raises(ConfigError, match="agent_params of agent 'worker'"):
        _template(agent_params={"system": "python::json:nothing"})


def test_an_agent_nobody_can_reach_is_refused() -> None:
    with pytest.raises(ValueError, match="agent must have at least one communication target"):
        _template(comm_targets=[]).instantiate({})
    solo = _template(comm_targets=[], enable_entrypoint=True, can_complete_tasks=True)
    assert solo.instantiate({}).comm_targets == []


@pytest.mark.parametrize("name", ["", "all", "a@b", " "])
def test_a_name_must_fit_into_addresses(name: str) -> None:
    with pytest.raises(ConfigError, match="agent name"):
        _template(name=name)


def test_a_tool_format_must_exist() -> None:
    with pytest.raises(ConfigError, match="tool_format of agent 'worker'"):
        _template(tool_format="chat")


async def test_an_agent_can_be_called() -> None:
    agent = _template().instantiate({})
    assert await agent([{"role": "user"}]) == ("1 required", [])


def test_the_core_has_what_the_agent_may_do() -> None:
    core = _template(enable_entrypoint=True, can_complete_tasks=True).instantiate({}).to_core()
    assert core.function is silent
    assert core.can_access_action("dig")
    assert core.can_access_action_or_tool("task_complete")
    assert core.comm_targets == ["boss"]


def test_an_entry_of_swarms_json_becomes_a_template() -> None:
    entry = (
        '{"name": "worker", "factory": "a:b", "comm_targets": ["boss"], "actions": ["dig"], '
        '"agent_params": {"system": "python::mail.examples.math_dummy.prompts:SYSPROMPT"}, '
        '"tool_format": "completions", "exclude_tools": ["help"]}'
    )
    template = MAILAgentTemplate.from_swarm_json(entry, {"dig": DIG})
    assert template.actions == [DIG]
    assert (template.tool_format, template.exclude_tools) == ("completions", ["help"])
    with pytest.raises(ConfigError, match="'worker' declares actions but no action definitions"):
        MAILAgentTemplate.from_swarm_json(entry)
    with pytest.raises(ConfigError, match=r"unknown action 'dig'\. Did you mean 'digg'\?"):
        MAILAgentTemplate.from_swarm_json(entry, {"digg": DIG})


@pytest.mark.parametrize("name", ["supervisor", "consultant"])
def test_examples_of_words_only_can_be_instantiated(name: str) -> None:
    agent = MAILAgentTemplate.from_example(name, ["other"]).instantiate({"user_token": "dummy"})
    assert (agent.name, agent.comm_targets, agent.actions) == (name, ["other"], [])
    assert agent.can_complete_tasks is (name == "supervisor")


@pytest.mark.parametrize(
    "name", ["weather", "math", "analyst", "research", "support", "data_analysis"]
)
def test_examples_with_actions_can_be_instantiated(name: str) -> None:
    agent = MAILAgentTemplate.from_example(name, ["other"]).instantiate({"user_token": "dummy"})
    assert (agent.name, agent.comm_targets) == (name, ["other"])
    assert agent.actions
    assert not agent.can_complete_tasks


def test_examples_do_not_share_their_parameters() -> None:
    first = MAILAgentTemplate.from_example("math", ["x"], llm="openai/gpt-5-mini")
    assert first.agent_params["llm"] == "openai/gpt-5-mini"
    assert MAILAgentTemplate.from_example("math", ["x"]).agent_params["llm"].startswith("scripted/")


def test_an_unknown_example_gets_a_suggestion() -> None:
    with pytest.raises(ConfigError, match=r"Did you mean 'weather'\?"):
        MAILAgentTemplate.from_example("wether", [])
