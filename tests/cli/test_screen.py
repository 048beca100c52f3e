"""What a person sees: harmless text, events on a line each, answers and completions."""

import json
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from mail.cli.common import cleaned, one_line
from mail.cli.repl.commands import _response_code
from mail.cli.repl.loop import greet
from mail.cli.repl.parsing import build_parser
from mail.cli.repl.screen import Screen, exit_code, show_answer, show_event, show_task
from mail.cli.repl.session import Session
from mail.cli.repl.terminal import CommandCompleter, CommandHistory
from mail.client import MAILClient


@settings(deadline=None)
@given(st.text())
def test_cleaned_text_holds_nothing_that_a_terminal_obeys(text: str) -> None:
    shown = cleaned(text)
    assert not any(ord(sign) < 32 or 127 <= ord(sign) < 160 for sign in shown if sign not in "\n\t")
    shown.encode()
    if not any(ord(sign) < 32 or ord(sign) >= 127 for sign in text):
        assert shown == text


@pytest.mark.parametrize(
    ("sign", "escape"),
    [
        ("\u202e", "\\u202e"),  # a direction
        ("\u2028", "\\u2028"),  # a line separator
        ("\r", "\\u000d"),
        ("\U000e0041", "\\udb40\\udc41"),  # a tag
        ("\u3164", "\\u3164"),  # a filler
        ("\xad", "\\u00ad"),  # a soft hyphen
        ("\ufe0f", "\\ufe0f"),  # selectors
        ("\U000e0100", "\\udb40\\udd00"),
        ("\u200d", "\\u200d"),  # joiners
        ("\u200c", "\\u200c"),
        ("\ue000", "\\ue000"),  # private use
        ("\ud83d", "\\ud83d"),  # half of a pair
    ],
)
def test_what_cannot_be_seen_is_shown(sign: str, escape: str) -> None:
    assert cleaned(f"a{sign}b") == one_line(f"a{sign}b") == f"a{escape}b"
    assert cleaned(sign) == one_line(sign) == escape


@pytest.mark.parametrize(
    "text", ["❤\ufe0f", "👩🏽\u200d💻", "👁\ufe0f\u200d🗨\ufe0f", "1\ufe0f\u20e3", "naïve\xa0日本"]
)
def test_emoji_and_letters_stay(text: str) -> None:
    assert cleaned(text) == text
    assert cleaned(f"{text}.\ufe0f.\u200d") == f"{text}.\\ufe0f.\\u200d"


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_cleaned_json_is_the_same_json(value: Any) -> None:
    assert json.loads(cleaned(json.dumps(value, ensure_ascii=False))) == value


def test_a_line_is_one_line_of_bounded_length() -> None:
    assert one_line(" a\n\tb\x1b[0m ") == "a b\\u001b[0m"
    assert one_line("x" * 300, 10) == "x" * 9 + "…"


MESSAGE = {
    "msg_type": "request",
    "message": {
        "sender": {"address": "alice", "address_type": "user"},
        "recipient": {"address": "math", "address_type": "agent"},
        "subject": "Sum",
        "body": "1 + 1\nplease",
    },
}


@pytest.mark.parametrize(
    ("kind", "data", "shown"),
    [
        (
            "new_message",
            {"extra_data": {"full_message": MESSAGE}},
            "alice → math request 'Sum': 1 + 1 please",
        ),
        ("new_message", {"extra_data": {"full_message": {"message": 1}}}, "unknown"),
        ("task_complete", {"response": "two", "description": "d"}, "two"),
        ("action_call", {"description": "calling\nadd"}, "calling add"),
        ("model_delta", {"delta": "tw", "agent": "math"}, "tw"),
        ("ping", {"task_id": "t"}, ""),
        ("odd", {"extra_data": None}, "unknown"),
        ("odd", None, ""),
        ("odd", "no JSON \x1b[2J", "no JSON \\u001b[2J"),
        ("odd", "[1]", "[1]"),
        (None, "x", "x"),
    ],
)
def test_an_event_is_one_line(
    capsys: pytest.CaptureFixture[str], kind: str | None, data: Any, shown: str
) -> None:
    given_data = (
        {"timestamp": "2026-01-02T03:04:05.678901+00:00", **data}
        if isinstance(data, dict)
        else data
    )
    for form in (given_data, json.dumps(given_data) if isinstance(data, dict) else given_data):
        show_event(Screen(), kind, form)
        line = capsys.readouterr().out
        assert line.count("\n") == 1
        assert line.split(None, 2 if isinstance(data, dict) else 1)[-1].strip() in (shown, kind)
        assert ("03:04:05.678" in line) == isinstance(data, dict)


def test_a_paused_answer_says_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    call = {"name": "pay", "arguments": '{"amount":40}', "call_id": "c-1"}
    answer = {"response": "[]", "task_id": "it's", "status": "paused", "breakpoints": [call]}
    show_answer(Screen(), answer)
    shown = capsys.readouterr()
    assert shown.out == 'pay({"amount":40})\n'
    hint = shown.err.splitlines()[-1].removeprefix("continue with: ")
    arguments = build_parser("", typed=True).read(shlex.split(hint))
    assert (arguments.task_id, arguments.resume_from) == ("it's", "breakpoint_tool_call")
    assert arguments.kwargs["breakpoint_tool_call_result"] == [{"call_id": "c-1", "content": "…"}]


def test_a_task_of_an_older_server_is_shown_too(capsys: pytest.CaptureFixture[str]) -> None:
    show_task(Screen(), {"task_id": "t", "completed": True, "is_running": False, "title": "Sums\n"})
    assert "task 't' - completed: True, not running\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("status", "kinds", "code"),
    [
        ("completed", ["message"], 0),
        ("completed", ["function_call"], 3),
        ("completed", ["function_call", "function_call_output"], 0),
        ("cancelled", ["function_call"], 1),
        ("failed", [], 1),
    ],
)
def test_response_codes_follow_the_response(status: str, kinds: list[str], code: int) -> None:
    output = [SimpleNamespace(type=kind, call_id="c") for kind in kinds]
    assert _response_code(SimpleNamespace(status=status, output=output)) == code


async def test_who_is_greeted_may_be_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    client = MAILClient("http://127.0.0.1:1")
    client.get_whoami = AsyncMock(return_value={})  # type: ignore[method-assign]
    await greet(Session(client, Screen()))
    assert "> role: unknown\n> id: unknown\n" in capsys.readouterr().err


def test_response_codes_follow_the_status() -> None:
    codes = [exit_code(status) for status in ("completed", None, "failed", "cancelled", "paused")]
    assert codes == [0, 0, 1, 1, 3]


@pytest.mark.parametrize(
    ("before", "some", "exact"),
    [
        ("", {"message", "help", "exit", "quit", "ms"}, False),
        ("swarm-", {"swarm-register", "swarm-dump", "swarm-load-from-json"}, False),
        ("message hi --re", {"--resume-from"}, True),
        ("message hi --resume-from ", {"user_response", "breakpoint_tool_call"}, True),
        ("ms hi -t int", {"interrupt"}, True),
        ("help mess", {"message", "message-stream", "message-interswarm"}, True),
        ("help message ", set(), True),
        ("message h", set(), True),
        ("sing --", set(), True),
    ],
)
def test_completion_knows_commands_flags_and_values(
    before: str, some: set[str], exact: bool
) -> None:
    completer = CommandCompleter(build_parser("", typed=True))
    found = {c.text for c in completer.get_completions(Document(before), CompleteEvent())}
    assert found == some if exact else found >= some


def test_history_keeps_lines_without_keys(tmp_path: Path) -> None:
    history = CommandHistory(tmp_path / "history")
    for line in ("ping", "login secret", "l secret", " login  secret", "sr b http://b secret"):
        history.store_string(line)
    history.store_string("swarm-register b http://b secret")
    history.store_string("message-interswarm hi a@b secret")
    history.store_string("message 'two\nlines'")
    assert list(history.load_history_strings()) == ["message 'two\nlines'", "ping"]
    assert "secret" not in (tmp_path / "history").read_text()


@pytest.mark.parametrize(
    "line",
    [
        "'login' hidden",
        "login 'hidden",
        "help login hidden",
        "logni hidden",
        "hidden",
        "message 'my key is mail_hidden0000000000000000000000'",
        "tg x https://user:hidden@host",
    ],
)
def test_a_line_that_may_hold_a_key_is_not_kept(tmp_path: Path, line: str) -> None:
    file = tmp_path / "history"
    file.touch(mode=0o644)
    history = CommandHistory(file)
    history.remember(line)
    history.remember("ping")
    assert list(history.load_history_strings()) == ["ping"]
    assert "hidden" not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_history_that_cannot_be_kept_bothers_nobody(tmp_path: Path) -> None:
    history = CommandHistory(tmp_path)  # a folder
    history.store_string("ping")
    assert list(history.load_history_strings()) == []
