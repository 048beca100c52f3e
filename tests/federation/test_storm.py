"""Two swarms in a storm: connections drop, hang and double, servers die, and no mail is lost."""

import asyncio
import os
import random
import time
from pathlib import Path

import pytest

from tests.e2e.evidence import report
from tests.federation.storm import Side, open_jobs, post_jobs, problems, settled, two_sides

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

JOBS = int(os.environ.get("STORM_JOBS") or 40)
"""Each is two messages between the swarms, beside the notices at its end."""
KILLS = int(os.environ.get("STORM_KILLS") or 2)
"""Of each server."""
SEED = int(os.environ.get("STORM_SEED") or time.time_ns() % 1_000_000)
AFTER = 60.0
"""Seconds within which everything is done once the weather is fair."""


async def kill_both(chance: random.Random, north: Side, south: Side) -> None:
    """Kill and restart one server after the other."""
    victims = [north, south] * KILLS
    chance.shuffle(victims)
    for victim in victims:
        await asyncio.sleep(chance.uniform(0.3, 1.5))
        await victim.kill()
        await asyncio.sleep(chance.uniform(0.0, 0.5))
        await victim.start()


async def test_every_message_is_processed_once_however_the_network_and_the_servers_fail(
    tmp_path: Path,
) -> None:
    chance = random.Random(SEED)
    names = [f"job-{number}" for number in range(JOBS)]
    async with two_sides(tmp_path, chance) as (north, south):
        north.storm.rages = south.storm.rages = True
        began = time.monotonic()
        posting = asyncio.create_task(post_jobs(north, names, 16))
        await kill_both(chance, north, south)
        await posting
        left = open_jobs(north)
        north.storm.rages = south.storm.rages = False
        healed = time.monotonic()
        try:
            await settled(north, south, seconds=AFTER)
        finally:
            report(
                f"storm, seed {SEED}: {2 * JOBS} messages, {north.kills + south.kills} kills, "
                f"{healed - began:.1f} s of storm, {left} tasks left at its end, all done "
                f"{time.monotonic() - healed:.1f} s later; fates "
                f"{dict(north.storm.fates + south.storm.fates)}"
            )
        found = problems(north, south, names)
        assert not found, f"seed {SEED}: {found}"
