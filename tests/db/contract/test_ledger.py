"""The open questions of tasks as they are stored: `mail.db.ledger`."""

from typing import Any

import pytest

from mail.core.tasks import TaskState
from mail.db.ledger import LedgerPart, Question, StoredLedger
from mail.db.store import Store
from mail.errors import StoreConflict
from tests.support.databases import Database

Rows = Any

FIRST = Question("lead", "worker", "r1", "agent", "m1", 1)
SECOND = Question("lead", "wind@weather", "r2", "peer", "m2", 2)
THIRD = Question("wind@weather", "lead", "r\0 3\u2028", "for_peer", "m3", 3)


async def test_questions_come_back_in_order_and_go_when_they_are_closed(
    store: Store, rows: Rows
) -> None:
    assert await store.ledger(rows.alice, "t1") is None
    await store.commit(rows.post(new=True))
    assert await store.ledger(rows.alice, "t1") == StoredLedger((), None)
    opened = LedgerPart((SECOND, FIRST, THIRD))
    await store.commit(rows.post(ledger=opened))
    assert await store.ledger(rows.alice, "t1") == StoredLedger((FIRST, SECOND, THIRD), None)
    assert await store.ledger(rows.bob, "t1") is None
    released = THIRD._replace(kind="agent")
    await store.commit(rows.post(ledger=LedgerPart((released,), (1, 2, 9))))
    assert await store.ledger(rows.alice, "t1") == StoredLedger((released,), None)


async def test_what_is_known_of_other_swarms_stays_until_there_is_more(
    store: Store, rows: Rows
) -> None:
    await store.commit(rows.post(new=True, ledger=LedgerPart(peering='{"sent":{"weather":1}}')))
    await store.commit(rows.post(ledger=LedgerPart((FIRST,))))
    stored = await store.ledger(rows.alice, "t1")
    assert stored == StoredLedger((FIRST,), '{"sent":{"weather":1}}')
    await store.commit(rows.post(ledger=LedgerPart(peering="{}")))
    assert await store.ledger(rows.alice, "t1") == StoredLedger((FIRST,), "{}")


async def test_a_turn_that_is_refused_changes_no_ledger(store: Store, rows: Rows) -> None:
    seq = await rows.begin(store)
    with pytest.raises(StoreConflict):
        await store.commit(rows.turn(seq + 1, ledger=LedgerPart((FIRST,))))
    assert await store.ledger(rows.alice, "t1") == StoredLedger((), None)
    await store.commit(rows.turn(seq, ledger=LedgerPart((FIRST,))))
    assert await store.ledger(rows.alice, "t1") == StoredLedger((FIRST,), None)


async def test_a_task_of_an_earlier_version_has_none_until_one_is_stored(
    durable: Store, database: Database, rows: Rows
) -> None:
    await durable.commit(rows.post(new=True))
    database.query("UPDATE tasks SET ledger = 0 RETURNING 1")
    assert await durable.ledger(rows.alice, "t1") is None
    await durable.commit(rows.post())
    assert await durable.ledger(rows.alice, "t1") is None
    await durable.commit(rows.post(ledger=LedgerPart((FIRST,), first=True)))
    assert await durable.ledger(rows.alice, "t1") == StoredLedger((FIRST,), None)


async def test_questions_go_with_their_task(durable: Store, database: Database, rows: Rows) -> None:
    ended = rows.task(state=TaskState.COMPLETED)
    await durable.commit(rows.post(task=ended, ledger=LedgerPart((FIRST, SECOND))))
    await durable.commit(rows.post("t2", ledger=LedgerPart((FIRST,))))
    await durable.delete_task(rows.alice, "t1")
    assert database.query("SELECT number FROM questions") == [(1,)]
    assert await durable.ledger(rows.alice, "t1") is None
