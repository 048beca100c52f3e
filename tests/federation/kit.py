"""Swarms of scripted agents, each behind a real server of its own, that know one another."""

import contextlib
import json
import tempfile
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

from mail.api import MAILAction, MAILAgentTemplate, MAILSwarmTemplate
from mail.config.server import (
    FederationConfig,
    LimitsConfig,
    ServerConfig,
    SettingsConfig,
    StoreConfig,
    SwarmConfig,
)
from mail.db.memory import MemoryStore
from mail.db.store import Store
from mail.db.urls import open_store
from mail.factories.action import LiteLLMActionAgentFunction
from mail.factories.base import LiteLLMAgentFunction
from mail.factories.supervisor import LiteLLMSupervisorFunction
from mail.llm.script import Script
from mail.llm.scripted import ScriptedModel
from mail.server.app import create_app
from tests.server.kit import NOW, Server, put_tokens, registry_file, running_server

PEOPLE = {"ines": "user", "otto": "user", "root": "admin"}


def token_of(who: str, swarm: str) -> str:
    """Return the token that somebody has for a swarm's server: a person, or another swarm."""
    return f"mail_{who}-at-{swarm}-{'0' * 24}"


@dataclass(frozen=True, kw_only=True)
class Agent:
    """An agent by its script; one that ``leads`` is an entrypoint and completes tasks."""

    script: Script
    leads: bool = False
    open: bool = False
    targets: Sequence[str] = ()
    actions: Sequence[MAILAction] = ()

    def template(self, name: str) -> MAILAgentTemplate:
        factory: Any = LiteLLMSupervisorFunction
        if not self.leads:
            factory = LiteLLMActionAgentFunction if self.actions else LiteLLMAgentFunction
        return MAILAgentTemplate(
            name=name,
            factory=factory,
            comm_targets=[*self.targets],
            actions=[*self.actions],
            agent_params={
                "llm": "scripted",
                "model": ScriptedModel(self.script),
                "system": f"You are {name}.",
            },
            enable_entrypoint=self.leads,
            enable_interswarm=self.open,
            can_complete_tasks=self.leads,
            tool_format="completions",
        )


def swarm(
    name: str, breakpoint_tools: Sequence[str] = (), *, public: bool = True, **agents: Agent
) -> MAILSwarmTemplate:
    """Return a swarm that exchanges mail with others; its first agent is the entrypoint."""
    return MAILSwarmTemplate(
        name=name,
        agents=[agent.template(each) for each, agent in agents.items()],
        entrypoint=next(iter(agents)),
        enable_interswarm=True,
        breakpoint_tools=[*breakpoint_tools],
        public=public,
    )


def settings(name: str, expose: Sequence[str] | None = None, **limits: Any) -> ServerConfig:
    """Return settings of a server that may reach its neighbours on this machine."""
    narrowed = {} if expose is None else {"expose": [*expose]}
    return ServerConfig(
        host="127.0.0.1",
        port=0,
        swarm=SwarmConfig(name=name, registry_file=registry_file()),
        store=StoreConfig(url="memory://"),
        settings=SettingsConfig(task_message_limit=50, print_llm_streams=False),
        limits=LimitsConfig(**{"shutdown_grace": 2.0} | limits),
        federation=FederationConfig(allow_private=True, **narrowed),
    )


@dataclass
class Node:
    """A server of the federation."""

    name: str
    app: FastAPI
    server: Server
    store: Store
    clients: dict[str, httpx.AsyncClient] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return self.server.url

    def client(self, who: str = "ines") -> httpx.AsyncClient:
        """Return a client of somebody's: a person, another swarm, or nobody."""
        if who not in self.clients:
            headers = {"Authorization": f"Bearer {token_of(who, self.name)}"} if who else {}
            self.clients[who] = httpx.AsyncClient(base_url=self.url, headers=headers, timeout=20)
        return self.clients[who]

    async def post(self, body: str, who: str = "ines", **more: Any) -> httpx.Response:
        """Post a message of somebody's."""
        return await self.client(who).post("/message", json={"body": body, **more})

    async def ask(self, body: str, who: str = "ines", **more: Any) -> dict[str, Any]:
        """Post a message and return the answer."""
        answer = await self.post(body, who, **more)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def task(self, task_id: str, who: str = "ines") -> dict[str, Any]:
        """Return the record of somebody's task."""
        answer = await self.client(who).get(f"/tasks/{task_id}")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


async def register(node: Node, other: Node, **more: Any) -> None:
    """Let one server know another."""
    told = {
        "name": other.name,
        "base_url": other.url,
        "auth_token": token_of(node.name, other.name),
        "volatile": True,
        **more,
    }
    answer = await node.client("root").post("/swarms", json=told)
    assert answer.status_code == 200, answer.text


@contextlib.asynccontextmanager
async def started(
    template: MAILSwarmTemplate,
    others: Sequence[str],
    store: Store | None = None,
    config: ServerConfig | None = None,
) -> AsyncIterator[Node]:
    """Serve one swarm; the others have tokens there and are not registered yet."""
    name = template.name
    used = store or MemoryStore()
    await used.open()
    roles = {**PEOPLE, **dict.fromkeys(others, "agent"), name: "agent"}
    people = [(token_of(who, name), role, who) for who, role in roles.items()]
    await put_tokens(used, *people)
    app = create_app(config or settings(name), template=template, store=used)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(used.close)
        node = Node(name, app, await stack.enter_async_context(running_server(app)), used)
        try:
            yield node
        finally:
            for client in node.clients.values():
                await client.aclose()


@contextlib.asynccontextmanager
async def federation(
    *templates: MAILSwarmTemplate,
    stores: Mapping[str, Store] | None = None,
    configs: Mapping[str, ServerConfig] | None = None,
    known: bool = True,
) -> AsyncIterator[dict[str, Node]]:
    """Serve swarms that all know one another, unless told otherwise; yield them by name."""
    names = [template.name for template in templates]
    async with contextlib.AsyncExitStack() as stack:
        nodes = {}
        for template in templates:
            others = [name for name in names if name != template.name]
            node = started(
                template,
                others,
                (stores or {}).get(template.name),
                (configs or {}).get(template.name),
            )
            nodes[template.name] = await stack.enter_async_context(node)
        if known:
            for node in nodes.values():
                for other in nodes.values():
                    if node is not other:
                        await register(node, other)
        yield nodes


def stores_in(folder: Path, *names: str) -> dict[str, Store]:
    """Return a store in an SQLite file for each of the swarms."""
    return {name: open_store(f"sqlite:///{folder / name}.db") for name in names}


def wrapper(source: str, target: str, **changes: Any) -> dict[str, Any]:
    """Return mail of a swarm as its server sends it; changes of the payload begin with ``p_``."""
    task_id = str(uuid.uuid4())
    payload = {
        "task_id": task_id,
        "request_id": str(uuid.uuid4()),
        "sender": {"address_type": "agent", "address": f"dispatcher@{source}"},
        "recipient": {"address_type": "agent", "address": f"wind@{target}"},
        "subject": "Wind",
        "body": "How strong at 14:00?",
        "sender_swarm": source,
        "recipient_swarm": target,
        "routing_info": {},
    }
    payload |= {name[2:]: value for name, value in changes.items() if name.startswith("p_")}
    made = {
        "message_id": str(uuid.uuid4()),
        "source_swarm": source,
        "target_swarm": target,
        "timestamp": NOW,
        "payload": payload,
        "msg_type": "request",
        "auth_token": "a copy of the bearer token",
        "task_owner": f"user:ines@{source}",
        "task_contributors": [f"user:ines@{source}"],
        "metadata": {},
    }
    return made | {name: value for name, value in changes.items() if not name.startswith("p_")}


def events_of(task: Mapping[str, Any], kind: str) -> list[dict[str, Any]]:
    """Return the data of a task's events of a kind."""
    return [json.loads(e["data"]) for e in task["events"] if e["event"] == kind]


def folder() -> Path:
    """Return a new folder."""
    return Path(tempfile.mkdtemp(prefix="mail-federation-"))
