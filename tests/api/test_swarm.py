"""A swarm at work, on the real runtime with small agents."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from mail import MAILAction, MAILSwarm, MAILSwarmTemplate
from mail.core.agents import AgentOutput
from mail.db.memory import MemoryStore
from mail.errors import (
    BreakpointError,
    ConfigError,
    MAILError,
    ProtocolError,
    ShuttingDown,
    TaskError,
    UnknownAgent,
    UnknownTask,
)
from tests.api.support import Agent, call, completer, never, newest, template_of


def _solo(function: Agent = completer, **fields: Any) -> MAILSwarmTemplate:
    agents = fields.pop("agents", None) or [template_of(function, **fields.pop("agent", {}))]
    return MAILSwarmTemplate("solo", "1.0.0", agents, entrypoint="boss", **fields)


@pytest.fixture
async def swarm() -> Any:
    made = _solo().instantiate({}, user_id="ann", print_llm_streams=False)
    yield made
    await made.shutdown()


# --- posting ------------------------------------------------------------------------------------


async def test_a_message_is_answered_without_starting_anything_first(swarm: MAILSwarm) -> None:
    response, events = await swarm.post_message("Hello!", subject="Greeting")
    assert response["msg_type"] == "broadcast_complete"
    assert response["message"]["body"] == "ann: Greeting: Hello!"
    assert events == []


async def test_events_come_when_asked_for(swarm: MAILSwarm) -> None:
    response, events = await swarm.post_message_and_run("Hello!", show_events=True, task_id="t1")
    assert [event.kind for event in events][-1] == "task_complete"
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert swarm.get_events("t1") == events
    assert swarm.get_response_message("t1") == response


async def test_a_task_is_continued_under_its_id(swarm: MAILSwarm) -> None:
    await swarm.post_message("one", task_id="t1")
    response, _ = await swarm.post_message("two", task_id="t1", resume_from="user_response")
    assert response["message"]["body"].endswith("two")
    assert response["message"]["task_id"] == "t1"
    assert list(swarm.get_all_tasks()) == ["t1"]


@pytest.mark.parametrize("kind", ["request", "response", "broadcast", "interrupt"])
async def test_every_kind_of_message_can_be_posted(swarm: MAILSwarm, kind: str) -> None:
    response, _ = await swarm.post_message("Hello!", msg_type=kind)
    assert response["message"]["body"].endswith("Hello!")


async def test_a_swarm_that_runs_continuously_answers_until_it_is_shut_down(
    swarm: MAILSwarm,
) -> None:
    running = asyncio.create_task(swarm.run_continuous())
    answers = await asyncio.gather(*(swarm.post_message(f"m{n}") for n in range(5)))
    assert [answer["message"]["body"][-2:] for answer, _ in answers] == [f"m{n}" for n in range(5)]
    await swarm.shutdown()
    await asyncio.wait_for(running, 20)


async def test_mail_that_nobody_waits_for_is_only_enqueued(swarm: MAILSwarm) -> None:
    message = swarm.build_message("Init", "Hello!", ["boss"], task_id="t1")
    await swarm.submit_message_nowait(message)
    await asyncio.sleep(0)
    assert swarm.get_response_message("t1") is None
    await swarm.start()
    events = [event async for event in swarm.replay("t1")]
    assert events[-1].kind == "task_complete"


async def test_mail_that_nobody_waits_for_keeps_its_options() -> None:
    dig = MAILAction("dig", "Dig.", {}, lambda args: "dug")
    swarm = _solo(_chatty, agent={"actions": [dig]}).instantiate({})
    message = swarm.build_message("Init", "Hello!", ["boss"], task_id="t1")
    await swarm.submit_message_nowait(message, max_steps=2, timeout=5)
    await swarm.start()
    events = [event async for event in swarm.replay("t1")]
    assert events[-1].kind == "task_complete"  # without the limit it would go on for ever
    with pytest.raises(ProtocolError, match="unknown option 'max_stps'"):
        await swarm.submit_message_nowait(message, max_stps=2)
    with pytest.raises(TaskError, match="cannot resume a paused task"):
        await swarm.submit_message_nowait(message, breakpoint_tool_call_result="x")
    await swarm.shutdown()


async def test_a_built_message_is_answered(swarm: MAILSwarm) -> None:
    message = swarm.build_message("Hi", "Hello!", ["boss"])
    response, events = await swarm.submit_message(message, show_events=True)
    assert response["message"]["body"] == "ann: Hi: Hello!"
    assert events[-1].kind == "task_complete"


async def test_the_sender_has_the_users_role() -> None:
    swarm = _solo().instantiate({}, user_id="root", user_role="admin")
    _, events = await swarm.post_message("Hello!", show_events=True)
    sender = events[0].extra["full_message"]["message"]["sender"]
    assert sender == {"address_type": "admin", "address": "root"}
    await swarm.shutdown()


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"entrypoint": "bos"}, UnknownAgent, "entrypoint agent 'bos' not found.*'boss'"),
        ({"entrypoint": "worker"}, UnknownAgent, "does not accept messages from users.*'boss'"),
        ({"entrypoint": ""}, UnknownAgent, "entrypoint agent '' not found"),
        ({"msg_type": "broadcast_complete"}, ProtocolError, "cannot be posted"),
        ({"msg_type": "requst"}, ProtocolError, "invalid message type.*Did you mean 'request'"),
        ({"resume_from": "user_response"}, TaskError, "needs the task_id"),
        ({"resume_from": "user_response", "task_id": "none"}, UnknownTask, "task 'none' not found"),
        ({"resume_from": "user", "task_id": "t1"}, ProtocolError, "unknown resume_from 'user'"),
        ({"task_id": ""}, ProtocolError, "task_id must have 1 to 256 characters"),
        ({"task_id": "a\nb"}, ProtocolError, "must not contain control characters"),
        ({"max_stps": 3}, ProtocolError, "unknown option 'max_stps'"),
        ({"max_steps": -1}, ProtocolError, "max_steps must be"),
    ],
)
async def test_a_wrong_request_is_refused_before_anything_starts(
    options: dict[str, Any], error: type[Exception], text: str
) -> None:
    worker = template_of(
        never, "worker", comm_targets=["boss"], enable_entrypoint=False, can_complete_tasks=False
    )
    swarm = _solo(agents=[template_of(completer), worker]).instantiate({})
    for post in (swarm.post_message, swarm.post_message_and_run, swarm.post_message_stream):
        with pytest.raises(error, match=text) as caught:
            await post("Hello!", **options)
        assert isinstance(caught.value, MAILError)
        assert isinstance(caught.value, ValueError)
    assert swarm.get_all_tasks() == {}
    assert await swarm.read_tasks() == []
    await swarm.shutdown()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"targets": []}, "request messages must have exactly one target"),
        ({"targets": "all"}, "targets must be a list of agent names, got the string 'all'"),
        ({"targets": ["a", "b"]}, "request messages must have exactly one target"),
        ({"targets": ["a", "b"], "type": "response"}, "response messages must have exactly one"),
        ({"targets": [], "type": "broadcast"}, "broadcast messages must have at least one target"),
        ({"sender_type": "system"}, "invalid sender type: system"),
        ({"type": "broadcast_complete"}, "cannot be posted"),
    ],
)
async def test_a_message_that_is_none_cannot_be_built(
    swarm: MAILSwarm, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        swarm.build_message("s", "b", **({"targets": ["boss"]} | options))


def test_messages_of_each_kind_are_built() -> None:
    swarm = _solo().instantiate({}, user_id="ann")
    request = swarm.build_message("s", "b", ["boss"], task_id="t")
    payload: Any = request["message"]
    assert payload["recipient"] == {"address_type": "agent", "address": "boss"}
    assert payload["sender"] == {"address_type": "user", "address": "ann"}
    assert payload["sender_swarm"] == payload["recipient_swarm"] == "solo"
    assert (payload["task_id"], payload["routing_info"]) == ("t", {})
    broadcast: Any = swarm.build_message("s", "b", ["all"], type="broadcast")["message"]
    assert broadcast["recipients"] == [{"address_type": "agent", "address": "all"}]
    interrupt: Any = swarm.build_message("s", "b", ["boss"], "admin", "interrupt")["message"]
    assert interrupt["interrupt_id"]
    response: Any = swarm.build_message("s", "b", ["boss"], type="response")["message"]
    again: Any = swarm.build_message("s", "b", ["boss"], type="response")["message"]
    assert response["request_id"] != again["request_id"]


async def test_a_mode_that_there_is_not_is_refused(swarm: MAILSwarm) -> None:
    with pytest.raises(ConfigError, match="unknown run_continuous mode 'manul'"):
        swarm.run_continuous(mode="manul")  # type: ignore[arg-type]


async def test_a_number_by_position_is_no_override(swarm: MAILSwarm) -> None:
    with pytest.raises(ConfigError, match=r"must be a function, not 5; .* given as max_steps="):
        swarm.run_continuous(5)  # type: ignore[arg-type]


# --- limits, failures, breakpoints --------------------------------------------------------------


async def test_a_timeout_is_a_system_message_and_the_task_goes_on() -> None:
    swarm = _solo(never).instantiate({})
    response, _ = await swarm.post_message("Hello!", timeout=0.05, task_id="t1")
    assert response["message"]["subject"] == "::task_timeout::"
    task = await swarm.read_task("t1")
    assert task is not None
    assert task.is_running
    assert (await swarm.cancel_task("t1")).status == "cancelled"
    await swarm.shutdown(grace=0)


async def test_a_failure_is_a_system_message() -> None:
    async def broken(messages: list[dict[str, Any]], tool_choice: Any) -> AgentOutput:
        raise RuntimeError("out of tape")

    swarm = _solo(broken).instantiate({})
    response, _ = await swarm.post_message("Hello!")
    assert response["message"]["subject"] == "::task_error::"
    assert "RuntimeError (see the log, reference " in response["message"]["body"]
    await swarm.shutdown()


async def _chatty(messages: list[dict[str, Any]], tool_choice: Any) -> AgentOutput:
    if isinstance(tool_choice, dict):
        return None, [call("task_complete", finish_message=f"after {len(messages)}")]
    return None, [call("dig")]


async def test_the_templates_message_limit_ends_a_task() -> None:
    dig = MAILAction("dig", "Dig.", {}, lambda args: "dug")
    template = _solo(_chatty, agent={"actions": [dig]}, task_message_limit=3)
    swarm = template.instantiate({})
    short, _ = await swarm.post_message_and_run("Hello!")
    shorter, _ = await swarm.post_message("Hello!", max_steps=1)
    assert short["message"]["body"].startswith("after ")
    assert short["message"]["body"] != shorter["message"]["body"]
    await swarm.shutdown()


async def test_a_breakpoint_pauses_and_its_result_resumes() -> None:
    async def asks(messages: list[dict[str, Any]], tool_choice: Any) -> AgentOutput:
        results = [m["content"] for m in messages if m.get("role") == "tool"]
        if not results:
            return None, [call("review", text="x")]
        return None, [call("task_complete", finish_message=results[-1])]

    review = MAILAction("review", "Ask a human.", {}, lambda args: "never run")
    template = _solo(asks, agent={"actions": [review]}, breakpoint_tools=["review"])
    swarm = template.instantiate({})
    response, _ = await swarm.post_message_and_run("Please", task_id="t1")
    assert response["message"]["subject"] == "::breakpoint_tool_call::"
    shown = json.loads(response["message"]["body"])
    assert shown[0]["name"] == "review"
    assert json.loads(shown[0]["arguments"]) == {"text": "x"}
    with pytest.raises(BreakpointError):
        await swarm.post_message("", task_id="t1", resume_from="breakpoint_tool_call")
    response, _ = await swarm.post_message_and_run(
        body="",
        task_id="t1",
        resume_from="breakpoint_tool_call",
        breakpoint_tool_call_result={"content": "approved"},
        breakpoint_tool_caller="boss",
    )
    assert "approved" in response["message"]["body"]
    await swarm.shutdown()


async def test_agents_with_different_actions_of_one_name_each_run_their_own() -> None:
    async def votes(messages: list[dict[str, Any]], tool_choice: Any) -> AgentOutput:
        mail = newest(messages)
        if mail["from"] == "boss":
            return None, [call("vote")]
        result = [m["content"] for m in messages if m.get("role") == "tool"][-1]
        return None, [call("send_response", target="boss", subject="vote", body=result)]

    seen: dict[str, str] = {}

    async def boss(messages: list[dict[str, Any]], tool_choice: Any) -> AgentOutput:
        mail = newest(messages)
        if mail["from"] == "default_user":
            ask = {"subject": "s", "body": "b"}
            return None, [call("send_request", target=name, **ask) for name in ("a", "b")]
        seen[mail["from"]] = mail["body"]
        if len(seen) < 2:
            return None, [call("await_message")]
        return None, [call("task_complete", finish_message=str(sorted(seen.items())))]

    def voter(name: str) -> Any:
        vote = MAILAction("vote", "Vote.", {}, lambda args: f"vote of {name}")
        no = {"enable_entrypoint": False, "can_complete_tasks": False}
        return template_of(votes, name, comm_targets=["boss"], actions=[vote], **no)

    agents = [template_of(boss, comm_targets=["a", "b"]), voter("a"), voter("b")]
    swarm = _solo(agents=agents).instantiate({})
    response, _ = await swarm.post_message("Vote!")
    assert (
        "('a', 'SUCCESS: vote of a'), ('b', 'SUCCESS: vote of b')" in (response["message"]["body"])
    )
    await swarm.shutdown()


# --- runs, streams, stores ----------------------------------------------------------------------


async def test_a_run_gives_its_result_or_its_events(swarm: MAILSwarm) -> None:
    run = await swarm.open_run("Hello!", task_id="t1")
    result = await run.result()
    assert (result.status, result.task_id) == ("completed", "t1")
    streamed = await swarm.open_run("Hello!", streamed=True)
    kinds = [event.kind async for event in streamed.events()]
    assert kinds[0] == "new_message"
    assert kinds[-1] == "task_complete"


async def _body(response: Any) -> str:
    pieces = []
    async for piece in response.body_iterator:
        encoded = piece.encode() if hasattr(piece, "encode") else piece
        pieces.append(encoded if isinstance(encoded, str) else encoded.decode())
    return "".join(pieces)


async def test_a_stream_is_a_response_of_server_sent_events(swarm: MAILSwarm) -> None:
    response = await swarm.post_message_stream("Hello!")
    assert response.media_type == "text/event-stream"
    text = await _body(response)
    assert "event: new_message" in text
    assert "ann: New Message: Hello!" in text.split("event: task_complete")[1]


async def test_a_stream_that_takes_too_long_says_so_and_the_task_goes_on() -> None:
    swarm = _solo(never).instantiate({})
    response = await swarm.post_message_stream("Hello!", task_id="t1", timeout=0.05)
    text = await _body(response)
    assert "event: task_error" in text
    assert "::task_timeout::" in text
    task = await swarm.read_task("t1")
    assert task is not None
    assert task.is_running
    await swarm.shutdown(grace=0)


async def test_a_quiet_stream_pings() -> None:
    swarm = _solo(never).instantiate({})
    message = swarm.build_message("s", "b", ["boss"])
    response = await swarm.submit_message_stream(message, timeout=1.0, ping_interval=0.05)
    assert "event: ping" in await _body(response)
    await swarm.shutdown(grace=0)


async def test_a_shared_store_outlives_the_swarm() -> None:
    store = MemoryStore()
    first = _solo().instantiate({}, user_id="ann", store=store)
    await first.post_message("Hello!", task_id="t1")
    await first.shutdown()
    second = _solo().instantiate({}, user_id="ann", store=store)
    other = _solo().instantiate({}, user_id="bob", store=store)
    assert [task.task_id for task in await second.read_tasks()] == ["t1"]
    assert await other.read_task("t1") is None
    await second.shutdown()
    await other.shutdown()


async def test_a_store_by_url_belongs_to_the_swarm(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'mail.db'}"
    for number in (1, 2):
        swarm = _solo().instantiate({}, store=url)
        await swarm.post_message("Hello!", task_id=f"t{number}")
        assert len(await swarm.read_tasks()) == number
        await swarm.shutdown()


async def test_database_url_counts_when_histories_are_to_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", f"sqlite:///{tmp_path / 'mail.db'}")
    for flag in (False, True):
        swarm = _solo(enable_db_agent_histories=flag).instantiate({})
        await swarm.post_message("Hello!")
        await swarm.shutdown()
        assert (tmp_path / "mail.db").exists() is flag
    monkeypatch.setenv("DATABASE_URL", "none")
    memory = _solo(enable_db_agent_histories=True).instantiate({})
    await memory.post_message("Hello!")
    await memory.shutdown()


async def test_idleness_and_pending_requests_show_who_waits() -> None:
    swarm = _solo(never).instantiate({})
    assert swarm.idle
    waiting = asyncio.create_task(swarm.post_message("Hello!", task_id="t1"))
    while not swarm.get_pending_requests():
        await asyncio.sleep(0)
    assert not swarm.idle
    pending = swarm.get_pending_requests()
    assert list(pending) == ["t1"]
    swarm.get_pending_requests()["t1"].cancel()  # a copy: the caller still waits
    task = swarm.get_task_by_id("t1")
    assert task is not None
    assert task.is_running
    await swarm.shutdown(grace=0)
    response, _ = await waiting
    assert response["message"]["subject"] == "::shutdown_requested::"
    with pytest.raises(ShuttingDown):
        await pending["t1"]


async def test_a_pending_request_becomes_the_final_message() -> None:
    gate = asyncio.Event()

    async def patient(messages: list[dict[str, Any]], tool_choice: Any) -> AgentOutput:
        await gate.wait()
        return await completer(messages, tool_choice)

    swarm = _solo(patient).instantiate({})
    waiting = asyncio.create_task(swarm.post_message("Hello!", task_id="t1"))
    while not (pending := swarm.get_pending_requests()):
        await asyncio.sleep(0)
    gate.set()
    response, _ = await waiting
    assert await pending["t1"] == response
    assert swarm.get_pending_requests() == {}
    await swarm.shutdown()


async def test_loading_from_the_database_takes_up_what_is_unfinished(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'mail.db'}"
    first = _solo(never).instantiate({}, store=url)
    await first.post_message("one", task_id="t1", timeout=0.05)
    await first.shutdown(grace=0)
    for load in ("load_tasks_from_db", "load_agent_histories_from_db"):
        second = _solo().instantiate({}, store=url)
        assert second.get_task_by_id("t1") is None
        await getattr(second, load)()
        task = second.get_task_by_id("t1")
        assert task is not None
        assert task.is_running
        assert second.get_response_message("t1") is None  # nothing was started
        await second.shutdown()


# --- other swarms; see test_federation.py -------------------------------------------------------


async def test_a_swarm_without_mail_between_swarms_says_so(swarm: MAILSwarm) -> None:
    message: Any = {}
    assert not await swarm.is_interswarm_running()
    for start in (swarm.start_interswarm, swarm.stop_interswarm):
        with pytest.raises(ValueError, match="interswarm messaging is not enabled for this swarm"):
            await start()
    for send in (
        swarm.route_interswarm_message,
        swarm.handle_interswarm_response,
        swarm.receive_interswarm_message,
        swarm.send_interswarm_message,
        swarm.post_interswarm_user_message,
    ):
        with pytest.raises(ValueError, match="interswarm router not available") as caught:
            await send(message)
        assert isinstance(caught.value, MAILError)
    for send in (swarm.receive_interswarm_message, swarm.send_interswarm_message):
        with pytest.raises(MAILError, match="interswarm router not available"):
            await send(message, direction="back")
