"""Mail between swarms as the runtimes see it: requests, answers, ends, pauses and cancellations."""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pydantic_core import from_json

from mail.core.actions import ActionCore
from mail.core.agents import AgentCore
from mail.core.events import TaskEvent
from mail.core.interswarm import DeliveryOutcome
from mail.core.runtime import RunRequest, RuntimeSettings
from mail.core.tasks import TaskState
from mail.db import open_store
from mail.db.commit import Commit, Receipt
from mail.db.records import OutboxRow, Owner
from mail.errors import BreakpointError
from mail.testing import agent_from
from tests.support.federation import FAR, Network, Side, question, until
from tests.support.swarm import last_body

Calls = Sequence[tuple[str, dict[str, Any]]]
Say = Callable[[str, str], Calls]

WAIT = ("await_message", {})


def send(tool: str, target: str, body: str, subject: str = "Report") -> tuple[str, dict[str, Any]]:
    return tool, {"target": target, "subject": subject, "body": body}


def ask(target: str, body: str = "how strong?") -> tuple[str, dict[str, Any]]:
    return send("send_request", target, body, "Ask")


def done(text: str) -> tuple[str, dict[str, Any]]:
    return "task_complete", {"finish_message": text}


def _between(text: str, tag: str) -> str:
    return text.split(f"<{tag}>")[1].split(f"</{tag}>")[0] if f"<{tag}>" in text else ""


def agent(say: Say, **more: Any) -> AgentCore:
    """Return an agent that does what a function of its newest mail's subject and body says."""

    def speak(messages: list[dict[str, Any]], choice: object) -> Calls:
        text = last_body(messages)
        return say(_between(text, "subject"), _between(text, "body") or text)

    targets = more.pop("targets", ["*@*"])
    return AgentCore(function=agent_from(speak), comm_targets=targets, **more)


def leader(say: Say, **more: Any) -> AgentCore:
    return agent(say, can_complete_tasks=True, enable_interswarm=True, **more)


def asker(*targets: str) -> Say:
    """Return what asks agents of other swarms and completes the task with all answers."""
    heard: list[str] = []

    def say(subject: str, body: str) -> Calls:
        if subject == "Question":
            heard.clear()
            return [ask(target, body) for target in targets]
        heard.append(f"{subject}: {body}")
        return [done("; ".join(sorted(heard)))] if len(heard) >= len(targets) else [WAIT]

    return say


def asking() -> dict[str, AgentCore]:
    return {"lead": leader(asker("wind@weather"))}


def echo(subject: str, body: str) -> Calls:
    return [send("send_response", "lead@harbour", f"echo {body}")]


def completes(subject: str, body: str) -> Calls:
    return [done(f"about {body}")]


HARBOUR = Owner("harbour", "user", "ines")
WEATHER = Owner("weather", "swarm", "harbour")


async def events(side: Side, owner: Owner, task_id: str = "task-1") -> list[TaskEvent]:
    found = await side.store.load_task(owner, task_id)
    if found is None:
        [row] = await side.store.list_tasks(owner)
        task_id = row.task_id
    return await side.store.events(owner, task_id)


async def state(side: Side, owner: Owner) -> TaskState:
    [row] = await side.store.list_tasks(owner)
    return row.state


async def reaches(side: Side, owner: Owner, expected: TaskState) -> None:
    async with asyncio.timeout(20):
        while not await side.store.list_tasks(owner) or await state(side, owner) is not expected:
            await asyncio.sleep(0.005)


async def is_still(network: Network) -> None:
    """Wait until no mail is on its way."""
    sides = list(network.sides.values())
    async with asyncio.timeout(20):
        while any([await side.store.due_outbox(side.name, "9", 9) for side in sides]):
            await asyncio.sleep(0.005)


async def is_over(network: Network) -> None:
    """Wait until no mail is on its way, and see that everything was delivered."""
    await is_still(network)
    assert network.refusals == []
    for side in network.sides.values():
        assert await side.store.list_outbox(side.name) == []


def terminals(log: Sequence[TaskEvent]) -> list[tuple[str, str]]:
    return [
        (str(event.extra["status"]), str(event.extra["response"]))
        for event in log
        if event.kind in ("task_complete", "task_error")
    ]


# --- there and back -----------------------------------------------------------------------------


@pytest.mark.parametrize("twice", [False, True])
async def test_a_request_goes_out_and_its_answer_comes_back(store, twice) -> None:
    async with Network() as network:
        network.twice = twice  # every delivery is repeated, and so is what came of it
        harbour = network.add("harbour", asking, store=store)
        weather = network.add("weather", lambda: {"wind": leader(echo)})
        message = await harbour.runtime().submit_and_wait(question("how strong?"), timeout=30)
        assert message["message"]["body"] == "Report: echo how strong?"
        await reaches(weather, WEATHER, TaskState.COMPLETED)
        await is_over(network)
        task = await harbour.runtime().read_task("task-1")
        assert task.remote_swarms == ["weather"]
        assert task.task_contributors == ["user:ines@harbour", "swarm:harbour@weather"]
        mail = [e.extra["full_message"]["message"] for e in task.events if e.kind == "new_message"]
        wind = {"address_type": "agent", "address": "wind@weather"}
        [_, farewell] = [one for one in mail if one.get("recipient") == wind]
        assert farewell["subject"] == "::task_complete::"
        assert farewell["recipient_swarm"] == "weather"
        told = [e.kind for e in task.events if e.kind.startswith("interswarm")]
        assert told[:2] == ["interswarm_message_sent", "interswarm_message_received"]
        assert told.count("interswarm_message_sent") == 2  # the request, and the end
        [other] = await weather.runtime("swarm", "harbour").read_tasks()
        assert other.task_owner == "user:ines@harbour"
        assert other.task_contributors == ["user:ines@harbour", "swarm:harbour@weather"]
        assert terminals(other.events) == [("completed", "nothing is left to do")]
        assert len(network.moved) == 3


async def test_a_task_that_is_continued_continues_there(store) -> None:
    async with Network() as network:
        harbour = network.add("harbour", asking, store=store)
        weather = network.add("weather", lambda: {"wind": leader(echo)})
        for body in ("one", "two"):
            message = await harbour.runtime().submit_and_wait(question(body), timeout=30)
            assert message["message"]["body"] == f"Report: echo {body}"
            await is_over(network)
            await harbour.stop()
        assert len(await weather.store.list_tasks(WEATHER)) == 1


async def test_the_end_of_a_run_answers_exactly_the_agents_that_asked(store) -> None:
    """Two agents ask in parallel; the other swarm completes once for each."""

    def second(subject: str, body: str) -> Calls:
        if subject == "Ask":
            return [ask("wind@weather", "from second")]
        return [send("send_response", "lead", f"second heard {subject} {body}")]

    def lead(subject: str, body: str) -> Calls:
        if subject == "Question":
            return [ask("second"), ask("wind@weather", "from lead")]
        heard.append((subject, body))
        return [done("all")] if len(heard) == 2 else [WAIT]

    heard: list[tuple[str, str]] = []
    async with Network() as network:
        harbour = network.add(
            "harbour",
            lambda: {
                "lead": leader(lead, targets=["second", "*@weather"]),
                "second": agent(second, targets=["lead", "wind@weather"]),
            },
        )
        weather = network.add("weather", lambda: {"wind": leader(completes)}, store=store)
        message = await harbour.runtime().submit_and_wait(question(), timeout=30)
        assert message["message"]["body"] == "all"
        assert sorted(heard) == [
            ("Report", "second heard \\::task_complete\\:: about from second"),
            ("\\::task_complete\\::", "about from lead"),
        ]
        await reaches(weather, WEATHER, TaskState.COMPLETED)
        await is_over(network)
        ends = terminals(await events(weather, WEATHER))
        assert sorted(ends) == [
            ("completed", "about from lead"),
            ("completed", "about from second"),
        ]


async def test_an_agent_that_fails_answers_with_the_reason(store) -> None:
    def broken(subject: str, body: str) -> Calls:
        raise RuntimeError("no wind")

    async with Network() as network:
        harbour = network.add("harbour", asking)
        weather = network.add("weather", lambda: {"wind": leader(broken)}, store=store)
        message = await harbour.runtime().submit_and_wait(question(), timeout=30)
        assert message["message"]["body"].startswith("\\::agent_error\\::: Agent 'wind' failed")
        await reaches(weather, WEATHER, TaskState.COMPLETED)
        await is_over(network)


async def test_who_owes_an_answer_and_only_waits_is_asked_to_finish_then_fails(
    store,
) -> None:
    def idle(subject: str, body: str) -> Calls:
        return [WAIT]

    async with Network() as network:
        harbour = network.add("harbour", asking)
        weather = network.add("weather", lambda: {"wind": leader(idle)}, store=store)
        message = await harbour.runtime().submit_and_wait(question(), timeout=30)
        assert message["message"]["body"].startswith("\\::task_error\\::: the task stalled")
        await reaches(weather, WEATHER, TaskState.FAILED)
        await is_over(network)


async def test_a_chain_of_swarms_answers_back_and_ends_together(store) -> None:
    async with Network() as network:
        harbour = network.add("harbour", asking)

        def middle(subject: str, body: str) -> Calls:
            if subject == "Ask":
                return [ask("buoy@sea", body)]
            return [done(f"middle {body}")]

        network.add("weather", lambda: {"wind": leader(middle)}, store=store)
        sea = network.add("sea", lambda: {"buoy": leader(completes)})
        message = await harbour.runtime().submit_and_wait(question("waves"), timeout=30)
        assert message["message"]["body"] == "\\::task_complete\\::: middle about waves"
        await is_over(network)
        [row] = await sea.store.list_tasks(Owner("sea", "swarm", "weather"))
        assert row.task_owner == "user:ines@harbour"
        assert row.task_contributors == (
            "user:ines@harbour",
            "swarm:harbour@weather",
            "swarm:weather@sea",
        )


# --- who may be written to ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("targets", "target", "problem", "task_id"),
    [
        (["*@sea"], "wind@weather", "you may not write to 'wind@weather'", "task-1"),
        (["wind@weather"], "rain@weather", "you may not write to 'rain@weather'", "task-1"),
        (["*@*"], "wind@nowhere", "unknown swarm 'nowhere'", "task-1"),
        ([], "wind@weather", "You have no communication targets", "task-1"),
        (["*@*"], "wind@weather", "at most 240 characters", "t" * 250),
    ],
)
async def test_whom_an_agent_may_not_write_to(targets, target, problem, task_id) -> None:
    results: list[str] = []

    def lead(messages: list[dict[str, Any]], choice: object) -> Calls:
        results.extend(m["content"] for m in messages if m.get("role") == "tool")
        return [done("over")] if results else [ask(target)]

    core = AgentCore(function=agent_from(lead), comm_targets=targets, can_complete_tasks=True)
    async with Network() as network:
        harbour = network.add("harbour", lambda: {"lead": core})
        network.add("weather", lambda: {"wind": leader(echo)})
        await harbour.runtime().submit_and_wait(question(task_id=task_id), timeout=30)
        assert results[0].startswith("ERROR") and problem in results[0]
        assert network.moved == []


@pytest.mark.parametrize(
    ("exposed", "target", "reached"),
    [
        (None, "wind", True),
        (None, "open", True),
        (None, "hidden", False),
        (frozenset({"open"}), "open", True),
        (frozenset({"open"}), "wind", False),
        (frozenset({"hidden"}), "hidden", False),
    ],
)
async def test_whom_mail_of_a_peer_reaches(exposed, target, reached) -> None:
    async with Network() as network:
        harbour = network.add("harbour", lambda: {"lead": leader(asker(f"{target}@weather"))})
        network.add(
            "weather",
            lambda: {
                "wind": leader(completes),
                "open": agent(echo, enable_interswarm=True),
                "hidden": agent(echo),
            },
            settings=RuntimeSettings(shutdown_grace=0, exposed=exposed),
        )
        message = await harbour.runtime().submit_and_wait(question(), timeout=30)
        if reached:
            assert network.refusals == []
        else:
            assert network.refusals == [("weather", f"no agent '{target}' here")]
            assert message["message"]["body"].startswith("::undeliverable::: Your message to")


# --- mail that does not arrive ------------------------------------------------------------------


async def test_a_delay_is_told_once_and_the_task_waits(store) -> None:
    subjects: list[str] = []

    def lead(subject: str, body: str) -> Calls:
        subjects.append(subject)
        if subject == "Question":
            return [ask("wind@weather")]
        return [WAIT] if "delayed" in subject else [done(body)]

    async with Network() as network:
        harbour = network.add("harbour", lambda: {"lead": leader(lead)}, store=store)
        network.add("weather", lambda: {"wind": leader(echo)})
        network.down.add("weather")
        run = await harbour.runtime().open_run(RunRequest(message=question()))
        await until(lambda: len(subjects) == 2)
        for _ in range(3):
            await network.sweep()
        assert await state(harbour, HARBOUR) is TaskState.RUNNING
        task = await harbour.runtime().read_task("task-1")
        assert (
            task.waiting_for
            == ["wind@weather"]
            == harbour.runtime().get_task_by_id("task-1").waiting_for
        )
        network.down.clear()
        network.wake()
        assert (await run.result(5)).message["message"]["body"] == "echo how strong?"
        assert subjects == ["Question", "::delivery_delayed::", "Report"]
        errors = [e for e in await events(harbour, HARBOUR) if e.kind == "interswarm_message_error"]
        assert [e.extra["swarm"] for e in errors] == ["weather"]
        assert "connection refused" in errors[0].extra["reason"]


async def test_a_task_that_has_ended_hears_of_no_delay(store) -> None:
    def lead(subject: str, body: str) -> Calls:
        return [send("send_interrupt", "wind@weather", "stop"), done("over")]

    async with Network() as network:
        harbour = network.add("harbour", lambda: {"lead": leader(lead)}, store=store)
        network.add("weather", lambda: {"wind": leader(echo)})
        network.down.add("weather")
        message = await harbour.runtime().submit_and_wait(question(), timeout=30)
        assert message["message"]["body"] == "over"
        async with asyncio.timeout(20):
            while not any(row.told for _, row in await store.list_outbox("harbour")):
                await asyncio.sleep(0.005)
        log = await events(harbour, HARBOUR)
        assert "interswarm_message_error" in [event.kind for event in log]
        assert "::delivery_delayed::" not in str([event.extra for event in log])


UNANSWERED = DeliveryOutcome("unanswered", "no answer came within 7 days")


class Gated:
    """Agents of a swarm that answer when their gates open."""

    def __init__(self, *names: str) -> None:
        self.gates = {name: asyncio.Event() for name in names}

    def agents(self) -> dict[str, AgentCore]:
        return {name: self._agent(gate) for name, gate in self.gates.items()}

    def _agent(self, gate: asyncio.Event) -> AgentCore:
        async def slow(messages: list[dict[str, Any]], choice: object) -> Any:
            await gate.wait()
            return await agent(echo).function(messages, choice)

        return AgentCore(function=slow, comm_targets=["*@*"], enable_interswarm=True)


async def delivered(side: Side, number: int) -> list[OutboxRow]:
    """Wait until so many requests of a swarm are delivered, and return them."""
    async with asyncio.timeout(20):
        while True:
            rows = [row for _, row in await side.store.list_outbox(side.name)]
            if [row.state for row in rows] == ["delivered"] * number:
                return rows
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_request_that_is_not_answered_in_time_is_closed(store, restarted) -> None:
    """Its agent is told, and a late answer is an ordinary message."""
    heard: list[str] = []

    def lead(subject: str, body: str) -> Calls:
        heard.append(f"{subject} {body}")
        if subject == "Question":
            return [ask("wind@weather", "wind?"), ask("rain@weather", "rain?")]
        return [done("all heard")] if "rain?" in body else [WAIT]

    gated = Gated("wind", "rain")
    async with Network() as network:
        harbour = network.add("harbour", lambda: {"lead": leader(lead)}, store=store)
        network.add("weather", gated.agents)
        await harbour.runtime().submit(question())
        await harbour.runtime().start()
        [wind, _] = await delivered(harbour, 2)
        if restarted:
            await harbour.stop()
            await harbour.runtime().start()
        for _ in range(2):
            await harbour.runtime().peers.settle(wind, UNANSWERED)
        await until(lambda: len(heard) == 2)
        assert heard[1].startswith("::undeliverable:: Your message to wind@weather was delivered")
        assert "but no answer came within 7 days, so it is not waited for any more" in heard[1]
        task = await harbour.runtime().read_task("task-1")
        assert task.waiting_for == ["rain@weather"]
        gated.gates["wind"].set()
        await until(lambda: len(heard) == 3)
        assert heard[2] == "Report echo wind?"
        gated.gates["rain"].set()
        await reaches(harbour, HARBOUR, TaskState.COMPLETED)
        await is_over(network)
        [error] = [e for e in await events(harbour, HARBOUR) if e.kind.endswith("message_error")]
        assert error.extra["unanswered"] is True
    assert len(heard) == 4


async def test_a_task_that_waits_for_no_answer_any_more_can_stall(store) -> None:
    gated = Gated("wind")
    async with Network() as network:
        harbour = network.add("harbour", asking, store=store)
        network.add("weather", gated.agents)
        await harbour.runtime().submit(question())
        await harbour.runtime().start()
        [row] = await delivered(harbour, 1)
        await harbour.runtime().peers.settle(row, UNANSWERED)
        await reaches(harbour, HARBOUR, TaskState.COMPLETED)
        [(status, text)] = terminals(await events(harbour, HARBOUR))
        assert (status, text[:17]) == ("completed", "::undeliverable::")
        gated.gates["wind"].set()
        await is_over(network)


async def test_no_request_is_closed_while_its_task_waits_for_its_caller(store) -> None:
    def lead(messages: list[dict[str, Any]], choice: object) -> Calls:
        return [ask("wind@weather"), ("review", {})]

    def agents() -> dict[str, AgentCore]:
        actions = {"review": ActionCore(function=None, name="review")}
        core = AgentCore(
            function=agent_from(lead),
            comm_targets=["*@*"],
            actions=actions,
            enable_interswarm=True,
            can_complete_tasks=True,
        )
        return {"lead": core}

    gated = Gated("wind")
    async with Network() as network:
        harbour = network.add("harbour", agents, store=store, breakpoint_tools=["review"])
        network.add("weather", gated.agents)
        run = await harbour.runtime().open_run(RunRequest(message=question()))
        assert (await run.result(5)).status is TaskState.PAUSED
        [row] = await delivered(harbour, 1)
        await harbour.runtime().peers.settle(row, UNANSWERED)
        assert await delivered(harbour, 1) == [row]
        kinds = [event.kind for event in await events(harbour, HARBOUR)]
        assert "interswarm_message_error" not in kinds
        gated.gates["wind"].set()


# --- ends ---------------------------------------------------------------------------------------


def hanging() -> tuple[asyncio.Event, Callable[..., Any]]:
    """Return what tells that an agent's function has begun, and that function, which hangs."""
    begun = asyncio.Event()

    async def hang(messages: list[dict[str, Any]], choice: object) -> Any:
        begun.set()
        await asyncio.Event().wait()

    return begun, hang


async def test_cancelling_the_task_cancels_it_everywhere(store) -> None:
    begun, hang = hanging()

    def middle(subject: str, body: str) -> Calls:
        return [ask("buoy@sea")]

    async with Network() as network:
        harbour = network.add("harbour", asking)
        weather = network.add("weather", lambda: {"wind": leader(middle)}, store=store)
        core = AgentCore(function=hang, comm_targets=[], can_complete_tasks=True)
        sea = network.add("sea", lambda: {"buoy": core})
        await harbour.runtime().submit(question())
        await harbour.runtime().start()
        await asyncio.wait_for(begun.wait(), 20)
        await harbour.runtime().cancel_task("task-1")
        await reaches(weather, WEATHER, TaskState.CANCELLED)
        await reaches(sea, Owner("sea", "swarm", "weather"), TaskState.CANCELLED)
        await is_over(network)
        for side, owner in ((weather, WEATHER), (sea, Owner("sea", "swarm", "weather"))):
            assert len(terminals(await events(side, owner))) == 1


@pytest.mark.parametrize("away", [False, True])
async def test_deleting_the_task_ends_it_everywhere(store, away) -> None:
    begun, hang = hanging()

    async with Network() as network:
        harbour = network.add("harbour", asking, store=store)
        core = AgentCore(function=hang, comm_targets=[], can_complete_tasks=True)
        weather = network.add("weather", lambda: {"wind": core})
        await harbour.runtime().submit(question())
        await harbour.runtime().start()
        await asyncio.wait_for(begun.wait(), 20)
        await is_still(network)
        network.down = {"weather"} if away else set()
        await harbour.runtime().delete_task("task-1", cancel=True)
        assert await store.list_tasks(HARBOUR) == []
        if away:
            assert len(await store.list_outbox("harbour")) == 1
            assert await state(weather, WEATHER) is TaskState.RUNNING
            network.down = set()
            network.wake()
        await reaches(weather, WEATHER, TaskState.CANCELLED)
        await is_over(network)


async def test_the_end_of_the_task_ends_what_still_goes_on_elsewhere(store) -> None:
    begun, hang = hanging()

    def lead(subject: str, body: str) -> Calls:
        return [ask("wind@weather"), ask("second")] if subject == "Question" else [done("enough")]

    def second(subject: str, body: str) -> Calls:
        return [send("send_response", "lead", "go on")]

    async with Network() as network:
        gate = asyncio.Event()

        async def slow(messages: list[dict[str, Any]], choice: object) -> Any:
            await gate.wait()
            return await agent(second, targets=["lead"]).function(messages, choice)

        harbour = network.add(
            "harbour",
            lambda: {
                "lead": leader(lead, targets=["second", "*@*"]),
                "second": AgentCore(function=slow, comm_targets=["lead"]),
            },
        )
        core = AgentCore(function=hang, comm_targets=[], can_complete_tasks=True)
        weather = network.add("weather", lambda: {"wind": core}, store=store)
        run = await harbour.runtime().open_run(RunRequest(message=question()))
        await asyncio.wait_for(begun.wait(), 20)
        gate.set()
        assert (await run.result(5)).status is TaskState.COMPLETED
        await reaches(weather, WEATHER, TaskState.COMPLETED)
        await is_over(network)
        log = await events(weather, WEATHER)
        assert terminals(log) == [("completed", "the task was completed elsewhere")]
        assert [m["payload"]["subject"] for m in network.moved] == ["Ask", "::task_complete::"]


async def test_the_end_reaches_the_part_opened_from_here_when_another_part_asked_last(
    store,
) -> None:
    begun, hang = hanging()

    def lead(subject: str, body: str) -> Calls:
        if subject == "Question":
            return [ask("wind@weather"), ask("buoy@sea")]
        return [done("enough")]

    def rain(subject: str, body: str) -> Calls:
        return [ask("lead@harbour")] if subject == "Ask" else [done("heard")]

    async with Network() as network:
        harbour = network.add("harbour", lambda: {"lead": leader(lead)})
        agents = {
            "wind": AgentCore(function=hang, comm_targets=[], can_complete_tasks=True),
            "rain": leader(rain),
        }
        weather = network.add("weather", lambda: agents, store=store)
        network.add("sea", lambda: {"buoy": leader(lambda *_: [ask("rain@weather")])})
        run = await harbour.runtime().open_run(RunRequest(message=question()))
        await asyncio.wait_for(begun.wait(), 20)
        assert (await run.result(10)).message["message"]["body"] == "enough"
        for owner in (WEATHER, Owner("weather", "swarm", "sea")):
            await reaches(weather, owner, TaskState.COMPLETED)


async def test_mail_for_an_ended_task_waits_in_its_stash(store) -> None:
    gate = asyncio.Event()

    async def slow(messages: list[dict[str, Any]], choice: object) -> Any:
        await gate.wait()
        return await agent(echo).function(messages, choice)

    subjects: list[str] = []

    def lead(subject: str, body: str) -> Calls:
        subjects.append(subject)
        return [ask("wind@weather"), done("at once")]

    async with Network() as network:
        harbour = network.add("harbour", lambda: {"lead": leader(lead)}, store=store)
        weather = network.add(
            "weather", lambda: {"wind": AgentCore(function=slow, comm_targets=["*@*"])}
        )
        weather.network.sides["weather"].stripped = True
        run = await harbour.runtime().open_run(RunRequest(message=question()))
        assert (await run.result(5)).status is TaskState.COMPLETED
        gate.set()
        await is_over(network)
        assert await state(harbour, HARBOUR) is TaskState.COMPLETED
        assert subjects == ["Question"]


# --- breakpoints --------------------------------------------------------------------------------


def reviewing() -> dict[str, AgentCore]:
    """Return an agent that asks for a review, and answers with what it gets."""

    def wind(messages: list[dict[str, Any]], choice: object) -> Calls:
        results = [m["content"] for m in messages if m.get("role") == "tool"]
        if not results:
            return [("review", {"what": "wind"})]
        return [send("send_response", "lead@harbour", f"reviewed: {results[-1]}")]

    actions = {"review": ActionCore(function=None, name="review")}
    return {"wind": AgentCore(agent_from(wind), comm_targets=["*@*"], actions=actions)}


async def test_breakpoint_calls_of_another_swarm_are_answered_by_the_tasks_caller(store) -> None:
    async with Network() as network:
        harbour = network.add("harbour", asking, store=store)
        weather = network.add("weather", reviewing, breakpoint_tools=["review"])
        run = await harbour.runtime().open_run(RunRequest(message=question()))
        paused = await run.result(5)
        assert paused.status is TaskState.PAUSED
        [call] = paused.breakpoints
        assert call["name"] == "review" and json.loads(call["arguments"]) == {"what": "wind"}
        assert await state(weather, WEATHER) is TaskState.PAUSED
        await is_still(network)
        await harbour.stop()
        await weather.stop()
        resume = {"message": question(), "resume_from": "breakpoint_tool_call"}
        with pytest.raises(BreakpointError):
            wrong = [{"call_id": "other", "content": "x"}]
            await harbour.runtime().open_run(
                RunRequest(**resume, breakpoint_tool_call_result=wrong)
            )
        right = [{"call_id": call["call_id"], "content": "fine"}]
        run = await harbour.runtime().open_run(
            RunRequest(**resume, breakpoint_tool_call_result=right)
        )
        result = await run.result(5)
        assert result.message["message"]["body"] == "Report: reviewed: fine"
        await reaches(weather, WEATHER, TaskState.COMPLETED)
        await is_over(network)


async def test_results_may_come_while_the_news_of_the_pause_is_still_being_settled() -> None:
    async with Network() as network:
        harbour = network.add("harbour", asking)
        weather = network.add("weather", reviewing, breakpoint_tools=["review"])
        reached, gate = hold_up_settling(weather)
        run = await harbour.runtime().open_run(RunRequest(message=question()))
        [call] = (await run.result(5)).breakpoints
        resume = {"message": question(), "resume_from": "breakpoint_tool_call"}
        right = [{"call_id": call["call_id"], "content": "fine"}]
        run = await harbour.runtime().open_run(
            RunRequest(**resume, breakpoint_tool_call_result=right)
        )
        [(_, row)] = await harbour.store.due_outbox("harbour", FAR, 10)
        await reached.wait()
        results = asyncio.create_task(weather.take(from_json(row.wrapper)))
        await asyncio.sleep(0.01)  # it is at the door, behind what is settled
        assert not results.done()
        gate.set()
        result = await run.result(5)
        assert result.message["message"]["body"] == "Report: reviewed: fine"
        await results
        await is_over(network)


def hold_up_settling(side: Side) -> tuple[asyncio.Event, asyncio.Event]:
    """Let a side's store note that the news of a pause was delivered only when told to.

    Returns:
        What tells that it is to be noted, and what lets it.
    """
    reached, gate, commit = asyncio.Event(), asyncio.Event(), side.store.commit

    async def slow(what: Commit) -> Receipt:
        if what.outbox_changes and what.task.state is TaskState.PAUSED:
            reached.set()
            await gate.wait()
        return await commit(what)

    side.store.commit = slow  # type: ignore[method-assign]
    return reached, gate


# --- restarts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["harbour", "weather"])
async def test_a_restart_in_between_loses_nothing(tmp_path, which) -> None:
    """A side stops while the other works, forgets everything, and starts again."""
    asked = asyncio.Event()
    gate = asyncio.Event()

    async def slow(messages: list[dict[str, Any]], choice: object) -> Any:
        asked.set()
        await gate.wait()
        return await agent(completes).function(messages, choice)

    def slow_agents() -> dict[str, AgentCore]:
        return {"wind": AgentCore(function=slow, comm_targets=[], can_complete_tasks=True)}

    stores = {
        name: open_store(f"sqlite:///{tmp_path / name}.db") for name in ("harbour", "weather")
    }
    async with Network() as network:
        harbour = network.add("harbour", asking, store=stores["harbour"])
        weather = network.add("weather", slow_agents, store=stores["weather"])
        await harbour.runtime().submit(question())
        await harbour.runtime().start()
        await asyncio.wait_for(asked.wait(), 20)
        await until(lambda: len(network.moved) == 1)
        await network.sides[which].stop()
        if which == "harbour":
            gate.set()  # the answer comes while it is away, and finds it with its task
        else:
            asked.clear()
            await weather.runtime("swarm", "harbour").start()
            await asyncio.wait_for(asked.wait(), 20)
            gate.set()
        await harbour.runtime().start()
        await reaches(harbour, HARBOUR, TaskState.COMPLETED)
        await reaches(weather, WEATHER, TaskState.COMPLETED)
        await is_over(network)
        [end] = terminals(await events(harbour, HARBOUR))
        assert end == ("completed", "\\::task_complete\\::: about Hello")
    for store in stores.values():
        await store.close()


# --- a peer of MAIL 1.3.6 -----------------------------------------------------------------------


async def test_the_last_words_of_an_older_owner_end_the_task_here(store) -> None:
    async with Network() as network:
        harbour = network.add("harbour", asking)
        harbour.stripped = True
        weather = network.add("weather", lambda: {"wind": leader(echo)}, store=store)
        await harbour.runtime().submit_and_wait(question(), timeout=30)
        await is_over(network)
        assert await state(weather, WEATHER) is TaskState.COMPLETED
        assert len(terminals(await events(weather, WEATHER))) == 1


async def test_the_last_words_of_an_older_contributor_answer_who_waits(store) -> None:
    async with Network() as network:
        harbour = network.add("harbour", asking, store=store)
        weather = network.add("weather", lambda: {"wind": leader(completes)})
        weather.stripped = True
        message = await harbour.runtime().submit_and_wait(question(), timeout=30)
        assert message["message"]["body"] == "\\::task_complete\\::: about Hello"
        await is_over(network)
