"""Streams end when their run ends, at once and whatever the store's pace, and leave nothing."""

import asyncio
import gc

import pytest

from mail.core.runtime import RunRequest
from mail.errors import TaskTimeout
from mail.testing import tool_calls
from tests.support.stores import HookedStore
from tests.support.swarm import runtime_of, supervisor, user_message


async def done(messages, choice):
    return None, tool_calls(("task_complete", {"finish_message": "done"}))


async def endless(messages, choice):
    await asyncio.sleep(3600)


async def test_a_replay_never_ends_before_the_terminal_event(store) -> None:
    stored = asyncio.Event()

    async def slow(post) -> None:
        if post.response is not None:
            stored.set()
            await asyncio.sleep(0.05)

    runtime = runtime_of({"supervisor": supervisor(done, ())}, store=HookedStore(store, after=slow))
    caller = asyncio.create_task(runtime.submit_and_wait(user_message()))
    reader = asyncio.create_task(_replayed(runtime, stored))
    kinds = await asyncio.wait_for(reader, 20)
    assert kinds[-1] == "task_complete"
    await caller
    await runtime.shutdown()


async def _replayed(runtime, stored):
    store = runtime._context.store
    load = store.load_task

    async def load_late(*args):
        await stored.wait()
        return await load(*args)

    while runtime.get_task_by_id("task-1") is None:
        await asyncio.sleep(0)
    store.load_task = load_late
    return [event.kind async for event in runtime.replay("task-1")]


async def test_a_stream_that_reads_its_end_before_it_is_announced_ends(store) -> None:
    stored, read = asyncio.Event(), asyncio.Event()

    async def hold(post) -> None:
        if post.response is not None:
            stored.set()
            await read.wait()

    runtime = runtime_of({"supervisor": supervisor(done, ())}, store=HookedStore(store, after=hold))
    run = await runtime.open_run(RunRequest(message=user_message(), streamed=True))
    await stored.wait()
    run.waiter.subscription.lag()  # as one does whose buffer overflows: it reads the store next
    kinds = []
    async with asyncio.timeout(20):
        async for event in run.events():
            kinds.append(event.kind)
            if event.kind == "task_complete":
                read.set()
        while not runtime.idle:
            await asyncio.sleep(0)
    assert kinds[-1] == "task_complete"
    await runtime.shutdown()


async def test_a_stream_that_nobody_reads_goes_with_its_handle() -> None:
    runtime = runtime_of({"supervisor": supervisor(done, ())})
    run = await runtime.open_run(RunRequest(message=user_message(), streamed=True))
    await run.result(5)
    events = run.events()
    del run, events
    gc.collect()
    assert runtime.idle
    await runtime.shutdown()


async def test_the_timeout_of_a_stream_never_cancels_its_readers_own_work() -> None:
    runtime = runtime_of({"supervisor": supervisor(endless, ())})
    seen = 0
    with pytest.raises(TaskTimeout):
        async for _ in runtime.submit_and_stream(user_message(), timeout=0.5):
            seen += 1
            await asyncio.sleep(0.6)
    assert seen == 1
    assert not runtime._context.events.has_readers
    await runtime.cancel_task("task-1")
    await runtime.shutdown()


async def test_a_reader_that_leaves_early_leaves_nothing_behind() -> None:
    runtime = runtime_of({"supervisor": supervisor(done, ())})
    stream = runtime.submit_and_stream(user_message())
    await anext(stream)
    await stream.aclose()
    async with asyncio.timeout(20):
        while not runtime.idle:
            await asyncio.sleep(0.001)
    await runtime.shutdown()


async def test_a_replay_after_the_shutdown_ends(store) -> None:
    runtime = runtime_of({"supervisor": supervisor(endless, ())}, store=store)
    await runtime.submit(user_message())
    await runtime.shutdown(grace=0)
    async with asyncio.timeout(20):
        kinds = [event.kind async for event in runtime.replay("task-1")]
    assert kinds == ["new_message", "server_drain"]
