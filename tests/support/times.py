"""Times of events and their numbers, a clock that nobody should trust, and short pauses."""

import asyncio
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from random import Random

from mail.clock import SystemClock
from mail.core.events import TaskEvent
from mail.testing import FakeClock

_FORM = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?\+00:00")


class WanderingClock(FakeClock):
    """A clock that goes on by some steps and back by others. Its ids are random."""

    def __init__(self, dice: Random) -> None:
        super().__init__()
        self._dice = dice

    def now(self) -> str:
        """Return the time after one more step."""
        self.advance(self._dice.choice((0.0, 0.5, 3.0, -1.0, -20.0)))
        return super().now()

    def new_id(self) -> str:
        """Return an id that no other clock has given."""
        return SystemClock().new_id()


async def a_while(seconds: float) -> None:
    """Sleep in twenty steps: where the machine stands still meanwhile, one of them is longer."""
    for _ in range(20):
        await asyncio.sleep(seconds / 20)


def actor_of(event: TaskEvent) -> str:
    """Return whose event it is; the system acts in many places at the same time."""
    message = event.extra.get("full_message")
    if message is not None:
        sender = message["message"]["sender"]
        return f"{sender['address_type']}:{sender['address']}"
    caller = event.extra.get("caller")
    return f"agent:{caller}" if caller else "system"


def check_times(events: Sequence[TaskEvent]) -> None:
    """Check that times have the promised form, and never decrease for any one agent."""
    latest: dict[str, str] = {}
    for event in events:
        assert _FORM.fullmatch(event.timestamp), event
        actor = actor_of(event)
        if actor.startswith("system"):
            continue
        assert event.timestamp >= latest.get(actor, ""), (actor, event, latest[actor])
        latest[actor] = event.timestamp


def moment(seconds: float) -> str:
    """Return the time so many seconds after a `FakeClock` begins."""
    start = datetime(2026, 1, 1, 12, tzinfo=UTC)
    return (start + timedelta(seconds=seconds)).isoformat()
