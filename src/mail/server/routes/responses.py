"""``/v1/responses`` and ``/v1/models``: the caller's swarm behind OpenAI's Responses API.

In debug mode the former are at ``/responses``, too, which is not in the OpenAPI document.
"""

import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, cast

from fastapi import Path
from fastapi.exceptions import RequestValidationError
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from mail.auth.callers import Caller
from mail.core.tasks import TaskState
from mail.db.records import IdempotencyRow
from mail.errors import (
    AlreadyAnswered,
    BudgetExceeded,
    MAILError,
    ShuttingDown,
    TaskFailed,
    TaskPaused,
)
from mail.logcontext import note
from mail.net.sse import event_stream, frame
from mail.responses_api.bridge import Exchange, ResponsesBridge
from mail.responses_api.items import NoSuchModel, NoSuchResponse, ResponsesError
from mail.responses_api.records import Records
from mail.responses_api.request import ResponseRequest
from mail.server.answers import (
    CLIENT_GONE,
    in_place,
    json_answer,
    json_text,
    json_texts,
    large_answer,
    streamed,
    while_connected,
)
from mail.server.deps import BearerToken, IdempotencyKey, Person, State
from mail.server.errors import KeyReused, as_refusal, mail_error_response
from mail.server.idempotency import answered_once, replayed
from mail.server.intake import read_object
from mail.server.openapi import errors
from mail.server.routing import Handler, MAILRoute, MAILRouter
from mail.server.state import ServerState, owner_of

_PING_SECONDS: Final = 15

_ResponseId = Annotated[str, Path(description="The id of a response.")]

_STATUS: Final[Mapping[type[MAILError], int]] = {
    NoSuchModel: 404,
    NoSuchResponse: 404,
    TaskPaused: 400,  # the SDK repeats a 409 by itself
    AlreadyAnswered: 400,
}
_TYPES: Final[Mapping[int, tuple[str, str | None]]] = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    402: ("insufficient_quota", "insufficient_quota"),
    403: ("permission_error", "insufficient_permissions"),
    404: ("invalid_request_error", "not_found"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
}
"""Status to the ``type`` and ``code`` of the error."""

PREFIX: Final = "/v1/"
"""The routes at which every error has this shape, also that there is no such route."""

_KEPT: Final = ("allow", "www-authenticate", "retry-after", "connection")
_INTERNAL: Final = 500


class OpenAIRoute(MAILRoute):
    """A route whose errors have OpenAI's shape, those of its dependencies included."""

    error_schema = "OpenAIErrorAnswer"
    foreign = True

    def guarded(self, handler: Handler) -> Handler:
        """Return a handler that answers to every error."""

        async def answer(request: Request) -> Response:
            try:
                return await handler(request)
            except RequestValidationError as error:
                return openai_error_response(as_refusal(error))
            except MAILError as error:
                return openai_error_response(error)

        return answer


def openai_errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Say which errors a route can answer with, for its ``responses=``; see `OpenAIRoute`."""
    return errors(*statuses, schema="OpenAIErrorAnswer")


def openai_error_response(error: MAILError) -> JSONResponse:
    """Make the answer for an error of ours.

    Raises:
        MAILError: the error itself, when no table foresees it.
    """
    plain = mail_error_response(error)  # its headers, and its text without what is not for callers
    status = next((_STATUS[cls] for cls in type(error).__mro__ if cls in _STATUS), None)
    begun = isinstance(error, TaskFailed | ShuttingDown) and getattr(error, "task_id", None)
    final = bool(begun) or isinstance(error, KeyReused)
    return _shaped(
        plain,
        plain.status_code if status is None else status,
        param=getattr(error, "param", None),
        code=getattr(error, "code", None),
        headers={"x-should-retry": "false"} if final else {},
    )


def shaped_for_path(path: str, plain: JSONResponse) -> JSONResponse:
    """Return an error answer in the shape that clients of its path expect."""
    return _shaped(plain, plain.status_code) if path.startswith(PREFIX) else plain


def _shaped(
    plain: JSONResponse,
    status: int,
    *,
    param: str | None = None,
    code: str | None = None,
    headers: Mapping[str, str] = MappingProxyType({}),
) -> JSONResponse:
    usual = "server_error" if status >= _INTERNAL else "invalid_request_error"
    kind, usual_code = _TYPES.get(status, (usual, None))
    message = str(json.loads(bytes(plain.body))["detail"])
    error = {"message": message, "type": kind, "param": param, "code": code or usual_code}
    kept = {name: plain.headers[name] for name in _KEPT if name in plain.headers}
    return JSONResponse({"error": error, "detail": message}, status, {**kept, **headers})


class Model(TypedDict):
    """A swarm in the shape of a model."""

    id: Annotated[str, Field(description="The name of the swarm.")]
    object: Annotated[Literal["model"], Field(description="What this is.")]
    created: Annotated[int, Field(description="When the server started, in seconds since 1970.")]
    owned_by: Annotated[Literal["mail"], Field(description="Who serves it.")]


class ModelList(TypedDict):
    """The models."""

    object: Annotated[Literal["list"], Field(description="What this is.")]
    data: Annotated[list[Model], Field(description="The one model that there is.")]


class DeletedResponse(TypedDict):
    """A response that was deleted."""

    id: Annotated[str, Field(description="The id of the response.")]
    object: Annotated[Literal["response"], Field(description="What this was.")]
    deleted: Annotated[Literal[True], Field(description="It does not exist any more.")]


_SHAPE: Final = {
    "type": "object",
    "description": "A response as OpenAI's reference describes it; `task_id` is its task.",
    "required": ["id", "object", "created_at", "status", "output", "model", "task_id"],
    "properties": {
        "id": {"type": "string"},
        "object": {"type": "string", "const": "response"},
        "created_at": {"type": "integer"},
        "status": {"enum": ["completed", "failed", "in_progress", "cancelled"]},
        "output": {"type": "array", "items": {"type": "object"}},
        "model": {"type": "string"},
        "task_id": {"type": "string"},
    },
}
_EVENT: Final = {"type": "object", "description": "One of OpenAI's events of a streamed response."}
RESPONSE: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "content": {
            "application/json": {"schema": _SHAPE},
            "text/event-stream": {"schema": _EVENT},
        }
    }
}
"""The answers in the document of routes that answer with a response."""

REQUEST: Final = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "description": "What `responses.create` of OpenAI's SDK sends; `docs/"
                    "responses.md` tells what of it counts. Unknown fields are ignored.",
                    "required": ["input"],
                    "properties": {
                        "input": {"type": ["string", "array"]},
                        "model": {"type": "string", "description": "Any name; it is repeated."},
                        "stream": {"type": "boolean"},
                        "instructions": {"type": "string"},
                        "previous_response_id": {"type": "string"},
                    },
                }
            }
        },
    }
}
"""The body of a request, which `ResponseRequest` reads: OpenAI's errors name its fields."""

router = MAILRouter("openai", route_class=OpenAIRoute)
debug = MAILRouter("openai", route_class=OpenAIRoute, include_in_schema=False)


@router.get("/v1/models")
async def list_models(state: State, caller: Person) -> ModelList:
    """List the models: the swarm that is served."""
    return {"object": "list", "data": [_model(state, caller)]}


@router.get("/v1/models/{model}", responses=openai_errors(404))
async def get_model(
    model: Annotated[str, Path(description="The name of the swarm.")], state: State, caller: Person
) -> Model:
    """Get a model: the swarm that is served."""
    found = _model(state, caller)
    if model != found["id"]:
        raise NoSuchModel(model)
    return found


@debug.post("/responses")
@router.post(
    "/v1/responses",
    responses={**RESPONSE, **openai_errors(402, 404, 410, 502, 504, 507)},
    openapi_extra=REQUEST,
)
async def create_response(
    request: Request, state: State, caller: Person, token: BearerToken, key: IdempotencyKey = None
) -> Response:
    """Create a response: run a task, or continue one.

    The answer comes when the run ends. With `stream` it is OpenAI's events: summary parts of a
    reasoning item show which agent calls which tool while the run goes on, then comes the text.
    """
    asked = await read_object(request, ResponseRequest.from_json)
    state.intake.check_message(asked.offer.instructions, "instructions")
    state.intake.check_message(asked.offer.tools, "tools")
    places = state.quotas.places(caller)
    async with AsyncExitStack() as stack:
        if asked.stream:
            stack.enter_context(state.quotas.stream(caller))
        bridge = await stack.enter_async_context(_bridge(state, caller, token))

        async def begin(once: IdempotencyRow | None = None) -> Exchange:
            async with in_place(request, places):
                plan = await bridge.plan(asked)
            state.intake.check_message(plan.body if plan.results is None else plan.results, "input")
            note(task_id=plan.task_id)
            owner, here = owner_of(state, caller), bridge.swarm.runtime.open_tasks
            await state.shares.admit(owner, resumes=plan.results is not None)
            state.quotas.message(caller, plan.task_id, here, state.shares.elsewhere(owner))
            steps = _steps(asked, state.max_steps(caller))
            return await bridge.begin(asked, plan, max_steps=steps, once=once)

        async def follow(known: IdempotencyRow) -> Exchange:
            async with in_place(request, places):
                return await bridge.follow(asked, known)

        keyed = await state.keyed(request, caller, key)
        exchange = await (begin() if keyed is None else keyed.once(begin, follow))
        if asked.stream:
            recheck = partial(state.auth.authenticate, token)
            # Closed with the stream, in another task than this one.
            events = streamed(exchange.run.events(_PING_SECONDS), stack.pop_all(), recheck)
            frames = _frames(bridge.events(exchange, events))
            response: Response = event_stream(frames)
        elif asked.background:
            exchange.run.leave()
            response = await json_answer(exchange.record.response)
        else:
            response = await _answer(request, bridge, exchange)
        return replayed(response) if exchange.repeats else response


@debug.get("/responses/{response_id}")
@router.get("/v1/responses/{response_id}", responses={**RESPONSE, **openai_errors(400, 404)})
async def get_response(
    response_id: _ResponseId, request: Request, state: State, caller: Person, token: BearerToken
) -> Response:
    """Get a response as it is now."""
    if request.query_params.get("stream", "false").lower() == "true":
        raise ResponsesError("a stored response cannot be streamed; poll it instead", "stream")
    return await _as_it_is(request, state, caller, token, response_id)


@debug.delete("/responses/{response_id}")
@router.delete("/v1/responses/{response_id}", responses=openai_errors(404))
async def delete_response(
    response_id: _ResponseId, request: Request, state: State, caller: Person, token: BearerToken
) -> DeletedResponse:
    """Delete a response; its task stays."""
    places = in_place(request, state.quotas.places(caller))
    async with places, _bridge(state, caller, token) as bridge:
        deleted = await bridge.delete(response_id)
    state.shares.forget(owner_of(state, caller))
    return cast("DeletedResponse", deleted)


@debug.post("/responses/{response_id}/cancel")
@router.post("/v1/responses/{response_id}/cancel", responses={**RESPONSE, **openai_errors(404)})
@answered_once()
async def cancel_response(
    response_id: _ResponseId,
    request: Request,
    state: State,
    caller: Person,
    token: BearerToken,
    key: IdempotencyKey = None,
) -> Response:
    """Cancel the task of a response that has not ended."""
    places = in_place(request, state.quotas.places(caller))
    async with places, _bridge(state, caller, token) as bridge:
        await bridge.cancel(response_id)
    return await _as_it_is(request, state, caller, token, response_id)


@asynccontextmanager
async def _bridge(state: ServerState, caller: Caller, token: str) -> AsyncIterator[ResponsesBridge]:
    async with state.pool.lease(caller, token) as swarm:
        owner = owner_of(state, caller)  # that of the instance, which may be of an older swarm
        yield ResponsesBridge(swarm, Records(state.store, owner), owner.swarm)


async def _as_it_is(
    request: Request, state: ServerState, caller: Caller, token: str, response_id: str
) -> Response:
    """Answer with a stored response, in one of the caller's places for large answers."""

    async def texts() -> AsyncGenerator[str, None]:
        async with _bridge(state, caller, token) as bridge:
            found = await bridge.retrieve(response_id)
        async for part in json_texts(found.response):
            yield part

    return await large_answer(request, state.quotas.places(caller), texts())


def _model(state: ServerState, caller: Caller) -> Model:
    created = int(time.time() - state.uptime)
    name = state.template_for(caller).name
    return {"id": name, "object": "model", "created": created, "owned_by": "mail"}


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
    return await json_answer(response)


async def _frames(
    events: AsyncGenerator[dict[str, Any] | None, None],
) -> AsyncGenerator[bytes, None]:
    async with aclosing(events):
        async for event in events:
            if event is None:  # a comment keeps the connection alive
                yield b": working\n\n"
            else:  # the whole text may be in it
                yield frame(event["type"], await json_text(event), sep="\n")
