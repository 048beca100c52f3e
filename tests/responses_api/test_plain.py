"""`responses.create` of OpenAI's SDK against the server, without streaming."""

from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI, BadRequestError, InternalServerError, NotFoundError
from openai.types.responses import Response, ResponseFunctionToolCall

from tests.responses_api.support import PER_CALL, TIME, WEATHER, Office
from tests.server.kit import bearer


def calls_of(response: Response) -> list[ResponseFunctionToolCall]:
    """Return the calls that a response asks for."""
    return [item for item in response.output if isinstance(item, ResponseFunctionToolCall)]


async def ask(openai: AsyncOpenAI, text: str, **fields: Any) -> Response:
    """Ask with the tool for the weather."""
    fields = {"tools": [WEATHER], **fields}
    return await openai.responses.create(model="swarm", input=text, **fields)


async def test_the_swarm_is_the_only_model(openai: AsyncOpenAI) -> None:
    [model] = [model async for model in await openai.models.list()]
    assert (model.id, model.object, model.owned_by) == ("test-swarm", "model", "mail")
    assert (await openai.models.retrieve("test-swarm")).created == model.created > 0
    with pytest.raises(NotFoundError, match="'gpt-7' does not exist") as caught:
        await openai.models.retrieve("gpt-7")
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


async def test_text_comes_back_as_a_message_with_usage(openai: AsyncOpenAI) -> None:
    response = await openai.responses.create(
        model="my-model", input="hello", metadata={"who": "me"}, instructions="Be kind."
    )
    checked = Response.model_validate(response.model_dump())
    assert checked.output_text == "You said: hello"
    assert (checked.status, checked.model, checked.error) == ("completed", "my-model", None)
    assert (checked.metadata, checked.instructions) == ({"who": "me"}, "Be kind.")
    assert checked.usage is not None
    assert checked.usage.total_tokens == PER_CALL.total_tokens
    assert checked.usage.input_tokens_details.cached_tokens == PER_CALL.cached_tokens
    assert checked.usage.output_tokens_details.reasoning_tokens == PER_CALL.reasoning_tokens


async def test_a_task_is_titled_by_its_first_words(
    openai: AsyncOpenAI, http: httpx.AsyncClient
) -> None:
    response = await openai.responses.create(model="m", input="Plan a trip\nto Oslo.")
    path = f"/tasks/{response.to_dict()['task_id']}"
    task = (await http.get(path, headers=bearer("alice"))).json()
    assert task["title"] == "Plan a trip to Oslo."


async def test_a_conversation_goes_on_by_its_newest_response(openai: AsyncOpenAI) -> None:
    first = await openai.responses.create(model="m", input="one")
    second = await openai.responses.create(
        model="m", input="ask the clerk", previous_response_id=first.id
    )
    assert second.output_text.startswith("The clerk says: filed")
    assert second.previous_response_id == first.id
    assert second.to_dict()["task_id"] == first.to_dict()["task_id"]
    assert second.usage is not None
    assert second.usage.total_tokens == 3 * PER_CALL.total_tokens  # of this response only
    with pytest.raises(BadRequestError, match=second.id) as refused:
        await openai.responses.create(model="m", input="x", previous_response_id=first.id)
    assert refused.value.param == "previous_response_id"


async def test_the_callers_functions_pause_and_resume_the_task(openai: AsyncOpenAI) -> None:
    first = await ask(openai, "The weather in Oslo?")
    [asked] = calls_of(first)
    assert (asked.name, asked.arguments) == ("get_weather", '{"city":"Oslo"}')
    assert first.status == "completed"
    done = await ask(
        openai,
        [{"type": "function_call_output", "call_id": asked.call_id, "output": "cold"}],  # type: ignore[arg-type]
        previous_response_id=first.id,
    )
    assert done.output_text == "It is cold."


async def test_results_may_come_one_by_one(openai: AsyncOpenAI) -> None:
    first = await ask(openai, "The weather in Oslo and Rome?")
    oslo, rome = calls_of(first)
    partly = await openai.responses.create(
        model="m",
        tools=[WEATHER],  # type: ignore[list-item]
        input=[{"type": "function_call_output", "call_id": rome.call_id, "output": "hot"}],
        previous_response_id=first.id,
    )
    assert [call.call_id for call in calls_of(partly)] == [oslo.call_id]
    done = await openai.responses.create(
        model="m",
        input=[{"type": "function_call_output", "call_id": oslo.call_id, "output": "cold"}],
        previous_response_id=partly.id,
    )
    assert "cold" in done.output_text
    assert "hot" in done.output_text


async def test_a_caller_that_sends_the_whole_conversation_resumes_the_same_task(
    openai: AsyncOpenAI,
) -> None:
    said: list[Any] = [{"role": "user", "content": "The weather in Oslo?"}]
    first = await openai.responses.create(model="m", input=said, tools=[WEATHER], store=False)  # type: ignore[list-item]
    said += [item.to_dict() for item in first.output]
    call_id = calls_of(first)[0].call_id
    said += [
        {"type": "function_call_output", "call_id": call_id, "output": "cold"},
        {"role": "user", "content": "And say please"},
    ]
    done = await openai.responses.create(model="m", input=said, tools=[WEATHER])  # type: ignore[list-item]
    assert done.output_text == "It is cold\n\nThe user adds:\nAnd say please."
    assert done.to_dict()["task_id"] == first.to_dict()["task_id"]
    said += [item.to_dict() for item in done.output] + [{"role": "user", "content": "Thanks"}]
    thanked = await openai.responses.create(model="m", input=said)
    assert thanked.to_dict()["task_id"] != first.to_dict()["task_id"]
    for part in ("The conversation so far", "get_weather", "cold", "Thanks"):
        assert part in thanked.output_text


async def test_instructions_and_system_items_follow_the_agents_prompt(
    openai: AsyncOpenAI, office: Office
) -> None:
    response = await openai.responses.create(
        model="m",
        instructions="Speak like a pirate.",
        input=[
            {"role": "developer", "content": "Never say arr."},
            {"role": "user", "content": [{"type": "input_text", "text": "your prompt?"}]},
        ],
    )
    assert response.output_text.startswith("I am desk.")
    assert response.output_text.endswith("Speak like a pirate.\n\nNever say arr.")
    again = await openai.responses.create(
        model="m", input="your prompt?", previous_response_id=response.id
    )
    assert "pirate" not in again.output_text  # as at OpenAI, they hold for one response


async def test_tool_choice_decides_what_is_offered_and_forced(openai: AsyncOpenAI) -> None:
    both: Any = [WEATHER, TIME]
    shown = (await ask(openai, "which tools?", tools=both)).output_text.split()
    assert {"get_weather", "get_time", "send_request", "task_complete"} <= set(shown)
    assert "get_weather" not in (await ask(openai, "which tools?", tool_choice="none")).output_text
    forced = await ask(
        openai, "hello", tools=both, tool_choice={"type": "function", "name": "get_time"}
    )
    assert [call.name for call in calls_of(forced)] == ["get_time"]
    done = await openai.responses.create(
        model="m",
        input=[
            {
                "type": "function_call_output",
                "call_id": calls_of(forced)[0].call_id,
                "output": "noon",
            }
        ],
        previous_response_id=forced.id,
    )
    assert done.output_text == "It is noon."
    only = await ask(openai, "which tools?", tools=both, tool_choice="required")
    assert only.output_text == "get_time get_weather"
    allowed: Any = {
        "type": "allowed_tools",
        "mode": "auto",
        "tools": [{"type": "function", "name": "get_time"}],
    }
    shown = (await ask(openai, "which tools?", tools=both, tool_choice=allowed)).output_text.split()
    assert "get_time" in shown
    assert "get_weather" not in shown


async def test_one_call_at_a_time_when_parallel_calls_are_off(
    openai: AsyncOpenAI, office: Office
) -> None:
    response = await ask(openai, "The weather in Oslo and Rome?", parallel_tool_calls=False)
    assert [call.arguments for call in calls_of(response)] == ['{"city":"Oslo"}']
    await openai.responses.create(
        model="m",
        input=[
            {
                "type": "function_call_output",
                "call_id": calls_of(response)[0].call_id,
                "output": "cold",
            }
        ],
        previous_response_id=response.id,
    )
    assert any("one such tool at a time" in text for text in office.model.shown)


async def test_a_wanted_format_is_asked_for(openai: AsyncOpenAI) -> None:
    schema = {"type": "object", "properties": {"answer": {"type": "string"}}}
    response = await openai.responses.create(
        model="m",
        input="your prompt?",
        text={"format": {"type": "json_schema", "name": "answer", "schema": schema}},
    )
    assert '"answer"' in response.output_text


async def test_responses_can_be_read_and_deleted(openai: AsyncOpenAI) -> None:
    made = await openai.responses.create(model="m", input="hello")
    read = await openai.responses.retrieve(made.id)
    assert read.to_dict() == made.to_dict()
    await openai.responses.delete(made.id)
    with pytest.raises(NotFoundError, match="not found"):
        await openai.responses.retrieve(made.id)
    with pytest.raises(NotFoundError):
        await openai.responses.delete(made.id)
    unkept = await openai.responses.create(model="m", input="hello", store=False)
    with pytest.raises(NotFoundError):
        await openai.responses.retrieve(unkept.id)


async def test_background_responses_are_polled_and_cancelled(
    openai: AsyncOpenAI, office: Office
) -> None:
    made = await openai.responses.create(model="m", input="hang on", background=True)
    assert (made.status, made.output, made.background) == ("in_progress", [], True)
    await office.desk.entered.wait()
    assert (await openai.responses.retrieve(made.id)).status == "in_progress"
    cancelled = await openai.responses.cancel(made.id)
    assert cancelled.status == "cancelled"
    assert (await openai.responses.cancel(made.id)).status == "cancelled"
    done = await openai.responses.create(model="m", input="hello")
    with pytest.raises(BadRequestError, match="Cannot cancel a completed response"):
        await openai.responses.cancel(done.id)


async def test_a_background_response_has_the_answer_once_the_run_ends(
    openai: AsyncOpenAI, http: httpx.AsyncClient, office: Office
) -> None:
    made = await openai.responses.create(model="m", input="hang on", background=True)
    await office.desk.entered.wait()
    office.desk.gate.set()
    task_id = made.to_dict()["task_id"]
    await http.get(f"/tasks/{task_id}/events", headers=bearer("alice"))  # ends with the task
    read = await openai.responses.retrieve(made.id)
    assert (read.status, read.output_text) == ("completed", "You said: hang on")


async def test_a_failed_run_is_an_error_that_the_sdk_does_not_repeat(
    openai: AsyncOpenAI, office: Office
) -> None:
    with pytest.raises(InternalServerError, match="out of tokens") as failed:
        await openai.responses.create(model="m", input="fail")
    assert failed.value.status_code == 502
    assert failed.value.type == "server_error"
    assert len(office.model.requests) == 1


async def test_callers_do_not_see_one_anothers_responses(
    openai: AsyncOpenAI, http: httpx.AsyncClient
) -> None:
    made = await ask(openai, "The weather in Oslo?")
    bob = bearer("bob")
    answer = await http.get(f"/v1/responses/{made.id}", headers=bob)
    assert (answer.status_code, answer.json()["error"]["param"]) == (404, "response_id")
    results = [
        {"type": "function_call_output", "call_id": calls_of(made)[0].call_id, "output": "x"}
    ]
    for more in ({"previous_response_id": made.id}, {}):
        answer = await http.post("/v1/responses", headers=bob, json={"input": results, **more})
        assert answer.status_code == 400


async def test_the_documented_route_answers_as_well(http: httpx.AsyncClient) -> None:
    body = {"input": [{"role": "user", "content": "hello"}], "tools": []}
    answer = await http.post("/responses", headers=bearer("admin"), json=body)
    assert answer.status_code == 200
    assert Response.model_validate(answer.json()).output_text == "You said: hello"
    old_style = {**body, "previous_response_id": answer.json()["task_id"], "kwargs": {"timeout": 9}}
    again = await http.post("/responses", headers=bearer("admin"), json=old_style)
    assert again.json()["task_id"] == answer.json()["task_id"]
