"""What a task has to do with other swarms: open requests, who wrote to whom, outgoing mail.

It is kept in memory beside the task, and rebuilt from the task's log and outbox.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from pydantic_core import from_json, to_json

from mail.core.addresses import parse_agent_address
from mail.core.envelope import Envelope
from mail.core.events import TERMINAL_KINDS, TaskEvent
from mail.core.interswarm import MAX_CONTRIBUTORS, PeerControl, wire_task_id, wrap
from mail.core.runtime.waiting import (
    MOST_ASKS,
    MOST_NODES,
    Report,
    read_reports,
    swarm_of_node,
    within_bounds,
)
from mail.core.tasks import TaskState
from mail.db.records import OutboxRow, Owner, TaskRow
from mail.db.store import Store

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
    kind, sender = envelope.kind, envelope.sender["address"]
    if envelope.sender["address_type"] == "system":
        return  # nobody answers the system
    if kind == "request":
        asks.setdefault((sender, envelope.recipients[0]["address"]), []).append(envelope.ref)
    elif kind == "response":
        close_ask(asks, envelope.recipients[0]["address"], sender, envelope.ref)


def close_ask(asks: Asks, asker: str, asked: str, ref: str) -> None:
    """Note that a request is open no more, if it is."""
    refs = asks.get((asker, asked), [])
    if ref in refs:
        refs.remove(ref)
        if not refs:
            del asks[asker, asked]


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
        owed: Requests of peers by (peer, ref) that no answer has been sent to.
        unsent: (peer, message id) of mail that its peer has not taken yet.
        writers: The local agents that wrote to a peer, by its name.
        met: (local agent, agent of a peer) for all mail that came.
        contacts: Whom of a peer to write to: who wrote last, else who was written to first.
        asks: See `mail.core.runtime.active_tasks.ActiveTask`.
        sent: How much mail there is for a peer, by its name.
        taken: How much mail was taken, by the node that sent it.
        plain: The peers that have written without saying from which node.
        known: The latest report of each other node; see `mail.core.runtime.waiting`.
        firsthand: The nodes whose latest report is their own word.
        told: What each node that has written knows of reports: (node, time) of each.
        news: Whether reports came since the last time that others were told.
        own: The latest report of this side.
        closed: Whether the task has ended in the swarm of its owner, and so everywhere.
        shut: Requests of local agents, by (peer, ref), that a draft has closed.
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
    plain: set[str] = field(default_factory=set)
    known: dict[str, Report] = field(default_factory=dict)
    firsthand: set[str] = field(default_factory=set)
    told: dict[str, dict[str, str]] = field(default_factory=dict)
    news: bool = False
    own: Report | None = None
    closed: bool = False
    shut: dict[tuple[str, str], Ask] = field(default_factory=dict)

    def draft(self) -> "Peering":
        """Return a copy of the accounts that what agents say changes; the rest is the same."""
        return Peering(
            self.host,
            dict(self.requests),
            dict(self.owed),
            set(self.unsent),
            dict(self.writers),
            self.met,
            dict(self.contacts),
            self.asks,
            Counter(self.sent),
            self.taken,
            self.plain,
            self.known,
            self.firsthand,
            self.told,
            self.news,
            self.own,
            self.closed,
        )

    def adopt(self, draft: "Peering") -> None:
        """Take the accounts of a draft over."""
        self.requests, self.owed, self.unsent = draft.requests, draft.owed, draft.unsent
        self.sent, self.writers, self.contacts = draft.sent, draft.writers, draft.contacts
        self.own, self.met = draft.own, draft.met
        for (_, ref), ask in draft.shut.items():
            close_ask(self.asks, ask.asker, ask.asked, ref)

    def note_sent(self, envelope: Envelope) -> None:
        """Keep account of a message that a local agent sends."""
        sender = envelope.sender["address"]
        self.sent.update({swarm_of(recipient) for recipient in envelope.recipients} - {""})
        for recipient in envelope.recipients:
            peer, address = swarm_of(recipient), recipient["address"]
            if not peer:
                continue
            self.contacts.setdefault(peer, address)
            self.writers[peer] = self.writers.get(peer, set()) | {sender}
            if envelope.kind == "request":
                self.requests[peer, envelope.ref] = Ask(sender, address, envelope.id)
            elif envelope.kind == "response":
                self.owed.pop((peer, envelope.ref), None)

    def note_received(self, envelope: Envelope) -> None:
        """Keep account of a message that an agent of a peer has sent."""
        peer, sender = swarm_of(envelope.sender), envelope.sender["address"]
        self.contacts[peer] = sender
        self.met = self.met | {(each["address"], sender) for each in envelope.recipients}
        if envelope.kind == "request":
            asked = envelope.recipients[0]["address"]
            self.owed[peer, envelope.ref] = Ask(sender, asked, envelope.id)
        elif envelope.kind == "response":
            self.close((peer, envelope.ref))

    def close(self, key: tuple[str, str]) -> None:
        """Note that a request is answered, maybe by another agent, or will not be."""
        ask = self.requests.pop(key, None)
        if ask is not None:
            self.shut[key] = ask

    def forget(self, peer: str) -> None:
        """Note that a peer's run has ended: its agents wait for no answers any more."""
        for key in [key for key in self.owed if key[0] == peer]:
            del self.owed[key]
        for pair in [pair for pair in self.asks if pair[0].endswith(f"@{peer}")]:
            del self.asks[pair]

    # --- waiting ------------------------------------------------------------------------------

    def note_taken(self, peer: str, node: str, times: int = 1) -> None:
        """Count mail of a node; without its name it cannot be held against what was sent."""
        if not node:
            self.plain.add(peer)
        elif self._has_room(node):
            self.taken[node] += times
            self.told.setdefault(node, {})

    def _has_room(self, node: str) -> bool:
        return node in self.told or len(self.told) < MOST_NODES

    def hear(self, teller: str, reports: Sequence[Report]) -> None:
        """Note what a node knows: its word about itself goes before hearsay."""
        if not teller or not self._has_room(teller):
            return
        for report in reports:
            node, old = report.node, self.known.get(report.node)
            own_word = node == teller
            binding = old is not None and (node in self.firsthand or not own_word)
            if (binding and old is not None and report.at <= old.at) or (
                old is None and len(self.known) >= MOST_NODES
            ):
                continue
            self.known[node] = report
            (self.firsthand.add if own_word else self.firsthand.discard)(node)
            self.news = True
        self.told[teller] = {report.node: report.at for report in reports}

    def report(self, node: str, at: str, *, over: bool = False, acts: bool = False) -> Report:
        """Return what this side says when nothing goes on here.

        Args:
            node: The name of this side.
            at: The time.
            over: Its part has ended.
            acts: See `mail.core.runtime.waiting.Report`.
        """
        waited = {peer for peer, _ in self.requests}
        speaking = {swarm_of_node(name) for name in self.told}
        plain = self.plain - waited - speaking
        sent = {peer: count for peer, count in self.sent.items() if count and peer not in plain}
        taken = {name: count for name, count in self.taken.items() if count}
        asks = () if over else tuple(self._own_asks(swarm_of_node(node)))
        return Report(node, at, sent, taken, asks[:MOST_ASKS], acts and not over)

    def latest(self, report: Report) -> Report:
        """Return this side's report, with the time since when it says the same."""
        if self.own is None or self.own._replace(at=report.at) != report:
            self.own = report
        return self.own

    def _own_asks(self, swarm: str) -> list[tuple[str, str]]:
        """Return the open requests of local agents, all names with their swarms."""
        local = [(one, other) for one, other in self.asks if "@" not in one and "@" not in other]
        away = [(ask.asker, ask.asked) for ask in self.requests.values()]
        found = [(f"{one}@{swarm}", _full(other, swarm)) for one, other in (*local, *away)]
        return list(dict.fromkeys(found))

    def reports(self, own: Report) -> list[Report]:
        """Return what is known of waiting, this side's report first, as far as a peer reads it."""
        others = [report for name, report in self.known.items() if name != own.node]
        return within_bounds([own, *others])

    def lacks(self, target: str, reports: Sequence[Report]) -> bool:
        """Tell whether a node does not know of some reports."""
        told = self.told[target]
        return any(r.node != target and r.at > told.get(r.node, "") for r in reports)

    def rides(self, peer: str, reports: Sequence[Report]) -> None:
        """Note that mail takes reports to a peer, if it is clear to which of its nodes."""
        nodes = [name for name in self.told if swarm_of_node(name) == peer]
        if len(nodes) == 1:
            self.told[nodes[0]] = {report.node: report.at for report in reports}

    # --- what is known ------------------------------------------------------------------------

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
            node = str(event.extra.get("runner", ""))
            self.note_taken(str(event.extra["swarm"]), node)
            self.hear(node, read_reports(event.extra.get("reports", ())))
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


def _full(name: str, swarm: str) -> str:
    return name if "@" in name else f"{name}@{swarm}"


def with_reports(row: OutboxRow, reports: Sequence[Report]) -> OutboxRow:
    """Return mail with what its sender knows of waiting."""
    wrapper = from_json(row.wrapper)
    control = PeerControl.from_metadata(wrapper["metadata"]) or PeerControl()
    control = control._replace(reports=tuple(report.to_wire() for report in reports))
    wrapper["metadata"] = control.to_metadata()
    return row._replace(wrapper=to_json(wrapper).decode())


async def load_peering(store: Store, owner: Owner, host: str, task_id: str) -> Peering:
    """Find out from the store what a task has to do with other swarms; ``host`` if one's it is."""
    peering, after = Peering(host), 0
    while events := await store.events(owner, task_id, after, _PAGE, _PAGE_BYTES):
        for event in events:
            peering.replay(event)
        after = events[-1].seq
        await asyncio.sleep(0)  # a long log must not hold up everybody else
    peering.adopt(peering)
    peering.requests.clear()
    for row in await store.task_outbox(owner, task_id):
        if row.kind == "request" and row.state != "dead":
            asked = from_json(row.wrapper)["payload"]["recipient"]["address"]
            peering.requests[row.peer, row.ref] = Ask(row.sender, asked, row.message_id)
        if row.state == "waiting":
            peering.unsent.add((row.peer, row.message_id))
    return peering


def outbox_rows(
    owner: Owner,
    row: TaskRow,
    envelope: Envelope,
    created_at: str,
    *,
    nodes: Iterable[str] = (),
    by_runtime: bool = False,
    control: PeerControl | None = None,
) -> list[OutboxRow]:
    """Return a message's mail for other swarms, one row for each of them.

    Args:
        owner: Whose task it is.
        row: Its task.
        envelope: The message, from a local agent.
        created_at: When it is sent.
        nodes: The nodes of other swarms that have written: a swarm is told of its own, for it may
            have several parts in the task.
        by_runtime: No agent wrote it, and none is to hear what becomes of it.
        control: What it means to the runtime there.
    """
    contributors = with_runner(row.task_contributors, str(owner))
    control = (control or PeerControl())._replace(runner=str(owner))
    rows = []
    for peer in remote_swarms(envelope, owner.swarm):
        wrapper = wrap(
            envelope,
            peer,
            wire_id=wire_task_id(owner.role, row.task_id),
            task_owner=row.task_owner,
            contributors=_with_nodes(contributors, nodes, peer),
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


def _with_nodes(contributors: Sequence[str], nodes: Iterable[str], peer: str) -> tuple[str, ...]:
    """Return contributors and the nodes of a peer, as many as there may be."""
    own = (node for node in nodes if swarm_of_node(node) == peer)
    return tuple(dict.fromkeys((*contributors, *own)))[:MAX_CONTRIBUTORS]


def with_runner(contributors: Sequence[str], runner: str) -> tuple[str, ...]:
    """Return contributors and one more, if it is not among them."""
    return tuple(dict.fromkeys((*contributors, runner)))
