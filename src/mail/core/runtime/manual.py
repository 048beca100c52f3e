"""Manual mode: a driver calls agents one at a time, and their mail waits for them meanwhile.

A step is a message of the system to one agent. Its turn shows the agent all mail that is buffered
for it and the driver's payload; the agent may use its tools, and the words that it ends with go
where the driver said. The buffered mail is consumed in the same commit as the step, so a step that
fails loses nothing. A step belongs to its caller: when the process dies, the step dies with it.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from mail.core.addresses import create_agent_address, local_agent_name
from mail.core.compose import Subject
from mail.core.envelope import Envelope
from mail.core.runtime.active_tasks import ActiveTask, Turn
from mail.core.runtime.context import RuntimeContext
from mail.core.runtime.subjects import TaskSubject
from mail.core.runtime.submission import Submissions
from mail.core.runtime.transaction import Ending, TaskChange, go_on
from mail.core.runtime.turn import Control, ControlKind, ManualStep, Phase, ResponseType
from mail.core.runtime.turn_end import TurnEnd
from mail.core.runtime.turn_result import TurnResult
from mail.core.runtime.waiters import RunResult
from mail.core.schema import check_task_id
from mail.core.suggest import did_you_mean
from mail.core.tasks import TaskState
from mail.core.wire import MAILMessage
from mail.db.commit import Commit, TurnCommit
from mail.errors import (
    ConfigError,
    MAILError,
    ProtocolError,
    ShuttingDown,
    StepFailed,
    StoreError,
    TaskError,
    UnknownAgent,
)

logger = logging.getLogger(__name__)

_TYPES = ("broadcast", "response", "request")
_OPTIONAL = ("llm", "system")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRequest:
    """A driver's request for one step; see `MAILSwarm.manual_step`."""

    task_id: str
    target: str
    response_targets: Sequence[str] | None = None
    response_type: ResponseType = "broadcast"
    payload: str = ""
    ctx_ratio: float = 0.0
    llm: str | None = None
    system: str | None = None


@dataclass(slots=True, eq=False)
class ManualSubject(TaskSubject):
    """Knows how each step came to its end. Whoever gave up waiting is passed over."""

    context: RuntimeContext

    def unwanted(self, turn: Turn) -> bool:
        """Tell whether a turn is a step that nobody waits for any more."""
        queued = turn.queued
        begun = queued.goes_on or queued.filed
        return queued.of_step and not begun and queued.step_ref not in turn.task.steps_due

    def failed(self, change: TaskChange, turn: Turn, reason: str) -> bool:
        """Leave a failure to the driver, who is told when it is stored."""
        return turn.manual is not None

    def awaits(self, change: TaskChange) -> bool:
        """Tell whether there is a driver, who knows what comes next."""
        return self.context.status.manual

    idle = awaits

    def ended(self, change: TaskChange, ending: Ending) -> None:
        """Take back the steps of the run."""
        task = change.task
        paused = change.memory.row.state is TaskState.PAUSED
        for queued in self.context.mailbox.queued_messages(task.task_id):
            if queued.of_step and (not paused or queued.step_ref in task.steps_due):
                change.on_applied(self.context.mailbox.remove, queued)
                ending.settled += (queued.seq,)
        running = [turn for turn in task.turns.values() if turn.queued.of_step]
        ending.settled += tuple(turn.seq for turn in running if turn.phase is Phase.MODEL)

    def last(self, change: TaskChange, turn_result: TurnResult | None) -> None:
        """Have callers told how their steps ended, once it is stored."""
        turn, ending = change.turn, change.ending
        if turn is not None and turn.manual is not None and turn_result is not None:
            change.on_applied(self._answer, change, turn, turn.manual, turn_result)
        if ending is not None and change.task.steps_due:
            change.on_applied(self._give_up, change.task, ending.result)

    def stopped(self, task: ActiveTask) -> None:
        """Tell the callers of steps that the runtime stops."""
        for ref in list(task.steps_due):
            self._fail(task, ref, ShuttingDown(task.task_id))

    def _answer(
        self, change: TaskChange, turn: Turn, step: ManualStep, turn_result: TurnResult
    ) -> None:
        """Tell the caller of a turn's step how it ended, when the stored turn has ended it."""
        task, ref = turn.task, step.ref
        if ref not in task.steps_due:
            self._answer_resumer(step, task, turn_result, change.last_event)
        elif turn_result.told is not None:
            self._fail(task, ref, StepFailed(turn_result.told, task.task_id, turn.agent))
        elif turn_result.spoken is not None:
            self._resolve(task, ref, turn_result.spoken.to_wire())
        elif turn_result.completes is not None and change.ending is not None:
            self._resolve(task, ref, change.ending.result.message)
        elif task.open_calls(turn.agent):
            self._fail(task, ref, task.paused_error())

    def _give_up(self, task: ActiveTask, result: RunResult) -> None:
        """Tell the callers of steps that the run ended or pauses before their agents spoke."""
        if result.status is TaskState.PAUSED:
            error: MAILError = task.paused_error()
        else:
            error = TaskError(f"the task is {result.status}; the step ended without an answer")
        for ref in list(task.steps_due):
            self._fail(task, ref, error)

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
            task_id=task.task_id,
            at=told.timestamp,
            body=told.body,
            subject=told.subject,
            message=told.to_wire(),
            status=status,
            reason=reason,
        )
        for waiter in [waiter for waiter in task.waiters if step.ref in waiter.steps]:
            waiter.end(result, last_event)

    def _resolve(self, task: ActiveTask, ref: str, message: MAILMessage) -> None:
        answer = task.steps_due.pop(ref, None)
        if answer is not None and not answer.done():
            answer.set_result(message)

    def _fail(self, task: ActiveTask, ref: str, error: MAILError) -> None:
        answer = task.steps_due.pop(ref, None)
        if answer is not None and not answer.done():
            answer.set_exception(error)
            answer.exception()  # a caller that left already must not cause a warning


@dataclass(slots=True, eq=False)
class ManualSteps:
    """Takes the steps of a driver and waits for the agents' words."""

    context: RuntimeContext
    submissions: Submissions
    turn_end: TurnEnd

    async def step(self, request: StepRequest) -> MAILMessage:
        """Call an agent once, with its tools, and return the message that its words became.

        Raises:
            MAILError: the runtime is not in manual mode.
            ProtocolError, UnknownAgent, ConfigError: the request is wrong; nothing was started.
            TaskPaused: the task waits, or now waits, for the results of breakpoint calls.
            StepFailed: the agent failed; its mail stays buffered.
            TaskError: the task ended before the step did.
        """
        if not self.context.status.manual:
            raise MAILError(
                "manual_step needs manual mode: start the swarm with run_continuous(mode='manual')"
            )
        step = self._read(request)
        answer: asyncio.Future[MAILMessage] = asyncio.get_running_loop().create_future()
        queued = self._queued(request.task_id, request.target, step)
        control = Control(ControlKind.STEP, step=step)
        accepting = asyncio.ensure_future(self.submissions.accept_step(queued, control, answer))
        try:
            await asyncio.shield(accepting)
            return await answer
        except asyncio.CancelledError:
            leaving = self._leave(request.task_id, step.ref, accepting)
            go_on(leaving, self.context.under_way)
            raise

    def _read(self, request: StepRequest) -> ManualStep:
        _check_kinds(request)
        check_task_id(request.task_id)
        if request.response_type not in _TYPES:
            hint = did_you_mean(str(request.response_type), _TYPES)
            raise ProtocolError(
                f"invalid response type: '{request.response_type}'; expected "
                f"one of {', '.join(_TYPES)}."
                f"{hint}"
            )
        if request.response_type != "broadcast" and not request.response_targets:
            raise ProtocolError(
                "response_targets must be provided for non-broadcast response types"
            )
        self._known("agent target", request.target)
        return ManualStep(
            ref=self.context.clock.new_id(),
            response_type=request.response_type,
            targets=self._targets(request),
            payload=request.payload,
            llm=request.llm,
            system=request.system,
            ctx_ratio=request.ctx_ratio,
        )

    def _targets(self, request: StepRequest) -> tuple[str, ...]:
        names = list(request.response_targets or ("all",))
        if "all" in names:
            if request.response_type != "broadcast":
                raise ProtocolError(f"a {request.response_type} goes to named agents, not to 'all'")
            return ("all",)
        known = [self._known("agent response target", name) for name in names]
        others = [name for name in dict.fromkeys(known) if name != request.target]
        if not others:
            raise ProtocolError(f"agent '{request.target}' cannot be its own response target")
        return tuple(others)

    def _known(self, what: str, name: str) -> str:
        local = name if name in self.context.agents else local_agent_name(name, self.context.swarm)
        if local not in self.context.agents:
            hint = did_you_mean(name, self.context.agents)
            raise UnknownAgent(f"unknown {what}: '{name}'" + (f".{hint}" if hint else ""))
        return local

    def _queued(self, task_id: str, target: str, step: ManualStep) -> Envelope:
        composer = self.context.composer
        return composer.message(
            "request",
            task_id,
            composer.system_address,
            [create_agent_address(self._known("agent target", target))],
            Subject.MANUAL_STEP,
            step.payload,
            ref=step.ref,
            routing_info={
                "manual_response_type": step.response_type,
                "manual_response_targets": list(step.targets),
            },
        )

    async def _leave(self, task_id: str, ref: str, accepting: "asyncio.Future[None]") -> None:
        """Take a step back whose caller gave up; once its agent acts it runs to its end."""
        await asyncio.wait([accepting])
        if accepting.exception() is not None:
            return  # it was refused
        task = self.context.active_tasks.get(task_id)
        if task is None or task.steps_due.pop(ref, None) is None:
            return
        task.pins += 1
        try:
            for turn in list(task.turns.values()):
                if turn.queued.step_ref == ref and turn.phase is Phase.MODEL:
                    await self._withdraw(turn)
            for queued in self.context.mailbox.queued_messages(task_id):
                if queued.step_ref == ref and self.context.mailbox.remove(queued):
                    commit = Commit(self.context.owner, task.row, settled=(queued.seq,))
                    async with TaskChange(self.context, task, commit=commit):
                        pass
            await self.turn_end.check(task)  # it may have been the last that held up an end
        except StoreError:  # the runtime stops; a step without a caller is not taken up again
            logger.info("a step of task '%s' could not be withdrawn", task_id)
        finally:
            task.pins -= 1
            self.context.settle(task)
            self.context.wake()

    async def _withdraw(self, turn: Turn) -> None:
        """Cancel the running model call of a step and forget its message."""
        task = turn.task
        task.arriving += 1
        self.turn_end.mail_delivery.abandon(turn)
        events = turn.take_reports()
        commit = TurnCommit(self.context.owner, task.row, seq=turn.seq, events=events)
        try:
            async with TaskChange(self.context, task, commit=commit):
                pass
        finally:
            task.arriving -= 1
            self.turn_end.mail_delivery.end_turn(turn)


def _check_kinds(request: StepRequest) -> None:
    """Refuse what is of the wrong type; the task's id has a check of its own."""
    for name in ("target", "payload", "llm", "system"):
        value = getattr(request, name)
        if not isinstance(value, str) and not (value is None and name in _OPTIONAL):
            raise ProtocolError(f"{name} must be a string, got {type(value).__name__}")
    targets, ratio = request.response_targets, request.ctx_ratio
    if isinstance(targets, str) or not isinstance(targets, Sequence | set | None):
        raise ProtocolError("response_targets must be a list of agent names")
    for name in targets or ():
        if not isinstance(name, str):
            text = (
                f"response_targets must be a list of agent names, got {type(name).__name__} in it"
            )
            raise ProtocolError(text)
    if type(ratio) not in (int, float) or not 0 <= ratio <= 1:
        raise ConfigError(f"dynamic_ctx_ratio must be between 0 and 1, got {ratio!r}")
