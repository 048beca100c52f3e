"""Agents that write to their teammates while they work on a task."""

import json
from typing import Any

import pytest

from mail.core.agents import AgentCore
from mail.core.runtime import MAILRuntime
from mail.core.teams import Teams
from mail.testing import agent_from
from tests.spec.kit import Call, Part, done, messages_of
from tests.support.swarm import runtime_of, supervisor, user_message

TEAM = {"id": "alpha", "lead": "supervisor", "members": ["writer", "editor"]}
OTHERS = {"id": "beta", "lead": "outsider", "members": ["editor"]}


def tell(to: str, message: str = "hello", team: str = "alpha", **more: Any) -> Call:
    """Return a call of ``teammate_message``."""
    return "teammate_message", {"teamId": team, "to": to, "message": message, **more}


def tell_all(message: str = "hello", team: str = "alpha", **more: Any) -> Call:
    """Return a call of ``teammate_broadcast``."""
    return "teammate_broadcast", {"teamId": team, "message": message, **more}


def team(
    *, enabled: bool = True, options: dict[str, Any] | None = None, **parts: Any
) -> MAILRuntime:
    """Return a runtime of the supervisor, writer and editor of a team, and an outsider.

    None but the supervisor has a communication target.
    """
    names = ("writer", "editor", "outsider")
    agents = {"supervisor": supervisor(agent_from(parts["supervisor"], "s"), names)}
    for name in names:
        part = parts.get(name, Part())
        agents[name] = AgentCore(function=agent_from(part, name), comm_targets=[])
    teams = Teams.of([TEAM, OTHERS], enabled=enabled)
    return runtime_of(agents, teams=teams, **(options or {}))


def refused(part: Part) -> list[str]:
    """Return the errors of the team tools that a part was shown."""
    found = [json.loads(text) for text in part.results if '"error"' in text]
    assert all(one.keys() == {"status", "error"} and one["status"] == "error" for one in found)
    return [one["error"] for one in found]


def sent(messages: list[dict[str, Any]], text: str) -> dict[str, Any]:
    """Return the message with a text."""
    (found,) = [one for one in messages if one["message"]["body"] == text]
    return found


async def test_a_message_and_its_answer_travel_between_teammates_without_targets() -> None:
    lead = Part([tell("writer", "write!")], [done()])
    writer = Part([tell("editor", "what about?")], [tell("lead", "a poem")])
    editor = Part([tell("writer", "the sea")])
    runtime = team(supervisor=lead, writer=writer, editor=editor)
    await runtime.submit_and_wait(user_message())
    assert (writer.read, editor.read) == (["write!", "the sea"], ["what about?"])
    assert lead.read[-1] == "a poem"
    told = [one["message"] | {"kind": one["msg_type"]} for one in await messages_of(runtime)]
    kinds = {one["body"]: (one["kind"], one["sender"]["address"]) for one in told}
    assert kinds["write!"] == ("request", "supervisor")
    assert kinds["the sea"] == ("response", "editor")  # it answers the open request
    assert kinds["a poem"] == ("response", "writer")
    await runtime.shutdown()


async def test_the_result_names_the_message_that_is_stored() -> None:
    lead = Part([tell("writer", "write!")], [done()])
    writer = Part([tell("lead", "a poem")])
    runtime = team(supervisor=lead, writer=writer)
    await runtime.submit_and_wait(user_message())
    (result,) = [json.loads(text) for text in lead.results]
    message = sent(await messages_of(runtime), "write!")
    assert result == {"messageId": message["id"], "delivered": True, "state": "stored"}
    assert message["message"]["subject"] == "Team alpha: from lead"
    await runtime.shutdown()


async def test_an_urgent_message_interrupts() -> None:
    lead = Part([tell("writer", "now!", priority="urgent")], [done()])
    writer = Part([tell("lead", "yes", priority="urgent")])
    runtime = team(supervisor=lead, writer=writer)
    await runtime.submit_and_wait(user_message())
    messages = await messages_of(runtime)
    assert {sent(messages, text)["msg_type"] for text in ("now!", "yes")} == {"interrupt"}
    await runtime.shutdown()


async def test_a_broadcast_has_one_id_and_reaches_all_with_the_lead() -> None:
    lead = Part([tell("writer", "tell them")], [done()])
    writer = Part([tell_all("friday")], [tell("lead", "told")])
    editor = Part()
    runtime = team(supervisor=lead, writer=writer, editor=editor)
    await runtime.submit_and_wait(user_message())
    (told,) = [json.loads(text) for text in writer.results if "deliveredTo" in text]
    message = sent(await messages_of(runtime), "friday")
    reached = ["writer", "editor", "lead"]
    assert told == {"messageId": message["id"], "deliveredTo": reached, "state": "stored"}
    assert message["msg_type"] == "broadcast"
    assert "friday" in writer.read and editor.read == ["friday"] and "friday" in lead.read
    await runtime.shutdown()


async def test_a_broadcast_can_leave_its_sender_out_and_interrupt() -> None:
    lead = Part([tell("writer", "tell them")], [done()])
    writer = Part([tell_all("friday", excludeSelf=True, priority="urgent"), tell("lead", "told")])
    editor = Part()
    runtime = team(supervisor=lead, writer=writer, editor=editor)
    await runtime.submit_and_wait(user_message())
    assert writer.read == ["tell them"]
    assert sent(await messages_of(runtime), "friday")["msg_type"] == "interrupt"
    await runtime.shutdown()


@pytest.mark.parametrize(
    ("calls", "error"),
    [
        ([tell("writer", team="gamma")], "Team not found."),
        ([tell("editor", team="beta")], "You are not a member of this team."),
        ([tell_all(team="beta")], "You are not a member of this team."),
        ([tell("outsider")], 'Teammate "outsider" not found.'),
        ([tell("supervisor")], 'Teammate "supervisor" not found.'),
    ],
)
async def test_what_the_rules_forbid_is_refused_and_nothing_is_sent(
    calls: list[Call], error: str
) -> None:
    lead = Part(calls, [done()])
    runtime = team(supervisor=lead)
    await runtime.submit_and_wait(user_message())
    assert refused(lead) == [error]
    assert "hello" not in [one["message"]["body"] for one in await messages_of(runtime)]
    await runtime.shutdown()


async def test_nobody_can_write_in_the_name_of_another() -> None:
    lead = Part([tell("writer", "psst", **{"from": "editor", "sender": "editor"})], [done()])
    runtime = team(supervisor=lead, writer=Part([tell("lead")]))
    await runtime.submit_and_wait(user_message())
    message = sent(await messages_of(runtime), "psst")
    assert message["message"]["sender"]["address"] == "supervisor"
    await runtime.shutdown()


async def test_teams_that_are_off_answer_so() -> None:
    lead = Part([tell("writer"), tell_all(team="none")], [done()])
    runtime = team(enabled=False, supervisor=lead)
    await runtime.submit_and_wait(user_message())
    assert refused(lead) == ["Teams are not enabled.", "Teams are not enabled."]
    await runtime.shutdown()


async def test_arguments_that_do_not_fit_are_named() -> None:
    lead = Part([tell("", priority="high")], [done()])
    runtime = team(supervisor=lead)
    await runtime.submit_and_wait(user_message())
    assert lead.results[0].startswith("ERROR: invalid arguments for 'teammate_message'")
    assert "to:" in lead.results[0] and "priority:" in lead.results[0]
    await runtime.shutdown()
