"""Lines as JSON objects, and on whose behalf they were written."""

import asyncio
import io
import json
import logging
import socket
import sys
from collections.abc import Iterator
from datetime import datetime

import pytest

from mail.logcontext import NOBODY, LogContext, begin, bound, current, end, note
from mail.logs.setup import ContextFilter, JSONFormatter, LineFormatter

CONTEXT = LogContext("r1", "t1", "boss", "user", "alice")


class Log:
    """A logger with a handler of ours."""

    def __init__(self, name: str, formatter: logging.Formatter) -> None:
        self.stream = io.StringIO()
        self.logger = logging.getLogger(name)
        self.handler = logging.StreamHandler(self.stream)
        self.handler.setFormatter(formatter)
        self.handler.addFilter(ContextFilter())
        self.logger.addHandler(self.handler)

    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()

    def records(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.lines()]


@pytest.fixture
def ours() -> Iterator[Log]:
    log = Log("mail.test.formats", JSONFormatter())
    yield log
    log.logger.removeHandler(log.handler)


@pytest.fixture
def foreign() -> Iterator[Log]:
    log = Log("asyncpg.pool", JSONFormatter())
    yield log
    log.logger.removeHandler(log.handler)


def test_a_record_is_one_object_with_time_level_logger_message_and_data(ours: Log) -> None:
    ours.logger.warning(
        "agent %s failed\n%s", "ä", "\x1b[31m", extra={"seconds": 0.5, "none": None}
    )
    (line,) = ours.lines()
    assert line.isascii()
    assert "\x1b" not in line
    record = json.loads(line)
    moment = datetime.fromisoformat(str(record.pop("time")))
    assert moment.utcoffset().total_seconds() == 0
    assert record == {
        "level": "WARNING",
        "logger": "mail.test.formats",
        "message": "agent ä failed\n\x1b[31m",
        "seconds": 0.5,
        "none": None,
    }


def test_data_cannot_take_the_place_of_the_fixed_fields(ours: Log) -> None:
    ours.logger.error("real", extra={"time": "forged", "level": "DEBUG", "exception": "x"})
    (record,) = ours.records()
    assert (record["level"], record["level_"]) == ("ERROR", "DEBUG")
    assert (record["time_"], record["exception_"]) == ("forged", "x")


def test_an_exception_is_text_without_secrets(ours: Log) -> None:
    try:
        int("open postgresql://me:hunter2@db/x\nkey sk-AbCdEf012345")
    except ValueError:
        ours.logger.exception("failed", extra={"api_key": "hunter2", "data": {"token": "hunter2"}})
    (record,) = ours.records()
    assert "Traceback" in str(record["exception"])
    assert "hunter2" not in ours.stream.getvalue()
    assert "AbCdEf" not in ours.stream.getvalue()


@pytest.mark.parametrize("name", ["ours", "foreign"])
def test_every_line_tells_on_whose_behalf_it_was_written(
    name: str, request: pytest.FixtureRequest
) -> None:
    log = request.getfixturevalue(name)
    before = begin(CONTEXT)
    log.logger.error("inside")
    end(before)
    log.logger.error("outside")
    inside, outside = log.records()
    assert {field: inside[field] for field in CONTEXT._fields} == CONTEXT._asdict()
    assert not CONTEXT._asdict().keys() & outside.keys()


def test_a_record_says_more_precisely_than_its_context(ours: Log) -> None:
    with bound(task_id="t1", agent="boss"):
        ours.logger.error("x", extra={"task_id": "t2"})
    (record,) = ours.records()
    assert (record["task_id"], record["agent"]) == ("t2", "boss")


def test_a_line_for_people_has_the_context_too() -> None:
    log = Log("some.library", LineFormatter())
    try:
        with bound(task_id="t 1", agent="boss"):
            log.logger.error("it broke")
    finally:
        log.logger.removeHandler(log.handler)
    assert log.lines()[0].endswith('some.library  it broke task_id="t 1" agent=boss')


def test_the_driver_of_a_database_that_is_away_writes_one_line(foreign: Log) -> None:
    try:
        socket.create_connection(("127.0.0.1", 1), 5)
    except OSError:
        foreign.logger.warning("cannot restore", exc_info=True)
        people = LineFormatter().format(
            foreign.logger.makeRecord("asyncpg.pool", 30, "", 0, "x", (), sys.exc_info())
        )
    (record,) = foreign.records()
    assert "exception" not in record
    assert str(record["reason"]).startswith("ConnectionRefusedError: ")
    assert "\n" not in people


async def test_what_is_noted_stays_in_its_own_work() -> None:
    seen: dict[str, LogContext] = {}

    async def work(name: str) -> None:
        begin(LogContext(request_id=name))
        await asyncio.sleep(0)
        note(task_id=f"task of {name}")
        await asyncio.sleep(0)
        seen[name] = current()
        seen[f"thread of {name}"] = await asyncio.to_thread(current)

    await asyncio.gather(work("a"), work("b"))
    for name in ("a", "b"):
        expected = LogContext(request_id=name, task_id=f"task of {name}")
        assert seen[name] == seen[f"thread of {name}"] == expected
    assert current() == NOBODY


def test_nothing_is_formatted_for_a_level_that_is_off(ours: Log) -> None:
    class Costly:
        def __str__(self) -> str:
            raise AssertionError("formatted")

    ours.logger.setLevel(logging.INFO)
    ours.logger.debug("%s", Costly())
    assert ours.lines() == []


def test_two_handlers_of_one_form_write_the_same_line_and_one_of_another_form_its_own(
    ours: Log,
) -> None:
    people = Log(ours.logger.name, LineFormatter())
    programs = Log(ours.logger.name, JSONFormatter())
    try:
        ours.logger.warning("paid", extra={"token": "t0p"})
    finally:
        ours.logger.removeHandler(people.handler)
        ours.logger.removeHandler(programs.handler)
    assert ours.lines() == programs.lines()
    assert json.loads(*ours.lines())["token"] == "[redacted]"
    assert people.lines()[0].endswith("mail.test.formats  paid token=[redacted]")
    assert "mail_" not in people.lines()[0]


def test_a_line_is_bounded_whatever_others_put_into_it(ours: Log) -> None:
    ours.logger.warning("GET /%s 404", "a://:" * 10_000, extra={"target": "b" * 50_000})
    (line,) = ours.lines()
    assert len(line) < 8 * 1024
    record = ours.records()[0]
    assert str(record["message"]).endswith("404")


def test_of_a_long_text_of_an_exception_the_log_keeps_the_ends_and_all_frames(ours: Log) -> None:
    def careless() -> None:
        raise KeyError("first " + "token=ab&" * 4000 + " last")

    try:
        careless()
    except KeyError:
        ours.logger.exception("it failed")
    [record] = ours.records()
    told = str(record["exception"])
    assert "in careless" in told and "first " in told and " last" in told
    assert len(told) < 8000
