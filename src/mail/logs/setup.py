"""Logging set-up for entry points. Importing this module, or any other, sets nothing up.

Where lines go decides how they look: people read a terminal, programs read everything else, unless
a form is asked for. `mail.logs.setup` has the two forms. Handlers of other libraries stay as
they are.
"""

import json
import logging
import os
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from io import BufferedWriter
from json.encoder import encode_basestring_ascii as _quoted
from pathlib import Path
from typing import Any, Final, TextIO

from mail.config.env import LOG_FORMAT, LOG_LEVEL, setting
from mail.errors import ConfigError
from mail.logcontext import NOBODY, LogContext, current
from mail.redaction import (
    HIDDEN,
    environment_secrets,
    harmless,
    is_secret_name,
    redact,
    redact_long,
    redacted,
    without,
)

__all__ = [
    "FORMATS",
    "LEVELS",
    "ContextFilter",
    "DailyFileHandler",
    "JSONFormatter",
    "LineFormatter",
    "OwnFormatter",
    "get_loggers",
    "init_logger",
    "redact",
]

_OURS: Final = "mail"
_DRIVER: Final = "asyncpg"
_STAMP: Final = "mail_context"
_RENDERED: Final = "mail_rendered"
_STANDARD: Final = frozenset(
    {*vars(logging.makeLogRecord({})), "message", "asctime", _STAMP, _RENDERED}
)
_FIXED: Final = ("time", "level", "logger", "message")
_LAST: Final = ("exception", "stack")
_TRACE: Final = 16 * 1024
"""The longest traceback that is shown whole; of a longer one the long lines are cut first."""
_LINE: Final = 4 * 1024
_BARE: Final = re.compile(r"[^\s\"'=]+")
_PARTS: Final = 10
"""A file of the log has at most this part of all of them, so that little is deleted at once."""
_FILE_NAME: Final = re.compile(r"(mail_\d{4}-\d\d-\d\d)(?:_(\d{4,9}))?\.log", re.ASCII)
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")


class ContextFilter(logging.Filter):
    """Stamps each record of a handler with the context that it was written in; drops none."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Stamp the record, unless another handler has."""
        if not hasattr(record, _STAMP):
            setattr(record, _STAMP, current())
        return True


class OwnFormatter(logging.Formatter, ABC):
    """The common part of the two forms, and how our handlers are told from others."""

    def __init__(self) -> None:
        """Hide what is a secret of the environment by now."""
        super().__init__()
        values = environment_secrets()
        self._known = values | {json.dumps(value)[1:-1] for value in values}

    def format(self, record: logging.LogRecord) -> str:
        """Return the record in this form; made once, for the console and the file often agree."""
        rendered: dict[type, str] = record.__dict__.setdefault(_RENDERED, {})
        form = type(self)
        if form not in rendered:
            rendered[form] = without(self._known, self._render(record))
        return rendered[form]

    @abstractmethod
    def _render(self, record: logging.LogRecord) -> str: ...

    def _fields(self, record: logging.LogRecord) -> list[tuple[str, Any]]:
        """Return the context, and what one of our own records carries beside its text.

        What other libraries' records carry is not shown: nobody knows what it is.
        """
        ours = record.name.partition(".")[0] == _OURS
        data = {}
        if ours and not vars(record).keys() <= _STANDARD:
            data = {k: v for k, v in vars(record).items() if k not in _STANDARD}
        context: LogContext = getattr(record, _STAMP, NOBODY)
        known = zip(LogContext._fields, context, strict=True)
        fields = [(name, value) for name, value in known if value and name not in data]
        fields.extend(data.items())
        if record.exc_info and _passing(record):
            error = record.exc_info[1]
            fields.append(("reason", f"{type(error).__name__}: {error}"))
        return fields

    def _traces(self, record: logging.LogRecord) -> Iterator[tuple[str, str]]:
        if record.exc_info and record.exc_info[0] is not None and not _passing(record):
            yield _LAST[0], _trace(self.formatException(record.exc_info))
        if record.stack_info:
            yield _LAST[1], _trace(self.formatStack(record.stack_info))


def _trace(text: str) -> str:
    """Return a traceback without secrets; of a long one, or of a long line in it, only the ends."""
    if _TRACE < len(text) <= 4 * _TRACE:
        lines = text.split("\n")
        text = "\n".join(redact_long(line) if len(line) > _LINE else line for line in lines)
    return redact_long(text, _TRACE)


class LineFormatter(OwnFormatter):
    """One readable line per record; a traceback follows it indented and just as harmless.

    There are no secrets, forged lines or terminal codes in it.
    """

    def _render(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        data = "".join(
            f" {redact(key)}={_shown(key, value)}" for key, value in self._fields(record)
        )
        message = redact_long(record.getMessage()) + data
        line = f"{time}Z {record.levelname:<7} {record.name}  {_CONTROL.sub(_escape, message)}"
        traces = [text.replace("\r\n", "\n").split("\n") for _, text in self._traces(record)]
        indented = (f"\n    | {_CONTROL.sub(_escape, each)}" for lines in traces for each in lines)
        return line + "".join(indented)


class JSONFormatter(OwnFormatter):
    """One JSON object per record, in ASCII.

    ``time`` (RFC 3339, UTC), ``level``, ``logger``, ``message``; then those that are known of
    ``request_id``, ``task_id``, ``agent``, ``caller_role`` and ``caller_id``; then the record's own
    data, and ``exception`` with the traceback.
    """

    def _render(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields = self._fields(record)
        message = record.getMessage()
        as_it_is = harmless([message, *[value for _, value in fields]])  # most lines, in one go
        line: dict[str, Any] = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": message if as_it_is else redact_long(message),
        }
        for key, value in fields:
            name, secret = _json_name(key)
            if secret and value is not None:
                line[name] = HIDDEN
            else:
                line[name] = value if as_it_is else redacted(value)
        line.update(self._traces(record))
        if as_it_is:  # all of it is text
            pairs = [f"{_quoted(name)}: {_quoted(value)}" for name, value in line.items()]
            return f"{{{', '.join(pairs)}}}"
        return json.dumps(line)


@lru_cache(maxsize=1024)  # names are constants of the code
def _json_name(key: str) -> tuple[str, bool]:
    """Return the name of a field in JSON, and whether it is that of a secret."""
    name = redact(key)
    return f"{name}_" if name in _FIXED or name in _LAST else name, is_secret_name(key)


def _passing(record: logging.LogRecord) -> bool:
    """Tell whether it is a database driver's news that the database is away, and no fault."""
    error = record.exc_info[1] if record.exc_info else None
    return record.name.partition(".")[0] == _DRIVER and isinstance(error, Exception)


def _shown(key: str, value: Any) -> str:
    if value is None:
        return "-"
    if is_secret_name(key):
        return HIDDEN
    if isinstance(value, float):
        text = f"{value:.3f}"
    elif isinstance(value, str | int):
        text = redact_long(str(value))
    else:
        text = str(redacted(value))
    return text if _BARE.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def _escape(match: re.Match[str]) -> str:
    return match.group().encode("unicode_escape").decode("ascii")


LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_DAY_SECONDS: Final = 86_400
FORMATS: Final = ("auto", "human", "json")


def get_loggers() -> list[str]:
    """Return the names of all loggers that exist so far."""
    return sorted(logging.root.manager.loggerDict)


def init_logger(
    *,
    level: str | None = None,
    log_dir: str | Path | None = "logs",
    stream: TextIO | None = None,
    log_format: str | None = None,
    max_bytes: int = 0,
) -> None:
    """Set up logging for a program: lines on stderr and in ``logs/mail_YYYY-MM-DD.log``.

    The ``mail`` loggers get their own handlers. The root logger gets the same ones, if it has none
    yet, so that other libraries' warnings look alike and are redacted too. Calling it again
    replaces what the first call set up.

    Args:
        level: Level of the ``mail`` loggers; ``MAIL_LOG_LEVEL``, else INFO, when None.
        log_dir: Folder of the log files; None for no files.
        stream: The destination of lines instead of stderr.
        log_format: ``"human"``, ``"json"``, or ``"auto"``: human on a terminal, JSON elsewhere
            and in the files. ``MAIL_LOG_FORMAT``, else ``"auto"``, when None.
        max_bytes: The limit of all log files together, 0 for none; the oldest are deleted.

    Raises:
        ConfigError: the level or the format is unknown, or the folder cannot be made.
    """
    chosen = (level or setting(LOG_LEVEL) or "INFO").upper()
    if chosen not in LEVELS:
        raise ConfigError(f"{LOG_LEVEL} must be one of {', '.join(LEVELS)}")
    form = (log_format or setting(LOG_FORMAT) or "auto").lower()
    if form not in FORMATS:
        raise ConfigError(f"{LOG_FORMAT} must be one of {', '.join(FORMATS)}")
    console = stream or sys.stderr
    handlers: list[logging.Handler] = [ConsoleHandler(console)]
    is_terminal = not console.closed and console.isatty()
    handlers[0].setFormatter(_formatter(form, is_terminal))
    if log_dir is not None:
        handlers.append(DailyFileHandler(Path(log_dir), max_bytes))
        handlers[1].setFormatter(_formatter(form, terminal=False))
    for handler in handlers:
        handler.addFilter(ContextFilter())
    mail = logging.getLogger("mail")
    mail.setLevel(chosen)
    mail.propagate = False
    _install(mail, handlers)
    root = logging.getLogger()
    if all(isinstance(h.formatter, OwnFormatter) for h in root.handlers):
        _install(root, handlers)


def _formatter(form: str, terminal: bool) -> OwnFormatter:
    human = form == "human" or (form == "auto" and terminal)
    return LineFormatter() if human else JSONFormatter()


def _install(logger: logging.Logger, handlers: list[logging.Handler]) -> None:
    ours = [h for h in logger.handlers if isinstance(h.formatter, OwnFormatter)]
    for handler in ours:
        logger.removeHandler(handler)
        if handler not in handlers:
            handler.close()
    for handler in handlers:
        logger.addHandler(handler)


class QuietHandler(logging.Handler):
    """A handler that says on stderr when it fails, and never what it was to write.

    The standard library would print the record's arguments and a traceback, which nothing redacts.
    """

    _failing = False

    def handleError(self, record: logging.LogRecord) -> None:
        """Tell of the first failure in a row."""
        error = sys.exc_info()[1]
        first, self._failing = not self._failing, True
        if first and sys.stderr is not None:
            reason = getattr(error, "strerror", None) or type(error).__name__
            with suppress(OSError, ValueError):
                sys.stderr.write(f"mail: the log cannot be written: {reason}\n")


class ConsoleHandler(QuietHandler, logging.StreamHandler[TextIO]):
    """Writes lines to a stream."""


class DailyFileHandler(QuietHandler):
    """Appends to ``mail_YYYY-MM-DD.log`` (UTC) in a folder; a new day begins a new file.

    The folder (0700) and the files (0600) that it makes are their owner's alone. What is there
    already keeps its permissions.

    Args:
        folder: The folder of the files.
        max_bytes: The limit of all files together, 0 for none. A file has at most a tenth of
            it; the next of the day is ``mail_YYYY-MM-DD_0001.log``. The oldest ones are deleted
            when a file is begun.
    """

    def __init__(self, folder: Path, max_bytes: int = 0) -> None:
        super().__init__(logging.INFO)
        try:
            folder.mkdir(0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"the log folder '{folder.absolute()}' cannot be made: {error.strerror}; "
                "start the server in another folder, or make room for it"
            ) from error
        self._folder = folder
        self._max_bytes = max_bytes
        self._part_bytes = max_bytes // _PARTS
        self._day = 0  # since 1970
        self._written = 0
        self._file: BufferedWriter | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record's line at once."""
        try:
            line = (self.format(record) + "\n").encode("utf-8", "backslashreplace")
            file = self._open(int(record.created // _DAY_SECONDS), record.created, len(line))
            file.write(line)
            file.flush()
            self._written += len(line)
            self._failing = False
        except Exception:  # noqa: BLE001 - logging must never stop the program (as in the stdlib)
            self.handleError(record)
            self._let_go()  # else what it holds of the line comes before the next one

    def close(self) -> None:
        """Close the file."""
        self.acquire()
        try:
            self._let_go()
        finally:
            self.release()
        super().close()

    def _let_go(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):  # the disk is full, and the line is lost already
                file.close()

    def _open(self, day: int, created: float, size: int) -> BufferedWriter:
        full = 0 < self._part_bytes < self._written + size
        if self._file is None or day != self._day or (full and self._written):
            self._let_go()
            path = self._next(f"mail_{datetime.fromtimestamp(created, UTC):%Y-%m-%d}", size)
            handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            self._file = os.fdopen(handle, "ab")
            self._written = os.fstat(handle).st_size
            self._day = day
        return self._file

    def _next(self, day: str, size: int) -> Path:
        """Return the last file of a day, or the one after it where that is full; make room."""
        if not self._max_bytes:
            return self._folder / f"{day}.log"
        sizes = dict(sorted(_log_files(self._folder)))
        last = max((key for key in sizes if key[0] == day), default=(day, 0))
        if sizes.get(last, 0) and sizes[last] + size > self._part_bytes:
            last = (day, last[1] + 1)
        left = self._max_bytes - self._part_bytes - sum(sizes.values()) + sizes.pop(last, 0)
        for key, freed in sizes.items():
            if left >= 0:
                break
            with suppress(OSError):
                (self._folder / _file_name(*key)).unlink()
                left += freed
        return self._folder / _file_name(*last)


def _log_files(folder: Path) -> Iterator[tuple[tuple[str, int], int]]:
    """Yield the day and the number of each file that a `DailyFileHandler` made, and its size."""
    for path in folder.iterdir():
        found = _FILE_NAME.fullmatch(path.name)
        if found:
            with suppress(OSError):  # another process has deleted it
                yield (found[1], int(found[2] or 0)), path.stat().st_size


def _file_name(day: str, number: int) -> str:
    return f"{day}_{number:04}.log" if number else f"{day}.log"
