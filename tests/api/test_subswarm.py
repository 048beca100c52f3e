"""A part of a swarm as a template of its own."""

from typing import Any

import pytest

from mail import MAILAction, MAILAgent, MAILAgentTemplate, MAILSwarm, MAILSwarmTemplate
from mail.core.agents import AgentOutput
from mail.errors import ConfigError
from tests.api.support import call, completer, newest, template_of

DIG = MAILAction("dig", "Dig.", {}, lambda args: "dug")
FILL = MAILAction("fill", "Fill.", {}, lambda args: "filled")
WORKER = {"enable_entrypoint": False, "can_complete_tasks": False}


def _agent(name: str, targets: list[str], **fields: Any) -> MAILAgentTemplate:
    return template_of(completer, name, comm_targets=targets, **(WORKER | fields))


def _template(**fields: Any) -> MAILSwarmTemplate:
    boss = {"enable_entrypoint": True, "can_complete_tasks": True}
    defaults: dict[str, Any] = {
        "name": "team",
        "version": "2.0.0",
        "agents": [
            _agent("boss", ["digger", "filler@team"], exclude_tools=["help"], **boss),
            _agent("digger", ["filler"], actions=[DIG]),
            _agent("filler", ["boss"], actions=[FILL], enable_entrypoint=True),
            _agent("watcher", ["digger"], can_complete_tasks=True),
        ],
        "actions": [DIG],
        "entrypoint": "boss",
        "breakpoint_tools": ["dig", "fill"],
        "exclude_tools": ["ignore_broadcast"],
        "task_message_limit": 9,
        "description": "Diggers",
        "keywords": ["dig"],
        "public": True,
    }
    return MAILSwarmTemplate(**(defaults | fields))


@pytest.fixture(params=["template", "swarm"])
def team(request: pytest.FixtureRequest) -> MAILSwarmTemplate | MAILSwarm:
    """Return the same swarm, as a template and at work."""
    return _template() if request.param == "template" else _template().instantiate({})


def test_it_has_the_agents_and_all_else_of_the_whole(team: MAILSwarmTemplate | MAILSwarm) -> None:
    part = team.get_subswarm(["digger", "boss"], "small")
    assert isinstance(part, MAILSwarmTemplate)
    assert (part.name, part.version, part.entrypoint) == ("team-small", "2.0.0", "boss")
    assert part.agent_names == ["boss", "digger"]
    assert part.actions == [DIG]
    assert part.breakpoint_tools == ["dig"]  # nobody is left who could call fill
    assert part.exclude_tools == ["ignore_broadcast"]
    assert part.agents[0].exclude_tools == ["help"]
    assert (part.task_message_limit, part.description) == (9, "Diggers")
    assert (part.keywords, part.public) == (["dig"], True)


def test_targets_outside_are_dropped_and_nobody_is_left_alone(
    team: MAILSwarmTemplate | MAILSwarm,
) -> None:
    part = team.get_subswarm(["boss", "digger", "filler"], "small")
    assert [agent.comm_targets for agent in part.agents] == [
        ["digger", "filler"],
        ["filler"],
        ["boss"],
    ]
    part = team.get_subswarm(["boss", "digger", "watcher"], "small")
    written_by = {agent.name: agent.comm_targets for agent in part.agents}
    assert written_by == {
        "boss": ["digger"],
        "digger": ["boss", "watcher"],  # those who write to it
        "watcher": ["digger"],
    }
    part = team.get_subswarm(["watcher", "filler"], "small")
    assert part.entrypoint == "filler"
    assert [agent.comm_targets for agent in part.agents] == [["watcher"], ["filler"]]
    assert team.agents[1].comm_targets == ["filler"]  # the whole is as it was


def test_one_agent_alone_needs_no_target(team: MAILSwarmTemplate | MAILSwarm) -> None:
    part = team.get_subswarm(["boss"], "solo")
    assert part.agents[0].comm_targets == []
    assert part.instantiate({}).name == "team-solo"


def test_another_entrypoint_becomes_one(team: MAILSwarmTemplate | MAILSwarm) -> None:
    part = team.get_subswarm(["boss", "digger"], "small", entrypoint="digger")
    assert part.entrypoint == "digger"
    assert part.agents[1].enable_entrypoint
    assert not team.agents[1].enable_entrypoint


@pytest.mark.parametrize(
    ("names", "entrypoint", "text"),
    [
        (["boss", "diger"], None, r"agent 'diger' not found in swarm\. Did you mean 'digger'\?"),
        (["digger", "watcher"], None, "Subswarm must contain an entrypoint agent"),
        ([], None, "Subswarm must contain an entrypoint agent"),
        (["boss"], "digger", "entrypoint agent 'digger' not found in swarm: the chosen"),
        (["boss", "digger"], "diger", r"'diger' not found in swarm\. Did you mean 'digger'\?"),
        (["digger", "filler"], None, "Subswarm must contain at least one supervisor"),
        ("boss", None, "names must be a list of agent names, got the string 'boss'"),
    ],
)
def test_what_cannot_be_a_swarm_is_refused(
    team: MAILSwarmTemplate | MAILSwarm, names: Any, entrypoint: str | None, text: str
) -> None:
    with pytest.raises(ValueError, match=text) as caught:
        team.get_subswarm(names, "small", entrypoint)
    assert isinstance(caught.value, ConfigError)


def test_targets_in_other_swarms_are_kept() -> None:
    agents = [
        template_of(completer, "boss", comm_targets=["digger", "x@beta"]),
        _agent("digger", ["y@beta"]),
    ]
    team = MAILSwarmTemplate("team", agents=agents, entrypoint="boss", enable_interswarm=True)
    part = team.get_subswarm(["boss", "digger"], "small")
    assert [agent.comm_targets for agent in part.agents] == [["digger", "x@beta"], ["y@beta"]]
    assert part.enable_interswarm


async def test_it_works_and_leaves_the_users_token_behind() -> None:
    tokens: list[str] = []

    async def boss(messages: list[dict[str, Any]], tool_choice: Any) -> AgentOutput:
        mail = newest(messages)
        if mail["from"] == "digger":
            return None, [call("task_complete", finish_message=mail["body"])]
        return None, [call("send_request", target="digger", subject="s", body=mail["body"])]

    async def digger(messages: list[dict[str, Any]], tool_choice: Any) -> AgentOutput:
        return None, [call("send_response", target="boss", subject="s", body="dug")]

    def factory(**params: Any) -> Any:
        tokens.append(params.get("user_token", "none"))
        return {"boss": boss, "digger": digger}.get(params["name"], completer)

    whole = _template()
    for agent in whole.agents:
        agent.factory = factory
    swarm = whole.instantiate({"user_token": "alice's"})
    part = swarm.get_subswarm(["boss", "digger"], "small")
    assert all("user_token" not in agent.agent_params for agent in part.agents)
    tokens.clear()
    small = part.instantiate({}, user_id="bob")
    answer, _ = await small.post_message("Dig!")
    assert answer["message"]["body"] == "dug"
    assert tokens == ["none", "none"]
    await small.shutdown()
    await swarm.shutdown()


def test_an_agent_made_by_hand_can_be_part_of_one() -> None:
    boss = MAILAgent(
        "boss", "no:where", [DIG], completer, ["digger"], {"llm": "x/y"}, True, False, True
    )
    digger = MAILAgent("digger", "no:where", [], completer, ["boss"], {})
    swarm = MAILSwarm("team", "1.0.0", [boss, digger], [], "boss")
    part = swarm.get_subswarm(["boss"], "solo")
    assert part.agents[0].agent_params == {"llm": "x/y"}
    assert part.agents[0].actions == [DIG]
    trimmed = boss._to_template(["somebody"])
    assert (trimmed.name, trimmed.comm_targets) == ("boss", [])
    assert boss.comm_targets == ["digger"]
