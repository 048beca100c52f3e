"""What a response repeats of its request fits OpenAI's types, whatever the server accepted."""

from typing import Any

import httpx
import pytest

from mail.client.client import MAILClient
from tests.responses_api.support import WEATHER
from tests.server.kit import TOKENS

NESTED = {"type": "function", "function": {"name": "f", "parameters": {}}}
NAMED = {"type": "function", "name": "get_weather"}
ONE_SCHEMA = {"type": "json_schema", "name": "a", "schema": {}}


@pytest.mark.parametrize(
    ("fields", "repeated"),
    [
        ({"tools": [{"type": "function", "name": "f"}]}, {"tools": [{"name": "f"}]}),
        ({"tools": [NESTED]}, {"tools": [{"name": "f", "parameters": {}}]}),
        (
            {
                "tools": [NESTED],
                "tool_choice": {"type": "function", "function": {"name": "f"}},
            },
            {"tool_choice": {"type": "function", "name": "f"}},
        ),
        (
            {"tools": [WEATHER], "tool_choice": {"type": "allowed_tools", "tools": [NAMED]}},
            {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [NAMED]}},
        ),
        ({"text": {"format": {}}}, {"text": {"format": {"type": "text"}}}),
        ({"text": {"verbosity": "low"}}, {"text": {"verbosity": "low"}}),
        ({"text": {"format": ONE_SCHEMA}}, {"text": {"format": ONE_SCHEMA}}),
    ],
)
async def test_the_typed_client_reads_what_was_accepted(
    http: httpx.AsyncClient, fields: dict[str, Any], repeated: dict[str, Any]
) -> None:
    async with MAILClient(str(http.base_url), TOKENS["alice"]) as client:
        response = await client.debug_post_responses("hello", **fields)
    shown = response.to_dict()
    assert contains(shown, repeated), shown


def contains(value: Any, part: Any) -> bool:
    """Tell whether a JSON value has a part, at the same place."""
    if isinstance(part, dict):
        return all(name in value and contains(value[name], part[name]) for name in part)
    if isinstance(part, list):
        pairs = zip(value, part, strict=True)
        return all(contains(whole, piece) for whole, piece in pairs)
    return bool(value == part)
