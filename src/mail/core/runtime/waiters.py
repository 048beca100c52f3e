"""Callers who wait for the end of a run. A waiter belongs to its message (ruling 29)."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mail.core.runtime.eventlog import Subscription
from mail.core.tasks import TaskState
from mail.core.wire import MAILMessage

if TYPE_CHECKING:
    import asyncio

    from mail.core.runtime.ledger import LiveTask

__all__ = ["RunResult", "Waiter"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """How a run ended.

    Attributes:
        message: The final ``broadcast_complete`` message.
        status: completed, paused, failed or cancelled.
        breakpoints: The open breakpoint calls, as callers see them.
        reason: Why the run failed, or None.
        over_budget: Whether it failed because the task has used up its budget.
    """

    task_id: str
    message: MAILMessage
    status: TaskState
    breakpoints: list[dict[str, Any]] = field(default_factory=list)
    reason: str | None = None
    over_budget: bool = False


@dataclass(slots=True, eq=False)
class Waiter:
    """One caller. ``consumed`` tells that a committed turn has taken the caller's message.

    ``steps`` are the ids of the manual steps whose breakpoint calls the caller has answered.
    ``began`` is the number of the first event that is stored after the request was.
    """

    task: "LiveTask"
    message_id: str
    future: "asyncio.Future[RunResult]"
    consumed: bool = False
    subscription: Subscription | None = None
    steps: frozenset[str] = frozenset()
    began: int = 0

    def leave(self) -> None:
        """Stop waiting; the task goes on."""
        if self in self.task.waiters:
            self.task.waiters.remove(self)

    def end_at(self, last_event: int) -> None:
        """Tell the caller's stream which event is its last."""
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
