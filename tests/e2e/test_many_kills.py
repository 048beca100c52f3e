"""Kills at random moments while clients keep posting: nothing accepted is lost or done twice.

``E2E_KILLS`` and ``E2E_CLIENTS`` in the environment say how many; `make soak` takes more of both.
"""

import asyncio
import itertools
import os
import random
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.evidence import report
from tests.e2e.processes import Place, place_of
from tests.e2e.teams import SCRIPT, TEMPLATE, Team, answer, at_work, draw, workers

KILLS = int(os.environ.get("E2E_KILLS", "8"))
CLIENTS = int(os.environ.get("E2E_CLIENTS", "3"))
CUSTOMERS = tuple(f"client {number}" for number in range(CLIENTS))

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120 + 20 * KILLS)]
SEED = int(os.environ.get("E2E_SEED") or time.time_ns() % 1_000_000)


class Customer:
    """A client that posts one task after the other, each under a fixed id until it is accepted."""

    def __init__(self, place: Place, name: str) -> None:
        self._place = place
        self._name = name
        self.stopping = False
        self.accepted: list[str] = []

    async def work(self) -> None:
        """Post tasks until told to stop."""
        async with self._place.client() as client:
            for number in itertools.count():
                if self.stopping:
                    return
                await self._order(client, f"{self._name} {number}")

    async def _order(self, client: httpx.AsyncClient, job: str) -> None:
        """Post until a 2xx; whether a post without an answer was accepted, the server knows.

        A stream that breaks is followed to the end of the task.
        """
        body = {"body": job, "task_id": job, "stream": True}
        while job not in self.accepted:
            with suppress(httpx.TransportError):
                async with client.stream("POST", "/message", json=body) as answer:
                    assert answer.status_code == 200
                    self.accepted.append(job)
                    await answer.aread()
                    return
            if job not in self.accepted and await self._task(client, job) is not None:
                self.accepted.append(job)
        while (task := await self._task(client, job)) is None or task["is_running"]:
            await asyncio.sleep(0.1)

    async def _task(self, client: httpx.AsyncClient, job: str) -> dict[str, Any] | None:
        """Return what a server says of a task, as soon as there is one."""
        while True:
            try:
                answer = await client.get("/task", params={"task_id": job})
            except httpx.TransportError:
                await asyncio.sleep(0.02)
                continue
            assert answer.status_code in (200, 404)
            return answer.json() if answer.status_code == 200 else None


async def kill_again_and_again(place: Place) -> list[float]:
    """Kill and restart the server; return how long each restart took.

    Every fourth process lives until all tasks that it has taken up have ended, the others for some
    model calls: mail that sees five processes die is put aside (MAIL-SURE-4).
    """
    chance = random.Random(SEED)
    starts = []
    for number in range(KILLS):
        taken_up = place.evidence.open_tasks() if number % 4 == 0 else set()
        enough = len(place.evidence.ends()) + chance.randint(8, 40)
        while len(place.evidence.ends()) < enough or taken_up & place.evidence.open_tasks():
            await asyncio.sleep(0.02)
        await asyncio.sleep(chance.uniform(0.0, 0.1))
        await place.kill()
        await place.evidence.note_kill()
        begun = time.monotonic()
        await place.start(template=TEMPLATE)
        starts.append(time.monotonic() - begun)
    return starts


async def test_every_accepted_task_is_completed_exactly_once(tmp_path: Path) -> None:
    team = draw(tmp_path, SEED)
    report(f"E2E_SEED={SEED}, who works for whom: {team}")
    async with place_of(tmp_path, script=SCRIPT) as place:
        await run(place, team)


async def run(place: Place, team: Team) -> None:
    begun = time.monotonic()
    await place.start(template=TEMPLATE)
    customers = [Customer(place, name) for name in CUSTOMERS]
    async with asyncio.TaskGroup() as group:
        for customer in customers:
            group.create_task(customer.work())
        starts = await kill_again_and_again(place)
        for customer in customers:
            customer.stopping = True
    async with asyncio.timeout(60):
        while place.evidence.open_tasks():
            await asyncio.sleep(0.05)
    jobs = [job for customer in customers for job in customer.accepted]
    with place.evidence.at_rest():
        check(place, jobs, team)
        unknowns = unknown(place, jobs, team)
    kills = place.evidence.kills
    report(
        f"{len(kills)} kills, {len(jobs)} tasks, {len(place.evidence.requests())} model calls, "
        f"in flight {sum(len(kill.lost) for kill in kills)}, repeats {place.evidence.repeats()}, "
        f"unknown outcomes {unknowns}, slowest restart {max(starts):.2f} s, "
        f"all in {time.monotonic() - begun:.1f} s"
    )


def unknown(place: Place, jobs: list[str], team: Team) -> int:
    """Return how many agents were told that an action's outcome is unknown."""
    return sum(
        "outcome is unknown" in str(place.evidence.history(job, worker))
        for job in jobs
        for worker in workers(team)
    )


def check(place: Place, jobs: list[str], team: Team) -> None:
    """Check every task's log and answer, every action, every model call."""
    assert len(jobs) >= len(CUSTOMERS)
    assert len(jobs) == len(set(jobs))
    runs = place.evidence.runs()
    for job in jobs:
        place.evidence.check_log(job, agents=at_work(team, job))
        events = place.evidence.events(job)
        assert events[-1][2]["response"] == answer(team, job)
        senders = Counter(
            data["full_message"]["message"]["sender"]["address_type"]
            for _, kind, data in events
            if kind == "new_message"
        )
        assert senders["user"] == 1
        noting = [worker for worker in workers(team) for _ in range(runs[(f"note_{worker}", job)])]
        assert sorted(noting) == sorted(set(at_work(team, job)).intersection(workers(team)))
    assert place.evidence.tasks() == sorted(jobs)
    place.evidence.check_calls()
    assert "Traceback" not in place.log
