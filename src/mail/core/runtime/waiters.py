"""Callers who wait for the end of a run. A waiter belongs to its message (MAIL-TASK-10)."""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from mail.core.events import TaskEvent
from mail.core.tasks import TaskState
from mail.core.wire import MAILMessage
from mail.services.event_log import Subscription

if TYPE_CHECKING:
    import asyncio


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """The answer to callers at a run's end; its terminal event in the log tells the same.

    Attributes:
        seq: The number of the terminal event.
        at: The time of the end.
        body: The answer, or the reason why there is none.
        subject: The subject of the final message.
        status: completed, paused, failed or cancelled.
        over_budget: Whether it failed because the task has used up its budget.
        ended_by: ``step_limit`` if the run had processed as many messages as it may, else None.
    """

    task_id: str
    seq: int = 0
    at: str
    body: str
    subject: str
    status: TaskState
    over_budget: bool = False
    ended_by: str | None = None

    @classmethod
    def of_event(cls, event: TaskEvent) -> "RunEnd":
        """Read the end of a run from its terminal event."""
        extra = event.extra
        return RunEnd(
            task_id=event.task_id,
            seq=event.seq,
            at=event.timestamp,
            body=extra["response"],
            subject=extra["subject"],
            status=TaskState(extra["status"]),
            over_budget=bool(extra.get("over_budget")),
            ended_by=extra.get("ended_by"),
        )

    @property
    def breakpoints(self) -> list[dict[str, Any]]:
        """The open breakpoint calls, as callers see them: what the message of a pause says."""
        calls: list[dict[str, Any]] = []
        if self.status is TaskState.PAUSED:
            calls = from_json(self.body)
        return calls


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult(RunEnd):
    """The end of a run that one has waited for.

    Attributes:
        message: The final ``broadcast_complete`` message.
        reason: Why the run failed, or None.
    """

    message: MAILMessage
    reason: str | None = None


@dataclass(slots=True, eq=False)
class Waiter:
    """One caller. ``consumed`` tells that a committed turn has taken the caller's message.

    ``among`` are all callers of the task.
    ``steps`` are the ids of the manual steps whose breakpoint calls the caller has answered.
    A ``streamed`` one reads the run's events, with ``stream_tokens`` those of model calls, too.
    ``began`` is the number of the first event that is stored after the request was.
    """

    task_id: str
    among: "list[Waiter]" = field(repr=False)
    message_id: str
    future: "asyncio.Future[RunResult]"
    consumed: bool = False
    subscription: Subscription | None = None
    steps: frozenset[str] = frozenset()
    streamed: bool = False
    stream_tokens: bool = False
    began: int = 0

    def leave(self) -> None:
        """Stop waiting; the task goes on."""
        if self in self.among:
            self.among.remove(self)

    def end(self, result: RunResult, last_event: int) -> None:
        """Give the caller its answer, once, and tell it which event is its last."""
        self.leave()
        if self.subscription is not None:
            self.subscription.last = last_event
        if not self.future.done():
            self.future.set_result(replace(result, seq=last_event))

    def fail(self, error: Exception) -> None:
        """Give the caller an error, once."""
        if not self.future.done():
            self.future.set_exception(error)
            self.future.exception()  # a caller that left already must not cause a warning
