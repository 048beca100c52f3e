"""What the tests of the model layer share: a tool, a sink that remembers, a request."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mail.llm.profiles import Profile
from mail.llm.request import ModelRequest
from mail.llm.settings import LLMSettings

if TYPE_CHECKING:
    from collections.abc import Callable

TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "parameters": {
            "type": "object",
            "properties": {"word": {"type": "string"}},
            "required": ["word"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}

BUDGET = Profile(
    thinks="asked",
    effort_via="thinking_budget",
    forced_any="unless_thinking",
    forced_named="off",
    send_back="thinking",
)
"""A model that thinks within a budget, over chat completions."""
REASONS = Profile(wire="responses", thinks="asked", effort_via="reasoning", send_back="always")
CLAUDE = replace(BUDGET, wire="anthropic", signed=True, cache_marks=True)
CLAUDE_UNMARKED = replace(CLAUDE, cache_marks=False)
CLAUDE_MUTE = Profile(wire="anthropic", effort_via="none", signed=True, cache_marks=True)
CLAUDE_BY_CHAT = replace(BUDGET, signed=True)
ADAPTS = replace(CLAUDE, effort_via="adaptive")


class Recorder:
    """A sink that keeps what it gets, and can tell when it got so much."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.thoughts: list[str] = []
        self.on_text: Callable[[], None] = lambda: None

    def text(self, delta: str) -> None:
        self.texts.append(delta)
        self.on_text()

    def reasoning(self, delta: str) -> None:
        self.thoughts.append(delta)

    def restart(self) -> None:
        self.texts.clear()
        self.thoughts.clear()

    def without_console(self) -> Recorder:
        return self


def ask(body: str = "hi", **changes: object) -> ModelRequest:
    """Return a request with one user message and one tool."""
    values: dict[str, object] = {
        "model": "openai/fake",
        "messages": [{"role": "user", "content": body}],
        "system": "Be brief.",
        "tools": [TOOL],
        "tool_choice": "required",
        "settings": LLMSettings(timeout=5.0, deadline=20.0),
    }
    return ModelRequest(**(values | changes))  # type: ignore[arg-type]
