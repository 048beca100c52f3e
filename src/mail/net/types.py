"""The JSON answers of the server, as typed dictionaries.

The descriptions and constraints of the fields are what ``GET /openapi.yaml`` says about them.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from mail.core.addresses import MAILAddress
from mail.core.events import EVENT_KINDS, STREAM_KINDS
from mail.core.schema import TaskId
from mail.core.wire import MAILMessage
from mail.db.records import OutboxRow, Owner
from mail.db.webhooks import WebhookRow

UNADDRESSABLE: Final = re.compile(r"(?:^|/)\.\.?(?:/|$)|/(?:events|set-aside(?:/[^/]+)?)$")
"""Ids of tasks whose path is of something else: a part of another task, or what dots lead to."""


def _require_all(schema: dict[str, Any]) -> None:
    """Mark fields as required that this server always sends; servers of MAIL 1.3.6 do not."""
    sometimes = ("arguments_left_out", "events_omitted")
    schema["required"] = [name for name in schema["properties"] if name not in sometimes]


_CLOSED: Final = ConfigDict(extra="forbid")
_COMPLETE: Final = ConfigDict(extra="forbid", json_schema_extra=_require_all)
_JSON: Final[Mapping[str, Any]] = {"contentMediaType": "application/json"}

Instant = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
Count = Annotated[int, Field(ge=0)]
EndedBy = Annotated[
    Literal["step_limit"] | None,
    Field(description="`step_limit` if the limit of messages ended the run. Otherwise null."),
]
EventKind = Annotated[
    str, Field(description="The kind of event.", json_schema_extra={"enum": sorted(EVENT_KINDS)})
]
EventNumber = Annotated[str, Field(pattern="^[0-9]+$")]


@with_config(_CLOSED)
class SwarmInfo(TypedDict):
    """The information that a swarm gives about itself."""

    name: Annotated[str, Field(description="The name of the swarm.")]
    version: Annotated[str, Field(description="The version in its definition.")]
    description: Annotated[str, Field(description="What the swarm is for.")]
    entrypoint: Annotated[str, Field(description="The agent that users talk to.")]
    keywords: Annotated[list[str], Field(description="Search terms.")]
    public: Annotated[bool, Field(description="Whether the swarm wants to be listed.")]


@with_config(_COMPLETE)
class GetRootResponse(TypedDict):
    """The server, its version and the swarm that it serves."""

    name: Annotated[Literal["mail"], Field(description="The name of the protocol.")]
    version: NotRequired[Annotated[str, Field(description="The version of the server.")]]
    protocol_version: Annotated[str, Field(description="The version of the MAIL protocol.")]
    swarm: Annotated[SwarmInfo, Field(description="The swarm that is served.")]
    status: Annotated[
        Literal["running", "draining"],
        Field(description="`draining` while the server shuts down, otherwise `running`."),
    ]
    uptime: Annotated[float, Field(ge=0, description="Seconds since the server started.")]


@with_config(_CLOSED)
class GetHealthResponse(TypedDict):
    """The health of the server."""

    status: Annotated[
        str,
        Field(
            description="`healthy`, or the text that an administrator has set; `degraded` while "
            "the store fails, `draining` while the server shuts down."
        ),
    ]
    swarm_name: Annotated[str, Field(description="The swarm that is served.")]
    timestamp: Annotated[Instant, Field(description="When the status was set.")]


@with_config(ConfigDict(extra="forbid", json_schema_extra={"required": ["id", "role", "username"]}))
class GetWhoamiResponse(TypedDict):
    """The caller, as its token says."""

    id: Annotated[str, Field(description="The id of the caller.")]
    role: Annotated[
        str,
        Field(
            description="The role of the caller; `agent` for participants.",
            json_schema_extra={"enum": ["admin", "user", "agent"]},
        ),
    ]
    username: NotRequired[Annotated[str, Field(description="The same as `id`.")]]
    participant: NotRequired[
        Annotated[
            bool,
            Field(description="True for a participant of the swarm; absent for everybody else."),
        ]
    ]


@with_config(_CLOSED)
class SwarmStatus(TypedDict):
    """The state of the swarm."""

    name: Annotated[str | None, Field(description="The swarm that is served.")]
    status: Annotated[str, Field(description="Always `ready`.")]


@with_config(_CLOSED)
class StorageUse(TypedDict):
    """A caller's storage in the swarm: tasks, memories and idempotency keys.

    A limit is null when there is none.
    """

    bytes: Annotated[Count, Field(description="About how much all of that takes.")]
    max_bytes: Annotated[Count | None, Field(description="`[server.limits] max_stored_bytes`.")]
    tasks: Annotated[Count, Field(description="How many tasks there are.")]
    open_tasks: Annotated[Count, Field(description="Those that run, wait or are paused.")]


class GetStatusResponse(TypedDict):
    """The state of the swarm, and of the caller's tasks in it."""

    swarm: Annotated[SwarmStatus, Field(description="The swarm.")]
    active_users: Annotated[
        Count, Field(description="How many callers have tasks that run or wait for their turn.")
    ]
    user_mail_ready: Annotated[
        bool, Field(description="Whether a message of the caller would be processed now.")
    ]
    user_task_running: Annotated[
        bool, Field(description="Whether the caller has a task that runs or waits for its turn.")
    ]
    storage: Annotated[StorageUse, Field(description="What the caller stores.")]


@with_config(_CLOSED)
class NodeRecord(TypedDict):
    """A process of the server. Those on one PostgreSQL database share its tasks."""

    id: Annotated[str, Field(description="Its name, another one after each start.")]
    host: Annotated[str, Field(description="Its machine.")]
    pid: Annotated[int, Field(description="Its process id there.")]
    version: Annotated[str, Field(description="The version of the package.")]
    swarm: Annotated[
        str, Field(description="The swarm it was started with; empty for a program of one's own.")
    ]
    uptime: Annotated[float, Field(description="Seconds since its start.")]
    silence: Annotated[
        float, Field(description="Seconds since its last sign of life; it counts as dead after 6.")
    ]
    tasks: Annotated[Count, Field(description="How many running tasks it works on.")]


class GetNodesResponse(TypedDict):
    """The processes of the server."""

    nodes: Annotated[list[NodeRecord], Field(description="The processes, oldest first.")]


class GetReadyResponse(TypedDict):
    """Whether the server should get work."""

    status: Annotated[Literal["ready", "not ready"], Field(description="Whether it should.")]
    reasons: Annotated[list[str], Field(description="Why not.")]


@with_config(_COMPLETE)
class BreakpointCall(TypedDict):
    """A tool call that waits for its result from outside."""

    id: Annotated[str, Field(description="Names the call when its result is posted.")]
    name: Annotated[str, Field(description="The tool.")]
    arguments: Annotated[str, Field(description="The arguments, as JSON text.")]
    call_id: NotRequired[Annotated[str, Field(description="The same as `id`.")]]
    type: NotRequired[Annotated[str, Field(description="Always `function_call`.")]]
    status: NotRequired[Annotated[str, Field(description="Always `completed`.")]]
    arguments_left_out: NotRequired[
        Annotated[
            Literal[True],
            Field(description="In lists: the arguments are long, and only the task has them."),
        ]
    ]


@with_config(ConfigDict(extra="allow"))
class EventData(TypedDict):
    """The content of an event. Events that end a run also have the fields of the answer."""

    timestamp: Annotated[Instant, Field(description="When it happened.")]
    task_id: Annotated[TaskId, Field(description="The task.")]
    description: Annotated[str, Field(description="What happened, for people.")]
    extra_data: Annotated[
        dict[str, Any],
        Field(description="What happened, for programs. The fields depend on the kind of event."),
    ]


@with_config(_CLOSED)
class ServerEvent(TypedDict):
    """One event of a task."""

    event: EventKind
    id: Annotated[
        EventNumber | None, Field(description="The number of the event in its task, from 1.")
    ]
    retry: Annotated[int | None, Field(description="Always null.")]
    data: Annotated[EventData, Field(description="The content of the event.")]


@with_config(_CLOSED)
class LoggedEvent(TypedDict):
    """One event in the record of a task."""

    event: EventKind
    id: Annotated[
        EventNumber | None, Field(description="The number of the event in its task, from 1.")
    ]
    retry: Annotated[int | None, Field(description="Always null.")]
    data: Annotated[
        str, Field(description="An `EventData` object, as JSON text.", json_schema_extra={**_JSON})
    ]


@with_config(_CLOSED)
class StreamEvent(TypedDict):
    """One server-sent event.

    `data` is an `EventData` object as JSON text. The exceptions are the kinds without an `id`:
    `ping` is a heartbeat with `timestamp` and `task_id`, `model_delta` is a piece of a model's
    reply, and `server_drain` is the last event of a server that shuts down.
    """

    event: Annotated[
        str,
        Field(
            description="The kind of event.",
            json_schema_extra={"enum": sorted(EVENT_KINDS | STREAM_KINDS)},
        ),
    ]
    data: Annotated[
        str,
        Field(description="The content, as one line of JSON.", json_schema_extra={**_JSON}),
    ]
    id: NotRequired[
        Annotated[EventNumber, Field(description="The number of the event in its task, from 1.")]
    ]
    retry: NotRequired[
        Annotated[
            int,
            Field(description="Milliseconds to wait before reconnecting; on the first event."),
        ]
    ]


@with_config(_CLOSED)
class TokenUsage(TypedDict):
    """The tokens that model calls have used."""

    calls: Annotated[Count, Field(description="The number of calls.")]
    prompt_tokens: Annotated[Count, Field(description="Tokens sent to models.")]
    completion_tokens: Annotated[Count, Field(description="Tokens that models returned.")]
    total_tokens: Annotated[Count, Field(description="The sum of both.")]
    cached_tokens: Annotated[
        Count, Field(description="Those of `prompt_tokens` that the provider had cached.")
    ]
    reasoning_tokens: Annotated[
        Count, Field(description="Those of `completion_tokens` that were reasoning.")
    ]
    cost: NotRequired[
        Annotated[float, Field(description="US dollars, if the price of any call is known.")]
    ]


@with_config(_CLOSED)
class TaskUsage(TypedDict):
    """The tokens that the model calls of a task have used."""

    total: Annotated[TokenUsage, Field(description="The whole task.")]
    agents: Annotated[
        dict[str, TokenUsage], Field(description="Each agent that has called a model.")
    ]


@with_config(_COMPLETE)
class PostMessageResponse(TypedDict):
    """The end of a run, or the point where it paused."""

    response: Annotated[
        str, Field(description="The answer. At a pause: the open calls, as JSON text.")
    ]
    events: Annotated[
        list[ServerEvent] | None,
        Field(description="With `show_events`: all events of the task. Otherwise null."),
    ]
    task_id: NotRequired[Annotated[TaskId, Field(description="The task.")]]
    subject: NotRequired[
        Annotated[
            str, Field(description="The subject of the answer, for example `::task_complete::`.")
        ]
    ]
    status: NotRequired[
        Annotated[
            Literal["completed", "paused", "cancelled"], Field(description="How the run ended.")
        ]
    ]
    breakpoints: NotRequired[
        Annotated[list[BreakpointCall], Field(description="The calls that wait for results.")]
    ]
    ended_by: NotRequired[EndedBy]


class PostMessageAccepted(TypedDict):
    """A message that is stored; its run goes on."""

    task_id: Annotated[TaskId, Field(description="The task.")]
    status: Annotated[Literal["running"], Field(description="What the task does.")]


@with_config(_COMPLETE)
class TaskRecord(TypedDict):
    """A task and a page of its events; in lists all of them or none, after a cancellation none."""

    task_id: Annotated[TaskId, Field(description="The task.")]
    task_owner: Annotated[str, Field(description="The owner, as `role:id@swarm`.")]
    via: NotRequired[Annotated[str | None, Field(description="The swarm that it came from.")]]
    task_contributors: Annotated[
        list[str], Field(description="The participants, each as `role:id@swarm`.")
    ]
    start_time: Annotated[Instant, Field(description="When the task began.")]
    events: Annotated[
        list[LoggedEvent],
        Field(
            description="A page of the event log, oldest first; in lists all of it or nothing; "
            "empty after a cancellation."
        ),
    ]
    events_omitted: NotRequired[
        Annotated[Literal[True], Field(description="In lists: that the events are left out.")]
    ]
    event_count: NotRequired[Annotated[Count, Field(description="The length of the event log.")]]
    next_after: NotRequired[
        Annotated[
            Annotated[int, Field(ge=0)] | None,
            Field(description="The `after` of the next page of events; null after the last."),
        ]
    ]
    is_running: Annotated[bool, Field(description="Whether its mail is being processed.")]
    completed: Annotated[bool, Field(description="Whether its last run ended with an answer.")]
    status: NotRequired[
        Annotated[
            Literal["running", "paused", "completed", "failed", "cancelled"],
            Field(description="The state of the task."),
        ]
    ]
    task_message_queue: Annotated[
        list[MAILMessage],
        Field(
            description="The first of the messages that wait until the task continues, at most "
            "about 1 MiB; empty in lists and after a cancellation."
        ),
    ]
    task_message_count: NotRequired[
        Annotated[Count, Field(description="How many undelivered messages there are.")]
    ]
    remote_swarms: Annotated[list[str], Field(description="Other swarms that take part.")]
    waiting_for: NotRequired[
        Annotated[
            list[str],
            Field(
                description="Agents of other swarms (agent@swarm), and participants, whose answers "
                "are expected."
            ),
        ]
    ]
    breakpoints: NotRequired[
        Annotated[list[BreakpointCall], Field(description="The calls that wait for results.")]
    ]
    title: Annotated[str | None, Field(description="The title, if the task has one.")]
    usage: NotRequired[
        Annotated[TaskUsage, Field(description="What its model calls have used so far.")]
    ]
    ended_by: NotRequired[EndedBy]


@with_config(_CLOSED)
class TaskPage(TypedDict):
    """A page of the caller's tasks, newest first."""

    tasks: Annotated[dict[str, TaskRecord], Field(description="The tasks, by id.")]
    next_cursor: Annotated[
        str | None, Field(description="The `cursor` of the next page; null on the last page.")
    ]


@with_config(_CLOSED)
class OwnedTaskRecord(TaskRecord):
    """A task of some caller."""

    owner: Annotated[str, Field(description="Whose task it is, as `role:id`.")]


@with_config(_CLOSED)
class GetAdminTasksResponse(TypedDict):
    """A page of the tasks of all callers, newest first."""

    tasks: Annotated[
        list[OwnedTaskRecord],
        Field(description="The tasks. A search may find fewer than the page has room for."),
    ]
    next_cursor: Annotated[
        str | None, Field(description="The `cursor` of the next page; null on the last page.")
    ]


@with_config(_CLOSED)
class TokenRecord(TypedDict):
    """An access token; the token itself is not kept."""

    hash: Annotated[str, Field(description="The beginning of its SHA-256, which names it.")]
    role: Annotated[Literal["admin", "user", "agent"], Field(description="The caller's role.")]
    id: Annotated[str, Field(description="The caller's id.")]
    label: Annotated[str, Field(description="A note for people.")]
    state: Annotated[
        Literal["valid", "expired", "revoked"], Field(description="Whether it still lets in.")
    ]
    kind: Annotated[
        Literal["participant", "peer"] | None,
        Field(description="What a token of the role `agent` is for; null for other roles."),
    ]
    created_at: Annotated[Instant, Field(description="When it was made.")]
    expires_at: Annotated[Instant | None, Field(description="When it expires; null for never.")]
    revoked_at: Annotated[Instant | None, Field(description="When it was revoked.")]


@with_config(_CLOSED)
class GetTokensResponse(TypedDict):
    """A page of the tokens, newest first."""

    tokens: Annotated[list[TokenRecord], Field(description="The tokens.")]
    next_cursor: Annotated[
        str | None, Field(description="The `cursor` of the next page; null on the last page.")
    ]


@with_config(_CLOSED)
class PostTokensResponse(TokenRecord):
    """A new token."""

    token: Annotated[str, Field(description="The token. It is not shown again.")]


@with_config(_CLOSED)
class GraphAgent(TypedDict):
    """An agent of the served swarm."""

    name: Annotated[str, Field(description="Its name.")]
    comm_targets: Annotated[list[str], Field(description="The agents that it may write to.")]
    enable_entrypoint: Annotated[bool, Field(description="Whether it takes mail of users.")]
    enable_interswarm: Annotated[bool, Field(description="Whether it writes to other swarms.")]
    can_complete_tasks: Annotated[bool, Field(description="Whether it may end tasks.")]
    turns: Annotated[Count, Field(description="How many turns it is in at the moment.")]
    queues: Annotated[
        dict[str, Annotated[int, Field(ge=1)]],
        Field(description="How much mail waits for it, by tier; the lowest tier goes first."),
    ]


@with_config(_CLOSED)
class GraphSwarm(TypedDict):
    """Another swarm, and how its server is."""

    swarm_name: Annotated[str, Field(description="The name of the swarm.")]
    is_active: Annotated[bool, Field(description="Whether it answered the last health check.")]
    latency: Annotated[float | None, Field(description="Seconds that the last health check took.")]
    last_seen: Annotated[Instant | None, Field(description="When it last answered.")]


@with_config(_CLOSED)
class GetSwarmGraphResponse(TypedDict):
    """The agents of the served swarm and what they are doing."""

    swarm_name: Annotated[str, Field(description="The swarm.")]
    entrypoint: Annotated[str, Field(description="The agent that gets mail by default.")]
    scope: Annotated[
        Literal["own", "all"],
        Field(description="Whose turns and mail are counted: the caller's, or all callers'."),
    ]
    agents: Annotated[list[GraphAgent], Field(description="The first 200 agents.")]
    agent_count: Annotated[Count, Field(description="How many agents there are.")]
    participants: Annotated[
        list[str], Field(description="The first 200 of those who have a mailbox.")
    ]
    swarms: Annotated[
        list[GraphSwarm],
        Field(
            description="The first 200 other swarms: public ones for users, all for administrators."
        ),
    ]


@with_config(_CLOSED)
class ApprovalRequest(TypedDict):
    """The call that an agent wants to make."""

    action: Annotated[str, Field(description="The tool.")]
    args: Annotated[dict[str, Any], Field(description="Its arguments.")]


@with_config(_CLOSED)
class ApprovalConfig(TypedDict):
    """The answers that a call allows."""

    allow_accept: Annotated[bool, Field(description="Run it as it is.")]
    allow_edit: Annotated[bool, Field(description="Run it with other arguments.")]
    allow_ignore: Annotated[bool, Field(description="Leave it out, which ends the workflow.")]
    allow_respond: Annotated[bool, Field(description="Give a text as its result.")]


@with_config(_CLOSED)
class ApprovalAnswer(TypedDict):
    """An answer as it was taken."""

    type: Annotated[
        Literal["accept", "edit", "ignore", "response"], Field(description="What was to be done.")
    ]
    args: Annotated[
        ApprovalRequest | str | None,
        Field(description="The edited call, the text of a response, or null."),
    ]


@with_config(_CLOSED)
class ApprovalOwner(TypedDict):
    """The caller who has started a task."""

    role: Annotated[str, Field(description="The owner's role.")]
    id: Annotated[str, Field(description="The owner's id.")]


@with_config(_CLOSED)
class Approval(TypedDict):
    """A call that waits for a person, or did."""

    approval_id: Annotated[str, Field(description="Its id.")]
    kind: Annotated[
        Literal["approval", "breakpoint"],
        Field(description="`breakpoint` for the call of a breakpoint tool."),
    ]
    task_id: Annotated[TaskId, Field(description="The task.")]
    agent: Annotated[str, Field(description="The agent whose call it is.")]
    call_id: Annotated[str, Field(description="The id of the call within the task.")]
    owner: Annotated[ApprovalOwner, Field(description="Whose task it is.")]
    status: Annotated[
        Literal["open", "accepted", "edited", "ignored", "responded", "cancelled", "expired"],
        Field(
            description="`cancelled` when the task ended, or was ended by the answer to another "
            "call, before this one was answered or run."
        ),
    ]
    created_at: Annotated[str, Field(description="When the agent made the call.")]
    expires_at: Annotated[str | None, Field(description="Until when it can be answered.")]
    action_request: Annotated[ApprovalRequest, Field(description="The call as the agent made it.")]
    config: Annotated[ApprovalConfig, Field(description="Which answers are allowed.")]
    approvers: Annotated[
        list[str],
        Field(
            description="Who may answer it: `owner`, `admin`, `user:ID`, `participant:NAME`.",
            examples=[["owner", "admin"]],
        ),
    ]
    description: Annotated[str, Field(description="What it is about, in Markdown.")]
    answer: Annotated[ApprovalAnswer | None, Field(description="The answer.")]
    answered_by: Annotated[
        str | None, Field(description="Who gave it, as `role:id`.", examples=["user:alice"])
    ]
    answered_at: Annotated[str | None, Field(description="When it was closed.")]


@with_config(_CLOSED)
class GetApprovalsResponse(TypedDict):
    """A page of calls that wait for a person."""

    approvals: Annotated[list[Approval], Field(description="Newest first.")]
    next_cursor: Annotated[
        str | None, Field(description="The `cursor` of the next page; null on the last one.")
    ]


@with_config(_CLOSED)
class ApprovedTask(TypedDict):
    """The task of an answered call."""

    task_id: Annotated[TaskId, Field(description="The task.")]
    status: Annotated[
        Literal["running", "paused", "completed", "failed", "cancelled"],
        Field(description="Its state once the answer was stored."),
    ]


@with_config(_CLOSED)
class PostApprovalResponse(TypedDict):
    """The answer is stored."""

    approval: Annotated[Approval, Field(description="The approval, which is closed.")]
    task: Annotated[ApprovedTask, Field(description="Its task.")]


@with_config(_CLOSED)
class LoginResponse(TypedDict):
    """The token to call with."""

    token: Annotated[str, Field(description="The key that was presented; it serves as token.")]


@with_config(_CLOSED)
class TokenInfo(TypedDict):
    """The caller that a token stands for."""

    role: Annotated[
        str,
        Field(
            description="The caller's role.",
            json_schema_extra={"enum": ["admin", "user", "agent"]},
        ),
    ]
    id: Annotated[str, Field(description="The caller's id.")]
    api_key: Annotated[str, Field(description="The token.")]


@with_config(_CLOSED)
class FieldProblem(TypedDict):
    """The fault of one field of a request."""

    field: Annotated[str, Field(description="The path of the field, with dots between its parts.")]
    problem: Annotated[str, Field(description="What is wrong with it.")]


@with_config(_CLOSED)
class ErrorAnswer(TypedDict):
    """An error. Every error has this shape."""

    detail: Annotated[str, Field(description="What is wrong, and what to change.")]
    errors: Annotated[
        list[FieldProblem], Field(description="One entry per wrong field; often empty.")
    ]
    task_id: NotRequired[Annotated[str, Field(description="The task that the request concerned.")]]
    code: NotRequired[
        Annotated[
            Literal["misdirected", "unknown_task"],
            Field(description="The kind of error, where programs have to know it."),
        ]
    ]
    request_id: NotRequired[
        Annotated[str, Field(description="Finds the cause in the server's log.")]
    ]


class OpenAIError(TypedDict):
    """An error in OpenAI's format."""

    message: Annotated[str, Field(description="What is wrong, and what to change.")]
    type: Annotated[str, Field(description="The kind of error.")]
    param: Annotated[str | None, Field(description="The field that is wrong, if it is one.")]
    code: Annotated[str | None, Field(description="OpenAI's code for it, if there is one.")]


@with_config(_CLOSED)
class OpenAIErrorAnswer(TypedDict):
    """An error below `/v1`. Every one has this shape."""

    error: Annotated[OpenAIError, Field(description="What went wrong.")]
    detail: Annotated[str, Field(description="The message again.")]


@with_config(_COMPLETE)
class PublicKey(TypedDict):
    """A public key for signatures, as a JSON Web Key (RFC 8037)."""

    kty: Annotated[Literal["OKP"], Field(description="The kind of key.")]
    crv: Annotated[Literal["Ed25519"], Field(description="The curve.")]
    x: Annotated[str, Field(description="The key: 32 bytes in base64url.")]
    kid: Annotated[str, Field(description="Its thumbprint (RFC 7638), which names it.")]


@with_config(_COMPLETE)
class GetWellKnownResponse(TypedDict):
    """The server's swarm and keys, for servers of other swarms."""

    protocol_version: Annotated[str, Field(description="The version of the MAIL protocol.")]
    swarm_name: Annotated[str, Field(description="The swarm that is served.")]
    base_url: Annotated[str, Field(description="Where other swarms reach the server.")]
    keys: Annotated[
        list[PublicKey],
        Field(description="The keys with which it signs its mail; none if it does not."),
    ]


class SwarmEndpoint(TypedDict):
    """One entry of a registry.

    ``auth_token_ref`` is ``${SWARM_AUTH_TOKEN_<NAME>}``, or the token itself in the memory of the
    process that was given it. ``latency`` is in seconds. ``volatile`` entries end with the process.
    ``public_keys`` are those with which the swarm must sign its mail; without them it need not.
    """

    swarm_name: str
    base_url: str
    version: str
    health_check_url: str
    auth_token_ref: str | None
    last_seen: datetime | None
    is_active: bool
    latency: float | None
    swarm_description: str
    keywords: list[str]
    metadata: dict[str, Any] | None
    public: bool
    volatile: bool
    public_keys: NotRequired[list[PublicKey]]


@with_config(_COMPLETE)
class SwarmEndpointCleaned(TypedDict):
    """The public facts about a registered swarm."""

    swarm_name: Annotated[str, Field(description="The name of the swarm.")]
    base_url: Annotated[str, Field(description="Where its server is.")]
    version: Annotated[str, Field(description="The protocol version that it speaks.")]
    last_seen: Annotated[Instant | None, Field(description="When it last answered.")]
    is_active: Annotated[bool, Field(description="Whether it answered the last health check.")]
    latency: Annotated[
        NotRequired[float | None], Field(description="Seconds that the last health check took.")
    ]
    swarm_description: Annotated[str, Field(description="What the swarm is for.")]
    keywords: Annotated[list[str], Field(description="Search terms.")]
    metadata: Annotated[
        dict[str, Any] | None, Field(description="What was stored with the registration.")
    ]
    public_keys: Annotated[
        NotRequired[list[PublicKey]],
        Field(description="The keys with which it must sign its mail; with none it need not."),
    ]


@with_config(_CLOSED)
class RegisteredSwarm(SwarmEndpointCleaned):
    """The facts about a registered swarm that administrators see."""

    public: Annotated[bool, Field(description="Whether `GET /swarms` lists it.")]
    volatile: Annotated[bool, Field(description="Whether it is forgotten when the server stops.")]
    token_variable: Annotated[
        str | None,
        Field(description="The environment variable for its token; null for the own swarm."),
    ]
    has_token: Annotated[bool, Field(description="Whether the server knows a token for it.")]


@with_config(_CLOSED)
class ProposedSwarm(TypedDict):
    """A swarm that another server listed, and that nobody has accepted yet."""

    swarm_name: Annotated[str, Field(description="The name it was listed under.")]
    base_url: Annotated[str, Field(description="Where its server is said to be.")]
    swarm_description: Annotated[str, Field(description="What it is said to be for.")]
    keywords: Annotated[list[str], Field(description="Search terms.")]
    listed_by: Annotated[str, Field(description="The server that listed it.")]


@with_config(_CLOSED)
class GetSwarmsResponse(TypedDict):
    """The public swarms."""

    swarms: Annotated[list[SwarmEndpointCleaned], Field(description="The server's own is first.")]


@with_config(_CLOSED)
class GetRegistryResponse(TypedDict):
    """The whole registry."""

    swarms: Annotated[list[RegisteredSwarm], Field(description="The server's own is first.")]
    proposed: Annotated[list[ProposedSwarm], Field(description="Swarms that wait for approval.")]


@with_config(_CLOSED)
class PostSwarmsResponse(TypedDict):
    """The swarm was registered."""

    status: Annotated[Literal["registered"], Field(description="Always `registered`.")]
    swarm_name: Annotated[str, Field(description="The registered swarm.")]


@with_config(_CLOSED)
class DeleteSwarmResponse(TypedDict):
    """The swarm, or its proposal, was removed."""

    status: Annotated[Literal["removed"], Field(description="Always `removed`.")]
    swarm_name: Annotated[str, Field(description="The removed swarm.")]
    open_tasks: Annotated[Count, Field(description="Its tasks that are still open here.")]


@with_config(_CLOSED)
class PostSwarmsDiscoverResponse(TypedDict):
    """The swarms that were found."""

    proposed: Annotated[list[str], Field(description="The swarms that wait for approval now.")]
    problems: Annotated[
        list[FieldProblem], Field(description="What could not be used: where, and why.")
    ]


@with_config(_CLOSED)
class GetSwarmsDumpResponse(TypedDict):
    """The swarm was written to the log."""

    status: Annotated[Literal["dumped"], Field(description="Always `dumped`.")]
    swarm_name: Annotated[str, Field(description="The swarm that is served.")]


@with_config(_CLOSED)
class PostSwarmsLoadResponse(TypedDict):
    """The swarm was replaced."""

    status: Annotated[Literal["success"], Field(description="Always `success`.")]
    swarm_name: Annotated[str, Field(description="The swarm that is served from now on.")]


@with_config(_CLOSED)
class PostInterswarmMessageResponse(TypedDict):
    """The answers to a message between swarms."""

    response: Annotated[
        Any,
        Field(description="The final message of the run, of the swarm of the first target."),
    ]
    events: NotRequired[Annotated[list[ServerEvent] | None, Field(description="Always null.")]]
    responses: NotRequired[
        Annotated[
            dict[str, Any] | None,
            Field(
                description="For targets in several swarms: swarm to its final message. Otherwise "
                "null."
            ),
        ]
    ]


class _Receipt(TypedDict):
    swarm: Annotated[str, Field(description="The swarm that has taken the message.")]
    task_id: Annotated[str, Field(description="The task, as the sender knows it.")]
    status: Annotated[str, Field(description="Always `success`.")]
    local_runner: Annotated[
        str, Field(description="Whose task it is in that swarm, as `role:id@swarm`.")
    ]


@with_config(_CLOSED)
class PostInterswarmForwardResponse(_Receipt):
    """The message is stored; agents read it later."""


@with_config(_CLOSED)
class PostInterswarmBackResponse(_Receipt):
    """The message is stored; agents read it later."""


@with_config(_CLOSED)
class OutboxMail(TypedDict):
    """Mail for another swarm, without its content."""

    id: Annotated[int, Field(ge=1, description="Its number.")]
    peer: Annotated[str, Field(description="The swarm that it is for.")]
    task_id: Annotated[str, Field(description="The task.")]
    owner: Annotated[str, Field(description="Whose task it is, as `role:id@swarm`.")]
    sender: Annotated[
        str | None, Field(description="The agent that wrote it; null when the server itself did.")
    ]
    kind: Annotated[str, Field(description="The kind of message.")]
    state: Annotated[
        Literal["waiting", "delivered", "dead"],
        Field(
            description="`waiting` to be delivered, a request that was `delivered` and waits for "
            "its answer, or `dead`: given up."
        ),
    ]
    attempts: Annotated[Count, Field(description="How often its delivery was tried.")]
    next_at: Annotated[Instant | None, Field(description="When it is tried again at the earliest.")]
    last_error: Annotated[str | None, Field(description="Why the last attempt failed.")]
    created_at: Annotated[Instant, Field(description="When it was written.")]


@with_config(_CLOSED)
class GetOutboxResponse(TypedDict):
    """Mail for other swarms."""

    mail: Annotated[list[OutboxMail], Field(description="A page of it, oldest first.")]
    next_after: Annotated[
        int | None, Field(description="The `after` of the next page; null on the last page.")
    ]


@with_config(_CLOSED)
class MailSetAside(TypedDict):
    """A message to an agent that was set aside because it saw too many crashes."""

    id: Annotated[int, Field(ge=1, description="Its number.")]
    agent: Annotated[str, Field(description="The agent that it is for.")]
    reason: Annotated[str, Field(description="Why it was set aside.")]
    message_id: Annotated[str, Field(description="The id of the message.")]
    msg_type: Annotated[str, Field(description="The kind of message.")]
    sender: Annotated[MAILAddress, Field(description="Who wrote it.")]
    timestamp: Annotated[str, Field(description="When it was written.")]
    subject: Annotated[str, Field(description="The first 256 characters of its subject.")]
    body: Annotated[
        str,
        Field(description="The first 4,096 characters of its text; the events have all of it."),
    ]
    body_length: Annotated[int, Field(ge=0, description="How many characters the text has.")]


@with_config(_CLOSED)
class GetSetAsideResponse(TypedDict):
    """A task's mail that was set aside."""

    mail: Annotated[list[MailSetAside], Field(description="A page of it, oldest first.")]
    next_after: Annotated[
        int | None, Field(description="The `after` of the next page; null on the last page.")
    ]


@with_config(_CLOSED)
class PostSetAsideRetryResponse(TypedDict):
    """The message waits for its agent again."""

    status: Annotated[Literal["waiting"], Field(description="Always `waiting`.")]
    task_id: Annotated[TaskId, Field(description="The task, which goes on.")]
    id: Annotated[int, Field(description="The number that the message had.")]


@with_config(_CLOSED)
class PostOutboxRetryResponse(TypedDict):
    """The mail is about to be tried again."""

    status: Annotated[Literal["waiting"], Field(description="Always `waiting`.")]
    id: Annotated[int, Field(description="Its number.")]


@with_config(_CLOSED)
class WebhookMessage(TypedDict):
    """A message to the webhook that its receiver has not taken."""

    id: Annotated[int, Field(ge=1, description="Its number.")]
    message_id: Annotated[str, Field(description="The `id` in the message itself.")]
    event: Annotated[str, Field(description="`paused`, `approval` or `ended`.")]
    task_id: Annotated[str, Field(description="The task that it tells of.")]
    owner: Annotated[str, Field(description="Whose task it is, as `role:id@swarm`.")]
    state: Annotated[
        Literal["waiting", "dead"],
        Field(description="`waiting` to be taken, or `dead`: given up."),
    ]
    attempts: Annotated[Count, Field(description="How often it was sent.")]
    next_at: Annotated[Instant | None, Field(description="When it is sent again at the earliest.")]
    last_error: Annotated[str | None, Field(description="Why the last attempt failed.")]
    created_at: Annotated[Instant, Field(description="When it was written.")]


@with_config(_CLOSED)
class GetWebhookResponse(TypedDict):
    """The webhook, and what it is still to be told."""

    url: Annotated[
        str | None, Field(description="Where messages go, without a query; null for nowhere.")
    ]
    events: Annotated[list[str], Field(description="What is told.")]
    messages: Annotated[list[WebhookMessage], Field(description="A page of it, oldest first.")]
    next_after: Annotated[
        int | None, Field(description="The `after` of the next page; null on the last page.")
    ]


@with_config(_CLOSED)
class PostWebhookRetryResponse(TypedDict):
    """The message is about to be sent again."""

    status: Annotated[Literal["waiting"], Field(description="Always `waiting`.")]
    id: Annotated[int, Field(description="Its number.")]


LetterKindName = Annotated[
    Literal["direct", "thread", "broadcast", "notice"],
    Field(
        description="`direct` to one, a post in a `thread`, a `broadcast` to several, or a "
        "`notice` of the desk itself."
    ),
]


@with_config(_CLOSED)
class DeskMessage(TypedDict):
    """A message between mailboxes."""

    id: Annotated[str, Field(description="Its id.")]
    sender_id: Annotated[
        str | None, Field(description="Who wrote it; null when the desk itself did.")
    ]
    recipient_ids: Annotated[
        list[str], Field(description="Who it was written to; the sender is never among them.")
    ]
    thread_id: Annotated[str | None, Field(description="Its thread, or null.")]
    content: Annotated[str, Field(description="The text.")]
    urgent: Annotated[bool, Field(description="Whether it wants attention at once.")]
    kind: LetterKindName
    subject: Annotated[str | None, Field(description="The subject line, or null.")]
    reply_to: Annotated[str | None, Field(description="The message that it answers, or null.")]
    wants_ack: Annotated[bool, Field(description="Whether its sender asks for an acknowledgement.")]
    file_id: Annotated[str | None, Field(description="The file that it carries, or null.")]
    created_at: Annotated[Instant, Field(description="When it was accepted and stored.")]
    read: Annotated[
        bool,
        Field(
            description="Whether the caller had read it before this answer; true for what the "
            "caller wrote."
        ),
    ]


@with_config(_CLOSED)
class DeskReceipt(TypedDict):
    """The fate of a message at one recipient."""

    message_id: Annotated[str, Field(description="The message.")]
    recipient_id: Annotated[str, Field(description="The recipient.")]
    state: Annotated[
        Literal["stored", "shown", "acknowledged", "answered"],
        Field(
            description="`stored`, `shown` to the recipient, `acknowledged` or `answered` by it: "
            "the last one that holds."
        ),
    ]
    shown_at: Annotated[
        Instant | None,
        Field(description="When it was fetched, or a turn of the agent read it; or null."),
    ]
    turn: Annotated[
        int | None,
        Field(
            description="The turn in which the agent read it, counted in its run; null for a "
            "participant."
        ),
    ]
    acknowledged_at: Annotated[
        Instant | None, Field(description="When it was acknowledged, or null.")
    ]
    note: Annotated[str, Field(description="What was said with the acknowledgement.")]
    answered_at: Annotated[
        Instant | None,
        Field(description="When the recipient first answered it with `reply_to`, or null."),
    ]
    answer_id: Annotated[str | None, Field(description="That answer, or null.")]


@with_config(_CLOSED)
class DeskThreadSummary(TypedDict):
    """A thread."""

    id: Annotated[str, Field(description="Its id.")]
    title: Annotated[str, Field(description="Its title.")]
    creator_id: Annotated[str, Field(description="Who created it.")]
    created_at: Annotated[Instant, Field(description="When.")]


@with_config(_CLOSED)
class DeskThread(DeskThreadSummary):
    """A thread and who is in it."""

    participants: Annotated[list[str], Field(description="Who is in it, in the order of joining.")]


@with_config(_CLOSED)
class DeskTeam(TypedDict):
    """A team of the swarm."""

    id: Annotated[str, Field(description="The id of the team.")]
    lead: Annotated[str, Field(description="The name of its lead.")]
    members: Annotated[list[str], Field(description="The names of the other members.")]


@with_config(_CLOSED)
class GetTeamsResponse(TypedDict):
    """Teams."""

    teams: Annotated[list[DeskTeam], Field(description="Those that the caller is in.")]


_MemorySource = Literal["person", "feedback", "restored", "program"]


@with_config(_CLOSED)
class MemoryRecord(TypedDict):
    """A named memory."""

    name: Annotated[str, Field(description="Its name.")]
    value: Annotated[
        str, Field(description="Its text; the swarm's default where nobody has changed it.")
    ]
    is_default: Annotated[bool, Field(description="Nobody has changed it.")]
    version: Annotated[Count, Field(description="The number of the newest version; 0 without any.")]
    updated_at: Annotated[str | None, Field(description="When it was changed.")]
    updated_by: Annotated[
        _MemorySource | None,
        Field(
            description="Who has changed it: a `person`, `feedback`, a person who has `restored` "
            "an earlier version, or a `program` by way of the store."
        ),
    ]
    waiting: Annotated[Count, Field(description="How much feedback waits for it.")]


@with_config(_CLOSED)
class MemoryVersion(TypedDict):
    """A version of a memory."""

    version: Annotated[int, Field(ge=1, description="Its number.")]
    value: Annotated[str, Field(description="Its text.")]
    created_at: Annotated[str, Field(description="When it was stored.")]
    source: Annotated[_MemorySource, Field(description="Who wrote it.")]
    approval_id: Annotated[str | None, Field(description="The approval that it was learned from.")]
    task_id: Annotated[str | None, Field(description="The task of that.")]


@with_config(_CLOSED)
class MemoryRejection(TypedDict):
    """An update that was refused."""

    reason: Annotated[str, Field(description="Why.")]
    proposal: Annotated[str, Field(description="What the memory would have become; maybe cut.")]


@with_config(_CLOSED)
class MemoryFeedback(TypedDict):
    """An answer to an approval that teaches a memory."""

    approval_id: Annotated[str, Field(description="The approval.")]
    task_id: Annotated[str, Field(description="The task of the call.")]
    type: Annotated[str, Field(description="The answer.", examples=["edit"])]
    action: Annotated[str, Field(description="The action that was to be called.")]
    status: Annotated[
        Literal["waiting", "learned", "unchanged", "rejected", "failed"],
        Field(
            description="What became of it: `unchanged` if there was nothing to learn, `rejected` "
            "if two updates were refused, `failed` if the model did."
        ),
    ]
    reason: Annotated[str, Field(description="Why the last attempt led to nothing; maybe empty.")]
    attempts: Annotated[Count, Field(description="How often it was tried.")]
    created_at: Annotated[str, Field(description="When the answer was given.")]
    updated_at: Annotated[str, Field(description="When it was last tried.")]
    rejections: Annotated[list[MemoryRejection], Field(description="The refused updates.")]


@with_config(_CLOSED)
class MemoryDetails(MemoryRecord):
    """A named memory with its history."""

    versions: Annotated[list[MemoryVersion], Field(description="The newest 20, newest first.")]
    feedback: Annotated[list[MemoryFeedback], Field(description="The newest 20, newest first.")]


@with_config(_CLOSED)
class LearningState(TypedDict):
    """Whether feedback is taken up."""

    enabled: Annotated[bool, Field(description="It is.")]
    reason: Annotated[str | None, Field(description="Why not.")]


@with_config(_CLOSED)
class GetMemoriesResponse(TypedDict):
    """Named memories."""

    memories: Annotated[list[MemoryRecord], Field(description="In order of their names.")]
    learning: Annotated[LearningState, Field(description="Whether they learn from feedback.")]


_Stored = Annotated[Literal["stored"], Field(description="What `delivered` means: it is stored.")]


TeamReply = TypedDict(
    "TeamReply",
    {
        "messageId": Annotated[str, Field(description="The id of the reply.")],
        "from": Annotated[str, Field(description="Whose it is; `lead` for the lead.")],
        "message": Annotated[str, Field(description="Its text.")],
    },
)
TeamReply.__doc__ = "What a teammate has replied."


@with_config(_CLOSED)
class TeamWaitOutcome(TypedDict):
    """The end of a wait for a reply."""

    status: NotRequired[
        Annotated[Literal["replied", "timeout"], Field(description="Only if the caller waited.")]
    ]
    reply: NotRequired[Annotated[TeamReply, Field(description="The reply, if it came in time.")]]


@with_config(_CLOSED)
class PostTeamMessageResponse(TeamWaitOutcome):
    """The message is stored for its recipient."""

    messageId: Annotated[str, Field(description="The id of the message.")]
    delivered: Annotated[Literal[True], Field(description="Always true.")]
    state: _Stored


@with_config(_CLOSED)
class PostTeamBroadcastResponse(TypedDict):
    """The message is stored for all of its recipients."""

    messageId: Annotated[str, Field(description="The id of the message.")]
    deliveredTo: Annotated[
        list[str], Field(description="Who gets it: names of members, and `lead` for the lead.")
    ]
    state: _Stored


@with_config(_CLOSED)
class PostMessagesResponse(TypedDict):
    """The message is stored for all of its recipients."""

    status: Annotated[Literal["sent"], Field(description="Always `sent`.")]
    message_id: Annotated[str, Field(description="The id of the message.")]
    message: Annotated[DeskMessage, Field(description="The message.")]


@with_config(_CLOSED)
class GetMessagesResponse(TypedDict):
    """A page of messages."""

    messages: Annotated[list[DeskMessage], Field(description="Newest first.")]
    unread: Annotated[
        Count, Field(le=1000, description="How many are unread afterwards, at most 1000.")
    ]
    next_before: Annotated[
        int | None,
        Field(description="The `before` of the page with older ones; null if this one is empty."),
    ]


@with_config(_CLOSED)
class FoundMessage(TypedDict):
    """A message that a search has found, without its content."""

    id: Annotated[str, Field(description="The message.")]
    sender_id: Annotated[
        str | None, Field(description="Who wrote it; null when the desk itself did.")
    ]
    recipient_ids: Annotated[list[str], Field(description="Who got it.")]
    thread_id: Annotated[str | None, Field(description="The thread in which it was posted.")]
    subject: Annotated[str | None, Field(description="The subject line.")]
    snippet: Annotated[
        str, Field(description="A piece of its content, 200 characters long, where the words are.")
    ]
    created_at: Annotated[str, Field(description="When the server got it, in UTC.")]
    read: Annotated[bool, Field(description="Whether the caller has read it, or wrote it.")]


@with_config(_CLOSED)
class GetSearchResponse(TypedDict):
    """The results of a search, newest first."""

    messages: Annotated[list[FoundMessage], Field(description="The messages.")]
    next_before: Annotated[
        int | None,
        Field(
            description="The `before` of the page with older ones; null at the end. A page may "
            "have fewer messages than `limit`, even none, and go on all the same."
        ),
    ]


@with_config(_CLOSED)
class GetUnreadResponse(TypedDict):
    """The number of messages that wait."""

    unread: Annotated[Count, Field(le=1000, description="Unread messages, at most 1000.")]
    latest: Annotated[
        int | None,
        Field(
            description="The place of the newest message to the caller, to be given as `after`; 0 "
            "without any, null if the request has no `after`."
        ),
    ]


@with_config(_CLOSED)
class DeskCorrespondent(TypedDict):
    """Somebody to write to: a participant or an agent."""

    name: Annotated[str, Field(description="Its id.")]
    description: Annotated[str, Field(description="What it is.")]
    kind: Annotated[
        Literal["agent", "participant"],
        Field(description="An `agent` of the swarm, or a `participant` beside them."),
    ]


@with_config(_CLOSED)
class GetParticipantsResponse(TypedDict):
    """The addresses that can be written to."""

    participants: Annotated[list[DeskCorrespondent], Field(description="In order of their names.")]


@with_config(_CLOSED)
class OverdueMessage(TypedDict):
    """A message that one recipient has not acknowledged."""

    message: Annotated[DeskMessage, Field(description="The message.")]
    receipt: Annotated[DeskReceipt, Field(description="What became of it at the recipient.")]


@with_config(_CLOSED)
class GetOverdueResponse(TypedDict):
    """Messages that the caller sent and that were neither acknowledged nor answered."""

    overdue: Annotated[
        list[OverdueMessage], Field(description="One for each recipient, oldest message first.")
    ]


@with_config(_CLOSED)
class GetDeskMessageResponse(TypedDict):
    """One message."""

    message: Annotated[DeskMessage, Field(description="The message.")]
    receipts: Annotated[
        list[DeskReceipt] | None,
        Field(
            description="What became of it at each recipient, for its sender and for "
            "administrators; null for others."
        ),
    ]


@with_config(_CLOSED)
class PostAckResponse(TypedDict):
    """The message is acknowledged."""

    status: Annotated[
        Literal["acknowledged", "already_acknowledged"],
        Field(description="`already_acknowledged` if it was before; nothing has changed then."),
    ]
    receipt: Annotated[DeskReceipt, Field(description="The receipt.")]


@with_config(_CLOSED)
class PostThreadsResponse(TypedDict):
    """The thread is there, and the others in it have a notice."""

    status: Annotated[Literal["created"], Field(description="Always `created`.")]
    thread: Annotated[DeskThread, Field(description="The thread.")]
    message_id: Annotated[
        str | None, Field(description="The id of the initial message; null without one.")
    ]


@with_config(_CLOSED)
class GetThreadsResponse(TypedDict):
    """A page of the caller's threads."""

    threads: Annotated[list[DeskThreadSummary], Field(description="Newest activity first.")]
    next_after: Annotated[
        str | None, Field(description="The `after` of the next page; null on the last page.")
    ]


@with_config(_CLOSED)
class PostThreadMemberResponse(TypedDict):
    """The participant is in the thread."""

    status: Annotated[
        Literal["joined", "added", "already_participant"],
        Field(description="`already_participant` if nothing has changed."),
    ]
    thread: Annotated[DeskThread, Field(description="The thread.")]


@with_config(_CLOSED)
class DeleteThreadMemberResponse(TypedDict):
    """The participant is no longer in the thread."""

    status: Annotated[Literal["removed"], Field(description="Always `removed`.")]
    thread_id: Annotated[str, Field(description="The thread.")]
    removed_id: Annotated[str, Field(description="Who was removed.")]


@with_config(_CLOSED)
class DeskFile(TypedDict):
    """The facts about a file."""

    id: Annotated[str, Field(description="Its id.")]
    uri: Annotated[str, Field(description="`mail://files/` with its id.")]
    owner_id: Annotated[str, Field(description="Who uploaded it.")]
    filename: Annotated[str, Field(description="Its name, without any path.")]
    size: Annotated[Count, Field(description="Its bytes.")]
    sha256: Annotated[str, Field(description="The hash of its content, in lower-case hex.")]
    media_type: Annotated[str, Field(description="What its owner says that it is.")]
    created_at: Annotated[Instant, Field(description="When it was stored.")]
    expires_at: Annotated[Instant, Field(description="When it is removed.")]


@with_config(_CLOSED)
class GetFilesResponse(TypedDict):
    """A page of the caller's own files."""

    files: Annotated[list[DeskFile], Field(description="By id.")]
    max_bytes: Annotated[Count, Field(description="How large a file may be.")]
    next_after: Annotated[
        str | None, Field(description="The `after` of the next page; null on the last page.")
    ]


@with_config(_CLOSED)
class PostFileTransferResponse(TypedDict):
    """The file is handed on."""

    status: Annotated[Literal["sent"], Field(description="Always `sent`.")]
    message_id: Annotated[str, Field(description="The id of the message that carries it.")]
    file: Annotated[DeskFile, Field(description="The file.")]


@with_config(_CLOSED)
class DeleteFileResponse(TypedDict):
    """The file is gone."""

    status: Annotated[Literal["deleted"], Field(description="Always `deleted`.")]
    file_id: Annotated[str, Field(description="Its id.")]


def outbox_mail(owner: Owner, row: OutboxRow) -> OutboxMail:
    """Return what operators see of mail for another swarm."""
    return {
        "id": row.id,
        "peer": row.peer,
        "task_id": row.task_id,
        "owner": str(owner),
        "sender": row.sender or None,
        "kind": row.kind,
        "state": row.state,
        "attempts": row.attempts,
        "next_at": row.next_at or None,
        "last_error": row.last_error or None,
        "created_at": row.created_at,
    }


def webhook_message(row: WebhookRow) -> WebhookMessage:
    """Return what operators see of a message to the webhook."""
    return {
        "id": row.id,
        "message_id": row.message_id,
        "event": row.event,
        "task_id": row.task_id,
        "owner": row.owner,
        "state": row.state,
        "attempts": row.attempts,
        "next_at": row.next_at or None,
        "last_error": row.last_error or None,
        "created_at": row.created_at,
    }
