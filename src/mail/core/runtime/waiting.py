"""Agents of several swarms that wait for one another, and how it is known that nothing can come.

A *node* is one swarm's part in a task, by the name of its runtime: ``user:ines@harbour``,
``swarm:harbour@weather``. When nothing goes on in a node, it makes a `Report` of how much mail it
has sent to each swarm and taken from each node. Reports travel with the mail that goes anyway, and
in hints, which are stored nowhere; nodes pass on what they know to those they exchange mail with.

Nothing can come any more when everybody that could write has reported, and what they have sent was
taken: for each node and each swarm, what the node has sent there is what the nodes there have taken
from it (Mattern's vector counters). Only mail rouses a node, so let ``j`` be the first one that
took mail after its report, from ``i``. If ``i`` sent it after its own report, ``i`` was roused
before ``j``. Else ``i`` counts it and no receiver does; as the sums agree, one of them has counted
mail that ``i`` sent after its report, and again ``i`` was roused before ``j``: there is no such
``j``. It does not matter that reports were made at different times, or how they came.

Servers of MAIL 1.3.6 make no reports, so whoever waits for one is never said to wait in vain.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from mail.core import teams
from mail.core.addresses import parse_task_contributor
from mail.core.interswarm import MAX_CONTRIBUTORS, PeerControl
from mail.errors import AddressError

MOST_NODES: Final = MAX_CONTRIBUTORS
MOST_ASKS: Final = 64
_LONGEST_NAME: Final = 256
_LONGEST_TIME: Final = 40
_LARGEST_COUNT: Final = 2**53
_NAME: Final = re.compile(r"[\w.-]{1,64}@[\w.-]{1,64}")


class Report(NamedTuple):
    """The word of a node in which nothing goes on.

    Attributes:
        node: The name of its runtime, as in ``task_contributors``.
        at: The time of the node's newest event; of two reports of a node the later one counts.
        sent: The number of messages that agents and runtimes elsewhere must take, by swarm.
        taken: The number of messages that it has taken, by node.
        asks: The open requests of its own agents, as (who asked, who was asked) with their swarms.
        acts: Whether somebody waits for the node's answer, so that it can be asked to finish.
    """

    node: str
    at: str
    sent: Mapping[str, int]
    taken: Mapping[str, int]
    asks: tuple[tuple[str, str], ...] = ()
    acts: bool = False

    def to_wire(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return {**self._asdict(), "sent": dict(self.sent), "taken": dict(self.taken)}

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> "Report | None":
        """Read a report; None when it is none."""
        node, at, asks = told.get("node"), told.get("at"), told.get("asks", [])
        sent, taken = _counts(told.get("sent")), _counts(told.get("taken"))
        if not isinstance(at, str) or len(at) > _LONGEST_TIME or not isinstance(asks, list | tuple):
            return None
        swarm = swarm_of_node(node)
        if not isinstance(node, str) or not swarm or sent is None or taken is None:
            return None
        pairs = [pair for pair in asks if isinstance(pair, list | tuple) and len(pair) == 2]
        # Agents may read these names in a notice of the system: nothing but names gets there.
        named = [(a, b) for a, b in pairs if _is_name(a) and _is_name(b)]
        own = tuple((a, b) for a, b in named if a.endswith(f"@{swarm}"))
        return cls(node, at, sent, taken, own, told.get("acts") is True)


def _counts(told: object) -> dict[str, int] | None:
    if not isinstance(told, Mapping) or len(told) > MOST_NODES:
        return None
    fits = all(
        isinstance(name, str)
        and len(name) <= _LONGEST_NAME
        and type(count) is int
        and 0 <= count < _LARGEST_COUNT
        for name, count in told.items()
    )
    return dict(told) if fits else None


def _is_name(text: object) -> bool:
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


def swarm_of_node(name: object) -> str:
    """Return the swarm in the name of a node, or no text when it is no such name."""
    if not isinstance(name, str) or len(name) > _LONGEST_NAME:
        return ""
    try:
        return parse_task_contributor(name).swarm
    except AddressError:
        return ""


def node_of(control: PeerControl | None, peer: str) -> str:
    """Return the node that mail of a peer comes from, or no text: MAIL 1.3.6 does not say it."""
    name = control.runner if control else ""
    return name if swarm_of_node(name) == peer else ""


def read_reports(told: object) -> list[Report]:
    """Return the reports that a peer sends; none when there are too many or they say too much."""
    if not isinstance(told, list | tuple) or len(told) > MOST_NODES:
        return []
    read = [Report.of(each) for each in told if isinstance(each, Mapping)]
    reports = [report for report in read if report is not None]
    return reports if sum(len(each.asks) for each in reports) <= MOST_ASKS else []


def within_bounds(reports: Sequence[Report]) -> list[Report]:
    """Return as many reports, with as many requests, as a peer reads; the first ones go first."""
    room, found = MOST_ASKS, []
    for report in reports[:MOST_NODES]:
        found.append(report._replace(asks=report.asks[:room]))
        room -= len(found[-1].asks)
    return found


def stuck(own: Report, known: Mapping[str, Report]) -> list[Report]:
    """Return the reports of all nodes that could write to a node, if nothing ever comes of them.

    Args:
        own: The node's own report.
        known: The reports of others, by node.

    Returns:
        The reports, the own one first; none while something can come.
    """
    every = {**known, own.node: own}
    found, there = [own], {own.node}
    for one in found:  # it grows
        near = set(one.taken)
        for swarm, count in one.sent.items():
            takers = [
                each
                for each in every.values()
                if one.node in each.taken and swarm_of_node(each.node) == swarm
            ]
            if sum(each.taken[one.node] for each in takers) != count:
                return []
            near.update(each.node for each in takers)
        for name in sorted(near - there):
            if name not in every:
                return []
            there.add(name)
            found.append(every[name])
    return found


def acting(reports: Sequence[Report]) -> str:
    """Return the node that does something about it when all of these wait in vain, or no text."""
    return min((report.node for report in reports if report.acts), default="")


def wait_cycle(asks: Sequence[tuple[str, str]], agent: str = "") -> list[str]:
    """Return a shortest path of open requests from an agent back to itself; empty without one.

    Without an agent it is a shortest one of all.
    """
    edges: dict[str, dict[str, None]] = {}
    for asker, asked in asks:
        edges.setdefault(asker, {})[asked] = None
    agents = [agent] if agent else list(edges)
    cycles = [
        teams.wait_cycle(edges, each, asked) for each in agents for asked in edges.get(each, ())
    ]
    return min((path for path in cycles if path), key=len, default=[])
