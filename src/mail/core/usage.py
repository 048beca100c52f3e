"""What model calls used: tokens and, where the price is known, money."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Usage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The use of one model call, or of several together.

    ``cached_tokens`` are part of ``prompt_tokens``, ``reasoning_tokens`` of ``completion_tokens``.
    ``cost`` is in US dollars; None means that the price of no call is known.
    """

    calls: int = 1
    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cost: float | None = None

    @classmethod
    def none(cls) -> "Usage":
        """Return the use of no call at all."""
        return cls(calls=0)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Usage":
        """Read what `to_dict` wrote; unknown keys are ignored."""
        return cls(**{name: data[name] for name in cls.__slots__ if name in data})

    def to_dict(self) -> dict[str, Any]:
        """Return the counts by name; ``cost`` only if it is known."""
        counts = {name: getattr(self, name) for name in self.__slots__}
        if self.cost is None:
            del counts["cost"]
        return counts

    def __add__(self, other: "Usage") -> "Usage":
        known = [cost for cost in (self.cost, other.cost) if cost is not None]
        return Usage(
            calls=self.calls + other.calls,
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            total_tokens=self.total_tokens + other.total_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cost=sum(known) if known else None,
        )
