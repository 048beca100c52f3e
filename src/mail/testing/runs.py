"""Running one task to its end, and what came of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from mail.core.events import TaskEvent
from mail.core.runtime.waiters import RunResult
from mail.core.suggest import hinted
from mail.core.tasks import MAILTask, TaskState
from mail.core.tools.catalogue import BUILTIN_TOOLS, CATALOGUE, TEXT_TOOL
from mail.core.wire import MAILMessage
from mail.errors import ConfigError, TaskTimeout

if TYPE_CHECKING:
    from mail.api.swarm import MAILSwarm

__all__ = ["Answer", "Outcome", "run_until_complete"]

Answer = str | Callable[[dict[str, Any]], str]
"""The result of a breakpoint call: text, or a function of the call's arguments."""

_NOTED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """The names in a swarm; empty where nothing is known, and then nothing is refused.

    Attributes:
        agents: The agents.
        parties: Whoever sends or gets mail: agents, the user, the system, ``all``.
        tools: MAIL's tools, the actions, and what agents reply with in place of calls.
    """

    agents: tuple[str, ...] = ()
    parties: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()

    @classmethod
    def of(cls, swarm: "MAILSwarm") -> "Cast":
        """Return the names in a swarm."""
        agents = tuple(swarm.agent_names)
        own = [action.name for agent in swarm.agents for action in agent.actions]
        tools = (*CATALOGUE, *BUILTIN_TOOLS, TEXT_TOOL, *own, *(a.name for a in swarm.actions))
        parties = (*agents, swarm.user_id, swarm.name, "all", "system")
        return cls(agents=agents, parties=parties, tools=tools)

    def check(self, noun: str, name: str | None, known: Sequence[str]) -> None:
        """Refuse a name that is given and unknown.

        Raises:
            ConfigError: with the name that may be meant.
        """
        if name is not None and known and name not in known:
            raise ConfigError(hinted(f"there is no {noun} '{name}' in the swarm", name, known))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a task ended.

    Attributes:
        body: The answer, or the reason of a failure.
        subject: The final message's subject.
        status: completed, paused, failed or cancelled.
        message: The final ``broadcast_complete`` message.
        task: The task's record with all of its events.
        breakpoints: The calls that the task still waits for.
        cast: Who and what there is in the swarm; other names are refused as slips of the pen.
    """

    body: str
    subject: str
    status: TaskState
    message: MAILMessage
    task: MAILTask
    breakpoints: list[dict[str, Any]] = field(default_factory=list)
    cast: Cast = field(default_factory=Cast, repr=False)

    @property
    def completed(self) -> bool:
        """Tell whether the task has its answer."""
        return self.status is TaskState.COMPLETED

    @property
    def events(self) -> list[TaskEvent]:
        """The task's events in order."""
        return self.task.events

    def calls(self, tool: str | None = None, by: str | None = None) -> list[dict[str, Any]]:
        """Return the arguments of the tool calls that agents made, in order.

        Args:
            tool: Only calls of this tool.
            by: Only calls of this agent.

        Raises:
            ConfigError: the swarm has no such tool or agent.
        """
        self.cast.check("tool", tool, self.cast.tools)
        self.cast.check("agent", by, self.cast.agents)
        made = [event.extra for event in self.events if event.kind == "tool_call"]
        return [
            call["tool_args"]
            for call in made
            if tool in (None, call["tool_name"]) and by in (None, call["caller"])
        ]

    def mail(self, sender: str | None = None, to: str | None = None) -> list[MAILMessage]:
        """Return the task's messages in order.

        Args:
            sender: Only what this agent, user or system sent.
            to: Only what names this agent as a recipient; broadcasts name ``all``.

        Raises:
            ConfigError: the swarm has nobody of that name.
        """
        self.cast.check("sender", sender, self.cast.parties)
        self.cast.check("recipient", to, self.cast.parties)
        return [
            message
            for message in self.task.get_messages()
            if sender in (None, message["message"]["sender"]["address"])
            and (to is None or to in _recipients(message))
        ]


async def run_until_complete(
    swarm: "MAILSwarm",
    body: str,
    *,
    answers: Mapping[str, Answer] | None = None,
    timeout: float = 30.0,
    **options: Any,
) -> Outcome:
    """Post a message, process mail to the end of the run, and return what came of it.

    Args:
        swarm: The swarm.
        body: What the user says.
        answers: By tool name, the results of breakpoint calls: the run goes on with them. A call
            of another tool ends the run paused.
        timeout: Seconds for the whole of it.
        options: As of `MAILSwarm.open_run`: ``task_id``, ``subject``, ``entrypoint``, ….

    Raises:
        TaskTimeout: it took longer; the note says what happened last.
        ProtocolError, TaskError: the message is refused.
        ConfigError: an answer is for a tool that is no breakpoint tool, or is no answer.
    """
    _check_answers(swarm, answers or {})
    run = await swarm.open_run(body, **options)
    task_id = run.task_id
    try:
        result = await run.result(timeout)
        while result.status is TaskState.PAUSED:
            results = _answers(result, answers or {})
            if results is None:
                break
            run = await swarm.open_run(
                "",
                task_id=task_id,
                resume_from="breakpoint_tool_call",
                breakpoint_tool_call_result=results,
            )
            result = await run.result(timeout)
    except TaskTimeout as error:
        error.add_note(_what_happened(await swarm.read_task(task_id)))
        raise
    task = await swarm.read_task(task_id)
    if task is None:
        raise AssertionError(f"task '{task_id}' ended and is not in the store")
    payload = result.message["message"]
    return Outcome(
        body=payload["body"],
        subject=payload["subject"],
        status=result.status,
        message=result.message,
        task=task,
        breakpoints=result.breakpoints,
        cast=Cast.of(swarm),
    )


def _check_answers(swarm: "MAILSwarm", answers: Mapping[str, Answer]) -> None:
    for tool, answer in answers.items():
        if tool not in swarm.breakpoint_tools:
            text = f"answers has '{tool}', which is not one of the swarm's breakpoint_tools"
            raise ConfigError(hinted(text, tool, swarm.breakpoint_tools))
        if not isinstance(answer, str) and not callable(answer):
            got = type(answer).__name__
            raise ConfigError(f"the answer for '{tool}' must be a string or a function, got {got}")


def _answers(result: RunResult, answers: Mapping[str, Answer]) -> list[dict[str, str]] | None:
    known = [call for call in result.breakpoints if call["name"] in answers]
    if len(known) < len(result.breakpoints):
        return None
    return [
        {"call_id": call["call_id"], "content": _content(answers[call["name"]], call)}
        for call in known
    ]


def _content(answer: Answer, call: Mapping[str, Any]) -> str:
    return answer if isinstance(answer, str) else answer(from_json(call["arguments"]))


def _what_happened(task: MAILTask | None) -> str:
    events: Sequence[TaskEvent] = task.events[-_NOTED:] if task else ()
    lines = [f"{event.kind}: {event.description}" for event in events]
    return "\n".join(["the last events of the task:", *lines])


def _recipients(message: MAILMessage) -> list[str]:
    payload: Any = message["message"]
    listed = payload.get("recipients") or [payload["recipient"]]
    return [address["address"] for address in listed]
