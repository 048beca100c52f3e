"""Every wire, plain and streamed, through the same cases with the same expectations."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from mail.llm.script import Script, call, otherwise, say, think, when
from tests.providers.swarms import ADAPTIVE, MODELS, Outcome, Path, lead_swarm, run
from tests.support.provider import FakeProvider
from tests.support.provider.steps import Refuse, Search

STREAMED = [False, True]
PATHS = [pytest.param(path, id=path.wire) for path in MODELS]
PATHS.append(pytest.param(ADAPTIVE, id="adaptive"))


@dataclass(frozen=True)
class Expected:
    """A ``tool_call`` event: tool, arguments (None: any), reasoning, preamble, reference."""

    tool: str
    args: dict[str, Any] | None = None
    reasoning: str | None = None
    preamble: str | None = None
    ref: int | None = None
    wires: Sequence[str] = ("completions", "responses", "anthropic")


@dataclass(frozen=True)
class Case:
    """A script, the answer, and the calls that the events must tell of."""

    name: str
    script: Script
    answer: str
    calls: Sequence[Expected]
    said: str = ""
    kinds: Sequence[str] = field(default=())


def finish(message: str) -> Any:
    return call("task_complete", finish_message=message)


FOLLOW_UP = when(body="And now").then(finish("still here"))

CASES = [
    Case(
        "single",
        [
            FOLLOW_UP,
            when(tool_result="look_up").then(finish("it is liam")),
            otherwise(call("look_up", word="mail")),
        ],
        "it is liam",
        [
            Expected("look_up", {"word": "mail"}),
            Expected("task_complete", {"finish_message": "it is liam"}),
        ],
        kinds=["tool_call", "action_call", "action_complete", "tool_call", "task_complete"],
    ),
    Case(
        "parallel",
        [
            FOLLOW_UP,
            when(tool_result="look_up").then(finish("both")),
            otherwise(
                think("Two words."),
                say("Looking."),
                call("look_up", word="a"),
                call("look_up", word="b"),
                call("look_up", word="c"),
            ),
        ],
        "both",
        [
            Expected("look_up", {"word": "a"}, "Two words.", "Looking."),
            Expected("look_up", {"word": "b"}, ref=0),
            Expected("look_up", {"word": "c"}, ref=0),
            Expected("task_complete"),
        ],
        said="Looking.",
    ),
    Case(
        "interleaved",
        [
            FOLLOW_UP,
            when(tool_result="look_up").then(think("Enough."), finish("done")),
            otherwise(
                think("First a."),
                say("I begin."),
                call("look_up", word="a"),
                think("Then b."),
                call("look_up", word="b"),
                call("look_up", word="c"),
            ),
        ],
        "done",
        [
            Expected("look_up", {"word": "a"}, "First a.", "I begin."),
            Expected("look_up", {"word": "b"}, "Then b."),
            Expected("look_up", {"word": "c"}, ref=1),
            Expected("task_complete", reasoning="Enough."),
        ],
        said="I begin.",
    ),
    Case(
        "builtin",
        [
            FOLLOW_UP,
            otherwise(think("Search it."), Search("news"), think("Found."), say("It rains.")),
        ],
        "It rains.",
        [
            Expected("web_search_call", reasoning="Search it.", wires=("responses", "anthropic")),
            Expected("text_output", {"content": "It rains."}, reasoning="Found."),
        ],
        said="It rains.",
    ),
    Case(
        "text",
        [FOLLOW_UP, otherwise(think("Easy."), say("Just this."))],
        "Just this.",
        [Expected("text_output", {"content": "Just this."}, reasoning="Easy.")],
        said="Just this.",
    ),
    Case(
        "refusal",
        [FOLLOW_UP, otherwise(Refuse("I must not say."))],
        "I must not say.",
        [Expected("text_output", {"content": "I must not say."})],
        said="I must not say.",
    ),
]


def check_calls(outcome: Outcome, expected: Sequence[Expected], wire: str) -> None:
    """Compare the ``tool_call`` events with what is expected on a wire."""
    found = outcome.calls()
    wanted = [one for one in expected if wire in one.wires]
    assert [one["tool_name"] for one in found] == [one.tool for one in wanted]
    ids = [one["tool_call_id"] for one in found]
    assert all(ids)
    assert len(set(ids)) == len(ids)
    for event, want in zip(found, wanted, strict=True):
        reasoning = want.reasoning
        if wire == "completions" and reasoning == "Found.":
            reasoning = "Search it.Found."  # nothing parts the two there
        assert event.get("reasoning") == reasoning
        assert event.get("preamble") == want.preamble
        assert event.get("reasoning_ref") == (None if want.ref is None else ids[want.ref])
        assert not {"reasoning", "preamble", "thinking_blocks"} & event["tool_args"].keys()
        if want.args is not None:
            assert event["tool_args"] == want.args


def check_requests(provider: FakeProvider, path: Path) -> None:
    """Every request was accepted by the provider, in the right format, with the same prefix."""
    assert {seen.status for seen in provider.requests} == {200}, [
        seen.body for seen in provider.requests if seen.status != 200
    ]
    assert {seen.wire for seen in provider.requests} == {path.wire}
    assert len({repr(seen.body["tools"]) for seen in provider.requests}) == 1
    assert len({seen.system for seen in provider.requests}) == 1


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("streamed", STREAMED, ids=["plain", "streamed"])
@pytest.mark.parametrize("path", PATHS)
async def test_a_conversation_over_every_wire(
    provider: FakeProvider, path: Path, streamed: bool, case: Case
) -> None:
    provider.script = case.script
    swarm = lead_swarm(path, stream_tokens=streamed)
    try:
        outcome = await run(swarm, "Go.", streamed=streamed, task_id="t")
        assert (outcome.subject, outcome.body) == ("::task_complete::", case.answer)
        check_calls(outcome, case.calls, path.wire)
        if case.kinds:
            assert outcome.kinds(*set(case.kinds)) == case.kinds
        if streamed and case.said:
            assert outcome.streamed("text") == case.said
        again = await run(
            swarm, "And now?", streamed=streamed, task_id="t", resume_from="user_response"
        )
        assert again.body == "still here"
    finally:
        await swarm.shutdown()
    check_requests(provider, path)


@pytest.mark.parametrize("streamed", STREAMED, ids=["plain", "streamed"])
@pytest.mark.parametrize("path", PATHS)
async def test_a_breakpoint_over_every_wire(
    provider: FakeProvider, path: Path, streamed: bool
) -> None:
    provider.script = [
        FOLLOW_UP,
        when(tool_result="ask_user").then(
            lambda view: finish(f"{view.result_of('ask_user')}; {view.result_of('look_up')}")
        ),
        otherwise(
            think("Ask first."),
            call("ask_user", question="Which?"),
            think("And look."),
            call("look_up", word="mail"),
        ),
    ]
    swarm = lead_swarm(path, stream_tokens=streamed)
    try:
        paused = await run(swarm, "Go.", streamed=streamed, task_id="t")
        assert paused.subject == "::breakpoint_tool_call::"
        check_calls(
            paused,
            [
                Expected("ask_user", {"question": "Which?"}, "Ask first."),
                Expected("look_up", {"word": "mail"}, "And look."),
            ],
            path.wire,
        )
        order = paused.kinds("tool_call", "breakpoint_tool_call", "action_call")
        assert order[:2] == ["tool_call", "tool_call"]
        assert sorted(order[2:]) == ["action_call", "breakpoint_tool_call"]
        resumed = await run(
            swarm,
            "",
            streamed=streamed,
            task_id="t",
            resume_from="breakpoint_tool_call",
            breakpoint_tool_call_result="the blue one",
        )
        assert resumed.body == "the blue one; mail means liam"
        again = await run(
            swarm, "And now?", streamed=streamed, task_id="t", resume_from="user_response"
        )
        assert again.body == "still here"
    finally:
        await swarm.shutdown()
    check_requests(provider, path)
