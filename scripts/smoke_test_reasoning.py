"""Does the reasoning of a model reach the events of its tool calls, streaming and not?

One agent solves the zebra puzzle and calls tools, twice: its answer is awaited, then its events are
streamed, with the pieces of reasoning as they arrive. Its ``tool_call`` events are printed with
their reasoning, preamble and ``reasoning_ref``. The exit code is 1 when the model reasoned before a
call and the event of that call says nothing about it, or when a task fails. The default model is
scripted and needs nothing; ``--llm openai/gpt-5-mini``, or ``MAIL_LLM``, asks a real one.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final

from mail import MAILAction, MAILAgentTemplate, MAILSwarm, MAILSwarmTemplate
from mail.core.agents import AgentOutput, ToolChoice
from mail.core.events import TaskEvent
from mail.errors import MAILError
from mail.factories import LiteLLMSupervisorFunction
from mail.llm import ChatModel, Delta, ModelRequest, ScriptedModel, model_for
from mail.llm.script import call, otherwise, say, think, when

SCRIPTED: Final = "scripted"
QUESTION: Final = """\
Five houses of five colours stand in a row. In each lives somebody of another nation, with another
pet, another drink and another brand of cigarettes.
The Englishman lives in the red house. The Spaniard has the dog. Coffee is drunk in the green house.
The Ukrainian drinks tea. The green house is immediately to the right of the ivory one. The smoker
of Old Gold has snails. Kools are smoked in the yellow house. Milk is drunk in the middle house. The
Norwegian lives in the first house. The smoker of Chesterfields lives next to the man with the fox.
Kools are smoked next to the house with the horse. The smoker of Lucky Strike drinks orange juice.
The Japanese smokes Parliaments. The Norwegian lives next to the blue house.
Who drinks water, and who has the zebra? Before you answer, note with the tool `note` the house in
which each of the two is, both at once."""
SYSTEM: Final = (
    "You solve puzzles. Say in one sentence what you are going to do before you call tools. Note "
    "what you have found with note, and call task_complete with the answer in the end."
)
SCRIPT: Final = [
    when(tool_result="note").then(
        think("All fourteen clues hold with these two houses."),
        call("task_complete", finish_message="The Norwegian drinks water. The Japanese has it."),
    ),
    otherwise(
        think("The Norwegian is in the first, yellow house, so the horse is in the blue second."),
        say("I note the houses of the water and of the zebra."),
        call("note", house=1, what="water"),
        call("note", house=5, what="zebra"),
    ),
]
NOTE: Final = MAILAction(
    "note",
    "Note what is in a house.",
    {
        "type": "object",
        "properties": {"house": {"type": "integer"}, "what": {"type": "string"}},
        "required": ["house", "what"],
    },
    lambda args: f"noted: house {args['house']} has the {args['what']}",
)


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
    parser.add_argument(
        "--llm", default=os.environ.get("MAIL_LLM") or SCRIPTED, metavar="MODEL",
        help="default: MAIL_LLM, else scripted",
    )  # fmt: skip
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


def thinking_swarm(options: argparse.Namespace, watched: Watched) -> MAILSwarm:
    """Make the swarm of the one agent.

    Raises:
        MAILError: a setting is wrong.
    """
    thinker = MAILAgentTemplate(
        name="thinker",
        factory=Thinker,
        comm_targets=[],
        actions=[NOTE],
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
    return template.instantiate({"user_token": ""}, print_llm_streams=False)


async def run(
    options: argparse.Namespace, watched: Watched, *, streaming: bool
) -> Sequence[TaskEvent]:
    """Ask the agent and return the events of its task.

    Raises:
        MAILError: the setting is wrong, or the model failed.
    """
    swarm = thinking_swarm(options, watched)
    try:
        if streaming:
            asked = await swarm.open_run(options.question, streamed=True, stream_tokens=True)
            events = [event async for event in asked.events()]
            answer = (await asked.result(options.timeout)).message
        else:
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


def report(events: Sequence[TaskEvent], watched: Watched) -> bool:
    """Print the tool calls of a task; return whether reasoning is missing."""
    calls = [event.extra for event in events if event.kind == "tool_call"]
    missing = sum(show(extra, watched.calls[extra["tool_call_id"]]) for extra in calls)
    told = sum("reasoning" in extra or "reasoning_ref" in extra for extra in calls)
    print(
        f"\n{len(calls)} tool calls, {told} with reasoning, {missing} without though it was there"
    )
    if not any(watched.calls.values()):
        print("the model did not reason at all")
    return missing > 0


def main() -> int:
    """Run the test both ways; return the exit code."""
    options = arguments()
    missing = False
    try:
        for streaming in (False, True):
            print(f"\n== {'Streaming' if streaming else 'Not streaming'}, {options.llm}")
            model = ScriptedModel(SCRIPT) if options.llm == SCRIPTED else model_for(options.llm)
            watched = Watched(model)
            events = asyncio.run(run(options, watched, streaming=streaming))
            if streaming:
                deltas = [event.extra for event in events if event.kind == "model_delta"]
                pieces = sum(extra["type"] == "reasoning" for extra in deltas)
                print(f"\n{pieces} pieces of reasoning arrived while the model thought")
            missing |= report(events, watched)
    except MAILError as error:
        print(f"The smoke test failed: {error}", file=sys.stderr)
        return 1
    return int(missing)


if __name__ == "__main__":
    for output in (sys.stdout, sys.stderr):
        output.reconfigure(errors="replace")  # type: ignore[union-attr]
    sys.exit(main())
