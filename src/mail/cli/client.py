"""``mail client``: run one command against a server, or many at a prompt.

The arguments are options, the server's URL, and optionally a command with its own arguments.
Large modules are imported only when there is a command to run.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from mail.cli.common import DONE, INTERRUPTED, configured
from mail.cli.credentials import (
    KEY_VARIABLE,
    KEYS,
    URL_VARIABLE,
    api_key,
    needed_url,
    server_url,
    warn_of_tokens,
)
from mail.cli.table import CONFIG, Command, Namespace, argument, command, flag, option, positive
from mail.config.env import LOG_LEVEL, setting
from mail.errors import ConfigError

if TYPE_CHECKING:
    import asyncio

    from mail.client.client import MAILClient
    from mail.config.client import ClientConfig

_MOST_BYTES: Final = 64 * 1024 * 1024
HISTORY: Final = ".mail_history"
HELP: Final = (("help",), ("?",))

_PROG: Final = "mail client URL"


class _Client(Command):
    """Takes options before and after the URL, and leaves the words of a command alone."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the options and the URL."""
        given = list(args)
        left = super().parse_args(ctx, list(args))
        words: tuple[str, ...] = ctx.params["words"]
        url = words[0] if words and not _is_command(words[0]) else None
        if url is not None:
            at = len(given) - len(words)
            ctx.params.clear()
            left = super().parse_args(ctx, given[:at] + given[at + 1 :])
        ctx.params["url"] = url
        return left


def _complete(ctx: click.Context, _: click.Parameter, begun: str) -> list[str]:
    """Return the commands that a word may become."""
    from mail.cli.repl.parsing import command_names

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
    """Run one command, or the prompt.

    Raises:
        ConfigError: a setting is invalid.
    """
    call = read_call(arguments)
    if call.words[:1] in HELP:
        from mail.cli.repl.parsing import build_parser

        build_parser(_PROG, typed=False).explain(call.words[1:2])
        return DONE
    return _serve(call)


def read_call(arguments: Namespace) -> Namespace:
    """Return the arguments with the server's URL and the token to use, as far as they are known.

    Raises:
        ConfigError: the URL is missing or invalid.
    """
    given = arguments.url
    named = given or setting(URL_VARIABLE) or ""
    if arguments.words[:1] not in HELP:
        needed_url(named)
    if named:
        keys = (arguments.api_key, arguments.api_key_file)
        arguments.url = server_url(named)
        arguments.api_key = api_key(*keys, named, typed=given is not None)
    return arguments


def _is_command(word: str) -> bool:
    if "://" in word:
        return False
    from mail.cli.repl.parsing import command_names

    return word.removeprefix("/") in command_names() or word in ("help", "?")


def _serve(call: Namespace) -> int:
    from mail.config.client import ClientConfig
    from mail.logs.setup import init_logger

    given: dict[str, Any] = {} if call.timeout is None else {"timeout": call.timeout}
    if call.verbose:
        given["verbose"] = True
    with configured(call.config):
        config = ClientConfig(**given)
    quiet = "INFO" if config.verbose else "WARNING"
    init_logger(level=setting(LOG_LEVEL) or quiet, log_dir=None, log_format="human")
    return _talk(call, config)


def _talk(call: Namespace, config: "ClientConfig") -> int:
    import asyncio

    from mail.client.client import MAILClient

    client = MAILClient(call.url, call.api_key, config=config)
    with asyncio.Runner() as runner:
        # The first Ctrl-C cancels the current request, and `runner.run` raises.
        try:
            return _one(runner, client, call) if call.words else _many(runner, client, call)
        except KeyboardInterrupt:
            return INTERRUPTED
        finally:
            runner.run(client.aclose())


def _one(runner: "asyncio.Runner", client: "MAILClient", call: Namespace) -> int:
    from mail.cli.repl.parsing import build_parser
    from mail.cli.repl.screen import Screen
    from mail.cli.repl.session import Session, execute

    parser = build_parser(_PROG, typed=False)
    arguments = parser.read([call.words[0].removeprefix("/"), *call.words[1:]])
    warn_of_tokens(arguments)
    _read_text(arguments)
    session = Session(client, Screen(), call.json, before=f"mail client {call.url} ")
    return runner.run(execute(session, arguments))


def _read_text(arguments: Namespace) -> None:
    """Read the text of a message from standard input where ``-`` stands for it.

    Raises:
        ConfigError: it is no text, or endless.
    """
    given = vars(arguments)
    for name in ("body", "text"):
        if given.get(name) in ("-", ("-",)):
            text = _standard_input()
            given[name] = (text,) if isinstance(given[name], tuple) else text


def _standard_input() -> str:
    data = sys.stdin.buffer.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ConfigError(f"standard input has more than {_MOST_BYTES:,} bytes")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ConfigError("standard input is not UTF-8 text") from None
    return text.removesuffix("\n").removesuffix("\r")


def _many(runner: "asyncio.Runner", client: "MAILClient", call: Namespace) -> int:
    from mail.cli.repl.loop import converse, greet
    from mail.cli.repl.screen import Screen
    from mail.cli.repl.session import Session, Talk
    from mail.cli.repl.terminal import PipedLines, TypedLines

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return converse(runner, Session(client, Screen(), call.json), PipedLines())
    session = Session(client, Screen(), call.json, Talk(), "/")
    runner.run(greet(session))
    return converse(runner, session, TypedLines(runner, Path.home() / HISTORY, session))
