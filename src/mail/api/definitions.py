"""The parts that a swarm's definition names: actions, factories, functions, parameters."""

from collections.abc import Mapping
from os import PathLike
from typing import Final

from mail.api.actions import MAILAction, action_around, action_from_entry
from mail.api.agents import agent_from_entry
from mail.api.references import check_params, load_callable, load_object, without_documents
from mail.core.suggest import before_hint, hinted
from mail.errors import ConfigError, WrongReference
from mail.swarms_json.references import TRUSTED, ReferencePolicy
from mail.swarms_json.types import SwarmsJSONAgent, SwarmsJSONMCPServer, SwarmsJSONSwarm
from mail.swarms_json.utils import MCP_PREFIX, load_swarms_json_from_file

_ASK_SERVERS: Final = "python::mail.stdlib.mcp.servers:actions_of_servers"
"""It makes actions, so it stands above this module, and is large: named, and loaded when needed."""


class ActionImporter:
    """Imports the entries of ``action_imports`` for validation, and keeps the actions.

    Attributes:
        references: The permitted imports and addresses; one budget for the whole definition.
        actions: The imported actions by the name of their swarm and their own, in order.
    """

    def __init__(self, references: ReferencePolicy = TRUSTED) -> None:
        self.references = references.for_definition()
        self.actions: dict[tuple[str, str], MAILAction] = {}

    def __call__(self, reference: str, swarm: str) -> MAILAction:
        """Return the action that an entry names, or whose function it names.

        See `mail.swarms_json.utils.ImportAction`.

        Raises:
            ConfigError: it cannot be imported, or may not be.
            WrongReference: it is not a `MAILAction`.
        """
        try:
            action = load_object(reference, f"action import of swarm '{swarm}'", self.references)
        except ConfigError as error:
            raise ConfigError(before_hint(str(error), " (field 'action_imports')")) from error
        if not isinstance(action, MAILAction):
            action = action_around(action) or action
        if not isinstance(action, MAILAction):
            raise WrongReference(
                f"action import '{reference}' in swarm '{swarm}' did not resolve to a MAILAction "
                f"but to {type(action).__name__} (field 'action_imports')"
            )
        self.actions.setdefault((swarm, action.name), action)
        return action


def load_actions(swarm: SwarmsJSONSwarm, importer: ActionImporter) -> dict[str, MAILAction]:
    """Return a validated swarm's actions by name: the imported ones, then its own.

    Args:
        swarm: The swarm.
        importer: The importer that its validation used.

    Raises:
        ConfigError, WrongReference: as `mail.api.actions.action_from_entry`.
    """
    found = {
        name: action for (owner, name), action in importer.actions.items() if owner == swarm["name"]
    }
    for entry in swarm["actions"]:
        found[entry["name"]] = action_from_entry(entry, importer.references)
    return found


def add_mcp_actions(
    swarm: SwarmsJSONSwarm, actions: dict[str, MAILAction], references: ReferencePolicy
) -> None:
    """Ask the MCP servers that the agents use for their tools; add these to the swarm's actions.

    In the agents' ``actions`` the names of these actions take the place of ``mcp:server`` and
    ``mcp:server/tool``. Blocks until the servers have answered.

    Raises:
        ConfigError: the definition came over the network, a server does not answer or does not
            have what it should, or an action has the name of another one.
    """
    used = {_server_of(entry) for agent in swarm["agents"] for entry in agent["actions"]}
    servers = {name: entry for name, entry in swarm["mcp_servers"].items() if name in used}
    if swarm["mcp_servers"] and not references.trusted:
        raise ConfigError(
            f"swarm '{swarm['name']}' has 'mcp_servers', which only a file of the operator may "
            "have: they start programs and send secrets"
        )
    if not servers:
        return
    ask = load_callable(_ASK_SERVERS, "mcp_servers")
    found: dict[str, dict[str, MAILAction]] = ask(servers)
    for action in [each for tools in found.values() for each in tools.values()]:
        if action.name in actions:
            raise ConfigError(f"action '{action.name}' has the name of a tool of an MCP server")
        actions[action.name] = action
    for agent in swarm["agents"]:
        names = (_names_of(entry, servers, found) for entry in agent["actions"])
        agent["actions"] = list(dict.fromkeys(name for some in names for name in some))


def _server_of(entry: str) -> str | None:
    if not entry.startswith(MCP_PREFIX):
        return None
    return entry.removeprefix(MCP_PREFIX).partition("/")[0]


def _names_of(
    entry: str,
    servers: Mapping[str, SwarmsJSONMCPServer],
    found: Mapping[str, Mapping[str, MAILAction]],
) -> list[str]:
    """Return the names of the actions that an entry of an agent's ``actions`` stands for."""
    server = _server_of(entry)
    if server is None:
        return [entry]
    tools = found[server]
    tool = entry.removeprefix(MCP_PREFIX).partition("/")[2]
    if not tool:
        return [action.name for action in tools.values()]
    if tool in tools:
        return [tools[tool].name]
    if not tools and servers[server]["optional"]:
        return []
    raise ConfigError(hinted(f"MCP server '{server}' has no tool '{tool}'", tool, list(tools)))


def check_swarms_file(path: str | PathLike[str]) -> list[tuple[SwarmsJSONSwarm, list[str]]]:
    """Validate all swarms of a file with everything that they name, and build none of them.

    Action imports, functions, factories and the ``python::`` strings of ``agent_params`` are
    imported; ``url::`` documents are not fetched. Factories must take the parameters that they
    would get from a server.

    Returns:
        Each swarm with the names of its actions, imported ones included.

    Raises:
        ConfigError: the first problem.
        WrongReference: the first problem is a reference to something of the wrong kind.
    """
    importer = ActionImporter()
    checked = []
    for swarm in load_swarms_json_from_file(path, import_action=importer):
        try:
            actions = load_actions(swarm, importer)
            for agent in swarm["agents"]:
                # The servers are not asked, so what they would offer is not known.
                own = [name for name in agent["actions"] if _server_of(name) is None]
                _check_agent({**agent, "actions": own}, actions)
        except ConfigError as error:
            text = before_hint(str(error), f" in swarm '{swarm['name']}'")
            raise type(error)(text) from error
        checked.append((swarm, list(actions)))
    return checked


def _check_agent(agent: SwarmsJSONAgent, actions: dict[str, MAILAction]) -> None:
    whose = f"agent '{agent['name']}'"
    load_callable(agent["factory"], f"factory of {whose}")
    check_params(agent["agent_params"], f"agent_params of {whose}")
    offline: SwarmsJSONAgent = {**agent, "agent_params": without_documents(agent["agent_params"])}
    agent_from_entry(offline, actions, TRUSTED).check_factory({"user_token": ""})
