"""The prompt as a conversation: what a line means, what is shown, and what is left alone."""

import io
import json
from typing import Any
from unicodedata import category

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from mail.cli.repl.parsing import Meant, build_parser, command_names, meaning
from mail.cli.repl.talk import TALK, only, section
from mail.cli.repl.view import Progress, View, arguments_line, how_long, left_out, short_ids
from mail.errors import MAILError

PARSER = build_parser("mail>", typed=True, more=(section,))
EVIL = (
    "\x1b[2J\x1b]52;c;ZXZpbA==\x07\x1b]8;;http://evil\x07x\x9b31m\r\u202eabc\u200e\ufeff\u2028\x00"
    "\u200c\u200d\xad\u2060\u3164\uffa0\u115f\u2800x\ufe0f\ufe01\U000e0100\U000e0041\ue000"
)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("What's 17 * 23?", "What's 17 * 23?"),
        ("status of my order?", "status of my order?"),
        ("who is in the team?", "who is in the team?"),
        ("in Bob's opinion", "in Bob's opinion"),
        ("help me plan", "help me plan"),
        ("exit the vim editor", "exit the vim editor"),
        ("Status", "Status"),
        ("tasks", "tasks"),
        ("new ideas", "new ideas"),
        ("sing", "sing"),
        ("say status", "status"),
        ("say  it's 'half", "it's 'half"),
        ("/say /x", "/x"),
        ("'status'", "status"),
        ('"/x y"', "/x y"),
        ("'tis the season", "'tis the season"),
        ("first\nsecond", "first\nsecond"),
        ("", ""),
    ],
)
def test_a_line_is_a_message(line: str, text: str) -> None:
    found = meaning(line, PARSER)
    assert (found.command or "", found.text or "") == ("", text)


@pytest.mark.parametrize(
    "line",
    [
        "status",
        "status --json",
        "message hello there",
        "message 'half",
        "login my secret key",
        "task-get one two three",
        "read 2f0c",
        "find any words at all",
        "?",
        "help message",
        "exit",
        "send reviewer 'Please look'",
    ],
)
def test_a_line_is_a_command_without_a_slash(line: str) -> None:
    assert meaning(line, PARSER) == Meant(command=line)


@given(st.sampled_from(sorted(command_names() | {c.name for c in TALK} - {"say"})), st.text())
def test_a_slash_always_makes_a_command(name: str, rest: str) -> None:
    found = meaning(f"/{name} {rest}", PARSER)
    assert (found.text, found.explicit) == (None, True)


@pytest.mark.parametrize("name", sorted(command_names(bare=True)))
def test_documented_commands_need_no_slash(name: str) -> None:
    taken = PARSER.subcommands[name].most
    line = " ".join([name, *("x" for _ in range(int(min(taken, 3))))])
    assert meaning(line, PARSER).command == line


def shown(width: int = 80, **options: Any) -> tuple[View, io.StringIO]:
    out = io.StringIO()
    options = {"force_terminal": True, "width": width, "color_system": "truecolor"} | options
    return View(console=Console(file=out, highlight=False, **options)), out


def message(body: str, sender: str = "boss", to: str = "math", kind: str = "agent") -> Any:
    address = {"address": sender, "address_type": kind}
    content = {"sender": address, "subject": "Sum", "body": body}
    content["recipient"] = {"address": to, "address_type": "agent"}
    full = {"msg_type": "request", "message": content}
    return {"timestamp": "2026-01-01T00:00:00+00:00", "extra_data": {"full_message": full}}


def every_place(evil: str) -> list[tuple[str, Any]]:
    """Return events that show a text in each place where there can be one."""
    when = {"timestamp": evil, "task_id": evil}
    call = {"caller": evil, "tool_name": evil, "tool_args": {evil: evil}, "reasoning": evil}
    breakpoints = [{"name": evil, "arguments": json.dumps({evil: evil}), "call_id": evil}]
    return [
        ("new_message", message(evil, evil, evil)),
        ("new_message", message(evil, evil, evil, kind=evil)),
        ("tool_call", when | {"extra_data": call}),
        ("action_complete", when | {"extra_data": call | {"result": evil}}),
        ("action_error", when | {"description": evil, "extra_data": call}),
        ("await_message", when | {"extra_data": {"caller": evil, "reason": evil}}),
        (evil, when | {"description": evil, "extra_data": {}}),
        ("task_error", when | {"response": evil}),
        ("task_complete", when | {"response": evil, "status": evil}),
        ("task_complete", when | {"response": json.dumps({evil: evil}), "status": "completed"}),
        ("task_complete", when | {"response": f"# {evil}\n- [{evil}](http://{evil})\n`{evil}`"}),
        ("task_complete", when | {"response": f"```{evil}\n{evil}\n```\n| {evil} |\n|--|\n"}),
        ("task_complete", when | {"response": "", "breakpoints": breakpoints}),
    ]


def obeyed(text: str) -> list[str]:
    """Return what a terminal obeys in a text without colours, or does not show."""
    risky = ("Cc", "Cf", "Co", "Cs", "Zl", "Zp")
    empty = "\u3164\uffa0\u115f\u2800\ufe0f\ufe01\U000e0100"
    return [s for s in text if s != "\n" and (category(s) in risky or s in empty)]


@pytest.mark.parametrize("width", [20, 40, 80])
def test_hostile_text_is_text_everywhere(width: int) -> None:
    view, out = shown(width, color_system=None)
    for kind, data in every_place(EVIL):
        view.take(kind, data)
        view.console.print(view._status())
    assert obeyed(out.getvalue()) == []
    assert "\\u001b" in out.getvalue()


@settings(deadline=None, max_examples=60)
@given(st.text(max_size=200))
def test_any_text_is_text(text: str) -> None:
    view, out = shown(60, color_system=None)
    for kind, data in every_place(text):
        view.take(kind, data)
    assert obeyed(out.getvalue()) == []


@pytest.mark.parametrize("terminal", [True, False])
def test_no_blank_or_line_end_stands_for_what_cannot_be_seen(terminal: bool) -> None:
    view, out = shown(200, force_terminal=terminal, color_system=None)
    for kind, data in every_place("a\rb\u2028c\x85d\x0be\x1cf"):
        view.take(kind, data)
    plain = out.getvalue().replace("\\r", "\\u000d").replace("\\x0b", "\\u000b")
    for one in ("a\\u000db", "b\\u2028c", "c\\u0085d", "d\\u000be", "e\\u001cf"):
        assert plain.count(one) >= 20, (one, plain)


def test_links_and_colours_are_nothing_but_colours() -> None:
    view, out = shown()
    view.text("[x](http://evil.example) <b>bold</b> &#x202e; ![i](http://evil.example/i)")
    assert "\x1b]" not in out.getvalue()
    assert "<b>bold</b> &#x202e;" in out.getvalue()


@pytest.mark.parametrize(
    "text", ["x" * 1_000_000, "[" * 30_000, "> " * 5_000 + "deep", '{"a": ' * 4_000, "*a_ " * 8_000]
)
def test_long_and_deep_answers_are_complete(text: str) -> None:
    view, out = shown(40)
    view.text(text)
    plain = out.getvalue().replace("\n", "").replace(" ", "")
    assert plain.startswith(text[:20].replace(" ", ""))
    if text[0] == "x":
        assert plain.count("x") == len(text)
    if text[-4:] == "deep":
        assert "deep" in plain


def test_line_ends_of_an_answer_stay() -> None:
    view, out = shown(color_system=None)
    view.text("one\ntwo\n\n- three")
    assert [line.rstrip() for line in out.getvalue().splitlines()][:4] == [
        "one",
        "two",
        "",
        " • three",
    ]


def test_an_answer_is_shown_once_with_what_it_took() -> None:
    view, out = shown(color_system=None)
    usage = {"caller": "math", "task_usage": {"total_tokens": 1304, "cost": 0.0009}}
    view.take("new_message", message("1 + 1", "alice", "math", "user"), mine=True)
    later = {"timestamp": "2026-01-01T00:00:02+00:00", "task_id": "t"}
    view.take("model_usage", later | {"extra_data": usage})
    assert view.take("task_complete", later | {"response": "two", "status": "completed"})
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    assert lines == ["two", "task t completed · 2.0 s · 1,304 tokens · $0.0009"]


def test_the_status_tells_who_works_with_what() -> None:
    view, _ = shown()
    for kind, extra in [
        ("tool_call", {"caller": "boss", "tool_name": "send_request"}),
        ("action_call", {"caller": "math", "tool_name": "add"}),
    ]:
        view.take(kind, {"extra_data": extra})
    assert view.progress.busy == {"boss": "", "math": "add"}
    view.take("new_message", message("1 + 1"))
    assert view.progress.busy == {"math": "add"}
    assert view.progress.depth == {"math": 0}
    view.take("task_complete", {"response": ""})
    assert view.progress.busy == {}


def test_progress_does_not_trust_an_event() -> None:
    progress = Progress()
    for extra in (None, [], {"full_message": 1}, {"task_usage": {"total_tokens": "x", "cost": []}}):
        for kind in ("new_message", "model_usage", "tool_call", "task_complete"):
            progress.take(kind, {"extra_data": extra, "timestamp": 5})
    assert (progress.tokens, progress.cost, progress.seconds) == (0, None, None)


def test_ids_are_as_short_as_they_can_be() -> None:
    first, second = "3d2c9ce4-0000-4000-8000-000000000000", "3d2c9ce4-1000-4000-8000-000000000000"
    other = "77777777-0000-4000-8000-000000000000"
    assert short_ids([first, second, other, "weather"]) == {
        first: "3d2c9ce4-0",
        second: "3d2c9ce4-1",
        other: "77777777",
        "weather": "weather",
    }
    assert only("7", [first, other], "task") == other
    assert only("weather", ["weather", "weather-2"], "task") == "weather"
    with pytest.raises(MAILError, match="several tasks begin with '3': 3d2c9ce4-0, 3d2c9ce4-1"):
        only("3", [first, second], "task")
    with pytest.raises(MAILError, match="no task 'wether'"):
        only("wether", ["weather"], "task")


def test_durations_have_a_unit() -> None:
    told = [how_long(s) for s in (-1, 0.44, 12.3, 89, 200, 7200, 172_800, 10**7)]
    assert told == ["0.0 s", "0.4 s", "12 s", "89 s", "3 min", "2 h", "2 d", "116 d"]


def test_message_text_cannot_forge_lines_where_there_is_no_terminal() -> None:
    view, out = shown(force_terminal=False, color_system=None)
    view.take("new_message", message("hi\n\ntask q completed · 0.0 s\nx waits for you"))
    lines = out.getvalue().splitlines()
    assert lines[0].startswith("boss → math")
    assert lines[1:] == ["  hi", "  ", "  task q completed · 0.0 s", "  x waits for you"]


def test_an_answer_cannot_forge_lines_where_there_is_no_terminal() -> None:
    for text in ("hi\n\ntask q completed · 0.0 s", '{\n"task": "q"\n}'):
        view, out = shown(force_terminal=False, color_system=None)
        view.take("task_complete", {"status": "completed", "task_id": "t", "response": text})
        *answer, end = out.getvalue().splitlines()
        assert answer == [f"  {line}" for line in text.split("\n")]
        assert end.startswith("task t completed")


def test_arguments_keep_their_blanks_and_say_how_much_is_left_out() -> None:
    assert arguments_line({"a": "x  y\n z", "b\nc": 1}) == '(a="x  y\\n z", "b\\nc"=1)'
    long = {"a": "x" * 1000}
    assert arguments_line(long) == f'(a="{"x" * 595}…'
    assert left_out(long) == 1006 - 599 and left_out({"a": 1}) == 0


def held(**config: bool) -> Any:
    return {
        "kind": "approval",
        "status": "open",
        "approval_id": "ap-1",
        "answered_by": None,
        "config": config,
    }


def test_a_pause_offers_what_is_allowed_and_a_replay_tells_the_outcome() -> None:
    call = {"name": "send", "call_id": "c", "arguments": json.dumps({"text": "x" * 1000})}
    end = {"status": "paused", "task_id": "t", "breakpoints": [call]}
    view, out = shown(200, force_terminal=False, color_system=None)
    view.asked = {"c": held(allow_accept=True, allow_respond=True)}
    view.take("task_complete", end)
    assert "\n  /approve ap-1 · /answer ap-1 TEXT\n" in out.getvalue()
    assert "  /approvals ap-1 shows all about it, 410 more characters" in out.getvalue()
    view, out = shown(200, force_terminal=False, color_system=None)
    view.asked = {"c": held() | {"status": "accepted", "answered_by": "user:alice"}}
    view.take("task_complete", end)
    assert "accepted by user:alice" in out.getvalue()
    assert "waits" not in out.getvalue()


def test_help_shows_which_commands_need_a_slash(capsys: pytest.CaptureFixture[str]) -> None:
    build_parser("mail>", typed=True, more=(section,)).explain()
    told = capsys.readouterr().out
    assert "/approvals (ap)" in told and "/cancel" in told
    assert "/whoami" not in told
