"""The swarm as the model of agents made with OpenAI's `openai-agents` package."""

from typing import Any

import pytest
from agents import Agent, ModelSettings, OpenAIResponsesModel, RunConfig, Runner, function_tool
from openai import AsyncOpenAI

QUIET = RunConfig(tracing_disabled=True)


@function_tool
def get_weather(city: str) -> str:
    """Look the weather up."""
    return f"cold in {city}"


@pytest.fixture
async def agent(openai: AsyncOpenAI) -> Agent[Any]:
    """An agent with a tool, whose model is the swarm."""
    return Agent(
        name="helper",
        instructions="Help.",
        tools=[get_weather],
        model_settings=ModelSettings(parallel_tool_calls=True),
        model=OpenAIResponsesModel(model="swarm", openai_client=openai),
    )


async def test_an_agent_runs_its_tools_for_the_swarm(agent: Agent[Any]) -> None:
    result = await Runner.run(agent, "The weather in Oslo and Rome?", run_config=QUIET)
    assert result.final_output == "It is cold in Oslo and cold in Rome."
    more = [*result.to_input_list(), {"role": "user", "content": "The weather in Bonn?"}]
    again = await Runner.run(agent, more, run_config=QUIET)  # type: ignore[arg-type]
    assert "cold in Bonn" in again.final_output


async def test_an_agent_streams(agent: Agent[Any]) -> None:
    result = Runner.run_streamed(agent, "The weather in Oslo?", run_config=QUIET)
    seen = [event async for event in result.stream_events()]
    assert result.final_output == "It is cold in Oslo."
    raw = [event.data.type for event in seen if event.type == "raw_response_event"]
    assert "response.function_call_arguments.delta" in raw
    assert "response.output_text.delta" in raw


async def test_an_agent_hands_over_to_another_over_the_same_swarm(agent: Agent[Any]) -> None:
    def transfer(_context: Any) -> Agent[Any]:
        return agent

    front = Agent(name="front", instructions="Front.", handoffs=[agent], model=agent.model)
    result = await Runner.run(front, "hello", run_config=QUIET)
    assert result.final_output == "You said: hello"
