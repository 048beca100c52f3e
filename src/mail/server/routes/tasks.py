"""The caller's tasks. Another caller's task and no task at all look the same, to the byte."""

from contextlib import AsyncExitStack
from functools import partial
from typing import Annotated, Any, Final

from fastapi import Path, Query
from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from mail.auth.callers import Caller
from mail.core.schema import TaskId, check_task_id
from mail.core.tasks import MAILTask
from mail.db.base import Owner
from mail.errors import ProtocolError, UnknownTask
from mail.logcontext import note
from mail.net.sse import event_source
from mail.net.types import TaskPage, TaskRecord
from mail.server.bodies import RequestBody, body_of, read_body
from mail.server.deps import After, BearerToken, IdempotencyKey, LastEventId, Person, State
from mail.server.idempotency import Keyed
from mail.server.idempotent_response import answered_once
from mail.server.openapi import EVENT_STREAM, errors
from mail.server.routing import MAILRouter
from mail.server.state import ServerState, owner_of
from mail.server.streams import streamed
from mail.services.tasks import PING_INTERVAL

__all__ = ["router"]

MAX_PAGE: Final = 1000
_DEFAULT_PAGE: Final = 100

router = MAILRouter("tasks")

PathTaskId = Annotated[
    TaskId,
    Path(description="The task. A slash in its id may be written as it is or as `%2F`."),
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


class _EventsInLog:
    """Keeps an answer without the task's events: the log has them."""

    def shorten(self, content: dict[str, Any]) -> dict[str, Any]:
        """Keep how many events there were."""
        return content | {"events": len(content["events"])}

    async def restore(self, keyed: Keyed, content: dict[str, Any]) -> dict[str, Any]:
        """Read so many again."""
        logged = await keyed.store.events(keyed.owner, content["task_id"], limit=content["events"])
        events = [event.to_record() | {"data": event.data_text()} for event in logged]
        return content | {"events": events}


# Ids may hold slashes, so the longest paths come first.
@router.get("/tasks", response_model=TaskPage | dict[str, TaskRecord], responses=errors(400))
async def get_tasks(
    state: State,
    caller: Person,
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
) -> JSONResponse:
    """List the caller's tasks, newest first.

    An object from task id to task; with `limit` or `cursor` a page of it.
    """
    paged = limit is not None or cursor is not None
    size = (limit or _DEFAULT_PAGE) if paged else None
    tasks = await _read_tasks(state, caller, size, cursor)
    more = size is not None and len(tasks) > size
    records = {task.task_id: _record(task) for task in tasks[:size]}
    if not paged:
        return JSONResponse(records)
    return JSONResponse({"tasks": records, "next_cursor": list(records)[-1] if more else None})


@router.get(
    "/task",
    response_model=TaskRecord,
    responses=errors(400, 404, 408, 413),
    openapi_extra={"parameters": [_NAMED_IN_QUERY]},
)
async def get_task(
    request: Request,
    state: State,
    caller: Person,
    task_id: Annotated[str | None, Query(include_in_schema=False)] = None,
) -> JSONResponse:
    """Get one task, named in the query or in a body.

    As in MAIL 1.3.6 the id may also be in a JSON body, `{"task_id": "…"}`. Such a body takes
    precedence over the query, which is not needed then. Many tools cannot send a body with GET, so
    the query is what is described here.
    """
    if await body_of(request):
        task_id = (await read_body(request, TaskIn)).task_id
    if not task_id:
        raise ProtocolError("task_id is required, as ?task_id= or in a JSON body")
    return JSONResponse(_record(await _read_task(state, caller, task_id)))


@router.get(
    "/tasks/{task_id:path}/events",
    response_class=Response,
    responses={**EVENT_STREAM, **errors(400, 404)},
)
async def get_task_events(
    state: State,
    caller: Person,
    token: BearerToken,
    task_id: PathTaskId,
    last_event_id: LastEventId = None,
    after: After = None,
) -> Response:
    """Read a task's events, and follow it while it runs.

    From the beginning, or after the event that `Last-Event-ID` or `after` names. The stream ends
    when the log is read and the task is not running.
    """
    known = last_event_id if last_event_id is not None else after
    await _check_owned(state, caller, task_id)
    async with AsyncExitStack() as stack:
        stack.enter_context(state.quotas.stream(caller))
        if state.pool.served.needs_token:  # the caller's unfinished tasks may be waiting for it
            await stack.enter_async_context(state.pool.lease(caller, token))
        recheck = partial(state.auth.authenticate, token)
        replay = state.tasks_of(caller).replay(task_id, known or 0, PING_INTERVAL)
        events = streamed(replay, stack.pop_all(), recheck)
        return event_source(events, send_timeout=state.config.limits.send_timeout)


@router.post("/tasks/{task_id:path}/cancel", response_model=TaskRecord, responses=errors(404))
@answered_once(shortening=_EventsInLog())
async def cancel_task(
    request: Request,
    state: State,
    caller: Person,
    token: BearerToken,
    task_id: PathTaskId,
    key: IdempotencyKey = None,
) -> JSONResponse:
    """Stop a task.

    Running model calls are cancelled, waiting mail is dropped, open breakpoint calls are closed,
    and whoever waits is answered. A task that has ended stays as it is. A later message can
    continue it.
    """
    await _check_owned(state, caller, task_id)
    async with state.pool.lease(caller, token) as swarm:
        await swarm.cancel_task(task_id)
        # Now, because without this task the caller may be served by another swarm.
        task: MAILTask | None = await swarm.read_task(task_id)
    if task is None:
        raise UnknownTask(task_id)
    return JSONResponse(_record(task))


@router.get("/tasks/{task_id:path}", response_model=TaskRecord, responses=errors(400, 404))
async def get_task_by_path(state: State, caller: Person, task_id: PathTaskId) -> JSONResponse:
    """Get one task."""
    return JSONResponse(_record(await _read_task(state, caller, task_id)))


async def _check_owned(state: ServerState, caller: Caller, task_id: str) -> None:
    check_task_id(task_id)
    note(task_id=task_id)
    if await state.store.load_task(owner_of(state, caller), task_id) is None:
        raise UnknownTask(task_id)


async def _read_task(state: ServerState, caller: Caller, task_id: str) -> MAILTask:
    check_task_id(task_id)
    note(task_id=task_id)
    task = await state.tasks_of(caller).task(task_id)
    if task is None:
        raise UnknownTask(task_id)
    return task


async def _read_tasks(
    state: ServerState, caller: Caller, size: int | None, cursor: str | None
) -> list[MAILTask]:
    owner = owner_of(state, caller)
    if cursor is not None and await _is_unknown(state, owner, cursor):
        raise ProtocolError(
            "cursor is not the id of one of your tasks; use the 'next_cursor' of a page"
        )
    return await state.tasks_of(caller).tasks(None if size is None else size + 1, cursor)


async def _is_unknown(state: ServerState, owner: Owner, task_id: str) -> bool:
    """Tell whether a text names no task; stores refuse some that cannot name any."""
    try:
        check_task_id(task_id)
    except ProtocolError:
        return True
    return await state.store.load_task(owner, task_id) is None


def _record(task: MAILTask) -> dict[str, Any]:
    return task.to_record(events_as_text=True)
