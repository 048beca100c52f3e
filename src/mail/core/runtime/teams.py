"""Agents that wait for a teammate's reply: what begins, ends and outlasts a wait; see `team_waits`.

Whatever ends a wait answers its call in the same change: the reply (which is then no mail any
more), an interrupt, a failure of the teammate, the end of the run, or the time.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from mail.core.envelope import Envelope
from mail.core.runtime.active_tasks import ActiveTask, Turn
from mail.core.runtime.context import RuntimeContext
from mail.core.runtime.correspondence import letters_in
from mail.core.runtime.delivery import Mail, MailDelivery
from mail.core.runtime.subjects import TaskSubject
from mail.core.runtime.team_waits import TeamWait
from mail.core.runtime.transaction import Ending, TaskChange, go_on
from mail.core.runtime.turn import Control, ControlKind
from mail.core.runtime.turn_result import TurnResult
from mail.core.tasks import TaskState
from mail.db.calls import CallRow
from mail.errors import StoreError

logger = logging.getLogger(__name__)

_NOT_OPENED: Final = "interrupted"
"""The end of a wait that cannot begin, because something more urgent has come."""


@dataclass(slots=True, eq=False)
class TeamSubject(TaskSubject):
    """Begins and ends waits; ``look_after`` is called when one has run out of time."""

    context: RuntimeContext
    mail_delivery: MailDelivery
    look_after: Callable[[ActiveTask], Coroutine[Any, Any, None]]

    def takes(self, mail: Mail, name: str, envelope: Envelope, control: Control | None) -> bool:
        """Take the reply that an agent waits for; something urgent ends its waits, too."""
        if not mail.task.waits:
            return False
        waits = mail.task.open_waits(name)
        for wait in waits:
            if wait.is_reply(envelope, mail.task.asks):
                if letters := letters_in(envelope, self.context.parts.participants):
                    before = mail.task.replies
                    mail.task.replies = before | {name: (*before.get(name, ()), *letters)}
                self._answer(mail, wait, wait.replied(envelope))
                return True
        finishes = control is not None and control.kind is ControlKind.FINISH
        if envelope.kind == "interrupt" or finishes:
            for wait in waits:
                self._answer(mail, wait, wait.draft.result(_NOT_OPENED), wakes=False)
        return False

    def _answer(self, mail: Mail, wait: TeamWait, result: str, *, wakes: bool = True) -> None:
        """Add the result of a wait, and what wakes its agent if that waits for nothing else."""
        task, agent = mail.task, wait.row.agent
        task.waits = {key: each for key, each in task.waits.items() if each is not wait}
        answered = wait.row._replace(answer=result, status="responded")
        mail.waits += (answered,)
        self.mail_delivery.answer(mail, answered)
        if wakes and not task.open_waits(agent):
            letters = task.replies.get(agent, ())
            task.replies = {name: ids for name, ids in task.replies.items() if name != agent}
            self.mail_delivery.instruct(mail, agent, replace(wait.control, letters=letters))

    def concluded(self, change: TaskChange, turn: Turn, turn_result: TurnResult) -> None:
        """Let the agent wait for replies, if the run goes on and nothing more urgent has come."""
        if not turn_result.waits:
            return
        memory, key = change.memory, turn.queued.lane
        is_open = memory.row.state.is_open
        # A request to finish is late when the run has ended otherwise.
        late = turn.queued.finish and turn.queued is not memory.finish
        if not is_open or turn_result.completes is not None or late or memory.exhausted is not None:
            turn_result.close_waits("ended")
        elif self.context.mailbox.presses(key):
            turn_result.close_waits(_NOT_OPENED)
        else:
            control = Control(ControlKind.RESUME, origin=turn.origin)
            for call, draft in turn_result.waits:
                wait = TeamWait.begin(turn.agent, call, draft, control, now=memory.now())
                memory.waits = memory.waits | {wait.key: wait}
                change.mail.waits += (wait.row,)
                change.on_applied(self._start, wait, change.task)
            change.on_applied(self.context.mailbox.block, key)
            # The wait's end calls the agent again, which sees its other results then; help is mail.
            turn_result.reprompts = tuple(
                one for one in turn_result.reprompts if one.error or one.kind == "broadcast"
            )

    def failed(self, change: TaskChange, turn: Turn, reason: str) -> bool:
        """Tell an agent that the teammate whose reply it waits for failed."""
        if turn.origin is None:
            return False
        waits = change.memory.open_waits(turn.origin.address)
        waits = [each for each in waits if each.teammate == turn.agent]
        for wait in waits:
            self._answer(change.mail, wait, wait.draft.result("failed", error=reason))
        return bool(waits)

    def awaits(self, change: TaskChange) -> bool:
        """Tell whether an agent waits: a reply or the time will end it."""
        return bool(change.memory.waits)

    idle = awaits

    def ended(self, change: TaskChange, ending: Ending) -> None:
        """End all waits with the run."""
        if ending.result.status is TaskState.PAUSED:
            return
        for wait in change.memory.waits.values():
            self._answer(change.mail, wait, wait.draft.result("ended"), wakes=False)

    def restored(self, task: ActiveTask, calls: Sequence[CallRow]) -> None:
        """Take up the open waits of a task from the store."""
        waits = [TeamWait.of_row(row) for row in calls if row.is_wait and row.answer is None]
        task.waits = {wait.key: wait for wait in waits}
        for wait in waits:
            self._start(wait, task)

    def stopped(self, task: ActiveTask) -> None:
        """Stop the timers; the store has the waits."""
        for wait in task.waits.values():
            wait.stop()

    def _start(self, wait: TeamWait, task: ActiveTask) -> None:
        if task.waits.get(wait.key) is wait:  # else the run has ended with the same change
            seconds = wait.remaining(self.context.clock.now())
            loop = asyncio.get_running_loop()
            expire = partial(self._expire, task, wait)
            wait.timer = loop.call_later(seconds, lambda: go_on(expire(), self.context.under_way))

    async def _expire(self, task: ActiveTask, wait: TeamWait) -> None:
        """End a wait whose time is up."""
        async with task.order.door:  # not while the task's mail is read back
            if self.context.status.draining or task.void:
                return
            try:
                async with TaskChange(self.context, task) as change:
                    if change.memory.waits.get(wait.key) is wait:
                        self._answer(change.mail, wait, wait.draft.result("timeout"))
            except StoreError as error:  # the runtime stops, or the task was deleted
                logger.info("a wait for a teammate could not be ended: %s", error)
                return
        await self.look_after(task)
        self.context.settle(task)
