"""The fake provider itself: what it refuses, what it records, and as a process of its own."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.llm.support import TOOL
from tests.support.provider import FakeProvider, Fault, problems_of

USER = {"role": "user", "content": "hi"}


def called(arguments: str = "{}") -> dict[str, Any]:
    function = {"name": "look_up", "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "a", "type": "function", "function": function}],
    }


RESULT = {"role": "tool", "tool_call_id": "a", "content": "ok"}


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"messages": []}, "at least one entry"),
        ({"messages": [USER, called()]}, "have no results"),
        ({"messages": [called(), USER, RESULT]}, "no results before this message"),
        ({"messages": [RESULT]}, "must follow the call"),
        ({"messages": [called(), RESULT, RESULT]}, "must follow the call"),
        ({"messages": [called("{"), RESULT]}, "no JSON object"),
        ({"messages": [USER, {"role": "system", "content": "x"}]}, "must be the first"),
        ({"messages": [USER | {"thinking_blocks": []}]}, "unknown parameter"),
        ({"messages": [{"role": "user", "content": ""}]}, "'content' must be a string"),
        ({"messages": [USER], "tool_choice": "auto"}, "only allowed with 'tools'"),
        ({"messages": [USER], "tools": [TOOL, TOOL]}, "two tools are named"),
        (
            {
                "messages": [USER],
                "tools": [TOOL],
                "tool_choice": {"type": "function", "name": "look_up"},
            },
            "must name a function",
        ),
        ({"messages": [USER], "tools": [{"type": "function", "name": "flat"}]}, "no function"),
    ],
)
def test_it_refuses_what_a_real_provider_refuses(body: dict[str, Any], problem: str) -> None:
    assert any(problem in found for found in problems_of({"model": "m"} | body))


def test_it_accepts_a_proper_history() -> None:
    messages = [{"role": "system", "content": "s"}, USER, called(), RESULT, USER, USER]
    assert problems_of({"model": "m", "messages": messages, "tools": [TOOL]}) == []


async def test_it_answers_plainly_and_records_requests(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    async with FakeProvider(log=log, key="k") as provider, httpx.AsyncClient() as client:
        url = f"{provider.base_url}/chat/completions"
        body = {"model": "m", "messages": [USER]}
        headers = {"Authorization": "Bearer k"}
        provider.faults.extend([None, Fault(status=429, retry_after=3)])
        replies = [await client.post(url, json=body, headers=headers) for _ in range(2)]
        replies.append(await client.post(url, json=body))
        await provider.ended(3)
    assert [reply.status_code for reply in replies] == [200, 429, 401]
    assert replies[0].json()["choices"][0]["message"]["content"] == "hi"
    assert replies[1].headers["Retry-After"] == "3"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["event"] for line in lines] == ["request", "end"] * 3
    assert len({line["digest"] for line in lines}) == 1
    assert [line["outcome"] for line in lines[1::2]] == ["complete", "fault", "refused"]


@pytest.mark.parametrize("path", ["responses", "messages"])
async def test_its_log_is_the_same_in_every_format(tmp_path: Path, path: str) -> None:
    log = tmp_path / "log.jsonl"
    async with FakeProvider(log=log) as provider, httpx.AsyncClient() as client:
        body: dict[str, Any] = {"model": "m", "input": [USER], "instructions": "Be brief."}
        if path == "messages":
            body = {"model": "m", "messages": [USER], "system": "Be brief.", "max_tokens": 99}
        headers = {"anthropic-version": "2023-06-01"}
        for prefix in (provider.root_url, provider.base_url):
            reply = await client.post(f"{prefix}/{path}", json=body, headers=headers)
            assert reply.status_code == 200, reply.text
    request, end, *_ = [json.loads(line) for line in log.read_text().splitlines()]
    assert (request["roles"], request["messages"], request["system"]) == (["user"], 1, "Be brief.")
    assert (end["status"], end["outcome"], end["digest"]) == (200, "complete", request["digest"])


def test_it_runs_as_a_process_of_its_own(tmp_path: Path) -> None:
    port_file, log = tmp_path / "port", tmp_path / "log"
    command = [sys.executable, "-m", "tests.support.provider", "--port-file", str(port_file)]
    process = subprocess.Popen([*command, "--log", str(log)])
    try:
        while not port_file.exists():
            assert process.poll() is None
            time.sleep(0.02)
        reply = httpx.post(
            f"http://127.0.0.1:{port_file.read_text()}/v1/chat/completions",
            json={"model": "m", "messages": [USER]},
        )
    finally:
        process.terminate()
    assert reply.json()["choices"][0]["message"]["content"] == "hi"
    assert process.wait(10) == 0
    assert json.loads(log.read_text().splitlines()[0])["event"] == "request"
