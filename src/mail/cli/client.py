"""``mail client``: run one command against a server, or many at a prompt.

The arguments are options, the server's URL, and optionally a command with its own arguments.
Options may also follow the URL. argparse cannot separate these parts, so they are read one by one.
Large modules are imported only when there is a command to run.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mail.cli.common import DONE, INTERRUPTED, USAGE, cleaned, config_path, positive
from mail.cli.credentials import (
    KEY_VARIABLE,
    URL_VARIABLE,
    add_key_flags,
    api_key,
    server_url,
    warn_of_tokens,
)
from mail.config.env import CONFIG_PATH, LOG_LEVEL, overridden, setting
from mail.errors import ConfigError

if TYPE_CHECKING:
    import asyncio

    from mail.client.client import MAILClient
    from mail.config.client import ClientConfig

_MOST_BYTES: Final = 64 * 1024 * 1024
HISTORY: Final = ".mail_history"
HELP: Final = (["help"], ["?"])

_PROG: Final = "mail client URL"
_DESCRIPTION: Final = """\
Talk to a MAIL server. Without COMMAND, read commands at a prompt or from standard input.
`mail client URL help` lists the commands.
"""
_EPILOG: Final = f"""\
URL is an http://, https:// or swarm:// URL; its default is the environment variable {URL_VARIABLE}.
The default of the token is {KEY_VARIABLE} (except with swarm:// links, which have their own token),
then the one that you gave to `mail login`.
Exit codes: 0 success, 1 failure, 2 usage error, 3 task paused, 4 no response from the server.
"""


class Call(NamedTuple):
    """The parsed arguments: the server, the options, and the words of a command."""

    url: str
    api_key: str | None
    words: list[str]
    config: str | None
    timeout: float | None
    verbose: bool
    json: bool


def configure(parser: argparse.ArgumentParser) -> None:
    """Accept all words; `run` parses them."""
    parser.add_argument("words", nargs=argparse.REMAINDER)


def run(arguments: argparse.Namespace) -> int:
    """Run one command, or the prompt.

    Raises:
        ConfigError: a setting is invalid.
    """
    try:
        call = read_call(arguments.words)
        if call.words[:1] in HELP:
            return _help(call.words[1:])
    except SystemExit as stop:  # argparse has printed the reason
        return stop.code if isinstance(stop.code, int) else USAGE
    except ConfigError as error:
        print(cleaned(f"Error: {error}"), file=sys.stderr)
        return USAGE
    return _serve(call)


def read_call(words: Sequence[str]) -> Call:
    """Parse the words after ``mail client``.

    Raises:
        ConfigError: the URL is missing or invalid.
        SystemExit: an option is invalid, or help was requested.
    """
    parser = _options_parser()
    options = parser.parse_args(words)
    rest: list[str] = options.rest
    given = None
    if rest and not _is_command(rest[0]):
        given = rest[0]
        options = parser.parse_args(rest[1:], options)
        rest = options.rest
    named = given or setting(URL_VARIABLE) or ""
    if not named and rest[:1] not in HELP:
        parser.error(f"give the server's URL, or set {URL_VARIABLE}")
    return Call(
        url=server_url(named) if named else "",
        api_key=api_key(options.api_key, options.api_key_file, named, typed=given is not None)
        if named
        else None,
        words=rest,
        config=options.config,
        timeout=options.timeout,
        verbose=options.verbose,
        json=options.json,
    )


def _options_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mail client",
        usage="mail client [options] [URL] [options] [COMMAND …]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add_key_flags(parser)
    add("-c", "--config", metavar="PATH", help="configuration file (default: mail.toml)")
    add("-t", "--timeout", type=positive, metavar="SECONDS", help="seconds to wait for a response")
    add("-v", "--verbose", action="store_true", help="log requests on standard error")
    add("--json", action="store_true", help="print responses as JSON")
    add("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def _is_command(word: str) -> bool:
    if "://" in word:
        return False
    from mail.cli.repl.parsing import command_names

    return word.removeprefix("/") in command_names() or word in ("help", "?")


def _serve(call: Call) -> int:
    from mail.config.client import ClientConfig
    from mail.logs.setup import init_logger

    given: dict[str, Any] = {} if call.timeout is None else {"timeout": call.timeout}
    if call.verbose:
        given["verbose"] = True
    with overridden(CONFIG_PATH, config_path(call.config)):
        config = ClientConfig(**given)
    quiet = "INFO" if config.verbose else "WARNING"
    init_logger(level=setting(LOG_LEVEL) or quiet, log_dir=None, log_format="human")
    return _talk(call, config)


def _help(about: list[str]) -> int:
    from mail.cli.repl.parsing import build_parser

    build_parser(_PROG, typed=False).parse_args([*about[:1], "--help"])
    return DONE


def _talk(call: Call, config: "ClientConfig") -> int:
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


def _one(runner: "asyncio.Runner", client: "MAILClient", call: Call) -> int:
    from mail.cli.repl.parsing import build_parser
    from mail.cli.repl.screen import Screen
    from mail.cli.repl.session import Session, execute

    parser = build_parser(_PROG, typed=False)
    try:
        arguments = parser.parse_args([call.words[0].removeprefix("/"), *call.words[1:]])
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else USAGE
    warn_of_tokens(arguments)
    _read_text(arguments)
    session = Session(client, Screen(), call.json, before=f"mail client {call.url} ")
    return runner.run(execute(session, arguments))


def _read_text(arguments: argparse.Namespace) -> None:
    """Read the text of a message from standard input where ``-`` stands for it.

    Raises:
        ConfigError: it is no text, or endless.
    """
    given = vars(arguments)
    for name in ("body", "text"):
        if given.get(name) in ("-", ["-"]):
            text = _standard_input()
            given[name] = [text] if isinstance(given[name], list) else text


def _standard_input() -> str:
    data = sys.stdin.buffer.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ConfigError(f"standard input has more than {_MOST_BYTES:,} bytes")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ConfigError("standard input is not UTF-8 text") from None
    return text.removesuffix("\n").removesuffix("\r")


def _many(runner: "asyncio.Runner", client: "MAILClient", call: Call) -> int:
    from mail.cli.repl.loop import converse, greet
    from mail.cli.repl.screen import Screen
    from mail.cli.repl.session import Session, Talk
    from mail.cli.repl.terminal import PipedLines, TypedLines

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return converse(runner, Session(client, Screen(), call.json), PipedLines())
    session = Session(client, Screen(), call.json, Talk(), "/")
    runner.run(greet(session))
    return converse(runner, session, TypedLines(runner, Path.home() / HISTORY, session))
