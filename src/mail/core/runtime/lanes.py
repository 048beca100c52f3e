"""Opening and closing the lanes of tasks, and letting go of tasks that nothing happens to."""

from dataclasses import dataclass

from mail.core.runtime.active_tasks import LiveTask
from mail.core.runtime.context import Parts
from mail.core.runtime.delivery import PostOffice
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

    parts: Parts
    post_office: PostOffice

    def close(self, task: LiveTask) -> tuple[EventRow, ...]:
        """Stop all work on a task that is not open any more; its mail stays in the store.

        Returns the events of model calls that were reported by turns which end here.
        """
        reports: list[EventRow] = []
        if task.row.state in OPEN:
            if task.row.state is TaskState.RUNNING:
                self.parts.mailbox.unhold(task.task_id)
            for turn in list(task.turns.values()):
                finishes = turn.letter.finish and turn.letter is not task.finish
                if finishes or turn.letter.of_step:  # they belong to the run that has ended
                    reports.extend(self._stop(turn))
            return tuple(reports)
        for turn in list(task.turns.values()):
            turn.void = turn.void or task.row.state is TaskState.CANCELLED  # for good
            reports.extend(self._stop(turn))
        self.parts.mailbox.drop(task.task_id)
        task.loaded = False
        return tuple(reports)

    def _stop(self, turn: Turn) -> tuple[EventRow, ...]:
        """Cancel a turn whose model has not replied yet."""
        if turn.phase is not Phase.MODEL:
            return ()
        self.post_office.abandon(turn)
        turn.task.out.discard(turn.seq)
        self.post_office.unbuffer(turn)
        self.parts.mailbox.release(LaneKey(turn.task.task_id, turn.agent))
        return turn.take_reports(self.parts.clock.now())

    def reopen(self, task: LiveTask, ending: Ending) -> None:
        """Let agents go on whose open calls an ending has answered, with these answers."""
        for row in ending.histories:
            task.fresh = False  # the store knows more of them than there is here
            self.parts.histories.forget(task.task_id, (row.agent,))
            self.parts.mailbox.unblock(LaneKey(task.task_id, row.agent))

    def step_back(self, turn: Turn) -> None:
        """Return the letter of a turn that does not happen to its place."""
        turn.task.turns.pop(turn.agent, None)
        self.post_office.put_back(turn.task, turn.letter)
        self.post_office.unbuffer(turn)
        self.parts.mailbox.release(LaneKey(turn.task.task_id, turn.agent))

    def settle(self, task: LiveTask) -> None:
        """Let go of a task that nothing is happening to; the store has it all."""
        if task.turns or task.arriving or task.pins or task.waiters:
            return
        if task.row.state is TaskState.RUNNING and self.parts.mailbox.waiting(task.task_id):
            return
        if self.parts.ledger.get(task.task_id) is not task:
            return
        self.parts.mailbox.drop(task.task_id)
        self.parts.histories.forget(task.task_id, self.parts.agents)
        for forgotten in self.parts.ledger.remove(task):
            self.parts.events.forget(forgotten)
