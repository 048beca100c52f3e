"""The caller's tasks. Another caller's task and no task at all look the same, to the byte."""

import logging
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from contextlib import AsyncExitStack, aclosing
from functools import partial
from typing import Annotated, Any, Final, cast

from fastapi import Path, Query
from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import Response

from mail.auth.callers import Caller
from mail.core.approvals import Answerer
from mail.core.events import TaskEvent
from mail.core.large import json_line, unbroken
from mail.core.schema import TaskId, check_task_id
from mail.core.tasks import MAILTask
from mail.db.records import Owner
from mail.errors import Forbidden, ProtocolError, UnknownTask
from mail.logcontext import note
from mail.net.sse import event_source
from mail.net.types import (
    GetSetAsideResponse,
    PostSetAsideRetryResponse,
    TaskPage,
    TaskRecord,
)
from mail.server.answers import json_list, json_object, large_answer, streamed
from mail.server.bodies import RequestBody
from mail.server.deps import (
    After,
    BearerToken,
    EventsAfter,
    IdempotencyKey,
    LastEventId,
    MessageNumber,
    OwnerName,
    State,
    TaskOwner,
    owner_named,
)
from mail.server.idempotency import answered_once
from mail.server.intake import body_of, read_body
from mail.server.openapi import EVENT_STREAM, errors
from mail.server.routing import MAILRouter
from mail.server.state import ServerState, owner_of
from mail.services.tasks import PING_INTERVAL, TaskReader

MAX_PAGE: Final = 1000
_DEFAULT_PAGE: Final = 100
_ASIDE_PAGE: Final = 50
_LISTED_BYTES: Final = 1024 * 1024
"""The size limit of the events in a list of tasks."""
_TRIES: Final = 3
"""Behind so many tasks whose events do not fit, those of older ones are not even looked at."""

router = MAILRouter("tasks")
_log = logging.getLogger("mail.server")

PathTaskId = Annotated[
    TaskId,
    Path(description="The task. A slash in its id may be written as it is or as `%2F`."),
]


EventsLimit = Annotated[
    int,
    Query(
        ge=1,
        le=MAX_PAGE,
        description="The most events of the page. It also ends at about 1 MiB, but has one event "
        "at least.",
    ),
]

_NAMED_IN_QUERY: Final = {
    "name": "task_id",
    "in": "query",
    "required": True,
    "description": "The task.",
    "schema": TypeAdapter(TaskId).json_schema(),
}


class TaskIn(RequestBody):
    """``GET /task``."""

    task_id: TaskId


# Ids may hold slashes, so the longest paths come first.
@router.get("/tasks", response_model=TaskPage | dict[str, TaskRecord], responses=errors(400))
async def get_tasks(
    request: Request,
    state: State,
    caller: TaskOwner,
    limit: Annotated[
        int | None,
        Query(ge=1, le=MAX_PAGE, description="The size of a page, 100 by default."),
    ] = None,
    cursor: Annotated[
        str | None,
        Query(
            description="Where the page begins: the `next_cursor` of the previous page. It "
            "is the id of "
            "one of the caller's tasks; anything else is 400."
        ),
    ] = None,
    events: Annotated[bool, Query(description="Whether to include the tasks' events.")] = True,
    owner: OwnerName = None,
) -> Response:
    """List the caller's tasks, newest first, with their events, but not their waiting messages.

    An object from task id to task; with `limit` or `cursor` a page of it. An answer has about 1 MiB
    of events at most. A record whose events do not fit has none, and `events_omitted`.
    """
    tasks = _reader(state, caller, owner)
    most = _LISTED_BYTES if events else 0
    if limit is None and cursor is None:
        whole = json_object(_named(tasks, tasks.overviews(), most))
        return await large_answer(request, tasks.places, whole)
    if cursor is not None and await _is_unknown(state, tasks.owner, cursor):
        raise ProtocolError(
            "cursor is not the id of one of these tasks; use the 'next_cursor' of a page"
        )
    size = limit or _DEFAULT_PAGE
    return await large_answer(request, tasks.places, _paged(tasks, size, cursor, most))


@router.get(
    "/task",
    response_model=TaskRecord,
    responses=errors(400, 404, 408, 413),
    openapi_extra={"parameters": [_NAMED_IN_QUERY]},
)
async def get_task(
    request: Request,
    state: State,
    caller: TaskOwner,
    task_id: Annotated[str | None, Query(include_in_schema=False)] = None,
    after: EventsAfter = None,
    limit: EventsLimit = MAX_PAGE,
    owner: OwnerName = None,
) -> Response:
    """Get one task, named in the query or in a body, with a page of its events.

    As in MAIL 1.3.6 the id may also be in a JSON body, `{"task_id": "…"}`. Such a body takes
    precedence over the query, which is not needed then. Many tools cannot send a body with GET, so
    the query is what is described here.
    """
    if await body_of(request):
        task_id = (await read_body(request, TaskIn)).task_id
    if not task_id:
        raise ProtocolError("task_id is required, as ?task_id= or in a JSON body")
    reader = _reader(state, caller, owner)
    return await _task(request, reader, task_id, after, limit)


@router.get(
    "/tasks/{task_id:path}/events",
    response_class=Response,
    responses={**EVENT_STREAM, **errors(400, 404)},
)
async def get_task_events(
    state: State,
    caller: TaskOwner,
    token: BearerToken,
    task_id: PathTaskId,
    last_event_id: LastEventId = None,
    after: After = None,
    owner: OwnerName = None,
) -> Response:
    """Read a task's events, and follow it while it runs.

    From the beginning, or after the event that `Last-Event-ID` or `after` names. The stream ends
    when the log is read and the task is not running.
    """
    known = last_event_id if last_event_id is not None else after
    whose = _whose(caller, owner)
    await _check_owned(state, whose, task_id)
    async with AsyncExitStack() as stack:
        stack.enter_context(state.quotas.stream(caller))
        if (
            state.pool.served.needs_token and whose == caller
        ):  # the caller's unfinished tasks may be waiting for it
            await state.pool.borrow(stack, caller, token)
        recheck = partial(state.auth.authenticate, token)
        replay = _reader(state, caller, owner).replay(task_id, known or 0, PING_INTERVAL)
        events = streamed(replay, stack.pop_all(), recheck)
        return event_source(events)


@router.post("/tasks/{task_id:path}/cancel", responses=errors(404))
@answered_once()
async def cancel_task(
    request: Request,
    state: State,
    caller: TaskOwner,
    token: BearerToken,
    task_id: PathTaskId,
    owner: OwnerName = None,
    key: IdempotencyKey = None,
) -> TaskRecord:
    """Stop a task.

    Running model calls are cancelled, waiting mail is dropped, open breakpoint calls are closed,
    and whoever waits is answered. A task that has ended stays as it is. A later message can
    continue it. The answer is the task without its events. An administrator's cancellation of
    another caller's task is logged.
    """
    whose = _whose(caller, owner)
    await _check_owned(state, whose, task_id)
    _audit(state, caller, whose, "cancels", f"the task '{task_id}'")
    async with state.pool.lease(whose, token if whose == caller else "") as swarm:
        await swarm.cancel_task(task_id)
        # Now, because without this task the caller may be served by another swarm.
        task: MAILTask | None = await swarm.read_task(task_id, with_events=False)
    if task is None:
        raise UnknownTask(task_id)
    return cast("TaskRecord", _summary(task))


@router.get(
    "/tasks/{task_id:path}/set-aside",
    responses=errors(400, 404),
)
async def get_set_aside(
    state: State,
    caller: TaskOwner,
    task_id: PathTaskId,
    after: Annotated[
        int, Query(ge=0, lt=2**63, description="Only mail with a greater number: `next_after`.")
    ] = 0,
    limit: Annotated[
        int, Query(ge=1, le=_ASIDE_PAGE, description="The size of the page.")
    ] = _ASIDE_PAGE,
    owner: OwnerName = None,
) -> GetSetAsideResponse:
    """List a task's mail that was set aside because it saw too many crashes, oldest first."""
    whose = _whose(caller, owner)
    await _check_owned(state, whose, task_id)
    found, more = await state.tasks_of(whose).mail_aside(task_id, after, limit)
    return {"mail": cast("Any", found), "next_after": more}


@router.post(
    "/tasks/{task_id:path}/set-aside/{number}/retry",
    responses=errors(404, 409),
)
@answered_once()
async def retry_set_aside(  # noqa: PLR0913 - the parts of a request, all named
    request: Request,
    state: State,
    caller: TaskOwner,
    token: BearerToken,
    task_id: PathTaskId,
    number: MessageNumber,
    owner: OwnerName = None,
    key: IdempotencyKey = None,
) -> PostSetAsideRetryResponse:
    """Give an agent a message again that was set aside; the task goes on, also one that has ended.

    A message that could lead to nothing any more is 409, and so is one of a paused task. An
    administrator's request for another caller's task is logged.
    """
    whose = _whose(caller, owner)
    await _check_owned(state, whose, task_id)
    _audit(state, caller, whose, "tries again", f"mail {number} of the task '{task_id}'")
    async with state.pool.lease(whose, token if whose == caller else "") as swarm:
        await swarm.runtime.set_aside.retry(task_id, number, _by(state, caller, whose))
    return {"status": "waiting", "task_id": task_id, "id": number}


@router.delete(
    "/tasks/{task_id:path}/set-aside/{number}", status_code=204, responses=errors(400, 404, 409)
)
async def discard_set_aside(
    state: State,
    caller: TaskOwner,
    token: BearerToken,
    task_id: PathTaskId,
    number: MessageNumber,
    owner: OwnerName = None,
) -> Response:
    """Give a message up that was set aside.

    An administrator's request for another caller's task is logged.
    """
    whose = _whose(caller, owner)
    await _check_owned(state, whose, task_id)
    _audit(state, caller, whose, "discards", f"mail {number} of the task '{task_id}'")
    async with state.pool.lease(whose, token if whose == caller else "") as swarm:
        await swarm.runtime.set_aside.discard(task_id, number, _by(state, caller, whose))
    return Response(status_code=204)


@router.delete("/tasks/{task_id:path}", status_code=204, responses=errors(400, 404, 409))
async def delete_task(
    state: State,
    caller: TaskOwner,
    token: BearerToken,
    task_id: PathTaskId,
    cancel: Annotated[bool, Query(description="Cancel the task first if it is running.")] = False,
) -> Response:
    """Delete a task, with its messages, events, histories and answer.

    A running task is 409 unless `cancel` is true; a paused one is deleted. A repeat of the request
    that began it, with the same `Idempotency-Key`, is 410 from then on. The id can be used again.
    """
    await _check_owned(state, caller, task_id)
    async with state.pool.lease(caller, token) as swarm:
        await swarm.delete_task(task_id, cancel=cancel)
    state.shares.forget(owner_of(state, caller))
    return Response(status_code=204)


@router.get("/tasks/{task_id:path}", response_model=TaskRecord, responses=errors(400, 404))
async def get_task_by_path(
    request: Request,
    state: State,
    caller: TaskOwner,
    task_id: PathTaskId,
    after: EventsAfter = None,
    limit: EventsLimit = MAX_PAGE,
    owner: OwnerName = None,
) -> Response:
    """Get one task with a page of its events."""
    reader = _reader(state, caller, owner)
    return await _task(request, reader, task_id, after, limit)


def _whose(caller: Caller, owner: str | None) -> Caller:
    """Return whose task a request is about.

    Raises:
        Forbidden: it is somebody else's, and the caller is no administrator.
    """
    named = caller if owner is None else owner_named(owner)
    if named != caller and caller.role != "admin":
        raise Forbidden("only administrators see the tasks of other callers")
    return named


def _audit(state: ServerState, caller: Caller, whose: Caller, doing: str, what: str) -> None:
    """Log what an administrator does to another caller's task.

    Raises:
        Forbidden: only the owner can do it.
    """
    if whose == caller:
        return
    if state.pool.served.needs_token:
        raise Forbidden(
            "the swarm calls its model with the owner's own token, so only the owner can do this"
        )
    told = (caller.role, caller.id, doing, what, whose.role, whose.id)
    _log.info("%s '%s' %s %s of %s '%s'", *told)


def _by(state: ServerState, caller: Caller, whose: Caller) -> Answerer:
    participant = state.is_participant(caller)
    return Answerer(caller.role, caller.id, participant=participant, owner=caller == whose)


def _reader(state: ServerState, caller: Caller, owner: str | None) -> TaskReader:
    """Return a reader of the owner's tasks, with the places of the caller's answers."""
    return state.tasks_of(_whose(caller, owner), state.quotas.places(caller))


async def _check_owned(state: ServerState, caller: Caller, task_id: str) -> None:
    check_task_id(task_id)
    note(task_id=task_id)
    if await state.store.load_task(owner_of(state, caller), task_id) is None:
        raise UnknownTask(task_id)


async def _is_unknown(state: ServerState, owner: Owner, task_id: str) -> bool:
    """Tell whether a text names no task; stores refuse some that cannot name any."""
    try:
        check_task_id(task_id)
    except ProtocolError:
        return True
    return await state.store.load_task(owner, task_id) is None


def _summary(task: MAILTask) -> dict[str, Any]:
    """Return the record of a task without events; a page of them begins before the first."""
    task.task_message_queue = []
    return task.to_record() | {"events": [], "next_after": 0 if task.event_count else None}


async def _named(
    reader: TaskReader, tasks: AsyncGenerator[list[MAILTask], None], most: int
) -> AsyncGenerator[tuple[str, Any], None]:
    """Yield tasks with their events, as far as so many bytes go; the newest come first."""
    tries = _TRIES if most else 0
    async with aclosing(tasks):
        async for some in tasks:
            for task in some:
                events = await reader.events_within(task, most) if tries > 0 else None
                record = _summary(task)
                if events is not None:
                    most -= sum(event.size for event in events)
                    yield task.task_id, _with_events(record, events, None)
                    continue
                if task.event_count:
                    record["events_omitted"], tries = True, tries - 1
                yield task.task_id, record


async def _paged(
    reader: TaskReader, size: int, cursor: str | None, most: int
) -> AsyncGenerator[str, None]:
    """Yield a page of ``size`` tasks, with at most so many bytes of events."""
    tasks, found = reader.overviews(size + 1, cursor), list[str]()

    async def of_page() -> AsyncGenerator[list[MAILTask], None]:
        async for some in tasks:
            room = size - len(found)
            found.extend(task.task_id for task in some)
            yield some[:room]

    async def following() -> AsyncGenerator[str, None]:
        yield json_line(found[size - 1] if len(found) > size else None)

    page = {"tasks": json_object(_named(reader, of_page(), most)), "next_cursor": following()}
    async with aclosing(tasks):
        async for piece in json_object(page):
            yield piece


async def _task(
    request: Request, tasks: TaskReader, task_id: str, after: int | None, limit: int
) -> Response:
    check_task_id(task_id)
    note(task_id=task_id)
    return await large_answer(request, tasks.places, _record(tasks, task_id, after or 0, limit))


async def _record(
    tasks: TaskReader, task_id: str, after: int, limit: int
) -> AsyncGenerator[str, None]:
    """Yield a task with a page of its events."""
    task, calls, events = await tasks.page(task_id, after, limit)
    last = events[-1].seq if events else after
    following = last if last < task.event_count else None
    record = task.to_record() | {"breakpoints": json_list(_stored(calls))}
    async for text in _with_events(record, events, following):
        yield text


def _with_events(
    record: dict[str, Any], events: deque[TaskEvent], following: int | None
) -> AsyncGenerator[str, None]:
    """Yield the record of a task as JSON, with a page of its events."""
    return json_object(record | {"events": json_list(_sent(events)), "next_after": following})


async def _stored(calls: Iterable[str]) -> AsyncGenerator[str, None]:
    """Yield calls as JSON; to read what is stored as such would take long."""
    for call in calls:
        yield unbroken(call)


async def _sent(events: deque[TaskEvent]) -> AsyncGenerator[str, None]:
    """Take events out of their page as they are sent."""
    while events:
        yield await events.popleft().record_text(as_text=True)
