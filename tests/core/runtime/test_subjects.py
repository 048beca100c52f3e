"""A subject that brings its own methods takes part in every change of a task."""

from collections import Counter
from typing import Any

from mail.core.runtime.delivery import Mail
from mail.core.runtime.subjects import TaskSubject, together
from mail.core.runtime.transaction import Ending, TaskChange
from mail.core.runtime.turn_result import EventDraft
from mail.testing import replies
from tests.support.swarm import runtime_of, supervisor, user_message, worker


class Audit(TaskSubject):
    """Counts messages and turns, and adds an event to the end of a run."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def addressed(self, mail: Mail, envelope: Any) -> None:
        self.counts["messages"] += 1

    def concluded(self, change: TaskChange, *_: object) -> None:
        change.on_applied(self.counts.update, ["turns"])

    def ended(self, change: TaskChange, ending: Ending) -> None:
        told = EventDraft("audit", f"the run ended {ending.result.status}", {"caller": "audit"})
        change.mail.events.append(told.row(change.mail.moment))


async def test_a_new_subject_takes_part_in_turns_and_endings() -> None:
    ask = [("send_request", {"target": "worker", "subject": "Job", "body": "dig"})]
    answer = [("send_response", {"target": "supervisor", "subject": "Re", "body": "dug"})]
    runtime = runtime_of(
        {
            "supervisor": supervisor(
                replies(ask, [("task_complete", {"finish_message": "done"})]), ("worker",)
            ),
            "worker": worker(replies(answer), ("supervisor",)),
        }
    )
    audit = Audit()
    runtime._context.subjects = together(runtime._context.subjects, audit)
    await runtime.submit_and_wait(user_message())
    task = await runtime.read_task("task-1")
    assert task is not None
    told = [event.description for event in task.events if event.kind == "audit"]
    assert told == ["the run ended completed"]
    assert audit.counts == {"messages": 3, "turns": 3}
    await runtime.shutdown()


class Named(TaskSubject):
    """Says what it was asked; ``takes`` tells whether it takes messages."""

    def __init__(self, name: str, asked: list[str], *, takes: bool = False) -> None:
        self.name, self.asked, self.is_taker = name, asked, takes

    def takes(self, *_: object) -> bool:
        self.asked.append(self.name)
        return self.is_taker

    async def prepare(self, _: object) -> None:
        self.asked.append(f"{self.name} prepares")


async def test_of_several_subjects_those_behind_one_that_takes_a_message_are_not_asked() -> None:
    asked: list[str] = []
    first, second = Named("first", asked), Named("second", asked, takes=True)
    whole = together(TaskSubject(), first, second, Named("third", asked))
    message: Any = None
    assert whole.takes(message, "worker", message, None)
    assert asked == ["first", "second"]
    await whole.prepare(message)
    assert asked[2:] == ["first prepares", "second prepares", "third prepares"]
    assert not whole.unwanted(message) and not together().takes(message, "", message, None)
