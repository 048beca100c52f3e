"""The engine's figures: long tasks, broadcasts, messages, and turns that take their time.

Every figure is measured in a process of its own. With the sources of another version beside ours
(``python -m benchmarks engine --against /path/to/src``) the two take turns, so that whatever slows
the machine down slows both; of several rounds the best counts. What an engine in memory spends on a
message is CPU time, of which it needs as much as of any other on a machine of its own.
"""

import asyncio
import gc
import json
import os
import selectors
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.swarm import (
    History,
    make_runtime,
    question,
    reply,
    run_tasks,
    sqlite_store,
)
from mail.core.agents import AgentCore, AgentOutput, ToolChoice
from mail.db.store import Store
from mail.llm.completions import encode
from mail.llm.request import ModelRequest

_ROUNDS = {"newest": 2, "broadcast": 3, "messages": 3, "concurrency": 2}  # else 1
_LONG = 5000
_EDGE = 500
_READ_LONG = 2000
_READ_EDGE = 100
_CROWD = 500
_BROADCASTS = 20
_TASKS = {10: 1000, 100: 2000, 1000: 3000}
_SLOW_TASKS = 200
_THINKING = 0.05
_SLOW_TURNS = 3

Figures = dict[str, float]


class _PingPong:
    """Two agents that write to each other, read their newest mail, and note when."""

    def __init__(self, messages: int, clock: Callable[[], float] = time.process_time) -> None:
        self._left = messages
        self._clock = clock
        self.stamps: list[float] = []

    def agents(self) -> dict[str, AgentCore]:
        """Return the two as a swarm."""
        return {
            "supervisor": AgentCore(self.lead, ["worker"], can_complete_tasks=True),
            "worker": AgentCore(self.work, ["supervisor"]),
        }

    async def lead(self, messages: History, tool_choice: ToolChoice) -> AgentOutput:
        return self._next(messages, "worker")

    async def work(self, messages: History, tool_choice: ToolChoice) -> AgentOutput:
        return self._next(messages, "supervisor")

    def _next(self, messages: History, target: str) -> AgentOutput:
        self.stamps.append(self._clock())
        self._left -= 1
        self.read(messages)
        if self._left <= 0 and target == "worker":
            return reply("task_complete", finish_message="enough")
        return reply("send_request", target=target, subject="Ping", body="And then?")

    def read(self, messages: History) -> None:
        """Look at the newest entry."""
        if messages[-1]["role"] != "user":
            raise ValueError("the newest entry of a history is the incoming mail")

    def costs(self, edge: int) -> tuple[float, float]:
        """Return microseconds per message at the start and at the end."""
        stamps = self.stamps
        first = (stamps[edge] - stamps[0]) / edge * 1e6
        return first, (stamps[-1] - stamps[-1 - edge]) / edge * 1e6


class _Readers(_PingPong):
    """Two agents that read their whole histories near the end, as the LiteLLM adapter does.

    The same is done with a plain list of entries of their own right after it, and a bare loop.
    """

    def __init__(self, messages: int, sampled: int) -> None:
        super().__init__(messages)
        self._sampled = sampled
        self._own: tuple[History, History] = ([], [])
        self.times: dict[str, list[float]] = {"history": [], "list": [], "loop": []}

    def read(self, messages: History) -> None:
        """Read everything, thrice; the history first, as an agent comes upon it."""
        if self._left > self._sampled:
            super().read(messages)
            return
        self._time("history", _encoded, messages)
        own = self._own[self._left % 2]
        own += json.loads(json.dumps(messages[len(own) :]))
        self._time("list", _encoded, own)
        self._time("loop", _walked, own)

    def _time(self, name: str, work: Callable[[History], object], messages: History) -> None:
        gc.collect(1)  # or a pass would pay for the garbage of the one before it
        began = time.perf_counter()
        work(messages)
        self.times[name].append(time.perf_counter() - began)


def _encoded(messages: History) -> object:
    return encode(ModelRequest(model="openai/gpt", messages=messages))


def _walked(messages: History) -> int:
    return sum(len(entry.get("content") or "") for entry in messages)


async def _long_task(game: _PingPong, store: Store | None = None) -> Figures:
    runtime = make_runtime(store, game.agents())
    await runtime.submit_and_wait(question())
    await runtime.shutdown()
    first, last = game.costs(_EDGE)
    return {"first": first, "last": last, "ratio": last / first}


async def newest() -> Figures:
    """Measure a task of 5,000 messages whose agents read their newest entry: µs a message."""
    return await _long_task(_PingPong(_LONG))


async def newest_durable() -> Figures:
    """Measure the same on SQLite, where every commit is synced."""
    async with sqlite_store() as store:
        return await _long_task(_PingPong(_LONG, time.perf_counter), store)


async def whole() -> Figures:
    """Measure how long it takes to read a whole history: ms, at about 3,000 entries."""
    game = _Readers(_READ_LONG, _READ_EDGE)
    runtime = make_runtime(None, game.agents())
    await runtime.submit_and_wait(question())
    await runtime.shutdown()
    found = {name: statistics.median(times) * 1e3 for name, times in game.times.items()}
    return {**found, "ratio": found["history"] / found["list"]}


async def broadcast() -> Figures:
    """Measure a broadcast to 499 agents, each with a turn of its own: µs per recipient."""
    last = f"agent{_CROWD - 2}"

    async def tell(messages: History, tool_choice: ToolChoice) -> AgentOutput:
        if "What is to be done?" in messages[-1]["content"]:
            return reply("send_broadcast", subject="All", body="Take note.", targets=[])
        return reply("task_complete", finish_message="They know.")

    async def hear(messages: History, tool_choice: ToolChoice) -> AgentOutput:
        if "Take note." not in messages[-1]["content"]:
            raise ValueError("not the broadcast")
        return reply("acknowledge_broadcast", note="noted")

    async def answer(messages: History, tool_choice: ToolChoice) -> AgentOutput:
        return reply("send_response", target="supervisor", subject="Re: All", body="We know.")

    names = [f"agent{number}" for number in range(_CROWD - 1)]
    agents = {"supervisor": AgentCore(tell, names, can_complete_tasks=True)}
    agents |= {name: AgentCore(hear, ["supervisor"]) for name in names}
    agents[last] = AgentCore(answer, ["supervisor"])
    runtime = make_runtime(None, agents)
    await runtime.submit_and_wait(question())
    times = []
    for _ in range(_BROADCASTS):
        began = time.process_time()
        await runtime.submit_and_wait(question())
        times.append(time.process_time() - began)
    await runtime.shutdown()
    return {"recipient": statistics.median(times) / (_CROWD - 1) * 1e6}


async def messages() -> Figures:
    """Measure µs per message in memory at several numbers of concurrent tasks."""
    runtime = make_runtime()
    await run_tasks(runtime, 200, 10)
    found = {
        str(count): await run_tasks(runtime, _TASKS[count], count, time.process_time)
        for count in _TASKS
    }
    await runtime.shutdown()
    return found


class _Alone(selectors.DefaultSelector):
    """Never waits: what would be waited for is added to the loop's time."""

    def __init__(self) -> None:
        super().__init__()
        self.waited = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready."""
        ready = super().select(0)
        if not ready and timeout:
            self.waited += timeout
        return ready


class _AloneLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is that of a machine which does nothing else."""

    def __init__(self) -> None:
        self._alone = _Alone()
        super().__init__(self._alone)

    def time(self) -> float:
        return time.thread_time() + self._alone.waited


async def concurrency() -> Figures:
    """Measure 200 tasks of three turns of 50 ms at once, beside what bare sleeps take: seconds.

    On a machine that others use, only the figure for a machine of its own tells much.
    """
    tasks, bare = await _slow_tasks(), await _at_once(_sleeps)
    alone = await asyncio.to_thread(_on_its_own, _slow_tasks)
    path = _SLOW_TURNS * _THINKING
    return {"tasks": tasks, "bare": bare, "ratio": tasks / path, "alone": alone / path}


def _on_its_own(measure: Callable[[], Coroutine[Any, Any, float]]) -> float:
    with asyncio.Runner(loop_factory=_AloneLoop) as runner:
        return runner.run(measure())


async def _slow_tasks() -> float:
    async def think(messages: History, tool_choice: ToolChoice) -> AgentOutput:
        await asyncio.sleep(_THINKING)
        if "What is to be done?" in messages[-1]["content"]:
            return reply("send_request", target="worker", subject="Job", body="Do it.")
        return reply("task_complete", finish_message="It is done.")

    async def work(messages: History, tool_choice: ToolChoice) -> AgentOutput:
        await asyncio.sleep(_THINKING)
        body = "Done." if "Do it." in messages[-1]["content"] else "What?"
        return reply("send_response", target="supervisor", subject="Re: Job", body=body)

    agents = {
        "supervisor": AgentCore(think, ["worker"], can_complete_tasks=True),
        "worker": AgentCore(work, ["supervisor"]),
    }
    runtime = make_runtime(None, agents)
    await runtime.submit_and_wait(question())
    seconds = await _at_once(lambda: runtime.submit_and_wait(question()))
    await runtime.shutdown()
    return seconds


async def _sleeps() -> None:
    for _ in range(_SLOW_TURNS):
        await asyncio.sleep(_THINKING)


async def _at_once(work: Callable[[], Awaitable[object]]) -> float:
    """Return the seconds that so many take at once; the best of three."""
    loop, times = asyncio.get_running_loop(), []
    for _ in range(3):
        began = loop.time()
        await asyncio.gather(*(work() for _ in range(_SLOW_TASKS)))
        times.append(loop.time() - began)
    return min(times)


async def hand_off() -> Figures:
    """Measure the floor of a message: one item through a bare PriorityQueue, in µs."""
    count = 20_000
    queue: asyncio.PriorityQueue[tuple[int, int]] = asyncio.PriorityQueue()

    async def consume() -> None:
        for _ in range(count):
            await queue.get()
            queue.task_done()

    consumer = asyncio.create_task(consume())
    began = time.perf_counter()
    for number in range(count):
        await queue.put((5, number))
        await asyncio.sleep(0)
    await consumer
    return {"message": (time.perf_counter() - began) / count * 1e6}


MEASURES: Mapping[str, Callable[[], Awaitable[Figures]]] = {
    "newest": newest,
    "newest_durable": newest_durable,
    "whole": whole,
    "broadcast": broadcast,
    "messages": messages,
    "concurrency": concurrency,
    "hand_off": hand_off,
}


@dataclass(frozen=True, slots=True)
class _Line:
    """One figure as it is printed: which, in what unit, and what it should reach."""

    measure: str
    figure: str
    label: str
    unit: str = "us"
    aim: str = ""


LINES: Sequence[_Line] = (
    _Line("newest", "first", "task of 5,000, first 500 messages, agents read their newest entry"),
    _Line("newest", "last", "the same, last 500 messages"),
    _Line("newest", "ratio", "the same, last over first", "x", "aim 1.3"),
    _Line("newest_durable", "ratio", "the same on SQLite, last over first", "x", "aim 1.3"),
    _Line("whole", "loop", "3,000 entries: a bare loop over a list", "ms"),
    _Line("whole", "list", "3,000 entries: the adapter over a list", "ms"),
    _Line("whole", "history", "3,000 entries: the adapter over a history", "ms"),
    _Line("whole", "ratio", "the same, history over list", "x", "aim 1.1"),
    _Line("hand_off", "message", "floor: a bare asyncio.PriorityQueue hand-off"),
    _Line(
        "broadcast",
        "recipient",
        "broadcast to 499 agents, per recipient with its turn",
        "us",
        "aim 80",
    ),
    _Line("messages", "10", "message, 10 concurrent tasks", "us", "aim 100"),
    _Line("messages", "100", "message, 100 concurrent tasks", "us", "aim 100"),
    _Line("messages", "1000", "message, 1,000 concurrent tasks", "us", "aim 100"),
    _Line("concurrency", "bare", "floor: 200 times three bare sleeps of 50 ms", "s"),
    _Line("concurrency", "tasks", "200 tasks of three turns of 50 ms", "s"),
    _Line("concurrency", "ratio", "the same over the critical path", "x", "aim 1.15"),
    _Line("concurrency", "alone", "the same, on a machine of its own", "x", "aim 1.15"),
)


async def measured(name: str, source: Path | None) -> Figures:
    """Measure in a process of its own, on our sources or on others'."""
    environ = dict(os.environ)
    if source is not None:
        environ["PYTHONPATH"] = str(source)
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.engine",
        name,
        env=environ,
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await child.communicate()
    if child.returncode:
        raise SystemExit(f"the benchmark '{name}' failed on {source or 'these sources'}")
    found: Figures = json.loads(output)
    return found


def _best(rounds: Sequence[Figures]) -> Figures:
    return {name: min(figures[name] for figures in rounds) for name in rounds[0]}


async def report(against: Path | None = None) -> None:
    """Print the figures, beside those of other sources if there are any."""
    sources = [None] if against is None else [None, against]
    for name in MEASURES:
        rounds: dict[Path | None, list[Figures]] = {source: [] for source in sources}
        for number in range(_ROUNDS.get(name, 1)):
            for source in sources if number % 2 else sources[::-1]:
                rounds[source].append(await measured(name, source))
        _print(name, [_best(rounds[source]) for source in sources])


def _print(name: str, found: Sequence[Figures]) -> None:
    for line in LINES:
        if line.measure == name:
            ours, *other = (figures[line.figure] for figures in found)
            text = f"{line.label:68s} {ours:9.2f} {line.unit:2s}"
            if other:
                text += f"  before {other[0]:9.2f}  {ours / other[0]:5.2f}x"
            print(f"{text}  {line.aim}".rstrip(), flush=True)


async def _child(name: str) -> None:
    print(json.dumps(await MEASURES[name]()))


if __name__ == "__main__":
    asyncio.run(_child(sys.argv[1]))
