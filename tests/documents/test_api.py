"""The blocks of api.md that are programs: its imports, ``@action``, and the assembled swarm."""

import asyncio
import json
import sys
from dataclasses import asdict, dataclass
from typing import get_args, get_type_hints

from pydantic import BaseModel

import mail.api
import mail.core
from mail import (
    AgentToolCall,
    MAILAction,
    MAILAgent,
    MAILAgentTemplate,
    MAILBroadcast,
    MAILInterrupt,
    MAILMessage,
    MAILRequest,
    MAILResponse,
    MAILSwarm,
    MAILSwarmTemplate,
    action,
)
from mail.core import ActionCore, AgentCore
from mail.examples import weather_dummy
from tests.documents.support import missing_tests

BLOCKS = {
    "Imports and modules": (
        "test_imports_of_builder_classes test_imports_of_protocol_types "
        "test_imports_of_network_helpers "
        "test_imports_of_runtime_primitives"
    ),
    "`action` decorator (`mail.api`)": "test_action_decorator",
    "Example: programmatic swarm assembly": "test_programmatic_swarm_assembly",
}
"""The document's headings with blocks that are programs, and the tests that cover them."""


def test_table_names_every_test() -> None:
    assert missing_tests(BLOCKS, sys.modules[__name__]) == set()


def test_imports_of_builder_classes() -> None:
    for found in (MAILAgent, MAILAgentTemplate, MAILAction, MAILSwarm, MAILSwarmTemplate):
        assert getattr(mail.api, found.__name__) is found


def test_imports_of_protocol_types() -> None:
    for found in (MAILRequest, MAILResponse, MAILBroadcast, MAILInterrupt):
        assert found in get_args(get_type_hints(MAILMessage)["message"])
        assert {"task_id", "sender", "subject", "body"} <= set(found.__annotations__)
    assert {"tool_name", "tool_args", "tool_call_id"} <= set(AgentToolCall.model_fields)


def test_imports_of_network_helpers() -> None:
    from mail.net import InterswarmRouter, SwarmRegistry

    assert SwarmRegistry.__module__ == "mail.net.registry"
    assert InterswarmRouter.__module__ == "mail.net.router"


def test_imports_of_runtime_primitives() -> None:
    assert (AgentCore, ActionCore) == (mail.core.AgentCore, mail.core.ActionCore)


@dataclass
class Forecast:
    """What the document's look-up returns."""

    sky: str

    def json(self) -> str:
        return json.dumps(asdict(self))


def lookup_forecast(city: str) -> Forecast:
    return Forecast(sky=f"clear over {city}")


async def test_action_decorator() -> None:
    class WeatherRequest(BaseModel):
        city: str

    @action(description="Return weather information for the requested city.")
    async def get_weather(payload: WeatherRequest) -> str:
        forecast = lookup_forecast(payload.city)
        return forecast.json()

    weather_action = get_weather
    assert isinstance(weather_action, MAILAction)
    assert weather_action.name == "get_weather"
    assert weather_action.description == "Return weather information for the requested city."
    assert weather_action.parameters["required"] == ["city"]
    assert await weather_action.function({"city": "Oslo"}) == '{"sky": "clear over Oslo"}'


def test_programmatic_swarm_assembly() -> None:
    answers = []
    supervisor = MAILAgentTemplate.from_example("supervisor", comm_targets=["weather"])
    weather = MAILAgentTemplate.from_example("weather", comm_targets=["supervisor"])

    demo_template = MAILSwarmTemplate(
        name="demo-swarm",
        agents=[supervisor, weather],
        actions=[*supervisor.actions, *weather.actions],
        entrypoint="supervisor",
    )

    async def main() -> None:
        swarm = demo_template.instantiate(instance_params={}, user_id="demo-user")
        response, events = await swarm.post_message(
            subject="Forecast check",
            body="What's the outlook for tomorrow in New York?",
            show_events=True,
        )
        answers.append((response["message"]["body"], events))
        await swarm.shutdown()

    asyncio.run(main())

    [(answer, events)] = answers
    assert answer.startswith("Weather in New York, tomorrow:")
    called = [event.extra for event in events if event.kind == "tool_call"]
    forecasts = [each for each in called if each["tool_name"] == "get_weather_forecast"]
    assert [each["caller"] for each in forecasts] == ["weather"]
    assert weather_dummy.get_weather_forecast_action in demo_template.actions
