"""A stream through cut connections and a killed server brings what an uncut reader sees."""

import asyncio

import pytest

from mail.client import MAILClient
from mail.client.stream import EventStream, Reconnect
from mail.net.sse import SSEParser
from tests.e2e.processes import TOKENS, Place
from tests.e2e.test_kill import JOB, TASK, completed, held
from tests.support.cutting import cutting_proxy

pytestmark = pytest.mark.e2e

PATIENT = Reconnect(tries=1000, first_wait=0.02, longest_wait=0.05)
Event = tuple[str | None, str | None, str | None]


async def collected(stream: EventStream) -> list[Event]:
    """Return a stream's events but heartbeats."""
    return [(e.id, e.event, str(e.data)) async for e in stream if e.event != "ping"]


async def test_cuts_and_a_kill_lose_and_repeat_nothing(place: Place) -> None:
    place.close_gate("model-north")
    await place.start()
    cuts = [(2, -1), 900, (1, -2), 1500, (1, 1), 700, (1, 0), 2000, (2, -3), (1, -1)]
    async with (
        cutting_proxy(place.port, cuts) as proxy,
        MAILClient(f"http://127.0.0.1:{proxy.port}", TOKENS["alice"][1]) as client,
    ):
        client.reconnect = PATIENT
        posted = await client.post_message_stream(JOB, task_id=TASK)
        reading = [asyncio.create_task(collected(posted))]
        await held(place, "model-north")
        watched = await client.get_task_events(TASK)
        reading.append(asyncio.create_task(collected(watched)))
        await place.kill()
        await place.start()
        place.open_gate("model-north")
        await completed(place)
        seen = await asyncio.gather(*reading)
    whole = await uncut(place)
    assert seen == [whole, whole]
    assert [event[0] for event in whole] == [str(n) for n in range(1, len(whole) + 1)]
    assert whole[-1][1] == "task_complete"
    assert proxy.made == len(cuts)


async def uncut(place: Place) -> list[Event]:
    """Return the finished task's events as a reader gets them whom nobody cuts."""
    async with place.client() as client:
        answer = await client.get(f"/tasks/{TASK}/events")
    parsed = SSEParser().feed(answer.content)
    return [(event.id, event.event, event.data) for event in parsed]
