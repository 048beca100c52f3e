"""PostgreSQL's dialect, and its transactions: the verbs that take several statements.

All SQL is constant text, so each connection prepares each statement once. ``created_at`` and
``updated_at`` are the database's time (``now()``).
"""

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar, cast

from mail.core.events import TaskEvent
from mail.core.tasks import TaskState
from mail.db.approvals_statements import ApprovalStatements, approval_steps
from mail.db.base import (
    Delivery,
    JournalRow,
    MemoryRow,
    OutboxChange,
    Owner,
    Post,
    Receipt,
    RegistryRow,
    TaskRow,
    TurnCommit,
)
from mail.db.desk_statements import DeskStatements, Matching, post_steps, shown_steps
from mail.db.files_statements import FileStatements
from mail.db.postgres.values import (
    Connection,
    escape_nul,
    event_of,
    jsonb_text,
    moment,
    task_of,
)
from mail.db.postgres.writer import Work
from mail.db.preferences_statements import PreferenceStatements, feedback_steps
from mail.db.rows import (
    CALL_COLUMNS,
    MEMORY_COLUMNS,
    OUTBOX_COLUMNS,
    OWNER_COLUMNS,
    join_lists,
    key_size,
    list_text,
    namespace_text,
    tool_format,
)
from mail.db.statements import PUT_INBOX, PUT_KEY, Row, Statements, Step
from mail.db.texts import Parcel, Records, packed, text_size
from mail.db.webhooks_statements import WebhookStatements, webhook_steps
from mail.errors import DeskConflict, KeyTaken, MailTaken, StoreConflict

T = TypeVar("T")


class PostgresStatements(
    Statements,
    DeskStatements,
    FileStatements,
    PreferenceStatements,
    ApprovalStatements,
    WebhookStatements,
):
    """The verbs of `mail.db.base.Store` in PostgreSQL."""

    _TASK_KEY = "key"
    _TASK = (
        "task_id, task_owner, coalesce(task_contributors, '[]'), start_time, entrypoint, state, "
        "coalesce(remote_swarms, '[]'), steps, max_steps, awaited, finish_asked, title, usage, "
        "handled, start_text"
    )
    _RUNNING = "is_running"
    _OPEN = "is_running OR (state = 'paused' AND awaited)"
    _RESPONSE = "coalesce(response_text, response::text)"
    _EVENT = "event_type, created_at, seq, description, event_data, time_text"
    _BYTES = "octet_length({})"
    _EVENT_BYTES = (
        "coalesce(size, "
        "coalesce(octet_length(event_data), 0) + coalesce(octet_length(description), 0))"
    )
    # What 1.3.6 stored has no description, and its data tell the time.
    _EVENT_TIME = (
        "event_type, created_at, seq, CASE WHEN description IS NOT NULL THEN '' END, "
        "CASE WHEN description IS NULL THEN event_data ELSE '{}' END, time_text"
    )
    _THIS_MEMORY = "digest = $4"
    _AMONG = "hash = ANY($5::text[])"
    _ROW = "ctid"
    _SOME = "ctid = ANY(ARRAY({}))"
    _TIME = "CAST({}::text AS TIMESTAMP WITH TIME ZONE)"
    _MATCHING = Matching(
        "lexemes @@ CAST({}::text AS tsquery)", "'", " & ", " | ", " & !", "strpos", "rowid + 0"
    )
    _ADD_LATE_EVENT = """
        INSERT INTO task_events (
            task_id, swarm_name, caller_role, caller_id, event_type, event_data, event_id,
            created_at, time_text, task, seq, description, size)
        SELECT task_id, swarm_name, caller_role, caller_id, $5, $6,
            CAST(next_event - 1 AS TEXT), CAST($7::text AS TIMESTAMP WITH TIME ZONE), $7, key,
            next_event - 1, $8, $9
        FROM tasks WHERE swarm_name = $1 AND caller_role = $2 AND caller_id = $3 AND task_id = $4
        RETURNING seq"""

    @abstractmethod
    async def _read(self, work: Work[T]) -> T:
        """Run one statement that only reads, so it sees one moment."""

    @abstractmethod
    async def _write(self, work: Work[T]) -> T:
        """Run some statements in a transaction; return their result once it is committed."""

    async def _fetch(self, make: Callable[[Iterable[Row]], T], text: str, *values: object) -> T:
        async def work(db: Connection) -> T:
            return make(await db.fetch(text, *values))

        return await self._read(work)

    async def _fetch_whole(
        self,
        make: Callable[[Iterable[Row]], T],
        records: Records,
        text: str,
        *values: object,
        task: str = "",
    ) -> T:
        async def work(db: Connection) -> T:
            rows = await db.fetch(text, *values)
            hashes = records.hashes(rows)
            if not hashes:
                return make(records.whole(rows, {}))
            query = self._texts(task or self._the_task)
            texts = dict(await db.fetch(query, *values[:4], hashes))
            return make(records.whole(rows, texts))

        return await self._read(work)

    async def _change(self, text: str, *values: object) -> list[Row]:
        async def work(db: Connection) -> list[Row]:
            rows: list[Row] = await db.fetch(text, *values)
            return rows

        return await self._write(work)

    async def _change_all(
        self, texts: Sequence[str], *values: object, conflict: str = ""
    ) -> list[Row]:
        async def work(db: Connection) -> list[Row]:
            rows: list[Row] = []
            for text in texts:
                rows = await db.fetch(text, *values)
            if conflict and not rows:
                raise StoreConflict(conflict)
            return rows

        return await self._write(work)

    async def _run(self, steps: Sequence[Step]) -> list[list[Row]]:
        return await self._write(partial(_run, tuple(steps)))

    def _as_task(self, row: Row) -> TaskRow:
        return task_of(row)

    def _as_event(self, task_id: str, row: Row) -> TaskEvent:
        return event_of(task_id, row)

    def _memory_id(self, namespace: tuple[str, ...], key: str) -> tuple[str, ...]:
        return (_memory_digest(namespace, key),)

    def _put_memory_step(self, owner: Owner, row: MemoryRow) -> Step:
        return Step(_PUT_MEMORY, each=_memory_values(owner, [row]))

    async def post(self, post: Post) -> Receipt:
        return await self._write(partial(_post, await packed(post, self._packer())))

    async def commit_turn(self, turn: TurnCommit) -> Receipt:
        return await self._write(partial(_commit_turn, await packed(turn, self._packer())))

    async def put_memories(self, owner: Owner, rows: Sequence[MemoryRow]) -> None:
        await self._write(partial(_put_memories, owner, tuple(rows)))

    async def change_outbox(self, changes: Sequence[OutboxChange]) -> None:
        await self._write(partial(_change_outbox, tuple(changes), None))

    async def load_registry(self, swarm: str, known: int = 0) -> RegistryRow | None:
        """See `mail.db.base.RegistryRecords.load_registry`."""
        text = "SELECT version, content FROM swarm_registry WHERE swarm_name = $1 AND version <> $2"
        rows: list[Row] = await self._fetch(list, text, swarm, known)
        return RegistryRow(*rows[0]) if rows else None

    async def save_registry(self, swarm: str, content: str, version: int) -> int:
        """See `mail.db.base.RegistryRecords.save_registry`."""
        values = (swarm, content, version) if version else (swarm, content)
        rows = await self._change(_CHANGE_REGISTRY if version else _NEW_REGISTRY, *values)
        if not rows:
            raise StoreConflict(f"the registry of '{swarm}' was changed by another process")
        return int(rows[0][0])


async def _run(steps: Sequence[Step], db: Connection) -> list[list[Row]]:
    """Run statements, and return the rows of each."""
    found: list[list[Row]] = []
    for step in steps:
        rows: list[Row] = []
        if step.each is None:
            rows = await db.fetch(step.text, *step.values)
        else:
            await db.executemany(step.text, step.each)
        if step.conflict and not rows:
            raise DeskConflict(step.conflict)
        found.append(rows)
    return found


_INSERT_TASK: Final = """
INSERT INTO tasks (
    task_owner, task_contributors, remote_swarms, is_running, completed, start_time, start_text,
    state, entrypoint, steps, max_steps, awaited, finish_asked, title, next_event,
    swarm_name, caller_role, caller_id, task_id, usage, bytes, handled
) VALUES ($1, $2, $3, $4, $5, coalesce($6, now()), $7, $8, $9, $10, $11, $12, $13, $14,
    1 + $15::bigint, $16, $17, $18, $19, $20, $21, $22)
"""

_CHANGES: Final = """
SET task_owner = $1, task_contributors = $2, remote_swarms = $3, is_running = $4, completed = $5,
    start_time = coalesce($6, now()), start_text = $7, state = $8, entrypoint = $9, steps = $10,
    max_steps = $11, awaited = $12, finish_asked = $13, title = $14,
    next_event = tasks.next_event + $15::bigint, usage = $20, updated_at = now(),
    bytes = tasks.bytes + $21::bigint, handled = $22
"""

_RETURNING: Final = "RETURNING tasks.key, tasks.next_event, tasks.bytes"

_NEW_TASK: Final = f"{_INSERT_TASK} ON CONFLICT DO NOTHING {_RETURNING}"

_UPSERT_TASK: Final = f"""
{_INSERT_TASK}
ON CONFLICT (task_id, swarm_name, caller_role, caller_id) DO UPDATE {_CHANGES} {_RETURNING}
"""

_UPDATE_TASK: Final = f"""
UPDATE tasks {_CHANGES}
WHERE swarm_name = $16 AND caller_role = $17 AND caller_id = $18 AND task_id = $19 {_RETURNING}
"""

_CONSUME: Final = """
WITH consumed AS (
    UPDATE messages SET state = $1, reason = $2
    WHERE seq = ANY($3::bigint[]) AND task = $4 AND state = 'ready' RETURNING seq
), dropped AS (
    DELETE FROM journal WHERE message IN (SELECT seq FROM consumed)
)
SELECT count(*) FROM consumed
"""

_UNSET: Final = """
WITH unset AS (
    UPDATE messages SET state = 'acked'
    WHERE seq = ANY($1::bigint[]) AND task = $2 AND state = 'dead' RETURNING seq
)
SELECT count(*) FROM unset
"""

_LOCK_READY: Final = """
SELECT 1 FROM messages WHERE seq = $1 AND task = $2 AND state = 'ready' FOR UPDATE
"""

_PUT_JOURNAL: Final = """
INSERT INTO journal (message, key, state, payload) VALUES ($1, $2, $3, $4)
ON CONFLICT (message, md5(key)) DO UPDATE SET state = excluded.state, payload = excluded.payload
"""

_CANCEL_MAIL: Final = """
WITH cancelled AS (
    UPDATE messages SET state = 'cancelled' WHERE task = $1 AND state = 'ready' RETURNING seq
)
DELETE FROM journal WHERE message IN (SELECT seq FROM cancelled)
"""

_ADD_MESSAGE: Final = """
INSERT INTO messages (task, recipient, tier, interrupt, state, attempts, control, payload)
VALUES ($1, $2, $3, $4, 'ready', $5, $6, $7) RETURNING seq
"""

_ADD_HISTORY: Final = "INSERT INTO history_entries (task, agent, entries) VALUES ($1, $2, $3)"

_ADD_EVENT: Final = """
INSERT INTO task_events (
    task_id, swarm_name, caller_role, caller_id, event_type, event_data, event_id, created_at,
    time_text, task, seq, description, size
) VALUES ($1, $2, $3, $4, $5, $6, $7, coalesce($8, now()), $9, $10, $11, $12, $13)
"""

_ADD_TEXT: Final = """
INSERT INTO task_texts (task, hash, text) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING RETURNING 1
"""

_ADD_BYTES: Final = "UPDATE tasks SET bytes = bytes + $1 WHERE key = $2 RETURNING bytes"


_PUT_CALL: Final = f"""
INSERT INTO calls (task, {CALL_COLUMNS})
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (task, md5(agent), md5(call_id))
DO UPDATE SET call = excluded.call, shown = excluded.shown, answer = excluded.answer,
    control = excluded.control
"""

_PUT_RESPONSE: Final = """
INSERT INTO task_responses
    (task_id, swarm_name, caller_role, caller_id, response, response_text, task)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (task_id, swarm_name, caller_role, caller_id)
DO UPDATE SET response = excluded.response, response_text = excluded.response_text,
    created_at = excluded.created_at, task = excluded.task
"""

_PUT_MEMORY: Final = f"""
INSERT INTO memories ({OWNER_COLUMNS}, digest, {MEMORY_COLUMNS}, size)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (swarm_name, caller_role, caller_id, digest)
DO UPDATE SET value = excluded.value, created_at = excluded.created_at,
    updated_at = excluded.updated_at, size = excluded.size
"""


_ADD_OUTBOX: Final = f"""
INSERT INTO outbox (task, {OUTBOX_COLUMNS})
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
"""

_CHANGE_OUTBOX: Final = """
UPDATE outbox SET state = $3, attempts = $4, next_at = $5, last_error = $6, told = $7
WHERE id = $2 AND task = coalesce($1, task)
"""

_DROP_OUTBOX: Final = """
DELETE FROM outbox WHERE id = ANY($2::bigint[]) AND task = coalesce($1, task)
"""

_ANSWER_OUTBOX: Final = """
DELETE FROM outbox WHERE task = $1 AND kind = 'request' AND peer = $2 AND ref = $3
"""

_CLOSE_OUTBOX: Final = """
DELETE FROM outbox WHERE task = $1 AND kind = 'request' AND state <> 'dead'
"""


_NEW_REGISTRY: Final = """
INSERT INTO swarm_registry (swarm_name, version, content) VALUES ($1, 1, $2)
ON CONFLICT DO NOTHING RETURNING version
"""

_CHANGE_REGISTRY: Final = """
UPDATE swarm_registry SET version = version + 1, content = $2, updated_at = now()
WHERE swarm_name = $1 AND version = $3 RETURNING version
"""


class _Task(NamedTuple):
    """The task row that a commit has written: its key, the first event, about how many bytes."""

    key: int
    first_event: int
    bytes: int


async def _post(parcel: Parcel, db: Connection) -> Receipt:
    post = parcel.opened().post
    await _take_mail(db, post)
    task = await _put_task(db, _NEW_TASK if post.new else _UPSERT_TASK, parcel)
    if task is None:
        raise StoreConflict(f"task '{post.task.task_id}' already exists")
    if post.once is not None:
        key = post.once._replace(first_event=task.first_event)
        if await db.fetchval(PUT_KEY, *post.owner, *key, key_size(key)) is None:
            raise KeyTaken
    return await _write(db, parcel, task)


async def _commit_turn(parcel: Parcel, db: Connection) -> Receipt:
    turn = cast("TurnCommit", parcel.opened().post)
    await _take_mail(db, turn)
    task = await _put_task(db, _UPDATE_TASK, parcel)
    if task is None:
        raise StoreConflict(f"delivery {turn.seq} is not waiting: its task is unknown")
    if turn.done:
        state = "acked" if turn.dead is None else "dead"
        if await db.fetchval(_CONSUME, state, turn.dead, [turn.seq], task.key) != 1:
            raise StoreConflict(f"delivery {turn.seq} is not waiting")
    else:
        await _write_journal(db, turn.seq, task.key, turn.journal)
    if turn.shown:
        await _run(shown_steps(turn.owner.swarm, turn.shown), db)
    return await _write(db, parcel, task)


async def _take_mail(db: Connection, post: Post) -> None:
    """Note the mail of a peer, if there is any; first, so that a repeated one is told as such."""
    if post.inbox is None:
        return
    if await db.fetchval(PUT_INBOX, post.owner.swarm, *post.inbox) is None:
        raise MailTaken


async def _put_task(db: Connection, statement: str, parcel: Parcel) -> _Task | None:
    post = parcel.post
    row: TaskRow = post.task
    started, started_text = moment(row.start_time)
    found = await db.fetchrow(
        statement,
        row.task_owner,
        list_text([escape_nul(text) for text in row.task_contributors]),
        list_text([escape_nul(text) for text in row.remote_swarms]),
        row.state is TaskState.RUNNING,
        row.state is TaskState.COMPLETED,
        started,
        started_text,
        row.state.value,
        row.entrypoint,
        row.steps,
        row.max_steps,
        row.awaited,
        row.finish_asked,
        row.title,
        len(post.events),
        *post.owner,
        row.task_id,
        row.usage,
        parcel.bytes,
        row.handled,
    )
    return None if found is None else _Task(found[0], found[1] - len(post.events), found[2])


async def _write_journal(
    db: Connection, seq: int, task: int, journal: Sequence[JournalRow]
) -> None:
    if await db.fetchval(_LOCK_READY, seq, task) is None:
        raise StoreConflict(f"delivery {seq} is not waiting")
    await db.executemany(_PUT_JOURNAL, [(seq, *row) for row in journal])


async def _write(db: Connection, parcel: Parcel, known: _Task) -> Receipt:
    """Write what posts and turns have in common."""
    post, task = parcel.post, known.key
    taken = await _add_texts(db, parcel.texts, known) if parcel.texts else known.bytes
    if post.settled:
        await db.fetchval(_CONSUME, "acked", None, list(post.settled), task)
    if post.unset and await db.fetchval(_UNSET, list(post.unset), task) != len(post.unset):
        raise StoreConflict(f"deliveries {post.unset} are not all set aside")
    if post.cancel_mail:
        await db.execute(_CANCEL_MAIL, task)
    if post.histories:
        await db.executemany(_ADD_HISTORY, [(task, *row) for row in post.histories])
    seqs = await _add_messages(db, task, post.deliveries) if post.deliveries else ()
    if post.events:
        await _add_events(db, parcel, task, known.first_event)
    if post.calls:
        await db.executemany(_PUT_CALL, [(task, *row) for row in post.calls])
    if post.memories:
        await _put_memories(post.owner, post.memories, db)
    if post.response is not None:
        shown = jsonb_text(post.response)
        key = (post.task.task_id, *post.owner)
        await db.execute(_PUT_RESPONSE, *key, shown, post.response, task)
    if post.snapshot:
        await _update_snapshots(db, post.owner, post.task.task_id, task)
    await _write_mail(db, post, task)
    return Receipt(known.first_event, seqs, taken)


async def _write_mail(db: Connection, post: Post, task: int) -> None:
    """Write what leaves the task: mail for peers, letters, and what people are asked."""
    if post.approvals:
        await _run(approval_steps(task, post.approvals), db)
    if post.outbox_changes:
        await _change_outbox(post.outbox_changes, task, db)
    if post.answered:
        await db.executemany(_ANSWER_OUTBOX, [(task, *request) for request in post.answered])
    if post.close_requests:
        await db.execute(_CLOSE_OUTBOX, task)
    if post.outbox:
        await db.executemany(_ADD_OUTBOX, [(task, *row[1:-1]) for row in post.outbox])
    if post.desk is not None:
        await _run(post_steps(post.desk), db)
    if post.feedback:
        await _run(feedback_steps(post.owner, post.feedback), db)
    if post.webhooks:
        await _run(webhook_steps(post.owner.swarm, post.webhooks), db)


async def _change_outbox(changes: Sequence[OutboxChange], task: int | None, db: Connection) -> None:
    """Change mail for peers, of one task or of any."""
    done = [change.id for change in changes if change.state == "done"]
    if done:
        await db.execute(_DROP_OUTBOX, task, done)
    kept = [(task, *change) for change in changes if change.state != "done"]
    if kept:
        await db.executemany(_CHANGE_OUTBOX, kept)


async def _add_texts(db: Connection, texts: Mapping[str, str], task: _Task) -> int:
    """Add the texts that the task does not have; return what its records take then."""
    added = 0
    for key, text in texts.items():
        if await db.fetchval(_ADD_TEXT, task.key, key, text) is not None:
            added += text_size(text)
    return int(await db.fetchval(_ADD_BYTES, added, task.key))


async def _add_messages(
    db: Connection, task: int, deliveries: Sequence[Delivery]
) -> tuple[int, ...]:
    values = [
        (
            task,
            mail.recipient,
            mail.tier,
            mail.interrupt,
            mail.attempts,
            mail.control,
            mail.payload,
        )
        for mail in deliveries
    ]
    return tuple(row[0] for row in await db.fetchmany(_ADD_MESSAGE, values))


async def _add_events(db: Connection, parcel: Parcel, task: int, first: int) -> None:
    post = parcel.post
    key = (post.task.task_id, *post.owner)
    values = [
        (
            *key,
            event.kind,
            event.extra,
            str(seq),
            *moment(event.timestamp),
            task,
            seq,
            event.description,
            size,
        )
        for (seq, event), size in zip(
            enumerate(post.events, first), parcel.event_sizes, strict=True
        )
    ]
    await db.executemany(_ADD_EVENT, values)


async def _put_memories(owner: Owner, rows: Sequence[MemoryRow], db: Connection) -> None:
    await db.executemany(_PUT_MEMORY, _memory_values(owner, rows))


def _memory_values(owner: Owner, rows: Sequence[MemoryRow]) -> list[tuple[object, ...]]:
    return [
        (
            *owner,
            _memory_digest(row.namespace, row.key),
            namespace_text(row.namespace),
            *row[1:],
            text_size(row.value),
        )
        for row in rows
    ]


def _memory_digest(namespace: tuple[str, ...], key: str) -> str:
    """Return what stands for a namespace and a key, however long they are, in the index."""
    return hashlib.sha256(f"{namespace_text(namespace)}{key}".encode()).hexdigest()


_GROWN: Final = """
SELECT agent, entries, e.id FROM history_entries AS e
LEFT JOIN agent_histories AS h ON h.task = e.task AND h.agent_name = e.agent
WHERE e.task = $1 AND e.id > coalesce(h.through, 0) ORDER BY agent, e.id
"""

_PUT_SNAPSHOT: Final = """
INSERT INTO agent_histories (swarm_name, caller_role, caller_id, tool_format, task_id, agent_name,
    history, task, through)
VALUES ($1, $2, $3, coalesce($4, 'completions'), $5, $6, $7, $8, $9)
ON CONFLICT (task, agent_name)
DO UPDATE SET tool_format = coalesce($4, agent_histories.tool_format),
    history = agent_histories.history || excluded.history, updated_at = now(), through = $9
"""


async def _update_snapshots(db: Connection, owner: Owner, task_id: str, task: int) -> None:
    """Bring the rows of those agents up to date whose history has grown."""
    grown: dict[str, list[str]] = {}
    newest: dict[str, int] = {}
    for agent, entries, number in await db.fetch(_GROWN, task):
        grown.setdefault(agent, []).append(entries)
        newest[agent] = number
    rows = [
        (
            *owner,
            tool_format(added),
            task_id,
            agent,
            jsonb_text(join_lists(added)),
            task,
            newest[agent],
        )
        for agent, added in grown.items()
    ]
    await db.executemany(_PUT_SNAPSHOT, rows)
