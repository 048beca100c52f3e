"""The HTTP side of the fake provider."""

import asyncio
import json
import re
import time
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from mail.llm.script import Script, Step, call
from mail.llm.script_view import ScriptView
from tests.support.provider.answers import Answers, Refused
from tests.support.provider.faults import Fault
from tests.support.provider.inbound import WireName
from tests.support.provider.personalities import PERSONALITIES
from tests.support.provider.record import Log, Seen
from tests.support.provider.tokens import UsageOf
from tests.support.provider.validate_profiles import Asked, ollama_thinks
from tests.support.provider.wire import Event, Reply, Wire, as_sse

__all__ = ["FakeProvider", "default_script"]

_NO_FAULT = Fault()
_PING_SECONDS = 0.1
_ROUTES: dict[str, WireName] = {
    "/chat/completions": "completions",
    "/responses": "responses",
    "/messages": "anthropic",
    "/api/chat": "ollama",
    "/api/generate": "ollama",
}
_PATH = re.compile(
    r"(?:/as/(?P<name>[a-z0-9-]+))?(?:/v1|/v1beta)?"
    r"(?P<route>/[a-z/]+|/models/(?P<model>[^:]+):(?:stream)?[gG]enerateContent"
    r"|/model/(?P<conversing>[^/]+)/converse(?:-stream)?)"
)


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

    ``personality`` may be set to a provider of `tests.support.provider.personalities` whose rules
    then hold for all requests; below `root_of` a provider's rules hold in any case.

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
        self.shown: list[str] = []
        self.personality = ""
        self.faults: deque[Fault | None] = deque()
        self.base_url = ""
        self.root_url = ""
        self.port = port
        self._answers = Answers(script, key=key, usage=usage, proxy=proxy)
        self._log = Log(log)
        self.token_delay = token_delay
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
        app.router.add_post("/{path:.*}", self._serve)
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

    def root_of(self, personality: str) -> str:
        """Return the address of a provider, without any version."""
        return f"{self.root_url}/as/{PERSONALITIES[personality].name}"

    def environment(self, *personalities: str) -> dict[str, str]:
        """Return the variables by which LiteLLM finds providers here."""
        found: dict[str, str] = {}
        for name in personalities or PERSONALITIES:
            variable, ending = PERSONALITIES[name].address
            found.setdefault(variable, f"{self.root_of(name)}{ending}")
        return found

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
        found = _PATH.fullmatch(request.path)
        if found is None:
            return web.Response(status=404)
        if found["route"] == "/api/show":
            return self._show(_body(text))
        wire = "gemini" if found["model"] else _ROUTES.get(found["route"])
        wire = "bedrock" if found["conversing"] else wire
        if wire is None:
            return web.Response(status=404)
        seen = Seen(
            n=len(self.requests) + 1,
            body=_body(text),
            headers={name.lower(): value for name, value in request.headers.items()},
            wire=wire,
            path=request.path,
            personality=found["name"] or self.personality,
            named=found["model"] or found["conversing"],
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

    def _show(self, body: Mapping[str, Any]) -> web.Response:
        """Answer what Ollama is asked about a model."""
        name = str(body.get("model") or body.get("name"))
        self.shown.append(name)
        asked = Asked(body={}, wire="ollama", model=name)
        able = ["completion", "tools", *(["thinking"] if ollama_thinks(asked) else [])]
        info = {"general.architecture": "fake", "fake.context_length": 131072}
        template = "{{ .Tools }}"  # the library looks for tools there
        return web.json_response({"capabilities": able, "model_info": info, "template": template})

    async def _answer(self, request: web.Request, seen: Seen, fault: Fault) -> web.StreamResponse:
        wire = self._answers.wire_of(seen)
        try:
            if fault.silence:
                await asyncio.sleep(fault.silence)
            reply = await self._answers.reply(seen, fault)
        except Refused as refusal:
            seen.status = refusal.status
            seen.outcome = "fault" if fault.status else "refused"
            seen.refusal = str(refusal)
            headers = refusal.headers
            if refusal.retry_after is not None:
                headers["Retry-After"] = str(refusal.retry_after)
            error = refusal.body or wire.error(refusal.status, str(refusal), refusal.code)
            return web.json_response(error, status=refusal.status, headers=headers)
        seen.status = 200
        if fault.html:
            seen.outcome = "fault"
            return web.Response(text="<html><body>gateway</body></html>", content_type="text/html")
        if not seen.streamed:
            return await self._at_once(request, seen, fault, wire.whole(reply))
        return await self._stream(request, seen, fault, reply, wire)

    async def _at_once(
        self, request: web.Request, seen: Seen, fault: Fault, whole: Mapping[str, Any]
    ) -> web.StreamResponse:
        """Send a whole reply; blank lines are signs of life before it."""
        seen.first_token_at = time.perf_counter()
        if not fault.comments:
            return web.json_response(whole)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for _ in range(fault.comments):
            await response.write(b"\n")
            await asyncio.sleep(fault.comment_delay)
        await response.write(json.dumps(whole).encode())
        return response

    async def _stream(
        self,
        request: web.Request,
        seen: Seen,
        fault: Fault,
        reply: Reply,
        wire: Wire,
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": wire.media})
        await response.prepare(request)
        await _live(response, fault, reply, wire)
        delay = fault.token_delay or self.token_delay
        pings = fault.pings
        for event in _written(wire, reply, fault):
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
            await response.write(wire.written(event))
            while pings:
                pings -= 1
                await asyncio.sleep(_PING_SECONDS)
                await response.write(wire.written(Event({"type": "ping"}, "ping")))
        if fault.error_event is not None:
            seen.outcome = "fault"
            return response
        await response.write(wire.done)
        return response


async def _live(response: web.StreamResponse, fault: Fault, reply: Reply, wire: Wire) -> None:
    """Send the signs of life that come before a reply."""
    comment = reply.traits.comment
    if comment is not None and wire.written is as_sse:
        await response.write(f": {comment}\n\n".encode())
    for number in range(fault.comments):
        event = {"type": "keepalive", "sequence_number": number}
        sign = f": {comment or 'keep-alive'}\n\n".encode()
        if reply.seen.wire == "responses":
            sign = wire.written(Event(event, "keepalive"))
        await response.write(sign)
        await asyncio.sleep(fault.comment_delay)


def _written(wire: Wire, reply: Reply, fault: Fault) -> Iterator[Event | None]:
    """Yield the events of a reply as far as the fault lets them; None is where they break off."""
    limit = fault.cut_after
    if fault.error_event is not None:
        limit = limit or 0
    for sent, event in enumerate(wire.events(reply)):
        if limit is not None and sent >= limit:
            yield None if fault.error_event is None else _broken(wire, reply, fault, sent)
            return
        yield event


def _broken(wire: Wire, reply: Reply, fault: Fault, sent: int) -> Event:
    if fault.body is not None:
        return Event(dict(fault.body), fault.event)
    return wire.broken(reply, fault, sent)


def _body(text: str) -> dict[str, Any]:
    """Return the body, or nothing where it is no JSON object: the checks then refuse it."""
    try:
        body = json.loads(text)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}
