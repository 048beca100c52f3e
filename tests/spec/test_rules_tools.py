"""Rules of the tools, on a running swarm: see the table in spec/SPEC.md."""

from mail.core.actions import ActionCore
from mail.core.runtime import RunRequest
from mail.db.memory import MemoryStore
from mail.testing import agent_from
from tests.spec.kit import (
    IGNORE,
    WAIT,
    Part,
    done,
    kinds_of,
    messages_of,
    request,
    response,
    swarm,
)
from tests.support.swarm import runtime_of, supervisor, user_message, worker

NEWS = ("send_broadcast", {"subject": "News", "body": "hear about boats"})


async def test_a_target_that_is_not_allowed_is_refused() -> None:
    work = Part([request("other", "psst")], [response("supervisor")])
    other = Part()
    agents = {
        "supervisor": supervisor(agent_from(Part([request("worker")], [done()]))),
        "worker": worker(agent_from(work)),
        "other": worker(agent_from(other)),
    }
    runtime = runtime_of(agents)
    await runtime.submit_and_wait(user_message())
    assert work.results[0].startswith("ERROR") and "you may not write to 'other'" in work.results[0]
    assert other.shown == []
    await runtime.shutdown()


async def test_excluded_tools_are_refused() -> None:
    for options in ({"exclude_tools": ["send_request"]}, {}):
        lead = Part([request("worker", "psst")], [done()])
        runtime = swarm(lead, **options)
        if not options:
            runtime.agents["supervisor"].exclude_tools = ["send_request"]
        await runtime.submit_and_wait(user_message())
        assert "the tool 'send_request' is not available to you" in lead.results[0]
        assert "psst" not in [m["message"]["body"] for m in await messages_of(runtime)]
        await runtime.shutdown()


def noting(ran: list[dict]) -> ActionCore:
    async def note(args: dict) -> str:
        ran.append(args)
        return "noted"

    number = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    return ActionCore(function=note, name="note", parameters=number)


async def test_an_action_of_another_agent_is_refused() -> None:
    ran: list[dict] = []
    lead = Part([("note", {"n": 1})], [done()])
    runtime = swarm(lead, actions={"note": noting(ran)})
    await runtime.submit_and_wait(user_message())
    assert lead.results[0].startswith("ERROR") and ran == []
    await runtime.shutdown()


async def test_an_action_never_sees_arguments_that_do_not_fit() -> None:
    ran: list[dict] = []
    work = Part([("note", {"n": "one"}), ("note", {})], [("note", {"n": 1})], [WAIT])
    runtime = swarm(Part([request("worker")]), work, actions={"note": noting(ran)})
    await runtime.submit_and_wait(user_message())
    assert ran == [{"n": 1}]
    assert [text.split(":")[0] for text in work.results[:3]] == ["ERROR", "ERROR", "SUCCESS"]
    await runtime.shutdown()


async def test_an_ignored_broadcast_leaves_nothing_behind() -> None:
    store = MemoryStore()
    runtime = swarm(Part([NEWS]), Part([IGNORE]), store=store)
    await runtime.submit_and_wait(user_message())
    assert await store.search_memories(runtime._context.owner, ()) == []
    senders = [m["message"]["sender"]["address"] for m in await messages_of(runtime)]
    assert "worker" not in senders
    assert "broadcast_ignored" in await kinds_of(runtime)
    await runtime.shutdown()


async def test_notes_and_reasons_stay_inside() -> None:
    kept = ("acknowledge_broadcast", {"note": "my secret"})
    dropped = ("ignore_broadcast", {"reason": "my secret"})
    runtime = swarm(Part([NEWS], [NEWS]), Part([kept], [dropped]))
    await runtime.submit_and_wait(user_message())
    await runtime.submit_and_wait(user_message())
    task = await runtime.read_task("task-1")
    assert [event.kind for event in task.events].count("tool_call") >= 4
    assert "my secret" not in str(task.to_record())
    await runtime.shutdown()


async def test_memories_are_the_agents_own() -> None:
    search = ("search_memory", {"query": "boats"})
    keep = ("acknowledge_broadcast", {})
    lead = Part([NEWS], [search, request("worker", "what of boats?")], [WAIT], [done()])
    work = Part([keep], [search], [response("supervisor")])
    runtime = swarm(lead, work)
    await runtime.submit_and_wait(user_message())  # ends forced: nobody answers a broadcast
    await runtime.submit_and_wait(user_message("and now?"))
    assert any("1 memories found" in result for result in work.results)
    assert any("0 memories found" in result for result in lead.results)
    await runtime.shutdown()


async def test_waiting_for_nothing_is_refused_once() -> None:
    patient = ("await_message", {"reason": "the tide"})
    lead = Part([patient], [patient])
    runtime = swarm(lead)
    await runtime.submit_and_wait(user_message())
    assert [result.split(":")[0] for result in lead.results] == ["ERROR", "SUCCESS"]
    assert "the task's message queue is empty" in lead.results[0]
    task = await runtime.read_task("task-1")
    [waiting] = [event for event in task.events if event.kind == "await_message"]
    assert waiting.extra["reason"] == "the tide"
    await runtime.shutdown()


async def test_help_comes_in_the_next_message() -> None:
    lead = Part([("help", {"get_identity": True, "get_tool_help": ["send_request"]})], [done()])
    runtime = swarm(lead)
    await runtime.submit_and_wait(user_message())
    text = lead.shown[1][-1]["content"]
    assert '<from type="system">' in text and "<subject>::help::</subject>" in text
    for part in ("SUMMARY", "YOUR IDENTITY", "**Name**: supervisor", "Tool `send_request`"):
        assert part in text
    assert "FULL MAIL PROTOCOL" not in text
    task = await runtime.read_task("task-1")
    [help_message] = [
        event.extra["full_message"]
        for event in task.events
        if event.kind == "new_message"
        and event.extra["full_message"]["message"]["subject"] == "::help::"
    ]
    assert help_message["msg_type"] == "broadcast"
    assert [one["address"] for one in help_message["message"]["recipients"]] == ["supervisor"]
    await runtime.shutdown()


async def test_an_agent_goes_on_once_when_all_of_its_calls_have_results() -> None:
    asked = [request("worker", "one"), request("worker", "two")]
    lead = Part(asked, [done("settled")])
    runtime = swarm(lead, breakpoint_tools=["send_request"])

    async def answer(call_id: str) -> str:
        results = {"call_id": call_id, "content": "yes"}
        message = RunRequest(
            message=user_message(),
            resume_from="breakpoint_tool_call",
            breakpoint_tool_call_result=results,
        )
        return str((await (await runtime.open_run(message)).result()).status)

    run = await runtime.open_run(RunRequest(message=user_message()))
    first, second = [call["call_id"] for call in (await run.result()).breakpoints]
    assert await answer(second) == "paused" and len(lead.shown) == 1
    assert await answer(first) == "completed" and len(lead.shown) == 2
    task = await runtime.read_task("task-1")
    assert task is not None and task.task_message_queue == []
    await runtime.shutdown()
