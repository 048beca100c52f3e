"""A swarm with a desk and a clerk, whose models follow a script and report what they use."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from mail.api import MAILAgentTemplate, MAILSwarmTemplate
from mail.core.usage import Usage
from mail.factories.base import LiteLLMAgentFunction
from mail.factories.supervisor import LiteLLMSupervisorFunction
from mail.llm.request import Delta, ModelRequest
from mail.llm.script import Steps, call, fail
from mail.llm.script_view import ScriptView
from mail.testing import RecordingModel
from tests.server.kit import config

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Look the weather up.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}
TIME = {**WEATHER, "name": "get_time", "description": "Look the time up."}
PER_CALL = Usage(
    prompt_tokens=80, completion_tokens=20, total_tokens=100, cached_tokens=7, reasoning_tokens=3
)
DEBUG = config(shutdown_grace=0.5).model_copy(update={"debug": True})


@dataclass(eq=False)
class Desk:
    """What the desk does with a message; ``gate`` holds a message that says ``hang``."""

    gate: asyncio.Event = field(default_factory=asyncio.Event)
    entered: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, view: ScriptView) -> Steps:
        if view.forced == "task_complete":
            return call("task_complete", finish_message="told to finish")
        if view.forced:
            return call(view.forced, city="Forced")
        looked_up = [found for found in view.new_results if found.tool.startswith("get_")]
        if looked_up:
            heard = " and ".join(found.content for found in looked_up)
            return call("task_complete", finish_message=f"It is {heard}.")
        if view.sender == "clerk":
            return call("task_complete", finish_message=f"The clerk says: {view.body}")
        return await self._answer(view)

    async def _answer(self, view: ScriptView) -> Steps:
        body = view.body
        if "hang" in body:
            self.entered.set()
            await self.gate.wait()
        if "fail" in body:
            return fail("the provider is out of tokens")
        if "clerk" in body:
            return call("send_request", target="clerk", subject="Help", body=body)
        if "tools" in body:
            return call("task_complete", finish_message=" ".join(sorted(view.tools)))
        if "prompt" in body:
            return call("task_complete", finish_message=view.system)
        cities = [word.strip("?.") for word in body.split() if word[0].isupper()][1:]
        if "weather" in body and {"get_weather", "get_time"} & set(view.tools):
            tool = "get_weather" if "get_weather" in view.tools else "get_time"
            return [call(tool, city=city) for city in cities]
        return call("task_complete", finish_message=f"You said: {body}")

    async def clerk(self, view: ScriptView) -> Steps:
        """Answer whoever asks; ``slowly`` takes until the gate opens."""
        if "slowly" in view.body:
            await self.gate.wait()
        return call("send_response", target="desk", subject="Re", body=f"filed {view.body!r}")


class Metered:
    """A model that reports `PER_CALL` for each call."""

    def __init__(self, model: RecordingModel) -> None:
        self._model = model

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        async for delta in self._model.stream(request):
            yield delta
        yield Delta(usage=PER_CALL)


@dataclass(eq=False)
class Office:
    """The swarm's template, and the desk's model."""

    desk: Desk = field(default_factory=Desk)
    model: RecordingModel = field(init=False)
    template: MAILSwarmTemplate = field(init=False)

    def __post_init__(self) -> None:
        self.model = RecordingModel(self.desk)
        self.template = MAILSwarmTemplate(
            name="test-swarm",
            agents=[
                self._agent("desk", LiteLLMSupervisorFunction, self.model, leads=True),
                self._agent(
                    "clerk", LiteLLMAgentFunction, RecordingModel(self.desk.clerk), leads=False
                ),
            ],
            entrypoint="desk",
        )

    def _agent(self, name: str, factory: Any, model: Any, *, leads: bool) -> MAILAgentTemplate:
        return MAILAgentTemplate(
            name=name,
            factory=factory,
            comm_targets=["clerk" if leads else "desk"],
            actions=[],
            agent_params={"llm": "scripted", "model": Metered(model), "system": f"I am {name}."},
            enable_entrypoint=leads,
            can_complete_tasks=leads,
            tool_format="completions",
        )
