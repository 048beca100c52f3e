"""One timer for many waits."""

import asyncio
import socket
import time
from collections.abc import Awaitable
from typing import TypeVar

import pytest

from mail.llm.profiles import Profile
from mail.llm.retry import RetryPolicy
from mail.llm.settings import LLMSettings
from mail.llm.silence import Patience, Silence, patience_of, too_late

T = TypeVar("T")


async def soon(value: str, seconds: float = 0.0) -> str:
    await asyncio.sleep(seconds)
    return value


def watch(seconds: float, most: float = 60.0) -> Silence:
    return Silence(seconds, asyncio.get_running_loop().time() + most)


async def wait(silence: Silence, piece: Awaitable[T]) -> T:
    with silence:
        return await piece


async def test_what_comes_in_time_comes_through() -> None:
    silence = watch(5.0)
    assert [await wait(silence, soon(str(n))) for n in range(100)] == [str(n) for n in range(100)]
    silence.close()


async def test_each_wait_has_the_whole_time() -> None:
    silence = watch(0.4)
    for _ in range(5):  # together longer than one may take
        assert await wait(silence, soon("there", 0.15)) == "there"
    with pytest.raises(TimeoutError):
        await wait(silence, asyncio.Event().wait())
    silence.close()


async def test_the_end_comes_first() -> None:
    silence = watch(60.0, most=0.05)
    with pytest.raises(TimeoutError):
        await wait(silence, asyncio.Event().wait())
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]


async def test_time_between_waits_does_not_count() -> None:
    silence = watch(0.1)
    assert await wait(silence, soon("one")) == "one"
    await asyncio.sleep(0.3)
    assert await wait(silence, soon("two")) == "two"
    silence.close()


async def test_somebody_elses_cancellation_stays_one() -> None:
    silence = watch(30.0)
    waiting = asyncio.create_task(wait(silence, asyncio.Event().wait()))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    silence.close()


async def test_what_fails_fails() -> None:
    async def broken() -> None:
        raise ValueError("no")

    silence = watch(5.0)
    with pytest.raises(ValueError, match="no"):
        await wait(silence, broken())
    silence.close()


async def test_signs_of_life_begin_the_wait_anew() -> None:
    silence = watch(0.4)

    async def slow() -> str:
        for _ in range(5):
            await asyncio.sleep(0.15)
            silence.alive()
        return "at last"

    assert await wait(silence, slow()) == "at last"
    with pytest.raises(TimeoutError):
        await wait(silence, asyncio.Event().wait())


EFFORT = LLMSettings.resolve(reasoning_effort="low")


@pytest.mark.parametrize(
    ("settings", "profile", "silence", "total", "thinks"),
    [
        (LLMSettings(), Profile(), 120.0, 600.0, False),
        (EFFORT, Profile(), 600.0, 1800.0, True),
        (LLMSettings(), Profile(thinks="default"), 600.0, 1800.0, True),
        (LLMSettings(), Profile(thinks="asked"), 120.0, 600.0, False),
        (LLMSettings(), Profile(wire="responses", thinks="asked"), 600.0, 1800.0, True),
        (LLMSettings(), Profile(silence=300.0, total=900.0), 300.0, 900.0, False),
        (EFFORT, Profile(stream=False, silence=300.0, total=3600.0), None, 3600.0, True),
        (LLMSettings(timeout=5.0, deadline=7.0), Profile(thinks="always"), 5.0, 7.0, True),
        (LLMSettings(timeout=5.0), Profile(stream=False), 5.0, 600.0, False),
    ],
)
def test_a_model_is_waited_for_as_long_as_it_needs(
    settings: LLMSettings, profile: Profile, silence: float | None, total: float, thinks: bool
) -> None:
    patience = patience_of(settings, profile)
    assert patience == Patience(silence=silence, total=total, thinks=thinks)
    assert patience.read > (total if silence is None else silence)


@pytest.mark.parametrize(("thinks", "attempts"), [(True, 2), (False, 6)])
def test_thinking_is_not_paid_for_again_and_again(thinks: bool, attempts: int) -> None:
    error = too_late(thinks)
    waited = [RetryPolicy().pause(error, made, 1000.0) is not None for made in range(1, 8)]
    assert waited.count(True) == attempts - 1


async def test_without_a_limit_only_the_end_counts() -> None:
    silence = Silence(None, asyncio.get_running_loop().time() + 1.0)
    assert await wait(silence, soon("there", 0.1)) == "there"
    with pytest.raises(TimeoutError):
        await wait(silence, asyncio.Event().wait())
    silence.close()


async def test_a_loop_that_was_held_up_listens_first() -> None:
    loop = asyncio.get_running_loop()
    here, there = socket.socketpair()
    here.setblocking(False)
    silence = watch(0.3)

    def hold_up() -> None:
        there.send(b"alive")
        time.sleep(0.6)

    async def answered() -> bytes:
        piece = await loop.sock_recv(here, 10)
        await asyncio.sleep(0)  # as through the layers of a library
        await asyncio.sleep(0)
        silence.alive()
        await asyncio.sleep(0.1)
        return piece

    with here, there:
        loop.call_later(0.05, hold_up)
        assert await wait(silence, answered()) == b"alive"
        silence.close()
