"""The prompt's loop: read a command, run it, and continue after errors."""

import asyncio
from typing import Final, Protocol

import click

from mail.cli.common import DONE, INTERRUPTED, USAGE, one_line
from mail.cli.repl.parsing import (
    HELP,
    LEAVE,
    CommandParser,
    Meant,
    build_parser,
    is_ordinary_word,
    meaning,
    split,
)
from mail.cli.repl.session import Session, execute
from mail.cli.repl.talk import SAY, carry_out, section
from mail.cli.repl.view import short_id
from mail.cli.table import Namespace, mistake
from mail.core.suggest import did_you_mean
from mail.errors import MAILError
from mail.logs.setup import redact
from mail.version import get_version

_KEY_LENGTH: Final = 8
_LONG_KEY: Final = 20


class Lines(Protocol):
    """A source of commands."""

    interactive: bool

    def read(self) -> str:
        """Return the next command.

        Raises:
            EOFError: there are no more commands.
            LineCleared: the current line was cancelled.
            KeyboardInterrupt: there was nothing to cancel.
        """


class LineCleared(KeyboardInterrupt):
    """Ctrl-C where something had been typed."""


def converse(runner: asyncio.Runner, session: Session, lines: Lines) -> int:
    """Run commands until there are no more, or one of them ends the loop.

    Returns:
        0; if the input is not interactive, the exit code of the last command that failed.
    """
    talks = session.at_prompt
    parser = build_parser("mail>", typed=True, more=(section,) if talks else ())
    code, interrupted = DONE, False
    while True:
        try:
            line = lines.read()
            meant = meaning(line, parser) if talks else Meant(command=line)
            interrupted = False
            code = _act(runner, session, parser, meant) or code
        except EOFError:
            break
        except LineCleared:
            interrupted = False
        except KeyboardInterrupt:  # at a terminal, show a new prompt the first time
            if not lines.interactive or interrupted:
                return INTERRUPTED
            interrupted = True
            _tell_of_interrupt(session)
    return DONE if lines.interactive else code


def _act(runner: asyncio.Runner, session: Session, parser: CommandParser, meant: Meant) -> int:
    """Send a message, or run a command; return its exit code."""
    if meant.text is not None:
        if not meant.text.strip():
            return DONE
        if meant.explicit or not may_be_key(meant.text):
            said = Namespace(command=SAY, text=[meant.text], json=False)
            return runner.run(execute(session, said))
        told = "not sent: this looks like a key; `login` takes one, and `say` sends it"
        session.screen.fail(told)
        return USAGE
    try:
        words = _words(parser, meant.command or "", talks=session.at_prompt)
    except ValueError as error:
        session.screen.fail(f"error parsing command: {error}")
        return USAGE
    if not words:
        return DONE
    if words[0] in LEAVE:
        raise EOFError
    code = _carry_out(runner, session, parser, words)
    if code and session.at_prompt and not meant.explicit and is_ordinary_word(words[0]):
        line = one_line(" ".join(words), 60)
        session.screen.note((f"it was taken for a command; as a message: say {line}", "dim"))
    return code


def may_be_key(text: str) -> bool:
    """Tell whether a text looks like a key, or like a misspelt command with one."""
    words = text.split()
    if redact(text) != text:
        return True
    if len(words) == 1:
        key = words[0]
        mixed = not key.isalpha() and any(sign.isdigit() for sign in key)
        return len(key) >= _LONG_KEY and mixed and "://" not in key
    near = len(words) == 2 and bool(did_you_mean(words[0], ["login"]))
    return near and len(words[1]) >= _KEY_LENGTH and not words[1].isalpha()


def _tell_of_interrupt(session: Session) -> None:
    """Say how to come back to a task, and how to leave."""
    talk = session.talk
    if not session.at_prompt:
        return
    if talk.left is not None:
        task = short_id(talk.left)
        told = f"task {task} goes on: /watch comes back to it, /cancel stops it"
        session.screen.note((told, "dim"))
        talk.left = None
    session.screen.note(("Ctrl-C again leaves the prompt", "dim"))


def _words(parser: CommandParser, line: str, *, talks: bool) -> list[str]:
    """Split a command into words, but leave a free text at its end as it is; options come first.

    Raises:
        ValueError: a quotation mark or backslash is unmatched, or the line is not UTF-8.
    """
    if not talks:
        words = split(line)
        return [words[0].removeprefix("/"), *words[1:]] if words else []
    name = line.split(None, 1)[:1]
    command = parser.subcommands.get(name[0]) if name else None
    if command is None or command.free is None:
        return split(line)
    words = line.split(None, command.free + 1)
    given, text = words[1 : command.free + 1], words[command.free + 1 :]
    if any(word[:1] == "-" for word in given) or text[:1] in (["-h"], ["--help"]):
        return split(line)
    return [*words[:-1], "--", *text] if text else words


def _carry_out(
    runner: asyncio.Runner, session: Session, parser: CommandParser, words: list[str]
) -> int:
    try:
        if words[0] in HELP:
            parser.explain(words[1:2])
            return DONE
        return runner.run(carry_out(session, parser.read(words)))
    except click.UsageError as error:
        session.screen.fail(f"error: {mistake(error)}")
        return USAGE
    except click.exceptions.Exit as end:  # the help of the command was printed
        return end.exit_code
    except KeyboardInterrupt:
        if not session.at_prompt or session.talk.left is None:
            where = "/tasks lists it" if session.at_prompt else "see tasks-get, task-cancel"
            session.screen.note((f"request cancelled; its task goes on: {where}", "dim"))
        raise


async def greet(session: Session) -> None:
    """Print who the caller is, according to the server, and how to get help."""
    client, screen = session.client, session.screen
    answered = True
    try:
        who = await client.get_whoami()
    except MAILError as error:
        answered = getattr(error, "status", None) is not None
        screen.note(("unable to determine identity via /whoami", "yellow"))
        screen.note(f"> error: {error}")
        screen.note("NOTE: most commands need a server that responds and a valid key")
        screen.note("NOTE: use `login {YOUR_API_KEY}` to log in")
    else:
        client.user_id = str(who.get("id") or "unknown")
        client.user_role = str(who.get("role") or "unknown")
        screen.note(f"successfully logged into {client.base_url}")
        screen.note(f"> role: {client.user_role}\n> id: {client.user_id}")
    session.talk.reached = answered
    screen.note(f"MAIL CLIent v{get_version()}")
    screen.note("Enter `help` for help and `exit` to quit")
    screen.note("==========")
