"""Rules of turns, on a running swarm: see the table in spec/SPEC.md."""

import asyncio
import contextlib
import json
import re
from typing import Any

from mail.core.actions import ActionCore
from mail.core.call_context import current_call
from mail.core.runtime import MAILRuntime, RunRequest
from mail.db.commit import Commit, TurnCommit
from mail.db.memory import MemoryStore
from mail.errors import ToolError
from mail.testing import agent_from, replies, tool_calls
from tests.spec.kit import (
    WAIT,
    Part,
    done,
    kinds_of,
    let_others_run,
    messages_of,
    request,
    response,
    swarm,
)
from tests.support.swarm import last_body, runtime_of, supervisor, user_message, worker


class Gate:
    """A place in the program where tests stop it."""

    def __init__(self) -> None:
        self.reached, self.open = asyncio.Event(), asyncio.Event()

    async def passed(self) -> None:
        self.reached.set()
        await self.open.wait()


class GatedStore(MemoryStore):
    """A store that stops before the first commit that matches."""

    def __init__(self, matches: Any) -> None:
        super().__init__()
        self.gate, self._matches = Gate(), matches

    async def post(self, post: Commit) -> Any:
        await self._stop(post)
        return await super().post(post)

    async def commit(self, turn: TurnCommit) -> Any:
        await self._stop(turn)
        return await super().commit(turn)

    async def _stop(self, post: Commit) -> None:
        if self._matches(post) and not self.gate.open.is_set():
            await self.gate.passed()


async def test_nothing_is_told_before_it_is_stored() -> None:
    store = GatedStore(lambda post: not isinstance(post, TurnCommit))
    lead, work = Part([request("worker")], [done()]), Part([response("supervisor")])
    runtime = swarm(lead, work, store=store)
    opening = asyncio.create_task(
        runtime.open_run(RunRequest(message=user_message(), streamed=True))
    )
    await store.gate.reached.wait()
    await let_others_run()
    assert not opening.done() and lead.shown == []  # not acknowledged, nothing begun
    store.gate.open.set()
    assert (await (await opening).result()).message["message"]["body"] == "done"
    await runtime.shutdown()


async def test_no_turn_is_told_before_it_is_stored() -> None:
    store = GatedStore(lambda post: isinstance(post, TurnCommit) and post.deliveries)
    lead, work = Part([request("worker")], [done()]), Part([response("supervisor")])
    runtime = swarm(lead, work, store=store)
    run = await runtime.open_run(RunRequest(message=user_message(), streamed=True))
    told: list[str] = []

    async def read() -> None:
        async for event in run.events():
            told.append(event.kind)

    reader = asyncio.create_task(read())
    await store.gate.reached.wait()
    await let_others_run()
    assert told == ["new_message"] and work.shown == []
    store.gate.open.set()
    await reader
    assert told[-1] == "task_complete" and work.read == ["do it"]
    await runtime.shutdown()


async def test_an_agent_has_one_turn_at_a_time_in_a_task() -> None:
    busy, most, calls, gate = 0, 0, 0, Gate()

    async def work(messages, choice):
        nonlocal busy, most, calls
        busy += 1
        calls += 1
        most = max(most, busy)
        await gate.passed()
        busy -= 1
        return None, tool_calls(WAIT, prefix=f"w{calls}")

    agents = {"supervisor": supervisor(agent_from(Part([done()])), ()), "worker": worker(work)}
    runtime = runtime_of(agents)
    runs = [await runtime.open_run(RunRequest(message=user_message("one", to="worker")))]
    await gate.reached.wait()
    for body in ("two", "three"):
        message = user_message(body, to="worker")
        runs.append(await runtime.open_run(RunRequest(message=message)))
    await let_others_run()
    assert most == 1
    gate.open.set()
    for run in runs:
        await run.result()
    assert most == 1 and calls >= len(runs)
    await runtime.shutdown()


async def test_agents_and_tasks_run_beside_one_another() -> None:
    together = asyncio.Barrier(2)

    async def work(messages, choice):
        await together.wait()  # hangs unless both are at work at the same time
        return None, tool_calls(response("supervisor"), prefix="w")

    def lead(messages, choice):
        text = last_body(messages)
        if "Hello" in text:
            return [request("one"), request("two")]
        seen = str(messages).count("<body>did it</body>")
        return [done()] if seen == 2 else [WAIT]

    agents = {
        "supervisor": supervisor(agent_from(lead), ("one", "two")),
        "one": worker(work),
        "two": worker(work),
    }
    runtime = runtime_of(agents)
    end = await runtime.submit_and_wait(user_message(), timeout=20)
    assert end["message"]["subject"] == "::task_complete::"
    await runtime.shutdown()


async def test_one_agent_works_on_two_tasks_at_the_same_time() -> None:
    together = asyncio.Barrier(2)

    async def lead(messages, choice):
        await together.wait()
        return None, tool_calls(done())

    runtime = runtime_of({"supervisor": supervisor(lead, ())})
    ends = await asyncio.gather(
        runtime.submit_and_wait(user_message(task_id="a"), timeout=20),
        runtime.submit_and_wait(user_message(task_id="b"), timeout=20),
    )
    assert {end["message"]["subject"] for end in ends} == {"::task_complete::"}
    await runtime.shutdown()


async def test_calls_are_carried_out_in_order() -> None:
    ran: list[str] = []

    async def note(args: dict) -> str:
        ran.append(args["word"])
        return args["word"]

    calls = [("note", {"word": word}) for word in ("one", "two", "three")]
    action = ActionCore(function=note, name="note", parameters={})
    work = Part([*calls, response("supervisor", "four")], [WAIT])
    runtime = swarm(Part([request("worker")], [done()]), work, actions={"note": action})
    await runtime.submit_and_wait(user_message())
    assert ran == ["one", "two", "three"]
    assert [result.removeprefix("SUCCESS: ") for result in work.results[:3]] == ran
    await runtime.shutdown()


async def test_every_call_gets_one_result() -> None:
    calls = [request("worker"), request("nobody"), ("dance", {}), ("help", {}), request("worker")]
    lead = Part(calls, [done()])
    runtime = swarm(lead)
    await runtime.submit_and_wait(user_message())
    made = [c["id"] for m in lead.shown[-1] for c in m.get("tool_calls") or ()]
    answered = [m["tool_call_id"] for m in lead.shown[-1] if m.get("role") == "tool"]
    assert answered == made and len(made) == len(calls)
    await runtime.shutdown()


async def test_results_begin_with_success_or_error() -> None:
    calls = [request("worker"), request("nobody"), ("dance", {}), ("help", {"get_summary": "?"})]
    lead = Part(calls, [done()])
    runtime = swarm(lead)
    await runtime.submit_and_wait(user_message())
    assert [result.split(":")[0] for result in lead.results] == ["SUCCESS", *["ERROR"] * 3]
    await runtime.shutdown()


async def test_calls_after_the_end_are_not_carried_out() -> None:
    runtime = swarm(Part([done("first"), request("worker", "too late")]))
    end = await runtime.submit_and_wait(user_message())
    assert end["message"]["body"] == "first"
    assert "too late" not in [m["message"]["body"] for m in await messages_of(runtime)]
    await runtime.shutdown()


def _swarm_that_signs_off(work: Any, sign_off: Any) -> tuple[MAILRuntime, list[str]]:
    """Return a swarm whose worker takes notes and signs off, which ends the task."""
    noted: list[str] = []

    async def note(args: dict) -> str:
        noted.append("noted")
        return "noted"

    actions = {
        "sign_off": ActionCore(sign_off, "sign_off", {"type": "object"}, completes=True),
        "note": ActionCore(note, "note", {}),
    }
    return swarm(Part([request("worker")]), work, actions=actions), noted


async def test_an_action_that_completes_tasks_stands_alone() -> None:
    async def sign_off(args: dict) -> str:
        return "signed off"

    late = response("supervisor", "too late")
    work = Part([("note", {}), ("sign_off", {}), late, ("sign_off", {})])
    runtime, noted = _swarm_that_signs_off(work, sign_off)
    end = await runtime.submit_and_wait(user_message())
    assert (end["message"]["body"], noted) == ("signed off", [])
    assert "too late" not in [m["message"]["body"] for m in await messages_of(runtime)]
    owner = runtime._context.owner
    written = await runtime._context.store.history(owner, "task-1", "worker")
    entries = [entry for row in written for entry in json.loads(row)]
    results = [entry["content"] for entry in entries if entry["role"] == "tool"]
    skipped = "ERROR: not run: a call of the same reply completes the task"
    assert sorted(results) == [*[skipped] * 3, "SUCCESS: signed off"]
    await runtime.shutdown()


async def test_an_action_that_fails_completes_nothing() -> None:
    attempts = 0

    async def sign_off(args: dict) -> str:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise ToolError("no ink")
        return "signed off"

    work = Part([("sign_off", {})], [("note", {})], [("sign_off", {})])
    runtime, noted = _swarm_that_signs_off(work, sign_off)
    end = await runtime.submit_and_wait(user_message())
    assert (end["message"]["body"], attempts, noted) == ("signed off", 2, ["noted"])
    await runtime.shutdown()


async def test_an_action_of_unknown_outcome_is_not_repeated() -> None:
    paying = asyncio.Event()
    paid = 0

    async def pay(args: dict) -> str:
        nonlocal paid
        paid += 1
        paying.set()
        await asyncio.Event().wait()
        return "paid"

    def make(work: Part) -> Any:
        action = ActionCore(function=pay, name="pay", parameters={})
        lead = Part([request("worker")], [done()])
        return swarm(lead, work, actions={"pay": action}, store=store)

    store, here = MemoryStore(), {asyncio.current_task()}
    await make(Part([("pay", {})])).open_run(RunRequest(message=user_message()))
    await paying.wait()
    for task in asyncio.all_tasks() - here:  # the end of the process
        task.cancel()
    await let_others_run()
    work = Part([response("supervisor")])
    second = make(work)
    await second.start()
    while "task_complete" not in await kinds_of(second):
        await let_others_run(1)
    assert paid == 1
    assert "::action_outcome_unknown::" in str(work.shown[0][-1])
    assert work.results[0].startswith("ERROR") and "outcome is unknown" in work.results[0]
    await second.shutdown()


async def test_text_of_the_finisher_is_the_answer() -> None:
    async def lead(messages, choice):
        if isinstance(choice, dict):
            return "in plain words", []
        return None, tool_calls(WAIT)

    runtime = runtime_of({"supervisor": supervisor(lead, ())})
    end = await runtime.submit_and_wait(user_message())
    assert end["message"]["body"] == "in plain words"
    await runtime.shutdown()


async def test_text_that_answers_nobody_is_asked_for_once() -> None:
    shown: list[str] = []

    async def talker(messages, choice):
        shown.append(last_body(messages))
        return "just talking", []

    agent = supervisor(talker, ())
    agent.can_complete_tasks = False
    other = supervisor(replies([done()]), ())
    runtime = runtime_of({"supervisor": agent, "other": other})
    end = await runtime.submit_and_wait(user_message())
    assert len(shown) == 2 and "Use a tool" in shown[1]
    assert end["message"]["subject"] == "::task_error::"
    assert "just talking" not in [m["message"]["body"] for m in await messages_of(runtime)]
    await runtime.shutdown()


async def test_an_interrupted_message_is_taken_again() -> None:
    talking, seen = asyncio.Event(), []

    async def work(messages, choice):
        found = re.search(r"<body>(.*?)</body>", last_body(messages), re.S)
        seen.append(found[1] if found else "")
        if len(seen) == 1:
            talking.set()
            await asyncio.Event().wait()
        reply = response("supervisor", "novel") if seen[-1] == "a novel" else WAIT
        return None, tool_calls(reply, prefix=f"w{len(seen)}")

    stop = ("send_interrupt", {"target": "worker", "subject": "Word", "body": "stop"})
    lead = Part([request("worker", "a novel")], [stop], [done()])
    runtime = runtime_of({"supervisor": supervisor(agent_from(lead)), "worker": worker(work)})
    first = asyncio.create_task(runtime.submit_and_wait(user_message()))
    await talking.wait()
    await asyncio.gather(first, runtime.submit_and_wait(user_message("interrupt it")))
    assert seen[:3] == ["a novel", "stop", "a novel"]
    await runtime.shutdown()


async def test_pieces_of_replies_come_only_to_streams_that_ask() -> None:
    both = asyncio.Event()

    async def lead(messages, choice):
        await both.wait()
        current_call().sink.text("so ")
        return None, tool_calls(done(), prefix=f"c{len(messages)}")

    runtime = runtime_of({"supervisor": supervisor(lead, ())})
    runs = [
        await runtime.open_run(
            RunRequest(message=user_message(), streamed=True, stream_tokens=asked)
        )
        for asked in (False, True)
    ]
    both.set()
    plain, asking = [[event.kind async for event in run.events()] for run in runs]
    assert "model_delta" in asking and "model_delta" not in plain
    assert "model_delta" not in await kinds_of(runtime)
    await runtime.shutdown()


async def test_a_late_reply_to_an_interrupted_call_is_dropped_while_its_message_waits() -> None:
    started, release, left = asyncio.Event(), asyncio.Event(), asyncio.Event()
    calls = 0

    async def stubborn(messages, choice):
        nonlocal calls
        calls += 1
        if calls == 1:
            started.set()
            while not release.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await release.wait()
            left.set()
            return None, tool_calls(done("stale"), prefix="stale")
        release.set()
        await left.wait()
        await let_others_run()  # whatever the late reply does, it does now
        return None, tool_calls(done(f"fresh {calls}"), prefix=f"c{calls}")

    runtime = runtime_of({"supervisor": supervisor(stubborn, ())})
    first = asyncio.create_task(runtime.submit_and_wait(user_message("slow")))
    await started.wait()
    stop = await runtime.submit_and_wait(user_message("halt", kind="interrupt"))
    assert stop["message"]["body"] == "fresh 2"
    assert (await first)["message"]["body"] == "fresh 3"
    assert "stale" not in str([m["message"]["body"] for m in await messages_of(runtime)])
    await runtime.shutdown()
