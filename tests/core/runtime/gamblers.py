"""Manual mode played by dice: agents that do anything at any time; see `drivers` for the rest.

Every text is a token: ``P0001`` is what a driver gives into a step, ``W0001`` the words of an
agent, ``M0001`` mail that somebody sends. So it can be told afterwards who may have seen what.
"""

import asyncio
import re
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Any

from mail.core.actions import ActionCore
from mail.core.agents import AgentCore, AgentOutput
from mail.core.call_context import current_call
from mail.core.runtime import RuntimeSettings
from mail.db.store import Store
from mail.errors import ModelError
from mail.testing import tool_calls
from tests.core.runtime.metered import MODEL, tokens
from tests.core.runtime.players import NAMES, text_call
from tests.core.runtime.unsteady import UnsteadyStore
from tests.support.swarm import runtime_of
from tests.support.times import WanderingClock

TOKEN = re.compile(r"\b[PWM]\d{4}\b")
CALLS = 150  # afterwards agents only speak, so that every game comes to an end
FEATURES = (
    "actions",
    "awaiting",
    "breakpoints",
    "budget",
    "cancelling",
    "completing",
    "failing",
    "giving up",
    "interrupts",
    "killing",
    "put off",
    "restarting",
    "silence",
    "store failures",
    "switching",
    "users",
)
Calls = list[tuple[str, dict[str, Any]]]


@dataclass(slots=True, kw_only=True)
class Step:
    """A step that a driver asked for; ``over`` once its driver knows how it ended."""

    task_id: str
    target: str
    to: frozenset[str]
    over: bool = False
    given_up: bool = False
    answer: str | None = None


@dataclass(slots=True, kw_only=True)
class Mail:
    """Something that somebody said: to whom, if it is known, and in which step, if in one."""

    sender: str
    task_id: str
    to: frozenset[str] | None = None
    step: str | None = None


class Process:
    """One life of the runtime."""

    def __init__(self, table: "Table") -> None:
        dice = table.dice
        self.store = UnsteadyStore(table.base, dice, 0.06 if "store failures" in table else 0)
        self.killed = asyncio.Event()
        self.runtime = runtime_of(
            {name: table.core(name, self) for name in NAMES},
            store=self.store,
            breakpoint_tools=["review"],
            entrypoint="narrator",
            clock=WanderingClock(Random(table.concurrency)),
            settings=RuntimeSettings(
                task_token_limit=table.token_limit,
                max_concurrent_turns=table.concurrency,
                max_step_calls=dice.choice([3, 50]),
                max_steps=dice.choice([None, None, 15]),
            ),
        )
        self._loops: list[asyncio.Task[None]] = []
        self.run(manual=table.manual)

    def run(self, *, manual: bool) -> None:
        """Start the swarm in a mode, or switch it over."""
        running = self.runtime.run_continuous(mode="manual" if manual else "continuous")
        self._loops.append(asyncio.ensure_future(running))

    def kill(self) -> None:
        """Let nothing of it happen any more."""
        self.store.dead = True
        self.killed.set()
        for loop in self._loops:
            loop.cancel()


class Table:
    """A game that the dice play, and what is known of it; ``problems`` is what must not be."""

    def __init__(self, seed: int, base: Store) -> None:
        self.dice = Random(seed)
        self.base = base
        self.features = {name for name in FEATURES if self.dice.random() < 0.4}
        self.tasks = [f"T{number}" for number in range(self.dice.choice([1, 1, 2]))]
        self.token_limit = self.dice.choice([100, 300, 800]) if "budget" in self else None
        self.concurrency = self.dice.choice([1, 2, 64, 64])
        self.steps: dict[str, Step] = {}
        self.mail: dict[str, Mail] = {}
        self.problems: list[str] = []
        self.manual = True
        self.calls = 0
        self._made = 0
        self.process = Process(self)

    def __contains__(self, feature: str) -> bool:
        return feature in self.features

    def token(self, letter: str) -> str:
        """Return a new text."""
        self._made += 1
        return f"{letter}{self._made:04d}"

    def chance(self, feature: str, share: float) -> bool:
        """Tell whether something that belongs to a feature happens now."""
        return feature in self and self.dice.random() < share

    async def pause(self, *rounds: int) -> None:
        """Let others go first, so many times."""
        for _ in range(self.dice.choice(rounds)):
            await asyncio.sleep(0)

    def core(self, name: str, process: Process) -> AgentCore:
        """Return an agent of a process."""

        async def agent(messages: list[dict[str, Any]], choice: Any) -> AgentOutput:
            if process.killed.is_set():
                await asyncio.Event().wait()
            return await self._call(name, messages, choice)

        return AgentCore(
            function=agent,
            comm_targets=[other for other in NAMES if other != name],
            enable_entrypoint=True,
            can_complete_tasks=name == "narrator",
            actions={
                "act": ActionCore(function=self._act, name="act"),
                "review": ActionCore(function=None, name="review"),
            },
        )

    async def _call(self, name: str, messages: list[dict[str, Any]], choice: Any) -> AgentOutput:
        call = current_call()
        step, task_id = call.llm, call.task_id  # a driver names each step by its model
        if step is not None:
            self._check_step(self.steps[step], step, name, messages)
        self.calls += 1
        number = self.calls
        await self.pause(0, 0, 1, 3, 8)
        if "budget" in self:
            call.report(MODEL, tokens(self.dice.choice([0, 10, 50])))
        await self.pause(0, 0, 1, 3, 10, 30)
        if self.chance("failing", 0.1):
            raise self.dice.choice([ModelError("no", status=400), ValueError("a fault")])
        if self.chance("put off", 0.1):
            raise ModelError("busy", status=429, retry_after=60)
        if self.chance("silence", 0.1):
            return None, []
        calls = self._calls(name, task_id) if self.dice.random() < 0.5 else []
        ends = not (calls or self.manual or step) and name == "narrator"
        if ends or isinstance(choice, dict):
            calls = [("task_complete", {"finish_message": "the end"})]
        if calls:
            return None, tool_calls(*calls, prefix=f"{name}{number}")
        words = self.token("W")
        self.mail[words] = Mail(sender=name, task_id=task_id, step=step)
        return words, [text_call(words, f"{name}{number}")]

    def _check_step(
        self, step: Step, payload: str, name: str, messages: list[dict[str, Any]]
    ) -> None:
        """Look for another step's payload, and for a step that should not happen any more."""
        asked = [str(entry.get("content")) for entry in messages if entry.get("role") == "user"]
        seen = [found for text in asked if (found := TOKEN.findall(text))]
        if not seen or seen[-1][-1] != payload or name != step.target:
            self.problems.append(f"step {payload} of {step.target}: {name} was shown {seen[-1:]}")
        begins = bool(messages) and payload in str(messages[-1].get("content"))
        if begins and step.over and not step.given_up:
            self.problems.append(f"step {payload} begins though its driver was told its end")

    async def _act(self, arguments: object) -> str:
        await self.pause(0, 1, 5, 20, 60)
        if self.dice.random() < 0.1:
            raise RuntimeError("the action failed")
        return "ok"

    def _calls(self, name: str, task_id: str) -> Calls:
        if self.calls > CALLS:
            return []
        return [self._tool(name, task_id) for _ in range(self.dice.choice([1, 1, 2]))]

    def _tool(self, name: str, task_id: str) -> tuple[str, dict[str, Any]]:
        others = [other for other in NAMES if other != name]
        leads = name == "narrator"
        tools = {
            "act": 35 * ("actions" in self),
            "help": 10,
            "review": 10 * ("breakpoints" in self),
            "send_request": 10,
            "send_response": 10,
            "send_broadcast": 5 * leads,
            "send_interrupt": 6 * (leads and "interrupts" in self),
            "await_message": 4,
            "nonsense": 2,
            "task_complete": 5 * (leads and "completing" in self),
        }
        [tool] = self.dice.choices(list(tools), weights=list(tools.values()))
        if tool == "task_complete":
            return tool, {"finish_message": "done"}
        if not tool.startswith("send_"):
            return tool, {}
        to = others if tool == "send_broadcast" else [self.dice.choice(others)]
        target = {} if tool == "send_broadcast" else {"target": to[0]}
        return tool, {**target, "subject": "s", "body": self.letter(name, task_id, to)}

    def letter(self, sender: str, task_id: str, to: Iterable[str]) -> str:
        """Return the text of mail that somebody is about to send."""
        body = self.token("M")
        self.mail[body] = Mail(sender=sender, task_id=task_id, to=frozenset(to))
        return body
