"""What a check of a model makes of refusals, repetitions and odd replies."""

from collections.abc import Callable, Sequence
from typing import Any

import httpx
import pytest

from mail.core.agents import AgentOutput, ToolChoice
from mail.errors import ModelError
from mail.llm.recording import asking
from mail.testing import tool_calls
from mail.testing.model_check import ModelCheck, check_model

CALLED = ("check_word", {"word": "apple"})
ENDED = ("task_complete", {"finish_message": "done"})
REFUSED = httpx.Response(
    400, json={"error": {"message": "Thinking mode does not support this tool_choice"}}
)
BUSY = httpx.Response(503, text="try later")
FINE = httpx.Response(200, text="{}")
Made = tuple[dict[str, Any], httpx.Response]


def asked(*turns: tuple[Sequence[Made], Any]) -> Callable[[Any, ToolChoice], Any]:
    """Return an agent function each of whose turns makes requests and gives a reply."""
    left = iter(turns)

    async def function(messages: list[dict[str, Any]], choice: ToolChoice) -> AgentOutput:
        requests, reply = next(left)
        for body, answer in requests:
            transport = httpx.MockTransport(lambda request, answer=answer: answer)
            async with httpx.AsyncClient(transport=transport) as client:
                with asking("a/model"):
                    await client.post("http://localhost/v1", json=body)
        if isinstance(reply, Exception):
            raise reply
        return None, tool_calls(*reply)

    return function


def told(check: ModelCheck) -> list[str]:
    return [f"{status} {part}: {text}" for part, status, text in check.findings]


async def test_what_was_adapted_is_told_with_the_reason() -> None:
    first = {"tool_choice": "required", "thinking": {"type": "on"}, "messages": [1]}
    second = {"tool_choice": "auto", "thinking": {"type": "off"}, "messages": [1, 2], "top": 1}
    check = await check_model(
        asked(([(first, REFUSED), (second, FINE)], [CALLED]), ([(second, FINE)], [ENDED])), "a"
    )
    assert check.ok
    assert told(check)[1] == (
        'adapted tool call: HTTP 400, "Thinking mode does not support this tool_choice": went '
        "through with tool_choice auto in place of required; thinking.type off in place of on; "
        "other messages; top 1"
    )


async def test_a_refusal_that_stands_is_an_error() -> None:
    failed = ModelError("model call failed (HTTP 400): no")
    body = {"tool_choice": "required"}
    check = await check_model(asked(([(body, REFUSED), ({}, REFUSED)], failed)), "a")
    assert not check.ok
    assert told(check)[0] == "error tool call: model call failed (HTTP 400): no"
    assert told(check)[1].endswith("tried again with no tool_choice")


async def test_repetitions_are_told() -> None:
    body = {"tool_choice": {"type": "any"}}
    check = await check_model(
        asked(([(body, BUSY), (body, BUSY), (body, FINE)], [CALLED]), ([(body, FINE)], [ENDED])),
        "a",
    )
    assert 'warning tool call: asked 3 times: HTTP 503, "try later"' in told(check)


async def test_replies_that_are_not_what_was_asked_for() -> None:
    body = {"tool_choice": "auto"}
    other = [("send_request", {"target": "b"})]
    check = await check_model(asked(([(body, FINE)], other), ([(body, FINE)], [])), "a")
    assert told(check)[0].startswith(
        "warning tool call: called send_request in place of check_word"
    )
    assert told(check)[1].startswith("error forced end: the reply has neither a call nor text")
    assert "warning usage: the provider reports no tokens" in " ".join(told(check))


async def test_broken_arguments_are_told() -> None:
    broken = [("check_word", {"__invalid_json__": "{"})]
    check = await check_model(asked(([], broken), ([], [ENDED])), "a")
    assert (
        told(check)[0] == "warning tool call: the arguments of 'check_word' are not valid JSON: {"
    )


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"tool_choice": "required"}, "ok required"),
        ({"tool_choice": {"type": "any"}}, "ok any"),
        ({"tool_choice": {"type": "function", "function": {"name": "x"}}}, "ok function x"),
        ({"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}}, "ok any"),
        ({"toolConfig": {"toolChoice": {"tool": {"name": "x"}}}}, "ok tool x"),
        ({"toolConfig": {"functionCallingConfig": {"mode": "AUTO"}}}, "adapted auto"),
        ({"tool_choice": "auto"}, "adapted auto"),
        ({"tools": []}, "adapted none, so the model decides"),
        ({"tool_choice": {"function": "odd"}}, "adapted None"),
    ],
)
async def test_the_tool_choice_that_was_sent_is_told(body: dict[str, Any], said: str) -> None:
    check = await check_model(asked(([(body, FINE)], [CALLED]), ([(body, FINE)], [ENDED])), "a")
    status, choice = said.split(" ", 1)
    assert check.findings[0].status == status
    assert check.findings[0].text.endswith(f"(tool choice sent: {choice})")
