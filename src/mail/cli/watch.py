"""``mail watch``: show what a task does, and follow it while it runs."""

import argparse
import sys
from typing import TYPE_CHECKING, Final

from mail.cli.common import INTERRUPTED
from mail.cli.credentials import URL_VARIABLE, add_key_flags, api_key, server_url
from mail.config.env import setting
from mail.errors import ConfigError

if TYPE_CHECKING:
    from mail.cli.repl.session import Session

_COMMAND: Final = "watching task"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``mail watch``."""
    add = parser.add_argument
    add("task_id", metavar="TASK", help="one of your tasks: its id, or the beginning of it")
    add("--owner", metavar="ROLE:ID", help="for administrators: whose task it is (its id in full)")
    add("--url", help=f"the server (default: {URL_VARIABLE})")
    add_key_flags(parser)
    add("-a", "--after", metavar="N", type=int, help="only events after event N")
    add("--json", action="store_true", help="print events as JSON, one on a line")


def run(arguments: argparse.Namespace) -> int:
    """Show a task until its run ends; return the exit code of that run.

    Raises:
        ConfigError: the server or its token is not known.
    """
    import asyncio

    from mail.cli.repl.screen import Screen
    from mail.cli.repl.session import Command, Session, execute
    from mail.client.client import MAILClient

    url = arguments.url or setting(URL_VARIABLE)
    if not url:
        raise ConfigError(f"pass the server's URL with --url, or set {URL_VARIABLE}")
    key = api_key(arguments.api_key, arguments.api_key_file, url, typed=bool(arguments.url))
    client = MAILClient(server_url(url), key)
    session = Session(client, Screen(), arguments.json, before=f"mail client {url} ")
    arguments.command = Command("watch", (), "", configure, _watch, _COMMAND)
    with asyncio.Runner() as runner:
        try:
            return runner.run(execute(session, arguments))
        except KeyboardInterrupt:
            print("the task goes on", file=sys.stderr)
            return INTERRUPTED
        finally:
            runner.run(client.aclose())


async def _watch(session: "Session", arguments: argparse.Namespace) -> int:
    from mail.cli.repl.talk import resolve, watch

    owner, task_id = arguments.owner, arguments.task_id
    if owner is None:
        task_id = await resolve(session, task_id)
    after = None if arguments.after is None else str(arguments.after)
    return await watch(session, task_id, after, owner)
