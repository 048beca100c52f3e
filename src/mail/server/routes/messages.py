"""``POST /message``: run a task and answer with its end, or with the stream of its events."""

from collections import deque
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)
from pydantic.config import JsonDict
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from mail.auth.callers import Caller
from mail.core.large import LARGE, json_line
from mail.core.runtime.settings import UNSET
from mail.core.schema import MAX_ID, TaskId
from mail.core.tasks import TaskState
from mail.db.records import IdempotencyRow, Owner
from mail.errors import BudgetExceeded, ShuttingDown, TaskFailed
from mail.logcontext import note
from mail.net.sse import event_source
from mail.net.types import UNADDRESSABLE, PostMessageAccepted, PostMessageResponse
from mail.server.answers import (
    CLIENT_GONE,
    json_list,
    json_object,
    large_answer,
    streamed,
    while_connected,
)
from mail.server.bodies import RequestBody, one_of, whole
from mail.server.deps import After, BearerToken, IdempotencyKey, LastEventId, Person, Prefer, State
from mail.server.errors import mail_error_response
from mail.server.idempotency import replayed
from mail.server.openapi import EVENT_STREAM, answer_headers, errors
from mail.server.routing import MAILRouter
from mail.server.state import ServerState, owner_of
from mail.services.event_log import PAGE_BYTES, PAGE_EVENTS

if TYPE_CHECKING:
    from mail.api import MAILSwarm
    from mail.core.runtime import FollowedRun, Run, RunEnd

MAX_TIMEOUT_SECONDS: Final = 3600.0
MAX_SUBJECT: Final = 1024
SUBJECT: Final = "New Message"
MSG_TYPES: Final = ("request", "response", "broadcast", "interrupt")
_NO: Final[JsonDict] = {"default": False}
RESUME_FROM: Final = ("user_response", "breakpoint_tool_call")

NOT_BLANK: Final = r"[^\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
"""The result of `str.strip`, spelt out: engines differ in what their ``\\s`` matches."""

router = MAILRouter("messages")


class MessageOptions(RequestBody):
    """Options of a run. Here an unknown name is always an error."""

    model_config = ConfigDict(extra="forbid")

    max_steps: Annotated[
        Annotated[int, Field(ge=1), BeforeValidator(whole)] | None,
        Field(
            description="The most messages that this run may process. It can lower the server's "
            "limit, not raise it."
        ),
    ] = None
    breakpoint_tool_call_result: Annotated[
        Any,
        Field(
            description="Results of breakpoint calls: a string, `{call_id, content}` or a list of "
            "these."
        ),
    ] = None
    breakpoint_tool_caller: Annotated[
        str | None, Field(description="Accepted from older clients and ignored.")
    ] = None
    timeout: Annotated[
        Annotated[float, Field(gt=0, le=MAX_TIMEOUT_SECONDS)] | None,
        Field(
            description="Seconds to wait for the answer. The task continues after that.",
            json_schema_extra={"default": MAX_TIMEOUT_SECONDS},
        ),
    ] = None


def _message_rules(schema: dict[str, Any]) -> None:
    """Say in JSON Schema what `MessageIn` demands across its fields."""

    def text_in(name: str) -> dict[str, Any]:
        return {name: {"type": "string", "pattern": NOT_BLANK}}

    fresh = {"resume_from": {"type": "null"}}
    resumed = {"resume_from": {"const": "user_response"}, "task_id": {"type": "string"}}
    no_body = {"body": {"enum": ["", None]}}
    answers = {
        "type": "object",
        "properties": {"breakpoint_tool_call_result": {"not": {"type": "null"}}},
        "required": ["breakpoint_tool_call_result"],
    }
    answering = {
        "resume_from": {"const": "breakpoint_tool_call"},
        "task_id": {"type": "string"},
        "kwargs": answers,
    }
    again = ["resume_from", "task_id"]
    old = text_in("message") | no_body
    schema["examples"] = [{"body": "What is 17 * 23?"}]
    schema["anyOf"] = [
        {"properties": text_in("body") | fresh, "required": ["body"]},
        {"properties": text_in("body") | resumed, "required": ["body", *again]},
        {"properties": answering, "required": ["kwargs", *again]},
        {"properties": old | fresh, "required": ["message"]},
        {"properties": old | resumed, "required": ["message", *again]},
    ]


def _addressable(value: str) -> str:
    if UNADDRESSABLE.search(value):
        raise ValueError(
            "must not end in '/events', '/set-aside' or '/set-aside/…', nor have '.' or '..' "
            "between slashes, because its path would be of something else; others are fine, "
            "such as 'report-7' or 'a/b'"
        )
    return value


ADDRESSABLE: Final = (
    "It must not end in `/events`, `/set-aside` or `/set-aside/` and one more part, nor have "
    "`.` or `..` as a part between slashes."
)
NewTaskId = Annotated[TaskId, AfterValidator(_addressable)]
"""The id of a task as a caller may choose it."""


class MessageIn(RequestBody):
    """A message to the swarm.

    A null counts as absent. A field that is not listed is ignored, unless its name is close to one
    that is. There must be a text that is not blank, or the results of breakpoint calls; and with
    `resume_from` there must be a `task_id`.
    """

    model_config = ConfigDict(json_schema_extra=_message_rules)

    body: Annotated[str | None, Field(description="The text of the message.")] = None
    message: Annotated[
        str | None,
        Field(
            description="An older name of `body`, read when that is empty.",
            json_schema_extra={"deprecated": True},
        ),
    ] = None
    subject: Annotated[
        Annotated[str, Field(max_length=MAX_SUBJECT)] | None,
        Field(description="The subject line.", json_schema_extra={"default": SUBJECT}),
    ] = None
    msg_type: Annotated[
        str | None,
        Field(
            description="The kind of message. An empty text means the default.",
            json_schema_extra={"enum": [*MSG_TYPES, "", None], "default": MSG_TYPES[0]},
        ),
    ] = None
    entrypoint: Annotated[
        Annotated[str, Field(max_length=MAX_ID)] | None,
        Field(
            description="The agent that gets the message: one with `enable_entrypoint`. The "
            "swarm's own entrypoint by default and when empty."
        ),
    ] = None
    show_events: Annotated[
        bool | None,
        Field(description="Include the events of the task in the answer.", json_schema_extra=_NO),
    ] = None
    stream: Annotated[
        bool | None, Field(description="Answer with a stream of events.", json_schema_extra=_NO)
    ] = None
    stream_tokens: Annotated[
        bool | None,
        Field(
            description="In the stream, include the chunks of the models' replies.",
            json_schema_extra=_NO,
        ),
    ] = None
    task_id: Annotated[
        NewTaskId | None,
        Field(
            description="The id for the new task, or of the task to continue. A new UUID by "
            f"default. {ADDRESSABLE}"
        ),
    ] = None
    resume_from: Annotated[
        str | None,
        Field(
            description="How to continue a task: with another message, or with the results of its "
            "open breakpoint calls.",
            json_schema_extra={"enum": [*RESUME_FROM, None]},
        ),
    ] = None
    kwargs_: Annotated[
        MessageOptions | None, Field(alias="kwargs", description="Options of the run.")
    ] = None

    @field_validator("msg_type", mode="after")
    @classmethod
    def _known_type(cls, value: str | None) -> str | None:
        return one_of(value, MSG_TYPES, "invalid message type") if value else None

    @field_validator("resume_from", mode="after")
    @classmethod
    def _known_resume(cls, value: str | None) -> str | None:
        return value if value is None else one_of(value, RESUME_FROM, "unknown value")

    @model_validator(mode="after")
    def _complete(self) -> "MessageIn":
        if self.resume_from and self.task_id is None:
            raise ValueError("task_id is required with resume_from")
        if self.resume_from == "breakpoint_tool_call":
            if self.options.breakpoint_tool_call_result is None:
                raise ValueError("kwargs.breakpoint_tool_call_result is required")
        elif not self.text.strip():
            raise ValueError("no message provided: body must not be empty")
        return self

    @property
    def text(self) -> str:
        """The message's body, under whichever name it came."""
        return self.body or self.message or ""

    @property
    def options(self) -> MessageOptions:
        """The options, or the defaults."""
        return self.kwargs_ or _NO_OPTIONS


_NO_OPTIONS: Final = MessageOptions()


RESPOND_ASYNC: Final = "respond-async"
_ACCEPTED: Final[dict[str, Any]] = {
    "model": PostMessageAccepted,
    "description": "With `Prefer: respond-async`: the message is stored, and the run goes on.",
    "headers": {
        **answer_headers(repeated=True),
        "Location": {
            "required": True,
            "description": "The path of the task.",
            "schema": {"type": "string"},
        },
        "Preference-Applied": {
            "required": True,
            "description": "The preference that was followed.",
            "schema": {"type": "string", "const": RESPOND_ASYNC},
        },
    },
}


@router.post(
    "/message",
    response_model=PostMessageResponse,
    responses={**EVENT_STREAM, 202: _ACCEPTED, **errors(402, 404, 410, 502, 504, 507)},
)
async def message(  # noqa: PLR0913 - what FastAPI resolves for it
    request: Request,
    state: State,
    caller: Person,
    token: BearerToken,
    body: MessageIn,
    key: IdempotencyKey = None,
    prefer: Prefer = None,
    last_event_id: LastEventId = None,
    after: After = None,
) -> Response:
    """Post a message, and get the answer or a stream of events.

    Begins a task, continues one (`task_id`), joins one that is running, or answers the open
    breakpoint calls of one that is paused (`resume_from`). The answer comes when the run ends. With
    `stream` it is the events instead, from that of the message to the `task_complete` or
    `task_error` of its run; the first brings `retry`. With `Prefer: respond-async` the answer is
    202 as soon as the message is stored. Closing the connection does not stop the task. After 402,
    502 and 504 the task exists, under `task_id` of the error.
    """
    state.intake.check_message(body.text, "body")
    if (results := body.options.breakpoint_tool_call_result) is not None:
        state.intake.check_message(results, "kwargs.breakpoint_tool_call_result")
    async with AsyncExitStack() as stack:
        if body.stream:
            stack.enter_context(state.quotas.stream(caller))
        # Before anything is looked up: from here on the caller's swarm stays the same one.
        swarm = await state.pool.borrow(stack, caller, token)
        keyed = None if key is None else await state.keyed(request, caller, key)
        known = last_event_id if last_event_id is not None else after
        posting = Posting(request, state, caller, token, body, known or 0, swarm, stack)
        if keyed is None:
            run: Run | FollowedRun = await posting.begin()
        else:
            run = await keyed.once(posting.begin, posting.follow)
        if prefer is not None and _wants_no_answer(prefer) and not body.stream:
            response = _accepted(run)
        else:
            response = await posting.answer(run)
        return replayed(response) if run.repeats else response


def _wants_no_answer(prefer: str) -> bool:
    wanted = (part.partition(";")[0].strip().lower() for part in prefer.split(","))
    return RESPOND_ASYNC in wanted


def _accepted(run: "Run | FollowedRun") -> Response:
    """Answer that a run has begun, and leave it to itself."""
    run.leave()
    place = f"/tasks/{quote(run.task_id, safe='')}"
    headers = {"Location": place, "Preference-Applied": RESPOND_ASYNC}
    return JSONResponse({"task_id": run.task_id, "status": "running"}, 202, headers)


@dataclass(frozen=True, slots=True)
class Posting:
    """A message on its way to its answer; what that takes is let go with ``held``.

    Attributes:
        after: A stream that is repeated goes on after this event.
        entrypoints: The agents that get a broadcast, if it is not just the one in the body.
        pings: Whether the heartbeats of a stream are events.
    """

    request: Request
    state: ServerState
    caller: Caller
    token: str
    body: MessageIn
    after: int
    swarm: "MAILSwarm"
    held: AsyncExitStack
    entrypoints: tuple[str, ...] = ()
    pings: bool = True

    async def begin(self, once: IdempotencyRow | None = None) -> "Run":
        """Have the message accepted."""
        body = self.body
        task_id = body.task_id or self.state.clock.new_id()
        note(task_id=task_id)
        state = self.state
        owner = Owner(self.swarm.name, self.caller.role, self.caller.id)
        here = self.swarm.runtime.open_tasks
        await state.shares.admit(owner, resumes=body.resume_from == "breakpoint_tool_call")
        state.quotas.message(self.caller, task_id, here, state.shares.elsewhere(owner))
        options = body.options
        asked = options.max_steps
        several = {"entrypoints": self.entrypoints} if self.entrypoints else {}
        run: Run = await self.swarm.open_run(
            body.text,
            body.subject or SUBJECT,
            body.msg_type or MSG_TYPES[0],
            entrypoint=(body.entrypoint or "").strip() or None,
            task_id=task_id,
            resume_from=body.resume_from,
            max_steps=UNSET if asked is None else min(asked, self.state.max_steps(self.caller)),
            breakpoint_tool_call_result=options.breakpoint_tool_call_result,
            stream_tokens=bool(body.stream_tokens),
            streamed=bool(body.stream),
            once=once,
            **several,
        )
        return run

    async def follow(self, known: IdempotencyRow) -> "FollowedRun":
        """Find the run that an equal request began."""
        note(task_id=known.task_id)
        after = self.after if self.body.stream else 0
        followed: FollowedRun = await self.swarm.follow_run(
            known, after=after, stream_tokens=bool(self.body.stream_tokens)
        )
        return followed

    async def answer(self, run: "Run | FollowedRun") -> Response:
        """Wait for the run's end as long as the client does, or stream its events."""
        if self.body.stream:
            recheck = partial(self.state.auth.authenticate, self.token)
            events = streamed(run.events(), self.held.pop_all(), recheck)
            return event_source(events, pings=self.pings)
        try:
            timeout = self.body.options.timeout or MAX_TIMEOUT_SECONDS
            end = await while_connected(self.request, run.end(timeout))
        except ShuttingDown:
            raise ShuttingDown(run.task_id) from None
        if end is None:
            return Response(status_code=CLIENT_GONE)
        if end.status is TaskState.FAILED:
            failure = BudgetExceeded if end.over_budget else TaskFailed
            return mail_error_response(failure(end.body, end.task_id))
        return await self.told(end)

    async def told(self, end: "RunEnd") -> Response:
        """Answer with the end of a run that has not failed."""
        shown = self.body.show_events
        answer = {
            "response": end.body,
            "events": json_list(self._events(end)) if shown else None,
            "task_id": end.task_id,
            "subject": end.subject,
            "status": str(end.status),
            "breakpoints": end.breakpoints,
            "ended_by": end.ended_by,
        }
        if not (shown or answer["breakpoints"]) and len(end.body) < LARGE:
            return Response(json_line(answer), media_type="application/json")
        places = self.state.quotas.places(self.caller)
        return await large_answer(self.request, places, json_object(answer))

    async def _events(self, end: "RunEnd") -> AsyncGenerator[str, None]:
        """Yield the events up to the run's end, whatever the task has done since."""
        store, owner, after = self.state.store, owner_of(self.state, self.caller), 0
        while after < end.seq:
            most = min(end.seq - after, PAGE_EVENTS)
            page = deque(await store.events(owner, end.task_id, after, most, PAGE_BYTES))
            if not page:  # the task was deleted meanwhile
                break
            after = page[-1].seq
            while page:
                yield await page.popleft().record_text(as_text=False)
