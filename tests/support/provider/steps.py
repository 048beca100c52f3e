"""Steps that only a provider can take: its built-in tools, hidden thoughts, ways to stop.

They stand in scripts beside `mail.llm.script.say` and ``call``::

    when(body="news").then(think("Look it up."), Search("news"), say("It rains."))
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from mail.llm.script import Call, Fail, Say, Think, call_text

__all__ = [
    "AnyStep",
    "Cited",
    "Found",
    "Held",
    "OutOfTokens",
    "PauseTurn",
    "ProviderStep",
    "Redacted",
    "Refuse",
    "RunCode",
    "Search",
    "arguments_of",
    "cut_arguments",
]


class ProviderStep:
    """A step of the provider's own.

    It is a sequence of itself, since `mail.llm.script.run_script` takes any sequence of steps.
    """

    __slots__ = ()

    def __iter__(self) -> Iterator[Self]:
        yield self


@dataclass(frozen=True, slots=True)
class Found:
    """A page that a search found."""

    title: str
    url: str


@dataclass(frozen=True, slots=True)
class Search(ProviderStep):
    """The built-in web search. Chat completions know none, so there it leaves no trace."""

    query: str
    results: Sequence[Found] = (Found("A page", "https://example.com/page"),)


@dataclass(frozen=True, slots=True)
class Cited(Say):
    """Text that Anthropic says the source of: a page that it found, else the request's document.

    Elsewhere it is just text.
    """

    page: Found | None = None


@dataclass(frozen=True, slots=True)
class RunCode(ProviderStep):
    """The built-in code interpreter; ``shell`` is the newer Anthropic tool, which runs bash."""

    code: str
    output: str
    shell: bool = False


@dataclass(frozen=True, slots=True)
class Redacted(ProviderStep):
    """A thought that Anthropic hides; nothing elsewhere."""

    text: str = "hidden"


@dataclass(frozen=True, slots=True)
class Refuse(ProviderStep):
    """The model declines, in these words, and stops."""

    text: str


@dataclass(frozen=True, slots=True)
class OutOfTokens(ProviderStep):
    """The reply is as long as the request allows, and stops here, whatever it was in the middle of.

    A call that it was in has such arguments as the script gives it: ``call_text("look_up", "")``.
    """


@dataclass(frozen=True, slots=True)
class PauseTurn(ProviderStep):
    """Anthropic pauses the turn; the steps that follow answer the request that continues it.

    With ``midway`` the result of the last built-in tool is held back and opens the next reply.
    Elsewhere nothing happens and the steps that follow belong to the same reply.
    """

    midway: bool = False


@dataclass(frozen=True, slots=True)
class Held(ProviderStep):
    """The result of a built-in tool that a pause held back: the provider's own doing."""

    block: dict[str, Any]


AnyStep = Say | Think | Call | Fail | ProviderStep


def arguments_of(step: Call) -> str:
    """Return a call's arguments as the model writes them."""
    return step.arguments if isinstance(step.arguments, str) else json.dumps(step.arguments)


def cut_arguments(steps: Sequence[AnyStep]) -> list[AnyStep]:
    """Return the steps with the last call's arguments broken off in the middle."""
    cut = list(steps)
    for at in range(len(cut) - 1, -1, -1):
        step = cut[at]
        if isinstance(step, Call):
            text = arguments_of(step)
            cut[at] = call_text(step.name, text[: max(1, len(text) // 2)])
            break
    return cut
