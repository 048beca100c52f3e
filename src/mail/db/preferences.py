"""Named memories with a history, such as a user's preferences, and the feedback that teaches them.

The value of a memory is a row among its owner's memories, in a namespace of its own, so that
LangGraph and LangMem see it, too. Feedback is stored with the answer that it comes from; a job that
takes it up ends it in the same commit as the memory's new version.
"""

import json
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

from mail.errors import StoreConflict

if TYPE_CHECKING:
    from mail.db.base import EventRow, MemoryRow, Owner

PREFERENCE_KEY: Final = "user_preferences"
"""The key of a named memory in its namespace."""

KEPT_VERSIONS: Final = 20
"""How many versions of a memory are kept."""

KEPT_FEEDBACK: Final = 20
"""How much feedback on a memory is kept once it is done with."""

WAITING_FEEDBACK: Final = 200
"""How much feedback on a memory waits at most; older feedback makes room."""

FEEDBACK_TEXTS: Final = ("args", "change", "task_text", "reason", "rejections")
"""The fields of a `FeedbackRow` that can be long."""

_TEXT: Final = 8192
_SHORT_TEXT: Final = 256

Source = Literal["person", "feedback", "restored", "program", "deleted"]
FeedbackState = Literal["waiting", "learned", "unchanged", "rejected", "failed"]


class VersionRow(NamedTuple):
    """A version of a memory.

    Attributes:
        name: The memory.
        version: Counts from 1, also after a deletion.
        value: Its text.
        created_at: When it was stored; RFC 3339 text in UTC.
        source: Who wrote it. ``deleted`` ends the history; ``program`` is what was found in the
            store and had not been stored as a version.
        approval_id, task_id: Of ``feedback``: what the feedback was on.
    """

    name: str
    version: int
    value: str
    created_at: str
    source: Source
    approval_id: str = ""
    task_id: str = ""


class FeedbackRow(NamedTuple):
    """What somebody's answer to an approval teaches a memory.

    Attributes:
        approval_id: The approval; it teaches each memory once.
        memory: The memory.
        task_id: The task of the call.
        type: ``accept``, ``edit``, ``ignore`` or ``response``.
        action: The action that was called.
        args: The arguments that the agent gave it, as JSON.
        change: The edited arguments as JSON, or the person's text; no text without either.
        task_text: What the task is about.
        created_at, updated_at: RFC 3339 text in UTC.
        state: ``waiting`` until it is done with; the others say what came of it.
        attempts: How often it was tried.
        next_at: Not to be tried before.
        reason: Why the last attempt led to nothing.
        rejections: The updates that were refused: a JSON list of ``{"reason", "proposal"}``.
        id: Given by the store.
    """

    approval_id: str
    memory: str
    task_id: str
    type: str
    action: str
    args: str
    change: str
    task_text: str
    created_at: str
    state: FeedbackState = "waiting"
    attempts: int = 0
    next_at: str = ""
    reason: str = ""
    rejections: str = "[]"
    updated_at: str = ""
    id: int = 0


def new_feedback(  # noqa: PLR0913 - the fields of a row
    *,
    approval_id: str,
    memory: str,
    task_id: str,
    type: str,
    action: str,
    args: Any,
    change: Any = None,
    task_text: str = "",
    now: str,
) -> FeedbackRow:
    """Make the row of an answer; long texts are cut.

    Args:
        approval_id, memory, task_id, type, action: See `FeedbackRow`.
        args: The original arguments.
        change: The edited arguments, the person's text, or None.
        task_text: What the task is about.
        now: The time of the answer.
    """
    return FeedbackRow(
        approval_id=approval_id[:_SHORT_TEXT],
        memory=memory,
        task_id=task_id,
        type=type,
        action=action[:_SHORT_TEXT],
        args=_cut(args),
        change="" if change is None else _cut(change),
        task_text=_cut(task_text),
        created_at=now,
        updated_at=now,
    )


def _cut(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _TEXT else f"{text[:_TEXT]} […]"


def preference_namespace(swarm: str, name: str) -> tuple[str, str]:
    """Return the namespace of a named memory; its value has the key `PREFERENCE_KEY`."""
    return swarm, name


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceChange:
    """One commit about a memory. All of it is stored, or nothing.

    Attributes:
        owner: Whose memory.
        name: The memory.
        versions: The versions that are added: the newest one's number and one more, and so on.
        memory: The row of the value.
        forget: Remove the value, the older versions and the feedback.
        feedback: The new state of feedback that must be waiting.
        task_id: The task whose log gets the event.
        event: The event; left out when the task is gone.
    """

    owner: "Owner"
    name: str
    versions: tuple[VersionRow, ...] = ()
    memory: "MemoryRow | None" = None
    forget: bool = False
    feedback: FeedbackRow | None = None
    task_id: str = ""
    event: "EventRow | None" = None


class PreferenceRecords(Protocol):
    """Versions of named memories, and feedback. A `mail.db.base.Post` may bring feedback."""

    async def change_preference(self, change: PreferenceChange) -> int:
        """Commit a change, and return the number of its event; 0 without one.

        Of each memory the newest `KEPT_VERSIONS` are kept, and the newest `KEPT_FEEDBACK` that are
        done with.

        Raises:
            StoreConflict: the versions do not follow the newest one, because the memory was
                changed meanwhile, or the feedback does not wait.
        """

    async def preferences(self, owner: "Owner") -> list[VersionRow]:
        """Return the newest version of each of an owner's memories, in order of the names."""

    async def preference_versions(self, owner: "Owner", name: str) -> list[VersionRow]:
        """Return the versions of a memory, newest first."""

    async def feedback_on(
        self, owner: "Owner", name: str, limit: int, *, waiting: bool = False
    ) -> list[FeedbackRow]:
        """Return feedback on a memory, newest first; only what waits if that is asked for."""

    async def waiting_feedback(self, owner: "Owner") -> dict[str, int]:
        """Return how much feedback waits for each of an owner's memories."""

    async def due_feedback(
        self, swarm: str, now: str, limit: int
    ) -> Sequence[tuple["Owner", FeedbackRow]]:
        """Return feedback that may be taken up now: of each memory only what has waited longest.

        Args:
            swarm: The local swarm.
            now: RFC 3339 text in UTC.
            limit: At most so many, the oldest first.
        """


class MemoryPreferences(ABC):
    """`PreferenceRecords` in dictionaries."""

    def __init__(self) -> None:
        super().__init__()
        self._versions: dict[tuple[Owner, str], list[VersionRow]] = defaultdict(list)
        self._feedback: dict[int, tuple[Owner, FeedbackRow]] = {}
        self._next_feedback = 1

    @abstractmethod
    async def put_memories(self, owner: "Owner", rows: Sequence["MemoryRow"]) -> None:
        """See `mail.db.base.MemoryRecords.put_memories`."""

    @abstractmethod
    async def delete_memory(self, owner: "Owner", namespace: tuple[str, ...], key: str) -> None:
        """See `mail.db.base.MemoryRecords.delete_memory`."""

    @abstractmethod
    def _add_event(self, owner: "Owner", task_id: str, event: "EventRow") -> int:
        """Add an event to a task's log and return its number; 0 when the task is gone."""

    def _take_feedback(self, owner: "Owner", rows: Iterable[FeedbackRow]) -> None:
        for row in rows:
            known = self._feedback_where(owner, row.memory)
            if any(each.approval_id == row.approval_id for each in known):
                continue
            self._feedback[self._next_feedback] = owner, row._replace(id=self._next_feedback)
            self._next_feedback += 1
            self._make_room(owner, row.memory, WAITING_FEEDBACK, lambda each: _waits(each))

    def _forget_feedback(self, owner: "Owner", gone: Callable[[FeedbackRow], bool]) -> None:
        """Remove some of an owner's feedback."""
        for number, (whose, row) in list(self._feedback.items()):
            if whose == owner and gone(row):
                del self._feedback[number]

    def _make_room(
        self, owner: "Owner", name: str, most: int, which: Callable[[FeedbackRow], bool]
    ) -> None:
        for row in [each for each in self._feedback_where(owner, name) if which(each)][most:]:
            del self._feedback[row.id]

    def _feedback_where(self, owner: "Owner", name: str) -> list[FeedbackRow]:
        """Return feedback on a memory, newest first."""
        rows = reversed(self._feedback.values())
        return [row for whose, row in rows if whose == owner and row.memory == name]

    async def change_preference(self, change: PreferenceChange) -> int:
        """See `PreferenceRecords.change_preference`."""
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

    def _kept_texts(self, owner: "Owner") -> Iterator[str]:
        """Yield the texts of an owner's versions and feedback."""
        for (whose, _), versions in self._versions.items():
            if whose == owner:
                yield from (row.value for row in versions)
        for whose, feedback in self._feedback.values():
            if whose == owner:
                yield from (getattr(feedback, name) for name in FEEDBACK_TEXTS)

    async def preferences(self, owner: "Owner") -> list[VersionRow]:
        """See `PreferenceRecords.preferences`."""
        newest = (
            rows[-1] for (whose, _), rows in self._versions.items() if whose == owner and rows
        )
        return sorted(newest)

    async def preference_versions(self, owner: "Owner", name: str) -> list[VersionRow]:
        """See `PreferenceRecords.preference_versions`."""
        return list(reversed(self._versions.get((owner, name), ())))

    async def feedback_on(
        self, owner: "Owner", name: str, limit: int, *, waiting: bool = False
    ) -> list[FeedbackRow]:
        """See `PreferenceRecords.feedback_on`."""
        rows = self._feedback_where(owner, name)
        return [row for row in rows if not waiting or _waits(row)][:limit]

    async def waiting_feedback(self, owner: "Owner") -> dict[str, int]:
        """See `PreferenceRecords.waiting_feedback`."""
        counts: dict[str, int] = defaultdict(int)
        for whose, row in self._feedback.values():
            if whose == owner and _waits(row):
                counts[row.memory] += 1
        return dict(counts)

    async def due_feedback(
        self, swarm: str, now: str, limit: int
    ) -> Sequence[tuple["Owner", FeedbackRow]]:
        """See `PreferenceRecords.due_feedback`."""
        first: dict[tuple[Owner, str], FeedbackRow] = {}
        for owner, row in self._feedback.values():
            if owner.swarm == swarm and _waits(row):
                first.setdefault((owner, row.memory), row)
        due = [(owner, row) for (owner, _), row in first.items() if row.next_at <= now]
        return sorted(due, key=lambda each: each[1].id)[:limit]


def _waits(row: FeedbackRow) -> bool:
    return row.state == "waiting"
