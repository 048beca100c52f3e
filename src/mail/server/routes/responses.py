"""``/responses`` and ``/v1/responses``: the caller's swarm behind OpenAI's Responses API.

The routes are there in debug mode only, and not in the OpenAPI document.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from mail.auth.callers import Caller
from mail.core.tasks import TaskState
from mail.db.base import IdempotencyRow
from mail.errors import BudgetExceeded, ShuttingDown, TaskFailed
from mail.logcontext import note
from mail.net.sse_response import event_stream
from mail.responses_api.bridge import Exchange, ResponsesBridge
from mail.responses_api.problems import ResponsesError
from mail.responses_api.records import Records
from mail.responses_api.request import ResponseRequest
from mail.server.bodies import body_of, parse_object
from mail.server.deps import BearerToken, IdempotencyKey, Person, State
from mail.server.idempotency import replayed
from mail.server.idempotent_response import answered_once
from mail.server.openai_errors import OpenAIRoute, openai_error_response
from mail.server.routing import MAILRouter
from mail.server.state import ServerState, owner_of
from mail.server.streams import CLIENT_GONE, streamed, while_connected

if TYPE_CHECKING:
    from sse_starlette import ServerSentEvent

__all__ = ["router"]

_PING_SECONDS: Final = 15


router = MAILRouter("responses", route_class=OpenAIRoute, include_in_schema=False)


@router.post("/responses")
@router.post("/v1/responses")
async def create_response(
    request: Request, state: State, caller: Person, token: BearerToken, key: IdempotencyKey = None
) -> Response:
    """Run a task, or go on with one, and answer with a response or the stream of its events."""
    asked = ResponseRequest.from_json(parse_object(await body_of(request)))
    async with AsyncExitStack() as stack:
        if asked.stream:
            stack.enter_context(state.quotas.stream(caller))
        bridge = await stack.enter_async_context(_bridge(state, caller, token))

        async def begin(once: IdempotencyRow | None = None) -> Exchange:
            plan = await bridge.plan(asked)
            note(task_id=plan.task_id)
            state.quotas.message(caller, plan.task_id, bridge.swarm.open_tasks)
            steps = _steps(asked, state.max_steps(caller))
            return await bridge.begin(asked, plan, max_steps=steps, once=once)

        async def follow(known: IdempotencyRow) -> Exchange:
            return await bridge.follow(asked, known)

        keyed = await state.keyed(request, caller, key)
        exchange = await (begin() if keyed is None else keyed.once(begin, follow))
        if asked.stream:
            recheck = partial(state.auth.authenticate, token)
            # Closed with the stream, in another task than this one.
            events = streamed(exchange.run.events(_PING_SECONDS), stack.pop_all(), recheck)
            frames = _frames(bridge.events(exchange, events))
            patience = state.config.limits.send_timeout
            response: Response = event_stream(frames, ping=_PING_SECONDS, send_timeout=patience)
        elif asked.background:
            exchange.run.leave()
            response = JSONResponse(exchange.record.response)
        else:
            response = await _answer(request, bridge, exchange)
        return replayed(response) if exchange.repeats else response


@router.get("/responses/{response_id}")
@router.get("/v1/responses/{response_id}")
async def get_response(
    response_id: str, request: Request, state: State, caller: Person, token: BearerToken
) -> JSONResponse:
    """Return a response as it is now."""
    if request.query_params.get("stream", "false").lower() == "true":
        raise ResponsesError("a stored response cannot be streamed; poll it instead", "stream")
    async with _bridge(state, caller, token) as bridge:
        return JSONResponse(await bridge.retrieve(response_id))


@router.delete("/responses/{response_id}")
@router.delete("/v1/responses/{response_id}")
async def delete_response(
    response_id: str, state: State, caller: Person, token: BearerToken
) -> JSONResponse:
    """Forget a response; its task stays."""
    async with _bridge(state, caller, token) as bridge:
        return JSONResponse(await bridge.delete(response_id))


@router.post("/responses/{response_id}/cancel")
@router.post("/v1/responses/{response_id}/cancel")
@answered_once()
async def cancel_response(
    response_id: str,
    request: Request,
    state: State,
    caller: Person,
    token: BearerToken,
    key: IdempotencyKey = None,
) -> JSONResponse:
    """Cancel the task of a response that has not ended."""
    async with _bridge(state, caller, token) as bridge:
        return JSONResponse(await bridge.cancel(response_id))


@asynccontextmanager
async def _bridge(state: ServerState, caller: Caller, token: str) -> AsyncIterator[ResponsesBridge]:
    async with state.pool.lease(caller, token) as swarm:
        owner = owner_of(state, caller)  # that of the instance, which may be of an older swarm
        yield ResponsesBridge(swarm, Records(state.store, owner), owner.swarm)


def _steps(asked: ResponseRequest, limit: int) -> int | None:
    wanted = asked.limits.max_steps
    return None if wanted is None else min(wanted, limit)


async def _answer(request: Request, bridge: ResponsesBridge, exchange: Exchange) -> Response:
    task_id = exchange.record.task_id
    waiting = exchange.run.end(exchange.request.limits.timeout)
    try:
        end = await while_connected(request, waiting)
    except ShuttingDown:
        raise ShuttingDown(task_id) from None
    if end is None:
        return Response(status_code=CLIENT_GONE)
    response = await bridge.ended(exchange, end)
    if end.status is TaskState.FAILED:
        failure = BudgetExceeded if end.over_budget else TaskFailed
        return openai_error_response(failure(response["error"]["message"], task_id))
    return JSONResponse(response)


async def _frames(
    events: AsyncGenerator[dict[str, Any], None],
) -> "AsyncGenerator[ServerSentEvent, None]":
    from sse_starlette import ServerSentEvent

    async with aclosing(events):
        async for event in events:
            yield ServerSentEvent(json.dumps(event), event=event["type"], sep="\n")
