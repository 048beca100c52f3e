"""An agent's history read into exchanges, whatever formats its entries are in.

Entries are chat messages, chat messages whose content is a list of Anthropic blocks, and output
items of the Responses API; an agent whose model changes has them mixed. Every codec writes its own
format from the exchanges, so that each call has its one result right behind its reply.
"""

import hashlib
import json
import re
import string
import uuid
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic_core import from_json

from mail.core.render import labelled_mail
from mail.core.tools.call import INVALID_JSON_KEY
from mail.llm.ollama import chat_name
from mail.llm.profiles import PROXY_PREFIX, UNKNOWN, Profile
from mail.llm.request import FunctionCall, ModelRequest, Wire

SEALED_BY: Final = "mail_sealed_by"
"""The entry's key for the reader of its reasoning (`reader_of`); it is never sent."""
NO_RESULT = "ERROR: no result of this call was recorded"
_CUT_OFF = "(the reply was cut off before the arguments)"
_NO_ARGUMENTS = frozenset({"", "{}"})
_INVALID_SHOWN = 2000
_LONGEST_NAME = 64
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
_SIGNATURE: Final = "__thought__"
"""Begins the signature that LiteLLM hangs on the call ids of some models (Gemini)."""
_OPENAI: Final = "openai"
_LETTERS: Final = string.ascii_letters + string.digits
_HASHED_ID: Final = 37
_NINE: Final = re.compile(r"[a-zA-Z0-9]{9}")
_LEAVES = frozenset({str, int, float, bool, type(None)})


@dataclass(frozen=True, slots=True)
class Said:
    """A message that is no reply: the mail of an agent, above all."""

    message: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Replied:
    """A reply of the model: its entries as they are kept, its calls and their results.

    ``results`` has one text for each call, in the order of the calls.
    """

    wire: Wire
    entries: tuple[Mapping[str, Any], ...]
    calls: tuple[FunctionCall, ...]
    results: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text of the reply."""
        said = (entry for entry in self.entries if entry.get("type", "message") == "message")
        return "\n".join(filter(None, map(text_of, said)))


def plain_copy(value: Any) -> Any:
    """Copy JSON-like data deeply; mappings become dicts, tuples lists."""
    kind = type(value)
    if kind in _LEAVES:
        return value
    # To look at leaves here, too, makes it twice as fast: most of what it copies is one level deep.
    if kind is dict or isinstance(value, Mapping):
        return {k: v if type(v) in _LEAVES else plain_copy(v) for k, v in value.items()}
    if kind is list or isinstance(value, list | tuple):
        return [v if type(v) in _LEAVES else plain_copy(v) for v in value]
    return value


def text_of(message: Mapping[str, Any]) -> str:
    """Return the text of a message: its content, or the text parts of it."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, Sequence) else ()
    return "".join(
        str(part.get("text") or part.get("refusal") or "")
        for part in parts
        if isinstance(part, Mapping)
    )


def reader_of(request: ModelRequest) -> str:
    """Return who reads the reasoning in the replies to a request.

    That is its provider with the maker's name that a host has in front of the model's, or for a
    request through a proxy what the proxy's model stands for.
    """
    name = chat_name(request.model.removeprefix(PROXY_PREFIX))
    proxied = request.use_proxy or request.model.startswith(PROXY_PREFIX)
    provider, _, _ = name.rpartition("/")
    if not proxied:
        return provider or _OPENAI
    return PROXY_PREFIX + (provider or name)


def parse_arguments_text(text: str) -> dict[str, Any]:
    """Read a tool call's arguments; no text is no arguments.

    Returns:
        The arguments, or ``{INVALID_JSON_KEY: <the text, cut>}`` for anything but a JSON object
        that can be stored and sent: NaN, infinity, half characters and depths beyond reason too.
    """
    if not text.strip():
        return {}
    try:
        arguments = from_json(text)
        json.dumps(arguments, allow_nan=False)  # numbers too large are read as infinity
    except (ValueError, TypeError):  # the latter of text that UTF-8 cannot hold
        arguments = None
    if isinstance(arguments, dict):
        return arguments
    return {INVALID_JSON_KEY: text[:_INVALID_SHOWN].encode("utf-8", "replace").decode()}


def arguments_so_far(text: str) -> str:
    """Return the arguments of a call that was cut off: no JSON, so that it is not run like that.

    Some libraries write an empty object for arguments that never came.
    """
    return _CUT_OFF if text.strip() in _NO_ARGUMENTS else text


def written_arguments(text: str) -> str:
    """Return a call's arguments as the text of a JSON object, the model's own if it is one."""
    arguments = parse_arguments_text(text)
    if text.strip() and INVALID_JSON_KEY not in arguments:
        return text
    return json.dumps(arguments, ensure_ascii=False)


def written_name(name: str) -> str:
    """Return a tool's name as providers take it back, whatever the model called."""
    return _NOT_IN_NAMES.sub("_", name)[:_LONGEST_NAME] or "unnamed_tool"


def unique_id(call_id: str, seen: set[str]) -> str:
    """Return a call's id, or a new one if it has none or one that was seen; note it as seen.

    Some providers give no id, or the same one twice; results could not be told apart.
    """
    unique = call_id if call_id and call_id not in seen else f"call_{uuid.uuid4().hex}"
    seen.add(unique)
    return unique


def is_reply_item(entry: Mapping[str, Any]) -> bool:
    """Tell whether an entry is an output item of the Responses API."""
    kind = entry.get("type")
    if kind in (None, "function_call_output"):
        return False
    return kind != "message" or entry.get("role") == "assistant"


def _reply(entries: Sequence[Mapping[str, Any]]) -> Replied:
    """Read one reply: a message of the assistant, or output items of the Responses API."""
    message = entries[0]
    content = message.get("content")
    wire: Wire = "completions"
    made: list[tuple[Any, Any, Any]]
    if is_reply_item(message):
        wire = "responses"
        items = [item for item in entries if item.get("type") == "function_call"]
        made = [(item.get("call_id"), item.get("name"), item.get("arguments")) for item in items]
    elif isinstance(content, list) and not message.get("tool_calls"):
        wire = "anthropic"
        blocks = [block for block in content if isinstance(block, Mapping)]
        made = [
            (use.get("id"), use.get("name"), json.dumps(use.get("input") or {}, ensure_ascii=False))
            for use in blocks
            if use.get("type") == "tool_use"
        ]
    else:
        calls = [(call, call.get("function") or {}) for call in message.get("tool_calls") or ()]
        made = [(call.get("id"), of.get("name"), of.get("arguments")) for call, of in calls]
    found = tuple(FunctionCall(*(text or "" for text in call)) for call in made)
    return Replied(wire, tuple(entries), found)


def _result_id(message: Mapping[str, Any]) -> str | None:
    if message.get("role") == "tool":
        return str(message.get("tool_call_id") or "")
    if message.get("type") == "function_call_output":
        return str(message.get("call_id") or "")
    return None


def _result_text(message: Mapping[str, Any]) -> str:
    result = message.get("output") if message.get("type") else message.get("content")
    if isinstance(result, str):
        return result
    return text_of(message) or ("" if result is None else json.dumps(result, default=str))


def _sendable(reply: Replied, seen: dict[str, int], profile: Profile) -> Replied:
    """Return a reply whose calls a model takes back: legal ids not seen before, legal names."""
    marks = [(_fresh(call.id, seen, profile), written_name(call.name)) for call in reply.calls]
    if marks == [(call.id, call.name) for call in reply.calls]:
        return reply
    calls = tuple(
        replace(call, id=call_id, name=name)
        for call, (call_id, name) in zip(reply.calls, marks, strict=True)
    )
    given = iter(marks)
    entries = tuple(_renamed(entry, given) for entry in reply.entries)
    return Replied(reply.wire, entries, calls, reply.results)


def _fresh(call_id: str, seen: dict[str, int], profile: Profile) -> str:
    """Return an id as a model takes it, made from another; note how often it was asked for."""
    own, mark, signature = (call_id or "call").partition(_SIGNATURE)
    rest = mark + signature if profile.signed_ids else ""
    fresh = _legal(own, profile) + rest
    while fresh in seen:
        seen[call_id] = seen.get(call_id, 1) + 1
        fresh = _legal(f"{own}_{seen[call_id]}", profile) + rest
    seen[fresh] = 1
    return fresh


def _legal(call_id: str, profile: Profile) -> str:
    """Return an id in the shape that a provider takes; the same id becomes the same every time."""
    if profile.call_id == "nine" and _NINE.fullmatch(call_id) is None:
        number = int.from_bytes(hashlib.sha256(call_id.encode("utf-8", "replace")).digest()[:7])
        return "".join(_LETTERS[number // len(_LETTERS) ** at % len(_LETTERS)] for at in range(9))
    if len(call_id) > profile.longest_id:
        found = hashlib.sha256(call_id.encode("utf-8", "replace")).hexdigest()
        return f"call_{found}"[: min(profile.longest_id, _HASHED_ID)]
    return call_id


def _renamed(entry: Mapping[str, Any], marks: Iterator[tuple[str, str]]) -> dict[str, Any]:
    """Return an entry whose calls have the next of the ids and names."""
    renamed: dict[str, Any] = plain_copy(entry)
    if renamed.get("type") == "function_call":
        renamed["call_id"], renamed["name"] = next(marks)
        if _SIGNATURE in str(renamed.get("id")) and _SIGNATURE not in renamed["call_id"]:
            del renamed["id"]
    elif renamed.get("tool_calls"):
        for call in renamed["tool_calls"]:
            call["id"], name = next(marks)
            call["function"] = {**(call.get("function") or {}), "name": name}
    elif renamed.get("role") == "assistant" and isinstance(renamed.get("content"), list):
        for block in renamed["content"]:
            if block.get("type") == "tool_use":
                block["id"], block["name"] = next(marks)
    return renamed


def _groups(
    messages: Sequence[Mapping[str, Any]],
) -> Iterator[tuple[int, list[Mapping[str, Any]]]]:
    """Yield entries with their position; the output items of one reply come together."""
    items: list[Mapping[str, Any]] = []
    for position, entry in enumerate(messages):
        if is_reply_item(entry):
            items.append(entry)
            continue
        if items:
            yield position - 1, items
            items = []
        yield position, [entry]
    if items:
        yield len(messages) - 1, items


def conversation(
    messages: Sequence[Mapping[str, Any]], profile: Profile = UNKNOWN
) -> list[Said | Replied]:
    """Read a history into what was said and what the model replied.

    A result goes to the first call before it that has its id and no result yet; a call without
    one gets an error as its result. A result without a call becomes user text. Mail of other
    swarms is labelled. A call whose id came before gets another, and so does one whose id or name
    the provider would not take back.

    Args:
        messages: The history's entries.
        profile: The facts about the model that the history is for.
    """
    results: dict[str, deque[tuple[int, str]]] = {}
    for position, message in enumerate(messages):
        if (call_id := _result_id(message)) is not None:
            results.setdefault(call_id, deque()).append((position, _result_text(message)))
    taken: set[int] = set()
    seen: dict[str, int] = {}
    exchanges: list[Said | Replied] = []
    for position, entries in _groups(messages):
        entry = entries[0]
        if _result_id(entry) is not None:
            if position not in taken:
                text = f"Tool result: {_result_text(entry)}"
                exchanges.append(Said({"role": "user", "content": text}))
        elif is_reply_item(entry) or entry.get("role") == "assistant":
            reply = _reply(entries)
            for call in reply.calls:
                found = results.get(call.id, deque())
                while found and found[0][0] < position:
                    found.popleft()  # of an earlier call with this id
                at, text = found.popleft() if found else (-1, NO_RESULT)
                taken.add(at)
                reply.results.append(text)
            exchanges.append(_sendable(reply, seen, profile))
        else:
            content = entry.get("content")
            shown = labelled_mail(content) if isinstance(content, str) else content
            exchanges.append(Said(entry if shown is content else {**entry, "content": shown}))
    return exchanges
