"""From a request to the reply that the script wants, or to a refusal."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mail.errors import ModelError
from mail.llm.script import Fail, Script, Think, run_script
from tests.support.provider.faults import Fault
from tests.support.provider.issued import Issued
from tests.support.provider.pauses import Pauses
from tests.support.provider.personalities import PERSONALITIES, PLAIN, Personality
from tests.support.provider.record import Seen
from tests.support.provider.steps import (
    AnyStep,
    OutOfTokens,
    PauseTurn,
    Refuse,
    cut_arguments,
)
from tests.support.provider.thinking import bound, default_on
from tests.support.provider.tokens import UsageOf, tokens_of
from tests.support.provider.validate import problems_of
from tests.support.provider.validate_profiles import Asked, Refusal
from tests.support.provider.wire import Reply, Wire
from tests.support.provider.wire_anthropic import ANTHROPIC, blocks_of
from tests.support.provider.wire_bedrock import BEDROCK, hosted_request, unfit
from tests.support.provider.wire_completions import COMPLETIONS
from tests.support.provider.wire_native import GEMINI, OLLAMA, signatures_of
from tests.support.provider.wire_proxy import PROXY, inner_request, is_claude
from tests.support.provider.wire_responses import RESPONSES, items_of

__all__ = ["Answers", "Refused"]

_WIRES = {
    "completions": COMPLETIONS,
    "responses": RESPONSES,
    "anthropic": ANTHROPIC,
    "gemini": GEMINI,
    "ollama": OLLAMA,
    "bedrock": BEDROCK,
}


class Refused(Exception):
    """The provider answers with an error status."""

    def __init__(
        self,
        status: int,
        message: str,
        retry_after: float | str | None = None,
        code: str | None = None,
        *,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after
        self.code = code
        self.body = body
        self.headers = dict(headers or {})

    @classmethod
    def of(cls, refusal: Refusal) -> "Refused":
        """Return the error for a provider's own refusal."""
        given = {"body": refusal.body, "headers": refusal.headers}
        return cls(refusal.status, refusal.text, **given)


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

    def personality_of(self, seen: Seen) -> Personality:
        """Return the provider that a request came to."""
        return PERSONALITIES.get(seen.personality, PLAIN)

    def _proxied(self, seen: Seen) -> bool:
        return (self._proxy or self.personality_of(seen).proxied) and is_claude(seen)

    async def reply(self, seen: Seen, fault: Fault) -> Reply:
        """Return the reply; behind a proxy it is that to the request which the proxy sends on.

        Raises:
            Refused: the key is wrong, the fault or the script says so, or the request is one that
                the real provider would refuse.
        """
        if self._key is not None and self._key not in _keys(seen):
            raise Refused(401, "Incorrect API key provided")
        if fault.status is not None:
            raise Refused(
                fault.status, fault.message, fault.retry_after, fault.code, body=fault.body
            )
        personality = self.personality_of(seen)
        if seen.wire == "bedrock" and (problem := unfit(seen)):
            raise Refused(400, problem)
        _refuse(personality.refusal(self._asked(personality, seen)))
        asked = self._sent_on(seen)
        if asked is not seen:
            _refuse(personality.refused_behind(self._asked(personality, asked)))
        problems = problems_of(
            asked.body,
            wire=asked.wire,
            headers=asked.headers,
            issued=self._issued,
            dialect=personality.dialect,
            hosted=seen.wire == "bedrock",
        )
        if problems:
            raise Refused(400, "; ".join(problems))
        if personality is not PLAIN:
            asked = _thoughtful(asked)
        steps = await self._steps(asked)
        if not personality.thinks(self._asked(personality, asked)):
            steps = [step for step in steps if not isinstance(step, Think)]
        late = personality.unanswered(self._asked(personality, asked), steps)
        if late is not None:
            raise Refused.of(late)
        if fault.truncate_arguments:
            steps = cut_arguments(steps)
        reply = Reply(
            seen=asked,
            seed=asked.digest,
            steps=steps,
            tokens=tokens_of(asked, steps, self._usage),
            counted=bool((seen.body.get("stream_options") or {}).get("include_usage")),
            traits=personality.traits,
        )
        return self._noted(reply, personality.name.partition("-")[0])

    def _asked(self, personality: Personality, seen: Seen) -> Asked:
        return Asked(
            body=seen.body,
            wire=seen.wire,
            model=seen.model,
            headers=seen.headers,
            issued=self._issued,
            owner=personality.name.partition("-")[0],
            streamed=seen.streamed,
        )

    def _sent_on(self, seen: Seen) -> Seen:
        if seen.wire == "bedrock":
            return hosted_request(seen)
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

    def _noted(self, reply: Reply, owner: str) -> Reply:
        """Stop at a pause, and remember what is sent, and by whom."""
        if reply.seen.wire == "anthropic":
            reply = self._pauses.until_pause(reply)
            reply = replace(reply, tokens=tokens_of(reply.seen, reply.steps, self._usage))
            blocks = blocks_of(reply)
            self._issued.note_blocks(blocks)
            if bound(reply.seen.model):
                self._issued.bind(reply.seen.body, reply.seen.model, blocks)
            return reply
        steps = [step for step in reply.steps if not isinstance(step, PauseTurn)]
        reply = replace(reply, steps=steps)
        if reply.seen.wire == "responses":
            items = items_of(reply)
            self._issued.note_items(items)
            for item in items:
                self._issued.note_seal(str(item.get("encrypted_content")), owner)
        if reply.seen.wire == "gemini":
            for token in signatures_of(reply):
                self._issued.note_seal(token, owner)
        return reply


def _refuse(refusal: Refusal | None) -> None:
    if refusal is not None:
        raise Refused.of(refusal)


def _thoughtful(seen: Seen) -> Seen:
    """Return a request with what it means: newer Claude models think when nothing is said."""
    thinking = seen.body.get("thinking") or {}
    if seen.wire != "anthropic" or thinking.get("type") or not default_on(seen.model):
        return seen
    return replace(seen, body={**seen.body, "thinking": {"type": "adaptive", **thinking}})


def _keys(seen: Seen) -> list[str]:
    """The keys of a request: a bearer token, and for Anthropic ``x-api-key`` too."""
    keys = [seen.headers.get("authorization", "").removeprefix("Bearer ")]
    if seen.wire == "anthropic":
        keys.append(seen.headers.get("x-api-key", ""))
    return keys


def _until_the_end(steps: Sequence[AnyStep]) -> list[AnyStep]:
    last = (at for at, step in enumerate(steps) if isinstance(step, Refuse | OutOfTokens))
    return list(steps[: next(last, len(steps)) + 1])
