"""What later requests do to a response that runs, or whose end nobody has waited for."""

from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI, BadRequestError

from tests.responses.support import WEATHER, Office
from tests.server.kit import bearer

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
