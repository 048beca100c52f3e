"""Logging set-up for entry points. Importing this module, or any other, sets nothing up.

Lines are for people: ``time LEVEL logger message key=value …``, where the values are what our own
records carry in ``extra``. Text that came from outside cannot forge a
line (line breaks and control characters are escaped), means nothing to the terminal, and shows no
secret that has a known shape. Handlers of other libraries stay as they are.
"""

import json
import logging
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TextIO

from mail.config.env import LOG_LEVEL, setting
from mail.errors import ConfigError

__all__ = ["DailyFileHandler", "LineFormatter", "get_loggers", "init_logger", "redact"]

_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_HIDDEN: Final = "[redacted]"
_SECRETS: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), rf"\1{_HIDDEN}")
    for pattern in (
        r"(authorization[\"']?\s*[:=]\s*[\"']?(?:(?:bearer|basic)\s+)?)[^\s\"',}]+",
        r"\b(bearer\s+)[\w.~+/=-]{8,}",
        r"\b(mail_)[\w-]{24,}",
        r"\b(sk-)[\w-]{8,}",
        r"\b(https?://[^\s:/@]*:)[^\s/]*(?=@)",
        r"\b((?!https?:)[a-z][a-z0-9+.-]*://[^\s:/@]*:)\S*(?=@)",
        r"\b((?:api[_-]?key|auth_token|access_token|password|passwd|secret)"
        r"[\"']?\s*[=:]\s*[\"']?)[^\s\"',;&}]+",
    )
)
_OURS: Final = "mail"
_STANDARD: Final = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime"})
_SECRET_KEY: Final = re.compile(
    r"(?:^|_)(?:authorization|dsn|key|passwd|password|secret|token)$", re.IGNORECASE
)
_BARE: Final = re.compile(r"[^\s\"'=]+")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")


def redact(text: str) -> str:
    """Return the text with tokens, provider keys, headers and DSN passwords blotted out."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


def get_loggers() -> list[str]:
    """Return the names of all loggers that exist so far."""
    return sorted(logging.root.manager.loggerDict)


def init_logger(
    *, level: str | None = None, log_dir: str | Path | None = "logs", stream: TextIO | None = None
) -> None:
    """Set up logging for a program: lines on stderr and in ``logs/mail_YYYY-MM-DD.log``.

    The ``mail`` loggers get their own handlers. The root logger gets the same ones, if it has none
    yet, so that other libraries' warnings look alike and are redacted too. Calling it again
    replaces what the first call set up.

    Args:
        level: Level of the ``mail`` loggers; ``MAIL_LOG_LEVEL``, else INFO, when None.
        log_dir: Folder of the log files; None for no files.
        stream: Where lines go instead of stderr.

    Raises:
        ConfigError: the level is unknown or the folder cannot be made.
    """
    chosen = (level or setting(LOG_LEVEL) or "INFO").upper()
    if chosen not in _LEVELS:
        raise ConfigError(f"{LOG_LEVEL} must be one of {', '.join(_LEVELS)}")
    handlers: list[logging.Handler] = [logging.StreamHandler(stream or sys.stderr)]
    if log_dir is not None:
        handlers.append(DailyFileHandler(Path(log_dir)))
    for handler in handlers:
        handler.setFormatter(LineFormatter())
    mail = logging.getLogger("mail")
    mail.setLevel(chosen)
    mail.propagate = False
    _install(mail, handlers)
    root = logging.getLogger()
    if all(isinstance(h.formatter, LineFormatter) for h in root.handlers):
        _install(root, handlers)


def _install(logger: logging.Logger, handlers: list[logging.Handler]) -> None:
    ours = [h for h in logger.handlers if isinstance(h.formatter, LineFormatter)]
    for handler in ours:
        logger.removeHandler(handler)
        if handler not in handlers:
            handler.close()
    for handler in handlers:
        logger.addHandler(handler)


class LineFormatter(logging.Formatter):
    """One readable line per record; a traceback follows it indented and just as harmless."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text without secrets, forged lines or terminal codes."""
        time = datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        message = redact(record.getMessage()) + _data(record)
        line = f"{time}Z {record.levelname:<7} {record.name}  {_CONTROL.sub(_escape, message)}"
        if record.exc_info:
            line += _indent(redact(self.formatException(record.exc_info)))
        if record.stack_info:
            line += _indent(redact(self.formatStack(record.stack_info)))
        return line


def _data(record: logging.LogRecord) -> str:
    """Return what one of our own records carries beside its text; other libraries' is not shown."""
    if record.name.partition(".")[0] != _OURS:
        return ""
    data = ((key, value) for key, value in vars(record).items() if key not in _STANDARD)
    return "".join(f" {key}={_shown(key, value)}" for key, value in data)


def _shown(key: str, value: Any) -> str:
    if value is None:
        return "-"
    if _SECRET_KEY.search(key):
        return _HIDDEN
    text = f"{value:.3f}" if isinstance(value, float) else redact(str(value))
    return text if _BARE.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def _escape(match: re.Match[str]) -> str:
    return match.group().encode("unicode_escape").decode("ascii")


def _indent(text: str) -> str:
    lines = text.replace("\r\n", "\n").split("\n")
    return "".join(f"\n    | {_CONTROL.sub(_escape, line)}" for line in lines)


class DailyFileHandler(logging.Handler):
    """Appends to ``mail_YYYY-MM-DD.log`` (UTC) in a folder; a new day begins a new file."""

    def __init__(self, folder: Path) -> None:
        super().__init__(logging.INFO)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"log folder '{folder}': {error.strerror}") from error
        self._folder = folder
        self._day = ""
        self._file: TextIO | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record's line at once."""
        try:
            line = self.format(record)
            file = self._open(datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%d"))
            file.write(line + "\n")
            file.flush()
        except Exception:  # noqa: BLE001 - logging must never stop the program (as in the stdlib)
            self.handleError(record)

    def close(self) -> None:
        """Close the file."""
        self.acquire()
        try:
            if self._file is not None:
                self._file.close()
                self._file = None
        finally:
            self.release()
        super().close()

    def _open(self, day: str) -> TextIO:
        if self._file is None or day != self._day:
            if self._file is not None:
                self._file.close()
            self._file = (self._folder / f"mail_{day}.log").open("a", encoding="utf-8")
            self._day = day
        return self._file
