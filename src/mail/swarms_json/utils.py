"""Loading, validating and completing ``swarms.json``; every fault is a `ConfigError`."""

import json
import warnings
from os import PathLike
from pathlib import Path
from typing import Any, cast

from mail.errors import ConfigError
from mail.swarms_json.crosscheck import cross_validate_swarm
from mail.swarms_json.fields import ACTION, AGENT, SWARM, check_fields, filled
from mail.swarms_json.names import check_distinct
from mail.swarms_json.types import SwarmsJSONAction, SwarmsJSONAgent, SwarmsJSONSwarm

__all__ = [
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

_TOOL_FORMATS = ("completions", "responses")


def load_swarms_json_from_file(path: str | PathLike[str]) -> list[SwarmsJSONSwarm]:
    """Read, validate and complete all swarms of a file.

    Raises:
        ConfigError: the file cannot be read, is not JSON, or a swarm in it is wrong.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"cannot read swarms.json file at {path}: {reason}") from None
    return build_swarms_from_swarms_json(_parse(text, f"swarms.json file at {path}"))


def load_swarms_json_from_string(text: str) -> list[SwarmsJSONSwarm]:
    """Read, validate and complete all swarms of a JSON text.

    Raises:
        ConfigError: the text is not JSON, or a swarm in it is wrong.
    """
    return build_swarms_from_swarms_json(_parse(text, "swarms.json string"))


def build_swarms_from_swarms_json(candidates: list[Any]) -> list[SwarmsJSONSwarm]:
    """Validate and complete several swarms.

    Raises:
        ConfigError: a swarm is wrong, or two have the same name.
    """
    swarms = [build_swarm_from_swarms_json(candidate) for candidate in candidates]
    check_distinct("swarm", [swarm["name"] for swarm in swarms])
    return swarms


def build_swarm_from_swarms_json(candidate: object) -> SwarmsJSONSwarm:
    """Validate a swarm with all its agents and actions and fill in the defaults.

    Raises:
        ConfigError: with the first problem found.
    """
    validate_swarm_from_swarms_json(candidate)
    swarm = filled(SWARM, cast("dict[str, Any]", candidate))
    try:
        swarm["agents"] = [build_agent_from_swarms_json(agent) for agent in swarm["agents"]]
        swarm["actions"] = [build_action_from_swarms_json(action) for action in swarm["actions"]]
    except ConfigError as error:
        raise ConfigError(f"{error} in swarm '{swarm['name']}'") from None
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


def validate_swarm_from_swarms_json(candidate: object) -> None:
    """Check a swarm's own fields and how its parts fit together.

    Raises:
        ConfigError: with the first problem found.
    """
    cross_validate_swarm(check_fields(SWARM, candidate))


def validate_agent_from_swarms_json(candidate: object) -> None:
    """Check an agent's fields.

    Raises:
        ConfigError: with the first problem found.
    """
    agent = check_fields(AGENT, candidate)
    tool_format = agent.get("tool_format", "responses")
    if tool_format not in _TOOL_FORMATS:
        raise ConfigError(
            f"agent candidate field 'tool_format' must be 'completions' or 'responses', "
            f"actually got '{tool_format}' (agent '{agent['name']}')"
        )
    if "tool_format" in agent["agent_params"]:
        warnings.warn(
            f"'tool_format' inside agent_params of agent '{agent['name']}' is deprecated and "
            "ignored; set it on the agent itself",
            DeprecationWarning,
            stacklevel=2,
        )


def validate_action_from_swarms_json(candidate: object) -> None:
    """Check an action's fields.

    Raises:
        ConfigError: with the first problem found.
    """
    check_fields(ACTION, candidate)


def _parse(text: str, source: str) -> list[Any]:
    try:
        value = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ConfigError(f"{source} is not valid JSON: {error}") from None
    if not isinstance(value, list):
        raise ConfigError(
            f"{source} must contain a list of swarms, actually got {type(value).__name__}"
        )
    return value
