"""What a resume may say, and what is refused; a refusal leaves nothing behind."""

import asyncio
import json

import pytest

from mail.core.actions import ActionCore
from mail.core.runtime import RunRequest
from mail.core.tasks import TaskState
from mail.db.commit import Commit
from mail.db.store import Store
from mail.errors import AlreadyAnswered, BreakpointError, StoreError, UnknownAgent
from mail.testing import tool_calls
from tests.core.runtime.metered import DONE, ask, check_history
from tests.core.runtime.reviews import REVIEW, answering, lone, pause, resume, two_peers
from tests.support.stores import HookedStore
from tests.support.swarm import runtime_of, supervisor, user_message, worker

# --- the results ----------------------------------------------------------------------------------

CYCLE: list[object] = []
CYCLE.append(CYCLE)


async def results(store: Store, runtime) -> list[str]:
    """Return the results of the supervisor's calls, as its history has them."""
    rows = await store.history(runtime._context.owner, "task-1", "supervisor")
    entries = [entry for row in rows for entry in json.loads(row)]
    return [entry["content"] for entry in entries if entry.get("name") == "review"]


@pytest.mark.parametrize(
    ("content", "stored"),
    [
        ("", ""),
        ("ünïcode \n\u0000", "ünïcode \n\u0000"),
        ("half \ud83d", "half ?"),
        ("x" * 3_000_000, "x" * 3_000_000),
        (None, "null"),
        (False, "false"),
        (0, "0"),
        (2.5, "2.5"),
        ([], "[]"),
        ({"größe": [1, {"a": None}]}, '{"größe": [1, {"a": null}]}'),
    ],
    ids=lambda value: str(value)[:12].encode("ascii", "replace").decode(),
)
async def test_any_content_reaches_the_agent_as_text(store: Store, content, stored) -> None:
    runtime = lone([REVIEW], store=store)
    [call] = await pause(runtime)
    assert (await resume(runtime, answering(call, content))).status is TaskState.COMPLETED
    assert await results(store, runtime) == [stored]
    await runtime.shutdown()


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "42",
        "null",
        '"quoted"',
        "{}",
        "[]",
        '{"answer": 1}',
        '[{"answer": 1}]',
        '["content"]',
        "{broken",
        "[" * 100_000,
    ],
    ids=lambda text: text[:16],
)
async def test_text_that_is_no_result_in_json_is_the_result_itself(store: Store, text) -> None:
    runtime = lone([REVIEW], store=store)
    await pause(runtime)
    assert (await resume(runtime, text)).status is TaskState.COMPLETED
    assert await results(store, runtime) == [text]
    await runtime.shutdown()


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (None, "is required to resume from a breakpoint; open calls: '{0}', '{1}'"),
        ("for whom?", "say which call each result is for; open calls: '{0}', '{1}'"),
        ({"content": "x"}, "say which call each result is for; open calls: '{0}', '{1}'"),
        ({"call_id": "{0}"}, "must be a string, an object with 'content'"),
        ('{{"call_id": "{0}"}}', "must be a string, an object with 'content'"),
        (
            '[{{"call_id": "{0}", "content": 1}}, {{}}]',
            "must be a string, an object with 'content'",
        ),
        ([{"call_id": "{0}", "content": "x"}, "y"], "must be a string, an object with 'content'"),
        ([{"content": "x"}], "each result in a list needs a 'call_id'"),
        ({"call_id": 7, "content": "x"}, "'call_id' must be a string"),
        ({"call_id": "{0}", "content": {1, 2}}, "'content' must be a string or JSON"),
        ({"call_id": "{0}", "content": float("nan")}, "'content' must be a string or JSON"),
        ({"call_id": "{0}", "content": CYCLE}, "'content' must be a string or JSON"),
        (
            [{"call_id": "{0}", "content": "x"}, {"call_id": "{0}", "content": "x"}],
            "the list contains two results for the call '{0}'",
        ),
        (
            [{"call_id": "{0}", "content": "x"}, {"call_id": "other", "content": "x"}],
            "no open breakpoint call 'other'; open calls: '{0}', '{1}'",
        ),
        ({"call_id": "n" * 5000, "content": "x"}, "…'; open calls: '{0}', '{1}'"),
        ([], "must be a string, an object with 'content'"),
        (42, "must be a string, an object with 'content'"),
        (True, "must be a string, an object with 'content'"),
    ],
    ids=lambda value: str(value)[:24],
)
async def test_a_wrong_payload_is_refused_and_changes_nothing(payload, text) -> None:
    runtime = lone([REVIEW, REVIEW])
    calls = await pause(runtime)
    events = len((await runtime.read_task("task-1")).events)
    with pytest.raises(BreakpointError) as caught:
        await resume(runtime, filled(payload, calls))
    assert not isinstance(caught.value, AlreadyAnswered)
    assert text.format(*calls) in str(caught.value) and len(str(caught.value)) < 500
    task = await runtime.read_task("task-1")
    assert task.status is TaskState.PAUSED and len(task.events) == events
    assert [call["call_id"] for call in task.breakpoints] == calls
    assert runtime.idle
    result = await resume(runtime, [answering(call, "x") for call in calls])
    assert result.status is TaskState.COMPLETED
    await runtime.shutdown()


def filled(payload, calls: list[str]):
    """Put the call ids into a payload."""
    if isinstance(payload, str):
        return payload.format(*calls)
    if isinstance(payload, list):
        return [filled(item, calls) if isinstance(item, dict) else item for item in payload]
    if isinstance(payload, dict) and isinstance(payload.get("call_id"), str):
        return payload | {"call_id": payload["call_id"].format(*calls)}
    return payload


# --- calls that do not pause ----------------------------------------------------------------------


async def test_an_agent_cannot_pause_on_a_tool_that_is_not_its_own(store: Store) -> None:
    told = []

    async def work(messages, choice):
        told.append(str(messages[-1 if len(messages) == 1 else -2]["content"]))
        calls = [("review", {})] if len(told) == 1 else [("await_message", {})]
        return None, tool_calls(*calls, prefix=f"w{len(told)}")

    async def lead(messages, choice):
        if len(messages) == 1:
            return None, tool_calls(*ask("worker"), prefix="a")
        return None, tool_calls(DONE, prefix=f"b{len(messages)}")

    agents = {"supervisor": supervisor(lead), "worker": worker(work)}
    agents["supervisor"].actions = {"review": ActionCore(function=None, name="review")}
    runtime = runtime_of(agents, breakpoint_tools=["review"], store=store)
    run = await runtime.open_run(RunRequest(message=user_message()))
    assert (await run.result(5)).status is TaskState.COMPLETED
    assert "the action 'review' is not available to you" in told[1]
    await runtime.shutdown()


# --- refusals leave nothing behind ----------------------------------------------------------------


async def test_of_two_resumes_at_once_one_is_refused(store: Store) -> None:
    runtime = lone([REVIEW, REVIEW], store=store)
    calls = await pause(runtime)
    payload = [answering(call, "x") for call in calls]
    results = await asyncio.gather(
        resume(runtime, payload), resume(runtime, payload), return_exceptions=True
    )
    kinds = sorted(type(result).__name__ for result in results)
    assert kinds == ["AlreadyAnswered", "RunResult"]
    await check_history(store, runtime, ["supervisor"])
    await runtime.shutdown()


async def test_a_resume_that_cannot_be_stored_leaves_the_call_open(store: Store) -> None:
    broken = False

    async def refuse(post: Commit) -> None:
        if broken:
            raise StoreError("disk full")

    runtime = lone([REVIEW], store=HookedStore(store, before=refuse))
    [call] = await pause(runtime)
    broken = True
    with pytest.raises(StoreError):
        await resume(runtime, answering(call, "x"))
    broken = False
    task = await runtime.read_task("task-1")
    assert task.status is TaskState.PAUSED and len(task.breakpoints) == 1
    assert (await resume(runtime, answering(call, "x"))).status is TaskState.COMPLETED
    await check_history(store, runtime, ["supervisor"])
    await runtime.shutdown()


async def test_a_result_for_an_agent_that_has_gone_is_refused(store: Store) -> None:
    first = two_peers(store=store)
    calls = await pause(first)
    await first.shutdown()
    second = lone([DONE], store=store)
    for _ in range(2):
        with pytest.raises(UnknownAgent, match=r"agent '(one|two)', whose call 'same_0' is"):
            await resume(second, answering("same_0", "x"))
    task = await second.read_task("task-1")
    assert [call["call_id"] for call in task.breakpoints] == calls
    await second.shutdown()


@pytest.mark.parametrize("payload", ["late", {"content": "late"}])
async def test_a_late_answer_without_a_call_id_is_refused_once_none_is_open(payload) -> None:
    runtime = lone([REVIEW])
    await pause(runtime)
    assert (await resume(runtime, payload)).status is TaskState.COMPLETED
    with pytest.raises(AlreadyAnswered, match="no breakpoint call of task 'task-1' is open"):
        await resume(runtime, payload)
    await runtime.shutdown()


async def test_a_late_answer_to_a_cancelled_task_is_refused(store: Store) -> None:
    runtime = lone([REVIEW], store=store)
    [call] = await pause(runtime)
    await runtime.cancel_task("task-1")
    with pytest.raises(AlreadyAnswered, match=r"closed without a result.*the task is cancelled"):
        await resume(runtime, answering(call, "late"))
    assert (await runtime.read_task("task-1")).status is TaskState.CANCELLED
    await check_history(store, runtime, ["supervisor"])
    await runtime.shutdown()


async def test_a_task_that_never_paused_has_nothing_to_resume() -> None:
    runtime = lone([DONE])
    await runtime.submit_and_wait(user_message())
    with pytest.raises(BreakpointError, match="has no breakpoint calls to answer; it is completed"):
        await resume(runtime, "x")
    with pytest.raises(BreakpointError, match="no open breakpoint call 'a'; open calls: none"):
        await resume(runtime, json.dumps(answering("a", "x")))
    await runtime.shutdown()
