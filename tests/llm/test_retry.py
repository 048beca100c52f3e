"""What is tried again, and when."""

import pytest

from mail.errors import ModelError
from mail.llm.retry import RetryPolicy

POLICY = RetryPolicy()


def failure(status: int | None, retry_after: float | None = None) -> ModelError:
    return ModelError("failed", status=status, retry_after=retry_after)


@pytest.mark.parametrize("status", [None, 408, 429, 500, 503, 529])
def test_what_may_heal_is_tried_again_with_full_jitter(status: int | None) -> None:
    for attempt in range(1, 6):
        pauses = {POLICY.pause(failure(status), attempt, 600) for _ in range(20)}
        assert len(pauses) > 1
        assert all(pause is not None and 0 <= pause <= 0.5 * 2**attempt for pause in pauses)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422])
def test_what_cannot_heal_is_not(status: int) -> None:
    assert POLICY.pause(failure(status), 1, 600) is None


def test_rate_limits_get_more_attempts() -> None:
    assert POLICY.pause(failure(500), 6, 600) is None
    assert POLICY.pause(failure(429), 6, 600) is not None
    assert POLICY.pause(failure(429), 8, 600) is None


def test_retry_after_is_followed_up_to_thirty_seconds() -> None:
    assert POLICY.pause(failure(429, 30.0), 1, 600) == 30.0
    assert POLICY.pause(failure(429, 30.5), 1, 600) is None
    assert POLICY.pause(failure(429, 0.0), 1, 600) == 0.0


def test_no_pause_goes_past_the_deadline() -> None:
    assert POLICY.pause(failure(429, 10.0), 1, 9.9) is None
