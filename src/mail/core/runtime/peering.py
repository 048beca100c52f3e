"""What a task has to do with other swarms: open requests, who wrote to whom, outgoing mail.

It is kept in memory beside the task, and rebuilt from the task's log and outbox.
"""

import asyncio
import re
from collections import Counter
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
    "SILENT",
    "Ask",
    "Asks",
    "Peering",
    "WaitNote",
    "load_peering",
    "note_ask",
    "open_asks",
    "outbox_rows",
    "remote_swarms",
    "swarm_of",
    "vouched",
    "wait_cycle",
    "with_runner",
]

Asks = dict[tuple[str, str], list[str]]
"""Open requests: (who asked, who was asked) to their ids, oldest first."""

_PAGE: Final = 256
_PAGE_BYTES: Final = 4 * 1024 * 1024
MOST_ASKS: Final = 64
_NAME: Final = re.compile(r"[\w.-]{1,64}@[\w.-]{1,64}")
SILENT: Final = "silent"
"""The status of a note of waiting that no agent is to read."""


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


class WaitNote(NamedTuple):
    """What a swarm says when nothing goes on there but waiting for the receiver.

    It holds until the swarm takes more mail: ``taken`` is how much of the receiver's it has taken
    in this task. ``asks`` are open requests that it knows of, as (who asked, who was asked), all
    with their swarms.
    """

    taken: int
    asks: tuple[tuple[str, str], ...]

    def to_control(self, *, quietly: bool = False) -> PeerControl:
        """Return it as the control of a message, or of one that is nothing but this note."""
        status = SILENT if quietly else ""
        return PeerControl("waits", status, ({"taken": self.taken, "asks": self.asks},))

    @classmethod
    def of(cls, calls: Sequence[Mapping[str, Any]]) -> "WaitNote | None":
        """Read the calls of a control; None when they are no such note."""
        told = calls[0] if len(calls) == 1 else {}
        taken, asks = told.get("taken"), told.get("asks")
        if type(taken) is not int or not isinstance(asks, list | tuple) or len(asks) > MOST_ASKS:
            return None
        pairs = [tuple(pair) for pair in asks if isinstance(pair, list | tuple)]
        # Agents may read these names in a notice of the system: nothing but names gets there.
        named = [pair for pair in pairs if len(pair) == 2 and all(map(_is_name, pair))]
        return cls(taken, tuple((a, b) for a, b in named))


@dataclass(slots=True, eq=False)
class Peering:
    """A task's dealings with other swarms.

    Attributes:
        host: The swarm that this task belongs to here, or no text when it is a local caller's.
        requests: Requests of local agents by (peer, ref) that no answer has come for.
        owed: Requests of peers by (peer, ref) that no answer has been sent to.
        unsent: (peer, message id) of mail that its peer has not taken yet.
        writers: The local agents that wrote to a peer, by its name.
        met: (local agent, agent of a peer) for all mail that came.
        contacts: Whom of a peer to write to: who wrote last, else who was written to first.
        asks: See `mail.core.runtime.active_tasks.ActiveTask`.
        sent: How much mail there is for a peer, by its name.
        taken: How much of a peer's mail was taken.
        quiet: The latest note of a peer that said it only waits.
        vouched: What a peer was told of this side's waiting: (taken, sent) at that time.
        speaks: The peers whose servers send such notes.
    """

    host: str = ""
    requests: dict[tuple[str, str], Ask] = field(default_factory=dict)
    owed: dict[tuple[str, str], Ask] = field(default_factory=dict)
    unsent: set[tuple[str, str]] = field(default_factory=set)
    writers: dict[str, set[str]] = field(default_factory=dict)
    met: set[tuple[str, str]] = field(default_factory=set)
    contacts: dict[str, str] = field(default_factory=dict)
    asks: Asks = field(default_factory=dict)
    sent: Counter[str] = field(default_factory=Counter)
    taken: Counter[str] = field(default_factory=Counter)
    quiet: dict[str, WaitNote] = field(default_factory=dict)
    vouched: dict[str, tuple[int, int]] = field(default_factory=dict)
    speaks: set[str] = field(default_factory=set)

    def note_sent(self, envelope: Envelope) -> None:
        """Keep account of a message that a local agent sends."""
        sender = envelope.sender["address"]
        self.sent.update({swarm_of(recipient) for recipient in envelope.recipients} - {""})
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
        if envelope.kind == "request":
            asked = envelope.recipients[0]["address"]
            self.owed[peer, envelope.ref] = Ask(sender, asked, envelope.id)
        elif envelope.kind == "response":
            self.close((peer, envelope.ref))

    def close(self, key: tuple[str, str]) -> None:
        """Note that a request is answered, maybe by another agent, or will not be."""
        ask = self.requests.pop(key, None)
        refs = self.asks.get((ask.asker, ask.asked), []) if ask else []
        if ask and key[1] in refs:
            refs.remove(key[1])
            if not refs:
                del self.asks[ask.asker, ask.asked]

    def forget(self, peer: str) -> None:
        """Note that a peer's run has ended: its agents wait for no answers any more."""
        for key in [key for key in self.owed if key[0] == peer]:
            del self.owed[key]
        for pair in [pair for pair in self.asks if pair[0].endswith(f"@{peer}")]:
            del self.asks[pair]

    def note_quiet(self, peer: str, note: WaitNote | None) -> None:
        """Note whether a peer that has just written says that it only waits."""
        self.quiet.pop(peer, None)
        if note is not None:
            self.quiet[peer] = note
            self.speaks.add(peer)

    def only_waits(self, peer: str) -> bool:
        """Tell whether nothing can come of a peer before it gets more mail from here."""
        note = self.quiet.get(peer)
        return note is not None and note.taken == self.sent[peer]

    def expects(self, apart_from: str = "") -> bool:
        """Tell whether the answer of a peer can still come, leaving one peer out."""
        peers = {peer for peer, _ in self.requests} - {apart_from}
        return not all(self.only_waits(peer) for peer in peers)

    def waits_only_for(self, peer: str) -> bool:
        """Tell whether nothing but one peer can change anything, apart from the local agents."""
        return not self.expects(apart_from=peer) and all(to == peer for to, _ in self.unsent)

    def vouch(self, peer: str, asks: Sequence[tuple[str, str]]) -> WaitNote | None:
        """Return what a peer is told of this side's waiting, if it does not know that already."""
        told = (self.taken[peer], self.sent[peer])
        if self.vouched.get(peer) == told or not self.waits_only_for(peer):
            return None
        self.vouched[peer] = told
        return WaitNote(self.taken[peer], tuple(asks[:MOST_ASKS]))

    def known_to(self, agent: str) -> set[str]:
        """Return the agents of peers that have written to a local agent."""
        return {other for name, other in self.met if name in (agent, "all")}

    def end(self, unread: Set[str]) -> None:
        """Note the end of a run: nothing is open any more but requests that nobody has read."""
        for key in list(self.requests):
            self.close(key)
        for key in [key for key, ask in self.owed.items() if ask.message_id not in unread]:
            del self.owed[key]

    def replay(self, event: TaskEvent) -> None:
        """Note what the log tells."""
        if event.kind in TERMINAL_KINDS:
            if event.extra.get("status") != TaskState.PAUSED:
                self.end(set(event.extra.get("unanswered", ())))
        elif event.kind == "interswarm_message_received":
            peer = str(event.extra["swarm"])
            self.taken[peer] += 1
            self.note_quiet(peer, WaitNote.of(event.extra.get("waits", ())))
        elif event.kind == "interswarm_message_error" and (
            event.extra.get("given_up") or event.extra.get("unanswered")
        ):
            self.sent[str(event.extra["swarm"])] -= bool(event.extra.get("given_up"))
            lost = event.extra.get("message_id")
            for key in [key for key, ask in self.requests.items() if ask.message_id == lost]:
                self.close(key)
        elif event.kind == "new_message":
            envelope = Envelope.from_wire(event.extra["full_message"])
            if swarm_of(envelope.sender):
                self.note_received(envelope)
            else:
                self.note_sent(envelope)
            note_ask(self.asks, envelope)


def open_asks(asks: Asks, peering: Peering | None, swarm: str) -> list[tuple[str, str]]:
    """Return the open requests of a task that are known here, all names with their swarms."""
    found: dict[tuple[str, str], None] = {}
    for asker, asked in asks:
        found[_full(asker, swarm), _full(asked, swarm)] = None
    if peering is not None:
        for ask in peering.requests.values():
            found[_full(ask.asker, swarm), _full(ask.asked, swarm)] = None
        for peer in peering.quiet:
            if peering.only_waits(peer):
                found.update(dict.fromkeys(peering.quiet[peer].asks))
    return list(found)


def wait_cycle(asks: Sequence[tuple[str, str]], agent: str) -> list[str]:
    """Return a shortest path of open requests from an agent back to itself; empty without one."""
    paths = [[agent]]
    seen: set[str] = set()
    while paths:
        path = paths.pop(0)
        for asker, asked in asks:
            if asker == path[-1] and asked == agent:
                return [*path, agent]
            if asker == path[-1] and asked not in seen:
                seen.add(asked)
                paths.append([*path, asked])
    return []


def _is_name(text: object) -> bool:
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


def _full(name: str, swarm: str) -> str:
    return name if "@" in name else f"{name}@{swarm}"


def vouched(row: OutboxRow, note: WaitNote) -> OutboxRow:
    """Return mail with a note that its sender only waits."""
    wrapper = from_json(row.wrapper)
    wrapper["metadata"] = note.to_control().to_metadata()
    return row._replace(wrapper=to_json(wrapper).decode())


async def load_peering(context: "RuntimeContext", task_id: str) -> Peering:
    """Find out from the store what a task has to do with other swarms."""
    store, owner = context.store, context.owner
    peering, after = Peering(context.host), 0
    while events := await store.events(owner, task_id, after, _PAGE, _PAGE_BYTES):
        for event in events:
            peering.replay(event)
        after = events[-1].seq
        await asyncio.sleep(0)  # a long log must not hold up everybody else
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
