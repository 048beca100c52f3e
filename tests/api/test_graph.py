"""Who may write to whom: the adjacency matrix of templates and of swarms at work."""

from typing import Any

import pytest

from mail import MAILAgentTemplate, MAILSwarm, MAILSwarmTemplate
from mail.errors import ConfigError
from mail.llm import call, otherwise, when
from tests.api.asked import Asked, boss_template, worker_template
from tests.api.support import completer, template_of

DONE = [otherwise(call("task_complete", finish_message="done"))]
WORKER = {"enable_entrypoint": False, "can_complete_tasks": False}


def _agent(name: str, targets: list[str], **fields: Any) -> MAILAgentTemplate:
    flags = {} if name == "boss" else WORKER
    return template_of(completer, name, comm_targets=targets, **flags, **fields)


def _team(**fields: Any) -> MAILSwarmTemplate:
    agents = [
        _agent("boss", ["b", "a"]),
        _agent("a", ["boss"]),
        _agent("b", ["boss@team", "a"]),
    ]
    return MAILSwarmTemplate(**({"name": "team", "agents": agents, "entrypoint": "boss"} | fields))


@pytest.fixture(params=["template", "swarm"])
def team(request: pytest.FixtureRequest) -> MAILSwarmTemplate | MAILSwarm:
    """Return the same swarm, as a template and at work."""
    return _team() if request.param == "template" else _team().instantiate({})


def test_the_matrix_shows_the_wiring(team: MAILSwarmTemplate | MAILSwarm) -> None:
    rows = [[0, 1, 1], [1, 0, 0], [1, 1, 0]]
    assert team.adjacency_matrix == rows
    assert team._build_adjacency_matrix() == (rows, ["boss", "a", "b"])


def test_an_unchanged_matrix_changes_nothing(team: MAILSwarmTemplate | MAILSwarm) -> None:
    before = [list(agent.comm_targets) for agent in team.agents]
    team.update_from_adjacency_matrix(team.adjacency_matrix)
    assert [agent.comm_targets for agent in team.agents] == before


def test_the_wiring_follows_the_matrix(team: MAILSwarmTemplate | MAILSwarm) -> None:
    rows = [[0, 0, 0], [0, 0, 1], [1, 0, 0]]
    team.update_from_adjacency_matrix(rows)
    assert [agent.comm_targets for agent in team.agents] == [[], ["b"], ["boss@team"]]
    assert team.adjacency_matrix == rows


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (
            [[0, 1, 1]],
            "Length of adjacency matrix does not match number of agents. .*3 rows; got 1",
        ),
        ([], "Length of adjacency matrix does not match number of agents"),
        ([[0, 1], [1, 0], [0, 1]], "Adjacency matrix is malformed. Row 0 needs 3 entries"),
        (
            [[0, 1, 1], [1, 0, 2], [1, 0, 0]],
            "Row 1 needs .* only be 0 and 1; got .*2",
        ),
        (
            [[0, 1, 1], [1, 0, "1"], [1, 0, 0]],
            "Row 1 needs .* only be 0 and 1; got .*'1'",
        ),
        ([0, 1, 1], "malformed. It must be a list of lists"),
        (None, "malformed. It must be a list of lists"),
        (
            [[0, 1, 1], [0, 0, 0], [1, 0, 0]],
            r"at least one communication target, got 0 \(agent 'a'",
        ),
    ],
)
def test_a_matrix_that_cannot_be_changes_nothing(
    team: MAILSwarmTemplate | MAILSwarm, rows: Any, text: str
) -> None:
    before = team.adjacency_matrix
    with pytest.raises(ValueError, match=text) as caught:
        team.update_from_adjacency_matrix(rows)
    assert isinstance(caught.value, ConfigError)
    assert team.adjacency_matrix == before


def test_targets_in_other_swarms_are_kept() -> None:
    agents = [_agent("boss", ["x@beta", "a"]), _agent("a", ["boss"])]
    team = MAILSwarmTemplate("team", agents=agents, entrypoint="boss", enable_interswarm=True)
    assert team.adjacency_matrix == [[0, 1], [1, 0]]
    team.update_from_adjacency_matrix([[0, 0], [1, 0]])
    assert team.agents[0].comm_targets == ["x@beta"]


def test_templates_that_share_an_agent_are_wired_each_on_its_own() -> None:
    agents = [_agent("boss", ["a"]), _agent("a", ["boss"])]
    first, second = (MAILSwarmTemplate(n, agents=agents, entrypoint="boss") for n in ("x", "y"))
    first.update_from_adjacency_matrix([[0, 0], [1, 0]])
    assert second.adjacency_matrix == [[0, 1], [1, 0]]
    assert agents[0].comm_targets == ["a"]


async def test_a_swarm_at_work_offers_and_allows_the_new_targets_from_the_next_turn_on() -> None:
    asks = [
        when(sender_type="user", body=r"ask (\w+)").then(
            lambda view: call("send_request", target=view.match[1], subject="s", body="b")
        ),
        when(mail_from="a").then(call("task_complete", finish_message="a answered")),
        when(mail_from="b").then(call("task_complete", finish_message="b answered")),
        otherwise(lambda view: call("task_complete", finish_message=view.body)),
    ]
    answers = [otherwise(call("send_response", target="boss", subject="s", body="yes"))]
    boss, worker = Asked(asks), Asked(answers)
    template = MAILSwarmTemplate(
        name="team",
        agents=[
            boss_template(boss, ["a"]),
            worker_template("a", worker, ["boss"]),
            worker_template("b", worker, ["boss"]),
        ],
        entrypoint="boss",
    )
    swarm = template.instantiate({}, print_llm_streams=False)
    other = template.instantiate({}, user_id="other", print_llm_streams=False)

    answer, _ = await swarm.post_message("ask b")
    assert boss.targets_of("send_request") == boss.targets_of("send_interrupt") == ["a"]
    assert "'b'" in answer["message"]["body"]  # the refusal
    assert "Name: b" not in boss.system

    swarm.update_from_adjacency_matrix([[0, 0, 1], [1, 0, 0], [1, 0, 0]])
    answer, _ = await swarm.post_message("ask b")
    assert answer["message"]["body"] == "b answered"
    assert boss.targets_of("send_request") == boss.targets_of("send_interrupt") == ["b"]
    assert "Name: b" in boss.system
    assert "Name: a" not in boss.system
    refused, _ = await swarm.post_message("ask a")
    assert "you may not write to 'a'" in refused["message"]["body"]

    answer, _ = await other.post_message("ask a")
    assert answer["message"]["body"] == "a answered"
    assert boss.targets_of("send_request") == ["a"]
    await swarm.shutdown()
    await other.shutdown()


async def test_a_lone_agent_gets_the_tools_for_mail_with_its_first_target_and_loses_them() -> None:
    boss = Asked(DONE)
    template = MAILSwarmTemplate(
        name="team",
        agents=[boss_template(boss, []), worker_template("a", Asked(DONE), ["boss"])],
        entrypoint="boss",
    )
    swarm = template.instantiate({}, print_llm_streams=False)
    seen = []
    for row in ([0, 0], [0, 1], [0, 0]):
        swarm.update_from_adjacency_matrix([row, [1, 0]])
        await swarm.post_message("Hello!")
        seen.append(boss.tool_names)
    assert seen[0] == seen[2] == ["task_complete"]
    assert {"send_request", "send_interrupt", "send_broadcast", "task_complete"} <= {*seen[1]}
    assert boss.system == "You are boss."
    await swarm.shutdown()
