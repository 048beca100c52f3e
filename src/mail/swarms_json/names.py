"""Which names agents, swarms and actions may have, and which tool names a swarm knows."""

from collections.abc import Iterable, Sequence
from typing import Final

from mail.core.schema import MAX_ID
from mail.core.suggest import hinted
from mail.core.tools.catalogue import BUILTIN_TOOLS, CATALOGUE, TEXT_TOOL
from mail.errors import ConfigError

__all__ = [
    "RESERVED_AGENT_NAMES",
    "check_action_name",
    "check_agent_name",
    "check_distinct",
    "check_participant_names",
    "check_swarm_name",
    "hinted",
]

RESERVED_AGENT_NAMES: Final = frozenset({"all"})
"""``all`` addresses every agent of a swarm, so no agent can have that name."""

_RESERVED_PARTICIPANTS: Final = frozenset({"system"})

_SEPARATORS = "@:"
_SHOWN: Final = 40


def check_agent_name(name: str) -> str:
    """Return a good agent name unchanged.

    Raises:
        ConfigError: it is reserved, or holds a blank, a separator of addresses or a control
            character.
    """
    if not name:
        raise ConfigError("agent name must be at least 1 character long, got 0")
    if name.lower() in RESERVED_AGENT_NAMES:
        raise ConfigError(f"agent name '{name}' is reserved: it addresses all agents of a swarm")
    return _one_word("agent", name)


def check_participant_names(names: Sequence[str], agents: Iterable[str]) -> None:
    """Check the names of a swarm's participants: agents and participants share its addresses.

    Raises:
        ConfigError: one is no good name for an agent, comes twice, or is an agent's.
    """
    check_distinct("participant", names)
    taken = set(agents)
    for name in names:
        if not name:
            raise ConfigError("participant name must be at least 1 character long, got 0")
        if name.lower() in RESERVED_AGENT_NAMES | _RESERVED_PARTICIPANTS:
            raise ConfigError(f"participant name '{name}' is reserved; choose another")
        _one_word("participant", name)
        if name in taken:
            raise ConfigError(
                f"participant name '{name}' is the name of an agent of the swarm; choose another"
            )


def check_swarm_name(name: str) -> str:
    """Return a good swarm name unchanged.

    Raises:
        ConfigError: it holds a blank, a separator of addresses or a control character.
    """
    if not name:
        raise ConfigError("swarm name must be at least 1 character long")
    return _one_word("swarm", name)


def check_action_name(name: str) -> str:
    """Return a good action name unchanged.

    Raises:
        ConfigError: it holds a blank, a separator of addresses or a control character, or is the
            name of a MAIL tool or of what a provider runs itself.
    """
    if not name.strip():
        raise ConfigError(f"action name must be at least 1 character long, got {len(name.strip())}")
    _one_word("action", name)
    if name in CATALOGUE:
        raise ConfigError(f"action name '{name}' is the name of a MAIL tool; choose another")
    if name in BUILTIN_TOOLS or name == TEXT_TOOL:
        raise ConfigError(
            f"action name '{name}' is reserved for a tool that model providers run; choose another"
        )
    return name


def check_distinct(noun: str, names: Iterable[str]) -> None:
    """Refuse a name that comes twice.

    Raises:
        ConfigError: naming the first such name.
    """
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ConfigError(f"duplicate {noun} name '{name}'")
        seen.add(name)


def _one_word(noun: str, name: str) -> str:
    if len(name) > MAX_ID:
        raise ConfigError(
            f"{noun} name '{name[:_SHOWN]}…' must have at most {MAX_ID} characters, got {len(name)}"
        )
    if any(sign.isspace() for sign in name):
        raise ConfigError(f"{noun} name {name!r} must not contain white space")
    for mark in _SEPARATORS:
        if mark in name:
            raise ConfigError(f"{noun} name '{name}' must not contain '{mark}'")
    if not name.isprintable():
        raise ConfigError(f"{noun} name {name!r} must not contain control characters")
    return name
