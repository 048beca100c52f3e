"""Mail between swarms: ``/interswarm/…`` for peers and for people, ``/outbox`` for operators."""

import asyncio
import json
import logging
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import Depends, Path, Query
from fastapi.exceptions import RequestValidationError
from pydantic import BeforeValidator, Field, field_validator, model_validator
from pydantic_core import from_json
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from mail.auth.builtin import BuiltinAuth
from mail.auth.callers import Caller
from mail.core.addresses import (
    create_address,
    create_agent_address,
    format_contributor,
    parse_agent_address,
)
from mail.core.compose import Composer
from mail.core.large import in_turn
from mail.core.schema import MAX_ID, parse_interswarm_message
from mail.core.tasks import TaskState
from mail.core.wire import MAILInterswarmMessage, MAILMessage
from mail.errors import (
    BudgetExceeded,
    MAILError,
    TaskFailed,
    TaskTimeout,
    Unauthenticated,
)
from mail.logcontext import current, note
from mail.net.sse import event_stream
from mail.net.types import (
    GetOutboxResponse,
    PostInterswarmBackResponse,
    PostInterswarmForwardResponse,
    PostInterswarmMessageResponse,
    PostOutboxRetryResponse,
    outbox_mail,
)
from mail.redaction import beginning
from mail.server.answers import CLIENT_GONE, json_answer, relayed, streamed, while_connected
from mail.server.bodies import RequestBody, one_of, refusal
from mail.server.deps import (
    ADMIN,
    Administrator,
    After,
    BearerToken,
    IdempotencyKey,
    LastEventId,
    Peer,
    Person,
    State,
    page_of,
    peer_name,
)
from mail.server.errors import as_refusal, status_of
from mail.server.exchange import exchange_of
from mail.server.idempotency import answered_once, replayed
from mail.server.intake import Intake
from mail.server.openapi import EVENT_STREAM, errors
from mail.server.routes.messages import (
    ADDRESSABLE,
    MAX_SUBJECT,
    MAX_TIMEOUT_SECONDS,
    NOT_BLANK,
    MessageIn,
    NewTaskId,
    Posting,
)
from mail.server.routes.tasks import get_task_events
from mail.server.routing import Handler, MAILRoute, MAILRouter
from mail.server.state import ServerState, owner_of
from mail.services.peer_mail import check_hints

if TYPE_CHECKING:
    from mail.core.runtime import FollowedRun, Run

_log = logging.getLogger("mail.server")
_audit = logging.getLogger("mail.server.audit")

_MAX_PAGE: Final = 1000
_REFUSED: Final = range(400, 500)


class AuditedRoute(MAILRoute):
    """A route whose refusals are in the log: who wanted what, and why not."""

    def guarded(self, handler: Handler) -> Handler:
        """Log a refusal, and pass it on."""

        async def audited(request: Request) -> Response:
            try:
                return await handler(request)
            except RequestValidationError as error:
                _tell(request, as_refusal(error))
                raise
            except MAILError as error:
                _tell(request, error)
                raise

        return audited


def _tell(request: Request, error: MAILError) -> None:
    status = status_of(error)
    if status in _REFUSED:
        known = current()
        who = f"{known.caller_role} '{known.caller_id}'" if known.caller_role else "a stranger"
        reason = beginning(" ".join(str(error).split()))
        path = beginning(request.scope["path"])
        _audit.warning("refused %s %s of %s: %d %s", request.method, path, who, status, reason)


router = MAILRouter("interswarm", route_class=AuditedRoute)


class PeerMailIn(RequestBody):
    """Mail of another swarm."""

    message: Annotated[
        dict[str, Any],
        BeforeValidator(lambda value: value, json_schema_input_type=MAILInterswarmMessage),
        Field(
            description="The message in its wrapper. Unknown fields are ignored, and `auth_token` "
            "and `metadata` may be missing or null. `payload` has the shape that `msg_type` names."
        ),
    ]


@router.post(
    "/interswarm/forward",
    response_model=PostInterswarmForwardResponse,
    responses=errors(404, 507),
)
@answered_once()
async def receive_interswarm_forward(
    request: Request,
    state: State,
    caller: Peer,
    token: BearerToken,
    body: PeerMailIn,
    key: IdempotencyKey = None,
) -> JSONResponse:
    """Take mail of another swarm that may open a task here.

    The caller is the swarm's server: its token has the role `agent`, and its id is that of a
    registered swarm. The answer is a receipt: the mail is stored, and agents read it later. The
    same `message_id` again gets the first receipt, and nothing is done twice.
    """
    return await _taken(request, state, token, body, may_open=True)


@router.post(
    "/interswarm/back", response_model=PostInterswarmBackResponse, responses=errors(404, 507)
)
@answered_once()
async def receive_interswarm_back(
    request: Request,
    state: State,
    caller: Peer,
    token: BearerToken,
    body: PeerMailIn,
    key: IdempotencyKey = None,
) -> JSONResponse:
    """Take mail of another swarm for a task that both take part in.

    As `POST /interswarm/forward`, but a task that the peer takes no part in is 404.
    """
    return await _taken(request, state, token, body, may_open=False)


async def _taken(
    request: Request,
    state: ServerState,
    token: str,
    body: PeerMailIn,
    *,
    may_open: bool,
) -> JSONResponse:
    size = exchange_of(request).declared
    message = await in_turn(size, partial(_parsed, state.intake, body.message))
    receipt = await state.federation.take(message, peer_name(request), token, may_open=may_open)
    return JSONResponse(json.loads(receipt))


def _parsed(intake: Intake, message: dict[str, Any]) -> MAILInterswarmMessage:
    parsed = parse_interswarm_message(message)
    intake.check_message(parsed["payload"]["body"], "message.payload.body")
    intake.check_message(parsed.get("metadata"), "message.metadata")
    return parsed


MAX_TARGETS: Final = 64
_MSG_TYPES: Final = ("request", "broadcast")
_SUBJECT: Final = "Interswarm Message"


def _few(value: object) -> object:
    """Count the entries of an object before each is looked at."""
    if isinstance(value, dict) and len(value) > MAX_TARGETS:
        raise ValueError(f"must have at most {MAX_TARGETS} entries")
    return value


class InterswarmMessageIn(RequestBody):
    """A message to agents of this swarm or of others."""

    body: Annotated[
        str,
        Field(description="The text of the message.", json_schema_extra={"pattern": NOT_BLANK}),
    ]
    targets: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=2 * MAX_ID + 1)]],
        Field(
            fail_fast=True,
            min_length=1,
            max_length=MAX_TARGETS,
            description="The agents that get it, as `agent@swarm`; exactly one for a request.",
            examples=[["clerk@harbour"]],
        ),
    ]
    user_token: Annotated[
        Annotated[str, Field(max_length=4096)] | None,
        Field(
            description="The caller's token for the other swarm, which is sent there and nowhere "
            "else. One that this server has issued is refused. Not needed for agents of this swarm."
        ),
    ] = None
    user_tokens: Annotated[
        dict[Annotated[str, Field(max_length=MAX_ID)], Annotated[str, Field(max_length=4096)]]
        | None,
        Field(
            max_length=MAX_TARGETS,
            description="For targets in several other swarms: swarm to the token for it.",
        ),
        BeforeValidator(_few),
    ] = None
    subject: Annotated[
        Annotated[str, Field(max_length=MAX_SUBJECT)] | None,
        Field(description="The subject line.", json_schema_extra={"default": _SUBJECT}),
    ] = None
    msg_type: Annotated[
        str | None,
        Field(
            description="The kind of message. An empty text means the default.",
            json_schema_extra={"enum": [*_MSG_TYPES, "", None], "default": _MSG_TYPES[0]},
        ),
    ] = None
    task_id: Annotated[
        NewTaskId | None,
        Field(
            description="The task to continue, or the id of a new one. A new UUID by default. "
            + ADDRESSABLE
        ),
    ] = None
    routing_info: Annotated[
        dict[str, Any] | None,
        Field(description="Hints for the other swarm, which a message carries along."),
    ] = None
    stream: Annotated[
        bool | None,
        Field(description="Answer with a stream of events.", json_schema_extra={"default": False}),
    ] = None
    ignore_stream_pings: Annotated[
        bool | None,
        Field(
            description="Leave the heartbeats out of the stream.",
            json_schema_extra={"default": False},
        ),
    ] = None

    @field_validator("msg_type", mode="after")
    @classmethod
    def _known_type(cls, value: str | None) -> str | None:
        return one_of(value, _MSG_TYPES, "invalid message type") if value else None

    @field_validator("body", mode="after")
    @classmethod
    def _said(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("no message provided: body must not be empty")
        return value

    @model_validator(mode="after")
    def _one_target(self) -> "InterswarmMessageIn":
        if self.kind == "request" and len(self.targets) != 1:
            raise ValueError("'request' messages require exactly one target")
        return self

    @property
    def kind(self) -> str:
        """The kind of message."""
        return self.msg_type or _MSG_TYPES[0]

    def by_swarm(self, local: str) -> dict[str, list[str]]:
        """Return the names of the target agents by swarm.

        Raises:
            ProtocolError: a target has no name.
        """
        found: dict[str, list[str]] = {}
        for target in self.targets:
            name, swarm = parse_agent_address(target)
            if not name or swarm == "" or len(name) > MAX_ID:
                problem = f"must be written agent@swarm, with at most {MAX_ID} characters each"
                raise refusal([{"field": "targets", "problem": problem}])
            found.setdefault(swarm or local, []).append(name)
        return found

    def token_for(self, swarm: str, others: int) -> str:
        """Return the caller's token for another swarm; ``others`` is how many there are.

        Raises:
            Unauthenticated: there is none.
        """
        token = (self.user_tokens or {}).get(swarm) or (self.user_token if others == 1 else "")
        if not token:
            field = "user_token" if others == 1 else "user_tokens"
            raise Unauthenticated(
                f"user token is required: {field} must hold your token for the swarm "
                f"'{swarm[:MAX_ID]}'"
            )
        return token


@router.post(
    "/interswarm/message",
    response_model=PostInterswarmMessageResponse,
    responses={**EVENT_STREAM, **errors(402, 404, 410, 502, 504, 507)},
)
async def post_interswarm_message(  # noqa: PLR0913 - what FastAPI resolves for it
    request: Request,
    state: State,
    caller: Person,
    token: BearerToken,
    body: InterswarmMessageIn,
    key: IdempotencyKey = None,
    last_event_id: LastEventId = None,
    after: After = None,
) -> Response:
    """Post a message to agents of other swarms, or of this one, and get the answer.

    The server of the other swarm answers for its agents, to the caller whose `user_token` it gets.
    Agents of this swarm are reached as by `POST /message`. A broadcast goes to every swarm among
    the targets; the answer comes when all have answered. With `stream`, which is for one swarm, it
    is the events of the run instead, as they come from there. With `stream`, `task_id` and
    `Last-Event-ID` nothing is posted: a stream that was cut goes on after that event.
    `Idempotency-Key` holds for agents of this swarm.
    """
    state.federation.check_enabled()
    state.intake.check_message(body.body, "body")
    check_hints(body.routing_info, "routing_info")
    swarms = body.by_swarm(state.federation.swarm)
    if body.stream and len(swarms) > 1:
        problem = "a stream comes from one swarm; the targets are in several"
        raise refusal([{"field": "stream", "problem": problem}])
    async with AsyncExitStack() as stack:
        if body.stream:
            stack.enter_context(state.quotas.stream(caller))
        known = last_event_id if last_event_id is not None else after
        sending = _Sending(request, state, caller, token, body, key, known, stack)
        if body.stream:
            return await sending.streamed(*swarms.popitem())
        return await sending.answered(swarms)


@dataclass(frozen=True, slots=True)
class _Sending:
    """A person's message on its way to agents, wherever they are."""

    request: Request
    state: ServerState
    caller: Caller
    token: str
    body: InterswarmMessageIn
    key: str | None
    after: int | None
    held: AsyncExitStack

    async def answered(self, swarms: dict[str, list[str]]) -> Response:
        """Send it to each swarm, and answer when all have answered."""
        others = [name for name in swarms if name != self.local]
        tokens = {swarm: await self._token_for(swarm, len(others)) for swarm in others}
        task_id = self._task_id()
        asked = [
            self._delivered(names, task_id)
            if swarm == self.local
            else self.state.federation.ask(self._wrapped(swarm, names, task_id, tokens[swarm]))
            for swarm, names in swarms.items()
        ]
        ends = await while_connected(self.request, _all_of(asked, task_id))
        if ends is None:
            return Response(status_code=CLIENT_GONE)
        several = dict(zip(swarms, ends, strict=True)) if len(swarms) > 1 else None
        return await json_answer({"response": ends[0], "events": None, "responses": several})

    async def streamed(self, swarm: str, names: list[str]) -> Response:
        """Send it to one swarm, and answer with the events of its run."""
        task_id = self._task_id()
        resumed = self.after is not None and self.body.task_id is not None
        if swarm == self.local:
            return await self._streamed_here(names, task_id, resumed=resumed)
        federation, token = self.state.federation, await self._token_for(swarm, 1)
        if resumed:
            events = await federation.follow(swarm, task_id, token, self.after or 0)
        else:
            events = await federation.stream(self._wrapped(swarm, names, task_id, token))
        recheck = partial(self.state.auth.authenticate, self.token)
        events = streamed(events, self.held.pop_all(), recheck)
        return event_stream(relayed(events, pings=not self.body.ignore_stream_pings))

    async def _streamed_here(self, names: list[str], task_id: str, *, resumed: bool) -> Response:
        """Answer with the events of a run of this swarm."""
        if resumed and self.key is None:
            return await get_task_events(self.state, self.caller, self.token, task_id, self.after)
        posting, run = await self._begun(names, task_id)
        response = await posting.answer(run)
        return replayed(response) if run.repeats else response

    @property
    def local(self) -> str:
        """The swarm that is served."""
        return self.state.federation.swarm

    def _task_id(self) -> str:
        task_id = self.body.task_id or self.state.clock.new_id()
        note(task_id=task_id)
        return task_id

    async def _token_for(self, swarm: str, others: int) -> str:
        """Return the caller's token for another swarm.

        Raises:
            ProtocolError: there is none, or it was issued by this server, and stays here.
        """
        token = self.body.token_for(swarm, others)
        if not isinstance(self.state.auth, BuiltinAuth):  # others may share an external authority
            return token
        try:
            if token != self.token:
                await self.state.auth.authenticate(token)
        except Unauthenticated:
            return token
        problem = f"is a token of this server; give the one that you have for the swarm '{swarm}'"
        raise refusal([{"field": "user_token", "problem": problem}])

    def _wrapped(
        self, swarm: str, names: list[str], task_id: str, token: str
    ) -> MAILInterswarmMessage:
        """Return the message to another swarm, with the caller's token for it."""
        body = self.body
        hints = {"stream": body.stream, "ignore_stream_pings": body.ignore_stream_pings}
        envelope = Composer(self.local, self.state.clock).message(
            body.kind,  # type: ignore[arg-type]  # its validator has seen to it
            task_id,
            create_address(self.caller.id, self.caller.role),  # type: ignore[arg-type]  # a person
            [create_agent_address(f"{name}@{swarm}") for name in names],
            body.subject or _SUBJECT,
            body.body,
            routing_info={
                **(body.routing_info or {}),
                **{name: value for name, value in hints.items() if value is not None},
            },
        )
        message = envelope._replace(recipient_swarms=(swarm,)).to_wire()
        owner = format_contributor(self.caller.role, self.caller.id, self.local)
        return {
            "message_id": message["id"],
            "source_swarm": self.local,
            "target_swarm": swarm,
            "timestamp": message["timestamp"],
            "payload": message["message"],
            "msg_type": body.kind,  # type: ignore[typeddict-item]  # its validator has seen to it
            "task_owner": owner,
            "task_contributors": [owner],
            "auth_token": token,
            "metadata": {},
        }

    async def _begun(self, names: list[str], task_id: str) -> "tuple[Posting, Run | FollowedRun]":
        """Have the message accepted by agents of this swarm, once for its key."""
        body, state = self.body, self.state
        swarm = await state.pool.borrow(self.held, self.caller, self.token)
        posting = Posting(
            self.request,
            state,
            self.caller,
            self.token,
            MessageIn(
                body=body.body,
                subject=body.subject or _SUBJECT,
                msg_type=body.kind,
                entrypoint=names[0],
                task_id=task_id,
                stream=body.stream,
            ),
            self.after or 0,
            swarm,
            self.held,
            entrypoints=tuple(names) if body.kind == "broadcast" else (),
            pings=not body.ignore_stream_pings,
        )
        if self.key is None:
            return posting, await posting.begin()
        keyed = await state.keyed(self.request, self.caller, self.key)
        assert keyed is not None  # noqa: S101 - there is a key
        return posting, await keyed.once(posting.begin, posting.follow)

    async def _delivered(self, names: list[str], task_id: str) -> MAILMessage | None:
        """Send it to agents of this swarm, and return the final message of the run."""
        _, run = await self._begun(names, task_id)
        end = await run.end(MAX_TIMEOUT_SECONDS)
        if end.status is TaskState.FAILED:
            failure = BudgetExceeded if end.over_budget else TaskFailed
            raise failure(end.body, end.task_id)
        store, owner = self.state.store, owner_of(self.state, self.caller)
        for event in await store.events(owner, end.task_id, after=max(0, end.seq - 2), limit=1):
            message: MAILMessage | None = event.extra.get("full_message")
            if event.seq < end.seq and message and message["msg_type"] == "broadcast_complete":
                return message
        text = await store.response(owner, end.task_id)
        return None if text is None else from_json(text)


async def _all_of(
    asked: list[Coroutine[Any, Any, MAILMessage | None]], task_id: str
) -> list[MAILMessage | None]:
    """Wait until all have answered.

    Raises:
        TaskTimeout: they have not, after as long as anybody waits.
        MAILError: one of them has failed; the others are given up.
    """
    try:
        async with asyncio.timeout(MAX_TIMEOUT_SECONDS), asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in asked]
    except TimeoutError:
        raise TaskTimeout("The task timed out.", task_id) from None
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


outbox = MAILRouter("outbox")

_Number = Annotated[int, Path(ge=1, lt=2**63, description="The number of the mail.")]


@outbox.get("/outbox", dependencies=[Depends(ADMIN)], responses=errors(400))
async def read_outbox(
    state: State,
    peer: Annotated[
        str | None, Query(max_length=MAX_ID, description="Only mail for this swarm.")
    ] = None,
    after: Annotated[
        int,
        Query(ge=0, lt=2**63, description="Only mail with a greater number: `next_after`."),
    ] = 0,
    limit: Annotated[int, Query(ge=1, le=_MAX_PAGE, description="The size of the page.")] = 100,
) -> GetOutboxResponse:
    """List the mail for other swarms that is not done with, oldest first, without its content.

    `waiting` mail has not been delivered yet; `delivered` are requests that wait for their answer;
    `dead` mail was given up.
    """
    found = await state.store.list_outbox(
        state.federation.swarm, peer=peer, after=after, limit=limit + 1
    )
    shown, last = page_of(found, limit, lambda each: each[1].id)
    return {"mail": [outbox_mail(owner, row) for owner, row in shown], "next_after": last}


@outbox.post("/outbox/{number}/retry", responses=errors(404, 409))
@answered_once()
async def retry_outbox(
    request: Request,
    state: State,
    caller: Administrator,
    number: _Number,
    key: IdempotencyKey = None,
) -> PostOutboxRetryResponse:
    """Try to deliver mail for another swarm now, also mail that was given up.

    A request of a task that has ended is 409, and so is mail that is more than 7 days old.
    """
    await state.federation.retry(number)
    _log.info("%s '%s' has mail %d delivered again", caller.role, caller.id, number)
    return {"status": "waiting", "id": number}


@outbox.delete("/outbox/{number}", status_code=204, responses=errors(400, 404, 409))
async def discard_outbox(state: State, caller: Administrator, number: _Number) -> Response:
    """Remove mail for another swarm that was given up. Other mail is 409."""
    await state.federation.discard(number)
    _log.info("%s '%s' has discarded mail %d", caller.role, caller.id, number)
    return Response(status_code=204)
