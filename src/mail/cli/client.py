"""``mail client``: run one command against a server, or many at a prompt; and ``mail watch``.

The arguments are options, the server's URL, and optionally a command with its own arguments.
"""

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from mail.cli.common import DONE, INTERRUPTED, configured
from mail.cli.credentials import (
    KEY_VARIABLE,
    KEYS,
    URL_VARIABLE,
    connected,
    needed_url,
    warn_of_tokens,
)
from mail.cli.repl.parsing import HELP, build_parser, command_names
from mail.cli.repl.screen import Screen
from mail.cli.repl.session import Session, execute
from mail.cli.repl.talk import carry_out, resolve
from mail.cli.repl.talk import watch as follow_task
from mail.cli.table import CONFIG, Command, Namespace, argument, command, flag, option, positive
from mail.config.env import LOG_LEVEL, setting
from mail.errors import ConfigError

if TYPE_CHECKING:
    from mail.client.client import MAILClient

_MOST_BYTES: Final = 64 * 1024 * 1024
HISTORY: Final = ".mail_history"

_PROG: Final = "mail client URL"


class _Client(Command):
    """Takes options before and after the URL, and leaves the words of a command alone."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the options and the URL."""
        given = list(args)
        left = super().parse_args(ctx, list(args))
        words: tuple[str, ...] = ctx.params["words"]
        names = {*command_names(), *HELP}
        is_command = bool(words) and "://" not in words[0] and words[0].removeprefix("/") in names
        url = words[0] if words and not is_command else None
        if url is not None:
            at = len(given) - len(words)
            ctx.params.clear()
            left = super().parse_args(ctx, given[:at] + given[at + 1 :])
        ctx.params["url"] = url
        return left


def _complete(ctx: click.Context, _: click.Parameter, begun: str) -> list[str]:
    """Return the commands that a word may become."""
    known = any(word in command_names() for word in ctx.params.get("words") or ())
    return [] if known else sorted(name for name in command_names() if name.startswith(begun))


@command(
    *KEYS,
    CONFIG,
    option(
        "-t", "--timeout", type=positive, metavar="SECONDS", told="seconds to wait for a response"
    ),
    flag("-v", "--verbose", told="log requests on standard error"),
    flag("--json", told="print responses as JSON"),
    argument(
        "words",
        metavar="[URL] [OPTIONS] [COMMAND ...]",
        nargs=-1,
        type=click.UNPROCESSED,
        shell_complete=_complete,
    ),
    kind=_Client,
    context_settings={"allow_interspersed_args": False},
    epilog=(
        "Without COMMAND, read commands at a prompt or from standard input. `mail client URL help` "
        "lists the commands. URL is an http://, https:// or swarm:// URL; its default is the "
        f"environment variable {URL_VARIABLE}. The default of the token is {KEY_VARIABLE} (except "
        "with swarm:// links, which have their own token), then the one that you gave to `mail "
        "login`. Exit codes: 0 success, 1 failure, 2 usage error, 3 task paused, 4 no response "
        "from the server, 5 ended by the step limit."
    ),
)
def run(arguments: Namespace) -> int:
    """Run one command, or the prompt."""
    words = arguments.words
    if words[:1] and words[0] in HELP:
        build_parser(_PROG, typed=False).explain(words[1:2])
        return DONE
    needed_url(arguments.url)
    from mail.config.client import ClientConfig
    from mail.logs.setup import init_logger

    given: dict[str, Any] = {"timeout": arguments.timeout, "verbose": arguments.verbose or None}
    with configured(arguments.config):
        config = ClientConfig(**{name: value for name, value in given.items() if value is not None})
    quiet = "INFO" if config.verbose else "WARNING"
    init_logger(level=setting(LOG_LEVEL) or quiet, log_dir=None, log_format="human")
    opened = connected(arguments, config=config)
    with asyncio.Runner() as runner:
        client = runner.run(opened.__aenter__())
        # The first Ctrl-C cancels the current request, and `runner.run` raises.
        try:
            return (_one if words else _many)(runner, client, arguments)
        except KeyboardInterrupt:
            return INTERRUPTED
        finally:
            runner.run(opened.__aexit__(None, None, None))


def _one(runner: asyncio.Runner, client: "MAILClient", call: Namespace) -> int:
    words = [call.words[0].removeprefix("/"), *call.words[1:]]
    arguments = build_parser(_PROG, typed=False).read(words)
    warn_of_tokens(arguments)
    given = vars(arguments)
    for name in ("body", "text"):  # of a message, for which ``-`` stands
        if given.get(name) in ("-", ("-",)):
            text = _standard_input()
            given[name] = (text,) if isinstance(given[name], tuple) else text
    session = Session(client, Screen(), call.json, before=f"mail client {client.base_url} ")
    return runner.run(carry_out(session, arguments))


def _standard_input() -> str:
    """Read a text from standard input.

    Raises:
        ConfigError: it is no text, or endless.
    """
    data = sys.stdin.buffer.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ConfigError(f"standard input has more than {_MOST_BYTES:,} bytes")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ConfigError("standard input is not UTF-8 text") from None
    return text.removesuffix("\n").removesuffix("\r")


def _many(runner: asyncio.Runner, client: "MAILClient", call: Namespace) -> int:
    from mail.cli.repl.loop import converse, greet
    from mail.cli.repl.terminal import PipedLines, TypedLines

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return converse(runner, Session(client, Screen(), call.json), PipedLines())
    session = Session(client, Screen(), call.json, before="/")
    runner.run(greet(session))
    return converse(runner, session, TypedLines(runner, Path.home() / HISTORY, session))


@command(
    argument("task_id", "one of your tasks: its id, or the beginning of it", metavar="TASK"),
    option(
        "--owner", metavar="ROLE:ID", told="for administrators: whose task it is (its id in full)"
    ),
    option("--url", metavar="URL", told=f"the server (default: {URL_VARIABLE})"),
    *KEYS,
    option("-a", "--after", metavar="N", type=int, told="only events after event N"),
    flag("--json", told="print events as JSON, one on a line"),
)
async def watch(arguments: Namespace) -> int:
    """Show a task until its run ends; return the exit code of that run."""

    async def show(session: Session, _: Namespace) -> int:
        task_id, owner, after = arguments.task_id, arguments.owner, arguments.after
        task_id = await resolve(session, task_id) if owner is None else task_id
        return await follow_task(session, task_id, None if after is None else str(after), owner)

    async with connected(arguments, "pass the server's URL with --url") as client:
        before = f"mail client {client.base_url} "
        session = Session(client, Screen(), arguments.json, before=before)
        arguments.command = Command("watch", show, (), doing="watching task")
        try:
            return await execute(session, arguments)
        except asyncio.CancelledError:
            print("the task goes on", file=sys.stderr)
            raise
