"""The seam between agents and language models: what goes in, what comes out, and the port."""

import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, Protocol

from mail.core.agents import ToolChoice
from mail.core.usage import Usage
from mail.errors import ModelError
from mail.llm.settings import LLMSettings

ToolFormat = Literal["completions", "responses"]
"""The tool format that an agent asks for."""

Wire = Literal["completions", "responses", "anthropic"]
"""The format in which a reply came, and in which its history entry is kept."""


class Endpoint(NamedTuple):
    """The address and key of an agent's provider, if they are not the environment's.

    ``base`` is its address and ``key`` the environment variable with the key for it.
    """

    base: str = ""
    key: str = ""

    def arguments(self) -> dict[str, str]:
        """Return what a call is told; an address of its own never gets the key of another.

        Raises:
            ModelError: the variable is not set.
        """
        if not any(self):
            return {}
        key = os.environ.get(self.key) if self.key else NO_KEY
        if not key:
            raise ModelError(f"model call failed: {self.key} is not set", status=401)
        return {"api_base": self.base, "api_key": key} if self.base else {"api_key": key}


DEFAULT_ENDPOINT: Final = Endpoint()
NO_KEY: Final = "none"
"""Stands for no key: without any, LiteLLM takes the one of the environment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One question to a model.

    ``messages`` is an agent's history without the system prompt, in any mix of formats; ``tools``
    are tool declarations in either style (a `mail.llm.tools.ToolSet` is converted only once). With
    ``use_proxy`` the call goes to a LiteLLM proxy in the name of ``user_token``, with ``endpoint``
    to an address of the agent's own. ``profile`` are
    fields of the model's `mail.llm.profiles.Profile` that the agent sets itself. ``step`` names the
    turn; it is the same text when the turn is run again.
    """

    model: str
    messages: Sequence[Mapping[str, Any]]
    system: str = ""
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: ToolChoice = "auto"
    tool_format: ToolFormat = "completions"
    settings: LLMSettings = field(default_factory=LLMSettings)
    profile: Mapping[str, Any] = field(default_factory=dict)
    use_proxy: bool = False
    endpoint: Endpoint = DEFAULT_ENDPOINT
    user_token: str = field(default="", repr=False)
    step: str = ""


@dataclass(slots=True)
class CallPiece:
    """A piece of a tool call: pieces with the same ``index`` belong together.

    ``builtin`` marks a tool that the provider runs itself.
    """

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""
    builtin: bool = False


@dataclass(slots=True, kw_only=True)
class Delta:
    """A piece of a reply as it streams in.

    ``reasoning_done`` ends a block of reasoning, ``text_done`` one of text, whose sources are
    ``citations``. ``thinking`` holds pieces of the provider's own
    thinking blocks and ``results`` what its own tools found; both must go back to it unchanged.
    ``items`` are finished output items of the Responses format by their place in the reply, as the
    library gives them.
    ``restart`` says that the reply begins anew: the pieces so far came from an attempt that broke.
    """

    text: str = ""
    reasoning: str = ""
    reasoning_done: bool = False
    text_done: bool = False
    citations: tuple[Mapping[str, Any], ...] = ()
    thinking: tuple[Mapping[str, Any], ...] = ()
    calls: tuple[CallPiece, ...] = ()
    results: tuple[Mapping[str, Any], ...] = ()
    items: tuple[tuple[int, Any], ...] = ()
    wire: Wire | None = None
    finish: str | None = None
    usage: Usage | None = None
    restart: bool = False


@dataclass(frozen=True, slots=True)
class Thought:
    """A block of reasoning; ``native`` is the provider's own form of it, if it must go back."""

    text: str
    native: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Speech:
    """Text that the model wrote; ``native`` are the provider's blocks of it, if they must stay."""

    text: str
    native: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A call of one of the agent's tools; ``arguments`` is the model's text, maybe no JSON."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class BuiltinCall:
    """A call of a tool that the provider ran itself: its name in events, what is shown of it.

    ``native`` is the provider's own form of it.
    """

    id: str
    name: str
    shown: Mapping[str, Any]
    native: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BuiltinResult:
    """The result of a provider's own tool, as a block of the reply."""

    native: Mapping[str, Any]


Part = Thought | Speech | FunctionCall | BuiltinCall | BuiltinResult


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """A whole reply: its parts in the order in which the model made them.

    ``items`` are the output items of the Responses format, as they go into the history. ``maker``
    is who can read its reasoning, where that is known (see `mail.llm.history.reader_of`).
    """

    parts: tuple[Part, ...] = ()
    items: tuple[Mapping[str, Any], ...] = ()
    wire: Wire = "completions"
    finish: str | None = None
    usage: Usage | None = None
    maker: str = ""

    @property
    def text(self) -> str:
        """All text of the reply."""
        return "".join(part.text for part in self.parts if isinstance(part, Speech))

    @property
    def calls(self) -> tuple[FunctionCall, ...]:
        """The calls of the agent's own tools."""
        return tuple(part for part in self.parts if isinstance(part, FunctionCall))


class ChatModel(Protocol):
    """A language model. A plain reply is `mail.llm.ask.collect` over the stream."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Ask the model and yield its reply piece by piece.

        Closing the generator, or cancelling the task that reads it, ends the call at once.

        Raises:
            ModelError: the call failed for good; the text is the provider's reason.
        """
