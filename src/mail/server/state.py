"""What one server process holds; kept in ``app.state.mail``."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from starlette.requests import Request

from mail.config.server import ServerConfig
from mail.db.base import Owner, Store
from mail.errors import StoreError
from mail.server.idempotency import Keyed, KeyLocks
from mail.server.instances import InstancePool
from mail.server.quotas import Quotas
from mail.utils.callers import Caller
from mail.utils.token_service import AuthBackend

if TYPE_CHECKING:
    from mail.api import MAILSwarmTemplate

__all__ = ["ServerState", "SwarmOpener", "owner_of", "state_of", "step_limit"]

SwarmOpener = Callable[[], Awaitable[tuple["MAILSwarmTemplate", InstancePool]]]
"""Loads the swarm and makes the pool of its instances; raises `ConfigError`."""

_STORE_SECONDS: Final = 2.0


def _now() -> str:
    return datetime.now(UTC).isoformat()


@dataclass(slots=True, eq=False, kw_only=True)
class ServerState:
    """The parts that routes use.

    Attributes:
        open_swarm: Called once, by `prepare`.
        quotas: What each caller may take at once.
        health: What ``GET /health`` says, as set by an administrator.
        health_at: When it was set.
        draining: The server stops: it finishes what it has and takes no new work.
        taken_over: Another server has the swarm; this one stops.
        host_drains: Whoever runs the app starts the drain itself when it is told to stop.
    """

    config: ServerConfig
    store: Store
    auth: AuthBackend
    open_swarm: SwarmOpener
    quotas: Quotas
    health: str = "healthy"
    health_at: str = field(default_factory=_now)
    draining: bool = False
    host_drains: bool = False
    taken_over: bool = False
    started: float = field(default_factory=time.monotonic)
    _key_locks: KeyLocks = field(default_factory=KeyLocks, init=False)
    _swarm: "tuple[MAILSwarmTemplate, InstancePool] | None" = field(default=None, init=False)
    _drain: "asyncio.Task[None] | None" = field(default=None, init=False)

    async def prepare(self) -> None:
        """Load the swarm and see that it can be built. Calling it again is fine.

        Raises:
            ConfigError: it cannot.
        """
        if self._swarm is None:
            self._swarm = await self.open_swarm()

    @property
    def template(self) -> "MAILSwarmTemplate":
        """The swarm that is served."""
        return self._opened()[0]

    @property
    def pool(self) -> InstancePool:
        """The callers' instances of the swarm."""
        return self._opened()[1]

    def _opened(self) -> "tuple[MAILSwarmTemplate, InstancePool]":
        if self._swarm is None:
            raise RuntimeError("the server is not open yet: its lifespan has not begun")
        return self._swarm

    @property
    def uptime(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    @property
    def max_steps(self) -> int:
        """Messages that a task may process in one run."""
        return step_limit(self.config, self.template)

    def set_health(self, status: str) -> None:
        """Take what an administrator says about the server's health."""
        self.health = status
        self.health_at = _now()

    async def is_degraded(self) -> bool:
        """Tell whether the store fails: it does not answer now, or it failed an instance's work."""
        if self.pool.degraded:
            return True
        try:
            async with asyncio.timeout(_STORE_SECONDS):
                await self.store.find_token("")
        except (StoreError, TimeoutError):
            return True
        return False

    async def keyed(self, request: Request, caller: Caller) -> Keyed | None:
        """Return what a request says with its ``Idempotency-Key``; None when it has none.

        Raises:
            ProtocolError: the header is no key.
        """
        return await Keyed.of(request, self.store, self._key_locks, owner_of(self, caller))

    def begin_drain(self) -> "asyncio.Task[None]":
        """Take no more work, let what runs finish within the grace period, answer who waits.

        Further calls return the same task.
        """
        self.draining = True
        if self._drain is None:
            closing = self.pool.close(self.config.limits.shutdown_grace)
            self._drain = asyncio.create_task(closing, name="server drain")
        return self._drain


def step_limit(config: ServerConfig, template: "MAILSwarmTemplate") -> int:
    """Return how many messages one run of a task may process: the swarm says, else the server."""
    limit: int | None = template.task_message_limit
    return config.settings.task_message_limit if limit is None else limit


def owner_of(state: ServerState, caller: Caller) -> Owner:
    """Return the key of a caller's tasks."""
    return Owner(state.template.name, caller.role, caller.id)


def state_of(request: Request) -> ServerState:
    """Return the state of the server that serves a request."""
    state: ServerState = request.app.state.mail
    return state
