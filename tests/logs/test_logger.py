"""What log lines show, and what they never do."""

import io
import json
import logging
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mail.errors import ConfigError
from mail.logs.setup import (
    DailyFileHandler,
    LineFormatter,
    OwnFormatter,
    get_loggers,
    init_logger,
    redact,
)

TOKEN = "mail_eDvr3Wo7Za9cV7zEtfkS9XbiBBcCVRVKJAAeD7cY6P8"


@pytest.fixture(autouse=True)
def _clean_logging(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("MAIL_LOG_LEVEL", raising=False)
    monkeypatch.delenv("MAIL_LOG_FORMAT", raising=False)
    root, mail = logging.getLogger(), logging.getLogger("mail")
    before = (list(root.handlers), list(mail.handlers), mail.level, mail.propagate)
    yield
    for logger in (root, mail):
        for handler in logger.handlers:
            if isinstance(handler.formatter, OwnFormatter):
                handler.close()
    root.handlers, mail.handlers, level, mail.propagate = before
    mail.setLevel(level)


def logged(message: str, *values: object, exc_info: bool = False) -> str:
    stream = io.StringIO()
    init_logger(log_dir=None, stream=stream, log_format="human")
    logging.getLogger("mail.test").error(message, *values, exc_info=exc_info)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"got {TOKEN} from", TOKEN),
        ("Authorization: Bearer abc.def-ghi", "abc.def-ghi"),
        ("{'authorization': 'Basic dTpw'}", "dTpw"),
        ("header bearer eyJhbGciOi.x.y was bad", "eyJhbGciOi.x.y"),
        ("key sk-ant-api03-AbCdEf012345 refused", "AbCdEf012345"),
        ("open postgresql://mail:hunter2@db:5432/x failed", "hunter2"),
        ("open postgresql://mail:hun/t@er2@db:5432/x failed", "t@er2"),
        ("get http://u:hunter2@host:80/path", "hunter2"),
        ('{"api_key": "hunter2"}', "hunter2"),
        ("password=hunter2 host=db", "hunter2"),
    ],
)
def test_a_secret_never_reaches_a_line(text: str, secret: str) -> None:
    line = logged(text)
    assert secret not in line
    assert "[redacted]" in line


def test_ordinary_text_is_left_alone() -> None:
    text = "task user:alice@alpha at http://localhost:8000/task/a@b has max_tokens=9 mail_ready"
    assert redact(text) == text


def test_a_text_cannot_forge_a_line_nor_command_the_terminal() -> None:
    line = logged("subject %s", "a\r\n2026-01-01 ERROR mail.server  forged\x1b[31m")
    assert line.count("\n") == 1
    assert "\\r\\n2026" in line
    assert "\x1b" not in line


def test_markup_is_just_text() -> None:
    assert logged("body %s", "[/red] </body> [bold]x").endswith("body [/red] </body> [bold]x\n")


def record_line(name: str, **extra: object) -> str:
    stream = io.StringIO()
    init_logger(log_dir=None, stream=stream)
    formatter = LineFormatter()
    record = logging.makeLogRecord({"name": name, "msg": "agent failed", **extra})
    return formatter.format(record).partition("  ")[2]


def test_the_data_of_our_records_follows_their_text() -> None:
    line = record_line("mail.x", agent="boss", status=None, pause=0.51249, reason='no "key" = 401')
    assert line == r'agent failed agent=boss status=- pause=0.512 reason="no \"key\" = 401"'
    assert record_line("mail", empty="") == 'agent failed empty=""'


def test_data_shows_no_secret_and_forges_no_line() -> None:
    values = {"reason": f"got {TOKEN}", "user_token": "hunter2", "api_key": "hunter2"}
    line = record_line("mail.x", **values, note="a\r\nforged\x1b[31m")
    assert TOKEN not in line
    assert "hunter2" not in line
    assert "user_token=[redacted] api_key=[redacted]" in line
    assert "\n" not in line
    assert "\x1b" not in line


def test_the_data_of_other_libraries_is_not_shown() -> None:
    assert record_line("uvicorn.error", color_message="x") == "agent failed"
    assert record_line("mailbox", note="x") == "agent failed"


def test_a_traceback_is_indented_and_redacted() -> None:
    try:
        int(f"bad\nkey {TOKEN}")
    except ValueError:
        text = logged("failed", exc_info=True)
    assert TOKEN not in text
    assert all(line.startswith("    | ") for line in text.splitlines()[1:])


def test_other_handlers_stay_and_a_second_call_does_not_double_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = logging.StreamHandler(io.StringIO())
    library, root = logging.getLogger("some.library"), logging.getLogger()
    library.addHandler(foreign)
    monkeypatch.setattr(root, "handlers", [foreign])  # without those of pytest
    try:
        stream = io.StringIO()
        init_logger(log_dir=tmp_path, stream=stream)
        init_logger(log_dir=tmp_path, stream=stream)
        logging.getLogger("mail.test").info("once")
        assert stream.getvalue().count("once") == 1
        assert library.handlers == [foreign]
        assert library.propagate
        assert root.handlers == [foreign]
    finally:
        library.removeHandler(foreign)


def test_lines_go_to_a_file_of_the_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # without those of pytest
    folder = tmp_path / "logs"
    init_logger(log_dir=folder, stream=io.StringIO(), log_format="human")
    logging.getLogger("mail.test").info("kept %s", TOKEN)
    logging.getLogger("other").warning("kept too")
    (file,) = folder.glob("mail_????-??-??.log")
    text = file.read_text()
    assert "INFO    mail.test  kept mail_[redacted]" in text
    assert "WARNING other  kept too" in text


def test_the_log_is_its_owners_alone_and_what_exists_keeps_its_permissions(tmp_path: Path) -> None:
    before = os.umask(0o000)
    try:
        (tmp_path / "shared").mkdir(0o755)
        for folder in ("srv/logs", "shared"):
            handler = DailyFileHandler(tmp_path / folder)
            for day in (0, 365):  # the first file, and the one that another day begins
                record = logging.LogRecord("mail", logging.INFO, "", 0, "kept", None, None)
                record.created = day * 86_400.0
                handler.handle(record)
            handler.close()
    finally:
        os.umask(before)
    modes = {
        str(path.relative_to(tmp_path)): f"{stat.S_IMODE(path.stat().st_mode):o}"
        for path in tmp_path.glob("*/**/*")
    }
    assert modes == {
        "srv/logs": "700",
        "srv/logs/mail_1970-01-01.log": "600",
        "srv/logs/mail_1971-01-01.log": "600",
        "shared/mail_1970-01-01.log": "600",
        "shared/mail_1971-01-01.log": "600",
    }
    assert stat.S_IMODE((tmp_path / "shared").stat().st_mode) == 0o755


def test_the_level_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAIL_LOG_LEVEL", "debug")
    init_logger(log_dir=None, stream=io.StringIO())
    assert logging.getLogger("mail").level == logging.DEBUG
    monkeypatch.setenv("MAIL_LOG_LEVEL", "loud")
    with pytest.raises(ConfigError, match="MAIL_LOG_LEVEL must be one of DEBUG"):
        init_logger(log_dir=None)


def test_the_names_of_all_loggers_are_listed() -> None:
    logging.getLogger("mail.listed")
    assert "mail.listed" in get_loggers()


class Terminal(io.StringIO):
    """A stream that says that people read it."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("asked", "variable", "stream", "human"),
    [
        (None, None, Terminal, True),
        (None, None, io.StringIO, False),
        ("auto", None, Terminal, True),
        ("auto", "human", io.StringIO, False),
        ("human", None, io.StringIO, True),
        ("json", "human", Terminal, False),
        (None, "human", io.StringIO, True),
        (None, " JSON ", Terminal, False),
    ],
)
def test_who_reads_a_stream_decides_how_lines_look_unless_a_form_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, asked: str | None, variable: str | None, stream, human: bool
) -> None:
    if variable is not None:
        monkeypatch.setenv("MAIL_LOG_FORMAT", variable)
    out = stream()
    init_logger(log_dir=None, stream=out, log_format=asked)
    logging.getLogger("mail.test").info("said")
    assert out.getvalue().startswith("{") is not human


def test_files_are_json_unless_a_form_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    init_logger(log_dir=tmp_path, stream=Terminal())
    logging.getLogger("mail.test").info("first \ud800")
    monkeypatch.setenv("MAIL_LOG_FORMAT", "human")
    init_logger(log_dir=tmp_path, stream=Terminal())
    logging.getLogger("mail.test").info("second \ud800")
    (file,) = tmp_path.glob("mail_*.log")
    first, second = file.read_text(encoding="utf-8").splitlines()
    assert json.loads(first)["message"] == "first \ud800"
    assert second.endswith("INFO    mail.test  second \\ud800")


def test_an_unknown_form_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAIL_LOG_FORMAT", "xml")
    with pytest.raises(ConfigError, match="MAIL_LOG_FORMAT must be one of auto, human, json"):
        init_logger(log_dir=None)


def test_on_a_full_disk_stderr_has_one_line_and_no_secret(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    day = datetime.now(UTC)
    names = [f"mail_{day + timedelta(days=n):%Y-%m-%d}.log" for n in (0, 1)]
    for name in names:
        (tmp_path / name).symlink_to("/dev/full")
    init_logger(log_dir=tmp_path, stream=io.StringIO(), log_format="human")
    logger = logging.getLogger("mail.test")
    for _ in range(3):
        logger.error("got %s", TOKEN, exc_info=ValueError(f"key {TOKEN}"))
    assert capsys.readouterr().err == ("mail: the log cannot be written: No space left on device\n")
    for name in names:  # there is room again
        (tmp_path / name).unlink()
    logger.error("once more")
    written = "".join(path.read_text() for path in tmp_path.iterdir())
    assert written.count("\n") == 1
    assert "once more" in written


def test_a_console_that_is_gone_says_nothing_of_the_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        init_logger(log_dir=None, stream=full, log_format="human")
        logging.getLogger("mail.test").error("got %s", TOKEN)
        told = capsys.readouterr().err
        logging.getLogger("mail").handlers.clear()
        with suppress(OSError):
            full.close()
    assert told == "mail: the log cannot be written: No space left on device\n"


def written(handler: DailyFileHandler, day: int, text: str) -> None:
    record = logging.LogRecord("mail", logging.INFO, "", 0, text, None, None)
    record.created = day * 86_400.0
    handler.handle(record)


def sizes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in sorted(folder.iterdir())}


def test_all_files_together_stay_within_the_cap_and_the_oldest_go(tmp_path: Path) -> None:
    (tmp_path / "notes.log").write_text("x" * 5000)  # of somebody else
    handler = DailyFileHandler(tmp_path, 10_000)
    for day in range(3):
        for number in range(80):
            written(handler, day, f"{day} {number:02}".ljust(99))
            own = sum(sizes(tmp_path).values()) - 5000
            assert own <= 10_000
    handler.close()
    assert sizes(tmp_path) == {
        "mail_1970-01-02_0006.log": 1000,
        "mail_1970-01-02_0007.log": 1000,
        **{f"mail_1970-01-03{part}.log": 1000 for part in ("", *(f"_{n:04}" for n in range(1, 8)))},
        "notes.log": 5000,
    }
    kept = [path for path in sorted(tmp_path.iterdir()) if path.name != "notes.log"]
    lines = "".join(path.read_text() for path in kept).splitlines()
    assert [line.strip() for line in lines] == [  # the newest, each once and in order
        *(f"1 {number:02}" for number in range(60, 80)),
        *(f"2 {number:02}" for number in range(80)),
    ]


def test_a_server_that_starts_again_goes_on_in_the_last_file_and_deletes_what_is_too_much(
    tmp_path: Path,
) -> None:
    (tmp_path / "mail_1969-12-30.log").write_text("x" * 500)
    (tmp_path / "mail_1969-12-31.log").write_text("x" * 20_000)  # of an earlier version
    (tmp_path / "mail_1970-01-01.log").write_text("x" * 1500)
    (tmp_path / "mail_1970-01-01_0001.log").write_text("x" * 500)
    for _ in range(2):
        handler = DailyFileHandler(tmp_path, 10_000)
        written(handler, 0, "kept".ljust(99))
        handler.close()
    assert sizes(tmp_path) == {"mail_1970-01-01.log": 1500, "mail_1970-01-01_0001.log": 700}


def test_without_a_cap_a_day_has_one_file_and_nothing_is_deleted(tmp_path: Path) -> None:
    (tmp_path / "mail_1969-12-31.log").write_text("x" * 20_000)
    handler = DailyFileHandler(tmp_path, 0)
    for _ in range(2):
        written(handler, 0, "x" * 5_000)
    handler.close()
    assert sizes(tmp_path) == {"mail_1969-12-31.log": 20_000, "mail_1970-01-01.log": 10_002}
