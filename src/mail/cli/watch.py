"""``mail watch``: show what a task does, and follow it while it runs."""

import sys
from typing import TYPE_CHECKING

from mail.cli.common import INTERRUPTED
from mail.cli.credentials import KEYS, URL_VARIABLE, api_key, needed_url, server_url
from mail.cli.table import Command, Namespace, argument, command, flag, option

if TYPE_CHECKING:
    from mail.cli.repl.session import Session


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
def run(arguments: Namespace) -> int:
    """Show a task until its run ends; return the exit code of that run.

    Raises:
        ConfigError: the server or its token is not known.
    """
    import asyncio

    from mail.cli.repl.screen import Screen
    from mail.cli.repl.session import Session, execute
    from mail.client.client import MAILClient

    url = needed_url(arguments.url, "pass the server's URL with --url")
    key = api_key(arguments.api_key, arguments.api_key_file, url, typed=bool(arguments.url))
    client = MAILClient(server_url(url), key)
    session = Session(client, Screen(), arguments.json, before=f"mail client {url} ")
    arguments.command = Command("watch", _watch, (), doing="watching task")
    with asyncio.Runner() as runner:
        try:
            return runner.run(execute(session, arguments))
        except KeyboardInterrupt:
            print("the task goes on", file=sys.stderr)
            return INTERRUPTED
        finally:
            runner.run(client.aclose())


async def _watch(session: "Session", arguments: Namespace) -> int:
    from mail.cli.repl.talk import resolve, watch

    owner, task_id = arguments.owner, arguments.task_id
    if owner is None:
        task_id = await resolve(session, task_id)
    after = None if arguments.after is None else str(arguments.after)
    return await watch(session, task_id, after, owner)
