"""Calls that wait for a person. Commits of tasks write them, everybody else reads."""

import sys
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from mail.db.driver import Change, Query, Row, Verb, Verbs, read
from mail.db.records import Owner
from mail.db.rows import THE_TASK


class ApprovalRow(NamedTuple):
    """A call that somebody outside the swarm is asked about, and what was answered.

    Attributes:
        approval_id: Unique in the swarm.
        agent, call_id: The open call; see `mail.db.records.CallRow`.
        kind: ``approval``, or ``breakpoint`` for the call of a breakpoint tool.
        status: ``open``, ``accepted``, ``edited``, ``ignored``, ``responded``, ``cancelled`` or
            ``expired``.
        created_at: When it was opened; RFC 3339 text in UTC, as all times here.
        request: The tool and its arguments as JSON.
        config: What is allowed, and what happens at the deadline, as JSON.
        approvers: Who may answer, one in each line, with an empty line before and after.
        description: What a person reads, in Markdown.
        expires_at: The deadline, or no text.
        answer: The answer as JSON, or None.
        answered_by: Who answered, or no text.
        answered_at: When it was closed, or no text.
    """

    approval_id: str
    agent: str
    call_id: str
    kind: str
    status: str
    created_at: str
    request: str
    config: str
    approvers: str
    description: str = ""
    expires_at: str = ""
    answer: str | None = None
    answered_by: str = ""
    answered_at: str = ""

    @property
    def size(self) -> int:
        """The bytes of what may be large in it, in UTF-8."""
        return len("".join(self._large).encode("utf-8", "surrogatepass"))

    @property
    def memory(self) -> int:
        """What that takes in memory: one character may make all others four times as large."""
        return sum(map(sys.getsizeof, self._large))

    @property
    def _large(self) -> tuple[str, str, str]:
        return self.request, self.description, self.answer or ""


class StoredApproval(NamedTuple):
    """An approval with whose it is.

    ``number`` grows with each approval that is opened, ``change`` with each that is changed.
    """

    owner: Owner
    task_id: str
    row: ApprovalRow
    number: int
    change: int


class ApprovalFilter(NamedTuple):
    """Which approvals somebody sees.

    Attributes:
        owner: Those of this owner's tasks; with ``approver`` these, too.
        approver: Those that name this approver (``user:alice``), or no text.
        everybody: All of the swarm.
        status: Only with this status, or no text.
        task_id: Only of tasks with this id, or no text.
    """

    owner: Owner
    approver: str = ""
    everybody: bool = False
    status: str = ""
    task_id: str = ""


_COLUMNS: Final = ", ".join(ApprovalRow._fields)
_WIDTH: Final = len(ApprovalRow._fields)
_LARGE: Final = ("a.request", "a.description", "coalesce(a.answer, '')")

_FROM: Final = "FROM approvals AS a JOIN tasks AS t ON t.key = a.task"
_STORED: Final = f"""
t.swarm_name, t.caller_role, t.caller_id, t.task_id,
{", ".join(f"a.{name}" for name in ApprovalRow._fields)}, a.id, a.change
"""

_COUNT: Final = "UPDATE approval_counter SET value = value + 1"

_PUT: Final = f"""
INSERT INTO approvals (task, {_COLUMNS}, change)
VALUES ({", ".join(f"${number}" for number in range(1, _WIDTH + 2))},
    (SELECT value FROM approval_counter))
ON CONFLICT (task, approval_id) DO UPDATE SET status = excluded.status, answer = excluded.answer,
    answered_by = excluded.answered_by, answered_at = excluded.answered_at, change = excluded.change
"""


def put_approvals(task_key: int, rows: Sequence[ApprovalRow]) -> Verb[None]:
    """Insert or replace approvals of a task; each gets the number of a change of its own."""
    for row in rows:
        yield Change(_COUNT)
        yield Change(_PUT, (task_key, *row))


class ApprovalVerbs(Verbs):
    """Approvals of tasks."""

    @read
    def approvals(self, owner: Owner, task_id: str) -> Verb[list[ApprovalRow]]:
        """Return a task's approvals in the order in which they were opened."""
        text = f"SELECT {_COLUMNS} FROM approvals WHERE task = {THE_TASK} ORDER BY id"
        rows = yield Query(text, (*owner, task_id))
        return [ApprovalRow(*row) for row in rows]

    @read
    def find_approval(self, swarm: str, approval_id: str) -> Verb[StoredApproval | None]:
        """Return an approval by its id, or None."""
        text = f"SELECT {_STORED} {_FROM} WHERE t.swarm_name = $1 AND a.approval_id = $2"
        rows = yield Query(text, (swarm, approval_id))
        return _stored(rows)[0] if rows else None

    @read
    def list_approvals(
        self, which: ApprovalFilter, *, before: int = 0, limit: int = 100
    ) -> Verb[list[StoredApproval]]:
        """Return approvals, newest first.

        Args:
            which: Which ones.
            before: Only those with a smaller number; 0 for all.
            limit: At most so many.
        """
        rows = yield _page(_STORED, which, limit, before=before)
        return _stored(rows)

    @read
    def changed_approvals(
        self, which: ApprovalFilter, after: int, limit: int
    ) -> Verb[list[StoredApproval]]:
        """Return approvals that were changed after a change, in order of their last changes."""
        rows = yield _page(_STORED, which, limit, after=after)
        return _stored(rows)

    @read
    def approval_sizes(
        self, which: ApprovalFilter, limit: int, *, before: int = 0, after: int | None = None
    ) -> Verb[list[int]]:
        """Return how many bytes requests, descriptions and answers of approvals have.

        Those that `changed_approvals` returns after ``after``, or else `list_approvals`.
        """
        size = " + ".join(map(self.sql.size, _LARGE))
        rows = yield _page(size, which, limit, before=before, after=after)
        return [int(row[0]) for row in rows]

    @read
    def last_approval_change(self, swarm: str) -> Verb[int]:
        """Return the number of the latest change, in this swarm or another; 0 without any."""
        rows = yield Query("SELECT value FROM approval_counter")
        return int(rows[0][0])

    @read
    def due_approvals(
        self,
        swarm: str,
        before: str,
        limit: int,
        *,
        owner: Owner | None = None,
        after: tuple[str, int] | None = None,
    ) -> Verb[list[StoredApproval]]:
        """Return open approvals whose deadline comes before a time, the first ones first.

        Args:
            swarm: The swarm.
            before: RFC 3339 text in UTC; no text for any deadline.
            limit: At most so many.
            owner: Only those of this owner's tasks.
            after: Only those that come after a deadline and number.
        """
        values = _Values()
        text = f"""
            SELECT {_STORED} {_FROM}
            WHERE t.swarm_name = {values.place(swarm)} AND a.status = 'open'
                AND a.expires_at <> ''"""
        if before:
            text += f" AND a.expires_at <= {values.place(before)}"
        if owner is not None:
            text += f" AND {_owned(owner, values)}"
        if after is not None:
            text += f" AND (a.expires_at, a.id) > ({', '.join(map(values.place, after))})"
        text += f" ORDER BY a.expires_at, a.id LIMIT {values.place(limit)}"
        rows = yield Query(text, values)
        return _stored(rows)


class _Values(list[object]):
    """The values of a statement whose parameters depend on what is asked for."""

    def place(self, value: object) -> str:
        """Add a value and return its parameter."""
        self.append(value)
        return f"${len(self)}"


def _page(
    columns: str, which: ApprovalFilter, limit: int, *, before: int = 0, after: int | None = None
) -> Query:
    """Return a query for approvals after a change, or else newest first.

    What is large in them is read of those alone: others are not sorted with it.
    """
    values = _Values()
    text = f"SELECT a.id {_FROM} WHERE t.swarm_name = {values.place(which.owner.swarm)}"
    if not which.everybody:
        seen = _owned(which.owner, values)
        if which.approver:
            name = values.place(f"\n{which.approver}\n")
            seen = f"{seen} OR replace(a.approvers, {name}, '') <> a.approvers"
        text += f" AND ({seen})"
    if which.status:
        text += f" AND a.status = {values.place(which.status)}"
    if which.task_id:
        text += f" AND t.task_id = {values.place(which.task_id)}"
    if after is not None:
        text += f" AND a.change > {values.place(after)}"
    elif before:
        text += f" AND a.id < {values.place(before)}"
    order = "a.id DESC" if after is None else "a.change"
    text += f" ORDER BY {order} LIMIT {values.place(limit)}"
    return Query(f"SELECT {columns} {_FROM} WHERE a.id IN ({text}) ORDER BY {order}", values)


def _owned(owner: Owner, values: _Values) -> str:
    """Return the condition of the tasks that an owner has in its swarm."""
    role, name = values.place(owner.role), values.place(owner.id)
    return f"t.caller_role = {role} AND t.caller_id = {name}"


def _stored(rows: Iterable[Row]) -> list[StoredApproval]:
    return [
        StoredApproval(Owner(*row[:3]), row[3], ApprovalRow(*row[4:-2]), *row[-2:])
        for row in map(tuple, rows)
    ]
