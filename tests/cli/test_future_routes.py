"""Commands for routes of other servers: what they send, and what they show of the answer."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from mail.cli.repl.parsing import build_parser, split
from mail.cli.repl.screen import Screen
from mail.cli.repl.session import Session, execute
from mail.client import MAILClient
from mail.config import ClientConfig
from tests.client import conftest as other_side
from tests.client.conftest import Counterpart

server = other_side.server

RESPONSE = {
    "id": "task-1",
    "created_at": 1.0,
    "model": "alpha",
    "object": "response",
    "output": [
        {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Sunny.", "annotations": []}],
        },
        {"type": "function_call", "call_id": "c1", "name": "pay", "arguments": "{}", "id": "c1"},
        {"type": "reasoning", "id": "r", "summary": []},
    ],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "status": "completed",
}

Do = Callable[[str], Awaitable[int]]


@pytest.fixture
async def do(server: Counterpart) -> AsyncIterator[Do]:
    """Return a function that carries out a typed line."""
    async with MAILClient(server.url, "key", config=ClientConfig(timeout=5)) as client:
        session = Session(client, Screen())
        parser = build_parser("mail>", typed=True)
        yield lambda line: execute(session, parser.read(split(line)))


CASES = [
    (
        "sr b http://b --public-key thumb",
        ("POST", "/swarms", {"status": "registered", "swarm_name": "b"}),
        {"name": "b", "base_url": "http://b", "volatile": False, "public_key": "thumb"},
        "swarm b registered\n",
    ),
    (
        "mi hello a@b,c@d token -t broadcast --json",
        ("POST", "/interswarm/message", {"response": {"id": "m"}}),
        {"body": "hello", "user_token": "token", "targets": ["a@b", "c@d"]}
        | {"msg_type": "broadcast"},
        '{\n  "response": {\n    "id": "m"\n  }\n}\n',
    ),
    (
        'responses \'[{"role":"user","content":"Plan"}]\' \'[]\' -i Short -pr task-0 '
        "--no-parallel-tool-calls -tc auto -k '{\"metadata\": {}}'",
        ("POST", "/responses", RESPONSE),
        {
            "input": [{"role": "user", "content": "Plan"}],
            "tools": [],
            "instructions": "Short",
            "previous_response_id": "task-0",
            "tool_choice": "auto",
            "parallel_tool_calls": False,
            "metadata": {},
        },
        "Sunny.\npay({})\n",
    ),
]


@pytest.mark.parametrize(("line", "route", "sent", "shown"), CASES, ids=[c[0][:20] for c in CASES])
async def test_a_command_sends_and_shows_what_is_documented(
    do: Do,
    server: Counterpart,
    capsys: pytest.CaptureFixture[str],
    line: str,
    route: tuple[str, str, Any],
    sent: Any,
    shown: str,
) -> None:
    server.answer(*route)
    open_calls = route[2] is RESPONSE
    assert await do(line) == (3 if open_calls else 0)
    body = server.seen[0][3]
    assert (body and {name: value for name, value in body.items() if value is not None}) == sent
    assert capsys.readouterr().out == shown


async def test_what_the_server_lacks_is_told_in_its_own_words(
    do: Do, server: Counterpart, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await do("swarms-get") == 1
    server.answer("POST", "/swarms/load", {"detail": "method not allowed"}, status=405)
    assert await do("sl '{}'") == 1
    assert capsys.readouterr().err.splitlines() == [
        "error getting swarms: HTTP request failed with status code 404: Not Found",
        "error loading swarm from JSON: HTTP request failed with status code 405: "
        "method not allowed",
    ]


async def test_an_answer_that_is_no_response_is_told(
    do: Do, server: Counterpart, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answer("POST", "/responses", {"id": 1})
    assert await do("responses '[]' '[]'") == 1
    assert "error posting responses: " in capsys.readouterr().err


async def test_an_old_server_and_an_odd_answer_do_no_harm(
    do: Do, server: Counterpart, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answer("GET", "/", {"name": "mail", "swarm": "alpha", "protocol_version": "1.3"})
    assert await do("ping") == 0
    server.answer("POST", "/message", {"response": "hi", "events": None})
    assert await do("message hello") == 0
    assert capsys.readouterr().out == "pong: mail (protocol 1.3), swarm alpha\nhi\n"
    server.answer("POST", "/message", {"response": "x", "events": [{"odd": 1}]})
    assert await do("message hello") == 1
    assert "error posting message: KeyError" in capsys.readouterr().err
