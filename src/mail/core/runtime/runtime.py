"""`MAILRuntime`: the engine of one caller's swarm. It wires the parts together and delegates."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Mapping, Set
from contextlib import aclosing, suppress
from dataclasses import replace
from random import shuffle
from typing import Any, Final, Literal

from mail.clock import Clock, SystemClock
from mail.core.actions import ActionCore, ActionOverrideFunction
from mail.core.agents import AgentCore
from mail.core.approvals import NO_APPROVALS, Answer, Answerer, Approval
from mail.core.compose import Composer, Subject
from mail.core.events import TaskEvent
from mail.core.interswarm import Gateway
from mail.core.runtime.active_tasks import ActiveTasks
from mail.core.runtime.context import Outside, RuntimeContext, Status, SwarmParts
from mail.core.runtime.delivery import MailDelivery
from mail.core.runtime.endings import Endings
from mail.core.runtime.federation import FederationSubject, WaitHints
from mail.core.runtime.held_calls import late_answer
from mail.core.runtime.histories import Histories
from mail.core.runtime.interswarm import Federation
from mail.core.runtime.letters import LetterDoor, LetterSubject
from mail.core.runtime.mailbox import Mailbox
from mail.core.runtime.manual import ManualSteps, ManualSubject, StepRequest
from mail.core.runtime.pauses import PauseSubject
from mail.core.runtime.peer_mail import PeerDoor
from mail.core.runtime.recovery import TaskLoader
from mail.core.runtime.relay import make_call
from mail.core.runtime.runs import FollowedRun, Run
from mail.core.runtime.scheduler import Scheduler
from mail.core.runtime.set_aside import SetAside
from mail.core.runtime.settings import UNSET, RuntimeSettings, Unset
from mail.core.runtime.subjects import together
from mail.core.runtime.submission import RunRequest, Submissions
from mail.core.runtime.task_traces import traced_turns
from mail.core.runtime.teams import TeamSubject
from mail.core.runtime.tool_dispatch import ToolDispatcher
from mail.core.runtime.transaction import log_reports
from mail.core.runtime.turn_end import TurnEnd
from mail.core.runtime.turn_runner import TurnRunner
from mail.core.runtime.validation import check_names
from mail.core.runtime.views import OwnEvents, RuntimeViews
from mail.core.suggest import did_you_mean
from mail.core.tasks import MAILTask, TaskState
from mail.core.teams import NO_TEAMS, Teams
from mail.core.wire import MAILInterswarmMessage, MAILMessage
from mail.db.blobs import Blobs
from mail.db.calls import CallFilter, CallRow, StoredCall
from mail.db.records import IdempotencyRow, Owner, TaskRow
from mail.db.store import Store
from mail.errors import (
    ClaimLost,
    ConfigError,
    MAILError,
    ShuttingDown,
    StoreConflict,
    StoreError,
    TaskElsewhere,
    TaskTimeout,
    UnknownApproval,
    UnknownTask,
)
from mail.services.approvals import Deadlines, approval_record
from mail.services.event_log import EventLog
from mail.services.tasks import TaskReader

RunMode = Literal["continuous", "manual"]
"""Whether agents take their mail as it comes, or when a driver steps them."""

_HAND_OVER_SECONDS: Final = 0.1
_MANY: Final = 1000
_AT_ONCE: Final = 8


class MAILRuntime(Federation, RuntimeViews):
    """Mailbox, turns and tasks of one owner (swarm, role, id).

    Args:
        agents: The swarm's agents by name.
        actions: The swarm's actions by name.
        user_id, user_role: Whose instance this is; the role is admin, agent, user or swarm.
        entrypoint: The agent that answers for the swarm.
        breakpoint_tools: Tools whose calls pause a task.
        exclude_tools: Tools that no agent may call.
        approvals: Tools by name whose calls wait for a person, beside the actions with an approval
            of their own.
        enable_db_agent_histories: Kept for compatibility; whether state lasts is the store's doing.
        print_llm_streams: Whether pieces of model calls are printed to standard output.
        store: The store of all state; memory when absent. It is shared, not owned.
        settings: Limits.
        clock: Time and ids.
        gateway: The way to other swarms; used when ``enable_interswarm`` is set.
        teams: The swarm's teams.
        participants: Those with a mailbox beside the agents.
        ring: Called with the names of those who have got letters, to wake them.
        blobs: Leads to the contents of files that come with letters, for a swarm's name.

    Attributes:
        peers: Takes mail of other swarms, and what became of mail for them.
        letters: Takes letters of participants.
        set_aside: Retries and discards mail that was set aside.

    Raises:
        ConfigError: an entrypoint, communication target or tool that nobody has.
    """

    def __init__(  # noqa: PLR0913 - the documented signature
        self,
        agents: Mapping[str, AgentCore],
        actions: Mapping[str, ActionCore],
        user_id: str,
        user_role: str,
        swarm_name: str = "example",
        entrypoint: str = "supervisor",
        swarm_registry: object | None = None,
        enable_interswarm: bool = False,
        breakpoint_tools: list[str] | None = None,
        exclude_tools: list[str] | None = None,
        enable_db_agent_histories: bool = False,
        print_llm_streams: bool = True,
        *,
        store: Store | None = None,
        settings: RuntimeSettings | None = None,
        clock: Clock | None = None,
        gateway: Gateway | None = None,
        teams: Teams = NO_TEAMS,
        participants: Collection[str] = (),
        ring: Callable[[Collection[str]], None] | None = None,
        approvals: Mapping[str, Approval] = NO_APPROVALS,
        blobs: Callable[[str], Blobs] | None = None,
    ) -> None:
        self.agents, self.actions = agents, actions
        self.user_id, self.user_role = user_id, user_role
        self.swarm_name, self.entrypoint = swarm_name, entrypoint
        self.swarm_registry, self.enable_interswarm = swarm_registry, enable_interswarm
        self.breakpoint_tools = list(breakpoint_tools or ())
        self.exclude_tools = list(exclude_tools or ())
        self.approvals = dict(approvals)
        self.enable_db_agent_histories = enable_db_agent_histories
        check_names(
            agents=agents,
            actions=actions,
            participants=participants,
            swarm=swarm_name,
            entrypoint=entrypoint,
            enable_interswarm=enable_interswarm,
            breakpoint_tools=self.breakpoint_tools,
            exclude_tools=self.exclude_tools,
            approvals=self.approvals,
        )
        self.settings = settings or RuntimeSettings()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening: asyncio.Future[None] | None = None
        self._recovered = False
        self._deadline = asyncio.Event()
        self._timing: asyncio.Future[None] | None = None
        self.shutdown_event = asyncio.Event()
        self._deaf: Callable[[], None] = lambda: None
        self._gateway = gateway if enable_interswarm else None
        self.teams = teams
        self.participants, self._ring, self._blobs = frozenset(participants), ring, blobs
        self._wire(store or _memory(), clock or SystemClock(), print_llm_streams)

    def _wire(self, store: Store, clock: Clock, print_llm_streams: bool) -> None:
        owner = Owner(self.swarm_name, self.user_role, self.user_id)
        settings = self.settings
        self._context = context = RuntimeContext(
            owner=owner,
            parts=SwarmParts(
                entrypoint=self.entrypoint,
                agents=self.agents,
                actions=self.actions,
                breakpoint_tools=frozenset(self.breakpoint_tools),
                exclude_tools=frozenset(self.exclude_tools),
                approvals=self.approvals,
                teams=self.teams,
                participants=self.participants,
            ),
            settings=settings,
            clock=clock,
            store=store,
            composer=Composer(self.swarm_name, clock),
            mailbox=Mailbox(),
            active_tasks=ActiveTasks(settings.recent_tasks),
            histories=Histories(store, owner, settings.max_history_bytes),
            events=EventLog(recent=settings.recent_events, buffer=settings.stream_buffer),
            outside=Outside(self._gateway, self._ring, self._blobs),
            status=Status(print_llm_streams),
            start=self.start,
        )
        self._scheduler = Scheduler(context)
        mail_delivery = MailDelivery(context)
        self._hints, endings = WaitHints(context), Endings(context, mail_delivery)
        self._turn_end = TurnEnd(context, endings, mail_delivery)
        federation = FederationSubject(context, mail_delivery, endings, self._hints)
        context.subjects = together(
            TeamSubject(context, mail_delivery, self._turn_end.check),
            PauseSubject(context, mail_delivery, endings, self._watch_deadlines),
            ManualSubject(context),
            LetterSubject(context),
            federation,
        )
        context.wake = self._scheduler.pump
        tool_dispatcher = ToolDispatcher(context)
        turns = TurnRunner(context, tool_dispatcher, self._turn_end)
        self._scheduler.run_turn = traced_turns(context, turns.run)
        loader = TaskLoader(context, mail_delivery, self._turn_end)
        self._submissions = Submissions(context, mail_delivery, self._turn_end, loader)
        self.peers = PeerDoor(
            context, self._submissions, self._turn_end, federation, mail_delivery, loader
        )
        self.letters = LetterDoor(context, self._submissions, mail_delivery)
        self.set_aside = SetAside(context, self._submissions, loader)
        self._manual = ManualSteps(context, self._submissions, self._turn_end)
        events = OwnEvents(context.events)
        self._reader = TaskReader(context.store, context.owner, context.clock, events)

    # --- life ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the store, take up unfinished tasks and process mail. Calling it again is fine.

        Raises:
            StoreError: the store cannot be opened or read.
            MAILError: the runtime belongs to another event loop.
        """
        await self._open()
        self._scheduler.driving = True
        self._scheduler.pump()

    async def _open(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise MAILError(
                "a swarm can only be used in its first event loop; create "
                "another swarm for this one"
            )
        if self._recovered:
            return
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._recover())
        # Shared by all callers: one that gives up must not leave it half done.
        await asyncio.shield(self._opening)

    async def _recover(self) -> None:
        try:
            await self._context.store.open()
            self._deaf = self._context.store.driver.on_hint(self._hear)
            rows = await self._open_tasks()
            store, owner = self._context.store, self._context.owner
            queues = rows and store.shared and self._context.settings.queue_after is not None
            queued = await store.queued_tasks(owner) if queues else ()
            unfinished = (row for row in reversed(rows) if row.is_unfinished)
            await self._take_up(row.task_id for row in unfinished if row.task_id not in queued)
            if self._gateway is not None:
                self._gateway.wake(())  # mail may wait from the last time
            self._recovered = True
            # A paused task may have held calls of tools that nothing in the swarm holds any more.
            if self._context.parts.holds or any(row.state is TaskState.PAUSED for row in rows):
                self._watch_deadlines()
        finally:
            self._opening = None

    async def _open_tasks(self) -> list[TaskRow]:
        store, owner, quota = self._context.store, self._context.owner, self._context.settings.quota
        if quota is not None and await quota.open_tasks(owner) == 0:  # asked for anyhow
            return []
        return await store.list_tasks(owner, states=(TaskState.RUNNING, TaskState.PAUSED))

    def _hear(self, topics: list[str]) -> None:
        """Have streams look at what another process has stored."""
        events, mine = self._context.events, f"events {self._context.owner} "
        if not topics:
            events.look_again()
        for topic in topics:
            if topic.startswith(mine):
                events.look_again(topic.removeprefix(mine))

    async def _take_up(self, task_ids: Iterable[str]) -> None:
        left = list(task_ids)
        shuffle(left)  # others may take up the same

        async def work() -> None:
            while left:
                with suppress(StoreConflict, TaskElsewhere, UnknownTask):  # another was faster
                    await self._submissions.recover(left.pop())

        workers = (work() for _ in range(min(len(left), _AT_ONCE)))
        for failure in await asyncio.gather(*workers, return_exceptions=True):
            if failure is not None:
                raise failure

    async def take_up(self, task_ids: Iterable[str]) -> None:
        """Take up unfinished tasks of the owner that are not in memory and nobody works on."""
        await self.start()
        await self._take_up(task_ids)

    def holds(self, task_id: str) -> bool:
        """Tell whether a task of the owner is in memory, or its claim is."""
        tasks = self._context.active_tasks
        return task_id in tasks.ids or task_id in tasks.claims

    async def take_queued(self) -> int:
        """Take up tasks of the owner that wait for room, as many as there is room for.

        Returns:
            How many were taken up.
        """
        await self.start()
        tasks, most = self._context.active_tasks, self._context.settings.queue_after
        room = _MANY if most is None else most - len(tasks)
        if room <= 0:
            return 0
        taken = await self._context.store.take_queued(self._context.owner, room)
        try:
            for row, claim in taken:
                tasks.claims[row.task_id] = claim
                with suppress(StoreConflict, UnknownTask):  # it was deleted
                    await self._submissions.recover(row.task_id, begun=False)
        except StoreError:  # what could not be taken up is for whoever can
            left = [row.task_id for row, _ in taken if not self.holds(row.task_id)]
            await self._context.store.hand_over(self._context.owner, left)
            raise
        return len(taken)

    def run_continuous(
        self,
        action_override: ActionOverrideFunction | None = None,
        max_steps: int | None = None,
        mode: RunMode = "continuous",
    ) -> Coroutine[Any, Any, None]:
        """Process mail until `shutdown`. The settings act at once, when this is called.

        Args:
            action_override: Answers every action call in place of the action.
            max_steps: Messages per run of a task, for tasks posted without a limit of their own.
            mode: ``"continuous"``, or ``"manual"``: mail waits until `manual_step` shows it.

        Returns:
            A coroutine to await or to run as an asyncio task.

        Raises:
            ConfigError: there is no such mode, or ``action_override`` is no function.
        """
        if mode not in ("continuous", "manual"):
            hint = did_you_mean(str(mode), ("continuous", "manual"))
            raise ConfigError(
                f"unknown run_continuous mode '{mode}'; expected 'continuous' or 'manual'.{hint}"
            )
        if not (action_override is None or callable(action_override)):
            raise ConfigError(
                f"action_override must be a function, not {action_override!r}; the number of steps "
                "is given as max_steps=…"
            )
        self._context.status.manual = mode == "manual"
        self._context.mailbox.set_manual(self._context.status.manual)
        if max_steps is not None:
            self._context.settings = replace(self._context.settings, max_steps=max_steps)
        if action_override is not None:
            self._context.status.action_override = action_override
        return self._run_until_shutdown()

    async def _run_until_shutdown(self) -> None:
        await self.start()
        for task in self._context.active_tasks:
            # What was nobody's affair in manual mode may be stuck.
            await self._turn_end.check(task)
            self._context.settle(task)
        await self.shutdown_event.wait()

    async def manual_step(self, request: StepRequest) -> MAILMessage:
        """Call an agent once in manual mode; see `mail.core.runtime.manual.ManualSteps.step`."""
        if self._context.status.manual:
            await self.start()
        return await self._manual.step(request)

    async def await_queue_empty(self) -> None:
        """Wait until no agent is at work and no mail could wake one. Buffered mail may wait."""
        await self.start()
        await self._scheduler.quiet()

    async def run(
        self,
        action_override: ActionOverrideFunction | None = None,
        max_steps: int | None = None,
    ) -> None:
        """Process mail until `shutdown`; the documented short name of `run_continuous`."""
        await self.run_continuous(action_override, max_steps)

    async def shutdown(self, grace: float | None = None) -> None:
        """Stop in good order: no new turns, running ones get ``grace`` seconds, callers an answer.

        Mail that is not consumed by then stays in the store for the next start.
        """
        self._context.status.draining = True
        if self._timing is not None:
            self._timing.cancel()
        self._hints.close()
        self._deaf()
        wait = self._context.settings.shutdown_grace if grace is None else grace
        handing_over = asyncio.create_task(self._hand_over_quiet_tasks())
        for turn in await self._scheduler.drain(wait):
            with suppress(StoreError):  # it was the last chance
                await log_reports(self._context, turn)
        handing_over.cancel()
        await asyncio.gather(handing_over, return_exceptions=True)
        await self._hand_over(self._context.active_tasks.ids)
        self._context.status.closed = True
        for task in self._context.active_tasks:
            for waiter in list(task.waiters):
                waiter.fail(ShuttingDown(task.task_id))
            self._context.subjects.stopped(task)
            task.end_span()
        self._context.events.close()
        self.shutdown_event.set()
        if not (self._context.active_tasks or self._context.under_way):
            self._deaf = lambda: None
            self._context.part()

    async def _hand_over_quiet_tasks(self) -> None:
        """While turns come to their end, let other processes go on with all other tasks."""
        while self._context.store.shared:
            tasks = self._context.active_tasks
            await self._hand_over({task.task_id for task in tasks if not task.turns})
            await asyncio.sleep(_HAND_OVER_SECONDS)

    async def _hand_over(self, task_ids: Set[str]) -> None:
        context = self._context
        held = task_ids & {task.task_id for task in context.active_tasks if task.claim.held}
        held |= context.active_tasks.claims.keys()
        if held and context.store.shared:
            with suppress(StoreError):  # they are taken up when this process has gone
                await context.store.hand_over(context.owner, sorted(held))

    async def _graceful_shutdown(self) -> None:
        await self.shutdown()

    @property
    def idle(self) -> bool:
        """Tell whether nothing runs, waits or streams: the instance could be dropped."""
        context = self._context
        return not (
            self._scheduler.at_work
            or len(context.active_tasks)
            or context.events.has_readers
            or self._hints.pending
        )

    @property
    def open_tasks(self) -> Set[str]:
        """The ids of the tasks that are worked on, or queued for that; a live view."""
        return self._context.active_tasks.ids

    @property
    def turns_at_work(self) -> list[tuple[str, int]]:
        """The turns under way: whose each is, and the tier of the message that it reads."""
        turns = self._scheduler.active.values()
        return [(turn.agent, turn.queued.delivery.tier) for turn in turns if not turn.abandoned]

    @property
    def large_mail(self) -> int:
        """The characters of all long messages that wait or are worked on."""
        return self._context.mailbox.large

    @property
    def degraded(self) -> str | None:
        """The reason why the store fails at the moment, or None."""
        return self._context.status.degraded

    # --- messages -----------------------------------------------------------------------------

    async def open_run(self, request: RunRequest) -> Run | FollowedRun:
        """Accept a request and return the handle of its run, which another process may have.

        Raises:
            MAILError: see `mail.core.runtime.submission.Submissions.accept`; nothing was started.
        """
        if self._scheduler.driving:  # it starts turns as mail comes in
            await self._open()
        else:
            await self.start()
        try:
            waiter = await self._submissions.accept(request)
        except (ClaimLost, TaskElsewhere):
            return await self._open_elsewhere(request)
        if waiter is None:
            raise MAILError("open_run needs an awaited request")
        return Run(self._context, waiter)

    async def _open_elsewhere(self, request: RunRequest) -> FollowedRun:
        clock = self._context.clock
        if request.once is None:
            key = IdempotencyRow(f"relayed {clock.new_id()}", "", clock.now())
            request = request._replace(once=key)
        known = await self._submissions.begin(request)
        return await self.follow_run(known, stream_tokens=request.stream_tokens)

    async def relayed(self, kind: str, arguments: str) -> str:
        """Make a call that another process has asked for; see `mail.core.runtime.relay`."""
        await self.start()
        doors = (self._submissions, self.peers, self.letters, self.set_aside)
        return await make_call({type(door).__name__: door for door in doors}, kind, arguments)

    async def follow_run(
        self, known: IdempotencyRow, *, after: int = 0, stream_tokens: bool = False
    ) -> FollowedRun:
        """Return the handle of a run that an earlier request with the same key began.

        Args:
            known: The key's row, which names the run.
            after: A stream begins behind this event.
            stream_tokens: Whether a stream has ``model_delta`` events, too.
        """
        await self.start()
        return FollowedRun(
            context=self._context,
            task_id=known.task_id,
            began=known.first_event,
            message_id=known.message_id,
            after=after,
            stream_tokens=stream_tokens,
        )

    async def submit(self, message: MAILMessage, *, max_steps: int | Unset | None = UNSET) -> None:
        """Store and enqueue a message; nobody waits for an answer, and nothing is started.

        Args:
            message: The message.
            max_steps: The limit of its run in place of the runtime's own; None lifts it.

        Raises:
            MAILError: the message is refused.
        """
        await self._open()
        await self._submissions.accept(
            RunRequest(message=message, awaited=False, max_steps=max_steps)
        )

    async def submit_and_wait(
        self,
        message: MAILMessage,
        timeout: float = 3600.0,
        resume_from: str | None = None,
        **kwargs: Any,
    ) -> MAILMessage:
        """Submit a message and return the run's final message.

        Failure and timeout come back as system messages, whose subjects are
        ``::task_error::`` and ``::task_timeout::``.

        Args:
            kwargs: ``max_steps``, ``breakpoint_tool_call_result``.

        Raises:
            MAILError: the message or the resume is refused; nothing was started.
        """
        run = await self.open_run(_request(message, resume_from, kwargs))
        composer = self._context.composer
        try:
            return (await run.result(timeout)).message
        except TaskTimeout as error:
            return composer.system_completion(
                run.task_id, Subject.TASK_TIMEOUT, str(error)
            ).to_wire()
        except ShuttingDown as error:
            return composer.system_completion(
                run.task_id, Subject.SHUTDOWN_REQUESTED, str(error)
            ).to_wire()

    async def submit_and_stream(
        self,
        message: MAILMessage,
        timeout: float = 3600.0,
        resume_from: str | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[TaskEvent]:
        """Submit a message and yield the run's events to its terminal one.

        Raises:
            MAILError: the message or the resume is refused; nothing was started.
            TaskTimeout: the run took longer than ``timeout`` seconds; the task goes on.
        """
        run = await self.open_run(_request(message, resume_from, kwargs, streamed=True))
        deadline = asyncio.get_running_loop().time() + timeout
        async with aclosing(run.events()) as events:
            while True:
                try:
                    # Never around the yield: there the time-out would cancel the reader's own work.
                    async with asyncio.timeout_at(deadline):
                        event = await anext(events, None)
                except TimeoutError:
                    raise TaskTimeout("The task timed out.", run.task_id) from None
                if event is None:
                    return
                yield event
                del event

    async def cancel_task(self, task_id: str) -> MAILTask:
        """Cancel an open task and drop its mail; a finished task stays as it is.

        Raises:
            UnknownTask: the owner has no such task.
        """
        await self._submissions.cancel(task_id)
        task = await self.read_task(task_id, with_events=False)
        if task is None:
            raise UnknownTask(task_id)
        return task

    async def delete_task(self, task_id: str, *, cancel: bool = False) -> None:
        """Delete a task with everything that is stored of it.

        Args:
            task_id: The task.
            cancel: Cancel it first if it is running.

        Raises:
            UnknownTask: the owner has no such task.
            TaskRunning: it is running, and ``cancel`` is false.
        """
        await self._submissions.delete(task_id, cancel=cancel)

    async def mail_set_aside(
        self, task_id: str, after: int = 0, limit: int = 100
    ) -> list[dict[str, Any]]:
        """Return a task's mail that was set aside, as records."""
        await self._open()
        found, _ = await self._reader.mail_aside(task_id, after, limit)
        return found

    # --- approvals ------------------------------------------------------------------------------

    async def decide(
        self, task_id: str, approval_id: str, answer: Answer, by: Answerer
    ) -> tuple[CallRow, TaskRow]:
        """Answer what people are asked about a call; see `Submissions.decide`."""
        return await self._submissions.decide(task_id, approval_id, answer, by)

    async def end_approval(self, found: StoredCall) -> None:
        """End a call that nobody has answered in time, as its approval says.

        Raises:
            ApprovalClosed: it was answered meanwhile.
        """
        row = found.row
        if row.expires_at <= self._context.clock.now():
            by = Answerer("system", "")
            await self.decide(found.task_id, row.approval_id, late_answer(row), by)

    def _watch_deadlines(self) -> None:
        """End held calls in time, as long as there are any."""
        self._deadline.set()
        if self._context.status.draining or (self._timing is not None and not self._timing.done()):
            return
        context = self._context
        deadlines = Deadlines(
            store=context.store,
            act=self.end_approval,
            swarm=lambda: context.swarm,
            clock=context.clock,
            owner=context.owner,
            wake=self._deadline,
        )
        self._timing = asyncio.ensure_future(deadlines.keep(for_ever=False))

    async def get_approvals(self, status: str, task_id: str, limit: int) -> list[dict[str, Any]]:
        """Return the approvals of the owner's tasks as records, newest first."""
        await self._open()
        wanted = "" if status == "all" else status
        which = CallFilter(self._context.owner, status=wanted, task_id=task_id)
        found, _ = await self._context.store.held_calls(which, limit)
        return [approval_record(each) for each in found]

    async def answer_approval(
        self, approval_id: str, answer: Answer, by: Answerer
    ) -> dict[str, Any]:
        """Answer what people are asked about a call of one of the owner's tasks.

        Raises:
            UnknownApproval: there is no such approval; see also `decide`.
        """
        await self._open()
        owner = self._context.owner
        which = CallFilter(owner, approval_id=approval_id)
        page, _ = await self._context.store.held_calls(which, 1)
        if not page:
            raise UnknownApproval
        row, _ = await self.decide(page[0].task_id, approval_id, answer, by)
        return approval_record(page[0]._replace(row=row))

    # --- other swarms -------------------------------------------------------------------------

    async def _handle_local_message(self, message: MAILInterswarmMessage) -> None:
        """Take what an `InterswarmRouter` has for this swarm, as its ``local_message_handler``."""
        await self.peers.take(self.peers.read(message))

    # --- reading ------------------------------------------------------------------------------

    async def read_task(self, task_id: str, *, with_events: bool = True) -> MAILTask | None:
        """Return a task as the store has it, or None."""
        await self._open()
        return await self._reader.task(task_id, with_events=with_events)

    async def read_tasks(
        self, limit: int | None = None, cursor: str | None = None, *, with_events: bool = True
    ) -> list[MAILTask]:
        """Return the owner's tasks, newest first.

        Args:
            limit: At most so many.
            cursor: The id of the last task of the page before.
        """
        await self._open()
        return await self._reader.tasks(limit, cursor, with_events=with_events)

    async def replay(
        self, task_id: str, after: int = 0, ping_interval: float = 15.0
    ) -> AsyncIterator[TaskEvent]:
        """Yield a task's events after number ``after``; follow it while it runs.

        Ends when the log is exhausted and the task is not running, or with ``server_drain``.

        Raises:
            UnknownTask: the owner has no such task.
        """
        await self._open()
        async with aclosing(self._reader.replay(task_id, after, ping_interval)) as events:
            async for event in events:
                yield event


def _request(
    message: MAILMessage,
    resume_from: str | None,
    options: dict[str, Any],
    *,
    streamed: bool = False,
) -> RunRequest:
    known = {"max_steps", "breakpoint_tool_call_result", "stream_tokens"}
    unknown = sorted(set(options) - known)
    if unknown:
        raise MAILError(
            f"unknown option '{unknown[0]}'; expected one of {', '.join(sorted(known))}"
        )
    limit: int | Unset | None = options.get("max_steps", UNSET)
    return RunRequest(
        message=message,
        resume_from=resume_from,
        breakpoint_tool_call_result=options.get("breakpoint_tool_call_result"),
        max_steps=limit,
        stream_tokens=bool(options.get("stream_tokens")),
        streamed=streamed,
    )


def _memory() -> Store:
    from mail.db.memory import MemoryStore

    return MemoryStore()
