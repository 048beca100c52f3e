"""Named memories with a history, such as a user's preferences, and the feedback that teaches them.

The value of a memory is a row among its owner's memories, in a namespace of its own, so that
LangGraph and LangMem see it, too. Feedback is stored with the answer that it comes from; a job that
takes it up ends it in the same commit as the memory's new version.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from mail.db.driver import Batch, Change, Query, Verb, Verbs, read, write
from mail.db.records import EventRow, MemoryRow, Owner
from mail.db.rows import OWNED, OWNER_COLUMNS, columns, insert
from mail.db.texts import text_size
from mail.errors import StoreConflict

PREFERENCE_KEY: Final = "user_preferences"
"""The key of a named memory in its namespace."""

KEPT_VERSIONS: Final = 20
"""The number of versions of a memory that are kept."""

KEPT_FEEDBACK: Final = 20
"""The amount of feedback on a memory that is kept once it is done with."""

WAITING_FEEDBACK: Final = 200
"""The amount of feedback on a memory that can wait; older feedback makes room."""

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
        created_at: The time of storage; RFC 3339 text in UTC.
        source: The author. ``deleted`` ends the history; ``program`` stands for a text found in the
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
    """A lesson for a memory from somebody's answer to an approval.

    Attributes:
        approval_id: The approval; it teaches each memory once.
        memory: The memory.
        task_id: The task of the call.
        type: ``accept``, ``edit``, ``ignore`` or ``response``.
        action: The action that was called.
        args: The arguments that the agent gave it, as JSON.
        change: The edited arguments as JSON, or the person's text; no text without either.
        task_text: The subject of the task.
        created_at, updated_at: RFC 3339 text in UTC.
        state: ``waiting`` until it is done with; the others say what came of it.
        attempts: The number of attempts.
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
        task_text: The subject of the task.
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
        owner: The owner of the memory.
        name: The memory.
        versions: The versions that are added: the newest one's number and one more, and so on.
        memory: The row of the value.
        forget: Remove the value, the older versions and the feedback.
        feedback: The new state of feedback that must be waiting.
        task_id: The task whose log gets the event.
        event: The event; left out when the task is gone.
    """

    owner: Owner
    name: str
    versions: tuple[VersionRow, ...] = ()
    memory: MemoryRow | None = None
    forget: bool = False
    feedback: FeedbackRow | None = None
    task_id: str = ""
    event: EventRow | None = None


_VERSION: Final = columns(VersionRow)
_FEEDBACK: Final = columns(FeedbackRow)

_ADD_FEEDBACK: Final = f"""
{insert("memory_feedback", OWNER_COLUMNS, columns(FeedbackRow, "id"))} ON CONFLICT DO NOTHING
"""

_MAKE_ROOM: Final = f"""
DELETE FROM memory_feedback
WHERE {OWNED} AND memory = $4 AND state = 'waiting' AND id <= (
    SELECT id FROM memory_feedback WHERE {OWNED} AND memory = $4 AND state = 'waiting'
    ORDER BY id DESC LIMIT 1 OFFSET {WAITING_FEEDBACK})
"""

_ADD_VERSION: Final = f"""
INSERT INTO memory_versions ({OWNER_COLUMNS}, {_VERSION})
SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10
WHERE CAST($5 AS BIGINT) = 1 + coalesce(
    (SELECT max(version) FROM memory_versions WHERE {OWNED} AND name = $4), 0)
ON CONFLICT DO NOTHING
"""

_DROP_VERSIONS: Final = f"""
DELETE FROM memory_versions WHERE {OWNED} AND name = $4 AND version <= $5
"""

_DROP_FEEDBACK: Final = f"DELETE FROM memory_feedback WHERE {OWNED} AND memory = $4"

_END_FEEDBACK: Final = f"""
UPDATE memory_feedback
SET state = $5, attempts = $6, next_at = $7, reason = $8, rejections = $9, updated_at = $10
WHERE {OWNED} AND id = $4 AND state = 'waiting'
"""

_DROP_OLD_FEEDBACK: Final = f"""
DELETE FROM memory_feedback
WHERE {OWNED} AND memory = $4 AND state <> 'waiting' AND id <= (
    SELECT id FROM memory_feedback WHERE {OWNED} AND memory = $4 AND state <> 'waiting'
    ORDER BY id DESC LIMIT 1 OFFSET {KEPT_FEEDBACK})
"""

_COUNT_EVENT: Final = f"""
UPDATE tasks SET next_event = next_event + 1, bytes = bytes + $5
WHERE {OWNED} AND task_id = $4 RETURNING key, next_event - 1
"""


def add_feedback(owner: Owner, rows: Sequence[FeedbackRow]) -> Verb[None]:
    """Add feedback, unless the approval has taught the memory before.

    Of each memory the newest `WAITING_FEEDBACK` that wait are kept.
    """
    if rows:
        yield Batch(_ADD_FEEDBACK, [(*owner, *row[:-1]) for row in rows])
        names = dict.fromkeys(row.memory for row in rows)
        yield Batch(_MAKE_ROOM, [(*owner, name) for name in names])


class PreferenceVerbs(Verbs):
    """Versions of named memories, and feedback. A `mail.db.commit.Commit` may bring feedback."""

    @write
    def change_preference(self, change: PreferenceChange) -> Verb[int]:
        """Commit a change, and return the number of its event; 0 without one.

        Of each memory the newest `KEPT_VERSIONS` are kept, and the newest `KEPT_FEEDBACK` that are
        done with.

        Raises:
            StoreConflict: the versions do not follow the newest one, because the memory was
                changed meanwhile, or the feedback does not wait.
        """
        key = (*change.owner, change.name)
        if change.feedback is not None:
            row = change.feedback
            values = (row.state, row.attempts, row.next_at, row.reason, row.rejections)
            if not (yield Change(_END_FEEDBACK, (*change.owner, row.id, *values, row.updated_at))):
                raise StoreConflict("the feedback does not wait")
            yield Change(_DROP_OLD_FEEDBACK, key)
        if change.versions:
            yield from _add_versions(change)
        if change.memory is not None:
            yield Change(self.sql.put_memory, self.sql.memory_values(change.owner, change.memory))
        if change.forget:
            space = preference_namespace(change.owner.swarm, change.name)
            text = f"DELETE FROM memories WHERE {OWNED} AND {self.sql.this_memory}"
            yield Change(text, (*change.owner, *self.sql.memory_id(space, PREFERENCE_KEY)))
            yield Change(_DROP_FEEDBACK, key)
        if change.event is None:
            return 0
        return (yield from self._add_event(change.owner, change.task_id, change.event))

    @read
    def preferences(self, owner: Owner) -> Verb[list[VersionRow]]:
        """Return the newest version of each of an owner's memories, in order of the names."""
        text = f"""
            SELECT {_VERSION} FROM memory_versions AS v
            WHERE {OWNED} AND version = (
                SELECT max(version) FROM memory_versions WHERE {OWNED} AND name = v.name)
            ORDER BY name"""
        rows = yield Query(text, owner)
        return [VersionRow(*row) for row in rows]

    @read
    def preference_versions(self, owner: Owner, name: str) -> Verb[list[VersionRow]]:
        """Return the versions of a memory, newest first."""
        text = f"""
            SELECT {_VERSION} FROM memory_versions WHERE {OWNED} AND name = $4
            ORDER BY version DESC"""
        rows = yield Query(text, (*owner, name))
        return [VersionRow(*row) for row in rows]

    @read
    def feedback_on(
        self, owner: Owner, name: str, limit: int, *, waiting: bool = False
    ) -> Verb[list[FeedbackRow]]:
        """Return feedback on a memory, newest first; only what waits if that is asked for."""
        which = " AND state = 'waiting'" if waiting else ""
        text = f"""
            SELECT {_FEEDBACK} FROM memory_feedback WHERE {OWNED} AND memory = $4{which}
            ORDER BY id DESC LIMIT $5"""
        rows = yield Query(text, (*owner, name, limit))
        return [FeedbackRow(*row) for row in rows]

    @read
    def waiting_feedback(self, owner: Owner) -> Verb[dict[str, int]]:
        """Return how much feedback waits for each of an owner's memories."""
        text = f"""
            SELECT memory, count(*) FROM memory_feedback WHERE {OWNED} AND state = 'waiting'
            GROUP BY memory"""
        rows = yield Query(text, owner)
        return {str(name): int(count) for name, count in rows}

    @read
    def due_feedback(
        self, swarm: str, now: str, limit: int
    ) -> Verb[list[tuple[Owner, FeedbackRow]]]:
        """Return feedback that may be taken up now: of each memory only what has waited longest.

        Args:
            swarm: The local swarm.
            now: RFC 3339 text in UTC.
            limit: At most so many, the oldest first.
        """
        text = f"""
            SELECT {OWNER_COLUMNS}, {_FEEDBACK} FROM memory_feedback
            WHERE next_at <= $2 AND id IN (
                SELECT min(id) FROM memory_feedback WHERE swarm_name = $1 AND state = 'waiting'
                GROUP BY caller_role, caller_id, memory)
            ORDER BY id LIMIT $3"""
        rows = yield Query(text, (swarm, now, limit))
        return [(Owner(*row[:3]), FeedbackRow(*row[3:])) for row in map(tuple, rows)]

    def _add_event(self, owner: Owner, task_id: str, event: EventRow) -> Verb[int]:
        """Add an event to a task's log and return its number; 0 when the task is gone."""
        size = text_size(event.extra + event.description)
        rows = yield Query(_COUNT_EVENT, (*owner, task_id, size))
        if not rows:
            return 0
        ((task, seq),) = rows
        times = self.sql.times(event.timestamp)
        row = event.kind, event.extra, str(seq), *times, task, seq, event.description, size, None
        yield Change(self.sql.add_event, (task_id, *owner, *row))
        return int(seq)


def _add_versions(change: PreferenceChange) -> Verb[None]:
    """Add versions, and remove those that are not kept any more.

    Raises:
        StoreConflict: they do not follow the newest one.
    """
    for row in change.versions:
        if not (yield Change(_ADD_VERSION, (*change.owner, *row))):
            raise StoreConflict("the memory was changed meanwhile")
    newest = change.versions[-1].version
    last = newest - 1 if change.forget else newest - KEPT_VERSIONS
    if last > 0:
        yield Change(_DROP_VERSIONS, (*change.owner, change.name, last))
