"""Calendar files, and what models write and read of times."""

import threading
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from mail.errors import ToolError
from mail.stdlib.email.calendars import CalendarFile, describe_day, read_dates, read_meeting

BERLIN = ZoneInfo("Europe/Berlin")
MEETING: dict[str, Any] = {
    "attendees": ["ben@example.org"],
    "title": "Plan, the; day\\ \N{PARTY POPPER} " + "long " * 40,
    "start_time": "2026-03-09T12:00:00",
    "end_time": "2026-03-09T13:00:00",
    "organizer_email": "ann@example.org",
    "timezone": "Europe/Berlin",
}
FOREIGN = """BEGIN:VCALENDAR
VERSION:2.0
PRODID:-//other//EN
BEGIN:VEVENT
UID:weekly
DTSTART;TZID=Europe/Berlin:20260302T100000
DTEND;TZID=Europe/Berlin:20260302T103000
RRULE:FREQ=WEEKLY
EXDATE;TZID=Europe/Berlin:20260316T100000
SUMMARY:Team
END:VEVENT
BEGIN:VEVENT
UID:floating
DTSTART:20260309T150000
DURATION:PT3H
SUMMARY:Dent
 ist
END:VEVENT
BEGIN:VEVENT
UID:day
DTSTART;VALUE=DATE:20260309
SUMMARY:Holiday
END:VEVENT
END:VCALENDAR
"""


def day(calendar: CalendarFile, number: int) -> str:
    start = datetime(2026, 3, number, tzinfo=BERLIN)
    events = calendar.events(start, start + timedelta(days=1))
    return describe_day(start.date(), events, BERLIN)


def test_a_day_tells_its_events_and_free_hours(tmp_path: Path) -> None:
    file = tmp_path / "calendar.ics"
    file.write_text(FOREIGN.replace("\n", "\r\n"))
    calendar = CalendarFile(file)
    assert day(calendar, 9).splitlines() == [
        "Monday, 09-03-2026 (Europe/Berlin):",
        "- all day: Holiday",
        "- 10:00 to 10:30: Team",
        "- 15:00 to 18:00: Dentist",
        "Free between 09:00 and 17:00: 09:00 to 10:00, 10:30 to 15:00",
    ]
    assert "no events" in day(calendar, 16)  # the series leaves that day out
    assert "Team" in day(calendar, 23)


def test_what_is_added_is_read_again_beside_what_was_there(tmp_path: Path) -> None:
    file = tmp_path / "calendar.ics"
    file.write_text(FOREIGN)
    CalendarFile(file).add(read_meeting(MEETING))
    start = datetime(2026, 3, 9, 11, 30, tzinfo=BERLIN)
    titles = {one.title for one in CalendarFile(file).events(start, start + timedelta(hours=1))}
    assert titles == {" ".join(MEETING["title"].split()), "Holiday"}
    assert "Team" in day(CalendarFile(file), 9)


def test_many_writers_lose_nothing(tmp_path: Path) -> None:
    def write(number: int) -> None:
        CalendarFile(tmp_path / "c.ics").add(read_meeting(MEETING | {"title": f"m{number}"}))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    start = datetime(2026, 3, 9, 12, tzinfo=BERLIN)
    found = CalendarFile(tmp_path / "c.ics").events(start, start + timedelta(hours=1))
    assert {one.title for one in found} == {f"m{number}" for number in range(16)}
    assert [path.name for path in tmp_path.iterdir() if "calendar-" in path.name] == []


@pytest.mark.parametrize("content", ["", "nonsense", "BEGIN:VEVENT\nEND:VEVENT", "BEGIN:VCALENDAR"])
def test_a_file_that_is_no_calendar_is_refused_and_kept(tmp_path: Path, content: str) -> None:
    file = tmp_path / "calendar.ics"
    file.write_text(content)
    with pytest.raises(ToolError, match="no iCalendar file"):
        CalendarFile(file).add(read_meeting(MEETING))
    assert file.read_text() == content


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"attendees": []}, "'attendees' must be a list of 1 to 50"),
        ({"attendees": ["a@b.org\nX: y"]}, "'attendees' must be an email address"),
        ({"title": " "}, "'title' must be a text"),
        ({"start_time": "tomorrow"}, "'start_time' must be a time such as"),
        ({"end_time": "2026-03-09T12:00:00"}, "'end_time' must be after"),
        ({"end_time": "2027-03-09T12:00:00"}, "'end_time' must be after"),
        ({"timezone": "Mars"}, "'timezone' must be a name such as"),
        ({"timezone": "../../etc/passwd"}, "'timezone' must be a name such as"),
        ({"organizer_email": None}, "'organizer_email' must be an email address"),
        ({"start_time": "0001-01-01T00:00:00+14:00"}, "outside of what calendars hold"),
    ],
)
def test_a_meeting_that_makes_no_sense_is_refused(changed: dict[str, Any], text: str) -> None:
    with pytest.raises(ToolError, match=text):
        read_meeting(MEETING | changed)


def test_days_are_read_as_the_tool_takes_them() -> None:
    assert read_dates(["09-03-2026", "01-03-2026", "09-03-2026"]) == [
        date(2026, 3, 1),
        date(2026, 3, 9),
    ]
    for bad in (None, [], "09-03-2026", ["2026-03-09"], ["31-02-2026"], ["01-01-2026"] * 32):
        with pytest.raises(ToolError, match="DD-MM-YYYY"):
            read_dates(bad)
