"""The ends of a run: completed, paused, failed or cancelled; one terminal event each (MAIL-EVT-4).

Before that, the system may ask its finisher to end it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import to_json

from mail.core.addresses import create_agent_address
from mail.core.compose import Subject
from mail.core.envelope import Envelope
from mail.core.runtime.context import RuntimeContext
from mail.core.runtime.delivery import MailDelivery
from mail.core.runtime.mailbox import Hold
from mail.core.runtime.run_figures import RunFigures
from mail.core.runtime.transaction import Ending, TaskChange
from mail.core.runtime.turn import Control, ControlKind, Phase
from mail.core.runtime.turn_result import message_event
from mail.core.runtime.waiters import RunResult
from mail.core.tasks import STEP_LIMIT, TaskState
from mail.core.tools.offer import NO_OFFER
from mail.db.records import EventRow

_SETTLED: Final = "Nobody answers this broadcast. It was:"
_LIMIT: Final = (
    "This task has reached its limit of {limit} messages. Finish it now: call task_complete with "
    "the best answer you can give."
)
_STALL: Final = (
    "This task has stalled: no message is waiting and no agent is working on it, but "
    "its caller has no answer yet. Call task_complete now with what you know."
)
_STALLED: Final = "the task stalled: no agent has anything left to do, but none has finished it"
_CYCLE: Final = (
    "This task has stalled: all agents that could answer wait for each other: {path}. Call "
    "task_complete now with what you know."
)
_PARTIAL: Final = (
    "The task reached its limit of {limit} messages before it was finished. Results so far:"
)
_SHOWN: Final = 5
_FAILED: Final = (TaskState.FAILED, TaskState.CANCELLED)


@dataclass(slots=True, eq=False)
class Endings:
    """Asks for the ends of runs, builds them, and tells the waiting callers."""

    context: RuntimeContext
    mail_delivery: MailDelivery

    # --- asking for an end --------------------------------------------------------------------

    def rouse(self, change: TaskChange, cycle: Sequence[str] = ()) -> None:
        """Ask for the end of a task in which nothing happens any more, once (MAIL-TASK-15).

        Where everybody has acknowledged or ignored what came, that is the end (MAIL-TASK-26).

        Args:
            change: The change that it belongs to.
            cycle: The agents that wait for one another, if that is why it has stalled.
        """
        handled = change.memory.handled
        if handled and "read" not in handled.values():
            told = [_SETTLED, *(f"- {agent}: {done}" for agent, done in sorted(handled.items()))]
            self.complete(change, "\n".join(told), Subject.BROADCAST_SETTLED)
        elif change.memory.row.finish_asked:
            self.fail(change, _STALLED)
        else:
            self.ask_to_finish(change, "stall", cycle)

    def ask_to_finish(self, change: TaskChange, reason: str, cycle: Sequence[str] = ()) -> None:
        """Ask the finisher to end the task (MAIL-TASK-14); ``reason`` is ``limit`` or ``stall``."""
        task, finisher = change.memory, self.context.parts.finisher
        if reason == "limit":
            subject, body = Subject.MAXIMUM_STEPS_REACHED, _LIMIT.format(limit=task.row.max_steps)
        else:
            path = " -> ".join(cycle)
            subject, body = Subject.TASK_STALLED, _CYCLE.format(path=path) if cycle else _STALL
        task.change(finish_asked=True)
        notice = self.context.composer.notice(task.task_id, finisher, subject, body)
        control = Control(ControlKind.FINISH, reason=reason)
        self.mail_delivery.send(change.mail, notice, control)
        task.finish = change.mail.queued_messages[-1]

    def hold(self, change: TaskChange) -> None:
        """Start no more turns; the pause is told when those that run have ended (MAIL-BRK-2)."""
        change.memory.change(state=TaskState.PAUSED, awaited=True)
        change.memory.pausing = True
        change.on_applied(self.context.mailbox.hold, change.task.task_id, Hold.FIRM)

    # --- ending -------------------------------------------------------------------------------

    def complete(
        self,
        change: TaskChange,
        answer: str,
        subject: str = Subject.TASK_COMPLETE,
        *,
        by: str = "",
        **more: Any,
    ) -> None:
        """End a run with an answer; users' mail that still waits keeps it running (MAIL-TASK-11).

        Args:
            change: The change that it belongs to.
            answer: The answer.
            subject: That of the final message.
            by: The agent that gives the answer; else the system does.
            more: See `_end`.
        """
        self._end(change, TaskState.COMPLETED, subject, answer, by=by, **more)

    def with_what_there_is(self, change: TaskChange, agent: str = "") -> None:
        """End a task that its finisher did not finish with the newest mail it was sent."""
        task, finisher = change.memory, create_agent_address(self.context.parts.finisher)
        bodies = [
            event.extra["full_message"]["message"]["body"]
            for event in self.context.events.recent(task.task_id)
            if event.kind == "new_message"
            and event.extra["full_message"]["message"].get("recipient") == finisher
            and event.extra["full_message"]["message"]["sender"]["address_type"] == "agent"
        ]
        answer = "\n\n".join(
            [_PARTIAL.format(limit=task.row.max_steps), *(bodies[-_SHOWN:] or ["(nothing)"])]
        )
        by = agent or finisher["address"]
        self.complete(change, answer, Subject.MAXIMUM_STEPS_REACHED, by=by, at_limit=True)

    def pause(self, change: TaskChange) -> None:
        """Let the task wait for the results of its open calls."""
        texts = ", ".join(call.shown for call in change.memory.asked_calls())
        change.memory.change(state=TaskState.PAUSED, awaited=False, finish_asked=False)
        change.memory.pausing = False
        subject = Subject.BREAKPOINT_TOOL_CALL
        self._end(change, TaskState.PAUSED, subject, f"[{texts}]", everybody=True)

    def fail(
        self, change: TaskChange, reason: str, *, over_budget: bool = False, at_limit: bool = False
    ) -> None:
        """End a run that cannot be finished; the reason goes to the caller (MAIL-TURN-17).

        A task over its budget goes on for nobody: every caller gets the reason, and with it the
        answer to users' mail that waits. The mail between agents is kept.
        """
        settled = self.drop_people(change) if over_budget else ()
        self._end(
            change,
            TaskState.FAILED,
            Subject.TASK_ERROR,
            reason,
            everybody=over_budget,
            over_budget=over_budget,
            at_limit=at_limit,
            settled=settled,
        )

    def cancel(self, change: TaskChange) -> None:
        """Cancel the task, as its owner wants; all of its mail is dropped."""
        change.read |= change.task.people
        reason = "the task was cancelled"
        self._end(change, TaskState.CANCELLED, Subject.TASK_CANCELLED, reason, everybody=True)

    def drop_people(self, change: TaskChange) -> tuple[int, ...]:
        """Take back users' mail that nobody has read yet; return its numbers."""
        task = change.memory
        change.read |= change.task.people
        waiting = self.context.mailbox.queued_messages(task.task_id)
        return tuple(mail.seq for mail in waiting if task.is_personal(mail.envelope))

    def announce(self, change: TaskChange, ending: Ending) -> None:
        """Tell streams where they end, callers how, and the log, once it is stored.

        Whose end it is must follow from the log alone: that is where repeats find it.
        """
        task, last_event = change.task, change.last_event
        status = ending.result.status
        if task.row.state is not TaskState.RUNNING:
            task.end_span(status.value if status in _FAILED else "")
        due = [
            waiter
            for waiter in task.waiters
            if 0 < waiter.began <= last_event
            and (ending.everybody or waiter.consumed)
            and waiter.message_id not in ending.unanswered
        ]
        for waiter in due:
            waiter.end(ending.result, last_event)
        task.run.end(ending.result, task.row.usage)
        if ending.result.status is not TaskState.PAUSED:
            task.run = RunFigures(task.row.usage)

    def _end(  # noqa: PLR0913 - the parts of an ending, all named
        self,
        change: TaskChange,
        status: TaskState,
        subject: str,
        text: str,
        *,
        by: str = "",  # the agent whose answer it is
        everybody: bool = False,
        over_budget: bool = False,
        at_limit: bool = False,
        settled: tuple[int, ...] = (),
    ) -> None:
        task, composer = change.memory, self.context.composer
        sender = create_agent_address(by) if by else composer.system_address
        message = composer.completion(task.task_id, sender, text, subject, task.now())
        if status is not TaskState.PAUSED:
            goes_on = bool(change.unread) and not self.context.status.manual
            task.pausing, task.exhausted = False, None
            task.change(
                state=TaskState.RUNNING if goes_on else status,
                steps=0,
                awaited=goes_on and task.row.awaited,
                finish_asked=at_limit and not goes_on,
                handled="",
            )
        settled += self._settle_finish(change)
        wire, body = message.to_wire(), _json(message.body)  # it may be long: it is written once
        unanswered = set() if everybody else change.unread
        more: dict[str, Any] = {"unanswered": sorted(unanswered)} if unanswered else {}
        more |= {"over_budget": True} if over_budget else {}
        more |= {"ended_by": STEP_LIMIT} if at_limit else {}
        response = message.to_json(body, wire)
        events = [_terminal(message, body, status, more)]
        if by:
            told = f"task_complete response from {by}:"
            events.insert(0, message_event(response, message.timestamp, told))
        change.ending = Ending(
            result=RunResult(
                task_id=task.task_id,
                at=message.timestamp,
                body=message.body,
                subject=message.subject,
                message=wire,
                status=status,
                reason=text if status in _FAILED else None,
                over_budget=over_budget,
                ended_by=more.get("ended_by"),
            ),
            message=message,
            events=tuple(events),
            response=response,
            everybody=everybody,
            unanswered=unanswered,
            settled=settled,
        )
        if not task.row.state.is_open:
            task.offer = NO_OFFER
        self.context.subjects.ended(change, change.ending)

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


def _terminal(message: Envelope, body: str, status: TaskState, more: dict[str, Any]) -> EventRow:
    known = _json({"subject": message.subject, "status": status.value})[1:-1]
    # The body of a pause is its calls in JSON; they may be long, so they are not written again.
    listed = message.body if status is TaskState.PAUSED else "[]"
    rest = f",{_json(more)[1:]}" if more else "}"
    extra = f'{{"response":{body},{known},"breakpoints":{listed}{rest}'
    if status in _FAILED:
        told = f"error for task: {message.body}"
        return EventRow("task_error", message.timestamp, told, extra)
    return EventRow("task_complete", message.timestamp, f"response: '{message.body}'", extra)


def _json(value: Any) -> str:
    return to_json(value).decode()
