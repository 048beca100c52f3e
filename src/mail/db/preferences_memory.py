"""Named memories and feedback in dictionaries, as a part of `mail.db.memory`."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from mail.db.base import EventRow, MemoryRow, Owner
from mail.db.preferences import (
    KEPT_FEEDBACK,
    KEPT_VERSIONS,
    PREFERENCE_KEY,
    WAITING_FEEDBACK,
    FeedbackRow,
    PreferenceChange,
    VersionRow,
    preference_namespace,
)
from mail.errors import StoreConflict

__all__ = ["MemoryPreferences"]


class MemoryPreferences(ABC):
    """`mail.db.preferences.PreferenceRecords`, which lives and dies with the process."""

    def __init__(self) -> None:
        super().__init__()
        self._versions: dict[tuple[Owner, str], list[VersionRow]] = defaultdict(list)
        self._feedback: dict[int, tuple[Owner, FeedbackRow]] = {}
        self._next_feedback = 1

    @abstractmethod
    async def put_memories(self, owner: Owner, rows: Sequence[MemoryRow]) -> None:
        """See `mail.db.base.MemoryRecords.put_memories`."""

    @abstractmethod
    async def delete_memory(self, owner: Owner, namespace: tuple[str, ...], key: str) -> None:
        """See `mail.db.base.MemoryRecords.delete_memory`."""

    @abstractmethod
    def _add_event(self, owner: Owner, task_id: str, event: EventRow) -> int:
        """Add an event to a task's log and return its number; 0 when the task is gone."""

    def _take_feedback(self, owner: Owner, rows: Iterable[FeedbackRow]) -> None:
        for row in rows:
            known = self._feedback_where(owner, row.memory)
            if any(each.approval_id == row.approval_id for each in known):
                continue
            self._feedback[self._next_feedback] = owner, row._replace(id=self._next_feedback)
            self._next_feedback += 1
            self._make_room(owner, row.memory, WAITING_FEEDBACK, lambda each: _waits(each))

    def _forget_feedback(self, owner: Owner, gone: Callable[[FeedbackRow], bool]) -> None:
        """Remove some of an owner's feedback."""
        for number, (whose, row) in list(self._feedback.items()):
            if whose == owner and gone(row):
                del self._feedback[number]

    def _make_room(
        self, owner: Owner, name: str, most: int, which: Callable[[FeedbackRow], bool]
    ) -> None:
        for row in [each for each in self._feedback_where(owner, name) if which(each)][most:]:
            del self._feedback[row.id]

    def _feedback_where(self, owner: Owner, name: str) -> list[FeedbackRow]:
        """Return feedback on a memory, newest first."""
        rows = reversed(self._feedback.values())
        return [row for whose, row in rows if whose == owner and row.memory == name]

    async def change_preference(self, change: PreferenceChange) -> int:
        """See `mail.db.preferences.PreferenceRecords.change_preference`."""
        owner, name, ended = change.owner, change.name, change.feedback
        versions = self._versions[owner, name]
        newest = versions[-1].version if versions else 0
        if ended is not None:
            whose, waiting = self._feedback.get(ended.id, (None, ended))
            if whose != owner or not _waits(waiting):
                raise StoreConflict("the feedback does not wait")
        if [row.version for row in change.versions] != [
            newest + 1 + number for number in range(len(change.versions))
        ]:
            raise StoreConflict("the memory was changed meanwhile")
        versions += change.versions
        del versions[: -1 if change.forget else -KEPT_VERSIONS]
        if ended is not None:
            self._feedback[ended.id] = owner, ended
            self._make_room(owner, name, KEPT_FEEDBACK, lambda each: not _waits(each))
        if change.memory is not None:
            await self.put_memories(owner, [change.memory])
        if change.forget:
            await self.delete_memory(owner, preference_namespace(owner.swarm, name), PREFERENCE_KEY)
            self._forget_feedback(owner, lambda each: each.memory == name)
        return self._add_event(owner, change.task_id, change.event) if change.event else 0

    async def preferences(self, owner: Owner) -> list[VersionRow]:
        """See `mail.db.preferences.PreferenceRecords.preferences`."""
        newest = (
            rows[-1] for (whose, _), rows in self._versions.items() if whose == owner and rows
        )
        return sorted(newest)

    async def preference_versions(self, owner: Owner, name: str) -> list[VersionRow]:
        """See `mail.db.preferences.PreferenceRecords.preference_versions`."""
        return list(reversed(self._versions.get((owner, name), ())))

    async def feedback_on(
        self, owner: Owner, name: str, limit: int, *, waiting: bool = False
    ) -> list[FeedbackRow]:
        """See `mail.db.preferences.PreferenceRecords.feedback_on`."""
        rows = self._feedback_where(owner, name)
        return [row for row in rows if not waiting or _waits(row)][:limit]

    async def waiting_feedback(self, owner: Owner) -> dict[str, int]:
        """See `mail.db.preferences.PreferenceRecords.waiting_feedback`."""
        counts: dict[str, int] = defaultdict(int)
        for whose, row in self._feedback.values():
            if whose == owner and _waits(row):
                counts[row.memory] += 1
        return dict(counts)

    async def due_feedback(
        self, swarm: str, now: str, limit: int
    ) -> Sequence[tuple[Owner, FeedbackRow]]:
        """See `mail.db.preferences.PreferenceRecords.due_feedback`."""
        first: dict[tuple[Owner, str], FeedbackRow] = {}
        for owner, row in self._feedback.values():
            if owner.swarm == swarm and _waits(row):
                first.setdefault((owner, row.memory), row)
        due = [(owner, row) for (owner, _), row in first.items() if row.next_at <= now]
        return sorted(due, key=lambda each: each[1].id)[:limit]


def _waits(row: FeedbackRow) -> bool:
    return row.state == "waiting"
