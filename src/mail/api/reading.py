"""What can be read of a swarm's tasks: from the store, or at once from memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator

    from mail.core.events import TaskEvent
    from mail.core.runtime.runtime import MAILRuntime
    from mail.core.runtime.waiters import RunResult
    from mail.core.tasks import MAILTask
    from mail.core.wire import MAILMessage

__all__ = ["PING_INTERVAL", "TaskReader"]

PING_INTERVAL = 15.0
"""Seconds of silence on a stream after which a ``ping`` goes out."""


class TaskReader:
    """The user's tasks. Methods that are not ``async`` see live and recently finished ones only."""

    _runtime: MAILRuntime

    async def read_task(self, task_id: str, *, with_events: bool = True) -> MAILTask | None:
        """Return a task as the store has it, or None."""
        return await self._runtime.read_task(task_id, with_events=with_events)

    async def read_tasks(
        self, limit: int | None = None, cursor: str | None = None, *, with_events: bool = True
    ) -> list[MAILTask]:
        """Return the user's tasks as the store has them, newest first.

        Args:
            limit: At most so many.
            cursor: The id of the last task of the page before.
            with_events: Whether to read the tasks' events, too.
        """
        return await self._runtime.read_tasks(limit, cursor, with_events=with_events)

    def replay(
        self, task_id: str, after: int = 0, ping_interval: float = PING_INTERVAL
    ) -> AsyncIterator[TaskEvent]:
        """Yield a task's events after number ``after``; follow it while it runs.

        Raises:
            UnknownTask: the user has no such task.
        """
        return self._runtime.replay(task_id, after, ping_interval)

    def get_pending_requests(self) -> dict[str, asyncio.Future[RunResult]]:
        """Return the newest waiting caller of each live task."""
        return self._runtime.pending_requests

    def get_response_message(self, task_id: str) -> MAILMessage | None:
        """Return the final message of a live or recently finished task, or None."""
        return self._runtime.get_response_message(task_id)

    def get_events(self, task_id: str) -> list[TaskEvent]:
        """Return the newest events of a live or recently finished task."""
        return self._runtime.get_events_by_task_id(task_id)

    def get_all_tasks(self) -> dict[str, MAILTask]:
        """Return the live and recently finished tasks by id."""
        return self._runtime.get_all_tasks()

    def get_task_by_id(self, task_id: str) -> MAILTask | None:
        """Return a live or recently finished task, or None."""
        return self._runtime.get_task_by_id(task_id)
