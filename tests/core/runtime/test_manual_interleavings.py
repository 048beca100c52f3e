"""Manual mode under random interleavings, and what must hold whatever happens.

Drivers step agents, give up, resume, cancel, switch modes and kill the process; agents speak, act,
pause, fail and finish; the store is slow and fails. Afterwards every step has had one answer, every
text is where it belongs and nowhere else, and nothing is left over. Seeded and on virtual time: a
failure names its seed. For more of them set ``MANUAL_INTERLEAVINGS`` (how many) in the environment.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from mail.core.tasks import TaskState
from mail.db import open_store
from mail.db.records import Delivery
from tests.core.runtime.drivers import Drivers
from tests.core.runtime.gamblers import TOKEN, Table
from tests.core.runtime.players import NAMES
from tests.core.runtime.virtual import run_virtually
from tests.support.times import check_times

SEEDS = range(int(os.environ.get("MANUAL_INTERLEAVINGS", "300")))


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_a_driver_does_every_step_has_one_answer_and_every_text_its_readers(
    seed: int,
) -> None:
    run_virtually(play(seed), complain=lambda context: None)


async def play(seed: int) -> None:
    """Play one game to its end, and look at what is left of it."""
    base = open_store("memory://")
    await base.open()
    table = Table(seed, base)
    drivers = Drivers(table)
    await drivers.play()
    problems = [*table.problems, *left_over(table), *wrong_answers(table)]
    for task_id in table.tasks:
        record = await Record.read(table, task_id)
        if record is not None:
            exact = not (drivers.switched or record.cancelled)
            problems += [*record.broken_histories(), *record.misdelivered(table)]
            problems += record.misread(table, exact=exact)
    assert problems == [], f"seed {seed} with {sorted(table.features)}"
    await table.process.runtime.shutdown(grace=0)


def left_over(table: Table) -> Iterator[str]:
    """Tell what a runtime in which nothing happens still holds."""
    context = table.process.runtime._context
    if table.process.runtime._scheduler.active or context.status.abandoned:
        yield "turns that run"
    for task in context.active_tasks:
        held = {
            "steps": task.steps_due,
            "turns": task.turns,
            "mail": task.out,
            "arrivals": task.arriving,
            "pins": task.pins,
            "agents": task.away,
        }
        yield from (f"{task.task_id} still holds {what}" for what, kept in held.items() if kept)
        letters = len(context.mailbox.queued_messages(task.task_id))
        if letters != len(context.mailbox.queued_messages(task.task_id)):
            yield f"{task.task_id}: the mailbox has lost count"
        if task.row.state is TaskState.RUNNING and not letters and not task.waiters:
            yield f"{task.task_id} is kept for nothing"


def wrong_answers(table: Table) -> Iterator[str]:
    """Tell which drivers got something else than what their agent said in their step."""
    for payload, step in table.steps.items():
        if not step.over:
            yield f"step {payload} has no end"
        words = table.mail.get(step.answer or "")
        if step.answer and (words is None or words.step != payload):
            yield f"step {payload} was answered with {step.answer}: {words}"


@dataclass(kw_only=True)
class Record:
    """What the store has of a task at the end."""

    task_id: str
    histories: dict[str, list[dict[str, Any]]]
    open_calls: Counter[str]
    waiting: set[int]
    mail: dict[str, list[Delivery]]
    held: set[int] | None
    cancelled: bool
    over_budget: bool

    @classmethod
    async def read(cls, table: Table, task_id: str) -> "Record | None":
        """Read a task past the unsteady store; None when there is none."""
        context, store = table.process.runtime._context, table.base
        owner = context.owner
        if await store.load_task(owner, task_id) is None:
            return None
        mail: dict[str, list[Delivery]] = {}
        for delivery in await store.all_mail(owner, task_id):
            body = json.loads(delivery.payload)["message"]["body"]
            mail.setdefault(body, []).append(delivery)
        events = await store.events(owner, task_id)
        check_times(events)
        task = context.active_tasks.get(task_id)
        held = {letter.seq for letter in context.mailbox.queued_messages(task_id)}
        return cls(
            task_id=task_id,
            histories={
                name: [
                    entry
                    for row in await store.history(owner, task_id, name)
                    for entry in json.loads(row)
                ]
                for name in NAMES
            },
            open_calls=Counter(
                call.agent for call in await store.calls(owner, task_id) if call.answer is None
            ),
            waiting={delivery.seq for delivery in await store.waiting_mail(owner, task_id)},
            mail={body: rows for body, rows in mail.items() if body in table.mail},
            held=held if task is not None and task.loaded else None,
            cancelled=any(event.extra.get("status") == "cancelled" for event in events),
            over_budget=any("budget" in event.description for event in events),
        )

    def broken_histories(self) -> Iterator[str]:
        """Tell where a provider would refuse a history: each call has one result, right after."""
        for name, history in self.histories.items():
            pending: list[str] = []
            for entry in history:
                if entry.get("role") == "tool":
                    if entry["tool_call_id"] not in pending:
                        yield f"{name}: a result without its call"
                    else:
                        pending.remove(entry["tool_call_id"])
                    continue
                if pending:
                    yield f"{name}: {entry.get('role')} before the results of {pending}"
                pending = [call["id"] for call in entry.get("tool_calls") or ()]
            if len(pending) > self.open_calls[name]:
                yield f"{name}: no results of {pending}"

    def misdelivered(self, table: Table) -> Iterator[str]:
        """Tell which texts went to others than they were meant for, or not once to each."""
        for body, rows in self.mail.items():
            said = table.mail[body]
            meant = table.steps[said.step].to if said.step else said.to
            to = Counter(row.recipient for row in rows)
            if said.task_id != self.task_id:
                yield f"{body} is in {self.task_id}, and was said in {said.task_id}"
            if meant is not None and to != Counter(meant):
                yield f"{body} of {said.sender} went to {to}, and was meant for {set(meant)}"
        for step in table.steps.values():
            if step.task_id == self.task_id and step.answer and step.answer not in self.mail:
                yield f"the driver heard {step.answer}, and nobody else did"
        if self.held is not None and self.held != self.waiting:
            yield f"the mailbox has {self.held}, and the store {self.waiting}"

    def misread(self, table: Table, *, exact: bool) -> Iterator[str]:
        """Tell which texts an agent saw that were not for it, and which it saw twice or never.

        Args:
            exact: Whether what waits no more must have been read. Mail of a cancelled task is
                dropped, and a turn that fails in continuous mode uses its mail up.
        """
        for name in NAMES:
            shown = Counter(_tokens_shown(self.histories[name]))
            rows = {
                body: row
                for body, deliveries in self.mail.items()
                for row in deliveries
                if row.recipient == name
            }
            yield from (
                f"{name} was shown {body}"
                for body in shown
                if body in table.mail and body not in rows
            )
            for body, row in rows.items():
                if shown[body] > (row.seq not in self.waiting):
                    yield f"{name} was shown {body} {shown[body]} times"
                refused = self.over_budget and table.mail[body].sender == "alice"
                if exact and not refused and row.seq not in self.waiting and not shown[body]:
                    yield f"{name} never saw {body}"


def _tokens_shown(history: Iterable[dict[str, Any]]) -> Iterator[str]:
    for entry in history:
        if entry.get("role") == "user":
            yield from TOKEN.findall(str(entry["content"]))
