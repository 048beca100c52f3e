"""What later requests do to a response that runs, or whose end nobody has waited for."""

from collections import Counter
from dataclasses import replace
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI, BadRequestError

from mail.core.tasks import TaskState
from mail.db.calls import CallRow
from mail.db.commit import Commit
from mail.db.memory import MemoryStore
from mail.db.records import Owner, TaskRow
from mail.responses_api.bridge import MAX_LOOKED_UP
from mail.responses_api.records import Records
from tests.responses_api.support import PER_CALL, WEATHER, Office
from tests.server.kit import CALLERS, bearer

WITH_TOOL: Any = {"model": "m", "tools": [WEATHER]}


async def ended(http: httpx.AsyncClient, response: Any) -> None:
    """Wait for the end of a response's task, without a look at the response."""
    await http.get(f"/tasks/{response.to_dict()['task_id']}/events", headers=bearer("alice"))


async def test_a_second_request_leaves_a_running_one_its_tools(
    openai: AsyncOpenAI, http: httpx.AsyncClient, office: Office
) -> None:
    first = await openai.responses.create(
        **WITH_TOOL, input="hang: The weather in Oslo?", background=True
    )
    await office.desk.entered.wait()
    with pytest.raises(BadRequestError, match="still in progress") as refused:
        await openai.responses.create(model="m", input="more", previous_response_id=first.id)
    assert refused.value.param == "previous_response_id"
    office.desk.gate.set()
    await ended(http, first)
    read = await openai.responses.retrieve(first.id)
    assert [item.type for item in read.output] == ["function_call"]


async def test_an_unseen_end_is_read_from_its_own_run(
    openai: AsyncOpenAI, http: httpx.AsyncClient
) -> None:
    first = await openai.responses.create(model="m", input="one", background=True)
    await ended(http, first)
    second = await openai.responses.create(
        model="m", input="two", previous_response_id=first.id, background=True
    )
    await ended(http, second)
    message = {"body": "three", "task_id": first.to_dict()["task_id"]}
    assert (await http.post("/message", headers=bearer("alice"), json=message)).is_success
    for made, said in ((first, "one"), (second, "two")):
        read = await openai.responses.retrieve(made.id)
        assert (read.status, read.output_text) == ("completed", f"You said: {said}")
        assert read.usage is not None
        assert read.usage.total_tokens == PER_CALL.total_tokens


async def test_a_conversation_does_not_branch_before_an_unseen_end(
    openai: AsyncOpenAI, http: httpx.AsyncClient
) -> None:
    first = await openai.responses.create(model="m", input="one")
    second = await openai.responses.create(
        model="m", input="two", previous_response_id=first.id, background=True
    )
    await ended(http, second)
    with pytest.raises(BadRequestError, match=f"continue with '{second.id}'"):
        await openai.responses.create(model="m", input="three", previous_response_id=first.id)


async def test_cancelling_a_response_that_has_ended_leaves_the_later_one_alone(
    openai: AsyncOpenAI, http: httpx.AsyncClient, office: Office
) -> None:
    first = await openai.responses.create(model="m", input="one", background=True)
    await ended(http, first)
    second = await openai.responses.create(
        model="m", input="hang on", previous_response_id=first.id, background=True
    )
    await office.desk.entered.wait()
    assert (await openai.responses.retrieve(first.id)).output_text == "You said: one"
    with pytest.raises(BadRequestError, match="Cannot cancel a completed response"):
        await openai.responses.cancel(first.id)
    assert (await openai.responses.retrieve(second.id)).status == "in_progress"
    assert (await openai.responses.cancel(second.id)).status == "cancelled"


async def test_a_record_without_its_runs_number_cancels_no_later_response(
    openai: AsyncOpenAI, http: httpx.AsyncClient, office: Office, store: MemoryStore
) -> None:
    first = await openai.responses.create(model="m", input="one", background=True)
    await ended(http, first)
    records = Records(store, Owner("test-swarm", "user", CALLERS["alice"][1]))
    old = await records.load(first.id)
    assert old is not None
    second = await openai.responses.create(
        model="m", input="hang on", previous_response_id=first.id, background=True
    )
    await office.desk.entered.wait()
    await records.end(replace(old, began=0))
    with pytest.raises(BadRequestError, match=f"cancel '{second.id}'"):
        await openai.responses.cancel(first.id)
    assert (await openai.responses.retrieve(second.id)).status == "in_progress"


async def test_the_calls_of_an_unseen_pause_can_be_answered(
    openai: AsyncOpenAI, http: httpx.AsyncClient
) -> None:
    first = await openai.responses.create(
        **WITH_TOOL, input="The weather in Oslo?", background=True
    )
    await ended(http, first)
    task_id = first.to_dict()["task_id"]
    task = await http.get("/task", headers=bearer("alice"), params={"task_id": task_id})
    [call] = task.json()["breakpoints"]
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "cold"}
    stranger = await http.post("/responses", headers=bearer("bob"), json={"input": [output]})
    assert stranger.status_code == 400
    done = await openai.responses.create(model="m", input=[output])  # type: ignore[list-item]
    assert done.output_text == "It is cold."
    read = await openai.responses.retrieve(first.id)
    assert [item.to_dict()["call_id"] for item in read.output] == [call["call_id"]]


@pytest.mark.parametrize("told", [False, True], ids=["results", "calls and results"])
async def test_results_of_unknown_calls_cost_a_bounded_number_of_reads(
    http: httpx.AsyncClient, store: MemoryStore, monkeypatch: pytest.MonkeyPatch, told: bool
) -> None:
    owner = Owner("test-swarm", "user", CALLERS["alice"][1])
    for number in range(50):
        task = TaskRow(f"t-{number}", "user:alice@test-swarm", (), "", "desk", TaskState.PAUSED)
        call = CallRow("desk", f"call-{number}", "{}", "{}")
        await store.commit(Commit(owner=owner, task=task, new=True, calls=(call,)))
    reads: Counter[str] = Counter()

    def counted(name: str) -> None:
        read = getattr(store, name)

        async def count(*args: Any, **more: Any) -> Any:
            reads[name] += 1
            return await read(*args, **more)

        monkeypatch.setattr(store, name, count)

    for name in ("get_memory", "paused_on", "calls"):
        counted(name)
    items: list[dict[str, str]] = []
    for number in range(1000):
        call_id = f"unknown-{number if number % 2 else 1}"
        if told:
            call = {"call_id": call_id, "id": f"item-{number}", "name": "f", "arguments": "{}"}
            items.append({"type": "function_call", **call})
        items.append({"type": "function_call_output", "call_id": call_id, "output": "x"})
    items.append({"type": "function_call_output", "call_id": "unknown", "output": "x"})
    refused = await http.post("/v1/responses", headers=bearer("alice"), json={"input": items})
    assert refused.status_code == 400
    assert "No tool call found" in refused.json()["detail"]
    assert reads["get_memory"] <= 2 * MAX_LOOKED_UP
    assert reads["paused_on"] == 1
    assert reads["calls"] == 0
