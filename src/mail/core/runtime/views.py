"""A runtime at a glance: active tasks and the newest finished ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mail.services.tasks import task_view

if TYPE_CHECKING:
    import asyncio

    from mail.core.actions import ActionOverrideFunction
    from mail.core.events import TaskEvent
    from mail.core.runtime.context import RuntimeContext
    from mail.core.runtime.histories import Entry
    from mail.core.runtime.mailbox import QueuedMessage
    from mail.core.runtime.waiters import RunResult
    from mail.core.tasks import MAILTask
    from mail.core.wire import MAILMessage
    from mail.services.event_log import EventLog


@dataclass(frozen=True, slots=True)
class OwnEvents:
    """A runtime's own log, for those who read its tasks; closing it ends their streams."""

    log: EventLog | None
    closing: bool = False


class RuntimeViews:
    """The documented synchronous accessors of a runtime."""

    _context: RuntimeContext

    @property
    def this_owner(self) -> str:
        """The owner as ``role:id@swarm``."""
        return str(self._context.owner)

    @property
    def event_log(self) -> EventLog:
        """The live side of the log of this owner's tasks."""
        return self._context.events

    @property
    def action_override(self) -> ActionOverrideFunction | None:
        """The function that answers action calls in place of the actions, if there is one."""
        return self._context.status.action_override

    @action_override.setter
    def action_override(self, override: ActionOverrideFunction | None) -> None:
        self._context.status.action_override = override

    @property
    def print_llm_streams(self) -> bool:
        """Tell whether pieces of model calls are printed."""
        return self._context.status.print_llm_streams

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
        """The mail that waits for each agent's next manual step, keyed ``task::agent``."""
        buffers: dict[str, list[MAILMessage]] = {}
        if self._context.status.manual:
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
            row.task_id: self.get_response_message(row.task_id)
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
        row = self._context.active_tasks.row(task_id)
        if row is None:
            return None
        active = self._context.active_tasks.get(task_id)
        view = task_view(self._context.owner, row, active.calls.values() if active else ())
        if active is not None:
            asked = (*active.asks.waited("peer"), *active.asks.waited("participant"))
            view.waiting_for = list(dict.fromkeys(each.asked for each in asked))
        view.events = self.get_events_by_task_id(task_id)
        view.event_count = view.events[-1].seq if view.events else 0
        view.task_message_count = len(self._waiting(task_id))
        return view

    def get_all_tasks(self) -> dict[str, MAILTask]:
        """Return the live and recently finished tasks by id."""
        found = (self.get_task_by_id(row.task_id) for row in self._context.active_tasks.rows())
        return {task.task_id: task for task in found if task is not None}

    def get_response_message(self, task_id: str) -> MAILMessage | None:
        """Return the final message of a live or recently finished task, or None."""
        for event in reversed(self.get_events_by_task_id(task_id)):
            message: MAILMessage | None = event.extra.get("full_message")
            if message is not None and message["msg_type"] == "broadcast_complete":
                return message
        return None

    def _waiting(self, task_id: str) -> list[QueuedMessage]:
        return self._context.mailbox.queued_messages(task_id)
