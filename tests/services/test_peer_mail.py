"""Whose task mail of another swarm is about, and which mail for others is retried or discarded."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mail.core.interswarm import INBOX_AGE, PEER_ROLE
from mail.core.tasks import TaskState
from mail.db.commit import Commit
from mail.db.memory import MemoryStore
from mail.db.records import OutboxRow, Owner, TaskRow
from mail.errors import OutboxConflict, UnknownMail
from mail.services.peer_mail import discard_mail, find_place, retry_mail

INES, TASK = "user:ines@harbour", "7b0f6a52-4d4d-4a4f-9e87-4b0d7d7d5a08"
HOSTS = ("harbour", "depot")
NOW = "2026-01-01T00:00:00+00:00"


async def weather() -> MemoryStore:
    """Return the store of a swarm that two others let work on a task; each part asked the sea."""
    store = MemoryStore()
    for host in HOSTS:
        owner = Owner("weather", PEER_ROLE, host)
        row = TaskRow(TASK, INES, (INES, str(owner)), NOW, "wind", remote_swarms=("sea",))
        asked = OutboxRow(TASK, "sea", f"m-{host}", "wind", "request", f"r-{host}", "{}", NOW)
        await store.commit(Commit(owner=owner, task=row, new=True, outbox=(asked,)))
    return store


def answer(ref: str, kind: str = "response") -> Any:
    return {
        "payload": {"task_id": TASK, "request_id": ref},
        "msg_type": kind,
        "task_owner": INES,
        "task_contributors": [INES, *(f"swarm:{host}@weather" for host in HOSTS)],
    }


@pytest.mark.parametrize(
    ("ref", "kind", "host"),
    [
        ("r-harbour", "response", "harbour"),
        ("r-depot", "response", "depot"),
        ("r-else", "response", "harbour"),
        ("r-depot", "request", "harbour"),
    ],
)
async def test_an_answer_goes_to_the_part_that_asked(ref, kind, host) -> None:
    message = answer(ref, kind)
    place = await find_place(await weather(), "weather", message, "sea", may_open=False)
    assert place.owner == Owner("weather", PEER_ROLE, host)


ALICE = Owner("weather", "user", "alice")
WRITTEN = datetime(2026, 1, 1, tzinfo=UTC)
OLD = WRITTEN + INBOX_AGE


async def given_up(kind: str = "request", state: TaskState = TaskState.RUNNING) -> MemoryStore:
    """Return a store with mail that was given up once before, and let go again since."""
    store = MemoryStore()
    wrapper = f'{{"timestamp":"{WRITTEN.isoformat()}"}}'
    row = OutboxRow("t", "sea", "m", "wind", kind, "r", wrapper, OLD.isoformat(), "dead")
    task = TaskRow("t", INES, (INES,), NOW, "wind", state)
    await store.commit(Commit(owner=ALICE, task=task, new=True, outbox=(row,)))
    return store


@pytest.mark.parametrize(
    ("kind", "state", "now", "reason"),
    [
        ("request", TaskState.RUNNING, OLD, None),
        ("request", TaskState.PAUSED, OLD, None),
        ("request", TaskState.COMPLETED, WRITTEN, "is completed: nobody waits"),
        ("response", TaskState.COMPLETED, WRITTEN, None),
        ("response", TaskState.RUNNING, OLD + timedelta(seconds=1), "older than 7 days"),
    ],
)
async def test_mail_is_retried_while_its_answer_counts_and_the_peer_knows_it(
    kind: str, state: TaskState, now: datetime, reason: str | None
) -> None:
    store = await given_up(kind, state)
    if reason is None:
        await retry_mail(store, "weather", 1, now)
    else:
        with pytest.raises(OutboxConflict, match=reason):
            await retry_mail(store, "weather", 1, now)
    [(_, row)] = await store.list_outbox("weather")
    assert row.state == ("waiting" if reason is None else "dead")


async def test_mail_of_another_swarm_is_nobody_elses() -> None:
    store = await given_up()
    for ask in (retry_mail(store, "other", 1, WRITTEN), discard_mail(store, "other", 1)):
        with pytest.raises(UnknownMail, match="no mail 1"):
            await ask
    await discard_mail(store, "weather", 1)
    assert await store.list_outbox("weather") == []
