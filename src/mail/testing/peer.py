"""Another MAIL server, on loopback: its public routes, and a record of who asked for what."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mail.clock import SystemClock
from mail.version import get_protocol_version, get_version

if TYPE_CHECKING:
    from types import TracebackType

    from aiohttp import web

__all__ = ["LoopbackPeer", "PeerRequest"]


@dataclass(frozen=True, slots=True)
class PeerRequest:
    """A request that a peer got: method, path, lower-case headers and the JSON body, if any."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any = None


@dataclass(slots=True, kw_only=True)
class LoopbackPeer:
    """A MAIL server that answers from memory, on a free port of 127.0.0.1::

        async with LoopbackPeer(name="archive") as peer:
            ...  # whatever talks to peer.url
            assert peer.requests[0].path == "/health"

    ``GET /``, ``/health`` and ``/swarms`` answer as a real server's; ``POST /interswarm/forward``
    and ``/interswarm/back`` accept whatever message comes. Change an attribute, and the next
    answer changes.

    Attributes:
        name: The peer's swarm.
        entrypoint: Its entrypoint agent.
        health: What ``/health`` says.
        swarms: The entries that ``/swarms`` lists; `swarm_entry` makes one.
        failing: A status with which every route answers, or None.
        requests: The requests so far.
    """

    name: str = "peer"
    entrypoint: str = "supervisor"
    health: str = "healthy"
    swarms: Sequence[Mapping[str, Any]] = ()
    failing: int | None = None
    requests: list[PeerRequest] = field(default_factory=list)
    _runner: "web.AppRunner | None" = None
    _port: int = 0

    @property
    def url(self) -> str:
        """Where the peer is reached."""
        return f"http://127.0.0.1:{self._port}"

    async def __aenter__(self) -> "LoopbackPeer":
        from aiohttp import web

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: "TracebackType | None",
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, request: "web.Request") -> "web.StreamResponse":
        from aiohttp import web

        body = await request.json() if request.can_read_body else None
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.requests.append(PeerRequest(request.method, request.path, headers, body))
        if self.failing is not None:
            return web.json_response({"detail": "told to fail"}, status=self.failing)
        known = self._routes(body or {}).get((request.method, request.path))
        if known is None:
            return web.json_response({"detail": "Not Found"}, status=404)
        return web.json_response(known)

    def _routes(self, body: Mapping[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
        now = SystemClock().now()
        message = body.get("message") or body
        taken = {
            "swarm": self.name,
            "task_id": (message.get("payload") or {}).get("task_id", ""),
            "status": "success",
            "local_runner": f"swarm:{self.name}",
        }
        about = {
            "name": "mail",
            "version": get_version(),
            "protocol_version": get_protocol_version(),
            "status": "running",
            "swarm": {
                "name": self.name,
                "version": get_version(),
                "description": "a peer for tests",
                "entrypoint": self.entrypoint,
                "keywords": [],
                "public": True,
            },
            "uptime": 1.0,
        }
        return {
            ("GET", "/"): about,
            ("GET", "/health"): {
                "status": self.health,
                "swarm_name": self.name,
                "timestamp": now,
            },
            ("GET", "/swarms"): {"swarms": [dict(swarm) for swarm in self.swarms]},
            ("POST", "/interswarm/forward"): taken,
            ("POST", "/interswarm/back"): taken,
        }

    def swarm_entry(self, **fields: Any) -> dict[str, Any]:
        """Return an entry for ``/swarms`` about this peer, with these fields changed."""
        entry: dict[str, Any] = {
            "swarm_name": self.name,
            "base_url": self.url,
            "version": get_version(),
            "last_seen": None,
            "is_active": True,
            "latency": None,
            "swarm_description": "a peer for tests",
            "keywords": [],
            "metadata": None,
        }
        return entry | fields
