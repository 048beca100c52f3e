"""``mail swarms``: validate swarms files, and manage the registry of other swarms."""

import asyncio
import json
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mail.cli.common import DONE, cleaned, configured, one_line
from mail.cli.stores import STORE
from mail.cli.table import CONFIG, JSON, Group, Namespace, argument, option
from mail.errors import ConfigError, UnknownSwarm

if TYPE_CHECKING:
    from mail.config.server import ServerConfig
    from mail.net.entries import RegistryStorage
    from mail.net.registry import SwarmRegistry
    from mail.swarms_json.types import SwarmsJSONSwarm


swarms = Group()
_NAME: Final = argument("name", "the swarm")
_REGISTRY: Final = (
    *STORE,
    option(
        *("-rf", "--swarm-registry"),
        metavar="PATH",
        told="file that stores the registry (default: the server's file, or its database)",
    ),
    JSON,
)


@contextmanager
def _opened(arguments: Namespace) -> "Iterator[SwarmRegistry]":
    """Open the server's registry, which keeps what it says about the server's own swarm.

    Raises:
        ConfigError: a setting is invalid.
        StoreError: it cannot be read.
    """
    from mail.config.server import ServerConfig, resolve_store_url
    from mail.db.urls import open_store
    from mail.net.registry_file import shared_registry

    with configured(arguments.config):
        config = ServerConfig()
        url = arguments.store or resolve_store_url(config)
    if arguments.swarm_registry or not url.lower().startswith("postgres"):
        yield _registry(config, arguments.swarm_registry or config.swarm.registry_file, None)
        return
    store, file = open_store(url, exclusive=False), config.swarm.registry_file
    asyncio.run(store.open())
    try:
        yield _registry(config, file, shared_registry(store, config.swarm.name, file))
    finally:
        asyncio.run(store.close())


def _registry(
    config: "ServerConfig", file: str, storage: "RegistryStorage | None"
) -> "SwarmRegistry":
    from mail.net.peers import PeerAccess
    from mail.net.registry import SwarmRegistry
    from mail.net.registry_file import RegistryFile

    about = {"local_swarm_name": config.swarm.name, "local_base_url": ""}
    return SwarmRegistry(
        **(about | (storage or RegistryFile(file)).read().about),
        persistence_file=file,
        access=PeerAccess.of_server(config.federation.allow_private),
        max_swarms=config.federation.max_swarms,
        proposes=True,
        storage=storage,
    )


@swarms.add("list", "list the other swarms that the server knows", *_REGISTRY)
def _list(arguments: Namespace) -> int:
    with _opened(arguments) as registry:
        return _show(arguments, registry)


def _show(arguments: Namespace, registry: "SwarmRegistry") -> int:
    from mail.net.endpoints import cleaned as public_part
    from mail.net.endpoints import token_variable

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
        keys = "".join(f"  key: {key['kid']}" for key in peer.get("public_keys", ()))
        print(cleaned(f"{name}@{peer['base_url']}  token: {token_variable(name)}{keys}"))
    for proposal in proposed:
        place = f"{proposal['swarm_name']}@{proposal['base_url']}"
        print(cleaned(f"{place}  proposed by {proposal['listed_by']}"))
    if not peers and not proposed:
        print("no other swarms are registered")
    return DONE


@swarms.add("key", "show the key with which the server signs its mail", CONFIG, JSON)
def _key(arguments: Namespace) -> int:
    """Print the thumbprints of the server's keys; the file is made if there is none."""
    from mail.config.server import ServerConfig
    from mail.net.signatures import SigningKeys

    with configured(arguments.config):
        path = ServerConfig().federation.signing_key_file
    if path is None:
        raise ConfigError(
            "this server does not sign: [server.federation] signing_key_file is not set"
        )
    keys = SigningKeys.ensure(path).public
    if arguments.json:
        print(json.dumps({"keys": keys}))
    else:
        print("\n".join(key["kid"] for key in keys))
    return DONE


@swarms.add("accept", "register a proposed swarm", _NAME, *_REGISTRY)
def _accept(arguments: Namespace) -> int:
    with _opened(arguments) as registry:
        asyncio.run(registry.accept_swarm(arguments.name))
    return _tell(arguments, "registered")


@swarms.add("remove", "remove a swarm, or its proposal", _NAME, *_REGISTRY)
def _remove(arguments: Namespace) -> int:
    with _opened(arguments) as registry:
        if not registry.unregister_swarm(arguments.name):
            raise UnknownSwarm(f"no swarm '{arguments.name}' is registered or proposed")
    told = f"to cancel them, type `swarm-remove {arguments.name} --cancel-tasks` in `mail client`"
    if not arguments.json:
        print(cleaned(f"mail: tasks that it has open go on; {told}"), file=sys.stderr)
    return _tell(arguments, "removed")


def _tell(arguments: Namespace, status: str) -> int:
    if arguments.json:
        print(json.dumps({"status": status, "swarm_name": arguments.name}))
    else:
        print(cleaned(f"swarm {arguments.name} {status}"))
    return DONE


_LOADER: Final = "mail.swarms_json"
_STDOUT: Final = 1
_STDERR: Final = 2
_LONGEST: Final = 10_000


@swarms.add(
    "validate",
    "validate a swarms file",
    argument("file", "the file, for example swarms.json", type=Path),
    JSON,
)
def _validate(arguments: Namespace) -> int:
    """Print the contents of the file and return 0, or print the first error and return 1."""
    warned: list[str] = []
    find_code(Path.cwd(), arguments.file.parent)
    try:
        # Output of imported modules does not belong in the result.
        with collected(warned), stdout_to_stderr():
            found = _check(arguments.file)
    except ConfigError as error:
        _print_fault(arguments, one_line(str(error), _LONGEST), warned)
        return 1
    if arguments.json:
        _print_json(arguments.file, warned, valid=True, swarms=found)
    else:
        _print_swarms(arguments.file, found, warned)
    return 0


def find_code(*folders: Path) -> None:
    """Add folders to the module search path, the first one first, as `python -m` does.

    Args:
        folders: The current folder and the folder of the swarms file.
    """
    for folder in reversed(folders):
        name = str(folder.resolve())
        if name not in sys.path:
            sys.path.insert(0, name)


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Redirect standard output to standard error, at the level of file descriptors."""
    with ExitStack() as stack:
        _flush()
        stack.enter_context(redirect_stdout(sys.stderr))
        with suppress(OSError):  # one of them is closed: nothing to redirect
            kept = os.dup(_STDOUT)
            stack.callback(os.close, kept)
            os.dup2(_STDERR, _STDOUT)
            stack.callback(os.dup2, kept, _STDOUT)
            stack.callback(_flush)
        yield


@contextmanager
def silent() -> Iterator[None]:
    """Suppress log lines, which findings replace, and compiled modules."""
    before, nowhere = sys.dont_write_bytecode, logging.NullHandler()
    logging.getLogger().addHandler(nowhere)  # so that the handler of last resort prints nothing
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        logging.getLogger().removeHandler(nowhere)
        sys.dont_write_bytecode = before


def _flush() -> None:
    for stream in (sys.stdout, sys.__stdout__):
        if stream is not None and not stream.closed:
            stream.flush()


def _check(file: Path) -> list[dict[str, Any]]:
    from mail.api.definitions import check_swarms_file

    return [_summary(swarm, actions) for swarm, actions in check_swarms_file(file)]


def _summary(swarm: "SwarmsJSONSwarm", actions: list[str]) -> dict[str, Any]:
    return {
        "name": swarm["name"],
        "version": swarm["version"],
        "entrypoint": swarm["entrypoint"],
        "agents": [agent["name"] for agent in swarm["agents"]],
        "actions": actions,
    }


def _print_swarms(file: Path, found: list[dict[str, Any]], warned: list[str]) -> None:
    count = f"{len(found)} swarm" + ("" if len(found) == 1 else "s")
    print(f"{file}: {count}, no errors found")
    for swarm in found:
        print(cleaned(f"{swarm['name']} (version {one_line(swarm['version'])})"))
        print(cleaned(f"  entrypoint: {swarm['entrypoint']}"))
        print(cleaned(f"  agents ({len(swarm['agents'])}): {', '.join(swarm['agents'])}"))
        actions = ", ".join(swarm["actions"]) or "none"
        print(cleaned(f"  actions ({len(swarm['actions'])}): {actions}"))
    _print_warnings(warned)


def _print_fault(arguments: Namespace, problem: str, warned: list[str]) -> None:
    if arguments.json:
        _print_json(arguments.file, warned, valid=False, error=problem)
        return
    _print_warnings(warned)
    print(f"mail: {problem}", file=sys.stderr)


def _print_warnings(warned: list[str]) -> None:
    for text in warned:
        print(f"warning: {one_line(text, _LONGEST)}", file=sys.stderr)


def _print_json(file: Path, warned: list[str], *, valid: bool, **found: Any) -> None:
    print(json.dumps({"file": str(file), "valid": valid, **found, "warnings": warned}, indent=2))


class _Collector(logging.Handler):
    """Collects the messages of log records."""

    def __init__(self, texts: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._texts = texts

    def emit(self, record: logging.LogRecord) -> None:
        self._texts.append(record.getMessage())


@contextmanager
def collected(texts: list[str]) -> Iterator[None]:
    """Collect the loader's warnings instead of printing them."""
    logger = logging.getLogger(_LOADER)
    collector, propagates = _Collector(texts), logger.propagate
    logger.addHandler(collector)
    logger.propagate = False
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
    finally:
        logger.removeHandler(collector)
        logger.propagate = propagates
        texts.extend(str(w.message) for w in caught if "agent_params" in str(w.message))
