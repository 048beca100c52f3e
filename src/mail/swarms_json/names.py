"""The rules for names of agents, swarms and actions, and the tool names of a swarm."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from mail.core.schema import MAX_ID
from mail.core.suggest import hinted
from mail.core.teams import LEAD
from mail.core.tools.catalogue import BUILTIN_TOOLS, CATALOGUE, TEXT_TOOL
from mail.errors import ConfigError

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
    if name.lower() in RESERVED_AGENT_NAMES:
        raise ConfigError(f"agent name '{name}' is reserved: it addresses all agents of a swarm")
    return _one_word("agent name", name)


def check_participant_names(names: Sequence[str], agents: Iterable[str]) -> None:
    """Check the names of a swarm's participants: agents and participants share its addresses.

    Raises:
        ConfigError: one is no good name for an agent, comes twice, or is an agent's.
    """
    check_distinct("participant", names)
    taken = set(agents)
    for name in names:
        if name.lower() in RESERVED_AGENT_NAMES | _RESERVED_PARTICIPANTS:
            raise ConfigError(f"participant name '{name}' is reserved; choose another")
        _one_word("participant name", name)
        if name in taken:
            raise ConfigError(
                f"participant name '{name}' is the name of an agent of the swarm; choose another"
            )


def check_teams(teams: Sequence[Mapping[str, Any]], names: Iterable[str] | None = None) -> None:
    """Check a swarm's teams, whose fields have the right types.

    Args:
        teams: Objects with ``id``, ``lead`` and ``members``.
        names: The swarm's agents and participants; None when not all of them are known.

    Raises:
        ConfigError: an id is no good one or comes twice, or a member is unknown, comes twice, or
            could not be told from the lead.
    """
    check_distinct("team", [team["id"] for team in teams])
    known = None if names is None else list(names)
    for team in teams:
        name = _one_word("team id", team["id"])
        if "/" in name or not name.strip("."):
            raise ConfigError(f"team id '{name}' must not contain '/' or be '.' or '..'")
        _check_members(team, known)


def _check_members(team: Mapping[str, Any], known: Sequence[str] | None) -> None:
    lead, members, which = team["lead"], team["members"], f"team '{team['id']}'"
    for name in (lead, *members):
        if known is not None and name not in known:
            text = f"{which} names '{name}', which is no agent or participant of the swarm"
            raise ConfigError(hinted(text, name, known))
    if lead in members:
        raise ConfigError(f"{which} has its lead '{lead}' among its members; name it as lead only")
    if LEAD in members:
        raise ConfigError(f"{which} has a member '{LEAD}', which is what the lead is called")
    for name in members:
        if members.count(name) > 1:
            raise ConfigError(f"{which} has the member '{name}' twice")


def check_swarm_name(name: str) -> str:
    """Return a good swarm name unchanged.

    Raises:
        ConfigError: it holds a blank, a separator of addresses or a control character.
    """
    return _one_word("swarm name", name)


def check_action_name(name: str) -> str:
    """Return a good action name unchanged.

    Raises:
        ConfigError: it holds a blank, a separator of addresses or a control character, or is the
            name of a MAIL tool or of what a provider runs itself.
    """
    _one_word("action name", name)
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


def _one_word(what: str, name: str) -> str:
    if not name:
        raise ConfigError(f"{what} must be at least 1 character long")
    if len(name) > MAX_ID:
        raise ConfigError(
            f"{what} '{name[:_SHOWN]}…' must have at most {MAX_ID} characters, got {len(name)}"
        )
    if any(sign.isspace() for sign in name):
        raise ConfigError(f"{what} {name!r} must not contain white space")
    for mark in _SEPARATORS:
        if mark in name:
            raise ConfigError(f"{what} '{name}' must not contain '{mark}'")
    if not name.isprintable():
        raise ConfigError(f"{what} {name!r} must not contain control characters")
    return name
