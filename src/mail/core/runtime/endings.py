"""How a run ends: completed, paused, failed or cancelled; one terminal event each (MAIL-EVT-4)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import to_json

from mail.core.addresses import create_agent_address
from mail.core.compose import Subject
from mail.core.envelope import Envelope
from mail.core.runtime.active_tasks import Turn
from mail.core.runtime.context import RuntimeContext
from mail.core.runtime.mailbox import Hold
from mail.core.runtime.offers import take_back
from mail.core.runtime.transaction import Ending, TaskChange
from mail.core.runtime.turn import Phase
from mail.core.runtime.turn_result import message_event
from mail.core.runtime.waiters import RunResult
from mail.core.tasks import STEP_LIMIT, TaskState
from mail.core.tools.offer import NO_OFFER
from mail.db.records import EventRow

_SETTLED: Final = "Nobody answers this broadcast. It was:"


@dataclass(slots=True, eq=False)
class Endings:
    """Builds the endings of changes and hands them to the waiting callers."""

    context: RuntimeContext

    def complete(self, change: TaskChange, turn: Turn, answer: str) -> Ending:
        """The task is answered. Users' mail that still waits keeps it running (MAIL-TASK-11)."""
        return self.complete_as(
            change, turn.agent, answer, Subject.TASK_COMPLETE, at_limit=turn.at_limit
        )

    def complete_as(
        self, change: TaskChange, agent: str, answer: str, subject: str, *, at_limit: bool
    ) -> Ending:
        """End a task with an answer in an agent's name."""
        task, sender = change.memory, create_agent_address(agent)
        message = self.context.composer.completion(
            task.task_id, sender, answer, subject, task.now()
        )
        return self._ending(change, message, TaskState.COMPLETED, by=agent, at_limit=at_limit)

    def complete_quietly(self, change: TaskChange) -> Ending:
        """End a task in which nothing happens any more and nobody waits for an answer."""
        return self.end(change, Subject.TASK_COMPLETE, "nothing is left to do")

    def settle(self, change: TaskChange, handled: Mapping[str, str]) -> Ending:
        """Everybody has acknowledged or ignored what came: the caller hears who did what."""
        told = [_SETTLED, *(f"- {agent}: {done}" for agent, done in sorted(handled.items()))]
        return self.end(change, Subject.BROADCAST_SETTLED, "\n".join(told))

    def hold(self, change: TaskChange) -> None:
        """Start no more turns; the pause is told when those that run have ended (MAIL-BRK-2)."""
        change.memory.change(state=TaskState.PAUSED, awaited=True)
        change.memory.pausing = True
        change.on_applied(self.context.mailbox.hold, change.task.task_id, Hold.FIRM)

    def pause(self, change: TaskChange) -> Ending:
        """The task waits for the results of its open breakpoint calls."""
        task = change.memory
        texts = [call.shown for call in task.asked_calls()]
        message = self.context.composer.system_completion(
            task.task_id, Subject.BREAKPOINT_TOOL_CALL, f"[{', '.join(texts)}]", task.now()
        )
        task.change(state=TaskState.PAUSED, awaited=False, finish_asked=False)
        task.pausing = False
        return self._ending(change, message, TaskState.PAUSED, everybody=True)

    def fail(
        self, change: TaskChange, reason: str, *, over_budget: bool = False, at_limit: bool = False
    ) -> Ending:
        """The run cannot be finished; the reason goes to the caller (MAIL-TURN-17).

        A task over its budget goes on for nobody: every caller gets the reason, and with it the
        answer to users' mail that waits. The mail between agents is kept.
        """
        task, settled = change.memory, self.drop_people(change) if over_budget else ()
        message = self.context.composer.system_completion(
            task.task_id, Subject.TASK_ERROR, reason, task.now()
        )
        return self._ending(
            change,
            message,
            TaskState.FAILED,
            reason=reason,
            everybody=over_budget,
            over_budget=over_budget,
            at_limit=at_limit,
            settled=settled,
        )

    def cancel(self, change: TaskChange) -> Ending:
        """The owner cancelled the task; all of its mail is dropped."""
        reason, task = "the task was cancelled", change.memory
        message = self.context.composer.system_completion(
            task.task_id, Subject.TASK_CANCELLED, reason, task.now()
        )
        change.read |= change.task.people
        return self._ending(change, message, TaskState.CANCELLED, reason=reason, everybody=True)

    def end(self, change: TaskChange, subject: str, told: str, **more: Any) -> Ending:
        """End a task with words of the system's."""
        task = change.memory
        message = self.context.composer.system_completion(task.task_id, subject, told, task.now())
        return self._ending(change, message, TaskState.COMPLETED, **more)

    def announce(self, change: TaskChange, ending: Ending) -> None:
        """Tell streams where they end, and callers how, once it is stored.

        Whose end it is must follow from the log alone: that is where repeats find it.
        """
        task, last_event = change.task, change.last_event
        due = [
            waiter
            for waiter in task.waiters
            if 0 < waiter.began <= last_event
            and (ending.everybody or waiter.consumed)
            and waiter.message_id not in ending.unanswered
        ]
        for waiter in due:
            waiter.end_at(last_event)
            waiter.leave()
            waiter.resolve(ending.result)

    def drop_people(self, change: TaskChange) -> tuple[int, ...]:
        """Take back users' mail that nobody has read yet; return its numbers."""
        task = change.memory
        change.read |= change.task.people
        waiting = self.context.mailbox.queued_messages(task.task_id)
        return tuple(mail.seq for mail in waiting if task.is_personal(mail.envelope))

    def _settle_row(self, change: TaskChange, state: TaskState, *, at_limit: bool) -> None:
        task, goes_on = change.memory, bool(change.unread) and not self.context.status.manual
        task.pausing, task.exhausted = False, None
        task.change(
            state=TaskState.RUNNING if goes_on else state,
            steps=0,
            awaited=goes_on and task.row.awaited,
            finish_asked=at_limit and not goes_on,
            handled="",
        )

    def _settle_finish(self, change: TaskChange) -> tuple[int, ...]:
        """Take back the request to finish the run, for it has ended; return its number.

        A turn that has begun on it goes on to its own commit, but ends nothing any more.
        """
        queued, change.memory.finish = change.memory.finish, None
        if queued is None or queued.filed:
            return ()
        for turn in change.task.turns.values():
            if turn.queued is queued and turn.phase is not Phase.MODEL:
                return ()
        change.on_applied(self.context.mailbox.remove, queued)
        return (queued.seq,) if queued.seq else ()  # without a number it is sent with this change

    def _ending(  # noqa: PLR0913 - the parts of an ending, all named
        self,
        change: TaskChange,
        message: Envelope,
        status: TaskState,
        *,
        reason: str | None = None,
        by: str = "",  # the agent whose answer it is
        everybody: bool = False,
        over_budget: bool = False,
        at_limit: bool = False,
        settled: tuple[int, ...] = (),
    ) -> Ending:
        task = change.memory
        if status is not TaskState.PAUSED:
            self._settle_row(change, status, at_limit=at_limit)
        settled += self._settle_finish(change)
        wire, body = message.to_wire(), _json(message.body)  # it may be long: it is written once
        response = message.to_json(body, wire)
        unanswered = set() if everybody else change.unread
        more: dict[str, Any] = {"unanswered": sorted(unanswered)} if unanswered else {}
        if over_budget:
            more["over_budget"] = True
        if at_limit:
            more["ended_by"] = STEP_LIMIT
        events = [_terminal(message, body, status, reason, more)]
        if by:
            shown = f"task_complete response from {by}:"
            events.insert(0, message_event(response, message.timestamp, shown))
        ending = Ending(
            result=RunResult(
                task_id=task.task_id,
                message=wire,
                status=status,
                reason=reason,
                over_budget=over_budget,
                ended_by=more.get("ended_by"),
            ),
            message=message,
            events=tuple(events),
            response=response,
            everybody=everybody,
            unanswered=unanswered,
            settled=settled,
            memories=() if task.offer is NO_OFFER else take_back(task, message.timestamp),
        )
        self.context.subjects.ended(change, ending)
        return ending


def _terminal(
    message: Envelope, body: str, status: TaskState, reason: str | None, more: dict[str, Any]
) -> EventRow:
    told = {"subject": message.subject, "status": status.value}
    # The body of a pause is its calls in JSON; they may be long, so they are not written again.
    listed = message.body if status is TaskState.PAUSED else "[]"
    rest = f",{_json(more)[1:]}" if more else "}"
    return EventRow(
        "task_error" if reason is not None else "task_complete",
        message.timestamp,
        f"error for task: {reason}" if reason is not None else f"response: '{message.body}'",
        f'{{"response":{body},{_json(told)[1:-1]},"breakpoints":{listed}{rest}',
    )


def _json(value: Any) -> str:
    return to_json(value).decode()
