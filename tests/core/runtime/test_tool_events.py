"""``tool_call`` events: for every call, in order, before anything is done about it."""

import copy

import pytest

from mail.api import MAILAction, MAILAgentTemplate, MAILSwarmTemplate
from mail.core.actions import ActionCore
from mail.core.runtime import RunRequest, RuntimeSettings
from mail.core.tasks import TaskState
from mail.core.tools.call import AgentToolCall
from mail.core.tools.catalogue import BUILTIN_TOOLS
from mail.errors import ConfigError
from mail.testing import replies, tool_calls
from tests.core.runtime.metered import DONE, metered, tokens
from tests.support.swarm import runtime_of, supervisor, user_message, worker

SENDING = {"target": "worker", "subject": "s", "body": "b"}


def text_output(text: str, calls: list[AgentToolCall]) -> AgentToolCall:
    """Return the call that stands for the text at the end of a reply."""
    return calls[0].model_copy(
        update={"tool_name": "text_output", "tool_args": {"content": text}, "tool_call_id": "text"}
    )


def one_after_the_other(*turns):
    """Return an agent that gives these calls, one list per turn."""
    left = iter(turns)

    async def agent(messages, choice):
        return None, next(left)

    return agent


async def run(agent, store=None, **options):
    core = supervisor(agent)
    core.actions = {name: options.pop(name) for name in ("note", "review") if name in options}
    runtime = runtime_of({"supervisor": core, "worker": worker(replies())}, store=store, **options)
    handle = await runtime.open_run(RunRequest(message=user_message()))
    result = await handle.result(5)
    task = await runtime.read_task("task-1")
    assert task is not None
    return runtime, result, task.events


def of_kind(events, kind):
    return [event.extra for event in events if event.kind == kind]


EVERY_TOOL = [
    ("send_request", SENDING),
    ("send_response", SENDING),
    ("send_interrupt", SENDING),
    ("send_broadcast", {"subject": "s", "body": "b"}),
    ("acknowledge_broadcast", {"note": "for me only"}),
    ("ignore_broadcast", {"reason": "for me only"}),
    ("help", {}),
    ("search_memory", {"query": "x"}),
    ("no_such_tool", {"a": 1}),
    ("note", {"text": "x"}),
    ("web_search_call", {"query": "weather"}),
    ("await_message", {}),
    ("review", {"draft": "d"}),
]


async def test_every_call_has_its_event_in_order_before_anything_is_done(store) -> None:
    async def note(args):
        return "noted"

    runtime, result, events = await run(
        metered(one_after_the_other(tool_calls(*EVERY_TOOL)), tokens(10)),
        store,
        note=ActionCore(function=note, name="note"),
        review=ActionCore(function=None, name="review"),
        breakpoint_tools=["review"],
    )
    assert result.status is TaskState.PAUSED
    kinds = [event.kind for event in events]
    count = len(EVERY_TOOL)
    assert kinds[1 : count + 2] == ["model_usage"] + ["tool_call"] * count
    assert kinds.count("tool_call") == count
    calls = of_kind(events, "tool_call")
    assert [call["tool_name"] for call in calls] == [name for name, _ in EVERY_TOOL]
    assert [call["tool_call_id"] for call in calls] == [f"call_{n}" for n in range(count)]
    assert {call["caller"] for call in calls} == {"supervisor"}
    for (name, arguments), call in zip(EVERY_TOOL, calls, strict=True):
        private = name in ("acknowledge_broadcast", "ignore_broadcast")
        assert call["tool_args"] == ({} if private else arguments)
    for later in ("breakpoint_tool_call", "builtin_tool_call", "action_call", "await_message"):
        assert kinds.index(later) > count
    await runtime.shutdown()


async def test_reasoning_preamble_and_references_stand_beside_the_arguments(store) -> None:
    calls = tool_calls(*[("help", {"get_identity": True})] * 5, DONE)
    given = [
        (None, "Let me see."),
        (["first", " \n", "second"], None),
        ([" "], "And more."),
        (["third"], "Now."),
        ([], ""),
        (None, None),
    ]
    calls = [
        call.model_copy(update={"reasoning": reasoning, "preamble": preamble})
        for call, (reasoning, preamble) in zip(calls, given, strict=True)
    ]
    before = copy.deepcopy([call.tool_args for call in calls])
    runtime, _, events = await run(one_after_the_other(calls), store)
    shown = [
        {key: extra[key] for key in ("reasoning", "reasoning_ref", "preamble") if key in extra}
        for extra in of_kind(events, "tool_call")
    ]
    assert shown == [
        {"preamble": "Let me see."},
        {"reasoning": "first\n\nsecond"},
        {"reasoning_ref": "call_1", "preamble": "And more."},
        {"reasoning": "third", "preamble": "Now."},
        {"reasoning_ref": "call_3"},
        {"reasoning_ref": "call_3"},
    ]
    assert [extra["tool_args"] for extra in of_kind(events, "tool_call")] == before
    await runtime.shutdown()


@pytest.mark.parametrize(
    ("tool", "arguments", "glimpse"),
    [
        ("web_search_call", {"query": "tides in Brest"}, "web_search with query: tides in Brest"),
        ("web_search_call", {"query": "x" * 999}, f"web_search with query: {'x' * 200}"),
        ("code_interpreter_call", {"code": "\nprint(1)\nprint(2)"}, "with code: print(1)"),
        ("code_interpreter_call", {"code": None, "outputs": []}, "used code_interpreter"),
        ("file_search_call", {"queries": ["tides", "moon"]}, "with query: tides, moon"),
        ("image_generation_call", {}, "used image_generation"),
        ("mcp_call", {"name": "roll", "server_label": "dice"}, "used mcp"),
        ("server_tool_use", {"name": "web_fetch", "input": {}}, "used server_tool_use"),
    ],
)
async def test_text_after_a_tool_of_the_provider_is_the_answer(
    store, tool, arguments, glimpse
) -> None:
    calls = tool_calls((tool, arguments))
    calls.append(text_output("High water is at six.", calls))
    runtime, result, events = await run(one_after_the_other(calls), store)
    assert result.status is TaskState.COMPLETED
    assert result.message["message"]["body"] == "High water is at six."
    kinds = [event.kind for event in events]
    assert kinds[1:4] == ["tool_call", "tool_call", "builtin_tool_call"]
    [used] = [event for event in events if event.kind == "builtin_tool_call"]
    assert used.extra == {
        "caller": "supervisor",
        "tool_type": tool,
        "tool_args": arguments,
        "tool_call_id": "call_0",
    }
    assert used.description.endswith(glimpse)
    rows = await runtime._context.store.history(runtime._context.owner, "task-1", "supervisor")
    assert "tool_call_id" not in "".join(rows)  # what the provider ran needs no result
    await runtime.shutdown()


async def test_a_tool_of_the_provider_may_stand_beside_others(store) -> None:
    calls = tool_calls(("web_search_call", {"query": "x"}), DONE)
    runtime, result, events = await run(one_after_the_other(calls), store)
    assert result.message["message"]["body"] == "done"
    assert [event.kind for event in events][1:4] == [
        "tool_call",
        "tool_call",
        "builtin_tool_call",
    ]
    await runtime.shutdown()


async def test_a_tool_of_the_provider_without_a_word_is_asked_for_one(store) -> None:
    silent = tool_calls(("web_search_call", {"query": "x"}))
    runtime, result, _ = await run(one_after_the_other(silent, tool_calls(DONE)), store)
    assert result.message["message"]["body"] == "done"
    await runtime.shutdown()


@pytest.mark.parametrize("name", [*sorted(BUILTIN_TOOLS), "text_output"])
def test_what_a_provider_does_is_no_name_for_an_action_or_a_breakpoint(name) -> None:
    async def act(args):
        return "x"

    with pytest.raises(ConfigError, match=f"'{name}' is reserved"):
        MAILAction(name, "acts", {}, act)
    flags = {"enable_entrypoint": True, "can_complete_tasks": True}
    lead = MAILAgentTemplate("lead", "m:f", [], [], {}, **flags)
    with pytest.raises(ConfigError, match=f"breakpoint tool '{name}' not found"):
        MAILSwarmTemplate("swarm", agents=[lead], entrypoint="lead", breakpoint_tools=[name])


async def test_a_result_over_the_limit_is_cut_and_says_so(store) -> None:
    async def act(args):
        return "ä" * 600

    agent = one_after_the_other(tool_calls(("note", {})), tool_calls(DONE))
    _, result, events = await run(
        agent,
        store,
        note=ActionCore(function=act, name="note"),
        settings=RuntimeSettings(max_result_bytes=1001),
    )
    assert result.status is TaskState.COMPLETED
    [shown] = of_kind(events, "action_complete")
    cut, note = shown["result"].split("\n")
    assert cut == "ä" * 500
    assert note == "[cut here: the result has 1,200 bytes, and max_result_bytes is 1,001]"
