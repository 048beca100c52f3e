"""Library swarms that exchange mail over HTTP: each with the few routes that a program writes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from mail import MAILAgentTemplate, MAILSwarm, MAILSwarmTemplate
from mail.errors import Forbidden, MAILError, UnknownTask
from mail.net import SwarmRegistry
from mail.testing import agent_from
from mail.version import get_protocol_version
from scripts.ports import free_port

Agent = Callable[[list[dict[str, Any]], Any], list[tuple[str, dict[str, Any]]]]


class Door:
    """The HTTP side of a library swarm, on a free port of 127.0.0.1.

    Attributes:
        tokens: Whose token is which: token to swarm.
        requests: (path, status) so far.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.port = free_port()  # nobody else's while the door is closed, either
        self.tokens: dict[str, str] = {}
        self.requests: list[tuple[str, int]] = []
        self.swarms: list[MAILSwarm] = []
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def open(self) -> None:
        app = web.Application()
        app.router.add_get("/", self._about)
        app.router.add_get("/health", self._about)
        app.router.add_post("/interswarm/{direction}", self._take)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
        self._runner = None

    async def _about(self, request: web.Request) -> web.Response:
        return web.json_response(
            {"protocol_version": get_protocol_version(), "swarm": {"name": self.name}}
        )

    async def _take(self, request: web.Request) -> web.Response:
        status, answer = await self._taken(request)
        self.requests.append((request.path, status))
        return web.json_response(answer, status=status)

    async def _taken(self, request: web.Request) -> tuple[int, dict[str, Any]]:
        peer = self.tokens.get(request.headers.get("Authorization", "").removeprefix("Bearer "))
        if peer is None:
            return 401, {"detail": "no such token"}
        message = (await request.json())["message"]
        direction: Any = request.match_info["direction"]
        problem: MAILError = UnknownTask(message["payload"]["task_id"])
        for swarm in self.swarms:  # instances of several users
            try:
                return 200, await swarm.receive_interswarm_message(message, direction, peer=peer)
            except UnknownTask as error:
                problem = error
            except MAILError as error:
                return 403 if isinstance(error, Forbidden) else 400, {"detail": str(error)}
        return 404, {"detail": str(problem)}


def template(name: str, agents: dict[str, Agent], *targets: str) -> MAILSwarmTemplate:
    """Return a swarm in which every agent may do everything; the first one is the entrypoint."""
    made = [
        MAILAgentTemplate(
            name=agent,
            factory=lambda function=function, **_: agent_from(function),
            comm_targets=[*targets, *(other for other in agents if other != agent)],
            actions=[],
            agent_params={},
            enable_entrypoint=agent == next(iter(agents)),
            enable_interswarm=True,
            can_complete_tasks=True,
        )
        for agent, function in agents.items()
    ]
    return MAILSwarmTemplate(name, agents=made, entrypoint=made[0].name, enable_interswarm=True)


class Neighbourhood:
    """Swarms that know one another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.doors: dict[str, Door] = {}
        self.swarms: dict[str, MAILSwarm] = {}

    async def add(self, made: MAILSwarmTemplate, **options: Any) -> MAILSwarm:
        """Open a swarm's door and make its instance."""
        door = self.doors.get(made.name) or Door(made.name)
        self.doors[made.name] = door
        await door.open()
        registry = options.pop("swarm_registry", None) or SwarmRegistry(
            made.name, door.url, str(self.folder / f"{made.name}.json")
        )
        swarm = made.instantiate({}, "ines", swarm_registry=registry, **options)
        self.swarms[made.name] = swarm
        door.swarms = [swarm]
        return swarm

    async def introduce(self) -> None:
        """Let every swarm register every other one, with a token of its own."""
        for name, swarm in self.swarms.items():
            for other, door in self.doors.items():
                if other != name:
                    token = f"token-of-{name}-for-{other}"
                    door.tokens[token] = name
                    assert isinstance(swarm.swarm_registry, SwarmRegistry)
                    await swarm.swarm_registry.register_swarm(other, door.url, token)

    async def close(self) -> None:
        for swarm in self.swarms.values():
            await swarm.shutdown(grace=1)
        for door in self.doors.values():
            await door.close()


@asynccontextmanager
async def neighbourhood(folder: Path) -> AsyncIterator[Neighbourhood]:
    """Yield a neighbourhood that ends with the block."""
    made = Neighbourhood(folder)
    try:
        yield made
    finally:
        await made.close()


async def until(condition: Callable[[], Any], seconds: float = 10.0) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)
