"""The parser of ``mail client``, built from its commands."""

import argparse
import math
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from mail.cli.repl.commands import COMMANDS
from mail.core.suggest import did_you_mean, hinted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mail.cli.repl.session import Command

LEAVE: Final = ("exit", "quit")
HELP: Final = ("help", "?")
_SAY: Final = "say"
_TAKE_TEXT: Final = frozenset({"message", "m", "msg", "ms", "mi"})
_TAKE_KEYS: Final = frozenset({"login", "l", "logout", "lo"})
_STRAY: Final = "unrecognized arguments: "
_UNKNOWN: Final = re.compile(
    r"(.*invalid choice: )(?:'(.*)'|\"(.*)\") \(choose from .*\)", re.DOTALL
)
_PART: Final = re.compile(
    r"""(?P<blank>[ \t\r\n]+)
    | (?P<plain>[^ \t\r\n'"\\]+)
    | '(?P<literal>[^']*)'
    | "(?P<quoted>(?:[^"\\]++|\\.)*+)"
    | \\(?P<escaped>.)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPED: Final = re.compile(r'\\(["\\])')


class CommandParser(argparse.ArgumentParser):
    """An argparse parser that records its flags for completion, and suggests corrections."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.flags: dict[str, Sequence[str]] = {}
        self.first = ""  # the name of the first value without a flag
        self.most = 0.0  # how many of them there can be
        self.subcommands: dict[str, CommandParser] = {}
        self.commands: dict[str, Command] = {}
        super().__init__(*arguments, **options)
        self.allow_abbrev = False

    def add_argument(self, *names: Any, **options: Any) -> argparse.Action:
        """Add an argument, and record its possible values."""
        action = super().add_argument(*names, **options)
        values = tuple(map(str, action.choices or ()))
        self.flags.update((flag, values) for flag in action.option_strings)
        if not action.option_strings:
            self.first = self.first or action.dest
            self.most += math.inf if action.nargs in ("*", "+") else 1
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


def build_parser(prog: str, *, typed: bool, more: "Sequence[Command]" = ()) -> CommandParser:
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
    parser = CommandParser(prog=prog, add_help=not typed, epilog=epilog if typed else None)
    verbs: Any = parser.add_subparsers(metavar="COMMAND", title="commands", required=True)
    for command in (*more, *COMMANDS):
        slash = "/" if more and command.slash else ""
        sub = verbs.add_parser(
            command.name,
            prog=f"{prog} {slash}{command.name}",
            aliases=command.aliases,
            help=command.summary,
            description=f"{command.summary[0].upper()}{command.summary[1:]}.",
        )
        if slash:  # argparse has no other way to list a command by another text than its name
            aliases = f" ({', '.join(command.aliases)})" if command.aliases else ""
            verbs._choices_actions[-1].metavar = f"/{command.name}{aliases}"  # noqa: SLF001
        command.configure(sub)
        sub.set_defaults(command=command)
        names = (command.name, *command.aliases)
        parser.subcommands.update(dict.fromkeys(names, sub))
        parser.commands.update(dict.fromkeys(names, command))
    return parser


def command_names(*, bare: bool = False) -> set[str]:
    """Return the names and aliases of all commands, or of those that need no slash at a prompt."""
    found = [command for command in COMMANDS if not (bare and command.slash)]
    return {name for command in found for name in (command.name, *command.aliases)}


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
            raise ValueError(_unfinished(line[at:]))
        at = part.end()
        if part["blank"] is None:
            if not goes_on:
                words.append([])
            words[-1].append(_unquoted(part))
        goes_on = part["blank"] is None
    return ["".join(word) for word in words]


def _unquoted(part: re.Match[str]) -> str:
    if (quoted := part["quoted"]) is not None:
        return _ESCAPED.sub(r"\1", quoted)
    return part["plain"] or part["literal"] or part["escaped"] or ""


def _unfinished(rest: str) -> str:
    """Tell what is missing at the end of a line, from the mark that nothing closes."""
    escapes = (len(rest) - len(rest.rstrip("\\"))) % 2 and rest[0] != "'"
    return "No escaped character" if escapes else "No closing quotation"


class Meant(NamedTuple):
    """What a line of a conversation is: the text of a message, or the words of a command."""

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
