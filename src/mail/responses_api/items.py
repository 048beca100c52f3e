"""Input items: what was said, called and answered, read once and in order; and what is wrong."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mail.errors import ProtocolError


class ResponsesError(ProtocolError):
    """A request that cannot be carried out as it is; nothing was started.

    Args:
        message: The message to change.
        param: The field that is wrong, for example ``input[2].content``.
        code: OpenAI's code for it, if there is one.
    """

    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class NoSuchResponse(ResponsesError):
    """The caller has no response of this id."""

    def __init__(self, response_id: str) -> None:
        shown = response_id[:80]
        super().__init__(f"Response with id '{shown}' not found.", "response_id")


class NoSuchModel(ResponsesError):
    """The server serves no swarm of this name."""

    def __init__(self, name: str) -> None:
        text = f"The model '{name[:80]}' does not exist."
        super().__init__(text, "model", "model_not_found")


_ROLES: Final = ("user", "assistant", "system", "developer")
_TEXT_PARTS: Final = ("input_text", "output_text", "text")
_EARLIER: Final = "The conversation so far:"
_NEWEST: Final = "The newest message:"


@dataclass(frozen=True, slots=True)
class Said:
    """A message of the user's or the assistant's."""

    role: str
    text: str

    def __str__(self) -> str:
        return f"{self.role}: {self.text}"


@dataclass(frozen=True, slots=True)
class Call:
    """A ``function_call`` item: the swarm asked the caller to run a function."""

    call_id: str
    name: str
    arguments: str
    item_id: str | None

    def __str__(self) -> str:
        return f"assistant called {self.name}({self.arguments}) as {self.call_id}"


@dataclass(frozen=True, slots=True)
class Answer:
    """A ``function_call_output`` item."""

    call_id: str
    output: str

    def __str__(self) -> str:
        return f"result of {self.call_id}: {self.output}"


Entry = Said | Call | Answer


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a conversation, which is what a request is about.

    Attributes:
        earlier: The items before it.
        answers: The results that the caller brings, with any calls between them in ``calls``.
        words: The user's messages at the very end.
    """

    earlier: tuple[Entry, ...]
    calls: tuple[Call, ...]
    answers: tuple[Answer, ...]
    words: str


@dataclass(frozen=True, slots=True)
class Conversation:
    """The input: ``system`` has the texts of system and developer messages."""

    entries: tuple[Entry, ...]
    system: str = ""

    @property
    def tail(self) -> Tail:
        """Take the conversation apart from its end."""
        said = self._start_of_words()
        told = said
        while told and isinstance(self.entries[told - 1], Call | Answer):
            told -= 1
        block = self.entries[told:said]
        return Tail(
            earlier=self.entries[:told],
            calls=tuple(entry for entry in block if isinstance(entry, Call)),
            answers=tuple(entry for entry in block if isinstance(entry, Answer)),
            words=_words(self.entries[said:]),
        )

    def as_text(self) -> str:
        """Return the whole conversation as one message, for a task that knows nothing of it."""
        said = self._start_of_words()
        words = _words(self.entries[said:])
        earlier = self.entries[:said] if words else self.entries
        if not earlier:
            return words
        told = "\n\n".join(map(str, earlier))
        newest = f"\n\n{_NEWEST}\n\n{words}" if words else ""
        return f"{_EARLIER}\n\n{told}{newest}"

    def _start_of_words(self) -> int:
        """Return where the user's messages at the end begin."""
        at = len(self.entries)
        while at and isinstance(last := self.entries[at - 1], Said) and last.role == "user":
            at -= 1
        return at


def _words(entries: Sequence[Entry]) -> str:
    return "\n\n".join(entry.text for entry in entries if isinstance(entry, Said))


def read_input(value: str | Sequence[Any]) -> Conversation:
    """Read ``input``: text, or a list of items.

    Raises:
        ResponsesError: it is empty, or an item has another shape or a kind that is not supported.
    """
    if isinstance(value, str):
        if not value.strip():
            raise ResponsesError("'input' must not be empty.", "input")
        return Conversation((Said("user", value),))
    if not value:
        raise ResponsesError("'input' must not be empty.", "input")
    entries: list[Entry] = []
    system: list[str] = []
    for index, item in enumerate(value):
        where = f"input[{index}]"
        if not isinstance(item, Mapping):
            raise ResponsesError(f"Invalid type for '{where}': expected an object.", where)
        entry = _entry(item, where)
        if isinstance(entry, Said) and entry.role in ("system", "developer"):
            system.append(entry.text)
        elif entry is not None:
            entries.append(entry)
    return Conversation(tuple(entries), "\n\n".join(filter(None, system)))


def _entry(item: Mapping[str, Any], where: str) -> Entry | None:
    kind = item.get("type") or "message"
    if kind == "message":
        return _message(item, where)
    if kind == "function_call":
        item_id = item.get("id")
        return Call(
            _text_of(item, "call_id", where),
            _text_of(item, "name", where),
            _text_of(item, "arguments", where),
            item_id if isinstance(item_id, str) else None,
        )
    if kind == "function_call_output":
        return Answer(_text_of(item, "call_id", where), _output(item.get("output"), where))
    if kind == "reasoning":
        return None  # a model's own, and none of the swarm's
    raise ResponsesError(
        f"Items of type {kind!r} are not supported.", f"{where}.type", "invalid_value"
    )


def _message(item: Mapping[str, Any], where: str) -> Said:
    role = item.get("role")
    if role not in _ROLES:
        raise ResponsesError(
            f"Invalid value for '{where}.role': {role!r}; expected one of {', '.join(_ROLES)}.",
            f"{where}.role",
            "invalid_value",
        )
    return Said(role, _content(item.get("content"), f"{where}.content"))


def _output(output: object, where: str) -> str:
    if isinstance(output, list):
        return _content(output, f"{where}.output")
    if isinstance(output, str):
        return output
    if output is None:
        raise ResponsesError(f"Missing required parameter: '{where}.output'.", f"{where}.output")
    return json.dumps(output, ensure_ascii=False)


def _content(content: object, where: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise ResponsesError(f"Invalid type for '{where}': expected a string or a list.", where)
    return "\n".join(_part(part, f"{where}[{index}]") for index, part in enumerate(content))


def _part(part: object, where: str) -> str:
    if isinstance(part, Mapping):
        kind = part.get("type")
        if kind == "refusal":
            return str(part.get("refusal") or "")
        text = part.get("text")
        if kind in _TEXT_PARTS and isinstance(text, str):
            return text
        if kind not in _TEXT_PARTS:
            raise ResponsesError(
                f"Parts of type {kind!r} are not supported; only text.", f"{where}.type"
            )
    raise ResponsesError(f"Invalid type for '{where}': expected a part with text.", where)


def _text_of(item: Mapping[str, Any], name: str, where: str) -> str:
    value = item.get(name)
    if not isinstance(value, str) or (not value and name != "arguments"):
        raise ResponsesError(f"'{where}.{name}' must be a string.", f"{where}.{name}")
    return value
