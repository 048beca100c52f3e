"""A whole swarm from scripts, without a provider, and what its agents' models were shown."""

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from mail.api.agents import AgentFactory, MAILAgentTemplate
from mail.api.swarm import MAILSwarmTemplate
from mail.core.approvals import Answer as DecidedAnswer
from mail.core.approvals import Answerer, read_answer
from mail.core.events import TaskEvent
from mail.core.runtime.runs import FollowedRun
from mail.core.runtime.waiters import RunEnd
from mail.core.suggest import hinted
from mail.core.tasks import MAILTask, TaskState
from mail.core.tools.catalogue import BUILTIN_TOOLS, CATALOGUE, TEXT_TOOL
from mail.core.wire import MAILMessage
from mail.errors import ApprovalClosed, ConfigError, TaskTimeout
from mail.factories.action import LiteLLMActionAgentFunction
from mail.factories.base import LiteLLMAgentFunction
from mail.factories.checks import of_agent
from mail.factories.supervisor import LiteLLMSupervisorFunction
from mail.llm.request import ChatModel, Delta, ModelRequest
from mail.llm.script import Script
from mail.llm.scripted import ScriptedModel

if TYPE_CHECKING:
    from mail.api.actions import MAILAction
    from mail.api.swarm import MAILSwarm

Answer = str | Mapping[str, Any] | Callable[[dict[str, Any]], Any]
"""The answer to a call, or a function of the call's arguments that returns it.

That of a breakpoint call is its result, a text. That of a call that needs an approval is
``"accept"``, ``"ignore"`` or an object ``{"type": …, "args": …}`` (see ``docs/breakpoints.md``).
"""

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
    """The end of a task.

    Attributes:
        body: The answer, or the reason of a failure.
        subject: The final message's subject.
        status: completed, paused, failed or cancelled.
        message: The final ``broadcast_complete`` message.
        task: The task's record with all of its events.
        breakpoints: The calls that the task still waits for.
        ended_by: ``step_limit`` if the run had processed as many messages as it may, else None.
        cast: The agents and actions of the swarm; other names are refused as slips of the pen.
    """

    body: str
    subject: str
    status: TaskState
    message: MAILMessage
    task: MAILTask
    breakpoints: list[dict[str, Any]] = field(default_factory=list)
    ended_by: str | None = None
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
        body: The user's text.
        answers: By tool name, the answers to calls that wait for a person: the run goes on with
            them. A call of another tool ends the run paused.
        timeout: Seconds for the whole of it.
        options: As of `MAILSwarm.open_run`: ``task_id``, ``subject``, ``entrypoint``, ….

    Raises:
        TaskTimeout: it took longer; the note says what happened last.
        ProtocolError, TaskError: the message is refused.
        ConfigError: an answer is for a tool whose calls wait for nobody, or is no answer.
        ApprovalError: an answer is not allowed, or does not fit the call.
    """
    _check_answers(swarm, answers or {})
    run = await swarm.open_run(body, **options)
    task_id, store = run.task_id, run.context.store
    try:
        end = await run.end(timeout)
        while end.status is TaskState.PAUSED and await _answered(swarm, end, answers or {}):
            following = FollowedRun(context=run.context, task_id=task_id, began=end.seq + 1)
            end = await following.end(timeout)
    except TaskTimeout as error:
        task = await swarm.read_task(task_id)
        events = task.events[-_NOTED:] if task else []
        lines = [f"{event.kind}: {event.description}" for event in events]
        error.add_note("\n".join(["the last events of the task:", *lines]))
        raise
    task = await swarm.read_task(task_id)
    if task is None:
        raise AssertionError(f"task '{task_id}' ended and is not in the store")
    return Outcome(
        body=end.body,
        subject=end.subject,
        status=end.status,
        message=from_json(await store.response(run.context.owner, task_id) or "{}"),
        task=task,
        breakpoints=end.breakpoints,
        ended_by=end.ended_by,
        cast=Cast.of(swarm),
    )


def _check_answers(swarm: "MAILSwarm", answers: Mapping[str, Answer]) -> None:
    actions = (*swarm.actions, *(action for agent in swarm.agents for action in agent.actions))
    held = {*swarm.approvals, *(action.name for action in actions if action.approval)}
    for tool, answer in answers.items():
        known = (*swarm.breakpoint_tools, *held)
        if tool not in known:
            text = f"answers has '{tool}', which is not one of the swarm's breakpoint_tools"
            raise ConfigError(hinted(f"{text} and needs no approval", tool, known))
        if not callable(answer):
            _read_answer(tool, answer, held=tool in held)


def _read_answer(tool: str, given: object, *, held: bool) -> DecidedAnswer:
    if held:
        return read_answer({"type": given} if isinstance(given, str) else given)
    if not isinstance(given, str):
        got = type(given).__name__
        raise ConfigError(f"the answer for '{tool}' must be a string or a function, got {got}")
    return DecidedAnswer("response", text=given)


async def _answered(swarm: "MAILSwarm", end: RunEnd, answers: Mapping[str, Answer]) -> bool:
    """Answer the calls of a pause; False when one of them has no answer."""
    if any(call["name"] not in answers for call in end.breakpoints):
        return False
    for record in await swarm.get_approvals("open", end.task_id):
        tool, args = record["action_request"]["action"], record["action_request"]["args"]
        answer = answers[tool]
        given = answer(args) if callable(answer) else answer
        decided = _read_answer(tool, given, held=record["kind"] == "approval")
        role, _, name = record["approvers"][0].partition(":")
        role = swarm.user_role if role == "owner" else role
        by = Answerer(role, name or swarm.user_id, role == "participant", owner=True)
        with suppress(ApprovalClosed):  # the answer to another call has ended the run
            await swarm.runtime.decide(end.task_id, record["approval_id"], decided, by)
    return True


def _recipients(message: MAILMessage) -> list[str]:
    payload: Any = message["message"]
    listed = payload.get("recipients") or [payload["recipient"]]
    return [address["address"] for address in listed]


class RecordingModel:
    """A model that hands every question on and keeps a copy of it.

    Args:
        model: The model that answers: a script (see `mail.llm.script`), or any other.

    Attributes:
        requests: The questions so far, oldest first.
    """

    def __init__(self, model: Script | ChatModel) -> None:
        self._model: ChatModel = model if hasattr(model, "stream") else ScriptedModel(model)
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Reply as the model behind it; see `mail.llm.request.ChatModel.stream`."""
        messages = [dict(message) for message in request.messages]
        self.requests.append(replace(request, messages=messages))
        async for delta in self._model.stream(request):
            yield delta

    @property
    def shown(self) -> list[str]:
        """Every text that the model was shown, each once: prompts, mail and tool results."""
        found: dict[str, None] = {}
        for request in self.requests:
            found[request.system] = None
            for message in request.messages:
                if message.get("role") != "assistant":
                    found.update(dict.fromkeys(_texts(message)))
        return [text for text in found if text]


def _texts(message: object) -> list[str]:
    """Return the texts of an entry, whichever provider's format it has."""
    if isinstance(message, str):
        return [message]
    if isinstance(message, list):
        return [text for part in message for text in _texts(part)]
    if not isinstance(message, dict):
        return []
    fields = (message.get(name) for name in ("content", "text", "output"))
    return [text for field in fields for text in _texts(field)]


_NONE: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ScriptedSwarm:
    """A swarm and its agents' models. Leaving it as a context shuts the swarm down.

    Attributes:
        swarm: The swarm.
        models: The agents' models by agent name; see `RecordingModel`.
    """

    swarm: "MAILSwarm"
    models: Mapping[str, RecordingModel]

    async def run(self, body: str, **options: Any) -> Outcome:
        """Run one task to its end; see `run_until_complete`."""
        return await run_until_complete(self.swarm, body, **options)

    async def __aenter__(self) -> "ScriptedSwarm":
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.swarm.shutdown(grace=0)


def scripted_swarm(
    scripts: "Mapping[str, Script | ChatModel]",
    *,
    entrypoint: str | None = None,
    supervisors: Sequence[str] = (),
    actions: "Mapping[str, Sequence[MAILAction]]" = _NONE,
    comm_targets: Mapping[str, Sequence[str]] = _NONE,
    breakpoint_tools: Sequence[str] = (),
    **options: Any,
) -> ScriptedSwarm:
    """Build a swarm whose agents follow scripts, through the real agent functions and runtime.

    Args:
        scripts: Each agent's script (see `mail.llm.script`) or model, by name.
        entrypoint: The agent that gets the user's messages; the first one when None.
        supervisors: The agents that may complete tasks; the entrypoint always may.
        actions: Each agent's actions by its name.
        comm_targets: Whom each agent may write to; everybody else when it is not named.
        breakpoint_tools: Tools whose calls pause a task.
        options: As of `MAILSwarmTemplate.instantiate`: ``store``, ``settings``, ``user_id``, ….

    Raises:
        ConfigError: a script is none, an agent is named that has none, or the parts do not fit
            together.
    """
    if isinstance(supervisors, str):
        raise ConfigError(f"supervisors must be a list of names, got the string '{supervisors}'")
    for place, names in (
        ("supervisors", supervisors),
        ("actions", actions),
        ("comm_targets", comm_targets),
    ):
        for name in names:
            if name not in scripts:
                text = f"{place} names '{name}', who has no script"
                raise ConfigError(hinted(text, name, scripts))
    entry = entrypoint or next(iter(scripts), "")
    leaders = {entry, *supervisors}
    models = dict(_models(scripts))
    agents = [
        MAILAgentTemplate(
            name=name,
            factory=_factory(name in leaders, bool(actions.get(name))),
            comm_targets=list(
                comm_targets.get(name, [other for other in scripts if other != name])
            ),
            actions=list(actions.get(name, ())),
            agent_params={"llm": "scripted", "model": model, "system": f"You are {name}."},
            enable_entrypoint=name in leaders,
            can_complete_tasks=name in leaders,
            tool_format="completions",
        )
        for name, model in models.items()
    ]
    template = MAILSwarmTemplate(
        name="scripted", agents=agents, entrypoint=entry, breakpoint_tools=breakpoint_tools
    )
    given = {"user_id": "tester", "print_llm_streams": False, **options}
    return ScriptedSwarm(template.instantiate({}, **given), models)


def _factory(leads: bool, acts: bool) -> AgentFactory:
    if leads:
        return LiteLLMSupervisorFunction
    return LiteLLMActionAgentFunction if acts else LiteLLMAgentFunction


def _models(scripts: "Mapping[str, Script | ChatModel]") -> Iterator[tuple[str, RecordingModel]]:
    for name, script in scripts.items():
        with of_agent(name):
            model = RecordingModel(script)
        yield name, model


def shown_to(swarm: ScriptedSwarm, agent: str) -> list[str]:
    """Return every text that an agent was shown, each once: its prompt, mail and tool results."""
    return _model(swarm, agent).shown


def assert_shown(swarm: ScriptedSwarm, agent: str, text: str) -> None:
    """Check that an agent was shown a text, as it is or as mail shows it (escaped).

    Raises:
        AssertionError: it was not; the message lists what it was shown.
    """
    if not _holding(swarm, agent, text):
        listing = "\n---\n".join(shown_to(swarm, agent)) or "(nothing)"
        raise AssertionError(f"agent '{agent}' was not shown {text!r}, but:\n{listing}")


def assert_not_shown(swarm: ScriptedSwarm, agent: str, text: str) -> None:
    """Check that an agent was never shown a text.

    Raises:
        AssertionError: it was; the message has the place.
    """
    found = _holding(swarm, agent, text)
    if found:
        raise AssertionError(f"agent '{agent}' was shown {text!r}:\n{found[0]}")


def _holding(swarm: ScriptedSwarm, agent: str, text: str) -> list[str]:
    from xml.sax.saxutils import escape

    forms = {text, escape(text)}
    return [seen for seen in shown_to(swarm, agent) if any(form in seen for form in forms)]


def _model(swarm: ScriptedSwarm, agent: str) -> RecordingModel:
    if agent not in swarm.models:
        raise AssertionError(f"there is no agent '{agent}' in the swarm, but {list(swarm.models)}")
    return swarm.models[agent]
