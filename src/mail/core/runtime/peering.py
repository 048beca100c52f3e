"""What a task has to do with other swarms: open requests, who wrote to whom, outgoing mail.

It is kept in memory beside the task, and rebuilt from the task's log and outbox.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pydantic_core import from_json, to_json

from mail.core.addresses import parse_agent_address
from mail.core.envelope import Envelope
from mail.core.events import TERMINAL_KINDS, TaskEvent
from mail.core.interswarm import PeerControl, wire_task_id, wrap
from mail.core.tasks import TaskState
from mail.db.base import OutboxRow, TaskRow

if TYPE_CHECKING:
    from mail.core.runtime.context import RuntimeContext

__all__ = [
    "Ask",
    "Asks",
    "Peering",
    "load_peering",
    "note_ask",
    "outbox_rows",
    "remote_swarms",
    "swarm_of",
    "with_runner",
]

Asks = dict[tuple[str, str], list[str]]
"""Open requests: (who asked, who was asked) to their ids, oldest first."""

_PAGE: Final = 256
_PAGE_BYTES: Final = 4 * 1024 * 1024


def swarm_of(address: Mapping[str, Any]) -> str:
    """Return the swarm that an agent's address names, or no text."""
    if address["address_type"] != "agent" or "@" not in address["address"]:
        return ""
    return parse_agent_address(address["address"])[1] or ""


def remote_swarms(envelope: Envelope, swarm: str) -> list[str]:
    """Return the other swarms that a message has recipients in, each once."""
    found = dict.fromkeys(swarm_of(recipient) for recipient in envelope.recipients)
    return [name for name in found if name not in ("", swarm)]


def note_ask(asks: Asks, envelope: Envelope) -> None:
    """Keep account of open requests (MAIL-DATA-12)."""
    sender = envelope.sender["address"]
    if envelope.sender["address_type"] == "system":
        return  # nobody answers the system
    if envelope.kind == "request":
        asks.setdefault((sender, envelope.recipients[0]["address"]), []).append(envelope.ref)
    elif envelope.kind == "response":
        key = (envelope.recipients[0]["address"], sender)
        open_requests = asks.get(key, [])
        if envelope.ref in open_requests:
            open_requests.remove(envelope.ref)
            if not open_requests:
                del asks[key]


class Ask(NamedTuple):
    """An open request from one swarm to another.

    Attributes:
        asker: The agent that asked; of a peer with its swarm.
        asked: The agent that was asked, likewise.
        message_id: The id of the message.
    """

    asker: str
    asked: str
    message_id: str


@dataclass(slots=True, eq=False)
class Peering:
    """A task's dealings with other swarms.

    Attributes:
        host: The swarm that this task belongs to here, or no text when it is a local caller's.
        requests: Requests of local agents by (peer, ref) that no answer has come for.
        owed: The host's requests by (host, ref) that no answer has been sent to.
        unsent: (peer, message id) of mail that its peer has not taken yet.
        writers: The local agents that wrote to a peer, by its name.
        met: (local agent, agent of a peer) for all mail that came.
        contacts: Whom of a peer to write to: who wrote last, else who was written to first.
        asks: See `mail.core.runtime.active_tasks.ActiveTask`.
    """

    host: str = ""
    requests: dict[tuple[str, str], Ask] = field(default_factory=dict)
    owed: dict[tuple[str, str], Ask] = field(default_factory=dict)
    unsent: set[tuple[str, str]] = field(default_factory=set)
    writers: dict[str, set[str]] = field(default_factory=dict)
    met: set[tuple[str, str]] = field(default_factory=set)
    contacts: dict[str, str] = field(default_factory=dict)
    asks: Asks = field(default_factory=dict)

    def note_sent(self, envelope: Envelope) -> None:
        """Keep account of a message that a local agent sends."""
        sender = envelope.sender["address"]
        for recipient in envelope.recipients:
            peer, address = swarm_of(recipient), recipient["address"]
            if not peer:
                continue
            self.contacts.setdefault(peer, address)
            self.writers.setdefault(peer, set()).add(sender)
            if envelope.kind == "request":
                self.requests[peer, envelope.ref] = Ask(sender, address, envelope.id)
            elif envelope.kind == "response":
                self.owed.pop((peer, envelope.ref), None)

    def note_received(self, envelope: Envelope) -> None:
        """Keep account of a message that an agent of a peer has sent."""
        peer, sender = swarm_of(envelope.sender), envelope.sender["address"]
        self.contacts[peer] = sender
        self.met.update((recipient["address"], sender) for recipient in envelope.recipients)
        if envelope.kind == "request" and peer == self.host:
            asked = envelope.recipients[0]["address"]
            self.owed[peer, envelope.ref] = Ask(sender, asked, envelope.id)
        elif envelope.kind == "response":
            self.requests.pop((peer, envelope.ref), None)

    def known_to(self, agent: str) -> set[str]:
        """Return the agents of peers that have written to a local agent."""
        return {other for name, other in self.met if name in (agent, "all")}

    def end(self, unread: Set[str]) -> None:
        """Note the end of a run: nothing is open any more but requests that nobody has read."""
        self.requests.clear()
        for key in [key for key, ask in self.owed.items() if ask.message_id not in unread]:
            del self.owed[key]

    def replay(self, event: TaskEvent) -> None:
        """Note what the log tells."""
        if event.kind in TERMINAL_KINDS:
            if event.extra.get("status") != TaskState.PAUSED:
                self.end(set(event.extra.get("unanswered", ())))
        elif event.kind == "new_message":
            envelope = Envelope.from_wire(event.extra["full_message"])
            if swarm_of(envelope.sender):
                self.note_received(envelope)
            else:
                self.note_sent(envelope)
            note_ask(self.asks, envelope)


async def load_peering(context: "RuntimeContext", task_id: str) -> Peering:
    """Find out from the store what a task has to do with other swarms."""
    store, owner = context.store, context.owner
    peering, after = Peering(context.host), 0
    while events := await store.events(owner, task_id, after, _PAGE, _PAGE_BYTES):
        for event in events:
            peering.replay(event)
        after = events[-1].seq
    peering.requests.clear()
    for row in await store.task_outbox(owner, task_id):
        if row.kind == "request" and row.state != "dead":
            asked = from_json(row.wrapper)["payload"]["recipient"]["address"]
            peering.requests[row.peer, row.ref] = Ask(row.sender, asked, row.message_id)
        if row.state == "waiting":
            peering.unsent.add((row.peer, row.message_id))
    return peering


def outbox_rows(
    context: "RuntimeContext",
    row: TaskRow,
    envelope: Envelope,
    created_at: str,
    *,
    by_runtime: bool = False,
    control: PeerControl | None = None,
) -> list[OutboxRow]:
    """Return a message's mail for other swarms, one row for each of them.

    Args:
        context: The runtime that sends it.
        row: Its task.
        envelope: The message, from a local agent.
        created_at: When it is sent.
        by_runtime: No agent wrote it, and none is to hear what becomes of it.
        control: What it means to the runtime there.
    """
    owner = context.owner
    contributors = with_runner(row.task_contributors, str(owner))
    rows = []
    for peer in remote_swarms(envelope, context.swarm):
        wrapper = wrap(
            envelope,
            peer,
            wire_id=wire_task_id(owner.role, row.task_id),
            task_owner=row.task_owner,
            contributors=contributors,
            control=control,
        )
        rows.append(
            OutboxRow(
                task_id=row.task_id,
                peer=peer,
                message_id=envelope.id,
                sender="" if by_runtime else envelope.sender["address"],
                kind=envelope.kind,
                ref=envelope.ref,
                wrapper=to_json(wrapper).decode(),
                created_at=created_at,
            )
        )
    return rows


def with_runner(contributors: Sequence[str], runner: str) -> tuple[str, ...]:
    """Return contributors and one more, if it is not among them."""
    return tuple(dict.fromkeys((*contributors, runner)))
