"""A small swarm to serve, and a uvicorn server in the test's own event loop."""

import asyncio
import contextlib
import json
import re
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette

from mail.auth.callers import hash_token
from mail.config.server import (
    LimitsConfig,
    ServerConfig,
    SettingsConfig,
    StoreConfig,
    SwarmConfig,
)
from mail.core.agents import AgentCore
from mail.core.call_context import current_call
from mail.core.tools.call import AgentToolCall
from mail.core.usage import Usage
from mail.db.commit import Commit, TurnCommit
from mail.db.records import Owner, TokenRow
from mail.db.store import Store
from mail.db.urls import open_store
from mail.errors import ModelError
from mail.server.connections import IDLE_SECONDS, connections

TOKENS = {
    "admin": "mail_admin-token-000000000000000000",
    "alice": "mail_alice-token-000000000000000000",
    "bob": "mail_bob-token-00000000000000000000",
    "swarm": "mail_swarm-token-000000000000000000",
    "editor": "mail_editor-token-00000000000000000",
    "reviewer": "mail_reviewer-token-000000000000000",
}
CALLERS = {
    "admin": ("admin", "root"),
    "alice": ("user", "alice"),
    "bob": ("user", "bob"),
    "swarm": ("agent", "beta"),
    "editor": ("agent", "editor"),
    "reviewer": ("agent", "reviewer"),
}
NOW = "2026-01-01T00:00:00+00:00"


async def put_tokens(store: Store, *people: tuple[str, str, str]) -> None:
    """Let a store know people, each as (token, role, id); without any, the known callers."""
    for token, role, name in people or [(TOKENS[who], *CALLERS[who]) for who in CALLERS]:
        await store.put_token(TokenRow(hash_token(token), role, name, NOW))


async def know(url: str, *people: tuple[str, str, str]) -> None:
    """Let a database know people, as `put_tokens` does."""
    store = open_store(url, exclusive=False)
    await store.open()
    await put_tokens(store, *people)
    await store.close()


async def put_aside(store: Store, owner: Owner, task_id: str) -> int:
    """Set a copy of a task's first message to an agent aside; return its number."""
    row = await store.load_task(owner, task_id)
    assert row is not None
    mail = next(each for each in await store.all_mail(owner, task_id) if each.control is None)
    receipt = await store.commit(Commit(owner=owner, task=row, deliveries=(mail._replace(seq=0),)))
    [number] = receipt.seqs
    dead = "the server crashed 5 times while agent 'supervisor' worked on this message"
    await store.commit(TurnCommit(owner=owner, task=row, seq=number, dead=dead))
    return number


def bearer(who: str) -> dict[str, str]:
    """Return the header of one of the known callers."""
    return {"Authorization": f"Bearer {TOKENS[who]}"}


async def busy() -> None:
    """Tell, from an agent's call, that its model has no time now."""
    error = ModelError("model call failed (HTTP 429): slow down", status=429)
    waits = current_call().waits
    assert waits is not None
    await waits("openai/gpt-5-mini", error, 1, 12.2)


def registry_file() -> str:
    """Return a file that is no other test's."""
    return str(Path(tempfile.gettempdir()) / "mail-test-registries" / f"{uuid.uuid4()}.json")


def config(**limits: Any) -> ServerConfig:
    """Return settings that depend on no file; tests look again and again, so at any rate."""
    return ServerConfig(
        host="127.0.0.1",
        port=0,
        swarm=SwarmConfig(name="test-swarm", registry_file=registry_file()),
        store=StoreConfig(url="memory://"),
        settings=SettingsConfig(task_message_limit=15, print_llm_streams=False),
        limits=LimitsConfig(**{"anonymous_rate": 0.0} | limits),
    )


def call(name: str, **arguments: Any) -> AgentToolCall:
    """Return a tool call as a model makes it."""
    call_id = f"call-{uuid.uuid4()}"
    function = {"name": name, "arguments": json.dumps(arguments)}
    completion = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }
    return AgentToolCall(
        tool_name=name, tool_args=arguments, tool_call_id=call_id, completion=completion
    )


@dataclass(eq=False)
class Script:
    """What the swarm's only agent does: it finishes with what it was told.

    ``hang`` in a message makes it wait for ``gate``; ``fail`` makes its model fail; ``consult``
    makes it call the breakpoint tool; ``waste`` makes it ask for help again and again; ``busy``
    makes it tell that its model is. Every call reports ``usage``, if there is any.
    """

    gate: asyncio.Event = field(default_factory=asyncio.Event)
    entered: asyncio.Event = field(default_factory=asyncio.Event)
    usage: Usage | None = None
    calls: int = 0

    async def __call__(
        self, messages: list[dict[str, Any]], tool_choice: Any
    ) -> tuple[str | None, list[AgentToolCall]]:
        self.calls += 1
        if self.usage is not None:
            current_call().report("test/model", self.usage)
        last = str(messages[-1].get("content"))
        if messages[-1].get("role") == "tool":
            return None, [call("task_complete", finish_message=f"the tool said {last}")]
        found = re.search(r"<body>(.*?)</body>", last, re.DOTALL)
        body = found[1] if found else ""
        if "waste" in str(messages):
            return None, [call("help")]
        if "fail" in body:
            raise ModelError("the provider is out of tokens")
        if "consult" in body:
            return None, [call("send_interrupt", target="supervisor", subject="s", body="b")]
        if "busy" in body:
            await busy()
        if "hang" in body:
            self.entered.set()
            await self.gate.wait()
        return None, [call("task_complete", finish_message=f"You said: {body}")]


class Template:
    """The surface of `mail.api.MAILSwarmTemplate` that the server uses, over one agent."""

    def __init__(self, script: Script | None = None, **options: Any) -> None:
        self.script = script or Script()
        self.name, self.version, self.description = "test-swarm", "1.3.6", "a swarm for tests"
        self.entrypoint, self.keywords, self.public = "supervisor", ["test"], False
        self.task_message_limit: int | None = None
        self.enable_interswarm = False
        agent = SimpleNamespace(
            name="supervisor",
            agent_params={},
            actions=[],
            comm_targets=["supervisor"],
            enable_entrypoint=True,
            enable_interswarm=False,
            can_complete_tasks=True,
            function=self.script,
            tool_format="responses",
        )
        self.actions: list[Any] = []
        self.agents = [agent]
        self.participants: list[dict[str, str]] = []
        self.teams: list[dict[str, Any]] = []
        self.enable_teams = False
        self.memories: dict[str, str] = {}
        self.others: tuple[str, ...] = ()  # further agents, which do the same
        self.options = options
        self.started: list[tuple[str, str]] = []

    def make_agents(self, instance_params: dict[str, Any]) -> list[Any]:
        return []

    def instantiate(  # noqa: PLR0913 - the documented signature
        self,
        instance_params: dict[str, Any],
        user_id: str,
        user_role: str,
        base_url: str,
        registry_file: str | None,
        print_llm_streams: bool,
        *,
        store: Any,
        settings: Any,
        clock: object,
        agents: Any,
        swarm_registry: Any = None,
        gateway: Any = None,
        ring: Any = None,
        blobs: Any = None,
    ) -> "Swarm":
        return Swarm(self, user_id, user_role, store, settings)


class Swarm:
    """The surface of `mail.api.MAILSwarm` that the server uses, over the real runtime."""

    def __init__(self, template: Template, user_id: str, role: str, store: Any, settings: Any):
        from mail.core.runtime import MAILRuntime

        self.agents = template.agents
        agent = AgentCore(
            function=template.script,
            comm_targets=["supervisor"],
            enable_entrypoint=True,
            can_complete_tasks=True,
        )
        self.runtime = MAILRuntime(
            agents=dict.fromkeys(("supervisor", *template.others), agent),
            actions={},
            user_id=user_id,
            user_role=role,
            swarm_name=template.name,
            entrypoint=template.entrypoint,
            print_llm_streams=False,
            store=store,
            settings=settings,
            **template.options,
        )

        self.template, self.name = template, template.name

    def __getattr__(self, name: str) -> Any:
        return getattr(self.runtime, name)

    async def start(self) -> None:
        self.template.started.append((self.runtime.user_role, self.runtime.user_id))
        await self.runtime.start()

    async def open_run(
        self,
        body: str,
        subject: str = "New Message",
        msg_type: Any = "request",
        *,
        entrypoint: str | None = None,
        task_id: str | None = None,
        **request: Any,
    ) -> Any:
        from mail.clock import SystemClock
        from mail.core.compose import Composer
        from mail.core.message import create_address, create_agent_address
        from mail.core.runtime import RunRequest

        runtime = self.runtime
        role: Any = runtime.user_role
        message = Composer(runtime.swarm_name, SystemClock()).message(
            msg_type,
            task_id or str(uuid.uuid4()),
            create_address(runtime.user_id, role),
            [create_agent_address(entrypoint or runtime.entrypoint)],
            subject,
            body,
        )
        return await runtime.open_run(RunRequest(message=message.to_wire(), **request))


class Server(uvicorn.Server):
    """uvicorn that leaves the test process's signals alone."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        """Wait to be told, where uvicorn asks ten times a second."""
        self.stop = asyncio.Event()
        await self.on_tick(0)
        await self.stop.wait()

    async def shutdown(self, sockets: Any = None) -> None:
        """Do what uvicorn does, without its waits of a tenth of a second."""
        state = self.server_state
        for server in self.servers:
            server.close()
        for connection in list(state.connections):
            connection.shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                while state.connections or state.tasks:
                    await asyncio.sleep(0.005)
                for server in self.servers:
                    await server.wait_closed()
        for task in state.tasks:
            task.cancel()
        for connection in list(state.connections):  # made while the server closed, or stuck
            connection.transport.abort()
        await self.lifespan.shutdown()

    @property
    def url(self) -> str:
        port = self.servers[0].sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}"


@contextlib.asynccontextmanager
async def running_server(
    app: Starlette,
    limits: LimitsConfig | None = None,
    port: int = 0,
    *,
    idle: float = IDLE_SECONDS,
) -> AsyncIterator[Server]:
    """Serve an app on a free port, over connections held to the limits when they are given."""
    options = uvicorn.Config(
        app,
        port=port,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=2,
        ws="none",
        http=connections(limits or LimitsConfig()),
        timeout_keep_alive=idle,  # type: ignore[arg-type]  # a float does
    )
    server = Server(options)
    running = asyncio.create_task(server.serve())
    while not hasattr(server, "stop"):
        if running.done():
            await running
        await asyncio.sleep(0.001)
    try:
        yield server
    finally:
        server.stop.set()
        await running


@contextlib.asynccontextmanager
async def serving(app: Starlette) -> AsyncIterator[httpx.AsyncClient]:
    """Serve an app on a free port; yield a client for it."""
    async with (
        running_server(app) as server,
        httpx.AsyncClient(base_url=server.url, timeout=60.0) as client,
    ):
        yield client


def frames(text: str) -> list[dict[str, str]]:
    """Parse server-sent events the strict way: only CRLF ends a line."""
    events = []
    for block in text.split("\r\n\r\n"):
        event: dict[str, str] = {}
        for line in block.split("\r\n"):
            name, colon, value = line.partition(": ")
            if name and colon:
                assert name in {"id", "event", "data", "retry"}, line
                assert name not in event, line
                event[name] = value
        if event:
            events.append(event)
    return events
