"""One instance per caller: made once, evicted when idle, gone when it could not start."""

import asyncio
from typing import Any

import pytest

from mail.auth.callers import Caller
from mail.errors import ShuttingDown, StoreError
from mail.server import instances
from mail.server.errors import ServerBusy
from mail.server.instances import InstancePool, Served

ALICE, BOB, CAROL = (Caller("user", name) for name in ("alice", "bob", "carol"))


class FakeSwarm:
    """Records what the pool does to it."""

    def __init__(self, caller: Caller, token: str, failure: Exception | None) -> None:
        self.caller, self.token, self.failure = caller, token, failure
        self.idle, self.started = True, False
        self.degraded: str | None = None
        self.stopped: list[float | None] = []

    @property
    def runtime(self) -> "FakeSwarm":
        return self

    async def start(self) -> None:
        await asyncio.sleep(0)
        if self.failure:
            raise self.failure
        self.started = True

    async def shutdown(self, grace: float | None = None) -> None:
        await asyncio.sleep(0)
        self.stopped.append(grace)


class Bench:
    """A pool, its swarms and its clock."""

    def __init__(self, *, needs_token: bool = False, **options: Any) -> None:
        self.made: list[FakeSwarm] = []
        self.failure: Exception | None = None
        self.time = 0.0
        options = {"idle_seconds": 60.0} | options
        self.served = self.serve(needs_token=needs_token)
        self.pool = InstancePool(self.served, now=lambda: self.time, **options)

    def serve(self, *, needs_token: bool = False) -> Served:
        """Make something else that instances can be made of."""
        return Served(object(), self._make, needs_token)  # type: ignore[arg-type]

    async def _make(self, caller: Caller, token: str) -> FakeSwarm:
        self.made.append(FakeSwarm(caller, token, self.failure))
        return self.made[-1]

    async def use(self, caller: Caller, token: str = "") -> FakeSwarm:
        async with self.pool.lease(caller, token) as swarm:
            return swarm  # type: ignore[return-value]


async def test_concurrent_requests_of_a_caller_share_one_started_instance() -> None:
    bench = Bench()
    swarms = await asyncio.gather(*(bench.use(ALICE) for _ in range(20)))
    assert len(bench.made) == 1
    assert set(swarms) == {bench.made[0]}
    assert bench.made[0].started


async def test_callers_with_the_same_id_and_another_role_do_not_share() -> None:
    bench = Bench()
    await bench.use(ALICE)
    await bench.use(Caller("admin", "alice"))
    assert len(bench.made) == 2


async def test_an_instance_that_fails_to_start_leaves_nothing_behind() -> None:
    bench = Bench()
    bench.failure = StoreError("down")
    with pytest.raises(StoreError):
        await bench.use(ALICE)
    assert ALICE not in bench.pool._live
    assert bench.made[0].stopped == [0.0]
    bench.failure = None
    assert (await bench.use(ALICE)).started


async def test_idle_instances_are_closed_and_made_again_on_the_next_request() -> None:
    bench = Bench()
    first = await bench.use(ALICE)
    bench.time = 59.0
    assert await bench.pool.sweep() == 0
    bench.time = 61.0
    assert await bench.pool.sweep() == 1
    assert first.stopped == [None]
    assert ALICE not in bench.pool._live
    assert await bench.use(ALICE) is not first


async def test_an_instance_at_work_or_on_loan_is_not_closed() -> None:
    bench = Bench()
    (await bench.use(ALICE)).idle = False
    async with bench.pool.lease(BOB):
        bench.time = 1000.0
        assert await bench.pool.sweep() == 0
    assert len(bench.pool._live) == 2


async def test_a_full_pool_closes_the_instance_that_idled_longest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(instances, "MAX_INSTANCES", 2)
    bench = Bench()
    alice, bob = await bench.use(ALICE), await bench.use(BOB)
    await bench.use(ALICE)
    await bench.use(CAROL)
    assert bob.stopped
    assert not alice.stopped


async def test_a_pool_full_of_work_refuses_newcomers_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(instances, "MAX_INSTANCES", 2)
    bench = Bench()
    for caller in (ALICE, BOB):
        (await bench.use(caller)).idle = False
    with pytest.raises(ServerBusy):
        await bench.use(CAROL)
    await bench.use(ALICE)


async def test_newcomers_at_the_same_time_do_not_pass_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(instances, "MAX_INSTANCES", 2)
    bench = Bench()
    callers = [Caller("user", str(number)) for number in range(6)]
    await asyncio.gather(*(bench.use(caller) for caller in callers), return_exceptions=True)
    assert len(bench.pool._live) <= 2


async def test_a_closed_pool_stops_every_instance_and_makes_no_more() -> None:
    bench = Bench()
    bench.pool.start()
    swarms = [await bench.use(caller) for caller in (ALICE, BOB)]
    await asyncio.gather(bench.pool.close(3.0), bench.pool.close(9.0))
    assert [swarm.stopped for swarm in swarms] == [[3.0], [3.0]]
    with pytest.raises(ShuttingDown):
        await bench.use(CAROL)


async def test_one_instance_that_will_not_stop_does_not_keep_the_others_open() -> None:
    bench = Bench()
    broken, other = await bench.use(ALICE), await bench.use(BOB)

    async def refuse(grace: float | None = None) -> None:
        raise StoreError("down")

    broken.shutdown = refuse  # type: ignore[method-assign]
    await bench.pool.close(1.0)
    assert other.stopped == [1.0]


async def test_a_new_token_means_a_new_instance_once_the_old_one_is_idle() -> None:
    bench = Bench(needs_token=True)
    first = await bench.use(ALICE, "old")
    first.idle = False
    assert await bench.use(ALICE, "new") is first
    first.idle = True
    assert (await bench.use(ALICE, "new")).token == "new"
    assert first.stopped
