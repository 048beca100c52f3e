"""Agents that wait for each other: the wait that closes a cycle is refused, and names the path."""

import asyncio
from collections.abc import Iterable
from functools import partial
from html import unescape
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mail.core.agents import AgentCore
from mail.core.call_context import current_call
from mail.core.envelope import Envelope
from mail.core.events import TaskEvent
from mail.core.interswarm import SILENT, PeerControl
from mail.core.runtime import RunRequest
from mail.core.runtime.peering import Peering
from mail.core.runtime.recovery import old_peering
from mail.core.runtime.waiting import Report, read_reports, stuck
from mail.core.tasks import TaskState
from mail.db.ledger import Question
from mail.db.records import Owner
from mail.errors import UnknownTask
from mail.testing import agent_from, tool_calls
from tests.core.runtime.test_federation import (
    WAIT,
    WEATHER,
    Calls,
    Say,
    _between,
    ask,
    done,
    is_still,
    send,
)
from tests.core.runtime.test_federation_faults import letter
from tests.fuzz.effort import bounded
from tests.support.federation import Network, question, until
from tests.support.swarm import last_body, runtime_of, user_message


class Waiter:
    """An agent that asks others when it is first called, then waits, and gives in when refused."""

    def __init__(self, first: list[str], *, gives_in: Calls) -> None:
        self.first, self.gives_in = first, gives_in
        self.refusals: list[str] = []
        self.asked = False

    def __call__(self, messages: list[dict[str, Any]], choice: object) -> Calls:
        results = [str(m["content"]) for m in messages if m.get("role") == "tool"]
        if results and results[-1].startswith("ERROR"):
            self.refusals.append(results[-1])
            return self.gives_in
        if not self.asked:
            self.asked = True
            return [ask(target) for target in self.first]
        if any(word in last_body(messages) for word in ("<subject>Report", r"\::task_complete\::")):
            return [done("heard")]
        return [WAIT]


def core(waiter: Waiter, *targets: str, leads: bool = True) -> AgentCore:
    return AgentCore(
        function=agent_from(waiter),
        comm_targets=list(targets),
        can_complete_tasks=leads,
        enable_interswarm=True,
    )


async def test_in_one_swarm_the_path_of_a_cycle_is_named() -> None:
    first = Waiter(["second"], gives_in=[done("gave in")])
    second = Waiter(["third"], gives_in=[done("never")])
    third = Waiter(["supervisor"], gives_in=[done("never")])
    runtime = runtime_of(
        {
            "supervisor": core(first, "second"),
            "second": core(second, "third", leads=False),
            "third": core(third, "supervisor", leads=False),
        }
    )
    message = await runtime.submit_and_wait(user_message(), timeout=30)
    assert message["message"]["body"] == "gave in"
    assert first.refusals == [
        "ERROR: all that could write to you wait for each other: "
        "supervisor -> second -> third -> supervisor"
    ]
    await runtime.shutdown()


async def test_an_agent_that_insists_on_closing_a_cycle_fails() -> None:
    first = Waiter(["second"], gives_in=[WAIT])
    second = Waiter(["supervisor"], gives_in=[WAIT])
    runtime = runtime_of(
        {"supervisor": core(first, "second"), "second": core(second, "supervisor", leads=False)}
    )
    run = await runtime.open_run(RunRequest(message=user_message()))
    result = await run.result(5)
    assert result.status in (TaskState.FAILED, TaskState.COMPLETED)
    assert len(first.refusals) >= 2
    await runtime.shutdown()


async def test_a_cycle_over_two_swarms_is_refused_where_it_closes(store) -> None:
    lead = Waiter(["wind@weather"], gives_in=[send("send_response", "wind@weather", "go on")])
    wind = Waiter(["lead@harbour"], gives_in=[done("never")])
    async with Network() as network:
        harbour = network.add("harbour", lambda: {"lead": core(lead, "*@*")}, store=store)
        network.add("weather", lambda: {"wind": core(wind, "*@*")})
        run = await harbour.runtime().open_run(RunRequest(message=question()))
        async with asyncio.timeout(20):
            while not lead.refusals:
                await asyncio.sleep(0.005)
        assert lead.refusals == [
            "ERROR: all that could write to you wait for each other: lead -> wind@weather -> lead"
        ]
        # wind hears "go on" and completes; lead waits for that answer, which is no cycle any more.
        assert (await run.result(5)).status is TaskState.COMPLETED
        assert len(lead.refusals) == 1 and wind.refusals == []
        await is_still(network)


async def test_a_cycle_over_three_swarms_names_all_of_them(store) -> None:
    lead = Waiter(["wind@weather"], gives_in=[done("gave in")])
    wind = Waiter(["buoy@sea"], gives_in=[done("never")])
    buoy = Waiter(["wind@weather"], gives_in=[done("never")])
    async with Network() as network:
        harbour = network.add("harbour", lambda: {"lead": core(lead, "*@*")})
        network.add("weather", lambda: {"wind": core(wind, "*@*")}, store=store)
        network.add("sea", lambda: {"buoy": core(buoy, "*@*")})
        run = await harbour.runtime().open_run(RunRequest(message=question()))
        result = await run.result(5)
        assert result.status is TaskState.COMPLETED
        assert wind.refusals and lead.refusals == [] == buoy.refusals
        assert wind.refusals[0].endswith("wind -> buoy@sea -> wind")
        await is_still(network)


# --- rings over several servers -------------------------------------------------------------------


class Talker:
    """An agent that says what a function of the subject and body of its newest mail says.

    What is refused it does instead of what was refused.
    """

    def __init__(self, say: Say, gives_in: Calls, gate: asyncio.Event | None = None) -> None:
        self.say, self.gives_in, self.gate = say, gives_in, gate
        self.refusals: list[str] = []
        self.notices: list[str] = []

    async def __call__(self, messages: list[dict[str, Any]], choice: object) -> Any:
        if self.gate is not None:
            await self.gate.wait()
        results = [str(m["content"]) for m in messages if m.get("role") == "tool"]
        text = last_body(messages)
        if isinstance(choice, dict):
            self.notices.append(unescape(text))
            calls: Calls = [done("told to")]
        elif results and results[-1].startswith("ERROR"):
            self.refusals.append(results[-1])
            calls = self.gives_in
        else:
            subject, body = _between(text, "subject"), _between(text, "body")
            calls = self.say(subject, body)
        return None, tool_calls(*calls, prefix=f"c{len(messages)}")

    def core(self, **more: Any) -> AgentCore:
        given = {"can_complete_tasks": True, "enable_interswarm": True, "comm_targets": ["*@*"]}
        return AgentCore(function=self, **given | more)


def first_of(ring: list[str]) -> Say:
    """Return what lead says: the last of the ring answers first, so that it may write later."""

    def say(subject: str, body: str) -> Calls:
        if subject == "Question":
            return [ask(ring[-1], "say hello")]
        if subject == "Ask":
            return [WAIT]
        return [done("heard")] if body == "done" else [ask(ring[0], "go round")]

    return say


def next_in(ring: list[str], place: int) -> Say:
    """Return what a later one says: ask the next one, and the last one asks lead."""
    further = [*ring, "lead@harbour"][place + 1]

    def say(subject: str, body: str) -> Calls:
        if subject == "Ask":
            hello = [send("send_response", "lead@harbour", "hello")]
            return hello if body == "say hello" else [ask(further, "go round")]
        return [done("done")]

    return say


@pytest.mark.parametrize("ring", [["wind", "buoy"], ["wind", "buoy", "crane"]], ids=["3", "4"])
async def test_the_wait_that_closes_a_ring_is_refused_and_names_all_of_it(ring, store) -> None:
    swarms = {"wind": "weather", "buoy": "sea", "crane": "port"}
    full = [f"{name}@{swarms[name]}" for name in ring]
    lead = Talker(first_of(full), gives_in=[send("send_response", full[-1], "done")])
    others = [Talker(next_in(full, place), gives_in=[done("never")]) for place in range(len(ring))]
    async with Network() as network:
        harbour = network.add("harbour", lambda: {"lead": lead.core()}, store=store)
        for name, other in zip(ring, others, strict=True):
            network.add(swarms[name], partial(lambda n, o: {n: o.core()}, name, other))
        run = await harbour.runtime().open_run(RunRequest(message=question()))
        result = await run.result(10)
        assert result.message["message"]["body"] == "heard"
        path = " -> ".join(["lead", *full, "lead"])
        assert lead.refusals == [f"ERROR: all that could write to you wait for each other: {path}"]
        assert [other.refusals for other in others] == [[]] * len(ring)
        await is_still(network)


class Ring:
    """lead has asked wind and mate, and wind lead; mate goes on until the gate opens.

    So the ring is closed before anybody can know, and it is weather that acts.
    """

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.network = Network()
        self.wind = Talker(self.asks_back, gives_in=[done("refused")])
        self.lead = Talker(self.asks, gives_in=[done("refused")])
        self.mate = Talker(lambda *_: [WAIT], gives_in=[WAIT], gate=self.gate)
        self.harbour = self.network.add("harbour", self.agents)
        self.weather = self.network.add("weather", lambda: {"wind": self.wind.core()})

    def agents(self) -> dict[str, AgentCore]:
        both = {"lead": ["mate", "*@*"], "mate": ["lead"]}
        return {
            "lead": self.lead.core(comm_targets=both["lead"]),
            "mate": self.mate.core(comm_targets=both["mate"], can_complete_tasks=False),
        }

    def asks(self, subject: str, body: str) -> Calls:
        if subject == "Question":
            return [ask("mate"), ask("wind@weather")]
        return [WAIT] if subject == "Ask" else [done("heard")]

    def asks_back(self, subject: str, body: str) -> Calls:
        return [ask("lead@harbour")] if subject == "Ask" else [WAIT]

    async def closes(self) -> Any:
        """Begin, and return the run when everybody but mate waits."""
        run = await self.harbour.runtime().open_run(RunRequest(message=question()))
        await until(lambda: len(self.network.moved) == 2)
        turns = self.harbour.runtime()._scheduler.active
        await until(lambda: {turn.agent for turn in turns.values()} == {"mate"})
        await is_still(self.network)
        return run


async def test_a_ring_is_found_when_the_last_one_at_work_in_it_stops() -> None:
    ring = Ring()
    async with ring.network:
        run = await ring.closes()
        assert ring.lead.refusals == ring.wind.notices == []
        ring.gate.set()
        assert (await run.result(10)).message["message"]["body"] == "heard"
        [notice] = ring.wind.notices
        assert "wait for each other: wind@weather -> lead@harbour -> wind@weather." in notice
        assert ring.lead.refusals == ring.lead.notices == []


async def test_lost_hints_are_told_again_and_no_hint_is_kept() -> None:
    ring = Ring()
    lost = iter([True] * 4)
    ring.network.loses_hint = lambda: next(lost, False)
    async with ring.network:
        run = await ring.closes()
        before = ring.network.hints
        ring.gate.set()
        assert (await run.result(10)).message["message"]["body"] == "heard"
        assert ring.network.hints - before > 4 and ring.wind.notices
        for side in ring.network.sides.values():
            found = [
                await side.store.find_inbox(side.name, hint["source_swarm"], hint["message_id"])
                for hint in ring.network.hinted
            ]
            assert found == [None] * len(found) and found
        [row] = await ring.weather.store.list_tasks(WEATHER)
        log = await ring.weather.store.events(WEATHER, row.task_id)
        taken = [event for event in log if event.kind == "interswarm_message_received"]
        assert len(taken) == len([m for m in ring.network.moved if m["target_swarm"] == "weather"])


async def test_a_part_that_hints_bring_back_to_memory_says_what_it_said_before() -> None:
    ring = Ring()
    async with ring.network:
        run = await ring.closes()
        runtime = ring.weather.runtime("swarm", "harbour")
        knows_nothing = PeerControl("waits", SILENT, (), "user:ines@harbour", ())
        [row] = await ring.weather.store.list_tasks(WEATHER)
        hint = letter("response", task_id=row.task_id, control=knows_nothing, message_id="hint")
        for number in range(3):
            await until(lambda number=number: ring.network.hints > number)
            await until(lambda: not runtime._context.active_tasks.ids)
            await runtime.peers.take(hint)
        controls = [PeerControl.from_metadata(each["metadata"]) for each in ring.network.hinted]
        assert len({control.reports[0]["at"] for control in controls if control}) == 1
        ring.gate.set()
        await run.result(10)


async def test_a_ring_is_found_after_the_restart_of_the_one_that_has_to_act() -> None:
    ring = Ring()
    ring.network.loses_hint = lambda: True
    async with ring.network:
        run = await ring.closes()
        ring.gate.set()
        lost = ring.network.hints
        await until(lambda: ring.network.hints > lost)
        await ring.weather.stop()
        await ring.weather.runtime("swarm", "harbour").start()
        ring.network.loses_hint = lambda: False
        assert (await run.result(10)).message["message"]["body"] == "heard"
        assert ring.wind.notices and ring.lead.refusals == []


async def test_a_wait_for_an_older_server_is_never_refused_and_it_gets_no_hints() -> None:
    ring = Ring()
    ring.weather.stripped = True
    ring.gate.set()
    async with ring.network:
        run = await ring.harbour.runtime().open_run(RunRequest(message=question()))
        await until(lambda: len(ring.network.moved) == 2)
        await ring.harbour.runtime().await_queue_empty()
        await is_still(ring.network)
        assert ring.network.hints == 0 and ring.lead.refusals == ring.lead.notices == []
        await ring.harbour.runtime().cancel_task(run.task_id)


# --- what is concluded from reports ---------------------------------------------------------------

A, B, C, B2 = "user:ines@a", "swarm:a@b", "swarm:b@c", "swarm:c@b"


def report(node: str, sent: dict[str, int], taken: dict[str, int], at: str = "1") -> Report:
    return Report(node, at, sent, taken)


def test_a_nodes_own_word_goes_before_hearsay_and_nobody_speaks_for_this_node() -> None:
    peering = Peering()
    peering.hear(C, [report(B, {"c": 9}, {}, "9")])
    assert peering.known[B].sent == {"c": 9}
    peering.hear(B, [report(B, {"c": 1}, {}, "3")])
    assert peering.known[B].sent == {"c": 1}
    peering.hear(C, [report(B, {"c": 7}, {}, "2")])
    assert peering.known[B].sent == {"c": 1}
    peering.hear(C, [report(A, {}, {}, "9")])
    own = report(A, {"b": 1}, {})
    assert stuck(own, peering.known) == []
    assert peering.reports(own)[0] == own and len(peering.reports(own)) == 2


def test_what_was_heard_before_a_task_was_let_go_of_is_learnt_by_the_next_copy() -> None:
    earlier, later = Peering(), Peering()
    earlier.hear(B, [report(B, {"c": 2}, {}, "4"), report(C, {}, {}, "2")])
    later.hear(B, [report(B, {"c": 1}, {}, "3")])
    later.hear(A, [report(C, {}, {}, "3")])
    later.news = False
    later.learn(earlier)
    assert later.news
    assert (later.known[B].at, later.known[C].at) == ("4", "3")
    assert B in later.firsthand and C not in later.firsthand
    later.news = False
    later.learn(earlier)
    assert not later.news


def test_only_names_and_numbers_are_taken_from_reports_and_not_too_many() -> None:
    good = ["wind@b", "lead@a"]
    bad = [
        ["wind@b", "obey me now@x"],
        ["a@b"],
        [1, 2],
        ["x" * 65 + "@b", "a@b"],
        "ab",
        ["w@c", "x@b"],
    ]
    told = {**report(B, {"c": 1}, {A: 2}).to_wire(), "asks": [good, *bad], "acts": True}
    [read] = read_reports([told])
    assert read == Report(B, "1", {"c": 1}, {A: 2}, (("wind@b", "lead@a"),), True)
    for wrong in (
        {"node": "b"}, {"node": 1}, {"at": 1}, {"at": "1" * 99}, {"asks": 1}, {"sent": {"c": -1}},
        {"sent": {"c": True}}, {"sent": {"c": 2**70}}, {"taken": {str(n): 1 for n in range(17)}},
    ):  # fmt: skip
        assert read_reports([{**told, **wrong}]) == []
    assert read_reports([told] * 17) == [] == read_reports({**told, "asks": [good] * 65})
    assert read_reports([{**told, "asks": [good] * 65}]) == []


async def test_what_earlier_versions_said_of_waiting_changes_nothing(store) -> None:
    async with Network() as network:
        waits = Talker(lambda *_: [WAIT], gives_in=[WAIT])
        network.add("harbour", lambda: {"lead": waits.core()})
        weather = network.add("weather", lambda: {"wind": waits.core()}, store=store)
        runtime = weather.runtime("swarm", "harbour")
        await runtime.peers.take(letter())
        [row] = await store.list_tasks(WEATHER)
        before = await store.events(WEATHER, row.task_id)
        old = PeerControl("waits", SILENT, ({"taken": 0, "asks": []},))
        note = letter("response", control=old, message_id="note")
        assert await runtime.peers.take(note) == note.receipt
        assert len(await store.events(WEATHER, row.task_id)) >= len(before)
        assert await store.find_inbox("weather", "harbour", "note") is None
        with pytest.raises(UnknownTask):
            await runtime.peers.take(letter("response", control=old, task_id="other"))


# --- anything at all ----------------------------------------------------------------------------

_OPEN = (TaskState.RUNNING, TaskState.PAUSED)
SWARMS = {
    "harbour": ["lead", "mate"],
    "weather": ["wind", "rain"],
    "sea": ["buoy", "tide"],
    "port": ["crane", "truck"],
}
LEADERS = [names[0] for names in SWARMS.values()]


class Crowd:
    """Agents of several swarms that ask, answer and wait by dice, and what is true of them.

    Args:
        near: Whom the agents of a swarm ask: swarm to swarms.
        asks: How many requests there are at most.
        seed: The dice's.
        losses: The share of the hints that is lost.
    """

    def __init__(self, near: dict[str, list[str]], asks: int, seed: int, losses: float) -> None:
        self.dice = Random(seed)
        self.near, self.asks_left = near, asks
        self.open: list[tuple[str, str]] = []
        self.problems: list[str] = []
        self.refused = 0
        self.network = Network()
        self.network.loses_hint = lambda: self.dice.random() < losses
        for swarm in near:
            self.network.add(swarm, partial(self.agents, swarm))

    def agents(self, swarm: str) -> dict[str, AgentCore]:
        names = SWARMS[swarm]
        return {
            name: AgentCore(
                function=partial(self.act, f"{name}@{swarm}"),
                comm_targets=[*(other for other in names if other != name), "*@*"],
                can_complete_tasks=name == names[0],
                enable_interswarm=True,
            )
            for name in names
        }

    async def act(self, me: str, messages: list[dict[str, Any]], choice: object) -> Any:
        await asyncio.sleep(self.dice.choice([0, 0, 0.001, 0.01]))
        if refusal := self.refusal(messages):
            await self.check(me, refusal)
        return None, tool_calls(self.choose(me, messages, choice), prefix=f"c{len(messages)}")

    def refusal(self, messages: list[dict[str, Any]]) -> str:
        """Return the refusal that an agent is called for, or no text: older ones stay in sight."""
        text = unescape(_between(last_body(messages), "body"))
        refused = text.startswith("You called await_message") and "wait for each other" in text
        return text if refused else ""

    def choose(
        self, me: str, messages: list[dict[str, Any]], choice: object
    ) -> tuple[str, dict[str, Any]]:
        if isinstance(choice, dict):
            return done("told to")
        if self.refusal(messages):
            owed = [asker for asker, asked in self.open if asked == me]
            return self.answer(me, owed[-1]) if owed else self.finish(me)
        roll = self.dice.random()
        owed = [asker for asker, asked in self.open if asked == me]
        if self.asks_left and roll < 0.5:
            self.asks_left -= 1
            here = me.split("@")[1]
            there = [here, *self.near[here]]
            everybody = [f"{name}@{swarm}" for swarm in there for name in SWARMS[swarm]]
            other = self.dice.choice([name for name in everybody if name != me])
            self.open.append((me, other))
            return ask(self.short(me, other), "?")
        if owed and roll < 0.7:
            return self.answer(me, self.dice.choice(owed))
        return self.finish(me) if roll > 0.95 else WAIT

    def answer(self, me: str, asker: str) -> tuple[str, dict[str, Any]]:
        self.open.reverse()
        self.open.remove((asker, me))  # the newest one
        self.open.reverse()
        return send("send_response", self.short(me, asker), "!")

    def finish(self, me: str) -> tuple[str, dict[str, Any]]:
        return done("over") if me.split("@")[0] in LEADERS else WAIT

    def short(self, me: str, other: str) -> str:
        return other.removesuffix(f"@{me.split('@')[1]}")

    async def check(self, me: str, refusal: str) -> None:
        """See that a refusal names a cycle of open requests, and that nobody is at work.

        Who waits for no other swarm only has to look at its own.
        """
        self.refused += 1
        swarm, owner = me.split("@")[1], current_call().owner
        path = refusal.split("each other: ")[1].split(". ")[0].split(" -> ")
        full = [name if "@" in name else f"{name}@{swarm}" for name in path]
        if full[0] != me or full[-1] != me:
            self.problems.append(f"{me} was told of {path}")
        really = await open_requests(self.network)
        for pair in pairwise(full):
            if pair not in really:
                self.problems.append(f"{me} was told of {path}, but {pair} is not open")
        waits_away = any(
            owner in owners and asked.split("@")[1] != swarm
            for (_, asked), owners in really.items()
        )
        if not waits_away and await self.was_written_to(swarm, owner):
            return
        for side in self.network.sides.values():
            for whose, runtime in side.runtimes.items():
                if not waits_away and whose != owner:
                    continue
                for task in runtime._context.active_tasks:
                    busy = {f"{name}@{side.name}" for name in task.turns}
                    busy -= {me} if whose == owner else set()
                    waiting = len(runtime._context.mailbox.queued_messages(task.task_id))
                    if busy or waiting:
                        self.problems.append(f"{me} was refused, but {busy} and {waiting} go on")

    async def was_written_to(self, swarm: str, owner: Owner) -> bool:
        """Tell whether mail of others has come since the newest refusal of the owner's task."""
        store = self.network.sides[swarm].store
        [row] = await store.list_tasks(owner)
        kinds = [event.kind for event in await store.events(owner, row.task_id)]
        since = kinds[::-1].index("agent_error")
        return "interswarm_message_received" in kinds[len(kinds) - since :]


async def check_old_ledgers(network: Network) -> None:
    """See that the log of each task tells what its ledger has, as it did in earlier versions."""
    for side in network.sides.values():
        for owner, runtime in side.runtimes.items():
            for row in await side.store.list_tasks(owner):
                stored = await side.store.ledger(owner, row.task_id)
                questions, peering = await old_peering(runtime._context, row.task_id)
                assert stored is not None
                assert _open(questions) == _open(stored.questions)
                known = Peering.from_json(stored.peering)
                for name in ("writers", "met", "contacts", "sent", "taken", "plain"):
                    assert getattr(known, name) == getattr(peering, name), name


def _open(questions: Iterable[Question]) -> set[tuple[str, ...]]:
    """Return what is open, but for questions of swarms whose run has ended: no log tells that."""
    return {each[:5] for each in questions if each.kind != "agent" or "@" not in each.asker}


async def open_requests(network: Network) -> dict[tuple[str, str], set[Owner]]:
    """Return who has asked whom and has no answer, as the logs tell, and in whose tasks."""
    logs: dict[Owner, list[TaskEvent]] = {}
    for side in network.sides.values():
        for owner in await side.store.owners(side.name):
            for row in await side.store.list_tasks(owner):
                logs[owner] = await side.store.events(owner, row.task_id)
    answered = {mail.ref for log in logs.values() for mail in letters(log, "response")}
    found: dict[tuple[str, str], set[Owner]] = {}
    for owner, log in logs.items():
        ends = [e.seq for e in log if e.kind in ("task_complete", "task_error")]
        for event in log:
            for mail in letters([event], "request"):
                asker, asked = mail.sender["address"], mail.recipients[0]["address"]
                # Nobody waits for other swarms when a run has ended.
                over = "@" in asked and ends and ends[-1] > event.seq
                if "@" not in asker and mail.ref not in answered and not over:
                    pair = (f"{asker}@{owner.swarm}", f"{asked}@{owner.swarm}")
                    pair = (pair[0], asked) if "@" in asked else pair
                    found.setdefault(pair, set()).add(owner)
    return found


def letters(log: list[TaskEvent], kind: str) -> list[Envelope]:
    """Return the messages of a kind that a log tells of."""
    told = [event.extra["full_message"] for event in log if event.kind == "new_message"]
    return [mail for mail in map(Envelope.from_wire, told) if mail.kind == kind]


@st.composite
def crowds(draw: st.DrawFn) -> Crowd:
    """Return agents of three or four swarms, some of which ask some others."""
    names = list(SWARMS)[: draw(st.sampled_from([3, 3, 4]))]
    near = {
        name: draw(st.lists(st.sampled_from([n for n in names if n != name]), unique=True))
        for name in names
    }
    near["harbour"] = near["harbour"] or names[1:]
    asks, seed = draw(st.sampled_from([4, 8, 12])), draw(st.integers(0, 2**32))
    return Crowd(near, asks, seed, draw(st.sampled_from([0.0, 0.0, 0.5])))


@bounded(100)
@given(crowds())
def test_whoever_waits_for_whom_nobody_hangs_and_no_refusal_is_wrong(crowd: Crowd) -> None:
    asyncio.run(play(crowd))
    assert crowd.problems == []


async def play(crowd: Crowd) -> None:
    """Let agents work on a task until it is over everywhere."""
    async with crowd.network as network:
        run = await network.sides["harbour"].runtime().open_run(RunRequest(message=question()))
        await run.result(60)  # as long as a busy machine may take: who hangs, hangs longer
        await is_still(network)
        async with asyncio.timeout(20):
            while await unfinished(network):
                await asyncio.sleep(0.01)
        await is_still(network)
        await check_old_ledgers(network)


async def unfinished(network: Network) -> list[str]:
    """Return the tasks that have not ended."""
    found = []
    for side in network.sides.values():
        for owner in await side.store.owners(side.name):
            rows = await side.store.list_tasks(owner, states=_OPEN)
            found += [f"{owner}: {row.state}" for row in rows]
    return found
