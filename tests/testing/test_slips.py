"""Names that are not there are refused: a test with a slip of the pen must not pass."""

from typing import Any

import pytest

from mail import action
from mail.errors import ConfigError
from mail.llm import call, otherwise, when
from mail.testing import scripted_swarm

DONE = call("task_complete", finish_message="done")
BOSS = [when(tool_result="plan").then(DONE), otherwise(call("plan"))]


@action(parameters={})
async def plan(args: dict[str, Any]) -> str:
    """Make a plan."""
    return "dig"


@pytest.mark.parametrize(
    "parts",
    [
        {"actions": {"bos": [plan]}},
        {"supervisors": ["bos"]},
        {"comm_targets": {"bos": []}},
    ],
)
def test_a_misspelt_agent_is_refused(parts: dict[str, Any]) -> None:
    [place] = parts
    text = f"{place} names 'bos', who has no script. Did you mean 'boss'"
    with pytest.raises(ConfigError, match=text):
        scripted_swarm({"boss": BOSS}, **parts)


def test_one_name_is_no_list() -> None:
    with pytest.raises(ConfigError, match="supervisors must be a list of names"):
        scripted_swarm({"boss": BOSS}, supervisors="boss")
    with pytest.raises(ConfigError, match="breakpoint_tools must be a list of names"):
        scripted_swarm({"boss": BOSS}, breakpoint_tools="plan")


def test_a_wrong_script_names_its_agent() -> None:
    with pytest.raises(ConfigError, match="agent 'boss': rule 1 of the script is a when"):
        scripted_swarm({"boss": [when(body="x")]})  # type: ignore[list-item]


async def test_answers_are_for_breakpoint_tools() -> None:
    parts: dict[str, Any] = {"actions": {"boss": [plan]}, "breakpoint_tools": ["plan"]}
    async with scripted_swarm({"boss": BOSS}, **parts) as team:
        with pytest.raises(ConfigError, match=r"answers has 'plam'.* Did you mean 'plan'"):
            await team.run("Go.", answers={"plam": "dig"})
        with pytest.raises(ConfigError, match="answer for 'plan' must be a string or a function"):
            await team.run("Go.", answers={"plan": 3})
        assert (await team.run("Go.", answers={"plan": "dig"})).completed
    async with scripted_swarm({"boss": BOSS}, actions={"boss": [plan]}) as team:
        with pytest.raises(ConfigError, match="not one of the swarm's breakpoint_tools"):
            await team.run("Go.", answers={"plan": "dig"})


async def test_an_outcome_knows_the_names_in_its_swarm() -> None:
    async with scripted_swarm({"boss": BOSS}, actions={"boss": [plan]}) as team:
        outcome = await team.run("Go.")
    assert outcome.calls("plan", by="boss") == [{}]
    assert outcome.calls("send_request") == []
    assert [mail["message"]["body"] for mail in outcome.mail(sender="tester")] == ["Go."]
    assert len(outcome.mail(to="all")) == 1
    for sender in {mail["message"]["sender"]["address"] for mail in outcome.mail()}:
        assert outcome.mail(sender=sender)
    for wrong, text in (
        ({"tool": "plam"}, "no tool 'plam' in the swarm. Did you mean 'plan'"),
        ({"by": "bos"}, "no agent 'bos' in the swarm. Did you mean 'boss'"),
    ):
        with pytest.raises(ConfigError, match=text):
            outcome.calls(**wrong)
    with pytest.raises(ConfigError, match=r"no sender 'bos' in the swarm\. Did you mean 'boss'"):
        outcome.mail(sender="bos")
    with pytest.raises(ConfigError, match="no recipient 'bos' in the swarm"):
        outcome.mail(to="bos")
