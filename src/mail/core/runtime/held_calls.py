"""Calls that somebody outside the swarm answers, and what the answers lead to.

Those of breakpoint tools, and of tools that the caller offers, wait for a result; those that need
an approval a person may also accept, edit or ignore. They are taken out of a reply, kept with the
task as open calls, with a record of what people are asked, and answered by a resume or a decision.
An accepted call stays open until it has been run, by a turn of its agent's that does nothing else:
a delivery whose control is RUN. So the journal keeps a crash from running it twice, and it runs at
once, whatever other calls wait. Ignoring a call ends the run by such a delivery, too, behind the
accepted calls.
"""

import asyncio
import inspect
import json
import logging
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from pydantic_core import from_json, to_json

from mail.clock import later
from mail.core.approvals import (
    ALLOWS,
    BREAKPOINT_CONFIG,
    STATUSES,
    Answer,
    Answerer,
    Approval,
)
from mail.core.compose import derived_id
from mail.core.runtime.active_tasks import ActiveTask, TaskMemory, Turn
from mail.core.runtime.context import RuntimeContext
from mail.core.runtime.delivery import Mail, MailDelivery
from mail.core.runtime.histories import edit_entry
from mail.core.runtime.ledger import swarm_in
from mail.core.runtime.mailbox import LaneKey
from mail.core.runtime.tool_dispatch import check_action_arguments, fits
from mail.core.runtime.turn import Control, ControlKind
from mail.core.runtime.turn_result import EventDraft, TurnResult, storable
from mail.core.tools.call import AgentToolCall, problem_of_arguments, to_be_answered
from mail.core.tools.catalogue import CATALOGUE, check_usable, parse_arguments
from mail.core.tools.convert import normalize_breakpoint_tool_call
from mail.db.calls import CallRow
from mail.db.commit import Commit
from mail.db.preferences import FeedbackRow, new_feedback
from mail.errors import (
    AlreadyAnswered,
    ApprovalClosed,
    ApprovalError,
    BreakpointError,
    Forbidden,
    MAILError,
    StoreError,
    ToolError,
    UnknownAgent,
)

logger = logging.getLogger(__name__)

UNANSWERED: Final = "not run: the task ended before this call was answered"

_SHAPE: Final = (
    "breakpoint_tool_call_result must be a string, an object with 'content' (and 'call_id'), or a "
    "list of objects with 'call_id' and 'content'"
)
_SHOWN_OF_AN_ID: Final = 80
_IGNORED: Final = (
    "not run: the person who was asked ignored this call. Ignore this request and end the workflow."
)
_CANCELLED: Final = "not run: the person who was asked ended the workflow by ignoring another call"
_DENIED: Final = "not run: nobody answered within {seconds:g} s, so the call is denied"
_ENDED: Final = "The workflow has ended: {by} ignored the call of '{action}'."
_GONE: Final = "The workflow has ended: agent '{agent}', whose call waited, has left the swarm."
_BREAKPOINT_CONFIG: Final = to_json(dict(BREAKPOINT_CONFIG)).decode()
_MOST_DESCRIBED: Final = 32 * 1024
_MOST_QUOTED: Final = 4 * 1024
_DESCRIBE_SECONDS: Final = 10.0
_TICKS: Final = re.compile("`+")


# --- which calls are held -------------------------------------------------------------------------


def split_held(
    turn: Turn, calls: Sequence[AgentToolCall], offered: Collection[str], context: RuntimeContext
) -> tuple[list[AgentToolCall], list[AgentToolCall]]:
    """Return (calls of a turn's agent that pause the task, the other calls).

    Those of tools that the caller ``offered`` pause it, of the swarm's breakpoint tools, and those
    that need an approval and can have one. A call whose arguments are unusable or do not fit, or
    that the agent may not make, asks nobody anything: the agent is told, as with any other tool.
    """
    agent = context.agents[turn.agent]
    held: list[AgentToolCall] = []
    others: list[AgentToolCall] = []
    for call in calls:
        tool = call.tool_name
        pauses = tool in offered
        if not pauses and tool not in context.parts.exclude_tools:
            pauses = agent.can_access_action_or_tool(tool) and (
                tool in context.parts.breakpoint_tools
                or (
                    context.parts.approval_for(turn.agent, tool) is not None
                    and not _problem(turn.agent, tool, dict(call.tool_args), context)
                )
            )
        pauses = pauses and problem_of_arguments(tool, call.tool_args) is None
        (held if pauses else others).append(call)
    return held, others


def _problem(agent: str, tool: str, arguments: dict[str, Any], context: RuntimeContext) -> str:
    """Say why arguments do not fit a tool's schema; no text if they do."""
    spec = CATALOGUE.get(tool)
    try:
        if spec is None:
            check_action_arguments(tool, arguments, _schema(agent, tool, context))
        else:
            check_usable(tool, arguments)
            parse_arguments(tool, arguments, spec.model)
    except ToolError as error:
        return str(error)
    return ""


def _schema(agent: str, tool: str, context: RuntimeContext) -> dict[str, Any]:
    spec = CATALOGUE.get(tool)
    if spec is not None:
        return spec.model.model_json_schema()
    owner = context.agents.get(agent)  # it may have left the swarm
    own = (owner.actions if owner is not None else None) or {}
    action = context.parts.actions.get(tool) or own.get(tool)
    return action.parameters if action is not None else {}


# --- opening --------------------------------------------------------------------------------------


async def describe(
    turn: Turn, calls: Sequence[AgentToolCall], context: RuntimeContext
) -> dict[str, str]:
    """Return what people read about the held ones of some calls, by the calls' ids."""
    said: dict[str, str] = {}
    text = None
    for call in calls:
        approval = context.parts.approval_for(turn.agent, call.tool_name)
        if approval is None:
            continue
        if text is None:
            text = await _task_text(turn.task, context)
        described = storable(await _description(approval, text, call)).replace("\0", "")
        data = described.encode()
        if len(data) > _MOST_DESCRIBED:
            described = data[:_MOST_DESCRIBED].decode(errors="ignore") + "\n[cut here]"
        said[call.tool_call_id] = described
    return said


async def _task_text(task: TaskMemory, context: RuntimeContext) -> str:
    """Return the body of a task's first message."""
    for event in await context.store.events(context.owner, task.task_id, limit=4):
        if event.kind == "new_message":
            return str(event.extra["full_message"]["message"].get("body") or "")
    return ""


async def _description(approval: Approval, task_text: str, call: AgentToolCall) -> str:
    said: Any = None
    if approval.describe is not None:
        try:
            async with asyncio.timeout(_DESCRIBE_SECONDS):
                said = await asyncio.to_thread(
                    approval.describe, task_text, call.tool_name, dict(call.tool_args)
                )
                said = await said if inspect.isawaitable(said) else said
        except StoreError:
            raise
        except Exception:  # code of others may fail in any way; a person is asked all the same
            logger.exception("the description of a call of '%s' failed", call.tool_name)
    return default_description(task_text, call) if said is None else str(said)


def default_description(task_text: str, call: AgentToolCall) -> str:
    """Return the task's first message as a quotation, and the call."""
    quoted = "\n".join(f"> {line}" for line in task_text[:_MOST_QUOTED].splitlines())
    arguments = json.dumps(call.tool_args, ensure_ascii=False, indent=2)
    longest = max(map(len, _TICKS.findall(arguments)), default=0)
    fence = "`" * max(3, longest + 1)
    shown = f"**{call.tool_name}**\n\n{fence}json\n{arguments}\n{fence}"
    return f"{quoted}\n\n{shown}" if quoted else shown


def open_rows(
    turn: Turn, turn_result: TurnResult, context: RuntimeContext
) -> tuple[tuple[CallRow, ...], tuple[EventDraft, ...]]:
    """Return a turn's held calls as the store keeps them, and the events that tell of them.

    Callers see the provider's call ids, but an id names one call of the task: a further call with
    the same id, of another agent or of a later turn, gets one of its own.
    """
    taken = {call.call_id for call in turn.task.calls.values()}
    control = Control(ControlKind.RESUME, origin=turn.origin, step=turn.manual).to_json()
    now, rows, events = turn.task.now(), [], []
    for call in turn_result.paused:
        name = free_call_id(call.tool_call_id or "call", taken)
        taken.add(name)
        written = {"arguments": turn_result.history.arguments_of(call)}
        shown = normalize_breakpoint_tool_call(call, written) | {"id": name, "call_id": name}
        row = CallRow(
            agent=turn.agent,
            call_id=name,
            call=to_be_answered(call),
            shown=to_json(shown).decode(),
            control=control,
            approval_id=derived_id(f"{turn.step}/{name}"),
            created_at=now,
            config=_BREAKPOINT_CONFIG,
            approvers="\nowner\nadmin\n",
            description=turn_result.described.get(call.tool_call_id, ""),
        )
        approval = context.parts.approval_for(turn.agent, call.tool_name)
        by_caller = call.tool_name in context.parts.breakpoint_tools | turn.task.offer.names
        if approval is not None and not by_caller:
            row = _with_approval(row, approval)
            events.append(_requested(row))
        rows.append(row)
    names = ", ".join(call.tool_name for call in turn_result.paused)
    arguments = ", ".join(map(turn_result.history.arguments_of, turn_result.paused))
    paused = EventDraft(
        "breakpoint_tool_call",
        f"agent {turn.agent} used breakpoint tools {names} with args: {arguments}",
        {"caller": turn.agent, "call_ids": [row.call_id for row in rows]},
    )
    return tuple(rows), (paused, *events)


def _with_approval(row: CallRow, approval: Approval) -> CallRow:
    config: dict[str, Any] = approval.config
    config |= {"on_timeout": approval.on_timeout, "ttl": approval.ttl}
    if approval.feedback:
        config["feedback"] = dict(approval.feedback)
    until = "" if approval.ttl is None else later(row.created_at, approval.ttl)
    return row._replace(
        kind="approval",
        config=to_json(config).decode(),
        approvers="".join(f"\n{name}" for name in approval.approvers) + "\n",
        expires_at=until,
    )


def _requested(row: CallRow) -> EventDraft:
    request = row.request
    told = {
        "caller": row.agent,
        "approval_id": row.approval_id,
        "call_id": row.call_id,
        "action_request": request,
        "expires_at": row.expires_at or None,
    }
    text = f"agent {row.agent} needs an approval to call {request['action']}"
    return EventDraft("approval_requested", text, told)


def free_call_id(call_id: str, taken: Collection[str]) -> str:
    """Return an id for a call that no other call of its task has, if possible the given one."""
    name, number = call_id, 1
    while name in taken:
        number += 1
        name = f"{call_id}_{number}"
    return name


# --- results in the older form --------------------------------------------------------------------


def read_results(task: TaskMemory, payload: object) -> list[tuple[CallRow, str]]:
    """Read a resume payload and find the open call of each result.

    The payload is text, an object with ``content`` and maybe ``call_id``, a list of objects with
    both, or JSON text of one of these. Without a ``call_id`` exactly one call must be open.

    Raises:
        BreakpointError: the payload has no such shape, names no open call of the task, or names
            one twice.
        AlreadyAnswered: a named call has its result, or none of the task's calls is open.
    """
    open_calls = task.asked_calls()
    names = [call.call_id for call in open_calls]
    if payload is None:
        text = "breakpoint_tool_call_result is required to resume from a breakpoint"
        raise BreakpointError(f"{text}; {_listing(names)}", names)
    matched: list[tuple[CallRow, str]] = []
    for call_id, content in _parse(payload):
        left = [call for call in open_calls if call not in [row for row, _ in matched]]
        found = left if call_id is None else [call for call in left if call.call_id == call_id]
        if call_id is None and len(found) != 1:
            raise _unnamed(task, left)
        if call_id is not None and not found:
            raise _unmatched(task, call_id, [row.call_id for row, _ in matched])
        matched.append((found[0], content))
    return matched


def _parse(payload: object) -> list[tuple[str | None, str]]:
    if isinstance(payload, str):
        structured = _structured(payload)
        if structured is None:
            return [(None, storable(payload))]
        payload = structured
    items = payload if isinstance(payload, list) else [payload]
    if not items:
        raise BreakpointError(_SHAPE)
    return [_result(item, alone=not isinstance(payload, list)) for item in items]


def _structured(text: str) -> Any:
    """Return JSON that looks like results; any other text is a result itself."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    items = value if isinstance(value, list) else [value]
    if not all(isinstance(item, dict) for item in items):
        return None
    return value if any("content" in item or "call_id" in item for item in items) else None


def _result(item: object, *, alone: bool) -> tuple[str | None, str]:
    if not isinstance(item, dict) or "content" not in item:
        raise BreakpointError(_SHAPE)
    call_id, content = item.get("call_id"), item["content"]
    if call_id is None and not alone:
        raise BreakpointError("each result in a list needs a 'call_id'")
    if call_id is not None and not isinstance(call_id, str):
        raise BreakpointError("'call_id' must be a string")
    if isinstance(content, str):
        return call_id, storable(content)
    try:
        return call_id, storable(json.dumps(content, ensure_ascii=False, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise BreakpointError(f"'content' must be a string or JSON: {error}") from None


def _unnamed(task: TaskMemory, left: Sequence[CallRow]) -> MAILError:
    """Say why a result without a call's id is for none of the open calls that are left."""
    names = [call.call_id for call in left]
    if names:
        return BreakpointError(f"say which call each result is for; {_listing(names)}", names)
    if task.calls:
        return AlreadyAnswered(
            f"no breakpoint call of task '{task.task_id}' is open; its calls have their results or "
            f"were closed with a run, and the task is {task.row.state}"
        )
    return BreakpointError(
        f"task '{task.task_id}' has no breakpoint calls to answer; it is {task.row.state}"
    )


def _unmatched(task: TaskMemory, call_id: str, matched: Collection[str]) -> MAILError:
    """Say why a result is for none of the open calls."""
    names = [call.call_id for call in task.asked_calls()]
    if call_id in matched:
        return BreakpointError(f"the list contains two results for the call '{call_id}'", names)
    answers = [call.answer for call in task.calls.values() if call.call_id == call_id]
    if UNANSWERED in answers:
        return AlreadyAnswered(
            f"the breakpoint call '{call_id}' was closed without a result when its run ended; "
            f"the task is {task.row.state}; {_listing(names)}",
            names,
        )
    if answers:
        text = f"the breakpoint call '{call_id}' already has a result; {_listing(names)}"
        return AlreadyAnswered(text, names)
    shown = call_id if len(call_id) <= _SHOWN_OF_AN_ID else f"{call_id[:_SHOWN_OF_AN_ID]}…"
    return BreakpointError(f"there is no open breakpoint call '{shown}'; {_listing(names)}", names)


def _listing(names: Sequence[str]) -> str:
    return "open calls: " + (", ".join(f"'{name}'" for name in names) or "none")


# --- checking -------------------------------------------------------------------------------------


def check(row: CallRow, answer: Answer, by: Answerer, context: RuntimeContext) -> Answer:
    """Check an answer; return it with the arguments that fit the tool's schema.

    Raises:
        ApprovalClosed: the call has an answer, or its time is up.
        ApprovalError: the answer is not allowed, or its arguments do not fit.
        Forbidden: somebody else must answer.
    """
    if row.status != "open":
        raise ApprovalClosed(row.status)
    if not by.may(row.approvers.split("\n")):
        raise Forbidden("this call is approved by others: you are not one of its approvers")
    if by.role == "system":
        return answer
    if row.expires_at and row.expires_at <= context.clock.now():
        raise ApprovalClosed("expired")
    config = from_json(row.config)
    if not config[ALLOWS[answer.type]]:
        allowed = ", ".join(f"'{each}'" for each, setting in ALLOWS.items() if config[setting])
        raise ApprovalError(f"'{answer.type}' is not allowed here; allowed: {allowed}")
    if answer.type == "response":
        return answer._replace(text=storable(answer.text))
    if answer.type == "edit":
        return _check_edit(row, answer, context)
    if answer.args is not None:  # of an accept, which may repeat the call's own
        asked = row.request
        given = _coerced(answer.args, _schema(row.agent, asked["action"], context))
        if answer.action not in ("", asked["action"]) or given != asked["args"]:
            raise ApprovalError("to run the call with other arguments, answer with 'edit'")
    return Answer(answer.type)


def _check_edit(row: CallRow, answer: Answer, context: RuntimeContext) -> Answer:
    action = row.request["action"]
    if answer.action not in ("", action):
        raise ApprovalError(f"an edit cannot change the tool: this is a call of '{action}'")
    try:
        text = json.dumps(dict(answer.args or {}), ensure_ascii=False, allow_nan=False)
        given: dict[str, Any] = from_json(text.encode())
    except UnicodeEncodeError:
        raise ApprovalError("args: a text has an unpaired surrogate") from None
    except (TypeError, ValueError, RecursionError):
        raise ApprovalError("args: JSON cannot hold these arguments") from None
    most = context.settings.max_argument_bytes
    if most is not None and len(to_json(given)) > most:
        raise ApprovalError(f"the arguments have more than {most:,} bytes (max_argument_bytes)")
    fitting = _coerced(given, _schema(row.agent, action, context))
    if problem := _problem(row.agent, action, fitting, context):
        raise ApprovalError(problem)
    return answer._replace(action=action, args=fitting)


def _coerced(given: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments whose texts are of the types that a schema asks for, where that is clear.

    Tools for people to answer with send all arguments as text.
    """
    properties = schema.get("properties")
    shapes = properties if isinstance(properties, Mapping) else {}
    return {name: _typed(value, shapes.get(name), schema) for name, value in given.items()}


def _typed(value: Any, shape: Any, schema: Mapping[str, Any]) -> Any:
    if not isinstance(value, str) or not isinstance(shape, Mapping):
        return value
    from referencing.exceptions import Unresolvable

    try:
        read = from_json(value)
        json.dumps(read, allow_nan=False)  # "1e400" is read as infinity
        return value if fits(value, shape, schema) else read
    except (ValueError, Unresolvable):
        return value


# --- deciding -------------------------------------------------------------------------------------


class Answered(NamedTuple):
    """An open call, its answer, which was checked, and who gives that."""

    row: CallRow
    answer: Answer
    by: Answerer


def decide(mail: Mail, answers: Iterable[Answered], mail_delivery: MailDelivery) -> "Decision":
    """Answer open calls in a draft of their task, whoever gave the answers.

    Args:
        mail: The mail of the change, with the draft.
        answers: The answers, which were checked.
        mail_delivery: Makes the messages that follow from them.

    Raises:
        UnknownAgent: an agent is not in the swarm any more, so its call can only be ignored.
    """
    decision = Decision(mail, mail_delivery)
    for answered in answers:
        decision.take(*answered)
    decision.go_on()
    return decision


def resume(mail: Mail, payload: object, mail_delivery: MailDelivery) -> "Decision":
    """Give open calls their results in a draft of their task.

    Raises:
        BreakpointError, AlreadyAnswered: see `read_results`.
        ApprovalClosed, ApprovalError, Forbidden: see `check`.
        UnknownAgent: see `decide`.
    """
    answers, context = [], mail_delivery.context
    for row, content in read_results(mail.task, payload):
        # Of a peer's task only the calls of breakpoint tools are that peer's to answer.
        own = row.kind == "breakpoint" or not context.host
        owner, guest = context.owner, bool(context.guest)
        by = Answerer(owner.role, owner.id, participant=guest, owner=own)
        answer = Answer("response", text=content)
        if row.approval_id:
            answer = check(row, answer, by, context)
        answers.append(Answered(row, answer, by))
    return decide(mail, answers, mail_delivery)


@dataclass(slots=True, eq=False)
class Decision:
    """The consequences of answers to open calls, in a draft of their task.

    ``closed`` are the keys of the calls. ``away`` are results for other swarms, by their agents.
    ``ready`` are the agents that have all of theirs; messages in ``mail`` wake them. With
    ``carried_out`` it has a call run, or ends the run.
    """

    mail: Mail
    mail_delivery: MailDelivery
    task: TaskMemory = field(init=False)
    closed: list[tuple[str, str]] = field(default_factory=list)
    away: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    ready: set[str] = field(default_factory=set)
    carried_out: bool = False
    context: RuntimeContext = field(init=False)

    def __post_init__(self) -> None:
        self.task, self.context = self.mail.task, self.mail_delivery.context

    def take(self, row: CallRow, answer: Answer, by: Answerer) -> None:
        """Note an answer, and what becomes of its call."""
        late = by.role == "system"
        who = "nobody answered in time, and the system" if late else str(by)
        gone = row.agent not in self.context.agents and not swarm_in(row.agent)
        if gone and answer.type != "ignore" and not late:
            raise UnknownAgent(
                f"agent '{row.agent}', whose call '{row.call_id}' is, has gone; to end the task, "
                "ignore the call if that is allowed, or cancel the task"
            )
        answer = Answer("ignore") if gone else answer
        given = answer.to_wire() if answer.type == "edit" else {"type": answer.type}
        closed = row._replace(
            status="expired" if late and answer.type != "accept" else STATUSES[answer.type],
            decision=to_json(given).decode(),
            decided_by="" if late else str(by),
            decided_at=self.task.now(),
        )
        self.closed.append(row.key)
        self.task.put(closed)
        if row.kind == "approval":  # others have events for their results alone
            self.mail.events.append(_told_answer(row, answer, by).row(self.mail.moment))
        if answer.type in ("accept", "edit"):
            self._run(row, answer)
        elif answer.type == "ignore":
            ended = _ENDED.format(by=who, action=row.request["action"])
            self._end_run(row, _GONE.format(agent=row.agent) if gone else ended)
        else:
            self._give(row, answer.text)

    def go_on(self) -> None:
        """Forward results to other swarms, and wake agents that have all of theirs."""
        for agent, results in self.away.items():
            self.context.subjects.answered(self.mail, agent, results)
        if self.carried_out:
            return
        controls = {row.agent: row.control for row in self._rows()}
        for agent in sorted(controls):
            if not self.task.open_calls(agent):
                self.ready.add(agent)
                lane = LaneKey(self.task.task_id, agent)
                self.mail.applied.append(partial(self.context.mailbox.unblock, lane))
                if agent not in self.away:
                    control = Control.from_json(controls[agent])
                    self.mail_delivery.instruct(self.mail, agent, control)

    @property
    def steps(self) -> frozenset[str]:
        """The ids of the manual steps that the answered calls belong to."""
        controls = [Control.from_json(row.control) for row in self._rows()]
        return frozenset(found.step.ref for found in controls if found and found.step)

    def commit(self) -> Commit:
        """Return a commit of the task, with what the answers teach."""
        commit = Commit(self.context.owner, self.task.row)
        for row in self._rows():
            commit.feedback += feedback_of(row, self.task.task_id)
        return commit

    def _rows(self) -> list[CallRow]:
        return [self.task.calls[key] for key in self.closed]

    def _run(self, row: CallRow, answer: Answer) -> None:
        """Have a call run; an edit becomes part of the agent's history at once."""
        arguments = row.request["args"]
        if answer.type == "edit":
            arguments = dict(answer.args or {})
            made = AgentToolCall.model_validate_json(row.call)
            entry = edit_entry(made.tool_call_id, arguments)
            self.mail_delivery.remember(self.mail, row.agent, entry)
        before = Control.from_json(row.control)
        origin = before.origin if before else None
        control = Control(ControlKind.RUN, origin=origin, call=(row.call_id, arguments))
        self.mail_delivery.instruct(self.mail, row.agent, control)
        self.carried_out = True

    def _end_run(self, row: CallRow, reason: str) -> None:
        """End the run: no call is run that nobody has accepted."""
        agents = self.context.agents
        asked = [call for call in self.task.asked_calls() if call.agent in agents]
        self._give(row, _IGNORED)
        for call in asked:
            if call.key != row.key:
                self.closed.append(call.key)
                self.task.put(call.closed(_CANCELLED, self.task.now()))
                self._give(call, _CANCELLED)
        agent = row.agent if row.agent in agents else self.context.parts.finisher
        self.mail_delivery.instruct(self.mail, agent, Control(ControlKind.END, reason=reason))
        self.carried_out = True

    def _give(self, row: CallRow, content: str) -> None:
        """Give a call its result, which goes into its agent's history, or to its agent's swarm."""
        self.task.put(self.task.calls[row.key]._replace(answer=content))
        made = AgentToolCall.model_validate_json(row.call)
        if row.agent in self.context.agents:
            self.mail_delivery.remember(self.mail, row.agent, made.create_response_msg(content))
        elif swarm_in(row.agent):
            result = {"call_id": made.tool_call_id, "content": content}
            self.away.setdefault(row.agent, []).append(result)
        event = EventDraft(
            "breakpoint_action_complete",
            f"breakpoint action complete (caller = {row.agent}):\n{content}",
            {
                "caller": row.agent,
                "tool_name": made.tool_name,
                "tool_call_id": row.call_id,
                "result": content,
            },
        )
        self.mail.events.append(event.row(self.mail.moment))


def _told_answer(row: CallRow, answer: Answer, by: Answerer) -> EventDraft:
    request = row.request
    told: dict[str, Any] = {
        "caller": row.agent,
        "approval_id": row.approval_id,
        "call_id": row.call_id,
        "tool_name": request["action"],
        "type": answer.type,
    }
    if by.role == "system":
        text = f"nobody answered the call of {request['action']} in time: {answer.type}"
        return EventDraft("approval_expired", text, told)
    told["answered_by"] = str(by)
    if answer.type == "edit":
        before, after = request["args"], answer.args or {}
        told["changed"] = {
            name: {"from": before.get(name), "to": after.get(name)}
            for name in dict.fromkeys((*before, *after))
            if before.get(name) != after.get(name) or (name in before) != (name in after)
        }
    if answer.type == "response":
        told["text"] = answer.text
    text = f"{by} answered the call of {request['action']}: {answer.type}"
    return EventDraft("approval_answered", text, told)


def feedback_of(row: CallRow, task_id: str) -> tuple[FeedbackRow, ...]:
    """Return what a decided call teaches a memory, if its approval says so; see `docs/memory.md`.

    Args:
        row: The call.
        task_id: Its task.
    """
    decision = from_json(row.decision or "{}")
    memory = from_json(row.config).get("feedback", {}).get(decision.get("type"))
    if memory is None or not row.decided_by:
        return ()
    request, change = row.request, row.answer if decision["type"] == "response" else None
    taught = new_feedback(
        approval_id=row.approval_id,
        memory=memory,
        task_id=task_id,
        type=decision["type"],
        action=request["action"],
        args=request["args"],
        change=decision["args"]["args"] if decision["type"] == "edit" else change,
        task_text=row.description,
        now=row.decided_at,
    )
    return (taught,)


def late_answer(row: CallRow) -> Answer:
    """Return what becomes of a call that nobody has answered in time."""
    config = from_json(row.config)
    if config.get("on_timeout") in ("accept", "ignore"):
        return Answer(config["on_timeout"])
    return Answer("response", text=_DENIED.format(seconds=config.get("ttl") or 0))


# --- carrying out ---------------------------------------------------------------------------------


def runs_calls(task: ActiveTask, context: RuntimeContext) -> bool:
    """Tell whether accepted calls of a task run, or wait for that."""
    if any(turn.runs for turn in task.turns.values()):
        return True
    waiting = context.mailbox.decided(task.task_id)
    return any(queued.control and queued.control.call for queued in waiting)


def accepted_call(turn: Turn) -> tuple[CallRow, AgentToolCall] | None:
    """Return the accepted call that a turn runs, or None when it was closed meanwhile."""
    control = turn.control
    if control is None or control.call is None:
        return None
    name, arguments = control.call
    row = turn.task.calls.get((turn.agent, name))
    if row is None or row.answer is not None:
        return None
    made = AgentToolCall.model_validate_json(row.call)
    return row, made.model_copy(update={"tool_args": dict(arguments)})
