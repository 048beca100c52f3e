"""Approvals over HTTP, and the webhook that tells of them: ``/approvals`` and ``/webhook``.

The rules are those of `mail.services.approvals`.
"""

import logging
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Annotated, Any, Final, Literal

from fastapi import Depends, Path, Query
from pydantic import ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from mail.auth.callers import Caller
from mail.core.approvals import ALLOWS, Answer, Answerer
from mail.core.schema import MAX_ID
from mail.db.calls import StoredCall
from mail.errors import ProtocolError, UnknownApproval
from mail.logcontext import note
from mail.net.sse import event_source
from mail.net.types import (
    Approval,
    GetApprovalsResponse,
    GetWebhookResponse,
    PostApprovalResponse,
    PostWebhookRetryResponse,
    webhook_message,
)
from mail.server.answers import (
    json_list,
    json_object,
    json_text,
    json_texts,
    large_answer,
    streamed,
)
from mail.server.bodies import RequestBody
from mail.server.deps import (
    ADMIN,
    Administrator,
    After,
    BearerToken,
    IdempotencyKey,
    LastEventId,
    MessageNumber,
    State,
    TaskOwner,
    page_of,
)
from mail.server.exchange import exchange_of
from mail.server.idempotency import answered_once
from mail.server.openapi import errors
from mail.server.routes.interswarm import AuditedRoute
from mail.server.routing import MAILRouter
from mail.server.state import ServerState
from mail.services.approvals import ApprovalDesk, Deadlines

MAX_PAGE: Final = 200
_DEFAULT_PAGE: Final = 50
_LONGEST_ID: Final = 64

_log = logging.getLogger("mail.server")

router = MAILRouter("approvals", route_class=AuditedRoute)


_CALL: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["args"],
    "properties": {"action": {"type": "string"}, "args": {"type": "object"}},
}
_ARGS: Final[Mapping[str, dict[str, Any]]] = {
    "accept": {"anyOf": [{"type": "null"}, _CALL]},
    "edit": _CALL,
    "ignore": {},
    "response": {"type": "string", "pattern": r"\S"},
}


def _by_type(schema: dict[str, Any]) -> None:
    """Say in JSON Schema what each type of answer has, and that a list with one is one."""
    args = schema["properties"]["args"]
    each = {
        "anyOf": [
            {
                "type": "object",
                "required": ["type", "args"] if kind in ("edit", "response") else ["type"],
                "additionalProperties": False,
                "properties": {
                    "type": {"const": kind},
                    "args": {"description": args["description"], **_ARGS[kind]},
                },
            }
            for kind in ALLOWS
        ]
    }
    for name in ("type", "properties", "required", "additionalProperties"):
        del schema[name]
    schema["anyOf"] = [each, {"type": "array", "items": each, "minItems": 1, "maxItems": 1}]


class ApprovalAnswerIn(RequestBody):
    """An answer to a call that waits for a person."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=_by_type)
    may_be_in_list = True

    type: Annotated[
        Literal["accept", "edit", "ignore", "response"],
        Field(description="What is to be done with the call."),
    ]
    args: Annotated[
        Any,
        Field(
            description="For `edit` an object with `action` and `args`, for `response` the text. "
            "An `accept` may repeat the call's own; other arguments are refused."
        ),
    ] = None


_CHANGE: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["timestamp", "task_id"],
    "additionalProperties": False,
    "properties": {
        "timestamp": {"type": "string"},
        "task_id": {"type": "string"},
        "description": {"type": "string"},
        "extra_data": {"$ref": "#/components/schemas/Approval"},
    },
}
_EVENT: Final[dict[str, Any]] = {
    "type": "object",
    "description": "One server-sent event. The data of `ping` and `server_drain` have no "
    "`extra_data`, and these events no `id`.",
    "required": ["event", "data"],
    "additionalProperties": False,
    "properties": {
        "event": {"enum": ["approval_closed", "approval_opened", "ping", "server_drain"]},
        "data": {
            "type": "string",
            "description": "One line of JSON.",
            "contentMediaType": "application/json",
            "contentSchema": _CHANGE,
        },
        "id": {
            "type": "string",
            "pattern": "^[0-9]+$",
            "description": "The number of the change, for `Last-Event-ID`.",
        },
        "retry": {
            "type": "integer",
            "description": "Milliseconds to wait before reconnecting; on the first event.",
        },
    },
}
_CHANGES: Final[dict[int | str, dict[str, Any]]] = {
    200: {"content": {"text/event-stream": {"schema": _EVENT}}}
}
PathApprovalId = Annotated[str, Path(max_length=_LONGEST_ID, description="The approval.")]
Status = Literal[
    "open", "accepted", "edited", "ignored", "responded", "cancelled", "expired", "all"
]


@router.get("/approvals", response_model=GetApprovalsResponse, responses=errors(400))
async def get_approvals(
    request: Request,
    state: State,
    caller: TaskOwner,
    status: Annotated[Status, Query(description="Only with this status; `all` for any.")] = "open",
    task_id: Annotated[
        str | None, Query(max_length=MAX_ID, description="Only of tasks with this id.")
    ] = None,
    limit: Annotated[
        int, Query(ge=1, le=MAX_PAGE, description="The size of a page.")
    ] = _DEFAULT_PAGE,
    cursor: Annotated[
        str | None,
        Query(description="Where the page begins: the `next_cursor` of the previous page."),
    ] = None,
) -> Response:
    """List calls that wait for a person, newest first.

    These are the calls of tools that need an approval and those of breakpoint tools: in the
    caller's own tasks, and where the caller is named as an approver. Administrators see all.
    """

    async def fields() -> AsyncGenerator[tuple[str, object], None]:
        page = desk_of(state).page(
            answerer(state, caller), status, task_id or "", limit, cursor or ""
        )
        records, following = await page
        yield "approvals", json_list(_texts(records))
        yield "next_cursor", following

    return await large_answer(request, state.quotas.places(caller), json_object(fields()))


@router.get(
    "/approvals/events",
    response_class=Response,
    responses={**_CHANGES, **errors(400)},
)
async def get_approval_events(
    state: State,
    caller: TaskOwner,
    token: BearerToken,
    last_event_id: LastEventId = None,
    after: After = None,
) -> Response:
    """Follow what is opened and closed: the events `approval_opened` and `approval_closed`.

    It begins with what is open, or after the event that `Last-Event-ID` or `after` names. The
    approval is the event's `extra_data`. What was opened and closed meanwhile is told once.
    """
    known = last_event_id if last_event_id is not None else after
    async with AsyncExitStack() as stack:
        stack.enter_context(state.quotas.stream(caller))
        found = desk_of(state).events(
            answerer(state, caller),
            known,
            lambda: state.draining or state.pool.closed,
            state.quotas.places(caller),
        )
        recheck = partial(state.auth.authenticate, token)
        events = streamed(found, stack.pop_all(), recheck)
        return event_source(events)


@router.get("/approvals/{approval_id}", response_model=Approval, responses=errors(400, 404))
async def get_approval(
    request: Request, state: State, caller: TaskOwner, approval_id: PathApprovalId
) -> Response:
    """Get one of them."""
    places, record = state.quotas.places(caller), _whole(state, caller, approval_id)
    return await large_answer(request, places, record)


async def _whole(state: ServerState, caller: Caller, approval_id: str) -> AsyncGenerator[str, None]:
    """Yield an approval as JSON."""
    record = await desk_of(state).record(answerer(state, caller), approval_id)
    async for text in json_texts(record):
        yield text


async def _texts(records: Iterable[dict[str, Any]]) -> AsyncGenerator[str, None]:
    for record in records:
        yield await json_text(record)


@router.post(
    "/approvals/{approval_id}",
    response_model=PostApprovalResponse,
    responses=errors(404, 409),
)
@answered_once()
async def answer_approval(
    request: Request,
    state: State,
    caller: TaskOwner,
    token: BearerToken,
    approval_id: PathApprovalId,
    body: ApprovalAnswerIn,
    key: IdempotencyKey = None,
) -> Response:
    """Answer a call: `accept`, `edit`, `ignore` or `response`.

    The answer is stored when this returns; the call is run, and the agent goes on, in the
    background. A text that stands for a number, a truth value, a list or an object in the arguments
    of an edit is read as such if the tool's schema leaves no doubt. A call that was answered
    before, whose time is up or whose task has ended is 409.
    """
    desk, who = desk_of(state, token), answerer(state, caller)
    if exchange_of(request).done_before:
        owner, task_id = await desk.place(who, approval_id)
    else:
        owner, task_id = await desk.answer(who, approval_id, body.model_dump())
    note(task_id=task_id)
    task = await state.store.load_task(owner, task_id)
    if task is None:
        raise UnknownApproval
    told = {"task_id": task_id, "status": task.state.value}
    answer = json_object({"approval": _whole(state, caller, approval_id), "task": told})
    return await large_answer(request, state.quotas.places(caller), answer)


def answerer(state: ServerState, caller: Caller) -> Answerer:
    """Return who a caller is as an approver."""
    return Answerer(caller.role, caller.id, participant=state.is_participant(caller))


def desk_of(state: ServerState, token: str = "") -> ApprovalDesk:
    """Return the approvals of the swarm that is served; ``token`` is that of who answers."""

    async def decide(found: StoredCall, answer: Answer, by: Answerer) -> None:
        owner = Caller(found.owner.role, found.owner.id)
        if state.pool.served.needs_token and not by.owner:
            raise ProtocolError(
                "the swarm calls its model with the token of the task's owner, who must answer"
            )
        async with state.pool.lease(owner, token if by.owner else "") as swarm:
            await swarm.runtime.decide(found.task_id, found.row.approval_id, answer, by)
        if not by.owner:
            told = (by, answer.type, found.row.approval_id, found.task_id, owner.role, owner.id)
            _log.info("%s answers '%s' to approval %s of task '%s' of %s '%s'", *told)
        state.learning.wake()

    return ApprovalDesk(state.store, state.template.name, decide)


async def end_in_time_of(state: ServerState) -> None:
    """End what nobody answers in time, whoever's task it is."""

    async def act(found: StoredCall) -> None:
        if state.pool.served.needs_token:
            return  # nobody's model could be asked; it ends when its owner comes
        async with state.pool.lease(Caller(found.owner.role, found.owner.id)) as swarm:
            await swarm.runtime.end_approval(found)

    deadlines = Deadlines(
        store=state.store, act=act, swarm=lambda: str(state.template.name), clock=state.clock
    )
    await deadlines.keep()


# --- the webhook ----------------------------------------------------------------------------------

webhook = MAILRouter("webhook")


@webhook.get("/webhook", dependencies=[Depends(ADMIN)], responses=errors(400))
async def read_webhook(
    state: State,
    after: Annotated[
        int,
        Query(ge=0, lt=2**63, description="Only messages with a greater number: `next_after`."),
    ] = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE, description="The size of the page.")] = 100,
) -> GetWebhookResponse:
    """List the messages that the webhook has not taken, oldest first.

    `waiting` messages are sent until they are taken; `dead` ones were given up.
    """
    swarm = str(state.template.name)
    found = await state.store.list_webhooks(swarm, after, limit + 1)
    shown, last = page_of(found, limit, lambda row: row.id)
    url = state.config.webhook.url
    return {
        "url": url and url.partition("?")[0],
        "events": [*state.config.webhook.events],
        "messages": [webhook_message(row) for row in shown],
        "next_after": last,
    }


@webhook.post("/webhook/{number}/retry", responses=errors(404))
@answered_once()
async def retry_webhook(
    request: Request,
    state: State,
    caller: Administrator,
    number: MessageNumber,
    key: IdempotencyKey = None,
) -> PostWebhookRetryResponse:
    """Send a message to the webhook now, also one that was given up."""
    await state.webhook.retry(number)
    _log.info("%s '%s' has message %d to the webhook sent again", caller.role, caller.id, number)
    return {"status": "waiting", "id": number}


@webhook.delete("/webhook/{number}", status_code=204, responses=errors(400, 404))
async def discard_webhook(state: State, caller: Administrator, number: MessageNumber) -> Response:
    """Remove a message to the webhook, whatever its state."""
    await state.webhook.discard(number)
    _log.info("%s '%s' has discarded message %d to the webhook", caller.role, caller.id, number)
    return Response(status_code=204)
