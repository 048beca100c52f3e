"""A task's relations to other swarms: its mail from and to them, and who is known to wait.

It is stored with the task, as JSON, in the commits of mail that comes from there or goes there.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from pydantic_core import from_json, to_json

from mail.core.envelope import Envelope
from mail.core.interswarm import PeerControl
from mail.core.runtime.ledger import swarm_in
from mail.core.runtime.waiting import MOST_NODES, Report, swarm_of_node, within_bounds
from mail.db.records import OutboxRow

_STORED: Final = ("writers", "met", "contacts", "sent", "taken", "plain", "firsthand", "told")
_ACCOUNTS: Final = (*_STORED, "known", "unsent")


def swarm_of(address: Mapping[str, Any]) -> str:
    """Return the swarm that an agent's address names, or no text."""
    return swarm_in(address["address"]) if address["address_type"] == "agent" else ""


def remote_swarms(envelope: Envelope, swarm: str) -> list[str]:
    """Return the other swarms that a message has recipients in, each once."""
    found = dict.fromkeys(swarm_of(recipient) for recipient in envelope.recipients)
    return [name for name in found if name not in ("", swarm)]


@dataclass(slots=True, eq=False)
class Peering:
    """A task's dealings with other swarms.

    Attributes:
        unsent: (peer, message id) of mail that its peer has not taken yet.
        writers: The local agents that wrote to a peer, by its name.
        met: (local agent, agent of a peer) for all mail that came.
        contacts: Whom of a peer to write to: who wrote last, else who was written to first.
        sent: The number of messages for a peer, by its name.
        taken: The number of messages taken, by the node that sent them.
        plain: The peers that have written without saying from which node.
        known: The latest report of each other node; see `mail.core.runtime.waiting`.
        firsthand: The nodes whose latest report is their own word.
        told: The reports that each node that has written knows: (node, time) of each.
        news: Whether reports came since the last time that others were told.
        own: The latest report of this side.
        closed: Whether the task has ended in the swarm of its owner, and so everywhere.
    """

    unsent: set[tuple[str, str]] = field(default_factory=set)
    writers: dict[str, set[str]] = field(default_factory=dict)
    met: set[tuple[str, str]] = field(default_factory=set)
    contacts: dict[str, str] = field(default_factory=dict)
    sent: Counter[str] = field(default_factory=Counter)
    taken: Counter[str] = field(default_factory=Counter)
    plain: set[str] = field(default_factory=set)
    known: dict[str, Report] = field(default_factory=dict)
    firsthand: set[str] = field(default_factory=set)
    told: dict[str, dict[str, str]] = field(default_factory=dict)
    news: bool = False
    own: Report | None = None
    closed: bool = False

    def draft(self) -> "Peering":
        """Return a copy for a change to work on."""
        made = replace(self)
        for name in _ACCOUNTS:
            setattr(made, name, copy(getattr(self, name)))
        return made

    def adopt(self, draft: "Peering") -> None:
        """Take over what a draft of it has become; hints may hold on to this one."""
        for each in fields(draft):
            setattr(self, each.name, getattr(draft, each.name))

    def to_json(self) -> str:
        """Return what is stored of it: all but ``unsent``, which the outbox has, and its state."""
        accounts = {name: getattr(self, name) for name in _STORED}
        reports = [report.to_wire() for report in self.known.values()]
        return to_json(accounts | {"known": reports}).decode()

    def is_as(self, other: "Peering") -> bool:
        """Tell whether the same is stored of both."""
        return all(getattr(self, name) == getattr(other, name) for name in (*_STORED, "known"))

    @classmethod
    def from_json(cls, text: str | None) -> "Peering":
        """Read what is stored of it."""
        told = from_json(text or "{}")
        reports = [Report.of(each) for each in told.get("known", ())]
        return cls(
            writers={peer: set(names) for peer, names in told.get("writers", {}).items()},
            met={(one, other) for one, other in told.get("met", ())},
            contacts=told.get("contacts", {}),
            sent=Counter(told.get("sent", {})),
            taken=Counter(told.get("taken", {})),
            plain=set(told.get("plain", ())),
            known={report.node: report for report in reports if report is not None},
            firsthand=set(told.get("firsthand", ())),
            told=told.get("told", {}),
        )

    def note_sent(self, envelope: Envelope) -> None:
        """Keep account of a message that a local agent sends."""
        sender = envelope.sender["address"]
        self.sent.update({swarm_of(recipient) for recipient in envelope.recipients} - {""})
        for recipient in envelope.recipients:
            if peer := swarm_of(recipient):
                self.contacts.setdefault(peer, recipient["address"])
                self.writers[peer] = self.writers.get(peer, set()) | {sender}

    def note_received(self, envelope: Envelope) -> None:
        """Keep account of a message that an agent of a peer has sent."""
        sender = envelope.sender["address"]
        self.contacts[swarm_of(envelope.sender)] = sender
        self.met |= {(each["address"], sender) for each in envelope.recipients}

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
            self._note(report, own_word=report.node == teller)
        self.told[teller] = {report.node: report.at for report in reports}

    def learn(self, earlier: "Peering") -> None:
        """Note what an earlier copy has heard that was let go of before anything was stored."""
        for report in earlier.known.values():
            self._note(report, own_word=report.node in earlier.firsthand)

    def _note(self, report: Report, *, own_word: bool) -> None:
        node, old = report.node, self.known.get(report.node)
        binding = old is not None and (node in self.firsthand or not own_word)
        if (binding and old is not None and report.at <= old.at) or (
            old is None and len(self.known) >= MOST_NODES
        ):
            return
        self.known[node] = report
        (self.firsthand.add if own_word else self.firsthand.discard)(node)
        self.news = True

    def latest(self, report: Report) -> Report:
        """Return this side's report, with the time since when it says the same."""
        if self.own is None or self.own._replace(at=report.at) != report:
            self.own = report
        return self.own

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


def with_reports(row: OutboxRow, reports: Sequence[Report]) -> OutboxRow:
    """Return mail with what its sender knows of waiting."""
    wrapper = from_json(row.wrapper)
    control = PeerControl.from_metadata(wrapper["metadata"]) or PeerControl()
    control = control._replace(reports=tuple(report.to_wire() for report in reports))
    wrapper["metadata"] = control.to_metadata()
    return row._replace(wrapper=to_json(wrapper).decode())


def with_runner(contributors: Sequence[str], runner: str) -> tuple[str, ...]:
    """Return contributors and one more, if it is not among them."""
    return tuple(dict.fromkeys((*contributors, runner)))
