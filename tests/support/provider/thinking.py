"""How an Anthropic request wants the model to think."""

import re
from collections.abc import Mapping
from typing import Any

__all__ = [
    "adapts",
    "always_on",
    "bound",
    "default_on",
    "has_budget",
    "hides",
    "interleaves",
    "thinks",
    "unforced",
]

_ADAPTIVE_ONLY = re.compile(r"opus-4[-.][78]|(?:opus|sonnet|haiku|fable|mythos)-5\b")
_VERSION = re.compile(r"claude-(opus|sonnet|haiku|fable|mythos)-(\d)(?:[-.](\d{1,2}))?(?!\d)")
_INTERLEAVED = "interleaved-thinking-2025-05-14"


def thinks(body: Mapping[str, Any]) -> bool:
    """Whether the model may think at all."""
    return _kind(body) in ("enabled", "adaptive")


def has_budget(body: Mapping[str, Any]) -> bool:
    """Whether the model thinks within a budget."""
    return bool(_kind(body) == "enabled")


def adapts(body: Mapping[str, Any]) -> bool:
    """Whether the model itself decides how long it thinks, and takes no budget."""
    return _ADAPTIVE_ONLY.search(str(body.get("model"))) is not None


def _version(model: str) -> tuple[str, tuple[int, int]]:
    """Return the family and the version of a model; a date is no part of it."""
    found = _VERSION.search(model)
    if found is None:
        return "", (0, 0)
    return found[1], (int(found[2]), int(found[3] or 0))


def always_on(model: str) -> bool:
    """Whether thinking cannot be disabled (Claude Opus 5.5, What's new, 2026-09-22)."""
    family, version = _version(model)
    if family in ("opus", "sonnet"):
        return version >= (5, 5)
    return family in ("fable", "mythos") and version >= (5, 0)


def default_on(model: str) -> bool:
    """Whether a model thinks when nothing is said about it."""
    return always_on(model) or _version(model)[1] >= (5, 0)


def unforced(model: str) -> bool:
    """Whether a model refuses forced tools (Claude Opus 5.5, What's new, 2026-09-22)."""
    family, version = _version(model)
    least = {"opus": (5, 5), "sonnet": (5, 5), "fable": (5, 1), "mythos": (5, 1)}
    return family in least and version >= least[family]


def bound(model: str) -> bool:
    """Whether thinking is bound to its conversation (Anthropic, Preserved thinking)."""
    return _version(model)[1] >= (5, 1)


def interleaves(body: Mapping[str, Any], headers: Mapping[str, str] | None) -> bool:
    """Whether it may think again after it has called a tool: by a beta header, or adaptively."""
    asked = _INTERLEAVED in (headers or {}).get("anthropic-beta", "")
    return asked or _kind(body) == "adaptive"


def hides(body: Mapping[str, Any]) -> bool:
    """Whether thoughts come without their text, as signatures only: adaptive ones, unless asked."""
    if not thinks(body):
        return False
    usual = "omitted" if _kind(body) == "adaptive" else "summarized"
    return bool(body["thinking"].get("display", usual) == "omitted")


def _kind(body: Mapping[str, Any]) -> Any:
    thinking = body.get("thinking")
    return thinking.get("type") if isinstance(thinking, dict) else None
