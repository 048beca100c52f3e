"""Traces: spans with the names and attributes of OpenTelemetry's GenAI conventions v0.1.0.

OpenTelemetry's API does nothing unless the program has a tracer provider: its own, or the one that
a server makes in `export`. The routing information of a message has the span that it was sent in.
"""

import asyncio
import hashlib
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from pydantic_core import to_json

from mail.version import get_version

_CONTENT: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_CONTENT_ON: Final = ("true", "span_only", "span_and_event")
_PARAMETERS: Final = ("max_tokens", "seed", "temperature", "top_k", "top_p")
_PROVIDERS: Final[Mapping[str, str]] = {
    "azure": "azure.ai.openai",
    "azure_ai": "azure.ai.inference",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "vertex_ai": "gcp.vertex_ai",
    "watsonx": "ibm.watsonx.ai",
    "xai": "x_ai",
}
"""LiteLLM's names of providers that the conventions call otherwise."""
_VARIABLES: Final = (
    *("TRACES_EXPORTER", "EXPORTER_OTLP_PROTOCOL", "SDK_DISABLED"),
    *("EXPORTER_OTLP_ENDPOINT", "EXPORTER_OTLP_TRACES_ENDPOINT"),
)
_LAST_SECONDS: Final = 3.0
_LONGEST: Final = 512
"""Characters of a header that are passed on: it goes into each message of a task."""

_log = logging.getLogger(__name__)
_w3c = TraceContextTextMapPropagator()


def tracer() -> trace.Tracer | None:
    """Return what makes spans; None as long as the program has no tracer provider."""
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return None
    return trace.get_tracer("mail", get_version())


def here() -> SpanContext | None:
    """Return the span that the caller is in, if there is one."""
    found = trace.get_current_span().get_span_context()
    return found if found.is_valid else None


def carried(note: Mapping[str, Any]) -> SpanContext | None:
    """Return the span that headers or routing information name, if they name one."""
    named = {name: note.get(name) for name in ("traceparent", "tracestate")}
    texts = {name: x for name, x in named.items() if isinstance(x, str) and len(x) <= _LONGEST}
    found = trace.get_current_span(_w3c.extract(texts, Context())).get_span_context()
    return found if found.is_valid else None


def noted(note: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return routing information with the current span, unless it has one already."""
    added: dict[str, Any] = {}
    _w3c.inject(added)
    return note if "traceparent" in note else {**note, **added}


def headers(note: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers of a request that brings a message with such routing information."""
    made: dict[str, str] = {}
    if "traceparent" in note and (span := carried(note)) is not None:
        _w3c.inject(made, trace.set_span_in_context(NonRecordingSpan(span), Context()))
    return made


def derived(name: str) -> SpanContext:
    """Return the same span for the same name: the root of a task that nobody has noted one of."""
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()
    ids = int.from_bytes(digest[:16]), int.from_bytes(digest[16:24])
    return SpanContext(*ids, is_remote=True, trace_flags=trace.TraceFlags(1))


@contextmanager
def continued(given: Mapping[bytes, bytes]) -> Iterator[None]:
    """Go on with the trace that the headers of a request name, unless FastAPI has done so."""
    texts = {name.decode("latin-1"): value.decode("latin-1") for name, value in given.items()}
    caller = None if tracer() is None or here() is not None else carried(texts)
    with nullcontext() if caller is None else trace.use_span(NonRecordingSpan(caller)):
        yield


def agent_span(
    made_by: trace.Tracer,
    operation: str,
    name: str,
    task_id: str,
    parent: SpanContext | None,
    link: SpanContext | None = None,
) -> Span:
    """Begin the span of a swarm's run (``invoke_workflow``) or an agent's turn (``invoke_agent``).

    Without a ``parent`` it is the first of a trace; ``link`` is another span that led to it.
    """
    above = Context()  # not the current one, which may be another task's
    if parent is not None:
        above = trace.set_span_in_context(NonRecordingSpan(parent), above)
    attributes = {
        "gen_ai.operation.name": operation,
        "gen_ai.agent.name": name,
        "gen_ai.conversation.id": task_id,
    }
    links = [Link(link)] if link is not None else None
    return made_by.start_span(f"{operation} {name}", above, attributes=attributes, links=links)


def chat_span(model: str, task_id: str, given: Mapping[str, Any]) -> AbstractContextManager[Span]:
    """Have a model called, by LiteLLM's name and with such arguments, in a span.

    There is one if the caller's is recorded, as for actions.
    """
    before, _, after = model.partition("/")
    provider, name = (before, after) if after else ("openai", model)
    attributes = {
        "gen_ai.provider.name": _PROVIDERS.get(provider, provider),
        "gen_ai.request.model": name,
        "gen_ai.request.stream": True,
        "gen_ai.conversation.id": task_id or None,
        **{f"gen_ai.request.{each}": given.get(each) for each in _PARAMETERS},
    }
    return _child("chat", name, SpanKind.CLIENT, attributes)


def note_response(piece: Any) -> None:
    """Note on the current span which response of a provider a piece of a stream belongs to."""
    span = trace.get_current_span()
    if span.is_recording():
        response = getattr(piece, "response", None) or piece
        for name in ("id", "model"):
            if found := getattr(response, name, None):
                span.set_attribute(f"gen_ai.response.{name}", str(found))


def tool_span(name: str, call_id: str) -> AbstractContextManager[Span]:
    """Have an action run in a span."""
    known = {"name": name, "call.id": call_id, "type": "function"}
    attributes = {f"gen_ai.tool.{each}": value for each, value in known.items()}
    return _child("execute_tool", name, SpanKind.INTERNAL, attributes)


@contextmanager
def _child(operation: str, name: str, kind: SpanKind, more: Mapping[str, Any]) -> Iterator[Span]:
    if not trace.get_current_span().is_recording():
        yield trace.INVALID_SPAN
        return
    attributes = {key: value for key, value in more.items() if value is not None}
    attributes["gen_ai.operation.name"] = operation
    made_by = trace.get_tracer("mail", get_version())
    span = made_by.start_span(f"{operation} {name}", kind=kind, attributes=attributes)
    with within(span):
        yield span


@contextmanager
def within(span: Span) -> Iterator[None]:
    """Make a span the current one, and end it. What errors say may be content: it stays out."""
    with trace.use_span(span, True, record_exception=False, set_status_on_exception=False):
        try:
            yield
        except Exception as error:
            failed(span, error)
            raise


def failed(span: Span, error: BaseException | str | None) -> None:
    """Note that what a span is about has failed: a provider's status, a class, or a word."""
    if not isinstance(error, str):
        status = getattr(error, "status", None)
        error = str(status) if status else type(error).__qualname__ if error else "_OTHER"
    span.set_attribute("error.type", error)
    span.set_status(StatusCode.ERROR)


def wants_content(span: Span) -> bool:
    """Tell whether a span is to have texts: of messages, instructions, arguments and results."""
    return span.is_recording() and os.environ.get(_CONTENT, "").strip().lower() in _CONTENT_ON


def add_content(span: Span, **content: Any) -> None:
    """Add texts to a span as JSON, under ``gen_ai.`` and their names with dots for ``__``."""
    for name, value in content.items():
        text = value if isinstance(value, str) else to_json(value, fallback=str).decode()
        span.set_attribute(f"gen_ai.{name.replace('__', '.')}", text)


def export(swarm: str, node: str) -> Callable[[], Awaitable[None]] | None:
    """Have spans sent to the collector that ``OTEL_…`` variables name, if they name one.

    ``swarm`` and ``node`` (the server) are told with them. Returns what sends the rest and ends it,
    in three seconds at most; None when nothing is sent, or the program has its own provider.
    """
    if not _is_wanted() or tracer() is not None:
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        ours = {"service.name": "mail", "service.namespace": swarm, "service.instance.id": node}
        resource = Resource.create({**ours, **OTELResourceDetector().detect().attributes})
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    except ImportError:
        _log.warning("no traces are sent: run pip install 'mail-protocol[otel]'")
        return None
    except (ValueError, OSError) as error:
        _log.warning("no traces are sent: a variable OTEL_… is wrong: %s", error)
        return None
    trace.set_tracer_provider(provider)

    async def end() -> None:
        # In a thread that nobody waits for, should the collector not answer.
        sending = threading.Thread(target=provider.shutdown, name="last spans", daemon=True)
        sending.start()
        await asyncio.to_thread(sending.join, _LAST_SECONDS)

    return end


def _is_wanted() -> bool:
    """Tell whether the environment asks for traces; say so if it asks for what there is not."""
    read = (os.environ.get(f"OTEL_{name}", "").strip().lower() for name in _VARIABLES)
    exporter, protocol, disabled, *urls = read
    if disabled == "true" or exporter == "none" or not (exporter or any(urls)):
        return False
    if exporter in ("", "otlp") and protocol in ("", "http/protobuf"):
        return True
    ways = "OTEL_TRACES_EXPORTER can be otlp or none, OTEL_EXPORTER_OTLP_PROTOCOL http/protobuf"
    _log.warning("no traces are sent by '%s' as '%s': %s", exporter or "otlp", protocol, ways)
    return False
