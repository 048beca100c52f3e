"""How soon an interrupt stops a model that streams, over 200 interrupts."""

import asyncio
import time
from typing import Any

from benchmarks.swarm import make_runtime, question, reply
from mail.core.agents import AgentCore, AgentOutput, ToolChoice
from mail.core.call_context import current_call

_ROUNDS = 200


class _Streaming:
    """An agent that streams for 30 seconds unless it is stopped, and notes when it was."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.stopped_at = 0.0

    async def __call__(
        self, messages: list[dict[str, Any]], tool_choice: ToolChoice
    ) -> AgentOutput:
        if "Stop" in str(messages[-1].get("content")):
            return reply("task_complete", finish_message="stopped")
        self.started.set()
        try:
            for _ in range(3000):
                current_call().sink.text("word ")
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            self.stopped_at = time.perf_counter()
            raise
        return reply("task_complete", finish_message="spoke to the end")


async def once() -> float:
    """Interrupt one streaming call and return the milliseconds it took to stop."""
    agent = _Streaming()
    runtime = make_runtime(agents={"supervisor": AgentCore(agent, [], can_complete_tasks=True)})
    talking = asyncio.create_task(runtime.submit_and_wait(question("task")))
    await agent.started.wait()
    stop = question("task")
    payload: Any = stop["message"]
    payload["interrupt_id"] = payload.pop("request_id")
    payload["recipients"] = [payload.pop("recipient")]
    payload["body"] = "Stop."
    stop["msg_type"] = "interrupt"
    began = time.perf_counter()
    stopping = asyncio.create_task(runtime.submit_and_wait(stop))
    await stopping
    elapsed = (agent.stopped_at - began) * 1e3
    talking.cancel()
    await asyncio.gather(talking, return_exceptions=True)
    await runtime.shutdown(grace=0)
    return elapsed


async def report() -> None:
    """Print the median and the 99th percentile."""
    samples = sorted([await once() for _ in range(_ROUNDS)])
    print(f"interrupt to stopped model, median          {samples[_ROUNDS // 2]:8.2f} ms")
    worst = samples[_ROUNDS * 99 // 100]
    print(f"interrupt to stopped model, p99             {worst:8.2f} ms (aim 250)")
