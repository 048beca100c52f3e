"""The event logs of tasks, and the histories of their agents; commits append to them."""

from typing import Final

from mail.core.events import TaskEvent
from mail.db.driver import Query, Verb, Verbs, read
from mail.db.records import Owner
from mail.db.rows import MANY, THE_TASK
from mail.db.texts import whole_rows

_LONG: Final = {"description": 3, "event_data": 4}
"""Of the columns that make an event, those with long texts."""

NEWEST_EVENTS: Final = 64
"""How many events `EventVerbs.latest_time` reads: concurrent turns store theirs as they end."""


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
            owner: Whose task it is.
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
        rows = yield from whole_rows(self.sql, Query(text, values), _LONG)
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
