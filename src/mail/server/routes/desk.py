"""The mail desk over HTTP: ``/messages`` and ``/threads``; the rules are `mail.services.desk`'s."""

from typing import Annotated, Any, Final, Literal

from fastapi import Path, Query
from pydantic import ConfigDict, Field, model_validator
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from mail.core.schema import MAX_ID
from mail.db.desk import PARTICIPANT_ROLE, LetterRow, ReceiptRow, ThreadRow, ThreadView
from mail.net.types import (
    DeleteThreadMemberResponse,
    DeskCorrespondent,
    DeskMessage,
    DeskReceipt,
    DeskThread,
    DeskThreadSummary,
    GetDeskMessageResponse,
    GetMessagesResponse,
    GetOverdueResponse,
    GetParticipantsResponse,
    GetSearchResponse,
    GetThreadsResponse,
    GetUnreadResponse,
    PostAckResponse,
    PostMessagesResponse,
    PostThreadMemberResponse,
    PostThreadsResponse,
)
from mail.server.answers import CLIENT_GONE, while_connected
from mail.server.bodies import RequestBody
from mail.server.deps import BearerToken, DeskReader, IdempotencyKey, Participant, State, page_of
from mail.server.idempotency import answered_once
from mail.server.openapi import errors
from mail.server.routes.interswarm import AuditedRoute
from mail.server.routing import MAILRouter
from mail.services.desk import (
    DEFAULT_PAGE,
    MAX_MEMBERS,
    MAX_NOTE,
    MAX_PAGE,
    MAX_QUERY,
    MAX_SUBJECT,
    MAX_TITLE,
    MAX_WAIT_SECONDS,
    Draft,
    FetchedLetter,
    check_claim,
    thread_place,
)

_MAX_LISTED: Final = 1000
_LONGEST_SINCE: Final = 64

router = MAILRouter("desk", route_class=AuditedRoute)

Name = Annotated[str, Field(min_length=1, max_length=MAX_ID)]
PathMessageId = Annotated[str, Path(description="The message.")]
PathThreadId = Annotated[str, Path(description="The thread.")]
RequestId = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[\x21-\x7e]+$")]
OWN_ID: Final = "The caller's own id. It is not needed; any other id is refused with 403."
OwnId = Annotated[Name | None, Query(description=OWN_ID)]
InThread = Annotated[
    Name | None, Query(description="All messages of this thread; the caller is in it.")
]
PageSize = Annotated[
    int,
    Query(
        ge=1,
        le=MAX_PAGE,
        description="The most messages of the page. It also ends at about 1 MiB, but has one "
        "message at least.",
    ),
]
Since = Annotated[
    Annotated[str, Field(max_length=_LONGEST_SINCE)] | None,
    Query(
        description="Only messages after this time: RFC 3339 with a time zone. A `+` must be "
        "written as `%2B`.",
    ),
]
Before = Annotated[
    Annotated[int, Field(ge=0, lt=2**63)] | None,
    Query(description="Only older messages: the `next_before` of the previous page."),
]
PageRequestId = Annotated[
    RequestId | None,
    Query(
        description="The caller's name for this request. A repeat with the same id gets the "
        "same messages again, also when the first answer was lost."
    ),
]


def one_address(*fields: str) -> ConfigDict:
    """Return what says in JSON Schema that exactly one of some fields must be there."""

    def rule(schema: dict[str, Any]) -> None:
        schema["oneOf"] = [
            {"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in fields
        ]

    return ConfigDict(json_schema_extra=rule)


class MessageToSend(RequestBody):
    """A message. Exactly one of `recipient_id`, `thread_id` and `recipient_ids` must be there."""

    model_config = one_address("recipient_id", "thread_id", "recipient_ids")

    content: Annotated[str, Field(min_length=1, description="The text.", examples=["Ready?"])]
    sender_id: Annotated[Name | None, Field(description=OWN_ID)] = None
    recipient_id: Annotated[
        Name | None, Field(description="Who gets it, as a direct message.", examples=["reviewer"])
    ] = None
    thread_id: Annotated[
        Name | None, Field(description="The thread in which it is posted; the caller is in it.")
    ] = None
    recipient_ids: Annotated[
        Annotated[list[Name], Field(fail_fast=True)] | None,
        Field(
            min_length=1,
            max_length=MAX_MEMBERS,
            description="Who gets it, as a broadcast: all of them, or nobody. Names that come "
            "twice and the caller's own are left out.",
        ),
    ] = None
    subject: Annotated[
        Annotated[str, Field(max_length=MAX_SUBJECT)] | None,
        Field(description="The subject line."),
    ] = None
    reply_to: Annotated[
        Name | None, Field(description="The message that it answers; one that the caller sees.")
    ] = None
    file_id: Annotated[
        Name | None,
        Field(
            description="A file that the caller has uploaded, which all recipients can get then."
        ),
    ] = None
    urgent: Annotated[
        bool | None,
        Field(
            description="Whether it wants attention at once.", json_schema_extra={"default": False}
        ),
    ] = None
    wants_ack: Annotated[
        bool | None,
        Field(
            description="Ask the recipients to acknowledge it.",
            json_schema_extra={"default": False},
        ),
    ] = None
    request_id: Annotated[
        RequestId | None,
        Field(
            description="The caller's name for this request. A repeat with the same id and "
            "message gets the first message again, as long as that is stored; another message "
            "with that id is 409. `Idempotency-Key` serves as one, too."
        ),
    ] = None

    @model_validator(mode="after")
    def _to_somebody(self) -> "MessageToSend":
        given = (self.recipient_id, self.thread_id, self.recipient_ids)
        if sum(each is not None for each in given) != 1:
            raise ValueError("give exactly one of recipient_id, thread_id and recipient_ids")
        return self


class AckIn(RequestBody):
    """An acknowledgement; it needs no body."""

    may_be_empty = True

    agent_id: Annotated[Name | None, Field(description=OWN_ID)] = None
    note: Annotated[
        Annotated[str, Field(max_length=MAX_NOTE)] | None,
        Field(description="A word to the sender."),
    ] = None


_NO_NOTE: Final = AckIn()


class ThreadIn(RequestBody):
    """A thread."""

    title: Annotated[
        str, Field(min_length=1, max_length=MAX_TITLE, description="A line.", examples=["Release"])
    ]
    participants: Annotated[
        list[Name],
        Field(
            fail_fast=True,
            max_length=MAX_MEMBERS,
            description="Who is in it; the caller is in any case.",
            examples=[["reviewer"]],
        ),
    ]
    creator_id: Annotated[Name | None, Field(description=OWN_ID)] = None
    initial_message: Annotated[
        Annotated[str, Field(min_length=1)] | None, Field(description="The first message in it.")
    ] = None


class MemberIn(RequestBody):
    """Somebody for a thread."""

    agent_id_to_add: Annotated[Name, Field(description="Who is added.", examples=["tester"])]
    inviting_agent_id: Annotated[Name | None, Field(description=OWN_ID)] = None


# --- messages -----------------------------------------------------------------------------------


@router.post("/messages", responses=errors(404, 507))
@answered_once()
async def send_desk_message(
    request: Request,
    state: State,
    caller: Participant,
    body: MessageToSend,
    key: IdempotencyKey = None,
) -> PostMessagesResponse:
    """Send a message to a participant, to several, or to a thread.

    When the answer comes, the message is stored for all of its recipients. A thread that the caller
    is not in is 404, whether or not there is one; so is a file that it has not uploaded.
    """
    check_claim("sender_id", body.sender_id, caller.id)
    if body.file_id is not None:
        await state.files.own(caller.id, body.file_id)
    draft = Draft(
        body.content,
        body.subject or "",
        body.reply_to or "",
        bool(body.urgent),
        bool(body.wants_ack),
        body.request_id or key or "",
        body.file_id or "",
    )
    if body.recipient_ids is not None:
        sent = await state.desk.broadcast_message(caller.id, draft, body.recipient_ids)
    else:
        desk = state.desk
        sent = await desk.send_message(caller.id, draft, body.recipient_id, body.thread_id)
    return {
        "status": "sent",
        "message_id": sent.letter.letter_id,
        "message": _message(FetchedLetter(sent.letter, read=True)),
    }


@router.get("/messages", responses=errors(400, 404))
async def get_desk_messages(  # noqa: PLR0913 - the documented parameters
    state: State,
    caller: Participant,
    agent_id: OwnId = None,
    thread_id: InThread = None,
    limit: PageSize = DEFAULT_PAGE,
    since: Since = None,
    before: Before = None,
    unread: Annotated[bool, Query(description="Only unread messages.")] = False,
    mark_read: Annotated[
        bool, Query(description="Whether the messages of the page count as read from now on.")
    ] = True,
    request_id: PageRequestId = None,
) -> GetMessagesResponse:
    """Get the caller's messages, newest first, and mark them as read.

    Without `thread_id` these are the messages to the caller: direct ones, broadcasts, posts in its
    threads and notices. With it they are all messages of that thread, the caller's own too.
    """
    check_claim("agent_id", agent_id, caller.id)
    page = await state.desk.get_messages(
        caller.id,
        thread_id=thread_id,
        limit=limit,
        since=since,
        before=before,
        unread=unread,
        mark_read=mark_read,
        request_id=request_id,
    )
    return {
        "messages": [_message(each) for each in page.letters],
        "unread": page.unread,
        "next_before": page.next_before,
    }


@router.get("/messages/unread", response_model=GetUnreadResponse, responses=errors(400))
async def check_new_messages(
    request: Request,
    state: State,
    caller: Participant,
    token: BearerToken,
    agent_id: OwnId = None,
    wait: Annotated[
        float,
        Query(
            ge=0,
            le=MAX_WAIT_SECONDS,
            allow_inf_nan=False,
            description="Seconds to wait for a message if there is none. A request that waits "
            "counts as an open stream.",
        ),
    ] = 0.0,
    after: Annotated[
        Annotated[int, Field(ge=0, lt=2**63)] | None,
        Query(
            description="Wait for a message that came after this place, read or not: the `latest` "
            "of the answer before."
        ),
    ] = None,
) -> Response:
    """Count the caller's unread messages, or wait for one. Nothing is marked as read."""
    check_claim("agent_id", agent_id, caller.id)
    desk, found = state.desk, None
    if wait:
        with state.quotas.stream(caller):
            found = await while_connected(request, desk.wait_for_mail(caller.id, wait, after))
        if found is None:
            return Response(status_code=CLIENT_GONE)
        await state.auth.authenticate(token)  # it may have been revoked meanwhile
    latest = None
    if after is not None:
        latest, found = await desk.latest(caller.id), None
    count = await desk.check_new_messages(caller.id) if found is None else found
    answer: GetUnreadResponse = {"unread": count, "latest": latest}
    return JSONResponse(answer)


@router.get("/messages/overdue", responses=errors(400))
async def get_overdue_messages(
    state: State,
    caller: Participant,
    older_than: Annotated[
        float,
        Query(
            ge=0,
            le=10**9,
            allow_inf_nan=False,
            description="Only messages that were sent so many seconds ago, or earlier.",
        ),
    ] = 0.0,
) -> GetOverdueResponse:
    """List what the caller sent with `wants_ack` and is neither acknowledged nor answered yet."""
    found = await state.desk.overdue(caller.id, older_than)
    return {
        "overdue": [
            {"message": _message(FetchedLetter(letter, read=True)), "receipt": _receipt(receipt)}
            for letter, receipt in found
        ]
    }


@router.get("/messages/search", responses=errors(400, 404))
async def search_messages(
    state: State,
    caller: Participant,
    q: Annotated[
        str,
        Query(
            max_length=MAX_QUERY,
            description='Words that all must be there, `"phrases"`, `-without`, `beginnings*`. '
            "Everything else is text.",
            examples=['release "open question" -draft'],
        ),
    ],
    agent_id: OwnId = None,
    thread_id: Annotated[
        Name | None, Query(description="Only messages of this thread; the caller is in it.")
    ] = None,
    limit: PageSize = DEFAULT_PAGE,
    before: Before = None,
) -> GetSearchResponse:
    """Look for words in subjects and texts of all messages that the caller may see, newest first.

    They are those to the caller, the caller's own, and all of the caller's threads. Nothing is
    marked as read.
    """
    check_claim("agent_id", agent_id, caller.id)
    page = await state.desk.search_messages(
        caller.id, q, thread_id=thread_id, limit=limit, before=before
    )
    return {
        "messages": [
            {
                "id": letter.letter_id,
                "sender_id": letter.sender or None,
                "recipient_ids": list(letter.recipients),
                "thread_id": letter.thread_id or None,
                "subject": letter.subject or None,
                "snippet": snippet,
                "created_at": letter.created_at,
                "read": read,
            }
            for letter, read, _, snippet in page.letters
        ],
        "next_before": page.next_before,
    }


@router.get("/messages/{message_id}", responses=errors(400, 404))
async def get_desk_message(
    state: State,
    caller: DeskReader,
    message_id: PathMessageId,
    mark_read: Annotated[
        bool, Query(description="Whether it counts as read by the caller from now on.")
    ] = True,
) -> GetDeskMessageResponse:
    """Get one message; for its sender and for administrators with its receipts.

    A message that is not for the caller is 404, whether or not there is one. What an administrator
    reads is not marked.
    """
    name = None if caller.role == "admin" else caller.id
    found = await state.desk.get_message(name, message_id, mark_read=mark_read)
    receipts = found.receipts
    return {
        "message": _message(found),
        "receipts": None if receipts is None else [_receipt(each) for each in receipts],
    }


@router.post("/messages/{message_id}/ack", responses=errors(404))
@answered_once()
async def acknowledge_message(
    request: Request,
    state: State,
    caller: Participant,
    message_id: PathMessageId,
    body: AckIn = _NO_NOTE,
    key: IdempotencyKey = None,
) -> PostAckResponse:
    """Acknowledge a message that the caller has got; its sender sees that, and the note."""
    check_claim("agent_id", body.agent_id, caller.id)
    receipt, done = await state.desk.acknowledge(caller.id, message_id, body.note or "")
    return {
        "status": "acknowledged" if done else "already_acknowledged",
        "receipt": _receipt(receipt),
    }


# --- participants -------------------------------------------------------------------------------


@router.get("/participants")
async def get_participants(state: State, caller: DeskReader) -> GetParticipantsResponse:
    """List whom the caller can write to; for administrators, whom every participant can."""
    agents = state.desk.agents.names
    reached = state.desk.reached_by(caller.id if caller.role == PARTICIPANT_ROLE else "")
    listed: list[DeskCorrespondent] = [
        {
            "name": name,
            "description": description,
            "kind": "agent" if name in agents else "participant",
        }
        for name, description in sorted(reached.items())
    ]
    return {"participants": listed}


# --- threads ------------------------------------------------------------------------------------


@router.post("/threads", responses=errors(507))
@answered_once()
async def create_thread(
    request: Request, state: State, caller: Participant, body: ThreadIn, key: IdempotencyKey = None
) -> PostThreadsResponse:
    """Create a thread. The others in it get a notice, and the initial message if there is one."""
    check_claim("creator_id", body.creator_id, caller.id)
    made = await state.desk.create_thread(
        caller.id, body.title, body.participants, body.initial_message
    )
    return {
        "status": "created",
        "thread": _thread(made.view),
        "message_id": None if made.letter is None else made.letter.letter_id,
    }


@router.get("/threads", responses=errors(400))
async def get_threads(
    state: State,
    caller: Participant,
    after: Annotated[
        str | None, Query(description="The `next_after` of the previous page.")
    ] = None,
    limit: Annotated[
        int, Query(ge=1, le=_MAX_LISTED, description="The most threads of the page.")
    ] = 100,
) -> GetThreadsResponse:
    """List the threads that the caller is in, those with the newest messages first."""
    rows = await state.desk.list_threads(caller.id, after or "", limit + 1)
    shown, last = page_of(rows, limit, thread_place)
    return {"threads": [*map(_summary, shown)], "next_after": last}


@router.get("/threads/{thread_id}", responses=errors(404))
async def get_thread_details(
    state: State, caller: DeskReader, thread_id: PathThreadId
) -> DeskThread:
    """Get a thread that the caller is in; administrators get any."""
    name = None if caller.role == "admin" else caller.id
    return _thread(await state.desk.get_thread(name, thread_id))


@router.post(
    "/threads/{thread_id}/join",
    responses=errors(404, 507),
)
@answered_once()
async def join_thread(
    request: Request,
    state: State,
    caller: Participant,
    thread_id: PathThreadId,
    key: IdempotencyKey = None,
    agent_id: OwnId = None,
) -> PostThreadMemberResponse:
    """Join a thread. Everybody in it gets a notice, the caller too.

    Any participant of the swarm who knows a thread's id may join it, and sees its earlier messages.
    """
    check_claim("agent_id", agent_id, caller.id)
    view, status = await state.desk.join_thread(caller.id, thread_id)
    return {"status": status, "thread": _thread(view)}


@router.post(
    "/threads/{thread_id}/participants",
    responses=errors(404, 507),
)
@answered_once()
async def add_participant_to_thread(
    request: Request,
    state: State,
    caller: Participant,
    thread_id: PathThreadId,
    body: MemberIn,
    key: IdempotencyKey = None,
) -> PostThreadMemberResponse:
    """Add a participant to a thread that the caller is in. Everybody else in it gets a notice."""
    check_claim("inviting_agent_id", body.inviting_agent_id, caller.id)
    view, status = await state.desk.add_participant(caller.id, thread_id, body.agent_id_to_add)
    return {"status": status, "thread": _thread(view)}


@router.delete(
    "/threads/{thread_id}/participants/{name:path}",
    responses=errors(400, 404, 507),
)
async def remove_participant_from_thread(
    state: State,
    caller: Participant,
    thread_id: PathThreadId,
    name: Annotated[str, Path(description="Who is removed.")],
    removing_agent_id: OwnId = None,
) -> DeleteThreadMemberResponse:
    """Remove a participant from a thread: oneself, or another one by the thread's creator.

    The creator cannot be removed. Who is left gets a notice; the thread and its messages are
    unknown to who was removed from then on.
    """
    check_claim("removing_agent_id", removing_agent_id, caller.id)
    await state.desk.remove_participant(caller.id, thread_id, name)
    return {
        "status": "removed",
        "thread_id": thread_id,
        "removed_id": name,
    }


# --- what goes over the wire --------------------------------------------------------------------


def _message(found: FetchedLetter) -> DeskMessage:
    letter: LetterRow = found.letter
    return {
        "id": letter.letter_id,
        "sender_id": letter.sender or None,
        "recipient_ids": list(letter.recipients),
        "thread_id": letter.thread_id or None,
        "content": letter.body,
        "urgent": letter.urgent,
        "kind": letter.kind,
        "subject": letter.subject or None,
        "reply_to": letter.reply_to or None,
        "wants_ack": letter.wants_ack,
        "file_id": letter.file_id or None,
        "created_at": letter.created_at,
        "read": found.read,
    }


def _receipt(row: ReceiptRow) -> DeskReceipt:
    state: Literal["stored", "shown", "acknowledged", "answered"] = "stored"
    if row.answered_at:
        state = "answered"
    elif row.shown_at:
        state = "acknowledged" if row.acked_at else "shown"
    return {
        "message_id": row.letter_id,
        "recipient_id": row.name,
        "state": state,
        "shown_at": row.shown_at or None,
        "turn": row.turn or None,
        "acknowledged_at": row.acked_at or None,
        "note": row.ack_note,
        "answered_at": row.answered_at or None,
        "answer_id": row.answer_id or None,
    }


def _summary(row: ThreadRow) -> DeskThreadSummary:
    return {
        "id": row.thread_id,
        "title": row.title,
        "creator_id": row.creator,
        "created_at": row.created_at,
    }


def _thread(view: ThreadView) -> DeskThread:
    return {**_summary(view.thread), "participants": view.members}
