"""A caller's handle on one run: its result, or its events as they happen."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import ClassVar

from mail.core.events import TERMINAL_KINDS, TaskEvent
from mail.core.runtime.context import RuntimeContext
from mail.core.runtime.waiters import RunEnd, RunResult, Waiter
from mail.errors import MAILError, ShuttingDown, TaskTimeout


@dataclass(slots=True, eq=False)
class Run:
    """An accepted request. Letting go of it never ends the task."""

    context: RuntimeContext
    waiter: Waiter
    repeats: ClassVar = False

    @property
    def task_id(self) -> str:
        """The task that the run belongs to."""
        return self.waiter.task_id

    @property
    def began(self) -> int:
        """The number of the run's first event: its end is the first terminal one from there on."""
        return self.waiter.began

    def leave(self) -> None:
        """Wait no more; the task goes on."""
        if self.waiter.subscription is not None:
            self.context.events.unsubscribe(self.waiter.subscription)
        self.waiter.leave()

    async def result(self, timeout: float | None = 3600.0) -> RunResult:
        """Wait for the end of the run.

        Args:
            timeout: Seconds to wait at most; None waits as long as it takes.

        Raises:
            TaskTimeout: the time ran out; the task goes on.
            ShuttingDown: the runtime stopped first; the task goes on after its restart.
        """
        timer = None
        if timeout is not None:
            timer = asyncio.get_running_loop().call_later(timeout, self._time_out)
        try:
            return await self.waiter.future
        finally:
            if timer is not None:
                timer.cancel()
            self.waiter.leave()

    def _time_out(self) -> None:
        self.waiter.fail(TaskTimeout("The task timed out.", self.task_id))

    async def end(self, timeout: float | None = 3600.0) -> RunEnd:
        """Wait for the end of the run, and return it as its terminal event tells it.

        Raises:
            TaskTimeout, ShuttingDown: see `result`.
        """
        return RunEnd.of_result(await self.result(timeout), self.waiter.ended)

    async def events(self, ping_interval: float = 15.0) -> AsyncGenerator[TaskEvent, None]:
        """Yield the run's events until its ``task_complete`` or ``task_error``.

        A ``ping`` without id comes after each quiet ``ping_interval`` (seconds). When the runtime
        stops first, the last event is ``server_drain``.

        Raises:
            MAILError: the run was not requested with ``streamed``.
        """
        subscription = self.waiter.subscription
        if subscription is None:
            raise MAILError("this run was not opened as a stream")
        try:
            async with aclosing(self.context.events.read(subscription, ping_interval)) as events:
                async for event in events:
                    last = event is not None and 0 < event.seq == subscription.last
                    yield event or self._note("ping")
                    if last:
                        return
                    del event  # while the next one is awaited, nothing keeps this one
            if not 0 < subscription.last <= subscription.cursor:
                yield self._note("server_drain")
        finally:
            self.leave()

    def _note(self, kind: str) -> TaskEvent:
        return TaskEvent(task_id=self.task_id, kind=kind, timestamp=self.context.clock.now())


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

    context: RuntimeContext
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
                del event
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
        log = self.context.events
        subscription = log.subscribe(self.task_id, after=self.began - 1, deltas=self.stream_tokens)
        try:
            while True:
                closing = subscription.closed
                events = await subscription.take(self.context.store, self.context.owner)
                quiet = not events
                while events:
                    ended = self._is_end(events[0])
                    yield events.popleft()
                    if ended:
                        return
                if closing and quiet:
                    return
                if quiet and not await subscription.wait(look_seconds):
                    yield None
                    subscription.lag()  # who works on the task need not be this runtime
        finally:
            log.unsubscribe(subscription)

    def _note(self, kind: str) -> TaskEvent:
        return TaskEvent(task_id=self.task_id, kind=kind, timestamp=self.context.clock.now())
