"""Requests with keys, cut, repeated and cancelled, on servers that load swarms, stop and crash.

Whatever the order: one run for each key, the same answer to all of its repeats, nobody waits for
ever, and nothing is held in the end.
"""

import asyncio
import os
import random
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

import pytest

from mail.core.tasks import TaskState
from mail.db.memory import MemoryStore
from mail.db.records import Owner
from mail.db.sqlite.driver import SQLiteStore
from mail.db.store import Store
from tests.fuzz.effort import EFFORT
from tests.fuzz.interleaving import (
    HARNESS,
    Answer,
    Generation,
    ShakyStore,
    agent_of,
    leaks,
    template,
)
from tests.server.kit import TOKENS, put_tokens

FIRST: Final = int(os.environ.get("FUZZ_FIRST_SEED", "0"))
SWARMS: Final = ("test-swarm", "second")
ALLOWED: Final = {0, 200, 400, 404, 409, 429, 499, 503}
RESUME: Final = {
    "task_id": "asked",
    "resume_from": "breakpoint_tool_call",
    "kwargs": {"breakpoint_tool_call_result": "yes"},
}
BODIES: Final[dict[str, dict[str, Any]]] = {
    "plain": {"body": "the words of plain", "show_events": True},
    "own": {"body": "the words of own", "task_id": "own"},
    "one": {"body": "the words of one", "task_id": "shared", "show_events": True},
    "two": {"body": "the words of two", "task_id": "shared", "entrypoint": "other"},
    "three": {"body": "the words of three", "task_id": "shared", "stream": True},
    "stream": {"body": "the words of stream", "stream": True},
    "ask": {"body": "ask the words of ask", "task_id": "asked"},
    "resume": RESUME,
    "streamed": RESUME | {"stream": True},
}


class Story:
    """What one seed does."""

    def __init__(self, seed: int, inner: Store) -> None:
        self.dice = random.Random(seed)
        self.inner = inner
        agent = agent_of(self.dice)
        self.swarms = {name: template(name, agent) for name in SWARMS}
        self.keys = self.dice.sample(list(BODIES), 3)
        self.early: dict[str, list[Answer]] = defaultdict(list)
        self.last: dict[str, list[Answer]] = defaultdict(list)
        self.failing = self.dice.choice((0.0, 0.0, 0.03))
        self.several = self.dice.random() < 0.4  # swarms of several names
        self.server = self._server()
        self.name = SWARMS[0]
        self.moving = asyncio.Lock()

    def _server(self) -> Generation:
        return Generation(ShakyStore(self.inner, self.dice, self.failing), self.dice, self.swarms)

    async def tell(self) -> None:
        await self.server.begin(self.name)
        workers = [self._work() for _ in range(self.dice.randrange(2, 5))]
        await asyncio.gather(*(asyncio.create_task(w, name=HARNESS) for w in workers))
        await self._restart(self.dice.random() < 0.5, failing=0.0)
        for name in SWARMS if self.several else SWARMS[:1]:
            self.server.load(name)
            await self._rest(name)
            for key in self.keys:
                await self._repeat(name, key)
        for key in self.keys:
            self._compare(key)
        assert await leaks(self.server) == []
        await self.server.end()

    async def _rest(self, name: str) -> None:
        """Wait until the swarm is served by an instance of it, and none of its tasks runs."""
        owner = Owner(name, "user", "alice")
        while await self.inner.list_tasks(owner, states=(TaskState.RUNNING,)):
            await asyncio.sleep(0.001)
        assert await leaks(self.server) == []

    async def _repeat(self, name: str, key: str) -> None:
        """Ask twice more; the first of these may be the first of all."""
        known = await self.inner.find_key(Owner(name, "user", "alice"), key)
        first, second = [await self._ask(key, None) for _ in range(2)]
        assert first.replayed == (known is not None)
        assert second.replayed == (second.status == 200)
        assert (first.status, first.body) == (second.status, second.body) or first.events
        assert first.events == second.events
        if first.status == 200 and "body" in BODIES[key]:
            assert await self._runs(name, key) == 1
        self.last[key].append(first)

    async def _runs(self, name: str, key: str) -> int:
        """Count the messages that the key's requests posted."""
        owner, found = Owner(name, "user", "alice"), 0
        for task in await self.inner.list_tasks(owner):
            for event in await self.inner.events(owner, task.task_id):
                said = event.extra.get("full_message", {}).get("message", {})
                from_user = said.get("sender", {}).get("address_type") == "user"
                found += from_user and said["body"] == BODIES[key]["body"]
        return found

    def _compare(self, key: str) -> None:
        """Hold every answer that somebody got against the last ones."""
        for answer in self.early[key]:
            if answer.status != 200:
                continue
            if answer.events:  # a stream, which may have been cut
                known = [last.events[: len(answer.events)] for last in self.last[key]]
                assert answer.events in known, key
            elif answer.complete and not BODIES[key].get("stream"):
                assert answer.body in [last.body for last in self.last[key]], key

    async def _work(self) -> None:
        for _ in range(self.dice.randrange(2, 7)):
            for _ in range(self.dice.choice((0, 3, 40))):
                await asyncio.sleep(0)
            what = self.dice.random()
            if what < 0.70:
                key = self.dice.choice(self.keys)
                patience = self.dice.choice((None, None, 1, 10, 50, 200))
                self.early[key].append(await self._ask(key, patience))
            elif what < 0.82:
                task = self.dice.choice(("own", "shared", "asked"))
                cancel = f"/tasks/{task}/cancel"
                await self._checked(cancel, {}, f"c{self.dice.randrange(2)}{task}", None)
            elif what < 0.92:
                async with self.moving:
                    self.name = self.dice.choice(SWARMS) if self.several else self.name
                    self.server.load(self.name)
            else:
                await self._restart(self.dice.random() < 0.5, self.failing)

    async def _ask(self, key: str, patience: int | None) -> Answer:
        return await self._checked("/message", BODIES[key], key, patience)

    async def _checked(self, path: str, body: object, key: str, patience: int | None) -> Answer:
        answer = await self.server.ask(path, body, key, patience)
        assert answer.status in ALLOWED, (key, answer)
        return answer

    async def _restart(self, kill: bool, failing: float) -> None:
        async with self.moving:
            await (self.server.kill() if kill else self.server.end())
            self.failing = failing
            self.server = self._server()
            await self.server.begin(self.name)


# A crash may take a stream's helpers away before they have begun.
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_repeats_in_any_order(tmp_path: Path) -> None:
    for seed in range(FIRST, FIRST + 30 * EFFORT):
        durable = seed % 10 == 9
        asyncio.run(_one(seed, tmp_path / f"{seed}.db" if durable else None))


async def _one(seed: int, path: Path | None) -> None:
    asyncio.current_task().set_name(HARNESS)  # type: ignore[union-attr]
    store = MemoryStore() if path is None else SQLiteStore(path)
    await store.open()
    await put_tokens(store, (TOKENS["alice"], "user", "alice"))
    try:
        async with asyncio.timeout(10):
            await Story(seed, store).tell()
    except BaseException as error:
        error.add_note(f"seed {seed}")
        raise
    finally:
        await store.close()
