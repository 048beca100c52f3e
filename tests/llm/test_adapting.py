"""Refusals that name something change it: one more try in the provider's way, remembered."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from mail.core.call_context import NullSink
from mail.errors import ModelError
from mail.llm.ask import collect
from mail.llm.failures import Named, RefusedCall
from mail.llm.fallback import REMEMBERED, Adaptations, Changed, Place, Tries
from mail.llm.litellm_model import LiteLLMModel, close_clients
from mail.llm.profiles import UNKNOWN, Profile
from mail.llm.retry import RetryPolicy
from mail.llm.script import call, otherwise, say, think, when
from mail.llm.settings import LLMSettings
from mail.llm.wires import encoded
from mail.stdlib.openai import OpenAIModel
from tests.llm.refusing import Answer, RefusingProvider
from tests.llm.support import ask
from tests.providers.swarms import Path, lead_swarm, run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mail.llm.request import ModelReply
    from tests.support.provider.record import Seen

ONCE = RetryPolicy(attempts=1, rate_limit_attempts=1, base=0.001, cap=0.01)
KEY = "sk-environment-key-0123456789"
NAMED = {"type": "function", "function": {"name": "look_up"}}
CALL = {
    "id": "call_1234567890",
    "type": "function",
    "function": {"name": "look_up", "arguments": '{"word": "x"}'},
}
HISTORY = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_1234567890", "content": "ok"},
    {"role": "user", "content": "and now"},
]


def settings(**given: Any) -> LLMSettings:
    return LLMSettings.resolve(timeout=90, deadline=90, **given)


class Unlisted:
    """A server with the API of OpenAI's and a provider's manners, whose models no row knows."""

    def __init__(self, provider: RefusingProvider, monkeypatch: pytest.MonkeyPatch) -> None:
        self.provider = provider
        self.known = Adaptations()
        self._patch = monkeypatch

    def be(self, personality: str) -> None:
        root = self.provider.root_of(personality) if personality else self.provider.root_url
        for name in ("OPENAI_API_BASE", "OPENAI_BASE_URL", "LITELLM_PROXY_API_BASE"):
            self._patch.setenv(name, f"{root}/v1")

    async def reply(self, model: str, **changes: object) -> ModelReply:
        request = ask(model=model, **({"settings": settings()} | changes))
        one = LiteLLMModel(ONCE, adaptations=self.known)
        return await collect(one.stream(request), NullSink())

    @property
    def statuses(self) -> list[int | None]:
        return [seen.status for seen in self.provider.requests]

    @property
    def last(self) -> Seen:
        return self.provider.requests[-1]


@pytest.fixture
async def unlisted(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Unlisted]:
    async with RefusingProvider(script=[otherwise(think("Hm."), say("Done."))]) as running:
        for name in ("OPENAI_API_KEY", "LITELLM_PROXY_API_KEY"):
            monkeypatch.setenv(name, KEY)
        yield Unlisted(running, monkeypatch)
        await close_clients()


class Clock:
    """Tells the time that it is set to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def test_what_was_learnt_is_forgotten_after_an_hour(unlisted: Unlisted) -> None:
    clock = Clock()
    unlisted.known = Adaptations(clock)
    unlisted.be("zai")
    for now, refused in ((0.0, 1), (REMEMBERED - 1, 1), (REMEMBERED + 1, 2), (REMEMBERED * 2, 2)):
        clock.now = now
        assert (await unlisted.reply("openai/glm-ours")).text == "Done."
        assert unlisted.statuses.count(400) == refused
        assert len(unlisted.known.changes("openai/glm-ours")) == 1
    unlisted.be("")  # the provider is mended
    clock.now = REMEMBERED * 4
    unlisted.provider.requests.clear()
    assert (await unlisted.reply("openai/glm-ours")).text == "Done."
    assert unlisted.known.changes("openai/glm-ours") == () and not unlisted.known
    assert (unlisted.statuses, unlisted.last.body["tool_choice"]) == ([200], "required")


ROWS: list[tuple[str, str, dict[str, Any], int, dict[str, Any]]] = [
    ("mistral", "some", {"messages": HISTORY}, 3, {"tool_choice": "required"}),
    ("deepseek", "deepseek-v4-ours", {}, 1, {"tool_choice": "auto"}),
    ("deepseek", "deepseek-v4-ours", {"tool_choice": NAMED}, 1, {"tool_choice": "auto"}),
    ("qwen", "qwen3.6-plus-ours", {}, 1, {"tool_choice": "auto"}),
    ("kimi", "kimi-k2.6-ours", {"tool_choice": NAMED}, 2, {"tool_choice": "auto"}),
    (
        "kimi",
        "kimi-k3-ours",
        {"messages": HISTORY, "tool_choice": NAMED},
        2,
        {"tool_choice": "required"},
    ),
    ("zai", "glm-ours", {}, 1, {"tool_choice": "auto"}),
    ("vllm-bare", "ours", {"tool_choice": "auto"}, 1, {"tool_choice": "required"}),
    ("nim-bare", "ours", {"tool_choice": "auto"}, 1, {"tool_choice": "required"}),
    ("xai", "grok-4-ours", {"settings": settings(reasoning_effort="low")}, 1, {}),
    ("nim", "meta/llama-ours", {"messages": HISTORY}, 1, {"tool_choice": "required"}),
    (
        "openai",
        "gpt-5-pro",
        {"settings": settings(reasoning_effort="low"), "tool_format": "responses"},
        1,
        {"reasoning": {"summary": "auto", "effort": "high"}},
    ),
    (
        "openai",
        "o3",
        {"settings": settings(reasoning_effort="minimal"), "tool_format": "responses"},
        1,
        {"reasoning": {"summary": "auto", "effort": "low"}},
    ),
    (
        "openai",
        "gpt-5-chat-latest",
        {"settings": settings(reasoning_effort="low"), "tool_format": "responses"},
        1,
        {},
    ),
    (
        "groq",
        "qwen/qwen-ours",
        {"settings": settings(reasoning_effort="low"), "tool_choice": "auto"},
        1,
        {"reasoning_effort": "default"},
    ),
    (
        "openai",
        "ours-like-gpt-5.4",
        {"settings": settings(reasoning_effort="low")},
        1,
        {"reasoning": {"summary": "auto", "effort": "low"}, "store": False},
    ),
]


@pytest.mark.parametrize(
    ("personality", "model", "changes", "refused", "last"),
    ROWS,
    ids=[f"{row[0]}-{n}" for n, row in enumerate(ROWS)],
)
async def test_a_model_that_no_row_knows_is_asked_in_its_way(
    unlisted: Unlisted,
    personality: str,
    model: str,
    changes: dict[str, Any],
    refused: int,
    last: dict[str, Any],
) -> None:
    unlisted.be(personality)
    reply = await unlisted.reply(f"openai/{model}", **changes)
    assert reply.text == "Done."
    assert unlisted.statuses[-1] == 200
    assert len(unlisted.statuses) == 1 + refused
    assert all(status in (400, 422) for status in unlisted.statuses[:-1])
    assert last.items() <= unlisted.last.body.items()
    await unlisted.reply(f"openai/{model}", **changes)  # another agent of the process
    assert unlisted.statuses[-1] == 200
    assert len(unlisted.statuses) == 2 + refused


async def test_what_is_refused_is_remembered_for_an_address_a_key_and_a_model(
    unlisted: Unlisted, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", logger="mail.llm.fallback")
    unlisted.be("zai")
    for _ in range(2):
        await unlisted.reply("openai/glm-ours")
    assert unlisted.statuses == [400, 200, 200]
    (told,) = caplog.records
    assert told.getMessage().startswith("a model refused to be forced to call a tool;")
    assert vars(told)["remedy"] == (
        'set [models."openai/glm-ours"] forced_any = "auto", forced_named = "auto" in mail.toml'
    )
    assert vars(told)["reason"].endswith("(HTTP 400): Tool choice must be auto")
    await unlisted.reply("openai/glm-theirs")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-another-key-0123456789")
    await unlisted.reply("openai/glm-ours")
    assert unlisted.statuses == [400, 200, 200, 400, 200, 400, 200]
    assert "sk-" not in repr(vars(unlisted.known))
    (one,) = unlisted.known.changes("openai/glm-theirs")
    assert one.refused == "to be forced to call a tool"


async def test_agents_that_begin_together_learn_from_one_another(unlisted: Unlisted) -> None:
    unlisted.be("zai")
    replies = await asyncio.gather(*(unlisted.reply("openai/glm-ours") for _ in range(5)))
    assert [reply.text for reply in replies] == ["Done."] * 5
    assert sorted(filter(None, unlisted.statuses)) == [200] * 5 + [400] * 5


async def test_a_call_that_is_refused_in_another_way_fails_with_that(unlisted: Unlisted) -> None:
    unlisted.be("")
    said = {"error": {"message": "The image is too large.", "type": "invalid_request_error"}}
    unlisted.provider.answers = [Answer(400, said)] * 2
    with pytest.raises(ModelError, match="The image is too large") as caught:
        await unlisted.reply("openai/ours")
    assert (caught.value.status, len(unlisted.statuses)) == (400, 1)
    assert not unlisted.known


async def test_a_provider_that_refuses_all_is_not_asked_for_ever(unlisted: Unlisted) -> None:
    unlisted.be("")
    texts = [
        "tool_choice is not supported",
        "'stream' does not support true",
        "Unexpected role 'user' after role 'tool'",
        "Tool call id must have a length of 9.",
        "Unsupported parameter: 'store'",
        "Unsupported parameter: 'include'",
        "Unsupported parameter: 'stream_options'",
        "missing field `content`",
    ]
    unlisted.provider.answers = [Answer(400, {"error": {"message": text}}) for text in texts]
    with pytest.raises(ModelError, match="stream_options"):
        await unlisted.reply("openai/ours")
    assert len(unlisted.statuses) == 7
    assert not unlisted.known


async def test_text_goes_neither_behind_results_nor_beside_calls_where_that_is_refused(
    unlisted: Unlisted,
) -> None:
    unlisted.be("")
    unlisted.provider.answers = [
        Answer(400, {"message": f"Conversation blocks and {kind} blocks cannot be provided in"})
        for kind in ("tool use", "tool result")
    ]
    first, called, *others = HISTORY
    spoken = [first, called | {"content": "I look."}, *others]
    await unlisted.reply("openai/ours", messages=spoken)
    sent = unlisted.last.body["messages"]
    roles = ["system", "user", "assistant", "tool", "assistant", "user"]
    assert [message["role"] for message in sent] == roles
    assert sent[2].get("content") is None
    assert sent[2]["tool_calls"]


async def test_text_that_an_error_quotes_changes_nothing_for_others(unlisted: Unlisted) -> None:
    unlisted.be("")
    bad = "tool_choice is not supported, streaming is not supported"
    said = {"message": f"Invalid schema for function 'f': {bad!r} is not a type."}
    unlisted.provider.refusals = [
        lambda body: Answer(400, {"error": said}) if bad in str(body["tools"]) else None
    ]
    function = {"name": "f", "parameters": {"type": bad}}
    tools = [{"type": "function", "function": function}]
    with pytest.raises(ModelError, match="Invalid schema"):
        await unlisted.reply("openai/ours", tools=tools)
    refused = len(unlisted.statuses)
    await unlisted.reply("openai/ours")
    assert unlisted.statuses[refused:] == [200]
    sent = unlisted.last.body
    assert (sent["tool_choice"], sent["stream"]) == ("required", True)


@pytest.mark.parametrize("status", [401, 403, 413, 429, 500])
async def test_only_refusals_of_a_request_change_it(unlisted: Unlisted, status: int) -> None:
    unlisted.be("")
    said = {"error": {"message": "tool_choice is not supported"}}
    unlisted.provider.answers = [Answer(status, said)] * 2
    with pytest.raises(ModelError, match="tool_choice"):
        await unlisted.reply("openai/ours")
    assert len(unlisted.statuses) == 1


@pytest.mark.parametrize("tool_format", ["completions", "responses"])
async def test_a_reply_that_may_not_be_streamed_comes_whole(
    unlisted: Unlisted, tool_format: str
) -> None:
    unlisted.be("")
    unlisted.provider.script = [otherwise(think("Hm."), say("So. "), call("look_up", word="x"))]
    said = {
        "message": "Your organization must be verified to stream this model.",
        "type": "invalid_request_error",
        "param": "stream",
        "code": "unsupported_value",
    }
    unlisted.provider.refusals = [
        lambda body: Answer(400, {"error": said}) if body.get("stream") else None
    ]
    reply = await unlisted.reply("openai/gpt-5-mini", tool_format=tool_format)
    assert unlisted.statuses == [400, 200]
    assert (reply.text, reply.wire) == ("So. ", tool_format)
    assert [(one.name, one.arguments) for one in reply.calls] == [("look_up", '{"word": "x"}')]
    assert reply.usage is not None
    assert reply.usage.total_tokens > 0
    assert "stream_options" not in unlisted.last.body


async def test_agents_over_openais_own_library_learn_the_same(unlisted: Unlisted) -> None:
    unlisted.be("openai-unverified")
    request = ask(model="gpt-5-mini", tool_format="responses", settings=settings())
    for _ in range(2):  # another agent of the process
        model = OpenAIModel("responses", retry=ONCE)
        assert (await collect(model.stream(request), NullSink())).text == "Done."
        await model.aclose()
    assert unlisted.statuses[-2:] == [200, 200]
    assert set(unlisted.statuses[:-2]) == {400}
    assert "stream" not in unlisted.last.body


NO_HOST = (
    "No endpoints found that support the provided 'tool_choice' value. To learn more about "
    "provider routing, visit: https://openrouter.ai/docs/guides/routing/provider-selection"
)


async def test_a_model_behind_openrouter_of_whose_hosts_none_takes_a_choice(
    unlisted: Unlisted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", KEY)
    monkeypatch.setenv("OPENROUTER_API_BASE", f"{unlisted.provider.root_url}/v1")
    unlisted.provider.refusals = [
        lambda body: (
            Answer(404, {"error": {"message": NO_HOST, "code": 404}})
            if "tool_choice" in body
            else None
        )
    ]
    for _ in range(2):
        assert (await unlisted.reply("openrouter/dots/dots-3")).text == "Done."
    assert unlisted.statuses == [404, 200, 200]


async def test_what_ollama_refuses_is_changed_under_either_of_its_names(
    unlisted: Unlisted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_API_BASE", unlisted.provider.root_of("ollama"))
    said = '"qwen3-ours" does not support thinking'
    unlisted.provider.refusals = [
        lambda body: Answer(400, {"error": said}) if body.get("think") else None
    ]
    for name in ("ollama/qwen3-ours", "ollama_chat/qwen3-ours"):
        settled = settings(reasoning_effort="low")
        assert (await unlisted.reply(name, settings=settled)).text == "Done."
    assert unlisted.statuses == [400, 200, 400, 200]


async def test_a_forced_end_that_is_answered_in_text_completes_the_task(
    unlisted: Unlisted,
) -> None:
    unlisted.be("zai")
    unlisted.provider.script = [
        when(subject="maximum_steps").then(say("It is the best I have.")),
        otherwise(call("look_up", word="liam")),
    ]
    path = Path("completions", "openai/glm-that-ends", "completions")
    swarm = lead_swarm(path, reasoning_effort=None, timeout=90, deadline=90)
    try:
        outcome = await run(swarm, "Who is it?", streamed=False, max_steps=2)
    finally:
        await swarm.shutdown()
    assert (outcome.subject, outcome.body) == ("::task_complete::", "It is the best I have.")
    assert unlisted.statuses[0] == 400
    assert set(unlisted.statuses[1:]) == {200}
    assert {seen.body["tool_choice"] for seen in unlisted.provider.requests[1:]} == {"auto"}


async def test_groqs_refusal_of_text_at_a_forced_end_completes_the_task(
    unlisted: Unlisted,
) -> None:
    unlisted.be("")
    unlisted.provider.script = [otherwise(call("look_up", word="liam"))]
    text = "It is the best I have."
    error = {
        "message": "Tool choice is required, but model did not call a tool",
        "code": "tool_use_failed",
        "failed_generation": text,
    }

    def refuse(body: dict[str, Any]) -> Answer | None:
        forced = isinstance(body.get("tool_choice"), dict)
        return Answer(400, {"error": error}) if forced else None

    unlisted.provider.refusals = [refuse]
    swarm = lead_swarm(
        Path("completions", "openai/like-groq", "completions"), timeout=90, deadline=90
    )
    try:
        outcome = await run(swarm, "Who is it?", streamed=False, max_steps=2)
    finally:
        await swarm.shutdown()
    assert (outcome.subject, outcome.body) == ("::task_complete::", text)
    assert unlisted.statuses.count(400) == 1


THINKING = Profile(
    wire="anthropic",
    thinks="asked",
    forced_any="ok",
    forced_named="ok",
    effort_via="thinking_budget",
    send_back="thinking",
)
HYBRID = replace(UNKNOWN, off_switch={"thinking": {"type": "disabled"}}, thinks="default")
ADAPTIVE = replace(THINKING, effort_via="adaptive", thinks="always", forced_any="auto")
BOUND = (
    "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a "
    "different conversation. Remove the block, or set `thinking.block_binding`..."
)


@pytest.mark.parametrize(
    ("profile", "named", "fields"),
    [
        (UNKNOWN, Named("x", "reasoning.summary"), {"summary": False}),
        (
            UNKNOWN,
            Named("Your organization must be verified to generate reasoning summaries."),
            {"summary": False},
        ),
        (
            UNKNOWN,
            Named(
                "Unsupported value: 'minimal' is not supported with the 'o3' model. Supported "
                "values are: 'low', 'medium', and 'high'.",
                "reasoning.effort",
            ),
            {"efforts": ("low", "medium", "high")},
        ),
        (
            UNKNOWN,
            Named(
                'invalid think value: "minimal" (must be "high", "medium", "low", "max", true, or '
                "false)"
            ),
            {"efforts": ("low", "medium", "high", "max")},
        ),
        (UNKNOWN, Named('"llama3.1:8b" does not support thinking'), {"effort_via": "none"}),
        (
            UNKNOWN,
            Named("Unsupported parameter: 'reasoning.effort' is not supported with this model."),
            {"effort_via": "none"},
        ),
        (
            UNKNOWN,
            Named(
                "Function tools with reasoning_effort are not supported for gpt-5.4 in "
                "/v1/chat/completions. Please use /v1/responses instead."
            ),
            {
                "wire": "responses",
                "thinks": "default",
                "effort_via": "reasoning",
                "send_back": "always",
            },
        ),
        (
            HYBRID,
            Named("Thinking mode does not support this tool_choice"),
            {"forced_any": "off", "forced_named": "off"},
        ),
        (
            THINKING,
            Named("Thinking may not be enabled when tool_choice forces tool use."),
            {"forced_any": "unless_thinking", "forced_named": "off"},
        ),
        (
            UNKNOWN,
            Named('tool_choice: type "tool" and "any" are not supported for this model.'),
            {"forced_any": "auto", "forced_named": "auto"},
        ),
        (
            UNKNOWN,
            Named(NO_HOST),
            {"forced_any": "auto", "forced_named": "auto", "omit_auto": True},
        ),
        (
            replace(HYBRID, forced_any="unless_thinking", forced_named="off"),
            Named("Reasoning is mandatory for this endpoint and cannot be disabled."),
            {
                "off_switch": {},
                "thinks": "always",
                "forced_any": "auto",
                "forced_named": "auto",
            },
        ),
        (
            UNKNOWN,
            Named("x does not support forced tool use (tool_choice='required'). Use 'auto'."),
            {"forced_any": "auto", "forced_named": "auto"},
        ),
        (
            UNKNOWN,
            Named("This model doesn't support the toolConfig.toolChoice.any field."),
            {"forced_any": "auto", "forced_named": "auto"},
        ),
        (
            UNKNOWN,
            Named("This model doesn't support the toolConfig.toolChoice.tool field."),
            {"forced_named": "one"},
        ),
        (
            UNKNOWN,
            Named("Only 'auto' tool_choice is supported in response API with Harmony"),
            {"forced_any": "auto", "forced_named": "auto"},
        ),
        (
            THINKING,
            Named('"thinking.type.enabled" is not supported for this model. Use "adaptive".'),
            {"effort_via": "adaptive"},
        ),
        (
            replace(HYBRID, forced_any="off"),
            Named('"thinking.type.disabled" is not supported for this model.'),
            {"off_switch": {}, "thinks": "always", "forced_any": "auto"},
        ),
        (
            replace(HYBRID, forced_named="off"),
            Named("invalid thinking: only type=enabled is allowed for this model"),
            {"off_switch": {}, "thinks": "always", "forced_named": "auto"},
        ),
        (
            ADAPTIVE,
            Named(BOUND),
            {"block_binding": "drop_block"},
        ),
        (
            replace(ADAPTIVE, block_binding="drop_block"),
            Named(BOUND),
            {"send_back": "never", "signed_ids": False},
        ),
        (
            replace(ADAPTIVE, block_binding="drop_block"),
            Named("thinking.adaptive.block_binding: Extra inputs are not permitted"),
            {"block_binding": ""},
        ),
        (
            replace(UNKNOWN, send_back="always"),
            Named("Could not decrypt the provided encrypted_content."),
            {"send_back": "never", "signed_ids": False},
        ),
        (
            replace(UNKNOWN, send_back="thinking"),
            Named("messages.1.assistant.reasoning_content: Extra inputs are not permitted"),
            {"send_back": "never"},
        ),
        (
            replace(UNKNOWN, send_back="thinking"),
            Named(
                "'messages.2' : for 'role:assistant' property 'reasoning_content' is unsupported"
            ),
            {"send_back": "never"},
        ),
        (
            UNKNOWN,
            Named(
                "Invalid 'input[149].call_id': string too long. Expected a string with maximum "
                "length 40, but got a string with length 86 instead.",
                "input[149].call_id",
            ),
            {"longest_id": 40},
        ),
        (
            THINKING,
            Named("The thinking budget (52428) is invalid."),
            {"effort_via": "reasoning_effort"},
        ),
        (UNKNOWN, Named("Unrecognized request argument supplied: store"), {"without": ("store",)}),
        (
            UNKNOWN,
            Named("Validation: Unsupported parameter(s): `stream_options`"),
            {"without": ("stream_options",)},
        ),
        (
            UNKNOWN,
            Named("openai does not support parameters: ['reasoning_effort'], for model=x."),
            {"effort_via": "none"},
        ),
        (
            UNKNOWN,
            Named("The `reasoning_content` in the thinking mode must be passed back to the API."),
            {"send_back": "always", "fill_reasoning": True},
        ),
        (
            UNKNOWN,
            Named("Encrypted content is not supported with this model.", "include"),
            {"without": ("include",)},
        ),
        (UNKNOWN, Named("The message is not polite."), None),
        (UNKNOWN, Named("Unsupported parameter: 'max_tokens'"), None),
        (UNKNOWN, Named("temperature must be 'low'"), None),
        (replace(UNKNOWN, efforts=("low",)), Named("Supported values are: 'cat'."), None),
    ],
)
def test_what_a_refusal_names_is_changed(
    profile: Profile, named: Named, fields: dict[str, Any] | None
) -> None:
    known = Adaptations()
    tries = refused_with(named, profile, known)
    assert tries.changed is (fields is not None)
    tries.keep()
    changed = replace(profile, **(fields or {}))
    assert tries.begin(profile) == changed
    remembered = () if fields == THIS_TIME else (fields,) if fields else ()
    assert tuple(one.fields for one in known.changes("m")) == remembered
    assert known.applied(PLACE, profile) == (changed if remembered else profile)


PLACE = Place.of("", KEY, "m", "completions")
THIS_TIME = {"send_back": "never", "signed_ids": False}


def refused_with(named: Named, profile: Profile, known: Adaptations | None = None) -> Tries:
    """Return what a call has gone through whose first try was refused."""
    tries = Tries(Adaptations() if known is None else known, lambda: PLACE)
    tries.begin(profile)
    tries.another_way(RefusedCall("x", status=400, named=named))
    return tries


@pytest.mark.parametrize("wire", ["responses", "anthropic"])
@pytest.mark.parametrize(
    "named",
    [
        Named("Unexpected role 'user' after role 'tool'"),
        Named("messages[1]: missing field `content`"),
        Named("Conversation blocks and tool use blocks cannot be provided in the same turn."),
        Named("tool_choice 'specified' it is"),
    ],
)
def test_what_a_format_does_not_have_is_not_tried(wire: Any, named: Named) -> None:
    assert not refused_with(named, replace(UNKNOWN, wire=wire)).changed


@pytest.mark.parametrize("wire", ["responses", "anthropic"])
def test_a_choice_that_is_unknown_is_left_out_in_every_format(wire: Any) -> None:
    profile = replace(UNKNOWN, wire=wire)
    tries = refused_with(Named("Unknown parameter: 'tool_choice'"), profile)
    assert "tool_choice" not in encoded(ask(tool_choice="required"), tries.begin(profile))


async def test_reasoning_that_one_history_lost_is_not_lost_to_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    known, base = Adaptations(), replace(UNKNOWN, send_back="always")
    named = Named("bad encrypted_content")
    caplog.set_level(logging.WARNING, logger="mail.llm.fallback")
    tries = refused_with(named, base, known)
    assert tries.begin(base).send_back == "never"
    assert not tries.another_way(RefusedCall("x", status=400, named=named))
    tries.keep()
    assert "this time" in caplog.text
    assert known.applied(PLACE, base) == base


def test_headers_of_one_agent_reach_neither_others_nor_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    known, base = Adaptations(), replace(ADAPTIVE, headers={"x-tenant-token": "of-one-agent"})
    refused_with(Named(BOUND), base, known).keep()
    assert known.applied(PLACE, base).headers == base.headers
    assert known.applied(PLACE, ADAPTIVE).headers == {}
    assert known.applied(PLACE, ADAPTIVE).block_binding == "drop_block"
    assert "of-one-agent" not in repr([vars(told) for told in caplog.records])


@pytest.mark.parametrize("text", ["a." * 2000, "tool_choice " * 333, "id " * 1333, "not " * 1000])
def test_no_text_of_a_provider_holds_up_the_event_loop(text: str) -> None:
    spent = []
    for _ in range(3):  # the garbage of tests before may be collected in one of them
        begun = time.thread_time()
        refused_with(Named(text), UNKNOWN)
        spent.append(time.thread_time() - begun)
    assert min(spent) < 0.15


def test_what_is_remembered_is_bounded() -> None:
    known = Adaptations()
    places = [Place.of("", KEY, f"m{n}", "completions") for n in range(1100)]
    for place in places:
        assert known.learn(place, Changed("to stream", {"stream": False}))
    assert known.applied(places[0], UNKNOWN) == UNKNOWN
    assert not known.applied(places[-1], UNKNOWN).stream
