"""The tools that MCP clients get. Each is a few requests to the HTTP API, and obeys its rules.

Whoever calls a tool does so with a token, as with ``curl``: what the API refuses, the tool refuses
with the same words. A tool is a model of its arguments, whose docstring tells clients what it is
for. Docs: ``docs/mcp-server.md``.
"""

import asyncio
import base64
import re
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json, to_json

from mail.core.schema import problems_of
from mail.core.suggest import hinted
from mail.errors import ToolError
from mail.mcp.api import Api, Refused, id_in_path

Progress = Callable[[int, str], Awaitable[None]]
"""Tells a waiting client how many events there are by now, and what the newest says."""

PROFILES: Final = ("desk", "basic", "threads", "teams", "tasks", "all")
"""Sets of tools, of which a client loads what it needs."""

FILE_URI: Final = "mail://files/"
"""The beginning of the addresses of files."""

_RUNNING: Final = "running"
_LONGEST_WAIT: Final = 300.0
_LOOK_SECONDS: Final = 1.0
_MARGIN_SECONDS: Final = 30.0
_UPLOAD_SECONDS: Final = 900.0
_GATEWAY_TIMEOUT: Final = 504
_TIMELINE_EVENTS: Final = 200
_LONGEST_LINE: Final = 300
_LONGEST_ANSWER: Final = 100_000
_LONGEST_NAME: Final = 64
_MOST_PROBLEMS: Final = 10
_OWN_IDS: Final = frozenset(
    {"sender_id", "agent_id", "creator_id", "inviting_agent_id", "removing_agent_id"}
)


class Arguments(BaseModel):
    """The arguments of a tool, and what it does with them: as a rule ``request``.

    ``request`` is method and path of a request to the API. Arguments that the path names stand
    there; the others are the body of a POST, and the query of other requests, and where the path
    ends with ``?``.
    """

    model_config = ConfigDict(extra="forbid", strict=True)
    request: ClassVar[str] = ""

    async def run(self, api: Api, progress: Progress | None) -> dict[str, Any]:
        """Make the request; return what the client is told.

        Raises:
            ToolError: the server refuses, or does not answer.
        """
        return self.told(await self.ask(api))

    async def ask(self, api: Api, **options: Any) -> dict[str, Any]:
        """Make the request, with more options of `Api.ask`."""
        method, _, place = self.request.partition(" ")
        given = self.given()

        def put(found: re.Match[str]) -> str:
            return id_in_path(given.pop(found[1]), found[1].split("_")[0].removesuffix("Id"))

        path = _PLACE.sub(put, place)
        where = "json" if method == "POST" and not path.endswith("?") else "params"
        return await api.ask(method, path.rstrip("?"), **{where: given}, **options)

    def given(self, *besides: str) -> dict[str, Any]:
        """Return the arguments as the API has them, but for some: an empty text is none."""
        given = self.model_dump(by_alias=True)
        return {n: v for n, v in given.items() if v not in ("", None) and n not in besides}

    def told(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return what the client is told of the answer."""
        return answer


_PLACE: Final = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class McpTool:
    """A tool.

    Attributes:
        name: Its name.
        profiles: The profiles that it belongs to.
        arguments: Its arguments, which tell what it does, too.
        reads: It changes nothing.
    """

    name: str
    profiles: frozenset[str]
    arguments: type[Arguments]
    reads: bool = False

    @property
    def description(self) -> str:
        """The purpose, as clients are told."""
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
        needed = {"required": required} if required else {}
        return {"type": "object", "properties": properties, **needed, "additionalProperties": False}

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
        return await arguments.run(api, progress)


_TOOLS: Final[dict[str, McpTool]] = {}


def _tool(
    profiles: str, request: str = "", *, reads: bool = False
) -> Callable[[type[Arguments]], type[Arguments]]:
    """Register arguments as a tool; its name is theirs."""

    def register(arguments: type[Arguments]) -> type[Arguments]:
        name = re.sub(r"\B[A-Z]", r"_\g<0>", arguments.__name__).lower()
        arguments.request = request
        in_profiles = frozenset((*profiles.split(), "all"))
        _TOOLS[name] = McpTool(name, in_profiles, arguments, reads)
        return arguments

    return register


def profile_of(role: str) -> str:
    """Return the profile for callers who name none: what their role may use."""
    return "desk" if role == "agent" else "tasks"


def read_profiles(text: str) -> list[str]:
    """Return the profiles that are named in a text, separated by commas.

    Raises:
        ToolError: there is no such profile.
    """
    names = [name for name in map(str.strip, text.split(",")) if name]
    for name in names:
        if name not in PROFILES:
            raise ToolError(f"unknown profile {name!r}; there are {', '.join(PROFILES)}")
    return names


def tools_of(profiles: Sequence[str]) -> dict[str, McpTool]:
    """Return the tools of some profiles by name; of all without any."""
    wanted = set(profiles or ("all",))
    return {name: tool for name, tool in _TOOLS.items() if not wanted.isdisjoint(tool.profiles)}


_Limit = Annotated[
    float,
    Field(ge=1, description="At most so many; 100 are the most."),
    AfterValidator(lambda count: int(min(count, 100))),
]
_Wait = Annotated[
    float,
    Field(
        ge=0,
        le=_LONGEST_WAIT,
        description="Seconds to wait for the answer. The task goes on after that.",
    ),
]
_RequestId = Annotated[
    str,
    Field(
        max_length=255,
        pattern=r"^[\x21-\x7e]*$",
        description="Any text of yours: a repeated call with it gets the same result.",
    ),
]
_FileId = Annotated[str, AfterValidator(lambda uri: uri.removeprefix(FILE_URI))]
_FileToSend = Annotated[_FileId, Field(description="A file that you have uploaded.")]
_OwnId = Annotated[str, Field(max_length=256, description="Your own id.")]
_TaskId = Annotated[str, Field(min_length=1, max_length=256, description="The task's id.")]
_ThreadId = Annotated[str, Field(min_length=1, max_length=256, description="The thread's id.")]
_MessageId = Annotated[str, Field(min_length=1, max_length=256, description="The message's id.")]
_Agent = Annotated[str, Field(max_length=256, description="The agent, if not the usual one.")]
_Content = Annotated[str, Field(min_length=1, description="The text.")]
_Subject = Annotated[str, Field(description="A line.")]
_WantsAck = Annotated[bool, Field(description="Ask for an acknowledgement.")]
_Urgent = Annotated[bool, Field(description="It wants attention at once.")]


# --- the mail desk ------------------------------------------------------------------------------


class _Sent(Arguments):
    """A message that is sent."""

    def told(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Say where it went."""
        message = answer["message"]
        where = f"in thread {message['thread_id']}" if message["thread_id"] else ""
        to = where or f"to {', '.join(message['recipient_ids'])}"
        detail = f"Message {message['id']} sent {to}."
        return {"status": "sent", "message_id": message["id"], "detail": detail, "message": message}


@_tool("desk basic threads teams", "POST /messages")
class SendMessage(_Sent):
    """Send a message to one participant, or post it in a thread: give exactly one of the two."""

    sender_id: _OwnId = ""
    content: _Content
    recipient_id: str = Field("", description="Who gets it, if it is for one.")
    thread_id: str = Field("", description="The thread, if it is for a group.")
    subject: _Subject = ""
    urgent: _Urgent = False
    reply_to: str = Field("", description="The message that it answers.")
    wants_ack: _WantsAck = False
    file_id: _FileToSend = ""
    request_id: _RequestId = ""


@_tool("desk basic threads teams", "GET /messages")
class GetMessages(Arguments):
    """Read your messages, newest first. Those that you get count as read from then on."""

    agent_id: _OwnId = ""
    thread_id: str = Field("", description="Only this thread, with your own posts.")
    limit: _Limit = 10
    since: str = Field(
        "", description="Only later ones.", json_schema_extra={"format": "date-time"}
    )
    before: int | None = Field(
        None, ge=0, description="Only older ones: the next_before of the page before."
    )
    unread: bool = Field(False, description="Only unread ones.")
    mark_read: bool = True
    request_id: _RequestId = ""


class _Counted(Arguments):
    """A look at the number of unread messages."""

    def told(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Say how many there are."""
        count = answer["unread"]
        some = (
            f"{count} unread message{'' if count == 1 else 's'}" if count else "no unread messages"
        )
        return {"detail": f"You have {some}.", "unread": count}


@_tool("desk basic threads teams", "GET /messages/unread", reads=True)
class CheckNewMessages(_Counted):
    """Tell how many unread messages you have. It marks nothing as read."""

    agent_id: _OwnId = ""


@_tool("basic threads teams", "GET /messages/unread", reads=True)
class WaitForMail(_Counted):
    """Wait until you have an unread message, or the time is over."""

    agent_id: _OwnId = ""
    seconds: float = Field(60.0, gt=0, le=_LONGEST_WAIT, serialization_alias="wait")

    async def run(self, api: Api, progress: Progress | None) -> dict[str, Any]:
        """Wait, and say so once a second."""
        seconds = 0

        async def tell(progress: Progress) -> None:
            nonlocal seconds
            seconds += 1
            await progress(seconds, "no mail yet")

        asking = self.ask(api, timeout=self.seconds + _MARGIN_SECONDS)
        return self.told(await _watched(asking, progress, tell))


@_tool("threads", "GET /messages/search", reads=True)
class SearchMessages(Arguments):
    """Find messages of yours by their words; get_message has their full text."""

    query: str = Field(
        min_length=1,
        serialization_alias="q",
        description='All of these words; "a phrase", -without, beginning*.',
    )
    agent_id: _OwnId = ""
    thread_id: str = Field("", description="Only this thread.")
    limit: _Limit = 10
    before: int | None = Field(None, ge=0, description="The next_before of the page before.")


@_tool("threads", "GET /messages/{message_id}")
class GetMessage(Arguments):
    """Read one message. It counts as read from then on."""

    message_id: _MessageId

    def told(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Leave out the receipts, which have a tool of their own."""
        return {"message": answer["message"]}


@_tool("desk threads", "POST /messages")
class BroadcastMessage(_Sent):
    """Send one message to several participants, without a thread."""

    sender_id: _OwnId = ""
    recipient_ids: list[str] = Field(fail_fast=True, min_length=1, description="Who gets it.")
    content: _Content
    subject: _Subject = ""
    urgent: _Urgent = False
    wants_ack: _WantsAck = False
    file_id: _FileToSend = ""
    request_id: _RequestId = ""


@_tool("desk threads", "POST /threads")
class CreateThread(Arguments):
    """Create a discussion thread. You are in it in any case; the others get a notice."""

    creator_id: _OwnId = ""
    title: str = Field(min_length=1, description="A line.")
    participants: list[str] = Field(fail_fast=True, description="The ids of those who are in it.")
    initial_message: str = Field("", description="The first message in it.")

    def told(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Say which thread it is, and which its first message."""
        made = {"detail": f"Thread {answer['thread']['id']} created.", "thread": answer["thread"]}
        return made | ({"message_id": answer["message_id"]} if answer["message_id"] else {})


class _Joined(Arguments):
    """A change of who is in a thread."""

    def told(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Say who is in it now."""
        names = ", ".join(answer["thread"]["participants"])
        detail = f"{answer['status'].replace('_', ' ').capitalize()}; in the thread: {names}."
        return {"status": answer["status"], "detail": detail, "thread": answer["thread"]}


@_tool("desk threads", "POST /threads/{thread_id}/join?")
class JoinThread(_Joined):
    """Join a thread."""

    thread_id: _ThreadId
    agent_id: _OwnId = ""


@_tool("threads", "GET /threads", reads=True)
class ListThreads(Arguments):
    """List the threads that you are in, those with the newest messages first."""

    after: str = Field("", description="The next_after of the page before.")


@_tool("desk threads", "GET /threads/{thread_id}", reads=True)
class GetThreadDetails(Arguments):
    """Tell a thread's title, who created it, who is in it, and since when it exists."""

    thread_id: _ThreadId


@_tool("desk threads", "POST /threads/{thread_id}/participants")
class AddParticipantToThread(_Joined):
    """Add a participant to a thread that you are in."""

    thread_id: _ThreadId
    agent_id_to_add: str = Field(min_length=1, description="Who is added.")
    inviting_agent_id: _OwnId = ""


@_tool("desk threads", "DELETE /threads/{thread_id}/participants/{agent_id_to_remove}")
class RemoveParticipantFromThread(Arguments):
    """Leave a thread, or remove somebody from one that you created."""

    thread_id: _ThreadId
    agent_id_to_remove: str = Field(min_length=1, description="Who is removed.")
    removing_agent_id: _OwnId = ""

    def told(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Say who left."""
        who, thread = self.agent_id_to_remove, self.thread_id
        return {"detail": f"{who} is not in thread {thread} any more."}


@_tool("threads", "POST /messages/{message_id}/ack")
class AcknowledgeMessage(Arguments):
    """Acknowledge a message whose sender asks for that."""

    agent_id: _OwnId = ""
    message_id: _MessageId
    note: str = Field("", description="A word to the sender.")


@_tool("threads", "GET /messages/{message_id}", reads=True)
class GetReceipts(Arguments):
    """Tell whether a message of yours was read, acknowledged, answered, and by whom."""

    message_id: _MessageId

    def given(self, *besides: str) -> dict[str, Any]:
        """Mark nothing as read."""
        return super().given(*besides) | {"mark_read": False}

    def told(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return the receipts alone."""
        if answer["receipts"] is None:
            raise ToolError("only the sender of a message sees its receipts")
        return {"receipts": answer["receipts"]}


# --- files --------------------------------------------------------------------------------------


@_tool("desk threads")
class TransferFile(Arguments):
    """Send a file to a participant: from your disk, as base64, or one that you have uploaded."""

    sender_id: _OwnId = ""
    recipient_id: str = Field(min_length=1, description="Who gets it.")
    source_path: str = Field(
        "", description="Its absolute path on your disk; needs `mail mcp --root`."
    )
    content_base64: str = Field("", description="Or its content.")
    file_id: _FileId = Field("", max_length=256, description="Or its id, after POST /files.")
    destination_filename: str = Field(
        "", description="Its name at the recipient, if not that of the path."
    )
    description: str = Field("", description="What you say about it.")

    async def run(self, api: Api, progress: Progress | None) -> dict[str, Any]:
        """Upload the file if need be, and send it; an upload that cannot be sent is deleted."""
        sources = ("source_path", "content_base64", "file_id")
        if len([name for name in sources if getattr(self, name)]) != 1:
            raise ToolError(f"give exactly one of {', '.join(sources)}")
        if self.file_id and self.destination_filename:
            raise ToolError("a file that was uploaded has the name that it was uploaded with")
        upload = self._upload_path if self.source_path else self._upload_text
        place = _file(self.file_id or (await upload(api))["id"])
        body = self.given(*sources, "destination_filename")
        try:
            sent = await api.ask("POST", f"{place}/transfer", json=body)
        except Refused:
            if not self.file_id:  # nobody else knows of it
                with suppress(ToolError):
                    await api.ask("DELETE", place)
            raise
        file, message = sent["file"], sent["message_id"]
        name = file["filename"]
        return {
            "status": "sent",
            "detail": f"File '{name}' sent to {self.recipient_id} in message {message}.",
            "message_id": message,
            "filename": name,
            "server_path": file["uri"],
            "file": file,
        }

    async def _upload_path(self, api: Api) -> dict[str, Any]:
        if api.files is None:
            raise ToolError(
                "source_path is a path on your own disk, which the server cannot read: give "
                "content_base64, or upload the file with POST /files and give its file_id, or use "
                "`mail mcp --root FOLDER`"
            )
        with api.files.reading(self.source_path) as local:
            most = (await api.ask("GET", "/files", params={"limit": "1"}))["max_bytes"]
            if local.size > most:  # while it comes, a server could not say so
                raise ToolError(f"the file has {local.size} bytes; the server takes {most} at most")
            async with aclosing(local.pieces()) as pieces:
                return await api.ask(
                    "POST",
                    "/files",
                    params={"filename": self.destination_filename or local.name},
                    headers={"Content-Length": str(local.size)},
                    content=pieces,
                    timeout=_UPLOAD_SECONDS,
                )

    async def _upload_text(self, api: Api) -> dict[str, Any]:
        try:
            content = base64.b64decode(self.content_base64, validate=True)
        except ValueError:
            raise ToolError("content_base64 is not base64") from None
        name = {"filename": self.destination_filename} if self.destination_filename else {}
        return await api.ask("POST", "/files", params=name, content=content)


@_tool("threads")
class GetFile(Arguments):
    """Get a file of yours or one that a message carries: small ones here, any into save_as."""

    file_id: _FileId = Field(min_length=1, max_length=256, description="mail://files/ID")
    save_as: str = Field("", description="An absolute path on your disk; needs `mail mcp --root`.")

    async def run(self, api: Api, progress: Progress | None) -> dict[str, Any]:
        """Return a small file, or save one of any size."""
        if not self.save_as:
            file, content = await small_file(api, self.file_id)
            text = text_of(content)
            if text is not None:
                return {"file": file, "text": text}
            return {"file": file, "content_base64": base64.b64encode(content).decode()}
        place = _file(self.file_id)
        file = await api.ask("GET", f"{place}/meta")
        if api.files is None:
            raise ToolError("save_as is a path on your own disk; use `mail mcp --root FOLDER`")
        async with api.download(place) as pieces:
            await api.files.save(self.save_as, pieces, file["sha256"])
        return {"file": file, "saved_as": self.save_as}


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


def text_of(content: bytes) -> str | None:
    """Return a content as text, if it is one."""
    with suppress(UnicodeDecodeError):
        text = content.decode()
        if "\0" not in text:
            return text
    return None


def _file(file_id: str) -> str:
    return f"/files/{id_in_path(file_id, 'file')}"


# --- teams, and who there is --------------------------------------------------------------------


_TeamId = Annotated[
    str, Field(min_length=1, max_length=256, alias="teamId", description="The team's id.")
]
_Priority = Annotated[
    Literal["normal", "urgent"], Field(description="urgent: it wants attention at once.")
]


@_tool("teams", "GET /teams", reads=True)
class ListTeams(Arguments):
    """List the teams that you are in: their ids, leads and members."""


class _ToTeam(Arguments):
    """A message to a team; what the API refuses has the documented form of these tools."""

    async def ask(self, api: Api, **options: Any) -> dict[str, Any]:
        """Send it."""
        try:
            return await super().ask(api, **options)
        except Refused as error:
            raise ToolError(to_json({"status": "error", "error": str(error)}).decode()) from None


@_tool("teams", "POST /teams/{teamId}/messages")
class TeammateMessage(_ToTeam):
    """Send a direct message to a specific teammate in your team."""

    team_id: _TeamId
    to: str = Field(min_length=1, description="The teammate's id, or lead.")
    message: _Content
    priority: _Priority = "normal"
    wait_for_reply: bool = Field(
        False, alias="waitForReply", description="Wait for the teammate's reply."
    )
    timeout_seconds: float = Field(
        60.0, ge=0, le=_LONGEST_WAIT, alias="timeoutSeconds", description="Seconds to wait."
    )

    async def run(self, api: Api, progress: Progress | None) -> dict[str, Any]:
        """Send it; wait for the reply if that is wanted."""
        waits = {"timeout": self.timeout_seconds + _MARGIN_SECONDS} if self.wait_for_reply else {}
        return await self.ask(api, **waits)


@_tool("teams", "POST /teams/{teamId}/broadcasts")
class TeammateBroadcast(_ToTeam):
    """Send a message to all active teammates in your team."""

    team_id: _TeamId
    message: _Content
    priority: _Priority = "normal"
    exclude_self: bool = Field(False, alias="excludeSelf", description="Send yourself no copy.")


@_tool("threads", "GET /messages/overdue", reads=True)
class ListOverdue(Arguments):
    """List messages of yours that nobody has acknowledged or answered, though they ask for it."""

    older_than: float = Field(
        0.0, ge=0, le=10**9, description="Only those sent so many seconds ago."
    )


@_tool("basic threads teams", "GET /participants", reads=True)
class ListParticipants(Arguments):
    """List the participants and agents that you can write to, with what they are for."""


# --- tasks --------------------------------------------------------------------------------------


@_tool("tasks")
class SubmitTask(Arguments):
    """Give the swarm a task, or write to one that you have given it."""

    message: str = Field(min_length=1, description="What is to be done.")
    task_id: str = Field(
        "", max_length=256, description="A task of yours to go on with; else a new one."
    )
    agent: str = Field("", max_length=256, description="The agent to ask, if not the usual one.")
    wait_seconds: _Wait = 60.0
    request_id: _RequestId = ""

    async def run(self, api: Api, progress: Progress | None) -> dict[str, Any]:
        """Post the message and wait."""
        body = {"body": self.message, "task_id": self.task_id or str(uuid.uuid4())}
        if self.task_id and await _state(api, self.task_id) != _RUNNING:
            body["resume_from"] = "user_response"
        if self.agent:
            body["entrypoint"] = self.agent
        headers = {"Idempotency-Key": self.request_id} if self.request_id else {}
        if self.request_id and not self.task_id:  # a repeat must be the same request
            body["task_id"] = str(uuid.uuid5(uuid.NAMESPACE_URL, f"mail:{self.request_id}"))
        return await _posted(api, body, self.wait_seconds, progress, headers)


@_tool("tasks", reads=True)
class GetTask(Arguments):
    """Tell how a task is: its state, its answer, what waits for you, its newest events."""

    task_id: _TaskId
    wait_seconds: _Wait = 0.0
    events: int = Field(10, ge=0, le=100, description="How many events to show.")

    async def run(self, api: Api, progress: Progress | None) -> dict[str, Any]:
        """Wait until it runs no more, for so long, and tell how it is then."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self.wait_seconds
        while await _state(api, self.task_id) == _RUNNING and loop.time() < until:
            await asyncio.sleep(min(_LOOK_SECONDS, until - loop.time()))
            if progress is not None:
                await _tell(api, self.task_id, progress)
        record = await _record(api, self.task_id, self.events)
        names = ("task_id", "status", "ended_by", "title", "waiting_for")
        shown = {name: record.get(name) for name in names}
        shown["answer"] = await _last_answer(api, record)
        shown["breakpoints"] = record.get("breakpoints")
        shown["events"] = [_line(event) for event in record["events"]]
        return {name: value for name, value in shown.items() if value not in (None, [], "")}


@_tool("tasks", "GET /tasks", reads=True)
class ListTasks(Arguments):
    """List your tasks, newest first."""

    limit: _Limit = 10
    cursor: str = Field("", description="The next_cursor of the page before.")

    def given(self, *besides: str) -> dict[str, Any]:
        """Leave out the events."""
        return super().given(*besides) | {"events": False}

    def told(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return a few fields of each."""
        shown = ("task_id", "status", "title", "start_time")
        tasks = [{name: task.get(name) for name in shown} for task in answer["tasks"].values()]
        return {"tasks": tasks, "next_cursor": answer["next_cursor"]}


@_tool("tasks")
class AnswerBreakpoint(Arguments):
    """Give the result of a tool call that a paused task waits for."""

    task_id: _TaskId
    call_id: str = Field(min_length=1, description="The call, as get_task shows it.")
    result: str = Field(description="What the call gave.")
    wait_seconds: _Wait = 60.0

    async def run(self, api: Api, progress: Progress | None) -> dict[str, Any]:
        """Resume the task and wait."""
        result = {"call_id": self.call_id, "content": self.result}
        body = {
            "task_id": self.task_id,
            "resume_from": "breakpoint_tool_call",
            "kwargs": {"breakpoint_tool_call_result": result},
        }
        return await _posted(api, body, self.wait_seconds, progress)


@_tool("tasks", "GET /approvals", reads=True)
class ListApprovals(Arguments):
    """List tool calls of agents that wait for your approval, newest first."""

    status: Literal[
        "open", "accepted", "edited", "ignored", "responded", "cancelled", "expired", "all"
    ] = "open"
    task_id: str = Field("", max_length=256, description="Only of this task.")
    limit: int = Field(10, ge=1, le=50)
    cursor: str = Field("", description="next_cursor of the page before.")


@_tool("tasks", "POST /approvals/{approval_id}")
class AnswerApproval(Arguments):
    """Answer such a call: accept runs it, ignore ends the task, response is its result."""

    approval_id: str = Field(min_length=1, max_length=64)
    type: Literal["accept", "edit", "ignore", "response"]
    args: dict[str, Any] | str | None = Field(
        None, description='For edit {"action": its name, "args": {all}}, for response the text.'
    )

    def given(self, *besides: str) -> dict[str, Any]:
        """Keep a response without text."""
        return super().given(*besides) | {"args": self.args}


@_tool("tasks")
class InterruptAgent(Arguments):
    """Interrupt an agent at work on a task of yours: it reads this before anything else."""

    task_id: _TaskId
    message: str = Field(min_length=1)
    agent: _Agent = ""

    async def run(self, api: Api, progress: Progress | None) -> dict[str, Any]:
        """Post the message, unless nobody is at work."""
        state = await _state(api, self.task_id)
        if state != _RUNNING:
            raise ToolError(
                f"the task is not running, it is {state}; use submit_task to go on with it"
            )
        body = {"body": self.message, "task_id": self.task_id, "msg_type": "interrupt"}
        if self.agent:
            body["entrypoint"] = self.agent
        return await _posted(api, body, 0.0, progress)


@_tool("tasks", "POST /tasks/{task_id}/cancel?")
class CancelTask(Arguments):
    """Stop a task of yours. A later message can continue it."""

    task_id: _TaskId

    def told(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return its state."""
        return {"task_id": answer["task_id"], "status": answer["status"]}


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
    return "\n".join(map(_line, record["events"]))


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
