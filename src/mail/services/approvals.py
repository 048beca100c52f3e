"""Approvals as callers see them: who sees which, and their records.

Docs: ``docs/approvals.md``.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from pydantic_core import from_json

from mail.clock import Clock
from mail.core.approvals import ALLOWS, Answer, Answerer, read_answer
from mail.core.events import TaskEvent
from mail.db.calls import CallFilter, CallRow, CallVerbs, StoredCall
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
from mail.services.event_log import EventPages, Room
from mail.services.tasks import PING_INTERVAL

ALL_STATUSES: Final = (
    "open",
    "accepted",
    "edited",
    "ignored",
    "responded",
    "cancelled",
    "expired",
)

_AT_ONCE: Final = 8  # calls may have megabytes
_PAGE_BYTES: Final = 1024 * 1024
"""Bytes after which a page ends."""
_POLL_SECONDS: Final = 0.5
_LOOK_SECONDS: Final = 30.0
_AGAIN_SECONDS: Final = 2.0
_LONGEST_SECONDS: Final = 600.0
_LAST: Final = 2**62  # more than the number of any approval
_LEAST_SECONDS: Final = 0.02

_log = logging.getLogger(__name__)

Decide = Callable[[StoredCall, Answer, Answerer], Awaitable[None]]
"""Stores an answer and acts on it."""


def approval_record(found: StoredCall) -> dict[str, Any]:
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
        "action_request": row.request,
        "config": {name: bool(config[name]) for name in ALLOWS.values()},
        "approvers": row.approvers.split(),
        "description": row.description,
        "answer": _answer(row),
        "answered_by": row.decided_by or None,
        "answered_at": row.decided_at or None,
    }


def _answer(row: CallRow) -> dict[str, Any] | None:
    if row.decision is None:
        return None
    given = from_json(row.decision)
    args = row.answer if given["type"] == "response" else given.get("args")
    return {"type": given["type"], "args": args}


def _memory(found: StoredCall) -> int:
    return found.row.memory


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


async def end_in_time(
    store: CallVerbs,
    act: Callable[[StoredCall], Awaitable[object]],
    swarm: Callable[[], str],
    clock: Clock,
    *,
    owner: Owner | None = None,
    wake: asyncio.Event | None = None,
    for_ever: bool = True,
) -> None:
    """End calls that nobody answers in time. A timer is only a hint: the store has the deadlines.

    Args:
        store: Where they are.
        act: Ends one whose time is up.
        swarm: Returns the name of the swarm.
        clock: Tells the time.
        owner: Only calls of this owner's tasks.
        wake: Set when there is a new deadline.
        for_ever: Go on when there are no more deadlines; else return then.
    """
    deadlines = _Deadlines(store, act, swarm, owner)
    wake = wake or asyncio.Event()
    while True:
        wake.clear()
        pause = _LOOK_SECONDS
        try:
            now = clock.now()
            again = await deadlines.end_due(now)
            coming = await store.due_approvals(swarm(), "", 1, owner=owner, after=(now, _LAST))
            if not (coming or deadlines.put_off or for_ever or wake.is_set()):
                return
            pause = min(pause, again)
            if coming:
                left = _moment(coming[0].row.expires_at) - _moment(clock.now())
                pause = min(pause, max(_LEAST_SECONDS, left.total_seconds()))
        except StoreError as error:
            _log.warning("deadlines of approvals cannot be read: %s", error)
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await wake.wait()


class _Deadlines:
    """Ends what nobody answers in time; one that cannot be ended keeps no other one waiting.

    Attributes:
        put_off: By its id, when one that could not be ended is tried again (monotonic, in
            seconds), and how long it waits then.
    """

    def __init__(
        self,
        store: CallVerbs,
        act: Callable[[StoredCall], Awaitable[object]],
        swarm: Callable[[], str],
        owner: Owner | None,
    ) -> None:
        self.put_off: dict[str, tuple[float, float]] = {}
        self._store, self._act = store, act
        self._swarm, self._owner = swarm, owner

    async def end_due(self, now: str) -> float:
        """End those whose deadline has come; return after how many seconds to look again."""
        known, self.put_off = self.put_off, {}
        after: tuple[str, int] | None = None
        while found := await self._store.due_approvals(
            self._swarm(), now, _AT_ONCE, owner=self._owner, after=after
        ):
            for each in found:
                name = each.row.approval_id
                at, wait = known.get(name, (0.0, _AGAIN_SECONDS))
                if at > time.monotonic():
                    self.put_off[name] = at, wait
                elif not await self._ended(each):
                    longer = min(2 * wait, _LONGEST_SECONDS)
                    self.put_off[name] = time.monotonic() + wait, longer
            after = found[-1].row.expires_at, found[-1].number
        soonest = min((at for at, _ in self.put_off.values()), default=float("inf"))
        return max(_LEAST_SECONDS, soonest - time.monotonic())

    async def _ended(self, found: StoredCall) -> bool:
        """End one; False if it was not ended, so that it is looked at again later.

        One that somebody has closed meanwhile is not due then, and is forgotten.
        """
        known = {"approval_id": found.row.approval_id}
        try:
            await self._act(found)
        except (ApprovalClosed, UnknownApproval, UnknownTask):
            return False
        except MAILError as error:
            told = known | {"reason": str(error)}
            _log.warning("an approval whose time is up could not be ended", extra=told)
            return False
        except Exception:  # noqa: BLE001 - the others have deadlines, too
            _log.exception("an approval whose time is up could not be ended", extra=known)
            return False
        return True


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


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

    store: CallVerbs
    swarm: str
    decide: Decide

    def page(
        self, who: Answerer, status: str, task_id: str, limit: int, cursor: str, room: Room
    ) -> "ApprovalPage":
        """Return a page of approvals, newest first, which is still to be read.

        Args:
            who: For whom.
            status: Only with this status; ``all`` for any.
            task_id: Only of tasks with this id, or no text.
            limit: The most approvals.
            cursor: The `ApprovalPage.next_cursor` of the page before, or no text.
            room: Where large approvals count until the next one is asked for.

        Raises:
            ProtocolError: the cursor is none.
        """
        if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= 18 if cursor else True):
            raise ProtocolError("cursor must be the 'next_cursor' of a page")
        which = self._seen_by(who, "" if status == "all" else status, task_id)
        return ApprovalPage(self.store, which, limit, room, int(cursor or 0))

    async def events(
        self, who: Answerer, after: int | None, closing: Callable[[], bool], room: Room
    ) -> AsyncGenerator[TaskEvent, None]:
        """Yield what is opened and closed, from what is open now, or after a change.

        Args:
            who: For whom.
            after: The number of the last event that is known; None for none.
            closing: Tells whether the server stops; the last event is ``server_drain`` then.
            room: Where large approvals count until the next one is asked for.
        """
        which, last = self._seen_by(who), after or 0
        pages = EventPages(room)
        try:
            if after is None:
                last, at = await self.store.last_approval_change(self.swarm), 0
                opened = which._replace(status="open")
                while found := await self._changed(pages, opened, at):
                    at = found[-1].change
                    while found:
                        if found[0].change > last:
                            break
                        yield change_event(found.popleft())
                    if found:
                        break
            quiet = 0.0
            while not closing():
                found = await self._changed(pages, which, last)
                while found:
                    last, quiet = found[0].change, -_POLL_SECONDS
                    yield change_event(found.popleft())
                if quiet < 0:
                    quiet = 0.0
                    continue
                await asyncio.sleep(_POLL_SECONDS)
                quiet += _POLL_SECONDS
                if quiet >= PING_INTERVAL:
                    quiet = 0.0
                    yield self._note("ping")
        finally:
            pages.leave()
        yield self._note("server_drain")

    async def _changed(self, pages: EventPages, which: CallFilter, after: int) -> deque[StoredCall]:
        most = 1 if pages.is_large else _AT_ONCE  # the next may be as large: look at no others
        sizes = await self.store.approval_sizes(which, most, after=after)
        read = partial(self.store.changed_approvals, which, after)
        return await pages.read_fitting(sizes, read, _memory)

    def _note(self, kind: str) -> TaskEvent:
        return TaskEvent(task_id="", kind=kind, timestamp=datetime.now(UTC).isoformat())

    async def get(self, who: Answerer, approval_id: str) -> StoredCall:
        """Return an approval.

        Raises:
            UnknownApproval: there is none that concerns the caller.
        """
        found = await self.store.find_approval(self.swarm, approval_id)
        if found is None or not self._concerns(found, who):
            raise UnknownApproval
        return found

    async def whole(
        self, who: Answerer, approval_id: str, room: Room
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the one record of an approval, which counts in the room until it was sent.

        Raises:
            UnknownApproval: see `get`.
        """
        pages = EventPages(room)
        try:
            read = partial(self.get, who, approval_id)
            yield approval_record(await pages.read_whole(read, _memory))
        finally:
            pages.leave()

    async def answer(
        self, who: Answerer, approval_id: str, given: object, room: Room
    ) -> tuple[Owner, str]:
        """Answer a call, and return whose task it belongs to, and which.

        Args:
            who: Who answers.
            approval_id: The approval.
            given: The answer.
            room: The approval is read when no other is read for this room.

        Raises:
            UnknownApproval: there is none that concerns the caller.
            Forbidden: others must answer it.
            ApprovalError, ApprovalClosed: see `mail.errors`.
        """
        found = await self._brief(who, approval_id, room)
        answer = read_answer(given)
        by = who._replace(owner=found.owner == self._owner(who))
        if not by.may(found.row.approvers.split("\n")):
            raise Forbidden("this call is approved by others: you are not one of its approvers")
        await self.decide(found, answer, by)
        return found.owner, found.task_id

    async def place(self, who: Answerer, approval_id: str, room: Room) -> tuple[Owner, str]:
        """Return whose task a call belongs to, and which; see `answer`."""
        found = await self._brief(who, approval_id, room)
        return found.owner, found.task_id

    async def _brief(self, who: Answerer, approval_id: str, room: Room) -> StoredCall:
        """Return an approval without what may be large: nothing holds that meanwhile."""
        async with room.reading:
            found = await self.get(who, approval_id)
        return found._replace(
            row=found.row._replace(shown="", description="", decision=None, answer=None)
        )

    def _owner(self, who: Answerer) -> Owner:
        return Owner(self.swarm, who.role, who.id)

    def _seen_by(self, who: Answerer, status: str = "", task_id: str = "") -> CallFilter:
        return CallFilter(self._owner(who), str(who), who.role == "admin", status, task_id)

    def _concerns(self, found: StoredCall, who: Answerer) -> bool:
        named = f"\n{who}\n" in found.row.approvers
        return who.role == "admin" or found.owner == self._owner(who) or named


@dataclass(slots=True, eq=False)
class ApprovalPage:
    """A page of approvals, newest first; one or a few small ones are in memory at a time.

    Attributes:
        store: Where they are.
        which: Which ones.
        limit: The most.
        room: Where large ones count until the next one is asked for.
        last: The number of the last one that was read; 0 before the first.
        more: Whether there are more; known when all were read.
    """

    store: CallVerbs
    which: CallFilter
    limit: int
    room: Room
    last: int
    more: bool = False

    async def records(self) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the records. The page ends early after `_PAGE_BYTES`; it has one at least."""
        pages, left, size = EventPages(self.room), self.limit, 0
        try:
            while left and size < _PAGE_BYTES:
                # They may be large: of others than the next one, not even the size is looked at.
                most = _AT_ONCE if size and not pages.is_large else 1
                found = await self._next(pages, min(left, most))
                while found:
                    left -= 1
                    size += found[0].row.size
                    self.last = found[0].number
                    yield approval_record(found.popleft())
                if not self.more:
                    return
        finally:
            pages.leave()

    @property
    def next_cursor(self) -> str | None:
        """Where the next page begins, or None."""
        return str(self.last) if self.more else None

    async def _next(self, pages: EventPages, most: int) -> deque[StoredCall]:
        sizes = await self.store.approval_sizes(self.which, most + 1, before=self.last)

        async def read(number: int) -> list[StoredCall]:
            self.more = number < len(sizes)
            return await self.store.list_approvals(self.which, before=self.last, limit=number)

        self.more = False
        return await pages.read_fitting(sizes[:most], read, _memory)
