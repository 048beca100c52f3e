"""A little of the simulation of the mail desk; ``make soak`` does a hundred thousand operations."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from mail.db.desk import DeskPost, LetterFilter, LetterRow, PageRow, ReceiptRow
from mail.db.memory import MemoryStore
from mail.db.store import Store
from tests.e2e.desk_simulation import (
    Found,
    Simulation,
    beside_model,
    fresh_server,
    make_model,
    names_of,
    on_a_server,
)
from tests.e2e.evidence import report

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

SEED = 14


async def test_participants_see_what_the_model_says_whenever_the_server_dies(
    tmp_path: Path,
) -> None:
    figures = await on_a_server(tmp_path, 300, 2, seed=SEED)
    report(f"seed {SEED}: {figures}")
    assert figures.kills == 2 and figures.letters > 50 and figures.turns > 5 and figures.files > 3


async def test_participants_see_the_same_with_postgresql(tmp_path: Path, dsn: str) -> None:
    figures = await on_a_server(tmp_path, 200, 1, seed=SEED, dsn=dsn)
    report(f"seed {SEED}: {figures}")
    assert figures.kills == 1 and figures.letters > 20 and figures.turns > 3 and figures.files > 2


class MarksNothing(MemoryStore):
    """Forgets what a page with a request's id showed."""

    async def show_letters(
        self,
        swarm: str,
        name: str,
        letter_ids: Sequence[str],
        moment: str,
        page: PageRow | None = None,
    ) -> bool:
        return await super().show_letters(swarm, name, [] if page else letter_ids, moment, page)


class KeepsMembers(MemoryStore):
    """Removes nobody from a thread."""

    async def post_letters(self, post: DeskPost) -> list[int]:
        post.left = ()
        return await super().post_letters(post)


class OldestFirst(MemoryStore):
    """Has a page in the wrong order."""

    async def letters(
        self, swarm: str, name: str, which: LetterFilter, **options: Any
    ) -> list[tuple[LetterRow, ReceiptRow]]:
        return (await super().letters(swarm, name, which, **options))[::-1]


@pytest.mark.parametrize("broken", [MarksNothing, KeepsMembers, OldestFirst])
async def test_a_broken_desk_is_found(
    broken: Callable[[], Store],
) -> None:
    names = names_of(4)
    async with fresh_server(names, broken()) as (wire, requests):
        simulation = Simulation(SEED, wire, make_model(names), requests)
        with pytest.raises(Found) as found:
            await beside_model(simulation, 2000, 0)
    assert f"seed {SEED}" in str(found.value)
