"""Responses, open calls and lent tools survive a restart of the server."""

from pathlib import Path
from typing import Any

from openai import AsyncOpenAI

from mail.auth.callers import hash_token
from mail.db.records import TokenRow
from mail.db.urls import open_store
from mail.server.app import create_app
from tests.responses_api.support import DEBUG, WEATHER, Office
from tests.server.kit import CALLERS, TOKENS, serving


async def test_a_call_is_answered_after_a_restart(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/mail.db"
    answers: list[Any] = []
    offices = Office(), Office()
    for office in offices:
        store = open_store(url)
        await store.open()
        role, identifier = CALLERS["alice"]
        await store.put_token(
            TokenRow(hash_token(TOKENS["alice"]), role, identifier, "2026-01-01T00:00:00+00:00")
        )
        app = create_app(DEBUG, template=office.template, store=store)
        async with serving(app) as http:
            base = f"{str(http.base_url).rstrip('/')}/v1"
            async with AsyncOpenAI(base_url=base, api_key=TOKENS["alice"]) as openai:
                answers.append(await _ask(openai, answers))
                read = await openai.responses.retrieve(answers[0].id)
                assert read.to_dict() == answers[0].to_dict()
        await store.close()
    assert answers[1].output_text == "It is cold."


async def _ask(openai: AsyncOpenAI, answers: list[Any]) -> Any:
    if not answers:
        tools: Any = [WEATHER]
        return await openai.responses.create(model="m", input="The weather in Oslo?", tools=tools)
    [asked] = answers[0].output
    return await openai.responses.create(
        model="m",
        input=[{"type": "function_call_output", "call_id": asked.call_id, "output": "cold"}],
        previous_response_id=answers[0].id,
    )


async def test_a_running_response_keeps_its_tools_over_a_restart(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/mail.db"
    first, second = Office(), Office()
    second.desk.gate.set()
    made: Any = None
    for office in (first, second):
        store = open_store(url)
        await store.open()
        role, identifier = CALLERS["alice"]
        await store.put_token(
            TokenRow(hash_token(TOKENS["alice"]), role, identifier, "2026-01-01T00:00:00+00:00")
        )
        app = create_app(DEBUG, template=office.template, store=store)
        async with serving(app) as http:
            base = f"{str(http.base_url).rstrip('/')}/v1"
            async with AsyncOpenAI(base_url=base, api_key=TOKENS["alice"]) as openai:
                if made is None:
                    tools: Any = [WEATHER]
                    made = await openai.responses.create(
                        model="m", input="hang: The weather in Oslo?", tools=tools, background=True
                    )
                    await office.desk.entered.wait()
                else:
                    headers = {"Authorization": f"Bearer {TOKENS['alice']}"}
                    path = f"/tasks/{made.to_dict()['task_id']}/events"
                    await http.get(path, headers=headers)  # ends when the task rests
                    read = await openai.responses.retrieve(made.id)
        await store.close()
    assert [(item.name, item.arguments) for item in read.output] == [
        ("get_weather", '{"city":"Oslo"}')
    ]
