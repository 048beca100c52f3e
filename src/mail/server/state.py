"""What one server process holds; kept in ``app.state.mail``."""

import asyncio
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from starlette.requests import Request

from mail.config.server import ServerConfig
from mail.db.base import Store
from mail.server.instances import InstancePool
from mail.utils.token_service import AuthBackend

if TYPE_CHECKING:
    from mail.api import MAILSwarmTemplate

__all__ = ["ServerState", "state_of", "step_limit"]


def _now() -> str:
    return datetime.now(UTC).isoformat()


@dataclass(slots=True, eq=False, kw_only=True)
class ServerState:
    """The parts that routes use.

    Attributes:
        health: What ``GET /health`` says, as set by an administrator.
        health_at: When it was set.
        draining: The server stops: it finishes what it has and takes no new work.
        host_drains: Whoever runs the app starts the drain itself when it is told to stop.
    """

    config: ServerConfig
    template: "MAILSwarmTemplate"
    store: Store
    auth: AuthBackend
    pool: InstancePool
    health: str = "healthy"
    health_at: str = field(default_factory=_now)
    draining: bool = False
    host_drains: bool = False
    started: float = field(default_factory=time.monotonic)
    _drain: "asyncio.Task[None] | None" = field(default=None, init=False)

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


def state_of(request: Request) -> ServerState:
    """Return the state of the server that serves a request."""
    state: ServerState = request.app.state.mail
    return state
