"""The first check of ``mail server --check``: every table of ``mail.toml``, with the flags."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mail.cli.check_parts import Finding
from mail.errors import ConfigError

if TYPE_CHECKING:
    from mail.config.server import ServerConfig
    from mail.config.toml import FileBacked

__all__ = ["check_settings"]

_PART = "configuration"


def check_settings(
    flags: Mapping[str, Mapping[str, Any]],
) -> tuple["ServerConfig", list[Finding]]:
    """Return the settings and their errors; an invalid table gets its defaults."""
    from mail.config.toml import find_config_file, read_config

    path = None
    try:
        path = find_config_file()
        read_config(path)
    except ConfigError as error:
        return _server(_Tables(flags, None)), [Finding(_PART, "error", str(error))]
    tables = _Tables(flags, [])
    config = _server(tables)
    _client_and_actions(tables)
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
        LimitsConfig,
        OpenAIConfig,
        ServerConfig,
        SettingsConfig,
        StoreConfig,
        SwarmConfig,
    )

    config: ServerConfig = tables.make(
        ServerConfig,
        swarm=tables.make(SwarmConfig),
        settings=tables.make(SettingsConfig),
        store=tables.make(StoreConfig),
        limits=tables.make(LimitsConfig),
        openai=tables.make(OpenAIConfig),
    )
    return config


def _client_and_actions(tables: _Tables) -> None:
    from mail.config.client import ClientConfig
    from mail.config.stdlib import FsConfig, HttpConfig, StdlibConfig
    from mail.stdlib.settings import egress_policy

    tables.make(ClientConfig)
    actions = tables.make(StdlibConfig, fs=tables.make(FsConfig), http=tables.make(HttpConfig))
    try:
        egress_policy(actions.http)
    except ConfigError as error:
        if tables.mistakes is not None:
            tables.mistakes.append(str(error))
