"""What is tried again, and when."""

from collections.abc import AsyncGenerator

import pytest

from mail.errors import ModelError
from mail.llm.fallback import Adaptations, Place, Tries
from mail.llm.request import Delta, ModelRequest
from mail.llm.retry import RetryPolicy, answered

POLICY = RetryPolicy()


def nowhere() -> Place:
    return Place.of("", "", "m/x", "completions")


def failure(status: int | None, retry_after: float | None = None) -> ModelError:
    return ModelError("failed", status=status, retry_after=retry_after)


@pytest.mark.parametrize("status", [None, 408, 429, 500, 503, 529])
def test_what_may_heal_is_tried_again_with_full_jitter(status: int | None) -> None:
    for attempt in range(1, 6):
        pauses = {POLICY.pause(failure(status), attempt, 600) for _ in range(20)}
        assert len(pauses) > 1
        assert all(pause is not None and 0 <= pause <= 0.5 * 2**attempt for pause in pauses)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422, 501])
def test_what_cannot_heal_is_not(status: int) -> None:
    assert POLICY.pause(failure(status), 1, 600) is None


def test_rate_limits_get_more_attempts() -> None:
    assert POLICY.pause(failure(500), 6, 600) is None
    assert POLICY.pause(failure(429), 6, 600) is not None
    assert POLICY.pause(failure(429), 8, 600) is None


def test_retry_after_is_followed_up_to_thirty_seconds() -> None:
    assert POLICY.pause(failure(429, 30.0), 1, 600) == pytest.approx(30.5, abs=0.5)
    assert POLICY.pause(failure(429, 30.5), 1, 600) is None


@pytest.mark.parametrize(("retry_after", "least"), [(0.0, 0.5), (0.1, 0.5), (7.0, 7.0)])
def test_callers_told_the_same_time_do_not_come_back_together(
    retry_after: float, least: float
) -> None:
    for attempt in range(1, 6):
        pauses = {POLICY.pause(failure(429, retry_after), attempt, 600) for _ in range(20)}
        assert len(pauses) > 1
        assert all(
            pause is not None and least <= pause <= least + 0.5 * 2**attempt for pause in pauses
        )


def test_no_pause_goes_past_the_deadline() -> None:
    assert POLICY.pause(failure(429, 10.0), 1, 9.9) is None


async def test_a_repeated_attempt_is_logged_with_its_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failures = [failure(500), failure(None)]

    async def attempt(seconds: float) -> AsyncGenerator[Delta, None]:
        if failures:
            raise failures.pop()
        yield Delta(text="Hello.")

    async def no_sleep(seconds: float) -> None:
        return

    with caplog.at_level("INFO", logger="mail.llm.retry"):
        request, tries = ModelRequest(model="m/x", messages=()), Tries(Adaptations(), nowhere)
        deltas = [delta async for delta in answered(attempt, request, tries, POLICY, no_sleep)]
    assert [delta.text for delta in deltas] == ["Hello."]
    known = [vars(record) for record in caplog.records]
    assert [(row["model"], row["attempt"], row["reason"]) for row in known] == [
        ("m/x", 1, "failed"),
        ("m/x", 2, "failed"),
    ]
