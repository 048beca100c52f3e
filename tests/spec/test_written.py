"""What this package itself writes satisfies the schemas as a strict peer of 1.3.6 reads them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mail.clock import SystemClock
from mail.core.compose import Composer
from mail.core.runtime import RunRequest
from mail.core.tools.call import AgentToolCall
from mail.core.tools.convert import convert_call_to_mail_message
from mail.core.wire import MAIL_MESSAGE_TYPES
from mail.db import open_store
from tests.spec.test_schemas import writer
from tests.support.messages import SINGLE, addresses, ids, names, texts
from tests.support.swarm import runtime_of, supervisor, user_message, worker


@given(
    st.sampled_from(MAIL_MESSAGE_TYPES),
    ids,
    addresses,
    st.lists(addresses, min_size=1, max_size=3),
    texts,
    texts,
    names,
)
def test_every_composed_message_is_valid(kind, task_id, sender, to, subject, body, swarm) -> None:
    to = to[:1] if kind in SINGLE else to
    envelope = Composer(swarm, SystemClock()).message(kind, task_id, sender, to, subject, body)
    writer().validate(envelope.to_wire())


@given(ids, names, texts)
def test_what_the_system_composes_is_valid(task_id, agent, text) -> None:
    composer = Composer("harbour", SystemClock())
    writer().validate(composer.system_completion(task_id, text, text).to_wire())
    writer().validate(composer.notice(task_id, agent, text, text).to_wire())


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("send_request", {"target": "b", "subject": "", "body": ""}),
        ("send_response", {"target": "b@beta", "subject": "s", "body": "b"}),
        ("send_interrupt", {"target": "b", "subject": "s", "body": "b"}),
        ("send_broadcast", {"subject": "s", "body": "b", "targets": None}),
        ("send_broadcast", {"subject": "s", "body": "b", "targets": ["b", "c"]}),
        ("task_complete", {"finish_message": "done"}),
        ("text_output", {"target": "b", "content": "text"}),
    ],
)
def test_every_converted_call_is_valid(name, arguments) -> None:
    call = AgentToolCall(
        tool_name=name, tool_args=arguments, tool_call_id="c", completion={"role": "assistant"}
    )
    writer().validate(convert_call_to_mail_message(call, "a", "t"))


def calls_of(*calls: tuple[str, dict[str, Any]]) -> tuple[None, list[AgentToolCall]]:
    return None, [
        AgentToolCall(
            tool_name=name,
            tool_args=arguments,
            tool_call_id=f"c{index}",
            completion={"role": "assistant"},
        )
        for index, (name, arguments) in enumerate(calls)
    ]


async def test_every_message_of_a_real_run_is_valid_and_all_kinds_occur() -> None:
    letter = {"target": "worker", "subject": "s", "body": "<b> & \x00 [/red]"}
    replies = iter(
        [
            calls_of(("send_request", {"target": "wroker"})),  # a mistake: the system answers
            calls_of(("send_interrupt", letter), ("send_broadcast", letter)),
            calls_of(("send_request", letter), ("help", {})),
            calls_of(("await_message", {})),
            calls_of(("task_complete", {"finish_message": "done"})),
        ]
    )

    async def lead(history, tool_choice):
        return next(replies, calls_of(("await_message", {})))

    answers = iter([calls_of(("send_response", letter | {"target": "supervisor"}))])

    async def work(history, tool_choice):
        return next(answers, calls_of(("await_message", {})))

    store = open_store("memory://")
    runtime = runtime_of({"supervisor": supervisor(lead), "worker": worker(work)}, store=store)
    await runtime.start()
    try:
        run = await runtime.open_run(RunRequest(message=user_message()))
        result = await run.result(timeout=20)
        task = await runtime.read_task(run.task_id)
    finally:
        await runtime.shutdown()
    assert result.status == "completed"
    sent = [*task.get_messages(), *task.task_message_queue, result.message]
    for message in sent:
        writer().validate(message)
    assert {message["msg_type"] for message in sent} == set(MAIL_MESSAGE_TYPES)
    assert {m["message"]["sender"]["address_type"] for m in sent} == {"user", "agent", "system"}
