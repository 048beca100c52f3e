"""``mail server``: flags over ``mail.toml`` over built-in values, then the server itself."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mail.cli.code_path import find_code
from mail.config.env import CONFIG_PATH, DATABASE_URL, LOG_FORMAT, current, expanded, overridden

if TYPE_CHECKING:
    from mail.config.server import ServerConfig

__all__ = ["build_config", "config_path", "configure", "run"]

_TRUE = frozenset({"true", "t", "1", "yes", "y"})
_FALSE = frozenset({"false", "f", "0", "no", "n"})


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``mail server``; one that is not given leaves the file's value alone."""
    add = parser.add_argument
    add("-c", "--config", metavar="PATH", help="configuration file (default: see docs)")
    add("-p", "--port", type=int, help="port to listen on")
    add("-H", "--host", help="address to listen on")
    add("-r", "--reload", action="store_true", default=None, help="restart when code changes")
    add("-d", "--debug", action="store_true", default=None, help="offer the debug-only routes")
    add("-n", "--swarm-name", metavar="NAME", help="the swarm of the swarms file to run")
    add("-s", "--swarm-source", metavar="PATH", help="the swarms file")
    add("-rf", "--swarm-registry", metavar="PATH", help="where the registry is kept")
    add(
        "--store",
        metavar="URL",
        help="sqlite:///file.db, postgresql://… or memory:// (wins over DATABASE_URL)",
    )
    add(
        "--log-format",
        choices=("auto", "human", "json"),
        help="lines for people or JSON objects; auto: people at a terminal, JSON elsewhere",
    )
    add(
        "--print-llm-streams",
        type=_boolean,
        metavar="BOOL",
        help="print what models stream to stdout: true or false",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the server until it is told to stop.

    Raises:
        ConfigError: the settings, the swarm or the environment are wrong.
    """
    from mail.config.server import export_environment, resolve_log_format
    from mail.utils.logger import init_logger

    # variables, because the workers of --reload are processes of their own and read them too
    with (
        overridden(CONFIG_PATH, config_path(arguments.config)),
        overridden(DATABASE_URL, arguments.store),
        overridden(LOG_FORMAT, arguments.log_format),
    ):
        config = build_config(arguments)
        find_code(Path.cwd(), Path(config.swarm.source).parent)
        export_environment(config, current())
        init_logger(log_format=resolve_log_format(config))
        from mail.server.run import run_server

        try:
            run_server(config)
        except SystemExit as stop:  # uvicorn's way to say that it could not start; it is logged
            return 1 if stop.code else 0
    return 0


def config_path(given: str | None) -> str | None:
    """Return a ``--config`` argument as an absolute path, or None.

    Raises:
        ConfigError: its tilde stands for nothing.
    """
    return None if given is None else str(expanded(given, "--config").resolve())


def build_config(arguments: argparse.Namespace) -> "ServerConfig":
    """Return the settings with the given flags laid over the file's.

    Raises:
        ConfigError: a value is wrong.
    """
    from mail.config.server import ServerConfig, SettingsConfig, StoreConfig, SwarmConfig

    return ServerConfig(
        **_given(
            host=arguments.host,
            port=arguments.port,
            reload=arguments.reload,
            debug=arguments.debug,
        ),
        swarm=SwarmConfig(
            **_given(
                name=arguments.swarm_name,
                source=arguments.swarm_source,
                registry_file=arguments.swarm_registry,
            )
        ),
        settings=SettingsConfig(**_given(print_llm_streams=arguments.print_llm_streams)),
        store=StoreConfig(**_given(url=arguments.store)),
    )


def _given(**flags: Any) -> dict[str, Any]:
    return {name: value for name, value in flags.items() if value is not None}


def _boolean(text: str) -> bool:
    value = text.lower()
    if value in _TRUE or value in _FALSE:
        return value in _TRUE
    raise argparse.ArgumentTypeError(f"invalid boolean value '{text}'; expected true/false")
