"""Histories in all formats, and what sums them up: for the tests of splitting and compression."""

import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from pydantic_core import to_json

from mail.llm.compress import Compressor
from mail.llm.request import Delta, ModelRequest
from mail.llm.script import Step
from mail.llm.scripted import ScriptedModel

if TYPE_CHECKING:
    from mail.core.usage import Usage

Entry = dict[str, Any]

SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "hi"}


def chat(*ids: str) -> list[Entry]:
    function = {"name": "look_up", "arguments": "{}"}
    calls = [{"id": call_id, "type": "function", "function": function} for call_id in ids]
    return [{"role": "assistant", "content": "text", **({"tool_calls": calls} if calls else {})}]


def blocks(*ids: str) -> list[Entry]:
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    uses = [{"type": "tool_use", "id": call_id, "name": "look_up", "input": {}} for call_id in ids]
    content = [thought, {"type": "text", "text": "text"}, *uses]
    return [{"role": "assistant", "content": content}]


def items(*ids: str) -> list[Entry]:
    said = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "text"}],
    }
    found = {"type": "web_search_call", "id": "ws", "status": "completed"}
    made: list[Entry] = [{"type": "reasoning", "id": "rs", "summary": []}, found, said]
    for call_id in ids:
        made.append({"type": "reasoning", "id": f"rs_{call_id}", "summary": []})
        made.append(
            {"type": "function_call", "call_id": call_id, "name": "look_up", "arguments": "{}"}
        )
    return made


def answer(style: Any, call_id: str) -> Entry:
    if style is items:
        return {"type": "function_call_output", "call_id": call_id, "output": f"of {call_id}"}
    return {
        "role": "tool",
        "name": "look_up",
        "content": f"of {call_id}",
        "tool_call_id": call_id,
    }


def replied(entry: Entry) -> bool:
    kind = entry.get("type")
    return entry.get("role") == "assistant" or kind not in (None, "function_call_output")


@st.composite
def histories(draw: st.DrawFn) -> list[Entry]:
    """Valid histories of all formats: mail, a reply, its results, some of them late or missing."""
    history: list[Entry] = [SYSTEM] if draw(st.booleans()) else []
    late: list[Entry] = []
    for turn in range(draw(st.integers(0, 7))):
        history += [USER] * draw(st.integers(0 if history and history[-1] != SYSTEM else 1, 2))
        if late and draw(st.booleans()):
            history.append(late.pop())
        style = draw(st.sampled_from([chat, blocks, items]))
        ids = [f"c{turn}{n}" for n in range(draw(st.integers(0, 3)))]
        if replied(history[-1]):  # two replies never follow one another
            history.append(USER)
        history += style(*ids)
        for call_id in draw(st.permutations(ids)):
            fate = draw(st.sampled_from(["now", "now", "now", "late", "never"]))
            if fate == "now":
                history.append(answer(style, call_id))
            elif fate == "late":
                late.append(answer(style, call_id))
    return history


# --- for compression ---

KEY = ("task", "agent")
LENGTH = 4000
RATIO = 0.25
LIMIT = 1000


def count(model: str, text: str) -> int:
    """Four bytes are a token; counting on the event loop is a mistake."""
    assert threading.current_thread() is not threading.main_thread()
    return len(text.encode()) // 4


class Writer:
    """A model that sums up, counts its summaries and keeps the requests for them."""

    def __init__(self, *steps: Step | str) -> None:
        self.steps = list(steps)
        self.asked: list[ModelRequest] = []
        self.usage: Usage | None = None
        self.before: Callable[[], Awaitable[None]] | None = None
        self._model = ScriptedModel(lambda _: self.steps.pop(0) if self.steps else self.made())

    def made(self) -> str:
        return f"summary {len(self.asked)}"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        self.asked.append(request)
        if self.before is not None:
            await self.before()
        async for delta in self._model.stream(request):
            yield delta
        if self.usage is not None:
            yield Delta(usage=self.usage)

    @property
    def texts(self) -> list[str]:
        return [request.messages[0]["content"] for request in self.asked]


def compressor(length: int | None = LENGTH, **options: Any) -> Compressor:
    return Compressor(lambda _: length, count, **options)


def exchange(number: int, words: int = 60) -> list[Entry]:
    """Return mail, a reply with a call, and its result: about ``words * 4`` tokens."""
    call_id = f"c{number}"
    return [
        {"role": "user", "content": f"mail {number} " + "mail " * words},
        *chat(call_id),
        answer(chat, call_id) | {"content": f"result {number} " + "found " * words},
    ]


def talk(exchanges: int, words: int = 60) -> list[Entry]:
    return [entry for number in range(exchanges) for entry in exchange(number, words)]


def tokens(request: ModelRequest) -> int:
    return len(to_json(list(request.messages))) // 4
