"""How an Anthropic request wants the model to think."""

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["adapts", "hides", "interleaves", "thinks"]

_ADAPTIVE_ONLY = re.compile(r"opus-4-[78]|(?:opus|sonnet|haiku|fable|mythos)-5\b")
_INTERLEAVED = "interleaved-thinking-2025-05-14"


def thinks(body: Mapping[str, Any]) -> bool:
    """Whether the model may think at all."""
    return _kind(body) in ("enabled", "adaptive")


def adapts(body: Mapping[str, Any]) -> bool:
    """Whether the model itself decides how long it thinks, and takes no budget."""
    return _ADAPTIVE_ONLY.search(str(body.get("model"))) is not None


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
