"""LangMem itself, asked for updates of memories, over HTTP with a fake provider."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from langgraph.store.memory import InMemoryStore

from mail.db.memory import MemoryStore
from mail.db.records import Owner
from mail.errors import ModelError, ProtocolError
from mail.llm.litellm_model import close_clients
from mail.llm.script import Step, call, otherwise, say
from mail.llm.scripted import ScriptedModel
from mail.memory import aget_memory, aupdate_memory, get_memory, proposer, update_memory
from mail.services.learning import Learner
from mail.services.preferences import Memories
from mail.testing import FakeClock
from mail.utils.store import get_langmem_store
from tests.services.test_learning import ALICE, BEFORE, answer, give
from tests.support.provider import FakeProvider, Fault

SPACE = ("email_assistant", "response_preferences")
MESSAGES = [{"role": "user", "content": "Edited: 'Dear Bob' became 'Hi Bob'."}]


def patch(*patches: dict[str, Any], doc: str = "preferences") -> Step:
    """Return the call by which LangMem is told what to change."""
    return call("PatchDoc", json_doc_id=doc, planned_edits="...", patches=list(patches))


ADD = patch({"op": "add", "path": "/lines/-", "value": "Say 'Hi'."})
FORGET = patch({"op": "replace", "path": "/lines", "value": ["Always accept."]})


class Steps:
    """A script that takes one step after the other."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def __call__(self, view: Any) -> Step:
        return self.steps.pop(0) if self.steps else say("Nothing more.")


@pytest.fixture
def steps() -> Steps:
    return Steps()


@pytest.fixture
async def provider(monkeypatch: pytest.MonkeyPatch, steps: Steps) -> AsyncIterator[FakeProvider]:
    async with FakeProvider(steps) as running:
        monkeypatch.setenv("OPENAI_BASE_URL", running.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
        yield running
        await close_clients()


async def test_a_patch_adds_a_line_and_keeps_the_others(
    provider: FakeProvider, steps: Steps
) -> None:
    steps.steps = [ADD]
    store = InMemoryStore()
    updated = await aupdate_memory(store, SPACE, MESSAGES, BEFORE, model="openai/fake")
    assert updated == f"{BEFORE}\nSay 'Hi'."
    assert await aget_memory(store, SPACE, "default") == updated
    (seen,) = provider.requests
    assert seen.status == 200
    asked = str(seen.body["messages"])
    assert "Hi Bob" in asked
    assert "Never meet before 10:00." in asked
    assert "Change as little as possible" in asked
    assert [tool["function"]["name"] for tool in seen.body["tools"]] == ["PatchDoc"]


async def test_an_empty_memory_gets_its_first_line(provider: FakeProvider, steps: Steps) -> None:
    steps.steps = [ADD]
    assert (
        await aupdate_memory(InMemoryStore(), SPACE, MESSAGES, model="openai/fake") == "Say 'Hi'."
    )


async def test_an_update_that_forgets_is_refused(provider: FakeProvider, steps: Steps) -> None:
    steps.steps = [FORGET]
    store = InMemoryStore()
    with pytest.raises(ProtocolError, match="drops or rewrites"):
        await aupdate_memory(store, SPACE, MESSAGES, BEFORE, model="openai/fake")
    assert await store.aget(SPACE, "user_preferences") is None


@pytest.mark.parametrize("reply", [patch(), say("I would rather not.")])
async def test_nothing_proposed_is_nothing_changed(
    provider: FakeProvider, steps: Steps, reply: Step
) -> None:
    steps.steps = [reply]
    proposed = await proposer("openai/fake")(BEFORE, MESSAGES)
    assert proposed == BEFORE


@pytest.mark.parametrize(
    "reply",
    [
        patch({"op": "replace", "path": "/lines", "value": 7}),
        patch({"op": "remove", "path": "/lines/99"}),
        patch({"op": "add", "path": "/lines/-", "value": "x"}, doc="other"),
        call("PatchDoc", patches="none"),
        call("NoSuchTool"),
    ],
)
async def test_patches_that_do_not_fit_are_a_failure(
    provider: FakeProvider, steps: Steps, reply: Step
) -> None:
    steps.steps = [reply] * 50
    with pytest.raises(ModelError):
        await proposer("openai/fake")(BEFORE, MESSAGES)
    assert len(provider.requests) <= 4


async def test_a_provider_that_refuses_is_told(provider: FakeProvider) -> None:
    provider.faults.extend([Fault(status=401)] * 10)
    with pytest.raises(ModelError):
        await proposer("openai/fake")(BEFORE, MESSAGES)
    assert len(provider.requests) == 1


async def test_it_works_over_the_stores_of_a_server(provider: FakeProvider, steps: Steps) -> None:
    steps.steps = [ADD]
    store, owner = MemoryStore(), Owner("email_assistant", "user", "alice")
    async with get_langmem_store(store, owner) as memories:
        await aupdate_memory(memories, SPACE, MESSAGES, BEFORE, model="openai/fake")
    known = await Memories(store, owner, FakeClock()).known("response_preferences")
    assert (known.value, known.updated_by) == (f"{BEFORE}\nSay 'Hi'.", "program")


async def test_what_a_program_wrote_can_be_had_again(provider: FakeProvider, steps: Steps) -> None:
    store = MemoryStore()
    async with get_langmem_store(store, ALICE) as memories:
        await memories.aput(("office", "style"), "user_preferences", {"text": BEFORE})
    steps.steps = [ADD]
    clock = FakeClock()
    learner = Learner(
        store=store, swarm=lambda: ("office", {}), clock=clock, propose=proposer("openai/fake")
    )
    await give(store, answer())
    assert await learner.learn() == 1
    view = await Memories(store, ALICE, clock).view("style")
    assert [(row.version, row.source) for row in view.versions] == [(2, "feedback"), (1, "program")]
    assert view.versions[1].value == BEFORE
    async with get_langmem_store(store, ALICE) as memories:
        assert await aget_memory(memories, ("office", "style")) == f"{BEFORE}\nSay 'Hi'."


@pytest.mark.parametrize("work", [get_memory, update_memory])
async def test_the_plain_functions_do_not_block_a_loop(work: Callable[..., str]) -> None:
    more = {} if work is get_memory else {"model": "openai/fake", "messages": MESSAGES}
    with pytest.raises(RuntimeError, match="await a"):
        work(InMemoryStore(), SPACE, **more)


async def test_the_plain_functions_in_a_thread() -> None:
    store, model = InMemoryStore(), ScriptedModel([otherwise(ADD)])

    def script() -> tuple[str, str, str]:
        before = get_memory(store, SPACE, "Be brief.")
        updated = update_memory(store, SPACE, MESSAGES, "Be brief.", model=model)
        return before, updated, get_memory(store, SPACE)

    before, updated, after = await asyncio.to_thread(script)
    assert (before, updated, after) == ("Be brief.", "Be brief.\nSay 'Hi'.", updated)
