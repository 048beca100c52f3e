"""The caller's tasks. Another caller's task and no task at all look the same, to the byte."""

from contextlib import AsyncExitStack
from functools import partial
from typing import Annotated, Any, Final

from fastapi import Depends, FastAPI, Query
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from mail.auth.callers import Caller
from mail.core.schema import check_task_id
from mail.core.tasks import MAILTask
from mail.db.base import Owner
from mail.errors import ProtocolError, UnknownTask
from mail.logcontext import note
from mail.net.sse_response import event_source
from mail.server.bodies import TaskIn, read_body
from mail.server.deps import BearerToken, Person, State
from mail.server.idempotency import Keyed
from mail.server.idempotent_response import answered_once
from mail.server.jsonbody import body_of
from mail.server.state import ServerState, owner_of
from mail.server.streams import last_event_id, streamed

__all__ = ["MAX_PAGE", "add_routes"]

MAX_PAGE: Final = 1000
_DEFAULT_PAGE: Final = 100


def add_routes(app: FastAPI) -> None:
    """Add the routes of this module. Ids may hold slashes, so the longest paths come first."""
    app.get("/tasks")(get_tasks)
    app.get("/task")(get_task)
    app.get("/tasks/{task_id:path}/events")(get_task_events)
    app.post("/tasks/{task_id:path}/cancel")(answered_once(cancel_task, shortening=_EventsInLog()))
    app.get("/tasks/{task_id:path}")(get_task_by_path)


async def _task_id(request: Request) -> str:
    """Return the task id of the path.

    Raises:
        ProtocolError: it is none; routing lets a line feed at the end of a path fall away.
    """
    lost = "\n" if request.scope["path"].endswith("\n") else ""
    return check_task_id(request.path_params["task_id"] + lost)


PathTaskId = Annotated[str, Depends(_task_id)]


async def get_tasks(
    state: State,
    caller: Person,
    token: BearerToken,
    limit: Annotated[int | None, Query(ge=1, le=MAX_PAGE)] = None,
    cursor: str | None = None,
) -> JSONResponse:
    """List the caller's tasks, newest first: a plain object, or a page of it when asked."""
    paged = limit is not None or cursor is not None
    size = (limit or _DEFAULT_PAGE) if paged else None
    tasks = await _read_tasks(state, caller, token, size, cursor)
    more = size is not None and len(tasks) > size
    records = {task.task_id: _record(task) for task in tasks[:size]}
    if not paged:
        return JSONResponse(records)
    return JSONResponse({"tasks": records, "next_cursor": list(records)[-1] if more else None})


async def get_task(
    request: Request, state: State, caller: Person, token: BearerToken
) -> JSONResponse:
    """Return one task, named by the JSON body or by ``?task_id=``."""
    if await body_of(request):
        task_id = (await read_body(request, TaskIn)).task_id
    else:
        task_id = request.query_params.get("task_id", "")
        if not task_id:
            raise ProtocolError("task_id is required: in a JSON body or as ?task_id=")
    return JSONResponse(_record(await _read_task(state, caller, token, task_id)))


async def get_task_by_path(
    state: State, caller: Person, token: BearerToken, task_id: PathTaskId
) -> JSONResponse:
    """Return one task."""
    return JSONResponse(_record(await _read_task(state, caller, token, task_id)))


async def cancel_task(
    request: Request, state: State, caller: Person, token: BearerToken, task_id: PathTaskId
) -> JSONResponse:
    """Cancel a task and return it as ``GET /task`` does, with its events."""
    await _check_owned(state, caller, task_id)
    async with state.pool.lease(caller, token) as swarm:
        await swarm.cancel_task(task_id)
        # Now, because without this task the caller may be served by another swarm.
        task: MAILTask | None = await swarm.read_task(task_id)
    if task is None:
        raise UnknownTask(task_id)
    return JSONResponse(_record(task))


async def get_task_events(
    request: Request, state: State, caller: Person, token: BearerToken, task_id: PathTaskId
) -> Response:
    """Stream a task's events from its log, and follow it while it runs."""
    after = last_event_id(request)
    await _check_owned(state, caller, task_id)
    async with AsyncExitStack() as stack:
        stack.enter_context(state.quotas.stream(caller))
        swarm = await stack.enter_async_context(state.pool.lease(caller, token))
        await _check_owned(state, caller, task_id)  # the lease may be of a swarm loaded meanwhile
        recheck = partial(state.auth.authenticate, token)
        events = streamed(swarm.replay(task_id, after=after), stack.pop_all(), recheck)
        return event_source(events, send_timeout=state.config.limits.send_timeout)


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


async def _check_owned(state: ServerState, caller: Caller, task_id: str) -> None:
    check_task_id(task_id)
    note(task_id=task_id)
    if await state.store.load_task(owner_of(state, caller), task_id) is None:
        raise UnknownTask(task_id)


async def _read_task(state: ServerState, caller: Caller, token: str, task_id: str) -> MAILTask:
    await _check_owned(state, caller, task_id)
    async with state.pool.lease(caller, token) as swarm:
        task: MAILTask | None = await swarm.read_task(task_id)
    if task is None:
        raise UnknownTask(task_id)
    return task


async def _read_tasks(
    state: ServerState, caller: Caller, token: str, size: int | None, cursor: str | None
) -> list[MAILTask]:
    owner = owner_of(state, caller)
    if cursor is not None and await _is_unknown(state, owner, cursor):
        raise ProtocolError("cursor names no task of yours; take it from 'next_cursor' of a page")
    if not await state.store.list_tasks(owner, limit=1):
        return []  # without making an instance for somebody who only looks
    async with state.pool.lease(caller, token) as swarm:
        limit = None if size is None else size + 1
        return list(await swarm.read_tasks(limit=limit, cursor=cursor))


async def _is_unknown(state: ServerState, owner: Owner, task_id: str) -> bool:
    """Tell whether a text names no task; stores refuse some that cannot name any."""
    try:
        check_task_id(task_id)
    except ProtocolError:
        return True
    return await state.store.load_task(owner, task_id) is None


def _record(task: MAILTask) -> dict[str, Any]:
    return task.to_record(events_as_text=True)
