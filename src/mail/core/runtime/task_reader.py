"""Looking at tasks: as the store has them, as they happen, and at a glance from memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic_core import from_json

from mail.core.events import TaskEvent
from mail.core.runtime.active_tasks import task_view
from mail.core.schema import check_task_id
from mail.core.tasks import MAILTask, TaskState
from mail.errors import ProtocolError, UnknownTask

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncGenerator

    from mail.core.runtime.context import RuntimeContext
    from mail.core.runtime.event_log import Subscription
    from mail.core.runtime.histories import Entry
    from mail.core.runtime.mailbox import QueuedMessage
    from mail.core.runtime.waiters import RunResult
    from mail.core.wire import MAILMessage
    from mail.db.base import TaskRow

__all__ = ["RuntimeViews", "TaskReader"]


@dataclass(slots=True, eq=False)
class TaskReader:
    """Reads one owner's tasks and changes nothing."""

    context: RuntimeContext

    async def task(self, task_id: str, *, with_events: bool) -> MAILTask | None:
        """Return a task as the store has it, or None."""
        row = await self.context.store.load_task(self.context.owner, task_id)
        return None if row is None else await self._view(row, with_events=with_events)

    async def tasks(
        self, limit: int | None, cursor: str | None, *, with_events: bool
    ) -> list[MAILTask]:
        """Return the owner's tasks as the store has them, newest first.

        Raises:
            ProtocolError: the limit is no whole number from 0, or the cursor no text.
        """
        if limit is not None and (type(limit) is not int or limit < 0):
            raise ProtocolError(
                f"limit must be a whole number of at least 0, or None; got {limit!r}"
            )
        if cursor is not None:
            check_task_id(cursor)
        rows = await self.context.store.list_tasks(self.context.owner, limit=limit, before=cursor)
        return [await self._view(row, with_events=with_events) for row in rows]

    async def _view(self, row: TaskRow, *, with_events: bool) -> MAILTask:
        store, owner = self.context.store, self.context.owner
        view = task_view(row, await store.calls(owner, row.task_id))
        if with_events:
            view.events = await store.events(owner, row.task_id)
        if row.state is not TaskState.RUNNING:
            waiting = await store.waiting_mail(owner, row.task_id)
            view.task_message_queue = [from_json(delivery.payload) for delivery in waiting]
        return view

    async def replay(
        self, task_id: str, after: int, ping_interval: float
    ) -> AsyncGenerator[TaskEvent, None]:
        """Yield a task's events after number ``after``; follow it while it runs.

        Ends when the log is exhausted and the task is not running, or with ``server_drain``.

        Raises:
            UnknownTask: the owner has no such task.
        """
        subscription = self.context.events.subscribe(task_id, after=after)
        try:
            while True:
                events = await subscription.take(self.context.store, self.context.owner)
                if not events and not await self._is_running(task_id):
                    # The end may be stored and not yet published; the store has it for certain.
                    events = await subscription.catch_up(self.context.store, self.context.owner)
                    if not events and not subscription.closed:
                        return
                for event in events:
                    yield event
                if events:
                    continue
                note = await self._quiet_note(subscription, ping_interval)
                if note is not None:
                    yield note
                    if note.kind == "server_drain":
                        return
        finally:
            self.context.events.unsubscribe(subscription)

    async def _is_running(self, task_id: str) -> bool:
        row = await self.context.store.load_task(self.context.owner, task_id)
        if row is None:
            raise UnknownTask(task_id)
        return row.state is TaskState.RUNNING

    async def _quiet_note(
        self, subscription: Subscription, ping_interval: float
    ) -> TaskEvent | None:
        """Wait for news; tell of a drain at once, and of a long silence with a ping."""
        kind = "server_drain"
        if not subscription.closed:
            if await subscription.wait(ping_interval):
                return None
            kind = "ping"
        return TaskEvent(
            task_id=subscription.task_id, kind=kind, timestamp=self.context.clock.now()
        )

    def recent_task(self, task_id: str) -> MAILTask | None:
        """Return a live or recently finished task, or None."""
        row = self.context.active_tasks.row(task_id)
        if row is None:
            return None
        live = self.context.active_tasks.get(task_id)
        view = task_view(row, live.calls.values() if live else ())
        view.events = self.context.events.recent(task_id)
        return view

    def recent_tasks(self) -> dict[str, MAILTask]:
        """Return the live and recently finished tasks by id."""
        found = (self.recent_task(row.task_id) for row in self.context.active_tasks.rows())
        return {task.task_id: task for task in found if task is not None}

    def recent_answer(self, task_id: str) -> MAILMessage | None:
        """Return the final message of a live or recently finished task, or None."""
        for event in reversed(self.context.events.recent(task_id)):
            message = event.extra.get("full_message", {})
            if message.get("msg_type") == "broadcast_complete":
                return message  # type: ignore[no-any-return]  # a wire message by construction
        return None


class RuntimeViews:
    """The documented synchronous accessors of a runtime."""

    _context: RuntimeContext
    _reader: TaskReader

    @property
    def this_owner(self) -> str:
        """The owner as ``role:id@swarm``."""
        return str(self._context.owner)

    @property
    def print_llm_streams(self) -> bool:
        """Whether pieces of model calls are printed."""
        return self._context.print_llm_streams

    @property
    def pending_requests(self) -> dict[str, asyncio.Future[RunResult]]:
        """The newest waiting caller of each live task."""
        return {t.task_id: t.waiters[-1].future for t in self._context.active_tasks if t.waiters}

    @property
    def message_queue(self) -> list[tuple[int, int, MAILMessage]]:
        """The waiting mail of all live tasks as (tier, number, message), first come first."""
        waiting = [
            queued for task in self._context.active_tasks for queued in self._waiting(task.task_id)
        ]
        waiting.sort(key=lambda queued: (queued.delivery.tier, queued.seq))
        return [(mail.delivery.tier, mail.seq, mail.envelope.to_wire()) for mail in waiting]

    @property
    def manual_message_buffer(self) -> dict[str, list[MAILMessage]]:
        """What waits for each agent's next manual step, keyed ``task::agent``."""
        buffers: dict[str, list[MAILMessage]] = {}
        if self._context.manual:
            for task in self._context.active_tasks:
                for queued in sorted(self._waiting(task.task_id), key=lambda mail: mail.seq):
                    if queued.passive:
                        key = f"{task.task_id}::{queued.delivery.recipient}"
                        buffers.setdefault(key, []).append(queued.envelope.to_wire())
        return buffers

    @property
    def events(self) -> dict[str, list[TaskEvent]]:
        """The newest events of the live and recently finished tasks, by task id."""
        return {
            row.task_id: self.get_events_by_task_id(row.task_id)
            for row in self._context.active_tasks.rows()
        }

    @property
    def response_messages(self) -> dict[str, MAILMessage]:
        """The final messages of the live and recently finished tasks, by task id."""
        found = {
            row.task_id: self._reader.recent_answer(row.task_id)
            for row in self._context.active_tasks.rows()
        }
        return {task_id: message for task_id, message in found.items() if message is not None}

    @property
    def response_queue(self) -> list[tuple[str, MAILMessage]]:
        """The same as (task id, final message), oldest task first."""
        return list(self.response_messages.items())

    @property
    def agent_histories(self) -> dict[str, list[Entry]]:
        """Copies of the histories in memory, keyed ``task::agent``."""
        histories = self._context.histories
        return {f"{k.task_id}::{k.agent}": histories.known(k) for k in histories.lanes()}

    def get_events_by_task_id(self, task_id: str) -> list[TaskEvent]:
        """Return the newest events of a live or recently finished task."""
        return self._context.events.recent(task_id)

    def get_task_by_id(self, task_id: str) -> MAILTask | None:
        """Return a live or recently finished task, or None."""
        return self._reader.recent_task(task_id)

    def get_all_tasks(self) -> dict[str, MAILTask]:
        """Return the live and recently finished tasks by id."""
        return self._reader.recent_tasks()

    def get_response_message(self, task_id: str) -> MAILMessage | None:
        """Return the final message of a live or recently finished task, or None."""
        return self._reader.recent_answer(task_id)

    def _waiting(self, task_id: str) -> list[QueuedMessage]:
        return self._context.mailbox.queued_messages(task_id)
