"""A swarm of one lead agent whose model is reached over each wire, and what became of its tasks."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mail import MAILAction, MAILAgentTemplate, MAILMessage, MAILSwarm, MAILSwarmTemplate
from mail.core.events import TaskEvent
from mail.factories import LiteLLMSupervisorFunction
from mail.llm.litellm_model import LiteLLMModel
from mail.llm.retry import RetryPolicy

__all__ = ["ADAPTIVE", "BUILTIN_TOOLS", "MODELS", "Outcome", "Path", "lead_swarm", "run"]

QUICK = RetryPolicy(base=0.001, cap=0.01)

BUILTIN_TOOLS: dict[str, dict[str, Any]] = {
    "responses": {"type": "web_search"},
    "anthropic": {"type": "web_search_20250305", "name": "web_search"},
}


@dataclass(frozen=True)
class Path:
    """One way to a model: its name, the agent's tool format, and the wire that must be used."""

    wire: str
    llm: str
    tool_format: str = "responses"
    use_proxy: bool = False


MODELS = (
    Path("completions", "openai/gpt-5-mini", "completions"),
    Path("responses", "openai/gpt-5-mini", "responses"),
    Path("anthropic", "anthropic/claude-sonnet-4-5", "responses"),
)


ADAPTIVE = Path("anthropic", "anthropic/claude-opus-4-7", "responses")
"""A model that takes an effort in place of a thinking budget."""


def _look_up(args: dict[str, Any]) -> str:
    return f"{args['word']} means {args['word'][::-1]}"


LOOK_UP = MAILAction(
    name="look_up",
    description="Look a word up",
    parameters={
        "type": "object",
        "properties": {"word": {"type": "string"}},
        "required": ["word"],
    },
    function=_look_up,
)
ASK_USER = MAILAction(
    name="ask_user",
    description="Ask the user",
    parameters={"type": "object", "properties": {"question": {"type": "string"}}},
    function=lambda args: "never called",
)


def lead_swarm(
    path: Path,
    user_token: str = "a-token-0123456789",
    breakpoint_tools: Sequence[str] = ("ask_user",),
    others: Sequence[MAILAgentTemplate] = (),
    more: Sequence[MAILAction] = (),
    **params: Any,
) -> MAILSwarm:
    """Return a swarm whose lead may look words up, ask the user and search the web.

    It may write to the others, and has more actions.
    """

    def made(**given: Any) -> LiteLLMSupervisorFunction:
        given["tools"] = [*given["tools"], *filter(None, [BUILTIN_TOOLS.get(path.wire)])]
        return LiteLLMSupervisorFunction(**{"model": LiteLLMModel(QUICK), **given})

    lead = MAILAgentTemplate(
        name="lead",
        factory=made,
        comm_targets=[other.name for other in others],
        actions=[LOOK_UP, ASK_USER, *more],
        agent_params={
            "llm": path.llm,
            "system": "You lead.",
            "use_proxy": path.use_proxy,
            "reasoning_effort": "low",
            **params,
        },
        enable_entrypoint=True,
        can_complete_tasks=True,
        tool_format=path.tool_format,
    )
    template = MAILSwarmTemplate(
        name="providers",
        version="1.3.6",
        agents=[lead, *others],
        actions=[LOOK_UP, ASK_USER, *more],
        entrypoint="lead",
        breakpoint_tools=breakpoint_tools,
        task_message_limit=20,
    )
    return template.instantiate(
        {"user_token": user_token}, user_id="alice", print_llm_streams=False
    )


@dataclass
class Outcome:
    """What a run gave: the final message, all stored events, and the pieces that streamed."""

    message: MAILMessage
    events: list[TaskEvent]
    deltas: list[TaskEvent] = field(default_factory=list)

    @property
    def body(self) -> str:
        return self.message["message"]["body"]

    @property
    def subject(self) -> str:
        return self.message["message"]["subject"]

    def kinds(self, *wanted: str) -> list[str]:
        """Return the kinds of the events in order, only the wanted ones if any are named."""
        return [event.kind for event in self.events if not wanted or event.kind in wanted]

    def calls(self) -> list[dict[str, Any]]:
        """Return what the ``tool_call`` events say."""
        return [dict(event.extra) for event in self.events if event.kind == "tool_call"]

    def streamed(self, kind: str) -> str:
        """Return what streamed in of a kind (text, reasoning)."""
        return "".join(event.extra["delta"] for event in self.deltas if event.extra["type"] == kind)


async def run(swarm: MAILSwarm, body: str, *, streamed: bool, **options: Any) -> Outcome:
    """Post a message, as a stream or not, and return what became of it."""
    task_id = options.pop("task_id", None) or str(uuid.uuid4())
    run = await swarm.open_run(
        body, task_id=task_id, streamed=streamed, stream_tokens=streamed, **options
    )
    deltas: list[TaskEvent] = []
    if streamed:
        deltas = [event async for event in run.events() if event.kind == "model_delta"]
    result = await run.result()
    events = swarm._runtime.get_events_by_task_id(task_id)
    return Outcome(result.message, events, deltas)
