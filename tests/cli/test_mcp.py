"""``mail mcp``: the tools on standard input and output, and what to type for known clients."""

import json
import os
import shlex
import sys
from pathlib import Path

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from mail.mcp.tools import tools_of
from tests.cli.terminal import Done, run
from tests.server.kit import TOKENS


def command(*words: str, token: str = TOKENS["alice"]) -> StdioServerParameters:
    environ = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "mail.cli", "mcp", *words],
        env=environ | {"MAIL_API_KEY": token},
    )


async def test_the_same_tools_over_standard_input_and_output(server: str) -> None:
    async with Client(stdio_client(command(server, "--tools", "tasks"))) as mcp:
        names = [tool.name for tool in (await mcp.list_tools()).tools]
        assert names == list(tools_of(["tasks"]))
        answer = await mcp.call_tool("submit_task", {"message": "hi"})
        assert answer.structured_content["answer"] == "You said: hi"


async def test_a_token_that_is_refused_is_told_at_once(server: str) -> None:
    code, out, err = await mail("mcp", server, MAIL_API_KEY="mail_wrong")
    assert code == 1 and not out and err == f"mail: {server} refuses the token: invalid API key\n"


async def test_a_server_that_is_away_is_named() -> None:
    async with Client(stdio_client(command("http://127.0.0.1:9"))) as mcp:
        answer = await mcp.call_tool("list_tasks", {})
        assert answer.is_error and "cannot be reached" in answer.content[0].text


async def mail(*words: str, **environ: str) -> Done:
    return await run(Path("/"), *words, **environ)


async def test_what_to_type_for_the_clients_in_common_use() -> None:
    code, out, _ = await mail("mcp", "config", "http://localhost:8000", MAIL_API_KEY="mail_secret")
    assert code == 0 and "mail_secret" not in out
    claude, codex, vscode, stdio = [line for line in out.splitlines() if line and line[0] != "#"]
    address = "http://localhost:8000/mcp"
    assert shlex.split(claude)[:7] == [
        "claude",
        "mcp",
        "add",
        "--transport",
        "http",
        "mail",
        address,
    ]
    assert address in shlex.split(codex) and "MAIL_API_KEY" in shlex.split(codex)
    assert json.loads(shlex.split(vscode)[2])["url"] == address
    server = json.loads(stdio)["mcpServers"]["mail"]
    assert [server["command"], *server["args"]] == ["mail", "mcp", "http://localhost:8000"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "give the server's URL"),
        (("http://a", "http://b"), "'http://a' is too much"),
        (("confg", "http://a"), "Did you mean 'config'?"),
        (("http://127.0.0.1:9",), "there is no token"),
        (("http://127.0.0.1:9", "--tools", "tsaks"), "unknown profile 'tsaks'"),
        (("ftp://a",), "http"),
    ],
)
async def test_wrong_starts_are_one_line(words: tuple[str, ...], said: str) -> None:
    code, out, err = await mail("mcp", *words)
    assert code == 2 and not out and err.startswith("mail: ") and said in err
    assert err.count("\n") == 1
