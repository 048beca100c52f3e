"""Named memories and feedback in SQL: `mail.db.preferences.PreferenceRecords`."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar, Final

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
from mail.db.rows import OWNER_COLUMNS
from mail.db.statements import Dialect, Row, Step
from mail.errors import DeskConflict, StoreConflict

_VERSION: Final = ", ".join(VersionRow._fields)
_FEEDBACK: Final = ", ".join(FeedbackRow._fields)
_OWNED: Final = "swarm_name = $1 AND caller_role = $2 AND caller_id = $3"
_CHANGED: Final = "the memory was changed meanwhile"

_ADD_FEEDBACK: Final = f"""
INSERT INTO memory_feedback ({OWNER_COLUMNS}, {", ".join(FeedbackRow._fields[:-1])})
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)
ON CONFLICT DO NOTHING
"""

_MAKE_ROOM: Final = f"""
DELETE FROM memory_feedback
WHERE {_OWNED} AND memory = $4 AND state = 'waiting' AND id <= (
    SELECT id FROM memory_feedback WHERE {_OWNED} AND memory = $4 AND state = 'waiting'
    ORDER BY id DESC LIMIT 1 OFFSET {WAITING_FEEDBACK})
"""

_ADD_VERSION: Final = f"""
INSERT INTO memory_versions ({OWNER_COLUMNS}, {_VERSION})
SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10
WHERE CAST($5 AS BIGINT) = 1 + coalesce(
    (SELECT max(version) FROM memory_versions WHERE {_OWNED} AND name = $4), 0)
ON CONFLICT DO NOTHING RETURNING 1
"""

_DROP_VERSIONS: Final = (
    f"DELETE FROM memory_versions WHERE {_OWNED} AND name = $4 AND version <= $5"
)

_DROP_FEEDBACK: Final = f"DELETE FROM memory_feedback WHERE {_OWNED} AND memory = $4"

_END_FEEDBACK: Final = f"""
UPDATE memory_feedback
SET state = $5, attempts = $6, next_at = $7, reason = $8, rejections = $9, updated_at = $10
WHERE {_OWNED} AND id = $4 AND state = 'waiting' RETURNING 1
"""

_DROP_OLD_FEEDBACK: Final = f"""
DELETE FROM memory_feedback
WHERE {_OWNED} AND memory = $4 AND state <> 'waiting' AND id <= (
    SELECT id FROM memory_feedback WHERE {_OWNED} AND memory = $4 AND state <> 'waiting'
    ORDER BY id DESC LIMIT 1 OFFSET {KEPT_FEEDBACK})
"""

_COUNT_EVENT: Final = f"""
UPDATE tasks SET next_event = next_event + 1, bytes = bytes + $5
WHERE {_OWNED} AND task_id = $4
"""


def feedback_steps(owner: Owner, rows: Iterable[FeedbackRow]) -> list[Step]:
    """Return what stores feedback that a commit brings."""
    added = tuple(rows)
    steps = [Step(_ADD_FEEDBACK, each=[(*owner, *row[:-1]) for row in added])]
    names = dict.fromkeys(row.memory for row in added)
    return steps + [Step(_MAKE_ROOM, (*owner, name)) for name in names]


def _versions(rows: Iterable[Row]) -> list[VersionRow]:
    return [VersionRow(*row) for row in rows]


def _feedback(rows: Iterable[Row]) -> list[FeedbackRow]:
    return [FeedbackRow(*row) for row in rows]


class PreferenceStatements(Dialect):
    """`mail.db.preferences.PreferenceRecords`.

    Attributes:
        _ADD_LATE_EVENT: Adds an event to the log of the task that ``$1`` to ``$4`` name, numbered
            just before its next one: kind, data, time, description, size.
    """

    _ADD_LATE_EVENT: ClassVar[str]

    @abstractmethod
    def _put_memory_step(self, owner: Owner, row: MemoryRow) -> Step:
        """Return what stores a memory."""

    async def change_preference(self, change: PreferenceChange) -> int:
        steps = [*_feedback_end(change), *_version_steps(change)]
        if change.memory is not None:
            steps.append(self._put_memory_step(change.owner, change.memory))
        if change.forget:
            steps.append(self._forget_step(change))
        if change.event is not None:
            steps += self._event_steps(change.owner, change.task_id, change.event)
        try:
            rows = await self._run(steps)
        except DeskConflict as conflict:
            raise StoreConflict(str(conflict)) from None
        return int(rows[-1][0][0]) if change.event is not None and rows[-1] else 0

    def _forget_step(self, change: PreferenceChange) -> Step:
        text = f"DELETE FROM memories WHERE {_OWNED} AND {self._THIS_MEMORY}"
        namespace = preference_namespace(change.owner.swarm, change.name)
        return Step(text, (*change.owner, *self._memory_id(namespace, PREFERENCE_KEY)))

    def _event_steps(self, owner: Owner, task_id: str, event: EventRow) -> list[Step]:
        size = len(event.extra.encode()) + len(event.description.encode())
        values = (event.kind, event.extra, event.timestamp, event.description, size)
        return [
            Step(_COUNT_EVENT, (*owner, task_id, size)),
            Step(self._ADD_LATE_EVENT, (*owner, task_id, *values)),
        ]

    async def preferences(self, owner: Owner) -> list[VersionRow]:
        text = f"""
            SELECT {_VERSION} FROM memory_versions AS v
            WHERE {_OWNED} AND version = (
                SELECT max(version) FROM memory_versions WHERE {_OWNED} AND name = v.name)
            ORDER BY name"""
        return await self._fetch(_versions, text, *owner)

    async def preference_versions(self, owner: Owner, name: str) -> list[VersionRow]:
        text = f"""
            SELECT {_VERSION} FROM memory_versions WHERE {_OWNED} AND name = $4
            ORDER BY version DESC"""
        return await self._fetch(_versions, text, *owner, name)

    async def feedback_on(
        self, owner: Owner, name: str, limit: int, *, waiting: bool = False
    ) -> list[FeedbackRow]:
        which = " AND state = 'waiting'" if waiting else ""
        text = f"""
            SELECT {_FEEDBACK} FROM memory_feedback WHERE {_OWNED} AND memory = $4{which}
            ORDER BY id DESC LIMIT $5"""
        return await self._fetch(_feedback, text, *owner, name, limit)

    async def waiting_feedback(self, owner: Owner) -> dict[str, int]:
        text = f"""
            SELECT memory, count(*) FROM memory_feedback WHERE {_OWNED} AND state = 'waiting'
            GROUP BY memory"""

        def counts(rows: Iterable[Row]) -> dict[str, int]:
            return {str(row[0]): int(row[1]) for row in rows}

        return await self._fetch(counts, text, *owner)

    async def due_feedback(
        self, swarm: str, now: str, limit: int
    ) -> Sequence[tuple[Owner, FeedbackRow]]:
        text = f"""
            SELECT {OWNER_COLUMNS}, {_FEEDBACK} FROM memory_feedback
            WHERE next_at <= $2 AND id IN (
                SELECT min(id) FROM memory_feedback WHERE swarm_name = $1 AND state = 'waiting'
                GROUP BY caller_role, caller_id, memory)
            ORDER BY id LIMIT $3"""

        def owned(rows: Iterable[Row]) -> list[tuple[Owner, FeedbackRow]]:
            return [(Owner(*row[:3]), FeedbackRow(*row[3:])) for row in map(tuple, rows)]

        return await self._fetch(owned, text, swarm, now, limit)


def _feedback_end(change: PreferenceChange) -> list[Step]:
    row = change.feedback
    if row is None:
        return []
    values = (row.state, row.attempts, row.next_at, row.reason, row.rejections, row.updated_at)
    return [
        Step(_END_FEEDBACK, (*change.owner, row.id, *values), "the feedback does not wait"),
        Step(_DROP_OLD_FEEDBACK, (*change.owner, change.name)),
    ]


def _version_steps(change: PreferenceChange) -> list[Step]:
    if not change.versions:
        return []
    steps = [Step(_ADD_VERSION, (*change.owner, *row), _CHANGED) for row in change.versions]
    newest = change.versions[-1].version
    last = newest - 1 if change.forget else newest - KEPT_VERSIONS
    steps.append(Step(_DROP_VERSIONS, (*change.owner, change.name, last)))
    if change.forget:
        steps.append(Step(_DROP_FEEDBACK, (*change.owner, change.name)))
    return steps
