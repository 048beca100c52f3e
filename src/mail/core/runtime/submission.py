"""Accepting what comes from outside: a new task, one more message, a resume, a cancellation.

Nothing is started before everything is checked, and nothing is acknowledged before it is stored.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from mail.core.approvals import Answer, Answerer
from mail.core.envelope import Envelope
from mail.core.runtime.active_tasks import ActiveTask, TaskClock
from mail.core.runtime.context import RuntimeContext
from mail.core.runtime.delivery import MailDelivery
from mail.core.runtime.held_calls import Answered, Decision, check, decide, resume
from mail.core.runtime.mailbox import Hold
from mail.core.runtime.peering import swarm_of
from mail.core.runtime.policy import local_recipients
from mail.core.runtime.recovery import TaskLoader
from mail.core.runtime.settings import UNSET, Unset
from mail.core.runtime.task_traces import in_run
from mail.core.runtime.tool_dispatch import is_long
from mail.core.runtime.transaction import (
    TaskChange,
    delete,
    from_outside,
    go_on,
    lose,
    to_its_end,
)
from mail.core.runtime.turn import Control
from mail.core.runtime.turn_end import TurnEnd
from mail.core.runtime.waiters import Waiter
from mail.core.schema import parse_message
from mail.core.suggest import did_you_mean
from mail.core.tasks import TaskState
from mail.core.tools.catalogue import BUILTIN_TOOLS, CATALOGUE, TEXT_TOOL
from mail.core.tools.offer import NO_OFFER, Offer
from mail.core.wire import MAILMessage
from mail.db.calls import CallRow
from mail.db.commit import Commit
from mail.db.records import (
    IdempotencyRow,
    MemoryRow,
    TaskRow,
)
from mail.errors import (
    ApprovalClosed,
    KeyTaken,
    ProtocolError,
    ShuttingDown,
    StoreConflict,
    StoreError,
    TaskRunning,
    ToolError,
    UnknownAgent,
    UnknownApproval,
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
    """A caller's request to a runtime.

    Attributes:
        message: The message to deliver, checked when it is an `Envelope`; for a breakpoint resume
            only its task id counts.
        resume_from: None, ``"user_response"`` or ``"breakpoint_tool_call"``.
        breakpoint_tool_call_result: The results, in one of the documented shapes.
        max_steps: Limit for this run in place of the runtime's own; None lifts it.
        streamed: Whether the caller will read the run's events.
        stream_tokens: Whether it also wants ``model_delta`` events (MAIL-EVT-9).
        awaited: Whether the caller waits for the answer.
        offer: The caller's tools and instructions for the entrypoint. None keeps those of a run
            that is not over. A message into a running task cannot bring one.
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


class _Step(NamedTuple):
    """The instruction of a manual step, its id, and where its caller waits."""

    control: Control
    ref: str
    answer: "asyncio.Future[MAILMessage]"


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


@dataclass(slots=True, eq=False)
class Submissions:
    """The door of one runtime."""

    context: RuntimeContext
    mail_delivery: MailDelivery
    turn_end: TurnEnd
    loader: TaskLoader
    _entrance: _Entrance = field(default_factory=_Entrance)

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
        envelope = request.message
        if not isinstance(envelope, Envelope):
            envelope = Envelope.from_wire(parse_message(envelope))
        self._check(envelope, request.resume_from)
        if request.offer is not None:
            _check_offer(request.offer, self.context)
        async with self.hold(envelope.task_id, new=request.resume_from is None) as task:
            task.request_id = current().request_id or task.request_id
            async with in_run(self.context, task):
                if request.resume_from == BREAKPOINT:
                    async with TaskChange(self.context, task, patient=False) as change:
                        self.resume(change, request)
                    return change.waiter
                return await self._deliver(task, envelope, request)

    @from_outside
    async def begin(self, request: RunRequest) -> IdempotencyRow:
        """Accept what is asked for, here or where the task is; return where its run begins.

        It has a key, so that it is accepted once, also when a process dies with it.

        Raises:
            MAILError: see `accept`.
        """
        if request.once is None:
            raise ValueError("a request that may be made twice needs a key")
        try:
            waiter = await self.accept(request)
        except KeyTaken:
            known = await self.context.store.find_key(self.context.owner, request.once.key)
            if known is None or known.fingerprint != request.once.fingerprint:
                raise
            return known
        if waiter is None:
            raise ValueError("a run that is followed needs somebody who waits for its answer")
        waiter.leave()
        began = request.once_for(waiter.task_id, waiter.message_id) or request.once
        return began._replace(first_event=waiter.began)

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
            await self._deliver(task, queued, request, _Step(control, step.ref, answer))

    @from_outside
    async def cancel(self, task_id: str) -> None:
        """Cancel an open task; a finished one stays as it is.

        Raises:
            UnknownTask: there is no such task.
        """
        async with self.hold(task_id, new=False, stopping=True) as task:
            await self._end(task)

    async def _end(self, task: ActiveTask) -> None:
        """Cancel a task if it is open."""
        async with TaskChange(self.context, task) as change:
            if change.memory.row.state.is_open:
                owner, row = self.context.owner, task.row
                change.commit = Commit(owner, row, cancel_mail=True)
                self.turn_end.endings.cancel(change)
                self.turn_end.finish(change)

    @from_outside
    async def delete(self, task_id: str, *, cancel: bool) -> None:
        """Delete a task with everything that is stored of it.

        Args:
            task_id: The task.
            cancel: Cancel it first if it is running.

        Raises:
            UnknownTask: there is no such task.
            TaskRunning: it is running, and is not to be cancelled.
        """
        async with self.hold(task_id, new=False, stopping=True) as task:
            if task.row.state is TaskState.RUNNING and not cancel:
                raise TaskRunning(
                    f"task '{task_id}' is running; cancel it first, or delete it with cancel=true"
                )
            await self._end(task)
            await delete(self.context, task)
            self.context.active_tasks.forget(task_id)
            self.context.events.end(task_id)
            peers = task.row.remote_swarms
        while await self.context.store.purge():
            pass
        if self.context.outside.gateway is not None:  # mail before their last words is gone
            self.context.outside.gateway.wake(peers)

    def _check_open(self) -> None:
        """Refuse who would begin to wait when all that wait have been told of the shutdown."""
        if self.context.status.draining:
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
        self, task_id: str, *, new: bool, brings_mail: bool = True, stopping: bool = False
    ) -> AsyncIterator[ActiveTask]:
        """Hold a task in memory and alone at the door; find it in the store when it is new here.

        Args:
            task_id: The task.
            new: It need not exist.
            brings_mail: Mail comes with what is to be done.
            stopping: It is done also when the runtime stops.

        Raises:
            UnknownTask: there is no such task, and it is not ``new``.
            TaskRunning: it is being deleted, or was taken up by another server.
            ShuttingDown: the runtime stops.
        """
        task = self.context.active_tasks.get(task_id)
        if task is None:
            task = self._blank(task_id)
        task.arriving += brings_mail
        task.pins += not brings_mail
        owner = self.context.owner
        known = current()
        token = begin(LogContext(known.request_id, task_id, known.agent, owner.role, owner.id))
        waits = True
        try:
            async with task.order.door:
                if not stopping:
                    self._check_open()
                if task.void:
                    raise TaskRunning(
                        f"task '{task_id}' is being deleted, or another server has just taken it "
                        "up; try again in a moment"
                    )
                if not task.stored and not new:
                    await self.loader.load(task)
                yield task
        except StoreError:
            waits = False  # who is refused is told at once
            raise
        except GeneratorExit:  # thrown away with its event loop, where nothing can be looked after
            task.stored = False
            raise
        finally:
            end(token)
            task.arriving -= brings_mail
            task.pins -= not brings_mail
            if task.stored and not self.context.status.draining:  # else the next start looks
                await self._look_after(task, waits=waits)
            self.context.settle(task)

    async def _look_after(self, task: ActiveTask, *, waits: bool) -> None:
        """Check whether the task has been left without work; a cancelled caller does not wait."""
        looking, caller = self.turn_end.check(task), asyncio.current_task()
        if not waits or (caller is not None and caller.cancelling()):
            go_on(looking, self.context.under_way)
        else:
            await to_its_end(looking, self.context.under_way)

    def _blank(self, task_id: str) -> ActiveTask:
        context, name = self.context, str(self.context.owner)
        row = TaskRow(
            task_id=task_id,
            task_owner=name,
            task_contributors=(name,),
            start_time=context.clock.now(),
            entrypoint=context.parts.entrypoint,
        )
        times = TaskClock(context.clock)
        task = ActiveTask(row, times, context.host, context.guest, fresh=True)
        return context.active_tasks.add(task)

    async def _deliver(
        self,
        task: ActiveTask,
        envelope: Envelope,
        request: RunRequest,
        step: _Step | None = None,
    ) -> Waiter | None:
        if not task.stored:
            try:
                return await self._open(task, envelope, request, step, new=True)
            except KeyTaken:
                raise
            except StoreConflict:
                await self.loader.load(task)
        return await self._open(task, envelope, request, step, new=False)

    async def _open(
        self,
        task: ActiveTask,
        envelope: Envelope,
        request: RunRequest,
        step: _Step | None,
        *,
        new: bool,
    ) -> Waiter | None:
        """Post a message into a new, finished or running task."""
        async with TaskChange(self.context, task, patient=False) as change:
            self._check_open()
            memory = change.memory
            if not new and memory.row.state is TaskState.PAUSED:
                raise memory.paused_error()
            joins = memory.row.state is TaskState.RUNNING and not new
            if joins and request.offer is not None:
                raise ProtocolError(_IN_PROGRESS)
            control = None if step is None else step.control
            self.mail_delivery.add(change.mail, envelope, control)
            self.reopen(change, request, joins=joins)
            if new:
                memory.change(title=envelope.title)
            if not joins:
                memory.offer = request.offer or NO_OFFER
            change.waiter = self._wait(task, request, envelope.id, consumed=False)
            if envelope.sender["address_type"] != "system":
                change.came.add(envelope.id)
            if step is not None:
                change.on_applied(self._wait_for_step, task, step)
            change.commit = commit = Commit(
                owner=self.context.owner,
                task=memory.row,
                new=new,
                queued=new and step is None and self._is_full(request),
                memories=request.memories,
                once=request.once_for(task.task_id, envelope.id),
            )
        if commit.queued:
            lose(self.context, task)
            self.context.store.driver.tell("orphans")
        return change.waiter

    def _is_full(self, request: RunRequest) -> bool:
        """Tell whether a new task waits for any process with room; tools that come along do not."""
        most, tasks = self.context.settings.queue_after, self.context.active_tasks
        return most is not None and len(tasks) > most and request.offer is None

    def _wait_for_step(self, task: ActiveTask, step: _Step) -> None:
        task.steps_due[step.ref] = step.answer
        if self.context.status.closed:
            self.context.subjects.stopped(task)

    @from_outside
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
        async with self.hold(task_id, new=False) as task:
            rows = (row for row in task.calls.values() if row.approval_id == approval_id)
            row = next(rows, None)
            if row is None:
                raise UnknownApproval
            given = row, answer, by, self.context
            long = is_long(answer.args)
            answer = await asyncio.to_thread(check, *given) if long else check(*given)
            async with TaskChange(self.context, task, patient=False) as change:
                newest = change.memory.calls.get(row.key)
                if newest is not row:  # its run has ended meanwhile
                    raise ApprovalClosed(newest.status if newest else "ignored")
                answered = [Answered(row, answer, by)]
                self._go_on(change, decide(change.mail, answered, self.mail_delivery))
            return task.calls[row.key], task.row

    def resume(self, change: TaskChange, request: RunRequest) -> Commit:
        """Give paused agents the results of their breakpoint calls; return the commit."""
        results = request.breakpoint_tool_call_result
        return self._go_on(change, resume(change.mail, results, self.mail_delivery), request)

    def _go_on(
        self, change: TaskChange, decision: Decision, request: RunRequest | None = None
    ) -> Commit:
        """Let the agents go on whose calls are answered; a person's answer is no request."""
        self._check_open()
        task, memory = change.task, change.memory
        was_running = memory.row.state is TaskState.RUNNING
        if decision.ready or decision.carried_out or was_running:
            self.reopen(change, request, joins=was_running)
        else:
            memory.change(awaited=True)
            memory.pausing = True
        self.goes_on(change)
        change.commit = commit = decision.commit()
        if request is None:
            memory.change(awaited=True)  # the run is to come to its end, whoever looks
            return commit
        change.waiter = self._wait(task, request, "", consumed=True)
        if change.waiter is not None:
            change.waiter.steps = decision.steps
        memory.offer = request.offer or memory.offer
        commit.memories = request.memories
        commit.once = request.once_for(task.task_id)
        return commit

    def reopen(self, change: TaskChange, request: RunRequest | None, *, joins: bool) -> None:
        """Let a run begin or go on; without a request nobody waits for its answer."""
        memory, task = change.memory, change.task
        limit = UNSET if request is None else request.max_steps
        awaited = request is not None and request.awaited
        if isinstance(limit, Unset):
            limit = memory.row.max_steps if joins else self.context.settings.max_steps
        memory.change(
            state=TaskState.RUNNING,
            steps=memory.row.steps if joins else 0,
            max_steps=limit,
            awaited=awaited or bool(task.waiters) or (joins and memory.row.awaited),
            # A run at its limit is being finished; the new message is for the run after it.
            finish_asked=joins
            and memory.row.finish_asked
            and self.context.mailbox.held(task.task_id),
        )
        self.goes_on(change, reopened=not joins)

    def goes_on(self, change: TaskChange, *, reopened: bool = False) -> None:
        """Bring the mail of a running task into the mailbox, once a change is stored."""
        if reopened:
            change.on_applied(self.context.mailbox.unhold, change.task.task_id)
        if not (change.task.loaded or change.later):
            change.later.append(partial(self.loader.load_mail, change.task))

    def _wait(
        self, task: ActiveTask, request: RunRequest, message_id: str, *, consumed: bool
    ) -> Waiter | None:
        if not request.awaited:
            return None
        future = asyncio.get_running_loop().create_future()
        waiter = Waiter(task.task_id, task.waiters, message_id, future, consumed)
        waiter.streamed, waiter.stream_tokens = request.streamed, request.stream_tokens
        return waiter

    async def recover(self, task_id: str, *, begun: bool = True) -> None:
        """Take up a task that an earlier process left running or half paused, or had not begun."""
        live = self.context.active_tasks.get(task_id)
        if live is not None and live.loaded:
            return  # a start that was cut short has taken it up
        async with self.hold(task_id, new=False, stopping=True) as task:
            if task.row.state is TaskState.RUNNING:
                await self.loader.load_mail(task, recovered=begun)
            elif task.row.is_unfinished:
                task.pausing = True
                if any(call.is_decided for call in task.calls.values()):
                    self.context.mailbox.hold(task.task_id, Hold.FIRM)
                    await self.loader.load_mail(task, recovered=True)


def _check_offer(offer: Offer, context: RuntimeContext) -> None:
    """Refuse tools whose calls could not be told from the swarm's own."""
    taken = {*CATALOGUE, *BUILTIN_TOOLS, TEXT_TOOL, *context.parts.actions}
    for agent in context.agents.values():
        taken.update(agent.actions or ())
    names = offer.names
    if len(names) != len(offer.tools):
        raise ProtocolError("each offered tool needs a unique name")
    clash = sorted(names & taken)
    if clash:
        raise ProtocolError(f"the swarm already has a tool named '{clash[0]}'; choose another name")
    if offer.force is not None and offer.force not in names | {"required"}:
        raise ProtocolError(f"the forced tool '{offer.force}' is not one of the offered tools")
    if offer.force is not None and not names:
        raise ProtocolError("a tool call is required, but no tool is offered")
