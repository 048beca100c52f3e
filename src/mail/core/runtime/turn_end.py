"""The end of a turn: decide what follows from it, in the one change that stores it all.

The same looks after tasks that no turn looks after: those that stand still, pause or end.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from mail.core.addresses import create_agent_address
from mail.core.compose import Subject
from mail.core.envelope import Envelope
from mail.core.runtime.active_tasks import ActiveTask, Turn
from mail.core.runtime.context import RuntimeContext
from mail.core.runtime.delivery import MailDelivery
from mail.core.runtime.endings import Endings
from mail.core.runtime.mailbox import Hold, QueuedMessage
from mail.core.runtime.transaction import TaskChange, log_reports
from mail.core.runtime.turn import Control, ControlKind, Phase
from mail.core.runtime.turn_result import EventDraft, Reprompt, TurnResult
from mail.core.tasks import TaskState
from mail.db.commit import TurnCommit
from mail.db.records import HistoryRow

logger = logging.getLogger(__name__)

_NOTHING_LEFT: Final = "nothing is left to do"
_LIMIT_ENDED: Final = "the step limit ended a run (task_message_limit)"


@dataclass(slots=True, eq=False)
class TurnEnd:
    """Ends turns and watches over the life of their tasks; subjects add what is theirs."""

    context: RuntimeContext
    endings: Endings
    mail_delivery: MailDelivery

    async def commit(self, turn: Turn, turn_result: TurnResult, *, dead: str | None = None) -> None:
        """End a turn.

        Raises:
            StoreConflict: the turn's mail was dropped meanwhile; nothing of the turn is kept.
        """
        turn.phase = Phase.ACTING  # nothing stops it any more
        task, commit = turn.task, TurnCommit(self.context.owner, turn.task.row, seq=turn.seq)
        commit.dead = dead
        async with TaskChange(self.context, task, turn, commit=commit) as change:
            self._conclude(change, commit, turn, turn_result)
            commit.events, commit.memories = tuple(turn_result.events), turn_result.memories
            if turn_result.failure is None and (history := turn_result.history.json):
                commit.histories = (HistoryRow(turn.agent, history),)
        # An interrupt in it may have taken the last running turn away, and its mail may lie
        # in lanes that open breakpoints block.
        if not task.turns and (
            (commit.deliveries and task.calls) or task.pausing or task.exhausted is not None
        ):
            await self.check(task)
            self.context.settle(task)

    def finish(self, change: TaskChange, turn_result: TurnResult | None = None) -> None:
        """Do what follows from all decisions of a change, last of all.

        Args:
            change: The change; its ``ending`` ends a run.
            turn_result: That of the turn that ends with it.
        """
        ending = change.ending
        if ending is not None:
            change.on_applied(self.endings.announce, change, ending)
            self._close(change)
            if ending.result.ended_by:
                known = {"task_id": change.task.task_id, "limit": change.task.row.max_steps}
                change.on_applied(partial(logger.warning, _LIMIT_ENDED, extra=known))
        self.context.subjects.last(change, turn_result)

    async def unwanted(self, turn: Turn) -> bool:
        """Consume a turn's mail if nobody wants the turn any more; tell whether that is so."""
        if not self.context.subjects.unwanted(turn):
            return False
        commit = TurnCommit(self.context.owner, turn.task.row, seq=turn.seq)
        async with TaskChange(self.context, turn.task, commit=commit):
            pass
        await self.drop(turn)
        return True

    async def stopped_by_limit(self, turn: Turn) -> bool:
        """Apply the step limit before a turn (MAIL-TASK-14); True when the turn must not happen."""
        task = turn.task
        limit = task.row.max_steps
        if limit is None or turn.manual or task.steps < max(limit, 1):
            return False
        if turn.queued.finish or turn.queued.filed or turn.queued.decided:
            return False
        async with TaskChange(self.context, task, turn) as change:
            change.on_applied(partial(self.mail_delivery.end_turn, turn, put_back=True))
            limit = change.memory.row.max_steps  # it may be another run's by now
            if limit is not None and task.steps >= max(limit, 1):
                change.on_applied(self.context.mailbox.hold, task.task_id)
                self._stop_at_limit(change)
        return True

    def _stop_at_limit(self, change: TaskChange) -> None:
        memory = change.memory
        if memory.row.state is TaskState.PAUSED:
            self._look_after(change)
        elif memory.row.state is TaskState.RUNNING and not memory.row.finish_asked:
            if memory.open_calls(self.context.parts.finisher):  # these have to be answered before
                self.endings.hold(change)
                self._look_after(change)
            else:
                self.endings.ask_to_finish(change, "limit")
        elif memory.row.state is TaskState.RUNNING and memory.finish is None:
            self.endings.with_what_there_is(change)
        if change.ending is not None:
            self.finish(change)

    async def refuse(self, turn: Turn, reason: str) -> None:
        """Let a turn not happen because the task's budget is used up, and end the task.

        No turn begins any more, but those that run, or ran when a process died, go on to their
        commits; one of them may still finish the task. Else it fails when the last has ended.
        """
        task = turn.task
        turn.queued.filed = False  # its journal has no reply
        async with TaskChange(self.context, task, turn) as change:
            if task.row.state.is_open:
                change.memory.exhausted = reason
                change.on_applied(self.context.mailbox.hold, task.task_id, Hold.BEGUN)
            change.on_applied(partial(self.mail_delivery.end_turn, turn, put_back=True))
        await self.check(task)
        self.context.settle(task)

    async def drop(self, turn: Turn) -> None:
        """Forget a turn whose mail is not there any more."""
        task = turn.task
        if turn.abandoned:  # with its task
            return
        if task.finish is turn.queued and not task.void:
            async with TaskChange(self.context, task) as change:
                change.memory.finish = None
        self.mail_delivery.end_turn(turn)
        await self.check(task)
        self.context.settle(task)

    async def put_off(self, turn: Turn, seconds: float) -> None:
        """Return a turn's mail to its lane after a while; its slot is free until then."""
        task, queued = turn.task, turn.queued
        await log_reports(self.context, turn)
        self.mail_delivery.unbuffer(turn)
        task.arriving += 1
        task.away.append(turn.agent)
        task.turns.pop(turn.agent, None)
        if not (queued.goes_on or queued.decided):  # else no other turn of the agent comes between
            self.context.mailbox.release(turn.queued.lane)
        asyncio.get_running_loop().call_later(seconds, self._come_back, task, queued)
        await self.check(task)

    async def check(self, task: ActiveTask) -> None:
        """Look after a task that no turn will look after: finish or pause it when it is stuck."""
        if task.void:
            return
        if not (self.context.subjects.watches(task) or self._is_to_be_looked_after(task)):
            return
        async with TaskChange(self.context, task) as change:
            if self._is_to_be_looked_after(task):
                self._look_after(change)
            self.finish(change)

    def _is_to_be_looked_after(self, task: ActiveTask) -> bool:
        running = task.row.state is TaskState.RUNNING and task.loaded
        return not task.turns and (running or task.row.state is TaskState.PAUSED)

    def _close(self, change: TaskChange) -> None:
        """Stop all work on a task that is not open any more; its mail stays in the store.

        Model calls that were reported by turns which end here are told of.
        """
        task, memory = change.task, change.memory
        others = [turn for turn in task.turns.values() if turn is not change.turn]
        if memory.row.state.is_open:  # what belongs to the run that has ended is stopped
            others = [
                turn
                for turn in others
                if (turn.queued.finish and turn.queued is not memory.finish) or turn.queued.of_step
            ]
            if memory.row.state is TaskState.RUNNING:
                change.on_applied(self.context.mailbox.unhold, task.task_id)
        else:
            change.on_applied(self.context.mailbox.drop, task.task_id)
            change.on_applied(setattr, task, "loaded", False)
        for turn in others:
            if turn.phase is Phase.MODEL:
                change.mail.events.extend(turn.reports)
            change.on_applied(self._stop, turn)

    def _stop(self, turn: Turn) -> None:
        """Cancel a turn whose model has not replied yet; a cancelled task is not gone on with."""
        turn.void = turn.void or turn.task.row.state is TaskState.CANCELLED
        if turn.phase is not Phase.MODEL or turn.task.turns.get(turn.agent) is not turn:
            return
        turn.reports.clear()
        self.mail_delivery.abandon(turn)
        self.mail_delivery.end_turn(turn)

    def _conclude(
        self, change: TaskChange, commit: TurnCommit, turn: Turn, turn_result: TurnResult
    ) -> None:
        memory = change.memory
        change.on_applied(self._note_stored, change, turn, turn_result, commit)
        change.read.add(turn.envelope.id)
        if turn.buffered and turn_result.failure is None:
            commit.settled = tuple(queued.seq for queued in turn.buffered)
            change.read.update(queued.envelope.id for queued in turn.buffered)
        self.context.subjects.concluded(change, turn, turn_result)
        memory.change(steps=memory.row.steps + turn.counted)
        memory.note_read(turn, turn_result.handled)
        if turn_result.mail and memory.row.state is not TaskState.CANCELLED:
            for envelope in turn_result.mail:
                sent = self.mail_delivery.send(change.mail, envelope)
                if envelope is turn_result.spoken:
                    turn_result.spoken = sent
        # A request to finish is late when the run has ended otherwise.
        late = turn.queued.finish and turn.queued is not memory.finish
        memory.finish = None if memory.finish is turn.queued else memory.finish
        if memory.row.state.is_open and not late:
            follow_up = self._decide(change, turn, turn_result)
        else:
            follow_up = self._for_the_next_run(change, turn, turn_result)
        if memory.row.state.is_open and change.ending is None:
            self._look_after(change, follows=follow_up is not None)
        if follow_up is not None and not self._cuts_off(change, turn):
            self.mail_delivery.send(change.mail, *follow_up)
        self.finish(change, turn_result)

    def _note_stored(
        self, change: TaskChange, turn: Turn, turn_result: TurnResult, commit: TurnCommit
    ) -> None:
        """Note that the store has what a turn has done."""
        task, lane = turn.task, turn.queued.lane
        task.run.count(turn.agent, failed=turn_result.failure is not None)
        for waiter in task.waiters:
            waiter.consumed = waiter.consumed or waiter.message_id in change.read
        if turn_result.failure is None:
            self.context.histories.append(
                lane, turn_result.history.entries, turn_result.history.written
            )
        task.out.difference_update((turn.seq, *commit.settled))
        if turn.buffered:
            turn.buffered = [mail for mail in turn.buffered if mail.seq not in commit.settled]
            self.mail_delivery.unbuffer(turn)
        self.context.mailbox.release(lane)

    def _decide(
        self, change: TaskChange, turn: Turn, turn_result: TurnResult
    ) -> tuple[Envelope, Control] | None:
        """Decide how the turn ends; return the message that calls the agent again, if any does."""
        if turn_result.failure is not None:
            self._report(change, turn, turn_result, turn_result.failure)
        elif turn_result.completes is not None:
            answer, limit = turn_result.completes, turn.at_limit
            self.endings.complete(change, answer, by=turn.agent, at_limit=limit)
        elif turn.at_limit:
            self.endings.with_what_there_is(change, turn.agent)
        elif self.context.subjects.pauses(change, turn, turn_result):
            return None
        elif turn_result.reprompts:
            notice, instruction = self._follow_up(turn, turn_result.reprompts)
            if notice is not None:
                return notice, instruction
            self._report(change, turn, turn_result, instruction.reason)
        return None

    def _for_the_next_run(
        self, change: TaskChange, turn: Turn, turn_result: TurnResult
    ) -> tuple[Envelope, Control] | None:
        """The run ended while the agent acted: it sees its results when the task goes on."""
        if turn_result.paused or not turn_result.reprompts or turn.manual is not None:
            return None
        if change.memory.row.state is TaskState.CANCELLED:
            return None
        notice, instruction = self._follow_up(turn, turn_result.reprompts)
        return None if notice is None else (notice, instruction)

    def _follow_up(
        self, turn: Turn, prompts: Sequence[Reprompt]
    ) -> tuple[Envelope | None, Control]:
        """Return the one message that calls the agent again after its tools.

        Errors outrank successes. When the agent has used up its repair turns there is no message,
        and the control's reason says what went wrong.
        """
        errors = [prompt for prompt in prompts if prompt.error]
        chosen, settings = errors or list(prompts), self.context.settings
        kind, attempt = ControlKind.FOLLOW_UP, 0
        if errors:
            kind = ControlKind.REPAIR
            tried = turn.control
            attempt = 1 + (tried.attempt if tried and tried.kind is ControlKind.REPAIR else 0)
            if attempt > settings.max_repairs:
                why = "\n".join(dict.fromkeys(prompt.reason or prompt.body for prompt in chosen))
                return None, Control(kind, reason=f"its tool calls kept failing: {why}")
        step = turn.manual
        if step is not None:
            if step.calls >= settings.max_step_calls:
                why = f"it was called {step.calls} times but gave no answer"
                return None, Control(kind, reason=why)
            step = step._replace(calls=step.calls + 1)
        notice = self.context.composer.message(
            chosen[0].kind,
            turn.task.task_id,
            self.context.composer.system_address,
            [create_agent_address(turn.agent)],
            chosen[0].subject,
            "\n".join(dict.fromkeys(prompt.body for prompt in chosen)),
            ref=turn.next_id(),
            message_id=turn.next_id(),
        )
        return notice, Control(kind, attempt=attempt, origin=turn.origin, step=step)

    def _cuts_off(self, change: TaskChange, turn: Turn) -> bool:
        """Tell whether the end of a run cuts a step off: it does not go on behind its driver."""
        step = turn.manual
        return change.ending is not None and step is not None and step.ref in turn.task.steps_due

    def _report(self, change: TaskChange, turn: Turn, turn_result: TurnResult, reason: str) -> None:
        """Tell whoever the agent works for that it failed (MAIL-TURN-16)."""
        known = {"agent": turn.agent, "task_id": turn.task.task_id, "reason": reason}
        logger.warning("agent failed", extra=known)
        named = f"agent '{turn.agent}'" in reason
        told = turn_result.told = reason if named else f"agent '{turn.agent}' failed: {reason}"
        error = EventDraft(
            "agent_error", f"error of agent {turn.agent}: {reason}", {"caller": turn.agent}
        )
        turn_result.events.append(error.row(change.mail.moment))
        if self.context.subjects.failed(change, turn, reason):
            return
        origin = turn.origin
        if origin is None or origin.is_person or origin.address not in self.context.agents:
            self.endings.fail(change, told, at_limit=turn.at_limit)
            return
        notice = self.context.composer.notice(
            turn.task.task_id,
            origin.address,
            Subject.AGENT_ERROR,
            f"Agent '{turn.agent}' failed and cannot answer your message: {reason}",
        )
        self.mail_delivery.send(change.mail, notice, Control(ControlKind.NOTICE))

    # --- tasks that no turn looks after -------------------------------------------------------

    def _look_after(self, change: TaskChange, *, follows: bool = False) -> None:
        """Decide what becomes of a task without turns; ``follows`` tells that one will follow."""
        task, memory = change.task, change.memory
        if change.others:
            return
        if memory.exhausted is not None:
            if not self.context.mailbox.begun(task.task_id):
                self.endings.fail(change, memory.exhausted, over_budget=True)
            return
        if memory.row.state is TaskState.PAUSED:
            self.context.subjects.paused(change)
            return
        stuck = sum(bool(memory.asked_calls(agent)) for agent in task.away) if task.away else 0
        coming = task.arriving > stuck or change.mail.queued_messages or follows
        if not (coming or self.context.mailbox.workable(task.task_id)):
            self._stand_still(change)

    def _stand_still(self, change: TaskChange) -> None:
        """Decide what becomes of a task in which nothing happens any more."""
        memory = change.memory
        if self.context.subjects.idle(change):
            return
        elsewhere = memory.host or memory.guest
        if memory.guest and memory.handled:
            self.endings.complete(change, _NOTHING_LEFT)
        elif change.is_owed if elsewhere else memory.row.awaited:
            self.endings.rouse(change)
        elif elsewhere:
            self.endings.complete(change, _NOTHING_LEFT)

    def _come_back(self, task: ActiveTask, queued: QueuedMessage) -> None:
        task.arriving -= 1
        task.away.remove(queued.delivery.recipient)
        self.mail_delivery.put_back(task, queued)
        if queued.goes_on or queued.decided:
            self.context.mailbox.release(queued.lane)
        self.context.settle(task)  # when the task was closed meanwhile
        self.context.wake()
