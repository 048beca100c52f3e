"""An OTLP collector on a loopback port: it takes spans as ``http/protobuf``, and keeps them."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

KINDS = ("", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")


@dataclass(frozen=True, kw_only=True)
class ReceivedSpan:
    """A span as it came; ``swarm`` is the namespace of its service."""

    name: str
    kind: str
    trace: str
    id: str
    parent: str
    attributes: dict[str, Any]
    failed: bool
    links: tuple[str, ...]
    events: tuple[str, ...]
    resource: dict[str, Any]
    seconds: float

    @property
    def swarm(self) -> str:
        return str(self.resource.get("service.namespace"))


class Collector:
    """Takes spans while it is open. ``gate`` holds its answers back, which have the ``status``."""

    def __init__(self) -> None:
        self.spans: list[ReceivedSpan] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.status = 200
        self.requests = 0
        self.url = ""
        self._came = asyncio.Condition()

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/v1/traces", self._take)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.gate.set()
        await self._runner.cleanup()

    async def _take(self, request: web.Request) -> web.Response:
        self.requests += 1
        content = await request.read()
        await self.gate.wait()
        if self.status == 200:
            self.spans += _spans(content)
        async with self._came:
            self._came.notify_all()
        return web.Response(status=self.status, content_type="application/x-protobuf")

    async def until(self, has: Callable[[list[ReceivedSpan]], bool]) -> list[ReceivedSpan]:
        """Wait until the spans that have come are enough; return them."""
        async with asyncio.timeout(60), self._came:
            await self._came.wait_for(lambda: has(self.spans))
        return list(self.spans)


def _spans(content: bytes) -> list[ReceivedSpan]:
    found = []
    for group in ExportTraceServiceRequest.FromString(content).resource_spans:
        resource = _read(group.resource.attributes)
        for scope in group.scope_spans:
            for span in scope.spans:
                found.append(
                    ReceivedSpan(
                        name=span.name,
                        kind=KINDS[span.kind],
                        trace=span.trace_id.hex(),
                        id=span.span_id.hex(),
                        parent=span.parent_span_id.hex(),
                        attributes=_read(span.attributes),
                        failed=span.status.code == 2,
                        links=tuple(link.trace_id.hex() for link in span.links),
                        events=tuple(event.name for event in span.events),
                        resource=resource,
                        seconds=(span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
                    )
                )
    return found


def _read(attributes: Any) -> dict[str, Any]:
    return {each.key: _value(each.value) for each in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind) if kind else None
