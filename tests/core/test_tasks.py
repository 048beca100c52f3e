"""The task record that owners see."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mail.core.events import TaskEvent
from mail.core.tasks import MAILTask, TaskState
from mail.core.usage import Usage
from tests.support.messages import envelopes, json_objects, texts

START = datetime(2026, 1, 1, tzinfo=UTC)
TIME = START.isoformat()
SUPERVISOR = {"address_type": "agent", "address": "supervisor"}
TIDES = {"address_type": "agent", "address": "tides"}
USER = {"address_type": "user", "address": "supervisor"}  # of the same name as the agent
SYSTEM = {"address_type": "system", "address": "harbour"}


def sent(sender, *recipients, kind="request", body="b"):
    single = kind in ("request", "response")
    to = {"recipient": recipients[0]} if single else {"recipients": list(recipients)}
    payload = {"task_id": "t", "sender": sender, "subject": "s", "body": body, **to}
    return {"id": body, "timestamp": TIME, "msg_type": kind, "message": payload}


def event(kind, seq=1, **extra):
    return TaskEvent(task_id="t", kind=kind, timestamp=TIME, seq=seq, extra=extra)


def task_of(*messages, **fields) -> MAILTask:
    events = [event("new_message", n, full_message=m) for n, m in enumerate(messages, 1)]
    owner = "user:ines@harbour"
    fields = {"events": events, "start_time": START} | fields
    return MAILTask(task_id="t", task_owner=owner, task_contributors=[owner], **fields)


ASKED = sent(USER, SUPERVISOR, body="asked")
PASSED_ON = sent(SUPERVISOR, TIDES, body="passed on")
ANSWERED = sent(TIDES, SUPERVISOR, kind="response", body="answered")
TOLD = sent(SUPERVISOR, TIDES, {**TIDES, "address": "berths"}, kind="broadcast", body="told")
NOTED = sent(SYSTEM, SUPERVISOR, kind="response", body="noted")
TASK = task_of(ASKED, PASSED_ON, ANSWERED, TOLD, NOTED)


@pytest.mark.parametrize("state", TaskState)
def test_running_and_completed_follow_from_the_state(state) -> None:
    task = task_of(status=state)
    assert task.is_running is (state == "running")
    assert task.completed is (state == "completed")


def test_a_new_task_runs_and_begins_now() -> None:
    task = MAILTask(task_id="t", task_owner="user:a@b", task_contributors=[])
    assert task.is_running
    assert timedelta(0) <= task.get_lifetime() < timedelta(minutes=1)


def test_messages_come_in_the_order_in_which_they_were_sent() -> None:
    assert TASK.get_messages() == [ASKED, PASSED_ON, ANSWERED, TOLD, NOTED]


def test_other_events_are_no_messages() -> None:
    task = task_of()
    task.events = [event("tool_call", caller="a"), event("new_message"), event("task_complete")]
    assert task.get_messages() == []


def test_an_agents_messages_are_those_it_sent_and_then_those_it_received() -> None:
    assert TASK.get_messages_by_agent("supervisor") == [PASSED_ON, TOLD, ASKED, ANSWERED, NOTED]
    assert TASK.get_messages_by_agent("supervisor", received=False) == [PASSED_ON, TOLD]
    assert TASK.get_messages_by_agent("berths", sent=False) == [TOLD]
    assert TASK.get_messages_by_agent("nobody") == []


def test_a_user_with_an_agents_name_is_somebody_else() -> None:
    assert TASK.get_messages_by_user() == [ASKED]
    assert ASKED not in TASK.get_messages_by_agent("supervisor", received=False)


def test_messages_can_be_told_apart_by_type_and_sender() -> None:
    assert TASK.get_messages_by_type("response") == [ANSWERED, NOTED]
    assert TASK.get_messages_by_type("interrupt") == []
    assert TASK.get_messages_by_system() == [NOTED]


def test_the_record_has_the_documented_fields() -> None:
    away = {"remote_swarms": ["z", "a"], "waiting_for": ["x@z", "x@a"]}
    record = task_of(ASKED, **away, task_message_queue=[PASSED_ON]).to_record()
    assert record == {
        "task_id": "t",
        "task_owner": "user:ines@harbour",
        "via": None,
        "task_contributors": ["user:ines@harbour"],
        "start_time": "2026-01-01T00:00:00+00:00",
        "events": [event("new_message", full_message=ASKED).to_record()],
        "event_count": 0,
        "ended_by": None,
        "is_running": True,
        "completed": False,
        "status": "running",
        "task_message_queue": [PASSED_ON],
        "task_message_count": 0,
        "remote_swarms": ["a", "z"],
        "waiting_for": ["x@a", "x@z"],
        "breakpoints": [],
        "title": None,
        "usage": {"total": Usage.none().to_dict(), "agents": {}},
    }


def test_the_record_sums_what_the_agents_have_used() -> None:
    usage = {"a": Usage(total_tokens=5, cost=0.5), "b": Usage(calls=2, total_tokens=7)}
    record = task_of(usage=usage).to_record()["usage"]
    assert record["agents"] == {name: used.to_dict() for name, used in usage.items()}
    assert record["total"] == Usage(calls=3, total_tokens=12, cost=0.5).to_dict()


@given(st.lists(envelopes(), max_size=3), json_objects, texts)
def test_the_record_is_json_and_its_event_texts_say_the_same(mail, extra, title) -> None:
    extra.pop("full_message", None)
    task = task_of(*(envelope.to_wire() for envelope in mail), title=title)
    task.events.append(event("tool_call", 9, **{f"x{key}": extra[key] for key in extra}))
    plain = json.loads(json.dumps(task.to_record()))
    as_text = json.loads(json.dumps(task.to_record(events_as_text=True)))
    for entry in as_text["events"]:
        entry["data"] = json.loads(entry["data"])
    assert as_text == plain


def test_a_record_can_be_changed_without_changing_the_task() -> None:
    task = task_of(ASKED, remote_swarms=["a"], breakpoints=[{"id": "c"}])
    record = task.to_record()
    lists = ("task_contributors", "events", "task_message_queue", "remote_swarms", "waiting_for")
    for name in lists:
        record[name].append("x")
    record["breakpoints"].clear()
    assert task.to_record()["breakpoints"] == [{"id": "c"}]
    assert task.task_contributors == ["user:ines@harbour"] and task.remote_swarms == ["a"]
    assert task.waiting_for == []
