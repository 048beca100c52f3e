"""Loading, validating and completing ``swarms.json``; every fault is a `ConfigError`."""

import warnings
from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any, Final, cast

from mail.core.suggest import before_hint
from mail.errors import ConfigError
from mail.swarms_json.crosscheck import ImportAction, cross_validate_swarm
from mail.swarms_json.decode import check_plain, parse_json, read_text
from mail.swarms_json.fields import (
    ACTION,
    AGENT,
    SWARM,
    check_field,
    check_fields,
    check_identity,
    filled,
)
from mail.swarms_json.names import check_distinct
from mail.swarms_json.parameters import check_parameters
from mail.swarms_json.types import SwarmsJSONAction, SwarmsJSONAgent, SwarmsJSONSwarm

__all__ = [
    "ImportAction",
    "build_action_from_swarms_json",
    "build_agent_from_swarms_json",
    "build_swarm_from_swarms_json",
    "build_swarms_from_swarms_json",
    "load_swarms_json_from_file",
    "load_swarms_json_from_string",
    "validate_action_from_swarms_json",
    "validate_agent_from_swarms_json",
    "validate_swarm_from_swarms_json",
]

_RIGHTS: Final = ("enable_entrypoint", "can_complete_tasks")


def load_swarms_json_from_file(
    path: str | PathLike[str], *, import_action: ImportAction | None = None
) -> list[SwarmsJSONSwarm]:
    """Read, validate and complete all swarms of a file.

    Args:
        path: The file.
        import_action: As in `validate_swarm_from_swarms_json`.

    Raises:
        ConfigError: the file cannot be read, is not JSON, or a swarm in it is wrong.
    """
    return _load(read_text(path), f"swarms.json file at {path}", import_action)


def load_swarms_json_from_string(
    text: str, *, import_action: ImportAction | None = None
) -> list[SwarmsJSONSwarm]:
    """Read, validate and complete all swarms of a JSON text.

    Args:
        text: The text.
        import_action: As in `validate_swarm_from_swarms_json`.

    Raises:
        ConfigError: the text is not JSON, or a swarm in it is wrong.
    """
    return _load(text, "swarms.json string", import_action)


def build_swarms_from_swarms_json(
    candidates: list[Any], *, import_action: ImportAction | None = None
) -> list[SwarmsJSONSwarm]:
    """Validate and complete several swarms.

    Raises:
        ConfigError: a swarm is wrong, or two have the same name.
    """
    swarms = []
    for number, candidate in enumerate(candidates, 1):
        try:
            swarms.append(build_swarm_from_swarms_json(candidate, import_action=import_action))
        except ConfigError as error:
            if _has_name(candidate):
                raise
            raise ConfigError(f"{error} (swarm number {number} of the list)") from None
    check_distinct("swarm", [swarm["name"] for swarm in swarms])
    return swarms


def build_swarm_from_swarms_json(
    candidate: object, *, import_action: ImportAction | None = None
) -> SwarmsJSONSwarm:
    """Validate a swarm with all its agents and actions and fill in the defaults.

    Raises:
        ConfigError: with the first problem found.
    """
    validate_swarm_from_swarms_json(candidate, import_action=import_action)
    swarm = filled(SWARM, cast("dict[str, Any]", candidate))
    swarm["agents"] = [filled(AGENT, agent) for agent in swarm["agents"]]
    swarm["actions"] = [filled(ACTION, action) for action in swarm["actions"]]
    return cast("SwarmsJSONSwarm", swarm)


def build_agent_from_swarms_json(candidate: object) -> SwarmsJSONAgent:
    """Validate an agent and fill in the defaults.

    Raises:
        ConfigError: with the first problem found.
    """
    validate_agent_from_swarms_json(candidate)
    return cast("SwarmsJSONAgent", filled(AGENT, cast("dict[str, Any]", candidate)))


def build_action_from_swarms_json(candidate: object) -> SwarmsJSONAction:
    """Validate an action and fill in the defaults.

    Raises:
        ConfigError: with the first problem found.
    """
    validate_action_from_swarms_json(candidate)
    return cast("SwarmsJSONAction", filled(ACTION, cast("dict[str, Any]", candidate)))


def validate_swarm_from_swarms_json(
    candidate: object, *, import_action: ImportAction | None = None
) -> None:
    """Check a swarm's own fields, how its parts fit together, and then each part.

    Args:
        candidate: The swarm.
        import_action: Resolves an entry of ``action_imports`` (see `ImportAction`), so that names
            of imported actions are checked, too. Without it nothing is imported.

    Raises:
        ConfigError: with the first problem found.
    """
    check_plain(candidate, "swarm candidate")
    check_identity(SWARM, candidate)
    swarm = check_fields(SWARM, candidate)
    _each(swarm, "agents", _check_identity_and_rights)
    _each(swarm, "actions", lambda action: check_identity(ACTION, action))
    cross_validate_swarm(swarm, import_action)
    _each(swarm, "agents", _check_agent)
    _each(swarm, "actions", _check_action)


def validate_agent_from_swarms_json(candidate: object) -> None:
    """Check an agent's fields.

    Raises:
        ConfigError: with the first problem found.
    """
    check_plain(candidate, "agent candidate")
    check_identity(AGENT, candidate)
    _check_agent(candidate)


def validate_action_from_swarms_json(candidate: object) -> None:
    """Check an action's fields.

    Raises:
        ConfigError: with the first problem found.
    """
    check_plain(candidate, "action candidate")
    check_identity(ACTION, candidate)
    _check_action(candidate)


def _check_identity_and_rights(candidate: object) -> None:
    """Check an agent's rights early: what is no true must not be told as missing in all agents."""
    check_identity(AGENT, candidate)
    for right in _RIGHTS:
        check_field(AGENT, cast("dict[str, Any]", candidate), right)


def _check_agent(candidate: object) -> None:
    agent = check_fields(AGENT, candidate)
    if "tool_format" in agent["agent_params"]:
        warnings.warn(
            f"'tool_format' inside agent_params of agent '{agent['name']}' is deprecated and "
            "ignored; set it on the agent itself",
            DeprecationWarning,
            stacklevel=4,
        )


def _check_action(candidate: object) -> None:
    action = check_fields(ACTION, candidate)
    check_parameters(action["name"], action["parameters"])


def _each(swarm: Mapping[str, Any], field: str, check: Callable[[object], None]) -> None:
    """Check the parts in a field; an error says which part of which swarm it is about."""
    for number, part in enumerate(swarm[field], 1):
        try:
            check(part)
        except ConfigError as error:
            place = "" if _has_name(part) else f" (number {number} of '{field}')"
            text = before_hint(str(error), f"{place} in swarm '{swarm['name']}'")
            raise ConfigError(text) from None


def _has_name(candidate: object) -> bool:
    name = candidate.get("name") if isinstance(candidate, dict) else None
    return isinstance(name, str) and bool(name.strip())


def _load(text: str, source: str, import_action: ImportAction | None) -> list[SwarmsJSONSwarm]:
    value = parse_json(text, source)
    if not isinstance(value, list):
        raise ConfigError(
            f"{source} must contain a list of swarms, actually got {type(value).__name__}"
        )
    return build_swarms_from_swarms_json(value, import_action=import_action)
