"""The table of commands, and the entry point."""

import asyncio
import io
import os
import sys
import traceback
from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

import click

from mail.cli import (
    client,
    credentials,
    db,
    email,
    init,
    mcp,
    models,
    ping,
    register,
    server,
    swarms,
    tasks,
    token,
    top,
    undelivered,
)
from mail.cli.common import DONE, FAILED, INTERRUPTED, USAGE, cleaned, tell
from mail.cli.table import HELP, JSON, Group, Namespace, Sections, argument, command, flag, mistake
from mail.errors import ConfigError, MAILError, ProtocolError
from mail.version import get_protocol_version, get_version

_COMPLETE: Final = "_MAIL_COMPLETE"


@command(JSON)
def version(arguments: Namespace) -> int:
    """Print the versions."""
    package, protocol = get_version(), get_protocol_version()
    return tell(
        arguments,
        {"version": package, "protocol_version": protocol},
        f"MAIL reference implementation version: {package}",
        f"MAIL protocol version: {protocol}",
        "(a package of version `x.y.z` speaks protocol version `x.y`)",
    )


@command(
    argument("shell", "the shell", type=click.Choice(("bash", "zsh", "fish"))),
    JSON,
    epilog='For example: eval "$(mail completion bash)"',
)
def completion(arguments: Namespace) -> int:
    """Print the script with which a shell completes the words of a command line."""
    from click.shell_completion import get_completion_class

    made = get_completion_class(arguments.shell)
    script = made(MAIL, {}, "mail", _COMPLETE).source() if made is not None else ""
    return tell(arguments, {"shell": arguments.shell, "script": script}, script)


COMMANDS: Final[Sections] = MappingProxyType(
    {
        "Run a server": {
            "init": ("create a project with a swarm of your own", init.run),
            "server": ("run the MAIL server", server.run),
            "db-init": ("create the tables of a PostgreSQL database", db.db_init),
            "db": ("back up a database, or move it to another one", db.db),
            "models": ("check a model, and show what is known of models", models.models),
            "swarms": (
                "validate swarms files, and manage the registry of other swarms",
                swarms.swarms,
            ),
            "token": ("create, list and revoke access tokens", token.token),
        },
        "Look after what it does": {
            "top": ("show what a server does at the moment", top.top),
            "tasks": ("list, show, cancel and delete tasks", tasks.tasks),
            "nodes": ("list the processes that share the server's database", ping.nodes),
            "outbox": (
                "list mail for other swarms, send it again, or discard it",
                undelivered.outbox,
            ),
            "webhook": (
                "list what the webhook has not taken, send it again, or discard it",
                undelivered.webhook,
            ),
        },
        "Use a server": {
            "client": ("talk to a MAIL server", client.run),
            "ui": ("open the console of a MAIL server in a browser", ping.ui),
            "login": ("keep your token for a MAIL server", credentials.login),
            "logout": ("forget that token", credentials.logout),
            "ping": ("check whether a MAIL server is reachable", ping.ping),
            "watch": ("show what a task does, and follow it", client.watch),
            "mcp": ("be an MCP server whose tools ask a MAIL server", mcp.run),
            "email": ("bring new emails to the email assistant", email.email),
            "register": ("register the client to open swarm:// links", register.run),
        },
        "About this program": {
            "completion": ("print what makes a shell complete commands", completion),
            "version": ("print the package and protocol versions", version),
        },
    }
)
"""The commands by section, each with what it is for."""


def _begin(**given: bool) -> None:
    """Print the versions or the help if there is no command."""
    ctx = click.get_current_context()
    if given["version"]:
        version.run(Namespace(json=False))
        ctx.exit()
    if ctx.invoked_subcommand is None:
        print(ctx.get_help())


MAIL: Final = Group(
    COMMANDS,
    help="Run, manage and talk to a MAIL server.",
    params=[flag("--version", told="same as 'mail version'")],
    callback=_begin,
    invoke_without_command=True,
    context_settings={"help_option_names": HELP},
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: The arguments after the program's name; by default those of the process.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # escape what its encoding does not have
            stream.reconfigure(errors="backslashreplace")
    if asked := os.environ.get(_COMPLETE):
        from click.shell_completion import shell_complete

        return shell_complete(MAIL, {}, "mail", _COMPLETE, asked)
    try:
        code = _run(list(sys.argv[1:] if argv is None else argv))
    except click.exceptions.Exit as end:
        code = end.exit_code
    except click.UsageError as error:
        code = _fail(mistake(error), USAGE)
    except (ConfigError, ProtocolError) as error:
        code = _fail(str(error), USAGE)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except (MAILError, OSError) as error:
        code = _fail(str(error), FAILED)
    except Exception as error:  # noqa: BLE001 - a fault of ours, or of code that a swarm names, too
        from mail.redaction import redact_foreign

        text = "".join(traceback.format_exception(error))
        print(cleaned(redact_foreign(text, most=len(text))), end="", file=sys.stderr)
        code = FAILED
    return code


def email_main(argv: Sequence[str] | None = None) -> int:
    """Run ``mail email`` under the name ``mail-email``; see `main`."""
    return main(["email", *(sys.argv[1:] if argv is None else argv)])


def _run(words: list[str]) -> int:
    try:
        with MAIL.make_context("mail", words) as ctx:
            code = MAIL.invoke(ctx)
        if asyncio.iscoroutine(code):
            code = asyncio.run(code)
        if sys.stdout is not None:  # it is None where the descriptor was closed
            sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed the pipe; nothing is left to flush
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return code or DONE


def _fail(text: str, code: int) -> int:
    from mail.logs.setup import redact

    print(cleaned(f"mail: {' '.join(redact(text).split())}"), file=sys.stderr)
    return code
