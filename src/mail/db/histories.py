"""Histories as JSON texts: joined, and told apart by their shape (ruling 42)."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

__all__ = ["join_lists", "tool_format"]

_DECISIVE_ROLES: Final = frozenset({"assistant", "tool"})


def join_lists(lists: Iterable[str]) -> str:
    """Return JSON lists, given as text, as one list."""
    insides = (text.strip()[1:-1].strip() for text in lists)
    return f"[{','.join(inside for inside in insides if inside)}]"


def tool_format(lists: Sequence[str]) -> str | None:
    """Tell in which shape histories (JSON lists, as text) are kept.

    Returns:
        ``"completions"`` or ``"responses"`` by the first entry that an assistant or a tool wrote;
        None when there is none.
    """
    for text in lists:
        for entry in json.loads(text):
            shape = _shape(entry)
            if shape is not None:
                return shape
    return None


def _shape(entry: Any) -> str | None:
    if not isinstance(entry, dict):
        return None
    if entry.get("type") is not None and entry.get("role") not in ("user", "system"):
        return "responses"
    return "completions" if entry.get("role") in _DECISIVE_ROLES else None
