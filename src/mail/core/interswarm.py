"""Mail between swarms: its wrapper, the names of a task on both sides, the seam to the network.

The runtime fills wrappers and takes them; `mail.net` carries them. See ``spec/SPEC.md``,
chapter 20.
"""

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal, NamedTuple, Protocol, cast

from pydantic import TypeAdapter, ValidationError

from mail.core.addresses import (
    MAILAddress,
    create_agent_address,
    format_contributor,
    parse_agent_address,
)
from mail.core.envelope import Envelope
from mail.core.wire import MAILInterswarmMessage
from mail.errors import ProtocolError

PEER_ROLE: Final = "swarm"
"""The role of a task's owner when the owner is another swarm."""

INBOX_AGE: Final = timedelta(days=7)
"""The time for which a peer's repeated delivery is known; senders must have given up by then."""

MAX_TASK_ID: Final = 240
MAX_CONTRIBUTORS: Final = 16
"""The hop limit: more runtimes than these cannot take part in one task."""

CONTROL: Final = "mail"
"""The key of a wrapper's metadata under which MAIL servers tell each other what mail means."""

SILENT: Final = "silent"
"""The status of a control of a message that no agent is to read."""

_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MARK: Final = "#"


class PeerControl(NamedTuple):
    """The meaning of a message to the runtime that gets it, beside its words for agents.

    ``ended`` comes from either side: the task's run, or the contributor's part in it, is over;
    ``status`` says how. ``paused`` comes from a contributor: ``calls`` are its open breakpoint
    calls as callers see them. ``results`` goes to a contributor: ``calls`` are ``{call_id,
    content}`` objects that answer such calls. ``waits`` with the status `SILENT` is a message that
    brings nothing but reports. No event is an ordinary message.

    Attributes:
        event: See above.
        status: See above.
        calls: See above.
        runner: The runtime that sends it, as the contributors name it; no text if it does not say.
        reports: The reports of waits; see `mail.core.runtime.waiting.Report`.
    """

    event: Literal["", "ended", "paused", "results", "waits"] = ""
    status: str = ""
    calls: tuple[dict[str, Any], ...] = ()
    runner: str = ""
    reports: tuple[dict[str, Any], ...] = ()

    @property
    def is_silent(self) -> bool:
        """Tell whether its message is stored nowhere, and no agent is to read it."""
        return self.event == "waits" and self.status == SILENT

    def to_metadata(self) -> dict[str, Any]:
        """Return the metadata of the wrapper."""
        told = {
            "event": self.event,
            "status": self.status,
            "calls": list(self.calls),
            "runner": self.runner,
            "reports": list(self.reports),
        }
        return {CONTROL: {key: value for key, value in told.items() if value}}

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any] | None) -> "PeerControl | None":
        """Read it; None when the metadata has none.

        Raises:
            ProtocolError: it has one that cannot be read.
        """
        told = (metadata or {}).get(CONTROL)
        if told is None:
            return None
        known = told.items() if isinstance(told, dict) else [("event", None)]
        try:
            return _CONTROLS.validate_python({k: v for k, v in known if k in cls._fields})
        except ValidationError:
            raise ProtocolError(f"metadata.{CONTROL}: not a note of a MAIL server") from None


_CONTROLS: Final = TypeAdapter(PeerControl)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerMail:
    """Mail that a peer has delivered, checked and addressed to the local runtime that takes it.

    Attributes:
        peer: The swarm that sent it, as its token says.
        envelope: The message: ``task_id`` is the local one, senders are ``agent@peer``, recipients
            of this swarm are plain names.
        task_owner: The owner of the task, as the wrapper says.
        contributors: The participants, as the wrapper says.
        control: Its meaning to the runtime.
        receipt: The answer to the peer as JSON; a repeated delivery gets it again.
        opens: Whether it may open the task here.
    """

    peer: str
    envelope: Envelope
    task_owner: str
    contributors: tuple[str, ...]
    control: PeerControl | None = None
    receipt: str = "{}"
    opens: bool = False


class DeliveryOutcome(NamedTuple):
    """The outcome of an attempt to deliver mail to a peer.

    ``delivered``: the peer has it; ``runner`` is the contributor that took it. ``delayed``: the
    first attempt failed and others follow. ``undeliverable``: nobody tries any more.
    ``unanswered``: the peer took a request, and nobody waits for the answer any more. ``said`` are
    the words of the other server that ``reason`` may end with.
    """

    state: Literal["delivered", "delayed", "undeliverable", "unanswered"]
    reason: str = ""
    runner: str = ""
    said: str = ""

    @property
    def own_reason(self) -> str:
        """The reason without the words of the other server, which are no notice of the system."""
        return self.reason.removesuffix(f": {self.said}") if self.said else self.reason


class Gateway(Protocol):
    """The other swarms, as a runtime sees them."""

    def check(self, swarm: str) -> None:
        """Check that mail for a swarm can be sent at all.

        Raises:
            ToolError: the swarm is unknown, or there is no token for it.
        """

    def swarms(self) -> list[str]:
        """Return the names of the other swarms that are active, in order."""

    def wake(self, peers: Collection[str]) -> None:
        """Hear that mail for these swarms has been committed. A hint: the truth is in the store.

        Without names it says that a runtime has begun, and mail may wait from the last time.
        """

    async def hint(self, swarm: str, wrapper: MAILInterswarmMessage) -> bool:
        """Try once to deliver a message that may be lost: it is in no outbox.

        Returns:
            Whether that is done with: delivered, or refused for good. False when the swarm does
            not answer, or too many hints are under way.
        """

    async def discover(self, urls: Sequence[str]) -> tuple[list[str], list[str]]:
        """Ask servers which swarms they list.

        Returns:
            The names of swarms that were new, and what went wrong, a line each.
        """


def check_task_for_peers(task_id: str) -> None:
    """Refuse a task whose id is too long to have a name on both sides.

    Raises:
        ProtocolError: it has more than `MAX_TASK_ID` characters.
    """
    if len(task_id) > MAX_TASK_ID:
        raise ProtocolError(
            f"the id of a task that other swarms take part in must have at most {MAX_TASK_ID} "
            "characters"
        )


def local_task_id(wire_id: str, task_owner: str) -> str:
    """Return the id under which a peer's task is kept here.

    Ids that people choose may be the same for two owners in one swarm, so these get a mark.
    """
    check_task_for_peers(wire_id)
    if _UUID.fullmatch(wire_id):
        return wire_id
    digest = hashlib.sha256(task_owner.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{wire_id}{_MARK}{digest}"


def wire_task_id(owner_role: str, task_id: str) -> str:
    """Return the id that peers know a local task by: the inverse of `local_task_id`."""
    if owner_role != PEER_ROLE or _UUID.fullmatch(task_id):
        return task_id
    return task_id.rpartition(_MARK)[0]


def runner_name(peer: str, swarm: str) -> str:
    """Return the contributor that stands for a peer's runtime in the local swarm."""
    return format_contributor(PEER_ROLE, peer, swarm)


def wrap(
    envelope: Envelope,
    target: str,
    *,
    wire_id: str,
    task_owner: str,
    contributors: Sequence[str],
    control: PeerControl | None = None,
) -> MAILInterswarmMessage:
    """Return the wrapper of a local message for one swarm, with its recipients there.

    Its sender is an agent. It has no token: whoever delivers it adds one.
    """
    swarm = envelope.sender_swarm or ""
    outgoing = envelope._replace(
        task_id=wire_id,
        sender=_qualified(envelope.sender, swarm),
        recipients=tuple(
            one for one in envelope.recipients if parse_agent_address(one["address"])[1] == target
        ),
        recipient_swarms=(target,),
    )
    return {
        "message_id": envelope.id,
        "source_swarm": swarm,
        "target_swarm": target,
        "timestamp": envelope.timestamp,
        "payload": outgoing.to_wire()["message"],
        "msg_type": envelope.kind,
        "task_owner": task_owner,
        "task_contributors": list(contributors),
        "metadata": control.to_metadata() if control else {},
    }


def unwrap(message: MAILInterswarmMessage, swarm: str, task_id: str) -> Envelope:
    """Return the message in a wrapper as the local runtime takes it.

    Args:
        message: The wrapper, which `mail.core.schema.parse_interswarm_message` has accepted.
        swarm: The local swarm; recipients of others are left out.
        task_id: The local id of the task.
    """
    source = message["source_swarm"]
    envelope = Envelope.from_wire(
        {
            "id": message["message_id"],
            "timestamp": message["timestamp"],
            "message": message["payload"],
            "msg_type": message["msg_type"],
        }
    )
    recipients = []
    for one in envelope.recipients:
        name, at = parse_agent_address(one["address"])
        if at in (None, swarm):
            recipients.append({**one, "address": name})
    return envelope._replace(
        task_id=task_id,
        sender=_qualified(envelope.sender, source),
        recipients=tuple(cast("list[MAILAddress]", recipients)),
        sender_swarm=source,
        recipient_swarms=(swarm,),
    )


def _qualified(sender: MAILAddress, swarm: str) -> MAILAddress:
    """Return an agent's full address."""
    name, at = parse_agent_address(sender["address"])
    return create_agent_address(f"{name}@{at or swarm}")
