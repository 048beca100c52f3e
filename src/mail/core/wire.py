"""The wire shapes of MAIL as typed dictionaries, one per object of spec/MAIL-core.schema.json."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NotRequired, get_args

from pydantic import Field
from typing_extensions import TypedDict

from mail.core.addresses import MAILAddress

MessageKind = Literal["request", "response", "broadcast", "interrupt", "broadcast_complete"]

MAIL_MESSAGE_TYPES: Final[list[str]] = list(get_args(MessageKind))

ID_FIELDS: Final[Mapping[str, str]] = {
    "request": "request_id",
    "response": "request_id",
    "broadcast": "broadcast_id",
    "interrupt": "interrupt_id",
    "broadcast_complete": "broadcast_id",
}
"""The name of a payload's id, by the kind of the message."""

TaskName = Annotated[str, Field(description="The task that the message belongs to.")]
ExchangeId = Annotated[str, Field(description="The id of this exchange.")]
Sender = Annotated[MAILAddress, Field(description="The sender.")]
Recipient = Annotated[MAILAddress, Field(description="The recipient.")]
Recipients = Annotated[list[MAILAddress], Field(fail_fast=True, description="The recipients.")]
Subject = Annotated[str, Field(description="The subject line.")]
Body = Annotated[str, Field(description="The text.")]
SenderSwarm = Annotated[
    str | None, Field(description="The sender's swarm; this one when it is missing.")
]
RecipientSwarm = Annotated[
    str | None, Field(description="The recipient's swarm; this one when it is missing.")
]
RecipientSwarms = Annotated[
    Annotated[list[str], Field(fail_fast=True)] | None, Field(description="The recipients' swarms.")
]
RoutingInfo = Annotated[
    dict[str, Any] | None, Field(description="How the message travels between swarms.")
]


class MAILRequest(TypedDict):
    """One agent (or person) asks one agent for something."""

    task_id: TaskName
    request_id: ExchangeId
    sender: Sender
    recipient: Recipient
    subject: Subject
    body: Body
    sender_swarm: NotRequired[SenderSwarm]
    recipient_swarm: NotRequired[RecipientSwarm]
    routing_info: NotRequired[RoutingInfo]


class MAILResponse(TypedDict):
    """The answer to a request; ``request_id`` names the request."""

    task_id: TaskName
    request_id: ExchangeId
    sender: Sender
    recipient: Recipient
    subject: Subject
    body: Body
    sender_swarm: NotRequired[SenderSwarm]
    recipient_swarm: NotRequired[RecipientSwarm]
    routing_info: NotRequired[RoutingInfo]


class MAILBroadcast(TypedDict):
    """Word to several agents; also the shape of ``broadcast_complete``."""

    task_id: TaskName
    broadcast_id: ExchangeId
    sender: Sender
    recipients: Recipients
    subject: Subject
    body: Body
    sender_swarm: NotRequired[SenderSwarm]
    recipient_swarms: NotRequired[RecipientSwarms]
    routing_info: NotRequired[RoutingInfo]


class MAILInterrupt(TypedDict):
    """Stop or redirect what the recipients are doing."""

    task_id: TaskName
    interrupt_id: ExchangeId
    sender: Sender
    recipients: Recipients
    subject: Subject
    body: Body
    sender_swarm: NotRequired[SenderSwarm]
    recipient_swarms: NotRequired[RecipientSwarms]
    routing_info: NotRequired[RoutingInfo]


MAILPayload = MAILRequest | MAILResponse | MAILBroadcast | MAILInterrupt


class MAILMessage(TypedDict):
    """The wrapper every message travels in."""

    id: Annotated[str, Field(description="The id of the message.")]
    timestamp: Annotated[str, Field(description="When it was sent.")]
    message: Annotated[MAILPayload, Field(description="The content.")]
    msg_type: Annotated[MessageKind, Field(description="The kind of message.")]


class MAILInterswarmMessage(TypedDict):
    """The wrapper for interswarm messages."""

    message_id: Annotated[str, Field(description="The id of the message; a repeat has the same.")]
    source_swarm: Annotated[str, Field(description="The swarm that sends it.")]
    target_swarm: Annotated[str, Field(description="The swarm that it is for.")]
    timestamp: Annotated[str, Field(description="When it was sent.")]
    payload: Annotated[MAILPayload, Field(description="The message.")]
    msg_type: Annotated[MessageKind, Field(description="The kind of message.")]
    task_owner: Annotated[str, Field(description="Whose task it is, as `role:id@swarm`.")]
    task_contributors: Annotated[
        list[str],
        Field(fail_fast=True, description="Who takes part in the task, each as `role:id@swarm`."),
    ]
    auth_token: NotRequired[
        Annotated[str | None, Field(description="A copy of the bearer token; not looked at.")]
    ]
    metadata: NotRequired[
        Annotated[dict[str, Any] | None, Field(description="What the servers tell each other.")]
    ]
