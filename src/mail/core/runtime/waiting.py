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

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mail.core.addresses import create_agent_address, parse_task_contributor
from mail.core.interswarm import MAX_CONTRIBUTORS, SILENT, PeerControl, wire_task_id, wrap
from mail.core.tasks import TaskState
from mail.errors import AddressError

if TYPE_CHECKING:
    from mail.core.runtime.active_tasks import ActiveTask
    from mail.core.runtime.context import RuntimeContext
    from mail.core.runtime.peering import Peering
    from mail.core.wire import MAILInterswarmMessage
    from mail.db.records import TaskRow

MOST_NODES: Final = MAX_CONTRIBUTORS
MOST_ASKS: Final = 64
_LONGEST_NAME: Final = 256
_LONGEST_TIME: Final = 40
_LARGEST_COUNT: Final = 2**53
_NAME: Final = re.compile(r"[\w.-]{1,64}@[\w.-]{1,64}")
_LONGEST_PAUSE: Final = 300.0
_MOST_TRIES: Final = 300
_MOST_TRIES_AT_END: Final = 12
"""Of a part that has ended, and that nothing brings back to memory but mail."""
_MOST_TASKS: Final = 1024


class Report(NamedTuple):
    """What a node says when nothing goes on there.

    Attributes:
        node: The name of its runtime, as in ``task_contributors``.
        at: The node's own time; of two reports of a node the later one counts.
        sent: How much mail agents and runtimes elsewhere must take, by swarm.
        taken: How much mail it has taken, by node.
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
    agents = [agent] if agent else list(dict.fromkeys(asker for asker, _ in asks))
    cycles = [_cycle(asks, each) for each in agents]
    return min((path for path in cycles if path), key=len, default=[])


def _cycle(asks: Sequence[tuple[str, str]], agent: str) -> list[str]:
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


# --- hints --------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Due:
    """What is to be told of a task in which nothing goes on."""

    row: "TaskRow"
    peering: "Peering"
    own: Report
    pause: float
    tries: int = 0
    timer: asyncio.TimerHandle | None = None


@dataclass(slots=True, eq=False)
class WaitHints:
    """Tells other nodes of reports that they do not know, while a wait lasts.

    A wait that is over soon costs nothing: the first hint goes after a pause. One that does not
    arrive is sent again after pauses that double.
    """

    context: "RuntimeContext"
    _due: dict[str, _Due] = field(default_factory=dict)
    _work: set["asyncio.Task[None]"] = field(default_factory=set)

    @property
    def pending(self) -> bool:
        """Tell whether something is still to be told."""
        return bool(self._due)

    def tell(self, task: "ActiveTask", own: Report) -> None:
        """Note that nothing goes on in a task.

        Args:
            task: The task.
            own: The report of it.
        """
        peering = task.peering
        if peering is None or self.context.gateway is None or self.context.draining:
            return
        heard, peering.news = peering.news, False
        if not self._lacking(peering, own):
            self.drop(task.task_id)
            return
        waiting = self._due.get(task.task_id)
        if waiting is not None and waiting.peering is peering and not heard:
            waiting.row, waiting.own = task.row, own
            return
        if waiting is None and len(self._due) >= _MOST_TASKS:
            return
        pause = 0.0 if heard else self.context.settings.hint_pause
        self.drop(task.task_id)
        self._wait(_Due(task.row, peering, own, pause))

    def drop(self, task_id: str) -> None:
        """Tell no more of a task."""
        due = self._due.pop(task_id, None)
        if due is not None and due.timer is not None:
            due.timer.cancel()

    def close(self) -> None:
        """Tell nothing more."""
        for task_id in list(self._due):
            self.drop(task_id)
        for work in self._work:
            work.cancel()

    def _wait(self, due: _Due) -> None:
        self._due[due.row.task_id] = due
        due.timer = asyncio.get_running_loop().call_later(due.pause, self._begin, due)

    def _begin(self, due: _Due) -> None:
        due.timer = None
        work = asyncio.create_task(self._send(due), name="hints of waiting")
        self._work.add(work)
        work.add_done_callback(self._work.discard)

    async def _send(self, due: _Due) -> None:
        task_id, live = due.row.task_id, self.context.active_tasks.get(due.row.task_id)
        if live and live.turns:  # it is told when they have ended
            self._forget(due)
            return
        targets = self._lacking(due.peering, due.own)
        done = all(await asyncio.gather(*(self._hint(due, target) for target in targets)))
        row, first = self.context.active_tasks.row(task_id), self.context.settings.hint_pause
        waits = (row or due.row).state is TaskState.RUNNING
        tries = _MOST_TRIES if waits else _MOST_TRIES_AT_END
        if self._due.get(task_id) is not due:
            return
        if not self._lacking(due.peering, due.own) or (not done and due.tries >= tries):
            self._forget(due)
            return
        due.pause = first if done else min(max(2 * due.pause, first), _LONGEST_PAUSE)
        due.tries = 0 if done else due.tries + 1
        self._wait(due)

    def _forget(self, due: _Due) -> None:
        if self._due.get(due.row.task_id) is due:
            del self._due[due.row.task_id]

    async def _hint(self, due: _Due, target: str) -> bool:
        """Tell one node; return whether that is done with."""
        peering, gateway = due.peering, self.context.gateway
        reports = peering.reports(due.own)
        before = peering.told.get(target, {})
        told = peering.told[target] = {report.node: report.at for report in reports}
        wrapper = self._wrapper(due, target, reports)
        done = gateway is None or wrapper is None
        if gateway is not None and wrapper is not None:
            done = await gateway.hint(swarm_of_node(target), wrapper)
        if not done and peering.told.get(target) is told:
            peering.told[target] = before
        return done

    def _wrapper(
        self, due: _Due, target: str, reports: Sequence[Report]
    ) -> "MAILInterswarmMessage | None":
        context, row, peer = self.context, due.row, swarm_of_node(target)
        contact = due.peering.contacts.get(peer)
        if contact is None:
            return None
        message = context.composer.message(
            "response",
            row.task_id,
            create_agent_address(context.finisher),
            [create_agent_address(contact)],
            "",
            "",
        )
        control = PeerControl(
            "waits", SILENT, (), due.own.node, tuple(each.to_wire() for each in reports)
        )
        return wrap(
            message,
            peer,
            wire_id=wire_task_id(context.owner.role, row.task_id),
            task_owner=row.task_owner,
            contributors=(due.own.node, target),  # which part of the peer is meant
            control=control,
        )

    def _lacking(self, peering: "Peering", own: Report) -> list[str]:
        reports = peering.reports(own)
        return [target for target in peering.told if peering.lacks(target, reports)]
