"""Calls of agents that stay open when their turns end, and the verbs for those that people see.

Commits of tasks write them, everybody else reads.
"""

import sys
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from pydantic_core import from_json, to_json

from mail.db.driver import Change, Dialect, Query, Verb, Verbs, read
from mail.db.records import Owner
from mail.db.rows import OWNED, THE_TASK, Values, columns
from mail.db.texts import text_size, whole_rows

DECIDED: Final = ("accepted", "edited")
"""The statuses of a call that is run."""


class CallRow(NamedTuple):
    """A call of an agent that was open when its turn ended, and what became of it.

    Undecided calls have the status ``open``. A call has no ``answer`` only while it is open, or
    accepted or edited and still to be run. It is closed once.

    Attributes:
        agent: The agent that made the call.
        call_id: Names the call within its task: the provider's id, or one made from it when another
            call of the task has that.
        call: The serialised tool call without its arguments, as JSON.
        shown: The call as callers see it, as JSON; no text for a wait.
        answer: The tool result as the agent reads it, once there is one.
        control: The instruction to the turn that goes on with the result (see
            `mail.core.runtime.turn.Control`); None for calls made before it was kept. For a wait
            what it waits for (see `mail.core.runtime.team_waits`).
        kind: ``approval``, ``breakpoint`` for a call of a breakpoint tool, of a tool that the
            caller offers or of a peer's agent, or ``wait`` for one that waits for a teammate.
        status: ``open``, ``accepted``, ``edited``, ``ignored``, ``responded``, ``cancelled`` or
            ``expired``.
        approval_id: Unique in the swarm; no text for a call that is not listed for people.
        created_at: The time of opening; RFC 3339 text in UTC, as all times here.
        config: The permitted answers, and the consequence of the deadline, as JSON.
        approvers: Those who may answer, one in each line, with an empty line before and after.
        description: The text for people, in Markdown.
        expires_at: The deadline, or no text.
        decision: The ``type`` of the answer that was given, and the ``args`` of an edit, as JSON.
            The text of a response stands in ``answer`` alone.
        decided_by: The one who answered, or no text.
        decided_at: The time of closing, or no text.
        texts: The store's own; see `mail.db.texts`.
    """

    agent: str
    call_id: str
    call: str
    shown: str
    answer: str | None = None
    control: str | None = None
    kind: str = "breakpoint"
    status: str = "open"
    approval_id: str = ""
    created_at: str = ""
    config: str = "{}"
    approvers: str = ""
    description: str = ""
    expires_at: str = ""
    decision: str | None = None
    decided_by: str = ""
    decided_at: str = ""
    texts: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Its place among the calls of its task."""
        return self.agent, self.call_id

    @property
    def is_wait(self) -> bool:
        """Tell whether it waits for a teammate (`mail.core.runtime.team_waits`), for no caller."""
        return self.kind == "wait"

    @property
    def is_asked(self) -> bool:
        """Tell whether somebody outside the swarm is still to answer it."""
        return self.answer is None and self.status == "open" and not self.is_wait

    @property
    def is_decided(self) -> bool:
        """Tell whether it is to be run, because somebody has accepted it."""
        return self.answer is None and self.status in DECIDED

    def closed(self, text: str, now: str) -> "CallRow":
        """Return the call as it is when nobody will answer it, or run it, any more."""
        return self._replace(answer=text, status="cancelled", decided_at=self.decided_at or now)

    @property
    def request(self) -> dict[str, Any]:
        """The call for people: the tool as ``action``, its arguments as ``args``."""
        shown = from_json(self.shown)
        arguments: str = shown["arguments"]
        args = from_json(arguments)
        if any(name[0] in arguments and name in arguments for name in ("NaN", "Infinity")):
            # An agent function of one's own may return them, and no answer can have them in JSON.
            args = from_json(to_json(args, inf_nan_mode="null"))
        return {"action": shown["name"], "args": args}

    @property
    def size(self) -> int:
        """The bytes of what may be large in what people see of it, in UTF-8."""
        return sum(map(text_size, self._large))

    @property
    def memory(self) -> int:
        """Its bytes in memory: one character may make all others four times as large."""
        return sum(map(sys.getsizeof, self._large))

    @property
    def _large(self) -> tuple[str, ...]:
        answer = None if self.status in DECIDED else self.answer
        return self.shown, self.description, self.decision or "", answer or ""


class StoredCall(NamedTuple):
    """A call that people see, with whose it is; without its result if that is of a run.

    ``number`` grows with each call that is opened, ``change`` with each that is opened or closed.
    """

    owner: Owner
    task_id: str
    row: CallRow
    number: int
    change: int


class CallFilter(NamedTuple):
    """A selection of calls that somebody sees, and their order.

    Attributes:
        owner: Those of this owner's tasks; with ``approver`` these, too.
        approver: Those that name this approver (``user:alice``), or no text.
        everybody: All of the swarm.
        status: Only with this status, or no text.
        task_id: Only of tasks with this id, or no text.
        approval_id: Only this one; None for any.
        before: Only those with a smaller number, unless it is 0. They come newest first.
        after: Only those that were changed after this change, in the order of their last changes;
            None for any.
        due: Only open ones whose deadline comes after a time and by another (RFC 3339 text in UTC),
            the first ones first; None for any. Of those at the first time only such with a greater
            number.
    """

    owner: Owner
    approver: str = ""
    everybody: bool = False
    status: str = ""
    task_id: str = ""
    approval_id: str | None = None
    before: int = 0
    after: int | None = None
    due: tuple[str, int, str] | None = None


_READ: Final = CallRow._fields[:-1]
"""All but ``texts``, which `whole_rows` has at the end."""
_COLUMNS: Final = columns(CallRow, "texts")
_WIDTH: Final = len(CallRow._fields)

_DECIDED: Final = ", ".join(f"'{status}'" for status in DECIDED)

_SEEN: Final = "FROM calls AS c {} tasks AS t WHERE t.key = c.task AND c.approval_id <> ''"
"""Of calls that people see; between stands how the tables are joined."""

_GIVEN_ANSWER: Final = f"CASE WHEN c.status NOT IN ({_DECIDED}) THEN c.answer END"

_STORED: Final = f"""
t.swarm_name, t.caller_role, t.caller_id, t.task_id, c.id, c.change,
{", ".join(_GIVEN_ANSWER if name == "answer" else f"c.{name}" for name in _READ)},
c.task, c.texts
"""

_LONG: Final = {"call": 8, "shown": 9, "answer": 10}

_IS_ASKED: Final = "answer IS NULL AND calls.status = 'open' AND calls.kind <> 'wait'"
"""Of calls that callers can answer."""

_COUNT: Final = "UPDATE approval_counter SET value = value + 1"

_REPLACED: Final = ", ".join(f"{name} = excluded.{name}" for name in (*CallRow._fields[2:], "size"))


def put_calls(sql: Dialect, task: int, rows: Sequence[CallRow], sizes: Sequence[int]) -> Verb[None]:
    """Insert or replace calls of a task, by agent and id.

    Each that people see gets the number of a change of its own when it is opened or closed.

    Args:
        sql: The database's dialect.
        task: The key of the task.
        rows: The calls, without long texts.
        sizes: The `CallRow.size` of each, with them.
    """
    values = ", ".join(f"${number}" for number in range(1, _WIDTH + 3))
    text = f"""
        INSERT INTO calls (task, {_COLUMNS}, texts, size, change) VALUES ({values},
            CASE WHEN ${CallRow._fields.index("approval_id") + 2} <> ''
                THEN (SELECT value FROM approval_counter) ELSE 0 END)
        ON CONFLICT (task, {sql.hashed.format("agent")}, {sql.hashed.format("call_id")})
        DO UPDATE SET {_REPLACED}, change = CASE WHEN calls.status <> excluded.status
            THEN excluded.change ELSE calls.change END"""
    for row, size in zip(rows, sizes, strict=True):
        if row.approval_id:
            yield Change(_COUNT)
        yield Change(text, (task, *row, size))


class CallVerbs(Verbs):
    """Calls of tasks."""

    @read
    def calls(self, owner: Owner, task_id: str) -> Verb[list[CallRow]]:
        """Return a task's calls in the order in which they were made."""
        return (yield from self._calls(owner, task_id, ""))

    @read
    def open_calls(self, owner: Owner, task_id: str) -> Verb[list[CallRow]]:
        """Return the calls of a task that callers can answer, in the same order.

        Those that are undecided, but for waits.
        """
        return (yield from self._calls(owner, task_id, f"AND {_IS_ASKED}"))

    def _calls(self, owner: Owner, task_id: str, which: str) -> Verb[list[CallRow]]:
        text = f"""
            SELECT {_COLUMNS}, task, texts FROM calls
            WHERE task = {THE_TASK} {which} ORDER BY id"""
        long = {"call": 2, "shown": 3, "answer": 4}
        rows = yield from whole_rows(self.sql, Query(text, (*owner, task_id)), long)
        return [CallRow(*row) for row in rows]

    @read
    def short_calls(
        self, owner: Owner, task_ids: Sequence[str], max_shown: int
    ) -> Verb[dict[str, list[CallRow]]]:
        """Return the `open_calls` of some tasks, without tasks that have none.

        Args:
            owner: The owner of the tasks.
            task_ids: The tasks.
            max_shown: A longer ``shown``, in characters, is not read: the row has ``{}`` there.
        """
        shown = "CASE WHEN length(shown) <= $4 AND texts IS NULL THEN shown ELSE '{}' END"
        text = f"""
            SELECT task_id, agent, call_id, call, {shown}, NULL, control
            FROM calls JOIN tasks ON tasks.key = calls.task
            WHERE {OWNED} AND task_id {self.sql.among("$5")} AND {_IS_ASKED}
            ORDER BY calls.id"""
        found: dict[str, list[CallRow]] = {}
        rows = yield Query(text, (*owner, max_shown, self.sql.list(task_ids)))
        for task_id, *row in rows:
            found.setdefault(task_id, []).append(CallRow(*row))
        return found

    @read
    def paused_on(self, owner: Owner, call_ids: Sequence[str], among: int) -> Verb[str | None]:
        """Return the id of the newest paused task that waits for one of some calls, or None.

        Args:
            owner: The owner of the task.
            call_ids: The calls' ids.
            among: The number of the owner's newest tasks that are looked at, whatever their state.
        """
        text = f"""
            SELECT task_id FROM (
                SELECT key, task_id, state FROM tasks WHERE {OWNED} ORDER BY key DESC LIMIT $4
            ) AS newest
            WHERE state = 'paused' AND EXISTS (
                SELECT 1 FROM calls WHERE calls.task = newest.key
                    AND call_id {self.sql.among("$5")} AND answer IS NULL AND kind <> 'wait')
            ORDER BY key DESC LIMIT 1"""
        rows = yield Query(text, (*owner, among, self.sql.list(call_ids)))
        return str(rows[0][0]) if rows else None

    @read
    def held_calls(
        self, which: CallFilter, limit: int, max_bytes: int = 2**62
    ) -> Verb[tuple[list[StoredCall], bool]]:
        """Return a page of the calls that people see, and whether there are more.

        Args:
            which: The selection and the order.
            limit: At most so many.
            max_bytes: The page ends with the call that brings it there. No other call is read.
        """
        where, order, values = _seen(which)
        # SQLite begins with the first table of a cross join: here that has an index in order.
        join = _SEEN.format("CROSS JOIN" if which.everybody or which.approver else ",")
        some = f"ORDER BY {order} LIMIT {values.place(limit + 1)}"
        found = yield Query(f"SELECT c.id, c.size {join} {where} {some}", values)
        numbers: list[int] = []
        size = 0
        for number, bytes_of in found[:limit]:
            if numbers and size >= max_bytes:
                break
            numbers.append(number)
            size += bytes_of
        if not numbers:
            return [], False
        these = f"AND c.id {self.sql.among('$1', 'bigint')} ORDER BY {order}"
        text = f"SELECT {_STORED} {_SEEN.format(',')} {these}"
        query = Query(text, (self.sql.list(numbers),))
        rows = yield from whole_rows(self.sql, query, _LONG)
        page = [
            StoredCall(Owner(*row[:3]), row[3], CallRow(*row[6:]), row[4], row[5]) for row in rows
        ]
        return page, len(numbers) < len(found) and bool(page)

    @read
    def last_call_change(self) -> Verb[int]:
        """Return the number of the latest change of a call that people see; 0 without any."""
        rows = yield Query("SELECT value FROM approval_counter")
        return int(rows[0][0])


def _seen(which: CallFilter) -> tuple[str, str, Values]:
    """Return the conditions of a filter, its order, and their values."""
    values = Values()
    owner = which.owner
    text = f"AND t.swarm_name = {values.place(owner.swarm)}"
    if not which.everybody:
        role, name = values.place(owner.role), values.place(owner.id)
        seen = f"t.caller_role = {role} AND t.caller_id = {name}"
        if which.approver:
            name = values.place(f"\n{which.approver}\n")
            seen = f"{seen} OR replace(c.approvers, {name}, '') <> c.approvers"
        text += f" AND ({seen})"
    if which.status == "open" or which.due:
        text += " AND c.status = 'open'"  # which has indexes
    elif which.status:
        text += f" AND c.status = {values.place(which.status)}"
    if which.task_id:
        text += f" AND t.task_id = {values.place(which.task_id)}"
    if which.approval_id is not None:
        text += f" AND c.approval_id = {values.place(which.approval_id)}"
    if which.before:
        text += f" AND c.id < {values.place(which.before)}"
    if which.due is not None:
        since, number, until = map(values.place, which.due)
        text += f" AND c.expires_at <> '' AND (c.expires_at, c.id) > ({since}, {number})"
        return f"{text} AND c.expires_at <= {until}", "c.expires_at, c.id", values
    if which.after is not None:
        text += f" AND c.change > 0 AND c.change > {values.place(which.after)}"
        return text, "c.change", values
    return text, "c.id DESC", values
