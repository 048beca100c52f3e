"""Swarms whose agents pause on the breakpoint tool ``review``, and how they are resumed."""

from typing import Any

from mail.core.actions import ActionCore
from mail.core.runtime import MAILRuntime, RunRequest
from mail.core.runtime.waiters import RunResult
from mail.core.tasks import TaskState
from mail.testing import agent_from, tool_calls
from tests.core.runtime.metered import DONE, ask
from tests.support.swarm import runtime_of, supervisor, user_message, worker

REVIEW = ("review", {})
PEERS = ("one", "two")


def answering(call_id: str, content: object) -> dict[str, object]:
    return {"call_id": call_id, "content": content}


async def resume(runtime: MAILRuntime, payload: object, **options: Any) -> RunResult:
    """Resume task-1 and return how the run ends."""
    request = RunRequest(
        message=user_message(""),
        resume_from="breakpoint_tool_call",
        breakpoint_tool_call_result=payload,
        **options,
    )
    return await (await runtime.open_run(request)).result(5)


def swarm_of(agents: dict[str, Any], **options: Any) -> MAILRuntime:
    for core in agents.values():
        core.actions = {"review": ActionCore(function=None, name="review")}
    return runtime_of(agents, breakpoint_tools=["review"], **options)


def gathering(messages, choice):
    """Ask both peers, and finish with what they say."""
    told = [str(m["content"]) for m in messages if m.get("role") == "user"][1:]
    if not told:
        return ask(*PEERS)
    if len(told) < len(PEERS):
        return [("await_message", {})]
    bodies = [text.split("<body>")[1].split("</body>")[0] for text in told]
    return [("task_complete", {"finish_message": " & ".join(bodies)})]


def reviewing(name: str):
    """Ask for a review, under the same call id as everybody else, and report its result."""

    async def work(messages, choice):
        results = [m["content"] for m in messages if m.get("role") == "tool"]
        if not results:
            return None, tool_calls(REVIEW, prefix="same")
        report = {"target": "supervisor", "subject": "Re", "body": f"{name}:{results[0]}"}
        return None, tool_calls(("send_response", report), prefix=f"{name}{len(messages)}")

    return work


def two_peers(**options: Any) -> MAILRuntime:
    return swarm_of(
        {
            "supervisor": supervisor(agent_from(gathering), PEERS),
            **{name: worker(reviewing(name)) for name in PEERS},
        },
        **options,
    )


def lone(*turns, **options: Any) -> MAILRuntime:
    """One agent: a turn per list of calls, or per text, or per error; then it finishes."""
    left = iter(turns)

    async def work(messages, choice):
        turn = next(left, [DONE])
        if isinstance(turn, Exception):
            raise turn
        if isinstance(turn, str):
            return turn, []
        return None, tool_calls(*turn, prefix=f"call{len(messages)}")

    return swarm_of({"supervisor": supervisor(work, ())}, **options)


async def pause(runtime: MAILRuntime) -> list[str]:
    """Post a message that pauses; return the open calls."""
    run = await runtime.open_run(RunRequest(message=user_message()))
    result = await run.result(5)
    assert result.status is TaskState.PAUSED
    return [call["call_id"] for call in result.breakpoints]
