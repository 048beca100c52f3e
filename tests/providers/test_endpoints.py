"""Agents with providers of their own: another address, another key, other settings for words."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from mail import MAILAgentTemplate, MAILSwarmTemplate
from mail.errors import ConfigError
from mail.factories import LiteLLMAgentFunction, LiteLLMSupervisorFunction
from mail.llm.litellm_model import close_clients, load_library
from mail.llm.provider_env import ModelUse, model_warnings
from mail.llm.request import Endpoint
from mail.stdlib.openai.agents import (
    OpenAIChatCompletionsAgentFunction,
    OpenAIResponsesAgentFunction,
)
from tests.support.provider import FakeProvider

KEYS = {"FIRST_KEY": "sk-first-0123456789", "SECOND_KEY": "sk-second-0123456789"}


@dataclass
class Two:
    """Two providers, each of which takes one key only."""

    first: FakeProvider
    second: FakeProvider


@pytest.fixture
async def two(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Two]:
    for name, key in {**KEYS, "OPENAI_API_KEY": "sk-of-the-environment"}.items():
        monkeypatch.setenv(name, key)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    async with (
        FakeProvider(key=KEYS["FIRST_KEY"]) as first,
        FakeProvider(key=KEYS["SECOND_KEY"]) as second,
    ):
        yield Two(first, second)
        await close_clients()


def agent(name: str, target: str, **params: Any) -> MAILAgentTemplate:
    return MAILAgentTemplate(
        name=name,
        factory=LiteLLMSupervisorFunction,
        comm_targets=[target],
        actions=[],
        agent_params={"system": "Help.", **params},
        enable_entrypoint=True,
        can_complete_tasks=True,
        tool_format="completions",
    )


async def test_each_agent_has_an_address_a_key_and_settings_of_its_own(two: Two) -> None:
    agents = [
        agent(
            "lead",
            "helper",
            llm="openai/gpt-4o",
            api_base=two.first.base_url,
            api_key="FIRST_KEY",
            temperature=0.2,
            seed=7,
            stop=["END"],
        ),
        agent(
            "helper",
            "lead",
            llm="openai/some-model-of-theirs",
            api_base=two.second.base_url,
            api_key="SECOND_KEY",
            top_p=0.5,
        ),
    ]
    template = MAILSwarmTemplate("two", "1.3.6", agents, [], "lead")
    swarm = template.instantiate({"user_token": "t"})
    try:
        for name in ("lead", "helper"):
            await swarm.post_message_and_run("Hello", entrypoint=name)
    finally:
        await swarm.shutdown()
    assert {seen.headers["authorization"] for seen in two.first.requests} == {
        f"Bearer {KEYS['FIRST_KEY']}"
    }
    sent = two.first.requests[0].body
    assert (sent["temperature"], sent["seed"], sent["stop"]) == (0.2, 7, ["END"])
    [other] = two.second.requests
    assert other.headers["authorization"] == f"Bearer {KEYS['SECOND_KEY']}"
    assert other.body["top_p"] == 0.5 and "temperature" not in other.body


async def ask(**params: Any) -> Any:
    made = LiteLLMAgentFunction("a", [], [], _debug_include_mail_tools=False, **params)
    return await made([{"role": "user", "content": "Hello"}], "auto")


async def test_an_address_without_a_key_gets_none(two: Two) -> None:
    async with FakeProvider() as open_to_all:
        await ask(llm="openai/gpt-4o", api_base=open_to_all.base_url, tool_format="completions")
        [seen] = open_to_all.requests
    assert seen.headers["authorization"] == "Bearer none"


@pytest.mark.parametrize("wire", ["responses", "anthropic"])
async def test_the_other_formats_go_there_too(two: Two, wire: str) -> None:
    if wire == "responses":
        where: dict[str, Any] = {"llm": "openai/gpt-5-mini", "api_base": two.first.base_url}
    else:
        where = {"llm": "anthropic/claude-sonnet-4-5", "api_base": two.first.root_url}
    await ask(**where, api_key="FIRST_KEY")
    [seen] = two.first.requests
    assert seen.wire == wire


@pytest.mark.parametrize("kind", [OpenAIChatCompletionsAgentFunction, OpenAIResponsesAgentFunction])
async def test_agents_that_need_openai_alone_have_them_too(two: Two, kind: Any) -> None:
    made = kind(
        "a", [], "gpt-4o", [], api_base=two.second.base_url, api_key="SECOND_KEY", top_p=0.5
    )
    await made([{"role": "user", "content": "Hello"}], "auto")
    await made.model.aclose()
    [seen] = two.second.requests
    assert seen.headers["authorization"] == f"Bearer {KEYS['SECOND_KEY']}"
    assert seen.body["top_p"] == 0.5


async def test_a_setting_that_a_model_refuses_is_left_out(two: Two) -> None:
    await ask(
        llm="openai/gpt-5-mini",
        api_base=f"{two.first.root_of('openai')}/v1",
        api_key="FIRST_KEY",
        temperature=0.3,
    )
    assert "temperature" not in two.first.requests[-1].body
    assert two.first.requests[-1].outcome == "complete"


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"api_key": "sk-a-key-itself"}, "api_key must be the name of the environment variable"),
        ({"api_base": "openrouter.ai/api"}, "api_base must be an address such as https://"),
        ({"api_base": "https://me:secret@host"}, "api_base must be an address"),
        ({"api_base": "https://host", "use_proxy": True}, "use_proxy and api_base exclude"),
        ({"temperature": "hot"}, "temperature must be a number, got the string 'hot'"),
        ({"temperature": 3}, "temperature must be between 0 and 2"),
        ({"top_p": 1.5}, "top_p must be between 0 and 1"),
        ({"seed": 1.5}, "seed must be a whole number"),
        ({"stop": "END"}, "stop must be a list of texts"),
    ],
)
def test_a_wrong_setting_is_told_when_the_agent_is_made(params: Any, said: str) -> None:
    with pytest.raises(ConfigError, match="agent 'a': .*" + said.replace("(", r"\(")) as told:
        LiteLLMAgentFunction("a", [], [], "openai/gpt-4o", **params)
    assert "secret" not in str(told.value) and "sk-a-key" not in str(told.value)


def test_a_missing_key_is_told_at_the_start_and_others_are_not_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    litellm = load_library()
    with_key = ModelUse("a", "openai/gpt-4o", "responses", False, Endpoint("http://h/v1", "MY_KEY"))
    [told] = model_warnings(litellm, [with_key])
    assert "MY_KEY is not set" in told
    assert model_warnings(litellm, [with_key._replace(endpoint=Endpoint("http://h/v1"))]) == []
