"""Calls of agents that are open, and what people see of them."""

import json
from typing import Any

import pytest

from mail.core.tasks import TaskState
from mail.db.calls import CallFilter, CallRow
from mail.db.store import Store
from tests.support.sql import held_call

Rows = Any


async def test_calls_keep_the_order_of_their_first_commit(store: Store, rows: Rows) -> None:
    def call(agent: str, call_id: str, answer: str | None = None) -> CallRow:
        shown = f'{{"id": "{call_id}"}}'
        control = f'["resume", "{agent}"]'
        return CallRow(agent, call_id, "{}", shown, answer=answer, control=control)

    await store.commit(rows.post(calls=(call("b", "2"), call("a", "1"))))
    await store.commit(rows.post(calls=(call("a", "2"), call("b", "2", "42"))))
    assert await store.calls(rows.alice, "t1") == [
        call("b", "2", "42"),
        call("a", "1"),
        call("a", "2"),
    ]
    assert await store.calls(rows.bob, "t1") == []


async def test_open_calls_are_those_that_callers_can_answer(store: Store, rows: Rows) -> None:
    long = json.dumps({"id": "long", "arguments": "x" * 10_000})
    many = json.dumps({"id": "many", "list": list(range(3000))})  # no text to be kept apart
    shown = {"done": "{}", "wait": "", "given": "{}", "short": '{"id": "short"}'}
    shown |= {"long": long, "many": many}
    kept = [CallRow("a", name, "{}", text, control="[]") for name, text in shown.items()]
    kept[0] = kept[0]._replace(answer="42", status="responded")
    kept[1] = kept[1]._replace(kind="wait")
    kept[2] = kept[2]._replace(kind="approval", approval_id="given", status="accepted")
    await store.commit(rows.post(calls=tuple(kept)))
    assert await store.open_calls(rows.alice, "t1") == kept[3:]
    short = [kept[3], *[call._replace(shown="{}") for call in kept[4:]]]
    await store.commit(rows.post("t2", task=rows.task("t2"), calls=(kept[3],)))
    await store.commit(rows.post("t3", task=rows.task("t3"), calls=(kept[0],)))
    some = ["t3", "t2", "t1", "nothing"]
    assert await store.short_calls(rows.alice, some, 4096) == {"t1": short, "t2": [kept[3]]}
    none = [call._replace(shown="{}") for call in kept[3:]]
    assert await store.short_calls(rows.alice, ["t1"], 10) == {"t1": none}
    assert await store.open_calls(rows.bob, "t1") == []
    assert await store.short_calls(rows.bob, some, 4096) == {}


async def test_the_newest_paused_task_that_waits_for_a_call_is_found(
    store: Store, rows: Rows
) -> None:
    async def put(task_id: str, call: CallRow, state: TaskState = TaskState.PAUSED) -> None:
        task = rows.task(task_id, state=state)
        await store.commit(rows.post(task_id, task=task, calls=(call,)))

    asked = CallRow("a", "c1", "{}", "{}")
    await put("t1", asked)
    await put("t2", asked._replace(agent="b"))
    await put("t3", asked._replace(answer="{}"))
    await put("t4", asked._replace(kind="wait", shown=""))
    await put("t5", asked, TaskState.RUNNING)
    await put("t6", asked._replace(call_id="c2"))
    assert await store.paused_on(rows.alice, ["c0", "c1"], 100) == "t2"
    assert await store.paused_on(rows.alice, ["c1", "c2"], 100) == "t6"
    assert await store.paused_on(rows.alice, ["c1"], 5) == "t2"
    assert await store.paused_on(rows.alice, ["c1"], 4) is None
    assert await store.paused_on(rows.alice, ["c0"], 100) is None
    assert await store.paused_on(rows.bob, ["c1"], 100) is None


def names(found: list[Any]) -> list[str]:
    return [each.row.approval_id for each in found]


async def put_some(store: Store, rows: Rows, **more: Any) -> list[CallRow]:
    """Store three open calls of t1 and one of a task of bob's that alice may answer."""
    own = [held_call(name, {"text": name}, **more) for name in ("one", "two", "three")]
    await store.commit(rows.post(calls=tuple(own)))
    named = held_call("other", approvers="\nadmin\nuser:alice\n")
    await store.commit(rows.post("t2", task=rows.task("t2"), owner=rows.bob, calls=(named,)))
    await store.commit(
        rows.post("t3", task=rows.task("t3"), calls=(CallRow("a", "c", "{}", "{}"),))
    )
    return own


async def test_people_see_calls_of_their_own_tasks_and_those_that_name_them(
    store: Store, rows: Rows
) -> None:
    own = await put_some(store, rows)
    alice, bob = CallFilter(rows.alice), CallFilter(rows.bob)
    found, more = await store.held_calls(alice, 9)
    assert [each.row for each in found] == own[::-1] and not more
    assert {(each.owner, each.task_id) for each in found} == {(rows.alice, "t1")}
    named = alice._replace(approver="user:alice")
    for which, seen in (
        (named, ["other", "three", "two", "one"]),
        (named._replace(approver="user:ali"), ["three", "two", "one"]),
        (bob, ["other"]),
        (bob._replace(everybody=True), ["other", "three", "two", "one"]),
        (named._replace(task_id="t2"), ["other"]),
        (alice._replace(approval_id="two"), ["two"]),
        (bob._replace(approval_id="two"), []),
        (alice._replace(approval_id=""), []),
        (alice._replace(status="accepted"), []),
        (alice._replace(before=found[0].number), ["two", "one"]),
        (alice._replace(owner=rows.alice._replace(swarm="elsewhere"), everybody=True), []),
    ):
        assert names((await store.held_calls(which, 9))[0]) == seen, which
    assert (await store.held_calls(alice, 2))[1]


async def test_a_call_changes_when_it_is_opened_and_closed_and_not_when_it_was_run(
    store: Store, rows: Rows
) -> None:
    first, second, third = await put_some(store, rows)
    every = CallFilter(rows.alice, after=0)
    before, _ = await store.held_calls(every, 9)
    assert names(before) == ["one", "two", "three"]
    accepted = first._replace(status="accepted", decision='{"type": "accept"}')
    await store.commit(rows.post(calls=(accepted,)))
    changed, _ = await store.held_calls(every, 9)
    assert names(changed) == ["two", "three", "one"]
    assert [each.number for each in changed[:2]] == [each.number for each in before[1:]]
    await store.commit(rows.post(calls=(accepted._replace(answer="the result"),)))
    again, _ = await store.held_calls(every, 9)
    assert [each.change for each in again] == [each.change for each in changed]
    assert again[-1].row == accepted  # the result is the agent's
    assert (await store.calls(rows.alice, "t1"))[0].answer == "the result"
    await store.commit(rows.post(calls=(second._replace(status="responded", answer="no"),)))
    last, _ = await store.held_calls(every._replace(after=again[-1].change), 9)
    assert names(last) == ["two"] and last[0].row.answer == "no"
    assert last[0].change == await store.last_call_change()
    opened, _ = await store.held_calls(every._replace(status="open"), 9)
    assert [each.row for each in opened] == [third]


async def test_due_calls_come_by_their_deadlines(store: Store, rows: Rows) -> None:
    calls = [
        held_call("late", expires_at="2026-03"),
        held_call("soon", expires_at="2026-01"),
        held_call("never"),
        held_call("as soon", expires_at="2026-01"),
        held_call("done", expires_at="2026-01", status="expired", answer="denied"),
    ]
    await store.commit(rows.post(calls=tuple(calls)))
    due = CallFilter(rows.alice, due=("", 0, "2026-02"))
    found, more = await store.held_calls(due, 1)
    assert names(found) == ["soon"] and more
    beyond = due._replace(due=("2026-01", found[0].number, "9999"))
    assert names((await store.held_calls(beyond, 9))[0]) == ["as soon", "late"]
    swarm = CallFilter(rows.bob, everybody=True, due=("", 0, "9999"))
    assert names((await store.held_calls(swarm, 9))[0]) == ["soon", "as soon", "late"]


async def test_a_page_is_so_many_bytes_and_one_call_and_reads_no_other(
    store: Store, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "".join(f"{number:05}" for number in range(4000))  # long enough to be kept apart
    calls = [held_call(name, {"text": text + name}) for name in ("one", "two", "three")]
    await store.commit(rows.post(calls=tuple(calls)))
    which, size = CallFilter(rows.alice), calls[0].size
    assert size > len(text)
    for most, seen in (
        (1, ["three"]),
        (size, ["three"]),
        (size + 9, ["three", "two"]),
        (10 * size, ["three", "two", "one"]),
    ):
        found, more = await store.held_calls(which, 9, most)
        assert names(found) == seen and more == (len(seen) < 3)
        assert [each.row for each in found] == calls[::-1][: len(seen)]
    changed, more = await store.held_calls(which._replace(after=0), 9, size + 9)
    assert names(changed) == ["one", "two"] and more
    read: list[str] = []
    monkeypatch.setattr(CallRow, "__new__", noted(read))
    await store.held_calls(which, 9, 1)
    assert read == ["three"]


def noted(read: list[str]) -> Any:
    """Return what makes rows, and notes the ids of their calls."""
    make = CallRow.__new__

    def new(cls: type[CallRow], *columns: Any) -> CallRow:
        read.append(columns[1])
        return make(cls, *columns)

    return new
