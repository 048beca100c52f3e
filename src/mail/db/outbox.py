"""Mail for other swarms, and what has been taken of theirs: see `mail.db.records.OutboxRow`."""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Final

from mail.db.driver import Batch, Change, Query, Verb, Verbs, read, write
from mail.db.records import OutboxChange, OutboxRow, Owner
from mail.db.rows import (
    BURIED,
    LAST_WORDS,
    OWNER_COLUMNS,
    THE_TASK,
    Values,
    columns,
    reader,
)
from mail.db.texts import whole_rows

SENT_HERE: Final = f"(swarm_name = $1 OR {BURIED} AND caller_id = $1 AND {LAST_WORDS})"
"""Of mail for peers of one swarm."""

_FIRST_WAITING: Final = """
FROM (SELECT min(id) AS id FROM outbox WHERE state = 'waiting' GROUP BY task, peer) AS head
JOIN outbox ON outbox.id = head.id JOIN tasks ON tasks.key = outbox.task"""
"""The first mail in each (task, peer), with its task."""

_as_outbox: Final = reader(OutboxRow)
_READ: Final = columns(OutboxRow, "task_id", "texts").replace(", ", ", outbox.")
_MAIL: Final = f"SELECT {OWNER_COLUMNS}, task_id, outbox.{_READ}, outbox.task, outbox.texts"
_WITH_TASKS: Final = "FROM outbox JOIN tasks ON tasks.key = outbox.task"

_RETRY: Final = f"""
UPDATE outbox
SET state = 'waiting', attempts = 0, next_at = '', last_error = '', told = FALSE, created_at = $3
WHERE id = $2 AND state <> 'delivered' AND EXISTS (
    SELECT 1 FROM tasks WHERE tasks.key = outbox.task AND {SENT_HERE})
"""

_CHANGE: Final = """
UPDATE outbox SET state = $2, attempts = $3, next_at = $4, last_error = $5, told = $6 WHERE id = $1
"""

_DROP: Final = "DELETE FROM outbox WHERE id = $1"


def change_outbox(changes: Sequence[OutboxChange], task: int | None = None) -> Verb[None]:
    """Change mail for peers; only that of one task, if its key is given."""
    which, value = ("", ()) if task is None else (" AND task = ${}", (task,))
    done = [(change.id, *value) for change in changes if change.state == "done"]
    if done:
        yield Batch(_DROP + which.format(2), done)
    kept = [(*change, *value) for change in changes if change.state != "done"]
    if kept:
        yield Batch(_CHANGE + which.format(7), kept)


def _of_owner(owner: Owner | None, values: Values) -> str:
    """Return the condition that a task is the owner's, if there is one."""
    if owner is None:
        return ""
    return f" AND ({OWNER_COLUMNS}) = ({', '.join(map(values.place, owner))})"


class OutboxVerbs(Verbs):
    """Mail for peers, and the receipts of theirs."""

    @read
    def due_outbox(
        self,
        swarm: str,
        now: str,
        limit: int,
        *,
        owner: Owner | None = None,
        without: Collection[str] = (),
        untold: Collection[str] = (),
    ) -> Verb[list[tuple[Owner, OutboxRow]]]:
        """Return waiting mail that may be tried now: of each (task, peer) only the first.

        Args:
            swarm: The local swarm.
            now: RFC 3339 text in UTC; rows whose ``next_at`` is later are left out.
            limit: At most so many, the oldest first.
            owner: Only mail of this owner's tasks.
            without: No mail for these peers.
            untold: Mail for these peers only if its sender was told of no failure.
        """
        values = Values((swarm, now, limit))
        which = _of_owner(owner, values)
        for peers, condition in ((without, "FALSE"), (untold, "NOT told")):
            if peers:
                place = values.place(self.sql.list(sorted(peers)))
                which += f" AND (NOT peer {self.sql.among(place)} OR {condition})"
        text = f"""
            {_MAIL} {_FIRST_WAITING}
            WHERE {SENT_HERE} AND next_at <= $2{which} ORDER BY outbox.id LIMIT $3"""
        return (yield from self._outbox(text, values))

    @read
    def next_outbox(self, swarm: str, after: str | None = None) -> Verb[str | None]:
        """Return the earliest ``next_at`` of what is first in a (task, peer), or None without any.

        No text means at once. With ``after``, only later times count.
        """
        later, values = ("", (swarm,)) if after is None else (" AND next_at > $2", (swarm, after))
        text = f"SELECT min(next_at) {_FIRST_WAITING} WHERE {SENT_HERE}{later}"
        ((moment,),) = yield Query(text, values)
        return None if moment is None else str(moment)

    @read
    def unanswered_outbox(
        self,
        swarm: str,
        before: str,
        after: int,
        limit: int,
        *,
        owner: Owner | None = None,
    ) -> Verb[list[tuple[Owner, OutboxRow]]]:
        """Return a page of the delivered requests that were written before a time, in order.

        Args:
            swarm: The local swarm.
            before: RFC 3339 text in UTC.
            after: Only requests with a greater number.
            limit: At most so many.
            owner: Only requests of this owner's tasks.
        """
        values = Values((swarm, before, after, limit))
        which = _of_owner(owner, values)
        text = f"""
            {_MAIL} {_WITH_TASKS}
            WHERE {SENT_HERE} AND outbox.state = 'delivered' AND outbox.created_at < $2
                AND outbox.id > $3{which}
            ORDER BY outbox.id LIMIT $4"""
        return (yield from self._outbox(text, values))

    @read
    def task_outbox(self, owner: Owner, task_id: str) -> Verb[list[OutboxRow]]:
        """Return a task's mail for peers in order, whatever its state."""
        text = f"{_MAIL} {_WITH_TASKS} WHERE outbox.task = {THE_TASK} ORDER BY outbox.id"
        found = yield from self._outbox(text, (*owner, task_id))
        return [mail for _, mail in found]

    @read
    def list_outbox(
        self, swarm: str, *, peer: str | None = None, after: int = 0, limit: int = 100
    ) -> Verb[list[tuple[Owner, OutboxRow]]]:
        """Return a page of a swarm's mail for peers in order of the numbers, in any state."""
        which, values = ("", ()) if peer is None else (" AND peer = $4", (peer,))
        text = f"""
            {_MAIL} {_WITH_TASKS}
            WHERE {SENT_HERE} AND outbox.id > $2{which} ORDER BY outbox.id LIMIT $3"""
        return (yield from self._outbox(text, (swarm, after, limit, *values)))

    def _outbox(self, text: str, values: Sequence[object]) -> Verb[list[tuple[Owner, OutboxRow]]]:
        rows = yield from whole_rows(self.sql, Query(text, values), {"wrapper": 9})
        return [(Owner(*row[:3]), _as_outbox(row[3:])) for row in rows]

    @write
    def change_outbox(self, changes: Sequence[OutboxChange]) -> Verb[None]:
        """Commit what came of attempts that concern nobody but the outbox."""
        yield from change_outbox(changes)

    @write
    def retry_outbox(self, swarm: str, number: int) -> Verb[bool]:
        """Let waiting or dead mail be tried at once, as if it had just been written.

        Of its (task, peer) it keeps its place, before what was added after it.

        Returns:
            Whether there is such mail.
        """
        now = datetime.now(UTC).isoformat()
        return bool((yield Change(_RETRY, (swarm, number, now))))

    @read
    def find_inbox(self, swarm: str, peer: str, message_id: str) -> Verb[str | None]:
        """Return the receipt of mail that a swarm has taken from a peer, or None."""
        text = "SELECT receipt FROM inbox WHERE swarm_name = $1 AND peer = $2 AND message_id = $3"
        rows = yield Query(text, (swarm, peer, message_id))
        return str(rows[0][0]) if rows else None
