"""A whole swarm from scripts, without a provider, and what its agents' models were shown."""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from mail.api.agents import AgentFactory, MAILAgentTemplate
from mail.api.swarm import MAILSwarmTemplate
from mail.core.suggest import hinted
from mail.errors import ConfigError
from mail.factories.action import LiteLLMActionAgentFunction
from mail.factories.base import LiteLLMAgentFunction
from mail.factories.checks import of_agent
from mail.factories.supervisor import LiteLLMSupervisorFunction
from mail.llm.request import ChatModel, Delta, ModelRequest
from mail.llm.script import Script
from mail.llm.scripted import ScriptedModel
from mail.testing.runs import Outcome, run_until_complete

if TYPE_CHECKING:
    from types import TracebackType

    from mail.api.actions import MAILAction
    from mail.api.swarm import MAILSwarm

__all__ = [
    "RecordingModel",
    "ScriptedSwarm",
    "assert_not_shown",
    "assert_shown",
    "scripted_swarm",
    "shown_to",
]


class RecordingModel:
    """A model that hands every question on and keeps a copy of it.

    Args:
        model: Who answers: a script (see `mail.llm.script`), or any other model.

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

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: "TracebackType | None",
    ) -> None:
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
        supervisors: Who may complete tasks; the entrypoint always may.
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
        _check_named(place, names, scripts)
    entry = entrypoint or next(iter(scripts), "")
    leaders = {entry, *supervisors}
    models = {name: _recorded(name, script) for name, script in scripts.items()}
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


def _check_named(place: str, names: Iterable[str], scripts: Mapping[str, object]) -> None:
    for name in names:
        if name not in scripts:
            raise ConfigError(hinted(f"{place} names '{name}', who has no script", name, scripts))


def _recorded(agent: str, script: Script | ChatModel) -> RecordingModel:
    with of_agent(agent):
        return RecordingModel(script)


def _factory(leads: bool, acts: bool) -> AgentFactory:
    if leads:
        return LiteLLMSupervisorFunction
    return LiteLLMActionAgentFunction if acts else LiteLLMAgentFunction


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
