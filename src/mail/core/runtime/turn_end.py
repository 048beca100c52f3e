"""The end of a turn: decide what follows from it, in the one change that stores it all.

The same looks after tasks that no turn looks after: those that stand still, pause or end.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from mail.core.addresses import MAILAddress, create_agent_address
from mail.core.compose import Subject
from mail.core.envelope import Envelope
from mail.core.runtime.active_tasks import ActiveTask, TaskMemory, Turn
from mail.core.runtime.context import RuntimeContext
from mail.core.runtime.correspondence import letters_in
from mail.core.runtime.delivery import MailDelivery
from mail.core.runtime.endings import Endings
from mail.core.runtime.held_calls import UNANSWERED, accepted_call, open_rows
from mail.core.runtime.mailbox import Hold, LaneKey, QueuedMessage
from mail.core.runtime.manual_replies import ManualReplies
from mail.core.runtime.peering import swarm_of, with_reports
from mail.core.runtime.system_messages import SystemMessages, note_failure
from mail.core.runtime.teams import NOT_OPENED, TeamWait, read_waits
from mail.core.runtime.transaction import Ending, TaskChange, log_reports
from mail.core.runtime.turn import Control, ControlKind, Origin, Phase
from mail.core.runtime.turn_result import EventDraft, TurnResult
from mail.core.runtime.wait_hints import WaitHints
from mail.core.runtime.waiting import Report, acting, stuck, wait_cycle
from mail.core.tasks import TaskState
from mail.db.calls import CallRow
from mail.db.desk import ShownRow
from mail.db.post import TurnCommit
from mail.db.records import HistoryRow, OutboxRow
from mail.errors import StoreError

logger = logging.getLogger(__name__)

_OPEN: Final = (TaskState.RUNNING, TaskState.PAUSED)
_LIMIT_ENDED: Final = "the step limit ended a run (task_message_limit)"
_NO_RESULTS: Final = (
    "an agent called a breakpoint tool, and a participant cannot give the result of such a call"
)


@dataclass(slots=True, eq=False)
class TurnEnd:
    """Commits turns and watches over the life of their tasks."""

    context: RuntimeContext
    endings: Endings
    mail_delivery: MailDelivery
    system_messages: SystemMessages
    steps: ManualReplies
    hints: WaitHints
    timed_out: "set[asyncio.Future[None]]" = field(default_factory=set)

    async def commit(self, turn: Turn, turn_result: TurnResult, *, dead: str | None = None) -> None:
        """End a turn.

        Raises:
            StoreConflict: the turn's mail was dropped meanwhile; nothing of the turn is kept.
        """
        turn.phase = Phase.ACTING  # nothing stops it any more
        task, post = turn.task, TurnCommit(self.context.owner, turn.task.row, seq=turn.seq)
        post.dead = dead
        async with TaskChange(self.context, task, turn, post=post) as change:
            self._conclude(change, post, turn, turn_result)
            post.events, post.memories = tuple(turn_result.events), turn_result.memories
            if turn_result.failure is None and (history := turn_result.history.json):
                post.histories = (HistoryRow(turn.agent, history),)
        # An interrupt in it may have taken the last running turn away, and its mail may lie
        # in lanes that open breakpoints block.
        if not task.turns and (
            (post.deliveries and task.calls) or task.pausing or task.exhausted is not None
        ):
            await self.check(task)
            self.context.settle(task)

    def end(
        self, change: TaskChange, ending: Ending, turn_result: TurnResult | None = None
    ) -> None:
        """Let a change end a run; ``turn_result`` is that of its turn, if one ends with it."""
        change.ending = ending
        change.on_applied(self.endings.announce, change, ending)
        for row in ending.histories:  # agents go on whose open calls it has answered
            change.on_applied(self._reopen, change.task, row.agent)
        self._close(change)
        if turn_result is not None:
            change.on_applied(self.steps.answer, change, turn_result)
        if change.task.steps_due:
            change.on_applied(self.steps.give_up, change.task, ending.result)
        if ending.result.ended_by:
            known = {"task_id": change.task.task_id, "limit": change.task.row.max_steps}
            change.on_applied(partial(logger.warning, _LIMIT_ENDED, extra=known))

    def _reopen(self, task: ActiveTask, agent: str) -> None:
        task.fresh = False  # the store knows more of its history than there is here
        self.context.histories.forget(task.task_id, agent)
        self.context.mailbox.unblock(LaneKey(task.task_id, agent))

    async def forsaken(self, turn: Turn) -> bool:
        """Consume a manual step that nobody waits for any more; True when it was one."""
        queued, task = turn.queued, turn.task
        if (
            not queued.of_step
            or queued.goes_on
            or queued.filed
            or queued.step_ref in task.steps_due
        ):
            return False
        post = TurnCommit(self.context.owner, task.row, seq=turn.seq)
        async with TaskChange(self.context, task, post=post):
            pass
        await self.drop(turn)
        return True

    async def stopped_by_limit(self, turn: Turn) -> bool:
        """Apply the step limit before a turn (MAIL-TASK-14); True when the turn must not happen."""
        task = turn.task
        limit = task.row.max_steps
        if limit is None or turn.manual or task.steps < max(limit, 1):
            return False
        if turn.finishing or turn.queued.filed or turn.decided:
            return False
        async with TaskChange(self.context, task, turn) as change:
            change.on_applied(self.step_back, turn)
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
            self._ask_to_finish(change)
        elif memory.row.state is TaskState.RUNNING and memory.finish is None:
            change.ending = self.system_messages.what_there_is(change, self.endings)
        if change.ending is not None:
            self.end(change, change.ending)

    async def refuse(self, turn: Turn, reason: str) -> None:
        """Let a turn not happen because the task's budget is used up, and end the task.

        No turn begins any more, but those that run, or ran when a process died, go on to their
        commits; one of them may still finish the task. Else it fails when the last has ended.
        """
        task = turn.task
        turn.queued.filed = False  # its journal has no reply
        async with TaskChange(self.context, task, turn) as change:
            if task.row.state in _OPEN:
                change.memory.exhausted = reason
                change.on_applied(self.context.mailbox.hold, task.task_id, Hold.BEGUN)
            change.on_applied(self.step_back, turn)
        await self.check(task)
        self.context.settle(task)

    def hold_at_limit(self, task: ActiveTask) -> None:
        """Hold a task again that its finisher was asked to end before a restart."""
        limit = task.row.max_steps
        if limit is not None and task.row.steps >= limit and task.finish is not None:
            self.context.mailbox.hold(task.task_id)

    async def bury(self, turn: Turn) -> None:
        """Put mail aside that killed the process again and again."""
        turn_result = TurnResult(turn.task.now)
        failure = (
            f"the server crashed {self.context.settings.max_attempts} times while agent "
            f"'{turn.agent}' worked on this message"
        )
        text = f"mail {turn.seq} of agent {turn.agent} is set aside: {failure}"
        told = {"caller": turn.agent, "number": turn.seq, "reason": failure}
        turn_result.log("mail_set_aside", text, **told)
        if turn.decided:
            turn_result.give_up(accepted_call(turn), failure)
        else:
            turn_result.failure = failure
        await self.commit(turn, turn_result, dead=failure)

    async def drop(self, turn: Turn) -> None:
        """Forget a turn whose mail is not there any more."""
        task = turn.task
        if task.finish is turn.queued and not task.deleted:
            async with TaskChange(self.context, task) as change:
                change.memory.finish = None
        task.turns.pop(turn.agent, None)
        task.out.discard(turn.seq)
        self.mail_delivery.unbuffer(turn)
        self.context.mailbox.release(turn.queued.lane)
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
        if task.deleted or (task.peering is None and not self._is_to_be_looked_after(task)):
            return
        async with TaskChange(self.context, task) as change:
            if self._is_to_be_looked_after(task):
                self._look_after(change)
                if change.ending is not None:
                    self.end(change, change.ending)
            self.tell_peers(change)

    def _is_to_be_looked_after(self, task: ActiveTask) -> bool:
        running = task.row.state is TaskState.RUNNING and task.loaded
        return not task.turns and (running or task.row.state is TaskState.PAUSED)

    def runs_calls(self, task: ActiveTask) -> bool:
        """Tell whether accepted calls of a task run, or wait for that."""
        if any(turn.runs for turn in task.turns.values()):
            return True
        waiting = self.context.mailbox.decided(task.task_id)
        return any(queued.control and queued.control.call for queued in waiting)

    def _close(self, change: TaskChange) -> None:
        """Stop all work on a task that is not open any more; its mail stays in the store.

        Model calls that were reported by turns which end here are told of.
        """
        task, memory = change.task, change.memory
        others = [turn for turn in task.turns.values() if turn is not change.turn]
        if memory.row.state in _OPEN:  # what belongs to the run that has ended is stopped
            others = [
                turn
                for turn in others
                if (turn.finishing and turn.queued is not memory.finish) or turn.queued.of_step
            ]
            if memory.row.state is TaskState.RUNNING:
                change.on_applied(self.context.mailbox.unhold, task.task_id)
        else:
            change.on_applied(self._let_go_of_mail, task)
        for turn in others:
            if turn.phase is Phase.MODEL:
                change.mail.events.extend(turn.reports)
            change.on_applied(self._stop, turn)

    def _let_go_of_mail(self, task: ActiveTask) -> None:
        self.context.mailbox.drop(task.task_id)
        task.loaded = False

    def _stop(self, turn: Turn) -> None:
        """Cancel a turn whose model has not replied yet; a cancelled task is not gone on with."""
        turn.void = turn.void or turn.task.row.state is TaskState.CANCELLED
        if turn.phase is not Phase.MODEL or turn.task.turns.get(turn.agent) is not turn:
            return
        turn.reports.clear()
        self.mail_delivery.abandon(turn)
        turn.task.out.discard(turn.seq)
        self.mail_delivery.unbuffer(turn)
        self.context.mailbox.release(turn.queued.lane)

    def step_back(self, turn: Turn) -> None:
        """Return the message of a turn that does not happen to its place."""
        turn.task.turns.pop(turn.agent, None)
        self.mail_delivery.put_back(turn.task, turn.queued)
        self.mail_delivery.unbuffer(turn)
        self.context.mailbox.release(turn.queued.lane)

    def _conclude(
        self, change: TaskChange, post: TurnCommit, turn: Turn, turn_result: TurnResult
    ) -> None:
        memory = change.memory
        change.on_applied(self._note_stored, turn, turn_result, post)
        self._consume(change, post, turn, turn_result)
        memory.change(steps=memory.row.steps + turn.counted)
        memory.note_read(turn, turn_result.handled)
        if turn.control is not None:
            self._note_run(change, post, turn, turn_result)
        if turn_result.mail and memory.row.state is not TaskState.CANCELLED:
            self._send(change, turn_result)
        late = turn.finishing and turn.queued is not memory.finish  # the run has ended otherwise
        if turn_result.waits:
            self._begin_waits(change, post, turn, turn_result, late=late)
        memory.finish = None if memory.finish is turn.queued else memory.finish
        if memory.row.state in _OPEN and not late:
            follow_up = self._decide(change, post, turn, turn_result)
        else:
            follow_up = self._for_the_next_run(change, turn, turn_result)
        if memory.row.state in _OPEN and change.ending is None:
            self._look_after(change, follows=follow_up is not None)
        if follow_up is not None and not self._cuts_off(change, turn):
            self.mail_delivery.send(change.mail, *follow_up)
        if turn_result.paused and not any(row.is_asked for row in post.calls):
            turn_result.close_paused(UNANSWERED)
        if change.ending is not None:
            self.end(change, change.ending, turn_result)
        elif turn.manual is not None:
            change.on_applied(self.steps.answer, change, turn_result)
        self.tell_peers(change)

    def _note_stored(self, turn: Turn, turn_result: TurnResult, post: TurnCommit) -> None:
        """Note that the store has what a turn has done."""
        task, lane = turn.task, turn.queued.lane
        read = {turn.envelope.id, *(m.envelope.id for m in turn.buffered if m.seq in post.settled)}
        for waiter in task.waiters:
            waiter.consumed = waiter.consumed or waiter.message_id in read
        if turn_result.failure is None:
            self.context.histories.append(
                lane, turn_result.history.entries, turn_result.history.written
            )
        task.out.difference_update((turn.seq, *post.settled))
        if turn.buffered:
            turn.buffered = [mail for mail in turn.buffered if mail.seq not in post.settled]
            self.mail_delivery.unbuffer(turn)
        self.context.mailbox.release(lane)

    def _send(self, change: TaskChange, turn_result: TurnResult) -> None:
        for envelope in turn_result.mail:
            sent = self.mail_delivery.send(change.mail, envelope)
            if envelope is turn_result.spoken:
                turn_result.spoken = sent

    def _note_run(
        self, change: TaskChange, post: TurnCommit, turn: Turn, turn_result: TurnResult
    ) -> None:
        """Note the result of an accepted call, unless the call was closed meanwhile."""
        accepted, memory = accepted_call(turn), change.memory
        if turn.decided:
            change.on_applied(self._unblock_if_ended, change)
        if accepted is None or not turn_result.history.entries:
            return
        entry = turn_result.history.entries[-1]
        answered = accepted[0]._replace(answer=str(entry.get("content", entry.get("output", ""))))
        memory.put(answered)
        post.calls = (answered,)
        goes_on = memory.row.state in _OPEN and turn_result.completes is None
        if goes_on and not memory.open_calls(turn.agent):
            self._wake(change, turn, answered)

    def _unblock_if_ended(self, change: TaskChange) -> None:
        if change.turn is not None and change.ending is not None:
            self.context.mailbox.unblock(change.turn.queued.lane)

    def _wake(self, change: TaskChange, turn: Turn, call: CallRow) -> None:
        """Let an agent go on whose last call has its result now."""
        memory, mailbox = change.memory, self.context.mailbox
        self.mail_delivery.instruct(change.mail, turn.agent, Control.from_json(call.control))
        change.on_applied(mailbox.unblock, turn.queued.lane)
        if memory.row.state is TaskState.PAUSED:  # another agent's calls wait since it was accepted
            memory.change(state=TaskState.RUNNING)
            memory.pausing = False
            change.on_applied(mailbox.unhold, memory.task_id)

    def tell_peers(self, change: TaskChange) -> None:
        """Let mail of a change, and hints, tell other swarms if nothing goes on here with it."""
        peering, ending = change.memory.peering, change.ending
        if peering is None or not self._is_idle(change):
            return
        own = peering.latest(change.memory.report(str(self.context.owner), owed=change.is_owed))
        reports = peering.reports(own)
        change.mail.outbox = self._telling(change, change.mail.outbox, reports)
        if ending is not None:
            ending.outbox = self._telling(change, ending.outbox, reports)
        change.on_applied(self.hints.tell, change.task, own)

    def _telling(
        self, change: TaskChange, rows: Sequence[OutboxRow], reports: Sequence[Report]
    ) -> tuple[OutboxRow, ...]:
        """Return mail of which the last one for each swarm takes reports along."""
        told = list(rows)
        for peer, number in {row.peer: number for number, row in enumerate(rows)}.items():
            told[number] = with_reports(told[number], reports)
            change.on_applied(change.memory.peers().rides, peer, reports)
        return tuple(told)

    def _is_idle(self, change: TaskChange) -> bool:
        """Tell whether only mail of other swarms can make anything happen after a change."""
        task, memory, mail = change.task, change.memory, change.mail
        if change.others or task.arriving or memory.waits or change.unread:
            return False
        if mail.queued_messages or memory.open_calls() or self.context.status.manual:
            return False
        if memory.waits_for_participants():
            return False
        if memory.row.state in _OPEN:
            waits = task.loaded and memory.row.state is TaskState.RUNNING and change.ending is None
            return waits and not self.context.mailbox.waiting(task.task_id)
        return bool(memory.host and memory.peering and not memory.peering.closed)

    def _consume(
        self, change: TaskChange, post: TurnCommit, turn: Turn, turn_result: TurnResult
    ) -> None:
        """Note whose mail the turn answers: its own, and what a manual step has shown its agent."""
        change.read.add(turn.envelope.id)
        if turn_result.failure is not None:
            return
        if self.context.parts.participants:
            post.shown = self._shown_letters(change, turn)
        if turn.buffered:
            post.settled = tuple(queued.seq for queued in turn.buffered)
            change.read.update(queued.envelope.id for queued in turn.buffered)

    def _shown_letters(self, change: TaskChange, turn: Turn) -> tuple[ShownRow, ...]:
        """Return the letters whose messages the agent's history has from this turn on."""
        memory, read = change.memory, (turn.envelope, *(each.envelope for each in turn.buffered))
        letters = [
            letter_id
            for envelope in read
            for letter_id in letters_in(envelope, self.context.parts.participants)
        ]
        letters += turn.control.letters if turn.control else ()
        letters += memory.replies.get(turn.agent, ())
        if turn.agent in memory.replies:
            memory.replies = {k: ids for k, ids in memory.replies.items() if k != turn.agent}
        number, now = memory.row.steps + 1, self.context.clock.now()
        return tuple(ShownRow(each, turn.agent, number, now) for each in letters)

    def _decide(
        self, change: TaskChange, post: TurnCommit, turn: Turn, turn_result: TurnResult
    ) -> tuple[Envelope, Control] | None:
        """Decide how the turn ends; return the message that calls the agent again, if any does."""
        if turn_result.failure is not None:
            self._report(change, turn, turn_result, turn_result.failure)
        elif turn_result.completes is not None:
            change.ending = self.endings.complete(change, turn, turn_result.completes)
        elif turn.at_limit:
            change.ending = self.system_messages.what_there_is(change, self.endings, turn)
        elif turn_result.paused and change.memory.exhausted is None:
            self._open_calls(change, post, turn, turn_result)
        elif turn_result.reprompts:
            notice, instruction = self.system_messages.follow_up(turn, turn_result.reprompts)
            if notice is not None:
                return notice, instruction
            self._report(change, turn, turn_result, instruction.reason)
        return None

    def _open_calls(
        self, change: TaskChange, post: TurnCommit, turn: Turn, turn_result: TurnResult
    ) -> None:
        """Pause the task on the calls of a turn that wait for somebody's answer."""
        calls, events = open_rows(turn, turn_result, self.context)
        post.calls += calls
        turn_result.events += [event.row(change.mail.moment) for event in events]
        change.memory.put(*calls)
        change.on_applied(self.context.mailbox.block, turn.queued.lane)
        if any(row.expires_at for row in calls):
            change.on_applied(self.context.on_deadline)
        self.pause(change)

    # --- waiting for teammates ------------------------------------------------------------------

    def _begin_waits(
        self,
        change: TaskChange,
        post: TurnCommit,
        turn: Turn,
        turn_result: TurnResult,
        *,
        late: bool,
    ) -> None:
        """Let the agent wait for replies, if the run goes on and nothing more urgent has come."""
        memory, key = change.memory, turn.queued.lane
        goes_on = memory.row.state in _OPEN and turn_result.completes is None
        if not goes_on or late or memory.exhausted is not None:
            turn_result.close_waits("ended")
        elif self.context.mailbox.presses(key):
            turn_result.close_waits(NOT_OPENED)
        else:
            control = Control(ControlKind.RESUME, origin=turn.origin)
            for call, draft in turn_result.waits:
                wait = TeamWait.begin(turn.agent, call, draft, control, now=memory.now())
                memory.waits = memory.waits | {wait.key: wait}
                post.calls += (wait.row,)
                change.on_applied(self._start, wait, change.task)
            change.on_applied(self.context.mailbox.block, key)
            # The wait's end calls the agent again, which sees its other results then; help is mail.
            turn_result.reprompts = tuple(
                one for one in turn_result.reprompts if one.error or one.kind == "broadcast"
            )

    def restore_waits(self, task: ActiveTask, rows: Sequence[CallRow]) -> None:
        """Take up the open waits of a task from the store."""
        task.waits = {wait.key: wait for wait in read_waits(rows)}
        for wait in task.waits.values():
            self._start(wait, task)

    def _start(self, wait: TeamWait, task: ActiveTask) -> None:
        if task.waits.get(wait.key) is wait:  # else the run has ended with the same change
            seconds = wait.remaining(self.context.clock.now())
            loop = asyncio.get_running_loop()
            wait.timer = loop.call_later(seconds, self._time_is_up, task, wait)

    def _time_is_up(self, task: ActiveTask, wait: TeamWait) -> None:
        work = asyncio.ensure_future(self._expire(task, wait))
        self.timed_out.add(work)
        work.add_done_callback(self.timed_out.discard)

    async def _expire(self, task: ActiveTask, wait: TeamWait) -> None:
        """End a wait whose time is up."""
        async with task.order.door:  # not while the task's mail is read back
            if self.context.status.draining or task.deleted:
                return
            try:
                async with TaskChange(self.context, task) as change:
                    if change.memory.waits.get(wait.key) is wait:
                        self.mail_delivery.answer(change.mail, wait, wait.draft.result("timeout"))
            except StoreError as error:  # the runtime stops, or the task was deleted
                logger.info("a wait for a teammate could not be ended: %s", error)
                return
        await self.check(task)
        self.context.settle(task)

    def _for_the_next_run(
        self, change: TaskChange, turn: Turn, turn_result: TurnResult
    ) -> tuple[Envelope, Control] | None:
        """The run ended while the agent acted: it sees its results when the task goes on."""
        if turn_result.paused or not turn_result.reprompts or turn.manual is not None:
            return None
        if change.memory.row.state is TaskState.CANCELLED:
            return None
        notice, instruction = self.system_messages.follow_up(turn, turn_result.reprompts)
        return None if notice is None else (notice, instruction)

    def _cuts_off(self, change: TaskChange, turn: Turn) -> bool:
        """Tell whether the end of a run cuts a step off: it does not go on behind its driver."""
        step = turn.manual
        return change.ending is not None and step is not None and step.ref in turn.task.steps_due

    def pause(self, change: TaskChange) -> None:
        """Start no more turns; the pause is told when those that run have ended (MAIL-BRK-2)."""
        change.memory.change(state=TaskState.PAUSED, awaited=True)
        change.memory.pausing = True
        change.on_applied(self.context.mailbox.hold, change.task.task_id, Hold.FIRM)

    def _report(self, change: TaskChange, turn: Turn, turn_result: TurnResult, reason: str) -> None:
        """Tell whoever the agent works for that it failed (MAIL-TURN-16)."""
        told = turn_result.told = note_failure(turn, reason)
        error = EventDraft(
            "agent_error", f"error of agent {turn.agent}: {reason}", {"caller": turn.agent}
        )
        turn_result.events.append(error.row(change.mail.moment))
        if turn.manual is not None:
            return  # its driver is told
        origin = turn.origin
        if origin is not None and self._report_away(change, turn, origin, reason):
            return
        if origin is None or origin.is_person or origin.address not in self.context.agents:
            change.ending = self.endings.fail(change, told, at_limit=turn.at_limit)
            return
        if self.mail_delivery.fail_wait(change.mail, origin.address, turn.agent, reason):
            return
        notice = self.context.composer.notice(
            turn.task.task_id,
            origin.address,
            Subject.AGENT_ERROR,
            f"Agent '{turn.agent}' failed and cannot answer your message: {reason}",
        )
        self.mail_delivery.send(change.mail, notice, Control(ControlKind.NOTICE))

    def _report_away(self, change: TaskChange, turn: Turn, origin: Origin, reason: str) -> bool:
        """Tell an agent of another swarm, if it is one, that its request cannot be answered."""
        asker: MAILAddress = {"address_type": "agent", "address": origin.address}
        if (
            origin.address_type != "agent"
            or not swarm_of(asker)
            or self.context.outside.gateway is None
        ):
            return False
        if origin.ref in change.memory.asks.refs(origin.address, turn.agent):
            answer = self.context.composer.message(
                "response",
                turn.task.task_id,
                create_agent_address(turn.agent),
                [asker],
                Subject.AGENT_ERROR,
                f"Agent '{turn.agent}' failed and cannot answer your message: {reason}",
                ref=origin.ref,
                message_id=turn.next_id(),
            )
            self.mail_delivery.send(change.mail, answer)
        return True

    # --- tasks that no turn looks after -------------------------------------------------------

    def _look_after(self, change: TaskChange, *, follows: bool = False) -> None:
        """Decide what becomes of a task without turns; ``follows`` tells that one will follow."""
        task, memory = change.task, change.memory
        if change.others:
            return
        if memory.exhausted is not None:
            if not self.context.mailbox.begun(task.task_id):
                change.ending = self.endings.fail(change, memory.exhausted, over_budget=True)
            return
        if memory.row.state is TaskState.PAUSED:
            if self.context.mailbox.decided(task.task_id):
                return  # they pass the hold
            if memory.pausing and self._cannot_answer(memory):
                change.ending = self.endings.fail(change, _NO_RESULTS)
            elif memory.pausing:
                change.ending = self.endings.pause(change)
            return
        stuck = sum(bool(memory.asked_calls(agent)) for agent in task.away) if task.away else 0
        coming = task.arriving + len(memory.waits) > stuck or change.mail.queued_messages or follows
        if not (coming or self.context.mailbox.workable(task.task_id)):
            self._stand_still(change)

    def _stand_still(self, change: TaskChange) -> None:
        """Decide what becomes of a task in which nothing happens any more."""
        memory = change.memory
        if memory.open_calls() and not self._cannot_answer(memory):
            change.ending = self.endings.pause(change)
        elif memory.open_calls():
            change.ending = self.endings.fail(change, _NO_RESULTS)
        elif self.context.status.manual or memory.waits_for_participants():
            return  # a driver, or a participant, knows what comes next
        elif memory.waits_for_peers():
            self._look_for_cycle(change)
        elif memory.guest and memory.handled:
            change.ending = self.endings.complete_quietly(change)
        elif change.is_owed if memory.host or memory.guest else memory.row.awaited:
            self._rouse(change)
        elif memory.host or memory.guest:
            change.ending = self.endings.complete_quietly(change)

    def _cannot_answer(self, memory: TaskMemory) -> bool:
        """Tell whether a participant, who gives no results, is asked for some."""
        return bool(memory.guest) and any(call.kind != "approval" for call in memory.asked_calls())

    def _look_for_cycle(self, change: TaskChange) -> None:
        """Ask for the end of a task that waits in vain, if that is for this swarm to do.

        Of all that wait in vain only one acts; the others get mail from what it does then.
        """
        own = change.memory.report(str(self.context.owner), owed=change.is_owed)
        reports = stuck(own, change.memory.peers().known)
        if reports and self._is_idle(change) and acting(reports) == own.node:
            cycle = wait_cycle([pair for report in reports for pair in report.asks])
            self._rouse(change, cycle)

    def _rouse(self, change: TaskChange, cycle: Sequence[str] = ()) -> None:
        """Ask for the end of a task in which nothing happens any more, once (MAIL-TASK-15).

        Where everybody has acknowledged or ignored what came, that is the end (MAIL-TASK-26).
        """
        handled = change.memory.handled
        if handled and "read" not in handled.values():
            change.ending = self.endings.settle(change, handled)
        elif change.memory.row.finish_asked:
            change.ending = self.endings.fail(
                change,
                "the task stalled: no agent has anything left to do, but none has finished it",
            )
        else:
            self._pack_finish(change, "stall", cycle)

    def _pack_finish(self, change: TaskChange, reason: str, cycle: Sequence[str] = ()) -> None:
        change.memory.change(finish_asked=True)
        notice, instruction = self.system_messages.finish(change.memory, reason, cycle)
        self.mail_delivery.send(change.mail, notice, instruction)
        change.memory.finish = change.mail.queued_messages[-1]

    def _ask_to_finish(self, change: TaskChange) -> None:
        if change.memory.open_calls(
            self.context.parts.finisher
        ):  # these have to be answered before
            self.pause(change)
            self._look_after(change)
        else:
            self._pack_finish(change, "limit")

    def _come_back(self, task: ActiveTask, queued: QueuedMessage) -> None:
        task.arriving -= 1
        task.away.remove(queued.delivery.recipient)
        self.mail_delivery.put_back(task, queued)
        if queued.goes_on or queued.decided:
            self.context.mailbox.release(queued.lane)
        self.context.settle(task)  # when the task was closed meanwhile
        self.context.wake()
