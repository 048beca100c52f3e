"""Deltas become a reply."""

from collections.abc import AsyncGenerator

from mail.core.call_context import NullSink
from mail.llm.accumulate import collect
from mail.llm.output import agent_output
from mail.llm.request import CallPiece, Delta, ModelReply


async def stream_of(*deltas: Delta) -> AsyncGenerator[Delta, None]:
    for delta in deltas:
        yield delta


async def reply_of(*deltas: Delta) -> ModelReply:
    return await collect(stream_of(*deltas), NullSink())


async def test_each_call_gets_the_reasoning_and_text_before_it() -> None:
    reply = await reply_of(
        Delta(reasoning="first "),
        Delta(reasoning="thought"),
        Delta(text="I look."),
        Delta(calls=(CallPiece(0, "a", "f", "{"),)),
        Delta(calls=(CallPiece(0, arguments="}"),)),
        Delta(reasoning="second thought"),
        Delta(calls=(CallPiece(1, "b", "g"),)),
        Delta(calls=(CallPiece(2, "c", "h"),)),
        Delta(reasoning="after all"),
    )
    assert [(c.id, c.arguments, c.reasoning, c.preamble) for c in reply.calls] == [
        ("a", "{}", ("first thought",), "I look."),
        ("b", "", ("second thought",), ""),
        ("c", "", (), ""),
    ]
    assert reply.reasoning == ("after all",)


async def test_signed_and_redacted_thinking_blocks_are_kept_apart() -> None:
    reply = await reply_of(
        Delta(reasoning="one", thinking=({"type": "thinking", "thinking": "one"},)),
        Delta(thinking=({"type": "thinking", "thinking": "", "signature": "s1"},)),
        Delta(thinking=({"type": "redacted_thinking", "data": "xyz"},)),
        Delta(reasoning="two", thinking=({"type": "thinking", "thinking": "two"},)),
        Delta(thinking=({"type": "thinking", "thinking": "", "signature": "s2"},)),
        Delta(calls=(CallPiece(0, "a", "f"),)),
    )
    assert reply.calls[0].reasoning == ("one", "[redacted thinking]", "two")
    assert reply.thinking == (
        {"type": "thinking", "thinking": "one", "signature": "s1"},
        {"type": "redacted_thinking", "data": "xyz"},
        {"type": "thinking", "thinking": "two", "signature": "s2"},
    )


async def test_missing_and_repeated_ids_are_replaced() -> None:
    pieces = [CallPiece(0, "a", "f"), CallPiece(1, "a", "f"), CallPiece(2, "", "")]
    reply = await reply_of(*(Delta(calls=(piece,)) for piece in pieces))
    assert len({call.id for call in reply.calls}) == 3
    assert reply.calls[2].name == "unnamed_tool"


async def test_blank_reasoning_is_dropped() -> None:
    reply = await reply_of(Delta(reasoning=" \n"), Delta(calls=(CallPiece(0, "a", "f"),)))
    assert reply.calls[0].reasoning == ()


async def test_text_alone_is_one_text_output_with_an_id_of_its_own() -> None:
    reply = await reply_of(Delta(reasoning="r"), Delta(text="Hello"), Delta(text=" you"))
    text, (only,) = agent_output(reply, "step-1")
    assert text == "Hello you"
    assert (only.tool_name, only.tool_args) == ("text_output", {"content": "Hello you"})
    assert (only.reasoning, only.preamble) == (["r"], None)
    assert agent_output(reply, "step-1")[1][0].tool_call_id == only.tool_call_id
    assert agent_output(reply)[1][0].tool_call_id != agent_output(reply)[1][0].tool_call_id


async def test_an_empty_reply_gives_nothing() -> None:
    assert agent_output(await reply_of(Delta(text=" "), Delta(finish="stop"))) == (None, [])
