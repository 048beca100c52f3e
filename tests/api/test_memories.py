"""Named memories in swarms of one's own program."""

from typing import Any

import pytest

from mail import MAILAgentTemplate, MAILSwarmTemplate
from mail.clock import SystemClock
from mail.db.memory import MemoryStore
from mail.db.records import Owner
from mail.errors import ConfigError
from mail.factories import LiteLLMSupervisorFunction
from mail.llm.script import Step, call
from mail.llm.script_view import ScriptView
from mail.llm.scripted import ScriptedModel
from mail.services.preferences import Memories


async def test_agents_read_the_named_memories_of_their_user() -> None:
    def finish(view: ScriptView) -> Step:
        return call("task_complete", finish_message=view.system.partition("</memory>")[0])

    params = {"llm": "scripted", "model": ScriptedModel(finish), "system": "{memory:style}"}
    agent = MAILAgentTemplate(
        *("writer", LiteLLMSupervisorFunction, [], [], params),
        enable_entrypoint=True,
        can_complete_tasks=True,
    )
    template = MAILSwarmTemplate(
        name="office", agents=[agent], entrypoint="writer", memories={"style": "Be brief."}
    )
    store = MemoryStore()
    swarm = template.instantiate({}, user_id="alice", print_llm_streams=False, store=store)
    answer, _ = await swarm.post_message("hi")
    assert answer["message"]["body"].strip() == '<memory name="style">\nBe brief.'
    memories = Memories(store, Owner("office", "user", "alice"), SystemClock())
    await memories.write("style", "Be long.")
    answer, _ = await swarm.post_message("hi")
    assert answer["message"]["body"].strip() == '<memory name="style">\nBe long.'
    await swarm.shutdown()


@pytest.mark.parametrize(
    "memories", [{"a b": "x"}, {"a": 7}, {"a": "x" * 17_000}, {"a": "\0"}, ["a"]]
)
def test_memories_that_cannot_be_are_refused(memories: Any) -> None:
    agent = MAILAgentTemplate("writer", LiteLLMSupervisorFunction, [], [], {"llm": "scripted"})
    with pytest.raises(ConfigError, match="memories"):
        MAILSwarmTemplate(name="office", agents=[agent], entrypoint="writer", memories=memories)
