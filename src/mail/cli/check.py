"""``mail server --check``: check everything that the server needs to start.

All parts are checked, even if an earlier one fails. Nothing is changed: no database, table,
folder or file is created.
"""

import asyncio
import errno
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple
from urllib.parse import urlsplit

from mail.cli.common import DONE, FAILED, USAGE, cleaned, in_flags
from mail.cli.swarms import collected, find_code, silent, stdout_to_stderr
from mail.config.env import LOG_FORMAT, LOG_LEVEL, current, setting
from mail.errors import ConfigError, MAILError, PortInUse

if TYPE_CHECKING:
    from mail.config.server import ServerConfig
    from mail.config.toml import FileBacked
    from mail.db.inspect import Remark

Status = Literal["ok", "warning", "error"]
Line = tuple[Status, str] | tuple[Status, str, int]
"""The status and the text of a finding, and the exit code of an error (2 by default)."""

_REACH_SECONDS: Final = 3.0
_PORTS: Final = {"http": 80, "https": 443}


class _Server(NamedTuple):
    """The subject of the check: the settings, and the facts about the store."""

    config: "ServerConfig"
    remarks: "Sequence[Remark] | ConfigError"
    url: str

    def in_store(self, name: str) -> Any:
        """Return what the store has of ``tokens`` or ``registry``; None if it is not known."""
        known = () if isinstance(self.remarks, ConfigError) else self.remarks
        return next((v for each in known if (v := getattr(each, name)) is not None), None)


def check_server(flags: Mapping[str, Mapping[str, Any]], *, as_json: bool) -> int:
    """Check everything and print a line for each finding.

    Args:
        flags: The values of the flags, by table of ``mail.toml``.
        as_json: Print one JSON object instead: ``ok`` and ``checks``.

    Returns:
        0 if the server could start, 2 if a setting is invalid, 1 for any other error.
    """
    from mail.config.server import resolve_store_url
    from mail.db.inspect import look_at_store
    from mail.redaction import redact

    found: list[tuple[str, Status, str, int]] = []
    with stdout_to_stderr(), silent():
        config, lines = _check_settings(flags)
        found += [("configuration", *line, USAGE) for line in lines]
        find_code(Path.cwd(), Path(config.swarm.source).parent)
        url = resolve_store_url(config, current())
        remarks: Sequence[Remark] | ConfigError
        try:
            remarks = asyncio.run(look_at_store(url, config.swarm.name))
        except ConfigError as error:
            remarks = error
        server = _Server(config, remarks, url)
        for part, check in _CHECKS.items():
            try:
                found += [(part, *line, USAGE)[:4] for line in check(server)]
            except ConfigError as error:
                found.append((part, "error", str(error), USAGE))
            except (MAILError, OSError) as error:
                found.append((part, "error", str(error), FAILED))
    checks = [
        {"status": s, "part": part, "text": cleaned(" ".join(redact(in_flags(text)).split()))}
        for part, s, text, _ in found
    ]
    codes = [code for _, status, _, code in found if status == "error"]
    if as_json:
        print(json.dumps({"ok": not codes, "checks": checks}, indent=2))
    else:
        for each in checks:
            print("{status:<8} {part:<13} {text}".format_map(each))
    return max(codes, default=DONE)


def _check_settings(
    flags: Mapping[str, Mapping[str, Any]],
) -> tuple["ServerConfig", list[tuple[Status, str]]]:
    """Return the settings, and the errors of every table; an invalid one gets its defaults."""
    from mail.config.client import ClientConfig
    from mail.config.server import ServerConfig
    from mail.config.stdlib import StdlibConfig
    from mail.config.toml import FileBacked, WrongSettings, find_config_file, read_config
    from mail.llm.profiles import configured_models
    from mail.stdlib.settings import egress_policy

    mistakes: list[str] = []

    def make(model: "type[FileBacked]", *, read: bool = True) -> Any:
        tables = {
            name: make(field.annotation, read=read)
            for name, field in model.model_fields.items()
            if isinstance(field.annotation, type) and issubclass(field.annotation, FileBacked)
        }
        given = {**flags.get(model.table, {}), **tables}
        if not read:
            return model.model_construct(**given)
        try:
            return model(**given)
        except WrongSettings as error:
            mistakes.extend(error.mistakes)
        except ConfigError as error:
            mistakes.append(str(error))
        return model.model_construct(**tables)

    try:
        path = find_config_file()
        read_config(path)
    except ConfigError as error:
        return make(ServerConfig, read=False), [("error", str(error))]
    config: ServerConfig = make(ServerConfig)
    make(ClientConfig)
    actions = make(StdlibConfig)
    for check in (lambda: egress_policy(actions.http), actions.email.check, configured_models):
        try:
            check()
        except ConfigError as error:
            mistakes.append(str(error))
    text = str(path) if path else "there is no mail.toml; the defaults apply"
    return config, [("error", each) for each in mistakes] or [("ok", text)]


def _environment(_: _Server) -> Iterator[Line]:
    """Check the environment variables of the log."""
    from mail.logs.setup import FORMATS, LEVELS

    wrong = [
        f"{name} must be one of {', '.join(values)}"
        for name, values, spelled in (
            (LOG_LEVEL, LEVELS, str.upper),
            (LOG_FORMAT, FORMATS, str.lower),
        )
        if (value := setting(name)) is not None and spelled(value) not in values
    ]
    yield from (("error", text) for text in wrong)
    if not wrong:
        yield "ok", "all variables that are set are valid"


def _swarm(server: _Server) -> Iterator[Line]:
    """Load the swarm and build its agents once, as in a real start, without starting them."""
    from mail.config.server import resolve_swarms_file
    from mail.db.memory import MemoryStore
    from mail.llm.litellm_model import load_library
    from mail.llm.provider_env import model_warnings
    from mail.server.swarm import SwarmBuilder
    from mail.stdlib.settings import stray_files

    config, warned = server.config, list[str]()
    place = f"'{config.swarm.name}' of {resolve_swarms_file(config.swarm)}"
    try:
        with collected(warned):
            served = asyncio.run(SwarmBuilder(config=config, store=MemoryStore()).open())
    except (MAILError, OSError) as error:
        yield "error", str(error)
    else:
        agents = len(served.template.agents)
        yield "ok", f"{place}: {agents} agent{'' if agents == 1 else 's'}, built without errors"
        with suppress(ConfigError):  # what is wrong with the settings is said already
            warned += filter(None, [stray_files(served.template)])
        if proxied := [use.agent for use in served.uses if use.use_proxy]:
            yield "ok", f"through the LiteLLM proxy: {', '.join(proxied)}"
        warned += model_warnings(load_library(), served.uses) if served.uses else ()
    yield from (("warning", text) for text in warned)


def _memory(server: _Server) -> Iterator[Line]:
    """Check the model that learns from answers to approvals, if one is named; nothing is asked."""
    from mail.config.server import NO_MODEL
    from mail.llm.litellm_model import load_library
    from mail.llm.provider_env import ModelUse, model_warnings
    from mail.llm.resolve import is_scripted
    from mail.memory import proposer

    model = server.config.memory.model
    if model is None or model == NO_MODEL:  # the entrypoint's model is checked with the swarm
        return
    try:
        proposer(model)
    except ConfigError as error:
        raise ConfigError(f"[server.memory] model: {error}") from error
    use = ModelUse("[server.memory]", model, "completions", use_proxy=False)
    warned = [] if is_scripted(model) else [*model_warnings(load_library(), [use])]
    yield from (("warning", text) for text in warned)
    if not warned:
        yield "ok", f"'{model}' learns from answers to approvals"


def _signatures(server: _Server) -> Iterator[Line]:
    """Read the key for signatures; the server makes one that is not there yet."""
    from mail.net.signatures import SigningKeys

    path = server.config.federation.signing_key_file
    if path is not None and not Path(path).exists():
        yield "ok", f"{path}: the server makes a key at its first start"
    elif path is not None:
        yield "ok", f"{path}: signs with the key {SigningKeys.read(path).public[0]['kid']}"


def _webhook(server: _Server) -> Iterator[Line]:
    """Check that there is a secret for the webhook; nothing is sent."""
    from mail.config.server import webhook_secret

    hook = server.config.webhook
    if hook.url is not None:
        webhook_secret(hook)
        yield "ok", f"messages are signed with the secret in {hook.secret_env}"


def _registry(server: _Server) -> Iterator[Line]:
    """Read the registry of other swarms, if there is one; none of its faults stops a server."""
    from mail.net.endpoints import is_reference, missing_token, token_variable
    from mail.net.registry_file import RegistryContent, RegistryFile

    own, file = server.config.swarm.name, RegistryFile(server.config.swarm.registry_file)
    shared = server.in_store("registry")
    place = "in the database" if shared is not None else file.place
    if shared is None and not file.exists():
        return
    try:
        content = file.read() if shared is None else RegistryContent.from_text(shared)
    except MAILError as error:
        yield "warning", str(error) if shared is None else f"{place}: {error}"
        return
    for problem in content.problems:
        yield "warning", f"{place}: {problem}; it is not used"
    ours = (own, content.about.get("local_swarm_name"))
    peers = {name: entry for name, entry in content.endpoints.items() if name not in ours}
    for name, entry in peers.items():
        held = entry["auth_token_ref"]
        if (held is None or is_reference(held)) and setting(token_variable(name)) is None:
            yield "warning", missing_token(name, own)
    yield "ok", f"{place}: {len(peers)} other swarm{'' if len(peers) == 1 else 's'}"


def _store(server: _Server) -> Iterator[Line]:
    """Tell what was found of the store that the server would use."""
    from mail.config.server import store_url_place

    if isinstance(server.remarks, ConfigError):
        place = store_url_place(server.config, current())
        raise ConfigError(f"{place}: {server.remarks}") from server.remarks
    yield from ((remark.status, remark.text, FAILED) for remark in server.remarks)


def _files(server: _Server) -> Iterator[Line]:
    """Look for the bucket of files, if there is one."""
    from mail.db.blobs_s3 import S3Blobs, S3Place

    url = server.config.files.url
    if url is None:
        return
    if server.config.files.root is not None:
        raise ConfigError("[server.files]: give either root or url")
    try:
        asyncio.run(S3Blobs(S3Place.of(url), server.config.swarm.name, "", current()).reach())
    except ConfigError:
        raise
    except MAILError as error:
        yield "error", f"[server.files] url: {error}", FAILED
    else:
        yield "ok", f"{url}: the bucket is there"


def _auth(server: _Server) -> Iterator[Line]:
    """Check the source of tokens. Connect to an external service, but send it nothing."""
    from mail.auth.builtin import (
        AUTH_ENDPOINT,
        TOKEN_INFO_ENDPOINT,
        BuiltinAuth,
        build_auth,
    )
    from mail.config.server import MEMORY_URL
    from mail.db.memory import MemoryStore

    if not isinstance(build_auth(current(), MemoryStore()), BuiltinAuth):
        for name in (AUTH_ENDPOINT, TOKEN_INFO_ENDPOINT):
            problem = asyncio.run(_unreachable(setting(name) or ""))
            state = f"cannot be reached now ({problem})" if problem else "can be reached"
            yield "warning" if problem else "ok", f"{name}: the external token service {state}"
        return
    tokens = server.in_store("tokens")
    if server.url.lower().startswith(MEMORY_URL):
        yield "warning", "'mail token' cannot create tokens in a memory store; use another store"
    elif tokens is None:
        yield "warning", "built-in; the number of tokens is unknown"
    elif tokens == 0:
        yield "warning", "there are no tokens yet; create one with 'mail token create'"
    else:
        yield "ok", f"built-in, {tokens} token{'' if tokens == 1 else 's'} in the store"


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


def _address(server: _Server) -> Iterator[Line]:
    """Check whether the server can listen on its address."""
    from mail.server.run import bind

    try:
        for listener in bind(server.config):
            listener.close()
    except PortInUse as error:
        in_use = isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EADDRINUSE
        yield "warning" if in_use else "error", str(error), FAILED
    else:
        yield "ok", f"{server.config.host}:{server.config.port} is free"


def _logs(_: _Server) -> Iterator[Line]:
    """Check whether the log files are writable."""
    place = Path("logs").absolute()
    above = place if place.exists() else place.parent
    if not above.is_dir():
        yield "error", f"{above} is not a folder"
    elif not os.access(above, os.W_OK | os.X_OK):
        yield "error", f"the folder {above} is not writable"
    else:
        yield "ok", f"{place}" + ("" if place.exists() else " will be created")


_CHECKS: Final[Mapping[str, Callable[[_Server], Iterator[Line]]]] = {
    "environment": _environment,
    "swarm": _swarm,
    "memory": _memory,
    "signatures": _signatures,
    "webhook": _webhook,
    "registry": _registry,
    "store": _store,
    "files": _files,
    "auth": _auth,
    "address": _address,
    "logs": _logs,
}
"""The checks, in the order in which their findings are printed."""
