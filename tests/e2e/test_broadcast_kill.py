"""``kill -9`` while agents acknowledge and ignore a broadcast: the next server settles it."""

from contextlib import suppress

import httpx
import pytest

from tests.e2e.processes import Place
from tests.e2e.test_kill import completed

pytestmark = pytest.mark.e2e

TASK = "news"


AT = [("sqlite", kill) for kill in ("after turn lead", "after turn north", "before turn south")]


@pytest.mark.parametrize(
    ("database", "kill"), [*AT, ("postgresql", "after turn north")], indirect=["database"]
)
async def test_a_broadcast_settles_after_a_kill(either_place: Place, kill: str) -> None:
    place = either_place
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
