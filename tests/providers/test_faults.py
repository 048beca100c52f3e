"""Every fault on every wire: success after a retry, or the provider's reason at the caller."""

import asyncio
import time

import pytest

from mail.llm.litellm_model import LiteLLMModel
from mail.llm.script import call, call_text, otherwise, say, when
from tests.providers.swarms import MODELS, QUICK, Path, lead_swarm, run
from tests.support.provider import FakeProvider, Fault

PATHS = [pytest.param(path, id=path.wire) for path in MODELS]
QUIET = ("silence", "slow")
"""What only time heals: a call that says nothing for a second and a half is given up."""
SCRIPT = [otherwise(say("I finish. "), call("task_complete", finish_message="fine"))]

HEALING = {
    "429": Fault(status=429),
    "429-with-a-time": Fault(status=429, retry_after=0.05),
    "408": Fault(status=408),
    "500": Fault(status=500),
    "503": Fault(status=503, retry_after=0.01),
    "529": Fault(status=529, message="Overloaded"),
    "silence": Fault(silence=5.0),
    "slow": Fault(token_delay=5.0),
    "cut-at-once": Fault(cut_after=0),
    "cut-in-the-middle": Fault(cut_after=4),
    "ended-at-once": Fault(cut_after=0, politely=True),
    "ended-in-the-middle": Fault(cut_after=4, politely=True),
    "error-event": Fault(error_event="the engine stumbled"),
    "error-event-in-the-middle": Fault(error_event="the engine stumbled", cut_after=4),
    "response-failed": Fault(error_event="the engine stumbled", failed=True, cut_after=2),
    "html": Fault(html=True),
}
FINAL = (400, 401, 403, 404, 422)


@pytest.mark.parametrize("fault", HEALING)
@pytest.mark.parametrize("path", PATHS)
async def test_what_may_heal_is_tried_again(
    provider: FakeProvider, path: object, fault: str
) -> None:
    provider.script = SCRIPT
    provider.faults.append(HEALING[fault])
    swarm = lead_swarm(path, timeout=1.5 if fault in QUIET else 20.0, deadline=30.0)
    try:
        outcome = await asyncio.wait_for(run(swarm, "Go.", streamed=True), 40.0)
    finally:
        await swarm.shutdown()
    assert (outcome.subject, outcome.body) == ("::task_complete::", "fine")
    assert len(provider.requests) == 2
    assert provider.requests[0].body == provider.requests[1].body
    after_restart = [e for e in outcome.deltas if e.extra["type"] == "restart"]
    assert len(after_restart) <= 1
    text = ""
    for event in outcome.deltas:
        text = "" if event.extra["type"] == "restart" else text + event.extra["delta"]
    assert text == "I finish. "


@pytest.mark.parametrize("status", FINAL)
@pytest.mark.parametrize("path", PATHS)
async def test_what_cannot_heal_is_told_at_once(
    provider: FakeProvider, path: object, status: int
) -> None:
    provider.faults.append(Fault(status=status, message="sk-ant-environment-key-0123456789 is bad"))
    swarm = lead_swarm(path)
    try:
        outcome = await run(swarm, "Go.", streamed=False)
    finally:
        await swarm.shutdown()
    assert outcome.subject == "::task_error::"
    assert f"(HTTP {status})" in outcome.body
    assert outcome.body.endswith(" is bad")
    assert "environment-key" not in repr(outcome.events) + outcome.body
    assert len(provider.requests) == 1


@pytest.mark.parametrize("path", PATHS)
async def test_a_retry_is_seen_while_it_is_waited_for(provider: FakeProvider, path: Path) -> None:
    provider.script = SCRIPT
    provider.faults.append(Fault(status=429, retry_after=0.02, message="key sk-0123456789abcdef?"))
    asked, again = asyncio.Event(), asyncio.Event()

    async def sleep(seconds: float) -> None:
        asked.set()
        await again.wait()

    swarm = lead_swarm(path, model=LiteLLMModel(QUICK, sleep))
    try:
        run = await swarm.open_run("Go.", task_id="busy")
        await asked.wait()
        seen = (await swarm.read_task("busy")).events[-1]  # what the store has by now
        assert (seen.kind, len(provider.requests)) == ("model_retry", 1)
        told = seen.data["extra_data"]
        assert (told["caller"], told["model"]) == ("lead", path.llm)
        assert (told["status_code"], told["attempt"]) == (429, 1)
        assert 0.02 <= told["seconds"] < 1 and "sk-0123" not in str(seen.data)
        assert f"429 from {path.llm}, next attempt in 0.0 s" in seen.data["description"]
        again.set()
        end = await run.end()
    finally:
        await swarm.shutdown()
    assert (end.body, [seen.status for seen in provider.requests]) == ("fine", [429, 200])


@pytest.mark.parametrize("path", PATHS)
async def test_a_long_wait_is_seen_too(provider: FakeProvider, path: Path) -> None:
    provider.script = SCRIPT
    provider.faults.append(Fault(status=429, retry_after=45.0))
    swarm = lead_swarm(path)
    try:
        await swarm.open_run("Go.", task_id="busy")
        async for event in swarm.replay("busy"):
            if event.kind == "model_retry":
                break
        assert f"429 from {path.llm}, next attempt in 45 s" in event.data["description"]
        await swarm.cancel_task("busy")
    finally:
        await swarm.shutdown()


@pytest.mark.parametrize("path", PATHS)
async def test_attempts_end_with_the_last_reason(provider: FakeProvider, path: object) -> None:
    provider.faults.extend(Fault(status=500, message=f"reason {n}") for n in range(20))
    swarm = lead_swarm(path)
    try:
        outcome = await run(swarm, "Go.", streamed=False)
    finally:
        await swarm.shutdown()
    assert outcome.subject == "::task_error::"
    assert f"reason {QUICK.attempts - 1}" in outcome.body
    assert len(provider.requests) == QUICK.attempts


@pytest.mark.parametrize("path", PATHS)
async def test_a_provider_that_is_always_silent_is_given_up_in_time(
    provider: FakeProvider, path: object
) -> None:
    provider.faults.extend(Fault(silence=30.0) for _ in range(20))
    swarm = lead_swarm(path, timeout=0.3, deadline=1.5)
    began = time.monotonic()
    try:
        outcome = await run(swarm, "Go.", streamed=False)
    finally:
        await swarm.shutdown()
    assert "did not answer in time" in outcome.body
    assert time.monotonic() - began < 20.0
    assert 2 <= len(provider.requests) <= QUICK.attempts


@pytest.mark.parametrize("path", PATHS)
async def test_broken_arguments_and_unknown_tools_go_back_to_the_model(
    provider: FakeProvider, path: object
) -> None:
    provider.script = [
        when(tool_result="no_such_tool").then(call("task_complete", finish_message="mended")),
        when(tool_result="look_up", result="JSON").then(call("no_such_tool", x=1)),
        otherwise(call_text("look_up", '{"word": "ma')),
    ]
    swarm = lead_swarm(path)
    try:
        outcome = await run(swarm, "Go.", streamed=False)
    finally:
        await swarm.shutdown()
    assert (outcome.subject, outcome.body) == ("::task_complete::", "mended")
    assert [seen.status for seen in provider.requests] == [200, 200, 200]
