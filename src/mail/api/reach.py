"""The rule that an agent can reach somebody, or need not."""

from collections.abc import Sequence
from typing import Protocol

from mail.errors import ConfigError

__all__ = ["check_reach", "needs_targets"]


class _Reaching(Protocol):
    name: str
    enable_entrypoint: bool
    can_complete_tasks: bool


def needs_targets(agent: _Reaching) -> bool:
    """Tell whether the agent is lost without targets: it is not both entrypoint and supervisor."""
    return not (agent.can_complete_tasks and agent.enable_entrypoint)


def check_reach(agent: _Reaching, targets: Sequence[str]) -> None:
    """Check that an agent has targets if it needs some.

    Raises:
        ConfigError: it has none.
    """
    if not targets and needs_targets(agent):
        raise ConfigError(
            f"agent must have at least one communication target, got 0 (agent '{agent.name}'). "
            "Only an agent with both enable_entrypoint and can_complete_tasks may have none."
        )
