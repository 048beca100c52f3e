"""Tasks, the mail and histories of their agents, and their events: the verbs that read.

What changes a task is in `mail.db.commit`, what removes it in `mail.db.sweep`.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from mail.core.events import TaskEvent
from mail.core.tasks import TaskState
from mail.db.driver import Query, Verb, Verbs, read, write
from mail.db.records import (
    AsideRow,
    Delivery,
    JournalRow,
    Owner,
    QueueLength,
    TaskCounts,
    TaskRow,
)
from mail.db.rows import MANY, OWNED, OWNER_COLUMNS, THE_TASK, UNFINISHED, Values, columns, reader
from mail.db.texts import text_size, whole_rows
from mail.errors import StoreConflict

_DELIVERY: Final = columns(Delivery, "task_id", "texts")
_MAIL: Final = f"SELECT {_DELIVERY}, task, texts FROM messages WHERE task = {THE_TASK}"
_as_delivery: Final = reader(Delivery)

_LONG_OF_EVENTS: Final = {"description": 3, "event_data": 4}
"""Of the columns that make an event, those with long texts."""

NEWEST_EVENTS: Final = 64
"""The events that `EventVerbs.latest_time` reads: concurrent turns store theirs as they end."""


class TaskVerbs(Verbs):
    """Tasks, their mail, calls and final messages."""

    @write
    def count_attempt(self, owner: Owner, seq: int) -> Verb[int]:
        """Count one more attempt on a recovered delivery and return the new count.

        Raises:
            StoreConflict: the delivery is not waiting.
        """
        return (yield from self._change_attempts(owner, seq, "+ 1"))

    @write
    def uncount_attempt(self, owner: Owner, seq: int) -> Verb[None]:
        """Take a `count_attempt` back: its turn was put off in good order.

        Raises:
            StoreConflict: the delivery is not waiting.
        """
        yield from self._change_attempts(owner, seq, "- 1")

    def _change_attempts(self, owner: Owner, seq: int, change: str) -> Verb[int]:
        text = f"""
            UPDATE messages
            SET attempts = CASE WHEN attempts {change} > 0 THEN attempts {change} ELSE 0 END
            WHERE seq = $4 AND state = 'ready' AND EXISTS (
                SELECT 1 FROM tasks WHERE tasks.key = messages.task AND {OWNED})
            RETURNING attempts"""
        rows = yield Query(text, (*owner, seq))
        if not rows:
            raise StoreConflict(f"delivery {seq} is not waiting")
        return int(rows[0][0])

    @read
    def load_task(self, owner: Owner, task_id: str) -> Verb[TaskRow | None]:
        """Return a task, or None."""
        text = f"SELECT {self.sql.task_columns} FROM tasks WHERE {OWNED} AND task_id = $4"
        rows = yield Query(text, (*owner, task_id))
        return self.sql.as_task(rows[0]) if rows else None

    @read
    def list_tasks(
        self,
        owner: Owner,
        *,
        states: Sequence[TaskState] = (),
        limit: int | None = None,
        before: str | None = None,
    ) -> Verb[list[TaskRow]]:
        """Return the owner's tasks, newest first.

        Args:
            owner: The owner of the tasks.
            states: Only tasks in one of these states.
            limit: At most so many.
            before: A task id; only tasks that come after it in this order.
        """
        text = f"SELECT {self.sql.task_columns} FROM tasks WHERE {OWNED}"
        values = Values(owner)
        if before is not None:
            values.append(before)
            text += f" AND key < {THE_TASK}"
        if tuple(states) == (TaskState.RUNNING,):
            text += " AND is_running"  # which has an index
        elif states:
            place = values.place(self.sql.list([state.value for state in states]))
            text += f" AND state {self.sql.among(place)}"
        text += f" ORDER BY key DESC LIMIT {values.place(MANY if limit is None else limit)}"
        rows = yield Query(text, values)
        return [self.sql.as_task(row) for row in rows]

    @read
    def swarm_tasks(
        self, swarm: str, limit: int, before: tuple[Owner, str] | None = None
    ) -> Verb[list[tuple[Owner, TaskRow]]]:
        """Return the tasks of all owners in a swarm, newest first, and whose they are.

        Args:
            swarm: The swarm.
            limit: At most so many.
            before: An owner in the swarm and the id of a task; only tasks that come after that one
                in this order.
        """
        text = f"SELECT {OWNER_COLUMNS}, {self.sql.task_columns} FROM tasks WHERE swarm_name = $1"
        values: tuple[object, ...] = (swarm, limit)
        if before is not None:
            owner, task_id = before
            values = (*owner, task_id, limit)
            text += f" AND key < {THE_TASK}"
        rows = yield Query(f"{text} ORDER BY key DESC LIMIT ${len(values)}", values)
        return [(Owner(*row[:3]), self.sql.as_task(row[3:])) for row in map(tuple, rows)]

    @read
    def queue_lengths(self, swarm: str, owner: Owner | None = None) -> Verb[list[QueueLength]]:
        """Return how much mail waits in a swarm by agent and tier, in that order.

        Args:
            swarm: The swarm.
            owner: Only in tasks of this owner.
        """
        whose, values = ("swarm_name = $1", (swarm,)) if owner is None else (OWNED, tuple(owner))
        text = f"""
            SELECT recipient, tier, count(*) FROM messages JOIN tasks ON tasks.key = messages.task
            WHERE messages.state = 'ready' AND {whose}
            GROUP BY recipient, tier ORDER BY recipient, tier"""
        rows = yield Query(text, values)
        return [QueueLength(*row) for row in rows]

    @read
    def task_counts(self, owner: Owner, task_ids: Sequence[str]) -> Verb[dict[str, TaskCounts]]:
        """Return how much there is of some of the owner's tasks, without those it does not have."""
        text = f"""
            SELECT task_id, next_event - 1, (
                SELECT count(*) FROM messages WHERE task = tasks.key AND messages.state = 'ready')
            FROM tasks WHERE {OWNED} AND task_id {self.sql.among("$4")}"""
        rows = yield Query(text, (*owner, self.sql.list(task_ids)))
        return {task_id: TaskCounts(*counts) for task_id, *counts in rows}

    @read
    def owners(self, swarm: str) -> Verb[list[Owner]]:
        """Return the owners in a swarm that have tasks, in order."""
        return (yield from _owners(swarm, "TRUE"))

    @read
    def open_owners(self, swarm: str) -> Verb[list[Owner]]:
        """Return the owners in a swarm that have work left, in order.

        That is a running task, or a paused one that is still ``awaited``: its callers were not
        told of the pause.
        """
        return (yield from _owners(swarm, UNFINISHED))

    @read
    def running_owners(self, swarm: str) -> Verb[list[Owner]]:
        """Return the owners in a swarm that have a running task, in order.

        What has ended or is paused takes no time here.
        """
        return (yield from _owners(swarm, "is_running"))

    @read
    def swarms(self) -> Verb[list[str]]:
        """Return the names of the swarms whose owners have tasks, in order."""
        rows = yield Query("SELECT DISTINCT swarm_name FROM tasks WHERE swarm_name <> ''")
        return sorted(name for (name,) in rows)

    @read
    def waiting_mail(
        self,
        owner: Owner,
        task_id: str,
        after: Delivery | None = None,
        limit: int | None = None,
    ) -> Verb[list[Delivery]]:
        """Return a task's unconsumed deliveries by (tier, seq).

        Args:
            owner: The owner of the task.
            task_id: The task.
            after: Only those behind this one in that order.
            limit: At most so many.
        """
        values: tuple[object, ...] = (*owner, task_id)
        text = f"{_MAIL} AND state = 'ready'"
        if after is not None:
            text += " AND (tier, seq) > ($5, $6)"
            values += (after.tier, after.seq)
        text += f" ORDER BY tier, seq LIMIT ${len(values) + 1}"
        return (yield from self._mail(text, *values, MANY if limit is None else limit))

    @read
    def all_mail(self, owner: Owner, task_id: str, *, whole: bool = True) -> Verb[list[Delivery]]:
        """Return all of a task's deliveries by seq, consumed or not.

        Args:
            owner: The owner of the task.
            task_id: The task.
            whole: With their long texts; else there may be a hash in place of a body, for whoever
                only asks who wrote to whom.
        """
        text = f"{_MAIL} ORDER BY seq"
        if whole:
            return (yield from self._mail(text, *owner, task_id))
        rows = yield Query(text, (*owner, task_id))
        return [_as_delivery((task_id, *row[:-2])) for row in rows]

    @read
    def mail_aside(
        self, owner: Owner, task_id: str, after: int = 0, limit: int | None = None
    ) -> Verb[list[AsideRow]]:
        """Return a task's deliveries that were set aside, by seq.

        Args:
            owner: The owner of the task.
            task_id: The task.
            after: Only those with a greater number.
            limit: At most so many.
        """
        text = f"""
            SELECT {_DELIVERY}, reason, task, texts FROM messages
            WHERE task = {THE_TASK} AND state = 'dead' AND seq > $5 ORDER BY seq LIMIT $6"""
        values = (*owner, task_id, after, MANY if limit is None else limit)
        rows = yield from whole_rows(self.sql, Query(text, values), {"payload": 3})
        return [AsideRow(_as_delivery((task_id, *row[:-1])), row[-1] or "") for row in rows]

    def _mail(self, text: str, *values: Any) -> Verb[list[Delivery]]:
        rows = yield from whole_rows(self.sql, Query(text, values), {"payload": 3})
        return [_as_delivery((values[3], *row)) for row in rows]

    @read
    def journal(self, owner: Owner, seq: int) -> Verb[list[JournalRow]]:
        """Return the journal of a delivery's turn in order."""
        text = f"""
            SELECT journal.key, journal.state, journal.payload, messages.task, journal.texts
            FROM journal
            JOIN messages ON messages.seq = journal.message
            JOIN tasks ON tasks.key = messages.task
            WHERE {OWNED} AND journal.message = $4 ORDER BY journal.id"""
        rows = yield from whole_rows(self.sql, Query(text, (*owner, seq)), {"payload": 2})
        return [JournalRow(*row) for row in rows]

    @read
    def begun(self, owner: Owner, task_id: str) -> Verb[list[int]]:
        """Return the numbers of a task's waiting deliveries that have a journal, in order."""
        text = f"""
            SELECT seq FROM messages WHERE task = {THE_TASK} AND state = 'ready'
                AND EXISTS (SELECT 1 FROM journal WHERE message = messages.seq)
            ORDER BY seq"""
        rows = yield Query(text, (*owner, task_id))
        return [int(seq) for (seq,) in rows]

    @read
    def response(self, owner: Owner, task_id: str) -> Verb[str | None]:
        """Return the final message of a task's last finished run as JSON, or None."""
        text = (
            f"SELECT {self.sql.response}, task, texts FROM task_responses WHERE task = {THE_TASK}"
        )
        query = Query(text, (*owner, task_id))
        rows = yield from whole_rows(self.sql, query, {"response": 0})
        return str(rows[0][0]) if rows else None


class EventVerbs(Verbs):
    """Events and histories."""

    @read
    def events(
        self,
        owner: Owner,
        task_id: str,
        after: int = 0,
        limit: int | None = None,
        max_bytes: int | None = None,
    ) -> Verb[list[TaskEvent]]:
        """Return a task's events with a number above ``after``, in order.

        Args:
            owner: The owner of the task.
            task_id: The task.
            after: The number before the first.
            limit: At most so many.
            max_bytes: At most so many bytes of text, but at least one event: no more is read.
        """
        text = f"""
            SELECT {self.sql.event_columns}, task, texts FROM task_events
            WHERE task = {THE_TASK} AND seq > $5 ORDER BY seq LIMIT $6"""
        values: tuple[object, ...] = (*owner, task_id, after, MANY if limit is None else limit)
        if max_bytes is not None:
            text = self._events_within
            values += (max_bytes,)
        rows = yield from whole_rows(self.sql, Query(text, values), _LONG_OF_EVENTS)
        return [self.sql.as_event(task_id, row) for row in rows]

    @property
    def _events_within(self) -> str:
        """The events after ``$5``, at most ``$6``, of at most ``$7`` bytes, but at least one.

        It goes from one to the next and looks at none behind the first that is too much.
        """
        return f"""
            WITH RECURSIVE page (last, taken, bytes) AS (
                SELECT CAST($5 AS BIGINT), CAST(0 AS BIGINT), CAST(0 AS BIGINT)
                UNION ALL
                SELECT seq, taken + 1, bytes + {self.sql.event_size}
                FROM page JOIN task_events ON task = {THE_TASK} AND seq = (
                    SELECT min(seq) FROM task_events WHERE task = {THE_TASK} AND seq > last)
                WHERE taken < $6 AND bytes < $7)
            SELECT {self.sql.event_columns}, task, texts FROM page
            JOIN task_events ON task = {THE_TASK} AND seq = last
            WHERE taken = 1 OR taken > 1 AND bytes <= $7
            ORDER BY taken"""

    @read
    def latest_time(self, owner: Owner, task_id: str) -> Verb[str]:
        """Return the latest time among a task's newest events, or no text when it has none."""
        text = f"""
            SELECT {self.sql.event_time_columns} FROM task_events
            WHERE task = {THE_TASK} ORDER BY seq DESC LIMIT {NEWEST_EVENTS}"""
        rows = yield Query(text, (*owner, task_id))
        return max((self.sql.as_event(task_id, row).timestamp for row in rows), default="")

    @read
    def history(self, owner: Owner, task_id: str, agent: str) -> Verb[list[str]]:
        """Return the ``entries`` texts of an agent's history in order of their commits."""
        text = f"""
            SELECT entries, task, texts FROM history_entries
            WHERE task = {THE_TASK} AND agent = $5 ORDER BY id"""
        query = Query(text, (*owner, task_id, agent))
        rows = yield from whole_rows(self.sql, query, {"entries": 0})
        return [str(entries) for (entries,) in rows]


def as_event(task_id: str, row: Iterable[Any]) -> TaskEvent:
    """Make an event of event_type, created_at, seq, description and event_data."""
    kind, timestamp, seq, description, extra = row
    return TaskEvent(
        task_id=task_id,
        kind=kind,
        timestamp=timestamp,
        seq=seq,
        description=description,
        extra=json.loads(extra),
        size=text_size(extra) + text_size(description),
    )


def _owners(swarm: str, condition: str) -> Verb[list[Owner]]:
    text = f"SELECT DISTINCT {OWNER_COLUMNS} FROM tasks WHERE swarm_name = $1 AND {condition}"
    rows = yield Query(text, (swarm,))
    return sorted(Owner(*row) for row in rows)
