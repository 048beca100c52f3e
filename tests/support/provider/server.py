"""The HTTP side of the fake provider."""

import asyncio
import json
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from mail.errors import ModelError
from mail.llm.script import Fail, Script, Step, call, run_script
from mail.llm.script_view import ScriptView
from tests.support.provider.faults import Fault
from tests.support.provider.record import Log, Seen
from tests.support.provider.validate import problems_of
from tests.support.provider.wire import cut_arguments, events_of, whole_reply

__all__ = ["FakeProvider", "default_script"]

_NO_FAULT = Fault()


def default_script(view: ScriptView) -> Step | str:
    """Finish the task with the mail's body, or send it back, or just say it."""
    if "task_complete" in view.tools:
        return call("task_complete", finish_message=view.body or "done")
    if "send_response" in view.tools:
        return call("send_response", target=view.sender, subject="Re", body=view.body)
    return view.body or "hello"


class _Refused(Exception):
    def __init__(self, status: int, message: str, retry_after: float | str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class FakeProvider:
    """A provider on a loopback port, as an async context manager.

    Args:
        script: Decides every reply.
        port: 0 for any free port.
        log: A file for JSON lines about the requests.
        key: The only API key that is accepted, if given.
        token_delay: Seconds before each piece of a streamed reply.

    ``requests`` lists what arrived, ``faults`` what the next requests suffer, one each (None lets
    a request through).
    """

    def __init__(
        self,
        script: Script = default_script,
        *,
        port: int = 0,
        log: Path | None = None,
        key: str | None = None,
        token_delay: float = 0.0,
    ) -> None:
        self.script = script
        self.requests: list[Seen] = []
        self.faults: deque[Fault | None] = deque()
        self.base_url = ""
        self.port = port
        self._key = key
        self._log = Log(log)
        self._token_delay = token_delay
        self._runner: web.AppRunner | None = None
        self._changed = asyncio.Condition()

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        for prefix in ("", "/v1"):
            app.router.add_post(f"{prefix}/chat/completions", self._serve)
        self._runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=1.0
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = int(self._runner.addresses[0][1])
        self.base_url = f"http://127.0.0.1:{self.port}/v1"
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

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        seen = Seen(
            n=len(self.requests) + 1,
            body=await request.json(),
            headers={name.lower(): value for name, value in request.headers.items()},
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
            async with self._changed:
                self._changed.notify_all()

    async def _answer(self, request: web.Request, seen: Seen, fault: Fault) -> web.StreamResponse:
        try:
            if fault.silence:
                await asyncio.sleep(fault.silence)
            steps = await self._steps(seen, fault)
        except _Refused as refusal:
            seen.status = refusal.status
            seen.outcome = "fault" if fault.status else "refused"
            headers = {}
            if refusal.retry_after is not None:
                headers["Retry-After"] = str(refusal.retry_after)
            error = {"message": str(refusal), "type": "fake_error", "code": None}
            return web.json_response({"error": error}, status=refusal.status, headers=headers)
        if fault.html:
            seen.status, seen.outcome = 200, "fault"
            return web.Response(text="<html><body>gateway</body></html>", content_type="text/html")
        seen.status = 200
        prompt = sum(len(str(message.get("content") or "")) // 4 for message in seen.messages)
        if not seen.body.get("stream"):
            return web.json_response(whole_reply(steps, seen.model, seen.digest, prompt))
        usage = bool((seen.body.get("stream_options") or {}).get("include_usage"))
        events = events_of(steps, seen.model, seen.digest, prompt, usage=usage)
        return await self._stream(request, seen, fault, events)

    async def _steps(self, seen: Seen, fault: Fault) -> Sequence[Step]:
        if self._key is not None and seen.headers.get("authorization") != f"Bearer {self._key}":
            raise _Refused(401, "Incorrect API key provided")
        if fault.status is not None:
            raise _Refused(fault.status, fault.message, fault.retry_after)
        problems = problems_of(seen.body)
        if problems:
            raise _Refused(400, "; ".join(problems))
        view = ScriptView(
            seen.messages,
            model=seen.model,
            tools=seen.tool_names,
            tool_choice=seen.body.get("tool_choice") or "auto",
        )
        try:
            steps = await run_script(self.script, view)
        except ModelError as error:
            raise _Refused(400, str(error)) from error
        for step in steps:
            if isinstance(step, Fail):
                raise _Refused(step.status or 500, step.reason, step.retry_after)
        return cut_arguments(steps) if fault.truncate_arguments else steps

    async def _stream(
        self, request: web.Request, seen: Seen, fault: Fault, events: Iterator[dict[str, Any]]
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        if fault.error_event is not None:
            seen.outcome = "fault"
            await _send(response, {"error": {"message": fault.error_event, "code": 500}})
            return response
        delay = fault.token_delay or self._token_delay
        for sent, event in enumerate(events):
            if fault.cut_after is not None and sent >= fault.cut_after:
                seen.outcome = "cut"
                if not fault.politely and request.transport is not None:
                    request.transport.abort()
                return response
            if delay:
                await asyncio.sleep(delay)
            await _send(response, event)
        await response.write(b"data: [DONE]\n\n")
        return response


async def _send(response: web.StreamResponse, event: dict[str, Any]) -> None:
    await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")
