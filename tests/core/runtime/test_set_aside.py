"""Mail that saw too many crashes is set aside; it can be looked at, tried again and discarded."""

import asyncio

import pytest
from pydantic_core import from_json, to_json

from mail.core.approvals import Answerer
from mail.core.runtime import RuntimeSettings
from mail.core.runtime.turn import Control, ControlKind
from mail.db.commit import Commit, TurnCommit
from mail.db.records import Delivery, Owner
from mail.errors import NotSetAside, RetryRefused, UnknownTask
from mail.testing import agent_from
from tests.support.swarm import last_body, runtime_of, supervisor, user_message, worker

SETTINGS = RuntimeSettings(max_attempts=1)
ALICE = Answerer("user", "alice", owner=True)


class Died(BaseException):
    """Stands for the end of the process."""


def lead(messages, choice):
    text = last_body(messages)
    if "Report" in text:
        return [("task_complete", {"finish_message": "done after all"})]
    return [("send_request", {"target": "worker", "subject": "Job", "body": "count"})]


def work(messages, choice):
    return [("send_response", {"target": "supervisor", "subject": "Report", "body": "7"})]


def swarm(store, doing):
    agents = {"supervisor": supervisor(agent_from(lead, "lead")), "worker": worker(doing)}
    return runtime_of(agents, store=store, settings=SETTINGS)


async def crashed(store):
    """Return a runtime whose task has failed: its worker's only message is set aside."""
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    for _ in range(2):
        dead = asyncio.Event()

        async def deadly(messages, choice, dead=dead):
            dead.set()
            raise Died

        runtime = swarm(store, deadly)
        await runtime.start()
        if await runtime.read_task("task-1") is None:
            await runtime.submit(user_message())
        await asyncio.wait_for(dead.wait(), 10)
        await asyncio.sleep(0)
    last = swarm(store, agent_from(work, "work"))
    await last.start()
    assert [event async for event in last.replay("task-1")]
    return last


async def ended(runtime, task_id="task-1"):
    async with asyncio.timeout(10):
        async for event in runtime.replay(task_id):
            last = event
    return last


async def test_mail_is_listed_with_its_reason_and_tried_again(store) -> None:
    runtime = await crashed(store)
    [found] = await runtime.mail_set_aside("task-1")
    assert found["agent"] == "worker"
    assert found["body"] == "count"
    assert found["body_length"] == 5
    assert "crashed 1 times" in found["reason"]
    told = [e for e in (await runtime.read_task("task-1")).events if e.kind == "mail_set_aside"]
    assert [event.extra["number"] for event in told] == [found["id"]]

    await runtime.set_aside.retry("task-1", found["id"], ALICE)
    assert await runtime.mail_set_aside("task-1") == []
    assert (await ended(runtime)).data["response"] == "done after all"
    task = await runtime.read_task("task-1")
    assert task.status == "completed"
    retried = [event for event in task.events if event.kind == "mail_retried"]
    assert [(e.extra["number"], e.extra["by"]) for e in retried] == [(found["id"], "user:alice")]
    messages = [message["id"] for message in task.get_messages()]
    assert len(messages) == len(set(messages))
    with pytest.raises(NotSetAside):
        await runtime.set_aside.retry("task-1", found["id"], ALICE)
    await runtime.shutdown()


async def test_mail_of_a_task_that_this_process_has_not_seen_is_tried_again(store) -> None:
    first = await crashed(store)
    [found] = await first.mail_set_aside("task-1")
    await first.shutdown()
    runtime = swarm(store, agent_from(work, "work"))
    await runtime.set_aside.retry("task-1", found["id"], ALICE)
    assert (await ended(runtime)).data["response"] == "done after all"
    assert await store.waiting_mail(runtime._context.owner, "task-1") == []
    await runtime.shutdown()


async def test_one_of_two_at_once_tries_it_again(store) -> None:
    runtime = await crashed(store)
    [found] = await runtime.mail_set_aside("task-1")
    outcomes = await asyncio.gather(
        *(runtime.set_aside.retry("task-1", found["id"], ALICE) for _ in range(3)),
        runtime.set_aside.discard("task-1", found["id"], ALICE),
        return_exceptions=True,
    )
    assert sum(outcome is None for outcome in outcomes) == 1
    assert sum(isinstance(outcome, NotSetAside) for outcome in outcomes) == 3
    await ended(runtime)
    kinds = [event.kind for event in (await runtime.read_task("task-1")).events]
    assert kinds.count("mail_retried") == 1
    await runtime.shutdown()


async def test_discarded_mail_is_gone_and_changes_nothing_else(store) -> None:
    runtime = await crashed(store)
    await ended(runtime)
    [found] = await runtime.mail_set_aside("task-1")
    before = await runtime.read_task("task-1")
    await runtime.set_aside.discard("task-1", found["id"], Answerer("admin", "root"))
    assert await runtime.mail_set_aside("task-1") == []
    after = await runtime.read_task("task-1")
    assert (after.status, len(after.events)) == (before.status, len(before.events) + 1)
    assert after.events[-1].kind == "mail_discarded"
    assert after.events[-1].extra["by"] == "admin:root"
    for verb in (runtime.set_aside.retry, runtime.set_aside.discard):
        with pytest.raises(NotSetAside):
            await verb("task-1", found["id"], ALICE)
        with pytest.raises(NotSetAside):
            await verb("task-1", 10**12, ALICE)
        with pytest.raises(UnknownTask):
            await verb("task-2", found["id"], ALICE)
    await runtime.shutdown()


async def test_a_crash_of_mail_that_is_tried_again_is_counted_anew(store) -> None:
    runtime = await crashed(store)
    [found] = await runtime.mail_set_aside("task-1")
    await runtime.shutdown()
    dead = asyncio.Event()

    async def deadly(messages, choice):
        dead.set()
        raise Died

    for _ in range(2):
        dead.clear()
        runtime = swarm(store, deadly)
        if await runtime.mail_set_aside("task-1"):
            await runtime.set_aside.retry("task-1", found["id"], ALICE)
        else:
            await runtime.start()
        await asyncio.wait_for(dead.wait(), 10)
        await asyncio.sleep(0)
    last = swarm(store, agent_from(work, "work"))
    await last.start()
    await ended(last)
    [again] = await last.mail_set_aside("task-1")
    assert again["id"] > found["id"]
    assert again["message_id"] == found["message_id"]
    await last.shutdown()


async def put_aside(store, owner: Owner, control: Control) -> int:
    """Set an instruction of the system to the worker aside in a finished task; its number."""
    row = await store.load_task(owner, "task-1")
    payload = (await store.all_mail(owner, "task-1"))[-1].payload
    delivery = Delivery("task-1", "worker", 1, False, payload, control.to_json())
    receipt = await store.commit(Commit(owner=owner, task=row, deliveries=(delivery,)))
    await store.commit(TurnCommit(owner=owner, task=row, seq=receipt.seqs[0], dead="tests"))
    return receipt.seqs[0]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (ControlKind.FINISH, "a turn that is over"),
        (ControlKind.RUN, "a turn that is over"),
        (ControlKind.RESUME, "has gone on without"),
    ],
)
async def test_what_could_lead_to_nothing_is_refused_and_discarded(store, kind, reason) -> None:
    runtime = swarm(store, agent_from(work, "work"))
    await runtime.submit_and_wait(user_message())
    number = await put_aside(store, runtime._context.owner, Control(kind, call=("c", {})))
    if kind is ControlKind.RESUME:
        await runtime.submit_and_wait(user_message(body="And again?"))
    with pytest.raises(RetryRefused, match=reason):
        await runtime.set_aside.retry("task-1", number, ALICE)
    assert (await runtime.read_task("task-1")).status == "completed"
    await runtime.set_aside.discard("task-1", number, ALICE)
    assert await runtime.mail_set_aside("task-1") == []
    await runtime.shutdown()


async def test_what_another_swarm_has_asked_is_for_that_swarm_to_ask_again(store) -> None:
    runtime = await crashed(store)
    await ended(runtime)
    owner = runtime._context.owner
    [aside] = await store.mail_aside(owner, "task-1")
    theirs = from_json(aside.delivery.payload)
    theirs["message"]["sender"]["address"] = "boss@elsewhere"
    foreign = aside.delivery._replace(payload=to_json(theirs).decode(), seq=0)
    row = await store.load_task(owner, "task-1")
    receipt = await store.commit(Commit(owner=owner, task=row, deliveries=(foreign,)))
    [number] = receipt.seqs
    await store.commit(TurnCommit(owner=owner, task=row, seq=number, dead="tests"))
    with pytest.raises(RetryRefused, match="has to ask again"):
        await runtime.set_aside.retry("task-1", number, ALICE)
    await runtime.set_aside.discard("task-1", number, ALICE)
    await runtime.shutdown()


async def test_an_agent_that_waits_for_results_still_gets_them(store) -> None:
    runtime = swarm(store, agent_from(work, "work"))
    await runtime.submit_and_wait(user_message())
    number = await put_aside(store, runtime._context.owner, Control(ControlKind.RESUME))
    await runtime.set_aside.retry("task-1", number, ALICE)
    await ended(runtime)
    events = (await runtime.read_task("task-1")).events
    retried = next(event for event in events if event.kind == "mail_retried")
    after = [event for event in events[retried.seq :] if event.kind == "tool_call"]
    assert "worker" in [event.extra["caller"] for event in after]
    await runtime.shutdown()
