"""What can be seen of a runtime at a glance: live tasks and the newest finished ones (ruling 37).

Everything here is a copy or a read-only view; what must be exact is asked of the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from mail.core.events import TaskEvent
    from mail.core.runtime.context import Parts
    from mail.core.runtime.histories import Entry
    from mail.core.runtime.mailbox import Letter
    from mail.core.runtime.task_reader import TaskReader
    from mail.core.runtime.waiters import RunResult
    from mail.core.tasks import MAILTask
    from mail.core.wire import MAILMessage

__all__ = ["RuntimeViews"]


class RuntimeViews:
    """The documented synchronous accessors of a runtime."""

    _parts: Parts
    _reader: TaskReader

    @property
    def this_owner(self) -> str:
        """The owner as ``role:id@swarm``."""
        return str(self._parts.owner)

    @property
    def print_llm_streams(self) -> bool:
        """Whether pieces of model calls are printed."""
        return self._parts.print_llm_streams

    @property
    def pending_requests(self) -> dict[str, asyncio.Future[RunResult]]:
        """The newest waiting caller of each live task."""
        return {t.task_id: t.waiters[-1].future for t in self._parts.ledger if t.waiters}

    @property
    def message_queue(self) -> list[tuple[int, int, MAILMessage]]:
        """The waiting mail of all live tasks as (tier, number, message), first come first."""
        waiting = [letter for task in self._parts.ledger for letter in self._waiting(task.task_id)]
        waiting.sort(key=lambda letter: (letter.delivery.tier, letter.seq))
        return [(mail.delivery.tier, mail.seq, mail.envelope.to_wire()) for mail in waiting]

    @property
    def manual_message_buffer(self) -> dict[str, list[MAILMessage]]:
        """What waits for each agent's next manual step, keyed ``task::agent``."""
        buffers: dict[str, list[MAILMessage]] = {}
        if self._parts.manual:
            for task in self._parts.ledger:
                for letter in sorted(self._waiting(task.task_id), key=lambda mail: mail.seq):
                    if letter.passive:
                        key = f"{task.task_id}::{letter.delivery.recipient}"
                        buffers.setdefault(key, []).append(letter.envelope.to_wire())
        return buffers

    @property
    def events(self) -> dict[str, list[TaskEvent]]:
        """The newest events of the live and recently finished tasks, by task id."""
        return {
            row.task_id: self.get_events_by_task_id(row.task_id)
            for row in self._parts.ledger.rows()
        }

    @property
    def response_messages(self) -> dict[str, MAILMessage]:
        """The final messages of the live and recently finished tasks, by task id."""
        found = {
            row.task_id: self._reader.recent_answer(row.task_id)
            for row in self._parts.ledger.rows()
        }
        return {task_id: message for task_id, message in found.items() if message is not None}

    @property
    def response_queue(self) -> list[tuple[str, MAILMessage]]:
        """The same as (task id, final message), oldest task first."""
        return list(self.response_messages.items())

    @property
    def agent_histories(self) -> dict[str, list[Entry]]:
        """Copies of the histories in memory, keyed ``task::agent``."""
        histories = self._parts.histories
        return {f"{k.task_id}::{k.agent}": histories.known(k) for k in histories.lanes()}

    def get_events_by_task_id(self, task_id: str) -> list[TaskEvent]:
        """Return the newest events of a live or recently finished task."""
        return self._parts.events.recent(task_id)

    def get_task_by_id(self, task_id: str) -> MAILTask | None:
        """Return a live or recently finished task, or None."""
        return self._reader.recent_task(task_id)

    def get_all_tasks(self) -> dict[str, MAILTask]:
        """Return the live and recently finished tasks by id."""
        return self._reader.recent_tasks()

    def get_response_message(self, task_id: str) -> MAILMessage | None:
        """Return the final message of a live or recently finished task, or None."""
        return self._reader.recent_answer(task_id)

    def _waiting(self, task_id: str) -> list[Letter]:
        return self._parts.mailbox.letters(task_id)
