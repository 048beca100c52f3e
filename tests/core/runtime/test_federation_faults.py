"""Mail between swarms when processes die, deliveries are given up, and agents do odd things."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mail.core.tasks import TaskState
from mail.db import open_store
from mail.testing import KillingStore, KillPoint
from mail.testing.kills import KillWhen
from tests.core.runtime.test_federation import (
    HARBOUR,
    WEATHER,
    Calls,
    ask,
    done,
    events,
    is_over,
    leader,
    reaches,
    terminals,
)
from tests.support.federation import Network, Side, question


class Died(BaseException):
    """Stands for the end of a process."""


def bury(side: Side, store: Any) -> None:
    """Let nothing of a dead process act any more, and give its swarm a working store."""
    dead, side.runtimes, side.store = side.runtimes, {}, store
    for runtime in dead.values():
        runtime._context.draining = True
        for handle in list(runtime._scheduler.active):
            handle.cancel()


class Pair:
    """Two swarms on files, one of which dies at a commit and is started again."""

    def __init__(self, folder: Path, which: str, when: KillWhen, nth: int) -> None:
        self.which, self.heard = which, list[tuple[str, str]]()
        names = ("harbour", "weather")
        self.stores = {name: open_store(f"sqlite:///{folder / name}.db") for name in names}
        self.network = Network()
        self.network.mortal = (Died,)
        self.died = asyncio.Event()
        self.point = KillPoint(when, lambda post: True, nth, die=self._die)
        self.sides = {
            "harbour": self.network.add("harbour", lambda: {"lead": leader(self._lead)}),
            "weather": self.network.add("weather", lambda: {"wind": leader(self._wind)}),
        }

    def _die(self) -> None:
        self.died.set()
        self.point._matches = lambda post: (_ for _ in ()).throw(Died())
        raise Died

    def _lead(self, subject: str, body: str) -> Calls:
        self.heard.append(("lead", subject))
        return [ask("wind@weather", body)] if subject == "Question" else [done(body)]

    def _wind(self, subject: str, body: str) -> Calls:
        self.heard.append(("wind", body))
        return [done(f"about {body}")]

    @property
    def harbour(self) -> Side:
        return self.sides["harbour"]

    @property
    def weather(self) -> Side:
        return self.sides["weather"]

    async def live(self) -> None:
        """Ask, and go on until everything is over or somebody has died."""
        for name, side in self.sides.items():
            await self.stores[name].open()
            side.store = self.stores[name]
        self.sides[self.which].store = KillingStore(self.stores[self.which], self.point)
        submitting = asyncio.ensure_future(self.harbour.runtime().submit(question()))
        await asyncio.wait([submitting])
        if submitting.exception() is None:
            await self.harbour.runtime().start()
        for _ in range(300):
            if self.died.is_set() or await self._rests():
                break
            await asyncio.sleep(0.01)

    async def _rests(self) -> bool:
        row = await self.stores["harbour"].load_task(HARBOUR, "task-1")
        if row is None or row.state is not TaskState.COMPLETED:
            return False
        return not any([await s.list_outbox(name) for name, s in self.stores.items()])

    async def rise(self) -> None:
        """Start whoever died again."""
        bury(self.sides[self.which], self.stores[self.which])
        if await self.stores["harbour"].load_task(HARBOUR, "task-1") is None:
            await self.harbour.runtime().submit(question())
        await self.harbour.runtime().start()
        for owner in await self.stores["weather"].open_owners("weather"):
            await self.weather.runtime(owner.role, owner.id).start()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("nth", range(1, 8))
@pytest.mark.parametrize("which", ["harbour", "weather"])
async def test_a_side_that_dies_at_any_commit_loses_and_doubles_nothing(
    tmp_path, which, nth, when
) -> None:
    """Requests and answers are each processed once, whichever commit a side dies at."""
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    pair = Pair(tmp_path, which, when, nth)
    async with pair.network as network:
        await pair.live()
        if pair.died.is_set():
            await pair.rise()
        await reaches(pair.harbour, HARBOUR, TaskState.COMPLETED)
        await reaches(pair.weather, WEATHER, TaskState.COMPLETED)
        await is_over(network)
        [end] = terminals(await events(pair.harbour, HARBOUR))
        assert end == ("completed", "about Hello")
        log = await events(pair.weather, WEATHER)
        assert terminals(log) == [("completed", "about Hello")]
        received = [event for event in log if event.kind == "interswarm_message_received"]
        assert len({e.extra["full_message"]["id"] for e in received}) == len(received)
        assert len(pair.heard) <= 3 + 1  # a model is asked again when its reply was lost
    for store in pair.stores.values():
        await store.close()
