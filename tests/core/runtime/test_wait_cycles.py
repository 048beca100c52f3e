"""Agents that wait for each other: the wait that closes a cycle is refused, and names the path."""

import asyncio
from functools import partial
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from mail.core.agents import AgentCore
from mail.core.envelope import Envelope
from mail.core.runtime import RunRequest
from mail.core.runtime.peering import WaitNote
from mail.core.tasks import TaskState
from mail.testing import agent_from, tool_calls
from tests.core.runtime.test_federation import (
    WAIT,
    Calls,
    agent,
    ask,
    done,
    is_still,
    leader,
    send,
)
from tests.support.federation import Network, question
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
        if any(word in last_body(messages) for word in ("<subject>Report", "::task_complete::")):
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
    message = await runtime.submit_and_wait(user_message(), timeout=5)
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
        async with asyncio.timeout(5):
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


async def test_a_wait_is_not_refused_while_somebody_there_still_works(store) -> None:
    """wind asks back, but rain, whom it has asked, too, goes on and makes it answer."""
    gate = asyncio.Event()

    def wind(subject: str, body: str) -> Calls:
        if subject == "Ask":
            return [ask("rain"), ask("lead@harbour")]
        return [send("send_response", "lead@harbour", body)]

    def rain(subject: str, body: str) -> Calls:
        return [send("send_response", "wind", "from rain")]

    async def slow(messages: list[dict[str, Any]], choice: object) -> Any:
        await gate.wait()
        return await agent(rain, targets=["wind"]).function(messages, choice)

    lead = Waiter(["wind@weather"], gives_in=[done("refused")])
    async with Network() as network:
        harbour = network.add("harbour", lambda: {"lead": core(lead, "*@*")}, store=store)
        network.add(
            "weather",
            lambda: {
                "wind": leader(wind, targets=["rain", "*@*"]),
                "rain": AgentCore(function=slow, comm_targets=["wind"]),
            },
        )
        run = await harbour.runtime().open_run(RunRequest(message=question()))
        async with asyncio.timeout(5):
            while len(network.moved) < 2:
                await asyncio.sleep(0.005)
        await harbour.runtime().await_queue_empty()
        gate.set()
        result = await run.result(5)
        assert result.message["message"]["body"] == "heard" and lead.refusals == []
        await is_still(network)


async def test_a_cycle_that_closes_when_somebody_elsewhere_stops_is_no_hang(store) -> None:
    """lead waits while rain still works; then rain stops, and nobody would ever say a word."""
    gate = asyncio.Event()

    def wind(subject: str, body: str) -> Calls:
        if subject == "Ask":
            return [ask("rain"), ask("lead@harbour")]
        return [WAIT]

    def idle(subject: str, body: str) -> Calls:
        return [WAIT]

    async def waits(messages: list[dict[str, Any]], choice: object) -> Any:
        await gate.wait()
        return await agent(idle).function(messages, choice)

    lead = Waiter(["wind@weather"], gives_in=[done("gave in")])
    async with Network() as network:
        harbour = network.add("harbour", lambda: {"lead": core(lead, "*@*")}, store=store)
        network.add(
            "weather",
            lambda: {
                "wind": leader(wind, targets=["rain", "*@*"]),
                "rain": AgentCore(function=waits, comm_targets=["wind"]),
            },
        )
        run = await harbour.runtime().open_run(RunRequest(message=question()))
        async with asyncio.timeout(5):
            while len(network.moved) < 2:
                await asyncio.sleep(0.005)
        await harbour.runtime().await_queue_empty()
        gate.set()
        assert (await run.result(10)).status in (TaskState.COMPLETED, TaskState.FAILED)
        await is_still(network)


def test_only_names_are_taken_from_what_a_peer_says_of_its_waiting() -> None:
    good = ["wind@weather", "lead@harbour"]
    bad = [["wind@weather", "obey me now@x"], ["a@b"], [1, 2], ["x" * 65 + "@b", "a@b"], "ab"]
    note = WaitNote.of([{"taken": 2, "asks": [good, *bad]}])
    assert note == WaitNote(2, (("wind@weather", "lead@harbour"),))
    for told in ({"taken": "2", "asks": []}, {"taken": 2}, {"taken": 2, "asks": [good] * 65}):
        assert WaitNote.of([told]) is None
    assert WaitNote.of([]) is None


# --- anything at all ----------------------------------------------------------------------------

_OPEN = (TaskState.RUNNING, TaskState.PAUSED)
SWARMS = {"harbour": ["lead", "mate"], "weather": ["wind", "rain"], "sea": ["buoy", "tide"]}
STAR = {"harbour": ["weather", "sea"], "weather": ["harbour"], "sea": ["harbour"]}
CHAIN = {"harbour": ["weather"], "weather": ["harbour", "sea"], "sea": ["weather"]}


class Crowd:
    """Agents of three swarms that ask, answer and wait by dice, and what is true of them."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.near = self.dice.choice([STAR, CHAIN])
        self.asks_left = self.dice.choice([2, 4, 8])
        self.open: list[tuple[str, str]] = []
        self.problems: list[str] = []
        self.refused = 0
        self.network = Network()
        for swarm in SWARMS:
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
        results = [str(m["content"]) for m in messages if m.get("role") == "tool"]
        if results and "wait for each other" in results[-1]:
            await self.check(me, results[-1])
        return None, tool_calls(self.choose(me, messages, choice), prefix=f"c{len(messages)}")

    def choose(
        self, me: str, messages: list[dict[str, Any]], choice: object
    ) -> tuple[str, dict[str, Any]]:
        if isinstance(choice, dict):
            return done("told to")
        results = [str(m["content"]) for m in messages if m.get("role") == "tool"]
        if results and "wait for each other" in results[-1]:
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
        return done("over") if me.split("@")[0] in ("lead", "wind", "buoy") else WAIT

    def short(self, me: str, other: str) -> str:
        return other.removesuffix(f"@{me.split('@')[1]}")

    async def check(self, me: str, refusal: str) -> None:
        """See that a refusal names a cycle of open requests, and that nobody is at work."""
        self.refused += 1
        swarm = me.split("@")[1]
        path = refusal.split("each other: ")[1].split(" -> ")
        full = [name if "@" in name else f"{name}@{swarm}" for name in path]
        if full[0] != me or full[-1] != me:
            self.problems.append(f"{me} was told of {path}")
        really = await open_requests(self.network)
        for pair in pairwise(full):
            if pair not in really:
                self.problems.append(f"{me} was told of {path}, but {pair} is not open")
        for side in self.network.sides.values():
            for runtime in side.runtimes.values():
                for task in runtime._context.active_tasks:
                    busy = {f"{name}@{side.name}" for name in task.turns} - {me}
                    waiting = runtime._context.mailbox.waiting(task.task_id)
                    if busy or waiting:
                        self.problems.append(f"{me} was refused, but {busy} and {waiting} go on")


async def open_requests(network: Network) -> set[tuple[str, str]]:
    """Return who has asked whom and has no answer, as the logs of all tasks tell."""
    asked: dict[str, tuple[str, str]] = {}
    answered: set[str] = set()
    for side in network.sides.values():
        for owner in await side.store.owners(side.name):
            for row in await side.store.list_tasks(owner):
                for event in await side.store.events(owner, row.task_id):
                    if event.kind != "new_message":
                        continue
                    mail = Envelope.from_wire(event.extra["full_message"])
                    ends = [mail.sender["address"], mail.recipients[0]["address"]]
                    asker, other = (e if "@" in e else f"{e}@{side.name}" for e in ends)
                    if mail.kind == "request":
                        asked[mail.ref] = (asker, other)
                    elif mail.kind == "response":
                        answered.add(mail.ref)
    return {pair for ref, pair in asked.items() if ref not in answered}


@pytest.mark.parametrize("seed", range(40))
async def test_whoever_waits_for_whom_nobody_hangs_and_no_refusal_is_wrong(seed) -> None:
    crowd = Crowd(seed)
    async with crowd.network as network:
        run = await network.sides["harbour"].runtime().open_run(RunRequest(message=question()))
        await run.result(10)
        await is_still(network)
        async with asyncio.timeout(5):
            while await unfinished(network):
                await asyncio.sleep(0.01)
    assert crowd.problems == []


async def unfinished(network: Network) -> list[str]:
    """Return the tasks that have not ended."""
    found = []
    for side in network.sides.values():
        for owner in await side.store.owners(side.name):
            rows = await side.store.list_tasks(owner, states=_OPEN)
            found += [f"{owner}: {row.state}" for row in rows]
    return found
