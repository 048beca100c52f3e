"""`SwarmOAIClient` in one's own process, and `MAILClient.debug_post_responses`."""

from typing import Any

import httpx
import pytest
from openai.types.responses import Response, ResponseCompletedEvent

from mail.client import MAILClient
from mail.errors import ClientHTTPError
from mail.responses_api import ResponsesError, SwarmOAIClient
from mail.responses_api.items import NoSuchResponse
from tests.responses_api.support import WEATHER, Office
from tests.server.kit import TOKENS


async def test_a_swarm_is_asked_like_openais_client(office: Office) -> None:
    async with SwarmOAIClient(office.template) as client:
        first = await client.responses.create(
            [{"role": "user", "content": "The weather in Oslo?"}], [WEATHER]
        )
        assert isinstance(first, Response)
        assert first.model == "test-swarm"
        [asked] = first.output
        assert asked.type == "function_call"
        results = [{"type": "function_call_output", "call_id": asked.call_id, "output": "cold"}]
        done = await client.responses.create([*first.output, *results], [WEATHER])
        assert done.output_text == "It is cold."
        assert (await client.responses.retrieve(done.id)).output_text == done.output_text
        await client.responses.delete(done.id)
        with pytest.raises(NoSuchResponse):
            await client.responses.retrieve(done.id)
        with pytest.raises(ResponsesError, match="must not be empty"):
            await client.responses.create([])


async def test_many_conversations_do_not_change_the_template(office: Office) -> None:
    before = [list(agent.actions) for agent in office.template.agents]
    async with SwarmOAIClient(office.template) as client:
        for _ in range(3):
            await client.responses.create("The weather in Oslo?", [WEATHER], "Be kind.")
        shown = await client.responses.create("your prompt and tools?")
    assert "get_weather" not in shown.output_text
    assert [list(agent.actions) for agent in office.template.agents] == before
    assert office.template.breakpoint_tools == []


async def test_it_streams_typed_events_and_works_in_the_background(office: Office) -> None:
    async with SwarmOAIClient(office.template, validate_responses=False) as client:
        events = [event async for event in await client.responses.create("hello", stream=True)]
        assert isinstance(events[-1], ResponseCompletedEvent)
        assert events[-1].response.output_text == "You said: hello"
        made = await client.responses.create("hang on", background=True)
        await office.desk.entered.wait()
        assert (await client.responses.cancel(made.id)).status == "cancelled"


async def test_an_instance_of_the_callers_is_used_and_left_open(office: Office) -> None:
    swarm = office.template.instantiate({"user_token": ""}, print_llm_streams=False)
    async with SwarmOAIClient(office.template, swarm) as client:
        response = await client.responses.create("hello")
    task = await swarm.read_task(response.to_dict()["task_id"])
    assert task is not None
    message, _ = await swarm.post_message("still there")
    assert message["message"]["body"] == "You said: still there"
    await swarm.shutdown()


async def test_the_client_has_a_method_for_it(http: httpx.AsyncClient) -> None:
    async with MAILClient(str(http.base_url), TOKENS["alice"]) as client:
        items: list[Any] = [
            {"role": "system", "content": "You orchestrate the MAIL swarm."},
            {"role": "user", "content": "The weather in Oslo?"},
        ]
        first = await client.debug_post_responses(items, [WEATHER], metadata={"a": "b"})
        assert first.metadata == {"a": "b"}
        [asked] = first.output
        assert asked.type == "function_call"
        done = await client.debug_post_responses(
            [{"type": "function_call_output", "call_id": asked.call_id, "output": "cold"}],
            previous_response_id=first.id,
        )
        assert done.output_text == "It is cold."
        with pytest.raises(ClientHTTPError, match="must not be empty") as refused:
            await client.debug_post_responses("")
        assert refused.value.status == 400
