"""What agents are told about the agents they may write to."""

from typing import Any

import pytest

from mail import MAILAction, MAILAgent, MAILAgentTemplate, MAILSwarm, MAILSwarmTemplate
from mail.api import graph
from mail.core.addresses import local_agent_name
from mail.core.tools.catalogue import CATALOGUE
from mail.factories import LiteLLMActionAgentFunction, supervisor_factory
from mail.llm import call, otherwise
from mail.net import SwarmRegistry
from tests.api.asked import Asked, boss_template, worker_template

DONE = [otherwise(call("task_complete", finish_message="done"))]
DIG = MAILAction("dig", "Dig a hole,\n    as deep as you like.", {}, lambda args: "dug")
FILL = MAILAction("fill", "Fill a hole. " + "x" * 400, {}, lambda args: "filled")

BLOCK = """\
You are boss.

Here are details about the agents you can communicate with:

Name: digger
Capabilities:
- dig: Dig a hole, as deep as you like.

Name: writer
Capabilities:
- It answers messages; it has no tools of its own."""


class Searcher(LiteLLMActionAgentFunction):
    """An agent whose provider searches for it."""

    def __init__(self, **params: Any) -> None:
        tools = [
            *params.pop("tools"),
            {"type": "web_search_preview"},
            {"type": "code_interpreter", "container": {"type": "auto"}},
            {"type": "shouting"},
        ]
        super().__init__(tools=tools, **params)


def _swarm(boss: Asked, *workers: MAILAgentTemplate, **fields: Any) -> MAILSwarm:
    targets = [worker.name for worker in workers]
    template = MAILSwarmTemplate(
        name="team",
        agents=[boss_template(boss, targets, **fields), *workers],
        entrypoint="boss",
    )
    return template.instantiate({}, print_llm_streams=False)


async def _prompt(boss: Asked, swarm: MAILSwarm) -> str:
    await swarm.post_message("Hello!")
    await swarm.shutdown()
    return boss.system


async def test_the_system_prompt_tells_what_the_others_can_do() -> None:
    prompts = []
    for _ in range(2):
        boss, idle = Asked(DONE), Asked(DONE)
        workers = [
            worker_template("digger", idle, ["boss"], actions=[DIG]),
            worker_template("writer", idle, ["boss"]),
        ]
        prompts.append(await _prompt(boss, _swarm(boss, *workers)))
    assert prompts == [BLOCK, BLOCK]


async def test_actions_tools_of_the_provider_and_rights_are_told_and_what_is_excluded_is_not() -> (
    None
):
    boss, idle = Asked(DONE), Asked(DONE)
    worker = worker_template(
        "digger",
        idle,
        ["boss"],
        actions=[DIG, FILL],
        exclude_tools=["dig"],
        can_complete_tasks=True,
    )
    worker.factory = Searcher
    capabilities = (await _prompt(boss, _swarm(boss, worker))).partition("Capabilities:\n")[2]
    assert capabilities.splitlines() == [
        "- fill: Fill a hole. " + "x" * 287 + "…",
        "- It can search the web.",
        "- It can run code.",
        "- It has the tool shouting.",
        "- It can complete the task.",
    ]


async def test_a_description_that_was_written_by_hand_is_replaced() -> None:
    boss, idle = Asked(DONE), Asked(DONE)
    written = "You are boss.\n\nHere are details about the agents you can communicate with:\nnobody"
    swarm = _swarm(
        boss,
        worker_template("digger", idle, ["boss"], actions=[DIG]),
        worker_template("writer", idle, ["boss"]),
        agent_params={"system": written},
    )
    assert await _prompt(boss, swarm) == BLOCK


async def test_agents_of_other_swarms_are_told_by_their_address(tmp_path) -> None:
    boss = Asked(DONE)
    agent = boss_template(boss, ["analyst@beta", "*@gamma", "*@*"]).instantiate({})
    registry = SwarmRegistry("team", "http://localhost:8000", str(tmp_path / "registry.json"))
    swarm = MAILSwarm(
        "team", "1", [agent], [], "boss", swarm_registry=registry, enable_interswarm=True
    )
    block = (await _prompt(boss, swarm)).partition("with:\n\n")[2]
    assert block.split("\n\n") == [
        "Name: analyst@beta\nCapabilities:\n"
        "- It works in another swarm, 'beta'. Write to it under this full name.",
        "Name: agent-name@gamma\nCapabilities:\n- This stands for every agent of the swarm "
        "'gamma'. Put names that you know in place of agent-name.",
        "Name: agent-name@swarm-name\nCapabilities:\n- This stands for every agent of every "
        "other swarm. Put names that you know in place of agent-name and swarm-name.",
    ]


async def test_a_function_of_the_old_factories_gets_it_too() -> None:
    boss, idle = Asked(DONE), Asked(DONE)
    with pytest.warns(DeprecationWarning):
        agents = [
            MAILAgentTemplate(
                name="boss",
                factory=supervisor_factory,
                comm_targets=["writer"],
                actions=[],
                agent_params={"llm": "scripted", "model": boss, "system": "S", "user_token": ""},
                enable_entrypoint=True,
                can_complete_tasks=True,
                tool_format="completions",
            ),
            worker_template("writer", idle, ["boss"]),
        ]
        template = MAILSwarmTemplate("team", agents=agents, entrypoint="boss")
        swarm = template.instantiate({}, print_llm_streams=False)
    assert "Name: writer" in await _prompt(boss, swarm)


async def test_an_agent_that_cannot_write_is_told_of_nobody() -> None:
    boss, idle = Asked(DONE), Asked(DONE)
    senders = [name for name in CATALOGUE if name.startswith("send_")]
    swarm = _swarm(boss, worker_template("writer", idle, ["boss"]), exclude_tools=senders)
    assert await _prompt(boss, swarm) == "You are boss."


async def test_the_prompt_that_was_given_can_still_be_read() -> None:
    boss, idle = Asked(DONE), Asked(DONE)
    swarm = _swarm(boss, worker_template("writer", idle, ["boss"]))
    agent: Any = swarm.agents[0].function
    assert agent.supervisor_fn.system == "You are boss."  # what was given stays what it was
    assert "Name: writer" in agent.supervisor_fn.system_prompt
    await swarm.shutdown()


def test_each_agent_is_described_once_however_many_may_write_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    described: list[str] = []
    parsed: list[str] = []

    def describe(agent: MAILAgent) -> list[str]:
        described.append(agent.name)
        return ["It digs."]

    def parse(address: str, swarm: str) -> str:
        parsed.append(address)
        return local_agent_name(address, swarm)

    monkeypatch.setattr(graph, "_local", describe)
    monkeypatch.setattr(graph, "local_agent_name", parse)
    monkeypatch.setattr("mail.core.runtime.validation.local_agent_name", parse)
    names = ["boss", *(f"worker-{number}" for number in range(9))]
    workers = [worker_template(name, Asked(DONE), names) for name in names[1:]]
    swarm = _swarm(Asked(DONE), *workers)
    assert sorted(described) == sorted(names)
    assert parsed == []
    assert len(swarm.agents) == len(names)
