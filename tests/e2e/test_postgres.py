"""A server whose state is in PostgreSQL: restarted, and robbed of its database for a while."""

import asyncio
import itertools
import time
from typing import Any

import httpx
import pytest

from tests.e2e.evidence import report
from tests.e2e.processes import Place
from tests.e2e.script import WORKERS
from tests.e2e.test_pauses import ANSWER, HEARD, RESULTS, TASK, calls_of, resume
from tests.support.postgres import PASSWORD, Cluster, query

pytestmark = pytest.mark.e2e

DOWN = 3.0
"""Seconds without a database: longer than the store's own retries last."""


async def seen(client: httpx.AsyncClient) -> dict[str, Any]:
    """Return all that a caller can see of its tasks."""
    tasks = (await client.get("/tasks")).json()
    return {
        task_id: [
            (await client.get("/task", params={"task_id": task_id})).json(),
            (await client.get(f"/tasks/{task_id}/events")).text if not paused(task) else "",
        ]
        for task_id, task in tasks.items()
    }


def paused(task: dict[str, Any]) -> bool:
    return not task["completed"]


async def test_a_restart_changes_nothing_that_can_be_seen(postgres_place: Place) -> None:
    place = postgres_place
    await place.start()
    async with place.client() as client:
        done = await client.post("/message", json={"body": "count the elms", "task_id": "elms"})
        body = {"body": "ask the neighbours", "task_id": TASK}
        calls = calls_of((await client.post("/message", json=body)).json())
        before = await seen(client)
    histories = {name: place.evidence.history(TASK, name) for name in ("lead", *WORKERS)}
    snapshots = "SELECT task_id, agent_name, history FROM agent_histories ORDER BY 1, 2"
    kept = query(place.dsn, snapshots)
    await place.stop()
    await place.start()
    async with place.client() as client:
        assert await seen(client) == before
        assert query(place.dsn, snapshots) == kept and len(kept) == 6
        assert {name: place.evidence.history(TASK, name) for name in histories} == histories
        again = await client.post("/message", json={"body": "count the elms", "task_id": "elms"})
        assert again.status_code == 200 and again.json()["task_id"] == "elms"
    for worker in WORKERS:
        whole = await resume(place, calls[worker], RESULTS[worker])
    assert (whole.status_code, whole.json()["response"]) == (200, ANSWER)
    assert all(heard in ANSWER for heard in HEARD.values())
    assert "1 lines" in done.json()["response"]
    assert PASSWORD not in place.log and "Traceback" not in place.log


class Customer:
    """Posts one task after the other and keeps what it was told."""

    def __init__(self, place: Place, name: str) -> None:
        self._place = place
        self._name = name
        self.stopping = False
        self.answers: list[tuple[str, httpx.Response]] = []

    async def work(self) -> None:
        async with self._place.client() as client:
            for number in itertools.count():
                if self.stopping:
                    return
                job = f"{self._name} {number}"
                answer = await client.post("/message", json={"body": job, "task_id": job})
                self.answers.append((job, answer))
                if answer.status_code == 503:
                    await asyncio.sleep(0.1)


async def test_without_a_database_nothing_is_accepted_and_all_of_it_recovers(
    postgres_place: Place, cluster: Cluster
) -> None:
    place = postgres_place
    await place.start()
    customers = [Customer(place, name) for name in ("ada", "ben", "cleo", "dora")]
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        for customer in customers:
            group.create_task(customer.work())
        while not all(customer.answers for customer in customers):
            await asyncio.sleep(0.02)
        await asyncio.to_thread(cluster.stop)
        # The others may all wait in the middle of a COMMIT, and then get their 200 late.
        customers.append(Customer(place, "late"))
        group.create_task(customers[-1].work())
        await asyncio.sleep(DOWN)
        async with place.client() as client:
            health = (await client.get("/health")).json()["status"]
        await asyncio.to_thread(cluster.start)
        back = time.monotonic()
        while any(not each.answers or each.answers[-1][1].status_code == 503 for each in customers):
            await asyncio.sleep(0.02)
        recovered = time.monotonic() - back
        for customer in customers:
            customer.stopping = True
    assert health == "degraded"
    check_answers(place, [answer for customer in customers for answer in customer.answers])
    async with place.client() as client:
        assert (await client.get("/health")).json()["status"] == "healthy"
    assert PASSWORD not in place.log
    # The driver's pool tells of its own attempts; nothing of ours fails unforeseen.
    assert place.log.count("Traceback") == place.log.count("Failed to restore the pool connection")
    report(f"down {DOWN} s, recovered after {recovered:.1f} s")


def check_answers(place: Place, answers: list[tuple[str, httpx.Response]]) -> None:
    """Check that what was answered with 200 is there and whole, and nothing else."""
    accepted = {job for job, answer in answers if answer.status_code == 200}
    turned_away = [(job, answer) for job, answer in answers if answer.status_code != 200]
    assert accepted and turned_away
    for job, answer in turned_away:
        assert answer.status_code == 503, answer.text
        assert int(answer.headers["Retry-After"]) > 0
        assert job not in accepted
    assert set(place.evidence.tasks()) == accepted
    runs = place.evidence.runs()
    for job, answer in answers:
        if answer.status_code == 200:
            expected = "; ".join(f"{worker} has 1 lines" for worker in WORKERS)
            assert answer.json()["response"] == f"{job}: {expected}"
            assert [runs[(f"note_{worker}", job)] for worker in WORKERS] == [1, 1]
            place.evidence.check_log(job)
