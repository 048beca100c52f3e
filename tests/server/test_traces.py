"""What a server makes of the environment's wish for traces."""

import re
import sys

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from mail.traces import carried, export, headers, tracer

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}


@pytest.fixture(autouse=True)
def nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave what this machine may be set up for out."""
    for name in ("TRACES_EXPORTER", "SDK_DISABLED", "EXPORTER_OTLP_ENDPOINT"):
        monkeypatch.delenv(f"OTEL_{name}", raising=False)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)


def asked(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> object:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return export("harbour", "node")


@pytest.mark.parametrize(
    "variables",
    [
        {},
        ENDPOINT | {"OTEL_TRACES_EXPORTER": "none"},
        ENDPOINT | {"OTEL_SDK_DISABLED": "true"},
        {"OTEL_SERVICE_NAME": "ships"},
    ],
)
def test_nothing_is_sent_or_said_unless_it_is_asked_for(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert asked(monkeypatch, variables) is None
    assert tracer() is None
    assert not caplog.records


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER can be otlp or none"),
        (
            ENDPOINT | {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "by 'otlp' as 'grpc': .* OTEL_EXPORTER_OTLP_PROTOCOL http/protobuf",
        ),
        (ENDPOINT | {"OTEL_BSP_MAX_QUEUE_SIZE": "1"}, "a variable OTEL_… is wrong: "),
    ],
)
def test_what_cannot_be_sent_is_said_once(
    variables: dict[str, str],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert asked(monkeypatch, variables) is None
    assert tracer() is None
    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert re.search(told, record.getMessage())


def test_a_missing_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    assert asked(monkeypatch, ENDPOINT) is None
    [record] = caplog.records
    assert "pip install 'mail-protocol[otel]'" in record.getMessage()


async def test_the_provider_of_the_program_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    own = TracerProvider(shutdown_on_exit=False)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", own)
    assert asked(monkeypatch, ENDPOINT) is None
    assert trace.get_tracer_provider() is own


def test_a_header_that_is_too_long_is_not_passed_on() -> None:
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    for state, kept in (("a=1", {"a": "1"}), (f"a={'1' * 250},b={'2' * 250},c=3{'4' * 99}", {})):
        found = carried({"traceparent": parent, "tracestate": state})
        assert found is not None and dict(found.trace_state) == kept
    assert carried({"traceparent": parent.replace("4bf9", "nope")}) is None
    assert carried({"traceparent": 7, "other": parent}) is None
    assert headers({"traceparent": "00-a\r\nb: c", "stream": True}) == {}
    assert headers({"traceparent": parent, "stream": True}) == {"traceparent": parent}
