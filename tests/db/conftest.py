"""Every store, and short ways to make rows."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mail.core.tasks import TaskState
from mail.db.commit import Commit, TurnCommit
from mail.db.memory import MemoryStore
from mail.db.records import Delivery, EventRow, MemoryRow, Owner, TaskRow
from mail.db.store import Store
from tests.support.databases import DATABASES, Database

NOW = "2026-01-01T10:00:00.000000+00:00"


class Rows:
    """Rows with sensible fields; every maker takes overrides."""

    def __init__(self) -> None:
        self._begun: set[tuple[Owner, str]] = set()

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

    def post(self, task_id: str = "t1", **changes: Any) -> Commit:
        """Make a commit; a test's first one for a task begins it."""
        fields: dict[str, Any] = {"owner": self.alice, "task": self.task(task_id)} | changes
        place = (fields["owner"], fields["task"].task_id)
        post = Commit(**{"new": place not in self._begun} | fields)
        self._begun.add(place)
        return post

    def turn(self, seq: int, task_id: str = "t1", **changes: Any) -> TurnCommit:
        fields: dict[str, Any] = {"owner": self.alice, "task": self.task(task_id)}
        return TurnCommit(seq=seq, **fields | changes)

    def memory(
        self,
        key: str,
        value: str = "{}",
        *,
        namespace: tuple[str, ...] = ("notes",),
        age: int = 0,
    ) -> MemoryRow:
        """Make a memory; a greater ``age`` is older."""
        at = f"2026-01-{28 - age:02d}T10:00:00+00:00"
        return MemoryRow(namespace, key, value, created_at=at, updated_at=at)

    async def begin(self, store: Store, task_id: str = "t1", **changes: Any) -> int:
        """Post a task with one delivery and return the delivery's number."""
        post = self.post(task_id, deliveries=(self.mail(task_id),), **changes)
        return (await store.commit(post)).seqs[0]


@pytest.fixture
def rows() -> Rows:
    return Rows()


@pytest.fixture(params=["memory", *DATABASES])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """Each store in turn; a new one gets the whole contract suite by its name here."""
    name: str = request.param
    made = MemoryStore() if name == "memory" else DATABASES[name](request, tmp_path).store()
    await made.open()
    yield made
    await made.close()


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """An empty database of each kind that keeps what is committed."""
    return DATABASES[request.param](request, tmp_path)


@pytest.fixture
async def durable(database: Database) -> AsyncIterator[Store]:
    """An open store over `database`."""
    made = database.store()
    await made.open()
    yield made
    await made.close()
