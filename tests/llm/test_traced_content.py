"""A history in any of its formats, as traces show it."""

from typing import Any

import pytest

from mail.llm.ask import _shown

CALL = {"type": "tool_call", "id": "c1", "name": "count", "arguments": '{"a": 1}'}


@pytest.mark.parametrize(
    ("entry", "role", "parts"),
    [
        ({"role": "user", "content": "Hi"}, "user", [{"type": "text", "content": "Hi"}]),
        ({"role": "assistant", "content": None}, "assistant", []),
        (
            {
                "role": "assistant",
                "content": "So",
                "tool_calls": [
                    {"id": "c1", "function": {"name": "count", "arguments": '{"a": 1}'}}
                ],
            },
            "assistant",
            [{"type": "text", "content": "So"}, CALL],
        ),
        (
            {"role": "tool", "tool_call_id": "c1", "content": "2"},
            "tool",
            [{"type": "tool_call_response", "id": "c1", "response": "2"}],
        ),
        (
            {"type": "function_call", "call_id": "c1", "name": "count", "arguments": '{"a": 1}'},
            "assistant",
            [CALL],
        ),
        (
            {"type": "function_call_output", "call_id": "c1", "output": "2"},
            "assistant",
            [{"type": "tool_call_response", "id": "c1", "response": "2"}],
        ),
        (
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1"}]},
            "user",
            [{"type": "tool_result", "tool_use_id": "c1"}],
        ),
        ({"type": "reasoning", "summary": []}, "assistant", []),
    ],
)
def test_an_entry_is_a_message_of_the_conventions(
    entry: dict[str, Any], role: str, parts: list[Any]
) -> None:
    assert _shown(entry) == {"role": role, "parts": parts}
