"""The parser of ``mail client``, built from its commands."""

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from mail.cli.common import one_line
from mail.cli.repl.commands import COMMANDS, SECTIONS
from mail.cli.table import HELP as HELP_FLAGS
from mail.cli.table import Command, Group, Namespace
from mail.core.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mail.cli.repl.session import Section

LEAVE: Final = ("exit", "quit")
HELP: Final = ("help", "?")
_SAY: Final = "say"
_TAKE_TEXT: Final = frozenset({"message", "m", "msg", "ms", "mi"})
_TAKE_KEYS: Final = frozenset({"login", "l", "logout", "lo"})


# `shlex.split` takes a second for a line of 300 kB.
_PART: Final = re.compile(
    r"""(?P<blank>[ \t\r\n]+)
    | (?P<plain>[^ \t\r\n'"\\]+)
    | '(?P<literal>[^']*)'
    | "(?P<quoted>(?:[^"\\]++|\\.)*+)"
    | \\(?P<escaped>.)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPED: Final = re.compile(r'\\(["\\])')


class CommandParser(Group):
    """The commands of ``mail client`` by their names and aliases.

    Args:
        prog: The text before a command in its usage.
        sections: The commands, in the order of the help.
        slashed: Whether some of them need a slash.
        epilog: The end of the help.
    """

    def __init__(
        self, prog: str, sections: "Sequence[Section]", *, slashed: bool, epilog: str | None
    ) -> None:
        super().__init__(name=prog, epilog=epilog)
        self._sections, self._slashed = sections, slashed
        self.subcommands = {
            name: command
            for section in sections
            for command in section.commands
            for name in command.names
        }
        self.commands.update(self.subcommands)

    def read(self, words: list[str]) -> Namespace:
        """Return the arguments of a line, and its command.

        Raises:
            click.UsageError: it has mistakes.
            click.exceptions.Exit: it asked for help, which was printed.
        """
        ctx = self._context()
        command = self.resolve_command(ctx, words)[1]
        if not isinstance(command, Command):
            raise click.UsageError(f"{words[0]!r} is no command", ctx)
        try:
            return command.read(words[1:], ctx)
        except click.UsageError as error:
            if "unexpected extra argument" not in error.message:
                raise
            told = f"{error.message}. A text of several words needs quotation marks around it"
            raise click.UsageError(told, error.ctx) from None

    def explain(self, about: "Sequence[str]" = ()) -> None:
        """Print what there is to say of a command, or list the commands.

        Raises:
            click.UsageError: there is no such command.
        """
        ctx = self._context()
        if not about:
            click.echo(self.get_help(ctx))
            return
        with suppress(click.exceptions.Exit):
            self.read([about[0].removeprefix("/"), "--help"])

    def unknown(self, ctx: click.Context, name: str) -> str:
        """Return what to say of a command that there is not."""
        slash = "/" if self._slashed else ""
        known = sorted((f"{slash}{each}" for each in self.subcommands), key=len, reverse=True)
        name = one_line(f"{slash}{name}", 40)
        told = f"there is no command '{name}'.{did_you_mean(name, known)} {slash}help lists them"
        return f"{told}, and `say` sends a line that begins with a slash" if slash else told

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by their sections."""
        for section in self._sections:
            lines = []
            for command in section.commands:
                slash = "/" if self._slashed and command.slash else ""
                aliases = f" ({', '.join(command.aliases)})" if command.aliases else ""
                lines.append((f"{slash}{command.names[0]}{aliases}", command.summary))
            with formatter.section(section.title):
                formatter.write_dl(lines)

    def _context(self) -> click.Context:
        names = list(HELP_FLAGS)
        return click.Context(self, info_name=self.name, obj=self._slashed, help_option_names=names)


def build_parser(prog: str, *, typed: bool, more: "Sequence[Section]" = ()) -> CommandParser:
    """Build the parser of commands.

    Args:
        prog: The text before a command in the usage lines.
        typed: The commands are typed at a prompt, so `help` and `exit` are available too.
        more: Commands that only a conversation has.
    """
    epilog = "help, ? [COMMAND]: show this help or that of a command. exit, quit: leave the prompt."
    if more:
        epilog += " Commands shown with a slash need it, the others may have one."
        epilog += " A line that is no command is a message."
    sections = (*more, *SECTIONS)
    return CommandParser(prog, sections, slashed=bool(more), epilog=epilog if typed else None)


def command_names(*, bare: bool = False) -> set[str]:
    """Return the names and aliases of all commands, or of those that need no slash at a prompt."""
    found = [command for command in COMMANDS if not (bare and command.slash)]
    return {name for command in found for name in command.names}


def split(line: str) -> list[str]:
    """Split a line into words as a shell does.

    Raises:
        ValueError: a quotation mark or backslash is unmatched, or the line is not UTF-8.
    """
    if not line.isascii() and any("\ud800" <= sign <= "\udfff" for sign in line):
        raise ValueError("the line is not UTF-8 text")
    words: list[list[str]] = []
    goes_on, at = False, 0
    while at < len(line):
        part = _PART.match(line, at)
        if part is None:
            rest = line[at:]
            escapes = (len(rest) - len(rest.rstrip("\\"))) % 2 and rest[0] != "'"
            raise ValueError("No escaped character" if escapes else "No closing quotation")
        at = part.end()
        if part["blank"] is None:
            if not goes_on:
                words.append([])
            quoted = _ESCAPED.sub(r"\1", part["quoted"] or "")
            words[-1].append(quoted or part["plain"] or part["literal"] or part["escaped"] or "")
        goes_on = part["blank"] is None
    return ["".join(word) for word in words]


class Meant(NamedTuple):
    """A line of a conversation: the text of a message, or the words of a command."""

    text: str | None = None
    command: str | None = None
    explicit: bool = False


def meaning(line: str, parser: CommandParser) -> Meant:
    """Tell whether a line is a message or a command.

    It is a command if it begins with a slash, or with the name of a command that needs none and
    has no more words than that command takes. `say`, or quotation marks around it all, make a
    message of any line.
    """
    given = line.strip()
    first, _, rest = given.partition(" ")
    if given[:1] == "/":
        return _say(given[1:]) or Meant(command=given[1:].strip(), explicit=True)
    if quoted := _quoted(given):
        return Meant(quoted, explicit=True)
    return _say(given) or (Meant(command=given) if _fits(first, rest, parser) else Meant(given))


def _say(line: str) -> Meant | None:
    words = line.split(None, 1)
    return Meant("".join(words[1:]), explicit=True) if words[:1] == [_SAY] else None


def _quoted(line: str) -> str:
    """Return what quotation marks around a whole line hold."""
    if line[:1] not in ("'", '"'):
        return ""
    try:
        words = split(line)
    except ValueError:
        return ""
    return words[0] if len(words) == 1 and line[-1] == line[0] else ""


def is_ordinary_word(name: str) -> bool:
    """Tell whether a command's name may also begin a sentence."""
    return "-" not in name and name not in _TAKE_TEXT and name not in _TAKE_KEYS


def _fits(name: str, rest: str, parser: CommandParser) -> bool:
    """Tell whether a line without a slash is a command."""
    if name in HELP or name in LEAVE:
        return len(rest.split()) <= (name in HELP)
    if name not in command_names(bare=True):
        return False
    if not is_ordinary_word(name):
        return True
    try:
        words = split(rest)
    except ValueError:
        words = rest.split()
    flagged = any(re.match(r"--?[a-z]", word) for word in words)
    return flagged or len(words) <= parser.subcommands[name].most
