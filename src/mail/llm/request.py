"""The seam between agents and language models: what goes in, what comes out, and the port."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from mail.core.agents import ToolChoice
from mail.llm.settings import LLMSettings

__all__ = ["CallPiece", "ChatModel", "Delta", "ModelReply", "ModelRequest", "ToolCallDraft"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One question to a model.

    ``messages`` is an agent's history without the system prompt, ``tools`` are tool declarations
    in either style. With ``use_proxy`` the call goes to a LiteLLM proxy in the name of
    ``user_token``. ``step`` names the turn; it is the same text when the turn is run again.
    """

    model: str
    messages: Sequence[Mapping[str, Any]]
    system: str = ""
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: ToolChoice = "auto"
    settings: LLMSettings = field(default_factory=LLMSettings)
    use_proxy: bool = False
    user_token: str = field(default="", repr=False)
    step: str = ""


@dataclass(frozen=True, slots=True)
class CallPiece:
    """A piece of a tool call: pieces with the same ``index`` belong together."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """A piece of a reply as it streams in.

    ``thinking`` holds pieces of the provider's own thinking blocks, which must go back to it
    unchanged. ``restart`` says that the reply begins anew: the pieces so far came from an attempt
    that broke.
    """

    text: str = ""
    reasoning: str = ""
    thinking: tuple[Mapping[str, Any], ...] = ()
    calls: tuple[CallPiece, ...] = ()
    finish: str | None = None
    usage: Mapping[str, int] | None = None
    restart: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallDraft:
    """A tool call as the model wrote it; ``arguments`` is its text, which may be no JSON.

    ``reasoning`` and ``preamble`` are what the model thought and said since the call before.
    """

    id: str
    name: str
    arguments: str
    reasoning: tuple[str, ...] = ()
    preamble: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """A whole reply. ``reasoning`` is what was thought after the last call, or without any."""

    text: str = ""
    reasoning: tuple[str, ...] = ()
    thinking: tuple[Mapping[str, Any], ...] = ()
    calls: tuple[ToolCallDraft, ...] = ()
    finish: str | None = None
    usage: Mapping[str, int] | None = None


class ChatModel(Protocol):
    """A language model. A plain reply is `mail.llm.accumulate.collect` over the stream."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Ask the model and yield its reply piece by piece.

        Closing the generator, or cancelling the task that reads it, ends the call at once.

        Raises:
            ModelError: the call failed for good; the text is the provider's reason.
        """
