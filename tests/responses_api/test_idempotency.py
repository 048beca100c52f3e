"""``Idempotency-Key`` on ``/responses``: a repeat finds the same response, whatever its form."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI, ConflictError

from mail.db.memory import MemoryStore
from mail.db.sqlite.driver import SQLiteStore
from mail.errors import StoreError
from mail.responses_api.records import Records
from mail.server.app import create_app
from tests.responses_api.conftest import add_tokens
from tests.responses_api.support import DEBUG, WEATHER, Office
from tests.server.kit import bearer, frames, serving

REPLAYED = "idempotency-replayed"


async def ask(http: httpx.AsyncClient, text: str, key: str = "k-1", **more: Any) -> httpx.Response:
    """Ask the swarm with a key."""
    headers = bearer("alice") | {"Idempotency-Key": key}
    return await http.post("/v1/responses", json={"input": text} | more, headers=headers)


def same(first: httpx.Response, second: httpx.Response) -> bool:
    """Tell whether a repeat has the first answer, to the byte, and says that it is a repeat."""
    return (
        first.status_code == second.status_code
        and first.content == second.content
        and REPLAYED not in first.headers
        and second.headers[REPLAYED] == "true"
    )


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"store": False},
        {"stream": True},
        {"stream": True, "store": False},
        {"instructions": "Be brief.", "metadata": {"a": "b"}, "model": "mine"},
        {"tools": [WEATHER], "input": "The weather in Oslo and Rome?"},
        {"input": "ask the clerk"},
        {"input": "fail"},
        {"input": "fail", "stream": True},
    ],
    ids=str,
)
async def test_a_repeat_has_the_first_response(
    http: httpx.AsyncClient, office: Office, asked: dict[str, Any]
) -> None:
    first = await ask(http, "hello", **asked)
    calls = len(office.model.requests)
    assert calls
    assert all([same(first, await ask(http, "hello", **asked)) for _ in range(2)])
    assert len(office.model.requests) == calls


async def test_a_stream_is_told_from_its_beginning(http: httpx.AsyncClient) -> None:
    first, second = [await ask(http, "hello", stream=True) for _ in range(2)]
    told = [frame for frame in frames(second.text.replace("\n", "\r\n")) if "event" in frame]
    assert told[0]["event"] == "response.created"
    assert told[-1]["event"] == "response.completed"
    assert first.content == second.content


async def test_a_response_in_the_background_is_begun_once(
    http: httpx.AsyncClient, office: Office
) -> None:
    first = await ask(http, "hang", background=True)
    assert first.json()["status"] == "in_progress"
    assert same(first, await ask(http, "hang", background=True))
    office.desk.gate.set()
    url = f"/v1/responses/{first.json()['id']}"
    while (await http.get(url, headers=bearer("alice"))).json()["status"] == "in_progress":
        await asyncio.sleep(0.005)
    assert same(first, await ask(http, "hang", background=True))
    assert len(office.model.requests) == 1


async def test_many_at_once_make_one_response(http: httpx.AsyncClient, office: Office) -> None:
    answers = await asyncio.gather(*(ask(http, "hello") for _ in range(9)))
    assert len({answer.content for answer in answers}) == 1
    assert answers[0].status_code == 200
    assert len(office.model.requests) == 1


async def test_a_repeat_is_not_planned_again(http: httpx.AsyncClient) -> None:
    """The conversation has gone on meanwhile, which would forbid the same request."""
    first = await ask(http, "one", "k-1")
    previous = {"previous_response_id": first.json()["id"]}
    second = await ask(http, "two", "k-2", **previous)
    assert second.status_code == 200
    third = await ask(http, "three", "k-3", previous_response_id=second.json()["id"])
    assert third.status_code == 200
    assert (await ask(http, "two", "k-4", **previous)).status_code == 400
    assert same(second, await ask(http, "two", "k-2", **previous))


async def test_the_sdk_sees_a_conflict_once(
    openai: AsyncOpenAI, http: httpx.AsyncClient, office: Office
) -> None:
    headers = {"Idempotency-Key": "k-1"}
    made = [
        await openai.responses.create(model="m", input="hello", extra_headers=headers)
        for _ in range(2)
    ]
    assert made[0] == made[1]
    with pytest.raises(ConflictError, match="a different request") as caught:
        await openai.responses.create(model="m", input="other", extra_headers=headers)
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert caught.value.type == "invalid_request_error"
    assert len(office.model.requests) == 1


@pytest.mark.parametrize("path", ["/responses", "/v1/responses"])
async def test_a_key_that_is_none_is_refused_in_the_shape_of_openai(
    http: httpx.AsyncClient, path: str
) -> None:
    headers = bearer("alice") | {"Idempotency-Key": "two words"}
    answer = await http.post(path, json={"input": "hello"}, headers=headers)
    assert answer.status_code == 400
    assert "Idempotency-Key" in answer.json()["error"]["message"]
    assert answer.json()["error"]["type"] == "invalid_request_error"


async def test_a_deleted_response_stays_deleted(http: httpx.AsyncClient) -> None:
    first = await ask(http, "hello")
    url = f"/v1/responses/{first.json()['id']}"
    await http.delete(url, headers=bearer("alice"))
    assert same(first, await ask(http, "hello"))
    assert (await http.get(url, headers=bearer("alice"))).status_code == 404


async def test_a_cancellation_is_told_again(http: httpx.AsyncClient, office: Office) -> None:
    made = (await ask(http, "hang", background=True)).json()
    await office.desk.entered.wait()
    url = f"/v1/responses/{made['id']}/cancel"
    headers = bearer("alice") | {"Idempotency-Key": "k-2"}
    first, second = [await http.post(url, headers=headers) for _ in range(2)]
    assert first.json()["status"] == "cancelled"
    assert same(first, second)


async def test_the_response_is_known_although_its_record_was_not_written(
    http: httpx.AsyncClient, office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:

        async def break_off(self: Records, record: object) -> None:
            raise StoreError("the process could die here as well")

        patched.setattr(Records, "begin", break_off)
        first = await ask(http, "hello")  # found by its key, like a repeat
    assert first.status_code == 200
    again = await ask(http, "hello")
    assert again.content == first.content
    read = await http.get(f"/v1/responses/{again.json()['id']}", headers=bearer("alice"))
    assert read.json() == again.json()
    follow = await ask(http, "more", "k-2", previous_response_id=again.json()["id"])
    assert follow.status_code == 200
    assert len(office.model.requests) == 2


async def test_a_restart_forgets_no_response(tmp_path: Path) -> None:
    answers = []
    for office in (Office(), Office()):
        store = SQLiteStore(tmp_path / "mail.db")
        await store.open()
        await add_tokens(store)  # type: ignore[arg-type]
        async with serving(create_app(DEBUG, template=office.template, store=store)) as http:
            answers.append(
                [
                    await ask(http, "hello"),
                    await ask(http, "hello", "k-2", stream=True, store=False),
                ]
            )
        await store.close()
    assert all(same(*pair) for pair in zip(*answers, strict=True))
    assert not office.model.requests


async def test_another_body_is_refused_in_the_sdk_s_shape(
    http: httpx.AsyncClient, store: MemoryStore
) -> None:
    await ask(http, "hello")
    for answer in (
        await ask(http, "other"),
        await http.post(
            "/responses",
            json={"input": "hello"},
            headers=bearer("alice") | {"Idempotency-Key": "k-1"},
        ),
    ):
        assert answer.status_code == 409
        assert "a different request" in answer.json()["error"]["message"]
