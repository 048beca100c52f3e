"""Whose task mail of another swarm is about, where a swarm works on one task for several."""

from typing import Any

import pytest

from mail.core.interswarm import PEER_ROLE
from mail.db.base import OutboxRow, Owner, Post, TaskRow
from mail.db.memory import MemoryStore
from mail.services.peer_mail import find_place

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
        await store.post(Post(owner=owner, task=row, new=True, outbox=(asked,)))
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
