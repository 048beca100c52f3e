"""What the provider itself wrote earlier, which histories must give back as it was."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["Issued", "Mark", "mark_of"]

Mark = tuple[str, ...]
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")


class Issued:
    """The replies sent so far: Anthropic's by the ids of their calls, Responses' by item ids."""

    def __init__(self) -> None:
        self._blocks: dict[str, tuple[Mark, ...]] = {}
        self._items: dict[str, tuple[str, ...]] = {}
        self._owners: dict[str, str] = {}
        self._prefixes: dict[tuple[str, str], set[str]] = {}

    def note_blocks(self, blocks: Sequence[dict[str, Any]]) -> None:
        """Remember a reply of Anthropic content blocks."""
        marks = [mark_of(block) for block in blocks]
        while marks and "thinking" in marks[-1][0]:  # no message may end in a thought
            marks.pop()
        for block in blocks:
            if "id" in block:
                self._blocks[block["id"]] = tuple(marks)

    def note_items(self, items: Sequence[dict[str, Any]]) -> None:
        """Remember a reply of Responses items."""
        ids = tuple(item["id"] for item in items)
        for item_id in ids:
            self._items[item_id] = ids

    def note_seal(self, token: str, owner: str) -> None:
        """Remember which provider made a seal."""
        self._owners[token] = owner

    def owner_of(self, token: object) -> str | None:
        """Return the provider that made a seal, if one here did."""
        return self._owners.get(str(token))

    def bind(self, body: Mapping[str, Any], model: str, blocks: Sequence[dict[str, Any]]) -> None:
        """Remember after what the thoughts of a reply were made, and by which model."""
        answered = [*body["messages"], {"role": "assistant", "content": list(blocks)}]
        before = sum(1 for _ in _thoughts(body))
        for _, seal, prefix in list(_thoughts({**body, "messages": answered}))[before:]:
            self._prefixes.setdefault((model, seal), set()).add(prefix)

    def torn(self, body: Mapping[str, Any], model: str) -> str | None:
        """Return the place of the first thought of the model's that stands after something else."""
        for where, seal, prefix in _thoughts(body):
            made = self._prefixes.get((model, seal))
            if made is not None and prefix not in made:
                return where
        return None

    def blocks_with(self, use_id: object) -> tuple[Mark, ...] | None:
        """Return the marks of the reply that made a call."""
        return self._blocks.get(str(use_id))

    def items_with(self, item_id: object) -> tuple[str, ...] | None:
        """Return the ids of all items of the reply that an item belongs to."""
        return self._items.get(str(item_id))


def _thoughts(body: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield each thought's place, its seal and a digest of all that stands before it."""
    digest = hashlib.sha256(json.dumps(_unmarked([body.get("system"), body.get("tools")])).encode())
    for at, message in enumerate(body["messages"]):
        content = message["content"]
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        for place, block in enumerate(content):
            mark: Any = mark_of(block) if message["role"] == "assistant" else _unmarked(block)
            if block.get("type") in ("thinking", "redacted_thinking"):
                yield f"messages.{at}.content.{place}", mark[1], digest.hexdigest()
            digest.update(json.dumps([message["role"], mark], sort_keys=True).encode())


def _unmarked(value: Any) -> Any:
    """Leave cache marks out, which are no part of what is bound."""
    if isinstance(value, dict):
        return {key: _unmarked(part) for key, part in value.items() if key != "cache_control"}
    return [_unmarked(part) for part in value] if isinstance(value, list) else value


def _source_of(citation: dict[str, Any]) -> str:
    kept = {key: value for key, value in citation.items() if key != "file_id"}
    return json.dumps(kept, sort_keys=True)


def mark_of(block: dict[str, Any]) -> Mark:
    """Return what a content block must be recognised by; white space at its end is free.

    The arguments of a call that was cut off were no object, so any object will do for them. A
    tool's name that cannot be given back may have other characters, and be cut.
    """
    kind = str(block.get("type"))
    if kind == "thinking":
        return kind, str(block.get("signature"))
    if kind == "redacted_thinking":
        return kind, str(block.get("data"))
    if kind == "text":
        return kind, str(block.get("text")).rstrip(), *map(_source_of, block.get("citations") or ())
    if "id" in block:
        given = block.get("input")
        text = json.dumps(given, sort_keys=True) if isinstance(given, dict) else "*"
        name = _NOT_IN_NAMES.sub("_", str(block.get("name")))[:64]
        return kind, str(block["id"]), name, text
    return kind, str(block.get("tool_use_id"))
