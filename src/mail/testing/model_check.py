"""One tiny conversation with a real model, as the engine leads it, and what is found out by it.

A tool call that is asked for, its result with another message behind it, and the call that ends a
task: whatever a provider refuses of an agent, it refuses here, at the price of two short replies.
"""

import asyncio
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, Literal, NamedTuple

from mail.core.agents import AgentFunction, ToolChoice
from mail.core.call_context import CallContext, enter_call
from mail.core.tools.call import AgentToolCall, problem_of_arguments
from mail.core.usage import Usage
from mail.errors import AgentError, ModelError
from mail.llm.fallback import process_adaptations
from mail.llm.recording import RecordedCall, RecordedCalls, recorded_calls

Status = Literal["ok", "adapted", "warning", "error"]

_TOOL: Final = "check_word"
_WORD: Final = "apple"
_PROBE: Final[Mapping[str, Any]] = {
    "type": "function",
    "function": {
        "name": _TOOL,
        "description": "Check a word. It only serves to try out tool calls.",
        "parameters": {
            "type": "object",
            "properties": {"word": {"type": "string"}},
            "required": ["word"],
        },
    },
}
_ASKED: Final = (
    "This is an automatic check of the connection to you, not a task. "
    f"Call the tool {_TOOL} once, with the word '{_WORD}', and do nothing else."
)
_RESULT: Final = f"The word '{_WORD}' is spelt correctly."
_ENDING: Final = (
    "Thank you, the check is complete. Call the tool {tool} now{how}, and do nothing else."
)
_END_TOOL: Final = "task_complete"
_TEXT_TOOL: Final = "text_output"
_SHOWN: Final = 200
_BAD_REQUEST: Final = 400
_TRANSIENT: Final = frozenset({408, 409, 425, 429})
_SERVER_ERROR: Final = 500
_CONVERSATION: Final = frozenset({"messages", "input"})
_FORCING: Final = frozenset({"required", "any", "tool", "function"})


class Finding(NamedTuple):
    """A finding about one part of the conversation."""

    part: str
    status: Status
    text: str


@dataclass(slots=True)
class ModelCheck:
    """The findings of a conversation with a model.

    Attributes:
        findings: Part by part.
        requests: The requests and their answers, without secrets.
        usage: The usage of all calls together.
        seconds: The time that they took.
    """

    requests: RecordedCalls
    findings: list[Finding] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage.none)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Tell whether agents can work with the model."""
        return all(finding.status != "error" for finding in self.findings)


async def check_model(
    function: AgentFunction,
    agent: str,
    *,
    llm: str | None = None,
    ends: bool = True,
    send: bool = True,
    timeout: float | None = None,
) -> ModelCheck:
    """Lead the conversation; none of the calls that the model makes is carried out.

    Args:
        function: The agent that asks the model.
        agent: Its name.
        llm: The model to ask in place of its own.
        ends: Whether the agent can complete tasks.
        send: False only records the requests, with a made-up call in place of the model's.
        timeout: Seconds for all of it.
    """
    with recorded_calls(send=send) as requests:
        check = ModelCheck(requests)
        talk = _Talk(function, agent, llm, check)
        begun = time.monotonic()
        try:
            async with asyncio.timeout(timeout):
                await (talk.lead(ends=ends) if send else talk.rehearse(ends=ends))
        except TimeoutError:
            text = f"no answer within {timeout:g} s"
            check.findings.append(Finding("time", "error", text))
        check.seconds = time.monotonic() - begun
    if send:
        check.findings += _remedies(requests)
        check.findings += _of_all(check, talk.reasoned)
    return check


class _Talk:
    """A conversation under way."""

    def __init__(
        self, function: AgentFunction, agent: str, llm: str | None, check: ModelCheck
    ) -> None:
        self._function, self._agent, self._llm, self._check = function, agent, llm, check
        self._history: list[dict[str, Any]] = [{"role": "user", "content": _ASKED}]
        self.reasoned = False

    async def lead(self, *, ends: bool) -> None:
        """Have the whole conversation."""
        calls = await self._turn("tool call", "required", _TOOL)
        if calls is not None:
            self._answer(calls, ends=ends)
            tool = _END_TOOL if ends else _TOOL
            await self._turn("forced end" if ends else "forced call", _named(tool), tool)

    async def rehearse(self, *, ends: bool) -> None:
        """Make both requests, which are not sent."""
        made = {"name": _TOOL, "arguments": json.dumps({"word": _WORD})}
        entry = {"id": "call_check", "type": "function", "function": made}
        said = {"role": "assistant", "content": None, "tool_calls": [entry]}
        call = AgentToolCall(
            tool_name=_TOOL, tool_args={"word": _WORD}, tool_call_id="call_check", completion=said
        )
        for choice in ("required", _named(_END_TOOL if ends else _TOOL)):
            try:
                await self._ask(choice)
            except (ModelError, AgentError) as error:
                if not self._check.requests:
                    self._check.findings.append(Finding("request", "error", str(error)))
                    return
            self._answer([call], ends=ends)

    async def _turn(
        self, part: str, choice: ToolChoice, wanted: str
    ) -> Sequence[AgentToolCall] | None:
        """Ask once and note what came of it; None if nothing did."""
        before = len(self._check.requests)
        try:
            calls = await self._ask(choice)
        except (ModelError, AgentError) as error:
            self._check.findings.append(Finding(part, "error", str(error)))
            calls = None
        made = self._check.requests[before:]
        if calls is not None:
            self.reasoned = self.reasoned or any(call.reasoning for call in calls)
            self._check.findings.append(_of_reply(part, calls, wanted, made))
        self._check.findings += _of_refusals(part, made, went_on=calls is not None)
        return calls

    async def _ask(self, choice: ToolChoice) -> Sequence[AgentToolCall]:
        def report(model: str, usage: Usage) -> None:
            self._check.usage += usage

        call = CallContext(
            agent=self._agent, llm=self._llm, report=report, offered=(_PROBE,), task_id="check"
        )
        enter_call(call)
        _, calls = await self._function([dict(entry) for entry in self._history], choice)
        return calls

    def _answer(self, calls: Sequence[AgentToolCall], *, ends: bool) -> None:
        """Add a reply to the history, a result for each of its calls, and the next message."""
        if calls:
            first = calls[0]
            self._history += [first.completion] if first.completion else first.responses
        for call in calls:
            if call.tool_name != _TEXT_TOOL:
                told = _RESULT if call.tool_name == _TOOL else "not carried out: this is a check"
                self._history.append(call.create_response_msg(told))
        how = " with the finish_message 'done'" if ends else f" with the word '{_WORD}'"
        text = _ENDING.format(tool=_END_TOOL if ends else _TOOL, how=how)
        self._history.append({"role": "user", "content": text})


def _named(tool: str) -> dict[str, Any]:
    return {"type": "function", "name": tool}


def _of_reply(
    part: str, calls: Sequence[AgentToolCall], wanted: str, made: Sequence[RecordedCall]
) -> Finding:
    """Tell what a model made of what it was to do."""
    sent = _choice_sent(made[-1].body) if made else "nothing"
    forced = sent.partition(" ")[0] in _FORCING
    status: Status = "ok" if forced else "adapted"
    how = f"tool choice sent: {sent}"
    call = next((call for call in calls if call.tool_name == wanted), None)
    if call is not None:
        problem = problem_of_arguments(wanted, call.tool_args)
        if problem:
            return Finding(part, "warning", problem)
        arguments = json.dumps(call.tool_args, ensure_ascii=False)[:_SHOWN]
        return Finding(part, status, f"called {wanted} {arguments} ({how})")
    names = ", ".join(dict.fromkeys(c.tool_name for c in calls if c.tool_name != _TEXT_TOOL))
    if names:
        return Finding(part, "warning", f"called {names} in place of {wanted} ({how})")
    if not calls:
        return Finding(part, "error", f"the reply has neither a call nor text ({how})")
    if wanted == _END_TOOL:
        text = f"answered in text, which completes a task as well ({how})"
        return Finding(part, "adapted", text)
    return Finding(part, "warning", f"answered in text in place of a call of {wanted} ({how})")


def _remedies(requests: Sequence[RecordedCall]) -> Iterator[Finding]:
    """Tell what to set so that not even the first call is refused."""
    learnt = process_adaptations()
    for model in dict.fromkeys(call.model for call in requests if _is_refusal(call.status)):
        remedies = (changed.remedy(model) for changed in learnt.changes(model))
        for remedy in dict.fromkeys(remedies):
            yield Finding("remedy", "adapted", f"to spare the refusal, {remedy}")


def _choice_sent(body: Any) -> str:
    """Return the tool choice of a request in words."""
    choice = body.get("tool_choice") if isinstance(body, dict) else None
    if choice is None:
        choice = _native_choice(body)
    if not isinstance(choice, dict):
        return str(choice or "none, so the model decides")
    function = choice.get("function")
    named = choice.get("name") or (function.get("name") if isinstance(function, dict) else "")
    return f"{choice.get('type')} {named}" if named else str(choice.get("type"))


def _native_choice(body: Any) -> Any:
    """Return the choice in a request of Gemini's own format, or of Bedrock's."""
    found = body.get("toolConfig") if isinstance(body, dict) else None
    found = found if isinstance(found, dict) else {}
    gemini, bedrock = found.get("functionCallingConfig"), found.get("toolChoice")
    if isinstance(gemini, dict):
        names = gemini.get("allowedFunctionNames")
        kind = str(gemini.get("mode", "auto")).lower()
        return {"type": kind, "name": ", ".join(map(str, names)) if names else ""}
    if isinstance(bedrock, dict) and bedrock:
        kind, tool = next(iter(bedrock.items()))
        return {"type": kind, "name": tool.get("name") if isinstance(tool, dict) else ""}
    return None


def _of_refusals(part: str, made: Sequence[RecordedCall], *, went_on: bool) -> Iterator[Finding]:
    """Tell of requests that were refused and changed, and of those that were repeated."""
    for call, following in pairwise(made):
        if _is_refusal(call.status):
            changes = "; ".join(_changes(call.body, following.body)) or "nothing changed"
            outcome = "went through with" if went_on else "tried again with"
            text = f"HTTP {call.status}, {_said(call.answer)}: {outcome} {changes}"
            yield Finding(part, "adapted", text)
    broken = [call for call in made[:-1] if not _is_refusal(call.status)]
    if broken:
        last = broken[-1]
        why = f"HTTP {last.status}, {_said(last.answer)}" if last.status else last.error
        yield Finding(part, "warning", f"asked {len(broken) + 1} times: {why[:_SHOWN]}")


def _is_refusal(status: int | None) -> bool:
    return (
        status is not None and _BAD_REQUEST <= status < _SERVER_ERROR and status not in _TRANSIENT
    )


def _changes(before: Any, after: Any, where: str = "") -> Iterator[str]:
    """Yield how a request differs from an earlier one, beside the conversation's text."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        yield f"{where} {_short(after)} in place of {_short(before)}"
        return
    for name in dict.fromkeys((*before, *after)):
        old, new = before.get(name), after.get(name)
        place = f"{where}.{name}" if where else name
        if old == new:
            continue
        if place in _CONVERSATION:
            yield f"other {place}"
        elif name not in after:
            yield f"no {place}"
        elif name not in before:
            yield f"{place} {_short(new)}"
        else:
            yield from _changes(old, new, place)


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _said(answer: str) -> str:
    """Return the reason in an answer that is an error."""
    found: Any = answer
    try:
        found = json.loads(answer)
        while isinstance(found, dict):
            found = next((found[k] for k in ("error", "message", "detail") if k in found), answer)
    except ValueError:
        pass
    return f'"{" ".join(str(found).split())[:_SHOWN]}"'


def _of_all(check: ModelCheck, reasoned: bool) -> Iterator[Finding]:
    """Tell what is known of the conversation as a whole."""
    answered = [call for call in check.requests if call.status == 200]
    usage = check.usage
    if answered:
        yield Finding("address", "ok", answered[0].url)
        yield Finding("thinking", "ok", _thinking(answered[0].body, reasoned))
        kinds = {call.answer_headers.get("content-type", "").partition(";")[0] for call in answered}
        streamed = any("stream" in kind or "ndjson" in kind for kind in kinds)
        text = "replies are streamed" if streamed else f"replies come whole ({', '.join(kinds)})"
        yield Finding("streaming", "ok", text)
        yield _of_usage(usage)
    if usage.calls:
        known = usage.cost is not None
        cost = f"${usage.cost:.6f}" if known else "not known; cost limits do not count this model"
        yield Finding("cost", "ok" if known else "warning", cost)
    many = len(check.requests)
    count = f"{many} request" + ("" if many == 1 else "s")
    yield Finding("time", "ok", f"{check.seconds:.1f} s, {count}")


def _of_usage(usage: Usage) -> Finding:
    if not usage.prompt_tokens and not usage.completion_tokens:
        text = "the provider reports no tokens; token limits do not count this model"
        return Finding("usage", "warning", text)
    text = f"{usage.prompt_tokens:,} tokens in, {usage.completion_tokens:,} out"
    text += f" ({usage.cached_tokens:,} cached, {usage.reasoning_tokens:,} of thinking)"
    return Finding("usage", "ok", text)


_THINKING: Final = ("reasoning", "reasoning_effort", "thinking", "output_config", "enable_thinking")


def _thinking(body: Any, reasoned: bool) -> str:
    """Tell what was asked for in the first request, and whether any thinking came back."""
    fields = body if isinstance(body, dict) else {}
    asked = ", ".join(f"{name} {_short(fields[name])}" for name in _THINKING if name in fields)
    came = "some came back" if reasoned else "none came back"
    return f"{came}; sent: {asked or 'nothing about it'}"
