"""A chat model for tests that keeps what it was asked, so that one can look at what was offered."""

from collections.abc import AsyncGenerator, Callable
from typing import Any

from mail import MAILAgentTemplate
from mail.core.render import PRIMER
from mail.factories import LiteLLMActionAgentFunction, LiteLLMSupervisorFunction
from mail.llm import ScriptedModel
from mail.llm.request import Delta, ModelRequest

__all__ = ["Asked", "boss_template", "worker_template"]


class Asked:
    """A scripted model whose requests can be read afterwards."""

    def __init__(self, script: Any) -> None:
        self.requests: list[ModelRequest] = []
        self._model = ScriptedModel(script)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Keep the request, then answer by the script."""
        self.requests.append(request)
        async for delta in self._model.stream(request):
            yield delta

    @property
    def system(self) -> str:
        """The system prompt of the newest request."""
        return self.requests[-1].system.removesuffix(PRIMER).rstrip()

    @property
    def tool_names(self) -> list[str]:
        """The tools of the newest request."""
        return [tool["function"]["name"] for tool in self.requests[-1].tools]

    def targets_of(self, tool: str) -> list[str]:
        """The targets that a tool of the newest request may be sent to."""
        for spec in self.requests[-1].tools:
            if spec["function"]["name"] == tool:
                found: list[str] = spec["function"]["parameters"]["properties"]["target"]["enum"]
                return found
        raise AssertionError(f"{tool} is not offered")


def _template(
    factory: Callable[..., Any], name: str, model: Asked, targets: list[str], **fields: Any
) -> MAILAgentTemplate:
    params = {"llm": "scripted", "model": model, "system": f"You are {name}."}
    return MAILAgentTemplate(
        name=name,
        factory=factory,
        comm_targets=targets,
        actions=fields.pop("actions", []),
        agent_params=params | fields.pop("agent_params", {}),
        **fields,
    )


def boss_template(model: Asked, targets: list[str], **fields: Any) -> MAILAgentTemplate:
    """Return a supervisor and entrypoint named boss."""
    flags = {"enable_entrypoint": True, "can_complete_tasks": True} | fields
    return _template(LiteLLMSupervisorFunction, "boss", model, targets, **flags)


def worker_template(
    name: str, model: Asked, targets: list[str], **fields: Any
) -> MAILAgentTemplate:
    """Return a worker."""
    return _template(LiteLLMActionAgentFunction, name, model, targets, **fields)
