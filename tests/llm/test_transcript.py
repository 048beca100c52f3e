"""Whoever sums up a history reads all that matters of it, and no codes."""

from mail.llm.compress import transcript

SECRET = "x" * 5000


def test_mail_replies_calls_and_results_are_written_down_in_order() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": '{"a":1}'}}
    text = transcript(
        [
            {"role": "user", "content": "What is it?"},
            {"role": "assistant", "content": "I will see.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "It is 42."},
            {"role": "assistant", "content": "42."},
        ]
    )
    assert text == (
        "[to the agent]\nWhat is it?\n\n[the agent]\nI will see.\n\n"
        '[the agent calls look_up, id c1]\n{"a":1}\n[result]\n'
        "It is 42.\n\n[the agent]\n42."
    )


def test_a_call_without_a_result_is_still_open() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "ask_boss", "arguments": "{}"}
    assert transcript([call]) == "[the agent calls ask_boss, id c1]\n{}\n[result]\n(no result yet)"


def test_output_items_show_the_providers_tools_but_no_reasoning_and_no_codes() -> None:
    text = transcript(
        [
            {"type": "reasoning", "summary": [{"text": "hm"}], "encrypted_content": SECRET},
            {
                "type": "web_search_call",
                "id": "ws",
                "status": "completed",
                "action": {"query": "mail"},
            },
            {"type": "image_generation_call", "id": "ig", "result": SECRET},
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "Found."}],
            },
        ]
    )
    assert '"query":"mail"' in text
    assert text.endswith("[the agent]\nFound.")
    assert "hm" not in text
    assert SECRET not in text


def test_message_blocks_show_the_providers_tools_but_no_thinking_and_no_codes() -> None:
    found = {"type": "web_search_result", "title": "MAIL", "encrypted_content": SECRET}
    text = transcript(
        [
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": SECRET},
                    {"type": "redacted_thinking", "data": SECRET},
                    {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
                    {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [found]},
                    {"type": "text", "text": "Found."},
                    {"type": "tool_use", "id": "t1", "name": "look_up", "input": {"a": 1}},
                ],
            },
            {"role": "tool", "tool_call_id": "t1", "content": "42"},
        ]
    )
    assert '"title":"MAIL"' in text
    assert '[the agent]\nFound.\n\n[the agent calls look_up, id t1]\n{"a": 1}\n[result]\n42' in text
    assert "hm" not in text
    assert SECRET not in text
