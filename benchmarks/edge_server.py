"""The servers of `benchmarks.edge`: ``python -m benchmarks.edge_server KIND FOLDER PORT``.

``mail`` is the server with a swarm of one agent, which reads its newest message and answers at
once, ``example`` with the packaged example swarm; both log as ``mail server`` does. ``bare`` is the
floor: a FastAPI route that reads an equal body and does one group-committed insert into SQLite, and
one that streams as many events of the same size; ``bare-h11`` is the same without httptools and
uvloop.
"""

import asyncio
import json
import os
import sqlite3
import sys
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from sse_starlette import EventSourceResponse, ServerSentEvent

from benchmarks.swarm import reply
from mail.api import MAILAgentTemplate, MAILSwarmTemplate
from mail.config.server import LimitsConfig, ServerConfig, SettingsConfig, StoreConfig, SwarmConfig
from mail.core.agents import AgentFunction, AgentOutput, ToolChoice
from mail.logs.setup import init_logger
from mail.server.run import run_server

__all__ = ["edge_template"]

_EVENT_SIZES = (560, 330, 330, 520)
"""Bytes of data of the events of a task that is answered at once."""
_BATCH = 64


def edge_template() -> MAILSwarmTemplate:
    """Return a swarm of one agent that answers at once."""

    def make(**_: Any) -> AgentFunction:
        async def answer(messages: list[dict[str, Any]], choice: ToolChoice) -> AgentOutput:
            return reply("task_complete", finish_message=f"Read {len(_text(messages[-1]))}.")

        return answer

    agent = MAILAgentTemplate(
        "supervisor",
        factory=make,
        comm_targets=[],
        actions=[],
        agent_params={},
        enable_entrypoint=True,
        can_complete_tasks=True,
    )
    return MAILSwarmTemplate("edge", agents=[agent], entrypoint="supervisor")


def _text(message: dict[str, Any]) -> str:
    return str(message["content"])


def serve_mail(folder: Path, port: int) -> None:
    """Serve the swarm of one agent."""
    _serve(folder, port, edge_template(), "edge")


def serve_example(folder: Path, port: int) -> None:
    """Serve the example of three scripted agents with their tools and actions."""
    _serve(folder, port, None, "example-no-proxy")


def _serve(folder: Path, port: int, template: MAILSwarmTemplate | None, name: str) -> None:
    """Serve a swarm; the limits per caller are lifted."""
    config = ServerConfig(
        host="127.0.0.1",
        port=port,
        swarm=SwarmConfig(name=name),
        store=StoreConfig(url=f"sqlite:///{folder / 'mail.db'}"),
        settings=SettingsConfig(print_llm_streams=False),
        limits=LimitsConfig(max_requests=0, max_running_tasks=0, max_streams=0),
    )
    with Path(os.devnull).open("w") as stream:
        init_logger(log_dir=folder / "logs", stream=stream, log_format="json")
        run_server(config, template=template)


class Question(BaseModel):
    """The body of a bare request."""

    body: str
    stream: bool = False


class Inserter:
    """One thread that inserts rows into SQLite, all that wait in one commit."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._queue: SimpleQueue[tuple[str, asyncio.Future[int]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work)

    def start(self) -> None:
        """Begin to take rows."""
        self._thread.start()

    def stop(self) -> None:
        """Insert what waits, and end."""
        self._queue.put(None)
        self._thread.join()

    async def insert(self, row: str) -> int:
        """Insert a row and return its number once it is on the disk."""
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._queue.put((row, done))
        return await done

    def _work(self) -> None:
        connection = sqlite3.connect(self._path, isolation_level=None)
        connection.executescript(
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
            "CREATE TABLE bare (id INTEGER PRIMARY KEY, data TEXT);"
        )
        while (unit := self._queue.get()) is not None:
            batch = [unit]
            while len(batch) < _BATCH:
                try:
                    following = self._queue.get_nowait()
                except Empty:
                    break
                if following is None:
                    self._queue.put(None)
                    break
                batch.append(following)
            connection.execute("BEGIN IMMEDIATE")
            insert = "INSERT INTO bare (data) VALUES (?)"
            rows = [connection.execute(insert, (row,)).lastrowid or 0 for row, _ in batch]
            connection.execute("COMMIT")
            futures = [done for _, done in batch]
            futures[0].get_loop().call_soon_threadsafe(_resolve, futures, rows)
        connection.close()


def _resolve(futures: list[asyncio.Future[int]], rows: list[int]) -> None:
    for done, row in zip(futures, rows, strict=True):
        if not done.done():
            done.set_result(row)


def bare_app(path: Path) -> FastAPI:
    """Return the floor."""
    inserter = Inserter(path)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        inserter.start()
        yield
        inserter.stop()

    app = FastAPI(lifespan=lifespan)

    @app.post("/message")
    async def message(question: Question) -> dict[str, Any]:
        number = await inserter.insert(json.dumps(question.model_dump()))
        return {"response": f"Read {len(question.body)}.", "task_id": str(number), "events": None}

    @app.post("/stream")
    async def stream(question: Question) -> EventSourceResponse:
        await inserter.insert(json.dumps(question.model_dump()))
        return EventSourceResponse(_events())

    return app


async def _events() -> AsyncIterator[ServerSentEvent]:
    for number, size in enumerate(_EVENT_SIZES):
        yield ServerSentEvent(json.dumps({"text": "x" * size}), event="bare", id=str(number))


def serve_bare(folder: Path, port: int) -> None:
    """Serve the floor as uvicorn does by itself, without an access log."""
    app = bare_app(folder / "bare.db")
    uvicorn.run(app, host="127.0.0.1", port=port, access_log=False, log_level="warning")


def serve_bare_h11(folder: Path, port: int) -> None:
    """Serve the floor as uvicorn does where httptools and uvloop are not installed."""
    app = bare_app(folder / "bare.db")
    options: dict[str, Any] = {"http": "h11", "loop": "asyncio", "log_level": "warning"}
    uvicorn.run(app, host="127.0.0.1", port=port, access_log=False, **options)


KINDS: Final[Mapping[str, Callable[[Path, int], None]]] = {
    "mail": serve_mail,
    "example": serve_example,
    "bare": serve_bare,
    "bare-h11": serve_bare_h11,
}

if __name__ == "__main__":
    KINDS[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))
