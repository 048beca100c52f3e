"""``mail server``: combine flags, ``mail.toml`` and defaults, then run the server."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from mail.cli.common import configured, in_flags
from mail.cli.swarms import find_code
from mail.cli.table import CONFIG, COUNT, Namespace, command, flag, option
from mail.config.env import DATABASE_URL, LOG_FORMAT, current, overridden
from mail.errors import ConfigError, MAILError
from mail.lazy import importing_much

if TYPE_CHECKING:
    from mail.config.server import ServerConfig


@command(
    CONFIG,
    option("-p", "--port", type=int, told="port to listen on"),
    option("-H", "--host", told="address to listen on"),
    flag(
        *("-r", "--reload"),
        default=None,
        told="restart when the code, the swarms file or mail.toml changes",
    ),
    option(
        *("-w", "--workers"),
        type=COUNT,
        metavar="N",
        told="so many processes behind the port (PostgreSQL only)",
    ),
    flag("-d", "--debug", default=None, told="enable the debug-only routes"),
    option("-n", "--swarm-name", metavar="NAME", told="which swarm of the swarms file to run"),
    option("-s", "--swarm-source", metavar="PATH", told="the swarms file"),
    option("-rf", "--swarm-registry", metavar="PATH", told="file that stores the swarm registry"),
    option(
        "--store",
        metavar="URL",
        told="sqlite:///file.db, postgresql://… or memory:// (overrides DATABASE_URL)",
    ),
    flag("--check", told="check everything the server needs, then exit"),
    flag("--json", told="with --check: print JSON"),
    option(
        "--log-format",
        type=click.Choice(("auto", "human", "json")),
        told="format of log lines; auto is human on a terminal and json elsewhere",
    ),
    option(
        "--print-llm-streams",
        type=bool,
        metavar="BOOL",
        told="print streamed model output to stdout: true or false",
    ),
    epilog="A flag that is omitted keeps the value of the file.",
)
def run(arguments: Namespace) -> int:
    """Run the server until it is stopped, or check whether it could run."""
    if arguments.json and not arguments.check:
        raise ConfigError("--json requires --check")
    # variables, because the workers of --reload are processes of their own and read them too
    with (
        configured(arguments.config),
        overridden(DATABASE_URL, arguments.store),
        overridden(LOG_FORMAT, arguments.log_format),
    ):
        if arguments.check:
            from mail.cli.check import check_server

            return check_server(_flags(arguments), as_json=arguments.json)
        try:
            return _serve(arguments)
        except MAILError as error:
            error.args = (in_flags(str(error)), *error.args[1:])
            raise


def _serve(arguments: Namespace) -> int:
    from mail.config.server import export_environment, resolve_log_format
    from mail.logs.setup import init_logger

    config = build_config(arguments)
    find_code(Path.cwd(), Path(config.swarm.source).parent)
    export_environment(config, current())
    init_logger(log_format=resolve_log_format(config), max_bytes=config.log_max_bytes)
    with importing_much():
        from mail.server.run import run_server

    try:
        run_server(config)
    except SystemExit as stop:  # uvicorn could not start, and has logged why
        return 1 if stop.code else 0
    return 0


def build_config(arguments: Namespace) -> "ServerConfig":
    """Return the settings of the file, overridden by the given flags.

    Raises:
        ConfigError: a value is invalid.
    """
    from mail.config.server import ServerConfig, SettingsConfig, StoreConfig, SwarmConfig

    flags = _flags(arguments)
    return ServerConfig(
        **flags[ServerConfig.table],
        swarm=SwarmConfig(**flags[SwarmConfig.table]),
        settings=SettingsConfig(**flags[SettingsConfig.table]),
        store=StoreConfig(**flags[StoreConfig.table]),
    )


_FLAGS: Final[Mapping[str, Mapping[str, str]]] = {
    "server": {name: name for name in ("host", "port", "reload", "workers", "debug", "log_format")},
    "server.swarm": {
        "name": "swarm_name",
        "source": "swarm_source",
        "registry_file": "swarm_registry",
    },
    "server.settings": {"print_llm_streams": "print_llm_streams"},
    "server.store": {"url": "store"},
}
"""By table the fields that a flag sets, each with the flag."""


def _flags(arguments: Namespace) -> dict[str, dict[str, Any]]:
    """Return the values of the given flags, by table."""
    given = {name: value for name, value in vars(arguments).items() if value is not None}
    return {
        table: {field: given[flag] for field, flag in fields.items() if flag in given}
        for table, fields in _FLAGS.items()
    }
