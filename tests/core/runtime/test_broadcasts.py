"""Broadcasts, and what agents remember of them."""

import logging

from mail.core.runtime import RunRequest
from mail.testing import agent_from
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
