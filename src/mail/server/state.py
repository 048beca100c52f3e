"""The state of one server process; kept in ``app.state.mail``."""

import asyncio
import logging
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TypeVar

from starlette.requests import Request

from mail.auth.callers import AuthBackend, Caller
from mail.clock import Clock, SystemClock
from mail.config.env import current
from mail.config.server import NO_MODEL, ServerConfig, WebhookConfig, base_url, webhook_secret
from mail.core.interswarm import PEER_ROLE
from mail.core.runtime.settings import TurnLimit
from mail.db.desk import PARTICIPANT_ROLE
from mail.db.records import EventRow, Owner
from mail.db.store import Store
from mail.errors import ProtocolError, ShuttingDown, StoreError, StoreLocked
from mail.memory import proposer
from mail.net.peers import PeerAccess
from mail.net.registry import SwarmRegistry
from mail.net.registry_file import shared_registry
from mail.net.signatures import SigningKeys
from mail.net.webhook import WebhookSender, WebhookSettings
from mail.server.desks import Desks, FileContents
from mail.server.federation import Federation
from mail.server.figures import CachedAnswer
from mail.server.idempotency import Keyed, OwnersLocks
from mail.server.instances import InstancePool, Served, recover_owners
from mail.server.intake import Intake
from mail.server.letters import SwarmAgents
from mail.server.nodes import Announcements
from mail.server.quotas import Quotas
from mail.server.storage import StorageShares
from mail.server.swarm import SwarmBuilder, bad_definition, step_limit
from mail.services.desk import MailDesk
from mail.services.files import DeskFiles
from mail.services.learning import Learner, Propose
from mail.services.preferences import Memories
from mail.services.tasks import TaskReader
from mail.services.teams import TeamDesk
from mail.services.webhook import WebhookNews

if TYPE_CHECKING:
    from mail.api import MAILSwarmTemplate
    from mail.server.openapi import OpenAPIDocument

__all__ = ["PARTICIPANT_ROLE", "ServerState", "owner_of", "state_of"]

T = TypeVar("T")

_log = logging.getLogger("mail.server")

_LOOK_SECONDS: Final = 1.0
_FIGURES_SECONDS: Final = 3.0
_INSTANCE_IDLE: Final = 600.0
"""Seconds after which the instance of an idle caller is closed."""


class Health:
    """The answer of ``GET /health``: an administrator's word, and whether the store fails.

    Attributes:
        status: The word that was set.
        set_at: When.
    """

    def __init__(self, store: Store) -> None:
        self._store = CachedAnswer(lambda: store.commit_nothing(), _LOOK_SECONDS)
        self.set("healthy")

    def set(self, status: str) -> str:
        """Take what an administrator says about the server's health, and return it for others."""
        self.status = status
        self.set_at = datetime.now(UTC).isoformat()
        return f"{self.set_at} {status}"

    async def follow(self, told: str) -> None:
        """Take what an administrator has said to another server of the swarm."""
        self.set_at, _, self.status = told.partition(" ")

    async def store_fails(self) -> bool:
        """Tell whether the store takes nothing, or does not answer.

        It is asked once a second at most, however many want to know.
        """
        return (await self._store.look()).fails


class ServerState:
    """The parts that routes use.

    Args:
        config: Settings.
        store: The store of all state.
        auth: The authority for tokens.
        document: The OpenAPI document of the routes.
        given: The swarm that is served, if it is not the one that the settings name.

    Attributes:
        clock: Time and ids.
        quotas: The limits on each caller's work at a time.
        shares: The limits on each caller's storage.
        intake: The reader of their bodies.
        health: The answer of ``GET /health``.
        announcements: What administrators tell one server for all.
        figures: What is stored, for ``GET /metrics``.
        contents: The contents of files.
        webhook: Sends the messages for the webhook.
        leaving: The server stops soon: new work should go to others.
        draining: The server stops: it finishes what it has and takes no new work.
        host_drains: Whoever runs the app starts the drain itself when it is told to stop.
    """

    def __init__(
        self,
        config: ServerConfig,
        store: Store,
        auth: AuthBackend,
        document: "OpenAPIDocument",
        given: "MAILSwarmTemplate | None" = None,
    ) -> None:
        self.config, self.store, self.auth, self.document = config, store, auth, document
        self.clock: Clock = SystemClock()
        self.quotas = Quotas(config.limits)
        self.shares = StorageShares(
            store.stored_use, config.limits.max_stored_bytes, shared=store.shared
        )
        self.intake = Intake(config.limits, self.quotas, self.large_mail)
        self.health = Health(store)
        self.figures = CachedAnswer(lambda: store.figures(self.template.name), _FIGURES_SECONDS)
        self.contents = FileContents(config.files, store)
        hook, news = _webhook(config.webhook), WebhookNews(config.webhook.events, self.clock)
        self.webhook = WebhookSender(store, lambda: str(self.template.name), news, hook, self.clock)
        self._desks = Desks(
            config=config,
            store=store,
            clock=self.clock,
            contents=self.contents,
            agents=lambda template: SwarmAgents(self.pool, self.quotas, self.shares, template),
        )
        self._given = given
        self.announcements = Announcements(
            store,
            config.swarm.name if given is None else given.name,
            {"health": self.health.follow, "swarm": self._follow_load},
        )
        self._builder = SwarmBuilder(
            config=config,
            store=store,
            turns=TurnLimit(config.limits.max_concurrent_turns),
            ring=self._desks.ring,
            news=news if hook is not None else None,
            quota=self.shares,
            blobs=self.contents.of,
        )
        self.leaving = self.draining = self.host_drains = False
        self._started = time.monotonic()
        self._loading = asyncio.Lock()
        self._key_locks = OwnersLocks()
        self._pool: InstancePool | None = None
        self._learning: Learner | None = None
        self._keys: SigningKeys | None = None
        self._federation: Federation | None = None
        self._recovery: asyncio.Task[None] | None = None
        self._drain: asyncio.Task[None] | None = None

    async def prepare(self) -> None:
        """Load the swarm, see that it can be built, and read the key. Calling it again is fine.

        Raises:
            ConfigError: it cannot.
        """
        if self._pool is None:
            key = self.config.federation.signing_key_file
            if key is not None:
                self._keys = await asyncio.to_thread(SigningKeys.ensure, key)
            self._pool = InstancePool(
                await self._builder.open(self._given),
                idle_seconds=_INSTANCE_IDLE,
                places_of=self.quotas.places,
            )
            self._learning = self._make_learner(self._pool.served)

    @property
    def pool(self) -> InstancePool:
        """The callers' instances of the swarm."""
        return _opened(self._pool)

    def large_mail(self, caller: Caller) -> int:
        """Return what a caller's long messages come to that wait or are worked on.

        Another swarm's tasks here have an owner of a role of its own.
        """
        roles = (caller.role, PEER_ROLE) if caller.role == "agent" else (caller.role,)
        return sum(self.pool.large_mail(Caller(role, caller.id)) for role in roles)

    @property
    def registry(self) -> SwarmRegistry:
        """The swarms that the server knows; all instances share it."""
        return self.federation.registry

    @property
    def federation(self) -> Federation:
        """The mail to and from other swarms."""
        return _opened(self._federation)

    async def open_registry(self) -> None:
        """Read the registry, and begin to check the peers."""
        access = PeerAccess.of_server(self.config.federation.allow_private, self._keys)
        registry = await asyncio.to_thread(
            _make_registry, self.config, self.template, self.store, access
        )
        await registry.start_health_checks()
        self._federation = Federation(
            self.config.federation,
            self.store,
            registry,
            self.pool,
            self.quotas,
            self.shares,
            self._builder.gateway,
        )

    async def close_registry(self) -> None:
        """Forget volatile swarms and write the registry."""
        with suppress(StoreError):  # the log says what it was
            await self.registry.aclose()

    @property
    def template(self) -> "MAILSwarmTemplate":
        """The swarm that is served."""
        return self.pool.served.template

    def template_for(self, caller: Caller) -> "MAILSwarmTemplate":
        """Return the swarm that serves a caller: an older one while its instance of that works."""
        return self.pool.serving(caller).template

    async def load(self, text: str, *, told: bool = False) -> "MAILSwarmTemplate":
        """Serve another swarm from now on, until the next restart; one after the other.

        Nothing changes before it has been checked entirely. Instances at work finish on the swarm
        that they were made of. Tasks that an earlier process left unfinished in it are taken up.

        Args:
            text: The definition; see `SwarmBuilder.read`.
            told: Another server of the swarm does that, too, and has told this one.

        Raises:
            ProtocolError: as `SwarmBuilder.read`, or another server has the swarm.
            ShuttingDown: the server stops.
            StoreError: other servers could not be told, and nothing has changed.
        """
        async with self._loading:
            served = await self._builder.read(text)
            new = served.template
            try:
                self.registry.check_not_peer(new.name)
                # Or two servers would work on the tasks of one swarm.
                await self.store.claim_swarm(new.name)
                await asyncio.to_thread(
                    self.registry.replace_local_swarm,
                    new.name,
                    new.description,
                    new.keywords,
                    new.public,
                )
            except (ProtocolError, StoreLocked) as error:
                raise bad_definition(error) from error
            if self.draining:
                raise ShuttingDown()
            if not told:
                await self.announcements.tell("swarm", text)
            await self._serve(served)
        return new

    async def _follow_load(self, text: str) -> None:
        await self.load(text, told=True)
        _log.info("serving swarm '%s', as another server was told", self.template.name)

    async def _serve(self, served: Served) -> None:
        self.pool.replace(served)
        self.learning.propose = self._proposer(served)
        self.begin_recovery()
        await self.federation.serve()

    def begin_recovery(self) -> None:
        """Take up what an earlier process left unfinished in the swarm that is served."""
        if self._recovery is not None:
            self._recovery.cancel()
        self._recovery = asyncio.create_task(recover_owners(self.store, self.pool), name="recovery")

    async def end_recovery(self) -> None:
        """Stop taking up unfinished tasks."""
        if self._recovery is not None:
            self._recovery.cancel()
            await asyncio.gather(self._recovery, return_exceptions=True)

    @property
    def uptime(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    def max_steps(self, caller: Caller) -> int:
        """Return how many messages a task of the caller's may process in one run."""
        return step_limit(self.config, self.template_for(caller))

    def tasks_of(self, caller: Caller, places: asyncio.Semaphore | None = None) -> TaskReader:
        """Return a reader of the caller's tasks; it needs no instance.

        Args:
            caller: The owner of the tasks.
            places: The places for large answers, when somebody else reads them.
        """
        owner = owner_of(self, caller)
        live = self.pool.live(caller, owner.swarm)
        places = places or self.quotas.places(caller)
        return TaskReader(self.store, owner, self.clock, live, places)

    def memories_of(self, caller: Caller) -> Memories:
        """Return the caller's named memories."""
        owner, template = owner_of(self, caller), self.template_for(caller)
        return Memories(self.store, owner, self.clock, template.memories)

    @property
    def learning(self) -> Learner:
        """The service that takes up feedback on memories of the swarm that is served."""
        return _opened(self._learning)

    def _make_learner(self, served: Served) -> Learner:
        return Learner(
            store=self.store,
            swarm=lambda: (str(self.template.name), self.template.memories),
            clock=self.clock,
            propose=self._proposer(served),
            announce=self._announce,
        )

    def _proposer(self, served: Served) -> Propose | None:
        """Return what asks the configured model, else the entrypoint's, for updates of memories."""
        named = self.config.memory.model
        if named is not None:
            return None if named == NO_MODEL else proposer(named)
        for use in served.uses:
            if use.agent == served.template.entrypoint and use.model:
                return proposer(use.model, use_proxy=use.use_proxy)
        return None

    def _announce(self, owner: Owner, task_id: str, seq: int, event: EventRow) -> None:
        """Hand an event that was stored beside an instance to those who follow its task."""
        log = self.pool.log_of(Caller(owner.role, owner.id), owner.swarm)
        if log is not None:
            log.publish(task_id, seq, [event])

    def is_participant(self, caller: Caller) -> bool:
        """Tell whether a caller is a participant that the swarm declares.

        A caller of the role ``agent`` is that or a peer, never both.
        """
        declared = self.template.participants
        return caller.role == PARTICIPANT_ROLE and any(
            each["name"] == caller.id for each in declared
        )

    @property
    def desk(self) -> MailDesk:
        """The mail desk of the swarm that is served."""
        return self._desks.of(self.template).mail

    @property
    def team_desk(self) -> TeamDesk:
        """The desk of the teams of the swarm that is served."""
        return self._desks.of(self.template).teams

    @property
    def files(self) -> DeskFiles:
        """The files of the swarm that is served."""
        return self._desks.of(self.template).files

    async def open_files(self) -> None:
        """Find out where the contents of files are; see `FileContents.open`."""
        await self.contents.open(str(self.template.name))

    async def keyed(self, request: Request, caller: Caller, key: str | None) -> Keyed | None:
        """Return what a request means with its ``Idempotency-Key``; None when it has none."""
        if key is None:
            return None
        return await Keyed.of(request, key, self.store, self._key_locks, owner_of(self, caller))

    def begin_drain(self) -> "asyncio.Task[None]":
        """Take no more work, let what runs finish within the grace period, answer who waits.

        Further calls return the same task.
        """
        self.draining = True
        if self._drain is None:
            self._drain = asyncio.create_task(self._close(), name="server drain")
        return self._drain

    async def _close(self) -> None:
        self._desks.close()
        if self._federation is not None:
            await self._federation.stop()
        await self.pool.close(self.config.limits.shutdown_grace)


def _opened(part: T | None) -> T:
    if part is None:
        raise RuntimeError("the server is not open yet: its lifespan has not begun")
    return part


def _webhook(hook: WebhookConfig) -> WebhookSettings | None:
    if hook.url is None:
        return None
    secret = webhook_secret(hook, current())
    return WebhookSettings(url=hook.url, secret=secret, allow_private=hook.allow_private)


def _make_registry(
    config: ServerConfig, template: "MAILSwarmTemplate", store: Store, access: PeerAccess
) -> SwarmRegistry:
    """Return the registry of a server; its file is read, and not written."""
    return SwarmRegistry(
        template.name,
        base_url(config),
        config.swarm.registry_file,
        template.description,
        template.keywords,
        template.public,
        access=access,
        max_swarms=config.federation.max_swarms,
        proposes=True,
        storage=shared_registry(store, template.name, config.swarm.registry_file),
    )


def owner_of(state: ServerState, caller: Caller) -> Owner:
    """Return the key of a caller's tasks, in the swarm that serves the caller."""
    return Owner(state.template_for(caller).name, caller.role, caller.id)


def state_of(request: Request) -> ServerState:
    """Return the state of the server that serves a request."""
    state: ServerState = request.app.state.mail
    return state
