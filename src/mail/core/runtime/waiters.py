"""Callers who wait for the end of a run. A waiter belongs to its message (MAIL-TASK-10)."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from mail.core.events import TaskEvent
from mail.core.tasks import TaskState
from mail.core.wire import MAILMessage
from mail.services.event_log import Subscription

if TYPE_CHECKING:
    import asyncio


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The end of a run.

    Attributes:
        message: The final ``broadcast_complete`` message.
        status: completed, paused, failed or cancelled.
        reason: Why the run failed, or None.
        over_budget: Whether it failed because the task has used up its budget.
        ended_by: ``step_limit`` if the run had processed as many messages as it may, else None.
    """

    task_id: str
    message: MAILMessage
    status: TaskState
    reason: str | None = None
    over_budget: bool = False
    ended_by: str | None = None

    @property
    def breakpoints(self) -> list[dict[str, Any]]:
        """The open breakpoint calls, as callers see them: what the message of a pause says."""
        if self.status is not TaskState.PAUSED:
            return []
        calls: list[dict[str, Any]] = from_json(self.message["message"]["body"])
        return calls


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """The answer to callers at a run's end; its terminal event in the log tells the same.

    Attributes:
        seq: The number of the terminal event.
        at: When it ended.
        body: The answer, or the reason why there is none.
        subject: The subject of the final message.
        status: completed, paused, failed or cancelled.
        breakpoints: The open breakpoint calls, as callers see them.
        over_budget: Whether it failed because the task has used up its budget.
        ended_by: ``step_limit`` if the run had processed as many messages as it may, else None.
    """

    task_id: str
    seq: int
    at: str
    body: str
    subject: str
    status: TaskState
    breakpoints: list[dict[str, Any]]
    over_budget: bool = False
    ended_by: str | None = None

    @classmethod
    def of_result(cls, result: RunResult, seq: int) -> "RunEnd":
        """Read the end of a run that one has waited for."""
        payload = result.message["message"]
        return cls(
            task_id=result.task_id,
            seq=seq,
            at=result.message["timestamp"],
            body=payload["body"],
            subject=payload["subject"],
            status=result.status,
            breakpoints=result.breakpoints,
            over_budget=result.over_budget,
            ended_by=result.ended_by,
        )

    @classmethod
    def of_event(cls, event: TaskEvent) -> "RunEnd":
        """Read the end of a run from its terminal event."""
        extra = event.extra
        return cls(
            task_id=event.task_id,
            seq=event.seq,
            at=event.timestamp,
            body=extra["response"],
            subject=extra["subject"],
            status=TaskState(extra["status"]),
            breakpoints=list(extra["breakpoints"]),
            over_budget=bool(extra.get("over_budget")),
            ended_by=extra.get("ended_by"),
        )


@dataclass(slots=True, eq=False)
class Waiter:
    """One caller. ``consumed`` tells that a committed turn has taken the caller's message.

    ``among`` are all callers of the task.
    ``steps`` are the ids of the manual steps whose breakpoint calls the caller has answered.
    A ``streamed`` one reads the run's events, with ``stream_tokens`` those of model calls, too.
    ``began`` is the number of the first event that is stored after the request was, ``ended`` that
    of the terminal event, once it is known.
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
    ended: int = 0

    def leave(self) -> None:
        """Stop waiting; the task goes on."""
        if self in self.among:
            self.among.remove(self)

    def end_at(self, last_event: int) -> None:
        """Tell the caller which event is its last."""
        self.ended = last_event
        if self.subscription is not None:
            self.subscription.last = last_event

    def resolve(self, result: RunResult) -> None:
        """Give the caller its answer, once."""
        if not self.future.done():
            self.future.set_result(result)

    def fail(self, error: Exception) -> None:
        """Give the caller an error, once."""
        if not self.future.done():
            self.future.set_exception(error)
            self.future.exception()  # a caller that left already must not cause a warning
