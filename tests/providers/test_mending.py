"""Replies that no provider would take back as they came: the task goes on all the same."""

from typing import Any

import pytest

from mail.core.tools.call import INVALID_JSON_KEY
from mail.llm.script import Step, call, call_text, otherwise, say, think, when
from tests.providers.swarms import ADAPTIVE, MODELS, Outcome, Path, lead_swarm, run
from tests.support.provider import FakeProvider
from tests.support.provider.steps import OutOfTokens, ProviderStep, Redacted, Search

PATHS = [pytest.param(path, id=path.wire) for path in MODELS]
PATHS.append(pytest.param(ADAPTIVE, id="adaptive"))
AnyStep = Step | ProviderStep


def finish(message: str) -> Any:
    return call("task_complete", finish_message=message)


async def talk(provider: FakeProvider, path: Path, *first: AnyStep) -> tuple[Outcome, Outcome]:
    """Reply once with the steps, then finish; go on with the same history in a second run."""
    replies = iter([list(first)])
    provider.script = lambda view: next(replies, [finish("mended")])
    swarm = lead_swarm(path)
    try:
        told = await run(swarm, "Go.", streamed=False, task_id="t")
        later = await run(
            swarm, "And now?", streamed=True, task_id="t", resume_from="user_response"
        )
    finally:
        await swarm.shutdown()
    assert {seen.status for seen in provider.requests} == {200}, told.body + later.body
    return told, later


@pytest.mark.parametrize(
    "name",
    ["functions.look_up", "multi_tool_use.parallel", "look up", "x" * 70, "suche-Wörter"],
)
@pytest.mark.parametrize("path", PATHS)
async def test_a_tool_that_the_model_made_up_does_not_spoil_the_history(
    provider: FakeProvider, path: Path, name: str
) -> None:
    told, later = await talk(provider, path, think("Call it."), call(name, word="x"))
    assert (told.body, later.body) == ("mended", "mended")
    assert told.calls()[0]["tool_name"] == name


@pytest.mark.parametrize(
    ("steps", "answer"),
    [
        ([think("a"), call("look_up", word="x"), think("b")], "mended"),
        ([call("look_up", word="x"), Redacted()], "mended"),
        ([think("a"), Search("x"), think("b")], "mended"),
        ([say("This."), think("b")], "This."),
        ([think("a"), say("This."), think("b"), think("c")], "This."),
    ],
    ids=["call", "redacted", "search", "text", "two"],
)
@pytest.mark.parametrize("path", PATHS)
async def test_a_thought_at_the_end_of_a_reply_does_not_spoil_the_history(
    provider: FakeProvider, path: Path, steps: list[AnyStep], answer: str
) -> None:
    told, later = await talk(provider, path, *steps)
    assert (told.body, later.body) == (answer, "mended")


@pytest.mark.parametrize("arguments", ["", '{"wo', '{"word": "ma'])
@pytest.mark.parametrize("path", PATHS)
async def test_a_call_that_was_cut_off_is_not_run(
    provider: FakeProvider, path: Path, arguments: str
) -> None:
    written = [call("look_up", word="whole"), call_text("look_up", arguments), OutOfTokens()]
    told, later = await talk(provider, path, think("a"), *written)
    assert (told.body, later.body) == ("mended", "mended")
    whole, cut_off, _ = told.calls()
    assert whole["tool_args"] == {"word": "whole"}
    assert cut_off["tool_args"].keys() == {INVALID_JSON_KEY}
    assert told.kinds("action_call", "action_complete") == ["action_call", "action_complete"]
    assert "not valid JSON" in repr(provider.requests[1].body)


@pytest.mark.parametrize("path", PATHS)
async def test_a_whole_call_without_arguments_is_run(provider: FakeProvider, path: Path) -> None:
    told, _ = await talk(provider, path, call_text("acknowledge_broadcast", ""))
    assert told.calls()[0]["tool_args"] == {}
    assert "not valid JSON" not in repr(provider.requests[1].body)


@pytest.mark.parametrize("path", PATHS)
async def test_text_that_was_cut_off_stays_text(provider: FakeProvider, path: Path) -> None:
    told, later = await talk(provider, path, say("The answer is"), OutOfTokens())
    assert (told.body, later.body) == ("The answer is", "mended")


@pytest.mark.parametrize("path", PATHS)
async def test_a_question_to_the_user_that_is_no_json_goes_back_to_the_model(
    provider: FakeProvider, path: Path
) -> None:
    provider.script = [
        when(tool_result="ask_user", result="JSON").then(call("ask_user", question="Which?")),
        otherwise(think("Ask."), call_text("ask_user", '{"que')),
    ]
    swarm = lead_swarm(path)
    try:
        paused = await run(swarm, "Go.", streamed=False)
    finally:
        await swarm.shutdown()
    assert paused.subject == "::breakpoint_tool_call::"
    assert "Which?" in paused.body
    assert "__invalid_json__" not in paused.body
    assert [seen.status for seen in provider.requests] == [200, 200]
