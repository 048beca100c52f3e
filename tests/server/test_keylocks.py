"""A lock per key: one holder at a time, other keys do not wait, and nothing is kept."""

import asyncio

import pytest

from mail.server.keylocks import KeyLocks


async def test_holders_of_a_key_take_turns_and_other_keys_do_not_wait() -> None:
    locks: KeyLocks[str] = KeyLocks()
    seen: list[str] = []
    leave = asyncio.Event()

    async def hold(key: str, name: str) -> None:
        async with locks.hold(key):
            seen.append(name)
            if name == "first":
                await leave.wait()

    async with asyncio.TaskGroup() as group:
        group.create_task(hold("a", "first"))
        group.create_task(hold("a", "second"))
        await group.create_task(hold("b", "other"))
        assert seen == ["first", "other"]
        assert "a" in locks
        assert "b" not in locks
        leave.set()
    assert seen == ["first", "other", "second"]
    assert "a" not in locks


async def test_one_that_gives_up_waiting_leaves_nothing() -> None:
    locks: KeyLocks[str] = KeyLocks()
    async with locks.hold("a"):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0), locks.hold("a"):
                raise AssertionError("two holders")
        assert "a" in locks
    assert "a" not in locks
