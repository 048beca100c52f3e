"""What the histories of one owner's agents take in memory is bounded; nothing of them is lost."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mail.core.agents import AgentFunction
from mail.core.runtime import MAILRuntime, RunRequest, RuntimeSettings
from mail.core.runtime.histories import Histories, Loan
from mail.core.runtime.mailbox import LaneKey
from mail.core.tasks import TaskState
from mail.db.memory import MemoryStore
from mail.db.records import Owner
from tests.support.swarm import runtime_of, supervisor, user_message

KB = 1024
ALICE = Owner("example", "user", "alice")
A, B, C = (LaneKey("t", name) for name in "abc")


class Rows:
    """Histories of 100 KB for each agent, but for ``small``."""

    def __init__(self) -> None:
        self.reads: Counter[str] = Counter()

    async def history(self, owner: Owner, task_id: str, agent: str) -> list[str]:
        self.reads[agent] += 1
        await asyncio.sleep(0)
        text = "x" if agent == "small" else agent * 50 * KB
        return [json.dumps([{"role": "user", "content": text}])] * 2


@pytest.fixture
def rows() -> Rows:
    return Rows()


@asynccontextmanager
async def lent(histories: Histories, key: LaneKey) -> AsyncIterator[Loan]:
    loan = await histories.read(key)
    yield loan
    histories.give_back(loan)


class TestHistories:
    async def test_who_works_with_a_large_one_lets_others_wait(self, rows: Rows) -> None:
        histories = Histories(rows, ALICE, 150 * KB)
        async with lent(histories, A) as loan:
            assert [entry["content"][0] for entry in loan.entries] == ["a", "a"]
            assert 100 * KB <= loan.size < 101 * KB
            waiting = asyncio.create_task(self._length(histories, B))
            for _ in range(20):
                await asyncio.sleep(0)
            assert await self._length(histories, LaneKey("t", "small")) == 2
            assert not waiting.done()
        assert await waiting == 2

    async def _length(self, histories: Histories, key: LaneKey) -> int:
        async with lent(histories, key) as loan:
            return len(loan.entries)

    async def test_one_that_is_larger_than_the_room_has_it_for_itself(self, rows: Rows) -> None:
        histories = Histories(rows, ALICE, KB)
        lengths = [self._length(histories, key) for key in (A, B, C)]
        assert await asyncio.wait_for(asyncio.gather(*lengths), 5) == [2, 2, 2]

    async def test_what_nobody_works_with_is_let_go_and_read_again(self, rows: Rows) -> None:
        histories = Histories(rows, ALICE, 250 * KB)
        for key in (A, B, C):
            await self._length(histories, key)
        assert histories.lanes() == [B, C]
        await self._length(histories, B)
        await self._length(histories, A)
        assert rows.reads == {"a": 2, "b": 1, "c": 1}

    async def test_what_was_used_last_is_kept(self, rows: Rows) -> None:
        histories = Histories(rows, ALICE, 250 * KB)
        for key in (A, B):
            await self._length(histories, key)
        histories.give_back(histories.at_hand(A, fresh=False))
        await self._length(histories, C)
        assert histories.lanes() == [A, C]

    async def test_one_that_began_here_is_read_when_it_was_let_go(self, rows: Rows) -> None:
        histories = Histories(rows, ALICE, 150 * KB)
        assert histories.at_hand(A, fresh=True).entries == []
        entry = {"role": "user", "content": "a" * 50 * KB}
        histories.append(A, [entry, entry], [json.dumps(entry)] * 2)
        large = histories.at_hand(A, fresh=True)
        assert len(large.entries) == 2
        waiting = asyncio.create_task(self._length(histories, B))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done()  # it is large: it counts
        histories.give_back(large)
        assert await waiting == 2
        assert histories.lanes() == [B]
        histories.append(A, [entry], [json.dumps(entry)])
        assert await self._length(histories, A) == 2  # what the store has

    async def test_many_small_ones_are_let_go_as_well(self, rows: Rows) -> None:
        histories = Histories(rows, ALICE, 10 * KB)
        entry = {"role": "user", "content": "s" * KB}
        for number in range(30):
            key = LaneKey(f"t{number}", "small")
            assert histories.at_hand(key, fresh=True).entries == []
            histories.append(key, [entry], [json.dumps(entry)])
        assert 5 < len(histories.lanes()) < 10
        assert histories.at_hand(LaneKey("t0", "small"), fresh=True) is None
        assert await self._length(histories, LaneKey("t0", "small")) == 2

    async def test_a_cancelled_reader_leaves_its_room(self, rows: Rows) -> None:
        histories = Histories(rows, ALICE, 150 * KB)
        async with lent(histories, A):
            waiting = asyncio.create_task(self._length(histories, B))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        assert await asyncio.wait_for(self._length(histories, C), 5) == 2


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


async def test_tasks_with_large_histories_are_worked_on_one_after_the_other() -> None:
    at_work: list[int] = [0]
    most: list[int] = []

    async def agent(messages, choice):
        at_work[0] += 1
        most.append(at_work[0] if len(str(messages)) > 100 * KB else 0)
        for _ in range(5):
            await asyncio.sleep(0)
        at_work[0] -= 1
        return "done", []

    tasks = [f"t{number}" for number in range(4)]
    async with limited(agent, 150 * KB) as runtime:
        for _ in range(2):
            results = [said(runtime, "x" * 60 * KB, task) for task in tasks]
            assert {result.status for result in await asyncio.gather(*results)} == {
                TaskState.COMPLETED
            }
        most.clear()
        results = [said(runtime, "and?", task) for task in tasks]
        assert {result.status for result in await asyncio.gather(*results)} == {TaskState.COMPLETED}
        assert most == [1, 1, 1, 1]
