"""The prompt of ``mail client`` as a conversation: what is said belongs to a current task."""

import asyncio
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from mail.cli.common import DONE, one_line
from mail.cli.repl.screen import decoded, exit_code, mapping, show_answer, show_event
from mail.cli.repl.session import STARTS, Section, Session, calls_of, execute
from mail.cli.repl.view import Progress, View, how_long, short_id, short_ids
from mail.cli.table import Namespace, argument, flag
from mail.core.suggest import did_you_mean
from mail.errors import ClientHTTPError, MAILError

if TYPE_CHECKING:
    from mail.client.stream import EventStream

_LISTED: Final = 20
_CONFLICT: Final = 409
_UNKNOWN: Final = 404
_TRIES: Final = 60
_PATIENCE: Final = 2.0
_STYLES: Final[Mapping[object, str]] = {
    "running": "cyan",
    "paused": "yellow",
    "completed": "green",
    "failed": "red",
    "cancelled": "dim",
}


async def say(session: Session, text: str) -> int:
    """Send a text to the current task, or to a new one, and show what comes of it."""
    talk = session.talk
    task_id = talk.task_id
    resume = {"task_id": task_id, "resume_from": "user_response"} if task_id else {}
    try:
        return await send(session, text, **resume)
    except ClientHTTPError as error:
        if task_id and error.status == _UNKNOWN:
            talk.task_id = None
            raise MAILError("this task is gone; say it again to begin another one") from error
        if task_id and error.status == _CONFLICT:
            told = "the task waits for you: /approvals shows for what; /new begins another task"
            raise MAILError(told) from error
        raise


async def send(session: Session, text: str, **options: Any) -> int:
    """Post a message and show what comes of it; the options are those of `MAILClient`."""
    view = View(session.talk.progress.get(str(options.get("task_id"))))
    client, key = session.client, str(uuid.uuid4())
    with _patient(session, view):
        async with view.status(quiet=session.json):
            stream = await client.post_message_stream(text, idempotency_key=key, **options)
            return await follow(session, stream, as_json=session.json, view=view, mine=True)


@contextmanager
def _patient(session: Session, view: View) -> Iterator[None]:
    """Let a client try longer, and a view tell of it."""
    client, talk = session.client, session.talk

    def tell() -> None:
        reached = talk.reached or not session.at_prompt
        lost = f"cannot connect to {client.base_url}{STARTS}"
        view.state = "connection lost, trying again" if reached else lost

    before = client.reconnect
    client.reconnect = replace(before, tries=_TRIES, told=tell)
    try:
        yield
    finally:
        client.reconnect = before


async def follow(
    session: Session,
    stream: "EventStream",
    *,
    as_json: bool = False,
    view: View | None = None,
    mine: bool = False,
) -> int:
    """Show a stream's events up to its end; return the exit code of its last run.

    Args:
        session: The session that shows them.
        stream: The events.
        as_json: Show each as a line of JSON.
        view: Show what people want to know of them; without it, a line of each.
        mine: Leave out messages of the user, who has just typed them.
    """
    talk, code, last = session.talk, DONE, None
    progress = Progress() if view is None else view.progress
    try:
        async with stream:
            async for event in stream:
                kind, end = str(event.event or "message"), mapping(decoded(event.data))
                talk.left = talk.task_id = stream.task_id or talk.task_id
                talk.reached = True
                if event.id and stream.task_id:
                    talk.seen[stream.task_id] = event.id
                if kind in ("task_complete", "task_error"):
                    status = "failed" if kind == "task_error" else end.get("status")
                    code, last = exit_code(status, end.get("ended_by")), end
                if view is not None:
                    view.state = ""
                if as_json:
                    record = {"event": event.event, "id": event.id, "data": decoded(event.data)}
                    session.screen.show_json(record, indent=None)
                    progress.take(kind, end)
                elif view is None:
                    show_event(session.screen, kind, event.data)
                    progress.take(kind, end)
                else:
                    if kind == "task_complete":
                        view.before, view.asked = session.before, await calls_of(session, end)
                    view.take(kind, event.data, mine=mine)
        if view is None and last is not None and not as_json:
            await show_end(session, last)
    finally:
        talk.agents.update(progress.depth)
        if stream.task_id:
            talk.progress[stream.task_id] = progress
    talk.left = None
    return code


async def show_end(session: Session, answer: Mapping[str, Any]) -> None:
    """Print an answer, or what a paused task waits for."""
    show_answer(session.screen, answer, await calls_of(session, answer), session.before)


async def watch(session: Session, task_id: str, after: str | None, owner: str | None = None) -> int:
    """Show a task's events after one of them, and follow it while it runs.

    Args:
        session: The session that shows it.
        task_id: The task.
        after: The number of the last event that is known.
        owner: For administrators: whose task it is.
    """
    known = session.talk.progress.get(task_id) if after else None
    view = View(known)
    with _patient(session, view):
        async with view.status(quiet=session.json):
            stream = await session.client.get_task_events(task_id, after, owner=owner)
            return await follow(session, stream, as_json=session.json, view=view)


async def resolve(session: Session, given: str) -> str:
    """Return the id of the task that is meant by an id or by the beginning of one.

    Raises:
        MAILError: there is no such task, or there are several.
    """
    tasks = await _known(session)
    return only(given, tasks, "task")


async def carry_out(session: Session, arguments: Namespace) -> int:
    """Run a parsed command of the prompt, where the beginning of a task's id will do."""
    name, given = arguments.command.name, vars(arguments)
    begun = name.startswith("task-") and session.at_prompt
    if begun or (name.startswith("set-aside") and not given["owner"]):
        with suppress(MAILError):  # the server says it
            given["task_id"] = await resolve(session, given["task_id"])
    return await execute(session, arguments)


def only(given: str, ids: Iterable[str], kind: str) -> str:
    """Return the one id that is, or begins with, what is given.

    Raises:
        MAILError: there is none, or several begin like that.
    """
    known = list(ids)
    found = [given] if given in known else [name for name in known if name.startswith(given)]
    if len(found) == 1:
        return found[0]
    if found:
        some = ", ".join(short_ids(known)[name] for name in found[:5])
        which = f" begin with '{given}'" if given else ""
        raise MAILError(f"several {kind}s{which}: {one_line(some)}")
    raise MAILError(f"there is no {kind} '{given}'.{did_you_mean(given, known)}")


async def learn(session: Session, kind: str) -> None:
    """Ask the server for what can be completed; without an answer there is what was known before.

    Args:
        session: The session of the conversation.
        kind: ``task_id``, ``approval_id`` or ``agent``.
    """
    talk = session.talk
    with suppress(MAILError, TimeoutError):
        async with asyncio.timeout(_PATIENCE):
            if kind == "task_id":
                await _known(session)
            elif kind == "approval_id":
                calls = (await session.client.get_approvals())["approvals"]
                talk.calls = {one["approval_id"]: one["action_request"]["action"] for one in calls}
            else:
                graph = await session.client.get_swarm_graph()
                talk.agents.update(agent["name"] for agent in graph["agents"])


async def _known(session: Session) -> dict[str, Any]:
    tasks: dict[str, Any] = dict(await session.client.get_tasks(events=False))
    session.talk.tasks = {name: str(task.get("title") or "") for name, task in tasks.items()}
    return tasks


section = Section("The conversation", slash=True)
_TEXT: Final = argument("text", "the text", nargs=-1)
_CHOSEN: Final = argument(
    "task_id",
    "its id, or the beginning of it (default: the current one)",
    metavar="[TASK]",
    required=False,
)


@section("say", "say something in any words", "sending message", _TEXT, slash=False, free=0)
async def _say(session: Session, arguments: Namespace) -> int:
    return await say(session, " ".join(arguments.text))


@section("new n", "begin a new task", "sending message", _TEXT, free=0)
async def _new(session: Session, arguments: Namespace) -> int:
    session.talk.task_id = None
    if arguments.text:
        return await say(session, " ".join(arguments.text))
    session.screen.note(("what you say next begins a new task", "dim"))
    return DONE


@section(
    "tasks",
    "list your tasks, newest first",
    "getting tasks",
    flag("-a", "--all", told=f"not only the newest {_LISTED}"),
)
async def _tasks(session: Session, arguments: Namespace) -> int:
    tasks = await _known(session)
    if session.shows_json(arguments, tasks):
        return DONE
    shown = list(tasks)[: None if arguments.all else _LISTED]
    for name in shown:
        _show_row(tasks, name, current=name == session.talk.task_id)
    if not tasks:
        session.screen.note("no tasks yet")
    elif len(tasks) > len(shown):
        session.screen.note((f"{len(tasks) - len(shown)} more: /tasks --all", "dim"))
    return DONE


def _show_row(tasks: Mapping[str, Any], name: str, *, current: bool) -> None:
    """Show a task on one line, which a terminal cuts."""
    from rich.text import Text

    task, age = tasks[name], ""
    state = str(task.get("status") or "")
    with suppress(TypeError, ValueError):
        began = datetime.fromisoformat(str(task.get("start_time")))
        age = how_long((datetime.now(UTC) - began).total_seconds())
    line = Text.assemble(
        ("* " if current else "  ", "bold yellow"),
        (f"{one_line(short_ids(tasks)[name], 24):8} ", "bold"),
        (f"{one_line(state, 12):9} ", _STYLES.get(state, "")),
        (f"{age:>6}  ", "dim"),
        one_line(str(task.get("title") or "")),
        no_wrap=True,
        overflow="ellipsis",
    )
    View().show(line)


@section(
    "task",
    "go on with another task",
    "getting task",
    argument("task_id", "its id, or the beginning of it", metavar="TASK"),
)
async def _task(session: Session, arguments: Namespace) -> int:
    tasks, talk = await _known(session), session.talk
    name = only(arguments.task_id, tasks, "task")
    talk.task_id = name
    if not session.shows_json(arguments, tasks[name]):
        _show_row(tasks, name, current=True)
        session.screen.note(("what you say continues this task", "dim"))
    return DONE


@section(
    "watch w",
    "show what a task does, and follow it",
    "watching task",
    _CHOSEN,
    flag("-a", "--all", told="from its beginning"),
)
async def _watch(session: Session, arguments: Namespace) -> int:
    talk = session.talk
    name = await _chosen(session, arguments.task_id)
    talk.task_id = name
    after = None if arguments.all or session.wants_json(arguments) else talk.seen.get(name)
    before = talk.seen.get(name)
    code = await watch(replace(session, json=session.wants_json(arguments)), name, after)
    if after is not None and talk.seen.get(name) == before:
        session.screen.note(("nothing new; --all shows it from its beginning", "dim"))
    return code


@section("cancel", "cancel a task", "cancelling task", _CHOSEN)
async def _cancel(session: Session, arguments: Namespace) -> int:
    task = await session.client.cancel_task(await _chosen(session, arguments.task_id))
    name, talk = task.get("task_id"), session.talk
    if name == talk.task_id:
        talk.task_id = None
    return session.tell(arguments, task, f"task {short_id(name)} {task.get('status')}")


async def _chosen(session: Session, given: str | None) -> str:
    """Return the task that is meant; without an id the current one.

    Raises:
        MAILError: there is no such task.
    """
    current = session.talk.task_id
    if given is None and current is None:
        raise MAILError("there is no current task; give its id, as /tasks lists it")
    return current if given is None and current else await resolve(session, str(given))


SAY: Final = _say
TALK: Final = section.commands
