"""Giving the callers of manual steps their answers."""

from dataclasses import dataclass

from mail.core.compose import Subject
from mail.core.runtime.active_tasks import ActiveTask
from mail.core.runtime.context import RuntimeContext
from mail.core.runtime.transaction import TaskChange
from mail.core.runtime.turn import ManualStep
from mail.core.runtime.turn_result import TurnResult
from mail.core.runtime.waiters import RunResult
from mail.core.tasks import TaskState
from mail.core.wire import MAILMessage
from mail.errors import MAILError, ShuttingDown, StepFailed, TaskError


@dataclass(slots=True, eq=False)
class ManualReplies:
    """Knows how each manual step came to its end. Whoever gave up waiting is passed over."""

    context: RuntimeContext

    def answer(self, change: TaskChange, turn_result: TurnResult) -> None:
        """Tell the caller of a turn's step how it ended, when the stored turn has ended it."""
        turn = change.turn
        if turn is None or turn.manual is None:
            return
        task, ref = turn.task, turn.manual.ref
        if ref not in task.steps_due:
            self._answer_resumer(turn.manual, task, turn_result, change.last_event)
        elif turn_result.told is not None:
            self._fail(task, ref, StepFailed(turn_result.told, task.task_id, turn.agent))
        elif turn_result.spoken is not None:
            self._resolve(task, ref, turn_result.spoken.to_wire())
        elif turn_result.completes is not None and change.ending is not None:
            self._resolve(task, ref, change.ending.result.message)
        elif task.open_calls(turn.agent):
            self._fail(task, ref, task.paused_error())

    def give_up(self, task: ActiveTask, result: RunResult) -> None:
        """Tell the callers of steps that the run ended or pauses before their agents spoke."""
        if result.status is TaskState.PAUSED:
            error: MAILError = task.paused_error()
        else:
            error = TaskError(f"the task is {result.status}; the step ended without an answer")
        for ref in list(task.steps_due):
            self._fail(task, ref, error)

    def close(self, task: ActiveTask) -> None:
        """Tell the callers of steps that the runtime stops."""
        for ref in list(task.steps_due):
            self._fail(task, ref, ShuttingDown(task.task_id))

    def _answer_resumer(
        self, step: ManualStep, task: ActiveTask, turn_result: TurnResult, last_event: int
    ) -> None:
        """Tell who answered the breakpoint calls of a step what came of it."""
        reason = turn_result.told
        if reason is not None:
            composer = self.context.composer
            told = composer.system_completion(task.task_id, Subject.TASK_ERROR, reason)
        elif turn_result.spoken is not None:
            told = turn_result.spoken
        else:
            return
        status = TaskState.RUNNING if reason is None else TaskState.FAILED
        result = RunResult(
            task_id=task.task_id, message=told.to_wire(), status=status, reason=reason
        )
        for waiter in [waiter for waiter in task.waiters if step.ref in waiter.steps]:
            waiter.leave()
            waiter.end_at(last_event)
            waiter.resolve(result)

    def _resolve(self, task: ActiveTask, ref: str, message: MAILMessage) -> None:
        answer = task.steps_due.pop(ref, None)
        if answer is not None and not answer.done():
            answer.set_result(message)

    def _fail(self, task: ActiveTask, ref: str, error: MAILError) -> None:
        answer = task.steps_due.pop(ref, None)
        if answer is not None and not answer.done():
            answer.set_exception(error)
            answer.exception()  # a caller that left already must not cause a warning
