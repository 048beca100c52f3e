"""``kill -9`` while agents acknowledge and ignore a broadcast: the next server settles it."""

from contextlib import suppress

import httpx
import pytest

from tests.e2e.processes import Place
from tests.e2e.test_kill import completed

pytestmark = pytest.mark.e2e

TASK = "news"


async def settled(place: Place, kill: str) -> None:
    """Post a broadcast to a server that dies at a commit; see what the next one answers."""
    await place.start(kill)
    body = {"body": "news: we close at noon", "msg_type": "broadcast", "task_id": TASK}
    with suppress(httpx.TransportError):
        async with place.client() as client:
            await client.post("/message", json=body)
    await place.died()
    await place.start()
    await completed(place)
    async with place.client() as client:
        record = (await client.get(f"/tasks/{TASK}")).json()
    kinds = [event["event"] for event in record["events"]]
    assert kinds.count("task_complete") == 1 and "task_error" not in kinds
    [end] = [each["data"] for each in record["events"] if each["event"] == "task_complete"]
    assert "- lead: acknowledged\\n- north: acknowledged\\n- south: ignored" in end
    assert "private" not in str(record)


@pytest.mark.parametrize("kill", ["after turn lead", "after turn north", "before turn south"])
async def test_a_broadcast_settles_after_a_kill(place: Place, kill: str) -> None:
    await settled(place, kill)


async def test_a_broadcast_settles_after_a_kill_with_postgresql(postgres_place: Place) -> None:
    await settled(postgres_place, "after turn north")
