"""The Python blocks of manual-mail-game-guide.md's patterns, tips and quick reference."""

import asyncio
import builtins
import re
import sys
import uuid
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace

import pytest
from pydantic import BaseModel, Field

from mail import MAILAction, MAILMessage, MAILSwarmTemplate
from mail.core import create_agent_address
from mail.core.render import PRIMER
from mail.llm import call, otherwise, when
from tests.documents import guide_game
from tests.documents.conftest import Keep
from tests.documents.guide_game import MyGame, Player
from tests.documents.support import (
    NAMES,
    buffered,
    missing_tests,
    newest_text,
    one_agent_swarm,
    tool_results,
)
from tests.support.provider import FakeProvider

BLOCKS = {
    "Pattern 1: Public vs Private Communication": "test_pattern_1_public_and_private",
    "Pattern 2: Structured Response Requests": "test_patterns_2_and_3_payloads",
    "Pattern 3: Injecting Game State": "test_patterns_2_and_3_payloads",
    "Pattern 4: Tool Result Processing": "test_pattern_4_tool_result_processing",
    "Pattern 5: Message Buffering": "test_pattern_5_message_buffering",
    "1. Always await_queue_empty() before manual_step()": "test_tip_1_await_queue_empty",
    "3. Use dynamic_ctx_ratio for long games": "test_tip_3_dynamic_ctx_ratio",
    "4. Override system prompts for special situations": "test_tip_4_override_system_prompts",
    "5. Design tools that return informative messages": "test_tip_5_informative_messages",
    "6. Handle tool errors gracefully": "test_tip_6_tool_errors",
    "7. Use unique task_id per game session": "test_tip_7_unique_task_id",
    "8. Consider adding interactive mode for debugging": "test_tip_8_interactive_mode",
    "Quick Reference": "test_quick_reference",
}
"""The headings with Python blocks in these chapters, in order, and the tests that cover them."""

pytestmark = pytest.mark.filterwarnings("ignore:base_agent_factory is deprecated")


def test_table_names_every_test() -> None:
    assert missing_tests(BLOCKS, sys.modules[__name__]) == set()


# --- Common Patterns ------------------------------------------------------------------------------


async def test_pattern_1_public_and_private(game: MyGame) -> None:
    swarm, task_id = game.swarm, game.task_id
    await swarm.manual_step(
        task_id=task_id,
        target="Alice",
        response_targets=["all"],
        response_type="broadcast",
        payload="Share your thoughts with everyone",
    )
    for name in ("GameMaster", "Bob", "Charlie", "David"):
        assert len(buffered(swarm, task_id, name)) == 1

    await swarm.manual_step(
        task_id=task_id,
        target="Alice",
        response_targets=["GameMaster"],
        response_type="response",
        payload="[PRIVATE] Tell me your secret strategy",
    )
    assert len(buffered(swarm, task_id, "GameMaster")) == 2
    assert len(buffered(swarm, task_id, "Bob")) == 1

    message = await swarm.manual_step(
        task_id=task_id,
        target="Alice",
        response_targets=["Bob", "Charlie"],
        response_type="broadcast",
        payload="[TEAM ONLY] Discuss strategy with your teammates",
    )
    assert message["msg_type"] == "broadcast"
    heard = {name: len(buffered(swarm, task_id, name)) for name in swarm.agent_names}
    assert heard == {"GameMaster": 2, "Alice": 0, "Bob": 2, "Charlie": 2, "David": 1}


async def test_patterns_2_and_3_payloads(provider: FakeProvider, game: MyGame) -> None:
    player_name, round_number, remaining_items = "Alice", 2, ["lamp", "rope"]
    await game.step_player(
        player_name,
        payload="""
Your response MUST end with one of:
- "I choose: ATTACK"
- "I choose: DEFEND"
- "I choose: HEAL"
""",
    )
    assert newest_text(provider.requests[-1]).strip().endswith('- "I choose: HEAL"')

    await game.step_gamemaster(
        payload=f"""
=== ROUND {round_number} ===
Remaining items: {remaining_items}
"""
    )
    assert "=== ROUND 2 ===\nRemaining items: ['lamp', 'rope']" in newest_text(
        provider.requests[-1]
    )


async def test_pattern_4_tool_result_processing(provider: FakeProvider, game: MyGame) -> None:
    said = await game.step_gamemaster(
        payload="""
Use score_points to award points to the winner.
"""
    )
    assert game.scores == {"Alice": 5, "Bob": 3}
    assert said["message"]["body"] == "The points are given."
    results = tool_results(provider.requests[-1])
    assert [re.search(r"Awarded.*", text)[0] for text in results] == [
        "Awarded 5 points to Alice. Total: 5",
        "Awarded 3 points to Bob. Total: 3",
    ]


async def test_pattern_5_message_buffering(provider: FakeProvider, game: MyGame) -> None:
    def msg_from(name: str) -> MAILMessage:
        message = game.swarm.build_message(
            "Hi", f"{name} was here", ["Alice"], "agent", "request", game.task_id
        )
        message["message"]["sender"] = create_agent_address(name)
        return message

    await game.swarm.submit_message_nowait(msg_from("Bob"))
    await game.swarm.submit_message_nowait(msg_from("Charlie"))
    await game.swarm.submit_message_nowait(msg_from("David"))
    assert provider.requests == []

    await game.step_player("Alice", payload="Respond to everyone above")
    text = newest_text(provider.requests[-1])
    assert re.findall(r"<private_message>\n<from>(\w+)</from>\n\1 was here\n", text) == [
        "Bob",
        "Charlie",
        "David",
    ]
    assert text.endswith("Respond to everyone above")
    assert buffered(game.swarm, game.task_id, "Alice") == []


# --- Tips and Best Practices ----------------------------------------------------------------------


async def test_tip_1_await_queue_empty(game: MyGame) -> None:
    await game.swarm.await_queue_empty()
    response = await game.swarm.manual_step(task_id=game.task_id, target="Alice")
    assert response["message"]["body"] == "So speaks Alice."


async def test_tip_3_dynamic_ctx_ratio(game: MyGame) -> None:
    for _ in range(3):
        response = await game.swarm.manual_step(
            task_id=game.task_id,
            target="Alice",
            dynamic_ctx_ratio=0.75,
        )
        assert response["message"]["body"] == "So speaks Alice."


async def test_tip_4_override_system_prompts(provider: FakeProvider, game: MyGame) -> None:
    await game.swarm.manual_step(
        task_id=game.task_id,
        target="Alice",
        _system="You are now being interrogated. Answer truthfully.",
        payload="What did you do last night?",
    )
    await game.step_player("Alice")
    interrogated, later = provider.requests
    assert interrogated.system == "You are now being interrogated. Answer truthfully.\n\n" + PRIMER
    assert newest_text(interrogated) == "What did you do last night?"
    assert later.system.startswith("You are Alice.")  # for one step only


@pytest.fixture
def score_action() -> tuple[SimpleNamespace, MAILAction]:
    game = SimpleNamespace(scores={})

    async def score_points(game: SimpleNamespace, args: dict) -> str:
        points, player = args["points"], args["player_name"]
        game.scores[player] = game.scores.get(player, 0) + points
        return f"Awarded {points} points to {player}. New total: {game.scores[player]}"

    function = partial(score_points, game)
    model = guide_game.ScorePointsArgs
    return game, MAILAction.from_pydantic_model(model, function, name="score_points")


async def test_tip_5_informative_messages(
    provider: FakeProvider, keep: Keep, score_action: tuple[SimpleNamespace, MAILAction]
) -> None:
    game, action = score_action
    provider.script = [
        when(tool_result="score_points").then("Alice leads."),
        otherwise(call("score_points", player_name="Alice", points=5)),
    ]
    swarm = keep(one_agent_swarm(action))
    running = asyncio.create_task(swarm.run_continuous(mode="manual"))
    response = await swarm.manual_step("t", "AgentName", payload="Use score_points")
    assert response["message"]["body"] == "Alice leads."
    assert game.scores == {"Alice": 5}
    [result] = tool_results(provider.requests[-1])
    assert result.endswith("Awarded 5 points to Alice. New total: 5")
    assert not running.done()


async def test_tip_6_tool_errors(provider: FakeProvider, keep: Keep) -> None:
    class NarratorError(Exception):
        """A choice that cannot be."""

    class TargetArgs(BaseModel):
        """Choose somebody."""

        target: str

    chosen: list[str] = []

    async def my_tool(game: list[str], args: dict) -> str:
        if args["target"] not in NAMES:
            raise NarratorError(f"Invalid target: {args['target']}")
        game.append(args["target"])
        return "chosen"

    action = MAILAction.from_pydantic_model(TargetArgs, partial(my_tool, chosen), name="my_tool")
    provider.script = [
        when(tool_result="my_tool", result="chosen").then("Bob it is."),
        when(tool_result="my_tool", result="Invalid target").then(call("my_tool", target="Bob")),
        otherwise(call("my_tool", target="Bobby")),
    ]
    swarm = keep(one_agent_swarm(action))
    asyncio.create_task(swarm.run_continuous(mode="manual"))  # noqa: RUF006 - as documented
    response = await swarm.manual_step("t", "AgentName", payload="Choose")
    assert response["message"]["body"] == "Bob it is."
    assert chosen == ["Bob"]
    refused = tool_results(provider.requests[1])[0]
    assert "Invalid target: Bobby" in refused
    assert "Traceback" not in refused


async def test_tip_7_unique_task_id(game: MyGame) -> None:
    @dataclass
    class Game:
        task_id: str = field(default_factory=lambda: str(uuid.uuid4()))

    one, two = Game(), Game()
    assert one.task_id != two.task_id
    await game.swarm.manual_step(one.task_id, "Alice")
    assert buffered(game.swarm, one.task_id, "Bob") == [("Alice", "So speaks Alice.")]
    assert buffered(game.swarm, two.task_id, "Bob") == []


async def test_tip_8_interactive_mode(
    provider: FakeProvider, game: MyGame, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    class Interactive:
        interactive = True

        def _interactive_wait(self, agent_name: str, payload: str) -> str:
            if self.interactive:
                asked.append(f"About to step: {agent_name}")
                return input("Additional payload (or Enter to continue): ")
            return ""

    monkeypatch.setattr(builtins, "input", lambda prompt: asked.append(prompt) or " Be brief.")
    watched = Interactive()
    payload = "Speak."
    await game.step_player("Alice", payload=payload + watched._interactive_wait("Alice", payload))
    assert newest_text(provider.requests[-1]) == "Speak. Be brief."
    assert len(asked) == 2
    watched.interactive = False
    assert watched._interactive_wait("Alice", payload) == ""


# --- Quick Reference ------------------------------------------------------------------------------


async def test_quick_reference(provider: FakeProvider, keep: Keep) -> None:
    provider.script = guide_game.SCRIPT
    agents = [Player(name, "Plays").build_agent_template() for name in ("GameMaster", "AgentName")]
    template = MAILSwarmTemplate(name="game", agents=agents, entrypoint="AgentName")
    swarm = template.instantiate({"user_token": "dummy"}, "GameID")
    keep(swarm)
    asyncio.create_task(swarm.run_continuous(mode="manual"))  # noqa: RUF006 - as documented

    msg = swarm.build_message(
        subject="init", body="...", targets=["all"], type="broadcast", task_id="session"
    )
    await swarm.submit_message_nowait(msg)

    await swarm.await_queue_empty()
    response = await swarm.manual_step(
        task_id="session",
        target="AgentName",
        response_targets=["all"],
        response_type="broadcast",
        payload="Phase instructions here",
    )
    assert response["message"]["body"] == "So speaks AgentName."
    assert newest_text(provider.requests[-1]).endswith("Phase instructions here")

    game = SimpleNamespace(seen=[])

    class MyToolArgs(BaseModel):
        arg1: str = Field(description="...")

    async def my_tool(game: SimpleNamespace, args: dict) -> str:
        game.seen.append(args["arg1"])
        return "Result message"

    action = MAILAction.from_pydantic_model(
        model=MyToolArgs,
        function=partial(my_tool, game),
        name="my_tool",
    )
    assert await action.function({"arg1": "x"}) == "Result message"
    assert game.seen == ["x"]
