"""``kill -9`` while tasks end and messages are sent: none is lost, whoever comes next."""

import asyncio
import os
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.databases import DATABASES
from tests.support.hooks import Receiver, receiving

SCRIPT = Path(__file__).with_name("webhook_process.py")
ROOT = Path(__file__).parents[2]
KILLS = 2
TASKS = 100


@asynccontextmanager
async def working(*arguments: object) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the process, and kill it at the end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, SCRIPT, *map(str, arguments), env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.parametrize("name", DATABASES)
async def test_what_was_committed_is_told(
    request: pytest.FixtureRequest, tmp_path: Path, name: str
) -> None:
    database = DATABASES[name](request, tmp_path)
    url = getattr(database, "url", None) or f"sqlite:///{tmp_path / 'mail.db'}"
    log, dice = tmp_path / "ended", random.Random(15)
    store = database.store()
    await store.open()
    try:
        async with receiving() as receiver:
            receiver.answers = [500, 204, 204, 503] * 5
            for kill in range(KILLS):
                async with working(url, receiver.url, log, TASKS) as process:
                    await told(receiver, process, (kill + 1) * 20)
                    await asyncio.sleep(dice.uniform(0.0, 0.05))
            async with working(url, receiver.url, log, 1), asyncio.timeout(60):
                while await store.next_webhook("office") is not None:
                    await asyncio.sleep(0.02)
            ended, messages = set(log.read_text().split()), set(receiver.ids)
            # What was committed just before a kill is told, too, and in no log.
            assert ended <= messages and len(messages - ended) <= KILLS
            # Only what was under way at a kill may come twice.
            assert len(receiver.ids) - len(messages) <= 8 * KILLS
    finally:
        await store.close()


async def told(receiver: Receiver, process: asyncio.subprocess.Process, messages: int) -> None:
    async with asyncio.timeout(60):
        while len(set(receiver.ids)) < messages:
            assert process.returncode is None
            await asyncio.sleep(0.005)
