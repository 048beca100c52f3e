"""A clock that stands still until a test moves it, and ids that are the same in every run."""

from datetime import UTC, datetime, timedelta

from mail.clock import format_uuid

_START = datetime(2026, 1, 1, 12, tzinfo=UTC)


class FakeClock:
    """A `mail.clock.Clock` for tests.

    Args:
        start: The time at first, with a time zone.
        seed: Tells the ids of several clocks apart that write into one store.

    >>> clock = FakeClock()
    >>> clock.advance(minutes=5)
    >>> clock.now()
    '2026-01-01T12:05:00+00:00'
    """

    def __init__(self, start: datetime = _START, *, seed: int = 0) -> None:
        self._now = start.astimezone(UTC)
        self._seed = seed
        self._made = 0

    def now(self) -> str:
        """Return the time as RFC 3339 text in UTC."""
        return self._now.isoformat()

    def new_id(self) -> str:
        """Return the next id; the n-th of a clock is always the same."""
        self._made += 1
        value = self._seed.to_bytes(8, "big") + self._made.to_bytes(8, "big")
        return format_uuid(value, version=8)

    def advance(self, seconds: float = 0.0, *, minutes: float = 0.0, hours: float = 0.0) -> None:
        """Move the time on."""
        self._now += timedelta(seconds=seconds, minutes=minutes, hours=hours)
