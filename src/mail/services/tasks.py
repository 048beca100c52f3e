"""Reading one owner's tasks: from the store, and from the live log while they run.

Reading starts no engine. Docs: ``docs/tasks.md``.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from sys import getsizeof
from typing import Any, Final, Protocol

from pydantic_core import from_json, to_json

from mail.clock import Clock
from mail.core.envelope import Envelope
from mail.core.events import TaskEvent
from mail.core.interswarm import PEER_ROLE
from mail.core.large import LARGE_AT_ONCE
from mail.core.schema import check_task_id
from mail.core.tasks import STEP_LIMIT, MAILTask, TaskState
from mail.core.usage import Spending
from mail.db.calls import CallRow
from mail.db.nodes import Hint
from mail.db.records import AsideRow, Owner, TaskRow
from mail.db.store import Store
from mail.errors import ProtocolError, UnknownTask
from mail.services.event_log import EventLog, Subscription

PING_INTERVAL: Final = 15.0
"""Seconds of silence on a stream after which a ``ping`` goes out."""

_PAGE_BYTES: Final = 1024 * 1024
"""Bytes in the store after which a page of a task's events ends."""

_QUEUE_BYTES: Final = 1024 * 1024
"""The most bytes of the waiting mail in a record of a task."""

_LIST_PAGE: Final = 100
_CALLS_PAGE: Final = 10
"""Of how many tasks the open calls are read at once."""
_Calls = dict[str, list[CallRow]]
"""The open calls of some tasks, by task."""
_MAIL_PAGE: Final = 8
_ASIDE_PAGE: Final = 4
_LONGEST_SUBJECT: Final = 256
_LONGEST_BODY: Final = 4096
"""Characters that are shown of a message that was set aside."""
_SHORT_CALL: Final = 4096
"""Characters of a call that is shown whole in lists."""
_SHORT_CALLS: Final = 16 * 1024
"""The same of all calls of a task together."""
_POLL_SECONDS: Final = 1.0
"""Seconds between a stream's looks into the store while no engine here has the task."""


class LiveEvents(Protocol):
    """A source of the events of an owner's running tasks."""

    @property
    def log(self) -> EventLog | None:
        """The log of the engine at work for the owner, or None when there is none."""

    @property
    def closing(self) -> bool:
        """Tell whether streams are to end because the server stops."""


def task_view(owner: Owner, row: TaskRow, calls: Iterable[CallRow] = ()) -> MAILTask:
    """Return the documented record of an owner's task, still without events and queue."""
    return MAILTask(
        task_id=row.task_id,
        task_owner=row.task_owner,
        task_contributors=list(row.task_contributors),
        via=owner.id if owner.role == PEER_ROLE else None,
        start_time=datetime.fromisoformat(row.start_time),
        status=row.state,
        remote_swarms=list(row.remote_swarms),
        breakpoints=[from_json(call.shown) for call in calls if call.is_asked],
        title=row.title,
        usage=dict(Spending.from_json(row.usage).agents),
        ended_by=STEP_LIMIT if row.finish_asked and not row.state.is_open else None,
    )


def aside_record(row: AsideRow) -> dict[str, Any]:
    """Return the record of mail that was set aside, with the beginning of its text."""
    mail, message = row.delivery, Envelope.from_json(row.delivery.payload)
    return {
        "id": mail.seq,
        "agent": mail.recipient,
        "reason": row.reason,
        "message_id": message.id,
        "msg_type": message.kind,
        "sender": dict(message.sender),
        "timestamp": message.timestamp,
        "subject": message.subject[:_LONGEST_SUBJECT],
        "body": message.body[:_LONGEST_BODY],
        "body_length": len(message.body),
    }


def _shortened(calls: Iterable[CallRow]) -> list[CallRow]:
    """Return open calls as lists show them: what is long has no arguments there."""
    left, short = _SHORT_CALLS, []
    for call in calls:
        left -= len(call.shown)
        whole = call.shown != "{}" and left >= 0
        if not whole:
            shown = {
                "arguments": "",
                "arguments_left_out": True,
                "call_id": call.call_id,
                "name": from_json(call.call).get("tool_name", ""),
                "type": "function_call",
                "id": call.call_id,
                "status": "completed",
            }
            call = call._replace(shown=to_json(shown).decode())
        short.append(call)
    return short


@dataclass(slots=True, eq=False)
class TaskReader:
    """Reads one owner's tasks and changes nothing. The store must be open.

    Whoever sends what it reads takes one of ``places`` for that long; streams do so themselves.
    """

    store: Store
    owner: Owner
    clock: Clock
    live: LiveEvents
    places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(LARGE_AT_ONCE))

    async def task(self, task_id: str, *, with_events: bool = True) -> MAILTask | None:
        """Return a task as the store has it, or None."""
        row = await self.store.load_task(self.owner, task_id)
        return None if row is None else await self._view(row, with_events=with_events)

    async def page(
        self, task_id: str, after: int, limit: int
    ) -> tuple[MAILTask, list[str], deque[TaskEvent]]:
        """Return a task with at most `_QUEUE_BYTES` of its waiting mail, and a page of its events.

        In between are its open calls as they are stored, in JSON: to read it takes long.

        The events of a task that has ended are all there, since its row is read before them; how
        many there are is read after them.

        Raises:
            UnknownTask: the owner has no such task.
        """
        row = await self.store.load_task(self.owner, task_id)
        if row is None:
            raise UnknownTask(task_id)
        events = deque(await self.store.events(self.owner, task_id, after, limit, _PAGE_BYTES))
        calls = await self._calls(row)
        found = await self._views([row], {})
        if not found:
            raise UnknownTask(task_id)
        [task] = found
        if not task.is_running and task.task_message_count:
            left, last = _QUEUE_BYTES, None
            while left > 0 and (
                mail := await self.store.waiting_mail(self.owner, task_id, last, _MAIL_PAGE)
            ):
                for last in mail:
                    left -= getsizeof(last.payload)
                    if left < 0:
                        break
                    task.task_message_queue.append(from_json(last.payload))
        return task, [call.shown for call in calls.get(task_id, ())], events

    async def overviews(
        self, limit: int | None = None, cursor: str | None = None
    ) -> AsyncGenerator[list[MAILTask], None]:
        """Yield the owner's tasks, newest first, some at a time, as `summaries` returns them.

        Args:
            limit: The most to yield; all of them when None.
            cursor: Only tasks older than the one with this id.
        """
        before = [] if cursor is None else [cursor]
        while limit is None or limit > 0:
            most = _LIST_PAGE if limit is None else min(limit, _LIST_PAGE)
            last = before[-1] if before else None
            rows = await self.store.list_tasks(self.owner, limit=most, before=last)
            if len(before) > 1 and not (rows or await self.store.load_task(self.owner, before[-1])):
                before.pop()  # it was deleted meanwhile; the one in front of it may be there
                continue
            yield await self.summaries(rows)
            if len(rows) < most:
                return
            limit = None if limit is None else limit - most
            before = [row.task_id for row in rows]

    async def summaries(self, rows: Sequence[TaskRow]) -> list[MAILTask]:
        """Return some of the owner's tasks without events, waiting mail and long arguments."""
        waiting = [row.task_id for row in rows if row.state.is_open]
        calls: _Calls = {}
        for at in range(0, len(waiting), _CALLS_PAGE):
            some = waiting[at : at + _CALLS_PAGE]
            found = await self.store.short_calls(self.owner, some, _SHORT_CALL)
            calls |= {task_id: _shortened(open_calls) for task_id, open_calls in found.items()}
        return await self._views(rows, calls)

    async def events_within(self, task: MAILTask, most: int) -> deque[TaskEvent] | None:
        """Return all events of a task; None if they take more than ``most`` bytes."""
        found = deque(await self.store.events(self.owner, task.task_id, max_bytes=most))
        if sum(event.size for event in found) > most or len(found) < task.event_count:
            return None
        task.event_count = len(found)
        return found

    async def _calls(self, row: TaskRow) -> _Calls:
        if not row.state.is_open:
            return {}
        return {row.task_id: await self.store.open_calls(self.owner, row.task_id)}

    async def _views(self, rows: Sequence[TaskRow], calls: _Calls) -> list[MAILTask]:
        """Return tasks without events and mail, and without those that are gone by now."""
        counts = await self.store.task_counts(self.owner, [row.task_id for row in rows])
        asked = await self._asked_participants([row.task_id for row in rows if row.state.is_open])
        views = []
        for row in rows:
            if row.task_id not in counts:
                continue
            view = task_view(self.owner, row, calls.get(row.task_id, ()))
            if row.remote_swarms:  # the agents there whose answers are expected
                outbox = await self.store.task_outbox(self.owner, row.task_id)
                view.waiting_for = list(
                    dict.fromkeys(
                        from_json(mail.wrapper)["payload"]["recipient"]["address"]
                        for mail in outbox
                        if mail.kind == "request" and mail.state != "dead"
                    )
                )
            view.waiting_for += asked.get(row.task_id, ())
            view.event_count, view.task_message_count = counts[row.task_id]
            views.append(view)
        return views

    async def _asked_participants(self, task_ids: Sequence[str]) -> dict[str, dict[str, None]]:
        """Return the participants whose answers the agents of some tasks wait for."""
        whose = f"{self.owner.role}:{self.owner.id}"
        asks = await self.store.open_asks(self.owner.swarm, whose, task_ids) if task_ids else []
        asked: dict[str, dict[str, None]] = {}
        for each in asks:
            if f"agent:{each.asker}" != whose:
                asked.setdefault(each.task_id, {})[each.asked] = None
        return asked

    async def mail_aside(
        self, task_id: str, after: int, limit: int
    ) -> tuple[list[dict[str, Any]], int | None]:
        """Return a page of a task's mail that was set aside, as records, and where the next begins.

        Args:
            task_id: The task.
            after: Only mail with a greater number.
            limit: At most so many.
        """
        records: list[dict[str, Any]] = []
        last = after
        while len(records) <= limit:
            rows = await self.store.mail_aside(self.owner, task_id, last, _ASIDE_PAGE)
            records += map(aside_record, rows)
            if len(rows) < _ASIDE_PAGE:
                break
            last = rows[-1].delivery.seq
        shown = records[:limit]
        return shown, shown[-1]["id"] if len(records) > limit else None

    async def tasks(
        self, limit: int | None, cursor: str | None, *, with_events: bool = True
    ) -> list[MAILTask]:
        """Return the owner's tasks as the store has them, newest first.

        Args:
            limit: The most to return; all of them when None.
            cursor: Only tasks older than the one with this id.
            with_events: Whether to read their events, too.

        Raises:
            ProtocolError: the limit is not a whole number from 0, or the cursor is not an id.
        """
        if limit is not None and (type(limit) is not int or limit < 0):
            raise ProtocolError(f"limit must be a whole number from 0, or None; got {limit!r}")
        if cursor is not None:
            check_task_id(cursor)
        rows = await self.store.list_tasks(self.owner, limit=limit, before=cursor)
        found = [await self._view(row, with_events=with_events) for row in rows]
        return [task for task in found if task is not None]

    async def _view(self, row: TaskRow, *, with_events: bool) -> MAILTask | None:
        store, owner, task_id = self.store, self.owner, row.task_id
        found = await self._views([row], await self._calls(row))
        for view in found:
            if with_events:
                view.events = await store.events(owner, task_id)
            if not view.is_running:
                waiting = await store.waiting_mail(owner, task_id)
                view.task_message_queue = [from_json(delivery.payload) for delivery in waiting]
        return found[0] if found else None

    async def replay(
        self, task_id: str, after: int, ping_interval: float
    ) -> AsyncGenerator[TaskEvent, None]:
        """Yield a task's events after number ``after``, and follow it while it runs.

        Ends when the log is exhausted and the task is not running, or with ``server_drain``.
        While it is silent, a ``ping`` is yielded every ``ping_interval`` seconds.

        Raises:
            UnknownTask: the owner has no such task.
        """
        with self.store.hints(f"events {self.owner} {task_id}") as hint:
            follower = _Follower(self.live, self.places, task_id, after, hint)
            heard = time.monotonic()
            try:
                while True:
                    events = await self._newest(follower, task_id)
                    if events is None:
                        return
                    if events:
                        while events:
                            yield events.popleft()
                        heard = time.monotonic()
                        continue
                    if follower.closed:
                        yield self._note(task_id, "server_drain")
                        return
                    if not await follower.wait(
                        heard + ping_interval - time.monotonic(), self.store
                    ):
                        heard = time.monotonic()
                        yield self._note(task_id, "ping")
            finally:
                follower.leave()

    async def _newest(self, follower: "_Follower", task_id: str) -> deque[TaskEvent] | None:
        """Return what can be read of a task now; None when that was all."""
        events = await follower.take(self.store, self.owner)
        if events:
            return events
        row = await self.store.load_task(self.owner, task_id)
        if row is None:
            raise UnknownTask(task_id)
        if row.state is not TaskState.RUNNING:
            # The end may be stored and not yet published; the store has it for certain.
            events = await follower.catch_up(self.store, self.owner)
            if not events and not follower.closed:
                return None
        return events

    def _note(self, task_id: str, kind: str) -> TaskEvent:
        return TaskEvent(task_id=task_id, kind=kind, timestamp=self.clock.now())


class _Follower:
    """A place in a task's log that moves with the engine, which may come and go meanwhile."""

    def __init__(
        self, live: LiveEvents, places: asyncio.Semaphore, task_id: str, after: int, hint: Hint
    ) -> None:
        self._live = live
        self._hint = hint
        self._places = places
        self._task_id = task_id
        self._log = live.log
        self._place = self._enter(after)

    def _enter(self, after: int) -> Subscription:
        if self._log is not None:
            return self._log.subscribe(self._task_id, after=after, places=self._places)
        return Subscription(self._task_id, 0, self._places, after=after, deltas=False)

    @property
    def closed(self) -> bool:
        """Tell whether nothing more is to come because the server stops."""
        return self._place.closed if self._log is not None else self._live.closing

    async def take(self, store: Store, owner: Owner) -> deque[TaskEvent]:
        """Return what can be read now."""
        if self._live.log is not self._log:
            self.leave()
            self._log = self._live.log
            self._place = self._enter(self._place.cursor)
        elif self._log is None:
            self._place.lag()
        return await self._place.take(store, owner)

    async def catch_up(self, store: Store, owner: Owner) -> deque[TaskEvent]:
        """Return what the store has beyond what was read."""
        return await self._place.catch_up(store, owner)

    async def wait(self, seconds: float, store: Store) -> bool:
        """Wait until there may be something to read; False when the time ran out."""
        often = _POLL_SECONDS if self._log is None else seconds
        often = store.follow_seconds if store.shared else often
        pause = max(0.0, min(seconds, often))
        if self._log is None:
            await self._hint.wait(pause)
            return seconds > often
        if await self._place.wait(pause):
            return True
        self._place.lag()  # another process may have stored something
        return seconds > often

    def leave(self) -> None:
        """Stop listening; doing so twice is fine."""
        if self._log is not None:
            self._log.unsubscribe(self._place)
        self._place.leave()
