"""A caller's handle on one run: its result, or its events as they happen."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from pydantic_core import from_json

from mail.core.events import TERMINAL_KINDS, TaskEvent
from mail.core.runtime.context import RuntimeContext
from mail.core.runtime.waiters import RunEnd, RunResult, Waiter
from mail.core.tasks import TaskState
from mail.errors import ClaimLost, MAILError, ShuttingDown, TaskTimeout
from mail.services.event_log import Subscription

if TYPE_CHECKING:
    from mail.core.wire import MAILMessage


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
        began, timer = asyncio.get_running_loop().time(), None
        if timeout is not None:
            late = TaskTimeout("The task timed out.", self.task_id)
            timer = asyncio.get_running_loop().call_later(timeout, self.waiter.fail, late)
        try:
            return await self.waiter.future
        except ClaimLost:  # another process goes on with it, and its log tells how
            spent = asyncio.get_running_loop().time() - began
            return await self._followed().result(None if timeout is None else timeout - spent)
        finally:
            if timer is not None:
                timer.cancel()
            self.waiter.leave()

    async def end(self, timeout: float | None = 3600.0) -> RunEnd:
        """Wait for the end of the run, and return it as its terminal event tells it.

        Raises:
            TaskTimeout, ShuttingDown: see `result`.
        """
        return await self.result(timeout)

    def _followed(self) -> "FollowedRun":
        return FollowedRun(
            context=self.context,
            task_id=self.task_id,
            began=self.began,
            message_id=self.waiter.message_id,
        )

    async def events(self, ping_interval: float = 15.0) -> AsyncGenerator[TaskEvent, None]:
        """Yield the run's events until its ``task_complete`` or ``task_error``.

        A ``ping`` without id comes after each quiet ``ping_interval`` (seconds). When the runtime
        stops first, the last event is ``server_drain``.

        Raises:
            MAILError: the run was not requested with ``streamed``.
        """
        stream = self.waiter.subscription
        if stream is None:
            raise MAILError("this run was not opened as a stream")

        def is_end(event: TaskEvent) -> bool:  # who resumes a manual step gets an end of its own
            own = 0 < event.seq == stream.last
            return own or _ends(event, self.waiter.message_id)

        reading = _followed(self.context, stream, ping_interval, is_end)
        try:
            async with aclosing(reading) as events:
                async for event in events:
                    yield event
                    del event  # while the next one is awaited, nothing keeps this one
        finally:
            self.leave()


_LOOK_SECONDS = 15.0
_PATIENCE = 20
"""A stream that was silent for so many seconds looks once a second for what others have stored."""


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
            async with asyncio.timeout(timeout), aclosing(self._read(_LOOK_SECONDS)) as events:
                async for event in events:
                    if _ends(event, self.message_id):
                        return RunEnd.of_event(event)
        except TimeoutError:
            raise TaskTimeout("The task timed out.", self.task_id) from None
        raise ShuttingDown(self.task_id)

    async def result(self, timeout: float | None = 3600.0) -> RunResult:
        """Wait for the end of the run, and return it with its final message; see `end`."""
        context, end = self.context, await self.end(timeout)
        stored = await context.store.response(context.owner, self.task_id)
        message: MAILMessage = from_json(stored or "{}")
        if message.get("timestamp") != end.at:  # that of a later run
            sent = context.composer.system_completion(self.task_id, end.subject, end.body)
            message = sent.to_wire()
        reason = end.body if end.status in (TaskState.FAILED, TaskState.CANCELLED) else None
        known = {each.name: getattr(end, each.name) for each in fields(end)}
        return RunResult(**known, message=message, reason=reason)

    async def events(self, ping_interval: float = 15.0) -> AsyncGenerator[TaskEvent, None]:
        """Yield the run's events up to its end; see `mail.core.runtime.runs.Run.events`."""
        async with aclosing(self._read(ping_interval)) as events:
            async for event in events:
                if not event.seq or event.seq > self.after:
                    yield event
                del event

    def leave(self) -> None:
        """Do nothing: nobody waits before `end` or `events` is called."""

    def _read(self, ping_interval: float) -> AsyncGenerator[TaskEvent, None]:
        log, after = self.context.events, self.began - 1
        stream = log.subscribe(self.task_id, after=after, deltas=self.stream_tokens)
        is_end = partial(_ends, message_id=self.message_id)
        return _followed(self.context, stream, ping_interval, is_end)


def _ends(event: TaskEvent, message_id: str) -> bool:
    """Tell whether an event ends the run that a message has begun."""
    unanswered = event.extra.get("unanswered", ())
    return event.kind in TERMINAL_KINDS and message_id not in unanswered


async def _followed(
    context: RuntimeContext,
    stream: Subscription,
    ping_interval: float,
    is_end: Callable[[TaskEvent], bool],
) -> AsyncGenerator[TaskEvent, None]:
    """Yield the events of a stream up to the one that ends it, and unsubscribe.

    A ``ping`` comes after each silence, and ``server_drain`` last if the runtime stops before.
    """

    def note(kind: str) -> TaskEvent:
        return TaskEvent(task_id=stream.task_id, kind=kind, timestamp=context.clock.now())

    silence = 0.0
    try:
        while True:
            closing = stream.closed
            events = await stream.take(context.store, context.owner)
            quiet = not events
            while events:
                ended = is_end(events[0])
                yield events.popleft()
                if ended:
                    return
            if closing and quiet:
                break
            if not quiet:
                silence = 0.0
                continue
            pause = max(context.follow_seconds(stream.task_id), silence / _PATIENCE)
            pause = min(ping_interval - silence, pause)
            if not await stream.wait(pause):
                stream.lag()  # who works on the task need not be this runtime
                silence += pause
                if silence >= ping_interval:
                    yield note("ping")
                    silence = 0.0
        yield note("server_drain")
    finally:
        context.events.unsubscribe(stream)
