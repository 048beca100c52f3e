"""Checks across a swarm's parts: names, entrypoint, targets, supervisors, actions, tools."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mail.core.addresses import local_agent_name
from mail.core.suggest import did_you_mean
from mail.core.tools.catalogue import CATALOGUE
from mail.errors import ConfigError
from mail.swarms_json.names import (
    check_action_name,
    check_agent_name,
    check_distinct,
    check_swarm_name,
    hinted,
)

__all__ = ["cross_validate_swarm"]

_Object = Mapping[str, Any]


def cross_validate_swarm(swarm: _Object) -> None:
    """Check a swarm whose own fields have the right types; agents and actions may be malformed.

    The first problem is reported, with the closest known name where a name is unknown.

    Raises:
        ConfigError: saying what is wrong with which agent.
    """
    agents = _objects(swarm["agents"])
    names = [agent["name"] for agent in agents if isinstance(agent.get("name"), str)]
    check_swarm_name(swarm["name"])
    check_distinct("agent", names)
    for name in names:
        check_agent_name(name)
    _check_entrypoint(swarm["entrypoint"], agents, names)
    _check_targets(swarm["name"], agents, names)
    if not any(agent.get("can_complete_tasks") is True for agent in agents):
        raise ConfigError(
            "no agent has 'can_complete_tasks' set to true; at least one agent must be able to "
            "complete tasks"
        )
    _check_actions(swarm, agents)


def _objects(items: Sequence[object]) -> list[_Object]:
    return [item for item in items if isinstance(item, dict)]


def _strings(agent: _Object, field: str) -> list[str]:
    items = agent.get(field)
    return [item for item in items if isinstance(item, str)] if isinstance(items, list) else []


def _check_entrypoint(entrypoint: str, agents: Iterable[_Object], names: list[str]) -> None:
    if entrypoint not in names:
        hint = did_you_mean(entrypoint, names)
        raise ConfigError(f"entrypoint '{entrypoint}' does not match any agent name.{hint}")
    enabled = [agent.get("name") for agent in agents if agent.get("enable_entrypoint") is True]
    if not enabled:
        raise ConfigError(
            "no agent has 'enable_entrypoint' set to true; at least one agent must take messages "
            "from users"
        )
    if entrypoint not in enabled:
        raise ConfigError(
            f"entrypoint agent '{entrypoint}' does not have 'enable_entrypoint' set to true"
        )


def _check_targets(swarm: str, agents: Iterable[_Object], names: list[str]) -> None:
    for agent in agents:
        for target in _strings(agent, "comm_targets"):
            local = local_agent_name(target, swarm)
            if "@" not in local and local not in names:
                raise ConfigError(
                    f"agent '{agent.get('name')}' has comm_target '{target}' which is not a "
                    f"defined agent.{did_you_mean(local, names)}"
                )


def _check_actions(swarm: _Object, agents: Iterable[_Object]) -> None:
    known = [a["name"] for a in _objects(swarm["actions"]) if isinstance(a.get("name"), str)]
    for name in known:
        check_action_name(name)
        if known.count(name) > 1:
            raise ConfigError(
                f"duplicate action definition for '{name}' in swarm '{swarm['name']}'"
            )
    if swarm.get("action_imports"):
        return  # names of imported actions are known once they are imported; api checks then
    for agent in agents:
        for action in _strings(agent, "actions"):
            if action not in known:
                raise ConfigError(
                    f"agent '{agent.get('name')}' references action '{action}' which is not "
                    f"defined in the swarm's actions.{did_you_mean(action, known)}"
                )
    _check_tools(swarm, agents, [*CATALOGUE, *known])


def _check_tools(swarm: _Object, agents: Iterable[_Object], known: list[str]) -> None:
    for tool in _strings(swarm, "breakpoint_tools"):
        if tool not in known:
            raise ConfigError(hinted(f"breakpoint tool '{tool}' not found in swarm", tool, known))
    for holder in (swarm, *agents):
        for tool in _strings(holder, "exclude_tools"):
            if tool not in known:
                raise ConfigError(hinted(f"excluded tool '{tool}' is not valid", tool, known))
