"""The result of a turn: the agent's reply, the handlers' outcomes, and the records to commit."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from pydantic_core import from_json, to_json

from mail.core.envelope import Envelope
from mail.core.render import as_untrusted
from mail.core.runtime.histories import Entry, with_arguments
from mail.core.runtime.team_waits import WaitDraft
from mail.core.tools.call import INVALID_JSON_KEY, TOO_LONG_KEY, AgentToolCall
from mail.core.tools.catalogue import PASSIVE
from mail.core.wire import MessageKind
from mail.db.calls import CallRow
from mail.db.records import EventRow, JournalRow, MemoryRow
from mail.db.texts import text_size
from mail.errors import AgentError

REPLY_KEY: Final = "reply"
_INVALID_SHOWN: Final = 2000
_CAME_IN: Final = {"completion", "responses"}
_LISTED: Final = len("[,,],")
"""The parts of a call in a JSON list of calls beside its name, its id and its arguments."""
_PRIVATE: Final = {"acknowledge_broadcast": "note", "ignore_broadcast": "reason"}
"""Arguments that no event shows (MAIL-TOOL-13)."""


def storable(text: str) -> str:
    """Return text without the unpaired surrogates that neither JSON nor a store can hold."""
    return text.encode("utf-8", "replace").decode()


def milliseconds(seconds: float) -> float:
    """Return a duration as events tell it: milliseconds, to the microsecond."""
    return round(seconds * 1e3, 3)


class EventDraft(NamedTuple):
    """An event that a handler wants logged."""

    kind: str
    description: str = ""
    extra: Mapping[str, Any] = MappingProxyType({})

    def row(self, timestamp: str) -> EventRow:
        """Return the event as a row for the store."""
        extra = to_json(self.extra).decode() if self.extra else "{}"
        return EventRow(self.kind, timestamp, self.description, extra)


def message_event(message: str, timestamp: str, description: str = "") -> EventRow:
    """Return the ``new_message`` event of a message that is JSON already."""
    return EventRow("new_message", timestamp, description, f'{{"full_message":{message}}}')


class Reprompt(NamedTuple):
    """The reason why an agent is called again after the turn. Errors outrank successes.

    ``kind`` is the type of the system's message to the agent. ``reason`` is why, where the body
    does not say it: it may hold the words of others, and is for whoever the agent works for.
    """

    subject: str
    body: str
    error: bool = False
    kind: MessageKind = "response"
    reason: str = ""


class ToolOutcome(NamedTuple):
    """A handler's decision; the dispatcher carries it out.

    Attributes:
        ok: Whether the call did what it says; False becomes an ``ERROR:`` tool result.
        details: The text of the tool result.
        verbatim: The details are the whole tool result, without ``SUCCESS:`` or ``ERROR:``.
        untrusted: The details are text from outside: the agent reads them labelled as data.
        mail: Messages to post.
        events: Events to log.
        memories: Memory entries to store.
        completes: The final answer, when the call ends the task.
        reprompt: Why the agent must be called again.
        wait: The wait of the call; it has no result before its end.
        handled: That the agent has ``acknowledged`` or ``ignored`` what it read, if it has.
    """

    ok: bool = True
    details: str = ""
    verbatim: bool = False
    untrusted: bool = False
    mail: tuple[Envelope, ...] = ()
    events: tuple[EventDraft, ...] = ()
    memories: tuple[MemoryRow, ...] = ()
    completes: str | None = None
    reprompt: Reprompt | None = None
    wait: WaitDraft | None = None
    handled: str = ""

    def result_entry(self, call: AgentToolCall) -> Entry:
        """Return the tool result of a call in the agent's history."""
        details, word = self.details, "SUCCESS" if self.ok else "ERROR"
        if self.untrusted:
            details = as_untrusted(details, f"tool {call.tool_name}", call.tool_call_id)
        if not self.verbatim:
            details = f"{word}: {details}" if details else word
        return call.create_response_msg(details)


@dataclass(slots=True)
class Reply:
    """The reply of an agent function.

    Once it is `storable`, ``said`` are the name, the id and the arguments of each call as JSON,
    ``written`` are its `entries`, and ``size`` is how many bytes they have.
    """

    text: str | None
    calls: list[AgentToolCall]
    said: list[tuple[str, str, str]] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    size: int = 0

    @property
    def entries(self) -> list[Entry]:
        """The entries for the agent's history; calls share those that they came in."""
        if not self.calls:
            return [{"role": "assistant", "content": self.text}] if self.text else []
        first = self.calls[0]
        return [first.completion] if first.completion else list(first.responses)

    def storable(self, most: int | None, most_of_call: int | None) -> "Reply":
        """Return the reply as it is kept: in JSON, within limits of its bytes as JSON.

        A call that has an unpaired surrogate among its arguments has invalid arguments, because
        neither JSON nor a store can hold it; so has a call with more arguments than allowed.

        Args:
            most: The limit of the whole reply; None for no limit.
            most_of_call: The limit of the arguments of one call.

        Raises:
            AgentError: the reply is too long.
            ValueError: JSON cannot hold it.
        """
        kept = self
        try:
            said = kept.write()
        except ValueError as error:
            if "surrogates" not in str(error):
                raise
            kept = _without_surrogates(kept)
            said = kept.write()
        if most_of_call is not None and said > most_of_call:
            kept = _without_long_arguments(kept, most_of_call)
        if most is not None and kept.size > most:
            raise AgentError(f"the reply has {kept.size:,} bytes, and max_reply_bytes is {most:,}")
        return kept

    def write(self) -> int:
        """Write down its calls and entries; return how many bytes a JSON list of the calls has."""
        self.said = []
        said = 1
        for call in self.calls:
            name, call_id = to_json(call.tool_name), to_json(call.tool_call_id)
            arguments = to_json(call.tool_args)
            said += len(name) + len(call_id) + len(arguments) + _LISTED
            self.said.append((name.decode(), call_id.decode(), arguments.decode()))
        self.written = [to_json(entry).decode() for entry in self.entries]
        self.size = max(said, sum(map(text_size, self.written)))
        return said

    def to_json(self) -> str:
        """Return the reply as JSON for the journal; what the calls came in is written once."""
        calls = []
        for call in self.calls:
            first = self.calls[0]
            same = (call.completion, call.responses) == (first.completion, first.responses)
            again = _CAME_IN if call is not first and same else None
            calls.append(call.model_dump_json(exclude=again))
        return f'{{"text":{to_json(self.text).decode()},"calls":[{",".join(calls)}]}}'

    @classmethod
    def from_json(cls, text: str) -> "Reply":
        """Read what `to_json` wrote."""
        raw = from_json(text)
        calls: list[dict[str, Any]] = raw["calls"]
        came_in = {name: calls[0][name] for name in _CAME_IN} if calls else {}
        return cls(raw["text"], [AgentToolCall.model_validate(came_in | call) for call in calls])


def _without_surrogates(reply: Reply) -> Reply:
    first, calls = reply.calls[0], []
    came_in = {"completion": _whole(first.completion), "responses": _whole(first.responses)}
    for call in reply.calls:
        names = ("tool_name", "tool_call_id", "reasoning", "preamble")
        arguments = _whole(call.tool_args)
        if arguments != call.tool_args:
            shown = to_json(arguments, fallback=str).decode()[:_INVALID_SHOWN]
            arguments = {INVALID_JSON_KEY: f"an unpaired surrogate in {shown}"}
        whole = {name: _whole(getattr(call, name)) for name in names}
        calls.append(call.model_copy(update={**whole, **came_in, "tool_args": arguments}))
    return Reply(reply.text, calls)


def _without_long_arguments(reply: Reply, most: int) -> Reply:
    """Return a reply in which arguments of more bytes are replaced by the reason, as JSON."""
    told = f"more than {most:,} bytes, which is max_argument_bytes; make several calls"
    cut = {
        call.tool_call_id: {TOO_LONG_KEY: told}
        for call, (_, _, arguments) in zip(reply.calls, reply.said, strict=True)
        if call.tool_name not in PASSIVE and text_size(arguments) > most
    }
    if not cut:
        return reply
    first = reply.calls[0]
    completion = with_arguments(first.completion, cut)
    responses = [with_arguments(item, cut) for item in first.responses]
    calls = []
    for call in reply.calls:
        arguments = cut.get(call.tool_call_id, call.tool_args)
        changed = {"completion": completion, "responses": responses, "tool_args": arguments}
        calls.append(call.model_copy(update=changed))
    shortened = Reply(reply.text, calls)
    shortened.write()
    return shortened


def _whole(value: Any) -> Any:
    """Return data with question marks in place of unpaired surrogates."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, Mapping):
        return {_whole(key): _whole(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_whole(item) for item in value]
    return value


@dataclass(slots=True)
class WrittenHistory:
    """The entries that a turn adds to its agent's history.

    Attributes:
        entries: Agents share them, so the store gets what was written down when they were added.
        written: The JSON of each.
        size: About how many bytes that is.
        reply: The agent's reply, when it is among them.
    """

    entries: list[Entry] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    size: int = 0
    reply: Reply | None = None

    @property
    def json(self) -> str:
        """The entries as a JSON list, or no text when there are none."""
        parts = ["["]
        for text in self.written:
            parts += (text, ",")
        parts[-1] = "]"
        return "".join(parts) if self.written else ""  # they may be long: one copy

    def add(self, *entries: Entry) -> None:
        """Add entries to the agent's history, and write them down as they are now.

        Raises:
            ValueError: JSON cannot hold what an agent put into one.
        """
        for entry in entries:
            self.add_written(to_json(entry).decode(), entry)

    def add_written(self, written: str, entry: Entry) -> None:
        """Add an entry that is written down already."""
        self.entries.append(entry)
        self.size += len(written)
        self.written.append(written)

    def add_reply(self, reply: Reply) -> None:
        """Add the agent's reply to its history."""
        self.reply = reply
        if not reply.written:
            self.add(*reply.entries)
            return
        self.entries += reply.entries
        self.size += reply.size
        self.written += reply.written

    def arguments_of(self, call: AgentToolCall) -> str:
        """Return the arguments of a call as JSON; those of the reply are not written again."""
        if self.reply is not None:
            for each, (_, _, arguments) in zip(self.reply.calls, self.reply.said, strict=False):
                if each is call:
                    return arguments
        return to_json(call.tool_args).decode()


@dataclass(slots=True, eq=False)
class TurnResult:
    """The parts of the turn's next commit.

    ``now`` tells the time of an event. ``events`` and ``journal`` may be committed earlier by a
    journal commit, which empties them here. ``paused`` are its breakpoint calls, ``waits`` those
    that wait for teammates.
    ``described`` is what people read about those that need an approval, by their ids.
    ``spoken`` is the message that ends a manual step, ``told`` why the agent failed. ``handled`` is
    that of its calls.
    """

    now: Callable[[], str]
    history: WrittenHistory = field(default_factory=WrittenHistory)
    events: list[EventRow] = field(default_factory=list)
    mail: list[Envelope] = field(default_factory=list)
    journal: tuple[JournalRow, ...] = ()
    memories: tuple[MemoryRow, ...] = ()
    paused: tuple[AgentToolCall, ...] = ()
    waits: tuple[tuple[AgentToolCall, WaitDraft], ...] = ()
    reprompts: tuple[Reprompt, ...] = ()
    described: dict[str, str] = field(default_factory=dict)
    completes: str | None = None
    spoken: Envelope | None = None
    failure: str | None = None
    told: str | None = None
    handled: str = ""

    def log(self, kind: str, description: str = "", **extra: Any) -> None:
        """Add an event."""
        self.events.append(
            EventRow(kind, self.now(), description, to_json(extra).decode() if extra else "{}")
        )

    def log_calls(self, agent: str, reply: Reply, duration_ms: float) -> None:
        """Log every call with its reasoning; a call without any points to the last that had some.

        Args:
            agent: The agent that made the calls.
            reply: The reply that they are in.
            duration_ms: The time that the agent took to make it.
        """
        reasoned: str | None = None
        now, caller = self.now(), to_json(agent).decode()
        for call, (name, call_id, arguments) in zip(reply.calls, reply.said, strict=True):
            hidden = _PRIVATE.get(call.tool_name)
            if hidden is not None:
                shown = {name: each for name, each in call.tool_args.items() if name != hidden}
                arguments = to_json(shown).decode()
            text = (
                f'{{"tool_name":{name},"tool_args":{arguments},"tool_call_id":{call_id},'
                f'"caller":{caller},"duration_ms":{duration_ms}}}'
            )
            extra: dict[str, Any] = {}
            if call.reasoning and (blocks := [each for each in call.reasoning if each.strip()]):
                extra["reasoning"] = "\n\n".join(blocks)
                reasoned = call.tool_call_id
            elif reasoned is not None:
                extra["reasoning_ref"] = reasoned
            if call.preamble:
                extra["preamble"] = call.preamble
            if extra:
                text = f"{text[:-1]},{to_json(extra).decode()[1:]}"
            self.events.append(
                EventRow("tool_call", now, f"agent {agent} called {call.tool_name}", text)
            )

    def take(self, call: AgentToolCall, outcome: ToolOutcome) -> None:
        """Add what a handler decided about a call."""
        if outcome.wait is None:
            self.history.add(outcome.result_entry(call))
        else:
            self.waits += ((call, outcome.wait),)
        for event in outcome.events:
            self.events.append(event.row(self.now()))
        self.mail.extend(outcome.mail)
        self.memories += outcome.memories
        self.handled = min(self.handled or outcome.handled, outcome.handled or self.handled)
        if outcome.completes is not None:
            self.completes = outcome.completes
        if outcome.reprompt is not None:
            self.reprompts += (outcome.reprompt,)

    def give_up(self, accepted: tuple[CallRow, AgentToolCall] | None, reason: str) -> None:
        """Tell why a turn failed that carries out an answer: to the agent whose call it runs."""
        if accepted is not None:
            outcome = ToolOutcome(ok=False, details=reason, untrusted=True)
            self.history.add(outcome.result_entry(accepted[1]))
        else:
            self.completes = reason

    def journal_row(self, key: str, state: str, payload: Any) -> None:
        """Add a fact to the journal."""
        self.journal += (JournalRow(key, state, to_json(payload).decode()),)

    def close_paused(self, answer: str) -> None:
        """Answer the breakpoint calls here and now: the task does not pause on them."""
        self.history.add(*(call.create_response_msg(answer) for call in self.paused))
        self.paused = ()

    def close_waits(self, status: str) -> None:
        """Answer the calls that would wait here and now: they do not."""
        self.history.add(
            *(call.create_response_msg(wait.result(status)) for call, wait in self.waits)
        )
        self.waits = ()
