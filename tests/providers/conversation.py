"""One conversation of six turns with everything that histories go through, against any provider.

Parallel calls, a pause for a person, an interrupt, a process that dies in the middle of a turn, a
summary of old history, another model in between, and an end that is forced.
"""

import asyncio
import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from mail import MAILAgentTemplate, MAILSwarm, MAILSwarmTemplate
from mail.core.events import TaskEvent
from mail.core.runtime import RuntimeSettings
from mail.core.tasks import TaskState
from mail.db.commit import Commit, Receipt, TurnCommit
from mail.db.store import Store
from mail.db.urls import open_store
from mail.factories import LiteLLMSupervisorFunction
from mail.llm.compress import Compressor
from mail.llm.litellm_model import LiteLLMModel
from mail.llm.retry import RetryPolicy
from mail.llm.script import call, say, think
from mail.llm.script_view import Mail, ScriptView
from tests.providers.swarms import ASK_USER, LOOK_UP, Outcome
from tests.support.provider import FakeProvider, Seen

__all__ = ["ANSWERS", "TASK", "Case", "Conversation", "Script", "kept", "thoughts"]

TASK = "t"
SECRET = "First three words."

_CONTEXT = multiprocessing.get_context("forkserver")
_FOUND_BY = ("_API_KEY", "_API_BASE", "_BASE_URL", "_BEDROCK", "_RUNTIME_ENDPOINT", "_REGION_NAME")
_QUICK = RetryPolicy(base=0.001, cap=0.01)
_LONG = "word " * 6000
_ROOM = 14_000
"""Tokens of the model's context in the turn in which old history is summarised."""


@dataclass(frozen=True)
class Case:
    """A provider, one of its models, and how an agent asks for it.

    ``kept`` says that reasoning must come back to the provider, ``forced`` that the model can be
    made to end its task, ``streams`` that its replies come in pieces. ``other`` is the model that
    the fifth turn changes to, of the provider ``other_at``. ``refusals`` is how many requests may
    be refused, each answered by one that is not: what nobody can know of an account beforehand.
    """

    name: str
    at: str
    llm: str
    tool_format: str = "responses"
    params: Mapping[str, Any] = field(default_factory=dict)
    use_proxy: bool = False
    kept: bool = True
    forced: bool = True
    streams: bool = True
    refusals: int = 0
    other: str = "openai/gpt-5-mini"
    other_at: str = "openai"
    environment: Mapping[str, str] = field(default_factory=dict)


def _finish(message: str) -> Any:
    return call("task_complete", finish_message=message)


def _looks(*words: str) -> list[Any]:
    return [call("look_up", word=word) for word in words]


class Script:
    """The model of the conversation; it is silent for as long as ``silent`` says so.

    Attributes:
        silent: Whether the second reply of the fourth turn does not come.
        reached: Set when it did not.
        at_once: Whether replies come whole, so that the one to interrupt must not come at all.
        writing: Set when the reply to interrupt is asked for.
    """

    def __init__(self) -> None:
        self.silent = False
        self.reached = asyncio.Event()
        self.writing = asyncio.Event()
        self.at_once = False

    async def __call__(self, view: ScriptView) -> list[Any]:
        """Return the steps of a reply."""
        if not view.tools:
            return [say("Words were looked up.")]
        if "reached its limit" in view.body:
            # Who cannot be forced may say so in words.
            return [say("ended") if view.tool_choice == "auto" else _finish("ended")]
        found = _found(view)
        turn = (view.mail_from() or view.mail).body.split()[0]
        if turn == "Four" and found and self.silent:
            self.reached.set()
            await asyncio.sleep(3600)
        if turn == "Three" and not self.writing.is_set():
            self.writing.set()
            await asyncio.sleep(3600 if self.at_once else 0)
        steps: list[Any] = _BEGUN[turn] if not found else _ENDED[turn](found)
        return steps


def _found(view: ScriptView) -> list[str]:
    """Return the results since the newest mail that is not the system's."""
    results: list[str] = []
    for message in reversed(view._messages):
        text = message.get("content")
        if message.get("role") == "tool":
            results.append(str(text))
        elif message.get("role") == "user" and Mail.read(_text(text)).sender_type != "system":
            break
    return results[::-1]


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content or ())


_BEGUN: Mapping[str, list[Any]] = {
    "One": [think(SECRET), *_looks("a", "b", "c")],
    "Two": [think("Ask."), call("ask_user", question="Which?"), *_looks("d")],
    "Three": [think("A story."), say("once upon a time " * 200), *_looks("e")],
    "Halt": [think("Something came."), *_looks("e")],
    "Four": [think("Look first."), *_looks("f")],
    "Five": [think("Somebody else."), *_looks("g", "h")],
    "Six": [think("Once more."), *_looks("i")],
}
_ENDED: Mapping[str, Callable[[list[str]], list[Any]]] = {
    "One": lambda found: [think("The end."), _finish(f"{len(found)} words")],
    "Two": lambda found: [think("They said."), _finish(f"{len(found)} answers")],
    "Three": lambda found: [think("Told."), _finish("halted")],
    "Halt": lambda found: [think("Enough."), _finish("halted")],
    "Four": lambda found: [think("Still there."), _finish("resumed")],
    "Five": lambda found: [think("Both are here."), _finish("changed")],
    "Six": lambda found: [think("Go on."), *_looks("j")],
}
ANSWERS = ["3 words", "2 answers", "halted", "resumed", "changed", "ended"]
"""What the turns of a conversation end with."""


def template_of(case: Case, llm: str, room: list[int]) -> MAILSwarmTemplate:
    """Return the swarm; ``room`` is the context of its models, no limit while it is 0."""

    def made(**given: Any) -> LiteLLMSupervisorFunction:
        agent = LiteLLMSupervisorFunction(**given, model=LiteLLMModel(_QUICK))
        agent._compressor = Compressor(lambda _: room[0] or None)
        return agent

    lead = MAILAgentTemplate(
        name="lead",
        factory=made,
        comm_targets=[],
        actions=[LOOK_UP, ASK_USER],
        agent_params={"llm": llm, "system": "You lead.", "use_proxy": case.use_proxy}
        | (dict(case.params) if llm == case.llm else {}),
        enable_entrypoint=True,
        can_complete_tasks=True,
        tool_format=case.tool_format,
    )
    return MAILSwarmTemplate(
        name="providers",
        version="1.3.6",
        agents=[lead],
        actions=[LOOK_UP, ASK_USER],
        entrypoint="lead",
        breakpoint_tools=["ask_user"],
    )


def swarm_of(case: Case, llm: str, store: Store | str, room: list[int]) -> MAILSwarm:
    """Return a running instance over a store."""
    return template_of(case, llm, room).instantiate(
        {"user_token": "a-token-0123456789"},
        user_id="alice",
        print_llm_streams=False,
        store=store,
        settings=RuntimeSettings(dynamic_ctx_ratio=1.0),
    )


class _Died(BaseException):
    """Stands for the end of the process."""


class _Mortal:
    """A store that keeps nothing any more once its process is dead."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.dead = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def _check(self) -> None:
        if self.dead:
            raise _Died

    async def post(self, post: Commit) -> Receipt:
        self._check()
        return await self._store.commit(post)

    async def commit(self, turn: TurnCommit) -> Receipt:
        self._check()
        return await self._store.commit(turn)


class Conversation:
    """The six turns of a case."""

    def __init__(self, case: Case, provider: FakeProvider, url: str = "memory://") -> None:
        self.case = case
        self.provider = provider
        self.script = Script()
        self.script.at_once = not case.streams
        provider.script = self.script
        self.url = url
        self.room = [0]
        # A store that is given is shared; one that is named belongs to its swarm.
        self.store: Store | str = open_store(url) if url == "memory://" else url
        self.swarm = swarm_of(case, case.llm, self.store, self.room)

    async def hold(self) -> list[str]:
        """Go through all turns; return their answers."""
        answers = [await self.say("One " + _LONG), await self._paused(), await self._interrupted()]
        answers.append(await (self._died() if self.url == "memory://" else self._killed()))
        await self.swarm.shutdown()
        self.swarm = swarm_of(self.case, self.case.other, self.store, self.room)
        answers.append(await self.say("Five"))
        await self.swarm.shutdown()
        self.room[0] = _ROOM
        self.swarm = swarm_of(self.case, self.case.llm, self.store, self.room)
        answers.append(await self.say("Six " + _LONG, max_steps=2))
        return answers

    async def close(self) -> None:
        """End the swarm."""
        await self.swarm.shutdown()

    async def say(self, body: str, **options: Any) -> str:
        """Post a message and return the answer."""
        return (await self._turn(body, **options)).body

    async def events(self) -> list[TaskEvent]:
        """Return what happened so far."""
        return self.swarm._runtime.get_events_by_task_id(TASK)

    async def _turn(self, body: str, **options: Any) -> Outcome:
        if body[:3] != "One" and "resume_from" not in options and "msg_type" not in options:
            options["resume_from"] = "user_response"
        run = await self.swarm.open_run(body, task_id=TASK, **options)
        result = await asyncio.wait_for(run.result(), 60)
        return Outcome(result.message, await self.events())

    async def _paused(self) -> str:
        paused = await self._turn("Two")
        assert paused.subject == "::breakpoint_tool_call::", paused.body
        resumed = await self._turn(
            "", resume_from="breakpoint_tool_call", breakpoint_tool_call_result="the blue one"
        )
        return resumed.body

    async def _interrupted(self) -> str:
        """Interrupt the model while it writes."""
        self.provider.token_delay = 0.005
        before = len(self.provider.requests)
        run = await self.swarm.open_run("Three", task_id=TASK, resume_from="user_response")
        await asyncio.wait_for(self.script.writing.wait(), 60)
        if self.case.streams:
            await self._writing(before)
        self.provider.token_delay = 0.0
        answer = await self._turn("Halt", msg_type="interrupt")
        await asyncio.wait_for(run.result(), 60)
        assert "turn_interrupted" in [event.kind for event in answer.events]
        await asyncio.wait_for(self.swarm.await_queue_empty(), 60)
        return answer.body

    async def _writing(self, before: int) -> None:
        """Wait until a reply to a request after so many has begun; refused ones have none."""
        async with asyncio.timeout(60):
            while not any(seen.first_token_at for seen in self.provider.requests[before:]):
                await asyncio.sleep(0.005)

    async def _died(self) -> str:
        """End the swarm without ceremony while the model is silent; another one takes over."""
        await self.swarm.shutdown()
        mortal = _Mortal(self.store)  # type: ignore[arg-type]
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: None)
        others = asyncio.all_tasks()
        swarm = swarm_of(self.case, self.case.llm, mortal, self.room)  # type: ignore[arg-type]
        self.script.silent = True
        await swarm.open_run("Four", task_id=TASK, resume_from="user_response")
        await asyncio.wait_for(self.script.reached.wait(), 60)
        mortal.dead = True
        for task in asyncio.all_tasks() - others:
            task.cancel()
        await self.provider.ended(len(self.provider.requests))
        loop.set_exception_handler(None)
        return await self._taken_over()

    async def _killed(self) -> str:
        """Kill the process that runs the turn while the model is silent."""
        await self.swarm.shutdown()
        self.script.silent = True
        found = {name: os.environ[name] for name in os.environ if name.endswith(_FOUND_BY)}
        process = _CONTEXT.Process(target=_until_killed, args=(self.case, self.url, found))
        process.start()
        try:
            await asyncio.wait_for(self.script.reached.wait(), 90)
        finally:
            process.kill()
            process.join(20)
        return await self._taken_over()

    async def _taken_over(self) -> str:
        """Start a swarm over what the dead one left, and wait for the end of its turn."""
        self.script.silent = False
        self.swarm = swarm_of(self.case, self.case.llm, self.store, self.room)
        await self.swarm.start()
        async with asyncio.timeout(60):
            while True:
                task = await self.swarm._runtime.read_task(TASK)
                assert task is not None
                if task.status is TaskState.COMPLETED:
                    return str(task.events[-1].data["response"])
                await asyncio.sleep(0.01)


def thoughts(seen: Seen) -> Iterator[str]:
    """Yield the reasoning that came back in a request, in whatever shape; seals as they are."""
    for message in seen.messages:
        for name in ("reasoning_content", "reasoning", "thinking"):
            if isinstance(message.get(name), str):
                yield message[name]
        if message.get("type") == "reasoning":
            yield str(message.get("encrypted_content") or message.get("summary"))
        content = message.get("content")
        for block in content if isinstance(content, list) else ():
            if block.get("type") in ("thinking", "redacted_thinking"):
                yield str(block.get("signature") or block.get("data"))
            if "reasoningContent" in block:
                yield str(block["reasoningContent"])
        for part in message.get("parts") or ():
            if part.get("thoughtSignature") or part.get("thought_signature"):
                yield str(part.get("thoughtSignature") or part.get("thought_signature"))


def kept(seen: Seen) -> bool:
    """Whether real reasoning came back: no placeholder."""
    dummy = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="
    return any(thought.strip() and thought != dummy for thought in thoughts(seen))


def _until_killed(case: Case, url: str, environment: Mapping[str, str]) -> None:
    """Run the fourth turn in a process of its own."""
    os.environ.update(environment)

    async def work() -> None:
        swarm = swarm_of(case, case.llm, url, [0])
        run = await swarm.open_run("Four", task_id=TASK, resume_from="user_response")
        await run.result()

    asyncio.run(work())
