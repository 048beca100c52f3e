"""Held calls: breakpoint calls that a person may also accept, edit or ignore.

They are kept as open calls, with a record of what is asked. An accepted call stays open until it
has been run, by a turn of its agent's that does nothing else: a delivery whose control is RUN. So
the journal keeps a crash from running it twice, and it runs at once, whatever other calls wait.
Ignoring a call ends the run by such a delivery, too, behind the accepted calls.
"""

import asyncio
import hashlib
import inspect
import json
import logging
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from pydantic_core import from_json, to_json

from mail.clock import format_uuid
from mail.core.approvals import (
    ALLOWS,
    BREAKPOINT_CONFIG,
    STATUSES,
    Answer,
    Answerer,
    Approval,
)
from mail.core.runtime.action_runner import check_action_arguments, is_long
from mail.core.runtime.active_tasks import ActiveTask, Turn
from mail.core.runtime.context import RuntimeContext
from mail.core.runtime.turn_result import EventDraft, TurnResult, storable
from mail.core.tools.call import AgentToolCall
from mail.core.tools.catalogue import CATALOGUE, check_usable, parse_arguments
from mail.db.approvals import ApprovalRow
from mail.db.preferences import FeedbackRow, new_feedback
from mail.db.records import CallRow
from mail.errors import ApprovalClosed, ApprovalError, Forbidden, StoreError, ToolError

logger = logging.getLogger(__name__)

IGNORED: Final = (
    "not run: the person who was asked ignored this call. Ignore this request and end the workflow."
)
CANCELLED: Final = "not run: the person who was asked ended the workflow by ignoring another call"
DENIED: Final = "not run: nobody answered within {seconds:g} s, so the call is denied"
_ENDED: Final = "The workflow has ended: {by} ignored the call of '{action}'."
_MOST_DESCRIBED: Final = 32 * 1024
_MOST_QUOTED: Final = 4 * 1024
_DESCRIBE_SECONDS: Final = 10.0
_TICKS: Final = re.compile("`+")


def is_held(agent: str, call: AgentToolCall, context: RuntimeContext) -> bool:
    """Tell whether a call needs an approval, and can have one: its arguments fit its schema.

    Of other arguments the agent is told at once, as with any tool.
    """
    if context.approval_for(agent, call.tool_name) is None:
        return False
    try:
        _check_arguments(agent, call.tool_name, dict(call.tool_args), context)
    except ToolError:
        return False
    return True


def _check_arguments(
    agent: str, tool: str, arguments: dict[str, Any], context: RuntimeContext
) -> None:
    """Check arguments against a tool's schema.

    Raises:
        ToolError: they do not fit.
    """
    spec = CATALOGUE.get(tool)
    if spec is not None:
        check_usable(tool, arguments)
        parse_arguments(tool, arguments, spec.model)
        return
    check_action_arguments(tool, arguments, _schema(agent, tool, context))


def _schema(agent: str, tool: str, context: RuntimeContext) -> dict[str, Any]:
    spec = CATALOGUE.get(tool)
    if spec is not None:
        return spec.model.model_json_schema()
    action = context.actions.get(tool) or (context.agents[agent].actions or {}).get(tool)
    return action.parameters if action is not None else {}


# --- opening --------------------------------------------------------------------------------------


async def describe_held(
    turn: Turn, calls: Sequence[AgentToolCall], context: RuntimeContext
) -> dict[str, str]:
    """Return what people read about the held ones of some calls, by the calls' ids."""
    said: dict[str, str] = {}
    text = None
    for call in calls:
        approval = context.approval_for(turn.agent, call.tool_name)
        if approval is None:
            continue
        if text is None:
            text = await _task_text(turn.task, context)
        said[call.tool_call_id] = await _description(approval, text, call)
    return said


async def _task_text(task: ActiveTask, context: RuntimeContext) -> str:
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
    text = said if said is not None else default_description(task_text, call)
    return _cut(storable(str(text)).replace("\0", ""))


def default_description(task_text: str, call: AgentToolCall) -> str:
    """Return the task's first message as a quotation, and the call."""
    quoted = "\n".join(f"> {line}" for line in task_text[:_MOST_QUOTED].splitlines())
    arguments = json.dumps(call.tool_args, ensure_ascii=False, indent=2)
    longest = max(map(len, _TICKS.findall(arguments)), default=0)
    fence = "`" * max(3, longest + 1)
    shown = f"**{call.tool_name}**\n\n{fence}json\n{arguments}\n{fence}"
    return f"{quoted}\n\n{shown}" if quoted else shown


def _cut(text: str) -> str:
    data = text.encode()
    if len(data) <= _MOST_DESCRIBED:
        return text
    return data[:_MOST_DESCRIBED].decode(errors="ignore") + "\n[cut here]"


def approval_rows(
    turn: Turn, turn_result: TurnResult, calls: Sequence[CallRow], context: RuntimeContext
) -> list[ApprovalRow]:
    """Return what people are asked about a turn's open calls."""
    now = turn.task.now()
    rows = []
    for made, call in zip(turn_result.paused, calls, strict=True):
        approval = context.approval_for(turn.agent, made.tool_name)
        if made.tool_name in context.breakpoint_tools or made.tool_name in turn.task.offer.names:
            approval = None
        until = ""
        config: dict[str, Any] = dict(BREAKPOINT_CONFIG)
        approvers: Sequence[str] = ("owner", "admin")
        if approval is not None:
            config = approval.config | {"on_timeout": approval.on_timeout, "ttl": approval.ttl}
            if approval.feedback:
                config["feedback"] = dict(approval.feedback)
            approvers = approval.approvers
            if approval.ttl is not None:
                ttl = timedelta(seconds=approval.ttl)
                until = (datetime.fromisoformat(now) + ttl).isoformat(timespec="microseconds")
        rows.append(
            ApprovalRow(
                approval_id=_approval_id(turn, call),
                agent=call.agent,
                call_id=call.call_id,
                kind="breakpoint" if approval is None else "approval",
                status="open",
                created_at=now,
                request=_request(made, turn_result.arguments_of(made)),
                config=to_json(config).decode(),
                approvers="".join(f"\n{name}" for name in approvers) + "\n",
                description=turn_result.described.get(made.tool_call_id, ""),
                expires_at=until,
            )
        )
    return rows


def _request(call: AgentToolCall, arguments: str) -> str:
    """Return what people are asked about, as JSON, of a call and its arguments in JSON."""
    if any(name[0] in arguments and name in arguments for name in ("NaN", "Infinity")):
        # An agent function of one's own may return them, and no answer can have them in JSON.
        arguments = to_json(call.tool_args, inf_nan_mode="null").decode()
    return f'{{"action":{to_json(call.tool_name).decode()},"args":{arguments}}}'


def _approval_id(turn: Turn, call: CallRow) -> str:
    text = f"{turn.step}/{call.call_id}"
    return format_uuid(hashlib.sha256(text.encode()).digest()[:16], version=8)


def open_events(rows: Sequence[ApprovalRow]) -> list[EventDraft]:
    """Return the events of held calls; those of breakpoint tools have their own."""
    return [
        EventDraft(
            "approval_requested",
            f"agent {row.agent} needs an approval to call {from_json(row.request)['action']}",
            {
                "caller": row.agent,
                "approval_id": row.approval_id,
                "call_id": row.call_id,
                "action_request": from_json(row.request),
                "expires_at": row.expires_at or None,
            },
        )
        for row in rows
        if row.kind == "approval"
    ]


# --- answers --------------------------------------------------------------------------------------


def check_answer(
    task: ActiveTask, row: ApprovalRow, answer: Answer, by: Answerer, context: RuntimeContext
) -> Answer:
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
    if answer.args is not None:  # of an accept
        _check_repeated(row, answer, context)
    return Answer(answer.type)


async def checked_answer(
    task: ActiveTask, row: ApprovalRow, answer: Answer, by: Answerer, context: RuntimeContext
) -> Answer:
    """Check an answer as `check_answer` does; in a thread if its arguments are long.

    Raises:
        ApprovalClosed, ApprovalError, Forbidden: see `check_answer`.
    """
    if not is_long(answer.args):
        return check_answer(task, row, answer, by, context)
    checked = await asyncio.to_thread(check_answer, task, row, answer, by, context)
    newest = task.approvals.get((row.agent, row.call_id))
    if newest is not row:  # its run has ended meanwhile
        raise ApprovalClosed(newest.status if newest else "ignored")
    return checked


def _check_repeated(row: ApprovalRow, answer: Answer, context: RuntimeContext) -> None:
    """Refuse to accept a call with arguments that are not its own: they would not be run."""
    asked = from_json(row.request)
    given = coerced(answer.args or {}, _schema(row.agent, asked["action"], context))
    if answer.action not in ("", asked["action"]) or given != asked["args"]:
        raise ApprovalError("to run the call with other arguments, answer with 'edit'")


def _check_edit(row: ApprovalRow, answer: Answer, context: RuntimeContext) -> Answer:
    action = from_json(row.request)["action"]
    if answer.action not in ("", action):
        raise ApprovalError(f"an edit cannot change the tool: this is a call of '{action}'")
    given = storable_arguments(answer.args or {})
    most = context.settings.max_argument_bytes
    if most is not None and len(to_json(given)) > most:
        raise ApprovalError(f"the arguments have more than {most:,} bytes (max_argument_bytes)")
    fitting = coerced(given, _schema(row.agent, action, context))
    try:
        _check_arguments(row.agent, action, fitting, context)
    except ToolError as error:
        raise ApprovalError(str(error)) from None
    return answer._replace(action=action, args=fitting)


def storable_arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments that JSON can hold.

    Raises:
        ApprovalError: it cannot.
    """
    try:
        text = json.dumps(given, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise ApprovalError("args: JSON cannot hold these arguments") from None
    if text.encode("utf-8", "replace").decode() != text:
        raise ApprovalError("args: a text has an unpaired surrogate")
    kept: dict[str, Any] = from_json(text)
    return kept


def coerced(given: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments whose texts are of the types that a schema asks for, where that is clear.

    Tools for people to answer with send all arguments as text.
    """
    properties = schema.get("properties")
    shapes = properties if isinstance(properties, Mapping) else {}
    return {name: _coerced(value, shapes.get(name), schema) for name, value in given.items()}


def _coerced(value: Any, shape: Any, schema: Mapping[str, Any]) -> Any:
    if not isinstance(value, str) or not isinstance(shape, Mapping):
        return value
    kinds = _kinds(shape, schema)
    if not kinds or "string" in kinds:
        return value
    try:
        read = from_json(value)
        json.dumps(read, allow_nan=False)  # "1e400" is read as infinity
    except ValueError:
        return value
    kind = {bool: "boolean", int: "integer", float: "number", dict: "object", list: "array"}.get(
        type(read), "null"
    )
    fits = kind in kinds or (kind == "integer" and "number" in kinds)
    return read if fits else value


def _kinds(shape: Mapping[str, Any], schema: Mapping[str, Any], depth: int = 0) -> set[str]:
    """Return the types that a property's schema allows; none if it does not say."""
    if depth > 4:
        return set()
    ref = shape.get("$ref")
    if isinstance(ref, str) and ref.startswith("#/$defs/"):
        found = (schema.get("$defs") or {}).get(ref.removeprefix("#/$defs/"))
        return _kinds(found, schema, depth + 1) if isinstance(found, Mapping) else set()
    kind = shape.get("type")
    if isinstance(kind, str):
        return {kind}
    if isinstance(kind, list):
        return {each for each in kind if isinstance(each, str)}
    kinds: set[str] = set()
    for each in (*(shape.get("anyOf") or ()), *(shape.get("oneOf") or ())):
        more = _kinds(each, schema, depth + 1) if isinstance(each, Mapping) else set()
        if not more:
            return set()
        kinds |= more
    return kinds


def told_answer(
    row: ApprovalRow, answer: Answer, by: Answerer, now: str, *, late: bool = False
) -> tuple[ApprovalRow, EventDraft]:
    """Return an approval with its answer, and the event of that.

    Args:
        late: Nobody answered in time.
    """
    closed = row._replace(
        status="expired" if late and answer.type != "accept" else STATUSES[answer.type],
        answer=to_json(answer.to_wire()).decode(),
        answered_by="" if late else str(by),
        answered_at=now,
    )
    request = from_json(row.request)
    told: dict[str, Any] = {
        "caller": row.agent,
        "approval_id": row.approval_id,
        "call_id": row.call_id,
        "tool_name": request["action"],
        "type": answer.type,
    }
    if late:
        text = f"nobody answered the call of {request['action']} in time: {answer.type}"
        return closed, EventDraft("approval_expired", text, told)
    told["answered_by"] = str(by)
    if answer.type == "edit":
        told["changed"] = _changes(request["args"], answer.args or {})
    if answer.type == "response":
        told["text"] = answer.text
    text = f"{by} answered the call of {request['action']}: {answer.type}"
    return closed, EventDraft("approval_answered", text, told)


def feedback_of(row: ApprovalRow, task_id: str) -> tuple[FeedbackRow, ...]:
    """Return what an answer teaches a memory, if the approval says so; see `docs/memory.md`.

    Args:
        row: The approval with its answer.
        task_id: Its task.
    """
    answer = from_json(row.answer or "{}")
    memory = from_json(row.config).get("feedback", {}).get(answer.get("type"))
    if memory is None or not row.answered_by:
        return ()
    request, args = from_json(row.request), answer["args"]
    taught = new_feedback(
        approval_id=row.approval_id,
        memory=memory,
        task_id=task_id,
        type=answer["type"],
        action=request["action"],
        args=request["args"],
        change=args["args"] if answer["type"] == "edit" else args,
        task_text=row.description,
        now=row.answered_at,
    )
    return (taught,)


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    names = dict.fromkeys((*before, *after))
    return {
        name: {"from": before.get(name), "to": after.get(name)}
        for name in names
        if before.get(name) != after.get(name) or (name in before) != (name in after)
    }


def late_answer(row: ApprovalRow) -> Answer:
    """Return what becomes of a call that nobody has answered in time."""
    config = from_json(row.config)
    if config.get("on_timeout") == "accept":
        return Answer("accept")
    if config.get("on_timeout") == "ignore":
        return Answer("ignore")
    return Answer("response", text=DENIED.format(seconds=config.get("ttl") or 0))


def ended_text(row: ApprovalRow, by: str) -> str:
    """Return the answer of a task that ended because somebody ignored a call."""
    return _ENDED.format(
        by=by or "nobody answered in time, and the system", action=from_json(row.request)["action"]
    )


def closed_approvals(
    task: ActiveTask, calls: Sequence[CallRow], status: str = "cancelled"
) -> tuple[ApprovalRow, ...]:
    """Note that calls were closed without an answer; return what stores that."""
    closed = []
    for call in calls:
        row = task.approvals.get((call.agent, call.call_id))
        if row is not None and (row.status == "open" or task_is_unrun(row)):
            row = row._replace(status=status, answered_at=row.answered_at or task.now())
            task.approvals[(call.agent, call.call_id)] = row
            closed.append(row)
    return tuple(closed)


def task_is_unrun(row: ApprovalRow) -> bool:
    """Tell whether a call was to be run."""
    return row.status in ("accepted", "edited")


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
