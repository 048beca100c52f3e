"""Large stored responses cost their caller places, and other callers nothing."""

import asyncio
import json
import socket
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI

from mail.auth.callers import Caller
from mail.core.large import LARGE_AT_ONCE
from mail.core.tasks import TaskState
from mail.core.usage import Usage
from mail.db.memory import MemoryStore
from mail.db.records import MemoryRow, Owner
from mail.responses_api.output import ResponseEnding, ended_response, new_response
from mail.server.app import create_app
from tests.responses_api.support import Office
from tests.server.kit import bearer, config, serving

ALICE = Owner("test-swarm", "user", "alice")
NOW = "2026-01-01T00:00:00+00:00"
TEXT = 'said "è漢😀" \\ \x85\u2028\n'


async def seed(
    store: MemoryStore, response_id: str, size: int, status: TaskState = TaskState.COMPLETED
) -> dict[str, Any]:
    """Store a response as earlier versions did."""
    begun = new_response(response_id, "t", 1, "m", {"instructions": "x" * size, "store": True})
    ending = ResponseEnding(status=status, body=TEXT)
    response = ended_response(begun, ending, Usage.none(), 2)
    kept = {"response": response, "before": Usage.none().to_dict(), "began": 1}
    row = MemoryRow(("mail:responses",), response_id, json.dumps(kept), NOW, NOW)
    await store.put_memories(ALICE, [row])
    return response


async def test_requests_for_responses_wait_until_unread_ones_are_read(
    store: MemoryStore, office: Office
) -> None:
    await seed(store, "resp_large", 20_000_000)
    small = await seed(store, "resp_small", 10, TaskState.CANCELLED)
    app = create_app(config(max_requests=1), template=office.template, store=store)
    async with serving(app) as client:
        places = app.state.mail.quotas.places(Caller("user", "alice"))
        client.headers = httpx.Headers(bearer("alice"))
        headers = "".join(f"{name}: {value}\r\n" for name, value in bearer("alice").items())
        with ExitStack() as stalled:
            address = ("127.0.0.1", client.base_url.port)
            for _ in range(LARGE_AT_ONCE):
                reader = stalled.enter_context(socket.create_connection(address))
                line = "GET /v1/responses/resp_large HTTP/1.1\r\nHost: localhost\r\n"
                reader.sendall(f"{line}{headers}\r\n".encode())
                await asyncio.to_thread(reader.recv, 100)
            assert places.locked()
            path = "/v1/responses/resp_small"
            waiting = [
                asyncio.ensure_future(asked)
                for asked in (client.get(path), client.post(f"{path}/cancel"))
            ]
            async with asyncio.timeout(10):
                while len(places._waiters or ()) < len(waiting):
                    await asyncio.sleep(0.01)
            assert (await client.get("/whoami", headers=bearer("bob"))).status_code == 200
        for answer in await asyncio.gather(*waiting):
            assert answer.json() == small
        assert places._value == LARGE_AT_ONCE


async def test_few_responses_of_one_caller_are_read_at_a_time(
    openai: AsyncOpenAI,
    http: httpx.AsyncClient,
    store: MemoryStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = await openai.responses.create(model="m", input="hello")
    read, reading, most = store.get_memory, 0, 0

    async def slowly(owner: Owner, namespace: tuple[str, ...], key: str) -> MemoryRow | None:
        nonlocal reading, most
        reading += namespace == ("mail:responses",)
        most = max(most, reading)
        for _ in range(20):
            await asyncio.sleep(0)
        reading -= namespace == ("mail:responses",)
        return await read(owner, namespace, key)

    monkeypatch.setattr(store, "get_memory", slowly)
    path = f"/v1/responses/{done.id}"
    result = {"type": "function_call_output", "call_id": "of-nobody", "output": ""}
    asked = {"model": "m", "input": [result], "previous_response_id": done.id}
    headers = bearer("alice")
    answers = await asyncio.gather(
        *(http.get(path, headers=headers) for _ in range(4)),
        *(http.post(f"{path}/cancel", headers=headers) for _ in range(4)),
        *(http.post("/v1/responses", json=asked, headers=headers) for _ in range(4)),
        *(http.delete("/v1/responses/none", headers=headers) for _ in range(4)),
    )
    assert [answer.status_code for answer in answers] == [200] * 4 + [400] * 8 + [404] * 4
    assert most == LARGE_AT_ONCE


async def test_the_cancellation_of_a_large_response_with_a_key_can_be_repeated(
    openai: AsyncOpenAI, http: httpx.AsyncClient, office: Office
) -> None:
    made = await openai.responses.create(
        model="m", input="hang on", instructions="x" * 100_000, background=True
    )
    await office.desk.entered.wait()
    headers = bearer("alice") | {"Idempotency-Key": "k"}
    for _ in range(2):
        answer = await http.post(f"/v1/responses/{made.id}/cancel", headers=headers)
        assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")


async def test_a_response_of_an_earlier_version_is_read_and_continued(
    openai: AsyncOpenAI, http: httpx.AsyncClient, store: MemoryStore
) -> None:
    old = await seed(store, "resp_old", 100_000)
    answer = await http.get("/v1/responses/resp_old", headers=bearer("alice"))
    assert answer.json() == old
    made = await openai.responses.create(model="m", input="hello")
    row = await store.get_memory(ALICE, ("mail:responses",), made.id)
    assert row is not None
    kept = json.loads(row.value)  # as earlier versions read it
    assert (kept["response"], kept["before"]["calls"]) == (made.to_dict(), 0)
    older = json.dumps({"response": kept["response"], "before": kept["before"], "began": 1})
    await store.put_memories(ALICE, [row._replace(value=older)])
    more = await openai.responses.create(model="m", input="on", previous_response_id=made.id)
    assert more.to_dict()["task_id"] == made.to_dict()["task_id"]
