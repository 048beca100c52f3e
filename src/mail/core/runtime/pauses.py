"""Pauses: what held calls add to a turn's end, and to the end of a run; see `held_calls`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from mail.core.runtime.active_tasks import Turn
from mail.core.runtime.context import RuntimeContext
from mail.core.runtime.delivery import MailDelivery
from mail.core.runtime.endings import Endings
from mail.core.runtime.held_calls import UNANSWERED, accepted_call, open_rows
from mail.core.runtime.ledger import swarm_in
from mail.core.runtime.subjects import TaskSubject
from mail.core.runtime.transaction import Ending, TaskChange
from mail.core.runtime.turn import Control, Phase
from mail.core.runtime.turn_result import TurnResult
from mail.core.tasks import TaskState
from mail.db.calls import CallRow

_CUT_OFF: Final = "ERROR: the task was cancelled while this call ran; its outcome is unknown"
_NO_RESULTS: Final = (
    "an agent called a breakpoint tool, and a participant cannot give the result of such a call"
)


@dataclass(slots=True, eq=False)
class PauseSubject(TaskSubject):
    """Holds calls, and lets agents go on; ``on_deadline`` is told of calls with a deadline."""

    context: RuntimeContext
    mail_delivery: MailDelivery
    endings: Endings
    on_deadline: Callable[[], None]

    def concluded(self, change: TaskChange, turn: Turn, turn_result: TurnResult) -> None:
        """Note the result of an accepted call, unless the call was closed meanwhile."""
        if not turn.queued.decided:
            return
        accepted, memory = accepted_call(turn), change.memory
        change.on_applied(self._unblock_if_ended, change, turn)
        if accepted is None or not turn_result.history.entries:
            return
        entry = turn_result.history.entries[-1]
        answered = accepted[0]._replace(answer=str(entry.get("content", entry.get("output", ""))))
        memory.put(answered)
        is_open = memory.row.state.is_open
        if is_open and turn_result.completes is None and not memory.open_calls(turn.agent):
            self._wake(change, turn, answered)

    def _unblock_if_ended(self, change: TaskChange, turn: Turn) -> None:
        if change.ending is not None:
            self.context.mailbox.unblock(turn.queued.lane)

    def _wake(self, change: TaskChange, turn: Turn, call: CallRow) -> None:
        """Let an agent go on whose last call has its result now."""
        memory, mailbox = change.memory, self.context.mailbox
        self.mail_delivery.instruct(change.mail, turn.agent, Control.from_json(call.control))
        change.on_applied(mailbox.unblock, turn.queued.lane)
        if memory.row.state is TaskState.PAUSED:  # another agent's calls wait since it was accepted
            memory.change(state=TaskState.RUNNING)
            memory.pausing = False
            change.on_applied(mailbox.unhold, memory.task_id)

    def pauses(self, change: TaskChange, turn: Turn, turn_result: TurnResult) -> bool:
        """Pause the task on the calls of a turn that wait for somebody's answer."""
        if not turn_result.paused or change.memory.exhausted is not None:
            return False
        calls, events = open_rows(turn, turn_result, self.context)
        turn_result.events += [event.row(change.mail.moment) for event in events]
        change.memory.put(*calls)
        turn_result.paused = ()
        change.on_applied(self.context.mailbox.block, turn.queued.lane)
        if any(row.expires_at for row in calls):
            change.on_applied(self.on_deadline)
        self.endings.hold(change)
        return True

    def last(self, change: TaskChange, turn_result: TurnResult | None) -> None:
        """Answer the calls of a turn that nobody is asked about."""
        if turn_result is not None and turn_result.paused:
            turn_result.close_paused(UNANSWERED)

    def paused(self, change: TaskChange) -> None:
        """Tell of a pause whose turns have ended, unless accepted calls are still to run."""
        memory = change.memory
        if memory.pausing and not self.context.mailbox.decided(memory.task_id):
            self._pause(change)

    def awaits(self, change: TaskChange) -> bool:
        """Tell whether calls are open."""
        return bool(change.memory.open_calls())

    def idle(self, change: TaskChange) -> bool:
        """Pause a task in which nothing happens but that calls are open."""
        if not change.memory.open_calls():
            return False
        self._pause(change)
        return True

    def _pause(self, change: TaskChange) -> None:
        memory = change.memory
        if memory.guest and any(call.kind != "approval" for call in memory.asked_calls()):
            self.endings.fail(change, _NO_RESULTS)
        else:
            self.endings.pause(change)

    def ended(self, change: TaskChange, ending: Ending) -> None:
        """Answer open calls with "not run", so that no history keeps a call without a result."""
        task, status = change.memory, ending.result.status
        if status is TaskState.PAUSED or not task.calls:
            return
        for call in task.open_calls():
            runs = _runs(change, call)
            if runs and status is not TaskState.CANCELLED:
                continue  # its result comes
            closed = call.closed(_CUT_OFF if runs else UNANSWERED, task.now())
            task.put(closed)
            if not swarm_in(call.agent):  # else its history is elsewhere
                self.mail_delivery.answer(change.mail, closed)


def _runs(change: TaskChange, call: CallRow) -> bool:
    """Tell whether a turn runs a call at the moment, whose result will be noted."""
    turn = change.task.turns.get(call.agent)
    if turn is None or turn is change.turn:
        return False
    return turn.runs == call.call_id and turn.phase is Phase.ACTING
