"""``kill -9`` under a request with an ``Idempotency-Key``: its repeat finds the run it began."""

import asyncio
from contextlib import suppress

import httpx
import pytest

from tests.e2e.processes import Place
from tests.e2e.test_kill import ANSWER, JOB, STEPS, Reader, held

pytestmark = pytest.mark.e2e

KEY = {"Idempotency-Key": "birches-1"}


async def post(place: Place) -> httpx.Response:
    """Post the job under its key; the server names the task."""
    async with place.client() as client:
        return await client.post("/message", json={"body": JOB}, headers=KEY)


async def stream(place: Place, reader: Reader) -> None:
    """Post the job as a stream, behind what the reader has seen."""
    seen = {"Last-Event-ID": str(reader.ids[-1])} if reader.ids else {}
    body = {"body": JOB, "stream": True}
    async with (
        place.client() as client,
        client.stream("POST", "/message", json=body, headers=KEY | seen) as answer,
    ):
        await reader.read(answer)


AT = [("sqlite", kill) for kill in ("before accept", "after accept", "after end")]


@pytest.mark.parametrize(
    ("database", "kill"), [*AT, ("postgresql", "after accept")], indirect=["database"]
)
async def test_a_repeat_after_a_kill_has_the_answer_of_the_one_run(
    either_place: Place, kill: str
) -> None:
    place = either_place
    await place.start(kill, limit=STEPS)
    with pytest.raises(httpx.TransportError):
        await post(place)
    await place.died()
    await place.evidence.note_kill()
    await place.start(limit=STEPS)
    answers = [*await asyncio.gather(*(post(place) for _ in range(5))), await post(place)]
    assert [answer.status_code for answer in answers] == [200] * len(answers)
    assert answers[0].json()["response"] == ANSWER
    assert len({answer.content for answer in answers}) == 1
    fresh = [answer for answer in answers if "idempotency-replayed" not in answer.headers]
    assert len(fresh) == (1 if kill == "before accept" else 0)
    [task_id] = place.evidence.tasks()
    assert answers[0].json()["task_id"] == task_id
    place.evidence.check_log(task_id)
    place.evidence.check_calls()
    assert len(place.evidence.requests()) == STEPS
    other = {"body": "count the oaks"}
    async with place.client() as client:
        assert (await client.post("/message", json=other, headers=KEY)).status_code == 409


async def test_a_repeated_stream_goes_on_where_the_kill_broke_it(place: Place) -> None:
    reader = Reader()
    place.close_gate("model-north")
    await place.start("after turn north", limit=STEPS)
    posting = asyncio.create_task(stream(place, reader))
    await held(place, "model-north")
    place.open_gate("model-north")
    await place.died()
    with suppress(httpx.TransportError):
        await posting
    await place.evidence.note_kill()
    assert "task_complete" not in reader.kinds
    await place.start(limit=STEPS)
    await stream(place, reader)
    reader.check_whole()
    whole = Reader()
    await stream(place, whole)
    assert (whole.ids, whole.kinds) == (reader.ids, reader.kinds)
    [task_id] = place.evidence.tasks()
    place.evidence.check_log(task_id)
    place.evidence.check_calls()
