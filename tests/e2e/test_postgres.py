"""A server whose state is in PostgreSQL is restarted. (test_outage.py takes the database away.)"""

from typing import Any

import httpx
import pytest

from tests.e2e.processes import Place
from tests.e2e.script import WORKERS
from tests.e2e.test_pauses import ANSWER, HEARD, RESULTS, TASK, calls_of, resume
from tests.support.postgres import PASSWORD, query

pytestmark = pytest.mark.e2e

KEPT = (
    *("tasks", "task_events", "task_responses", "agent_histories"),
    *("messages", "history_entries", "calls", "memories", "tokens"),
)


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


def stored(place: Place) -> dict[str, list[str]]:
    """Return every row of every table as text, but for what each server notes of itself."""
    names = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
    own = ("writers", "sweeps", "nodes", "duties")
    tables = [name for (name,) in query(place.dsn, names) if name not in own]
    return {
        name: sorted(text for (text,) in query(place.dsn, f"SELECT t::text FROM {name} AS t"))  # noqa: S608
        for name in tables
    }


def paused(task: dict[str, Any]) -> bool:
    return not task["completed"]


async def test_a_restart_changes_nothing_that_can_be_seen(postgres_place: Place) -> None:
    place = postgres_place
    await place.start(debug=True)
    async with place.client() as client:
        made = await client.post("/v1/responses", json={"input": "count the oaks"})
        response = f"/v1/responses/{made.json()['id']}"
        done = await client.post("/message", json={"body": "count the elms", "task_id": "elms"})
        body = {"body": "ask the neighbours", "task_id": TASK}
        calls = calls_of((await client.post("/message", json=body)).json())
        before = await seen(client), (await client.get(response)).content
    histories = {name: place.evidence.history(TASK, name) for name in ("lead", *WORKERS)}
    snapshots = "SELECT task_id, agent_name, history FROM agent_histories ORDER BY 1, 2"
    kept = query(place.dsn, snapshots)
    await place.stop()
    rows = stored(place)
    assert all(rows[table] for table in KEPT)
    await place.start(debug=True)
    assert stored(place) == rows
    async with place.client() as client:
        assert (await seen(client), (await client.get(response)).content) == before
        assert query(place.dsn, snapshots) == kept and len(kept) == 9
        assert {name: place.evidence.history(TASK, name) for name in histories} == histories
        again = await client.post("/message", json={"body": "count the elms", "task_id": "elms"})
        assert again.status_code == 200 and again.json()["task_id"] == "elms"
    for worker in WORKERS:
        whole = await resume(place, calls[worker], RESULTS[worker])
    assert (whole.status_code, whole.json()["response"]) == (200, ANSWER)
    assert all(heard in ANSWER for heard in HEARD.values())
    assert "1 lines" in done.json()["response"]
    assert PASSWORD not in place.log and "Traceback" not in place.log
