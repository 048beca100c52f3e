"""Meetings and calendars: times that people write, calendar files, and what a day looks like."""

import os
import tempfile
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from mail.errors import ToolError
from mail.stdlib.email.messages import (
    MAX_RECIPIENTS,
    check_address,
    check_text,
    one_line,
)

if TYPE_CHECKING:
    from icalendar import Calendar

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows: one process at a time writes
    fcntl = None  # type: ignore[assignment]

_MOST_DAYS: Final = 31
_MOST_EVENTS: Final = 200
_MOST_BYTES: Final = 16 * 1024 * 1024
_LONGEST_MEETING: Final = timedelta(days=14)
_PRODUCT: Final = "-//MAIL//email assistant//EN"
_HOURS: Final = (time(9), time(17))
_NEED_ICALENDAR: Final = (
    "calendar files need a package that is not installed; the operator must install "
    "'mail-protocol[email]'"
)


@dataclass(frozen=True, slots=True)
class Event:
    """An entry of a calendar: two times with their zones, and a title of one line."""

    start: datetime
    end: datetime
    title: str
    all_day: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """A meeting to be put into a calendar; ``timezone`` is an IANA name."""

    uid: str
    title: str
    start: datetime
    end: datetime
    organizer: str
    attendees: tuple[str, ...]
    timezone: str


# --- what models write --------------------------------------------------------------------------


def read_zone(name: object) -> ZoneInfo:
    """Return the time zone of an IANA name such as ``Europe/Berlin``.

    Raises:
        ToolError: there is no such zone.
    """
    try:
        return ZoneInfo(str(name))
    except (ValueError, OSError, KeyError):  # ZoneInfoNotFoundError is a KeyError
        shown = one_line(str(name), 40)
        raise ToolError(f"'timezone' must be a name such as Europe/Berlin, got '{shown}'") from None


def read_dates(dates: object) -> list[date]:
    """Read days in the form DD-MM-YYYY; each is there once, in order.

    Raises:
        ToolError: it is no such list, or too long.
    """
    if not isinstance(dates, list) or not 1 <= len(dates) <= _MOST_DAYS:
        raise ToolError(f"'dates' must be a list of 1 to {_MOST_DAYS} days, DD-MM-YYYY")
    found = []
    for text in dates:
        try:
            found.append(datetime.strptime(str(text), "%d-%m-%Y").replace(tzinfo=UTC).date())
        except ValueError:
            shown = one_line(str(text), 40)
            raise ToolError(f"a day must have the form DD-MM-YYYY, got '{shown}'") from None
    return sorted(set(found))


def read_meeting(args: dict[str, Any]) -> Meeting:
    """Read the arguments of ``schedule_meeting_tool``.

    Raises:
        ToolError: naming the argument and what it must be.
    """
    zone = read_zone(args.get("timezone"))
    start, end = (_read_time(args.get(name), name, zone) for name in ("start_time", "end_time"))
    if not start < end <= start + _LONGEST_MEETING:
        raise ToolError("'end_time' must be after 'start_time', and within 14 days of it")
    given = args.get("attendees")
    if not isinstance(given, list) or not 1 <= len(given) <= MAX_RECIPIENTS:
        raise ToolError(f"'attendees' must be a list of 1 to {MAX_RECIPIENTS} email addresses")
    attendees = dict.fromkeys(check_address(one, "attendees") for one in given)
    return Meeting(
        uid=f"{uuid.uuid4()}@mail",
        title=one_line(check_text(args.get("title"), "title", 300)),
        start=start,
        end=end,
        organizer=check_address(args.get("organizer_email"), "organizer_email"),
        attendees=tuple(attendees),
        timezone=zone.key,
    )


def _read_time(text: object, name: str, zone: ZoneInfo) -> datetime:
    try:
        found = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        found = None
    if found is None:
        raise ToolError(f"'{name}' must be a time such as 2026-03-09T14:00:00")
    try:
        return found.astimezone(zone) if found.tzinfo else found.replace(tzinfo=zone)
    except OverflowError:
        raise ToolError(f"'{name}' is outside of what calendars hold") from None


# --- what models read ---------------------------------------------------------------------------


def describe_day(day: date, events: Sequence[Event], zone: ZoneInfo) -> str:
    """Return a day's events and free hours as text."""
    begin, end = day_bounds(day, zone)
    today = [event for event in events if event.start < end and event.end > begin]
    lines = [f"{day:%A, %d-%m-%Y} ({zone.key}):"]
    for event in sorted(today, key=lambda event: event.start):
        when = "all day"
        if not event.all_day:
            first, last = max(event.start, begin), min(event.end, end)
            when = f"{first.astimezone(zone):%H:%M} to {last.astimezone(zone):%H:%M}"
        lines.append(f"- {when}: {event.title}")
    if not today:
        lines.append("- no events")
    free = [f"{a:%H:%M} to {b:%H:%M}" for a, b in _free(day, today, zone)]
    lines.append(f"Free between 09:00 and 17:00: {', '.join(free) or 'never'}")
    return "\n".join(lines)


def day_bounds(day: date, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """Return when a day begins and ends in a zone."""
    begin = datetime.combine(day, time.min, zone)
    return begin, datetime.combine(day + timedelta(days=1), time.min, zone)


def _free(
    day: date, events: Sequence[Event], zone: ZoneInfo
) -> Iterator[tuple[datetime, datetime]]:
    at, last = (datetime.combine(day, hour, zone) for hour in _HOURS)
    busy = (event for event in events if not event.all_day)
    for event in sorted(busy, key=lambda event: event.start):
        if event.start.astimezone(zone) > at:
            yield at, min(event.start.astimezone(zone), last)
        at = max(at, event.end.astimezone(zone))
        if at >= last:
            return
    yield at, last


# --- calendar files -----------------------------------------------------------------------------


class CalendarFile:
    """A calendar in one iCalendar file, which other programs may read and replace.

    Args:
        path: The file; it need not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writing = threading.Lock()

    def events(self, start: datetime, end: datetime) -> list[Event]:
        """Return what happens between two times, each occurrence of what is repeated.

        Raises:
            ToolError: the file cannot be read.
        """
        calendar = self._read()
        try:
            import recurring_ical_events
        except ImportError:
            raise ToolError(_NEED_ICALENDAR) from None
        try:
            found = recurring_ical_events.of(calendar, skip_bad_series=True).between(start, end)
        except (ValueError, TypeError, OverflowError) as error:
            raise ToolError(f"the calendar has an entry that cannot be read: {error}") from None
        return [_event(one, start) for one in found[:_MOST_EVENTS]]

    def add(self, meeting: Meeting) -> None:
        """Put a meeting into the file, all of it or nothing.

        Raises:
            ToolError: the file cannot be read or written.
        """
        with self._locked():
            calendar = self._read()
            calendar.add_component(_component(meeting))
            self._write(calendar.to_ical())

    def _read(self) -> "Calendar":
        empty = _empty()
        try:
            with self._path.open("rb") as file:
                content = file.read(_MOST_BYTES + 1)
        except FileNotFoundError:
            return empty
        except OSError as error:
            raise ToolError(f"the calendar cannot be read: {error.strerror}") from None
        if len(content) > _MOST_BYTES:
            raise ToolError(f"the calendar has more than {_MOST_BYTES:,} bytes")
        with suppress(ValueError, KeyError, IndexError):
            found = empty.from_ical(content)
            if isinstance(found, type(empty)):
                return found
        raise ToolError("the calendar is no iCalendar file; the operator must mend it")

    def _write(self, content: bytes) -> None:
        try:
            handle, name = tempfile.mkstemp(prefix=".calendar-", dir=self._path.parent)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                Path(name).replace(self._path)
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise
        except OSError as error:
            raise ToolError(f"the calendar cannot be written: {error.strerror}") from None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other threads and processes of ours from writing."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file = self._path.with_name(f".{self._path.name}.lock").open("wb")
        except OSError as error:
            raise ToolError(f"the calendar cannot be written: {error.strerror}") from None
        with self._writing, file:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _empty() -> "Calendar":
    """Return a calendar without entries.

    Raises:
        ToolError: the package for it is not installed.
    """
    try:
        from icalendar import Calendar
    except ImportError:
        raise ToolError(_NEED_ICALENDAR) from None
    calendar = Calendar()
    calendar.add("prodid", _PRODUCT)
    calendar.add("version", "2.0")
    return calendar


def _component(meeting: Meeting) -> Any:
    """Return a meeting as a VEVENT in UTC, which needs no definition of its zone."""
    from icalendar import Event as Component
    from icalendar import vCalAddress

    event = Component()
    event.add("uid", meeting.uid)
    event.add("dtstamp", datetime.now(UTC))
    event.add("dtstart", meeting.start.astimezone(UTC))
    event.add("dtend", meeting.end.astimezone(UTC))
    event.add("summary", meeting.title)
    event.add("organizer", vCalAddress(f"mailto:{meeting.organizer}"))
    for address in meeting.attendees:
        attendee = vCalAddress(f"mailto:{address}")
        attendee.params["RSVP"] = "TRUE"
        event.add("attendee", attendee, encode=False)
    return event


def _event(component: Any, near: datetime) -> Event:
    start, end, zone = component.start, component.end, near.tzinfo or UTC
    all_day = not isinstance(start, datetime)
    if all_day:
        start, end = (datetime.combine(one, time.min, zone) for one in (start, end))
    start = start if start.tzinfo else start.replace(tzinfo=zone)
    end = end if end.tzinfo else end.replace(tzinfo=zone)
    return Event(start, end, one_line(str(component.get("summary", ""))) or "(no title)", all_day)


def invitation(meeting: Meeting) -> bytes:
    """Return the iCalendar object that asks the attendees of a meeting to come.

    Raises:
        ToolError: the package for it is not installed.
    """
    calendar = _empty()
    calendar.add("method", "REQUEST")
    calendar.add_component(_component(meeting))
    return bytes(calendar.to_ical())
