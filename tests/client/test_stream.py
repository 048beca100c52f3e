"""Event streams, and what happens when their connection breaks."""

import asyncio
import json
import random

import pytest
from aiohttp import web
from sse_starlette import ServerSentEvent

from mail.client import MAILClient
from mail.client.stream import EventStream, Reconnect
from mail.errors import ClientDecodeError, ClientHTTPError
from tests.client.conftest import Counterpart, events_of, start_stream

REPLAY = ("GET", "/tasks/t-1/events")


def event(kind: str, number: int | None = None, **data: object) -> bytes:
    text = json.dumps({"task_id": "t-1", **data})
    first = f"id: {number}\r\n" if number is not None else ""
    return f"{first}event: {kind}\r\ndata: {text}\r\n\r\n".encode()


async def kinds(stream: EventStream) -> list[str]:
    return [str(item.event) async for item in stream]


async def test_events_are_server_sent_events_with_json_text(
    server: Counterpart, client: MAILClient
) -> None:
    server.routes["POST", "/message"] = events_of(
        event("new_message", 1), event("ping"), event("task_complete", 2, response="done")
    )
    stream = await client.post_message_stream("Hello", entrypoint="math", max_steps=2)
    events = [item async for item in stream]
    assert all(isinstance(item, ServerSentEvent) for item in events)
    assert [(item.event, item.id) for item in events] == [
        ("new_message", "1"),
        ("ping", None),
        ("task_complete", "2"),
    ]
    assert json.loads(str(events[-1].data))["response"] == "done"
    method, path, headers, body = server.seen[0]
    assert (method, path, headers["Accept"]) == ("POST", "/message", "text/event-stream")
    assert body == {
        "subject": "New Message",
        "body": "Hello",
        "msg_type": "request",
        "entrypoint": "math",
        "stream": True,
        "kwargs": {"max_steps": 2},
    }


async def test_token_deltas_come_when_asked_for(server: Counterpart, client: MAILClient) -> None:
    server.routes["POST", "/message"] = events_of(event("model_delta"), event("task_complete", 1))
    stream = await client.post_message_stream("Hello", stream_tokens=True)
    assert await kinds(stream) == ["model_delta", "task_complete"]
    assert server.seen[0][3]["stream_tokens"] is True


async def test_a_refusal_is_raised_before_iteration(
    server: Counterpart, client: MAILClient
) -> None:
    server.answer("POST", "/message", {"detail": "invalid API key"}, status=401)
    with pytest.raises(ClientHTTPError, match="401: invalid API key"):
        await client.post_message_stream("Hello")


async def test_a_broken_stream_goes_on_where_it_broke(
    server: Counterpart, client: MAILClient
) -> None:
    server.routes["POST", "/message"] = events_of(
        event("new_message", 1), event("tool_call", 2), b"id: 3\r\nevent: half", cut=True
    )
    server.routes[REPLAY] = events_of(
        event("tool_call", 2), event("new_message", 3), event("task_complete", 4)
    )
    stream = await client.post_message_stream("Hello")
    assert await kinds(stream) == ["new_message", "tool_call", "new_message", "task_complete"]
    assert server.seen[1][2]["Last-Event-ID"] == "2"
    assert server.seen[1][2]["Authorization"] == "Bearer key-1"


async def test_a_draining_server_is_asked_again_when_it_is_back(
    server: Counterpart, client: MAILClient
) -> None:
    server.routes["POST", "/message"] = events_of(event("new_message", 1), event("server_drain"))
    restarted = events_of(event("task_complete", 2))
    answers = iter([web.json_response({"detail": "draining"}, status=503), None])

    async def replay(request: web.Request) -> web.StreamResponse:
        return next(answers) or await restarted(request)

    server.routes[REPLAY] = replay
    stream = await client.post_message_stream("Hello")
    assert await kinds(stream) == ["new_message", "server_drain", "task_complete"]


async def test_attempts_are_bounded(server: Counterpart, client: MAILClient) -> None:
    server.routes["POST", "/message"] = events_of(event("new_message", 1), cut=True)
    server.answer(*REPLAY, {"detail": "draining"}, status=503)
    stream = await client.post_message_stream("Hello")
    with pytest.raises(ClientHTTPError, match="the event stream broke; task 't-1' continues"):
        await kinds(stream)
    assert len(server.seen) == 1 + client.reconnect.tries


async def test_a_replay_that_brings_nothing_new_counts_as_an_attempt(
    server: Counterpart, client: MAILClient
) -> None:
    server.routes["POST", "/message"] = events_of(event("new_message", 1), cut=True)
    server.routes[REPLAY] = events_of(event("new_message", 1), cut=True)
    with pytest.raises(ClientHTTPError, match="the event stream broke"):
        await kinds(await client.post_message_stream("Hello"))
    assert len(server.seen) == 1 + client.reconnect.tries


async def test_a_server_that_keeps_pinging_is_asked_without_end(
    server: Counterpart, client: MAILClient
) -> None:
    server.routes["POST", "/message"] = events_of(event("new_message", 1), cut=True)
    thinking = [events_of(event("ping"), cut=True)] * (client.reconnect.tries + 2)
    answers = iter([*thinking, events_of(event("task_complete", 2))])

    async def replay(request: web.Request) -> web.StreamResponse:
        return await next(answers)(request)

    server.routes[REPLAY] = replay
    assert (await kinds(await client.post_message_stream("Hello")))[-1] == "task_complete"


async def test_a_server_that_refuses_the_replay_is_not_asked_again(
    server: Counterpart, client: MAILClient
) -> None:
    server.routes["POST", "/message"] = events_of(event("new_message", 1), cut=True)
    with pytest.raises(ClientHTTPError, match="404"):
        await kinds(await client.post_message_stream("Hello"))
    assert len(server.seen) == 2


async def test_a_break_without_numbered_events_is_an_error(
    server: Counterpart, client: MAILClient
) -> None:
    server.routes["POST", "/message"] = events_of(event("new_message"), cut=True)
    with pytest.raises(ClientHTTPError, match="the event stream broke") as caught:
        await kinds(await client.post_message_stream("Hello"))
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("frames", [(), (event("new_message"), b"event: ping\r\n\r\n")])
async def test_an_orderly_end_without_an_answer_is_an_error(
    server: Counterpart, client: MAILClient, frames: tuple[bytes, ...]
) -> None:
    server.routes["POST", "/message"] = events_of(*frames)
    with pytest.raises(ClientHTTPError, match="the event stream ended without an answer") as caught:
        await kinds(await client.post_message_stream("Hello"))
    assert caught.value.status is None


async def test_a_replay_without_an_answer_to_the_post_is_an_error_too(
    server: Counterpart, client: MAILClient
) -> None:
    server.routes["POST", "/message"] = events_of(event("new_message", 1), cut=True)
    server.routes[REPLAY] = events_of(event("tool_call", 2))
    with pytest.raises(ClientHTTPError, match="the event stream ended without an answer; task"):
        await kinds(await client.post_message_stream("Hello"))


async def test_an_answer_that_is_no_event_stream_is_refused(
    server: Counterpart, client: MAILClient
) -> None:
    server.answer("POST", "/message", {"response": "hi"})
    with pytest.raises(ClientDecodeError, match=r"'application/json': .*response"):
        await client.post_message_stream("Hello")


async def test_a_post_stream_that_breaks_after_its_terminal_event_has_ended(
    server: Counterpart, client: MAILClient
) -> None:
    async def broken(request: web.Request) -> web.StreamResponse:
        response = await start_stream(request)
        await response.write(event("task_error", 1))
        if request.transport is not None:
            request.transport.abort()
        return response

    server.routes["POST", "/message"] = broken
    assert await kinds(await client.post_message_stream("Hello")) == ["task_error"]


async def test_a_replay_goes_on_past_terminal_events_to_the_end_of_the_log(
    server: Counterpart, client: MAILClient
) -> None:
    server.routes[REPLAY] = events_of(
        event("task_complete", 5), event("new_message", 6), event("task_complete", 7)
    )
    stream = await client.get_task_events("t-1", last_event_id=4)
    assert await kinds(stream) == ["task_complete", "new_message", "task_complete"]
    assert server.seen[0][2]["Last-Event-ID"] == "4"


async def test_a_replay_from_the_beginning_that_breaks_starts_over(
    server: Counterpart, client: MAILClient
) -> None:
    answers = iter([events_of(b": hello\r\n", cut=True), events_of(event("task_complete", 1))])

    async def replay(request: web.Request) -> web.StreamResponse:
        return await next(answers)(request)

    server.routes[REPLAY] = replay
    assert await kinds(await client.get_task_events("t-1")) == ["task_complete"]
    assert all("Last-Event-ID" not in headers for _, _, headers, _ in server.seen)


async def test_an_unknown_task_is_refused(server: Counterpart, client: MAILClient) -> None:
    with pytest.raises(ClientHTTPError) as caught:
        await client.get_task_events("nothing")
    assert caught.value.status == 404


async def test_leaving_early_frees_the_connection(server: Counterpart, client: MAILClient) -> None:
    left = asyncio.Event()

    async def endless(request: web.Request) -> web.StreamResponse:
        response = await start_stream(request)
        try:
            while True:
                await response.write(event("ping"))
                await asyncio.sleep(0.005)
        except ConnectionResetError:
            left.set()
            raise

    server.routes["POST", "/message"] = endless
    async with await client.post_message_stream("Hello") as stream:
        async for _ in stream:
            break
    async with asyncio.timeout(20):
        await left.wait()
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


def test_waits_grow_up_to_a_bound() -> None:
    plan = Reconnect(first_wait=0.2, longest_wait=5.0)
    assert [plan.wait(n) for n in (0, 1, 9)] == [0.2, 0.4, 5.0]


def test_later_attempts_wait_as_long_as_the_server_asks() -> None:
    plan = Reconnect(first_wait=0.2, longest_wait=5.0)
    assert [plan.wait(n, asked=2.0) for n in (0, 1, 4, 5)] == [0.2, 2.0, 3.2, 5.0]
    assert plan.wait(1, asked=60.0) == 5.0


async def test_a_retry_field_is_taken_to_heart(server: Counterpart, client: MAILClient) -> None:
    asked = []

    class Patient(Reconnect):
        def wait(self, attempt: int, asked_for: float = 0.0) -> float:
            asked.append((attempt, asked_for))
            return 0.0

    client.reconnect = Patient(tries=2)
    server.routes["POST", "/message"] = events_of(
        event("new_message", 1), b"retry: 1500\n\n", b": bye\nretry: soon\n", cut=True
    )
    server.answer(*REPLAY, {"detail": "draining"}, status=503)
    with pytest.raises(ClientHTTPError, match="the event stream broke"):
        await kinds(await client.post_message_stream("Hello"))
    assert asked == [(0, 1.5), (1, 1.5)]


async def test_a_stream_cut_anywhere_is_as_good_as_a_whole_one(
    server: Counterpart, client: MAILClient
) -> None:
    frames = [
        *(event("new_message", n) for n in range(1, 5)),
        event("ping"),
        *("id: 5\r\nevent: tool_call\r\ndata: größe\r\ndata: 🌍\r\n\r\n".encode(),),
        event("task_complete", 6),
    ]
    whole = b"".join(frames)
    numbered = dict(enumerate((f for f in frames if b"id:" in f), 1))

    async def replay(request: web.Request) -> web.StreamResponse:
        after = int(request.headers.get("Last-Event-ID", "0"))
        rest = [frame for n, frame in numbered.items() if n > after]
        return await events_of(*rest)(request)

    server.routes[REPLAY] = replay
    first_id = whole.index(b"\r\n\r\n") + 4
    for cut in random.Random(5).sample(range(first_id, len(whole)), 60):
        server.routes["POST", "/message"] = events_of(whole[:cut], cut=True)
        stream = await client.post_message_stream("Hello", task_id="t-1")
        seen = [(e.id, e.event, e.data) async for e in stream if e.id is not None]
        assert [int(number) for number, _, _ in seen] == [1, 2, 3, 4, 5, 6], cut
        assert seen[4][1:] == ("tool_call", "größe\n🌍"), cut
