"""Several servers on one PostgreSQL database, killed at random: each task is done once."""

import asyncio
import itertools
import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.evidence import report
from tests.e2e.processes import bearer
from tests.e2e.script import WORKERS
from tests.nodes.kit import Servers, servers_of
from tests.support.postgres import Cluster

KILLS = int(os.environ.get("NODES_KILLS", "6"))
NODES = int(os.environ.get("NODES", "3"))
CLIENTS = int(os.environ.get("NODES_CLIENTS", "4"))
FREEZES = float(os.environ.get("NODES_FREEZES", "0.3"))
SEED = int(os.environ.get("NODES_SEED") or time.time_ns() % 1_000_000)
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120 + 40 * KILLS)]


class Customer:
    """Posts one task after the other, to one server after the other."""

    def __init__(self, servers: Servers, name: str) -> None:
        self._servers, self._name = servers, name
        self.stopping = False
        self.accepted: list[str] = []
        self.answers: list[tuple[int, str]] = []

    async def work(self) -> None:
        async with httpx.AsyncClient(headers=bearer("alice"), timeout=60) as client:
            for number in itertools.count():
                if self.stopping:
                    return
                await self._order(client, f"{self._name} {number}")

    async def _order(self, client: httpx.AsyncClient, job: str) -> None:
        body = {"body": job, "task_id": job}
        while True:
            with suppress(httpx.TransportError):
                key = {"Idempotency-Key": job.replace(" ", "-")}
                answer = await client.post(f"{self._servers.url()}/message", json=body, headers=key)
                if answer.status_code == 200:
                    self.accepted.append(job)
                    return
                self.answers.append((answer.status_code, answer.text[:200]))
                assert answer.status_code in (409, 503), answer.text
            await asyncio.sleep(0.05)


async def test_every_accepted_task_is_completed_exactly_once(
    tmp_path: Path, cluster: Cluster
) -> None:
    report(f"NODES_SEED={SEED}")
    chance = random.Random(SEED)
    async with servers_of(tmp_path, cluster.schema(), NODES) as servers:
        await run(servers, chance)


async def run(servers: Servers, chance: random.Random) -> None:
    begun = time.monotonic()
    for place in servers.places:
        await place.start(pause=0.1)
    customers = [Customer(servers, f"client {number}") for number in range(CLIENTS)]
    async with asyncio.TaskGroup() as group:
        for customer in customers:
            group.create_task(customer.work())
        for _ in range(KILLS):
            enough = len(servers.evidence.ends()) + chance.randint(8, 40)
            while len(servers.evidence.ends()) < enough:
                await asyncio.sleep(0.02)
            place = chance.choice(servers.places)
            if chance.random() < FREEZES:
                assert place.process is not None and place.process.pid is not None
                os.kill(place.process.pid, signal.SIGSTOP)
                await asyncio.sleep(9)
                os.kill(place.process.pid, signal.SIGCONT)
            else:
                await place.kill()
                await servers.evidence.note_kill()
                await asyncio.sleep(chance.uniform(0, 8))
                await place.start(pause=0.1)
        for customer in customers:
            customer.stopping = True
    async with asyncio.timeout(60):
        while servers.evidence.open_tasks():
            await asyncio.sleep(0.05)
    jobs = [job for customer in customers for job in customer.accepted]
    check(servers, jobs)
    refused = Counter(status for customer in customers for status, _ in customer.answers)
    report(
        f"{len(jobs)} tasks, {len(servers.evidence.requests())} model calls, repeats "
        f"{servers.evidence.repeats()}, refused {dict(refused)}, {time.monotonic() - begun:.1f} s"
    )


def check(servers: Servers, jobs: list[str]) -> None:
    evidence: Any = servers.evidence
    runs = evidence.runs()
    assert len(jobs) == len(set(jobs)) >= CLIENTS
    for job in jobs:
        evidence.check_log(job)
        events = evidence.events(job)
        assert events[-1][2]["response"] == f"{job}: north has 1 lines; south has 1 lines"
        senders = Counter(
            data["full_message"]["message"]["sender"]["address_type"]
            for _, kind, data in events
            if kind == "new_message"
        )
        assert senders["user"] == 1
        assert [runs[(f"note_{worker}", job)] <= 1 for worker in WORKERS] == [True, True]
    assert evidence.tasks() == sorted(jobs)
    for place in servers.places:
        assert "Traceback" not in place.log, place.log[-4000:]
