"""``mail swarms list``, ``accept`` and ``remove``: the registry of other swarms.

They open the server's file for a moment. A running server takes over what they change.
"""

import argparse
import asyncio
import json
from typing import TYPE_CHECKING, Any

from mail.cli.exits import DONE
from mail.cli.flags import config_path
from mail.cli.plain import cleaned
from mail.config.env import CONFIG_PATH, overridden
from mail.errors import UnknownSwarm

if TYPE_CHECKING:
    from mail.net.registry import SwarmRegistry

__all__ = ["configure"]


def configure(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the subcommands."""
    listing = actions.add_parser("list", help="list the other swarms that the server knows")
    accept = actions.add_parser("accept", help="register a proposed swarm")
    remove = actions.add_parser("remove", help="remove a swarm, or its proposal")
    for parser, work in ((listing, _list), (accept, _accept), (remove, _remove)):
        if parser is not listing:
            parser.add_argument("name", metavar="NAME", help="the swarm")
        parser.add_argument("-c", "--config", metavar="PATH", help="configuration file")
        parser.add_argument(
            *("-rf", "--swarm-registry"),
            metavar="PATH",
            help="file that stores the registry (default: the server's)",
        )
        parser.add_argument("--json", action="store_true", help="print JSON")
        parser.set_defaults(work=work)


def _opened(arguments: argparse.Namespace) -> "SwarmRegistry":
    """Return the server's registry; the file keeps what it says about the server's own swarm.

    Raises:
        ConfigError: a setting is invalid.
        StoreError: the file cannot be read.
    """
    from mail.config.server import FederationConfig, SwarmConfig
    from mail.net.peers import PeerAccess
    from mail.net.registry import SwarmRegistry
    from mail.net.registry_file import RegistryFile

    with overridden(CONFIG_PATH, config_path(arguments.config)):
        swarm, federation = SwarmConfig(), FederationConfig()
    file = arguments.swarm_registry or swarm.registry_file
    about = {"local_swarm_name": swarm.name, "local_base_url": ""}
    return SwarmRegistry(
        **(about | RegistryFile(file).read().about),
        persistence_file=file,
        access=PeerAccess.of_server(federation.allow_private),
        max_swarms=federation.max_swarms,
        proposes=True,
    )


def _list(arguments: argparse.Namespace) -> int:
    from mail.net.endpoints import cleaned as public_part
    from mail.net.endpoints import token_variable

    registry = _opened(arguments)
    own = registry.local_swarm_name
    peers = [one for name, one in registry.get_all_endpoints().items() if name != own]
    proposed = list(registry.get_proposed_swarms().values())
    if arguments.json:
        shown: list[dict[str, Any]] = [
            {**public_part(one), "token_variable": token_variable(one["swarm_name"])}
            for one in peers
        ]
        print(json.dumps({"swarms": shown, "proposed": proposed}))
        return DONE
    for peer in peers:
        name = peer["swarm_name"]
        print(cleaned(f"{name}@{peer['base_url']}  token: {token_variable(name)}"))
    for proposal in proposed:
        place = f"{proposal['swarm_name']}@{proposal['base_url']}"
        print(cleaned(f"{place}  proposed by {proposal['listed_by']}"))
    if not peers and not proposed:
        print("no other swarms are registered")
    return DONE


def _accept(arguments: argparse.Namespace) -> int:
    asyncio.run(_opened(arguments).accept_swarm(arguments.name))
    return _tell(arguments, "registered")


def _remove(arguments: argparse.Namespace) -> int:
    if not _opened(arguments).unregister_swarm(arguments.name):
        raise UnknownSwarm(f"no swarm '{arguments.name}' is registered or proposed")
    return _tell(arguments, "removed")


def _tell(arguments: argparse.Namespace, status: str) -> int:
    if arguments.json:
        print(json.dumps({"status": status, "swarm_name": arguments.name}))
    else:
        print(cleaned(f"swarm {arguments.name} {status}"))
    return DONE
