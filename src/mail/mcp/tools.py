"""The tools that MCP clients get. Each is a few requests to the HTTP API, and obeys its rules.

Whoever calls a tool does so with a token, as with ``curl``: what the API refuses, the tool refuses
with the same words. Docs: ``docs/mcp-server.md``.
"""

import asyncio
import base64
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote

import httpx
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json, to_json

from mail.core.schema import problems_of
from mail.core.suggest import hinted
from mail.errors import ToolError
from mail.mcp.files import LocalFiles

Progress = Callable[[int, str], Awaitable[None]]
"""Tells a waiting client how many events there are by now, and what the newest says."""

PROFILES: Final = ("desk", "basic", "threads", "teams", "tasks", "all")
"""Sets of tools, of which a client loads what it needs."""

_RUNNING: Final = "running"
_LONGEST_WAIT: Final = 300.0
_LOOK_SECONDS: Final = 1.0
_MARGIN_SECONDS: Final = 30.0
_GATEWAY_TIMEOUT: Final = 504
_TIMELINE_EVENTS: Final = 200
_OTHER_PLACES: Final = frozenset({"unread", "overdue", "search"})
FILE_URI: Final = "mail://files/"
"""What the addresses of files begin with."""
_UPLOAD_SECONDS: Final = 900.0
_LONGEST_LINE: Final = 300
_LONGEST_ANSWER: Final = 100_000
_LONGEST_NAME: Final = 64
_MOST_PROBLEMS: Final = 10


@dataclass(frozen=True, slots=True)
class Api:
    """The HTTP API as one caller sees it.

    Attributes:
        client: It knows the address and sends the token.
        files: The files that tools may use on this machine, if it is the caller's own.
    """

    client: httpx.AsyncClient
    files: LocalFiles | None = None

    @asynccontextmanager
    async def download(self, path: str) -> AsyncGenerator[AsyncGenerator[bytes, None], None]:
        """Request bytes, and yield them as they come.

        Raises:
            ToolError: the server refuses, or does not answer.
        """
        try:
            async with self.client.stream("GET", path) as response:
                if response.is_error:
                    raise Refused(response.reason_phrase, response.status_code)
                async with aclosing(_pieces_of(response)) as pieces:
                    yield pieces
        except httpx.HTTPError as error:
            raise ToolError(f"the MAIL server cannot be reached ({type(error).__name__})") from None

    async def ask(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        """Make a request and return the object that it is answered with.

        Args:
            method, path: The request.
            options: Those of `httpx.AsyncClient.request`.

        Raises:
            Refused: the answer is an error.
            ToolError: there is no answer, or it is none of a MAIL server.
        """
        try:
            response = await self.client.request(method, path, **options)
        except httpx.TimeoutException:
            raise ToolError("the MAIL server did not answer in time") from None
        except httpx.HTTPError as error:
            raise ToolError(f"the MAIL server cannot be reached ({type(error).__name__})") from None
        try:
            answer = response.json(object_hook=_Answer) if response.content else _Answer()
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, _Answer):
            raise ToolError(f"HTTP {response.status_code}, and no answer of a MAIL server")
        if response.is_error:
            detail = answer.get("detail") or response.reason_phrase
            raise Refused(str(detail), response.status_code, answer.get("task_id"))
        return answer


async def _pieces_of(response: httpx.Response) -> AsyncGenerator[bytes, None]:
    async for piece in response.aiter_bytes():
        yield piece


class _Answer(dict[str, Any]):
    """An object of an answer; what it lacks shows that it is none of a MAIL server."""

    def __missing__(self, name: str) -> Any:
        raise ToolError(f"the server's answer is not that of a MAIL server: it has no {name!r}")


class Refused(ToolError):
    """The server answered with an error; ``task_id`` is the task that exists all the same."""

    def __init__(self, detail: str, status: int, task_id: str | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.task_id = task_id


class Arguments(BaseModel):
    """The arguments of a tool."""

    model_config = ConfigDict(extra="forbid", strict=True)


_Limit = Annotated[
    float,
    Field(ge=1, description="At most so many; 100 are the most."),
    AfterValidator(lambda count: int(min(count, 100))),
]
_A_TIME: Final = {"format": "date-time"}
_TaskId = Annotated[str, Field(min_length=1, max_length=256, description="The task's id.")]
_Wait = Annotated[
    float,
    Field(
        ge=0,
        le=_LONGEST_WAIT,
        description="Seconds to wait for the answer. The task goes on after that.",
    ),
]


class SubmitTask(Arguments):
    """Give the swarm a task, or write to one that you have given it."""

    message: Annotated[str, Field(min_length=1, description="What is to be done.")]
    task_id: Annotated[
        str, Field(max_length=256, description="A task of yours to go on with; else a new one.")
    ] = ""
    agent: Annotated[
        str, Field(max_length=256, description="The agent to ask, if not the usual one.")
    ] = ""
    wait_seconds: _Wait = 60.0
    request_id: Annotated[
        str,
        Field(
            max_length=255,
            pattern=r"^[\x21-\x7e]*$",
            description="Any text of yours. A repeated call with the same one does nothing twice.",
        ),
    ] = ""


class GetTask(Arguments):
    """Tell how a task is: its state, its answer, what waits for you, its newest events."""

    task_id: _TaskId
    wait_seconds: _Wait = 0.0
    events: Annotated[int, Field(ge=0, le=100, description="How many events to show.")] = 10


class ListTasks(Arguments):
    """List your tasks, newest first."""

    limit: _Limit = 10
    cursor: Annotated[str, Field(description="The next_cursor of the page before.")] = ""


class AnswerBreakpoint(Arguments):
    """Give the result of a tool call that a paused task waits for."""

    task_id: _TaskId
    call_id: Annotated[str, Field(min_length=1, description="The call, as get_task shows it.")]
    result: Annotated[str, Field(description="What the call gave.")]
    wait_seconds: _Wait = 60.0


_ApprovalStatus = Literal[
    "open", "accepted", "edited", "ignored", "responded", "cancelled", "expired", "all"
]


class ListApprovals(Arguments):
    """List tool calls of agents that wait for your approval, newest first."""

    status: _ApprovalStatus = "open"
    task_id: Annotated[str, Field(max_length=256, description="Only of this task.")] = ""
    limit: Annotated[int, Field(ge=1, le=50)] = 10
    cursor: Annotated[str, Field(description="next_cursor of the page before.")] = ""


class AnswerApproval(Arguments):
    """Answer such a call: accept runs it, ignore ends the task, response is its result."""

    approval_id: Annotated[str, Field(min_length=1, max_length=64)]
    type: Literal["accept", "edit", "ignore", "response"]
    args: Annotated[
        dict[str, Any] | str | None,
        Field(description='For edit {"action": its name, "args": {all}}, for response the text.'),
    ] = None


class InterruptAgent(Arguments):
    """Interrupt an agent at work on a task of yours: it reads this before anything else."""

    task_id: _TaskId
    message: Annotated[str, Field(min_length=1)]
    agent: Annotated[str, Field(max_length=256, description="The agent, if not the usual one.")] = (
        ""
    )


class CancelTask(Arguments):
    """Stop a task of yours. A later message can continue it."""

    task_id: _TaskId


_OWN_IDS: Final = frozenset(
    {"sender_id", "agent_id", "creator_id", "inviting_agent_id", "removing_agent_id"}
)
_OwnId = Annotated[str, Field(max_length=256, description="Your own id.")]
_Content = Annotated[str, Field(min_length=1, description="The text.")]
_ThreadId = Annotated[str, Field(min_length=1, max_length=256, description="The thread's id.")]
_MessageId = Annotated[str, Field(min_length=1, max_length=256, description="The message's id.")]
_Subject = Annotated[str, Field(description="A line.")]
_WantsAck = Annotated[bool, Field(description="Ask for an acknowledgement.")]
_FileToSend = Annotated[str, Field(description="A file that you have uploaded.")]
_Urgent = Annotated[bool, Field(description="It wants attention at once.")]
_RequestId = Annotated[
    str,
    Field(
        max_length=255,
        pattern=r"^[\x21-\x7e]*$",
        description="Any text of yours: a repeated call with it gets the same result.",
    ),
]


class SendMessage(Arguments):
    """Send a message to one participant, or post it in a thread: give exactly one of the two."""

    sender_id: _OwnId = ""
    content: _Content
    recipient_id: Annotated[str, Field(description="Who gets it, if it is for one.")] = ""
    thread_id: Annotated[str, Field(description="The thread, if it is for a group.")] = ""
    subject: _Subject = ""
    urgent: _Urgent = False
    reply_to: Annotated[str, Field(description="The message that it answers.")] = ""
    wants_ack: _WantsAck = False
    file_id: _FileToSend = ""
    request_id: _RequestId = ""


class GetMessages(Arguments):
    """Read your messages, newest first. Those that you get count as read from then on."""

    agent_id: _OwnId = ""
    thread_id: Annotated[str, Field(description="Only this thread, with your own posts.")] = ""
    limit: _Limit = 10
    since: Annotated[str, Field(description="Only later ones.", json_schema_extra=_A_TIME)] = ""
    before: Annotated[
        int | None, Field(ge=0, description="Only older ones: the next_before of the page before.")
    ] = None
    unread: Annotated[bool, Field(description="Only unread ones.")] = False
    mark_read: bool = True
    request_id: _RequestId = ""


class SearchMessages(Arguments):
    """Find messages of yours by their words; get_message has their full text."""

    query: Annotated[
        str,
        Field(min_length=1, description='All of these words; "a phrase", -without, beginning*.'),
    ]
    agent_id: _OwnId = ""
    thread_id: Annotated[str, Field(description="Only this thread.")] = ""
    limit: _Limit = 10
    before: Annotated[
        int | None, Field(ge=0, description="The next_before of the page before.")
    ] = None


class GetMessage(Arguments):
    """Read one message. It counts as read from then on."""

    message_id: _MessageId


class CreateThread(Arguments):
    """Create a discussion thread. You are in it in any case; the others get a notice."""

    creator_id: _OwnId = ""
    title: Annotated[str, Field(min_length=1, description="A line.")]
    participants: Annotated[
        list[str], Field(fail_fast=True, description="The ids of those who are in it.")
    ]
    initial_message: Annotated[str, Field(description="The first message in it.")] = ""


class JoinThread(Arguments):
    """Join a thread."""

    thread_id: _ThreadId
    agent_id: _OwnId = ""


class BroadcastMessage(Arguments):
    """Send one message to several participants, without a thread."""

    sender_id: _OwnId = ""
    recipient_ids: Annotated[
        list[str], Field(fail_fast=True, min_length=1, description="Who gets it.")
    ]
    content: _Content
    subject: _Subject = ""
    urgent: _Urgent = False
    wants_ack: _WantsAck = False
    file_id: _FileToSend = ""
    request_id: _RequestId = ""


class CheckNewMessages(Arguments):
    """Tell how many unread messages you have. It marks nothing as read."""

    agent_id: _OwnId = ""


class WaitForMail(Arguments):
    """Wait until you have an unread message, or the time is over."""

    agent_id: _OwnId = ""
    seconds: Annotated[float, Field(gt=0, le=_LONGEST_WAIT)] = 60.0


class ListThreads(Arguments):
    """List the threads that you are in, those with the newest messages first."""

    after: Annotated[str, Field(description="The next_after of the page before.")] = ""


class GetThreadDetails(Arguments):
    """Tell a thread's title, who created it, who is in it, and since when it exists."""

    thread_id: _ThreadId


class AddParticipant(Arguments):
    """Add a participant to a thread that you are in."""

    thread_id: _ThreadId
    agent_id_to_add: Annotated[str, Field(min_length=1, description="Who is added.")]
    inviting_agent_id: _OwnId = ""


class RemoveParticipant(Arguments):
    """Leave a thread, or remove somebody from one that you created."""

    thread_id: _ThreadId
    agent_id_to_remove: Annotated[str, Field(min_length=1, description="Who is removed.")]
    removing_agent_id: _OwnId = ""


class AcknowledgeMessage(Arguments):
    """Acknowledge a message whose sender asks for that."""

    agent_id: _OwnId = ""
    message_id: _MessageId
    note: Annotated[str, Field(description="A word to the sender.")] = ""


class GetReceipts(Arguments):
    """Tell whether a message of yours was read, acknowledged, answered, and by whom."""

    message_id: _MessageId


_TeamId = Annotated[
    str, Field(min_length=1, max_length=256, alias="teamId", description="The team's id.")
]
_Priority = Annotated[
    Literal["normal", "urgent"], Field(description="urgent: it wants attention at once.")
]


class ListTeams(Arguments):
    """List the teams that you are in: their ids, leads and members."""


class TeammateMessage(Arguments):
    """Send a direct message to a specific teammate in your team."""

    team_id: _TeamId
    to: Annotated[str, Field(min_length=1, description="The teammate's id, or lead.")]
    message: _Content
    priority: _Priority = "normal"
    wait_for_reply: Annotated[
        bool, Field(alias="waitForReply", description="Wait for the teammate's reply.")
    ] = False
    timeout_seconds: Annotated[
        float,
        Field(ge=0, le=_LONGEST_WAIT, alias="timeoutSeconds", description="Seconds to wait."),
    ] = 60.0


class TeammateBroadcast(Arguments):
    """Send a message to all active teammates in your team."""

    team_id: _TeamId
    message: _Content
    priority: _Priority = "normal"
    exclude_self: Annotated[
        bool, Field(alias="excludeSelf", description="Send yourself no copy.")
    ] = False


class TransferFile(Arguments):
    """Send a file to a participant: from your disk, as base64, or one that you have uploaded."""

    sender_id: _OwnId = ""
    recipient_id: Annotated[str, Field(min_length=1, description="Who gets it.")]
    source_path: Annotated[
        str, Field(description="Its absolute path on your disk; needs `mail mcp --root`.")
    ] = ""
    content_base64: Annotated[str, Field(description="Or its content.")] = ""
    file_id: Annotated[str, Field(max_length=256, description="Or its id, after POST /files.")] = ""
    destination_filename: Annotated[
        str, Field(description="Its name at the recipient, if not that of the path.")
    ] = ""
    description: Annotated[str, Field(description="What you say about it.")] = ""


class GetFile(Arguments):
    """Get a file of yours or one that a message carries: small ones here, any into save_as."""

    file_id: Annotated[str, Field(min_length=1, max_length=256, description="mail://files/ID")]
    save_as: Annotated[
        str, Field(description="An absolute path on your disk; needs `mail mcp --root`.")
    ] = ""


class ListOverdue(Arguments):
    """List messages of yours that nobody has acknowledged or answered, though they ask for it."""

    older_than: Annotated[
        float, Field(ge=0, le=10**9, description="Only those sent so many seconds ago.")
    ] = 0.0


class ListParticipants(Arguments):
    """List the participants and agents that you can write to, with what they are for."""


async def _submit(api: Api, given: SubmitTask, progress: Progress | None) -> dict[str, Any]:
    resumed: dict[str, Any] = {"resume_from": "user_response"} if given.task_id else {}
    if given.task_id and await _state(api, given.task_id) == _RUNNING:
        resumed = {}
    body = {"body": given.message, "task_id": given.task_id or str(uuid.uuid4()), **resumed}
    if given.agent:
        body["entrypoint"] = given.agent
    headers = {"Idempotency-Key": given.request_id} if given.request_id else {}
    if given.request_id and not given.task_id:  # a repeat must be the same request
        body["task_id"] = str(uuid.uuid5(uuid.NAMESPACE_URL, f"mail:{given.request_id}"))
    return await _posted(api, body, given.wait_seconds, progress, headers)


async def _answer(api: Api, given: AnswerBreakpoint, progress: Progress | None) -> dict[str, Any]:
    result = {"call_id": given.call_id, "content": given.result}
    body = {
        "task_id": given.task_id,
        "resume_from": "breakpoint_tool_call",
        "kwargs": {"breakpoint_tool_call_result": result},
    }
    return await _posted(api, body, given.wait_seconds, progress)


async def _approvals(api: Api, given: ListApprovals, _: object) -> dict[str, Any]:
    params = {name: _query(value) for name, value in _given(given).items()}
    return await api.ask("GET", "/approvals", params={"limit": str(given.limit), **params})


async def _approve(api: Api, given: AnswerApproval, _: object) -> dict[str, Any]:
    path = f"/approvals/{id_in_path(given.approval_id, 'approval')}"
    if given.approval_id == "events":
        raise ToolError("no such approval")
    return await api.ask("POST", path, json={"type": given.type, "args": given.args})


async def _interrupt(api: Api, given: InterruptAgent, progress: Progress | None) -> dict[str, Any]:
    state = await _state(api, given.task_id)
    if state != _RUNNING:
        raise ToolError(f"the task is not running, it is {state}; use submit_task to go on with it")
    body = {"body": given.message, "task_id": given.task_id, "msg_type": "interrupt"}
    if given.agent:
        body["entrypoint"] = given.agent
    return await _posted(api, body, 0.0, progress)


async def _get(api: Api, given: GetTask, progress: Progress | None) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    until = loop.time() + given.wait_seconds
    while await _state(api, given.task_id) == _RUNNING and loop.time() < until:
        await asyncio.sleep(min(_LOOK_SECONDS, until - loop.time()))
        if progress is not None:
            await _tell(api, given.task_id, progress)
    record = await _record(api, given.task_id, given.events)
    names = ("task_id", "status", "ended_by", "title", "waiting_for")
    shown = {name: record.get(name) for name in names}
    shown["answer"] = await _last_answer(api, record)
    shown["breakpoints"] = record.get("breakpoints") or []
    shown["events"] = _lines(record["events"])
    return {name: value for name, value in shown.items() if value not in (None, [], "")}


async def _list(api: Api, given: ListTasks, progress: Progress | None) -> dict[str, Any]:
    params = {"limit": str(given.limit), "events": "false"}
    page = await api.ask("GET", "/tasks", params=params | _without(given, "limit"))
    shown = ("task_id", "status", "title", "start_time")
    tasks = [{name: task.get(name) for name in shown} for task in page["tasks"].values()]
    return {"tasks": tasks, "next_cursor": page["next_cursor"]}


async def _cancel(api: Api, given: CancelTask, progress: Progress | None) -> dict[str, Any]:
    task = await api.ask("POST", f"{_path(given.task_id)}/cancel")
    return {"task_id": task["task_id"], "status": task["status"]}


async def _posted(
    api: Api,
    body: Mapping[str, Any],
    seconds: float,
    progress: Progress | None,
    headers: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Post a message; wait for the end of its run, for so long."""
    task_id, given = body["task_id"], dict(headers or {})
    if seconds <= 0:
        given["Prefer"] = "respond-async"
        return await api.ask("POST", "/message", json=body, headers=given)
    waits = {**body, "kwargs": {**body.get("kwargs", {}), "timeout": seconds}}
    posting = api.ask(
        "POST", "/message", json=waits, headers=given, timeout=seconds + _MARGIN_SECONDS
    )
    try:
        answer = await _watched(posting, progress, partial(_tell, api, task_id))
    except Refused as error:
        if error.status == _GATEWAY_TIMEOUT and error.task_id:
            hint = "it goes on; ask for it with get_task"
            return {"task_id": error.task_id, "status": _RUNNING, "note": hint}
        raise
    told = {
        "task_id": answer["task_id"],
        "status": answer["status"],
        "answer": _cut(answer["response"]),
    }
    told |= {"ended_by": answer["ended_by"]} if answer.get("ended_by") else {}
    return told | ({"breakpoints": answer["breakpoints"]} if answer.get("breakpoints") else {})


async def _watched(
    work: Awaitable[dict[str, Any]],
    progress: Progress | None,
    tell: Callable[[Progress], Awaitable[None]],
) -> dict[str, Any]:
    """Await work, and tell once a second how it goes, if the client wants to know."""
    if progress is None:
        return await work
    working = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait((working,), timeout=_LOOK_SECONDS))[0]:
            await tell(progress)
    finally:
        working.cancel()
    return await working


async def _tell(api: Api, task_id: str, progress: Progress) -> None:
    with suppress(ToolError):  # it is only news
        record = await _record(api, task_id, 1)
        for event in record["events"]:
            await progress(record["event_count"], _line(event))


async def _state(api: Api, task_id: str) -> str:
    task = await api.ask("GET", _path(task_id), params={"limit": "1"})
    return str(task["status"])


async def _record(api: Api, task_id: str, events: int) -> dict[str, Any]:
    """Return a task with its newest events."""
    first = await api.ask("GET", _path(task_id), params={"limit": "1"})
    after = max(0, first["event_count"] - events)
    if not events:
        return first | {"events": []}
    limit = {"after": str(after), "limit": str(events)}
    return await api.ask("GET", _path(task_id), params=limit)


async def _last_answer(api: Api, record: Mapping[str, Any]) -> str | None:
    """Return the answer of a task's last run, if that has ended."""
    if record["status"] == _RUNNING or not record["event_count"]:
        return None
    after = max(0, record["event_count"] - _TIMELINE_EVENTS)
    page = await api.ask("GET", _path(record["task_id"]), params={"after": str(after)})
    for event in reversed(page["events"]):
        if event["event"] in ("task_complete", "task_error"):
            answer = from_json(event["data"]).get("response")
            return None if answer is None else _cut(str(answer))
    return None


def _cut(text: str) -> str:
    """Return a text as it is, or what a client can bear of it."""
    if len(text) <= _LONGEST_ANSWER:
        return text
    return f"{text[:_LONGEST_ANSWER]}… ({len(text)} characters in all; GET /tasks/ID has them)"


async def timeline(api: Api, task_id: str) -> str:
    """Return a task's newest events, a line each.

    Raises:
        Refused: there is no such task.
        ToolError: the server does not answer.
    """
    record = await _record(api, task_id, _TIMELINE_EVENTS)
    return "\n".join(_lines(record["events"]))


def _lines(events: Sequence[Mapping[str, Any]]) -> list[str]:
    return [_line(event) for event in events]


def _line(event: Mapping[str, Any]) -> str:
    data = from_json(event["data"])
    whole = data.get("extra_data", {}).get("full_message")
    told = _letter(whole["message"]) if whole else " ".join(data.get("description", "").split())
    line = " ".join(filter(None, (data.get("timestamp"), event["event"], told)))
    return line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}…"


def _letter(message: Mapping[str, Any]) -> str:
    recipients = message.get("recipients") or [message["recipient"]]
    to = ", ".join(recipient["address"] for recipient in recipients)
    body = " ".join(message["body"].split())
    return f"{message['sender']['address']} -> {to}: {message['subject']}: {body}"


def _path(task_id: str) -> str:
    return f"/tasks/{id_in_path(task_id, 'task')}"


# --- the mail desk ------------------------------------------------------------------------------


async def _send(api: Api, given: SendMessage | BroadcastMessage, _: object) -> dict[str, Any]:
    body = _given(given)
    if given.file_id:
        body["file_id"] = given.file_id.removeprefix(FILE_URI)
    sent = await api.ask("POST", "/messages", json=body)
    message = sent["message"]
    where = f"in thread {message['thread_id']}" if message["thread_id"] else ""
    to = where or f"to {', '.join(message['recipient_ids'])}"
    detail = f"Message {message['id']} sent {to}."
    return {"status": "sent", "message_id": message["id"], "detail": detail, "message": message}


async def _read(api: Api, given: GetMessages, _: object) -> dict[str, Any]:
    params = {name: _query(value) for name, value in _given(given).items()}
    return await api.ask("GET", "/messages", params=params)


async def _search(api: Api, given: SearchMessages, _: object) -> dict[str, Any]:
    params = {"q": given.query} | _without(given, "query")
    return await api.ask("GET", "/messages/search", params=params)


async def _message_of(api: Api, given: GetMessage, _: object) -> dict[str, Any]:
    found = await api.ask("GET", _message(given.message_id))
    return {"message": found["message"]}


async def _create(api: Api, given: CreateThread, _: object) -> dict[str, Any]:
    made = await api.ask("POST", "/threads", json=_given(given))
    detail = f"Thread {made['thread']['id']} created."
    told = {"detail": detail, "thread": made["thread"]}
    return told | ({"message_id": made["message_id"]} if made["message_id"] else {})


async def _join(api: Api, given: JoinThread, _: object) -> dict[str, Any]:
    place = f"{_thread(given.thread_id)}/join"
    return _told(await api.ask("POST", place, params=_without(given, "thread_id")))


async def _add(api: Api, given: AddParticipant, _: object) -> dict[str, Any]:
    body = _without(given, "thread_id")
    place = f"{_thread(given.thread_id)}/participants"
    return _told(await api.ask("POST", place, json=body))


async def _remove(api: Api, given: RemoveParticipant, _: object) -> dict[str, Any]:
    name = id_in_path(given.agent_id_to_remove, "participant")
    place = f"{_thread(given.thread_id)}/participants/{name}"
    params = _without(given, "thread_id", "agent_id_to_remove")
    await api.ask("DELETE", place, params=params)
    return {"detail": f"{given.agent_id_to_remove} is not in thread {given.thread_id} any more."}


async def _threads(api: Api, given: ListThreads, _: object) -> dict[str, Any]:
    return await api.ask("GET", "/threads", params=_given(given))


async def _details(api: Api, given: GetThreadDetails, _: object) -> dict[str, Any]:
    return await api.ask("GET", _thread(given.thread_id))


async def _count(api: Api, given: CheckNewMessages, _: object) -> dict[str, Any]:
    return _unread(await api.ask("GET", "/messages/unread", params=_given(given)))


async def _wait(api: Api, given: WaitForMail, progress: Progress | None) -> dict[str, Any]:
    params = {**_without(given, "seconds"), "wait": str(given.seconds)}
    timeout = given.seconds + _MARGIN_SECONDS
    asking = api.ask("GET", "/messages/unread", params=params, timeout=timeout)
    seconds = 0

    async def tell(progress: Progress) -> None:
        nonlocal seconds
        seconds += 1
        await progress(seconds, "no mail yet")

    return _unread(await _watched(asking, progress, tell))


async def _acknowledge(api: Api, given: AcknowledgeMessage, _: object) -> dict[str, Any]:
    body = _without(given, "message_id")
    return await api.ask("POST", f"{_message(given.message_id)}/ack", json=body)


async def _receipts(api: Api, given: GetReceipts, _: object) -> dict[str, Any]:
    found = await api.ask("GET", _message(given.message_id), params={"mark_read": "false"})
    if found["receipts"] is None:
        raise ToolError("only the sender of a message sees its receipts")
    return {"receipts": found["receipts"]}


async def _teams(api: Api, given: ListTeams, _: object) -> dict[str, Any]:
    return await api.ask("GET", "/teams")


async def _to_teammate(api: Api, given: TeammateMessage, _: object) -> dict[str, Any]:
    timeout = given.timeout_seconds + _MARGIN_SECONDS if given.wait_for_reply else None
    return await _to_team(api, f"{_team(given.team_id)}/messages", given, timeout)


async def _to_all(api: Api, given: TeammateBroadcast, _: object) -> dict[str, Any]:
    return await _to_team(api, f"{_team(given.team_id)}/broadcasts", given)


async def _to_team(
    api: Api, place: str, given: Arguments, timeout: float | None = None
) -> dict[str, Any]:
    """Send a message; what the API refuses has the documented form of these tools."""
    try:
        body, options = _without(given, "teamId"), {"timeout": timeout} if timeout else {}
        return await api.ask("POST", place, json=body, **options)
    except Refused as error:
        raise ToolError(to_json({"status": "error", "error": str(error)}).decode()) from None


def _team(team_id: str) -> str:
    return f"/teams/{id_in_path(team_id, 'team')}"


# --- files --------------------------------------------------------------------------------------


async def _transfer(api: Api, given: TransferFile, _: object) -> dict[str, Any]:
    sources = ("source_path", "content_base64", "file_id")
    named = [name for name in sources if getattr(given, name)]
    if len(named) != 1:
        raise ToolError(f"give exactly one of {', '.join(sources)}")
    if given.file_id:
        if given.destination_filename:
            raise ToolError("a file that was uploaded has the name that it was uploaded with")
        file_id = given.file_id.removeprefix(FILE_URI)
    else:
        upload = _upload_path if given.source_path else _upload_text
        file_id = (await upload(api, given))["id"]
    body = _without(given, *sources, "destination_filename")
    try:
        sent = await api.ask("POST", f"{_file(file_id)}/transfer", json=body)
    except Refused:
        if not given.file_id:  # nobody else knows of it
            with suppress(ToolError):
                await api.ask("DELETE", _file(file_id))
        raise
    file, message = sent["file"], sent["message_id"]
    return {
        "status": "sent",
        "detail": f"File '{file['filename']}' sent to {given.recipient_id} in message {message}.",
        "message_id": message,
        "filename": file["filename"],
        "server_path": file["uri"],
        "file": file,
    }


async def _upload_path(api: Api, given: TransferFile) -> dict[str, Any]:
    if api.files is None:
        raise ToolError(
            "source_path is a path on your own disk, which the server cannot read: give "
            "content_base64, or upload the file with POST /files and give its file_id, or use "
            "`mail mcp --root FOLDER`"
        )
    with api.files.reading(given.source_path) as local:
        most = (await api.ask("GET", "/files", params={"limit": "1"}))["max_bytes"]
        if local.size > most:  # while it comes, a server could not say so
            raise ToolError(f"the file has {local.size} bytes; the server takes {most} at most")
        async with aclosing(local.pieces()) as pieces:
            return await api.ask(
                "POST",
                "/files",
                params={"filename": given.destination_filename or local.name},
                headers={"Content-Length": str(local.size)},
                content=pieces,
                timeout=_UPLOAD_SECONDS,
            )


async def _upload_text(api: Api, given: TransferFile) -> dict[str, Any]:
    try:
        content = base64.b64decode(given.content_base64, validate=True)
    except ValueError:
        raise ToolError("content_base64 is not base64") from None
    name = {"filename": given.destination_filename} if given.destination_filename else {}
    return await api.ask("POST", "/files", params=name, content=content)


async def _get_file(api: Api, given: GetFile, _: object) -> dict[str, Any]:
    file_id = given.file_id.removeprefix(FILE_URI)
    if not given.save_as:
        file, content = await small_file(api, file_id)
        return {"file": file} | _shown(content)
    place = _file(file_id)
    file = await api.ask("GET", f"{place}/meta")
    if api.files is None:
        raise ToolError("save_as is a path on your own disk; use `mail mcp --root FOLDER`")
    async with api.download(place) as pieces:
        await api.files.save(given.save_as, pieces, file["sha256"])
    return {"file": file, "saved_as": given.save_as}


async def small_file(api: Api, file_id: str) -> tuple[dict[str, Any], bytes]:
    """Return what is known of a file, and its content.

    Raises:
        ToolError: there is none for the caller, or it is too large to be returned at once.
    """
    place = _file(file_id)
    file = await api.ask("GET", f"{place}/meta")
    if file["size"] > _LONGEST_ANSWER:
        raise ToolError(
            f"the file has {file['size']} bytes, and {_LONGEST_ANSWER} at most are returned at "
            f"once: download it with GET {place}, or use get_file with save_as and "
            "`mail mcp --root FOLDER`"
        )
    async with api.download(place) as pieces:
        return file, b"".join([piece async for piece in pieces])


def _shown(content: bytes) -> dict[str, str]:
    text = text_of(content)
    if text is not None:
        return {"text": text}
    return {"content_base64": base64.b64encode(content).decode()}


def text_of(content: bytes) -> str | None:
    """Return a content as text, if it is one."""
    with suppress(UnicodeDecodeError):
        text = content.decode()
        if "\0" not in text:
            return text
    return None


def _file(file_id: str) -> str:
    return f"/files/{id_in_path(file_id, 'file')}"


# --- arguments ----------------------------------------------------------------------------------


async def _overdue(api: Api, given: ListOverdue, _: object) -> dict[str, Any]:
    params = {"older_than": str(given.older_than)}
    return await api.ask("GET", "/messages/overdue", params=params)


async def _participants(api: Api, given: ListParticipants, _: object) -> dict[str, Any]:
    return await api.ask("GET", "/participants")


def _given(arguments: Arguments) -> dict[str, Any]:
    """Return the arguments that were given, as the API has them: an empty text is none."""
    given = arguments.model_dump(exclude_unset=True, by_alias=True)
    return {name: value for name, value in given.items() if value not in ("", None)}


def _without(arguments: Arguments, *names: str) -> dict[str, Any]:
    """Return the same without those that stand elsewhere in the request."""
    return {name: value for name, value in _given(arguments).items() if name not in names}


def _query(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _told(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return what became of somebody in a thread."""
    names = ", ".join(answer["thread"]["participants"])
    detail = f"{answer['status'].replace('_', ' ').capitalize()}; in the thread: {names}."
    return {"status": answer["status"], "detail": detail, "thread": answer["thread"]}


def _unread(answer: Mapping[str, Any]) -> dict[str, Any]:
    count = answer["unread"]
    some = f"{count} unread message{'' if count == 1 else 's'}" if count else "no unread messages"
    return {"detail": f"You have {some}.", "unread": count}


def _thread(thread_id: str) -> str:
    return f"/threads/{id_in_path(thread_id, 'thread')}"


def _message(message_id: str) -> str:
    if message_id in _OTHER_PLACES:
        raise ToolError("no such message")
    return f"/messages/{id_in_path(message_id, 'message')}"


def id_in_path(name: str, what: str) -> str:
    """Return an id as a part of a path, where dots would lead elsewhere.

    Raises:
        ToolError: there is nothing with such an id.
    """
    if name in (".", ".."):
        raise ToolError(f"no such {what}")
    return quote(name, safe="")


@dataclass(frozen=True)
class McpTool:
    """A tool: its name, the profiles that it belongs to, its arguments, and what it does.

    What it does for a client is in the docstring of its arguments. ``reads`` tells that it changes
    nothing.
    """

    name: str
    profiles: str
    arguments: type[Arguments]
    run: Callable[[Api, Any, Progress | None], Awaitable[dict[str, Any]]]
    reads: bool = False

    @property
    def description(self) -> str:
        """What it is for."""
        return " ".join((self.arguments.__doc__ or "").split())

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of its arguments, without what no model needs."""
        whole = self.arguments.model_json_schema()
        properties = whole.get("properties", {})
        for field in properties.values():
            for name in ("title", "pattern", "maxLength", "minLength"):
                field.pop(name, None)
            if field.get("default") == "":
                del field["default"]
        # Your own id may be left out all the same: the token says it.
        required = [*whole.get("required", ()), *(name for name in properties if name in _OWN_IDS)]
        shown = {"type": "object", "properties": properties}
        if required:
            shown["required"] = required
        return shown | {"additionalProperties": False}

    def schema_for(self, own_id: str) -> dict[str, Any]:
        """Return the schema with the caller's id where it is asked for, if that is known."""
        if not own_id or _OWN_IDS.isdisjoint(self.schema["properties"]):
            return self.schema
        properties = {
            name: field | {"description": f"Your own id, '{own_id}'."}
            if name in _OWN_IDS
            else field
            for name, field in self.schema["properties"].items()
        }
        return self.schema | {"properties": properties}

    async def call(
        self, api: Api, given: Mapping[str, Any], progress: Progress | None = None
    ) -> dict[str, Any]:
        """Run it.

        Raises:
            ToolError: the arguments are wrong, or the server refuses; the text says why.
        """
        given = {name: value for name, value in given.items() if value is not None}
        fields = self.arguments.model_fields
        known = [field.alias or name for name, field in fields.items()]
        unknown = next((name for name in given if name not in known), None)
        if unknown is not None:
            name = unknown[:_LONGEST_NAME]
            text = f"there is no argument '{name}'; there are {', '.join(known) or 'none'}"
            raise ToolError(hinted(text, name, known))
        try:
            arguments = self.arguments.model_validate(given)
        except ValidationError as error:
            told = (f"{one['field']}: {one['problem']}" for one in problems_of(error))
            raise ToolError("; ".join(islice(told, _MOST_PROBLEMS))) from None
        return await self.run(api, arguments, progress)


_TOOLS: Final = (
    McpTool("send_message", "desk basic threads teams", SendMessage, _send),
    McpTool("get_messages", "desk basic threads teams", GetMessages, _read),
    McpTool("check_new_messages", "desk basic threads teams", CheckNewMessages, _count, reads=True),
    McpTool("wait_for_mail", "basic threads teams", WaitForMail, _wait, reads=True),
    McpTool("search_messages", "threads", SearchMessages, _search, reads=True),
    McpTool("get_message", "threads", GetMessage, _message_of),
    McpTool("broadcast_message", "desk threads", BroadcastMessage, _send),
    McpTool("create_thread", "desk threads", CreateThread, _create),
    McpTool("join_thread", "desk threads", JoinThread, _join),
    McpTool("list_threads", "threads", ListThreads, _threads, reads=True),
    McpTool("get_thread_details", "desk threads", GetThreadDetails, _details, reads=True),
    McpTool("add_participant_to_thread", "desk threads", AddParticipant, _add),
    McpTool("remove_participant_from_thread", "desk threads", RemoveParticipant, _remove),
    McpTool("acknowledge_message", "threads", AcknowledgeMessage, _acknowledge),
    McpTool("get_receipts", "threads", GetReceipts, _receipts, reads=True),
    McpTool("transfer_file", "desk threads", TransferFile, _transfer),
    McpTool("get_file", "threads", GetFile, _get_file),
    McpTool("list_teams", "teams", ListTeams, _teams, reads=True),
    McpTool("teammate_message", "teams", TeammateMessage, _to_teammate),
    McpTool("teammate_broadcast", "teams", TeammateBroadcast, _to_all),
    McpTool("list_overdue", "threads", ListOverdue, _overdue, reads=True),
    McpTool(
        "list_participants", "basic threads teams", ListParticipants, _participants, reads=True
    ),
    McpTool("submit_task", "tasks", SubmitTask, _submit),
    McpTool("get_task", "tasks", GetTask, _get, reads=True),
    McpTool("list_tasks", "tasks", ListTasks, _list, reads=True),
    McpTool("answer_breakpoint", "tasks", AnswerBreakpoint, _answer),
    McpTool("list_approvals", "tasks", ListApprovals, _approvals, reads=True),
    McpTool("answer_approval", "tasks", AnswerApproval, _approve),
    McpTool("interrupt_agent", "tasks", InterruptAgent, _interrupt),
    McpTool("cancel_task", "tasks", CancelTask, _cancel),
)


def profile_of(role: str) -> str:
    """Return the profile for callers who name none: what their role may use."""
    return "desk" if role == "agent" else "tasks"


def tools_of(profiles: Sequence[str]) -> dict[str, McpTool]:
    """Return the tools of some profiles by name; of all without any.

    Raises:
        ToolError: there is no such profile.
    """
    for name in profiles:
        if name not in PROFILES:
            raise ToolError(f"unknown profile {name!r}; there are {', '.join(PROFILES)}")
    wanted = set(profiles or ("all",))
    return {
        tool.name: tool for tool in _TOOLS if not wanted.isdisjoint(("all", *tool.profiles.split()))
    }
