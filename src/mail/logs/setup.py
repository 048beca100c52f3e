"""Logging set-up for entry points. Importing this module, or any other, sets nothing up.

Where lines go decides how they look: people read a terminal, programs read everything else, unless
a form is asked for. `mail.logs.formats` has the two forms. Handlers of other libraries stay as
they are.
"""

import logging
import os
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TextIO

from mail.config.env import LOG_FORMAT, LOG_LEVEL, setting
from mail.errors import ConfigError
from mail.logs.formats import ContextFilter, JSONFormatter, LineFormatter, OwnFormatter
from mail.redaction import redact

__all__ = [
    "FORMATS",
    "LEVELS",
    "DailyFileHandler",
    "JSONFormatter",
    "LineFormatter",
    "get_loggers",
    "init_logger",
    "redact",
]

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
) -> None:
    """Set up logging for a program: lines on stderr and in ``logs/mail_YYYY-MM-DD.log``.

    The ``mail`` loggers get their own handlers. The root logger gets the same ones, if it has none
    yet, so that other libraries' warnings look alike and are redacted too. Calling it again
    replaces what the first call set up.

    Args:
        level: Level of the ``mail`` loggers; ``MAIL_LOG_LEVEL``, else INFO, when None.
        log_dir: Folder of the log files; None for no files.
        stream: Where lines go instead of stderr.
        log_format: ``"human"``, ``"json"``, or ``"auto"``: human on a terminal, JSON elsewhere
            and in the files. ``MAIL_LOG_FORMAT``, else ``"auto"``, when None.

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
    handlers[0].setFormatter(_formatter(form, _is_terminal(console)))
    if log_dir is not None:
        handlers.append(DailyFileHandler(Path(log_dir)))
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


def _is_terminal(stream: TextIO) -> bool:
    return not stream.closed and stream.isatty()


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
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(logging.INFO)
        try:
            folder.mkdir(0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"the log folder '{folder.absolute()}' cannot be made: {error.strerror}; "
                "start the server in another folder, or make room for it"
            ) from error
        self._folder = folder
        self._day = 0  # since 1970
        self._file: TextIO | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record's line at once."""
        try:
            line = self.format(record)
            file = self._open(int(record.created // _DAY_SECONDS), record.created)
            file.write(line + "\n")
            file.flush()
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

    def _open(self, day: int, created: float) -> TextIO:
        if self._file is None or day != self._day:
            self._let_go()
            path = self._folder / f"mail_{datetime.fromtimestamp(created, UTC):%Y-%m-%d}.log"
            handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            self._file = os.fdopen(handle, "a", encoding="utf-8", errors="backslashreplace")
            self._day = day
        return self._file
