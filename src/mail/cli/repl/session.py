"""The state that the commands of ``mail client`` share, and how a command is run."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from mail.cli.common import DONE, FAILED, NO_ANSWER
from mail.cli.repl.screen import Screen
from mail.cli.repl.view import Progress
from mail.cli.table import Command, Namespace, Run, flag, option
from mail.errors import ClientHTTPError, MAILError

if TYPE_CHECKING:
    from mail.client.client import MAILClient
    from mail.net.types import Approval

_log = logging.getLogger("mail.client")
_MOST_CALLS = 200
STARTS: Final = "; `mail server` starts a server"
"""What to do where none answers."""


@dataclass
class Talk:
    """What a conversation knows: its current task, and the tasks and agents it has met."""

    task_id: str | None = None
    seen: dict[str, str] = field(default_factory=dict)
    """The last event that was shown, by task."""

    progress: dict[str, Progress] = field(default_factory=dict)
    """What these events told, by task."""

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
    """What the next line begins with."""


class Session(NamedTuple):
    """The client and the output of its commands; ``json`` makes all of them print JSON.

    ``talk`` is what a person at a prompt talks about, None for scripts. ``before`` is what stands
    before a command where it is typed.
    """

    client: "MAILClient"
    screen: Screen
    json: bool = False
    talk: Talk | None = None
    before: str = ""

    def wants_json(self, arguments: Namespace) -> bool:
        """Tell whether a command should print the server's response as JSON."""
        return self.json or bool(arguments.json)

    def shows_json(self, arguments: Namespace, answer: object) -> bool:
        """Print the server's response as JSON if a command should; tell whether that was done."""
        wanted = self.wants_json(arguments)
        if wanted:
            self.screen.show_json(answer)
        return wanted

    def tell(self, arguments: Namespace, answer: object, *lines: str) -> int:
        """Print the server's response, as JSON or as these lines, and return success."""
        if not self.shows_json(arguments, answer):
            for line in lines:
                self.screen.say(line)
        return DONE


class Section:
    """Commands of the prompt that belong together; it makes them of functions."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.commands: list[Command] = []

    def __call__(
        self, names: str, summary: str, doing: str, *params: click.Parameter, **more: Any
    ) -> Callable[[Run], Command]:
        """Make a command of a function that gets the session and the arguments.

        Args:
            names: Its name and its aliases.
            summary: What it does.
            doing: The same in the words of an error.
            params: Its arguments and options, besides ``--json``.
            more: ``slash`` and ``free``; see `Command`.
        """

        def made(run: Run) -> Command:
            self.commands.append(Command(names, run, (*params, _JSON), summary, doing, **more))
            return self.commands[-1]

        return made


_JSON: Final = flag("json", "-v", "--verbose", "--json", told="print the complete response as JSON")
OWNER: Final = option(
    "-o",
    "--owner",
    metavar="OWNER",
    told="whose task it is: user:alice, or swarm:NAME for another swarm's (admins)",
)


async def calls_of(session: Session, task_id: object) -> Mapping[str, "Approval"]:
    """Return the newest calls of a task that a person was asked about, by the ids of the calls.

    A server without approvals, or one that does not answer, has none.
    """
    try:
        page = await session.client.get_approvals("all", task_id=str(task_id), limit=_MOST_CALLS)
    except MAILError:
        return {}
    return {one["call_id"]: one for one in reversed(page["approvals"])}


async def execute(session: Session, arguments: Namespace) -> int:
    """Run a parsed command and return its exit code; errors are printed."""
    command: Command = arguments.command
    try:
        code: int = await command.run(session, arguments)
    except click.UsageError:  # it is one that the parser does not see
        raise
    except MAILError as error:
        if session.talk is not None and getattr(error, "status", None) is not None:
            session.talk.reached = True
        _report(session, arguments, error)
        unanswered = isinstance(error, ClientHTTPError) and error.status is None
        return NO_ANSWER if unanswered else FAILED
    except BrokenPipeError:  # the reader has closed the pipe
        raise
    except Exception as error:  # noqa: BLE001 - a fault of ours must not end the conversation
        _log.debug("a command failed", exc_info=error)
        session.screen.fail(f"error {command.doing}: {type(error).__name__}: {error}")
        return FAILED
    return code


def _report(session: Session, arguments: Namespace, error: MAILError) -> None:
    if session.wants_json(arguments):
        status, detail = getattr(error, "status", None), getattr(error, "detail", None)
        problem = {"message": str(error), "status": status, "detail": detail}
        problem |= {"task_id": task_id} if (task_id := getattr(error, "task_id", None)) else {}
        session.screen.show_json({"error": problem}, indent=None)
    else:
        command: Command = arguments.command
        told = _told(session, error)
        session.screen.fail(f"error {command.doing}: {told}{_advice(command, error)}")


def _told(session: Session, error: MAILError) -> str:
    """Return an error; to a person at a prompt without the status of the response."""
    if session.talk is None or not isinstance(error, ClientHTTPError) or error.status is None:
        return str(error)
    return error.detail if isinstance(error.detail, str) and error.detail else str(error)


def _advice(command: Command, error: MAILError) -> str:
    """Return what to do about an error, where the server cannot have said it."""
    if not isinstance(error, ClientHTTPError):
        return ""
    if error.status == 401:
        return "; use `mail login`, MAIL_API_KEY or --api-key-file with a valid token"
    if error.status is None and command.names[0].startswith("message") and _was_connected(error):
        return "; the server may have received the message: see tasks-get"
    refused = isinstance(getattr(error.__cause__, "os_error", None), ConnectionRefusedError)
    return STARTS if refused else ""


def _was_connected(error: ClientHTTPError) -> bool:
    from aiohttp import ClientConnectorError, ConnectionTimeoutError

    return not isinstance(error.__cause__, (ClientConnectorError, ConnectionTimeoutError))
