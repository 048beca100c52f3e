"""The system's own messages to agents: follow-ups after tools, and the request to finish."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from mail.core.compose import Subject
from mail.core.envelope import Envelope
from mail.core.runtime.active_tasks import Turn
from mail.core.runtime.context import RuntimeContext
from mail.core.runtime.delivery import MailDelivery
from mail.core.runtime.endings import Endings
from mail.core.runtime.transaction import Ending, TaskChange
from mail.core.runtime.turn import Control, ControlKind
from mail.core.runtime.turn_result import Reprompt

_LIMIT = (
    "This task has reached its limit of {limit} messages. Finish it now: call task_complete with "
    "the best answer you can give."
)
_STALL = (
    "This task has stalled: no message is waiting and no agent is working on it, but "
    "its caller has no answer yet. Call task_complete now with what you know."
)
_STALLED = "the task stalled: no agent has anything left to do, but none has finished it"
_CYCLE = (
    "This task has stalled: all agents that could answer wait for each other: {path}. Call "
    "task_complete now with what you know."
)
_PARTIAL = "The task reached its limit of {limit} messages before it was finished. Results so far:"
_SHOWN = 5


@dataclass(slots=True, eq=False)
class SystemMessages:
    """Writes messages in the system's name; their meaning to the engine is in their control."""

    context: RuntimeContext
    endings: Endings
    mail_delivery: MailDelivery

    def follow_up(self, turn: Turn, prompts: Sequence[Reprompt]) -> tuple[Envelope | None, Control]:
        """Return the one message that calls the agent again after its tools.

        Errors outrank successes. When the agent has used up its repair turns there is no message,
        and the control's reason says what went wrong.
        """
        errors = [prompt for prompt in prompts if prompt.error]
        chosen = errors or list(prompts)
        body = "\n".join(dict.fromkeys(prompt.body for prompt in chosen))
        kind, attempt = ControlKind.FOLLOW_UP, 0
        if errors:
            kind = ControlKind.REPAIR
            tried = turn.control
            attempt = 1 + (tried.attempt if tried and tried.kind is ControlKind.REPAIR else 0)
            if attempt > self.context.settings.max_repairs:
                why = "\n".join(dict.fromkeys(prompt.reason or prompt.body for prompt in chosen))
                return None, Control(kind, reason=f"its tool calls kept failing: {why}")
        step = turn.manual
        if step is not None:
            if step.calls >= self.context.settings.max_step_calls:
                return None, Control(
                    kind, reason=f"it was called {step.calls} times but gave no answer"
                )
            step = step._replace(calls=step.calls + 1)
        control = Control(kind, attempt=attempt, origin=turn.origin, step=step)
        notice = self.context.composer.message(
            chosen[0].kind,
            turn.task.task_id,
            self.context.composer.system_address,
            [{"address_type": "agent", "address": turn.agent}],
            chosen[0].subject,
            body,
            ref=turn.next_id(),
            message_id=turn.next_id(),
        )
        return notice, control

    def rouse(self, change: TaskChange, cycle: Sequence[str] = ()) -> None:
        """Ask for the end of a task in which nothing happens any more, once (MAIL-TASK-15).

        Where everybody has acknowledged or ignored what came, that is the end (MAIL-TASK-26).

        Args:
            change: What it belongs to.
            cycle: The agents that wait for one another, if that is why it has stalled.
        """
        handled = change.memory.handled
        if handled and "read" not in handled.values():
            change.ending = self.endings.settle(change, handled)
        elif change.memory.row.finish_asked:
            change.ending = self.endings.fail(change, _STALLED)
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

    def what_there_is(self, change: TaskChange, turn: Turn | None = None) -> Ending:
        """End a task that its finisher did not finish with the newest mail it was sent."""
        task = change.memory
        finisher = {"address_type": "agent", "address": self.context.parts.finisher}
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
        agent = turn.agent if turn else self.context.parts.finisher
        return self.endings.complete_as(
            change, agent, answer, Subject.MAXIMUM_STEPS_REACHED, at_limit=True
        )


logger = logging.getLogger(__name__)


def note_failure(turn: Turn, reason: str) -> str:
    """Log that a turn's agent failed, and return the reason with the agent's name in it."""
    known = {"agent": turn.agent, "task_id": turn.task.task_id, "reason": reason}
    logger.warning("agent failed", extra=known)
    if f"agent '{turn.agent}'" in reason:
        return reason
    return f"agent '{turn.agent}' failed: {reason}"
