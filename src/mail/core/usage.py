"""The usage of model calls, in tokens and at known prices in money, and a task's account of it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import attrgetter
from typing import Any, Final

from pydantic_core import from_json, to_json

_LATEST = "latest_prompt_tokens"


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
        counts: dict[str, Any] = dict(zip(self.__slots__, _counts(self), strict=True))
        if self.cost is None:
            del counts["cost"]
        return counts

    @classmethod
    def sum(cls, used: Collection["Usage"]) -> "Usage":
        """Return the use of several together."""
        return reduce(cls.__add__, used) if used else cls.none()

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


_counts: Final = attrgetter(*Usage.__slots__)


@dataclass(frozen=True, slots=True)
class Spending:
    """The account of one task, over all of its runs.

    ``latest`` has the prompt tokens of each agent's newest call. An agent's history only grows, so
    its next call takes as many at least.
    """

    agents: Mapping[str, Usage]
    latest: Mapping[str, int]

    @property
    def total(self) -> Usage:
        """The use of all agents together."""
        return Usage.sum(self.agents.values())

    @classmethod
    def from_json(cls, text: str) -> "Spending":
        """Read what `to_json` wrote."""
        stored = from_json(text)
        agents = {agent: Usage.from_dict(counts) for agent, counts in stored.items()}
        latest = {agent: counts.get(_LATEST, 0) for agent, counts in stored.items()}
        return cls(agents, latest)

    def to_json(self) -> str:
        """Return the account as JSON: an object from agent to counts."""
        stored = {
            agent: usage.to_dict() | {_LATEST: self.latest[agent]}
            for agent, usage in self.agents.items()
        }
        return to_json(stored).decode()

    def plus(self, agent: str, usage: Usage) -> "Spending":
        """Return the account after one more call of an agent's."""
        before = self.agents.get(agent, Usage.none())
        return Spending(
            {**self.agents, agent: before + usage},
            {**self.latest, agent: usage.prompt_tokens},
        )
