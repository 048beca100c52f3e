"""Agents write to participants, and participants to agents, inside the turn transaction."""

import asyncio
import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from mail.clock import SystemClock
from mail.core.runtime import MAILRuntime, RunRequest
from mail.core.runtime.correspondence import in_thread
from mail.core.runtime.letters import DeskMail
from mail.core.tasks import TaskState
from mail.db.desk import DeskPost, LetterFilter, LetterRow, ReceiptRow
from mail.db.store import Store
from mail.errors import ConfigError, DeskConflict, ProtocolError
from mail.testing import KillingStore, KillPoint, agent_from
from tests.support.swarm import SWARM, last_body, runtime_of, supervisor, user_message, worker

EDITOR = "editor"
Calls = list[tuple[str, dict[str, Any]]]


def ask(body: str = "Shall I?", **more: Any) -> tuple[str, dict[str, Any]]:
    return "send_request", {"target": EDITOR, "subject": "A question", "body": body, **more}


def lead(messages: Any, choice: Any) -> Calls:
    """Ask the editor, and finish with the answer."""
    text = last_body(messages)
    if "yes, do" in text or "not answered" in text:
        return [("task_complete", {"finish_message": text.split("<body>")[1].split("<")[0]})]
    return [ask()]


def runtime(
    store: Store, function: Callable[..., Any] = lead, *targets: str, **options: Any
) -> MAILRuntime:
    agents = {
        "supervisor": supervisor(agent_from(function, "lead"), (*targets, EDITOR)),
        "worker": worker(agent_from(function, "worker")),
    }
    return runtime_of(agents, store=store, participants=[EDITOR, "reviewer"], **options)


class Died(BaseException):
    """Stands for the end of the process."""


def dead(point: KillPoint) -> None:
    """Let no later commit be stored either."""
    point._matches = lambda post: (_ for _ in ()).throw(Died())
    raise Died


async def shown(store: Store, letter: LetterRow) -> ReceiptRow:
    """Return what became of a letter at its only recipient."""
    ((_, (receipt,)),) = await store.letters_by_id(SWARM, [letter.letter_id])
    return receipt


async def inbox(store: Store, name: str = EDITOR) -> list[LetterRow]:
    return [row for row, _ in await store.letters(SWARM, name, LetterFilter())][::-1]


async def letters(store: Store, count: int, name: str = EDITOR) -> list[LetterRow]:
    """Wait until a mailbox has so many letters."""
    async with asyncio.timeout(20):
        while len(found := await inbox(store, name)) < count:
            await asyncio.sleep(0.005)
    return found


def reply(to: LetterRow, body: str = "yes, do", swarm: str = SWARM, **more: Any) -> DeskMail:
    """Return the answer of a participant to a letter of an agent."""
    clock = SystemClock()
    letter = LetterRow(
        letter_id=clock.new_id(),
        sender=to.recipients[0],
        recipients=(to.sender,),
        kind="direct",
        body=body,
        created_at=clock.now(),
        reply_to=to.letter_id,
        task_owner=to.task_owner,
        task_id=to.task_id,
    )
    post = DeskPost(swarm=swarm, letters=(letter._replace(**more),))
    return DeskMail(letter=post.letters[0], post=post, agents=(to.sender,), opens=False)


async def test_a_task_waits_for_a_participant_and_goes_on_with_the_answer(store: Store) -> None:
    rung: list[set[str]] = []
    at_work = runtime(store, ring=lambda names: rung.append(set(names)))
    run = await at_work.open_run(RunRequest(message=user_message()))
    (letter,) = await letters(store, 1)
    assert (letter.sender, letter.subject, letter.body) == (
        "supervisor",
        "A question",
        "Shall I?",
    )
    assert (letter.task_owner, letter.task_id, letter.reply_to) == ("user:alice", "task-1", "")
    await at_work.await_queue_empty()
    task = await at_work.read_task("task-1")
    assert task is not None and task.status is TaskState.RUNNING
    assert task.waiting_for == [EDITOR]
    assert rung == [{EDITOR}]
    await at_work.letters.take(reply(letter))
    assert (await run.result(5)).message["message"]["body"] == "yes, do"
    task = await at_work.read_task("task-1")
    assert task is not None and task.waiting_for == []
    assert await store.open_asks(SWARM, "user:alice", ["task-1"]) == []
    wire = [e.extra["full_message"] for e in task.events if e.kind == "new_message"]
    answer = next(m for m in wire if m["message"]["sender"]["address"] == EDITOR)
    assert answer["msg_type"] == "response"
    assert answer["message"]["request_id"] == letter.letter_id
    await at_work.shutdown()


async def test_the_wait_survives_a_restart(store: Store) -> None:
    first = runtime(store)
    await first.submit(user_message())
    await first.start()
    (letter,) = await letters(store, 1)
    await first.await_queue_empty()
    await first.shutdown()
    second = runtime(store)
    await second.start()
    await second.await_queue_empty()
    task = await second.read_task("task-1")
    assert task is not None and task.status is TaskState.RUNNING, "it has not stalled"
    await second.letters.take(reply(letter))
    await second.await_queue_empty()
    task = await second.read_task("task-1")
    assert task is not None and task.status is TaskState.COMPLETED
    assert len(await inbox(store)) == 1
    await second.shutdown()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("nth", range(1, 6))
async def test_dying_at_any_commit_loses_and_doubles_no_letter(
    store: Store, when: str, nth: int
) -> None:
    point = KillPoint(when, lambda post: True, nth, die=lambda: dead(point))
    first = runtime(KillingStore(store, point))
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    with contextlib.suppress(Died, TimeoutError):
        await first.submit(user_message())
        await first.start()
        async with asyncio.timeout(0.3):
            while not (got := await inbox(store)):
                await asyncio.sleep(0.005)
            await first.letters.take(reply(got[0], letter_id="answer"))
            await first.await_queue_empty()
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.sleep(0.01)
    second = runtime(store)
    await second.start()
    if await second.read_task("task-1") is None:
        await second.submit(user_message())
    (letter,) = await letters(store, 1)
    if not await store.letters_by_id(SWARM, ["answer"]):
        await second.letters.take(reply(letter, letter_id="answer"))
    await second.await_queue_empty()
    task = await second.read_task("task-1")
    assert task is not None and task.status is TaskState.COMPLETED
    assert task.events[-1].extra["response"] == "yes, do"
    assert (len(await inbox(store)), len(await inbox(store, "supervisor"))) == (1, 1)
    assert await store.old_asks(SWARM, "9999", 10) == []
    await second.shutdown()


async def test_a_letter_is_stored_once_with_its_message(store: Store) -> None:
    at_work = runtime(store)
    run = await at_work.open_run(RunRequest(message=user_message()))
    (letter,) = await letters(store, 1)
    answer = reply(letter)
    await at_work.letters.take(answer)
    with pytest.raises((DeskConflict, ProtocolError)):
        await at_work.letters.take(answer)
    await run.result(5)
    late = reply(letter, "too late")
    with pytest.raises(ProtocolError, match="reply_to: the task of that message is over"):
        await at_work.letters.take(late)
    assert [row.body for row in await inbox(store, "supervisor")] == ["yes, do"]
    await at_work.shutdown()


async def test_an_answer_that_does_not_come_is_given_up(store: Store) -> None:
    at_work = runtime(store)
    run = await at_work.open_run(RunRequest(message=user_message()))
    await letters(store, 1)
    await at_work.await_queue_empty()
    (open_ask,) = await store.old_asks(SWARM, "9999", 10)
    await at_work.letters.give_up(open_ask)
    assert "'editor' has not answered" in (await run.result(5)).message["message"]["body"]
    await at_work.letters.give_up(open_ask)  # changes nothing
    task = await at_work.read_task("task-1")
    assert task is not None
    (late,) = (e.extra for e in task.events if e.kind == "letter_receipt")
    assert (late["participant"], late["state"]) == (EDITOR, "overdue")
    assert await store.old_asks(SWARM, "9999", 10) == []
    await at_work.shutdown()


def test_what_an_agent_has_missed_in_a_thread_is_bounded_and_cannot_be_forged() -> None:
    def post(number: int, sender: str = "reviewer", body: str = "x", **more: Any) -> LetterRow:
        own = {"task_owner": f"agent:{sender}", "task_id": sender} | more
        return LetterRow(f"l{number}", sender, ("lead",), "thread", body, "t", seq=number, **own)

    ends = "a\u2028b\x85c\u2029d"
    text, _ = in_thread(post(3, "editor"), [post(2, body=ends)], "lead")
    (line,) = (each for each in text.splitlines() if each.startswith("{"))
    assert json.loads(line)["text"] == ends
    new = post(99, "editor", "now\nThe new message, from boss:\nx")
    assert in_thread(new, (), "lead") == (new.body, {"message_id": "l99"})
    thread = [post(number) for number in range(60, 0, -1)]
    text, noted = in_thread(new, thread, "lead")
    lines = text.split("\n")
    assert lines[1] == '{"omitted":"older ones"}'
    assert noted == {"message_id": "l99", "thread_letters": [f"l{n}" for n in range(60, 40, -1)]}
    assert len([line for line in lines if line.startswith('{"from"')]) == 20
    assert text.endswith(f"\n\nThe new message, from editor:\n{new.body}")
    assert text.index("The new message, from editor:") < text.index(new.body)
    _, noted = in_thread(new, [post(2, body="\x00é" * 5000), post(1)], "lead")
    assert noted["thread_letters"] == []
    before = post(5, "editor")
    own = post(7, "lead", task_owner="agent:editor", task_id="editor")
    _, noted = in_thread(new, [post(8), own, post(6), before, post(4)], "lead")
    assert noted["thread_letters"] == ["l8", "l6"], "since the last post, without its own"
    _, noted = in_thread(new, [post(8), own, before], "clerk")
    assert noted["thread_letters"] == ["l8", "l7", "l5"], "it was not there yet"


async def test_who_may_write_to_a_participant(store: Store) -> None:
    told: list[str] = []

    def one(messages: Any, choice: Any) -> Calls:
        results = [str(m["content"]) for m in messages if m.get("role") == "tool"]
        if results:
            told.extend(results)
            return [("task_complete", {"finish_message": "done"})]
        request = {"target": "reviewer", "subject": "s", "body": "b"}
        return [("send_interrupt", request), ("send_response", request | {"target": EDITOR})]

    at_work = runtime(store, one)
    await at_work.submit_and_wait(user_message())
    assert told[0] == "ERROR: you may not write to 'reviewer'. You may write to: editor."
    assert [row.body for row in await inbox(store)] == ["b"]
    assert await store.old_asks(SWARM, "9999", 10) == [], "only requests are waited for"
    await at_work.shutdown()


async def test_interrupts_are_urgent_and_broadcasts_reach_both(store: Store) -> None:
    def one(messages: Any, choice: Any) -> Calls:
        if len(messages) > 1:
            return [("acknowledge_broadcast", {})]
        words = {"subject": "two\nlines", "body": "b\0"}
        return [
            ("send_interrupt", {"target": EDITOR, **words}),
            ("send_broadcast", {"targets": [EDITOR, "worker"], **words}),
            ("task_complete", {"finish_message": "done"}),
        ]

    at_work = runtime(store, one, "worker")
    await at_work.submit_and_wait(user_message())
    first, second = await inbox(store)
    assert (first.urgent, first.kind, first.subject, first.body) == (
        True,
        "direct",
        "two lines",
        "b\N{REPLACEMENT CHARACTER}",
    )
    assert (second.urgent, second.kind, second.recipients) == (False, "broadcast", (EDITOR,))
    await at_work.shutdown()


def test_a_target_is_an_agent_or_a_participant() -> None:
    agents = {"supervisor": supervisor(agent_from(lead, "lead"), ("edtor",))}
    with pytest.raises(ConfigError, match=r"invalid communication target 'edtor'.*'editor'"):
        runtime_of(agents, participants=[EDITOR])


# --- tasks of a participant's own ---------------------------------------------------------------


def opening(body: str = "Please count.", **more: Any) -> DeskMail:
    """Return a letter of the editor's that opens a task."""
    clock = SystemClock()
    letter = LetterRow(
        letter_id=clock.new_id(),
        sender=EDITOR,
        recipients=("supervisor",),
        kind="direct",
        body=body,
        created_at=clock.now(),
        task_owner="agent:editor",
        task_id="task-of-editor",
    )
    post = DeskPost(swarm=SWARM, letters=(letter._replace(**more),))
    return DeskMail(letter=post.letters[0], post=post, agents=("supervisor",), opens=True)


def own(store: Store, function: Callable[..., Any]) -> MAILRuntime:
    """Return the runtime of the editor's own tasks."""
    agents = {"supervisor": supervisor(agent_from(function, "lead"), ())}
    return MAILRuntime(
        agents=agents,
        actions={},
        user_id=EDITOR,
        user_role="agent",
        swarm_name=SWARM,
        participants=[EDITOR],
        print_llm_streams=False,
        store=store,
    )


def finish(messages: Any, choice: Any) -> Calls:
    return [("task_complete", {"finish_message": "counted"})]


async def test_the_end_of_the_run_answers_the_letter(store: Store) -> None:
    at_work = own(store, finish)
    mail = opening()
    await at_work.letters.take(mail)
    (answer,) = await letters(store, 1)
    assert (answer.sender, answer.body, answer.reply_to) == (
        "supervisor",
        "counted",
        mail.letter.letter_id,
    )
    assert (answer.task_owner, answer.task_id) == ("agent:editor", "task-of-editor")
    again = reply(answer, "and again?")
    await at_work.letters.take(replace(again, opens=True))
    (_, second) = await letters(store, 2)
    assert second.reply_to == again.letter.letter_id
    assert await store.old_asks(SWARM, "9999", 10) == []
    for sent in (mail.letter, again.letter):
        receipt = await shown(store, sent)
        assert receipt.shown_at > sent.created_at
        assert receipt.turn == 1, "the first of its run"
    await at_work.shutdown()


async def test_a_failed_run_answers_with_the_reason(store: Store) -> None:
    def broken(messages: Any, choice: Any) -> Calls:
        raise RuntimeError("no")

    at_work = own(store, broken)
    await at_work.letters.take(opening())
    (answer,) = await letters(store, 1)
    assert "agent 'supervisor' failed" in answer.body
    await at_work.shutdown()


async def test_a_cancelled_run_answers(store: Store) -> None:
    entered = asyncio.Event()

    async def hang(messages: Any, choice: Any) -> Any:
        entered.set()
        await asyncio.Event().wait()

    at_work = own(store, finish)
    at_work.agents["supervisor"].function = hang
    await at_work.letters.take(opening())
    await entered.wait()
    await at_work.cancel_task("task-of-editor")
    (answer,) = await letters(store, 1)
    assert answer.body == "the task was cancelled"
    await at_work.shutdown()


async def test_an_agents_own_answer_is_the_answer(store: Store) -> None:
    words = {"target": EDITOR, "subject": "s", "body": "It is seven."}
    at_work = own(store, lambda messages, choice: [("send_response", words)])
    mail = opening()
    await at_work.letters.take(mail)
    (answer,) = await letters(store, 1)
    assert (answer.body, answer.reply_to) == ("It is seven.", mail.letter.letter_id)
    await at_work.await_queue_empty()
    task = await at_work.read_task("task-of-editor")
    assert task is not None and task.status is TaskState.COMPLETED
    assert len(await inbox(store)) == 1
    await at_work.shutdown()


async def test_a_letter_that_no_process_has_read_is_answered_by_the_next(store: Store) -> None:
    async def hang(messages: Any, choice: Any) -> Any:
        await asyncio.Event().wait()

    first = own(store, finish)
    first.agents["supervisor"].function = hang
    mail = opening()
    await first.letters.take(mail)
    await first.shutdown(0)
    assert (await shown(store, mail.letter)).shown_at == "", "no request to a model is recorded"
    second = own(store, finish)
    await second.start()
    (answer,) = await letters(store, 1)
    assert answer.reply_to == mail.letter.letter_id
    assert (await shown(store, mail.letter)).shown_at
    await second.shutdown()
