"""Every store, and short ways to make rows."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from mail.core.tasks import TaskState
from mail.db.base import Delivery, EventRow, Owner, Post, Store, TaskRow, TurnCommit
from mail.db.memory import MemoryStore
from mail.db.postgres.store import PostgresStore
from mail.db.sqlite.store import SQLiteStore

NOW = "2026-01-01T10:00:00.000000+00:00"

Making = Callable[[pytest.FixtureRequest, Path], Store]

STORES: dict[str, Making] = {
    "memory": lambda request, folder: MemoryStore(),
    "sqlite": lambda request, folder: SQLiteStore(folder / "mail.db"),
    "postgres": lambda request, folder: PostgresStore(
        request.getfixturevalue("cluster").schema(), exclusive=False
    ),
}
"""A new store gets the whole contract suite for one line here."""


class Rows:
    """Rows with sensible fields; every maker takes overrides."""

    now = NOW
    alice = Owner("example", "user", "alice")
    bob = Owner("example", "user", "bob")

    def task(self, task_id: str = "t1", **changes: Any) -> TaskRow:
        fields: dict[str, Any] = {
            "task_id": task_id,
            "task_owner": "user:alice@example",
            "task_contributors": ("user:alice@example",),
            "start_time": NOW,
            "entrypoint": "supervisor",
            "state": TaskState.RUNNING,
        }
        return TaskRow(**fields | changes)

    def mail(self, task_id: str = "t1", recipient: str = "supervisor", **changes: Any) -> Delivery:
        fields: dict[str, Any] = {"tier": 5, "interrupt": False, "payload": "{}"}
        return Delivery(task_id=task_id, recipient=recipient, **fields | changes)

    def event(self, kind: str = "new_message", **changes: Any) -> EventRow:
        return EventRow(kind=kind, **{"timestamp": NOW} | changes)

    def post(self, task_id: str = "t1", **changes: Any) -> Post:
        fields: dict[str, Any] = {"owner": self.alice, "task": self.task(task_id)}
        return Post(**fields | changes)

    def turn(self, seq: int, task_id: str = "t1", **changes: Any) -> TurnCommit:
        fields: dict[str, Any] = {"owner": self.alice, "task": self.task(task_id)}
        return TurnCommit(seq=seq, **fields | changes)


@pytest.fixture
def rows() -> Rows:
    return Rows()


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    made = STORES[request.param](request, tmp_path)
    await made.open()
    yield made
    await made.close()
