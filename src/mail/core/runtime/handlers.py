"""The handlers of MAIL's tools: what they have to work with, what they decide, and their table."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from pydantic_core import from_json, to_json

from mail.clock import later
from mail.core.addresses import (
    MAIL_ALL_LOCAL_AGENTS,
    MAILAddress,
    create_agent_address,
    local_agent_name,
)
from mail.core.agents import AgentCore
from mail.core.compose import Subject
from mail.core.envelope import Envelope
from mail.core.interswarm import MAX_CONTRIBUTORS, Gateway, check_task_for_peers, wire_task_id
from mail.core.runtime.active_tasks import Turn
from mail.core.runtime.context import RuntimeContext
from mail.core.runtime.correspondence import (
    owner_name,
    participants_in,
    receipt_told,
)
from mail.core.runtime.peering import remote_swarms, swarm_of, with_runner
from mail.core.runtime.policy import (
    OWN_COPY,
    allowed_target,
    local_recipients,
    not_a_target,
)
from mail.core.runtime.team_waits import WaitDraft
from mail.core.runtime.turn import ControlKind
from mail.core.runtime.turn_result import EventDraft, Reprompt, ToolOutcome
from mail.core.runtime.waiting import Report, stuck, wait_cycle
from mail.core.schema import MAX_ID
from mail.core.suggest import hinted
from mail.core.teams import MAX_WAIT, Route, Teams
from mail.core.tools.call import AgentToolCall
from mail.core.tools.catalogue import (
    AcknowledgeArgs,
    AwaitArgs,
    BroadcastArgs,
    DiscoverArgs,
    HelpArgs,
    IgnoreArgs,
    InterswarmBroadcastArgs,
    LetterReceiptsArgs,
    ReadAttachmentArgs,
    SearchMemoryArgs,
    SendArgs,
    SendAttachmentArgs,
    TaskCompleteArgs,
    TeammateBroadcastArgs,
    TeammateMessageArgs,
    parse_arguments,
)
from mail.core.tools.helptext import build_mail_help_string
from mail.core.wire import MessageKind
from mail.db.blobs import Blobs
from mail.db.files import FileRow
from mail.db.records import MemoryRow
from mail.errors import ProtocolError, StoreError, TeamError, ToolError, UnknownTeammate, WaitCycle
from mail.services.files import FILE_URI, text_page, told_of

logger = logging.getLogger(__name__)

_SENT = "message sent"
_SENDS: Final[Mapping[str, MessageKind]] = {
    "send_request": "request",
    "send_response": "response",
    "send_interrupt": "interrupt",
}
_SHOWN_PROBLEMS: Final = 16
_LONGEST_PROBLEM: Final = 300
_SHOWN_NAMES: Final = 64
_CARRY_ON: Final = Reprompt(Subject.ACTION_COMPLETE, "Your message is sent. Carry on.")
_LETTERS_READ: Final = 1024 * 1024
"""Bytes of letters that are read for their receipts."""


@dataclass(slots=True, eq=False)
class ToolContext:
    """Handlers read from it and return a `ToolOutcome`; only the dispatcher changes anything.

    ``later`` are the calls of the reply that follow; ``produced`` tells that earlier ones sent
    messages or have the agent called again, ``pausing`` that the reply pauses the task.
    """

    context: RuntimeContext
    turn: Turn
    later: Sequence[AgentToolCall] = ()
    produced: bool = False
    pausing: bool = False
    answered: set[str] = field(default_factory=set)

    @property
    def name(self) -> str:
        """The calling agent's name."""
        return self.turn.agent

    @property
    def swarm(self) -> str:
        """The local swarm's name."""
        return self.context.swarm

    @property
    def agents(self) -> Mapping[str, AgentCore]:
        """The swarm's agents."""
        return self.context.agents

    @property
    def teams(self) -> Teams:
        """The swarm's teams."""
        return self.context.parts.teams

    def target(self, target: str) -> MAILAddress:
        """Return the address of an agent that the caller may write to.

        Teammates may write to one another, also if they are no communication targets.

        Raises:
            ToolError: it may not, or there is no way to the swarm of that agent.
        """
        own, agents, context = self.turn.agent, self.context.agents, self.context
        if target != own and target in agents and context.parts.teams.are_teammates(own, target):
            return create_agent_address(target)
        if context.parts.participants:
            guest = local_agent_name(target, context.swarm)
            if guest in context.parts.participants and guest not in agents:
                return self._participant(guest)
        known = None
        if context.outside.gateway is not None:
            peering = self.turn.task.peering
            known = peering.known_to(own) if peering is not None else ()
        name = allowed_target(own, target, agents, context.swarm, known)
        address = create_agent_address(name)
        if name not in agents and (peer := swarm_of(address)):
            self.check_peer(peer)
        return address

    def _participant(self, name: str) -> MAILAddress:
        """Return the address of a participant: a communication target, or one who has written."""
        task, sender = self.turn.task, self.turn.envelope.sender
        met = (self.name, name) in task.met
        wrote = sender == create_agent_address(name)
        if not (met or wrote or name == task.guest):
            targets = (local_agent_name(t, self.swarm) for t in self.agents[self.name].comm_targets)
            if name not in targets:
                raise ToolError(not_a_target(name, self.agents[self.name].comm_targets))
        return create_agent_address(name)

    def check_peer(self, peer: str) -> None:
        """Check that mail of this task can go to another swarm.

        Raises:
            ToolError: it cannot; the text says why.
        """
        self.gateway().check(peer)
        task = self.turn.task
        try:
            check_task_for_peers(wire_task_id(self.context.owner.role, task.task_id))
        except ProtocolError as error:
            raise ToolError(str(error)) from None
        known = with_runner(task.row.task_contributors, str(self.context.owner))
        if len(known) >= MAX_CONTRIBUTORS and peer not in task.row.remote_swarms:
            raise ToolError(f"at most {MAX_CONTRIBUTORS} swarms can take part in a task")

    def compose(
        self,
        kind: MessageKind,
        recipients: list[MAILAddress],
        subject: str,
        body: str,
        ref: str | None = None,
        routing_info: Mapping[str, Any] = MappingProxyType({}),
    ) -> Envelope:
        """Build a message from the calling agent; a re-run of the turn builds the same one."""
        context, turn = self.context, self.turn
        composed = context.composer.message(
            kind,
            turn.task.task_id,
            create_agent_address(turn.agent),
            recipients,
            subject,
            body,
            ref=ref or turn.next_id(),
            message_id=turn.next_id(),
            routing_info=routing_info,
            timestamp="",  # it is sent when the turn ends
        )
        if kind == "request" and participants_in(composed, context.parts.participants):
            composed = composed._replace(ref=composed.id)  # a participant answers the message
        swarms = tuple(dict.fromkeys([swarm_of(each) or context.swarm for each in recipients]))
        if swarms != composed.recipient_swarms:
            composed = composed._replace(recipient_swarms=swarms)
        return composed

    def answers(self, requester: str) -> str | None:
        """Return the newest open request that ``requester`` sent to the caller, if any."""
        for ref in reversed(self.turn.task.asks.refs(requester, self.name)):
            if ref not in self.answered:
                self.answered.add(ref)
                return ref
        return None

    def can_expect_mail(self) -> bool:
        """Tell whether anything can still reach the task once this turn ends (MAIL-TOOL-15)."""
        task = self.turn.task
        return bool(
            self.produced
            or any(call.tool_name != "await_message" for call in self.later)
            or self.context.mailbox.waiting(task.task_id)
            or any(turn is not self.turn for turn in task.turns.values())
            or task.arriving
            or task.waits
            or task.people - {self.turn.envelope.id}
            or task.open_calls()
            or task.asks.waits("participant")
            or (task.asks.waits("peer") and not self._in_vain())
        )

    def wait_cycle(self) -> list[str]:
        """Return the open requests that lead from the agent back to it, as names; maybe none."""
        reports = self._in_vain() or [self._report()]
        asks = [pair for report in reports for pair in report.asks]
        suffix = f"@{self.swarm}"
        return [name.removesuffix(suffix) for name in wait_cycle(asks, f"{self.name}{suffix}")]

    def _in_vain(self) -> list[Report]:
        """Return the reports of all nodes if nothing can come once nothing goes on in this one."""
        task = self.turn.task
        known = task.peering.known if task.peering is not None else {}
        return stuck(self._report(), known)

    def _report(self) -> Report:
        task = self.turn.task
        return task.report(str(self.context.owner), owed=task.is_owed)

    def gateway(self) -> Gateway:
        """Return the way to the other swarms.

        Raises:
            ToolError: mail between swarms is not enabled.
        """
        if self.context.outside.gateway is None:
            raise ToolError("interswarm messaging is not enabled for this swarm")
        return self.context.outside.gateway

    async def attachment(self, file_id: str) -> tuple[FileRow, Blobs]:
        """Return a file that came with a letter of this task to the calling agent.

        Raises:
            ToolError: there is none.
        """
        context, file_id = self.context, file_id.removeprefix(FILE_URI)
        row = None
        if context.outside.blobs is not None and len(file_id) <= MAX_ID and file_id.isprintable():
            task = owner_name(context.owner), self.turn.task.task_id
            if await context.store.carries(self.swarm, self.name, file_id, task):
                row = await context.store.find_file(self.swarm, file_id)
        if context.outside.blobs is None or row is None or row.expires_at <= context.clock.now():
            raise ToolError("no such file came with a message to you in this task")
        return row, context.outside.blobs(self.swarm)


async def handle_send(tools: ToolContext, call: AgentToolCall) -> ToolOutcome:
    """Write to one agent: ask for something, answer, or stop its model call (MAIL-INT-1).

    A response answers the newest open request of that agent.
    """
    args = parse_arguments(call.tool_name, call.tool_args, SendArgs)
    target, kind = tools.target(args.target), _SENDS[call.tool_name]
    ref = tools.answers(target["address"]) if kind == "response" else None
    mail = tools.compose(kind, [target], args.subject, args.body, ref)
    return ToolOutcome(details=_SENT, mail=(mail,))


async def handle_broadcast(tools: ToolContext, call: AgentToolCall) -> ToolOutcome:
    """Tell the named agents, or all of the swarm when none is named (MAIL-TOOL-9)."""
    args = parse_arguments(call.tool_name, call.tool_args, BroadcastArgs)
    named = [target for target in args.targets or () if target != "all"]
    recipients = [tools.target(target) for target in named]
    if not recipients:
        recipients = [MAIL_ALL_LOCAL_AGENTS]
    mail = tools.compose("broadcast", recipients, args.subject, args.body)
    guests = tools.context.parts.participants
    reached = local_recipients(mail, tools.agents, tools.swarm, guests)
    if not (reached or remote_swarms(mail, tools.swarm) or participants_in(mail, guests)):
        raise ToolError("there is no other agent in this swarm to receive a broadcast")
    return ToolOutcome(details=_SENT, mail=(mail,))


async def handle_interswarm_broadcast(tools: ToolContext, call: AgentToolCall) -> ToolOutcome:
    """Tell other swarms: those that are named, or all active ones (MAIL-TOOL-19)."""
    args = parse_arguments(call.tool_name, call.tool_args, InterswarmBroadcastArgs)
    named = list(dict.fromkeys(args.target_swarms))
    if tools.swarm in named:
        raise ToolError(f"'{tools.swarm}' is your own swarm; write to it with send_broadcast")
    for swarm in named:  # it goes to every one or to none
        tools.check_peer(swarm)
    swarms, left_out = (named, []) if named else _active_swarms(tools)
    mail = tuple(
        tools.compose("broadcast", [create_agent_address(f"all@{swarm}")], args.subject, args.body)
        for swarm in swarms
    )
    details = "; ".join([f"message sent to {', '.join(swarms)}", *left_out])
    return ToolOutcome(details=details, mail=mail)


def _active_swarms(tools: ToolContext) -> tuple[list[str], list[str]]:
    """Return the active swarms that mail can be sent to, and why it cannot to the others."""
    swarms, left_out = [], []
    for swarm in tools.gateway().swarms():
        try:
            tools.check_peer(swarm)
        except ToolError as problem:
            left_out.append(f"not to {swarm}: {problem}")
        else:
            swarms.append(swarm)
    if not swarms:
        raise ToolError("; ".join(["no other swarm can be written to at the moment", *left_out]))
    return swarms, left_out


async def handle_discover(tools: ToolContext, call: AgentToolCall) -> ToolOutcome:
    """Ask servers which swarms they list; what was found is the tool result (MAIL-TOOL-20)."""
    args = parse_arguments(call.tool_name, call.tool_args, DiscoverArgs)
    gateway = tools.gateway()
    found, problems = await gateway.discover(list(dict.fromkeys(args.discovery_urls)))
    usable = set(gateway.swarms())
    proposed = [name for name in found if name not in usable]
    lines = [f"{_counted(found)} found"]
    if proposed:
        lines.append(f"an administrator must accept {_counted(proposed)} before you can write")
    lines += [f"problem: {problem[:_LONGEST_PROBLEM]}" for problem in problems[:_SHOWN_PROBLEMS]]
    if len(problems) > _SHOWN_PROBLEMS:
        lines.append(f"{len(problems) - _SHOWN_PROBLEMS} further problems")
    return ToolOutcome(
        ok=bool(found or not problems),
        details="\n".join(lines),
        reprompt=Reprompt(Subject.ACTION_COMPLETE, "Servers asked for swarms."),
    )


def _counted(names: list[str]) -> str:
    """Return how many new swarms there are, and the names of the first ones."""
    count = f"{len(names)} new swarm{'' if len(names) == 1 else 's'}"
    shown = ", ".join(names[:_SHOWN_NAMES]) + (", …" if len(names) > _SHOWN_NAMES else "")
    return f"{count} ({shown})" if names else count


def _event(tools: ToolContext, kind: str, said: str) -> EventDraft:
    return EventDraft(kind, f"agent {tools.name} {said}", {"caller": tools.name})


async def handle_acknowledge(tools: ToolContext, call: AgentToolCall) -> ToolOutcome:
    """Store the broadcast in the agent's memory and tell nobody; on other mail do nothing."""
    args = parse_arguments(call.tool_name, call.tool_args, AcknowledgeArgs)
    broadcast = tools.turn.envelope
    if broadcast.kind != "broadcast":
        logger.debug("acknowledge_broadcast on a %s: nothing to store", broadcast.kind)
        return ToolOutcome(details="there is no broadcast to acknowledge; nothing was stored")
    shown = {"role": "user", "content": tools.turn.shown}
    reply = "<acknowledged broadcast/>" + (f"\n{args.note}" if args.note else "")
    entries = [shown, {"role": "assistant", "content": reply}]
    now = tools.context.clock.now()
    memory = MemoryRow(
        namespace=(f"{tools.name}_memory",),
        key=broadcast.ref,
        value=to_json({"messages": entries, "text": f"{shown['content']}\n{reply}"}).decode(),
        created_at=now,
        updated_at=now,
    )
    told = "broadcast acknowledged"
    return ToolOutcome(details=told, memories=(memory,), handled="acknowledged")


async def handle_ignore(tools: ToolContext, call: AgentToolCall) -> ToolOutcome:
    """Let the broadcast go: nothing is stored, nothing is sent, the reason stays in the log."""
    args = parse_arguments(call.tool_name, call.tool_args, IgnoreArgs)
    logger.info("agent '%s' ignored a broadcast: %s", tools.name, args.reason or "no reason given")
    event = _event(tools, "broadcast_ignored", "called ignore_broadcast")
    return ToolOutcome(details="broadcast ignored", events=(event,), handled="ignored")


async def handle_await(tools: ToolContext, call: AgentToolCall) -> ToolOutcome:
    """End the turn quietly, unless nothing can ever arrive (MAIL-TOOL-15).

    An agent that insists after it was told so may wait: a stalled task is the finisher's affair. A
    wait that closes a cycle of agents that wait for each other is refused each time.
    """
    args = parse_arguments(call.tool_name, call.tool_args, AwaitArgs)
    control = tools.turn.control
    told = control is not None and control.kind is ControlKind.REPAIR
    final = not tools.can_expect_mail()
    cycle = tools.wait_cycle() if final else []
    if cycle or (final and not told):
        problem = (
            "no message can arrive: the task's message queue is empty, no agent is working on it "
            "and no request is open"
        )
        if cycle:
            problem = f"all that could write to you wait for each other: {' -> '.join(cycle)}"
        body = f"You called await_message, but {problem}. Send a message or finish the task."
        return ToolOutcome(
            ok=False,
            details=problem,
            reprompt=Reprompt(Subject.TOOL_CALL_ERROR, body, error=True),
            events=(_event(tools, "agent_error", f"called await_message but {problem}"),),
        )
    reason = {"reason": args.reason} if args.reason else {}
    event = EventDraft(
        "await_message",
        f"agent '{tools.name}' is awaiting a new message"
        + (f": {args.reason}" if args.reason else ""),
        {"caller": tools.name, **reason},
    )
    details = "waiting for a new message" + (f" (reason: '{args.reason}')" if args.reason else "")
    return ToolOutcome(details=details, events=(event,))


async def handle_complete(tools: ToolContext, call: AgentToolCall) -> ToolOutcome:
    """End the task with an answer; on a task that has ended already it changes nothing."""
    args = parse_arguments(call.tool_name, call.tool_args, TaskCompleteArgs)
    if not tools.turn.task.row.state.is_open:
        said = "called task_complete on already completed task"
        again = _event(tools, "task_complete_call_duplicate", said)
        return ToolOutcome(details="task already completed", events=(again,))
    said = "called task_complete, full response to follow"
    event = _event(tools, "task_complete_call", said)
    return ToolOutcome(details="task completed", completes=args.finish_message, events=(event,))


async def handle_help(tools: ToolContext, call: AgentToolCall) -> ToolOutcome:
    """Build the help text that the agent asked for."""
    args = parse_arguments(call.tool_name, call.tool_args, HelpArgs)
    text = build_mail_help_string(
        name=tools.name,
        swarm=tools.swarm,
        get_summary=args.get_summary,
        get_identity=args.get_identity,
        get_tool_help=list(args.get_tool_help or ()),
        get_full_protocol=args.get_full_protocol,
    )
    event = _event(tools, "help_called", "called help")
    return ToolOutcome(
        details="help string generated; will be sent to you in a subsequent prompt",
        reprompt=Reprompt(Subject.HELP, text, kind="broadcast"),
        events=(event,),
    )


async def handle_search_memory(tools: ToolContext, call: AgentToolCall) -> ToolOutcome:
    """Search the calling agent's own memory; the findings are the tool result."""
    args = parse_arguments(call.tool_name, call.tool_args, SearchMemoryArgs)
    try:
        context, space = tools.context, (f"{tools.name}_memory",)
        rows = await context.store.search_memories(
            context.owner, space, args.query, limit=args.limit
        )
    except StoreError:
        raise ToolError("memory search is currently unavailable") from None
    details = f"{len(rows)} memories found"
    for row in rows:
        value = from_json(row.value)
        text = value.get("text") if isinstance(value, dict) else None
        details += f"\n\n{text if isinstance(text, str) else value}"
    return ToolOutcome(
        details=details, reprompt=Reprompt(Subject.ACTION_COMPLETE, "Memory searched.")
    )


async def handle_letter_receipts(tools: ToolContext, call: AgentToolCall) -> ToolOutcome:
    """Tell what became of the agent's letters in this task (MAIL-DESK-7)."""
    args = parse_arguments(call.tool_name, call.tool_args, LetterReceiptsArgs)
    if args.participant is not None and args.participant not in tools.context.parts.participants:
        names = sorted(tools.context.parts.participants)
        raise ToolError(hinted(f"'{args.participant}' is no participant", args.participant, names))
    try:
        context, task_id = tools.context, tools.turn.task.task_id
        seconds = args.unanswered_for
        entries = await context.store.letters_of_task(
            tools.swarm,
            (owner_name(context.owner), task_id),
            tools.name,
            recipient=args.participant or "",
            unsettled_before="" if seconds is None else later(context.clock.now(), -seconds),
            limit=args.limit + 1,
            max_bytes=_LETTERS_READ,
        )
    except StoreError:
        raise ToolError("receipts are currently unavailable") from None
    shown = [receipt_told(letter, receipt) for letter, receipt in entries[: args.limit]]
    told = {"receipts": shown, "more": len(entries) > args.limit}
    return ToolOutcome(
        details=to_json(told).decode(),
        reprompt=Reprompt(Subject.ACTION_COMPLETE, "Receipts read."),
    )


async def handle_read_attachment(tools: ToolContext, call: AgentToolCall) -> ToolOutcome:
    """Return a part of a text file that came with a participant's letter (MAIL-TOOL-35)."""
    args = parse_arguments(call.tool_name, call.tool_args, ReadAttachmentArgs)
    row, blobs = await tools.attachment(args.file_id)
    try:
        text, end = await text_page(blobs, row, args.offset, args.max_bytes)
    except ProtocolError as error:
        raise ToolError(str(error)) from None
    except StoreError:
        raise ToolError("the file cannot be read at the moment") from None
    more = f"; go on with offset {end}" if end < row.size else ""
    details = f"{row.name}, bytes {args.offset} to {end} of {row.size}{more}\n\n{text}"
    return ToolOutcome(details=details, reprompt=Reprompt(Subject.ACTION_COMPLETE, "File read."))


async def handle_send_attachment(tools: ToolContext, call: AgentToolCall) -> ToolOutcome:
    """Write to a participant, as an answer if it has asked, and hand on a file (MAIL-TOOL-36)."""
    args = parse_arguments(call.tool_name, call.tool_args, SendAttachmentArgs)
    target = tools.target(args.target)
    name = target["address"]
    if name in tools.agents or name not in tools.context.parts.participants:
        raise ToolError(f"'{args.target}' is no participant, and only participants are sent files")
    row, _ = await tools.attachment(args.file_id)
    ref = tools.answers(name)
    kind: MessageKind = "request" if ref is None else "response"
    mail = tools.compose(kind, [target], args.subject, f"{args.body}\n\n{told_of(row)}", ref)
    return ToolOutcome(details=_SENT, mail=(mail._replace(file_id=row.file_id),))


async def handle_teammate_message(tools: ToolContext, call: AgentToolCall) -> ToolOutcome:
    """Write to one member of a team (MAIL-TOOL-26)."""
    given = dict(call.tool_args)
    if not given.get("waitForReply"):
        given.pop("timeoutSeconds", None)  # it is not used
    args = parse_arguments(call.tool_name, given, TeammateMessageArgs)
    try:
        route = tools.teams.message(tools.name, args.team_id, args.to)
        _check_here(tools, route)
        if args.wait_for_reply:
            _check_wait(tools, route.recipients[0])
    except TeamError as error:
        return _no_team_mail(error)
    teammate, waits = route.recipients[0], args.wait_for_reply and args.timeout_seconds > 0
    kind: MessageKind = "interrupt"
    ref = None
    # What a participant answers is a request.
    if args.priority == "normal" or (args.wait_for_reply and teammate not in tools.agents):
        ref = None if args.wait_for_reply else tools.answers(teammate)
        # The task would wait for a participant that is asked something.
        asks = ref is None and (args.wait_for_reply or teammate in tools.agents)
        kind = "request" if asks else "response"
    mail = _team_mail(tools, kind, route, args.message, ref)
    told = {"messageId": mail.id, "delivered": True, "state": "stored"}
    seconds = min(args.timeout_seconds, MAX_WAIT)
    wait = WaitDraft(teammate, route.reached[0], mail.ref, told, seconds)
    if waits:
        tools.turn.awaits.append(teammate)
        waiting = {"caller": tools.name, "reason": f"a reply of '{teammate}'"}
        text = f"agent '{tools.name}' is awaiting a reply of '{teammate}'"
        event = EventDraft("await_message", text, waiting)
        return ToolOutcome(mail=(mail,), wait=wait, events=(event,))
    result = wait.result("timeout") if args.wait_for_reply else to_json(told).decode()
    return ToolOutcome(details=result, verbatim=True, mail=(mail,), reprompt=_CARRY_ON)


def _check_wait(tools: ToolContext, teammate: str) -> None:
    """Check that an agent can wait for a teammate.

    Raises:
        TeamError: it cannot, or they would wait for one another.
    """
    if tools.context.status.manual:
        raise TeamError("waitForReply is not possible in manual mode.")
    if tools.turn.queued.finish:
        raise TeamError("The task is about to end. Do not wait for a reply.")
    if tools.pausing:
        raise TeamError("Make the calls that others answer first, and wait for a reply later.")
    if cycle := tools.turn.task.wait_path(tools.name, teammate):
        raise WaitCycle(cycle)


async def handle_teammate_broadcast(tools: ToolContext, call: AgentToolCall) -> ToolOutcome:
    """Write to all members of a team (MAIL-TOOL-27)."""
    args = parse_arguments(call.tool_name, call.tool_args, TeammateBroadcastArgs)
    try:
        route = tools.teams.broadcast(tools.name, args.team_id, exclude_self=args.exclude_self)
        _check_here(tools, route)
    except TeamError as error:
        return _no_team_mail(error)
    kind: MessageKind = "interrupt" if args.priority == "urgent" else "broadcast"
    mail = _team_mail(tools, kind, route, args.message)
    told = {"messageId": mail.id, "deliveredTo": route.reached, "state": "stored"}
    result = to_json(told).decode()
    return ToolOutcome(details=result, verbatim=True, mail=(mail,), reprompt=_CARRY_ON)


def _check_here(tools: ToolContext, route: Route) -> None:
    """Check that the recipients of a message have mailboxes here.

    Raises:
        UnknownTeammate: one is a participant where no server serves the swarm.
    """
    for name, called in zip(route.recipients, route.reached, strict=True):
        if name not in tools.agents and name not in tools.context.parts.participants:
            raise UnknownTeammate(called)


def _team_mail(
    tools: ToolContext, kind: MessageKind, route: Route, body: str, ref: str | None = None
) -> Envelope:
    recipients = [create_agent_address(name) for name in route.recipients]
    noted = {"team": route.team.team_id}
    if tools.name in route.recipients:
        noted[OWN_COPY] = "yes"
    return tools.compose(kind, recipients, route.subject, body, ref, noted)


def _no_team_mail(error: TeamError) -> ToolOutcome:
    """Return the documented result of a refusal, and let the agent act on it."""
    told = to_json({"status": "error", "error": str(error)}).decode()
    again = Reprompt(Subject.TOOL_CALL_ERROR, str(error), error=True)
    return ToolOutcome(ok=False, details=told, verbatim=True, reprompt=again)


Handler = Callable[[ToolContext, AgentToolCall], Awaitable[ToolOutcome]]

HANDLERS: Final[Mapping[str, Handler]] = {
    "send_request": handle_send,
    "send_response": handle_send,
    "send_interrupt": handle_send,
    "send_broadcast": handle_broadcast,
    "send_interswarm_broadcast": handle_interswarm_broadcast,
    "discover_swarms": handle_discover,
    "acknowledge_broadcast": handle_acknowledge,
    "ignore_broadcast": handle_ignore,
    "await_message": handle_await,
    "help": handle_help,
    "search_memory": handle_search_memory,
    "letter_receipts": handle_letter_receipts,
    "read_attachment": handle_read_attachment,
    "send_attachment": handle_send_attachment,
    "teammate_message": handle_teammate_message,
    "teammate_broadcast": handle_teammate_broadcast,
    "task_complete": handle_complete,
}
