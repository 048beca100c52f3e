"""The context of a turn for agent functions and actions, beside their arguments.

An agent function is called as ``function(messages, tool_choice)`` and nothing else, an action with
the model's arguments. Whoever needs more asks `current_call`: where token deltas go, which model or
system prompt this one call overrides, and on whose behalf the agent works.
"""

import sys
from collections.abc import Callable, Coroutine, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

from mail.core.usage import Usage
from mail.errors import ModelError


class StreamSink(Protocol):
    """A receiver of the text of a running model call, piece by piece."""

    def text(self, delta: str) -> None:
        """Take a piece of the answer."""

    def reasoning(self, delta: str) -> None:
        """Take a piece of the model's reasoning."""

    def restart(self) -> None:
        """Forget the pieces so far: the call failed and starts again."""

    def without_console(self) -> "StreamSink":
        """Return the same sink without what it prints."""


class NullSink:
    """Drops every piece."""

    def text(self, delta: str) -> None:
        """Drop it."""

    def reasoning(self, delta: str) -> None:
        """Drop it."""

    def restart(self) -> None:
        """Do nothing."""

    def without_console(self) -> StreamSink:
        """Return itself."""
        return self


class ConsoleSink:
    """Prints pieces to standard output as plain text (``print_llm_streams``)."""

    def text(self, delta: str) -> None:
        """Print a piece of the answer."""
        sys.stdout.write(delta)
        sys.stdout.flush()

    def reasoning(self, delta: str) -> None:
        """Print a piece of reasoning."""
        self.text(delta)

    def restart(self) -> None:
        """Print that the reply begins anew."""
        self.text("\n[the call failed and starts again]\n")

    def without_console(self) -> StreamSink:
        """Return a sink that prints nothing."""
        return NullSink()


async def _nowhere(text: str) -> None:
    """Keep nothing: no crash of this process is outlived."""


def _unreported(model: str, usage: Usage) -> None:
    """Nobody counts what the call uses."""


@dataclass(frozen=True, slots=True)
class ModelRules:
    """The models that an agent which was defined elsewhere may ask.

    ``providers`` are the providers; ``api_bases`` are hosts, addresses or networks that may be
    asked although they are not public (as in `mail.egress.rules.EgressPolicy.allow`).
    """

    providers: tuple[str, ...]
    api_bases: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class CallContext:
    """The surroundings of one agent call.

    ``llm`` and ``system`` override the agent's own model and prompt for this call only. ``step``
    identifies the turn: the same text when the turn is run again after a crash. ``report`` takes
    the name of a model and what one call to it used; ``waits`` takes the name of a model, how a
    call failed, the number of that attempt, and the seconds until the next. ``dynamic_ctx_ratio``
    is the share of the model's context above which older history is summarised (0: never).

    The caller of a run may lend its entrypoint tools of its own (``offered``, declarations of
    functions) and ``instructions``, which follow the system prompt. With ``only_offered`` the call
    must use one of the offered tools. ``models`` are the rules for the models of an agent that was
    defined elsewhere. ``max_reply_bytes`` is how much a model may reply at once.

    ``owner`` is the caller on whose behalf the agent works, as (swarm, role, id), and ``store`` the
    open `mail.db.store.Store` of the runtime; outside of a runtime there is neither. ``memories``
    are the texts of named memories that the caller has not changed.

    An idempotent action may write down how far it is: what it has given to ``note`` is stored when
    that returns, and replaces what it gave before. If a crash cuts the call off, the run that takes
    it up again reads it as ``noted``.
    """

    task_id: str = ""
    agent: str = ""
    step: str = ""
    sink: StreamSink = field(default_factory=NullSink)
    llm: str | None = None
    system: str | None = None
    report: Callable[[str, Usage], None] = _unreported
    waits: Callable[[str, ModelError, int, float], Coroutine[Any, Any, None]] | None = None
    dynamic_ctx_ratio: float = 0.0
    offered: tuple[Mapping[str, Any], ...] = ()
    instructions: str = ""
    only_offered: bool = False
    owner: tuple[str, str, str] | None = None
    store: Any = None
    memories: Mapping[str, str] = field(default_factory=dict)
    models: ModelRules | None = None
    max_reply_bytes: int | None = None
    noted: str = ""
    note: Callable[[str], Coroutine[Any, Any, None]] = _nowhere


_call: ContextVar[CallContext | Callable[[], CallContext] | None] = ContextVar(
    "mail_call", default=None
)


def current_call() -> CallContext:
    """Return the context of the running agent call.

    Outside of a runtime it is an empty one, whose pieces are printed: an agent that is called by
    hand and streams its tokens streams them to the terminal.
    """
    call = _call.get()
    if call is None:
        return CallContext(sink=ConsoleSink())
    return call if isinstance(call, CallContext) else call()


def enter_call(context: CallContext | Callable[[], CallContext]) -> None:
    """Make ``context`` current for the running asyncio task (each turn has a task of its own).

    Args:
        context: The context, or what returns it, the same each time, when somebody asks for it.
    """
    _call.set(context)
