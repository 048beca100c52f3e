"""What `/responses` refuses, and how: statuses and bodies that OpenAI's SDK understands."""

from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI, AuthenticationError, BadRequestError, PermissionDeniedError

from mail.config.server import LimitsConfig, OpenAIConfig, SettingsConfig
from mail.db.memory import MemoryStore
from mail.db.records import Owner
from mail.server.app import create_app
from tests.responses_api.support import DEBUG, WEATHER, Office
from tests.server.kit import TOKENS, bearer, config, serving

USER = {"role": "user", "content": "hello"}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "x"}
SCHEMA = {"type": "json_schema", "name": "answer", "schema": {"type": "object"}}
WRONG: list[tuple[dict[str, Any], str | None, str]] = [
    ({}, "input", "Missing required parameter"),
    ({"input": None}, "input", "Missing required parameter"),
    ({"input": ""}, "input", "must not be empty"),
    ({"input": " "}, "input", "must not be empty"),
    ({"input": []}, "input", "must not be empty"),
    ({"input": 7}, "input", "Invalid value"),
    ({"input": ["hello"]}, "input[0]", "expected an object"),
    ({"input": [USER, {"role": "robot", "content": "x"}]}, "input[1].role", "robot"),
    ({"input": [{"role": "user"}]}, "input[0].content", "expected a string"),
    ({"input": [{"role": "user", "content": [7]}]}, "input[0].content[0]", "part with text"),
    (
        {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
        "input[0].content[0].type",
        "input_image",
    ),
    ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type", "item_reference"),
    ({"input": [{"role": "system", "content": "be kind"}]}, "input", "no message"),
    ({"input": [OUTPUT]}, "input", "No tool call found for function call output with call_id"),
    ({"input": [{**OUTPUT, "output": None}]}, "input[0].output", "Missing required parameter"),
    ({"input": [{**OUTPUT, "call_id": 3}]}, "input[0].call_id", "must be a string"),
    ({"input": "x", "tools": {}}, "tools", "list"),
    ({"input": "x", "tools": [{"type": "function", "name": "f"}] * 129}, "tools", "at most 128"),
    ({"input": "x", "tools": ["get_weather"]}, "tools[0]", "must be an object"),
    ({"input": "x", "tools": [{"type": "web_search"}]}, "tools[0].type", "web_search"),
    ({"input": "x", "tools": [{"type": "function"}]}, "tools[0].name", "is missing"),
    ({"input": "x", "tools": [{**WEATHER, "name": "a b"}]}, "tools[0].name", "1 to 64"),
    ({"input": "x", "tools": [WEATHER, WEATHER]}, None, "needs a unique name"),
    ({"input": "x", "tools": [{**WEATHER, "name": "task_complete"}]}, None, "has a tool"),
    ({"input": "x", "tools": [{**WEATHER, "parameters": []}]}, "tools[0].parameters", "object"),
    ({"input": "x", "tool_choice": "sometimes"}, "tool_choice", "sometimes"),
    ({"input": "x", "tool_choice": "required"}, "tool_choice", "needs 'tools'"),
    (
        {"input": "x", "tool_choice": {"type": "function", "name": "f"}},
        "tool_choice.name",
        "not found in 'tools'",
    ),
    ({"input": "x", "tool_choice": {"type": "mcp"}}, "tool_choice.type", "mcp"),
    ({"input": "x", "parallel_tool_calls": "no"}, "parallel_tool_calls", "true or false"),
    ({"input": "x", "stream": "yes"}, "stream", "true or false"),
    ({"input": "x", "instructions": ["be kind"]}, "instructions", "string"),
    ({"input": "x", "metadata": {"a": 1}}, "metadata.a", "string"),
    ({"input": "x", "metadata": {str(n): "" for n in range(17)}}, "metadata", "16"),
    ({"input": "x", "metadata": {str(n): 1 for n in range(17)}}, "metadata", "at most 16"),
    ({"input": "x", "conversation": "conv_1"}, "conversation", "previous_response_id"),
    ({"input": "x", "text": {"format": "json"}}, "text.format", "object"),
    ({"input": "x", "text": {"format": {"type": "xml"}}}, "text.format.type", "json_schema"),
    ({"input": "x", "text": {"verbosity": "bogus"}}, "text.verbosity", "'low', 'medium'"),
    ({"input": "x", "text": {"format": {**SCHEMA, "name": "é"}}}, "text.format.name", "1 to 64"),
    ({"input": "x", "text": {"format": {**SCHEMA, "schema": 1}}}, "text.format.schema", "object"),
    (
        {"input": "x", "text": {"format": {**SCHEMA, "strict": 1}}},
        "text.format.strict",
        "true or false",
    ),
    (
        {"input": "x", "text": {"format": {**SCHEMA, "description": 1}}},
        "text.format.description",
        "string",
    ),
    ({"input": "x", "tools": [{**WEATHER, "description": 5}]}, "tools[0].description", "string"),
    ({"input": "x", "tools": [{**WEATHER, "strict": "yes"}]}, "tools[0].strict", "true or false"),
    (
        {"input": "x", "tools": [{**WEATHER, "parameters": {"type": "string"}}]},
        "tools[0].parameters.type",
        "object",
    ),
    (
        {"input": "x", "tools": [{**WEATHER, "parameters": {"properties": 5}}]},
        "tools[0].parameters.properties",
        "object",
    ),
    (
        {
            "input": "x",
            "tools": [WEATHER],
            "tool_choice": {"type": "allowed_tools", "mode": "none", "tools": [WEATHER]},
        },
        "tool_choice.mode",
        "Invalid value",
    ),
    ({"input": "x", "stream": True, "background": True}, "stream", "poll"),
    ({"input": "x", "store": False, "background": True}, "store", "stored"),
    ({"input": "x", "kwargs": {"max_steps": 0}}, "kwargs.max_steps", "at least 1"),
    (
        {"input": "x", "previous_response_id": "resp_unknown"},
        "previous_response_id",
        "'resp_unknown' not found",
    ),
    ({"input": "x", "previous_response_id": "\x00" * 200}, "previous_response_id", "not found"),
]


async def test_wrong_requests_are_400_and_start_nothing(
    http: httpx.AsyncClient, office: Office
) -> None:
    for body, param, text in WRONG:
        answer = await http.post("/v1/responses", headers=bearer("alice"), json=body)
        found = answer.json()
        assert answer.status_code == 400, (body, found)
        assert set(found) == {"error", "detail"}
        error = found["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["type"] == "invalid_request_error"
        assert text in error["message"], (body, found)
        assert found["detail"] == error["message"]
        assert error["param"] == param, (body, found)
    assert office.model.requests == []
    tasks = await http.get("/tasks", headers=bearer("alice"))
    assert tasks.json() == {}


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"input": "\xff"}', b'{"input": NaN}'])
async def test_a_body_that_is_no_json_object_is_400(http: httpx.AsyncClient, body: bytes) -> None:
    answer = await http.post("/responses", headers=bearer("alice"), content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("settings", "kwargs", "status", "kind"),
    [
        ({"task_token_limit": 150}, {}, 402, "insufficient_quota"),
        ({}, {"timeout": 0.01}, 504, "server_error"),
    ],
)
async def test_a_run_that_was_begun_is_not_tried_again(
    store: MemoryStore,
    office: Office,
    settings: dict[str, Any],
    kwargs: dict[str, Any],
    status: int,
    kind: str,
) -> None:
    limits = SettingsConfig(print_llm_streams=False, **settings)
    app = create_app(
        DEBUG.model_copy(update={"settings": limits}), template=office.template, store=store
    )
    text = "ask the clerk" if settings else "hang on"
    async with serving(app) as http:
        body = {"input": text, "kwargs": kwargs}
        answer = await http.post("/v1/responses", headers=bearer("alice"), json=body)
    assert (answer.status_code, answer.json()["error"]["type"]) == (status, kind)
    assert answer.headers["x-should-retry"] == "false"


async def test_open_calls_want_their_results_first(openai: AsyncOpenAI) -> None:
    made = await openai.responses.create(
        model="m",
        input="The weather in Oslo?",
        tools=[WEATHER],  # type: ignore[list-item]
    )
    with pytest.raises(BadRequestError, match="No tool output found for function call"):
        await openai.responses.create(model="m", input="well?", previous_response_id=made.id)
    with pytest.raises(BadRequestError, match="call_id call_1"):
        await openai.responses.create(
            model="m",
            input=[OUTPUT],  # type: ignore[list-item]
            previous_response_id=made.id,
        )
    call_id = made.output[0].call_id  # type: ignore[union-attr]
    answer: Any = [{**OUTPUT, "call_id": call_id}]
    done = await openai.responses.create(model="m", input=answer, previous_response_id=made.id)
    with pytest.raises(BadRequestError, match=f"call_id {call_id}"):
        await openai.responses.create(model="m", input=answer, previous_response_id=done.id)
    with pytest.raises(BadRequestError, match=f"call_id {call_id}"):
        await openai.responses.create(model="m", input=answer)


async def test_who_may_not_is_told_in_the_sdks_shape(http: httpx.AsyncClient) -> None:
    base = f"{str(http.base_url).rstrip('/')}/v1"
    async with AsyncOpenAI(base_url=base, api_key="wrong") as stranger:
        with pytest.raises(AuthenticationError) as unknown:
            await stranger.responses.create(model="m", input="hello")
        assert unknown.value.code == "invalid_api_key"
        assert unknown.value.response.headers["www-authenticate"] == "Bearer"
    async with AsyncOpenAI(base_url=base, api_key=TOKENS["swarm"]) as peer:
        with pytest.raises(PermissionDeniedError, match="invalid role"):
            await peer.responses.create(model="m", input="hello")
    for method, path in (("GET", "/x"), ("DELETE", "/x"), ("POST", "/x/cancel")):
        answer = await http.request(method, f"/v1/responses{path}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")


@pytest.mark.parametrize(
    ("enabled", "prefixes"), [(True, ["", "/v2"]), (False, ["", "/v1"])], ids=["usual", "off"]
)
async def test_routes_that_are_not_served_are_404(
    store: MemoryStore, office: Office, enabled: bool, prefixes: list[str]
) -> None:
    settings = config().model_copy(update={"openai": OpenAIConfig(enabled=enabled)})
    async with serving(create_app(settings, template=office.template, store=store)) as client:
        for prefix in prefixes:
            for method, path in (
                ("POST", ""),
                ("GET", "/x"),
                ("DELETE", "/x"),
                ("POST", "/x/cancel"),
            ):
                answer = await client.request(method, f"{prefix}/responses{path}", json={})
                assert answer.status_code == 404
                assert answer.json() == {"detail": "not found", "errors": []}


async def test_whatever_is_wrong_below_v1_has_the_sdks_shape(http: httpx.AsyncClient) -> None:
    big = b"x" * (LimitsConfig().max_body_bytes + 1)
    asked: list[tuple[str, str, int, dict[str, Any]]] = [
        ("GET", "/v1/nowhere", 404, {}),
        ("GET", "/v1/", 404, {}),
        ("PATCH", "/v1/responses", 405, {}),
        ("POST", "/v1/responses", 413, {"content": big}),
        ("POST", "/v1/responses", 415, {"headers": {"Content-Encoding": "gzip"}}),
        ("GET", "/v1/models/nothing", 404, {}),
    ]
    for method, path, status, more in asked:
        headers = bearer("alice") | more.pop("headers", {})
        answer = await http.request(method, path, headers=headers, **more)
        assert answer.status_code == status, (path, answer.text)
        error = answer.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["message"] == answer.json()["detail"]
        assert error["type"] == "invalid_request_error"
    assert (await http.get("/nowhere")).json() == {"detail": "not found", "errors": []}


async def test_a_stored_response_is_not_streamed(http: httpx.AsyncClient) -> None:
    answer = await http.get("/v1/responses/x?stream=true", headers=bearer("alice"))
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "stream")


async def test_who_stores_as_much_as_one_may_can_still_answer_a_paused_task(
    store: MemoryStore, office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = create_app(config(), template=office.template, store=store)
    async with serving(app) as client:

        async def ask(**body: Any) -> httpx.Response:
            asked = {"tools": [WEATHER]} | body
            return await client.post("/v1/responses", json=asked, headers=bearer("alice"))

        first = (await ask(input="The weather in Oslo?")).json()
        [called] = [item for item in first["output"] if item["type"] == "function_call"]
        used = await store.stored_use(Owner("test-swarm", "user", "alice"))
        monkeypatch.setattr(app.state.mail.shares, "_most", used.bytes * 4 // 5)
        refused = await ask(input="hello")
        assert refused.status_code == 507
        assert "max_stored_bytes" in refused.json()["error"]["message"]
        output = OUTPUT | {"call_id": called["call_id"], "output": "cold"}
        answered = await ask(input=[output], previous_response_id=first["id"])
        assert answered.status_code == 200, answered.text
