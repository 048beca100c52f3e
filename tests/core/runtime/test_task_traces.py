"""The trace of a task: one over restarts and requests, and nothing of it without a provider."""

from collections.abc import Iterator
from itertools import pairwise

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from mail.core.runtime import RunRequest
from mail.core.tasks import TaskState
from mail.db.memory import MemoryStore
from mail.errors import ModelError
from mail.testing import agent_from
from tests.core.runtime.metered import DONE, ask
from tests.core.runtime.reviews import REVIEW, answering, lone, pause, resume
from tests.support.swarm import runtime_of, supervisor, user_message, worker

Exported = InMemorySpanExporter


def provide(monkeypatch: pytest.MonkeyPatch, **options: object) -> Exported:
    """Give the program a tracer provider, as its owner would, for the length of a test."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False, **options)  # type: ignore[arg-type]
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    return exporter


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> Iterator[Exported]:
    exporter = provide(monkeypatch)
    yield exporter
    exporter.shutdown()


def traces_of(exported: Exported) -> set[int]:
    return {span.context.trace_id for span in exported.get_finished_spans() if span.context}


def named(exported: Exported, name: str) -> list[ReadableSpan]:
    return [span for span in exported.get_finished_spans() if span.name == name]


async def notes_of(runtime) -> list[dict[str, object]]:
    """Return the routing information of a task's messages."""
    task = await runtime.read_task("task-1")
    return [message["message"]["routing_info"] for message in task.get_messages()]


async def test_without_a_provider_messages_are_as_they_were() -> None:
    runtime = lone([DONE])
    assert runtime._context.tracer is None
    await runtime.submit_and_wait(user_message())
    assert all(note == {} for note in await notes_of(runtime))
    await runtime.shutdown()


async def test_results_after_a_restart_are_of_the_same_trace(exported: Exported) -> None:
    store = MemoryStore()
    runtime = lone([REVIEW], store=store)
    [call] = await pause(runtime)
    await runtime.shutdown()
    again = lone([DONE], store=store)
    assert (await resume(again, answering(call, "fine"))).status is TaskState.COMPLETED
    await again.shutdown()
    assert len(traces_of(exported)) == 1
    first, second = named(exported, "invoke_workflow test-swarm")
    assert first.parent is None
    assert second.parent is not None and first.context is not None
    assert second.parent.span_id == first.context.span_id
    assert len(named(exported, "invoke_agent supervisor")) == 2


async def test_a_task_that_began_without_traces_has_one_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    runtime = lone([REVIEW], [DONE], store=store)
    [call] = await pause(runtime)
    await runtime.shutdown()
    seen = set()
    for turn in ([REVIEW], [DONE]):
        exported = provide(monkeypatch)
        runtime = lone(turn, store=store)
        ended = await resume(runtime, answering(call, "fine"))
        await runtime.shutdown()
        call = next((each["call_id"] for each in ended.breakpoints), "")
        seen |= traces_of(exported)
    assert ended.status is TaskState.COMPLETED
    assert len(seen) == 1


async def test_the_span_of_the_caller_is_the_parent(exported: Exported) -> None:
    runtime = runtime_of(
        {
            "supervisor": supervisor(
                agent_from(lambda m, _: ask("worker") if len(m) < 2 else [DONE])
            ),
            "worker": worker(
                agent_from(
                    lambda m, _: [
                        ("send_response", {"target": "supervisor", "subject": "Re", "body": "yes"})
                    ]
                )
            ),
        }
    )
    with trace.get_tracer("program").start_as_current_span("program"):
        await runtime.submit_and_wait(user_message())
    await runtime.shutdown()
    [program] = named(exported, "program")
    [run] = named(exported, "invoke_workflow test-swarm")
    first, last = named(exported, "invoke_agent supervisor")
    [between] = named(exported, "invoke_agent worker")
    path = [program, run, first, between, last]
    for above, below in pairwise(path):
        assert above.context is not None and below.parent is not None
        assert below.parent.span_id == above.context.span_id
    assert all(str(note["traceparent"]) for note in (await notes_of(runtime))[:3])


async def test_a_failure_has_its_class_and_none_of_its_words(exported: Exported) -> None:
    runtime = lone(ModelError("model call failed: secret", status=401))
    run = await runtime.open_run(RunRequest(message=user_message()))
    assert (await run.result(5)).status is TaskState.FAILED
    await runtime.shutdown()
    [turn] = named(exported, "invoke_agent supervisor")
    [whole] = named(exported, "invoke_workflow test-swarm")
    assert turn.attributes is not None and whole.attributes is not None
    assert turn.attributes["error.type"] == "401"
    assert whole.attributes["error.type"] == "failed"
    assert not turn.status.is_ok and not whole.status.is_ok
    assert "secret" not in "".join(span.to_json() for span in exported.get_finished_spans())


async def test_spans_that_are_not_sampled_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    exported = provide(monkeypatch, sampler=ALWAYS_OFF)
    runtime = lone([DONE])
    await runtime.submit_and_wait(user_message())
    [note, *_] = await notes_of(runtime)
    assert int(str(note["traceparent"])[-2:], 16) & 1 == 0
    assert exported.get_finished_spans() == ()
    await runtime.shutdown()


async def test_a_span_that_nobody_can_read_is_left_out(exported: Exported) -> None:
    runtime = lone([DONE])
    message = user_message()
    message["message"]["routing_info"] = {"traceparent": "00-secret\r\nX: y-01", "other": 1}
    await runtime.submit_and_wait(message)
    await runtime.shutdown()
    assert len(traces_of(exported)) == 1
