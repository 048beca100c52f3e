"""Approvals as callers see them: who sees which, and their records.

Docs: ``docs/approvals.md``.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import from_json

from mail.core.approvals import ALLOWS, Answer, Answerer, read_answer
from mail.db.approvals import ApprovalFilter, ApprovalRecords, StoredApproval
from mail.db.base import Owner
from mail.errors import Forbidden, ProtocolError, UnknownApproval

__all__ = ["ALL_STATUSES", "ApprovalDesk", "Decide", "approval_record"]

ALL_STATUSES: Final = (
    "open",
    "accepted",
    "edited",
    "ignored",
    "responded",
    "cancelled",
    "expired",
)

Decide = Callable[[StoredApproval, Answer, Answerer], Awaitable[None]]
"""Stores an answer and acts on it."""


def approval_record(found: StoredApproval) -> dict[str, Any]:
    """Return the record of an approval."""
    row, config = found.row, from_json(found.row.config)
    return {
        "approval_id": row.approval_id,
        "kind": row.kind,
        "task_id": found.task_id,
        "agent": row.agent,
        "call_id": row.call_id,
        "owner": {"role": found.owner.role, "id": found.owner.id},
        "status": row.status,
        "created_at": row.created_at,
        "expires_at": row.expires_at or None,
        "action_request": from_json(row.request),
        "config": {name: bool(config[name]) for name in ALLOWS.values()},
        "description": row.description,
        "answer": None if row.answer is None else from_json(row.answer),
        "answered_by": row.answered_by or None,
        "answered_at": row.answered_at or None,
    }


@dataclass(slots=True, eq=False)
class ApprovalDesk:
    """The approvals of one swarm, for callers of a server.

    Administrators see those of all tasks, everybody else those of their own tasks and those that
    name them. Whom an approval does not concern is told that there is none.

    Attributes:
        store: Where they are.
        swarm: The swarm.
        decide: Acts on an answer.
    """

    store: ApprovalRecords
    swarm: str
    decide: Decide

    async def page(
        self, who: Answerer, status: str, task_id: str, limit: int, cursor: str
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Return a page of approvals, newest first, and where the next one begins.

        Raises:
            ProtocolError: the cursor is none.
        """
        if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= 18 if cursor else True):
            raise ProtocolError("cursor must be the 'next_cursor' of a page")
        which = self._seen_by(who, "" if status == "all" else status, task_id)
        found = await self.store.list_approvals(which, before=int(cursor or 0), limit=limit + 1)
        more = str(found[limit - 1].number) if len(found) > limit else None
        return [approval_record(each) for each in found[:limit]], more

    async def get(self, who: Answerer, approval_id: str) -> StoredApproval:
        """Return an approval.

        Raises:
            UnknownApproval: there is none that concerns the caller.
        """
        found = await self.store.find_approval(self.swarm, approval_id)
        if found is None or not self._concerns(found, who):
            raise UnknownApproval
        return found

    def record(self, found: StoredApproval) -> dict[str, Any]:
        """Return the record of an approval."""
        return approval_record(found)

    async def answer(self, who: Answerer, approval_id: str, given: object) -> dict[str, Any]:
        """Answer a call.

        Raises:
            UnknownApproval: there is none that concerns the caller.
            Forbidden: others must answer it.
            ApprovalError, ApprovalClosed: see `mail.errors`.
        """
        found = await self.get(who, approval_id)
        answer = read_answer(given)
        by = who._replace(owner=found.owner == self._owner(who))
        if not by.may(found.row.approvers.split("\n")):
            raise Forbidden("this call is approved by others: you are not one of its approvers")
        await self.decide(found, answer, by)
        return approval_record(await self.get(who, approval_id))

    def _owner(self, who: Answerer) -> Owner:
        return Owner(self.swarm, who.role, who.id)

    def _seen_by(self, who: Answerer, status: str = "", task_id: str = "") -> ApprovalFilter:
        return ApprovalFilter(self._owner(who), str(who), who.role == "admin", status, task_id)

    def _concerns(self, found: StoredApproval, who: Answerer) -> bool:
        named = f"\n{who}\n" in found.row.approvers
        return who.role == "admin" or found.owner == self._owner(who) or named
