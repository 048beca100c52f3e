"""``mail server``: combine flags, ``mail.toml`` and defaults, then run the server."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mail.cli.common import config_path, in_flags
from mail.cli.swarms import find_code
from mail.config.env import CONFIG_PATH, DATABASE_URL, LOG_FORMAT, current, overridden
from mail.errors import ConfigError, MAILError

if TYPE_CHECKING:
    from mail.config.server import ServerConfig

_TRUE = frozenset({"true", "t", "1", "yes", "y"})
_FALSE = frozenset({"false", "f", "0", "no", "n"})


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``mail server``. A flag that is omitted keeps the file's value."""
    add = parser.add_argument
    add("-c", "--config", metavar="PATH", help="configuration file (default: mail.toml)")
    add("-p", "--port", type=int, help="port to listen on")
    add("-H", "--host", help="address to listen on")
    changes = "restart when the code, the swarms file or mail.toml changes"
    add("-r", "--reload", action="store_true", default=None, help=changes)
    add("-d", "--debug", action="store_true", default=None, help="enable the debug-only routes")
    add("-n", "--swarm-name", metavar="NAME", help="which swarm of the swarms file to run")
    add("-s", "--swarm-source", metavar="PATH", help="the swarms file")
    add("-rf", "--swarm-registry", metavar="PATH", help="file that stores the swarm registry")
    add(
        "--store",
        metavar="URL",
        help="sqlite:///file.db, postgresql://… or memory:// (overrides DATABASE_URL)",
    )
    add("--check", action="store_true", help="check everything the server needs, then exit")
    add("--json", action="store_true", help="with --check: print JSON")
    add(
        "--log-format",
        choices=("auto", "human", "json"),
        help="format of log lines; auto is human on a terminal and json elsewhere",
    )
    add(
        "--print-llm-streams",
        type=_boolean,
        metavar="BOOL",
        help="print streamed model output to stdout: true or false",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the server until it is stopped, or check whether it could run.

    Raises:
        ConfigError: the settings, the swarm or the environment are invalid.
    """
    if arguments.json and not arguments.check:
        raise ConfigError("--json requires --check")
    # variables, because the workers of --reload are processes of their own and read them too
    with (
        overridden(CONFIG_PATH, config_path(arguments.config)),
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


def _serve(arguments: argparse.Namespace) -> int:
    from mail.config.server import export_environment, resolve_log_format
    from mail.logs.setup import init_logger

    config = build_config(arguments)
    find_code(Path.cwd(), Path(config.swarm.source).parent)
    export_environment(config, current())
    init_logger(log_format=resolve_log_format(config), max_bytes=config.log_max_bytes)
    from mail.server.run import run_server

    try:
        run_server(config)
    except SystemExit as stop:  # uvicorn could not start, and has logged why
        return 1 if stop.code else 0
    return 0


def build_config(arguments: argparse.Namespace) -> "ServerConfig":
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


def _flags(arguments: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Return the values of the given flags, by table."""
    return {
        "server": _given(
            host=arguments.host,
            port=arguments.port,
            reload=arguments.reload,
            debug=arguments.debug,
            log_format=arguments.log_format,
        ),
        "server.swarm": _given(
            name=arguments.swarm_name,
            source=arguments.swarm_source,
            registry_file=arguments.swarm_registry,
        ),
        "server.settings": _given(print_llm_streams=arguments.print_llm_streams),
        "server.store": _given(url=arguments.store),
    }


def _given(**flags: Any) -> dict[str, Any]:
    return {name: value for name, value in flags.items() if value is not None}


def _boolean(text: str) -> bool:
    value = text.lower()
    if value in _TRUE or value in _FALSE:
        return value in _TRUE
    raise argparse.ArgumentTypeError(f"invalid boolean value '{text}'; expected true/false")
