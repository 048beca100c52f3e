"""What a swarm's definition names beside itself: actions, factories, functions, parameters."""

from os import PathLike

from mail.api.actions import MAILAction, action_around, action_from_entry
from mail.api.agents import agent_from_entry
from mail.api.references import check_params, load_callable, load_object, without_documents
from mail.core.suggest import before_hint
from mail.errors import ConfigError, WrongReference
from mail.swarms_json.references import TRUSTED, ReferencePolicy
from mail.swarms_json.types import SwarmsJSONAgent, SwarmsJSONSwarm
from mail.swarms_json.utils import load_swarms_json_from_file

__all__ = ["ActionImporter", "check_swarms_file", "load_actions"]


class ActionImporter:
    """Imports the entries of ``action_imports`` for validation, and keeps the actions.

    Attributes:
        references: What may be imported and fetched; one budget for the whole definition.
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
        importer: What its validation imported with.

    Raises:
        ConfigError, WrongReference: as `mail.api.actions.action_from_entry`.
    """
    found = {
        name: action for (owner, name), action in importer.actions.items() if owner == swarm["name"]
    }
    for entry in swarm["actions"]:
        found[entry["name"]] = action_from_entry(entry, importer.references)
    return found


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
                _check_agent(agent, actions)
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
