"""The facts of the HTTP surface: each route, who may use it, what it takes and what it answers."""

from dataclasses import dataclass, field, replace
from typing import Any

from typing_extensions import TypedDict

from mail.net.types import (
    Approval,
    DeleteFileResponse,
    DeleteSwarmResponse,
    DeleteThreadMemberResponse,
    DeskFile,
    DeskThread,
    GetAdminTasksResponse,
    GetApprovalsResponse,
    GetDeskMessageResponse,
    GetFilesResponse,
    GetHealthResponse,
    GetMemoriesResponse,
    GetMessagesResponse,
    GetNodesResponse,
    GetOutboxResponse,
    GetOverdueResponse,
    GetParticipantsResponse,
    GetReadyResponse,
    GetRegistryResponse,
    GetRootResponse,
    GetSearchResponse,
    GetSetAsideResponse,
    GetStatusResponse,
    GetSwarmGraphResponse,
    GetSwarmsDumpResponse,
    GetSwarmsResponse,
    GetTeamsResponse,
    GetThreadsResponse,
    GetTokensResponse,
    GetUnreadResponse,
    GetWebhookResponse,
    GetWellKnownResponse,
    GetWhoamiResponse,
    MemoryDetails,
    PostAckResponse,
    PostApprovalResponse,
    PostFileTransferResponse,
    PostInterswarmBackResponse,
    PostInterswarmForwardResponse,
    PostInterswarmMessageResponse,
    PostMessageResponse,
    PostMessagesResponse,
    PostOutboxRetryResponse,
    PostSetAsideRetryResponse,
    PostSwarmsDiscoverResponse,
    PostSwarmsLoadResponse,
    PostSwarmsResponse,
    PostTeamBroadcastResponse,
    PostTeamMessageResponse,
    PostThreadMemberResponse,
    PostThreadsResponse,
    PostTokensResponse,
    PostWebhookRetryResponse,
    TaskRecord,
    TokenRecord,
)
from tests.support.till import definition

LIMIT = 65_536
EVENTS = "events"
DOCUMENT = "the document"
PAGE = "a page or a part of it"
RESPONSE = "a response of OpenAI's"
NOTHING = "nothing"
NOWHERE = {"detail": "not found", "errors": []}
PEOPLE = frozenset({"admin", "user"})
ANYONE = frozenset({"admin", "user", "agent"})
ADMIN = frozenset({"admin"})
PEERS = frozenset({"agent"})
PARTICIPANTS = frozenset({"agent"})
READERS = frozenset({"admin", "agent"})
PUBLIC: frozenset[str] = frozenset()
BY_ROLE = {"admin": "admin", "user": "alice", "agent": "swarm"}


class Error(TypedDict):
    """What every error answer has."""

    detail: str
    errors: list[dict[str, str]]


class Token(TypedDict):
    """``POST /auth/login``."""

    token: str


class TokenInfo(TypedDict):
    """``GET /auth/check``."""

    role: str
    id: str
    api_key: str


class Page(TypedDict):
    """``GET /tasks`` with ``limit`` or ``cursor``."""

    tasks: dict[str, TaskRecord]
    next_cursor: str | None


class Model(TypedDict):
    """``GET /v1/models/{model}``."""

    id: str
    object: str
    created: int
    owned_by: str


class Models(TypedDict):
    """``GET /v1/models``."""

    object: str
    data: list[Model]


class Deleted(TypedDict):
    """``DELETE /responses/{response_id}``."""

    id: str
    object: str
    deleted: bool


@dataclass(frozen=True)
class Row:
    """One route: who may use it, a request that it takes, and requests that it refuses.

    ``wrong`` maps a field to values that are none of its own.
    """

    method: str
    path: str
    who: frozenset[str]
    shape: Any
    body: dict[str, Any] | None = None
    required: tuple[str, ...] = ()
    wrong: dict[str, list[Any]] = field(default_factory=dict)
    on_page: bool = True

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def of_desk(self) -> bool:
        """Tell whether it is for participants, not for other swarms."""
        desk = (
            "/messages",
            "/threads",
            "/teams",
            "/files",
            "/participants",
            "/whoami",
            "/memories",
        )
        return self.path.startswith(desk)


NO_TEXT: list[Any] = [7, True, ["x"], {"x": 1}]
NO_FLAG: list[Any] = ["yes", 1, ["x"], {"x": 1}]
MESSAGE_WRONG = {
    **dict.fromkeys(("body", "message", "subject", "msg_type", "entrypoint"), NO_TEXT),
    **dict.fromkeys(("show_events", "stream", "stream_tokens"), NO_FLAG),
    "task_id": [*NO_TEXT, "", "a\nb", "x" * 257],
    "resume_from": [*NO_TEXT, "nowhere", "user_response "],
    "kwargs": ["x", 7, True, ["x"]],
}
OPTIONS_WRONG = {
    "max_steps": [0, -1, 1.5, "5", True, [5]],
    "timeout": [0, -1, 3601, "5", True, [5]],
    "breakpoint_tool_caller": NO_TEXT,
    "raise_on_false": [False],
}
TASK_WRONG = {"task_id": [*NO_TEXT, "", "a\nb", "x" * 257]}
PEER = "http://peer"
"""Stands for the address of a server that is there."""
REGISTRATION = {"name": "peer", "base_url": PEER}
REGISTRATION_WRONG = {
    "name": [*NO_TEXT, "", "a b", "a@b", "test-swarm", "x" * 257],
    "base_url": [*NO_TEXT, "", "ftp://x", "http://10.0.0.1", "http://me:pass@x"],
    "auth_token": [*NO_TEXT, "a b", "${OPENAI_API_KEY}", "x" * 4097],
    "metadata": ["x", 7, True, ["x"], {"api_key": "x"}, {"x": "x" * 5000}],
    "public_key": [7, True, ["x"], "", "x" * 43, {}, {"kty": "OKP", "crv": "Ed25519", "x": "x"}],
    "volatile": NO_FLAG,
}
NEIGHBOUR = "beta"
"""The swarm that the caller with the role ``agent`` speaks for."""


def mail(message_id: str, task_id: str = "theirs") -> dict[str, Any]:
    """Return mail of that swarm, as the body of a request."""
    party = {"address_type": "agent", "address": f"clerk@{NEIGHBOUR}"}
    payload = {
        "task_id": task_id,
        "request_id": f"{message_id}-request",
        "sender": party,
        "recipient": {"address_type": "agent", "address": "supervisor@test-swarm"},
        "subject": "Hi",
        "body": "hello",
    }
    message = {
        "message_id": message_id,
        "source_swarm": NEIGHBOUR,
        "target_swarm": "test-swarm",
        "timestamp": "2026-01-01T00:00:00+00:00",
        "payload": payload,
        "msg_type": "request",
        "task_owner": f"user:x@{NEIGHBOUR}",
        "task_contributors": [f"user:x@{NEIGHBOUR}", f"swarm:{NEIGHBOUR}@test-swarm"],
        "auth_token": "a copy",
        "metadata": {},
    }
    return {"message": message}


NO_MAIL: list[Any] = ["x", 7, True, ["x"]]
NO_LIST: list[Any] = ["x", 7, True, {"x": 1}]
TO_AGENT = {"body": "hello", "targets": ["supervisor"]}
TO_AGENT_WRONG = {
    "body": [*NO_TEXT, "", " "],
    "targets": [*NO_LIST, [], ["@x"], ["x@"]],
    **dict.fromkeys(("user_token", "subject"), NO_TEXT),
    "user_tokens": NO_MAIL,
    "msg_type": [*NO_TEXT, "interrupt", "response"],
    "task_id": [*NO_TEXT, "", "a\nb", "x" * 257, "x/events"],
    "routing_info": NO_MAIL,
    **dict.fromkeys(("stream", "ignore_stream_pings"), NO_FLAG),
}
NO_NAME: list[Any] = [*NO_TEXT, "", "x" * 257]
LETTER = {"content": "hello", "recipient_id": "reviewer"}
LETTER_WRONG = {
    "content": [*NO_TEXT, ""],
    "recipient_id": [*NO_NAME, "nobody", "editor"],
    **dict.fromkeys(("sender_id", "reply_to"), NO_NAME),
    "subject": [*NO_TEXT, "a\nb", "x" * 1025],
    **dict.fromkeys(("urgent", "wants_ack"), NO_FLAG),
    "request_id": [*NO_TEXT, "", "a b", "x" * 256],
}
TEAM_WRONG = {
    "message": [*NO_TEXT, ""],
    "priority": [*NO_TEXT, "high"],
    "requestId": [*NO_TEXT, "", "a b", "x" * 256],
}
THREAD = {"title": "Release", "participants": ["reviewer"]}
TABLE = [
    Row("GET", "/", PUBLIC, GetRootResponse),
    Row("GET", "/health", PUBLIC, GetHealthResponse),
    Row(
        *("POST", "/health", ADMIN, GetHealthResponse, {"status": "bis später 🚧"}),
        required=("status",),
        wrong={"status": [*NO_TEXT, "", " ", "\u3000", "a\nb", "a\u202eb", "a\x9bb", "x" * 257]},
    ),
    Row("GET", "/health/ready", PUBLIC, GetReadyResponse),
    Row("GET", "/nodes", ADMIN, GetNodesResponse),
    Row("GET", "/docs", PUBLIC, PAGE),
    Row("GET", "/docs/{name}", PUBLIC, PAGE, on_page=False),
    Row("GET", "/console", PUBLIC, PAGE),
    Row("GET", "/console/{name}", PUBLIC, PAGE, on_page=False),
    Row("GET", "/openapi.yaml", PUBLIC, DOCUMENT),
    Row("GET", "/openapi.json", PUBLIC, DOCUMENT),
    Row("GET", "/whoami", ANYONE, GetWhoamiResponse),
    Row("GET", "/metrics", ADMIN, PAGE),
    Row("GET", "/status", PEOPLE, GetStatusResponse),
    Row(
        *("POST", "/message", PEOPLE, PostMessageResponse, {"subject": "Hi", "body": "hello"}),
        required=("body",),
        wrong=MESSAGE_WRONG,
    ),
    Row("GET", "/tasks", ANYONE, dict[str, TaskRecord]),
    Row("GET", "/task", ANYONE, TaskRecord, {"task_id": "seen"}, ("task_id",), TASK_WRONG),
    Row("GET", "/tasks/{task_id}", ANYONE, TaskRecord),
    Row("GET", "/tasks/{task_id}/events", ANYONE, EVENTS),
    Row("POST", "/tasks/{task_id}/cancel", ANYONE, TaskRecord),
    Row("DELETE", "/tasks/{task_id}", ANYONE, NOTHING),
    Row("GET", "/tasks/{task_id}/set-aside", ANYONE, GetSetAsideResponse),
    Row("POST", "/tasks/{task_id}/set-aside/{number}/retry", ANYONE, PostSetAsideRetryResponse),
    Row("DELETE", "/tasks/{task_id}/set-aside/{number}", ANYONE, NOTHING),
    Row("GET", "/approvals", ANYONE, GetApprovalsResponse),
    Row("GET", "/approvals/{approval_id}", ANYONE, Approval),
    Row(
        *("POST", "/approvals/{approval_id}", ANYONE, PostApprovalResponse),
        {"type": "response", "args": "no"},
        required=("type",),
        wrong={"type": [*NO_TEXT, "", "maybe"]},
    ),
    Row("GET", "/admin/tasks", ADMIN, GetAdminTasksResponse),
    Row("GET", "/tokens", ADMIN, GetTokensResponse),
    Row(
        *("POST", "/tokens", ADMIN, PostTokensResponse, {"role": "user", "id": "carol"}),
        required=("role", "id"),
        wrong={
            "role": [*NO_TEXT, "", "root"],
            "id": [*NO_NAME, "a\nb"],
            "label": [*NO_TEXT, "a\nb", "x" * 201],
            "days": [0, -1, 36500, "5", True, [5]],
            "participant": NO_FLAG,
        },
    ),
    Row("DELETE", "/tokens/{prefix}", ADMIN, TokenRecord),
    Row("GET", "/swarm/graph", PEOPLE, GetSwarmGraphResponse),
    Row("GET", "/swarms/dump", ADMIN, GetSwarmsDumpResponse),
    Row(
        *("POST", "/swarms/load", ADMIN, PostSwarmsLoadResponse, {"json": definition()}),
        required=("json",),
        wrong={"json": [*NO_TEXT, "", "{", "{}", "[1]"]},
    ),
    Row("GET", "/.well-known/mail.json", PUBLIC, GetWellKnownResponse),
    Row("GET", "/swarms", PUBLIC, GetSwarmsResponse),
    Row("GET", "/swarms/registry", ADMIN, GetRegistryResponse),
    *(
        Row(
            *("POST", path, ADMIN, PostSwarmsResponse, REGISTRATION),
            required=("name", "base_url"),
            wrong=REGISTRATION_WRONG,
        )
        for path in ("/swarms", "/swarms/register")
    ),
    Row(
        *("POST", "/swarms/discover", ADMIN, PostSwarmsDiscoverResponse),
        {"discovery_urls": [PEER]},
        required=("discovery_urls",),
        wrong={"discovery_urls": ["x", 7, [], ["http://x"] * 21]},
    ),
    Row("POST", "/swarms/{name}/accept", ADMIN, PostSwarmsResponse),
    Row("DELETE", "/swarms/{name}", ADMIN, DeleteSwarmResponse),
    *(
        Row(
            *("POST", f"/interswarm/{name}", PEERS, shape, mail(name)),
            required=("message",),
            wrong={"message": NO_MAIL},
        )
        for name, shape in (
            ("forward", PostInterswarmForwardResponse),
            ("back", PostInterswarmBackResponse),
        )
    ),
    Row(
        *("POST", "/interswarm/message", PEOPLE, PostInterswarmMessageResponse, TO_AGENT),
        required=("body", "targets"),
        wrong=TO_AGENT_WRONG,
    ),
    Row(
        *("POST", "/messages", PARTICIPANTS, PostMessagesResponse, LETTER),
        required=("content", "recipient_id"),
        wrong=LETTER_WRONG,
    ),
    Row("GET", "/messages", PARTICIPANTS, GetMessagesResponse),
    Row("GET", "/messages/unread", PARTICIPANTS, GetUnreadResponse),
    Row("GET", "/messages/overdue", PARTICIPANTS, GetOverdueResponse),
    Row("GET", "/messages/search", PARTICIPANTS, GetSearchResponse),
    Row("GET", "/participants", READERS, GetParticipantsResponse),
    Row("GET", "/messages/{message_id}", READERS, GetDeskMessageResponse),
    Row(
        *("POST", "/messages/{message_id}/ack", PARTICIPANTS, PostAckResponse, {"note": "yes"}),
        wrong={"note": [*NO_TEXT, "x" * 2001], "agent_id": NO_NAME},
    ),
    Row(
        *("POST", "/threads", PARTICIPANTS, PostThreadsResponse, THREAD),
        required=("title", "participants"),
        wrong={
            "title": [*NO_TEXT, "", " ", "a\nb", "x" * 201],
            "participants": ["x", 7, True, {"x": 1}, ["nobody"]],
            "creator_id": NO_NAME,
            "initial_message": [*NO_TEXT, ""],
        },
    ),
    Row("GET", "/threads", PARTICIPANTS, GetThreadsResponse),
    Row("GET", "/threads/{thread_id}", READERS, DeskThread),
    Row("POST", "/threads/{thread_id}/join", PARTICIPANTS, PostThreadMemberResponse),
    Row(
        *("POST", "/threads/{thread_id}/participants", PARTICIPANTS, PostThreadMemberResponse),
        {"agent_id_to_add": "reviewer"},
        required=("agent_id_to_add",),
        wrong={"agent_id_to_add": NO_NAME, "inviting_agent_id": NO_NAME},
    ),
    Row(
        *("DELETE", "/threads/{thread_id}/participants/{name}", PARTICIPANTS),
        DeleteThreadMemberResponse,
    ),
    Row("GET", "/teams", PARTICIPANTS, GetTeamsResponse),
    Row(
        *("POST", "/teams/{team_id}/messages", PARTICIPANTS, PostTeamMessageResponse),
        {"to": "reviewer", "message": "hello"},
        required=("to", "message"),
        wrong={
            "to": NO_NAME,
            "waitForReply": NO_FLAG,
            "timeoutSeconds": [-1, 301, "5", True, [5]],
            **TEAM_WRONG,
        },
    ),
    Row(
        *("POST", "/teams/{team_id}/broadcasts", PARTICIPANTS, PostTeamBroadcastResponse),
        {"message": "hello"},
        required=("message",),
        wrong={"excludeSelf": NO_FLAG, **TEAM_WRONG},
    ),
    Row("GET", "/memories", ANYONE, GetMemoriesResponse),
    Row("GET", "/memories/{name}", ANYONE, MemoryDetails),
    Row(
        *("PUT", "/memories/{name}", ANYONE, MemoryDetails, {"value": "Be brief."}),
        wrong={
            "value": [*NO_TEXT, "x" * 16_385],
            "restore": [-1, "1", True, [1]],
            "expected_version": [-1, "1", True, [1]],
        },
    ),
    Row("DELETE", "/memories/{name}", ANYONE, NOTHING),
    Row("POST", "/files", PARTICIPANTS, DeskFile),
    Row("GET", "/files", PARTICIPANTS, GetFilesResponse),
    Row("GET", "/files/{file_id}", PARTICIPANTS, bytes),
    Row("GET", "/files/{file_id}/meta", READERS, DeskFile),
    Row(
        *("POST", "/files/{file_id}/transfer", PARTICIPANTS, PostFileTransferResponse),
        {"recipient_id": "reviewer"},
        required=("recipient_id",),
        wrong={
            **dict.fromkeys(("recipient_id", "thread_id", "sender_id"), NO_NAME),
            "description": NO_TEXT,
            "urgent": NO_FLAG,
        },
    ),
    Row("DELETE", "/files/{file_id}", READERS, DeleteFileResponse),
    Row("GET", "/outbox", ADMIN, GetOutboxResponse),
    Row("POST", "/outbox/{number}/retry", ADMIN, PostOutboxRetryResponse),
    Row("DELETE", "/outbox/{number}", ADMIN, NOTHING),
    Row("GET", "/webhook", ADMIN, GetWebhookResponse),
    Row("POST", "/webhook/{number}/retry", ADMIN, PostWebhookRetryResponse),
    Row("DELETE", "/webhook/{number}", ADMIN, NOTHING),
    Row("POST", "/auth/login", ANYONE, Token),
    Row("GET", "/auth/check", ANYONE, TokenInfo),
]
ASKED = {"input": [{"role": "user", "content": "hello"}], "tools": []}
RESPONSES = [
    Row("POST", "/v1/responses", PEOPLE, RESPONSE, ASKED, ("input",)),
    Row("GET", "/v1/responses/{response_id}", PEOPLE, RESPONSE),
    Row("POST", "/v1/responses/{response_id}/cancel", PEOPLE, RESPONSE),
    Row("DELETE", "/v1/responses/{response_id}", PEOPLE, Deleted),
]
MODELS = [
    Row("GET", "/v1/models", PEOPLE, Models),
    Row("GET", "/v1/models/{model}", PEOPLE, Model),
]
USUAL = [*TABLE, *RESPONSES, *MODELS]
DEBUG = [replace(row, path=row.path.removeprefix("/v1"), on_page=False) for row in RESPONSES]
UNFIT: list[dict[str, Any]] = [
    {"body": " "},
    {"body": "x", "msg_type": "broadcast_complete"},
    {"body": "x", "msg_type": "requset"},
    {"body": "x", "subject": "x" * 1025},
    {"body": "x", "entrypoint": "nobody"},
    {"body": "x", "resume_from": "user_response"},
    {"task_id": "x", "resume_from": "breakpoint_tool_call"},
]
BODIES = [
    *(b"{", b"[1]", b'"x"', b"", b"null", b'{"a":"\xff"}', b'{"a":"\\ud800"}', b'{"a":NaN}'),
    *(b"[" * 100, b'{"a":' * 100, b"\x00"),
]

ALL = [*USUAL, *DEBUG]
MCP = Row("POST", "/mcp", ANYONE, None)
ENDLESS = [Row("GET", "/approvals/events", ANYONE, EVENTS)]
"""Streams that go on for ever: see tests/server/test_approvals.py."""
MCP_SESSIONS = [Row(method, "/mcp", ANYONE, None) for method in ("GET", "DELETE")]
"""Speaks JSON-RPC, and has its own tests."""
