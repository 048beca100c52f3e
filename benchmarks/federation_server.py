"""The servers of `benchmarks.federation`: ``python -m … KIND FOLDER PORT``.

``north`` serves a swarm whose one agent has each question answered by ``worker@south``; ``south``
serves that worker. ``relay`` is the floor: a FastAPI route that commits the question to SQLite,
posts it on to ``end``, which commits it, too, and answers. The variable ``PEER`` says where
``south`` or ``end`` is.
"""

import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import uvicorn
from fastapi import FastAPI

from benchmarks.edge_server import Inserter, Question
from benchmarks.swarm import reply
from mail.api import MAILAgentTemplate, MAILSwarmTemplate
from mail.config.server import (
    FederationConfig,
    LimitsConfig,
    ServerConfig,
    SettingsConfig,
    StoreConfig,
    SwarmConfig,
)
from mail.core.agents import AgentFunction, AgentOutput, ToolChoice
from mail.logs.setup import init_logger
from mail.server.run import run_server

__all__ = ["federation_template"]

_TARGETS: Final[Mapping[str, list[str]]] = {"north": ["worker@south"], "south": []}


async def _ask(messages: list[dict[str, Any]], choice: ToolChoice) -> AgentOutput:
    newest = str(messages[-1]["content"])
    if "worker@south" in newest:
        return reply("task_complete", finish_message="It is done.")
    return reply("send_request", target="worker@south", subject="Job", body=newest[:300])


async def _work(messages: list[dict[str, Any]], choice: ToolChoice) -> AgentOutput:
    if "asker@north" not in str(messages[-1]["content"]):
        return reply("await_message", reason="nothing to do")
    return reply("send_response", target="asker@north", subject="Re: Job", body="Here it is.")


def federation_template(name: str) -> MAILSwarmTemplate:
    """Return one of the two swarms."""

    def make(**_: Any) -> AgentFunction:
        return _ask if name == "north" else _work

    agent = MAILAgentTemplate(
        "asker" if name == "north" else "worker",
        factory=make,
        comm_targets=_TARGETS[name],
        actions=[],
        agent_params={},
        enable_entrypoint=True,
        enable_interswarm=True,
        can_complete_tasks=True,
    )
    return MAILSwarmTemplate(name, agents=[agent], entrypoint=agent.name, enable_interswarm=True)


def _serve(name: str, folder: Path, port: int) -> None:
    config = ServerConfig(
        host="127.0.0.1",
        port=port,
        swarm=SwarmConfig(name=name, registry_file=str(folder / "registry.json")),
        store=StoreConfig(url=f"sqlite:///{folder / 'mail.db'}"),
        settings=SettingsConfig(print_llm_streams=False),
        federation=FederationConfig(allow_private=True),
        limits=LimitsConfig(max_requests=0, max_running_tasks=0, max_streams=0, body_rate=0.0),
    )
    with Path(os.devnull).open("w") as stream:
        init_logger(log_dir=folder / "logs", stream=stream, log_format="json")
        run_server(config, template=federation_template(name))


def serve_north(folder: Path, port: int) -> None:
    """Serve the swarm that asks."""
    _serve("north", folder, port)


def serve_south(folder: Path, port: int) -> None:
    """Serve the swarm that works."""
    _serve("south", folder, port)


def _floor(path: Path, peer: str | None) -> FastAPI:
    """Return a route that commits a question, and has it committed elsewhere first if asked to."""
    inserter = Inserter(path)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        inserter.start()
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:
            app.state.client = client
            yield
        inserter.stop()

    app = FastAPI(lifespan=lifespan)

    @app.post("/message")
    async def message(question: Question) -> dict[str, Any]:
        body = question.model_dump()
        await inserter.insert(question.model_dump_json())
        if peer is not None:
            client: aiohttp.ClientSession = app.state.client
            async with client.post(f"{peer}/message", json=body, raise_for_status=True) as answer:
                await answer.read()
        return {"response": f"Read {len(question.body)}.", "events": None}

    return app


def serve_floor(folder: Path, port: int) -> None:
    """Serve one half of the floor as uvicorn does by itself, without an access log."""
    app = _floor(folder / "bare.db", os.environ.get("PEER"))
    uvicorn.run(app, host="127.0.0.1", port=port, access_log=False, log_level="warning")


KINDS: Final[Mapping[str, Callable[[Path, int], None]]] = {
    "north": serve_north,
    "south": serve_south,
    "relay": serve_floor,
    "end": serve_floor,
}

if __name__ == "__main__":
    KINDS[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))
