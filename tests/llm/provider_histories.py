"""One conversation in every wire format: a call, its result, and a forced tool."""

from typing import Any

__all__ = ["HISTORIES"]

SCHEMA = {"type": "object", "properties": {"word": {"type": "string"}}}

HISTORIES: dict[str, dict[str, Any]] = {
    "completions": {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "first"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "look_up", "arguments": "{}"},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "found"},
            {"role": "user", "content": "then"},
        ],
        "tools": [{"type": "function", "function": {"name": "look_up", "parameters": SCHEMA}}],
        "tool_choice": {"type": "function", "function": {"name": "look_up"}},
    },
    "responses": {
        "instructions": "Be brief.",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "first"}]},
            {"type": "function_call", "call_id": "c1", "name": "look_up", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "found"},
            {"role": "user", "content": "then"},
        ],
        "tools": [{"type": "function", "name": "look_up", "parameters": SCHEMA}],
        "tool_choice": {"type": "function", "name": "look_up"},
    },
    "anthropic": {
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [
            {"role": "user", "content": "first"},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "c1", "name": "look_up", "input": {}}],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "found"},
                    {"type": "text", "text": "then"},
                ],
            },
        ],
        "tools": [{"name": "look_up", "input_schema": SCHEMA}],
        "tool_choice": {"type": "tool", "name": "look_up"},
    },
}
