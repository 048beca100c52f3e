"""``POST /message``: run a task and answer with its end, or with the stream of its events."""

import uuid
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from mail.core.runtime.settings import UNSET
from mail.core.tasks import TaskState
from mail.errors import BudgetExceeded, ShuttingDown, TaskFailed
from mail.logcontext import note
from mail.server.bodies import MessageIn, read_body
from mail.server.deps import BearerToken, Person, State
from mail.server.state import ServerState, owner_of
from mail.server.streams import streamed
from mail.server.waiting import CLIENT_GONE, while_connected
from mail.utils.callers import Caller
from mail.utils.sse import event_source

if TYPE_CHECKING:
    from mail.api import MAILSwarm
    from mail.core.runtime import Run, RunResult

__all__ = ["add_routes"]


def add_routes(app: FastAPI) -> None:
    """Add the routes of this module."""
    app.post("/message")(message)


async def message(request: Request, state: State, caller: Person, token: BearerToken) -> Response:
    """Take a message of the caller's, and answer when its run ends, or stream its events."""
    body = await read_body(request, MessageIn)
    task_id = body.task_id or str(uuid.uuid4())
    note(task_id=task_id)
    async with AsyncExitStack() as stack:
        if body.stream:
            stack.enter_context(state.quotas.stream(caller))
        running = partial(_running, state, caller)
        await stack.enter_async_context(state.quotas.message(caller, task_id, running))
        swarm = await stack.enter_async_context(state.pool.lease(caller, token))
        run = await _open_run(swarm, body, task_id, state.max_steps)
        if body.stream:
            recheck = partial(state.auth.authenticate, token)
            events = streamed(run.events(), stack.pop_all(), recheck)
            return event_source(events, send_timeout=state.config.limits.send_timeout)
        result = await _result_for(request, run, body.options.timeout)
        if result is None:
            return Response(status_code=CLIENT_GONE)
        return JSONResponse(await _answer(swarm, result, body.show_events))


async def _running(state: ServerState, caller: Caller) -> set[str]:
    tasks = await state.store.list_tasks(owner_of(state, caller), states=(TaskState.RUNNING,))
    return {task.task_id for task in tasks}


async def _open_run(swarm: "MAILSwarm", body: MessageIn, task_id: str, limit: int) -> "Run":
    asked = body.options.max_steps
    steps = UNSET if asked is None else min(asked, limit)
    return await swarm.open_run(
        body.text,
        body.subject or "New Message",
        body.msg_type,
        entrypoint=body.entrypoint or None,
        task_id=task_id,
        resume_from=body.resume_from,
        max_steps=steps,
        breakpoint_tool_call_result=body.options.breakpoint_tool_call_result,
        stream_tokens=body.stream_tokens,
        streamed=body.stream,
    )


async def _result_for(request: Request, run: "Run", timeout: float) -> "RunResult | None":
    """Wait for the end of a run, but only as long as the client does; None when it left."""
    try:
        return await while_connected(request, run.result(timeout=timeout))
    except ShuttingDown:
        raise ShuttingDown(run.task_id) from None


async def _answer(swarm: "MAILSwarm", result: "RunResult", show_events: bool) -> dict[str, object]:
    payload = result.message["message"]
    if result.status == "failed":
        failure = BudgetExceeded if result.over_budget else TaskFailed
        raise failure(result.reason or payload["body"], result.task_id)
    events = None
    if show_events:
        task = await swarm.read_task(result.task_id)
        events = [event.to_record() for event in task.events] if task else []
    return {
        "response": payload["body"],
        "events": events,
        "task_id": result.task_id,
        "subject": payload["subject"],
        "status": str(result.status),
        "breakpoints": result.breakpoints,
    }
