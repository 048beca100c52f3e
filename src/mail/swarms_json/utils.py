"""Loading, validating and completing ``swarms.json``; every fault is a `ConfigError`."""

import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from mail.core.addresses import is_remote_target, local_agent_name
from mail.core.suggest import before_hint, did_you_mean
from mail.core.tools.catalogue import CATALOGUE
from mail.errors import ConfigError
from mail.swarms_json.decode import check_plain, parse_json, read_text
from mail.swarms_json.fields import (
    ACTION,
    AGENT,
    MCP_SERVER,
    PARTICIPANT,
    SWARM,
    TEAM,
    check_field,
    check_fields,
    check_identity,
    check_spelling,
    filled,
)
from mail.swarms_json.names import (
    check_action_name,
    check_agent_name,
    check_distinct,
    check_participant_names,
    check_swarm_name,
    check_teams,
    hinted,
)
from mail.swarms_json.parameters import check_parameters
from mail.swarms_json.references import PYTHON_PREFIX
from mail.swarms_json.types import SwarmsJSONAction, SwarmsJSONAgent, SwarmsJSONSwarm

if TYPE_CHECKING:
    from collections.abc import Iterator

MCP_PREFIX: Final = "mcp:"
"""Begins an agent's action that stands for tools of an MCP server."""
_SERVER_NAME: Final = re.compile(r"(?!.*__)[A-Za-z0-9_-]{1,32}")

_Object = Mapping[str, Any]


class NamedAction(Protocol):
    """What an import must lead to: an action that says its name."""

    @property
    def name(self) -> str:
        """What models call the action."""


ImportAction = Callable[[str, str], NamedAction]
"""Takes an entry of ``action_imports`` and the swarm's name; returns the action, or raises a
`ConfigError` that names both."""


def cross_validate_swarm(swarm: _Object, import_action: ImportAction | None = None) -> None:
    """Check a swarm whose own fields have the right types.

    Its agents and actions are objects with a name; their other fields may be malformed. The first
    problem is reported, with the closest known name where a name is unknown.

    Args:
        swarm: The swarm.
        import_action: Resolves ``action_imports``. Without it they stay unresolved, and as many
            names as there are imports may be unknown.

    Raises:
        ConfigError: saying what is wrong with which field of which agent or action.
    """
    agents: list[_Object] = swarm["agents"]
    names = [agent["name"] for agent in agents]
    with _field_of(swarm, "name"):
        check_swarm_name(swarm["name"])
    with _field_of(swarm, "agents"):
        check_distinct("agent", names)
    for name in names:
        with _field_of(swarm, "name", f"agent '{name}'"):
            check_agent_name(name)
    with _field_of(swarm, "participants"):
        others = [each["name"] for each in swarm.get("participants", ())]
        check_participant_names(others, names)
    with _field_of(swarm, "teams"):
        check_teams(swarm.get("teams", ()), (*names, *others))
    _check_entrypoint(swarm, agents, names)
    _check_targets(swarm, agents, names)
    if not any(agent.get("can_complete_tasks") is True for agent in agents):
        raise ConfigError(
            "no agent has 'can_complete_tasks' set to true; at least one agent must be able to "
            f"complete tasks (swarm '{swarm['name']}')"
        )
    _check_own_actions(swarm)
    _check_uses(swarm, agents, import_action)


@contextmanager
def _field_of(swarm: _Object, field: str, holder: str | None = None) -> "Iterator[None]":
    """Say of an error inside which field it is about."""
    try:
        yield
    except ConfigError as error:
        raise _fault(swarm, str(error), field, holder) from None


def _fault(swarm: _Object, text: str, field: str, holder: str | None = None) -> ConfigError:
    whose = f"{holder}, swarm" if holder else "swarm"
    return ConfigError(f"{text} (field '{field}' of {whose} '{swarm['name']}')")


def _strings(agent: _Object, field: str) -> list[str]:
    items = agent.get(field)
    return [item for item in items if isinstance(item, str)] if isinstance(items, list) else []


def _called(agent: _Object) -> str:
    return f"agent '{agent['name']}'"


def _check_entrypoint(swarm: _Object, agents: Iterable[_Object], names: list[str]) -> None:
    entrypoint = swarm["entrypoint"]
    if entrypoint not in names:
        hint = did_you_mean(entrypoint, names) or f" The agents are {', '.join(map(repr, names))}."
        text = f"entrypoint '{entrypoint}' does not match any agent name.{hint}"
        raise _fault(swarm, text, "entrypoint")
    enabled = [agent["name"] for agent in agents if agent.get("enable_entrypoint") is True]
    if not enabled:
        raise ConfigError(
            "no agent has 'enable_entrypoint' set to true; at least one agent must take messages "
            f"from users (swarm '{swarm['name']}')"
        )
    if entrypoint not in enabled:
        raise ConfigError(
            f"entrypoint agent '{entrypoint}' does not have 'enable_entrypoint' set to true "
            f"(swarm '{swarm['name']}')"
        )


def _check_targets(swarm: _Object, agents: Iterable[_Object], names: list[str]) -> None:
    known = dict.fromkeys((*names, *(each["name"] for each in swarm.get("participants", ()))))
    for agent in agents:
        for target in _strings(agent, "comm_targets"):
            problem = _target_problem(swarm, _called(agent), target, known)
            if problem:
                raise _fault(swarm, problem, "comm_targets", _called(agent))
        alone = agent.get("enable_entrypoint") is agent.get("can_complete_tasks") is True
        if agent.get("comm_targets") == [] and not alone:
            text = (
                f"{_called(agent)} must have at least one communication target, got 0; "
                "only an agent with both enable_entrypoint and can_complete_tasks may have none"
            )
            raise _fault(swarm, text, "comm_targets", _called(agent))


def _target_problem(
    swarm: _Object, agent: str, target: str, names: Mapping[str, None]
) -> str | None:
    local = local_agent_name(target, swarm["name"])
    if "@" not in local:
        if local in names:
            return None
        hint = did_you_mean(local, names)
        return f"{agent} has comm_target '{target}' which is not a defined agent.{hint}"
    if not is_remote_target(target):
        return (
            f"{agent} has comm_target '{target}' which is not of the form 'agent@swarm', "
            "'*@swarm' or '*@*'"
        )
    if swarm.get("enable_interswarm") is not True:
        return (
            f"{agent} has interswarm communication target '{target}' but interswarm messaging is "
            "not enabled for this swarm; set its 'enable_interswarm' to true"
        )
    return None


def _check_own_actions(swarm: _Object) -> None:
    names = Counter(action["name"] for action in swarm["actions"])
    for name, count in names.items():
        with _field_of(swarm, "name", f"action '{name}'"):
            check_action_name(name)
        if count > 1:
            raise _duplicate(swarm, name, "actions")


def _duplicate(swarm: _Object, name: str, field: str) -> ConfigError:
    text = f"duplicate action definition for '{name}' in swarm '{swarm['name']}'"
    return ConfigError(f"{text} (field '{field}')")


def _check_uses(
    swarm: _Object, agents: Sequence[_Object], import_action: ImportAction | None
) -> None:
    """Check the names of actions and tools against those that there are."""
    references = swarm.get("action_imports", ())
    own = dict.fromkeys(action["name"] for action in swarm["actions"])
    if import_action is not None:
        own |= _imported(swarm, references, own, import_action)
    unresolved = len(references) if import_action is None else 0
    unknown: set[str] = set()
    for use in _unknown_uses(swarm, agents, own):
        unknown.add(use.name)
        if len(unknown) > unresolved:
            raise use.fault(swarm)


def _imported(
    swarm: _Object,
    references: Iterable[str],
    own: Mapping[str, None],
    import_action: ImportAction,
) -> dict[str, None]:
    found: dict[str, NamedAction] = {}
    functions = {_bare(action.get("function")) for action in swarm["actions"]}
    for reference in references:
        if _bare(reference) in functions:
            continue  # the entry is the action
        action = import_action(reference, swarm["name"])
        if action.name in own or found.setdefault(action.name, action) is not action:
            raise _duplicate(swarm, action.name, "action_imports")
    return dict.fromkeys(found)


def _bare(reference: object) -> str:
    return str(reference).removeprefix(PYTHON_PREFIX)


@dataclass(frozen=True, slots=True)
class _UnknownUse:
    """A name that is used and not known; the close one is looked for when it is to be told."""

    name: str
    text: str
    field: str
    holder: str | None
    known: Iterable[str]

    def fault(self, swarm: _Object) -> ConfigError:
        if self.text.endswith("."):
            text = self.text + did_you_mean(self.name, self.known)
        else:
            text = hinted(self.text, self.name, self.known)
        return _fault(swarm, text, self.field, self.holder)


_ASKING: Final = {"breakpoint_tools": "breakpoint tool", "approvals": "approvals: tool"}


def _unknown_uses(
    swarm: _Object, agents: Sequence[_Object], own: Mapping[str, None]
) -> "Iterator[_UnknownUse]":
    yield from _unknown_actions(swarm, agents, own)
    yield from _unknown_tools(swarm, agents, own)


def _unknown_actions(
    swarm: _Object, agents: Sequence[_Object], own: Mapping[str, None]
) -> "Iterator[_UnknownUse]":
    for agent in agents:
        called = _called(agent)
        for action in _strings(agent, "actions"):
            if action.startswith(MCP_PREFIX):
                _check_mcp_use(swarm, called, action)
            elif action not in own:
                text = (
                    f"{called} references action '{action}' which is not defined in the swarm's "
                    "actions."
                )
                yield _UnknownUse(action, text, "actions", called, own)


def _unknown_tools(
    swarm: _Object, agents: Sequence[_Object], own: Mapping[str, None]
) -> "Iterator[_UnknownUse]":
    known = dict.fromkeys((*CATALOGUE, *own))
    servers = tuple(f"{name}__" for name in swarm.get("mcp_servers", ()))
    for field, called in _ASKING.items():
        for tool in swarm.get(field) or ():
            if tool not in known and not tool.startswith(servers):
                text = f"{called} '{tool}' not found in swarm"
                yield _UnknownUse(tool, text, field, None, known)
    for holder in (swarm, *agents):
        whose = None if holder is swarm else _called(holder)
        for tool in _strings(holder, "exclude_tools"):
            if tool not in known and not tool.startswith(servers):
                text = f"excluded tool '{tool}' is not valid"
                yield _UnknownUse(tool, text, "exclude_tools", whose, known)


def _check_mcp_use(swarm: _Object, called: str, action: str) -> None:
    """Check an agent's ``mcp:server`` or ``mcp:server/tool``.

    Raises:
        ConfigError: there is no such server, or it may not have the tool.
    """
    servers = swarm.get("mcp_servers", {})
    server, _, tool = action.removeprefix(MCP_PREFIX).partition("/")
    text = None
    if server not in servers:
        text = hinted(f"{called} uses MCP server '{server}', which is not defined", server, servers)
    elif tool and (allowed := servers[server].get("tools")) is not None and tool not in allowed:
        text = f"{called} uses tool '{tool}', which 'tools' of MCP server '{server}' leaves out"
    if text is not None:
        raise _fault(swarm, text, "actions", called)


def _check_servers(swarm: Mapping[str, Any]) -> None:
    """Check the MCP servers of a swarm.

    Raises:
        ConfigError: naming the server and the field.
    """
    for name, entry in swarm.get("mcp_servers", {}).items():
        try:
            _check_server(name, entry)
        except ConfigError as error:
            text = before_hint(str(error), f" (mcp_servers.{name} of swarm '{swarm['name']}')")
            raise ConfigError(text) from None


def _check_server(name: str, entry: object) -> None:
    if not _SERVER_NAME.fullmatch(name):
        raise ConfigError(
            f"MCP server name {name[:64]!r} must be 1 to 32 letters, digits, '-' or '_', without "
            "'__'"
        )
    check_spelling(MCP_SERVER, entry)
    server = check_fields(MCP_SERVER, entry)
    if (server.get("command") is None) == (server.get("url") is None):
        raise ConfigError("an MCP server has either a 'command' or a 'url'")
    other = "headers" if server.get("url") is None else "env"
    if server.get(other):
        raise ConfigError(f"an MCP server with this address has no '{other}'")


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
    swarm["participants"] = [filled(PARTICIPANT, each) for each in swarm["participants"]]
    swarm["teams"] = [filled(TEAM, each) for each in swarm["teams"]]
    servers = swarm["mcp_servers"].items()
    swarm["mcp_servers"] = {name: filled(MCP_SERVER, entry) for name, entry in servers}
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
    _each(swarm, "participants", _check_participant)
    _each(swarm, "teams", _check_team)
    _check_servers(swarm)
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


def _check_participant(candidate: object) -> None:
    check_identity(PARTICIPANT, candidate)
    check_fields(PARTICIPANT, candidate)


def _check_team(candidate: object) -> None:
    check_identity(TEAM, candidate)
    check_fields(TEAM, candidate)


def _each(swarm: Mapping[str, Any], field: str, check: Callable[[object], None]) -> None:
    """Check the parts in a field; an error says which part of which swarm it is about."""
    for number, part in enumerate(swarm.get(field, ()), 1):
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
