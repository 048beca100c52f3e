"""A server with 50 tasks under way moves from SQLite to three on PostgreSQL; all end well."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from tests.e2e.processes import ROOT, Place
from tests.e2e.script import WORKERS
from tests.nodes.kit import Servers
from tests.support.postgres import query

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

JOBS = [f"count the firs {number}" for number in range(50)]
ASKED = {"Prefer": "respond-async"}
NOTED = "SELECT name FROM schema_version WHERE version = -1"


def mail(folder: Path, *words: str) -> "subprocess.Popen[str]":
    """Begin a command."""
    return subprocess.Popen(
        [sys.executable, "-m", "mail.cli", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


async def done(process: "subprocess.Popen[str]") -> str:
    """Wait for a command that succeeds; return what it printed."""
    out, err = await asyncio.to_thread(process.communicate, timeout=120)
    assert process.returncode == 0, err
    return out


async def post(client: httpx.AsyncClient, job: str) -> None:
    answer = await client.post("/message", json={"body": job, "task_id": job}, headers=ASKED)
    assert answer.status_code == 202, answer.text


async def begin(place: Place) -> None:
    """Start the server and have it take all jobs, until one worker of each is asked by a model."""
    for worker in WORKERS:
        place.close_gate(f"model-{worker}")
    await place.start()
    async with place.client() as client:
        await asyncio.gather(*(post(client, job) for job in JOBS))
    place.open_gate("model-north")
    async with asyncio.timeout(90):
        while sum(name == "note_north" for name, _ in place.evidence.runs().elements()) < len(JOBS):
            await asyncio.sleep(0.05)
        while place.evidence.waiting() != ["south"] * len(JOBS):
            await asyncio.sleep(0.05)


async def export(place: Place) -> set[str]:
    """Export amid the commits of others; return the tasks that were over before."""
    over, enough = [], asyncio.Event()

    async def keep_asking(client: httpx.AsyncClient) -> None:
        while not enough.is_set():
            job = f"stop {len(over)}"
            answer = await client.post("/message", json={"body": job, "task_id": job})
            assert answer.json()["response"] == "stopped"
            over.append(job)

    async with place.client("bob") as client:
        asking = asyncio.create_task(keep_asking(client))
        while len(over) < 5:
            assert not asking.done(), asking
            await asyncio.sleep(0.01)
        before, store = set(over), f"sqlite:///{place.folder / 'mail.db'}"
        printed = await done(mail(place.folder, "db", "export", "moved.jsonl", "--store", store))
        enough.set()
        await asking
    assert printed.startswith("moved.jsonl: ")
    return before


async def cut_off(place: Place, dsn: str) -> None:
    """Kill an import that waits for a lock, with some of the rows there."""
    await done(mail(place.folder, "db-init", "--store", dsn))
    connection = await asyncpg.connect(dsn)
    try:
        async with connection.transaction():
            await connection.execute("LOCK TABLE history_entries IN EXCLUSIVE MODE")
            process = mail(place.folder, "db", "import", "moved.jsonl", "--store", dsn)
            async with asyncio.timeout(60):
                waits = "SELECT count(*) FROM pg_locks WHERE NOT granted"
                while not await connection.fetchval(waits):
                    assert process.poll() is None, process.communicate()
                    await asyncio.sleep(0.02)
            process.send_signal(signal.SIGKILL)
            await asyncio.to_thread(process.communicate)
    finally:
        await connection.close()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


async def test_all_tasks_end_with_their_answers(place: Place, dsn: str, stack: ExitStack) -> None:
    await begin(place)
    over = await export(place)
    await place.kill()
    await cut_off(place, dsn)
    [(noted,)] = query(dsn, NOTED)
    assert int(noted.partition(" ")[2]) > len(JOBS)
    refused = await asyncio.to_thread(
        mail(place.folder, "tasks", "list", "--store", dsn).communicate
    )
    assert "holds part of an import" in refused[1]
    printed = await done(mail(place.folder, "db", "import", "moved.jsonl", "--store", dsn))
    assert printed.endswith(" rows imported and checked\n")
    assert query(dsn, NOTED) == []
    (place.folder / "mail.db").unlink()
    place.dsn = place.store_url = place.evidence.dsn = dsn
    servers = Servers(place, 3)
    stack.callback(lambda: [each.clean_up() for each in servers.places])
    await asyncio.gather(*(each.start() for each in servers.places))
    place.open_gate("model-south")
    async with asyncio.timeout(120):
        while place.evidence.open_tasks():
            await asyncio.sleep(0.1)
    for job in JOBS:
        place.evidence.check_log(job)
        answer = f"{job}: north has 1 lines; south has 1 lines"
        assert place.evidence.events(job)[-1][2]["response"] == answer
    for tree, each in zip(("elms", "oaks", "pines"), servers.places, strict=True):
        async with each.client() as client:
            await check_new_task(client, f"count the {tree}")
            assert len((await client.get("/tasks")).json()) > len(JOBS)
    async with place.client("bob") as client:
        tasks = (await client.get("/tasks")).json()
        assert over <= tasks.keys() and all(tasks[name]["completed"] for name in over)
    runs: Any = place.evidence.runs()
    assert all(runs[(f"note_{worker}", job)] == 1 for worker in WORKERS for job in JOBS)
    assert not any("Traceback" in each.log for each in servers.places)


async def check_new_task(client: httpx.AsyncClient, job: str) -> None:
    """Numbers go on: what is new collides with nothing."""
    made = await client.post("/message", json={"body": job, "task_id": job})
    assert made.json()["response"] == f"{job}: north has 1 lines; south has 1 lines"
