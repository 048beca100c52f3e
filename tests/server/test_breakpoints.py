"""Resuming over HTTP and through `mail.client.MAILClient`: the same payloads, the same refusals."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from mail.client import MAILClient
from mail.config import ClientConfig
from mail.db.memory import MemoryStore
from mail.errors import ClientHTTPError
from mail.server.app import create_app
from mail.testing import tool_calls
from tests.server.kit import TOKENS, Template, bearer, config, frames, serving

TASK = "t-1"


async def consult(messages: list[dict[str, Any]], tool_choice: Any) -> Any:
    """Pause on as many calls as the message has words, then finish with their results."""
    results = [m["content"] for m in messages if m.get("role") == "tool"]
    if results:
        done = ("task_complete", {"finish_message": " | ".join(results)})
        return None, tool_calls(done, prefix="done")
    words = str(messages[-1]["content"]).split("<body>")[1].split("</body>")[0].split()
    arguments = {"target": "supervisor", "subject": "s"}
    calls = [("send_interrupt", {**arguments, "body": word}) for word in words]
    return None, tool_calls(*calls, prefix="ask")


@pytest.fixture
async def client(store: MemoryStore) -> AsyncIterator[httpx.AsyncClient]:
    template: Any = Template(consult, breakpoint_tools=["send_interrupt"])  # type: ignore[arg-type]
    async with serving(create_app(config(), template=template, store=store)) as client:
        client.headers.update(bearer("alice"))
        yield client


async def pause(client: httpx.AsyncClient, words: str) -> None:
    answer = (await client.post("/message", json={"body": words, "task_id": TASK})).json()
    assert answer["status"] == "paused"
    assert [call["call_id"] for call in answer["breakpoints"]] == [
        f"ask_{index}" for index in range(len(words.split()))
    ]


async def resume(client: httpx.AsyncClient, payload: object, **more: Any) -> httpx.Response:
    body = {
        "task_id": TASK,
        "resume_from": "breakpoint_tool_call",
        "kwargs": {"breakpoint_tool_call_result": payload},
    }
    return await client.post("/message", json=body | more)


SINGLE = [
    "yes",
    {"content": "yes"},
    {"call_id": "ask_0", "content": "yes"},
    [{"call_id": "ask_0", "content": "yes"}],
]


@pytest.mark.parametrize("payload", [*SINGLE, *map(json.dumps, SINGLE[1:])], ids=str)
async def test_one_call_is_answered_in_every_shape(client, payload: object) -> None:
    await pause(client, "one")
    answer = await resume(client, payload)
    assert answer.status_code == 200
    assert (answer.json()["response"], answer.json()["status"]) == ("yes", "completed")
    assert answer.json()["breakpoints"] == []


async def test_parallel_calls_are_answered_at_once_and_in_parts(client) -> None:
    await pause(client, "one two three")
    some = [{"call_id": f"ask_{index}", "content": index} for index in (2, 0)]
    half = (await resume(client, json.dumps(some))).json()
    assert half["status"] == "paused" and json.loads(half["response"]) == half["breakpoints"]
    assert [json.loads(call["arguments"])["body"] for call in half["breakpoints"]] == ["two"]
    whole = (await resume(client, {"content": {"n": 1}})).json()
    assert (whole["status"], whole["response"]) == ("completed", '2 | 0 | {"n": 1}')


async def test_a_resume_streams_its_own_run_only(client) -> None:
    await pause(client, "one two")
    payload = {"call_id": "ask_0", "content": "a"}
    first = frames((await resume(client, payload, stream=True)).text)
    assert [event["event"] for event in first] == ["breakpoint_action_complete", "task_complete"]
    last = json.loads(first[-1]["data"])
    assert last["status"] == "paused" and len(last["breakpoints"]) == 1
    second = frames((await resume(client, "b", stream=True)).text)
    assert second[0]["event"] == "breakpoint_action_complete"
    assert json.loads(second[-1]["data"])["response"] == "a | b"
    assert int(second[0]["id"]) == int(first[-1]["id"]) + 1


@pytest.mark.parametrize(
    ("payload", "status", "problem"),
    [
        ("for whom?", 400, "open calls: 'ask_0', 'ask_1'"),
        ({"content": "x"}, 400, "open calls: 'ask_0', 'ask_1'"),
        ({"call_id": "no", "content": "x"}, 400, "'no'; open calls: 'ask_0', 'ask_1'"),
        ([{"call_id": "ask_0", "content": "x"}] * 2, 400, "two results for the call 'ask_0'"),
        (7, 400, "must be a string, an object"),
        (None, 400, "breakpoint_tool_call_result is required"),
    ],
    ids=str,
)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_wrong_resume_is_refused_before_anything_starts(
    client, payload: object, status: int, problem: str, stream: bool
) -> None:
    await pause(client, "one two")
    refused = await resume(client, payload, stream=stream)
    assert refused.status_code == status
    assert problem in refused.json()["detail"]
    task = (await client.get("/task", params={"task_id": TASK})).json()
    assert [call["call_id"] for call in task["breakpoints"]] == ["ask_0", "ask_1"]


async def test_repeats_races_and_late_answers_are_409(client) -> None:
    await pause(client, "one")
    payload = {"call_id": "ask_0", "content": "yes"}
    answers = await asyncio.gather(*(resume(client, payload) for _ in range(5)))
    assert sorted(answer.status_code for answer in answers) == [200, 409, 409, 409, 409]
    [refused, *_] = [answer for answer in answers if answer.status_code == 409]
    assert "'ask_0' already has a result; open calls: none" in refused.json()["detail"]
    late = await resume(client, "yes")
    assert late.status_code == 409 and "the task is completed" in late.json()["detail"]
    log = frames((await client.get(f"/tasks/{TASK}/events")).text)
    assert [event["event"] for event in log].count("breakpoint_action_complete") == 1


async def test_a_resume_of_an_unknown_task_is_404(client) -> None:
    assert (await resume(client, "yes")).status_code == 404


@pytest.mark.parametrize("payload", [*SINGLE, json.dumps(SINGLE[2])], ids=str)
async def test_the_client_resumes(client, payload: Any) -> None:
    options = ClientConfig(timeout=10.0, verbose=False)
    async with MAILClient(str(client.base_url), TOKENS["alice"], config=options) as mail:
        paused = await mail.post_message("one", task_id=TASK)
        assert paused["breakpoints"][0]["call_id"] == "ask_0"
        resume_from = "breakpoint_tool_call"
        with pytest.raises(ClientHTTPError, match="open calls: 'ask_0'"):
            await mail.post_message(
                "",
                task_id=TASK,
                resume_from=resume_from,
                breakpoint_tool_call_result={"call_id": "no", "content": "x"},
            )
        stream = await mail.post_message_stream(
            "", task_id=TASK, resume_from=resume_from, breakpoint_tool_call_result=payload
        )
        last = [event async for event in stream][-1]
        assert json.loads(str(last.data))["response"] == "yes"
