"""The session of ``mail client``: its client, its screen, and the run of a command."""

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

import click

from mail.cli.common import DONE, FAILED, NO_ANSWER, in_columns
from mail.cli.credentials import connected
from mail.cli.repl.screen import Part, Screen
from mail.cli.repl.view import Progress
from mail.cli.stores import Stored, opened, server_settings
from mail.cli.table import Command, Namespace, Run, flag, option
from mail.errors import ClientDecodeError, ClientHTTPError, MAILError

if TYPE_CHECKING:
    from mail.client.client import MAILClient
    from mail.net.types import Approval

_log = logging.getLogger("mail.client")
_MOST_CALLS: Final = 200
STARTS: Final = "; `mail server` starts a server"
"""The advice where none answers."""


@dataclass
class Talk:
    """The state of a conversation: its current task, and the tasks and agents it has met."""

    task_id: str | None = None
    seen: dict[str, str] = field(default_factory=dict)
    """The last event that was shown, by task."""

    progress: dict[str, Progress] = field(default_factory=dict)
    """The state of each task by these events."""

    tasks: dict[str, str] = field(default_factory=dict)
    """Titles by task, for completion."""

    agents: set[str] = field(default_factory=set)
    calls: dict[str, str] = field(default_factory=dict)
    """Tools by the ids of the calls that wait for an answer, for completion."""

    reached: bool = False
    """Whether the server has ever answered."""

    left: str | None = None
    """The task that an interrupted command was following."""

    next_line: str = ""
    """The beginning of the next line."""


@dataclass
class Session:
    """Whom commands ask, and where they print.

    ``json`` makes all commands print JSON. ``before`` is what stands before a command where it is
    typed: a slash at a prompt. ``lists`` is for commands of the shell, whose JSON is one line, and
    of a page the list alone; ``stored`` is the store that stands for the client beside a server.
    """

    client: "MAILClient"
    screen: Screen
    json: bool = False
    talk: Talk = field(default_factory=Talk)
    before: str = ""
    lists: bool = False
    stored: Stored | None = None

    @property
    def at_prompt(self) -> bool:
        """Whether a person types the commands, and talks with the agents."""
        return self.before == "/"

    def wants_json(self, arguments: Namespace) -> bool:
        """Tell whether a command should print the server's response as JSON."""
        return self.json or bool(arguments.json)

    def shows_json(self, arguments: Namespace, answer: object) -> bool:
        """Print the server's response as JSON if a command should; tell whether that was done."""
        wanted = self.wants_json(arguments)
        if wanted:
            self.screen.show_json(answer, indent=None if self.lists else 2)
        return wanted

    def tell(
        self, arguments: Namespace, answer: object, *lines: Part | Sequence[Part], note: str = ""
    ) -> int:
        """Print the server's response, as JSON or as lines of parts with a note; return success."""
        if not self.shows_json(arguments, answer):
            for line in lines:
                self.screen.say(*([line] if isinstance(line, str) else line))
            if note:
                self.screen.note((note, "dim"))
        return DONE

    def tell_table(
        self,
        arguments: Namespace,
        answer: object,
        headings: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        nothing: str,
        more: object = None,
    ) -> int:
        """Print a page of a list, as JSON or in columns; return success.

        Args:
            arguments: Those of the command.
            answer: The page.
            headings: The names of the columns.
            rows: The cells of each line.
            nothing: The text if there are none.
            more: After what the next page begins.
        """
        note = "" if more is None else f"more: --after {more}"
        lines = in_columns([headings, *rows]) if rows else [nothing]
        return self.tell(arguments, answer, *lines, note=note)


class Section:
    """Commands of the prompt that belong together; it makes them of functions.

    Args:
        title: Its title in the help.
        slash: Whether its commands need a slash at a prompt.
    """

    def __init__(self, title: str, *, slash: bool = False) -> None:
        self.title, self.slash = title, slash
        self.commands: list[Command] = []

    def __call__(
        self, names: str, summary: str, doing: str, *params: click.Parameter, **more: Any
    ) -> Callable[[Run], Command]:
        """Make a command of a function that gets the session and the arguments.

        Args:
            names: Its name and its aliases.
            summary: A line about it.
            doing: The same in the words of an error.
            params: Its arguments and options, besides ``--json``.
            more: ``slash`` and ``free``; see `Command`.
        """

        def made(run: Run) -> Command:
            how = {"slash": self.slash, **more}
            self.commands.append(Command(names, run, (*params, _JSON), summary, doing, **how))
            return self.commands[-1]

        return made


_JSON: Final = flag("json", "-v", "--verbose", "--json", told="print the complete response as JSON")
OWNER: Final = option(
    "-o",
    "--owner",
    metavar="OWNER",
    told="whose task it is: user:alice, or swarm:NAME for another swarm's (admins)",
)


def at_shell(
    needs: str | None = None, *, each: str = "", writes: bool = False
) -> Callable[[Run], Run]:
    """Make a command of the shell of one of the prompt, which asks a server or its store.

    Args:
        needs: Why it must be a server, if it must.
        each: The argument that the command takes one of, and that of the shell several.
        writes: Whether it changes the store.
    """

    def made(run: Run) -> Run:
        async def door(arguments: Namespace) -> None:
            async with _asked(arguments, needs, writes=writes) as session:
                if not each:
                    await run(session, arguments)
                    return
                for one in getattr(arguments, f"{each}s"):
                    setattr(arguments, each, one)
                    await run(session, arguments)

        return door

    return made


@asynccontextmanager
async def _asked(
    arguments: Namespace, needs: str | None, *, writes: bool
) -> AsyncIterator[Session]:
    if arguments.url or needs:
        async with connected(arguments, needs) as client:
            try:
                yield Session(client, Screen(), arguments.json, lists=True)
            except (AttributeError, LookupError, TypeError) as error:
                told = f"the server's answer is not as expected: {error!r}"
                raise ClientDecodeError(told) from error
        return
    url, swarm = server_settings(arguments)
    swarm, owner = arguments.swarm or swarm, vars(arguments).get("owner")
    async with opened(url, read_only=not writes) as store:
        stored = Stored(store, url, swarm, owner)
        client = cast("MAILClient", stored)  # it has the methods that these commands call
        yield Session(client, Screen(), arguments.json, lists=True, stored=stored)


async def calls_of(session: Session, answer: Mapping[str, Any]) -> "Mapping[str, Approval]":
    """Return the newest calls that a paused task asked a person about, by the ids of the calls.

    A server without approvals, or one that does not answer, has none.
    """
    if answer.get("status") != "paused" or not answer.get("breakpoints"):
        return {}
    task_id = str(answer.get("task_id"))
    try:
        page = await session.client.get_approvals("all", task_id=task_id, limit=_MOST_CALLS)
    except MAILError:
        return {}
    return {one["call_id"]: one for one in reversed(page["approvals"])}


async def execute(session: Session, arguments: Namespace) -> int:
    """Run a parsed command and return its exit code; errors are printed."""
    command: Command = arguments.command
    try:
        code: int = await command.run(session, arguments)
    except (click.UsageError, BrokenPipeError):  # what the parser does not see; a closed pipe
        raise
    except MAILError as error:
        status, detail = getattr(error, "status", None), getattr(error, "detail", None)
        session.talk.reached = session.talk.reached or status is not None
        if session.wants_json(arguments):
            problem = {"message": str(error), "status": status, "detail": detail}
            task_id = getattr(error, "task_id", None)
            problem |= {"task_id": task_id} if task_id else {}
            session.screen.show_json({"error": problem}, indent=None)
        else:  # a person at a prompt is not told the status of the response
            known = session.at_prompt and status is not None and isinstance(detail, str)
            told = detail if known and detail else str(error)
            session.screen.fail(f"error {command.doing}: {told}{_advice(command, error)}")
        return NO_ANSWER if isinstance(error, ClientHTTPError) and status is None else FAILED
    except Exception as error:  # noqa: BLE001 - a fault of ours must not end the conversation
        _log.debug("a command failed", exc_info=error)
        session.screen.fail(f"error {command.doing}: {type(error).__name__}: {error}")
        return FAILED
    return code


def _advice(command: Command, error: MAILError) -> str:
    """Return what to do about an error, where the server cannot have said it."""
    if not isinstance(error, ClientHTTPError):
        return ""
    if error.status == 401:
        return "; use `mail login`, MAIL_API_KEY or --api-key-file with a valid token"
    if error.status is not None:
        return ""
    from aiohttp import ClientConnectorError, ConnectionTimeoutError

    connected = not isinstance(error.__cause__, (ClientConnectorError, ConnectionTimeoutError))
    if connected and command.names[0].startswith("message"):
        return "; the server may have received the message: see tasks-get"
    refused = isinstance(getattr(error.__cause__, "os_error", None), ConnectionRefusedError)
    return STARTS if refused else ""
