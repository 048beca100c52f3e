"""What is told and kept of held calls, in each way in which they end, is as it was recorded.

``python -m tests.core.runtime.test_held_record`` records anew what is meant to change.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, Final

import pytest

from mail.core.actions import ActionCore
from mail.core.approvals import Answerer, Approval, read_answer
from mail.core.runtime import MAILRuntime, RunRequest
from mail.core.runtime.settings import RuntimeSettings
from mail.core.tasks import TaskState
from mail.core.tools.offer import Offer
from mail.db.calls import DECIDED
from mail.db.memory import MemoryStore
from mail.db.store import Store
from mail.errors import MAILError
from mail.services.webhook import WebhookNews
from mail.testing import tool_calls
from mail.testing.doubles import FakeClock
from tests.support.swarm import SWARM, runtime_of, supervisor, user_message

RECORD: Final = Path(__file__).with_name("held_record.json")
OWNER: Final = Answerer("user", "alice", owner=True)
LENT: Final = {"type": "function", "name": "lent", "parameters": {"type": "object"}}
CALLS: Final = [
    ("send", {"to": "a"}),
    ("look", {}),
    ("review", {"draft": "x"}),
    ("send", {"to": "b"}),
]
_IDS: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIMES: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:\+00:00|Z)?")


class World:
    """One task of a runtime, whose store outlives it."""

    def __init__(self, store: Store, calls: list[Any], approval: Approval) -> None:
        self.store, self.calls = store, calls
        self.approval = approval
        self.refused: list[str] = []
        self.asked = 0
        self.clock = FakeClock()
        self.runtime = self.make()

    def make(self, *, gone: bool = False) -> MAILRuntime:
        async def send(args: dict[str, Any]) -> str:
            return f"sent to {args['to']}"

        async def reply(messages: list[dict[str, Any]], choice: object) -> Any:
            self.asked += 1
            if self.asked == 1:
                return None, tool_calls(*self.calls, prefix="c")
            results = [m["content"] for m in messages if m.get("role") == "tool"]
            done = ("task_complete", {"finish_message": " | ".join(results)})
            return None, tool_calls(done, prefix=f"d{self.asked}")

        core = supervisor(reply, ())
        schema = {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}
        core.actions = {
            "send": ActionCore(send, "send", schema, approval=self.approval),
            "look": ActionCore(_look, "look"),
            "review": ActionCore(None, "review"),
        }
        name = "other" if gone else "supervisor"
        news = WebhookNews(["paused", "approval", "ended"], self.clock)
        return runtime_of(
            {name: core},
            entrypoint=name,
            store=self.store,
            clock=self.clock,
            breakpoint_tools=["review"],
            settings=RuntimeSettings(news=news),
        )

    async def begin(self, **more: Any) -> None:
        await self.runtime.submit_and_wait(user_message("Write"), **more)

    async def again(self, *, gone: bool = False) -> None:
        await self.runtime.shutdown()
        self.runtime = self.make(gone=gone)
        await self.runtime.start()

    async def tell(self, call_id: str, kind: str, args: Any = None) -> None:
        found = await self.runtime.get_approvals("all", "task-1", 100)
        [record] = [each for each in found if each["call_id"] == call_id]
        given = read_answer({"type": kind, "args": args})
        try:
            await self.runtime.answer_approval(record["approval_id"], given, OWNER)
        except MAILError as error:
            self.refused.append(f"{type(error).__name__}: {error}")

    async def resume(self, payload: object) -> None:
        try:
            await self.runtime.submit_and_wait(
                user_message(""),
                resume_from="breakpoint_tool_call",
                breakpoint_tool_call_result=payload,
            )
        except MAILError as error:
            self.refused.append(f"{type(error).__name__}: {error}")

    async def settled(self, *states: TaskState) -> None:
        """Wait for one of these states, by default an end."""
        wanted = states or (TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED)
        for _ in range(2000):
            task = await self.runtime.read_task("task-1")
            if task.status in wanted and not len(self.runtime._context.active_tasks):
                return
            await asyncio.sleep(0.01)
        raise AssertionError(wanted)


async def _look(args: dict[str, Any]) -> str:
    return "nothing"


Scenario = Callable[[World], Awaitable[None]]


async def _accept_and_edit(world: World) -> None:
    await world.begin()
    await world.tell("c_0", "accept")
    await world.settled(TaskState.PAUSED)
    await world.tell("c_0", "ignore")
    await world.tell("c_2", "accept")
    await world.tell("c_3", "edit", {"action": "send", "args": {"to": "z"}})
    await world.settled(TaskState.PAUSED)
    await world.again()
    await world.tell("c_2", "response", "fine")


async def _respond(world: World) -> None:
    await world.begin()
    for call_id in ("c_3", "c_0", "c_2"):
        await world.tell(call_id, "response", f"no {call_id}")


async def _ignore(world: World) -> None:
    await world.begin()
    await world.tell("c_3", "ignore")


async def _results(world: World) -> None:
    await world.begin()
    for payload in ("x", None, [], {"call_id": "none", "content": "x"}):
        await world.resume(payload)
    await world.resume([{"call_id": "c_3", "content": {"a": 1}}])
    await world.resume({"call_id": "c_3", "content": "again"})
    await world.resume([{"call_id": name, "content": name} for name in ("c_0", "c_2")])


async def _one_result(world: World) -> None:
    await world.begin()
    await world.resume("plain")
    await world.resume("again")


async def _cancel(world: World) -> None:
    await world.begin()
    await world.tell("c_0", "response", "no")
    await world.runtime.cancel_task("task-1")
    await world.tell("c_3", "accept")


async def _time(world: World) -> None:
    await world.begin()
    world.clock.advance(minutes=2)
    world.runtime._watch_deadlines()


async def _gone(world: World) -> None:
    await world.begin()
    await world.again(gone=True)
    await world.resume({"call_id": "c_0", "content": "x"})
    await world.tell("c_0", "accept")
    await world.tell("c_0", "ignore")


async def _lent(world: World) -> None:
    run = await world.runtime.open_run(
        RunRequest(message=user_message("Write"), offer=Offer(tools=(LENT,)))
    )
    await run.result(5)
    await world.resume('{"call_id": "c_0", "content": "given"}')


ONE: Final = [("send", {"to": "a"})]
SCENARIOS: Final[dict[str, tuple[Scenario, list[Any], Approval]]] = {
    "accept and edit": (_accept_and_edit, CALLS, Approval()),
    "respond": (_respond, CALLS, Approval()),
    "ignore": (_ignore, CALLS, Approval()),
    "results": (_results, CALLS, Approval()),
    "one result": (_one_result, [("review", {"draft": "x"})], Approval()),
    "results of approvals": (_one_result, ONE, Approval(allow_respond=False)),
    "cancel": (_cancel, CALLS, Approval()),
    "deny in time": (_time, ONE, Approval(ttl=60)),
    "ignore in time": (_time, ONE, Approval(ttl=60, on_timeout="ignore")),
    "accept in time": (_time, ONE, Approval(ttl=60, on_timeout="accept")),
    "gone": (_gone, CALLS, Approval()),
    "lent": (_lent, [("lent", {"x": 1}), ("look", {})], Approval()),
}


async def recorded(name: str) -> Any:
    """Return what is told and kept of a scenario, with numbers for ids and no times."""
    scenario, made, approval = SCENARIOS[name]
    store = MemoryStore()
    world = World(store, made, approval)
    await scenario(world)
    if name != "results of approvals":
        await world.settled()
    context = world.runtime._context
    owner, task = context.owner, await world.runtime.read_task("task-1")
    approvals = await world.runtime.get_approvals("all", "task-1", 100)
    histories = [json.loads(text) for text in await store.history(owner, "task-1", "supervisor")]
    calls = await store.calls(owner, "task-1")
    for row in calls:
        assert row.answer is not None or row.status in ("open", *DECIDED)
        assert (row.status == "open") == (not row.decided_at)
    found = {
        "status": task.status.value,
        "refused": world.refused,
        "events": [[each.kind, each.description, each.extra] for each in task.events],
        "approvals": sorted(approvals, key=lambda each: each["call_id"]),
        "calls": [list(row)[:6] for row in calls],
        "histories": histories,
        "webhook": [
            {**json.loads(row.body), "moment": ""}
            for row in await store.list_webhooks(SWARM, 0, 100)
        ],
    }
    await world.runtime.shutdown()
    await store.close()
    return _plain(found)


def _plain(found: Any) -> Any:
    text = json.dumps(found, default=str, ensure_ascii=False)
    ids: dict[str, str] = {}
    text = _IDS.sub(lambda each: ids.setdefault(each[0], f"<id {len(ids)}>"), text)
    text = re.sub(r'(\\*"duration_ms\\*": ?)[0-9.e-]+', r"\g<1>0", _TIMES.sub("<time>", text))
    return json.loads(text)


@pytest.mark.parametrize("name", SCENARIOS)
async def test_held_calls_end_as_recorded(name: str) -> None:
    assert await recorded(name) == json.loads(RECORD.read_text("utf-8"))[name]


async def _record() -> None:
    found = {name: await recorded(name) for name in SCENARIOS}
    RECORD.write_text(_written(found, 3) + "\n", "utf-8")


def _written(value: Any, levels: int) -> str:
    """Return JSON with a line for each item of so many levels."""
    if not levels or not isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return f"[{_lines(_written(item, levels - 1) for item in value)}]"
    items = [f"{json.dumps(key)}: {_written(item, levels - 1)}" for key, item in value.items()]
    return f"{{{_lines(items)}}}"


def _lines(items: Iterable[str]) -> str:
    return "\n" + ",\n".join(items) + "\n"


if __name__ == "__main__":
    asyncio.run(_record())
