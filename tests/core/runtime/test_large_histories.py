"""What the histories of one owner's agents take in memory is bounded; nothing of them is lost."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from mail.core.agents import AgentFunction
from mail.core.runtime import MAILRuntime, RunRequest, RuntimeSettings
from mail.core.runtime.histories import Histories
from mail.core.runtime.mailbox import LaneKey
from mail.core.tasks import TaskState
from mail.db.memory import MemoryStore
from mail.db.records import Owner
from tests.support.swarm import runtime_of, supervisor, user_message

KB = 1024
MB = 1024 * KB
ALICE = Owner("example", "user", "alice")
A, B, C, D, E = (LaneKey("t", name) for name in "abcde")


class Rows:
    """Histories of three rows of this size for each agent, but for ``small``."""

    def __init__(self, size: int = 33 * KB) -> None:
        self.reads: Counter[str] = Counter()
        self.size = size

    async def history(self, owner: Owner, task_id: str, agent: str) -> list[str]:
        self.reads[agent] += 1
        await asyncio.sleep(0)
        text = "x" if agent == "small" else agent * self.size
        return [json.dumps([{"role": "user", "content": text}])] * 3


@pytest.fixture
def rows() -> Rows:
    return Rows()


async def length(histories: Histories, key: LaneKey) -> int:
    async with histories.read(key) as history:
        return len(history.entries)


class TestHistories:
    async def test_of_long_ones_four_are_at_work_and_others_do_not_wait(self) -> None:
        rows = Rows(400 * KB)
        histories = Histories(rows, ALICE, 4 * MB)
        async with AsyncExitStack() as stack:
            for key in (A, B, C, D):
                history = await stack.enter_async_context(histories.read(key))
                assert [entry["content"][0] for entry in history.entries] == [key.agent] * 3
                assert 1200 * KB <= history.size < 1201 * KB
            waiting = asyncio.create_task(length(histories, E))
            await asyncio.sleep(0.05)
            assert await length(histories, LaneKey("t", "small")) == 3
            assert not waiting.done()
        assert await waiting == 3

    async def test_a_long_one_is_read_once_as_long_as_there_is_room_for_it(self) -> None:
        rows = Rows(400 * KB)
        histories = Histories(rows, ALICE, 4 * MB)
        for _ in range(3):
            assert await length(histories, A) == 3
        histories.append(A, [{"role": "user", "content": "more"}], ['{"content": "more"}'])
        assert await length(histories, A) == 4
        assert rows.reads == {"a": 1}

    async def test_what_is_more_than_all_may_take_is_read_all_the_same(self, rows: Rows) -> None:
        histories = Histories(rows, ALICE, KB)
        lengths = [length(histories, key) for key in (A, B, C)]
        assert await asyncio.wait_for(asyncio.gather(*lengths), 5) == [3, 3, 3]

    async def test_what_was_used_longest_ago_is_let_go_and_read_again(self, rows: Rows) -> None:
        histories = Histories(rows, ALICE, 250 * KB)
        for key in (A, B, C):
            await length(histories, key)
        assert histories.lanes() == [B, C]
        await length(histories, B)
        await length(histories, A)
        assert rows.reads == {"a": 2, "b": 1, "c": 1}

    async def test_what_was_used_last_is_kept(self, rows: Rows) -> None:
        histories = Histories(rows, ALICE, 250 * KB)
        for key in (A, B):
            await length(histories, key)
        assert histories.at_hand(A, fresh=False) is not None
        await length(histories, C)
        assert histories.lanes() == [A, C]

    async def test_one_that_began_here_is_read_when_it_was_let_go(self, rows: Rows) -> None:
        histories = Histories(rows, ALICE, 150 * KB)
        assert histories.at_hand(A, fresh=True).entries == []
        entry = {"role": "user", "content": "a" * 50 * KB}
        histories.append(A, [entry, entry], [json.dumps(entry)] * 2)
        assert len(histories.at_hand(A, fresh=True).entries) == 2
        assert await length(histories, B) == 3
        assert histories.lanes() == [B]
        histories.append(A, [entry], [json.dumps(entry)])
        assert histories.at_hand(A, fresh=True) is None
        assert await length(histories, A) == 3  # what the store has

    async def test_many_small_ones_are_let_go_as_well(self, rows: Rows) -> None:
        histories = Histories(rows, ALICE, 10 * KB)
        entry = {"role": "user", "content": "s" * KB}
        for number in range(30):
            key = LaneKey(f"t{number}", "small")
            assert histories.at_hand(key, fresh=True).entries == []
            histories.append(key, [entry], [json.dumps(entry)])
        assert 5 < len(histories.lanes()) < 10
        assert histories.at_hand(LaneKey("t0", "small"), fresh=True) is None
        assert await length(histories, LaneKey("t0", "small")) == 3

    async def test_a_cancelled_reader_leaves_its_place(self) -> None:
        histories = Histories(Rows(400 * KB), ALICE, MB)
        async with AsyncExitStack() as stack:
            for key in (A, B, C, D):
                await stack.enter_async_context(histories.read(key))
            waiting = asyncio.create_task(length(histories, E))
            await asyncio.sleep(0.02)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        for _ in range(5):
            assert await asyncio.wait_for(length(histories, E), 5) == 3


@asynccontextmanager
async def limited(agent: AgentFunction, most: int) -> AsyncIterator[MAILRuntime]:
    settings = RuntimeSettings(max_history_bytes=most)
    runtime = runtime_of(
        {"supervisor": supervisor(agent, ())}, store=MemoryStore(), settings=settings
    )
    yield runtime
    await runtime.shutdown()


async def done(messages, choice):
    return "done", []


async def said(runtime, body: str, task_id: str):
    run = await runtime.open_run(RunRequest(message=user_message(body, task_id)))
    return await run.result(10)


async def test_an_agent_whose_history_is_too_large_is_not_called() -> None:
    async with limited(done, 300 * KB) as runtime:
        first = [await said(runtime, "x" * 90 * KB, "t") for _ in range(4)]
        assert [result.status for result in first] == [TaskState.COMPLETED] * 4
        over = await said(runtime, "and?", "t")
        assert over.status is TaskState.FAILED
        assert "the history of agent 'supervisor'" in over.reason
        assert "307,200 (max_history_bytes)" in over.reason
        other = await said(runtime, "Hello.", "another")
        assert other.status is TaskState.COMPLETED


async def test_of_tasks_with_long_histories_four_are_worked_on_at_a_time() -> None:
    at_work: list[int] = [0]
    most: list[int] = []

    async def agent(messages, choice):
        at_work[0] += 1
        most.append(at_work[0])
        await asyncio.sleep(0.02)
        at_work[0] -= 1
        return "done", []

    tasks = [f"t{number}" for number in range(9)]
    async with limited(agent, 16 * MB) as runtime:
        for body in ("x" * 600 * KB, "y" * 600 * KB, "and?"):
            most.clear()
            results = [said(runtime, body, task) for task in tasks]
            assert {result.status for result in await asyncio.gather(*results)} == {
                TaskState.COMPLETED
            }
        assert max(most) == 4
