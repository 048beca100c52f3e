"""A scripted model that remembers what it was asked."""

from collections.abc import AsyncGenerator
from dataclasses import replace

from mail.llm.request import ChatModel, Delta, ModelRequest
from mail.llm.script import Script
from mail.llm.scripted import ScriptedModel

__all__ = ["RecordingModel"]


class RecordingModel:
    """A model that hands every question on and keeps a copy of it.

    Args:
        model: Who answers: a script (see `mail.llm.script`), or any other model.

    Attributes:
        requests: The questions so far, oldest first.
    """

    def __init__(self, model: Script | ChatModel) -> None:
        self._model: ChatModel = model if hasattr(model, "stream") else ScriptedModel(model)
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Reply as the model behind it; see `mail.llm.request.ChatModel.stream`."""
        messages = [dict(message) for message in request.messages]
        self.requests.append(replace(request, messages=messages))
        async for delta in self._model.stream(request):
            yield delta

    @property
    def shown(self) -> list[str]:
        """Every text that the model was shown, each once: prompts, mail and tool results."""
        found: dict[str, None] = {}
        for request in self.requests:
            found[request.system] = None
            for message in request.messages:
                if message.get("role") != "assistant":
                    found.update(dict.fromkeys(_texts(message)))
        return [text for text in found if text]


def _texts(message: object) -> list[str]:
    """Return the texts of an entry, whichever provider's format it has."""
    if isinstance(message, str):
        return [message]
    if isinstance(message, list):
        return [text for part in message for text in _texts(part)]
    if not isinstance(message, dict):
        return []
    fields = (message.get(name) for name in ("content", "text", "output"))
    return [text for field in fields for text in _texts(field)]
