"""`mail.testing` as somebody uses it who tests a swarm of their own."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import ClientSession

from mail import Approval, MAILAction, action
from mail.core.tasks import TaskState
from mail.errors import ApprovalError, ConfigError, TaskTimeout
from mail.llm import call, fail, otherwise, say, when
from mail.testing import (
    FakeClock,
    LoopbackPeer,
    RecordingModel,
    ScriptedSwarm,
    assert_not_shown,
    assert_shown,
    run_until_complete,
    scripted_swarm,
    shown_to,
)

BOSS = [
    when(mail_from="clerk").then(call("task_complete", finish_message="we have 12")),
    otherwise(call("send_request", target="clerk", subject="Stock", body="apples & pears?")),
]


@action(parameters={"type": "object", "properties": {"what": {"type": "string"}}})
async def count(args: dict[str, str]) -> str:
    """Count something."""
    return f"12 {args['what']}"


@action(parameters={"type": "object", "properties": {"price": {"type": "integer"}}})
async def approve(args: dict[str, int]) -> str:
    """Ask a person."""
    raise AssertionError("a breakpoint is not run")


CLERK = [
    when(tool_result="count").then(
        call("send_response", target="boss", subject="Re: Stock", body="12 apples")
    ),
    otherwise(call("count", what="apples")),
]


async def test_a_conversation_is_run_and_looked_at() -> None:
    async with scripted_swarm({"boss": BOSS, "clerk": CLERK}, actions={"clerk": [count]}) as shop:
        outcome = await shop.run("How many apples?", task_id="stock")
        assert (outcome.body, outcome.status) == ("we have 12", TaskState.COMPLETED)
        assert outcome.completed
        assert outcome.task.task_id == "stock"
        assert outcome.calls("count", by="clerk") == [{"what": "apples"}]
        assert [m["message"]["body"] for m in outcome.mail(sender="clerk", to="boss")] == [
            "12 apples"
        ]
        assert_shown(shop, "clerk", "apples & pears?")
        assert_shown(shop, "clerk", "12 apples")
        assert_not_shown(shop, "clerk", "How many apples?")
        assert any("Count something" not in text for text in shown_to(shop, "clerk"))


async def test_the_assertions_fail_with_what_was_shown() -> None:
    async with scripted_swarm({"boss": BOSS, "clerk": CLERK}, actions={"clerk": [count]}) as shop:
        await shop.run("How many apples?")
        with pytest.raises(AssertionError, match=r"(?s)was not shown 'bananas', but:.*apples"):
            assert_shown(shop, "clerk", "bananas")
        with pytest.raises(AssertionError, match=r"(?s)was shown 'apples'"):
            assert_not_shown(shop, "clerk", "apples")
        with pytest.raises(AssertionError, match="no agent 'clark'"):
            assert_shown(shop, "clark", "apples")


async def test_breakpoints_are_answered_or_left_open() -> None:
    script = [
        when(tool_result="approve").then(call("task_complete", finish_message="bought")),
        otherwise(call("approve", price=7)),
    ]
    seen = []

    def decide(arguments: dict[str, int]) -> str:
        seen.append(arguments)
        return "yes"

    async with scripted_swarm(
        {"buyer": script}, actions={"buyer": [approve]}, breakpoint_tools=["approve"]
    ) as shop:
        outcome = await shop.run("Buy it", answers={"approve": decide})
        assert (outcome.body, seen) == ("bought", [{"price": 7}])
        assert_shown(shop, "buyer", "yes")
        open_end = await shop.run("Buy it")
        assert open_end.status is TaskState.PAUSED
        assert [call["name"] for call in open_end.breakpoints] == ["approve"]


def office(**approval: Any) -> ScriptedSwarm:
    """Return a swarm whose clerk may send mail once somebody has approved it."""
    send = MAILAction(
        "send",
        "Send a mail.",
        {"type": "object", "properties": {"to": {"type": "string"}}},
        lambda args: f"sent to {args['to']}",
        approval=Approval(**approval),
    )
    return scripted_swarm({"clerk": SECRETARY}, actions={"clerk": [send]})


SECRETARY = [
    when(tool_result="send").then(
        lambda view: call(
            "task_complete", finish_message=view.result_of("send").removeprefix("SUCCESS: ")
        )
    ),
    when(body="both").then([call("send", to="Ann"), call("send", to="Bob")]),
    otherwise(call("send", to="Ann")),
]
EDIT = {"type": "edit", "args": {"action": "send", "args": {"to": "Eve"}}}


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        ("accept", "sent to Ann"),
        ({"type": "accept"}, "sent to Ann"),
        (EDIT, "sent to Eve"),
        ({"type": "response", "args": "not today"}, "not today"),
        (lambda args: "accept" if args["to"] == "Ann" else "ignore", "sent to Ann"),
    ],
)
@pytest.mark.parametrize("approver", ["owner", "admin", "user:bob", "participant:editor"])
async def test_approvals_are_answered_by_the_name_of_the_tool(
    answer: Any, body: str, approver: str
) -> None:
    async with office(approvers=[approver]) as team:
        outcome = await team.run("Write", answers={"send": answer})
        assert (outcome.body, outcome.status) == (body, TaskState.COMPLETED)
        assert outcome.message["message"]["body"] == body
        assert outcome.ended_by is None


async def test_each_of_several_held_calls_is_answered_and_ignoring_one_ends_the_run() -> None:
    asked = []

    def decide(args: dict[str, str]) -> str:
        asked.append(args["to"])
        return "accept"

    async with office() as team:
        assert (await team.run("both", answers={"send": decide})).completed
        assert sorted(asked) == ["Ann", "Bob"]
        ignored = await team.run("both", answers={"send": "ignore"})
        assert ignored.completed and "ignored" in ignored.body
        assert (await team.run("Write")).status is TaskState.PAUSED
        with pytest.raises(ApprovalError, match="type must be one of accept, edit"):
            await team.run("Write", answers={"send": "yes, please"})


async def test_an_outcome_tells_that_the_step_limit_ended_the_run() -> None:
    async with scripted_swarm({"boss": [otherwise(call("help"))]}) as shop:
        assert (await shop.run("hello", max_steps=2)).ended_by == "step_limit"


async def test_a_failure_is_an_outcome_and_a_hang_is_an_error_that_says_what_happened() -> None:
    async with scripted_swarm({"boss": [otherwise(fail("no credit", status=402))]}) as shop:
        outcome = await run_until_complete(shop.swarm, "hello")
        assert (outcome.status, outcome.subject) == (TaskState.FAILED, "::task_error::")
        assert "no credit" in outcome.body
    slow = [otherwise(say("never", delay=3600.0))]
    async with scripted_swarm({"boss": slow}) as shop:
        with pytest.raises(TaskTimeout) as hang:
            await shop.run("hello", timeout=0.05)
        assert "new_message" in "".join(hang.value.__notes__)


async def test_models_that_are_there_already_can_be_recorded() -> None:
    inner = RecordingModel([otherwise(call("task_complete", finish_message="hi"))])
    async with scripted_swarm({"solo": inner}) as shop:
        assert (await shop.run("hello")).body == "hi"
    assert len(inner.requests) == len(shop.models["solo"].requests) == 1
    assert inner.requests[0].tool_choice == "required"


async def test_a_swarm_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match="boss"):
        scripted_swarm({"boss": BOSS}, comm_targets={"boss": ["nobody"]})


async def test_a_fake_clock_dates_messages_and_repeats_its_ids() -> None:
    clock = FakeClock()
    async with scripted_swarm(
        {"solo": [otherwise(call("task_complete", finish_message="hi"))]}, clock=clock
    ) as shop:
        first = await shop.run("hello", task_id="t")
        clock.advance(hours=1)
        second = await shop.run("hello", task_id="u")
    assert first.message["timestamp"] == "2026-01-01T12:00:00+00:00"
    assert second.message["timestamp"] == "2026-01-01T13:00:00+00:00"
    assert second.task.start_time - first.task.start_time == timedelta(hours=1)
    assert FakeClock().new_id() == FakeClock().new_id() != FakeClock(seed=1).new_id()


async def test_a_loopback_peer_answers_like_a_server_and_remembers() -> None:
    async with LoopbackPeer(name="archive") as peer, ClientSession() as session:
        peer.swarms = [peer.swarm_entry(keywords=["books"])]
        async with asyncio.timeout(20):
            root = await (await session.get(f"{peer.url}/")).json()
            swarms = await (await session.get(f"{peer.url}/swarms")).json()
            taken = await session.post(
                f"{peer.url}/interswarm/forward", json={"message": {"payload": {"task_id": "t"}}}
            )
            assert (await taken.json())["task_id"] == "t"
            assert (root["name"], root["swarm"]["name"]) == ("mail", "archive")
            assert swarms["swarms"][0]["keywords"] == ["books"]
            assert (await session.get(f"{peer.url}/nowhere")).status == 404
            peer.failing = 503
            assert (await session.get(f"{peer.url}/health")).status == 503
        assert [seen.path for seen in peer.requests][:2] == ["/", "/swarms"]
