"""Tasks of several rounds with the caller's own tools, through every door of OpenAI's packages.

The swarm first wants the weather of two cities at once, then the time in one of them, then answers.
"""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from agents import Agent, ModelSettings, OpenAIResponsesModel, RunConfig, Runner, function_tool
from fastapi import FastAPI
from openai import (
    AsyncOpenAI,
    AuthenticationError,
    BadRequestError,
    InternalServerError,
    NotFoundError,
    OpenAI,
    PermissionDeniedError,
)
from pydantic import BaseModel

from mail.llm.script import Steps, call
from mail.llm.script_view import ScriptView
from mail.server.app import create_app
from tests.responses_api.support import DEBUG, TIME, WEATHER, Desk, Office
from tests.server.kit import TOKENS
from tests.support.background import served
from tests.support.till import known_callers

TOOLS: list[Any] = [WEATHER, TIME]
TRIP = "plan a trip"
PLAN = "The plan: cold in Oslo, cold in Rome, noon in Rome."
QUIET = RunConfig(tracing_disabled=True)


class Planner(Desk):
    """A desk that needs two rounds for a trip, and repeats JSON as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.weather = ""  # of the one conversation that goes on

    async def __call__(self, view: ScriptView) -> Steps:
        found = {result.tool: result.content for result in view.new_results}
        if "get_weather" in found:
            heard = [r.content for r in view.new_results if r.tool == "get_weather"]
            self.weather = ", ".join(heard)
            return call("get_time", city="Rome")
        if "get_time" in found:
            told = f"The plan: {self.weather}, {found['get_time']}."
            return call("task_complete", finish_message=told)
        if "thanks" in view.body:
            return call("task_complete", finish_message=f"You said: {view.body}")
        if TRIP in view.body:
            return [call("get_weather", city=city) for city in ("Oslo", "Rome")]
        if view.body.startswith("{"):
            return call("task_complete", finish_message=view.body)
        return await super().__call__(view)


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    """The base URL of a server for all tests of this module."""

    async def make() -> FastAPI:
        template = Office(desk=Planner()).template
        return create_app(DEBUG, template=template, store=await known_callers())

    with served(make) as url:
        yield f"{url}/v1"


@pytest.fixture
def plain(base: str) -> Iterator[OpenAI]:
    """OpenAI's client that blocks, as Alice."""
    with OpenAI(base_url=base, api_key=TOKENS["alice"]) as client:
        yield client


@pytest.fixture
async def awaited(base: str) -> AsyncIterator[AsyncOpenAI]:
    """OpenAI's client that is awaited, as Alice."""
    async with AsyncOpenAI(base_url=base, api_key=TOKENS["alice"]) as client:
        yield client


def results(response: Any) -> list[Any]:
    """Carry out what a response asks for."""
    said = {"get_weather": "cold", "get_time": "noon"}
    return [
        {
            "type": "function_call_output",
            "call_id": item.call_id,
            "output": f"{said[item.name]} in {json.loads(item.arguments)['city']}",
        }
        for item in response.output
        if item.type == "function_call"
    ]


def names(response: Any) -> list[str]:
    return [item.name for item in response.output if item.type == "function_call"]


def streamed(client: OpenAI, **asked: Any) -> Any:
    """Return the response at the end of a stream."""
    return list(client.responses.create(model="m", stream=True, **asked))[-1].response  # type: ignore[attr-defined]


def gathered(client: OpenAI, **asked: Any) -> Any:
    """Return what the SDK's helper gathers from a stream."""
    with client.responses.stream(model="m", **asked) as stream:
        kinds = [event.type for event in stream]
        assert kinds[-1] == "response.completed"
        return stream.get_final_response()


DOORS: dict[str, Any] = {
    "create": lambda client, **asked: client.responses.create(model="m", **asked),
    "create streamed": streamed,
    "the stream helper": gathered,
    "parse": lambda client, **asked: client.responses.parse(model="m", **asked),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_conversation_of_rounds_by_the_client_that_blocks(plain: OpenAI, door: str) -> None:
    ask = DOORS[door]
    first = ask(plain, input=TRIP, tools=TOOLS)
    assert names(first) == ["get_weather", "get_weather"]
    second = ask(plain, input=results(first), tools=TOOLS, previous_response_id=first.id)
    assert names(second) == ["get_time"]
    third = ask(plain, input=results(second), tools=TOOLS, previous_response_id=second.id)
    assert third.output_text == PLAN
    last = ask(plain, input="thanks", previous_response_id=third.id)
    assert last.output_text == "You said: thanks"
    tasks = {each.to_dict()["task_id"] for each in (first, second, third, last)}
    assert len(tasks) == 1
    assert plain.responses.retrieve(last.id).output_text == last.output_text
    plain.responses.delete(last.id)
    with pytest.raises(NotFoundError):
        plain.responses.retrieve(last.id)


async def test_a_conversation_of_rounds_by_the_client_that_is_awaited(awaited: AsyncOpenAI) -> None:
    async def ask(**asked: Any) -> Any:
        async with awaited.responses.stream(model="m", **asked) as stream:
            seen = [event.type async for event in stream]
            assert seen[0] == "response.created"
            return await stream.get_final_response()

    first = await ask(input=TRIP, tools=TOOLS)
    second = await awaited.responses.create(
        model="m", input=results(first), tools=TOOLS, previous_response_id=first.id
    )
    third = await ask(input=results(second), previous_response_id=second.id)
    assert third.output_text == PLAN


class Answer(BaseModel):
    """A wanted format."""

    answer: int


@pytest.mark.parametrize("streams", [False, True])
def test_an_answer_is_parsed_into_the_wanted_type(plain: OpenAI, streams: bool) -> None:
    asked: dict[str, Any] = {"model": "m", "input": '{"answer": 391}', "text_format": Answer}
    if streams:
        with plain.responses.stream(**asked) as stream:
            response: Any = stream.get_final_response()
    else:
        response = plain.responses.parse(**asked)
    assert response.output_parsed == Answer(answer=391)


def test_a_background_response_is_cancelled_by_the_client_that_blocks(plain: OpenAI) -> None:
    made = plain.responses.create(model="m", input="hang on", background=True)
    assert plain.responses.cancel(made.id).status == "cancelled"
    assert plain.responses.retrieve(made.id).status == "cancelled"
    done = plain.responses.create(model="m", input="hello")
    with pytest.raises(BadRequestError, match="Cannot cancel"):
        plain.responses.cancel(done.id)


@pytest.mark.parametrize("door", DOORS)
def test_what_goes_wrong_is_an_exception_of_the_sdk(plain: OpenAI, base: str, door: str) -> None:
    ask = DOORS[door]
    with pytest.raises(BadRequestError, match="must not be empty"):
        ask(plain, input="")
    with pytest.raises(BadRequestError, match="not found"):
        ask(plain, input="x", previous_response_id="resp_unknown")
    for key, error in (("wrong", AuthenticationError), (TOKENS["swarm"], PermissionDeniedError)):
        with OpenAI(base_url=base, api_key=key) as other, pytest.raises(error):
            ask(other, input="hello")
    if "stream" not in door:
        with pytest.raises(InternalServerError, match="out of tokens"):
            ask(plain, input="fail")


class Places:
    """The tools of an agent; ``broken`` makes one of them fail."""

    def __init__(self) -> None:
        self.broken = False
        self.asked: list[str] = []

    def tools(self) -> list[Any]:
        @function_tool
        def get_weather(city: str) -> str:
            """Look the weather up."""
            self.asked.append(city)
            if self.broken:
                raise ValueError("no such place")
            return f"cold in {city}"

        @function_tool
        def get_time(city: str) -> str:
            """Look the time up."""
            self.asked.append(city)
            return f"noon in {city}"

        return [get_weather, get_time]


def helper(client: AsyncOpenAI, places: Places) -> Agent[Any]:
    """Return an agent with these tools, whose model is the swarm."""
    return Agent(
        name="helper",
        tools=places.tools(),
        model_settings=ModelSettings(parallel_tool_calls=True),
        model=OpenAIResponsesModel(model="swarm", openai_client=client),
    )


async def finished(agent: Agent[Any], said: Any, *, streams: bool, **options: Any) -> Any:
    """Run an agent to its end, one way or the other."""
    if not streams:
        return await Runner.run(agent, said, run_config=QUIET, **options)
    result = Runner.run_streamed(agent, said, run_config=QUIET, **options)
    assert [event async for event in result.stream_events()]
    return result


@pytest.mark.parametrize("streams", [False, True])
async def test_an_agent_works_through_the_rounds(awaited: AsyncOpenAI, streams: bool) -> None:
    places = Places()
    agent = helper(awaited, places)
    result = await finished(agent, TRIP, streams=streams)
    assert result.final_output == PLAN
    assert places.asked == ["Oslo", "Rome", "Rome"]
    more = [*result.to_input_list(), {"role": "user", "content": "thanks"}]
    again = await finished(agent, more, streams=streams)
    assert "thanks" in again.final_output
    assert PLAN in again.final_output  # the conversation so far


@pytest.mark.parametrize("streams", [False, True])
async def test_an_agents_tool_that_fails_is_told_to_the_swarm(
    awaited: AsyncOpenAI, streams: bool
) -> None:
    places = Places()
    places.broken = True
    agent = helper(awaited, places)
    result = await finished(agent, TRIP, streams=streams)
    assert result.final_output.count("no such place") == 2


async def test_an_agents_run_that_fails_raises_the_sdks_error(awaited: AsyncOpenAI) -> None:
    agent = helper(awaited, Places())
    with pytest.raises(InternalServerError, match="out of tokens"):
        await finished(agent, "fail", streams=False)
