"""The use of a running swarm: post messages, follow their runs, read the tasks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Literal

from mail.core.addresses import create_address, create_agent_address
from mail.core.compose import Composer, Subject
from mail.core.events import TaskEvent
from mail.core.runtime.manual import StepRequest
from mail.core.runtime.runtime import MAILRuntime
from mail.core.runtime.settings import UNSET, Unset
from mail.core.runtime.submission import RunRequest
from mail.core.schema import check_task_id, check_text
from mail.core.suggest import did_you_mean, hinted
from mail.core.wire import MAILMessage
from mail.errors import ProtocolError, TaskError, UnknownAgent
from mail.services.tasks import PING_INTERVAL

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Mapping, Sequence

    from sse_starlette import EventSourceResponse

    from mail.api.agents import MAILAgent
    from mail.clock import Clock
    from mail.core.actions import ActionOverrideFunction
    from mail.core.envelope import Envelope
    from mail.core.runtime.runs import FollowedRun, Run
    from mail.core.runtime.runtime import MAILRuntime, RunMode
    from mail.core.runtime.turn import ResponseType
    from mail.core.runtime.waiters import RunResult
    from mail.core.tasks import MAILTask
    from mail.core.tools.offer import Offer
    from mail.core.wire import MAILMessage
    from mail.db.records import IdempotencyRow, MemoryRow

SenderType = Literal["admin", "agent", "user"]
PostedKind = Literal["request", "response", "broadcast", "interrupt"]

SENDER_TYPES: Final[tuple[SenderType, ...]] = ("admin", "agent", "user")
POSTED_KINDS: Final[tuple[PostedKind, ...]] = ("request", "response", "broadcast", "interrupt")


def compose_posted(  # noqa: PLR0913 - the parts of a message
    swarm: str,
    clock: Clock,
    *,
    sender: tuple[str, str],
    kind: str,
    targets: Sequence[str],
    subject: str,
    body: str,
    task_id: str | None,
) -> Envelope:
    """Build a message to agents of a swarm.

    Args:
        swarm: The swarm's name.
        clock: Gives time and ids.
        sender: Kind and name of the sender.
        kind: request, response, broadcast or interrupt; a response gets a fresh ``request_id``.
        targets: Names of agents, or ``all``; exactly one for a request or response.
        subject: The subject.
        body: The body.
        task_id: The task it belongs to; a new one when None.

    Raises:
        ProtocolError: one of these does not make a message.
    """
    if sender[0] not in SENDER_TYPES:
        raise ProtocolError(f"invalid sender type: {sender[0]}")
    if isinstance(targets, str):
        raise ProtocolError(f"targets must be a list of agent names, got the string '{targets}'")
    if kind == "broadcast_complete":
        raise ProtocolError("a broadcast_complete cannot be posted; only agents can end tasks")
    if kind not in POSTED_KINDS:
        hint = did_you_mean(str(kind), POSTED_KINDS)
        raise ProtocolError(
            f"invalid message type: '{kind}'; expected one of {', '.join(POSTED_KINDS)}.{hint}"
        )
    if kind in ("request", "response") and len(targets) != 1:
        raise ProtocolError(f"{kind} messages must have exactly one target")
    if not targets:
        raise ProtocolError(f"{kind} messages must have at least one target")
    check_text(sender[1], "sender")
    check_text(subject, "subject")
    check_text(body, "body")
    return Composer(swarm, clock).message(
        kind,
        clock.new_id() if task_id is None else check_task_id(task_id),
        create_address(sender[1], sender[0]),
        map(create_agent_address, targets),
        subject,
        body,
    )


DEFAULT_TIMEOUT: Final = 3600.0

# An allow-list: other keyword arguments are refused.
RUN_OPTIONS: Final = (
    "timeout",
    "max_steps",
    "breakpoint_tool_call_result",
    "breakpoint_tool_caller",
    "stream_tokens",
)
"""``breakpoint_tool_caller`` is accepted and ignored: the open calls know their agent."""


def read_options(
    given: Mapping[str, Any], timeout: float = DEFAULT_TIMEOUT
) -> tuple[float, dict[str, Any]]:
    """Check extra keyword arguments.

    Args:
        given: The caller's arguments.
        timeout: Seconds that the caller waits, if ``given`` says nothing else.

    Returns:
        The timeout, and what the runtime is told of the run.

    Raises:
        ProtocolError: an unknown name, or a value of the wrong type.
    """
    for name in given:
        if name not in RUN_OPTIONS:
            hint = did_you_mean(name, RUN_OPTIONS)
            raise ProtocolError(
                f"unknown option '{name}'; allowed are {', '.join(RUN_OPTIONS)}.{hint}"
            )
    options = {"timeout": timeout, **given}
    options.pop("breakpoint_tool_caller", None)
    seconds: Any = options.pop("timeout")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise ProtocolError(f"timeout must be a number of seconds above 0, got {seconds!r}")
    steps = options.get("max_steps", UNSET)
    if not (steps is None or isinstance(steps, Unset)):
        text = "" if isinstance(steps, bool) else str(steps)
        if not text.strip().isdecimal() or int(text) <= 0:
            raise ProtocolError(f"max_steps must be an int or null, and above 0; got {steps!r}")
        options["max_steps"] = int(text)
    if not isinstance(options.get("stream_tokens", False), bool):
        raise ProtocolError("stream_tokens must be true or false")
    return seconds, options


async def until_timeout(
    events: AsyncIterator[TaskEvent], task_id: str, timeout: float, clock: Clock
) -> AsyncGenerator[TaskEvent, None]:
    """Yield events until they end or the time is up.

    When the time is up, the last event is a ``task_error`` without a number: it belongs to this
    stream only, for the task itself goes on.

    Args:
        events: The events of a run.
        task_id: The run's task.
        timeout: Seconds from the first step of the iteration.
        clock: Dates the last event.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    try:
        while True:
            try:
                event = await asyncio.wait_for(anext(events), deadline - loop.time())
            except StopAsyncIteration:
                return
            except TimeoutError:
                yield TaskEvent(
                    task_id=task_id,
                    kind="task_error",
                    timestamp=clock.now(),
                    description=f"timeout for task '{task_id}'",
                    extra={
                        "response": "The task timed out.",
                        "subject": Subject.TASK_TIMEOUT.value,
                        "status": "running",
                        "breakpoints": [],
                    },
                )
                return
            yield event
            del event
    finally:
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()


class SwarmReader:
    """The user's tasks. Methods that are not ``async`` see live and recently finished ones only."""

    _runtime: MAILRuntime

    async def read_task(self, task_id: str, *, with_events: bool = True) -> MAILTask | None:
        """Return a task as the store has it, or None."""
        return await self._runtime.read_task(task_id, with_events=with_events)

    async def read_tasks(
        self, limit: int | None = None, cursor: str | None = None, *, with_events: bool = True
    ) -> list[MAILTask]:
        """Return the user's tasks as the store has them, newest first.

        Args:
            limit: At most so many.
            cursor: The id of the last task of the page before.
            with_events: Whether to read the tasks' events, too.

        Raises:
            ProtocolError: the limit or the cursor is none.
        """
        return await self._runtime.read_tasks(limit, cursor, with_events=with_events)

    def replay(
        self, task_id: str, after: int = 0, ping_interval: float = PING_INTERVAL
    ) -> AsyncIterator[TaskEvent]:
        """Yield a task's events after number ``after``; follow it while it runs.

        Raises:
            UnknownTask: the user has no such task.
        """
        return self._runtime.replay(task_id, after, ping_interval)

    def get_pending_requests(self) -> dict[str, asyncio.Future[MAILMessage]]:
        """Return, by task, what will be the final message that its newest caller waits for.

        The futures are copies: cancelling one changes nothing for the caller.
        """
        waiting = self._runtime.pending_requests
        return {task_id: _message_of(future) for task_id, future in waiting.items()}

    def get_response_message(self, task_id: str) -> MAILMessage | None:
        """Return the final message of a live or recently finished task, or None."""
        return self._runtime.get_response_message(task_id)

    def get_events(self, task_id: str) -> list[TaskEvent]:
        """Return the newest events of a live or recently finished task."""
        return self._runtime.get_events_by_task_id(task_id)

    def get_all_tasks(self) -> dict[str, MAILTask]:
        """Return the live and recently finished tasks by id."""
        return self._runtime.get_all_tasks()

    def get_task_by_id(self, task_id: str) -> MAILTask | None:
        """Return a live or recently finished task, or None."""
        return self._runtime.get_task_by_id(task_id)

    async def load_tasks_from_db(self) -> None:
        """Open the store and take up what is unfinished there; `start` does it, too.

        Finished tasks stay in the store until they are asked for: `read_task`, `read_tasks`.

        Raises:
            StoreError: the store cannot be opened or read.
        """
        await self._runtime.read_tasks(1, with_events=False)

    async def load_agent_histories_from_db(self) -> None:
        """Do as `load_tasks_from_db`: each history is read from the store at its agent's turn.

        Raises:
            StoreError: the store cannot be opened or read.
        """
        await self.load_tasks_from_db()


def _message_of(future: asyncio.Future[RunResult]) -> asyncio.Future[MAILMessage]:
    found: asyncio.Future[MAILMessage] = future.get_loop().create_future()

    def copy(done: asyncio.Future[RunResult]) -> None:
        if found.done():
            return
        if done.cancelled():
            found.cancel()
        elif (error := done.exception()) is not None:
            found.set_exception(error)
            found.exception()  # whoever looks at the request later must not cause a warning
        else:
            found.set_result(done.result().message)

    future.add_done_callback(copy)
    return found


class MessagePoster(SwarmReader):
    """Sends messages, and posts text to an entrypoint, in the name of the swarm's user."""

    name: str
    user_id: str
    user_role: SenderType | Literal["swarm"]
    entrypoint: str
    agents: list[MAILAgent]
    _clock: Clock

    def build_message(
        self,
        subject: str,
        body: str,
        targets: list[str],
        sender_type: SenderType = "user",
        type: str = "request",
        task_id: str | None = None,
    ) -> MAILMessage:
        """Build a message from this swarm's user.

        Args:
            subject: The subject.
            body: The body.
            targets: Agents, or ``all``; exactly one for a request or response.
            sender_type: admin, agent or user.
            type: request, response, broadcast or interrupt.
            task_id: The task it belongs to; a new one when None.

        Raises:
            ProtocolError: one of these does not make a message.
        """
        return compose_posted(
            self.name,
            self._clock,
            sender=(sender_type, self.user_id),
            kind=type,
            targets=targets,
            subject=subject,
            body=body,
            task_id=task_id,
        ).to_wire()

    async def submit_message(
        self,
        message: MAILMessage,
        timeout: float = DEFAULT_TIMEOUT,
        show_events: bool = False,
        resume_from: str | None = None,
        **kwargs: Any,
    ) -> tuple[MAILMessage, list[TaskEvent]]:
        """Submit a message and wait for the answer; see `post_message`."""
        timeout, options = read_options(kwargs, timeout)
        answer = await self._runtime.submit_and_wait(message, timeout, resume_from, **options)
        if not show_events:
            return answer, []
        task = await self._runtime.read_task(message["message"]["task_id"])
        return answer, list(task.events) if task else []

    async def submit_message_nowait(self, message: MAILMessage, **kwargs: Any) -> None:
        """Store and enqueue a message; nothing is started and nobody waits for an answer.

        Args:
            message: The message.
            kwargs: See `mail.api.posting.RUN_OPTIONS`. ``max_steps`` holds for the run;
                ``timeout`` and ``stream_tokens`` mean nothing without somebody who waits.

        Raises:
            ProtocolError, TaskError: the message is refused, or it should resume a paused task.
        """
        _, options = read_options(kwargs)
        if options.get("breakpoint_tool_call_result") is not None:
            raise TaskError(
                "submit_message_nowait cannot resume a paused task; use submit_message with "
                "resume_from='breakpoint_tool_call'"
            )
        await self._runtime.submit(message, max_steps=options.get("max_steps", UNSET))

    async def submit_message_stream(
        self,
        message: MAILMessage,
        timeout: float = DEFAULT_TIMEOUT,
        resume_from: str | None = None,
        *,
        ping_interval: float = PING_INTERVAL,
        **kwargs: Any,
    ) -> EventSourceResponse:
        """Submit a message and return its run as a server-sent event response.

        The response goes out of a FastAPI or Starlette route as it is. Leaving it early never
        ends the task.

        Args:
            message: The message.
            timeout: Seconds after which the stream ends; the task itself goes on.
            resume_from: As in `post_message`.
            ping_interval: Seconds of silence after which a ``ping`` event goes out.
            kwargs: See `mail.api.posting.RUN_OPTIONS`.

        Raises:
            ProtocolError, TaskError: the message or the resume is refused; nothing was started.
        """
        from mail.net.sse import event_source

        timeout, options = read_options(kwargs, timeout)
        run = await self._runtime.open_run(
            RunRequest(message=message, resume_from=resume_from, streamed=True, **options)
        )
        events = run.events(ping_interval)
        return event_source(until_timeout(events, run.task_id, timeout, self._clock))

    async def post_message(  # noqa: PLR0913 - the documented signature
        self,
        body: str,
        subject: str = "New Message",
        msg_type: str = "request",
        entrypoint: str | None = None,
        show_events: bool = False,
        timeout: float = DEFAULT_TIMEOUT,
        task_id: str | None = None,
        resume_from: str | None = None,
        **kwargs: Any,
    ) -> tuple[MAILMessage, list[TaskEvent]]:
        """Post a message to the entrypoint and wait for the task's answer.

        Args:
            body: The text.
            subject: The subject.
            msg_type: request, response, broadcast or interrupt.
            entrypoint: Another entrypoint than the swarm's.
            show_events: Whether to return the task's events.
            timeout: Seconds to wait; when they are over, the task itself goes on.
            task_id: The task to continue or to name; a new one when None.
            resume_from: None, ``"user_response"`` or ``"breakpoint_tool_call"``.
            kwargs: See `mail.api.posting.RUN_OPTIONS`.

        Returns:
            The final ``broadcast_complete`` message and the events, if asked for. A run that
            fails or times out gives a system message with ``::task_error::`` or
            ``::task_timeout::`` as its subject.

        Raises:
            ProtocolError, TaskError: the message or the resume is refused; nothing was started.
        """
        message = self._compose(body, subject, msg_type, entrypoint, task_id, resume_from)
        return await self.submit_message(
            message.to_wire(), timeout, show_events, resume_from, **kwargs
        )

    async def post_message_and_run(  # noqa: PLR0913 - the documented signature
        self,
        body: str,
        subject: str = "New Message",
        msg_type: str = "request",
        entrypoint: str | None = None,
        show_events: bool = False,
        task_id: str | None = None,
        resume_from: str | None = None,
        max_steps: int | Unset | None = UNSET,
        **kwargs: Any,
    ) -> tuple[MAILMessage, list[TaskEvent]]:
        """Post a message and process mail to its answer; see `post_message`.

        Args:
            max_steps: Messages that the run may process; None lifts the swarm's own limit.
        """
        message = self._compose(body, subject, msg_type, entrypoint, task_id, resume_from)
        return await self.submit_message(
            message.to_wire(),
            show_events=show_events,
            resume_from=resume_from,
            **{"max_steps": max_steps, **kwargs},
        )

    async def post_message_stream(
        self,
        body: str,
        subject: str = "New Message",
        msg_type: str = "request",
        entrypoint: str | None = None,
        task_id: str | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        resume_from: str | None = None,
        **kwargs: Any,
    ) -> EventSourceResponse:
        """Post a message and return its run as a server-sent event response; see `post_message`."""
        message = self._compose(body, subject, msg_type, entrypoint, task_id, resume_from)
        return await self.submit_message_stream(message.to_wire(), timeout, resume_from, **kwargs)

    async def open_run(  # noqa: PLR0913 - what a caller may ask for
        self,
        body: str,
        subject: str = "New Message",
        msg_type: str = "request",
        *,
        entrypoint: str | None = None,
        task_id: str | None = None,
        resume_from: str | None = None,
        max_steps: int | Unset | None = UNSET,
        breakpoint_tool_call_result: object = None,
        stream_tokens: bool = False,
        streamed: bool = False,
        offer: Offer | None = None,
        once: IdempotencyRow | None = None,
        memories: tuple[MemoryRow, ...] = (),
        entrypoints: Sequence[str] = (),
    ) -> Run | FollowedRun:
        """Post a message and return the handle of its run: the result, or the events.

        Args:
            entrypoints: Several entrypoints for a broadcast; ``all`` is all of them.
            breakpoint_tool_call_result: The results to resume with.
            stream_tokens: Whether the events also carry pieces of model calls.
            streamed: Whether the run's events will be read.
            offer: Tools and instructions that the caller lends the entrypoint.
            once: An idempotency key of the user's; see `follow_run`.
            memories: Rows that are stored with the message.
            The others are those of `post_message`.

        Raises:
            ProtocolError, TaskError: the message or the resume is refused; nothing was started.
            ShuttingDown: the swarm takes no more work.
            KeyTaken: the user has used the idempotency key before; nothing was accepted.
            StoreError: the message could not be stored; nothing was accepted.
        """
        message = self._compose(
            body, subject, msg_type, entrypoint, task_id, resume_from, entrypoints
        )
        return await self._runtime.open_run(
            RunRequest(
                message=message,
                resume_from=resume_from,
                breakpoint_tool_call_result=breakpoint_tool_call_result,
                max_steps=max_steps,
                stream_tokens=stream_tokens,
                streamed=streamed,
                offer=offer,
                once=once,
                memories=memories,
            )
        )

    async def follow_run(
        self, known: IdempotencyRow, *, after: int = 0, stream_tokens: bool = False
    ) -> FollowedRun:
        """Return the handle of a run that an earlier request with the same key began.

        Args:
            known: The key's row, as the store has it.
            after: A stream begins behind this event.
            stream_tokens: Whether a stream has ``model_delta`` events, too.
        """
        return await self._runtime.follow_run(known, after=after, stream_tokens=stream_tokens)

    def _compose(
        self,
        body: str,
        subject: str,
        msg_type: str,
        entrypoint: str | None,
        task_id: str | None,
        resume_from: str | None,
        several: Sequence[str] = (),
    ) -> Envelope:
        if resume_from is not None and task_id is None:
            raise TaskError(f"resume_from='{resume_from}' needs the task_id of the task to resume")
        if "all" in several:
            targets = [agent.name for agent in self.agents if agent.enable_entrypoint]
        else:
            targets = [self._entrypoint(name) for name in several or (entrypoint,)]
        return compose_posted(
            self.name,
            self._clock,
            sender=(self.user_role, self.user_id),
            kind=msg_type,
            targets=targets or [self._entrypoint(entrypoint)],
            subject=subject,
            body=body,
            task_id=task_id,
        )

    def _entrypoint(self, name: str | None) -> str:
        if name is None:
            return self.entrypoint
        entries = [agent.name for agent in self.agents if agent.enable_entrypoint]
        if name in entries:
            return name
        known = [agent.name for agent in self.agents]
        if name not in known:
            raise UnknownAgent(hinted(f"entrypoint agent '{name}' not found in swarm", name, known))
        listing = ", ".join(f"'{entry}'" for entry in entries)
        raise UnknownAgent(
            f"agent '{name}' does not accept messages from users (enable_entrypoint is false); "
            f"entrypoints: {listing}"
        )


class ManualStepper:
    """Runs a swarm in one of its two modes."""

    _runtime: MAILRuntime

    def run_continuous(
        self,
        action_override: ActionOverrideFunction | None = None,
        max_steps: int | None = None,
        mode: RunMode = "continuous",
    ) -> Coroutine[Any, Any, None]:
        """Process mail until `shutdown`. The mode holds from the moment of the call.

        Args:
            action_override: Answers every action call in place of the action.
            max_steps: Messages per run of a task; None keeps the swarm's own limit.
            mode: ``"continuous"``: agents take their mail as it comes. ``"manual"``: mail waits
                for its agent until `manual_step` shows it.

        Returns:
            A coroutine to await or to run as an asyncio task.

        Raises:
            ConfigError: there is no such mode, or ``action_override`` is no function.
        """
        return self._runtime.run_continuous(action_override, max_steps, mode)

    async def await_queue_empty(self) -> None:
        """Wait until no agent is at work and no mail could wake one.

        In manual mode mail may still wait in the agents' buffers.
        """
        await self._runtime.await_queue_empty()

    async def manual_step(
        self,
        task_id: str,
        target: str,
        response_targets: Sequence[str] | None = None,
        response_type: ResponseType = "broadcast",
        payload: str | None = None,
        dynamic_ctx_ratio: float = 0.0,
        _llm: str | None = None,
        _system: str | None = None,
    ) -> MAILMessage:
        """Call one agent in manual mode and send its words on.

        The agent sees all mail that has waited for it, each in a ``public_message`` (to all) or
        ``private_message`` element, and then the payload. It may use its actions; it is called
        until it answers in plain text. That text goes to the response targets, where it waits for
        their own steps.

        Args:
            task_id: The task; a new one is opened under this id.
            target: The agent to call.
            response_targets: The recipients of its words; all agents when None.
            response_type: ``"broadcast"`` (one message to the targets), ``"response"`` or
                ``"request"`` (one message to each target).
            payload: A text for the agent beside its mail.
            dynamic_ctx_ratio: The share of the model's context (0 to 1) above which older history
                is summarised for this step; 0 for the swarm's own setting.
            _llm: The model of this step in place of the agent's own.
            _system: The system prompt of this step in place of the agent's own.

        Returns:
            The message that the words became; of several, the first. When the agent completed the
            task, the final ``broadcast_complete`` message.

        Raises:
            MAILError: the swarm is not in manual mode.
            ProtocolError, UnknownAgent, ConfigError: an argument is wrong; nothing was started.
            TaskPaused: the task waits for the results of breakpoint calls.
            StepFailed: the agent failed, or had no words; its mail waits for the next step.
            TaskError: the task ended before the step did.
        """
        return await self._runtime.manual_step(
            StepRequest(
                task_id=task_id,
                target=target,
                response_targets=response_targets,
                response_type=response_type,
                payload="" if payload is None else payload,
                ctx_ratio=dynamic_ctx_ratio,
                llm=_llm,
                system=_system,
            )
        )
