"""Traces: one for a task in three swarms, with the names that OpenTelemetry has for them."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.federation.traced import Server, script, served
from tests.support.collector import Collector, ReceivedSpan
from tests.support.provider import FakeProvider, Fault

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CALLER = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{CALLER}-00f067aa0ba902b7-01"

AGENT = {"gen_ai.operation.name", "gen_ai.agent.name", "gen_ai.conversation.id"}
TABLE: dict[str, tuple[str, set[str], set[str]]] = {
    "invoke_workflow": ("INTERNAL", AGENT, {"error.type"}),
    "invoke_agent": ("INTERNAL", AGENT, {"error.type", "gen_ai.input.messages"}),
    "chat": (
        "CLIENT",
        {"gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model"},
        {
            "error.type",
            "gen_ai.conversation.id",
            "gen_ai.input.messages",
            "gen_ai.output.messages",
            "gen_ai.request.max_tokens",
            "gen_ai.request.seed",
            "gen_ai.request.stream",
            "gen_ai.request.temperature",
            "gen_ai.request.top_k",
            "gen_ai.request.top_p",
            "gen_ai.response.finish_reasons",
            "gen_ai.response.id",
            "gen_ai.response.model",
            "gen_ai.system_instructions",
            "gen_ai.usage.cache_read.input_tokens",
            "gen_ai.usage.input_tokens",
            "gen_ai.usage.output_tokens",
            "gen_ai.usage.reasoning.output_tokens",
        },
    ),
    "execute_tool": (
        "INTERNAL",
        {"gen_ai.operation.name", "gen_ai.tool.name"},
        {
            "error.type",
            "gen_ai.tool.call.arguments",
            "gen_ai.tool.call.id",
            "gen_ai.tool.call.result",
            "gen_ai.tool.type",
        },
    ),
    "mcp": ("CLIENT", {"mcp.method.name"}, {"error.type", "jsonrpc.request.id"}),
}
"""Operation to the kind of its spans, the attributes that v0.1.0 requires, and those it knows."""
NAMED = {
    "invoke_workflow": "gen_ai.agent.name",
    "invoke_agent": "gen_ai.agent.name",
    "chat": "gen_ai.request.model",
    "execute_tool": "gen_ai.tool.name",
}
"""Operation to the attribute that follows it in the names of its spans."""
CONTENT = {
    *("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions"),
    *("gen_ai.tool.call.arguments", "gen_ai.tool.call.result"),
}


class Traced:
    """The servers, their collector and their provider."""

    def __init__(
        self, servers: dict[str, Server], collector: Collector, provider: FakeProvider
    ) -> None:
        self.servers, self.collector, self.provider = servers, collector, provider

    async def ask(self, body: str, **more: Any) -> dict[str, Any]:
        """Have the dispatcher told something; return the answer."""
        async with self.servers["harbour"].client() as client:
            answer = await client.post("/message", json={"body": body}, **more)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def trace(
        self, task_id: str, done: Callable[[list[ReceivedSpan]], bool] = lambda spans: True
    ) -> list[ReceivedSpan]:
        """Return the spans of a task's trace when its run has come, and what is asked for."""

        def of_task(spans: list[ReceivedSpan]) -> list[ReceivedSpan]:
            own = [
                each for each in spans if each.attributes.get("gen_ai.conversation.id") == task_id
            ]
            return [span for span in spans if span.trace in {each.trace for each in own}]

        def is_whole(spans: list[ReceivedSpan]) -> bool:
            mine = of_task(spans)
            ids = {span.id for span in mine}
            named = {span.parent for span in mine} - ids - {"", TRACEPARENT.split("-")[2]}
            return any("invoke_workflow" in span.name for span in mine) and not named and done(mine)

        return of_task(await self.collector.until(is_whole))


@pytest.fixture
async def traced(tmp_path: Path) -> AsyncIterator[Traced]:
    async with Collector() as collector, FakeProvider(script) as provider:
        endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
        async with served(tmp_path, provider.base_url, **endpoint) as servers:
            yield Traced(servers, collector, provider)


def operation(span: ReceivedSpan) -> str:
    return "mcp" if "mcp.method.name" in span.attributes else span.name.partition(" ")[0]


def check_names(spans: list[ReceivedSpan]) -> None:
    """See that spans have the names, kinds and attributes of the conventions, and no others."""
    for span in spans:
        if span.kind == "SERVER":
            assert span.name == f"POST {span.attributes['http.route']}"
            continue
        kind, required, known = TABLE[operation(span)]
        assert span.kind == kind, span
        assert required <= span.attributes.keys() <= required | known, span
        if operation(span) in NAMED:
            assert span.name == f"{operation(span)} {span.attributes[NAMED[operation(span)]]}"
        assert span.failed == ("error.type" in span.attributes), span
        assert span.events == ()


async def test_a_task_in_three_swarms_is_one_trace(traced: Traced) -> None:
    answer = await traced.ask("How is the weather?")
    assert answer["response"] == "chief says: it ebbs"

    def has_all(spans: list[ReceivedSpan]) -> bool:
        return sum(span.name.startswith("invoke_agent") for span in spans) == 7

    spans = await traced.trace(answer["task_id"], has_all)
    assert len({span.trace for span in spans}) == 1
    check_names(spans)
    told = {(span.swarm, operation(span)) for span in spans if span.kind != "SERVER"}
    assert told == {
        *((swarm, each) for swarm in traced.servers for each in ("invoke_agent", "chat")),
        ("harbour", "invoke_workflow"),
        ("harbour", "execute_tool"),
        ("tide", "execute_tool"),
        ("tide", "mcp"),
    }
    by_id = {span.id: span for span in spans}

    def path(span: ReceivedSpan) -> list[str]:
        return [] if span.id not in by_id else [span.name, *path(by_id.get(span.parent, ROOT))]

    [mcp] = [span for span in spans if span.attributes.get("mcp.method.name") == "tools/call"]
    assert path(mcp)[1:] == [
        *("execute_tool notes__note", "invoke_agent gauge", "invoke_agent chief"),
        *("invoke_agent dispatcher", "invoke_agent dispatcher", "invoke_workflow harbour"),
        "POST /message",
    ]
    [chat, *_] = [s for s in spans if operation(s) == "chat" and s.swarm == "weather"]
    assert chat.attributes["gen_ai.provider.name"] == "openai"
    assert chat.attributes["gen_ai.request.model"] == "gpt-5-mini"
    assert chat.attributes["gen_ai.response.finish_reasons"] == ["tool_calls"]
    assert chat.attributes["gen_ai.usage.input_tokens"] > 0
    assert "secret" not in str(traced.collector.spans)
    for span in spans:
        assert span.resource["service.name"] == "mail"
        assert span.resource["service.instance.id"]


ROOT = ReceivedSpan(
    name="", kind="", trace="", id="-", parent="", attributes={}, failed=False, links=(),
    events=(), resource={}, seconds=0.0,
)  # fmt: skip


async def test_the_trace_of_the_caller_goes_on_and_a_failure_is_told(traced: Traced) -> None:
    answer = await traced.ask("fail", headers={"traceparent": TRACEPARENT})
    spans = await traced.trace(answer["task_id"], lambda spans: any(s.failed for s in spans))
    assert {span.trace for span in spans} == {CALLER}
    assert {span.swarm for span in spans} == {"harbour", "weather", "tide"}
    check_names(spans)
    # What comes later into the task is of its trace, and tells of the request's own.
    other = TRACEPARENT.replace("4bf9", "4bf8")
    body = {"body": "nobody needs to know", "task_id": answer["task_id"]}
    async with traced.servers["harbour"].client() as client:
        again = await client.post("/message", json=body, headers={"traceparent": other})
    assert again.status_code == 200

    def has_both(spans: list[ReceivedSpan]) -> bool:
        return sum(span.name.startswith("invoke_workflow") for span in spans) == 2

    spans = await traced.trace(answer["task_id"], has_both)
    runs = [span for span in spans if operation(span) == "invoke_workflow"]
    assert {span.trace for span in runs} == {CALLER}
    assert runs[1].links == (CALLER.replace("4bf9", "4bf8"),)


async def test_a_task_has_the_same_trace_after_a_restart(traced: Traced) -> None:
    weather = traced.servers["weather"]
    asked = asyncio.create_task(traced.ask("How is the weather?"))
    traced.provider.faults.extend([None, None, Fault(silence=60)])
    async with asyncio.timeout(60):
        while len(traced.provider.requests) < 3:
            await asyncio.sleep(0.02)
    await weather.stop(signal.SIGKILL)
    await weather.start()
    answer = await asked
    assert answer["response"] == "chief says: it ebbs"

    def has_all(spans: list[ReceivedSpan]) -> bool:
        return sum(span.name.startswith("invoke_agent") for span in spans) >= 7

    spans = await traced.trace(answer["task_id"], has_all)
    turns = [span for span in spans if operation(span) == "invoke_agent"]
    assert {span.swarm for span in turns} == set(traced.servers)
    assert len({span.trace for span in turns}) == 1


async def test_content_is_in_traces_if_it_is_asked_for(tmp_path: Path) -> None:
    async with Collector() as collector, FakeProvider(script) as provider:
        wanted = {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"}
        wanted |= {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_SERVICE_NAME": "ships"}
        async with served(tmp_path, provider.base_url, **wanted) as servers:
            traced = Traced(servers, collector, provider)
            answer = await traced.ask("How is the weather?")
            spans = await traced.trace(answer["task_id"], lambda spans: len(spans) > 20)
    check_names(spans)
    assert {key for span in spans for key in span.attributes} >= CONTENT
    [tool] = [span for span in spans if span.name == "execute_tool look_up"]
    assert tool.attributes["gen_ai.tool.call.arguments"] == '{"what":"the secret harbour"}'
    assert tool.attributes["gen_ai.tool.call.result"] == "the secret harbour is known"
    chats = [span.attributes for span in spans if operation(span) == "chat"]
    assert any('"role":"tool"' in chat["gen_ai.input.messages"] for chat in chats)
    assert all('"type":"tool_call"' in chat["gen_ai.output.messages"] for chat in chats)
    assert {span.resource["service.name"] for span in spans} == {"ships"}


@pytest.mark.parametrize("trouble", ["silent", "down", "failing"])
async def test_a_collector_in_trouble_disturbs_nothing(trouble: str, tmp_path: Path) -> None:
    async with Collector() as collector, FakeProvider(script) as provider:
        url = collector.url
        if trouble == "silent":
            collector.gate.clear()
        elif trouble == "failing":
            collector.status = 503
        else:
            url = "http://127.0.0.1:9"
        endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": url}
        async with served(tmp_path, provider.base_url, "harbour", **endpoint) as servers:
            traced = Traced(servers, collector, provider)
            for _ in range(3):
                assert (await traced.ask("nobody needs to know"))["status"] == "completed"
            began = time.monotonic()
            await servers["harbour"].stop()
            assert time.monotonic() - began < 20
            assert "Traceback" not in servers["harbour"].log
