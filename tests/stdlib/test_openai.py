"""Agents over OpenAI's own library: real HTTP, to a provider that checks what it gets."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from mail import MAILAction, MAILAgentTemplate, MAILSwarm, MAILSwarmTemplate
from mail.core.call_context import CallContext, NullSink, enter_call
from mail.core.render import PRIMER
from mail.core.tools.call import AgentToolCall
from mail.errors import ConfigError, ModelError
from mail.llm.ask import collect
from mail.llm.request import ModelRequest
from mail.llm.retry import RetryPolicy
from mail.llm.script import call, call_text, otherwise, say, think, when
from mail.stdlib.openai import (
    OpenAIChatCompletionsAgentFunction,
    OpenAIChatCompletionsSupervisorFunction,
    OpenAIModel,
    OpenAIResponsesAgentFunction,
    OpenAIResponsesSupervisorFunction,
)
from tests.llm.support import Recorder
from tests.support.provider import FakeProvider, Fault, Search

KEY = "sk-environment-key-0123456789"
QUICK = RetryPolicy(base=0.001, cap=0.01)
AGENTS = [OpenAIChatCompletionsAgentFunction, OpenAIResponsesAgentFunction]
SUPERVISORS = [OpenAIChatCompletionsSupervisorFunction, OpenAIResponsesSupervisorFunction]
SCHEMA = {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}
NESTED = {"type": "function", "function": {"name": "count", "parameters": SCHEMA}}
FLAT = {"type": "function", "name": "weigh", "parameters": SCHEMA}
FORCED = {"type": "function", "name": "task_complete"}
Clerks = Callable[..., Any]


class Measure(BaseModel):
    """Measure an item."""

    item: str


@pytest.fixture
async def provider(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeProvider]:
    async with FakeProvider(key=KEY) as running:
        monkeypatch.setenv("OPENAI_BASE_URL", running.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        yield running


def clerk_of(kind: Any, **options: Any) -> Any:
    options = {"name": "clerk", "comm_targets": ["boss"], "model": "gpt-5-mini"} | options
    return kind(
        **{"tools": [NESTED, FLAT], "system": "You keep the stock.", "retry": QUICK} | options
    )


@pytest.fixture
async def clerk() -> AsyncIterator[Callable[..., Any]]:
    """Make agents, and close them in the end."""
    made: list[Any] = []

    def make(kind: Any, **options: Any) -> Any:
        made.append(clerk_of(kind, **options))
        return made[-1]

    yield make
    for agent in made:
        await agent.aclose()


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def entries(made: AgentToolCall) -> list[dict[str, Any]]:
    return [made.completion] if made.completion else made.responses


def names(provider: FakeProvider, request: int = -1) -> set[str]:
    return set(provider.requests[request].tool_names)


# --- conversations -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SUPERVISORS)
async def test_a_supervisors_conversation_is_accepted_step_by_step(
    provider: FakeProvider, clerk: Clerks, kind: Any
) -> None:
    provider.script = [
        when(forced="task_complete").then(call("task_complete", finish_message="out of time")),
        when(tool_result="send_request").then(say("Waiting.")),
        otherwise(
            think("Two questions."),
            say("I ask both."),
            call("send_request", target="weather", subject="Oslo", body="Weather?"),
            call("send_request", target="math", subject="Sum", body="2 + 2?"),
        ),
    ]
    agent = clerk(kind, comm_targets=["weather", "math"], system="You lead.")
    history = [user("Weather and sum, please.")]
    text, calls = await agent(history, "required")
    assert text == "I ask both."
    assert [made.tool_args["target"] for made in calls] == ["weather", "math"]
    history += [*entries(calls[0]), *(made.create_response_msg("SUCCESS") for made in calls)]
    text, (spoken,) = await agent(history, "required")
    assert (text, spoken.tool_name) == ("Waiting.", "text_output")
    history += [*entries(spoken), user("Finish.")]
    _, (forced,) = await agent(history, FORCED)
    assert forced.tool_args == {"finish_message": "out of time"}
    assert [seen.status for seen in provider.requests] == [200, 200, 200]
    assert len({str(seen.body["tools"]) for seen in provider.requests}) == 1
    assert {seen.wire for seen in provider.requests} == {kind.wire}
    assert {seen.system for seen in provider.requests} == {f"You lead.\n\n{PRIMER}"}
    assert {"task_complete", "send_interrupt", "send_broadcast", "count"} <= names(provider)


@pytest.mark.parametrize("kind", AGENTS)
async def test_an_agent_that_is_no_supervisor_gets_mails_tools_and_its_own(
    provider: FakeProvider, clerk: Clerks, kind: Any
) -> None:
    provider.script = [otherwise(call("count", item="pears"), call("weigh", item="pears"))]
    agent = clerk(kind, tools=[NESTED, FLAT, Measure], exclude_tools=["help"])
    text, calls = await agent([user("How many pears?")])
    assert text is None
    assert [made.tool_name for made in calls] == ["count", "weigh"]
    assert {"count", "weigh", "Measure", "send_request", "send_response"} <= names(provider)
    assert not {"help", "task_complete", "send_broadcast"} & names(provider)
    sent = provider.requests[0]
    assert (sent.model, sent.system) == ("gpt-5-mini", f"You keep the stock.\n\n{PRIMER}")
    assert sent.tool_choice == "required"
    assert sent.headers["authorization"] == f"Bearer {KEY}"


async def test_reasoning_is_told_kept_and_sent_back(provider: FakeProvider, clerk: Clerks) -> None:
    provider.script = [
        when(tool_result="count").then(say("Three.")),
        otherwise(think("Count first."), call("count", item="pears")),
    ]
    agent = clerk(OpenAIResponsesAgentFunction)
    history = [user("How many pears?")]
    _, (made,) = await agent(history, "auto")
    assert made.reasoning == ["Count first."]
    kinds = [item["type"] for item in made.responses]
    assert kinds == ["reasoning", "function_call"]
    history += [*made.responses, made.create_response_msg("3")]
    text, _ = await agent(history, "auto")
    assert text == "Three."
    sent = [item for item in provider.requests[1].body["input"] if item.get("type") == "reasoning"]
    assert [item["encrypted_content"] for item in sent] == [made.responses[0]["encrypted_content"]]
    assert provider.requests[1].status == 200


@pytest.mark.parametrize(
    ("model", "options", "reasons"),
    [
        ("gpt-5-mini", {}, True),
        ("openai/o4-mini", {}, True),
        ("gpt-4.1", {}, False),
        ("gpt-5-chat-latest", {}, False),
        ("my-model", {"reasoning_effort": "low"}, True),
        ("my-model", {"reasons": True}, True),
        ("gpt-5-mini", {"reasons": False}, False),
    ],
)
async def test_reasoning_is_asked_of_models_that_reason(
    provider: FakeProvider, clerk: Clerks, model: str, options: dict[str, Any], reasons: bool
) -> None:
    agent = clerk(OpenAIResponsesAgentFunction, model=model, **options)
    await agent([user("Hi")], "auto")
    body = provider.requests[0].body
    assert body["model"] == model.removeprefix("openai/")
    assert ("reasoning" in body) is reasons


@pytest.mark.parametrize(
    ("kind", "field"),
    list(zip(AGENTS, ["max_completion_tokens", "max_output_tokens"], strict=True)),
)
async def test_the_settings_reach_the_api(
    provider: FakeProvider, clerk: Clerks, kind: Any, field: str
) -> None:
    agent = clerk(kind, reasoning_effort="low", max_tokens=900, default_tool_choice="auto")
    await agent([user("Hi")])
    body = provider.requests[0].body
    assert (body[field], body["tool_choice"]) == (900, "auto")
    assert (body.get("reasoning_effort") or body["reasoning"]["effort"]) == "low"


@pytest.mark.parametrize(
    ("model", "tools", "wire"),
    [
        ("gpt-5-mini", [NESTED], "completions"),
        ("gpt-5.4", [NESTED], "responses"),
        ("openai/gpt-6-astra", [NESTED], "responses"),
        ("ft:gpt-5.6:ours", [NESTED], "responses"),
        ("gpt-6-sol", [], "completions"),
    ],
)
@pytest.mark.parametrize("own", [True, False])
async def test_models_that_call_no_tools_in_chats_are_asked_over_responses(
    provider: FakeProvider,
    clerk: Clerks,
    monkeypatch: pytest.MonkeyPatch,
    model: str,
    tools: list[Any],
    wire: str,
    own: bool,
) -> None:
    monkeypatch.setattr("mail.stdlib.openai.agents.asks_openai", lambda address: own)
    options = {"comm_targets": [], "tools": tools, "reasoning_effort": "minimal"}
    agent = clerk(OpenAIChatCompletionsAgentFunction, model=model, **options)
    await agent([user("Hi")], "auto")
    (seen,) = provider.requests
    assert seen.wire == (wire if own else "completions")
    assert seen.body.get("store", "unsaid") == (False if own else "unsaid")


async def test_a_switch_that_openai_lacks_reaches_another_server(
    provider: FakeProvider, clerk: Clerks
) -> None:
    agent = clerk(OpenAIChatCompletionsSupervisorFunction, model="claude-opus-5")
    await agent([user("Hi")], FORCED)
    assert provider.requests[0].body["thinking"] == {"type": "disabled"}


async def test_a_model_that_does_not_stream_is_asked_for_a_whole_reply(
    provider: FakeProvider, clerk: Clerks
) -> None:
    provider.script = [
        when(tool_result="count").then(say("Three.")),
        otherwise(think("Count."), call("count", item="pears")),
    ]
    whole = {"stream": False}
    agent = clerk(OpenAIResponsesAgentFunction, model="gpt-5-pro", model_profile=whole)
    sink = Recorder()
    enter_call(CallContext(sink=sink))
    _, (made,) = await agent([user("How many pears?")], "auto")
    history = [user("How many?"), *made.responses, made.create_response_msg("3")]
    text, _ = await agent(history, "auto")
    assert (text, sink.texts, made.reasoning) == ("Three.", ["Three."], ["Count."])
    assert not any(seen.body.get("stream") for seen in provider.requests)


async def test_a_tool_of_the_provider_is_passed_on_and_told(
    provider: FakeProvider, clerk: Clerks
) -> None:
    provider.script = [otherwise(Search("pears"), say("Pears are fruit."))]
    agent = clerk(OpenAIResponsesAgentFunction, tools=[{"type": "web_search"}])
    text, calls = await agent([user("What are pears?")], "auto")
    assert text == "Pears are fruit."
    assert [made.tool_name for made in calls] == ["web_search_call", "text_output"]


@pytest.mark.parametrize("kind", AGENTS)
async def test_arguments_that_are_no_json_do_not_break_the_history(
    provider: FakeProvider, clerk: Clerks, kind: Any
) -> None:
    provider.script = [
        when(tool_result="count").then(say("Sorry.")),
        otherwise(call_text("count", '{"item": ')),
    ]
    agent = clerk(kind)
    _, (made,) = await agent([user("How many?")], "auto")
    history = [user("How many?"), *entries(made), made.create_response_msg("ERROR")]
    text, _ = await agent(history, "auto")
    assert (text, provider.requests[-1].status) == ("Sorry.", 200)


# --- in a swarm --------------------------------------------------------------------------------


def shop(boss: Any, worker: Any) -> MAILSwarm:
    pay = MAILAction("pay", "Pay.", SCHEMA, lambda args: "never: it is a breakpoint")
    common: dict[str, Any] = {"agent_params": {"model": "gpt-5-mini", "retry": QUICK}}
    agents = [
        MAILAgentTemplate(
            "boss", boss, ["payer"], [], enable_entrypoint=True, can_complete_tasks=True, **common
        ),
        MAILAgentTemplate("payer", worker, ["boss"], [pay], **common),
    ]
    template = MAILSwarmTemplate(
        name="shop", version="1", agents=agents, actions=[], entrypoint="boss",
        breakpoint_tools=["pay"],
    )  # fmt: skip
    return template.instantiate({"user_token": "t"}, print_llm_streams=False)


SHOP = [
    when(tool_result="pay").then(
        lambda view: call(
            "send_response", target="boss", subject="Paid", body=view.results[-1].content
        )
    ),
    when(mail_from="payer").then(lambda view: call("task_complete", finish_message=view.body)),
    when(mail_from="boss").then(call("pay", item="pears"), call("pay", item="plums")),
    otherwise(call("send_request", target="payer", subject="Pay", body="pears and plums")),
]


@pytest.mark.parametrize(("boss", "worker"), list(zip(SUPERVISORS, AGENTS, strict=True)))
async def test_a_swarm_pauses_at_parallel_breakpoints_and_goes_on(
    provider: FakeProvider, boss: Any, worker: Any
) -> None:
    provider.script = SHOP
    swarm = shop(boss, worker)
    paused, _ = await swarm.post_message("Pay, please.", task_id="t")
    assert paused["message"]["subject"] == "::breakpoint_tool_call::"
    opened = json.loads(paused["message"]["body"])
    results = [{"call_id": made["call_id"], "content": "done"} for made in opened]
    assert len(results) == 2
    answer, _ = await swarm.post_message(
        "",
        task_id="t",
        resume_from="breakpoint_tool_call",
        breakpoint_tool_call_result=results,
    )
    assert answer["message"]["body"] == "done"
    assert {seen.status for seen in provider.requests} == {200}
    await swarm.shutdown()


async def test_a_changed_wiring_changes_what_the_model_is_offered(
    provider: FakeProvider, clerk: Clerks
) -> None:
    agent = clerk(OpenAIChatCompletionsSupervisorFunction)
    agent.set_peers(["porter"], "Here are details about the agents you can communicate with:\n…")
    await agent([user("Hi")])
    sent = provider.requests[0]
    [target] = [
        tool["function"]["parameters"]["properties"]["target"]
        for tool in sent.body["tools"]
        if tool["function"]["name"] == "send_interrupt"
    ]
    assert "porter" in str(target)
    assert "clerk" not in str(target)
    assert sent.system.startswith("You keep the stock.\n\nHere are details")


# --- failures ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", AGENTS)
@pytest.mark.parametrize(
    "fault",
    [
        Fault(status=429, retry_after=0.01),
        Fault(status=500),
        Fault(cut_after=1),
        Fault(cut_after=2, politely=True),
        Fault(error_event="overloaded"),
        Fault(html=True),
    ],
    ids=["429", "500", "cut", "ended", "error", "html"],
)
async def test_what_may_heal_is_tried_again(
    provider: FakeProvider, clerk: Clerks, kind: Any, fault: Fault
) -> None:
    provider.script = [otherwise(call("count", item="pears"))]
    provider.faults.append(fault)
    agent = clerk(kind)
    _, (made,) = await agent([user("Hi")], "auto")
    assert made.tool_args == {"item": "pears"}
    assert len(provider.requests) == 2


@pytest.mark.parametrize("kind", AGENTS)
async def test_a_wrong_key_is_told_once_and_not_shown(
    provider: FakeProvider, clerk: Clerks, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong-key-9876543210")
    agent = clerk(kind)
    with pytest.raises(ModelError, match=r"HTTP 401") as raised:
        await agent([user("Hi")])
    assert raised.value.status == 401
    assert "9876543210" not in str(raised.value)
    assert len(provider.requests) == 1


@pytest.mark.parametrize("kind", AGENTS)
async def test_without_a_key_nothing_is_sent(
    provider: FakeProvider, clerk: Clerks, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    agent = clerk(kind)
    with pytest.raises(ModelError, match="OPENAI_API_KEY") as raised:
        await agent([user("Hi")])
    assert raised.value.status == 401
    assert provider.requests == []


async def test_a_silent_provider_is_given_up(provider: FakeProvider, clerk: Clerks) -> None:
    provider.faults.extend([Fault(silence=30), Fault(silence=30)])
    agent = clerk(
        OpenAIResponsesAgentFunction, timeout=1.5, retry=RetryPolicy(attempts=2, base=0.001)
    )
    with pytest.raises(ModelError, match="did not answer in time"):
        await agent([user("Hi")])
    assert len(provider.requests) == 2


async def test_a_cancelled_call_ends_at_the_provider(provider: FakeProvider, clerk: Clerks) -> None:
    provider.script = [otherwise(say("word " * 200))]
    provider.faults.append(Fault(token_delay=0.05))
    agent = clerk(OpenAIChatCompletionsAgentFunction)
    running = asyncio.create_task(agent([user("Talk")], "auto"))
    await provider.first_token()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await provider.ended()
    assert provider.requests[0].outcome == "client_gone"


# --- the client --------------------------------------------------------------------------------


async def test_the_client_is_made_once_and_closed_with_the_swarm(
    provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    import openai

    made = []

    class Counted(openai.AsyncOpenAI):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            made.append(self)

    monkeypatch.setattr(openai, "AsyncOpenAI", Counted)
    swarm = shop(OpenAIResponsesSupervisorFunction, OpenAIResponsesAgentFunction)
    await asyncio.gather(*(swarm.post_message("Hello", task_id=f"t{n}") for n in range(3)))
    assert len(provider.requests) == 3
    [client] = made  # of the supervisor; the other agent was not asked
    assert not client.is_closed()
    await swarm.shutdown()
    assert client.is_closed()


def test_an_agent_works_in_one_event_loop_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    agent = clerk_of(OpenAIChatCompletionsAgentFunction)

    async def once() -> str:
        async with FakeProvider() as running:
            monkeypatch.setenv("OPENAI_BASE_URL", running.base_url)
            _, (made,) = await agent([user("Hi")])
            await agent.aclose()
            return str(made.tool_name)

    assert [asyncio.run(once()), asyncio.run(once())] == ["send_response", "send_response"]


async def test_another_model_for_one_call_is_asked_through_litellm(
    provider: FakeProvider, clerk: Clerks
) -> None:
    enter_call(CallContext(llm="scripted/mail.examples.scripts:MATH", system="Calculate."))
    agent = clerk(OpenAIChatCompletionsAgentFunction)
    _, (made,) = await agent([user("Hi")], "auto")
    assert made.tool_name == "send_response"
    assert provider.requests == []


def test_the_library_is_loaded_by_the_first_call_only() -> None:
    code = (
        "import sys\nfrom mail.stdlib.openai import OpenAIResponsesAgentFunction as Agent\n"
        "Agent(name='a', comm_targets=['b'], model='gpt-5-mini', tools=[])\n"
        "print([name for name in ('openai', 'litellm', 'httpx') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=90
    )
    assert done.stdout.strip() == "[]"


# --- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*AGENTS, *SUPERVISORS])
@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"model": ""}, "model must be the name"),
        ({"model": object()}, "model must be the name"),
        ({"use_proxy": True}, "has no option 'use_proxy'"),
        ({"reasoning_effort": "huge"}, "reasoning_effort"),
        ({"timeout": 0}, "timeout"),
        ({"model_profile": {"wier": "x"}}, "agent 'clerk': model_profile has no field 'wier'"),
        ({"model_profile": {"wire": "anthropic"}}, "agent 'clerk': .*does not speak"),
    ],
)
def test_a_wrong_setting_is_a_config_error(
    kind: Any, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        clerk_of(kind, **options)


@pytest.mark.parametrize("name", ["gpt-5-mini", "openai/gpt-5-mini"])
@pytest.mark.parametrize("listed", ["gpt-5-mini", "openai/gpt-5-mini"])
async def test_operators_and_agents_say_what_a_model_accepts(
    provider: FakeProvider,
    clerk: Clerks,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    listed: str,
) -> None:
    (tmp_path / "mail.toml").write_text(f'[models."{listed}"]\nsummary = false\nstream = false\n')
    monkeypatch.setenv("MAIL_CONFIG_PATH", str(tmp_path / "mail.toml"))
    agent = clerk(OpenAIResponsesAgentFunction, model=name)
    other = clerk(OpenAIResponsesAgentFunction, model=name, model_profile={"summary": True})
    for asked in (agent, other):
        await asked([user("Hi")], "auto")
    bodies = [seen.body for seen in provider.requests]
    assert not any(body.get("stream") for body in bodies)
    assert [body.get("reasoning", {}).get("summary") for body in bodies] == [None, "auto"]


async def test_a_model_without_an_agent_goes_by_what_the_operator_says(
    provider: FakeProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "mail.toml"
    monkeypatch.setenv("MAIL_CONFIG_PATH", str(config))
    request = ModelRequest(model="gpt-5-mini", messages=[user("Hi")])

    async def reply() -> None:
        model = OpenAIModel("completions", retry=QUICK)
        await collect(model.stream(request), NullSink())
        await model.aclose()

    config.write_text('[models."openai/gpt-5-mini"]\nwire = "responses"\nsummary = false\n')
    await reply()
    [seen] = provider.requests
    assert seen.wire == "responses"
    assert "reasoning" not in seen.body
    for text in ('wire = "anthropic"', 'wier = "x"'):
        config.write_text(f'[models."gpt-5-mini"]\n{text}\n')
        with pytest.raises(ModelError, match=r"model call failed: .*(anthropic|wier)") as caught:
            await reply()
        assert caught.value.status == 400
    assert len(provider.requests) == 1


async def test_a_profile_changes_the_wire_and_can_be_like_another_models(
    provider: FakeProvider, clerk: Clerks
) -> None:
    over = {"wire": "responses", "thinks": "always"}
    agent = clerk(OpenAIChatCompletionsAgentFunction, reasons=False, model_profile=over)
    await agent([user("Hi")], "auto")
    like = {"like": "anthropic/claude-opus-5"}
    agent = clerk(OpenAIChatCompletionsSupervisorFunction, model="our-alias", model_profile=like)
    await agent([user("Hi")], FORCED)
    first, second = provider.requests
    assert (first.wire, second.wire) == ("responses", "completions")
    assert first.body["include"] == ["reasoning.encrypted_content"]
    assert second.body["thinking"] == {"type": "disabled"}


@pytest.mark.parametrize("kind", [*AGENTS, *SUPERVISORS])
def test_the_tool_format_is_the_classs_own(kind: Any) -> None:
    other = "responses" if kind.wire == "completions" else "completions"
    assert clerk_of(kind, tool_format=other).tool_format == kind.wire
