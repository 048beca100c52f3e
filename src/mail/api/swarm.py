"""A running swarm for one user: agents, actions and the runtime that moves their mail."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Literal

from mail.api.actions import MAILAction
from mail.api.agents import MAILAgent
from mail.api.checks import check_limit, check_text, text_list
from mail.api.peers import introduce
from mail.api.posting import MessagePoster
from mail.api.stepping import ManualStepper
from mail.api.validation import Wiring, actions_by_name, check_parts, check_wiring
from mail.clock import Clock, SystemClock
from mail.config.env import DATABASE_URL, setting
from mail.core.runtime.interswarm import Federation
from mail.core.runtime.runtime import MAILRuntime
from mail.core.runtime.settings import RuntimeSettings
from mail.core.tasks import MAILTask
from mail.db.base import Store
from mail.errors import ConfigError

__all__ = ["MAILSwarm", "UserRole", "close_agents", "library_store"]

UserRole = Literal["admin", "agent", "user"]

_ROLES = ("admin", "agent", "user")


class MAILSwarm(ManualStepper, MessagePoster, Federation):
    """A swarm at work for one user.

    Calls that wait (``post_message…``, ``submit_message``) start processing by themselves;
    `submit_message_nowait` only enqueues. A swarm belongs to the event loop of its first call.

    Attributes:
        supervisors: The agents that may complete tasks.
        agent_names: The agents' names in order.
        adjacency_matrix: Who may write to whom; see `mail.api.graph`.
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
        clock: Clock | None = None,
        public: bool = False,
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
            clock: Time and ids; the machine's when None.
            public: Whether other swarms may list it.

        Raises:
            ConfigError: the parts do not fit together; the text says which.
        """
        if user_role not in _ROLES:
            raise ConfigError(f"user_role must be admin, agent or user, got '{user_role}'")
        check_text("user_id", user_id)
        check_parts(agents, MAILAgent, actions)
        self.name, self.version, self.entrypoint = name, version, entrypoint
        self.agents, self.actions = list(agents), list(actions)
        self.user_id, self.user_role = user_id, user_role
        self.swarm_registry, self.enable_interswarm = swarm_registry, enable_interswarm
        self.breakpoint_tools = text_list("breakpoint_tools", breakpoint_tools)
        self.exclude_tools = text_list("exclude_tools", exclude_tools)
        check_limit(task_message_limit)
        self.task_message_limit, self.public = task_message_limit, public
        self.description, self.keywords = description, text_list("keywords", keywords)
        self.enable_db_agent_histories = enable_db_agent_histories
        self.print_llm_streams = print_llm_streams
        self._clock = clock or SystemClock()
        self._validate()
        self._store = library_store(store, enable_db_agent_histories)
        self._owns_store = self._store is not None and self._store is not store
        settings = settings or RuntimeSettings()
        if task_message_limit is not None:
            settings = replace(settings, max_steps=task_message_limit)
        self._runtime = self._make_runtime(settings)
        introduce(self.agents, self.name)

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
            clock=self._clock,
        )

    def _set_targets(self, targets: list[list[str]]) -> None:
        for agent, new in zip(self.agents, targets, strict=True):
            agent.comm_targets = new
            self._runtime.agents[agent.name].comm_targets = list(new)
        introduce(self.agents, self.name)

    # --- life ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the store, take up unfinished tasks and process mail. Calling it again is fine.

        Raises:
            StoreError: the store cannot be opened or read.
            MAILError: the swarm belongs to another event loop.
        """
        await self._runtime.start()

    async def shutdown(self, grace: float | None = None) -> None:
        """Stop in good order: running turns get ``grace`` seconds, waiting callers an answer.

        A store that was given as a URL is closed, a shared one stays open.
        """
        await self._runtime.shutdown(grace)
        await close_agents(self.agents)
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


_log = logging.getLogger(__name__)


async def close_agents(agents: Sequence[MAILAgent]) -> None:
    """Await ``aclose()`` of every agent function that has one; failures are only logged."""
    closers: list[Callable[[], Awaitable[None]]] = [
        close for agent in agents if callable(close := getattr(agent.function, "aclose", None))
    ]
    ended = await asyncio.gather(*(close() for close in closers), return_exceptions=True)
    for failure in ended:
        if isinstance(failure, BaseException):
            _log.warning("an agent's connections could not be closed", exc_info=failure)


def library_store(store: Store | str | None, enable_db_agent_histories: bool) -> Store | None:
    """Return the store for a swarm, not yet opened; None stands for memory.

    Args:
        store: A store to share, or the URL of one, which is then this swarm's own.
        enable_db_agent_histories: Without a store, use the one that ``DATABASE_URL`` names.

    Raises:
        ConfigError: a URL that names no store.
    """
    if store is None and enable_db_agent_histories:
        store = setting(DATABASE_URL)
        if store is not None and store.lower() == "none":
            return None
    if not isinstance(store, str):
        return store
    from mail.db.urls import open_store

    return open_store(store)
