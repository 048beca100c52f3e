"""Time and identifiers as values that can be replaced, so that tests are deterministic."""

import os
import time
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol


class Clock(Protocol):
    """The runtime's source of wall-clock time and fresh identifiers."""

    def now(self) -> str:
        """Return the current time as RFC 3339 text in UTC with microseconds."""

    def new_id(self) -> str:
        """Return a fresh UUID in its canonical text form."""


def later(now: str, seconds: float) -> str:
    """Return the time so many seconds after one, in the form of `Clock.now`."""
    moment = datetime.fromisoformat(now) + timedelta(seconds=seconds)
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


_IDS_AT_ONCE: Final = 64
_ID: Final = b"xxxxxxxx-xxxx-4xxx-yxxx-xxxxxxxxxxxx "
_DIGITS: Final = {ord("x"): b"0123456789abcdef" * 16, ord("y"): b"89ab" * 64}
"""The digit of an id for each random byte."""


class SystemClock:
    """The machine's clock and random UUIDs."""

    def __init__(self) -> None:
        self._second = 0, ""  # the newest one that was asked for, and how it is written
        self._ids: list[str] = []
        self._process = 0  # whose they are: a fork must not give out the same ids

    def now(self) -> str:
        """Return the current time, for example ``2026-01-01T10:00:00.000000+00:00``."""
        seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
        known, text = self._second
        if known != seconds:
            text = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"
            self._second = seconds, text
        return f"{text}.{nanoseconds // 1000:06}+00:00"

    def new_id(self) -> str:
        """Return a random (version 4) UUID."""
        if self._process != os.getpid():
            self._ids, self._process = [], os.getpid()
        while True:
            try:
                return self._ids.pop()
            except IndexError:
                # Many at once: each look at the system's source gives way to the other threads.
                self._ids += _random_uuids(_IDS_AT_ONCE)


def _random_uuids(count: int) -> list[str]:
    """Return random (version 4) UUIDs, written digit by digit of all of them at a time."""
    written = bytearray(_ID * count)
    places = [place for place, sign in enumerate(_ID) if sign in _DIGITS]
    source = os.urandom(len(places) * count)
    for number, place in enumerate(places):
        digits = source[number * count : (number + 1) * count]
        written[place :: len(_ID)] = digits.translate(_DIGITS[_ID[place]])
    return written.decode("ascii").split()


def format_uuid(value: bytes, *, version: int) -> str:
    """Write 16 bytes as a UUID of the given version.

    The `uuid` module takes four times as long, and every message needs such ids.
    """
    text = value.hex()
    variant = "89ab"[value[8] >> 4 & 3]
    return f"{text[:8]}-{text[8:12]}-{version}{text[13:16]}-{variant}{text[17:20]}-{text[20:32]}"
