"""The end of a turn: decide what follows, commit it all at once, then tell everybody.

Everything is decided without an ``await`` (the turn leaves its task, mail is packed, an ending is
built, the commit is handed to the store), so turns of one task that end together see one another.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from mail.core.addresses import MAILAddress, create_agent_address
from mail.core.compose import Subject
from mail.core.envelope import Envelope
from mail.core.runtime.active_tasks import ActiveTask, Turn
from mail.core.runtime.context import RuntimeContext
from mail.core.runtime.correspondence import letters_in
from mail.core.runtime.delivery import Mail, MailDelivery
from mail.core.runtime.endings import Ending, Endings
from mail.core.runtime.held_calls import (
    UNANSWERED,
    accepted_call,
    open_rows,
)
from mail.core.runtime.mailbox import Hold, LaneKey, QueuedMessage
from mail.core.runtime.manual_replies import ManualReplies
from mail.core.runtime.peering import Peering, swarm_of, with_reports
from mail.core.runtime.system_messages import SystemMessages, note_failure
from mail.core.runtime.team_waits import NOT_OPENED, TeamWait, end_of_waits, read_waits
from mail.core.runtime.turn import Control, ControlKind, Origin, Phase
from mail.core.runtime.turn_result import EventDraft, TurnResult
from mail.core.runtime.wait_hints import WaitHints
from mail.core.runtime.waiting import Report, acting, stuck, wait_cycle
from mail.core.tasks import TaskState
from mail.db.calls import CallRow
from mail.db.desk import DeskPost, ShownRow
from mail.db.post import Post, Receipt, TurnCommit
from mail.db.records import EventRow, HistoryRow, InboxRow, OutboxRow, Owner
from mail.errors import StoreConflict, StoreError

logger = logging.getLogger(__name__)

_OPEN: Final = (TaskState.RUNNING, TaskState.PAUSED)
_LOOK_AGAIN: Final = 1.0
_NO_RESULTS: Final = (
    "an agent called a breakpoint tool, and a participant cannot give the result of such a call"
)


@dataclass(slots=True, eq=False)
class CommitPlan:
    """What one commit will change, and what must be told afterwards."""

    task: ActiveTask
    mail: Mail = field(init=False)
    ending: Ending | None = None
    dead: str | None = None
    calls: tuple[CallRow, ...] = ()  # on which the turn pauses, or the one that it has run
    woken: bool = False  # the agent has all of its results
    reopens: bool = False  # the task was paused before
    waits: tuple[TeamWait, ...] = ()  # for teammates, which the turn begins
    step: str = ""  # the manual step that is answered itself
    follow_up: tuple[Envelope, Control] | None = None
    shown: tuple[int, ...] = ()  # buffered mail that a manual step has shown its agent
    letters: tuple[ShownRow, ...] = ()  # that the agent's history has from this turn on
    cut_off: tuple[EventRow, ...] = ()  # of turns that end with the task

    def __post_init__(self) -> None:
        self.mail = Mail(self.task)

    def turn_commit(self, owner: Owner, turn: Turn, turn_result: TurnResult) -> TurnCommit:
        """Return the commit of a turn: what its draft holds and what was decided about it."""
        mail = self.mail
        history = turn_result.history if turn_result.failure is None else ""
        commit = TurnCommit(owner, self.task.row, seq=turn.seq)
        commit.dead = self.dead
        commit.deliveries = mail.deliveries if mail.queued_messages else ()
        commit.events = (*turn_result.events, *mail.events, *self.cut_off)
        commit.histories = (HistoryRow(turn.agent, history),) if history else ()
        commit.calls = self.calls
        commit.memories = turn_result.memories
        commit.settled = self.shown
        commit.outbox = mail.outbox
        commit.shown = self.letters
        if self.waits or mail.answers:
            answered, entries = end_of_waits(mail.answers)
            commit.calls += (*(wait.row for wait in self.waits), *answered)
            commit.histories = entries + commit.histories
        if self.ending is not None:
            self.ending.add_to(commit)
        if self.task.letters is not None:
            commit.desk = self.desk_post(owner.swarm)
        return commit

    def desk_post(self, swarm: str) -> DeskPost | None:
        """Return what its mail and its ending add to the mail desk."""
        desk = self.mail.desk
        if self.ending is not None and self.ending.desk is not None:
            desk = self.ending.desk if desk is None else desk.plus(self.ending.desk)
        return None if desk is None else desk.post(swarm)


@dataclass(slots=True, eq=False)
class TurnCommitter:
    """Commits turns and watches over the life of their tasks."""

    context: RuntimeContext
    endings: Endings
    mail_delivery: MailDelivery
    system_messages: SystemMessages
    steps: ManualReplies
    hints: WaitHints
    wake: Callable[[], None]
    timed_out: "set[asyncio.Future[None]]" = field(default_factory=set)

    async def commit(self, turn: Turn, turn_result: TurnResult, *, dead: str | None = None) -> None:
        """End a turn.

        Raises:
            StoreConflict: the turn's mail was dropped meanwhile; nothing of the turn is kept.
        """
        if turn.void:
            raise StoreConflict(f"delivery {turn.seq} was cancelled")
        plan = self._conclude(turn, turn_result)
        plan.dead = dead
        if turn.manual:
            plan.step = self.steps.ends(turn, turn_result, plan.ending)
        task = plan.task
        post = plan.turn_commit(self.context.owner, turn, turn_result)
        ending, receipt = plan.ending, None
        renew = None if ending is None else partial(self.endings.renew, task, ending, post)
        arriving = len(plan.mail.queued_messages)
        task.arriving += arriving
        task.pins += 1
        try:
            receipt = await self.context.commit(task, post, renew)
            self._note_stored(plan, turn, turn_result)
            await self._tell(plan, post, receipt)
            if turn.control is not None or plan.calls:
                self._let_go_on(plan, turn)
            if turn.manual:
                last_event = receipt.first_event + len(post.events) - 1
                self.steps.answer(turn, turn_result, plan.ending, last_event)
            task.arriving, sent, arriving = task.arriving - arriving, arriving, 0
            # An interrupt in it may have taken the last running turn away, and its mail may lie
            # in lanes that open breakpoints block.
            if not task.turns and ((sent and task.calls) or task.pausing or task.exhausted):
                await self.check(task)
        finally:
            if receipt is None:
                self._undo_waits(plan)
            task.arriving -= arriving
            task.pins -= 1
            task.out.difference_update((turn.seq, *plan.shown))
            if turn.buffered:
                self.mail_delivery.unbuffer(turn)
            self.context.mailbox.release(turn.queued.lane)
            self.settle(task)

    def _let_go_on(self, plan: CommitPlan, turn: Turn) -> None:
        """Let an agent go on whose call a turn has run, if it has all of its results."""
        if plan.woken or (turn.decided and plan.ending is not None):
            self.context.mailbox.unblock(turn.queued.lane)
        if plan.reopens:
            self.context.mailbox.unhold(plan.task.task_id)
        if any(row.expires_at for row in plan.calls if row.is_asked):
            self.context.on_deadline()

    def _note_stored(self, plan: CommitPlan, turn: Turn, turn_result: TurnResult) -> None:
        """Note that the store has what a turn has done, and let its waits begin."""
        if plan.waits:
            self._start(plan.waits, plan.task)
        if plan.shown:
            turn.buffered = [mail for mail in turn.buffered if mail.seq not in plan.shown]
        if turn_result.failure is None:
            lane = turn.queued.lane
            self.context.histories.append(lane, turn_result.entries, turn_result.written)

    async def end(
        self,
        task: ActiveTask,
        ending: Ending,
        *,
        cancel_mail: bool = False,
        before: Sequence[EventRow] = (),
        inbox: InboxRow | None = None,
    ) -> None:
        """End a run outside a turn.

        Args:
            task: Whose run it is.
            ending: How it ends.
            cancel_mail: Whether its waiting mail is dropped.
            before: What happened before, as events.
            inbox: The mail of a peer that ends it.
        """
        cut_off = self.close(task)
        plan = CommitPlan(task, ending=ending)
        self._tell_peers(plan)
        task.pins += 1
        post = Post(
            owner=self.context.owner,
            task=task.row,
            events=(*before, *cut_off),
            cancel_mail=cancel_mail,
            inbox=inbox,
            desk=plan.desk_post(self.context.swarm),
        )
        ending.add_to(post)
        try:
            receipt = await self.context.commit(
                task, post, partial(self.endings.renew, task, ending, post)
            )
            await self._tell(plan, post, receipt)
        finally:
            task.pins -= 1
        self.wake()

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
        task.pins += 1
        try:
            commit = TurnCommit(owner=self.context.owner, task=task.row, seq=turn.seq)
            await self.context.commit(task, commit)
        finally:
            task.pins -= 1
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
        self.step_back(turn)
        self.context.mailbox.hold(task.task_id)
        if task.row.state is TaskState.PAUSED:  # between the claim and now
            await self.check(task)
        elif not task.row.finish_asked:
            await self._ask_to_finish(task)
        elif task.finish is None:
            await self.end(task, self.system_messages.what_there_is(task, self.endings))
        self.settle(task)
        return True

    async def refuse(self, turn: Turn, reason: str) -> None:
        """Let a turn not happen because the task's budget is used up, and end the task.

        No turn begins any more, but those that run, or ran when a process died, go on to their
        commits; one of them may still finish the task. Else it fails when the last has ended.
        """
        task = turn.task
        task.exhausted = reason
        turn.queued.filed = False  # its journal has no reply
        self.context.mailbox.hold(task.task_id, Hold.BEGUN)
        self.step_back(turn)
        await self.check(task)
        self.settle(task)

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
        task.turns.pop(turn.agent, None)
        task.out.discard(turn.seq)
        task.finish = None if task.finish is turn.queued else task.finish
        self.mail_delivery.unbuffer(turn)
        self.context.mailbox.release(turn.queued.lane)
        await self.check(task)
        self.settle(task)

    async def put_off(self, turn: Turn, seconds: float) -> None:
        """Return a turn's mail to its lane after a while; its slot is free until then."""
        task, queued = turn.task, turn.queued
        await self.mail_delivery.log_reports(turn)
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
        running = task.row.state is TaskState.RUNNING and task.loaded
        if task.turns or not (running or task.row.state is TaskState.PAUSED):
            self.tell_peers(task)
            return
        plan = CommitPlan(task)
        self._look_after(plan)
        if plan.ending is not None:
            await self.end(task, plan.ending)
            self.settle(task)
        elif plan.mail.queued_messages:
            await self._post(plan)
        else:
            self._tell_peers(plan)

    def runs_calls(self, task: ActiveTask) -> bool:
        """Tell whether accepted calls of a task run, or wait for that."""
        if any(turn.runs for turn in task.turns.values()):
            return True
        waiting = self.context.mailbox.decided(task.task_id)
        return any(queued.control and queued.control.call for queued in waiting)

    def close(self, task: ActiveTask) -> tuple[EventRow, ...]:
        """Stop all work on a task that is not open any more; its mail stays in the store.

        Returns the events of model calls that were reported by turns which end here.
        """
        reports: list[EventRow] = []
        if task.row.state in _OPEN:
            if task.row.state is TaskState.RUNNING:
                self.context.mailbox.unhold(task.task_id)
            for turn in list(task.turns.values()):
                finishes = turn.finishing and turn.queued is not task.finish
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
        self.context.mailbox.release(turn.queued.lane)
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
        self.context.mailbox.release(turn.queued.lane)

    def settle(self, task: ActiveTask) -> None:
        """Let go of a task that nothing is happening to; the store has it all."""
        if task.turns or task.arriving or task.pins or task.waiters:
            return
        if self.context.mailbox.waiting(task.task_id) and (
            task.row.state is TaskState.RUNNING or self.context.mailbox.decided(task.task_id)
        ):
            return
        if self.context.active_tasks.get(task.task_id) is not task:
            return
        self.context.mailbox.drop(task.task_id)
        self.context.histories.forget(task.task_id)
        for forgotten in self.context.active_tasks.remove(task):
            self.context.events.forget(forgotten)

    def _conclude(self, turn: Turn, turn_result: TurnResult) -> CommitPlan:
        task = turn.task
        plan = CommitPlan(task)
        task.turns.pop(turn.agent, None)
        self._consume(turn, turn_result, plan)
        task.change(steps=task.row.steps + turn.counted)
        task.note_read(turn, turn_result.handled)
        if turn.control is not None:
            self._note_run(turn, turn_result, plan)
        if turn_result.mail and task.row.state is not TaskState.CANCELLED:
            self._send(turn_result, plan)
        late = turn.finishing and turn.queued is not task.finish  # the run has ended otherwise
        if turn_result.waits:
            self._begin_waits(turn, turn_result, plan, late=late)
        task.finish = None if task.finish is turn.queued else task.finish
        if task.row.state in _OPEN and not late:
            self._decide(turn, turn_result, plan)
        elif (
            turn_result.reprompts and task.row.state is not TaskState.CANCELLED and not turn.manual
        ):
            self._stash_follow_up(turn, turn_result, plan)
        if task.row.state in _OPEN and plan.ending is None:
            self._look_after(plan)
        # A step that the run's end cuts off does not go on behind its driver's back.
        cut_off = plan.ending is not None and turn.manual and turn.manual.ref in task.steps_due
        if plan.follow_up and not cut_off:
            self.mail_delivery.send(plan.mail, *plan.follow_up)
        if turn_result.paused and not plan.calls:
            turn_result.close_paused(UNANSWERED)
        if plan.ending is not None:
            plan.cut_off = self.close(task)
        self._tell_peers(plan)
        return plan

    def _send(self, turn_result: TurnResult, plan: CommitPlan) -> None:
        for envelope in turn_result.mail:
            sent = self.mail_delivery.send(plan.mail, envelope)
            if envelope is turn_result.spoken:
                turn_result.spoken = sent

    def _note_run(self, turn: Turn, turn_result: TurnResult, plan: CommitPlan) -> None:
        """Note the result of an accepted call, unless the call was closed meanwhile."""
        accepted, task = accepted_call(turn), turn.task
        if accepted is None or not turn_result.entries:
            return
        entry = turn_result.entries[-1]
        call = accepted[0]._replace(answer=str(entry.get("content", entry.get("output", ""))))
        task.calls[call.key] = call
        plan.calls = (call,)
        goes_on = task.row.state in _OPEN and turn_result.completes is None
        plan.woken = goes_on and not task.open_calls(turn.agent)
        if not plan.woken:
            return
        self.mail_delivery.instruct(plan.mail, turn.agent, Control.from_json(call.control))
        if task.row.state is TaskState.PAUSED:  # another agent's calls wait since it was accepted
            task.change(state=TaskState.RUNNING)
            task.pausing, plan.reopens = False, True

    def tell_peers(self, task: ActiveTask) -> None:
        """Let other swarms know if nothing goes on here; see `mail.core.runtime.waiting`."""
        if task.peering is not None:
            self._tell_peers(CommitPlan(task))

    def _tell_peers(self, plan: CommitPlan) -> None:
        """Let mail of a commit, and hints, tell other swarms if nothing goes on here with it."""
        peering, ending = plan.task.peering, plan.ending
        if peering is None or not self._is_idle(plan):
            return
        own = peering.latest(plan.task.report(str(self.context.owner)))
        reports = peering.reports(own)
        plan.mail.outbox = _telling(plan.mail.outbox, reports, peering)
        if ending is not None:
            ending.outbox = _telling(ending.outbox, reports, peering)
        self.hints.tell(plan.task, own)

    def _is_idle(self, plan: CommitPlan) -> bool:
        """Tell whether only mail of other swarms can make anything happen after a commit."""
        task, mail = plan.task, plan.mail
        coming = task.turns or task.arriving or task.people or plan.follow_up
        if coming or mail.queued_messages or task.open_calls() or self.context.manual:
            return False
        if task.waits_for_participants():
            return False
        if task.row.state in _OPEN:
            waits = task.loaded and task.row.state is TaskState.RUNNING and plan.ending is None
            return waits and not self.context.mailbox.waiting(task.task_id)
        return bool(task.host and task.peering and not task.peering.closed)

    def _consume(self, turn: Turn, turn_result: TurnResult, plan: CommitPlan) -> None:
        """Note whose mail the turn answers: its own, and what a manual step has shown its agent."""
        read = {turn.envelope.id}
        if self.context.participants and turn_result.failure is None:
            plan.letters = self._shown_letters(turn)
        if turn.buffered and turn_result.failure is None:
            plan.shown = tuple(queued.seq for queued in turn.buffered)
            read.update(queued.envelope.id for queued in turn.buffered)
        turn.task.people -= read
        for waiter in turn.task.waiters:
            waiter.consumed = waiter.consumed or waiter.message_id in read

    def _shown_letters(self, turn: Turn) -> tuple[ShownRow, ...]:
        """Return the letters whose messages the agent's history has from this turn on."""
        read = (turn.envelope, *(queued.envelope for queued in turn.buffered))
        letters = [
            letter_id
            for envelope in read
            for letter_id in letters_in(envelope, self.context.participants)
        ]
        letters += turn.control.letters if turn.control else ()
        letters += turn.task.replies.pop(turn.agent, ())
        number, now = turn.task.row.steps + 1, self.context.clock.now()
        return tuple(ShownRow(each, turn.agent, number, now) for each in letters)

    def _decide(self, turn: Turn, turn_result: TurnResult, plan: CommitPlan) -> None:
        task = turn.task
        if turn_result.failure is not None:
            self._report(turn, turn_result, plan, turn_result.failure)
        elif turn_result.completes is not None:
            plan.ending = self.endings.complete(turn, turn_result.completes)
        elif turn.at_limit:
            plan.ending = self.system_messages.what_there_is(task, self.endings, turn)
        elif turn_result.paused and task.exhausted is None:
            plan.calls, events = open_rows(turn, turn_result, self.context)
            turn_result.events += [event.row(plan.mail.moment) for event in events]
            task.calls.update((call.key, call) for call in plan.calls)
            self.context.mailbox.block(turn.queued.lane)
            self.pause(task)
        elif turn_result.reprompts:
            notice, instruction = self.system_messages.follow_up(turn, turn_result.reprompts)
            if notice is None:
                self._report(turn, turn_result, plan, instruction.reason)
            else:
                plan.follow_up = notice, instruction

    # --- waiting for teammates ------------------------------------------------------------------

    def _begin_waits(
        self, turn: Turn, turn_result: TurnResult, plan: CommitPlan, *, late: bool
    ) -> None:
        """Let the agent wait for replies, if the run goes on and nothing more urgent has come."""
        task, key = turn.task, turn.queued.lane
        goes_on = task.row.state in _OPEN and turn_result.completes is None
        if not goes_on or late or task.exhausted is not None:
            turn_result.close_waits("ended")
        elif self.context.mailbox.presses(key):
            turn_result.close_waits(NOT_OPENED)
        else:
            control = Control(ControlKind.RESUME, origin=turn.origin)
            for call, draft in turn_result.waits:
                wait = TeamWait.begin(turn.agent, call, draft, control, now=task.now())
                plan.waits += (wait,)
                task.waits[wait.key] = wait
                task.arriving += 1
            self.context.mailbox.block(key)
            # The wait's end calls the agent again, which sees its other results then; help is mail.
            turn_result.reprompts = tuple(
                one for one in turn_result.reprompts if one.error or one.kind == "broadcast"
            )

    def _undo_waits(self, plan: CommitPlan) -> None:
        """Forget the waits of a turn that was not stored, and let those go on that it ended."""
        plan.mail.undo()
        for wait in plan.waits:
            plan.task.end_wait(wait)
            self.context.mailbox.unblock(LaneKey(plan.task.task_id, wait.row.agent))

    def restore_waits(self, task: ActiveTask, rows: Sequence[CallRow]) -> None:
        """Take up the open waits of a task from the store."""
        waits = read_waits(rows)
        for wait in waits:
            task.waits[wait.key] = wait
            task.arriving += 1
        self._start(waits, task)

    def _start(self, waits: Sequence[TeamWait], task: ActiveTask) -> None:
        loop = asyncio.get_running_loop()
        for wait in waits:
            if task.waits.get(wait.key) is wait:  # else the run has ended meanwhile
                seconds = wait.remaining(self.context.clock.now())
                wait.timer = loop.call_later(seconds, self._time_is_up, task, wait)

    def _time_is_up(self, task: ActiveTask, wait: TeamWait) -> None:
        work = asyncio.ensure_future(self._expire(task, wait))
        self.timed_out.add(work)
        work.add_done_callback(self.timed_out.discard)

    async def _expire(self, task: ActiveTask, wait: TeamWait) -> None:
        """End a wait whose time is up."""
        async with task.submissions:  # not while the task's mail is read back
            if self.context.draining or task.deleted or task.waits.get(wait.key) is not wait:
                return
            if wait.answered:  # a commit is on its way, which may fail
                loop = asyncio.get_running_loop()
                wait.timer = loop.call_later(_LOOK_AGAIN, self._time_is_up, task, wait)
                return
            plan = CommitPlan(task)
            self.mail_delivery.answer(plan.mail, wait, wait.draft.result("timeout"))
            try:
                await self._post(plan)
            except StoreError as error:  # the runtime stops, or the task was deleted
                plan.mail.undo()
                logger.info("a wait for a teammate could not be ended: %s", error)
                return
        await self.check(task)
        self.settle(task)

    def _stash_follow_up(self, turn: Turn, turn_result: TurnResult, plan: CommitPlan) -> None:
        """The run ended while the agent acted: it sees its results when the task goes on."""
        notice, instruction = self.system_messages.follow_up(turn, turn_result.reprompts)
        if notice is not None and not turn_result.paused:
            self.mail_delivery.send(plan.mail, notice, instruction)

    def pause(self, task: ActiveTask) -> None:
        """Start no more turns; the pause is told when those that run have ended (MAIL-BRK-2)."""
        task.change(state=TaskState.PAUSED, awaited=True)
        task.pausing = True
        self.context.mailbox.hold(task.task_id, Hold.FIRM)

    def _report(self, turn: Turn, turn_result: TurnResult, plan: CommitPlan, reason: str) -> None:
        """Tell whoever the agent works for that it failed (MAIL-TURN-16)."""
        told = turn_result.told = note_failure(turn, reason)
        error = EventDraft(
            "agent_error", f"error of agent {turn.agent}: {reason}", {"caller": turn.agent}
        )
        turn_result.events.append(error.row(plan.mail.moment))
        if turn.manual is not None:
            return  # its driver is told
        origin = turn.origin
        if origin is not None and self._report_away(turn, plan, origin, reason):
            return
        if origin is None or origin.is_person or origin.address not in self.context.agents:
            plan.ending = self.endings.fail(turn.task, told, at_limit=turn.at_limit)
            return
        if self.mail_delivery.fail_wait(plan.mail, origin.address, turn.agent, reason):
            return
        notice = self.context.composer.notice(
            turn.task.task_id,
            origin.address,
            Subject.AGENT_ERROR,
            f"Agent '{turn.agent}' failed and cannot answer your message: {reason}",
        )
        self.mail_delivery.send(plan.mail, notice, Control(ControlKind.NOTICE))

    def _report_away(self, turn: Turn, plan: CommitPlan, origin: Origin, reason: str) -> bool:
        """Tell an agent of another swarm, if it is one, that its request cannot be answered."""
        asker: MAILAddress = {"address_type": "agent", "address": origin.address}
        if origin.address_type != "agent" or not swarm_of(asker) or self.context.gateway is None:
            return False
        if origin.ref in turn.task.asks.get((origin.address, turn.agent), ()):
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
            self.mail_delivery.send(plan.mail, answer)
        return True

    def _look_after(self, plan: CommitPlan) -> None:
        task = plan.task
        if task.turns:
            return
        if task.exhausted is not None:
            if not self.context.mailbox.begun(task.task_id):
                plan.ending = self.endings.fail(task, task.exhausted, over_budget=True)
            return
        if task.row.state is TaskState.PAUSED:
            if self.context.mailbox.decided(task.task_id):
                return  # they pass the hold
            if task.pausing and self._cannot_answer(task):
                plan.ending = self.endings.fail(task, _NO_RESULTS)
            elif task.pausing:
                plan.ending = self.endings.pause(task)
            return
        stuck = sum(bool(task.asked_calls(agent)) for agent in task.away) if task.away else 0
        coming = task.arriving > stuck or plan.mail.queued_messages or plan.follow_up
        if not (coming or self.context.mailbox.workable(task.task_id)):
            self._stand_still(plan)

    def _stand_still(self, plan: CommitPlan) -> None:
        """Decide what becomes of a task in which nothing happens any more."""
        task = plan.task
        if task.open_calls() and not self._cannot_answer(task):
            plan.ending = self.endings.pause(task)
        elif task.open_calls():
            plan.ending = self.endings.fail(task, _NO_RESULTS)
        elif self.context.manual or task.waits_for_participants():
            return  # a driver, or a participant, knows what comes next
        elif task.waits_for_peers():
            self._look_for_cycle(plan)
        elif task.guest and task.handled:
            plan.ending = self.endings.complete_quietly(task)
        elif task.is_owed if task.host or task.guest else task.row.awaited:
            self._rouse(plan)
        elif task.host or task.guest:
            plan.ending = self.endings.complete_quietly(task)

    def _cannot_answer(self, task: ActiveTask) -> bool:
        """Tell whether a participant, who gives no results, is asked for some."""
        return bool(task.guest) and any(call.kind != "approval" for call in task.asked_calls())

    def _look_for_cycle(self, plan: CommitPlan) -> None:
        """Ask for the end of a task that waits in vain, if that is for this swarm to do.

        Of all that wait in vain only one acts; the others get mail from what it does then.
        """
        own = plan.task.report(str(self.context.owner))
        reports = stuck(own, plan.task.peers().known)
        if reports and self._is_idle(plan) and acting(reports) == own.node:
            cycle = wait_cycle([pair for report in reports for pair in report.asks])
            self._rouse(plan, cycle)

    def _rouse(self, plan: CommitPlan, cycle: Sequence[str] = ()) -> None:
        """Ask for the end of a task in which nothing happens any more, once (MAIL-TASK-15).

        Where everybody has acknowledged or ignored what came, that is the end (MAIL-TASK-26).
        """
        handled = plan.task.handled
        if handled and "read" not in handled.values():
            plan.ending = self.endings.settle(plan.task, handled)
            return
        if plan.task.row.finish_asked:
            plan.ending = self.endings.fail(
                plan.task,
                "the task stalled: no agent has anything left to do, but none has finished it",
            )
            return
        plan.task.change(finish_asked=True)
        self._pack_finish(plan, "stall", cycle)

    def _pack_finish(self, plan: CommitPlan, reason: str, cycle: Sequence[str] = ()) -> None:
        notice, instruction = self.system_messages.finish(plan.task, reason, cycle)
        self.mail_delivery.send(plan.mail, notice, instruction)
        plan.task.finish = plan.mail.queued_messages[-1]

    async def _ask_to_finish(self, task: ActiveTask) -> None:
        if task.open_calls(self.context.finisher):  # it cannot be asked before these are answered
            self.pause(task)
            await self.check(task)
            return
        task.change(finish_asked=True)
        plan = CommitPlan(task)
        self._pack_finish(plan, "limit")
        await self._post(plan)

    async def _post(self, plan: CommitPlan) -> None:
        task = plan.task
        task.arriving += 1
        post = Post(
            owner=self.context.owner,
            task=task.row,
            deliveries=plan.mail.deliveries,
            events=tuple(plan.mail.events),
            outbox=plan.mail.outbox,
            desk=plan.desk_post(self.context.swarm),
        )
        post.calls, post.histories = end_of_waits(plan.mail.answers)
        try:
            receipt = await self.context.commit(task, post)
            await self._tell(plan, post, receipt)
        finally:
            task.arriving -= 1
        self.wake()

    def _come_back(self, task: ActiveTask, queued: QueuedMessage) -> None:
        task.arriving -= 1
        task.away.remove(queued.delivery.recipient)
        self.mail_delivery.put_back(task, queued)
        if queued.goes_on or queued.decided:
            self.context.mailbox.release(queued.lane)
        self.settle(task)  # when the task was closed meanwhile
        self.wake()

    async def _tell(self, plan: CommitPlan, post: Post, receipt: Receipt) -> None:
        task, ending = plan.task, plan.ending
        due = []
        if ending is not None:
            last = receipt.first_event + len(post.events) - 1
            due = self.endings.announce(task, ending, last)
            self.reopen(task, ending)
        self.context.events.publish(task.task_id, receipt.first_event, post.events)
        if plan.mail.envelopes:
            await self.mail_delivery.hand_out(task, plan.mail, receipt)
            late = [m.seq for m in plan.mail.queued_messages if m.finish and m is not task.finish]
            if late:  # the run ended while the request to finish it was on its way
                unwanted = Post(owner=self.context.owner, task=task.row, settled=tuple(late))
                await self.context.commit(task, unwanted)
        if ending is not None:
            if ending.result.ended_by:
                known = {"task_id": task.task_id, "limit": task.row.max_steps}
                logger.warning("the step limit ended a run (task_message_limit)", extra=known)
            for waiter in due:
                waiter.resolve(ending.result)
            if task.steps_due:
                self.steps.give_up(task, ending.result, keep=plan.step)


def _telling(
    rows: Sequence[OutboxRow], reports: Sequence[Report], peering: Peering
) -> tuple[OutboxRow, ...]:
    """Return mail of which the last one for each swarm takes reports along."""
    told = list(rows)
    for peer, number in {row.peer: number for number, row in enumerate(rows)}.items():
        told[number] = with_reports(told[number], reports)
        peering.rides(peer, reports)
    return tuple(told)
