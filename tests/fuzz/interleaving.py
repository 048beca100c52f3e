"""A server without sockets whose requests, readers, restarts and crashes happen in any order.

One seed is one order: of what is asked, and of who goes on after each step of the store. A crash
is a server whose store does nothing any more and whose asyncio tasks are gone: what it committed
is there, and nobody was told.
"""

import asyncio
import json
import math
import random
import tempfile
import uuid
from collections.abc import Coroutine
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from mail.core.agents import AgentFunction
from mail.core.large import LARGE_AT_ONCE
from mail.db.store import Store
from mail.errors import StoreError
from mail.server.app import create_app
from mail.server.instances import Served
from mail.server.swarm import SwarmBuilder
from mail.testing import tool_calls
from tests.server.kit import Template, bearer, config, frames

__all__ = ["Answer", "Generation", "ShakyStore", "agent_of", "leaks", "template"]

WRITES = frozenset({"commit", "count_attempt", "uncount_attempt", "put_key"})
HARNESS = "harness"
"""Asyncio tasks of this name are not the server's."""


class ShakyStore:
    """A store that takes its time, fails now and then, and may die. Writes keep their order."""

    durable = True
    shared = False
    follow_seconds = math.inf

    def __init__(self, inner: Store, dice: random.Random, failing: float) -> None:
        self._inner, self._dice, self._failing = inner, dice, failing
        self.shaky, self.dead = False, False
        self._writing = asyncio.Lock()
        self.path = Path(tempfile.gettempdir(), f"mail-{uuid.uuid4()}", "mail.db")  # of no files
        self.driver, self.hints = inner.driver, inner.hints

    def __getattr__(self, name: str) -> Any:
        step = getattr(self._inner, name)

        async def taken(*args: Any, **kwargs: Any) -> Any:
            async with self._writing if name in WRITES else nullcontext():
                await self._pause()
                if self.shaky and self._dice.random() < self._failing:
                    raise StoreError("the disk hiccups")
                found = await step(*args, **kwargs)
            await self._pause()
            return found

        return taken

    async def _pause(self) -> None:
        for _ in range(self._dice.randrange(4)):
            await asyncio.sleep(0)
        if self.dead:
            raise StoreError("the process is dead")


def agent_of(dice: random.Random) -> AgentFunction:
    """Return an agent that takes its time, and asks its caller first when it is told to."""

    async def answer(messages: list[dict[str, Any]], tool_choice: Any) -> Any:
        for _ in range(dice.choice((0, 1, 5, 30))):
            await asyncio.sleep(0)
        last = messages[-1]
        if last.get("role") != "tool" and "ask" in str(last.get("content")):
            asked = {"target": "supervisor", "subject": "s", "body": "b"}
            return None, tool_calls(("send_interrupt", asked), prefix=f"ask{dice.random()}")
        said = f"number {dice.randrange(10**9)}"
        return None, tool_calls(("task_complete", {"finish_message": said}), prefix=said)

    return answer


def template(name: str, agent: AgentFunction) -> Template:
    """Return a swarm of two such agents."""
    made = Template(agent, breakpoint_tools=["send_interrupt"])  # type: ignore[arg-type]
    made.name, made.others = name, ("other",)
    return made


@dataclass
class Answer:
    """What came back: the status (0: nothing), the body, and whether all of it came."""

    status: int = 0
    body: bytes = b""
    complete: bool = False
    replayed: bool = False

    @property
    def events(self) -> list[tuple[str, str]]:
        """The stored events of a stream that came whole: their numbers and data."""
        text = self.body.decode(errors="ignore").rpartition("\r\n\r\n")[0]
        return [(frame["id"], frame["data"]) for frame in frames(text) if "id" in frame]


@dataclass
class Generation:
    """One life of the server."""

    store: ShakyStore
    dice: random.Random
    swarms: dict[str, Template]
    app: FastAPI = field(init=False)
    up: asyncio.Event = field(default_factory=asyncio.Event)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    served: dict[str, Served] = field(default_factory=dict)
    _life: "asyncio.Task[None] | None" = None

    async def begin(self, first: str) -> None:
        """Start, with one of the swarms."""
        settings = config(
            shutdown_grace=0.05, max_running_tasks=2, max_queued_tasks=1, max_streams=3
        )
        made: Any = self.swarms[first]
        self.app = create_app(settings, template=made, store=self.store)
        self.app.state.mail.host_drains = True
        for name, other in self.swarms.items():
            swarm: Any = other
            self.served[name] = await SwarmBuilder(config=settings, store=self.store).open(swarm)
        self._life = asyncio.create_task(self._live(), name="life")
        await self.up.wait()
        self.store.shaky = True

    async def _live(self) -> None:
        async with self.app.router.lifespan_context(self.app):
            self.up.set()
            await self.stop.wait()

    async def end(self) -> None:
        """Stop in good order."""
        self.stop.set()
        assert self._life is not None
        await self._life

    async def kill(self) -> None:
        """Vanish, whatever is going on."""
        self.store.dead = True
        mine = asyncio.current_task()
        while gone := {t for t in asyncio.all_tasks() if t.get_name() != HARNESS and t is not mine}:
            for task in gone:
                task.cancel()
            await asyncio.wait(gone, timeout=1)

    def load(self, name: str) -> None:
        """Serve another swarm, as ``/swarms/load`` does once it has read it."""
        state = self.app.state.mail
        state.pool.replace(replace(self.served[name]))  # another one, also of the same name
        state.begin_recovery()

    async def ask(self, path: str, body: object, key: str, patience: int | None) -> Answer:
        """Post as alice; leave after so many steps, if at all."""
        answer = Answer()
        gone = asyncio.Event()
        asking = asyncio.create_task(self._post(path, body, key, gone, answer), name="request")
        steps = 0
        while not asking.done():
            await asyncio.sleep(0 if steps < 300 else 0.001)
            steps += 1
            if steps == patience:
                gone.set()
        if not asking.cancelled():
            asking.result()
        return answer

    def _post(
        self, path: str, body: object, key: str, gone: asyncio.Event, answer: Answer
    ) -> Coroutine[Any, Any, None]:
        text = json.dumps(body).encode()
        headers = bearer("alice") | {"Idempotency-Key": key, "Content-Type": "application/json"}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [(k.lower().encode(), v.encode()) for k, v in headers.items()],
            "server": ("test", 80),
            "client": ("test", 1),
            "state": {},
        }
        said = [{"type": "http.request", "body": text, "more_body": False}]

        async def receive() -> Any:
            if said:
                return said.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            for _ in range(self.dice.randrange(3)):
                await asyncio.sleep(0)
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.replayed = (b"idempotency-replayed", b"true") in message["headers"]
            elif not gone.is_set():
                answer.body += message.get("body", b"")
                answer.complete = not message.get("more_body", False)

        return self.app(scope, receive, send)  # type: ignore[arg-type]


async def leaks(generation: Generation) -> list[str]:
    """Return what a server at rest still holds; wait a moment for the rest to come."""
    for _ in range(400):
        found = _held(generation)
        if not found:
            break
        await asyncio.sleep(0.005)
    return found


def _held(generation: Generation) -> list[str]:
    state = generation.app.state.mail
    found = [f"instance of {c.id} at work" for c, i in state.pool._live.items() if not i.idle]
    holders: dict[str, Any] = {
        "locks of keys": state._key_locks._locks,
        "locks of instances": state.pool._locks._locks,
        "places for bodies": state.quotas._bodies,
        "places for streams": state.quotas._streams,
        "places for large answers": [
            places for places in state.quotas._places.values() if places._value < LARGE_AT_ONCE
        ],
        "room for large bodies": [
            room for room in state.quotas._rooms.values() if room._parts._value < room._all
        ],
    }
    return found + [f"{what}: {held}" for what, held in holders.items() if held]
