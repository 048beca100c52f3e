"""The documented import path of the logging set-up."""

from mail.logs.setup import (
    FORMATS,
    LEVELS,
    DailyFileHandler,
    JSONFormatter,
    LineFormatter,
    get_loggers,
    init_logger,
    redact,
)

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
