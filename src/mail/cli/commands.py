"""The table of commands, the parser built from it, and the entry point."""

import argparse
import io
import sys
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from mail.cli import ping, server, swarms, token, version
from mail.errors import ConfigError, MAILError, ProtocolError

__all__ = ["COMMANDS", "Command", "main"]

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2


class Command(NamedTuple):
    """One command: its name, its line in the help, its arguments, and what it does."""

    name: str
    summary: str
    configure: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


COMMANDS: Final = (
    Command("server", "run the MAIL server", server.configure, server.run),
    Command("ping", "check whether a MAIL server is reachable", ping.configure, ping.run),
    Command("token", "make, list and revoke access tokens", token.configure, token.run),
    Command("swarms", "check swarms files", swarms.configure, swarms.run),
    Command(
        "version", "print the versions of package and protocol", version.configure, version.run
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: The arguments after the program's name; those of the process when None.

    Returns:
        The exit code: 0, 1 (it failed) or 2 (wrong usage or configuration).
    """
    _forgive_output()
    parser = _build_parser()
    try:
        arguments = parser.parse_args(argv)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else EXIT_USAGE
    if arguments.command is None:
        parser.print_help()
        return 0
    try:
        return _run(arguments)
    except (ConfigError, ProtocolError) as error:
        return _fail(error, EXIT_USAGE)
    except (MAILError, OSError) as error:
        return _fail(error, EXIT_FAILED)
    except KeyboardInterrupt:
        return 130


def _run(arguments: argparse.Namespace) -> int:
    run: Callable[[argparse.Namespace], int] = arguments.run
    return run(arguments)


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mail", description="Run a MAIL server and look after it."
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for command in COMMANDS:
        sub = commands.add_parser(
            command.name, help=command.summary, description=f"{command.summary.capitalize()}."
        )
        command.configure(sub)
        sub.set_defaults(run=command.run)
    return parser


def _fail(error: Exception, code: int) -> int:
    from mail.utils.logger import redact

    print("mail: " + " ".join(redact(str(error)).split()), file=sys.stderr)
    return code


def _forgive_output() -> None:
    """Print signs that the terminal's encoding lacks as escapes instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
