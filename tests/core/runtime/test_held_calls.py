"""Held calls: accepted, edited, ignored or answered by a person, and run exactly once."""

import asyncio
import json
import threading
from typing import Any

import pytest

from mail.core.actions import ActionCore
from mail.core.approvals import Answer, Answerer, Approval, read_answer
from mail.core.runtime import RunRequest, held_calls, tool_dispatch
from mail.core.runtime.held_calls import default_description
from mail.core.runtime.tool_dispatch import check_action_arguments
from mail.core.tasks import TaskState
from mail.core.tools.call import AgentToolCall
from mail.core.tools.catalogue import TEXT_TOOL
from mail.errors import (
    AlreadyAnswered,
    ApprovalClosed,
    ApprovalError,
    Forbidden,
    TaskPaused,
    UnknownAgent,
    UnknownApproval,
)
from mail.testing import agent_from
from tests.support.swarm import runtime_of, supervisor, user_message, worker

SEND = {
    "type": "object",
    "properties": {
        "to": {"type": "string"},
        "text": {"type": "string"},
        "copies": {"type": "integer"},
        "urgent": {"type": "boolean"},
    },
    "required": ["to"],
    "additionalProperties": False,
}
TALLY = {
    "type": "object",
    "properties": {"numbers": {"type": "array", "items": {"type": "integer"}}},
    "required": ["numbers"],
}
ALICE = Answerer("user", "test_user", owner=True)
ADMIN = Answerer("admin", "root")


class Post:
    """An action that notes its runs, and one that needs no approval."""

    def __init__(self, approval: Approval | None = None) -> None:
        self.sent: list[dict] = []
        self.looked = 0
        self.approval = approval or Approval()

    async def send(self, args: dict) -> str:
        self.sent.append(dict(args))
        return f"sent to {args['to']}"

    async def look(self, args: dict) -> str:
        self.looked += 1
        return "nothing on that day"

    def actions(self) -> dict[str, ActionCore]:
        return {
            "send": ActionCore(self.send, "send", SEND, approval=self.approval),
            "look": ActionCore(self.look, "look"),
        }


def script(*steps):
    """Take the steps, and finish with the results of all calls."""
    left = iter(steps)

    def finish(messages):
        results = [m["content"] for m in messages if m.get("role") == "tool"]
        return [("task_complete", {"finish_message": " | ".join(results)})]

    return agent_from(lambda messages, choice: next(left, None) or finish(messages))


def make(post: Post, *steps, **options):
    core = supervisor(script(*steps), ())
    core.actions = post.actions()
    return runtime_of({"supervisor": core}, **options)


async def held(runtime, task_id: str = "task-1") -> list[dict]:
    found = await runtime.get_approvals("open", task_id, 100)
    return sorted(found, key=lambda each: each["call_id"])


async def start(runtime, count: int) -> list[dict]:
    run = await runtime.open_run(RunRequest(message=user_message("Write to them")))
    result = await run.result(5)
    assert result.status is TaskState.PAUSED
    found = await held(runtime)
    assert len(found) == count
    return found


async def answer(runtime, record: dict, given, by: Answerer = ALICE) -> dict:
    return await runtime.answer_approval(record["approval_id"], read_answer(given), by)


async def end_of(runtime, task_id: str = "task-1"):
    for _ in range(2000):
        task = await runtime.read_task(task_id)
        if task.status not in (TaskState.RUNNING, TaskState.PAUSED):
            return task, await runtime._context.store.response(runtime._context.owner, task_id)
        await asyncio.sleep(0.01)
    raise AssertionError(f"the task did not end: {task.status}")


async def test_an_accepted_call_runs_once_with_its_arguments(store) -> None:
    post = Post()
    runtime = make(post, [("send", {"to": "bob", "text": "hi"})], store=store)
    [record] = await start(runtime, 1)
    assert record["kind"] == "approval" and record["status"] == "open"
    assert record["approvers"] == ["owner", "admin"]
    assert record["action_request"] == {"action": "send", "args": {"to": "bob", "text": "hi"}}
    assert record["config"] == dict.fromkeys(
        ("allow_accept", "allow_edit", "allow_ignore", "allow_respond"), True
    )
    assert "> Write to them" in record["description"] and '"bob"' in record["description"]
    assert post.sent == []
    closed = await answer(runtime, record, {"type": "accept", "args": None})
    assert (closed["status"], closed["answered_by"]) == ("accepted", "user:test_user")
    task, response = await end_of(runtime)
    assert task.status is TaskState.COMPLETED and "sent to bob" in response
    assert post.sent == [{"to": "bob", "text": "hi"}]
    kinds = [event.kind for event in task.events]
    assert kinds.count("approval_requested") == kinds.count("approval_answered") == 1
    with pytest.raises(ApprovalClosed, match="accepted"):
        await answer(runtime, record, {"type": "accept"})
    assert len(post.sent) == 1
    await runtime.shutdown()


async def test_calls_of_one_reply_are_answered_one_by_one_and_none_runs_twice(store) -> None:
    post = Post()
    calls = [("send", {"to": "a"}), ("look", {}), ("send", {"to": "b"}), ("send", {"to": "c"})]
    runtime = make(post, calls, store=store)
    first, second, third = await start(runtime, 3)
    assert post.looked == 1
    await answer(runtime, second, {"type": "accept"})
    for _ in range(2000):
        if post.sent:
            break
        await asyncio.sleep(0.01)
    assert post.sent == [{"to": "b"}]
    await answer(runtime, third, {"type": "response", "args": "not yet"})
    assert [each["approval_id"] for each in await held(runtime)] == [first["approval_id"]]
    await answer(runtime, first, [{"type": "accept", "args": None}])
    _, response = await end_of(runtime)
    assert post.sent == [{"to": "b"}, {"to": "a"}] and post.looked == 1
    assert "not yet" in response
    await runtime.shutdown()


ABOUT = {"caller", "approval_id", "call_id"}
ANSWERED = {*ABOUT, "tool_name", "type"}


@pytest.mark.parametrize(
    ("given", "more"),
    [
        ({"type": "accept"}, {}),
        (
            {"type": "edit", "args": {"action": "send", "args": {"to": "z"}}},
            {"changed": {"to": {"from": "a", "to": "z"}}},
        ),
        ({"type": "response", "args": "no"}, {"text": "no"}),
        ({"type": "ignore"}, {}),
        (None, {}),
    ],
)
async def test_events_of_a_held_call_have_the_documented_fields(given, more, store) -> None:
    runtime = make(Post(Approval(ttl=60 if given else 0.05)), [("send", {"to": "a"})], store=store)
    await (await runtime.open_run(RunRequest(message=user_message()))).result(5)
    [record] = await runtime.get_approvals("all", "", 10)
    if given:
        await answer(runtime, record, given)
    task, _ = await end_of(runtime)
    told = {event.kind: event.extra for event in task.events}
    asked = told["approval_requested"]
    assert asked.keys() == {*ABOUT, "action_request", "expires_at"}
    assert asked["action_request"] == record["action_request"] and asked["expires_at"]
    if given is None:
        assert told["approval_expired"].keys() == ANSWERED
    else:
        closed = told["approval_answered"]
        assert closed == closed | more | {"type": given["type"], "answered_by": str(ALICE)}
        assert closed.keys() == {*ANSWERED, "answered_by", *more}
    if given is None or given["type"] in ("response", "ignore"):
        result = told["breakpoint_action_complete"]
        assert result.keys() == {"caller", "tool_name", "tool_call_id", "result"}
        assert (result["tool_name"], result["tool_call_id"]) == ("send", record["call_id"])
    await runtime.shutdown()


async def test_an_edit_runs_other_arguments_and_the_agent_sees_them(store) -> None:
    post, seen = Post(), []

    def agent(messages, choice):
        seen.append(json.loads(json.dumps(messages)))
        if len(seen) == 1:
            return [("send", {"to": "bob", "text": "hi"}), ("look", {})]
        return [("task_complete", {"finish_message": "done"})]

    core = supervisor(agent_from(agent), ())
    core.actions = post.actions()
    runtime = runtime_of({"supervisor": core}, store=store)
    [record] = await start(runtime, 1)
    edited = {"action": "send", "args": {"to": "carol", "copies": "3", "urgent": "true"}}
    closed = await answer(runtime, record, {"type": "edit", "args": edited})
    sent = {"to": "carol", "copies": 3, "urgent": True}
    assert closed["answer"] == {"type": "edit", "args": {"action": "send", "args": sent}}
    assert closed["action_request"]["args"] == {"to": "bob", "text": "hi"}
    task, _ = await end_of(runtime)
    assert post.sent == [sent]
    [reply] = [m for m in seen[1] if m.get("role") == "assistant"]
    assert json.loads(reply["tool_calls"][0]["function"]["arguments"]) == sent
    assert len(reply["tool_calls"]) == 2
    assert not any(m.get("type") for m in seen[1])
    [event] = [event for event in task.events if event.kind == "approval_answered"]
    assert event.extra["changed"]["to"] == {"from": "bob", "to": "carol"}
    await runtime.shutdown()


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return, for each check of arguments, whether it was done in a thread of its own."""
    noted: list[bool] = []

    def checked(name: str, arguments: dict, schema: dict) -> None:
        noted.append(threading.current_thread() is not threading.main_thread())
        check_action_arguments(name, arguments, schema)

    for module in (held_calls, tool_dispatch):
        monkeypatch.setattr(module, "check_action_arguments", checked)
    return noted


async def test_long_arguments_are_checked_in_a_thread(store, threads: list[bool]) -> None:
    post = Post()
    core = supervisor(script([("tally", {"numbers": [1]})]), ())
    core.actions = {"tally": ActionCore(post.look, "tally", TALLY, approval=post.approval)}
    runtime = runtime_of({"supervisor": core}, store=store)
    [record] = await start(runtime, 1)
    wrong = {"type": "edit", "args": {"args": {"numbers": [*range(1000), "x"]}}}
    with pytest.raises(ApprovalError, match="'x' is not of type"):
        await answer(runtime, record, wrong)
    assert threads[-1]
    await answer(runtime, record, {"type": "edit", "args": {"args": {"numbers": "[1, 2]"}}})
    assert not threads[-1] and threads.count(True) == 1
    await end_of(runtime)
    assert post.looked == 1
    await runtime.shutdown()


async def test_long_arguments_of_an_agent_are_checked_in_a_thread(
    store, threads: list[bool]
) -> None:
    post = Post()
    calls = [("tally", {"numbers": [1]}), ("tally", {"numbers": list(range(1000))})]
    core = supervisor(script(calls), ())
    core.actions = {"tally": ActionCore(post.look, "tally", TALLY)}
    runtime = runtime_of({"supervisor": core}, store=store)
    run = await runtime.open_run(RunRequest(message=user_message("Count")))
    assert (await run.result(5)).status is TaskState.COMPLETED
    assert sorted(threads) == [False, True] and post.looked == 2
    await runtime.shutdown()


async def test_ignoring_a_call_ends_the_task_and_cancels_the_others(store) -> None:
    post = Post()
    calls = [("send", {"to": "a"}), ("send", {"to": "b"}), ("send", {"to": "c"})]
    runtime = make(post, calls, store=store)
    first, second, third = await start(runtime, 3)
    await answer(runtime, first, {"type": "accept"})
    await answer(runtime, second, {"type": "ignore"})
    task, response = await end_of(runtime)
    assert task.status is TaskState.COMPLETED
    assert post.sent == [{"to": "a"}]
    assert "user:test_user ignored the call of 'send'" in response
    found = {each["call_id"]: each for each in await runtime.get_approvals("all", "", 10)}
    assert found[second["call_id"]]["status"] == "ignored"
    assert found[third["call_id"]]["status"] == "cancelled"
    with pytest.raises(ApprovalClosed, match="cancelled"):
        await answer(runtime, third, {"type": "accept"})
    await runtime.shutdown()


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"type": "edit", "args": {"action": "look", "args": {}}}, "cannot change the tool"),
        ({"type": "edit", "args": {"action": "send", "args": {}}}, "'to' is a required"),
        ({"type": "edit", "args": {"args": {"to": "a", "copies": "many"}}}, "copies"),
        ({"type": "edit", "args": {"args": {"to": "a", "bcc": "x"}}}, "bcc"),
        ({"type": "edit", "args": {"args": {"to": "\ud800"}}}, "surrogate"),
        ({"type": "edit", "args": None}, "'action' and 'args'"),
        ({"type": "response", "args": ""}, "text"),
        ({"type": "yes"}, "accept, edit, ignore, response"),
        ([], "one object"),
        ([{"type": "accept"}, {"type": "accept"}], "one object"),
        ("accept", "object"),
        ({"type": "accept", "why": 1}, "no 'why'"),
    ],
)
async def test_a_bad_answer_changes_nothing(given, problem) -> None:
    post = Post()
    runtime = make(post, [("send", {"to": "a"})])
    [record] = await start(runtime, 1)
    with pytest.raises(ApprovalError, match=problem):
        await answer(runtime, record, given)
    assert (await held(runtime)) == [record] and post.sent == []
    await runtime.shutdown()


async def test_only_what_is_allowed_and_only_by_approvers() -> None:
    post = Post(Approval(allow_accept=False, allow_edit=False, approvers=["admin", "user:zoe"]))
    runtime = make(post, [("send", {"to": "a"})])
    [record] = await start(runtime, 1)
    with pytest.raises(Forbidden):
        await answer(runtime, record, {"type": "response", "args": "no"})
    with pytest.raises(ApprovalError, match="allowed: 'ignore', 'response'"):
        await answer(runtime, record, {"type": "accept"}, ADMIN)
    with pytest.raises(Forbidden):  # nor in the older way
        await runtime.submit_and_wait(
            user_message(""),
            resume_from="breakpoint_tool_call",
            breakpoint_tool_call_result="no",
        )
    zoe = Answerer("user", "zoe")
    closed = await answer(runtime, record, {"type": "response", "args": "no"}, zoe)
    assert closed["answered_by"] == "user:zoe"
    _, response = await end_of(runtime)
    assert post.sent == [] and '"no"' in response
    with pytest.raises(UnknownApproval):
        await runtime.answer_approval("nothing", Answer("accept"), ADMIN)
    await runtime.shutdown()


async def test_a_breakpoint_call_is_listed_and_takes_a_response() -> None:
    core = supervisor(script([("review", {"draft": "x"})]), ())
    core.actions = {"review": ActionCore(function=None, name="review")}
    runtime = runtime_of({"supervisor": core}, breakpoint_tools=["review"])
    [record] = await start(runtime, 1)
    assert record["kind"] == "breakpoint"
    with pytest.raises(ApprovalError, match="allowed: 'response'"):
        await answer(runtime, record, {"type": "accept"})
    await answer(runtime, record, {"type": "response", "args": "fine"})
    _, response = await end_of(runtime)
    assert '"fine"' in response
    await runtime.shutdown()


async def test_two_answers_at_once_one_wins() -> None:
    post = Post()
    runtime = make(post, [("send", {"to": "a"})])
    [record] = await start(runtime, 1)
    answers = [{"type": "accept"}, {"type": "ignore"}, {"type": "response", "args": "x"}] * 3
    done = await asyncio.gather(
        *(answer(runtime, record, each) for each in answers), return_exceptions=True
    )
    assert sum(isinstance(each, dict) for each in done) == 1
    assert all(isinstance(each, dict | ApprovalClosed) for each in done)
    await end_of(runtime)
    assert post.sent == [{"to": "a"}]
    await runtime.shutdown()


async def test_of_an_answer_and_a_result_at_once_one_wins() -> None:
    post = Post()
    runtime = make(post, [("send", {"to": "a"})])
    [record] = await start(runtime, 1)

    def result() -> Any:
        return runtime.submit_and_wait(
            user_message(""), resume_from="breakpoint_tool_call", breakpoint_tool_call_result="no"
        )

    one, other = (result(), answer(runtime, record, {"type": "accept"}))
    done = await asyncio.gather(one, other, result(), return_exceptions=True)
    refused = [each for each in done if isinstance(each, AlreadyAnswered | ApprovalClosed)]
    assert len(refused) == 2 and isinstance(done[2], AlreadyAnswered)
    task, _ = await end_of(runtime)
    kinds = [event.kind for event in task.events]
    assert kinds.count("approval_answered") == 1
    [closed] = await runtime.get_approvals("all", "", 10)
    assert closed["status"] == ("accepted" if post.sent else "responded")
    await runtime.shutdown()


async def test_cancelling_and_deleting_close_what_was_asked(store) -> None:
    post = Post()
    runtime = make(post, [("send", {"to": "a"})], store=store)
    [record] = await start(runtime, 1)
    await runtime.cancel_task("task-1")
    [closed] = await runtime.get_approvals("all", "", 10)
    assert closed["status"] == "cancelled"
    with pytest.raises(ApprovalClosed):
        await answer(runtime, record, {"type": "accept"})
    await runtime.delete_task("task-1")
    assert await runtime.get_approvals("all", "", 10) == []
    with pytest.raises(UnknownApproval):
        await answer(runtime, record, {"type": "accept"})
    await runtime.shutdown()


async def test_a_task_that_is_cancelled_while_an_accepted_call_runs_keeps_the_call_closed(
    store,
) -> None:
    post, begun, gate = Post(), asyncio.Event(), asyncio.Event()

    async def slow(args: dict) -> str:
        begun.set()
        await gate.wait()
        return "sent"

    core = supervisor(script([("send", {"to": "a"})]), ())
    core.actions = {"send": ActionCore(slow, "send", SEND, approval=post.approval)}
    runtime = runtime_of({"supervisor": core}, store=store)
    [record] = await start(runtime, 1)
    await answer(runtime, record, {"type": "accept"})
    await asyncio.wait_for(begun.wait(), 20)
    await runtime.cancel_task("task-1")
    gate.set()
    await runtime.shutdown()
    [row] = await store.calls(runtime._context.owner, "task-1")
    assert row.status == "cancelled" and "its outcome is unknown" in str(row.answer)
    assert row.decided_by == "user:test_user"  # who had accepted it
    history = await store.history(runtime._context.owner, "task-1", "supervisor")
    assert "".join(history).count('"tool_call_id"') == 1


async def test_answers_hold_over_restarts(store) -> None:
    post = Post()
    calls = [("send", {"to": "a"}), ("look", {}), ("send", {"to": "b"})]
    runtime = make(post, calls, store=store)
    first, second = await start(runtime, 2)
    await runtime.shutdown()
    runtime = make(post, store=store)
    with pytest.raises(TaskPaused):
        await runtime.submit_and_wait(user_message("hello?"))
    await answer(runtime, first, {"type": "edit", "args": {"args": {"to": "z"}}})
    for _ in range(2000):
        if (await runtime.read_task("task-1")).status is TaskState.PAUSED and post.sent:
            break
        await asyncio.sleep(0.01)
    await runtime.shutdown()
    runtime = make(post, store=store)
    with pytest.raises(AlreadyAnswered):
        await runtime.submit_and_wait(
            user_message(""),
            resume_from="breakpoint_tool_call",
            breakpoint_tool_call_result={"call_id": first["call_id"], "content": "x"},
        )
    await answer(runtime, second, {"type": "accept"})
    _, response = await end_of(runtime)
    assert post.sent == [{"to": "z"}, {"to": "b"}] and post.looked == 1
    assert "sent to z" in response and "sent to b" in response
    await runtime.shutdown()


async def test_a_call_that_cannot_run_is_told_to_the_agent_at_once() -> None:
    post = Post()
    runtime = make(post, [("send", {"text": "to nobody"})], [("send", {"to": "a"})])
    [record] = await start(runtime, 1)
    assert record["action_request"]["args"] == {"to": "a"}
    await runtime.shutdown()


async def test_mails_own_tools_can_be_held() -> None:
    runtime = runtime_of(
        {"supervisor": supervisor(script([("task_complete", {"finish_message": "42"})]), ())},
        approvals={"task_complete": Approval()},
    )
    [record] = await start(runtime, 1)
    edited = {"args": {"finish_message": "43"}}
    await answer(runtime, record, {"type": "edit", "args": edited})
    _, response = await end_of(runtime)
    assert json.loads(response)["message"]["body"] == "43"
    await runtime.shutdown()


@pytest.mark.parametrize("on_timeout", ["deny", "ignore", "accept"])
async def test_a_call_that_nobody_answers_ends_in_time(on_timeout) -> None:
    post = Post(Approval(ttl=0.05, on_timeout=on_timeout))
    runtime = make(post, [("send", {"to": "a"})])
    run = await runtime.open_run(RunRequest(message=user_message()))
    await run.result(5)
    task, response = await end_of(runtime)
    [closed] = await runtime.get_approvals("all", "", 10)
    assert closed["answered_by"] is None and closed["expires_at"]
    assert closed["status"] == ("accepted" if on_timeout == "accept" else "expired")
    assert post.sent == ([{"to": "a"}] if on_timeout == "accept" else [])
    told = {"deny": "denied", "ignore": "nobody answered in time", "accept": "sent to a"}
    assert told[on_timeout] in response
    assert [event.kind for event in task.events].count("approval_expired") == 1
    with pytest.raises(ApprovalClosed):
        await answer(runtime, closed, {"type": "accept"})
    await runtime.shutdown()


async def test_a_deadline_that_passes_between_two_processes_ends_the_call(store) -> None:
    post = Post(Approval(ttl=0.6))
    runtime = make(post, [("send", {"to": "a"})], store=store)
    [record] = await start(runtime, 1)
    await runtime.shutdown()
    await asyncio.sleep(0.65)
    runtime = make(post, store=store)
    await runtime.start()
    _, response = await end_of(runtime)
    assert "denied" in response and post.sent == []
    with pytest.raises(ApprovalClosed, match="expired"):
        await answer(runtime, record, {"type": "accept"})
    await runtime.shutdown()


@pytest.mark.parametrize("where", ["agent", "swarm"])
async def test_an_excluded_action_is_not_run_although_nobody_is_asked(where, store) -> None:
    post = Post()
    core = supervisor(script([("send", {"to": "bob"})]), ())
    core.actions = post.actions()
    core.exclude_tools = frozenset({"send"} if where == "agent" else ())
    options = {"exclude_tools": ["send"]} if where == "swarm" else {}
    runtime = runtime_of({"supervisor": core}, store=store, **options)
    run = await runtime.open_run(RunRequest(message=user_message()))
    result = await run.result(5)
    assert result.status is TaskState.COMPLETED
    assert "the action 'send' is not available to you" in result.message["message"]["body"]
    assert post.sent == []
    await runtime.shutdown()


@pytest.mark.parametrize("amount", ["1e400", "-1e400", "NaN", "Infinity", "[1e400]"])
async def test_an_edit_brings_no_number_that_json_cannot_hold(amount, store) -> None:
    post = Post()
    core = supervisor(script([("pay", {"sum": 1.5})]), ())
    numbers = {"type": ["number", "array"]}
    schema = {"type": "object", "properties": {"sum": numbers}}
    core.actions = {"pay": ActionCore(post.send, "pay", schema, approval=Approval())}
    runtime = runtime_of({"supervisor": core}, store=store)
    [record] = await start(runtime, 1)
    with pytest.raises(ApprovalError, match="sum"):
        await answer(runtime, record, {"type": "edit", "args": {"args": {"sum": amount}}})
    json.dumps(await held(runtime), allow_nan=False)
    await runtime.shutdown()


async def test_no_call_of_a_function_of_ones_own_has_numbers_that_json_cannot_hold(store) -> None:
    core = supervisor(script([("pay", {"sum": float("nan")})]), ())
    core.actions = {"pay": ActionCore(Post().send, "pay", approval=Approval())}
    runtime = runtime_of({"supervisor": core}, store=store)
    [record] = await start(runtime, 1)
    json.dumps(record, allow_nan=False)
    assert record["action_request"]["args"] == {"sum": None}
    await runtime.shutdown()


def test_a_call_full_of_backticks_is_described_at_once() -> None:
    call = AgentToolCall(
        tool_name="send",
        tool_args={"to": "`" * 2**20},
        tool_call_id="1",
        completion={"role": "assistant"},
    )
    said = default_description("Write", call)  # minutes, if a fence grows by one sign at a time
    assert said.startswith("> Write\n\n**send**\n\n" + "`" * (2**20 + 1) + "json\n")


async def test_plain_text_does_not_end_a_task_whose_end_needs_an_approval(store) -> None:
    replies = iter(
        [
            [(TEXT_TOOL, {"content": "All done!"})],
            [("task_complete", {"finish_message": "All done!"})],
        ]
    )
    core = supervisor(agent_from(lambda messages, choice: next(replies)), ())
    runtime = runtime_of({"supervisor": core}, store=store, approvals={"task_complete": Approval()})
    [record] = await start(runtime, 1)
    assert record["action_request"]["action"] == "task_complete"
    await answer(runtime, record, {"type": "accept"})
    task, response = await end_of(runtime)
    assert task.status is TaskState.COMPLETED and "All done!" in response
    await runtime.shutdown()


async def test_plain_text_answers_no_agent_whose_answers_need_an_approval(store) -> None:
    asked = [("send_request", {"target": "worker", "subject": "s", "body": "go"})]
    replies = iter(
        [
            [(TEXT_TOOL, {"content": "the secret"})],
            [("send_response", {"target": "supervisor", "subject": "r", "body": "b"})],
        ]
    )
    runtime = runtime_of(
        {
            "supervisor": supervisor(script(asked), ("worker",)),
            "worker": worker(agent_from(lambda messages, choice: next(replies)), ("supervisor",)),
        },
        store=store,
        approvals={"send_response": Approval()},
    )
    [record] = await start(runtime, 1)
    assert (record["agent"], record["action_request"]["action"]) == ("worker", "send_response")
    events = (await runtime.read_task("task-1")).events
    assert not any("the secret" in str(e.extra) for e in events if e.kind == "new_message")
    await runtime.shutdown()


async def test_plain_text_does_not_stand_for_a_breakpoint_tool() -> None:
    replies = iter(
        [
            [(TEXT_TOOL, {"content": "All done!"})],
            [("task_complete", {"finish_message": "All done!"})],
        ]
    )
    core = supervisor(agent_from(lambda messages, choice: next(replies)), ())
    runtime = runtime_of({"supervisor": core}, breakpoint_tools=["task_complete"])
    [record] = await start(runtime, 1)
    assert (record["kind"], record["action_request"]["action"]) == ("breakpoint", "task_complete")
    await runtime.shutdown()


@pytest.mark.parametrize(
    ("given", "ran", "told"),
    [
        ({"type": "accept"}, [{"to": "bob"}], "sent to bob"),
        (
            {"type": "edit", "args": {"action": "send", "args": {"to": "eve"}}},
            [{"to": "eve"}],
            "sent to eve",
        ),
        ({"type": "response", "args": "not yet"}, [], "not yet | SUCCESS: nothing on that day"),
        ({"type": "ignore"}, [], "ignored the call of 'send'"),
    ],
    ids=["accept", "edit", "response", "ignore"],
)
async def test_a_completing_action_that_is_held_ends_the_task_when_it_is_run(
    given, ran, told, store
) -> None:
    post = Post()
    send = [("send", {"to": "bob"}), ("look", {})]
    core = supervisor(script(send, [("look", {})]), ())
    core.actions = post.actions()
    core.actions["send"].completes = True
    runtime = runtime_of({"supervisor": core}, store=store)
    [record] = await start(runtime, 1)
    assert post.looked == 0  # a call of the same reply completes the task
    await answer(runtime, record, given)
    task, response = await end_of(runtime)
    assert task.status is TaskState.COMPLETED and post.sent == ran
    assert told in response
    await runtime.shutdown()


@pytest.mark.parametrize("how", ["ignored", "expired"])
async def test_the_call_of_an_agent_that_has_gone_can_end(how, store) -> None:
    post = Post(Approval(ttl=0.2 if how == "expired" else None))
    asked = [("send_request", {"target": "worker", "subject": "s", "body": "go"})]
    clerk = worker(script([("send", {"to": "bob"})]), ("supervisor",))
    clerk.actions = post.actions()
    agents = {"supervisor": supervisor(script(asked), ("worker",)), "worker": clerk}
    runtime = runtime_of(agents, store=store)
    [record] = await start(runtime, 1)
    await runtime.shutdown()
    runtime = runtime_of({"supervisor": supervisor(script(), ())}, store=store)
    await runtime.start()
    if how == "ignored":
        edit = {"type": "edit", "args": {"args": {"to": "eve"}}}
        for given in ({"type": "accept"}, {"type": "response", "args": "no"}, edit):
            with pytest.raises(UnknownAgent, match="ignore the call"):
                await answer(runtime, record, given)
        await answer(runtime, record, {"type": "ignore"})
    task, response = await end_of(runtime)
    assert task.status is TaskState.COMPLETED and post.sent == []
    assert "agent 'worker', whose call waited, has left the swarm" in response
    [closed] = await runtime.get_approvals("all", "", 10)
    assert closed["status"] == how
    await runtime.shutdown()
