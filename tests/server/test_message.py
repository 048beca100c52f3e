"""``POST /message`` whose answer has much to tell: all events of a task with long texts."""

import httpx

from mail.db.base import Owner
from mail.db.memory import MemoryStore
from tests.server.kit import bearer

ALICE = Owner("test-swarm", "user", "alice")
BODY = 'a"\\\n\u2028é漢<&>' * 20_000


async def test_a_large_answer_with_its_events_is_whole_and_so_is_its_repeat(
    client: httpx.AsyncClient, store: MemoryStore
) -> None:
    body = {"body": BODY, "task_id": "t", "show_events": True}
    headers = bearer("alice") | {"Idempotency-Key": "k-1"}
    first = await client.post("/message", json=body, headers=headers)
    assert "content-length" not in first.headers
    logged = [event.to_record() for event in await store.events(ALICE, "t")]
    assert first.json()["events"] == logged
    assert first.json()["response"] == logged[-1]["data"]["response"]
    await client.post("/message", json=body | {"body": "more"}, headers=bearer("alice"))
    again = await client.post("/message", json=body, headers=headers)
    assert again.headers["idempotency-replayed"] == "true"
    assert again.content == first.content


async def test_a_small_answer_says_how_long_it_is(client: httpx.AsyncClient) -> None:
    body = {"body": "Hello", "task_id": "t", "show_events": True}
    answer = await client.post("/message", json=body, headers=bearer("alice"))
    for found in (answer, await client.get("/tasks", headers=bearer("alice"))):
        assert int(found.headers["content-length"]) == len(found.content)
        assert found.headers["content-type"] == "application/json"
        assert found.headers["cache-control"] == "no-store"
