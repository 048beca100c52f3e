"""Whether cost stays flat: within a long task, after many tasks, and in memory."""

import gc
import os
import statistics
import time
from pathlib import Path
from typing import Any

from benchmarks.swarm import make_runtime, question, reply, run_tasks, sqlite_store
from mail.core.agents import AgentCore, AgentOutput, ToolChoice
from mail.core.events import TaskEvent
from mail.core.runtime import MAILRuntime
from mail.core.runtime.active_tasks import ActiveTask
from mail.db.base import Store

_LONG = 5000
_EDGE = 500


class _PingPong:
    """Two agents that write to each other and note when."""

    def __init__(self, messages: int) -> None:
        self._left = messages
        self.stamps: list[float] = []

    async def lead(self, messages: list[dict[str, Any]], tool_choice: ToolChoice) -> AgentOutput:
        return self._next("worker")

    async def work(self, messages: list[dict[str, Any]], tool_choice: ToolChoice) -> AgentOutput:
        return self._next("supervisor")

    def _next(self, target: str) -> AgentOutput:
        self.stamps.append(time.perf_counter())
        self._left -= 1
        if self._left <= 0 and target == "worker":
            return reply("task_complete", finish_message="enough")
        return reply("send_request", target=target, subject="Ping", body="And then?")


async def long_task(store: Store | None = None) -> tuple[float, float]:
    """Return microseconds per message in the first and the last 500 of a task of 5,000."""
    game = _PingPong(_LONG)
    runtime = make_runtime(
        store,
        {
            "supervisor": AgentCore(game.lead, ["worker"], can_complete_tasks=True),
            "worker": AgentCore(game.work, ["supervisor"]),
        },
    )
    await runtime.submit_and_wait(question())
    await runtime.shutdown()
    stamps = game.stamps
    first = (stamps[_EDGE] - stamps[0]) / _EDGE * 1e6
    last = (stamps[-1] - stamps[-1 - _EDGE]) / _EDGE * 1e6
    return first, last


async def latency_after_many() -> tuple[float, float]:
    """Return the median milliseconds of a task before and after 5,000 others."""
    runtime = make_runtime()
    await run_tasks(runtime, 200, 10)
    before = await _latency(runtime)
    await run_tasks(runtime, 5000, 100)
    after = await _latency(runtime)
    await runtime.shutdown()
    return before, after


async def _latency(runtime: MAILRuntime) -> float:
    samples = []
    for _ in range(200):
        began = time.perf_counter()
        await runtime.submit_and_wait(question())
        samples.append((time.perf_counter() - began) * 1e3)
    return statistics.median(samples)


async def growth() -> tuple[float, int, int]:
    """Return resident growth in per cent of a second equal round, and live objects left over."""
    runtime = make_runtime()
    await run_tasks(runtime, 3000, 100)
    first, tasks, events = _resident(), _count(ActiveTask), _count(TaskEvent)
    await run_tasks(runtime, 3000, 100)
    second, more_tasks, more_events = _resident(), _count(ActiveTask), _count(TaskEvent)
    await runtime.shutdown()
    return (second - first) / first * 100, more_tasks - tasks, more_events - events


def _count(kind: type) -> int:
    return sum(1 for item in gc.get_objects() if type(item) is kind)


def _resident() -> int:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def report() -> None:
    """Print the figures with their aims."""
    first, last = await long_task()
    print(f"memory   task of 5,000: first 500           {first:8.1f} us/message")
    print(f"memory   task of 5,000: last 500            {last:8.1f} us/message")
    print(f"memory   last over first                    {last / first:8.2f}x (aim 1.3)")
    async with sqlite_store() as store:
        first, last = await long_task(store)
    print(f"SQLite   task of 5,000: last over first     {last / first:8.2f}x (aim 1.3)")
    before, after = await latency_after_many()
    print(f"memory   a task's latency at first          {before:8.2f} ms (median of 200)")
    print(f"memory   a task's latency after 5,000       {after:8.2f} ms  {after / before:5.2f}x")
    percent, tasks, events = await growth()
    print(f"memory   growth of a second equal round     {percent:8.1f} %  (aim under 5)")
    print(f"memory   live tasks and events left over    {tasks:5d} and {events}")
