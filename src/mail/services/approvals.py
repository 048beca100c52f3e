"""Approvals as callers see them: who sees which, and their records.

Docs: ``docs/breakpoints.md``.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from pydantic_core import from_json

from mail.clock import Clock
from mail.core.approvals import ALLOWS, Answer, Answerer, read_answer
from mail.core.events import TaskEvent
from mail.db.calls import CallFilter, CallVerbs, StoredCall
from mail.db.records import Owner
from mail.errors import (
    ApprovalClosed,
    Forbidden,
    MAILError,
    ProtocolError,
    StoreError,
    UnknownApproval,
    UnknownTask,
)
from mail.services.tasks import PING_INTERVAL

_AT_ONCE: Final = 8  # calls may have megabytes
_EVENT_BYTES: Final = 64 * 1024
"""Bytes after which no further call is read at once to be told one by one."""
_PAGE_BYTES: Final = 1024 * 1024
"""Bytes after which a page ends."""
_POLL_SECONDS: Final = 0.5
_LOOK_SECONDS: Final = 30.0
_AGAIN_SECONDS: Final = 2.0
_LONGEST_SECONDS: Final = 600.0
_NEVER: Final = "9999"  # after any deadline
_LEAST_SECONDS: Final = 0.02

_log = logging.getLogger(__name__)

Decide = Callable[[StoredCall, Answer, Answerer], Awaitable[None]]
"""Stores an answer and acts on it."""


def approval_record(found: StoredCall) -> dict[str, Any]:
    """Return the record of an approval."""
    row, config, answer = found.row, from_json(found.row.config), None
    if row.decision is not None:
        given = from_json(row.decision)
        args = row.answer if given["type"] == "response" else given.get("args")
        answer = {"type": given["type"], "args": args}
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
        "action_request": row.request,
        "config": {name: bool(config[name]) for name in ALLOWS.values()},
        "approvers": row.approvers.split(),
        "description": row.description,
        "answer": answer,
        "answered_by": row.decided_by or None,
        "answered_at": row.decided_at or None,
    }


def change_event(found: StoredCall) -> TaskEvent:
    """Return the event of an approval that was opened or closed, numbered by its change."""
    row = found.row
    opened = row.status == "open"
    action = row.request["action"]
    text = f"agent {row.agent} asks about a call of {action}" if opened else row.status
    return TaskEvent(
        task_id=found.task_id,
        kind="approval_opened" if opened else "approval_closed",
        timestamp=row.created_at if opened else row.decided_at,
        seq=found.change,
        description=text,
        extra=approval_record(found),
        size=row.size,
    )


@dataclass(slots=True, eq=False, kw_only=True)
class Deadlines:
    """Ends calls that nobody answers in time. A timer is only a hint: the store has the deadlines.

    One that cannot be ended keeps no other one waiting: it is tried again, less and less often.

    Attributes:
        store: Their store.
        act: Ends one whose time is up.
        swarm: Returns the name of the swarm.
        clock: Tells the time.
        owner: Only calls of this owner's tasks; None for all.
        wake: Set when there is a new deadline.
    """

    store: CallVerbs
    act: Callable[[StoredCall], Awaitable[object]]
    swarm: Callable[[], str]
    clock: Clock
    owner: Owner | None = None
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    _put_off: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By ids: when it is tried again (monotonic, in seconds), and how long it waits then."""

    async def keep(self, *, for_ever: bool = True) -> None:
        """End calls as their time comes; return when there is no deadline, unless for ever."""
        while True:
            self.wake.clear()
            pause = _LOOK_SECONDS
            try:
                coming = await self._end_due()
                if coming is None and not (for_ever or self.wake.is_set()):
                    return
                pause = max(_LEAST_SECONDS, min(pause, pause if coming is None else coming))
            except StoreError as error:
                _log.warning("deadlines of approvals cannot be read: %s", error)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self.wake.wait()

    async def _end_due(self) -> float | None:
        """End those whose deadline has come; return the seconds until the next, or None."""
        known, self._put_off = self._put_off, {}
        which = CallFilter(self.owner or Owner(self.swarm(), "", ""), everybody=self.owner is None)
        now, after, more = self.clock.now(), ("", 0), True
        coming: list[float] = []
        while more and not coming:
            due = which._replace(due=(*after, _NEVER))
            found, more = await self.store.held_calls(due, _AT_ONCE, _EVENT_BYTES)
            for each in found:
                if each.row.expires_at > now:
                    left = datetime.fromisoformat(each.row.expires_at) - datetime.fromisoformat(now)
                    coming.append(left.total_seconds())
                    break
                name = each.row.approval_id
                at, wait = known.get(name, (0.0, _AGAIN_SECONDS))
                if at > time.monotonic():
                    self._put_off[name] = at, wait
                elif not await self._ended(each):
                    longer = min(2 * wait, _LONGEST_SECONDS)
                    self._put_off[name] = time.monotonic() + wait, longer
                after = each.row.expires_at, each.number
        coming += [at - time.monotonic() for at, _ in self._put_off.values()]
        return min(coming, default=None)

    async def _ended(self, found: StoredCall) -> bool:
        """End one; False if it was not ended, so that it is looked at again later.

        One that somebody has closed meanwhile is not due then, and is forgotten.
        """
        text = "an approval whose time is up could not be ended"
        known = {"approval_id": found.row.approval_id}
        try:
            await self.act(found)
        except (ApprovalClosed, UnknownApproval, UnknownTask):
            return False
        except MAILError as error:
            _log.warning(text, extra=known | {"reason": str(error)})
            return False
        except Exception:  # noqa: BLE001 - the others have deadlines, too
            _log.exception(text, extra=known)
            return False
        return True


@dataclass(slots=True, eq=False)
class ApprovalDesk:
    """The approvals of one swarm, for callers of a server.

    Administrators see those of all tasks, everybody else those of their own tasks and those that
    name them. Whom an approval does not concern is told that there is none.

    Attributes:
        store: Their store.
        swarm: The swarm.
        decide: Acts on an answer.
    """

    store: CallVerbs
    swarm: str
    decide: Decide

    async def page(
        self, who: Answerer, status: str, task_id: str, limit: int, cursor: str
    ) -> tuple[Iterator[dict[str, Any]], str | None]:
        """Return the records of a page, newest first, and where the next one begins, or None.

        A page ends early after `_PAGE_BYTES`; it has one record at least if there are any. Each is
        made when it is asked for, and let go then.

        Args:
            who: For whom.
            status: Only with this status; ``all`` for any.
            task_id: Only of tasks with this id, or no text.
            limit: The most approvals.
            cursor: The cursor from the page before, or no text.

        Raises:
            ProtocolError: the cursor is none.
        """
        if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= 18 if cursor else True):
            raise ProtocolError("cursor must be the 'next_cursor' of a page")
        wanted = "" if status == "all" else status
        which = self._seen_by(who, status=wanted, task_id=task_id, before=int(cursor or 0))
        found, more = await self.store.held_calls(which, limit, _PAGE_BYTES)
        following = str(found[-1].number) if more else None
        left = deque(found)
        return (approval_record(left.popleft()) for _ in range(len(left))), following

    async def record(self, who: Answerer, approval_id: str) -> dict[str, Any]:
        """Return the record of an approval.

        Raises:
            UnknownApproval: there is none that concerns the caller.
        """
        return approval_record(await self._find(who, approval_id))

    async def _find(self, who: Answerer, approval_id: str) -> StoredCall:
        page, _ = await self.store.held_calls(self._seen_by(who, approval_id=approval_id), 1)
        if not page:
            raise UnknownApproval
        return page[0]

    async def events(
        self,
        who: Answerer,
        after: int | None,
        closing: Callable[[], bool],
        places: asyncio.Semaphore,
    ) -> AsyncGenerator[TaskEvent, None]:
        """Yield what is opened and closed, from what is open now, or after a change.

        Args:
            who: For whom.
            after: The number of the last event that is known; None for none.
            closing: Tells whether the server stops; the last event is ``server_drain`` then.
            places: One of them is held while approvals are read and sent.
        """
        last, quiet = after or 0, 0.0
        more = after is None
        if more:
            last = await self.store.last_call_change()
        # What is open now first; what changes meanwhile comes behind it.
        which = self._seen_by(who, status="open" if more else "", after=0 if more else last)
        while not closing():
            async with places:
                page, more = await self.store.held_calls(which, _AT_ONCE, _EVENT_BYTES)
                found = deque(page)
                del page
                more = more and (not which.status or found[-1].change <= last)
                while found and not (which.status and found[0].change > last):
                    which, quiet = which._replace(after=found[0].change), -_POLL_SECONDS
                    yield change_event(found.popleft())
            if which.status and not more:
                which = which._replace(status="", after=last)
            elif not more:
                await asyncio.sleep(_POLL_SECONDS)
                quiet += _POLL_SECONDS
                if quiet >= PING_INTERVAL:
                    quiet = 0.0
                    yield self._note("ping")
        yield self._note("server_drain")

    def _note(self, kind: str) -> TaskEvent:
        return TaskEvent(task_id="", kind=kind, timestamp=datetime.now(UTC).isoformat())

    async def answer(self, who: Answerer, approval_id: str, given: object) -> tuple[Owner, str]:
        """Answer a call, and return whose task it belongs to, and which.

        Args:
            who: The person who answers.
            approval_id: The approval.
            given: The answer.

        Raises:
            UnknownApproval: there is none that concerns the caller.
            Forbidden: others must answer it.
            ApprovalError, ApprovalClosed: see `mail.errors`.
        """
        found = await self._brief(who, approval_id)
        answer = read_answer(given)
        by = who._replace(owner=found.owner == self._owner(who))
        if not by.may(found.row.approvers.split("\n")):
            raise Forbidden("this call is approved by others: you are not one of its approvers")
        await self.decide(found, answer, by)
        return found.owner, found.task_id

    async def place(self, who: Answerer, approval_id: str) -> tuple[Owner, str]:
        """Return whose task a call belongs to, and which; see `answer`."""
        found = await self._brief(who, approval_id)
        return found.owner, found.task_id

    async def _brief(self, who: Answerer, approval_id: str) -> StoredCall:
        """Return an approval without what may be large: nothing holds that meanwhile."""
        found = await self._find(who, approval_id)
        small = found.row._replace(shown="", description="", decision=None, answer=None)
        return found._replace(row=small)

    def _owner(self, who: Answerer) -> Owner:
        return Owner(self.swarm, who.role, who.id)

    def _seen_by(self, who: Answerer, **wanted: Any) -> CallFilter:
        return CallFilter(self._owner(who), str(who), who.role == "admin", **wanted)
