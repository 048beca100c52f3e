"""Whether cost stays flat: within a long task, after many tasks, and in memory."""

import gc
import os
import statistics
import time
from pathlib import Path

from benchmarks.swarm import make_runtime, question, run_tasks
from mail.core.events import TaskEvent
from mail.core.runtime import MAILRuntime
from mail.core.runtime.active_tasks import ActiveTask


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
    before, after = await latency_after_many()
    print(f"memory   a task's latency at first          {before:8.2f} ms (median of 200)")
    print(f"memory   a task's latency after 5,000       {after:8.2f} ms  {after / before:5.2f}x")
    percent, tasks, events = await growth()
    print(f"memory   growth of a second equal round     {percent:8.1f} %  (aim under 5)")
    print(f"memory   live tasks and events left over    {tasks:5d} and {events}")
