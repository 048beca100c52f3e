"""What every store tells of what is in it, for ``GET /metrics``: `mail.db.figures.FigureVerbs`."""

from typing import Any, Final

from mail.core.tasks import TaskState
from mail.db.figures import Waiting
from mail.db.records import OutboxRow, Owner
from mail.db.sqlite.driver import SQLiteStore
from mail.db.store import Store
from mail.db.webhooks import WebhookRow
from tests.support.databases import Database

Rows = Any

EARLY: Final = "2026-01-01T10:00:00.000000+00:00"
LATER: Final = "2026-01-01T10:00:30.000000+00:00"
ELSEWHERE: Final = Owner("other", "user", "bob")


def sent(moment: str) -> str:
    """Return a message of a moment, as deliveries have it."""
    return f'{{"id":"m","timestamp":"{moment}","message":{{}}}}'


def outgoing(peer: str, moment: str, **changes: Any) -> OutboxRow:
    return OutboxRow("t1", peer, "m", "supervisor", "request", "r", "{}", moment, **changes)


async def test_the_queue_has_the_messages_of_running_tasks_by_tier(
    store: Store, rows: Rows
) -> None:
    mails = [
        rows.mail(tier=tier, payload=sent(moment))
        for tier, moment in ((5, EARLY), (5, LATER), (2, LATER))
    ]
    (first, *_) = (await store.commit(rows.post(deliveries=mails))).seqs
    others = (rows.mail("t2", payload=sent(EARLY)),)
    await store.commit(rows.post("t2", owner=ELSEWHERE, deliveries=others))
    ended = rows.task("t3", state=TaskState.FAILED)
    left = (rows.mail("t3", payload=sent(EARLY)),)
    await store.commit(rows.post("t3", task=ended, deliveries=left))
    assert (await store.figures("example")).queue == {
        ("2",): Waiting(1, LATER),
        ("5",): Waiting(2, EARLY),
    }
    await store.commit(rows.turn(first))
    assert (await store.figures("example")).queue[("5",)] == Waiting(1, LATER)
    assert (await store.figures("nobody")).queue == {}


async def test_open_tasks_are_counted_by_state(store: Store, rows: Rows) -> None:
    for number, state in enumerate((*TaskState, TaskState.PAUSED)):
        name = f"t{number}"
        await store.commit(rows.post(name, task=rows.task(name, state=state)))
    await store.commit(rows.post("t9", owner=ELSEWHERE))
    found = await store.figures("example")
    assert found.tasks == {("running",): 1, ("paused",): 2}
    assert (await store.figures("nobody")).tasks == {("running",): 0, ("paused",): 0}


async def test_what_others_have_not_taken_is_counted_with_its_age(store: Store, rows: Rows) -> None:
    mails = (
        outgoing("beta", LATER),
        outgoing("beta", EARLY),
        outgoing("beta", EARLY, state="dead"),
        outgoing("gamma", LATER, state="delivered"),
    )
    told = [
        WebhookRow(name, "ended", "t1", "user:alice@example", "{}", moment)
        for name, moment in (("a", EARLY), ("b", LATER))
    ]
    await store.commit(rows.post(outbox=mails, webhooks=told))
    found = await store.figures("example")
    assert found.outbox == {
        ("beta", "waiting"): Waiting(2, EARLY),
        ("beta", "dead"): Waiting(1, EARLY),
        ("gamma", "delivered"): Waiting(1, LATER),
    }
    assert found.webhooks == {("waiting",): Waiting(2, EARLY)}
    elsewhere = await store.figures("other")
    assert (elsewhere.outbox, elsewhere.webhooks) == ({}, {})


async def test_what_has_ended_is_not_read(durable: Store, database: Database) -> None:
    """On SQLite, whose plans do not depend on how much is stored."""
    if not isinstance(durable, SQLiteStore):
        return
    for condition, index in (("is_running", "tasks_running"), ("state = 'paused'", "tasks_paused")):
        text = "EXPLAIN QUERY PLAN SELECT count(*) FROM tasks WHERE swarm_name = 'x' AND "
        assert index in str(database.query(text + condition))
