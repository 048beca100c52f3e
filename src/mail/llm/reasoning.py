"""Reasoning and preamble go with the call that follows them (CHECKLIST.md, steps 7 and 8)."""

from collections.abc import Sequence
from dataclasses import dataclass

from mail.llm.request import BuiltinCall, BuiltinResult, FunctionCall, Part, Speech, Thought

__all__ = ["Attributed", "attributed"]


@dataclass(frozen=True, slots=True)
class Attributed:
    """A call with what the model thought and said since the call before it."""

    call: FunctionCall | BuiltinCall
    reasoning: tuple[str, ...]
    preamble: str


def attributed(parts: Sequence[Part]) -> tuple[list[Attributed], tuple[str, ...], str]:
    """Attribute reasoning and text to calls in one pass.

    Returns:
        The calls, and the reasoning and the text after the last of them.
    """
    calls: list[Attributed] = []
    reasoning: list[str] = []
    said: list[str] = []
    for part in parts:
        match part:
            case Thought(text=text):
                if text.strip():
                    reasoning.append(text)
            case Speech(text=text):
                said.append(text)
            case FunctionCall() | BuiltinCall():
                preamble = "\n".join(text.strip() for text in said if text.strip())
                calls.append(Attributed(part, tuple(reasoning), preamble))
                reasoning.clear()
                said.clear()
            case BuiltinResult():
                pass
    return calls, tuple(reasoning), "".join(said)
