"""The tools and instructions that the caller of a run lends the agent that it talks to."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic_core import from_json, to_json

from mail.core.tools.schema import get_tool_spec_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The tools and instructions that a caller lends the swarm's entrypoint, for one run.

    Attributes:
        tools: Declarations of functions that the caller runs itself: a call of one of them pauses
            the task, and the caller resumes it with the result.
        instructions: Follows the agent's own system prompt.
        force: The agent's duty when it takes the caller's message or results:
            ``"required"`` (call one of ``tools``), the name of one of them, or None.
        parallel: Whether one reply may call several of them.
        names: The names of the tools.
    """

    tools: tuple[Mapping[str, Any], ...] = ()
    instructions: str = ""
    force: str | None = None
    parallel: bool = True
    names: frozenset[str] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        names = frozenset(name for tool in self.tools if (name := get_tool_spec_name(tool)))
        object.__setattr__(self, "names", names)

    def to_json(self) -> str:
        """Return the offer as JSON."""
        return to_json([self.tools, self.instructions, self.force, self.parallel]).decode()

    @classmethod
    def from_json(cls, text: str) -> "Offer":
        """Read what `to_json` wrote."""
        tools, instructions, force, parallel = from_json(text)
        return cls(tools=tuple(tools), instructions=instructions, force=force, parallel=parallel)


NO_OFFER: Final = Offer()
"""Nothing is lent."""
