"""A provider that refuses what real ones refuse, in their words, before it answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiohttp import web

from tests.support.provider import FakeProvider, Fault

if TYPE_CHECKING:
    import pytest

    from tests.support.provider.record import Seen

__all__ = ["Answer", "Refusal", "RefusingProvider", "point_to"]


@dataclass(frozen=True)
class Answer:
    """What is answered in place of a reply; a ``body`` that is text goes out as an event stream."""

    status: int
    body: Mapping[str, Any] | str
    headers: Mapping[str, str] = field(default_factory=dict)


Refusal = Callable[[dict[str, Any]], Answer | None]
"""Looks at a request's body and says what it is answered, if it is refused."""


class RefusingProvider(FakeProvider):
    """The fake provider, with refusals of the test's own in front of it.

    ``answers`` are given to the next requests, whatever they are; ``refusals`` look at each.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.answers: list[Answer] = []
        self.refusals: list[Refusal] = []

    async def _answer(self, request: web.Request, seen: Seen, fault: Fault) -> web.StreamResponse:
        answer = self.answers.pop(0) if self.answers else self._refused(seen.body)
        if answer is None:
            return await super()._answer(request, seen, fault)
        seen.status = answer.status
        text, kind = answer.body, "text/event-stream"
        if not isinstance(text, str):
            text, kind = json.dumps(text), "application/json"
        headers = dict(answer.headers)
        return web.Response(text=text, status=answer.status, content_type=kind, headers=headers)

    def _refused(self, body: dict[str, Any]) -> Answer | None:
        found = (refusal(body) for refusal in self.refusals)
        return next((answer for answer in found if answer is not None), None)


def point_to(provider: FakeProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the environment point every provider's library to this one."""
    for name in _UNDER_V1:
        monkeypatch.setenv(f"{name}_API_BASE", provider.base_url)
        monkeypatch.setenv(f"{name}_API_KEY", f"sk-{name.lower()}-environment-key-0123456789")
    for name in _AT_ROOT:
        monkeypatch.setenv(f"{name}_API_BASE", provider.root_url)
        monkeypatch.setenv(f"{name}_API_KEY", f"sk-{name.lower()}-environment-key-0123456789")
    monkeypatch.setenv("OPENAI_BASE_URL", provider.base_url)


_UNDER_V1 = (
    *("DASHSCOPE", "DEEPSEEK", "GROQ", "HOSTED_VLLM", "LITELLM_PROXY", "MISTRAL", "MOONSHOT"),
    *("MISTRAL_AZURE", "NVIDIA_NIM", "OPENAI", "OPENROUTER", "XAI", "ZAI"),
)
_AT_ROOT = ("ANTHROPIC", "GEMINI")
