"""A running swarm for one user: agents, actions and the runtime that moves their mail."""

from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from mail.api.actions import MAILAction
from mail.api.agents import MAILAgent
from mail.api.messages import check_posted_kind
from mail.api.options import DEFAULT_TIMEOUT, read_options
from mail.api.sending import MessageSender
from mail.api.stores import library_store
from mail.api.wiring import Wiring, actions_by_name, check_wiring
from mail.clock import SystemClock
from mail.core.actions import ActionOverrideFunction
from mail.core.events import TaskEvent
from mail.core.runtime.intake import RunRequest
from mail.core.runtime.runs import Run
from mail.core.runtime.runtime import MAILRuntime
from mail.core.runtime.settings import UNSET, RuntimeSettings, Unset
from mail.core.tasks import MAILTask
from mail.core.wire import MAILMessage
from mail.db.base import Store
from mail.errors import ConfigError, TaskError, UnknownAgent
from mail.swarms_json.names import hinted

if TYPE_CHECKING:
    from sse_starlette import EventSourceResponse

__all__ = ["MAILSwarm", "UserRole"]

UserRole = Literal["admin", "agent", "user"]

_ROLES = ("admin", "agent", "user")


class MAILSwarm(MessageSender):
    """A swarm at work for one user.

    Calls that wait (``post_message…``, ``submit_message``) start processing by themselves;
    `submit_message_nowait` only enqueues. A swarm belongs to the event loop of its first call.

    Attributes:
        supervisors: The agents that may complete tasks.
        agent_names: The agents' names in order.
        The other attributes are the constructor's arguments.
    """

    def __init__(  # noqa: PLR0913 - the documented signature
        self,
        name: str,
        version: str,
        agents: Sequence[MAILAgent],
        actions: Sequence[MAILAction],
        entrypoint: str,
        user_id: str = "default",
        user_role: UserRole = "user",
        swarm_registry: object | None = None,
        enable_interswarm: bool = False,
        breakpoint_tools: Sequence[str] = (),
        exclude_tools: Sequence[str] = (),
        task_message_limit: int | None = None,
        description: str = "",
        keywords: Sequence[str] = (),
        enable_db_agent_histories: bool = False,
        print_llm_streams: bool = True,
        *,
        store: Store | str | None = None,
        settings: RuntimeSettings | None = None,
    ) -> None:
        """Check the swarm and wire its runtime; nothing is opened or started yet.

        Args:
            name: The swarm's name.
            version: The swarm's version.
            agents: The agents.
            actions: Actions beside those that the agents bring along.
            entrypoint: The agent that gets messages without an entrypoint of their own.
            user_id: Whose instance this is; tasks belong to (swarm, role, id).
            user_role: admin, agent or user.
            swarm_registry: For mail between swarms.
            enable_interswarm: Whether mail may go to other swarms.
            breakpoint_tools: Tools whose calls pause a task.
            exclude_tools: Tools that no agent may call.
            task_message_limit: Messages that a run of a task may process; None for no limit.
            description: For listings.
            keywords: For listings.
            enable_db_agent_histories: Without ``store``, use the one that ``DATABASE_URL`` names.
            print_llm_streams: Whether replies of models are printed as they stream in.
            store: A store to share, or the URL of one; memory when None.
            settings: Limits of the runtime; ``task_message_limit`` wins over its ``max_steps``.

        Raises:
            ConfigError: the parts do not fit together; the text says which.
        """
        if user_role not in _ROLES:
            raise ConfigError(f"user_role must be admin, agent or user, got '{user_role}'")
        self.name, self.version, self.entrypoint = name, version, entrypoint
        self.agents, self.actions = list(agents), list(actions)
        self.user_id, self.user_role = user_id, user_role
        self.swarm_registry, self.enable_interswarm = swarm_registry, enable_interswarm
        self.breakpoint_tools, self.exclude_tools = list(breakpoint_tools), list(exclude_tools)
        self.task_message_limit = task_message_limit
        self.description, self.keywords = description, list(keywords)
        self.enable_db_agent_histories = enable_db_agent_histories
        self.print_llm_streams = print_llm_streams
        self._clock = SystemClock()
        self._validate()
        self._store = library_store(store, enable_db_agent_histories)
        self._owns_store = self._store is not None and self._store is not store
        settings = settings or RuntimeSettings()
        if task_message_limit is not None:
            settings = replace(settings, max_steps=task_message_limit)
        self._runtime = self._make_runtime(settings)

    def _validate(self) -> None:
        check_wiring(
            Wiring(
                name=self.name,
                agents=self.agents,
                actions=self.actions,
                entrypoint=self.entrypoint,
                enable_interswarm=self.enable_interswarm,
                breakpoint_tools=self.breakpoint_tools,
                exclude_tools=self.exclude_tools,
                user_id=self.user_id,
                has_registry=self.swarm_registry is not None,
            )
        )

    def _make_runtime(self, settings: RuntimeSettings) -> MAILRuntime:
        actions = actions_by_name(self.actions, self.agents)
        return MAILRuntime(
            agents={agent.name: agent.to_core() for agent in self.agents},
            actions={name: action.to_core() for name, action in actions.items()},
            user_id=self.user_id,
            user_role=self.user_role,
            swarm_name=self.name,
            entrypoint=self.entrypoint,
            swarm_registry=self.swarm_registry,
            enable_interswarm=self.enable_interswarm,
            breakpoint_tools=self.breakpoint_tools,
            exclude_tools=self.exclude_tools,
            enable_db_agent_histories=self.enable_db_agent_histories,
            print_llm_streams=self.print_llm_streams,
            store=self._store,
            settings=settings,
        )

    @property
    def agent_names(self) -> list[str]:
        """The agents' names in order."""
        return [agent.name for agent in self.agents]

    @property
    def supervisors(self) -> list[MAILAgent]:
        """The agents that may complete tasks."""
        return [agent for agent in self.agents if agent.can_complete_tasks]

    # --- life ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the store, take up unfinished tasks and process mail. Calling it again is fine.

        Raises:
            StoreError: the store cannot be opened or read.
            MAILError: the swarm belongs to another event loop.
        """
        await self._runtime.start()

    def run_continuous(
        self,
        max_steps: int | None = None,
        action_override: ActionOverrideFunction | None = None,
        mode: Literal["continuous"] = "continuous",
    ) -> Coroutine[Any, Any, None]:
        """Process mail until `shutdown`.

        Args:
            max_steps: Messages per run of a task; None keeps the swarm's own limit.
            action_override: Answers every action call in place of the action.
            mode: This version knows ``"continuous"`` only.

        Returns:
            A coroutine to await or to run as an asyncio task.

        Raises:
            ConfigError: another mode.
        """
        if mode != "continuous":
            raise ConfigError(f"run_continuous has no mode '{mode}'; it is 'continuous'")
        return self._runtime.run_continuous(max_steps, action_override)

    async def shutdown(self, grace: float | None = None) -> None:
        """Stop in good order: running turns get ``grace`` seconds, waiting callers an answer.

        A store that was given as a URL is closed, a shared one stays open.
        """
        await self._runtime.shutdown(grace)
        if self._owns_store and self._store is not None:
            await self._store.close()

    async def cancel_task(self, task_id: str) -> MAILTask:
        """Cancel an open task and drop its mail; a finished task stays as it is.

        Raises:
            UnknownTask: the user has no such task.
        """
        return await self._runtime.cancel_task(task_id)

    @property
    def idle(self) -> bool:
        """Tell whether nothing runs, waits or streams: the instance could be dropped."""
        return self._runtime.idle

    @property
    def degraded(self) -> str | None:
        """Why the store fails at the moment, or None. Mail waits until it works again."""
        return self._runtime.degraded

    # --- posting text -------------------------------------------------------------------------

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
            kwargs: See `mail.api.options.RUN_OPTIONS`.

        Returns:
            The final ``broadcast_complete`` message and the events, if asked for. A run that
            fails or times out gives a system message with ``::task_error::`` or
            ``::task_timeout::`` as its subject.

        Raises:
            ProtocolError, TaskError: the message or the resume is refused; nothing was started.
        """
        options = read_options(kwargs, timeout=timeout)
        message = self._compose(body, subject, msg_type, entrypoint, task_id, resume_from)
        return await self._finish(message, resume_from, options, show_events)

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
        options = read_options(kwargs, max_steps=max_steps)
        message = self._compose(body, subject, msg_type, entrypoint, task_id, resume_from)
        return await self._finish(message, resume_from, options, show_events)

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
    ) -> "EventSourceResponse":
        """Post a message and return its run as a server-sent event response; see `post_message`."""
        message = self._compose(body, subject, msg_type, entrypoint, task_id, resume_from)
        return await self.submit_message_stream(message, timeout, resume_from, **kwargs)

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
    ) -> Run:
        """Post a message and return the handle of its run: the result, or the events.

        Args:
            breakpoint_tool_call_result: The results to resume with.
            stream_tokens: Whether the events also carry pieces of model calls.
            streamed: Whether the run's events will be read.
            The others are those of `post_message`.

        Raises:
            ProtocolError, TaskError: the message or the resume is refused; nothing was started.
            ShuttingDown: the swarm takes no more work.
            StoreError: the message could not be stored; nothing was accepted.
        """
        message = self._compose(body, subject, msg_type, entrypoint, task_id, resume_from)
        return await self._runtime.open_run(
            RunRequest(
                message=message,
                resume_from=resume_from,
                breakpoint_tool_call_result=breakpoint_tool_call_result,
                max_steps=max_steps,
                stream_tokens=stream_tokens,
                streamed=streamed,
            )
        )

    # --- inside -------------------------------------------------------------------------------

    def _compose(
        self,
        body: str,
        subject: str,
        msg_type: str,
        entrypoint: str | None,
        task_id: str | None,
        resume_from: str | None,
    ) -> MAILMessage:
        if resume_from is not None and task_id is None:
            raise TaskError(f"resume_from='{resume_from}' needs the task_id of the task to resume")
        return self.build_message(
            subject,
            body,
            [self._entrypoint(entrypoint)],
            self.user_role,
            check_posted_kind(msg_type),
            task_id,
        )

    def _entrypoint(self, name: str | None) -> str:
        if name is None:
            return self.entrypoint
        entries = [agent.name for agent in self.agents if agent.enable_entrypoint]
        if name in entries:
            return name
        if name not in self.agent_names:
            text = f"entrypoint agent '{name}' not found in swarm"
            raise UnknownAgent(hinted(text, name, self.agent_names))
        listing = ", ".join(f"'{entry}'" for entry in entries)
        raise UnknownAgent(
            f"agent '{name}' takes no messages from users (enable_entrypoint is false); "
            f"entrypoints are {listing}"
        )
