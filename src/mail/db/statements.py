"""The verbs that are one statement, written once for SQLite and PostgreSQL, subject by subject.

`Dialect` is what differs between the two databases. Parameters are written ``$1``, ``$2`` and so
on. The verbs that take several statements (`post`, `commit_turn`, `put_memories`, `change_outbox`)
are in `mail.db.sqlite.statements` and `mail.db.postgres.statements`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Executor
from datetime import UTC, datetime
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

from mail.core.approvals import DECIDED
from mail.core.events import TaskEvent
from mail.core.tasks import TaskState
from mail.db.base import (
    NEWEST_EVENTS,
    AgedKind,
    AsideRow,
    CallRow,
    Delivery,
    IdempotencyRow,
    JournalRow,
    MemoryRow,
    OutboxRow,
    Owner,
    QueueLength,
    StoredUse,
    TaskCounts,
    TaskRow,
    TokenRow,
)
from mail.db.preferences import FEEDBACK_TEXTS
from mail.db.rows import (
    CALL_COLUMNS,
    CALL_RECORDS,
    EVENT_RECORDS,
    INBOX_COLUMNS,
    JOURNAL_RECORDS,
    KEY_COLUMNS,
    MAIL_COLUMNS,
    MAIL_RECORDS,
    MEMORY_COLUMNS,
    ONE_RECORD,
    OUTBOX_COLUMNS,
    OUTBOX_RECORDS,
    OWNER_COLUMNS,
    TOKEN_COLUMNS,
    as_delivery,
    as_memory,
    as_namespaces,
    as_outbox,
    best_matches,
    distinct_words,
    key_size,
    namespace_range,
)
from mail.db.texts import Records
from mail.errors import KeyTaken, StoreConflict

T = TypeVar("T")
Row = Any
"""The columns of a row, as the driver returns them."""

MANY: Final = 2**62
PARAMETERS: Final = 500
"""How many values a list in a statement has at most; databases bound it."""
_OWNED: Final = "swarm_name = $1 AND caller_role = $2 AND caller_id = $3"

PUT_KEY: Final = f"""
INSERT INTO idempotency ({OWNER_COLUMNS}, {KEY_COLUMNS}, size)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT DO NOTHING RETURNING 1
"""

PUT_INBOX: Final = f"""
INSERT INTO inbox (swarm_name, {INBOX_COLUMNS})
VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING RETURNING 1
"""


def _each(make: Callable[[Row], T]) -> Callable[[Iterable[Row]], list[T]]:
    return lambda rows: [make(row) for row in rows]


def _first(make: Callable[[Row], T]) -> Callable[[Iterable[Row]], T | None]:
    return lambda rows: next((make(row) for row in rows), None)


def _as_aside(task_id: str, row: Row) -> AsideRow:
    *delivery, reason = row
    return AsideRow(as_delivery(task_id, delivery), reason or "")


def _number(row: Row) -> int:
    return int(row[0])


def _text(row: Row) -> str:
    return str(row[0])


def _ends(rows: Iterable[Row]) -> tuple[str, str] | None:
    times = [
        at.astimezone(UTC).isoformat() if isinstance(at, datetime) else str(at)
        for (at,) in rows
        if at is not None
    ]
    return (min(times), max(times)) if times else None


class Step(NamedTuple):
    """A statement of a transaction.

    Attributes:
        text: The statement.
        values: Its parameters.
        conflict: What is wrong when it returns no row; no text if it need not.
        each: Parameters for one run after the other instead, whose rows nobody needs.
    """

    text: str
    values: Sequence[object] = ()
    conflict: str = ""
    each: Sequence[Sequence[object]] | None = None


class Dialect(ABC):
    """How a database runs a statement, and where its tables differ from the other's.

    Attributes:
        _TASK_KEY: The column of ``tasks`` that other tables refer to.
        _TASK: The columns that `_as_task` makes a task of.
        _RUNNING: The condition of a running task.
        _OPEN: The condition of a task with work left, see `mail.db.base.TaskRecords.open_owners`.
        _RESPONSE: The column with the JSON of a final message.
        _EVENT: The columns that `_as_event` makes an event of.
        _BYTES: How many bytes the text in ``{}`` has.
        _EVENT_BYTES: What an event's texts come to in bytes.
        _EVENT_TIME: `_EVENT` without the texts that do not tell the time.
        _THIS_MEMORY: The condition of one memory; its parameters from ``$4`` on are `_memory_id`.
        _AMONG: The condition that ``hash`` is one of the list in ``$5``.
        _SOME: The condition that a row is among those that a query in ``{}`` selects by `_ROW`.
        _ROW: What tells the rows of a table apart.
        _TIME: The time in the parameter ``{}``, to compare with ``updated_at`` of tasks.
    """

    _TASK_KEY: ClassVar[str]
    _TASK: ClassVar[str]
    _RUNNING: ClassVar[str]
    _OPEN: ClassVar[str]
    _RESPONSE: ClassVar[str]
    _EVENT: ClassVar[str]
    _BYTES: ClassVar[str]
    _EVENT_BYTES: ClassVar[str]
    _EVENT_TIME: ClassVar[str]
    _THIS_MEMORY: ClassVar[str]
    _AMONG: ClassVar[str]
    _SOME: ClassVar[str]
    _ROW: ClassVar[str]
    _TIME: ClassVar[str]

    @abstractmethod
    def _packer(self) -> Executor:
        """Return the thread that makes large commits ready."""

    @abstractmethod
    async def _fetch(self, make: Callable[[Iterable[Row]], T], text: str, *values: object) -> T:
        """Run a query and return what is made of its rows."""

    @abstractmethod
    async def _fetch_whole(
        self,
        make: Callable[[Iterable[Row]], T],
        records: Records,
        text: str,
        *values: object,
        task: str = "",
    ) -> T:
        """Do the same for rows with records whose large texts are kept apart.

        Args:
            make, text: See `_fetch`.
            records: Which columns they are.
            values: Parameters; the first four name the task.
            task: The key of the task, if these are not its owner and id.
        """

    @abstractmethod
    async def _change(self, text: str, *values: object) -> list[Row]:
        """Commit a statement and return its rows."""

    @abstractmethod
    async def _change_all(
        self, texts: Sequence[str], *values: object, conflict: str = ""
    ) -> list[Row]:
        """Commit statements, which all take the same parameters; return the rows of the last one.

        Raises:
            StoreConflict: with a text for it, when there are no such rows; nothing is changed then.
        """

    @abstractmethod
    async def _run(self, steps: Sequence[Step]) -> list[list[Row]]:
        """Commit statements, and return the rows of each.

        Raises:
            DeskConflict: with the text of a step that returns no row and must; nothing is changed
                then.
        """

    @abstractmethod
    def _as_task(self, row: Row) -> TaskRow: ...

    @abstractmethod
    def _as_event(self, task_id: str, row: Row) -> TaskEvent: ...

    @abstractmethod
    def _memory_id(self, namespace: tuple[str, ...], key: str) -> tuple[str, ...]: ...

    def _texts(self, task: str) -> str:
        """Return the query for the texts, among those in ``$5``, of a task."""
        return f"SELECT hash, text FROM task_texts WHERE task = {task} AND {self._AMONG}"

    @property
    def _the_task(self) -> str:
        """The key of the task that ``$1`` to ``$4`` name."""
        return f"(SELECT {self._TASK_KEY} FROM tasks WHERE {_OWNED} AND task_id = $4)"


class _TaskRecords(Dialect):
    """`mail.db.base.TaskRecords`, but for its transactions."""

    async def claim(self, owner: Owner, seq: int) -> int:
        return await self._change_attempts(owner, seq, "+ 1")

    async def release(self, owner: Owner, seq: int) -> None:
        await self._change_attempts(owner, seq, "- 1")

    async def _change_attempts(self, owner: Owner, seq: int, change: str) -> int:
        text = f"""
            UPDATE messages
            SET attempts = CASE WHEN attempts {change} > 0 THEN attempts {change} ELSE 0 END
            WHERE seq = $4 AND state = 'ready' AND EXISTS (
                SELECT 1 FROM tasks WHERE tasks.{self._TASK_KEY} = messages.task AND {_OWNED})
            RETURNING attempts"""
        rows = await self._change(text, *owner, seq)
        if not rows:
            raise StoreConflict(f"delivery {seq} is not waiting")
        return int(rows[0][0])

    async def load_task(self, owner: Owner, task_id: str) -> TaskRow | None:
        text = f"SELECT {self._TASK} FROM tasks WHERE {_OWNED} AND task_id = $4"
        return await self._fetch(_first(self._as_task), text, *owner, task_id)

    async def list_tasks(
        self,
        owner: Owner,
        *,
        states: Sequence[TaskState] = (),
        limit: int | None = None,
        before: str | None = None,
    ) -> list[TaskRow]:
        text = f"SELECT {self._TASK} FROM tasks WHERE {_OWNED}"
        values: list[object] = [*owner]

        def parameter(value: object) -> str:
            values.append(value)
            return f"${len(values)}"

        if before is not None:
            values.append(before)
            text += f" AND {self._TASK_KEY} < {self._the_task}"
        if tuple(states) == (TaskState.RUNNING,):
            text += f" AND {self._RUNNING}"  # no parameter, so that it has an index
        elif states:
            text += f" AND state IN ({', '.join(parameter(state.value) for state in states)})"
        text += f" ORDER BY {self._TASK_KEY} DESC"
        if limit is not None:
            text += f" LIMIT {parameter(limit)}"
        return await self._fetch(_each(self._as_task), text, *values)

    async def swarm_tasks(
        self, swarm: str, limit: int, before: tuple[Owner, str] | None = None
    ) -> list[tuple[Owner, TaskRow]]:
        text = f"SELECT {OWNER_COLUMNS}, {self._TASK} FROM tasks WHERE swarm_name = $1"
        values: tuple[object, ...] = (swarm, limit)
        if before is not None:
            owner, task_id = before
            values = (*owner, task_id, limit)
            text += f" AND {self._TASK_KEY} < {self._the_task}"
        text += f" ORDER BY {self._TASK_KEY} DESC LIMIT ${len(values)}"

        def pair(row: Row) -> tuple[Owner, TaskRow]:
            columns = tuple(row)
            return Owner._make(columns[:3]), self._as_task(columns[3:])

        return await self._fetch(_each(pair), text, *values)

    async def queue_lengths(self, swarm: str, owner: Owner | None = None) -> list[QueueLength]:
        whose = "swarm_name = $1" if owner is None else _OWNED
        values = (swarm,) if owner is None else tuple(owner)
        text = f"""
            SELECT recipient, tier, count(*) FROM messages
            JOIN tasks ON tasks.{self._TASK_KEY} = messages.task
            WHERE messages.state = 'ready' AND {whose}
            GROUP BY recipient, tier ORDER BY recipient, tier"""
        return await self._fetch(_each(QueueLength._make), text, *values)

    async def task_counts(self, owner: Owner, task_ids: Sequence[str]) -> dict[str, TaskCounts]:
        found: dict[str, TaskCounts] = {}
        for at in range(0, len(task_ids), PARAMETERS):
            some = task_ids[at : at + PARAMETERS]
            places = ", ".join(f"${number}" for number in range(4, 4 + len(some)))
            text = f"""
                SELECT task_id, next_event - 1, (
                    SELECT count(*) FROM messages
                    WHERE task = tasks.{self._TASK_KEY} AND messages.state = 'ready')
                FROM tasks WHERE {_OWNED} AND task_id IN ({places})"""
            for task_id, *counts in await self._fetch(_each(tuple), text, *owner, *some):
                found[task_id] = TaskCounts(*counts)
        return found

    async def owners(self, swarm: str) -> list[Owner]:
        return await self._owners_of("swarm_name = $1", swarm)

    async def swarms(self) -> list[str]:
        text = "SELECT DISTINCT swarm_name FROM tasks WHERE swarm_name <> ''"
        return sorted(name for (name,) in await self._fetch(_each(tuple), text))

    async def open_owners(self, swarm: str) -> list[Owner]:
        return await self._owners_of(f"swarm_name = $1 AND ({self._OPEN})", swarm)

    async def running_owners(self, swarm: str) -> list[Owner]:
        return await self._owners_of(f"swarm_name = $1 AND {self._RUNNING}", swarm)

    async def _owners_of(self, condition: str, swarm: str) -> list[Owner]:
        text = f"SELECT DISTINCT {OWNER_COLUMNS} FROM tasks WHERE {condition}"
        return sorted(await self._fetch(_each(Owner._make), text, swarm))

    async def waiting_mail(
        self,
        owner: Owner,
        task_id: str,
        after: Delivery | None = None,
        limit: int | None = None,
    ) -> list[Delivery]:
        if after is None and limit is None:
            return await self._mail(owner, task_id, "AND state = 'ready' ORDER BY tier, seq")
        which = "AND state = 'ready' AND (tier, seq) > ($5, $6) ORDER BY tier, seq LIMIT $7"
        place = (-1, -1) if after is None else (after.tier, after.seq)
        most = MANY if limit is None else limit
        return await self._mail(owner, task_id, which, *place, most)

    async def all_mail(self, owner: Owner, task_id: str, *, whole: bool = True) -> list[Delivery]:
        if whole:
            return await self._mail(owner, task_id, "ORDER BY seq")
        text = f"SELECT {MAIL_COLUMNS} FROM messages WHERE task = {self._the_task} ORDER BY seq"
        return await self._fetch(_each(partial(as_delivery, task_id)), text, *owner, task_id)

    async def mail_aside(
        self, owner: Owner, task_id: str, after: int = 0, limit: int | None = None
    ) -> list[AsideRow]:
        text = f"""
            SELECT {MAIL_COLUMNS}, reason FROM messages
            WHERE task = {self._the_task} AND state = 'dead' AND seq > $5 ORDER BY seq LIMIT $6"""
        make = _each(partial(_as_aside, task_id))
        most = MANY if limit is None else limit
        return await self._fetch_whole(make, MAIL_RECORDS, text, *owner, task_id, after, most)

    async def _mail(self, owner: Owner, task_id: str, which: str, *more: int) -> list[Delivery]:
        text = f"SELECT {MAIL_COLUMNS} FROM messages WHERE task = {self._the_task} {which}"
        make = _each(partial(as_delivery, task_id))
        return await self._fetch_whole(make, MAIL_RECORDS, text, *owner, task_id, *more)

    async def journal(self, owner: Owner, seq: int) -> list[JournalRow]:
        text = f"""
            SELECT journal.key, journal.state, journal.payload FROM journal
            JOIN messages ON messages.seq = journal.message
            JOIN tasks ON tasks.{self._TASK_KEY} = messages.task
            WHERE {_OWNED} AND journal.message = $4 ORDER BY journal.id"""
        make = _each(JournalRow._make)
        task = f"""(
            SELECT messages.task FROM messages JOIN tasks ON tasks.{self._TASK_KEY} = messages.task
            WHERE {_OWNED} AND messages.seq = $4)"""
        return await self._fetch_whole(make, JOURNAL_RECORDS, text, *owner, seq, task=task)

    async def begun(self, owner: Owner, task_id: str) -> list[int]:
        text = f"""
            SELECT seq FROM messages WHERE task = {self._the_task} AND state = 'ready'
                AND EXISTS (SELECT 1 FROM journal WHERE message = messages.seq)
            ORDER BY seq"""
        return await self._fetch(_each(_number), text, *owner, task_id)

    async def calls(self, owner: Owner, task_id: str) -> list[CallRow]:
        text = f"SELECT {CALL_COLUMNS} FROM calls WHERE task = {self._the_task} ORDER BY id"
        make = _each(CallRow._make)
        return await self._fetch_whole(make, CALL_RECORDS, text, *owner, task_id)

    async def open_calls(self, owner: Owner, task_id: str) -> list[CallRow]:
        text = f"""
            SELECT {CALL_COLUMNS} FROM calls
            WHERE task = {self._the_task} AND {_CALLERS_ANSWER} ORDER BY id"""
        make = _each(CallRow._make)
        return await self._fetch_whole(make, CALL_RECORDS, text, *owner, task_id)

    async def short_calls(
        self, owner: Owner, task_ids: Sequence[str], max_shown: int
    ) -> dict[str, list[CallRow]]:
        places = ", ".join(f"${number}" for number in range(5, 5 + len(task_ids)))
        # What begins with a space has its large texts elsewhere.
        shown = "CASE WHEN length(shown) <= $4 AND shown NOT LIKE ' %' THEN shown ELSE '{}' END"
        text = f"""
            SELECT task_id, agent, call_id, call, {shown}, NULL, control
            FROM calls JOIN tasks ON tasks.{self._TASK_KEY} = calls.task
            WHERE {_OWNED} AND task_id IN ({places}) AND {_CALLERS_ANSWER} ORDER BY calls.id"""
        found: dict[str, list[CallRow]] = {}
        for task_id, *row in await self._fetch(_each(tuple), text, *owner, max_shown, *task_ids):
            found.setdefault(task_id, []).append(CallRow(*row))
        return found

    async def paused_on(self, owner: Owner, call_ids: Sequence[str], among: int) -> str | None:
        places = ", ".join(f"${number}" for number in range(5, 5 + len(call_ids)))
        text = f"""
            SELECT task_id FROM (
                SELECT {self._TASK_KEY} AS number, task_id, state FROM tasks WHERE {_OWNED}
                ORDER BY {self._TASK_KEY} DESC LIMIT $4) AS newest
            WHERE state = 'paused' AND EXISTS (
                SELECT 1 FROM calls WHERE calls.task = newest.number AND call_id IN ({places})
                    AND answer IS NULL AND shown <> '')
            ORDER BY number DESC LIMIT 1"""
        return await self._fetch(_first(_text), text, *owner, among, *call_ids)

    async def response(self, owner: Owner, task_id: str) -> str | None:
        text = f"SELECT {self._RESPONSE} FROM task_responses WHERE task = {self._the_task}"
        return await self._fetch_whole(_first(_text), ONE_RECORD, text, *owner, task_id)


_DECIDED: Final = ", ".join(f"'{status}'" for status in DECIDED)
"""The statuses of an approval that was given, as a list of SQL."""

_CALLERS_ANSWER: Final = f"""
answer IS NULL AND shown <> '' AND NOT EXISTS (
    SELECT 1 FROM approvals AS asked WHERE asked.task = calls.task AND asked.agent = calls.agent
        AND asked.call_id = calls.call_id AND asked.status IN ({_DECIDED}))"""
"""Of calls that callers can answer."""

_BURIED: Final = "swarm_name = '' AND caller_role = 'deleted'"
"""Of deleted tasks whose records are still there; see `Owner.of_deleted`."""

_LAST_WORDS: Final = "outbox.state = 'waiting' AND outbox.sender = ''"
"""Of mail for peers that is sent although its task was deleted."""

_SENT_HERE: Final = f"(swarm_name = $1 OR {_BURIED} AND caller_id = $1 AND {_LAST_WORDS})"
"""Of mail for peers of one swarm."""

_PARTS: Final = {
    "messages": 64,
    "task_events": 64,
    "history_entries": 64,
    "agent_histories": 8,
    "calls": 64,
    "approvals": 32,
    "outbox": 64,
    "task_texts": 4,
    "task_responses": 1,
}
"""The tables with the records of a task, and how many of each are removed at once."""


class _SweepRecords(Dialect):
    """`mail.db.base.SweepRecords`."""

    async def stored_use(self, owner: Owner) -> StoredUse:
        feedback = " + ".join(map(self._BYTES.format, FEEDBACK_TEXTS))
        text = f"""
            SELECT coalesce(sum(bytes), 0)
                    + (SELECT coalesce(sum(size), 0) FROM memories WHERE {_OWNED})
                    + (SELECT coalesce(sum({self._BYTES.format("value")}), 0)
                        FROM memory_versions WHERE {_OWNED})
                    + (SELECT coalesce(sum({feedback}), 0) FROM memory_feedback WHERE {_OWNED})
                    + (SELECT coalesce(sum(size), 0) FROM idempotency WHERE {_OWNED}),
                count(*), coalesce(sum(CASE WHEN {self._RUNNING} OR state = 'paused' THEN 1 END), 0)
            FROM tasks WHERE {_OWNED}"""
        found = await self._fetch(_each(lambda row: StoredUse(*map(int, row))), text, *owner)
        return found[0]

    async def delete_task(self, owner: Owner, task_id: str, *, ended: bool = False) -> None:
        allowed = "state <> 'paused'" if ended else "TRUE"
        steps = (
            f"DELETE FROM task_responses WHERE task = {self._the_task}",
            f"""
            UPDATE idempotency SET task_id = '', message_id = '', first_event = 0, answer = NULL
            WHERE {_OWNED} AND task_id = $4""",
            f"DELETE FROM memory_feedback WHERE {_OWNED} AND task_id = $4",
            f"""
            UPDATE tasks SET swarm_name = '', caller_role = 'deleted', caller_id = $1,
                task_id = CAST({self._TASK_KEY} AS TEXT)
            WHERE {_OWNED} AND task_id = $4 AND NOT ({self._RUNNING}) AND {allowed}
            RETURNING {self._TASK_KEY}""",
        )
        problem = f"task '{task_id}' is unknown, or is at work"
        await self._change_all(steps, *owner, task_id, conflict=problem)

    async def purge(self) -> bool:
        kept = f"EXISTS (SELECT 1 FROM outbox WHERE task = {{}} AND {_LAST_WORDS})"
        whole = kept.format(f"tasks.{self._TASK_KEY}")
        rest = [
            f"EXISTS (SELECT 1 FROM {table} WHERE task = tasks.{self._TASK_KEY}{but})"
            for table, but in self._parts(f" AND NOT {whole}").items()
        ]
        text = f"""
            SELECT {self._TASK_KEY} FROM tasks
            WHERE {_BURIED} AND (NOT {whole} OR {" OR ".join(rest)}) LIMIT 1"""
        key = await self._fetch(_first(_number), text)
        if key is None:
            return False
        # Others may have removed the task since, and SQLite gives a free key to the next one.
        task = f"(SELECT {self._TASK_KEY} FROM tasks WHERE {self._TASK_KEY} = $1 AND {_BURIED})"
        journal = (
            f"DELETE FROM journal WHERE message IN (SELECT seq FROM messages WHERE task = {task})"
        )
        parts = []
        for table, but in self._parts(f" AND NOT {kept.format('$1')}").items():
            some = f"SELECT {self._ROW} FROM {table} WHERE task = {task}{but} LIMIT {_PARTS[table]}"
            parts.append(f"DELETE FROM {table} WHERE {self._SOME.format(some)}")
        left = " AND ".join(f"NOT EXISTS (SELECT 1 FROM {t} WHERE task = $1)" for t in _PARTS)
        last = f"DELETE FROM tasks WHERE {self._TASK_KEY} = $1 AND {_BURIED} AND {left}"
        await self._change_all((journal, *parts, last), key)
        return True

    def _parts(self, without_last_words: str) -> dict[str, str]:
        """Return the tables with records to remove, each with a condition that spares some."""
        spared = {"outbox": f" AND NOT ({_LAST_WORDS})", "task_texts": without_last_words}
        return {table: spared.get(table, "") for table in _PARTS}

    async def ended_tasks(self, swarm: str, before: str, limit: int) -> list[tuple[Owner, str]]:
        text = f"""
            SELECT {OWNER_COLUMNS}, task_id FROM tasks
            WHERE swarm_name = $1 AND updated_at < {self._TIME.format("$2")}
                AND {self._ended}
            ORDER BY {self._TASK_KEY} LIMIT $3"""
        make = _each(lambda row: (Owner(*row[:3]), str(row[3])))
        return await self._fetch(make, text, swarm, before, limit)

    async def aged_between(
        self, kind: AgedKind, swarm: str, since: str, until: str
    ) -> tuple[str, str] | None:
        within = "created_at >= $1 AND created_at <= $2"
        ours = "swarm_name = $3"
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
                    f"{ours} AND updated_at >= {self._TIME.format('$1')} "
                    f"AND updated_at <= {self._TIME.format('$2')} AND {self._ended}",
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
        return await self._fetch(_ends, text, *values)

    @property
    def _ended(self) -> str:
        return f"NOT ({self._RUNNING}) AND state <> 'paused'"

    async def sweep_moment(self, name: str) -> str | None:
        text = "SELECT moment FROM sweeps WHERE name = $1"
        return await self._fetch(_first(_text), text, name)

    async def put_sweep_moment(self, name: str, moment: str) -> None:
        text = """
            INSERT INTO sweeps (name, moment) VALUES ($1, $2)
            ON CONFLICT (name) DO UPDATE SET moment = excluded.moment"""
        await self._change(text, name, moment)


class _HistoryRecords(Dialect):
    """`mail.db.base.HistoryRecords`."""

    async def history(self, owner: Owner, task_id: str, agent: str) -> list[str]:
        text = f"""
            SELECT entries FROM history_entries
            WHERE task = {self._the_task} AND agent = $5 ORDER BY id"""
        make = _each(_text)
        return await self._fetch_whole(make, ONE_RECORD, text, *owner, task_id, agent)


class _EventRecords(Dialect):
    """`mail.db.base.EventRecords`."""

    async def events(
        self,
        owner: Owner,
        task_id: str,
        after: int = 0,
        limit: int | None = None,
        max_bytes: int | None = None,
    ) -> list[TaskEvent]:
        text = f"""
            SELECT {self._EVENT} FROM task_events
            WHERE task = {self._the_task} AND seq > $5 ORDER BY seq"""
        values: list[object] = [*owner, task_id, after]
        if max_bytes is not None:
            text = self._events_within
            values += [MANY if limit is None else limit, max_bytes]
        elif limit is not None:
            text += " LIMIT $6"
            values.append(limit)
        make = _each(partial(self._as_event, task_id))
        return await self._fetch_whole(make, EVENT_RECORDS, text, *values)

    @property
    def _events_within(self) -> str:
        """The events after ``$5``, at most ``$6``, of at most ``$7`` bytes, but at least one.

        It goes from one to the next and looks at none behind the first that is too much.
        """
        return f"""
            WITH RECURSIVE page (last, taken, bytes) AS (
                SELECT CAST($5 AS BIGINT), CAST(0 AS BIGINT), CAST(0 AS BIGINT)
                UNION ALL
                SELECT seq, taken + 1, bytes + {self._EVENT_BYTES}
                FROM page JOIN task_events ON task = {self._the_task} AND seq = (
                    SELECT min(seq) FROM task_events WHERE task = {self._the_task} AND seq > last)
                WHERE taken < $6 AND bytes < $7)
            SELECT {self._EVENT} FROM page
            JOIN task_events ON task = {self._the_task} AND seq = last
            WHERE taken = 1 OR taken > 1 AND bytes <= $7
            ORDER BY taken"""

    async def next_event_bytes(self, owner: Owner, task_id: str, after: int) -> int:
        text = f"""
            SELECT {self._EVENT_BYTES} FROM task_events
            WHERE task = {self._the_task} AND seq > $5 ORDER BY seq LIMIT 1"""
        return await self._fetch(_first(_number), text, *owner, task_id, after) or 0

    async def latest_time(self, owner: Owner, task_id: str) -> str:
        text = f"""
            SELECT {self._EVENT_TIME} FROM task_events
            WHERE task = {self._the_task} ORDER BY seq DESC LIMIT {NEWEST_EVENTS}"""

        def latest(rows: Iterable[Row]) -> str:
            return max((self._as_event(task_id, row).timestamp for row in rows), default="")

        return await self._fetch(latest, text, *owner, task_id)


class _IdempotencyRecords(Dialect):
    """`mail.db.base.IdempotencyRecords`."""

    async def find_key(self, owner: Owner, key: str) -> IdempotencyRow | None:
        text = f"SELECT {KEY_COLUMNS} FROM idempotency WHERE {_OWNED} AND key = $4"
        return await self._fetch(_first(IdempotencyRow._make), text, *owner, key)

    async def put_key(self, owner: Owner, row: IdempotencyRow) -> None:
        if not await self._change(PUT_KEY, *owner, *row, key_size(row)):
            raise KeyTaken

    async def drop_keys(self, before: str, limit: int) -> int:
        text = """
            DELETE FROM idempotency WHERE id IN (
                SELECT id FROM idempotency WHERE created_at < $1 ORDER BY created_at LIMIT $2)
            RETURNING 1"""
        return len(await self._change(text, before, limit))


class _MemoryRecords(Dialect):
    """`mail.db.base.MemoryRecords`, but for `put_memories`."""

    async def delete_memory(self, owner: Owner, namespace: tuple[str, ...], key: str) -> None:
        text = f"DELETE FROM memories WHERE {_OWNED} AND {self._THIS_MEMORY}"
        await self._change(text, *owner, *self._memory_id(namespace, key))

    async def get_memory(
        self, owner: Owner, namespace: tuple[str, ...], key: str
    ) -> MemoryRow | None:
        text = f"SELECT {MEMORY_COLUMNS} FROM memories WHERE {_OWNED} AND {self._THIS_MEMORY}"
        values = self._memory_id(namespace, key)
        return await self._fetch(_first(as_memory), text, *owner, *values)

    async def search_memories(
        self,
        owner: Owner,
        prefix: tuple[str, ...],
        query: str = "",
        *,
        limit: int = 10,
        offset: int = 0,
    ) -> list[MemoryRow]:
        text = f"""
            SELECT {MEMORY_COLUMNS} FROM memories
            WHERE {_OWNED} AND namespace >= $4 AND namespace < $5
            ORDER BY updated_at DESC, namespace, key"""
        values = (*owner, *namespace_range(prefix))
        words = distinct_words(query)
        if not words:
            page = f"{text} LIMIT $6 OFFSET $7"
            return await self._fetch(_each(as_memory), page, *values, limit, offset)

        # SQLite ignores the case of ASCII letters only, and PostgreSQL as the database's locale
        # tells it, so Python compares.
        def ranked(rows: Iterable[Row]) -> list[MemoryRow]:
            return [as_memory(row) for row in best_matches(rows, words, limit, offset)]

        return await self._fetch(ranked, text, *values)

    async def memory_namespaces(self, owner: Owner) -> list[tuple[str, ...]]:
        text = f"SELECT DISTINCT namespace FROM memories WHERE {_OWNED}"
        return await self._fetch(as_namespaces, text, *owner)


class _TokenRecords(Dialect):
    """`mail.db.base.TokenRecords`."""

    async def put_token(self, token: TokenRow) -> None:
        text = f"""
            INSERT INTO tokens ({TOKEN_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7)
            ON CONFLICT (token_hash) DO UPDATE SET role = excluded.role,
                caller_id = excluded.caller_id, created_at = excluded.created_at,
                label = excluded.label, expires_at = excluded.expires_at,
                revoked_at = excluded.revoked_at"""
        await self._change(text, *token)

    async def find_token(self, token_hash: str) -> TokenRow | None:
        text = f"SELECT {TOKEN_COLUMNS} FROM tokens WHERE token_hash = $1"
        return await self._fetch(_first(TokenRow._make), text, token_hash)

    async def list_tokens(self) -> list[TokenRow]:
        text = f"SELECT {TOKEN_COLUMNS} FROM tokens ORDER BY created_at, id"
        return await self._fetch(_each(TokenRow._make), text)


_OUTBOX: Final = ", ".join(f"outbox.{name}" for name in (*OUTBOX_COLUMNS.split(", "), "id"))


class _OutboxRecords(Dialect):
    """`mail.db.base.OutboxRecords`, but for `change_outbox`."""

    async def due_outbox(
        self,
        swarm: str,
        now: str,
        limit: int,
        *,
        owner: Owner | None = None,
        without: Collection[str] = (),
        untold: Collection[str] = (),
    ) -> list[tuple[Owner, OutboxRow]]:
        values: list[object] = [swarm, now, limit]
        which = ""
        if owner is not None:
            values += owner
            which += " AND (swarm_name, caller_role, caller_id) = ($4, $5, $6)"
        for peers, condition in ((without, "FALSE"), (untold, "NOT told")):
            if peers:
                numbers = range(len(values) + 1, len(values) + 1 + len(peers))
                named = ", ".join(f"${number}" for number in numbers)
                which += f" AND ({condition} OR peer NOT IN ({named}))"
                values += peers
        text = f"""
            SELECT {OWNER_COLUMNS}, task_id, {_OUTBOX} {self._first_waiting}
            WHERE {_SENT_HERE} AND next_at <= $2{which} ORDER BY outbox.id LIMIT $3"""
        return await self._outbox(text, *values)

    async def next_outbox(self, swarm: str, after: str | None = None) -> str | None:
        later = "" if after is None else " AND next_at > $2"
        text = f"""
            SELECT next_at {self._first_waiting}
            WHERE {_SENT_HERE}{later} ORDER BY next_at LIMIT 1"""
        return await self._fetch(_first(_text), text, swarm, *(() if after is None else (after,)))

    @property
    def _first_waiting(self) -> str:
        """What is first in each (task, peer), with its task."""
        return f"""
            FROM (
                SELECT min(id) AS id FROM outbox WHERE state = 'waiting' GROUP BY task, peer
            ) AS head JOIN outbox ON outbox.id = head.id
            JOIN tasks ON tasks.{self._TASK_KEY} = outbox.task"""

    async def unanswered_outbox(
        self,
        swarm: str,
        before: str,
        after: int,
        limit: int,
        *,
        owner: Owner | None = None,
    ) -> list[tuple[Owner, OutboxRow]]:
        values: list[object] = [swarm, before, after, limit]
        which = ""
        if owner is not None:
            values += owner
            which = " AND (swarm_name, caller_role, caller_id) = ($5, $6, $7)"
        text = f"""
            SELECT {OWNER_COLUMNS}, task_id, {_OUTBOX}
            FROM outbox JOIN tasks ON tasks.{self._TASK_KEY} = outbox.task
            WHERE {_SENT_HERE} AND outbox.state = 'delivered' AND outbox.created_at < $2
                AND outbox.id > $3{which}
            ORDER BY outbox.id LIMIT $4"""
        return await self._outbox(text, *values)

    async def task_outbox(self, owner: Owner, task_id: str) -> list[OutboxRow]:
        return await self._task_outbox(owner, task_id, "ORDER BY id")

    async def _task_outbox(
        self, owner: Owner, task_id: str, which: str, *more: int
    ) -> list[OutboxRow]:
        text = f"SELECT {_OUTBOX} FROM outbox WHERE task = {self._the_task} {which}"
        make = _each(partial(as_outbox, task_id))
        return await self._fetch_whole(make, OUTBOX_RECORDS, text, *owner, task_id, *more)

    async def list_outbox(
        self, swarm: str, *, peer: str | None = None, after: int = 0, limit: int = 100
    ) -> list[tuple[Owner, OutboxRow]]:
        which = "" if peer is None else " AND peer = $4"
        text = f"""
            SELECT {OWNER_COLUMNS}, task_id, {_OUTBOX}
            FROM outbox JOIN tasks ON tasks.{self._TASK_KEY} = outbox.task
            WHERE {_SENT_HERE} AND outbox.id > $2{which} ORDER BY outbox.id LIMIT $3"""
        values = () if peer is None else (peer,)
        return await self._outbox(text, swarm, after, limit, *values)

    async def _outbox(self, text: str, *values: object) -> list[tuple[Owner, OutboxRow]]:
        """Return mail of several tasks; what has a large text takes a query of its own."""
        found = []
        for row in await self._fetch(_each(tuple), text, *values):
            owner, mail = Owner(*row[:3]), as_outbox(row[3], row[4:])
            rows = [mail]
            if mail.wrapper[:1] == " ":
                rows = await self._task_outbox(owner, mail.task_id, "AND id = $5", mail.id)
            found += [(owner, whole) for whole in rows]
        return found

    async def retry_outbox(self, swarm: str, number: int) -> bool:
        text = f"""
            UPDATE outbox
            SET state = 'waiting', attempts = 0, next_at = '', last_error = '', told = FALSE,
                created_at = $3
            WHERE id = $2 AND state <> 'delivered' AND EXISTS (
                SELECT 1 FROM tasks WHERE tasks.{self._TASK_KEY} = outbox.task AND {_SENT_HERE})
            RETURNING 1"""
        now = datetime.now(UTC).isoformat()
        return bool(await self._change(text, swarm, number, now))

    async def find_inbox(self, swarm: str, peer: str, message_id: str) -> str | None:
        text = "SELECT receipt FROM inbox WHERE swarm_name = $1 AND peer = $2 AND message_id = $3"
        return await self._fetch(_first(_text), text, swarm, peer, message_id)

    async def drop_inbox(self, before: str, limit: int) -> int:
        text = """
            DELETE FROM inbox WHERE id IN (
                SELECT id FROM inbox WHERE created_at < $1 ORDER BY created_at LIMIT $2)
            RETURNING 1"""
        return len(await self._change(text, before, limit))


class Statements(
    _TaskRecords,
    _SweepRecords,
    _HistoryRecords,
    _EventRecords,
    _IdempotencyRecords,
    _MemoryRecords,
    _TokenRecords,
    _OutboxRecords,
):
    """Every verb of `mail.db.base.Store` that is one statement."""
