"""One question, one whole reply, though the provider paused in between."""

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from mail.core.usage import Usage
from mail.errors import AgentError, ModelError
from mail.llm import anthropic
from mail.llm.ask import agent_output, ask
from mail.llm.request import CallPiece, Delta, ModelReply, ModelRequest
from tests.llm.support import CLAUDE, Recorder
from tests.llm.support import ask as request_for

THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
USE = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search"}
USED = {**USE, "input": {"query": "q"}}
SEARCH = Delta(
    calls=(CallPiece(0, "srvtoolu_1", "web_search", '{"query": "q"}', builtin=True),),
    wire="anthropic",
)
RESULT = Delta(results=(FOUND,), wire="anthropic")
END = Delta(finish="stop", usage=Usage(prompt_tokens=10, completion_tokens=1, total_tokens=11))


class Paused:
    """A model that gives one list of deltas after the other and keeps the requests."""

    def __init__(self, *replies: Sequence[Delta], error: ModelError | None = None) -> None:
        self.replies = list(replies)
        self.error = error
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        self.requests.append(request)
        if not self.replies and self.error is not None:
            raise self.error
        for delta in self.replies.pop(0):
            yield delta


class Reports(list[tuple[str, Usage]]):
    """What was reported."""

    def take(self, model: str, usage: Usage) -> None:
        self.append((model, usage))


async def asked(model: Paused, **changes: Any) -> tuple[ModelReply, Recorder, Reports]:
    sink, reports = Recorder(), Reports()
    reply = await ask(model, request_for(**changes), sink, reports.take)
    return reply, sink, reports


async def test_a_whole_reply_is_one_call() -> None:
    model = Paused([Delta(reasoning="hm"), Delta(text="hi", wire="anthropic"), END])
    reply, sink, reports = await asked(model)
    assert reply.text == "hi"
    assert len(model.requests) == 1
    assert reports == [("openai/fake", END.usage)]
    assert (sink.thoughts, sink.texts) == (["hm"], ["hi"])


async def test_a_call_without_usage_reports_nothing() -> None:
    assert (await asked(Paused([Delta(text="hi")])))[2] == []


async def test_a_paused_reply_goes_back_and_is_joined() -> None:
    model = Paused(
        [Delta(reasoning="hm"), Delta(thinking=(THOUGHT,)), Delta(text="I look."), SEARCH, END],
        [RESULT, Delta(reasoning="so"), Delta(text="It is.", wire="anthropic"), END],
    )
    reply, sink, reports = await asked(model, body="What?")
    first, second = model.requests
    entry = {"role": "assistant", "content": [THOUGHT, {"type": "text", "text": "I look."}, USED]}
    assert list(second.messages) == [*first.messages, entry]
    assert list(first.messages) == [{"role": "user", "content": "What?"}]
    assert (second.tools, second.system, second.step) == (first.tools, first.system, first.step)
    text, calls = agent_output(reply)
    assert text == "It is."
    assert [(call.tool_name, call.reasoning, call.preamble) for call in calls] == [
        ("web_search_call", ["hm"], "I look."),
        ("text_output", ["so"], None),
    ]
    assert calls[0].tool_args == {"query": "q", "status": "completed", "results": []}
    assert calls[0].completion["content"] == [
        *entry["content"],
        FOUND,
        {"type": "text", "text": "It is."},
    ]
    assert END.usage is not None
    assert reply.usage == END.usage + END.usage
    assert [usage for _, usage in reports] == [END.usage, END.usage]
    assert (sink.thoughts, sink.texts) == (["hm", "so"], ["I look.", "It is."])


async def test_each_round_sends_everything_so_far_as_one_entry() -> None:
    model = Paused(
        [SEARCH, RESULT, END],
        [Delta(text="more", wire="anthropic"), SEARCH, RESULT],
        [Delta(text="end", wire="anthropic"), END],
    )
    reply, _, _ = await asked(model)
    assert [len(request.messages) for request in model.requests] == [1, 2, 2]
    kinds = [block["type"] for block in model.requests[2].messages[1]["content"]]
    assert kinds == [USED["type"], FOUND["type"], "text", USED["type"], FOUND["type"]]
    assert reply.usage == Usage(calls=2, prompt_tokens=20, completion_tokens=2, total_tokens=22)
    assert reply.text == "moreend"


async def test_the_pause_can_be_sent_to_the_provider() -> None:
    model = Paused([SEARCH, RESULT], [Delta(text="end", wire="anthropic")])
    await asked(model)
    wire = anthropic.encode(model.requests[1], CLAUDE)
    assert [message["role"] for message in wire["messages"]] == ["system", "user", "assistant"]
    assert wire["messages"][-1]["content"] == [USED, FOUND]


@pytest.mark.parametrize(
    "reply",
    [
        [SEARCH, RESULT, Delta(text="so")],
        [SEARCH, RESULT, Delta(calls=(CallPiece(1, "t1", "look_up"),))],
        [Delta(calls=(CallPiece(1, "t1", "look_up"),)), SEARCH, RESULT],
        [SEARCH, RESULT, Delta(finish="content_filter")],
        [Delta(text="", wire="anthropic")],
        [
            Delta(
                items=((0, {"id": "ws_1", "type": "web_search_call", "status": "completed"}),),
                wire="responses",
            )
        ],
    ],
)
async def test_a_reply_that_is_no_pause_is_not_continued(reply: list[Delta]) -> None:
    model = Paused(reply)
    await asked(model)
    assert len(model.requests) == 1


async def test_the_last_round_that_is_allowed_still_counts() -> None:
    pause = [SEARCH, RESULT, END]
    model = Paused(*[pause] * 8, [Delta(text="at last", wire="anthropic"), END])
    reply, _, reports = await asked(model)
    assert reply.text == "at last"
    assert (len(model.requests), len(reports)) == (9, 9)


async def test_a_reply_that_has_nothing_to_add_is_taken_as_it_is() -> None:
    model = Paused([SEARCH, RESULT, END], [END])
    reply, _, reports = await asked(model)
    assert (len(model.requests), len(reports)) == (2, 2)
    (call,) = agent_output(reply)[1]
    assert call.completion["content"] == [USED, FOUND]


async def test_a_pause_without_end_is_an_error() -> None:
    pause = [SEARCH, RESULT, END]
    model = Paused(*[pause] * 20)
    reports = Reports()
    with pytest.raises(AgentError, match="did not finish within 8 rounds"):
        await ask(model, request_for(), Recorder(), reports.take)
    assert len(model.requests) == 9
    assert len(reports) == 9, "what was used is reported all the same"


async def test_a_failure_while_it_goes_on_is_a_failure() -> None:
    model = Paused([SEARCH, RESULT, END], error=ModelError("no more", status=400))
    reports = Reports()
    with pytest.raises(ModelError, match="no more"):
        await ask(model, request_for(), Recorder(), reports.take)
    assert len(reports) == 1


async def test_a_later_part_that_begins_anew_leaves_the_first_part_on_the_stream() -> None:
    broken = [Delta(text="Fou"), Delta(restart=True), Delta(text="Found."), END]
    first = [Delta(reasoning="hm"), Delta(text="I look. ", wire="anthropic"), SEARCH, RESULT, END]
    reply, sink, _ = await asked(Paused(first, broken))
    assert "".join(sink.texts) == reply.text == "I look. Found."
    assert "".join(sink.thoughts) == "hm"
