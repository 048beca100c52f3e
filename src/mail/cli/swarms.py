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

from mail.cli.common import DONE, FAILED, cleaned, configured, one_line, tell
from mail.cli.stores import STORE
from mail.cli.table import CONFIG, JSON, Group, Namespace, argument, option
from mail.errors import ConfigError, UnknownSwarm

if TYPE_CHECKING:
    from mail.config.server import ServerConfig
    from mail.net.registry import SwarmRegistry
    from mail.net.registry_file import RegistryTable


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
    config: "ServerConfig", file: str, storage: "RegistryTable | None"
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
    from mail.net.endpoints import cleaned as public_part
    from mail.net.endpoints import token_variable

    with _opened(arguments) as registry:
        known, own = registry.get_all_endpoints(), registry.local_swarm_name
        proposed = list(registry.get_proposed_swarms().values())
    peers: list[dict[str, Any]] = [
        {**public_part(each), "token_variable": token_variable(name)}
        for name, each in known.items()
        if name != own
    ]
    lines = []
    for peer in peers:
        keys = "".join(f"  key: {key['kid']}" for key in peer.get("public_keys", ()))
        place = f"{peer['swarm_name']}@{peer['base_url']}"
        lines.append(f"{place}  token: {peer['token_variable']}{keys}")
    for one in proposed:
        lines.append(f"{one['swarm_name']}@{one['base_url']}  proposed by {one['listed_by']}")
    answer = {"swarms": peers, "proposed": proposed}
    return tell(arguments, answer, *(lines or ["no other swarms are registered"]))


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
    return tell(arguments, {"keys": keys}, *(key["kid"] for key in keys))


@swarms.add("accept", "register a proposed swarm", _NAME, *_REGISTRY)
def _accept(arguments: Namespace) -> int:
    with _opened(arguments) as registry:
        asyncio.run(registry.accept_swarm(arguments.name))
    answer = {"status": "registered", "swarm_name": arguments.name}
    return tell(arguments, answer, f"swarm {arguments.name} registered")


@swarms.add("remove", "remove a swarm, or its proposal", _NAME, *_REGISTRY)
def _remove(arguments: Namespace) -> int:
    name = arguments.name
    with _opened(arguments) as registry:
        if not registry.unregister_swarm(name):
            raise UnknownSwarm(f"no swarm '{name}' is registered or proposed")
    if not arguments.json:
        told = f"to cancel them, type `swarm-remove {name} --cancel-tasks` in `mail client`"
        print(cleaned(f"mail: tasks that it has open go on; {told}"), file=sys.stderr)
    return tell(arguments, {"status": "removed", "swarm_name": name}, f"swarm {name} removed")


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
    from mail.api.definitions import check_swarms_file

    file, warned, problem, found = arguments.file, list[str](), "", list[dict[str, Any]]()
    find_code(Path.cwd(), file.parent)
    try:
        # Output of imported modules does not belong in the result.
        with collected(warned), stdout_to_stderr():
            for swarm, actions in check_swarms_file(file):
                found.append(
                    {
                        "name": swarm["name"],
                        "version": swarm["version"],
                        "entrypoint": swarm["entrypoint"],
                        "agents": [agent["name"] for agent in swarm["agents"]],
                        "actions": actions,
                    }
                )
    except ConfigError as error:
        problem = one_line(str(error), _LONGEST)
    if arguments.json:
        told = {"error": problem} if problem else {"swarms": found}
        answer = {"file": str(file), "valid": not problem, **told, "warnings": warned}
        print(json.dumps(answer, indent=2))
        return FAILED if problem else DONE
    if not problem:
        print(f"{file}: {len(found)} swarm{'' if len(found) == 1 else 's'}, no errors found")
    for each in [] if problem else found:
        print(cleaned(f"{each['name']} (version {one_line(each['version'])})"))
        print(cleaned(f"  entrypoint: {each['entrypoint']}"))
        for part in ("agents", "actions"):
            print(cleaned(f"  {part} ({len(each[part])}): {', '.join(each[part]) or 'none'}"))
    for text in warned:
        print(f"warning: {one_line(text, _LONGEST)}", file=sys.stderr)
    if problem:
        print(f"mail: {problem}", file=sys.stderr)
    return FAILED if problem else DONE


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


@contextmanager
def collected(texts: list[str]) -> Iterator[None]:
    """Collect the loader's warnings instead of printing them."""
    logger, collector = logging.getLogger(_LOADER), logging.Handler(logging.WARNING)
    collector.emit = lambda record: texts.append(record.getMessage())  # type: ignore[method-assign]
    propagates, logger.propagate = logger.propagate, False
    logger.addHandler(collector)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
    finally:
        logger.removeHandler(collector)
        logger.propagate = propagates
        texts.extend(str(w.message) for w in caught if "agent_params" in str(w.message))
