"""``mail server --workers N``: several processes behind one port, and what the operator sees."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.test_server_process import QUESTION, Place, serving
from tests.support.postgres import Cluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


@pytest.fixture
async def place(tmp_path: Path, cluster: Cluster) -> AsyncIterator[Place]:
    """Two workers on a database, and the folder that they were started in."""
    async with serving(tmp_path, flags=("--workers", "2", "--store", cluster.schema())) as place:
        yield place


def nodes(place: Place) -> dict[int, dict[str, Any]]:
    """Return the processes that ``mail nodes`` lists, by pid."""
    done = place.run("nodes", "--json", "--store", place.flags[-1])
    assert done.returncode == 0, done.stderr
    return {node["pid"]: node for node in json.loads(done.stdout)}


async def become(place: Place, count: int, without: set[int] = frozenset()) -> set[int]:  # type: ignore[assignment]
    """Wait until so many processes are there, none of those named among them."""
    async with asyncio.timeout(120):
        while True:
            found = set(await asyncio.to_thread(nodes, place))
            if len(found) == count and not found & without:
                return found
            await asyncio.sleep(0.2)


async def test_workers_share_the_port_and_one_that_dies_is_replaced(place: Place) -> None:
    pids = await become(place, 2)
    shown = place.run("nodes", "--store", place.flags[-1]).stdout
    assert shown.splitlines()[0].split() == [
        "NODE",
        "PROCESS",
        "VERSION",
        "SWARM",
        "TASKS",
        "UP",
        "SEEN",
    ]
    made = place.run(
        "token", "create", "--role", "user", "--id", "alice", "--store", place.flags[-1]
    )
    headers = {"Authorization": f"Bearer {made.stdout.strip()}"}

    async def ask() -> str:
        async with httpx.AsyncClient(timeout=60, headers=headers) as client:
            answer = await client.post(f"{place.url}/message", json={"body": QUESTION})
            assert answer.status_code == 200, answer.text
            return str(answer.json()["status"])

    assert await asyncio.gather(*(ask() for _ in range(12))) == ["completed"] * 12
    victim = min(pids)
    os.kill(victim, signal.SIGKILL)
    await become(place, 2, {victim})
    assert await ask() == "completed"
    assert f"worker {victim} has ended (exit code -9)" in place.log
    assert await place.stop() == 0
    assert await asyncio.to_thread(nodes, place) == {}
    assert "Traceback" not in place.log


async def test_sighup_replaces_one_worker_after_the_other_and_nobody_is_refused(
    place: Place,
) -> None:
    before = await become(place, 2)
    refused: list[str] = []
    over = asyncio.Event()

    async def keep_asking() -> None:
        while not over.is_set():
            try:
                async with httpx.AsyncClient(timeout=60) as client:
                    answer = await client.get(f"{place.url}/openapi.json")
                    assert answer.status_code == 200
            except httpx.TransportError as error:
                refused.append(repr(error))

    asking = asyncio.create_task(keep_asking())
    assert place.process is not None
    place.process.send_signal(signal.SIGHUP)
    await become(place, 2, before)
    over.set()
    await asking
    assert refused == []
    assert await place.stop() == 0


async def test_workers_end_when_their_parent_is_killed(place: Place) -> None:
    await become(place, 2)
    assert place.process is not None
    place.process.kill()
    await place.process.wait()
    await become(place, 0)


async def test_several_processes_on_a_file_are_refused_in_one_line(tmp_path: Path) -> None:
    place = Place(tmp_path, 0)
    done = await asyncio.to_thread(place.run, "server", "--workers", "2", "--port", "0")
    assert done.returncode == 2
    assert done.stderr == (
        "mail: --workers: several processes need a PostgreSQL database, which they can share; set "
        "DATABASE_URL to postgresql://…, or use one process\n"
    )
    done = await asyncio.to_thread(place.run, "nodes", "--store", "sqlite:///mail.db")
    assert done.returncode != 0
