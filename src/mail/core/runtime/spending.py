"""What a task's model calls have used so far: per agent, together, and as the store keeps it."""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic_core import from_json, to_json

from mail.core.usage import Usage

__all__ = ["Spending"]

_LATEST = "latest_prompt_tokens"


@dataclass(frozen=True, slots=True)
class Spending:
    """The account of one task, over all of its runs.

    ``latest`` has the prompt tokens of each agent's newest call. An agent's history only grows, so
    its next call takes as many at least.
    """

    agents: Mapping[str, Usage]
    latest: Mapping[str, int]
    total: Usage

    @classmethod
    def from_json(cls, text: str) -> "Spending":
        """Read what `to_json` wrote."""
        stored = from_json(text)
        agents = {agent: Usage.from_dict(counts) for agent, counts in stored.items()}
        latest = {agent: counts.get(_LATEST, 0) for agent, counts in stored.items()}
        return cls(agents, latest, sum(agents.values(), Usage.none()))

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
            self.total + usage,
        )
