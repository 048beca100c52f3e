"""Two servers on one database: what comes to one for a task that the other has is done there."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from mail.core.actions import ActionCore
from mail.core.runtime import MAILRuntime, RunRequest
from mail.core.runtime.settings import RuntimeSettings
from mail.core.tasks import TaskState
from mail.db.commit import Commit, TurnCommit
from mail.db.postgres.driver import PostgresStore
from mail.errors import StoreError, UnknownTask
from mail.server.instances import Recovery, recover_owners
from mail.server.nodes import make_relayed_calls
from mail.testing import tool_calls
from tests.support.postgres import Cluster, query
from tests.support.swarm import SWARM, last_body, runtime_of, supervisor, user_message


class Node:
    """A process: a store, a runtime of alice's, and the calls that it makes for others."""

    def __init__(self, url: str, name: str, **settings: Any) -> None:
        self.name, self.store = name, PostgresStore(url)
        self.asked: list[str] = []
        self.may_answer = asyncio.Event()
        agents = {"supervisor": supervisor(self.answer, ())}
        self.runtime = runtime_of(agents, store=self.store, **settings)
        self._making: asyncio.Task[None] | None = None

    async def answer(self, messages: list[dict[str, Any]], choice: object) -> Any:
        self.asked.append(last_body(messages))
        await self.may_answer.wait()
        body = last_body(messages).partition("<body>")[2].partition("</body>")[0]
        return None, tool_calls(("task_complete", {"finish_message": f"{body}, {self.name}"}))

    async def is_asked(self, times: int = 1) -> None:
        async with asyncio.timeout(10):
            while len(self.asked) < times:
                await asyncio.sleep(0.005)

    async def begin(self, body: str = "first") -> Any:
        return await self.runtime.open_run(RunRequest(message=user_message(body)))

    async def __aenter__(self) -> "Node":
        await self.runtime.start()
        self._making = asyncio.create_task(make_relayed_calls(self.store, self))  # type: ignore[arg-type]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.dies()
        await self.runtime.shutdown(0)
        await self.store.close()

    async def dies(self) -> None:
        """Make no calls any more, and give no sign of life."""
        assert self._making is not None
        self._making.cancel()
        await asyncio.gather(self._making, return_exceptions=True)

    # What `make_relayed_calls` needs of a pool.

    served = SimpleNamespace(template=SimpleNamespace(name=SWARM), needs_token=False)

    @asynccontextmanager
    async def lease(self, caller: object) -> AsyncIterator[Any]:
        yield self

    # What `recover_owners` needs of one.

    lend_owner = lease

    async def sweep(self) -> int:
        return 0

    def holds(self, owner: object, task_id: str) -> bool:
        return self.runtime.holds(task_id)


@pytest.fixture
async def nodes(cluster: Cluster) -> AsyncIterator[tuple[Node, Node]]:
    url = cluster.schema()
    async with Node(url, "A") as first, Node(url, "B") as second:
        yield first, second


async def test_a_message_goes_to_the_task_and_its_sender_hears_the_answer(
    nodes: tuple[Node, Node],
) -> None:
    first, second = nodes
    begun = await first.begin()
    await first.is_asked()
    run = await second.begin("second")
    first.may_answer.set()
    assert (await begun.end(10)).body == "first, A"
    assert (await run.end(10)).body == "second, A"
    assert second.asked == []
    third = await second.begin("third")  # it has ended, and is whose next message comes
    second.may_answer.set()
    assert (await third.end(10)).body == "third, B"


async def test_a_stream_at_the_other_server_has_every_event_once(nodes: tuple[Node, Node]) -> None:
    first, second = nodes
    await first.begin()
    await first.is_asked()
    message = user_message("second")
    run = await second.runtime.open_run(RunRequest(message=message, streamed=True))
    first.may_answer.set()
    events = [event async for event in run.events()]
    assert events[-1].extra["response"] == "second, A"
    seqs = [event.seq for event in events if event.seq]
    assert seqs == list(range(run.began, run.began + len(seqs)))
    assert events[0].extra["full_message"]["message"]["body"] == "second"


async def test_a_cancellation_stops_the_model_call_at_the_other_server(
    nodes: tuple[Node, Node],
) -> None:
    first, second = nodes
    run = await first.begin()
    await first.is_asked()
    task = await second.runtime.cancel_task("task-1")
    assert task.status is TaskState.CANCELLED
    assert (await run.end(10)).status is TaskState.CANCELLED
    assert not first.runtime.open_tasks


async def test_what_is_refused_there_is_refused_here(nodes: tuple[Node, Node]) -> None:
    first, second = nodes
    await first.begin()
    await first.is_asked()
    with pytest.raises(UnknownTask):
        await second.runtime.cancel_task("task-2")
    await second.runtime.delete_task("task-1", cancel=True)
    assert await first.runtime.read_task("task-1") is None
    assert query(second.store.driver._dsn, "SELECT * FROM relayed") == []


async def test_a_call_that_nobody_makes_any_more_is_made_here(nodes: tuple[Node, Node]) -> None:
    first, second = nodes
    await first.begin()
    await first.is_asked()
    await first.dies()
    beginning = asyncio.create_task(second.begin("second"))
    url = second.store.driver._dsn
    async with asyncio.timeout(10):
        while not query(url, "SELECT 1 FROM relayed"):
            await asyncio.sleep(0.01)
    assert first.store.driver._session is not None
    await asyncio.wrap_future(
        asyncio.run_coroutine_threadsafe(
            first.store.driver._session.membership.leave(), first.store.driver._session.loop
        )
    )
    second.may_answer.set()
    assert (await (await beginning).end(10)).body == "second, B"
    bodies = [body for body in second.asked if "first" in body]
    assert bodies, "the message that the other server had begun on is not lost"


async def test_the_library_gets_the_final_message_wherever_the_task_is(
    nodes: tuple[Node, Node],
) -> None:
    first, second = nodes
    await first.begin()
    await first.is_asked()
    asking = asyncio.create_task(second.runtime.submit_and_wait(user_message("second"), timeout=10))
    await first_has_two(first)
    first.may_answer.set()
    message = await asking
    assert message["message"]["body"] == "second, A"
    assert message["message"]["sender"]["address"] == "supervisor"


async def first_has_two(node: Node) -> None:
    """Wait until a second message waits in the mailbox of a node."""
    async with asyncio.timeout(10):
        while len(node.runtime._context.mailbox) < 1:
            await asyncio.sleep(0.005)


async def test_a_server_that_stops_hands_over_what_it_works_on_and_first_what_waits(
    cluster: Cluster,
) -> None:
    url = cluster.schema()
    async with (
        Node(url, "A", settings=RuntimeSettings(max_concurrent_turns=1)) as first,
        Node(url, "B") as second,
    ):
        await first.begin()
        await first.is_asked()
        await first.runtime.submit(user_message("second", task_id="task-2"))

        async def orphans() -> set[str]:
            return {task_id for _, task_id in await second.store.orphans(SWARM)}

        stopping = asyncio.create_task(first.runtime.shutdown(30))
        async with asyncio.timeout(20):
            while await orphans() != {"task-2"}:
                await asyncio.sleep(0.01)
        first.may_answer.set()  # what is under way comes to its end
        await stopping
        assert await orphans() == {"task-2"}
        assert (await first.runtime.read_task("task-1")).status is TaskState.COMPLETED
        second.may_answer.set()
        await second.runtime.take_up([task_id for _, task_id in await second.store.orphans(SWARM)])
        await completed(second, "task-2")
        assert second.asked, "the other server has gone on"
        assert len(first.asked) == 1


async def test_a_stopping_server_ends_the_turn_of_a_task_that_it_took_from_the_queue(
    nodes: tuple[Node, Node],
) -> None:
    first, second = nodes
    first.runtime._context.settings = RuntimeSettings(queue_after=0)
    second.runtime._context.settings = RuntimeSettings(queue_after=3)
    await first.runtime.submit(user_message("job"))
    assert await second.runtime.take_queued() == 1
    await second.is_asked()
    stopping = asyncio.create_task(second.runtime.shutdown(30))
    await asyncio.sleep(0.3)  # it hands over what is quiet meanwhile
    assert await first.store.orphans(SWARM) == []
    second.may_answer.set()
    await stopping
    assert (await second.runtime.read_task("task-1")).status is TaskState.COMPLETED
    assert not first.asked


async def test_a_turn_that_a_stopping_server_breaks_off_is_made_again_elsewhere(
    nodes: tuple[Node, Node],
) -> None:
    first, second = nodes
    await first.begin()
    await first.is_asked()
    await first.runtime.shutdown(0)
    left = [task_id for _, task_id in await second.store.orphans(SWARM)]
    assert left == ["task-1"]
    second.may_answer.set()
    await second.runtime.take_up(left)
    await second.is_asked()


@pytest.fixture
async def recovering(nodes: tuple[Node, Node]) -> AsyncIterator[None]:
    second = nodes[1]
    task = asyncio.create_task(recover_owners(second.store, second))  # type: ignore[arg-type]
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def completed(node: Node, task_id: str = "task-1") -> None:
    """Wait until a task has its answer."""
    async with asyncio.timeout(20):
        while (await node.runtime.read_task(task_id)).status is not TaskState.COMPLETED:
            await asyncio.sleep(0.01)


async def test_what_a_store_failed_to_load_is_taken_up_at_a_later_look(
    nodes: tuple[Node, Node], recovering: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = nodes
    failures = 0

    async def calls(*_: object) -> Any:
        nonlocal failures
        failures += 1
        if failures > 1:
            monkeypatch.undo()
        raise StoreError("the store fails between the claim and the load")

    monkeypatch.setattr(type(second.store), "calls", calls)
    await first.begin()
    await first.is_asked()
    await first.runtime.shutdown(0)
    second.may_answer.set()
    await completed(second)
    assert failures == 2


async def broken(*_: object) -> None:
    raise StoreError("the store fails here, too")


@pytest.mark.parametrize("method", ["waiting_mail", "calls"])
@pytest.mark.parametrize("handed_back", [True, False])
async def test_queued_tasks_that_a_store_failed_to_load_are_handed_back(
    nodes: tuple[Node, Node],
    recovering: None,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    handed_back: bool,
) -> None:
    first, second = nodes
    second.runtime._context.settings = RuntimeSettings(queue_after=3)
    first.runtime._context.settings = RuntimeSettings(queue_after=0)
    failures = 0
    works = getattr(type(second.store), method)
    if not handed_back:
        monkeypatch.setattr(type(second.store), "_hand_over", broken)

    async def failing(store: PostgresStore, *values: Any) -> Any:
        nonlocal failures
        if store is second.store:
            failures += 1
            if failures > 1:
                monkeypatch.undo()
            raise StoreError("the store fails between the claim and the load")
        return await works(store, *values)

    monkeypatch.setattr(type(second.store), method, failing)
    for number in range(1, 4):
        await first.runtime.submit(user_message("job", task_id=f"task-{number}"))
    second.may_answer.set()
    async with asyncio.timeout(20):
        while not second.asked:
            await asyncio.sleep(0.01)
    first.may_answer.set()
    for number in range(1, 4):
        await completed(second, f"task-{number}")
    assert failures == 2


async def test_an_owner_whose_instance_cannot_be_made_is_asked_for_once(
    nodes: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = nodes
    asked: list[object] = []

    def lend_owner(owner: object) -> Any:
        asked.append(owner)
        raise RuntimeError("there is no such factory")

    monkeypatch.setattr(second, "lend_owner", lend_owner)
    await first.begin()
    await first.is_asked()
    await first.runtime.shutdown(0)
    recovery = Recovery(second.store, second, SWARM)  # type: ignore[arg-type]
    for _ in range(3):
        await recovery.take_up(own=True)
    assert len(asked) == caplog.text.count("could not be resumed") == 1


def seems_gone(url: str, store: PostgresStore) -> None:
    """Let a process look as after 10 s without a word to the database, to itself and to others."""
    store.driver._session.membership._seen -= 10  # type: ignore[union-attr]
    older = "UPDATE nodes SET beat_at = now() - interval '10 seconds' WHERE id = $1"
    query(url, older, store.driver.node)


async def test_a_server_that_was_frozen_asks_no_model_for_what_others_work_on(
    cluster: Cluster,
) -> None:
    url = cluster.schema()
    one_at_a_time = RuntimeSettings(max_concurrent_turns=1)
    async with Node(url, "A", settings=one_at_a_time) as first, Node(url, "B") as second:
        begun = await first.begin()
        await first.is_asked()
        await first.runtime.submit(user_message("second", task_id="task-2"))
        seems_gone(url, first.store)
        left = [each for _, each in await second.store.orphans(SWARM) if each == "task-2"]
        second.may_answer.set()
        await second.runtime.take_up(left)
        await second.is_asked()
        first.may_answer.set()
        assert (await begun.end(10)).body == "first, A"
        async with asyncio.timeout(10):
            while first.runtime.open_tasks:
                await asyncio.sleep(0.01)
    assert len(first.asked) == len(second.asked) == 1


async def test_a_server_that_was_frozen_runs_no_action_that_others_may_have_run(
    cluster: Cluster,
) -> None:
    url, ran = cluster.schema(), list[str]()

    def process(name: str, store: PostgresStore) -> MAILRuntime:
        async def note(args: object) -> str:
            ran.append(name)
            return "noted"

        async def answer(messages: list[dict[str, Any]], choice: object) -> Any:
            results = [each["content"] for each in messages if each.get("role") == "tool"]
            told = {"finish_message": results[-1]} if results else {}
            return None, tool_calls(("task_complete", told) if results else ("note", {}))

        core = supervisor(answer, ())
        core.actions = {"note": ActionCore(function=note, name="note")}
        return runtime_of({"supervisor": core}, store=store)

    first_store, second_store = PostgresStore(url), PostgresStore(url)
    first, second = process("A", first_store), process("B", second_store)
    commit = first_store.commit

    async def committed(what: Commit) -> Any:
        done = await commit(what)
        if isinstance(what, TurnCommit) and any(row.state == "started" for row in what.journal):
            seems_gone(url, first_store)
            await second.start()  # it takes up what the frozen one seems to have left
            await second.await_queue_empty()
        return done

    first_store.commit = committed  # type: ignore[method-assign]
    try:
        begun = await first.open_run(RunRequest(message=user_message()))
        assert "unknown" in (await begun.end(20)).body
        assert ran == []
    finally:
        await first.shutdown(0)
        await second.shutdown(0)
        await first_store.close()
        await second_store.close()


async def test_a_server_that_was_frozen_before_a_turn_lets_go_of_it(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    url = cluster.schema()
    async with Node(url, "A") as first, Node(url, "B") as second, Node(url, "C") as third:
        count_attempt = second.store.count_attempt

        async def counted(*args: Any) -> int:  # the mail is done elsewhere meanwhile
            seems_gone(url, second.store)
            third.may_answer.set()
            await third.runtime.take_up(["task-1"])
            await completed(third)
            return await count_attempt(*args)

        second.store.count_attempt = counted  # type: ignore[method-assign]
        await first.begin()
        await first.is_asked()
        seems_gone(url, first.store)
        await second.runtime.take_up(["task-1"])
        async with asyncio.timeout(10):
            while second.runtime.open_tasks or not third.asked:
                await asyncio.sleep(0.01)
    assert not second.asked
    assert "another server has taken up task 'task-1'" in caplog.text
    assert not [each for each in caplog.records if each.levelname == "ERROR"]
