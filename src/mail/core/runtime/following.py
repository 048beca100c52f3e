"""A run that an earlier request began: found in its task's log, and followed while it goes on.

It needs nothing that the process which accepted the request had in memory. Everything comes from
the log, so a repeat after a restart sees what the first caller saw.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import ClassVar

from mail.core.events import TERMINAL_KINDS, TaskEvent
from mail.core.runtime.context import Parts
from mail.core.runtime.waiters import RunEnd
from mail.errors import ShuttingDown, TaskTimeout

__all__ = ["FollowedRun"]

_LOOK_SECONDS = 15.0


@dataclass(slots=True, eq=False, kw_only=True)
class FollowedRun:
    """A run by its task and its first event, with the interface of `mail.core.runtime.runs.Run`.

    Attributes:
        began: The number of the run's first event.
        message_id: The message that began it. An end that leaves that message unread is another
            caller's; empty for results of breakpoint calls.
        after: A stream begins behind this event.
        stream_tokens: Whether a stream of a run that goes on has ``model_delta`` events, too.
    """

    parts: Parts
    task_id: str
    began: int
    message_id: str = ""
    after: int = 0
    stream_tokens: bool = False
    repeats: ClassVar = True

    async def end(self, timeout: float | None = 3600.0) -> RunEnd:
        """Wait for the end of the run; see `mail.core.runtime.runs.Run.end`.

        Raises:
            TaskTimeout: the time ran out; the task goes on.
            ShuttingDown: the runtime stopped first; the task goes on after its restart.
        """
        try:
            async with asyncio.timeout(timeout):
                async with aclosing(self._read(_LOOK_SECONDS)) as events:
                    async for event in events:
                        if event is not None and self._is_end(event):
                            return RunEnd.of_event(event)
        except TimeoutError:
            raise TaskTimeout("The task timed out.", self.task_id) from None
        raise ShuttingDown(self.task_id)

    async def events(self, ping_interval: float = 15.0) -> AsyncGenerator[TaskEvent, None]:
        """Yield the run's events up to its end; see `mail.core.runtime.runs.Run.events`."""
        ended = False
        async with aclosing(self._read(ping_interval)) as events:
            async for event in events:
                ended = event is not None and self._is_end(event)
                if event is None:
                    yield self._note("ping")
                elif not event.seq or event.seq > self.after:
                    yield event
        if not ended:
            yield self._note("server_drain")

    def leave(self) -> None:
        """Do nothing: nobody waits before `end` or `events` is called."""

    def _is_end(self, event: TaskEvent) -> bool:
        return event.kind in TERMINAL_KINDS and self.message_id not in event.extra.get(
            "unanswered", ()
        )

    async def _read(self, look_seconds: float) -> AsyncGenerator[TaskEvent | None, None]:
        """Yield the run's events from its first one to its end, and None after each silence.

        Stops without an end when the runtime stops.
        """
        log = self.parts.events
        subscription = log.subscribe(self.task_id, after=self.began - 1, deltas=self.stream_tokens)
        try:
            while True:
                closing = subscription.closed
                events = await subscription.take(self.parts.store, self.parts.owner)
                for event in events:
                    yield event
                    if self._is_end(event):
                        return
                if closing and not events:
                    return
                if not events and not await subscription.wait(look_seconds):
                    yield None
                    subscription.lag()  # who works on the task need not be this runtime
        finally:
            log.unsubscribe(subscription)

    def _note(self, kind: str) -> TaskEvent:
        return TaskEvent(task_id=self.task_id, kind=kind, timestamp=self.parts.clock.now())
