"""Named memories outside of a server: read them, and have LangMem update them.

They work with any LangGraph store: LangGraph's own, and `mail.utils.store.get_langmem_store`. With
that one, the namespace ``(swarm, name)`` holds the memories that ``/memories`` shows. The functions
that begin with ``a`` are for code in an event loop, such as agent functions. Docs:
``docs/memory.md``.
"""

import asyncio
import importlib
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from mail.core.call_context import NullSink
from mail.db.preferences import PREFERENCE_KEY
from mail.errors import ProtocolError
from mail.llm.ask import ask
from mail.llm.history import parse_arguments_text
from mail.llm.request import ChatModel, ModelRequest
from mail.llm.resolve import model_for
from mail.services.learning import UPDATE_INSTRUCTIONS, Propose, update_problem
from mail.services.preferences import check_memory_text, memory_text, memory_value

if TYPE_CHECKING:
    from mail.db.langmem import Ask

T = TypeVar("T")

MEMORY_UPDATE_INSTRUCTIONS: Final = UPDATE_INSTRUCTIONS
"""The instructions for a model that updates a memory."""


class GraphStore(Protocol):
    """The methods needed of LangGraph's ``BaseStore``."""

    async def aget(self, namespace: tuple[str, ...], key: str) -> Any:
        """Return an item with a ``value``, or None."""

    async def aput(self, namespace: tuple[str, ...], key: str, value: dict[str, Any]) -> None:
        """Store a value."""


async def aget_memory(
    store: GraphStore, namespace: tuple[str, ...], default_content: str | None = None
) -> str:
    """Return the text of a memory.

    Args:
        store: A LangGraph store.
        namespace: The path of the memory, such as ``("email_assistant", "cal_preferences")``.
        default_content: The result when there is none; it is not stored.
    """
    item = await store.aget(namespace, PREFERENCE_KEY)
    text = None if item is None else memory_text(item.value)
    return (default_content or "") if text is None else text


async def aupdate_memory(
    store: GraphStore,
    namespace: tuple[str, ...],
    messages: Sequence[Mapping[str, Any]],
    default_content: str | None = None,
    *,
    model: str | ChatModel,
    instructions: str = MEMORY_UPDATE_INSTRUCTIONS,
) -> str:
    """Let a model update a memory with what messages teach, and return its text.

    Args:
        store: A LangGraph store.
        namespace: The path of the memory.
        messages: As ``{"role", "content"}``.
        default_content: The text that is updated when there is no memory yet.
        model: A model's name, or a `mail.llm.ChatModel`.
        instructions: The instructions for the model.

    Raises:
        ProtocolError: the update was refused, see `mail.services.learning.update_problem`; the
            memory is as it was.
        AgentError, ModelError: the model failed.
        ConfigError: the model's name is wrong.
    """
    known = await aget_memory(store, namespace, default_content)
    updated = check_memory_text(await proposer(model, instructions)(known, messages))
    if updated == known:
        return known
    problem = update_problem(known, updated)
    if problem is not None:
        raise ProtocolError(f"the memory stays as it is: {problem}")
    await store.aput(namespace, PREFERENCE_KEY, memory_value(updated))
    return updated


def get_memory(
    store: GraphStore, namespace: tuple[str, ...], default_content: str | None = None
) -> str:
    """Do what `aget_memory` does, where no event loop runs."""
    return _run(aget_memory(store, namespace, default_content), "aget_memory")


def update_memory(
    store: GraphStore,
    namespace: tuple[str, ...],
    messages: Sequence[Mapping[str, Any]],
    default_content: str | None = None,
    *,
    model: str | ChatModel,
    instructions: str = MEMORY_UPDATE_INSTRUCTIONS,
) -> str:
    """Do what `aupdate_memory` does, where no event loop runs."""
    work = aupdate_memory(
        store, namespace, messages, default_content, model=model, instructions=instructions
    )
    return _run(work, "aupdate_memory")


def _run(work: Coroutine[Any, Any, T], other: str) -> T:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    work.close()
    raise RuntimeError(f"this would block the running event loop; use 'await {other}(...)' here")


def proposer(
    model: str | ChatModel,
    instructions: str = MEMORY_UPDATE_INSTRUCTIONS,
    *,
    use_proxy: bool = False,
) -> Propose:
    """Return what has LangMem and a model propose updates.

    Args:
        model: A model's name, or a `mail.llm.ChatModel`.
        instructions: The instructions for the model.
        use_proxy: Whether calls go through the LiteLLM proxy.

    Raises:
        ConfigError: the model's name is wrong.
    """
    name = model if isinstance(model, str) else "memory"
    asked = _asked_by(model_for(model) if isinstance(model, str) else model, name, use_proxy)

    async def propose(current: str, messages: Sequence[Mapping[str, Any]]) -> str:
        langmem = await asyncio.to_thread(_load)
        text: str = await langmem.proposed_update(asked, current, messages, instructions)
        return text

    return propose


def _load() -> Any:
    """Import what LangMem needs, which takes seconds, and return our module over it."""
    importlib.import_module("langmem")
    return importlib.import_module("mail.db.langmem")


def _asked_by(model: ChatModel, name: str, use_proxy: bool) -> "Ask":
    """Return a model as LangMem asks it."""

    async def asked(
        messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], choice: Any
    ) -> Any:
        system = [str(each["content"]) for each in messages if each.get("role") == "system"]
        request = ModelRequest(
            model=name,
            messages=[each for each in messages if each.get("role") != "system"],
            system="\n\n".join(system),
            tools=tools,
            tool_choice=choice,
            use_proxy=use_proxy,
        )
        reply = await ask(model, request, NullSink(), lambda name, usage: None)
        calls = [(one.id, one.name, parse_arguments_text(one.arguments)) for one in reply.calls]
        return _load().Asked(reply.text, calls)

    return asked
