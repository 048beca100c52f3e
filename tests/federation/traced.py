"""Three swarms behind a ``mail server`` each, whose models are the fake provider's.

``dispatcher@harbour`` looks something up and asks ``chief@weather``, which asks ``gauge@tide``,
which calls a tool of an MCP server; the answers go the same way back.
"""

import asyncio
import itertools
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from mail import action
from mail.llm.script import Steps, call
from mail.llm.script_view import ScriptView
from scripts.ports import free_port
from tests.federation.kit import token_of
from tests.server.kit import know

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "tests" / "e2e" / "mcp_program.py"
PEOPLE = {"ines": "user", "root": "admin"}
SWARMS = {"harbour": "dispatcher", "weather": "chief", "tide": "gauge"}
"""Each swarm's entrypoint."""


@action(parameters={"type": "object", "properties": {"what": {"type": "string"}}})
async def look_up(args: dict[str, Any]) -> str:
    """Look something up."""
    return f"{args['what']} is known"


def script(view: ScriptView) -> Steps:
    """Play all three agents, as the module says.

    With ``fail`` the action's arguments are wrong, and with ``nobody`` nobody else is asked.
    """
    agent = view.system.removeprefix("You are ").partition(".")[0]
    return {"dispatcher": _dispatch, "chief": _forecast, "gauge": _measure}[agent](view)


def _dispatch(view: ScriptView) -> Steps:
    if view.mail.sender == "chief@weather" or "nobody" in view.body:
        return call("task_complete", finish_message=f"chief says: {view.mail.body}")
    if view.new_results:
        return call("send_request", target="chief@weather", subject="Weather", body="The weather?")
    return call("look_up", **({} if "fail" in view.body else {"what": "the secret harbour"}))


def _forecast(view: ScriptView) -> Steps:
    if view.mail.sender == "gauge@tide":
        return call("send_response", target="dispatcher@harbour", subject="Re", body="it ebbs")
    return call("send_request", target="gauge@tide", subject="Tide", body="The secret tide?")


def _measure(view: ScriptView) -> Steps:
    if view.new_results:
        return call("send_response", target="chief@weather", subject="Re", body="the tide ebbs")
    return call("notes__note", text="the tide ebbs")


@dataclass
class Server:
    """A ``mail server`` in a process of its own."""

    swarm: str
    folder: Path
    environ: dict[str, str]
    port: int = field(default_factory=free_port)
    process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def store(self) -> str:
        return f"sqlite:///{self.folder / 'mail.db'}"

    @property
    def log(self) -> str:
        return (self.folder / "server.log").read_text("utf-8")

    def client(self, who: str = "ines") -> httpx.AsyncClient:
        """Return a client of somebody's."""
        headers = {"Authorization": f"Bearer {token_of(who, self.swarm)}"}
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=60)

    async def start(self) -> None:
        """Start it, and wait until it answers."""
        flags = {
            "--host": "127.0.0.1",
            "--port": str(self.port),
            "--store": self.store,
            "--swarm-name": self.swarm,
            "--swarm-source": str(self.folder / "swarms.json"),
            "--swarm-registry": str(self.folder / "registry.json"),
            "--print-llm-streams": "false",
        }
        with (self.folder / "server.log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "mail.cli", "server"),
                *(part for flag in flags.items() for part in flag),
                cwd=self.folder,
                env=self.environ,
                stdout=log,
                stderr=log,
            )
        async with asyncio.timeout(90), self.client() as client:
            while True:
                assert self.process.returncode is None, self.log
                try:
                    if (await client.get("/health")).status_code == 200:
                        return
                except httpx.TransportError:
                    await asyncio.sleep(0.05)

    async def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it; with SIGTERM in good order."""
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(how)
            async with asyncio.timeout(60):
                code = await self.process.wait()
            assert code == 0 or how is not signal.SIGTERM, self.log

    async def know(self, other: "Server") -> None:
        """Register another swarm."""
        told = {
            "name": other.swarm,
            "base_url": other.url,
            "auth_token": token_of(self.swarm, other.swarm),
            "volatile": False,
        }
        async with self.client("root") as client:
            answer = await client.post("/swarms", json=told)
        assert answer.status_code == 200, answer.text


def _prepare(server: Server) -> None:
    agent = {
        "name": SWARMS[server.swarm],
        "factory": "python::mail.factories:LiteLLMSupervisorFunction",
        "comm_targets": ["*@*"],
        "enable_entrypoint": True,
        "enable_interswarm": True,
        "can_complete_tasks": True,
        "tool_format": "completions",
        "agent_params": {
            "llm": "openai/gpt-5-mini",
            "system": f"You are {SWARMS[server.swarm]}.",
            "use_proxy": False,
        },
    }
    swarm: dict[str, Any] = {
        "name": server.swarm,
        "version": "1.3.6",
        "entrypoint": agent["name"],
        "enable_interswarm": True,
        "agents": [agent],
        "actions": [],
    }
    if server.swarm == "harbour":
        agent["actions"] = ["look_up"]
        swarm["action_imports"] = ["python::tests.federation.traced:look_up"]
    if server.swarm == "tide":
        agent["actions"] = ["mcp:notes"]
        command = [sys.executable, str(PROGRAM), str(server.folder)]
        swarm["mcp_servers"] = {"notes": {"command": command}}
    (server.folder / "gates").mkdir(parents=True)
    (server.folder / "swarms.json").write_text(json.dumps([swarm]), "utf-8")
    (server.folder / "mail.toml").write_text("[server.federation]\nallow_private = true\n", "utf-8")


@asynccontextmanager
async def served(
    folder: Path, provider_url: str, *names: str, **environ: str
) -> AsyncIterator[dict[str, Server]]:
    """Serve the three, or some of them; each knows the next one and the one before."""
    names = names or tuple(SWARMS)
    own = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    models = {"OPENAI_API_KEY": "any", "OPENAI_BASE_URL": provider_url}
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    every = {**own, **models, "PYTHONPATH": path, "OTEL_BSP_SCHEDULE_DELAY": "100", **environ}
    servers = {}
    for name in names:
        tokens = {f"SWARM_AUTH_TOKEN_{each.upper()}": token_of(name, each) for each in SWARMS}
        servers[name] = Server(name, folder / name, every | tokens)
    async with AsyncExitStack() as stack:
        for server in servers.values():
            _prepare(server)
            others = dict.fromkeys(SWARMS, "agent") | PEOPLE
            people = [(token_of(who, server.swarm), role, who) for who, role in others.items()]
            await know(server.store, *people)
            stack.push_async_callback(server.stop, signal.SIGKILL)
        await asyncio.gather(*(server.start() for server in servers.values()))
        for one, other in itertools.pairwise(names):
            await servers[one].know(servers[other])
            await servers[other].know(servers[one])
        yield servers
