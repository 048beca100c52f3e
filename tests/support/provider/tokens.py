"""What a reply costs, counted from its content, so that it is always the same."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mail.llm.script import Call, Say, Think
from mail.llm.scripted import words
from tests.support.provider.inbound import text_of
from tests.support.provider.record import Seen
from tests.support.provider.steps import AnyStep, Refuse, RunCode, Search, arguments_of

__all__ = ["Tokens", "UsageOf", "tokens_of"]

UsageOf = Callable[[Seen], tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Tokens of a call; the ``prompt`` has the ``cached`` ones, ``written`` has ``thought``."""

    prompt: int
    written: int
    cached: int = 0
    thought: int = 0

    @property
    def total(self) -> int:
        """Prompt and reply."""
        return self.prompt + self.written


def tokens_of(seen: Seen, steps: Sequence[AnyStep], override: UsageOf | None) -> Tokens:
    """Count: a token is four characters of the prompt, or a word of the reply.

    Whatever precedes the last reply in the history was sent before and counts as cached.
    """
    if override is not None:
        prompt, written = override(seen)
        return Tokens(prompt=prompt, written=written)
    chat = seen.conversation
    system = 0 if seen.wire == "completions" else len(chat.system) // 4
    sizes = [len(_content(message.get("content"))) // 4 for message in chat.messages]
    replies = [at for at, message in enumerate(chat.messages) if message.get("role") == "assistant"]
    return Tokens(
        prompt=system + sum(sizes),
        written=sum(len(words(_text(step))) for step in steps),
        cached=system + sum(sizes[: replies[-1]]) if replies else 0,
        thought=sum(len(words(step.text)) for step in steps if isinstance(step, Think)),
    )


def _content(content: object) -> str:
    return text_of(content) if isinstance(content, list) else str(content or "")


def _text(step: AnyStep) -> str:
    if isinstance(step, Call):
        return arguments_of(step)
    if isinstance(step, Say | Think | Refuse):
        return step.text
    if isinstance(step, Search):
        return step.query
    return step.code if isinstance(step, RunCode) else ""
