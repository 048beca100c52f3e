"""Resuming a library swarm: every way to post takes the same payloads."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from mail import MAILAction, MAILSwarm, MAILSwarmTemplate
from mail.core.agents import AgentOutput
from mail.errors import AlreadyAnswered, BreakpointError
from mail.testing import tool_calls
from tests.api.support import template_of

Post = Callable[..., Awaitable[str]]


async def consult(messages: list[dict[str, Any]], tool_choice: Any) -> AgentOutput:
    """Pause on two calls, then finish with their results."""
    results = [m["content"] for m in messages if m.get("role") == "tool"]
    if results:
        done = ("task_complete", {"finish_message": " | ".join(results)})
        return None, tool_calls(done, prefix="done")
    return None, tool_calls(("review", {"n": 1}), ("review", {"n": 2}), prefix="ask")


@pytest.fixture
async def swarm() -> Any:
    review = MAILAction("review", "Ask a person.", {}, lambda args: "never run")
    agents = [template_of(consult, actions=[review])]
    template = MAILSwarmTemplate(
        "solo", "1.0.0", agents, entrypoint="boss", breakpoint_tools=["review"]
    )
    made = template.instantiate({}, user_id="ann", print_llm_streams=False)
    yield made
    await made.shutdown()


def resuming(payload: object) -> dict[str, Any]:
    return {
        "task_id": "t1",
        "resume_from": "breakpoint_tool_call",
        "breakpoint_tool_call_result": payload,
    }


async def waiting(swarm: MAILSwarm, **options: Any) -> str:
    return (await swarm.post_message("", **options))[0]["message"]["body"]


async def running(swarm: MAILSwarm, **options: Any) -> str:
    return (await swarm.post_message_and_run("", **options))[0]["message"]["body"]


async def opening(swarm: MAILSwarm, **options: Any) -> str:
    run = await swarm.open_run("", **options)
    return (await run.result(5)).message["message"]["body"]


async def reading(swarm: MAILSwarm, **options: Any) -> str:
    run = await swarm.open_run("", streamed=True, **options)
    return [event async for event in run.events()][-1].extra["response"]


async def streaming(swarm: MAILSwarm, **options: Any) -> str:
    response = await swarm.post_message_stream("", **options)
    last = [event async for event in response.body_iterator][-1]
    return json.loads(str(last.data))["response"]


WAYS = [waiting, running, opening, reading, streaming]


@pytest.mark.parametrize("as_text", [False, True], ids=["objects", "json"])
@pytest.mark.parametrize("way", WAYS)
async def test_every_way_to_post_resumes_in_parts(swarm, way: Post, as_text: bool) -> None:
    await swarm.post_message("please", task_id="t1")
    first: Any = [{"call_id": "ask_1", "content": {"ok": True}}]
    half = await way(swarm, **resuming(json.dumps(first) if as_text else first))
    assert [call["call_id"] for call in json.loads(half)] == ["ask_0"]
    second = "yes" if as_text else {"content": "yes"}
    assert await way(swarm, **resuming(second)) == '{"ok": true} | yes'


@pytest.mark.parametrize("way", WAYS)
async def test_every_way_to_post_refuses_the_same(swarm, way: Post) -> None:
    await swarm.post_message("please", task_id="t1")
    for wrong in ("x", {"content": "x"}, {"call_id": "no", "content": "x"}, None):
        with pytest.raises(BreakpointError, match="open calls: 'ask_0', 'ask_1'"):
            await way(swarm, **resuming(wrong))
    both = [{"call_id": f"ask_{n}", "content": "x"} for n in (0, 1)]
    assert await way(swarm, **resuming(both)) == "x | x"
    with pytest.raises(AlreadyAnswered):
        await way(swarm, **resuming(both))
