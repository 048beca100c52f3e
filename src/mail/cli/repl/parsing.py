"""The parser of ``mail client``, built from its commands."""

import argparse
import re
import shlex
from typing import TYPE_CHECKING, Any, Final, NoReturn

from mail.cli.repl.commands import COMMANDS
from mail.core.suggest import did_you_mean, hinted

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["LEAVE", "CommandParser", "build_parser", "command_names", "split"]

LEAVE: Final = ("exit", "quit")
_STRAY: Final = "unrecognized arguments: "
_UNKNOWN: Final = re.compile(
    r"(.*invalid choice: )(?:'(.*)'|\"(.*)\") \(choose from .*\)", re.DOTALL
)


class CommandParser(argparse.ArgumentParser):
    """An argparse parser that records its flags for completion, and suggests corrections."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.flags: dict[str, Sequence[str]] = {}
        self.subcommands: dict[str, CommandParser] = {}
        super().__init__(*arguments, **options)
        self.allow_abbrev = False

    def add_argument(self, *names: Any, **options: Any) -> argparse.Action:
        """Add an argument, and record its possible values."""
        action = super().add_argument(*names, **options)
        values = tuple(map(str, action.choices or ()))
        self.flags.update((flag, values) for flag in action.option_strings)
        return action

    def error(self, message: str) -> NoReturn:
        """Print the error, with a suggestion for an unknown command or flag."""
        found = _UNKNOWN.fullmatch(message) if self.subcommands else None
        if found:
            name = found[2] or found[3] or ""
            names = sorted(self.subcommands, key=len, reverse=True)
            message = f"{found[1]}{name!r}.{did_you_mean(name, names)} `help` lists the commands"
        elif message.startswith(_STRAY):
            message = self._about_stray(message)
        super().error(message)

    def _about_stray(self, message: str) -> str:
        """Add a suggestion for words that belong to no argument."""
        words = message.removeprefix(_STRAY).split()
        flag = next((word.partition("=")[0] for word in words if word.startswith("-")), None)
        if flag is None:
            return f"{message}. A text of several words needs quotation marks around it"
        known = {name for parser in self.subcommands.values() for name in parser.flags}
        return hinted(message, flag, sorted(known))


def build_parser(prog: str, *, typed: bool) -> CommandParser:
    """Build the parser of commands.

    Args:
        prog: The text before a command in the usage lines.
        typed: The commands are typed at a prompt, so `help` and `exit` are available too.
    """
    epilog = "help, ? [COMMAND]: show this help or that of a command. exit, quit: leave the prompt."
    parser = CommandParser(prog=prog, add_help=not typed, epilog=epilog if typed else None)
    verbs = parser.add_subparsers(metavar="COMMAND", title="commands", required=True)
    for command in COMMANDS:
        sub = verbs.add_parser(
            command.name,
            aliases=command.aliases,
            help=command.summary,
            description=f"{command.summary[0].upper()}{command.summary[1:]}.",
        )
        command.configure(sub)
        sub.set_defaults(command=command)
        parser.subcommands.update(dict.fromkeys((command.name, *command.aliases), sub))
    return parser


def command_names() -> set[str]:
    """Return the names and aliases of all commands."""
    return {name for command in COMMANDS for name in (command.name, *command.aliases)}


def split(line: str) -> list[str]:
    """Split a line into words as a shell does.

    Raises:
        ValueError: a quotation mark or backslash is unmatched, or the line is not UTF-8.
    """
    if not line.isascii() and any("\ud800" <= sign <= "\udfff" for sign in line):
        raise ValueError("the line is not UTF-8 text")
    return shlex.split(line)
