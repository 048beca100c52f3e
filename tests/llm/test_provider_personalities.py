"""The fake provider's personalities: one row for each thing that a provider is known to refuse."""

from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from mail.llm.script import say, think
from tests.llm.support import TOOL
from tests.support.provider import PERSONALITIES, FakeProvider
from tests.support.provider.personalities import Rule
from tests.support.provider.seals import seal
from tests.support.provider.validate_profiles import BINDING, Asked

NAMED = {"type": "function", "function": {"name": "look_up"}}
USER = {"role": "user", "content": "hi"}
RESULT = {"role": "tool", "tool_call_id": "a", "content": "ok"}
OFF = {"thinking": {"type": "disabled"}}
BETA = {"anthropic-beta": BINDING}


def called(call_id: str = "a", **more: Any) -> dict[str, Any]:
    """Return an assistant's call of the tool."""
    function = {"name": "look_up", "arguments": "{}"}
    made = {"id": call_id, "type": "function", "function": function}
    return {"role": "assistant", "content": "", "tool_calls": [made], **more}


def told(role: str, *messages: Any, **more: Any) -> dict[str, Any]:
    """Return a body with a conversation and one last message."""
    return {"messages": [USER, *messages, {"role": role, "content": "x"}], **more}


LONG = "a" * 65
PAIR = (called(), RESULT)
NINE = (called("abcdefgh9"), RESULT | {"tool_call_id": "abcdefgh9"})
ITEM = {"type": "function_call", "call_id": LONG, "name": "look_up", "arguments": "{}"}
FOREIGN = {"input": [{"type": "reasoning", "encrypted_content": seal("someone else's")}]}
CALL = {"role": "model", "parts": [{"functionCall": {"name": "look_up", "args": {}}}]}
ANSWER = {"role": "user", "parts": [{"functionResponse": {"name": "look_up", "response": {}}}]}


def signed(token: str) -> dict[str, Any]:
    """Return a body with a call of Gemini's that has this signature."""
    part = CALL["parts"][0] | {"thoughtSignature": token}
    return {"contents": [{"role": "model", "parts": [part]}, ANSWER]}


def google(**thinking: Any) -> dict[str, Any]:
    """Return a body with a thinking configuration."""
    return {"generationConfig": {"thinkingConfig": thinking}}


Row = tuple[str, str, dict[str, Any], str]
CHAT: list[Row] = [
    ("mistral", "m", told("user", *NINE), "Unexpected role 'user' after role 'tool'"),
    ("mistral", "m", {"messages": [called("abcdefgh9")]}, "Not the same number of function calls"),
    ("mistral", "m", told("assistant"), "Expected last role User or Tool"),
    ("mistral", "m", told("user", {"role": "assistant", "content": ""}), "either content or tool"),
    ("mistral", "m", {"messages": [USER, *PAIR]}, "Tool call id was a but must be"),
    ("mistral", "m", {"messages": [USER], "stream_options": {}}, "extra_forbidden"),
    ("mistral", "m", {"messages": [USER], "reasoning_effort": "low"}, "'none' or 'high'"),
    ("nim", "mistralai/m", told("user", *PAIR), "Unexpected role 'user' after role 'tool'"),
    ("nim", "m", {"reasoning": {}}, "Unsupported parameter(s): `reasoning`"),
    ("nim-bare", "m", {"tool_choice": "auto", "tools": [TOOL]}, "--enable-auto-tool-choice"),
    ("deepseek", "deepseek-v4-pro", {"tool_choice": "required"}, "does not support this tool_ch"),
    ("deepseek", "deepseek-v4-pro", {"tool_choice": NAMED}, "does not support this tool_choice"),
    ("deepseek", "deepseek-v4-pro", {"messages": [*PAIR]}, "must be passed back to the API"),
    ("deepseek", "deepseek-v4-pro", told("developer") | OFF, "unknown variant `developer`"),
    ("deepseek", "deepseek-v4-pro", {"messages": [called(content=None)]} | OFF, "field `content`"),
    ("qwen", "qwen3.6-plus", {"tool_choice": "required"}, "required or object in thinking mode"),
    ("qwen", "qwen3-32b", {"messages": [USER]}, "must be set to false for non-streaming"),
    ("kimi", "kimi-k2.6", {"tool_choice": NAMED}, "tool_choice 'specified' is incompatible"),
    ("kimi", "kimi-k2.6", {"tool_choice": "required"}, "tool_choice 'required' is incompatible"),
    ("kimi", "kimi-k3", {"tool_choice": NAMED}, "tool_choice 'specified' is incompatible"),
    ("kimi", "kimi-k2.7-code", OFF, "only type=enabled is allowed for this model"),
    ("kimi", "kimi-k2.6", {"reasoning_effort": "low"} | OFF, "cannot specify both"),
    ("kimi", "kimi-k2.6", {"messages": [USER, *PAIR]}, "tool call message at index 1"),
    ("zai", "glm-5", {"tool_choice": "required", "tools": [TOOL]}, "Tool choice must be auto"),
    ("zai", "glm-5", {"tool_choice": "auto"}, "Invalid API parameter"),
    ("zai", "glm-5.3", OFF, "must be enabled"),
    ("xai", "grok-4.20-0309", {"reasoning_effort": "low"}, "does not support parameter reasoni"),
    ("xai", "grok-4.5", {"reasoning_effort": "none"}, "Invalid reasoning effort"),
    ("xai", "grok-4", {"messages": [{"role": "assistant", "content": ""}]}, "at least one content"),
    ("xai", "grok-4", {"stop": ["x"]}, "does not support parameter stop"),
    ("openai", "o3", {"reasoning_effort": "minimal"}, "are: 'low', 'medium', and 'high'."),
    ("openai", "gpt-5-chat-latest", {"reasoning_effort": "low"}, "Unsupported parameter"),
    ("openai", "gpt-5-pro", {}, "only supported in v1/responses"),
    ("openai", "gpt-5.4", {"tools": [TOOL], "reasoning_effort": "low"}, "Please use /v1/responses"),
    ("openai", "gpt-5.6", {"tools": [TOOL]}, "set reasoning_effort to 'none'"),
    ("openai", "gpt-6-astra", {"tools": [TOOL], "reasoning_effort": "none"}, "use /v1/responses"),
    ("openai", "gpt-5", {"messages": [called(LONG)]}, "'messages[0].tool_calls[0].id': string too"),
    ("openai-unverified", "gpt-5-mini", {"stream": True}, "verified to stream this model"),
    ("groq", "qwen/qwen3-32b", {"reasoning_effort": "low"}, "one of `none` or `default`"),
    ("groq", "openai/gpt-oss-20b", {"reasoning_effort": "minimal"}, "`low`, `medium` or `high`"),
    ("openrouter", "m", {"reasoning": {}, "reasoning_effort": "low"}, "Only one of"),
    ("openrouter", "anthropic/claude-opus-5.5", {"tool_choice": "required"}, "not supported for"),
    (
        "openrouter",
        "anthropic/claude-opus-5",
        {"messages": [USER, *PAIR], "reasoning": {"effort": "low"}},
        '"thinking.type.disabled" is not supported',
    ),
    ("openrouter", "z-ai/glm-5", {"tool_choice": "required"}, "Tool choice must be auto"),
    (
        "openrouter",
        "qwen/qwen3.7-plus",
        {"tool_choice": "required"},
        "not support this tool_choice",
    ),
    (
        "openrouter",
        "moonshotai/kimi-k2.6",
        {"messages": [USER, *PAIR]},
        "reasoning_content is miss",
    ),
    ("vllm-bare", "m", {"tool_choice": "auto", "tools": [TOOL]}, "--enable-auto-tool-choice"),
    ("proxy", "claude-opus-5-5", {"tool_choice": "required"}, "does not support forced tool use"),
    ("proxy", "gpt-4o", {"reasoning_effort": "low"}, "does not support parameters: ['reasoning"),
]
RESPONSES: list[Row] = [
    ("openai", "gpt-5-pro", {"reasoning": {"effort": "medium"}}, "Supported values are: 'high'."),
    ("openai", "gpt-5-pro", {"stream": True}, "'stream' does not support true"),
    ("openai", "gpt-5", {"input": [ITEM]}, "'input[0].call_id': string too long"),
    ("openai", "gpt-5", FOREIGN, "could not be verified"),
    ("openai-unverified", "gpt-5", {"reasoning": {"summary": "auto"}}, "verified to generate"),
    ("xai", "grok-4.20-0309", {"reasoning": {"effort": "low"}}, "support parameter reasoningEff"),
    ("xai", "grok-4", FOREIGN, "Could not decrypt the provided encrypted_content"),
    ("vllm", "openai/gpt-oss-20b", {"tool_choice": "required"}, "response API with Harmony"),
]
ANTHROPIC: list[Row] = [
    ("anthropic", "claude-opus-5-5", {"tool_choice": {"type": "any"}}, "not supported for this mo"),
    ("anthropic", "claude-opus-4-7", {"thinking": {"type": "enabled"}}, '"thinking.type.enabled"'),
    ("anthropic", "claude-opus-5-5", OFF, '"thinking.type.disabled" is not supported'),
    ("anthropic", "claude-opus-5", OFF | {"output_config": {"effort": "max"}}, 'with effort "max"'),
    (
        "anthropic",
        "claude-opus-5-5",
        {"thinking": {"type": "adaptive", "block_binding": {}}},
        "thinking.adaptive.block_binding: Extra inputs are not permitted",
    ),
]
GEMINI: list[Row] = [
    ("gemini", "gemini-3.5-flash", {"contents": [CALL, ANSWER]}, "missing a thought_signature"),
    ("gemini", "gemini-3.5-flash", signed("bm90IG91cnM="), "Thought signature is not valid."),
    ("gemini", "gemini-2.5-pro", {"contents": [CALL]}, "number of function response parts"),
    ("gemini", "gemini-3.1-pro", google(thinkingLevel="minimal"), "level is not supported"),
    ("gemini", "gemini-3-pro", google(thinkingLevel="low", thinkingBudget=1), "only set only one"),
    ("gemini", "gemini-2.5-pro", google(thinkingBudget=100_000), "thinking budget (100000) is inv"),
    ("gemini", "gemini-2.5-pro", google(thinkingBudget=0), "Budget 0 is invalid."),
]
OLLAMA: list[Row] = [
    ("ollama", "llama3.1:8b", {"think": True}, '"llama3.1:8b" does not support thinking'),
    ("ollama", "gpt-oss:20b", {"think": "minimal"}, 'invalid think value: "minimal"'),
    ("ollama", "qwen3:8b", {"think": "high"}, 'think value "high" is not supported'),
    ("ollama", "gemma:2b", {"tools": [TOOL]}, "does not support tools"),
    ("ollama", "qwen3:8b", {"prompt": "hi"}, "speaks /api/chat only"),
    ("ollama", "qwen3:8b", {"tool_choice": "auto"}, "tool_choice is unknown"),
]
LLAMA = "us.meta.llama3-3-70b-instruct-v1:0"


def turn(kind: str) -> dict[str, Any]:
    """Return a request of Converse with text beside something else."""
    return {"messages": [{"role": "user", "content": [{kind: {}}, {"text": "hi"}]}]}


BEDROCK: list[Row] = [
    (
        "bedrock",
        "us.anthropic.claude-opus-5-5",
        {"toolConfig": {"toolChoice": {"any": {}}}},
        'type "tool" and "any" are not supported',
    ),
    (
        "bedrock",
        "us.amazon.nova-pro-v1:0",
        {"toolConfig": {"toolChoice": {"any": {}}}},
        "Remove toolConfig.toolChoice.any and try again.",
    ),
    (
        "bedrock",
        "openai.gpt-oss-120b-1:0",
        {"additionalModelRequestFields": {"thinking": {}}},
        "unknown field thinking",
    ),
    (
        "bedrock",
        "mistral.mistral-large-2407-v1:0",
        {"toolConfig": {"toolChoice": {"tool": {"name": "look_up"}}}},
        "Remove toolConfig.toolChoice.tool and try again.",
    ),
    (
        "bedrock",
        LLAMA,
        {"toolConfig": {"tools": [{}]}},
        "tool use in streaming mode",
    ),
    ("bedrock", LLAMA, turn("toolResult"), "tool result blocks cannot be provided in the same"),
    ("bedrock", LLAMA, turn("toolUse"), "tool use blocks cannot be provided in the same turn"),
]
ROWS = {
    "completions": CHAT,
    "responses": RESPONSES,
    "anthropic": ANTHROPIC,
    "gemini": GEMINI,
    "ollama": OLLAMA,
    "bedrock": BEDROCK,
}
STATUS = {
    "extra_forbidden": 422,
    "'none' or 'high'": 422,
    "only supported in v1/responses": 404,
    "response API with Harmony": 501,
}


@pytest.mark.parametrize(
    ("wire", "row"),
    [(wire, row) for wire, rows in ROWS.items() for row in rows],
    ids=lambda value: value if isinstance(value, str) else f"{value[0]}-{value[3]}",
)
def test_a_provider_refuses_what_it_is_known_to_refuse(wire: Any, row: Row) -> None:
    name, model, body, text = row
    asked = Asked(body=body, wire=wire, model=model, owner=name, streamed=True)
    refusal = PERSONALITIES[name].refusal(asked)
    assert refusal is not None
    assert text in refusal.text
    assert refusal.status == STATUS.get(text, 400)


def refusing(rule: Rule) -> bool:
    """Whether a row is refused by this very rule."""
    return any(
        rule in PERSONALITIES[name].rules
        and rule.check(Asked(body=body, wire=wire, model=model, owner=name, streamed=True))
        is not None  # type: ignore[arg-type]
        for wire, rows in ROWS.items()
        for name, model, body, _ in rows
    )


@pytest.mark.parametrize("name", PERSONALITIES)
def test_every_rule_has_a_row_and_a_source(name: str) -> None:
    for rule in PERSONALITIES[name].inner:
        assert rule.source
    for rule in PERSONALITIES[name].rules:
        assert rule.source
        assert rule.date[:2] == "20"
        # What binds thinking needs a reply of this provider's before it.
        assert refusing(rule) or rule.check.__name__ == "claude_bound"


ACCEPTED: list[tuple[str, str, str, dict[str, Any]]] = [
    ("mistral", "m", "completions", {"messages": [USER, *NINE], "tool_choice": "any"}),
    ("mistral", "m", "completions", told("user", *NINE, {"role": "assistant", "content": "(x)"})),
    ("deepseek", "deepseek-v4-pro", "completions", OFF | {"tool_choice": "required"}),
    ("deepseek", "deepseek-v4-pro", "completions", OFF | {"messages": [*PAIR]}),
    ("deepseek", "deepseek-v4", "completions", {"messages": [called(reasoning_content=" ")]}),
    ("qwen", "qwen3.6-plus", "completions", {"enable_thinking": False, "tool_choice": NAMED}),
    ("kimi", "kimi-k2.6", "completions", OFF | {"tool_choice": NAMED}),
    ("kimi", "kimi-k3", "completions", {"tool_choice": "required"}),
    ("zai", "glm-5", "completions", {"tool_choice": "auto", "tools": [TOOL]}),
    ("xai", "grok-4.3", "responses", {"reasoning": {"effort": "none"}}),
    ("openai", "gpt-5.6", "completions", {"tools": [TOOL], "reasoning_effort": "none"}),
    ("openai", "gpt-5.4", "completions", {"tools": [TOOL]}),
    ("openai", "gpt-5-pro", "responses", {"reasoning": {"effort": "high"}}),
    ("openai-unverified", "gpt-5.4", "responses", {"stream": True}),
    ("anthropic", "claude-opus-5", "anthropic", OFF | {"tool_choice": {"type": "any"}}),
    ("anthropic", "claude-opus-5", "anthropic", {"tool_choice": {"type": "any"}}),
    ("anthropic", "claude-fable-5", "anthropic", {"tool_choice": {"type": "any"}}),
    ("anthropic", "claude-sonnet-4-5", "anthropic", {"thinking": {"type": "enabled"}}),
    ("gemini", "gemini-3.1-pro", "gemini", google(thinkingLevel="high")),
    ("gemini", "gemini-3-pro", "gemini", signed("skip_thought_signature_validator")),
    ("groq", "qwen/qwen3-32b", "completions", {"reasoning_effort": "default"}),
    ("openrouter", "anthropic/claude-opus-5", "completions", {"tool_choice": "required"}),
    ("vllm", "openai/gpt-oss-20b", "completions", {"tool_choice": "required"}),
    ("ollama", "gpt-oss:20b", "ollama", {"think": "high"}),
    ("proxy", "claude-opus-5-5", "completions", {"tool_choice": "required", "drop_params": True}),
]


@pytest.mark.parametrize(("name", "model", "wire", "body"), ACCEPTED)
def test_a_provider_accepts_what_goes_around_its_rules(
    name: str, model: str, wire: Any, body: Mapping[str, Any]
) -> None:
    asked = Asked(body=body, wire=wire, model=model, owner=name, headers=BETA)
    assert PERSONALITIES[name].refusal(asked) is None


async def posted(
    provider: FakeProvider, name: str, path: str, body: Mapping[str, Any], **headers: str
) -> httpx.Response:
    """Send a request to a provider."""
    async with httpx.AsyncClient(timeout=10) as client:
        address = f"{provider.root_of(name)}{path}"
        usual = {"anthropic-version": "2023-06-01"}
        return await client.post(address, json=body, headers=usual | headers)


async def test_groq_refuses_to_send_text_where_a_call_was_forced() -> None:
    body = {"model": "m", "messages": [USER], "tools": [TOOL], "tool_choice": "required"}
    async with FakeProvider(lambda view: say("No need.")) as provider:
        refused = await posted(provider, "groq", "/v1/chat/completions", body)
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert (error["code"], error["failed_generation"]) == ("tool_use_failed", "No need.")


DROP = {"thinking": {"block_binding": {"prefix_mismatch_behavior": "drop_block"}}}


async def test_claudes_thoughts_are_bound_to_what_stood_before_them() -> None:
    ask: dict[str, Any] = {
        "model": "claude-opus-5-5",
        "max_tokens": 999,
        "system": "Be brief.",
        "messages": [USER],
    }
    async with FakeProvider(lambda view: [think("Hm."), say("Well.")]) as provider:

        async def asked(**changes: Any) -> httpx.Response:
            given = changes.pop("headers", {})
            body = {**ask, **changes}
            return await posted(provider, "anthropic-bound", "/v1/messages", body, **given)

        first = (await asked()).json()
        assert [block["type"] for block in first["content"]] == ["thinking", "text"]
        ask["messages"] = [USER, {"role": "assistant", "content": first["content"]}, USER]
        assert (await asked()).status_code == 200
        moved = await asked(system="Be long.")
        assert "bound to a different conversation" in moved.text
        summary = {"role": "user", "content": "A summary."}
        assert (await asked(messages=[summary, *ask["messages"][1:]])).status_code == 400
        assert "Extra inputs" in (await asked(system="Be long.", **DROP)).text
        assert (await asked(system="Be long.", headers=BETA, **DROP)).status_code == 200
        foreign = await asked(system="Be long.", model="claude-fable-5-1")
        assert foreign.status_code == 200
        bare = {"role": "assistant", "content": first["content"][1:]}
        assert (await asked(system="Be long.", messages=[USER, bare, USER])).status_code == 200
