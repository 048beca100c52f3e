"""The checks of ``mail server --check`` other than the settings; none of them changes anything."""

import asyncio
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple
from urllib.parse import urlsplit

from mail.cli.exits import FAILED, USAGE
from mail.config.env import LOG_FORMAT, LOG_LEVEL, current, setting
from mail.errors import ConfigError, MAILError, PortInUse

if TYPE_CHECKING:
    from mail.config.server import ServerConfig

__all__ = [
    "Finding",
    "StoreFound",
    "check_address",
    "check_auth",
    "check_environment",
    "check_logs",
    "check_store",
    "check_swarm",
]

Status = Literal["ok", "warning", "error"]

_REACH_SECONDS: Final = 3.0
_PORTS: Final = {"http": 80, "https": 443}


class Finding(NamedTuple):
    """The result of one check; ``code`` is the exit code if it is an error."""

    part: str
    status: Status
    text: str
    code: int = USAGE


class StoreFound(NamedTuple):
    """What is known about the store: whether it is durable, and how many tokens it has."""

    findings: list[Finding]
    durable: bool = True
    tokens: int | None = None


def check_environment() -> Iterator[Finding]:
    """Check the environment variables of the log."""
    from mail.logs.setup import FORMATS, LEVELS

    known = ((LOG_LEVEL, LEVELS, str.upper), (LOG_FORMAT, FORMATS, str.lower))
    wrong = False
    for name, values, spelled in known:
        value = setting(name)
        if value is not None and spelled(value) not in values:
            wrong = True
            text = f"{name} must be one of {', '.join(values)}"
            yield Finding("environment", "error", text)
    if not wrong:
        yield Finding("environment", "ok", "all variables that are set are valid")


def check_swarm(config: "ServerConfig") -> Iterator[Finding]:
    """Load the swarm and build its agents once, as in a real start, without starting them."""
    from mail.cli.swarms import collected
    from mail.config.server import resolve_swarms_file
    from mail.db.memory import MemoryStore
    from mail.server.swarm import open_swarm

    warned: list[str] = []
    place = f"'{config.swarm.name}' of {resolve_swarms_file(config.swarm)}"
    try:
        with collected(warned):
            served = asyncio.run(open_swarm(config, MemoryStore()))
    except (MAILError, OSError) as error:
        yield Finding("swarm", "error", str(error))
    else:
        agents = len(served.template.agents)
        text = f"{place}: {agents} agent{'' if agents == 1 else 's'}, built without errors"
        yield Finding("swarm", "ok", text)
        if served.uses:
            from mail.llm.litellm_model import load_library
            from mail.llm.provider_env import model_warnings

            warned += model_warnings(load_library(), served.uses)
    for text in warned:
        yield Finding("swarm", "warning", text)


def check_store(config: "ServerConfig") -> StoreFound:
    """Check the store that the server would use."""
    from mail.config.server import MEMORY_URL, resolve_store_url, store_url_place
    from mail.db.inspect import look_at_store

    url = resolve_store_url(config, current())
    durable = not url.lower().startswith(MEMORY_URL)
    try:
        remarks = asyncio.run(look_at_store(url, config.swarm.name))
    except ConfigError as error:
        text = f"{store_url_place(config, current())}: {error}"
        return StoreFound([Finding("store", "error", text)], durable)
    findings = [Finding("store", remark.status, remark.text, FAILED) for remark in remarks]
    tokens = next((r.tokens for r in remarks if r.tokens is not None), None)
    return StoreFound(findings, durable, tokens)


def check_auth(store: StoreFound) -> Iterator[Finding]:
    """Check the source of tokens. Connect to an external service, but send it nothing."""
    from mail.auth.builtin import (
        AUTH_ENDPOINT,
        TOKEN_INFO_ENDPOINT,
        BuiltinAuth,
        build_auth,
    )
    from mail.db.memory import MemoryStore

    try:
        auth = build_auth(current(), MemoryStore())
    except ConfigError as error:
        yield Finding("auth", "error", str(error))
        return
    if isinstance(auth, BuiltinAuth):
        yield _built_in(store)
        return
    for name in (AUTH_ENDPOINT, TOKEN_INFO_ENDPOINT):
        problem = asyncio.run(_unreachable(setting(name) or ""))
        if problem is None:
            yield Finding("auth", "ok", f"{name}: the external token service can be reached")
        else:
            text = f"{name}: the external token service cannot be reached now ({problem})"
            yield Finding("auth", "warning", text)


def _built_in(store: StoreFound) -> Finding:
    if not store.durable:
        text = "'mail token' cannot create tokens in a memory store; use another store"
        return Finding("auth", "warning", text)
    if store.tokens is None:
        return Finding("auth", "warning", "built-in; the number of tokens is unknown")
    if store.tokens == 0:
        text = "there are no tokens yet; create one with 'mail token create'"
        return Finding("auth", "warning", text)
    many = "1 token" if store.tokens == 1 else f"{store.tokens} tokens"
    return Finding("auth", "ok", f"built-in, {many} in the store")


async def _unreachable(url: str) -> str | None:
    """Connect and disconnect; return the reason if that fails, otherwise None."""
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    try:
        async with asyncio.timeout(_REACH_SECONDS):
            _, writer = await asyncio.open_connection(
                parts.hostname, parts.port or _PORTS[parts.scheme], ssl=secure or None
            )
            writer.transport.abort()
    except TimeoutError:
        return "no answer in time"
    except OSError as error:
        return error.strerror or type(error).__name__
    return None


def check_address(config: "ServerConfig") -> Iterator[Finding]:
    """Check whether the server can listen on its address."""
    from mail.server.run import bind

    try:
        for listener in bind(config):
            listener.close()
    except PortInUse as error:
        in_use = isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EADDRINUSE
        status: Status = "warning" if in_use else "error"
        yield Finding("address", status, str(error), FAILED)
    else:
        yield Finding("address", "ok", f"{config.host}:{config.port} is free")


def check_logs(folder: Path) -> Iterator[Finding]:
    """Check whether the log files are writable."""
    place = folder.absolute()
    above = place if place.exists() else place.parent
    if above.is_dir() and os.access(above, os.W_OK | os.X_OK):
        yield Finding("logs", "ok", f"{place}" + ("" if place.exists() else " will be created"))
    elif above.is_dir():
        yield Finding("logs", "error", f"the folder {above} is not writable")
    else:
        yield Finding("logs", "error", f"{above} is not a folder")
