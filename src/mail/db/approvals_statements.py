"""Approvals in SQL, for SQLite and PostgreSQL: `mail.db.approvals.ApprovalRecords`."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from mail.db.approvals import ApprovalFilter, ApprovalRow, StoredApproval
from mail.db.base import Owner
from mail.db.statements import Dialect, Row, Step

_COLUMNS: Final = ", ".join(ApprovalRow._fields)
_WIDTH: Final = len(ApprovalRow._fields)

_LARGE: Final = ("a.request", "a.description", "coalesce(a.answer, '')")

_COUNT: Final = "UPDATE approval_counter SET value = value + 1"

_PUT: Final = f"""
INSERT INTO approvals (task, {_COLUMNS}, change)
VALUES ({", ".join(f"${number}" for number in range(1, _WIDTH + 2))},
    (SELECT value FROM approval_counter))
ON CONFLICT (task, approval_id) DO UPDATE SET status = excluded.status, answer = excluded.answer,
    answered_by = excluded.answered_by, answered_at = excluded.answered_at, change = excluded.change
"""


def approval_steps(task: int, rows: Sequence[ApprovalRow]) -> list[Step]:
    """Return what stores approvals of a task, given by its key; each change has its own number."""
    return [step for row in rows for step in (Step(_COUNT), Step(_PUT, (task, *row)))]


def _rows(rows: Iterable[Row]) -> list[ApprovalRow]:
    return [ApprovalRow(*row) for row in rows]


def _stored(rows: Iterable[Row]) -> list[StoredApproval]:
    return [
        StoredApproval(Owner(*row[:3]), row[3], ApprovalRow(*row[4:-2]), *row[-2:])
        for row in map(tuple, rows)
    ]


class ApprovalStatements(Dialect):
    """`mail.db.approvals.ApprovalRecords`."""

    async def approvals(self, owner: Owner, task_id: str) -> list[ApprovalRow]:
        text = f"SELECT {_COLUMNS} FROM approvals WHERE task = {self._the_task} ORDER BY id"
        return await self._fetch(_rows, text, *owner, task_id)

    async def find_approval(self, swarm: str, approval_id: str) -> StoredApproval | None:
        text = f"{self._select} WHERE t.swarm_name = $1 AND a.approval_id = $2"
        found = await self._fetch(_stored, text, swarm, approval_id)
        return found[0] if found else None

    async def list_approvals(
        self, which: ApprovalFilter, *, before: int = 0, limit: int = 100
    ) -> list[StoredApproval]:
        text, values = self._approvals_page(self._columns, which, limit, before=before)
        return await self._fetch(_stored, text, *values)

    async def changed_approvals(
        self, which: ApprovalFilter, after: int, limit: int
    ) -> list[StoredApproval]:
        text, values = self._approvals_page(self._columns, which, limit, after=after)
        return await self._fetch(_stored, text, *values)

    async def approval_sizes(
        self, which: ApprovalFilter, limit: int, *, before: int = 0, after: int | None = None
    ) -> list[int]:
        size = " + ".join(map(self._BYTES.format, _LARGE))
        text, values = self._approvals_page(size, which, limit, before=before, after=after)
        return await self._fetch(lambda rows: [int(row[0]) for row in rows], text, *values)

    async def last_approval_change(self, swarm: str) -> int:
        text = "SELECT value FROM approval_counter"
        found = await self._fetch(lambda rows: [int(row[0]) for row in rows], text)
        return found[0]

    async def due_approvals(
        self,
        swarm: str,
        before: str,
        limit: int,
        *,
        owner: Owner | None = None,
        after: tuple[str, int] | None = None,
    ) -> list[StoredApproval]:
        values: list[object] = [swarm]
        text = (
            f"{self._select} WHERE t.swarm_name = $1 AND a.status = 'open' AND a.expires_at <> ''"
        )
        if before:
            values.append(before)
            text += f" AND a.expires_at <= ${len(values)}"
        if owner is not None:
            values += [owner.role, owner.id]
            text += f" AND t.caller_role = ${len(values) - 1} AND t.caller_id = ${len(values)}"
        if after is not None:
            values += after
            text += f" AND (a.expires_at, a.id) > (${len(values) - 1}, ${len(values)})"
        values.append(limit)
        text += f" ORDER BY a.expires_at, a.id LIMIT ${len(values)}"
        return await self._fetch(_stored, text, *values)

    @property
    def _columns(self) -> str:
        columns = ", ".join(f"a.{name}" for name in ApprovalRow._fields)
        return f"t.swarm_name, t.caller_role, t.caller_id, t.task_id, {columns}, a.id, a.change"

    @property
    def _select(self) -> str:
        return f"SELECT {self._columns} {self._from}"

    @property
    def _from(self) -> str:
        return f"FROM approvals AS a JOIN tasks AS t ON t.{self._TASK_KEY} = a.task"

    def _approvals_page(
        self,
        columns: str,
        which: ApprovalFilter,
        limit: int,
        *,
        before: int = 0,
        after: int | None = None,
    ) -> tuple[str, list[object]]:
        """Return a query for approvals after a change, or else newest first, and its values.

        What is large in them is read of those alone: others are not sorted with it.
        """
        text, values, parameter = self._filtered(f"SELECT a.id {self._from}", which)
        order = "a.id DESC" if after is None else "a.change"
        if after is not None:
            text += f" AND a.change > {parameter(after)}"
        elif before:
            text += f" AND a.id < {parameter(before)}"
        text += f" ORDER BY {order} LIMIT {parameter(limit)}"
        return f"SELECT {columns} {self._from} WHERE a.id IN ({text}) ORDER BY {order}", values

    def _filtered(
        self, select: str, which: ApprovalFilter
    ) -> tuple[str, list[object], Callable[[object], str]]:
        values: list[object] = [which.owner.swarm]

        def parameter(value: object) -> str:
            values.append(value)
            return f"${len(values)}"

        text = f"{select} WHERE t.swarm_name = $1"
        if not which.everybody:
            owner = which.owner
            seen = (
                f"t.caller_role = {parameter(owner.role)} AND t.caller_id = {parameter(owner.id)}"
            )
            if which.approver:
                name = parameter(f"\n{which.approver}\n")
                seen = f"{seen} OR replace(a.approvers, {name}, '') <> a.approvers"
            text += f" AND ({seen})"
        if which.status:
            text += f" AND a.status = {parameter(which.status)}"
        if which.task_id:
            text += f" AND t.task_id = {parameter(which.task_id)}"
        return text, values, parameter
