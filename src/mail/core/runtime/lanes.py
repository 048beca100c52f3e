"""Opening and closing the lanes of tasks, and letting go of tasks that nothing happens to."""

from dataclasses import dataclass

from mail.core.runtime.active_tasks import ActiveTask
from mail.core.runtime.context import RuntimeContext
from mail.core.runtime.delivery import MailDelivery
from mail.core.runtime.endings import Ending
from mail.core.runtime.mailbox import LaneKey
from mail.core.runtime.turn import Phase, Turn
from mail.core.tasks import TaskState
from mail.db.base import EventRow

__all__ = ["OPEN", "Lanes"]

OPEN = (TaskState.RUNNING, TaskState.PAUSED)


@dataclass(slots=True, eq=False)
class Lanes:
    """What happens to a task's waiting mail when the task opens, ends or settles."""

    context: RuntimeContext
    mail_delivery: MailDelivery

    def close(self, task: ActiveTask) -> tuple[EventRow, ...]:
        """Stop all work on a task that is not open any more; its mail stays in the store.

        Returns the events of model calls that were reported by turns which end here.
        """
        reports: list[EventRow] = []
        if task.row.state in OPEN:
            if task.row.state is TaskState.RUNNING:
                self.context.mailbox.unhold(task.task_id)
            for turn in list(task.turns.values()):
                finishes = turn.queued.finish and turn.queued is not task.finish
                if finishes or turn.queued.of_step:  # they belong to the run that has ended
                    reports.extend(self._stop(turn))
            return tuple(reports)
        for turn in list(task.turns.values()):
            turn.void = turn.void or task.row.state is TaskState.CANCELLED  # for good
            reports.extend(self._stop(turn))
        self.context.mailbox.drop(task.task_id)
        task.loaded = False
        return tuple(reports)

    def _stop(self, turn: Turn) -> tuple[EventRow, ...]:
        """Cancel a turn whose model has not replied yet."""
        if turn.phase is not Phase.MODEL:
            return ()
        self.mail_delivery.abandon(turn)
        turn.task.out.discard(turn.seq)
        self.mail_delivery.unbuffer(turn)
        self.context.mailbox.release(LaneKey(turn.task.task_id, turn.agent))
        return turn.take_reports()

    def reopen(self, task: ActiveTask, ending: Ending) -> None:
        """Let agents go on whose open calls an ending has answered, with these answers."""
        for row in ending.histories:
            task.fresh = False  # the store knows more of them than there is here
            self.context.histories.forget(task.task_id, row.agent)
            self.context.mailbox.unblock(LaneKey(task.task_id, row.agent))

    def step_back(self, turn: Turn) -> None:
        """Return the message of a turn that does not happen to its place."""
        turn.task.turns.pop(turn.agent, None)
        self.mail_delivery.put_back(turn.task, turn.queued)
        self.mail_delivery.unbuffer(turn)
        self.context.mailbox.release(LaneKey(turn.task.task_id, turn.agent))

    def settle(self, task: ActiveTask) -> None:
        """Let go of a task that nothing is happening to; the store has it all."""
        if task.turns or task.arriving or task.pins or task.waiters:
            return
        if task.row.state is TaskState.RUNNING and self.context.mailbox.waiting(task.task_id):
            return
        if self.context.active_tasks.get(task.task_id) is not task:
            return
        self.context.mailbox.drop(task.task_id)
        self.context.histories.forget(task.task_id)
        for forgotten in self.context.active_tasks.remove(task):
            self.context.events.forget(forgotten)
