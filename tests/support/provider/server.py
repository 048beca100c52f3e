"""The HTTP side of the fake provider."""

import asyncio
import json
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from mail.llm.script import Script, Step, call
from mail.llm.script_view import ScriptView
from tests.support.provider.answers import Answers, Refused
from tests.support.provider.faults import Fault
from tests.support.provider.inbound import WireName
from tests.support.provider.record import Log, Seen
from tests.support.provider.tokens import UsageOf
from tests.support.provider.wire import Event, Reply, Wire

__all__ = ["FakeProvider", "default_script"]

_NO_FAULT = Fault()
_PING_SECONDS = 0.1
_ROUTES: dict[str, WireName] = {
    "/chat/completions": "completions",
    "/responses": "responses",
    "/messages": "anthropic",
}


def default_script(view: ScriptView) -> Step | str:
    """Finish the task with the mail's body, or send it back, or just say it."""
    if "task_complete" in view.tools:
        return call("task_complete", finish_message=view.body or "done")
    if "send_response" in view.tools:
        return call("send_response", target=view.sender, subject="Re", body=view.body)
    return view.body or "hello"


class FakeProvider:
    """A provider on a loopback port, as an async context manager.

    Args:
        script: Decides every reply.
        port: 0 for any free port.
        log: A file for JSON lines about the requests.
        key: The only API key that is accepted, if given.
        token_delay: Seconds before each piece of a streamed reply.
        usage: Input and output tokens of each request; counted from the content by default.
        proxy: Be a LiteLLM proxy: chat completions with Claude are Anthropic's behind the scenes.

    ``requests`` lists what arrived, ``faults`` what the next requests suffer, one each (None lets
    a request through). ``base_url`` ends in ``/v1``, ``root_url`` (for Anthropic) does not.
    """

    def __init__(
        self,
        script: Script = default_script,
        *,
        port: int = 0,
        log: Path | None = None,
        key: str | None = None,
        token_delay: float = 0.0,
        usage: UsageOf | None = None,
        proxy: bool = False,
    ) -> None:
        self.requests: list[Seen] = []
        self.faults: deque[Fault | None] = deque()
        self.base_url = ""
        self.root_url = ""
        self.port = port
        self._answers = Answers(script, key=key, usage=usage, proxy=proxy)
        self._log = Log(log)
        self._token_delay = token_delay
        self._runner: web.AppRunner | None = None
        self._changed = asyncio.Condition()

    @property
    def script(self) -> Script:
        """What decides every reply; may be replaced at any time."""
        return self._answers.script

    @script.setter
    def script(self, script: Script) -> None:
        self._answers.script = script

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        for prefix in ("", "/v1"):
            for path in _ROUTES:
                app.router.add_post(prefix + path, self._serve)
        self._runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=1.0
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = int(self._runner.addresses[0][1])
        self.root_url = f"http://127.0.0.1:{self.port}"
        self.base_url = f"{self.root_url}/v1"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def ended(self, count: int = 1) -> None:
        """Wait until so many requests are over."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: sum(seen.outcome is not None for seen in self.requests) >= count
            )

    async def first_token(self, n: int = 1) -> float:
        """Wait until the ``n``-th request's first piece of content is out; return when it was.

        Raises:
            RuntimeError: the request ended without content.
        """

        def told() -> bool:
            seen = self.requests[n - 1] if len(self.requests) >= n else None
            return seen is not None and not (seen.first_token_at is None and seen.outcome is None)

        async with self._changed:
            await self._changed.wait_for(told)
        at = self.requests[n - 1].first_token_at
        if at is None:
            raise RuntimeError(f"request {n} ended without content")
        return at

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        text = await request.text()
        seen = Seen(
            n=len(self.requests) + 1,
            body=_body(text),
            headers={name.lower(): value for name, value in request.headers.items()},
            wire=_ROUTES[request.path.removeprefix("/v1")],
            path=request.path,
        )
        self.requests.append(seen)
        self._log.request(seen)
        fault = (self.faults.popleft() if self.faults else None) or _NO_FAULT
        try:
            return await self._answer(request, seen, fault)
        except asyncio.CancelledError:
            seen.outcome = "client_gone"
            raise
        except ConnectionResetError:
            seen.outcome = "client_gone"
            return web.Response()  # nobody reads it; an exception would be logged
        finally:
            seen.outcome = seen.outcome or "complete"
            self._log.end(seen)
            await self._tell()

    async def _answer(self, request: web.Request, seen: Seen, fault: Fault) -> web.StreamResponse:
        wire = self._answers.wire_of(seen)
        try:
            if fault.silence:
                await asyncio.sleep(fault.silence)
            reply = await self._answers.reply(seen, fault)
        except Refused as refusal:
            seen.status = refusal.status
            seen.outcome = "fault" if fault.status else "refused"
            headers = {}
            if refusal.retry_after is not None:
                headers["Retry-After"] = str(refusal.retry_after)
            error = wire.error(refusal.status, str(refusal), refusal.code)
            return web.json_response(error, status=refusal.status, headers=headers)
        seen.status = 200
        if fault.html:
            seen.outcome = "fault"
            return web.Response(text="<html><body>gateway</body></html>", content_type="text/html")
        if not seen.body.get("stream"):
            seen.first_token_at = time.perf_counter()
            return web.json_response(wire.whole(reply))
        events = _written(wire, reply, fault)
        return await self._stream(request, seen, fault, events, wire.done)

    async def _stream(
        self,
        request: web.Request,
        seen: Seen,
        fault: Fault,
        events: Iterator[Event | None],
        done: bytes,
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        delay = fault.token_delay or self._token_delay
        pings = fault.pings
        for event in events:
            if event is None:
                seen.outcome = "cut"
                if not fault.politely and request.transport is not None:
                    request.transport.abort()
                return response
            if event.content:
                if delay:
                    await asyncio.sleep(delay)
                if seen.first_token_at is None:
                    seen.first_token_at = time.perf_counter()
                    await self._tell()
            await _send(response, event)
            while pings:
                pings -= 1
                await asyncio.sleep(_PING_SECONDS)
                await _send(response, Event({"type": "ping"}, "ping"))
        if fault.error_event is not None:
            seen.outcome = "fault"
            return response
        await response.write(done)
        return response


def _written(wire: Wire, reply: Reply, fault: Fault) -> Iterator[Event | None]:
    """Yield the events of a reply as far as the fault lets them; None is where they break off."""
    limit = fault.cut_after
    if fault.error_event is not None:
        limit = limit or 0
    for sent, event in enumerate(wire.events(reply)):
        if limit is not None and sent >= limit:
            yield None if fault.error_event is None else wire.broken(reply, fault, sent)
            return
        yield event


def _body(text: str) -> dict[str, Any]:
    """Return the body, or nothing where it is no JSON object: the checks then refuse it."""
    try:
        body = json.loads(text)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


async def _send(response: web.StreamResponse, event: Event) -> None:
    name = f"event: {event.name}\n".encode() if event.name else b""
    await response.write(name + b"data: " + json.dumps(event.data).encode() + b"\n\n")
