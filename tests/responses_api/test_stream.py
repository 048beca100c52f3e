"""Streamed responses: OpenAI's event types in order, numbered, and the same end as without."""

import asyncio
from typing import Any, get_args

import httpx
import pytest
from openai import AsyncOpenAI
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from mail.db.memory import MemoryStore
from mail.server.app import create_app
from mail.server.connections import CLIENT, Client
from tests.responses_api.support import DEBUG, WEATHER, Office
from tests.server.kit import bearer, serving

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
MESSAGE = [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.completed",
]
CALL = [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.output_item.done",
    "response.completed",
]


async def read(openai: AsyncOpenAI, **fields: Any) -> list[Any]:
    """Return the events of a streamed response, each checked against its type."""
    stream = await openai.responses.create(model="m", stream=True, **fields)
    events = [event async for event in stream]
    for number, event in enumerate(events):
        checked = EVENT.validate_python(event.to_dict())
        assert type(checked) in get_args(get_args(ResponseStreamEvent)[0])
        assert checked.sequence_number == number
    return events


def kinds(events: list[Any]) -> list[str]:
    """Return the types, runs of one type once."""
    found = [event.type for event in events]
    return [kind for at, kind in enumerate(found) if not at or kind != found[at - 1]]


async def test_an_answer_streams_in_pieces(openai: AsyncOpenAI) -> None:
    text = " ".join(f"word{n}" for n in range(400)) + "\n\nend  "
    events = await read(openai, input=text)
    assert kinds(events) == MESSAGE
    pieces = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert len(pieces) > 3
    assert all(len(piece) >= 200 for piece in pieces[:-1])  # an event is some 200 bytes itself
    last = events[-1].response
    assert "".join(pieces) == last.output_text == f"You said: {text}"
    assert (await openai.responses.retrieve(last.id)).to_dict() == last.to_dict()
    assert events[0].response.status == events[1].response.status == "in_progress"


async def test_a_call_streams_and_its_result_resumes_a_stream(openai: AsyncOpenAI) -> None:
    events = await read(openai, input="The weather in Oslo?", tools=[WEATHER])
    assert kinds(events) == CALL
    deltas = [e.delta for e in events if e.type == "response.function_call_arguments.delta"]
    [item] = events[-1].response.output
    assert "".join(deltas) == item.arguments == '{"city":"Oslo"}'
    done = await read(
        openai,
        input=[{"type": "function_call_output", "call_id": item.call_id, "output": "cold"}],
        previous_response_id=events[-1].response.id,
    )
    assert done[-1].response.output_text == "It is cold."


async def test_a_stream_shows_who_calls_which_tool_and_then_the_text(openai: AsyncOpenAI) -> None:
    events = await read(openai, input="Ask the clerk about shoes")
    summary = "response.reasoning_summary"
    part = [f"{summary}_part.added", f"{summary}_text.delta", f"{summary}_text.done"]
    part.append(f"{summary}_part.done")
    shown = [event.text for event in events if event.type == f"{summary}_text.done"]
    assert shown == ["desk calls send_request to clerk", "clerk calls send_response to desk"]
    assert [event.type for event in events] == [
        *("response.created", "response.in_progress", "response.output_item.added"),
        *(*part, *part, "response.output_item.done"),
        *MESSAGE[2:],
    ]
    reasoning, message = events[-1].response.output
    assert [part.text for part in reasoning.summary] == shown
    assert [event.output_index for event in events[2:-1]] == [0] * 10 + [1] * 6
    assert message.content[0].text.startswith("The clerk says: filed")
    assert (await openai.responses.retrieve(events[-1].response.id)).output[0].id == reasoning.id


async def test_work_is_shown_while_it_goes_on(openai: AsyncOpenAI, office: Office) -> None:
    stream = await openai.responses.create(model="m", input="Ask the clerk slowly", stream=True)
    async for event in stream:
        if event.type == "response.reasoning_summary_text.done":
            break
    assert event.text == "desk calls send_request to clerk"
    assert not office.desk.gate.is_set()
    office.desk.gate.set()
    last = [event async for event in stream][-1]
    assert last.type == "response.completed"


async def test_a_response_that_was_streamed_can_be_continued_with_its_items(
    openai: AsyncOpenAI,
) -> None:
    first = (await read(openai, input="Ask the clerk about shoes"))[-1].response
    items: Any = [item.to_dict() for item in first.output]
    again = await openai.responses.create(
        model="m", input=[*items, {"role": "user", "content": "and now?"}]
    )
    assert "and now?" in again.output_text


async def test_a_failed_run_ends_its_stream_with_the_reason(openai: AsyncOpenAI) -> None:
    events = await read(openai, input="fail")
    assert kinds(events) == ["response.created", "response.in_progress", "response.failed"]
    assert "out of tokens" in events[-1].response.error.message


async def test_a_cancelled_response_ends_its_stream(openai: AsyncOpenAI, office: Office) -> None:
    stream = await openai.responses.create(model="m", input="hang on", stream=True)
    first = await anext(stream)
    assert first.type == "response.created"
    await office.desk.entered.wait()
    await openai.responses.cancel(first.response.id)
    last = [event async for event in stream][-1]
    assert last.type == "response.incomplete"
    assert last.response.status == "cancelled"


async def test_leaving_a_stream_leaves_the_response_going(
    openai: AsyncOpenAI, http: httpx.AsyncClient, office: Office
) -> None:
    stream = await openai.responses.create(model="m", input="hang on", stream=True)
    first = await anext(stream)
    assert first.type == "response.created"
    await office.desk.entered.wait()
    await stream.close()
    office.desk.gate.set()
    task_id = first.response.to_dict()["task_id"]
    await http.get(f"/tasks/{task_id}/events", headers=bearer("alice"))  # ends with the task
    assert (await openai.responses.retrieve(first.response.id)).output_text == "You said: hang on"


async def test_a_drain_ends_the_stream_with_an_error_event(
    store: MemoryStore, office: Office
) -> None:
    app = create_app(DEBUG, template=office.template, store=store)
    body = {"input": "hang on", "stream": True}
    async with (
        serving(app) as client,
        client.stream("POST", "/responses", json=body, headers=bearer("alice")) as answer,
    ):
        await office.desk.entered.wait()
        app.state.mail.begin_drain()
        lines = [line async for line in answer.aiter_lines() if line.startswith("event: ")]
    assert lines[-1] == "event: error"


async def test_the_sdks_helper_gathers_the_stream(openai: AsyncOpenAI) -> None:
    async with openai.responses.stream(model="m", input="hello") as stream:
        async for _event in stream:
            pass
        final = await stream.get_final_response()
    assert final.output_text == "You said: hello"


async def test_a_reader_that_stalls_is_cut_off(
    store: MemoryStore, office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mail.net.sse.SEND_SECONDS", 0.1)
    app = create_app(DEBUG, template=office.template, store=store)
    cut = asyncio.Event()
    body = [{"type": "http.request", "body": b'{"input": "hi", "stream": true}'}]

    async def receive() -> Any:
        return body.pop() if body else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/responses",
        "query_string": b"",
        "headers": [(name.lower().encode(), it.encode()) for name, it in bearer("alice").items()],
        "state": {CLIENT: Client(cut=cut.set)},
    }
    async with app.router.lifespan_context(app), asyncio.timeout(10):
        await app(scope, receive, send)
    assert cut.is_set()
