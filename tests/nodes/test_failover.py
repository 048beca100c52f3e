"""A server is killed in the middle of a run: its stream and its answer go on at another one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.e2e.script import WORKERS
from tests.e2e.test_idempotency import post, stream
from tests.e2e.test_kill import ANSWER, Reader, held
from tests.e2e.test_pauses import JOB, calls_of
from tests.nodes.kit import Servers, servers_of
from tests.support.postgres import Cluster
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


@pytest.fixture
async def servers(tmp_path: Path, cluster: Cluster) -> AsyncIterator[Servers]:
    """Two servers at work."""
    async with servers_of(tmp_path, cluster.schema(), 2) as made:
        for place in made.places:
            await place.start()
        yield made


async def test_a_stream_goes_on_at_another_server_with_nothing_missing_or_twice(
    servers: Servers,
) -> None:
    first, second = servers.places
    reader, watcher = Reader(), Reader()
    first.close_gate("model-north")
    posting = asyncio.create_task(stream(first, reader))
    await held(first, "model-north")
    [task_id] = servers.evidence.tasks()
    await first.kill()
    with suppress(httpx.TransportError):
        await posting
    assert reader.ids and "task_complete" not in reader.kinds
    first.open_gate("model-north")

    async def watch() -> None:
        path = f"/tasks/{task_id}/events"
        async with second.client() as client, client.stream("GET", path) as answer:
            await watcher.read(answer)

    await asyncio.gather(stream(second, reader), watch())
    reader.check_whole()
    assert (watcher.ids, watcher.kinds) == (reader.ids, reader.kinds)
    whole = Reader()
    await stream(second, whole)
    assert (whole.ids, whole.kinds) == (reader.ids, reader.kinds)
    servers.evidence.check_log(task_id)


async def test_a_post_that_a_kill_cut_off_gets_its_answer_at_another_server(
    servers: Servers,
) -> None:
    first, second = servers.places
    first.close_gate("model-north")
    posting = asyncio.create_task(post(first))
    await held(first, "model-north")
    repeated = asyncio.create_task(post(second))  # while the first one works
    await first.kill()
    with pytest.raises(httpx.TransportError):
        await posting
    first.open_gate("model-north")
    answer = await repeated
    assert (answer.status_code, answer.json()["response"]) == (200, ANSWER)
    [task_id] = servers.evidence.tasks()
    servers.evidence.check_log(task_id)


async def test_a_task_some_of_whose_agents_wait_for_a_person_stays_where_it_is(
    servers: Servers,
) -> None:
    first, second = servers.places
    first.close_gate("model-south")
    async with first.client() as client:
        posting = asyncio.create_task(client.post("/message", json={"body": JOB}))
        asked = "SELECT agent FROM calls"
        await until(lambda: servers.evidence.rows(asked) == [("north",)])
        await asyncio.sleep(2.5)  # the others look for tasks of nobody once a second
        first.open_gate("model-south")
        answer = (await posting).json()
    assert calls_of(answer).keys() == set(WORKERS)
    assert servers.evidence.repeats() == 0
    assert "another server" not in first.log + second.log
