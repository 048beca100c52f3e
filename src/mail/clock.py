"""Time and identifiers as values that can be replaced, so that tests are deterministic."""

import os
import time
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

__all__ = ["Clock", "SystemClock", "format_uuid", "later"]


class Clock(Protocol):
    """Where the runtime gets wall-clock time and fresh identifiers."""

    def now(self) -> str:
        """Return the current time as RFC 3339 text in UTC with microseconds."""

    def new_id(self) -> str:
        """Return a fresh UUID in its canonical text form."""


def later(now: str, seconds: float) -> str:
    """Return the time so many seconds after one, in the form of `Clock.now`."""
    moment = datetime.fromisoformat(now) + timedelta(seconds=seconds)
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


_IDS_AT_ONCE: Final = 64


class SystemClock:
    """The machine's clock and random UUIDs."""

    def __init__(self) -> None:
        self._second = 0, ""  # the newest one that was asked for, and how it is written
        self._random: list[bytes] = []
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
            self._random, self._process = [], os.getpid()
        while True:
            try:
                return format_uuid(self._random.pop(), version=4)
            except IndexError:
                # Many at once: each look at the system's source gives way to the other threads.
                source = os.urandom(16 * _IDS_AT_ONCE)
                self._random += [source[at : at + 16] for at in range(0, len(source), 16)]


def format_uuid(value: bytes, *, version: int) -> str:
    """Write 16 bytes as a UUID of the given version.

    The `uuid` module takes four times as long, and every message needs two or three ids.
    """
    text = value.hex()
    variant = "89ab"[value[8] >> 4 & 3]
    return f"{text[:8]}-{text[8:12]}-{version}{text[13:16]}-{variant}{text[17:20]}-{text[20:32]}"
