"""Deltas become a reply."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from mail.core.call_context import NullSink
from mail.core.usage import Usage
from mail.errors import ModelError
from mail.llm import responses
from mail.llm.ask import agent_output, collect
from mail.llm.request import (
    BuiltinCall,
    BuiltinResult,
    CallPiece,
    Delta,
    FunctionCall,
    ModelReply,
    Speech,
    Thought,
)
from tests.llm.streams import collected, read, responses_events
from tests.llm.support import Recorder


def signed(text: str, signature: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": signature}


@pytest.mark.parametrize(
    "piece",
    [
        Delta(text="x" * 10),
        Delta(reasoning="x" * 10),
        Delta(thinking=({"type": "thinking", "thinking": "x" * 10},)),
        Delta(calls=(CallPiece(0, "a", "f", "x" * 10),)),
        Delta(text_done=True, citations=({"cited_text": "x" * 10, "document_index": 0},)),
    ],
)
async def test_a_reply_without_an_end_is_broken_off(piece: Delta) -> None:
    sent: list[Delta] = []
    ended: list[bool] = []

    async def endless() -> AsyncGenerator[Delta, None]:
        try:
            while True:
                sent.append(piece)
                yield piece
        finally:
            ended.append(True)

    with pytest.raises(ModelError, match=r"after 1,000 bytes \(max_reply_bytes\)"):
        await collect(endless(), NullSink(), 1000)
    assert len(sent) == 101
    assert ended == [True]


async def test_parts_keep_their_order_and_pieces_are_joined() -> None:
    reply = await collected(
        Delta(reasoning="first "),
        Delta(reasoning="thought"),
        Delta(text="I "),
        Delta(text="look."),
        Delta(calls=(CallPiece(0, "a", "f", "{"),)),
        Delta(calls=(CallPiece(0, arguments="}"),)),
        Delta(reasoning="second thought"),
        Delta(calls=(CallPiece(1, "b", "g"),)),
        Delta(calls=(CallPiece(2, "c", "h"),)),
        Delta(reasoning="after all"),
    )
    assert reply.parts == (
        Thought("first thought"),
        Speech("I look."),
        FunctionCall("a", "f", "{}"),
        Thought("second thought"),
        FunctionCall("b", "g", ""),
        FunctionCall("c", "h", ""),
        Thought("after all"),
    )
    calls = agent_output(reply)[1]
    assert [(c.tool_call_id, c.reasoning, c.preamble) for c in calls] == [
        ("a", ["first thought"], "I look."),
        ("b", ["second thought"], None),
        ("c", None, None),
    ]


async def test_pieces_of_parallel_calls_may_be_mixed() -> None:
    pieces = [(0, "a", "f", "{"), (1, "b", "g", "["), (0, "", "", "}"), (1, "", "", "]")]
    reply = await collected(*(Delta(calls=(CallPiece(*piece),)) for piece in pieces))
    assert reply.calls == (FunctionCall("a", "f", "{}"), FunctionCall("b", "g", "[]"))


async def test_calls_at_one_index_are_told_apart_by_their_ids() -> None:
    """Some providers send whole calls one by one, each with the index 0."""
    pieces = [("a", "f", '{"n": 1}'), ("a", "f", ""), ("b", "f", '{"n": '), ("", "", "2}")]
    reply = await collected(*(Delta(calls=(CallPiece(0, *piece),)) for piece in pieces))
    assert reply.calls == (FunctionCall("a", "f", '{"n": 1}'), FunctionCall("b", "f", '{"n": 2}'))


async def test_signed_and_redacted_thinking_blocks_are_kept_apart() -> None:
    reply = await collected(
        Delta(reasoning="o", thinking=({"type": "thinking", "thinking": "o"},)),
        Delta(reasoning="ne", thinking=({"type": "thinking", "thinking": "ne"},)),
        Delta(thinking=({"type": "thinking", "thinking": "", "signature": "s1"},)),
        Delta(thinking=({"type": "redacted_thinking", "data": "xyz"},)),
        Delta(reasoning="two", thinking=({"type": "thinking", "thinking": "two"},)),
        Delta(thinking=({"type": "thinking", "thinking": "", "signature": "s2"},)),
        Delta(calls=(CallPiece(0, "a", "f"),)),
    )
    assert reply.parts == (
        Thought("one", signed("one", "s1")),
        Thought("[redacted thinking]", {"type": "redacted_thinking", "data": "xyz"}),
        Thought("two", signed("two", "s2")),
        FunctionCall("a", "f", ""),
    )


async def test_whole_thinking_blocks_in_one_delta_keep_their_own_text() -> None:
    blocks = (signed("one", "s1"), signed("two", "s2"))
    reply = await collected(Delta(reasoning="onetwo", thinking=blocks))
    assert reply.parts == tuple(Thought(block["thinking"], block) for block in blocks)


async def test_thinking_whose_text_is_withheld_still_goes_back() -> None:
    block = signed("", "s1")
    reply = await collected(
        Delta(thinking=(block,)), Delta(calls=(CallPiece(0, "a", "f"),)), Delta(wire="anthropic")
    )
    call = agent_output(reply)[1][0]
    assert call.reasoning is None
    assert call.completion["content"][0] == block


async def test_unsigned_thinking_is_shown_but_never_sent_back() -> None:
    reply = await collected(
        Delta(reasoning="hm", thinking=({"type": "thinking", "thinking": "hm"},)),
        Delta(text="well"),
        Delta(wire="anthropic"),
    )
    call = agent_output(reply)[1][0]
    assert call.reasoning == ["hm"]
    assert call.completion["content"] == [{"type": "text", "text": "well"}]


async def test_missing_and_repeated_ids_are_replaced() -> None:
    pieces = [CallPiece(0, "a", "f"), CallPiece(1, "a", "f"), CallPiece(2, "", "")]
    reply = await collected(*(Delta(calls=(piece,)) for piece in pieces))
    ids = [call.id for call in reply.calls]
    assert ids[0] == "a"
    assert all(ids)
    assert len(set(ids)) == 3
    assert reply.calls[2].name == "unnamed_tool"


async def test_missing_and_repeated_ids_of_items_are_replaced_in_the_history_too() -> None:
    item = {"type": "function_call", "name": "f", "arguments": "{}", "id": "fc"}
    items = [{**item, "call_id": "a"}, {**item, "call_id": "a"}, item]
    reply = await read("responses", responses_events(*items))
    ids = [call.id for call in reply.calls]
    assert ids[0] == "a"
    assert len(set(ids)) == 3
    assert [item["call_id"] for item in reply.items] == ids
    calls = agent_output(reply)[1]
    assert [call.create_response_msg("ok")["call_id"] for call in calls] == ids


async def test_halves_of_a_character_in_two_pieces_become_one() -> None:
    halves = "\ud83d", "\ude00"
    reply = await collected(
        *(Delta(reasoning=half) for half in halves),
        *(Delta(text=half) for half in halves),
        *(Delta(calls=(CallPiece(0, "a", "f", half),)) for half in halves),
    )
    assert reply.parts == (Thought("😀"), Speech("😀"), FunctionCall("a", "f", "😀"))
    broken = await collected(Delta(text="a\ud83d"))
    assert broken.text == "a\ufffd"


async def test_built_in_calls_take_the_result_that_streams_in_once() -> None:
    result = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    other = {**result, "tool_use_id": "srvtoolu_2"}
    piece = CallPiece(0, "srvtoolu_1", "web_search", '{"query": "q"}', builtin=True)
    reply = await collected(
        Delta(text="so"),
        Delta(calls=(piece,), wire="anthropic"),
        Delta(results=(result,)),
        Delta(text="and"),
        Delta(calls=(CallPiece(1, "srvtoolu_2", "web_search", builtin=True),)),
        Delta(results=(result, other)),
    )
    kinds = [Speech, BuiltinCall, BuiltinResult, Speech, BuiltinCall, BuiltinResult]
    assert kinds_of(reply) == kinds
    assert reply.parts[1:3] == (
        BuiltinCall(
            "srvtoolu_1",
            "web_search_call",
            {"query": "q", "status": "completed", "results": []},
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search"}
            | {"input": {"query": "q"}},
        ),
        BuiltinResult(result),
    )


async def test_a_restart_forgets_everything_before_it() -> None:
    sink = Recorder()
    reply = await collected(
        Delta(reasoning="old", text="old", usage=Usage(total_tokens=1), finish="stop"),
        Delta(calls=(CallPiece(0, "a", "f"),), items=((0, {"type": "message", "content": []}),)),
        Delta(restart=True),
        Delta(reasoning="why"),
        Delta(text="new"),
        sink=sink,
    )
    assert reply == ModelReply(parts=(Thought("why"), Speech("new")))
    assert (sink.thoughts, sink.texts) == (["why"], ["new"])


async def test_a_failure_ends_the_stream_and_closes_it() -> None:
    closed: list[bool] = []

    async def broken() -> Any:
        try:
            yield Delta(text="a")
            raise ModelError("no more")
        finally:
            closed.append(True)

    with pytest.raises(ModelError, match="no more"):
        await collect(broken(), Recorder())
    assert closed == [True]


async def test_the_last_usage_and_finish_count() -> None:
    reply = await collected(
        Delta(usage=Usage(total_tokens=1)), Delta(finish="stop"), Delta(usage=Usage(total_tokens=5))
    )
    assert (reply.usage, reply.finish) == (Usage(total_tokens=5), "stop")


async def test_summary_deltas_are_joined_without_anything_between() -> None:
    kind = "response.reasoning_summary_text.delta"
    deltas = [
        responses.decode({"type": kind, "delta": piece})
        for piece in ("**Ana", "lyzing**\n", "\nok")
    ]
    begun = {"type": "function_call", "call_id": "c", "name": "f"}
    added = {"type": "response.output_item.added", "output_index": 1, "item": begun}
    reply = await collected(*deltas, responses.decode(added))
    assert reply.parts == (Thought("**Analyzing**\n\nok"), FunctionCall("c", "f", ""))


def kinds_of(reply: ModelReply) -> list[type]:
    return [type(part) for part in reply.parts]
