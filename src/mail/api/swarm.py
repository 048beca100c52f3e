"""A swarm's template and the running swarm of one user that is made from it."""

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from mail.api.actions import MAILAction, approval_from_entry
from mail.api.agents import MAILAgent, MAILAgentTemplate, agent_from_entry, as_template
from mail.api.definitions import ActionImporter, add_mcp_actions, load_actions
from mail.api.federation import LibraryFederation
from mail.api.graph import Matrix, introduce, part_of, read_matrix, targets_after
from mail.api.posting import ManualStepper, MessagePoster
from mail.api.validation import (
    AgentLike,
    actions_by_name,
    check_limit,
    check_mapping,
    check_parts,
    check_wiring,
    checked_approvals,
    text_list,
)
from mail.clock import Clock, SystemClock
from mail.config.env import DATABASE_URL, setting
from mail.core.agents import AgentCore
from mail.core.approvals import NO_APPROVALS, Answerer, Approval, read_answer
from mail.core.interswarm import PEER_ROLE, Gateway
from mail.core.runtime.interswarm import NO_ROUTER, Direction, Federation
from mail.core.runtime.runtime import MAILRuntime
from mail.core.runtime.settings import RuntimeSettings
from mail.core.runtime.validation import check_approvals, check_tools
from mail.core.suggest import hinted
from mail.core.tasks import MAILTask
from mail.core.teams import Teams
from mail.core.tools.catalogue import CATALOGUE
from mail.core.wire import MAILInterswarmMessage
from mail.db.blobs import Blobs
from mail.db.records import Owner
from mail.db.store import Store
from mail.errors import ConfigError
from mail.factories.checks import check_texts
from mail.services.preferences import checked_memories, memories_in
from mail.swarms_json.decode import parse_json
from mail.swarms_json.names import check_participant_names, check_teams
from mail.swarms_json.references import TRUSTED, ReferencePolicy
from mail.swarms_json.types import SwarmsJSONParticipant, SwarmsJSONSwarm, SwarmsJSONTeam
from mail.swarms_json.utils import build_swarm_from_swarms_json, load_swarms_json_from_file
from mail.version import VERSION

if TYPE_CHECKING:
    from mail.config.server import ServerConfig
    from mail.net.registry import SwarmRegistry

UserRole = Literal["admin", "agent", "user", "swarm"]

_ROLES = ("admin", "agent", "user", PEER_ROLE)


A = TypeVar("A", bound=AgentLike)


class AgentGraph(Generic[A]):
    """Agents that may write to one another: the base of a swarm and of its template."""

    name: str
    version: str
    agents: list[A]
    actions: list[MAILAction]
    entrypoint: str
    enable_interswarm: bool
    breakpoint_tools: list[str]
    exclude_tools: list[str]
    task_message_limit: int | None
    description: str
    keywords: list[str]
    public: bool
    enable_db_agent_histories: bool
    teams: list[SwarmsJSONTeam]
    enable_teams: bool
    participants: list[SwarmsJSONParticipant]
    approvals: dict[str, Approval]
    memories: dict[str, str]

    @property
    def agent_names(self) -> list[str]:
        """The agents' names in order."""
        return [agent.name for agent in self.agents]

    @property
    def supervisors(self) -> list[A]:
        """The agents that may complete tasks."""
        return [agent for agent in self.agents if agent.can_complete_tasks]

    def _take(self, kind: type, given: Mapping[str, Any]) -> None:
        """Check and keep what a swarm and its template have in common.

        Args:
            kind: Of the agents.
            given: The constructor's arguments by name.

        Raises:
            ConfigError: they do not fit together.
        """
        for part in AgentGraph.__annotations__:
            setattr(self, part, given[part])
        check_parts(self.agents, kind, self.actions)
        for part in ("breakpoint_tools", "exclude_tools", "keywords"):
            setattr(self, part, text_list(part, given[part]))
        check_limit(self.task_message_limit)
        self.agents, self.actions = list(self.agents), list(self.actions)
        self.teams, self.participants = list(self.teams), list(self.participants)
        guests = [each["name"] for each in self.participants]
        check_participant_names(guests, self.agent_names)
        # A program may give an instance teams whose participants it does not declare.
        check_teams(self.teams, None if kind is MAILAgent else (*self.agent_names, *guests))
        self.approvals = checked_approvals(self.approvals)
        self.memories = checked_memories(self.memories or {})
        self._validate()

    def _parts(self) -> dict[str, Any]:
        """Return what an instance has from its template beside the agents."""
        names = AgentGraph.__annotations__.keys() - {"agents"}
        return {name: getattr(self, name) for name in names}

    @property
    def adjacency_matrix(self) -> Matrix:
        """The matrix of who may write to whom, as it is now; see `mail.api.graph`."""
        return self._build_adjacency_matrix()[0]

    def _build_adjacency_matrix(self) -> tuple[Matrix, list[str]]:
        return read_matrix(self.agents, self.name), self.agent_names

    def update_from_adjacency_matrix(self, adj: Sequence[Sequence[int]]) -> None:
        """Overwrite the agents' communication targets; those in other swarms are kept.

        It holds from each agent's next turn on. Nothing is changed when an error is raised.

        Args:
            adj: One row of 0 and 1 per agent, in the order of ``agent_names``.

        Raises:
            ConfigError: the matrix is not of that form, or an agent would be left without targets
                although it is not both entrypoint and supervisor.
        """
        self._set_targets(targets_after(adj, self.agents, self.name))

    def _validate(self) -> None:
        guests = [each["name"] for each in self.participants]
        check_wiring(
            self.name, self.agents, self.entrypoint, guests, interswarm=self.enable_interswarm
        )
        actions = [*self.actions, *(action for agent in self.agents for action in agent.actions)]
        tools = [action.name for action in actions]
        excluded = [tool for agent in self.agents for tool in agent.exclude_tools]
        check_tools(self.breakpoint_tools, [*self.exclude_tools, *excluded], tools)
        held = [action.name for action in actions if action.approval is not None]
        check_approvals([*self.approvals, *held], self.breakpoint_tools, tools)

    @abstractmethod
    def _set_targets(self, targets: list[list[str]]) -> None:
        """Give each agent its new targets, in the order of the agents."""

    def get_subswarm(
        self, names: Sequence[str], name_suffix: str, entrypoint: str | None = None
    ) -> "MAILSwarmTemplate":
        """Return a template of some of the agents, named ``<name>-<name_suffix>``.

        Targets outside the selection are dropped. An agent that has none left gets those that may
        write to it, or else the first other agent, unless it is both entrypoint and supervisor.
        The rest (actions, tools, limits, description, …) is taken over.

        Args:
            names: The agents to take.
            name_suffix: Ends the new name.
            entrypoint: One of them, which becomes an entrypoint if it is none; by default this
                swarm's entrypoint if it is among them, else the first one that is an entrypoint.

        Raises:
            ConfigError: an agent is unknown, or entrypoint or supervisor are missing.
        """
        chosen = (entrypoint, self.entrypoint)
        agents, entry = part_of(self.agents, names, self.name, chosen)
        own = [action.name for agent in agents for action in agent.actions]
        known = {*CATALOGUE, *(action.name for action in self.actions), *own}
        everybody = set(names)
        taken_over = {
            **self._parts(),
            "name": f"{self.name}-{name_suffix}",
            "agents": agents,
            "entrypoint": entry,
            "breakpoint_tools": [tool for tool in self.breakpoint_tools if tool in known],
            "exclude_tools": [tool for tool in self.exclude_tools if tool in known],
            "teams": [team for team in self.teams if {team["lead"], *team["members"]} <= everybody],
            "participants": (),
            "approvals": {tool: how for tool, how in self.approvals.items() if tool in known},
        }
        return MAILSwarmTemplate(**taken_over)


class MAILSwarm(ManualStepper, MessagePoster, AgentGraph[MAILAgent], Federation):
    """A swarm at work for one user.

    Calls that wait (``post_message…``, ``submit_message``) start processing by themselves;
    `submit_message_nowait` only enqueues. A swarm belongs to the event loop of its first call.

    Attributes:
        supervisors: The agents that may complete tasks.
        agent_names: The agents' names in order.
        adjacency_matrix: The agents that each agent may write to; see `mail.api.graph`.
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
        gateway: Gateway | None = None,
        teams: Sequence[SwarmsJSONTeam] = (),
        enable_teams: bool = False,
        participants: Sequence[SwarmsJSONParticipant] = (),
        memories: Mapping[str, str] | None = None,
        ring: Callable[[Collection[str]], None] | None = None,
        approvals: Mapping[str, Approval] = NO_APPROVALS,
        blobs: Callable[[str], Blobs] | None = None,
    ) -> None:
        """Check the swarm and wire its runtime; nothing is opened or started yet.

        Args:
            name: The swarm's name.
            version: The swarm's version.
            agents: The agents.
            actions: Actions beside those that the agents bring along.
            entrypoint: The agent that gets messages without an entrypoint of their own.
            user_id: The owner of this instance; tasks belong to (swarm, role, id).
            user_role: admin, agent or user; swarm for an instance that serves another swarm.
            swarm_registry: Knows the other swarms; needed with ``enable_interswarm``, unless there
                is a ``gateway``.
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
            gateway: Leads to other swarms where a server carries the mail; without one the swarm
                carries it itself, see `mail.api.federation`.
            teams: Groups of agents: objects with ``id``, ``lead`` and ``members``.
            enable_teams: Whether their members have the tools for teams.
            participants: The others with a mailbox in the swarm, whom agents can write to:
                objects with ``name`` and ``description``.
            memories: The texts of named memories that the user has not changed.
            ring: Called with the names of participants that have got letters.
            approvals: Tools and actions by name whose calls wait for a person.
            blobs: Leads to the contents of files that come with letters, for a swarm's name.

        Raises:
            ConfigError: the parts do not fit together; the text says which.
        """
        if user_role not in _ROLES:
            known = ", ".join(_ROLES)
            raise ConfigError(f"user_role must be one of {known}, got '{user_role}'")
        check_texts(user_id=user_id)
        if not user_id:
            raise ConfigError("user ID must be at least 1 character long")
        self.user_id, self.user_role, self.swarm_registry = user_id, user_role, swarm_registry
        self.print_llm_streams, self._clock = print_llm_streams, clock or SystemClock()
        self._gateway, self._ring, self._blobs = gateway, ring, blobs
        self._take(MAILAgent, locals())
        self._wire(store, settings or RuntimeSettings())

    def _validate(self) -> None:
        super()._validate()
        if self.enable_interswarm and self.swarm_registry is None and self._gateway is None:
            raise ConfigError("swarm registry must be provided if interswarm messaging is enabled")

    def _wire(self, store: Store | str | None, settings: RuntimeSettings) -> None:
        """Make the runtime, and what carries its mail to other swarms where no gateway does."""
        self._store = library_store(store, self.enable_db_agent_histories, self.name)
        self._owns_store = self._store is not None and self._store is not store
        settings = replace(settings, memories=self.memories)
        if self.task_message_limit is not None:
            settings = replace(settings, max_steps=self.task_message_limit)
        self._settings = settings
        carries = self.enable_interswarm and self._gateway is None
        self._federation = self._federate() if carries else None
        self._runtime = self._make_runtime(self.user_role, self.user_id)
        if self._federation is not None:
            self._federation.home = self._runtime
            self.carrier = self._runtime.carrier = self._federation
        self._introduce()

    def _introduce(self) -> None:
        guests = {each["name"]: each["description"] for each in self.participants}
        introduce(self.agents, self.name, self._teams, guests, files=self._blobs is not None)

    @property
    def _teams(self) -> Teams:
        return Teams.of(self.teams, enabled=self.enable_teams)

    def _federate(self) -> LibraryFederation:
        """Prepare to carry mail between this swarm and others."""
        from mail.net.registry import SwarmRegistry

        if not isinstance(self.swarm_registry, SwarmRegistry):
            got = type(self.swarm_registry).__name__
            raise ConfigError(f"swarm_registry must be a mail.net.SwarmRegistry, got {got}")
        if self._store is None:
            from mail.db.memory import MemoryStore

            self._store = MemoryStore()
        owner = Owner(self.name, self.user_role, self.user_id)

        def make_guest(peer: str) -> MAILRuntime:
            return self._make_runtime(PEER_ROLE, peer, self._runtime.agents)

        return LibraryFederation(self.swarm_registry, self._store, owner, make_guest, self._clock)

    def _make_runtime(
        self, role: str, identifier: str, agents: Mapping[str, AgentCore] | None = None
    ) -> MAILRuntime:
        actions = actions_by_name(self.actions, self.agents)
        federation = self._federation
        return MAILRuntime(
            agents=agents or {agent.name: agent.to_core() for agent in self.agents},
            actions={name: action.to_core() for name, action in actions.items()},
            user_id=identifier,
            user_role=role,
            swarm_name=self.name,
            entrypoint=self.entrypoint,
            swarm_registry=self.swarm_registry,
            enable_interswarm=self.enable_interswarm,
            breakpoint_tools=self.breakpoint_tools,
            exclude_tools=self.exclude_tools,
            enable_db_agent_histories=self.enable_db_agent_histories,
            print_llm_streams=self.print_llm_streams,
            store=self._store,
            settings=self._settings,
            clock=self._clock,
            gateway=self._gateway if federation is None else federation.gateway,
            teams=self._teams,
            participants=[each["name"] for each in self.participants],
            ring=self._ring,
            approvals=self.approvals,
            blobs=self._blobs,
        )

    def _set_targets(self, targets: list[list[str]]) -> None:
        for agent, new in zip(self.agents, targets, strict=True):
            agent.comm_targets = new
            self._runtime.agents[agent.name].comm_targets = list(new)
        self._introduce()

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

        Mail for other swarms that can be delivered within seconds is. A store that was given as a
        URL is closed, a shared one stays open.
        """
        if self._federation is not None:
            await self._federation.deliver_last(grace)
            await self._federation.shutdown_guests(grace)
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

    async def get_mail_set_aside(
        self, task_id: str, after: int = 0, limit: int = 100
    ) -> list[dict[str, Any]]:
        """Return a task's mail that was set aside after too many crashes; see ``docs/tasks.md``.

        Args:
            task_id: The task.
            after: Only mail with a greater ``id``.
            limit: At most so many.
        """
        return await self._runtime.mail_set_aside(task_id, after, limit)

    async def retry_mail(self, task_id: str, number: int, *, by: Answerer | None = None) -> None:
        """Try a message again that was set aside; its task goes on.

        Args:
            task_id: The task.
            number: The ``id`` of the message.
            by: The person who asks for it, if that is not the user.

        Raises:
            UnknownTask, NotSetAside: there is no such task, or no such mail of it.
            RetryRefused, TaskPaused: the message, or its task, cannot go on.
        """
        await self._runtime.set_aside.retry(task_id, number, by or self._user())

    async def discard_mail(self, task_id: str, number: int, *, by: Answerer | None = None) -> None:
        """Give a message up that was set aside.

        Args:
            task_id: The task.
            number: The ``id`` of the message.
            by: The person who asks for it, if that is not the user.

        Raises:
            UnknownTask, NotSetAside: there is no such task, or no such mail of it.
        """
        await self._runtime.set_aside.discard(task_id, number, by or self._user())

    def _user(self) -> Answerer:
        return Answerer(self.user_role, self.user_id, owner=True)

    async def get_approvals(
        self, status: str = "open", task_id: str = "", limit: int = 100
    ) -> list[dict[str, Any]]:
        """Return the approvals of the user's tasks, newest first; see ``docs/breakpoints.md``.

        Args:
            status: Only with this status; ``all`` for any.
            task_id: Only of this task.
            limit: At most so many.
        """
        return await self._runtime.get_approvals(status, task_id, limit)

    async def answer_approval(self, approval_id: str, answer: object) -> dict[str, Any]:
        """Answer a held call as the user whose instance this is; the call is run in the background.

        Args:
            approval_id: The id of the approval.
            answer: ``{"type": "accept" | "edit" | "ignore" | "response", "args": …}``, or a list
                with one.

        Returns:
            The approval.

        Raises:
            ApprovalError: the answer is not allowed, or does not fit.
            ApprovalClosed: the call was answered before.
            UnknownApproval: there is no such approval.
            Forbidden: the user is not one of its approvers.
        """
        return await self._runtime.answer_approval(approval_id, read_answer(answer), self._user())

    async def delete_task(self, task_id: str, *, cancel: bool = False) -> None:
        """Delete a task with everything that is stored of it.

        Args:
            task_id: The task.
            cancel: Cancel it first if it is running.

        Raises:
            UnknownTask: the user has no such task.
            TaskRunning: it is running, and ``cancel`` is false.
        """
        await self._runtime.delete_task(task_id, cancel=cancel)

    async def receive_interswarm_message(
        self,
        message: MAILInterswarmMessage,
        direction: Direction = "forward",
        *,
        peer: str | None = None,
    ) -> dict[str, Any]:
        """Take a message of another swarm. A repeated one changes nothing.

        Args:
            message: The wrapper.
            direction: ``forward`` may open a task, ``back`` may not: the route that it came by.
            peer: The swarm whose token the request had. Without it the caller vouches for
                ``source_swarm``.

        Returns:
            The receipt, which is the answer to the other swarm's server.

        Raises:
            Forbidden: the message claims to come from another swarm than ``peer``.
            ProtocolError: it breaks the protocol.
            UnknownTask: that swarm takes part in no such task.
            TaskTaken: that swarm has another task of that id.
        """
        if self._federation is None:
            raise ConfigError(NO_ROUTER)
        return await self._federation.receive(message, direction, peer)

    @property
    def runtime(self) -> MAILRuntime:
        """The runtime that runs the user's tasks."""
        return self._runtime

    @property
    def idle(self) -> bool:
        """Tell whether nothing runs, waits or streams: the instance could be dropped."""
        return self._runtime.idle and (self._federation is None or self._federation.idle)


_log = logging.getLogger(__name__)
_loader = logging.getLogger("mail.swarms_json")


async def close_agents(agents: Sequence[MAILAgent]) -> None:
    """Await ``aclose()`` of every agent function that has one; failures are only logged."""
    closers: list[Callable[[], Awaitable[None]]] = [
        close for agent in agents if callable(close := getattr(agent.function, "aclose", None))
    ]
    ended = await asyncio.gather(*(close() for close in closers), return_exceptions=True)
    for failure in ended:
        if isinstance(failure, BaseException):
            _log.warning("an agent's connections could not be closed", exc_info=failure)


def library_store(
    store: Store | str | None, enable_db_agent_histories: bool, swarm: str
) -> Store | None:
    """Return the store for a swarm, not yet opened; None stands for memory.

    Args:
        store: A store to share, or the URL of one, which is then this swarm's own.
        enable_db_agent_histories: Without a store, use the one that ``DATABASE_URL`` names.
        swarm: The swarm's name. It shares an SQLite file with owners of other swarms.

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

    return open_store(store, swarm=swarm)


class MAILSwarmTemplate(AgentGraph[MAILAgentTemplate]):
    """A swarm that can be instantiated, once per user.

    Attributes:
        supervisors: The agents that may complete tasks.
        agent_names: The agents' names in order.
        adjacency_matrix: The agents that each agent may write to; see `mail.api.graph`.
        The other attributes are the constructor's arguments.
    """

    def __init__(  # noqa: PLR0913 - the documented signature
        self,
        name: str,
        version: str = VERSION,
        agents: Sequence[MAILAgentTemplate] = (),
        actions: Sequence[MAILAction] = (),
        entrypoint: str = "",
        enable_interswarm: bool = False,
        breakpoint_tools: Sequence[str] = (),
        exclude_tools: Sequence[str] = (),
        task_message_limit: int | None = None,
        description: str = "",
        keywords: Sequence[str] = (),
        public: bool = False,
        enable_db_agent_histories: bool = False,
        *,
        participants: Sequence[SwarmsJSONParticipant] = (),
        teams: Sequence[SwarmsJSONTeam] = (),
        enable_teams: bool = False,
        approvals: Mapping[str, Approval] = NO_APPROVALS,
        memories: Mapping[str, str] | None = None,
    ) -> None:
        """Check that the parts fit together.

        Args:
            name: The swarm's name.
            version: The swarm's version; this package's by default.
            agents: The agents.
            actions: Actions beside those that the agents bring along.
            entrypoint: The agent that gets messages without an entrypoint of their own.
            enable_interswarm: Whether mail may go to other swarms.
            breakpoint_tools: Tools whose calls pause a task.
            exclude_tools: Tools that no agent may call.
            task_message_limit: Messages that a run of a task may process; None for no limit.
            description: For listings.
            keywords: For listings.
            public: Whether other swarms may list it.
            enable_db_agent_histories: Without a store, instances use ``DATABASE_URL``'s.
            participants: The others with a mailbox in the swarm, where a server serves it: objects
                with ``name`` and ``description``.
            teams: Groups of agents and participants: objects with ``id``, ``lead`` and ``members``.
            enable_teams: Whether their members have the tools for teams.
            approvals: Tools and actions by name whose calls wait for a person.
            memories: The texts of named memories that a user has not changed, by name. Agents read
                them by ``{memory:NAME}`` in their system prompts.

        Raises:
            ConfigError: the parts do not fit together; the text says which.
        """
        self._take(MAILAgentTemplate, locals())

    def _set_targets(self, targets: list[list[str]]) -> None:
        # Copies: the same agent template may be part of other swarms.
        self.agents = [as_template(agent) for agent in self.agents]
        for agent, new in zip(self.agents, targets, strict=True):
            agent.comm_targets = new

    def make_agents(self, instance_params: Mapping[str, Any]) -> Iterator[MAILAgent]:
        """Build the agents of an instance one by one, for whoever has other work in between.

        Args:
            instance_params: As for `instantiate`.

        Raises:
            ConfigError: an agent cannot be built.
        """
        for agent in self.agents:
            yield agent.instantiate(
                instance_params, self.exclude_tools, interswarm=self.enable_interswarm
            )

    def instantiate(  # noqa: PLR0913 - the documented signature
        self,
        instance_params: Mapping[str, Any],
        user_id: str = "default_user",
        user_role: UserRole = "user",
        base_url: str = "http://localhost:8000",
        registry_file: str | None = None,
        print_llm_streams: bool = True,
        *,
        store: Store | str | None = None,
        settings: RuntimeSettings | None = None,
        clock: Clock | None = None,
        agents: Sequence[MAILAgent] | None = None,
        swarm_registry: "SwarmRegistry | None" = None,
        gateway: Gateway | None = None,
        ring: Callable[[Collection[str]], None] | None = None,
        blobs: Callable[[str], Blobs] | None = None,
    ) -> MAILSwarm:
        """Build the agents and return a swarm at work for one user.

        Args:
            instance_params: Given to every agent's factory, above all ``user_token``.
            user_id: The owner of this instance.
            user_role: admin, agent or user; swarm for an instance that serves another swarm.
            base_url: The address at which other swarms reach this program.
            registry_file: The file with other swarms, ``registries/<name>.json`` when None.
            print_llm_streams: Whether replies of models are printed as they stream in.
            store: A store to share, or the URL of one; memory when None.
            settings: Limits of the runtime.
            clock: Time and ids; the machine's when None.
            agents: The agents that `make_agents` has made already.
            swarm_registry: Knows the other swarms; made of the two above when needed and None.
            gateway, ring, blobs: See `MAILSwarm`.

        Raises:
            ConfigError: an agent cannot be built, or the store's URL is wrong.
        """
        check_mapping("instance_params", instance_params)
        if self.enable_interswarm and gateway is None and swarm_registry is None:
            from mail.net.registry import SwarmRegistry

            swarm_registry = SwarmRegistry(
                self.name, base_url, registry_file, self.description, self.keywords, self.public
            )
        return MAILSwarm(
            **self._parts(),
            agents=[*self.make_agents(instance_params)] if agents is None else agents,
            user_id=user_id,
            user_role=user_role,
            swarm_registry=swarm_registry,
            print_llm_streams=print_llm_streams,
            store=store,
            settings=settings,
            clock=clock,
            gateway=gateway,
            ring=ring,
            blobs=blobs,
        )

    def start_server(
        self,
        port: int = 8000,
        host: str = "0.0.0.0",  # noqa: S104 - the documented default; tokens guard every route
        launch_ui: bool = True,
        ui_port: int = 3000,
        ui_path: str | PathLike[str] | None = None,
        open_browser: bool = True,
        server_url: str | None = None,
    ) -> None:
        """Serve this swarm over HTTP until the process is told to stop (SIGINT, SIGTERM).

        The server is that of ``mail server``: what the arguments do not say (store, limits) comes
        from ``mail.toml`` and the environment.

        Args:
            port: The port of the server.
            host: On which address.
            launch_ui: Whether to open the web console, or to start the user interface that
                ``ui_path`` names.
            ui_port: The port of the user interface; without one, it leads to the console.
            ui_path: A folder in which ``pnpm dev`` runs a user interface. It finds the server's URL
                in ``NEXT_PUBLIC_MAIL_SERVER_URL``, and is stopped with the server.
            open_browser: Whether to open the console or the user interface in a browser.
            server_url: The URL that the user interface gets, if ``http://localhost:<port>`` is not
                the right one.

        Raises:
            FileNotFoundError: there is no such folder, no ``node_modules`` in it, or no pnpm.
            OSError: a port is in use.
            RuntimeError: the user interface ended within two seconds.
            MAILError: it is called where an event loop runs, or the swarm cannot be served.
        """
        from mail.api.serving import serve_template

        serve_template(
            self.name,
            self._run_server,
            port=port,
            host=host,
            launch_ui=launch_ui,
            ui_port=ui_port,
            ui_path=ui_path,
            open_browser=open_browser,
            server_url=server_url,
        )

    def _run_server(self, config: "ServerConfig", last_act: "Callable[[], None] | None") -> None:
        from mail.server.run import run_server

        run_server(config, template=self, last_act=last_act)

    @staticmethod
    def from_swarms_json(
        swarm_data: SwarmsJSONSwarm,
        task_message_limit: int | None = None,
        *,
        references: ReferencePolicy = TRUSTED,
        enable_teams: bool = False,
    ) -> "MAILSwarmTemplate":
        """Build a template from a swarm's entry in ``swarms.json``.

        Imported actions come first, then those defined in the entry. Blocks while modules are
        imported and ``url::`` documents fetched.

        Args:
            swarm_data: The entry.
            task_message_limit: Messages that a run of a task may process; None for no limit.
            references: The permitted targets of its references; anything by default. For an entry
                from the network use ``ReferencePolicy(imports=(…))``.
            enable_teams: Whether the members of its teams have the tools for teams.

        Raises:
            ConfigError: the entry is wrong, or a reference leads nowhere or may not be used.
            WrongReference: an import is not a `MAILAction`, or an action's function is not
                callable; also a TypeError.
        """
        importer = ActionImporter(references)
        data = build_swarm_from_swarms_json(swarm_data, import_action=importer)
        actions = load_actions(data, importer)
        add_mcp_actions(data, actions, references)
        known = AgentGraph.__annotations__
        parts: dict[str, Any] = {part: value for part, value in data.items() if part in known}
        parts["actions"] = list(actions.values())
        parts["agents"] = [
            agent_from_entry(agent, actions, importer.references) for agent in data["agents"]
        ]
        parts["approvals"] = {
            tool: approval_from_entry(entry, references)
            for tool, entry in data["approvals"].items()
        }
        template = MAILSwarmTemplate(
            **parts, task_message_limit=task_message_limit, enable_teams=enable_teams
        )
        _warn_of_memories(template)
        return template

    @staticmethod
    def from_swarm_json(
        json_str: str,
        task_message_limit: int | None = None,
        *,
        references: ReferencePolicy = TRUSTED,
        enable_teams: bool = False,
    ) -> "MAILSwarmTemplate":
        """Build a template from the JSON text of one swarm; see `from_swarms_json`.

        Raises:
            ConfigError, WrongReference: as `from_swarms_json`.
        """
        return MAILSwarmTemplate.from_swarms_json(
            parse_json(json_str, "swarm"),
            task_message_limit,
            references=references,
            enable_teams=enable_teams,
        )

    @staticmethod
    def from_swarm_json_file(
        swarm_name: str,
        json_filepath: str | PathLike[str] = "swarms.json",
        task_message_limit: int | None = None,
        *,
        enable_teams: bool = False,
    ) -> "MAILSwarmTemplate":
        """Build the template of one swarm of a file.

        Args:
            swarm_name: The name of the swarm.
            json_filepath: The file.
            task_message_limit: Messages that a run of a task may process; None for no limit.
            enable_teams: Whether the members of its teams have the tools for teams.

        Raises:
            ConfigError: the file or a swarm in it is wrong, or there is no such swarm.
            WrongReference: as `from_swarms_json`.
        """
        swarms = {swarm["name"]: swarm for swarm in load_swarms_json_from_file(json_filepath)}
        if swarm_name not in swarms:
            names = ", ".join(map(repr, swarms)) or "no swarm"
            text = f"swarm '{swarm_name}' not found in {json_filepath}, which contains {names}"
            raise ConfigError(hinted(text, swarm_name, swarms))
        return MAILSwarmTemplate.from_swarms_json(
            swarms[swarm_name], task_message_limit, enable_teams=enable_teams
        )


def _warn_of_memories(template: MAILSwarmTemplate) -> None:
    """Name the memories that agents read, but that neither the swarm has nor answers teach."""
    held = [*template.approvals.values(), *(action.approval for action in template.actions)]
    taught = {name for each in held if each for name in (each.feedback or {}).values()}
    known = taught | template.memories.keys()
    for agent in template.agents:
        for name in memories_in(str(agent.agent_params.get("system") or "")):
            if name not in known:
                text = (
                    f"agent '{agent.name}' reads the memory '{name}', which is not in 'memories' "
                    f"of swarm '{template.name}': it is empty until a user writes it"
                )
                _loader.warning("%s", hinted(text, name, known))
