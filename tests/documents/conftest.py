"""The fake provider in the place of every real one, and swarms that are shut down at the end."""

from collections.abc import AsyncIterator, Callable

import pytest

from mail import MAILSwarm
from tests.documents import guide_game
from tests.documents.support import NAMES
from tests.providers.conftest import provider
from tests.support.provider import FakeProvider

__all__ = ["Keep", "game", "keep", "provider"]

Keep = Callable[[MAILSwarm], MAILSwarm]


@pytest.fixture
async def keep() -> AsyncIterator[Keep]:
    """A function that returns the swarm it is given, and has it shut down after the test."""
    kept: list[MAILSwarm] = []

    def hold(swarm: MAILSwarm) -> MAILSwarm:
        kept.append(swarm)
        return swarm

    yield hold
    for swarm in kept:
        await swarm.shutdown(grace=0)


@pytest.fixture
async def game(provider: FakeProvider, keep: Keep) -> guide_game.MyGame:
    """The game of the nine steps among four players, before its first step."""
    provider.script = guide_game.SCRIPT
    made = guide_game.MyGame.create([{"name": name, "personality": "Plays"} for name in NAMES])
    keep(made.swarm)
    return made
