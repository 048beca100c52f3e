"""Loading, validating and completing ``swarms.json``; every fault is a `ConfigError`."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from typing import Any, Final, Protocol, cast

from mail.core.addresses import is_remote_target, local_agent_name
from mail.core.suggest import did_you_mean, hinted
from mail.core.tools.catalogue import CATALOGUE
from mail.errors import ConfigError
from mail.swarms_json.decode import parse_json, read_text
from mail.swarms_json.fields import checked
from mail.swarms_json.names import check_distinct, check_participant_names, check_teams
from mail.swarms_json.references import PYTHON_PREFIX
from mail.swarms_json.types import (
    Action,
    Agent,
    Swarm,
    SwarmsJSONAction,
    SwarmsJSONAgent,
    SwarmsJSONSwarm,
)

MCP_PREFIX: Final = "mcp:"
"""Begins an agent's action that stands for tools of an MCP server."""


class NamedAction(Protocol):
    """The target of an import: an action with a name."""

    @property
    def name(self) -> str:
        """The name by which models call the action."""


ImportAction = Callable[[str, str], NamedAction]
"""Takes an entry of ``action_imports`` and the swarm's name; returns the action, or raises a
`ConfigError` that names both."""


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


def _load(text: str, source: str, import_action: ImportAction | None) -> list[SwarmsJSONSwarm]:
    value = parse_json(text, source)
    if not isinstance(value, list):
        raise ConfigError(
            f"{source} must contain a list of swarms, actually got {type(value).__name__}"
        )
    return build_swarms_from_swarms_json(value, import_action=import_action)


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
            if isinstance(candidate, dict) and candidate.get("name"):
                raise
            raise ConfigError(f"{error} (swarm number {number} of the list)") from None
    check_distinct("swarm", [swarm["name"] for swarm in swarms])
    return swarms


def build_swarm_from_swarms_json(
    candidate: object, *, import_action: ImportAction | None = None
) -> SwarmsJSONSwarm:
    """Validate a swarm with all its agents and actions and fill in the defaults.

    Args:
        candidate: The swarm.
        import_action: Resolves an entry of ``action_imports`` (see `ImportAction`), so that names
            of imported actions are checked, too. Without it nothing is imported, and as many names
            as there are imports may be unknown.

    Raises:
        ConfigError: with the first problem found: in a part, then in how they fit together.
    """
    swarm: SwarmsJSONSwarm = checked("swarm", Swarm, candidate)
    names = [agent["name"] for agent in swarm["agents"]]
    others = [each["name"] for each in swarm["participants"]]
    with _field_of(swarm, "agents"):
        check_distinct("agent", names)
    with _field_of(swarm, "participants"):
        check_participant_names(others, names)
    with _field_of(swarm, "teams"):
        check_teams(swarm["teams"], (*names, *others))
    _check_rights(swarm, names)
    known = dict.fromkeys((*names, *others))
    for agent in swarm["agents"]:
        _check_targets(swarm, agent, known)
    _check_uses(swarm, import_action)
    return swarm


def build_agent_from_swarms_json(candidate: object) -> SwarmsJSONAgent:
    """Validate an agent and fill in the defaults.

    Raises:
        ConfigError: with the first problem found.
    """
    return cast("SwarmsJSONAgent", checked("agent", Agent, candidate))


def build_action_from_swarms_json(candidate: object) -> SwarmsJSONAction:
    """Validate an action and fill in the defaults.

    Raises:
        ConfigError: with the first problem found.
    """
    return cast("SwarmsJSONAction", checked("action", Action, candidate))


def validate_swarm_from_swarms_json(
    candidate: object, *, import_action: ImportAction | None = None
) -> None:
    """Check a swarm, as `build_swarm_from_swarms_json`.

    Raises:
        ConfigError: with the first problem found.
    """
    build_swarm_from_swarms_json(candidate, import_action=import_action)


def validate_agent_from_swarms_json(candidate: object) -> None:
    """Check an agent's fields.

    Raises:
        ConfigError: with the first problem found.
    """
    checked("agent", Agent, candidate)


def validate_action_from_swarms_json(candidate: object) -> None:
    """Check an action's fields.

    Raises:
        ConfigError: with the first problem found.
    """
    checked("action", Action, candidate)


@contextmanager
def _field_of(swarm: SwarmsJSONSwarm, field: str) -> Iterator[None]:
    """Say of an error inside which field it is about."""
    try:
        yield
    except ConfigError as error:
        raise _fault(swarm, str(error), field) from None


def _fault(swarm: SwarmsJSONSwarm, text: str, field: str, holder: str | None = None) -> ConfigError:
    whose = f"{holder}, swarm" if holder else "swarm"
    return ConfigError(f"{text} (field '{field}' of {whose} '{swarm['name']}')")


def _check_rights(swarm: SwarmsJSONSwarm, names: list[str]) -> None:
    entrypoint, which = swarm["entrypoint"], f"(swarm '{swarm['name']}')"
    if entrypoint not in names:
        hint = did_you_mean(entrypoint, names) or f" The agents are {', '.join(map(repr, names))}."
        text = f"entrypoint '{entrypoint}' does not match any agent name.{hint}"
        raise _fault(swarm, text, "entrypoint")
    if not swarm["agents"][names.index(entrypoint)]["enable_entrypoint"]:
        raise ConfigError(
            f"entrypoint agent '{entrypoint}' does not have 'enable_entrypoint' set to true {which}"
        )
    if not any(agent["can_complete_tasks"] for agent in swarm["agents"]):
        raise ConfigError(
            "no agent has 'can_complete_tasks' set to true; at least one agent must be able to "
            f"complete tasks {which}"
        )


def _check_targets(
    swarm: SwarmsJSONSwarm, agent: SwarmsJSONAgent, known: Mapping[str, None]
) -> None:
    called = f"agent '{agent['name']}'"
    is_alone = agent["enable_entrypoint"] and agent["can_complete_tasks"]
    if not agent["comm_targets"] and not is_alone:
        text = (
            f"{called} must have at least one communication target, got 0; "
            "only an agent with both enable_entrypoint and can_complete_tasks may have none"
        )
        raise _fault(swarm, text, "comm_targets", called)
    for target in agent["comm_targets"]:
        local = local_agent_name(target, swarm["name"])
        if local in known or (
            "@" in local and is_remote_target(target) and swarm["enable_interswarm"]
        ):
            continue
        text = f"{called} has comm_target '{target}' which is not "
        if "@" not in local:
            text = hinted(f"{text}a defined agent", local, known)
        elif not is_remote_target(target):
            text += "of the form 'agent@swarm', '*@swarm' or '*@*'"
        else:
            text = (
                f"{called} has interswarm communication target '{target}' but interswarm messaging "
                "is not enabled for this swarm; set its 'enable_interswarm' to true"
            )
        raise _fault(swarm, text, "comm_targets", called)


def _check_uses(swarm: SwarmsJSONSwarm, import_action: ImportAction | None) -> None:
    """Check the names of actions and tools against those that there are."""
    own = Counter(action["name"] for action in swarm["actions"])
    for name, count in own.items():
        if count > 1:
            raise _duplicate(swarm, name, "actions")
    known = dict.fromkeys(own)
    unresolved = 0
    if import_action is None:
        unresolved = len(swarm["action_imports"])
    else:
        known |= _imported(swarm, known, import_action)
    tools = dict.fromkeys((*CATALOGUE, *known))
    servers = tuple(f"{name}__" for name in swarm["mcp_servers"])
    unknown: set[str] = set()
    for name, text, field, holder in _uses(swarm):
        there = known if field == "actions" else tools
        if name in there or (there is tools and name.startswith(servers)):
            continue
        unknown.add(name)
        if len(unknown) > unresolved:
            raise _fault(swarm, hinted(text, name, there), field, holder)


def _duplicate(swarm: SwarmsJSONSwarm, name: str, field: str) -> ConfigError:
    text = f"duplicate action definition for '{name}' in swarm '{swarm['name']}'"
    return ConfigError(f"{text} (field '{field}')")


def _imported(
    swarm: SwarmsJSONSwarm, own: Mapping[str, None], import_action: ImportAction
) -> dict[str, None]:
    found: dict[str, NamedAction] = {}
    functions = {action["function"].removeprefix(PYTHON_PREFIX) for action in swarm["actions"]}
    for reference in swarm["action_imports"]:
        if reference.removeprefix(PYTHON_PREFIX) in functions:
            continue  # the entry is the action
        action = import_action(reference, swarm["name"])
        if action.name in own or found.setdefault(action.name, action) is not action:
            raise _duplicate(swarm, action.name, "action_imports")
    return dict.fromkeys(found)


def _uses(swarm: SwarmsJSONSwarm) -> Iterator[tuple[str, str, str, str | None]]:
    """Yield the names of actions and tools that are used, with what to say if there is none.

    Behind the name come a text, the field that has the name, and whose field it is.
    """
    for agent in swarm["agents"]:
        called = f"agent '{agent['name']}'"
        for action in agent["actions"]:
            if action.startswith(MCP_PREFIX):
                _check_mcp_use(swarm, called, action)
            else:
                text = f"references action '{action}' which is not defined in the swarm's actions"
                yield action, f"{called} {text}", "actions", called
    for tool in swarm["breakpoint_tools"]:
        yield tool, f"breakpoint tool '{tool}' not found in swarm", "breakpoint_tools", None
    for tool in swarm["approvals"]:
        yield tool, f"approvals: tool '{tool}' not found in swarm", "approvals", None
    holders: list[tuple[str | None, list[str]]] = [(None, swarm["exclude_tools"])]
    holders += [(f"agent '{agent['name']}'", agent["exclude_tools"]) for agent in swarm["agents"]]
    for holder, tools in holders:
        for tool in tools:
            yield tool, f"excluded tool '{tool}' is not valid", "exclude_tools", holder


def _check_mcp_use(swarm: SwarmsJSONSwarm, called: str, action: str) -> None:
    """Check an agent's ``mcp:server`` or ``mcp:server/tool``.

    Raises:
        ConfigError: there is no such server, or it may not have the tool.
    """
    servers = swarm["mcp_servers"]
    server, _, tool = action.removeprefix(MCP_PREFIX).partition("/")
    text = None
    if server not in servers:
        text = hinted(f"{called} uses MCP server '{server}', which is not defined", server, servers)
    elif tool and (allowed := servers[server]["tools"]) is not None and tool not in allowed:
        text = f"{called} uses tool '{tool}', which 'tools' of MCP server '{server}' leaves out"
    if text is not None:
        raise _fault(swarm, text, "actions", called)
