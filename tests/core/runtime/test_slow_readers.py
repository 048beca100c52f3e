"""A stream that nobody reads for a while keeps little in memory, and misses nothing."""

import asyncio
import gc

from mail.core.runtime import RunRequest
from mail.services.event_log import Subscription
from mail.testing import tool_calls
from tests.support.swarm import runtime_of, supervisor, user_message, worker

LONG = "x" * 200_000


async def test_few_but_large_events_do_not_pile_up_in_a_streams_buffer(store) -> None:
    async def talk(messages, choice):
        if len(messages) > 20:
            return None, tool_calls(("task_complete", {"finish_message": "done"}))
        return None, tool_calls(
            ("send_request", {"target": "worker", "subject": "s", "body": LONG})
        )

    async def answer(messages, choice):
        return None, tool_calls(
            ("send_response", {"target": "supervisor", "subject": "s", "body": LONG})
        )

    others = _subscriptions()
    agents = {"supervisor": supervisor(talk), "worker": worker(answer)}
    runtime = runtime_of(agents, store=store)
    run = await runtime.open_run(RunRequest(message=user_message(), streamed=True))
    events = run.events()
    seen = [(await anext(events)).seq]
    while (task := await runtime.read_task("task-1")) is None or not task.completed:
        await asyncio.sleep(0.01)
    buffers = [found._buffer for found in _subscriptions() if found not in others]
    held = sum(len(event.data_text()) for buffer in buffers for event in buffer)
    assert buffers
    seen += [event.seq async for event in events if event.seq]
    assert held < 2_000_000
    assert len(seen) > 30
    assert seen == list(range(1, len(seen) + 1))
    await runtime.shutdown()


def _subscriptions() -> list[Subscription]:
    """Return those of the process: tests before may have left some."""
    gc.collect()
    return [found for found in gc.get_objects() if type(found) is Subscription]
