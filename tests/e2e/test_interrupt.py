"""An interrupt over HTTP stops a model that would stream through LiteLLM for half a minute."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mail.net.sse import SSEParser
from tests.e2e.evidence import report
from tests.e2e.processes import Place, place_of
from tests.e2e.script import STORY

pytestmark = pytest.mark.e2e

TASK = "tale"
PIECE = {"token_delay": 0.1}  # 300 words, so 30 seconds


@pytest.fixture
async def slow(tmp_path: Path) -> AsyncIterator[Place]:
    """A place whose provider is slow once."""
    async with place_of(tmp_path, PIECE) as place:
        await place.start()
        yield place


class Listener:
    """Follows a task's stream, pieces of model calls included."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.talking = asyncio.Event()

    async def listen(self) -> None:
        """Post the task and read its stream to the end."""
        body = {"body": "tell a tale", "task_id": TASK, "stream": True, "stream_tokens": True}
        parser = SSEParser()
        async with (
            self._place.client() as client,
            client.stream("POST", "/message", json=body) as answer,
        ):
            async for chunk in answer.aiter_bytes():
                for event in parser.feed(chunk):
                    self.events.append((event.event or "", json.loads(event.data)))
                if len(self.told) >= 5:
                    self.talking.set()

    @property
    def kinds(self) -> list[str]:
        """The kinds of the events in order."""
        return [kind for kind, _ in self.events]

    @property
    def told(self) -> list[str]:
        """The pieces of model calls in order."""
        return [data["delta"] for kind, data in self.events if kind == "model_delta"]


async def interrupt(place: Place) -> tuple[dict[str, Any], float]:
    """Post an interrupt; return its answer and how long the provider's call then lasted."""
    begun = time.time()
    body = {"body": "stop it", "msg_type": "interrupt", "task_id": TASK}
    async with place.client() as client:
        asking = asyncio.create_task(client.post("/message", json=body))
        async with asyncio.timeout(30):
            while not place.evidence.ends():
                await asyncio.sleep(0.005)
        seconds = time.time() - begun
        answer = await asking
    assert answer.status_code == 200, answer.text
    return answer.json(), seconds


async def test_an_interrupt_stops_a_streaming_model(slow: Place) -> None:
    listener = Listener(slow)
    listening = asyncio.create_task(listener.listen())
    async with asyncio.timeout(30):
        await listener.talking.wait()
    answer, seconds = await interrupt(slow)
    await asyncio.wait_for(listening, 30)
    report(f"the provider's call ended {seconds * 1000:.0f} ms after the interrupt was posted")
    assert seconds < 10.0
    assert answer["response"] == "stopped"
    check_events(listener)
    check_history(slow)
    first, *others = slow.evidence.ends()
    assert first["outcome"] == "client_gone"
    assert [end["outcome"] for end in others] == ["complete", "complete"]
    assert "Traceback" not in slow.log


def check_events(listener: Listener) -> None:
    """Check that nothing of the call comes after its end, and what comes when."""
    stored = [kind for kind in listener.kinds if kind != "model_delta"]
    assert stored == [
        "new_message",
        "new_message",
        "turn_interrupted",
        "model_usage",
        "tool_call",
        "task_complete_call",
        "new_message",
        "task_complete",
        "model_usage",
        "tool_call",
        "task_complete_call",
        "new_message",
        "task_complete",
    ]
    at = listener.kinds.index("turn_interrupted")
    assert "model_delta" not in listener.kinds[at:]
    text = "".join(listener.told)
    assert STORY.startswith(text) and len(text) < len(STORY)
    by_kind = dict(listener.events)
    assert by_kind["turn_interrupted"]["extra_data"]["partial_text"] == text
    answers = [data["response"] for kind, data in listener.events if kind == "task_complete"]
    assert answers == ["stopped", "told"]


def check_history(place: Place) -> None:
    """Check that the interrupt comes first and that nothing of the stopped call is kept."""
    history = place.evidence.history(TASK, "lead")
    mails = [entry["content"] for entry in history if entry.get("role") == "user"]
    assert [("stop it" in mail, "tell a tale" in mail) for mail in mails] == [
        (True, False),
        (False, True),
    ]
    assert "word1" not in str(history)
    shapes = [entry.get("role") or entry["type"] for entry in history]
    assert shapes == ["user", "function_call", "function_call_output"] * 2
    numbers = [number for number, _, _ in place.evidence.events(TASK)]
    assert numbers == list(range(1, len(numbers) + 1))
