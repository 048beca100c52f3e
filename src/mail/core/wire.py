"""The wire shapes of MAIL as typed dictionaries, one per object of spec/MAIL-core.schema.json."""

from typing import Any, Final, Literal, NotRequired

from typing_extensions import TypedDict

from mail.core.addresses import MAILAddress

__all__ = [
    "MAIL_MESSAGE_TYPES",
    "InterswarmKind",
    "MAILBroadcast",
    "MAILInterrupt",
    "MAILInterswarmMessage",
    "MAILMessage",
    "MAILPayload",
    "MAILRequest",
    "MAILResponse",
    "MessageKind",
]

MessageKind = Literal["request", "response", "broadcast", "interrupt", "broadcast_complete"]
InterswarmKind = Literal["request", "response", "broadcast", "interrupt"]

MAIL_MESSAGE_TYPES: Final[list[str]] = [
    "request",
    "response",
    "broadcast",
    "interrupt",
    "broadcast_complete",
]


class MAILRequest(TypedDict):
    """One agent (or person) asks one agent for something."""

    task_id: str
    request_id: str
    sender: MAILAddress
    recipient: MAILAddress
    subject: str
    body: str
    sender_swarm: NotRequired[str | None]
    recipient_swarm: NotRequired[str | None]
    routing_info: NotRequired[dict[str, Any] | None]


class MAILResponse(TypedDict):
    """The answer to a request; ``request_id`` names the request (ruling 12)."""

    task_id: str
    request_id: str
    sender: MAILAddress
    recipient: MAILAddress
    subject: str
    body: str
    sender_swarm: NotRequired[str | None]
    recipient_swarm: NotRequired[str | None]
    routing_info: NotRequired[dict[str, Any] | None]


class MAILBroadcast(TypedDict):
    """Word to several agents; also the shape of ``broadcast_complete``."""

    task_id: str
    broadcast_id: str
    sender: MAILAddress
    recipients: list[MAILAddress]
    subject: str
    body: str
    sender_swarm: NotRequired[str | None]
    recipient_swarms: NotRequired[list[str] | None]
    routing_info: NotRequired[dict[str, Any] | None]


class MAILInterrupt(TypedDict):
    """Stop or redirect what the recipients are doing."""

    task_id: str
    interrupt_id: str
    sender: MAILAddress
    recipients: list[MAILAddress]
    subject: str
    body: str
    sender_swarm: NotRequired[str | None]
    recipient_swarms: NotRequired[list[str] | None]
    routing_info: NotRequired[dict[str, Any] | None]


MAILPayload = MAILRequest | MAILResponse | MAILBroadcast | MAILInterrupt


class MAILMessage(TypedDict):
    """The wrapper every message travels in."""

    id: str
    timestamp: str
    message: MAILPayload
    msg_type: MessageKind


class MAILInterswarmMessage(TypedDict):
    """The wrapper for mail between swarms."""

    message_id: str
    source_swarm: str
    target_swarm: str
    timestamp: str
    payload: MAILPayload
    msg_type: InterswarmKind
    task_owner: str
    task_contributors: list[str]
    auth_token: NotRequired[str | None]
    metadata: NotRequired[dict[str, Any] | None]
