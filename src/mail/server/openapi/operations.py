"""What the OpenAPI document says about each route: one entry per operation id.

Path, method and roles come from the route itself; here are the words, the shapes and the statuses
that are the route's own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["OPERATIONS", "TAGS", "Operation"]

TAGS: Final[Mapping[str, str]] = {
    "server": "What runs here, and how it is.",
    "messages": "Give the swarm work.",
    "tasks": "What became of the work. Somebody else's task looks exactly like none.",
    "swarms": "The swarm that is served; for administrators.",
    "tokens": "Who calls, and the built-in token authority in the shape that servers ask for.",
}
"""Tag to its description, in the order of the document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What is said about one operation.

    Attributes:
        tag: The group that it belongs to.
        summary: A few words.
        text: The description.
        answer: The component of a JSON answer; several for one of several shapes.
        stream: The answer can be a stream of events.
        media: The type of an answer that is another document.
        body: The component that the request's body must fit.
        parameters: The names of parameters, beside those that a route's method brings.
        statuses: Statuses beside those that its method, its roles and its body bring.
    """

    tag: str
    summary: str
    text: str = ""
    answer: tuple[str, ...] = ()
    stream: bool = False
    media: str = ""
    body: str = ""
    parameters: tuple[str, ...] = ()
    statuses: tuple[int, ...] = ()


OPERATIONS: Final[Mapping[str, Operation]] = {
    "root": Operation(
        tag="server",
        summary="Tell what runs here",
        answer=("GetRootResponse",),
    ),
    "openapi_yaml": Operation(
        tag="server",
        summary="Get this document as YAML",
        media="application/yaml",
    ),
    "openapi_json": Operation(
        tag="server",
        summary="Get this document as JSON",
        media="application/json",
    ),
    "health": Operation(
        tag="server",
        summary="Tell whether work is welcome",
        text="200 while it is; 503, in the same shape, while the server drains.",
        answer=("GetHealthResponse",),
    ),
    "health_post": Operation(
        tag="server",
        summary="Set what `GET /health` says",
        text="It informs load balancers and people, and changes nothing else.",
        answer=("GetHealthResponse",),
        body="HealthIn",
    ),
    "whoami": Operation(
        tag="tokens",
        summary="Tell who the caller is",
        answer=("GetWhoamiResponse",),
    ),
    "status": Operation(
        tag="server",
        summary="Tell the state of the swarm and of the caller's instance",
        text="An instance is made with a caller's first message and put away when it idles.",
        answer=("GetStatusResponse",),
    ),
    "message": Operation(
        tag="messages",
        summary="Post a message, and get the answer or the stream of events",
        text="Begins a task, goes on with one (`task_id`), joins one that runs, or answers the "
        "open breakpoint calls of one that is paused (`resume_from`). The answer comes when the "
        "run ends. With `stream` it is the events instead, from that of the message to the "
        "`task_complete` or `task_error` of its run; the first brings `retry`. Hanging up does "
        "not stop the task. After 402, 502 and 504 the task exists, under `task_id` of the error.",
        answer=("PostMessageResponse",),
        stream=True,
        body="MessageIn",
        parameters=("last_event_id",),
        statuses=(402, 404, 502, 504),
    ),
    "get_tasks": Operation(
        tag="tasks",
        summary="List the caller's tasks, newest first",
        text="An object from task id to task; with `limit` or `cursor` a page of it.",
        answer=("TaskPage", "{TaskRecord}"),
        parameters=("limit", "cursor"),
        statuses=(400,),
    ),
    "get_task": Operation(
        tag="tasks",
        summary="Get one task, named in the query or in a body",
        text='As in MAIL 1.3.6 the id may also come in a JSON body, `{"task_id": "…"}`. Such a '
        "body wins over the query, which is not needed then. Because many tools cannot send a "
        "body with GET, the query is what is described here.",
        answer=("TaskRecord",),
        parameters=("task_id_query",),
        statuses=(400, 404, 408, 413),
    ),
    "get_task_by_path": Operation(
        tag="tasks",
        summary="Get one task",
        answer=("TaskRecord",),
        parameters=("task_id_path",),
        statuses=(400, 404),
    ),
    "get_task_events": Operation(
        tag="tasks",
        summary="Read a task's events, and follow it while it runs",
        text="From the beginning, or after the event that `Last-Event-ID` or `after` names. The "
        "stream ends when the log is read and the task does not run.",
        stream=True,
        parameters=("task_id_path", "after", "last_event_id"),
        statuses=(400, 404),
    ),
    "cancel_task": Operation(
        tag="tasks",
        summary="Stop a task",
        text="Running model calls are cancelled, waiting mail is dropped, open breakpoint calls "
        "are closed, whoever waits is answered. A task that has ended stays as it is. A later "
        "message can go on with it.",
        answer=("TaskRecord",),
        parameters=("task_id_path",),
        statuses=(404,),
    ),
    "dump_swarm": Operation(
        tag="swarms",
        summary="Write the swarm to the server's log",
        text="Its name and the names of its agents, at level INFO.",
        answer=("GetSwarmsDumpResponse",),
    ),
    "load_swarm_from_json": Operation(
        tag="swarms",
        summary="Replace the swarm that is served, until the next restart",
        text="The definition is checked entirely before anything changes. Instances at work "
        "finish on the old swarm; everybody else gets the new one with the next request.",
        answer=("PostSwarmsLoadResponse",),
        body="SwarmIn",
    ),
    "login": Operation(
        tag="tokens",
        summary="Exchange a key for a token",
        text="For servers that use this one as their `AUTH_ENDPOINT`. The key comes as bearer "
        "token. 404 when this server itself asks an external authority.",
        answer=("LoginResponse",),
        statuses=(404,),
    ),
    "check": Operation(
        tag="tokens",
        summary="Tell whose a token is",
        text="For servers that use this one as their `TOKEN_INFO_ENDPOINT`. 404 when this server "
        "itself asks an external authority.",
        answer=("TokenInfo",),
        statuses=(404,),
    ),
}
"""Operation id, which is the name of the route's function, to what is said about it."""
