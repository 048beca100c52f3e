"""Two servers, each behind a proxy that misbehaves, and a checker that reads only what they left.

The checker knows the documented tables and the agents' diaries, and none of the server's code.
"""

import asyncio
import json
import os
import random
import signal
import sqlite3
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from scripts.ports import free_port
from tests.server.kit import know

ROOT = Path(__file__).parents[2]
ADMIN = "mail_storm-admin-Hc62Ty05Qm17Sd80Wf43"
USER = "mail_storm-user-Lr44Pb91Vn38Gx29Ju73"
_SECONDS = 30.0


@dataclass(eq=False)
class Storm:
    """A proxy in front of one server: it delays, cuts, loses and doubles while it rages.

    Every piece that a client sends meets a fate of its own, so pooled connections are no shelter.
    """

    upstream: int
    chance: random.Random
    rages: bool = False
    port: int = 0
    fates: Counter[str] = field(default_factory=Counter)
    _server: asyncio.Server | None = None
    _tasks: "set[asyncio.Task[None]]" = field(default_factory=set)

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._handle, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close every connection."""
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _fate(self) -> str:
        fates = ("pass", "delay", "lose", "lose answer", "cut", "double", "hang")
        weights = (64, 10, 6, 7, 5, 6, 2)
        fate = self.chance.choices(fates, weights)[0] if self.rages else "pass"
        self.fates[fate] += 1
        return fate

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(OSError):
                up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.upstream)
                back = asyncio.create_task(_pass(up_reader, writer))
                try:
                    await self._forth(reader, up_writer, back)
                finally:
                    up_writer.transport.abort()  # before the wait, which may be cancelled
                    back.cancel()
                    await asyncio.gather(back, return_exceptions=True)
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def _forth(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, back: "asyncio.Task[None]"
    ) -> None:
        while piece := await reader.read(65536):
            fate = self._fate()
            if fate == "lose":
                return
            if fate == "delay":
                await asyncio.sleep(self.chance.uniform(0.01, 0.4))
            elif fate == "hang":
                await asyncio.sleep(2.0)
            elif fate == "cut":
                writer.write(piece[: len(piece) // 2])
                await writer.drain()
                return
            elif fate == "double":
                await self._once_more(piece)
            elif fate == "lose answer":
                back.cancel()
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.2)
                return
            writer.write(piece)
            await writer.drain()

    async def _once_more(self, piece: bytes) -> None:
        """Deliver the same bytes on a connection of their own; the answer goes nowhere."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.upstream)
        try:
            writer.write(piece)
            with suppress(TimeoutError, OSError):
                await writer.drain()
                async with asyncio.timeout(1.0):
                    await reader.read(65536)
        finally:
            writer.transport.abort()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        with suppress(OSError):
            while piece := await reader.read(65536):
                writer.write(piece)
                await writer.drain()
    finally:
        writer.transport.abort()


@dataclass(eq=False)
class Side:
    """One swarm: its folder, its server process, and the way to it for its peer."""

    name: str
    folder: Path
    storm: Storm
    port: int
    token: str
    environment: dict[str, str]
    process: asyncio.subprocess.Process | None = None
    kills: int = 0

    @property
    def url(self) -> str:
        """Where clients reach the server itself."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def database(self) -> Path:
        """The SQLite file."""
        return self.folder / "mail.db"

    async def start(self) -> None:
        """Start the server and wait until it answers."""
        with (self.folder / "server.log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                str(Path(sys.executable).with_name("mail")),
                "server",
                cwd=self.folder,
                env=self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        async with asyncio.timeout(_SECONDS), httpx.AsyncClient(base_url=self.url) as client:
            while True:
                assert self.process.returncode is None, self.log[-4000:]
                with suppress(httpx.TransportError):
                    if (await client.get("/health")).status_code == 200:
                        return
                await asyncio.sleep(0.05)

    async def kill(self) -> None:
        """Kill the server with SIGKILL."""
        assert self.process is not None
        self.kills += 1
        os.kill(self.process.pid, signal.SIGKILL)
        await self.process.wait()

    @property
    def log(self) -> str:
        """What the servers wrote so far."""
        return (self.folder / "server.log").read_text(encoding="utf-8")

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Read from the tables, beside the server."""
        with sqlite3.connect(f"file:{self.database}?mode=ro", uri=True, timeout=10) as db:
            return db.execute(query, values).fetchall()

    def diary(self) -> list[dict[str, str]]:
        """Return what the agents wrote down."""
        file = self.folder / "diary.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


_TOML = """
[server]
host = "127.0.0.1"
port = {port}

[server.swarm]
name = "{name}"
source = "swarms.json"
registry = "registry.json"

[server.store]
url = "sqlite:///mail.db"

[server.federation]
allow_private = true
base_url = "http://127.0.0.1:{reached}"

[server.limits]
shutdown_grace = 1.0
"""


def _swarm(name: str, agent: str, factory: str, *targets: str) -> str:
    return json.dumps(
        [
            {
                "name": name,
                "version": "1.0.0",
                "entrypoint": agent,
                "enable_interswarm": True,
                "agents": [
                    {
                        "name": agent,
                        "factory": f"python::tests.federation.storm_agents:{factory}",
                        "comm_targets": list(targets),
                        "enable_entrypoint": True,
                        "enable_interswarm": True,
                        "can_complete_tasks": True,
                        "tool_format": "completions",
                        "agent_params": {},
                    }
                ],
                "actions": [],
            }
        ]
    )


async def _make_side(folder: Path, name: str, peer: str, chance: random.Random) -> Side:
    port = free_port()
    storm = Storm(port, chance)
    await storm.start()
    text = _TOML.format(port=port, name=name, reached=storm.port)
    (folder / "mail.toml").write_text(text)
    factory = ("asker", "Asker", "worker@south") if name == "north" else ("worker", "Worker")
    (folder / "swarms.json").write_text(_swarm(name, *factory))
    token = f"mail_storm-{peer}-at-{name}-Zq81Xw77Kd20"
    people = ((ADMIN, "admin", "root"), (USER, "user", "ann"), (token, "agent", peer))
    await know(f"sqlite:///{folder / 'mail.db'}", *people)
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "STORM_DIARY": str(folder / "diary.jsonl"),
        f"SWARM_AUTH_TOKEN_{peer.upper()}": f"mail_storm-{name}-at-{peer}-Zq81Xw77Kd20",
    }
    environment.pop("DATABASE_URL", None)
    return Side(name, folder, storm, port, token, environment)


@asynccontextmanager
async def two_sides(folder: Path, chance: random.Random) -> AsyncIterator[tuple[Side, Side]]:
    """Start ``north`` and ``south``, which know each other, in fair weather."""
    for name in ("north", "south"):
        (folder / name).mkdir()
    sides = [
        await _make_side(folder / "north", "north", "south", chance),
        await _make_side(folder / "south", "south", "north", chance),
    ]
    try:
        await asyncio.gather(*(side.start() for side in sides))
        for side, other in (sides, sides[::-1]):
            body = {
                "name": other.name,
                "base_url": f"http://127.0.0.1:{other.storm.port}",
                "auth_token": f"${{SWARM_AUTH_TOKEN_{other.name.upper()}}}",
                "volatile": False,
            }
            headers = {"Authorization": f"Bearer {ADMIN}"}
            async with httpx.AsyncClient(base_url=side.url, headers=headers) as client:
                answer = await client.post("/swarms", json=body)
            assert answer.status_code == 200, answer.text
        yield sides[0], sides[1]
    finally:
        for side in sides:
            if side.process is not None and side.process.returncode is None:
                side.process.kill()
                await side.process.wait()
            await side.storm.stop()


async def post_jobs(north: Side, names: list[str], at_once: int) -> None:
    """Post each job until the server has accepted it; nobody waits for the answers."""
    queue = list(reversed(names))

    async def poster() -> None:
        async with httpx.AsyncClient(timeout=5.0) as client:
            while queue:
                name = queue.pop()
                while not await _accepted(client, north, name):
                    await asyncio.sleep(0.1)

    await asyncio.gather(*(poster() for _ in range(at_once)))


async def _accepted(client: httpx.AsyncClient, north: Side, name: str) -> bool:
    headers = {
        "Authorization": f"Bearer {USER}",
        "Prefer": "respond-async",
        "Idempotency-Key": name,
    }
    body = {"body": f"have {name} done", "task_id": name}
    try:
        answer = await client.post(f"{north.url}/message", json=body, headers=headers)
    except httpx.TransportError:
        return False
    assert answer.status_code in (202, 429, 503), answer.text
    return answer.status_code == 202


def open_jobs(north: Side) -> int:
    """Return how many of the posted tasks are still running."""
    return int(north.rows("SELECT count(*) FROM tasks WHERE is_running = 1")[0][0])


async def settled(*sides: Side, seconds: float) -> None:
    """Wait until no task runs on either side and nothing is on its way."""
    async with asyncio.timeout(seconds):
        while any(_unsettled(side) for side in sides):
            await asyncio.sleep(0.2)


def _unsettled(side: Side) -> int:
    running = open_jobs(side)
    # Notices of delays may wait in tasks that have ended.
    query = "SELECT count(*) FROM messages JOIN tasks ON tasks.id = task AND is_running = 1"
    ready = side.rows(f"{query} WHERE messages.state = 'ready'")[0][0]
    waiting = side.rows("SELECT count(*) FROM outbox WHERE state = 'waiting'")[0][0]
    return running + int(ready) + int(waiting)


def problems(north: Side, south: Side, names: list[str]) -> list[str]:
    """Return what is wrong with what the servers left; nothing when all is well."""
    found = []
    answers = {
        task: json.loads(response)["message"]
        for task, response in north.rows("SELECT task_id, response FROM task_responses")
    }
    requests = _taken(south, "asker@north", "request")
    responses = _taken(north, "worker@south", "response")
    for name in names:
        told = answers.get(name, {}).get("body", "nothing")
        refused = told.startswith("::undeliverable::")
        if not refused and told != f"{name}: {name} is done":
            found.append(f"{name}: the answer is {told!r}")
        for what, counted in (("request", requests), ("response", responses)):
            if counted[name] != 1 and not refused:
                found.append(f"{name}: {counted[name]} {what}s were processed")
    for side in (north, south):
        states = side.rows("SELECT state, count(*) FROM tasks GROUP BY state")
        wrong = {state: count for state, count in states if state != "completed"}
        if wrong:
            found.append(f"{side.name}: tasks are {wrong}")
    return found + _diary_problems(north, south, names)


def _taken(side: Side, sender: str, kind: str) -> Counter[str]:
    """Count the consumed messages of a peer's agent, by job."""
    counted: Counter[str] = Counter()
    for state, payload in side.rows("SELECT state, payload FROM messages"):
        message = json.loads(payload.lstrip())
        inside = message["message"]
        of_kind = inside["sender"]["address"] == sender and message["msg_type"] == kind
        if of_kind and inside["subject"].startswith("job-"):
            counted[inside["subject"]] += state == "acked"
    return counted


def _diary_problems(north: Side, south: Side, names: list[str]) -> list[str]:
    """Agents see each message once, but for turns that a kill cut short."""
    found = []
    for side, sender in ((north, "worker@south"), (south, "asker@north")):
        seen = Counter(
            line["job"] for line in side.diary()
            if line["from"] == sender and line["subject"].startswith("job-")
        )  # fmt: skip
        missing = [name for name in names if not seen[name]]
        again = sum(count - 1 for count in seen.values())
        if missing:
            found.append(f"{side.name}: the agent never saw {missing[:5]}")
        if again > side.kills * 64:
            found.append(f"{side.name}: {again} looks too many after {side.kills} kills")
    return found
