"""The shapes of the server's JSON answers, as typed dictionaries."""

from typing import Any, NotRequired

from typing_extensions import TypedDict

from mail.core.wire import MAILMessage

__all__ = [
    "BreakpointCall",
    "ErrorAnswer",
    "EventData",
    "FieldProblem",
    "GetHealthResponse",
    "GetRootResponse",
    "GetStatusResponse",
    "GetSwarmsDumpResponse",
    "GetSwarmsResponse",
    "GetWhoamiResponse",
    "LoggedEvent",
    "LoginResponse",
    "PostInterswarmBackResponse",
    "PostInterswarmForwardResponse",
    "PostInterswarmMessageResponse",
    "PostMessageResponse",
    "PostSwarmsLoadResponse",
    "PostSwarmsResponse",
    "ServerEvent",
    "StreamEvent",
    "SwarmEndpointCleaned",
    "SwarmInfo",
    "SwarmStatus",
    "TaskPage",
    "TaskRecord",
    "TaskUsage",
    "TokenInfo",
    "TokenUsage",
]


class SwarmInfo(TypedDict):
    """What the server says about its swarm in ``GET /``."""

    name: str
    version: str
    description: str
    entrypoint: str
    keywords: list[str]
    public: bool


class GetRootResponse(TypedDict):
    """``GET /``."""

    name: str
    version: NotRequired[str]
    protocol_version: str
    swarm: SwarmInfo
    status: str
    uptime: float


class GetHealthResponse(TypedDict):
    """``GET /health`` and ``POST /health``."""

    status: str
    swarm_name: str
    timestamp: str


class GetWhoamiResponse(TypedDict):
    """``GET /whoami``; ``username`` equals ``id`` (absent from 1.3.6 servers)."""

    id: str
    role: str
    username: NotRequired[str]


class SwarmStatus(TypedDict):
    """The swarm's part of ``GET /status``."""

    name: str | None
    status: str


class GetStatusResponse(TypedDict):
    """``GET /status``."""

    swarm: SwarmStatus
    active_users: int
    user_mail_ready: bool
    user_task_running: bool


class BreakpointCall(TypedDict):
    """A tool call that waits for its result from outside."""

    id: str
    name: str
    arguments: str
    call_id: NotRequired[str]
    type: NotRequired[str]
    status: NotRequired[str]


class EventData(TypedDict):
    """What an event says; events that end a run have the answer's fields beside these."""

    timestamp: str
    task_id: str
    description: str
    extra_data: dict[str, Any]


class ServerEvent(TypedDict):
    """One event of a task, as ``POST /message`` answers with it."""

    event: str
    id: str | None
    retry: int | None
    data: EventData


class LoggedEvent(TypedDict):
    """One event of a task, as task records have it: ``data`` is JSON text."""

    event: str
    id: str | None
    retry: int | None
    data: str


class StreamEvent(TypedDict):
    """One event of a stream; ``data`` is JSON text, and what is not kept in the log has no id."""

    event: str
    data: str
    id: NotRequired[str]
    retry: NotRequired[int]


class TokenUsage(TypedDict):
    """What model calls have used; ``cost`` (US dollars) only when the price of any is known."""

    calls: int
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    cost: NotRequired[float]


class TaskUsage(TypedDict):
    """What a task's model calls have used, together and per agent."""

    total: TokenUsage
    agents: dict[str, TokenUsage]


class PostMessageResponse(TypedDict):
    """``POST /message``. Only ``response`` and ``events`` come from 1.3.6 servers too."""

    response: str
    events: list[ServerEvent] | None
    task_id: NotRequired[str]
    subject: NotRequired[str]
    status: NotRequired[str]
    breakpoints: NotRequired[list[BreakpointCall]]


class TaskRecord(TypedDict):
    """``GET /task``, and one value of ``GET /tasks``."""

    task_id: str
    task_owner: str
    task_contributors: list[str]
    start_time: str
    events: list[LoggedEvent]
    is_running: bool
    completed: bool
    status: NotRequired[str]
    task_message_queue: list[MAILMessage]
    remote_swarms: list[str]
    breakpoints: NotRequired[list[BreakpointCall]]
    title: str | None
    usage: NotRequired[TaskUsage]


class TaskPage(TypedDict):
    """``GET /tasks`` with ``limit`` or ``cursor``."""

    tasks: dict[str, TaskRecord]
    next_cursor: str | None


class LoginResponse(TypedDict):
    """``POST /auth/login``."""

    token: str


class TokenInfo(TypedDict):
    """``GET /auth/check``: whose a token is."""

    role: str
    id: str
    api_key: str


class FieldProblem(TypedDict):
    """What is wrong with one field of a request."""

    field: str
    problem: str


class ErrorAnswer(TypedDict):
    """The answer to a request that failed."""

    detail: str
    errors: list[FieldProblem]
    task_id: NotRequired[str]
    request_id: NotRequired[str]


class SwarmEndpointCleaned(TypedDict):
    """One entry of ``GET /swarms``: what anybody may know of a registered swarm."""

    swarm_name: str
    base_url: str
    version: str
    last_seen: str | None
    is_active: bool
    latency: NotRequired[float | None]
    swarm_description: str
    keywords: list[str]
    metadata: dict[str, Any] | None


class GetSwarmsResponse(TypedDict):
    """``GET /swarms``."""

    swarms: list[SwarmEndpointCleaned]


class PostSwarmsResponse(TypedDict):
    """``POST /swarms``; ``status`` is ``registered``."""

    status: str
    swarm_name: str


class GetSwarmsDumpResponse(TypedDict):
    """``GET /swarms/dump``; ``status`` is ``dumped``."""

    status: str
    swarm_name: str


class PostSwarmsLoadResponse(TypedDict):
    """``POST /swarms/load``; ``status`` is ``success``."""

    status: str
    swarm_name: str


class PostInterswarmMessageResponse(TypedDict):
    """``POST /interswarm/message``: the other swarm's answer."""

    response: Any
    events: NotRequired[list[ServerEvent] | None]


class PostInterswarmForwardResponse(TypedDict):
    """``POST /interswarm/forward``: which task the message opened."""

    swarm: str
    task_id: str
    status: str
    local_runner: str


class PostInterswarmBackResponse(TypedDict):
    """``POST /interswarm/back``: which task the message went to."""

    swarm: str
    task_id: str
    status: str
    local_runner: str
