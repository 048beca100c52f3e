"""How log records look: a line for people, or a JSON object for programs.

Both are one line per record without secrets (`mail.redaction`) that no text from outside can
forge or break, and both tell on whose behalf the record was written (`mail.logcontext`).
"""

import json
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from json.encoder import encode_basestring_ascii as _quoted
from typing import Any, Final

from mail.logcontext import NOBODY, LogContext, current
from mail.redaction import (
    HIDDEN,
    harmless,
    is_secret_name,
    redact,
    redact_long,
    redacted,
)

__all__ = ["ContextFilter", "JSONFormatter", "LineFormatter", "OwnFormatter"]

_OURS: Final = "mail"
_DRIVER: Final = "asyncpg"
_STAMP: Final = "mail_context"
_RENDERED: Final = "mail_rendered"
_STANDARD: Final = frozenset(
    {*vars(logging.makeLogRecord({})), "message", "asctime", _STAMP, _RENDERED}
)
_FIXED: Final = ("time", "level", "logger", "message")
_LAST: Final = ("exception", "stack")
_TRACE: Final = 64 * 1024
"""The longest traceback that is shown whole."""
_BARE: Final = re.compile(r"[^\s\"'=]+")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")


class ContextFilter(logging.Filter):
    """Stamps each record of a handler with the context that it was written in; drops none."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Stamp the record, unless another handler has."""
        if not hasattr(record, _STAMP):
            setattr(record, _STAMP, current())
        return True


class OwnFormatter(logging.Formatter, ABC):
    """What the two forms have in common, and how our handlers are told from others."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record in this form; made once, for the console and the file often agree."""
        rendered: dict[type, str] = record.__dict__.setdefault(_RENDERED, {})
        form = type(self)
        if form not in rendered:
            rendered[form] = self._render(record)
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
            yield _LAST[0], redact_long(self.formatException(record.exc_info), _TRACE)
        if record.stack_info:
            yield _LAST[1], redact_long(self.formatStack(record.stack_info), _TRACE)


class LineFormatter(OwnFormatter):
    """One readable line per record; a traceback follows it indented and just as harmless.

    There are no secrets, forged lines or terminal codes in it.
    """

    def _render(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        data = "".join(f" {_safe(key)}={_shown(key, value)}" for key, value in self._fields(record))
        message = redact_long(record.getMessage()) + data
        line = f"{time}Z {record.levelname:<7} {record.name}  {_CONTROL.sub(_escape, message)}"
        return line + "".join(_indent(text) for _, text in self._traces(record))


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


def _safe(key: str) -> str:
    return redact(key)


def _escape(match: re.Match[str]) -> str:
    return match.group().encode("unicode_escape").decode("ascii")


def _indent(text: str) -> str:
    lines = text.replace("\r\n", "\n").split("\n")
    return "".join(f"\n    | {_CONTROL.sub(_escape, line)}" for line in lines)
