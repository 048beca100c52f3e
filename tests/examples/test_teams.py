"""The example swarms, offline: what each answers, and which mail goes between its agents."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from mail import MAILAgentTemplate, MAILSwarm, MAILSwarmTemplate
from mail.core.events import TaskEvent
from mail.core.render import build_mail_xml
from mail.examples import analyst_dummy, consultant_dummy, data_analysis, research, support
from mail.examples.scripts import ALPHA_SUPERVISOR
from mail.llm.script_view import ScriptView

SWARMS = Path(__file__).parents[2] / "swarms.json"
COMPLETE = "::task_complete::"

ARGUMENTS = {"days_ahead", "precision", "finish_message", "ships", "cargo", "month", "quay"}

Mail = tuple[str, str, str]
"""Kind of message, sender, recipients."""


def swarm_of(name: str) -> MAILSwarm:
    template = MAILSwarmTemplate.from_swarm_json_file(name, SWARMS)
    return template.instantiate({"user_token": "dummy"}, print_llm_streams=False)


async def ask(name: str, question: str, **more: Any) -> tuple[str, list[Mail], list[TaskEvent]]:
    """Ask a swarm; return its answer, the mail between its agents, and the events."""
    swarm = swarm_of(name)
    response, events = await swarm.post_message(question, show_events=True, **more)
    await swarm.shutdown()
    assert response["message"]["subject"] == COMPLETE
    return response["message"]["body"], exchanged(events), events


def exchanged(events: list[TaskEvent]) -> list[Mail]:
    """Return the mail between agents in the order in which it was sent."""
    found = []
    for event in events:
        if event.kind != "new_message":
            continue
        message = event.extra["full_message"]
        sender = message["message"]["sender"]
        if sender["address_type"] != "agent" or message["msg_type"] == "broadcast_complete":
            continue
        to = message["message"].get("recipients") or [message["message"]["recipient"]]
        names = ",".join(recipient["address"] for recipient in to)
        found.append((message["msg_type"], sender["address"], names))
    return found


def actions(events: list[TaskEvent]) -> list[str]:
    """Return the actions that were run."""
    return [event.extra["tool_name"] for event in events if event.kind == "action_complete"]


def tools_of(function: Any) -> Any:
    """Return the declarations that an agent's model gets."""
    for name in ("supervisor_fn", "action_agent_fn"):
        function = getattr(function, name, function)
    return function.tool_specs


def mail_of(body: str, kind: str, sender: str, subject: str = "x") -> dict[str, str]:
    """Return mail as an agent finds it in its history."""
    address: Any = {"address_type": kind, "address": sender}
    here: Any = {"address_type": "agent", "address": "supervisor"}
    message: Any = {"sender": address, "recipient": here, "subject": subject, "body": body}
    times: Any = {"id": "m", "timestamp": "2026-01-01T10:00:00+00:00", "msg_type": "request"}
    more = {"task_id": "t", "request_id": "r"}
    return build_mail_xml({**times, "message": {**message, **more}})


def notice(body: str, subject: str = "::tool_call_error::") -> dict[str, str]:
    """Return what the system tells an agent."""
    return mail_of(body, "system", "swarm-alpha", subject)


# --- two swarms --------------------------------------------------------------------------------

ASKED = mail_of("What will the weather be in Paris tomorrow, and what is 17 * 23?", "user", "ines")
FORECAST = mail_of("Weather in Paris: sunny.", "agent", "weather")
SUM = mail_of("17 * 23 = 391.", "agent", "math@swarm-beta")


@pytest.mark.parametrize(
    ("since", "expected"),
    [
        ([], [("send_request", "weather"), ("send_request", "math@swarm-beta")]),
        ([FORECAST], [("await_message", None)]),
        (
            [notice("Your message to math@swarm-beta has not …", "::delivery_delayed::"), FORECAST],
            [("await_message", None)],
        ),
        ([notice("… to math@swarm-beta …", "::delivery_delayed::")], [("await_message", None)]),
        ([notice("send_request unknown swarm 'swarm-beta'")], [("await_message", None)]),
        ([SUM, FORECAST], "Weather in Paris: sunny. 17 * 23 = 391."),
        (
            [FORECAST, notice("Your message to math@swarm-beta could not be delivered: gone")],
            "Weather in Paris: sunny. I got no answer from 'math@swarm-beta' (Your message to "
            "math@swarm-beta could not be delivered: gone).",
        ),
        (
            [notice("authentication token missing for swarm 'swarm-beta'"), FORECAST],
            "Weather in Paris: sunny. I got no answer from 'math@swarm-beta' (authentication "
            "token missing for swarm 'swarm-beta').",
        ),
    ],
)
def test_the_supervisor_of_alpha_waits_for_beta_and_says_what_it_lacks(
    since: list[dict[str, str]], expected: Any
) -> None:
    calls = ALPHA_SUPERVISOR(ScriptView([ASKED, *since]))  # type: ignore[operator]
    if isinstance(expected, str):
        [end] = calls
        assert end.arguments == {"finish_message": expected}
    else:
        assert [(one.name, one.arguments.get("target")) for one in calls] == expected


# --- delegation --------------------------------------------------------------------------------


async def test_a_question_goes_down_the_chain_and_the_advice_comes_back() -> None:
    answer, mail, events = await ask(
        "consulting",
        "We have 200 orders a week, growing 8 percent a month. What should we plan for in 12 "
        "months?",
    )
    assert answer == "Plan for 503.6 (2.5 times today's 200): add capacity now."
    assert mail == [
        ("request", "supervisor", "consultant"),
        ("request", "consultant", "analyst"),
        ("response", "analyst", "consultant"),
        ("response", "consultant", "supervisor"),
    ]
    assert actions(events) == ["project_growth"]


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("5000 members, shrinking by 10% a year: and in 4 years?", "cut back"),
        ("120 seats, growing 1.5 % a year. In 10 years?", "keep things as they are"),
        ("10 % of 50, in 999 months?", "could not project it"),
        ("Hello!", "I need a figure"),
    ],
)
async def test_other_questions_for_advice(question: str, expected: str) -> None:
    answer, _, _ = await ask("consulting", question)
    assert expected in answer


async def test_a_consultant_without_an_analyst_says_so() -> None:
    boss = MAILAgentTemplate.from_example("supervisor", comm_targets=["consultant"])
    boss.agent_params["llm"] = "scripted/mail.examples.scripts.consulting:LEAD"
    consultant = MAILAgentTemplate.from_example("consultant", comm_targets=["supervisor"])
    template = MAILSwarmTemplate(
        name="lonely", version="1", agents=[boss, consultant], actions=[], entrypoint="supervisor"
    )
    swarm = template.instantiate({}, print_llm_streams=False)
    response, _ = await swarm.post_message("200 orders, growing 8 % a month. In 12 months?")
    await swarm.shutdown()
    assert "I could not get the figure" in response["message"]["body"]


# --- parallel requests -------------------------------------------------------------------------


async def test_two_readers_are_asked_at_once_and_cite_what_they_find() -> None:
    answer, mail, events = await ask(
        "research", "Why are spring tides so large, and how do salt marshes protect the coast?"
    )
    assert "These are called spring tides." in answer
    assert "[tides:2]" in answer
    assert "takes the strength out of waves" in answer
    assert "[salt_marshes:2]" in answer
    assert mail[:2] == [("request", "lead", "reader_a"), ("request", "lead", "reader_b")]
    assert sorted(mail[2:]) == [("response", "reader_a", "lead"), ("response", "reader_b", "lead")]
    assert sorted(actions(events)) == ["read_note"] * 2 + ["search_notes"] * 2


async def test_one_part_is_for_one_reader() -> None:
    answer, mail, _ = await ask("research", "What holds dunes together?")
    assert answer.startswith("Marram grass holds dunes together.")
    assert answer.endswith("[dunes:2]")
    assert [to for _, _, to in mail] == ["reader_a", "lead"]


async def test_what_the_notes_do_not_say_is_said() -> None:
    answer, _, _ = await ask("research", "Who was Napoleon?")
    assert answer == "The notes say nothing about: Who was Napoleon."


# --- a breakpoint ------------------------------------------------------------------------------


@pytest.mark.parametrize("decision", ["approved, on its way", "declined: the return came too late"])
async def test_a_refund_waits_for_a_person_and_the_decision_is_reported(decision: str) -> None:
    swarm = swarm_of("support")
    run = await swarm.open_run("My blanket, A-1003, has a hole. I want a refund.", task_id="t")
    paused = await run.result()
    assert paused.status == "paused"
    [opened] = paused.breakpoints
    assert opened["name"] == "refund_order"
    assert '"order":"A-1003","amount":"79.50 EUR"' in opened["arguments"]
    response, events = await swarm.post_message(
        "",
        task_id="t",
        show_events=True,
        resume_from="breakpoint_tool_call",
        breakpoint_tool_call_result={"call_id": opened["call_id"], "content": decision},
    )
    await swarm.shutdown()
    answer = response["message"]["body"]
    assert "a wool blanket for 79.50 EUR, delivered." in answer
    assert f"About the refund: {decision}" in answer
    assert exchanged(events) == [
        ("request", "desk", "orders"),
        ("response", "orders", "desk"),
        ("request", "desk", "billing"),
        ("response", "billing", "desk"),
    ]
    assert actions(events) == ["look_up_order"]


@pytest.mark.parametrize(
    ("question", "expected", "asked"),
    [
        ("Where is my order A-1002?", "two coffee mugs for 18.80 EUR, on its way.", ["orders"]),
        ("I want a refund for A-1002!", "on its way", ["orders"]),
        ("I want my money back for A-9999", "there is no order 'A-9999'", ["orders"]),
        ("Where are my mugs?", "Which order is it about?", []),
    ],
)
async def test_nobody_is_asked_for_a_refund_that_cannot_be(
    question: str, expected: str, asked: list[str]
) -> None:
    answer, mail, _ = await ask("support", question)
    assert expected in answer
    assert [to for kind, _, to in mail if kind == "request"] == asked


async def test_without_the_breakpoint_no_money_moves() -> None:
    template = MAILSwarmTemplate.from_swarm_json_file("support", SWARMS)
    template.breakpoint_tools = []
    swarm = template.instantiate({}, print_llm_streams=False)
    response, _ = await swarm.post_message("Please refund A-1003.")
    await swarm.shutdown()
    assert "nothing was refunded" in response["message"]["body"]


# --- a broadcast -------------------------------------------------------------------------------


async def test_everybody_hears_the_question_and_those_who_can_answer_it() -> None:
    answer, mail, events = await ask(
        "data_analysis", "How much cargo came in, and which quay had more?"
    )
    assert "cargo: count 12, sum 9071, mean 755.92, median 737.5, min 431, max 1102" in answer
    assert "sum of cargo by quay: north 5611, south 3460." in answer
    assert mail[0] == ("broadcast", "lead", "all")
    assert sorted(mail[1:]) == [
        ("response", "comparer", "lead"),
        ("response", "statistician", "lead"),
    ]
    assert sorted(actions(events)) == ["compare_groups", "describe_column"]


async def test_who_has_nothing_to_say_keeps_the_broadcast_in_mind_and_silent() -> None:
    answer, mail, events = await ask("data_analysis", "Describe the ships.")
    assert answer.startswith("ships: count 12, sum 521")
    assert mail == [("broadcast", "lead", "all"), ("response", "statistician", "lead")]
    called = [(e.extra["caller"], e.extra["tool_name"]) for e in events if e.kind == "tool_call"]
    assert ("comparer", "acknowledge_broadcast") in called


async def test_a_question_about_something_else_is_answered_without_mail() -> None:
    answer, mail, _ = await ask("data_analysis", "Hello!")
    assert answer.startswith("The table has the columns ships and cargo")
    assert mail == []


# --- all of them -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["consulting", "research", "support", "data_analysis"])
async def test_the_limit_of_messages_still_gives_an_answer(name: str) -> None:
    question = (
        "200 orders, growing 8 % a month, in 12 months? What about tides? A-1003, refund. Cargo?"
    )
    answer, _, _ = await ask(name, question, max_steps=2)
    assert "I got no answer from" in answer


@pytest.mark.parametrize(
    ("package", "name", "swarm", "agent"),
    [
        (consultant_dummy, "consultant", "consulting", "consultant"),
        (analyst_dummy, "analyst", "consulting", "analyst"),
        (research, "research", "research", "reader_a"),
        (support, "support", "support", "orders"),
        (data_analysis, "data_analysis", "data_analysis", "statistician"),
    ],
)
def test_the_template_of_an_example_is_the_one_in_the_swarms_file(
    package: Any, name: str, swarm: str, agent: str
) -> None:
    made = MAILAgentTemplate.from_example(name, comm_targets=["boss"])
    shipped = MAILSwarmTemplate.from_swarm_json_file(swarm, SWARMS)
    [other] = [template for template in shipped.agents if template.name == agent]
    assert str(other.factory).removeprefix("python::") == package.EXAMPLE["factory"]
    assert made.agent_params == other.agent_params
    assert [a.name for a in made.actions] == [a.name for a in other.actions]
    assert made.instantiate({}).function is not None


def test_the_prompts_are_complete_and_name_only_tools_and_agents_that_are_there() -> None:
    for entry in json.loads(SWARMS.read_text(encoding="utf-8")):
        if entry["name"] == "email_assistant":
            continue  # its prompts are filled at each call; see test_email_assistant.py
        template = MAILSwarmTemplate.from_swarm_json_file(entry["name"], SWARMS)
        for agent in template.instantiate({}, print_llm_streams=False).agents:
            prompt = agent.agent_params["system"]
            assert len(prompt) > 200
            assert not re.search(r"[{}<>]|TODO|FIXME|\.\.\.", prompt), agent.name
            offered = {tool["function"]["name"] for tool in tools_of(agent.function)}
            known = offered | set(agent.comm_targets) | ARGUMENTS
            assert set(re.findall(r"`(\w+)`", prompt)) <= known, (entry["name"], agent.name)
