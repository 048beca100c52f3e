"""``kill -9`` while feedback is taken up: everything is learned once, by whoever comes next."""

import asyncio
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mail.clock import SystemClock
from mail.db.preferences import KEPT_VERSIONS
from mail.db.store import Store
from mail.services.preferences import Memories
from tests.services.test_learning import ALICE, answer, give
from tests.support.databases import DATABASES

ANSWERS = KEPT_VERSIONS - 2
KILLS = 3
NAMES = ("style", "triage")
SCRIPT = Path(__file__).with_name("learner_process.py")


@asynccontextmanager
async def learner(url: str, log: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a learner, and kill it at the end."""
    process = await asyncio.create_subprocess_exec(sys.executable, SCRIPT, url, log)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def asked(log: Path) -> int:
    """Return how often the model was asked."""
    return len(log.read_text().splitlines()) if log.exists() else 0


async def until_asked(log: Path, calls: int, process: asyncio.subprocess.Process) -> None:
    """Wait until the model was asked so often."""
    async with asyncio.timeout(60):
        while asked(log) < calls:
            assert process.returncode is None
            await asyncio.sleep(0.005)


async def left(store: Store) -> int:
    return sum((await store.waiting_feedback(ALICE)).values())


@pytest.mark.parametrize("name", DATABASES)
async def test_everything_is_learned_once(
    request: pytest.FixtureRequest, tmp_path: Path, name: str
) -> None:
    database = DATABASES[name](request, tmp_path)
    url = getattr(database, "url", None) or f"sqlite:///{tmp_path / 'mail.db'}"
    log, dice = tmp_path / "calls", random.Random(15)
    store = database.store()
    await store.open()
    ids = [f"a{number}" for number in range(ANSWERS)]
    rows = [
        answer(one, memory, change=f"the line of {one}", task_text="")
        for one in ids
        for memory in NAMES
    ]
    await give(store, *rows)
    for kill in range(KILLS):
        async with learner(url, log) as process:
            await until_asked(log, (kill + 1) * 4, process)
            await asyncio.sleep(dice.uniform(0.0, 0.05))
    async with learner(url, log) as process, asyncio.timeout(60):
        while await left(store):
            assert process.returncode is None
            await asyncio.sleep(0.02)
    for memory in NAMES:
        view = await Memories(store, ALICE, SystemClock()).view(memory)
        learned = [line for line in view.memory.value.splitlines() if "line of" in line]
        assert learned == [f"The line of {one}." for one in ids]
        assert [row.approval_id for row in reversed(view.versions)] == ids
        assert {row.state for row in view.feedback} == {"learned"}
    events = await store.events(ALICE, "t1")
    assert Counter(event.extra["memory"] for event in events) == dict.fromkeys(NAMES, ANSWERS)
    calls = Counter(log.read_text().split())
    assert calls.total() <= len(rows) + KILLS * len(NAMES)  # only what was cut short is asked again
    await store.close()
