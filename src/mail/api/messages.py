"""Building the messages that a user, administrator or other swarm posts into a swarm."""

from collections.abc import Sequence
from typing import Final, Literal

from mail.clock import Clock
from mail.core.addresses import create_address, create_agent_address
from mail.core.compose import Composer
from mail.core.schema import check_task_id
from mail.core.suggest import did_you_mean
from mail.core.wire import MAILMessage
from mail.errors import ProtocolError

__all__ = ["POSTED_KINDS", "PostedKind", "SenderType", "check_posted_kind", "compose_posted"]

SenderType = Literal["admin", "agent", "user"]
PostedKind = Literal["request", "response", "broadcast", "interrupt"]

SENDER_TYPES: Final = ("admin", "agent", "user")
POSTED_KINDS: Final = ("request", "response", "broadcast", "interrupt")
_SINGLE: Final = ("request", "response")


def check_posted_kind(kind: str) -> PostedKind:
    """Return a message type that may be posted (MAIL-TASK-7).

    Raises:
        ProtocolError: there is no such type, or only the runtime sends it.
    """
    if kind == "broadcast_complete":
        raise ProtocolError("a broadcast_complete cannot be posted; only agents can end tasks")
    if kind not in POSTED_KINDS:
        hint = did_you_mean(str(kind), POSTED_KINDS)
        raise ProtocolError(
            f"invalid message type: '{kind}'; expected one of {', '.join(POSTED_KINDS)}.{hint}"
        )
    return kind  # type: ignore[return-value]  # the line above proved it


def compose_posted(  # noqa: PLR0913 - the parts of a message
    swarm: str,
    clock: Clock,
    *,
    sender: tuple[str, str],
    kind: str,
    targets: Sequence[str],
    subject: str,
    body: str,
    task_id: str | None,
) -> MAILMessage:
    """Build a message to agents of a swarm.

    Args:
        swarm: The swarm's name.
        clock: Gives time and ids.
        sender: Kind and name of the sender.
        kind: request, response, broadcast or interrupt; a response gets a fresh ``request_id``.
        targets: Names of agents, or ``all``; exactly one for a request or response.
        subject: The subject.
        body: The body.
        task_id: The task it belongs to; a new one when None.

    Raises:
        ProtocolError: one of these does not make a message.
    """
    sender_type, sender_name = sender
    if sender_type not in SENDER_TYPES:
        raise ProtocolError(f"invalid sender type: {sender_type}")
    if isinstance(targets, str):
        raise ProtocolError(f"targets must be a list of agent names, got the string '{targets}'")
    checked = check_posted_kind(kind)
    if checked in _SINGLE and len(targets) != 1:
        raise ProtocolError(f"{checked} messages must have exactly one target")
    if not targets:
        raise ProtocolError(f"{checked} messages must have at least one target")
    envelope = Composer(swarm, clock).message(
        checked,
        clock.new_id() if task_id is None else check_task_id(task_id),
        create_address(sender_name, sender_type),  # type: ignore[arg-type]  # checked above
        [create_agent_address(target) for target in targets],
        subject,
        body,
    )
    return envelope.to_wire()
