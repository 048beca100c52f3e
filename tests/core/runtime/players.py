"""A game in manual mode: agents that say what they are told to say, and drivers that step them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from mail.core.actions import ActionCore
from mail.core.agents import AgentCore, AgentOutput
from mail.core.call_context import current_call
from mail.core.runtime import MAILRuntime
from mail.core.runtime.manual import StepRequest
from mail.core.tasks import TaskState
from mail.core.tools.call import AgentToolCall
from mail.testing import tool_calls
from tests.core.runtime.metered import MODEL, tokens
from tests.support.swarm import runtime_of, user_message

GAME = "game"
NAMES = ("narrator", "ann", "bob", "cid")
PATIENCE = 20.0
Said = str | Sequence[tuple[str, dict[str, Any]]] | Exception

ROLL: Said = [("roll", {})]
REVIEW: Said = [("review", {})]


def finish(message: str) -> Said:
    """Return the call that ends the game."""
    return [("task_complete", {"finish_message": message})]


class Players:
    """Agents that say what they are told to say, and remember what each was shown.

    ``hold`` keeps all of them in their model calls, ``holds`` a single one, ``roll_hold`` whoever
    rolls the dice. ``cost`` is what each call uses, in tokens.
    """

    def __init__(self) -> None:
        self.lines: dict[str, list[Said]] = {name: [] for name in NAMES}
        self.shown: dict[str, list[str]] = {name: [] for name in NAMES}
        self.choices: list[object] = []
        self.rolls: list[dict[str, Any]] = []
        self.contexts: list[tuple[str | None, str | None, float]] = []
        self.begun = asyncio.Event()
        self.rolling = asyncio.Event()
        self.hold: asyncio.Event | None = None
        self.holds: dict[str, asyncio.Event] = {}
        self.roll_hold: asyncio.Event | None = None
        self.cost = 0

    async def calls(self, count: int) -> None:
        """Wait until so many model calls have begun."""
        async with asyncio.timeout(PATIENCE):
            while sum(map(len, self.shown.values())) < count:
                self.begun.clear()
                await self.begun.wait()

    def held(self, *names: str) -> asyncio.Event:
        """Keep agents in their model calls until the returned event is set."""
        gate = asyncio.Event()
        self.holds.update(dict.fromkeys(names, gate))
        return gate

    def function(self, name: str) -> Callable[..., Any]:
        async def agent(messages: list[dict[str, Any]], choice: Any) -> AgentOutput:
            call = current_call()
            self.contexts.append((call.llm, call.system, call.dynamic_ctx_ratio))
            self.choices.append(choice)
            if self.cost:
                call.report(MODEL, tokens(self.cost))
            hold = self.holds.get(name, self.hold)
            self.shown[name].append(str(messages[-1].get("content")))
            self.begun.set()
            if hold is not None:
                await hold.wait()
            said = self.lines[name].pop(0) if self.lines[name] else f"{name} has nothing to add"
            if isinstance(said, Exception):
                raise said
            if isinstance(said, str):
                return said, [text_call(said)]
            return None, tool_calls(*said, prefix=f"{name}{len(messages)}")

        return agent

    def cores(self) -> dict[str, AgentCore]:
        return {
            name: AgentCore(
                function=self.function(name),
                comm_targets=[other for other in NAMES if other != name],
                enable_entrypoint=True,
                can_complete_tasks=name == "narrator",
                actions={
                    "roll": self._roll(),
                    "review": ActionCore(function=_never, name="review"),
                },
            )
            for name in NAMES
        }

    def _roll(self) -> ActionCore:
        async def roll(arguments: dict[str, Any]) -> str:
            self.rolls.append(arguments)
            self.rolling.set()
            if self.roll_hold is not None:
                await self.roll_hold.wait()
            return "six"

        return ActionCore(function=roll, name="roll")


async def _never(arguments: dict[str, Any]) -> str:
    raise AssertionError("breakpoint calls are not run")


def text_call(content: str, call_id: str = "t") -> AgentToolCall:
    """Return plain text as agent functions give it."""
    message = {"role": "assistant", "content": content}
    return AgentToolCall(
        tool_name="text_output",
        tool_args={"content": content},
        tool_call_id=call_id,
        completion=message,
    )


def runtime(players: Players, **options: Any) -> MAILRuntime:
    given = {"entrypoint": "narrator", "breakpoint_tools": ["review"], **options}
    return runtime_of(players.cores(), **given)


@asynccontextmanager
async def playing(players: Players, **options: Any) -> AsyncIterator[MAILRuntime]:
    """Run a game in manual mode."""
    made = runtime(players, **options)
    running = asyncio.create_task(made.run_continuous(mode="manual"))
    try:
        yield made
    finally:
        await made.shutdown(grace=0)
        await running


async def step(game: MAILRuntime, target: str, *to: str, **more: Any) -> Any:
    """Step an agent whose words go to the named ones alone, or to all when nobody is named."""
    kind = "response" if to and to != ("all",) else "broadcast"
    request = StepRequest(
        **{
            "task_id": GAME,
            "target": target,
            "response_targets": list(to) or None,
            "response_type": kind,
            **more,
        }
    )
    async with asyncio.timeout(PATIENCE):
        return await game.manual_step(request)


def begin(game: MAILRuntime, target: str, *to: str, **more: Any) -> "asyncio.Task[Any]":
    """Begin a `step`; its task ends with the agent's words."""
    return asyncio.create_task(step(game, target, *to, **more))


async def tell_all(game: MAILRuntime, body: str) -> None:
    """Put a user's message into everybody's buffer."""
    await game.submit(user_message(body, GAME, "all", "broadcast"))
    await game.await_queue_empty()


async def resume(game: MAILRuntime, call_id: str | None = None) -> Any:
    """Answer one breakpoint call, the only one if none is named; return what comes of it."""
    result = "yes" if call_id is None else {"call_id": call_id, "content": "yes"}
    return await game.submit_and_wait(
        user_message("", GAME), PATIENCE, "breakpoint_tool_call", breakpoint_tool_call_result=result
    )


async def until(condition: Callable[[], object]) -> None:
    """Let the others go on until something is so."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0)


def waiting(game: MAILRuntime) -> list[str]:
    """Return the texts of the mail that waits, oldest first."""
    return [message["message"]["body"] for _, _, message in game.message_queue]


def status(game: MAILRuntime) -> TaskState | None:
    """Return how the game stands."""
    task = game.get_task_by_id(GAME)
    return task.status if task else None
