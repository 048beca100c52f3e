"""A run's events with the caller's patience as a limit."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

from mail.clock import Clock
from mail.core.compose import Subject
from mail.core.events import TaskEvent

__all__ = ["until_timeout"]

_TIMED_OUT = "The task timed out."


async def until_timeout(
    events: AsyncIterator[TaskEvent], task_id: str, timeout: float, clock: Clock
) -> AsyncGenerator[TaskEvent, None]:
    """Yield events until they end or the time is up.

    When the time is up, the last event is a ``task_error`` without a number: it belongs to this
    stream only, for the task itself goes on.

    Args:
        events: The events of a run.
        task_id: The run's task.
        timeout: Seconds from the first step of the iteration.
        clock: Dates the last event.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    try:
        while True:
            try:
                event = await asyncio.wait_for(anext(events), deadline - loop.time())
            except StopAsyncIteration:
                return
            except TimeoutError:
                yield _timed_out(task_id, clock)
                return
            yield event
    finally:
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()


def _timed_out(task_id: str, clock: Clock) -> TaskEvent:
    return TaskEvent(
        task_id=task_id,
        kind="task_error",
        timestamp=clock.now(),
        description=f"timeout for task '{task_id}'",
        extra={
            "response": _TIMED_OUT,
            "subject": Subject.TASK_TIMEOUT.value,
            "status": "running",
            "breakpoints": [],
        },
    )
