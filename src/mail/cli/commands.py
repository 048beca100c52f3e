"""The table of commands, the parser built from it, and the entry point."""

import argparse
import io
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, NoReturn

from mail.cli import (
    client,
    db,
    email,
    init,
    login,
    mcp,
    models,
    ping,
    register,
    server,
    swarms,
    tasks,
    token,
    ui,
    watch,
)
from mail.cli.common import DONE, FAILED, INTERRUPTED, USAGE, cleaned
from mail.cli.undelivered import OUTBOX, WEBHOOK
from mail.core.suggest import did_you_mean, hinted
from mail.errors import ConfigError, MAILError, ProtocolError
from mail.version import get_protocol_version, get_version


class Command(NamedTuple):
    """One command: its name, summary, arguments, and function.

    With ``reads_words`` it parses its options and ``--help`` itself.
    """

    name: str
    summary: str
    configure: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    reads_words: bool = False


def _no_flags(parser: argparse.ArgumentParser) -> None:
    """Add no arguments."""


def _print_versions(arguments: argparse.Namespace) -> int:
    print(f"MAIL reference implementation version: {get_version()}")
    print(f"MAIL protocol version: {get_protocol_version()}")
    print("(a package of version `x.y.z` speaks protocol version `x.y`)")
    return DONE


COMMANDS: Final = (
    Command("init", "create a project with a swarm of your own", init.configure, init.run),
    Command("server", "run the MAIL server", server.configure, server.run),
    Command("client", "talk to a MAIL server", client.configure, client.run, reads_words=True),
    Command("ui", "open the console of a MAIL server in a browser", ui.configure, ui.run),
    Command("login", "keep your token for a MAIL server", login.configure_login, login.run_login),
    Command("logout", "forget that token", login.configure_logout, login.run_logout),
    Command("mcp", "be an MCP server whose tools ask a MAIL server", mcp.configure, mcp.run),
    Command(
        "models", "check a model, and show what is known of models", models.configure, models.run
    ),
    Command("ping", "check whether a MAIL server is reachable", ping.configure, ping.run),
    Command("db-init", "create the tables of a PostgreSQL database", db.configure, db.run),
    Command("db", "back up an SQLite database", db.configure_db, db.run_db),
    Command("token", "create, list and revoke access tokens", token.configure, token.run),
    Command("tasks", "list, show, cancel and delete tasks", tasks.configure, tasks.run),
    Command("watch", "show what a task does, and follow it", watch.configure, watch.run),
    Command("email", "bring new emails to the email assistant", email.configure, email.run),
    Command(
        "outbox",
        "list mail for other swarms, and send it again",
        OUTBOX.configure,
        OUTBOX.run,
    ),
    Command(
        "webhook",
        "list what the webhook has not taken, and send it again",
        WEBHOOK.configure,
        WEBHOOK.run,
    ),
    Command(
        "swarms",
        "validate swarms files, and manage the registry of other swarms",
        swarms.configure,
        swarms.run,
    ),
    Command(
        "register",
        "register the client to open swarm:// links",
        register.configure,
        register.run,
    ),
    Command("version", "print the package and protocol versions", _no_flags, _print_versions),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: The arguments after the program's name; by default those of the process.

    Returns:
        The exit code (see `mail.cli.common`).
    """
    _forgive_output()
    parser = _build_parser()
    try:
        arguments = parser.parse_args(argv)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else USAGE
    if arguments.command is None and not arguments.version:
        parser.print_help()
        return DONE
    try:
        return _run(arguments)
    except (ConfigError, ProtocolError) as error:
        return _fail(error, USAGE)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - a fault of ours, or of code that a swarm names, too
        return _fail(error, FAILED) if isinstance(error, MAILError | OSError) else _break(error)


def email_main(argv: Sequence[str] | None = None) -> int:
    """Run ``mail email`` under the name ``mail-email``; see `main`."""
    return main(["email", *(sys.argv[1:] if argv is None else argv)])


def _run(arguments: argparse.Namespace) -> int:
    run: Callable[[argparse.Namespace], int]
    run = _print_versions if arguments.version else arguments.run
    try:
        code = run(arguments)
        if sys.stdout is not None:  # it is None where the descriptor was closed
            sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed the pipe; nothing is left to flush
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return code


class _Parser(argparse.ArgumentParser):
    """Takes options in full, and suggests commands and options for misspelt ones."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse words; the subcommand that does not know a word is the one that shows its usage."""
        found, stray = super().parse_known_args(args, namespace)
        if stray:
            name = next((word.partition("=")[0] for word in stray if word.startswith("-")), "")
            known = [flag for flag in self._option_string_actions if flag.startswith("--")]
            self.error(hinted(f"unrecognized arguments: {' '.join(stray)}", name, known))
        return found, stray

    def error(self, message: str) -> NoReturn:
        found = re.fullmatch(
            r"argument COMMAND: invalid choice: (['\"])(.*)\1 \(.*\)", message, re.S
        )
        if found:
            names = [command.name for command in COMMANDS]
            meant = self._verbs_like(found[2]) or did_you_mean(found[2], names)
            message = f"there is no command '{found[2]}'.{meant} `mail` lists the commands"
        super().error(message)

    def _verbs_like(self, verb: str) -> str:
        """Return a suggestion for a verb without its command: ``validate`` is of ``swarms``."""
        commands = _verbs(self).items()
        found = [f"'mail {name} {verb}'" for name, sub in commands if verb in _verbs(sub)]
        return f" Did you mean {' or '.join(found)}?" if found else ""


def _verbs(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the commands of a parser by their names."""
    found: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:  # noqa: SLF001 - argparse tells it nowhere else
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            found |= action.choices
    return found


def _build_parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="mail", description="Run, manage and talk to a MAIL server.")
    parser.add_argument("--version", action="store_true", help="same as 'mail version'")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for command in COMMANDS:
        # With a prefix that nobody types, all arguments are plain words.
        prefix = "\0" if command.reads_words else "-"
        description = f"{command.summary[0].upper()}{command.summary[1:]}."
        sub = commands.add_parser(
            command.name,
            help=command.summary,
            description=description,
            add_help=not command.reads_words,
            prefix_chars=prefix,
        )
        command.configure(sub)
        sub.set_defaults(run=command.run)
    return parser


def _break(error: Exception) -> int:
    """Print the traceback of what nobody foresaw, without secrets."""
    from mail.redaction import redact_foreign

    text = "".join(traceback.format_exception(error))
    print(cleaned(redact_foreign(text, most=len(text))), end="", file=sys.stderr)
    return FAILED


def _fail(error: Exception, code: int) -> int:
    from mail.logs.setup import redact

    text = " ".join(redact(str(error)).split())
    print(cleaned(f"mail: {text}"), file=sys.stderr)
    return code


def _forgive_output() -> None:
    """Escape characters that the terminal's encoding does not have, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
