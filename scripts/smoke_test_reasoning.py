"""Does the reasoning of a model reach the events of its tool calls?

One agent thinks about a question and calls tools; its ``tool_call`` events are printed with their
reasoning, preamble and ``reasoning_ref``. The exit code is 1 when the model reasoned before a call
and the event of that call says nothing about it, or when the task fails. The default model is
scripted and needs nothing; ``--llm openai/gpt-5-mini`` asks a real one.
"""

import argparse
import asyncio
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final

from mail import MAILAgentTemplate, MAILSwarmTemplate
from mail.core.agents import AgentOutput, ToolChoice
from mail.core.events import TaskEvent
from mail.errors import MAILError
from mail.examples.math_dummy import calculate_expression_action
from mail.factories import LiteLLMSupervisorFunction
from mail.llm import ChatModel, Delta, ModelRequest, ScriptedModel, model_for
from mail.llm.script import call, otherwise, say, think, when

SCRIPTED: Final = "scripted"
QUESTION: Final = (
    "A farmer has hens and rabbits, 35 heads and 94 feet in all. How many of each? Check the feet "
    "and the heads of your solution with calculate_expression, both at once, before you answer."
)
SYSTEM: Final = (
    "You solve puzzles. Say in one sentence what you are going to do before you call tools. Call "
    "calculate_expression for every sum, and task_complete with the answer in the end."
)
SCRIPT: Final = [
    when(tool_result="calculate_expression").then(
        think("Both fit: 35 heads and 94 feet."),
        call("task_complete", finish_message="23 hens and 12 rabbits."),
    ),
    otherwise(
        think("If all 35 were hens there would be 70 feet; the other 24 make 12 rabbits."),
        say("I check 23 hens and 12 rabbits."),
        call("calculate_expression", expression="23 * 2 + 12 * 4"),
        call("calculate_expression", expression="23 + 12"),
    ),
]


class Watched:
    """A model that remembers whether its last reply came with reasoning.

    ``calls`` has the ids of all calls, and whether the model reasoned in their reply.
    """

    def __init__(self, model: ChatModel) -> None:
        self._model = model
        self.reasoned = False
        self.calls: dict[str, bool] = {}

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Ask the model; see `mail.llm.ChatModel`."""
        self.reasoned = False
        async with aclosing(self._model.stream(request)) as deltas:
            async for delta in deltas:
                used = delta.usage.reasoning_tokens if delta.usage else 0
                self.reasoned = self.reasoned or bool(delta.reasoning or delta.thinking or used)
                yield delta


class Thinker(LiteLLMSupervisorFunction):
    """An agent that notes which of its calls were reasoned about."""

    def __init__(self, *, watched: Watched, **params: Any) -> None:
        super().__init__(**params, model=watched)
        self._watched = watched

    async def __call__(
        self, messages: list[dict[str, Any]], tool_choice: ToolChoice = "required"
    ) -> AgentOutput:
        """Ask the model, and note its calls."""
        text, calls = await super().__call__(messages, tool_choice)
        for made in calls:
            self._watched.calls[made.tool_call_id] = self._watched.reasoned
        return text, calls


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("question", nargs="?", default=QUESTION, help="a puzzle is the default")
    parser.add_argument("--llm", default=SCRIPTED, metavar="MODEL", help="default: %(default)s")
    parser.add_argument(
        "--effort", default="low", choices=["minimal", "low", "medium", "high"],
        help="how hard the model thinks (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--tool-format", default="responses", choices=["responses", "completions"],
        help="default: %(default)s",
    )  # fmt: skip
    parser.add_argument(
        "--timeout", type=float, default=300.0, metavar="SECONDS", help="default: %(default)s"
    )
    return parser.parse_args()


async def run(options: argparse.Namespace, watched: Watched) -> Sequence[TaskEvent]:
    """Ask the agent and return the events of its task.

    Raises:
        MAILError: the setting is wrong, or the model failed.
    """
    thinker = MAILAgentTemplate(
        name="thinker",
        factory=Thinker,
        comm_targets=[],
        actions=[calculate_expression_action],
        agent_params={
            "llm": options.llm,
            "system": SYSTEM,
            "reasoning_effort": options.effort,
            "default_tool_choice": "auto",  # models that think cannot be forced
            "use_proxy": options.llm.startswith("litellm_proxy/"),
            "watched": watched,
        },
        enable_entrypoint=True,
        can_complete_tasks=True,
        tool_format=options.tool_format,
    )
    template = MAILSwarmTemplate(
        name="smoke-test", version="1.0.0", agents=[thinker], actions=[], entrypoint="thinker"
    )
    swarm = template.instantiate({"user_token": ""}, print_llm_streams=False)
    try:
        answer, events = await swarm.post_message(
            options.question, show_events=True, timeout=options.timeout
        )
    finally:
        await swarm.shutdown()
    message = answer["message"]
    print(f"\nanswer: {message['body']}")
    if message["subject"] != "::task_complete::":
        raise MAILError(f"the task ended with {message['subject']}")
    return events


def show(extra: Mapping[str, Any], reasoned: bool) -> bool:
    """Print a tool call; return whether reasoning that was there is missing from its event."""
    print(f"\n{extra['tool_name']} {extra['tool_args']}")
    for field in ("reasoning", "preamble", "reasoning_ref"):
        if field in extra:
            print(f"  {field}: {extra[field]}")
    missing = reasoned and not ("reasoning" in extra or "reasoning_ref" in extra)
    if missing:
        print("  MISSING: the model reasoned, and the event does not tell")
    return missing


def main() -> int:
    """Run the test; return the exit code."""
    options = arguments()
    try:
        model = ScriptedModel(SCRIPT) if options.llm == SCRIPTED else model_for(options.llm)
        watched = Watched(model)
        events = asyncio.run(run(options, watched))
    except MAILError as error:
        print(f"The smoke test failed: {error}", file=sys.stderr)
        return 1
    calls = [event.extra for event in events if event.kind == "tool_call"]
    missing = sum(show(extra, watched.calls[extra["tool_call_id"]]) for extra in calls)
    told = sum("reasoning" in extra or "reasoning_ref" in extra for extra in calls)
    print(
        f"\n{len(calls)} tool calls, {told} with reasoning, {missing} without though it was there"
    )
    if not any(watched.calls.values()):
        print("the model did not reason at all")
    return 1 if missing else 0


if __name__ == "__main__":
    for output in (sys.stdout, sys.stderr):
        output.reconfigure(errors="replace")  # type: ignore[union-attr]
    sys.exit(main())
