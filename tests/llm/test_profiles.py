"""The table of models: what its rows say, and what comes before and after them."""

import dataclasses
import re
import runpy
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from mail.errors import ConfigError
from mail.factories import LiteLLMAgentFunction
from mail.llm.history import conversation
from mail.llm.profiles import (
    ROWS,
    Profile,
    Row,
    checked_fields,
    configured_models,
    facts_of,
    overrides_for,
    profile_of,
)
from mail.llm.settings import EFFORTS, LLMSettings
from mail.llm.thinking import effort_note
from mail.llm.wires import encoded
from tests.llm.streams import library
from tests.llm.support import ask

FIELDS = {one.name for one in dataclasses.fields(Profile)} - {"row"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_each_row_sets_known_fields_of_the_models_that_it_is_about(row: Row) -> None:
    assert set(row.fields) <= FIELDS
    assert checked_fields(row.fields, row.id).keys() == row.fields.keys()
    profile = profile_of(library(), row.example, "responses")
    assert row.id in profile.row.split(", ")
    for effort in EFFORTS:
        assert profile.nearest(effort) in (profile.efforts or EFFORTS)
        assert effort == "none" or profile.nearest(effort) != "none"


def test_there_are_few_rows_with_names_of_their_own() -> None:
    assert len({row.id for row in ROWS}) == len(ROWS) <= 30
    assert facts_of("", "") == {"row": ""}


def test_the_page_shows_the_rows() -> None:
    script = Path(__file__).parents[2] / "scripts" / "models_table.py"
    assert runpy.run_path(str(script))["main"](["--check"]) == 0, "run 'make models-table'"


def test_what_is_set_comes_before_row_and_tables() -> None:
    set_fields = {"wire": "completions", "forced_any": "auto", "silence": 5.0}
    found = profile_of(library(), "openai/gpt-5-mini", "responses", set_fields)
    assert (found.wire, found.forced_any, found.silence) == ("completions", "auto", 5.0)


def test_an_alias_can_be_like_another_model() -> None:
    claude = "anthropic/claude-sonnet-4-5"
    alias = profile_of(library(), "litellm_proxy/ours", "responses", {"like": claude})
    assert alias == profile_of(library(), f"litellm_proxy/{claude}", "responses")
    assert alias.wire == "anthropic"


NAMED = {"type": "function", "name": "look_up"}
CHOSEN = {"type": "function", "function": {"name": "look_up"}}
OTHER_TOOL = {"type": "function", "function": {"name": "other", "parameters": {"type": "object"}}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
HISTORY = [
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": "post"},
    {"role": "user", "content": "two"},
]
DISABLED = {"type": "disabled"}


def body(model: str, choice: object = "required", effort: str | None = None) -> dict[str, Any]:
    """Return what a call's arguments are, with what goes around LiteLLM among the rest."""
    request = ask(
        model=model,
        messages=HISTORY,
        tool_choice=choice,
        settings=LLMSettings.resolve(effort),
        tools=[*ask().tools, OTHER_TOOL],
    )
    found = encoded(request, profile_of(library(), model, "responses"))
    return found | found.pop("extra_body", {})


def kept(found: dict[str, Any]) -> object:
    return found["messages"][2].get("reasoning_content")


@pytest.mark.parametrize("prefix", ["", "litellm_proxy/"])
@pytest.mark.parametrize(
    ("model", "off"),
    [
        ("deepseek/deepseek-v4-pro", {"thinking": DISABLED}),
        ("dashscope/qwen3.6-plus", {"enable_thinking": False}),
        ("moonshot/kimi-k2.6", {"thinking": DISABLED}),
    ],
)
def test_who_cannot_be_forced_while_thinking_is_forced_without(
    prefix: str, model: str, off: dict[str, Any]
) -> None:
    for choice, sent in (("required", "required"), (NAMED, CHOSEN)):
        found = body(prefix + model, choice)
        assert found["tool_choice"] == sent
        assert found.items() >= off.items()
        assert kept(found) is None
    found = body(prefix + model, NAMED, "high")
    assert found.items() >= off.items()
    found = body(prefix + model, "required", "high")  # it is asked to think, so it is not forced
    assert found.get("tool_choice", "auto") == "auto"
    assert not found.items() >= off.items()


@pytest.mark.parametrize(
    "model", ["deepseek/deepseek-v4-pro", "moonshotai/kimi-k2.6", "qwen/qwen3.7-plus"]
)
def test_models_behind_openrouter_are_forced_without_thinking(model: str) -> None:
    off = {"effort": "none"}
    for choice, sent in (("required", "required"), (NAMED, CHOSEN)):
        found = body(f"openrouter/{model}", choice)
        assert (found["tool_choice"], found["reasoning"]) == (sent, off)
    found = body(f"openrouter/{model}", "required", "high")
    assert (found.get("tool_choice", "auto"), found["reasoning"]) == ("auto", {"effort": "high"})
    assert kept(found) == "hm"


@pytest.mark.parametrize(
    "model", ["qwen/qwen3-coder-plus", "qwen/qwen3.5-coder", "deepseek/deepseek-chat", "m/m2"]
)
def test_other_models_behind_openrouter_are_forced_as_asked(model: str) -> None:
    found = body(f"openrouter/{model}", "required")
    assert found["tool_choice"] == "required"
    assert "reasoning" not in found


@pytest.mark.parametrize("prefix", ["", "litellm_proxy/"])
def test_deepseek_thinks_with_its_own_reasoning_and_an_effort(prefix: str) -> None:
    found = body(f"{prefix}deepseek/deepseek-v4-pro", "auto", "medium")
    assert "tool_choice" not in found
    assert (found["thinking"], found["reasoning_effort"]) == ({"type": "enabled"}, "high")
    assert (kept(found), found["messages"][2]["content"]) == ("hm", "")


def test_calls_that_others_made_have_a_blank_for_reasoning() -> None:
    item = {"type": "function_call", "call_id": "c", "name": "look_up", "arguments": "{}"}
    request = ask(messages=[item], tool_choice="auto", settings=LLMSettings.resolve("low"))
    profile = profile_of(library(), "deepseek/deepseek-v4-pro", "responses")
    assert encoded(request, profile)["messages"][1]["reasoning_content"] == " "


@pytest.mark.parametrize(
    "model",
    [
        "zai/glm-4.7",
        "zai/glm-5.3",
        "ollama_chat/qwen3",
        "bedrock/us.anthropic.claude-sonnet-5-5",
        "bedrock/meta.llama3-1-70b-instruct-v1:0",
    ],
)
@pytest.mark.parametrize("choice", ["required", NAMED])
def test_who_cannot_be_forced_is_not(model: str, choice: object) -> None:
    assert body(model, choice)["tool_choice"] == "auto"


@pytest.mark.parametrize("model", ["mistral/mistral-large-latest", "moonshot/kimi-k3"])
def test_one_tool_is_forced_by_offering_nothing_else(model: str) -> None:
    found = body(model, NAMED)
    assert found["tool_choice"] == "required"
    assert [tool["function"]["name"] for tool in found["tools"]] == ["look_up"]
    assert len(body(model, "required")["tools"]) == 2


@pytest.mark.parametrize(
    "model", ["mistral/mistral-large-latest", "nvidia_nim/mistralai/mistral-small", "x/mixtral"]
)
def test_mistral_gets_a_bridge_and_ids_of_nine_characters(model: str) -> None:
    messages = body(model)["messages"]
    assert [one["role"] for one in messages] == [
        "system", "user", "assistant", "tool", "assistant", "user",
    ]  # fmt: skip
    assert messages[4]["content"].strip()
    sent = messages[2]["tool_calls"][0]["id"]
    assert re.fullmatch("[a-zA-Z0-9]{9}", sent)
    assert messages[3]["tool_call_id"] == sent
    assert body(model)["messages"] == messages


def test_nim_gets_no_choice_that_it_may_not_know() -> None:
    assert "tool_choice" not in body("nvidia_nim/meta/llama-3.3-70b-instruct", "auto")


def test_ids_of_nine_characters_stay_apart() -> None:
    calls = [{**CALL, "id": name} for name in ("a", "a", "abcdefghi", *"bcd")]
    reply = {"role": "assistant", "content": None, "tool_calls": calls}
    (found,) = conversation([reply], Profile(call_id="nine"))
    ids = [call.id for call in found.calls]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch("[a-zA-Z0-9]{9}", one) for one in ids)
    assert "abcdefghi" in ids


SIGNED = f"call_{'0' * 32}__thought__{'QUJD' * 200}"


@pytest.mark.parametrize(
    ("model", "tool_format"),
    [
        ("openai/gpt-5-mini", "responses"),
        ("openai/gpt-5-mini", "completions"),
        ("anthropic/claude-sonnet-4-5", "responses"),
    ],
)
def test_signatures_in_ids_go_to_gemini_only(model: str, tool_format: Any) -> None:
    history = [
        {"role": "assistant", "content": None, "tool_calls": [{**CALL, "id": SIGNED}] * 2},
        {"role": "tool", "tool_call_id": SIGNED, "content": "post"},
    ]
    request = ask(messages=history)
    gemini = encoded(request, profile_of(library(), "gemini/gemini-3-pro-preview", tool_format))
    ids = [call["id"] for call in gemini["messages"][1]["tool_calls"]]
    assert ids[0] == SIGNED
    assert ids[1] == SIGNED.replace("__thought__", "_2__thought__")
    other = str(encoded(request, profile_of(library(), model, tool_format)))
    assert "__thought__" not in other
    assert SIGNED.partition("__")[0] in other


def test_long_ids_are_shortened_alike_in_call_and_result() -> None:
    history = [{**HISTORY[1], "tool_calls": [{**CALL, "id": "x" * 90}]}]
    history.append({**HISTORY[2], "tool_call_id": "x" * 90})
    _, reply, result = encoded(ask(messages=history), Profile())["messages"]
    assert len(reply["tool_calls"][0]["id"]) <= 64
    assert result["tool_call_id"] == reply["tool_calls"][0]["id"]


def test_gemini_3_gets_its_effort_and_is_forced_all_the_same() -> None:
    found = body("gemini/gemini-3-pro-preview", NAMED, "max")
    assert (found["reasoning_effort"], found["tool_choice"]) == ("high", CHOSEN)
    assert not {"thinking", "max_tokens"} & found.keys()
    found = body("gemini/gemini-2.5-flash", "required", "max")
    assert found["thinking"]["budget_tokens"] == 24576
    assert found["tool_choice"] == "required"


@pytest.mark.parametrize(
    ("model", "effort", "sent"),
    [
        ("groq/qwen/qwen3-32b", "low", {"reasoning_effort": "default"}),
        ("groq/qwen/qwen3-32b", "none", {"reasoning_effort": "none"}),
        ("zai/glm-5.3", "medium", {"reasoning_effort": "high"}),
        ("openrouter/anthropic/claude-opus-5.5", "xhigh", {"verbosity": "xhigh"}),
        ("openrouter/anthropic/claude-sonnet-4.5", "low", {"reasoning": {"max_tokens": 4000}}),
        ("openrouter/deepseek/deepseek-v4", "low", {"reasoning": {"effort": "low"}}),
        ("nvidia_nim/openai/gpt-oss-20b", "high", {"reasoning_effort": "high"}),
        ("dashscope/qwen3.6-plus", "low", {"thinking_budget": 4000}),
    ],
)
def test_efforts_are_told_in_the_words_of_the_provider(
    model: str, effort: str, sent: dict[str, Any]
) -> None:
    found = body(model, "auto", effort)
    assert found.items() >= sent.items()
    assert "max_tokens" not in found


@pytest.mark.parametrize("model", ["openai/gpt-4.1", "litellm_proxy/openai/gpt-5-mini"])
def test_openai_is_told_to_store_nothing(model: str) -> None:
    for tool_format in ("completions", "responses"):
        profile = profile_of(library(), model, tool_format)
        assert encoded(ask(model=model), profile)["store"] is False


def test_an_unlisted_server_needs_no_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1")
    found = body("openai/our-model")
    assert found.keys() == {"model", "messages", "tools", "tool_choice"}
    assert body("openai/our-model", effort="low")["reasoning_effort"] == "low"
    assert profile_of(library(), "openai/gpt-5-mini", "responses").wire == "responses"
    monkeypatch.setenv("OPENAI_BASE_URL", "https://api.openai.com/v1")
    assert profile_of(library(), "openai/our-model", "responses").wire == "responses"


TOML = """
[models."litellm_proxy/ours"]
like = "anthropic/claude-sonnet-4-5"
silence = 300

[models."openai/local"]
wire = "completions"
forced_any = "auto"
efforts = ["low", "high"]
arguments = { extra_body = { chat_template_kwargs = { thinking = true } } }
"""


def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    (tmp_path / "mail.toml").write_text(text)
    monkeypatch.setenv("MAIL_CONFIG_PATH", str(tmp_path / "mail.toml"))


def test_operators_set_fields_in_the_configuration_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(tmp_path, monkeypatch, TOML)
    given = overrides_for("litellm_proxy/ours", {})
    found = profile_of(library(), "litellm_proxy/ours", "responses", given)
    assert (found.wire, found.silence, found.effort_via) == ("anthropic", 300.0, "thinking_budget")
    own = overrides_for(
        "litellm_proxy/openai/local", {"forced_any": "ok"}
    )  # the agent's come first
    found = profile_of(library(), "litellm_proxy/openai/local", "responses", own)
    assert (found.wire, found.forced_any, found.efforts) == ("completions", "ok", ("low", "high"))
    sent = encoded(ask(), found)
    assert sent["extra_body"] == {"chat_template_kwargs": {"thinking": True}}
    assert overrides_for("openai/gpt-5", {}) == {}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[models."m"]\nwier = "completions"', r"""\[models."m"\] has no field 'wier'.*, wire"""),
        ('[models."m"]\nwire = "chat"', "'wire': must be 'completions'"),
        ('[models."m"]\nrow = "x"', "has no field 'row'"),
        ('[models."m"]\nlike = 3', "'like' must be the name of a model"),
        ('[models."m"]\nwithout = ["model"]', "'without': no call can be made without 'model'"),
        ("models = 3", "'models' must be a table"),
        ('[models]\nm = "x"', "must be a table of fields"),
    ],
)
def test_fields_that_no_profile_has_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, told: str
) -> None:
    configured(tmp_path, monkeypatch, text)
    with pytest.raises(ConfigError, match=told):
        configured_models()


def test_an_agent_sets_fields_of_its_own() -> None:
    def agent(**fields: object) -> LiteLLMAgentFunction:
        return LiteLLMAgentFunction("a", [], [], "openai/gpt-5", model_profile=fields)

    assert agent(forced_any="auto").model_profile == {"forced_any": "auto"}
    with pytest.raises(ConfigError, match="agent 'a': model_profile has no field 'forced'"):
        agent(forced="auto")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("longest_id", 5),  # calls whose ids are all the same
        ("max_tokens", 0),
        ("least_budget", 0),
        ("silence", -1),
        ("total", float("inf")),
    ],
)
def test_a_number_that_no_call_can_have_is_refused(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"here '{name}'"):
        checked_fields({name: value}, "here")


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (
            {"efforts": ["low", "hihg"]},
            r"'efforts\.1': must be 'none', 'minimal', .*or 'default'",
        ),
        (
            {"effort_via": "reasoning.effort"},
            "'effort_via': 'reasoning.effort' is none of none, re",
        ),
        ({"effort_via": "extra_body"}, "'extra_body' is none of .* extra_body: and a dotted path"),
        ({"effort_via": "extra_body:a..b"}, "and a dotted path"),
        ({"effort_via": "header:a"}, "and a dotted path"),
        ({"arguments": {"temperature": "0.3"}}, "'arguments.temperature': must be a number"),
        ({"arguments": {"top_p": 2}}, "'arguments.top_p': must be at most 1"),
        ({"arguments": {"num_ctx": 0}}, "'arguments.num_ctx': must be at least 1"),
        ({"arguments": {"num_ctx": 65536.5}}, "'arguments.num_ctx': must be an integer"),
        ({"arguments": {"extra_body": "x"}}, "'arguments.extra_body': must be an object"),
        ({"arguments": {"extra_headers": {"X-A": 1}}}, "'arguments.extra_headers.X-A': must be a"),
        ({"arguments": {"messages": []}}, "'arguments.messages': MAIL sets this argument"),
        ({"arguments": {"stream": False}}, "'arguments.stream': MAIL sets this argument"),
        ({"arguments": {"since": date(2026, 1, 1)}}, "'arguments.since': JSON has no such value"),
        ({"arguments": {"x": [float("nan")]}}, "'arguments.x': JSON has no such value"),
        ({"off_switch": {"thinking": "off"}}, "'off_switch.thinking': must be an object"),
    ],
)
def test_values_that_no_request_can_have_are_refused(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=f"^here.*{told}"):
        checked_fields(fields, "here")


def test_values_of_a_providers_own_are_taken() -> None:
    fields = {
        "efforts": ("none", "default"),
        "effort_via": "extra_body:chat_template_kwargs.thinking_budget",
        "arguments": {"temperature": 1, "stop": ["\n"], "keep_alive": "5m", "top_k": 40},
        "off_switch": {"extra_body": {"think": False}, "thinking": {"type": "disabled"}},
    }
    assert checked_fields(fields, "here") == fields


def test_no_cap_is_derived_from_an_effort_that_becomes_no_budget() -> None:
    model = "mistral/magistral-medium-latest"  # LiteLLM makes a prompt of the effort
    request = ask(model=model, settings=LLMSettings.resolve("high"))
    sent = encoded(request, profile_of(library(), model, "completions"))
    assert sent["reasoning_effort"] == "high"
    assert "max_tokens" not in sent


def test_no_field_is_lost_on_the_way() -> None:
    fields = {"efforts": ["low"], "headers": {"x": "y"}, "like": "openai/gpt-5", "total": 5}
    assert checked_fields(fields, "here") == {**fields, "efforts": ("low",)}


@pytest.mark.parametrize(
    ("model", "effort", "told"),
    [
        ("zai/glm-5.3", "medium", "so it gets 'high'"),
        ("dashscope/qwen3.7-plus", "low", None),
        ("zai/glm-4.7", "low", "takes no effort"),
        ("openai/gpt-5", "none", "so it gets 'minimal'"),
        ("openai/gpt-5", "low", None),
        ("anthropic/claude-sonnet-4-5", "xhigh", None),
        ("zai/glm-5.3", None, None),
    ],
)
def test_a_changed_effort_is_told(model: str, effort: str | None, told: str | None) -> None:
    settings = LLMSettings.resolve(effort)
    note = effort_note(settings, profile_of(library(), model, "responses"))
    assert (note is None) if told is None else told in str(note)


@pytest.mark.parametrize(
    ("model", "fields", "told"),
    [
        ("litellm_proxy/our-alias", {}, "'low' is not sent; if it does, set 'thinks'"),
        ("litellm_proxy/our-alias", {"thinks": "asked"}, None),
        ("litellm_proxy/openai/our-alias", {}, "'low' is not sent; if it does, set 'thinks'"),
        ("litellm_proxy/openai/our-alias", {"thinks": "asked"}, None),
        ("openai/our-model", {"wire": "responses"}, "'low' is not sent; if it does, set 'thinks'"),
        ("openai/gpt-5", {"effort_via": "adaptive"}, "set it to 'reasoning'"),
        ("openai/gpt-5", {"effort_via": "none"}, "takes no effort"),
        ("openai/gpt-5", {"effort_via": "reasoning_effort"}, None),
    ],
)
def test_an_effort_that_is_not_sent_over_responses_is_told(
    elsewhere: None, model: str, fields: dict[str, Any], told: str | None
) -> None:
    profile = profile_of(library(), model, "responses", fields)
    settings = LLMSettings.resolve("low")
    sent = encoded(ask(model=model, settings=settings), profile).get("reasoning", {})
    assert (profile.wire, "effort" in sent) == ("responses", told is None)
    note = effort_note(settings, profile)
    assert (note is None) if told is None else told in str(note)


def test_no_effort_is_lost_where_none_is_asked_for(elsewhere: None) -> None:
    profile = profile_of(library(), "litellm_proxy/our-alias", "responses")
    assert effort_note(LLMSettings.resolve("none"), profile) is None


def test_an_address_for_openai_says_nothing_of_a_proxys_models(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = "litellm_proxy/openai/our-other-model"
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.delenv("OPENAI_API_BASE", raising=False)
    before = profile_of(library(), model, "responses")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1")
    assert before.wire == "responses"
    assert profile_of(library(), model, "responses") == before


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a server that speaks like OpenAI's at its address."""
    monkeypatch.delenv("OPENAI_API_BASE", raising=False)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1")
