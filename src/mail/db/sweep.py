"""The size of owners' records, and their deletion.

Deleting a task hides it at once, in one commit; `SweepVerbs.purge` removes its records bit by bit,
so that nobody's commits wait for long, and goes on after a crash.
"""

from datetime import UTC, datetime
from typing import Final, Literal

from mail.db.claims import QUEUED
from mail.db.driver import Change, Query, Verb, Verbs, read, write
from mail.db.preferences import FEEDBACK_TEXTS
from mail.db.records import Owner, StoredUse
from mail.db.rows import BURIED, LAST_WORDS, OWNED, OWNER_COLUMNS, THE_TASK
from mail.errors import StoreConflict

AgedKind = Literal["files", "inbox", "keys", "letters", "tasks"]
"""Records that go by age; ``keys`` include pages of letters, ``tasks`` are ended ones."""

ENDED: Final = "NOT is_running AND state <> 'paused'"

_KEEPS: Final = f"EXISTS (SELECT 1 FROM outbox WHERE task = {{}} AND {LAST_WORDS})"
"""Of a deleted task that has still something to send."""

PARTS: Final = {
    "messages": 64,
    "task_events": 64,
    "history_entries": 64,
    "agent_histories": 8,
    "calls": 32,
    "outbox": 64,
    "task_texts": 4,
    "task_responses": 1,
}
"""The tables with the records of a task, and how many of each are removed at once."""

_FORGET: Final = (
    f"DELETE FROM task_responses WHERE task = {THE_TASK}",
    f"DELETE FROM questions WHERE task = {THE_TASK}",
    f"""
    UPDATE idempotency SET task_id = '', message_id = '', first_event = 0, answer = NULL
    WHERE {OWNED} AND task_id = $4""",
    f"DELETE FROM memory_feedback WHERE {OWNED} AND task_id = $4",
)
"""The tables from which a deleted task goes at once."""

BURIED_VALUES: Final = (
    "swarm_name = '', caller_role = 'deleted', caller_id = swarm_name, task_id = CAST(key AS TEXT)"
)
"""Makes a task unknown; see `mail.db.records.Owner.of_deleted`."""

_BURY: Final = f"""
UPDATE tasks SET {BURIED_VALUES}
WHERE {OWNED} AND task_id = $4 AND NOT is_running
"""

_PUT_MOMENT: Final = """
INSERT INTO sweeps (name, moment) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET moment = excluded.moment
"""


class SweepVerbs(Verbs):
    """Sizes, deletion, and deletion by age."""

    @read
    def stored_use(self, owner: Owner) -> Verb[StoredUse]:
        """Return what an owner's tasks, memories and idempotency keys take of the store.

        Memories count with their versions and the feedback on them.
        """
        size, alive = self.sql.size, self.sql.alive.format("tasks.node")
        feedback = " + ".join(map(size.format, FEEDBACK_TEXTS))
        text = f"""
            SELECT coalesce(sum(bytes), 0)
                    + (SELECT coalesce(sum(size), 0) FROM memories WHERE {OWNED})
                    + (SELECT coalesce(sum({size.format("value")}), 0)
                        FROM memory_versions WHERE {OWNED})
                    + (SELECT coalesce(sum({feedback}), 0) FROM memory_feedback WHERE {OWNED})
                    + (SELECT coalesce(sum(size), 0) FROM idempotency WHERE {OWNED}),
                count(*), coalesce(sum(CASE WHEN is_running OR state = 'paused' THEN 1 END), 0),
                coalesce(sum(CASE WHEN is_running AND node <> $4 AND {alive} THEN 1 END), 0)
                    + coalesce(sum(CASE WHEN {QUEUED} THEN 1 END), 0)
            FROM tasks WHERE {OWNED}"""
        (row,) = yield Query(text, (*owner, self.driver.node))
        return StoredUse(*map(int, row))

    @write
    def delete_task(self, owner: Owner, task_id: str, *, ended: bool = False) -> Verb[None]:
        """Make a task unknown, with all of its records. Its idempotency keys name no task then.

        Mail for peers that waits and that the runtime itself wrote, such as the end of the task,
        is still to be sent: the outbox has it under `Owner.of_deleted` until it is ``done``.

        Args:
            owner: The owner of the task.
            task_id: The task.
            ended: Only one that has ended, not a paused one.

        Raises:
            StoreConflict: there is no such task, or it is running.
        """
        for text in _FORGET:
            yield Change(text, (*owner, task_id))
        bury = f"{_BURY} AND state <> 'paused'" if ended else _BURY
        if not (yield Change(bury, (*owner, task_id))):
            raise StoreConflict(f"task '{task_id}' is unknown, or is at work")

    @write
    def purge(self) -> Verb[bool]:
        """Remove some records of a deleted task; tell whether there may be more."""
        keeps = _KEEPS.format("tasks.key")
        rest = [
            f"EXISTS (SELECT 1 FROM {table} WHERE task = tasks.key{but})"
            for table, but in _parts(f" AND NOT {keeps}").items()
        ]
        found = yield Query(
            f"SELECT key FROM tasks WHERE {BURIED} AND (NOT {keeps} OR {' OR '.join(rest)}) LIMIT 1"
        )
        if not found:
            return False
        task = (found[0][0],)
        yield Change(
            "DELETE FROM journal WHERE message IN (SELECT seq FROM messages WHERE task = $1)", task
        )
        for table, but in _parts(f" AND NOT {_KEEPS.format('$1')}").items():
            some = f"SELECT {self.sql.row} FROM {table} WHERE task = $1{but} LIMIT {PARTS[table]}"
            yield Change(f"DELETE FROM {table} WHERE {self.sql.some.format(some)}", task)
        left = " AND ".join(f"NOT EXISTS (SELECT 1 FROM {t} WHERE task = $1)" for t in PARTS)
        yield Change(f"DELETE FROM tasks WHERE key = $1 AND {left}", task)
        return True

    @read
    def ended_tasks(self, swarm: str, before: str, limit: int) -> Verb[list[tuple[Owner, str]]]:
        """Return tasks of a swarm that ended before a time, and whose they are.

        Args:
            swarm: The swarm.
            before: RFC 3339 text in UTC.
            limit: At most so many, the oldest first.
        """
        text = f"""
            SELECT {OWNER_COLUMNS}, task_id FROM tasks
            WHERE swarm_name = $1 AND updated_at < {self.sql.time.format("$2")} AND {ENDED}
            ORDER BY key LIMIT $3"""
        rows = yield Query(text, (swarm, before, limit))
        return [(Owner(*row[:3]), str(row[3])) for row in map(tuple, rows)]

    @read
    def aged_between(
        self, kind: AgedKind, swarm: str, since: str, until: str
    ) -> Verb[tuple[str, str] | None]:
        """Return the earliest and the latest time of some records that go by age, or None.

        Args:
            kind: The kind of records. Their time is that of creation, of tasks the last change.
            swarm: The swarm of the records; keys and the inbox are those of all swarms.
            since: Only those of this time or later, RFC 3339 text in UTC; files that expire then.
            until: Only those of this time or earlier.
        """
        within = "created_at >= $1 AND created_at <= $2"
        ours = "swarm_name = $3"
        time = self.sql.time.format
        tables: dict[AgedKind, tuple[tuple[str, str, str], ...]] = {
            "keys": (("idempotency", "created_at", within), ("desk_pages", "created_at", within)),
            "inbox": (("inbox", "created_at", within),),
            "letters": (("desk_letters", "created_at", f"{ours} AND {within}"),),
            "files": (
                ("desk_files", "created_at", f"{ours} AND expires_at >= $1 AND created_at <= $2"),
            ),
            "tasks": (
                (
                    "tasks",
                    "updated_at",
                    f"{ours} AND updated_at >= {time('$1')} AND updated_at <= {time('$2')} "
                    f"AND {ENDED}",
                ),
            ),
        }
        # One query for each end: a database then goes to it by an index, without what is between.
        text = " UNION ALL ".join(
            f"SELECT {end}({column}) FROM {table} WHERE {which}"
            for table, column, which in tables[kind]
            for end in ("min", "max")
        )
        values = (since, until) if kind in ("keys", "inbox") else (since, until, swarm)
        rows = yield Query(text, values)
        times = [
            moment.astimezone(UTC).isoformat() if isinstance(moment, datetime) else str(moment)
            for (moment,) in rows
            if moment is not None
        ]
        return (min(times), max(times)) if times else None

    @write
    def drop_aged(
        self, table: Literal["idempotency", "inbox", "desk_pages"], before: str, limit: int
    ) -> Verb[int]:
        """Remove idempotency keys, receipts of peers' mail or pages of letters that are old.

        Args:
            table: Which; those of all owners and swarms.
            before: Only what was made before this time: RFC 3339 text in UTC.
            limit: At most so many, the oldest first.

        Returns:
            How many were removed.
        """
        text = f"""
            DELETE FROM {table} WHERE id IN (
                SELECT id FROM {table} WHERE created_at < $1 ORDER BY created_at LIMIT $2)"""
        return int((yield Change(text, (before, limit))))

    @read
    def sweep_moment(self, name: str) -> Verb[str | None]:
        """Return how far a kind of deletion by age has come in time, or None at first."""
        rows = yield Query("SELECT moment FROM sweeps WHERE name = $1", (name,))
        return str(rows[0][0]) if rows else None

    @write
    def put_sweep_moment(self, name: str, moment: str) -> Verb[None]:
        """Store how far it has come."""
        yield Change(_PUT_MOMENT, (name, moment))


def _parts(without_last_words: str) -> dict[str, str]:
    """Return the tables with records to remove, each with a condition that spares some."""
    spared = {"outbox": f" AND NOT ({LAST_WORDS})", "task_texts": without_last_words}
    return {table: spared.get(table, "") for table in PARTS}
