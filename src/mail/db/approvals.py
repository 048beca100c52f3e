"""Calls that wait for a person: what a store knows of them."""

import sys
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mail.db.base import Owner


class ApprovalRow(NamedTuple):
    """A call that somebody outside the swarm is asked about, and what was answered.

    Attributes:
        approval_id: Unique in the swarm.
        agent, call_id: The open call; see `mail.db.base.CallRow`.
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

    owner: "Owner"
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

    owner: "Owner"
    approver: str = ""
    everybody: bool = False
    status: str = ""
    task_id: str = ""


class ApprovalRecords(Protocol):
    """Approvals; commits of tasks write them."""

    async def approvals(self, owner: "Owner", task_id: str) -> list[ApprovalRow]:
        """Return a task's approvals in the order in which they were opened."""

    async def find_approval(self, swarm: str, approval_id: str) -> StoredApproval | None:
        """Return an approval by its id, or None."""

    async def list_approvals(
        self, which: ApprovalFilter, *, before: int = 0, limit: int = 100
    ) -> list[StoredApproval]:
        """Return approvals, newest first.

        Args:
            which: Which ones.
            before: Only those with a smaller number; 0 for all.
            limit: At most so many.
        """

    async def changed_approvals(
        self, which: ApprovalFilter, after: int, limit: int
    ) -> list[StoredApproval]:
        """Return approvals that were changed after a change, in order of their last changes."""

    async def approval_sizes(
        self, which: ApprovalFilter, limit: int, *, before: int = 0, after: int | None = None
    ) -> list[int]:
        """Return how many bytes requests, descriptions and answers of approvals have.

        Those that `changed_approvals` returns after ``after``, or else `list_approvals`.
        """

    async def last_approval_change(self, swarm: str) -> int:
        """Return the number of the latest change in a swarm; 0 without any."""

    async def due_approvals(
        self,
        swarm: str,
        before: str,
        limit: int,
        *,
        owner: "Owner | None" = None,
        after: tuple[str, int] | None = None,
    ) -> list[StoredApproval]:
        """Return open approvals whose deadline comes before a time, the first ones first.

        Args:
            swarm: The swarm.
            before: RFC 3339 text in UTC; no text for any deadline.
            limit: At most so many.
            owner: Only those of this owner's tasks.
            after: Only those that come after a deadline and number.
        """


class MemoryApprovals:
    """`ApprovalRecords` in dictionaries."""

    def __init__(self) -> None:
        super().__init__()
        self._approvals: dict[tuple[str, str], StoredApproval] = {}  # by swarm and id
        self._approval_number = 0
        self._approval_change = 0

    def _put_approvals(self, owner: "Owner", task_id: str, rows: "Sequence[ApprovalRow]") -> None:
        """Insert or replace approvals of a task."""
        for row in rows:
            self._approval_change += 1
            known = self._approvals.get((owner.swarm, row.approval_id))
            if known is None:
                self._approval_number += 1
            number = self._approval_number if known is None else known.number
            self._approvals[(owner.swarm, row.approval_id)] = StoredApproval(
                owner, task_id, row, number, self._approval_change
            )

    def _drop_approvals(self, owner: "Owner", task_id: str) -> None:
        """Forget the approvals of a deleted task."""
        for key, found in list(self._approvals.items()):
            if (found.owner, found.task_id) == (owner, task_id):
                del self._approvals[key]

    async def approvals(self, owner: "Owner", task_id: str) -> list[ApprovalRow]:
        """See `ApprovalRecords.approvals`."""
        found = [
            each
            for each in self._approvals.values()
            if (each.owner, each.task_id) == (owner, task_id)
        ]
        return [each.row for each in sorted(found, key=lambda each: each.number)]

    async def find_approval(self, swarm: str, approval_id: str) -> StoredApproval | None:
        """See `ApprovalRecords.find_approval`."""
        return self._approvals.get((swarm, approval_id))

    async def list_approvals(
        self, which: ApprovalFilter, *, before: int = 0, limit: int = 100
    ) -> list[StoredApproval]:
        """See `ApprovalRecords.list_approvals`."""
        found = [each for each in self._shown(which) if not before or each.number < before]
        return sorted(found, key=lambda each: -each.number)[:limit]

    async def changed_approvals(
        self, which: ApprovalFilter, after: int, limit: int
    ) -> list[StoredApproval]:
        """See `ApprovalRecords.changed_approvals`."""
        found = [each for each in self._shown(which) if each.change > after]
        return sorted(found, key=lambda each: each.change)[:limit]

    async def approval_sizes(
        self, which: ApprovalFilter, limit: int, *, before: int = 0, after: int | None = None
    ) -> list[int]:
        """See `ApprovalRecords.approval_sizes`."""
        if after is None:
            found = await self.list_approvals(which, before=before, limit=limit)
        else:
            found = await self.changed_approvals(which, after, limit)
        return [each.row.size for each in found]

    async def last_approval_change(self, swarm: str) -> int:
        """See `ApprovalRecords.last_approval_change`."""
        return self._approval_change

    async def due_approvals(
        self,
        swarm: str,
        before: str,
        limit: int,
        *,
        owner: "Owner | None" = None,
        after: tuple[str, int] | None = None,
    ) -> list[StoredApproval]:
        """See `ApprovalRecords.due_approvals`."""
        found = [
            each
            for each in self._approvals.values()
            if each.owner.swarm == swarm
            and owner in (None, each.owner)
            and each.row.status == "open"
            and each.row.expires_at
            and (not before or each.row.expires_at <= before)
            and (after is None or (each.row.expires_at, each.number) > after)
        ]
        return sorted(found, key=lambda each: (each.row.expires_at, each.number))[:limit]

    def _shown(self, which: ApprovalFilter) -> list[StoredApproval]:
        name = f"\n{which.approver}\n" if which.approver else None
        return [
            each
            for each in self._approvals.values()
            if each.owner.swarm == which.owner.swarm
            and (
                which.everybody
                or each.owner == which.owner
                or (name is not None and name in each.row.approvers)
            )
            and which.status in ("", each.row.status)
            and which.task_id in ("", each.task_id)
        ]
