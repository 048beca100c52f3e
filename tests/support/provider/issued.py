"""What the provider itself wrote earlier, which histories must give back as it was."""

import json
import re
from collections.abc import Sequence
from typing import Any

__all__ = ["Issued", "Mark", "mark_of"]

Mark = tuple[str, ...]
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")


class Issued:
    """The replies sent so far: Anthropic's by the ids of their calls, Responses' by item ids."""

    def __init__(self) -> None:
        self._blocks: dict[str, tuple[Mark, ...]] = {}
        self._items: dict[str, tuple[str, ...]] = {}

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

    def blocks_with(self, use_id: object) -> tuple[Mark, ...] | None:
        """Return the marks of the reply that made a call."""
        return self._blocks.get(str(use_id))

    def items_with(self, item_id: object) -> tuple[str, ...] | None:
        """Return the ids of all items of the reply that an item belongs to."""
        return self._items.get(str(item_id))


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
        return kind, str(block.get("text")).rstrip()
    if "id" in block:
        given = block.get("input")
        text = json.dumps(given, sort_keys=True) if isinstance(given, dict) else "*"
        name = _NOT_IN_NAMES.sub("_", str(block.get("name")))[:64]
        return kind, str(block["id"]), name, text
    return kind, str(block.get("tool_use_id"))
