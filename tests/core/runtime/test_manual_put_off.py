"""A step that the store put off does not happen once its driver was told that it will not."""

import asyncio

import pytest

from mail.db import open_store
from mail.db.records import Owner
from mail.errors import StoreError, TaskError, TaskPaused
from tests.core.runtime.players import REVIEW, Players, begin, finish, playing, resume, step, until
from tests.core.runtime.virtual import run_virtually
from tests.support.stores import HookedStore


class Forgetful(HookedStore):
    """A store whose reads of bob's history fail a number of times."""

    failing = 0

    async def history(self, owner: Owner, task_id: str, agent: str) -> list[str]:
        """See `mail.db.store.Store.history`."""
        if agent == "bob" and self.failing:
            self.failing -= 1
            raise StoreError("the disk is unwell")
        return await self._store.history(owner, task_id, agent)


@pytest.mark.parametrize("how", ["pause", "end"])
def test_a_step_that_the_store_put_off_does_not_happen_once_its_driver_was_told(
    how: str,
) -> None:
    async def scenario() -> None:
        base = open_store("memory://")
        await base.open()
        store, players = Forgetful(base), Players()
        async with playing(players, store=store) as game:
            players.lines["narrator"] = [finish("the first round is over")]
            await step(game, "narrator")
            store.failing = 1
            put_off = begin(game, "bob", "narrator", payload="put off")
            await until(lambda: not store.failing)
            if how == "pause":
                players.lines["ann"] = [REVIEW, "words of ann"]
                with pytest.raises(TaskPaused):
                    await step(game, "ann", "narrator")
                with pytest.raises(TaskPaused):
                    await put_off
                await resume(game)
            else:
                players.lines["narrator"] = [finish("the second round is over")]
                await step(game, "narrator")
                with pytest.raises(TaskError):
                    await put_off
                await step(game, "cid", "ann", payload="third round")
            await asyncio.sleep(100)
            await game.await_queue_empty()
            assert players.shown["bob"] == []

    run_virtually(scenario())
