"""Agents that write to their teammates while they work on a task."""

import asyncio
import json
from typing import Any

import pytest

from mail.core.agents import AgentCore
from mail.core.runtime import MAILRuntime
from mail.core.runtime.settings import RuntimeSettings
from mail.core.teams import Teams
from mail.db.store import Store
from mail.errors import AgentError
from mail.testing import agent_from, tool_calls
from tests.spec import kit
from tests.spec.kit import WAIT, Call, done, messages_of
from tests.support.federation import until
from tests.support.swarm import runtime_of, supervisor, user_message

TEAM = {"id": "alpha", "lead": "supervisor", "members": ["writer", "editor"]}
OTHERS = {"id": "beta", "lead": "outsider", "members": ["editor"]}


class Part(kit.Part):
    """What an agent does; called again after a message to its team, it waits for mail."""

    def __call__(self, messages: list[dict[str, Any]], choice: object) -> list[Call]:
        if "Your message is sent. Carry on." in str(messages[-1].get("content")):
            return [WAIT]
        return super().__call__(messages, choice)


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
    functions = {
        name: part if asyncio.iscoroutinefunction(part) else agent_from(part, name)
        for name, part in (dict.fromkeys(names, Part()) | parts).items()
    }
    agents = {"supervisor": supervisor(functions["supervisor"], names)}
    agents |= {name: AgentCore(function=functions[name], comm_targets=[]) for name in names}
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
    (result,) = [json.loads(text) for text in lead.results if "messageId" in text]
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
    lead = Part([tell("writer", "tell them")], [WAIT], [done()])
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
    lead = Part([ask("", timeoutSeconds=-1)], [done()])
    runtime = team(supervisor=lead)
    await runtime.submit_and_wait(user_message())
    assert lead.results[0].startswith("ERROR: invalid arguments for 'teammate_message'")
    assert "to:" in lead.results[0] and "timeoutSeconds:" in lead.results[0]
    await runtime.shutdown()


# --- waiting for a reply --------------------------------------------------------------------------


def ask(to: str, message: str = "what?", **more: Any) -> Call:
    """Return a call of ``teammate_message`` that waits."""
    return tell(to, message, waitForReply=True, **more)


def waited(part: Part) -> dict[str, Any]:
    """Return the result of the only wait of a part."""
    (found,) = [json.loads(text) for text in part.results if '"status"' in text]
    return dict(found)


def waiting(runtime: MAILRuntime) -> bool:
    """Tell whether an agent waits for a teammate, and the store knows it."""
    task = runtime._context.active_tasks.get("task-1")
    return task is not None and any(wait.timer for wait in task.waits.values())


async def test_a_wait_ends_with_the_reply_which_is_no_mail_any_more() -> None:
    lead = Part([ask("writer")], [done()])
    writer = Part([tell("lead", "a poem")])
    runtime = team(supervisor=lead, writer=writer)
    await runtime.submit_and_wait(user_message())
    messages = await messages_of(runtime)
    reply = {"messageId": sent(messages, "a poem")["id"], "from": "writer", "message": "a poem"}
    asked = sent(messages, "what?")["id"]
    told = {"messageId": asked, "delivered": True, "state": "stored"}
    assert waited(lead) == told | {"status": "replied", "reply": reply}
    assert lead.read == ["Hello", ""]  # the second turn goes on with the result
    await runtime.shutdown()


async def test_text_and_other_tools_reply_too() -> None:
    for reply in ([], [("send_response", {"target": "supervisor", "subject": "s", "body": "b"})]):
        lead = Part([ask("writer", priority="urgent")], [done()])

        async def writer(messages: Any, choice: Any, reply: Any = reply) -> Any:
            return None if reply else "a poem", tool_calls(*reply) if reply else []

        runtime = team(supervisor=lead, writer=writer)
        await runtime.submit_and_wait(user_message())
        assert waited(lead)["reply"]["message"] == ("b" if reply else "a poem")
        await runtime.shutdown()


async def test_a_time_out_is_told_and_a_late_reply_comes_once_as_mail() -> None:
    gate = asyncio.Event()
    lead = Part([ask("writer", timeoutSeconds=0.01)], [WAIT], [done()])

    async def writer(messages: Any, choice: Any) -> Any:
        await gate.wait()
        return None, tool_calls(tell("lead", "late"))

    runtime = team(supervisor=lead, writer=writer)
    answer = asyncio.create_task(runtime.submit_and_wait(user_message()))
    await until(lambda: len(lead.shown) == 2)
    assert waited(lead)["status"] == "timeout" and "reply" not in waited(lead)
    gate.set()
    await answer
    assert lead.read.count("late") == 1
    await runtime.shutdown()


async def test_no_time_to_wait_is_a_time_out_at_once() -> None:
    lead = Part([ask("writer", timeoutSeconds=0)], [done()])
    runtime = team(supervisor=lead, writer=Part([tell("lead", "late")]))
    await runtime.submit_and_wait(user_message())
    assert waited(lead)["status"] == "timeout"
    await runtime.shutdown()


async def test_a_wait_that_would_close_a_cycle_is_refused_with_the_path() -> None:
    lead = Part([ask("writer", "begin")], [done()])
    writer = Part([ask("editor", "read it")], [tell("lead", "done with it")])
    editor = Part([ask("lead", "may I?")], [tell("writer", "read")])
    runtime = team(supervisor=lead, writer=writer, editor=editor)
    await runtime.submit_and_wait(user_message())
    assert refused(editor) == [
        "The wait would close a cycle: editor -> supervisor -> writer -> editor. "
        "Send the message without waitForReply."
    ]
    assert "may I?" not in [one["message"]["body"] for one in await messages_of(runtime)]
    assert waited(writer)["reply"]["message"] == "read"
    assert waited(lead)["reply"]["message"] == "done with it"
    await runtime.shutdown()


async def test_of_two_that_would_wait_for_each_other_at_once_one_is_refused() -> None:
    lead = Part([tell("writer", "go"), tell("editor", "go")], [WAIT], [WAIT], [done()])
    writer = Part([ask("editor", timeoutSeconds=30)], [tell("lead", "one"), tell("editor", "x")])
    editor = Part([ask("writer", timeoutSeconds=30)], [tell("writer", "ok")], [tell("lead", "two")])
    runtime = team(supervisor=lead, writer=writer, editor=editor)
    await asyncio.wait_for(runtime.submit_and_wait(user_message()), 20)
    cycles = [text for part in (writer, editor) for text in refused(part)]
    assert len(cycles) == 1 and "close a cycle" in cycles[0]
    await runtime.shutdown()


async def test_an_interrupt_ends_a_wait_and_is_read() -> None:
    lead = Part([tell("writer", "go")], [tell("writer", "stop!", priority="urgent")], [done()])
    writer = Part([tell("lead", "asking"), ask("editor")], [tell("lead", "stopped")])
    runtime = team(supervisor=lead, writer=writer)
    await runtime.submit_and_wait(user_message())
    assert waited(writer)["status"] == "interrupted"
    assert writer.read == ["go", "stop!"]
    await runtime.shutdown()


async def test_a_teammate_that_fails_ends_the_wait() -> None:
    lead = Part([ask("writer")], [done()])

    async def writer(messages: Any, choice: Any) -> Any:
        raise AgentError("no ink")

    runtime = team(supervisor=lead, writer=writer)
    await runtime.submit_and_wait(user_message())
    assert waited(lead)["status"] == "failed" and "no ink" in waited(lead)["error"]
    await runtime.shutdown()


async def test_the_end_of_the_run_ends_waits() -> None:
    lead = Part([tell("writer", "go")], [done()], [tell("writer", "again")], [done()])
    writer = Part([tell("lead", "asking"), ask("editor")], [tell("lead", "more")])
    runtime = team(supervisor=lead, writer=writer)
    await runtime.submit_and_wait(user_message())
    await runtime.submit_and_wait(user_message("and"))
    assert waited(writer)["status"] == "ended" and "again" in writer.read
    await runtime.shutdown()


async def test_others_go_on_meanwhile_and_no_slot_is_taken() -> None:
    lead = Part([tell("editor", "go"), ask("writer")], [done()])
    editor = Part([tell("writer", "now")])
    writer = Part([WAIT], [tell("lead", "a poem")])
    options = {"settings": RuntimeSettings(max_concurrent_turns=1)}
    runtime = team(supervisor=lead, writer=writer, editor=editor, options=options)
    await asyncio.wait_for(runtime.submit_and_wait(user_message()), 20)
    assert waited(lead)["reply"]["message"] == "a poem"
    assert runtime.open_tasks == set()
    await runtime.shutdown()


async def test_a_caller_is_not_asked_for_the_answer_of_a_wait() -> None:
    lead = Part([ask("writer")], [done()])
    gate = asyncio.Event()

    async def writer(messages: Any, choice: Any) -> Any:
        await gate.wait()
        return None, tool_calls(tell("lead", "a poem"))

    runtime = team(supervisor=lead, writer=writer)
    answer = asyncio.create_task(runtime.submit_and_wait(user_message()))
    await until(lambda: waiting(runtime))
    task = await runtime.read_task("task-1")
    assert task is not None and task.breakpoints == [] and task.status == "running"
    gate.set()
    await answer
    await runtime.shutdown()


@pytest.mark.parametrize("late", [False, True])
async def test_a_wait_goes_on_after_a_restart(store: Store, late: bool) -> None:
    gate = asyncio.Event()

    async def away(messages: Any, choice: Any) -> Any:
        await gate.wait()
        raise AssertionError("the first process is gone")

    seconds = 0.2 if late else 60
    first = team(
        supervisor=Part([ask("writer", timeoutSeconds=seconds)]),
        writer=away,
        options={"store": store},
    )
    asked = asyncio.create_task(first.submit_and_wait(user_message()))
    await until(lambda: waiting(first))
    await first.shutdown(grace=0)
    await asyncio.gather(asked, return_exceptions=True)

    lead = Part([WAIT], [done()]) if late else Part([done()])
    open_gate = asyncio.Event()

    async def writer(messages: Any, choice: Any) -> Any:
        await open_gate.wait()
        return None, tool_calls(tell("lead", "a poem"))

    second = team(supervisor=lead, writer=writer, options={"store": store})
    await second.start()
    if late:
        await until(lambda: len(lead.shown) == 1)
        assert waited(lead)["status"] == "timeout"
    open_gate.set()
    await until(lambda: second.open_tasks == set())
    task = await second.read_task("task-1")
    assert task is not None and task.status == "completed"
    if late:
        assert lead.read == ["", "a poem"]
    else:
        assert waited(lead)["reply"]["message"] == "a poem" and lead.read == [""]
    await second.shutdown()
