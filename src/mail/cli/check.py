"""``mail server --check``: check everything that the server needs to start.

All parts are checked, even if an earlier one fails. Nothing is changed: no database, table,
folder or file is created.
"""

import asyncio
import errno
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple
from urllib.parse import urlsplit

from mail.cli.common import DONE, FAILED, USAGE, cleaned, in_flags
from mail.cli.swarms import find_code, silent, stdout_to_stderr
from mail.config.env import LOG_FORMAT, LOG_LEVEL, current, setting
from mail.errors import ConfigError, MAILError, PortInUse

if TYPE_CHECKING:
    from mail.config.server import ServerConfig
    from mail.config.toml import FileBacked

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
    """What is known about the store.

    ``durable`` tells whether it is, ``tokens`` how many it has, ``registry`` what it holds of the
    registry of other swarms.
    """

    findings: list[Finding]
    durable: bool = True
    tokens: int | None = None
    registry: str | None = None


def check_server(flags: Mapping[str, Mapping[str, Any]], *, as_json: bool) -> int:
    """Check everything and print a line for each finding.

    Args:
        flags: The values of the flags, by table of ``mail.toml``.
        as_json: Print one JSON object instead: ``ok`` and ``checks``.

    Returns:
        0 if the server could start, 2 if a setting is invalid, 1 for any other error.
    """
    with stdout_to_stderr(), silent():
        config, findings = _check_settings(flags)
        find_code(Path.cwd(), Path(config.swarm.source).parent)
        findings += _check_environment()
        findings += _check_swarm(config)
        findings += _check_memory(config)
        findings += _check_signing_key(config)
        findings += _check_webhook(config)
        store = _check_store(config)
        findings += _check_registry(config, store)
        findings += store.findings
        findings += _check_files(config)
        findings += _check_auth(store)
        findings += _check_address(config)
        findings += _check_logs(Path("logs"))
    _print(findings, as_json=as_json)
    return max((found.code for found in findings if found.status == "error"), default=DONE)


def _print(findings: list[Finding], *, as_json: bool) -> None:
    from mail.redaction import redact

    lines = [
        (f.status, f.part, cleaned(" ".join(redact(in_flags(f.text)).split()))) for f in findings
    ]
    if as_json:
        checks = [{"status": status, "part": part, "text": text} for status, part, text in lines]
        ok = all(status != "error" for status, _, _ in lines)
        print(json.dumps({"ok": ok, "checks": checks}, indent=2))
        return
    for status, part, text in lines:
        print(f"{status:<8} {part:<13} {text}")


_PART = "configuration"


def _check_settings(
    flags: Mapping[str, Mapping[str, Any]],
) -> tuple["ServerConfig", list[Finding]]:
    """Return the settings and their errors; an invalid table gets its defaults."""
    from mail.config.toml import find_config_file, read_config
    from mail.llm.profiles import configured_models

    path = None
    try:
        path = find_config_file()
        read_config(path)
    except ConfigError as error:
        return _server(_Tables(flags, None)), [Finding(_PART, "error", str(error))]
    tables = _Tables(flags, [])
    config = _server(tables)
    _client_and_actions(tables)
    tables.note(configured_models)
    findings = [Finding(_PART, "error", text) for text in tables.mistakes or ()]
    if not findings:
        text = str(path) if path else "there is no mail.toml; the defaults apply"
        findings.append(Finding(_PART, "ok", text))
    return config, findings


class _Tables:
    """Builds the models of the tables and collects their errors.

    If ``mistakes`` is None, the file cannot be read, and the tables do not use it.
    """

    def __init__(self, flags: Mapping[str, Mapping[str, Any]], mistakes: list[str] | None) -> None:
        self._flags = flags
        self.mistakes = mistakes

    def note(self, read: Callable[[], object]) -> None:
        """Collect the error of tables that have no model."""
        try:
            read()
        except ConfigError as error:
            if self.mistakes is not None:
                self.mistakes.append(str(error))

    def make(self, model: "type[FileBacked]", **nested: Any) -> Any:
        """Return the model, or its defaults if it is invalid."""
        from mail.config.toml import WrongSettings

        given = {**self._flags.get(model.table, {}), **nested}
        if self.mistakes is None:
            return model.model_construct(**given)
        try:
            return model(**given)
        except WrongSettings as error:
            self.mistakes += error.mistakes
        except ConfigError as error:
            self.mistakes.append(str(error))
        return model.model_construct(**nested)


def _server(tables: _Tables) -> "ServerConfig":
    from mail.config.server import (
        FederationConfig,
        FilesConfig,
        LimitsConfig,
        MemoryConfig,
        OpenAIConfig,
        RetentionConfig,
        ServerConfig,
        SettingsConfig,
        StoreConfig,
        SwarmConfig,
        TeamsConfig,
        WebhookConfig,
    )

    config: ServerConfig = tables.make(
        ServerConfig,
        swarm=tables.make(SwarmConfig),
        settings=tables.make(SettingsConfig),
        store=tables.make(StoreConfig),
        limits=tables.make(LimitsConfig),
        retention=tables.make(RetentionConfig),
        files=tables.make(FilesConfig),
        openai=tables.make(OpenAIConfig),
        teams=tables.make(TeamsConfig),
        memory=tables.make(MemoryConfig),
        federation=tables.make(FederationConfig),
        webhook=tables.make(WebhookConfig),
    )
    return config


def _client_and_actions(tables: _Tables) -> None:
    from mail.config.client import ClientConfig
    from mail.config.stdlib import EmailConfig, FsConfig, HttpConfig, StdlibConfig
    from mail.stdlib.settings import egress_policy

    tables.make(ClientConfig)
    actions = tables.make(
        StdlibConfig,
        email=tables.make(EmailConfig),
        fs=tables.make(FsConfig),
        http=tables.make(HttpConfig),
    )
    for check in (lambda: egress_policy(actions.http), actions.email.check):
        try:
            check()
        except ConfigError as error:
            if tables.mistakes is not None:
                tables.mistakes.append(str(error))


def _check_environment() -> Iterator[Finding]:
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


def _check_registry(config: "ServerConfig", store: StoreFound) -> Iterator[Finding]:
    """Read the registry of other swarms, if there is one; none of its faults stops a server."""
    from mail.net.endpoints import is_reference, missing_token, token_variable
    from mail.net.registry_file import RegistryContent, RegistryFile

    own, file = config.swarm.name, RegistryFile(config.swarm.registry_file)
    place = "in the database" if store.registry is not None else file.place
    if store.registry is None and not file.exists():
        return
    try:
        shared = store.registry
        content = file.read() if shared is None else RegistryContent.from_text(shared)
    except MAILError as error:
        text = str(error) if store.registry is None else f"{place}: {error}"
        yield Finding("registry", "warning", text)
        return
    for problem in content.problems:
        yield Finding("registry", "warning", f"{place}: {problem}; it is not used")
    peers = {
        n: e
        for n, e in content.endpoints.items()
        if n not in (own, content.about.get("local_swarm_name"))
    }
    for name, entry in peers.items():
        held = entry["auth_token_ref"]
        if (held is None or is_reference(held)) and setting(token_variable(name)) is None:
            yield Finding("registry", "warning", missing_token(name, own))
    count = f"{len(peers)} other swarm{'' if len(peers) == 1 else 's'}"
    yield Finding("registry", "ok", f"{place}: {count}")


def _check_signing_key(config: "ServerConfig") -> Iterator[Finding]:
    """Read the key for signatures; the server makes one that is not there yet."""
    from mail.net.signatures import SigningKeys

    path = config.federation.signing_key_file
    if path is None:
        return
    if not Path(path).exists():
        yield Finding("signatures", "ok", f"{path}: the server makes a key at its first start")
        return
    try:
        keys = SigningKeys.read(path)
    except ConfigError as error:
        yield Finding("signatures", "error", str(error))
    else:
        yield Finding("signatures", "ok", f"{path}: signs with the key {keys.public[0]['kid']}")


def _check_webhook(config: "ServerConfig") -> Iterator[Finding]:
    """See that there is a secret for the webhook; nothing is sent."""
    from mail.config.server import webhook_secret

    hook = config.webhook
    if hook.url is None:
        return
    try:
        webhook_secret(hook)
    except ConfigError as error:
        yield Finding("webhook", "error", str(error))
    else:
        yield Finding("webhook", "ok", f"messages are signed with the secret in {hook.secret_env}")


def _check_swarm(config: "ServerConfig") -> Iterator[Finding]:
    """Load the swarm and build its agents once, as in a real start, without starting them."""
    from mail.cli.swarms import collected
    from mail.config.server import resolve_swarms_file
    from mail.db.memory import MemoryStore
    from mail.server.swarm import open_swarm
    from mail.stdlib.settings import stray_files

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
        with suppress(ConfigError):  # what is wrong with the settings is said already
            warned += filter(None, [stray_files(served.template)])
        proxied = [use.agent for use in served.uses if use.use_proxy]
        if proxied:
            yield Finding("swarm", "ok", f"through the LiteLLM proxy: {', '.join(proxied)}")
        if served.uses:
            from mail.llm.litellm_model import load_library
            from mail.llm.provider_env import model_warnings

            warned += model_warnings(load_library(), served.uses)
    for text in warned:
        yield Finding("swarm", "warning", text)


def _check_memory(config: "ServerConfig") -> Iterator[Finding]:
    """Check the model that learns from answers to approvals, if one is named; nothing is asked."""
    from mail.config.server import NO_MODEL
    from mail.llm.resolve import is_scripted
    from mail.memory import proposer

    model = config.memory.model
    if model is None or model == NO_MODEL:  # the entrypoint's model is checked with the swarm
        return
    try:
        proposer(model)
    except ConfigError as error:
        yield Finding("memory", "error", f"[server.memory] model: {error}")
        return
    if not is_scripted(model):
        from mail.llm.litellm_model import load_library
        from mail.llm.provider_env import ModelUse, model_warnings

        use = ModelUse("[server.memory]", model, "completions", use_proxy=False)
        warned = model_warnings(load_library(), [use])
        yield from (Finding("memory", "warning", text) for text in warned)
        if warned:
            return
    yield Finding("memory", "ok", f"'{model}' learns from answers to approvals")


def _check_store(config: "ServerConfig") -> StoreFound:
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
    registry = next((r.registry for r in remarks if r.registry is not None), None)
    return StoreFound(findings, durable, tokens, registry)


def _check_files(config: "ServerConfig") -> Iterator[Finding]:
    """Look for the bucket of files, if there is one."""
    from mail.db.blobs_s3 import S3Blobs, S3Place

    url = config.files.url
    if url is None:
        return
    if config.files.root is not None:
        yield Finding("files", "error", "[server.files]: give either root or url")
        return
    try:
        asyncio.run(S3Blobs(S3Place.of(url), config.swarm.name, "", current()).reach())
    except ConfigError as error:
        yield Finding("files", "error", str(error))
    except MAILError as error:
        yield Finding("files", "error", f"[server.files] url: {error}", FAILED)
    else:
        yield Finding("files", "ok", f"{url}: the bucket is there")


def _check_auth(store: StoreFound) -> Iterator[Finding]:
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


def _check_address(config: "ServerConfig") -> Iterator[Finding]:
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


def _check_logs(folder: Path) -> Iterator[Finding]:
    """Check whether the log files are writable."""
    place = folder.absolute()
    above = place if place.exists() else place.parent
    if above.is_dir() and os.access(above, os.W_OK | os.X_OK):
        yield Finding("logs", "ok", f"{place}" + ("" if place.exists() else " will be created"))
    elif above.is_dir():
        yield Finding("logs", "error", f"the folder {above} is not writable")
    else:
        yield Finding("logs", "error", f"{above} is not a folder")
