"""Checks of what builders pass in: a wrong type is told before it breaks something far away."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from mail.api.actions import MAILAction
from mail.errors import ConfigError
from mail.swarms_json.names import check_agent_name

__all__ = [
    "check_actions",
    "check_agent_fields",
    "check_limit",
    "check_mapping",
    "check_text",
    "check_texts",
    "text_list",
]


class _AgentFields(Protocol):
    name: str
    comm_targets: list[str]
    actions: list[MAILAction]
    agent_params: dict[str, Any]
    tool_format: Any
    exclude_tools: list[str]


def check_agent_fields(agent: _AgentFields) -> None:
    """Check the fields that an agent and its template have in common.

    Raises:
        ConfigError: naming the field and what it must be.
    """
    check_text("agent name", agent.name)
    check_agent_name(agent.name)
    whose = f"of agent '{agent.name}'"
    check_texts(f"comm_targets {whose}", agent.comm_targets)
    check_texts(f"exclude_tools {whose}", agent.exclude_tools or ())
    check_actions(f"actions {whose}", agent.actions)
    check_mapping(f"agent_params {whose}", agent.agent_params)
    if agent.tool_format not in ("completions", "responses"):
        raise ConfigError(
            f"tool_format {whose} must be 'completions' or 'responses', got '{agent.tool_format}'"
        )


def check_actions(what: str, actions: object) -> None:
    """Check that something is a sequence of actions.

    Raises:
        ConfigError: it is not.
    """
    _check(_listed(actions), what, "a list of MAILAction objects", actions)
    assert isinstance(actions, Iterable)  # noqa: S101 - the line above proved it
    for action in actions:
        if isinstance(action, str):
            raise ConfigError(
                f"{what} must be MAILAction objects, got the string '{action}'; import the action "
                "and pass the object itself"
            )
        _check(isinstance(action, MAILAction), what, "MAILAction objects", action)


def check_texts(what: str, values: object) -> None:
    """Check that something is a sequence of texts, and not one text.

    Raises:
        ConfigError: it is not.
    """
    _check(_listed(values), what, "a list of names", values)
    assert isinstance(values, Iterable)  # noqa: S101 - the line above proved it
    for value in values:
        _check(isinstance(value, str), what, "names", value)


def text_list(what: str, values: object) -> list[str]:
    """Return a sequence of texts as a list of its own.

    Raises:
        ConfigError: it is none, or one text, which would be taken letter by letter.
    """
    check_texts(what, values)
    assert isinstance(values, Iterable)  # noqa: S101 - the line above proved it
    return list(values)


def check_text(what: str, value: object) -> None:
    """Check that something is text.

    Raises:
        ConfigError: it is not.
    """
    _check(isinstance(value, str), what, "a string", value)


def check_mapping(what: str, value: object) -> None:
    """Check that something is a dictionary.

    Raises:
        ConfigError: it is not.
    """
    _check(isinstance(value, Mapping), what, "a dictionary", value)


def check_limit(limit: object) -> None:
    """Check a ``task_message_limit``.

    Raises:
        ConfigError: it is neither a whole number above 0 nor None.
    """
    if limit is None or (isinstance(limit, int) and not isinstance(limit, bool) and limit > 0):
        return
    raise ConfigError(
        f"task_message_limit must be a whole number above 0, or None for no limit; got {limit!r}"
    )


def _listed(value: object) -> bool:
    return isinstance(value, Sequence | set | frozenset) and not isinstance(value, str | bytes)


def _check(good: bool, what: str, kind: str, value: object) -> None:
    if not good:
        raise ConfigError(f"{what} must be {kind}, got {type(value).__name__}")
