"""What the caller of a run lends the entrypoint: checked, shown, pausing, and taken back."""

import asyncio
from typing import Any

import pytest

from mail.core.tools.offer import NO_OFFER, Offer
from mail.db.memory import MemoryStore
from mail.db.records import Owner
from mail.errors import ProtocolError
from mail.llm.script import Steps, call
from mail.llm.script_view import ScriptView
from mail.testing import ScriptedSwarm, scripted_swarm


def tool(name: str) -> dict[str, Any]:
    """Return a function without arguments."""
    return {"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}}


OFFER = Offer(tools=(tool("ping"),), instructions="Be kind.")


def lead(view: ScriptView) -> Steps:
    """Ping when it can, and then tell what the model was offered."""
    if "ping" in view.tools and not view.result_of("ping"):
        return call("ping")
    if view.mail_from("helper") is None and "ask" in view.mails[0].body:
        return call("send_request", target="helper", subject="s", body="b")
    return call("task_complete", finish_message=f"{sorted(view.tools)} {view.system}")


def helper(view: ScriptView) -> Steps:
    """Try the tool that was not lent to it."""
    if view.sender == "lead":
        return call("ping")
    return call("send_response", target="lead", subject="s", body=view.body)


async def finish(kit: ScriptedSwarm, body: str, **options: Any) -> Any:
    """Post a message and return how its run ended."""
    run = await kit.swarm.open_run(body, task_id="t", **options)
    return await run.result(10)


def text_of(result: Any) -> str:
    """Return the final text of a run."""
    return str(result.message["message"]["body"])


def test_an_offer_comes_back_from_json_as_it_was() -> None:
    offer = Offer(tools=(tool("ping"),), instructions="x", force="ping", parallel=False)
    assert Offer.from_json(offer.to_json()) == offer
    assert NO_OFFER.names == frozenset()


async def test_an_offer_holds_for_its_run_with_its_pauses_and_no_longer() -> None:
    async with scripted_swarm({"lead": lead, "helper": helper}) as kit:
        paused = await finish(kit, "go", offer=OFFER)
        assert [found["name"] for found in paused.breakpoints] == ["ping"]
        done = await finish(
            kit, "", resume_from="breakpoint_tool_call", breakpoint_tool_call_result="pong"
        )
        assert "'ping'" in text_of(done)
        assert text_of(done).endswith("Be kind.")
        later = await finish(kit, "go on")
        assert "'ping'" not in text_of(later)
        assert "Be kind." not in text_of(later)


async def test_a_resume_can_bring_another_offer() -> None:
    async with scripted_swarm({"lead": lead, "helper": helper}) as kit:
        await finish(kit, "go", offer=OFFER)
        other = Offer(tools=(tool("pong"),))
        done = await finish(
            kit,
            "",
            resume_from="breakpoint_tool_call",
            breakpoint_tool_call_result="x",
            offer=other,
        )
        assert "'pong'" in text_of(done)
        assert "'ping'" not in text_of(done)


async def test_only_the_entrypoint_has_it() -> None:
    async with scripted_swarm({"lead": lead, "helper": helper}) as kit:
        paused = await finish(kit, "ask the helper", offer=OFFER)
        assert [found["name"] for found in paused.breakpoints] == ["ping"]
        done = await finish(
            kit, "", resume_from="breakpoint_tool_call", breakpoint_tool_call_result="pong"
        )
        assert str(done.status) == "completed"
        assert any("there is no tool named 'ping'" in text for text in kit.models["helper"].shown)


@pytest.mark.parametrize(
    ("offer", "problem"),
    [
        (Offer(tools=(tool("send_request"),)), "already has a tool named 'send_request'"),
        (Offer(tools=(tool("ping"), tool("ping"))), "unique name"),
        (Offer(tools=({"type": "function"},)), "unique name"),
        (Offer(tools=(tool("ping"),), force="pong"), "not one of the offered"),
        (Offer(force="required"), "no tool is offered"),
    ],
)
async def test_an_offer_that_cannot_work_is_refused(offer: Offer, problem: str) -> None:
    async with scripted_swarm({"lead": lead, "helper": helper}) as kit:
        with pytest.raises(ProtocolError, match=problem):
            await finish(kit, "go", offer=offer)
        assert await kit.swarm.read_task("t") is None


async def test_a_message_into_a_running_task_cannot_bring_another_offer() -> None:
    entered, gate = asyncio.Event(), asyncio.Event()

    async def slow(view: ScriptView) -> Steps:
        entered.set()
        await gate.wait()
        return lead(view)

    async with scripted_swarm({"lead": slow, "helper": helper}) as kit:
        first = await kit.swarm.open_run("go", task_id="t", offer=OFFER)
        await entered.wait()
        for offer in (NO_OFFER, OFFER):
            with pytest.raises(ProtocolError, match="still in progress"):
                await kit.swarm.open_run("me, too", task_id="t", offer=offer)
        gate.set()
        paused = await first.result(10)
        assert [found["name"] for found in paused.breakpoints] == ["ping"]


async def test_the_offer_of_a_run_that_is_over_is_kept_no_longer() -> None:
    store = MemoryStore()

    async def kept(kit: ScriptedSwarm) -> list[str]:
        owner = Owner(kit.swarm.name, "user", kit.swarm.user_id)
        return [row.value for row in await store.search_memories(owner, ("mail:offers",))]

    async with scripted_swarm({"lead": lead, "helper": helper}, store=store) as kit:
        await finish(kit, "go", offer=OFFER)
        assert await kept(kit) == [OFFER.to_json()]
        await finish(kit, "", resume_from="breakpoint_tool_call", breakpoint_tool_call_result="x")
        assert await kept(kit) == [NO_OFFER.to_json()]
        await kit.swarm.open_run("go", task_id="u", offer=OFFER)
        await kit.swarm.cancel_task("u")
        assert await kept(kit) == [NO_OFFER.to_json()] * 2
