"""The shapes of the server's JSON answers, as typed dictionaries."""

from typing import Any, NotRequired

from typing_extensions import TypedDict

from mail.core.wire import MAILMessage

__all__ = [
    "BreakpointCall",
    "GetHealthResponse",
    "GetRootResponse",
    "GetStatusResponse",
    "GetSwarmsDumpResponse",
    "GetSwarmsResponse",
    "GetWhoamiResponse",
    "PostInterswarmBackResponse",
    "PostInterswarmForwardResponse",
    "PostInterswarmMessageResponse",
    "PostMessageResponse",
    "PostSwarmsLoadResponse",
    "PostSwarmsResponse",
    "ServerEvent",
    "SwarmEndpointCleaned",
    "SwarmInfo",
    "SwarmStatus",
    "TaskRecord",
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


class ServerEvent(TypedDict):
    """One entry of a task's log; ``data`` is JSON text in task records."""

    event: str
    id: str | None
    retry: int | None
    data: dict[str, Any] | str | None


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
    events: list[ServerEvent]
    is_running: bool
    completed: bool
    status: NotRequired[str]
    task_message_queue: list[MAILMessage]
    remote_swarms: list[str]
    breakpoints: NotRequired[list[BreakpointCall]]
    title: str | None


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
