"""A client that sends a request with a key again when that can help, and only then."""

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web

from mail.client import MAILClient
from mail.client.http import Reconnect
from mail.config import ClientConfig
from mail.errors import ClientHTTPError
from tests.client.conftest import Counterpart, Handler, events_of

ANSWER = {"response": "done", "events": None}


def in_turn(*handlers: Handler) -> Handler:
    """Make a handler that is another one each time."""
    left = iter(handlers)

    async def handler(request: web.Request) -> web.StreamResponse:
        return await next(left)(request)

    return handler


def says(value: Any, status: int = 200, **headers: str) -> Handler:
    """Make a handler that answers with JSON."""

    async def handler(request: web.Request) -> web.StreamResponse:
        return web.json_response(value, status=status, headers=headers)

    return handler


async def hangs_up(request: web.Request) -> web.StreamResponse:
    """Drop the connection without an answer."""
    assert request.transport is not None
    request.transport.close()
    return web.Response()


BUSY = says({"detail": "later"}, 503, **{"Retry-After": "0"})


def keys(server: Counterpart) -> list[str | None]:
    """Return the keys of the requests that came in."""
    return [headers.get("Idempotency-Key") for _, _, headers, _ in server.seen]


@pytest.mark.parametrize("trouble", [hangs_up, BUSY], ids=["lost", "busy"])
async def test_a_message_with_a_key_is_sent_until_it_is_answered(
    server: Counterpart, client: MAILClient, trouble: Handler
) -> None:
    server.routes["POST", "/message"] = in_turn(trouble, trouble, says(ANSWER))
    assert await client.post_message("hello", idempotency_key="k-1") == ANSWER
    assert keys(server) == ["k-1"] * 3
    assert len({json.dumps(body) for _, _, _, body in server.seen}) == 1


@pytest.mark.parametrize("trouble", [hangs_up, BUSY], ids=["lost", "busy"])
async def test_without_a_key_it_is_sent_once(
    server: Counterpart, client: MAILClient, trouble: Handler
) -> None:
    server.routes["POST", "/message"] = in_turn(trouble, says(ANSWER))
    with pytest.raises(ClientHTTPError):
        await client.post_message("hello")
    assert keys(server) == [None]


@pytest.mark.parametrize(
    "final",
    [
        says({"detail": "no"}, 400),
        says({"detail": "another request"}, 409),
        says({"detail": "slow down"}, 429, **{"Retry-After": "0"}),
        says({"detail": "failed"}, 502),
        says({"detail": "gone"}, 503),
        says({"detail": "gone"}, 503, **{"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT"}),
        says({"detail": "much later"}, 503, **{"Retry-After": "600"}),
    ],
)
async def test_what_a_repeat_cannot_mend_is_told_at_once(
    server: Counterpart, client: MAILClient, final: Handler
) -> None:
    server.routes["POST", "/message"] = in_turn(final, says(ANSWER))
    with pytest.raises(ClientHTTPError) as caught:
        await client.post_message("hello", idempotency_key="k-1")
    assert caught.value.status is not None
    assert len(server.seen) == 1


async def test_it_gives_up_after_a_few_tries(server: Counterpart, client: MAILClient) -> None:
    server.routes["POST", "/message"] = BUSY
    with pytest.raises(ClientHTTPError, match="later"):
        await client.post_message("hello", idempotency_key="k-1")
    assert len(server.seen) == client.reconnect.tries + 1


async def test_all_tries_share_one_timeout(server: Counterpart) -> None:
    stay = asyncio.Event()

    async def silent(request: web.Request) -> web.StreamResponse:
        await stay.wait()
        return web.Response()

    server.routes["POST", "/message"] = in_turn(BUSY, silent)
    async with MAILClient(server.url, config=ClientConfig(timeout=1.5)) as client:
        client.reconnect = Reconnect(tries=3, first_wait=0.01, longest_wait=0.02)
        with pytest.raises(ClientHTTPError, match="no response in time"):
            await client.post_message("hello", idempotency_key="k-1")
    stay.set()
    assert len(server.seen) == 2


async def test_nobody_is_there(client: MAILClient) -> None:
    client.base_url = "http://127.0.0.1:9"
    with pytest.raises(ClientHTTPError) as caught:
        await client.post_message("hello", idempotency_key="k-1")
    assert caught.value.status is None


def event(number: int, kind: str = "tool_call", **data: Any) -> bytes:
    """Return one event of a task."""
    shown = json.dumps({"task_id": "t", **data})
    return f"id: {number}\r\nevent: {kind}\r\ndata: {shown}\r\n\r\n".encode()


async def test_a_broken_stream_repeats_the_message_behind_the_last_event(
    server: Counterpart, client: MAILClient
) -> None:
    server.routes["POST", "/message"] = in_turn(
        hangs_up,
        events_of(cut=True),
        events_of(event(1), event(2), cut=True),
        hangs_up,
        events_of(event(3, "task_complete"), cut=True),
        events_of(event(4), event(5, "task_complete", response="mine"), cut=True),
        events_of(),
    )
    stream = await client.post_message_stream("hello", idempotency_key="k-1")
    assert [event.id async for event in stream] == ["1", "2", "3", "4", "5"]
    assert keys(server) == ["k-1"] * len(server.seen)
    assert {(method, path) for method, path, _, _ in server.seen} == {("POST", "/message")}
    places = [headers.get("Last-Event-ID") for _, _, headers, _ in server.seen]
    assert places == [None, None, None, "2", "2", "3", "5"]


async def test_a_refused_repeat_ends_the_stream(server: Counterpart, client: MAILClient) -> None:
    server.routes["POST", "/message"] = in_turn(
        events_of(event(1), cut=True), says({"detail": "revoked"}, 401)
    )
    stream = await client.post_message_stream("hello", idempotency_key="k-1")
    with pytest.raises(ClientHTTPError, match="revoked"):
        [event async for event in stream]


async def test_responses_take_a_key(server: Counterpart, client: MAILClient) -> None:
    server.routes["POST", "/responses"] = in_turn(hangs_up, says({"detail": "no"}, 404))
    with pytest.raises(ClientHTTPError, match="no"):
        await client.debug_post_responses("hello", idempotency_key="k-1")
    assert keys(server) == ["k-1"] * 2
