"""Accepting what comes from outside: a new task, one more message, a resume, a cancellation.

Nothing is started before everything is checked, and nothing is acknowledged before it is stored.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from mail.core.addresses import format_contributor
from mail.core.approvals import Answer, Answerer
from mail.core.envelope import Envelope
from mail.core.runtime.active_tasks import ActiveTask
from mail.core.runtime.context import RuntimeContext
from mail.core.runtime.correspondence import load_correspondence
from mail.core.runtime.delivery import Mail, MailDelivery
from mail.core.runtime.held_calls import Answered, Decision, checked, decide, resume
from mail.core.runtime.mailbox import Hold
from mail.core.runtime.mailbox_loader import MailboxLoader
from mail.core.runtime.offers import check_offer, load_offer, offer_row
from mail.core.runtime.peering import load_peering, swarm_of
from mail.core.runtime.policy import local_recipients
from mail.core.runtime.settings import UNSET, Unset
from mail.core.runtime.team_waits import end_of_waits
from mail.core.runtime.turn import Control
from mail.core.runtime.turn_commit import TurnCommitter
from mail.core.runtime.waiters import Waiter
from mail.core.schema import parse_message
from mail.core.suggest import did_you_mean
from mail.core.tasks import TaskState
from mail.core.tools.offer import NO_OFFER, Offer
from mail.core.wire import MAILMessage
from mail.db.calls import CallRow
from mail.db.desk import PARTICIPANT_ROLE
from mail.db.post import Post, Receipt
from mail.db.records import (
    EventRow,
    IdempotencyRow,
    InboxRow,
    MemoryRow,
    TaskRow,
)
from mail.errors import (
    KeyTaken,
    ProtocolError,
    ShuttingDown,
    StoreConflict,
    TaskRunning,
    ToolError,
    UnknownAgent,
    UnknownApproval,
    UnknownTask,
)
from mail.logcontext import LogContext, begin, current, end

USER_RESPONSE: Final = "user_response"
BREAKPOINT: Final = "breakpoint_tool_call"
_IN_PROGRESS: Final = (
    "the task is still in progress, with tools or instructions of another request; wait for its "
    "end before you send your own"
)
_AT_ONCE: Final = 8


class RunRequest(NamedTuple):
    """What a caller wants of a runtime.

    Attributes:
        message: The message to deliver, checked when it is an `Envelope`; for a breakpoint resume
            only its task id counts.
        resume_from: None, ``"user_response"`` or ``"breakpoint_tool_call"``.
        breakpoint_tool_call_result: The results, in one of the documented shapes.
        max_steps: Limit for this run in place of the runtime's own; None lifts it.
        streamed: Whether the caller will read the run's events.
        stream_tokens: Whether it also wants ``model_delta`` events (MAIL-EVT-9).
        awaited: Whether the caller waits for the answer.
        offer: What the caller lends the swarm's entrypoint. None keeps what a run that is not over
            has, and lends nothing to a new one. A message into a running task cannot bring one.
        once: The caller's idempotency key, stored with the acceptance or not at all; its task,
            message and first event are filled in.
        memories: Rows of the owner's that are stored with the acceptance, too.
    """

    message: MAILMessage | Envelope
    resume_from: str | None = None
    breakpoint_tool_call_result: object = None
    max_steps: int | Unset | None = UNSET
    streamed: bool = False
    stream_tokens: bool = False
    awaited: bool = True
    offer: Offer | None = None
    once: IdempotencyRow | None = None
    memories: tuple[MemoryRow, ...] = ()

    def once_for(self, task_id: str, message_id: str = "") -> IdempotencyRow | None:
        """Return the row of the idempotency key, if there is one."""
        if self.once is None:
            return None
        return self.once._replace(task_id=task_id, message_id=message_id)


class _Entrance:
    """Lets a few messages in with each pass of the event loop.

    However many callers come at once, the turns of the first begin before the last are accepted.
    """

    def __init__(self) -> None:
        self._room = _AT_ONCE
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def enter(self) -> None:
        """Wait for room; whoever comes first goes first."""
        loop = asyncio.get_running_loop()
        if self._room == _AT_ONCE:
            loop.call_soon(self._next_pass)
        if self._room > 0:
            self._room -= 1
            return
        turn = loop.create_future()
        self._waiting.append(turn)
        await turn

    def _next_pass(self) -> None:
        for _ in range(min(_AT_ONCE, len(self._waiting))):
            turn = self._waiting.popleft()
            if not turn.done():  # its caller may have left
                turn.set_result(None)
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._next_pass)
        else:
            self._room = _AT_ONCE


T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Submissions:
    """The door of one runtime."""

    context: RuntimeContext
    mail_delivery: MailDelivery
    committer: TurnCommitter
    mailbox_loader: MailboxLoader
    _entrance: _Entrance = field(default_factory=_Entrance)
    _work: set["asyncio.Task[Any]"] = field(default_factory=set)

    async def to_its_end(self, doing: Coroutine[Any, Any, T]) -> T:
        """Do something to its end, also when whoever asked for it has left."""
        work = asyncio.create_task(doing)
        self._work.add(work)
        work.add_done_callback(self._work.discard)
        return await asyncio.shield(work)

    async def accept(self, request: RunRequest) -> Waiter | None:
        """Check, store and deliver what a request asks for.

        Returns:
            Where the answer will arrive, or None when nobody waits for it.

        Raises:
            ProtocolError: the message or ``resume_from`` breaks the protocol, or the message
                brings an offer into a running task.
            UnknownAgent, UnknownTask, TaskPaused, BreakpointError: see `mail.errors`.
            ShuttingDown: the runtime takes no more work.
            KeyTaken: the idempotency key has been used before; nothing was accepted.
            StoreError: it could not be stored; nothing was accepted.
        """
        await self._entrance.enter()
        self._check_open()
        envelope = request.message
        if not isinstance(envelope, Envelope):
            envelope = Envelope.from_wire(parse_message(envelope))
        self._check(envelope, request.resume_from)
        if request.offer is not None:
            check_offer(request.offer, self.context)
        if not self.context.store.durable:
            return await self._take_in(envelope, request)
        # A commit that is under way cannot be called back: a caller that gives up must not leave
        # a stored message behind that nobody hands out.
        work = asyncio.ensure_future(self._take_in(envelope, request))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            work.add_done_callback(self._unclaimed)
            raise

    async def _take_in(self, envelope: Envelope, request: RunRequest) -> Waiter | None:
        async with self.hold(envelope.task_id, new=request.resume_from is None) as task:
            task.request_id = current().request_id or task.request_id
            if request.resume_from == BREAKPOINT:
                return await self.resume(task, request)
            return await self._deliver(task, envelope, request)

    async def accept_step(
        self, queued: Envelope, control: Control, answer: "asyncio.Future[MAILMessage]"
    ) -> None:
        """Deliver the message of a manual step; its task is opened when there is none.

        Raises:
            TaskPaused, ShuttingDown, StoreError: see `accept`; nothing was started.
        """
        step = control.step
        if step is None:
            raise ValueError("the message of a manual step has a step in its control")
        request = RunRequest(message=queued, awaited=False)
        async with self.hold(queued.task_id, new=True) as task:
            self._check_open()
            task.steps_due[step.ref] = answer
            try:
                await self._deliver(task, queued, request, control)
            except BaseException:
                task.steps_due.pop(step.ref, None)
                raise

    def _unclaimed(self, work: "asyncio.Future[Waiter | None]") -> None:
        if not work.cancelled() and work.exception() is None:
            self._leave(work.result())

    async def cancel(self, task_id: str) -> None:
        """Cancel an open task; a finished one stays as it is.

        Raises:
            UnknownTask: there is no such task.
        """
        await self.to_its_end(self._cancel(task_id))

    async def _cancel(self, task_id: str) -> None:
        async with self.hold(task_id, new=False) as task:
            await self._end(task)

    async def _end(self, task: ActiveTask) -> None:
        """Cancel a task if it is open."""
        if task.row.state in (TaskState.RUNNING, TaskState.PAUSED):
            ending = self.committer.endings.cancel(task)
            await self.committer.end(task, ending, cancel_mail=True)

    async def delete(self, task_id: str, *, cancel: bool) -> None:
        """Delete a task with everything that is stored of it.

        Args:
            task_id: The task.
            cancel: Cancel it first if it is running.

        Raises:
            UnknownTask: there is no such task.
            TaskRunning: it is running, and is not to be cancelled.
        """
        await self.to_its_end(self._delete(task_id, cancel))

    async def _delete(self, task_id: str, cancel: bool) -> None:
        async with self.hold(task_id, new=False) as task:
            if task.row.state is TaskState.RUNNING and not cancel:
                raise TaskRunning(
                    f"task '{task_id}' is running; cancel it first, or delete it with cancel=true"
                )
            await self._end(task)
            await self._remove(task)
            peers = task.row.remote_swarms
        while await self.context.store.purge():
            pass
        if self.context.gateway is not None:
            self.context.gateway.wake(peers)  # mail in front of their last words is gone now

    async def _remove(self, task: ActiveTask) -> None:
        """Take a task out of the store, and out of memory as soon as its turns have ended."""
        async with task.commits:
            try:
                await self.context.store.delete_task(self.context.owner, task.task_id)
            except StoreConflict:
                raise UnknownTask(task.task_id) from None
            task.deleted, task.stored = True, False
        self.context.active_tasks.forget(task.task_id)
        self.context.events.end(task.task_id)

    def _check_open(self) -> None:
        """Refuse who would begin to wait when all that wait have been told of the shutdown."""
        if self.context.draining:
            raise ShuttingDown

    def _check(self, envelope: Envelope, resume_from: str | None) -> None:
        if resume_from not in (None, USER_RESPONSE, BREAKPOINT):
            hint = did_you_mean(str(resume_from), (USER_RESPONSE, BREAKPOINT))
            raise ProtocolError(
                f"unknown resume_from '{resume_from}'; expected '{USER_RESPONSE}' or "
                f"'{BREAKPOINT}'.{hint}"
            )
        if resume_from == BREAKPOINT:
            return
        if envelope.kind == "broadcast_complete":
            raise ProtocolError("a broadcast_complete cannot be posted; only agents can end tasks")
        beyond = [
            recipient["address"]
            for recipient in envelope.recipients
            if swarm_of(recipient) not in ("", self.context.swarm)
            and recipient["address"] not in self.context.agents
        ]
        if beyond:
            raise UnknownAgent(
                f"there is no agent named '{beyond[0]}' here; write to one of this swarm"
            )
        try:
            names = local_recipients(envelope, self.context.agents, self.context.swarm)
        except ToolError as error:
            raise UnknownAgent(str(error)) from None
        if not names:
            raise UnknownAgent("the message has no recipient other than its sender")

    @asynccontextmanager
    async def hold(
        self, task_id: str, *, new: bool, brings_mail: bool = True
    ) -> AsyncIterator[ActiveTask]:
        """Hold a task in memory and alone at the door; find it in the store when it is new here."""
        task = self.context.active_tasks.get(task_id)
        if task is None:
            task = self.context.active_tasks.add(
                ActiveTask(
                    self._blank(task_id),
                    fresh=True,
                    clock=self.context.clock,
                    host=self.context.host,
                    guest=self.context.guest,
                )
            )
        task.arriving += brings_mail
        task.pins += not brings_mail
        owner = self.context.owner
        known = current()
        token = begin(LogContext(known.request_id, task_id, known.agent, owner.role, owner.id))
        try:
            async with task.submissions:
                if task.deleted:
                    raise TaskRunning(f"task '{task_id}' is being deleted; try again in a moment")
                if not task.stored and not new:
                    await self.load(task)
                yield task
        finally:
            end(token)
            task.arriving -= brings_mail
            task.pins -= not brings_mail
            if task.stored:
                await self.committer.check(task)
            self.committer.settle(task)

    def _blank(self, task_id: str) -> TaskRow:
        owner = self.context.owner
        name = format_contributor(owner.role, owner.id, owner.swarm)
        return TaskRow(
            task_id=task_id,
            task_owner=name,
            task_contributors=(name,),
            start_time=self.context.clock.now(),
            entrypoint=self.context.entrypoint,
        )

    async def load(self, task: ActiveTask, row: TaskRow | None = None) -> None:
        """Take a task up from the store, where its row may have been read before."""
        row = row or await self.context.store.load_task(self.context.owner, task.task_id)
        if row is None:
            raise UnknownTask(task.task_id)
        task.row, task.loaded = row, False
        known = self.context.active_tasks.resting(row)
        if known is not None:
            task.offer = known.offer
            task.continue_from(known.latest)
            task.take_up(known.peering)
            task.letters = known.letters
        else:
            await self._restore(task, row)
        task.stored, task.fresh = True, False  # not before: a store that fails is asked again

    async def _restore(self, task: ActiveTask, row: TaskRow) -> None:
        store, owner = self.context.store, self.context.owner
        calls = await store.calls(owner, task.task_id)
        task.calls = {call.key: call for call in calls if not call.is_wait}
        self.committer.restore_waits(task, calls)
        task.offer = await load_offer(self.context, task.task_id)
        task.continue_from(await store.latest_time(owner, task.task_id))
        if self.context.host or row.remote_swarms:
            task.take_up(await load_peering(store, owner, self.context.host, task.task_id))
        if self.context.participants or self.context.owner.role == PARTICIPANT_ROLE:
            task.letters = await load_correspondence(
                store, owner, task.task_id, self.context.agents, self.context.participants
            )
            task.letters.fit(task.asks, self.context.participants)
        if row.state is TaskState.PAUSED and not task.open_calls():
            task.change(state=TaskState.RUNNING)  # the turn that was to pause it was not stored

    async def _deliver(
        self,
        task: ActiveTask,
        envelope: Envelope,
        request: RunRequest,
        control: Control | None = None,
    ) -> Waiter | None:
        if not task.stored:
            try:
                return await self._open(task, envelope, request, control, new=True)
            except KeyTaken:
                raise
            except StoreConflict:
                await self.load(task)
        if task.row.state is TaskState.PAUSED:
            raise task.paused_error()
        return await self._open(task, envelope, request, control, new=False)

    async def _open(
        self,
        task: ActiveTask,
        envelope: Envelope,
        request: RunRequest,
        control: Control | None,
        *,
        new: bool,
    ) -> Waiter | None:
        """Post a message into a new, finished or running task."""
        self._check_open()
        mail = Mail(task)
        self.mail_delivery.add(mail, envelope, control)
        before, offer = task.row, task.offer
        joins = before.state is TaskState.RUNNING and not new
        if joins and request.offer is not None:
            raise ProtocolError(_IN_PROGRESS)
        self.reopen(task, request, joins=joins)
        if new:
            task.change(title=envelope.title)
        if not joins:
            task.offer = request.offer or NO_OFFER
        waiter = self._wait(task, request, envelope.id, consumed=False)
        if envelope.sender["address_type"] != "system":
            task.people.add(envelope.id)
        post = Post(
            owner=self.context.owner,
            task=task.row,
            new=new,
            memories=_memories(task, offer, request, mail),
            once=request.once_for(task.task_id, envelope.id),
            deliveries=mail.deliveries,
            events=tuple(mail.events),
        )
        post.calls, post.histories = end_of_waits(mail.answers)
        try:
            receipt = await self.context.store.post(post)
        except BaseException:
            mail.undo()
            task.people.discard(envelope.id)
            self._leave(waiter)
            if task.row is post.task:
                task.row, task.offer = before, offer
            raise
        task.stored = True
        await self.delivered(task, mail, post, receipt, waiter, reopened=not joins)
        return waiter

    async def decide(
        self, task_id: str, approval_id: str, answer: Answer, by: Answerer
    ) -> tuple[CallRow, TaskRow]:
        """Store the answer to what people are asked about a call, and act on it.

        Returns:
            The call, and the task.

        Raises:
            UnknownTask, UnknownApproval, ApprovalClosed, ApprovalError, Forbidden: see
                `mail.core.runtime.held_calls.check`; nothing was changed.
            ShuttingDown: the runtime takes no more work.
            StoreError: it could not be stored.
        """
        return await self.to_its_end(self._decide(task_id, approval_id, answer, by))

    async def _decide(
        self, task_id: str, approval_id: str, answer: Answer, by: Answerer
    ) -> tuple[CallRow, TaskRow]:
        async with self.hold(task_id, new=False) as task:
            self._check_open()
            rows = (row for row in task.calls.values() if row.approval_id == approval_id)
            row = next(rows, None)
            if row is None:
                raise UnknownApproval
            answer = await checked(task, row, answer, by, self.context)
            decision = decide(task, [Answered(row, answer, by)], self.mail_delivery)
            await self._go_on(task, decision)
            return task.calls[row.key], task.row

    async def resume(
        self,
        task: ActiveTask,
        request: RunRequest,
        inbox: InboxRow | None = None,
        events: tuple[EventRow, ...] = (),
    ) -> Waiter | None:
        """Give paused agents the results of their breakpoint calls.

        Args:
            task: Whose agents they are.
            request: What brings the results.
            inbox: The mail of a peer that brings them.
            events: What is told of that.
        """
        results = request.breakpoint_tool_call_result
        decision = resume(task, results, self.mail_delivery)
        return await self._go_on(task, decision, request, inbox, events)

    async def _go_on(
        self,
        task: ActiveTask,
        decision: Decision,
        request: RunRequest | None = None,
        inbox: InboxRow | None = None,
        events: tuple[EventRow, ...] = (),
    ) -> Waiter | None:
        """Store answers to open calls, and let the agents go on; a person's is no request."""
        if not task.loaded:
            await self.mailbox_loader.recall(task)
        self._check_open()
        before, was_pausing, offer = task.row, task.pausing, task.offer
        was_running = before.state is TaskState.RUNNING
        decision.apply()
        waiter = None if request is None else self._wait(task, request, "", consumed=True)
        if waiter is not None:
            waiter.steps = decision.steps
        if decision.ready or decision.carried_out or was_running:
            self.reopen(task, request, joins=was_running)
        else:
            task.change(awaited=True)
            task.pausing = True
        if request is None:
            task.change(awaited=True)  # the run is to come to its end, whoever looks
        post = Post(owner=self.context.owner, task=task.row)
        if request is not None:
            task.offer = request.offer or offer
            post.once = request.once_for(task.task_id)
            post.memories = _memories(task, offer, request, decision.mail)
        decision.fill(post)
        post.inbox, post.events = inbox, (*events, *post.events)
        try:
            async with task.commits:  # never before the commit that stores the calls
                receipt = await self.context.store.post(post)
        except BaseException:
            decision.undo()
            self._leave(waiter)
            if task.row is post.task:
                task.row, task.pausing, task.offer = before, was_pausing, offer
            raise
        decision.stored()
        await self.delivered(task, decision.mail, post, receipt, waiter, reopened=not was_running)
        return waiter

    def reopen(self, task: ActiveTask, request: RunRequest | None, *, joins: bool) -> None:
        """Let a run begin or go on; without a request nobody waits for its answer."""
        limit = UNSET if request is None else request.max_steps
        awaited = request is not None and request.awaited
        if isinstance(limit, Unset):
            limit = task.row.max_steps if joins else self.context.settings.max_steps
        task.change(
            state=TaskState.RUNNING,
            steps=task.row.steps if joins else 0,
            max_steps=limit,
            awaited=awaited or bool(task.waiters) or (joins and task.row.awaited),
            # A run at its limit is being finished; the new message is for the run after it.
            finish_asked=joins
            and task.row.finish_asked
            and self.context.mailbox.held(task.task_id),
        )

    def _wait(
        self, task: ActiveTask, request: RunRequest, message_id: str, *, consumed: bool
    ) -> Waiter | None:
        if not request.awaited:
            return None
        future = asyncio.get_running_loop().create_future()
        waiter = Waiter(task.task_id, task.waiters, message_id, future, consumed)
        if request.streamed:
            waiter.subscription = self.context.events.subscribe(
                task.task_id, deltas=request.stream_tokens
            )
        task.waiters.append(waiter)
        return waiter

    def _leave(self, waiter: Waiter | None) -> None:
        if waiter is None:
            return
        waiter.leave()
        if waiter.subscription is not None:
            self.context.events.unsubscribe(waiter.subscription)

    async def delivered(
        self,
        task: ActiveTask,
        mail: Mail,
        post: Post,
        receipt: Receipt,
        waiter: Waiter | None,
        *,
        reopened: bool,
    ) -> None:
        self.context.stored(task, post, receipt)
        if waiter is not None:
            waiter.began = receipt.first_event
            if waiter.subscription is not None:
                waiter.subscription.cursor = receipt.first_event - 1
        self.context.events.publish(task.task_id, receipt.first_event, post.events)
        if task.row.state is TaskState.RUNNING and not task.loaded:
            if reopened:  # what came during the pause may have held it
                self.context.mailbox.unhold(task.task_id)
            for envelope in mail.envelopes:  # answers count, too; the loader sees only requests
                task.note_sent(envelope)
            self.mail_delivery.end_waits(mail)
            await self.mailbox_loader.load(task)
        else:
            await self.mail_delivery.hand_out(task, mail, receipt)
            if reopened and task.row.state is TaskState.RUNNING:
                self.context.mailbox.unhold(task.task_id)
        self.committer.wake()

    async def recover(self, row: TaskRow) -> None:
        """Take up a task that an earlier process left running or half paused."""
        live = self.context.active_tasks.get(row.task_id)
        if live is not None and live.loaded:
            return  # a start that was cut short has taken it up
        async with self.hold(row.task_id, new=False) as task:
            if task.row.state is TaskState.RUNNING:
                await self.mailbox_loader.recall(task)
                await self.mailbox_loader.refill(task, recovered=True)
            else:
                task.pausing = task.row.awaited
                if any(call.is_decided for call in task.calls.values()):
                    self.context.mailbox.hold(task.task_id, Hold.FIRM)
                    await self.mailbox_loader.refill(task, recovered=True)


def _memories(
    task: ActiveTask, before: Offer, request: RunRequest, mail: Mail
) -> tuple[MemoryRow, ...]:
    """Return what is stored with a request: its own rows, and the task's offer if it changes."""
    if task.offer == before:
        return request.memories
    return (offer_row(task, mail.moment), *request.memories)
