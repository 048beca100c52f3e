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

        Raises:
            ProtocolError: the limit or the cursor is none.
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

    def get_pending_requests(self) -> dict[str, asyncio.Future[MAILMessage]]:
        """Return, by task, what will be the final message that its newest caller waits for.

        The futures are copies: cancelling one changes nothing for the caller.
        """
        waiting = self._runtime.pending_requests
        return {task_id: _message_of(future) for task_id, future in waiting.items()}

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

    async def load_tasks_from_db(self) -> None:
        """Open the store and take up what is unfinished there; `start` does it, too.

        Finished tasks stay in the store until they are asked for: `read_task`, `read_tasks`.

        Raises:
            StoreError: the store cannot be opened or read.
        """
        await self._runtime.read_tasks(1, with_events=False)

    async def load_agent_histories_from_db(self) -> None:
        """Do as `load_tasks_from_db`: each history is read from the store at its agent's turn.

        Raises:
            StoreError: the store cannot be opened or read.
        """
        await self.load_tasks_from_db()


def _message_of(future: asyncio.Future[RunResult]) -> asyncio.Future[MAILMessage]:
    found: asyncio.Future[MAILMessage] = future.get_loop().create_future()

    def copy(done: asyncio.Future[RunResult]) -> None:
        if found.done():
            return
        if done.cancelled():
            found.cancel()
        elif (error := done.exception()) is not None:
            found.set_exception(error)
            found.exception()  # whoever looks at the request later must not cause a warning
        else:
            found.set_result(done.result().message)

    future.add_done_callback(copy)
    return found
