"""Drivers and clients of a game that is played by dice: they do anything at any time."""

import asyncio
from collections.abc import Awaitable
from typing import Any

from mail.core.runtime import RunRequest
from mail.core.runtime.manual import StepRequest
from mail.core.tasks import TaskState
from mail.errors import (
    BreakpointError,
    MAILError,
    ShuttingDown,
    StepFailed,
    StoreError,
    TaskError,
    TaskPaused,
    TaskTimeout,
    UnknownTask,
)
from tests.core.runtime.gamblers import Process, Step, Table
from tests.core.runtime.players import NAMES
from tests.support.swarm import user_message

PATIENCE = 3000.0


class Killed(Exception):
    """The process that a client talked to is no more."""


class Hung(Exception):
    """A client waited in vain."""


class Drivers:
    """Everybody outside of a game, until it has come to rest."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.switched = False
        self._open = asyncio.Event()
        self._open.set()

    async def play(self) -> None:
        """Let several drivers do what they like, and wait until all is quiet."""
        await asyncio.gather(*(self._drive() for _ in range(self.table.dice.choice([1, 2, 3, 5]))))
        self.table.process.store.failing = 0
        self.table.manual = True
        self.table.process.run(manual=True)
        await asyncio.sleep(PATIENCE)
        await self._attempt(self.table.process, self.table.process.runtime.await_queue_empty())
        await asyncio.sleep(PATIENCE)

    async def _drive(self) -> None:
        moves = {
            self._step: 60,
            self._write: 15 * ("users" in self.table),
            self._cancel: 5 * ("cancelling" in self.table),
            self._switch: 5 * ("switching" in self.table),
            self._resume: 7 * ("breakpoints" in self.table),
            self._restart: 3 * ("restarting" in self.table),
            self._kill: 3 * ("killing" in self.table),
        }
        for _ in range(self.table.dice.choice([2, 4, 8])):
            await self.table.pause(0, 0, 2, 10, 40)
            await self._open.wait()
            [move] = self.table.dice.choices(list(moves), weights=list(moves.values()))
            try:
                await move()
            except (Killed, ShuttingDown, StoreError, TaskPaused, UnknownTask):
                continue

    async def _attempt(self, process: Process, doing: Awaitable[Any]) -> Any:
        """Do something as a client of a process; a killed one does not answer."""
        work = asyncio.ensure_future(doing)
        killed = asyncio.ensure_future(process.killed.wait())
        await asyncio.wait({work, killed}, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        killed.cancel()
        if work.done():
            return work.result()
        work.cancel()
        if process.killed.is_set():
            raise Killed
        raise Hung

    async def _step(self) -> None:
        process, dice, payload = self.table.process, self.table.dice, self.table.token("P")
        target = dice.choice(NAMES)
        others = [name for name in NAMES if name != target]
        dice.shuffle(others)
        kind = dice.choice(["broadcast", "broadcast", "response", "request"])
        everybody = kind == "broadcast" and dice.random() < 0.4
        named = None if everybody else others[: dice.choice([1, 1, 2, 3])]
        step = Step(
            task_id=dice.choice(self.table.tasks), target=target, to=frozenset(named or others)
        )
        self.table.steps[payload] = step
        request = StepRequest(
            task_id=step.task_id,
            target=target,
            response_targets=named,
            response_type=kind,
            payload=payload,
            llm=payload,
        )
        work = asyncio.ensure_future(process.runtime.manual_step(request))
        if self.table.chance("giving up", 0.3):
            await self.table.pause(0, 1, 2, 4, 8, 16, 40, 100)
            step.given_up = work.cancel()
        await self._hear(process, payload, work)

    async def _hear(self, process: Process, payload: str, work: "asyncio.Task[Any]") -> None:
        """Take the answer of a step; it is one of its agent's texts, or says why there is none."""
        step = self.table.steps[payload]
        try:
            message = await self._attempt(process, work)
        except asyncio.CancelledError:
            if not step.given_up:
                raise
        except TaskPaused:
            step.over = True
            if self.table.dice.random() < 0.8:
                await self._resume(step.task_id)
        except Hung:
            self.table.problems.append(f"step {payload} of {step.target} was never answered")
        except (StepFailed, TaskError, StoreError):
            return
        except MAILError as error:
            self._check_refusal(process, payload, error)
        else:
            if message["msg_type"] != "broadcast_complete":
                step.answer = message["message"]["body"]
        finally:
            step.over = True

    def _check_refusal(self, process: Process, payload: str, error: MAILError) -> None:
        leaves = isinstance(error, ShuttingDown) and process.runtime._context.status.draining
        if not leaves and "manual mode" not in str(error):
            self.table.problems.append(f"step {payload} was refused: {error!r}")

    async def _write(self) -> None:
        process, dice, task_id = (
            self.table.process,
            self.table.dice,
            self.table.dice.choice(self.table.tasks),
        )
        to = dice.choice([*NAMES, "all"])
        kind = "broadcast" if to == "all" else dice.choice(["request", "interrupt"])
        body = self.table.letter("alice", task_id, NAMES if to == "all" else [to])
        message = user_message(body, task_id, to, kind)
        if not self.table.chance("awaiting", 0.4):
            await self._attempt(process, process.runtime.submit(message))
            return
        run = await self._attempt(process, process.runtime.open_run(RunRequest(message=message)))
        try:
            await self._attempt(process, run.result(dice.choice([1, 100])))
        except TaskTimeout:
            return  # nobody stepped its agent

    async def _cancel(self) -> None:
        runtime = self.table.process.runtime
        await self._attempt(
            self.table.process, runtime.cancel_task(self.table.dice.choice(self.table.tasks))
        )

    async def _switch(self) -> None:
        self.table.manual, self.switched = not self.table.manual, True
        self.table.process.run(manual=self.table.manual)

    async def _resume(self, task_id: str | None = None) -> None:
        """Answer breakpoint calls; what comes back are words of one of their agents."""
        process, task_id = self.table.process, task_id or self.table.dice.choice(self.table.tasks)
        task = await self._attempt(process, process.runtime.read_task(task_id))
        if task is None or not task.breakpoints:
            return
        names = [call["call_id"] for call in task.breakpoints]
        chosen = names if self.table.dice.random() < 0.6 else [self.table.dice.choice(names)]
        request = RunRequest(
            message=user_message("", task_id, "narrator"),
            resume_from="breakpoint_tool_call",
            breakpoint_tool_call_result=[{"call_id": name, "content": "yes"} for name in chosen],
        )
        try:
            run = await self._attempt(process, process.runtime.open_run(request))
            result = await self._attempt(process, run.result(2 * PATIENCE))
        except BreakpointError:
            return  # somebody else was faster
        except Hung:
            if not self.switched:
                self.table.problems.append(f"the resume of {chosen} was never answered")
            return
        if result.status is TaskState.RUNNING:
            agents = {name.rstrip("_0123456789") for name in chosen}
            words = self.table.mail.get(result.message["message"]["body"])
            if words is None or words.sender not in agents:
                self.table.problems.append(f"the resume of {chosen} was answered with {words}")

    async def _restart(self) -> None:
        """Stop the process in good order and start another one; everybody gets an answer."""
        if not self._open.is_set():
            return
        self._open.clear()
        old = self.table.process
        await old.runtime.shutdown(grace=self.table.dice.choice([0, 0.01, 1]))
        await asyncio.sleep(10)
        due = [ref for task in old.runtime._context.active_tasks for ref in task.steps_due]
        if due:
            self.table.problems.append(f"a shutdown left {len(due)} steps without an answer")
        self._begin_again()

    async def _kill(self) -> None:
        if self._open.is_set():
            self._begin_again()

    def _begin_again(self) -> None:
        self.table.process.kill()
        self.table.process = Process(self.table)
        self._open.set()
