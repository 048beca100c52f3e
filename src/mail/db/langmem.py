"""LangMem's memory manager, which has a model write the update of one memory. Imports LangChain."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, convert_to_openai_messages
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.utils.function_calling import convert_to_openai_tool
from langsmith import tracing_context
from pydantic import BaseModel, Field, PrivateAttr

from mail.errors import AgentError, ModelError

_MOST_CALLS: Final = 4
"""The number of calls for one update: LangMem lets a model mend a call that cannot be used."""

_MEMORY: Final = "preferences"

_ONLY_AWAITED: Final = (
    "this model answers in its event loop only: a call that waits for it there would never end; "
    "use `ainvoke`"
)


class Asked(NamedTuple):
    """A model's reply: its text, and its calls as (id, name, arguments)."""

    text: str
    calls: Sequence[tuple[str, str, Mapping[str, Any]]] = ()


Ask = Callable[[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]], Any], Awaitable[Asked]]
"""Asks a model: messages and tools as in OpenAI's chat completions, and the choice of a tool."""


class Preferences(BaseModel):
    """Preferences of a user on one subject, as lines of text."""

    lines: list[str] = Field(description="The lines in order. An empty text is an empty line.")


class _Model(BaseChatModel):
    """A model as LangChain sees one.

    LangMem tries again for ever when a call fails, so a failed call counts as an empty reply, and
    the failure is kept.
    """

    _ask: Ask = PrivateAttr()
    _left: int = PrivateAttr(_MOST_CALLS)
    _failure: Exception | None = PrivateAttr(None)
    _patched: bool = PrivateAttr(False)

    def __init__(self, ask: Ask) -> None:
        super().__init__()
        self._ask = ask

    @property
    def _llm_type(self) -> str:
        return "mail"

    @property
    def failure(self) -> Exception | None:
        """The error of the last call; None when there was none."""
        return self._failure

    @property
    def patched(self) -> bool:
        """Tell whether its last reply changes anything."""
        return self._patched

    def bind_tools(
        self,
        tools: Sequence[Any],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[Any, AIMessage]:
        """Offer tools, one of which may be forced."""
        declared = [convert_to_openai_tool(tool) for tool in tools]
        return self.bind(tools=declared, tool_choice=_choice(tool_choice), **kwargs)

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        raise RuntimeError(_ONLY_AWAITED)

    async def _agenerate(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> ChatResult:
        asked = await self._try(messages, kwargs)
        calls = [{"id": one, "name": name, "args": dict(given)} for one, name, given in asked.calls]
        reply = AIMessage(content=asked.text, tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=reply)])

    async def _try(self, messages: list[BaseMessage], options: Mapping[str, Any]) -> Asked:
        if self._left == 0:
            self._failure = ModelError("the model's replies could not be used")
            return Asked("")
        self._left -= 1
        listed = convert_to_openai_messages(messages)
        try:
            asked = await self._ask(
                listed,
                options.get("tools") or (),
                options.get("tool_choice") or "auto",
            )
        except (AgentError, ModelError) as error:
            self._failure = error
            return Asked("")
        self._failure = None
        self._patched = any(given.get("patches") != [] for _, _, given in asked.calls)
        return asked


def _choice(name: str | None) -> Any:
    if name in (None, "auto", "none"):
        return name
    if name in ("any", "required"):
        return "required"
    return {"type": "function", "name": name}


async def proposed_update(
    ask: Ask, current: str, messages: Sequence[Mapping[str, Any]], instructions: str
) -> str:
    """Have a model update a memory, and return the text that it proposes.

    Args:
        ask: Asks the model.
        current: The memory's text.
        messages: The conversation to learn from, as ``{"role", "content"}``.
        instructions: The instructions for the update.

    Raises:
        AgentError, ModelError: the model failed, or its replies could not be used.
    """
    from langmem import create_memory_manager  # the caller has loaded it in a thread

    model = _Model(ask)
    manager = create_memory_manager(
        model,
        schemas=[Preferences],
        instructions=instructions,
        enable_inserts=False,
        enable_updates=True,
        enable_deletes=False,
    )
    known = Preferences(lines=current.split("\n") if current else [])
    given = {"messages": list(messages), "existing": [(_MEMORY, "Preferences", known.model_dump())]}
    with tracing_context(enabled=False):  # what people write is for nobody else
        found = await manager.ainvoke(given)
    if model.failure is not None:
        raise model.failure
    for name, content in found:
        if name == _MEMORY and isinstance(content, Preferences):
            return "\n".join(content.lines)
    if model.patched:
        raise ModelError("the model's update does not fit the memory")
    return current
