"""From a request to the reply that the script wants, or to a refusal."""

from collections.abc import Sequence
from dataclasses import replace

from mail.errors import ModelError
from mail.llm.script import Fail, Script, run_script
from tests.support.provider.faults import Fault
from tests.support.provider.issued import Issued
from tests.support.provider.pauses import Pauses
from tests.support.provider.record import Seen
from tests.support.provider.steps import (
    AnyStep,
    OutOfTokens,
    PauseTurn,
    Refuse,
    cut_arguments,
)
from tests.support.provider.tokens import UsageOf, tokens_of
from tests.support.provider.validate import problems_of
from tests.support.provider.wire import Reply, Wire
from tests.support.provider.wire_anthropic import ANTHROPIC, blocks_of
from tests.support.provider.wire_completions import COMPLETIONS
from tests.support.provider.wire_proxy import PROXY, inner_request, is_claude
from tests.support.provider.wire_responses import RESPONSES, items_of

__all__ = ["Answers", "Refused"]

_WIRES = {"completions": COMPLETIONS, "responses": RESPONSES, "anthropic": ANTHROPIC}


class Refused(Exception):
    """The provider answers with an error status."""

    def __init__(
        self,
        status: int,
        message: str,
        retry_after: float | str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after
        self.code = code


class Answers:
    """Decides what is answered; see `tests.support.provider.server.FakeProvider`."""

    def __init__(
        self, script: Script, *, key: str | None, usage: UsageOf | None, proxy: bool
    ) -> None:
        self.script = script
        self._key = key
        self._usage = usage
        self._proxy = proxy
        self._issued = Issued()
        self._pauses = Pauses()

    def wire_of(self, seen: Seen) -> Wire:
        """Return the format in which a request is answered."""
        return PROXY if self._proxied(seen) else _WIRES[seen.wire]

    def _proxied(self, seen: Seen) -> bool:
        return self._proxy and is_claude(seen)

    async def reply(self, seen: Seen, fault: Fault) -> Reply:
        """Return the reply; behind a proxy it is that to the request which the proxy sends on.

        Raises:
            Refused: the key is wrong, the fault or the script says so, or the request is one that
                the real provider would refuse.
        """
        if self._key is not None and self._key not in _keys(seen):
            raise Refused(401, "Incorrect API key provided")
        if fault.status is not None:
            raise Refused(fault.status, fault.message, fault.retry_after, fault.code)
        asked = self._sent_on(seen)
        problems = problems_of(
            asked.body, wire=asked.wire, headers=asked.headers, issued=self._issued
        )
        if problems:
            raise Refused(400, "; ".join(problems))
        steps = await self._steps(asked)
        if fault.truncate_arguments:
            steps = cut_arguments(steps)
        reply = Reply(
            seen=asked,
            seed=asked.digest,
            steps=steps,
            tokens=tokens_of(asked, steps, self._usage),
            counted=bool((seen.body.get("stream_options") or {}).get("include_usage")),
        )
        return self._noted(reply)

    def _sent_on(self, seen: Seen) -> Seen:
        if not self._proxied(seen):
            return seen
        try:
            return inner_request(seen)
        except ValueError as error:
            raise Refused(400, str(error)) from error

    async def _steps(self, seen: Seen) -> list[AnyStep]:
        resumed = self._pauses.resumed(seen) if seen.wire == "anthropic" else None
        if resumed is not None:
            return resumed
        try:
            steps: Sequence[AnyStep] = await run_script(
                self.script, seen.conversation.view(seen.model)
            )
        except ModelError as error:
            raise Refused(400, str(error)) from error
        for step in steps:
            if isinstance(step, Fail):
                raise Refused(step.status or 500, step.reason, step.retry_after)
        return _until_the_end(steps)

    def _noted(self, reply: Reply) -> Reply:
        """Stop at a pause, and remember what is sent."""
        if reply.seen.wire == "anthropic":
            reply = self._pauses.until_pause(reply)
            reply = replace(reply, tokens=tokens_of(reply.seen, reply.steps, self._usage))
            self._issued.note_blocks(blocks_of(reply))
            return reply
        steps = [step for step in reply.steps if not isinstance(step, PauseTurn)]
        reply = replace(reply, steps=steps)
        if reply.seen.wire == "responses":
            self._issued.note_items(items_of(reply))
        return reply


def _keys(seen: Seen) -> list[str]:
    """The keys of a request: a bearer token, and for Anthropic ``x-api-key`` too."""
    keys = [seen.headers.get("authorization", "").removeprefix("Bearer ")]
    if seen.wire == "anthropic":
        keys.append(seen.headers.get("x-api-key", ""))
    return keys


def _until_the_end(steps: Sequence[AnyStep]) -> list[AnyStep]:
    last = (at for at, step in enumerate(steps) if isinstance(step, Refuse | OutOfTokens))
    return list(steps[: next(last, len(steps)) + 1])
