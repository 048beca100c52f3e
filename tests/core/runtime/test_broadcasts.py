"""Broadcasts, and what agents remember of them."""

import asyncio
import logging

from mail.core.runtime import RunRequest
from mail.testing import agent_from
from tests.support.federation import until
from tests.support.swarm import last_body, runtime_of, supervisor, user_message, worker


def swarm(lead, one, two, **options):
    return runtime_of(
        {
            "supervisor": supervisor(agent_from(lead), ("one", "two")),
            "one": worker(agent_from(one)),
            "two": worker(agent_from(two)),
        },
        **options,
    )


def broadcast(targets=None):
    return "send_broadcast", {"subject": "News", "body": "the roadmap moved", "targets": targets}


def wait(messages, choice):
    return [("await_message", {})]


async def test_a_broadcast_reaches_the_named_agents_or_all() -> None:
    heard: list[tuple[str, str]] = []

    def listener(name):
        def agent(messages, choice):
            heard.append((name, last_body(messages).split("<to>")[1].split("</to>")[0]))
            return [("ignore_broadcast", {"reason": "secret reason"})]

        return agent

    turns = iter([[broadcast()], [broadcast(["two"])]])

    def lead(messages, choice):
        if isinstance(choice, dict):
            return [("task_complete", {"finish_message": "done"})]
        return next(turns)

    runtime = swarm(lead, listener("one"), listener("two"))
    await runtime.submit_and_wait(user_message())
    await runtime.submit_and_wait(user_message("again"))
    assert sorted(name for name, _ in heard) == ["one", "two", "two"]
    assert heard[0][1] == '\n<address type="agent">all</address>\n'
    events = runtime.get_events_by_task_id("task-1")
    assert "secret reason" not in str([event.data for event in events])
    assert [event.kind for event in events].count("broadcast_ignored") == 3
    await runtime.shutdown()


async def test_acknowledging_stores_the_broadcast_and_tells_nobody(store, caplog) -> None:
    found: list[str] = []

    def lead(messages, choice):
        if isinstance(choice, dict):
            return [("task_complete", {"finish_message": "done"})]
        return [broadcast()]

    def one(messages, choice):
        if "news" in last_body(messages).lower() and "Memory searched" not in last_body(messages):
            return [("acknowledge_broadcast", {"note": "private: for later"})]
        return wait(messages, choice)

    caplog.set_level(logging.DEBUG, "mail")
    runtime = swarm(lead, one, wait, store=store)
    await runtime.submit_and_wait(user_message())
    owner = runtime._context.owner
    [memory] = await store.search_memories(owner, ("one_memory",), "ROADMAP")
    assert "<acknowledged broadcast/>" in memory.value and "private: for later" in memory.value
    assert "<incoming_message>" in memory.value
    events = runtime.get_events_by_task_id("task-1")
    assert "private" not in str([event.data for event in events])
    senders = [
        event.extra["full_message"]["message"]["sender"]["address"]
        for event in events
        if event.kind == "new_message"
    ]
    assert "one" not in senders
    await runtime.shutdown()

    def searching(messages, choice):
        results = [m["content"] for m in messages if m.get("role") == "tool"]
        if results:
            found.append(results[-1])
            return [("task_complete", {"finish_message": "found"})]
        return [("search_memory", {"query": "roadmap"})]

    core = supervisor(agent_from(searching), ())
    again = runtime_of({"one": core, "supervisor": core}, store=store)
    await again.submit_and_wait(user_message(task_id="task-2", to="one"))
    assert "the roadmap moved" in found[0]
    await again.shutdown()


async def test_acknowledging_anything_else_is_a_no_op(store) -> None:
    turns = iter([[("acknowledge_broadcast", {}), ("task_complete", {"finish_message": "ok"})]])
    runtime = runtime_of(
        {"supervisor": supervisor(agent_from(lambda m, c: next(turns)), ())}, store=store
    )
    run = await runtime.open_run(RunRequest(message=user_message()))
    assert (await run.result(5)).message["message"]["body"] == "ok"
    assert await store.search_memories(runtime._context.owner, ()) == []
    await runtime.shutdown()


# --- broadcasts that nobody answers -------------------------------------------------------------

SETTLED = "::broadcast_settled::"


def acknowledges(messages, choice):
    return [("acknowledge_broadcast", {"note": "secret note"})]


def ignores(messages, choice):
    return [("ignore_broadcast", {"reason": "secret reason"})]


def never_asked(messages, choice):
    raise AssertionError("it never saw the broadcast")


async def test_a_broadcast_that_all_acknowledge_or_ignore_settles() -> None:
    runtime = swarm(acknowledges, acknowledges, ignores)
    answer = await runtime.submit_and_wait(user_message("News", to="all", kind="broadcast"))
    message = answer["message"]
    assert (message["sender"]["address_type"], message["subject"]) == ("system", SETTLED)
    assert message["body"].splitlines()[1:] == [
        "- one: acknowledged",
        "- supervisor: acknowledged",
        "- two: ignored",
    ]
    task = await runtime.read_task("task-1")
    assert task.status == "completed" and "secret" not in str([e.data for e in task.events])
    again = await runtime.submit_and_wait(user_message("More", to="two", kind="broadcast"))
    assert again["message"]["body"].splitlines()[1:] == ["- two: ignored"]
    await runtime.shutdown()


async def test_nobody_has_to_finish_what_it_never_saw() -> None:
    runtime = swarm(never_asked, ignores, never_asked)
    answer = await runtime.submit_and_wait(user_message("News", to="one", kind="broadcast"))
    assert answer["message"]["body"].endswith("\n- one: ignored")
    await runtime.shutdown()


async def test_an_agent_that_passes_a_broadcast_on_can_acknowledge_it() -> None:
    def lead(messages, choice):
        return [*acknowledges(messages, choice), broadcast()]

    runtime = swarm(lead, acknowledges, ignores)
    answer = await runtime.submit_and_wait(user_message("News", kind="broadcast"))
    assert answer["message"]["subject"] == SETTLED
    assert answer["message"]["body"].count("\n- ") == 3
    await runtime.shutdown()


async def test_an_agent_can_look_something_up_before_it_ignores_a_broadcast() -> None:
    turns = iter([[("search_memory", {"query": "news"})], ignores([], "required")])
    runtime = swarm(never_asked, lambda messages, choice: next(turns), never_asked)
    answer = await runtime.submit_and_wait(user_message("News", to="one", kind="broadcast"))
    assert answer["message"]["body"].endswith("\n- one: ignored")
    await runtime.shutdown()


async def test_a_broadcast_between_agents_settles_no_question() -> None:
    def lead(messages, choice):
        if isinstance(choice, dict):
            return [("task_complete", {"finish_message": "nobody knows"})]
        return [broadcast()]

    runtime = swarm(lead, acknowledges, ignores)
    answer = await runtime.submit_and_wait(user_message("Who knows?"))
    assert answer["message"]["body"] == "nobody knows"
    await runtime.shutdown()


async def test_a_broadcast_on_which_somebody_acts_is_finished_as_before() -> None:
    def lead(messages, choice):
        if isinstance(choice, dict):
            return [("task_complete", {"finish_message": "looked into it"})]
        return acknowledges(messages, choice)

    def one(messages, choice):
        if "<body>News" in last_body(messages):
            return [
                ("acknowledge_broadcast", {}),
                ("send_request", {"target": "supervisor", "subject": "s", "body": "Look!"}),
            ]
        return wait(messages, choice)

    runtime = swarm(lead, one, ignores)
    answer = await runtime.submit_and_wait(user_message("News", to="one", kind="broadcast"))
    assert answer["message"]["body"] == "looked into it"
    await runtime.shutdown()


async def test_a_broadcast_settles_after_a_restart(store) -> None:
    gate = asyncio.Event()

    async def away(messages, choice):
        await gate.wait()
        raise AssertionError("the first process is gone")

    agents = {
        "supervisor": supervisor(agent_from(ignores), ("one", "two")),
        "one": worker(agent_from(acknowledges)),
    }
    first = runtime_of(agents | {"two": worker(away)}, store=store)
    asked = asyncio.create_task(
        first.submit_and_wait(user_message("News", to="all", kind="broadcast"))
    )

    def stored():  # events are told once their turn is
        kinds = [event.kind for event in first.get_events_by_task_id("task-1")]
        return kinds.count("tool_call") == 2

    await until(stored)
    await first.shutdown(grace=0)
    await asyncio.gather(asked, return_exceptions=True)

    second = swarm(never_asked, never_asked, ignores, store=store)
    await second.start()
    await until(lambda: second.open_tasks == set())
    task = await second.read_task("task-1")

    assert task.status == "completed"
    ends = [event.extra["response"] for event in task.events if event.kind == "task_complete"]
    assert ends[0].splitlines()[1:] == [
        "- one: acknowledged",
        "- supervisor: ignored",
        "- two: ignored",
    ]
    await second.shutdown()
