"""The prompt's loop: read a command, run it, and continue after errors."""

import asyncio
from typing import Final, Protocol

from mail.cli.common import DONE, INTERRUPTED, USAGE
from mail.cli.repl.parsing import LEAVE, CommandParser, build_parser, split
from mail.cli.repl.session import Session, execute
from mail.errors import MAILError
from mail.version import get_version

__all__ = ["Lines", "converse", "greet"]

_HELP: Final = ("help", "?")


class Lines(Protocol):
    """A source of commands."""

    interactive: bool

    def read(self) -> str:
        """Return the next command.

        Raises:
            EOFError: there are no more commands.
            KeyboardInterrupt: the current line was cancelled.
        """


def converse(runner: asyncio.Runner, session: Session, lines: Lines) -> int:
    """Run commands until there are no more, or one of them ends the loop.

    Returns:
        0; if the input is not interactive, the exit code of the last command that failed.
    """
    parser = build_parser("mail>", typed=True)
    code = DONE
    while True:
        try:
            words = _words(session, lines.read())
            if words is None:
                code = USAGE
            elif words and words[0] in LEAVE:
                break
            elif words:
                code = _carry_out(runner, session, parser, words) or code
        except EOFError:
            break
        except KeyboardInterrupt:  # at a terminal, always show a new prompt
            if not lines.interactive:
                return INTERRUPTED
    return DONE if lines.interactive else code


def _words(session: Session, line: str) -> list[str] | None:
    try:
        return split(line)
    except ValueError as error:
        session.screen.fail(f"error parsing command: {error}")
        return None


def _carry_out(
    runner: asyncio.Runner, session: Session, parser: CommandParser, words: list[str]
) -> int:
    if words[0] in _HELP:
        if not words[1:]:
            parser.print_help()
            return DONE
        words = [words[1], "--help"]
    try:
        arguments = parser.parse_args(words)
        return runner.run(execute(session, arguments))
    except SystemExit as stop:  # argparse has printed the error
        return stop.code if isinstance(stop.code, int) else USAGE
    except KeyboardInterrupt:
        session.screen.note(
            ("request cancelled; its task continues: see tasks-get, task-cancel", "dim")
        )
        raise


async def greet(session: Session) -> None:
    """Print who the caller is, according to the server, and how to get help."""
    client, screen = session.client, session.screen
    try:
        who = await client.get_whoami()
    except MAILError as error:
        screen.note(("unable to determine identity via /whoami", "yellow"))
        screen.note(f"> error: {error}")
        screen.note("NOTE: most commands need a server that responds and a valid key")
        screen.note("NOTE: use `login {YOUR_API_KEY}` to log in")
    else:
        client.user_id = str(who.get("id") or "unknown")
        client.user_role = str(who.get("role") or "unknown")
        screen.note(f"successfully logged into {client.base_url}")
        screen.note(f"> role: {client.user_role}")
        screen.note(f"> id: {client.user_id}")
    screen.note(f"MAIL CLIent v{get_version()}")
    screen.note("Enter `help` for help and `exit` to quit")
    screen.note("==========")
